//! Study: idle threads, as NVIDIA's white paper describes them. The border is a constant.
//!
//! A block computes 16 x 16 pixels from a tile that includes their apron. Its threads load the tile
//! in steps of the block's width and height, so the block's shape determines the number of pixels
//! that a thread loads. The first 16 x 16 threads then compute a pixel each; the others are idle.
//! Shapes: one thread for each pixel of the tile, one column of threads for each of the 16 columns,
//! or 16 x 16 threads. Order: the sums and bits of the direct family. Limits: at most 961 taps; an
//! image is as tall as a grid at most.

use crate::abi::{ConstantTaps, Window};
use crate::device::*;
use crate::frame::Frame;
use crate::pixels::{or_constant, write};
use crate::sizes::CLASS_BLOCK as SIDE;
use crate::unrolled::by;

kernel! {
    /// For blocks of any shape, 16 x 16 at least.
    fn idle_threads(frame: Frame, window: Window, taps: ConstantTaps) {
        let mut taps = parameter!(idle_threads, 2, taps).skip(first_tap());
        let tile = Shared::dynamic();
        let (left, top) = (block_x() * SIDE, block_y() * SIDE);
        let (width, height) = (SIDE + window.cols - 1, SIDE + window.rows - 1);
        let mut row = thread_y();
        while row < height {
            let mut col = thread_x();
            while col < width {
                let value = or_constant(&frame, left + col - window.anchor_x, top + row - window.anchor_y);
                tile.store(row * width + col, value);
                col += block_width();
            }
            row += block_height();
        }
        barrier();
        let (x, y) = (left + thread_x(), top + thread_y());
        if thread_x() < SIDE && thread_y() < SIDE && x < frame.width && y < frame.height {
            let mut sum = 0.0;
            let mut row = 0;
            while row < window.rows {
                let line = (thread_y() + row) * width + thread_x();
                by::<8>(window.cols, |col| sum = fma(taps.tap(col as usize), tile.load(line + col), sum));
                taps = taps.skip(window.cols as usize);
                row += 1;
            }
            write(&frame, x, y, sum);
        }
    }
}
