//! What a plan runs on: the CPU, GPUs that share work, or the one that is faster for each call.

#[cfg(feature = "gpu")]
use std::collections::BTreeMap;
#[cfg(feature = "gpu")]
use std::ops::Deref;
#[cfg(feature = "gpu")]
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

#[cfg(feature = "gpu")]
use super::auto::{Kind, Pair};
#[cfg(feature = "gpu")]
use super::schedule::Limits;
use crate::cpu;
#[cfg(feature = "gpu")]
use crate::gpu::lane::Idle;
#[cfg(feature = "gpu")]
use crate::gpu::{Gpu, Tuned, engine};
use crate::problem::Place;
#[cfg(feature = "gpu")]
use crate::{Border, Device, Error, Filter, Gradient, Result};

#[derive(Debug)]
pub(super) enum Engine {
    Cpu(Box<cpu::Engine>),
    #[cfg(feature = "gpu")]
    Gpu(OnGpus),
    /// The CPU or the first GPU, as each call is faster.
    #[cfg(feature = "gpu")]
    Auto(Box<Auto>),
}

/// A plan's GPUs.
#[cfg(feature = "gpu")]
#[derive(Debug)]
pub(crate) struct OnGpus {
    /// One for each GPU, at least one.
    pub(crate) engines: Vec<engine::Engine>,
    /// The idle lanes of each.
    pub(crate) idle: Vec<Idle>,
    /// The fastest variants by measurement, if autotuning is on.
    pub(crate) tuned: Option<Tuned>,
}

#[cfg(feature = "gpu")]
impl OnGpus {
    /// GPUs that share work. They must be of the same model: the choice of a kernel depends on the
    /// GPU, and results may depend on the kernel.
    pub(super) fn new(
        step: (&Filter, Option<Gradient>),
        border: Border,
        (limits, autotune): (&Limits, bool),
        device: Device,
        ordinals: &mut dyn Iterator<Item = u32>,
    ) -> Result<Self> {
        let engine = |ordinal| engine::Engine::new(step, border, ordinal, limits.clone());
        let engines = ordinals.map(engine).collect::<Result<Vec<_>>>()?;
        let kind = |engine: &engine::Engine| {
            let info = engine.gpu().info();
            (info.name.clone(), info.capability, info.shared_memory)
        };
        let mut kinds = engines.iter().map(kind);
        let first = kinds
            .next()
            .ok_or_else(|| Error::NoGpu { reason: "the list of GPUs is empty".into() })?;
        if let Some(other) = kinds.find(|other| *other != first) {
            let expected = "GPUs of the same model; choose one with gpu:N (Device::Gpu)".to_owned();
            let value = format!("{device}, which are {} and {}", first.0, other.0);
            return Err(Error::Parameter { name: "device", value, expected });
        }
        let tuned = autotune.then(|| Tuned::new(engines[0].gpu()));
        let idle = engines.iter().map(|_| Idle::default()).collect();
        Ok(Self { engines, idle, tuned })
    }

    /// The engine for a GPU; without one, the first, which refuses another GPU's memory.
    pub(crate) fn engine_of(&self, gpu: &Gpu) -> &engine::Engine {
        let same = |engine: &&engine::Engine| engine.gpu().info().ordinal == gpu.info().ordinal;
        self.engines.iter().find(same).unwrap_or(&self.engines[0])
    }
}

/// The device of one call.
#[derive(Clone, Copy)]
pub(crate) enum On<'p> {
    Cpu(&'p cpu::Engine),
    #[cfg(feature = "gpu")]
    Gpu(&'p OnGpus),
}

impl On<'_> {
    pub(crate) fn place(&self) -> Place {
        match self {
            Self::Cpu(_) => Place::Cpu { threads: rayon::current_num_threads() },
            #[cfg(feature = "gpu")]
            Self::Gpu(gpus) => Place::Gpu(gpus.engines[0].gpu().machine()),
        }
    }
}

/// Both devices of a plan that may choose.
#[cfg(feature = "gpu")]
#[derive(Debug)]
pub(crate) struct Auto {
    pub(super) cpu: cpu::Engine,
    pub(super) settings: (Limits, bool),
    pub(super) cpu_times: f64,
    /// The GPU that calls may use.
    pub(super) gpu: OnceLock<OnGpus>,
    /// For images in the memory of other GPUs.
    pub(super) others: Mutex<BTreeMap<u32, Arc<OnGpus>>>,
    setup: Mutex<Setup>,
    /// The last call's forecast.
    pub(super) last: Mutex<Option<(Vec<u64>, Forecast)>>,
}

/// The state of a plan on the GPU.
#[cfg(feature = "gpu")]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setup {
    /// Whether a call has run there.
    pub(super) done: bool,
    /// Bytes of its pinned memory.
    pub(super) pinned: f64,
    /// Seconds that calls have lost because the GPU was not set up.
    pub(super) lost: f64,
}

/// A call's predicted times, uncorrected.
#[cfg(feature = "gpu")]
#[derive(Clone, Copy, Debug)]
pub(super) struct Forecast {
    pub(super) kind: Kind,
    pub(super) times: Pair,
    /// Bytes of pinned memory that it needs, and the seconds to set it up.
    pub(super) setup: (f64, f64),
}

/// A plan's GPUs, of the plan itself or shared.
#[cfg(feature = "gpu")]
pub(crate) enum Held<'p> {
    Own(&'p OnGpus),
    Shared(Arc<OnGpus>),
}

#[cfg(feature = "gpu")]
impl Deref for Held<'_> {
    type Target = OnGpus;

    fn deref(&self) -> &OnGpus {
        match self {
            Self::Own(gpus) => gpus,
            Self::Shared(gpus) => gpus,
        }
    }
}

#[cfg(feature = "gpu")]
impl Auto {
    pub(super) fn new(cpu: cpu::Engine, settings: (Limits, bool), cpu_times: f64) -> Self {
        Self {
            cpu,
            settings,
            cpu_times,
            gpu: OnceLock::new(),
            others: Mutex::default(),
            setup: Mutex::default(),
            last: Mutex::default(),
        }
    }

    /// Each of its numbers is valid by itself.
    pub(super) fn setup(&self) -> MutexGuard<'_, Setup> {
        self.setup.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
