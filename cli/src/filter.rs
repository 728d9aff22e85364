//! `apron filter`: filters one picture or several.

use std::fs;
use std::io::IsTerminal;
use std::num::NonZero;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use apron::{Device, Filter, Step};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::FilterArgs;
use crate::chunks::Array;
use crate::extra::{ByAlpha, Meaning};
use crate::failure::{Failure, Result, caught};
use crate::formats::{FileFormat, VIDEO};
use crate::info::why_no_gpu;
use crate::jobs::{self, Job};
use crate::light::Linear;
use crate::masks::{self, Known};
use crate::notes::{self, Note};
use crate::output::report;
use crate::picture::{Document, Picture, Pixels, Stored};
use crate::replace::clean_up_on_signals;
use crate::scaling::{Cut, Scaling, is_integer, may_give_nan, nans, white};
use crate::steps;
use crate::task::Task;
use crate::volume::Volume;
use crate::{codec, files, frames, stream, video};

/// The outcome for a picture that did not fail.
enum Done {
    /// The result is written: the notes for the user, and the line of `--verbose`.
    Written(Vec<Note>, Option<String>),
    /// The result exists, and `--skip-existing` is set.
    Skipped,
}

pub(crate) fn run(mut args: Box<FilterArgs>) -> Result {
    let steps = args.choice.steps()?;
    let differs = matches!(steps.last(), Some(Step::Filter(filter)) if is_derivative(filter));
    let is_angle = matches!(steps.last(), Some(Step::Gradient(gradient)) if gradient.is_angle());
    let jobs = jobs::jobs(&args)?;
    if args.format.is_none() {
        args.format = video_format(&jobs)?;
    }
    check_options(&args, &jobs)?;
    clean_up_on_signals();
    let watched = !args.quiet && std::io::stderr().is_terminal();
    let is_video = |job: &Job| {
        args.format.or(FileFormat::from_path(&job.output).ok()).is_some_and(FileFormat::is_video)
    };
    let streams = |job: &Job| args.frames || stream::is_streamed(&job.input) || is_video(job);
    if args.every_frame && !jobs.iter().any(streams) {
        return Err(Failure::usage(
            "--every-frame is for frames: y4m video, pipes and --frames; leave it out",
        ));
    }
    if args.volume.is_some() && jobs.iter().any(streams) {
        return Err(Failure::usage(
            "--volume is for files of slices: leave it out for y4m video, pipes and --frames",
        ));
    }
    let bar = match &*jobs {
        [job] if watched && !streams(job) => Some(steps::bar_of_one()),
        _ => None,
    };
    let light = Linear::unless_said(&args);
    let pipeline = steps::pipeline(steps.clone(), args.border, (&args, light), bar.as_ref())?;
    let pipeline = Arc::new(pipeline);
    let fallback = || pipeline.plans()[0].fallback().filter(|_| args.verbose);
    let begins_on_cpu = fallback().inspect(|error| {
        report(&format!("running on the CPU, because there is no GPU: {}", why_no_gpu(error)));
    });
    if pipeline.device() == Device::Cpu && !args.quiet {
        let ignored = [(args.autotune, "--autotune"), (args.gpu_memory.is_some(), "--gpu-memory")];
        for (_, option) in ignored.iter().filter(|(given, _)| *given) {
            report(&format!("{option} has no effect, because the CPU filters"));
        }
    }
    let bar = match bar {
        Some(bar) => bar,
        // The number of frames is not known: a stream may have no end.
        None if watched && jobs.len() == 1 => {
            if args.every_frame {
                frames::bar()
            } else {
                ProgressBar::hidden()
            }
        }
        None if watched => {
            let style = ProgressStyle::with_template("{wide_bar} {pos} of {len}, {eta} left");
            ProgressBar::new(jobs.len() as u64)
                .with_style(style.expect("a literal that is well formed"))
        }
        None => ProgressBar::hidden(),
    };
    let task = Task {
        args: &args,
        steps: &steps,
        pipeline: &pipeline,
        lights: Mutex::default(),
        mask: masks::load(&args)?,
        volume: Volume::new(&args, &steps)?,
        differs,
        is_angle,
        bar: &bar,
        notes: Mutex::default(),
        frames_at_once: frames_at_once(&args, jobs.len()),
    };
    let outcome = run_all(&task, &jobs);
    if let (None, Some(error)) = (begins_on_cpu, fallback()) {
        report(&format!(
            "the CPU was used, because the GPU could not be used: {}",
            why_no_gpu(error)
        ));
    }
    outcome
}

