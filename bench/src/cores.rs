//! `bench cores`: a list of jobs with 1, 2, 4, ... threads. More threads must not be slower.
//!
//! Each number of threads is measured in a process of its own, whose rayon pool has this many
//! threads. This is the pool of a program that sets no limit. A job's time is the median within a
//! process, and the least over several processes. The job breaks the rule if this time exceeds 1.15
//! times the time with fewer threads plus 3 us. Jobs that break the rule are measured again,
//! because the machine may have been slow at that time.
//!
//! With a GPU, some jobs go from ordinary memory through the GPU and back, so that threads copy.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use apron::gpu::Gpu;
use apron::{Alpha, Device, Filter, Image, Layout, Pipeline, Pixel, Plan, Scalar, Shape, Step};
use serde::{Deserialize, Serialize};

use crate::measure::{median, micros, running};
use crate::{output, text};

/// The options of `bench cores`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The most threads; as many as this machine has, unless set.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Only jobs whose name contains this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// How often each number of threads is measured; the least time counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How often jobs that break the rule are then measured again.
    #[arg(long, default_value_t = 2)]
    again: usize,
    /// Also write the results to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measures these jobs in this process, and prints their times as JSON.
    #[arg(long, hide = true, value_delimiter = ',')]
    measure: Vec<usize>,
}

/// The largest allowed ratio of a time with more threads to one with fewer threads.
const LIMIT: f64 = 1.15;

/// Microseconds allowed in addition, for the clock and for the call itself.
const SLACK: f64 = 3.0;

/// Where a job runs.
#[derive(Clone, Copy, PartialEq)]
enum On {
    Cpu,
    /// On the CPU, for as many callers at once as the machine has cores.
    Callers,
    /// From ordinary memory through the GPU and back.
    Gpu,
    /// Pixels to planes of floats in the GPU's memory, and back.
    Planes,
}

/// The columns, rows and channels of a picture, and a filter.
struct Job {
    size: (usize, usize, usize),
    scalar: Scalar,
    /// A filter's or a gradient's text; `#17` stands for 17x17 random taps.
    filter: &'static str,
    /// Whether the last channel is alpha, by which the others are weighted.
    alpha: bool,
    on: On,
}

const fn job(on: On, size: (usize, usize, usize), scalar: Scalar, filter: &'static str) -> Job {
    Job { size, scalar, filter, alpha: false, on }
}

use On::{Callers, Cpu, Planes};
use Scalar::{F32, U8, U16};

/// Pictures of 4 KB to 72 MB, for every algorithm by which the engine shares work among threads.
const JOBS: &[Job] = &[
    job(Cpu, (64, 64, 1), U8, "gaussian:sigma=2"),
    job(Cpu, (256, 256, 1), U8, "gaussian:sigma=2"),
    job(Cpu, (256, 256, 1), F32, "#5"),
    job(Cpu, (512, 512, 1), U8, "gaussian:sigma=2"),
    job(Cpu, (512, 512, 1), U8, "sobel"),
    job(Cpu, (640, 480, 3), U8, "box:size=15"),
    job(Cpu, (640, 480, 1), F32, "#51"),
    job(Cpu, (1024, 1024, 1), U16, "gaussian:sigma=5"),
    job(Cpu, (1920, 1080, 3), U8, "gaussian:sigma=1"),
    job(Cpu, (1920, 1080, 3), U8, "gaussian:sigma=2"),
    job(Cpu, (1920, 1080, 3), U8, "unsharp:sigma=2"),
    job(Cpu, (1920, 1080, 3), U8, "taps:0.5"),
    job(Cpu, (1920, 1080, 3), F32, "gaussian:sigma=5"),
    Job { alpha: true, ..job(Cpu, (1920, 1080, 4), U8, "gaussian:sigma=2") },
    job(Cpu, (2048, 2048, 1), F32, "#17"),
    job(Cpu, (2048, 2048, 1), U8, "#101"),
    job(Cpu, (6000, 4000, 3), U8, "gaussian:sigma=2"),
    job(Cpu, (6000, 4000, 3), U8, "taps:0.5"),
    job(Callers, (256, 256, 1), U8, "gaussian:sigma=2"),
    job(Callers, (512, 512, 3), U8, "gaussian:sigma=2"),
    job(Callers, (1920, 1080, 3), U8, "gaussian:sigma=2"),
    job(On::Gpu, (256, 256, 1), U8, "gaussian:sigma=2"),
    job(On::Gpu, (1920, 1080, 3), U8, "gaussian:sigma=2"),
    job(On::Gpu, (6000, 4000, 3), U8, "gaussian:sigma=2"),
    job(On::Gpu, (8192, 8192, 1), F32, "gaussian:sigma=2"),
    job(Planes, (256, 256, 3), U8, "identity"),
    job(Planes, (6000, 4000, 3), U8, "identity"),
];

