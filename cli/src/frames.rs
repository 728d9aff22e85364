//! Frames: pictures of one format that follow one another, on a pipe or in a file (`--frames`).
//!
//! A few threads share the work. Each finds the next frame in the input, then decodes, filters and
//! encodes it while the others work on their frames. It writes the result once all earlier frames
//! are written:
//!
//! ```text
//! lock the input:  walk to the end of the next frame, keep its bytes
//! decode, filter, encode
//! lock the output: wait until it is this frame's turn, write, flush
//! ```
//!
//! So a stream may be endless, memory holds at most one frame for each thread, and a pipe that
//! pauses after a frame gets that frame's result first. The first frame is processed alone: no
//! output is opened before one picture has been read.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use tempfile::{SpooledData, SpooledTempFile};

use crate::args::FilterArgs;
use crate::codec;
use crate::codec::options::Raw;
use crate::ends::{self, Bytes, Input, Kind, Left, spool};
use crate::failure::{Failure, Result, caught};
use crate::formats::FileFormat;
use crate::jobs::Job;
use crate::notes::{Note, Notes};
use crate::output::report;
use crate::replace::replace;
use crate::task::Task;
use crate::{files, stream, video};

/// Size of the encoder's buffer, in bytes.
const BUFFER: usize = 1 << 18;

/// A progress bar for one stream of frames (`--every-frame`).
pub(crate) fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("frame {pos}, {msg} frames/s");
    ProgressBar::no_length().with_style(style.expect("a literal that is well formed"))
}

/// Reports the progress of one stream of frames, with `--every-frame`.
pub(crate) struct Progress<'a> {
    task: &'a Task<'a>,
    job: &'a Job,
    start: Instant,
}

impl<'a> Progress<'a> {
    /// Of a stream that begins now.
    pub(crate) fn new(task: &'a Task<'a>, job: &'a Job) -> Self {
        Self { task, job, start: Instant::now() }
    }

    /// Says that the first `frames` frames are written.
    pub(crate) fn report(&self, frames: usize) {
        let Self { task, job, start } = self;
        if !task.args.every_frame {
            return;
        }
        let rate = frames as f64 / start.elapsed().as_secs_f64();
        // The bar of several inputs has a length, as it counts them.
        if task.bar.length().is_none() && !task.bar.is_hidden() {
            task.bar.set_position(frames as u64);
            task.bar.set_message(format!("{rate:.1}"));
        } else {
            let (input, output) = (job.input.display(), job.output.display());
            task.bar.suspend(|| {
                report(&format!("frame {frames}: {input} -> {output}: {rate:.1} frames/s"));
            });
        }
    }
}

/// The bytes of one frame.
struct Frame {
    /// Counted from 1.
    number: usize,
    data: SpooledTempFile,
    /// Whether the input ends before the frame does.
    cut: bool,
    /// Whether `data` is the rest of the input, in which the decoder must find the picture.
    whole: bool,
}

/// A frame's result.
struct Made {
    data: SpooledTempFile,
    notes: Vec<Note>,
    line: Option<String>,
}

/// Finds the frames of an input.
struct Reader {
    input: Input,
    /// The format of all frames; `None` before the first, and for formats without an end of their
    /// own.
    kind: Option<Kind>,
    /// Bytes of a frame without a header (`--raw`).
    raw: Option<u64>,
    /// Whether the user says that the input holds frames alone (`--frames`).
    marked: bool,
    /// Frames begun.
    frames: usize,
    ended: bool,
    /// Data that belongs to no frame.
    left: Left,
    /// The offset of the last frame in the input.
    start: u64,
    /// Offsets, from `start`, of further pictures that a JPEG lists as its own.
    behind: Vec<u64>,
}

impl Reader {
    /// The next frame; an error if the bytes that follow are no frame. `None` is the end.
    fn next(&mut self) -> Option<Result<Frame, String>> {
        if self.ended {
            return None;
        }
        let found = if self.frames == 0 { self.first().map(Some) } else { self.following() };
        self.ended |= !matches!(found, Ok(Some(_)));
        found.map_err(|error| error.to_string()).transpose()
    }