/// The format for standard output where none is given: a video stays one.
fn video_format(jobs: &[Job]) -> Result<Option<&'static FileFormat>> {
    let [job] = jobs else { return Ok(None) };
    let begins = || {
        stream::begins_with(&job.input, video::MAGIC)
            .map_err(|error| Failure::at(&job.input, error))
    };
    Ok(if stream::is_stream(&job.output) && begins()? { Some(VIDEO) } else { None })
}

/// Refuses options that contradict the output's name, or that would have no effect.
fn check_options(args: &FilterArgs, jobs: &[Job]) -> Result {
    let named = |job: &Job| FileFormat::from_path(&job.output).ok();
    if let (Some(format), [job]) = (args.format, jobs)
        && let Some(other) = named(job).filter(|other| other.name() != format.name())
    {
        return Err(Failure::usage(format!(
            "{} is named as {}, but --format says {}: leave --format out, or name the file .{}",
            job.output.display(),
            other.name(),
            format.name(),
            format.name()
        )));
    }
    let is_video = |job: &Job| args.format.or(named(job)).is_some_and(FileFormat::is_video);
    masks::check_option(args, jobs.iter().any(is_video))?;
    if args.linear.is_some() && jobs.iter().any(is_video) {
        let reason = "--linear is for grey and RGB, and y4m has luma and chroma: leave it out, or let \
                      ffmpeg make pictures";
        return Err(Failure::usage(reason));
    }
    let writing = &args.writing;
    for (given, option, format, kind) in [
        (writing.quality.is_some(), "--quality", "jpg", "JPEG"),
        (writing.subsampling.is_some(), "--subsampling", "jpg", "JPEG"),
        (writing.compression.is_some(), "--compression", "tif", "TIFF"),
    ] {
        let mut formats = jobs.iter().filter_map(|job| args.format.or(named(job)));
        if given && !formats.any(|it| it.name() == format) {
            let name = jobs[0].output.display();
            return Err(Failure::usage(format!(
                "{option} is for {kind}, and {name} is not one: leave it out"
            )));
        }
    }
    Ok(())
}

/// Whether the taps sum to 0 or less, as a derivative's do. Integer types then lose about half of
/// the results.
fn is_derivative(filter: &Filter) -> bool {
    let taps =
        (0..filter.rows()).flat_map(|row| (0..filter.cols()).map(move |col| filter.tap(row, col)));
    let (sum, weight) = taps.fold((0.0, 0.0), |(sum, weight), tap| (sum + tap, weight + tap.abs()));
    sum <= 1e-6 * weight && weight > 0.0
}

/// One job for each core, as long as each has a GiB of memory for a picture and its result. The
/// limit of 32 saves GPU memory: more lanes are of no use.
fn jobs_at_once() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let gibibytes =
        fs::read_to_string("/proc/meminfo").ok().and_then(|text| available(&text)).unwrap_or(8);
    cores.min(gibibytes).clamp(1, 32)
}

/// The memory available to programs in GiB, from Linux's `/proc/meminfo`.
fn available(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes >> 20)
}

/// Threads for one stream of frames. Each holds a frame in memory. Eight decode, filter and encode
/// as fast as a pipe delivers frames.
fn frames_at_once(args: &FilterArgs, jobs: usize) -> usize {
    match (args.jobs, jobs) {
        (Some(jobs), 1) => jobs.into(),
        (None, 1) => jobs_at_once().clamp(2, 8),
        _ => 2,
    }
}

