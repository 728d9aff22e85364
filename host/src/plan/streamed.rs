//! Pictures that are larger than the host's memory: rows come from a source, and go to a sink, a
//! chunk at a time. While one chunk is filtered, the next one is read and the one before is
//! written.
//!
//! A chunk is filtered as a picture of its own, made of the rows that its results need. At its
//! upper and lower end are rows whose results are wrong, because their windows lack rows: these
//! results are left out.

use std::io;
use std::ops::Range;

use gpu_kernels::border;

use super::engines::On;
use super::place::{CallSize, run};
use super::ran::Launched;
use super::schedule::wrapped;
use super::{Channels, Plan, pixels};
#[cfg(feature = "gpu")]
use crate::gpu::flow::{self, Picture};
use crate::image::stored::{StoredView, StoredViewMut};
use crate::image::{ImageView, ImageViewMut, Pixel, Scalar, Shape};
use crate::problem::rows_read;
use crate::progress::{Call, Stage};
use crate::{Border, Error, Family, Result};

/// Where the rows of a picture come from. A closure that reads the rows it is asked for is a source
/// that cannot go back.
pub trait RowSource<P>: Send {
    /// Fills `into` with these rows, one behind the other without gaps.
    ///
    /// # Errors
    /// Whatever keeps it from reading them. The run ends with [`Error::Rows`].
    fn read(&mut self, rows: Range<usize>, into: &mut [P]) -> io::Result<()>;

    /// Whether rows may be asked for in any order, and more than once, as in a file. If not, each
    /// row is asked for once, from the top to the bottom, and [`Border::Wrap`] is refused, which
    /// reads the last rows first.
    fn goes_back(&self) -> bool {
        false
    }
}

/// Where rows of results go, each once, from the top to the bottom. A closure that takes them is a
/// sink.
pub trait RowSink<P>: Send {
    /// Takes these rows, one behind the other without gaps.
    ///
    /// # Errors
    /// Whatever keeps it from writing them. The run ends with [`Error::Rows`].
    fn write(&mut self, rows: Range<usize>, from: &[P]) -> io::Result<()>;
}

impl<P, F: FnMut(Range<usize>, &mut [P]) -> io::Result<()> + Send> RowSource<P> for F {
    fn read(&mut self, rows: Range<usize>, into: &mut [P]) -> io::Result<()> {
        self(rows, into)
    }
}

impl<P, F: FnMut(Range<usize>, &[P]) -> io::Result<()> + Send> RowSink<P> for F {
    fn write(&mut self, rows: Range<usize>, from: &[P]) -> io::Result<()> {
        self(rows, from)
    }
}

/// Bytes of a chunk of results, or of its source if that has more. Large beside what starting a
/// chunk costs.
const CHUNK: usize = 64 << 20;

/// A chunk of results has at least this many times the rows that it shares with its neighbours,
/// which are filtered twice.
const APRONS: usize = 2;

/// Bands of a chunk, where their height is set.
const BANDS: usize = 3;

/// How a picture is cut into chunks.
#[derive(Clone, Copy, Debug)]
struct Cut {
    height: usize,
    /// One of the `border::` mode constants.
    border: u32,
    /// The window's anchor row.
    anchor: usize,
    /// Rows that a result, or the tile that computes it, reads.
    reach: usize,
    /// Results depend on a grid of tiles of so many rows, which begins at a picture's first row.
    step: usize,
}

/// Some rows of results, and what they need.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Chunk {
    results: Range<usize>,
    /// The picture's rows that make up the chunk's picture, top to bottom.
    source: Vec<Range<usize>>,
    /// The row of the chunk's picture that is the first of the results.
    skip: usize,
}

impl Chunk {
    /// Rows of its picture.
    fn height(&self) -> usize {
        self.source.iter().map(ExactSizeIterator::len).sum()
    }
}

impl Cut {
    /// The chunks, of so many rows of results where there are as many.
    fn chunks(&self, rows: usize) -> Vec<Chunk> {
        let rows = rows.next_multiple_of(self.step);
        let starts = (0..self.height).step_by(rows);
        let mut chunks: Vec<_> =
            starts.map(|first| self.chunk(first..(first + rows).min(self.height))).collect();
        if self.border != border::WRAP {
            // What another chunk needs stays, or is read already: where windows are mirrored, a
            // later chunk may need earlier rows at the bottom, and fewer rows at the top.
            let mut highest = 0;
            for chunk in &mut chunks {
                let Some(source) = chunk.source.first_mut() else { continue };
                highest = highest.max(source.end);
                source.end = highest;
            }
            let mut lowest = self.height;
            for chunk in chunks.iter_mut().rev() {
                let Some(source) = chunk.source.first_mut() else { continue };
                lowest = lowest.min(source.start);
                chunk.skip += source.start - lowest;
                source.start = lowest;
            }
        }
        chunks
    }

