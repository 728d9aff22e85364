//! Study: a separable filter whose passes read pixels through a texture, without shared memory.
//!
//! Threads: 16 x 12 in a block, one pixel a thread. The texture unit gives the values outside the
//! image: its border colour for a constant, its clamped coordinate where the edge repeats. Order:
//! the sums and bits of the separable family. Limits: one plane, of an extent that the device
//! supports for textures; an odd number of taps up to 33.

use crate::abi::Taps;
use crate::device::*;
use crate::frame::Frame;
use crate::pixels::write;

macro_rules! unrolled {
    ($($k:literal: $untiled:ident, $tiled:ident, $rows:ident, $columns:ident, $tex_rows:ident, $tex_columns:ident;)*) => {
        kernel! {$(
            fn $tex_rows(frame: Frame, src: Texture, taps: Taps<$k>) {
                pass::<$k, true, _>(&frame, src, parameter!($tex_rows, 2, taps))
            }
            fn $tex_columns(frame: Frame, src: Texture, taps: Taps<$k>) {
                pass::<$k, false, _>(&frame, src, parameter!($tex_columns, 2, taps))
            }
        )*}
    };
}

crate::study_entries!(unrolled);

/// # Safety
/// `src` is a texture of the source, `frame` describes allocated memory, and `taps` holds K taps.
#[inline(always)]
unsafe fn pass<const K: i32, const ROWS: bool, T: TapSource>(frame: &Frame, src: Texture, taps: T) {
    let x = block_x() * block_width() + thread_x();
    let y = block_y() * block_height() + thread_y();
    if x >= frame.width || y >= frame.height {
        return;
    }
    let (middle_x, middle_y) = (x as f32 + 0.5, y as f32 + 0.5);
    let mut sum = 0.0;
    let mut tap = 0;
    while tap < K {
        let offset = (tap - K / 2) as f32;
        let (across, down) = if ROWS { (offset, 0.0) } else { (0.0, offset) };
        // SAFETY: the texture has a value for any place; `tap` is below K.
        unsafe {
            sum = fma(taps.tap(tap as usize), src.fetch(middle_x + across, middle_y + down), sum)
        };
        tap += 1;
    }
    // SAFETY: `(x, y)` lies in the image.
    unsafe { write(frame, x, y, sum) };
}
