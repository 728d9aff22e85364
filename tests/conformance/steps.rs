//! More than one filter: gradients, colours weighted by alpha, and pipelines of several steps.
//!
//! Gradients and weighted colours must match definitions in this file: in f64, in f32, and for
//! bytes in whole numbers. They share no code with the product. Pipelines must match their steps,
//! run one by one, in bands of several heights and in little memory.

use std::f64::consts::PI;

use apron::{
    Alpha, Border, Device, Error, Extra, Filter, Gradient, Image, ImageView, ImageViewMut,
    Pipeline, Plan, PlanBuilder, Shape, f16,
};
use conformance::product::Gpu;
use conformance::sample::{Data, Kind, Sample};
use conformance::select::{BORDERS, Selection, seed};
use conformance::suite::gpu_trial;
use fastrand::Rng;
use libtest_mimic::{Failed, Trial};
use oracle::{Whole, fold, kept};

type Test = fn(Device, Selection) -> Result<(), Failed>;

const TESTS: [(&str, Test); 7] = [
    ("gradient", gradient),
    ("angle", angle),
    ("weighted", weighted),
    ("pipeline", pipeline),
    ("alpha", alpha),
    ("threshold", threshold),
    ("refused", refused),
];

pub(crate) fn trials(selection: Selection, gpu: &Gpu) -> Vec<Trial> {
    let both = TESTS.into_iter().flat_map(|(name, test)| {
        let on_gpu = move || test(Gpu::DEVICE, selection);
        [
            Trial::test(format!("steps::{name}::cpu"), move || test(Device::Cpu, selection)),
            gpu_trial(&format!("steps::{name}::gpu"), gpu, on_gpu),
        ]
    });
    both.collect()
}

/// Launches every entry of gradients, of weighted colours and of thresholds at least once.
#[cfg(feature = "gpu")]
pub(crate) fn launch_entries() -> Result<(), Failed> {
    gradient(Gpu::DEVICE, Selection::Small)?;
    weighted(Gpu::DEVICE, Selection::Small)?;
    threshold(Gpu::DEVICE, Selection::Small)
}

/// Evaluates an expression for two stored types.
macro_rules! for_kinds {
    ($kinds:expr, $call:ident::<_, _>($($argument:expr),*)) => {
        match $kinds {
            (Kind::U8, Kind::U8) => $call::<u8, u8>($($argument),*),
            (Kind::U8, Kind::U16) => $call::<u8, u16>($($argument),*),
            (Kind::U8, _) => $call::<u8, f32>($($argument),*),
            (Kind::U16, Kind::U16) => $call::<u16, u16>($($argument),*),
            (Kind::U16, _) => $call::<u16, f32>($($argument),*),
            (Kind::F16, _) => $call::<f16, f16>($($argument),*),
            (Kind::F32, Kind::U8) => $call::<f32, u8>($($argument),*),
            (Kind::F32, _) => $call::<f32, f32>($($argument),*),
        }
    };
}

const KINDS: [(Kind, Kind); 8] = [
    (Kind::U8, Kind::U8),
    (Kind::F32, Kind::F32),
    (Kind::U16, Kind::U16),
    (Kind::U8, Kind::F32),
    (Kind::F16, Kind::F16),
    (Kind::U8, Kind::U16),
    (Kind::F32, Kind::U8),
    (Kind::U16, Kind::F32),
];

/// A picture whose rows lie this many values apart.
struct Picture<P> {
    data: Vec<P>,
    shape: Shape,
    stride: usize,
}

impl<P: Sample> Picture<P> {
    fn new(shape: Shape, gap: usize, mut value: impl FnMut() -> P) -> Self {
        let stride = shape.row_len() + gap;
        let mut data = vec![P::POISON; stride * shape.height];
        data.chunks_mut(stride).for_each(|row| row[..shape.row_len()].fill_with(&mut value));
        Self { data, shape, stride }
    }

    fn view(&self) -> apron::Result<ImageView<'_, P>> {
        let Shape { width, height, channels } = self.shape;
        ImageView::with_stride(&self.data, width, height, channels, self.stride)
    }

    fn view_mut(&mut self) -> apron::Result<ImageViewMut<'_, P>> {
        let Shape { width, height, channels } = self.shape;
        ImageViewMut::with_stride(&mut self.data, width, height, channels, self.stride)
    }

    fn at(&self, x: usize, y: usize, channel: usize) -> P {
        self.data[y * self.stride + x * self.shape.channels + channel]
    }

    /// The value of a place inside or outside the image, by the border.
    fn found(&self, border: Border, (x, y): (i64, i64), channel: usize) -> f64 {
        let Shape { width, height, .. } = self.shape;
        match fold(border, x, width).zip(fold(border, y, height)) {
            Some((x, y)) => self.at(x, y, channel).value(),
            None => {
                if let Border::Constant(value) = border {
                    f64::from(value as f32)
                } else {
                    0.0
                }
            }
        }
    }

    /// Compares every value with the expected one, and checks that gaps are unchanged.
    fn check(&self, told: &str, expected: impl Fn(usize, usize, usize) -> P) -> Result<(), Failed> {
        let channels = self.shape.channels;
        let (mut wrong, mut first) = (0, None);
        for (y, row) in self.data.chunks(self.stride).enumerate() {
            for (at, &found) in row.iter().enumerate() {
                let right = match at < self.shape.row_len() {
                    true => expected(at / channels, y, at % channels),
                    false => P::POISON,
                };
                let is_untouched = at >= self.shape.row_len() && found.bits() == right.bits();
                if !(found.same(right) || is_untouched) {
                    wrong += 1;
                    first = first.or(Some((at / channels, y, at % channels, found, right)));
                }
            }
        }
        match first {
            None => Ok(()),
            Some((x, y, c, found, right)) => Err(format!(
                "{told}: {wrong} values are wrong, the first at ({x}, {y}), channel {c}: {found:?}, not {right:?}"
            )
            .into()),
        }
    }
}

