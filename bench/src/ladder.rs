//! `ladder`: the steps of the documents in `sources`, each result checked, then measured.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use apron::gpu::{DeviceImage, Gpu, Stream};
use apron::{Device, Error, Filter, Image, Plan};
use studies::StudyPlan;

use crate::cases::Random;
use crate::measure::{Bed, copy, median, micros, on_host};
use crate::report::{CpuReport, GpuReport};
use crate::sources::{Kernel, Scene, Source, Sweep, Table, sources};
use crate::{check, ladder_report as report, output, why};

/// What can be asked of the ladder.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Where to measure: auto, cpu, gpu:N. Without a GPU the CPU computes smaller images, by each family's twin.
    #[arg(long, default_value = "auto")]
    device: Device,
    /// Only this document: blog, class, paper, strip, line.
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Measure nothing: take the results from this file, which --json wrote.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["device", "source", "quick"])]
    from: Option<PathBuf>,
    #[command(flatten)]
    common: output::Common,
}

/// Runs the ladder and prints its tables.
///
/// # Errors
/// If no document has the name, if a result is wrong, or if something fails.
pub fn run(options: &Options) -> Result<()> {
    let report = match &options.from {
        Some(path) => {
            let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
            serde_json::from_slice(&bytes).with_context(|| format!("reading {}", path.display()))?
        }
        None => measure(options)?,
    };
    output::print(&report.text())?;
    let put = |file: &str| report.put_into(file);
    options.common.write(&report, || report.charts(), |charts| report.page(charts), put)
}

fn measure(options: &Options) -> Result<report::Report> {
    let all = sources();
    let chosen: Vec<_> =
        all.iter().filter(|source| options.source.as_ref().is_none_or(|name| name == source.name)).collect();
    if let (Some(name), true) = (&options.source, chosen.is_empty()) {
        let names: Vec<_> = all.iter().map(|source| source.name).collect();
        bail!("there is no document \"{name}\"; there are: {}", names.join(", "));
    }
    let mut fallback = String::new();
    let place = match options.device {
        Device::Cpu => Place::Cpu,
        Device::Gpu(ordinal) => Place::gpu(ordinal)?,
        Device::Auto => match Place::gpu(0) {
            Err(error) if matches!(error.downcast_ref(), Some(Error::NoGpu { .. } | Error::NoSuchGpu { .. })) => {
                fallback = error.downcast_ref().map_or_else(String::new, why);
                Place::Cpu
            }
            place => place?,
        },
    };
    let bench = Bench { place, rounds: if options.common.quick { 3 } else { 11 } };
    let mut report = bench.heading(&fallback);
    for source in chosen {
        report.sources.push(bench.source(source).with_context(|| format!("source {}", source.name))?);
    }
    Ok(report)
}

enum Place {
    Cpu,
    Gpu {
        gpu: Gpu,
        /// Multiplications and additions a second.
        peak: f64,
    },
}

impl Place {
    fn gpu(ordinal: u32) -> Result<Self> {
        let gpu = Gpu::open(ordinal)?;
        let peak = gpu.fma_peak()?;
        Ok(Self::Gpu { gpu, peak })
    }
}

struct Bench {
    place: Place,
    rounds: usize,
}

/// A kernel to measure.
#[derive(Clone, Copy)]
struct Contender {
    kernel: Kernel,
    block: Option<(u32, u32)>,
}

/// Its time, and how its result was checked.
struct Measured {
    time: Duration,
    checked: String,
    /// The distance from the CPU's result, as a part of that result.
    distance: Option<f64>,
}

/// The copy's time, and each contender's that takes the scene.
type Times = (Duration, Vec<Option<Measured>>);

