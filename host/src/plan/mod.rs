//! Plans: a filter ready to run on a device, with its taps there and its scratch memory reused.

mod alpha;
#[cfg_attr(not(feature = "gpu"), allow(dead_code, reason = "there is no GPU to choose"))]
pub(crate) mod auto;
pub(crate) mod choose;
mod device;
mod double;
mod family;
mod place;
mod processor;
#[cfg_attr(
    not(feature = "gpu"),
    allow(dead_code, reason = "colours are weighted on the CPU alone")
)]
pub(crate) mod ran;
#[cfg_attr(not(feature = "gpu"), allow(dead_code, reason = "the CPU has the whole image"))]
pub(crate) mod schedule;
mod step;
mod streamed;

use std::ops::ControlFlow;
use std::sync::OnceLock;

use crate::problem::machine::Machine;
use crate::problem::{Place, Problem};
use auto::Where;
pub use auto::{ReckonedGpu, Reckoning, Work};
pub use choose::Candidate;
pub use device::{Device, Gpus};
#[cfg(feature = "gpu")]
use gpu_kernels::abi::Epilogue;
#[cfg(feature = "gpu")]
use place::OnGpus;
pub(crate) use place::{Job, On, run};
use ran::Launched;
pub use ran::Ran;
#[cfg(feature = "gpu")]
#[doc(hidden)]
pub use schedule::FlowOptions;
use schedule::Limits;
pub use step::Step;
pub use streamed::{RowSink, RowSource};

use crate::cpu;
#[cfg(feature = "gpu")]
use crate::gpu::engine::Part;
#[cfg(feature = "gpu")]
use crate::gpu::flow::{self, Picture};
#[cfg(feature = "gpu")]
use crate::gpu::{DeviceImage, DeviceView, DeviceViewMut, Recorded, Stream};
use crate::image::stored::{StoredView, StoredViewMut};
use crate::image::{AsImage, AsImageMut, Image, ImageView, ImageViewMut, Pixel, Scalar, Shape};
#[cfg(feature = "gpu")]
use crate::kernels::prepared::Prepared;
use crate::problem::Numbers;
use crate::problem::rounding::Rounding;
use crate::progress::{Call, Progress, Report, Stage};
use crate::spectrum::folded::LeftOut;
use crate::{Border, Error, Family, Filter, Gradient, Result, Variant, Why};

/// A filter or a gradient with a border, a device and, optionally, a variant. Reusable for images
/// of any size, from any thread.
///
/// A plan is `Send` and `Sync`, and `run` takes it by shared reference. A plan's data is either set
/// once (the filter, the taps on the device, spectra, each behind a `OnceLock`) or belongs to one
/// run at a time. On the CPU, each run allocates its own scratch memory. On a GPU, each run takes
/// lanes (a stream, memory for a band of an image, scratch) from a list that the plan keeps, and
/// puts them back at the end, so the runs of several threads overlap, and none sees another's
/// pixels. A panic cannot leave these lists half changed, so a poisoned lock is used as it is.
///
/// ```
/// use apron::{Border, Device, Filter, Image, Plan};
///
/// let filter = Filter::gaussian(2.0)?;
/// let plan = Plan::builder(&filter).border(Border::Reflect101).device(Device::Cpu).build()?;
/// let src = Image::from_vec(vec![7u8; 640 * 480], 640, 480, 1)?;
/// let mut dst = Image::<u8>::zeroed(640, 480, 1)?;
/// plan.run(&src.view(), &mut dst.view_mut())?;
/// assert_eq!(dst, src);
/// # Ok::<(), apron::Error>(())
/// ```
#[derive(Debug)]
pub struct Plan {
    /// No other plan has it.
    number: u64,
    /// Of a gradient, its window.
    filter: Filter,
    gradient: Option<Gradient>,
    border: Border,
    variant: Option<Variant>,
    device: Device,
    fallback: Option<Error>,
    engine: Engine,
    /// What it takes to round bytes, once a time was predicted.
    rounding: OnceLock<Rounding>,
    pub(crate) report: Report,
    /// See [`PlanBuilder::band_rows`].
    rows: Option<usize>,
}

#[derive(Debug)]
enum Engine {
    Cpu(Box<cpu::Engine>),
    #[cfg(feature = "gpu")]
    Gpu(OnGpus),
    /// The CPU or the first GPU, as each call is faster.
    #[cfg(feature = "gpu")]
    Auto(Box<place::Auto>),
}

/// Collects the settings of a [`Plan`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct PlanBuilder {
    step: Step,
    border: Border,
    device: Device,
    variant: Option<Variant>,
    autotune: bool,
    limits: Limits,
    report: Report,
    cpu_times: f64,
}

impl PlanBuilder {
    /// The rule for pixels outside the image; [`Border::Reflect101`] unless set.
    pub fn border(mut self, border: Border) -> Self {
        self.border = border;
        self
    }

    /// Where to run; [`Device::Auto`] unless set.
    pub fn device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// Which variant to run. Unless set, the fastest of the filter's [`Family`] is chosen for each
    /// image's size.
    pub fn variant(mut self, variant: impl Into<Option<Variant>>) -> Self {
        self.variant = variant.into();
        self
    }

