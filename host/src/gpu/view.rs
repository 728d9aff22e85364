//! Views of device memory: images, bands of images and batches, in any layout that strides
//! describe.

use std::marker::PhantomData;
use std::ops::Range;

use gpu_kernels::abi::{MAX_PIXEL, Plane, Strides};

use super::device::Gpu;
use super::image::DeviceImage;
use crate::image::{Scalar, Shape};
use crate::{Error, Result};

/// Images in device memory, to read: one or a batch, whole or a band of rows. See
/// [`DeviceImage::view`].
#[derive(Clone, Debug)]
pub struct DeviceView<'a> {
    pub(super) parts: View,
    memory: PhantomData<&'a DeviceImage>,
}

/// The same, to write. See [`DeviceImage::view_mut`].
#[derive(Debug)]
pub struct DeviceViewMut<'a> {
    pub(super) parts: View,
    memory: PhantomData<&'a mut DeviceImage>,
}

/// The fields of both.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) gpu: Gpu,
    /// The shape of each whole image; the view may have only some of its rows.
    pub(super) shape: Shape,
    pub(super) images: usize,
    pub(super) scalar: Scalar,
    pub(super) strides: Strides,
    pub(super) plane: Plane,
}

impl View {
    fn of(image: &DeviceImage) -> Self {
        let (shape, scalar, strides) = (image.shape(), image.format().scalar, image.strides());
        let there = (0, shape.height as i32);
        let plane =
            Plane::new(scalar.code(), image.address(), strides, shape.channels as u32, there);
        Self { gpu: image.gpu().clone(), shape, images: 1, scalar, strides, plane }
    }

    fn rows_of(image: &DeviceImage, height: usize, first: usize) -> Result<Self> {
        let (shape, kind) = (image.shape(), (image.format().scalar, image.strides()));
        let rows = first..first + shape.height;
        Self::from_raw(image.gpu(), image.address(), kind, Shape { height, ..shape }, 1, rows)
    }

    fn from_raw(
        gpu: &Gpu,
        address: u64,
        (scalar, strides): (Scalar, Strides),
        shape: Shape,
        images: usize,
        rows: Range<usize>,
    ) -> Result<Self> {
        shape.check()?;
        if images == 0 {
            let expected = "at least 1".to_owned();
            return Err(Error::Parameter { name: "images", value: "0".into(), expected });
        }
        let value = scalar.bytes() as i64;
        let steps = [strides.row, strides.pixel.into(), strides.channel, strides.image];
        if !address.is_multiple_of(value as u64) || steps.iter().any(|stride| stride % value != 0) {
            let expected = format!("multiples of the {value} bytes of {scalar}");
            let value = format!("address {address:#x}, {strides:?}");
            return Err(Error::Parameter { name: "the layout", value, expected });
        }
        if strides.pixel.unsigned_abs() > MAX_PIXEL {
            let expected = format!(
                "at most {MAX_PIXEL} bytes from one pixel of a row to the next; copy the image first"
            );
            return Err(Error::Parameter {
                name: "the layout",
                value: format!("{strides:?}"),
                expected,
            });
        }
        let rows = checked(rows, &(0..shape.height))?;
        // The address is that of the first row of the view.
        let there = (rows.start as i32, rows.end as i32);
        let plane = Plane::new(scalar.code(), address, strides, shape.channels as u32, there);
        Ok(Self { gpu: gpu.clone(), shape, images, scalar, strides, plane })
    }

    fn rows(mut self, rows: Range<usize>) -> Result<Self> {
        let rows = checked(rows, &self.there())?;
        (self.plane.first_row, self.plane.end_row) = (rows.start as i32, rows.end as i32);
        Ok(self)
    }

