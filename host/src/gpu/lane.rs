//! Lanes: a stream with the memory of a band on both sides, and the copies between a picture and
//! that memory.
//!
//! A GPU that shares the host's memory filters in place: kernels read and write the rows that
//! threads copy, and the device copies only from and to pictures that are pinned.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use gpu_kernels::abi::Strides;

use super::band::{Band, Step, UnderWay};
use super::engine::{Engine, Part};
use super::image::{Rows, pitch};
use super::memory::{Memory, Pinned};
use super::stream::Stream;
use super::timeline::Noted;
use super::view::{DeviceView, DeviceViewMut};
use crate::Result;
use crate::image::{Scalar, Shape};
use crate::threads::{self, Effort};

/// Bytes of a piece when threads share a copy. With 256 KiB, most threads waited for those that had
/// one piece more.
pub(super) const SHARE: usize = 64 << 10;

/// A stream, and the memory of a band on both sides, which is kept for the next band. The stream of
/// an idle lane has no work.
#[derive(Debug)]
pub(super) struct Lane {
    // Fields are dropped in this order: the stream waits for its work, which uses the others.
    stream: Stream,
    /// The engine that it belongs to, by number.
    pub(super) engine: usize,
    /// Its number in a run, among that engine's lanes.
    pub(super) number: usize,
    src: Option<Memory>,
    dst: Option<Memory>,
    /// The source as planes, if no kernel takes its stored layout.
    planes: Option<Memory>,
    /// The results of all steps but the last.
    between: Vec<Option<Memory>>,
    input: Option<Pinned>,
    output: Option<Pinned>,
    /// The most bytes of device memory that it was ever allowed.
    pub(super) allowed: u64,
}

/// The lanes of a GPU that no run uses.
#[derive(Debug, Default)]
pub(crate) struct Idle(Mutex<Vec<Lane>>);

impl Idle {
    pub(super) fn lanes(&self) -> MutexGuard<'_, Vec<Lane>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How threads copy between a picture and a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copying {
    /// Bytes of a piece.
    pub(super) share: usize,
    /// Whether to note times.
    pub(super) clocked: bool,
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

/// The same in host memory that the device's copies reach or, in place, its kernels.
fn staging<'m>(
    memory: &'m mut Option<Pinned>,
    stream: &Stream,
    (bytes, in_place): (usize, bool),
) -> Result<&'m mut [u8]> {
    if memory.as_ref().map_or(0, |memory| memory.bytes().len()) < bytes {
        memory.take().map_or(Ok(()), |_old| stream.synchronize())?;
        let new = if in_place { stream.managed(bytes) } else { stream.gpu().pin(bytes) };
        *memory = Some(new?);
    }
    Ok(memory.as_mut().map_or(&mut [][..], |memory| &mut memory.bytes_mut()[..bytes]))
}

/// The address of managed memory, on the host and on the device.
fn address(memory: &[u8]) -> u64 {
    memory.as_ptr().addr() as u64
}

/// Some rows of an image in a lane's memory.
struct Placed {
    address: u64,
    layout: (Scalar, Strides),
    rows: Range<usize>,
}

impl Placed {
    /// Bytes from row to row.
    fn pitch(&self) -> usize {
        self.layout.1.row as usize
    }
}

/// The layout of rows of interleaved pixels in a lane's memory, and the bytes of so many.
fn interleaved(scalar: Scalar, shape: Shape, rows: usize) -> ((Scalar, Strides), usize) {
    let (bytes, pitch) = (scalar.bytes(), pitch(scalar, shape.row_len()));
    let strides = Strides {
        row: pitch as i64,
        pixel: (bytes * shape.channels) as i32,
        channel: bytes as i64,
        image: 0,
    };
    ((scalar, strides), pitch * rows)
}

/// The same for planes of f32.
fn planes(shape: Shape, rows: usize) -> ((Scalar, Strides), usize) {
    let pitch = pitch(Scalar::F32, shape.width);
    let plane = pitch * rows;
    let strides = Strides { row: pitch as i64, pixel: 4, channel: plane as i64, image: 0 };
    ((Scalar::F32, strides), plane * shape.channels)
}

impl Lane {
    /// A lane without memory.
    pub(super) fn new(stream: Stream) -> Self {
        Self {
            stream,
            engine: 0,
            number: 0,
            src: None,
            dst: None,
            planes: None,
            between: Vec::new(),
            input: None,
            output: None,
            allowed: 0,
        }
    }

