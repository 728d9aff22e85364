//! Plans without a given variant: the CPU and a GPU give the same bits for any size, and each runs
//! the variant that it announced. For bytes made of bytes: means, and constants that are no byte.

use apron::{
    Alpha, Border, Device, Family, Filter, Image, Pipeline, Plan, Ran, Shape, Step, Variant,
};
use conformance::product::Gpu;
use conformance::sample::{Data, Kind, Sample};
use conformance::select::{BORDERS, Selection};
use conformance::suite::gpu_trial;
use fastrand::Rng;
use libtest_mimic::{Failed, Trial};

pub(crate) fn trials(selection: Selection, gpu: &Gpu) -> Vec<Trial> {
    vec![
        gpu_trial("same::bits::gpu", gpu, move || bits(selection)),
        gpu_trial("same::steps::gpu", gpu, steps),
        Trial::test("same::means::cpu", || means(Device::Cpu)),
        gpu_trial("same::means::gpu", gpu, || means(Gpu::DEVICE)),
        Trial::test("same::no_byte::cpu", || no_byte(Device::Cpu)),
        gpu_trial("same::no_byte::gpu", gpu, || no_byte(Gpu::DEVICE)),
    ]
}

/// 1/36 is a mean, in f64 and in f32: its ties go to the even byte. A decimal near 1/36 is no mean,
/// and decides these sums the other way.
fn means(device: Device) -> Result<(), Failed> {
    let table = |tap: f64| Filter::from_taps_f64(6, 6, &[tap; 36]);
    let filters = [
        ("box", Filter::box_filter(6, 6)?, [2, 4]),
        ("1/36 in f64", table(1.0 / 36.0)?, [2, 4]),
        ("1/36 in f32", Filter::from_taps(6, 6, &[1.0 / 36.0; 36])?, [2, 4]),
        ("0.02777778", table(0.027_777_78)?, [3, 4]),
        ("0.02777777", table(0.027_777_77)?, [2, 3]),
    ];
    for (name, filter, right) in filters {
        // Every window holds 18 pixels of each value: sums of 2.5 and of 3.5.
        for (values, right) in [([2u8, 3], right[0]), ([3, 4], right[1])] {
            let pixels = (0..12 * 12).map(|i| values[(i / 12 + i % 12) % 2]).collect();
            let src = Image::from_vec(pixels, 12, 12, 1)?;
            let mut dst = Image::<u8>::zeroed(12, 12, 1)?;
            let plan = Plan::builder(&filter).border(Border::Wrap).device(device).build()?;
            plan.run(&src.view(), &mut dst.view_mut())?;
            if let Some(wrong) = dst.as_slice().iter().find(|&&byte| byte != right) {
                return Err(format!("{name} over {values:?}: {wrong} instead of {right}").into());
            }
        }
    }
    Ok(())
}

/// A constant that is no byte is refused for bytes made of bytes, before anything is written. All
/// other types accept it.
fn no_byte(device: Device) -> Result<(), Failed> {
    let filters = [
        "identity",
        "box:size=4",
        "gaussian:2",
        "unsharp:1",
        "sharpen",
        "motion:length=9,angle=30",
    ];
    let src = Image::from_vec(vec![9u8; 40 * 30], 40, 30, 1)?;
    for text in filters {
        for constant in [-1.0, 0.5, 254.999, 256.0, 1e9, f64::INFINITY, f64::NEG_INFINITY, f64::NAN]
        {
            let plan = Plan::builder(text.parse::<Filter>()?)
                .border(Border::Constant(constant))
                .device(device)
                .build()?;
            let mut dst = Image::from_vec(vec![7u8; 40 * 30], 40, 30, 1)?;
            let message = match plan.run(&src.view(), &mut dst.view_mut()) {
                Ok(()) => {
                    return Err(format!("{text}, constant {constant}: bytes were made").into());
                }
                Err(error) => error.to_string(),
            };
            let says = message.contains(&constant.to_string())
                && message.contains("f32")
                && !message.contains('\n');
            if !says || dst.as_slice().iter().any(|&byte| byte != 7) {
                return Err(format!("{text}, constant {constant}: {message}").into());
            }
            plan.run(&src.view(), &mut Image::<f32>::zeroed(40, 30, 1)?.view_mut())?;
        }
        for constant in [0.0, -0.0, 255.0] {
            let plan = Plan::builder(text.parse::<Filter>()?)
                .border(Border::Constant(constant))
                .device(device)
                .build()?;
            plan.run(&src.view(), &mut Image::<u8>::zeroed(40, 30, 1)?.view_mut())?;
        }
    }
    Ok(())
}

