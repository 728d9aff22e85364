//! Correlation of arrays of any number of dimensions in f64, in SciPy's order of sums and with SciPy's conversions, so that every bit
//! of a result is SciPy's.
//!
//! An array is computed in tiles of its two fastest dimensions. A tile's source, with the elements around it, is converted to f64 once;
//! each tap is then an offset in that buffer. Dimensions that the window does not extend in are merged where strides allow, so that the
//! innermost loop is long for colour images too.

use multiversion::multiversion;
use rayon::prelude::*;

/// What lies outside the array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mode {
    Constant(f64),
    Nearest,
    Reflect,
    Mirror,
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

/// A type of stored values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// Bytes of a value.
    pub(crate) size: usize,
    /// Converts values that are so many bytes apart to f64.
    ///
    /// # Safety
    /// There are as many values as the slice has.
    load: unsafe fn(*const u8, isize, &mut [f64]),
    /// Converts sums to values that are so many bytes apart.
    ///
    /// # Safety
    /// There is room for as many values as the slice has.
    store: unsafe fn(*mut u8, isize, &[f64]),
}

impl Kind {
    const fn of<T: Element>() -> Self {
        Self { size: size_of::<T>(), load: load::<T>, store: store::<T> }
    }

    /// The kind of values with NumPy's letter for it, of so many bytes; none for those that SciPy does not filter either. Truth values are
    /// bytes.
    pub(crate) fn named(letter: u8, bytes: usize) -> Option<Self> {
        Some(match (letter, bytes) {
            (b'b' | b'u', 1) => Self::of::<u8>(),
            (b'i', 1) => Self::of::<i8>(),
            (b'u', 2) => Self::of::<u16>(),
            (b'i', 2) => Self::of::<i16>(),
            (b'u', 4) => Self::of::<u32>(),
            (b'i', 4) => Self::of::<i32>(),
            (b'u', 8) => Self::of::<u64>(),
            (b'i', 8) => Self::of::<i64>(),
            (b'f', 4) => Self::of::<f32>(),
            (b'f', 8) => Self::of::<f64>(),
            _ => return None,
        })
    }
}

/// One of these types. Integers are converted as C does on x86-64: the fraction is cut off, and what the type cannot hold wraps.
trait Element: Copy + 'static {
    fn widen(self) -> f64;
    fn cast(value: f64) -> Self;
}

macro_rules! elements {
    ($($type:ty: $cast:expr;)*) => {$(
        impl Element for $type {
            #[inline(always)]
            fn widen(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn cast(value: f64) -> Self {
                $cast(value) as Self
            }
        }
    )*};
}

elements! {
    u8: int32;
    i8: int32;
    u16: int32;
    i16: int32;
    i32: int32;
    u32: int64;
    i64: int64;
    u64: unsigned64;
    f32: std::convert::identity;
    f64: std::convert::identity;
}

/// What the processor's conversion to 32 bits gives: the least integer for everything out of range.
#[inline(always)]
fn int32(value: f64) -> i32 {
    if value > -2_147_483_649.0 && value < 2_147_483_648.0 {
        // SAFETY: without its fraction it is in range, and not NaN. Rust's own conversion, which saturates, is not vectorized.
        unsafe { value.to_int_unchecked() }
    } else {
        i32::MIN
    }
}

#[inline(always)]
fn int64(value: f64) -> i64 {
    if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value) { value as i64 } else { i64::MIN }
}

#[inline(always)]
fn unsigned64(value: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    if value >= HALF { (int64(value - HALF) as u64) ^ (1 << 63) } else { int64(value) as u64 }
}

/// An array in memory: strides in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Array {
    pub(crate) data: *mut u8,
    pub(crate) kind: Kind,
    pub(crate) shape: Vec<usize>,
    pub(crate) strides: Vec<isize>,
}

// SAFETY: an address; who dereferences it states why that is allowed.
unsafe impl Send for Array {}
// SAFETY: likewise.
unsafe impl Sync for Array {}

/// A window's position in one dimension: the source elements that it reaches before and behind the result's own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Reach {
    pub(crate) before: isize,
    pub(crate) behind: isize,
}

