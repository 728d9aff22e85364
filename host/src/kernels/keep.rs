//! Copies the pixels that a border copies, for kernels that do not do it, those that results hardly
//! change, and whole channels: launches `gpu-kernels/src/kernels/keep.rs`.

use gpu_kernels::abi::Pass;
use gpu_kernels::border::{REPLICATE, copies};
use gpu_kernels::kernels::keep::{BLOCK, copy_pixels, keep_edges, keep_nearly_same};

use super::prepared::PassJob;
use crate::Result;
use crate::gpu::{launch::Grid, stream::Stream};

/// The pass for a kernel that leaves copies to [`restore`]: any rule that copies nothing serves, as
/// [`restore`] overwrites the results there.
pub(super) fn left_out(pass: Pass) -> Pass {
    Pass { border: if copies(pass.border) { REPLICATE } else { pass.border }, ..pass }
}

/// Copies the pixels that the border copies.
pub(super) fn restore(job: &PassJob<'_>, stream: &mut Stream) -> Result<()> {
    if !copies(job.pass.border) {
        return Ok(());
    }
    // One block takes whole rows.
    let grid = Grid::covering(&job.pass.region, job.pass.region.x0, (u32::MAX, BLOCK.1), BLOCK);
    let grid = stream.gpu().fitting(grid, job.planes);
    // SAFETY: the kernel takes any grid of such blocks; the pass describes allocated memory.
    unsafe { stream.enqueue(keep_edges, grid, &(job.pass, job.window)) }
}

/// Copies the pixels from which the results of a pass, which are stored, differ by less.
pub(crate) fn restore_nearly_same(
    pass: &Pass,
    least: f64,
    planes: u32,
    stream: &mut Stream,
) -> Result<()> {
    let grid = Grid::covering(&pass.region, pass.region.x0, BLOCK, BLOCK);
    let grid = stream.gpu().fitting(grid, planes);
    // SAFETY: the kernel takes any grid of such blocks; the pass describes allocated memory.
    unsafe { stream.enqueue(keep_nearly_same, grid, &(*pass, least as f32)) }
}

/// Copies the pixels of a pass's source to its results.
pub(crate) fn copy(pass: &Pass, planes: u32, stream: &mut Stream) -> Result<()> {
    let grid = Grid::covering(&pass.region, pass.region.x0, BLOCK, BLOCK);
    let grid = stream.gpu().fitting(grid, planes);
    // SAFETY: the kernel takes any grid of such blocks; the pass describes allocated memory.
    unsafe { stream.enqueue(copy_pixels, grid, &(*pass,)) }
}
