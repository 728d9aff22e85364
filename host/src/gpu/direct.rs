//! Launches the direct family, `gpu-kernels/src/direct.rs`.

use gpu_kernels::abi::{DIRECT_BLOCK, DIRECT_UNROLLED, DIRECT_UNROLLED_PIXELS, Frame, MAX_CONSTANT_TAPS, Window};

use super::engine::{Grid, TapSet, argument};
use super::stream::Stream;
use crate::{Result, Variant};

/// Puts one direct variant into the stream.
pub(super) fn launch(
    variant: Variant,
    frame: Frame,
    planes: usize,
    window: Window,
    taps: &TapSet,
    stream: &mut Stream,
) -> Result<()> {
    let tile = 4 * (DIRECT_BLOCK.0 + window.cols as u32 - 1) * (DIRECT_BLOCK.1 + window.rows as u32 - 1);
    let constant = taps.host.len() <= MAX_CONSTANT_TAPS;
    let (width, height) = DIRECT_BLOCK;
    let unrolled = unrolled(window).filter(|_| variant == Variant::DirectUnrolled);
    let (entry, block, shared) = match (variant, unrolled) {
        (Variant::DirectNaive, _) => ("direct_naive", DIRECT_BLOCK, 0),
        (Variant::DirectConstant, _) => ("direct_constant", DIRECT_BLOCK, 0),
        (_, Some(entry)) => (entry, (width, height / DIRECT_UNROLLED_PIXELS), tile),
        _ if constant => ("direct_shared", DIRECT_BLOCK, tile),
        _ => ("direct_shared_buffer", DIRECT_BLOCK, tile),
    };
    let pointer = taps.pointer();
    let taps = match &taps.constant {
        Some(constant) if entry != "direct_naive" => argument(&**constant),
        _ => argument(&pointer),
    };
    let grid = Grid::covering(&frame, DIRECT_BLOCK, block, shared).stepping(&stream.gpu);
    // SAFETY: every entry of the family takes the frame, the window and its taps: a pointer for `direct_naive` and
    // wherever there are more than the constant bank takes, else the taps themselves.
    unsafe { grid.launch(entry, frame, planes, &[argument(&window), taps], stream) }
}

/// The entry whose window size the compiler knew, if there is one of this size.
fn unrolled(window: Window) -> Option<&'static str> {
    DIRECT_UNROLLED.iter().find(|&&(size, _)| window.cols == size && window.rows == size).map(|&(_, entry)| entry)
}
