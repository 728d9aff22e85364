//! Sums over known pixels, beside the oracle's: to the last bit in the direct and the separable
//! family, and exact bytes. On a GPU, beside the CPU's.

use apron::{Border, Coverage, Device, Filter, Image, Mask, Nan, Plan, Scalar, Shape, f16};
use conformance::product::Gpu;
use conformance::sample::Sample;
use conformance::select::{BORDERS, Selection, seed};
use conformance::suite::{gpu_trial, quarters};
use fastrand::Rng;
use libtest_mimic::{Failed, Trial};
use oracle::{Order, Weighted, Whole, masked, masked_bytes};

const FILTERS: &[&str] = &[
    "gaussian:1",
    "gaussian:3",
    "box:cols=4,rows=7",
    "box:size=2",
    "motion:length=9,angle=30",
    "unsharp:sigma=2",
    "sharpen",
    "sobel-x",
    "sobel-y:size=7",
    "laplacian",
    "log:sigma=2",
    "taps:0.25 0 0.5 0.25",
    "taps:1 1 1",
];

pub(crate) fn trials(selection: Selection, gpu: &Gpu) -> Vec<Trial> {
    let on_cpu = vec![
        Trial::test("masked::bits", bits),
        Trial::test("masked::bytes", bytes),
        Trial::test("masked::nan_is_a_mask", nan_is_a_mask),
        Trial::test("masked::doubles", doubles),
        Trial::test("masked::refused", refused),
    ];
    let large = gpu_trial("masked::inside_and_edges::gpu", gpu, inside_and_edges);
    let generated = quarters("masked::as_on_the_cpu", selection, gpu, as_on_the_cpu);
    generated.chain([large]).chain(on_cpu).collect()
}

/// Large pictures that nothing is known around: the plain kernel makes the results inside.
#[cfg(feature = "gpu")]
fn inside_and_edges() -> Result<(), Failed> {
    fn same<P: Sample>(text: &str, shape: Shape) -> Result<(), Failed> {
        let Shape { width, height, channels } = shape;
        let mut random = Random(5);
        let len = width * height * channels;
        let values = (0..len).map(|_| P::from_f32(random.below(256) as f32)).collect();
        let src = Image::<P>::from_vec(values, width, height, channels)?;
        let builder = Plan::builder(text.parse::<Filter>()?).border(Border::None);
        let right: Image<P> = builder.clone().device(Device::Cpu).build()?.filter(&src)?;
        let gpu = apron::gpu::Gpu::open(0)?;
        let (from, mut to) = (gpu.upload_stored(&src.view())?, gpu.upload_stored(&src.view())?);
        let mut stream = gpu.stream()?;
        let plan = builder.device(Gpu::DEVICE).build()?;
        let (part, dst) = ((0..width, 0..height), &mut to.view_mut());
        plan.run_region(&from.view(), dst, part.0, part.1, &mut stream)?;
        stream.synchronize()?;
        let found = gpu.download_stored::<P>(&to)?;
        let differs = |(found, right): (&P, &P)| !found.same(*right);
        match found.as_slice().iter().zip(right.as_slice()).position(differs) {
            Some(at) => Err(format!("{text}, {shape}, {}: at {at}", P::KIND).into()),
            None => Ok(()),
        }
    }
    same::<u8>("gaussian:1", Shape { width: 1201, height: 1190, channels: 3 })?;
    same::<f32>("box:cols=4,rows=7", Shape { width: 2100, height: 2010, channels: 1 })?;
    same::<u16>("sobel-x", Shape { width: 2100, height: 2010, channels: 1 })
}

#[cfg(not(feature = "gpu"))]
fn inside_and_edges() -> Result<(), Failed> {
    Ok(())
}

/// Launches every entry for known pixels at least once.
#[cfg(feature = "gpu")]
pub(crate) fn launch_entries() -> Result<(), Failed> {
    as_on_the_cpu(0..24)
}

/// Numbers below a limit, by a generator that repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn shape(&mut self) -> Shape {
        let extent = [1, 7, 63, 200];
        let channels = 1 + self.below(3) as usize;
        Shape {
            width: extent[self.below(4) as usize] + self.below(5) as usize,
            height: extent[self.below(3) as usize] + self.below(5) as usize,
            channels,
        }
    }
}

