//! Recipes: generated problems as numbers that can be shrunk one by one.

use apron::{Border, Shape};
use conformance::problem::{Problem, Window};
use conformance::sample::{Data, Kind, Sample};
use fastrand::Rng;
use proptest::prelude::*;
use proptest::sample::select;

/// A problem in numbers.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    /// Tap columns and rows.
    pub(crate) window: (usize, usize),
    /// Whether the taps are the product of a row and a column.
    pub(crate) pair: bool,
    /// A filter in the product's notation, which replaces window and taps.
    pub(crate) preset: Option<String>,
    pub(crate) taps: Taps,
    /// The middle (`None`), or any cell, modulo the window's size.
    pub(crate) anchor: Option<(usize, usize)>,
    pub(crate) border: Border,
    pub(crate) size: (usize, usize),
    pub(crate) channels: usize,
    pub(crate) stored: (Kind, Kind),
    pub(crate) gaps: (usize, usize),
    pub(crate) data: Data,
    pub(crate) seed: u64,
}

/// How taps are generated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Taps {
    /// Within -1 to 1.
    Unit,
    /// Small whole numbers, zeros among them: sums in f32 are exact.
    Whole,
    /// All equal, with a sum of 1: 8-bit sums that end in a half.
    Mean,
    /// Subnormal numbers and zeros.
    Tiny,
    /// Of very different sizes.
    Mixed,
    /// Sums that overflow.
    Huge,
    /// In f64, not negative, with a sum of about 1.
    Blur,
    /// In f64, with a sum of 1 and magnitudes that add up to 6.
    Sharp,
    /// In f64, with a sum of 1 and magnitudes that add up to 1e9.
    Cancelling,
    /// In f64, of magnitudes from 1e-300 to 1. Of a pair, one factor is multiplied by up to 1e36
    /// and the other divided by it.
    Range,
    /// In f64, small whole numbers over a common denominator.
    Fractions,
    /// Small whole numbers over four: most sums of bytes end in a quarter.
    Quarters,
    /// Nothing.
    Zero,
}

/// The most multiplications of the oracle in a problem.
pub(crate) const WORK: usize = 1 << 21;

/// Columns and rows, whether the taps are a product, and the anchor.
type Shaped = (usize, usize, bool, Option<(usize, usize)>);

fn anchors() -> BoxedStrategy<Option<(usize, usize)>> {
    prop_oneof![2 => Just(None), 3 => (0usize..300, 0usize..300).prop_map(Some)].boxed()
}

/// Window shapes for every kernel: any size, square, very long, larger.
fn windows() -> BoxedStrategy<Shaped> {
    let odd = |most: usize| (0..=most / 2).prop_map(|half| 2 * half + 1);
    prop_oneof![
        5 => (1usize..=12, 1usize..=12, any::<bool>(), anchors()),
        3 => (odd(35), any::<bool>()).prop_map(|(n, pair)| (n, n, pair, None)),
        1 => (1usize..=3, 1usize..=200, any::<bool>(), anchors()),
        1 => (1usize..=200, 1usize..=3, any::<bool>(), anchors()),
        1 => (13usize..=70, 13usize..=70, any::<bool>(), anchors()),
    ]
    .boxed()
}

fn sizes() -> BoxedStrategy<(usize, usize)> {
    prop_oneof![
        4 => (1usize..=40, 1usize..=40),
        2 => (1usize..=300, 1usize..=80),
        1 => (1usize..=3, 1usize..=700),
        1 => (1usize..=1200, 1usize..=3),
    ]
    .boxed()
}

/// A picture's size, limited to `most` pixels.
fn within((width, height): (usize, usize), most: usize) -> (usize, usize) {
    let width = width.min(most.max(1));
    (width, height.min((most / width).max(1)))
}

