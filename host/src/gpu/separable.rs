//! Launches the separable family, `gpu-kernels/src/separable.rs`: the row pass into scratch, the column pass out of it.

use gpu_kernels::abi::{
    COLUMNS_BLOCK, COLUMNS_TILE, Frame, Original, ROWS_BLOCK, ROWS_TILE, SEPARABLE_COLUMNS, SEPARABLE_ROWS, TAPS_CHUNK,
    Window, columns_shared, rows_shared,
};

use super::engine::{Grid, TapSet, argument};
use super::stream::Stream;
use crate::Result;

/// Puts both passes into the stream.
pub(super) fn launch(
    frame: Frame,
    planes: usize,
    window: Window,
    row: &TapSet,
    column: &TapSet,
    stream: &mut Stream,
) -> Result<()> {
    // The intermediate image is laid out as the destination.
    let middle = stream.scratch(laid_out(&frame, planes))?;

    let first = Frame { dst: middle, ..frame };
    let (entry, taps, at_once) = pass(SEPARABLE_ROWS, "separable_rows", row);
    let tile = (ROWS_TILE as u32, ROWS_BLOCK.1);
    let grid = Grid::covering(&frame, tile, ROWS_BLOCK, rows_shared(at_once)).stepping(&stream.gpu);
    let pointer = row.pointer();
    let taps = taps.unwrap_or(argument(&pointer));
    // SAFETY: the row pass takes the frame, the window and its taps: themselves where the entry knows their number, else
    // a pointer. Scratch is as large as the destination.
    unsafe { grid.launch(entry, first, planes, &[argument(&window), taps], stream)? };

    let original = Original { src: frame.src, stride: frame.src_stride, plane: frame.src_plane };
    let second = Frame {
        src: middle,
        src_stride: frame.dst_stride,
        src_plane: frame.dst_plane,
        border_value: outside(&frame, row),
        ..frame
    };
    let (entry, taps, at_once) = pass(SEPARABLE_COLUMNS, "separable_columns", column);
    let tile = (COLUMNS_BLOCK.0, COLUMNS_TILE as u32);
    let grid = Grid::covering(&frame, tile, COLUMNS_BLOCK, columns_shared(at_once)).stepping(&stream.gpu);
    let pointer = column.pointer();
    let taps = taps.unwrap_or(argument(&pointer));
    // SAFETY: the column pass takes the original image as well.
    unsafe { grid.launch(entry, second, planes, &[argument(&window), argument(&original), taps], stream) }
}

/// Floats from the first pixel of an image laid out as the destination to the last.
fn laid_out(frame: &Frame, planes: usize) -> usize {
    (planes - 1) * frame.dst_plane + (frame.height as usize - 1) * frame.dst_stride + frame.width as usize
}

/// What lies outside the image after the row pass: a row that holds the border's value everywhere has its filtered value
/// everywhere.
fn outside(frame: &Frame, row: &TapSet) -> f32 {
    row.host.iter().fold(0.0, |sum, &tap: &f32| tap.mul_add(frame.border_value, sum))
}

/// The entry for this many taps, its by-value taps if it takes them so, and how many taps it takes at a time.
fn pass(
    unrolled: &'static [(i32, &'static str)],
    any: &'static str,
    taps: &TapSet,
) -> (&'static str, Option<*const std::ffi::c_void>, i32) {
    let found = unrolled.iter().find(|&&(count, _)| count as usize == taps.host.len());
    match (found, &taps.constant) {
        (Some(&(count, entry)), Some(constant)) => (entry, Some(argument(&**constant)), count),
        _ => (any, None, TAPS_CHUNK),
    }
}
