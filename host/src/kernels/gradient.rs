//! The magnitude or the angle of a gradient: launches `gpu-kernels/src/kernels/gradient.rs`.

use gpu_kernels::abi::Pass;
use gpu_kernels::abi::scalar::U8;
use gpu_kernels::border::CONSTANT;
use gpu_kernels::kernels::gradient::{BLOCK, FLAT, STRIP, gradient_any, gradient_exact};

use super::prepared::{Job, Prepared, Taken, Work};
use super::sliding::Strips;
use crate::Result;
use crate::gpu::{launch::Grid, stream::Stream};
use crate::plan::problem::Problem;
use crate::plan::ran::Ran;
use crate::round::gradient_is_exact;

/// The kernel for a gradient.
pub(crate) fn prepare(problem: &Problem, is_angle: bool) -> Prepared {
    let strips = if is_angle { None } else { Strips::find(Taken::Weights, (STRIP, FLAT), problem).ok() };
    Prepared { ran: Ran::Gradient, work: Box::new(Launch { strips, is_angle }) }
}

#[derive(Debug)]
struct Launch {
    /// The kernels that slide, if one of them takes the problem.
    strips: Option<Strips>,
    is_angle: bool,
}

impl Work for Launch {
    fn launch(&self, job: &Job<'_>, stream: &mut Stream) -> Result<()> {
        let [side, centre] = *job.taps.weights();
        match &self.strips {
            Some(strips) => strips.launch(job, stream)?,
            None => {
                let grid = Grid::covering(&job.pass.region, job.pass.region.x0, BLOCK, BLOCK);
                let grid = stream.gpu().fitting(grid, job.planes);
                // SAFETY: the kernel takes any grid of such blocks; the pass describes allocated memory.
                unsafe { stream.enqueue(gradient_any, grid, &(job.pass, side, centre, i32::from(self.is_angle)))? };
            }
        }
        if self.is_angle || !needs_exact(&job.pass) {
            return Ok(());
        }
        // One block takes whole rows.
        let grid = Grid::covering(&job.pass.region, job.pass.region.x0, (u32::MAX, BLOCK.1), BLOCK);
        let grid = stream.gpu().fitting(grid, job.planes);
        let channels = (job.channels as i32, job.filtered as i32);
        let arguments = (job.pass, job.window, f64::from(side), f64::from(centre), channels.0, channels.1);
        // SAFETY: as above; source and destination are bytes.
        unsafe { stream.enqueue(gradient_exact, grid, &arguments) }
    }

    fn takes_pixels(&self) -> bool {
        self.strips.as_ref().is_some_and(Strips::takes_pixels)
    }
}

/// Whether bytes made of bytes meet something outside the image that f32 does not decide.
fn needs_exact(pass: &Pass) -> bool {
    (pass.src.scalar, pass.dst.scalar) == (U8, U8)
        && pass.border == CONSTANT
        && pass.epilogue.flags == 0
        && !gradient_is_exact(pass.outside)
}
