//! Colours weighted by alpha: for taps that are not negative and sum to 1.
//!
//! A colour becomes `sum(tap * (colour * alpha)) / sum(tap * alpha)`, 0 where the divisor is 0, and alpha becomes `sum(tap * alpha)`, all in
//! f64, and rounded once. So what is transparent has no part in a colour.
//!
//! Thread mapping: a thread a pixel, with all its channels; alpha is the last. The grid's z axis counts images.
//! Order: row by row, left to right, each product and each sum rounded to f64. `colour * alpha` is exact.
//! Taps: in global memory, in f64, row by row.
//! Limits: at least two channels; no epilogue.

use crate::abi::{Pass, Window};
use crate::border;
use crate::device::*;
use crate::pixel::{f64_to_bits, load_value, store_bits};
use crate::tile::view::{Source, Target};

/// Threads of a block.
pub const BLOCK: (u32, u32) = (32, 8);

kernel! {
    /// `taps` is the address of the window's taps; `colours` channels come before alpha.
    fn weighted(pass: Pass, window: Window, taps: u64, colours: i32) {
        let x = pass.region.x0 + block_x() * block_width() + thread_x();
        let mut y = pass.region.y0 + block_y() * block_height() + thread_y();
        while x < pass.region.x1 && y < pass.region.y1 {
            let leaves = border::leaves(x - window.anchor_x, window.cols, pass.width)
                || border::leaves(y - window.anchor_y, window.rows, pass.height);
            let first = block_z() * (colours + 1);
            if leaves && pass.border == border::KEEP {
                let mut c = opaque(0);
                while c <= colours {
                    let source = Source::of_channel(&pass.src, &pass, first + c);
                    Target::of_channel(&pass, first + c).write_plain(x, y, source.pixel_inside(x, y));
                    c += 1;
                }
            } else {
                let mut c = 0;
                while c + 3 <= colours {
                    some::<3>(&pass, &window, taps, (x, y), (first, c, colours), leaves);
                    c += 3;
                }
                while c < colours {
                    some::<1>(&pass, &window, taps, (x, y), (first, c, colours), leaves);
                    c += 1;
                }
            }
            y += grid_height() * block_height();
        }
    }
}

/// Computes N colours of a pixel from number `c` on, and its alpha with the first of them; `first` is the image's first channel.
///
/// # Safety
/// The pass describes allocated memory, `(x, y)` lies in the region, and no other thread has the pixel; the taps can be read.
#[inline(always)]
unsafe fn some<const N: usize>(
    pass: &Pass,
    window: &Window,
    taps: u64,
    (x, y): (i32, i32),
    (first, c, colours): (i32, i32, i32),
    leaves: bool,
) {
    let (left, top) = (x - window.anchor_x, y - window.anchor_y);
    let alpha = Source::of_channel(&pass.src, pass, first + colours);
    // How much further the colours lie.
    let mut offsets = [0; N];
    let mut n = 0;
    while n < N {
        let colour = Source::of_channel(&pass.src, pass, first + c + n as i32);
        offsets[n] = colour.origin().wrapping_sub(alpha.origin());
        n += 1;
    }
    let (mut sums, mut weight) = ([0.0; N], 0.0);
    let mut taps = taps;
    let mut r = opaque(0);
    while r < window.rows {
        let row = if leaves { alpha.row(top + r) } else { alpha.row_inside(top + r) };
        let mut col = opaque(0);
        while col < window.cols {
            let column = if leaves { border::resolve(pass.border, left + col, pass.width) } else { left + col };
            let is_outside = column < 0 || !row.is_inside();
            let at = row.at(column);
            // SAFETY: the pixel lies in the image, or is not read.
            unsafe {
                let value = |at: u64| if is_outside { pass.outside } else { load_value(pass.src.scalar, at) };
                let (tap, opacity) = (load_f64(taps), value(at) as f64);
                weight = add_f64(weight, mul_f64(tap, opacity));
                let mut n = 0;
                while n < N {
                    let part = mul_f64(value(at.wrapping_add(offsets[n])) as f64, opacity);
                    sums[n] = add_f64(sums[n], mul_f64(tap, part));
                    n += 1;
                }
            }
            taps += 8;
            col += 1;
        }
        r += 1;
    }
    let scalar = pass.dst.scalar;
    let mut n = 0;
    while n < N {
        let colour = if weight == 0.0 { 0.0 } else { sums[n] / weight };
        let target = Target::of_channel(pass, first + c + n as i32);
        // SAFETY: as the caller promised.
        unsafe { store_bits(scalar, target.at(x, y), f64_to_bits(scalar, colour)) };
        n += 1;
    }
    if c == 0 {
        let target = Target::of_channel(pass, first + colours);
        // SAFETY: as the caller promised.
        unsafe { store_bits(scalar, target.at(x, y), f64_to_bits(scalar, weight)) };
    }
}