impl Bench {
    fn heading(&self, fallback: &str) -> report::Report {
        let mut cpu = CpuReport::new().line() + fallback;
        if matches!(self.place, Place::Cpu) {
            cpu += "; smaller images than on a GPU, and the variants of a family all run the same code";
        }
        let (device, gpu, peak) = match &self.place {
            Place::Cpu => ("the CPU".to_owned(), None, None),
            Place::Gpu { gpu, peak, .. } => {
                (gpu.info().name.clone(), Some(GpuReport::new(gpu, Some(*peak)).line()), Some(*peak))
            }
        };
        let heading = [Some(cpu), gpu].into_iter().flatten().collect();
        report::Report { heading, device, peak_flops: peak, rounds: self.rounds, sources: Vec::new() }
    }

    fn source(&self, source: &Source) -> Result<report::Section> {
        let tables = source.tables.iter().map(|table| {
            eprintln!("{}: {}", source.name, table.title);
            self.table(table).with_context(|| table.title.clone())
        });
        let tables = tables.collect::<Result<_>>()?;
        let sweeps = source.sweeps.iter().map(|sweep| {
            eprintln!("{}: {}", source.name, sweep.title);
            self.sweep(sweep).with_context(|| sweep.title)
        });
        Ok(report::Section {
            name: source.name.to_owned(),
            title: source.title.to_owned(),
            published_on: source.device.to_owned(),
            notes: source.notes.iter().map(|&note| note.to_owned()).collect(),
            tables,
            sweeps: sweeps.collect::<Result<_>>()?,
        })
    }

    /// The scene as it is run here.
    fn scene(&self, scene: &Scene) -> Scene {
        if matches!(self.place, Place::Cpu) { scene.small() } else { scene.clone() }
    }

    fn table(&self, table: &Table) -> Result<report::Table> {
        let scene = self.scene(&table.scene);
        let contenders: Vec<_> =
            table.steps.iter().map(|step| Contender { kernel: step.kernel, block: step.block }).collect();
        let (copy, times) = self.times(&scene, &contenders)?;
        let filter = scene.taps.filter()?;
        let mut rows = Vec::new();
        for (step, measured) in table.steps.iter().zip(times) {
            let measured =
                measured.with_context(|| format!("{} does not take {}", step.kernel.name(), scene.size()))?;
            rows.push(report::Row {
                step: step.label.to_owned(),
                variant: step.kernel.name().to_owned(),
                steps: step.kernel.steps(&filter),
                us: micros(measured.time),
                published_us: step.published_us,
                checked: measured.checked,
                distance: measured.distance,
            });
        }
        Ok(report::Table {
            title: table.title.clone(),
            image: scene.size(),
            values: scene.width * scene.height * scene.channels,
            taps: scene.taps.to_string(),
            border: scene.border.to_string(),
            copy_us: micros(copy),
            rows,
        })
    }

    fn sweep(&self, sweep: &Sweep) -> Result<report::Sweep> {
        let mut series: Vec<_> = sweep
            .kernels
            .iter()
            .map(|(label, kernel)| report::Series {
                label: (*label).to_owned(),
                variant: kernel.name().to_owned(),
                us: Vec::new(),
            })
            .collect();
        let mut points = Vec::new();
        for point in &sweep.points {
            let scene = self.scene(&point.scene);
            let contender = |&(_, kernel): &(_, Kernel)| Contender { kernel, block: point.block };
            let contenders: Vec<_> = sweep.kernels.iter().map(contender).collect();
            let (_, times) = self.times(&scene, &contenders).with_context(|| point.label.clone())?;
            for (series, measured) in series.iter_mut().zip(times) {
                series.us.push(measured.map(|measured| micros(measured.time)));
            }
            points.push((point.label.clone(), scene.width * scene.height * scene.channels));
        }
        Ok(report::Sweep {
            name: sweep.name.to_owned(),
            title: sweep.title.to_owned(),
            image: sweep.points.first().map_or_else(String::new, |point| self.scene(&point.scene).size()),
            axis: sweep.axis.to_owned(),
            rate: sweep.rate,
            points,
            series,
        })
    }

