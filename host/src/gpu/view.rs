//! Views of device memory: images, bands of images and batches, in any layout that strides describe.

use std::marker::PhantomData;
use std::ops::Range;

use gpu_kernels::abi::{Plane, Strides};

use super::device::Gpu;
use super::image::DeviceImage;
use crate::image::Shape;
use crate::{Error, Result};

/// Images of f32 in device memory, to read: one or a batch, whole or a band of rows. See [`DeviceImage::view`].
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
    strides: Strides,
    pub(super) plane: Plane,
}

impl View {
    fn of(image: &DeviceImage) -> Self {
        let shape = image.shape();
        let (row, channel) = (4 * image.stride() as i64, 4 * image.plane_stride() as i64);
        let strides = Strides { row, pixel: 4, channel, image: 0 };
        let plane = Plane::new(image.address(), strides, shape.channels as u32, (0, shape.height as i32));
        Self { gpu: image.gpu().clone(), shape, images: 1, strides, plane }
    }

    fn from_raw(
        gpu: &Gpu,
        address: u64,
        strides: Strides,
        shape: Shape,
        images: usize,
        rows: Range<usize>,
    ) -> Result<Self> {
        shape.check()?;
        if images == 0 {
            let expected = "at least 1".to_owned();
            return Err(Error::Parameter { name: "images", value: "0".into(), expected });
        }
        if !address.is_multiple_of(4)
            || [strides.row, strides.pixel.into(), strides.channel, strides.image].iter().any(|stride| stride % 4 != 0)
        {
            let value = format!("address {address:#x}, {strides:?}");
            return Err(Error::Parameter { name: "the layout", value, expected: "multiples of 4 bytes".into() });
        }
        let rows = checked(rows, &(0..shape.height))?;
        // The address is that of the first row of the view.
        let there = (rows.start as i32, rows.end as i32);
        let plane = Plane::new(address, strides, shape.channels as u32, there);
        Ok(Self { gpu: gpu.clone(), shape, images, strides, plane })
    }

    fn rows(mut self, rows: Range<usize>) -> Result<Self> {
        let rows = checked(rows, &self.there())?;
        (self.plane.first_row, self.plane.end_row) = (rows.start as i32, rows.end as i32);
        Ok(self)
    }

    /// The images from number `first` on, as a kernel's argument.
    pub(super) fn plane_from(&self, first: usize) -> Plane {
        let mut plane = self.plane;
        plane.base = plane.base.wrapping_add((first as i64 * self.strides.image) as u64);
        plane
    }

    /// The rows that the view has.
    pub(super) fn there(&self) -> Range<usize> {
        self.plane.first_row as usize..self.plane.end_row as usize
    }

    /// Whether sliding kernels may read it: its pixels are adjacent, its rows at multiples of 16 bytes less than 2 GiB
    /// apart.
    pub(super) fn is_aligned(&self) -> bool {
        let Strides { row, channel, image, .. } = self.strides;
        self.plane.is_plain()
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
}

macro_rules! views {
    ($($view:ident: $does:literal;)*) => {$(
        impl<'a> $view<'a> {
            #[doc = concat!("Device memory that is not a [`DeviceImage`]'s, to ", $does, ": `images` images of f32 of this shape, of which `rows` are")]
            /// there. `address` is that of column 0 of row `rows.start` of the first channel of the first image.
            ///
            /// # Safety
            /// For `'a`, every value that shape, rows and strides say lies in memory of this GPU that stays allocated until the
            /// work that uses the view is done; a view to write shares none of it with another view in use, and no two of
            /// its values with each other.
            ///
            /// # Errors
            /// [`Error::Geometry`] for a shape beyond the limits; [`Error::Parameter`] if there are no images or no such rows, or
            /// if address or strides are no multiples of 4 bytes.
            pub unsafe fn from_raw(
                gpu: &Gpu,
                address: u64,
                strides: Strides,
                shape: Shape,
                images: usize,
                rows: Range<usize>,
            ) -> Result<Self> {
                Ok(Self { parts: View::from_raw(gpu, address, strides, shape, images, rows)?, memory: PhantomData })
            }

            /// Some of the view's rows, by their number in the whole image. The image stays as large, so that its border stays
            /// where it is.
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

            /// How many images there are.
            pub fn images(&self) -> usize {
                self.parts.images
            }
        }
    )*};
}

impl DeviceView<'_> {
    /// See [`View::is_aligned`].
    pub(crate) fn is_aligned(&self) -> bool {
        self.parts.is_aligned()
    }
}

views! {
    DeviceView: "read";
    DeviceViewMut: "write";
}
