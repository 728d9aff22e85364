//! `apron filter`: filters one picture or several.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::num::NonZero;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use apron::{Pipeline, Shape};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::FilterArgs;
use crate::failure::{Failure, Result, caught};
use crate::files;
use crate::formats::FileFormat;
use crate::info::why_no_gpu;
use crate::output::report;
use crate::picture::Picture;
use crate::replace::{clean_up_on_signals, destination};
use crate::steps::{self, filtered};

/// One picture: the file to read and the file to write.
struct Job {
    input: PathBuf,
    output: PathBuf,
}

pub(crate) fn run(args: Box<FilterArgs>) -> Result {
    let jobs = jobs(&args)?;
    clean_up_on_signals();
    let pipeline = steps::pipeline(&args)?;
    if let Some(error) = pipeline.plans().iter().find_map(|plan| plan.fallback()).filter(|_| args.verbose) {
        report(&format!("running on the CPU, because there is no GPU: {}", why_no_gpu(error)));
    }
    match &*jobs {
        [job] => job.run(&args, &pipeline).map(|notes| notes.iter().for_each(|note| report(note))),
        jobs => run_all(&args, &pipeline, jobs),
    }
}

/// Gives each input its output.
fn jobs(args: &FilterArgs) -> Result<Vec<Job>> {
    let into_folder = args.output.is_dir();
    if args.inputs.len() > 1 && !into_folder {
        let message = format!("several pictures need a folder as output, and {} is none", args.output.display());
        return Err(Failure::usage(message));
    }
    let mut jobs: Vec<Job> = Vec::with_capacity(args.inputs.len());
    let mut sources: HashMap<PathBuf, &Path> = HashMap::new();
    for input in &args.inputs {
        let mut output = args.output.clone();
        if into_folder {
            let name = input.file_name().ok_or_else(|| Failure::at(input, "is a folder; name the files in it"))?;
            output.push(name);
            if let Some(format) = args.format {
                output.set_extension(format.name());
            }
            if let Some(first) = sources.insert(output.clone(), input) {
                return Err(Failure::usage(format!(
                    "{} and {} would both be written to {}",
                    first.display(),
                    input.display(),
                    output.display()
                )));
            }
        }
        jobs.push(Job { input: input.clone(), output });
    }
    Ok(jobs)
}

/// Runs several jobs at a time; a job that fails does not stop the others.
fn run_all(args: &FilterArgs, pipeline: &Pipeline, jobs: &[Job]) -> Result {
    let bar = if args.quiet || !std::io::stderr().is_terminal() {
        ProgressBar::hidden()
    } else {
        let style = ProgressStyle::with_template("{wide_bar} {pos} of {len}, {eta} left");
        ProgressBar::new(jobs.len() as u64).with_style(style.expect("a literal that is well formed"))
    };
    let at_once = match args.jobs {
        Some(jobs) => jobs.into(),
        None => std::thread::available_parallelism().map_or(1, NonZero::get).min(8),
    };
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..at_once.min(jobs.len()) {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // A plan keeps its state in locks, and refuses what a panic left in one, or can use it safely.
                    let result = caught(AssertUnwindSafe(|| job.run(args, pipeline)));
                    bar.suspend(|| match result {
                        Ok(notes) => notes.iter().for_each(|note| report(note)),
                        Err(failure) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            report(&failure.message);
                        }
                    });
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    match failed.into_inner() {
        0 => Ok(()),
        failed => Err(Failure::new(format!("{failed} of {} pictures failed, the others are written", jobs.len()))),
    }
}

impl Job {
    /// The format to write. Fails early if the output cannot be written.
    fn format(&self, args: &FilterArgs) -> Result<&'static FileFormat> {
        let last = self.output.as_os_str().as_encoded_bytes().last();
        if last.is_some_and(|&byte| std::path::is_separator(byte.into())) {
            return Err(Failure::at(&self.output, "there is no such folder"));
        }
        destination(&self.output)?;
        match args.format {
            Some(format) => Ok(format),
            None => FileFormat::from_path(&self.output),
        }
    }

    /// Reads, filters and writes. Returns notes to print.
    fn run(&self, args: &FilterArgs, pipeline: &Pipeline) -> Result<Vec<String>> {
        let format = self.format(args)?;
        let start = Instant::now();
        let picture = files::load(&self.input, &args.limits, args.raw)?;
        let read = start.elapsed();

        let shape = picture.pixels.shape();
        let channels = steps::channels(&picture, args.alpha);
        let target = args.output_type.unwrap_or(picture.pixels.scalar());
        format.check(target, channels).map_err(|reason| Failure::at(&self.output, reason))?;

        let start = Instant::now();
        let pixels =
            filtered(pipeline, &picture, args.alpha, target).map_err(|error| Failure::at(&self.input, error))?;
        let ran = start.elapsed();

        let start = Instant::now();
        let result = Picture { pixels, alpha: picture.alpha && channels == shape.channels, ..picture };
        let lost = files::save(&self.output, format, &result, args.quality)?;
        let written = start.elapsed();

        let mut notes = Vec::new();
        if let Some(lost) = lost.filter(|_| !args.quiet) {
            notes.push(format!("{}: {lost}", self.output.display()));
        }
        if args.verbose {
            let ms = |time: Duration| time.as_secs_f64() * 1e3;
            let variant = steps::variants(pipeline, Shape { channels, ..shape });
            notes.push(format!(
                "{} -> {}: {}, border {}, {variant} on {}; read {:.1} ms, filter {:.1} ms, write {:.1} ms",
                self.input.display(),
                self.output.display(),
                result.describe(),
                args.border,
                pipeline.device(),
                ms(read),
                ms(ran),
                ms(written)
            ));
        }
        Ok(notes)
    }
}
