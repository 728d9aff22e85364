//! What the host passes to a kernel, and the sizes both sides must agree on.

/// The greatest width or height of an image, and of a window, in pixels. Coordinates, their sums with a window and twice
/// an image's width stay inside `i32`.
pub const MAX_EXTENT: u32 = 1 << 29;

/// Source and destination of one launch: `planes` (the grid's z extent) images of `width` by `height` pixels.
///
/// Strides count elements, not bytes. Source and destination never overlap.
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

/// Taps that travel as a by-value parameter, and so are read through the constant bank.
///
/// Row by row, without gaps; what is beyond the window's taps is not read. The size keeps a launch's parameters under the
/// 4 KB that every driver and architecture takes.
#[repr(C)]
#[derive(Clone, Copy)]
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

/// Threads of a block in the direct family that the host launches: a warp along the row.
pub const DIRECT_BLOCK: (u32, u32) = (32, 8);

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
