//! `ladder`: the steps of the documents in `sources`, each result checked, then measured.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use apron::gpu::Gpu;
use apron::{Device, Error, Family, Filter, Image, Plan, Variant};
use oracle::Order;

use crate::cases::Random;
use crate::check::Against;
use crate::contest::{Must, OnCpu, OnGpu, Problem};
use crate::measure::{Turn, median, micros};
use crate::report::{CpuReport, GpuReport};
use crate::sources::{Scene, Source, Sweep, Table, sources};
use crate::{check, contest, family_name, ladder_report as report, output, why};

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
        ordinal: u32,
        gpu: Gpu,
        /// Multiplications and additions a second.
        peak: f64,
    },
}

impl Place {
    fn gpu(ordinal: u32) -> Result<Self> {
        let gpu = Gpu::open(ordinal)?;
        let peak = gpu.fma_peak()?;
        Ok(Self::Gpu { ordinal, gpu, peak })
    }
}

struct Bench {
    place: Place,
    rounds: usize,
}

/// A kernel to measure.
#[derive(Clone, Copy)]
struct Contender {
    variant: Variant,
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
            table.steps.iter().map(|step| Contender { variant: step.variant, block: step.block }).collect();
        let (copy, times) = self.times(&scene, &contenders)?;
        let filter = scene.taps.filter()?;
        let mut rows = Vec::new();
        for (step, measured) in table.steps.iter().zip(times) {
            let measured = measured.with_context(|| format!("{} does not take {}", step.variant, scene.size()))?;
            rows.push(report::Row {
                step: step.label.to_owned(),
                variant: step.variant.name().to_owned(),
                steps: steps(&filter, step.variant.family()),
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
            .variants
            .iter()
            .map(|(label, variant)| report::Series {
                label: (*label).to_owned(),
                variant: variant.name().to_owned(),
                us: Vec::new(),
            })
            .collect();
        let mut points = Vec::new();
        for point in &sweep.points {
            let scene = self.scene(&point.scene);
            let contender = |&(_, variant): &(_, Variant)| Contender { variant, block: point.block };
            let contenders: Vec<_> = sweep.variants.iter().map(contender).collect();
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
        let plans = contenders.iter().map(|contender| self.plan(*contender, scene, &filter, &src));
        let plans = plans.collect::<Result<Vec<_>>>()?;
        let problem = Problem { filter: &filter, border: scene.border, src: &src };
        let taking = || contenders.iter().zip(&plans).filter_map(|(contender, plan)| Some((contender, plan.as_ref()?)));
        let mut distances = Distances { scene, filter: &filter, src: &src, known: Vec::new() };
        let mut measured = Vec::new();
        let times = match &self.place {
            Place::Cpu => {
                let mut contest = OnCpu::new(problem, |_| Turn::SHORT)?;
                for (&Contender { variant, .. }, plan) in taking() {
                    contest.enter(contest::Contender {
                        name: variant.name().to_owned(),
                        must: Must::of(variant.family(), None),
                        run: Box::new(|src, dst| plan.run(&src.view(), &mut dst.view_mut())),
                    })?;
                    measured.push((variant.family(), None));
                }
                contest.time(self.rounds.min(3), |_, _| {})?
            }
            Place::Gpu { gpu, .. } => {
                let shape = src.shape();
                let mut on_device = if scene.by_rows { gpu.image_by_rows(shape)? } else { gpu.image(shape)? };
                gpu.upload_into(&src.view(), &mut on_device)?;
                let mut contest = OnGpu::new(gpu, problem, on_device)?;
                for (&Contender { variant, .. }, plan) in taking() {
                    let found = contest.enter(contest::Contender {
                        name: variant.name().to_owned(),
                        must: Must::of(variant.family(), None),
                        run: Box::new(|src, dst, stream| plan.run_on_device(src, dst, stream)),
                    })?;
                    let distance = distances.of(variant.family(), &found).with_context(|| variant.name())?;
                    measured.push((variant.family(), distance));
                }
                contest.time(self.rounds)?
            }
        };
        let mut entries = times.entries.into_iter().zip(measured).map(|(entry, (family, distance))| {
            let checked = match entry.checked.against {
                Against::First(_) => format!("f64, the bits of {}", family_name(family)),
                against => against.to_string(),
            };
            Measured { time: median(entry.times), checked, distance }
        });
        let all = plans.iter().map(|plan| plan.as_ref().and_then(|_| entries.next())).collect();
        Ok((median(times.copies), all))
    }

    /// A plan for the contender; `None` if it does not take the scene.
    fn plan(&self, contender: Contender, scene: &Scene, filter: &Filter, src: &Image<f32>) -> Result<Option<Plan>> {
        let device = match self.place {
            Place::Cpu => Device::Cpu,
            Place::Gpu { ordinal, .. } => Device::Gpu(ordinal),
        };
        let plan = Plan::builder(filter).border(scene.border).device(device).variant(contender.variant);
        let plan = plan.block(contender.block).build();
        match plan.and_then(|plan| plan.variant_for(src.shape()).map(|_| plan)) {
            Err(Error::Unsupported { .. }) => Ok(None),
            plan => Ok(Some(plan?)),
        }
    }
}

/// Multiply-adds for each value.
fn steps(filter: &Filter, family: Family) -> usize {
    if family == Family::Separable { filter.cols() + filter.rows() } else { filter.cols() * filter.rows() }
}

/// How far results are from the oracle's in f32, as a whole: `|found - expected| / |expected|`, both as vectors.
struct Distances<'a> {
    scene: &'a Scene,
    filter: &'a Filter,
    src: &'a Image<f32>,
    /// Of the first result in each order: the others have its bits.
    known: Vec<(Order, f64)>,
}

impl Distances<'_> {
    /// A result's, if the scene asks for it and the family has an order.
    fn of(&mut self, family: Family, found: &Image<f32>) -> Result<Option<f64>> {
        let Some(order) = Order::of(family).filter(|_| self.scene.reference) else { return Ok(None) };
        if let Some((_, distance)) = self.known.iter().find(|(known, _)| *known == order) {
            return Ok(Some(*distance));
        }
        let Scene { width, height, channels, border, .. } = *self.scene;
        let plane = |image: &Image<f32>, channel: usize| -> Vec<f32> {
            image.as_slice().iter().skip(channel).step_by(channels).copied().collect()
        };
        let square = |value: f32| f64::from(value) * f64::from(value);
        let (mut difference, mut norm) = (0.0, 0.0);
        for channel in 0..channels {
            let src = plane(self.src, channel);
            let expected = check::with_taps(self.filter, |taps| {
                order.filter(&src, (width, height), taps, self.filter.separated(), border)
            });
            for (found, expected) in plane(found, channel).into_iter().zip(expected) {
                difference += square(found - expected);
                norm += square(expected);
            }
        }
        let distance = (difference / norm).sqrt();
        ensure!(distance < 1e-6, "it is {distance:e} from the oracle's result");
        self.known.push((order, distance));
        Ok(Some(distance))
    }
}
