//! Computes in f64 the bytes that f32 sums leave in doubt: launches `settle.rs`, `wide.rs`, `ties.rs` or `means.rs` in `gpu-kernels/src/kernels`.

use gpu_kernels::abi::Doubts;
use gpu_kernels::kernels::{means, settle, ties, wide};

use super::prepared::Job;
use crate::Result;
use crate::gpu::{launch::Grid, stream::Stream};
use crate::round::Uncertainty;

/// Settles the results in the list of the job's pass, whose channels are those that are filtered.
pub(crate) fn launch(job: &Job<'_>, uncertainty: &Uncertainty, stream: &mut Stream) -> Result<()> {
    let grid = |block: (u32, u32), shared| Grid {
        blocks: (Doubts::SEGMENTS as u32, 1, 1),
        block: (block.0, block.1, 1),
        shared,
    };
    let (taps, planes) = (job.taps.exact_in_memory()?, job.planes as i32);
    // SAFETY: the kernels take any number of such blocks; the pass has a list, and describes allocated memory.
    unsafe {
        let count = job.window.cols * job.window.rows;
        let equal = job.taps.filter().equal_tap().filter(|&tap| tap > 0.0 && count >= means::LEAST);
        if let (true, Some(tap)) = (uncertainty.ties, equal) {
            let arguments = (job.pass, job.window, tap, planes);
            return stream.enqueue(means::settle_means, grid(means::BLOCK, means::SHARED), &arguments);
        }
        if uncertainty.ties {
            let arguments = (job.pass, job.window, taps, planes);
            return stream.enqueue(ties::settle_ties, grid(ties::BLOCK, ties::SHARED), &arguments);
        }
        if count >= wide::LEAST {
            let arguments = (job.pass, job.window, taps, uncertainty.reordering, planes);
            return stream.enqueue(wide::settle_wide, grid(wide::BLOCK, wide::SHARED), &arguments);
        }
        // Taps that are kept one by one may differ from the product by their own rounding.
        let product = job.taps.filter().dense_f64().is_none();
        let (row, column) = if product { job.taps.exact_pairs_in_memory()?[0] } else { (0, 0) };
        let arguments = (job.pass, job.window, taps, row, column, uncertainty.reordering, planes);
        stream.enqueue(settle::settle, grid(settle::BLOCK, settle::SHARED), &arguments)
    }
}
