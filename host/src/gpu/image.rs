//! Images in device memory.

use cust::memory::DeviceBuffer;
use cust::sys;

use super::device::Gpu;
use super::driver;
use super::stream::Stream;
use crate::image::{Image, ImageView, Pixel, Shape};
use crate::{Error, Result, pixels};

/// Rows begin at multiples of this many floats, 128 bytes: a warp's row is whole cache lines.
const ROW_ALIGNMENT: usize = 32;
/// The rows of [`Gpu::image_by_rows`] begin at multiples of this many floats, 32 bytes: no less will do for vector loads and for
/// textures.
const BY_ROWS_ALIGNMENT: usize = 8;

/// An image in the memory of a GPU: planes of f32, one for each channel.
#[derive(Debug)]
pub struct DeviceImage {
    gpu: Gpu,
    shape: Shape,
    stride: usize,
    plane: usize,
    buffer: DeviceBuffer<f32>,
}

impl DeviceImage {
    /// Width, height and channels.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Floats from one row to the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Floats from one plane to the next.
    pub(super) fn plane(&self) -> usize {
        self.plane
    }

    pub(super) fn pointer(&self) -> *mut f32 {
        self.buffer.as_device_ptr().as_raw() as *mut f32
    }

    /// Sets every float, those between the rows too; in stream order.
    ///
    /// # Errors
    /// Driver errors.
    pub fn fill(&mut self, value: f32, stream: &Stream) -> Result<()> {
        self.gpu.enter()?;
        let pointer = self.buffer.as_device_ptr().as_raw();
        // SAFETY: the buffer holds as many floats, and is borrowed exclusively.
        let status = unsafe { sys::cuMemsetD32Async(pointer, value.to_bits(), self.buffer.len(), stream.raw()) };
        driver::check(status).map_err(|error| self.gpu.error("filling an image", error))
    }

    /// Copies the pixels of another image of the same shape; in stream order.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if shapes differ; driver errors.
    pub fn copy_from(&mut self, src: &Self, stream: &Stream) -> Result<()> {
        if (src.shape, src.stride, src.plane) != (self.shape, self.stride, self.plane) {
            return Err(Error::Mismatch { src: src.shape.to_string(), dst: self.shape.to_string() });
        }
        self.gpu.enter()?;
        let (from, to) = (src.buffer.as_device_ptr().as_raw(), self.buffer.as_device_ptr().as_raw());
        // SAFETY: both buffers have the same length, as they are laid out alike.
        let status = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, 4 * self.buffer.len(), stream.raw()) };
        driver::check(status).map_err(|error| self.gpu.error("copying an image", error))
    }

    /// Copies planes without gaps into the image; in stream order.
    ///
    /// # Safety
    /// `planes` stays as it is until the stream has passed the copy.
    pub(super) unsafe fn write(&mut self, planes: &[f32], stream: &Stream) -> Result<()> {
        let row = self.shape.width;
        for (planes, at) in planes.chunks(row * self.rows_at_once()).zip(self.planes()) {
            let copy = sys::CUDA_MEMCPY2D {
                srcMemoryType: sys::CUmemorytype_enum::CU_MEMORYTYPE_HOST,
                srcHost: planes.as_ptr().cast(),
                srcPitch: 4 * row,
                dstMemoryType: sys::CUmemorytype_enum::CU_MEMORYTYPE_DEVICE,
                dstDevice: at,
                dstPitch: 4 * self.stride,
                WidthInBytes: 4 * row,
                Height: planes.len() / row,
                ..empty_copy()
            };
            // `planes` has as many rows as the part.
            self.copy(&copy, "uploading an image", stream)?;
        }
        Ok(())
    }

    /// Copies the image into planes without gaps; in stream order.
    ///
    /// # Safety
    /// `planes` is not touched until the stream has passed the copy.
    pub(super) unsafe fn read(&self, planes: &mut [f32], stream: &Stream) -> Result<()> {
        let row = self.shape.width;
        for (planes, at) in planes.chunks_mut(row * self.rows_at_once()).zip(self.planes()) {
            let copy = sys::CUDA_MEMCPY2D {
                srcMemoryType: sys::CUmemorytype_enum::CU_MEMORYTYPE_DEVICE,
                srcDevice: at,
                srcPitch: 4 * self.stride,
                dstMemoryType: sys::CUmemorytype_enum::CU_MEMORYTYPE_HOST,
                dstHost: planes.as_mut_ptr().cast(),
                dstPitch: 4 * row,
                WidthInBytes: 4 * row,
                Height: planes.len() / row,
                ..empty_copy()
            };
            self.copy(&copy, "downloading an image", stream)?;
        }
        Ok(())
    }

    /// Rows that lie a stride apart: those of all planes where one follows the other, else of one.
    fn rows_at_once(&self) -> usize {
        let planes = if self.plane == self.stride * self.shape.height { self.shape.channels } else { 1 };
        planes * self.shape.height
    }

    /// The addresses at which planes begin.
    fn planes(&self) -> impl Iterator<Item = u64> + use<> {
        let (start, plane) = (self.buffer.as_device_ptr().as_raw(), 4 * self.plane as u64);
        (0..self.shape.channels as u64).map(move |channel| start + channel * plane)
    }

    fn copy(&self, copy: &sys::CUDA_MEMCPY2D, what: &'static str, stream: &Stream) -> Result<()> {
        self.gpu.enter()?;
        // SAFETY: the callers describe memory that is there, and wait until it has been copied, or theirs promise that it stays.
        driver::check(unsafe { sys::cuMemcpy2DAsync_v2(copy, stream.raw()) })
            .map_err(|error| self.gpu.error(what, error))
    }
}

