//! Correlation of arrays of any number of dimensions in f64. The order of sums is fixed, and each
//! product and each sum is rounded on its own. So the bits are the same on every processor.
//! [`Plan::run_f64`](crate::Plan::run_f64) consists of such passes, and so do the SciPy functions
//! of the Python package.
//!
//! An array is computed in tiles over two of its dimensions, one of them the fastest where
//! possible. A tile's source and its halo are converted to f64 once; each tap is then an offset in
//! that buffer. Adjacent dimensions without a window are merged where strides allow, so that the
//! innermost loop is long for colour images too.

mod memory;
mod sums;

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use memory::{Array, Cast, Kind};
use sums::{Offsets, compute};

use crate::threads::{self, Effort};
use crate::{Border, Error, Result};

/// The window's extent in one dimension, relative to the element at the result's position.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reach {
    /// Elements before that element.
    pub before: isize,
    /// Elements after that element.
    pub behind: isize,
}

impl Reach {
    /// A window of `size` elements with SciPy's `origin`.
    pub fn new(size: usize, origin: isize) -> Self {
        let half = (size / 2) as isize;
        Self { before: half + origin, behind: size as isize - half - 1 - origin }
    }

    /// A window of `size` elements; element `anchor` lies at the result's position.
    pub(crate) fn anchored(size: usize, anchor: usize) -> Self {
        Self { before: anchor as isize, behind: (size - 1 - anchor) as isize }
    }

    /// Elements of the window.
    pub(crate) fn extent(self) -> usize {
        (self.before + self.behind + 1) as usize
    }
}

/// The order of sums. A tap's position numbers the window's elements, the last axis fastest.
#[derive(Clone, Debug)]
pub enum Sums {
    /// Starts at `start` and adds each tap in order.
    InOrder {
        /// The initial sum; -0 leaves every sum unchanged.
        start: f64,
        /// Positions and values.
        taps: Vec<(usize, f64)>,
    },
    /// The centre tap, then pairs of taps from both sides.
    Paired {
        /// Position and value of the centre tap.
        middle: (usize, f64),
        /// Positions of the left and the right tap, and the value of the left tap.
        pairs: Vec<(usize, usize, f64)>,
        /// 1 or -1: the right tap is the left tap times this.
        sign: f64,
    },
    /// A running mean along an axis: the running sum divided by `size`.
    Running {
        /// The axis.
        axis: usize,
        /// Elements of the window along the axis.
        size: usize,
    },
}

impl Sums {
    /// Work per result, in taps.
    fn taps(&self) -> usize {
        match self {
            Self::InOrder { taps, .. } => taps.len(),
            Self::Paired { pairs, .. } => 1 + pairs.len(),
            Self::Running { .. } => 4,
        }
    }
}

/// One dimension of a problem, or several that were merged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dim {
    pub(crate) len: usize,
    pub(crate) source: isize,
    pub(crate) target: isize,
    pub(crate) reach: Reach,
    /// The axis of the array; only used where the window extends along this dimension.
    pub(crate) axis: usize,
}

/// The problem's dimensions in the order of computation. Tiles span `u` and `v`; jobs iterate over
/// the others.
struct Problem {
    outer: Vec<Dim>,
    u: Dim,
    v: Dim,
    border: Border,
    /// Rows and columns of results per tile.
    rows: usize,
    cols: usize,
}

/// A thread's buffers: one tile of source and one tile of sums.
#[derive(Default)]
struct Buffers {
    source: Vec<f64>,
    sums: Vec<f64>,
}

/// Values of f64 per tile buffer, about: 128 KiB, to fit a second-level cache.
const TILE: usize = 16384;

/// Nanoseconds for an addition, or for a value that is loaded, converted or stored.
const ADDITION: f64 = 0.4;

/// A progress callback. Its arguments are the finished jobs and all jobs. An error stops the work.
pub type OnProgress<'a> = &'a (dyn Fn(usize, usize) -> Result<()> + Sync);