    /// Whether to measure, for each new shape of image on a GPU, which variant is fastest there,
    /// instead of using the table that comes with apron. The first image of a shape then takes some
    /// milliseconds longer; results are kept in the user's cache folder (`APRON_CACHE` names
    /// another), for this build, GPU and driver. On the CPU nothing is measured.
    pub fn autotune(mut self, autotune: bool) -> Self {
        self.autotune = autotune;
        self
    }

    /// The most bytes of a GPU's memory that a run takes for pictures and scratch; what is free
    /// unless set. A picture that needs more is filtered in bands, as one that needs more than
    /// there is. Taps and kernels, which a plan keeps, are not counted.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.limits.memory = bytes;
        self
    }

    /// What to call while [`Plan::run`], [`Plan::run_channels`], [`Plan::run_batch`] or
    /// [`Plan::run_streamed`] is under way, after every few rows, with how far that call has come.
    /// [`std::ops::ControlFlow::Break`] ends the call with [`Error::Cancelled`]. Numbers of one
    /// call never fall; they may come from any thread, one after the other.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// use apron::{Device, Error, Filter, Image, Plan};
    ///
    /// static DONE: AtomicU64 = AtomicU64::new(0);
    /// let filter = Filter::gaussian(2.0)?;
    /// let told = |progress: apron::Progress| {
    ///     DONE.store(progress.done, Ordering::Relaxed);
    ///     ControlFlow::Continue(())
    /// };
    /// let plan = Plan::builder(&filter).device(Device::Cpu).progress(told).build()?;
    /// let (src, mut dst) = (Image::<u8>::zeroed(640, 480, 1)?, Image::<u8>::zeroed(640, 480, 1)?);
    /// plan.run(&src.view(), &mut dst.view_mut())?;
    /// assert_eq!(DONE.load(Ordering::Relaxed), 640 * 480);
    ///
    /// let never = Plan::builder(&filter).device(Device::Cpu).progress(|_| ControlFlow::Break(())).build()?;
    /// assert!(matches!(never.run(&src.view(), &mut dst.view_mut()), Err(Error::Cancelled { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn progress(
        mut self,
        report: impl Fn(Progress) -> ControlFlow<()> + Send + Sync + 'static,
    ) -> Self {
        self.report = Report::new(report);
        self
    }

    /// How many rows of results a band has, but for memory: chosen by size unless set; of streamed
    /// pictures, a chunk has several bands. For tests and the benchmark.
    #[doc(hidden)]
    pub fn band_rows(mut self, rows: usize) -> Self {
        self.limits.rows = Some(rows);
        self
    }

    /// How bands go through GPUs. For tests and the benchmark.
    #[cfg(feature = "gpu")]
    #[doc(hidden)]
    pub fn flow(mut self, options: FlowOptions) -> Self {
        self.limits.flow = options;
        self
    }

    /// By how much the CPU is to seem slower than it is, to a plan on [`Device::Auto`]. For tests.
    #[doc(hidden)]
    pub fn cpu_times(mut self, factor: f64) -> Self {
        self.cpu_times = factor;
        self
    }

    /// Opens the device, unless it is [`Device::Auto`], where the first call that is worth it does.
    ///
    /// # Errors
    /// [`Error::NoGpu`] or [`Error::NoSuchGpu`] if [`Device::Gpu`] was set and that GPU cannot be
    /// used, [`Error::Unsupported`] if the variant can never run this filter.
    pub fn build(self) -> Result<Plan> {
        let (filter, gradient) = self.step.clone().parts()?;
        if let Some(variant) = self.variant {
            // What are known to be sums of such filters are added up.
            let passes = filter.is_separable() || filter.sum().is_some();
            let reason = match gradient {
                Some(gradient) => Some(format!("{gradient} is a gradient, which has one kernel")),
                None if variant.family() == Family::Separable && !passes => {
                    Some(Why::NOT_SEPARABLE.to_string())
                }
                None => None,
            };
            if let Some(reason) = reason {
                return Err(Error::Unsupported { variant: variant.name(), reason });
            }
        }
        let on_cpu = || cpu::Engine::new(&filter, self.border).map(Box::new);
        let on_gpus =
            |ordinals: &mut dyn Iterator<Item = u32>| self.gpus((&filter, gradient), ordinals);
        let (engine, device, fallback) = match self.device {
            Device::Cpu => (Engine::Cpu(on_cpu()?), Device::Cpu, None),
            Device::Gpu(ordinal) => {
                (on_gpus(&mut (ordinal..ordinal.saturating_add(1)))?, self.device, None)
            }
            Device::Gpus(gpus) => (on_gpus(&mut gpus.ordinals())?, self.device, None),
            Device::AllGpus => (on_gpus(&mut (0..gpu_count()?))?, self.device, None),
            Device::Auto => match self.auto(on_cpu()?) {
                Ok(engine) => (engine, Device::Auto, None),
                Err((cpu, reason)) => (Engine::Cpu(cpu), Device::Cpu, Some(reason)),
            },
        };
        Ok(Plan {
            number: ran::number(),
            filter,
            gradient,
            border: self.border,
            variant: self.variant,
            device,
            fallback,
            engine,
            rounding: OnceLock::new(),
            report: self.report,
            rows: self.limits.rows,
        })
    }

    #[cfg(feature = "gpu")]
    fn gpus(
        &self,
        step: (&Filter, Option<Gradient>),
        ordinals: &mut dyn Iterator<Item = u32>,
    ) -> Result<Engine> {
        OnGpus::new(step, self.border, (&self.limits, self.autotune), self.device, ordinals)
            .map(Engine::Gpu)
    }

    #[cfg(not(feature = "gpu"))]
    fn gpus(
        &self,
        _: (&Filter, Option<Gradient>),
        _: &mut dyn Iterator<Item = u32>,
    ) -> Result<Engine> {
        Err(Error::NoGpu { reason: WITHOUT.into() })
    }

    /// Both devices, unless there is no driver.
    #[cfg(feature = "gpu")]
    fn auto(&self, cpu: Box<cpu::Engine>) -> Result<Engine, (Box<cpu::Engine>, Error)> {
        match crate::gpu::Gpu::driver() {
            Ok(()) => Ok(Engine::Auto(Box::new(place::Auto::new(
                *cpu,
                (self.limits.clone(), self.autotune),
                self.cpu_times,
            )))),
            Err(reason) => Err((cpu, reason)),
        }
    }

    #[cfg(not(feature = "gpu"))]
    fn auto(&self, cpu: Box<cpu::Engine>) -> Result<Engine, (Box<cpu::Engine>, Error)> {
        Err((cpu, Error::NoGpu { reason: WITHOUT.into() }))
    }
}

