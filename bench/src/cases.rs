//! The benchmark's problems, with their expected results and the goals for their times.

use apron::{Family, Filter, Gradient, Pixel, Result, Scalar, Shape, Step, f16};

/// One problem: an image of random pixels and a filter. Every variant that accepts it is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Which of the sets it belongs to.
    pub suite: Suite,
    /// Images that one call filters, one below the other in memory.
    pub images: usize,
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Values in a pixel.
    pub channels: usize,
    /// How a value is stored.
    pub stored: Scalar,
    /// How a result is stored.
    pub target: Scalar,
    /// Tap columns and rows.
    pub taps: usize,
    /// How the taps are made.
    pub form: Form,
    /// The goals for the best variant of each class.
    pub goals: [Option<Goal>; 2],
    /// The checksums of the direct and of the separable result.
    pub sums: [Option<u64>; 2],
    /// Whether it runs only with `--large`.
    pub large: bool,
}

/// Which table of [`cases`] a case comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// Images of f32, chosen for a GPU.
    Gpu,
    /// Images of f32 and u8, chosen for a CPU.
    Cpu,
    /// Pictures in a GPU's memory with interleaved channels, mostly u8.
    Pictures,
    /// As [`Suite::Pictures`], under wide filters.
    Wide,
}

/// How a filter's taps are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Each tap random: the filter does not separate.
    Random,
    /// A random row and a random column.
    Product,
    /// The Gaussian whose sigma fits the number of taps, as OpenCV chooses it.
    Gaussian,
    /// An unsharp mask: a product, and the pixel itself.
    Unsharp,
    /// The derivative along a row.
    Sobel,
    /// The magnitude of both derivatives: no filter, but a gradient.
    Gradient,
    /// Equal taps.
    Mean,
}

/// The form in which a contender gets a filter. The two have different costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// As taps row by row.
    Dense,
    /// As a row and a column.
    Pair,
}

/// A goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// At least this percentage of the limit.
    Limit(f64),
    /// At most this many microseconds on an H200.
    Micros(f64),
    /// No slower than any rival.
    Rivals,
    /// At most this fraction of OpenCV's time.
    OpenCv(f64),
}

/// One row of the first table: columns and rows of f32 pixels, channels, taps, their form, goals
/// for the direct and the separable families, checksums of both results, and whether the case is
/// large.
type Row = (usize, usize, usize, usize, Form, [Option<Goal>; 2], [Option<u64>; 2], bool);

const fn limits(dense: f64, pair: f64) -> [Option<Goal>; 2] {
    [Some(Goal::Limit(dense)), Some(Goal::Limit(pair))]
}

const fn dense(goal: Goal) -> [Option<Goal>; 2] {
    [Some(goal), None]
}

const fn pair(percent: f64) -> [Option<Goal>; 2] {
    [None, Some(Goal::Limit(percent))]
}

const NO_GOAL: [Option<Goal>; 2] = [None, None];

