//! A plan for each image of a batch: every image has the bits of its own plan on the CPU, from host
//! memory and from a GPU's.

use apron::{Border, Device, Filter, Image, Plan, Plans};
use conformance::product::Gpu;
use conformance::sample::{Data, Sample};
use conformance::select::{BORDERS, Selection, seed};
use conformance::suite::quarters;
use fastrand::Rng;
use libtest_mimic::{Failed, Trial};

pub(crate) fn trials(selection: Selection, gpu: &Gpu) -> Vec<Trial> {
    quarters("each::as_alone", selection, gpu, as_alone).collect()
}

/// Launches the entries with products for each image at least once.
#[cfg(feature = "gpu")]
pub(crate) fn launch_entries() -> Result<(), Failed> {
    as_alone(0..24)?;
    // Windows of two sizes on interleaved bytes; each turn may have planes instead.
    let filters = [Filter::gaussian_sized(2.0, 17, 17)?, Filter::gaussian_sized(9.0, 61, 61)?];
    for turn in 0..24 {
        let shape = (40, 20, 1 + turn % 4);
        same::<u8, u8>(&filters, Border::Reflect, shape, &mut Rng::with_seed(turn as u64))?;
    }
    Ok(())
}

/// Filters the images of a batch; the number of results.
type Test = fn(&[Filter], Border, (usize, usize, usize), &mut Rng) -> Result<usize, String>;

const TYPES: [Test; 7] = [
    same::<u8, u8>,
    same::<f32, f32>,
    same::<u8, u8>,
    same::<u16, u16>,
    same::<apron::f16, apron::f16>,
    same::<u8, f32>,
    same::<f32, apron::f16>,
];

fn as_alone(numbers: std::ops::Range<usize>) -> Result<(), Failed> {
    let mut count = 0;
    for number in numbers {
        let mut rng = Rng::with_seed(seed(131, number));
        let filters: Vec<Filter> =
            (0..rng.usize(1..=4)).map(|_| random_filter(&mut rng)).collect::<Result<_, _>>()?;
        let border = match BORDERS[rng.usize(..BORDERS.len())] {
            Border::Constant(_) => Border::Constant([0.0, 3.0, 200.0][rng.usize(..3)]),
            border => border,
        };
        let most = [(60, 20), (140, 150), (300, 40)][rng.usize(..3)];
        let shape = (rng.usize(1..=most.0), rng.usize(1..=most.1), rng.usize(1..=4));
        count +=
            TYPES[number % TYPES.len()](&filters, border, shape, &mut rng).map_err(|wrong| {
                format!("number {number}: {filters:?}, {border}, {shape:?}: {wrong}")
            })?;
    }
    println!("each::as_alone: {count} results");
    Ok(())
}

/// Mostly products of a row and a column, of any size and with any anchor.
fn random_filter(rng: &mut Rng) -> apron::Result<Filter> {
    let line = |rng: &mut Rng, most: usize| -> Vec<f32> {
        (0..rng.usize(1..=most)).map(|_| rng.f32() - 0.3).collect()
    };
    match rng.u32(..8) {
        0 => ["sharpen", "sobel-x", "unsharp:sigma=2", "emboss"][rng.usize(..4)].parse(),
        1 => Filter::box_filter(rng.usize(1..=40), rng.usize(1..=40)),
        2 | 3 => Filter::gaussian(0.2 + 3.0 * rng.f64()),
        _ => {
            let most = [6, 40, 300][rng.usize(..3)];
            let filter = Filter::separable(&line(rng, most), &line(rng, most))?;
            let (cols, rows) = (filter.cols(), filter.rows());
            filter.anchored(rng.usize(..cols), rng.usize(..rows))
        }
    }
}