fn borders() -> impl Iterator<Item = Border> {
    BORDERS.into_iter().filter(|&border| border != Border::Keep).chain([Border::None])
}

fn plan(filter: &Filter, border: Border) -> apron::Result<Plan> {
    Plan::builder(filter).border(border).unknown(-5.0).device(Device::Cpu).build()
}

/// Results in f32, of f32 and of bytes, by weights and by bytes.
fn bits() -> Result<(), Failed> {
    let mut random = Random(1);
    let mut count = 0;
    for (text, border) in
        FILTERS.iter().flat_map(|text| borders().map(move |border| (text, border)))
    {
        let filter: Filter = text.parse()?;
        for _ in 0..4 {
            let shape @ Shape { width, height, channels } = random.shape();
            let len = width * height * channels;
            let share = [0, 1, 50, 95][random.below(4) as usize];
            let values: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
            let mask: Vec<u8> = (0..width * height)
                .map(|_| match random.below(100) {
                    known if known < share => 0,
                    99 => random.below(256) as u8,
                    _ => 255,
                })
                .collect();
            let weights: Vec<f32> =
                (0..len).map(|at| f32::from(mask[at / channels]) / 255.0).collect();
            let floats: Vec<f32> = values.iter().map(|&value| value.into()).collect();
            let plan = plan(&filter, border)?;
            let family = plan.variant_of(shape, Scalar::F32, Scalar::F32)?.family();
            let Some(order) = Order::of(family) else { continue };
            let weighted = Weighted { values: &floats, weights: &weights, shape };
            let right = masked(order, weighted, &filter, border, -5.0);
            let mask = Image::from_vec(mask, width, height, 1)?;
            let weights = Image::from_vec(weights, width, height, channels)?;
            let src = Image::from_vec(values, width, height, channels)?;
            let floats = Image::from_vec(floats, width, height, channels)?;
            for number in 0..3 {
                let mut dst = Image::<f32>::zeroed(width, height, channels)?;
                match number {
                    0 => plan.run_masked(&floats, &weights, &mut dst)?,
                    1 => plan.run_masked(&floats, &mask, &mut dst)?,
                    _ => plan.run_masked(&src, &mask, &mut dst)?,
                }
                let differs = |(found, right): (&f32, &f32)| found.to_bits() != right.to_bits();
                if let Some(at) = dst.as_slice().iter().zip(&right).position(differs) {
                    let (found, right) = (dst.as_slice()[at], right[at]);
                    let case = format!("{text} {border} {shape}, {share} %, {number}");
                    return Err(format!("{case}: {found}, not {right}, at {at}").into());
                }
                count += right.len();
            }
        }
    }
    println!("masked::bits: {count} results");
    Ok(())
}

/// Bytes of averages under masks of bytes.
fn bytes() -> Result<(), Failed> {
    let mut random = Random(2);
    for (text, border) in
        FILTERS.iter().flat_map(|text| borders().map(move |border| (text, border)))
    {
        let filter: Filter = text.parse()?;
        if !filter.is_average() || matches!(border, Border::Constant(_)) {
            continue;
        }
        let whole = Whole::of(&filter);
        for _ in 0..4 {
            let shape @ Shape { width, height, channels } = random.shape();
            let len = width * height * channels;
            let share = [0, 1, 50, 95][random.below(4) as usize];
            let values: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
            let mask: Vec<u8> = (0..len)
                .map(|_| match random.below(100) {
                    known if known < share => 0,
                    99 => random.below(256) as u8,
                    _ => 255,
                })
                .collect();
            let weighted = Weighted { values: &values, weights: &mask, shape };
            let right = masked_bytes(weighted, &filter, &whole, border);
            let mask = Image::from_vec(mask, width, height, channels)?;
            let src = Image::from_vec(values, width, height, channels)?;
            let mut dst = Image::<u8>::zeroed(width, height, channels)?;
            plan(&filter, border)?.run_masked(&src, &mask, &mut dst)?;
            let differs = |(found, right): (&u8, &u8)| found != right;
            if let Some(at) = dst.as_slice().iter().zip(&right).position(differs) {
                let (found, right) = (dst.as_slice()[at], right[at]);
                return Err(
                    format!("{text} {border} {shape}: {found}, not {right}, at {at}").into()
                );
            }
        }
    }
    Ok(())
}

