//! Images in device memory.

use gpu_kernels::abi::Strides;

use super::device::Gpu;
use super::driver::{self, sys};
use super::memory::Memory;
use super::stream::Stream;
use crate::image::{Format, Image, ImageView, Layout, Pixel, Scalar, Shape, planes};
use crate::{Error, Result, with_pixels};

/// Rows begin at multiples of this many bytes: a warp's row of floats is whole cache lines.
pub(super) const ROW_ALIGNMENT: usize = 128;

/// Bytes from one row on the device to the next.
pub(super) fn pitch(scalar: Scalar, values: usize) -> usize {
    (scalar.bytes() * values).next_multiple_of(ROW_ALIGNMENT)
}

/// An image in the memory of a GPU, in any [`Format`]: planes, one for each channel, or the
/// channels of a pixel side by side.
#[derive(Debug)]
pub struct DeviceImage {
    shape: Shape,
    scalar: Scalar,
    layout: Layout,
    /// Values from one row to the next, and from one channel to the next.
    stride: usize,
    plane: usize,
    memory: Memory,
}

impl DeviceImage {
    /// Width, height and channels.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// How its pixels are stored.
    pub fn format(&self) -> Format {
        Format { scalar: self.scalar, channels: self.shape.channels, layout: self.layout }
    }

    /// The device address of the first value of the first channel, for a program's own kernels.
    /// Each channel has as many rows as the shape, [`DeviceImage::stride`] apart, and begins
    /// [`DeviceImage::plane_stride`] behind the one before it.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Values from one row to the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Values from one channel to the next: from one plane to the next, or 1 where channels are
    /// interleaved.
    pub fn plane_stride(&self) -> usize {
        self.plane
    }