#[rustfmt::skip]
const GPU: &[Row] = &[
    (2048, 1024, 1, 5, Form::Product, dense(Goal::Micros(6.0)), [Some(0x449e_ddfc_af41_39da), Some(0x642b_b8db_995d_fa4d)], false),
    (4096, 4096, 1, 5, Form::Product, NO_GOAL, [Some(0x2c95_33cc_91dd_d1af), Some(0x6c47_107a_41ff_8429)], false),
    (4096, 4096, 1, 17, Form::Product, NO_GOAL, [Some(0x002d_3a66_b997_bc26), Some(0xbefe_ccbd_b379_468c)], false),
    (8192, 8192, 1, 3, Form::Product, dense(Goal::Limit(90.0)), [Some(0x83cb_6feb_b562_d79d), Some(0xd0cf_9fba_6422_6c4d)], false),
    (8192, 8192, 1, 5, Form::Product, limits(88.0, 90.0), [Some(0x6a41_99c7_c549_37ce), Some(0x2bcd_015f_7dc0_757d)], false),
    (8192, 8192, 1, 7, Form::Product, dense(Goal::Limit(80.0)), [Some(0xb9a1_21cf_7ddb_ba19), Some(0x19c2_aa08_f9ec_a186)], false),
    (8192, 8192, 1, 9, Form::Product, dense(Goal::Limit(80.0)), [Some(0x367d_8480_5e00_8ac2), Some(0x30fd_6804_c271_96f1)], false),
    (8192, 8192, 1, 17, Form::Product, limits(80.0, 80.0), [Some(0x9c54_76ac_42d1_9396), Some(0x3812_bf5b_a6d2_7d82)], false),
    (8192, 8192, 1, 33, Form::Product, pair(65.0), [Some(0x245a_6669_03a0_6cc7), Some(0x0c9e_8b30_e67a_275a)], false),
    (6500, 5200, 3, 7, Form::Product, dense(Goal::Micros(245.0)), [Some(0x8f92_18a8_e0e9_2abc), Some(0x573d_ad64_7d7e_a2d2)], false),
    (1024, 1024, 1, 17, Form::Product, NO_GOAL, [Some(0x9ccf_82f8_500d_d537), Some(0xe315_3c7c_197e_c05b)], false),
    (2048, 2048, 1, 17, Form::Product, NO_GOAL, [Some(0x3d34_2f94_06c1_52bf), Some(0x651d_643b_a3d8_95c0)], false),
    (2048, 2048, 1, 51, Form::Random, dense(Goal::Rivals), [Some(0x8326_939f_c458_d9f9), None], false),
    (8192, 8192, 1, 51, Form::Random, dense(Goal::Rivals), [Some(0xd55b_bb53_021a_1cda), None], false),
    (16384, 16384, 1, 5, Form::Product, limits(88.0, 90.0), [Some(0x27f1_4ad9_b711_de43), Some(0x1486_5b93_3be5_46a9)], true),
    (16384, 16384, 1, 17, Form::Product, limits(80.0, 80.0), [Some(0x9b35_9c1f_5eba_5761), Some(0x42e9_b509_4753_049e)], true),
    (32768, 32768, 1, 5, Form::Product, limits(88.0, 90.0), [None, None], true),
    (32768, 32768, 1, 17, Form::Product, limits(80.0, 80.0), [None, None], true),
];

/// Tap columns and rows of the filters, one entry for each column of the second table.
const CPU_TAPS: [usize; 6] = [3, 5, 7, 9, 17, 31];

/// One row of the second table: stored type, channels, form, goals as fractions of OpenCV's time,
/// checksums.
type CpuRow = (Scalar, usize, Form, [f64; 6], [Option<u64>; 6]);