fn empty_copy() -> sys::CUDA_MEMCPY2D {
    sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: sys::CUmemorytype_enum::CU_MEMORYTYPE_HOST,
        srcHost: std::ptr::null(),
        srcDevice: 0,
        srcArray: std::ptr::null_mut(),
        srcPitch: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: sys::CUmemorytype_enum::CU_MEMORYTYPE_HOST,
        dstHost: std::ptr::null_mut(),
        dstDevice: 0,
        dstArray: std::ptr::null_mut(),
        dstPitch: 0,
        WidthInBytes: 0,
        Height: 0,
    }
}

impl Gpu {
    /// An image in this GPU's memory; its contents are unspecified.
    ///
    /// # Errors
    /// [`Error::Geometry`] if a limit is passed, [`Error::DeviceMemory`] if there is no room.
    pub fn image(&self, shape: Shape) -> Result<DeviceImage> {
        shape.check()?;
        let stride = shape.width.next_multiple_of(ROW_ALIGNMENT);
        self.laid_out(shape, stride, stride.saturating_mul(shape.height))
    }

    /// As [`Gpu::image`], each row of a channel followed by that of the next channel. For the benchmark, which has such
    /// images to filter: every variant takes them.
    ///
    /// # Errors
    /// As [`Gpu::image`].
    #[doc(hidden)]
    pub fn image_by_rows(&self, shape: Shape) -> Result<DeviceImage> {
        shape.check()?;
        let plane = shape.width.next_multiple_of(BY_ROWS_ALIGNMENT);
        let stride = plane.saturating_mul(shape.channels);
        // Kernels multiply strides in 32 bits.
        if stride > u32::MAX as usize {
            return Err(self.out_of_memory(u64::MAX));
        }
        self.laid_out(shape, stride, plane)
    }

    /// As [`Gpu::image`], with rows an odd number of floats apart: most of them begin where no vector of floats may. For tests of
    /// results, which kernels take in any place; of what they read they want rows aligned.
    ///
    /// # Errors
    /// As [`Gpu::image`].
    #[doc(hidden)]
    pub fn image_unaligned(&self, shape: Shape) -> Result<DeviceImage> {
        shape.check()?;
        let stride = shape.width.next_multiple_of(ROW_ALIGNMENT) + 1;
        self.laid_out(shape, stride, stride.saturating_mul(shape.height))
    }

    /// An image of another one's shape, laid out as that one.
    ///
    /// # Errors
    /// As [`Gpu::image`].
    #[doc(hidden)]
    pub fn image_like(&self, other: &DeviceImage) -> Result<DeviceImage> {
        self.laid_out(other.shape, other.stride, other.plane)
    }

    fn laid_out(&self, shape: Shape, stride: usize, plane: usize) -> Result<DeviceImage> {
        // Either planes or rows follow each other.
        let (planes, rows) = (plane.checked_mul(shape.channels), stride.checked_mul(shape.height));
        let len = planes
            .zip(rows)
            .map(|(planes, rows)| planes.max(rows))
            .filter(|&len| len <= isize::MAX as usize / 4)
            .ok_or_else(|| self.out_of_memory(u64::MAX))?;
        Ok(DeviceImage { gpu: self.clone(), shape, stride, plane, buffer: self.allocate(len)? })
    }

    /// Copies a host image to the device.
    ///
    /// # Errors
    /// Memory and driver errors.
    pub fn upload<P: Pixel>(&self, src: &ImageView<'_, P>) -> Result<DeviceImage> {
        let mut image = self.image(src.shape())?;
        self.upload_into(src, &mut image)?;
        Ok(image)
    }

    /// Copies a host image into one on the device, however that is laid out.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if shapes differ; memory and driver errors.
    #[doc(hidden)]
    pub fn upload_into<P: Pixel>(&self, src: &ImageView<'_, P>, image: &mut DeviceImage) -> Result<()> {
        let shape = src.shape();
        if shape != image.shape {
            return Err(Error::Mismatch { src: shape.to_string(), dst: image.shape.to_string() });
        }
        let stream = self.stream()?;
        let mut planes = crate::memory::zeroed(pixels::planes_len(shape, shape.channels)?)?;
        pixels::split(src, shape.channels, &mut planes);
        // SAFETY: `planes` lives until the stream has finished.
        unsafe { image.write(&planes, &stream)? };
        stream.synchronize()
    }

