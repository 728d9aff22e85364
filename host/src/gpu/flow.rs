//! From host memory to host memory: bands of pictures take turns in lanes, so that uploads, kernels and downloads overlap each other and
//! the copies from and to memory that is not pinned.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::PoisonError;

use gpu_kernels::abi::{Doubts, Strides};
use gpu_kernels::border;
use rayon::prelude::*;

use super::engine::{Engine, Part};
use super::image::{ROW_ALIGNMENT, Rows};
use super::memory::{Memory, Pinned};
use super::stream::Stream;
use super::view::{DeviceView, DeviceViewMut};
use crate::image::{ImageView, ImageViewMut, Pixel, Scalar, Shape};
use crate::kernels::prepared::{Prepared, Tiles};
use crate::plan::schedule::{Bands, Extent, Job};
use crate::progress::Stage;
use crate::{Error, Result};

/// Bands under way at once on a GPU: one goes up, one is filtered, one comes down.
const LANES: usize = 3;

/// Bytes that a thread copies at least: for fewer, another thread takes longer to wake up.
const SHARE: usize = 256 << 10;

/// Bytes that one thread copies alone.
const SERIAL: usize = 2 * SHARE;

/// Bytes of the source from which on a run goes to a thread of rayon's pool: there, a parallel copy begins without a handshake between
/// threads, of which a run has two for each band. The way there is one handshake more, which smaller pictures are spared.
const IN_POOL: usize = 4 * SHARE;

/// A lane that holds this much more than it needs gives its memory back.
const TOO_LARGE: u64 = 8;

/// One of the steps that pictures go through, one after the other on the device.
pub(crate) struct Step<'a> {
    /// One for each GPU.
    pub(crate) engines: &'a [Engine],
    /// Finds the kernel for a shape, of which so many channels are filtered.
    pub(crate) prepare: Box<dyn Fn(Shape, usize) -> Result<Prepared> + Sync + 'a>,
    /// The type of the results.
    pub(crate) target: Scalar,
    /// Whether all channels are filtered, however many of the picture are.
    pub(crate) takes_all: bool,
}

/// A picture to filter, from host memory to host memory.
#[derive(Debug)]
pub(crate) struct Picture<'a, S, D> {
    pub(crate) src: ImageView<'a, S>,
    pub(crate) dst: ImageViewMut<'a, D>,
    /// How many channels are filtered; the others are copied.
    pub(crate) filtered: usize,
}

impl<S: Pixel, D: Pixel> Picture<'_, S, D> {
    fn is_pinned(&self) -> bool {
        self.src.is_pinned() && self.dst.is_pinned()
    }
}

/// A stream, and the memory of a band on both sides; kept for the next one. No band's work is in the stream of an idle lane.
#[derive(Debug)]
pub(super) struct Lane {
    // Fields are dropped in this order: the stream waits for its work, which uses the others.
    stream: Stream,
    /// The engine that it belongs to, by number.
    engine: usize,
    src: Option<Memory>,
    dst: Option<Memory>,
    /// The source as planes, if no kernel takes it as it is stored.
    planes: Option<Memory>,
    /// The results of all steps but the last.
    between: Vec<Option<Memory>>,
    input: Option<Pinned>,
    output: Option<Pinned>,
    /// The most bytes of device memory that it was allowed.
    allowed: u64,
}

/// A band that is under way.
struct Busy {
    lane: Lane,
    picture: usize,
    results: Range<usize>,
}

/// Everything about the pictures of one shape that their bands have in common.
struct Planned {
    shape: Shape,
    filtered: usize,
    steps: Vec<PlannedStep>,
    bands: Bands,
    /// Bytes of a lane.
    bytes: u64,
}

/// The same about one step.
struct PlannedStep {
    prepared: Prepared,
    filtered: usize,
    target: Scalar,
    extent: Extent,
}