/// The second table, with the wide Gaussians. All images have 2048x2048 pixels.
#[rustfmt::skip]
const CPU: &[CpuRow] = &[
    (Scalar::F32, 1, Form::Random, [0.7, 0.7, 0.5, 0.5, 0.3, 0.7], [
        Some(0x2797_8a29_d2f0_49be), Some(0x3024_52f8_228a_d175), Some(0x439f_19d0_ad0a_a197),
        Some(0xceb9_6999_07de_1da4), Some(0x7fdf_1975_5c96_4756), Some(0xc852_1af3_0935_10a5),
    ]),
    (Scalar::F32, 1, Form::Product, [0.7, 0.7, 0.6, 0.6, 0.7, 0.8], [
        Some(0xdded_6048_ac3d_9ab8), Some(0x9a34_8965_7050_bb11), Some(0xa026_eff0_a8a9_0eed),
        Some(0xa432_d3b8_f11f_30a5), Some(0x713b_fbf9_3061_da27), Some(0xde39_6e0d_4f3c_6f93),
    ]),
    (Scalar::U8, 1, Form::Random, [0.8, 0.5, 0.4, 0.3, 0.2, 0.5], [
        Some(0x5105_47c6_7039_fbd7), Some(0x898f_be92_2ed2_c620), Some(0x2cef_6655_710a_7238),
        Some(0xb46b_b1c9_9033_ec8a), Some(0x1027_6fd7_259a_d127), Some(0x8a51_55cf_0922_43a2),
    ]),
    (Scalar::U8, 1, Form::Gaussian, [1.0, 1.0, 1.0, 1.0, 0.8, 0.5], [
        Some(0xdb73_e832_d4b4_4e15), Some(0x5b99_e564_bbd3_561b), Some(0xa13c_5c27_89d6_ec63),
        Some(0x4a48_60a4_aefd_67f7), Some(0xdddc_febd_5bab_4fea), Some(0x6d47_a6da_b3a2_e33a),
    ]),
    (Scalar::U8, 3, Form::Random, [0.7, 0.5, 0.4, 0.3, 0.2, 0.5], [
        Some(0x74ca_63bc_cbe8_e8f7), Some(0x3278_255e_5a51_3f95), Some(0xdc6a_d773_f9a7_78a8),
        Some(0x585d_36a9_3cdc_cc7b), Some(0x8302_a3fb_1b11_437a), Some(0x6058_9eb2_713b_baeb),
    ]),
    (Scalar::U8, 3, Form::Gaussian, [0.8, 0.7, 0.8, 0.7, 0.6, 0.5], [
        Some(0x1395_5335_d409_0474), Some(0x9bae_36b7_af5b_43c1), Some(0x5ae4_4115_84e6_038b),
        Some(0xcc0b_4fd7_757f_a67c), Some(0x9a77_cf3a_74ce_e269), Some(0x96e6_0ba8_fc43_85a3),
    ]),
];

/// Wide Gaussians of the second table: as many taps as those of sigma 20, 50 and 100 that end at
/// 4 sigma.
const CPU_WIDE_TAPS: [usize; 3] = [161, 401, 801];

/// The wide Gaussians' stored types and channels, with the goal as a fraction of OpenCV's time, and
/// checksums.
#[rustfmt::skip]
const CPU_WIDE: [(Scalar, usize, f64, [u64; 3]); 3] = [
    (Scalar::F32, 1, 0.5, [
        0x1d43_1680_c64e_5e46, 0xaac5_9f90_c007_9ff8, 0xed7a_3714_6c2f_58df,
    ]),
    (Scalar::U8, 1, 0.5, [
        0xf13c_c601_4d1c_b165, 0xff6a_5298_db7e_8ddd, 0x980b_ce87_8aee_6e86,
    ]),
    (Scalar::U8, 3, 0.5, [
        0xbba0_a20c_dd02_8659, 0x018a_b531_757f_bb00, 0x8c57_d5d0_0e05_36e2,
    ]),
];