/// A gradient of a picture.
#[derive(Clone, Copy)]
struct Case {
    gradient: Gradient,
    border: Border,
    shape: Shape,
    filtered: usize,
    data: Data,
    bands: Option<usize>,
    seed: u64,
}

/// The weights of a side and of the centre.
fn weights(gradient: Gradient) -> [f64; 2] {
    let name = gradient.to_string();
    match name.split('-').next() {
        Some("sobel") => [1.0, 2.0],
        Some("scharr") => [3.0, 10.0],
        _ => [1.0, 1.0],
    }
}

impl Case {
    fn told(&self, device: Device, kinds: (Kind, Kind)) -> String {
        let Self { gradient, border, shape, filtered, bands, seed, .. } = self;
        format!(
            "{gradient} on {device}: {shape} {} to {}, {filtered} channels, border {border}, bands {bands:?}, seed {seed}",
            kinds.0, kinds.1
        )
    }

    fn run<S: Sample, D: Sample>(
        &self,
        device: Device,
    ) -> Result<(Picture<S>, Picture<D>), Failed> {
        let mut rng = Rng::with_seed(self.seed);
        let src = Picture::<S>::new(self.shape, self.seed as usize % 3, || {
            S::random(&mut rng, self.data)
        });
        let mut dst = Picture::<D>::new(self.shape, self.seed as usize % 2, || D::POISON);
        let mut builder = Plan::builder(self.gradient).border(self.border).device(device);
        if let Some(rows) = self.bands {
            builder = builder.band_rows(rows);
        }
        builder.build()?.run_channels(&src.view()?, &mut dst.view_mut()?, self.filtered)?;
        Ok((src, dst))
    }

    /// Whether the result is a copy.
    fn is_kept(&self, x: usize, y: usize, channel: usize) -> bool {
        let Shape { width, height, .. } = self.shape;
        let leaves = kept(x, 1, 3, width) || kept(y, 1, 3, height);
        channel >= self.filtered || self.border == Border::Keep && leaves
    }

    /// The 3x3 pixels around a pixel.
    fn around<S: Sample>(
        &self,
        src: &Picture<S>,
        (x, y): (usize, usize),
        channel: usize,
    ) -> [[f64; 3]; 3] {
        let (x, y) = (x as i64 - 1, y as i64 - 1);
        [0, 1, 2]
            .map(|row| [0, 1, 2].map(|col| src.found(self.border, (x + col, y + row), channel)))
    }

    fn magnitude<S: Sample, D: Sample>(&self, device: Device) -> Result<(), Failed> {
        let (src, dst) = self.run::<S, D>(device)?;
        let [side, centre] = weights(self.gradient);
        let smoothing = [side, centre, side];
        dst.check(&self.told(device, (S::KIND, D::KIND)), |x, y, c| {
            if self.is_kept(x, y, c) {
                return D::nearest(src.at(x, y, c).value());
            }
            let rows = self.around(&src, (x, y), c);
            if (S::KIND, D::KIND) == (Kind::U8, Kind::U8) {
                // Tap by tap, as SciPy's derivatives. All sums are exact.
                let (mut dx, mut dy) = (0.0, 0.0);
                for i in 0..3 {
                    for (j, slope) in [-1.0, 0.0, 1.0].into_iter().enumerate() {
                        dx += smoothing[i] * slope * rows[i][j];
                        dy += smoothing[i] * slope * rows[j][i];
                    }
                }
                return D::nearest((dx * dx + dy * dy).sqrt());
            }
            // In f32, each operation rounded.
            let (side, centre) = (side as f32, centre as f32);
            let smooth = |a: f32, b: f32, c: f32| centre.mul_add(b, side * (a + c));
            let rows = rows.map(|row| row.map(|value| value as f32));
            let across = rows.map(|[left, _, right]| right - left);
            let along = rows.map(|[left, middle, right]| smooth(left, middle, right));
            let (dx, dy) = (smooth(across[0], across[1], across[2]), along[2] - along[0]);
            D::nearest(f64::from(dx.mul_add(dx, dy * dy).sqrt()))
        })
    }

