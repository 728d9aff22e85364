//! Views of images of other crates and of slices of pixels.

use super::{Image, ImageView, ImageViewMut, Pixel};
use crate::Result;
#[cfg(feature = "ndarray")]
use crate::{Error, Shape};

/// A source of [`Plan::run`](crate::Plan::run): a view or an image. With the feature `image`, also
/// an `image::ImageBuffer`. With the feature `ndarray`, also an array of rows by columns, or of
/// rows by columns by channels.
///
/// ```
/// # #[cfg(feature = "image")] {
/// use apron::{AsImage, Device, Filter, Plan};
///
/// let picture = image::RgbImage::from_pixel(64, 48, image::Rgb([1, 2, 3]));
/// let mut blurred = image::RgbImage::new(64, 48);
/// let plan = Plan::builder(Filter::gaussian(2.0)?).device(Device::Cpu).build()?;
/// plan.run(&picture, &mut blurred)?;
/// assert_eq!(blurred, picture);
/// assert_eq!(picture.as_image()?.shape().channels, 3);
/// # }
/// # Ok::<(), apron::Error>(())
/// ```
pub trait AsImage {
    /// The type of a value.
    type Value: Pixel;

    /// A view of the image.
    ///
    /// # Errors
    /// [`Error::Geometry`](crate::Error::Geometry) if the image is empty, exceeds a limit, or is
    /// not in memory row by row without gaps.
    fn as_image(&self) -> Result<ImageView<'_, Self::Value>>;
}

/// A destination of [`Plan::run`](crate::Plan::run); see [`AsImage`].
pub trait AsImageMut {
    /// The type of a value.
    type Value: Pixel;

    /// A view of the image, for writing.
    ///
    /// # Errors
    /// As for [`AsImage::as_image`].
    fn as_image_mut(&mut self) -> Result<ImageViewMut<'_, Self::Value>>;
}

impl<P: Pixel> AsImage for ImageView<'_, P> {
    type Value = P;

    fn as_image(&self) -> Result<ImageView<'_, P>> {
        Ok(*self)
    }
}

impl<P: Pixel> AsImageMut for ImageViewMut<'_, P> {
    type Value = P;

    fn as_image_mut(&mut self) -> Result<ImageViewMut<'_, P>> {
        Ok(self.reborrow())
    }
}

impl<P: Pixel> AsImage for Image<P> {
    type Value = P;

    fn as_image(&self) -> Result<ImageView<'_, P>> {
        Ok(self.view())
    }
}

impl<P: Pixel> AsImageMut for Image<P> {
    type Value = P;

    fn as_image_mut(&mut self) -> Result<ImageViewMut<'_, P>> {
        Ok(self.view_mut())
    }
}

impl<'a, P: Pixel> ImageView<'a, P> {
    /// A view of pixels that are arrays of their channels, such as `&[[u8; 3]]`, row by row.
    ///
    /// ```
    /// let pixels = [[255u8, 0, 0], [0, 255, 0], [0, 0, 255], [9, 9, 9]];
    /// let image = apron::ImageView::from_pixels(&pixels, 2, 2)?;
    /// assert_eq!(image.row(1), [0, 0, 255, 9, 9, 9]);
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`ImageView::new`].
    pub fn from_pixels<const N: usize>(
        pixels: &'a [[P; N]],
        width: usize,
        height: usize,
    ) -> Result<Self> {
        Self::new(pixels.as_flattened(), width, height, N)
    }

    /// A copy that owns its pixels, with contiguous rows.
    ///
    /// # Errors
    /// [`Error::HostMemory`](crate::Error::HostMemory) if memory cannot be allocated.
    pub fn to_image(&self) -> Result<Image<P>> {
        let shape = self.shape();
        let mut image = Image::zeroed(shape.width, shape.height, shape.channels)?;
        let rows = image.as_mut_slice().chunks_exact_mut(shape.row_len());
        rows.enumerate().for_each(|(y, row)| row.copy_from_slice(self.row(y)));
        Ok(image)
    }
}

