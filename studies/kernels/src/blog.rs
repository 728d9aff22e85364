//! Study: the later steps of a blog's ladder of direct kernels, for blocks of any shape.
//!
//! | entry | taps | window |
//! | --- | --- | --- |
//! | `blog_shared` | constant bank | size known at run time, at most 961 taps |
//! | `blog_unrolled_5` | constant bank | 5 x 5, known to the compiler |
//!
//! The first steps are `direct_naive` and `direct_constant`, which also take any block.
//! `direct_shared` loads a tile by warps along its rows; the kernels here divide an index by the
//! tile's width. Threads: one pixel a thread. Tile: the block's pixels and their apron, row by row
//! without padding. Order: the sums and bits of the direct family. Limits: any border but KEEP; an
//! image is as tall as a grid at most.

use crate::abi::{ConstantTaps, Taps, Window};
use crate::device::*;
use crate::frame::Frame;
use crate::pixels::{pixel, source, write};
use crate::unrolled::by;

kernel! {
    /// The window's size is known at run time.
    fn blog_shared(frame: Frame, window: Window, taps: ConstantTaps) {
        tiled(&frame, &window, window.cols, window.rows, parameter!(blog_shared, 2, taps).skip(first_tap()))
    }

    /// The window's size is known to the compiler.
    fn blog_unrolled_5(frame: Frame, window: Window, taps: Taps<25>) {
        tiled(&frame, &window, 5, 5, parameter!(blog_unrolled_5, 2, taps))
    }
}

/// # Safety
/// `frame` and `window` describe allocated memory, `taps` holds `rows * cols` taps, and the launch
/// reserved the tile.
#[inline(always)]
unsafe fn tiled<T: TapSource>(frame: &Frame, window: &Window, cols: i32, rows: i32, taps: T) {
    let tile = Shared::dynamic();
    let (left, top) = (block_x() * block_width(), block_y() * block_height());
    let pitch = block_width() + cols - 1;
    let count = pitch * (block_height() + rows - 1);
    let (x, y) = (left + thread_x(), top + thread_y());
    // SAFETY: `source` resolves coordinates into the image, indices stay below the tile's size,
    // every thread reaches the barrier, and the write is guarded.
    unsafe {
        let mut at = thread_x() + thread_y() * block_width();
        while at < count {
            let row = (at as u32).checked_div(pitch as u32).unwrap_or(0) as i32;
            let (x, y) = (left + at - row * pitch - window.anchor_x, top + row - window.anchor_y);
            // Most pixels lie inside the image, so one test is enough for them.
            let inside = (x as u32) < frame.width as u32 && (y as u32) < frame.height as u32;
            tile.store(at, if inside { pixel(frame, x, y) } else { source(frame, x, y) });
            at += block_width() * block_height();
        }
        barrier();
        if x < frame.width && y < frame.height {
            let mut sum = 0.0;
            let mut taps = taps;
            let mut row = 0;
            while row < rows {
                let line = (thread_y() + row) * pitch + thread_x();
                by::<8>(cols, |col| sum = fma(taps.tap(col as usize), tile.load(line + col), sum));
                taps = taps.skip(cols as usize);
                row += 1;
            }
            write(frame, x, y, sum);
        }
    }
}