/// NaN gives the results of a mask that leaves it out; filled, known pixels are copied.
fn nan_is_a_mask() -> Result<(), Failed> {
    let (width, height) = (90, 40);
    let mut random = Random(3);
    let values: Vec<f32> = (0..2 * width * height)
        .map(|_| match random.below(10) {
            0 => f32::NAN,
            _ => random.below(1000) as f32,
        })
        .collect();
    let mask: Vec<u8> = values.iter().map(|value| if value.is_nan() { 0 } else { 255 }).collect();
    let (src, mask) =
        (Image::from_vec(values, width, height, 2)?, Image::from_vec(mask, width, height, 2)?);
    for (text, border) in
        FILTERS.iter().flat_map(|text| borders().map(move |border| (text, border)))
    {
        let filter: Filter = text.parse()?;
        let mut right = Image::<f32>::zeroed(width, height, 2)?;
        plan(&filter, border)?.run_masked(&src, &mask, &mut right)?;
        let builder = Plan::builder(&filter).border(border).unknown(-5.0).device(Device::Cpu);
        let found: Image<f32> = builder.clone().nan(Nan::Ignore).build()?.filter(&src)?;
        if found != right {
            return Err(format!("{text} {border}: NaN is no mask").into());
        }
        let Ok(plan) = builder.nan(Nan::Fill).build() else { continue };
        let filled: Image<f32> = plan.filter(&src)?;
        for ((filled, right), src) in
            filled.as_slice().iter().zip(right.as_slice()).zip(src.as_slice())
        {
            let expected = if src.is_nan() { right } else { src };
            if filled != expected {
                return Err(format!("{text} {border}: {src} became {filled}").into());
            }
        }
    }
    Ok(())
}

/// Sums in f64 are near those in f32, and weights and known pixels are the same.
fn doubles() -> Result<(), Failed> {
    let shape @ Shape { width, height, channels } = Shape { width: 70, height: 31, channels: 3 };
    let len = width * height * channels;
    let mut random = Random(4);
    let values: Vec<f32> = (0..len).map(|_| random.below(1000) as f32 / 8.0).collect();
    let mask: Vec<u8> =
        (0..width * height).map(|_| if random.below(3) == 0 { 0 } else { 255 }).collect();
    let wide: Vec<f64> = values.iter().map(|&value| value.into()).collect();
    let (src, wide) = (
        Image::from_vec(values, width, height, channels)?,
        Image::from_vec(wide, width, height, channels)?,
    );
    let mask = Image::from_vec(mask, width, height, 1)?;
    for (text, border) in
        FILTERS.iter().flat_map(|text| borders().map(move |border| (text, border)))
    {
        let plan = plan(&text.parse()?, border)?;
        let new = || Image::<f32>::zeroed(width, height, channels);
        let (mut narrow, mut weights) = (new()?, [new()?, new()?]);
        let mut known = [
            Image::<u8>::zeroed(width, height, channels)?,
            Image::zeroed(width, height, channels)?,
        ];
        let [a, b] = &mut weights;
        let [c, d] = &mut known;
        let beside =
            |a: &mut Image<f32>, c: &mut Image<u8>, run: &mut dyn FnMut(Coverage<'_>) -> _| {
                run(Coverage { weights: Some(a.view_mut()), known: Some(c.view_mut()) })
            };
        beside(a, c, &mut |coverage| plan.run_masked_with(&src, &mask, &mut narrow, coverage))?;
        let mut found = Image::<f64>::zeroed(width, height, channels)?;
        beside(b, d, &mut |coverage| {
            plan.run_masked_f64(&wide.view(), &mask, &mut found.view_mut(), coverage)
        })?;
        let near = |a: f64, b: f64, error: f64| (a - b).abs() <= error;
        let results = narrow.as_slice().iter().zip(found.as_slice());
        let all = results.enumerate().all(|(at, (&narrow, &found))| {
            let [a, b] = [&weights[0], &weights[1]].map(|it| f64::from(it.as_slice()[at]));
            let error = 1e-2 / a.abs().clamp(1e-2, 1.0);
            near(narrow.into(), found, error.max(1e-4 * found.abs())) && near(a, b, 1e-4)
        });
        if !all || known[0] != known[1] {
            return Err(format!("{text} {border} {shape}: f64 differs").into());
        }
    }
    Ok(())
}

