//! What the host passes to a kernel, and the sizes both sides must agree on.

/// The greatest width or height of an image, and of a window, in pixels. Coordinates, their sums with a window and twice
/// an image's width stay inside `i32`.
pub const MAX_EXTENT: u32 = 1 << 29;

/// Source and destination of one launch: `planes` (the grid's z extent) images of `width` by `height` pixels.
///
/// Strides count elements, not bytes, and are below 2^32. Source and destination never overlap.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// First pixel of the first source plane.
    pub src: *const f32,
    /// First pixel of the first destination plane.
    pub dst: *mut f32,
    /// Elements from one source row to the next.
    pub src_stride: usize,
    /// Elements from one destination row to the next.
    pub dst_stride: usize,
    /// Elements from one source plane to the next.
    pub src_plane: usize,
    /// Elements from one destination plane to the next.
    pub dst_plane: usize,
    /// Pixels in a row.
    pub width: i32,
    /// Rows.
    pub height: i32,
    /// One of the `border::` mode constants.
    pub border: u32,
    /// What lies outside the image under [`crate::border::CONSTANT`].
    pub border_value: f32,
}

/// The window that slides over the image: its size, and which of its cells lies on the output pixel.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Tap columns.
    pub cols: i32,
    /// Tap rows.
    pub rows: i32,
    /// Column of the anchor, from 0.
    pub anchor_x: i32,
    /// Row of the anchor, from 0.
    pub anchor_y: i32,
}

/// As many taps as an entry that knows their number takes, by value: a launch carries no more than it needs. The host
/// passes the first N of [`ConstantTaps`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Taps<const N: usize>(pub [f32; N]);

/// Taps that travel as a by-value parameter, and so are read through the constant bank.
///
/// Row by row, without gaps; what is beyond the window's taps is not read. The size keeps a launch's parameters under the
/// 4 KB that every driver and architecture takes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ConstantTaps(pub [f32; MAX_CONSTANT_TAPS]);

/// How many taps fit in [`ConstantTaps`]: 31x31.
pub const MAX_CONSTANT_TAPS: usize = 961;

/// The image before the first pass of a filter in two, for pixels that [`crate::border::KEEP`] copies.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Original {
    /// First pixel of the first plane.
    pub src: *const f32,
    /// Elements from one row to the next.
    pub stride: usize,
    /// Elements from one plane to the next.
    pub plane: usize,
}

/// Threads of a block in the row pass: each warp has a row.
pub const ROWS_BLOCK: (u32, u32) = (32, 4);
/// Pixels of a row that a warp of the row pass computes.
pub const ROWS_TILE: i32 = 256;
/// Threads of a block in the column pass: each warp has 32 neighbouring columns.
pub const COLUMNS_BLOCK: (u32, u32) = (32, 8);
/// Rows that a block of the column pass computes.
pub const COLUMNS_TILE: i32 = 64;
/// Taps that a pass with any number of them takes at a time.
pub const TAPS_CHUNK: i32 = 256;

/// Floats from one row of the row pass's tile to the next, a multiple of 4, for `taps` taps at a time.
pub const fn rows_pitch(taps: i32) -> i32 {
    (ROWS_TILE + taps - 1 + 3) / 4 * 4
}

/// Bytes of shared memory for the row pass with `taps` taps at a time.
pub const fn rows_shared(taps: i32) -> u32 {
    4 * ROWS_BLOCK.1 * rows_pitch(taps) as u32
}

/// Bytes of shared memory for the column pass with `taps` taps at a time.
pub const fn columns_shared(taps: i32) -> u32 {
    4 * COLUMNS_BLOCK.0 * (COLUMNS_TILE + taps - 1) as u32
}

/// Floats that a row of a warp's ring has left and right of its pixels, for K tap columns: a multiple of 4.
pub const fn ring_apron(k: i32) -> i32 {
    (k / 2 + 3) / 4 * 4
}

/// Floats of a row of a warp's ring: 32 lanes of `px` pixels, and the aprons.
pub const fn ring_row(k: i32, px: i32) -> i32 {
    32 * px + 2 * ring_apron(k)
}

/// Floats of a warp's ring of `stages` rows.
pub const fn ring_floats(k: i32, px: i32, stages: i32) -> i32 {
    stages * ring_row(k, px)
}

