//! Plans: a filter ready to run on a device, with its taps there and its scratch memory reused.

pub(crate) mod adjoint;
mod alpha;
#[cfg_attr(not(feature = "gpu"), allow(dead_code, reason = "there is no GPU to choose"))]
pub(crate) mod auto;
pub(crate) mod builder;
pub(crate) mod choose;
pub(crate) mod device;
mod double;
pub(crate) mod each;
pub(crate) mod engines;
mod family;
mod light;
mod masked;
mod masked_f64;
#[cfg(feature = "gpu")]
mod masked_on_gpu;
#[cfg(feature = "gpu")]
mod on_device;
pub(crate) mod place;
mod processor;
#[cfg_attr(
    not(feature = "gpu"),
    allow(dead_code, reason = "colours are weighted on the CPU alone")
)]
pub(crate) mod ran;
mod run;
#[cfg_attr(not(feature = "gpu"), allow(dead_code, reason = "the CPU has the whole image"))]
pub(crate) mod schedule;
pub(crate) mod step;
pub(crate) mod streamed;

use std::sync::{Arc, OnceLock};
#[cfg(feature = "gpu")]
use std::sync::{Mutex, PoisonError};

use choose::Candidate;
use device::Device;
#[cfg(feature = "gpu")]
use engines::OnGpus;
use engines::{Engine, On};
#[cfg(feature = "gpu")]
use ran::Launched;

use crate::cpu;
#[cfg(feature = "gpu")]
use crate::gpu::flow;
use crate::image::{Scalar, Shape};
#[cfg(feature = "gpu")]
use crate::kernels::prepared::Prepared;
use crate::light::Tables;
use crate::mask::Unknown;
use crate::problem::machine::Machine;
use crate::problem::model::GpuModel;
use crate::problem::rounding::Rounding;
use crate::problem::{Numbers, Place, Problem};
use crate::progress::Report;
use crate::spectrum::folded::LeftOut;
use crate::{Accuracy, Border, Error, Family, Filter, Gradient, Result, Variant};

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
    accuracy: Option<Accuracy>,
    device: Device,
    fallback: Option<Error>,
    engine: Engine,
    /// What it takes to round bytes, once a time was predicted.
    rounding: OnceLock<Rounding>,
    /// The last problem on a GPU, and the kernel that was chosen for it: to choose takes 2 us.
    #[cfg(feature = "gpu")]
    chosen: Mutex<Option<(Problem, Prepared)>>,
    pub(crate) report: Report,
    /// See [`PlanBuilder::band_rows`].
    rows: Option<usize>,
    unknown: Unknown,
    /// Unless values are filtered as they are stored.
    light: Option<Arc<Tables>>,
}

impl Plan {
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
        let scalar = if self.variant.is_some_and(Variant::takes_only_bytes) {
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
            On::Gpu(gpus) => {
                let prepared = self.prepare(&problem, gpus, &gpus.engines[0])?;
                prepared.launcher.sums().unwrap_or(&prepared).variant()
            }
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
        let kinds = self.summed(kinds);
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
        if self.is_masked(problem.source) {
            return self.prepare_known(problem, self.knows(), gpus, engine);
        }
        if let Some(gradient) = self.gradient {
            return Ok(crate::kernels::gradient::prepare(problem, gradient.is_angle()));
        }
        match &self.light {
            Some(tables) => self.prepare_light((tables, false), problem, gpus, engine),
            None => self.prepare_variant(self.variant, problem, gpus, engine),
        }
    }

    /// The kernel of a variant, or the one that is chosen.
    #[cfg(feature = "gpu")]
    fn prepare_variant(
        &self,
        variant: Option<Variant>,
        problem: &Problem,
        gpus: &OnGpus,
        engine: &crate::gpu::engine::Engine,
    ) -> Result<Prepared> {
        match (variant, &gpus.tuned) {
            (Some(variant), _) => problem.prepare(variant),
            (None, Some(tuned)) => tuned.fastest(problem, engine),
            (None, None) => self.chosen_kernel(problem),
        }
    }

    /// The kernel that is chosen for a problem.
    #[cfg(feature = "gpu")]
    fn chosen_kernel(&self, problem: &Problem) -> Result<Prepared> {
        let last = || self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, prepared)) = &*last()
            && of == problem
        {
            return Ok(prepared.clone());
        }
        let prepared = problem.choose_kernel()?;
        *last() = Some((*problem, prepared.clone()));
        Ok(prepared)
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
            return Vec::new();
        }
        let kinds = self.summed((source, target));
        let mut candidates = self.problem_for(shape, shape.channels, kinds, place).candidates();
        let times = self.times_light() * self.times_masked(source);
        let all = candidates.iter_mut().filter_map(|candidate| candidate.predicted.as_mut());
        all.for_each(|time| *time = time.mul_f64(times));
        candidates
    }

    /// As [`Plan::candidates_for`], for a model of GPU, on a machine with or without one.
    ///
    /// ```
    /// use apron::{Bound, Device, Filter, GpuModel, Plan, Scalar, Shape};
    ///
    /// let plan = Plan::builder(Filter::gaussian(2.0)?).device(Device::Cpu).build()?;
    /// let shape = Shape { width: 1920, height: 1080, channels: 3 };
    /// let gpu: GpuModel = "rtx-4060".parse()?;
    /// let candidates = plan.candidates_on(&gpu, shape, Scalar::F32, Scalar::F32);
    /// assert_eq!(candidates[0].bound, Some(Bound::Memory));
    /// # Ok::<(), apron::Error>(())
    /// ```
    pub fn candidates_on(
        &self,
        gpu: &GpuModel,
        shape: Shape,
        source: Scalar,
        target: Scalar,
    ) -> Vec<Candidate> {
        let place = Place::Gpu(Machine::of(gpu));
        let problem = self.problem_for(shape, shape.channels, (source, target), place);
        if self.gradient.is_some() { Vec::new() } else { problem.candidates() }
    }

    /// The filter for bytes made of bytes. Without memory for it, whoever runs the plan says so.
    fn filter_of_bytes(&self) -> &Filter {
        self.filter.byte_filter().map_or(&self.filter, |bytes| &bytes.filter)
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
            has_lines: crate::kernels::lines::takes(&self.filter),
            accuracy: self.accuracy,
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

    /// # Errors
    /// [`Error::Parameter`] if results of this type cannot hold angles, or if bytes are to be made
    /// of bytes and what lies outside the picture is none.
    pub(crate) fn check_kinds(&self, kinds: (Scalar, Scalar)) -> Result<()> {
        if kinds == (Scalar::U8, Scalar::U8) {
            self.border.check_is_byte()?;
        }
        if kinds.1.greatest().is_none() {
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
            Channels::Weighted => {
                let place = On::Gpu(gpus).place();
                let problem = || self.problem_for(shape, filtered, kinds, place);
                self.prepare_weighted(kinds.0, problem, gpus, &gpus.engines[0])
            }
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
        // Interleaved channels of f32 become planes, which more kernels take.
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
    /// How many channels of a picture are filtered.
    pub(crate) fn of(self, shape: Shape) -> usize {
        match self {
            Self::First(filtered) => filtered,
            Self::Weighted => shape.channels,
        }
    }

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