    /// Waits for its work.
    pub(super) fn wait(&self) -> Result<()> {
        self.stream.synchronize()
    }

    /// Enqueues a band's work. The stream holds at most work of pinned pictures, whose memory the
    /// host does not touch.
    pub(super) fn start(
        &mut self,
        steps: &[Step<'_>],
        band: &mut Band<'_>,
        mut noted: Option<&mut Noted>,
    ) -> Result<()> {
        let mut mark = |stream: &Stream| {
            noted.as_mut().map_or(Ok(()), |noted| stream.mark().map(|mark| noted.marks.push(mark)))
        };
        let (layout, bytes) = interleaved(band.src.scalar(), band.plan.shape, band.job.there.len());
        let address = match band.plan.in_place && !band.src.is_pinned() {
            true => address(staging(&mut self.input, &self.stream, (bytes, true))?),
            false => room(&mut self.src, &self.stream, bytes)?,
        };
        let source = Placed { address, layout, rows: band.job.there.clone() };
        mark(&self.stream)?;
        self.upload(band, source.address, source.pitch())?;
        mark(&self.stream)?;
        let results = self.filter(steps, band, source)?;
        mark(&self.stream)?;
        self.download(band, results.address, results.pitch())?;
        mark(&self.stream)
    }

    /// Enqueues the kernels of a band, whose source is in the lane's memory. Returns where the
    /// results are.
    fn filter(&mut self, steps: &[Step<'_>], band: &Band<'_>, mut src: Placed) -> Result<Placed> {
        let engine = &steps[0].engines[self.engine];
        let (gpu, planned, job) = (engine.gpu(), band.plan, &band.job);
        let shape = Shape { height: job.height, ..planned.shape };
        // SAFETY: the lane's memory has the rows of every `Placed` here, and stays as long as its
        // stream has work. What threads use too they leave alone meanwhile.
        let view = |Placed { address, layout, rows }: &Placed| unsafe {
            DeviceView::from_raw(gpu, *address, *layout, shape, 1, rows.clone())
        };
        // SAFETY: as above; nothing else uses what is written meanwhile.
        let view_mut = |Placed { address, layout, rows }: &Placed| unsafe {
            DeviceViewMut::from_raw(gpu, *address, *layout, shape, 1, rows.clone())
        };
        if Engine::takes_planes(src.layout.0, shape.channels) {
            let (layout, bytes) = planes(shape, src.rows.len());
            let address = room(&mut self.planes, &self.stream, bytes)?;
            let dst = Placed { address, layout, rows: src.rows.clone() };
            let all = Part { rows: src.rows.clone(), ..Part::whole(shape) };
            engine.copy(&view(&src)?, &mut view_mut(&dst)?, &all, &mut self.stream)?;
            src = dst;
        }
        let before = steps.len() - 1;
        self.between.resize_with(self.between.len().max(before), || None);
        for (number, (step, planned)) in steps.iter().zip(&planned.steps).enumerate() {
            let rows = band.between.get(number).unwrap_or(&job.region);
            let takes_planes = Engine::takes_planes(planned.target, shape.channels);
            let (layout, bytes) = match number < before && takes_planes {
                true => planes(shape, rows.len()),
                false => interleaved(planned.target, shape, rows.len()),
            };
            let stream = &self.stream;
            let address = if number < before {
                room(&mut self.between[number], stream, bytes)?
            } else if band.plan.in_place && !band.dst.is_pinned() {
                address(staging(&mut self.output, stream, (bytes, true))?)
            } else {
                room(&mut self.dst, stream, bytes)?
            };
            let dst = Placed { address, layout, rows: rows.clone() };
            let (filtered, rows) = (planned.filtered, rows.clone());
            let part = Part { rows, filtered, ..Part::whole(shape) };
            let (from, mut to) = (view(&src)?, view_mut(&dst)?);
            let engine = &step.engines[self.engine];
            let ran = engine.enqueue(&planned.prepared, &from, &mut to, &part, &mut self.stream)?;
            step.launched.note(ran);
            src = dst;
        }
        Ok(src)
    }

    /// Copies the rows that a band needs to the lane's pinned memory, unless they are pinned
    /// already. Meanwhile it copies the results of the band before, which have arrived, to their
    /// destination.
    ///
    /// # Errors
    /// Memory errors. The results are there all the same.
    pub(super) fn stage(
        &mut self,
        copying: Copying,
        band: &Band<'_>,
        arrived: Option<&mut UnderWay<'_>>,
    ) -> Result<Times> {
        let bytes = match band.src.is_pinned() {
            true => 0,
            false => band.staged_pitch(band.src.scalar()) * band.job.there.len(),
        };
        let wanted = (bytes, band.plan.in_place);
        let (staged, outcome) = match staging(&mut self.input, &self.stream, wanted) {
            Ok(staged) => (staged, Ok(())),
            Err(error) => (&mut [][..], Err(error)),
        };
        let mut pieces = Pieces { size: copying.share, bytes: 0, all: Vec::new() };
        let noted = arrived.and_then(|(arrived, noted)| {
            empty(&self.output, arrived, &mut pieces);
            noted.as_mut().filter(|_| !pieces.all.is_empty())
        });
        fill(staged, band, &mut pieces);
        let times = pieces.copy(copying.clocked);
        if let Some(noted) = noted {
            noted.drained = times;
        }
        outcome.map(|()| times.filter(|_| bytes > 0))
    }

    /// Copies results that have arrived to their destination, unless the device has done so.
    pub(super) fn drain(&self, copying: Copying, (arrived, noted): &mut UnderWay<'_>) {
        let mut pieces = Pieces { size: copying.share, bytes: 0, all: Vec::new() };
        empty(&self.output, arrived, &mut pieces);
        let times = pieces.copy(copying.clocked);
        if let Some(noted) = noted {
            noted.drained = times;
        }
    }

    /// Copies the rows that a band needs to the device, unless its kernels find them in place.
    fn upload(&mut self, band: &Band<'_>, address: u64, pitch: usize) -> Result<()> {
        const WHAT: &str = "uploading an image";
        let (src, job) = (&band.src, &band.job);
        let row = src.row_bytes();
        if !src.is_pinned() {
            if band.plan.in_place {
                return Ok(());
            }
            let bytes = row * job.there.len();
            let staged = staging(&mut self.input, &self.stream, (bytes, false))?;
            let (from, to) = (Rows::host(staged.as_mut_ptr(), row), Rows::device(address, pitch));
            // SAFETY: both places have these rows, and belong to the lane, which does not touch
            // them until the stream is done.
            return unsafe { self.stream.copy_rows(from, to, (row, job.there.len()), WHAT) };
        }
        let mut at = address;
        for rows in &job.source {
            let first = src.rows(rows).as_ptr().cast_mut();
            let (from, to) = (Rows::host(first, src.stride()), Rows::device(at, pitch));
            // SAFETY: the picture has these rows, and is borrowed until the run ends, which drops
            // or synchronizes every stream; the device memory has as many.
            unsafe { self.stream.copy_rows(from, to, (row, rows.len()), WHAT)? };
            at += (pitch * rows.len()) as u64;
        }
        Ok(())
    }

    /// Copies results from the device: to their destination if that is pinned, else to the lane's
    /// pinned memory, unless they are in place.
    fn download(&mut self, band: &mut Band<'_>, address: u64, pitch: usize) -> Result<()> {
        let dst = &mut band.dst;
        let (row, rows) = (dst.row_bytes(), dst.shape().height);
        let to = if dst.is_pinned() {
            Rows::host(dst.bytes_mut().as_mut_ptr(), dst.stride())
        } else if band.plan.in_place {
            return Ok(());
        } else {
            let staged = staging(&mut self.output, &self.stream, (row * rows, false))?;
            Rows::host(staged.as_mut_ptr(), row)
        };
        // SAFETY: as in `upload`; the rows are the band's alone.
        unsafe {
            self.stream.copy_rows(
                Rows::device(address, pitch),
                to,
                (row, rows),
                "downloading an image",
            )
        }
    }
}

/// Begin and end, if times are noted.
type Times = Option<(Instant, Instant)>;

/// The copies of a band's rows to the lane's memory.
fn fill<'a>(mut staged: &'a mut [u8], band: &'a Band<'_>, pieces: &mut Pieces<'a>) {
    if staged.is_empty() {
        return;
    }
    let (src, row) = (&band.src, band.src.row_bytes());
    let pitch = band.staged_pitch(src.scalar());
    for rows in &band.job.source {
        let (part, others) = std::mem::take(&mut staged).split_at_mut(pitch * rows.len());
        pieces.add((src.rows(rows), src.stride()), (part, pitch), row);
        staged = others;
    }
}

/// The copies of results that have arrived to their destination, unless the device has written them
/// there.
fn empty<'a>(output: &'a Option<Pinned>, band: &'a mut Band<'_>, pieces: &mut Pieces<'a>) {
    let pitch = band.staged_pitch(band.dst.scalar());
    let dst = &mut band.dst;
    if dst.is_pinned() {
        return;
    }
    let (row, stride, rows) = (dst.row_bytes(), dst.stride(), dst.shape().height);
    let staged = output.as_ref().map_or(&[][..], Pinned::bytes);
    let staged = &staged[..(pitch * rows).min(staged.len())];
    pieces.add((staged, pitch), (dst.bytes_mut(), stride), row);
}

