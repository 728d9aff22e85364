//! Separable correlation in two passes, one f32 channel: rows into an intermediate image, then its columns.
//!
//! | entry | taps | number of taps |
//! | --- | --- | --- |
//! | `separable_rows`, `separable_columns` | global memory | any: taken [`TAPS_CHUNK`] at a time |
//! | `separable_rows_K`, `separable_columns_K` | constant bank | K, known to the compiler |
//!
//! Row pass: block 32 x 4, each warp a row's 256 pixels and their apron in shared memory. With K known, a thread computes
//! two runs of 4 neighbouring pixels from 16-byte shared loads, consecutive across the warp; else 8 pixels 32 apart.
//! Column pass: block 32 x 8, a tile of 32 columns and 64 rows with their apron. With K known, a thread slides down 8
//! neighbouring rows of its column and reads each value once; else it computes 8 rows 8 apart. Lanes of a warp always
//! read consecutive words: no bank conflicts.
//! Order: one accumulator in each pass, taps ascending, fused multiply-add; the intermediate image is f32.
//! Border: each pass applies the rule along its own axis. Under CONSTANT the column pass's outside value is the filtered
//! value of a row that lies outside (the host computes it); under KEEP the column pass copies from the original image.

use crate::abi::{
    COLUMNS_BLOCK, COLUMNS_TILE, Frame, Original, ROWS_BLOCK, ROWS_TILE, TAPS_CHUNK, Taps, Window, rows_pitch,
};
use crate::border;
use crate::device::*;
use crate::frame::{load_tile, write, write_run};

kernel! {
    /// Filters along the rows with any number of taps.
    fn separable_rows(frame: Frame, window: Window, taps: *const f32) {
        rows_in_chunks(&frame, &window, Buffer(taps))
    }

    /// Filters along the columns with any number of taps.
    fn separable_columns(frame: Frame, window: Window, original: Original, taps: *const f32) {
        columns_in_chunks(&frame, &window, &original, Buffer(taps))
    }
}

macro_rules! unrolled {
    ($($taps:literal: $rows:ident, $columns:ident;)*) => {kernel! {$(
        fn $rows(frame: Frame, window: Window, taps: Taps<$taps>) {
            rows_unrolled::<$taps, _>(&frame, &window, parameter!($rows, 2, taps))
        }
        fn $columns(frame: Frame, window: Window, original: Original, taps: Taps<$taps>) {
            columns_unrolled::<$taps, _>(&frame, &window, &original, parameter!($columns, 3, taps))
        }
    )*}};
}

unrolled! {
    3: separable_rows_3, separable_columns_3;
    5: separable_rows_5, separable_columns_5;
    7: separable_rows_7, separable_columns_7;
    9: separable_rows_9, separable_columns_9;
    11: separable_rows_11, separable_columns_11;
    13: separable_rows_13, separable_columns_13;
    15: separable_rows_15, separable_columns_15;
    17: separable_rows_17, separable_columns_17;
    21: separable_rows_21, separable_columns_21;
    31: separable_rows_31, separable_columns_31;
    51: separable_rows_51, separable_columns_51;
}

/// Results that a thread of either pass holds.
const RESULTS: usize = 8;
const WARP: i32 = 32;

/// The row pass, K taps.
///
/// # Safety
/// `frame` and `window` describe allocated memory, `taps` holds K taps, and the launch has the block shape and shared
/// memory that `abi` states.
#[inline(always)]
unsafe fn rows_unrolled<const K: i32, T: TapSource>(frame: &Frame, window: &Window, taps: T) {
    let tile = Shared::dynamic();
    let pitch = rows_pitch(K);
    let line = thread_y() * pitch;
    let left = block_x() * ROWS_TILE;
    let mut top = block_y() * block_height();
    while top < frame.height {
        let y = top + thread_y();
        // SAFETY: indices stay inside the warp's line of the tile; the threads of a warp share `y`, those of a block
        // `top`, so that all meet at the barriers; writes are guarded by the image's size.
        unsafe {
            load_tile::<4>(frame, tile, pitch, left - window.anchor_x, top, pitch, ROWS_BLOCK.1 as i32);
            barrier();
            if y < frame.height {
                let mut run = 0;
                while run < ROWS_TILE {
                    let first = run + 4 * thread_x();
                    let mut values = [0.0; 56];
                    let mut i = 0;
                    while i < (K + 3 + 3) / 4 {
                        let four = tile.load4(line + first + 4 * i);
                        let at = 4 * i as usize;
                        values[at] = four[0];
                        values[at + 1] = four[1];
                        values[at + 2] = four[2];
                        values[at + 3] = four[3];
                        i += 1;
                    }
                    let mut sums = [0.0; 4];
                    let mut col = 0;
                    while col < K as usize {
                        let tap = taps.tap(col);
                        let mut i = 0;
                        while i < 4 {
                            sums[i] = fma(tap, values[col + i], sums[i]);
                            i += 1;
                        }
                        col += 1;
                    }
                    write_run(frame, left + first, y, sums);
                    run += 4 * WARP;
                }
            }
            barrier();
        }
        top += grid_height() * block_height();
    }
}

