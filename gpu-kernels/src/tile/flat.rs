//! Moves rows of bytes or 16-bit values between memory and registers in memory order, channels side
//! by side. A lane has V neighbouring values, of any channel; the same channel of the next pixel is
//! C values further. A lane loads its values and both aprons as words, straight into registers.
//!
//! `prmt` moves a byte to the third byte of a word, which as f32 is exactly `2^-133` times the
//! byte. A u16 in the second and third byte is `2^-141` times itself. Taps are multiplied by
//! [`TAP_SCALE`] and sums by `sum_scale`, powers of two that change no rounding. An f16 is
//! converted, unscaled: its infinities and NaN have no such form.
//!
//! Sums that become bytes are scaled by `2^-24`: rounding two numbers to f16 then makes two
//! integers, the bits of subnormal numbers. Such a sum begins with a bias greater than its error.
//! It is rounded with the bias, and again with twice the bias subtracted. If the two differ, the
//! result is uncertain. At the image's edge, the warp fetches the values beside its rows into
//! shared memory.
//!
//! Results of bytes are bytes or f32; others have the source's type. Limits: no epilogue; rows
//! begin at multiples of V values (f32: of 16 bytes), less than 2 GiB apart; the border's value has
//! the source's type. For integers, sums are below 2^22, and taps are 0 or from 2^-64 (for u16 with
//! a row and a column, 2^-31) to 2^18, so that scaled numbers stay in range.

use crate::abi::Pass;
use crate::border::{self, CONSTANT};
use crate::device::*;
use crate::pixel::{F16, F32, U8, U16, bytes, note, to_bits};
use crate::tile::view::Source;

/// The factor of taps for integers: a byte is scaled by `2^-133`, a u16 by `2^-141`.
pub const TAP_SCALE: f32 = f32::from_bits((127 + 109) << 23);

/// The factor that undoes the scaling of values and taps in a sum.
const fn sum_scale(source: u32) -> f32 {
    match source {
        U8 => f32::from_bits((127 + 24) << 23),
        U16 => f32::from_bits((127 + 32) << 23),
        _ => 1.0,
    }
}

/// The limit of sums: all must stay below it to be rounded.
pub const MAX_SUM: f32 = 4_194_304.0;

/// The limit of taps: times [`TAP_SCALE`], they are finite.
pub const MAX_TAP: f32 = f32::from_bits((127 + 18) << 23);

/// The least tap other than 0. Taps are multiples of 2^-23 times the least tap, and so are the sums
/// of their products with integers. Scaled, they are multiples of `2^-149`, which subnormal numbers
/// hold exactly.
pub const MIN_TAP: f32 = f32::from_bits((127 - 64) << 23);

/// The least tap of a row and a column for u16. Products of two such taps are multiples of
/// `2^-108`, scaled of `2^-149`. (Bytes need no such limit: their uncertain results are resolved.)
pub const MIN_TAP_OF_PAIR: f32 = f32::from_bits((127 - 31) << 23);

/// The bias of sums that become bytes, scaled, if a sum is uncertain from a distance of `near` on.
#[inline(always)]
fn bias(near: f32) -> f32 {
    // Adding the bias and subtracting it again each round sums below 256 once more: by `2^-17` at
    // most.
    const ROUNDED: f32 = 1.25 / 65536.0;
    let error = 0.5 - near;
    if error < 0.0 { 0.0 } else { (error + ROUNDED) / sum_scale(U8) }
}

/// Adding it to a number between -2^22 and 2^22 rounds that number to an integer, ties to even, and
/// leaves the integer in the lowest bits.
const SHIFT: f32 = 12_582_912.0;

/// Values of the apron on one side, for K tap columns and C channels.
const fn apron(k: usize, c: usize) -> usize {
    k / 2 * c
}

/// Values of a type in a word.
const fn in_word(scalar: u32) -> usize {
    4 / bytes(scalar) as usize
}

/// Words of the apron, of values of type `t`.
const fn apron_words(t: u32, k: usize, c: usize) -> usize {
    apron(k, c).div_ceil(in_word(t))
}

/// Words of a row that a lane of V values holds: its values and both aprons.
pub(crate) const fn words(t: u32, k: usize, c: usize, v: usize) -> usize {
    v / in_word(t) + 2 * apron_words(t, k, c)
}

