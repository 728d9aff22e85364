//! What the host passes to a kernel: structs of a fixed layout, by value.

/// The greatest width or height of an image, and of a window, in pixels. Coordinates, their sums with a window and twice
/// an image's width stay inside `i32`.
pub const MAX_EXTENT: u32 = 1 << 29;

/// Where the pixels of an image lie, one f32 value each.
///
/// The value at `(x, y)` of channel `c` of image `n` has the address
/// `base + (y - first_row) * row + x * pixel + c * channel + n * image`. Strides count bytes. They may be negative: rows
/// may run backwards. So one struct says planar and interleaved channels, batches of either, and bands of an image.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plane {
    /// The address of column 0 of row `first_row`.
    pub base: u64,
    /// Bytes from one row to the next.
    pub row: i64,
    /// Bytes from one channel to the next.
    pub channel: i64,
    /// Bytes from one image of a batch to the next.
    pub image: i64,
    /// Bytes from one pixel of a row to the next.
    pub pixel: i32,
    /// The first row of the image that is there.
    pub first_row: i32,
    /// The row behind the last that is there.
    pub end_row: i32,
}

/// A rectangle of an image: columns `x0..x1`, rows `y0..y1`. Not empty.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The first column.
    pub x0: i32,
    /// The first row.
    pub y0: i32,
    /// The column behind the last.
    pub x1: i32,
    /// The row behind the last.
    pub y1: i32,
}

impl Region {
    /// Where kernels with vectors of four pixels begin: at the region's first column, or up to three before it.
    #[inline(always)]
    pub const fn aligned_left(&self) -> i32 {
        self.x0 & !3
    }
}

/// What is done with a sum before it is stored: `|sum * scale + offset|`, each part if its flag is set. Pixels that
/// [`crate::border::KEEP`] copies are stored as they are.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epilogue {
    /// Some of [`Epilogue::LINEAR`] and [`Epilogue::ABSOLUTE`].
    pub flags: u32,
    /// The factor.
    pub scale: f32,
    /// The term, added to the product by a fused multiply-add.
    pub offset: f32,
}

impl Epilogue {
    /// Sums are stored as they are.
    pub const NONE: Self = Self { flags: 0, scale: 1.0, offset: 0.0 };
    /// Scale and offset count.
    pub const LINEAR: u32 = 1;
    /// The sign is dropped.
    pub const ABSOLUTE: u32 = 2;
}

/// One pass over an image: what a launch reads, what it writes, and the rules in between.
///
/// The grid's z axis counts the channels of all images. A launch writes `region` and nothing else. Of the source it reads
/// rows that a result needs, and no row outside `src.first_row..src.end_row`: the border rule is applied to the image's
/// whole extent, and whoever passes a band passes one with all rows that the region's windows find. (Kernels load some rows
/// that no result needs; of those, the nearest row that is there stands for one that is not.) Source and destination do
/// not overlap.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pass {
    /// What is read.
    pub src: Plane,
    /// What is written; its rows from `region.y0` to before `region.y1` are there.
    pub dst: Plane,
    /// Pixels in a row of the whole image, which the border rule goes by.
    pub width: i32,
    /// Its rows.
    pub height: i32,
    /// The results that are written.
    pub region: Region,
    /// Channels of an image.
    pub channels: i32,
    /// One of the `border::` mode constants.
    pub border: u32,
    /// What lies outside the image under [`crate::border::CONSTANT`].
    pub outside: f32,
    /// What becomes of a sum.
    pub epilogue: Epilogue,
}

/// The window that slides over the image: its size, and which of its cells lies on the output pixel.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// As many taps as an entry takes, by value: they are read through the constant bank. Row by row, without gaps; where an
/// entry takes more than a window has, the others are not read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Taps<const N: usize>(pub [f32; N]);

/// How many taps entries take by value that do not know the window's size: 31x31. Keeps a launch's parameters under the
/// 4 KB that every driver and architecture takes.
pub const MAX_CONSTANT_TAPS: usize = 961;

/// The taps of a window whose size is known at run time.
pub type ConstantTaps = Taps<MAX_CONSTANT_TAPS>;
