//! `ladder`: checks, then measures, the steps of the documents in `sources`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use apron::gpu::Gpu;
use apron::{Device, Error, Image, Plan};
use oracle::Order;

use crate::cases::Random;
use crate::check::Against;
use crate::contest::{self, Must, OnCpu, OnDevice, OnGpu, OnHost, Problem};
use crate::measure::{Turn, median, micros};
use crate::report::{CpuReport, GpuReport};
use crate::sources::{Kernel, Scene, Source, Sweep, Table, sources};
use crate::{ladder_report as report, output, why};

/// The ladder's options.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Where to measure: auto, cpu, gpu:N. Without a GPU the CPU computes smaller images.
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
            let bytes =
                std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
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
    let chosen: Vec<_> = all
        .iter()
        .filter(|source| options.source.as_ref().is_none_or(|name| name == source.name))
        .collect();
    if let (Some(name), true) = (&options.source, chosen.is_empty()) {
        let names: Vec<_> = all.iter().map(|source| source.name).collect();
        bail!("there is no document \"{name}\"; there are: {}", names.join(", "));
    }
    let mut fallback = String::new();
    let place = match options.device {
        Device::Cpu => Place::Cpu,
        Device::Gpu(ordinal) => Place::gpu(ordinal)?,
        Device::Gpus(_) | Device::AllGpus => {
            bail!("kernels are measured on one GPU: name it with gpu:N")
        }
        Device::Auto => match Place::gpu(0) {
            Err(error)
                if matches!(
                    error.downcast_ref(),
                    Some(Error::NoGpu { .. } | Error::NoSuchGpu { .. })
                ) =>
            {
                fallback = error.downcast_ref().map_or_else(String::new, why);
                Place::Cpu
            }
            place => place?,
        },
    };
    let bench = Bench { place, rounds: if options.common.quick { 3 } else { 11 } };
    let mut report = bench.heading(&fallback);
    for source in chosen {
        report
            .sources
            .push(bench.source(source).with_context(|| format!("source {}", source.name))?);
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
    /// The distance from the oracle's result, relative to that result.
    distance: Option<f64>,
}

/// The copy's time, and that of each contender; `None` if it does not accept the scene.
type Times = (Duration, Vec<Option<Measured>>);

