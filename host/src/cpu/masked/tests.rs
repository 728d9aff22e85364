use crate::mask::{Coverage, Mask, Nan, Rule};
use crate::{Border, Device, Filter, Image, Number, Pixel, Plan};

/// Numbers from 0 to `n - 1`, by a linear congruential generator.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

const FILTERS: &[&str] = &[
    "gaussian:1",
    "gaussian:3",
    "box:cols=2,rows=3",
    "box:size=7",
    "motion:length=9,angle=30",
    "motion:length=24,angle=30",
    "sharpen",
    "unsharp:sigma=1",
    "unsharp:sigma=2.5",
    "sobel-x",
    "laplacian",
    "log:sigma=6",
    "taps:1 1 1",
    "taps:0.25 0 0.5 0.25",
];

const BORDERS: &[Border] = &[
    Border::None,
    Border::Constant(7.0),
    Border::Replicate,
    Border::Reflect,
    Border::Reflect101,
    Border::Wrap,
];

/// A problem: shape, taps, border, mask.
struct Problem {
    filter: Filter,
    text: String,
    border: Border,
    size: (usize, usize, usize),
    nan: Nan,
    /// Values of the image, and weights, with `of_mask` channels.
    values: Vec<f64>,
    mask: Vec<f64>,
    of_mask: usize,
}

impl Problem {
    fn random(random: &mut Random, text: &str, has_nan: bool, bytes: bool) -> Self {
        let size @ (width, height, channels) =
            (1 + random.below(150), 1 + random.below(40), random.one_of(&[1, 1, 2, 3]));
        let share = random.one_of(&[0, 1, 30, 90, 100]);
        let mut values: Vec<f64> =
            (0..width * height * channels).map(|_| random.below(256) as f64).collect();
        let of_mask = random.one_of(&[1, channels]);
        let mut mask = Vec::new();
        for _ in 0..width * height * of_mask {
            let is_known = random.below(100) >= share;
            let weight = match random.below(8) {
                0 if !bytes => 0.25 * random.below(9) as f64,
                0 if bytes && share == 30 => random.below(256) as f64 / 255.0,
                _ => 1.0,
            };
            mask.push(if is_known { weight } else { 0.0 });
        }
        if has_nan {
            values.iter_mut().for_each(|value| {
                if random.below(10) == 0 {
                    *value = f64::NAN;
                }
            });
        }
        let border = random.one_of(BORDERS);
        let filter: Filter = text.parse().unwrap();
        let nan = match has_nan {
            true if Rule::of(&filter) == Rule::Sum => Nan::Ignore,
            true => random.one_of(&[Nan::Ignore, Nan::Fill]),
            false => Nan::Spread,
        };
        let text = format!("{text} {border} {size:?} {nan} {share} % of {of_mask}");
        Self { filter, text, border, size, nan, values, mask, of_mask }
    }

    /// The weight of a value.
    fn weight(&self, at: usize) -> f64 {
        let value = self.values[at];
        if self.nan != Nan::Spread && value.is_nan() {
            return 0.0;
        }
        self.mask[at * self.of_mask / self.size.2]
    }

    /// By definition, in f64: `sum(w m p)`, `sum(w m)` and `sum(|w| m)` of a result.
    fn sums(&self, x: usize, y: usize, channel: usize) -> [f64; 3] {
        let (width, height, channels) = self.size;
        let (anchor_x, anchor_y) = self.filter.anchor();
        let mut sums = [0.0; 3];
        for r in 0..self.filter.rows() {
            for c in 0..self.filter.cols() {
                let tap = self.filter.tap(r, c);
                let place = |at: usize, offset: usize, anchor: usize, n: usize| {
                    self.border.resolve((at + offset) as isize - anchor as isize, n as isize)
                };
                let found = place(y, r, anchor_y, height).zip(place(x, c, anchor_x, width));
                let (value, weight) = match found {
                    Some((y, x)) => {
                        let at = (y as usize * width + x as usize) * channels + channel;
                        (self.values[at], self.weight(at))
                    }
                    None if self.border == Border::None => (0.0, 0.0),
                    None => (self.border.constant(), 1.0),
                };
                if weight != 0.0 {
                    sums[0] += tap * weight * value;
                    sums[1] += tap * weight;
                    sums[2] += tap.abs() * weight;
                }
            }
        }
        sums
    }

    /// The result, if pixels are known, and how far sums in f32 may be off.
    fn result(&self, at: usize) -> (Option<f64>, f64) {
        let (width, _, channels) = self.size;
        let pixel = at / channels;
        let [sum, weight, magnitude] = self.sums(pixel % width, pixel / width, at % channels);
        if self.nan == Nan::Fill && self.weight(at) != 0.0 {
            return (Some(self.values[at]), 0.0);
        }
        let rule = Rule::of(&self.filter);
        let ones = self.filter.sum_of_taps();
        let taps = (self.filter.cols() * self.filter.rows()) as f64;
        let unit = 2f64.powi(-24) * (taps + 20.0) * 256.0;
        match rule {
            Rule::Sum if magnitude == 0.0 => (None, 0.0),
            Rule::Sum => (Some(sum), unit * magnitude.max(self.filter.weight())),
            _ if weight.abs() <= Rule::CANCELLED * magnitude => (None, 0.0),
            _ => {
                let value = sum / (weight / ones);
                let size = magnitude.max(self.filter.weight() / 16.0) / weight.abs();
                (Some(value), 16.0 * unit * size * (1.0 + value.abs() / 256.0))
            }
        }
    }

    fn plan(&self) -> Plan {
        let builder = Plan::builder(&self.filter).border(self.border).nan(self.nan).unknown(-77.0);
        builder.device(Device::Cpu).build().unwrap()
    }

