//! What kernels on the tensor cores share: their limits, the layout of a strip's rows, and the
//! launch. It goes with `whole.rs` and `strip.rs` in `gpu-kernels/src/tile/`.

use gpu_kernels::abi::scalar;
#[cfg(feature = "gpu")]
use gpu_kernels::tile::strip::TILE;
use gpu_kernels::tile::{
    flat::takes_outside,
    strip::{AHEAD, Ring},
};
#[cfg(feature = "gpu")]
use gpu_kernels::{
    abi::{Pass, Region},
    entry::Entry,
};

#[cfg(feature = "gpu")]
use super::prepared::PassJob;
#[cfg(feature = "gpu")]
use crate::gpu::{launch::Grid, stream::Stream};
use crate::problem::Problem;
#[cfg(feature = "gpu")]
use crate::{Error, Variant};
use crate::{Scalar, Why};

/// The error of a launch whose taps have no form as digits.
#[cfg(feature = "gpu")]
pub(crate) fn no_form(variant: Variant) -> Error {
    let reason = "its taps cannot be scaled to integers".to_owned();
    Error::Unsupported { variant: variant.name(), reason }
}

/// The channels side by side, if kernels on the tensor cores take them, the types, the border and
/// the width.
pub(super) fn channels(problem: &Problem) -> Result<usize, Why> {
    let Problem { source, target, width, border, side_by_side: channels, .. } = *problem;
    if (source, target) != (Scalar::U8, Scalar::U8) {
        return Err(Why::BYTES_ALONE);
    }
    let (mode, outside) = border.code();
    if !takes_outside(scalar::U8, mode, outside) {
        return Err(format!(
            "the border is constant:{outside}, but must be a whole number from 0 to 255"
        )
        .into());
    }
    if !(1..=4).contains(&channels) {
        return Err(format!("{channels} interleaved channels, the limit is 4").into());
    }
    if width.saturating_mul(channels) > 1 << 30 {
        return Err(format!(
            "{width} columns of {channels} channels, the limit is 2^30 values in a row"
        )
        .into());
    }
    Ok(channels)
}

/// The layout of the bytes that a row of taps needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Layout {
    /// Channels side by side.
    pub(crate) channels: usize,
    /// Whether they are split: then a value is a pixel, and each channel is a tile.
    pub(super) planar: bool,
    /// How many values left of a strip its rows begin: at a multiple of 16 in memory. It is a
    /// multiple of 4, so that four results of a lane are a word.
    pub(super) left: usize,
    /// How many of them are not needed.
    pub(super) lead: usize,
    /// Values from the first to the last that a result needs.
    pub(super) reach: usize,
    /// Halves of 16 bytes that 16 results and a row of taps reach.
    pub(super) halves: usize,
}

impl Layout {
    /// For so many columns of taps, with the anchor in this one.
    pub(super) fn new(channels: usize, planar: bool, (cols, anchor_x): (usize, usize)) -> Self {
        let value_stride = if planar { 1 } else { channels };
        let ahead = value_stride * anchor_x;
        // Results at multiples of 16 or 8 bytes are written in fewer pieces, if that needs no more
        // halves.
        let layout = |multiple: usize| {
            let left = ahead.next_multiple_of(multiple);
            let lead = left - ahead;
            let reach = value_stride * (cols - 1);
            let halves = (lead + 16 + reach).div_ceil(16);
            Self { channels, planar, left, lead, reach, halves }
        };
        [16, 8, 4]
            .map(layout)
            .into_iter()
            .min_by_key(|layout| layout.halves)
            .expect("there are three")
    }

    /// How far the same channel of the next pixel is, in bytes of shared memory.
    pub(super) fn value_stride(&self) -> usize {
        if self.planar { 1 } else { self.channels }
    }

    /// The channels that are split; 1 for none.
    pub(super) fn parts(&self) -> usize {
        if self.planar { self.channels } else { 1 }
    }

    /// Products for each digit and band, over so many rows of taps: times 32 bytes, two halves
    /// each.
    pub(super) fn steps(&self, rows: usize) -> usize {
        (rows * self.halves).div_ceil(2)
    }

