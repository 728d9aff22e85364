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
    // SAFETY: `row` resolves into the image.
    unsafe { row(frame, y).pixel(frame, x) }
}

/// The source pixel at `(x, y)` of this block's plane, which lies in the image.
///
/// # Safety
/// It does.
#[inline(always)]
pub(crate) unsafe fn pixel(frame: &Frame, x: i32, y: i32) -> f32 {
    let plane = block_z() as usize * frame.src_plane;
    // SAFETY: as the caller promised.
    unsafe { load(frame.src, plane + rows(y, frame.src_stride) + x as usize) }
}

/// The source pixel at `(x, y)` of this block's plane, the border's value outside the image.
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

/// The row that coordinate `y` finds.
#[inline(always)]
pub(crate) fn row(frame: &Frame, y: i32) -> Row {
    let y = border::resolve(frame.border, y, frame.height);
    let offset = block_z() as usize * frame.src_plane + rows(y, frame.src_stride);
    Row { start: frame.src.wrapping_add(offset), outside: y < 0 }
}

impl Row {
    /// The pixel that coordinate `x` finds in the row, or what the border puts there.
    ///
    /// # Safety
    /// `frame`, of which this is a row, describes allocated memory.
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

    /// Whether the row lies in the image.
    #[inline(always)]
    pub(crate) fn is_inside(self) -> bool {
        !self.outside
    }

    /// The row `count` rows below, which lies in the image as this one does.
    #[inline(always)]
    pub(crate) fn below(self, frame: &Frame, count: i32) -> Self {
        Self { start: self.start.wrapping_add(rows(count, frame.src_stride)), ..self }
    }

    /// The pixel at `x`, of a row and a column that lie in the image.
    ///
    /// # Safety
    /// They do.
    #[inline(always)]
    pub(crate) unsafe fn inside(self, x: i32) -> f32 {
        // SAFETY: as the caller promised.
        unsafe { load(self.start, x as usize) }
    }
}

/// Loads the pixels from column `left` and row `top` on into `width` by `height` floats of shared memory, `pitch` floats
/// from one row to the next, all threads of a block 32 threads wide together: a warp takes 32 columns of a row at a time,
/// and has BATCH of these under way.
///
/// # Safety
/// `frame` describes allocated memory, and the floats lie in what the launch reserved.
#[inline(always)]
pub(crate) unsafe fn load_tile<const BATCH: usize>(
    frame: &Frame,
    tile: Shared,
    pitch: i32,
    left: i32,
    top: i32,
    width: i32,
    height: i32,
) {
    // The next 32 columns, or the warp's next row.
    let step = |(x, y): (i32, i32)| if x + 32 < width { (x + 32, y) } else { (0, y + block_height()) };
    let mut at = (0, thread_y());
    if left >= 0 && top >= 0 && left + width <= frame.width && top + height <= frame.height {
        // Most tiles lie inside the image, and need no border rule.
        let corner = row(frame, top);
        while at.1 < height {
            let mut values = [0.0; BATCH];
            let mut loaded = at;
            let mut i = 0;
            while i < BATCH {
                let (x, y) = (loaded.0 + thread_x(), loaded.1);
                if x < width && y < height {
                    // SAFETY: the tile lies inside the image.
                    values[i] = unsafe { corner.below(frame, y).inside(left + x) };
                }
                loaded = step(loaded);
                i += 1;
            }
            let mut i = 0;
            while i < BATCH {
                let (x, y) = (at.0 + thread_x(), at.1);
                if x < width && y < height {
                    // SAFETY: and this place in the tile.
                    unsafe { tile.store(y * pitch + x, values[i]) };
                }
                at = step(at);
                i += 1;
            }
        }
    } else {
        let frame = &Frame { width: opaque(frame.width), height: opaque(frame.height), ..*frame };
        while at.1 < height {
            let (x, y) = (at.0 + thread_x(), at.1);
            if x < width {
                // SAFETY: the place lies in the tile; the border rule finds a pixel for any coordinate.
                unsafe { tile.store(y * pitch + x, source(frame, left + x, top + y)) };
            }
            at = step(at);
        }
    }
}

/// The offset of `count` rows: strides are below 2^32, so that one 32-bit multiplication with a 64-bit product does.
#[inline(always)]
fn rows(count: i32, stride: usize) -> usize {
    (count as u32 as u64 * stride as u32 as u64) as usize
}

/// The address of the result at `(x, y)` of this block's plane.
#[inline(always)]
pub(crate) fn to(frame: &Frame, x: i32, y: i32) -> *mut f32 {
    frame.dst.wrapping_add(block_z() as usize * frame.dst_plane + rows(y, frame.dst_stride) + x as usize)
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

/// What an earlier launch stored at `(x, y)` of this block's plane.
///
/// # Safety
/// `(x, y)` lies in the image, and no other thread stores there.
#[inline(always)]
pub(crate) unsafe fn written(frame: &Frame, x: i32, y: i32) -> f32 {
    let plane = block_z() as usize * frame.dst_plane;
    // SAFETY: as the caller promised.
    unsafe { reload(frame.dst, plane + rows(y, frame.dst_stride) + x as usize) }
}

/// Stores the PX (2 or 4) results at `(x, y)` and right of it, as far as they lie in the image.
///
/// # Safety
/// `y` lies in the image, `x` is a multiple of PX and not negative, and no other thread stores there.
#[inline(always)]
pub(crate) unsafe fn write_run<const PX: usize>(frame: &Frame, x: i32, y: i32, values: [f32; PX]) {
    let index = block_z() as usize * frame.dst_plane + rows(y, frame.dst_stride) + x as usize;
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
