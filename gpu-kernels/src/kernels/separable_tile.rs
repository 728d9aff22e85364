//! Separable correlation of small pictures: both passes over a tile, by one block. One f32 channel,
//! as many taps in the row as in the column.
//!
//! Tiling: a block of 32 x 8 threads makes [`TILE`] results. It loads these pixels and their apron
//! into shared memory, filters its rows there, those of the apron too, and then its columns. So
//! rows of the apron are filtered by two blocks, and nothing but the image and the results goes
//! through device memory. A block works through its tile at once, where a warp of `fused.rs` slides
//! down row by row: a small picture has too few strips to hide that.
//!
//! Thread mapping: in the row pass 16 threads share a row, each with four neighbouring results; in
//! the column pass a thread has eight results of a column. Lanes read consecutive words or runs of
//! four: no bank conflicts. Taps: in the constant bank, the row's, then the column's; those of
//! `separable_tile_each`, which takes images with taps of their own, in registers. Order: as
//! `separable.rs`, with the same bits. Borders: tiles are loaded through the border rule, and where
//! it copies, pixels are copied as in `separable.rs`.

use crate::abi::{Each, Pass, Taps, Window};
use crate::border;
use crate::device::*;
use crate::pixel::{bytes, of_bits};
use crate::tile::view::Source;

use super::separable::{RESULTS, across, down, finish};
use super::separable_any::{ImageTaps, load_taps};

/// Threads of a block.
pub const BLOCK: (u32, u32) = (32, 8);
/// Columns and rows of a block's results.
pub const TILE: (i32, i32) = (64, 32);
/// Threads that share a row of the row pass.
const SHARE: i32 = TILE.0 / 4;
/// Rows that the block's threads take at a time.
const AT_ONCE: i32 = (BLOCK.0 * BLOCK.1) as i32 / SHARE;

/// Rows of pixels under a tile.
const fn height(taps: i32) -> i32 {
    TILE.1 + taps - 1
}

/// Floats from one row of pixels to the next, a multiple of 4: all are loaded.
const fn pitch(taps: i32) -> i32 {
    (TILE.0 + taps - 1 + 3) / 4 * 4
}

/// Bytes of shared memory: the pixels, then the filtered rows.
pub const fn shared(taps: i32) -> u32 {
    (4 * height(taps) * (pitch(taps) + TILE.0)) as u32
}

/// Declares and lists the entries `taps: name`.
macro_rules! tiles {
    ($($taps:literal: $name:ident;)*) => {
        kernel! {$(
            fn $name(pass: Pass, window: Window, taps: Taps<{ 2 * $taps }>) {
                directive!(".maxnreg 64");
                let taps = parameter!($name, 2, taps);
                filter::<$taps, _>(&pass, &window, [taps, taps.advanced($taps)])
            }
        )*
            /// Images with taps of their own: a table of [`ImageTaps`]. Images whose window none of
            /// the entries above takes are left as they are.
            fn separable_tile_each(pass: Pass, each: Each) {
                directive!(".maxnreg 64");
                let image = ImageTaps::of_block(&each);
                match image.tile {
                    $($taps => held::<$taps, $taps>(&pass, &image),)*
                    _ => {}
                }
            }
        }

        host! {
            /// The entries, each for so many taps in the row, and as many in the column.
            pub const ENTRIES: &[(i32, crate::entry::TapsEntry<(Pass, Window)>)] =
                &[$(($taps, $name.with_taps())),*];
        }
    };
}

tiles! {
    5: separable_tile_5;
    7: separable_tile_7;
    9: separable_tile_9;
    11: separable_tile_11;
    13: separable_tile_13;
    15: separable_tile_15;
    17: separable_tile_17;
}

/// Filters the block's tiles with an image's taps.
///
/// # Safety
/// As for [`filter`].
#[inline(always)]
unsafe fn held<const K: i32, const N: usize>(pass: &Pass, image: &ImageTaps) {
    // SAFETY: as the caller promised.
    unsafe {
        let taps = [image.row, image.column].map(|taps| Held(load_taps::<N>(taps as *const f32)));
        filter::<K, _>(pass, &image.window, taps)
    }
}

