//! `bench flow --auto`: thirty jobs on the CPU, on the GPU and where the library chooses. The
//! choice may cost at most 1.3 times the better one.
//!
//! Times are those of a process that has run for some time. Before a job is timed, it runs on all
//! three: on `auto` often enough for the predictions to be corrected. Separate processes measure
//! the first call of a fresh process, which includes opening the GPU.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use apron::gpu::{Gpu, HostImage};
use apron::{Device, Image, ImageView, ImageViewMut, Pixel, Plan, Scalar, Shape, Step};

use crate::measure::{median, micros};
use crate::{output, text};

/// The largest allowed ratio of `auto`'s time to the better device's time.
const AIM: f64 = 1.3;

/// Pictures of one size, a filter, and how many there are.
struct Job {
    size: (usize, usize, usize),
    scalar: Scalar,
    filter: &'static str,
    pictures: usize,
    pinned: bool,
}

const fn job(size: (usize, usize, usize), scalar: Scalar, filter: &'static str) -> Job {
    Job { size, scalar, filter, pictures: 1, pinned: false }
}

const fn batch(pictures: usize, job: Job) -> Job {
    Job { pictures, ..job }
}

const fn pinned(job: Job) -> Job {
    Job { pinned: true, ..job }
}

use Scalar::{F32, U8, U16};

/// `#17` stands for 17x17 random taps, which do not separate into a row and a column.
const JOBS: &[Job] = &[
    // Tiny.
    job((64, 64, 1), U8, "gaussian:sigma=1"),
    job((64, 64, 3), U8, "box:size=3"),
    job((128, 128, 1), F32, "#3"),
    job((256, 256, 1), U8, "gaussian:sigma=2"),
    job((256, 256, 3), U8, "unsharp:sigma=2"),
    job((256, 256, 1), F32, "#17"),
    // Small.
    job((640, 480, 1), U8, "sobel"),
    job((640, 480, 3), U8, "gaussian:sigma=2"),
    job((640, 480, 3), U16, "gaussian:sigma=2"),
    job((640, 480, 1), F32, "gaussian:sigma=10"),
    job((640, 480, 1), U8, "#51"),
    // Common sizes of cameras and video.
    job((1920, 1080, 3), U8, "gaussian:sigma=2"),
    job((1920, 1080, 3), U8, "box:size=15"),
    job((1920, 1080, 4), U8, "#3"),
    job((1920, 1080, 1), U16, "unsharp:sigma=2"),
    job((1920, 1080, 3), F32, "gaussian:sigma=5"),
    job((1920, 1080, 3), U8, "#17"),
    pinned(job((1920, 1080, 3), U8, "gaussian:sigma=2")),
    job((2048, 2048, 1), F32, "#51"),
    // Large.
    job((6000, 4000, 3), U8, "gaussian:sigma=2"),
    job((6000, 4000, 3), U8, "box:size=5"),
    job((6000, 4000, 3), U8, "gaussian:sigma=12"),
    job((6000, 4000, 3), U16, "sobel-x"),
    job((8192, 8192, 1), F32, "gaussian:sigma=2"),
    job((8192, 8192, 1), F32, "#17"),
    pinned(job((16384, 16384, 1), U8, "#3")),
    // Many.
    batch(64, job((256, 256, 1), U8, "gaussian:sigma=2")),
    batch(32, job((640, 480, 3), U8, "box:size=5")),
    batch(16, job((1920, 1080, 3), U8, "gaussian:sigma=2")),
    batch(16, pinned(job((1920, 1080, 3), U8, "unsharp:sigma=2"))),
];

impl Job {
    fn name(&self) -> String {
        let (width, height, channels) = self.size;
        let (many, memory) = (self.pictures, if self.pinned { ", pinned" } else { "" });
        let many = if many > 1 { format!("{many} of ") } else { String::new() };
        let filter = self.filter.replace('#', "random:size=");
        format!("{many}{width}x{height}x{channels} {}, {filter}{memory}", self.scalar)
    }

    fn step(&self) -> Result<Step> {
        let Some(size) = self.filter.strip_prefix('#') else { return Ok(self.filter.parse()?) };
        let size: usize = size.parse()?;
        let mut rng = fastrand::Rng::with_seed(size as u64);
        let taps: Vec<f64> = (0..size * size).map(|_| rng.f64() / (size * size) as f64).collect();
        Ok(apron::Filter::from_taps_f64(size, size, &taps)?.into())
    }