/// Copies, cut into pieces of about `share` bytes for threads.
struct Pieces<'a> {
    size: usize,
    bytes: usize,
    all: Vec<Piece<'a>>,
}

/// Rows of so many bytes, which begin so many bytes apart in either place.
struct Piece<'a> {
    row: usize,
    from: (&'a [u8], usize),
    to: (&'a mut [u8], usize),
}

impl<'a> Pieces<'a> {
    /// Adds rows of so many bytes, with the distances between their beginnings.
    fn add(
        &mut self,
        (from, from_stride): (&'a [u8], usize),
        (to, to_stride): (&'a mut [u8], usize),
        row: usize,
    ) {
        self.bytes += from.len().min(to.len());
        // Rows without gaps are one long row.
        let is_one = from_stride == row && to_stride == row;
        let (unit, from_unit, to_unit) =
            if is_one { (1, 1, 1) } else { (row, from_stride, to_stride) };
        let rows = self.size.div_ceil(unit).max(1);
        let parts = from.chunks(from_unit * rows).zip(to.chunks_mut(to_unit * rows));
        self.all.extend(parts.map(|(from, to)| match is_one {
            true => {
                let row = from.len().min(to.len());
                Piece { row, from: (from, row), to: (to, row) }
            }
            false => Piece { row, from: (from, from_stride), to: (to, to_stride) },
        }));
    }

    /// Makes the copies on as many threads as they need. Returns begin and end, if times are noted.
    fn copy(self, clocked: bool) -> Times {
        if self.all.is_empty() {
            return None;
        }
        let start = clocked.then(Instant::now);
        let threads = Effort::of_copy(self.bytes).threads_now().min(self.all.len());
        threads::for_each(threads, self.all.into_iter(), |(): &mut (), piece| piece.copy());
        start.map(|start| (start, Instant::now()))
    }
}

impl Piece<'_> {
    fn copy(self) {
        let (row, (from, from_stride), (to, to_stride)) = (self.row, self.from, self.to);
        let rows = to.chunks_mut(to_stride).zip(from.chunks(from_stride));
        rows.for_each(|(to, from)| to[..row].copy_from_slice(&from[..row]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_copied_and_gaps_left() {
        for (row, rows) in [(1, 1), (7, 5), (1000, 700), (3, 300_000), ((512 << 10) + 1, 2)] {
            for (from_gap, to_gap) in [(0, 0), (0, 3), (5, 0), (2, 2)] {
                let (from_stride, to_stride) = (row + from_gap, row + to_gap);
                // The last row has no gap behind it.
                let from: Vec<u8> =
                    (0..from_stride * rows - from_gap).map(|at| (at % 250) as u8).collect();
                let (mut to, mut again) =
                    (vec![255; to_stride * rows - to_gap], vec![255; to_stride * rows - to_gap]);
                crate::threads::tests::forced(3, || {
                    let mut pieces = Pieces { size: 4096, bytes: 0, all: Vec::new() };
                    pieces.add((&from, from_stride), (&mut to, to_stride), row);
                    pieces.add((&from, from_stride), (&mut again, to_stride), row);
                    pieces.copy(false);
                });
                for (number, (to, from)) in
                    to.chunks(to_stride).zip(from.chunks(from_stride)).enumerate()
                {
                    assert_eq!(to[..row], from[..row], "row {number} of {rows} of {row} bytes");
                    assert!(
                        to[row..].iter().all(|&byte| byte == 255),
                        "the gap behind row {number}"
                    );
                }
                assert_eq!(to, again);
            }
        }
    }
}
