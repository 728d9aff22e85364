//! `bench plan`: a list of jobs, each measured beside the time that a plan predicts for it.
//!
//! On the CPU, a job's time is the least of several calls of `Plan::run`. On a GPU, it is the time
//! of the kernels on pictures in its memory, the median of several rounds. Predictions hold for the
//! machines that they were measured on: an H200, the 16 cores of its host, and two cores with
//! AVX-512. So this is no test for other machines.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use apron::gpu::Gpu;
use apron::{
    Accuracy, Border, Candidate, Device, Filter, Image, Layout, Light, Plan, PlanBuilder, Scalar,
    Shape, Variant, f16,
};
use serde::Serialize;

use crate::cases::{Form, Random};
use crate::measure::{self, Bed, median, micros};
use crate::{output, text};

/// The options of `bench plan`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Where to run: cpu or gpu:N; may be given more than once. The CPU, and the first GPU if there
    /// is one, unless set.
    #[arg(long)]
    device: Vec<Device>,
    /// Only jobs whose text contains this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Measure this job instead of the list, such as "gaussian:sigma=2 1920x1080x3 u8 f32": a
    /// filter, or random:N for N by N random taps; the size, with the channels; the stored type;
    /// the results' type, if it is another; "window" or "range", if an accuracy is set; "linear" to
    /// filter light, or "none" for that border. May be given more than once.
    #[arg(long, value_name = "TEXT")]
    job: Vec<String>,
    /// Also measure every other variant that is predicted to take less than ten times as long as
    /// the chosen one.
    #[arg(long)]
    every_variant: bool,
    /// On the CPU, count the time that the threads were running, divided by their number: for
    /// machines with other load. Linux only.
    #[arg(long)]
    cpu_time: bool,
    /// How often each is measured at least.
    #[arg(long, default_value_t = 5)]
    turns: usize,
    /// The greatest factor between a measured and a predicted time.
    #[arg(long, default_value_t = 2.0)]
    within: f64,
    /// Also write the results to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The jobs: every family, type and number of channels, small, middle and large windows and
/// pictures.
#[rustfmt::skip]
const JOBS: [&str; 62] = [
    // Small windows.
    "random:3 2048x2048 u8", "random:3 1920x1080x3 u8", "random:3 4000x3000x3 u8", "random:3 2048x2048 f32",
    "random:3 1920x1080x3 u16", "random:5 2048x2048 u8", "random:5 1920x1080x4 u8", "random:5 2048x2048 f16",
    "random:5 2048x2048x2 u8", "random:5 4000x3000 f32", "random:9 2048x2048 u8", "random:9 1920x1080x3 f32",
    "sobel-x 4000x3000x3 u8", "sobel-x 2048x2048 u8 f32", "laplacian 1920x1080 u8 f32",
    "emboss 640x480x3 u8", "sharpen 4000x3000x3 u8", "motion:length=15,angle=30 1920x1080x3 u8",
    // Small pictures.
    "random:3 64x64 u8", "gaussian:sigma=2 64x64 u8", "gaussian:sigma=2 256x256 u8", "gaussian:sigma=2 256x256x3 f32",
    "gaussian:sigma=20 256x256 u8", "random:17 256x256 u8", "box:size=5 256x256x3 u8", "random:51 512x512 f32",
    // Separable filters.
    "gaussian:sigma=0.5 1920x1080x3 u8", "gaussian:sigma=1 2048x2048 u8", "gaussian:sigma=2 1920x1080x3 u8",
    "gaussian:sigma=2 6000x4000x3 u8", "gaussian:sigma=2 4000x3000x3 u16", "gaussian:sigma=2 2048x2048 f32",
    "gaussian:sigma=2 2048x2048x3 u8 f32", "gaussian:sigma=2 2048x2048 f16", "gaussian:sigma=4 4000x3000x3 u8",
    "gaussian:sigma=5 2048x2048 f32", "gaussian:sigma=10 2048x2048 u8", "gaussian:sigma=10 1920x1080x3 u8 f32",
    "gaussian:sigma=20 1920x1080x3 u8", "gaussian:sigma=20 2048x2048 f32", "gaussian:sigma=50 1920x1080x3 u8",
    "gaussian:sigma=50 1920x1080 f32", "gaussian:sigma=20 4096x4096 f32 range", "gaussian:sigma=100 4096x4096 u16 range", "gaussian:sigma=100 1024x1024 u8", "sobel-x:size=31 2048x2048 u8 f32",
    // Equal taps.
    "box:size=5 4000x3000x3 u8", "box:size=31 2048x2048 u8", "box:size=101 1920x1080x3 u8", "box:size=31 2048x2048 f32",
    "box:size=401 2048x2048 u8",
    // Sums of separable filters.
    "unsharp:sigma=2 1920x1080x3 u8", "unsharp:sigma=5 2048x2048 u8", "unsharp:sigma=20 1024x1024x3 u8",
    "log:sigma=3 2048x2048 u8",
    // Large windows.
    "random:17 2048x2048 u8", "random:17 2048x2048 f32", "random:31 2048x2048 f32", "random:31 1024x1024x3 u8",
    "random:51 2048x2048 u8", "random:101 2048x2048 f32", "random:301 1024x1024 u8",
];