    fn first(&mut self) -> io::Result<Frame> {
        if self.raw.is_some() {
            return self.walk();
        }
        let start = self.input.peek(video::MAGIC.len())?;
        if start == video::MAGIC {
            return Err(io::Error::other(video::not_a_picture()));
        }
        let found = Kind::next(&mut self.input)?;
        self.kind = found.filter(|kind| kind.ends_itself());
        if let (true, None) = (self.marked, self.kind) {
            let what = found.map_or("file", Kind::name);
            return Err(io::Error::other(format!(
                "this {what} does not say where one picture ends and the next begins: leave --frames out"
            )));
        }
        self.walk()
    }

    /// Skips data that is no frame, up to the next frame.
    fn following(&mut self) -> io::Result<Option<Frame>> {
        if self.raw.is_some() {
            let ended = self.input.peek(1)?.is_empty();
            return if ended { Ok(None) } else { self.walk().map(Some) };
        }
        let Some(kind) = self.kind else { return Ok(None) };
        loop {
            self.left.zeros(ends::pass_padding(&mut self.input, kind)?);
            if self.input.peek(1)?.is_empty() {
                return Ok(None);
            }
            let here = self.input.position();
            let found = Kind::next(&mut self.input)?;
            match found {
                Some(next) if next == kind && !self.behind.contains(&(here - self.start)) => {
                    return self.walk().map(Some);
                }
                // A part of the frame before: a JPEG's further picture, or a motion photo's video.
                Some(next) if next == kind || next == Kind::Video => {
                    ignore_end(next.walk(&mut self.input))?;
                    self.left.part(next, self.input.position() - here);
                }
                Some(other) => {
                    let (other, kind) = (other.name(), kind.name());
                    return Err(io::Error::other(format!(
                        "a {other} begins here, but the frames before it are {kind}: all frames must have one format"
                    )));
                }
                // Unknown data after a single picture is a trailer; in a stream, it means damage.
                None if self.frames == 1 && !self.marked => {
                    self.left.unknown(self.input.drain()?);
                    return Ok(None);
                }
                None => {
                    return Err(io::Error::other(format!(
                        "no {} picture begins here: the stream is damaged, or a picture has a trailer",
                        kind.name()
                    )));
                }
            }
        }
    }

    /// Keeps the frame that begins here.
    fn walk(&mut self) -> io::Result<Frame> {
        self.frames += 1;
        self.start = self.input.position();
        self.input.keep();
        let (mut cut, mut whole) = (false, false);
        let walked = match (self.raw.filter(|_| self.marked), self.kind) {
            (Some(bytes), _) => Some(self.input.skip(bytes)),
            (None, kind) => kind.map(|kind| kind.walk(&mut self.input)),
        };
        match walked {
            Some(Ok(())) => {}
            Some(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.input.drain()?;
                cut = true;
            }
            Some(Err(error)) if self.frames > 1 || error.kind() != io::ErrorKind::InvalidData => {
                return Err(error);
            }
            // If the data is damaged, the decoder gives the better error.
            None | Some(Err(_)) => {
                self.input.drain()?;
                whole = true;
            }
        }
        self.ended = cut || whole;
        let mut data = self.input.kept()?;
        if self.kind == Some(Kind::Jpeg) {
            self.behind = ends::pictures_behind(&mut BufReader::new(&mut data));
            data.rewind()?;
        }
        Ok(Frame { number: self.frames, data, cut, whole })
    }
}

fn ignore_end(walked: io::Result<()>) -> io::Result<()> {
    walked.or_else(
        |error| if error.kind() == io::ErrorKind::UnexpectedEof { Ok(()) } else { Err(error) },
    )
}

/// Takes the results in order.
struct Writer<'a> {
    out: &'a mut (dyn Write + Send),
    /// The number of the frame to write next.
    next: usize,
    failure: Option<Failure>,
    /// Whether the output's reader has gone.
    closed: bool,
    notes: Notes,
}

/// One stream of frames, shared by the threads that work on it.
struct Stream<'a> {
    task: &'a Task<'a>,
    job: &'a Job,
    format: &'static FileFormat,
    reader: &'a Mutex<Reader>,
    /// Wakes a thread that waits for the input.
    wake: SyncSender<io::Result<Vec<u8>>>,
    writer: Mutex<Writer<'a>>,
    turn: Condvar,
    stopped: AtomicBool,
    progress: Progress<'a>,
}

