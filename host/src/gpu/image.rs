//! Images in device memory.

use cust::sys;

use super::device::Gpu;
use super::driver;
use super::memory::Memory;
use super::stream::Stream;
use crate::image::{Image, ImageView, Pixel, Shape, planes};
use crate::{Error, Result};

/// Rows begin at multiples of this many floats, 128 bytes: a warp's row is whole cache lines.
const ROW_ALIGNMENT: usize = 32;

/// An image in the memory of a GPU: planes of f32, one for each channel.
#[derive(Debug)]
pub struct DeviceImage {
    shape: Shape,
    stride: usize,
    plane: usize,
    memory: Memory,
}

impl DeviceImage {
    /// Width, height and channels.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The device address of the first pixel of the first plane, for a program's own kernels. Each plane has as many
    /// rows as the shape, [`DeviceImage::stride`] apart, and lies [`DeviceImage::plane_stride`] behind the one before it.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Floats from one row to the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Floats from one plane to the next.
    pub fn plane_stride(&self) -> usize {
        self.plane
    }

    /// The GPU in whose memory it is.
    pub fn gpu(&self) -> &Gpu {
        self.memory.gpu()
    }

    /// Makes the image's GPU current, for a call with a stream that must be its own.
    fn enter(&self, stream: &Stream) -> Result<()> {
        self.gpu().same("the stream", &stream.gpu)?;
        self.gpu().enter()
    }

    /// Sets every float, also those between the rows; in stream order.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the stream is another GPU's; driver errors.
    pub fn fill(&mut self, value: f32, stream: &Stream) -> Result<()> {
        self.enter(stream)?;
        let (to, len) = (self.memory.address(), self.memory.len());
        // SAFETY: the memory holds as many floats, and is borrowed exclusively.
        let status = unsafe { sys::cuMemsetD32Async(to, value.to_bits(), len, stream.raw()) };
        driver::check(status).map_err(|error| self.gpu().error("filling an image", error))
    }

    /// Copies the pixels of another image of the same shape; in stream order.
    ///
    /// Fastest between images whose width is a multiple of 32: others have gaps between their rows, and the driver copies row
    /// by row, in two and a half times as long on an H200.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if shapes differ, [`Error::Parameter`] if the other image or the stream is another GPU's; driver
    /// errors.
    pub fn copy_from(&mut self, src: &Self, stream: &Stream) -> Result<()> {
        if src.shape != self.shape {
            return Err(Error::Mismatch { src: src.shape.to_string(), dst: self.shape.to_string() });
        }
        if self.has_no_gaps() && self.is_laid_out_as(src) {
            // The driver copies rows at less than half the speed of bytes.
            return self.copy_memory_from(src, stream);
        }
        self.gpu().same("the image to copy", src.gpu())?;
        // Only pixels: the memory between rows may never have been written.
        let rows = src.rows_at_once().min(self.rows_at_once());
        for (from, to) in src.planes().zip(self.planes()).take(self.shape.channels * self.shape.height / rows) {
            let (from, to) = (Rows::device(from, src.stride), Rows::device(to, self.stride));
            // SAFETY: both images have these rows; the driver frees their memory when the device is done with it, not before.
            unsafe { self.copy(from, to, (self.shape.width, rows), "copying an image", stream)? };
        }
        Ok(())
    }

