//! The Fourier family: correlation as a product of spectra. This file has the layout of a tile.
//!
//! - `tiles.rs`, `bytes.rs`: an image tile by tile in shared memory; its loads and stores of bytes.
//! - `large.rs`: larger tiles, in three kernels, for larger windows.
//! - `fft.rs`: transforms of the values in a lane's registers.
//! - `holes.rs`: results whose windows have pixels that spectra cannot represent.
//! - `lines.rs`, `line.rs`: rows and columns one by one, for products.
//!
//! Pixels and taps are real, so a complex number has room for two pixels:
//! - A pair of tiles: the real part and the imaginary part, which never mix. Of the SIZE columns of
//!   each, `cols - 1` give no results.
//! - A folded tile has `2 SIZE` columns: column `n` is the real part, column `n + SIZE` the
//!   imaginary part of number `n`. Times the twist `exp(i pi n / (2 SIZE))`, a line's transform is
//!   its spectrum at every second odd frequency. The product of two is a right-angle convolution,
//!   which changes its sign where it wraps around (Crandall and Fagin, Discrete weighted transforms
//!   and large-integer arithmetic, 1994). Of all columns `cols - 1` give no results: 65x65 taps in
//!   tiles of 128 transform a third less than pairs.
//!
//! Bytes made of bytes are folded unless the window has parts: rounding is correct either way. For
//! all other types the method decides the bits, and tiles are pairs.

mod bytes;
mod fft;
pub mod holes;
mod large;
mod line;
pub mod lines;
mod tiles;

use self::holes::Holes;
use crate::abi::{Pass, Window};
use crate::device::*;
pub use crate::pixel::MIDDLE;
use crate::tile::view::{BYTES, PLANES, STORED};

kernel! {
    /// Correlates with a window whose parts' spectra are given.
    /// `spectra` is the table of twiddle factors, then the spectra.
    fn fourier_128(pass: Pass, parts: Parts, spectra: *const f32) {
        directive!(".maxntid 32, 16, 1");
        tiles::correlate::<16, PLANES>(&pass, &parts, spectra)
    }

    /// As `fourier_128`, for devices with less shared memory.
    fn fourier_64(pass: Pass, parts: Parts, spectra: *const f32) {
        directive!(".maxntid 32, 8, 1");
        tiles::correlate::<8, PLANES>(&pass, &parts, spectra)
    }

    /// As `fourier_128`, for pixels or results that are not planes of f32.
    fn fourier_stored_128(pass: Pass, parts: Parts, spectra: *const f32) {
        directive!(".maxntid 32, 16, 1");
        tiles::correlate::<16, STORED>(&pass, &parts, spectra)
    }

    /// As `fourier_64`, for pixels or results that are not planes of f32.
    fn fourier_stored_64(pass: Pass, parts: Parts, spectra: *const f32) {
        directive!(".maxntid 32, 8, 1");
        tiles::correlate::<8, STORED>(&pass, &parts, spectra)
    }

    /// As `fourier_128`, for bytes made of bytes, and windows of one part.
    fn fourier_bytes_128(pass: Pass, parts: Parts, spectra: *const f32) {
        directive!(".maxntid 32, 16, 1");
        tiles::correlate::<16, BYTES>(&pass, &parts, spectra)
    }

    /// As `fourier_64`, for bytes made of bytes, and windows of one part.
    fn fourier_bytes_64(pass: Pass, parts: Parts, spectra: *const f32) {
        directive!(".maxntid 32, 8, 1");
        tiles::correlate::<8, BYTES>(&pass, &parts, spectra)
    }

    /// Transforms the rows of pairs of large tiles, from planes of f32. `spectra` is as for
    /// `fourier_128`.
    fn fourier_large_rows(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 4, 1");
        directive!(".minnctapersm 3");
        large::rows::<PLANES, BESIDE>(&pass, &parts, &pairs, spectra)
    }

    /// As `fourier_large_rows`, from pixels of any type.
    fn fourier_large_rows_stored(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 4, 1");
        directive!(".minnctapersm 3");
        large::rows::<STORED, BESIDE>(&pass, &parts, &pairs, spectra)
    }

    /// As `fourier_large_rows`, for bytes made of bytes and windows of one part: tiles are folded.
    fn fourier_large_rows_bytes(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 4, 1");
        directive!(".minnctapersm 3");
        large::rows::<BYTES, FOLDED>(&pass, &parts, &pairs, spectra)
    }

    /// As `fourier_large_rows`, for bytes made of bytes: tiles are stacked.
    fn fourier_large_rows_stacked(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 4, 1");
        directive!(".minnctapersm 3");
        large::rows::<BYTES, STACKED>(&pass, &parts, &pairs, spectra)
    }

    /// Transforms the columns of large tiles, multiplies with the taps' spectrum and transforms
    /// back.
    fn fourier_large_columns(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 8, 1");
        large::columns(&pass, &parts, &pairs, spectra)
    }

    /// Transforms the rows of large tiles back, to results in planes of f32.
    fn fourier_large_results(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 4, 1");
        large::results::<PLANES, BESIDE>(&pass, &parts, &pairs, spectra)
    }

    /// As `fourier_large_results`, to results of any type.
    fn fourier_large_results_stored(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 4, 1");
        large::results::<STORED, BESIDE>(&pass, &parts, &pairs, spectra)
    }

    /// As `fourier_large_results`, to bytes, of stacked tiles.
    fn fourier_large_results_stacked(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 4, 1");
        large::results::<BYTES, STACKED>(&pass, &parts, &pairs, spectra)
    }

    /// As `fourier_large_results`, to bytes, of folded tiles.
    fn fourier_large_results_bytes(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 4, 1");
        large::results::<BYTES, FOLDED>(&pass, &parts, &pairs, spectra)
    }

    /// Recomputes results whose windows have pixels that are not finite or too large for spectra.
    /// `taps` are the window's, row by row.
    fn fourier_holes(pass: Pass, holes: Holes, taps: *const f32) {
        directive!(".maxntid 32, 8, 1");
        holes::mend(&pass, &holes, taps)
    }
}