    fn direction<S: Sample>(&self, device: Device) -> Result<(), Failed> {
        let (src, dst) = self.run::<S, f32>(device)?;
        let [side, centre] = weights(self.gradient);
        let told = self.told(device, (S::KIND, Kind::F32));
        for y in 0..self.shape.height {
            for x in 0..self.shape.width {
                for c in 0..self.shape.channels {
                    let found = f64::from(dst.at(x, y, c));
                    let rows = self.around(&src, (x, y), c);
                    let across = rows.map(|row| row[2] - row[0]);
                    let along = rows.map(|row| side * (row[0] + row[2]) + centre * row[1]);
                    let dx = side * (across[0] + across[2]) + centre * across[1];
                    let right = match self.is_kept(x, y, c) {
                        true => src.at(x, y, c).value(),
                        false => (along[2] - along[0]).atan2(dx),
                    };
                    if (found - right).abs() > 5e-7
                        && !((found + right).abs() < 1e-6 && right.abs() == PI)
                    {
                        return Err(format!(
                            "{told}: at ({x}, {y}), channel {c}: {found}, not {right}"
                        )
                        .into());
                    }
                }
            }
        }
        Ok(())
    }
}

const MAGNITUDES: [Gradient; 3] = [Gradient::sobel(), Gradient::scharr(), Gradient::prewitt()];

/// Whether a selection solves this number of a list.
fn is_kept(selection: Selection, number: usize) -> bool {
    match selection {
        Selection::Full => true,
        Selection::Emulated => number.is_multiple_of(2) || number >= 64,
        Selection::Small => number % 5 == 1 || number >= 64,
    }
}

/// Every type and every border, for sizes around those of strips. Constants are whole numbers and
/// fractions, except for bytes made of bytes.
fn gradient(device: Device, selection: Selection) -> Result<(), Failed> {
    let borders: Vec<_> =
        BORDERS.into_iter().chain([Border::Constant(7.0), Border::Constant(1e6 + 0.5)]).collect();
    let mut solved = 0;
    for number in 0..64 + 8 {
        if !is_kept(selection, number) {
            continue;
        }
        let (kinds, border) = (KINDS[number % 8], borders[(number / 8 + number) % 8]);
        let border = match border {
            Border::Constant(_) if kinds == KINDS[0] && !oracle::takes_bytes(border) => {
                Border::Constant(200.0)
            }
            border => border,
        };
        let channels = 1 + (number / 8 + number / 3) % 5;
        let size = [(131, 19), (1, 1), (70, 33), (3, 40), (2, 2), (260, 9)][number % 6];
        let shape = Shape { width: size.0, height: size.1, channels };
        let filtered = if channels == 4 && number % 2 == 0 { 3 } else { channels };
        let data = [Data::Random, Data::Extremes, Data::Wild][number % 3];
        let bands = [None, Some(1), Some(7)][number % 3];
        let case = Case {
            gradient: MAGNITUDES[number % 3],
            border,
            shape,
            filtered,
            data,
            bands,
            seed: seed(101, number),
        };
        // Rows of bytes with strips inside, then the same with types or channels that use another
        // kernel.
        let large = |channels, border| {
            let shape = Shape { width: 1200 / channels, height: 40, channels };
            let bands = (number == 66).then_some(11);
            Case { shape, border, filtered: channels.max(4) - 1, data: Data::Random, bands, ..case }
        };
        let (case, kinds) = match number {
            64 => (Case { filtered: 1, ..large(1, Border::Reflect) }, KINDS[0]),
            65 => (Case { filtered: 3, ..large(3, Border::Replicate) }, KINDS[0]),
            66 => (large(4, Border::Wrap), KINDS[0]),
            67 => (Case { filtered: 1, ..large(1, Border::Reflect101) }, KINDS[1]),
            68 => (Case { filtered: 2, ..large(2, Border::Constant(130.0)) }, KINDS[0]),
            69 => (Case { filtered: 1, ..large(1, Border::Reflect) }, (Kind::U8, Kind::F32)),
            70 => (Case { filtered: 3, ..large(3, Border::Wrap) }, (Kind::U8, Kind::F32)),
            71 => (Case { filtered: 4, ..large(4, Border::Replicate) }, (Kind::U8, Kind::F32)),
            _ => (case, kinds),
        };
        for_kinds!(kinds, magnitude_of::<_, _>(&case, device))?;
        solved += 1;
    }
    println!("steps::gradient: {solved} pictures on {device}");
    Ok(())
}

fn magnitude_of<S: Sample, D: Sample>(case: &Case, device: Device) -> Result<(), Failed> {
    case.magnitude::<S, D>(device)
}

/// Angles of integer pixels, whose derivatives are exact.
fn angle(device: Device, selection: Selection) -> Result<(), Failed> {
    for (number, &border) in BORDERS.iter().enumerate() {
        let shape = Shape { width: 61, height: 23, channels: 1 + number % 3 };
        let gradient = MAGNITUDES[number % 3].angle();
        let bands = (number % 2 == 0).then_some(5);
        let data = if number % 3 == 0 { Data::Extremes } else { Data::Random };
        let case = Case {
            gradient,
            border,
            shape,
            filtered: shape.channels,
            data,
            bands,
            seed: seed(102, number),
        };
        if selection != Selection::Small || number < 3 {
            case.direction::<u8>(device)?;
            case.direction::<u16>(device)?;
        }
    }
    Ok(())
}