    /// The same strides in bytes, as a view from a pointer takes them.
    pub fn strides(&self) -> Strides {
        let bytes = self.scalar.bytes();
        let pixel = if self.layout == Layout::Interleaved { self.shape.channels } else { 1 };
        Strides {
            row: (bytes * self.stride) as i64,
            pixel: (bytes * pixel) as i32,
            channel: (bytes * self.plane) as i64,
            image: 0,
        }
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

    /// Sets every value, also those between the rows, to the stored value nearest to this one; in
    /// stream order.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the stream is another GPU's; driver errors.
    pub fn fill(&mut self, value: f32, stream: &Stream) -> Result<()> {
        self.enter(stream)?;
        let stored = stored(self.scalar, value);
        let word = u32::from_ne_bytes(std::array::from_fn(|i| stored[i % stored.len()]));
        let (to, words) = (self.memory.address(), self.memory.len() / 4);
        // SAFETY: the memory holds as many words, and is borrowed exclusively.
        let status = unsafe { sys::cuMemsetD32Async(to, word, words, stream.raw()) };
        driver::check(status).map_err(|error| self.gpu().error("filling an image", error))
    }

    /// Copies the pixels of another image of the same shape and format; in stream order.
    ///
    /// Fastest between images whose rows are multiples of 128 bytes: others have gaps between their
    /// rows, and the driver copies row by row, in two and a half times as long on an H200.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if shapes differ, [`Error::Parameter`] if the other image or the stream
    /// is another GPU's; driver errors.
    pub fn copy_from(&mut self, src: &Self, stream: &Stream) -> Result<()> {
        self.same_kind(src.shape, src.format())?;
        if self.has_no_gaps() && self.is_laid_out_as(src) {
            // The driver copies rows at less than half the speed of bytes.
            return self.copy_memory_from(src, stream);
        }
        self.gpu().same("the image to copy", src.gpu())?;
        // Only pixels: the memory between rows may never have been written.
        let rows = src.rows_at_once().min(self.rows_at_once());
        for (from, to) in src.planes().zip(self.planes()).take(self.all_rows() / rows) {
            let (from, to) =
                (Rows::device(from, src.row_pitch()), Rows::device(to, self.row_pitch()));
            // SAFETY: both images have these rows; the driver frees their memory when the device is
            // done with it, not before.
            unsafe { self.copy(from, to, (self.row_bytes(), rows), "copying an image", stream)? };
        }
        Ok(())
    }

    /// Whether a picture has this image's shape and format.
    fn same_kind(&self, shape: Shape, format: Format) -> Result<()> {
        if (shape, format) == (self.shape, self.format()) {
            return Ok(());
        }
        let told = |shape: Shape, format: Format| format!("{shape} {format}");
        Err(Error::Mismatch { src: told(shape, format), dst: told(self.shape, self.format()) })
    }

    /// Copies the memory of an image of the same layout, also between the rows, in stream order:
    /// the driver's fastest copy. For the benchmark, which compares filters with it.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if layouts differ, [`Error::Parameter`] if the other image or the stream
    /// is another GPU's; driver errors.
    #[doc(hidden)]
    pub fn copy_memory_from(&mut self, src: &Self, stream: &Stream) -> Result<()> {
        if !self.is_laid_out_as(src) {
            return Err(Error::Mismatch {
                src: src.shape.to_string(),
                dst: self.shape.to_string(),
            });
        }
        self.gpu().same("the image to copy", src.gpu())?;
        self.enter(stream)?;
        let (from, to, bytes) = (src.memory.address(), self.memory.address(), self.memory.len());
        // SAFETY: images laid out alike have as much memory; the driver frees it when the device is
        // done with it, not before.
        let status = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, stream.raw()) };
        driver::check(status).map_err(|error| self.gpu().error("copying an image", error))
    }

    fn is_laid_out_as(&self, other: &Self) -> bool {
        let kind = |image: &Self| (image.shape, image.format(), image.stride, image.plane);
        kind(self) == kind(other)
    }

    fn has_no_gaps(&self) -> bool {
        self.memory.len() == self.row_bytes() * self.all_rows()
    }

    /// Copies rows without gaps into the image, those of a plane after the other's; in stream
    /// order.
    ///
    /// # Safety
    /// `rows` stay as they are until the stream has passed the copy.
    pub(super) unsafe fn write(&mut self, rows: &[u8], stream: &Stream) -> Result<()> {
        let row = self.row_bytes();
        for (rows, at) in rows.chunks(row * self.rows_at_once()).zip(self.planes()) {
            let (from, to) =
                (Rows::host(rows.as_ptr().cast_mut(), row), Rows::device(at, self.row_pitch()));
            // SAFETY: `rows` has as many rows as the part, and stays by the caller's promise.
            unsafe { self.copy(from, to, (row, rows.len() / row), "uploading an image", stream)? };
        }
        Ok(())
    }

    /// Copies the image into rows without gaps; in stream order.
    ///
    /// # Safety
    /// `rows` are not touched until the stream has passed the copy.
    pub(super) unsafe fn read(&self, rows: &mut [u8], stream: &Stream) -> Result<()> {
        let row = self.row_bytes();
        for (rows, at) in rows.chunks_mut(row * self.rows_at_once()).zip(self.planes()) {
            let (from, to) =
                (Rows::device(at, self.row_pitch()), Rows::host(rows.as_mut_ptr(), row));
            // SAFETY: the planes at `at` have as many rows as the part, which is not touched by the
            // caller's promise.
            unsafe {
                self.copy(from, to, (row, rows.len() / row), "downloading an image", stream)?
            };
        }
        Ok(())
    }

    /// Bytes of a row of a plane, or of an interleaved row.
    fn row_bytes(&self) -> usize {
        let values = if self.layout == Layout::Interleaved {
            self.shape.row_len()
        } else {
            self.shape.width
        };
        self.scalar.bytes() * values
    }

    /// Bytes from one row to the next.
    fn row_pitch(&self) -> usize {
        self.scalar.bytes() * self.stride
    }

    /// How many planes there are.
    fn plane_count(&self) -> usize {
        if self.layout == Layout::Interleaved { 1 } else { self.shape.channels }
    }

    /// The rows of all planes.
    fn all_rows(&self) -> usize {
        self.plane_count() * self.shape.height
    }

    /// Rows that lie a stride apart: those of all planes where one follows the other, else of one.
    fn rows_at_once(&self) -> usize {
        let planes =
            if self.plane == self.stride * self.shape.height { self.plane_count() } else { 1 };
        planes * self.shape.height
    }

    /// The addresses at which planes begin.
    fn planes(&self) -> impl Iterator<Item = u64> + use<> {
        let (start, plane) = (self.memory.address(), (self.scalar.bytes() * self.plane) as u64);
        (0..self.plane_count() as u64).map(move |channel| start + channel * plane)
    }

    /// Copies so many bytes of so many rows; in stream order.
    ///
    /// # Safety
    /// The rows are there, and stay until the stream has passed the copy; those that are written
    /// are nobody else's.
    unsafe fn copy(
        &self,
        from: Rows,
        to: Rows,
        (bytes, rows): (usize, usize),
        what: &'static str,
        stream: &Stream,
    ) -> Result<()> {
        self.gpu().same("the stream", &stream.gpu)?;
        // SAFETY: by the caller's promise.
        unsafe { stream.copy_rows(from, to, (bytes, rows), what) }
    }
}

