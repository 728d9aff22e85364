//! Separable correlation of bytes in f64, in two passes: for windows so large that many f32 sums leave the byte in doubt.
//!
//! Row pass: a block has 32 rows and 64 columns; a lane has a row, a warp 8 neighbouring columns of all 32. Rows of the tile in
//! shared memory are an odd count of numbers apart, so lanes meet in no bank. Column pass: a block has 32 columns and 64 rows; a
//! lane has a column, a warp 8 neighbouring rows. In both a thread computes 8 neighbouring results, and reads 15 numbers for 8 taps of
//! all of them. Any number of taps, `TAPS_CHUNK` at a time.
//! Order: taps ascending. With `passes_rows_defined` and `passes_columns_defined` each product and each sum is rounded: this is
//! what the byte is where a window has more taps than are summed one by one (`host/src/round`). The other two fuse them; results that
//! this could change go to the pass's list.
//! The intermediate image is f64, for the region's columns and the rows that the column pass reads. `passes_columns_summed` adds up the columns
//! of one or two, the terms of a sum, and the pixel's own tap times the pixel.
//! Limits: the destination is bytes; no epilogue. KEEP is left to `keep.rs`.

use crate::abi::{Pass, Window};
use crate::border;
use crate::device::*;
use crate::pixel::{U8, note, store_bits, to_byte};
use crate::tile::view::{Source, Target};

/// Threads of a block of either pass.
pub const BLOCK: (u32, u32) = (32, 8);
/// Columns and rows that a block of the row pass computes.
pub const ROWS_TILE: (u32, u32) = (64, 32);
/// Columns and rows that a block of the column pass computes.
pub const COLUMNS_TILE: (u32, u32) = (32, 64);
/// Taps that either pass takes at a time.
const TAPS_CHUNK: i32 = 64;
/// Numbers of a line of a tile: 64 results and their apron.
const LINE: i32 = 64 + TAPS_CHUNK - 1;
/// Bytes of shared memory of either pass.
pub const SHARED: u32 = 8 * 32 * LINE as u32;
/// Results of a thread.
const RESULTS: usize = 8;

/// The intermediate image.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Middle {
    /// The address that column 0 of row 0 of the first plane has, or would have.
    pub base: u64,
    /// Bytes from one row to the next.
    pub row: i64,
    /// Bytes from one plane to the next.
    pub plane: i64,
    /// The rows that are there.
    pub first_row: i32,
    /// See `first_row`.
    pub end_row: i32,
}

/// A column of taps, and the intermediate image that it runs over.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The image.
    pub middle: Middle,
    /// The address of the taps in f64.
    pub taps: u64,
    /// What the row pass makes of a row outside the image.
    pub outside: f64,
}

impl Middle {
    /// The address of a place in this block's plane.
    #[inline(always)]
    fn at(&self, x: i32, y: i32) -> u64 {
        let offset = block_z() as i64 * self.plane + y as i64 * self.row + 8 * x as i64;
        self.base.wrapping_add(offset as u64)
    }
}

kernel! {
    /// The row pass, products and sums fused. `taps` are the address of the row's taps in f64.
    fn passes_rows(pass: Pass, window: Window, middle: Middle, taps: u64) {
        rows::<false>(&pass, &window, &middle, taps)
    }

    /// The row pass, each product and each sum rounded.
    fn passes_rows_defined(pass: Pass, window: Window, middle: Middle, taps: u64) {
        rows::<true>(&pass, &window, &middle, taps)
    }

    /// The column pass, fused. Its sums are at most `reordering` from those that define the bytes.
    fn passes_columns(pass: Pass, window: Window, column: Column, reordering: f64) {
        columns::<false, _>(&pass, &window, (&[column], 0.0), reordering)
    }

    /// The column pass, each product and each sum rounded.
    fn passes_columns_defined(pass: Pass, window: Window, column: Column, reordering: f64) {
        columns::<true, _>(&pass, &window, (&[column], 0.0), reordering)
    }

    /// The column pass of one term, and of a `second` one if it has taps; `point` is the tap that the pixel has beside them.
    fn passes_columns_summed(pass: Pass, window: Window, column: Column, second: Column, point: f64, reordering: f64) {
        if second.taps == 0 {
            columns::<false, _>(&pass, &window, (&[column], point), reordering)
        } else {
            columns::<false, _>(&pass, &window, (&[column, second], point), reordering)
        }
    }
}