/// Problems of every type.
pub(crate) fn recipes(work: usize) -> BoxedStrategy<Recipe> {
    let constant = select(vec![0.0, -7.25, 1e-42, 255.5, 3e38, f64::INFINITY, f64::NAN]);
    let border = prop_oneof![
        4 => Just(Border::Constant(0.0)),
        2 => constant.prop_map(Border::Constant),
        8 => select(vec![Border::Replicate, Border::Reflect, Border::Reflect101, Border::Wrap, Border::Keep]),
    ];
    let taps = prop_oneof![
        4 => Just(Taps::Unit),
        2 => Just(Taps::Whole),
        2 => Just(Taps::Mean),
        1 => select(vec![Taps::Tiny, Taps::Mixed, Taps::Huge]),
    ];
    let kind = || select(Kind::ALL.to_vec());
    let stored = prop_oneof![
        3 => Just((Kind::F32, Kind::F32)),
        3 => Just((Kind::U8, Kind::U8)),
        4 => (kind(), kind()),
    ];
    let data = prop_oneof![
        5 => Just(Data::Random),
        3 => select(vec![Data::Extremes, Data::Wild, Data::Tiny, Data::Lone, Data::Holes, Data::Infinite]),
    ];
    let gaps = (0usize..7, 0usize..7);
    (windows(), taps, border, sizes(), 1usize..=4, stored, gaps, data, any::<u64>())
        .prop_map(
            move |(
                (cols, rows, pair, anchor),
                taps,
                border,
                size,
                channels,
                stored,
                gaps,
                data,
                seed,
            )| {
                let (window, size) = ((cols, rows), within(size, work / (cols * rows * channels)));
                Recipe {
                    window,
                    pair,
                    preset: None,
                    taps,
                    anchor,
                    border,
                    size,
                    channels,
                    stored,
                    gaps,
                    data,
                    seed,
                }
            },
        )
        .boxed()
}

/// Bytes made of bytes, with filters of every form.
pub(crate) fn recipes_of_bytes(work: usize) -> BoxedStrategy<Recipe> {
    let border = prop_oneof![
        3 => select(vec![0.0, 1.0, 77.0, 255.0]).prop_map(Border::Constant),
        8 => select(vec![Border::Replicate, Border::Reflect, Border::Reflect101, Border::Wrap, Border::Keep]),
    ];
    let taps = prop_oneof![
        3 => select(vec![Taps::Blur, Taps::Sharp]),
        3 => select(vec![Taps::Mean, Taps::Fractions, Taps::Quarters, Taps::Whole]),
        2 => select(vec![Taps::Cancelling, Taps::Range]),
        1 => select(vec![Taps::Unit, Taps::Tiny, Taps::Mixed, Taps::Huge, Taps::Zero]),
    ];
    // More than 65,793 taps, and products longer than any tile.
    let large = prop_oneof![
        (257usize..=280, 258usize..=280, any::<bool>()),
        (Just(1), 65_794usize..=66_500, Just(false)),
        (65_794usize..=66_500, Just(1), Just(true)),
        (300usize..=1500, 300usize..=1500, Just(true)),
    ];
    let large =
        (large, anchors()).prop_map(|((cols, rows, pair), anchor)| (cols, rows, pair, anchor));
    // On the emulator, one result under the largest windows would take minutes.
    let is_emulated = work < WORK;
    let window = if is_emulated {
        windows().boxed()
    } else {
        prop_oneof![40 => windows(), 1 => large].boxed()
    };
    let named = prop_oneof![3 => Just(None), 1 => presets(!is_emulated).prop_map(Some)];
    let data = prop_oneof![
        4 => Just(Data::Random),
        1 => any::<u8>().prop_map(Data::Flat),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(one, other)| Data::Two(one, other)),
        2 => select(vec![Data::Checker(1), Data::Checker(2), Data::Checker(16)]),
        3 => select(vec![Data::Extremes, Data::Gradient, Data::Dither, Data::Repeated]),
    ];
    let gaps = (0usize..7, 0usize..7);
    (window, named, taps, border, sizes(), 1usize..=4, gaps, data, any::<u64>())
        .prop_map(move |(window, preset, taps, border, size, channels, gaps, data, seed)| {
            let (cols, rows, pair, anchor) = window;
            let cost = match &preset {
                None => cols * rows,
                Some(text) if text.contains("00") => 1 << 14,
                Some(_) => 1 << 11,
            };
            // A few pixels at least, however large the window is.
            let size = within(size, (work / (cost * channels)).max(12));
            let (window, stored) = ((cols, rows), (Kind::U8, Kind::U8));
            let anchor = anchor.filter(|_| preset.is_none());
            Recipe {
                window,
                pair,
                preset,
                taps,
                anchor,
                border,
                size,
                channels,
                stored,
                gaps,
                data,
                seed,
            }
        })
        .boxed()
}