/// Filters `source` into `target`, which has the same shape.
///
/// # Errors
/// [`Error::HostMemory`] if there is not enough memory for a tile, and the errors of `on_progress`.
///
/// # Safety
/// Every value that shape and strides describe lies in memory that stays valid for the call. Nobody
/// writes the values of the source; nobody else reads or writes the values of the target. Source
/// and target have no byte in common. Values need not be aligned.
pub unsafe fn filter(
    source: &Array,
    target: &Array,
    reach: &[Reach],
    sums: &Sums,
    border: Border,
    on_progress: OnProgress<'_>,
) -> Result<()> {
    if source.shape.contains(&0) {
        return Ok(());
    }
    let problem = Problem::new(source, target, reach, sums, border);
    let tiles = (problem.u.len.div_ceil(problem.rows), problem.v.len.div_ceil(problem.cols));
    let jobs = problem.outer.iter().map(|dim| dim.len).product::<usize>() * tiles.0 * tiles.1;
    let work = problem.rows.saturating_mul(problem.cols).saturating_mul(4 + sums.taps());
    let offsets = problem.offsets(reach, sums)?;
    let done = AtomicUsize::new(0);
    let run = |buffers: &mut Buffers, job: usize| {
        // SAFETY: the caller's promise; every job writes different results.
        unsafe { problem.run(source, target, &offsets, job, tiles, buffers)? };
        on_progress(done.fetch_add(1, Ordering::Relaxed) + 1, jobs)
    };
    let threads =
        Effort::of_work(ADDITION * work as f64 * jobs as f64).threads_now().min(jobs.max(1));
    // Short jobs are taken several at a time: about 8 groups for each thread.
    let together = (jobs / (8 * threads)).max(1);
    let failed = OnceLock::new();
    threads::for_each(threads, (0..jobs).step_by(together), |buffers: &mut Buffers, first| {
        let mut part = first..jobs.min(first + together);
        if failed.get().is_none()
            && let Err(error) = part.try_for_each(|job| run(buffers, job))
        {
            // Another thread's error may already be stored.
            let _ = failed.set(error);
        }
    });
    failed.into_inner().map_or(Ok(()), Err)
}

/// The arrays' dimensions, the fastest last. Adjacent ones without a window are merged where
/// strides allow.
pub(crate) fn dims(source: &Array, target: &Array, reach: &[Reach]) -> Vec<Dim> {
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
    // The smallest stride last. A dimension of one element, kept for its window, has a meaningless
    // stride and comes first.
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
    dims
}

impl Problem {
    fn new(source: &Array, target: &Array, reach: &[Reach], sums: &Sums, border: Border) -> Self {
        let mut dims = dims(source, target, reach);
        let plain = Reach::default();
        let alone = |size: usize| Dim {
            len: 1,
            source: size as isize,
            target: 0,
            reach: plain,
            axis: usize::MAX,
        };
        // `v` is the fastest dimension. A short one with a window, such as the channels of an
        // image, does not fill vectors and is passed over.
        let long = |dim: &Dim| dim.len >= 32 || dim.reach == plain;
        let fastest = dims.iter().rposition(long).or(dims.len().checked_sub(1));
        let v = fastest.map_or(alone(source.kind.size), |index| dims.remove(index));
        // `u` is the longest of the other dimensions in which the window extends.
        let windowed = (0..dims.len())
            .filter(|&index| dims[index].reach != plain)
            .max_by_key(|&index| dims[index].len);
        let u = windowed.or(dims.len().checked_sub(1)).map_or(alone(0), |index| dims.remove(index));
        let mut problem = Self { outer: dims, u, v, border, rows: 1, cols: 1 };
        (problem.rows, problem.cols) = problem.tile(sums);
        problem
    }

    /// Rows and columns of results per tile.
    fn tile(&self, sums: &Sums) -> (usize, usize) {
        let (u, v, plain) = (&self.u, &self.v, Reach::default());
        let (whole_u, whole_v) = match sums {
            // A running sum starts at the array's edge, so a tile spans the whole axis.
            Sums::Running { axis, .. } => {
                (u.axis == *axis && u.reach != plain, v.axis == *axis && v.reach != plain)
            }
            _ => (false, false),
        };
        let least =
            if v.reach == plain { (64 * TILE / u.reach.extent()).clamp(16, 256) } else { 1024 };
        let cols = if whole_v { v.len } else { v.len.min(least) };
        if whole_u {
            return (u.len, cols.min((4 * TILE / u.len).next_multiple_of(16)));
        }
        let width = cols + v.reach.extent() - 1;
        let rows = (TILE / width / self.slabs()).max(2 * u.reach.extent()).clamp(1, u.len);
        (rows, cols)
    }

    /// Slabs in a tile's buffer: one for each position of the window in the outer dimensions.
    fn slabs(&self) -> usize {
        self.outer.iter().map(|dim| dim.reach.extent()).product()
    }

    /// Rows and columns of a tile's buffer.
    fn buffer(&self) -> (usize, usize) {
        (self.rows + self.u.reach.extent() - 1, self.cols + self.v.reach.extent() - 1)
    }