impl Job {
    fn name(&self) -> String {
        let (width, height, channels) = self.size;
        let on = match self.on {
            Cpu => "cpu",
            Callers => "cpu, many callers",
            On::Gpu => "gpu",
            Planes => "gpu, planes",
        };
        let alpha = if self.alpha { ", alpha" } else { "" };
        let filter = self.filter.replace('#', "random:size=");
        format!("{width}x{height}x{channels} {}, {filter}{alpha}, {on}", self.scalar)
    }

    fn needs_gpu(&self) -> bool {
        matches!(self.on, On::Gpu | Planes)
    }

    fn step(&self) -> Result<Step> {
        let Some(size) = self.filter.strip_prefix('#') else { return Ok(self.filter.parse()?) };
        let size: usize = size.parse()?;
        let mut rng = fastrand::Rng::with_seed(size as u64);
        let taps: Vec<f64> = (0..size * size).map(|_| rng.f64() / (size * size) as f64).collect();
        Ok(Filter::from_taps_f64(size, size, &taps)?.into())
    }

    fn measure(&self) -> Result<Time> {
        match self.scalar {
            U8 => self.measured::<u8>(),
            U16 => self.measured::<u16>(),
            _ => self.measured::<f32>(),
        }
    }

    fn measured<P: Pixel>(&self) -> Result<Time> {
        let (width, height, channels) = self.size;
        let mut rng = fastrand::Rng::with_seed(5);
        let pixels = (0..width * height * channels).map(|_| P::from_f32(rng.u8(..).into()));
        let src = Image::from_vec(pixels.collect(), width, height, channels)?;
        let result = || Image::<P>::zeroed(width, height, channels);
        let device = if self.on == On::Gpu { Device::Gpu(0) } else { Device::Cpu };
        let plan = Pipeline::new(vec![Plan::builder(self.step()?).device(device).build()?])?;
        let call = |dst: &mut Image<P>| match self.alpha {
            true => plan.run_with_alpha(&src.view(), &mut dst.view_mut(), Alpha::Premultiply),
            false => plan.run(&src.view(), &mut dst.view_mut()),
        };
        match self.on {
            Cpu | On::Gpu => {
                let mut dst = result()?;
                timed(1, || Ok(call(&mut dst)?))
            }
            Callers => {
                let callers = cores();
                let mut all = (0..callers).map(|_| result()).collect::<apron::Result<Vec<_>>>()?;
                timed(ROUND * callers, || {
                    std::thread::scope(|scope| {
                        let call = |dst: &mut Image<P>| (0..ROUND).try_for_each(|_| call(dst));
                        let callers: Vec<_> =
                            all.iter_mut().map(|dst| scope.spawn(move || call(dst))).collect();
                        let mut joined = callers.into_iter().map(|caller| caller.join());
                        joined.try_for_each(|outcome| {
                            Ok(outcome.map_err(|_| anyhow::anyhow!("a caller panicked"))??)
                        })
                    })
                })
            }
            Planes => {
                let gpu = Gpu::open(0)?;
                let mut planes =
                    gpu.image_of(Shape { width, height, channels }, F32, Layout::Planar)?;
                timed(1, || {
                    gpu.upload_into(&src.view(), &mut planes)?;
                    gpu.download(&planes)?;
                    Ok(())
                })
            }
        }
    }
}

/// Consecutive calls of each concurrent caller, so that starting its thread costs little.
const ROUND: usize = 16;