#[cfg(feature = "gpu")]
fn gpu_count() -> Result<u32> {
    crate::gpu::Gpu::count()
}

#[cfg(not(feature = "gpu"))]
const WITHOUT: &str = "this build has no GPU support (feature \"gpu\")";

#[cfg(not(feature = "gpu"))]
fn gpu_count() -> Result<u32> {
    Err(Error::NoGpu { reason: WITHOUT.into() })
}

impl Plan {
    /// Starts a plan for a [`Filter`] (or a reference to one), a [`Gradient`] or a [`Step`].
    pub fn builder(step: impl Into<Step>) -> PlanBuilder {
        PlanBuilder {
            step: step.into(),
            border: Border::default(),
            device: Device::default(),
            variant: None,
            autotune: false,
            limits: Limits::default(),
            report: Report::default(),
            cpu_times: 1.0,
        }
    }

    /// The device that the plan runs on: [`Device::Auto`] if each call chooses between the CPU and
    /// the first GPU. A plan for [`Device::Auto`] that has no GPU to choose runs on
    /// [`Device::Cpu`], and [`Plan::fallback`] says why.
    pub fn device(&self) -> Device {
        if self.device == Device::Auto && self.fallback().is_some() {
            Device::Cpu
        } else {
            self.device
        }
    }

    /// Whether results are averages of pixels: see [`Filter::is_average`].
    pub(crate) fn is_average(&self) -> bool {
        self.gradient.is_none() && self.filter.is_average()
    }

    /// Why [`Device::Auto`] became the CPU, if it did: there is no driver; or the GPU could not be
    /// opened when that was worth it, or was lost in an earlier call of this process.
    pub fn fallback(&self) -> Option<&Error> {
        match &self.engine {
            #[cfg(feature = "gpu")]
            Engine::Auto(_) => crate::gpu::opening::failure(),
            _ => self.fallback.as_ref(),
        }
    }

    /// The variant that an image of this shape runs; with [`Device::Auto`], on the device of this
    /// thread's last call: see [`Plan::ran_on`].
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the plan was built for a variant that cannot run it;
    /// [`Error::Parameter`] for a gradient, which has none.
    pub fn variant_for(&self, shape: Shape) -> Result<Variant> {
        let scalar = if self.variant.is_some_and(Variant::takes_bytes_alone) {
            Scalar::U8
        } else {
            Scalar::F32
        };
        self.variant_of(shape, scalar, scalar)
    }

    /// As [`Plan::variant_for`], for pixels and results of these types.
    ///
    /// # Errors
    /// As [`Plan::variant_for`].
    pub fn variant_of(&self, shape: Shape, source: Scalar, target: Scalar) -> Result<Variant> {
        self.variant_on(self.usual()?, shape, shape.channels, (source, target))
    }

