//! The magnitude or the angle of a gradient: launches `gpu-kernels/src/kernels/gradient.rs`.

use std::sync::Arc;

use gpu_kernels::kernels::gradient::{BLOCK, FLAT, STRIP, gradient_any};

use super::prepared::{Launcher, PassJob, Prepared};
use super::sliding::Strips;
use super::taken::Taken;
use crate::Result;
use crate::gpu::{launch::Grid, stream::Stream};
use crate::plan::ran::Ran;
use crate::problem::Problem;

/// The kernel for a gradient.
pub(crate) fn prepare(problem: &Problem, is_angle: bool) -> Prepared {
    let strips =
        if is_angle { None } else { Strips::find(Taken::Weights, (STRIP, FLAT), problem).ok() };
    Prepared { ran: Ran::Gradient, launcher: Arc::new(Launch { strips, is_angle }) }
}

#[derive(Debug)]
struct Launch {
    /// The kernels that slide, if one of them takes the problem.
    strips: Option<Strips>,
    is_angle: bool,
}

impl Launcher for Launch {
    fn launch(&self, job: &PassJob<'_>, stream: &mut Stream) -> Result<()> {
        let [side, centre] = *job.taps.weights();
        match &self.strips {
            Some(strips) => strips.launch(job, stream),
            None => {
                let grid = Grid::covering(&job.pass.region, job.pass.region.x0, BLOCK, BLOCK);
                let grid = stream.gpu().fitting(grid, job.planes);
                // SAFETY: the kernel takes any grid of such blocks; the pass describes allocated
                // memory.
                unsafe {
                    stream.enqueue(
                        gradient_any,
                        grid,
                        &(job.pass, side, centre, i32::from(self.is_angle)),
                    )
                }
            }
        }
    }

    fn takes_pixels(&self) -> bool {
        self.strips.as_ref().is_some_and(Strips::takes_pixels)
    }
}