    /// The ring of a strip of `tiles`. It holds `groups` of 16 rows, and those that are being
    /// loaded.
    pub(super) fn ring(
        &self,
        tiles: usize,
        groups: usize,
        (rows, anchor_y): (usize, usize),
    ) -> Ring {
        // Rows loaded through registers are complete when they enter the ring.
        let (pieces, bytes, ahead) = if self.planar {
            (4 * self.halves, 16 * self.halves * self.channels, 0)
        } else {
            (tiles + self.halves - 1, 16 * (tiles + self.halves - 1), AHEAD)
        };
        Ring {
            rows: rows as i32,
            anchor_y: anchor_y as i32,
            left: self.left as i32,
            ahead: (self.left - self.lead) as i32,
            reach: self.reach as i32,
            pieces: pieces as i32,
            tile: if self.planar { 16 * self.halves as i32 } else { 16 },
            pitch: (bytes | 16) as i32,
            groups: groups as i32 + ahead,
        }
    }
}

/// The strips of a launch.
#[cfg(feature = "gpu")]
pub(crate) struct Strips<'a> {
    pub(super) layout: &'a Layout,
    pub(super) ring: &'a Ring,
    /// Tiles of a strip.
    pub(super) tiles: usize,
    /// Bytes of shared memory that a block needs.
    pub(super) shared: u32,
    /// The heights that the launch may choose.
    pub(super) heights: &'a [u32],
    /// The fixed time of a strip, in units of 16 rows of results.
    pub(super) besides: f64,
}

/// The height of strips that ends soonest; `waves` gives the waves for a height.
///
/// Measured on an H200: a lone strip takes 1.57 times as long for 16 rows as a full GPU takes for
/// 16 rows of all strips. The strips of the first wave run together; later ones begin as soon as
/// there is room.
pub(super) fn height_of_strips(heights: &[u32], besides: f64, waves: impl Fn(u32) -> f64) -> u32 {
    let cost = |rows: u32| (f64::from(rows / 16) + besides) * (waves(rows).max(1.0) + 0.57);
    heights.iter().copied().min_by(|&a, &b| cost(a).total_cmp(&cost(b))).expect("there are heights")
}

/// Enqueues a kernel that slides down strips, then, for a border that copies, the kernel
/// that copies pixels. The strips have the height that ends soonest.
///
/// # Safety
/// As for the kernel: `find` checked its limits, `bands` are made for it and these strips, and the
/// pass describes allocated memory, and has a list if results may be uncertain.
#[cfg(feature = "gpu")]
pub(super) unsafe fn launch<B: Copy>(
    entry: Entry<(Pass, B, i32, i32, i32)>,
    bands: B,
    strips: &Strips<'_>,
    job: &PassJob<'_>,
    stream: &mut Stream,
) -> crate::Result<()> {
    let (pass, channels) = (super::keep::left_out(job.pass), strips.layout.channels as u32);
    let (grid, rows) = strips.grid(entry.name(), &pass.region, job.planes, stream)?;
    // A plane of its own is all that a kernel for one channel has.
    let filtered = if channels > 1 { job.filtered } else { 1 };
    let arguments = (pass, bands, channels as i32, filtered as i32, rows);
    // SAFETY: as the caller promised.
    unsafe { stream.enqueue(entry, grid, &arguments)? };
    super::keep::restore(job, stream)
}

#[cfg(feature = "gpu")]
impl Strips<'_> {
    /// The grid for an entry, a region and so many planes, and the rows of a strip, by which it
    /// ends soonest.
    pub(crate) fn grid(
        &self,
        entry: &'static str,
        region: &Region,
        planes: u32,
        stream: &Stream,
    ) -> crate::Result<(Grid, i32)> {
        let Self { layout, ring, tiles, shared, heights, besides } = *self;
        // In values, of which a pixel is one if its channels are planar.
        let each = layout.value_stride() as i32;
        let width = TILE as u32 * if layout.planar { 1 } else { tiles as u32 };
        let across = ((region.x1 * each - ring.first(region.x0 * each)) as u32).div_ceil(width);
        let (height, images) = ((region.y1 - region.y0) as u32, planes / layout.channels as u32);
        let slots = stream.gpu().resident_blocks(entry, 32, shared)?.max(1);
        let rows = height_of_strips(heights, besides, |rows| {
            f64::from(across * height.div_ceil(rows)) * f64::from(images) / slots as f64
        });
        let blocks = (across * height.div_ceil(rows), 1, 1);
        let grid = Grid { blocks, block: (32, 1, 1), shared };
        Ok((stream.gpu().fitting(grid, images), rows as i32))
    }
}