/// A kernel that slides down strips of the image; `with` is called with a row for each:
/// `entry: taps, pixels a lane, rows at a time, stages of the ring`.
///
/// Both sides use this table: the kernels to declare the entries, the host to launch them.
#[macro_export]
macro_rules! sliding_entries {
    ($with:ident) => {
        $with! {
            sliding_3: 3, 4, 2, 8;
            sliding_5: 5, 4, 2, 8;
            sliding_7: 7, 4, 2, 8;
            sliding_9: 9, 4, 2, 8;
            sliding_11: 11, 4, 2, 8;
            sliding_13: 13, 4, 1, 8;
            sliding_15: 15, 4, 1, 8;
            sliding_17: 17, 4, 1, 8;
        }
    };
}

/// As [`sliding_entries`], for the fused separable family.
#[macro_export]
macro_rules! fused_entries {
    ($with:ident) => {
        $with! {
            fused_3: 3, 4, 2, 8;
            fused_5: 5, 4, 2, 8;
            fused_7: 7, 4, 2, 8;
            fused_9: 9, 4, 2, 8;
            fused_11: 11, 4, 2, 8;
            fused_13: 13, 4, 1, 8;
            fused_15: 15, 4, 1, 8;
            fused_17: 17, 4, 1, 8;
            fused_19: 19, 4, 1, 8;
            fused_21: 21, 4, 1, 8;
            fused_23: 23, 4, 1, 8;
            fused_25: 25, 4, 1, 8;
            fused_27: 27, 4, 1, 8;
            fused_29: 29, 4, 1, 8;
            fused_31: 31, 4, 1, 8;
            fused_33: 33, 4, 1, 8;
            fused_35: 35, 4, 1, 8;
            fused_37: 37, 4, 1, 8;
            fused_39: 39, 4, 1, 8;
            fused_41: 41, 4, 1, 8;
            fused_43: 43, 4, 1, 8;
            fused_45: 45, 4, 1, 8;
            fused_47: 47, 4, 1, 8;
            fused_49: 49, 4, 1, 8;
            fused_51: 51, 2, 1, 8;
            fused_53: 53, 2, 1, 8;
            fused_55: 55, 2, 1, 8;
            fused_57: 57, 2, 1, 8;
            fused_59: 59, 2, 1, 8;
            fused_61: 61, 2, 1, 8;
            fused_63: 63, 2, 1, 8;
            fused_65: 65, 2, 1, 8;
        }
    };
}

/// One entry of [`sliding_entries`] or [`fused_entries`].
#[derive(Clone, Copy, Debug)]
pub struct Sliding {
    /// Its name.
    pub entry: &'static str,
    /// Tap columns, and tap rows.
    pub taps: i32,
    /// Pixels of a row that a lane computes.
    pub pixels: i32,
    /// Rows that it takes at a time.
    pub rows: i32,
    /// Rows in the ring.
    pub stages: i32,
}

macro_rules! list {
    ($($name:ident: $k:literal, $px:literal, $r:literal, $stages:literal;)*) => {
        &[$(Sliding { entry: stringify!($name), taps: $k, pixels: $px, rows: $r, stages: $stages }),*]
    };
}

/// The entries of the sliding family.
pub const SLIDING: &[Sliding] = sliding_entries!(list);
/// The entries of the fused separable family.
pub const FUSED: &[Sliding] = fused_entries!(list);

/// The layout of the Fourier family's kernel with tiles of `8 M` pixels each way.
#[derive(Clone, Copy, Debug)]
pub struct Fourier<const M: usize>;

impl<const M: usize> Fourier<M> {
    /// Pixels along each side of a tile, and complex numbers in the table that comes before a spectrum:
    /// `exp(-2 pi i j k / SIZE)` at `8 k + j`, j below 8, k below M.
    pub const SIZE: i32 = 8 * M as i32;
    /// Complex numbers from one row of a tile in shared memory to the next.
    pub const PITCH: i32 = (Self::ROWS + 15) / 16 * 16 + 4;
    /// Rows of it: more than those of a tile, for the exchange among lanes.
    const ROWS: i32 = (9 * (M - 1) + 8) as i32;
    /// The table's place in shared memory, behind the tile.
    pub const TABLE: i32 = Self::ROWS * Self::PITCH;
    /// Bytes of shared memory.
    pub const SHARED: u32 = 8 * (Self::TABLE + Self::SIZE) as u32;

