//! `bench flow`: times from host memory to host memory, as a caller of `Plan::run` or
//! `Plan::run_batch` sees them. The same run measures the speed of the links, and on demand other
//! libraries on the same pictures.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use apron::gpu::{DeviceImage, Gpu, HostImage, LinkRates, Timeline};
use apron::threads::{self, Effort};
use apron::{
    Device, Filter, FlowOptions, Image, ImageView, ImageViewMut, Layout, Pixel, Plan, Scalar, Shape,
};
use serde::Serialize;

use crate::cases::Class;
use crate::measure::{Turn, median, micros, on_host};
use crate::peers::{On, Peers, Posed};
use crate::{jobs, lanes, output, pictures, text};

/// The options of `bench flow`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Where to run: gpu:N, a list such as gpu:0,1, or gpu:all. With several GPUs, each row is also
    /// measured on the first alone.
    #[arg(long, default_value = "gpu:0")]
    device: Device,
    /// Fewer rounds, and no picture of 4 GiB.
    #[arg(long)]
    quick: bool,
    /// Only works (pictures with a filter) whose name contains this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Instead, time thirty jobs on the CPU, on the GPU and on auto. Fails if auto takes more than
    /// 1.3 times the better time.
    #[arg(long)]
    auto: bool,
    /// Time the first call of the job of this number, in this process.
    #[arg(long, hide = true, requires = "auto")]
    first: Option<usize>,
    /// Also run other libraries on the same pictures, if they are installed for Python: OpenCV with
    /// all threads, PyTorch with pinned and with pageable memory. The output lists the libraries
    /// that are missing.
    #[arg(long)]
    peers: bool,
    /// Draw a timeline of the first work: from pinned memory into this file, from ordinary memory
    /// into a file whose name ends in "-ordinary.svg".
    #[arg(long, value_name = "FILE.svg")]
    timeline: Option<PathBuf>,
    /// Also write the results to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also put the table into this Markdown file, between the lines "<!-- bench flow -->" and
    /// "<!-- end -->". With N > 1 GPUs, the first line is "<!-- bench flow-N -->".
    #[arg(long, value_name = "FILE")]
    markdown: Vec<PathBuf>,
    /// Instead of the table, print the works' times under many settings.
    #[arg(long, hide = true)]
    sweep: bool,
    /// Divide widths and heights by this, to try the benchmark on the emulator.
    #[arg(long, hide = true, default_value_t = 1)]
    scale: usize,
    /// Rows of a band; the schedule chooses them unless set.
    #[arg(long, value_name = "N")]
    band_rows: Option<usize>,
    /// Threads that feed each GPU.
    #[arg(long, hide = true)]
    feeders: Option<usize>,
    /// Bands in flight at once on each GPU.
    #[arg(long, hide = true)]
    lanes: Option<usize>,
    /// Bytes of the pieces into which threads divide a copy.
    #[arg(long, hide = true)]
    share: Option<usize>,
    /// Bands of pinned pictures in flight at once on a lane.
    #[arg(long, hide = true)]
    deep: Option<usize>,
    /// Whether kernels read and write the rows that threads copy.
    #[arg(long, hide = true)]
    in_place: Option<bool>,
}

/// A picture and a filter; more than one picture is a batch.
struct Work {
    name: &'static str,
    size: (usize, usize, usize),
    floats: bool,
    /// A filter's text, or "random" for 201x201 random taps.
    filter: &'static str,
    pictures: usize,
    /// The targets in microseconds for a picture on one H200: pinned, ordinary.
    targets: (Option<f64>, Option<f64>),
}

const NONE: (Option<f64>, Option<f64>) = (None, None);
const PHOTO: (usize, usize, usize) = (6000, 4000, 3);
const FRAME: (usize, usize, usize) = (1920, 1080, 3);

const fn work(
    name: &'static str,
    size: (usize, usize, usize),
    filter: &'static str,
    targets: (Option<f64>, Option<f64>),
) -> Work {
    Work { name, size, floats: false, filter, pictures: 1, targets }
}