/// A job.
struct Job {
    filter: Filter,
    shape: Shape,
    source: Scalar,
    target: Scalar,
    accuracy: Option<Accuracy>,
    light: Light,
    border: Border,
}

impl Job {
    fn builder(&self) -> PlanBuilder {
        Plan::builder(&self.filter).light(self.light.clone()).border(self.border)
    }

    fn parse(text: &str) -> Result<Self> {
        let mut parts: Vec<_> = text.split_whitespace().collect();
        let is_none = parts.last() == Some(&"none");
        parts.truncate(parts.len() - usize::from(is_none));
        let border = if is_none { Border::None } else { Border::default() };
        let light = parts.last().and_then(|last| last.parse().ok());
        parts.truncate(parts.len() - usize::from(light.is_some()));
        let accuracy = parts.last().and_then(|last| last.parse().ok());
        parts.truncate(parts.len() - usize::from(accuracy.is_some()));
        ensure!(
            matches!(parts.len(), 3 | 4),
            "a job is a filter, a size, one or two types, and maybe an accuracy, and light or none"
        );
        let filter = match parts[0].strip_prefix("random:") {
            Some(taps) => Form::Random.filter(taps.parse()?, true)?,
            None => parts[0].parse()?,
        };
        let size: Vec<usize> = parts[1].split('x').map(str::parse).collect::<Result<_, _>>()?;
        ensure!(matches!(size.len(), 2 | 3), "a size is WxH or WxHxC");
        let shape =
            Shape { width: size[0], height: size[1], channels: size.get(2).copied().unwrap_or(1) };
        let source: Scalar = parts[2].parse()?;
        let target = parts.get(3).map_or(Ok(source), |target| target.parse())?;
        let light = light.unwrap_or_default();
        Ok(Self { filter, shape, source, target, accuracy, light, border })
    }
}

/// A measured time.
#[derive(Debug, Serialize)]
struct Row {
    job: String,
    device: String,
    threads: usize,
    cols: usize,
    rows: usize,
    variant: &'static str,
    chosen: bool,
    measured_us: f64,
    predicted_us: f64,
}

/// Runs the benchmark, and prints a table.
///
/// # Errors
/// A text that names no job; device and memory errors; a time too far from its prediction.
pub fn run(options: &Options) -> Result<()> {
    let devices = match &options.device[..] {
        [] if Gpu::open(0).is_ok() => vec![Device::Cpu, Device::Gpu(0)],
        [] => vec![Device::Cpu],
        devices => devices.to_vec(),
    };
    let jobs: Vec<&str> = match &options.job[..] {
        [] => JOBS.into_iter().filter(|job| job.contains(&options.only)).collect(),
        jobs => jobs.iter().map(String::as_str).collect(),
    };
    let mut rows = Vec::new();
    for &device in &devices {
        for text in &jobs {
            let job = Job::parse(text).with_context(|| format!("{text:?}"))?;
            measured(options, text, &job, device, &mut rows)
                .with_context(|| format!("{text} on {device}"))?;
        }
    }
    ensure!(!rows.is_empty(), "nothing is left to measure");
    let ratio = |row: &Row| row.measured_us / row.predicted_us;
    let off =
        |row: &&Row| row.chosen && !(1.0 / options.within..=options.within).contains(&ratio(row));
    let header =
        ["device", "job", "variant", "measured us", "predicted us", "measured / predicted", ""];
    let lines = rows.iter().map(|row| {
        let verdict = if off(&row) { "missed" } else { "" };
        let [measured, predicted] = [row.measured_us, row.predicted_us].map(text::number);
        let device = row.device.clone();
        let ratio = text::number(ratio(row));
        vec![
            device,
            row.job.clone(),
            row.variant.to_owned(),
            measured,
            predicted,
            ratio,
            verdict.to_owned(),
        ]
    });
    output::print(&text::table(&header, 3, lines))?;
    if let Some(path) = &options.json {
        output::write(path, output::json(&rows)?.as_bytes())?;
    }
    let missed = rows.iter().filter(off).count();
    let chosen = rows.iter().filter(|row| row.chosen).count();
    ensure!(
        missed == 0,
        "{missed} of {chosen} times are not within a factor of {} of the prediction",
        options.within
    );
    output::print(&format!(
        "all {chosen} times are within a factor of {} of the prediction\n",
        options.within
    ))
}