/// Contents of a tile's complex numbers: two tiles side by side, a folded tile, or two tiles one
/// above the other. Columns that do not fill a large folded tile go to small tiles or to stacked
/// ones.
const BESIDE: u32 = 0;
const FOLDED: u32 = 1;
const STACKED: u32 = 2;

/// Layout of the Fourier kernels whose tiles have `8 M` pixels each way.
#[derive(Clone, Copy, Debug)]
pub struct Layout<const M: usize>;

impl<const M: usize> Layout<M> {
    /// Pixels along each side of a tile (a folded tile has twice the columns), and twiddle factors
    /// in the table before the spectra: `exp(-2 pi i j k / SIZE)` at `8 k + j`, for `j` below 8 and
    /// `k` below M. For folded tiles a second table follows: the same times the twist of `j`.
    pub const SIZE: i32 = 8 * M as i32;
    /// Complex numbers from one row of a tile in shared memory to the next.
    pub const PITCH: i32 = (Self::ROWS + 15) / 16 * 16 + 4;
    /// Rows of a tile in shared memory: more than SIZE, for the exchange among lanes.
    const ROWS: i32 = (9 * (M - 1) + 8) as i32;
    /// The place of the tables in shared memory, after the tile, in complex numbers.
    pub const TABLE: i32 = Self::ROWS * Self::PITCH;
    /// Bytes of shared memory.
    pub const SHARED: u32 = 8 * (Self::TABLE + 2 * Self::SIZE) as u32;

    /// The results in a column that wrap-around does not reach.
    #[inline(always)]
    pub const fn results(taps: i32) -> i32 {
        Self::SIZE + 1 - taps
    }
}

host! {
    /// A kernel of the Fourier family.
    #[derive(Clone, Copy, Debug)]
    pub struct Tiled {
        /// The entry: the pass, the window's parts, twiddle factors and spectra.
        pub entry: crate::entry::Entry<(Pass, Parts, *const f32)>,
        /// The entry for pixels or results that are not planes of f32; also right for planes, but
        /// slower.
        pub stored: crate::entry::Entry<(Pass, Parts, *const f32)>,
        /// The entry for bytes made of bytes and windows of one part: its tiles are folded.
        pub bytes: crate::entry::Entry<(Pass, Parts, *const f32)>,
        /// Pixels along each side of its tile.
        pub size: i32,
        /// Threads of a block.
        pub block: (u32, u32),
        /// Bytes of shared memory.
        pub shared: u32,
    }

    /// The entries of the Fourier family, the largest tile first.
    pub const ENTRIES: &[Tiled] = &[
        Tiled { entry: fourier_128, stored: fourier_stored_128, bytes: fourier_bytes_128, size: Layout::<16>::SIZE, block: (32, 16), shared: Layout::<16>::SHARED },
        Tiled { entry: fourier_64, stored: fourier_stored_64, bytes: fourier_bytes_64, size: Layout::<8>::SIZE, block: (32, 8), shared: Layout::<8>::SHARED },
    ];

    impl Tiled {
        /// The position of frequency (`kx`, `ky`) of the tile's spectrum in the buffer, in complex
        /// numbers after the tables.
        pub const fn place(&self, kx: usize, ky: usize) -> usize {
            8 * self.size as usize * (ky / 8) + 32 * (kx / 4) + kx % 4 + 4 * (ky % 8)
        }
    }
}

