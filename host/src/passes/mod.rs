//! Correlation of arrays of any number of dimensions in f64, in a stated order of sums: each
//! product and each sum is rounded by itself, so the bits are the same on every processor.
//! [`Plan::run_f64`](crate::Plan::run_f64) is made of such passes, and so are the SciPy functions
//! of the Python package.
//!
//! An array is computed in tiles of its two fastest dimensions. A tile's source, with the elements
//! around it, is converted to f64 once; each tap is then an offset in that buffer. Dimensions that
//! the window does not extend in are merged where strides allow, so that the innermost loop is long
//! for colour images too.

mod memory;
mod sums;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use memory::{Array, Cast, Kind};
use sums::{Offsets, compute};

use crate::threads::{self, Effort};
use crate::{Border, Error, Result};

/// What lies outside the array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// This value.
    Constant(f64),
    /// The element at the edge.
    Nearest,
    /// The array mirrored, the element at the edge too.
    Reflect,
    /// The array mirrored, without the element at the edge.
    Mirror,
    /// The array again.
    Wrap,
}

impl Mode {
    /// The index inside `0..n` that stands for `index`; none where a constant does.
    fn resolve(self, index: isize, n: isize) -> Option<isize> {
        if (0..n).contains(&index) {
            return Some(index);
        }
        match self {
            Self::Constant(_) => None,
            Self::Nearest => Some(index.clamp(0, n - 1)),
            Self::Wrap => Some(index.rem_euclid(n)),
            Self::Reflect => {
                let folded = index.rem_euclid(2 * n);
                Some(folded.min(2 * n - 1 - folded))
            }
            Self::Mirror if n == 1 => Some(0),
            Self::Mirror => {
                let folded = index.rem_euclid(2 * n - 2);
                Some(folded.min(2 * n - 2 - folded))
            }
        }
    }

    fn constant(self) -> f64 {
        if let Self::Constant(value) = self { value } else { 0.0 }
    }
}

/// Of [`Border::Keep`], which computes nothing there, the nearest element.
impl From<Border> for Mode {
    fn from(border: Border) -> Self {
        match border {
            Border::Constant(value) => Self::Constant(value),
            Border::Replicate | Border::Keep => Self::Nearest,
            Border::Reflect => Self::Reflect,
            Border::Reflect101 => Self::Mirror,
            Border::Wrap => Self::Wrap,
        }
    }
}

/// A window's position in one dimension: the source elements that it reaches before and behind the
/// result's own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reach {
    /// Elements before.
    pub before: isize,
    /// Elements behind.
    pub behind: isize,
}

impl Reach {
    /// A window of `size` elements with SciPy's `origin`.
    pub fn new(size: usize, origin: isize) -> Self {
        let half = (size / 2) as isize;
        Self { before: half + origin, behind: size as isize - half - 1 - origin }
    }

    /// A window of `size` elements, of which the one with this number lies on the result's own.
    pub(crate) fn anchored(size: usize, anchor: usize) -> Self {
        Self { before: anchor as isize, behind: (size - 1 - anchor) as isize }
    }

    /// Elements of the window.
    fn extent(self) -> usize {
        (self.before + self.behind + 1) as usize
    }
}

/// How results are summed. A tap's position counts the window's elements, the last axis fastest.
#[derive(Clone, Debug)]
pub enum Sums {
    /// From `start`, each tap in turn.
    InTurn {
        /// What sums begin with; -0 changes nothing.
        start: f64,
        /// Positions and values.
        taps: Vec<(usize, f64)>,
    },
    /// The middle tap, then taps of both sides together.
    Paired {
        /// Its position and value.
        middle: (usize, f64),
        /// Positions of left and right, and the left one's value.
        pairs: Vec<(usize, usize, f64)>,
        /// The right one's sign.
        sign: f64,
    },
    /// A running sum along an axis, divided by the number of its elements.
    Running {
        /// The axis.
        axis: usize,
        /// How many elements.
        size: usize,
    },
}

impl Sums {
    /// How much work a result is, in taps.
    fn taps(&self) -> usize {
        match self {
            Self::InTurn { taps, .. } => taps.len(),
            Self::Paired { pairs, .. } => 1 + pairs.len(),
            Self::Running { .. } => 4,
        }
    }
}

/// One dimension of a problem, or several that were merged.
#[derive(Clone, Copy, Debug)]
struct Dim {
    len: usize,
    source: isize,
    target: isize,
    reach: Reach,
    /// The axis of the array, where the window extends in it.
    axis: usize,
}

