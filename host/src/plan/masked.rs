//! A plan's calls with masks: sums over known pixels.

use super::auto::Where;
use super::engines::On;
use super::ran::{self, Launched, Ran};
use super::{Channels, Plan, agree, pixels};
use crate::image::convert::{AsImage, AsImageMut};
use crate::image::stored::{StoredView, StoredViewMut};
use crate::mask::{Coverage, Known, Mask, Nan};
use crate::progress::Stage;
use crate::{Border, Device, Error, Result, Scalar, cpu};

/// How many times as long as others sums over known pixels take, about.
const MASKED: f64 = 2.0;

impl Channels {
    /// How many channels are filtered over known pixels.
    ///
    /// # Errors
    /// [`Error::Parameter`] if alpha is to weigh the colours.
    pub(super) fn of_known(self) -> Result<usize> {
        let expected =
            "keep, filter, drop or flatten=COLOUR with border none, and with nan ignore or fill";
        match self {
            Self::First(filtered) => Ok(filtered),
            Self::Weighted => Err(Error::Parameter {
                name: "alpha",
                value: "premultiply, which auto is for averages".to_owned(),
                expected: expected.to_owned(),
            }),
        }
    }
}

impl Plan {
    /// As [`Plan::run`], from the pixels that the mask knows: normalised convolution.
    ///
    /// With taps `w`, a mask `m` and pixels `p`, a result is `sum(w m p) / sum(w m)`, times the sum
    /// of the taps, if the taps sum to 1 within 1e-6. Of other taps, such as derivatives, it is
    /// `sum(w m p)`. Where no pixel under the window is known, it is [`PlanBuilder::unknown`]. A
    /// pixel that weighs 0 does not count, whatever it holds. NaN is unknown under
    /// [`PlanBuilder::nan`], and what lies outside the image under [`Border::None`].
    ///
    /// [`PlanBuilder::unknown`]: crate::PlanBuilder::unknown
    /// [`PlanBuilder::nan`]: crate::PlanBuilder::nan
    ///
    /// ```
    /// use apron::{Border, Device, Filter, Image, Nan, Plan};
    ///
    /// let mean = Filter::box_filter(3, 1)?;
    /// let plan = Plan::builder(&mean).border(Border::None).device(Device::Cpu).build()?;
    /// let src = Image::from_vec(vec![10u8, 99, 20, 40], 4, 1, 1)?;
    /// let mask = Image::from_vec(vec![255u8, 0, 255, 255], 4, 1, 1)?;
    /// let mut dst = Image::<u8>::zeroed(4, 1, 1)?;
    /// plan.run_masked(&src, &mask, &mut dst)?;
    /// assert_eq!(dst.as_slice(), [10, 15, 30, 30]);
    ///
    /// // NaN as a mask: `run` is enough.
    /// let plan = Plan::builder(&mean).nan(Nan::Fill).device(Device::Cpu).build()?;
    /// let src = Image::from_vec(vec![1.0, f32::NAN, 3.0, 9.0], 4, 1, 1)?;
    /// assert_eq!(plan.filter(&src)?.as_slice(), [1.0, 2.0, 3.0, 9.0]);
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// u8 results of u8 images under u8 masks are exact over the taps of
    /// [`Filter::form`](crate::Filter::form), rounded half to even, and the plain filter's bytes
    /// where all is known. All other sums are in f32, in the order of the plain filter, and their
    /// quotient is rounded once. So where every pixel under the window weighs 1, results have the
    /// plain filter's bits. Filters that run as spectra have their error on the CPU, times up to
    /// 16; on a GPU they are summed tap by tap.
    ///
    /// A plan for [`Device::Auto`] uses the CPU here, one for several GPUs the first of them.
    ///
    /// `Filter::flipped` makes results equal those of `astropy.convolution.convolve`, within
    /// rounding, but: astropy divides taps by their sum, and always normalises; it takes windows
    /// of odd sizes; and where all taps of known pixels cancel, it returns the pixel.
    ///
    /// # Errors
    /// As [`Plan::run`]; [`Error::Parameter`] if the mask has another size or a weight that is
    /// negative or not finite, and for a gradient.
    pub fn run_masked<'m, S: AsImage + ?Sized, D: AsImageMut + ?Sized>(
        &self,
        src: &S,
        mask: impl Into<Mask<'m>>,
        dst: &mut D,
    ) -> Result<()> {
        self.run_masked_with(src, mask, dst, Coverage::default())
    }

    /// As [`Plan::run_masked`], which also writes how much is known of each result.
    ///
    /// ```
    /// use apron::{Border, Coverage, Device, Filter, Image, Mask, Plan};
    ///
    /// let plan = Plan::builder(Filter::box_filter(3, 1)?).border(Border::None);
    /// let plan = plan.device(Device::Cpu).build()?;
    /// let src = Image::from_vec(vec![1.0f32, 2.0, 3.0], 3, 1, 1)?;
    /// let (mut dst, mut weights) = (Image::<f32>::zeroed(3, 1, 1)?, Image::zeroed(3, 1, 1)?);
    /// let coverage = Coverage { weights: Some(weights.view_mut()), known: None };
    /// plan.run_masked_with(&src, Mask::All, &mut dst, coverage)?;
    /// assert_eq!(dst.as_slice(), [1.5, 2.0, 2.5]);
    /// assert!((weights.as_slice()[0] - 2.0 / 3.0).abs() < 1e-6);
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Plan::run_masked`]; [`Error::Mismatch`] if an image of the coverage has another shape.
    pub fn run_masked_with<'m, S: AsImage + ?Sized, D: AsImageMut + ?Sized>(
        &self,
        src: &S,
        mask: impl Into<Mask<'m>>,
        dst: &mut D,
        mut coverage: Coverage<'_>,
    ) -> Result<()> {
        let (src, mask) = (src.as_image()?, mask.into());
        let mut dst = dst.as_image_mut()?;
        let shape = src.shape();
        agree(shape, dst.shape())?;
        mask.check(shape)?;
        coverage.check(shape)?;
        let mut dst = dst.reborrow().into();
        self.run_known(&src.into(), &mask, &mut dst, &mut coverage)
    }

    /// Filters known pixels: on the CPU, unless the plan was built for a GPU.
    fn run_known(
        &self,
        src: &StoredView<'_>,
        mask: &Mask<'_>,
        dst: &mut StoredViewMut<'_>,
        coverage: &mut Coverage<'_>,
    ) -> Result<()> {
        let kinds = (src.scalar(), dst.scalar());
        self.check_kinds(kinds)?;
        self.check_masked()?;
        let shape = src.shape();
        let (call, launched) = (self.report.call(pixels(shape)), Launched::default());
        match self.on(Where::Cpu)? {
            On::Cpu(engine) => {
                let channels = Channels::First(shape.channels);
                // Of sums in f32, the filter decides the family.
                let is_asked = coverage.weights.is_some() || coverage.known.is_some();
                let is_exact = !is_asked && !matches!(mask, Mask::Weights(_));
                let summed = if is_exact { kinds } else { (Scalar::F32, kinds.1) };
                let family = self.family_on_cpu(engine, shape, shape.channels, summed)?;
                let stage = call.stage(0, pixels(shape));
                let effort = self.effort(family, channels, shape, kinds);
                let stage = stage.on(effort.threads_now());
                let to = (dst, shape.channels);
                engine.run_masked(family, &self.known(*mask), src, to, coverage, &stage)?;
            }
            #[cfg(feature = "gpu")]
            On::Gpu(gpus) => {
                let reach = |rows: usize| call.reach((rows * shape.width) as u64);
                self.run_known_on_gpu(gpus, (src, mask), dst, coverage, reach)?;
            }
        }
        launched.note(Ran::Masked);
        let place = if self.device == Device::Auto { Some(Device::Cpu) } else { None };
        ran::keep(place, [(self.number, &launched)].into_iter());
        call.reach(pixels(shape))
    }

    /// What a call with this mask knows.
    pub(super) fn known<'m>(&self, mask: Mask<'m>) -> Known<'m> {
        Known { mask, unknown: self.unknown, border: self.border }
    }

    /// Whether pixels of this type, or what lies outside them, may be unknown without a mask.
    pub(crate) fn is_masked(&self, source: Scalar) -> bool {
        let has_nan = source.greatest().is_none();
        self.border == Border::None || self.unknown.nan != Nan::Spread && has_nan
    }

    /// # Errors
    /// [`Error::Parameter`] for a gradient, and as [`Plan::check_is_plain`].
    pub(super) fn check_masked(&self) -> Result<()> {
        if let Some(gradient) = self.gradient {
            return Err(super::builder::no_gradient(gradient));
        }
        self.check_is_plain()
    }

    /// Filters what is known without a mask, as a stage of a call.
    pub(super) fn run_known_on_cpu(
        &self,
        engine: &cpu::Engine,
        family: crate::Family,
        channels: Channels,
        src: &StoredView<'_>,
        dst: &mut StoredViewMut<'_>,
        stage: &Stage<'_>,
    ) -> Result<Ran> {
        let filtered = channels.of_known()?;
        let known = self.known(Mask::All);
        let to = (dst, filtered);
        engine.run_masked(family, &known, src, to, &mut Coverage::default(), stage)?;
        Ok(Ran::Masked)
    }

    /// How many times as long sums take because pixels of this type may be unknown.
    pub(super) fn times_masked(&self, source: Scalar) -> f64 {
        if self.is_masked(source) { MASKED } else { 1.0 }
    }
}