    fn plan(&self, device: Device) -> Result<Plan> {
        Ok(Plan::builder(self.step()?).device(device).build()?)
    }
}

/// The median times of a job in microseconds.
struct Timed {
    cpu: f64,
    gpu: f64,
    auto: f64,
    /// Where `auto` ran last.
    ran_on: Device,
}

/// Runs the jobs whose name contains `only`, and prints a table.
///
/// # Errors
/// Device and memory errors; bytes that differ between the devices; a job for which `auto` takes
/// more than 1.3 times the better time.
pub(crate) fn run(quick: bool, only: &str) -> Result<()> {
    let gpu = Gpu::open(0).context("the jobs are for a machine with a GPU")?;
    let header = [
        "job",
        "cpu us",
        "gpu us",
        "auto us",
        "auto ran on",
        "ratio",
        "first call, ms: cpu",
        "gpu",
        "auto",
    ];
    let (mut rows, mut missed) = (Vec::new(), Vec::new());
    for (number, job) in JOBS.iter().enumerate().filter(|(_, job)| job.name().contains(only)) {
        let times = match job.scalar {
            Scalar::U8 => measure::<u8>(job, quick),
            Scalar::U16 => measure::<u16>(job, quick),
            _ => measure::<f32>(job, quick),
        }?;
        let ratio = times.auto / times.cpu.min(times.gpu);
        if ratio > AIM {
            missed.push(format!("{} ({ratio:.2})", job.name()));
        }
        let mut row = vec![job.name()];
        row.extend([times.cpu, times.gpu, times.auto].map(text::number));
        row.extend([times.ran_on.to_string(), format!("{ratio:.2}")]);
        for device in [Device::Cpu, Device::Gpu(0), Device::Auto] {
            row.push(if quick {
                String::new()
            } else {
                text::number(first_call(number, device)? * 1e3)
            });
        }
        rows.push(row);
    }
    ensure!(!rows.is_empty(), "no job's name contains \"{only}\"");
    output::print(&format!(
        "{}, {} threads; medians from host memory to host memory, of the whole job\n{}",
        gpu.info().name,
        rayon::current_num_threads(),
        text::table(&header, 1, rows)
    ))?;
    ensure!(
        missed.is_empty(),
        "auto takes more than {AIM} times the better device's time: {}",
        missed.join("; ")
    );
    Ok(())
}

/// The seconds of a job's first call in a process of its own, from a plan to its results.
fn first_call(number: usize, device: Device) -> Result<f64> {
    let mut command = Command::new(std::env::current_exe()?);
    let number = number.to_string();
    let output = command
        .args(["flow", "--auto", "--first", &number, "--device", &device.to_string()])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let seconds = text.trim().parse().ok().filter(|_| output.status.success());
    seconds.with_context(|| {
        format!("a process of its own: {}", String::from_utf8_lossy(&output.stderr))
    })
}

/// Runs a job's first call in this process, and prints its seconds.
///
/// # Errors
/// Device and memory errors; no such job.
pub(crate) fn first(number: usize, device: Device) -> Result<()> {
    let job = JOBS.get(number).context("there is no such job")?;
    let seconds = match job.scalar {
        Scalar::U8 => timed_first::<u8>(job, device),
        Scalar::U16 => timed_first::<u16>(job, device),
        _ => timed_first::<f32>(job, device),
    }?;
    output::print(&format!("{seconds}\n"))
}

fn timed_first<P: Pixel>(job: &Job, device: Device) -> Result<f64> {
    // Pinned memory would open the GPU.
    let mut pictures = Pictures::<P>::ordinary(job)?;
    let start = Instant::now();
    let plan = job.plan(device)?;
    pictures.run(&plan)?;
    Ok(start.elapsed().as_secs_f64())
}

/// Sources and results of a job.
struct Pictures<P> {
    ordinary: Vec<(Image<P>, Image<P>)>,
    pinned: Vec<(HostImage<P>, HostImage<P>)>,
}

/// Fills with pseudo-random values, quickly.
fn fill<P: Pixel>(values: &mut [P], seed: u64) {
    let mut state = seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15);
    values.fill_with(|| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        P::from_f32((state >> 56) as f32)
    });
}