/// Reads, filters and writes all frames of an input. Adds notes for the user to those of the task.
pub(crate) fn run(task: &Task<'_>, job: &Job, format: &'static FileFormat) -> Result {
    let args = task.args;
    let progress = Progress::new(task, job);
    let (input, wake) = Input::of_pipe(match stream::is_streamed(&job.input) {
        true => stream::open(&job.input)?,
        false => Box::new(files::open(&job.input)?.into_inner()),
    });
    let reader = Mutex::new(Reader {
        input,
        kind: None,
        raw: args.reading.raw.map(Raw::bytes),
        marked: args.frames,
        frames: 0,
        ended: false,
        left: Left::default(),
        start: 0,
        behind: Vec::new(),
    });
    let (number, first) =
        next(&reader, job).expect("an input without bytes is a frame without bytes");
    let first = first.and_then(|frame| made(task, job, format, frame));
    let first = first.map_err(|failure| named(failure, job, number, args))?;
    let rest = |out: &mut (dyn Write + Send)| {
        let writer = Writer { out, next: 1, failure: None, closed: false, notes: Notes::default() };
        let (writer, turn, stopped) = (Mutex::new(writer), Condvar::new(), AtomicBool::new(false));
        let (reader, wake) = (&reader, wake.clone());
        Stream { task, job, format, reader, wake, writer, turn, stopped, progress }.finish(first)
    };
    if stream::is_streamed(&job.output) {
        return rest(&mut *stream::create(&job.output)?);
    }
    if let Some(folder) = job.output.parent().filter(|_| job.in_folder) {
        fs::create_dir_all(folder).map_err(|error| Failure::at(folder, error))?;
    }
    replace(&job.output, |out: &mut BufWriter<&File>| rest(out))
}

/// The number of the next frame, and its bytes.
fn next(reader: &Mutex<Reader>, job: &Job) -> Option<(usize, Result<Frame>)> {
    let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
    let before = reader.frames;
    let frame = reader.next()?;
    Some((before + 1, frame.map_err(|reason| Failure::at(&job.input, reason))))
}

/// Adds the frame's number to a failure.
fn named(failure: Failure, job: &Job, number: usize, args: &FilterArgs) -> Failure {
    if number == 1 && !args.frames {
        return failure;
    }
    let message = match [&job.input, &job.output].into_iter().find_map(|path| {
        let rest = failure.message.strip_prefix(&*path.to_string_lossy())?.strip_prefix(": ")?;
        Some((path, rest))
    }) {
        Some((path, reason)) => format!("{}: frame {number}: {reason}", path.display()),
        None => format!("{}: frame {number}: {}", job.input.display(), failure.message),
    };
    Failure { message, ..failure }
}

/// Decodes, filters and encodes a frame.
fn made(task: &Task<'_>, job: &Job, format: &'static FileFormat, frame: Frame) -> Result<Made> {
    let reading = &task.args.reading;
    let fail = |reason: String| Failure::at(&job.input, reason);
    // Raw frames all have the size that the user gives.
    let follows = format.follows() || reading.raw.is_some() && format.is_raw();
    if frame.number > 1 && !follows {
        let reason = format!(
            "{} cannot hold a second picture here; write {}",
            format.name(),
            FileFormat::that_follow()
        );
        return Err(Failure::at(&job.output, reason));
    }
    if frame.cut && frame.number > 1 && !reading.lenient && reading.raw.is_none() {
        return Err(fail(
            "it is cut off: the input ends before the picture does; --lenient keeps what can be read".to_owned(),
        ));
    }
    let start = Instant::now();
    let extension = job.input.extension().and_then(|extension| extension.to_str());
    let mut source = BufReader::new(frame.data);
    let document = codec::read(&mut source, extension, reading).map_err(fail)?;
    let mut notes: Vec<_> = document.notes.iter().cloned().map(Note::Text).collect();
    if frame.whole && reading.raw.is_none() {
        let left = ends::left_over(source.into_inner(), extension);
        notes.extend((!left.is_empty()).then_some(Note::Left(left)));
    }
    let read = start.elapsed();

    let start = Instant::now();
    let mut ran = Vec::new();
    let document = task.filtered(document, job, format, (&mut notes, &mut ran))?;
    let filtered = start.elapsed();

    let start = Instant::now();
    let mut data = spool();
    let mut out = BufWriter::with_capacity(BUFFER, &mut data);
    notes.extend(
        files::encode(&job.output, format, &document, &mut out, &task.args.writing)?
            .map(Note::Text),
    );
    out.flush()
        .and_then(|()| out.seek(SeekFrom::Start(0)))
        .map_err(|error| Failure::at(&job.output, error))?;
    drop(out);
    let written = start.elapsed();

    let line = task.args.verbose.then(|| {
        let line = task.line(job, &document, &ran, [read, filtered, written]);
        if frame.number > 1 || task.args.frames {
            format!("frame {}: {line}", frame.number)
        } else {
            line
        }
    });
    Ok(Made { data, notes, line })
}

