//! Study: the two passes of NVIDIA's white paper on separable convolution. The border is a
//! constant.
//!
//! | entry | number of taps |
//! | --- | --- |
//! | `paper_rows_K`, `paper_columns_K` | K, odd, known to the compiler: the loop over taps is unrolled |
//! | `paper_rows`, `paper_columns` | any odd number up to 33: a loop |
//!
//! Row pass: a block computes 128 pixels of one row. It has 16 more threads before them, and as
//! many after them as the radius. Each thread loads one pixel; those too far left load none, so
//! that the first thread's address is aligned. The first 128 threads then compute a pixel each; the
//! others are idle. Column pass: a block of 16 x 8 threads computes a tile of 16 columns and 48
//! rows. It is tall and thin, so that the apron above and below is a small part of it. Lanes read
//! consecutive words of shared memory, or two runs of 16: no bank conflicts. Order: the sums and
//! bits of the separable family. Limits: an image is as tall as a grid at most, which in the row
//! pass is 65535 rows.

use crate::abi::Taps;
use crate::device::*;
use crate::frame::Frame;
use crate::pixels::{or_constant, write};
use crate::sizes::{PAPER_COLUMN, PAPER_COLUMN_THREADS, PAPER_LEAD, PAPER_ROW, STUDY_RADIUS};
use crate::unrolled::by;

const LIMIT: usize = 2 * STUDY_RADIUS as usize + 1;

kernel! {
    /// The row pass for a number of taps known at run time.
    fn paper_rows(frame: Frame, count: i32, taps: Taps<LIMIT>) {
        rows(&frame, count, parameter!(paper_rows, 2, taps))
    }

    /// The column pass for a number of taps known at run time.
    fn paper_columns(frame: Frame, count: i32, taps: Taps<LIMIT>) {
        columns::<1, _>(&frame, count, parameter!(paper_columns, 2, taps))
    }
}

macro_rules! unrolled {
    ($($k:literal: $untiled:ident, $tiled:ident, $rows:ident, $columns:ident, $tex_rows:ident, $tex_columns:ident;)*) => {
        kernel! {$(
            fn $rows(frame: Frame, taps: Taps<$k>) {
                rows(&frame, $k, parameter!($rows, 1, taps))
            }
            fn $columns(frame: Frame, taps: Taps<$k>) {
                columns::<3, _>(&frame, $k, parameter!($columns, 1, taps))
            }
        )*}
    };
}

crate::study_entries!(unrolled);

/// # Safety
/// `frame` describes allocated memory, `taps` holds `count` taps, and the launch reserved
/// `PAPER_ROW + count - 1` floats.
#[inline(always)]
unsafe fn rows<T: TapSource>(frame: &Frame, count: i32, taps: T) {
    let tile = Shared::dynamic();
    let radius = count / 2;
    let (left, y) = (block_x() * PAPER_ROW, block_y());
    // SAFETY: all threads meet at the barrier; indices stay inside the tile; the write is guarded.
    unsafe {
        let at = thread_x() - PAPER_LEAD + radius;
        if at >= 0 {
            tile.store(at, or_constant(frame, left - PAPER_LEAD + thread_x(), y));
        }
        barrier();
        let x = left + thread_x();
        if thread_x() < PAPER_ROW && x < frame.width {
            let mut sum = 0.0;
            by::<8>(count, |tap| {
                sum = fma(taps.tap(tap as usize), tile.load(thread_x() + tap), sum)
            });
            write(frame, x, y, sum);
        }
    }
}

/// A thread computes AT_ONCE results together, which share their reads of the tile.
///
/// # Safety
/// As for [`rows`], but the launch reserved 16 columns of `48 + count - 1` floats.
#[inline(always)]
unsafe fn columns<const AT_ONCE: usize, T: TapSource>(frame: &Frame, count: i32, taps: T) {
    const STEP: i32 = PAPER_COLUMN_THREADS;
    let tile = Shared::dynamic();
    let (width, height) = PAPER_COLUMN;
    const { assert!(PAPER_COLUMN.1 % (AT_ONCE as i32 * STEP) == 0) }
    let (x, top) = (block_x() * width + thread_x(), block_y() * height);
    let place = |row: i32| row * width + thread_x();
    // SAFETY: as in `rows`.
    unsafe {
        // The most registers with full occupancy.
        directive!(".maxnreg 32");
        // Four loads in flight.
        let mut row = thread_y();
        while row < height + count - 1 {
            let mut values = [0.0; 4];
            let mut i = 0;
            while i < 4 {
                let row = row + i as i32 * STEP;
                if row < height + count - 1 {
                    values[i] = or_constant(frame, x, top + row - count / 2);
                }
                i += 1;
            }
            let mut i = 0;
            while i < 4 {
                if row < height + count - 1 {
                    tile.store(place(row), values[i]);
                }
                row += STEP;
                i += 1;
            }
        }
        barrier();
        let mut row = thread_y();
        while row < height {
            let mut sums = [0.0; AT_ONCE];
            by::<8>(count + (AT_ONCE as i32 - 1) * STEP, |at| {
                let value = tile.load(place(row + at));
                let mut i = 0;
                while i < AT_ONCE {
                    let tap = at - i as i32 * STEP;
                    if AT_ONCE == 1 || tap >= 0 && tap < count {
                        sums[i] = fma_in_place(taps.tap(tap as usize), value, sums[i]);
                    }
                    i += 1;
                }
            });
            let mut i = 0;
            while i < AT_ONCE {
                if x < frame.width && top + row < frame.height {
                    write(frame, x, top + row, sums[i]);
                }
                row += STEP;
                i += 1;
            }
        }
    }
}