    /// The variant for a picture of which so many channels are filtered.
    fn variant_on(
        &self,
        on: On<'_>,
        shape: Shape,
        filtered: usize,
        kinds: (Scalar, Scalar),
    ) -> Result<Variant> {
        let place = on.place();
        let problem = self.problem_for(shape, filtered, kinds, place);
        let variant = match on {
            _ if self.gradient.is_some() => None,
            On::Cpu(_) => Some(match self.variant {
                Some(variant) => problem.check_on_cpu(variant)?,
                None => problem.choose_on_cpu(),
            }),
            #[cfg(feature = "gpu")]
            On::Gpu(gpus) => self.prepare(&problem, gpus, &gpus.engines[0])?.variant(),
        };
        let named = self.gradient.map(|gradient| gradient.to_string());
        let expected = "a filter: a gradient has one kernel, and no variants".to_owned();
        variant.ok_or(Error::Parameter {
            name: "the step",
            value: named.unwrap_or_default(),
            expected,
        })
    }

    /// The order in which the CPU sums a picture of this shape, of which so many channels are
    /// filtered.
    fn family_on_cpu(
        &self,
        engine: &cpu::Engine,
        shape: Shape,
        filtered: usize,
        kinds: (Scalar, Scalar),
    ) -> Result<Family> {
        if self.gradient.is_some() {
            Ok(Family::Direct)
        } else {
            self.variant_on(On::Cpu(engine), shape, filtered, kinds).map(Variant::family)
        }
    }

    /// The kernel that the plan runs for a problem on one of its GPUs.
    #[cfg(feature = "gpu")]
    fn prepare(
        &self,
        problem: &Problem,
        gpus: &OnGpus,
        engine: &crate::gpu::engine::Engine,
    ) -> Result<Prepared> {
        if let Some(gradient) = self.gradient {
            return Ok(crate::kernels::gradient::prepare(problem, gradient.is_angle()));
        }
        match (self.variant, &gpus.tuned) {
            (Some(variant), _) => problem.prepare(variant),
            (None, Some(tuned)) => tuned.fastest(problem, engine),
            (None, None) => problem.choose_kernel(),
        }
    }

    /// Every variant that an image of this shape could run here, the one that would be chosen
    /// first, and those that cannot last, with the reason. A gradient has none. With
    /// [`Device::Auto`], those of the device that [`Plan::ran_on`] names.
    ///
    /// ```
    /// use apron::{Device, Filter, Plan, Shape};
    ///
    /// let plan = Plan::builder(Filter::gaussian(2.0)?).device(Device::Cpu).build()?;
    /// let shape = Shape { width: 640, height: 480, channels: 3 };
    /// assert_eq!(plan.candidates(shape)[0].variant, plan.variant_for(shape)?);
    /// # Ok::<(), apron::Error>(())
    /// ```
    pub fn candidates(&self, shape: Shape) -> Vec<Candidate> {
        self.candidates_for(shape, Scalar::F32, Scalar::F32)
    }

    /// As [`Plan::candidates`], for pixels and results of these types, with what it takes to round
    /// them. Which variant is chosen may depend on the type of the pixels.
    ///
    /// ```
    /// use apron::{Device, Filter, Plan, Scalar, Shape};
    ///
    /// let plan = Plan::builder(Filter::gaussian(2.0)?).device(Device::Cpu).build()?;
    /// let shape = Shape { width: 1920, height: 1080, channels: 3 };
    /// assert!(plan.candidates_for(shape, Scalar::U8, Scalar::U8)[0].predicted.is_some());
    /// # Ok::<(), apron::Error>(())
    /// ```
    pub fn candidates_for(&self, shape: Shape, source: Scalar, target: Scalar) -> Vec<Candidate> {
        let place = self
            .usual()
            .map_or(Place::Cpu { threads: rayon::current_num_threads() }, |on| on.place());
        if self.gradient.is_some() {
            Vec::new()
        } else {
            self.problem_for(shape, shape.channels, (source, target), place).candidates()
        }
    }

    /// As [`Plan::candidates_for`], for an H200, on a machine with or without one.
    pub fn candidates_on_h200(
        &self,
        shape: Shape,
        source: Scalar,
        target: Scalar,
    ) -> Vec<Candidate> {
        let problem =
            self.problem_for(shape, shape.channels, (source, target), Place::Gpu(Machine::H200));
        if self.gradient.is_some() { Vec::new() } else { problem.candidates() }
    }

    /// The filter for bytes made of bytes. Without memory for it, whoever runs the plan says so.
    fn filter_of_bytes(&self) -> &Filter {
        self.filter.of_bytes().map_or(&self.filter, |bytes| &bytes.filter)
    }

    /// The taps as whole numbers, for kernels of a GPU.
    fn numbers(&self, place: Place) -> Numbers {
        if place.is_cpu() { Numbers::default() } else { *self.filter.fact::<Numbers>() }
    }

    fn problem(&self, shape: Shape, place: Place) -> Problem {
        Problem {
            width: shape.width,
            height: shape.height,
            planes: shape.channels,
            cols: self.filter.cols(),
            rows: self.filter.rows(),
            anchor_x: self.filter.anchor().0,
            border: self.border,
            weight: self.filter.weight(),
            point: self.filter_of_bytes().fact::<LeftOut>().point != 0.0,
            separable: self.filter.is_separable(),
            numbers: Numbers::default(),
            source: Scalar::F32,
            target: Scalar::F32,
            side_by_side: 1,
            source_is_aligned: true,
            sum: self.filter.sum().map(|sum| (sum.terms.len(), sum.point != 0.0)),
            rounding: None,
            place,
        }
    }