/// Every preset, and random taps: dense, separable, scattered, and in lines.
fn filters() -> Vec<Step> {
    let presets = [
        "identity",
        "gaussian:sigma=0.5",
        "gaussian:sigma=1",
        "gaussian:sigma=2.5",
        "gaussian:sigma=5",
        "box:size=3",
        "box:cols=15,rows=1",
        "box:cols=1,rows=12",
        "box:cols=4,rows=5",
        "box:size=21",
        "sharpen",
        "unsharp:sigma=1",
        "unsharp:sigma=2",
        "unsharp:sigma=5",
        "sobel-x",
        "sobel-y:size=7",
        "scharr-x",
        "scharr-y",
        "prewitt-x",
        "prewitt-y",
        "laplacian",
        "log:sigma=1.5",
        "log:sigma=3",
        "dog:sigma=1",
        "emboss",
        "motion:length=9,angle=0",
        "motion:length=15,angle=30",
        "motion:length=40,angle=30",
    ];
    let scattered = |(cols, rows): (usize, usize), percent: usize| {
        let tap = |i: usize| {
            if i * 37 % 100 < percent { (i * 7919 % 251) as f32 * 0.01 - 1.0 } else { 0.0 }
        };
        let taps: Vec<_> = (0..cols * rows).map(tap).collect();
        apron::Filter::from_taps(cols, rows, &taps).expect("legal taps")
    };
    let product = |cols: usize, rows: usize| {
        let line = |count: usize| (0..count).map(|i| 0.01 + (i * i % 7) as f32).collect::<Vec<_>>();
        apron::Filter::separable(&line(cols), &line(rows)).expect("legal taps")
    };
    let sizes =
        [(1, 2), (11, 1), (1, 30), (33, 1), (3, 3), (5, 5), (4, 7), (13, 9), (17, 17), (19, 18)];
    let random = sizes.into_iter().flat_map(|(cols, rows)| {
        [scattered((cols, rows), 100), scattered((cols, rows), 20), product(cols, rows)]
            .map(Step::Filter)
    });
    presets.into_iter().map(|text| text.parse().expect("a preset")).chain(random).collect()
}

const SIZES: [(usize, usize); 7] =
    [(1, 1), (3, 2), (1, 40), (30, 30), (40, 23), (75, 60), (300, 200)];

/// A filter and a border on both devices.
struct Both {
    cpu: Plan,
    gpu: Plan,
    what: String,
}

impl Both {
    fn new(step: &Step, border: Border) -> apron::Result<Self> {
        let plan = |device| Plan::builder(step).border(border).device(device).build();
        Ok(Self {
            cpu: plan(Device::Cpu)?,
            gpu: plan(Gpu::DEVICE)?,
            what: format!("{step}, border {border}"),
        })
    }

    fn check<S: Sample, D: Sample>(&self, shape: Shape, rng: &mut Rng) -> Result<Family, Failed> {
        let what = format!("{} of {shape} {} to {}", self.what, S::KIND, D::KIND);
        let src = random::<S>(shape, rng)?;
        let run = |plan: &Plan| -> Result<(Variant, Image<D>), Failed> {
            let mut dst = Image::<D>::zeroed(shape.width, shape.height, shape.channels)?;
            let variant = plan.variant_of(shape, S::SCALAR, D::SCALAR)?;
            plan.run(&src.view(), &mut dst.view_mut())?;
            if plan.ran() != [Ran::Variant(variant)] {
                return Err(format!(
                    "{what} on {}: {variant} is said, {:?} ran",
                    plan.device(),
                    plan.ran()
                )
                .into());
            }
            Ok((variant, dst))
        };
        let ((on_cpu, expected), (on_gpu, found)) = (run(&self.cpu)?, run(&self.gpu)?);
        let bytes = (S::KIND, D::KIND) == (Kind::U8, Kind::U8);
        if !bytes && on_cpu.family() != on_gpu.family() {
            return Err(format!("{what}: {on_cpu} on the CPU, {on_gpu} on the GPU").into());
        }
        // Spectra promise the same bits only for bytes.
        if bytes || !matches!(on_cpu.family(), Family::Fourier | Family::SpectraPasses) {
            equal(&expected, &found)
                .map_err(|told| format!("{what}: {on_cpu} and {on_gpu}: {told}"))?;
        }
        Ok(on_cpu.family())
    }
}

fn random<S: Sample>(
    Shape { width, height, channels }: Shape,
    rng: &mut Rng,
) -> apron::Result<Image<S>> {
    Image::from_vec(
        (0..width * height * channels).map(|_| S::random(rng, Data::Random)).collect(),
        width,
        height,
        channels,
    )
}

fn equal<D: Sample>(expected: &Image<D>, found: &Image<D>) -> Result<(), String> {
    let mut pairs = expected.as_slice().iter().zip(found.as_slice()).enumerate();
    match pairs.find(|(_, (expected, found))| !expected.same(**found)) {
        Some((at, (expected, found))) => {
            Err(format!("value {at} is {} and {}", expected.value(), found.value()))
        }
        None => Ok(()),
    }
}