/// Named filters: products, sums and means, with or without the widest Gaussians.
fn presets(with_wide: bool) -> BoxedStrategy<String> {
    let wide = ["gaussian:20", "gaussian:100", "gaussian:200", "gaussian:1000"];
    let wide = if with_wide { wide.to_vec() } else { vec![wide[0]] };
    let tenths = |most: u32| (5..most).prop_map(|tenths| f64::from(tenths) / 10.0);
    prop_oneof![
        4 => tenths(60).prop_map(|sigma| format!("gaussian:{sigma}")),
        1 => (tenths(80), tenths(80)).prop_map(|(x, y)| format!("gaussian:sigma-x={x},sigma-y={y}")),
        1 => select(wide).prop_map(str::to_owned),
        3 => (1usize..=40, 1usize..=40).prop_map(|(cols, rows)| format!("box:cols={cols},rows={rows}")),
        3 => (tenths(60), select(vec![0.3, 0.5, 1.0, 1.7, 3.0]))
            .prop_map(|(sigma, amount)| format!("unsharp:sigma={sigma},amount={amount}")),
        2 => tenths(40).prop_map(|sigma| format!("log:{sigma}")),
        2 => tenths(30).prop_map(|sigma| format!("dog:{sigma}")),
        1 => select(vec!["sharpen", "emboss", "sobel-x", "laplacian", "motion:length=9,angle=30"]).prop_map(str::to_owned),
    ]
    .boxed()
}

/// Random taps with a sum of 1, whose magnitudes add up to about `weight`.
fn weighted(count: usize, weight: f64, rng: &mut Rng) -> Vec<f64> {
    let taps: Vec<f64> = (0..count).map(|_| 2.0 * rng.f64() - 1.0).collect();
    let scale = weight / taps.iter().map(|tap| tap.abs()).sum::<f64>();
    let level = (1.0 - scale * taps.iter().sum::<f64>()) / count as f64;
    taps.into_iter().map(|tap| scale * tap + level).collect()
}

impl Recipe {
    /// The window, with taps of this type.
    pub(crate) fn window_of(&self, taps: Taps) -> Window {
        if let Some(text) = &self.preset {
            return Window::preset(text);
        }
        let mut rng = Rng::with_seed(self.seed ^ 0xA5);
        let (cols, rows) = self.window;
        let name = format!("{taps:?} taps of {:#x}", self.seed);
        let window = match taps {
            Taps::Unit
            | Taps::Whole
            | Taps::Mean
            | Taps::Tiny
            | Taps::Mixed
            | Taps::Huge
            | Taps::Quarters
            | Taps::Zero => {
                let mut line = |count| narrow(taps, self.pair, count, &mut rng);
                if self.pair {
                    let row = line(cols);
                    Window::pair(name, &row, &line(rows))
                } else {
                    Window::dense(name, cols, rows, &line(cols * rows))
                }
            }
            _ if self.pair => {
                let (mut row, mut column) =
                    (wide(taps, true, cols, &mut rng), wide(taps, true, rows, &mut rng));
                if taps == Taps::Range {
                    let scale = 10f64.powi(rng.i32(-36..=36));
                    row.iter_mut().for_each(|tap| *tap *= scale);
                    column.iter_mut().for_each(|tap| *tap /= scale);
                }
                Window::product(name, &row, &column)
            }
            _ => Window::table(name, cols, rows, &wide(taps, false, cols * rows, &mut rng)),
        };
        match self.anchor {
            Some((x, y)) => window.anchored(x % cols, y % rows),
            None => window,
        }
    }

