//! Images in host memory: borrowed views with a stride, and an owned image.

pub(crate) mod convert;
#[cfg(feature = "image")]
pub(crate) mod dynamic;
mod format;
mod number;
#[cfg(feature = "gpu")]
pub(crate) mod planes;
#[cfg_attr(not(feature = "gpu"), allow(dead_code, reason = "the CPU takes whole pictures"))]
pub(crate) mod stored;

pub use format::{Format, Layout, Pixel, Scalar};
pub use number::Number;

use crate::{Error, Result};

/// The size of an image: `height` rows of `width` pixels of `channels` interleaved values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Values in a pixel.
    pub channels: usize,
}

impl Shape {
    /// The greatest width and height, in pixels.
    pub const MAX_EXTENT: usize = gpu_kernels::abi::MAX_EXTENT as usize;

    /// The greatest number of channels.
    pub const MAX_CHANNELS: usize = 65535;

    /// Whether an image may have this shape.
    ///
    /// # Errors
    /// [`Error::Geometry`] if a limit is exceeded.
    pub(crate) fn check(self) -> Result<()> {
        self.slice_len(self.width.saturating_mul(self.channels)).map(|_| ())
    }

    /// Values in a row.
    pub fn row_len(self) -> usize {
        self.width * self.channels
    }

    /// Values that a slice with this stride must hold, checked against every limit.
    fn slice_len(self, stride: usize) -> Result<usize> {
        let fail = |reason: String| {
            Err(Error::Geometry {
                width: self.width,
                height: self.height,
                channels: self.channels,
                stride,
                reason,
            })
        };
        if self.width == 0 || self.height == 0 || self.channels == 0 {
            return fail("width, height and channels are at least 1".into());
        }
        if self.width > Self::MAX_EXTENT || self.height > Self::MAX_EXTENT {
            return fail(format!("width and height are at most {}", Self::MAX_EXTENT));
        }
        if self.channels > Self::MAX_CHANNELS {
            return fail(format!("channels are at most {}", Self::MAX_CHANNELS));
        }
        let Some(row) = self.width.checked_mul(self.channels) else {
            return fail("a row overflows the address space".into());
        };
        if stride < row {
            return fail(format!("the stride is at least a row's {row} elements"));
        }
        match stride.checked_mul(self.height - 1).and_then(|n| n.checked_add(row)) {
            Some(len) if len <= isize::MAX as usize => Ok(len),
            _ => fail("the image overflows the address space".into()),
        }
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}x{}", self.width, self.height, self.channels)
    }
}

/// A borrowed image: rows of interleaved pixels, `stride` elements apart.
#[derive(Clone, Copy, Debug)]
pub struct ImageView<'a, P> {
    data: &'a [P],
    shape: Shape,
    stride: usize,
    /// Whether the memory is pinned, so that a GPU can copy from it directly.
    pinned: bool,
}

impl<'a, P: Number> ImageView<'a, P> {
    /// A view of contiguous rows, channels interleaved.
    ///
    /// # Errors
    /// [`Error::Geometry`] if the slice is too short or a limit is exceeded.
    ///
    /// ```
    /// let pixels = [1u8, 2, 3, 4, 5, 6];
    /// let grey = apron::ImageView::new(&pixels, 3, 2, 1)?;
    /// assert_eq!(grey.row(1), [4, 5, 6]);
    /// assert_eq!(grey.format().scalar, apron::Scalar::U8);
    /// # Ok::<(), apron::Error>(())
    /// ```
    pub fn new(data: &'a [P], width: usize, height: usize, channels: usize) -> Result<Self> {
        let stride = width.saturating_mul(channels);
        Self::with_stride(data, width, height, channels, stride)
    }

    /// A view of rows that start `stride` elements apart. The elements between the rows are never
    /// read.
    ///
    /// # Errors
    /// As for [`ImageView::new`], and if the stride is shorter than a row.
    pub fn with_stride(
        data: &'a [P],
        width: usize,
        height: usize,
        channels: usize,
        stride: usize,
    ) -> Result<Self> {
        let shape = Shape { width, height, channels };
        check_len(shape, stride, data.len())?;
        Ok(Self { data, shape, stride, pinned: false })
    }

    /// Width, height and channels.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Elements from one row to the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// A pointer to the first value of the first row.
    pub(crate) fn as_ptr(&self) -> *const P {
        self.data.as_ptr()
    }

    /// Row `y`, without the elements between rows.
    ///
    /// # Panics
    /// If `y` is not below the height.
    pub fn row(&self, y: usize) -> &'a [P] {
        &self.data[y * self.stride..][..self.shape.row_len()]
    }
}

impl<'a, P: Pixel> ImageView<'a, P> {
    /// A view of pinned memory, with contiguous rows.
    #[cfg(feature = "gpu")]
    pub(crate) fn of_pinned(data: &'a [P], shape: Shape) -> Self {
        Self { data, shape, stride: shape.row_len(), pinned: true }
    }

    /// The pixels' format, which is interleaved.
    pub fn format(&self) -> Format {
        Format { scalar: P::SCALAR, channels: self.shape.channels, layout: Layout::Interleaved }
    }
}

