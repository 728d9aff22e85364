//! Views of images in host memory whose stored type is a run-time value. All internal code behind
//! the public functions takes these views: generic code would be compiled again in every crate that
//! calls it.

use std::ops::Range;

use super::{ImageView, ImageViewMut, Pixel, Scalar, Shape};

/// Rows of interleaved values of the stored type `scalar`.
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

impl<'a> StoredView<'a> {
    /// The view as a view of pixels of type `P`.
    ///
    /// # Panics
    /// If the stored type is not `P`.
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

    /// Whether the memory is pinned, so that a GPU can copy from it directly.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned
    }

    /// The bytes of these rows, with the bytes between the rows.
    pub(crate) fn rows(&self, rows: &Range<usize>) -> &'a [u8] {
        let end = (rows.end * self.stride).min(self.bytes.len());
        &self.bytes[rows.start * self.stride..end]
    }
}

/// As [`StoredView`], for writing.
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
    /// The view as a view of pixels of type `P`. Panics if the stored type is not `P`.
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

    /// The same view with a shorter lifetime.
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

    /// Whether the memory is pinned, so that a GPU can copy to it directly.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned
    }

    /// All bytes, with the bytes between the rows.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// The rows from `row` on.
    pub(crate) fn below(&mut self, row: usize) -> StoredViewMut<'_> {
        let shape = Shape { height: self.shape.height - row, ..self.shape };
        let Self { scalar, stride, pinned, .. } = *self;
        StoredViewMut { bytes: &mut self.bytes[row * stride..], shape, scalar, stride, pinned }
    }

    /// The first `rows` rows, and the other rows.
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