const WORKS: &[Work] = &[
    work("photo, gaussian 2", PHOTO, "gaussian:sigma=2", (Some(2000.0), Some(4200.0))),
    work("photo, box 5", PHOTO, "box:size=5", NONE),
    work("photo, sobel-x", PHOTO, "sobel-x", NONE),
    work("photo, unsharp 2", PHOTO, "unsharp:sigma=2", NONE),
    work("photo, gaussian 12", PHOTO, "gaussian:sigma=12", NONE),
    Work {
        floats: true,
        ..work(
            "plane, gaussian 2",
            (8192, 8192, 1),
            "gaussian:sigma=2",
            (Some(6000.0), Some(14000.0)),
        )
    },
    work("frame, gaussian 2", FRAME, "gaussian:sigma=2", NONE),
    Work {
        pictures: 200,
        ..work("frames, gaussian 2", FRAME, "gaussian:sigma=2", (Some(154.0), Some(400.0)))
    },
    work("small, gaussian 2", (256, 256, 1), "gaussian:sigma=2", NONE),
    work("huge, gaussian 2", (65536, 65536, 1), "gaussian:sigma=2", NONE),
    work("photo, random 201x201", PHOTO, "random", NONE),
    Work { pictures: 16, ..work("photos, random 201x201", PHOTO, "random", NONE) },
];

/// The name of the batch that stays on the devices.
const RESIDENT: &str = "frames on the device, gaussian 2";

/// Side of the window of random taps.
const RANDOM: usize = 201;

/// Distinct pictures of a batch: enough to exceed the processor's cache. Larger batches repeat
/// them.
const DISTINCT: usize = 16;

impl Work {
    fn shape(&self, options: &Options) -> Shape {
        let (width, height, channels) = self.size;
        Shape {
            width: (width / options.scale).max(1),
            height: (height / options.scale).max(1),
            channels,
        }
    }

    /// Bytes of a picture.
    fn bytes(&self, options: &Options) -> usize {
        let shape = self.shape(options);
        shape.row_len() * shape.height * if self.floats { 4 } else { 1 }
    }

    fn filter(&self) -> Result<Filter> {
        if self.filter != "random" {
            return Ok(self.filter.parse()?);
        }
        let mut rng = fastrand::Rng::with_seed(18);
        let taps: Vec<f32> = (0..RANDOM * RANDOM).map(|_| rng.f32()).collect();
        let sum: f32 = taps.iter().sum();
        let taps: Vec<f32> = taps.iter().map(|tap| tap / sum).collect();
        Ok(Filter::from_taps(RANDOM, RANDOM, &taps)?)
    }

    fn picture(&self, options: &Options) -> String {
        let batch =
            if self.pictures > 1 { format!("{} of ", self.pictures) } else { String::new() };
        format!("{batch}{} {}", self.shape(options), if self.floats { "f32" } else { "u8" })
    }
}

/// The times of one work, in microseconds for each picture.
#[derive(Clone, Debug, Serialize)]
struct Times {
    pinned: f64,
    ordinary: f64,
    cpu: Option<f64>,
}

/// A library's time.
#[derive(Clone, Debug, Serialize)]
struct Rival {
    name: String,
    us: f64,
    /// The greatest difference from our values, and how many differ.
    difference: Option<f64>,
    differ: Option<u64>,
    note: String,
}

/// The measurements of one work.
#[derive(Clone, Debug, Serialize)]
struct Row {
    work: String,
    picture: String,
    filter: String,
    pictures: usize,
    bytes: usize,
    #[serde(flatten)]
    times: Times,
    /// The same on the first GPU alone, where there are several.
    one: Option<Times>,
    targets: (Option<f64>, Option<f64>),
    rivals: Vec<Rival>,
}

/// Bytes a second between pinned memory and GPUs, over one GPU's link or over all links together.
#[derive(Clone, Debug, Serialize)]
struct Link {
    gpus: String,
    up: f64,
    down: f64,
    both: f64,
}