/// Errors name the value, the limit and the way out.
fn refused() -> Result<(), Failed> {
    let blur: Filter = "box:size=3".parse()?;
    let src = Image::<f32>::zeroed(5, 4, 3)?;
    let mut dst = src.clone();
    let said = |outcome: apron::Result<()>, words: &[&str]| match outcome {
        Ok(()) => Err(Failed::from(format!("{words:?} is not said"))),
        Err(error) => {
            let text = error.to_string();
            match words.iter().find(|word| !text.contains(*word)) {
                Some(word) => Err(format!("{text} does not say {word}").into()),
                None => Ok(()),
            }
        }
    };
    let any = plan(&blur, Border::Wrap)?;
    let (small, pairs) = (Image::<u8>::zeroed(4, 4, 1)?, Image::<u8>::zeroed(5, 4, 2)?);
    said(any.run_masked(&src, &small, &mut dst), &["4x4x1", "5x4x1, or 5x4x3"])?;
    said(any.run_masked(&src, &pairs, &mut dst), &["5x4x2"])?;
    let weights = Image::from_vec(vec![-1.0f32; 20], 5, 4, 1)?;
    said(any.run_masked(&src, &weights, &mut dst), &["-1 in row 0, column 0", "at least 0"])?;
    let mut other = Image::<f32>::zeroed(1, 1, 1)?;
    said(any.run_masked(&src, Mask::All, &mut other), &["1x1x1"])?;
    let coverage = Coverage { weights: Some(other.view_mut()), known: None };
    said(any.run_masked_with(&src, Mask::All, &mut dst, coverage), &["1x1x1"])?;
    let built = |builder: apron::PlanBuilder| builder.device(Device::Cpu).build().map(|_| ());
    let sobel: Filter = "sobel-x".parse()?;
    said(built(Plan::builder(&sobel).nan(Nan::Fill)), &["fill", "ignore or spread"])?;
    let gradient = Plan::builder(apron::Gradient::sobel());
    said(built(gradient.border(Border::None)), &["sobel", "one by one"])?;
    Ok(())
}

/// A problem for a GPU and the CPU.
struct Case {
    filter: Filter,
    border: Border,
    nan: Nan,
    unknown: f64,
    shape: Shape,
    mask: MaskImage,
    bands: Option<usize>,
    told: String,
}

enum MaskImage {
    None,
    Bytes(Image<u8>),
    Weights(Image<f32>),
}

impl MaskImage {
    fn of(&self) -> Mask<'_> {
        match self {
            Self::None => Mask::All,
            Self::Bytes(image) => image.into(),
            Self::Weights(image) => image.into(),
        }
    }
}

/// Filters one picture on both devices; the number of results.
type Test = fn(&Case, &mut Rng) -> Result<usize, Failed>;

const TYPES: [Test; 8] = [
    same::<u8, u8>,
    same::<f32, f32>,
    same::<u8, u8>,
    same::<u16, u16>,
    same::<u8, f32>,
    same::<f16, f16>,
    same::<f32, u8>,
    same::<u16, f32>,
];

/// Filters of which the CPU makes spectra, and a GPU does not.
const FAR: [&str; 2] = ["motion:length=31,angle=45", "log:sigma=5"];