/// Random pixels, some transparent and some opaque.
fn with_alpha<P: Sample>(shape: Shape, seed: u64) -> Picture<P> {
    let mut rng = Rng::with_seed(seed);
    let mut picture =
        Picture::<P>::new(shape, seed as usize % 3, || P::random(&mut rng, Data::Random));
    let stride = picture.stride;
    for row in picture.data.chunks_mut(stride) {
        // Runs of pixels, so that whole windows are transparent.
        let mut alpha = 0.0;
        for (x, pixel) in row[..shape.row_len()].chunks_exact_mut(shape.channels).enumerate() {
            if x % 7 == 0 || rng.u8(..) < 40 {
                let greatest = if P::KIND == Kind::U16 { 65535.0 } else { 255.0 };
                alpha = [0.0, 0.0, greatest, (greatest * rng.f64()).floor()][rng.usize(0..4)];
            }
            if let Some(last) = pixel.last_mut() {
                *last = P::nearest(alpha);
            }
        }
    }
    picture
}

/// Colours weighted by alpha, against the definition, for separable and other windows.
fn weighted(device: Device, selection: Selection) -> Result<(), Failed> {
    let filters: [Filter; 6] = [
        Filter::gaussian(1.0)?,
        Filter::box_filter(3, 5)?,
        "motion:length=7,angle=30".parse()?,
        Filter::box_filter(4, 2)?.anchored(0, 1)?,
        Filter::gaussian_sized(9.0, 1, 31)?,
        "taps:0.25 0 0.5; 0 0.25 0".parse()?,
    ];
    let mut solved = 0;
    for (number, filter) in filters.iter().cycle().take(48).enumerate() {
        if !is_kept(selection, number) {
            continue;
        }
        let (kinds, border) =
            (KINDS[(number / 6 + number) % 8], BORDERS[(number / 2 + number / 6) % 6]);
        // Outside the image alpha is not negative either, except for floats.
        let border = match border {
            Border::Constant(_) if number % 4 != 0 => Border::Constant([0.0, 30.0][number % 2]),
            border => border,
        };
        let size = [(37, 21), (5, 3), (70, 12)][number % 3];
        let shape = Shape { width: size.0, height: size.1, channels: [4, 2, 3, 6][number % 4] };
        for_kinds!(kinds, weighted_of::<_, _>(filter, border, shape, seed(103, number), device))?;
        solved += 1;
    }
    println!("steps::weighted: {solved} pictures on {device}");
    Ok(())
}

fn weighted_of<S: Sample, D: Sample>(
    filter: &Filter,
    border: Border,
    shape: Shape,
    seed: u64,
    device: Device,
) -> Result<(), Failed> {
    let src = with_alpha::<S>(shape, seed);
    let builder = || Plan::builder(filter).border(border).device(device);
    let told = format!(
        "{filter} on {device}: {shape} {} to {}, border {border}, seed {seed}",
        S::KIND,
        D::KIND
    );
    let last = shape.channels - 1;
    let (anchor, size) = (filter.anchor(), (filter.cols(), filter.rows()));
    let sum = |x: usize, y: usize, of: &dyn Fn((i64, i64)) -> f64| {
        let mut sum = 0.0;
        for r in 0..size.1 {
            for c in 0..size.0 {
                let place =
                    (x as i64 + c as i64 - anchor.0 as i64, y as i64 + r as i64 - anchor.1 as i64);
                sum += filter.tap(r, c) * of(place);
            }
        }
        sum
    };
    let bytes = ((S::KIND, D::KIND) == (Kind::U8, Kind::U8)).then(|| {
        let pixels = src.data.chunks(src.stride).flat_map(|row| &row[..shape.row_len()]);
        let bytes: Vec<u8> = pixels.map(|pixel| pixel.bits() as u8).collect();
        oracle::bytes_weighted_by_alpha(&bytes, shape, &Whole::of(filter), border)
    });
    for bands in [None, Some(4)] {
        let plan = bands.map_or_else(builder, |rows| builder().band_rows(rows)).build()?;
        let mut dst = Picture::<D>::new(shape, seed as usize % 2, || D::POISON);
        let pipeline = Pipeline::new(vec![plan])?;
        pipeline.run_with_alpha(&src.view()?, &mut dst.view_mut()?, Alpha::Premultiply)?;
        dst.check(&told, |x, y, channel| {
            if let Some(bytes) = &bytes {
                return D::of_bits(bytes[(y * shape.width + x) * shape.channels + channel].into());
            }
            let leaves =
                kept(x, anchor.0, size.0, shape.width) || kept(y, anchor.1, size.1, shape.height);
            if border == Border::Keep && leaves {
                return D::nearest(src.at(x, y, channel).value());
            }
            let alpha = |place| src.found(border, place, last);
            let weight = sum(x, y, &alpha);
            if channel == last {
                return D::nearest(weight);
            }
            let colours = sum(x, y, &|place| src.found(border, place, channel) * alpha(place));
            D::nearest(if weight == 0.0 { 0.0 } else { colours / weight })
        })?;
        if device == Device::Cpu {
            break;
        }
    }
    Ok(())
}