/// Measures the chosen variant of a job, and others if asked for.
fn measured(
    options: &Options,
    text: &str,
    job: &Job,
    device: Device,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let plan = job.builder().accuracy(job.accuracy).device(device).build()?;
    let candidates = plan.candidates_for(job.shape, job.source, job.target);
    let Some(Candidate { predicted: Some(best), .. }) = candidates.first() else { return Ok(()) };
    let most = best.saturating_mul(10);
    for (index, candidate) in candidates.iter().enumerate() {
        let Some(predicted) =
            candidate.predicted.filter(|&time| index == 0 || options.every_variant && time <= most)
        else {
            continue;
        };
        let time = match (job.source, job.target) {
            (Scalar::U8, Scalar::U8) => timed::<u8, u8>(options, job, device, candidate.variant),
            (Scalar::U8, Scalar::F32) => timed::<u8, f32>(options, job, device, candidate.variant),
            (Scalar::U16, Scalar::U16) => {
                timed::<u16, u16>(options, job, device, candidate.variant)
            }
            (Scalar::U16, Scalar::F32) => {
                timed::<u16, f32>(options, job, device, candidate.variant)
            }
            (Scalar::F16, Scalar::F16) => {
                timed::<f16, f16>(options, job, device, candidate.variant)
            }
            (Scalar::F32, Scalar::F32) => {
                timed::<f32, f32>(options, job, device, candidate.variant)
            }
            (source, target) => anyhow::bail!("{source} to {target} is not measured"),
        };
        rows.push(Row {
            job: text.to_owned(),
            device: device.to_string(),
            threads: rayon::current_num_threads(),
            cols: job.filter.cols(),
            rows: job.filter.rows(),
            variant: candidate.variant.name(),
            chosen: index == 0,
            measured_us: micros(time?),
            predicted_us: micros(predicted),
        });
    }
    Ok(())
}

/// The time of a variant.
fn timed<S: Random, D: Random>(
    options: &Options,
    job: &Job,
    device: Device,
    variant: Variant,
) -> Result<Duration> {
    /// The runs of a job on the CPU take at least this long together.
    const SPAN: Duration = Duration::from_millis(60);
    let plan = job.builder().device(device).variant(variant).build()?;
    let Shape { width, height, channels } = job.shape;
    let mut random = fastrand::Rng::with_seed(1);
    let pixels: Vec<S> = (0..width * height * channels).map(|_| S::random(&mut random)).collect();
    let src = Image::from_vec(pixels, width, height, channels)?;
    if let Device::Gpu(ordinal) = device {
        let gpu = Gpu::open(ordinal)?;
        // The layouts that a plan uses: f32 as planes, other types interleaved.
        let (source, layout) = if S::SCALAR == Scalar::F32 {
            (gpu.upload(&src.view())?, Layout::Planar)
        } else {
            (gpu.upload_stored(&src.view())?, Layout::Interleaved)
        };
        let mut bed = Bed::between(&gpu, &source, &gpu.image_of(job.shape, D::SCALAR, layout)?)?;
        let turns = options.turns.max(1);
        return Ok(median(
            bed.times(turns, |src, dst, stream| plan.run_on_device(src, dst, stream))?,
        ));
    }
    let mut dst = Image::<D>::zeroed(width, height, channels)?;
    let mut run = || plan.run(&src.view(), &mut dst.view_mut());
    run()?;
    let (begin, mut least, mut turns) = (Instant::now(), Duration::MAX, 0);
    while turns < options.turns || begin.elapsed() < SPAN {
        turns += 1;
        let start = Instant::now();
        if !options.cpu_time {
            run()?;
            least = least.min(start.elapsed());
            continue;
        }
        let (before, mut runs) = (measure::running()?, 0);
        while runs == 0 || start.elapsed() < SPAN {
            run()?;
            runs += 1;
        }
        let threads = rayon::current_num_threads() as u32;
        least = least.min((measure::running()? - before) / runs / threads);
    }
    Ok(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_of_the_list_has_a_predicted_time() {
        for text in JOBS {
            let job = Job::parse(text).unwrap();
            let plan = Plan::builder(&job.filter).device(Device::Cpu).build().unwrap();
            for candidates in [
                plan.candidates_for(job.shape, job.source, job.target),
                plan.candidates_on(&apron::GpuModel::H200, job.shape, job.source, job.target),
            ] {
                assert!(
                    candidates[0].predicted.is_some_and(|time| time > Duration::ZERO),
                    "{text}"
                );
            }
        }
        assert!(Job::parse("gaussian:sigma=2 64x64").is_err());
        assert!(Job::parse("gaussian:sigma=2 64 u8").is_err());
    }
}