impl Stream {
    /// Copies so many bytes of so many rows, at least one of the two places in the memory of the
    /// stream's GPU.
    ///
    /// # Safety
    /// The rows are there, and stay until the stream has passed the copy; those that are written
    /// are nobody else's.
    pub(super) unsafe fn copy_rows(
        &self,
        from: Rows,
        to: Rows,
        (bytes, rows): (usize, usize),
        what: &'static str,
    ) -> Result<()> {
        let most = self.gpu.max_pitch();
        if from.pitch.max(to.pitch) > most {
            // Further apart than CUDA promises to copy: row by row, and rows in parts.
            for row in 0..rows {
                for x in (0..bytes).step_by(most) {
                    let part = most.min(bytes - x);
                    let (from, to) = (from.at(row, x, part), to.at(row, x, part));
                    // SAFETY: these bytes are among those that the caller promised.
                    unsafe { self.copy_rows(from, to, (part, 1), what)? };
                }
            }
            return Ok(());
        }
        self.gpu.enter()?;
        let copy = sys::Copy2D {
            src_x: 0,
            src_y: 0,
            src_kind: from.kind,
            src_host: from.host,
            src_device: from.device,
            src_array: std::ptr::null_mut(),
            src_pitch: from.pitch,
            dst_x: 0,
            dst_y: 0,
            dst_kind: to.kind,
            dst_host: to.host,
            dst_device: to.device,
            dst_array: std::ptr::null_mut(),
            dst_pitch: to.pitch,
            width: bytes,
            height: rows,
        };
        // SAFETY: by the caller's promise.
        driver::check(unsafe { sys::cuMemcpy2DAsync_v2(&copy, self.raw()) })
            .map_err(|error| self.gpu.error(what, error))
    }
}

/// Where rows begin, `pitch` bytes apart, for the driver to copy.
pub(super) struct Rows {
    kind: u32,
    host: *mut std::ffi::c_void,
    device: u64,
    pitch: usize,
}

impl Rows {
    pub(super) fn host(rows: *mut u8, pitch: usize) -> Self {
        Self { kind: sys::MEMORY_HOST, host: rows.cast(), device: 0, pitch }
    }

    pub(super) fn device(rows: u64, pitch: usize) -> Self {
        Self { kind: sys::MEMORY_DEVICE, host: std::ptr::null_mut(), device: rows, pitch }
    }

    /// Those that begin at a byte of a row. Only the address of this kind of memory counts.
    fn at(&self, row: usize, x: usize, pitch: usize) -> Self {
        let bytes = row * self.pitch + x;
        let (host, device) =
            (self.host.wrapping_byte_add(bytes), self.device.wrapping_add(bytes as u64));
        Self { kind: self.kind, host, device, pitch }
    }
}

impl Gpu {
    /// Planes of f32 in this GPU's memory; their contents are unspecified.
    ///
    /// # Errors
    /// [`Error::Geometry`] if a limit is passed, [`Error::DeviceMemory`] if there is no room.
    pub fn image(&self, shape: Shape) -> Result<DeviceImage> {
        self.image_of(shape, Scalar::F32, Layout::Planar)
    }

