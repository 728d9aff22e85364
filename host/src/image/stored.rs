//! Views of pictures in host memory whose stored type is a value: for code that copies rows and does not look at pixels.

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

impl<'a> StoredView<'a> {
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
        let part = |bytes, height| StoredViewMut { bytes, shape: Shape { height, ..shape }, scalar, stride, pinned };
        (part(first, rows), part(others, shape.height - rows))
    }
}
