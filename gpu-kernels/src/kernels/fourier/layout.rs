//! Tiles of the Fourier family: their contents, their layout in memory, and the window's parts.

use crate::abi::Window;

/// Contents of a tile's complex numbers: two tiles side by side, a folded tile, or two tiles one
/// above the other. Columns that do not fill a large folded tile go to small tiles or to stacked
/// ones.
pub(super) const BESIDE: u32 = 0;
pub(super) const FOLDED: u32 = 1;
pub(super) const STACKED: u32 = 2;

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
    /// Address of the count of noted holes: see [`Holes::noted`](super::holes::Holes::noted).
    pub noted: u64,
    /// Pairs of tiles, or folded tiles, in a row of tiles.
    pub across: i32,
    /// Whether a column of small half tiles follows: each holds two rows of tiles, of half as many
    /// columns.
    pub halves: i32,
    /// Whether a block takes every `grid_width()`-th folded tile, not a contiguous range.
    pub strided: i32,
    /// Tables of factors before the spectra.
    pub tables: i32,
    /// The centre tap, if the spectra omit it, else 0. Only for large tiles of bytes: a centre tap
    /// that outweighs all others, as in sharpening, would spread its rounding errors over the whole
    /// tile.
    pub point: f32,
    /// The sum of the spectra's taps times [`MIDDLE`](crate::pixel::MIDDLE). Bytes that become
    /// bytes are transformed minus [`MIDDLE`](crate::pixel::MIDDLE), which reduces rounding errors.
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