/// The row pass, `window.cols` taps.
///
/// # Safety
/// As for [`rows_unrolled`], with `window.cols` taps.
#[inline(always)]
unsafe fn rows_in_chunks<T: TapSource>(frame: &Frame, window: &Window, taps: T) {
    let tile = Shared::dynamic();
    let line = thread_y() * rows_pitch(TAPS_CHUNK);
    let left = block_x() * ROWS_TILE;
    let mut top = block_y() * block_height();
    while top < frame.height {
        let y = top + thread_y();
        let mut sums = [0.0; RESULTS];
        let mut done = 0;
        while done < window.cols {
            let chunk = if window.cols - done < TAPS_CHUNK { window.cols - done } else { TAPS_CHUNK };
            // SAFETY: as in `rows_unrolled`.
            unsafe {
                let pitch = rows_pitch(TAPS_CHUNK);
                let columns = ROWS_TILE + chunk - 1;
                load_tile::<4>(frame, tile, pitch, left + done - window.anchor_x, top, columns, ROWS_BLOCK.1 as i32);
                barrier();
                if y < frame.height {
                    let mut col = 0;
                    while col < chunk {
                        let tap = taps.tap((done + col) as usize);
                        let mut i = 0;
                        while i < RESULTS {
                            let value = tile.load(line + thread_x() + WARP * i as i32 + col);
                            sums[i] = fma(tap, value, sums[i]);
                            i += 1;
                        }
                        col += 1;
                    }
                }
                barrier();
            }
            done += chunk;
        }
        let mut i = 0;
        while i < RESULTS {
            let x = left + thread_x() + WARP * i as i32;
            if x < frame.width && y < frame.height {
                // SAFETY: the pixel lies in the image and is this thread's alone.
                unsafe { write(frame, x, y, sums[i]) };
            }
            i += 1;
        }
        top += grid_height() * block_height();
    }
}

/// The column pass, K taps.
///
/// # Safety
/// As for [`rows_unrolled`]; `original` is the image before the row pass.
#[inline(always)]
unsafe fn columns_unrolled<const K: i32, T: TapSource>(frame: &Frame, window: &Window, original: &Original, taps: T) {
    let tile = Shared::dynamic();
    let x = block_x() * WARP + thread_x();
    let mut top = block_y() * COLUMNS_TILE;
    while top < frame.height {
        // SAFETY: indices stay inside the tile; the threads of a block share `top`, so that all meet at the barriers;
        // `finish` guards the writes.
        unsafe {
            load_columns(frame, tile, COLUMNS_TILE + K - 1, top - window.anchor_y);
            barrier();
            let first = thread_y() * RESULTS as i32;
            let mut sums = [0.0; RESULTS];
            let mut i = 0;
            while i < RESULTS + K as usize - 1 {
                let value = tile.load((first + i as i32) * WARP + thread_x());
                let mut result = 0;
                while result < RESULTS {
                    if i >= result && i - result < K as usize {
                        sums[result] = fma(taps.tap(i - result), value, sums[result]);
                    }
                    result += 1;
                }
                i += 1;
            }
            let mut i = 0;
            while i < RESULTS {
                finish(frame, window, original, x, top + first + i as i32, sums[i]);
                i += 1;
            }
            barrier();
        }
        top += grid_height() * COLUMNS_TILE;
    }
}

/// The column pass, `window.rows` taps.
///
/// # Safety
/// As for [`columns_unrolled`], with `window.rows` taps.
#[inline(always)]
unsafe fn columns_in_chunks<T: TapSource>(frame: &Frame, window: &Window, original: &Original, taps: T) {
    let tile = Shared::dynamic();
    let x = block_x() * WARP + thread_x();
    let mut top = block_y() * COLUMNS_TILE;
    while top < frame.height {
        let mut sums = [0.0; RESULTS];
        let mut done = 0;
        while done < window.rows {
            let chunk = if window.rows - done < TAPS_CHUNK { window.rows - done } else { TAPS_CHUNK };
            // SAFETY: as in `columns_unrolled`.
            unsafe {
                load_columns(frame, tile, COLUMNS_TILE + chunk - 1, top + done - window.anchor_y);
                barrier();
                let mut row = 0;
                while row < chunk {
                    let tap = taps.tap((done + row) as usize);
                    let mut i = 0;
                    while i < RESULTS {
                        let line = thread_y() + COLUMNS_BLOCK.1 as i32 * i as i32 + row;
                        sums[i] = fma(tap, tile.load(line * WARP + thread_x()), sums[i]);
                        i += 1;
                    }
                    row += 1;
                }
                barrier();
            }
            done += chunk;
        }
        let mut i = 0;
        while i < RESULTS {
            let y = top + thread_y() + COLUMNS_BLOCK.1 as i32 * i as i32;
            // SAFETY: `finish` guards the write; the pixel is this thread's alone.
            unsafe { finish(frame, window, original, x, y, sums[i]) };
            i += 1;
        }
        top += grid_height() * COLUMNS_TILE;
    }
}

/// Loads `count` rows of the block's 32 columns, from row `first` on.
///
/// # Safety
/// `count` rows of 32 floats lie in the tile.
#[inline(always)]
unsafe fn load_columns(frame: &Frame, tile: Shared, count: i32, first: i32) {
    // What lies right of the image is loaded through the border rule; nothing of it is stored.
    // SAFETY: as the caller promised.
    unsafe { load_tile::<4>(frame, tile, WARP, block_x() * WARP, first, WARP, count) };
}

/// Stores a column's result, or what KEEP puts there.
///
/// # Safety
/// `original` is the image before the row pass; no other thread stores at `(x, y)`.
#[inline(always)]
unsafe fn finish(frame: &Frame, window: &Window, original: &Original, x: i32, y: i32, sum: f32) {
    if x >= frame.width || y >= frame.height {
        return;
    }
    let keep = frame.border == border::KEEP
        && (border::leaves(x - window.anchor_x, window.cols, frame.width)
            || border::leaves(y - window.anchor_y, window.rows, frame.height));
    // SAFETY: `(x, y)` lies in the image, of which original and destination are as large.
    unsafe {
        let value = if keep {
            let index = block_z() as usize * original.plane + y as usize * original.stride + x as usize;
            load(original.src, index)
        } else {
            sum
        };
        write(frame, x, y, value);
    }
}