fn as_on_the_cpu(numbers: std::ops::Range<usize>) -> Result<(), Failed> {
    let mut count = 0;
    for number in numbers {
        let mut rng = Rng::with_seed(seed(109, number));
        let filters: Vec<&str> = FILTERS.iter().copied().chain(FAR).collect();
        let text = filters[rng.usize(..filters.len())];
        let filter: Filter = text.parse()?;
        let borders: Vec<Border> = BORDERS.into_iter().chain([Border::None; 4]).collect();
        let border = match borders[rng.usize(..borders.len())] {
            Border::Constant(_) => Border::Constant([0.0, 1.0, 200.0][rng.usize(..3)]),
            border => border,
        };
        let cells =
            (0..filter.rows()).flat_map(|row| (0..filter.cols()).map(move |col| (row, col)));
        let sum: f64 = cells.map(|(row, col)| filter.tap(row, col)).sum();
        let nan = match rng.usize(..3) {
            0 => Nan::Spread,
            1 if (sum - 1.0).abs() <= 1e-6 => Nan::Fill,
            _ => Nan::Ignore,
        };
        let channels = rng.usize(1..=4);
        let shape = Shape { width: rng.usize(1..=150), height: rng.usize(1..=60), channels };
        let share = [0, 1, 30, 95][rng.usize(..4)];
        let of_mask = if rng.bool() { 1 } else { channels };
        let len = shape.width * shape.height * of_mask;
        let mut byte = || match rng.u32(..100) {
            known if known < share => 0,
            99 => rng.u8(..),
            _ => 255,
        };
        let bytes: Vec<u8> = (0..len).map(|_| byte()).collect();
        let image = |values| Image::from_vec(values, shape.width, shape.height, of_mask);
        let mask = match rng.usize(..4) {
            0 => MaskImage::None,
            1 => {
                let weight = |&byte: &u8| 3.0 * f32::from(byte) / 255.0;
                let weights = bytes.iter().map(weight).collect();
                MaskImage::Weights(Image::from_vec(weights, shape.width, shape.height, of_mask)?)
            }
            _ => MaskImage::Bytes(image(bytes)?),
        };
        let bands = [None, Some(1 + rng.usize(..20))][rng.usize(..2)];
        let kind = match mask {
            MaskImage::None => "no mask",
            MaskImage::Bytes(_) => "a mask of bytes",
            MaskImage::Weights(_) => "weights",
        };
        let told = format!(
            "number {number}: {text}, {shape}, border {border}, nan {nan}, {kind} of {of_mask}, {share} % unknown, bands {bands:?}"
        );
        let unknown = [-5.0, 77.0, f64::NAN][rng.usize(..3)];
        let case = Case { filter, border, nan, unknown, shape, mask, bands, told };
        count += TYPES[number % TYPES.len()](&case, &mut rng)?;
    }
    println!("masked::as_on_the_cpu: {count} results");
    Ok(())
}

/// A picture's results, sums of weights, and what is known.
type Found<D> = (Image<D>, Image<f32>, Image<u8>);