impl Planned {
    /// The job for the band of results that begins at row `first`, and the results of all steps but the last that it needs.
    fn job(&self, first: usize) -> (Job, Vec<Range<usize>>) {
        let (last, before) = last(&self.steps);
        let mut job = last.extent.job(first, self.bands);
        let mut between = Vec::new();
        for step in before.iter().rev() {
            let results = step.extent.widened(job.there);
            job.there = step.extent.read(&results);
            between.push(results);
        }
        if !between.is_empty() {
            between.reverse();
            job.source = vec![job.there.clone()];
        }
        (job, between)
    }
}

/// The last, and those before it.
fn last<T>(steps: &[T]) -> (&T, &[T]) {
    let Some(parts) = steps.split_last() else { unreachable!("there is a step") };
    parts
}

/// The pictures of a run, and how far it has come.
struct Flow<'r, 'a, S, D> {
    steps: &'r [Step<'r>],
    /// The first step's.
    engines: &'r [Engine],
    pictures: &'r mut [Picture<'a, S, D>],
    stage: &'r Stage<'r>,
    /// Pixels of all pictures.
    pixels: usize,
    /// Pixels of the pictures that are done.
    before: usize,
    /// The first picture of which not everything is there, and its first row that is not.
    done: (usize, usize),
    /// How often bands were made smaller, because memory was exhausted.
    smaller: u32,
    /// Whether `done` stays as it is: a band failed, or a lane got one before the one before it was waited for.
    frozen: bool,
}