/// The results, as they are written to JSON.
#[derive(Debug, Serialize)]
struct Report {
    gpu: String,
    device: String,
    gpus: usize,
    threads: usize,
    options: String,
    links: Vec<Link>,
    /// Bytes a second that threads copy from ordinary to pinned memory and back, both directions
    /// together.
    copies: f64,
    libraries: Vec<String>,
    missing: Vec<String>,
    rows: Vec<Row>,
    resident: Option<Resident>,
}

/// Microseconds for a picture of a batch that stays on the devices.
#[derive(Clone, Debug, Serialize)]
struct Resident {
    work: String,
    us: f64,
    one: Option<f64>,
}

/// Runs the benchmark, and prints a table.
///
/// # Errors
/// Device and memory errors; results that differ between pinned and ordinary memory.
pub fn run(options: &Options) -> Result<()> {
    match options.first {
        Some(number) => return jobs::first(number, options.device),
        None if options.auto => return jobs::run(options.quick, &options.only),
        None => {}
    }
    let gpus = gpus(options.device)?;
    let chosen = || {
        let kept = |work: &&Work| {
            work.name.contains(&options.only) && !(options.quick && work.bytes(options) > 1 << 30)
        };
        WORKS.iter().filter(kept)
    };
    if options.sweep {
        return sweep(options, &gpus[0], chosen());
    }
    if let Some(path) = &options.timeline {
        let work = chosen()
            .next()
            .with_context(|| format!("no work's name contains \"{}\"", options.only))?;
        draw(options, &gpus, work, path)?;
    }
    let mut links = Vec::new();
    for gpu in &gpus {
        links.push(link(
            format!("gpu:{}", gpu.info().ordinal),
            std::slice::from_ref(gpu),
            options,
        )?);
    }
    if gpus.len() > 1 {
        links.push(link(options.device.to_string(), &gpus, options)?);
    }
    let threads = rayon::current_num_threads();
    let mut peers = if options.peers {
        Some(Peers::start(On::Host(gpus[0].info().ordinal, threads))?)
    } else {
        None
    };
    let libraries = peers
        .iter()
        .flat_map(|peers| &peers.found)
        .map(|found| format!("{}: {}", found.name, found.version));
    let libraries: Vec<_> = libraries.collect();
    let missing = peers
        .iter()
        .flat_map(|peers| &peers.missing)
        .map(|(name, reason)| format!("{name}: {reason}"));
    let mut report = Report {
        gpu: gpus[0].info().name.clone(),
        device: options.device.to_string(),
        gpus: gpus.len(),
        threads,
        options: settings(options),
        copies: copies(&gpus[0], options)?,
        links,
        libraries,
        missing: missing.collect(),
        rows: Vec::new(),
        resident: None,
    };
    for work in chosen() {
        let row = if work.floats {
            measure::<f32>(options, &gpus, work, peers.as_mut())
        } else {
            measure::<u8>(options, &gpus, work, peers.as_mut())
        };
        report.rows.push(row.with_context(|| work.name)?);
    }
    if RESIDENT.contains(&options.only) {
        report.resident = Some(resident(options, &gpus)?);
    }
    output::print(&report.text())?;
    if let Some(path) = &options.json {
        output::write(path, output::json(&report)?.as_bytes())?;
    }
    let mark = if gpus.len() == 1 { "flow".to_owned() } else { format!("flow-{}", gpus.len()) };
    for path in &options.markdown {
        let file =
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let file =
            output::put_between(&file, "bench", |name| (name == mark).then(|| report.markdown()))
                .with_context(|| format!("{}", path.display()))?;
        output::write(path, file.as_bytes())?;
    }
    Ok(())
}

/// The GPUs that a [`Device`] names.
fn gpus(device: Device) -> Result<Vec<Gpu>> {
    let ordinals: Vec<u32> = match device {
        Device::Gpu(ordinal) => vec![ordinal],
        Device::Gpus(gpus) => gpus.ordinals().collect(),
        Device::AllGpus => (0..Gpu::count()?).collect(),
        Device::Cpu | Device::Auto => {
            anyhow::bail!("--device {device}: name GPUs, as gpu:0 or gpu:all")
        }
    };
    Ok(ordinals.into_iter().map(Gpu::open).collect::<apron::Result<_>>()?)
}

