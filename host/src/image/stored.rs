//! Views of pictures in host memory whose stored type is a value. All that lies below the public
//! functions takes these: generic code would be compiled again in every crate that calls it.

use std::ops::Range;

use super::{ImageView, ImageViewMut, Pixel, Scalar, Shape};

/// Rows of interleaved values of some stored type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredView<'a> {
    bytes: &'a [u8],
    shape: Shape,
    scalar: Scalar,
    /// Bytes from one row to the next.
    stride: usize,
    pinned: bool,
}

impl<'a, P: Pixel> From<ImageView<'a, P>> for StoredView<'a> {
    fn from(ImageView { data, shape, stride, pinned }: ImageView<'a, P>) -> Self {
        let stride = stride * size_of::<P>();
        Self { bytes: bytemuck::cast_slice(data), shape, scalar: P::SCALAR, stride, pinned }
    }
}

/// Evaluates an expression with a name for the type of pixels that a [`Scalar`] stands for.
macro_rules! with_pixels {
    ($scalar:expr, $P:ident => $body:expr) => {{
        use crate::image::Scalar;
        match $scalar {
            Scalar::U8 => {
                type $P = u8;
                $body
            }
            Scalar::U16 => {
                type $P = u16;
                $body
            }
            Scalar::F16 => {
                type $P = half::f16;
                $body
            }
            Scalar::F32 => {
                type $P = f32;
                $body
            }
        }
    }};
}
pub(crate) use with_pixels;

impl<'a> StoredView<'a> {
    /// The view that it was made from.
    ///
    /// # Panics
    /// If that had pixels of another type.
    pub(crate) fn typed<P: Pixel>(&self) -> ImageView<'a, P> {
        let Self { bytes, shape, scalar, stride, pinned } = *self;
        assert_eq!(scalar, P::SCALAR, "a view of other pixels");
        ImageView {
            data: bytemuck::cast_slice(bytes),
            shape,
            stride: stride / size_of::<P>(),
            pinned,
        }
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    pub(crate) fn scalar(&self) -> Scalar {
        self.scalar
    }

    /// Bytes from one row to the next.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// Bytes of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        self.scalar.bytes() * self.shape.row_len()
    }

    /// Whether a GPU copies from it by itself.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned
    }

    /// Some rows, with what lies between them.
    pub(crate) fn rows(&self, rows: &Range<usize>) -> &'a [u8] {
        let end = (rows.end * self.stride).min(self.bytes.len());
        &self.bytes[rows.start * self.stride..end]
    }
}

/// The same to write.
#[derive(Debug)]
pub(crate) struct StoredViewMut<'a> {
    bytes: &'a mut [u8],
    shape: Shape,
    scalar: Scalar,
    stride: usize,
    pinned: bool,
}

impl<'a, P: Pixel> From<ImageViewMut<'a, P>> for StoredViewMut<'a> {
    fn from(ImageViewMut { data, shape, stride, pinned }: ImageViewMut<'a, P>) -> Self {
        let stride = stride * size_of::<P>();
        Self { bytes: bytemuck::cast_slice_mut(data), shape, scalar: P::SCALAR, stride, pinned }
    }
}

impl<'a> StoredViewMut<'a> {
    /// As [`StoredView::typed`].
    pub(crate) fn typed<P: Pixel>(&mut self) -> ImageViewMut<'_, P> {
        let Self { ref mut bytes, shape, scalar, stride, pinned } = *self;
        assert_eq!(scalar, P::SCALAR, "a view of other pixels");
        ImageViewMut {
            data: bytemuck::cast_slice_mut(bytes),
            shape,
            stride: stride / size_of::<P>(),
            pinned,
        }
    }

    /// The same view for a shorter time.
    pub(crate) fn reborrow(&mut self) -> StoredViewMut<'_> {
        self.below(0)
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    pub(crate) fn scalar(&self) -> Scalar {
        self.scalar
    }

    /// Bytes from one row to the next.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// Bytes of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        self.scalar.bytes() * self.shape.row_len()
    }

    /// Whether a GPU copies to it by itself.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned
    }

    /// All bytes, with those between the rows.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// Rows from this one on.
    pub(crate) fn below(&mut self, row: usize) -> StoredViewMut<'_> {
        let shape = Shape { height: self.shape.height - row, ..self.shape };
        let Self { scalar, stride, pinned, .. } = *self;
        StoredViewMut { bytes: &mut self.bytes[row * stride..], shape, scalar, stride, pinned }
    }

    /// The first so many rows, and the others.
    pub(crate) fn split_at_row(self, rows: usize) -> (Self, Self) {
        let Self { bytes, shape, scalar, stride, pinned } = self;
        let (first, others) = bytes.split_at_mut((rows * stride).min(bytes.len()));
        let part = |bytes, height| StoredViewMut {
            bytes,
            shape: Shape { height, ..shape },
            scalar,
            stride,
            pinned,
        };
        (part(first, rows), part(others, shape.height - rows))
    }
}
