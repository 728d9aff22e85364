//! Filters along the axes of arrays: from host memory and from a GPU's, with the bits of the CPU.

use apron::{Axes, Border, Device, Filter};
use conformance::product::Gpu;
use conformance::sample::{Data, Sample};
use conformance::select::{BORDERS, Selection, seed};
use conformance::suite::quarters;
use fastrand::Rng;
use libtest_mimic::{Failed, Trial};

pub(crate) fn trials(selection: Selection, gpu: &Gpu) -> Vec<Trial> {
    quarters("axes::as_on_the_cpu", selection, gpu, as_on_the_cpu).collect()
}

/// Filters an array; the number of results.
type Test = fn(&[Option<Filter>], Border, &[usize], &mut Rng) -> Result<usize, String>;

const TYPES: [Test; 6] = [
    same::<f32, f32>,
    same::<u8, u8>,
    same::<u16, f32>,
    same::<f32, f32>,
    same::<apron::f16, apron::f16>,
    same::<u8, u16>,
];

fn as_on_the_cpu(numbers: std::ops::Range<usize>) -> Result<(), Failed> {
    let mut count = 0;
    for number in numbers {
        let mut rng = Rng::with_seed(seed(157, number));
        let shape: Vec<_> = match rng.u32(..3) {
            0 => (0..rng.usize(1..=5)).map(|_| rng.usize(1..=7)).collect(),
            1 => (0..3).map(|_| rng.usize(1..=30)).collect(),
            _ => vec![rng.usize(1..=12), rng.usize(1..=60), rng.usize(1..=90)],
        };
        let lines = shape.iter().map(|_| random_line(&mut rng)).collect::<Result<Vec<_>, _>>()?;
        let border = match BORDERS[rng.usize(..BORDERS.len())] {
            Border::Constant(_) => Border::Constant([0.0, 3.0, 200.0][rng.usize(..3)]),
            Border::Keep | Border::None => Border::Reflect,
            border => border,
        };
        let test = TYPES[number % TYPES.len()];
        count += test(&lines, border, &shape, &mut rng)
            .map_err(|wrong| format!("number {number}: {lines:?}, {border}, {shape:?}: {wrong}"))?;
    }
    println!("axes::as_on_the_cpu: {count} results");
    Ok(())
}

/// Taps along an axis, for three of four axes.
fn random_line(rng: &mut Rng) -> apron::Result<Option<Filter>> {
    if rng.u32(..4) == 0 {
        return Ok(None);
    }
    let most = [5, 20, 60][rng.usize(..3)];
    let taps: Vec<f32> = (0..rng.usize(1..=most)).map(|_| rng.f32() - 0.3).collect();
    let anchor = rng.usize(..taps.len());
    let filter = match rng.bool() {
        true => Filter::separable(&taps, &[1.0])?.anchored(anchor, 0),
        false => Filter::separable(&[1.0], &taps)?.anchored(0, anchor),
    };
    filter.map(Some)
}

fn same<S: Sample, D: Sample>(
    lines: &[Option<Filter>],
    border: Border,
    shape: &[usize],
    rng: &mut Rng,
) -> Result<usize, String> {
    let told = |error: apron::Error| error.to_string();
    let len = shape.iter().product();
    let data = [Data::Random, Data::Random, Data::Extremes, Data::Holes][rng.usize(..4)];
    let source: Vec<S> = (0..len).map(|_| S::random(rng, data)).collect();
    let on = |device| Axes::new(lines.to_vec(), border, device).map_err(told);
    let (host, device) = (on(Device::Cpu)?, on(Gpu::DEVICE)?);
    let (mut right, mut found) = (vec![D::default(); len], vec![D::default(); len]);
    host.run(shape, &source, &mut right).map_err(told)?;
    device.run(shape, &source, &mut found).map_err(told)?;
    compared(&right, &found).map_err(|wrong| format!("from host memory: {wrong}"))?;
    #[cfg(feature = "gpu")]
    {
        let found = on_device::<S, D>(&device, shape, &source).map_err(told)?;
        compared(&right, &found).map_err(|wrong| format!("in device memory: {wrong}"))?;
    }
    Ok(2 * len)
}

/// Filters the array as an image of one row in a GPU's memory.
#[cfg(feature = "gpu")]
fn on_device<S: Sample, D: Sample>(
    axes: &Axes,
    shape: &[usize],
    source: &[S],
) -> apron::Result<Vec<D>> {
    let gpu = apron::gpu::Gpu::open(0)?;
    let src = gpu.upload_stored(&apron::ImageView::new(source, source.len(), 1, 1)?)?;
    let result = vec![D::default(); source.len()];
    let mut dst = gpu.upload_stored(&apron::ImageView::new(&result, source.len(), 1, 1)?)?;
    let mut stream = gpu.stream()?;
    axes.run_on_device(shape, &src.view(), &mut dst.view_mut(), &mut stream)?;
    stream.synchronize()?;
    gpu.download_stored(&dst).map(apron::Image::into_vec)
}

/// Fails where two results differ.
fn compared<D: Sample>(right: &[D], found: &[D]) -> Result<(), String> {
    let wrong = right.iter().zip(found).position(|(right, found)| !right.same(*found));
    let Some(at) = wrong else { return Ok(()) };
    Err(format!("value {at} is {} and not {}", found[at].value(), right[at].value()))
}