    fn chunk(&self, results: Range<usize>) -> Chunk {
        let Self { height, border, anchor, reach, step } = *self;
        let first = results.start;
        if results.len() == height {
            let whole = 0..height;
            return Chunk { source: vec![whole], skip: 0, results };
        }
        // A tile reads as many rows however many of its results are asked for.
        let tiles = first..first + results.len().next_multiple_of(step);
        if border != border::WRAP {
            let read = rows_read(border, (anchor, reach), tiles, height);
            // On the grid.
            let source = read.start / step * step..read.end;
            return Chunk { skip: first - source.start, source: vec![source], results };
        }
        let (source, skip) = wrapped(&results, (anchor, reach), step, height);
        Chunk { source, skip, results }
    }
}

/// A chunk's picture, and the rows that are in it.
#[derive(Default)]
struct Held<P> {
    values: Vec<P>,
    source: Vec<Range<usize>>,
}

impl<P: Pixel> Held<P> {
    /// Reads a chunk's rows; those that the chunk before it holds are copied from there.
    fn read(
        &mut self,
        chunk: &Chunk,
        row: usize,
        before: &Self,
        source: &mut (impl RowSource<P> + ?Sized),
    ) -> Result<()> {
        resize(&mut self.values, row * chunk.height())?;
        self.source.clone_from(&chunk.source);
        let mut into = self.values.as_mut_slice();
        for rows in &chunk.source {
            let (part, others) = into.split_at_mut(row * rows.len());
            into = others;
            let known = match (&before.source[..], &chunk.source[..]) {
                ([known], [_]) => {
                    known.start.max(rows.start)..known.end.min(rows.end).max(rows.start)
                }
                _ => rows.start..rows.start,
            };
            let (copied, new) = part.split_at_mut(row * known.len());
            if !known.is_empty() {
                let from = known.start - before.source[0].start;
                copied.copy_from_slice(&before.values[row * from..row * (from + known.len())]);
            }
            let rows = known.end..rows.end;
            if !rows.is_empty() {
                let failed = |error| Error::Rows { what: "read", rows: rows.clone(), error };
                source.read(rows.clone(), new).map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// Gives a vector this length, without more than one of each length in memory.
fn resize<P: Pixel>(values: &mut Vec<P>, len: usize) -> Result<()> {
    if values.capacity() < len {
        *values = Vec::new();
        *values = crate::memory::reserve(len)?;
    }
    values.resize(len, P::default());
    Ok(())
}

impl Plan {
    /// As [`Plan::run`], for a picture that is not in memory as a whole: rows are taken from a
    /// source, and results go to a sink, top to bottom, while other rows are filtered. Every byte
    /// of the result is the one that [`Plan::run`] gives.
    ///
    /// Memory holds two chunks of the source and two of results, of 64 MiB or twice the window's
    /// rows, whichever is more, and with the rows that the windows reach beside.
    ///
    /// ```
    /// use std::io::{Cursor, Read, Write};
    /// use std::ops::Range;
    ///
    /// use apron::{Device, Filter, Plan, Shape};
    ///
    /// let plan = Plan::builder(Filter::gaussian(2.0)?).device(Device::Cpu).build()?;
    /// // Two raw files of bytes: readers and writers of any kind.
    /// let (mut input, mut output) = (Cursor::new(vec![7u8; 640 * 480]), Cursor::new(Vec::new()));
    /// plan.run_streamed(
    ///     Shape { width: 640, height: 480, channels: 1 },
    ///     &mut |_rows: Range<usize>, into: &mut [u8]| input.read_exact(into),
    ///     &mut |_rows: Range<usize>, from: &[u8]| output.write_all(from),
    /// )?;
    /// assert_eq!(output.into_inner(), vec![7u8; 640 * 480]);
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Plan::run`]; [`Error::Rows`] if the source or the sink fails, or if the border is
    /// [`Border::Wrap`] and the source cannot go back. The rows that the sink has taken are right.
    pub fn run_streamed<S: Pixel, D: Pixel>(
        &self,
        shape: Shape,
        source: &mut (impl RowSource<S> + ?Sized),
        sink: &mut (impl RowSink<D> + ?Sized),
    ) -> Result<()> {
        shape.check()?;
        if self.border == Border::Wrap && !source.goes_back() {
            let reason = "border wrap needs the last rows first, and this source cannot go back; use a file, or another border";
            return Err(Error::Rows {
                what: "read",
                rows: 0..shape.height,
                error: io::Error::other(reason),
            });
        }
        let channels = Channels::First(shape.channels);
        run(
            &[(self, channels)],
            &CallSize::streamed((S::SCALAR, D::SCALAR), shape),
            |place, launched| self.stream_on((self.on(place)?, &launched[0]), shape, source, sink),
        )
    }

    /// Streams a picture through a device.
    fn stream_on<S: Pixel, D: Pixel>(
        &self,
        (on, launched): (On<'_>, &Launched),
        shape: Shape,
        source: &mut (impl RowSource<S> + ?Sized),
        sink: &mut (impl RowSink<D> + ?Sized),
    ) -> Result<()> {
        let row = shape.row_len();
        let whole = self.whole(on, shape, (S::SCALAR, D::SCALAR))?;
        let bytes = row.saturating_mul(size_of::<S>().max(size_of::<D>()));
        let rows = (CHUNK / bytes).max(APRONS * (whole.cut.reach - 1)).clamp(1, shape.height);
        let chunks = whole.cut.chunks(self.rows.map_or(rows, |rows| BANDS * rows));

        let call = self.report.call(pixels(shape));
        let (mut input, mut next) = (Held::default(), Held::default());
        let (mut output, mut last) = (Vec::new(), Vec::new());
        // In each turn one chunk is read, the one before it is filtered, and the one before that is
        // written.
        for turn in 0..chunks.len() + 2 {
            let chunk = |back: usize| turn.checked_sub(back).and_then(|number| chunks.get(number));
            let (read, filtered, written) = (chunk(0), chunk(1), chunk(2));
            std::thread::scope(|scope| {
                let (held, from) = (&input, &last);
                let reading = read.map(|chunk| {
                    let (next, source) = (&mut next, &mut *source);
                    scope.spawn(move || next.read(chunk, row, held, source))
                });
                let writing = written.map(|chunk| {
                    let sink = &mut *sink;
                    let part = &from[row * chunk.skip..row * (chunk.skip + chunk.results.len())];
                    let rows = chunk.results.clone();
                    let failed =
                        |error| Error::Rows { what: "written", rows: chunk.results.clone(), error };
                    scope.spawn(move || sink.write(rows, part).map_err(failed))
                });
                let outcome = filtered.map_or(Ok(()), |chunk| {
                    let images = (&held.values[..], &mut output);
                    self.filter_chunk((on, launched), &whole, chunk, images, &call)
                });
                let joined = |thread: Option<std::thread::ScopedJoinHandle<'_, Result<()>>>| {
                    let panicked = |panic| std::panic::resume_unwind(panic);
                    thread.map_or(Ok(()), |thread| thread.join().unwrap_or_else(panicked))
                };
                let (writing, reading) = (joined(writing), joined(reading));
                writing.and(outcome).and(reading)
            })?;
            std::mem::swap(&mut input, &mut next);
            std::mem::swap(&mut output, &mut last);
        }
        call.reach(pixels(shape))
    }

    /// What the whole picture decides for its chunks.
    fn whole(&self, on: On<'_>, shape: Shape, kinds: (Scalar, Scalar)) -> Result<Whole> {
        self.check_kinds(kinds)?;
        let (family, step, reach) = match on {
            On::Cpu(engine) => {
                let family = self.family_on_cpu(engine, shape, shape.channels, kinds)?;
                (family, engine.step(family, shape.width), self.filter.rows())
            }
            #[cfg(feature = "gpu")]
            On::Gpu(gpus) => {
                let tiles = gpus.engines[0]
                    .tiles(&self.prepared(gpus, kinds, shape, shape.channels)?, kinds)?;
                // The kernel has the family.
                (Family::Direct, tiles.step, tiles.reach)
            }
        };
        let anchor = self.filter.anchor().1;
        let cut = Cut { height: shape.height, border: self.border.code().0, anchor, reach, step };
        Ok(Whole { shape, family, cut })
    }

    /// Filters a chunk's pixels into `output`, which gets as many values.
    fn filter_chunk<S: Pixel, D: Pixel>(
        &self,
        on: (On<'_>, &Launched),
        whole: &Whole,
        chunk: &Chunk,
        (values, output): (&[S], &mut Vec<D>),
        call: &Call<'_>,
    ) -> Result<()> {
        let of_height = |height| Shape { height, ..whole.shape };
        let Shape { width, height, channels } = of_height(chunk.height());
        resize(output, whole.shape.row_len() * height)?;
        let src = ImageView::new(values, width, height, channels)?;
        let dst = ImageViewMut::new(output, width, height, channels)?;
        let before = pixels(of_height(chunk.results.start));
        let stage = call.stage(before, pixels(of_height(chunk.results.len())));
        self.run_chunk(on, whole, src.into(), dst.into(), stage)
    }

    /// Filters a chunk's picture as a part of the whole one.
    fn run_chunk(
        &self,
        (on, launched): (On<'_>, &Launched),
        whole: &Whole,
        src: StoredView<'_>,
        mut dst: StoredViewMut<'_>,
        stage: Stage<'_>,
    ) -> Result<()> {
        let channels = Channels::First(whole.shape.channels);
        match on {
            On::Cpu(engine) => {
                self.run_on_cpu((engine, launched), whole.family, channels, &src, &mut dst, stage)
            }
            #[cfg(feature = "gpu")]
            On::Gpu(gpus) => {
                let step = self.step_on(
                    (gpus, launched),
                    channels,
                    dst.scalar(),
                    Some(whole.shape.height),
                );
                let picture = Picture::new(src, dst, channels.filtered());
                flow::run((&[step], &gpus.idle), &mut [picture], &stage).map_err(|(_, error)| error)
            }
        }
    }
}

struct Whole {
    shape: Shape,
    family: Family,
    cut: Cut,
}

#[cfg(test)]
mod tests {
    use gpu_kernels::border::{self, resolve};

    use super::*;

    /// Every row that a result's tile reads, by way of the border rule of the chunk's picture, is
    /// the one that the rule of the whole picture finds; tiles lie on the grid of the chunk's
    /// picture as on that of the whole one; and a source that cannot go back is asked for each row
    /// once, in order.
    #[test]
    fn chunks_have_the_rows_of_the_picture() {
        for border in border::ALL {
            for height in 1..12 {
                for (reach, anchor) in
                    (1..9).flat_map(|reach| (0..reach).map(move |anchor| (reach, anchor)))
                {
                    for (step, rows) in
                        [(1, 1), (1, 2), (1, 3), (1, 5), (2, 2), (3, 3), (3, 6), (4, 4), (20, 20)]
                    {
                        check(&Cut { height, border, anchor, reach, step }, rows);
                    }
                }
            }
        }
    }

    fn check(cut: &Cut, rows: usize) {
        let Cut { height, border, anchor, reach, step } = *cut;
        let (mut next, mut held, mut asked) = (0, 0..0, 0);
        for chunk in cut.chunks(rows) {
            assert_eq!(chunk.results.start, next);
            next = chunk.results.end;
            let staged: Vec<usize> = chunk.source.iter().cloned().flatten().collect();
            let alone = chunk.results.len() == height;
            assert!(alone || chunk.skip % step == chunk.results.start % step, "{cut:?} {chunk:?}");
            for row in 0..chunk.results.len().next_multiple_of(step) {
                for tap in 0..reach {
                    let seen = resolve(
                        border,
                        (chunk.skip + row + tap) as i32 - anchor as i32,
                        staged.len() as i32,
                    );
                    let right = resolve(
                        border,
                        (chunk.results.start + row + tap) as i32 - anchor as i32,
                        height as i32,
                    );
                    let found = if seen < 0 { seen } else { staged[seen as usize] as i32 };
                    assert_eq!(found, right, "{cut:?} {chunk:?}: row {row} tap {tap}");
                }
            }
            if border != border::WRAP {
                let source = chunk.source[0].clone();
                // What is held of it lies at its upper end, and what is new follows what was asked
                // for last.
                assert!(source.start >= held.start && source.end >= held.end, "{cut:?} {chunk:?}");
                assert_eq!(asked.max(source.start), asked, "{cut:?} {chunk:?}: rows are left out");
                asked = source.end;
                held = source;
            }
        }
        assert_eq!(next, height);
    }
}