/// Rows of the third table that share an image: (images, columns and rows of each), (stored type,
/// channels, type of the results), filters.
type Pictures = ((usize, usize, usize), (Scalar, usize, Scalar), &'static [(Form, usize)]);

/// The filters of the large pictures of bytes.
const ALL_FILTERS: &[(Form, usize)] = &[
    (Form::Random, 3),
    (Form::Gradient, 3),
    (Form::Random, 5),
    (Form::Random, 7),
    (Form::Random, 17),
    (Form::Gaussian, 5),
    (Form::Gaussian, 17),
    (Form::Gaussian, 33),
];

/// Further windows for large pictures of one channel, up to sizes at which spectra are faster.
const WIDE_FILTERS: &[(Form, usize)] = &[
    (Form::Random, 9),
    (Form::Random, 13),
    (Form::Random, 25),
    (Form::Random, 33),
    (Form::Gaussian, 9),
];

/// Blurs with as many taps as those of sigma 5, 10, 20, 50 and 100 that end at 4 sigma.
const WIDE_BLURS: &[(Form, usize)] = &[
    (Form::Gaussian, 41),
    (Form::Gaussian, 81),
    (Form::Gaussian, 161),
    (Form::Gaussian, 401),
    (Form::Gaussian, 801),
];

/// The filters of video frames.
const FRAME_FILTERS: &[(Form, usize)] =
    &[(Form::Random, 3), (Form::Gaussian, 5), (Form::Gaussian, 17)];

/// The filters of a batch of frames.
const BATCH_FILTERS: &[(Form, usize)] =
    &[(Form::Random, 3), (Form::Random, 5), (Form::Gaussian, 17)];

const PICTURES: &[Pictures] = &[
    ((1, 8192, 8192), (Scalar::U8, 1, Scalar::U8), ALL_FILTERS),
    ((1, 8192, 8192), (Scalar::U8, 1, Scalar::U8), WIDE_FILTERS),
    ((1, 2048, 2048), (Scalar::U8, 1, Scalar::U8), &[(Form::Random, 17)]),
    ((1, 8192, 8192), (Scalar::U8, 3, Scalar::U8), ALL_FILTERS),
    ((1, 8192, 8192), (Scalar::U8, 4, Scalar::U8), ALL_FILTERS),
    ((1, 8192, 8192), (Scalar::F32, 3, Scalar::F32), &[(Form::Random, 5), (Form::Gaussian, 17)]),
    ((1, 8192, 8192), (Scalar::U16, 1, Scalar::U16), &[(Form::Random, 5)]),
    ((1, 8192, 8192), (Scalar::F16, 1, Scalar::F16), &[(Form::Random, 5)]),
    (
        (1, 8192, 8192),
        (Scalar::U8, 1, Scalar::F32),
        &[(Form::Random, 3), (Form::Sobel, 3), (Form::Gradient, 3)],
    ),
    (
        (1, 6000, 4000),
        (Scalar::U8, 3, Scalar::U8),
        &[(Form::Gaussian, 17), (Form::Unsharp, 17), (Form::Unsharp, 81)],
    ),
    ((1, 1920, 1080), (Scalar::U8, 3, Scalar::U8), FRAME_FILTERS),
    ((1, 4000, 3000), (Scalar::U8, 3, Scalar::U8), &[(Form::Gaussian, 17)]),
    ((64, 1920, 1080), (Scalar::U8, 3, Scalar::U8), BATCH_FILTERS),
];

/// Rows of the fourth table.
const WIDE: &[Pictures] = &[
    ((1, 8192, 8192), (Scalar::F32, 1, Scalar::F32), WIDE_BLURS),
    ((1, 8192, 8192), (Scalar::F32, 3, Scalar::F32), WIDE_BLURS),
    ((1, 8192, 8192), (Scalar::U16, 1, Scalar::U16), WIDE_BLURS),
    ((1, 8192, 8192), (Scalar::U8, 1, Scalar::U8), WIDE_BLURS),
    ((1, 8192, 8192), (Scalar::U8, 3, Scalar::U8), WIDE_BLURS),
    ((1, 8192, 8192), (Scalar::F32, 1, Scalar::F32), MEANS),
];

/// Means of wide windows.
const MEANS: &[(Form, usize)] = &[(Form::Mean, 51), (Form::Mean, 101), (Form::Mean, 401)];

/// All cases, those for a GPU first.
pub fn cases() -> Vec<Case> {
    let gpu = GPU.iter().map(|&(width, height, channels, taps, form, goals, sums, large)| Case {
        suite: Suite::Gpu,
        images: 1,
        width,
        height,
        channels,
        stored: Scalar::F32,
        target: Scalar::F32,
        taps,
        form,
        goals,
        sums,
        large,
    });
    let on_cpu = |stored, channels, form: Form, taps, goal, sum: Option<u64>| Case {
        suite: Suite::Cpu,
        images: 1,
        width: 2048,
        height: 2048,
        channels,
        stored,
        target: stored,
        taps,
        form,
        goals: Class::ALL.map(|class| Some(Goal::OpenCv(goal)).filter(|_| form.class() == class)),
        sums: Class::ALL.map(|class| sum.filter(|_| form.class() == class)),
        large: false,
    };
    let cpu = CPU.iter().flat_map(|&(stored, channels, form, goals, sums)| {
        (0..CPU_TAPS.len())
            .map(move |i| on_cpu(stored, channels, form, CPU_TAPS[i], goals[i], sums[i]))
    });
    let cpu_wide = CPU_WIDE.iter().flat_map(|&(stored, channels, goal, sums)| {
        (0..CPU_WIDE_TAPS.len()).map(move |i| {
            on_cpu(stored, channels, Form::Gaussian, CPU_WIDE_TAPS[i], goal, Some(sums[i]))
        })
    });
    let plain = PICTURES.iter().map(|pictures| (Suite::Pictures, pictures));
    let wide = WIDE.iter().map(|pictures| (Suite::Wide, pictures));
    let pictures = plain.chain(wide).flat_map(
        |(suite, &((images, width, height), (stored, channels, target), filters))| {
            filters.iter().map(move |&(form, taps)| Case {
                suite,
                images,
                width,
                height,
                channels,
                stored,
                target,
                taps,
                form,
                goals: NO_GOAL,
                sums: [None; 2],
                large: false,
            })
        },
    );
    gpu.chain(cpu).chain(cpu_wide).chain(pictures).collect()
}

impl Class {
    /// Both, in the order of [`Case::goals`] and [`Case::sums`].
    pub const ALL: [Self; 2] = [Self::Dense, Self::Pair];

    /// The class whose taps a family computes with.
    pub fn of(family: Family) -> Self {
        match family {
            Family::Separable | Family::SpectraPasses => Self::Pair,
            _ => Self::Dense,
        }
    }

    /// The name in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dense => "dense",
            Self::Pair => "pair",
        }
    }
}