/// The window that the Fourier family correlates with, and its division into parts that fit in a
/// tile.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// The whole window.
    pub window: Window,
    /// Tap columns of a part; parts at the right edge of the window may have fewer. Parts, and
    /// their spectra, are in row-major order.
    pub cols: i32,
    /// Tap rows of a part; parts at the window's lower edge may have fewer.
    pub rows: i32,
    /// The number of parts.
    pub count: i32,
    /// The number of parts in a row.
    pub beside: i32,
    /// The greatest pixel that is transformed: a greater pixel, or one that is not finite, leaves a
    /// hole (see `holes.rs`). Infinite where no image has holes, as for bytes.
    pub greatest: f32,
    /// Address of the count of noted holes: see [`Holes::noted`].
    pub noted: u64,
    /// Pairs of tiles, or folded tiles, in a row of tiles.
    pub across: i32,
    /// Whether a column of small half tiles follows: each holds two rows of tiles, of half as many
    /// columns.
    pub halves: i32,
    /// Whether a block takes every `grid_width()`-th folded tile, not a contiguous range.
    pub in_turn: i32,
    /// Tables of factors before the spectra.
    pub tables: i32,
    /// The centre tap, if the spectra omit it, else 0. Only for large tiles of bytes: a centre tap
    /// that outweighs all others, as in sharpening, would spread its rounding errors over the whole
    /// tile.
    pub point: f32,
    /// The sum of the spectra's taps times [`MIDDLE`]. Bytes that become bytes are transformed
    /// minus [`MIDDLE`], which reduces rounding errors.
    pub middle: f32,
}

/// The layout of the kernels with large tiles.
#[derive(Clone, Copy, Debug)]
pub struct Large;

impl Large {
    /// Pixels along each side of a tile (a folded tile has twice the columns), and twiddle factors
    /// in the table before the spectra: `exp(-2 pi i j k / SIDE)` at `32 k + j`. For folded tiles
    /// two tables follow: the same times the twist of `j`, and times that of `k`. Frequencies of a
    /// spectrum are in row-major order.
    pub const SIDE: i32 = 1024;
    /// Threads of a block that takes rows: a warp for each row.
    pub const ROW_BLOCK: (u32, u32) = (32, 4);
    /// Threads of a block that takes columns.
    pub const COLUMN_BLOCK: (u32, u32) = (32, 8);
    /// Columns that a block takes.
    pub const COLUMNS: u32 = 8;
    /// Bytes of shared memory of a block that takes rows.
    pub const ROW_SHARED: u32 = 8 * 33 * 32 * Self::ROW_BLOCK.1;
    /// Bytes of shared memory of a block that takes columns.
    pub const COLUMN_SHARED: u32 = 8 * 33 * 32 * Self::COLUMNS;
    /// Bytes of a pair's complex numbers in the buffer.
    pub const NUMBERS: u64 = 8 * (Self::SIDE * Self::SIDE) as u64;

    /// The results in a column that wrap-around does not reach.
    #[inline(always)]
    pub const fn results(taps: i32) -> i32 {
        Self::SIDE + 1 - taps
    }
}

/// The pairs of large tiles of one launch, one for each block along the grid's y axis, and the
/// window's part that the launch correlates.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pairs {
    /// The address of the pairs' complex numbers, [`Large::NUMBERS`] bytes each.
    pub numbers: u64,
    /// The number of the first pair. Numbers go along a row of tiles, then row by row, then plane
    /// by plane.
    pub first: i32,
    /// Rows of pairs in a plane.
    pub down: i32,
    /// Rows of results of a pair.
    pub tall: i32,
    /// The number of the window's part.
    pub part: i32,
}
