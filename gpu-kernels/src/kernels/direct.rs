//! Direct 2-D correlation, one f32 channel: four steps, each with one change to the step before.
//!
//! | entry | taps | pixels | window |
//! | --- | --- | --- | --- |
//! | `direct_naive` | global memory | global memory | any size |
//! | `direct_constant` | constant bank | global memory | any size up to 961 taps |
//! | `direct_shared` | constant bank | tile in shared memory | any size up to 961 taps |
//! | `direct_shared_buffer` | global memory | tile in shared memory | any size |
//! | `direct_unrolled_K` | constant bank (51: global memory) | tile in shared memory | K x K, a compile-time constant |
//!
//! Threads: a thread computes one pixel. In `direct_shared` it computes two, in `direct_unrolled_K`
//! four, one above the other, so that each row of the tile is read once for all. The first two
//! entries take any block shape, the others blocks 32 threads wide. Tile: the block's pixels and an
//! apron of `cols - 1` columns and `rows - 1` rows, without padding: a warp reads consecutive
//! words, so it has no bank conflicts. Order: one accumulator, taps row by row, left to right,
//! fused multiply-add: every entry gives the same bits. Limits: the tile fits in the shared memory
//! that a block can have.

use crate::abi::{ConstantTaps, Pass, Taps, Window};
use crate::border;
use crate::device::*;
use crate::tile::unrolled::by;
use crate::tile::view::{NO_END, Source, Target, load_tile, one_below};

/// Pixels, and threads, of a block that has no tile.
pub const BLOCK: (u32, u32) = (32, 8);
/// Pixels of a block that has a tile.
pub const TILE_BLOCK: (u32, u32) = (32, 16);
/// Pixels, one above the other, of a thread in `direct_shared` and `direct_shared_buffer`.
pub const SHARED_PIXELS: u32 = 2;
/// Pixels, one above the other, of a thread in the entries of `UNROLLED`.
pub const UNROLLED_PIXELS: u32 = 4;

kernel! {
    /// Taps and pixels from global memory.
    fn direct_naive(pass: Pass, window: Window, taps: *const f32) {
        per_pixel(&pass, &window, Buffer(taps))
    }

    /// Taps from the constant bank, pixels from global memory.
    fn direct_constant(pass: Pass, window: Window, taps: ConstantTaps) {
        per_pixel(&pass, &window, parameter!(direct_constant, 2, taps).skip(first_tap()))
    }

    /// Taps from the constant bank, pixels from a tile in shared memory.
    fn direct_shared(pass: Pass, window: Window, taps: ConstantTaps) {
        tiled::<{ SHARED_PIXELS as usize }, 2, _, _>(&pass, &window, window, parameter!(direct_shared, 2, taps))
    }

    /// As `direct_shared`, for windows with more taps than the constant bank takes.
    fn direct_shared_buffer(pass: Pass, window: Window, taps: *const f32) {
        tiled::<{ SHARED_PIXELS as usize }, 2, _, _>(&pass, &window, window, Buffer(taps))
    }

    /// As `direct_shared_buffer`, with the row of taps unrolled.
    fn direct_unrolled_51(pass: Pass, window: Window, taps: *const f32) {
        tiled::<{ UNROLLED_PIXELS as usize }, 4, _, _>(&pass, &window, UnrolledRow::<51>, Buffer(taps))
    }
}

