//! Direct 2-D correlation, one f32 channel: four steps, each the last one with a single thing changed.
//!
//! | entry | taps | pixels | window |
//! | --- | --- | --- | --- |
//! | `direct_naive` | global memory | global memory | size known at run time |
//! | `direct_constant` | constant bank | global memory | size known at run time, at most 961 taps |
//! | `direct_shared` | constant bank | tile in shared memory | size known at run time, at most 961 taps |
//! | `direct_shared_buffer` | global memory | tile in shared memory | size known at run time |
//! | `direct_unrolled_K` | constant bank (51: global memory) | tile in shared memory | K x K, known to the compiler |
//!
//! Thread mapping: thread `(x, y)` of block `(x, y)` computes one pixel, and its block's `(x, y)` the block's corner; the
//! first two take any block shape, the others blocks 32 threads wide. Tile: the block's pixels and an apron of
//! `cols - 1` columns and `rows - 1` rows, without padding: a warp reads consecutive words, so no two of its lanes meet in
//! a bank.
//! Order: one accumulator, taps row by row, left to right, fused multiply-add: every entry gives the same bits.
//! Limits: the tile fits in the shared memory that a block can have.

use crate::abi::{ConstantTaps, DIRECT_BLOCK, Frame, Taps, Window};
use crate::border;
use crate::device::*;
use crate::frame::{load_tile, pixel, row, write};

kernel! {
    /// Taps and pixels from global memory.
    fn direct_naive(frame: Frame, window: Window, taps: *const f32) {
        per_pixel(&frame, &window, Buffer(taps))
    }

    /// Taps from the constant bank, pixels from global memory.
    fn direct_constant(frame: Frame, window: Window, taps: ConstantTaps) {
        per_pixel(&frame, &window, parameter!(direct_constant, 2, taps))
    }

    /// Taps from the constant bank, pixels from a tile in shared memory.
    fn direct_shared(frame: Frame, window: Window, taps: ConstantTaps) {
        tiled(&frame, &window, window, parameter!(direct_shared, 2, taps))
    }

    /// As `direct_shared`, for windows with more taps than the constant bank takes.
    fn direct_shared_buffer(frame: Frame, window: Window, taps: *const f32) {
        tiled(&frame, &window, window, Buffer(taps))
    }

    /// As `direct_shared_buffer`, with the row of taps unrolled.
    fn direct_unrolled_51(frame: Frame, window: Window, taps: *const f32) {
        tiled(&frame, &window, UnrolledRow::<51>, Buffer(taps))
    }
}

/// As `direct_shared`, with the size known to the compiler. Up to 11x11 the whole window is unrolled; beyond, one row of
/// it, because the code would no longer fit in the instruction cache.
macro_rules! unrolled {
    ($($name:ident: $extent:ident<$k:literal>;)*) => {kernel! {$(
        fn $name(frame: Frame, window: Window, taps: Taps<{ $k * $k }>) {
            tiled(&frame, &window, $extent::<$k>, parameter!($name, 2, taps))
        }
    )*}};
}

unrolled! {
    direct_unrolled_3: Unrolled<3>;
    direct_unrolled_5: Unrolled<5>;
    direct_unrolled_7: Unrolled<7>;
    direct_unrolled_9: Unrolled<9>;
    direct_unrolled_11: Unrolled<11>;
    direct_unrolled_13: UnrolledRow<13>;
    direct_unrolled_15: UnrolledRow<15>;
    direct_unrolled_17: UnrolledRow<17>;
    direct_unrolled_21: UnrolledRow<21>;
    direct_unrolled_31: UnrolledRow<31>;
}

/// How much of the window's size the compiler knows.
trait Extent: Copy {
    fn cols(self) -> i32;
    fn rows(self) -> i32;
}

impl Extent for Window {
    #[inline(always)]
    fn cols(self) -> i32 {
        self.cols
    }
    #[inline(always)]
    fn rows(self) -> i32 {
        self.rows
    }
}

/// K rows of K taps, all unrolled.
#[derive(Clone, Copy)]
struct Unrolled<const K: i32>;

impl<const K: i32> Extent for Unrolled<K> {
    #[inline(always)]
    fn cols(self) -> i32 {
        K
    }
    #[inline(always)]
    fn rows(self) -> i32 {
        K
    }
}

/// K rows of K taps; a row is unrolled, the rows are a loop.
#[derive(Clone, Copy)]
struct UnrolledRow<const K: i32>;

