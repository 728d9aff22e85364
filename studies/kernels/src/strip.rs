//! Study: a blur through a tile in shared memory against one without a tile, for row-interleaved
//! channels. An output pixel whose window leaves the image is a copy.
//!
//! Threads: 16 x 16 in a block, one value a thread. The grid's x axis counts the columns of all
//! channels side by side, so a block may lie in two channels; a division gives a column's channel.
//! Tile: the block's pixels and their apron, without padding. Each thread loads its own pixel. A
//! thread within the radius of the block's edge also loads the pixel a radius beyond it, and one in
//! a corner a third pixel. No window inside the image needs a pixel of another channel, so wrong
//! pixels at a seam between channels are not used. Order: the sums and bits of the direct family.
//! Limits: square windows of odd size, 3 to 33; only KEEP; an image is as tall as a grid at most.

use crate::abi::Taps;
use crate::device::*;
use crate::frame::Frame;
use crate::sizes::CLASS_BLOCK as SIDE;

/// Rows of the largest window's taps that fit a launch's 4 KB next to its other parameters. The
/// other rows are in global memory, whose loads cost more. Even, so that those rows are aligned to
/// pairs.
const CARRIED: i32 = 30;

/// The entries of the table in `sizes.rs`.
macro_rules! entries {
    (33: $untiled:ident, $tiled:ident, $rows:ident, $columns:ident, $tex_rows:ident, $tex_columns:ident;) => {
        kernel! {
            fn $untiled(frame: Frame, planes: i32, taps: Taps<{ CARRIED as usize * 33 }>, all: *const f32) {
                untiled::<33, _>(&frame, planes, parameter!($untiled, 2, taps), CARRIED, all)
            }
            fn $tiled(frame: Frame, planes: i32, taps: Taps<{ CARRIED as usize * 33 }>, all: *const f32) {
                tiled::<33, _>(&frame, planes, parameter!($tiled, 2, taps), CARRIED, all)
            }
        }
    };
    ($k:literal: $untiled:ident, $tiled:ident, $rows:ident, $columns:ident, $tex_rows:ident, $tex_columns:ident;
     $($more:tt)*) => {
        kernel! {
            fn $untiled(frame: Frame, planes: i32, taps: Taps<{ $k * $k }>) {
                untiled::<$k, _>(&frame, planes, parameter!($untiled, 2, taps), $k, core::ptr::null())
            }
            fn $tiled(frame: Frame, planes: i32, taps: Taps<{ $k * $k }>) {
                tiled::<$k, _>(&frame, planes, parameter!($tiled, 2, taps), $k, core::ptr::null())
            }
        }
        entries! { $($more)* }
    };
}

crate::study_entries!(entries);

/// The place of a thread's value.
struct Value {
    x: i32,
    y: i32,
    /// Its index in the source.
    src: usize,
    dst: usize,
}

impl Value {
    /// This thread's value, if it has one.
    #[inline(always)]
    fn of_thread(frame: &Frame, planes: i32) -> Option<Self> {
        let (at, y) = (block_x() * SIDE + thread_x(), block_y() * SIDE + thread_y());
        if at >= planes * frame.width || y >= frame.height {
            return None;
        }
        let plane = (at as u32).checked_div(frame.width as u32).unwrap_or(0) as i32;
        let x = at - plane * frame.width;
        let index = |plane_len: usize, stride: usize| {
            plane as usize * plane_len + (y as u64 * stride as u32 as u64) as usize + x as usize
        };
        Some(Self {
            x,
            y,
            src: index(frame.src_plane, frame.src_stride),
            dst: index(frame.dst_plane, frame.dst_stride),
        })
    }

    /// Whether the window of K x K taps around it lies in the image.
    #[inline(always)]
    fn is_inner<const K: i32>(&self, frame: &Frame) -> bool {
        let radius = K / 2;
        self.x >= radius
            && self.y >= radius
            && self.x < frame.width - radius
            && self.y < frame.height - radius
    }
}

/// The sum over all taps of `value(column, row)`. The first `carried` rows of taps come from
/// `taps`, the others in pairs from `all`.
///
/// # Safety
/// `taps` holds `carried` rows of K taps. If these are not all rows, `carried` is even and `all`
/// holds K x K taps.
#[inline(always)]
unsafe fn sum<const K: i32, T: TapSource>(
    taps: T,
    carried: i32,
    all: *const f32,
    value: impl Fn(i32, i32) -> f32,
) -> f32 {
    // SAFETY: as the caller promised.
    let mut sum = unsafe { add::<K, _>(taps, carried, &value) };
    let mut tap = carried * K;
    while tap < K * K {
        // SAFETY: as above; the last tap of an odd number is read alone.
        let pair = unsafe {
            if tap + 1 < K * K { load2(all, tap as usize) } else { [load(all, tap as usize), 0.0] }
        };
        sum = fma(pair[0], value(tap % K, tap / K), sum);
        if tap + 1 < K * K {
            sum = fma(pair[1], value((tap + 1) % K, (tap + 1) / K), sum);
        }
        tap += 2;
    }
    sum
}