    pub(crate) fn problem(&self) -> Problem {
        let (input, output) = self.stored;
        // Integers have no infinity.
        let needs_infinity = matches!(self.data, Data::Lone | Data::Holes | Data::Infinite);
        let data = if needs_infinity && input.is_integer() { Data::Random } else { self.data };
        let problem = Problem::new(self.size.0, self.size.1, self.seed)
            .stored(input, output)
            .channels(self.channels);
        problem.gaps(self.gaps.0, self.gaps.1).data(data)
    }

    /// Pixels whose last channel is alpha: random like the others, or in runs of one value, most
    /// often 0.
    pub(crate) fn with_alpha(&self, Shape { width, channels, height }: Shape) -> Vec<u8> {
        let mut rng = Rng::with_seed(self.seed ^ 0x5A);
        let has_runs = rng.bool();
        let mut run = 0;
        let mut pixels = Vec::with_capacity(width * height * channels);
        for i in 0..width * height {
            for channel in 0..channels {
                let place = (i % width, i / width);
                pixels.push(
                    self.data
                        .placed(place, channel)
                        .unwrap_or_else(|| u8::random(&mut rng, self.data)),
                );
            }
            if i % 7 == 0 && rng.u8(..) < 60 {
                run = [0, 0, 255, rng.u8(..)][rng.usize(0..4)];
            }
            if let Some(alpha) = pixels.last_mut().filter(|_| has_runs) {
                *alpha = run;
            }
        }
        pixels
    }

    /// A plane of pixels: whole numbers up to 99, or any values up to 1000.
    pub(crate) fn plane(
        &self,
        whole: bool,
        salt: u64,
        (width, height): (usize, usize),
    ) -> Vec<f32> {
        let mut rng = Rng::with_seed(self.seed.wrapping_add(salt));
        let mut pixel =
            || if whole { rng.i32(-99..=99) as f32 } else { 2000.0 * rng.f32() - 1000.0 };
        (0..width * height).map(|_| pixel()).collect()
    }
}

/// Taps in f32 of a whole window or of one factor.
fn narrow(taps: Taps, of_pair: bool, count: usize, rng: &mut Rng) -> Vec<f32> {
    // Of a pair, each factor has about the square root of a tap's magnitude.
    let (tiny, huge) = if of_pair { (1e-22, 1e17) } else { (1e-41, 1e36) };
    let tap = |_| {
        let unit = 2.0 * rng.f32() - 1.0;
        match taps {
            Taps::Whole => rng.i32(-4..=4) as f32,
            Taps::Quarters => 0.25 * rng.i32(-2..=3) as f32,
            Taps::Mean => 1.0 / count as f32,
            Taps::Tiny => [0.0, -0.0, tiny, unit * tiny][rng.usize(0..4)],
            Taps::Mixed => unit * 10f32.powi(rng.i32(-6..=3)),
            Taps::Huge => unit * huge,
            Taps::Zero => 0.0,
            _ => unit,
        }
    };
    (0..count).map(tap).collect()
}

/// Taps in f64 of a whole window or of one factor.
fn wide(taps: Taps, of_pair: bool, count: usize, rng: &mut Rng) -> Vec<f64> {
    match taps {
        Taps::Sharp => weighted(count, if of_pair { 6f64.sqrt() } else { 6.0 }, rng),
        Taps::Cancelling => weighted(count, if of_pair { 1e9f64.sqrt() } else { 1e9 }, rng),
        Taps::Range => {
            let tap =
                |_| (2.0 * rng.f64() - 0.7) * 10f64.powi([0, 0, -1, -3, -9, -300][rng.usize(0..6)]);
            (0..count).map(tap).collect()
        }
        Taps::Fractions => {
            let denominator = rng.usize(1..=(3 * count).min(1 << 16)) as f64;
            (0..count).map(|_| f64::from(rng.i32(-2..=5)) / denominator).collect()
        }
        _ => (0..count).map(|_| 2.0 * rng.f64() / count as f64).collect(),
    }
}
