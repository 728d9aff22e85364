//! The place of each call, where a plan may choose: see [`super::auto`].

#[cfg(feature = "gpu")]
use std::hash::{DefaultHasher, Hash, Hasher};
#[cfg(feature = "gpu")]
use std::sync::{Arc, PoisonError};
use std::time::Duration;
#[cfg(feature = "gpu")]
use std::time::Instant;

use super::auto::{
    self, CallEstimate, GpuEstimate, Link, Load, Odds, OnGpu, Pair, Readiness, Where, Work,
};
#[cfg(feature = "gpu")]
use super::auto::{Kind, Verdict};
#[cfg(feature = "gpu")]
use super::engines::{Auto, Forecast, Held, OnGpus, Setup};
use super::engines::{Engine, On};
use super::ran::{self, Launched, Ran};
use super::{Channels, Plan};
#[cfg(feature = "gpu")]
use crate::gpu::{Gpu, opening};
use crate::image::{Scalar, Shape};
use crate::problem::machine::Machine;
use crate::problem::{Place, Problem};
use crate::{Device, Error, Result, Variant};

#[cfg(feature = "gpu")]
impl Auto {
    /// The extra seconds of a call with these needs if it is the first.
    fn left_to_set_up(&self, (pinned, seconds): (f64, f64)) -> f64 {
        let setup = self.setup();
        if setup.done && setup.pinned >= pinned { 0.0 } else { seconds }
    }
}

/// The size of a call: what its time depends on, beside its plans.
#[derive(Debug)]
pub(crate) struct CallSize {
    /// Runs of pictures of the same shape, with their number.
    shapes: Vec<(Shape, usize)>,
    kinds: (Scalar, Scalar),
    /// Between several plans.
    between: Scalar,
    load: Load,
    /// Whether the call can be repeated and its time depends on the devices only: not if rows come
    /// from a source and go to a sink.
    #[cfg_attr(not(feature = "gpu"), allow(dead_code, reason = "no time is noted"))]
    alone: bool,
}

impl CallSize {
    /// A call with these pictures: for each, whether it and its results are pinned, and its shape.
    pub(crate) fn of(kinds: (Scalar, Scalar), pictures: &[(bool, bool, Shape)]) -> Self {
        let mut job = Self {
            shapes: Vec::new(),
            kinds,
            between: kinds.0,
            load: Load { pictures: pictures.len() as f64, source: 0.0, results: 0.0, staged: 0.0 },
            alone: true,
        };
        for &(source, target, shape) in pictures {
            job.add(shape, 1, (source, target));
        }
        job
    }

    /// As [`CallSize::of`], for a picture whose rows come from a source and go to a sink.
    pub(crate) fn streamed(kinds: (Scalar, Scalar), shape: Shape) -> Self {
        Self { alone: false, ..Self::of(kinds, &[(false, false, shape)]) }
    }

    /// With values of this type between plans.
    pub(crate) fn between(self, scalar: Scalar) -> Self {
        Self { between: scalar, ..self }
    }

    fn add(&mut self, shape: Shape, count: usize, pinned: (bool, bool)) {
        let values =
            shape.width as f64 * shape.height as f64 * shape.channels as f64 * count as f64;
        let (source, results) =
            (values * self.kinds.0.bytes() as f64, values * self.kinds.1.bytes() as f64);
        self.load.source += source;
        self.load.results += results;
        self.load.staged +=
            if pinned.0 { 0.0 } else { source } + if pinned.1 { 0.0 } else { results };
        match self.shapes.last_mut() {
            Some((last, number)) if *last == shape => *number += count,
            _ => self.shapes.push((shape, count)),
        }
    }
}

impl From<&Work> for CallSize {
    fn from(work: &Work) -> Self {
        let load = Load { pictures: work.pictures as f64, source: 0.0, results: 0.0, staged: 0.0 };
        let kinds = (work.source, work.target);
        let mut job = Self { shapes: Vec::new(), kinds, between: work.source, load, alone: true };
        job.add(work.shape, work.pictures, (work.pinned, work.pinned));
        job
    }
}

