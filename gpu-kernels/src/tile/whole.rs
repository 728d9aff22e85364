//! Bytes for the tensor cores: loads rows into shared memory in memory order, and turns integer
//! sums into bytes.

use crate::abi::{Pass, Plane};
use crate::border;
use crate::device::*;
use crate::pixel::note;
use crate::tile::view::{Row, Source, Target};

/// How sums become bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Rounding {
    /// With three digits: the start value of the second digit's sums, and 0. With fewer: the number
    /// added to a joined sum before the shift, and the bit that makes ties even.
    pub start: [i32; 2],
    /// Fraction bits of a joined sum.
    pub shift: i32,
    /// With three digits, a sum is uncertain if its fraction bits, shifted to the top, are below
    /// this.
    pub near: u32,
    /// A factor that replaces a shift by 8 bits, for the third digit: multiply-adds have their own
    /// pipe, but shifts share one with most other work on a sum. The compiler must not know this
    /// factor or `top`.
    pub third: i32,
    /// A factor that replaces a shift: 2 to the power of `32 - shift`.
    pub top: u32,
}

impl Rounding {
    /// The rounding of one or two digits with `bits` fraction bits.
    pub const fn exact(bits: i32) -> Self {
        let start = if bits == 0 { [0, 0] } else { [(1 << (bits - 1)) - 1, 1] };
        Self { start, shift: bits, near: 0, third: 0, top: 0 }
    }

    /// The rounding of three digits, whose joined sum has `shift` fraction bits. A sum is uncertain
    /// if it is at most `near` units from a half. The second digit's sums begin with `start`.
    pub const fn of_three(start: i32, shift: i32, near: i32) -> Self {
        let top = 1 << (32 - shift);
        Self {
            start: [start, 0],
            shift,
            near: (2 * near as u32).wrapping_mul(top),
            third: 1 << 8,
            top,
        }
    }

    /// A joined sum's fraction bits, shifted to the top.
    #[inline(always)]
    pub(crate) fn behind(&self, whole: i32) -> u32 {
        (whole as u32).wrapping_mul(self.top)
    }
}

/// Rows that are loaded together.
pub(crate) const GROUP: i32 = 16;

/// Starts to load [`GROUP`] rows from row `top` and value `left` on into shared memory, from byte
/// `to` on, `pitch` bytes apart. A row has `pieces` pieces of 16 bytes; results need only values
/// from number `needed.0` to before `needed.1`. The block is a single warp, and all its lanes call
/// together.
///
/// # Safety
/// `pass` describes allocated memory. Nobody touches that shared memory before a wait for the
/// copies and a barrier.
#[inline(always)]
pub(crate) unsafe fn bring(
    pass: &Pass,
    source: Source<'_>,
    channels: i32,
    (left, top): (i32, i32),
    (pieces, pitch): (i32, i32),
    needed: (i32, i32),
    to: i32,
) {
    /// Lanes that load the pieces of a row.
    const ACROSS: i32 = 4;
    const STEP: i32 = 32 / ACROSS;

    let (shared, plane) = (Shared::dynamic(), &pass.src);
    let width = pass.width * channels;
    let whole = is_whole::<15>(plane, channels, source.origin());
    // Pieces from `lo` to before `hi` lie in the image.
    let inside = if whole { (width - left) >> 4 } else { 0 };
    let lo = if left < 0 { (15 - left) >> 4 } else { 0 };
    let hi = if inside < pieces { inside } else { pieces };
    let (lo, hi) = if lo < hi { (lo, hi) } else { (0, 0) };
    let thread = opaque(thread_x());
    let (piece, first) = (thread % ACROSS, thread / ACROSS);
    // SAFETY: as the caller promised.
    unsafe {
        let mut at = opaque(lo + piece);
        if source.has_rows(top, top + GROUP) {
            let start = source.row_inside(top + first).at(0);
            while at < hi {
                let mut from = start.wrapping_add((left + 16 * at) as i64 as u64);
                let mut row = opaque(first);
                let mut place = (to + first * pitch + 16 * at) / 4;
                while row < GROUP {
                    shared.copy4(place, from as *const f32);
                    from = from.wrapping_add((STEP as i64 * plane.row) as u64);
                    place += STEP * pitch / 4;
                    row += STEP;
                }
                at += ACROSS;
            }
        } else {
            while at < hi {
                let mut row = opaque(first);
                while row < GROUP {
                    let (line, place) = (source.row(top + row), (to + row * pitch + 16 * at) / 4);
                    if line.is_inside() {
                        shared.copy4(
                            place,
                            line.at(0).wrapping_add((left + 16 * at) as i64 as u64) as *const f32,
                        );
                    } else {
                        shared
                            .store4(place, [f32::from_bits(pass.outside as u32 * 0x0101_0101); 4]);
                    }
                    row += STEP;
                }
                at += ACROSS;
            }
        }
        // The other pieces are loaded word by word: those left of `lo`, and those from `hi` on.
        // Words that no result needs are 0.
        let (first_word, end_word) = ((needed.0 - left) >> 2, (needed.1 - left + 3) >> 2);
        rest(4 * (pieces - hi + lo), |number, row| {
            let word = if number < 4 * lo { number } else { number + 4 * (hi - lo) };
            let found = Found::new(pass, channels, left + 4 * word);
            let is_needed = word >= first_word && word < end_word;
            let words = if is_needed {
                found.words([0, 4, 8, 12].map(|down| source.row(top + row + down)))
            } else {
                [0; 4]
            };
            let mut place = (to + row * pitch) / 4 + word;
            let mut i = 0;
            while i < 4 {
                shared.store(place, f32::from_bits(words[i]));
                place += pitch;
                i += 1;
            }
        });
    }
}