    fn image<P: Pixel>(&self) -> Image<P> {
        let (width, height, channels) = self.size;
        let values = self.values.iter().map(|&value| P::from_f32(value as f32)).collect();
        Image::from_vec(values, width, height, channels).unwrap()
    }

    /// Runs the problem with a mask of weights or of bytes.
    fn run<S: Pixel, D: Pixel>(&self, bytes: bool) -> (Image<D>, Image<f32>, Image<u8>) {
        let (width, height, channels) = self.size;
        let mut dst = Image::<D>::zeroed(width, height, channels).unwrap();
        let mut weights = Image::zeroed(width, height, channels).unwrap();
        let mut known = Image::zeroed(width, height, channels).unwrap();
        let coverage =
            Coverage { weights: Some(weights.view_mut()), known: Some(known.view_mut()) };
        let floats: Vec<f32> = self.mask.iter().map(|&weight| weight as f32).collect();
        let floats = Image::from_vec(floats, width, height, self.of_mask).unwrap();
        let of_bytes: Vec<u8> = self.mask.iter().map(|weight| (255.0 * weight) as u8).collect();
        let of_bytes = Image::from_vec(of_bytes, width, height, self.of_mask).unwrap();
        let mask = if bytes { Mask::from(&of_bytes) } else { Mask::from(&floats) };
        self.plan().run_masked_with(&self.image::<S>(), mask, &mut dst, coverage).unwrap();
        (dst, weights, known)
    }
}

/// Sums in f32 are near those in f64, for every rule, border, type of mask and family.
#[test]
fn results_are_near_sums_in_f64() {
    let mut random = Random(1);
    for number in 0..420 {
        let text = FILTERS[number % FILTERS.len()];
        let problem = Problem::random(&mut random, text, number % 3 == 0, number % 2 == 1);
        let (dst, weights, known) = problem.run::<f32, f32>(number % 2 == 1);
        for (at, &found) in dst.as_slice().iter().enumerate() {
            let (right, error) = problem.result(at);
            let context = || format!("{} at {at}: {found}, not {right:?}", problem.text);
            match right {
                Some(right) => {
                    assert!((f64::from(found) - right).abs() <= error, "{}, {error}", context());
                    assert_eq!(known.as_slice()[at], 255, "{}", context());
                }
                None => {
                    assert_eq!(found, -77.0, "{}", context());
                    assert_eq!(known.as_slice()[at], 0, "{}", context());
                }
            }
            let pixel = at / problem.size.2;
            let (x, y) = (pixel % problem.size.0, pixel / problem.size.0);
            let [_, weight, _] = problem.sums(x, y, at % problem.size.2);
            let error = 2e-4 * problem.filter.weight();
            assert!((f64::from(weights.as_slice()[at]) - weight).abs() <= error, "{}", context());
        }
    }
}

/// A mask of ones changes no bit, of any type.
#[test]
fn a_mask_of_ones_changes_nothing() {
    fn check<S: Pixel, D: Pixel + PartialEq>(problem: &Problem, bytes: bool) {
        let (found, ..) = problem.run::<S, D>(bytes);
        let builder = Plan::builder(&problem.filter).border(problem.border).device(Device::Cpu);
        let plan = builder.build().unwrap();
        let (width, height, channels) = problem.size;
        let mut right = Image::<D>::zeroed(width, height, channels).unwrap();
        plan.run(&problem.image::<S>(), &mut right).unwrap();
        assert!(found == right, "{}", problem.text);
    }
    let mut random = Random(2);
    for text in FILTERS.iter().cycle().take(140).filter(|text| !text.contains("length=24")) {
        let mut problem = Problem::random(&mut random, text, false, false);
        // Other families than spectra, whose sums of weights are not exact.
        let taps = problem.filter.cols() + problem.filter.rows();
        if problem.border == Border::None || !problem.filter.is_separable() && taps > 34 {
            continue;
        }
        problem.mask.fill(1.0);
        check::<f32, f32>(&problem, false);
        check::<u8, f32>(&problem, true);
        check::<u16, u16>(&problem, true);
        check::<u8, u8>(&problem, true);
    }
}

/// Bytes are the exact quotients, rounded half to even: but for ties within f64, those in f64.
#[test]
fn bytes_are_rounded_quotients() {
    let mut random = Random(3);
    for number in 0..280 {
        let text = FILTERS[number % FILTERS.len()];
        let mut problem = Problem::random(&mut random, text, false, true);
        if number % 4 == 0 && Rule::of(&problem.filter) != Rule::Sum {
            problem.nan = Nan::Fill;
        }
        let (dst, _, known) = problem.run::<u8, u8>(true);
        for (at, &found) in dst.as_slice().iter().enumerate() {
            let (right, error) = problem.result(at);
            let right = right.unwrap_or(-77.0);
            // Fractional weights of plain sums are summed in f32. Taps are multiples of 2^-45.
            let pixel = at / problem.size.2;
            let (x, y) = (pixel % problem.size.0, pixel / problem.size.0);
            let [_, _, magnitude] = problem.sums(x, y, at % problem.size.2);
            let error = match Rule::of(&problem.filter) {
                Rule::Sum => error,
                _ if magnitude > 0.0 && magnitude < 1e-9 => continue,
                _ => 1e-9 + 1e-9 / magnitude.max(1e-9),
            };
            let [low, high] = [right - error, right + error].map(u8::from_f64);
            assert!(
                low == found || high == found,
                "{} at {at}: {found}, not {right}",
                problem.text
            );
            assert!(known.as_slice()[at] != 0 || right == -77.0, "{}", problem.text);
        }
    }
}