/// Values beside a row that a warp fetches at the image's edge: those left of the row, and those
/// from its last partial word on.
const fn fetched(t: u32, k: usize, c: usize) -> usize {
    in_word(t) * (2 * apron_words(t, k, c) + 1)
}

/// The most of these values that a lane fetches.
const TURNS: usize = 5;

/// Bytes of shared memory of a block, which is a warp, for values of type `source`.
pub const fn flat_bytes(source: u32, k: i32, c: i32) -> u32 {
    bytes(source) as u32 * fetched(source, k as usize, c as usize) as u32
}

/// Value number `at` of a lane's words, of type T. The count starts at the leftmost value in the
/// window of the lane's first value. The result is scaled by `2^-133` for bytes, by `2^-141` for
/// u16, and unscaled for f16.
#[inline(always)]
pub(crate) fn value<const T: u32, const K: usize, const C: usize, const W: usize>(
    words: &[u32; W],
    at: usize,
) -> f32 {
    let number = in_word(T) * apron_words(T, K, C) - apron(K, C) + at;
    let word = words[number / in_word(T)];
    f32::from_bits(match (T, number % in_word(T)) {
        (U8, 0) => permute::<0x4044>(word, 0),
        (U8, 1) => permute::<0x4144>(word, 0),
        (U8, 2) => permute::<0x4244>(word, 0),
        (U8, _) => permute::<0x4344>(word, 0),
        (U16, 0) => permute::<0x4104>(word, 0),
        (U16, _) => permute::<0x4324>(word, 0),
        (_, 0) => return half_to_f32(word),
        _ => return half_to_f32(word >> 16),
    })
}

/// A lane's loads of a row in flight: W words, and values beside the row.
#[derive(Clone, Copy)]
pub(crate) struct Started<const W: usize> {
    words: [u32; W],
    beside: [u32; TURNS],
    /// The whole row lies outside the image, and is not loaded.
    is_outside: bool,
}

/// The input rows of one strip: values of type T, V values a lane, C channels, K tap columns, W
/// words a lane.
pub(crate) struct Rows<
    'a,
    const T: u32,
    const V: usize,
    const C: usize,
    const K: usize,
    const W: usize,
> {
    /// The first channel of the source.
    source: Source<'a>,
    /// The number of the lane's first value in a row.
    x: i32,
    /// Values in a row; the last few may not fill a word.
    width: i32,
    /// The address of value `x` in row 0.
    start: u64,
    /// Whether all words of the lane lie in the image; and whether all words of the warp do.
    is_inside: bool,
    strip_is_inside: bool,
    /// The values beside a row that this lane fetches for the warp: their numbers in the row, or -1
    /// for the border's value.
    found: [i32; TURNS],
    /// The border's value, repeated to fill a word.
    outside: u32,
}

