//! Linear light on a GPU against the CPU, whose results other tests hold to definitions: the same
//! bytes, and the same bits of other types where sums have the same order on both.

use apron::{
    Alpha, Border, Device, Family, Filter, Image, Light, Plan, Scalar, Shape, Transfer, f16,
};
use conformance::product::Gpu;
use conformance::sample::Sample;
use conformance::select::{BORDERS, Selection, seed};
use conformance::suite::quarters;
use fastrand::Rng;
use libtest_mimic::{Failed, Trial};

pub(crate) fn trials(selection: Selection, gpu: &Gpu) -> Vec<Trial> {
    quarters("light::as_on_the_cpu", selection, gpu, as_on_the_cpu).collect()
}

/// Launches every entry for light at least once.
#[cfg(feature = "gpu")]
pub(crate) fn launch_entries() -> Result<(), Failed> {
    as_on_the_cpu(0..24)
}

/// Averages, which alpha may weigh, then others. A sum of products, spectra, and windows that
/// kernels of their own take.
const FILTERS: [&str; 16] = [
    "gaussian:1",
    "gaussian:3",
    "gaussian:sigma=12",
    "box:cols=4,rows=7",
    "box:size=3",
    "motion:length=9,angle=30",
    "motion:length=31,angle=45",
    "taps:0.25 0 0.5 0.25",
    "taps:0.5 0; 0.25 0.25",
    "unsharp:sigma=2,amount=0.8",
    "unsharp:sigma=6,amount=0.5,threshold=2",
    "sharpen",
    "sobel-x",
    "laplacian",
    "log:sigma=2",
    "log:sigma=5",
];
const AVERAGES: usize = 9;

const LIGHTS: [&str; 5] = ["linear", "gamma=2.2", "bt709", "pq", "hlg"];

/// Filters one picture on both devices; the number of results.
type Test = fn(&Case, &mut Rng) -> Result<usize, Failed>;

const TYPES: [Test; 9] = [
    same::<u8, u8>,
    same::<f32, f32>,
    same::<u8, u8>,
    same::<u16, u16>,
    same::<u8, f32>,
    same::<f16, f16>,
    same::<u8, u16>,
    same::<f32, u8>,
    same::<u16, f32>,
];

struct Case {
    filter: Filter,
    border: Border,
    light: Light,
    shape: Shape,
    /// Whether the last channel is alpha and weighs the others.
    weighted: bool,
    bands: Option<usize>,
    /// The greatest value, in 256ths of white.
    most: u32,
    told: String,
}

fn as_on_the_cpu(numbers: std::ops::Range<usize>) -> Result<(), Failed> {
    let mut count = 0;
    for number in numbers {
        let mut rng = Rng::with_seed(seed(107, number));
        let weighted = rng.u32(..3) == 0;
        let text = FILTERS[rng.usize(..if weighted { AVERAGES } else { FILTERS.len() })];
        let border = match BORDERS[rng.usize(..BORDERS.len())] {
            Border::Constant(_) => Border::Constant([0.0, 1.0, 200.0][rng.usize(..3)]),
            border => border,
        };
        let light = LIGHTS[rng.usize(..LIGHTS.len())];
        let channels = if weighted { rng.usize(2..=5) } else { rng.usize(1..=4) };
        let shape = Shape { width: rng.usize(1..=150), height: rng.usize(1..=60), channels };
        let bands = [None, Some(1 + rng.usize(..20))][rng.usize(..2)];
        let most = [256, 256, 12, 2][rng.usize(..4)];
        let told = format!(
            "number {number}: {text}, {light}, {shape}, border {border}, alpha {weighted}, bands {bands:?}"
        );
        let case = Case {
            filter: text.parse()?,
            border,
            light: light.parse()?,
            shape,
            weighted,
            bands,
            most,
            told,
        };
        count += TYPES[number % TYPES.len()](&case, &mut rng)?;
    }
    println!("light::as_on_the_cpu: {count} results");
    Ok(())
}