/// As `direct_shared`, with a window size known at compile time. Up to 11x11 the whole window is
/// unrolled. For larger windows only a row is: more code would not fit in the instruction cache.
macro_rules! unrolled {
    ($($name:ident: $extent:ident<$k:literal>;)*) => {
        kernel! {$(
            fn $name(pass: Pass, window: Window, taps: Taps<{ $k * $k }>) {
                tiled::<{ UNROLLED_PIXELS as usize }, 4, _, _>(&pass, &window, $extent::<$k>, parameter!($name, 2, taps))
            }
        )*}

        host! {
            /// The entries for a constant window size, by the number of tap columns and rows.
            pub const UNROLLED: &[(i32, crate::entry::TapsEntry<(Pass, Window)>)] = &[$(($k, $name.with_taps())),*];
        }
    };
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

/// The part of the window's size that is a compile-time constant.
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

/// One pixel a thread, every neighbour loaded from global memory. The border rule applies where the
/// window leaves the image.
///
/// # Safety
/// `pass` and `window` describe allocated memory, and `taps` holds `window.rows * window.cols`
/// taps.
#[inline(always)]
unsafe fn per_pixel<T: TapSource>(pass: &Pass, window: &Window, taps: T) {
    let x = pass.region.x0 + block_x() * block_width() + thread_x();
    if x >= pass.region.x1 {
        return;
    }
    let source = Source::new(pass);
    let left = x - window.anchor_x;
    let mut y = pass.region.y0 + block_y() * block_height() + thread_y();
    while y < pass.region.y1 {
        let top = y - window.anchor_y;
        let leaves = border::leaves(left, window.cols, pass.width)
            || border::leaves(top, window.rows, pass.height);
        // SAFETY: the window lies in the image, or `row` resolves coordinates into it; `(x, y)`
        // lies in the region, and `taps` are the window's from row `r` on.
        unsafe {
            let (mut sum, mut taps, mut r) = (0.0, taps, 0);
            if !leaves && source.is_plain() {
                let mut row = source.plain_row(top).at_plain(left);
                while r < window.rows {
                    by::<8>(window.cols, |c| {
                        sum = fma(taps.tap(c as usize), load(row, c as usize), sum)
                    });
                    taps = taps.skip(window.cols as usize);
                    row = one_below(pass, row);
                    r += 1;
                }
                Target::late(pass).write(x, y, sum);
            } else if leaves && border::copies(opaque(pass.border as i32) as u32) {
                Target::late(pass).write_plain(x, y, source.pixel_inside(x, y));
            } else {
                // Opaque, so that the compiler computes nothing of the border rule early: the loop
                // above needs the registers.
                let pass =
                    &Pass { width: opaque(pass.width), height: opaque(pass.height), ..*pass };
                let source = Source::new(pass);
                while r < window.rows {
                    let row = source.row(top + r);
                    let mut c = 0;
                    while c < window.cols {
                        sum = fma(taps.tap(c as usize), row.pixel(left + c), sum);
                        c += 1;
                    }
                    taps = taps.skip(window.cols as usize);
                    r += 1;
                }
                Target::late(pass).write(x, y, sum);
            }
        }
        y += grid_height() * block_height();
    }
}

/// PER pixels a thread, one above the other. Their neighbours come from a tile that the block loads
/// together, with BATCH loads of each thread in flight.
///
/// # Safety
/// As for [`per_pixel`]; `extent` agrees with `window`, and the launch reserved the tile's bytes of
/// shared memory.
#[inline(always)]
unsafe fn tiled<const PER: usize, const BATCH: usize, E: Extent, T: TapSource>(
    pass: &Pass,
    window: &Window,
    extent: E,
    taps: T,
) {
    let tile = Shared::dynamic();
    let block_rows = PER as i32 * block_height();
    let tile_width = BLOCK.0 as i32 + extent.cols() - 1;
    let tile_height = block_rows + extent.rows() - 1;
    let block_left = pass.region.x0 + block_x() * block_width();
    let x = block_left + thread_x();
    let mut block_top = pass.region.y0 + block_y() * block_rows;
    while block_top < pass.region.y1 {
        let y = block_top + PER as i32 * thread_y();
        // SAFETY: tile indices stay below its width times its height. All threads of a block share
        // `block_top`, so they reach the same barriers. The region guards the writes.
        unsafe {
            load_tile::<BATCH>(
                pass,
                tile,
                |x, y| y * tile_width + x,
                (block_left - window.anchor_x, block_top - window.anchor_y),
                (tile_width, tile_height),
                NO_END,
            );
            barrier();

            if x < pass.region.x1 && y < pass.region.y1 {
                let first = PER as i32 * thread_y() * tile_width + thread_x();
                let pixels = Pixels { tile, tile_width, first, extent, taps };
                let sums = pixels.sums::<PER>();
                let target = Target::late(pass);
                target.write_column(x, y, sums);
                if border::copies(pass.border) {
                    let beside = border::leaves(x - window.anchor_x, extent.cols(), pass.width);
                    let mut y = opaque(y);
                    let end = y + PER as i32;
                    while y < end && y < pass.region.y1 {
                        if beside || border::leaves(y - window.anchor_y, extent.rows(), pass.height)
                        {
                            target.write_plain(x, y, Source::new(pass).pixel_inside(x, y));
                        }
                        y += 1;
                    }
                }
            }
        }
        block_top += grid_height() * block_rows;
        if block_top < pass.region.y1 {
            // The next tile overwrites values that slower threads may still read.
            // SAFETY: either the whole block or none of it takes this branch.
            unsafe { barrier() };
        }
    }
}

/// The pixels of one thread, as their windows' places in the tile.
struct Pixels<E, T> {
    tile: Shared,
    tile_width: i32,
    /// The first float of the first pixel's window.
    first: i32,
    extent: E,
    taps: T,
}

impl<E: Extent, T: TapSource> Pixels<E, T> {
    /// The sums of PER pixels, one above the other: a row of the tile is read once for all of them.
    ///
    /// # Safety
    /// The tile and the taps can be read; the window has at least PER - 1 rows.
    #[inline(always)]
    unsafe fn sums<const PER: usize>(&self) -> [f32; PER] {
        let mut sums = [0.0; PER];
        let (rows, last) = (self.extent.rows(), PER as i32 - 1);
        // Row `r` lies in the windows of the pixels `p` with `p <= r < p + rows`: first of the
        // upper pixels only, at last of the lower pixels only.
        // SAFETY: so each row lies in the windows of the pixels that `add` gets.
        unsafe {
            let mut row = 0;
            while row < last {
                self.add(&mut sums, row, 0..row as usize + 1);
                row += 1;
            }
            while row < rows {
                self.add(&mut sums, row, 0..PER);
                row += 1;
            }
            let mut first = 1;
            while first < PER {
                self.add(&mut sums, row, first..PER);
                row += 1;
                first += 1;
            }
        }
        sums
    }

    /// Adds a row of the tile, counted from the first pixel's window, to the sums of some pixels.
    ///
    /// # Safety
    /// The row lies in the window of each of these pixels.
    #[inline(always)]
    unsafe fn add(&self, sums: &mut [f32], row: i32, pixels: core::ops::Range<usize>) {
        let at = self.first + row * self.tile_width;
        let cols = self.extent.cols();
        // Tap `col` of this row for the first pixel; for each pixel further down it is a row of
        // taps less.
        let taps = (row * cols) as usize;
        let mut add = |at: i32, tap: usize| {
            // SAFETY: as the caller promised.
            let value = unsafe { self.tile.load(at) };
            let mut p = pixels.start;
            while p < pixels.end {
                // SAFETY: as the caller promised.
                sums[p] =
                    fma_in_place(unsafe { self.taps.tap(tap - p * cols as usize) }, value, sums[p]);
                p += 1;
            }
        };
        by::<4>(cols, |col| add(at + col, taps + col as usize));
    }
}