/// Filters pictures from host memory to host memory, in order: by each of these steps, of which there is one at least, on the same GPUs.
/// The run is a `stage` of a call, which may end it.
///
/// # Errors
/// The number of the first picture of which something is missing, and why. The pictures before it are done.
pub(crate) fn run<S: Pixel, D: Pixel>(
    steps: &[Step<'_>],
    pictures: &mut [Picture<'_, S, D>],
    stage: &Stage<'_>,
) -> Result<(), (usize, Error)> {
    let staged = pictures.iter().filter(|picture| !picture.is_pinned());
    let bytes: usize = staged.map(|picture| size_of_val(picture.src.values())).sum();
    if bytes < IN_POOL { run_here(steps, pictures, stage) } else { rayon::scope(|_| run_here(steps, pictures, stage)) }
}

/// As [`run`], on this thread.
fn run_here<S: Pixel, D: Pixel>(
    steps: &[Step<'_>],
    pictures: &mut [Picture<'_, S, D>],
    stage: &Stage<'_>,
) -> Result<(), (usize, Error)> {
    let engines = steps[0].engines;
    let pixels = pictures.iter().map(|picture| pixels(picture.src.shape())).sum();
    let mut flow = Flow { steps, engines, pictures, stage, pixels, before: 0, done: (0, 0), smaller: 0, frozen: false };
    let mut first = true;
    loop {
        match flow.attempt() {
            // There may be room for a smaller band. Lanes that nobody uses go first.
            Err(Again::Smaller) => {
                let idle: usize = engines.iter().map(|engine| engine.idle().drain(..).count()).sum();
                flow.smaller += u32::from(idle == 0 || !first);
                first = false;
            }
            Err(Again::Never(error)) => return Err((flow.done.0, error)),
            Ok(()) => return Ok(()),
        }
    }
}

fn pixels(shape: Shape) -> usize {
    shape.width.saturating_mul(shape.height)
}

/// The band that was started first.
fn oldest(busy: &mut VecDeque<Busy>) -> Busy {
    let Some(band) = busy.pop_front() else { unreachable!("a band is under way") };
    band
}

/// What an error means for the run.
enum Again {
    /// It may go on with smaller bands.
    Smaller,
    Never(Error),
}

impl From<Error> for Again {
    fn from(error: Error) -> Self {
        if matches!(error, Error::DeviceMemory { .. }) { Self::Smaller } else { Self::Never(error) }
    }
}

impl<S: Pixel, D: Pixel> Flow<'_, '_, S, D> {
    /// Goes through all that is not done.
    fn attempt(&mut self) -> Result<(), Again> {
        let mut busy = VecDeque::new();
        self.frozen = false;
        let outcome = self.start_all(&mut busy);
        // What was under way before something failed is done all the same.
        while !busy.is_empty() {
            let lane = self.finish(&mut busy)?;
            if outcome.is_ok() {
                self.engines[lane.engine].idle().push(lane);
            }
        }
        outcome
    }

    /// Starts every band that is not done; takes the results of all but the last few.
    fn start_all(&mut self, busy: &mut VecDeque<Busy>) -> Result<(), Again> {
        let mut planned: Option<Rc<Planned>> = None;
        let (first_picture, first_row) = self.done;
        for number in first_picture..self.pictures.len() {
            let Picture { ref src, filtered, .. } = self.pictures[number];
            let shape = src.shape();
            let known = planned.take().filter(|planned| (planned.shape, planned.filtered) == (shape, filtered));
            let plan = match known {
                Some(plan) => plan,
                None => Rc::new(self.plan(shape, filtered, busy)?),
            };
            planned = Some(plan.clone());
            let most = self.engines.len() * plan.bands.lanes;
            let mut next = if number == first_picture { first_row } else { 0 };
            while next < shape.height {
                while busy.len() > most {
                    let lane = self.finish(busy)?;
                    self.engines[lane.engine].idle().push(lane);
                }
                let mut arrived = None;
                let mut lane = if busy.len() < most {
                    self.lane(busy.len() % self.engines.len(), plan.bytes)?
                } else if !self.stage.is_watched()
                    && self.pictures[number].is_pinned()
                    && self.pictures[busy[0].picture].is_pinned()
                {
                    // The stream's order is enough: no band waits for the host.
                    self.frozen = true;
                    let Busy { lane, .. } = oldest(busy);
                    lane
                } else {
                    let Busy { lane, picture, results } = self.wait(busy)?;
                    arrived = Some((picture, results));
                    lane
                };
                let (job, between) = plan.job(next);
                next = job.results.end;
                lane.allowed = lane.allowed.max(plan.bytes);
                let src = self.pictures[number].src;
                let into = arrived.as_ref().map(|(picture, results)| (&mut self.pictures[*picture].dst, results));
                let staged = lane.stage(&src, &job, into);
                let told = arrived.map_or(Ok(()), |(picture, results)| self.advance(picture, &results));
                staged.and(told)?;
                lane.start(self.steps, &plan, (&job, &between), &mut self.pictures[number])?;
                busy.push_back(Busy { lane, picture: number, results: job.results });
            }
        }
        Ok(())
    }

    /// Waits for the oldest band, and takes its results.
    fn finish(&mut self, busy: &mut VecDeque<Busy>) -> Result<Lane, Again> {
        let Busy { lane, picture, results } = self.wait(busy)?;
        empty(&lane.output, &mut self.pictures[picture].dst, &results);
        self.advance(picture, &results)?;
        Ok(lane)
    }

    /// Waits for the oldest band.
    fn wait(&mut self, busy: &mut VecDeque<Busy>) -> Result<Busy> {
        let band = oldest(busy);
        let outcome = band.lane.stream.synchronize();
        // Later bands may be done, but not all before them.
        self.frozen |= outcome.is_err();
        outcome.map(|()| band)
    }

    /// Notes that a band is done, and tells whoever watches.
    fn advance(&mut self, picture: usize, results: &Range<usize>) -> Result<()> {
        if self.frozen {
            return Ok(());
        }
        let shape = self.pictures[picture].src.shape();
        if results.end == shape.height {
            self.done = (picture + 1, 0);
            self.before += pixels(shape);
        } else {
            self.done = (picture, results.end);
        }
        self.stage.jobs(self.before + self.done.1 * shape.width, self.pixels)
    }

    /// The kernel and the bands for a shape.
    fn plan(&self, shape: Shape, filtered: usize, busy: &VecDeque<Busy>) -> Result<Planned, Again> {
        let engine = &self.engines[0];
        let alone = self.pictures.len() == 1;
        let (mut steps, mut needs) = (Vec::new(), Vec::<Needs>::new());
        let mut source = S::SCALAR;
        for step in self.steps {
            let filtered = if step.takes_all { shape.channels } else { filtered };
            let prepared = (step.prepare)(shape, filtered).map_err(Again::Never)?;
            let mut of_step = step.engines[0].needs(&prepared, shape, (source, step.target), filtered, alone)?;
            if let Some(before) = needs.last() {
                // The results of the step before it, which are counted there.
                of_step.pitches.0 = 0;
                of_step.extent.beside = before.extent.beside + before.extent.reach - 1;
            }
            source = step.target;
            steps.push((prepared, filtered));
            needs.push(of_step);
        }
        // Under WRAP, a band may need rows of both ends of every step's results: then all steps take whole pictures.
        if needs.len() > 1 && needs.iter().any(|needs| needs.extent.border == border::WRAP) {
            needs.iter_mut().for_each(|needs| needs.extent.step = shape.height);
        }
        let extent = last(&needs).0.extent;
        // Lanes of this run, and idle ones, have their memory already.
        let mine = busy.iter().filter(|busy| busy.lane.engine == 0).map(|busy| busy.lane.allowed).sum::<u64>();
        let held = mine + engine.idle().iter().map(|lane| lane.allowed).sum::<u64>();
        let limit = engine.limits().memory;
        let refused = |needed| Again::Never(limit_passed(needed, limit));
        let bytes = |rows| bytes(&needs, rows);
        let mut bands = extent.bands(limit, LANES, bytes).map_err(refused)?;
        let wanted = bytes(bands.rows).saturating_mul(extent.lanes_in_use(&bands) as u64);
        if wanted > held {
            let (free, total) = engine.gpu().memory()?;
            // The driver hands memory out in large pieces.
            let room = held.saturating_add(free - free / 16);
            let exhausted = |needed| Again::Never(Error::DeviceMemory { needed, free, total });
            bands = extent.bands(room.min(limit), LANES, bytes).map_err(exhausted)?;
        }
        for _ in 0..self.smaller {
            let exhausted = || engine.gpu().out_of_memory(bytes(bands.rows));
            bands = extent.smaller(bands).ok_or_else(|| Again::Never(exhausted()))?;
        }
        let bytes = bytes(bands.rows);
        let steps = steps.into_iter().zip(&needs).zip(self.steps);
        let steps = steps.map(|(((prepared, filtered), needs), step)| PlannedStep {
            prepared,
            filtered,
            target: step.target,
            extent: needs.extent,
        });
        Ok(Planned { shape, filtered, steps: steps.collect(), bands, bytes })
    }

    /// An idle lane of an engine, or a new one.
    fn lane(&self, number: usize, bytes: u64) -> Result<Lane> {
        let engine = &self.engines[number];
        let idle = engine.idle().pop();
        match idle.filter(|lane| lane.allowed / TOO_LARGE <= bytes.max(64 << 20)) {
            Some(lane) => Ok(Lane { engine: number, ..lane }),
            None => Ok(Lane {
                stream: engine.gpu().stream()?,
                engine: number,
                src: None,
                dst: None,
                planes: None,
                between: Vec::new(),
                input: None,
                output: None,
                allowed: 0,
            }),
        }
    }
}

/// The error for a plan's limit that is too low.
fn limit_passed(needed: u64, limit: u64) -> Error {
    let expected = format!(
        "at least the {needed} bytes that the lowest band of this picture needs; leave the limit out for all that is free"
    );
    Error::Parameter { name: "memory", value: limit.to_string(), expected }
}

/// The memory that bands of a picture need.
pub(super) struct Needs {
    pub(super) extent: Extent,
    shape: Shape,
    /// Bytes of a row of the source and of results on the device.
    pitches: (usize, usize),
    /// Bytes of a row of planes and of scratch, all channels together.
    beside: usize,
    /// Bytes of the list of results in doubt, for so many results.
    doubts: Box<dyn Fn(usize) -> u64>,
}

impl Needs {
    /// Bytes of a lane for bands of so many rows.
    fn bytes(&self, rows: usize) -> u64 {
        let source = self.extent.source_rows(rows) as u64;
        let (src, dst) = (self.pitches.0 as u64, self.pitches.1 as u64);
        let images = source.saturating_mul(src + self.beside as u64).saturating_add(rows as u64 * dst);
        images.saturating_add((self.doubts)(self.shape.width.saturating_mul(rows)))
    }
}

/// Bytes of a lane for bands of so many rows: from the last step to the first, what each needs.
fn bytes(needs: &[Needs], rows: usize) -> u64 {
    let (mut bytes, mut results) = (0u64, rows);
    let most_step = needs.iter().map(|needs| needs.extent.step).max().unwrap_or(1);
    for needs in needs.iter().rev() {
        bytes = bytes.saturating_add(needs.bytes(results));
        // The step before it begins where its tiles do.
        results = needs.extent.source_rows(results);
        results = results.saturating_add(most_step - 1).min(needs.extent.height);
    }
    bytes
}

/// Bytes from one row on the device to the next.
fn pitch(scalar: Scalar, values: usize) -> usize {
    (scalar.bytes() * values).next_multiple_of(ROW_ALIGNMENT)
}

impl Engine {
    /// The tiles that results of this filter depend on.
    pub(crate) fn tiles(&self, prepared: &Prepared) -> Tiles {
        let filter = self.taps().filter();
        prepared.work.tiles(filter).unwrap_or(Tiles { step: 1, reach: filter.rows() })
    }

    /// What a band of a picture needs.
    fn needs(
        &self,
        prepared: &Prepared,
        shape: Shape,
        (source, target): (Scalar, Scalar),
        filtered: usize,
        alone: bool,
    ) -> Result<Needs> {
        let anchor = self.taps().filter().anchor().1;
        let Tiles { step, reach } = self.tiles(prepared);
        let values = shape.row_len();
        let planes = if Self::takes_planes(source, shape.channels) { 4 } else { 0 };
        let uncertainty = self.uncertainty_of(prepared, (source, target))?.clone();
        let scratch = if uncertainty.passes.is_some() { 8 } else { prepared.work.scratch() };
        let pad = ROW_ALIGNMENT * shape.channels;
        let doubts = move |pixels: usize| match uncertainty.near {
            Some(_) => {
                let results = pixels.saturating_mul(filtered);
                Doubts::bytes(uncertainty.places(results, Doubts::SEGMENTS as usize))
            }
            None => 0,
        };
        Ok(Needs {
            extent: Extent {
                height: shape.height,
                border: self.border().code().0,
                anchor,
                reach,
                step,
                beside: 0,
                row: values * source.bytes().max(target.bytes()),
                alone,
                rows: self.limits().rows,
            },
            shape,
            pitches: (pitch(source, values), pitch(target, values)),
            beside: if planes + scratch > 0 { values * (planes + scratch) + 2 * pad } else { 0 },
            doubts: Box::new(doubts),
        })
    }

    /// The lanes that no run uses.
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Lane>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The address of at least so many bytes, kept for the next band.
fn room(memory: &mut Option<Memory>, stream: &Stream, bytes: usize) -> Result<u64> {
    if memory.as_ref().map_or(0, Memory::len) < bytes {
        // Work in flight may still use the old one.
        memory.take().map_or(Ok(()), |_old| stream.synchronize())?;
        *memory = Some(stream.gpu().allocate(bytes)?);
    }
    Ok(memory.as_ref().map_or(0, Memory::address))
}

/// The same in pinned memory.
fn staging<'m>(memory: &'m mut Option<Pinned>, stream: &Stream, bytes: usize) -> Result<&'m mut [u8]> {
    if memory.as_ref().map_or(0, |memory| memory.bytes().len()) < bytes {
        memory.take().map_or(Ok(()), |_old| stream.synchronize())?;
        *memory = Some(stream.gpu().pin(bytes)?);
    }
    Ok(memory.as_mut().map_or(&mut [][..], |memory| &mut memory.bytes_mut()[..bytes]))
}

impl Lane {
    /// Puts a band's work into the stream, which has none but that of pinned pictures, of which the host touches nothing.
    fn start<S: Pixel, D: Pixel>(
        &mut self,
        steps: &[Step<'_>],
        planned: &Planned,
        (job, between): (&Job, &[Range<usize>]),
        picture: &mut Picture<'_, S, D>,
    ) -> Result<()> {
        let engine = &steps[0].engines[self.engine];
        let gpu = engine.gpu();
        let Shape { width, channels, .. } = planned.shape;
        let values = planned.shape.row_len();
        let shape = Shape { height: job.height, ..planned.shape };
        let interleaved = |scalar: Scalar| {
            let (bytes, pitch) = (scalar.bytes(), pitch(scalar, values));
            Strides { row: pitch as i64, pixel: (bytes * channels) as i32, channel: bytes as i64, image: 0 }
        };
        // Planes of f32 with so many rows, and their bytes.
        let planar = |rows: usize| {
            let pitch = pitch(Scalar::F32, width);
            let plane = pitch * rows;
            (Strides { row: pitch as i64, pixel: 4, channel: plane as i64, image: 0 }, plane * channels)
        };
        let source = interleaved(S::SCALAR);

        let address = room(&mut self.src, &self.stream, source.row as usize * job.there.len())?;
        self.upload(&picture.src, job, address, source.row as usize)?;
        // SAFETY: the lane's memory has these rows, and stays as long as its stream has work; so below.
        let view = |address, kind, there| unsafe { DeviceView::from_raw(gpu, address, kind, shape, 1, there) };
        // SAFETY: as above; nothing else uses what is written meanwhile.
        let view_mut = |address, kind, there| unsafe { DeviceViewMut::from_raw(gpu, address, kind, shape, 1, there) };
        let mut src = view(address, (S::SCALAR, source), job.there.clone())?;
        if Engine::takes_planes(S::SCALAR, channels) {
            let (strides, bytes) = planar(job.there.len());
            let address = room(&mut self.planes, &self.stream, bytes)?;
            let all = Part { rows: job.there.clone(), ..Part::whole(shape) };
            let mut planes = view_mut(address, (Scalar::F32, strides), job.there.clone())?;
            engine.copy(&src, &mut planes, &all, &mut self.stream)?;
            src = view(address, (Scalar::F32, strides), job.there.clone())?;
        }
        let (last, before) = last(&planned.steps);
        self.between.resize_with(self.between.len().max(before.len()), || None);
        for (number, (step, rows)) in before.iter().zip(between).enumerate() {
            let (strides, bytes) = match Engine::takes_planes(step.target, channels) {
                true => planar(rows.len()),
                false => {
                    let strides = interleaved(step.target);
                    (strides, strides.row as usize * rows.len())
                }
            };
            let address = room(&mut self.between[number], &self.stream, bytes)?;
            let mut dst = view_mut(address, (step.target, strides), rows.clone())?;
            let part = Part { rows: rows.clone(), filtered: step.filtered, ..Part::whole(shape) };
            let engine = &steps[number].engines[self.engine];
            engine.enqueue(&step.prepared, &src, &mut dst, &part, &mut self.stream)?;
            src = view(address, (step.target, strides), rows.clone())?;
        }
        let target = interleaved(D::SCALAR);
        let address = room(&mut self.dst, &self.stream, target.row as usize * job.region.len())?;
        let mut dst = view_mut(address, (D::SCALAR, target), job.region.clone())?;
        let part = Part { rows: job.region.clone(), filtered: last.filtered, ..Part::whole(shape) };
        let engine = &steps[before.len()].engines[self.engine];
        engine.enqueue(&last.prepared, &src, &mut dst, &part, &mut self.stream)?;
        self.download(&mut picture.dst, &job.results, address, target.row as usize)
    }

    /// Copies the rows that a job needs to the lane's pinned memory, unless they are pinned already; at the same time takes results that have
    /// arrived to where they belong.
    ///
    /// # Errors
    /// Memory errors. The results are there all the same.
    fn stage<S: Pixel, D: Pixel>(
        &mut self,
        src: &ImageView<'_, S>,
        job: &Job,
        arrived: Option<(&mut ImageViewMut<'_, D>, &Range<usize>)>,
    ) -> Result<()> {
        let row = size_of::<S>() * src.shape().row_len();
        let bytes = if src.is_pinned() { 0 } else { row * job.there.len() };
        let output = &self.output;
        let take = || arrived.into_iter().for_each(|(dst, results)| empty(output, dst, results));
        let (staged, outcome) = match staging(&mut self.input, &self.stream, bytes) {
            Ok(staged) => (staged, Ok(())),
            Err(error) => (&mut [][..], Err(error)),
        };
        if staged.len() < SERIAL {
            take();
            fill(staged, src, job);
        } else {
            rayon::join(take, || fill(staged, src, job));
        }
        outcome
    }

    /// Copies the rows that a job needs to the device.
    fn upload<P: Pixel>(&mut self, src: &ImageView<'_, P>, job: &Job, address: u64, pitch: usize) -> Result<()> {
        const WHAT: &str = "uploading an image";
        let row = size_of::<P>() * src.shape().row_len();
        if !src.is_pinned() {
            let staged = staging(&mut self.input, &self.stream, row * job.there.len())?;
            let (from, to) = (Rows::host(staged.as_mut_ptr(), row), Rows::device(address, pitch));
            // SAFETY: both places have these rows, and belong to the lane, which does not touch them until the stream is done.
            return unsafe { self.stream.copy_rows(from, to, (row, job.there.len()), WHAT) };
        }
        let stride = size_of::<P>() * src.stride();
        let mut at = address;
        for rows in &job.source {
            let first = src.as_ptr().cast_mut().cast::<u8>().wrapping_add(rows.start * stride);
            let (from, to) = (Rows::host(first, stride), Rows::device(at, pitch));
            // SAFETY: the picture has these rows, and is borrowed until the run ends, which drops or synchronizes every stream; the
            // device memory has as many.
            unsafe { self.stream.copy_rows(from, to, (row, rows.len()), WHAT)? };
            at += (pitch * rows.len()) as u64;
        }
        Ok(())
    }

    /// Copies results from the device: to where they belong if that is pinned, else to pinned memory of the lane's.
    fn download<P: Pixel>(
        &mut self,
        dst: &mut ImageViewMut<'_, P>,
        results: &Range<usize>,
        address: u64,
        pitch: usize,
    ) -> Result<()> {
        let row = size_of::<P>() * dst.shape().row_len();
        let to = if dst.is_pinned() {
            let stride = size_of::<P>() * dst.stride();
            Rows::host(dst.as_mut_ptr().cast::<u8>().wrapping_add(results.start * stride), stride)
        } else {
            Rows::host(staging(&mut self.output, &self.stream, row * results.len())?.as_mut_ptr(), row)
        };
        // SAFETY: as in `upload`; no two bands have a row in common.
        unsafe { self.stream.copy_rows(Rows::device(address, pitch), to, (row, results.len()), "downloading an image") }
    }
}

/// Copies the rows that a job needs, one behind the other.
fn fill<P: Pixel>(mut staged: &mut [u8], src: &ImageView<'_, P>, job: &Job) {
    let row = size_of::<P>() * src.shape().row_len();
    for rows in &job.source {
        let (part, others) = staged.split_at_mut((row * rows.len()).min(staged.len()));
        let copy = |(y, out): (usize, &mut [u8])| out.copy_from_slice(bytemuck::cast_slice(src.row(rows.start + y)));
        if part.len() < SERIAL {
            part.chunks_mut(row).enumerate().for_each(copy);
        } else {
            part.par_chunks_mut(row).with_min_len(SHARE.div_ceil(row)).enumerate().for_each(copy);
        }
        staged = others;
    }
}

/// Copies results that have arrived to where they belong, unless the device has done so.
fn empty<P: Pixel>(output: &Option<Pinned>, dst: &mut ImageViewMut<'_, P>, results: &Range<usize>) {
    if dst.is_pinned() {
        return;
    }
    let row = size_of::<P>() * dst.shape().row_len();
    let staged = output.as_ref().map_or(&[][..], Pinned::bytes);
    let copy = |(out, row): (&mut [P], &[u8])| bytemuck::cast_slice_mut(out).copy_from_slice(row);
    if row * results.len() < SERIAL {
        dst.rows_mut(results.clone()).zip(staged.chunks(row)).for_each(copy);
    } else {
        let rows = dst.par_rows_mut(results.clone()).with_min_len(SHARE.div_ceil(row));
        rows.zip(staged.par_chunks(row)).for_each(copy);
    }
}
