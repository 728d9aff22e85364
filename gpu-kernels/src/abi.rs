//! The arguments that the host passes to a kernel: structs of a fixed layout, by value.

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

    /// All types.
    pub const ALL: [u32; 4] = [F32, U8, U16, F16];

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

/// The greatest width or height of an image or a window, in pixels. Coordinates, their sums with a
/// window and twice an image's width stay inside `i32`.
pub const MAX_EXTENT: u32 = 1 << 29;

/// The most bytes from one pixel of a row to the next: 128 times this stays inside `i32`.
pub const MAX_PIXEL: u32 = 1 << 23;

/// Memory layout of an image, and the type of its values.
///
/// The value at `(x, y)` of channel `c` of image `n` has the address
/// `base + y * row + x * pixel + c * channel + n * image`, modulo 2^64. Row 0 of a band may lie
/// outside the memory. Strides are in bytes. They may be negative, as for rows stored bottom-up. So
/// one struct describes planar and interleaved channels, batches of either, and bands of an image.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plane {
    /// The address of column 0 of row 0, even if that row is not in memory.
    pub base: u64,
    /// Bytes from one row to the next.
    pub row: i64,
    /// Bytes from one channel to the next.
    pub channel: i64,
    /// `image - channels * channel`: the extra bytes to the next image's first channel, beyond one
    /// more channel.
    image_gap: i64,
    /// Bytes from one pixel of a row to the next: at most [`MAX_PIXEL`], forwards or backwards.
    pub pixel: i32,
    /// The first row of the image that is in memory.
    pub first_row: i32,
    /// The row after the last one in memory.
    pub end_row: i32,
    /// `row`, if it fits 32 bits and pixels are f32 values side by side; otherwise 0. If it is not
    /// 0, a product of two 32-bit numbers gives a row's offset. Slower code handles other planes.
    pub(crate) plain_row: i32,
    /// The type of stored values: one of the constants in [`scalar`].
    pub scalar: u32,
}

/// Strides in bytes: see [`Plane`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strides {
    /// From one row to the next.
    pub row: i64,
    /// From one pixel of a row to the next: a value's size, times the number of channels if they
    /// are interleaved. At most [`MAX_PIXEL`], forwards or backwards.
    pub pixel: i32,
    /// From one channel to the next.
    pub channel: i64,
    /// From one image of a batch to the next; ignored for a single image.
    pub image: i64,
}

impl Strides {
    /// The strides for images of `channels` channels. Images of a single channel become the
    /// channels of one image.
    pub const fn of_batch(self, channels: u32) -> Self {
        if channels == 1 { Self { channel: self.image, ..self } } else { self }
    }
}

impl Plane {
    /// Stands for a plane that is not there: it has no rows.
    pub const NONE: Self = {
        let strides = Strides { row: 0, pixel: 0, channel: 0, image: 0 };
        Self::new(scalar::F32, 0, strides, 1, (0, 0))
    };

    /// A plane with `channels` channels in an image and rows `first_row..end_row` in memory.
    /// `start` is the address of column 0 of row `first_row`. Values are of type `scalar`.
    pub const fn new(
        scalar: u32,
        start: u64,
        strides: Strides,
        channels: u32,
        (first_row, end_row): (i32, i32),
    ) -> Self {
        let Strides { row, pixel, channel, image } = strides.of_batch(channels);
        let base = start.wrapping_sub((first_row as i64 * row) as u64);
        let plain_row = plain_row(scalar, pixel, row);
        let image_gap = image.wrapping_sub(channel.wrapping_mul(channels as i64));
        Self { base, row, channel, image_gap, pixel, first_row, end_row, plain_row, scalar }
    }

    /// Whether it has rows: see [`Plane::NONE`].
    #[inline(always)]
    pub const fn is_there(&self) -> bool {
        self.end_row > self.first_row
    }

    /// Channel number `channel` (from 0) of each image, as a plane of single channels. The images
    /// of a batch become its channels.
    pub const fn channel_alone(&self, channel: i64, channels: u32) -> Self {
        let image = self.image(channels);
        let base = self.base.wrapping_add((channel * self.channel) as u64);
        Self { base, channel: image, image_gap: 0, ..*self }
    }

    /// Bytes from one image of `channels` channels to the next.
    pub const fn image(&self, channels: u32) -> i64 {
        self.image_gap.wrapping_add(self.channel.wrapping_mul(channels as i64))
    }

    /// The plane whose pixels are the values of images of so many interleaved channels. It has a
    /// channel for each image.
    pub const fn as_values(self, channels: u32) -> Self {
        let pixel = self.pixel / channels as i32;
        let plain_row = plain_row(self.scalar, pixel, self.row);
        Self { channel: self.image(channels), image_gap: 0, pixel, plain_row, ..self }
    }