/// The settings that were given, for a heading.
fn settings(options: &Options) -> String {
    let named = [
        ("band rows", options.band_rows),
        ("feeders", options.feeders),
        ("lanes", options.lanes),
        ("share", options.share),
        ("deep", options.deep),
        ("in place", options.in_place.map(usize::from)),
    ];
    let given: Vec<_> =
        named.iter().filter_map(|(name, value)| Some(format!("{name} {}", (*value)?))).collect();
    given.join(", ")
}

fn link(name: String, gpus: &[Gpu], options: &Options) -> Result<Link> {
    let LinkRates { up, down, both, .. } =
        Gpu::link_rates(gpus, if options.quick { 8 } else { 32 })?;
    Ok(Link { gpus: name, up, down, both })
}

/// Bytes a second that threads copy from ordinary to pinned memory and back, with as many threads
/// as plans use. This is the limit for pictures in ordinary memory.
fn copies(gpu: &Gpu, options: &Options) -> Result<f64> {
    const PIECE: usize = 256 << 10;
    // Exceeds a processor's cache, so that the copy is as slow as memory.
    let bytes = (256 << 20) / options.scale;
    let shape = Shape { width: 1 << 10, height: bytes >> 10, channels: 1 };
    let mut pinned = HostImage::<u8>::zeroed(gpu, shape)?;
    let mut ordinary = vec![1u8; shape.row_len() * shape.height];
    let copy = |to: &mut [u8], from: &[u8]| {
        let pieces = to.chunks_mut(PIECE).zip(from.chunks(PIECE));
        let threads = Effort::of_copy(from.len()).threads_now();
        threads::for_each(threads, pieces, |(): &mut (), (to, from)| to.copy_from_slice(from));
    };
    let times = on_host(5, || {
        copy(pinned.as_mut_slice(), &ordinary);
        copy(&mut ordinary, pinned.as_slice());
        Ok::<_, anyhow::Error>(())
    })?;
    Ok(2.0 * ordinary.len() as f64 / median(times).as_secs_f64())
}

/// A work's pictures, in pinned and in ordinary memory.
struct Pictures<P> {
    pinned: Vec<HostImage<P>>,
    pinned_out: Vec<HostImage<P>>,
    ordinary: Vec<Image<P>>,
    ordinary_out: Vec<Image<P>>,
}

impl<P: Pixel> Pictures<P> {
    fn new(options: &Options, gpu: &Gpu, work: &Work) -> Result<Self> {
        let shape = work.shape(options);
        let Shape { width, height, channels } = shape;
        let mut rng = fastrand::Rng::with_seed(17);
        let mut all =
            Self { pinned: vec![], pinned_out: vec![], ordinary: vec![], ordinary_out: vec![] };
        for _ in 0..work.pictures.min(DISTINCT) {
            let mut image = HostImage::<P>::zeroed(gpu, shape)?;
            image.as_mut_slice().fill_with(|| P::from_f32(rng.u8(..).into()));
            all.ordinary.push(Image::from_vec(image.as_slice().to_vec(), width, height, channels)?);
            all.pinned.push(image);
            all.pinned_out.push(HostImage::<P>::zeroed(gpu, shape)?);
            all.ordinary_out.push(Image::<P>::zeroed(width, height, channels)?);
        }
        Ok(all)
    }

    fn of_pinned(&mut self) -> Vec<(ImageView<'_, P>, ImageViewMut<'_, P>)> {
        let views = self.pinned.iter().zip(&mut self.pinned_out);
        views.map(|(src, dst)| (src.view(), dst.view_mut())).collect()
    }

    fn of_ordinary(&mut self) -> Vec<(ImageView<'_, P>, ImageViewMut<'_, P>)> {
        let views = self.ordinary.iter().zip(&mut self.ordinary_out);
        views.map(|(src, dst)| (src.view(), dst.view_mut())).collect()
    }

