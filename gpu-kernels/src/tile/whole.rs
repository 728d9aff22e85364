//! Bytes for the tensor cores: rows in memory order, on their way into shared memory; and
//! sums in whole numbers that become bytes.

use crate::abi::{Pass, Plane};
use crate::border;
use crate::device::*;
use crate::pixel::note;
use crate::tile::view::{Row, Source, Target};

/// How sums become bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Rounding {
    /// What the sums of the second of three digits begin with, and nothing; of fewer digits, what
    /// is added to a joined sum before the shift, and the bit that makes ties even.
    pub start: [i32; 2],
    /// Bits of a joined sum behind the point.
    pub shift: i32,
    /// With three digits, sums whose bits behind the point are less, shifted to the top, are
    /// uncertain.
    pub near: u32,
    /// The factors of products that take the place of shifts, as multiply-adds have a pipe of their
    /// own, and shifts share theirs with most of what is done to a sum: 2^8, for the third digit,
    /// and 2 to the power of `32 - shift`. The compiler must not know them.
    pub third: i32,
    /// The second one.
    pub top: u32,
}

impl Rounding {
    /// That of one or two digits with so many bits behind the point.
    pub const fn exact(bits: i32) -> Self {
        let start = if bits == 0 { [0, 0] } else { [(1 << (bits - 1)) - 1, 1] };
        Self { start, shift: bits, near: 0, third: 0, top: 0 }
    }

    /// That of a joined sum of three digits with so many bits behind the point, which is uncertain
    /// if it is at most `near` units from a half. `start` is what the second digit's sums begin
    /// with.
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

    /// A joined sum's bits behind the point, shifted to the top.
    #[inline(always)]
    pub(crate) fn behind(&self, whole: i32) -> u32 {
        (whole as u32).wrapping_mul(self.top)
    }
}

/// Rows that are brought together.
pub(crate) const GROUP: i32 = 16;

/// Starts to bring [`GROUP`] rows from row `top` and value `left` on to shared memory, from byte
/// `to` on, `pitch` bytes apart; all lanes of a warp call, whose block has no other one. A row has
/// so many pieces of 16 bytes, of which values from number `needed.0` to before `needed.1` are
/// needed.
///
/// # Safety
/// `pass` describes allocated memory; nobody touches that shared memory before a wait for the
/// copies, and a barrier.
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
    /// Lanes that take the pieces of a row, and rows that a warp takes at a time.
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
        // The others go word by word: those left of `lo`, and those from `hi` on. What no result
        // needs is 0.
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

/// Calls for each of `count` words, or pieces, of a row, each lane for one of 8 at a time and for
/// its first row of a group: every fourth one is the lane's.
#[inline(always)]
pub(crate) fn rest(count: i32, each: impl Fn(i32, i32)) {
    let lane = opaque(thread_x());
    let mut number = opaque(lane & 7);
    while number < count {
        each(number, lane >> 3);
        number = opaque(number + 8);
    }
}

/// Whether values of a plane of bytes may be read or written several at once: side by side, with
/// all rows at multiples of MASK + 1 bytes. `origin` is the address of its first value.
#[inline(always)]
pub(crate) fn is_whole<const MASK: u64>(plane: &Plane, channels: i32, origin: u64) -> bool {
    let side_by_side = plane.pixel == channels && (channels == 1 || plane.channel == 1);
    side_by_side && (origin | plane.row as u64) & MASK == 0
}

/// Four neighbouring values of any row, each found through the border rule: that takes long, and is
/// the same for all rows.
#[derive(Clone, Copy)]
pub(crate) struct Found<'a> {
    pass: &'a Pass,
    /// How far each is from the row's first value, in bytes.
    offsets: [u64; 4],
    /// The bytes of a word that lie outside the image.
    outside: u32,
}

impl<'a> Found<'a> {
    /// Those from number `first` on.
    #[inline(always)]
    pub(crate) fn new(pass: &'a Pass, channels: i32, first: i32) -> Self {
        /// No window reaches as many pixels beside the image.
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
            // What is not found is loaded from elsewhere, so that no load waits for another one.
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

    /// They, of N rows; all loads are under way together.
    ///
    /// # Safety
    /// The pass describes allocated memory, with at most 2^30 values in a row, of which these are.
    #[inline(always)]
    pub(crate) unsafe fn words<const N: usize>(&self, lines: [Row<'_>; N]) -> [u32; N] {
        let mut bytes = [[0; 4]; N];
        let mut n = 0;
        while n < N {
            let mut i = 0;
            while i < 4 {
                // SAFETY: it is a value of the image, in a row that is there.
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

/// Four pixels of P channels side by side, as words in turn, parted: a word for each channel.
#[inline(always)]
pub(crate) fn part<const P: usize>(words: [u32; P]) -> [u32; P] {
    let mut parted = words;
    if P == 3 {
        let (a, b, c) = (words[0], words[1 % P], words[2 % P]);
        parted[0] = permute::<0x5210>(permute::<0x0630>(a, b), c);
        parted[1 % P] = permute::<0x6210>(permute::<0x0741>(a, b), c);
        parted[2 % P] = permute::<0x7410>(permute::<0x0052>(a, b), c);
    } else if P == 4 {
        parted = transposed(words);
    }
    parted
}

/// What [`part`] parted, put together again.
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

/// Four words with rows of bytes for columns.
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

/// Notes that value `value` of row `y` is uncertain, if it lies in the region's columns, and if its
/// channel is filtered.
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
        // Channels that are not filtered are not counted in the list.
        // SAFETY: as the caller promised.
        unsafe { note(pass, pixel, y, z * filtered + channel) };
    }
}

/// A pixel's word with the last channel of the source's pixel, whose first value is number `x` of
/// row `y`.
///
/// # Safety
/// The pixel is there.
#[inline(always)]
pub(crate) unsafe fn with_copied(pass: &Pass, channels: i32, word: u32, (x, y): (i32, i32)) -> u32 {
    let source = Source::of_channel(&pass.src, pass, block_z() * channels);
    // SAFETY: as the caller promised.
    let [pixel] = unsafe { load_words(source.row_inside(y).at(0).wrapping_add(x as i64 as u64)) };
    permute::<0x7210>(word, pixel)
}

/// The sums of the digits as one number: with three digits without its lowest 8 bits, else rounded
/// to a whole number.
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

/// Writes COUNT results of row `y` from value `x` on one by one, as far as they lie in the region;
/// `byte` has each in its lowest bits.
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