    /// Filters `src` into `dst`, channel by channel. The stored types may differ: `u8` into `f32`
    /// keeps the sign and the fraction of a derivative. On a GPU, the picture goes in bands of
    /// rows, of which some go up while others are filtered or come down; so it may be larger than
    /// the GPU's memory, and no byte of the result depends on the bands. Source and destination
    /// cannot overlap, by Rust's borrowing rules:
    ///
    /// ```compile_fail,E0502
    /// # use apron::{Filter, Image, Plan};
    /// # let plan = Plan::builder(Filter::gaussian(2.0)?).build()?;
    /// let mut image = Image::<u8>::zeroed(640, 480, 1)?;
    /// plan.run(&image.view(), &mut image.view_mut())?;
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Mismatch`] if sizes differ; [`Error::Unsupported`] as for [`Plan::variant_for`];
    /// memory and driver errors. After an error the contents of `dst` are unspecified.
    pub fn run<S: AsImage + ?Sized, D: AsImageMut + ?Sized>(
        &self,
        src: &S,
        dst: &mut D,
    ) -> Result<()> {
        let src = src.as_image()?;
        self.run_channels(&src, &mut dst.as_image_mut()?, src.shape().channels)
    }

    /// Filters an image into a new one of the same stored type: [`Plan::run`] with a newly
    /// allocated destination.
    ///
    /// ```
    /// use apron::{Device, Filter, Image, ImageView, Plan};
    ///
    /// let plan = Plan::builder(Filter::sobel_x()).device(Device::Cpu).build()?;
    /// let ramp: Vec<f32> = (0..48).map(|i| (i % 8) as f32).collect();
    /// let slope: Image<f32> = plan.filter(&ImageView::new(&ramp, 8, 6, 1)?)?;
    /// assert_eq!(slope.view().row(3)[4], 8.0);
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Plan::run`], and [`Error::HostMemory`] if there is no room for the result.
    #[must_use = "the filtered image is returned, not written back"]
    pub fn filter<S: AsImage + ?Sized>(&self, src: &S) -> Result<Image<S::Value>> {
        let src = src.as_image()?;
        let shape = src.shape();
        let mut dst = Image::zeroed(shape.width, shape.height, shape.channels)?;
        self.run(&src, &mut dst.view_mut())?;
        Ok(dst)
    }

    /// As [`Plan::run`], for the first `filtered` channels; the others, such as alpha, are copied.
    ///
    /// # Errors
    /// As [`Plan::run`]; [`Error::Parameter`] unless `filtered` is from 1 to the number of
    /// channels.
    pub fn run_channels<S: Pixel, D: Pixel>(
        &self,
        src: &ImageView<'_, S>,
        dst: &mut ImageViewMut<'_, D>,
        filtered: usize,
    ) -> Result<()> {
        let shape = src.shape();
        agree(shape, dst.shape())?;
        if !(1..=shape.channels).contains(&filtered) {
            return Err(Error::Parameter {
                name: "filtered",
                value: filtered.to_string(),
                expected: format!("from 1 to the {} channels there are", shape.channels),
            });
        }
        self.run_as(Channels::First(filtered), (*src).into(), dst.reborrow().into())
    }

    /// Filters a picture of the destination's shape.
    fn run_as(
        &self,
        channels: Channels,
        src: StoredView<'_>,
        mut dst: StoredViewMut<'_>,
    ) -> Result<()> {
        let kinds = (src.scalar(), dst.scalar());
        let job = Job::of(kinds, &[(src.is_pinned(), dst.is_pinned(), src.shape())]);
        let call = self.report.call(pixels(src.shape()));
        run(&[(self, channels)], &job, |place, launched| {
            self.run_at((place, &launched[0]), channels, &src, &mut dst, &call)
        })
    }

    /// As [`Plan::run_as`], on the CPU or on the plan's GPUs.
    pub(crate) fn run_at(
        &self,
        (place, launched): (Where, &Launched),
        channels: Channels,
        src: &StoredView<'_>,
        dst: &mut StoredViewMut<'_>,
        call: &Call<'_>,
    ) -> Result<()> {
        self.check_kinds((src.scalar(), dst.scalar()))?;
        let shape = src.shape();
        let stage = call.stage(0, pixels(shape));
        match self.on(place)? {
            On::Cpu(engine) => {
                let family = match channels {
                    Channels::First(filtered) => {
                        let kinds = (src.scalar(), dst.scalar());
                        self.family_on_cpu(engine, shape, filtered, kinds)?
                    }
                    Channels::Weighted => Family::Direct,
                };
                self.run_on_cpu((engine, launched), family, channels, src, dst, stage)?;
            }
            #[cfg(feature = "gpu")]
            On::Gpu(gpus) => {
                let step = self.step_on((gpus, launched), channels, dst.scalar(), None);
                let picture = Picture::new(*src, dst.reborrow(), channels.filtered());
                flow::run((&[step], &gpus.idle), &mut [picture], &stage)
                    .map_err(|(_, error)| error)?;
            }
        }
        call.reach(pixels(shape))
    }

    fn run_on_cpu(
        &self,
        (engine, launched): (&cpu::Engine, &Launched),
        family: Family,
        channels: Channels,
        src: &StoredView<'_>,
        dst: &mut StoredViewMut<'_>,
        stage: Stage<'_>,
    ) -> Result<()> {
        let effort = self.effort(family, channels, src.shape(), (src.scalar(), dst.scalar()));
        let stage = &stage.on(effort.threads_now());
        let ran = match (channels, self.gradient) {
            (Channels::Weighted, _) => engine.run_weighted(src, dst, stage).map(|()| Ran::Weighted),
            (Channels::First(filtered), Some(gradient)) => {
                engine.run_gradient(gradient, src, dst, filtered, stage).map(|()| Ran::Gradient)
            }
            (Channels::First(filtered), None) => {
                engine.run(family, src, dst, filtered, stage).map(Ran::Variant)
            }
        }?;
        launched.note(ran);
        Ok(())
    }

    /// # Errors
    /// [`Error::Parameter`] if results of this type cannot hold angles, or if bytes are to be made
    /// of bytes and what lies outside the picture is none.
    pub(crate) fn check_kinds(&self, kinds: (Scalar, Scalar)) -> Result<()> {
        if kinds == (Scalar::U8, Scalar::U8) {
            self.border.check_is_byte()?;
        }
        if matches!(kinds.1, Scalar::F16 | Scalar::F32) {
            Ok(())
        } else {
            self.check_takes_integers(kinds.1.name())
        }
    }

    /// # Errors
    /// [`Error::Parameter`] if results are angles, which the integers of this name cannot hold.
    pub(crate) fn check_takes_integers(&self, target: &str) -> Result<()> {
        match self.gradient {
            Some(gradient) if gradient.is_angle() => {
                let expected = "f16, f32 or f64 for angles, which are from -pi to pi".to_owned();
                Err(Error::Parameter {
                    name: "the type of the results",
                    value: target.to_owned(),
                    expected,
                })
            }
            _ => Ok(()),
        }
    }

    /// As [`Plan::run`], for many pictures, whose sizes may differ: while one is uploaded, others
    /// are filtered and downloaded.
    ///
    /// ```
    /// use apron::{Device, Filter, Image, Plan};
    ///
    /// let plan = Plan::builder(Filter::gaussian(2.0)?).device(Device::Cpu).build()?;
    /// let (large, small) = (Image::from_vec(vec![7u8; 640 * 480], 640, 480, 1)?, Image::from_vec(vec![9u8; 35], 7, 5, 1)?);
    /// let (mut large_out, mut small_out) = (Image::<u8>::zeroed(640, 480, 1)?, Image::<u8>::zeroed(7, 5, 1)?);
    /// plan.run_batch(&mut [(large.view(), large_out.view_mut()), (small.view(), small_out.view_mut())])?;
    /// assert_eq!((large_out, small_out), (large, small));
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InBatch`] names the first picture that could not be filtered, and says why, as
    /// [`Plan::run`] would. The pictures before it are done; what the destinations of the others
    /// hold is unspecified.
    pub fn run_batch<S: Pixel, D: Pixel>(
        &self,
        pictures: &mut [(ImageView<'_, S>, ImageViewMut<'_, D>)],
    ) -> Result<()> {
        let mut pictures: Vec<_> =
            pictures.iter_mut().map(|(src, dst)| ((*src).into(), dst.reborrow().into())).collect();
        self.run_all((S::SCALAR, D::SCALAR), &mut pictures)
    }

    /// Filters pictures, all of the same types.
    fn run_all(
        &self,
        kinds: (Scalar, Scalar),
        pictures: &mut [(StoredView<'_>, StoredViewMut<'_>)],
    ) -> Result<()> {
        let in_batch = |(picture, error)| Error::InBatch { picture, error: Box::new(error) };
        let wrong = pictures.iter().enumerate().find_map(|(number, (src, dst))| {
            let error = agree(src.shape(), dst.shape()).err()?;
            Some((number, error))
        });
        let right = wrong.as_ref().map_or(pictures.len(), |&(number, _)| number);
        let all = pictures[..right].iter().map(|(src, _)| pixels(src.shape())).sum();
        let call = self.report.call(all);
        self.check_kinds(kinds).map_err(|error| in_batch((0, error)))?;
        let seen: Vec<_> = pictures[..right]
            .iter()
            .map(|(src, dst)| (src.is_pinned(), dst.is_pinned(), src.shape()))
            .collect();
        // Each picture says how many of its channels are filtered.
        let channels = Channels::First(seen.first().map_or(1, |&(.., shape)| shape.channels));
        run(&[(self, channels)], &Job::of(kinds, &seen), |place, launched| {
            match self.on(place)? {
                On::Cpu(engine) => {
                    let mut before = 0;
                    for (number, (src, dst)) in pictures[..right].iter_mut().enumerate() {
                        let (shape, pixels) = (src.shape(), pixels(src.shape()));
                        let (channels, stage) =
                            (Channels::First(shape.channels), call.stage(before, pixels));
                        self.family_on_cpu(engine, shape, shape.channels, kinds)
                            .and_then(|family| {
                                self.run_on_cpu(
                                    (engine, &launched[0]),
                                    family,
                                    channels,
                                    src,
                                    dst,
                                    stage,
                                )
                            })
                            .map_err(|error| in_batch((number, error)))?;
                        before += pixels;
                    }
                    Ok(())
                }
                #[cfg(feature = "gpu")]
                On::Gpu(gpus) => {
                    let pictures = pictures[..right].iter_mut();
                    let mut pictures: Vec<_> = pictures
                        .map(|(src, dst)| Picture::new(*src, dst.reborrow(), src.shape().channels))
                        .collect();
                    let step =
                        self.step_on((gpus, &launched[0]), Channels::First(1), kinds.1, None);
                    flow::run((&[step], &gpus.idle), &mut pictures, &call.stage(0, all))
                        .map_err(in_batch)
                }
            }
        })?;
        call.reach(all).map_err(|error| in_batch((right.saturating_sub(1), error)))?;
        wrong.map_or(Ok(()), |wrong| Err(in_batch(wrong)))
    }

    /// The plan as a step of the flow through its GPUs, with results of type `target` unless it is
    /// the last. How many channels are filtered, each picture says. Where a picture is a part of
    /// one of height `whole`, that one chooses the kernel.
    #[cfg(feature = "gpu")]
    pub(crate) fn step_on<'p>(
        &'p self,
        (gpus, launched): (&'p OnGpus, &'p Launched),
        channels: Channels,
        target: Scalar,
        whole: Option<usize>,
    ) -> flow::Step<'p> {
        let prepare = move |shape: Shape, filtered: usize, kinds: (Scalar, Scalar)| match channels {
            Channels::Weighted => Ok(crate::kernels::weighted::prepare()),
            Channels::First(_) => {
                let shape = Shape { height: whole.unwrap_or(shape.height), ..shape };
                self.prepared(gpus, kinds, shape, filtered)
            }
        };
        let takes_all = channels == Channels::Weighted;
        flow::Step {
            engines: &gpus.engines,
            prepare: Box::new(prepare),
            target,
            takes_all,
            launched,
        }
    }

    /// The kernel for pictures of a shape from host memory, of which so many channels are filtered.
    #[cfg(feature = "gpu")]
    fn prepared(
        &self,
        gpus: &OnGpus,
        kinds: (Scalar, Scalar),
        shape: Shape,
        filtered: usize,
    ) -> Result<Prepared> {
        let engine = &gpus.engines[0];
        let problem = self.problem_for(shape, filtered, kinds, On::Gpu(gpus).place());
        self.prepare(&problem, gpus, engine)
    }

    /// The problem of pictures from host memory, of which so many channels are filtered.
    fn problem_for(
        &self,
        shape: Shape,
        filtered: usize,
        (source, target): (Scalar, Scalar),
        place: Place,
    ) -> Problem {
        // No fast kernel takes several interleaved channels of f32: they become planes.
        let planes = source == Scalar::F32;
        let bytes = (source, target) == (Scalar::U8, Scalar::U8);
        Problem {
            source,
            target,
            side_by_side: if planes { 1 } else { shape.channels },
            source_is_aligned: planes,
            numbers: if bytes { self.numbers(place) } else { Numbers::default() },
            rounding: bytes.then(|| self.rounding()),
            ..self.problem(Shape { channels: filtered, ..shape }, place)
        }
    }

    /// How bytes made of bytes are rounded.
    fn rounding(&self) -> Rounding {
        *self.rounding.get_or_init(|| Rounding::new(&self.filter, self.border))
    }

    /// Filters an image that is on the device into another one there; see
    /// [`crate::gpu::Gpu::upload`]. The work is put into `stream` and may not have finished when
    /// the function returns.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if sizes differ, [`Error::NoGpu`] if the plan runs on the CPU; memory
    /// and driver errors. A plan on [`Device::Auto`] runs on the images' GPU, whichever that is.
    #[cfg(feature = "gpu")]
    pub fn run_on_device(
        &self,
        src: &DeviceImage,
        dst: &mut DeviceImage,
        stream: &mut Stream,
    ) -> Result<()> {
        self.run_part(&src.view(), &mut dst.view_mut(), &Part::whole(src.shape()), stream)
    }

    /// As [`Plan::run_on_device`], for images or batches of any layout, and for a part of them: the
    /// results in these columns and rows only are computed and written. The border stays that of
    /// the whole image, so the results of a band are the same as those rows of the whole image:
    /// `src` must have the rows that the windows reach, and `dst` the rows that are written.
    ///
    /// ```no_run
    /// use apron::{Device, Filter, Image, Plan, gpu::Gpu};
    ///
    /// let gpu = Gpu::open(0)?;
    /// let plan = Plan::builder(Filter::box_filter(3, 3)?).device(Device::Gpu(0)).build()?;
    /// let src = gpu.upload(&Image::from_vec(vec![0.5f32; 640 * 480], 640, 480, 1)?.view())?;
    /// let mut dst = gpu.image(src.shape())?;
    /// let mut stream = gpu.stream()?;
    /// // Rows 100 to 199 read rows 99 to 200.
    /// let band = src.view().rows(99..201)?;
    /// plan.run_region(&band, &mut dst.view_mut(), 0..640, 100..200, &mut stream)?;
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Plan::run_on_device`]; [`Error::Parameter`] if a view lacks the columns or rows.
    #[cfg(feature = "gpu")]
    pub fn run_region(
        &self,
        src: &DeviceView<'_>,
        dst: &mut DeviceViewMut<'_>,
        columns: std::ops::Range<usize>,
        rows: std::ops::Range<usize>,
        stream: &mut Stream,
    ) -> Result<()> {
        self.run_part(src, dst, &Part { columns, rows, ..Part::whole(src.shape()) }, stream)
    }

    /// As [`Plan::run_region`], each sum multiplied with `scale`, added to `offset` by a fused
    /// multiply-add and, if `absolute`, without its sign. Pixels that [`Border::Keep`] copies stay
    /// as they are. For tests: the builder does not offer this yet.
    ///
    /// # Errors
    /// As for [`Plan::run_region`].
    #[cfg(feature = "gpu")]
    #[doc(hidden)]
    pub fn run_with_epilogue(
        &self,
        src: &DeviceView<'_>,
        dst: &mut DeviceViewMut<'_>,
        (scale, offset, absolute): (f32, f32, bool),
        stream: &mut Stream,
    ) -> Result<()> {
        let flags = Epilogue::LINEAR | if absolute { Epilogue::ABSOLUTE } else { 0 };
        let part = Part { epilogue: Epilogue { flags, scale, offset }, ..Part::whole(src.shape()) };
        self.run_part(src, dst, &part, stream)
    }

    #[cfg(feature = "gpu")]
    fn run_part(
        &self,
        src: &DeviceView<'_>,
        dst: &mut DeviceViewMut<'_>,
        part: &Part,
        stream: &mut Stream,
    ) -> Result<()> {
        self.check_kinds((src.scalar(), dst.scalar()))?;
        let gpus = self.gpus_of(src.gpu())?;
        let engine = gpus.engine_of(src.gpu());
        let place = On::Gpu(&gpus).place();
        let of_shape = self.problem(src.shape(), place);
        // What an epilogue makes is rounded from f32.
        let plain = part.epilogue == Epilogue::NONE;
        let bytes = (src.scalar(), dst.scalar()) == (Scalar::U8, Scalar::U8);
        let problem = Problem {
            numbers: if plain { self.numbers(place) } else { Numbers::default() },
            rounding: (plain && bytes).then(|| self.rounding()),
            width: part.columns.len(),
            height: part.rows.len(),
            planes: src.images() * part.filtered,
            source: src.scalar(),
            target: dst.scalar(),
            side_by_side: src.side_by_side(),
            source_is_aligned: src.is_aligned(),
            ..of_shape
        };
        let ran =
            engine.enqueue(&self.prepare(&problem, &gpus, engine)?, src, dst, part, stream)?;
        ran::keep_one(self.number, ran);
        Ok(())
    }

    /// Records what [`Plan::run_on_device`] would do with these images, to be replayed with one
    /// call of the driver each time. Filters `src` once as it does so.
    ///
    /// # Errors
    /// As for [`Plan::run_on_device`].
    #[cfg(feature = "gpu")]
    pub fn record(&self, src: DeviceImage, dst: DeviceImage) -> Result<Recorded> {
        let gpu = self.gpus_of(src.gpu())?.engine_of(src.gpu()).gpu().clone();
        Recorded::new(&gpu, src, dst, |src, dst, stream| self.run_on_device(src, dst, stream))
    }
}

/// Which channels of a picture are filtered, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channels {
    /// The first so many; the others are copied.
    First(usize),
    /// All; the last is alpha, and weighs the others.
    Weighted,
}

impl Channels {
    /// How many channels are filtered, for a step that does not take all of them anyway.
    #[cfg(feature = "gpu")]
    pub(crate) fn filtered(self) -> usize {
        match self {
            Self::First(filtered) => filtered,
            Self::Weighted => 1,
        }
    }
}

/// The error of a plan that has no GPU.
#[cfg(feature = "gpu")]
pub(crate) fn on_cpu() -> Error {
    Error::NoGpu { reason: "the plan was built for the CPU".into() }
}

/// Pixels of a picture.
pub(crate) fn pixels(shape: Shape) -> u64 {
    shape.width as u64 * shape.height as u64
}

/// # Errors
/// [`Error::Mismatch`] if sizes differ.
pub(crate) fn agree(src: Shape, dst: Shape) -> Result<()> {
    if src == dst {
        Ok(())
    } else {
        Err(Error::Mismatch { src: src.to_string(), dst: dst.to_string() })
    }
}