    fn times(&self, scene: &Scene, contenders: &[Contender]) -> Result<Times> {
        let mut random = fastrand::Rng::with_seed(scene.width as u64);
        let pixels = (0..scene.width * scene.height * scene.channels).map(|_| f32::random(&mut random)).collect();
        let src = Image::from_vec(pixels, scene.width, scene.height, scene.channels)?;
        let filter = scene.taps.filter()?;
        let job = Job { scene, contenders, filter: &filter, src: &src };
        match &self.place {
            Place::Cpu => job.on_cpu(self.rounds.min(3)),
            Place::Gpu { gpu, .. } => job.on_gpu(gpu, self.rounds),
        }
    }
}

/// One scene's measurements.
struct Job<'a> {
    scene: &'a Scene,
    contenders: &'a [Contender],
    filter: &'a Filter,
    src: &'a Image<f32>,
}

impl Job<'_> {
    fn on_cpu(&self, rounds: usize) -> Result<Times> {
        let (input, mut output) = (self.src.as_slice(), vec![0.0f32; self.src.as_slice().len()]);
        let copies = on_host(rounds, || {
            output.copy_from_slice(input);
            anyhow::Ok(())
        })?;
        let mut checker = Checker::new(self);
        let mut all = Vec::new();
        for contender in self.contenders {
            let mut dst = self.empty()?;
            let times = match on_host(rounds, || self.run_on_cpu(contender.kernel, &mut dst)) {
                Err(Error::Unsupported { .. }) => {
                    all.push(None);
                    continue;
                }
                times => times?,
            };
            let (checked, _) = checker.check(contender.kernel, &dst)?;
            all.push(Some(Measured { time: median(times), checked, distance: None }));
        }
        Ok((median(copies), all))
    }

    fn on_gpu(&self, gpu: &Gpu, rounds: usize) -> Result<Times> {
        let shape = self.src.shape();
        let mut src = if self.scene.by_rows { studies::image_by_rows(gpu, shape)? } else { gpu.image(shape)? };
        gpu.upload_into(&self.src.view(), &mut src)?;
        let mut bed = Bed::new(gpu, &src)?;
        let mut checker = Checker::new(self);
        let mut runners = Vec::new();
        for contender in self.contenders {
            let Some(mut plan) = self.plan(*contender, gpu)? else {
                runners.push(None);
                continue;
            };
            let context = || contender.kernel.name();
            let found = run_once(gpu, &mut plan, &src).with_context(context)?;
            let (checked, distance) = checker.check(contender.kernel, &found).with_context(context)?;
            let rhythm = bed.rhythm(|src, dst, stream| plan.run_on_device(src, dst, stream))?;
            runners.push(Some((plan, rhythm, checked, distance, Vec::new())));
        }
        let copy_rhythm = bed.rhythm(copy)?;
        let mut copies = Vec::new();
        // Round by round, so that a clock that changes changes it for all.
        for _ in 0..rounds {
            copies.push(bed.time(copy_rhythm, copy)?);
            for (plan, rhythm, _, _, times) in runners.iter_mut().flatten() {
                times.push(bed.time(*rhythm, |src, dst, stream| plan.run_on_device(src, dst, stream))?);
            }
        }
        let measured = |(_, _, checked, distance, times)| Measured { time: median(times), checked, distance };
        Ok((median(copies), runners.into_iter().map(|runner| runner.map(measured)).collect()))
    }

    /// A plan for the contender; `None` if it does not take the scene.
    fn plan(&self, contender: Contender, gpu: &Gpu) -> Result<Option<Ready>> {
        let (border, shape) = (self.scene.border, self.src.shape());
        let plan = match contender.kernel {
            Kernel::Study(study) => study
                .plan(self.filter, border, gpu, contender.block)
                .and_then(|plan| plan.takes(shape).map(|()| Ready::Study(plan))),
            Kernel::Apron(variant) => Plan::builder(self.filter)
                .border(border)
                .device(Device::Gpu(gpu.info().ordinal))
                .variant(variant)
                .build()
                .and_then(|plan| plan.variant_for(shape).map(|_| Ready::Apron(plan))),
        };
        match plan {
            Err(Error::Unsupported { .. }) => Ok(None),
            plan => Ok(Some(plan?)),
        }
    }

    /// Filters the scene on the CPU.
    fn run_on_cpu(&self, kernel: Kernel, dst: &mut Image<f32>) -> Result<(), Error> {
        let (filter, border) = (self.filter, self.scene.border);
        match kernel {
            Kernel::Study(study) => studies::cpu::run(study, filter, border, self.src, dst),
            Kernel::Apron(variant) => {
                let plan = Plan::builder(filter).border(border).device(Device::Cpu).variant(variant).build()?;
                plan.run(&self.src.view(), &mut dst.view_mut())
            }
        }
    }

    fn empty(&self) -> Result<Image<f32>> {
        Ok(Image::zeroed(self.scene.width, self.scene.height, self.scene.channels)?)
    }
}

