//! y4m (YUV4MPEG2): video without compression, for pipes between programs.
//!
//! One thread reads frames. A few others filter them, and write the results in order:
//!
//! ```text
//! one thread:   wait for the memory of a frame that was written, read the next frame into it
//! each other:   take a frame; filter each plane that has a filter into a buffer of its own;
//!               wait until all frames before are written; write line, then plane by plane
//! ```
//!
//! So a stream may be endless: memory holds as many frames as there are threads, and two more. A
//! plane that is copied is written from the buffer into which it was read.
//!
//! Nothing joins the thread that reads: it may wait for a pipe whose writer never writes again,
//! after the reader of the results is gone.

mod header;
mod planes;
mod queue;

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use apron::{ImageView, ImageViewMut, Pixel};
use bytemuck::Pod;

pub(crate) use self::header::MAGIC;
use self::header::{Fault, Header, Plane};
use self::planes::Filters;
use self::queue::{End, Frame, Queue};
use crate::args::FilterArgs;
use crate::codec::zeroes;
use crate::failure::{Failure, Result, caught};
use crate::frames::Progress;
use crate::jobs::Job;
use crate::notes::Note;
use crate::output::report;
use crate::replace::replace;
use crate::task::Task;
use crate::{files, steps, stream};

/// Bytes of the input to buffer. Samples go around this buffer, except for the first of a frame.
const BUFFER: usize = 1 << 12;

/// Frames in memory beside one for each thread: one that is read and one that is ready.
const AHEAD: usize = 2;

/// The error for a y4m stream that is read as a picture.
pub(crate) fn not_a_picture() -> String {
    "is a y4m video, which is written as y4m alone: name the output .y4m or give --format y4m; \
     ffmpeg makes pictures of a video"
        .to_owned()
}

/// Reads, filters and writes all frames of a video. Adds notes for the user to those of the task.
pub(crate) fn run(task: &Task<'_>, job: &Job) -> Result {
    check_options(task)?;
    let source: Box<dyn io::Read + Send> = match stream::is_streamed(&job.input) {
        true => stream::open(&job.input)?,
        false => Box::new(files::open(&job.input)?.into_inner()),
    };
    let mut input = BufReader::with_capacity(BUFFER, source);
    let fail = |reason: String| Failure::at(&job.input, reason);
    let header = Header::read(&mut input, &task.args.reading.limits).map_err(fail)?;
    let header = header.ok_or_else(|| {
        fail(
            "is no y4m, and y4m is written from y4m alone: ffmpeg -i IN -f yuv4mpegpipe OUT.y4m \
             makes it"
                .to_owned(),
        )
    })?;
    let (filters, notes) = Filters::of(task, &header)?;
    let write = |out: &mut (dyn Write + Send)| {
        let parts = Parts { task, job, header: &header, filters: &filters };
        match header.sampling.bits {
            8 => parts.flow::<u8>(input, out, None),
            16 => parts.flow::<u16>(input, out, None),
            bits => parts.flow::<u16>(input, out, Some(u16::MAX >> (16 - bits))),
        }
    };
    if stream::is_streamed(&job.output) {
        write(&mut *stream::create(&job.output)?)?;
    } else {
        if let Some(folder) = job.output.parent().filter(|_| job.in_folder) {
            fs::create_dir_all(folder).map_err(|error| Failure::at(folder, error))?;
        }
        replace(&job.output, |out: &mut BufWriter<&File>| write(out))?;
    }
    let mut all = task.notes.lock().unwrap_or_else(PoisonError::into_inner);
    notes.into_iter().for_each(|text| all.add(&job.output, Note::Text(text)));
    Ok(())
}

/// Refuses options that are for pictures.
fn check_options(task: &Task<'_>) -> Result {
    let FilterArgs { reading, scaling, output_type, channels, .. } = task.args;
    for (given, option) in [
        (reading.raw.is_some(), "--raw"),
        (reading.axes.is_some(), "--axes"),
        (reading.page.is_some(), "--page"),
        (output_type.is_some(), "--output-type"),
        (channels.is_some(), "--channels"),
        (scaling.scale.is_some(), "--scale"),
        (scaling.normalize, "--normalize"),
        (scaling.offset.is_some(), "--offset"),
        (scaling.abs, "--abs"),
    ] {
        if given {
            return Err(Failure::usage(format!(
                "{option} is for pictures, and y4m has planes of luma and chroma: leave it out, or \
                 pass pictures through the pipe (ffmpeg -f image2pipe -c:v ppm)"
            )));
        }
    }
    if task.is_angle {
        return Err(Failure::usage(
            "y4m holds integers, and angles need f32: filter pictures instead, with --output-type \
             f32",
        ));
    }
    Ok(())
}

/// One video.
struct Parts<'a> {
    task: &'a Task<'a>,
    job: &'a Job,
    header: &'a Header,
    filters: &'a Filters<'a>,
}

/// The threads' view of one video.
struct Flow<'a, 'out, P> {
    parts: &'a Parts<'a>,
    planes: Vec<Plane>,
    /// The greatest sample, if the type has greater ones. The library clamps to the type.
    greatest: Option<P>,
    queue: Arc<Queue<P>>,
    out: Mutex<&'out mut (dyn Write + Send)>,
    failure: Mutex<Option<Failure>>,
    progress: Progress<'a>,
}