/// `sum` plus the product of tap and value.
#[inline(always)]
fn add<const DEFINED: bool>(tap: f64, value: f64, sum: f64) -> f64 {
    if DEFINED { add_f64(sum, mul_f64(tap, value)) } else { fma_f64(tap, value, sum) }
}

/// Adds `count` taps to a thread's results. Its first value under the first tap is number `first` of the tile; the next result's,
/// and the next tap's, are `step` numbers further.
///
/// # Safety
/// Taps and numbers are there.
#[inline(always)]
unsafe fn add_chunk<const DEFINED: bool>(
    sums: &mut [f64; RESULTS],
    shared: Shared,
    (first, step): (i32, i32),
    taps: u64,
    count: i32,
) {
    // SAFETY: as the caller promised.
    let value = |number: i32| unsafe { shared.load_f64(2 * (first + number * step)) };
    let mut tap = 0;
    while tap + RESULTS as i32 <= count {
        let mut values = [0.0; 2 * RESULTS - 1];
        let mut i = 0;
        while i < 2 * RESULTS - 1 {
            values[i] = value(tap + i as i32);
            i += 1;
        }
        let mut t = 0;
        while t < RESULTS {
            // SAFETY: as above.
            let weight = unsafe { load_f64(taps.wrapping_add(8 * (tap as u64 + t as u64))) };
            let mut i = 0;
            while i < RESULTS {
                sums[i] = add::<DEFINED>(weight, values[t + i], sums[i]);
                i += 1;
            }
            t += 1;
        }
        tap += RESULTS as i32;
    }
    while tap < count {
        // SAFETY: as above.
        let weight = unsafe { load_f64(taps.wrapping_add(8 * tap as u64)) };
        let mut i = 0;
        while i < RESULTS {
            sums[i] = add::<DEFINED>(weight, value(tap + i as i32), sums[i]);
            i += 1;
        }
        tap += 1;
    }
}

/// The row pass.
///
/// # Safety
/// `pass` and `middle` describe allocated memory, `taps` has `window.cols` taps, and the launch has the block shape and the shared
/// memory stated above.
#[inline(always)]
unsafe fn rows<const DEFINED: bool>(pass: &Pass, window: &Window, middle: &Middle, taps: u64) {
    let (shared, source) = (Shared::dynamic(), Source::new(pass));
    let left = pass.region.x0 + block_x() * ROWS_TILE.0 as i32;
    let mut top = middle.first_row + block_y() * ROWS_TILE.1 as i32;
    while top < middle.end_row {
        let mut sums = [0.0; RESULTS];
        let mut done = opaque(0);
        while done < window.cols {
            let count = if window.cols - done < TAPS_CHUNK { window.cols - done } else { TAPS_CHUNK };
            // SAFETY: numbers lie in the tile; the whole block meets at the barriers.
            unsafe {
                let mut r = thread_y();
                while r < ROWS_TILE.1 as i32 {
                    // Rows behind the last hold copies of it, which are not stored.
                    let y = if top + r < middle.end_row { top + r } else { middle.end_row - 1 };
                    let row = source.row_inside(y);
                    let mut c = thread_x();
                    while c < 64 + count - 1 {
                        let value = row.pixel(left + done - window.anchor_x + c);
                        shared.store_f64(2 * (r * LINE + c), value as f64);
                        c += 32;
                    }
                    r += BLOCK.1 as i32;
                }
                barrier();
                let first = thread_x() * LINE + RESULTS as i32 * thread_y();
                add_chunk::<DEFINED>(&mut sums, shared, (first, 1), taps.wrapping_add(8 * done as u64), count);
                barrier();
            }
            done += count;
        }
        let y = top + thread_x();
        let mut i = 0;
        while i < RESULTS {
            let x = left + RESULTS as i32 * thread_y() + i as i32;
            if x < pass.region.x1 && y < middle.end_row {
                // SAFETY: the place is this thread's.
                unsafe { store_f64(middle.at(x, y), sums[i]) };
            }
            i += 1;
        }
        top += grid_height() * ROWS_TILE.1 as i32;
    }
}

