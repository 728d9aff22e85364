//! Passes over arrays in device memory: launches `gpu-kernels/src/kernels/arrays.rs`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use gpu_kernels::array::{
    ArrayPass, ArrayTap, DIMS, Dim, MAX_LEN, MAX_WINDOW, TAP_WORDS, element, join,
};
use gpu_kernels::kernels::arrays::{
    RUN, THREADS, array_converted, array_in_order, array_joined, array_paired, array_running,
};

use super::launch::Grid;
use super::memory::Memory;
use super::stream::Stream;
use crate::passes::{Array, Reach, Sums, dims};
use crate::{Border, Error, Result, passes};

/// Tables of taps in device memory, by GPU and content. They stay, because a program may have
/// recorded launches that read them.
static TABLES: Mutex<BTreeMap<(u32, Vec<u8>), Memory>> = Mutex::new(BTreeMap::new());

/// The most tables that stay, and the bytes of such a table. Other tables live for one call.
const MAX_TABLES: usize = 1024;
const MAX_KEPT: usize = 1 << 16;

/// The most blocks of a grid: kernels loop over what remains.
const MAX_BLOCKS: usize = 1 << 20;

impl Stream {
    /// Filters an array in device memory into another one of the same shape, as
    /// [`passes::filter`] does in host memory, with the same bits, but that a NaN may have another
    /// payload. [`Array::data`] is an address in device memory. Sums become values as by C
    /// ([`crate::passes::Kind::cast`]). The work may not have finished when the function returns.
    ///
    /// ```no_run
    /// use apron::Border;
    /// use apron::gpu::Gpu;
    /// use apron::passes::{Array, Kind, Reach, Sums};
    ///
    /// # let (from, to) = (std::ptr::null_mut(), std::ptr::null_mut());
    /// // Two volumes of 64 x 128 x 256 floats in a GPU's memory; means along the first axis.
    /// let strides = vec![4 * 128 * 256, 4 * 256, 4];
    /// let volume = |data| Array {
    ///     data,
    ///     kind: Kind::cast::<f32>(),
    ///     shape: vec![64, 128, 256],
    ///     strides: strides.clone(),
    /// };
    /// let (source, target) = (volume(from), volume(to));
    /// let reach = [Reach::new(5, 0), Reach::default(), Reach::default()];
    /// let mean = Sums::Running { axis: 0, size: 5 };
    /// let mut stream = Gpu::open(0)?.stream()?;
    /// // SAFETY: the volumes lie there, apart, until the stream is synchronized.
    /// unsafe { stream.filter_array(&source, &target, &reach, &mean, Border::Reflect)? };
    /// stream.synchronize()?;
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Parameter`] for f16 and for [`crate::passes::Kind::of`], for [`Border::Keep`] and
    /// [`Border::None`], if an address or a stride is not a multiple of a value's size, for more
    /// than 2^29 values along an axis, and if the window extends along more than four axes or
    /// 2^20 values; memory and driver errors.
    ///
    /// # Safety
    /// Every value that shapes and strides describe lies in memory of this stream's GPU, which
    /// stays allocated until the stream has passed the work. Nobody writes the values of the source
    /// meanwhile; nobody else accesses the values of the target. Source and target have no byte in
    /// common.
    pub unsafe fn filter_array(
        &mut self,
        source: &Array,
        target: &Array,
        reach: &[Reach],
        sums: &Sums,
        border: Border,
    ) -> Result<()> {
        let window = Window { reach, border, task: Task::Sums(sums) };
        // SAFETY: as the caller promised.
        unsafe { self.enqueue_array(source, target, &window) }
    }

    /// Copies an array in device memory into another one of the same shape. Elements are converted
    /// as by C: the bits of numbers out of an integer type's range are cut off.
    ///
    /// # Errors
    /// As for [`Stream::filter_array`].
    ///
    /// # Safety
    /// As for [`Stream::filter_array`].
    pub unsafe fn convert_array(&mut self, source: &Array, target: &Array) -> Result<()> {
        let reach = vec![Reach::default(); target.shape.len()];
        let window = Window { reach: &reach, border: Border::Replicate, task: Task::Convert };
        // SAFETY: as the caller promised.
        unsafe { self.enqueue_array(source, target, &window) }
    }

    /// Joins the elements of an array in device memory with those of a target of the same shape and
    /// type, element by element, as NumPy's functions would do one step after the other: squares
    /// both (`squared`), adds the source's, and takes the root if `root`. Without a source, the
    /// target's elements alone. Integers wrap around, and roots are converted as by C.
    ///
    /// # Errors
    /// As for [`Stream::filter_array`]; [`Error::Mismatch`] if the types differ.
    ///
    /// # Safety
    /// As for [`Stream::filter_array`].
    pub unsafe fn join_array(
        &mut self,
        source: Option<&Array>,
        target: &Array,
        squared: (bool, bool),
        root: bool,
    ) -> Result<()> {
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let steps = flag(squared.0, join::SQUARE_TARGET)
            | flag(squared.1, join::SQUARE_SOURCE)
            | flag(source.is_some(), join::ADD)
            | flag(root, join::ROOT);
        let source = source.unwrap_or(target);
        if source.kind.name != target.kind.name {
            let (src, dst) = (source.kind.name.to_owned(), target.kind.name.to_owned());
            return Err(Error::Mismatch { src, dst });
        }
        let reach = vec![Reach::default(); target.shape.len()];
        let window = Window { reach: &reach, border: Border::Replicate, task: Task::Join(steps) };
        // SAFETY: as the caller promised; without `ADD`, the kernel does not read the source.
        unsafe { self.enqueue_array(source, target, &window) }
    }

    /// # Safety
    /// As for [`Stream::filter_array`].
    unsafe fn enqueue_array(
        &mut self,
        source: &Array,
        target: &Array,
        window: &Window<'_>,
    ) -> Result<()> {
        if source.shape != target.shape {
            let described = |array: &Array| format!("{:?}", array.shape);
            return Err(Error::Mismatch { src: described(source), dst: described(target) });
        }
        if window.reach.len() != source.shape.len() {
            let expected = format!("one for each of {} axes", source.shape.len());
            return refused("the reach of the window", window.reach.len(), &expected);
        }
        if source.shape.contains(&0) {
            return Ok(());
        }
        window.check(source, target)?;
        self.gpu.enter()?;
        // SAFETY: as the caller promised.
        unsafe { self.enqueue_parts(source, target, window) }
    }

    /// Halves arrays that are too large for a launch, or have too many dimensions, along an axis
    /// without a window.
    ///
    /// # Safety
    /// As for [`Stream::filter_array`].
    unsafe fn enqueue_parts(
        &mut self,
        source: &Array,
        target: &Array,
        window: &Window<'_>,
    ) -> Result<()> {
        let (reach, shape) = (window.reach, &source.shape);
        let dims = dims(source, target, reach);
        let is_large = shape.iter().product::<usize>() > MAX_LEN;
        let free = (0..shape.len()).filter(|&at| reach[at].extent() == 1 && shape[at] > 1);
        let axis = if is_large {
            free.max_by_key(|&at| shape[at])
        } else if dims.len() > DIMS {
            free.min_by_key(|&at| shape[at])
        } else {
            None
        };
        if let Some(axis) = axis {
            let (half, len) = (shape[axis] / 2, shape[axis]);
            for part in [0..half, half..len] {
                let (source, target) = (source.part(axis, part.clone()), target.part(axis, part));
                // SAFETY: a part of the arrays that the caller described.
                unsafe { self.enqueue_parts(&source, &target, window)? };
            }
            return Ok(());
        }
        let (pass, axes) = window.pass(source, target, dims)?;
        for pass in window.without_edges(&pass) {
            // SAFETY: as the caller promised.
            halved(&pass, &mut |pass| unsafe { self.enqueue_pass(pass, axes, window) })?;
        }
        Ok(())
    }

    /// Launches a pass whose dimensions are these axes of the array.
    ///
    /// # Safety
    /// As for [`Stream::filter_array`].
    unsafe fn enqueue_pass(
        &mut self,
        pass: &ArrayPass,
        axes: [usize; DIMS],
        window: &Window<'_>,
    ) -> Result<()> {
        match window.task {
            Task::Sums(Sums::InOrder { start, taps }) => {
                let tap = |&(position, tap): &(usize, f64)| window.tap(pass, axes, position, tap);
                let table: Vec<ArrayTap> = taps.iter().map(tap).collect();
                let at = self.table(bytemuck::cast_slice(&table))?;
                let arguments = (*pass, at.address(), taps.len() as i32, *start);
                // SAFETY: the kernel takes any grid of such blocks, and reads so many taps.
                unsafe { self.enqueue(array_in_order, grid(pass), &arguments)? };
                self.done(at)
            }
            Task::Sums(Sums::Paired { middle, pairs, sign }) => {
                let table: Vec<f64> =
                    std::iter::once(middle.1).chain(pairs.iter().map(|pair| pair.2)).collect();
                let at = self.table(bytemuck::cast_slice(&table))?;
                let along = along(&pass.dims) as i32;
                let arguments = (*pass, along, at.address(), pairs.len() as i32, *sign);
                // SAFETY: the kernel takes any grid of such blocks, and reads a tap of the centre
                // and one of each pair.
                unsafe { self.enqueue(array_paired, grid(pass), &arguments)? };
                self.done(at)
            }
            // SAFETY: the kernel takes any grid of such blocks; a thread computes whole lines.
            Task::Sums(Sums::Running { size, .. }) => unsafe {
                self.enqueue(array_running, grid(pass), &(*pass, *size as i32))
            },
            // SAFETY: the kernel takes any grid of such blocks.
            Task::Convert => unsafe { self.enqueue(array_converted, grid(pass), &(*pass,)) },
            // SAFETY: likewise.
            Task::Join(steps) => unsafe { self.enqueue(array_joined, grid(pass), &(*pass, steps)) },
        }
    }

    /// A table in device memory.
    fn table(&self, table: &[u8]) -> Result<Table> {
        let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (self.gpu.info().ordinal, table.to_vec());
        if let Some(memory) = tables.get(&key) {
            return Ok(Table::Kept(memory.address()));
        }
        let memory = self.gpu.holding(table, "uploading taps")?;
        if tables.len() >= MAX_TABLES || table.len() > MAX_KEPT {
            return Ok(Table::Once(memory));
        }
        Ok(Table::Kept(tables.entry(key).or_insert(memory).address()))
    }

    /// Frees a table after the work that reads it.
    fn done(&self, table: Table) -> Result<()> {
        match table {
            Table::Kept(_) => Ok(()),
            Table::Once(_freed) => self.synchronize(),
        }
    }
}

/// A table of taps in device memory.
enum Table {
    /// It stays, at this address.
    Kept(u64),
    /// It lives for one call.
    Once(Memory),
}

impl Table {
    fn address(&self) -> u64 {
        match self {
            Self::Kept(address) => *address,
            Self::Once(memory) => memory.address(),
        }
    }
}

/// The grid for a launch's results.
fn grid(pass: &ArrayPass) -> Grid {
    let blocks = results(pass).div_ceil(THREADS as usize).min(MAX_BLOCKS);
    Grid { blocks: (blocks as u32, 1, 1), block: (THREADS, 1, 1), shared: 0 }
}

/// The dimension that a window extends along; the first if there is none.
fn along(dims: &[Dim; DIMS]) -> usize {
    dims.iter().position(|dim| dim.before + dim.behind > 0).unwrap_or(0)
}

/// Results of a launch, runs of them, or lines of running means.
fn results(pass: &ArrayPass) -> usize {
    pass.dims.iter().map(|dim| dim.count as usize).product()
}

/// What a call does with each element and its neighbours.
struct Window<'a> {
    reach: &'a [Reach],
    border: Border,
    task: Task<'a>,
}

#[derive(Clone, Copy)]
enum Task<'a> {
    Sums(&'a Sums),
    Convert,
    /// The steps of [`join`].
    Join(u32),
}

impl Window<'_> {
    fn check(&self, source: &Array, target: &Array) -> Result<()> {
        if !target.kind.is_cast {
            let expected = "one that is converted as by C (Kind::cast)";
            return refused("the type", target.kind.name, expected);
        }
        if matches!(self.border, Border::Keep | Border::None) {
            let expected = "a rule that finds a value for every coordinate outside the array";
            return refused("border", self.border, expected);
        }
        let mut extents = self.reach.iter().map(|reach| reach.extent());
        if let Some(extent) = extents.find(|&extent| extent > MAX_WINDOW) {
            return refused("the window's extent", extent, "at most 2^20 on a GPU");
        }
        for array in [source, target] {
            let size = array.kind.size;
            let mut steps = array.shape.iter().zip(&array.strides).filter(|(len, _)| **len > 1);
            let is_aligned = array.data.addr().is_multiple_of(size)
                && steps.all(|(_, stride)| stride % size as isize == 0);
            if !is_aligned {
                let layout = format!("address {:?}, strides {:?}", array.data, array.strides);
                let expected = format!("multiples of the {size} bytes of {}", array.kind.name);
                return refused("the layout", layout, &expected);
            }
        }
        Ok(())
    }

    /// The pass over arrays with these dimensions, and the axis of each of its dimensions.
    fn pass(
        &self,
        source: &Array,
        target: &Array,
        mut dims: Vec<passes::Dim>,
    ) -> Result<(ArrayPass, [usize; DIMS])> {
        let mut windows = dims.iter().filter(|dim| dim.reach.extent() > 1);
        if dims.len() > DIMS {
            return refused("the axes of the window", windows.count(), "at most 4 on a GPU");
        }
        if let Some(dim) = windows.find(|dim| dim.len > MAX_LEN) {
            return refused("the array's extent", dim.len, "at most 2^29 on a GPU");
        }
        let (mut all, mut axes) = ([Dim::NONE; DIMS], [usize::MAX; DIMS]);
        if let Task::Sums(Sums::Running { axis, .. }) = self.task
            && let Some(at) =
                dims.iter().position(|dim| dim.reach.extent() > 1 && dim.axis == *axis)
        {
            all[DIMS - 1] = Dim { count: 1, ..dim_of(&dims.remove(at)) };
        }
        // The fastest first, for adjacent threads.
        for (at, dim) in dims.iter().rev().enumerate() {
            (all[at], axes[at]) = (dim_of(dim), dim.axis);
        }
        if let Task::Sums(Sums::Paired { .. }) = self.task {
            let dim = &mut all[along(&all)];
            (dim.source, dim.target) = (RUN as i64 * dim.source, RUN as i64 * dim.target);
            dim.count = (dim.len as u32).div_ceil(RUN as u32) as i32;
        }
        let pass = ArrayPass {
            source: source.data.addr() as u64,
            target: target.data.addr() as u64,
            outside: self.border.constant(),
            dims: all,
            from: element_of(source)?,
            to: element_of(target)?,
            border: self.border.code().0,
        };
        Ok((pass, axes))
    }

    /// The pass in parts: apart from others, runs of results that windows across the array's edges
    /// have, where adjacent threads compute adjacent runs. Else each warp would have some, and
    /// compute all of its results twice.
    fn without_edges(&self, pass: &ArrayPass) -> Vec<ArrayPass> {
        /// Runs in between for which further launches pay.
        const LEAST: i32 = 32;
        let (runs, run) = (pass.dims[0], RUN as i32);
        let first = (runs.before + run - 1) / run;
        let end = (runs.len - runs.behind).max(0) / run;
        let is_paired = matches!(self.task, Task::Sums(Sums::Paired { .. }));
        if !is_paired || along(&pass.dims) != 0 || end - first < LEAST {
            return vec![*pass];
        }
        let part = |first: i32, end: i32| {
            let mut part = *pass;
            (part.dims[0].first, part.dims[0].count) = (first, end - first);
            part
        };
        let parts = [part(0, first), part(first, end), part(end, runs.count)];
        parts.into_iter().filter(|part| part.dims[0].count > 0).collect()
    }

    /// A tap at a position of the window, for a pass.
    fn tap(
        &self,
        pass: &ArrayPass,
        axes: [usize; DIMS],
        mut position: usize,
        tap: f64,
    ) -> ArrayTap {
        let mut steps = vec![0; self.reach.len()];
        for (step, reach) in steps.iter_mut().zip(self.reach).rev() {
            *step = (position % reach.extent()) as i64 - reach.before as i64;
            position /= reach.extent();
        }
        // An axis without a window has one step, of 0.
        let steps = axes.map(|axis| steps.get(axis).copied().unwrap_or(0));
        let offset: i64 = steps.iter().zip(&pass.dims).map(|(step, dim)| step * dim.source).sum();
        let [offset, tap] =
            [offset as u64, tap.to_bits()].map(|value| [value as u32, (value >> 32) as u32]);
        let mut words = [0; TAP_WORDS];
        words[..2].copy_from_slice(&offset);
        words[2..4].copy_from_slice(&tap);
        words[4..].copy_from_slice(&steps.map(|step| step as i32 as u32));
        words
    }
}

/// Calls `launch` for parts of a pass with few enough results.
fn halved(pass: &ArrayPass, launch: &mut impl FnMut(&ArrayPass) -> Result<()>) -> Result<()> {
    if results(pass) <= MAX_LEN {
        return launch(pass);
    }
    let longest = (0..DIMS).max_by_key(|&d| pass.dims[d].count).unwrap_or(0);
    let half = pass.dims[longest].count / 2;
    let (mut one, mut other) = (*pass, *pass);
    one.dims[longest].count = half;
    other.dims[longest].first += half;
    other.dims[longest].count -= half;
    halved(&one, launch)?;
    halved(&other, launch)
}

fn dim_of(dim: &passes::Dim) -> Dim {
    Dim {
        source: dim.source as i64,
        target: dim.target as i64,
        len: dim.len as i32,
        first: 0,
        count: dim.len as i32,
        before: dim.reach.before as i32,
        behind: dim.reach.behind as i32,
    }
}

/// The code of an array's type.
fn element_of(array: &Array) -> Result<u32> {
    Ok(match array.kind.name {
        "u8" => element::U8,
        "i8" => element::I8,
        "u16" => element::U16,
        "i16" => element::I16,
        "u32" => element::U32,
        "i32" => element::I32,
        "u64" => element::U64,
        "i64" => element::I64,
        "f32" => element::F32,
        "f64" => element::F64,
        name => return refused("the type", name, "f32, f64 or integers of 8 to 64 bits"),
    })
}

fn refused<T>(name: &'static str, value: impl std::fmt::Display, expected: &str) -> Result<T> {
    Err(Error::Parameter { name, value: value.to_string(), expected: expected.to_owned() })
}