/// Filters the block's tiles.
///
/// # Safety
/// `pass` and `window` describe allocated memory, `taps` holds K taps of the row and K of the
/// column, and the launch has the block shape and the shared memory that are stated above.
#[inline(always)]
unsafe fn filter<const K: i32, T: TapSource>(pass: &Pass, window: &Window, [row, column]: [T; 2]) {
    let (tile, rows) = (Shared::dynamic(), height(K) * pitch(K));
    let thread = 32 * thread_y() + thread_x();
    let left = pass.region.x0 + block_x() * TILE.0;
    let mut top = pass.region.y0 + block_y() * TILE.1;
    while top < pass.region.y1 {
        // SAFETY: indices stay inside the tile. The threads of a block share `top`, so all reach
        // the barriers. `finish` guards the writes.
        unsafe {
            load_pixels::<K>(pass, tile, (left - window.anchor_x, top - window.anchor_y));
            barrier();
            let (x, mut y) = (thread % SHARE * 4, thread / SHARE);
            while y < height(K) {
                let sums = across::<K, _>(tile, y * pitch(K) + x, row);
                tile.store4(rows + y * TILE.0 + x, sums);
                y += AT_ONCE;
            }
            barrier();
            let (x, y) = (thread % TILE.0, thread / TILE.0 * RESULTS as i32);
            let at = rows + y * TILE.0 + x;
            let sums = down::<K, { TILE.0 }, _>(tile, at, column);
            finish(pass, window, &pass.src, (left + x, top + y), sums);
        }
        top += grid_height() * TILE.1;
    }
}

/// Pixels of a row that a thread loads, 32 columns apart, and the most rows.
const COLUMNS: usize = 3;
const ROWS: usize = 6;

/// Loads the pixels under a tile into shared memory, through the border rule, from column `left`
/// and row `top` on.
///
/// # Safety
/// As for [`filter`]; all threads of the block call together.
#[inline(always)]
unsafe fn load_pixels<const K: i32>(pass: &Pass, tile: Shared, (left, top): (i32, i32)) {
    const {
        assert!(pitch(K) <= 32 * COLUMNS as i32);
        assert!(height(K) <= BLOCK.1 as i32 * ROWS as i32);
    }
    let (source, x) = (Source::new(pass), thread_x());
    let (mut columns, mut i) = ([0; COLUMNS], 0);
    while i < COLUMNS {
        columns[i] = border::resolve_briefly(pass.border, left + x + 32 * i as i32, pass.width);
        i += 1;
    }
    let scalar = source.plane().scalar;
    // SAFETY: the border rule finds a pixel for any coordinate. What a thread stores has a place in
    // the tile.
    unsafe {
        let (bits, outside) = match bytes(scalar) {
            1 => fetch::<K>(&source, &columns, top, |at| load_u8(at)),
            2 => fetch::<K>(&source, &columns, top, |at| load_u16(at)),
            _ => fetch::<K>(&source, &columns, top, |at| load_words::<1>(at)[0]),
        };
        let (mut row, mut y) = (0, thread_y());
        while row < ROWS {
            let mut i = 0;
            while i < COLUMNS {
                let column = x + 32 * i as i32;
                if y < height(K) && column < pitch(K) {
                    let is_outside = outside >> row & 1 != 0 || columns[i] < 0;
                    let value = of_bits(scalar, bits[row][i]);
                    let value = if is_outside { pass.outside } else { value };
                    tile.store(y * pitch(K) + column, value);
                }
                i += 1;
            }
            y += BLOCK.1 as i32;
            row += 1;
        }
    }
}

/// The thread's pixels as stored, and a bit for each row that lies outside the image. All loads are
/// in flight at once.
///
/// # Safety
/// The pass describes allocated memory; `columns` lie in the image, or are negative.
#[inline(always)]
unsafe fn fetch<const K: i32>(
    source: &Source<'_>,
    columns: &[i32; COLUMNS],
    top: i32,
    load: impl Fn(u64) -> u32,
) -> ([[u32; COLUMNS]; ROWS], u32) {
    let (mut bits, mut outside) = ([[0; COLUMNS]; ROWS], 0);
    let (mut row, mut y) = (0, thread_y());
    while row < ROWS {
        let line = source.row(top + y);
        outside |= (!line.is_inside() as u32) << row;
        let mut i = 0;
        while i < COLUMNS {
            let column = thread_x() + 32 * i as i32;
            if y < height(K) && column < pitch(K) {
                bits[row][i] = load(line.at(if columns[i] < 0 { 0 } else { columns[i] }));
            }
            i += 1;
        }
        y += BLOCK.1 as i32;
        row += 1;
    }
    (bits, outside)
}