/// The column pass over one or two columns, whose sums it adds up, and `point` times the pixel.
///
/// # Safety
/// As for [`rows`], with `window.rows` taps.
#[inline(always)]
unsafe fn columns<const DEFINED: bool, const TERMS: usize>(
    pass: &Pass,
    window: &Window,
    (terms, point): (&[Column; TERMS], f64),
    reordering: f64,
) {
    let target = Target::new(pass);
    let x = pass.region.x0 + block_x() * COLUMNS_TILE.0 as i32 + thread_x();
    let mut top = pass.region.y0 + block_y() * COLUMNS_TILE.1 as i32;
    while top < pass.region.y1 {
        let mut sums = [0.0; RESULTS];
        let mut term = 0;
        while term < TERMS {
            // SAFETY: as the caller promised; the whole block is here.
            unsafe { add_column::<DEFINED>(pass, window, &terms[term], (x, top), &mut sums) };
            term += 1;
        }
        let mut i = 0;
        while i < RESULTS {
            let y = top + RESULTS as i32 * thread_y() + i as i32;
            if x < pass.region.x1 && y < pass.region.y1 {
                let mut sum = sums[i];
                if point != 0.0 {
                    // SAFETY: the pixel lies in the region, and so in the image.
                    sum = fma_f64(point, unsafe { Source::new(pass).pixel_inside(x, y) } as f64, sum);
                }
                let (byte, distance) = to_byte(sum);
                // SAFETY: the place is this thread's.
                unsafe {
                    store_bits(U8, target.at(x, y), byte);
                    // A NaN may come from the other order alone.
                    let sure = distance < 0.5 - reordering && !sum.is_nan();
                    if !DEFINED && !sure {
                        note(pass, x, y, block_z());
                    }
                }
            }
            i += 1;
        }
        top += grid_height() * COLUMNS_TILE.1 as i32;
    }
}

/// Adds a column's taps to the sums of the thread's results in column `x`, in a tile of rows from `top` on.
///
/// # Safety
/// As for [`columns`].
#[inline(always)]
unsafe fn add_column<const DEFINED: bool>(
    pass: &Pass,
    window: &Window,
    Column { middle, taps, outside }: &Column,
    (x, top): (i32, i32),
    sums: &mut [f64; RESULTS],
) {
    let shared = Shared::dynamic();
    let column = if x < pass.region.x1 { x } else { pass.region.x1 - 1 };
    let mut done = opaque(0);
    while done < window.rows {
        let count = if window.rows - done < TAPS_CHUNK { window.rows - done } else { TAPS_CHUNK };
        // SAFETY: numbers lie in the tile; the whole block meets at the barriers.
        unsafe {
            let mut r = thread_y();
            while r < 64 + count - 1 {
                let found = border::resolve(pass.border, top + done - window.anchor_y + r, pass.height);
                // Rows that no result needs may not be there.
                let value = if found < 0 {
                    *outside
                } else if found < middle.first_row || found >= middle.end_row {
                    0.0
                } else {
                    load_f64(middle.at(column, found))
                };
                shared.store_f64(2 * (r * 32 + thread_x()), value);
                r += BLOCK.1 as i32;
            }
            barrier();
            let first = RESULTS as i32 * thread_y() * 32 + thread_x();
            add_chunk::<DEFINED>(sums, shared, (first, 32), taps.wrapping_add(8 * done as u64), count);
            barrier();
        }
        done += count;
    }
}