/// A borrowed image that can be written; see [`ImageView`].
#[derive(Debug)]
pub struct ImageViewMut<'a, P> {
    data: &'a mut [P],
    shape: Shape,
    stride: usize,
    /// Whether the memory is pinned, so that a GPU can copy to it directly.
    pinned: bool,
}

impl<'a, P: Number> ImageViewMut<'a, P> {
    /// A view of contiguous rows, channels interleaved.
    ///
    /// # Errors
    /// As for [`ImageView::new`].
    pub fn new(data: &'a mut [P], width: usize, height: usize, channels: usize) -> Result<Self> {
        let stride = width.saturating_mul(channels);
        Self::with_stride(data, width, height, channels, stride)
    }

    /// A view of rows that start `stride` elements apart. The elements between the rows are never
    /// written.
    ///
    /// # Errors
    /// As for [`ImageView::with_stride`].
    pub fn with_stride(
        data: &'a mut [P],
        width: usize,
        height: usize,
        channels: usize,
        stride: usize,
    ) -> Result<Self> {
        let shape = Shape { width, height, channels };
        let len = check_len(shape, stride, data.len())?;
        Ok(Self { data: &mut data[..len], shape, stride, pinned: false })
    }

    /// Width, height and channels.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Elements from one row to the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// A pointer to the first value of the first row. Row `y` starts `y * stride` elements after
    /// it.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut P {
        self.data.as_mut_ptr()
    }

    /// The same view with a shorter lifetime.
    pub(crate) fn reborrow(&mut self) -> ImageViewMut<'_, P> {
        ImageViewMut {
            data: self.data,
            shape: self.shape,
            stride: self.stride,
            pinned: self.pinned,
        }
    }

    /// The image's rows in bands of `rows` rows.
    pub(crate) fn bands_mut(
        &mut self,
        rows: usize,
    ) -> impl ExactSizeIterator<Item = Vec<&mut [P]>> + Send {
        let (stride, row_len) = (self.stride, self.shape.row_len());
        let bands = self.data.chunks_mut(stride.saturating_mul(rows));
        bands.map(move |band| band.chunks_mut(stride).map(|row| &mut row[..row_len]).collect())
    }
}

impl<'a, P: Pixel> ImageViewMut<'a, P> {
    /// A view of pinned memory, with contiguous rows.
    #[cfg(feature = "gpu")]
    pub(crate) fn of_pinned(data: &'a mut [P], shape: Shape) -> Self {
        Self { data, shape, stride: shape.row_len(), pinned: true }
    }
}

fn check_len(shape: Shape, stride: usize, found: usize) -> Result<usize> {
    let needed = shape.slice_len(stride)?;
    if found < needed {
        return Err(Error::Geometry {
            width: shape.width,
            height: shape.height,
            channels: shape.channels,
            stride,
            reason: format!("the slice has {found} elements, {needed} are needed"),
        });
    }
    Ok(needed)
}

/// An image that owns its pixels, with contiguous rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Image<P> {
    data: Vec<P>,
    shape: Shape,
}

impl<P: Number> Image<P> {
    /// An image with every value zero.
    ///
    /// # Errors
    /// [`Error::Geometry`] if a limit is exceeded, [`Error::HostMemory`] if memory cannot be
    /// allocated.
    pub fn zeroed(width: usize, height: usize, channels: usize) -> Result<Self> {
        let shape = Shape { width, height, channels };
        let len = shape.slice_len(width.saturating_mul(channels))?;
        Ok(Self { data: crate::memory::zeroed(len)?, shape })
    }

    /// An image from its values, row by row, channels interleaved.
    ///
    /// # Errors
    /// [`Error::Geometry`] unless `data` has exactly `width * height * channels` values.
    pub fn from_vec(data: Vec<P>, width: usize, height: usize, channels: usize) -> Result<Self> {
        let shape = Shape { width, height, channels };
        let stride = width.saturating_mul(channels);
        let needed = check_len(shape, stride, data.len())?;
        if data.len() != needed {
            return Err(Error::Geometry {
                width,
                height,
                channels,
                stride,
                reason: format!("{} values given, exactly {needed} needed", data.len()),
            });
        }
        Ok(Self { data, shape })
    }

    /// Width, height and channels.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The values, row by row, channels interleaved.
    pub fn as_slice(&self) -> &[P] {
        &self.data
    }

    /// The values, row by row, channels interleaved, for writing.
    pub fn as_mut_slice(&mut self) -> &mut [P] {
        &mut self.data
    }

    /// The values, row by row, channels interleaved.
    pub fn into_vec(self) -> Vec<P> {
        self.data
    }

    /// A view of the whole image.
    pub fn view(&self) -> ImageView<'_, P> {
        ImageView {
            data: &self.data,
            shape: self.shape,
            stride: self.shape.row_len(),
            pinned: false,
        }
    }

    /// A view of the whole image, for writing.
    pub fn view_mut(&mut self) -> ImageViewMut<'_, P> {
        ImageViewMut {
            data: &mut self.data,
            shape: self.shape,
            stride: self.shape.row_len(),
            pinned: false,
        }
    }
}