/// The sum over the first rows. Beyond 11 x 11 taps, rows are a loop, because the unrolled code
/// would not fit in the instruction cache.
///
/// # Safety
/// `taps` holds `rows` rows of K taps.
#[inline(always)]
unsafe fn add<const K: i32, T: TapSource>(
    taps: T,
    rows: i32,
    value: &impl Fn(i32, i32) -> f32,
) -> f32 {
    let mut sum = 0.0;
    let end = if K <= 11 { rows } else { opaque(rows) };
    let mut row = 0;
    while row < end {
        let mut col = 0;
        while col < K {
            // SAFETY: the index is below the number of taps.
            sum = fma(unsafe { taps.tap((row * K + col) as usize) }, value(col, row), sum);
            col += 1;
        }
        row += 1;
    }
    sum
}

/// # Safety
/// `frame` describes allocated memory, `taps` and `all` meet the contract of [`sum`].
#[inline(always)]
unsafe fn untiled<const K: i32, T: TapSource>(
    frame: &Frame,
    planes: i32,
    taps: T,
    carried: i32,
    all: *const f32,
) {
    let Some(at) = Value::of_thread(frame, planes) else { return };
    // SAFETY: the window lies in the image, or only the pixel itself is read.
    unsafe {
        let value = if at.is_inner::<K>(frame) {
            let stride = frame.src_stride as u32 as usize;
            let corner =
                frame.src.wrapping_add(at.src).wrapping_sub((K / 2) as usize * (stride + 1));
            sum::<K, _>(taps, carried, all, |col, row| {
                load(corner, row as usize * stride + col as usize)
            })
        } else {
            load(frame.src, at.src)
        };
        store(frame.dst, at.dst, value);
    }
}

/// # Safety
/// As for [`untiled`]; the launch reserved (SIDE + K - 1)^2 floats.
#[inline(always)]
unsafe fn tiled<const K: i32, T: TapSource>(
    frame: &Frame,
    planes: i32,
    taps: T,
    carried: i32,
    all: *const f32,
) {
    let tile = Shared::dynamic();
    let (radius, pitch) = (K / 2, SIDE + K - 1);
    let place = |x: i32, y: i32| (thread_y() + y) * pitch + thread_x() + x;
    let mine = Value::of_thread(frame, planes);
    if let Some(at) = &mine {
        let stride = frame.src_stride as u32 as isize;
        // The pixel itself, and those a radius away that lie in the image and outside the block.
        let ahead = [
            thread_x() < radius && at.x >= radius,
            true,
            thread_x() >= SIDE - radius && at.x < frame.width - radius,
        ];
        let below = [
            thread_y() < radius && at.y >= radius,
            true,
            thread_y() >= SIDE - radius && at.y < frame.height - radius,
        ];
        let mut down = 0;
        while down < 3 {
            let mut across = 0;
            while across < 3 {
                if ahead[across as usize] && below[down as usize] {
                    let offset =
                        ((down - 1) as isize * stride + (across - 1) as isize) * radius as isize;
                    // SAFETY: the pixel lies in the image, its place in the tile.
                    unsafe {
                        let value = load(frame.src.wrapping_add(at.src).wrapping_offset(offset), 0);
                        tile.store(place(across * radius, down * radius), value);
                    }
                }
                across += 1;
            }
            down += 1;
        }
    }
    let (at, none) = match mine {
        Some(at) => (at, 0),
        None => (Value { x: 0, y: 0, src: 0, dst: 0 }, 1),
    };
    // SAFETY: every thread of the block gets here.
    unsafe { barrier() };
    // Hidden, because the following code depends on the same condition. The compiler would
    // otherwise put a barrier into each branch, and a warp whose threads wait at two barriers
    // deadlocks.
    if opaque(none) != 0 {
        return;
    }
    // SAFETY: the window lies in the image, so its pixels are in the tile.
    unsafe {
        let value = if at.is_inner::<K>(frame) {
            let first = place(0, 0);
            sum::<K, _>(taps, carried, all, |col, row| tile.load(first + row * pitch + col))
        } else {
            load(frame.src, at.src)
        };
        store(frame.dst, at.dst, value);
    }
}