impl Parts<'_> {
    /// Reads, filters and writes all frames.
    fn flow<P: Pixel + Pod + Ord>(
        &self,
        mut input: BufReader<Box<dyn io::Read + Send>>,
        out: &mut (dyn Write + Send),
        greatest: Option<P>,
    ) -> Result {
        let planes = self.header.planes();
        let samples = planes.last().map_or(0, |plane| plane.at.end);
        let threads = self.task.frames_at_once;
        let queue = Arc::new(Queue::new(threads + AHEAD));
        let reads = queue.clone();
        std::thread::spawn(move || reads.read(&mut input, samples));
        let (out, failure) = (Mutex::new(out), Mutex::new(None));
        let progress = Progress::new(self.task, self.job);
        let flow = Flow { parts: self, planes, greatest, queue, out, failure, progress };
        std::thread::scope(|scope| {
            (0..threads).for_each(|_| drop(scope.spawn(|| flow.work())));
        });
        flow.finish()
    }
}

impl<P: Pixel + Pod + Ord> Flow<'_, '_, P> {
    /// Processes frames until none is left.
    fn work(&self) {
        let mut results = Vec::new();
        while let Some(frame) = self.queue.take() {
            let start = Instant::now();
            // Unwinding is safe: a plan keeps its state in locks. After a panic it refuses the
            // locked state, or can use it.
            let filtered = caught(AssertUnwindSafe(|| self.filter(&frame, &mut results)));
            let took = start.elapsed();
            if !self.queue.turn(frame.number) {
                return;
            }
            let written = filtered.and_then(|ran| {
                let start = Instant::now();
                let open = self.write(&frame, &results)?;
                let line = || self.line(&frame, &ran, [took, start.elapsed()]);
                if open && self.parts.task.args.verbose {
                    self.parts.task.bar.suspend(|| report(&line()));
                }
                if open {
                    self.progress.report(frame.number);
                }
                Ok(open)
            });
            match written {
                Ok(true) => self.queue.written(frame),
                Ok(false) => return self.queue.stop(),
                Err(failure) => {
                    let failure = self.named(frame.number, &failure.message);
                    *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
                    return self.queue.stop();
                }
            }
        }
    }

    /// Filters a frame into this thread's memory for results, which the first frame allocates.
    /// Returns the variants that ran.
    fn filter(&self, frame: &Frame<P>, results: &mut Vec<P>) -> Result<String> {
        if results.is_empty() {
            *results = zeroes(frame.samples.len()).map_err(Failure::new)?;
        }
        let mut ran = String::new();
        for plane in &self.planes {
            let Some(pipeline) = self.parts.filters.of_plane(plane) else { continue };
            let (width, height) = (plane.width, plane.height);
            let results = &mut results[plane.at.clone()];
            pipeline.run(
                &ImageView::new(&frame.samples[plane.at.clone()], width, height, 1)?,
                &mut ImageViewMut::new(results, width, height, 1)?,
            )?;
            if ran.is_empty() {
                ran = steps::ran(pipeline);
            }
            if let Some(greatest) = self.greatest {
                results.iter_mut().for_each(|value| *value = (*value).min(greatest));
            }
            queue::in_this_machines_order(results);
        }
        Ok(ran)
    }

    /// Writes a frame. Returns false if the reader of the results is gone.
    fn write(&self, frame: &Frame<P>, results: &[P]) -> Result<bool> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let written = (|| {
            if frame.number == 1 {
                out.write_all(&self.parts.header.line)?;
            }
            out.write_all(&frame.line)?;
            for plane in &self.planes {
                let filtered = self.parts.filters.of_plane(plane).is_some();
                let from = if filtered { results } else { &frame.samples[..] };
                out.write_all(bytemuck::cast_slice(&from[plane.at.clone()]))?;
            }
            out.flush()
        })();
        self.is_open(written)
    }

    /// A reader that stops early is no failure.
    fn is_open(&self, written: io::Result<()>) -> Result<bool> {
        match written {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(Failure::at(&self.parts.job.output, error)),
        }
    }

    /// The line of `--verbose` for a frame.
    fn line(&self, frame: &Frame<P>, ran: &str, [filtered, written]: [Duration; 2]) -> String {
        let Parts { task, job, header, .. } = self.parts;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        format!(
            "frame {}: {} -> {}: {}x{} {}, border {}, {ran}; filter {:.1} ms, write {:.1} ms",
            frame.number,
            job.input.display(),
            job.output.display(),
            header.width,
            header.height,
            header.sampling.name,
            task.args.border,
            ms(filtered),
            ms(written)
        )
    }

    /// A failure with a frame.
    fn named(&self, number: usize, reason: &str) -> Failure {
        Failure::at(&self.parts.job.input, format!("frame {number}: {reason}"))
    }

    /// The outcome, once all frames are written or one has failed.
    fn finish(self) -> Result {
        if let Some(failure) = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(failure);
        }
        let (written, end) = self.queue.outcome();
        let Parts { task, job, header, .. } = self.parts;
        match end {
            // The output is closed.
            None => return Ok(()),
            Some(End::At(number, Fault::Damaged(reason))) => {
                return Err(self.named(number, &reason));
            }
            Some(End::At(number, Fault::Cut(reason))) if !task.args.reading.lenient => {
                return Err(self.named(number, &format!("{reason}; --lenient leaves it out")));
            }
            Some(End::At(number, Fault::Cut(reason))) => {
                let text = format!("frame {number} is left out: {reason}");
                let mut notes = task.notes.lock().unwrap_or_else(PoisonError::into_inner);
                notes.add(&job.output, Note::Text(text));
            }
            Some(End::Whole) => {}
        }
        // A video without frames.
        if written == 0 {
            let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
            let written = out.write_all(&header.line).and_then(|()| out.flush());
            self.is_open(written)?;
        }
        Ok(())
    }
}