fn same<S: Sample, D: Sample>(case: &Case, rng: &mut Rng) -> Result<usize, Failed> {
    let Shape { width, height, channels } = case.shape;
    let extremes = rng.bool();
    let mut value = || match rng.u32(..12) {
        0 if S::SCALAR.greatest().is_none() => S::from_f32(f32::NAN),
        part if extremes => S::from_f32(if part < 6 { 0.0 } else { 255.0 }),
        _ => S::from_f32(rng.u8(..).into()),
    };
    let values = (0..width * height * channels).map(|_| value()).collect();
    let src = Image::<S>::from_vec(values, width, height, channels)?;
    let builder = |device| {
        let plan = Plan::builder(&case.filter).border(case.border).nan(case.nan);
        plan.unknown(case.unknown).device(device)
    };
    let host = builder(Device::Cpu).build()?;
    let device = builder(Gpu::DEVICE);
    let device =
        case.bands.map_or(device.clone(), |rows| device.clone().band_rows(rows)).build()?;
    let family = host.variant_of(case.shape, Scalar::F32, D::SCALAR)?.family();
    let is_ordered = Order::of(family).is_some();
    let is_exact = is_ordered
        || (S::SCALAR, D::SCALAR) == (Scalar::U8, Scalar::U8)
            && !matches!(case.mask, MaskImage::Weights(_));
    let run = |plan: &Plan| -> Result<Found<D>, Failed> {
        let mut dst = Image::<D>::zeroed(width, height, channels)?;
        let mut weights = Image::<f32>::zeroed(width, height, channels)?;
        let mut known = Image::<u8>::zeroed(width, height, channels)?;
        let coverage =
            Coverage { weights: Some(weights.view_mut()), known: Some(known.view_mut()) };
        plan.run_masked_with(&src, case.mask.of(), &mut dst, coverage)?;
        Ok((dst, weights, known))
    };
    let right = run(&host)?;
    let compare = |found: &Found<D>, right: &Found<D>, place: &str| -> Result<(), Failed> {
        let differ = |what: &str| Err(format!("{}, to {}, {place}: {what}", case.told, D::KIND));
        if let Some(at) = (0..right.2.as_slice().len())
            .find(|&at| found.2.as_slice()[at] != right.2.as_slice()[at])
        {
            return Ok(differ(&format!(
                "known: {}, not {}, at {at}",
                found.2.as_slice()[at],
                right.2.as_slice()[at]
            ))?);
        }
        let taps = (0..case.filter.rows())
            .flat_map(|row| (0..case.filter.cols()).map(move |col| (row, col)));
        let weight: f64 = taps.map(|(row, col)| case.filter.tap(row, col).abs()).sum();
        let pairs = found.0.as_slice().iter().zip(right.0.as_slice());
        let sums = found.1.as_slice().iter().zip(right.1.as_slice());
        for (at, ((found, right), (sum, other))) in pairs.zip(sums).enumerate() {
            // Where spectra are divided by little.
            let allowed = 255.0 * 2e-2 * weight / f64::from(other.abs()).clamp(1e-2, 1.0);
            let close =
                found.same(*right) || !is_exact && (found.value() - right.value()).abs() <= allowed;
            let near = if is_ordered {
                sum.to_bits() == other.to_bits()
            } else {
                f64::from(sum - other).abs() <= 1e-3 * weight
            };
            if !close || !near {
                return Ok(differ(&format!(
                    "{found:?} by {sum}, not {right:?} by {other}, at {at}"
                ))?);
            }
        }
        Ok(())
    };
    compare(&run(&device)?, &right, "from host memory")?;
    if let MaskImage::None = case.mask {
        let plain = |plan: &Plan| -> Result<Image<D>, Failed> {
            let mut dst = Image::<D>::zeroed(width, height, channels)?;
            plan.run(&src, &mut dst)?;
            Ok(dst)
        };
        let found = (plain(&device)?, right.1.clone(), right.2.clone());
        let right = (plain(&host)?, right.1.clone(), right.2.clone());
        compare(&found, &right, "in bands")?;
    }
    #[cfg(feature = "gpu")]
    {
        let part = (rng.usize(..width)..width, rng.usize(..height)..height);
        let found = on_device::<S, D>(case, &device, &src, &right, part)?;
        compare(&found, &right, "in device memory")?;
    }
    Ok(width * height * channels)
}

/// Filters a part of a picture in the GPU's memory; the rest is as in `right`.
#[cfg(feature = "gpu")]
fn on_device<S: Sample, D: Sample>(
    case: &Case,
    plan: &Plan,
    src: &Image<S>,
    right: &Found<D>,
    part: (std::ops::Range<usize>, std::ops::Range<usize>),
) -> Result<Found<D>, Failed> {
    use apron::gpu::DeviceCoverage;

    let gpu = apron::gpu::Gpu::open(0)?;
    let from = gpu.upload_stored(&src.view())?;
    let mask = match &case.mask {
        MaskImage::None => None,
        MaskImage::Bytes(image) => Some(gpu.upload_stored(&image.view())?),
        MaskImage::Weights(image) => Some(gpu.upload_stored(&image.view())?),
    };
    let mut to = gpu.upload_stored(&right.0.view())?;
    let mut weights = gpu.upload_stored(&right.1.view())?;
    let mut known = gpu.upload_stored(&right.2.view())?;
    let mut stream = gpu.stream()?;
    let coverage =
        DeviceCoverage { weights: Some(weights.view_mut()), known: Some(known.view_mut()) };
    let mask = mask.as_ref().map(apron::gpu::DeviceImage::view);
    let beside = (&coverage, &mut stream);
    plan.run_region_masked(&from.view(), mask.as_ref(), &mut to.view_mut(), part, beside)?;
    stream.synchronize()?;
    Ok((gpu.download_stored(&to)?, gpu.download_stored(&weights)?, gpu.download_stored(&known)?))
}