    /// Images of one channel without gaps: so many of so many rows and columns.
    fn without_gaps(
        gpu: &Gpu,
        address: u64,
        scalar: Scalar,
        (images, height, width): (usize, usize, usize),
    ) -> Result<Self> {
        let (value, shape) = (scalar.bytes() as i64, Shape { width, height, channels: 1 });
        let row = value * width as i64;
        let image = row * height as i64;
        let strides = Strides { row, pixel: value as i32, channel: value, image };
        Self::from_raw(gpu, address, (scalar, strides), shape, images, 0..height)
    }

    /// The number of values, of images of one channel that have no gaps.
    fn elements(&self) -> Result<usize> {
        let Shape { width, height, channels } = self.shape;
        let Strides { row, pixel, image, .. } = self.strides;
        let value = self.scalar.bytes() as i64;
        let gapless = i64::from(pixel) == value
            && (height == 1 || row == value * width as i64)
            && (self.images == 1 || image == value * (width * height) as i64);
        if gapless && channels == 1 && self.there() == (0..height) {
            return Ok(width * height * self.images);
        }
        Err(Error::Parameter {
            name: "the layout",
            value: format!("{}, {:?}", self.shape, self.strides),
            expected: "whole images of one channel without gaps: copy the array first".into(),
        })
    }

    /// The same values as so many images of so many rows and columns; they have no gaps.
    fn reshaped(&self, size: (usize, usize, usize)) -> Result<Self> {
        Self::without_gaps(&self.gpu, self.plane.base, self.scalar, size)
    }

    /// One image of a batch.
    fn image(&self, number: usize) -> Self {
        let mut view = Self { images: 1, ..self.clone() };
        let before = number as i64 * self.strides.image;
        view.plane.base = self.plane.base.wrapping_add(before as u64);
        view
    }

    /// The images of these columns alone, which become the images' first and last.
    pub(super) fn columns(&self, columns: &Range<usize>) -> Self {
        let mut view = self.clone();
        let before = columns.start as i64 * i64::from(self.strides.pixel);
        view.plane.base = self.plane.base.wrapping_add(before as u64);
        view.shape.width = columns.len();
        view
    }

    /// The first `channels` channels of the images from number `first` on, as a kernel's argument.
    pub(super) fn plane_from(&self, first: usize, channels: usize) -> Plane {
        let there = (self.plane.first_row, self.plane.end_row);
        let mut plane = Plane::new(self.scalar.code(), 0, self.strides, channels as u32, there);
        plane.base = self.plane.base.wrapping_add((first as i64 * self.strides.image) as u64);
        plane
    }

    /// How many channels are side by side in memory, pixel after pixel: all of them, or 1 if they
    /// are not.
    pub(super) fn side_by_side(&self) -> usize {
        let (value, channels) = (self.scalar.bytes() as i64, self.shape.channels);
        let side_by_side = self.strides.channel == value
            && i64::from(self.strides.pixel) == value * channels as i64;
        if side_by_side { channels } else { 1 }
    }

    /// The addresses from the first to behind the last byte of the rows that are there.
    fn span(&self) -> (u64, u64) {
        let Strides { row, pixel, channel, image } = self.strides;
        let last = |count: usize, stride: i64| (count as i64 - 1) * stride;
        let offsets = [
            last(self.shape.width, pixel.into()),
            last(self.shape.channels, channel),
            last(self.images, image),
            last(self.there().len(), row),
        ];
        let sum = |wanted: fn(&&i64) -> bool| offsets.iter().filter(wanted).sum::<i64>();
        let first = self.plane.base.wrapping_add((i64::from(self.plane.first_row) * row) as u64);
        let (before, behind) =
            (sum(|offset| **offset < 0), sum(|offset| **offset > 0) + self.scalar.bytes() as i64);
        (first.wrapping_add(before as u64), first.wrapping_add(behind as u64))
    }