/// A job's time with a number of threads.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Time {
    us: f64,
    /// How many cores the process kept busy meanwhile, if the system reports it.
    cores: Option<f64>,
}

/// The median time of a call, after a warm-up. Each `run` makes `calls` calls.
fn timed(calls: usize, mut run: impl FnMut() -> Result<()>) -> Result<Time> {
    /// The least duration of the warm-up, and of the timed runs (`SPAN`).
    const LEAD: Duration = Duration::from_millis(60);
    const SPAN: Duration = Duration::from_millis(120);
    let begin = Instant::now();
    run()?;
    while begin.elapsed() < LEAD {
        run()?;
    }
    let (begin, before, mut times) = (Instant::now(), running().ok(), Vec::new());
    while times.len() < 3 || begin.elapsed() < SPAN {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed());
    }
    let took = begin.elapsed().as_secs_f64();
    let ran = before.and_then(|before| running().ok()?.checked_sub(before));
    Ok(Time {
        us: micros(median(times)) / calls as f64,
        cores: ran.map(|ran| ran.as_secs_f64() / took),
    })
}

/// A job's times, by the number of threads.
#[derive(Debug, Serialize)]
struct Row {
    job: String,
    times: Vec<(usize, Time)>,
    /// How the job breaks the rule, if it does.
    broken: Option<String>,
}

impl Row {
    fn add(&mut self, threads: usize, time: Time) {
        match self.times.iter_mut().find(|(known, _)| *known == threads) {
            Some((_, known)) if known.us > time.us => *known = time,
            Some(_) => {}
            None => self.times.push((threads, time)),
        }
    }

