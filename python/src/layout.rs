//! How arrays lie in host memory: images that plans filter in place.

use apron::{ImageView, ImageViewMut, Pixel, Scalar};
use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;

use crate::array::{self, Axes, dims};
use crate::device::Foreign;
use crate::number::NumberType;

/// An array as images: rows of pixels with interleaved channels, or a plane for each channel.
pub(crate) struct Layout {
    data: *mut u8,
    pub(crate) scalar: Scalar,
    pub(crate) images: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) channels: usize,
    pub(crate) interleaved: bool,
    /// Bytes from one row to the next, from one plane to the next, and from one image to the next.
    row: isize,
    plane: isize,
    image: isize,
}

// SAFETY: a `Layout` only holds an address. Code that dereferences it states why that is allowed.
unsafe impl Sync for Layout {}

impl Layout {
    /// The layout, or `None` if a plan cannot take the rows of pixels or of planes in place.
    pub(crate) fn of(
        array: &Bound<'_, PyUntypedArray>,
        scalar: Scalar,
        axes: Axes,
    ) -> PyResult<Option<Self>> {
        Self::new(array::address(array), scalar, array.shape(), array.strides(), axes)
    }

    /// As [`Layout::of`], for an array of another library. `None` also for a type that no kernel
    /// takes.
    pub(crate) fn of_foreign(array: &Foreign, axes: Axes) -> PyResult<Option<Self>> {
        let (address, kind, shape, strides) = array;
        let strides: Vec<isize> = strides.iter().map(|&stride| stride as isize).collect();
        let data = std::ptr::with_exposed_provenance_mut(*address as usize);
        match NumberType::from_typestr(kind).and_then(NumberType::scalar) {
            Ok(scalar) => Self::new(data, scalar, shape, &strides, axes),
            Err(_) => Ok(None),
        }
    }

    /// As [`Layout::of`], from the first value's address, and shape and strides in bytes.
    fn new(
        data: *mut u8,
        scalar: Scalar,
        shape: &[usize],
        strides: &[isize],
        axes: Axes,
    ) -> PyResult<Option<Self>> {
        let value = scalar.bytes() as isize;
        let ([images, height, width, channels], [image, row, pixel, channel]) =
            dims(shape, strides, axes, value)?;
        let (w, c) = (width as isize, channels as isize);
        let interleaved = (c == 1 || channel == value) && (w == 1 || pixel == c * value);
        let side_by_side = interleaved || w == 1 || pixel == value;
        let row_bytes = value * w * if interleaved { c } else { 1 };
        let row = if height == 1 { row_bytes } else { row };
        let aligned = data.addr().is_multiple_of(scalar.bytes())
            && [row, channel, image].iter().all(|stride| stride % value == 0);
        let fits = side_by_side && row >= row_bytes && aligned;
        Ok(fits.then_some(Self {
            data,
            scalar,
            images,
            height,
            width,
            channels,
            interleaved,
            row,
            plane: channel,
            image,
        }))
    }

    /// Whether both have interleaved channels, or both have planes.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.channels == 1 || self.interleaved == other.interleaved
    }

    /// Whether the bytes from the first value to the last overlap those of another layout.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let range = |layout: &Self| {
            let shape = [layout.images, layout.planes(), layout.parts().2];
            let strides = [layout.image, layout.plane, layout.scalar.bytes() as isize];
            let (low, high) = array::span(&shape, &strides, layout.scalar.bytes());
            let address = layout.data.addr() as isize;
            (address + low, address + high)
        };
        let (one, other) = (range(self), range(other));
        one.0 < other.1 && other.0 < one.1
    }

    /// Whether no two of its images and planes overlap, the bytes between their rows included.
    pub(crate) fn is_apart(&self) -> bool {
        let value = self.scalar.bytes();
        let mut axes =
            [(self.planes(), self.plane), (self.images, self.image)].map(|(len, stride)| {
                if len > 1 { (stride.unsigned_abs(), len) } else { (usize::MAX, 1) }
            });
        axes.sort_unstable();
        let mut covered = self.parts().2 * value;
        axes.into_iter().filter(|&(_, len)| len > 1).all(|(stride, len)| {
            let apart = stride >= covered;
            covered += (len - 1) * stride;
            apart
        })
    }

    /// The number of pictures that a plan filters for each image.
    pub(crate) fn planes(&self) -> usize {
        if self.interleaved { 1 } else { self.channels }
    }

    /// Channels of one such picture, elements from one row to the next, and elements in all.
    fn parts(&self) -> (usize, usize, usize) {
        let channels = if self.interleaved { self.channels } else { 1 };
        let stride = self.row as usize / self.scalar.bytes();
        (channels, stride, stride * (self.height - 1) + self.width * channels)
    }

    /// The address of a plane's first value.
    fn address(&self, image: usize, plane: usize) -> *mut u8 {
        self.data.wrapping_offset(image as isize * self.image + plane as isize * self.plane)
    }

    /// The pictures of the images, which a plan filters one after the other, each with its place
    /// in `target`: an image, or the planes of one.
    ///
    /// # Safety
    /// As for [`Layout::view`] of these, and for [`Layout::view_mut`] of the target's pictures that
    /// exist at the same time. The target's images have the same shape, and planes as these do.
    pub(crate) unsafe fn pictures_with<'a, S: Pixel, D: Pixel>(
        &self,
        target: &Self,
    ) -> impl Iterator<Item = apron::Result<(ImageView<'a, S>, ImageViewMut<'a, D>)>> {
        let planes = self.planes();
        let parts =
            (0..self.images).flat_map(move |image| (0..planes).map(move |plane| (image, plane)));
        // SAFETY: as the caller promised.
        parts.map(move |(image, plane)| unsafe {
            Ok((self.view(image, plane)?, target.view_mut(image, plane)?))
        })
    }

    /// # Safety
    /// For `'a`, the array must exist, its values must be of type `P`, and nobody may write to
    /// them.
    pub(crate) unsafe fn view<'a, P: Pixel>(
        &self,
        image: usize,
        plane: usize,
    ) -> apron::Result<ImageView<'a, P>> {
        let (channels, stride, len) = self.parts();
        let data = self.address(image, plane).cast();
        // SAFETY: the rows are inside the array. Its address and strides are multiples of a value's
        // size.
        let values = unsafe { std::slice::from_raw_parts(data, len) };
        ImageView::with_stride(values, self.width, self.height, channels, stride)
    }

    /// # Safety
    /// For `'a`, the array must exist, its values must be of type `P`, and nobody else may use
    /// these values or the bytes between the rows.
    pub(crate) unsafe fn view_mut<'a, P: Pixel>(
        &self,
        image: usize,
        plane: usize,
    ) -> apron::Result<ImageViewMut<'a, P>> {
        let (channels, stride, len) = self.parts();
        let data = self.address(image, plane).cast();
        // SAFETY: as in `view`.
        let values = unsafe { std::slice::from_raw_parts_mut(data, len) };
        ImageViewMut::with_stride(values, self.width, self.height, channels, stride)
    }
}
