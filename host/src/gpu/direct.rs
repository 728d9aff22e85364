//! Launches the direct family, `gpu-kernels/src/direct.rs`.

use gpu_kernels::abi::{DIRECT_BLOCK, DIRECT_UNROLLED, Frame, MAX_CONSTANT_TAPS, Window};

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
    stream: &Stream,
) -> Result<()> {
    let tile = 4 * (DIRECT_BLOCK.0 + window.cols as u32 - 1) * (DIRECT_BLOCK.1 + window.rows as u32 - 1);
    let constant = taps.host.len() <= MAX_CONSTANT_TAPS;
    let (entry, shared) = match variant {
        Variant::DirectNaive => ("direct_naive", 0),
        Variant::DirectConstant => ("direct_constant", 0),
        Variant::DirectUnrolled if unrolled(window).is_some() => (unrolled(window).unwrap_or_default(), tile),
        _ if constant => ("direct_shared", tile),
        _ => ("direct_shared_buffer", tile),
    };
    let pointer = taps.pointer();
    let taps = match &taps.constant {
        Some(constant) if entry != "direct_naive" => argument(&**constant),
        _ => argument(&pointer),
    };
    let grid = Grid { tile: DIRECT_BLOCK, block: DIRECT_BLOCK, shared };
    // SAFETY: every entry of the family takes the frame, the window and its taps: a pointer for `direct_naive` and
    // wherever there are more than the constant bank takes, else the taps themselves.
    unsafe { grid.launch(entry, frame, planes, &[argument(&window), taps], stream) }
}

/// The entry whose window size the compiler knew, if there is one of this size.
fn unrolled(window: Window) -> Option<&'static str> {
    DIRECT_UNROLLED.iter().find(|&&(size, _)| window.cols == size && window.rows == size).map(|&(_, entry)| entry)
}