impl<'a, const T: u32, const V: usize, const C: usize, const K: usize, const W: usize>
    Rows<'a, T, V, C, K, W>
{
    /// Bytes of a value.
    const BYTES: i32 = bytes(T);
    /// Values of a word.
    const IN_WORD: i32 = in_word(T) as i32;
    /// Words of the apron on each side.
    const BESIDE: usize = apron_words(T, K, C);
    /// Values beside a row that a warp fetches.
    const FETCHED: usize = fetched(T, K, C);
    /// Words of a lane's own values.
    const OWN: usize = V / in_word(T);

    /// The rows of the lane whose first value is number `x`, a multiple of V.
    #[inline(always)]
    pub(crate) fn new(pass: &'a Pass, x: i32) -> Self {
        const {
            assert!(
                (Self::OWN == 2 || Self::OWN == 4)
                    && W == words(T, K, C, V)
                    && Self::FETCHED <= 32 * TURNS
            )
        }
        let source = Source::of_channel(&pass.src, pass, block_z() * C as i32);
        let width = pass.width * C as i32;
        let beside = Self::IN_WORD * Self::BESIDE as i32;
        let first = x - V as i32 * thread_x();
        let mut rows = Self {
            source,
            x,
            width,
            start: source.origin().wrapping_add(Self::offset(x)),
            is_inside: x >= beside && x + V as i32 + beside <= width,
            strip_is_inside: first >= beside && first + 32 * V as i32 + beside <= width,
            found: [0; TURNS],
            outside: match T {
                U8 => pass.outside as u32 * 0x0101_0101,
                U16 => pass.outside as u32 * 0x0001_0001,
                _ => to_bits(F16, pass.outside) * 0x0001_0001,
            },
        };
        if !rows.strip_is_inside {
            let mut turn = 0;
            while turn * 32 < Self::FETCHED {
                rows.found[turn] = rows.find(32 * turn as i32 + thread_x());
                turn += 1;
            }
        }
        rows
    }

    /// The offset of value `x` of a row.
    #[inline(always)]
    fn offset(x: i32) -> u64 {
        (x as i64 * Self::BYTES as i64) as u64
    }

    /// The number of the first value of the row's last, partial word.
    #[inline(always)]
    fn last_word(&self) -> i32 {
        self.width & -Self::IN_WORD
    }

    /// The number in the row of value `number` beside it, under the border rule. Values left of the
    /// row come first, then those from its last partial word on.
    #[inline(always)]
    fn find(&self, number: i32) -> i32 {
        let (beside, pass) = (Self::IN_WORD * Self::BESIDE as i32, self.source.pass);
        let at = if number < beside { number - beside } else { self.last_word() + number - beside };
        // Shifted by whole pixels, so that the division rounds down.
        let pixel = ((at + C as i32 * beside) as u32 / C as u32) as i32 - beside;
        let column = border::resolve(pass.border, pixel, pass.width);
        if column < 0 { -1 } else { at + C as i32 * (column - pixel) }
    }

    /// Whether all words of the warp in rows from `top` to before `bottom` lie in the image and in
    /// memory.
    #[inline(always)]
    pub(crate) fn has(&self, top: i32, bottom: i32) -> bool {
        self.strip_is_inside && self.source.has_rows(top, bottom)
    }

    /// Bytes from one row to the next.
    #[inline(always)]
    pub(crate) fn row(&self) -> i64 {
        self.source.pass.src.row
    }

    /// The address of the lane's first value in row `y`, which is in memory.
    #[inline(always)]
    pub(crate) fn at(&self, y: i32) -> u64 {
        self.start.wrapping_add(mul_wide(y, self.source.pass.src.row as i32) as u64)
    }

    /// Starts to load the lane's part of any row, and its share of the values beside the row.
    ///
    /// # Safety
    /// The pass describes allocated memory.
    #[inline(always)]
    pub(crate) unsafe fn start(&self, y: i32) -> Started<W> {
        let row = self.source.row(y);
        let at = row.at(0).wrapping_add(Self::offset(self.x));
        let mut started =
            Started { words: [0; W], beside: [self.outside; TURNS], is_outside: !row.is_inside() };
        // SAFETY: as the caller promised; the row is there.
        unsafe {
            if self.is_inside {
                started.words = self.load_inside(at);
            } else {
                let mut w = 0;
                while w < W {
                    let offset = Self::IN_WORD * (w as i32 - Self::BESIDE as i32);
                    if self.is_word(self.x + offset) {
                        started.words[w] =
                            load_words::<1>(at.wrapping_add(Self::offset(offset)))[0];
                    }
                    w += 1;
                }
            }
            let mut turn = 0;
            while turn * 32 < Self::FETCHED {
                if !self.strip_is_inside && self.found[turn] >= 0 {
                    let at = at.wrapping_add(Self::offset(self.found[turn] - self.x));
                    started.beside[turn] = if T == U8 { load_u8(at) } else { load_u16(at) };
                }
                turn += 1;
            }
        }
        started
    }

    /// The lane's words of a row whose loads were started.
    ///
    /// # Safety
    /// All lanes of the warp call together; the block has [`flat_bytes`] of shared memory.
    #[inline(always)]
    pub(crate) unsafe fn finish(&self, started: &Started<W>) -> [u32; W] {
        let mut words = started.words;
        if !self.strip_is_inside {
            let shared = Shared::dynamic();
            // Waits until all lanes have read the previous values.
            warp_barrier();
            let mut turn = 0;
            while turn * 32 < Self::FETCHED {
                let number = 32 * turn as i32 + thread_x();
                if number < Self::FETCHED as i32 {
                    // SAFETY: the place belongs to this lane.
                    unsafe {
                        if T == U8 {
                            shared.store_u8(number, started.beside[turn]);
                        } else {
                            shared.store_u16(2 * number, started.beside[turn]);
                        }
                    }
                }
                turn += 1;
            }
            warp_barrier();
            let beside = Self::IN_WORD * Self::BESIDE as i32;
            let mut w = 0;
            while w < W {
                let first = self.x + Self::IN_WORD * (w as i32 - Self::BESIDE as i32);
                let number =
                    if first < 0 { first + beside } else { first - self.last_word() + beside };
                // No result needs words further right.
                if !self.is_word(first) && number < Self::FETCHED as i32 {
                    // SAFETY: the word is one of those beside the row.
                    words[w] = unsafe { shared.load_word(number / Self::IN_WORD) };
                }
                w += 1;
            }
        }
        let mut w = 0;
        while w < W {
            words[w] = if started.is_outside { self.outside } else { words[w] };
            w += 1;
        }
        words
    }

    /// Whether the word whose first value has this number lies in the row.
    #[inline(always)]
    fn is_word(&self, first: i32) -> bool {
        first >= 0 && first + Self::IN_WORD <= self.width
    }

    /// Loads the words around the lane's first value, whose address is `at`.
    ///
    /// # Safety
    /// All of them lie in the image.
    #[inline(always)]
    pub(crate) unsafe fn load_inside(&self, at: u64) -> [u32; W] {
        let mut words = [0; W];
        let mut w = 0;
        while w < W {
            let at = at.wrapping_add((4 * w) as u64).wrapping_sub(4 * Self::BESIDE as u64);
            // The lane's values begin at a multiple of 8 or 16 bytes, so `from` is `w - BESIDE`
            // modulo 4.
            let from = w + 3 * Self::BESIDE;
            // Words of a vector of four, or of two, that precede this one; and whether that vector
            // lies in the window.
            let (of_four, of_two) = (from % 4, from % 2);
            let fours = Self::OWN == 4 && w >= of_four && w - of_four + 4 <= W;
            let twos = w >= of_two && w - of_two + 2 <= W;
            // SAFETY: as the caller promised.
            unsafe {
                if fours && of_four == 0 {
                    let four = load_words::<4>(at);
                    words[w] = four[0];
                    words[w + 1] = four[1];
                    words[w + 2] = four[2];
                    words[w + 3] = four[3];
                } else if !fours && twos && of_two == 0 {
                    let two = load_words::<2>(at);
                    words[w] = two[0];
                    words[w + 1] = two[1];
                } else if !fours && !twos {
                    words[w] = load_words::<1>(at)[0];
                }
            }
            w += 1;
        }
        words
    }
}

