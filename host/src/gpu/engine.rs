//! A filter on a GPU: taps in device memory, workspaces reused from run to run.

use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};

use cust::memory::LockedBuffer;
use gpu_kernels::abi::{Channels, Doubts, Epilogue, Pass, Region, Window};
use rayon::prelude::*;

use super::device::Gpu;
use super::image::DeviceImage;
use super::stream::Stream;
use super::taps::TapHomes;
use super::view::{DeviceView, DeviceViewMut};
use crate::image::{ImageView, ImageViewMut, Layout, Pixel, Scalar, Shape};
use crate::kernels::prepared::{Job, Prepared};
use crate::kernels::{keep, passes, settle};
use crate::plan::problem::rows_read;
use crate::round::Uncertainty;
use crate::{Border, Error, Family, Filter, Result};

/// Planes that a grid's z axis takes.
const MOST_PLANES: usize = 65_535;

/// Runs one filter on one GPU, from any thread: each run takes a workspace of its own.
#[derive(Debug)]
pub(crate) struct Engine {
    gpu: Gpu,
    border: Border,
    window: Window,
    taps: TapHomes,
    /// How sums are rounded to bytes, for each family.
    uncertainties: [OnceLock<Uncertainty>; 3],
    idle: Mutex<Vec<Workspace>>,
}

/// The memory and the stream of one run, without the taps; kept for the next run.
#[derive(Debug)]
struct Workspace {
    stream: Stream,
    src: DeviceImage,
    dst: DeviceImage,
    /// The source as planes, if no kernel takes it as it is stored.
    planes: Option<DeviceImage>,
    input: LockedBuffer<u8>,
    output: LockedBuffer<u8>,
}

/// Which results are computed, and the epilogue for their sums.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) columns: Range<usize>,
    pub(crate) rows: Range<usize>,
    /// How many channels are filtered; the others are copied.
    pub(crate) filtered: usize,
    pub(crate) epilogue: Epilogue,
}

impl Part {
    /// All results, without an epilogue.
    pub(crate) fn whole(shape: Shape) -> Self {
        let Shape { width, height, channels } = shape;
        Self { columns: 0..width, rows: 0..height, filtered: channels, epilogue: Epilogue::NONE }
    }
}

impl Engine {
    pub(crate) fn new(filter: &Filter, border: Border, ordinal: u32) -> Result<Self> {
        let (anchor_x, anchor_y) = filter.anchor();
        let window = Window {
            cols: filter.cols() as i32,
            rows: filter.rows() as i32,
            anchor_x: anchor_x as i32,
            anchor_y: anchor_y as i32,
        };
        let gpu = Gpu::open(ordinal)?;
        let taps = TapHomes::new(&gpu, filter);
        Ok(Self { gpu, border, window, taps, uncertainties: Default::default(), idle: Mutex::default() })
    }

    pub(crate) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Whether a host image becomes planes of f32 on the device: no fast kernel takes several interleaved channels of f32.
    pub(crate) fn takes_planes(scalar: Scalar, channels: usize) -> bool {
        scalar == Scalar::F32 && channels > 1
    }

    /// Filters the first `filtered` channels of an image that starts and ends in host memory, and copies the others.
    pub(crate) fn run<S: Pixel, D: Pixel>(
        &self,
        prepared: &Prepared,
        src: &ImageView<'_, S>,
        dst: &mut ImageViewMut<'_, D>,
        filtered: usize,
    ) -> Result<()> {
        let shape = src.shape();
        let mut work = self.workspace(shape, S::SCALAR, D::SCALAR)?;
        let row = size_of::<S>() * shape.row_len();
        work.input.par_chunks_mut(row).enumerate().for_each(|(y, out)| {
            out.copy_from_slice(bytemuck::cast_slice(src.row(y)));
        });
        let part = Part { filtered, ..Part::whole(shape) };
        // SAFETY: both host buffers belong to the workspace, which is not dropped before the stream is done:
        // on success it is synchronized here, on failure when the stream is dropped, first of its fields.
        unsafe { work.src.write(&work.input, &work.stream)? };
        let mut source = work.src.view();
        if let Some(planes) = &mut work.planes {
            self.copy(&source, &mut planes.view_mut(), &mut work.stream)?;
            source = planes.view();
        }
        self.enqueue(prepared, &source, &mut work.dst.view_mut(), &part, &mut work.stream)?;
        // SAFETY: as above.
        unsafe { work.dst.read(&mut work.output, &work.stream)? };
        work.stream.synchronize()?;
        let row = size_of::<D>() * shape.row_len();
        dst.rows_mut().zip(work.output.par_chunks(row)).for_each(|(out, row)| {
            bytemuck::cast_slice_mut(out).copy_from_slice(row);
        });
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(work);
        Ok(())
    }

    /// Copies an image on the device into another layout or type.
    fn copy(&self, src: &DeviceView<'_>, dst: &mut DeviceViewMut<'_>, stream: &mut Stream) -> Result<()> {
        let (src, dst) = (&src.parts, &dst.parts);
        self.gpu.enter()?;
        let part = Part::whole(src.shape);
        let channels = src.shape.channels;
        keep::copy(&self.pass(src, dst, &part, 0, (channels, 1)), channels as u32, stream)
    }