fn same<S: Sample, D: Sample>(case: &Case, rng: &mut Rng) -> Result<usize, Failed> {
    let Shape { width, height, channels } = case.shape;
    let greatest = |scalar: Scalar| match scalar {
        Scalar::U8 => Some(255.0),
        Scalar::U16 => Some(65535.0),
        _ => None,
    };
    let white = greatest(S::SCALAR).or(greatest(D::SCALAR)).unwrap_or(1.0);
    let extremes = case.most == 2;
    let values = (0..width * height * channels).map(|at| {
        let is_alpha = case.weighted && at % channels == channels - 1;
        let part = match rng.u32(..case.most) {
            part if extremes => part as f32,
            _ if is_alpha && rng.u32(..3) == 0 => 0.0,
            part => (part as f32 + if white == 255.0 { 0.0 } else { rng.f32() }) / 255.0,
        };
        // Floats may be negative, and beyond white.
        let sign = if greatest(S::SCALAR).is_none() && !is_alpha && rng.u32(..9) == 0 {
            -1.5
        } else {
            1.0
        };
        S::from_f32(sign * white * part)
    });
    let src = Image::from_vec(values.collect(), width, height, channels)?;
    let builder = || Plan::builder(&case.filter).border(case.border).light(case.light.clone());
    let host = builder().device(Device::Cpu).build()?;
    let device = builder().device(Gpu::DEVICE);
    let device =
        case.bands.map_or(device.clone(), |rows| device.clone().band_rows(rows)).build()?;
    let run = |plan: &Plan| -> Result<Image<D>, Failed> {
        let mut dst = Image::<D>::zeroed(width, height, channels)?;
        match case.weighted {
            true => plan.run_with_alpha(&src.view(), &mut dst.view_mut(), Alpha::Premultiply)?,
            false => plan.run(&src, &mut dst)?,
        }
        Ok(dst)
    };
    let (right, found) = (run(&host)?, run(&device)?);
    let family = device.variant_of(case.shape, S::SCALAR, D::SCALAR)?.family();
    let is_exact = family != Family::Fourier
        || case.weighted
        || (S::SCALAR, D::SCALAR) == (Scalar::U8, Scalar::U8);
    check(case, "from host memory", (&found, &right), is_exact, white)?;
    #[cfg(feature = "gpu")]
    {
        let part = (rng.usize(..width)..width, rng.usize(..height)..height);
        let found = on_device::<S, D>(case, &device, &src, part.clone())?;
        let right = crop(&right, part)?;
        check(case, "in device memory", (&found, &right), is_exact, white)?;
    }
    Ok(width * height * channels)
}

/// Filters a part of a picture in the GPU's memory.
#[cfg(feature = "gpu")]
fn on_device<S: Sample, D: Sample>(
    case: &Case,
    plan: &Plan,
    src: &Image<S>,
    (columns, rows): (std::ops::Range<usize>, std::ops::Range<usize>),
) -> Result<Image<D>, Failed> {
    let gpu = apron::gpu::Gpu::open(0)?;
    let from = gpu.upload_stored(&src.view())?;
    let Shape { width, height, channels } = case.shape;
    let mut to = gpu.upload_stored(&Image::<D>::zeroed(width, height, channels)?.view())?;
    let mut stream = gpu.stream()?;
    let (from, dst) = (from.view(), &mut to.view_mut());
    let part = (columns.clone(), rows.clone());
    match case.weighted {
        true => {
            let with = (Alpha::Premultiply, &mut stream);
            plan.run_region_with_alpha(&from, dst, part.0, part.1, with)?;
        }
        false => plan.run_region(&from, dst, part.0, part.1, &mut stream)?,
    }
    stream.synchronize()?;
    crop(&gpu.download_stored::<D>(&to)?, (columns, rows))
}

/// A rectangle of an image.
#[cfg(feature = "gpu")]
fn crop<D: Sample>(
    image: &Image<D>,
    (columns, rows): (std::ops::Range<usize>, std::ops::Range<usize>),
) -> Result<Image<D>, Failed> {
    let (channels, view) = (image.shape().channels, image.view());
    let lines =
        rows.clone().map(|y| &view.row(y)[columns.start * channels..columns.end * channels]);
    let values = lines.flatten().copied().collect();
    Ok(Image::from_vec(values, columns.len(), rows.len(), channels)?)
}

/// Compares results, to the bit if they are `exact`; spectra differ between devices.
fn check<D: Sample>(
    case: &Case,
    place: &str,
    (found, right): (&Image<D>, &Image<D>),
    exact: bool,
    white: f32,
) -> Result<(), Failed> {
    let taps =
        (0..case.filter.rows()).flat_map(|row| (0..case.filter.cols()).map(move |col| (row, col)));
    let weight: f64 = taps.map(|(row, col)| case.filter.tap(row, col).abs()).sum();
    // A small error of light is large in a value near black, above all by PQ.
    let part = if case.light == Transfer::pq().into() { 0.25 } else { 5e-3 };
    let allowed = part * f64::from(white) * weight;
    let close = |found: D, right: D| {
        found.same(right) || !exact && (found.value() - right.value()).abs() <= allowed
    };
    let pairs = found.as_slice().iter().zip(right.as_slice());
    match pairs.enumerate().find(|(_, (found, right))| !close(**found, **right)) {
        None => Ok(()),
        Some((at, (found, right))) => Err(format!(
            "{}, to {}, {place}: {found:?}, not {right:?}, at {at}",
            case.told,
            D::KIND
        )
        .into()),
    }
}
