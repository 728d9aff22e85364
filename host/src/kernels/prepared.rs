//! Preparation is a value: a kernel makes of a problem what is ready to be launched, or says why not.

use std::fmt::Debug;

#[cfg(feature = "gpu")]
use crate::gpu::{stream::Stream, taps::TapHomes};
use crate::plan::machine::Machine;
use crate::plan::problem::Problem;
use crate::{Variant, Why};

/// What is known of a variant.
pub(crate) struct Kernel {
    pub(crate) variant: Variant,
    /// Every entry it may launch.
    pub(crate) entries: fn() -> Vec<&'static str>,
    /// Finds the entries for a problem.
    pub(crate) prepare: fn(&Problem) -> Result<Prepared, Why>,
    /// Microseconds that a million results take on a machine.
    pub(crate) cost: fn(&Problem, &Machine) -> f64,
}

/// A kernel with all that it found for a problem, ready for any pass of it.
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

/// How what was prepared is launched.
pub(crate) trait Work: Debug + Send + Sync {
    /// Puts the kernels into the stream.
    #[cfg(feature = "gpu")]
    fn launch(&self, job: &Job<'_>, stream: &mut Stream) -> crate::Result<()>;
}

/// What a launch works on: a pass of the problem that was prepared.
#[cfg(feature = "gpu")]
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) pass: gpu_kernels::abi::Pass,
    /// Channels of an image.
    pub(crate) channels: u32,
    /// Channels of all images.
    pub(crate) planes: u32,
    pub(crate) window: gpu_kernels::abi::Window,
    /// The filter's taps, in the homes that kernels read them from.
    pub(crate) taps: &'a TapHomes,
}
