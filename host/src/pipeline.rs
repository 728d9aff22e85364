//! A chain of plans.

#[cfg(feature = "gpu")]
use crate::gpu::flow::{self, Picture};
use crate::image::stored::{StoredView, StoredViewMut};
use crate::image::{Image, ImageView, ImageViewMut, Pixel, Scalar, Shape};
use crate::plan::auto::Where;
#[cfg(feature = "gpu")]
use crate::plan::engines::On;
use crate::plan::place::{CallSize, run};
use crate::plan::ran::Launched;
use crate::plan::{Channels, agree, pixels};
use crate::{Alpha, Device, Error, Extra, Plan, Result, with_pixels};

/// A chain of plans: each filters the results of the plan before it. Each may have its own border
/// and variant.
///
/// The results are those of the plans run one by one. Between two steps, values are rounded to the
/// source's type, unless [`Pipeline::in_f32`] keeps them in f32. The results of the last step are
/// rounded to the destination's type.
///
/// On a GPU, all steps run in device memory: the image is uploaded once and downloaded once, in
/// bands if it is large. If device memory is too small for that, or under
/// [`Border::Wrap`](crate::Border::Wrap), which needs rows of both ends, all steps take the whole
/// image, or the steps run one by one.
///
/// Progress goes to the [`progress`](crate::PlanBuilder::progress) function of the last plan.
///
/// ```
/// use apron::{Device, Filter, Gradient, Image, Pipeline, Plan};
///
/// let blur = Plan::builder(Filter::gaussian(1.5)?).device(Device::Cpu).build()?;
/// let edges = Plan::builder(Gradient::sobel()).device(Device::Cpu).build()?;
/// let pipeline = Pipeline::new(vec![blur, edges])?;
///
/// let pixels = (0..64 * 48).map(|i| if i % 64 < 32 { 50u8 } else { 90 }).collect();
/// let src = Image::from_vec(pixels, 64, 48, 1)?;
/// let mut dst = Image::<u8>::zeroed(64, 48, 1)?;
/// pipeline.run(&src.view(), &mut dst.view_mut())?;
///
/// let [blur, edges] = pipeline.plans() else { unreachable!() };
/// let blurred: Image<u8> = blur.filter(&src.view())?;
/// assert_eq!(dst, edges.filter(&blurred.view())?);
/// # Ok::<(), apron::Error>(())
/// ```
#[derive(Debug)]
pub struct Pipeline {
    plans: Vec<Plan>,
    in_f32: bool,
}

impl Pipeline {
    /// A pipeline of these plans, in order.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there are no plans, or if they run on different devices.
    pub fn new(plans: Vec<Plan>) -> Result<Self> {
        let Some(first) = plans.first() else {
            let expected = "at least 1".to_owned();
            return Err(Error::Parameter {
                name: "the number of steps",
                value: "0".into(),
                expected,
            });
        };
        if let Some(other) = plans.iter().find(|plan| plan.device() != first.device()) {
            let value = format!("{} and {}", first.device(), other.device());
            let expected = "the same for all steps of a pipeline".to_owned();
            return Err(Error::Parameter { name: "device", value, expected });
        }
        Ok(Self { plans, in_f32: false })
    }

    /// Sets whether values stay in f32 between two steps, instead of the source's type. With
    /// `true`, integers are rounded once, at the end.
    ///
    /// ```
    /// use apron::{Device, Filter, Image, Pipeline, Plan};
    ///
    /// // An eighth of a byte is lost where the step in between is rounded.
    /// let scaled =
    ///     |tap| Plan::builder(Filter::from_taps(1, 1, &[tap])?).device(Device::Cpu).build();
    /// let pipeline = Pipeline::new(vec![scaled(0.125)?, scaled(8.0)?])?;
    /// let src = Image::from_vec(vec![100u8; 6], 3, 2, 1)?;
    /// let mut dst = Image::<u8>::zeroed(3, 2, 1)?;
    /// pipeline.run(&src.view(), &mut dst.view_mut())?;
    /// assert_eq!(dst.as_slice()[0], 96);
    /// pipeline.in_f32(true).run(&src.view(), &mut dst.view_mut())?;
    /// assert_eq!(dst.as_slice()[0], 100);
    /// # Ok::<(), apron::Error>(())
    /// ```
    #[must_use]
    pub fn in_f32(self, in_f32: bool) -> Self {
        Self { in_f32, ..self }
    }

    /// The plans, in order.
    pub fn plans(&self) -> &[Plan] {
        &self.plans
    }

    /// The device of the pipeline: see [`Plan::device`]. With [`Device::Auto`], all steps of a call
    /// run on the same device.
    pub fn device(&self) -> Device {
        self.plans[0].device()
    }

    /// Filters `src` into `dst`, every channel.
    ///
    /// # Errors
    /// As [`Plan::run`].
    pub fn run<S: Pixel, D: Pixel>(
        &self,
        src: &ImageView<'_, S>,
        dst: &mut ImageViewMut<'_, D>,
    ) -> Result<()> {
        self.run_channels(src, dst, src.shape().channels)
    }

