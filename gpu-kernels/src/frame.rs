//! Reading a launch's source through the border rule, and writing its destination.

use crate::abi::Frame;
use crate::border;
use crate::device::*;

/// The source pixel at `(x, y)` of this block's plane, or what the border puts there.
///
/// # Safety
/// `frame` describes allocated memory.
#[inline(always)]
pub(crate) unsafe fn source(frame: &Frame, x: i32, y: i32) -> f32 {
    let x = border::resolve(frame.border, x, frame.width);
    let y = border::resolve(frame.border, y, frame.height);
    if x < 0 || y < 0 {
        return frame.border_value;
    }
    let plane = block_z() as usize * frame.src_plane;
    // SAFETY: both coordinates lie in the image.
    unsafe { load(frame.src, plane + y as usize * frame.src_stride + x as usize) }
}

/// Stores the result at `(x, y)` of this block's plane.
///
/// # Safety
/// `(x, y)` lies in the image, and no other thread stores there.
#[inline(always)]
pub(crate) unsafe fn write(frame: &Frame, x: i32, y: i32, value: f32) {
    let plane = block_z() as usize * frame.dst_plane;
    // SAFETY: as the caller promised.
    unsafe { store(frame.dst, plane + y as usize * frame.dst_stride + x as usize, value) }
}

/// Stores the PX (2 or 4) results at `(x, y)` and right of it, as far as they lie in the image.
///
/// # Safety
/// `y` lies in the image, `x` is a multiple of PX and not negative, and no other thread stores there.
#[inline(always)]
pub(crate) unsafe fn write_run<const PX: usize>(frame: &Frame, x: i32, y: i32, values: [f32; PX]) {
    let index = block_z() as usize * frame.dst_plane + y as usize * frame.dst_stride + x as usize;
    // SAFETY: each pixel is stored only if it lies in the image; the vector only if all do and it is aligned.
    unsafe {
        if x + PX as i32 <= frame.width && (frame.dst as usize + 4 * index).is_multiple_of(4 * PX) {
            store_run(frame.dst, index, values);
        } else {
            let mut i = 0;
            while i < PX {
                if x + (i as i32) < frame.width {
                    store(frame.dst, index + i, values[i]);
                }
                i += 1;
            }
        }
    }
}
