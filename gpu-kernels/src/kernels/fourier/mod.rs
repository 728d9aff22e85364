//! The Fourier family: correlation as a product of spectra. This file has the layout of a tile,
//! which the host shares.
//!
//! | file | what |
//! | --- | --- |
//! | `tiles.rs` | tiles in shared memory, with the hot loop |
//! | `large.rs` | larger tiles, in three kernels |
//! | `bytes.rs` | loads and stores of small tiles of bytes |
//! | `fft.rs`, `holes.rs` | transforms in a lane's registers; results over pixels that cannot be transformed |
//! | `lines.rs`, `line.rs` | rows and columns as 1-D spectra, for products |
//!
//! Pixels are real, so a tile of complex numbers has room for two: a pair side by side, as real and
//! imaginary parts; or a folded tile of `2 SIZE` columns, column `n + SIZE` as the imaginary part
//! of number `n`, times the twist `exp(i pi n / (2 SIZE))` (Crandall and Fagin, Discrete weighted
//! transforms and large-integer arithmetic, 1994). Bytes to bytes are folded unless the window has
//! parts; other results are pairs, as the packing decides their bits. For large tiles of bytes, a
//! tap at the anchor that outweighs all others is left out of the spectrum, as its roundings would
//! spread over the tile; its product is added to each result.

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

    /// As `fourier_128`, for pixels or results that do not lie in planes of f32.
    fn fourier_stored_128(pass: Pass, parts: Parts, spectra: *const f32) {
        directive!(".maxntid 32, 16, 1");
        tiles::correlate::<16, STORED>(&pass, &parts, spectra)
    }

    /// As `fourier_64`, likewise.
    fn fourier_stored_64(pass: Pass, parts: Parts, spectra: *const f32) {
        directive!(".maxntid 32, 8, 1");
        tiles::correlate::<8, STORED>(&pass, &parts, spectra)
    }

    /// As `fourier_128`, for bytes made of bytes, and windows of one part.
    fn fourier_bytes_128(pass: Pass, parts: Parts, spectra: *const f32) {
        directive!(".maxntid 32, 16, 1");
        tiles::correlate::<16, BYTES>(&pass, &parts, spectra)
    }

    /// As `fourier_64`, likewise.
    fn fourier_bytes_64(pass: Pass, parts: Parts, spectra: *const f32) {
        directive!(".maxntid 32, 8, 1");
        tiles::correlate::<8, BYTES>(&pass, &parts, spectra)
    }

    /// The rows of pairs of large tiles, to spectra; of planes of f32. `spectra` as for
    /// `fourier_128`.
    fn fourier_large_rows(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 4, 1");
        directive!(".minnctapersm 3");
        large::rows::<PLANES, BESIDE>(&pass, &parts, &pairs, spectra)
    }

    /// The same for any pixels.
    fn fourier_large_rows_stored(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 4, 1");
        directive!(".minnctapersm 3");
        large::rows::<STORED, BESIDE>(&pass, &parts, &pairs, spectra)
    }

    /// The same for bytes made of bytes, and windows of one part: tiles are folded.
    fn fourier_large_rows_bytes(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 4, 1");
        directive!(".minnctapersm 3");
        large::rows::<BYTES, FOLDED>(&pass, &parts, &pairs, spectra)
    }

    /// The same for bytes made of bytes: tiles are stacked.
    fn fourier_large_rows_stacked(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 4, 1");
        directive!(".minnctapersm 3");
        large::rows::<BYTES, STACKED>(&pass, &parts, &pairs, spectra)
    }

    /// Their columns: to spectra, times that of the taps, and back.
    fn fourier_large_columns(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 8, 1");
        large::columns(&pass, &parts, &pairs, spectra)
    }

    /// Their rows, back to results in planes of f32.
    fn fourier_large_results(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 4, 1");
        large::results::<PLANES, BESIDE>(&pass, &parts, &pairs, spectra)
    }

    /// The same to any results.
    fn fourier_large_results_stored(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 4, 1");
        large::results::<STORED, BESIDE>(&pass, &parts, &pairs, spectra)
    }

    /// The same to bytes, of stacked tiles.
    fn fourier_large_results_stacked(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 4, 1");
        large::results::<BYTES, STACKED>(&pass, &parts, &pairs, spectra)
    }

    /// The same to bytes, of folded tiles.
    fn fourier_large_results_bytes(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 4, 1");
        large::results::<BYTES, FOLDED>(&pass, &parts, &pairs, spectra)
    }

    /// Stores anew what pixels reach that are not finite, or too large for spectra. `taps` are
    /// those of the window, row by row.
    fn fourier_holes(pass: Pass, holes: Holes, taps: *const f32) {
        directive!(".maxntid 32, 8, 1");
        holes::mend(&pass, &holes, taps)
    }
}

/// What a tile's numbers hold: pairs of tiles beside each other, a folded tile, or pairs of tiles
/// one above the other.
const BESIDE: u32 = 0;
const FOLDED: u32 = 1;
const STACKED: u32 = 2;

/// The layout of the Fourier family's kernel with tiles of `8 M` pixels each way.
#[derive(Clone, Copy, Debug)]
pub struct Layout<const M: usize>;