/// The steps of a pipeline, with the borders of each.
fn chains() -> Result<Vec<Vec<PlanBuilder>>, Failed> {
    let step = |text: &str, border: Border| -> Result<PlanBuilder, Failed> {
        Ok(Plan::builder(text.parse::<apron::Step>()?).border(border))
    };
    Ok(vec![
        vec![step("gaussian:sigma=1", Border::Reflect101)?, step("sobel", Border::Reflect101)?],
        vec![
            step("sharpen", Border::Replicate)?,
            step("box:cols=2,rows=9", Border::Constant(3.0))?,
            step("scharr", Border::Keep)?,
        ],
        vec![step("motion:length=9,angle=70", Border::Wrap)?, step("laplacian", Border::Reflect)?],
        vec![
            step("box:cols=3,rows=33", Border::Keep)?,
            step("gaussian:sigma=2", Border::Reflect)?,
            step("emboss", Border::Replicate)?,
        ],
        // Bands of spectra begin on a grid.
        vec![
            step("log:sigma=5", Border::Replicate)?,
            step("sobel-x", Border::Reflect)?,
            step("log:sigma=5.5", Border::Reflect101)?,
        ],
    ])
}

/// A pipeline gives the same results as its plans one by one, with intermediate values in the
/// source's type or in f32, in any bands.
fn pipeline(device: Device, selection: Selection) -> Result<(), Failed> {
    let mut bounded = 0;
    for (number, steps) in chains()?.into_iter().enumerate() {
        let shape = Shape {
            width: 34 + 3 * number,
            height: 61 + 20 * number,
            channels: [1, 3, 4, 2, 1][number],
        };
        for (turn, bands) in [None, Some(7), Some(30)].into_iter().enumerate() {
            let few = selection == Selection::Emulated && number > 2 && turn != 1;
            if few || selection == Selection::Small && (number > 2 || turn == 2) {
                continue;
            }
            let kinds = KINDS[(number + 3 * turn) % 8];
            let build = |rows: Option<usize>, memory: u64| -> Result<Vec<Plan>, Failed> {
                let plans = steps.iter().cloned().map(|step| {
                    let step = step.device(device).memory(memory);
                    rows.map_or(step.clone(), |rows| step.clone().band_rows(rows)).build()
                });
                Ok(plans.collect::<apron::Result<_>>()?)
            };
            let pipeline = Pipeline::new(build(bands, u64::MAX)?)?;
            let alone = build(None, u64::MAX)?;
            let seed = seed(104, 3 * number + turn);
            let told = format!(
                "pipeline {number} on {device}, bands {bands:?}, {shape} {} to {}",
                kinds.0, kinds.1
            );
            if !for_kinds!(kinds, chain_of::<_, _>(&told, pipeline, &alone, shape, seed))? {
                return Err(format!("{told}: refused").into());
            }
            if device != Device::Cpu && turn == 0 {
                // In so little memory that some steps go in bands of their own, or all go one by
                // one.
                let narrow = || build(bands, 200 << 10);
                let told = format!("{told}, in little memory");
                let pipeline = Pipeline::new(narrow()?)?;
                bounded += usize::from(for_kinds!(
                    kinds,
                    chain_of::<_, _>(&told, pipeline, &narrow()?, shape, seed)
                )?);
            }
        }
    }
    if device != Device::Cpu && bounded < 2 {
        return Err(format!("only {bounded} pipelines were bounded").into());
    }
    Ok(())
}