/// Runs a call of consecutive plans on the device that is faster, if the plans leave that open. The
/// work notes its launches for each plan.
///
/// # Errors
/// Those of `work`. Where the GPU had no memory for the call, and that was left open, it is run
/// again on the CPU.
#[cfg_attr(not(feature = "gpu"), allow(unused_variables, reason = "there is nothing to choose"))]
pub(crate) fn run<T>(
    plans: &[(&Plan, Channels)],
    job: &CallSize,
    mut work: impl FnMut(Where, &[Launched]) -> Result<T>,
) -> Result<T> {
    let on = |place: Where, work: &mut dyn FnMut(Where, &[Launched]) -> Result<T>| {
        let (one, several);
        let launched = match plans.len() {
            1 => {
                one = [Launched::default()];
                &one[..]
            }
            count => {
                several = (0..count).map(|_| Launched::default()).collect::<Vec<_>>();
                &several[..]
            }
        };
        let outcome = work(place, launched);
        let device = match (&plans[0].0.engine, place) {
            #[cfg(feature = "gpu")]
            (Engine::Auto(_), Where::Gpu) => Some(Device::Gpu(opening::ORDINAL)),
            #[cfg(feature = "gpu")]
            (Engine::Auto(_), Where::Cpu) => Some(Device::Cpu),
            _ => None,
        };
        ran::keep(device, plans.iter().map(|(plan, _)| plan.number).zip(launched));
        outcome
    };
    match &plans[0].0.engine {
        Engine::Cpu(_) => on(Where::Cpu, &mut work),
        #[cfg(feature = "gpu")]
        Engine::Gpu(_) => on(Where::Gpu, &mut work),
        #[cfg(feature = "gpu")]
        Engine::Auto(auto) => auto.run(plans, job, |place| on(place, &mut work)),
    }
}

/// Whether an error says that the GPU lacked something the CPU may have enough of.
#[cfg(feature = "gpu")]
fn lacks_memory(error: &Error) -> bool {
    match error {
        Error::InBatch { error, .. } => lacks_memory(error),
        Error::DeviceMemory { .. }
        | Error::HostMemory { .. }
        | Error::Parameter { name: "memory", .. } => true,
        _ => false,
    }
}

/// After an error of the driver: if the GPU no longer answers, later calls use the CPU.
#[cfg(feature = "gpu")]
fn give_up_what_is_lost(error: &Error) {
    match error {
        Error::InBatch { error, .. } => give_up_what_is_lost(error),
        Error::Driver { .. } => {
            if let Err(reason) = Gpu::open(opening::ORDINAL).and_then(|gpu| gpu.memory()) {
                opening::give_up(reason);
            }
        }
        _ => {}
    }
}

#[cfg(feature = "gpu")]
impl Auto {
    /// See [`run`].
    fn run<T>(
        &self,
        plans: &[(&Plan, Channels)],
        job: &CallSize,
        mut work: impl FnMut(Where) -> Result<T>,
    ) -> Result<T> {
        if opening::failure().is_some() || job.load.pictures == 0.0 {
            return work(Where::Cpu);
        }
        let forecast = self.forecast(plans, job);
        let verdict = self.choose(&forecast);
        if verdict.place() == Where::Gpu && plans.iter().all(|(plan, _)| plan.is_open()) {
            let first = self.left_to_set_up(forecast.setup) > 0.0;
            let start = Instant::now();
            let outcome = work(Where::Gpu);
            let seconds = start.elapsed().as_secs_f64();
            match &outcome {
                Ok(_) => {
                    let mut setup = self.setup();
                    *setup =
                        Setup { done: true, pinned: setup.pinned.max(forecast.setup.0), lost: 0.0 };
                    drop(setup);
                    // The first call loads kernels and takes memory.
                    if job.alone && !first {
                        auto::known().note(forecast.kind, Where::Gpu, forecast.times.gpu, seconds);
                    }
                    return outcome;
                }
                Err(error) if job.alone && lacks_memory(error) => {}
                Err(error) => {
                    give_up_what_is_lost(error);
                    return outcome;
                }
            }
            // Another call of this kind would fail, too.
            let outcome = work(Where::Cpu);
            auto::known().note(forecast.kind, Where::Gpu, forecast.times.gpu, f64::MAX);
            return outcome;
        }
        let start = Instant::now();
        let outcome = work(Where::Cpu);
        if outcome.is_ok() && job.alone {
            let seconds = start.elapsed().as_secs_f64();
            auto::known().note(forecast.kind, Where::Cpu, forecast.times.cpu, seconds);
        }
        outcome
    }

    /// The place of a call. Opens the GPU or notes lost time, as the verdict says.
    fn choose(&self, forecast: &Forecast) -> Verdict {
        let odds = self.odds(forecast);
        let verdict = odds.verdict();
        match verdict {
            Verdict::TooLittle => opening::lose(odds.loss()),
            Verdict::OpenInBackground => opening::open_in_background(),
            Verdict::OpenNow => {
                if let Err(reason) = opening::open() {
                    opening::give_up(reason);
                }
            }
            Verdict::NotSetUp => self.setup().lost += odds.loss(),
            Verdict::Trial(place) => auto::known().tried(forecast.kind, place),
            _ => {}
        }
        verdict
    }

