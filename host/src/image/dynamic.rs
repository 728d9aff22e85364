//! Images of the crate `image`, of any pixel type.

use image::{DynamicImage, ImageBuffer};

use crate::image::{Image, ImageView, Pixel};
use crate::{Error, Filter, Plan, Result};

/// Filters an image on the CPU or on the first GPU, whichever is predicted to be faster (see
/// [`Device::Auto`](crate::Device::Auto)). The border rule is [`Border::Reflect101`].
///
/// The result has the image's pixel type, and alpha is copied. For another device or border, or for
/// many images, build a [`Plan`] and call [`Plan::run_dynamic`].
///
/// ```
/// use apron::Filter;
/// use image::DynamicImage;
///
/// let picture = DynamicImage::new_rgb8(64, 48);
/// let blurred = apron::filter(&picture, &Filter::gaussian(2.0)?)?;
/// assert_eq!(blurred.color(), picture.color());
/// # Ok::<(), apron::Error>(())
/// ```
///
/// # Errors
/// [`Error::PixelFormat`] for a pixel type that this crate does not support; otherwise as
/// [`Plan::run`].
///
/// [`Border::Reflect101`]: crate::Border::Reflect101
#[must_use = "the filtered picture is returned, not written back"]
pub fn filter(picture: &DynamicImage, filter: &Filter) -> Result<DynamicImage> {
    Plan::builder(filter).build()?.run_dynamic(picture)
}

impl Plan {
    /// Filters an image of the crate `image`. The result has the same pixel type; alpha is copied.
    ///
    /// ```
    /// use apron::{Border, Device, Filter, Plan};
    /// use image::{DynamicImage, Rgba, RgbaImage};
    ///
    /// let picture = DynamicImage::from(RgbaImage::from_pixel(9, 7, Rgba([10, 20, 30, 40])));
    /// let builder = Plan::builder(Filter::box_filter(3, 3)?).border(Border::Constant(0.0));
    /// let plan = builder.device(Device::Cpu).build()?;
    /// let result = plan.run_dynamic(&picture)?.into_rgba8();
    /// assert_eq!(result.get_pixel(4, 3), &Rgba([10, 20, 30, 40]));
    /// assert_eq!(result.get_pixel(0, 3), &Rgba([7, 13, 20, 40]));
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::PixelFormat`] for a pixel type that this crate does not support; otherwise as
    /// [`Plan::run`].
    #[must_use = "the filtered picture is returned, not written back"]
    pub fn run_dynamic(&self, picture: &DynamicImage) -> Result<DynamicImage> {
        Ok(match picture {
            DynamicImage::ImageLuma8(picture) => self.run_buffer(picture)?.into(),
            DynamicImage::ImageLumaA8(picture) => self.run_buffer(picture)?.into(),
            DynamicImage::ImageRgb8(picture) => self.run_buffer(picture)?.into(),
            DynamicImage::ImageRgba8(picture) => self.run_buffer(picture)?.into(),
            DynamicImage::ImageLuma16(picture) => self.run_buffer(picture)?.into(),
            DynamicImage::ImageLumaA16(picture) => self.run_buffer(picture)?.into(),
            DynamicImage::ImageRgb16(picture) => self.run_buffer(picture)?.into(),
            DynamicImage::ImageRgba16(picture) => self.run_buffer(picture)?.into(),
            DynamicImage::ImageRgb32F(picture) => self.run_buffer(picture)?.into(),
            DynamicImage::ImageRgba32F(picture) => self.run_buffer(picture)?.into(),
            _ => return Err(Error::PixelFormat { format: format!("{:?}", picture.color()) }),
        })
    }

    fn run_buffer<P>(
        &self,
        picture: &ImageBuffer<P, Vec<P::Subpixel>>,
    ) -> Result<ImageBuffer<P, Vec<P::Subpixel>>>
    where
        P: image::Pixel<Subpixel: Pixel>,
    {
        let (width, height) = (picture.width() as usize, picture.height() as usize);
        let channels = usize::from(P::CHANNEL_COUNT);
        let src = ImageView::new(picture.as_raw(), width, height, channels)?;
        let mut dst = Image::zeroed(width, height, channels)?;
        self.run_channels(&src, &mut dst.view_mut(), channels - usize::from(P::HAS_ALPHA))?;
        let mut result = ImageBuffer::from_raw(picture.width(), picture.height(), dst.into_vec())
            .expect("as many values as the picture has");
        result.set_color_space(picture.color_space())?;
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use image::{ColorType, DynamicImage, GenericImageView};

    use crate::{Device, Filter, Plan};

    fn negative() -> Plan {
        Plan::builder("taps:-1".parse::<crate::Filter>().unwrap())
            .device(Device::Cpu)
            .build()
            .unwrap()
    }

    #[test]
    fn every_pixel_type_is_kept_and_alpha_untouched() {
        let rgba = image::RgbaImage::from_fn(7, 5, |x, y| {
            image::Rgba([x as u8, y as u8, 9, 60 + x as u8])
        });
        let picture = DynamicImage::from(rgba);
        let pictures = [
            DynamicImage::from(picture.to_luma8()),
            picture.to_luma_alpha8().into(),
            picture.to_rgb8().into(),
            picture.to_rgba8().into(),
            picture.to_luma16().into(),
            picture.to_luma_alpha16().into(),
            picture.to_rgb16().into(),
            picture.to_rgba16().into(),
            picture.to_rgb32f().into(),
            picture.to_rgba32f().into(),
        ];
        let mut colors = Vec::new();
        for picture in &pictures {
            let same = Plan::builder(Filter::identity()).device(Device::Cpu).build().unwrap();
            assert_eq!(&same.run_dynamic(picture).unwrap(), picture);

            let result = negative().run_dynamic(picture).unwrap();
            assert_eq!(result.color(), picture.color());
            assert_eq!(result.dimensions(), picture.dimensions());
            let (result_rgba, rgba) = (result.to_rgba32f(), picture.to_rgba32f());
            let float = matches!(picture.color(), ColorType::Rgb32F | ColorType::Rgba32F);
            for (result, pixel) in result_rgba.pixels().zip(rgba.pixels()) {
                assert_eq!(result[3], pixel[3], "{:?}", picture.color());
                assert_eq!(result[2], if float { -pixel[2] } else { 0.0 }, "{:?}", picture.color());
            }
            colors.push(picture.color());
        }
        colors.dedup();
        assert_eq!(colors.len(), 10);
    }

    #[test]
    fn an_empty_picture_is_an_error() {
        let error = negative().run_dynamic(&DynamicImage::new_rgb8(0, 4)).unwrap_err().to_string();
        assert!(error.contains("at least 1"), "{error}");
    }

    #[test]
    fn the_colour_space_stays() {
        let mut picture = DynamicImage::new_rgb8(3, 2);
        picture.set_color_space(image::metadata::Cicp::DISPLAY_P3).unwrap();
        assert_eq!(
            negative().run_dynamic(&picture).unwrap().color_space(),
            image::metadata::Cicp::DISPLAY_P3
        );
    }
}