    /// Copies the memory of an image of the same layout, also between the rows, in stream order: the driver's fastest copy.
    /// For the benchmark, which compares filters with it.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if layouts differ, [`Error::Parameter`] if the other image or the stream is another GPU's; driver
    /// errors.
    #[doc(hidden)]
    pub fn copy_memory_from(&mut self, src: &Self, stream: &Stream) -> Result<()> {
        if !self.is_laid_out_as(src) {
            return Err(Error::Mismatch { src: src.shape.to_string(), dst: self.shape.to_string() });
        }
        self.gpu().same("the image to copy", src.gpu())?;
        self.enter(stream)?;
        let (from, to, bytes) = (src.memory.address(), self.memory.address(), 4 * self.memory.len());
        // SAFETY: images laid out alike have as much memory; the driver frees it when the device is done with it, not before.
        let status = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, stream.raw()) };
        driver::check(status).map_err(|error| self.gpu().error("copying an image", error))
    }

    fn is_laid_out_as(&self, other: &Self) -> bool {
        (self.shape, self.stride, self.plane) == (other.shape, other.stride, other.plane)
    }

    fn has_no_gaps(&self) -> bool {
        self.memory.len() == self.shape.row_len() * self.shape.height
    }

    /// Copies planes without gaps into the image; in stream order.
    ///
    /// # Safety
    /// `planes` stays as it is until the stream has passed the copy.
    pub(super) unsafe fn write(&mut self, planes: &[f32], stream: &Stream) -> Result<()> {
        let row = self.shape.width;
        for (planes, at) in planes.chunks(row * self.rows_at_once()).zip(self.planes()) {
            let (from, to) = (Rows::host(planes.as_ptr().cast_mut(), row), Rows::device(at, self.stride));
            // SAFETY: `planes` has as many rows as the part, and stays by the caller's promise.
            unsafe { self.copy(from, to, (row, planes.len() / row), "uploading an image", stream)? };
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
            let (from, to) = (Rows::device(at, self.stride), Rows::host(planes.as_mut_ptr(), row));
            // SAFETY: the planes at `at` have as many rows as the part, which is not touched by the caller's promise.
            unsafe { self.copy(from, to, (row, planes.len() / row), "downloading an image", stream)? };
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
        let (start, plane) = (self.memory.address(), 4 * self.plane as u64);
        (0..self.shape.channels as u64).map(move |channel| start + channel * plane)
    }

    /// Copies so many floats of so many rows; in stream order.
    ///
    /// # Safety
    /// The rows are there, and stay until the stream has passed the copy; those that are written are nobody else's.
    unsafe fn copy(
        &self,
        from: Rows,
        to: Rows,
        (floats, rows): (usize, usize),
        what: &'static str,
        stream: &Stream,
    ) -> Result<()> {
        let most = self.gpu().max_pitch() / 4;
        if from.stride.max(to.stride) > most {
            // Further apart than CUDA promises to copy: row by row, and rows in parts.
            for row in 0..rows {
                for x in (0..floats).step_by(most) {
                    let part = most.min(floats - x);
                    let (from, to) = (from.at(row, x, part), to.at(row, x, part));
                    // SAFETY: these floats are among those that the caller promised.
                    unsafe { self.copy(from, to, (part, 1), what, stream)? };
                }
            }
            return Ok(());
        }
        self.enter(stream)?;
        let copy = sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: from.kind,
            srcHost: from.host,
            srcDevice: from.device,
            srcArray: std::ptr::null_mut(),
            srcPitch: 4 * from.stride,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: to.kind,
            dstHost: to.host,
            dstDevice: to.device,
            dstArray: std::ptr::null_mut(),
            dstPitch: 4 * to.stride,
            WidthInBytes: 4 * floats,
            Height: rows,
        };
        // SAFETY: by the caller's promise.
        driver::check(unsafe { sys::cuMemcpy2DAsync_v2(&copy, stream.raw()) })
            .map_err(|error| self.gpu().error(what, error))
    }
}

/// Where rows of floats begin, `stride` floats apart, for the driver to copy.
struct Rows {
    kind: sys::CUmemorytype,
    host: *mut std::ffi::c_void,
    device: u64,
    stride: usize,
}

impl Rows {
    fn host(rows: *mut f32, stride: usize) -> Self {
        Self { kind: sys::CUmemorytype::CU_MEMORYTYPE_HOST, host: rows.cast(), device: 0, stride }
    }

    fn device(rows: u64, stride: usize) -> Self {
        Self { kind: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE, host: std::ptr::null_mut(), device: rows, stride }
    }