    fn odds(&self, forecast: &Forecast) -> Odds {
        let mut known = auto::known();
        let mut times = known.corrected(forecast.kind, forecast.times);
        times.cpu *= self.cpu_times;
        let setup = self.left_to_set_up(forecast.setup);
        let tries = known.tries(forecast.kind, times, setup);
        drop(known);
        Odds { times, readiness: opening::readiness(), setup, lost: self.setup().lost, tries }
    }

    fn forecast(&self, plans: &[(&Plan, Channels)], job: &CallSize) -> Forecast {
        let link = opening::link();
        // Everything that a forecast depends on. Consecutive calls often are of one kind.
        let mut key = vec![
            plans.len() as u64,
            u64::from(link.is_some()),
            rayon::current_num_threads() as u64,
        ];
        key.extend([job.kinds.0, job.kinds.1, job.between].map(|scalar| scalar as u64));
        key.push(job.load.staged.to_bits());
        key.extend(plans.iter().map(|(_, channels)| match channels {
            Channels::First(filtered) => *filtered as u64,
            Channels::Weighted => 0,
        }));
        let shape =
            |&(shape, count): &(Shape, usize)| [shape.width, shape.height, shape.channels, count];
        key.extend(job.shapes.iter().flat_map(shape).map(|number| number as u64));
        let last = || self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, forecast)) = last().as_ref().filter(|(known, _)| *known == key) {
            return *forecast;
        }
        let times = Times::new(plans, job, machine(), link.unwrap_or(Link::ASSUMED));
        let forecast =
            Forecast { kind: kind(plans, job), times: times.pair(), setup: job.load.setup() };
        *last() = Some((key, forecast));
        forecast
    }
}

/// The kind of a call: calls of one kind take about the same time for each result.
#[cfg(feature = "gpu")]
fn kind(plans: &[(&Plan, Channels)], job: &CallSize) -> Kind {
    let mut hash = DefaultHasher::new();
    for (plan, channels) in plans {
        let filter = &plan.filter;
        (
            filter.cols(),
            filter.rows(),
            filter.is_separable(),
            plan.gradient.is_some(),
            plan.variant,
        )
            .hash(&mut hash);
        (*channels == Channels::Weighted).hash(&mut hash);
    }
    // Within a factor of two.
    let size = job.load.source.max(1.0).log2() as u32;
    (job.kinds.0 as u8, job.kinds.1 as u8, job.between as u8, size).hash(&mut hash);
    (job.load.pictures > 1.0, job.load.staged > 0.0, rayon::current_num_threads()).hash(&mut hash);
    let shape = job.shapes.first().map(|(shape, _)| shape.channels);
    shape.hash(&mut hash);
    Kind { hash: hash.finish(), bytes: job.kinds == (Scalar::U8, Scalar::U8) }
}

/// Predicted times; none where a plan cannot run.
struct Times {
    cpu: Option<f64>,
    gpu: Option<OnGpu>,
}

impl Times {
    fn new(plans: &[(&Plan, Channels)], job: &CallSize, machine: Machine, link: Link) -> Self {
        let threads = rayon::current_num_threads();
        let on = |place: Place| -> Option<f64> {
            let mut seconds = 0.0;
            for (number, (plan, channels)) in plans.iter().enumerate() {
                let source = if number == 0 { job.kinds.0 } else { job.between };
                let target = if number + 1 == plans.len() { job.kinds.1 } else { job.between };
                for &(shape, count) in &job.shapes {
                    seconds +=
                        plan.predicted(place, shape, (source, target), *channels)? * count as f64;
                }
            }
            Some(seconds)
        };
        let cpu = on(Place::Cpu { threads });
        let gpu = on(Place::Gpu(machine)).map(|kernel| job.load.on_gpu(kernel, link, threads));
        Self { cpu, gpu }
    }

    fn pair(&self) -> Pair {
        let gpu = self.gpu.map_or(f64::INFINITY, |gpu| gpu.total);
        Pair { cpu: self.cpu.unwrap_or(f64::INFINITY), gpu }
    }
}

