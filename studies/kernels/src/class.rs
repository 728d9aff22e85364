//! Study: the ladder of a class project of 2008. 17 x 17 separable taps; the border is a constant.
//!
//! | entry | step | what it changes |
//! | --- | --- | --- |
//! | `class_naive` | 0 | pixels from global memory, each tap the product of two |
//! | `class_shared` | 1 | pixels from a tile of 32 x 32, laid out column by column |
//! | `class_mul24` | 1 | the same, indices multiplied with `mul24` |
//! | `class_rows_2d`, `class_columns_2d` | 2 | two passes, tiles still laid out column by column |
//! | `class_rows`, `class_columns` | 3 | tiles laid out row by row |
//! | `steps_rows`, `steps_columns` | 4 | eight results a thread, an aligned apron |
//!
//! Threads: 16 x 16 in a block, one pixel a thread; in step 4, 16 x 4 and 16 x 8, with a thread's
//! results one block apart. Tile: each thread loads four pixels in step 1, two in steps 2 and 3; in
//! step 4 the apron is one block wide (or high) at each end. Banks: with a tile laid out column by
//! column, the 16 lanes of a row are 32 words apart (row pass: 16) and all hit one bank (or two).
//! Order: steps 0 and 1 sum column by column, top to bottom; `pixel * row tap` is rounded, then
//! added by a fused multiply-add with the column's tap. The passes sum as the separable family.
//! Limits: an image is as tall as a grid at most; in step 1 a plane has less than 2^31 elements,
//! and rows and stride are below 2^24.

use crate::abi::Taps;
use crate::device::*;
use crate::frame::Frame;
use crate::pixels::{or_constant, write};
use crate::sizes::{
    CLASS_BLOCK as SIDE, CLASS_TAPS as K, STEPS, STEPS_COLUMNS_BLOCK, STEPS_ROWS_BLOCK,
};

const R: i32 = K / 2;
const COUNT: usize = K as usize;
/// A block's pixels and the apron on both sides.
const LONG: i32 = SIDE + 2 * R;

kernel! {
    /// Pixels from global memory. The taps are the row's, then the column's.
    fn class_naive(frame: Frame, taps: Taps<{ 2 * COUNT }>) {
        let taps = parameter!(class_naive, 1, taps);
        let (x, y) = (block_x() * SIDE + thread_x(), block_y() * SIDE + thread_y());
        if x < frame.width && y < frame.height {
            write(&frame, x, y, product(taps, |col, row| or_constant(&frame, x + col - R, y + row - R)));
        }
    }

    /// Pixels from a tile.
    fn class_shared(frame: Frame, taps: Taps<{ 2 * COUNT }>) {
        shared::<false, _>(&frame, parameter!(class_shared, 1, taps))
    }

    /// As `class_shared`, with 24-bit multiplications.
    fn class_mul24(frame: Frame, taps: Taps<{ 2 * COUNT }>) {
        shared::<true, _>(&frame, parameter!(class_mul24, 1, taps))
    }

    /// The row pass, its tile laid out column by column.
    fn class_rows_2d(frame: Frame, taps: Taps<COUNT>) {
        rows(&frame, parameter!(class_rows_2d, 1, taps), |x, y| x * SIDE + y)
    }

    /// The column pass, its tile laid out column by column.
    fn class_columns_2d(frame: Frame, taps: Taps<COUNT>) {
        columns(&frame, parameter!(class_columns_2d, 1, taps), |x, y| x * LONG + y)
    }

    /// The row pass, its tile laid out row by row.
    fn class_rows(frame: Frame, taps: Taps<COUNT>) {
        rows(&frame, parameter!(class_rows, 1, taps), |x, y| y * LONG + x)
    }

    /// The column pass, its tile laid out row by row.
    fn class_columns(frame: Frame, taps: Taps<COUNT>) {
        columns(&frame, parameter!(class_columns, 1, taps), |x, y| y * SIDE + x)
    }

    /// The row pass with several results a thread.
    fn steps_rows(frame: Frame, taps: Taps<COUNT>) {
        let taps = parameter!(steps_rows, 1, taps);
        const WIDTH: i32 = STEPS_ROWS_BLOCK.0;
        const PITCH: i32 = (STEPS + 2) * WIDTH;
        let tile = Shared::dynamic();
        let left = block_x() * STEPS * WIDTH;
        let y = block_y() * STEPS_ROWS_BLOCK.1 + thread_y();
        let line = thread_y() * PITCH;
        let mut step = 0;
        while step < STEPS + 2 {
            let at = step * WIDTH + thread_x();
            tile.store(line + at, or_constant(&frame, left - WIDTH + at, y));
            step += 1;
        }
        barrier();
        let mut step = 0;
        while step < STEPS {
            let at = step * WIDTH + thread_x();
            let sum = sum(taps, |tap| tile.load(line + WIDTH - R + at + tap));
            if left + at < frame.width && y < frame.height {
                write(&frame, left + at, y, sum);
            }
            step += 1;
        }
    }

    /// The column pass with several results a thread. Its tile is laid out column by column; an odd
    /// pitch keeps the lanes of a row in different banks.
    fn steps_columns(frame: Frame, taps: Taps<COUNT>) {
        let taps = parameter!(steps_columns, 1, taps);
        const HEIGHT: i32 = STEPS_COLUMNS_BLOCK.1;
        const PITCH: i32 = (STEPS + 2) * HEIGHT + 1;
        let tile = Shared::dynamic();
        let x = block_x() * STEPS_COLUMNS_BLOCK.0 + thread_x();
        let top = block_y() * STEPS * HEIGHT;
        let line = thread_x() * PITCH;
        let mut step = 0;
        while step < STEPS + 2 {
            let at = step * HEIGHT + thread_y();
            tile.store(line + at, or_constant(&frame, x, top - HEIGHT + at));
            step += 1;
        }
        barrier();
        let mut step = 0;
        while step < STEPS {
            let at = step * HEIGHT + thread_y();
            let sum = sum(taps, |tap| tile.load(line + HEIGHT - R + at + tap));
            if x < frame.width && top + at < frame.height {
                write(&frame, x, top + at, sum);
            }
            step += 1;
        }
    }
}

