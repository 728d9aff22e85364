//! Separable correlation in two passes, one f32 channel: rows into an intermediate image, then
//! columns. Here the number of taps K is a compile-time constant; for any number see
//! `separable_any.rs`, and for small pictures `separable_tile.rs`.
//!
//! Row pass: block 32 x 4, a warp for 256 pixels of a row and their apron in shared memory; a
//! thread computes two runs of 4 neighbouring pixels from 16-byte shared loads, consecutive across
//! the warp. Column pass: block 32 x 8, a tile of 32 columns and 64 rows with their apron; a thread
//! slides down 8 neighbouring rows of its column and reads each value once. Lanes always read
//! consecutive words: no bank conflicts. Taps: in the constant bank. Order: one accumulator in each
//! pass, taps ascending, fused multiply-add; the intermediate image is f32. Two terms have an
//! intermediate image each: for each tap row, the first term's product, then the second's; at last
//! `Pass::point` times the original pixel. Border: each pass applies the rule along its own axis.
//! Under CONSTANT the column pass's outside value is the filtered value of a row outside (from the
//! host). Where a border copies, the column pass copies from the original image.

use crate::abi::{Pass, Plane, Taps, Window};
use crate::border;
use crate::device::*;
use crate::tile::view::{NO_END, Source, Target, load_tile};

/// Threads of a block in the row pass: each warp has a row.
pub const ROWS_BLOCK: (u32, u32) = (32, 4);
/// Pixels of a row that a warp of the row pass computes.
pub const ROWS_TILE: i32 = 256;
/// Threads of a block in the column pass: each warp has 32 neighbouring columns.
pub const COLUMNS_BLOCK: (u32, u32) = (32, 8);
/// Rows that a block of the column pass computes.
pub const COLUMNS_TILE: i32 = 64;
/// Floats from one row of the row pass's tile to the next, a multiple of 4.
pub const fn rows_pitch(taps: i32) -> i32 {
    (ROWS_TILE + taps - 1 + 3) / 4 * 4
}

/// Bytes of shared memory for the row pass.
pub const fn rows_shared(taps: i32) -> u32 {
    4 * ROWS_BLOCK.1 * rows_pitch(taps) as u32
}

/// Bytes of shared memory for the column pass.
pub const fn columns_shared(taps: i32) -> u32 {
    4 * COLUMNS_BLOCK.0 * (COLUMNS_TILE + taps - 1) as u32
}

/// Declares and lists the entries
/// `taps: row pass and the most registers of a thread, column pass and the same`. Few registers
/// allow many warps, which hide memory latency.
macro_rules! unrolled {
    ($($taps:literal: $rows:ident $rows_limit:literal, $columns:ident $columns_limit:literal;)*) => {
        kernel! {$(
            fn $rows(pass: Pass, window: Window, taps: Taps<$taps>) {
                directive!($rows_limit);
                let_next_kernel_begin();
                rows_unrolled::<$taps, _>(&pass, &window, parameter!($rows, 2, taps))
            }
            fn $columns(pass: Pass, window: Window, original: Plane, taps: Taps<$taps>) {
                directive!($columns_limit);
                columns_unrolled::<$taps, _>(&pass, &window, &original, parameter!($columns, 3, taps))
            }
        )*}

        host! {
            /// The row passes for a fixed number of taps.
            pub const ROWS: &[(i32, crate::entry::TapsEntry<(Pass, Window)>)] = &[$(($taps, $rows.with_taps())),*];
            /// The column passes for a fixed number of taps.
            pub const COLUMNS: &[(i32, crate::entry::TapsEntry<(Pass, Window, Plane)>)] =
                &[$(($taps, $columns.with_taps())),*];
        }
    };
}

unrolled! {
    3: separable_rows_3 ".maxnreg 32", separable_columns_3 ".maxnreg 32";
    5: separable_rows_5 ".maxnreg 32", separable_columns_5 ".maxnreg 32";
    7: separable_rows_7 ".maxnreg 32", separable_columns_7 ".maxnreg 32";
    9: separable_rows_9 ".maxnreg 40", separable_columns_9 ".maxnreg 32";
    11: separable_rows_11 ".maxnreg 40", separable_columns_11 ".maxnreg 40";
    13: separable_rows_13 ".maxnreg 48", separable_columns_13 ".maxnreg 40";
    15: separable_rows_15 ".maxnreg 48", separable_columns_15 ".maxnreg 40";
    17: separable_rows_17 ".maxnreg 48", separable_columns_17 ".maxnreg 40";
}

/// Results of a thread in the column pass.
pub(super) const RESULTS: usize = 8;
const WARP: i32 = 32;

/// The row pass, K taps.
///
/// # Safety
/// `pass` and `window` describe allocated memory, `taps` holds K taps, and the launch has the block
/// shape and the shared memory that the functions above state.
#[inline(always)]
unsafe fn rows_unrolled<const K: i32, T: TapSource>(pass: &Pass, window: &Window, taps: T) {
    let tile = Shared::dynamic();
    let pitch = rows_pitch(K);
    let line = thread_y() * pitch;
    let left = pass.region.aligned_left() + block_x() * ROWS_TILE;
    let mut top = pass.region.y0 + block_y() * block_height();
    while top < pass.region.y1 {
        let y = top + thread_y();
        // SAFETY: indices stay inside the warp's line of the tile. The threads of a warp share `y`,
        // and those of a block `top`, so all threads of the block reach the barriers. The region
        // guards the writes.
        unsafe {
            load_tile::<4>(
                pass,
                tile,
                |x, y| y * pitch + x,
                (left - window.anchor_x, top),
                (pitch, ROWS_BLOCK.1 as i32),
                NO_END,
            );
            barrier();
            if y < pass.region.y1 {
                let target = Target::late(pass);
                let mut run = 0;
                while run < ROWS_TILE {
                    let first = run + 4 * thread_x();
                    let sums = across::<K, _>(tile, line + first, taps);
                    target.run(left + first).write(y, sums);
                    run += 4 * WARP;
                }
            }
            barrier();
        }
        top += grid_height() * block_height();
    }
}