/// The results of one lane: type R, from values of type T.
pub(crate) struct Results<'a, const T: u32, const R: u32, const V: usize, const C: usize> {
    pass: &'a Pass,
    /// The number of the lane's first value in a row.
    x: i32,
    /// Number of filtered channels: all, or all but the last of four, which is copied.
    filtered: i32,
    /// The address of value `x` in row 0.
    at: u64,
    /// Whether all of the lane's values lie in the region.
    is_inside: bool,
    /// The bias of sums that become bytes, in the same scale; otherwise 0.
    bias: f32,
}

impl<'a, const T: u32, const R: u32, const V: usize, const C: usize> Results<'a, T, R, V, C> {
    /// Bytes of a result.
    const BYTES: i64 = bytes(R) as i64;
    /// Results of a word.
    const IN_WORD: usize = in_word(R);
    /// Words of results.
    const WORDS: usize = V / Self::IN_WORD;
    /// The factor of sums.
    const SCALE: f32 = sum_scale(T);

    /// The results of the lane whose first value is number `x`.
    #[inline(always)]
    pub(crate) fn new(pass: &'a Pass, x: i32, filtered: i32) -> Self {
        let start = pass.dst.origin(block_z() * C as i32, &pass.channels);
        let (first, end) = (pass.region.x0 * C as i32, pass.region.x1 * C as i32);
        Self {
            pass,
            x,
            filtered,
            at: start.wrapping_add((Self::BYTES * x as i64) as u64),
            is_inside: x >= first && x + V as i32 <= end,
            bias: if R == U8 { bias(pass.uncertain.near) } else { 0.0 },
        }
    }

    /// The start value of sums.
    #[inline(always)]
    pub(crate) fn bias(&self) -> f32 {
        self.bias
    }

    /// Bytes from one row to the next.
    #[inline(always)]
    pub(crate) fn row(&self) -> i64 {
        self.pass.dst.row
    }