/// Runs several jobs at a time; a job that fails does not stop the others.
fn run_all(task: &Task<'_>, jobs: &[Job]) -> Result {
    let (args, bar) = (task.args, task.bar);
    let at_once = args.jobs.map_or_else(jobs_at_once, usize::from);
    let next = AtomicUsize::new(0);
    let (failures, skipped) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    let work = || {
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            // Unwinding is safe: a plan keeps its state in locks. After a panic it refuses the
            // locked state, or can use it.
            match caught(AssertUnwindSafe(|| task.run(job))) {
                Ok(Done::Written(found, line)) => {
                    let mut notes = task.notes.lock().unwrap_or_else(PoisonError::into_inner);
                    found.into_iter().for_each(|note| notes.add(&job.output, note));
                    if let Some(line) = line {
                        bar.suspend(|| report(&line));
                    }
                }
                Ok(Done::Skipped) => {
                    skipped.fetch_add(1, Ordering::Relaxed);
                }
                Err(failure) => {
                    // With a single job, the caller reports the failure.
                    if jobs.len() > 1 {
                        bar.suspend(|| report(&failure.message));
                    }
                    failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
                }
            }
            // The bar of a single picture counts pixels instead.
            if jobs.len() > 1 {
                bar.inc(1);
            }
        }
    };
    match at_once.min(jobs.len()) {
        1 => work(),
        at_once => std::thread::scope(|scope| (0..at_once).for_each(|_| drop(scope.spawn(work)))),
    }
    bar.finish_and_clear();
    if !args.quiet {
        task.notes.lock().unwrap_or_else(PoisonError::into_inner).report();
        match skipped.into_inner() {
            0 => {}
            skipped => report(&format!(
                "{skipped} of {} pictures left out: their results exist",
                jobs.len()
            )),
        }
    }
    let mut failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    match (failures.pop(), failures.len() + 1, jobs.len()) {
        (None, ..) => Ok(()),
        (Some(failure), 1, 1) => Err(failure),
        (_, failed, all) if failed == all => {
            Err(Failure::new(format!("none of the {all} pictures was written")))
        }
        (_, failed, all) => {
            Err(Failure::new(format!("{failed} of {all} pictures failed; the others are done")))
        }
    }
}