impl Reach {
    /// A window of `size` elements with SciPy's `origin`.
    pub(crate) fn new(size: usize, origin: isize) -> Self {
        let half = (size / 2) as isize;
        Self { before: half + origin, behind: size as isize - half - 1 - origin }
    }

    /// Elements of the window.
    fn extent(self) -> usize {
        (self.before + self.behind + 1) as usize
    }
}

/// How results are summed.
#[derive(Clone, Debug)]
pub(crate) enum Sums {
    /// From `start`, each tap in turn: its position in the window, and its value.
    InTurn { start: f64, taps: Vec<(Vec<usize>, f64)> },
    /// The middle tap, then taps of both sides together: positions of left and right, and the left one's value. `sign` is that of the right one.
    Paired { middle: (Vec<usize>, f64), pairs: Vec<(Vec<usize>, Vec<usize>, f64)>, sign: f64 },
    /// A running sum of so many elements along this dimension, divided by their number.
    Running { axis: usize, size: usize },
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

/// SciPy's sums of a window along one axis: sides are paired where their taps agree to within f64's epsilon.
pub(crate) fn along(axis: usize, dims: usize, taps: &[f64]) -> Sums {
    let at = |index: usize| {
        let mut position = vec![0; dims];
        position[axis] = index;
        position
    };
    let (size, half) = (taps.len(), taps.len() / 2);
    let agree =
        |sign: f64| size % 2 == 1 && (1..=half).all(|i| (taps[half + i] - sign * taps[half - i]).abs() <= f64::EPSILON);
    if let Some(sign) = [1.0, -1.0].into_iter().find(|&sign| agree(sign)) {
        let pairs = (0..half).map(|i| (at(i), at(size - 1 - i), taps[i])).collect();
        return Sums::Paired { middle: (at(half), taps[half]), pairs, sign };
    }
    // The last tap is first. From -0, to which adding changes nothing.
    let order = std::iter::once(size - 1).chain(0..size - 1);
    Sums::InTurn { start: -0.0, taps: order.map(|i| (at(i), taps[i])).collect() }
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

/// A problem in the order in which it is computed: `u` and `v` are a tile's, the others are walked through.
struct Problem {
    outer: Vec<Dim>,
    u: Dim,
    v: Dim,
    mode: Mode,
    /// Results in a tile.
    rows: usize,
    cols: usize,
}

/// Offsets of taps in a tile's buffer.
enum Offsets {
    InTurn { start: f64, taps: Vec<(usize, f64)> },
    Paired { middle: (usize, f64), pairs: Vec<(usize, usize, f64)>, sign: f64 },
    Running { along_v: bool, size: usize },
}

/// A thread's buffers: a tile of the source and of results.
#[derive(Default)]
struct Buffers {
    source: Vec<f64>,
    sums: Vec<f64>,
}

/// How many values of f64 a tile's buffer has, about: it stays in a second-level cache.
const TILE: usize = 16384;

/// Additions below which a second thread does not pay.
const ALONE: usize = 1 << 17;

/// Filters `source` into `target`, whose shape is the same.
///
/// # Safety
/// Every value that shape and strides describe lies in memory that is there for the call. Nobody writes those of the source, nobody
/// else uses those of the target, and the two have no byte in common. Values need not be aligned.
pub(crate) unsafe fn filter(source: &Array, target: &Array, reach: &[Reach], sums: &Sums, mode: Mode) {
    if source.shape.contains(&0) {
        return;
    }
    let problem = Problem::new(source, target, reach, sums, mode);
    let tiles = (problem.u.len.div_ceil(problem.rows), problem.v.len.div_ceil(problem.cols));
    let jobs = problem.outer.iter().map(|dim| dim.len).product::<usize>() * tiles.0 * tiles.1;
    let work = problem.rows * problem.cols * (4 + sums.taps());
    let offsets = problem.offsets(sums);
    let run = |buffers: &mut Buffers, job: usize| {
        // SAFETY: the caller's promise; every job writes other results.
        unsafe { problem.run(source, target, &offsets, job, tiles, buffers) }
    };
    if work.saturating_mul(jobs) < ALONE {
        let mut buffers = Buffers::default();
        (0..jobs).for_each(|job| run(&mut buffers, job));
    } else {
        let least = ALONE / 4 / work.max(1) + 1;
        (0..jobs).into_par_iter().with_min_len(least).for_each_init(Buffers::default, run);
    }
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
        // The fastest last. The sort is stable, and where the window extends along a dimension of one element that one's stride says nothing.
        dims.sort_by_key(|dim| std::cmp::Reverse(if dim.len == 1 { isize::MAX } else { dim.source.abs() }));
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
        let alone = |size: usize| Dim { len: 1, source: size as isize, target: 0, reach: plain, axis: usize::MAX };
        // The fastest, unless it is too short for vectors and the window extends along it, as along the channels of a picture.
        let long = |dim: &Dim| dim.len >= 32 || dim.reach == plain;
        let fastest = dims.iter().rposition(long).or(dims.len().checked_sub(1));
        let v = fastest.map_or(alone(source.kind.size), |index| dims.remove(index));
        // Beside it the longest in which the window extends.
        let windowed = (0..dims.len()).filter(|&index| dims[index].reach != plain).max_by_key(|&index| dims[index].len);
        let u = windowed.or(dims.len().checked_sub(1)).map_or(alone(0), |index| dims.remove(index));
        let mut problem = Self { outer: dims, u, v, mode, rows: 1, cols: 1 };
        let slabs = problem.slabs();
        let (whole_u, whole_v) = match sums {
            // A running sum begins at the array's edge.
            Sums::Running { axis, .. } => (u.axis == *axis && u.reach != plain, v.axis == *axis && v.reach != plain),
            _ => (false, false),
        };
        problem.cols = if whole_v { v.len } else { v.len.min(if v.reach == plain { 256 } else { 1024 }) };
        if whole_u {
            problem.cols = problem.cols.min((4 * TILE / u.len).next_multiple_of(16));
            problem.rows = u.len;
        } else {
            let width = problem.cols + v.reach.extent() - 1;
            problem.rows = (TILE / width / slabs).max(2 * u.reach.extent()).clamp(1, u.len);
        }
        problem
    }

    /// Parts of a tile's buffer: one for each position of the window in the dimensions that are walked through.
    fn slabs(&self) -> usize {
        self.outer.iter().map(|dim| dim.reach.extent()).product()
    }

    /// Rows and columns of a tile's buffer.
    fn buffer(&self) -> (usize, usize) {
        (self.rows + self.u.reach.extent() - 1, self.cols + self.v.reach.extent() - 1)
    }

    fn offsets(&self, sums: &Sums) -> Offsets {
        let (height, width) = self.buffer();
        let offset = |position: &[usize]| {
            let at = |dim: &Dim| position.get(dim.axis).copied().unwrap_or(0);
            let slab = self
                .outer
                .iter()
                .filter(|dim| dim.reach.extent() > 1)
                .fold(0, |slab, dim| slab * dim.reach.extent() + at(dim));
            (slab * height + at(&self.u)) * width + at(&self.v)
        };
        match sums {
            Sums::InTurn { start, taps } => Offsets::InTurn {
                start: *start,
                taps: taps.iter().map(|(position, tap)| (offset(position), *tap)).collect(),
            },
            Sums::Paired { middle, pairs, sign } => Offsets::Paired {
                middle: (offset(&middle.0), middle.1),
                pairs: pairs.iter().map(|(left, right, tap)| (offset(left), offset(right), *tap)).collect(),
                sign: *sign,
            },
            Sums::Running { axis, size } => {
                Offsets::Running { along_v: self.v.axis == *axis && self.v.reach.extent() > 1, size: *size }
            }
        }
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
    ) {
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
        buffers.source.resize(slabs * height * width, 0.0);
        for (slab, part) in buffers.source.chunks_mut(height * width).enumerate() {
            // Which position of the window this slab is for, in each of these dimensions.
            let (mut rest, mut base) = (slab, Some(0));
            for (&place, dim) in place.iter().zip(&self.outer).rev() {
                let extent = dim.reach.extent();
                let index = place - dim.reach.before + (rest % extent) as isize;
                rest /= extent;
                base =
                    base.zip(self.mode.resolve(index, dim.len as isize)).map(|(base, index)| base + index * dim.source);
            }
            match base {
                // SAFETY: the indices of the other dimensions lie inside the array.
                Some(base) => unsafe {
                    self.load(source.kind, source.data.offset(base), part, (row, col), (rows, cols))
                },
                None => part.fill(self.mode.constant()),
            }
        }
        buffers.sums.resize(rows * cols, 0.0);
        compute(&buffers.source, width, offsets, &mut buffers.sums, cols);
        let base: isize = place.iter().zip(&self.outer).map(|(&place, dim)| place * dim.target).sum();
        let base = base + row as isize * self.u.target + col as isize * self.v.target;
        if self.u.target == self.v.target * cols as isize {
            // SAFETY: a tile of the target; `run`'s contract.
            unsafe { (target.kind.store)(target.data.offset(base), self.v.target, &buffers.sums) };
            return;
        }
        for (row, sums) in buffers.sums.chunks(cols).enumerate() {
            // SAFETY: likewise, a row of it.
            unsafe {
                (target.kind.store)(target.data.offset(base + row as isize * self.u.target), self.v.target, sums)
            };
        }
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
        let run = (v.reach.extent() == 1 && cols == v.len && u.source == v.source * cols as isize && width == cols)
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
            // SAFETY: elements `start + from .. start + to` of the row are inside the array, as is each that the mode names.
            unsafe {
                (kind.load)(base.wrapping_offset((start + from as isize) * v.source), v.source, &mut line[from..to]);
                for index in (0..from).chain(to..line.len()) {
                    match self.mode.resolve(start + index as isize, v.len as isize) {
                        Some(inside) => (kind.load)(base.offset(inside * v.source), 0, &mut line[index..=index]),
                        None => line[index] = self.mode.constant(),
                    }
                }
            }
        }
    }
}