    /// Whether all values of the warp lie in the region.
    #[inline(always)]
    pub(crate) fn has_strip(&self) -> bool {
        let first = self.x - V as i32 * thread_x();
        first >= self.pass.region.x0 * C as i32
            && first + 32 * V as i32 <= self.pass.region.x1 * C as i32
    }

    /// The address of the lane's first value in row `y`.
    #[inline(always)]
    pub(crate) fn at(&self, y: i32) -> u64 {
        self.at.wrapping_add(mul_wide(y, self.pass.dst.row as i32) as u64)
    }

    /// Stores the lane's scaled sums of row `y`, which include the bias, from address `at` on. For
    /// integers, rounds them (ties to even) and saturates them; for bytes, notes the uncertain
    /// ones. Rounds them to f16, or stores f32. `inside` says that all values of the warp lie in
    /// the region.
    ///
    /// # Safety
    /// The row lies in the region, and its values are in memory.
    #[inline(always)]
    pub(crate) unsafe fn write(&self, inside: bool, y: i32, at: u64, sums: &[f32; V]) {
        if R == F32 {
            // SAFETY: as the caller promised.
            unsafe { self.write_floats(inside, at, sums) };
            return;
        }
        let (mut words, mut uncertain) = ([0; V], 0);
        let mut w = 0;
        while w < Self::WORDS {
            let i = w * Self::IN_WORD;
            let whole = |i: usize| {
                fma(sums[i], Self::SCALE, SHIFT).to_bits().wrapping_sub(SHIFT.to_bits()) as i32
            };
            words[w] = match R {
                U8 => {
                    let [(high, bytes), (low, _)] = Self::rounded_twice(sums, i, self.bias);
                    // Halves are compared, not bytes, because then `low` would be saturated in
                    // every row.
                    uncertain |= (high[0] ^ low[0]) | (high[1] ^ low[1]);
                    bytes
                }
                U16 => pack_halves(whole(i + 1), whole(i)),
                _ => f32_to_halves(sums[i + 1] * Self::SCALE, sums[i] * Self::SCALE),
            };
            w += 1;
        }
        // SAFETY: the values inside the region belong to the lane.
        unsafe {
            if C == 4 && self.filtered < 4 {
                self.keep_last(y, &mut words);
            }
            if inside || self.is_inside {
                if Self::WORDS == 4 {
                    store_words(at, [words[0], words[1 % V], words[2 % V], words[3 % V]]);
                } else {
                    store_words(at, [words[0], words[1 % V]]);
                }
            } else {
                self.write_at_edge(at, &words);
            }
            // Without a bias, no result is uncertain.
            if uncertain != 0 {
                self.note_all(y, sums);
            }
        }
    }

    /// Sums `i` to `i + 3`, rounded with the bias added, and rounded with the bias subtracted.
    #[inline(always)]
    fn rounded_twice(sums: &[f32; V], i: usize, bias: f32) -> [([u32; 2], u32); 2] {
        let four = [sums[i], sums[(i + 1) % V], sums[(i + 2) % V], sums[(i + 3) % V]];
        [rounded(four), rounded(four.map(|sum| sum - 2.0 * bias))]
    }

    /// Stores the sums as f32.
    ///
    /// # Safety
    /// As for [`Results::write`].
    #[inline(always)]
    unsafe fn write_floats(&self, inside: bool, at: u64, sums: &[f32; V]) {
        let (first, end) = (self.pass.region.x0 * C as i32, self.pass.region.x1 * C as i32);
        let bits = |i: usize| (sums[i] * Self::SCALE).to_bits();
        let mut i = 0;
        while i < V {
            let at = at.wrapping_add(4 * i as u64);
            // SAFETY: the values inside the region belong to the lane.
            unsafe {
                if inside || self.is_inside {
                    store_words(at, [bits(i), bits(i + 1), bits(i + 2), bits(i + 3)]);
                } else {
                    let mut n = 0;
                    while n < 4 {
                        let x = self.x + (i + n) as i32;
                        if x >= first && x < end {
                            store_words(at.wrapping_add(4 * n as u64), [bits(i + n)]);
                        }
                        n += 1;
                    }
                }
            }
            i += 4;
        }
    }