impl Bench {
    fn heading(&self, fallback: &str) -> report::Report {
        let mut cpu = CpuReport::new().line() + fallback;
        if matches!(self.place, Place::Cpu) {
            cpu += "; smaller images than on a GPU, and the variants of a family all run the same code";
        }
        let (device, gpu, peak) = match &self.place {
            Place::Cpu => ("the CPU".to_owned(), None, None),
            Place::Gpu { gpu, peak, .. } => (
                gpu.info().name.clone(),
                Some(GpuReport::new(gpu, Some(*peak)).line()),
                Some(*peak),
            ),
        };
        let heading = [Some(cpu), gpu].into_iter().flatten().collect();
        report::Report {
            heading,
            device,
            peak_flops: peak,
            rounds: self.rounds,
            sources: Vec::new(),
        }
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

    /// The scene, in a smaller size on the CPU.
    fn scene(&self, scene: &Scene) -> Scene {
        if matches!(self.place, Place::Cpu) { scene.small() } else { scene.clone() }
    }

    fn table(&self, table: &Table) -> Result<report::Table> {
        let scene = self.scene(&table.scene);
        let contenders: Vec<_> = table
            .steps
            .iter()
            .map(|step| Contender { kernel: step.kernel, block: step.block })
            .collect();
        let (copy, times) = self.times(&scene, &contenders)?;
        let filter = scene.taps.filter()?;
        let mut rows = Vec::new();
        for (step, measured) in table.steps.iter().zip(times) {
            let measured = measured.with_context(|| {
                format!("{} does not take {}", step.kernel.name(), scene.size())
            })?;
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
            let (_, times) =
                self.times(&scene, &contenders).with_context(|| point.label.clone())?;
            for (series, measured) in series.iter_mut().zip(times) {
                series.us.push(measured.map(|measured| micros(measured.time)));
            }
            points.push((point.label.clone(), scene.width * scene.height * scene.channels));
        }
        Ok(report::Sweep {
            name: sweep.name.to_owned(),
            title: sweep.title.to_owned(),
            image: sweep
                .points
                .first()
                .map_or_else(String::new, |point| self.scene(&point.scene).size()),
            axis: sweep.axis.to_owned(),
            rate: sweep.rate,
            points,
            series,
        })
    }

    fn times(&self, scene: &Scene, contenders: &[Contender]) -> Result<Times> {
        let mut random = fastrand::Rng::with_seed(scene.width as u64);
        let pixels = (0..scene.width * scene.height * scene.channels)
            .map(|_| f32::random(&mut random))
            .collect();
        let src = Image::from_vec(pixels, scene.width, scene.height, scene.channels)?;
        let filter = scene.taps.filter()?;
        let problem = Problem { filter: &filter, border: scene.border, src: &src };
        // For each contender, its order and the distance of its result from the oracle's.
        let mut taking = Vec::new();
        let times = match &self.place {
            Place::Cpu => {
                let mut contest = OnCpu::new(problem, |_| Turn::SHORT)?;
                for contender in contenders {
                    let Some(run) = taken(contender.on_cpu(problem))? else {
                        taking.push(None);
                        continue;
                    };
                    contest.enter(contender.enters(run))?;
                    taking.push(Some((contender.kernel.order(), None)));
                }
                contest.time(self.rounds.min(3), |_, _| {})?
            }
            Place::Gpu { gpu, .. } => {
                let shape = src.shape();
                let mut on_device = if scene.by_rows {
                    studies::image_by_rows(gpu, shape)?
                } else {
                    gpu.image(shape)?
                };
                gpu.upload_into(&src.view(), &mut on_device)?;
                let mut contest = OnGpu::new(gpu, problem, on_device)?;
                let mut distances = Distances { problem, known: Vec::new() };
                for contender in contenders {
                    let Some(run) = taken(contender.on_gpu(gpu, problem))? else {
                        taking.push(None);
                        continue;
                    };
                    let found = contest.enter(contender.enters(run))?;
                    let order = contender.kernel.order();
                    let distance = match order {
                        Some(order) if scene.reference => Some(
                            distances.of(order, &found).with_context(|| contender.kernel.name())?,
                        ),
                        _ => None,
                    };
                    taking.push(Some((order, distance)));
                }
                contest.time(self.rounds)?
            }
        };
        let mut entries = times.entries.into_iter();
        let all = taking.into_iter().map(|taking| {
            let ((order, distance), entry) = taking.zip(entries.next())?;
            let checked = match (entry.checked.against, order) {
                (Against::First(_), Some(order)) => format!("f64, the bits of {}", order.name()),
                (against, _) => against.to_string(),
            };
            Some(Measured { time: median(entry.times), checked, distance })
        });
        Ok((median(times.copies), all.collect()))
    }
}

/// `None` if the contender does not accept the scene.
fn taken<T>(contender: apron::Result<T>) -> Result<Option<T>> {
    match contender {
        Err(Error::Unsupported { .. }) => Ok(None),
        contender => Ok(Some(contender?)),
    }
}

impl Contender {
    /// The contender for a contest.
    fn enters<Run>(&self, run: Run) -> contest::Contender<Run> {
        contest::Contender {
            name: self.kernel.name().to_owned(),
            must: Must::of(self.kernel.order(), None),
            run,
        }
    }

