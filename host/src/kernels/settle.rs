//! Computes in f64 the bytes that f32 sums leave in doubt: launches `gpu-kernels/src/kernels/settle.rs`.

use gpu_kernels::abi::Doubts;
use gpu_kernels::kernels::settle::{BLOCK, SHARED, settle, settle_ties};

use super::prepared::Job;
use crate::Result;
use crate::gpu::{launch::Grid, stream::Stream};
use crate::round::Uncertainty;

/// Settles the results in the list of the job's pass, whose channels are those that are filtered.
pub(crate) fn launch(job: &Job<'_>, uncertainty: &Uncertainty, stream: &mut Stream) -> Result<()> {
    let grid = Grid { blocks: (Doubts::SEGMENTS as u32, 1, 1), block: (BLOCK.0, BLOCK.1, 1), shared: SHARED };
    // Taps that are kept one by one may differ from the product by their own rounding.
    let product = job.taps.filter().dense_f64().is_none();
    let (row, column) = if product { job.taps.exact_pairs_in_memory()?[0] } else { (0, 0) };
    let arguments =
        (job.pass, job.window, job.taps.exact_in_memory()?, row, column, uncertainty.reordering, job.planes as i32);
    let entry = if uncertainty.ties { settle_ties } else { settle };
    // SAFETY: the kernels take any number of such blocks; the pass has a list, and describes allocated memory.
    unsafe { stream.enqueue(entry, grid, &arguments) }
}