impl Task<'_> {
    /// Reads, filters and writes.
    fn run(&self, job: &Job) -> Result<Done> {
        let args = self.args;
        let Job { input, output, .. } = job;
        let Some(format) = self.format(job)? else {
            return Ok(Done::Skipped);
        };
        if format.is_video() {
            return video::run(self, job).map(|()| Done::Written(Vec::new(), None));
        }
        if args.frames || stream::is_streamed(input) {
            return frames::run(self, job, format).map(|()| Done::Written(Vec::new(), None));
        }
        if let Some(done) = self.in_chunks(job, format)? {
            return Ok(done);
        }
        let start = Instant::now();
        let document = files::load(input, &args.reading)?;
        let mut notes: Vec<_> = document.notes.iter().cloned().map(Note::Text).collect();
        notes.extend(self.left_over(job));
        let read = start.elapsed();

        let start = Instant::now();
        // The variants that ran, without repetition: pages may differ.
        let mut ran = Vec::new();
        let document = self.filtered(document, job, format, (&mut notes, &mut ran))?;
        let filtered = start.elapsed();

        let start = Instant::now();
        if let Some(folder) = output.parent().filter(|_| job.in_folder) {
            fs::create_dir_all(folder).map_err(|error| Failure::at(folder, error))?;
        }
        let lost = files::save(output, format, &document, &args.writing)?;
        let written = start.elapsed();

        notes.extend(lost.map(Note::Text));
        let line = args.verbose.then(|| self.line(job, &document, &ran, [read, filtered, written]));
        Ok(Done::Written(notes, line))
    }

    /// A note on the data in a file after the picture.
    fn left_over(&self, job: &Job) -> Option<Note> {
        if self.args.quiet || self.args.reading.raw.is_some() {
            return None;
        }
        Some(files::left_over(&job.input)).filter(|left| !left.is_empty()).map(Note::Left)
    }

    /// Filters all pages of a document into the type to write. Adds to the notes, and to the list
    /// of variants that ran.
    pub(crate) fn filtered(
        &self,
        document: Document,
        job: &Job,
        format: &FileFormat,
        (notes, ran): (&mut Vec<Note>, &mut Vec<String>),
    ) -> Result<Document> {
        let fail = |reason: String| Failure::at(&job.input, reason);
        let chosen = self.args.channels.as_ref();
        let mut document = if format.holds_inks() {
            document
        } else {
            let in_rgb = document.map(Picture::in_rgb);
            in_rgb.map_err(|error| Failure::at(&job.input, error))?
        };
        if let Some(chosen) = chosen {
            chosen.check(&document.pages).map_err(fail)?;
        }
        if !format.holds_names() {
            let before = document.notes.len();
            document = document.shown(chosen, format.name(), format.holds).map_err(fail)?;
            document.notes.drain(before..).for_each(|text| note(notes, text));
        }
        format.check_pages(&document).map_err(|reason| Failure::at(&job.output, reason))?;
        if let Some(volume) = &self.volume {
            document = volume.filter(document, job)?;
            ran.push(volume.ran());
        }
        document.map(|page| self.page(page, job, format, (&mut *notes, &mut *ran)))
    }

    /// The line of `--verbose`: the variants that ran, and the times to read, filter and write.
    pub(crate) fn line(
        &self,
        job: &Job,
        document: &Document,
        ran: &[String],
        [read, filtered, written]: [Duration; 3],
    ) -> String {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let (first, more) = (document.first(), document.pages.len() - 1);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!(
            "{} -> {}: {}{more}, border {}, {}; read {:.1} ms, filter {:.1} ms, write {:.1} ms",
            job.input.display(),
            job.output.display(),
            first.describe(),
            self.args.border,
            ran.join("; "),
            ms(read),
            ms(filtered),
            ms(written)
        )
    }

    /// Whether to count negative results that a type without negative values clamps.
    fn counts_cuts(&self, unsigned: bool) -> bool {
        self.differs && unsigned && !self.args.scaling.handles_negatives() && !self.args.quiet
    }

    /// # Errors
    /// [`apron::Error::Parameter`] if results are angles and the file's own type is an integer
    /// type.
    fn check_holds_angles(&self, stored: Option<Stored>) -> apron::Result<()> {
        match stored.filter(|stored| self.is_angle && stored.is_integer()) {
            Some(stored) => Err(apron::Error::Parameter {
                name: "the type of the results",
                value: stored.name().to_owned(),
                expected: "f32 or f16 for angles: use --output-type f32".to_owned(),
            }),
            None => Ok(()),
        }
    }

    /// Filters a large array from file to file, if no step needs the whole array at once.
    fn in_chunks(&self, job: &Job, format: &FileFormat) -> Result<Option<Done>> {
        let args = self.args;
        if self.steps.len() > 1 {
            return Ok(None);
        }
        if args.channels.is_some() || self.volume.is_some() {
            return Ok(None);
        }
        let Some(array) =
            Array::open(&job.input, args).filter(|array| array.goes_into(format, &args.writing))
        else {
            return Ok(None);
        };
        let target = args.output_type.unwrap_or(array.scalar);
        let is_plain = matches!(
            args.scaling.finish(array.scalar, target, ByAlpha::AsTheyAre),
            Ok((None, None))
        );
        let Meaning { treated, extras, .. } =
            Meaning::of(array.shape.channels, &array.extras, args.alpha);
        let held = format.check(target, array.shape.channels - extras.len(), &extras).is_ok();
        // Counting clamped values needs all sums in memory.
        if !is_plain || treated.is_some() || self.counts_cuts(is_integer(target)) || !held {
            return Ok(None);
        }
        if let Some(folder) = job.output.parent().filter(|_| job.in_folder) {
            fs::create_dir_all(folder).map_err(|error| Failure::at(folder, error))?;
        }
        let start = Instant::now();
        let (shape, scalar) = (array.shape, array.scalar);
        let pipeline =
            self.pipeline_of(&array.meta).map_err(|reason| Failure::at(&job.input, reason))?;
        let plan = &pipeline.plans()[0];
        let mut notes = array.filter(plan, target, &job.output, format)?;
        notes.extend(self.left_over(job));
        let line = args.verbose.then(|| {
            format!(
                "{} -> {}: {shape} {scalar} in chunks, border {}, {}; {:.1} ms",
                job.input.display(),
                job.output.display(),
                args.border,
                steps::ran(&pipeline),
                start.elapsed().as_secs_f64() * 1e3
            )
        });
        Ok(Some(Done::Written(notes, line)))
    }

    /// Filters one page into the type to write: all channels, or those that `--channels` names.
    /// Adds to the notes, and to the list of variants that ran.
    fn page(
        &self,
        mut page: Picture,
        job: &Job,
        format: &FileFormat,
        lists: (&mut Vec<Note>, &mut Vec<String>),
    ) -> Result<Picture> {
        let args = self.args;
        let fail = |reason: String| Failure::at(&job.input, reason);
        let held = |scalar, colours, extras: &_| {
            let checked = format.check(scalar, colours, extras);
            checked.map_err(|reason| Failure::at(&job.output, reason))
        };
        let source = page.scalar();
        let chosen = args.channels.as_ref().map(|chosen| chosen.of(&page));
        let Some(chosen) = chosen.filter(|chosen| chosen.contains(&false)) else {
            let (channels, colours) = (page.pixels.shape().channels, page.colours());
            let meaning = Meaning::of(channels, &page.extras, args.alpha);
            held(args.output_type.unwrap_or(source), colours, &meaning.extras)?;
            return self.results(page, meaning, job, format, lists);
        };
        if !chosen.contains(&true) && !page.named.is_empty() {
            return Ok(page);
        }
        held(source, page.colours(), &page.extras)?;
        if page.extras.iter().any(|&extra| format.alpha(extra) != extra) {
            return Err(fail(format!(
                "--channels copies the other channels, and {} has another kind of alpha: write \
                 the input's format",
                format.name()
            )));
        }
        if args.output_type.is_some_and(|target| target != source) {
            return Err(fail(
                "--channels copies the other channels as they are: leave --output-type out"
                    .to_owned(),
            ));
        }
        if !chosen.contains(&true) {
            return Ok(page);
        }
        let part = page.picked(&chosen).map_err(fail)?;
        let meaning = Meaning::of(part.pixels.shape().channels, &part.extras, args.alpha);
        let result = self.results(part, meaning, job, format, lists)?;
        if result.stored != page.stored || !page.replace(&chosen, &result.pixels) {
            return Err(fail(
                "--channels copies the other channels as they are, so the results must have \
                 their type: leave out --alpha drop and flatten, and --scale"
                    .to_owned(),
            ));
        }
        if args.scaling != Scaling::default() {
            page.meta.values_changed();
        }
        Ok(page)
    }

    /// Filters all channels of a picture into the type to write.
    fn results(
        &self,
        page: Picture,
        meaning: Meaning,
        job: &Job,
        format: &FileFormat,
        (notes, ran): (&mut Vec<Note>, &mut Vec<String>),
    ) -> Result<Picture> {
        let args = self.args;
        let failed = |error| Failure::at(&job.input, error);
        let last = page.pixels.shape().channels - 1;
        let fail = |reason: String| Failure::at(&job.input, reason);
        if args.linear.is_some() && page.colours() == 4 {
            return Err(fail("--linear is for grey and RGB, and this is CMYK: write a format without inks, such as png".to_owned()));
        }
        let pipeline = &self.pipeline_of(&page.meta).map_err(fail)?;
        let source = page.scalar();
        let target = args.output_type.unwrap_or(source);
        let (by_alpha, said) = format.meets(&meaning);
        let (finish, scaled) = args
            .scaling
            .finish(source, target, by_alpha)
            .map_err(|reason| Failure::usage(format!("{}: {reason}", job.input.display())))?;
        for text in said.into_iter().chain(scaled) {
            note(notes, text);
        }
        // The library takes alpha as the last channel.
        let mut pixels = page.pixels;
        meaning.treated.iter().for_each(|&(at, _)| pixels.move_channel(at, last));
        let treated = meaning.treated.map(|(_, kind)| (kind, args.alpha));
        // The file's own type is kept, unless the user asks for another type or for a range of 0
        // to 1.
        let own = args.output_type.is_none() && !args.scaling.sets_range();
        let stored = page.stored.filter(|&stored| own && format.stores(stored));
        if let Some(wide) = page.stored.filter(|_| own && stored.is_none()) {
            note(
                notes,
                format!(
                    "{} became {target}, because {} cannot hold {0}",
                    wide.name(),
                    format.name()
                ),
            );
        }
        self.check_holds_angles(stored).map_err(failed)?;
        let mut noted = |results: apron::Result<Pixels>| {
            let results = results.map_err(failed)?;
            let launched = steps::ran(pipeline);
            if !ran.contains(&launched) {
                ran.push(launched);
            }
            Ok::<_, Failure>(results)
        };
        let known = Known::of(args, self.mask.as_ref(), &page.meta);
        if known.as_ref().is_some_and(|known| known.nodata.is_some()) && self.steps.len() > 1 {
            let reason =
                "the file has a nodata value: --nan ignore and fill are then for a single --filter";
            return Err(Failure::at(&job.input, reason));
        }
        let all_sums = || match &known {
            Some(known) => known.filter(pipeline, &pixels, treated, None),
            None => steps::sums(pipeline, &pixels, treated),
        };
        let counts = self.counts_cuts(stored.map_or(is_integer(target), Stored::is_unsigned));
        let integers = stored.map_or(is_integer(target), Stored::is_integer);
        let counts_nan = integers && !args.quiet && may_give_nan(&pixels);
        let sums =
            if counts || counts_nan || finish.is_some() { Some(noted(all_sums())?) } else { None };
        // Alpha is not scaled with the other channels.
        let channels = last + usize::from(meaning.treated.is_none());
        let mut result = match (&finish, &sums, stored) {
            (Some(finish), Some(sums), _) => finish
                .apply(sums, channels, Some(target).filter(|_| stored.is_none()))
                .map_err(failed)?,
            (_, _, Some(_)) => noted(all_sums())?,
            _ => noted(match &known {
                Some(known) => known.filter(pipeline, &pixels, treated, Some(target)),
                None => steps::filtered(pipeline, &pixels, treated, target),
            })?,
        };
        if let (Some((at, _)), Some(_)) = (meaning.treated, meaning.kept) {
            result.move_channel(last, at);
        }
        let loses = match &sums {
            Some(Pixels::F32(sums)) => by_alpha.loses(sums),
            Some(Pixels::F64(sums)) => by_alpha.loses(sums),
            _ => false,
        };
        if loses {
            let text = format!(
                "colour where alpha is 0 (a glow) became black: {} holds only straight alpha",
                format.name()
            );
            note(notes, text);
        }
        if let Some((count @ 1.., total)) = sums.as_ref().filter(|_| counts_nan).map(nans) {
            notes::add(notes, Note::Nan { count, total });
        }
        if let Some(sums) = sums.filter(|_| counts) {
            let factor = finish.map_or(1.0, |finish| finish.factor(target));
            let cut =
                Cut::of(&sums, channels, factor, stored.map_or(white(target), Stored::greatest));
            let known = notes
                .iter()
                .any(|note| matches!(note, Note::Cut(known) if known.middle == cut.middle));
            // If one page has clamped values, all pages count towards the total.
            if known || cut.below > 0 {
                notes::add(notes, Note::Cut(cut));
            }
        }
        let mut named = page.named;
        if let (Some((at, _)), None, false) = (meaning.treated, meaning.kept, named.is_empty()) {
            named.remove(at);
        }
        if args.output_type.is_some() || stored != page.stored {
            let kind = codec::sample_type(target, stored);
            named.iter_mut().for_each(|it| it.channel.sample_type = kind);
        }
        let extras = meaning.extras.into_iter().map(|extra| format.alpha(extra)).collect();
        let mut meta = page.meta;
        if finish.is_some() || target != source || stored != page.stored {
            meta.values_changed();
        }
        Ok(Picture { pixels: result, stored, sums_of: None, extras, named, meta, ..page })
    }
}

/// Adds a note, once.
fn note(notes: &mut Vec<Note>, text: String) {
    let note = Note::Text(text);
    if !notes.contains(&note) {
        notes.push(note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_in_gibibytes() {
        let text = "MemTotal:       16316412 kB\nMemFree:          412340 kB\nMemAvailable:    9437184 kB\n";
        assert_eq!(available(text), Some(9));
        assert_eq!(available("MemTotal: 1 kB"), None);
        assert!(jobs_at_once() >= 1);
    }

    #[test]
    fn derivatives_are_told_from_blurs() {
        let is = |text: &str| is_derivative(&text.parse().unwrap());
        for text in ["sobel-x", "laplacian", "log:sigma=2", "taps:-1 1", "taps:-1", "scharr-y"] {
            assert!(is(text), "{text}");
        }
        for text in ["gaussian:2", "sharpen", "emboss", "unsharp:sigma=2", "identity", "taps:0"] {
            assert!(!is(text), "{text}");
        }
    }
}