impl<P: Pixel> Pictures<P> {
    fn ordinary(job: &Job) -> Result<Self> {
        let (width, height, channels) = job.size;
        let ordinary = (0..job.pictures).map(|number| {
            let mut values = vec![P::default(); width * height * channels];
            fill(&mut values, number as u64);
            let results = vec![P::default(); width * height * channels];
            Ok((
                Image::from_vec(values, width, height, channels)?,
                Image::from_vec(results, width, height, channels)?,
            ))
        });
        Ok(Self { ordinary: ordinary.collect::<Result<_>>()?, pinned: Vec::new() })
    }

    fn new(job: &Job) -> Result<Self> {
        if !job.pinned {
            return Self::ordinary(job);
        }
        let gpu = Gpu::open(0)?;
        let (width, height, channels) = job.size;
        let shape = Shape { width, height, channels };
        let pinned = (0..job.pictures).map(|number| {
            let mut source = HostImage::zeroed(&gpu, shape)?;
            fill(source.as_mut_slice(), number as u64);
            Ok((source, HostImage::zeroed(&gpu, shape)?))
        });
        Ok(Self { ordinary: Vec::new(), pinned: pinned.collect::<Result<_>>()? })
    }

    fn run(&mut self, plan: &Plan) -> apron::Result<()> {
        let ordinary = self.ordinary.iter_mut().map(|(src, dst)| (src.view(), dst.view_mut()));
        let pinned = self.pinned.iter_mut().map(|(src, dst)| (src.view(), dst.view_mut()));
        let mut views: Vec<(ImageView<'_, P>, ImageViewMut<'_, P>)> =
            ordinary.chain(pinned).collect();
        match &mut views[..] {
            [(src, dst)] => plan.run(src, dst),
            views => plan.run_batch(views),
        }
    }

    /// A checksum of the results.
    fn checksum(&self) -> u64 {
        let ordinary = self.ordinary.iter().map(|(_, dst)| dst.as_slice());
        let mut hash = xxhash_rust::xxh3::Xxh3::new();
        for values in ordinary.chain(self.pinned.iter().map(|(_, dst)| dst.as_slice())) {
            hash.update(bytemuck::cast_slice(values));
        }
        hash.digest()
    }
}

fn measure<P: Pixel>(job: &Job, quick: bool) -> Result<Timed> {
    let mut pictures = Pictures::<P>::new(job)?;
    let plans = [job.plan(Device::Cpu)?, job.plan(Device::Gpu(0))?, job.plan(Device::Auto)?];
    let mut sums = Vec::new();
    let span = Duration::from_secs_f64(if quick { 0.4 } else { 2.0 });
    for plan in &plans {
        // Long enough for `auto` to try both devices where predictions leave the choice open.
        let least = if plan.device() == Device::Auto { 8 } else { 2 };
        let start = Instant::now();
        for turn in 0.. {
            pictures.run(plan)?;
            let enough = if plan.device() == Device::Auto { span } else { Duration::ZERO };
            if turn + 1 >= least && (start.elapsed() >= enough || turn > 2000) {
                break;
            }
        }
        sums.push(pictures.checksum());
    }
    let exact = job.scalar == Scalar::U8;
    ensure!(
        !exact || sums.iter().all(|sum| *sum == sums[0]),
        "{}: bytes differ between the devices",
        job.name()
    );
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..if quick { 3 } else { 7 } {
        for (plan, times) in plans.iter().zip(&mut times) {
            // Several runs of one plan in a row: the CPU's threads sleep while other plans run.
            let (start, mut runs) = (Instant::now(), 0);
            while runs < 2 || (runs < 50 && start.elapsed() < Duration::from_millis(40)) {
                let start = Instant::now();
                pictures.run(plan)?;
                times.push(start.elapsed());
                runs += 1;
            }
        }
    }
    let ran_on = plans[2].ran_on();
    let [cpu, gpu, auto] = times.map(|times| micros(median(times)));
    Ok(Timed { cpu, gpu, auto, ran_on })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_thirty_jobs_that_can_be_planned() {
        assert_eq!(JOBS.len(), 30);
        for job in JOBS {
            job.plan(Device::Cpu).unwrap();
        }
    }

    #[test]
    fn a_first_call_is_timed() {
        assert!(timed_first::<u8>(&JOBS[0], Device::Cpu).unwrap() > 0.0);
        assert!(first(JOBS.len(), Device::Cpu).is_err());
    }
}