/// Compares a pipeline with its plans. Returns false if a plan has too little memory; then the
/// pipeline must have too little as well.
fn chain_of<S: Sample, D: Sample>(
    told: &str,
    pipeline: Pipeline,
    plans: &[Plan],
    shape: Shape,
    seed: u64,
) -> Result<bool, Failed> {
    let mut rng = Rng::with_seed(seed);
    let src = Picture::<S>::new(shape, 1, || S::random(&mut rng, Data::Random));
    let filtered = if shape.channels == 4 { 3 } else { shape.channels };
    fn one_by_one<S: Sample, M: Sample, D: Sample>(
        plans: &[Plan],
        src: &Picture<S>,
        filtered: usize,
    ) -> Result<Picture<D>, Failed> {
        let [first, between @ .., last] = plans else {
            return Err("a pipeline has two plans here".into());
        };
        let next = || Picture::<M>::new(src.shape, 0, || M::POISON);
        let mut held = next();
        first.run_channels(&src.view()?, &mut held.view_mut()?, filtered)?;
        for plan in between {
            let mut then = next();
            plan.run_channels(&held.view()?, &mut then.view_mut()?, filtered)?;
            held = then;
        }
        let mut dst = Picture::<D>::new(src.shape, 2, || D::POISON);
        last.run_channels(&held.view()?, &mut dst.view_mut()?, filtered)?;
        Ok(dst)
    }
    let run = |pipeline: &Pipeline| -> Result<Picture<D>, Failed> {
        let mut dst = Picture::<D>::new(shape, 2, || D::POISON);
        pipeline.run_channels(&src.view()?, &mut dst.view_mut()?, filtered)?;
        Ok(dst)
    };
    let right = match one_by_one::<S, S, D>(plans, &src, filtered) {
        Err(refused) if refused.message().is_some_and(|told| told.starts_with("memory is")) => {
            return if run(&pipeline).is_err() {
                Ok(false)
            } else {
                Err(format!("{told}: not refused").into())
            };
        }
        right => right?,
    };
    // Later runs use the same lanes, which still hold data of the run before.
    for turn in 0..2 {
        run(&pipeline)?.check(&format!("{told}, turn {turn}"), |x, y, c| right.at(x, y, c))?;
    }
    let pipeline = pipeline.in_f32(true);
    if let Ok(right) = one_by_one::<S, f32, D>(plans, &src, filtered) {
        run(&pipeline)?.check(&format!("{told}, in f32"), |x, y, c| right.at(x, y, c))?;
    }
    Ok(true)
}