    /// Whether two views may have bytes in common: unless their memory lies apart, or each takes
    /// other columns of rows that lie as far apart.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let (mine, others) = (self.span(), other.span());
        if mine.1 <= others.0 || others.1 <= mine.0 {
            return false;
        }
        let row = self.strides.row.unsigned_abs();
        let columns = |view: &Self| {
            let mut one_row = Self { images: 1, ..view.clone() };
            one_row.plane.end_row = one_row.plane.first_row + 1;
            let (start, end) = one_row.span();
            (start, end - start)
        };
        let ((first, width), (second, other_width)) = (columns(self), columns(other));
        let alone = self.images == 1
            && other.images == 1
            && row == other.strides.row.unsigned_abs()
            && row > 0;
        if !alone || width > row || other_width > row {
            return true;
        }
        // How far the other's columns begin behind mine, around the row.
        let behind = second.wrapping_sub(first) as i64;
        let behind = behind.rem_euclid(row as i64) as u64;
        behind < width || behind + other_width > row
    }

    /// The rows that the view has.
    pub(super) fn there(&self) -> Range<usize> {
        self.plane.first_row as usize..self.plane.end_row as usize
    }

    /// Whether sliding kernels may read it: its pixels are adjacent, its rows at multiples of 16
    /// bytes less than 2 GiB apart.
    pub(super) fn is_aligned(&self) -> bool {
        let Strides { row, channel, image, .. } = self.strides;
        // Those that take part.
        let image = if self.images > 1 { image } else { 0 };
        let side_by_side = self.side_by_side();
        let planes = self.shape.channels > 1 && side_by_side == 1;
        let channel = if planes { channel } else { 0 };
        // Kernels count the values of a row.
        let values = self.shape.width.checked_mul(side_by_side);
        let is_plain = self.plane.is_plain()
            || self.scalar == Scalar::F32
                && side_by_side > 1
                && i32::try_from(row).is_ok()
                && values.is_some_and(|count| count <= i32::MAX as usize / 2);
        is_plain
            && self.plane.base.is_multiple_of(16)
            && [row, channel, image].iter().all(|stride| stride % 16 == 0)
    }
}

/// Checks that the view has these rows.
fn checked(rows: Range<usize>, there: &Range<usize>) -> Result<Range<usize>> {
    if rows.is_empty() || rows.start < there.start || rows.end > there.end {
        let expected = format!("a range within {}..{}, not empty", there.start, there.end);
        return Err(Error::Parameter { name: "rows", value: format!("{rows:?}"), expected });
    }
    Ok(rows)
}

impl DeviceImage {
    /// The whole image, to read.
    pub fn view(&self) -> DeviceView<'_> {
        DeviceView { parts: View::of(self), memory: PhantomData }
    }

    /// The whole image, to write.
    pub fn view_mut(&mut self) -> DeviceViewMut<'_> {
        DeviceViewMut { parts: View::of(self), memory: PhantomData }
    }

    /// The image as those rows of a higher one that begin with row `first`, to read.
    pub(crate) fn as_rows_of(&self, height: usize, first: usize) -> Result<DeviceView<'_>> {
        Ok(DeviceView { parts: View::rows_of(self, height, first)?, memory: PhantomData })
    }

    /// The same, to write.
    pub(crate) fn rows_of(&mut self, height: usize, first: usize) -> Result<DeviceViewMut<'_>> {
        Ok(DeviceViewMut { parts: View::rows_of(self, height, first)?, memory: PhantomData })
    }
}

