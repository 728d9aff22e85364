//! Computes in f64 the bytes that f32 sums leave in doubt: launches `gpu-kernels/src/kernels/settle.rs`.

use gpu_kernels::abi::Doubts;
use gpu_kernels::kernels::settle::{BLOCK, SHARED, settle};

use super::prepared::Job;
use crate::Result;
use crate::gpu::{launch::Grid, stream::Stream};

/// Settles the results in the list of the job's pass, whose channels are those that are filtered. f64 sums in two orders are at most
/// `reordering` apart.
pub(crate) fn launch(job: &Job<'_>, reordering: f64, stream: &mut Stream) -> Result<()> {
    let grid = Grid { blocks: (Doubts::SEGMENTS as u32, 1, 1), block: (BLOCK.0, BLOCK.1, 1), shared: SHARED };
    // Taps that are kept one by one may differ from the product by their own rounding.
    let product = job.taps.filter().dense_f64().is_none();
    let (row, column) = if product { job.taps.exact_pair_in_memory()? } else { (0, 0) };
    let arguments = (job.pass, job.window, job.taps.exact_in_memory()?, row, column, reordering, job.planes as i32);
    // SAFETY: the kernel takes any number of such blocks; the pass has a list, and describes allocated memory.
    unsafe { stream.enqueue(settle, grid, &arguments) }
}