/// Each filter with every size. Types, borders and channels cycle.
fn bits(selection: Selection) -> Result<(), Failed> {
    let (mut seen, mut number) = ([0; 3], 0);
    let mut rng = Rng::with_seed(7);
    for (place, step) in filters().iter().enumerate() {
        let both = Both::new(step, BORDERS[place % BORDERS.len()])?;
        for &(width, height) in &SIZES {
            number += 1;
            // Large pictures take long in the emulator.
            if selection != Selection::Full && width * height > 2000 && !place.is_multiple_of(9) {
                continue;
            }
            let shape = Shape { width, height, channels: [1, 3, 4, 2, 1][number % 5] };
            let all = [
                Both::check::<f32, f32>,
                Both::check::<apron::f16, apron::f16>,
                Both::check::<u16, u16>,
                Both::check::<u8, f32>,
                Both::check::<u8, u8>,
                Both::check::<f32, u8>,
                Both::check::<u16, f32>,
                Both::check::<u8, u16>,
            ];
            // Always floats: no rounding to integers hides their bits.
            let count = if selection == Selection::Full { all.len() } else { 2 };
            for at in 0..count {
                let check = if at == 0 { all[0] } else { all[1 + (number + at) % (all.len() - 1)] };
                seen[check(&both, shape, &mut rng)? as usize] += 1;
            }
        }
    }
    if seen.iter().any(|&count| count < 10) {
        return Err(format!("families were seen {seen:?} times").into());
    }
    Ok(())
}

/// Gradients, pipelines, and colours under each alpha mode: the bits are the same, and each plan
/// reports what ran.
fn steps() -> Result<(), Failed> {
    let mut rng = Rng::with_seed(8);
    let alphas = [
        None,
        Some(Alpha::Auto),
        Some(Alpha::Premultiply),
        Some(Alpha::Keep),
        Some(Alpha::Filter),
        Some(Alpha::Drop),
    ];
    let texts: [&[&str]; 4] = [
        &["gaussian:sigma=2"],
        &["sobel"],
        &["box:size=3", "scharr"],
        &["gaussian:sigma=1", "unsharp:sigma=2"],
    ];
    for (texts, alpha) in texts.iter().flat_map(|texts| alphas.map(|alpha| (texts, alpha))) {
        let is_average = |text: &str| text.starts_with("gaussian") || text.starts_with("box");
        if alpha == Some(Alpha::Premultiply) && !texts.iter().all(|text| is_average(text)) {
            continue;
        }
        for shape in
            [(30, 20), (90, 60)].map(|(width, height)| Shape { width, height, channels: 4 })
        {
            let what = format!("{texts:?} of {shape}, alpha {alpha:?}");
            let run = |device, src: &Image<u16>| -> Result<(Image<u16>, Vec<Vec<Ran>>), Failed> {
                let plan =
                    |text: &&str| Plan::builder(text.parse::<Step>()?).device(device).build();
                let pipeline =
                    Pipeline::new(texts.iter().map(plan).collect::<apron::Result<_>>()?)?;
                let channels = alpha.map_or(4, |alpha| alpha.channels(4));
                let mut dst = Image::zeroed(shape.width, shape.height, channels)?;
                match alpha {
                    None => pipeline.run(&src.view(), &mut dst.view_mut())?,
                    Some(alpha) => {
                        pipeline.run_with_alpha(&src.view(), &mut dst.view_mut(), alpha)?
                    }
                }
                Ok((dst, pipeline.plans().iter().map(Plan::ran).collect()))
            };
            let src = random::<u16>(shape, &mut rng)?;
            let ((expected, on_cpu), (found, on_gpu)) =
                (run(Device::Cpu, &src)?, run(Gpu::DEVICE, &src)?);
            equal(&expected, &found).map_err(|told| format!("{what}: {told}"))?;
            let weighs = matches!(alpha, Some(Alpha::Auto | Alpha::Premultiply));
            for ((text, on_cpu), on_gpu) in texts.iter().zip(&on_cpu).zip(&on_gpu) {
                let right = match (&on_cpu[..], &on_gpu[..]) {
                    ([Ran::Weighted], [Ran::Weighted]) => weighs && is_average(text),
                    ([Ran::Gradient], [Ran::Gradient]) => !text.contains(':'),
                    ([Ran::Variant(a)], [Ran::Variant(b)]) => {
                        a.family() == b.family() && !(weighs && is_average(text))
                    }
                    _ => false,
                };
                if !right {
                    return Err(format!(
                        "{what}: {text} ran as {on_cpu:?} on the CPU, as {on_gpu:?} on the GPU"
                    )
                    .into());
                }
            }
        }
    }
    Ok(())
}