/// See [`Kind::load`].
///
/// # Safety
/// There are as many elements of type `S` as `out` has.
#[multiversion(targets("x86_64+avx2"))]
unsafe fn load<S: Element>(source: *const u8, stride: isize, out: &mut [f64]) {
    if stride == size_of::<S>() as isize {
        for (index, out) in out.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *out = unsafe { source.cast::<S>().add(index).read_unaligned() }.widen();
        }
    } else {
        for (index, out) in out.iter_mut().enumerate() {
            // SAFETY: likewise.
            *out = unsafe { source.offset(index as isize * stride).cast::<S>().read_unaligned() }.widen();
        }
    }
}

/// See [`Kind::store`].
///
/// # Safety
/// There is room for as many elements of type `D` as there are sums.
#[multiversion(targets("x86_64+avx2"))]
unsafe fn store<D: Element>(target: *mut u8, stride: isize, sums: &[f64]) {
    if stride == size_of::<D>() as isize {
        for (index, &sum) in sums.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { target.cast::<D>().add(index).write_unaligned(D::cast(sum)) };
        }
    } else {
        for (index, &sum) in sums.iter().enumerate() {
            // SAFETY: likewise.
            unsafe { target.offset(index as isize * stride).cast::<D>().write_unaligned(D::cast(sum)) };
        }
    }
}

