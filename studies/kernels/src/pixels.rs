//! Reading a frame's source through the border rule, and writing its destination.

use crate::border;
use crate::device::*;
use crate::frame::Frame;

/// The source pixel at `(x, y)` of this block's plane, or the border's value there.
///
/// # Safety
/// `frame` describes allocated memory.
#[inline(always)]
pub(crate) unsafe fn source(frame: &Frame, x: i32, y: i32) -> f32 {
    // SAFETY: `row` resolves into the image.
    unsafe { row(frame, y).pixel(frame, x) }
}

/// The source pixel at `(x, y)` of this block's plane.
///
/// # Safety
/// The pixel lies in the image.
#[inline(always)]
pub(crate) unsafe fn pixel(frame: &Frame, x: i32, y: i32) -> f32 {
    let plane = block_z() as usize * frame.src_plane;
    // SAFETY: as the caller promised.
    unsafe { load(frame.src, plane + rows(y, frame.src_stride) + x as usize) }
}

/// The source pixel at `(x, y)` of this block's plane, or the constant outside the image.
///
/// # Safety
/// `frame` describes allocated memory.
#[inline(always)]
pub(crate) unsafe fn or_constant(frame: &Frame, x: i32, y: i32) -> f32 {
    if (x as u32) < frame.width as u32 && (y as u32) < frame.height as u32 {
        // SAFETY: `(x, y)` lies in the image.
        unsafe { pixel(frame, x, y) }
    } else {
        frame.border_value
    }
}

/// A row of this block's source plane, or one that lies outside the image.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    start: *const f32,
    outside: bool,
}

/// The row for coordinate `y` under the border rule.
#[inline(always)]
pub(crate) fn row(frame: &Frame, y: i32) -> Row {
    let y = border::resolve(frame.border, y, frame.height);
    let offset = block_z() as usize * frame.src_plane + rows(y, frame.src_stride);
    Row { start: frame.src.wrapping_add(offset), outside: y < 0 }
}

impl Row {
    /// The pixel for coordinate `x` of the row under the border rule, or the border's value.
    ///
    /// # Safety
    /// `frame` is the frame of this row, and describes allocated memory.
    #[inline(always)]
    pub(crate) unsafe fn pixel(self, frame: &Frame, x: i32) -> f32 {
        let x = border::resolve(frame.border, x, frame.width);
        if self.outside || x < 0 {
            return frame.border_value;
        }
        // SAFETY: row and column lie in the image.
        unsafe { load(self.start, x as usize) }
    }

    /// The address of the pixel at `x`.
    #[inline(always)]
    pub(crate) fn from(self, x: i32) -> *const f32 {
        self.start.wrapping_offset(x as isize)
    }
}

/// The offset of `count` rows. Strides are below 2^32, so a 32-bit multiplication with a 64-bit
/// product is enough.
#[inline(always)]
fn rows(count: i32, stride: usize) -> usize {
    (count as u32 as u64 * stride as u32 as u64) as usize
}

/// Stores the result at `(x, y)` of this block's plane.
///
/// # Safety
/// `(x, y)` lies in the image, and no other thread stores there.
#[inline(always)]
pub(crate) unsafe fn write(frame: &Frame, x: i32, y: i32, value: f32) {
    let plane = block_z() as usize * frame.dst_plane;
    // SAFETY: as the caller promised.
    unsafe { store(frame.dst, plane + rows(y, frame.dst_stride) + x as usize, value) }
}

/// Stores the PX (2 or 4) results at `(x, y)` and right of it that lie in the image.
///
/// # Safety
/// `y` lies in the image, `x` is a multiple of PX and not negative, and no other thread stores
/// there.
#[inline(always)]
pub(crate) unsafe fn write_run<const PX: usize>(frame: &Frame, x: i32, y: i32, values: [f32; PX]) {
    let index = block_z() as usize * frame.dst_plane + rows(y, frame.dst_stride) + x as usize;
    // SAFETY: each pixel is stored only if it lies in the image; the vector only if all do and it
    // is aligned.
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
