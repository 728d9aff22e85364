//! A filter on a GPU: taps in device memory, workspaces reused from run to run.

use std::ffi::c_void;
use std::sync::{Mutex, OnceLock, PoisonError};

use cust::memory::LockedBuffer;
use gpu_kernels::abi::{ConstantTaps, Frame, MAX_CONSTANT_TAPS, Window};

use super::device::Gpu;
use super::image::DeviceImage;
use super::memory::Memory;
use super::stream::Stream;
use super::{direct, fourier, launch, separable, sliding};
use crate::image::Shape;
use crate::memory::once;
use crate::{Border, Error, Family, Filter, Result, Variant};

/// Runs one filter on one GPU, from any thread: each run takes a workspace of its own.
#[derive(Debug)]
pub(crate) struct Engine {
    gpu: Gpu,
    filter: Filter,
    window: Window,
    dense: OnceLock<TapSet>,
    pair: OnceLock<(TapSet, TapSet)>,
    /// The row's taps, then the column's.
    fused: OnceLock<Box<ConstantTaps>>,
    fourier: OnceLock<fourier::Plan>,
    idle: Mutex<Vec<Workspace>>,
}

/// Taps in the two homes that kernels read them from.
pub(super) struct TapSet {
    pub(super) host: Vec<f32>,
    pub(super) constant: Option<Box<ConstantTaps>>,
    memory: Memory,
}

impl std::fmt::Debug for TapSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TapSet({} taps)", self.host.len())
    }
}

impl TapSet {
    fn new(gpu: &Gpu, host: Vec<f32>) -> Result<Self> {
        let memory = gpu.holding(&host, "uploading taps")?;
        let constant = (host.len() <= MAX_CONSTANT_TAPS).then(|| constant_taps(host.iter().copied()));
        Ok(Self { host, constant, memory })
    }

    /// The taps' address on the device.
    pub(super) fn pointer(&self) -> *const f32 {
        self.memory.pointer()
    }
}

/// What one run needs beside the taps; kept for the next run.
#[derive(Debug)]
struct Workspace {
    stream: Stream,
    src: DeviceImage,
    dst: DeviceImage,
    input: LockedBuffer<f32>,
    output: LockedBuffer<f32>,
}

impl Engine {
    pub(crate) fn new(filter: &Filter, ordinal: u32) -> Result<Self> {
        let (anchor_x, anchor_y) = filter.anchor();
        let window = Window {
            cols: filter.cols() as i32,
            rows: filter.rows() as i32,
            anchor_x: anchor_x as i32,
            anchor_y: anchor_y as i32,
        };
        Ok(Self {
            gpu: Gpu::open(ordinal)?,
            filter: filter.clone(),
            window,
            dense: OnceLock::new(),
            pair: OnceLock::new(),
            fused: OnceLock::new(),
            fourier: OnceLock::new(),
            idle: Mutex::default(),
        })
    }

    pub(crate) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Filters planes that start and end in host memory: `fill` writes them, `drain` reads the results.
    pub(crate) fn run(
        &self,
        variant: Variant,
        border: Border,
        shape: Shape,
        fill: impl FnOnce(&mut [f32]),
        drain: impl FnOnce(&[f32]),
    ) -> Result<()> {
        let mut work = self.workspace(shape)?;
        fill(&mut work.input);
        let done = (|| {
            // SAFETY: both host buffers belong to the workspace, which is not dropped before the stream is done:
            // on success it is synchronized here, on failure when the stream is dropped, first of its fields.
            unsafe { work.src.write(&work.input, &work.stream)? };
            self.enqueue(variant, border, &work.src, &mut work.dst, &mut work.stream)?;
            // SAFETY: as above.
            unsafe { work.dst.read(&mut work.output, &work.stream)? };
            work.stream.synchronize()
        })();
        done?;
        drain(&work.output);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(work);
        Ok(())
    }

    /// Filters an image on the device; in stream order. All three are this GPU's.
    pub(crate) fn enqueue(
        &self,
        variant: Variant,
        border: Border,
        src: &DeviceImage,
        dst: &mut DeviceImage,
        stream: &mut Stream,
    ) -> Result<()> {
        self.gpu.same("the source", src.gpu())?;
        self.gpu.same("the destination", dst.gpu())?;
        self.gpu.same("the stream", &stream.gpu)?;
        self.gpu.enter()?;
        let (border, border_value) = border.code();
        let shape = src.shape();
        let frame = Frame {
            src: src.pointer(),
            dst: dst.pointer(),
            src_stride: src.stride(),
            dst_stride: dst.stride(),
            src_plane: src.plane_stride(),
            dst_plane: dst.plane_stride(),
            width: shape.width as i32,
            height: shape.height as i32,
            border,
            border_value,
        };
        let planes = shape.channels;
        match (variant, sliding::entry(variant, &self.window)) {
            (Variant::DirectSliding, Some(kernel)) if let Some(taps) = &self.dense()?.constant => {
                sliding::launch(kernel, frame, planes, self.window, taps, stream)
            }
            (Variant::SeparableFused, Some(kernel)) => {
                sliding::launch(kernel, frame, planes, self.window, self.fused()?, stream)
            }
            _ => match variant.family() {
                Family::Direct => direct::launch(variant, frame, planes, self.window, self.dense()?, stream),
                Family::Separable => {
                    let (row, column) = self.pair()?;
                    separable::launch(frame, planes, self.window, row, column, stream)
                }
                Family::Fourier => fourier::launch(self.fourier()?, frame, planes, self.window, self.dense()?, stream),
            },
        }
    }