/// Calls `each` for each of `count` words, or pieces, of a row. 8 lanes share a row, one item at a
/// time; a lane's rows are its first one, passed to `each`, and every fourth one after it.
#[inline(always)]
pub(crate) fn rest(count: i32, each: impl Fn(i32, i32)) {
    let lane = opaque(thread_x());
    let mut number = opaque(lane & 7);
    while number < count {
        each(number, lane >> 3);
        number = opaque(number + 8);
    }
}

/// Whether several values of a plane of bytes may be read or written at once: they are side by
/// side, and all rows are at multiples of MASK + 1 bytes. `origin` is the address of the first
/// value.
#[inline(always)]
pub(crate) fn is_whole<const MASK: u64>(plane: &Plane, channels: i32, origin: u64) -> bool {
    let side_by_side = plane.pixel == channels && (channels == 1 || plane.channel == 1);
    side_by_side && (origin | plane.row as u64) & MASK == 0
}

/// Four neighbouring values of any row, each resolved by the border rule. Resolving is slow, but
/// its result is the same for all rows.
#[derive(Clone, Copy)]
pub(crate) struct Found<'a> {
    pass: &'a Pass,
    /// Bytes from the row's first value to each of the four.
    offsets: [u64; 4],
    /// A mask of the bytes that lie outside the image.
    outside: u32,
}

impl<'a> Found<'a> {
    /// The values from number `first` on.
    #[inline(always)]
    pub(crate) fn new(pass: &'a Pass, channels: i32, first: i32) -> Self {
        /// An upper limit of the pixels that a window reaches beyond the image.
        const BESIDE: i32 = 4096;
        // Shifted by whole pixels, so that the division rounds down.
        let shifted = (first + channels * BESIDE) as u32;
        let mut pixel = shifted.checked_div(channels as u32).unwrap_or(0) as i32 - BESIDE;
        let mut channel = first - channels * pixel;
        let (mut offsets, mut outside) = ([0; 4], 0);
        let mut i = 0;
        while i < 4 {
            let column = border::resolve(pass.border, pixel, pass.width);
            outside |= if column < 0 { 0xff << (8 * i) } else { 0 };
            // For a value outside, another one is loaded, so that no load depends on a branch.
            let column = if column < 0 { 0 } else { column };
            let offset = column as i64 * pass.src.pixel as i64 + channel as i64 * pass.src.channel;
            offsets[i] = offset as u64;
            channel += 1;
            if channel == channels {
                channel = 0;
                pixel += 1;
            }
            i += 1;
        }
        Self { pass, offsets, outside }
    }

