//! `apron filter`: filters one picture or several.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::num::NonZero;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use apron::{Image, Pixel, Plan, Scalar, Shape};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::FilterArgs;
use crate::failure::{Failure, Result, caught};
use crate::files;
use crate::formats::FileFormat;
use crate::info::why_no_gpu;
use crate::output::report;
use crate::picture::{Picture, Pixels, each};
use crate::replace::{clean_up_on_signals, destination};

/// One picture: the file to read and the file to write.
struct Job {
    input: PathBuf,
    output: PathBuf,
}

pub(crate) fn run(args: Box<FilterArgs>) -> Result {
    let filter = args.choice.filter()?;
    let jobs = jobs(&args)?;
    clean_up_on_signals();
    let plan = Plan::builder(&filter)
        .border(args.border)
        .device(args.device)
        .variant(args.variant)
        .autotune(args.autotune)
        .memory(args.gpu_memory.unwrap_or(u64::MAX))
        .build()?;
    if let Some(error) = plan.fallback().filter(|_| args.verbose) {
        report(&format!("running on the CPU, because there is no GPU: {}", why_no_gpu(error)));
    }
    match &*jobs {
        [job] => job.run(&args, &plan).map(|notes| notes.iter().for_each(|note| report(note))),
        jobs => run_all(&args, &plan, jobs),
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
fn run_all(args: &FilterArgs, plan: &Plan, jobs: &[Job]) -> Result {
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
                    let result = caught(AssertUnwindSafe(|| job.run(args, plan)));
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
    fn run(&self, args: &FilterArgs, plan: &Plan) -> Result<Vec<String>> {
        let format = self.format(args)?;
        let start = Instant::now();
        let document = files::load(&self.input, &args.reading)?;
        let read = start.elapsed();
        format.check_pages(&document).map_err(|reason| Failure::at(&self.output, reason))?;

        let start = Instant::now();
        let document = document.map(|page| self.filtered(page, format, args, plan))?;
        let ran = start.elapsed();

        let start = Instant::now();
        let lost = files::save(&self.output, format, &document, &args.writing)?;
        let written = start.elapsed();

        let mut notes: Vec<_> = document.notes.iter().map(|note| format!("{}: {note}", self.input.display())).collect();
        notes.retain(|_| !args.quiet);
        if let Some(lost) = lost.filter(|_| !args.quiet) {
            notes.push(format!("{}: {lost}", self.output.display()));
        }
        if args.verbose {
            let ms = |time: Duration| time.as_secs_f64() * 1e3;
            let (first, others) = (document.first(), document.pages.len() - 1);
            let shape = first.pixels.shape();
            let channels = shape.channels - usize::from(first.alpha);
            let variant = plan.variant_for(Shape { channels, ..shape })?;
            let others = if others > 0 { format!(" and {others} more") } else { String::new() };
            notes.push(format!(
                "{} -> {}: {}{others}, border {}, {variant} on {}; read {:.1} ms, filter {:.1} ms, write {:.1} ms",
                self.input.display(),
                self.output.display(),
                first.describe(),
                args.border,
                plan.device(),
                ms(read),
                ms(ran),
                ms(written)
            ));
        }
        Ok(notes)
    }

    /// One page, in the type that is written.
    fn filtered(&self, page: Picture, format: &FileFormat, args: &FilterArgs, plan: &Plan) -> Result<Picture> {
        let shape = page.pixels.shape();
        let channels = shape.channels - usize::from(page.alpha);
        let target = args.output_type.unwrap_or(page.pixels.scalar());
        format.check(target, shape.channels).map_err(|reason| Failure::at(&self.output, reason))?;
        let pixels = filtered(plan, &page.pixels, channels, target).map_err(|error| Failure::at(&self.input, error))?;
        // The file's own type, unless another one is asked for.
        let stored = page.stored.filter(|&stored| args.output_type.is_none() && format.stores(stored));
        Ok(Picture { pixels, stored, ..page })
    }
}

/// Filters the first `channels` channels and copies the others, into values of type `target`.
fn filtered(plan: &Plan, src: &Pixels, channels: usize, target: Scalar) -> apron::Result<Pixels> {
    each!(src, src => match target {
        Scalar::U8 => into(plan, src, channels).map(Pixels::U8),
        Scalar::U16 => into(plan, src, channels).map(Pixels::U16),
        Scalar::F16 => into(plan, src, channels).map(Pixels::F16),
        Scalar::F32 => into(plan, src, channels).map(Pixels::F32),
        other => Err(apron::Error::PixelFormat { format: other.to_string() }),
    })
}

fn into<S: Pixel, D: Pixel>(plan: &Plan, src: &Image<S>, channels: usize) -> apron::Result<Image<D>> {
    let shape = src.shape();
    let mut dst = Image::zeroed(shape.width, shape.height, shape.channels)?;
    plan.run_channels(&src.view(), &mut dst.view_mut(), channels)?;
    Ok(dst)
}