    /// Copies a device image to the host.
    ///
    /// # Errors
    /// Memory and driver errors.
    pub fn download(&self, src: &DeviceImage) -> Result<Image<f32>> {
        let Shape { width, height, channels } = src.shape;
        let stream = self.stream()?;
        let mut planes = crate::memory::zeroed(pixels::planes_len(src.shape, channels)?)?;
        // SAFETY: `planes` lives until the stream has finished.
        unsafe { src.read(&mut planes, &stream)? };
        stream.synchronize()?;
        let mut image = Image::zeroed(width, height, channels)?;
        pixels::interleave(&planes, &mut image.view_mut());
        Ok(image)
    }

    /// Where a device image holds something else than `value` beside its pixels: channel, row, and float of the row. For tests,
    /// which fill an image before it is written.
    ///
    /// # Errors
    /// Memory and driver errors.
    #[doc(hidden)]
    pub fn spoilt_padding(&self, src: &DeviceImage, value: f32) -> Result<Option<(usize, usize, usize)>> {
        let Shape { width, height, channels } = src.shape;
        let stream = self.stream()?;
        let mut all: Vec<f32> = crate::memory::zeroed(src.buffer.len())?;
        let copy = sys::CUDA_MEMCPY2D {
            srcMemoryType: sys::CUmemorytype_enum::CU_MEMORYTYPE_DEVICE,
            srcDevice: src.buffer.as_device_ptr().as_raw(),
            srcPitch: 4 * all.len(),
            dstMemoryType: sys::CUmemorytype_enum::CU_MEMORYTYPE_HOST,
            dstHost: all.as_mut_ptr().cast(),
            dstPitch: 4 * all.len(),
            WidthInBytes: 4 * all.len(),
            Height: 1,
            ..empty_copy()
        };
        // `all` lives until the stream has finished.
        src.copy(&copy, "downloading an image", &stream)?;
        stream.synchronize()?;
        let row = |y: usize, channel: usize| channel * src.plane + y * src.stride;
        let rows = (0..channels).flat_map(|channel| (0..height).map(move |y| (channel, y)));
        rows.clone().for_each(|(channel, y)| all[row(y, channel)..][..width].fill(value));
        let spoilt = all.iter().position(|found| found.to_bits() != value.to_bits());
        Ok(spoilt.and_then(|at| {
            let (channel, y) =
                rows.filter(|&(channel, y)| row(y, channel) <= at).max_by_key(|&(channel, y)| row(y, channel))?;
            Some((channel, y, at - row(y, channel)))
        }))
    }

    /// Copies some rows of a device image to the host. For tests of images that are larger than they would like to copy.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there are no such rows; memory and driver errors.
    #[doc(hidden)]
    pub fn download_rows(&self, src: &DeviceImage, rows: std::ops::Range<usize>) -> Result<Image<f32>> {
        let Shape { width, height, channels } = src.shape;
        if rows.is_empty() || rows.end > height {
            let expected = format!("some of the {height} there are");
            return Err(Error::Parameter { name: "rows", value: format!("{rows:?}"), expected });
        }
        let stream = self.stream()?;
        let shape = Shape { height: rows.len(), ..src.shape };
        let mut planes: Vec<f32> = crate::memory::zeroed(pixels::planes_len(shape, channels)?)?;
        for (plane, at) in planes.chunks_mut(width * rows.len()).zip(src.planes()) {
            let copy = sys::CUDA_MEMCPY2D {
                srcMemoryType: sys::CUmemorytype_enum::CU_MEMORYTYPE_DEVICE,
                srcDevice: at + 4 * (src.stride * rows.start) as u64,
                srcPitch: 4 * src.stride,
                dstMemoryType: sys::CUmemorytype_enum::CU_MEMORYTYPE_HOST,
                dstHost: plane.as_mut_ptr().cast(),
                dstPitch: 4 * width,
                WidthInBytes: 4 * width,
                Height: rows.len(),
                ..empty_copy()
            };
            // `planes` lives until the stream has finished.
            src.copy(&copy, "downloading rows of an image", &stream)?;
        }
        stream.synchronize()?;
        let mut image = Image::zeroed(width, rows.len(), channels)?;
        pixels::interleave(&planes, &mut image.view_mut());
        Ok(image)
    }

    /// Device memory for `len` floats, its contents unspecified.
    pub(super) fn allocate(&self, len: usize) -> Result<DeviceBuffer<f32>> {
        self.enter()?;
        // SAFETY: every kernel writes all of its destination, and nothing else is read.
        unsafe { DeviceBuffer::uninitialized(len) }.map_err(|error| match error {
            cust::error::CudaError::OutOfMemory => self.out_of_memory(4 * len as u64),
            error => self.error("allocating device memory", error),
        })
    }
}