    /// Copies the source's last channel of row `y` into the words; four values are a pixel.
    ///
    /// # Safety
    /// The row lies in the image; results are of the source's type.
    #[inline(always)]
    unsafe fn keep_last(&self, y: i32, words: &mut [u32; V]) {
        let row = Source::of_channel(&self.pass.src, self.pass, block_z() * C as i32).row_inside(y);
        let from = row.at(0).wrapping_add((Self::BYTES * self.x as i64) as u64);
        // The last word of each pixel.
        let pixel = 4 / Self::IN_WORD;
        let mut w = pixel - 1;
        while w < Self::WORDS {
            if self.x + 4 * ((w / pixel) as i32) < 4 * self.pass.width {
                // SAFETY: the pixel lies in the image.
                let last = unsafe { load_words::<1>(from.wrapping_add(4 * w as u64))[0] };
                words[w] = match R {
                    U8 => permute::<0x7210>(words[w], last),
                    _ => permute::<0x7610>(words[w], last),
                };
            }
            w += pixel;
        }
    }

    /// Stores the lane's results that lie in the region, from this address on.
    ///
    /// # Safety
    /// As for [`Results::write`].
    #[inline(always)]
    unsafe fn write_at_edge(&self, at: u64, words: &[u32; V]) {
        let (first, end) = (self.pass.region.x0 * C as i32, self.pass.region.x1 * C as i32);
        let in_word = Self::IN_WORD as i32;
        let mut i = opaque(0);
        while i < V as i32 {
            let mut word = words[0];
            let mut w = 1;
            while w < Self::WORDS {
                word = if i >= in_word * w as i32 { words[w] } else { word };
                w += 1;
            }
            if self.x + i >= first && self.x + i < end {
                // SAFETY: the value lies in the region.
                unsafe {
                    if R == U8 {
                        store_u8(at.wrapping_add(i as u64), word >> (8 * (i & 3)));
                    } else {
                        store_u16(at.wrapping_add(2 * i as u64), word >> (16 * (i & 1)));
                    }
                }
            }
            i += 1;
        }
    }

    /// Adds the lane's uncertain results of row `y` to the pass's list.
    ///
    /// # Safety
    /// The pass has a list.
    #[inline(always)]
    unsafe fn note_all(&self, y: i32, sums: &[f32; V]) {
        // Rounded anew, so that certain rows need not keep it in registers.
        let bias = f32::from_bits(opaque(self.bias.to_bits() as i32) as u32);
        let mut apart = [0; V];
        let mut w = 0;
        while w < Self::WORDS {
            let [(_, high), (_, low)] = Self::rounded_twice(sums, 4 * w, bias);
            apart[w] = high ^ low;
            w += 1;
        }
        let mut w = opaque(0);
        while w < Self::WORDS as i32 {
            // Registers cannot be indexed at run time, so select by comparisons.
            let mut bytes = apart[0];
            let mut n = 1;
            while n < Self::WORDS {
                bytes = if w == n as i32 { apart[n] } else { bytes };
                n += 1;
            }
            while bytes != 0 {
                let byte = bytes.trailing_zeros() as i32 / 8;
                bytes &= !(0xff << (8 * byte));
                let x = self.x + 4 * w + byte;
                let pixel = (x as u32 / C as u32) as i32;
                let channel = x - C as i32 * pixel;
                let (x0, x1) = (self.pass.region.x0, self.pass.region.x1);
                if pixel >= x0 && pixel < x1 && channel < self.filtered {
                    // The list does not count channels that are not filtered.
                    // SAFETY: as the caller promised.
                    unsafe { note(self.pass, pixel, y, block_z() * self.filtered + channel) };
                }
            }
            w += 1;
        }
    }
}

/// Whether these kernels can represent the border's value: an integer of the source's type, or a
/// number that f16 holds.
pub fn takes_outside(source: u32, border: u32, outside: f32) -> bool {
    if border != CONSTANT {
        return true;
    }
    match source {
        U8 => (0.0..=255.0).contains(&outside) && outside as u32 as f32 == outside,
        U16 => (0.0..=65535.0).contains(&outside) && outside as u32 as f32 == outside,
        // At most 11 significant bits, and normal in f16.
        _ => {
            let normal = f32::from_bits((127 - 14) << 23)..=65504.0;
            outside == 0.0 || outside.to_bits() & 0x1fff == 0 && normal.contains(&outside.abs())
        }
    }
}