impl Stream<'_> {
    /// Writes the first frame and works on all others.
    fn finish(self, first: Made) -> Result {
        if self.deliver(1, Ok(first)) {
            std::thread::scope(|scope| {
                (0..self.task.frames_at_once).for_each(|_| drop(scope.spawn(|| self.work())))
            });
        }
        let Self { task, job, reader, writer, .. } = self;
        let Writer { failure, notes, .. } =
            writer.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
        let (frames, left) = (reader.frames, std::mem::take(&mut reader.left));
        let mut all = task.notes.lock().unwrap_or_else(PoisonError::into_inner);
        all.merge(notes, |number| match frames {
            1 => job.output.clone(),
            _ => format!("{}, frame {}", job.output.display(), number.display()).into(),
        });
        if !left.is_empty() {
            all.add(&job.output, Note::Left(left));
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        if frames > 1 && !task.args.frames && !stream::is_streamed(&job.output) {
            let text = format!(
                "this file holds {frames} pictures, one after the other, and most programs show only the first; \
                 --frames says that this is intended"
            );
            all.add(&job.output, Note::Text(text));
        }
        Ok(())
    }

    /// Processes frames until none is left.
    fn work(&self) {
        while !self.stopped.load(Ordering::Relaxed) {
            let Some((number, frame)) = next(self.reader, self.job) else { return };
            // Unwinding is safe: a plan keeps its state in locks. After a panic it refuses the
            // locked state, or can use it.
            let result =
                caught(AssertUnwindSafe(|| made(self.task, self.job, self.format, frame?)));
            if !self.deliver(number, result) {
                return;
            }
        }
    }

    /// Writes a frame once all earlier ones are written. Returns false if no more are to come.
    fn deliver(&self, number: usize, made: Result<Made>) -> bool {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        while writer.next != number && writer.failure.is_none() && !writer.closed {
            writer = self.turn.wait(writer).unwrap_or_else(PoisonError::into_inner);
        }
        if writer.failure.is_some() || writer.closed {
            return false;
        }
        let fail = |error: io::Error| Failure::at(&self.job.output, error);
        match made {
            Err(failure) => writer.failure = Some(named(failure, self.job, number, self.task.args)),
            Ok(Made { data, notes, line }) => match send(data, writer.out) {
                // A reader that stops early is no failure.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => writer.closed = true,
                Err(error) => writer.failure = Some(fail(error)),
                Ok(()) => {
                    notes
                        .into_iter()
                        .for_each(|note| writer.notes.add(Path::new(&number.to_string()), note));
                    if let Some(line) = line {
                        self.task.bar.suspend(|| report(&line));
                    }
                    self.progress.report(number);
                }
            },
        }
        writer.next += 1;
        let stops = writer.failure.is_some() || writer.closed;
        if stops {
            self.stopped.store(true, Ordering::Relaxed);
            // A thread sends this: the channel may be full now, and a reader may wait for more
            // later.
            let wake = self.wake.clone();
            std::thread::spawn(move || wake.send(Err(io::Error::other("stopped"))));
        }
        self.turn.notify_all();
        !stops
    }
}

/// Writes a result and flushes it, so that a pipe's reader gets it at once.
fn send(data: SpooledTempFile, out: &mut (dyn Write + Send)) -> io::Result<()> {
    match data.into_inner() {
        SpooledData::InMemory(bytes) => out.write_all(bytes.get_ref())?,
        SpooledData::OnDisk(mut file) => drop(io::copy(&mut file, out)?),
    }
    out.flush()
}