/// A problem in the order in which it is computed: `u` and `v` are a tile's, the others are walked
/// through.
struct Problem {
    outer: Vec<Dim>,
    u: Dim,
    v: Dim,
    mode: Mode,
    /// Results in a tile.
    rows: usize,
    cols: usize,
}

/// A thread's buffers: a tile of the source and of results.
#[derive(Default)]
struct Buffers {
    source: Vec<f64>,
    sums: Vec<f64>,
}

/// How many values of f64 a tile's buffer has, about: it stays in a second-level cache.
const TILE: usize = 16384;

/// Nanoseconds for an addition, or for a value that is loaded, converted or stored.
const ADDITION: f64 = 0.4;

/// Whom to tell how many jobs are done, of how many; an error ends the work.
pub type Told<'a> = &'a (dyn Fn(usize, usize) -> Result<()> + Sync);

/// Filters `source` into `target`, whose shape is the same.
///
/// # Errors
/// [`Error::HostMemory`] if there is no room for a tile, and those of `told`.
///
/// # Safety
/// Every value that shape and strides describe lies in memory that is there for the call. Nobody
/// writes those of the source, nobody else uses those of the target, and the two have no byte in
/// common. Values need not be aligned.
pub unsafe fn filter(
    source: &Array,
    target: &Array,
    reach: &[Reach],
    sums: &Sums,
    mode: Mode,
    told: Told<'_>,
) -> Result<()> {
    if source.shape.contains(&0) {
        return Ok(());
    }
    let problem = Problem::new(source, target, reach, sums, mode);
    let tiles = (problem.u.len.div_ceil(problem.rows), problem.v.len.div_ceil(problem.cols));
    let jobs = problem.outer.iter().map(|dim| dim.len).product::<usize>() * tiles.0 * tiles.1;
    let work = problem.rows.saturating_mul(problem.cols).saturating_mul(4 + sums.taps());
    let offsets = problem.offsets(reach, sums)?;
    let done = AtomicUsize::new(0);
    let run = |buffers: &mut Buffers, job: usize| {
        // SAFETY: the caller's promise; every job writes other results.
        unsafe { problem.run(source, target, &offsets, job, tiles, buffers)? };
        told(done.fetch_add(1, Ordering::Relaxed) + 1, jobs)
    };
    let threads =
        Effort::of_work(ADDITION * work as f64 * jobs as f64).threads_now().min(jobs.max(1));
    // Several jobs at a time where they are short.
    let together = (jobs / (8 * threads)).max(1);
    let failed = OnceLock::new();
    threads::for_each(threads, (0..jobs).step_by(together), |buffers: &mut Buffers, first| {
        let mut part = first..jobs.min(first + together);
        if failed.get().is_none()
            && let Err(error) = part.try_for_each(|job| run(buffers, job))
        {
            // Another thread's error may have come first.
            let _ = failed.set(error);
        }
    });
    failed.into_inner().map_or(Ok(()), Err)
}

impl Problem {
    fn new(source: &Array, target: &Array, reach: &[Reach], sums: &Sums, mode: Mode) -> Self {
        let windowed = |axis: usize| reach[axis].extent() > 1;
        let mut dims: Vec<Dim> = (0..source.shape.len())
            .filter(|&axis| source.shape[axis] > 1 || windowed(axis))
            .map(|axis| Dim {
                len: source.shape[axis],
                source: source.strides[axis],
                target: target.strides[axis],
                reach: reach[axis],
                axis,
            })
            .collect();
        // The fastest last. The sort is stable, and where the window extends along a dimension of
        // one element that one's stride says nothing.
        dims.sort_by_key(|dim| {
            std::cmp::Reverse(if dim.len == 1 { isize::MAX } else { dim.source.abs() })
        });
        let plain = Reach::default();
        dims.dedup_by(|inner, outer| {
            let len = inner.len as isize;
            let merged = inner.reach == plain
                && outer.reach == plain
                && outer.source == inner.source * len
                && outer.target == inner.target * len;
            if merged {
                *outer = Dim { len: outer.len * inner.len, ..*inner };
            }
            merged
        });
        let alone = |size: usize| Dim {
            len: 1,
            source: size as isize,
            target: 0,
            reach: plain,
            axis: usize::MAX,
        };
        // The fastest, unless it is too short for vectors and the window extends along it, as along
        // the channels of a picture.
        let long = |dim: &Dim| dim.len >= 32 || dim.reach == plain;
        let fastest = dims.iter().rposition(long).or(dims.len().checked_sub(1));
        let v = fastest.map_or(alone(source.kind.size), |index| dims.remove(index));
        // Beside it the longest in which the window extends.
        let windowed = (0..dims.len())
            .filter(|&index| dims[index].reach != plain)
            .max_by_key(|&index| dims[index].len);
        let u = windowed.or(dims.len().checked_sub(1)).map_or(alone(0), |index| dims.remove(index));
        let mut problem = Self { outer: dims, u, v, mode, rows: 1, cols: 1 };
        let slabs = problem.slabs();
        let (whole_u, whole_v) = match sums {
            // A running sum begins at the array's edge.
            Sums::Running { axis, .. } => {
                (u.axis == *axis && u.reach != plain, v.axis == *axis && v.reach != plain)
            }
            _ => (false, false),
        };
        let least =
            if v.reach == plain { (64 * TILE / u.reach.extent()).clamp(16, 256) } else { 1024 };
        problem.cols = if whole_v { v.len } else { v.len.min(least) };
        if whole_u {
            problem.cols = problem.cols.min((4 * TILE / u.len).next_multiple_of(16));
            problem.rows = u.len;
        } else {
            let width = problem.cols + v.reach.extent() - 1;
            problem.rows = (TILE / width / slabs).max(2 * u.reach.extent()).clamp(1, u.len);
        }
        problem
    }