    /// Those that begin at a float of a row. Only the address of this kind of memory counts.
    fn at(&self, row: usize, x: usize, stride: usize) -> Self {
        let bytes = 4 * (row * self.stride + x);
        let (host, device) = (self.host.wrapping_byte_add(bytes), self.device.wrapping_add(bytes as u64));
        Self { kind: self.kind, host, device, stride }
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

    /// As [`Gpu::image`], with so many floats from one row to the next, and from one plane to the next: planes follow each
    /// other, or take turns row by row. For the benchmark and for tests, which have such images to filter: every variant takes
    /// them. What a variant reads wants rows at multiples of 8 floats, and what it writes lies anywhere.
    ///
    /// # Errors
    /// As [`Gpu::image`]; [`Error::Parameter`] if rows or planes would overlap.
    #[doc(hidden)]
    pub fn image_with(&self, shape: Shape, stride: usize, plane: usize) -> Result<DeviceImage> {
        shape.check()?;
        let follow = stride >= shape.width && plane >= stride.saturating_mul(shape.height);
        let take_turns = plane >= shape.width && stride >= plane.saturating_mul(shape.channels);
        if !follow && !take_turns {
            let expected = format!("enough for the rows and planes of {shape} not to overlap");
            return Err(Error::Parameter { name: "the layout", value: format!("{stride}, {plane}"), expected });
        }
        self.laid_out(shape, stride, plane)
    }

    /// An image with the shape and the layout of another one.
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
        Ok(DeviceImage { shape, stride, plane, memory: self.allocate(len)? })
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

    /// Copies a host image into one on the device, of any layout.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if shapes differ; memory and driver errors.
    #[doc(hidden)]
    pub fn upload_into<P: Pixel>(&self, src: &ImageView<'_, P>, image: &mut DeviceImage) -> Result<()> {
        let shape = src.shape();
        if shape != image.shape {
            return Err(Error::Mismatch { src: shape.to_string(), dst: image.shape.to_string() });
        }
        let mut planes = crate::memory::zeroed(planes::planes_len(shape, shape.channels)?)?;
        planes::split(src, shape.channels, &mut planes);
        let stream = self.stream()?;
        // SAFETY: `planes` lives until the stream has finished, or has been dropped, which waits for it.
        unsafe { image.write(&planes, &stream)? };
        stream.synchronize()
    }

    /// Copies a device image to the host.
    ///
    /// # Errors
    /// Memory and driver errors.
    pub fn download(&self, src: &DeviceImage) -> Result<Image<f32>> {
        let Shape { width, height, channels } = src.shape;
        let mut planes = crate::memory::zeroed(planes::planes_len(src.shape, channels)?)?;
        let stream = self.stream()?;
        // SAFETY: as in `upload_into`.
        unsafe { src.read(&mut planes, &stream)? };
        stream.synchronize()?;
        let mut image = Image::zeroed(width, height, channels)?;
        planes::interleave(&planes, &mut image.view_mut());
        Ok(image)
    }

    /// The first place between a device image's pixels that does not hold `value`: channel, row, and float of the row. For tests,
    /// which fill an image before it is written.
    ///
    /// # Errors
    /// Memory and driver errors.
    #[doc(hidden)]
    pub fn spoilt_padding(&self, src: &DeviceImage, value: f32) -> Result<Option<(usize, usize, usize)>> {
        let Shape { width, height, channels } = src.shape;
        let len = src.memory.len();
        let mut all: Vec<f32> = crate::memory::zeroed(len)?;
        let stream = self.stream()?;
        let (from, to) = (Rows::device(src.memory.address(), len), Rows::host(all.as_mut_ptr(), len));
        // SAFETY: all of the memory as one row; `all` as in `upload_into`.
        unsafe { src.copy(from, to, (len, 1), "downloading an image", &stream)? };
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

    /// Copies some rows of a device image to the host. For tests of images too large to copy whole.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the image has no such rows; memory and driver errors.
    #[doc(hidden)]
    pub fn download_rows(&self, src: &DeviceImage, rows: std::ops::Range<usize>) -> Result<Image<f32>> {
        let Shape { width, height, channels } = src.shape;
        if rows.is_empty() || rows.end > height {
            let expected = format!("some of the {height} there are");
            return Err(Error::Parameter { name: "rows", value: format!("{rows:?}"), expected });
        }
        let shape = Shape { height: rows.len(), ..src.shape };
        let mut planes: Vec<f32> = crate::memory::zeroed(planes::planes_len(shape, channels)?)?;
        let stream = self.stream()?;
        for (plane, at) in planes.chunks_mut(width * rows.len()).zip(src.planes()) {
            let from = Rows::device(at + 4 * (src.stride * rows.start) as u64, src.stride);
            let to = Rows::host(plane.as_mut_ptr(), width);
            // SAFETY: the plane has these rows; `planes` as in `upload_into`.
            unsafe { src.copy(from, to, (width, rows.len()), "downloading an image", &stream)? };
        }
        stream.synchronize()?;
        let mut image = Image::zeroed(width, rows.len(), channels)?;
        planes::interleave(&planes, &mut image.view_mut());
        Ok(image)
    }
}