impl Plan {
    /// The plan's engine for a call at this place.
    ///
    /// # Errors
    /// Those of [`Gpu::open`], if the plan may choose and has not been at the GPU.
    pub(crate) fn on(&self, place: Where) -> Result<On<'_>> {
        match (&self.engine, place) {
            (Engine::Cpu(cpu), _) => Ok(On::Cpu(cpu)),
            #[cfg(feature = "gpu")]
            (Engine::Gpu(gpus), _) => Ok(On::Gpu(gpus)),
            #[cfg(feature = "gpu")]
            (Engine::Auto(auto), Where::Cpu) => Ok(On::Cpu(&auto.cpu)),
            #[cfg(feature = "gpu")]
            (Engine::Auto(auto), Where::Gpu) => {
                crate::memory::once(&auto.gpu, || self.auto_on(auto, opening::ORDINAL)).map(On::Gpu)
            }
        }
    }

    /// Whether the GPU is open for the plan now. If it cannot be opened, this process uses the CPU
    /// from now on.
    #[cfg(feature = "gpu")]
    fn is_open(&self) -> bool {
        opening::failure().is_none() && self.on(Where::Gpu).map_err(opening::give_up).is_ok()
    }

    #[cfg(feature = "gpu")]
    fn auto_on(&self, auto: &Auto, ordinal: u32) -> Result<OnGpus> {
        let step = (&self.filter, self.gradient);
        OnGpus::new(
            step,
            self.border,
            (&auto.settings.0, auto.settings.1),
            self.device,
            &mut std::iter::once(ordinal),
        )
    }

    /// The plan's GPUs for images on this one. A plan that may choose uses the images' own, which
    /// is open.
    #[cfg(feature = "gpu")]
    pub(super) fn gpus_of(&self, gpu: &Gpu) -> Result<Held<'_>> {
        let ordinal = gpu.info().ordinal;
        match &self.engine {
            Engine::Cpu(_) => Err(super::on_cpu()),
            Engine::Gpu(gpus) => Ok(Held::Own(gpus)),
            Engine::Auto(auto) if ordinal == opening::ORDINAL => {
                crate::memory::once(&auto.gpu, || self.auto_on(auto, ordinal)).map(Held::Own)
            }
            Engine::Auto(auto) => {
                let mut others = auto.others.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(gpus) = others.get(&ordinal) {
                    return Ok(Held::Shared(gpus.clone()));
                }
                let gpus = Arc::new(self.auto_on(auto, ordinal)?);
                others.insert(ordinal, gpus.clone());
                Ok(Held::Shared(gpus))
            }
        }
    }

    /// The device that answers questions about a shape: that of this thread's last call, if each
    /// call may choose.
    pub(super) fn usual(&self) -> Result<On<'_>> {
        self.on(if ran::last_device() == Device::Cpu { Where::Cpu } else { Where::Gpu })
    }

    /// The predicted seconds of arithmetic for a picture; none if the plan's variant cannot run
    /// there.
    fn predicted(
        &self,
        place: Place,
        shape: Shape,
        kinds: (Scalar, Scalar),
        channels: Channels,
    ) -> Option<f64> {
        let problem = self.problem_for(shape, channels.of(shape), self.summed(kinds), place);
        if self.gradient.is_some() || channels == Channels::Weighted && !self.is_light() {
            return Some(problem.time_of_direct().as_secs_f64());
        }
        let time = match self.variant {
            Some(variant) => takes(&problem, variant).then(|| problem.time_of(variant)),
            None => problem.candidates().first().and_then(|candidate| candidate.predicted),
        };
        let times = self.times_light() * self.times_masked(kinds.0);
        time.map(|time| times * time.as_secs_f64())
    }

    /// Where this thread's last call of a plan or a pipeline on [`Device::Auto`] ran:
    /// [`Device::Cpu`], or the GPU. For a plan on another device, that device.
    ///
    /// ```
    /// use apron::{Device, Filter, Image, Plan};
    ///
    /// // Much too small to be worth a GPU.
    /// let plan = Plan::builder(Filter::gaussian(2.0)?).build()?;
    /// let filtered: Image<u8> = plan.filter(&Image::<u8>::zeroed(64, 48, 1)?)?;
    /// assert_eq!(plan.ran_on(), Device::Cpu);
    /// # Ok::<(), apron::Error>(())
    /// ```
    pub fn ran_on(&self) -> Device {
        if self.device == Device::Auto { ran::last_device() } else { self.device }
    }

    /// What this thread's last call launched for the plan: one entry, or several if pictures of a
    /// batch have several sizes. Empty if that call was of another plan, or failed before the first
    /// launch.
    ///
    /// ```
    /// use apron::{Device, Filter, Image, Plan, Ran, Variant};
    ///
    /// let plan = Plan::builder(Filter::gaussian(2.0)?).device(Device::Cpu).build()?;
    /// let _: Image<f32> = plan.filter(&Image::<f32>::zeroed(64, 48, 1)?)?;
    /// assert_eq!(plan.ran(), [Ran::Variant(Variant::Separable)]);
    /// # Ok::<(), apron::Error>(())
    /// ```
    pub fn ran(&self) -> Vec<Ran> {
        ran::of_plan(self.number)
    }

    /// Predicts the time of a call on the CPU and on the first GPU, from host memory to host
    /// memory, and says which of them [`Device::Auto`] takes now. The predictions are those of
    /// [`Plan::candidates`] plus copies, corrected by this process's calls of plans for
    /// [`Device::Auto`]. It opens no GPU; it measures the link of an open one once.
    ///
    /// ```
    /// use apron::{Device, Filter, Plan, Scalar, Shape, Work};
    ///
    /// let plan = Plan::builder(Filter::gaussian(2.0)?).build()?;
    /// let shape = Shape { width: 64, height: 48, channels: 3 };
    /// let estimate = plan.estimate(&Work::one(shape, Scalar::U8));
    /// assert_eq!(estimate.device, Device::Cpu);
    /// assert!(estimate.cpu.is_some_and(|time| time.as_millis() < 100));
    /// # Ok::<(), apron::Error>(())
    /// ```
    pub fn estimate(&self, work: &Work) -> CallEstimate {
        let job = CallSize::from(work);
        let plans = [(self, Channels::First(work.shape.channels))];
        let threads = rayon::current_num_threads();
        let time = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        #[cfg(feature = "gpu")]
        let (machine, link, odds) = {
            if Gpu::is_open(opening::ORDINAL) && opening::failure().is_none() {
                // Without a measurement, the assumed link serves.
                let _ = opening::open();
            }
            let (link, machine) = (opening::link(), machine());
            let odds = match &self.engine {
                Engine::Auto(auto) => auto.odds(&auto.forecast(&plans, &job)),
                engine => {
                    let times =
                        Times::new(&plans, &job, machine, link.unwrap_or(Link::ASSUMED)).pair();
                    let times = auto::known().corrected(kind(&plans, &job), times);
                    let no_gpu = matches!(engine, Engine::Cpu(_)) && Gpu::driver().is_err();
                    let readiness = if no_gpu { Readiness::Never } else { opening::readiness() };
                    Odds { times, readiness, setup: job.load.setup().1, lost: 0.0, tries: false }
                }
            };
            (machine, link, odds)
        };
        #[cfg(not(feature = "gpu"))]
        let (machine, link, odds) = {
            let times = Times::new(&plans, &job, Machine::H200, Link::ASSUMED).pair();
            (
                Machine::H200,
                None,
                Odds { times, readiness: Readiness::Never, setup: 0.0, lost: 0.0, tries: false },
            )
        };
        let Odds { times, readiness, setup, .. } = odds;
        let parts = Times::new(&plans, &job, machine, link.unwrap_or(Link::ASSUMED)).gpu;
        let gpu = parts.filter(|_| readiness != Readiness::Never).map(|parts| GpuEstimate {
            total: time(times.gpu),
            link: time(parts.link),
            kernel: time(parts.kernel),
            staging: time(parts.staging),
            call: time(parts.call),
            setup: time(setup),
            opening: time(match readiness {
                Readiness::Closed { cost, .. } => cost,
                Readiness::UnderWay => auto::OPENING,
                _ => 0.0,
            }),
            measured: link.map(|link| (link.up, link.down)),
        });
        let device =
            if odds.verdict().place() == Where::Cpu { Device::Cpu } else { Device::Gpu(0) };
        let cpu = times.cpu.is_finite().then(|| time(times.cpu));
        let why = match self.fallback() {
            Some(Error::NoGpu { reason }) => reason.clone(),
            Some(error) => error.to_string(),
            None => odds.why(),
        };
        CallEstimate { device, why, cpu, threads, gpu }
    }
}

/// The GPU that calls may use, or an H200 as long as none is open.
#[cfg(feature = "gpu")]
fn machine() -> Machine {
    let gpu = opening::link().and_then(|_| Gpu::open(opening::ORDINAL).ok());
    gpu.map_or(Machine::H200, |gpu| gpu.machine())
}

/// Whether a given variant takes a problem.
fn takes(problem: &Problem, variant: Variant) -> bool {
    match problem.place {
        Place::Cpu { .. } => problem.check_on_cpu(variant).is_ok(),
        #[cfg(feature = "gpu")]
        Place::Gpu(_) => problem.prepare(variant).is_ok(),
        #[cfg(not(feature = "gpu"))]
        Place::Gpu(_) => true,
    }
}