    /// Parts of a tile's buffer: one for each position of the window in the dimensions that are
    /// walked through.
    fn slabs(&self) -> usize {
        self.outer.iter().map(|dim| dim.reach.extent()).product()
    }

    /// Rows and columns of a tile's buffer.
    fn buffer(&self) -> (usize, usize) {
        (self.rows + self.u.reach.extent() - 1, self.cols + self.v.reach.extent() - 1)
    }

    fn offsets(&self, reach: &[Reach], sums: &Sums) -> Result<Offsets> {
        let (height, width) = self.buffer();
        // What a step along each axis of the window is in the buffer.
        let mut steps = vec![0; reach.len()];
        let mut slab = height * width;
        for dim in self.outer.iter().rev().filter(|dim| dim.reach.extent() > 1) {
            steps[dim.axis] = slab;
            slab *= dim.reach.extent();
        }
        for (dim, step) in [(self.u, width), (self.v, 1)] {
            if let Some(place) = steps.get_mut(dim.axis) {
                *place = step;
            }
        }
        let offset = |mut position: usize| {
            let mut offset = 0;
            for (reach, step) in reach.iter().zip(&steps).rev() {
                offset += position % reach.extent() * step;
                position /= reach.extent();
            }
            offset
        };
        Ok(match sums {
            Sums::InTurn { start, taps } => {
                let mut offsets = crate::memory::reserve(taps.len())?;
                offsets.extend(taps.iter().map(|&(position, tap)| (offset(position), tap)));
                Offsets::InTurn { start: *start, taps: offsets }
            }
            Sums::Paired { middle, pairs, sign } => {
                let mut offsets = crate::memory::reserve(pairs.len())?;
                offsets.extend(
                    pairs.iter().map(|&(left, right, tap)| (offset(left), offset(right), tap)),
                );
                Offsets::Paired {
                    middle: (offset(middle.0), middle.1),
                    pairs: offsets,
                    sign: *sign,
                }
            }
            Sums::Running { axis, size } => Offsets::Running {
                along_v: self.v.axis == *axis && self.v.reach.extent() > 1,
                size: *size,
            },
        })
    }