    fn agree(&self) -> bool {
        let mut pairs = self.pinned_out.iter().zip(&self.ordinary_out);
        pairs.all(|(pinned, ordinary)| pinned.as_slice() == ordinary.as_slice())
    }
}

fn build(
    filter: &Filter,
    device: Device,
    options: &Options,
    timeline: Option<Timeline>,
) -> Result<Plan> {
    let Options { feeders, lanes, share, deep, in_place, .. } = *options;
    let builder = Plan::builder(filter).device(device).flow(FlowOptions {
        feeders,
        lanes,
        share,
        deep,
        in_place,
        timeline,
    });
    let builder = match options.band_rows {
        Some(rows) => builder.band_rows(rows),
        None => builder,
    };
    Ok(builder.build()?)
}

/// Microseconds for each picture of a work.
fn time<P: Pixel>(
    plan: &Plan,
    work: &Work,
    rounds: usize,
    views: &mut [(ImageView<'_, P>, ImageViewMut<'_, P>)],
) -> Result<f64> {
    // A batch of more pictures than `views` passes over them several times.
    let turns = work.pictures.div_ceil(views.len());
    let times = on_host(rounds, || (0..turns).try_for_each(|_| plan.run_batch(views)))?;
    Ok(micros(median(times)) / (turns * views.len()) as f64)
}

fn measure<P: Pixel>(
    options: &Options,
    gpus: &[Gpu],
    work: &Work,
    peers: Option<&mut Peers>,
) -> Result<Row> {
    let rounds = if options.quick { 5 } else { 21 };
    let filter = work.filter()?;
    let mut pictures = Pictures::<P>::new(options, &gpus[0], work)?;
    let mut on = |device: Device| -> Result<Times> {
        let plan = build(&filter, device, options, None)?;
        let pinned = time(&plan, work, rounds, &mut pictures.of_pinned())?;
        let ordinary = time(&plan, work, rounds, &mut pictures.of_ordinary())?;
        ensure!(pictures.agree(), "results differ between pinned and ordinary memory");
        Ok(Times { pinned, ordinary, cpu: None })
    };
    let mut times = on(options.device)?;
    let one = if gpus.len() > 1 { Some(on(Device::Gpu(gpus[0].info().ordinal))?) } else { None };
    let comparable = work.bytes(options) < 1 << 30;
    if comparable && work.pictures == 1 && work.filter != "random" {
        let plan = build(&filter, Device::Cpu, options, None)?;
        times.cpu = Some(time(&plan, work, rounds, &mut pictures.of_ordinary())?);
    }
    let rivals = match peers {
        Some(peers) if comparable => rivals(options, work, &filter, &pictures, peers)?,
        _ => Vec::new(),
    };
    Ok(Row {
        work: work.name.to_owned(),
        picture: work.picture(options),
        filter: if work.filter == "random" {
            format!("random {RANDOM}x{RANDOM}")
        } else {
            filter.to_string()
        },
        pictures: work.pictures,
        bytes: work.bytes(options),
        times,
        one,
        targets: work.targets,
        rivals,
    })
}

/// The libraries' times for the same pictures.
fn rivals<P: Pixel>(
    options: &Options,
    work: &Work,
    filter: &Filter,
    pictures: &Pictures<P>,
    peers: &mut Peers,
) -> Result<Vec<Rival>> {
    // The values with which each library's results are compared.
    let all = |images: &[Image<P>]| -> Vec<u8> {
        images
            .iter()
            .flat_map(|image| bytemuck::cast_slice::<P, u8>(image.as_slice()).iter().copied())
            .collect()
    };
    let (pixels, expected) = (all(&pictures.ordinary), all(&pictures.ordinary_out));
    let images = pictures.ordinary.len();
    let class = if filter.is_separable() { Class::Pair } else { Class::Dense };
    let sigma = work.filter.strip_prefix("gaussian:sigma=").and_then(|sigma| sigma.parse().ok());
    let found = peers.pose(&Posed {
        images,
        shape: work.shape(options),
        stored: P::SCALAR,
        target: P::SCALAR,
        classes: &[class],
        filter,
        sigma,
        preset: Some(work.filter),
        pixels: &pixels,
        expected: &expected,
    })?;
    let mut rivals = Vec::new();
    for peer in found {
        let Ok(agreement) = peers.check(&peer.name) else { continue };
        if let Ok(times) = peers.take_turn(&peer.name, Turn::BRIEF) {
            rivals.push(Rival {
                name: peer.name.clone(),
                us: micros(median(times)) / images as f64,
                difference: agreement.difference,
                differ: agreement.differ,
                note: agreement.note,
            });
        }
        peers.done(&peer.name);
    }
    Ok(rivals)
}