impl<const M: usize> Layout<M> {
    /// Pixels along each side of a tile, half its columns if it is folded, and twiddle factors in
    /// the table that comes before a spectrum: `exp(-2 pi i j k / SIZE)` at `8 k + j`, j below 8, k
    /// below M. For folded tiles a table of the same times the twist of `j` comes behind it.
    pub const SIZE: i32 = 8 * M as i32;
    /// Complex numbers from one row of a tile in shared memory to the next.
    pub const PITCH: i32 = (Self::ROWS + 15) / 16 * 16 + 4;
    /// Rows of it: more than those of a tile, for the exchange among lanes.
    const ROWS: i32 = (9 * (M - 1) + 8) as i32;
    /// The place of the tables in shared memory, behind the tile.
    pub const TABLE: i32 = Self::ROWS * Self::PITCH;
    /// Bytes of shared memory.
    pub const SHARED: u32 = 8 * (Self::TABLE + 2 * Self::SIZE) as u32;

    /// The number of results in a column that wrap-around does not reach.
    #[inline(always)]
    pub const fn results(taps: i32) -> i32 {
        Self::SIZE + 1 - taps
    }
}

host! {
    /// A kernel of the Fourier family.
    #[derive(Clone, Copy, Debug)]
    pub struct Tiled {
        /// What to launch: the pass, the window's parts, twiddle factors and spectra, all taps.
        pub entry: crate::entry::Entry<(Pass, Parts, *const f32)>,
        /// The same for pixels or results that do not lie in planes of f32; it takes the others
        /// too, in more time.
        pub stored: crate::entry::Entry<(Pass, Parts, *const f32)>,
        /// The same for bytes made of bytes, and windows of one part: its tiles are folded.
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
        /// The position of a frequency in the buffer, in complex numbers after the table: that of
        /// column `kx` and row `ky` of the tile's spectrum.
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
    /// Tap columns and rows of a part; those at the window's right and lower edge may have fewer.
    /// Parts, and their spectra, follow each other row by row.
    pub cols: i32,
    /// See `cols`.
    pub rows: i32,
    /// The number of parts, and how many of them are in a row.
    pub count: i32,
    /// See `count`.
    pub beside: i32,
    /// The greatest pixel that is transformed: a greater one, or one that is not finite, leaves a
    /// hole (see `holes.rs`). Infinite, if there is none in any image: of bytes, all are small.
    pub greatest: f32,
    /// Where holes are noted: see [`Holes::noted`].
    pub noted: u64,
    /// Pairs of tiles, or folded tiles, in a row of them.
    pub across: i32,
    /// Whether small folded tiles take half the columns behind those, each in two rows of tiles.
    pub halves: i32,
    /// Whether blocks take folded tiles in turn, or each some that follow each other.
    pub in_turn: i32,
    /// Tables of factors ahead of the spectra.
    pub tables: i32,
    /// The anchor's tap, if it is left out of the spectra, else 0. For large tiles of bytes
    /// alone.
    pub point: f32,
    /// What the taps of the spectra make of pixels of [`MIDDLE`], by which bytes that become bytes
    /// are less as they are transformed.
    pub middle: f32,
}

/// The layout of the kernels with large tiles.
#[derive(Clone, Copy, Debug)]
pub struct Large;

impl Large {
    /// Pixels along each side of a tile, half its columns if it is folded, and twiddle factors in
    /// the table that comes before a spectrum: `exp(-2 pi i j k / SIDE)` at `32 k + j`. For folded
    /// tiles two tables come behind it, of the same times the twist of `j`, and times that of `k`.
    /// Frequencies of a spectrum are in order, row by row.
    pub const SIDE: i32 = 1024;
    /// Threads of a block that takes rows, a warp each, and of one that takes columns; and those
    /// columns.
    pub const ROW_BLOCK: (u32, u32) = (32, 4);
    /// See `ROW_BLOCK`.
    pub const COLUMN_BLOCK: (u32, u32) = (32, 8);
    /// See `ROW_BLOCK`.
    pub const COLUMNS: u32 = 8;
    /// Bytes of shared memory of a block of rows, and of one of columns.
    pub const ROW_SHARED: u32 = 8 * 33 * 32 * Self::ROW_BLOCK.1;
    /// See `ROW_SHARED`.
    pub const COLUMN_SHARED: u32 = 8 * 33 * 32 * Self::COLUMNS;
    /// Bytes of a pair's numbers in the buffer.
    pub const NUMBERS: u64 = 8 * (Self::SIDE * Self::SIDE) as u64;

    /// The number of results in a column that wrap-around does not reach.
    #[inline(always)]
    pub const fn results(taps: i32) -> i32 {
        Self::SIDE + 1 - taps
    }
}

/// The pairs of large tiles of one launch, one for each block along the grid's y axis, and the part
/// of the window that they are correlated with.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pairs {
    /// The address of [`Large::NUMBERS`] bytes for each.
    pub numbers: u64,
    /// The number of the first pair: along a row of tiles, then row by row, then plane by plane.
    pub first: i32,
    /// Rows of pairs in a plane, and rows of results of each.
    pub down: i32,
    /// See `down`.
    pub tall: i32,
    /// The number of the window's part.
    pub part: i32,
}