impl Form {
    /// The name in cases' names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Product => "product",
            Self::Gaussian => "gaussian",
            Self::Unsharp => "unsharp",
            Self::Sobel => "sobel",
            Self::Gradient => "gradient",
            Self::Mean => "mean",
        }
    }

    /// The class in which a filter of this form is given.
    pub fn class(self) -> Class {
        if matches!(self, Self::Product | Self::Gaussian | Self::Sobel | Self::Mean) {
            Class::Pair
        } else {
            Class::Dense
        }
    }
}

/// The sigma in pixels that OpenCV's `getGaussianKernel` derives from a number of taps.
fn sigma(taps: usize) -> f64 {
    0.3 * ((taps as f64 - 1.0) / 2.0 - 1.0) + 0.8
}

impl Form {
    /// A filter of `taps` columns and `taps` rows; for a gradient, its derivative along a row.
    /// Random taps add up to 1 if `level`. The taps of a Gaussian always do, the taps of a
    /// derivative never.
    ///
    /// # Errors
    /// The errors of [`Filter`]; none for up to some thousands of taps.
    pub fn filter(self, taps: usize, level: bool) -> Result<Filter> {
        let mut random = fastrand::Rng::with_seed(taps as u64);
        let mut some = |count| {
            let taps: Vec<f32> = (0..count).map(|_| random.f32() - 0.25).collect();
            let sum: f32 = if level { taps.iter().sum() } else { 1.0 };
            taps.into_iter().map(|tap| tap / sum).collect::<Vec<_>>()
        };
        match self {
            Self::Random => Filter::from_taps(taps, taps, &some(taps * taps)),
            Self::Product => {
                let row = some(taps);
                Filter::separable(&row, &some(taps))
            }
            // A window of this size has SciPy's radius, 4 sigma.
            Self::Unsharp => Filter::unsharp((taps / 2) as f64 / 4.0, 1.0),
            Self::Gaussian => {
                let (middle, sigma) = ((taps / 2) as f64, sigma(taps));
                let taps: Vec<_> = (0..taps)
                    .map(|i| (-(i as f64 - middle).powi(2) / (2.0 * sigma * sigma)).exp())
                    .collect();
                let sum: f64 = taps.iter().sum();
                let taps: Vec<_> = taps.iter().map(|tap| tap / sum).collect();
                Filter::separable_f64(&taps, &taps)
            }
            Self::Sobel | Self::Gradient => Filter::sobel_x_sized(taps),
            Self::Mean => Filter::box_filter(taps, taps),
        }
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Limit(percent) => write!(f, "{percent} %"),
            Self::Micros(us) => write!(f, "{us} us"),
            Self::Rivals => f.write_str("the fastest"),
            Self::OpenCv(part) => write!(f, "{part} x OpenCV"),
        }
    }
}