    /// Whether a pixel's values are neighbours in memory, and pixels too.
    pub const fn is_interleaved(&self, channels: u32) -> bool {
        let value = scalar::bytes(self.scalar);
        self.pixel == value * channels as i32 && (channels == 1 || self.channel == value as i64)
    }

    /// Whether pixels are f32 values side by side and rows are less than 2 GiB apart (but not 0
    /// bytes).
    #[inline(always)]
    pub const fn is_plain(&self) -> bool {
        self.plain_row != 0
    }

    /// The address of column 0 of row 0 in channel number `z` on the grid's z axis.
    #[inline(always)]
    pub const fn origin(&self, z: i32, channels: &Channels) -> u64 {
        let image = channels.image_of(z);
        self.base.wrapping_add((z as i64 * self.channel + image as i64 * self.image_gap) as u64)
    }
}

/// [`Plane::plain_row`] for a plane's type, and bytes from pixel to pixel and from row to row.
const fn plain_row(scalar: u32, pixel: i32, row: i64) -> i32 {
    let is_plain = scalar == scalar::F32 && pixel == 4 && row as i32 as i64 == row;
    if is_plain { row as i32 } else { 0 }
}

/// The number of channels of an image; the grid's z axis counts the channels of all images.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    /// `2^32 / channels`, rounded up, or 0 for a single image: kernels multiply instead of
    /// dividing.
    inverse: u32,
}

impl Channels {
    /// For `images` images of `channels` channels each. A batch of single channels counts as one
    /// image with these channels: see [`Strides::of_batch`]. `images * channels` is below 2^16.
    pub const fn new(channels: u32, images: u32) -> Self {
        Self {
            inverse: if images > 1 && channels > 1 {
                ((1 << 32) / channels as u64 + 1) as u32
            } else {
                0
            },
        }
    }

    /// The image of channel number `z` on the z axis. Exact: `z * channels` is below 2^32.
    #[inline(always)]
    const fn image_of(&self, z: i32) -> i32 {
        ((z as u32 as u64 * self.inverse as u64) >> 32) as i32
    }
}

/// A table in memory with an entry for each image of a launch, whose grid counts the planes of all
/// images on its z axis.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Each {
    /// The address of the first image's entry.
    first: u64,
    /// `2^32 / planes` of an image, rounded up.
    inverse: u64,
}

impl Each {
    /// For images of so many planes, from 1 on. `images * planes` is below 2^16.
    pub const fn new(first: u64, planes: u32) -> Self {
        Self { first, inverse: (1u64 << 32).div_ceil(planes as u64) }
    }

    /// The address of the entry, of so many bytes, for plane number `z` on the z axis.
    #[inline(always)]
    pub const fn entry(&self, z: i32, bytes: usize) -> u64 {
        self.first.wrapping_add(((z as u64 * self.inverse) >> 32) * bytes as u64)
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
    /// The column after the last.
    pub x1: i32,
    /// The row after the last.
    pub y1: i32,
}

impl Region {
    /// The first column of kernels with vectors of four pixels: the region's first column, or up to
    /// three before it.
    #[inline(always)]
    pub const fn aligned_left(&self) -> i32 {
        self.x0 & !3
    }
}

/// The operation on a sum before it is stored: `|sum * scale + offset|`, each part if its flag is
/// set. Pixels that a border copies are stored unchanged.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epilogue {
    /// A combination of [`Epilogue::LINEAR`] and [`Epilogue::ABSOLUTE`].
    pub flags: u32,
    /// The factor.
    pub scale: f32,
    /// The term, added to the product by a fused multiply-add.
    pub offset: f32,
}

impl Epilogue {
    /// Stores sums unchanged.
    pub const NONE: Self = Self { flags: 0, scale: 1.0, offset: 0.0 };
    /// Applies scale and offset.
    pub const LINEAR: u32 = 1;
    /// Drops the sign.
    pub const ABSOLUTE: u32 = 2;
}

/// One pass over an image: its source, its destination, and the rules in between.
///
/// The grid's z axis counts the channels of all images. A launch writes `region` and nothing else.
/// Of the source it reads rows that a result needs, and no row outside
/// `src.first_row..src.end_row`. The border rule applies to the image's whole extent, so the
/// caller's band must hold all rows that the region's windows need. (Kernels also load some rows
/// that no result needs; the nearest row in memory replaces a missing one.) Source and destination
/// do not overlap.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pass {
    /// The source.
    pub src: Plane,
    /// The destination; its rows from `region.y0` to before `region.y1` are in memory.
    pub dst: Plane,
    /// Columns of the whole image, for the border rule.
    pub width: i32,
    /// Rows of the whole image.
    pub height: i32,
    /// The results to write.
    pub region: Region,
    /// Channels of an image.
    pub channels: Channels,
    /// One of the `border::` mode constants.
    pub border: u32,
    /// The value outside the image under [`crate::border::CONSTANT`].
    pub outside: f32,
    /// The operation on each sum.
    pub epilogue: Epilogue,
    /// The separable family adds `point` times the pixel to its sum, by a fused multiply-add,
    /// before the epilogue. It is the part of a filter that is not separable. Nothing is added if
    /// it is 0. Other families ignore it.
    pub point: f32,
    /// The list of uncertain results, if source and destination are bytes.
    pub uncertain: UncertainList,
}