/// The effect of each alpha mode, in pipelines of averages and of other filters.
fn alpha(device: Device, _: Selection) -> Result<(), Failed> {
    let shape = Shape { width: 33, height: 29, channels: 4 };
    let src = with_alpha::<u8>(shape, seed(105, 0));
    let plan = |text: &str| -> Result<Plan, Failed> {
        Ok(Plan::builder(text.parse::<apron::Step>()?)
            .border(Border::Replicate)
            .device(device)
            .build()?)
    };
    let pipeline = |texts: &[&str]| -> Result<Pipeline, Failed> {
        Ok(Pipeline::new(texts.iter().map(|text| plan(text)).collect::<Result<_, Failed>>()?)?)
    };
    let run =
        |pipeline: &Pipeline, src: &Picture<u8>, mode: Alpha| -> Result<Picture<u8>, Failed> {
            let shape = Shape { channels: mode.channels(src.shape.channels), ..src.shape };
            let mut dst = Picture::<u8>::new(shape, 0, || u8::POISON);
            pipeline.run_with_alpha(&src.view()?, &mut dst.view_mut()?, mode)?;
            Ok(dst)
        };
    let filtered =
        |pipeline: &Pipeline, src: &Picture<u8>, channels: usize| -> Result<Picture<u8>, Failed> {
            let mut dst = Picture::<u8>::new(src.shape, 0, || u8::POISON);
            pipeline.run_channels(&src.view()?, &mut dst.view_mut()?, channels)?;
            Ok(dst)
        };
    let same = |told: &str, found: Picture<u8>, right: &Picture<u8>| {
        found.check(told, |x, y, c| right.at(x, y, c))
    };

    let (blur, mixed) = (
        pipeline(&["gaussian:sigma=1"])?,
        pipeline(&["gaussian:sigma=1", "sharpen", "box:size=3"])?,
    );
    let edges = pipeline(&["sobel"])?;
    for (name, pipeline) in [("blur", &blur), ("mixed", &mixed), ("edges", &edges)] {
        same(
            &format!("keep, {name}"),
            run(pipeline, &src, Alpha::Keep)?,
            &filtered(pipeline, &src, 3)?,
        )?;
        same(
            &format!("filter, {name}"),
            run(pipeline, &src, Alpha::Filter)?,
            &filtered(pipeline, &src, 4)?,
        )?;
        // Without its alpha, the picture is one of three channels.
        let opaque = Shape { channels: 3, ..shape };
        let mut values = src
            .data
            .chunks(src.stride)
            .flat_map(|row| row[..shape.row_len()].chunks_exact(4))
            .flat_map(|p| &p[..3]);
        let dropped = Picture::<u8>::new(opaque, 0, || values.next().copied().unwrap_or_default());
        same(
            &format!("drop, {name}"),
            run(pipeline, &src, Alpha::Drop)?,
            &filtered(pipeline, &dropped, 3)?,
        )?;
        let mut pixels = src
            .data
            .chunks(src.stride)
            .flat_map(|row| row[..shape.row_len()].chunks_exact(4))
            .flat_map(|p| {
                let (alpha, ground) = (f64::from(p[3]), [255.0, 0.0, 51.0]);
                [0, 1, 2].map(|c| {
                    u8::nearest((f64::from(p[c]) * alpha + ground[c] * (255.0 - alpha)) / 255.0)
                })
            });
        let flat = Picture::<u8>::new(opaque, 0, || pixels.next().unwrap_or_default());
        let mode = Alpha::Flatten([1.0, 0.0, 0.2]);
        same(
            &format!("flatten, {name}"),
            run(pipeline, &src, mode)?,
            &filtered(pipeline, &flat, 3)?,
        )?;
    }
    // With premultiplied colours, averages filter all channels. Other steps copy alpha.
    same(
        "premultiplied, blur",
        run(&blur, &src, Alpha::Premultiplied)?,
        &filtered(&blur, &src, 4)?,
    )?;
    same(
        "premultiplied, edges",
        run(&edges, &src, Alpha::Premultiplied)?,
        &filtered(&edges, &src, 3)?,
    )?;
    let first = filtered(&blur, &src, 4)?;
    let second = filtered(&pipeline(&["sharpen"])?, &first, 3)?;
    let third = filtered(&pipeline(&["box:size=3"])?, &second, 4)?;
    same("premultiplied, mixed", run(&mixed, &src, Alpha::Premultiplied)?, &third)?;
    let modes = [
        Alpha::Auto,
        Alpha::Premultiplied,
        Alpha::Keep,
        Alpha::Filter,
        Alpha::Drop,
        Alpha::Flatten([0.5; 3]),
    ];
    for (extra, mode) in [Extra::Straight, Extra::Premultiplied, Extra::Band, Extra::Unspecified]
        .into_iter()
        .flat_map(|extra| modes.map(|mode| (extra, mode)))
    {
        let shape = Shape { channels: mode.channels(4), ..shape };
        for (name, pipeline) in [("blur", &blur), ("mixed", &mixed), ("edges", &edges)] {
            let mut dst = Picture::<u8>::new(shape, 0, || u8::POISON);
            pipeline.run_with_extra(&src.view()?, &mut dst.view_mut()?, extra, mode)?;
            let expected = match (extra, mode) {
                (Extra::Premultiplied, Alpha::Auto) => run(pipeline, &src, Alpha::Premultiplied)?,
                (Extra::Band | Extra::Unspecified, Alpha::Auto) => {
                    run(pipeline, &src, Alpha::Filter)?
                }
                (Extra::Premultiplied, Alpha::Flatten(_)) => {
                    let laid = |p: &[u8]| {
                        [0, 1, 2].map(|c| {
                            u8::nearest(f64::from(p[c]) + 127.5 * (255.0 - f64::from(p[3])) / 255.0)
                        })
                    };
                    let mut pixels = src.data.chunks(src.stride);
                    let mut pixels = pixels
                        .by_ref()
                        .flat_map(|row| row[..src.shape.row_len()].chunks_exact(4))
                        .flat_map(laid);
                    filtered(
                        pipeline,
                        &Picture::<u8>::new(shape, 0, || pixels.next().unwrap_or_default()),
                        3,
                    )?
                }
                (_, mode) => run(pipeline, &src, mode)?,
            };
            same(&format!("{extra:?}, {mode}, {name}"), dst, &expected)?;
        }
    }
    // A single plan.
    for mode in modes.into_iter().chain([Alpha::Premultiply]) {
        let mut dst =
            Picture::<u8>::new(Shape { channels: mode.channels(4), ..shape }, 0, || u8::POISON);
        plan("gaussian:sigma=1")?.run_with_alpha(&src.view()?, &mut dst.view_mut()?, mode)?;
        same(&format!("{mode}, a plan"), dst, &run(&blur, &src, mode)?)?;
    }
    same("auto, blur", run(&blur, &src, Alpha::Auto)?, &run(&blur, &src, Alpha::Premultiply)?)?;
    same("auto, edges", run(&edges, &src, Alpha::Auto)?, &run(&edges, &src, Alpha::Keep)?)?;
    let first = run(&blur, &src, Alpha::Premultiply)?;
    let second = run(&pipeline(&["sharpen"])?, &first, Alpha::Keep)?;
    let third = run(&pipeline(&["box:size=3"])?, &second, Alpha::Premultiply)?;
    same("auto, mixed", run(&mixed, &src, Alpha::Auto)?, &third)?;
    // Transparent pixels do not affect colours.
    let mut hidden = with_alpha::<u8>(shape, seed(105, 0));
    let stride = hidden.stride;
    for row in hidden.data.chunks_mut(stride) {
        row[..shape.row_len()]
            .chunks_exact_mut(4)
            .filter(|pixel| pixel[3] == 0)
            .for_each(|pixel| pixel[..3].fill(0));
    }
    same("hidden colours", run(&blur, &hidden, Alpha::Premultiply)?, &first)
}

/// Unsharp masks with a threshold: results of the plain filter, or the pixels where these differ by
/// less.
fn threshold(device: Device, _: Selection) -> Result<(), Failed> {
    for (number, kinds) in KINDS.into_iter().enumerate() {
        let border = BORDERS[number % 6];
        let shape = Shape { width: [61, 300][number % 2], height: 40, channels: 1 + number % 4 };
        for_kinds!(kinds, threshold_of::<_, _>(border, shape, seed(109, number), device))?;
    }
    Ok(())
}