/// What filters images on the GPU.
enum Ready {
    Study(StudyPlan),
    Apron(Plan),
}

impl Ready {
    fn run_on_device(&mut self, src: &DeviceImage, dst: &mut DeviceImage, stream: &mut Stream) -> Result<(), Error> {
        match self {
            Self::Study(plan) => plan.run_on_device(src, dst, stream),
            Self::Apron(plan) => plan.run_on_device(src, dst, stream),
        }
    }
}

/// Holds results to the oracle, and to others of their order.
struct Checker<'a> {
    job: &'a Job<'a>,
    /// The first result of each order, which is held to f64.
    references: Vec<(&'static str, Image<f32>)>,
    /// The CPU's results.
    twins: Vec<(&'static str, Image<f32>)>,
}

impl<'a> Checker<'a> {
    fn new(job: &'a Job<'a>) -> Self {
        Self { job, references: Vec::new(), twins: Vec::new() }
    }

    /// What the result was held to, and how far it is from the CPU's, if that is asked for.
    fn check(&mut self, kernel: Kernel, found: &Image<f32>) -> Result<(String, Option<f64>)> {
        let Job { scene, filter, src, .. } = *self.job;
        let order = kernel.order();
        check::spots(filter, scene.border, src, found, 0.0)?;
        let mut checked = "f64".to_owned();
        match self.references.iter().find(|(known, _)| *known == order) {
            Some((_, reference)) => {
                check::same(found, reference)?;
                checked += &format!(", the bits of {}", order);
            }
            None => self.references.push((order, found.clone())),
        }
        let distance = scene.reference.then(|| self.distance(kernel, found)).transpose()?;
        Ok((checked, distance))
    }

    /// `|found - twin| / |twin|`, both as vectors.
    fn distance(&mut self, kernel: Kernel, found: &Image<f32>) -> Result<f64> {
        let order = kernel.order();
        if !self.twins.iter().any(|(known, _)| *known == order) {
            let mut twin = self.job.empty()?;
            self.job.run_on_cpu(kernel, &mut twin)?;
            self.twins.push((order, twin));
        }
        let twin = self.twins.iter().find(|(known, _)| *known == order).context("it was made just now")?;
        let square = |value: f32| f64::from(value) * f64::from(value);
        let pairs = found.as_slice().iter().zip(twin.1.as_slice());
        let difference: f64 = pairs.map(|(found, twin)| square(found - twin)).sum();
        let norm: f64 = twin.1.as_slice().iter().map(|&value| square(value)).sum();
        let distance = (difference / norm).sqrt();
        ensure!(distance < 1e-6, "it is {distance:e} from the CPU's result");
        Ok(distance)
    }
}

/// A plan's result on the device.
fn run_once(gpu: &Gpu, plan: &mut Ready, src: &DeviceImage) -> Result<Image<f32>> {
    let mut stream = gpu.stream()?;
    let mut dst = gpu.image_like(src)?;
    // Memory that the driver hands out may still hold another run's right result.
    dst.fill(f32::NAN, &stream)?;
    plan.run_on_device(src, &mut dst, &mut stream)?;
    stream.synchronize()?;
    Ok(gpu.download(&dst)?)
}
