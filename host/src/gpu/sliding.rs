//! Launches the kernels that slide down strips of the image, `gpu-kernels/src/sliding.rs` and `gpu-kernels/src/fused.rs`.

use gpu_kernels::abi::{ConstantTaps, FUSED, Frame, SLIDING, Sliding, Window, ring_floats};
use gpu_kernels::border::{KEEP, REPLICATE};

use super::engine::{Grid, argument};
use super::stream::Stream;
use crate::{Result, Variant, tuning};

/// The entry of a sliding variant for this window; `None` for other variants.
pub(super) fn entry(variant: Variant, window: &Window) -> Option<&'static Sliding> {
    let table = match variant {
        Variant::DirectSliding => SLIDING,
        Variant::SeparableFused => FUSED,
        _ => return None,
    };
    let size = |taps| window.cols == taps && window.rows == taps && window.anchor_x == taps / 2;
    table.iter().find(|kernel| size(kernel.taps))
}

/// Puts a sliding kernel into the stream; then, if the border says so, the one that copies the pixels to keep.
pub(super) fn launch(
    kernel: &Sliding,
    frame: Frame,
    planes: usize,
    window: Window,
    taps: &ConstantTaps,
    stream: &mut Stream,
) -> Result<()> {
    let strip = 32 * kernel.pixels as u32;
    let across = (frame.width as u32).div_ceil(strip);
    let warps = tuning::WARPS.min(across);
    let shared = 4 * warps * ring_floats(kernel.taps, kernel.pixels, kernel.stages) as u32;
    let slots = stream.gpu.resident_blocks(kernel.entry, 32 * warps, shared)? * u64::from(warps);
    let rows = tuning::strip_rows(kernel, frame.height as u32, u64::from(across) * planes as u64, slots);
    let grid = Grid::covering(&frame, (warps * strip, rows), (32, warps), shared).stepping(&stream.gpu);
    let rows = rows as i32;
    let arguments = [argument(&window.anchor_y), argument(&rows), argument(taps)];
    // SAFETY: both families take the frame, the anchor's row, the rows of a strip and their taps; device images have rows
    // aligned to 32 bytes at least, less than 4 GiB apart.
    unsafe { grid.launch(kernel.entry, without_keep(frame), planes, &arguments, stream)? };
    keep_edges(frame, planes, window, stream)
}

/// The frame for a kernel that leaves KEEP to [`keep_edges`]: any rule will do where its results are copied over.
pub(super) fn without_keep(frame: Frame) -> Frame {
    Frame { border: if frame.border == KEEP { REPLICATE } else { frame.border }, ..frame }
}

/// Copies the pixels that a KEEP border keeps; does nothing under another.
pub(super) fn keep_edges(frame: Frame, planes: usize, window: Window, stream: &mut Stream) -> Result<()> {
    if frame.border != KEEP {
        return Ok(());
    }
    let rows = (frame.height as u32).div_ceil(8);
    let grid = Grid { blocks: (1, rows), block: (32, 8), shared: 0 }.stepping(&stream.gpu);
    // SAFETY: the kernel takes the frame and the window; any grid will do.
    unsafe { grid.launch("keep_edges", frame, planes, &[argument(&window)], stream) }
}
