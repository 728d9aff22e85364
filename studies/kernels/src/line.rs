//! Study: one-dimensional correlation with 5 taps, in the steps of a blog. The border is a
//! constant.
//!
//! | entry | taps | neighbours |
//! | --- | --- | --- |
//! | `line_naive` | global memory | global memory |
//! | `line_constant` | constant bank | global memory |
//! | `line_shared` | constant bank | a tile without apron; global memory for those outside it |
//! | `line_ghost` | constant bank | a tile with an apron, which holds the border's value outside the image |
//! | `line_vector` | constant bank | 8-byte loads into registers; four results a thread |
//!
//! Threads: 256 in a block along the row; a thread computes one result, or four neighbouring ones.
//! The grid's y axis counts rows, each filtered alone. Order: the sums and bits of the direct
//! family. Limits: windows of 5 x 1 taps; an image has as many rows as a grid at most.

use crate::abi::Taps;
use crate::device::*;
use crate::frame::Frame;
use crate::pixels::{or_constant, row, write, write_run};
use crate::sizes::{LINE_BLOCK, LINE_RUN, LINE_TAPS as K};

const R: i32 = K / 2;
const COUNT: usize = K as usize;
const RUN: usize = LINE_RUN as usize;

kernel! {
    /// Taps and neighbours from global memory.
    fn line_naive(frame: Frame, taps: *const f32) {
        each(&frame, Buffer(taps), |x, y| or_constant(&frame, x, y))
    }

    /// Taps from the constant bank.
    fn line_constant(frame: Frame, taps: Taps<COUNT>) {
        each(&frame, parameter!(line_constant, 1, taps), |x, y| or_constant(&frame, x, y))
    }

    /// Neighbours in the same block from shared memory.
    fn line_shared(frame: Frame, taps: Taps<COUNT>) {
        let taps = parameter!(line_shared, 1, taps);
        let tile = Shared::dynamic();
        let left = block_x() * LINE_BLOCK;
        tile.store(thread_x(), or_constant(&frame, left + thread_x(), block_y()));
        barrier();
        each(&frame, taps, |x, y| {
            let at = x - left;
            if (at as u32) < LINE_BLOCK as u32 { tile.load(at) } else { or_constant(&frame, x, y) }
        })
    }

    /// All neighbours from shared memory.
    fn line_ghost(frame: Frame, taps: Taps<COUNT>) {
        let taps = parameter!(line_ghost, 1, taps);
        let tile = Shared::dynamic();
        let left = block_x() * LINE_BLOCK - R;
        tile.store(thread_x(), or_constant(&frame, left + thread_x(), block_y()));
        if thread_x() < K - 1 {
            let at = thread_x() + LINE_BLOCK;
            tile.store(at, or_constant(&frame, left + at, block_y()));
        }
        barrier();
        each(&frame, taps, |x, _| tile.load(x - left))
    }

    /// Four results a thread, from registers.
    fn line_vector(frame: Frame, taps: Taps<COUNT>) {
        let taps = parameter!(line_vector, 1, taps);
        let (x, y) = ((block_x() * LINE_BLOCK + thread_x()) * LINE_RUN, block_y());
        if x >= frame.width {
            return;
        }
        let mut values = [0.0; RUN + COUNT - 1];
        let mut i = 0;
        if x >= R && x + LINE_RUN + R <= frame.width {
            // Rows begin at multiples of 128 bytes, so `x - 2` is at a multiple of 8 bytes.
            let start = row(&frame, y).from(x - R);
            while i < values.len() {
                let two = load2(start, i);
                values[i] = two[0];
                values[i + 1] = two[1];
                i += 2;
            }
        } else {
            while i < values.len() {
                values[i] = or_constant(&frame, x - R + i as i32, y);
                i += 1;
            }
        }
        let mut sums = [0.0; RUN];
        let mut result = 0;
        while result < RUN {
            let mut tap = 0;
            while tap < COUNT {
                sums[result] = fma(taps.tap(tap), values[result + tap], sums[result]);
                tap += 1;
            }
            result += 1;
        }
        write_run(&frame, x, y, sums);
    }
}

/// Computes and writes this thread's result.
///
/// # Safety
/// `frame` describes allocated memory, `taps` holds K taps, and `value` is defined up to R places
/// outside the block.
#[inline(always)]
unsafe fn each<T: TapSource>(frame: &Frame, taps: T, value: impl Fn(i32, i32) -> f32) {
    let (x, y) = (block_x() * LINE_BLOCK + thread_x(), block_y());
    if x >= frame.width {
        return;
    }
    let mut sum = 0.0;
    let mut tap = 0;
    while tap < K {
        // SAFETY: `tap` is below K.
        sum = fma(unsafe { taps.tap(tap as usize) }, value(x + tap - R, y), sum);
        tap += 1;
    }
    // SAFETY: `(x, y)` lies in the image.
    unsafe { write(frame, x, y, sum) };
}
