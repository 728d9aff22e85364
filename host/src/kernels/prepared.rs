//! Preparation as a value: for a problem, a kernel returns a finished launch, or the reason why it cannot run.

use std::fmt::Debug;

#[cfg(feature = "gpu")]
use crate::gpu::{stream::Stream, taps::TapHomes};
use crate::plan::machine::Machine;
use crate::plan::problem::Problem;
use crate::{Variant, Why};

/// A variant's entries, preparation and cost.
pub(crate) struct Kernel {
    pub(crate) variant: Variant,
    /// Every entry it may launch.
    pub(crate) entries: fn() -> Vec<&'static str>,
    /// Finds the entries for a problem.
    pub(crate) prepare: fn(&Problem) -> Result<Prepared, Why>,
    /// Microseconds that a million results take on a machine.
    pub(crate) cost: fn(&Problem, &Machine) -> f64,
}

/// A kernel prepared for a problem, ready for any pass of it.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) variant: Variant,
    pub(crate) work: Box<dyn Work>,
}

impl Prepared {
    pub(crate) fn new(variant: Variant, work: impl Work + 'static) -> Self {
        Self { variant, work: Box::new(work) }
    }
}

/// The launch of a prepared kernel.
pub(crate) trait Work: Debug + Send + Sync {
    /// Puts the kernels into the stream.
    #[cfg(feature = "gpu")]
    fn launch(&self, job: &Job<'_>, stream: &mut Stream) -> crate::Result<()>;
}

/// The work of a launch: a pass of the problem that it was prepared for.
#[cfg(feature = "gpu")]
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) pass: gpu_kernels::abi::Pass,
    /// Channels of an image.
    pub(crate) channels: u32,
    /// Channels of all images.
    pub(crate) planes: u32,
    pub(crate) window: gpu_kernels::abi::Window,
    /// The filter's taps, in each place that kernels read them from.
    pub(crate) taps: &'a TapHomes,
}
