//! A filter on a GPU: taps in device memory, workspaces reused from run to run.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use cust::memory::LockedBuffer;
use gpu_kernels::abi::{Channels, Epilogue, Pass, Region, Window};

use super::device::Gpu;
use super::image::DeviceImage;
use super::stream::Stream;
use super::taps::TapHomes;
use super::view::{DeviceView, DeviceViewMut};
use crate::image::{Shape, planes};
use crate::kernels::prepared::{Job, Prepared};
use crate::plan::problem::rows_read;
use crate::{Border, Error, Filter, Result};

/// Planes that a grid's z axis takes.
const MOST_PLANES: usize = 65_535;

/// Runs one filter on one GPU, from any thread: each run takes a workspace of its own.
#[derive(Debug)]
pub(crate) struct Engine {
    gpu: Gpu,
    window: Window,
    taps: TapHomes,
    idle: Mutex<Vec<Workspace>>,
}

/// The memory and the stream of one run, without the taps; kept for the next run.
#[derive(Debug)]
struct Workspace {
    stream: Stream,
    src: DeviceImage,
    dst: DeviceImage,
    input: LockedBuffer<f32>,
    output: LockedBuffer<f32>,
}

/// Which results are computed, and the epilogue for their sums.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) columns: Range<usize>,
    pub(crate) rows: Range<usize>,
    pub(crate) epilogue: Epilogue,
}

impl Part {
    /// All results, without an epilogue.
    pub(crate) fn whole(shape: Shape) -> Self {
        Self { columns: 0..shape.width, rows: 0..shape.height, epilogue: Epilogue::NONE }
    }
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
        let gpu = Gpu::open(ordinal)?;
        Ok(Self { taps: TapHomes::new(&gpu, filter), gpu, window, idle: Mutex::default() })
    }

    pub(crate) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Filters planes that start and end in host memory: `fill` writes them, `drain` reads the results.
    pub(crate) fn run(
        &self,
        prepared: &Prepared,
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
            let (src, mut dst) = (work.src.view(), work.dst.view_mut());
            self.enqueue(prepared, border, &src, &mut dst, &Part::whole(shape), &mut work.stream)?;
            // SAFETY: as above.
            unsafe { work.dst.read(&mut work.output, &work.stream)? };
            work.stream.synchronize()
        })();
        done?;
        drain(&work.output);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(work);
        Ok(())
    }

    /// Filters images on the device, in stream order. `prepared` is a kernel for this part of this kind of source.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if sizes differ; [`Error::Parameter`] if a view or the stream is another GPU's, or lacks rows.
    pub(crate) fn enqueue(
        &self,
        prepared: &Prepared,
        border: Border,
        src: &DeviceView<'_>,
        dst: &mut DeviceViewMut<'_>,
        part: &Part,
        stream: &mut Stream,
    ) -> Result<()> {
        let (src, dst) = (&src.parts, &dst.parts);
        self.gpu.same("the source", &src.gpu)?;
        self.gpu.same("the destination", &dst.gpu)?;
        self.gpu.same("the stream", stream.gpu())?;
        let Shape { width, height, channels } = src.shape;
        if (src.shape, src.images) != (dst.shape, dst.images) {
            let told = |shape: Shape, images| format!("{shape}, {images} images");
            let (src, dst) = (told(src.shape, src.images), told(dst.shape, dst.images));
            return Err(Error::Mismatch { src, dst });
        }
        let (mode, outside) = border.code();
        let read =
            rows_read(mode, (self.window.anchor_y as usize, self.window.rows as usize), part.rows.clone(), height);
        within("the rows to compute", &part.rows, &dst.there())?;
        within("the columns to compute", &part.columns, &(0..width))?;
        within("the source's rows that they need", &read, &src.there())?;
        self.gpu.enter()?;
        let region = Region {
            x0: part.columns.start as i32,
            y0: part.rows.start as i32,
            x1: part.columns.end as i32,
            y1: part.rows.end as i32,
        };
        let at_once = (MOST_PLANES / channels).max(1);
        for first in (0..src.images).step_by(at_once) {
            let images = at_once.min(src.images - first);
            let pass = Pass {
                src: src.plane_from(first),
                dst: dst.plane_from(first),
                width: width as i32,
                height: height as i32,
                region,
                channels: Channels::new(channels as u32, images as u32),
                border: mode,
                outside,
                epilogue: part.epilogue,
            };
            let job = Job {
                pass,
                channels: channels as u32,
                planes: (images * channels) as u32,
                window: self.window,
                taps: &self.taps,
            };
            prepared.work.launch(&job, stream)?;
        }
        Ok(())
    }

    /// An idle workspace of this shape, or a new one. Idle ones of another shape are freed.
    fn workspace(&self, shape: Shape) -> Result<Workspace> {
        let mut idle = std::mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner));
        let found = idle.iter().position(|work| work.src.shape() == shape).map(|index| idle.swap_remove(index));
        idle.retain(|work| work.src.shape() == shape);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).append(&mut idle);
        if let Some(work) = found {
            return Ok(work);
        }
        let len = planes::planes_len(shape, shape.channels)?;
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

/// Whether a range is not empty and lies in another one.
fn within(name: &'static str, range: &Range<usize>, all: &Range<usize>) -> Result<()> {
    if !range.is_empty() && range.start >= all.start && range.end <= all.end {
        return Ok(());
    }
    let expected = format!("a range within {}..{}, not empty", all.start, all.end);
    Err(Error::Parameter { name, value: format!("{}..{}", range.start, range.end), expected })
}