fn threshold_of<S: Sample, D: Sample>(
    border: Border,
    shape: Shape,
    seed: u64,
    device: Device,
) -> Result<(), Failed> {
    let mut random = seed;
    let src = Picture::<S>::new(shape, seed as usize % 3, || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        S::nearest((100 + (random >> 60)) as f64)
    });
    let filtered = shape.channels.min(3);
    for text in ["unsharp:sigma=1,amount=0.5", "unsharp:sigma=3,amount=-1", "unsharp:sigma=9"] {
        let run = |text: &str, rows: Option<usize>| -> Result<Picture<D>, Failed> {
            let builder = Plan::builder(text.parse::<Filter>()?).border(border).device(device);
            let plan = rows.map_or(builder.clone(), |rows| builder.band_rows(rows)).build()?;
            let mut dst = Picture::<D>::new(shape, 2, || D::POISON);
            plan.run_channels(&src.view()?, &mut dst.view_mut()?, filtered)?;
            Ok(dst)
        };
        let least = if text.contains("0.5") { 1.5 } else { 3.0 };
        let plain = run(text, None)?;
        for rows in [None, Some(7)] {
            let found = run(&format!("{text},threshold=3"), rows)?;
            found.check(&format!("{text} on {device}, {shape}, {border}"), |x, y, channel| {
                let pixel = src.at(x, y, channel).value();
                let result = plain.at(x, y, channel);
                let is_less = (result.value() - pixel).abs() < least;
                if is_less { D::nearest(pixel) } else { result }
            })?;
        }
    }
    Ok(())
}

/// Impossible requests are refused. The error names the value and a remedy.
fn refused(device: Device, _: Selection) -> Result<(), Failed> {
    let plan = |step: apron::Step| Plan::builder(step).device(device).build();
    let refusal = |what: &str, outcome: apron::Result<()>, words: &[&str]| -> Result<(), Failed> {
        let Err(error) = outcome else { return Err(format!("{what} was not refused").into()) };
        let told = error.to_string();
        match words.iter().find(|word| !told.contains(**word)) {
            None => Ok(()),
            Some(word) => Err(format!("{what}: \"{told}\" lacks \"{word}\"").into()),
        }
    };
    let src = Image::<u8>::zeroed(5, 4, 4)?;
    let mut dst = Image::<u8>::zeroed(5, 4, 4)?;
    let angle = plan(Gradient::sobel().angle().into())?;
    refusal("angles as bytes", angle.run(&src.view(), &mut dst.view_mut()), &["u8", "f32"])?;
    let shape = src.shape();
    refusal(
        "a gradient's variant",
        angle.variant_for(shape).map(|_| ()),
        &["sobel-angle", "no variants"],
    )?;
    let chosen = Plan::builder(Gradient::sobel())
        .device(device)
        .variant(apron::Variant::DirectNaive)
        .build();
    refusal("a variant for a gradient", chosen.map(|_| ()), &["direct-naive", "sobel"])?;
    if !angle.candidates(shape).is_empty() {
        return Err("a gradient has candidates".into());
    }
    let chain = Pipeline::new(vec![angle, plan(Filter::gaussian(1.0)?.into())?])?;
    refusal("angles between bytes", chain.run(&src.view(), &mut dst.view_mut()), &["u8", "f32"])?;
    chain.in_f32(true).run(&src.view(), &mut dst.view_mut())?;

    let sharpen = Pipeline::new(vec![plan("sharpen".parse()?)?])?;
    let outcome = sharpen.run_with_alpha(&src.view(), &mut dst.view_mut(), Alpha::Premultiply);
    refusal("weighting by negative taps", outcome, &["premultiply", "keep", "sum to 1"])?;
    let outcome = sharpen.run_with_alpha(&src.view(), &mut dst.view_mut(), Alpha::Drop);
    refusal("a destination with alpha", outcome, &["5x4x3", "5x4x4"])?;
    let (grey, mut grey_out) = (Image::<u8>::zeroed(5, 4, 1)?, Image::<u8>::zeroed(5, 4, 1)?);
    let outcome = sharpen.run_with_alpha(&grey.view(), &mut grey_out.view_mut(), Alpha::Keep);
    refusal("alpha of a single channel", outcome, &["channels is 1", "at least 2"])?;
    refusal(
        "no channel",
        sharpen.run_channels(&src.view(), &mut dst.view_mut(), 0),
        &["filtered is 0", "from 1"],
    )?;
    refusal("an empty pipeline", Pipeline::new(Vec::new()).map(|_| ()), &["at least 1"])?;
    if device != Device::Cpu {
        let here = Plan::builder(Gradient::sobel()).device(Device::Cpu).build()?;
        let there = plan(Gradient::sobel().into())?;
        refusal(
            "two devices",
            Pipeline::new(vec![here, there]).map(|_| ()),
            &["cpu and gpu:0", "the same"],
        )?;
    }
    // The destination stays unchanged when sizes differ.
    let mut small = Image::<u8>::zeroed(4, 4, 4)?;
    match sharpen.run(&src.view(), &mut small.view_mut()) {
        Err(Error::Mismatch { .. }) => Ok(()),
        other => Err(format!("another size: {other:?}").into()),
    }
}
