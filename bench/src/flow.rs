//! `bench flow`: from host memory to host memory, the time that a caller of `Plan::run` or `Plan::run_batch` sees.

use anyhow::Result;
use apron::gpu::{Gpu, HostImage};
use apron::{Device, Filter, Image, ImageView, ImageViewMut, Pixel, Plan, Shape};

use crate::measure::{median, micros, on_host};
use crate::{jobs, output, text};

/// The options of `bench flow`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Where to run: gpu:N or gpu:all.
    #[arg(long, default_value = "gpu:0")]
    device: Device,
    /// Fewer rounds, and no picture of 4 GiB.
    #[arg(long)]
    quick: bool,
    /// Rows of a band, to try other heights than the schedule's.
    #[arg(long, value_name = "N")]
    band_rows: Option<usize>,
    /// Only works whose name contains this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Thirty jobs on the CPU, on the GPU and where auto runs them; fails if auto takes more than 1.3 times the better time.
    #[arg(long)]
    auto: bool,
    /// Times the first call of one of these jobs.
    #[arg(long, hide = true, requires = "auto")]
    first: Option<usize>,
}

/// A picture and a filter; more than one picture is a batch.
struct Work {
    name: &'static str,
    size: (usize, usize, usize),
    floats: bool,
    filter: &'static str,
    pictures: usize,
}

const WORKS: &[Work] = &[
    Work { name: "photo, gaussian 2", size: (6000, 4000, 3), floats: false, filter: "gaussian:sigma=2", pictures: 1 },
    Work { name: "photo, box 5", size: (6000, 4000, 3), floats: false, filter: "box:size=5", pictures: 1 },
    Work { name: "photo, sobel-x", size: (6000, 4000, 3), floats: false, filter: "sobel-x", pictures: 1 },
    Work { name: "photo, unsharp 2", size: (6000, 4000, 3), floats: false, filter: "unsharp:sigma=2", pictures: 1 },
    Work { name: "photo, gaussian 12", size: (6000, 4000, 3), floats: false, filter: "gaussian:sigma=12", pictures: 1 },
    Work { name: "plane, gaussian 2", size: (8192, 8192, 1), floats: true, filter: "gaussian:sigma=2", pictures: 1 },
    Work { name: "frame, gaussian 2", size: (1920, 1080, 3), floats: false, filter: "gaussian:sigma=2", pictures: 1 },
    Work {
        name: "frames, gaussian 2",
        size: (1920, 1080, 3),
        floats: false,
        filter: "gaussian:sigma=2",
        pictures: 200,
    },
    Work { name: "small, gaussian 2", size: (256, 256, 1), floats: false, filter: "gaussian:sigma=2", pictures: 1 },
    Work { name: "huge, gaussian 2", size: (65536, 65536, 1), floats: false, filter: "gaussian:sigma=2", pictures: 1 },
];

/// The times of one work, in microseconds for each picture.
struct Times {
    pinned: f64,
    ordinary: f64,
    cpu: Option<f64>,
}

/// Runs the benchmark, and prints a table.
///
/// # Errors
/// Device and memory errors; a result from pinned memory that differs from the other.
pub fn run(options: &Options) -> Result<()> {
    match options.first {
        Some(number) => return jobs::first(number, options.device),
        None if options.auto => return jobs::run(options.quick, &options.only),
        None => {}
    }
    let header = [
        "work",
        "picture",
        "pinned us",
        "ordinary us",
        "cpu us",
        "pinned GB/s each way",
        "pictures/s pinned / ordinary",
    ];
    let mut rows = Vec::new();
    for work in WORKS.iter().filter(|work| work.name.contains(&options.only)) {
        let (width, height, channels) = work.size;
        let bytes = width * height * channels * if work.floats { 4 } else { 1 };
        if options.quick && bytes > 1 << 30 {
            continue;
        }
        let times = if work.floats { measure::<f32>(options, work)? } else { measure::<u8>(options, work)? };
        rows.push(vec![
            work.name.to_owned(),
            format!("{width}x{height}x{channels} {}", if work.floats { "f32" } else { "u8" }),
            text::number(times.pinned),
            text::number(times.ordinary),
            times.cpu.map_or_else(String::new, text::number),
            format!("{:.1}", bytes as f64 / times.pinned / 1e3),
            format!("{:.0} / {:.0}", 1e6 / times.pinned, 1e6 / times.ordinary),
        ]);
    }
    output::print(&format!(
        "{}, {} threads\n{}",
        options.device,
        rayon::current_num_threads(),
        text::table(&header, 2, rows)
    ))
}

fn measure<P: Pixel>(options: &Options, work: &Work) -> Result<Times> {
    let (width, height, channels) = work.size;
    let shape = Shape { width, height, channels };
    let rounds = if options.quick { 5 } else { 21 };
    let filter: Filter = work.filter.parse()?;
    let build = |device| {
        let builder = Plan::builder(&filter).device(device);
        match options.band_rows {
            Some(rows) => builder.band_rows(rows),
            None => builder,
        }
        .build()
    };
    let plan = build(options.device)?;
    let gpu = Gpu::open(if let Device::Gpu(ordinal) = options.device { ordinal } else { 0 })?;

    // As many pictures as leave the processor's cache, used in turn.
    let distinct = work.pictures.min(16);
    let mut rng = fastrand::Rng::with_seed(17);
    let mut fill = |values: &mut [P]| values.fill_with(|| P::from_f32(rng.u8(..).into()));
    let (mut pinned, mut pinned_out) = (Vec::new(), Vec::new());
    let (mut ordinary, mut ordinary_out) = (Vec::new(), Vec::new());
    for _ in 0..distinct {
        let mut image = HostImage::<P>::zeroed(&gpu, shape)?;
        fill(image.as_mut_slice());
        ordinary.push(Image::from_vec(image.as_slice().to_vec(), width, height, channels)?);
        pinned.push(image);
        pinned_out.push(HostImage::<P>::zeroed(&gpu, shape)?);
        ordinary_out.push(Image::<P>::zeroed(width, height, channels)?);
    }
    let each = |plan: &Plan, src: &[ImageView<'_, P>], dst: Vec<ImageViewMut<'_, P>>| -> apron::Result<f64> {
        let mut views: Vec<_> = src.iter().copied().zip(dst).collect();
        // A batch of more pictures than there are goes through them several times.
        let turns = work.pictures.div_ceil(distinct);
        let times = on_host(rounds, || (0..turns).try_for_each(|_| plan.run_batch(&mut views)))?;
        Ok(micros(median(times)) / (turns * distinct) as f64)
    };
    let (from, to) = (pinned.iter().map(HostImage::view), pinned_out.iter_mut().map(HostImage::view_mut));
    let from_pinned = each(&plan, &from.collect::<Vec<_>>(), to.collect())?;
    let from: Vec<_> = ordinary.iter().map(Image::view).collect();
    let from_ordinary = each(&plan, &from, ordinary_out.iter_mut().map(Image::view_mut).collect())?;
    let same = pinned_out.iter().zip(&ordinary_out).all(|(pinned, ordinary)| pinned.as_slice() == ordinary.as_slice());
    anyhow::ensure!(same, "{}: results differ between pinned and ordinary memory", work.name);
    let small = shape.width * shape.height < 1 << 28;
    let cpu = (small && work.pictures == 1)
        .then(|| each(&build(Device::Cpu)?, &from, ordinary_out.iter_mut().map(Image::view_mut).collect()))
        .transpose()?;
    Ok(Times { pinned: from_pinned, ordinary: from_ordinary, cpu })
}