impl<'a, P: Pixel> ImageViewMut<'a, P> {
    /// A view of pixels that are arrays of their channels, such as `&mut [[u8; 3]]`, row by row.
    ///
    /// # Errors
    /// As for [`ImageView::new`].
    pub fn from_pixels<const N: usize>(
        pixels: &'a mut [[P; N]],
        width: usize,
        height: usize,
    ) -> Result<Self> {
        Self::new(pixels.as_flattened_mut(), width, height, N)
    }
}

#[cfg(feature = "image")]
mod buffers {
    use std::ops::{Deref, DerefMut};

    use image::ImageBuffer;

    use super::{AsImage, AsImageMut, Image, ImageView, ImageViewMut, Pixel, Result};
    use crate::Error;

    fn size<P: image::Pixel, C: Deref<Target = [P::Subpixel]>>(
        buffer: &ImageBuffer<P, C>,
    ) -> (usize, usize, usize) {
        (buffer.width() as usize, buffer.height() as usize, P::CHANNEL_COUNT.into())
    }

    impl<P, C> AsImage for ImageBuffer<P, C>
    where
        P: image::Pixel<Subpixel: Pixel>,
        C: Deref<Target = [P::Subpixel]>,
    {
        type Value = P::Subpixel;

        fn as_image(&self) -> Result<ImageView<'_, P::Subpixel>> {
            let (width, height, channels) = size(self);
            ImageView::new(self.as_raw(), width, height, channels)
        }
    }

    impl<P, C> AsImageMut for ImageBuffer<P, C>
    where
        P: image::Pixel<Subpixel: Pixel>,
        C: DerefMut<Target = [P::Subpixel]>,
    {
        type Value = P::Subpixel;

        fn as_image_mut(&mut self) -> Result<ImageViewMut<'_, P::Subpixel>> {
            let (width, height, channels) = size(self);
            ImageViewMut::new(&mut *self, width, height, channels)
        }
    }

    /// Moves the pixels without a copy. Fails unless the buffer's pixel type has the same number of
    /// channels and the `u32` sizes hold the image.
    impl<P> TryFrom<Image<P::Subpixel>> for ImageBuffer<P, Vec<P::Subpixel>>
    where
        P: image::Pixel<Subpixel: Pixel>,
    {
        type Error = Error;

        fn try_from(image: Image<P::Subpixel>) -> Result<Self> {
            let shape = image.shape();
            let misfit = || Error::Mismatch {
                src: shape.to_string(),
                dst: format!("a picture of {} channels", P::CHANNEL_COUNT),
            };
            if shape.channels != usize::from(P::CHANNEL_COUNT) {
                return Err(misfit());
            }
            // Widths and heights are at most 2^29.
            Self::from_raw(shape.width as u32, shape.height as u32, image.into_vec())
                .ok_or_else(misfit)
        }
    }
}

#[cfg(feature = "ndarray")]
mod arrays {
    use ndarray::{Array3, ArrayBase, Data, DataMut, Ix2, Ix3};

    use super::{AsImage, AsImageMut, Error, Image, ImageView, ImageViewMut, Pixel, Result, Shape};

    fn gaps(Shape { width, height, channels }: Shape) -> Error {
        let reason = "the array is not in standard layout, row by row without gaps; copy it with as_standard_layout first";
        Error::Geometry {
            width,
            height,
            channels,
            stride: width.saturating_mul(channels),
            reason: reason.into(),
        }
    }

