//! The settings of a plan.

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use super::engines::Engine;
#[cfg(feature = "gpu")]
use super::engines::{Auto, OnGpus};
#[cfg(feature = "gpu")]
use super::schedule::FlowOptions;
use super::schedule::Limits;
use super::step::Step;
use super::{Device, Plan, ran};
use crate::cpu;
use crate::light::{Light, Tables};
use crate::mask::{Nan, Rule, Unknown};
use crate::progress::{Progress, Report};
use crate::{Accuracy, Border, Error, Family, Filter, Gradient, Result, Variant, Why};

/// Collects the settings of a [`Plan`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct PlanBuilder {
    step: Step,
    border: Border,
    device: Device,
    variant: Option<Variant>,
    accuracy: Option<Accuracy>,
    autotune: bool,
    limits: Limits,
    report: Report,
    cpu_times: f64,
    unknown: Unknown,
    light: Light,
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

    /// What errors of sums may be relative to: see [`Accuracy`]. Unless set, the filter's form
    /// decides, as [`Family`] says. A plan for a given variant ignores it.
    pub fn accuracy(mut self, accuracy: impl Into<Option<Accuracy>>) -> Self {
        self.accuracy = accuracy.into();
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

    /// How to treat NaN in images of floating-point numbers, and what a mask leaves out;
    /// [`Nan::Spread`] unless set.
    pub fn nan(mut self, nan: Nan) -> Self {
        self.unknown.nan = nan;
        self
    }

    /// The result where no pixel under the window is known: see [`Plan::run_masked`]. NaN unless
    /// set; integers take the nearest value, and 0 for NaN.
    pub fn unknown(mut self, result: f64) -> Self {
        self.unknown.result = result;
        self
    }

    /// What the values stand for: [`Light::Stored`], the values themselves, unless set.
    pub fn light(mut self, light: impl Into<Light>) -> Self {
        self.light = light.into();
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
    /// let builder = Plan::builder(&filter).device(Device::Cpu);
    /// let never = builder.progress(|_| ControlFlow::Break(())).build()?;
    /// let ended = never.run(&src.view(), &mut dst.view_mut());
    /// assert!(matches!(ended, Err(Error::Cancelled { .. })));
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
        self.check_known((&filter, gradient))?;
        if let Some(variant) = self.variant {
            // What are known to be sums of such filters are added up.
            let passes = filter.is_separable() || filter.sum().is_some();
            let reason = match gradient {
                Some(gradient) => Some(format!("{gradient} is a gradient, which has one kernel")),
                None if matches!(variant.family(), Family::Separable | Family::SpectraPasses)
                    && !passes =>
                {
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
            accuracy: self.accuracy,
            device,
            fallback,
            engine,
            rounding: OnceLock::new(),
            #[cfg(feature = "gpu")]
            chosen: std::sync::Mutex::default(),
            report: self.report,
            rows: self.limits.rows,
            unknown: self.unknown,
            light: self.light.transfer().map(Tables::new).map(Arc::new),
        })
    }

    /// # Errors
    /// [`Error::Parameter`] if a gradient's pixels may be unknown, if unknown pixels would be
    /// filled with what is no average, or if either meets linear light.
    fn check_known(&self, (filter, gradient): (&Filter, Option<Gradient>)) -> Result<()> {
        let nan = self.unknown.nan;
        let is_masked = self.border == Border::None || nan != Nan::Spread;
        if let Some(gradient) = gradient.filter(|_| is_masked) {
            return Err(no_gradient(gradient));
        }
        let is_light = self.light != Light::Stored;
        if is_light && (is_masked || gradient.is_some()) {
            let (name, value) = match gradient {
                Some(gradient) => ("the step", gradient.to_string()),
                None if self.border == Border::None => ("border", self.border.to_string()),
                None => ("nan", nan.to_string()),
            };
            let expected =
                "a filter in linear light, another border than none, and nan spread".to_owned();
            return Err(Error::Parameter { name, value, expected });
        }
        if nan == Nan::Fill && Rule::of(filter) == Rule::Sum {
            return Err(Error::Parameter {
                name: "nan",
                value: nan.to_string(),
                expected: "ignore or spread for a filter whose taps do not sum to 1".to_owned(),
            });
        }
        Ok(())
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
            Ok(()) => Ok(Engine::Auto(Box::new(Auto::new(
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

/// The error of a gradient whose pixels may be unknown.
pub(super) fn no_gradient(gradient: Gradient) -> Error {
    Error::Parameter {
        name: "the step",
        value: gradient.to_string(),
        expected: "a filter with a mask, border none, or nan ignore or fill: take its derivatives one by one, such as sobel-x".to_owned(),
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
            accuracy: None,
            autotune: false,
            limits: Limits::default(),
            report: Report::default(),
            cpu_times: 1.0,
            unknown: Unknown::default(),
            light: Light::default(),
        }
    }
}