    fn judge(&mut self) {
        let mut best: Option<(usize, f64)> = None;
        self.broken = None;
        for &(threads, Time { us, .. }) in &self.times {
            match best {
                Some((fewer, least)) if us > LIMIT * least + SLACK => {
                    let ratio = text::number(us / least);
                    self.broken =
                        Some(format!("{threads} threads take {ratio} times as long as {fewer}"));
                }
                Some((_, least)) if us >= least => {}
                _ => best = Some((threads, us)),
            }
        }
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// 1, 2, 4 and so on below `most`, then `most`.
fn counts(most: usize) -> Vec<usize> {
    let mut counts: Vec<_> =
        (0..).map(|power| 1 << power).take_while(|&count| count < most).collect();
    counts.push(most);
    counts
}

/// Runs the benchmark, and prints a table.
///
/// # Errors
/// Device and memory errors; a job that takes longer with more threads.
pub fn run(options: &Options) -> Result<()> {
    if !options.measure.is_empty() {
        let jobs =
            options.measure.iter().map(|&number| JOBS.get(number).context("there is no such job"));
        let times: Vec<Time> = jobs.map(|job| job?.measure()).collect::<Result<_>>()?;
        return output::print(&serde_json::to_string(&times)?);
    }
    let most = options.threads.unwrap_or_else(cores);
    ensure!(most > 0 && options.rounds > 0, "a thread and a round are needed");
    let gpu = Gpu::open(0);
    let jobs: Vec<_> = (0..JOBS.len())
        .filter(|&number| JOBS[number].name().contains(&options.only))
        .filter(|&number| gpu.is_ok() || !JOBS[number].needs_gpu())
        .collect();
    ensure!(
        !jobs.is_empty(),
        "no job that can run here has a name that contains \"{}\"",
        options.only
    );
    let row = |&number: &usize| Row { job: JOBS[number].name(), times: Vec::new(), broken: None };
    let mut rows: Vec<Row> = jobs.iter().map(row).collect();
    let counts = counts(most);
    for round in 0..options.rounds + options.again {
        // The first rounds measure all jobs, later rounds only jobs that break the rule.
        let is_due = |row: &Row| round < options.rounds || row.broken.is_some();
        let due: Vec<usize> = (0..rows.len()).filter(|&row| is_due(&rows[row])).collect();
        if due.is_empty() {
            break;
        }
        let numbers: Vec<usize> = due.iter().map(|&row| jobs[row]).collect();
        for &threads in &counts {
            for (&row, time) in due.iter().zip(times(threads, &numbers)?) {
                rows[row].add(threads, time);
            }
        }
        rows.iter_mut().for_each(Row::judge);
    }
    output::print(&table(&counts, &rows, &gpu))?;
    if let Some(path) = &options.json {
        output::write(path, output::json(&rows)?.as_bytes())?;
    }
    let broken = rows.iter().filter(|row| row.broken.is_some()).count();
    ensure!(broken == 0, "{broken} of {} jobs take longer with more threads", rows.len());
    output::print(&format!("none of {} jobs takes longer with more threads\n", rows.len()))
}

/// The times of these jobs, in a process with `threads` threads.
fn times(threads: usize, jobs: &[usize]) -> Result<Vec<Time>> {
    let numbers: Vec<_> = jobs.iter().map(usize::to_string).collect();
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["cores", "--measure", &numbers.join(",")])
        .env("RAYON_NUM_THREADS", threads.to_string());
    let told = command.output().context("starting a process")?;
    let why = String::from_utf8_lossy(&told.stderr);
    ensure!(told.status.success(), "with {threads} threads: {}", why.trim());
    let times: Vec<Time> =
        serde_json::from_slice(&told.stdout).context("reading what a process printed")?;
    ensure!(times.len() == jobs.len(), "a process measured {} of {} jobs", times.len(), jobs.len());
    Ok(times)
}

fn table(counts: &[usize], rows: &[Row], gpu: &apron::Result<Gpu>) -> String {
    let place = match gpu {
        Ok(gpu) => gpu.info().name.clone(),
        Err(_) => "no GPU".to_owned(),
    };
    let mut header: Vec<String> = vec!["job, us by threads".into()];
    header.extend(counts.iter().map(usize::to_string));
    header.extend(["cores busy".into(), String::new()]);
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let lines = rows.iter().map(|row| {
        let mut line = vec![row.job.clone()];
        line.extend(row.times.iter().map(|(_, time)| text::number(time.us)));
        let busy = row.times.last().and_then(|(_, time)| time.cores);
        line.push(busy.map_or_else(String::new, |busy| format!("{busy:.1}")));
        line.push(row.broken.clone().unwrap_or_default());
        line
    });
    format!(
        "{} cores, {place}; \"cores busy\": with the most threads\n{}",
        cores(),
        text::table(&header, 1, lines)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(times: &[f64]) -> Row {
        let mut row = Row { job: String::new(), times: Vec::new(), broken: None };
        for (power, &us) in times.iter().enumerate() {
            row.add(1 << power, Time { us, cores: None });
        }
        row.judge();
        row
    }

    #[test]
    fn more_threads_that_are_slower_are_found() {
        for right in
            [&[1000.0, 1000.0, 1100.0][..], &[1000.0, 600.0, 660.0], &[5.0, 8.0], &[1000.0]]
        {
            assert_eq!(row(right).broken, None, "{right:?}");
        }
        for wrong in
            [&[1000.0, 1200.0][..], &[1000.0, 500.0, 600.0, 400.0], &[52.0, 57.0, 105.0, 2551.0]]
        {
            assert!(row(wrong).broken.is_some(), "{wrong:?}");
        }
        assert_eq!(
            row(&[52.0, 57.0, 105.0]).broken.unwrap(),
            "4 threads take 2.02 times as long as 1"
        );
        // The least of several times counts.
        let mut again = row(&[1000.0, 1200.0]);
        again.add(2, Time { us: 900.0, cores: None });
        again.judge();
        assert_eq!(again.broken, None);
    }

    #[test]
    fn threads_double_up_to_the_most() {
        for (most, expected) in
            [(1, &[1][..]), (2, &[1, 2]), (12, &[1, 2, 4, 8, 12]), (16, &[1, 2, 4, 8, 16])]
        {
            assert_eq!(counts(most), expected);
        }
    }

    #[test]
    fn every_job_has_a_plan_and_a_name_of_its_own() {
        let mut names: Vec<_> = JOBS.iter().map(Job::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), JOBS.len());
        for job in JOBS {
            Plan::builder(job.step().unwrap()).device(Device::Cpu).build().unwrap();
        }
    }
}