/// The sum over all taps of `value(column, row)`.
///
/// # Safety
/// `taps` holds K taps of a row, then K of a column.
#[inline(always)]
unsafe fn product<T: TapSource>(taps: T, value: impl Fn(i32, i32) -> f32) -> f32 {
    let mut sum = 0.0;
    let mut col = 0;
    while col < opaque(K) {
        // SAFETY: the index is below 2 * K.
        let across = unsafe { taps.tap(col as usize) };
        let mut row = 0;
        while row < K {
            // SAFETY: the index is below 2 * K.
            let down = unsafe { taps.tap((K + row) as usize) };
            sum = fma(value(col, row) * across, down, sum);
            row += 1;
        }
        col += 1;
    }
    sum
}

/// The sum over K taps of `value(tap)`.
///
/// # Safety
/// `taps` holds K taps.
#[inline(always)]
unsafe fn sum<T: TapSource>(taps: T, value: impl Fn(i32) -> f32) -> f32 {
    let mut sum = 0.0;
    let mut tap = 0;
    while tap < K {
        // SAFETY: `tap` is below K.
        sum = fma(unsafe { taps.tap(tap as usize) }, value(tap), sum);
        tap += 1;
    }
    sum
}

/// Step 1: SHORT selects 24-bit multiplications.
///
/// # Safety
/// `frame` describes allocated memory, `taps` is as for [`product`], and the launch reserved LONG x
/// LONG floats.
#[inline(always)]
unsafe fn shared<const SHORT: bool, T: TapSource>(frame: &Frame, taps: T) {
    let times = |a: i32, b: i32| if SHORT { mul24(a, b) } else { a.wrapping_mul(b) };
    let tile = Shared::dynamic();
    let (x, y) = (thread_x() + times(block_x(), SIDE), thread_y() + times(block_y(), SIDE));
    let place = |x: i32, y: i32| times(x, LONG) + y;
    let src = frame.src.wrapping_add(block_z() as usize * frame.src_plane);
    let load_at = |across: i32, down: i32| {
        let (x, y) = (x - R + across, y - R + down);
        let value = if (x as u32) < frame.width as u32 && (y as u32) < frame.height as u32 {
            // SAFETY: `(x, y)` lies in the image.
            unsafe { load(src, (x + times(y, frame.src_stride as i32)) as usize) }
        } else {
            frame.border_value
        };
        // SAFETY: the place lies in the tile.
        unsafe { tile.store(place(thread_x() + across, thread_y() + down), value) };
    };
    load_at(0, 0);
    load_at(SIDE, 0);
    load_at(0, SIDE);
    load_at(SIDE, SIDE);
    // SAFETY: all threads meet at the barrier; places lie in the tile; the write is guarded.
    unsafe {
        barrier();
        let sum = product(taps, |col, row| tile.load(place(thread_x() + col, thread_y() + row)));
        if x < frame.width && y < frame.height {
            let dst = frame.dst.wrapping_add(block_z() as usize * frame.dst_plane);
            store(dst, (x + times(y, frame.dst_stride as i32)) as usize, sum);
        }
    }
}

/// The row pass of steps 2 and 3; `place` maps a pixel to its place in the tile.
///
/// # Safety
/// `frame` describes allocated memory, `taps` holds K, and the launch reserved LONG x SIDE floats.
#[inline(always)]
unsafe fn rows<T: TapSource>(frame: &Frame, taps: T, place: impl Fn(i32, i32) -> i32) {
    let tile = Shared::dynamic();
    let (x, y) = (block_x() * SIDE + thread_x(), block_y() * SIDE + thread_y());
    // SAFETY: all threads meet at the barrier; places lie in the tile; the write is guarded.
    unsafe {
        tile.store(place(thread_x(), thread_y()), or_constant(frame, x - R, y));
        tile.store(place(thread_x() + SIDE, thread_y()), or_constant(frame, x + R, y));
        barrier();
        let sum = sum(taps, |tap| tile.load(place(thread_x() + tap, thread_y())));
        if x < frame.width && y < frame.height {
            write(frame, x, y, sum);
        }
    }
}

/// The column pass of steps 2 and 3.
///
/// # Safety
/// As for [`rows`].
#[inline(always)]
unsafe fn columns<T: TapSource>(frame: &Frame, taps: T, place: impl Fn(i32, i32) -> i32) {
    let tile = Shared::dynamic();
    let (x, y) = (block_x() * SIDE + thread_x(), block_y() * SIDE + thread_y());
    // SAFETY: as in `rows`.
    unsafe {
        tile.store(place(thread_x(), thread_y()), or_constant(frame, x, y - R));
        tile.store(place(thread_x(), thread_y() + SIDE), or_constant(frame, x, y + R));
        barrier();
        let sum = sum(taps, |tap| tile.load(place(thread_x(), thread_y() + tap)));
        if x < frame.width && y < frame.height {
            write(frame, x, y, sum);
        }
    }
}