    fn offsets(&self, reach: &[Reach], sums: &Sums) -> Result<Offsets> {
        let (height, width) = self.buffer();
        // The buffer offset of one step along each axis of the window.
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
            Sums::InOrder { start, taps } => {
                let mut offsets = crate::memory::reserve(taps.len())?;
                offsets.extend(taps.iter().map(|&(position, tap)| (offset(position), tap)));
                Offsets::InOrder { start: *start, taps: offsets }
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
        // The tile's position in the outer dimensions.
        let mut place = vec![0; self.outer.len()];
        for (place, dim) in place.iter_mut().zip(&self.outer).rev() {
            *place = (job % dim.len) as isize;
            job /= dim.len;
        }
        let (height, width) = self.buffer();
        let slabs = self.slabs();
        resize(&mut buffers.source, slabs.saturating_mul(height).saturating_mul(width))?;
        for (slab, part) in buffers.source.chunks_mut(height * width).enumerate() {
            match self.slab_offset(&place, slab) {
                // SAFETY: the indices of the outer dimensions lie inside the array.
                Some(base) => unsafe {
                    self.load(source.kind, source.data.offset(base), part, (row, col), (rows, cols))
                },
                None => part.fill(self.border.constant()),
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
            // SAFETY: likewise, for one row of the tile.
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

    /// Bytes from the source's start to the window position that a slab holds, for a tile at this
    /// place in the outer dimensions. `None` if that position lies outside the array.
    fn slab_offset(&self, place: &[isize], slab: usize) -> Option<isize> {
        let (mut rest, mut base) = (slab, 0);
        for (&place, dim) in place.iter().zip(&self.outer).rev() {
            let extent = dim.reach.extent();
            let index = place - dim.reach.before + (rest % extent) as isize;
            rest /= extent;
            base += self.border.resolve(index, dim.len as isize)? * dim.source;
        }
        Some(base)
    }

    /// Converts the source of a tile to f64. `source` points to element 0 of both `u` and `v`.
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
        let run = self.rows_without_gaps(first, height, cols);
        if !run.is_empty() {
            // SAFETY: these rows lie inside the array, and `cols` is the full length of `v`.
            unsafe {
                let start = source.wrapping_offset((first + run.start as isize) * u.source);
                (kind.load)(start, v.source, &mut part[run.start * width..run.end * width]);
            }
        }
        for index in 0..height {
            if run.contains(&index) {
                continue;
            }
            let line = &mut part[index * width..][..cols + v.reach.extent() - 1];
            let Some(inside) = self.border.resolve(first + index as isize, u.len as isize) else {
                line.fill(self.border.constant());
                continue;
            };
            let base = source.wrapping_offset(inside * u.source);
            let start = col as isize - v.reach.before;
            let from = (-start).clamp(0, line.len() as isize) as usize;
            let to = (v.len as isize - start).clamp(from as isize, line.len() as isize) as usize;
            // SAFETY: elements `start + from .. start + to` of the row lie inside the array, and so
            // does each index that `resolve` returns.
            unsafe {
                (kind.load)(
                    base.wrapping_offset((start + from as isize) * v.source),
                    v.source,
                    &mut line[from..to],
                );
                for index in (0..from).chain(to..line.len()) {
                    match self.border.resolve(start + index as isize, v.len as isize) {
                        Some(inside) => {
                            (kind.load)(base.offset(inside * v.source), 0, &mut line[index..=index])
                        }
                        None => line[index] = self.border.constant(),
                    }
                }
            }
        }
    }

    /// The rows of a tile's buffer that load as one run: they lie inside the array, and follow each
    /// other without a gap in both. The buffer has `height` rows from row `first` of the array on.
    fn rows_without_gaps(&self, first: isize, height: usize, cols: usize) -> Range<usize> {
        let (u, v) = (&self.u, &self.v);
        let follow = v.reach.extent() == 1
            && cols == v.len
            && u.source == v.source * cols as isize
            && self.buffer().1 == cols;
        if !follow {
            return 0..0;
        }
        let from = (-first).clamp(0, height as isize);
        let to = (u.len as isize - first).clamp(from, height as isize);
        from as usize..to as usize
    }
}

/// Resizes a buffer to `len` values.
///
/// # Errors
/// [`Error::HostMemory`] if there is not enough memory.
fn resize(buffer: &mut Vec<f64>, len: usize) -> Result<()> {
    let more = len.saturating_sub(buffer.len());
    buffer
        .try_reserve_exact(more)
        .map_err(|_| Error::HostMemory { bytes: len.saturating_mul(size_of::<f64>()) })?;
    buffer.resize(len, 0.0);
    Ok(())
}