fn same<S: Sample, D: Sample>(
    filters: &[Filter],
    border: Border,
    (width, height, channels): (usize, usize, usize),
    rng: &mut Rng,
) -> Result<usize, String> {
    let told = |error: apron::Error| error.to_string();
    let on = |device| -> apron::Result<Plans> {
        let plan = |filter| Plan::builder(filter).border(border).device(device).build();
        Plans::new(filters.iter().map(plan).collect::<apron::Result<Vec<_>>>()?)
    };
    let (host, device) = (on(Device::Cpu).map_err(told)?, on(Gpu::DEVICE).map_err(told)?);
    // Rows, columns and channels, or a plane for each channel.
    let is_planar = rng.bool();
    let (planes, values) = if is_planar { (channels, 1) } else { (1, channels) };
    let pictures = filters.len() * planes;
    let data = [Data::Random, Data::Random, Data::Extremes, Data::Holes][rng.usize(..4)];
    let source: Vec<S> =
        (0..pictures * width * height * values).map(|_| S::random(rng, data)).collect();
    let all = Image::from_vec(source, width, pictures * height, values).map_err(told)?;
    let zeroed = || Image::<D>::zeroed(width, pictures * height, values).map_err(told);
    let len = width * height * values;
    let run = |plans: &Plans| -> Result<Image<D>, String> {
        let mut result = zeroed()?;
        let views = all.as_slice().chunks(len).zip(result.as_mut_slice().chunks_mut(len));
        let mut views = views
            .map(|(src, dst)| {
                let src = apron::ImageView::new(src, width, height, values)?;
                Ok((src, apron::ImageViewMut::new(dst, width, height, values)?))
            })
            .collect::<apron::Result<Vec<_>>>()
            .map_err(told)?;
        plans.run(&mut views).map_err(told)?;
        Ok(result)
    };
    let right = run(&host)?;
    compared(&right, &run(&device)?, len).map_err(|wrong| format!("from host memory: {wrong}"))?;
    #[cfg(feature = "gpu")]
    {
        let layout = (filters.len(), channels, is_planar);
        let found = on_device(&device, &all, zeroed()?, height, layout).map_err(told)?;
        compared(&right, &found, len).map_err(|wrong| format!("in device memory: {wrong}"))?;
    }
    Ok(2 * right.as_slice().len())
}

/// Filters images that lie below each other in the GPU's memory, planes or interleaved channels.
#[cfg(feature = "gpu")]
fn on_device<S: Sample, D: Sample>(
    plans: &Plans,
    all: &Image<S>,
    result: Image<D>,
    height: usize,
    (images, channels, is_planar): (usize, usize, bool),
) -> apron::Result<Image<D>> {
    use apron::gpu::{DeviceImage, DeviceView, DeviceViewMut, Strides};

    let gpu = apron::gpu::Gpu::open(0)?;
    let (from, to) = (gpu.upload_stored(&all.view())?, gpu.upload_stored(&result.view())?);
    let shape = apron::Shape { width: all.shape().width, height, channels };
    let strides = |image: &DeviceImage| {
        let Strides { row, pixel, channel, .. } = image.strides();
        let plane = height as i64 * row;
        match is_planar {
            true => Strides { row, pixel, channel: plane, image: channels as i64 * plane },
            false => Strides { row, pixel, channel, image: plane },
        }
    };
    let mut stream = gpu.stream()?;
    // SAFETY: the images have that many rows, and live until the stream is synchronized.
    unsafe {
        let kind = (S::SCALAR, strides(&from));
        let src = DeviceView::from_raw(&gpu, from.address(), kind, shape, images, 0..height)?;
        let kind = (D::SCALAR, strides(&to));
        let mut dst = DeviceViewMut::from_raw(&gpu, to.address(), kind, shape, images, 0..height)?;
        plans.run_on_device(&src, &mut dst, &mut stream)?;
    }
    stream.synchronize()?;
    gpu.download_stored::<D>(&to)
}

/// Fails where two results differ; a picture has so many values.
fn compared<D: Sample>(right: &Image<D>, found: &Image<D>, len: usize) -> Result<(), String> {
    let pairs = right.as_slice().iter().zip(found.as_slice());
    let wrong: Vec<_> =
        pairs.enumerate().filter(|(_, (right, found))| !right.same(**found)).collect();
    let Some(&(at, (right, found))) = wrong.first() else { return Ok(()) };
    let (picture, at) = (at / len, at % len);
    let (right, found) = (right.value(), found.value());
    Err(format!(
        "{} results differ; in picture {picture}, value {at} is {found} and not {right}",
        wrong.len()
    ))
}