/// A pixel type that cases are made of.
pub trait Random: Pixel + bytemuck::NoUninit + Into<f64> {
    /// Fills a result's memory before it is computed. For floats, this is never a correct result.
    const POISON: Self;

    /// A random value.
    fn random(random: &mut fastrand::Rng) -> Self;
}

impl Random for f32 {
    const POISON: Self = Self::NAN;

    /// From -1 to 1.
    fn random(random: &mut fastrand::Rng) -> Self {
        2.0 * random.f32() - 1.0
    }
}

impl Random for u8 {
    const POISON: Self = 0xA5;

    fn random(random: &mut fastrand::Rng) -> Self {
        random.u8(..)
    }
}

impl Random for u16 {
    const POISON: Self = 0xA5A5;

    fn random(random: &mut fastrand::Rng) -> Self {
        random.u16(..)
    }
}

impl Random for f16 {
    const POISON: Self = Self::NAN;

    /// From -1 to 1.
    fn random(random: &mut fastrand::Rng) -> Self {
        Self::from_f32(f32::random(random))
    }
}

impl Case {
    /// The name that `--filter-case` searches.
    pub fn name(&self) -> String {
        let Self { images, width, height, channels, taps, .. } = self;
        let planes = if *channels == 1 { String::new() } else { format!("x{channels}") };
        let (stored, form) = (self.stored.name(), self.form.name());
        match self.suite {
            Suite::Gpu => format!("{width}x{height}{planes}-{taps}x{taps}"),
            Suite::Cpu => format!("{stored}{planes}-{form}-{taps}x{taps}"),
            Suite::Pictures => {
                let to = if self.target == self.stored {
                    String::new()
                } else {
                    format!("-to-{}", self.target.name())
                };
                let many = if *images == 1 { String::new() } else { format!("{images}x") };
                format!("picture-{stored}{planes}{to}-{form}-{taps}-{many}{width}x{height}")
            }
            Suite::Wide => format!("wide-{stored}{planes}-{form}-{taps}-{width}x{height}"),
        }
    }

    /// Whether it has pictures in a GPU's memory, whose every value is compared with the CPU's.
    pub fn is_compared(&self) -> bool {
        matches!(self.suite, Suite::Pictures | Suite::Wide)
    }

    /// Width, height and channels of each image.
    pub fn shape(&self) -> Shape {
        Shape { width: self.width, height: self.height, channels: self.channels }
    }

    /// Rows of all images.
    pub fn rows(&self) -> usize {
        self.images * self.height
    }

    /// Values in all images.
    pub fn values(&self) -> usize {
        self.width * self.rows() * self.channels
    }

    /// Multiply-adds for one value, in a class.
    pub fn steps(&self, class: Class) -> usize {
        match (class, self.form) {
            (_, Form::Unsharp) => 2 * self.taps + 1,
            (Class::Dense, _) => self.taps * self.taps,
            (Class::Pair, _) => 2 * self.taps,
        }
    }