    /// The four values of each of N rows; all loads are in flight together.
    ///
    /// # Safety
    /// The pass describes allocated memory. A row has at most 2^30 values, and these are among
    /// them.
    #[inline(always)]
    pub(crate) unsafe fn words<const N: usize>(&self, lines: [Row<'_>; N]) -> [u32; N] {
        let mut bytes = [[0; 4]; N];
        let mut n = 0;
        while n < N {
            let mut i = 0;
            while i < 4 {
                // SAFETY: a value of the image, in a row that is in memory.
                bytes[n][i] = unsafe { load_u8(lines[n].at(0).wrapping_add(self.offsets[i])) };
                i += 1;
            }
            n += 1;
        }
        let outside = self.pass.outside as u32 * 0x0101_0101;
        let mut words = [0; N];
        let mut n = 0;
        while n < N {
            let [a, b, c, d] = bytes[n];
            let mask = if lines[n].is_inside() { self.outside } else { u32::MAX };
            words[n] = (a | b << 8 | c << 16 | d << 24) & !mask | outside & mask;
            n += 1;
        }
        words
    }
}

/// De-interleaves four neighbouring pixels of P channels: consecutive words in, one word for each
/// channel out.
#[inline(always)]
pub(crate) fn part<const P: usize>(words: [u32; P]) -> [u32; P] {
    let mut planar = words;
    if P == 3 {
        let (a, b, c) = (words[0], words[1 % P], words[2 % P]);
        planar[0] = permute::<0x5210>(permute::<0x0630>(a, b), c);
        planar[1 % P] = permute::<0x6210>(permute::<0x0741>(a, b), c);
        planar[2 % P] = permute::<0x7410>(permute::<0x0052>(a, b), c);
    } else if P == 4 {
        planar = transposed(words);
    }
    planar
}

/// The inverse of [`part`].
#[inline(always)]
pub(crate) fn interleave<const P: usize>(words: [u32; P]) -> [u32; P] {
    let mut together = words;
    if P == 3 {
        let (a, b, c) = (words[0], words[1 % P], words[2 % P]);
        together[0] = permute::<0x3410>(permute::<0x1040>(a, b), c);
        together[1 % P] = permute::<0x3250>(permute::<0x6205>(a, b), c);
        together[2 % P] = permute::<0x7216>(permute::<0x0730>(a, b), c);
    } else if P == 4 {
        together = transposed(words);
    }
    together
}

/// Transposes four words, read as a 4 by 4 matrix of bytes.
#[inline(always)]
pub(crate) fn transposed<const P: usize>(words: [u32; P]) -> [u32; P] {
    let (a, b, c, d) = (words[0], words[1 % P], words[2 % P], words[3 % P]);
    let upper = [permute::<0x5140>(a, b), permute::<0x7362>(a, b)];
    let lower = [permute::<0x5140>(c, d), permute::<0x7362>(c, d)];
    let mut columns = words;
    columns[0] = permute::<0x5410>(upper[0], lower[0]);
    columns[1 % P] = permute::<0x7632>(upper[0], lower[0]);
    columns[2 % P] = permute::<0x5410>(upper[1], lower[1]);
    columns[3 % P] = permute::<0x7632>(upper[1], lower[1]);
    columns
}

/// Adds value `value` of row `y` to the pass's list of uncertain results, if it lies in the
/// region's columns and its channel is filtered.
///
/// # Safety
/// The pass has a list.
#[inline(always)]
pub(crate) unsafe fn note_value(
    pass: &Pass,
    (channels, filtered): (i32, i32),
    (value, y, z): (i32, i32, i32),
) {
    let pixel = (value as u32).checked_div(channels as u32).unwrap_or(0) as i32;
    let channel = value - channels * pixel;
    if value >= 0 && pixel >= pass.region.x0 && pixel < pass.region.x1 && channel < filtered {
        // The list does not count channels that are not filtered.
        // SAFETY: as the caller promised.
        unsafe { note(pass, pixel, y, z * filtered + channel) };
    }
}

/// A pixel's word with its last byte replaced by the source's last channel. The pixel's first value
/// is number `x` of row `y`.
///
/// # Safety
/// The pixel is in memory.
#[inline(always)]
pub(crate) unsafe fn with_copied(pass: &Pass, channels: i32, word: u32, (x, y): (i32, i32)) -> u32 {
    let source = Source::of_channel(&pass.src, pass, block_z() * channels);
    // SAFETY: as the caller promised.
    let [pixel] = unsafe { load_words(source.row_inside(y).at(0).wrapping_add(x as i64 as u64)) };
    permute::<0x7210>(word, pixel)
}

/// The sums of all digits as one number: with three digits, without its lowest 8 bits; otherwise
/// rounded to an integer.
#[inline(always)]
pub(crate) fn joined<const D: usize>(rounding: &Rounding, digits: &[i32; D]) -> i32 {
    if D == 3 {
        let lower = digits[1 % D].wrapping_add(digits[0] >> 8);
        return digits[2 % D].wrapping_mul(rounding.third).wrapping_add(lower);
    }
    let whole = if D == 2 { digits[0].wrapping_add(digits[1 % D] << 8) } else { digits[0] };
    whole.wrapping_add(rounding.start[0]).wrapping_add(whole >> rounding.shift & rounding.start[1])
        >> rounding.shift
}

/// Writes COUNT results of row `y` from value `x` on one by one, if they lie in the region. The
/// lowest bits of `byte(i)` are result number `i`.
///
/// # Safety
/// `pass` describes allocated memory, with at most 2^30 values in a row.
#[inline(always)]
pub(crate) unsafe fn write_values<const COUNT: i32>(
    pass: &Pass,
    (channels, filtered): (i32, i32),
    (x, y, z): (i32, i32, i32),
    byte: impl Fn(i32) -> u32,
) {
    let source = Source::of_channel(&pass.src, pass, z * channels);
    let target = Target::of_channel(pass, z * channels);
    let mut i = opaque(0);
    while i < COUNT {
        let pixel = ((x + i) as u32).checked_div(channels as u32).unwrap_or(0) as i32;
        let channel = x + i - channels * pixel;
        if x + i >= 0 && pixel >= pass.region.x0 && pixel < pass.region.x1 {
            // SAFETY: the value lies in the region.
            unsafe {
                let byte = if channel < filtered {
                    byte(i)
                } else {
                    let offset = channel as i64 * pass.src.channel;
                    load_u8(source.row_inside(y).at(pixel).wrapping_add(offset as u64))
                };
                let offset = channel as i64 * pass.dst.channel;
                store_u8(target.at(pixel, y).wrapping_add(offset as u64), byte);
            }
        }
        i += 1;
    }
}