impl<const K: i32> Extent for UnrolledRow<K> {
    #[inline(always)]
    fn cols(self) -> i32 {
        K
    }
    #[inline(always)]
    fn rows(self) -> i32 {
        opaque(K)
    }
}

/// One pixel a thread, every neighbour fetched through the border rule.
///
/// # Safety
/// `frame` and `window` describe allocated memory, and `taps` holds `window.rows * window.cols` taps.
#[inline(always)]
unsafe fn per_pixel<T: TapSource>(frame: &Frame, window: &Window, taps: T) {
    let x = block_x() * block_width() + thread_x();
    if x >= frame.width {
        return;
    }
    let left = x - window.anchor_x;
    let mut y = block_y() * block_height() + thread_y();
    while y < frame.height {
        let top = y - window.anchor_y;
        // SAFETY: `row` resolves coordinates into the image, `(x, y)` lies in it, and `tap` counts the window's taps.
        unsafe {
            let keep = frame.border == border::KEEP
                && (border::leaves(left, window.cols, frame.width) || border::leaves(top, window.rows, frame.height));
            let sum = if keep {
                pixel(frame, x, y)
            } else {
                let inside = left >= 0 && left + window.cols <= frame.width;
                let mut sum = 0.0;
                let mut tap = 0;
                let mut r = 0;
                while r < window.rows {
                    let row = row(frame, top + r);
                    let mut c = 0;
                    if inside && top + r >= 0 && top + r < frame.height {
                        while c < window.cols {
                            sum = fma(taps.tap(tap), row.inside(left + c), sum);
                            tap += 1;
                            c += 1;
                        }
                    } else {
                        while c < window.cols {
                            sum = fma(taps.tap(tap), row.pixel(frame, left + c), sum);
                            tap += 1;
                            c += 1;
                        }
                    }
                    r += 1;
                }
                sum
            };
            write(frame, x, y, sum);
        }
        y += grid_height() * block_height();
    }
}

/// One pixel a thread, its neighbours from a tile that the block has loaded together.
///
/// # Safety
/// As for [`per_pixel`]; `extent` agrees with `window`, and the launch reserved the tile's bytes of shared memory.
#[inline(always)]
unsafe fn tiled<E: Extent, T: TapSource>(frame: &Frame, window: &Window, extent: E, taps: T) {
    let tile = Shared::dynamic();
    let tile_width = DIRECT_BLOCK.0 as i32 + extent.cols() - 1;
    let tile_height = block_height() + extent.rows() - 1;
    let block_left = block_x() * block_width();
    let x = block_left + thread_x();
    let mut block_top = block_y() * block_height();
    while block_top < frame.height {
        let y = block_top + thread_y();
        // SAFETY: tile indices stay below its width times its height; all threads of a block share `block_top`, so they
        // meet at the same barriers; `write` is guarded by the image's size.
        unsafe {
            load_tile::<2>(
                frame,
                tile,
                tile_width,
                block_left - window.anchor_x,
                block_top - window.anchor_y,
                tile_width,
                tile_height,
            );
            barrier();

            if x < frame.width && y < frame.height {
                let keep = frame.border == border::KEEP
                    && (border::leaves(x - window.anchor_x, extent.cols(), frame.width)
                        || border::leaves(y - window.anchor_y, extent.rows(), frame.height));
                let sum = if keep {
                    pixel(frame, x, y)
                } else {
                    let mut sum = 0.0;
                    let mut row = 0;
                    while row < extent.rows() {
                        let first = (thread_y() + row) * tile_width + thread_x();
                        let tap = (row * extent.cols()) as usize;
                        // Four at a time, for the sizes that the compiler does not know.
                        let mut col = 0;
                        while col + 4 <= extent.cols() {
                            let mut i = 0;
                            while i < 4 {
                                let at = col + i;
                                sum = fma(taps.tap(tap + at as usize), tile.load(first + at), sum);
                                i += 1;
                            }
                            col += 4;
                        }
                        while col < extent.cols() {
                            sum = fma(taps.tap(tap + col as usize), tile.load(first + col), sum);
                            col += 1;
                        }
                        row += 1;
                    }
                    sum
                };
                write(frame, x, y, sum);
            }
        }
        block_top += grid_height() * block_height();
        if block_top < frame.height {
            // The next tile overwrites what slower threads may still be reading.
            // SAFETY: the whole block goes on to it, or none of it.
            unsafe { barrier() };
        }
    }
}