/// The column pass, K taps.
///
/// # Safety
/// As for [`rows_unrolled`]; `original` is the image before the row pass.
#[inline(always)]
unsafe fn columns_unrolled<const K: i32, T: TapSource>(
    pass: &Pass,
    window: &Window,
    original: &Plane,
    taps: T,
) {
    let tile = Shared::dynamic();
    let x = pass.region.x0 + block_x() * WARP + thread_x();
    let mut top = pass.region.y0 + block_y() * COLUMNS_TILE;
    while top < pass.region.y1 {
        // SAFETY: indices stay inside the tile. The threads of a block share `top`, so all reach
        // the barriers. `finish` guards the writes.
        unsafe {
            load_columns(pass, (tile, 0), COLUMNS_TILE + K - 1, top - window.anchor_y);
            barrier();
            let first = thread_y() * RESULTS as i32;
            let sums = down::<K, WARP, _>(tile, first * WARP + thread_x(), taps);
            finish(pass, window, original, (x, top + first), sums);
            barrier();
        }
        top += grid_height() * COLUMNS_TILE;
    }
}

/// Four neighbouring results of a row, whose first value is float `at` of the tile.
///
/// # Safety
/// `at` is a multiple of 4; `K + 3` floats from it on, rounded up to a multiple of 4, lie in the
/// tile; `taps` holds K taps.
#[inline(always)]
pub(super) unsafe fn across<const K: i32, T: TapSource>(
    tile: Shared,
    at: i32,
    taps: T,
) -> [f32; 4] {
    let (mut values, mut i) = ([0.0; 24], 0);
    while i < (K + 3 + 3) / 4 {
        // SAFETY: as the caller promised.
        let four = unsafe { tile.load4(at + 4 * i) };
        let to = 4 * i as usize;
        values[to] = four[0];
        values[to + 1] = four[1];
        values[to + 2] = four[2];
        values[to + 3] = four[3];
        i += 1;
    }
    let (mut sums, mut col) = ([0.0; 4], 0);
    while col < K as usize {
        // SAFETY: as the caller promised.
        let tap = unsafe { taps.tap(col) };
        let mut i = 0;
        while i < 4 {
            sums[i] = fma(tap, values[col + i], sums[i]);
            i += 1;
        }
        col += 1;
    }
    sums
}

/// [`RESULTS`] results below each other. The first one's first value is float `at` of the tile, and
/// the value below is PITCH floats further.
///
/// # Safety
/// The values lie in the tile; `taps` holds K taps.
#[inline(always)]
pub(super) unsafe fn down<const K: i32, const PITCH: i32, T: TapSource>(
    tile: Shared,
    at: i32,
    taps: T,
) -> [f32; RESULTS] {
    let (mut sums, mut i) = ([0.0; RESULTS], 0);
    while i < RESULTS + K as usize - 1 {
        // SAFETY: as the caller promised.
        let value = unsafe { tile.load(at + i as i32 * PITCH) };
        let mut result = 0;
        while result < RESULTS {
            if i >= result && i - result < K as usize {
                // SAFETY: as the caller promised.
                sums[result] = fma(unsafe { taps.tap(i - result) }, value, sums[result]);
            }
            result += 1;
        }
        i += 1;
    }
    sums
}

/// Loads `count` rows of the block's 32 columns, from row `first` on, into shared memory from float
/// `start` on.
///
/// # Safety
/// `count` rows of 32 floats lie in the tile.
#[inline(always)]
pub(super) unsafe fn load_columns(
    pass: &Pass,
    (tile, start): (Shared, i32),
    count: i32,
    first: i32,
) {
    let left = pass.region.x0 + block_x() * WARP;
    // The intermediate image ends with the region.
    // SAFETY: as the caller promised.
    unsafe {
        load_tile::<4>(
            pass,
            tile,
            |x, y| start + y * WARP + x,
            (left, first),
            (WARP, count),
            pass.region.x1,
        )
    };
}

/// Stores a thread's sums in column `x`, from row `y` down; under a border that copies, copied
/// pixels where the window leaves the image.
///
/// # Safety
/// `original` is the image before the row pass; no other thread stores to these places.
#[inline(always)]
pub(super) unsafe fn finish<const N: usize>(
    pass: &Pass,
    window: &Window,
    original: &Plane,
    (x, y): (i32, i32),
    sums: [f32; N],
) {
    if x >= pass.region.x1 {
        return;
    }
    let target = Target::late(pass);
    // SAFETY: `x` lies in the region.
    unsafe { target.write_column(x, y, sums) };
    if border::copies(pass.border) {
        let beside = border::leaves(x - window.anchor_x, window.cols, pass.width);
        let original = Source::of(original, pass);
        let mut y = opaque(y);
        let end = y + N as i32;
        while y < end && y < pass.region.y1 {
            if beside || border::leaves(y - window.anchor_y, window.rows, pass.height) {
                // SAFETY: `(x, y)` lies in the region, and in the original.
                unsafe { target.write_plain(x, y, original.pixel_inside(x, y)) };
            }
            y += 1;
        }
    }
}