    /// As [`Pipeline::run`], for the first `filtered` channels. The other channels, such as alpha,
    /// are copied.
    ///
    /// # Errors
    /// As [`Plan::run_channels`].
    pub fn run_channels<S: Pixel, D: Pixel>(
        &self,
        src: &ImageView<'_, S>,
        dst: &mut ImageViewMut<'_, D>,
        filtered: usize,
    ) -> Result<()> {
        if !(1..=src.shape().channels).contains(&filtered) {
            // `run_channels` returns the error.
            return self.plans[0].run_channels(src, dst, filtered);
        }
        self.run_as(
            &vec![Channels::First(filtered); self.plans.len()],
            (*src).into(),
            dst.reborrow().into(),
        )
    }

    /// As [`Pipeline::run`], for an image whose last channel is alpha. The destination has
    /// [`Alpha::channels`] channels.
    ///
    /// ```
    /// use apron::{Alpha, Device, Filter, Image, Pipeline, Plan};
    ///
    /// // White beside transparent black: what is transparent has no part in the colour.
    /// let plan = Plan::builder(Filter::box_filter(3, 1)?).device(Device::Cpu).build()?;
    /// let pipeline = Pipeline::new(vec![plan])?;
    /// let src = Image::from_vec(vec![255u8, 255, 255, 255, 0, 0, 0, 0], 4, 1, 2)?;
    /// let mut dst = Image::<u8>::zeroed(4, 1, 2)?;
    /// pipeline.run_with_alpha(&src.view(), &mut dst.view_mut(), Alpha::Premultiply)?;
    /// assert_eq!(dst.as_slice(), [255, 255, 255, 170, 255, 85, 0, 0]);
    ///
    /// let mut flat = Image::<u8>::zeroed(4, 1, 1)?;
    /// pipeline.run_with_alpha(&src.view(), &mut flat.view_mut(), "flatten=grey".parse()?)?;
    /// assert_eq!(flat.as_slice(), [255, 213, 170, 128]);
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Plan::run`]; [`Error::Parameter`] if the image has a single channel, or under
    /// [`Alpha::Premultiply`] if a step is not an average.
    pub fn run_with_alpha<S: Pixel, D: Pixel>(
        &self,
        src: &ImageView<'_, S>,
        dst: &mut ImageViewMut<'_, D>,
        alpha: Alpha,
    ) -> Result<()> {
        self.run_with_extra(src, dst, Extra::Straight, alpha)
    }

    /// As [`Pipeline::run_with_alpha`], for an image whose last channel is `extra`.
    /// [`Alpha::of_result`] gives the last channel of the result.
    ///
    /// ```
    /// use apron::{Alpha, Device, Extra, Filter, Image, Pipeline, Plan};
    ///
    /// // A glow shines and covers nothing: colours that are multiplied by alpha can hold it.
    /// let plan = Plan::builder(Filter::box_filter(3, 1)?).device(Device::Cpu).build()?;
    /// let pipeline = Pipeline::new(vec![plan])?;
    /// let src = Image::from_vec(vec![0.0f32, 0.0, 0.75, 0.0, 0.0, 0.0], 3, 1, 2)?;
    /// let mut dst = Image::<f32>::zeroed(3, 1, 2)?;
    /// let extra = Extra::Premultiplied;
    /// pipeline.run_with_extra(&src.view(), &mut dst.view_mut(), extra, Alpha::Auto)?;
    /// assert_eq!(dst.as_slice(), [0.5, 0.0, 0.25, 0.0, 0.5, 0.0]);
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Pipeline::run_with_alpha`].
    pub fn run_with_extra<S: Pixel, D: Pixel>(
        &self,
        src: &ImageView<'_, S>,
        dst: &mut ImageViewMut<'_, D>,
        extra: Extra,
        alpha: Alpha,
    ) -> Result<()> {
        let channels = src.shape().channels;
        check_alpha(channels)?;
        if alpha.takes_alpha_away() {
            return self.run(&alpha.apart(src, extra)?.view(), dst);
        }
        let alpha = alpha.for_kind(extra);
        let of_plans: Result<Vec<_>> =
            self.plans.iter().map(|plan| alpha.channels_of(plan, channels)).collect();
        self.run_as(&of_plans?, (*src).into(), dst.reborrow().into())
    }

    fn run_as(
        &self,
        channels: &[Channels],
        src: StoredView<'_>,
        mut dst: StoredViewMut<'_>,
    ) -> Result<()> {
        agree(src.shape(), dst.shape())?;
        let kinds = (src.scalar(), dst.scalar());
        self.check_white(kinds)?;
        let between = if self.in_f32 { Scalar::F32 } else { kinds.0 };
        let job = CallSize::of(kinds, &[(src.is_pinned(), dst.is_pinned(), src.shape())])
            .between(between);
        let plans: Vec<_> = self.plans.iter().zip(channels.iter().copied()).collect();
        run(
            &plans,
            &job,
            |place, launched| with_pixels!(between, M => self.run_at::<M>((place, launched), channels, src, &mut dst)),
        )
    }

    /// # Errors
    /// [`Error::Parameter`] if steps would take another value for white than the pictures have.
    fn check_white(&self, (source, target): (Scalar, Scalar)) -> Result<()> {
        let is_light = self.plans.iter().any(Plan::is_light);
        let integers = source.greatest().or(target.greatest()).is_some();
        if !(is_light && self.in_f32 && integers && self.plans.len() > 1) {
            return Ok(());
        }
        Err(Error::Parameter {
            name: "values between steps",
            value: "f32".to_owned(),
            expected: "the pictures' type for integers in linear light: leave in_f32 out"
                .to_owned(),
        })
    }

    /// Runs the plans on the CPU or on GPUs, with values of type M between them.
    fn run_at<M: Pixel>(
        &self,
        (place, launched): (Where, &[Launched]),
        channels: &[Channels],
        src: StoredView<'_>,
        dst: &mut StoredViewMut<'_>,
    ) -> Result<()> {
        let last = self.plans.len() - 1;
        #[cfg(feature = "gpu")]
        if place == Where::Gpu && last > 0 && filter_as_many(channels) {
            match self.flow((channels, launched), src, M::SCALAR, dst.reborrow()) {
                // Steps that run one by one need less memory.
                Err(Error::DeviceMemory { .. } | Error::Parameter { name: "memory", .. }) => {}
                outcome => return outcome,
            }
        }
        let Shape { width, height, channels: count } = src.shape();
        let pixels = pixels(src.shape());
        let mut between: Option<Image<M>> = None;
        for ((plan, &of_plan), launched) in self.plans.iter().zip(channels).zip(launched).take(last)
        {
            let mut next = Image::zeroed(width, height, count)?;
            let from = between.as_ref().map_or(src, |before| before.view().into());
            plan.run_at(
                (place, launched),
                of_plan,
                &from,
                &mut next.view_mut().into(),
                &plan.report.call(pixels),
            )?;
            between = Some(next);
        }
        let (plan, of_plan) = (&self.plans[last], channels[last]);
        let from = between.as_ref().map_or(src, |before| before.view().into());
        plan.run_at((place, &launched[last]), of_plan, &from, dst, &plan.report.call(pixels))
    }

    /// Runs the plans on their GPUs, one after the other in device memory.
    #[cfg(feature = "gpu")]
    fn flow(
        &self,
        (channels, launched): (&[Channels], &[Launched]),
        src: StoredView<'_>,
        between: Scalar,
        dst: StoredViewMut<'_>,
    ) -> Result<()> {
        let last = self.plans.len() - 1;
        let steps = self.plans.iter().zip(channels).zip(launched).enumerate();
        let steps = steps.map(|(number, ((plan, &channels), launched))| {
            let target = if number == last { dst.scalar() } else { between };
            plan.check_kinds((if number == 0 { src.scalar() } else { between }, target))?;
            match plan.on(Where::Gpu)? {
                On::Gpu(gpus) => Ok(plan.step_on((gpus, launched), channels, target, None)),
                On::Cpu(_) => Err(crate::plan::on_cpu()),
            }
        });
        let steps: Vec<_> = steps.collect::<Result<_>>()?;
        // All steps that do not weight colours by alpha filter the same number of channels: see
        // `filter_as_many`.
        let filtered = channels.iter().map(|channels| channels.filtered()).max().unwrap_or(1);
        let pixels = pixels(src.shape());
        let picture = Picture::new(src, dst, filtered);
        let call = self.plans[last].report.call(pixels);
        let On::Gpu(first) = self.plans[0].on(Where::Gpu)? else {
            return Err(crate::plan::on_cpu());
        };
        let stage = call.stage(0, pixels);
        flow::run((&steps, &first.idle), &mut [picture], &stage).map_err(|(_, error)| error)?;
        call.reach(pixels)
    }
}

/// Whether all steps filter the same number of channels; steps that weight colours by alpha may
/// differ. Such steps can follow each other in GPU memory.
#[cfg(feature = "gpu")]
fn filter_as_many(steps: &[Channels]) -> bool {
    let mut counts = steps.iter().filter_map(|step| match step {
        Channels::First(count) => Some(count),
        Channels::Weighted => None,
    });
    let first = counts.next();
    counts.all(|count| Some(count) == first)
}

/// # Errors
/// [`Error::Parameter`] if `channels` is below 2, so that the last channel cannot be alpha.
pub(crate) fn check_alpha(channels: usize) -> Result<()> {
    if channels >= 2 {
        return Ok(());
    }
    let expected = "at least 2, of which the last is alpha".to_owned();
    Err(Error::Parameter { name: "the number of channels", value: channels.to_string(), expected })
}