impl Pass {
    /// The pass whose pixels are the values of images of so many interleaved channels, in source
    /// and destination.
    pub const fn as_values(self, channels: u32) -> Self {
        let (src, dst) = (self.src.as_values(channels), self.dst.as_values(channels));
        let (count, Region { x0, x1, y0, y1 }) = (channels as i32, self.region);
        let region = Region { x0: count * x0, x1: count * x1, y0, y1 };
        Self { src, dst, width: count * self.width, region, channels: Channels::new(1, 1), ..self }
    }
}

/// A list of results whose estimate leaves the byte uncertain, because a half-integer lies within
/// its error. A kernel in `kernels/resolve.rs` computes these results exactly, and empties the
/// list.
///
/// The list has [`UncertainList::SEGMENTS`] segments, each with a counter and places. A pixel's
/// coordinates select its segment. If a segment has too few places, all of its pixels count as
/// uncertain.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UncertainList {
    /// The address of the list, or 0 if no result is uncertain.
    pub list: u64,
    /// Places of each segment.
    pub capacity: u32,
    /// A sum whose distance from an integer is at least this is uncertain.
    pub near: f32,
}

impl UncertainList {
    /// No result is uncertain.
    pub const NONE: Self = Self { list: 0, capacity: 0, near: 1.0 };
    /// Segments of a list: a power of two.
    pub const SEGMENTS: i32 = 1024;
    /// Bytes of a counter: each has its own 32-byte sector, to reduce contention.
    const COUNTER: u64 = 32;
    /// Bytes of a place: column, row, channel number on the z axis, and an unused word.
    const PLACE: u64 = 16;

    /// Bytes of a list with `capacity` places in each segment.
    pub const fn bytes(capacity: u32) -> u64 {
        Self::SEGMENTS as u64 * (Self::COUNTER + capacity as u64 * Self::PLACE)
    }

    /// Bytes at the list's start that must be zero before the first use: the counters.
    pub const fn counters() -> u64 {
        Self::SEGMENTS as u64 * Self::COUNTER
    }

    /// The segment of a pixel. Four neighbours share a segment, and the groups of four of any
    /// region are spread evenly. Rows are hashed: a picture may repeat itself every few pixels.
    #[inline(always)]
    pub const fn segment(x: i32, y: i32) -> i32 {
        /// 2^32 over the golden ratio (Knuth's multiplicative hashing).
        const GOLDEN: u32 = 0x9E37_79B1;
        let row = (y as u32).wrapping_mul(GOLDEN) >> (32 - Self::SEGMENTS.trailing_zeros());
        ((x >> 2) + row as i32) & (Self::SEGMENTS - 1)
    }

    /// The address of a segment's counter.
    #[inline(always)]
    pub const fn counter(&self, segment: i32) -> u64 {
        self.list.wrapping_add(segment as u64 * Self::COUNTER)
    }

    /// The address of the word after the first counter. One kernel tells the following kernels
    /// there whether too many results are uncertain to resolve each.
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

/// The window that slides over the image: its size, and the cell over the output pixel.
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

impl Window {
    /// The window that [`Window::to_words`] describes.
    #[inline(always)]
    pub const fn of_words([cols, rows, x, y]: [u32; 4]) -> Self {
        Self { cols: cols as i32, rows: rows as i32, anchor_x: x as i32, anchor_y: y as i32 }
    }

    /// Its fields as words.
    pub const fn to_words(self) -> [u32; 4] {
        [self.cols as u32, self.rows as u32, self.anchor_x as u32, self.anchor_y as u32]
    }
}

/// The taps that an entry takes by value, read through the constant bank. They are stored row by
/// row, without gaps. If an entry takes more taps than the window has, the rest is not read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Taps<const N: usize>(pub [f32; N]);

/// Taps that entries for any window size take by value: 31x31. Keeps a launch's parameters under
/// the limit of 4 KB of every driver and architecture.
pub const MAX_CONSTANT_TAPS: usize = 961;

/// The taps of a window whose size is known at run time.
pub type ConstantTaps = Taps<MAX_CONSTANT_TAPS>;