    /// The filter, for a table.
    pub fn filter_in_words(&self) -> String {
        let taps = self.taps;
        match self.form {
            Form::Random => format!("{taps}x{taps}"),
            Form::Product => format!("{taps}+{taps}"),
            Form::Gaussian => format!("Gaussian {taps}+{taps}"),
            Form::Unsharp => format!("unsharp {taps}x{taps}"),
            Form::Sobel => format!("Sobel {taps}x{taps}"),
            Form::Gradient => format!("Sobel magnitude {taps}x{taps}"),
            Form::Mean => format!("mean {taps}x{taps}"),
        }
    }

    /// Whether the case is measured in a class. On a GPU, a product is measured in both.
    pub fn has(&self, class: Class) -> bool {
        class == self.form.class() || (self.suite == Suite::Gpu && class == Class::Dense)
    }

    /// The goal of a class.
    pub fn goal(&self, class: Class) -> Option<Goal> {
        self.goals[class as usize]
    }

    /// The expected checksum of a family's result.
    pub fn sum(&self, family: Family) -> Option<u64> {
        match family {
            Family::Direct => self.sums[0],
            Family::Separable => self.sums[1],
            _ => None,
        }
    }

    /// The Gaussian's sigma in pixels.
    pub fn sigma(&self) -> f64 {
        sigma(self.taps)
    }

    /// The filter.
    ///
    /// # Errors
    /// None for the cases in the tables.
    pub fn filter(&self) -> Result<Filter> {
        // Taps whose sum is 1 keep 8-bit results in range.
        self.form.filter(self.taps, self.suite != Suite::Gpu)
    }

    /// The plan's step: the filter, or the gradient.
    ///
    /// # Errors
    /// As [`Case::filter`].
    pub fn step(&self) -> Result<Step> {
        if self.form == Form::Gradient {
            Ok(Gradient::sobel().into())
        } else {
            self.filter().map(Step::from)
        }
    }

    /// The random pixels of all images, channels interleaved.
    pub fn pixels<P: Random>(&self) -> Vec<P> {
        let mut random = fastrand::Rng::with_seed(self.width as u64);
        (0..self.values()).map(|_| P::random(&mut random)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_differ_and_filters_are_of_their_form() {
        let cases = cases();
        let names: BTreeSet<_> = cases.iter().map(Case::name).collect();
        assert_eq!(names.len(), cases.len());
        for case in &cases {
            let filter = case.filter().unwrap();
            assert_eq!((filter.cols(), filter.rows()), (case.taps, case.taps), "{}", case.name());
            if case.form == Form::Gradient {
                continue;
            }
            assert_eq!(filter.is_separable(), case.form.class() == Class::Pair, "{}", case.name());
            if case.suite != Suite::Gpu && case.form != Form::Sobel {
                let sum: f64 = (0..case.taps * case.taps)
                    .map(|i| filter.tap(i / case.taps, i % case.taps))
                    .sum();
                assert!((sum - 1.0).abs() < 1e-3, "{}: {sum}", case.name());
            }
        }
    }

    #[test]
    fn pictures_are_named_by_what_differs() {
        let names: Vec<_> =
            cases().iter().filter(|case| case.suite == Suite::Pictures).map(Case::name).collect();
        for name in [
            "u8x3-gaussian-17-8192x8192",
            "u8-to-f32-sobel-3-8192x8192",
            "u8x3-random-5-64x1920x1080",
        ] {
            assert!(names.contains(&format!("picture-{name}")), "{name}: {names:?}");
        }
    }

    #[test]
    fn every_case_has_checksums_unless_it_is_too_large_to_have_been_computed() {
        for case in cases() {
            let name = case.name();
            let class = case.form.class();
            // Pictures need no checksum: every value is compared with the CPU's result.
            let compared = case.is_compared();
            assert!(
                case.sums[class as usize].is_some() || case.width > 16384 || compared,
                "{name}"
            );
        }
    }
}
