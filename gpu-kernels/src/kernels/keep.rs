//! Copies pixels: those that a border copies from the source, for kernels that leave them out,
//! those that results hardly change, and whole channels.
//!
//! Thread mapping: a block of 32 x 8 threads, a warp a row. Where a border copies, its lanes copy
//! the row's pixels left of where the window lies inside the image and right of it, or the whole
//! row where the window leaves the image above or below.

use crate::abi::{Pass, Window};
use crate::border;
use crate::device::*;
use crate::tile::view::{Source, Target};

/// Threads of a block of either kernel.
pub const BLOCK: (u32, u32) = (32, 8);

kernel! {
    /// Copies each pixel of the region whose window leaves the image from source to destination.
    fn keep_edges(pass: Pass, window: Window) {
        let (source, target) = (Source::new(&pass), Target::new(&pass));
        let mut y = pass.region.y0 + block_y() * block_height() + thread_y();
        while y < pass.region.y1 {
            let whole = border::leaves(y - window.anchor_y, window.rows, pass.height);
            // The window lies inside from column `left` up to column `right` (exclusive).
            let right = pass.width - (window.cols - 1 - window.anchor_x);
            let left = if whole || right <= window.anchor_x { pass.width } else { window.anchor_x };
            let mut x = pass.region.x0 + thread_x();
            while x < pass.region.x1 {
                if x >= left && x < right {
                    x += (right - x + 31) / 32 * 32;
                    continue;
                }
                target.write_plain(x, y, source.pixel_inside(x, y));
                x += 32;
            }
            y += grid_height() * block_height();
        }
    }

    /// Copies each pixel of the region from which the stored result differs by less than `least`.
    fn keep_nearly_same(pass: Pass, least: f32) {
        let (source, target) = (Source::new(&pass), Target::new(&pass));
        let x = pass.region.x0 + block_x() * block_width() + thread_x();
        let mut y = pass.region.y0 + block_y() * block_height() + thread_y();
        while x < pass.region.x1 && y < pass.region.y1 {
            let pixel = source.pixel_inside(x, y);
            if (target.stored(x, y) - pixel).abs() < least {
                target.write_plain(x, y, pixel);
            }
            y += grid_height() * block_height();
        }
    }

    /// Stores each pixel of the region as the result, with the epilogue, as a filter of a single
    /// tap of 1 would.
    fn copy_pixels(pass: Pass) {
        let (source, target) = (Source::new(&pass), Target::new(&pass));
        let x = pass.region.x0 + block_x() * block_width() + thread_x();
        let mut y = pass.region.y0 + block_y() * block_height() + thread_y();
        while x < pass.region.x1 && y < pass.region.y1 {
            target.write(x, y, source.pixel_inside(x, y));
            y += grid_height() * block_height();
        }
    }
}