    /// An image of any pixel type in this GPU's memory, its rows at multiples of 128 bytes; its
    /// contents are unspecified.
    ///
    /// ```no_run
    /// use apron::{Layout, Scalar, Shape, gpu::Gpu};
    ///
    /// let shape = Shape { width: 1920, height: 1080, channels: 3 };
    /// let frame = Gpu::open(0)?.image_of(shape, Scalar::U8, Layout::Interleaved)?;
    /// assert_eq!(frame.format().scalar, Scalar::U8);
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Gpu::image`].
    pub fn image_of(&self, shape: Shape, scalar: Scalar, layout: Layout) -> Result<DeviceImage> {
        shape.check()?;
        // A single channel is a plane either way.
        let interleaved = layout == Layout::Interleaved && shape.channels > 1;
        let row = if interleaved { shape.row_len() } else { shape.width };
        let stride = row.next_multiple_of(ROW_ALIGNMENT / scalar.bytes());
        let plane = if interleaved { 1 } else { stride.saturating_mul(shape.height) };
        self.laid_out(shape, (scalar, layout), stride, plane)
    }

    /// As [`Gpu::image`], with so many floats from one row to the next, and from one plane to the
    /// next: planes follow each other, or take turns row by row. For the benchmark and for tests,
    /// which have such images to filter: every variant takes them. What a variant reads wants rows
    /// at multiples of 8 floats, and what it writes lies anywhere.
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
            return Err(Error::Parameter {
                name: "the layout",
                value: format!("{stride}, {plane}"),
                expected,
            });
        }
        self.laid_out(shape, (Scalar::F32, Layout::Planar), stride, plane)
    }

    /// An image with the shape, the format and the layout of another one.
    ///
    /// # Errors
    /// As [`Gpu::image`].
    #[doc(hidden)]
    pub fn image_like(&self, other: &DeviceImage) -> Result<DeviceImage> {
        self.laid_out(other.shape, (other.scalar, other.layout), other.stride, other.plane)
    }

    fn laid_out(
        &self,
        shape: Shape,
        (scalar, layout): (Scalar, Layout),
        stride: usize,
        plane: usize,
    ) -> Result<DeviceImage> {
        // Either planes or rows follow each other.
        let (planes, rows) = (plane.checked_mul(shape.channels), stride.checked_mul(shape.height));
        let bytes = planes
            .zip(rows)
            .and_then(|(planes, rows)| planes.max(rows).checked_mul(scalar.bytes()))
            .filter(|&bytes| bytes <= isize::MAX as usize)
            .ok_or_else(|| self.out_of_memory(u64::MAX))?;
        Ok(DeviceImage { shape, scalar, layout, stride, plane, memory: self.allocate(bytes)? })
    }

    /// Copies a host image to the device, as planes of f32.
    ///
    /// # Errors
    /// Memory and driver errors.
    pub fn upload<P: Pixel>(&self, src: &ImageView<'_, P>) -> Result<DeviceImage> {
        let mut image = self.image(src.shape())?;
        self.upload_into(src, &mut image)?;
        Ok(image)
    }

    /// Copies a host image to the device as it is stored: channels interleaved, values of the same
    /// type.
    ///
    /// # Errors
    /// Memory and driver errors.
    pub fn upload_stored<P: Pixel>(&self, src: &ImageView<'_, P>) -> Result<DeviceImage> {
        let mut image = self.image_of(src.shape(), P::SCALAR, Layout::Interleaved)?;
        self.upload_into(src, &mut image)?;
        Ok(image)
    }

    /// Copies a host image into one on the device: as it is stored, or into planes of f32, of any
    /// layout.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if shapes differ, or if the image has another format than these two;
    /// memory and driver errors.
    pub fn upload_into<P: Pixel>(
        &self,
        src: &ImageView<'_, P>,
        image: &mut DeviceImage,
    ) -> Result<()> {
        let (shape, stream) = (src.shape(), self.stream()?);
        if (image.scalar, image.layout) == (Scalar::F32, Layout::Planar) && shape == image.shape {
            let mut planes =
                crate::memory::zeroed::<f32>(planes::planes_len(shape, shape.channels)?)?;
            planes::split(src, shape.channels, &mut planes);
            // SAFETY: `planes` lives until the stream has finished, or has been dropped, which
            // waits for it.
            unsafe { image.write(bytemuck::cast_slice(&planes), &stream)? };
            return stream.synchronize();
        }
        image.same_kind(shape, src.format())?;
        let from = Rows::host(src.as_ptr().cast_mut().cast(), src.stride() * size_of::<P>());
        let to = Rows::device(image.address(), image.row_pitch());
        // SAFETY: the view has these rows and outlives the stream, whose end is waited for here.
        unsafe {
            image.copy(
                from,
                to,
                (image.row_bytes(), shape.height),
                "uploading an image",
                &stream,
            )?
        };
        stream.synchronize()
    }

    /// Copies planes of f32 to the host.
    ///
    /// # Errors
    /// [`Error::Mismatch`] for an image of another format, see [`Gpu::download_stored`]; memory and
    /// driver errors.
    pub fn download(&self, src: &DeviceImage) -> Result<Image<f32>> {
        let Shape { width, height, channels } = src.shape;
        src.same_kind(src.shape, Format { scalar: Scalar::F32, channels, layout: Layout::Planar })?;
        let mut planes = crate::memory::zeroed::<f32>(planes::planes_len(src.shape, channels)?)?;
        let stream = self.stream()?;
        // SAFETY: as in `upload_into`.
        unsafe { src.read(bytemuck::cast_slice_mut(&mut planes), &stream)? };
        stream.synchronize()?;
        let mut image = Image::zeroed(width, height, channels)?;
        planes::interleave(&planes, &mut image.view_mut());
        Ok(image)
    }

    /// Copies an image with interleaved channels to the host, as it is stored.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if it has planes, or values of another type; memory and driver errors.
    pub fn download_stored<P: Pixel>(&self, src: &DeviceImage) -> Result<Image<P>> {
        let Shape { width, height, channels } = src.shape;
        let mut image = Image::<P>::zeroed(width, height, channels)?;
        src.same_kind(src.shape, image.view().format())?;
        let stream = self.stream()?;
        // SAFETY: as in `upload_into`.
        unsafe { src.read(bytemuck::cast_slice_mut(image.as_mut_slice()), &stream)? };
        stream.synchronize()?;
        Ok(image)
    }

    /// The first place between a device image's pixels that does not hold `value`: channel (0 where
    /// they are interleaved), row, and value of the row. For tests, which fill an image before it
    /// is written.
    ///
    /// # Errors
    /// Memory and driver errors.
    #[doc(hidden)]
    pub fn spoilt_padding(
        &self,
        src: &DeviceImage,
        value: f32,
    ) -> Result<Option<(usize, usize, usize)>> {
        let (bytes, scalar) = (src.scalar.bytes(), src.scalar);
        let mut all: Vec<u8> = crate::memory::zeroed(src.memory.len())?;
        let stream = self.stream()?;
        let (from, to) = (
            Rows::device(src.memory.address(), all.len()),
            Rows::host(all.as_mut_ptr(), all.len()),
        );
        // SAFETY: all of the memory as one row; `all` as in `upload_into`.
        unsafe { src.copy(from, to, (all.len(), 1), "downloading an image", &stream)? };
        stream.synchronize()?;
        let stored = stored(scalar, value);
        let row = |y: usize, channel: usize| bytes * (channel * src.plane + y * src.stride);
        let rows = (0..src.plane_count())
            .flat_map(|channel| (0..src.shape.height).map(move |y| (channel, y)));
        for (channel, y) in rows.clone() {
            all[row(y, channel)..][..src.row_bytes()]
                .chunks_mut(bytes)
                .for_each(|out| out.copy_from_slice(&stored));
        }
        let spoilt = all.chunks(bytes).position(|found| found != stored);
        Ok(spoilt.and_then(|at| {
            let at = at * bytes;
            let (channel, y) = rows
                .filter(|&(channel, y)| row(y, channel) <= at)
                .max_by_key(|&(channel, y)| row(y, channel))?;
            Some((channel, y, (at - row(y, channel)) / bytes))
        }))
    }

    /// Copies some rows of planes of f32 to the host. For tests of images too large to copy whole.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the image has no such rows; memory and driver errors.
    #[doc(hidden)]
    pub fn download_rows(
        &self,
        src: &DeviceImage,
        rows: std::ops::Range<usize>,
    ) -> Result<Image<f32>> {
        let Shape { width, height, channels } = src.shape;
        src.same_kind(src.shape, Format { scalar: Scalar::F32, channels, layout: Layout::Planar })?;
        if rows.is_empty() || rows.end > height {
            let expected = format!("a range within 0..{height}, not empty");
            return Err(Error::Parameter { name: "rows", value: format!("{rows:?}"), expected });
        }
        let shape = Shape { height: rows.len(), ..src.shape };
        let mut planes: Vec<f32> = crate::memory::zeroed(planes::planes_len(shape, channels)?)?;
        let stream = self.stream()?;
        for (plane, at) in planes.chunks_mut(width * rows.len()).zip(src.planes()) {
            let from = Rows::device(at + (src.row_pitch() * rows.start) as u64, src.row_pitch());
            let to = Rows::host(plane.as_mut_ptr().cast(), 4 * width);
            // SAFETY: the plane has these rows; `planes` as in `upload_into`.
            unsafe {
                src.copy(from, to, (4 * width, rows.len()), "downloading an image", &stream)?
            };
        }
        stream.synchronize()?;
        let mut image = Image::zeroed(width, rows.len(), channels)?;
        planes::interleave(&planes, &mut image.view_mut());
        Ok(image)
    }
}

/// The bytes of the stored value nearest to `value`.
fn stored(scalar: Scalar, value: f32) -> Vec<u8> {
    with_pixels!(scalar, P => bytemuck::bytes_of(&P::from_f32(value)).to_vec())
}