    fn on_cpu(
        &self,
        Problem { filter, border, src }: Problem<'_, f32>,
    ) -> apron::Result<OnHost<'static, f32>> {
        Ok(match self.kernel {
            Kernel::Study(study) => {
                let plan = study.plan_on_cpu(filter, border)?;
                plan.takes(src.shape())?;
                Box::new(move |src, dst| plan.run(src, dst))
            }
            Kernel::Apron(variant) => {
                let plan = Plan::builder(filter)
                    .border(border)
                    .device(Device::Cpu)
                    .variant(variant)
                    .build()?;
                plan.variant_for(src.shape())?;
                Box::new(move |src, dst| plan.run(&src.view(), &mut dst.view_mut()))
            }
        })
    }

    fn on_gpu(
        &self,
        gpu: &Gpu,
        Problem { filter, border, src }: Problem<'_, f32>,
    ) -> apron::Result<OnDevice<'static>> {
        Ok(match self.kernel {
            Kernel::Study(study) => {
                let mut plan = study.plan(filter, border, gpu, self.block)?;
                plan.takes(src.shape())?;
                Box::new(move |src, dst, stream| plan.run_on_device(src, dst, stream))
            }
            Kernel::Apron(variant) => {
                let device = Device::Gpu(gpu.info().ordinal);
                let plan =
                    Plan::builder(filter).border(border).device(device).variant(variant).build()?;
                plan.variant_for(src.shape())?;
                Box::new(move |src, dst, stream| plan.run_on_device(src, dst, stream))
            }
        })
    }
}

/// The distance of results from the oracle's in f32: `|found - expected| / |expected|`, with
/// Euclidean norms over all values.
struct Distances<'a> {
    problem: Problem<'a, f32>,
    /// The distance of the first result in each order; later results have the same bits.
    known: Vec<(Order, f64)>,
}

impl Distances<'_> {
    fn of(&mut self, order: Order, found: &Image<f32>) -> Result<f64> {
        if let Some((_, distance)) = self.known.iter().find(|(known, _)| *known == order) {
            return Ok(*distance);
        }
        let Problem { filter, border, src } = self.problem;
        let expected = order.filter_image(src.as_slice(), src.shape(), filter, border);
        let square = |value: f32| f64::from(value) * f64::from(value);
        let pairs = found.as_slice().iter().zip(&expected);
        let difference: f64 = pairs.map(|(found, expected)| square(found - expected)).sum();
        let norm: f64 = expected.iter().map(|&value| square(value)).sum();
        let distance = (difference / norm).sqrt();
        ensure!(distance < 1e-6, "it is {distance:e} from the oracle's result");
        self.known.push((order, distance));
        Ok(distance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs every document's steps over a small image, in a contest: each accepts the image, is
    /// correct and is timed.
    fn climb(place: Place) {
        let bench = Bench { place, rounds: 1 };
        for source in sources() {
            for table in &source.tables {
                let scene = Scene {
                    width: table.scene.width.min(160),
                    height: table.scene.height.min(48),
                    ..table.scene
                };
                let contenders: Vec<_> = table
                    .steps
                    .iter()
                    .map(|step| Contender { kernel: step.kernel, block: step.block })
                    .collect();
                let (_, times) = bench.times(&scene, &contenders).unwrap();
                assert_eq!(times.len(), contenders.len());
                for (step, measured) in table.steps.iter().zip(times) {
                    let at = format!("{}, {}: {}", source.name, table.title, step.label);
                    let measured = measured.unwrap_or_else(|| panic!("{at} declines"));
                    assert!(measured.checked.starts_with("f64"), "{at}: {}", measured.checked);
                    let compared = scene.reference && matches!(bench.place, Place::Gpu { .. });
                    assert_eq!(measured.distance, compared.then_some(0.0), "{at}");
                }
            }
        }
    }

    #[test]
    fn the_cpu_climbs_every_ladder() {
        climb(Place::Cpu);
    }

    #[test]
    fn a_gpu_climbs_every_ladder() {
        match Gpu::open(0) {
            Ok(gpu) => climb(Place::Gpu { gpu, peak: 1.0 }),
            Err(_) => println!("skipped: no GPU"),
        }
    }
}