    /// The taps, row by row.
    pub(super) fn dense(&self) -> Result<&TapSet> {
        once(&self.dense, || TapSet::new(&self.gpu, self.filter.dense_f32()?))
    }

    /// The taps of a row, then those of a column, to be passed by value.
    pub(super) fn fused(&self) -> Result<&ConstantTaps> {
        let taps = once(&self.fused, || {
            let (row, column) = self.filter.separated().ok_or_else(not_separable)?;
            Ok(constant_taps(row.iter().chain(column).map(|&tap| tap as f32)))
        });
        taps.map(|taps| &**taps)
    }

    /// The taps of a row and of a column.
    pub(super) fn pair(&self) -> Result<&(TapSet, TapSet)> {
        once(&self.pair, || {
            let (row, column) = self.filter.separated().ok_or_else(not_separable)?;
            let round = |taps: &[f64]| taps.iter().map(|&tap| tap as f32).collect();
            Ok((TapSet::new(&self.gpu, round(row))?, TapSet::new(&self.gpu, round(column))?))
        })
    }

    /// The spectra of the window's parts.
    fn fourier(&self) -> Result<&fourier::Plan> {
        once(&self.fourier, || fourier::plan(&self.gpu, &self.filter, &self.window))
    }

    /// An idle workspace of this shape, or a new one. Those of another shape are let go.
    fn workspace(&self, shape: Shape) -> Result<Workspace> {
        let mut idle = std::mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner));
        let found = idle.iter().position(|work| work.src.shape() == shape).map(|index| idle.swap_remove(index));
        idle.retain(|work| work.src.shape() == shape);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).append(&mut idle);
        if let Some(work) = found {
            return Ok(work);
        }
        let len = crate::image::planes::planes_len(shape, shape.channels)?;
        let pinned = || {
            // SAFETY: pinned memory comes from the driver, so its bytes have values, and any bytes are an f32.
            unsafe { LockedBuffer::uninitialized(len) }.map_err(|_| Error::HostMemory { bytes: 4 * len })
        };
        Ok(Workspace {
            stream: self.gpu.stream()?,
            src: self.gpu.image(shape)?,
            dst: self.gpu.image(shape)?,
            input: pinned()?,
            output: pinned()?,
        })
    }
}

fn constant_taps(taps: impl Iterator<Item = f32>) -> Box<ConstantTaps> {
    let mut all = Box::new(ConstantTaps([0.0; MAX_CONSTANT_TAPS]));
    all.0.iter_mut().zip(taps).for_each(|(to, tap)| *to = tap);
    all
}

fn not_separable() -> Error {
    Error::Unsupported {
        variant: Variant::Separable.name(),
        reason: "the filter does not separate into a row and a column".into(),
    }
}

/// The blocks of one launch.
#[derive(Clone, Copy)]
pub(super) struct Grid {
    pub(super) blocks: (u32, u32),
    pub(super) block: (u32, u32),
    /// Bytes of dynamic shared memory for each.
    pub(super) shared: u32,
}

impl Grid {
    /// As many blocks as cover the frame, each with a tile of pixels.
    pub(super) fn covering(frame: &Frame, tile: (u32, u32), block: (u32, u32), shared: u32) -> Self {
        let blocks = ((frame.width as u32).div_ceil(tile.0), (frame.height as u32).div_ceil(tile.1));
        Self { blocks, block, shared }
    }

    /// No taller than the GPU takes, for kernels that step on from where a grid ends.
    pub(super) fn stepping(mut self, gpu: &Gpu) -> Self {
        self.blocks.1 = self.blocks.1.min(gpu.grid_rows());
        self
    }

    /// Puts a kernel into a stream.
    ///
    /// # Safety
    /// `entry` takes a [`Frame`] and then `arguments`, and keeps to the block shape and shared memory given here.
    pub(super) unsafe fn launch(
        &self,
        entry: &'static str,
        frame: Frame,
        planes: usize,
        arguments: &[*const c_void],
        stream: &mut Stream,
    ) -> Result<()> {
        let function = stream.gpu.function_to_launch(entry)?;
        // A shape has no more channels than the grid takes in z.
        let blocks = (self.blocks.0, self.blocks.1, planes as u32);
        let grid = launch::Grid { blocks, block: (self.block.0, self.block.1, 1), shared: self.shared };
        let arguments: Vec<_> = [argument(&frame)].into_iter().chain(arguments.iter().copied()).collect();
        // SAFETY: by the caller's promise the arguments are what the entry takes.
        unsafe { stream.put(function, grid, &arguments) }
    }
}

/// A kernel argument by reference, as the driver takes it.
pub(super) fn argument<T>(value: &T) -> *const c_void {
    (&raw const *value).cast()
}
