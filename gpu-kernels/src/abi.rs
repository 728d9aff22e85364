//! What the host passes to a kernel: structs of a fixed layout, by value.

/// The types of stored values.
pub mod scalar {
    /// 32-bit floating-point numbers, IEEE 754 binary32.
    pub const F32: u32 = 0;
    /// Unsigned integers of 8 bits.
    pub const U8: u32 = 1;
    /// Unsigned integers of 16 bits.
    pub const U16: u32 = 2;
    /// 16-bit floating-point numbers, IEEE 754 binary16.
    pub const F16: u32 = 3;

    /// Bytes of a value.
    #[inline(always)]
    pub const fn bytes(scalar: u32) -> i32 {
        match scalar {
            U8 => 1,
            U16 | F16 => 2,
            _ => 4,
        }
    }
}

/// The greatest width or height of an image, and of a window, in pixels. Coordinates, their sums
/// with a window and twice an image's width stay inside `i32`.
pub const MAX_EXTENT: u32 = 1 << 29;

/// The most bytes from one pixel of a row to the next: 128 times as many stay inside `i32`.
pub const MAX_PIXEL: u32 = 1 << 23;

/// Where the pixels of an image lie, and how their values are stored.
///
/// The value at `(x, y)` of channel `c` of image `n` has the address
/// `base + y * row + x * pixel + c * channel + n * image`, counted modulo 2^64: of a band, row 0
/// may lie outside the memory. Strides count bytes. They may be negative: rows may run backwards.
/// So one struct says planar and interleaved channels, batches of either, and bands of an image.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plane {
    /// The address that column 0 of row 0 has, or would have.
    pub base: u64,
    /// Bytes from one row to the next.
    pub row: i64,
    /// Bytes from one channel to the next.
    pub channel: i64,
    /// `image - channels * channel`: what the first channel of the next image lies further than one
    /// more channel would.
    image_gap: i64,
    /// Bytes from one pixel of a row to the next: [`MAX_PIXEL`] at most, forwards or backwards.
    pub pixel: i32,
    /// The first row of the image that is there.
    pub first_row: i32,
    /// The row behind the last that is there.
    pub end_row: i32,
    /// `row`, if it has 32 bits and pixels are f32 values that are neighbours in memory, else 0:
    /// then the product of two 32-bit numbers says where a pixel lies. Planes of both kinds are
    /// read and written, the others by a longer way.
    pub(crate) plain_row: i32,
    /// The type of stored values: one of the constants in [`scalar`].
    pub scalar: u32,
}

/// Strides in bytes: see [`Plane`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strides {
    /// From one row to the next.
    pub row: i64,
    /// From one pixel of a row to the next: a value's size, times the channels where they are
    /// interleaved. At most [`MAX_PIXEL`], forwards or backwards.
    pub pixel: i32,
    /// From one channel to the next.
    pub channel: i64,
    /// From one image of a batch to the next; of no account for a single one.
    pub image: i64,
}

impl Strides {
    /// The strides for images of so many channels: those of a single channel become the channels of
    /// one image.
    pub const fn of_batch(self, channels: u32) -> Self {
        if channels == 1 { Self { channel: self.image, ..self } } else { self }
    }
}

impl Plane {
    /// A plane of so many channels an image, of which rows `first_row..end_row` are there; `start`
    /// is the address of column 0 of row `first_row`. Values are of type `scalar`.
    pub const fn new(
        scalar: u32,
        start: u64,
        strides: Strides,
        channels: u32,
        (first_row, end_row): (i32, i32),
    ) -> Self {
        let Strides { row, pixel, channel, image } = strides.of_batch(channels);
        let base = start.wrapping_sub((first_row as i64 * row) as u64);
        let is_plain = scalar == scalar::F32 && pixel == 4 && row as i32 as i64 == row;
        let plain_row = if is_plain { row as i32 } else { 0 };
        let image_gap = image.wrapping_sub(channel.wrapping_mul(channels as i64));
        Self { base, row, channel, image_gap, pixel, first_row, end_row, plain_row, scalar }
    }

    /// One channel of each image, counted from 0, of a plane of several channels an image; a
    /// batch's images become its channels.
    pub const fn channel_alone(&self, channel: i64, channels: u32) -> Self {
        let image = self.image(channels);
        let base = self.base.wrapping_add((channel * self.channel) as u64);
        Self { base, channel: image, image_gap: 0, ..*self }
    }

    /// Bytes from one image to the next, of so many channels each.
    pub const fn image(&self, channels: u32) -> i64 {
        self.image_gap.wrapping_add(self.channel.wrapping_mul(channels as i64))
    }

    /// Whether pixels are f32 values, neighbours in memory, and rows less than 2 GiB apart (and not
    /// at one place).
    #[inline(always)]
    pub const fn is_plain(&self) -> bool {
        self.plain_row != 0
    }

    /// The address of column 0 of row 0 in the channel that the grid's z axis counts as number `z`.
    #[inline(always)]
    pub const fn origin(&self, z: i32, channels: &Channels) -> u64 {
        let image = channels.image_of(z);
        self.base.wrapping_add((z as i64 * self.channel + image as i64 * self.image_gap) as u64)
    }
}

/// How many channels an image has, of which the grid's z axis counts those of all images.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    /// `2^32 / channels`, rounded up, or 0 if there is one image: kernels multiply where they would
    /// have to divide.
    inverse: u32,
}