    /// How many results of a line no wrap-around has reached.
    #[inline(always)]
    pub const fn results(taps: i32) -> i32 {
        Self::SIZE + 1 - taps
    }
}

/// A kernel of the Fourier family.
#[derive(Clone, Copy, Debug)]
pub struct FourierEntry {
    /// Its name.
    pub entry: &'static str,
    /// Pixels along each side of its tile.
    pub size: i32,
    /// Threads of a block.
    pub block: (u32, u32),
    /// Bytes of shared memory.
    pub shared: u32,
}

/// The entries of the Fourier family, the largest tile first.
pub const FOURIER: &[FourierEntry] = &[
    FourierEntry { entry: "fourier_128", size: Fourier::<16>::SIZE, block: (32, 16), shared: Fourier::<16>::SHARED },
    FourierEntry { entry: "fourier_64", size: Fourier::<8>::SIZE, block: (32, 8), shared: Fourier::<8>::SHARED },
];

impl FourierEntry {
    /// Where the kernel looks for a frequency: the place, in complex numbers behind the table, of column `kx` and row `ky`
    /// of the tile's spectrum.
    pub const fn place(&self, kx: usize, ky: usize) -> usize {
        8 * self.size as usize * (ky / 8) + 32 * (kx / 4) + kx % 4 + 4 * (ky % 8)
    }
}

/// The window that the Fourier family correlates with, and how it is cut into parts that a tile has room for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FourierParts {
    /// The whole window.
    pub window: Window,
    /// Tap columns and rows of a part; those at the window's right and lower edge may have fewer. Parts, and their spectra,
    /// follow each other row by row.
    pub cols: i32,
    /// See `cols`.
    pub rows: i32,
    /// How many parts there are, and how many of them side by side.
    pub count: i32,
    /// See `count`.
    pub beside: i32,
    /// The greatest pixel of a tile that is transformed: beyond it, and where one is not finite, taps are taken one by one.
    pub greatest: f32,
    /// Pairs of tiles in a row of them.
    pub across: i32,
}

/// Pixels that a block of the direct family computes, and the threads that it has where each computes one.
pub const DIRECT_BLOCK: (u32, u32) = (32, 8);
/// Pixels, one above the other, that a thread of the entries in [`DIRECT_UNROLLED`] computes.
pub const DIRECT_UNROLLED_PIXELS: u32 = 2;

/// Entries of the direct family whose window size (first) is known to the compiler.
pub const DIRECT_UNROLLED: &[(i32, &str)] = &[
    (3, "direct_unrolled_3"),
    (5, "direct_unrolled_5"),
    (7, "direct_unrolled_7"),
    (9, "direct_unrolled_9"),
    (11, "direct_unrolled_11"),
    (13, "direct_unrolled_13"),
    (15, "direct_unrolled_15"),
    (17, "direct_unrolled_17"),
    (21, "direct_unrolled_21"),
    (31, "direct_unrolled_31"),
    (51, "direct_unrolled_51"),
];

/// Entries of the row pass whose number of taps (first) is known to the compiler.
pub const SEPARABLE_ROWS: &[(i32, &str)] = &[
    (3, "separable_rows_3"),
    (5, "separable_rows_5"),
    (7, "separable_rows_7"),
    (9, "separable_rows_9"),
    (11, "separable_rows_11"),
    (13, "separable_rows_13"),
    (15, "separable_rows_15"),
    (17, "separable_rows_17"),
    (21, "separable_rows_21"),
    (31, "separable_rows_31"),
    (51, "separable_rows_51"),
];

/// Entries of the column pass whose number of taps (first) is known to the compiler.
pub const SEPARABLE_COLUMNS: &[(i32, &str)] = &[
    (3, "separable_columns_3"),
    (5, "separable_columns_5"),
    (7, "separable_columns_7"),
    (9, "separable_columns_9"),
    (11, "separable_columns_11"),
    (13, "separable_columns_13"),
    (15, "separable_columns_15"),
    (17, "separable_columns_17"),
    (21, "separable_columns_21"),
    (31, "separable_columns_31"),
    (51, "separable_columns_51"),
];

/// Sums that a thread of `fma_peak` has under way.
pub const PEAK_SUMS: usize = 16;