/// Times a batch that stays in the devices' memory. Each GPU has a part, and all GPUs filter at the
/// same time.
fn resident(options: &Options, gpus: &[Gpu]) -> Result<Resident> {
    let rounds = if options.quick { 5 } else { 21 };
    let (width, height, channels) = FRAME;
    let each = Shape { width: width / options.scale, height: height / options.scale, channels };
    let plan = build(&"gaussian:sigma=2".parse()?, options.device, options, None)?;
    const IMAGES: usize = 64;
    const CALLS: usize = 8;
    let all = Shape { height: IMAGES * each.height, ..each };
    let batch = |gpu: &Gpu| -> Result<(DeviceImage, DeviceImage, apron::gpu::Stream)> {
        let stream = gpu.stream()?;
        let mut src = gpu.image_of(all, Scalar::U8, Layout::Interleaved)?;
        src.fill(99.0, &stream)?;
        Ok((src, gpu.image_of(all, Scalar::U8, Layout::Interleaved)?, stream))
    };
    let mut batches = gpus.iter().map(batch).collect::<Result<Vec<_>>>()?;
    let mut time = |gpus: &[Gpu]| -> Result<f64> {
        let batches = &mut batches[..gpus.len()];
        let times = on_host(rounds, || -> Result<()> {
            for _ in 0..CALLS {
                for ((src, dst, stream), gpu) in batches.iter_mut().zip(gpus) {
                    pictures::batch(gpu, &plan, each, src, dst, stream)?;
                }
            }
            batches.iter().try_for_each(|(.., stream)| stream.synchronize()).map_err(Into::into)
        })?;
        Ok(micros(median(times)) / (CALLS * IMAGES * gpus.len()) as f64)
    };
    let us = time(gpus)?;
    let one = if gpus.len() > 1 { Some(time(&gpus[..1])?) } else { None };
    Ok(Resident { work: RESIDENT.to_owned(), us, one })
}

/// Draws a timeline of a work, from pinned and from ordinary memory.
fn draw(options: &Options, gpus: &[Gpu], work: &Work, path: &std::path::Path) -> Result<()> {
    if work.floats {
        draw_as::<f32>(options, gpus, work, path)
    } else {
        draw_as::<u8>(options, gpus, work, path)
    }
}

fn draw_as<P: Pixel>(
    options: &Options,
    gpus: &[Gpu],
    work: &Work,
    path: &std::path::Path,
) -> Result<()> {
    let timeline = Timeline::default();
    let plan = build(&work.filter()?, options.device, options, Some(timeline.clone()))?;
    let mut pictures = Pictures::<P>::new(options, &gpus[0], work)?;
    let write = |memory: &str,
                 path: &std::path::Path,
                 run: &mut dyn FnMut() -> apron::Result<()>|
     -> Result<()> {
        for _ in 0..3 {
            // The first runs load kernels and reserve memory.
            let _ = timeline.take();
            run()?;
        }
        let title = format!(
            "{} on {}, {memory} memory: {}",
            work.name,
            options.device,
            work.picture(options)
        );
        output::write(path, lanes::draw(&title, &timeline.take()).as_bytes())
    };
    let mut views = pictures.of_pinned();
    write("pinned", path, &mut || plan.run_batch(&mut views))?;
    let mut views = pictures.of_ordinary();
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    write("ordinary", &path.with_file_name(format!("{stem}-ordinary.svg")), &mut || {
        plan.run_batch(&mut views)
    })
}