    macro_rules! array {
        ($dimension:ident, $dim:ident => $shape:expr) => {
            impl<S: Data<Elem: Pixel>> AsImage for ArrayBase<S, $dimension> {
                type Value = S::Elem;

                fn as_image(&self) -> Result<ImageView<'_, S::Elem>> {
                    let $dim = self.dim();
                    let shape: Shape = $shape;
                    let values = self.as_slice().ok_or_else(|| gaps(shape))?;
                    ImageView::new(values, shape.width, shape.height, shape.channels)
                }
            }

            impl<S: DataMut<Elem: Pixel>> AsImageMut for ArrayBase<S, $dimension> {
                type Value = S::Elem;

                fn as_image_mut(&mut self) -> Result<ImageViewMut<'_, S::Elem>> {
                    let $dim = self.dim();
                    let shape: Shape = $shape;
                    let values = self.as_slice_mut().ok_or_else(|| gaps(shape))?;
                    ImageViewMut::new(values, shape.width, shape.height, shape.channels)
                }
            }
        };
    }

    array!(Ix2, dim => Shape { width: dim.1, height: dim.0, channels: 1 });
    array!(Ix3, dim => Shape { width: dim.1, height: dim.0, channels: dim.2 });

    /// Rows by columns by channels; the values are not copied.
    impl<P: Pixel> From<Image<P>> for Array3<P> {
        fn from(image: Image<P>) -> Self {
            let Shape { width, height, channels } = image.shape();
            let values = image.into_vec();
            Self::from_shape_vec((height, width, channels), values)
                .expect("an image has as many values as its shape")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Plan};

    fn negative() -> Plan {
        Plan::builder("taps:-1".parse::<crate::Filter>().unwrap())
            .device(Device::Cpu)
            .build()
            .unwrap()
    }

    #[test]
    fn pixels_of_arrays_are_images() {
        let src = [[1u8, 2], [3, 4], [5, 6]];
        let mut dst = [[0f32; 2]; 3];
        let view = ImageView::from_pixels(&src, 1, 3).unwrap();
        negative().run(&view, &mut ImageViewMut::from_pixels(&mut dst, 1, 3).unwrap()).unwrap();
        assert_eq!(dst, [[-1.0, -2.0], [-3.0, -4.0], [-5.0, -6.0]]);
        assert!(
            ImageView::from_pixels(&src, 2, 2).is_err()
                && ImageView::from_pixels(&[[0u8; 0]], 1, 1).is_err()
        );
    }

    #[test]
    fn a_copy_has_no_gaps() {
        let values: Vec<u8> = (0..11).collect();
        let image = ImageView::with_stride(&values, 3, 3, 1, 4).unwrap().to_image().unwrap();
        assert_eq!(image.as_slice(), [0, 1, 2, 4, 5, 6, 8, 9, 10]);
    }

    #[cfg(feature = "image")]
    #[test]
    fn buffers_of_the_image_crate_are_images() {
        use image::{ImageBuffer, Luma, Rgb, RgbImage};

        let src = RgbImage::from_fn(5, 4, |x, y| Rgb([x as u8, y as u8, 7]));
        let mut dst: ImageBuffer<Rgb<f32>, Vec<f32>> = ImageBuffer::new(5, 4);
        negative().run(&src, &mut dst).unwrap();
        assert_eq!(dst.get_pixel(3, 2).0, [-3.0, -2.0, -7.0]);
        let back = RgbImage::try_from(src.as_image().unwrap().to_image().unwrap()).unwrap();
        assert_eq!(back, src);
        let image = src.as_image().unwrap().to_image().unwrap();
        let error = ImageBuffer::<Luma<u8>, _>::try_from(image).unwrap_err().to_string();
        assert!(error.contains("5x4x3") && error.contains("1 channels"), "{error}");
        assert!(RgbImage::new(0, 3).as_image().is_err());
    }

    #[cfg(feature = "ndarray")]
    #[test]
    fn arrays_are_images() {
        use ndarray::{Array2, Array3, s};

        let src = Array2::from_shape_fn((4, 6), |(y, x)| (10 * y + x) as u16);
        let mut dst = Array2::<f32>::zeros((4, 6));
        negative().run(&src, &mut dst).unwrap();
        assert_eq!(dst[(3, 5)], -35.0);
        let pixels = Array3::from_shape_fn((4, 6, 3), |(y, x, c)| (100 * y + 10 * x + c) as f32);
        assert_eq!(Array3::from(pixels.as_image().unwrap().to_image().unwrap()), pixels);
        assert_eq!(pixels.slice(s![1..3, .., ..]).as_image().unwrap().shape().height, 2);
        let error = pixels.slice(s![.., 1..3, ..]).as_image().unwrap_err().to_string();
        assert!(error.contains("as_standard_layout"), "{error}");
    }
}