/// Sums a tile: `width` is that of its buffer's rows, `cols` that of the sums'.
#[multiversion(targets("x86_64+avx2+avx512f+avx512dq+avx512vl", "x86_64+avx2"))]
fn compute(source: &[f64], width: usize, offsets: &Offsets, sums: &mut [f64], cols: usize) {
    // Rows that follow each other in both are one.
    let line = if width == cols { sums.len() } else { cols };
    match offsets {
        Offsets::Running { along_v, size } => {
            if *along_v {
                let mut done = 0;
                let rows = sums.len() / cols;
                while done < rows {
                    let (from, to) = (&source[done * width..], &mut sums[done * cols..]);
                    done += match rows - done {
                        8.. => running_rows::<8>(from, width, to, cols, *size),
                        _ => running_rows::<1>(from, width, to, cols, *size),
                    };
                }
            } else {
                let mut done = 0;
                while done < cols {
                    let (from, to) = (&source[done..], &mut sums[done..]);
                    done += match cols - done {
                        16.. => running_columns::<16>(from, width, to, cols, *size),
                        4.. => running_columns::<4>(from, width, to, cols, *size),
                        3 => running_columns::<3>(from, width, to, cols, *size),
                        _ => running_columns::<1>(from, width, to, cols, *size),
                    };
                }
            }
        }
        _ => {
            for (row, sums) in sums.chunks_mut(line).enumerate() {
                let source = &source[row * width..];
                let mut done = 0;
                while done < line {
                    let (from, to) = (&source[done..], &mut sums[done..]);
                    done += match line - done {
                        32.. => several::<32>(from, offsets, to),
                        8.. => several::<8>(from, offsets, to),
                        _ => several::<1>(from, offsets, to),
                    };
                }
            }
        }
    }
}