/// Prints the times of works under many settings.
fn sweep<'w>(options: &Options, gpu: &Gpu, works: impl Iterator<Item = &'w Work>) -> Result<()> {
    for work in works {
        let mut lines = Vec::new();
        // Feeders, lanes, bytes of a piece, rows of a band.
        let mut all = vec![[None; 4]];
        for feeders in [1, 2, 3, 4] {
            for lanes in [3, 4, 6, 8].into_iter().filter(|&lanes| lanes >= feeders) {
                all.push([Some(feeders), Some(lanes), None, None]);
            }
        }
        all.extend(
            [16 << 10, 32 << 10, 128 << 10, 256 << 10].map(|share| [None, None, Some(share), None]),
        );
        let height = work.shape(options).height;
        for parts in [32, 24, 16, 12, 8, 6, 4, 3] {
            let rows = Some(height.div_ceil(parts));
            all.push([None, None, None, rows]);
            all.push([Some(1), Some(3), None, rows]);
            all.push([Some(2), Some(6), None, rows]);
        }
        for [feeders, lanes, share, band_rows] in all {
            let given = Options {
                only: String::new(),
                timeline: None,
                json: None,
                markdown: Vec::new(),
                feeders: feeders.or(options.feeders),
                lanes: lanes.or(options.lanes),
                share: share.or(options.share),
                band_rows: band_rows.or(options.band_rows),
                ..*options
            };
            let times = if work.floats {
                both::<f32>(&given, gpu, work)?
            } else {
                both::<u8>(&given, gpu, work)?
            };
            lines.push(vec![settings(&given), text::number(times.0), text::number(times.1)]);
        }
        let table = text::table(&["settings", "pinned us", "ordinary us"], 1, lines);
        output::print(&format!("{} on {}\n{table}", work.name, options.device))?;
    }
    Ok(())
}

fn both<P: Pixel>(options: &Options, gpu: &Gpu, work: &Work) -> Result<(f64, f64)> {
    let rounds = if options.quick { 5 } else { 11 };
    let plan = build(&work.filter()?, options.device, options, None)?;
    let mut pictures = Pictures::<P>::new(options, gpu, work)?;
    let pinned = time(&plan, work, rounds, &mut pictures.of_pinned())?;
    Ok((pinned, time(&plan, work, rounds, &mut pictures.of_ordinary())?))
}

impl Report {
    /// Bytes a second over the links of all GPUs, both directions at once.
    fn both_ways(&self) -> f64 {
        self.links.last().map_or(f64::NAN, |link| link.both)
    }

