//! A plan's calls with pictures whose last channel is alpha.

#[cfg(feature = "gpu")]
use std::ops::Range;

use super::{Channels, Plan, agree};
#[cfg(feature = "gpu")]
use super::{engines::On, ran};
#[cfg(feature = "gpu")]
use crate::gpu::engine::Part;
#[cfg(feature = "gpu")]
use crate::gpu::{DeviceView, DeviceViewMut, Stream};
#[cfg(feature = "gpu")]
use crate::image::Shape;
use crate::image::{ImageView, ImageViewMut, Pixel};
use crate::pipeline::check_alpha;
use crate::{Alpha, Error, Extra, Result};

impl Alpha {
    /// Which channels a plan filters, of so many.
    ///
    /// # Errors
    /// [`Error::Parameter`] if colours are to be weighted in a step that is no average, or if light
    /// is to be filtered with alpha as a colour or multiplied by alpha.
    pub(crate) fn channels_of(self, plan: &Plan, channels: usize) -> Result<Channels> {
        match self {
            Self::Auto | Self::Premultiply if plan.is_average() => Ok(Channels::Weighted),
            Self::Premultiply => {
                let expected = "keep, filter, drop or flatten=COLOUR for filters whose taps are negative or do not sum to 1";
                Err(Error::Parameter {
                    name: "alpha",
                    value: self.to_string(),
                    expected: expected.to_owned(),
                })
            }
            // Alpha is no light, and neither is what it multiplied.
            Self::Premultiplied | Self::Filter if plan.light.is_some() => Err(Error::Parameter {
                name: "alpha",
                value: self.to_string(),
                expected: "premultiply, keep, drop or flatten=COLOUR in linear light".to_owned(),
            }),
            Self::Premultiplied if plan.is_average() => Ok(Channels::First(channels)),
            Self::Auto | Self::Premultiplied | Self::Keep => Ok(Channels::First(channels - 1)),
            Self::Filter | Self::Drop | Self::Flatten(_) => Ok(Channels::First(channels)),
        }
    }
}

impl Plan {
    /// As [`Plan::run`], for a picture whose last channel is alpha, of which the mode says what
    /// becomes of it. The destination has [`Alpha::channels`].
    ///
    /// ```
    /// use apron::{Alpha, Device, Filter, Image, Plan};
    ///
    /// // White beside transparent black.
    /// let plan = Plan::builder(Filter::box_filter(3, 1)?).device(Device::Cpu).build()?;
    /// let src = Image::from_vec(vec![255u8, 255, 0, 0], 2, 1, 2)?;
    /// let mut dst = Image::<u8>::zeroed(2, 1, 2)?;
    /// plan.run_with_alpha(&src.view(), &mut dst.view_mut(), Alpha::Premultiply)?;
    /// assert_eq!(dst.as_slice(), [255, 85, 255, 170]);
    /// plan.run_with_alpha(&src.view(), &mut dst.view_mut(), Alpha::Filter)?;
    /// assert_eq!(dst.as_slice(), [85, 85, 170, 170]);
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Pipeline::run_with_alpha`](crate::Pipeline::run_with_alpha).
    pub fn run_with_alpha<S: Pixel, D: Pixel>(
        &self,
        src: &ImageView<'_, S>,
        dst: &mut ImageViewMut<'_, D>,
        alpha: Alpha,
    ) -> Result<()> {
        let shape = src.shape();
        check_alpha(shape.channels)?;
        if alpha.takes_alpha_away() {
            return self.run(&alpha.apart(src, Extra::Straight)?, dst);
        }
        agree(shape, dst.shape())?;
        self.run_as(alpha.channels_of(self, shape.channels)?, (*src).into(), dst.reborrow().into())
    }

    /// As [`Plan::run_region`], for images whose last channel is alpha.
    ///
    /// # Errors
    /// As for [`Plan::run_region`] and [`Plan::run_with_alpha`]; [`Error::Parameter`] under
    /// [`Alpha::Drop`] and [`Alpha::Flatten`], which are for pictures in host memory.
    #[cfg(feature = "gpu")]
    pub fn run_region_with_alpha(
        &self,
        src: &DeviceView<'_>,
        dst: &mut DeviceViewMut<'_>,
        columns: Range<usize>,
        rows: Range<usize>,
        (alpha, stream): (Alpha, &mut Stream),
    ) -> Result<()> {
        let Shape { channels, .. } = src.shape();
        check_alpha(channels)?;
        if alpha.takes_alpha_away() {
            let expected =
                "auto, premultiply, premultiplied, keep or filter for images in GPU memory"
                    .to_owned();
            return Err(Error::Parameter { name: "alpha", value: alpha.to_string(), expected });
        }
        let part = Part { columns, rows, ..Part::whole(src.shape()) };
        match alpha.channels_of(self, channels)? {
            Channels::First(filtered) => {
                self.run_part(src, dst, &Part { filtered, ..part }, stream)
            }
            Channels::Weighted => {
                let gpus = self.gpus_of(src.gpu())?;
                let engine = gpus.engine_of(src.gpu());
                let problem = || self.problem_on((src, dst), &part, On::Gpu(&gpus).place());
                let prepared = self.prepare_weighted(src.scalar(), problem, &gpus, engine)?;
                let ran = engine.enqueue(&prepared, src, dst, &part, stream)?;
                ran::keep_one(self.number, ran);
                Ok(())
            }
        }
    }
}