    /// Computes one tile.
    ///
    /// # Safety
    /// As for [`filter`]; no two calls at a time are for the same job.
    unsafe fn run(
        &self,
        source: &Array,
        target: &Array,
        offsets: &Offsets,
        job: usize,
        tiles: (usize, usize),
        buffers: &mut Buffers,
    ) -> Result<()> {
        let (job, col) = (job / tiles.1, job % tiles.1 * self.cols);
        let (mut job, row) = (job / tiles.0, job % tiles.0 * self.rows);
        let (rows, cols) = (self.rows.min(self.u.len - row), self.cols.min(self.v.len - col));
        // Where the tile lies in the dimensions that are walked through.
        let mut place = vec![0; self.outer.len()];
        for (place, dim) in place.iter_mut().zip(&self.outer).rev() {
            *place = (job % dim.len) as isize;
            job /= dim.len;
        }
        let (height, width) = self.buffer();
        let slabs = self.slabs();
        resize(&mut buffers.source, slabs.saturating_mul(height).saturating_mul(width))?;
        for (slab, part) in buffers.source.chunks_mut(height * width).enumerate() {
            // Which position of the window this slab is for, in each of these dimensions.
            let (mut rest, mut base) = (slab, Some(0));
            for (&place, dim) in place.iter().zip(&self.outer).rev() {
                let extent = dim.reach.extent();
                let index = place - dim.reach.before + (rest % extent) as isize;
                rest /= extent;
                base = base
                    .zip(self.mode.resolve(index, dim.len as isize))
                    .map(|(base, index)| base + index * dim.source);
            }
            match base {
                // SAFETY: the indices of the other dimensions lie inside the array.
                Some(base) => unsafe {
                    self.load(source.kind, source.data.offset(base), part, (row, col), (rows, cols))
                },
                None => part.fill(self.mode.constant()),
            }
        }
        resize(&mut buffers.sums, rows * cols)?;
        compute(&buffers.source, width, offsets, &mut buffers.sums, cols);
        let base: isize =
            place.iter().zip(&self.outer).map(|(&place, dim)| place * dim.target).sum();
        let base = base + row as isize * self.u.target + col as isize * self.v.target;
        if self.u.target == self.v.target * cols as isize {
            // SAFETY: a tile of the target; `run`'s contract.
            unsafe { (target.kind.store)(target.data.offset(base), self.v.target, &buffers.sums) };
            return Ok(());
        }
        for (row, sums) in buffers.sums.chunks(cols).enumerate() {
            // SAFETY: likewise, a row of it.
            unsafe {
                (target.kind.store)(
                    target.data.offset(base + row as isize * self.u.target),
                    self.v.target,
                    sums,
                )
            };
        }
        Ok(())
    }

    /// Converts a tile's source. `source` is that of element 0 of both of the tile's dimensions.
    ///
    /// # Safety
    /// As for [`filter`], for every element of the two dimensions.
    unsafe fn load(
        &self,
        kind: Kind,
        source: *const u8,
        part: &mut [f64],
        (row, col): (usize, usize),
        (rows, cols): (usize, usize),
    ) {
        let (u, v) = (&self.u, &self.v);
        let width = self.buffer().1;
        let height = rows + u.reach.extent() - 1;
        let first = row as isize - u.reach.before;
        // Rows that lie inside the array and follow each other without a gap are one run.
        let run = (v.reach.extent() == 1
            && cols == v.len
            && u.source == v.source * cols as isize
            && width == cols)
            .then(|| {
                let from = (-first).clamp(0, height as isize);
                let to = (u.len as isize - first).clamp(from, height as isize);
                (from as usize, to as usize)
            });
        if let Some((from, to)) = run {
            // SAFETY: these rows lie inside, and `cols` is the whole of the other dimension.
            unsafe {
                let start = source.wrapping_offset((first + from as isize) * u.source);
                (kind.load)(start, v.source, &mut part[from * width..to * width]);
            }
        }
        for index in 0..height {
            if run.is_some_and(|(from, to)| (from..to).contains(&index)) {
                continue;
            }
            let line = &mut part[index * width..][..cols + v.reach.extent() - 1];
            let Some(inside) = self.mode.resolve(first + index as isize, u.len as isize) else {
                line.fill(self.mode.constant());
                continue;
            };
            let base = source.wrapping_offset(inside * u.source);
            let start = col as isize - v.reach.before;
            let from = (-start).clamp(0, line.len() as isize) as usize;
            let to = (v.len as isize - start).clamp(from as isize, line.len() as isize) as usize;
            // SAFETY: elements `start + from .. start + to` of the row are inside the array, as is
            // each that the mode names.
            unsafe {
                (kind.load)(
                    base.wrapping_offset((start + from as isize) * v.source),
                    v.source,
                    &mut line[from..to],
                );
                for index in (0..from).chain(to..line.len()) {
                    match self.mode.resolve(start + index as isize, v.len as isize) {
                        Some(inside) => {
                            (kind.load)(base.offset(inside * v.source), 0, &mut line[index..=index])
                        }
                        None => line[index] = self.mode.constant(),
                    }
                }
            }
        }
    }
}

/// Makes a buffer as long as that.
///
/// # Errors
/// [`Error::HostMemory`] if there is no room.
fn resize(buffer: &mut Vec<f64>, len: usize) -> Result<()> {
    let more = len.saturating_sub(buffer.len());
    buffer
        .try_reserve_exact(more)
        .map_err(|_| Error::HostMemory { bytes: len.saturating_mul(size_of::<f64>()) })?;
    buffer.resize(len, 0.0);
    Ok(())
}
