//! What kernels on the tensor cores share: what problems they take, taps in digits, where a tile's rows lie, and the launch. Goes with
//! `gpu-kernels/src/tile/whole.rs`.

use gpu_kernels::abi::scalar;
use gpu_kernels::tile::flat::takes_outside;
#[cfg(feature = "gpu")]
use gpu_kernels::{
    abi::Pass,
    entry::Entry,
    tile::whole::{BLOCK, Frame, WIDTH},
};

#[cfg(feature = "gpu")]
use super::prepared::Job;
#[cfg(feature = "gpu")]
use crate::gpu::{launch::Grid, stream::Stream};
use crate::plan::problem::Problem;
use crate::{Scalar, Why};

/// What a problem's kernel depends on of its taps as whole numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Digits {
    /// Digits of a tap: 1 to 3.
    pub(crate) count: u32,
    /// The share of results that are in doubt if sums are spread evenly.
    pub(crate) share: f64,
}

/// The same for a filter, as far as its taps have such forms.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Numbers {
    /// All taps of the window.
    pub(crate) window: Option<Digits>,
    /// A row and a column, whose digits are three: the share of results that are in doubt.
    pub(crate) pair: Option<f64>,
}

/// Microseconds to settle a million results, for each tap.
pub(super) const SETTLE: f64 = 10.0;

/// The cost of a problem that a kernel declines: longer than anything else takes.
pub(super) const DECLINED: f64 = 1e9;

/// The greatest tap in three digits: 127 in each.
pub(super) const GREATEST: f64 = 8_355_711.0;

/// A digit of a number to the base 256, -128 to 127, from the lowest on.
pub(super) fn digit(number: i32, digit: u32) -> i8 {
    // What is left of a number after its lowest digit was taken off.
    let rest = (0..digit).fold(number, |rest, _| (rest - i32::from(rest as i8)) >> 8);
    rest as i8
}

/// The channels side by side, if kernels on the tensor cores take them, and the types, the border and the width.
pub(super) fn channels(problem: &Problem) -> Result<usize, Why> {
    let Problem { source, target, width, border, side_by_side: channels, .. } = *problem;
    if (source, target) != (Scalar::U8, Scalar::U8) {
        return Err("it makes bytes of bytes alone".into());
    }
    let (mode, outside) = border.code();
    if !takes_outside(scalar::U8, mode, outside) {
        return Err(format!("outside the image is {outside}, which is no byte").into());
    }
    if !(1..=4).contains(&channels) {
        return Err(format!("{channels} channels are side by side, it takes 4").into());
    }
    if width.saturating_mul(channels) > 1 << 30 {
        return Err(format!("{width} columns of {channels} channels, it takes 2^30 values").into());
    }
    Ok(channels)
}

/// Where the bytes of a row begin that a tile's values need.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Begin {
    /// How many bytes left of a tile its rows begin: a multiple of 16.
    pub(super) left: usize,
    /// How far behind that the first lane's first word is, and how many bytes of it are not needed.
    pub(super) base: usize,
    pub(super) lead: usize,
}

impl Begin {
    pub(super) fn of(channels: usize, anchor_x: usize) -> Self {
        let ahead = channels * anchor_x;
        let left = ahead.next_multiple_of(16);
        Self { left, base: (left - ahead) & !3, lead: (left - ahead) & 3 }
    }
}

/// Puts a kernel into the stream that walks tiles, as many blocks as run at a time; then, if the border says so, the one that copies the
/// pixels to keep. A tile has the one of these heights with which all tiles are soonest done; `bands` are made for its rows, `frame` but for
/// the height.
///
/// # Safety
/// As for the kernel: `find` checked its limits, `bands` are made for it, and the pass describes allocated memory, and has a list if
/// results may be in doubt.
#[cfg(feature = "gpu")]
pub(super) unsafe fn launch<B: Copy>(
    entry: Entry<(Pass, B, i32, i32, i32)>,
    bands: impl FnOnce(Frame) -> B,
    (frame, heights): (Frame, &[i32]),
    job: &Job<'_>,
    channels: u32,
    stream: &mut Stream,
) -> crate::Result<()> {
    let pass = super::keep::left_out(job.pass);
    let region = &pass.region;
    let first = (region.x0 * channels as i32) & !15;
    let across = u64::from(((region.x1 * channels as i32 - first) as u32).div_ceil(WIDTH as u32));
    let images = job.planes / channels;
    // All of them lie in the GPU's memory, so they are fewer than an i32 counts.
    let tiles =
        |height: i32| across * u64::from(((region.y1 - region.y0) as u32).div_ceil(height as u32)) * u64::from(images);
    let mut best: Option<(u64, Frame, u32, u64)> = None;
    for &height in heights {
        let frame = Frame { height, ..frame };
        let shared = frame.shared_bytes() as u32;
        let slots = stream.gpu().resident_blocks(entry.name(), BLOCK.0 * BLOCK.1, shared)?.max(1);
        // Rounds of all blocks, each of which takes as long as its tile's rows and those that it shares with the next tile.
        let time = tiles(height).div_ceil(slots) * slots * (height + frame.rows + 15) as u64;
        if best.is_none_or(|(least, ..)| time < least) {
            best = Some((time, frame, shared, slots));
        }
    }
    let (_, frame, shared, slots) = best.expect("there is a height");
    // A multiprocessor that has one tile more than others shares it among its blocks: as many of them as there are places.
    let grid = Grid { blocks: (tiles(frame.height).min(slots) as u32, 1, 1), block: (BLOCK.0, BLOCK.1, 1), shared };
    // A plane of its own is all that a kernel for one channel has.
    let filtered = if channels > 1 { job.filtered } else { 1 };
    let arguments = (pass, bands(frame), channels as i32, filtered as i32, images as i32);
    // SAFETY: as the caller promised.
    unsafe { stream.enqueue(entry, grid, &arguments)? };
    super::keep::restore(job, stream)
}