    fn header(&self) -> Vec<&'static str> {
        let mut header = vec![
            "work",
            "pictures",
            "pinned us",
            "% of the link",
            "ordinary us",
            "% of copies",
            "CPU us",
        ];
        if self.gpus > 1 {
            header.extend(["one GPU, pinned / ordinary us", "gain, pinned / ordinary"]);
        }
        if !self.libraries.is_empty() {
            header.push("libraries, us");
        }
        header.push("target, pinned / ordinary");
        header
    }

    fn cells(&self, row: &Row) -> Vec<String> {
        let Times { pinned, ordinary, cpu } = row.times;
        // Every byte crosses the link up and down.
        let share = |us: f64, limit: f64| {
            format!("{:.0}", 100.0 * 2.0 * row.bytes as f64 / (us * 1e-6) / limit)
        };
        let or_empty = |value: Option<f64>| value.map_or_else(String::new, text::number);
        let mut cells = vec![
            row.work.clone(),
            row.picture.clone(),
            text::number(pinned),
            share(pinned, self.both_ways()),
            text::number(ordinary),
            share(ordinary, self.copies),
            or_empty(cpu),
        ];
        if self.gpus > 1 {
            let one = row.one.as_ref();
            cells.push(one.map_or_else(String::new, |one| {
                format!("{} / {}", text::number(one.pinned), text::number(one.ordinary))
            }));
            cells.push(one.map_or_else(String::new, |one| {
                format!("{:.2} / {:.2}", one.pinned / pinned, one.ordinary / ordinary)
            }));
        }
        if !self.libraries.is_empty() {
            let each =
                row.rivals.iter().map(|rival| format!("{} {}", rival.name, text::number(rival.us)));
            cells.push(each.collect::<Vec<_>>().join("; "));
        }
        cells.push(match row.targets {
            (None, None) => String::new(),
            (pinned, ordinary) => format!("{} / {}", or_empty(pinned), or_empty(ordinary)),
        });
        cells
    }

    /// The text above and below the table.
    fn around(&self) -> (String, String) {
        let giga = |rate: f64| text::number(rate / 1e9);
        let links = self.links.iter().map(|link| {
            format!(
                "{}: {} up, {} down, {} both ways at once",
                link.gpus,
                giga(link.up),
                giga(link.down),
                giga(link.both)
            )
        });
        let links = links.collect::<Vec<_>>().join("; ");
        let settings =
            if self.options.is_empty() { String::new() } else { format!("; {}", self.options) };
        let above = format!(
            "GPUs: {} of {}, {} threads{settings}. Links in this run, pinned, GB/s: {links}. Threads copy {} GB/s from ordinary to \
             pinned memory and back.\n",
            self.gpus,
            self.gpu,
            self.threads,
            giga(self.copies)
        );
        let mut below = String::new();
        if let Some(Resident { work, us, one }) = &self.resident {
            let gain = one.map_or_else(String::new, |one| {
                format!("; one GPU: {}, gain {:.2}", text::number(one), one / us)
            });
            below += &format!("{work}: {} us a picture{gain}.\n", text::number(*us));
        }
        let lines = |what: &str, list: &[String]| match list {
            [] => String::new(),
            list => format!("{what}: {}.\n", list.join("; ")),
        };
        below += &lines("Libraries", &self.libraries);
        below += &lines("Not there", &self.missing);
        (above, below)
    }

    fn text(&self) -> String {
        let (above, below) = self.around();
        format!(
            "{above}{}{below}",
            text::table(&self.header(), 2, self.rows.iter().map(|row| self.cells(row)))
        )
    }

    fn markdown(&self) -> String {
        let (above, below) = self.around();
        let rows: Vec<_> = self.rows.iter().map(|row| self.cells(row)).collect();
        let below = if below.is_empty() { below } else { format!("\n{below}") };
        format!("{above}\n{}{below}", text::markdown(&self.header(), 2, &rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_gains_are_of_what_was_measured() {
        let times = |pinned, ordinary| Times { pinned, ordinary, cpu: None };
        let row = Row {
            work: "w".into(),
            picture: "p".into(),
            filter: "f".into(),
            pictures: 1,
            bytes: 1_000_000,
            times: times(100.0, 200.0),
            one: Some(times(195.0, 380.0)),
            targets: (Some(90.0), None),
            rivals: vec![Rival {
                name: "R".into(),
                us: 1234.0,
                difference: None,
                differ: None,
                note: String::new(),
            }],
        };
        let link = |both| Link { gpus: String::new(), up: 1e9, down: 1e9, both };
        let report = Report {
            gpu: "G".into(),
            device: "gpu:all".into(),
            gpus: 2,
            threads: 4,
            options: String::new(),
            links: vec![link(30e9), link(40e9)],
            copies: 20e9,
            libraries: vec!["R: 1".into()],
            missing: vec!["S: it is not there".into()],
            rows: vec![row],
            resident: Some(Resident { work: "batch".into(), us: 10.0, one: Some(19.5) }),
        };
        // 1 MB both ways in 100 us are 20 GB/s, in 200 us 10.
        let cells = report.cells(&report.rows[0]);
        let expected = [
            "w",
            "p",
            "100",
            "50",
            "200",
            "50",
            "",
            "195 / 380",
            "1.95 / 1.90",
            "R 1234",
            "90.0 / ",
        ];
        assert_eq!(cells, expected);
        let text = report.markdown();
        assert!(
            text.contains("gain 1.95") && text.contains("Not there: S: it is not there."),
            "{text}"
        );
        assert_eq!(report.header().len(), cells.len());
    }
}