impl Channels {
    /// Of so many images, `channels` each; a batch of single channels is one image to it, whose
    /// channels they are: see [`Strides::of_batch`]. `images * channels` is below 2^16.
    pub const fn new(channels: u32, images: u32) -> Self {
        Self {
            inverse: if images > 1 && channels > 1 {
                ((1 << 32) / channels as u64 + 1) as u32
            } else {
                0
            },
        }
    }

    /// The image of the channel that the z axis counts as number `z`. Exact: `z * channels` is
    /// below 2^32.
    #[inline(always)]
    const fn image_of(&self, z: i32) -> i32 {
        ((z as u32 as u64 * self.inverse as u64) >> 32) as i32
    }
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
    /// Where kernels with vectors of four pixels begin: at the region's first column, or up to
    /// three before it.
    #[inline(always)]
    pub const fn aligned_left(&self) -> i32 {
        self.x0 & !3
    }
}

/// What is done with a sum before it is stored: `|sum * scale + offset|`, each part if its flag is
/// set. Pixels that [`crate::border::KEEP`] copies are stored as they are.
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
/// The grid's z axis counts the channels of all images. A launch writes `region` and nothing else.
/// Of the source it reads rows that a result needs, and no row outside
/// `src.first_row..src.end_row`: the border rule is applied to the image's whole extent, and
/// whoever passes a band passes one with all rows that the region's windows find. (Kernels load
/// some rows that no result needs; of those, the nearest row that is there stands for one that is
/// not.) Source and destination do not overlap.
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
    pub channels: Channels,
    /// One of the `border::` mode constants.
    pub border: u32,
    /// What lies outside the image under [`crate::border::CONSTANT`].
    pub outside: f32,
    /// What becomes of a sum.
    pub epilogue: Epilogue,
    /// The separable family adds so many times the pixel to its sum, by a fused multiply-add,
    /// before the epilogue: the part of a filter that no row and column has. Nothing is added if it
    /// is 0. No other family looks at it.
    pub point: f32,
    /// Where uncertain results are noted, if bytes are made of bytes.
    pub doubts: Doubts,
}

/// A list of results whose estimate leaves the byte uncertain, because a half-integer lies within
/// its error. A kernel in `kernels/resolve.rs` computes them exactly, and empties the list.
///
/// The list has [`Doubts::SEGMENTS`] segments, each with a counter and places; a pixel's
/// coordinates say which segment is its. Where a segment has too few places, all of its pixels
/// count as uncertain.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Doubts {
    /// The address of the list, or 0: no result is uncertain.
    pub list: u64,
    /// Places of each segment.
    pub capacity: u32,
    /// A sum whose distance from an integer is at least this is uncertain.
    pub near: f32,
}

impl Doubts {
    /// No result is uncertain.
    pub const NONE: Self = Self { list: 0, capacity: 0, near: 1.0 };
    /// Segments of a list: a power of two.
    pub const SEGMENTS: i32 = 1024;
    /// Bytes of a counter, each in a sector of its own, so that threads meet at few.
    const COUNTER: u64 = 32;
    /// Bytes of a place: column, row, channel as the z axis counts it, and nothing.
    const PLACE: u64 = 16;

    /// Bytes of a list of so many places a segment.
    pub const fn bytes(capacity: u32) -> u64 {
        Self::SEGMENTS as u64 * (Self::COUNTER + capacity as u64 * Self::PLACE)
    }

    /// Bytes at its start that must be zero before the first use: the counters.
    pub const fn counters() -> u64 {
        Self::SEGMENTS as u64 * Self::COUNTER
    }

    /// The segment of a pixel. Four neighbours have the same, and the quads of any region are
    /// spread evenly.
    #[inline(always)]
    pub const fn segment(x: i32, y: i32) -> i32 {
        (x >> 2).wrapping_add(37i32.wrapping_mul(y)) & (Self::SEGMENTS - 1)
    }

    /// The address of a segment's counter.
    #[inline(always)]
    pub const fn counter(&self, segment: i32) -> u64 {
        self.list.wrapping_add(segment as u64 * Self::COUNTER)
    }

    /// The address of a word beside the first counter: whether too many are uncertain to resolve
    /// each, as one kernel tells those behind it.
    #[inline(always)]
    pub const fn verdict(&self) -> u64 {
        self.list.wrapping_add(4)
    }

    /// The address of a place in a segment.
    #[inline(always)]
    pub const fn place(&self, segment: i32, place: u32) -> u64 {
        let number = segment as u64 * self.capacity as u64 + place as u64;
        self.list.wrapping_add(Self::counters() + number * Self::PLACE)
    }
}

/// The window that slides over the image: its size, and which of its cells lies on the output
/// pixel.
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

/// As many taps as an entry takes, by value: they are read through the constant bank. Row by row,
/// without gaps; where an entry takes more than a window has, the others are not read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Taps<const N: usize>(pub [f32; N]);

/// How many taps entries take by value that do not know the window's size: 31x31. Keeps a launch's
/// parameters under the 4 KB that every driver and architecture takes.
pub const MAX_CONSTANT_TAPS: usize = 961;

/// The taps of a window whose size is known at run time.
pub type ConstantTaps = Taps<MAX_CONSTANT_TAPS>;
