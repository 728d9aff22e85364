//! Colours weighted by alpha: launches `gpu-kernels/src/kernels/weighted.rs`.

use gpu_kernels::kernels::weighted::{BLOCK, weighted};

use super::prepared::{Job, Prepared, Work};
use crate::Result;
use crate::gpu::{launch::Grid, stream::Stream};
use crate::plan::ran::Ran;

/// The kernel for pixels whose last channel is alpha.
pub(crate) fn prepare() -> Prepared {
    Prepared { ran: Ran::Weighted, work: Box::new(Launch) }
}

#[derive(Debug)]
struct Launch;

impl Work for Launch {
    fn launch(&self, job: &Job<'_>, stream: &mut Stream) -> Result<()> {
        let grid = Grid::covering(&job.pass.region, job.pass.region.x0, BLOCK, BLOCK);
        let grid = stream.gpu().fitting(grid, job.planes / job.channels);
        let arguments = (job.pass, job.window, job.taps.exact_in_memory()?, job.channels as i32 - 1);
        // SAFETY: the kernel takes any grid of such blocks; the pass describes allocated memory, with all channels of its images.
        unsafe { stream.enqueue(weighted, grid, &arguments) }
    }

    fn takes_pixels(&self) -> bool {
        true
    }
}