    /// The pass over `count` images from number `first` on, with so many channels of each.
    fn pass(
        &self,
        src: &super::view::View,
        dst: &super::view::View,
        part: &Part,
        first: usize,
        (channels, count): (usize, usize),
    ) -> Pass {
        let (border, outside) = self.border.code();
        Pass {
            src: src.plane_from(first, channels),
            dst: dst.plane_from(first, channels),
            width: src.shape.width as i32,
            height: src.shape.height as i32,
            region: Region {
                x0: part.columns.start as i32,
                y0: part.rows.start as i32,
                x1: part.columns.end as i32,
                y1: part.rows.end as i32,
            },
            channels: Channels::new(channels as u32, count as u32),
            border,
            outside,
            epilogue: part.epilogue,
            doubts: Doubts::NONE,
        }
    }

    /// Filters images on the device, in stream order. `prepared` is a kernel for this part of this kind of source.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if sizes differ; [`Error::Parameter`] if a view or the stream is another GPU's, or lacks rows, or if the
    /// views overlap.
    pub(crate) fn enqueue(
        &self,
        prepared: &Prepared,
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
        if src.overlaps(dst) {
            let expected = "memory apart from the source's: results would be read as pixels".to_owned();
            return Err(Error::Parameter { name: "the destination", value: "memory of the source".into(), expected });
        }
        let (mode, _) = self.border.code();
        let read =
            rows_read(mode, (self.window.anchor_y as usize, self.window.rows as usize), part.rows.clone(), height);
        within("the rows to compute", &part.rows, &dst.there())?;
        within("the columns to compute", &part.columns, &(0..width))?;
        within("the source's rows that they need", &read, &src.there())?;
        self.gpu.enter()?;
        // Bytes made of bytes are correctly rounded. What an epilogue makes is rounded from f32.
        let bytes = (src.scalar, dst.scalar) == (Scalar::U8, Scalar::U8) && part.epilogue == Epilogue::NONE;
        let uncertainty = if bytes { self.uncertainty(prepared.variant.family())? } else { &Uncertainty::NONE };
        let takes_pixels = prepared.work.takes_pixels();
        let counted = if takes_pixels { channels } else { part.filtered };
        let at_once = (MOST_PLANES / channels).max(1);
        for first in (0..src.images).step_by(at_once) {
            let count = at_once.min(src.images - first);
            let job = |channels: usize, doubts| Job {
                pass: Pass { doubts, ..self.pass(src, dst, part, first, (channels, count)) },
                channels: channels as u32,
                filtered: part.filtered as u32,
                planes: (count * channels) as u32,
                window: self.window,
                taps: &self.taps,
            };
            let results = part.columns.len() * part.rows.len() * count * part.filtered;
            let doubts = match uncertainty.near {
                Some(near) => stream.doubts(uncertainty.places(results, Doubts::SEGMENTS as usize), near)?,
                None => Doubts::NONE,
            };
            match uncertainty.passes {
                Some(defined) => passes::launch(&job(part.filtered, doubts), defined, uncertainty.reordering, stream)?,
                None => prepared.work.launch(&job(counted, doubts), stream)?,
            }
            // Bytes that passes define are never in doubt.
            if uncertainty.near.is_some() && uncertainty.passes != Some(true) {
                settle::launch(&job(part.filtered, doubts), uncertainty.reordering, stream)?;
            }
            if !takes_pixels || uncertainty.passes.is_some() {
                self.copy_channels(&job(channels, Doubts::NONE).pass, part.filtered..channels, count, stream)?;
            }
        }
        Ok(())
    }

    /// Copies some channels of a pass that has all of them.
    fn copy_channels(&self, pass: &Pass, channels: Range<usize>, count: usize, stream: &mut Stream) -> Result<()> {
        let all = channels.end;
        for channel in channels {
            let of_one = |plane: &gpu_kernels::abi::Plane| plane.channel_alone(channel as i64, all as u32);
            let pass = Pass {
                src: of_one(&pass.src),
                dst: of_one(&pass.dst),
                channels: Channels::new(1, count as u32),
                epilogue: Epilogue::NONE,
                ..*pass
            };
            keep::copy(&pass, count as u32, stream)?;
        }
        Ok(())
    }

    /// How a family's sums are rounded to bytes.
    fn uncertainty(&self, family: Family) -> Result<&Uncertainty> {
        let cell = match family {
            Family::Direct => &self.uncertainties[0],
            Family::Separable => &self.uncertainties[1],
            Family::Fourier => &self.uncertainties[2],
        };
        crate::memory::once(cell, || Ok(Uncertainty::new(self.taps.filter(), self.border, family.into())))
    }

    /// An idle workspace for such images, or a new one. Idle ones for others are freed.
    fn workspace(&self, shape: Shape, source: Scalar, target: Scalar) -> Result<Workspace> {
        let fits = |work: &Workspace| {
            work.src.shape() == shape && (work.src.format().scalar, work.dst.format().scalar) == (source, target)
        };
        let mut idle = std::mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner));
        let found = idle.iter().position(fits).map(|index| idle.swap_remove(index));
        idle.retain(fits);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).append(&mut idle);
        if let Some(work) = found {
            return Ok(work);
        }
        let pinned = |image: &DeviceImage| {
            let bytes = image.pixel_bytes();
            // SAFETY: pinned memory comes from the driver, so its bytes have values.
            unsafe { LockedBuffer::uninitialized(bytes) }.map_err(|_| Error::HostMemory { bytes })
        };
        let src = self.gpu.image_of(shape, source, Layout::Interleaved)?;
        let dst = self.gpu.image_of(shape, target, Layout::Interleaved)?;
        let planes = Self::takes_planes(source, shape.channels).then(|| self.gpu.image(shape)).transpose()?;
        let (input, output) = (pinned(&src)?, pinned(&dst)?);
        Ok(Workspace { stream: self.gpu.stream()?, src, dst, planes, input, output })
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