macro_rules! views {
    ($($view:ident: $does:literal;)*) => {$(
        impl<'a> $view<'a> {
            #[doc = concat!("Device memory that is not a [`DeviceImage`]'s, to ", $does, ": `images` images of this shape, of which `rows` are")]
            /// there, their values of type `scalar` and `strides` apart. `address` is that of
            /// column 0 of row `rows.start` of the first channel of the first image.
            ///
            /// # Safety
            /// For `'a`, every value that shape, rows and strides say lies in memory of this GPU
            /// that stays allocated until the work that uses the view is done; a view to write
            /// shares none of it with another view in use, and no two of its values with each
            /// other.
            ///
            /// # Errors
            /// [`Error::Geometry`] for a shape beyond the limits; [`Error::Parameter`] if there are
            /// no images or no such rows, or if address or strides are no multiples of a value's
            /// size, or pixels of a row are more than 2^23 bytes apart.
            pub unsafe fn from_raw(
                gpu: &Gpu,
                address: u64,
                (scalar, strides): (Scalar, Strides),
                shape: Shape,
                images: usize,
                rows: Range<usize>,
            ) -> Result<Self> {
                let parts = View::from_raw(gpu, address, (scalar, strides), shape, images, rows)?;
                Ok(Self { parts, memory: PhantomData })
            }

            /// Some of the view's rows, by their number in the whole image. The image stays as
            /// large, so that its border stays where it is.
            ///
            /// # Errors
            /// [`Error::Parameter`] if there are no such rows.
            pub fn rows(self, rows: Range<usize>) -> Result<Self> {
                Ok(Self { parts: self.parts.rows(rows)?, memory: PhantomData })
            }

            /// The whole image's width, height and channels.
            pub fn shape(&self) -> Shape {
                self.parts.shape
            }

            /// The type of the values.
            pub fn scalar(&self) -> Scalar {
                self.parts.scalar
            }

            /// How many images there are.
            pub fn images(&self) -> usize {
                self.parts.images
            }

            /// The number of values, of images of one channel that have no gaps.
            ///
            /// # Errors
            /// [`Error::Parameter`] for other images.
            pub(crate) fn elements(&self) -> Result<usize> {
                self.parts.elements()
            }
        }
    )*};
}

impl DeviceView<'_> {
    /// One of the images.
    pub(crate) fn image(&self, number: usize) -> DeviceView<'_> {
        DeviceView { parts: self.parts.image(number), memory: PhantomData }
    }

    /// See [`View::reshaped`].
    pub(crate) fn reshaped(&self, size: (usize, usize, usize)) -> Result<DeviceView<'_>> {
        Ok(DeviceView { parts: self.parts.reshaped(size)?, memory: PhantomData })
    }

    /// The GPU in whose memory it is.
    pub(crate) fn gpu(&self) -> &Gpu {
        &self.parts.gpu
    }

    /// See [`View::is_aligned`].
    pub(crate) fn is_aligned(&self) -> bool {
        self.parts.is_aligned()
    }

    /// See [`View::side_by_side`].
    pub(crate) fn side_by_side(&self) -> usize {
        self.parts.side_by_side()
    }
}

impl DeviceViewMut<'_> {
    /// See [`View::without_gaps`]. The memory is the caller's, for as long as it uses the view.
    pub(super) fn without_gaps(
        gpu: &Gpu,
        address: u64,
        scalar: Scalar,
        size: (usize, usize, usize),
    ) -> Result<Self> {
        let parts = View::without_gaps(gpu, address, scalar, size)?;
        Ok(Self { parts, memory: PhantomData })
    }

    /// See [`View::reshaped`].
    pub(crate) fn reshaped(&mut self, size: (usize, usize, usize)) -> Result<DeviceViewMut<'_>> {
        Ok(DeviceViewMut { parts: self.parts.reshaped(size)?, memory: PhantomData })
    }

    /// See [`View::reshaped`]: to read.
    pub(crate) fn to_read(&self, size: (usize, usize, usize)) -> Result<DeviceView<'_>> {
        Ok(DeviceView { parts: self.parts.reshaped(size)?, memory: PhantomData })
    }

    /// One of the images.
    pub(crate) fn image(&mut self, number: usize) -> DeviceViewMut<'_> {
        DeviceViewMut { parts: self.parts.image(number), memory: PhantomData }
    }

    /// See [`View::side_by_side`].
    pub(crate) fn side_by_side(&self) -> usize {
        self.parts.side_by_side()
    }
}

views! {
    DeviceView: "read";
    DeviceViewMut: "write";
}
