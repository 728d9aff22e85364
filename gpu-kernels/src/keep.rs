//! The pixels that a KEEP border copies from the source, for kernels that do not do it themselves.
//!
//! Thread mapping: a block of 32 x 8 threads, a warp a row; its lanes copy the row's pixels left of where the window lies
//! inside the image and right of it, or the whole row where the window leaves the image above or below.

use crate::abi::{Frame, Window};
use crate::border;
use crate::device::*;

kernel! {
    /// Copies each pixel whose window leaves the image from source to destination.
    fn keep_edges(frame: Frame, window: Window) {
        let mut y = block_y() * block_height() + thread_y();
        while y < frame.height {
            let whole = border::leaves(y - window.anchor_y, window.rows, frame.height);
            // The window lies inside from column `left` to before column `right`.
            let right = frame.width - (window.cols - 1 - window.anchor_x);
            let left = if whole || right <= window.anchor_x { frame.width } else { window.anchor_x };
            let src = block_z() as usize * frame.src_plane + y as usize * frame.src_stride;
            let dst = block_z() as usize * frame.dst_plane + y as usize * frame.dst_stride;
            let mut x = thread_x();
            while x < frame.width {
                if x >= left && x < right {
                    x += (right - x + 31) / 32 * 32;
                    continue;
                }
                store(frame.dst, dst + x as usize, load(frame.src, src + x as usize));
                x += 32;
            }
            y += grid_height() * block_height();
        }
    }
}