/// The next `N` sums, and how many these are.
#[inline(always)]
fn several<const N: usize>(source: &[f64], offsets: &Offsets, sums: &mut [f64]) -> usize {
    let at = |offset: usize| -> &[f64; N] { source[offset..][..N].try_into().expect("N elements") };
    let mut acc = [0.0; N];
    match offsets {
        Offsets::InTurn { start, taps } => {
            acc = [*start; N];
            for &(offset, tap) in taps {
                let values = at(offset);
                for lane in 0..N {
                    acc[lane] += values[lane] * tap;
                }
            }
        }
        Offsets::Paired { middle, pairs, sign } => {
            let values = at(middle.0);
            for lane in 0..N {
                acc[lane] = values[lane] * middle.1;
            }
            for &(left, right, tap) in pairs {
                let (left, right) = (at(left), at(right));
                for lane in 0..N {
                    // A product with 1 or -1 is exact.
                    acc[lane] += (left[lane] + sign * right[lane]) * tap;
                }
            }
        }
        Offsets::Running { .. } => {}
    }
    sums[..N].copy_from_slice(&acc);
    N
}

/// Running means along `N` rows, and how many these are. Their sums do not wait for each other.
#[inline(always)]
fn running_rows<const N: usize>(source: &[f64], width: usize, sums: &mut [f64], cols: usize, size: usize) -> usize {
    let count = size as f64;
    let line = |n: usize| &source[n * width..][..cols + size - 1];
    let (heads, tails): ([&[f64]; N], [&[f64]; N]) =
        (std::array::from_fn(|n| &line(n)[size - 1..][..cols]), std::array::from_fn(|n| &line(n)[..cols]));
    let mut rows = sums.chunks_exact_mut(cols);
    let rows: [&mut [f64]; N] = std::array::from_fn(|_| &mut rows.next().expect("N rows")[..cols]);
    let mut sum: [f64; N] = std::array::from_fn(|n| line(n)[..size].iter().fold(0.0, |sum, value| sum + value));
    for n in 0..N {
        rows[n][0] = sum[n] / count;
    }
    for at in 1..cols {
        for n in 0..N {
            sum[n] += heads[n][at] - tails[n][at - 1];
            rows[n][at] = sum[n] / count;
        }
    }
    N
}

/// Running means down `N` columns, and how many these are.
#[inline(always)]
fn running_columns<const N: usize>(source: &[f64], width: usize, sums: &mut [f64], cols: usize, size: usize) -> usize {
    let count = size as f64;
    let row = |index: usize| -> &[f64; N] { source[index * width..][..N].try_into().expect("N elements") };
    let mut sum = [0.0; N];
    for index in 0..size {
        let values = row(index);
        for n in 0..N {
            sum[n] += values[n];
        }
    }
    for (at, means) in sums.chunks_mut(cols).enumerate() {
        if at > 0 {
            let (head, tail) = (row(at + size - 1), row(at - 1));
            for n in 0..N {
                sum[n] += head[n] - tail[n];
            }
        }
        for (mean, sum) in means[..N].iter_mut().zip(&sum) {
            *mean = sum / count;
        }
    }
    N
}
