//! Rows of interleaved pixels, stored as 8 or 16 bits a value: their way into planes of f32 in shared memory, and back.
//!
//! A block has a strip of the image and a warp for each channel. It takes [`ROUND`] rows at a time. A thread loads four
//! neighbouring pixels with all their channels, as they are stored; while they arrive, the block computes on the rows before.
//! Then they are converted and parted: each channel's four values go to its plane by one store. Each warp computes on its channel's
//! plane alone, so it has no part in interleaving. Its results go back into shared memory, as they will be stored, each at its place
//! in the row, and then from there to the destination, whole words by neighbouring threads. A single channel goes straight to the
//! destination.
//!
//! Everything is there twice: rows are placed in one half while slower warps read the other. So a round has one barrier.
//!
//! Columns beyond the image are loaded one by one, through the border rule, and ahead like all others. What lies outside under
//! a constant border is put in when values are placed: it need not be a number that a pixel can hold.
//!
//! Pixels that do not lie side by side, or rows that begin anywhere, are loaded value by value; a destination of that kind is
//! written so.
//!
//! Limits: 1 to 4 channels. A row of the plane is that of a ring (`ring.rs`): the strip's 32 * PX pixels and its aprons.

use crate::abi::Pass;
use crate::border;
use crate::device::*;
use crate::pixel::{
    self, F16, F32, U8, U16, in_doubt, load_value, note, of_byte, of_half, store_bits, to_bits, to_bytes,
};
use crate::tile::ring::{MAX_SHARE, ring_apron, ring_row};
use crate::tile::view::{Source, Target, finished};

/// Rows that a block takes at a time.
pub const ROUND: i32 = 2;

/// The most channels of a pixel.
pub const MAX_CHANNELS: u32 = 4;

/// Floats of the planes in a block's shared memory, for K tap columns and `px` pixels of a lane.
const fn planes_floats(k: i32, px: i32, channels: i32) -> i32 {
    2 * ROUND * channels * ring_row(k, px)
}

/// Bytes of a row of a strip, as results are stored.
const fn results_bytes(px: i32, channels: i32, value: i32) -> i32 {
    32 * px * channels * value
}

/// Bytes of shared memory of a block whose results have `value` bytes each.
pub const fn parted_bytes(k: i32, px: i32, channels: i32, value: i32) -> u32 {
    let results = if channels == 1 { 0 } else { 2 * ROUND * results_bytes(px, channels, value) };
    (4 * planes_floats(k, px, channels) + results) as u32
}

/// What a thread has loaded for a round, as it is stored.
pub(crate) type Raw = [u32; 8];

/// The rows of one strip, on their way in: values of BYTES bytes, K tap columns.
pub(crate) struct Rows<'a, const BYTES: usize, const K: usize, const PX: usize> {
    /// That of the first channel.
    source: Source<'a>,
    shared: Shared,
    channels: i32,
    /// The image column of a row's first float.
    left: i32,
    /// Whether four neighbouring pixels can be loaded by vectors.
    vectors: bool,
}

impl<'a, const BYTES: usize, const K: usize, const PX: usize> Rows<'a, BYTES, K, PX> {
    const ROW: i32 = ring_row(K as i32, PX as i32);
    /// Groups of four pixels in a row, and in a round.
    const FOURS: i32 = Self::ROW / 4;
    const ALL: i32 = ROUND * Self::FOURS;

    /// The rows of the strip that begins at column `x`.
    #[inline(always)]
    pub(crate) fn new(pass: &'a Pass, x: i32) -> Self {
        let channels = block_height();
        let source = Source::of_channel(&pass.src, pass, block_z() * channels);
        let plane = &pass.src;
        let pixel = channels * BYTES as i32;
        // Three channels are loaded as three vectors of one channel's size.
        let vector = if channels == 3 { 4 * BYTES as u64 } else { 4 * pixel as u64 };
        let vector = if vector > 16 { 16 } else { vector };
        let aligned = (source.origin() | plane.row as u64) & (vector - 1) == 0;
        let side_by_side = plane.pixel == pixel && (channels == 1 || plane.channel == BYTES as i64);
        Self {
            source,
            shared: Shared::dynamic(),
            channels,
            left: x - ring_apron(K as i32),
            vectors: aligned && side_by_side,
        }
    }

    /// Waits for all warps of the block.
    ///
    /// # Safety
    /// All threads of the block call together.
    #[inline(always)]
    pub(crate) unsafe fn meet(&self) {
        if self.channels == 1 {
            warp_barrier();
        } else {
            // SAFETY: as the caller promised.
            unsafe { barrier() };
        }
    }

    /// Loads this thread's share of rows `y` to `y + ROUND - 1`.
    ///
    /// # Safety
    /// The pass describes allocated memory.
    #[inline(always)]
    pub(crate) unsafe fn load(&self, y: i32) -> Raw {
        // SAFETY: as the caller promised.
        unsafe {
            match self.channels {
                1 => self.load_of::<1>(y),
                2 => self.load_of::<2>(y),
                3 => self.load_of::<3>(y),
                _ => self.load_of::<4>(y),
            }
        }
    }

    /// The row of the round, and the column, of group `number` of four pixels.
    #[inline(always)]
    fn four(&self, number: i32) -> (i32, i32) {
        let row = if number >= Self::FOURS { 1 } else { 0 };
        (row, self.left + 4 * (number - row * Self::FOURS))
    }

    #[inline(always)]
    unsafe fn load_of<const C: usize>(&self, y: i32) -> Raw {
        let mut raw = [0; 8];
        let words = C * BYTES;
        let pass = self.source.pass;
        let inside = self.source.has_rows(y, y + ROUND);
        let mut number = 32 * thread_y() + thread_x();
        let mut turn = 0;
        while turn * 32 * C < Self::ALL as usize {
            if number < Self::ALL {
                let (row, x) = self.four(number);
                let row =
                    if inside { self.source.row_inside(y + row) } else { self.source.row(opaque(y + row)) }.start();
                // SAFETY: the row is there; four pixels from `x` on are, or each goes through the border rule.
                unsafe {
                    if self.vectors && x >= 0 && x + 4 <= pass.width {
                        let at = row.wrapping_add((x as i64 * words as i64) as u64);
                        let mut w = 0;
                        while w < words {
                            let vector = match words {
                                1 | 3 => 1,
                                2 | 6 => 2,
                                _ => 4,
                            };
                            let to = turn * words + w;
                            if vector == 1 {
                                raw[to] = load_words::<1>(at + 4 * w as u64)[0];
                            } else if vector == 2 {
                                let two = load_words::<2>(at + 4 * w as u64);
                                raw[to] = two[0];
                                raw[to + 1] = two[1];
                            } else {
                                let four = load_words::<4>(at + 4 * w as u64);
                                raw[to] = four[0];
                                raw[to + 1] = four[1];
                                raw[to + 2] = four[2];
                                raw[to + 3] = four[3];
                            }
                            w += vector;
                        }
                    } else {
                        let mut column = opaque(x);
                        while column < x + 4 {
                            let found = border::resolve(pass.border, column, pass.width);
                            let at = row.wrapping_add((found as i64 * pass.src.pixel as i64) as u64);
                            let mut c = 0;
                            while c < C {
                                let at = at.wrapping_add((c as i64 * pass.src.channel) as u64);
                                let value = match BYTES {
                                    _ if found < 0 => 0,
                                    1 => load_u8(at),
                                    _ => load_u16(at),
                                };
                                push::<BYTES>(&mut raw, turn * words, words, value);
                                c += 1;
                            }
                            column += 1;
                        }
                    }
                }
            }
            number += 32 * C as i32;
            turn += 1;
        }
        raw
    }

    /// Converts what [`Rows::load`] loaded from row `y` on, and places it in the planes of half `half`.
    ///
    /// # Safety
    /// No warp still reads that half.
    #[inline(always)]
    pub(crate) unsafe fn place(&self, raw: &Raw, y: i32, half: i32) {
        let f16 = BYTES == 2 && self.source.pass.src.scalar == F16;
        // SAFETY: as the caller promised.
        unsafe {
            match (self.channels, f16) {
                (1, false) => self.place_of::<1, false>(raw, y, half),
                (2, false) => self.place_of::<2, false>(raw, y, half),
                (3, false) => self.place_of::<3, false>(raw, y, half),
                (_, false) => self.place_of::<4, false>(raw, y, half),
                (1, true) => self.place_of::<1, true>(raw, y, half),
                (2, true) => self.place_of::<2, true>(raw, y, half),
                (3, true) => self.place_of::<3, true>(raw, y, half),
                (_, true) => self.place_of::<4, true>(raw, y, half),
            }
        }
    }

    #[inline(always)]
    unsafe fn place_of<const C: usize, const IS_F16: bool>(&self, raw: &Raw, y: i32, half: i32) {
        let pass = self.source.pass;
        let scalar = if IS_F16 { F16 } else { U16 };
        let mut number = 32 * thread_y() + thread_x();
        let mut turn = 0;
        while turn * 32 * C < Self::ALL as usize {
            if number < Self::ALL {
                let (row, x) = self.four(number);
                let above = y + row < 0 || y + row >= pass.height;
                let patched = pass.border == border::CONSTANT && (above || x < 0 || x + 4 > pass.width);
                let to = self.plane::<C>(half, row) + (x - self.left);
                let mut c = 0;
                while c < C {
                    let mut four = [0.0; 4];
                    let mut i = 0;
                    while i < 4 {
                        let value = i * C + c;
                        four[i] = if BYTES == 1 {
                            of_byte(raw[turn * C + value / 4], value % 4)
                        } else {
                            of_half(scalar, raw[turn * 2 * C + value / 2], value % 2)
                        };
                        i += 1;
                    }
                    if patched {
                        let mut i = 0;
                        while i < 4 {
                            let column = x + i as i32;
                            if above || column < 0 || column >= pass.width {
                                four[i] = pass.outside;
                            }
                            i += 1;
                        }
                    }
                    // SAFETY: the plane has this place, which is this thread's.
                    unsafe { self.shared.store4(to + c as i32 * Self::ROW, four) };
                    c += 1;
                }
            }
            number += 32 * C as i32;
            turn += 1;
        }
    }

    /// The first float of the first channel's plane, in row `row` of a round.
    #[inline(always)]
    fn plane<const C: usize>(&self, half: i32, row: i32) -> i32 {
        (half * ROUND + row) * C as i32 * Self::ROW
    }

    /// The first `count` floats, a multiple of PX, of the warp's channel in row `row` of a round, from where the lane's share
    /// begins: float `ring_apron(K) - K / 2` of them is the leftmost that its first pixel needs.
    ///
    /// # Safety
    /// The row has been placed; `count` is at most `PX + 2 * ring_apron(K)`.
    #[inline(always)]
    pub(crate) unsafe fn read(&self, half: i32, row: i32, count: usize) -> [f32; MAX_SHARE] {
        let plane = ((half * ROUND + row) * self.channels + thread_y()) * Self::ROW;
        // SAFETY: the last lane's share ends with the row.
        unsafe { crate::tile::ring::read_share::<PX>(self.shared, plane + PX as i32 * thread_x(), count) }
    }
}

/// Appends a value of BYTES bytes to the words from `first` on: in the end the first value is in the lowest bits.
#[inline(always)]
fn push<const BYTES: usize>(raw: &mut Raw, first: usize, words: usize, value: u32) {
    let bits = 8 * BYTES as u32;
    let mut w = 0;
    while w < words {
        let next = if w + 1 < words { raw[first + w + 1] } else { value };
        raw[first + w] = raw[first + w] >> bits | next << (32 - bits);
        w += 1;
    }
}

/// How a strip's results get to the destination.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// A lane's pixels at once.
    Vector,
    /// Through shared memory, as words.
    Words,
    /// One by one.
    Singles,
}

/// The results of one strip, on their way out.
pub(crate) struct Results<'a, const PX: usize> {
    pass: &'a Pass,
    shared: Shared,
    /// The first byte of the results in shared memory.
    base: i32,
    /// The strip's first column, and the lane's.
    left: i32,
    x: i32,
    /// How many channels are filtered: the first ones.
    filtered: i32,
    way: Way,
}

impl<'a, const PX: usize> Results<'a, PX> {
    /// The results of the strip that begins at column `left`, with K tap columns.
    #[inline(always)]
    pub(crate) fn new<const K: usize>(pass: &'a Pass, left: i32, filtered: i32) -> Self {
        let (plane, channels, value) = (&pass.dst, block_height(), pixel::bytes(pass.dst.scalar));
        let side_by_side = plane.pixel == channels * value && (channels == 1 || plane.channel == value as i64);
        let unit = if channels == 1 { PX as i32 * value } else { 4 };
        let start = plane.origin(block_z() * channels, &pass.channels);
        let aligned = (start | plane.row as u64) & (unit as u64 - 1) == 0;
        Self {
            pass,
            shared: Shared::dynamic(),
            base: 4 * planes_floats(K as i32, PX as i32, channels),
            left,
            x: left + PX as i32 * thread_x(),
            filtered,
            way: match channels {
                _ if !(side_by_side && aligned) => Way::Singles,
                1 => Way::Vector,
                _ => Way::Words,
            },
        }
    }

    /// Bytes of a row of results.
    #[inline(always)]
    fn row_bytes(&self) -> i32 {
        results_bytes(PX as i32, block_height(), pixel::bytes(self.pass.dst.scalar))
    }

    /// Takes the lane's sums of row `y`, row `row` of a round, in half `half`.
    ///
    /// # Safety
    /// The row lies in the region; no warp still reads that half.
    #[inline(always)]
    pub(crate) unsafe fn take(&self, half: i32, row: i32, y: i32, sums: [f32; PX]) {
        let values = finished(self.pass, sums);
        let (scalar, doubts) = (self.pass.dst.scalar, &self.pass.doubts);
        if scalar == U8 && doubts.list != 0 {
            let mut any = false;
            let mut i = 0;
            while i < PX {
                any |= in_doubt(doubts, values[i]);
                i += 1;
            }
            if any {
                let mut i = 0;
                while i < PX {
                    if self.has(i) && in_doubt(doubts, values[i]) {
                        // Channels that are not filtered are not counted in the list.
                        // SAFETY: the pass has a list.
                        unsafe { note(self.pass, self.x + i as i32, y, block_z() * self.filtered + thread_y()) };
                    }
                    i += 1;
                }
            }
        }
        // SAFETY: as the caller promised.
        unsafe { self.put(half, row, y, values) };
    }

    /// Takes the lane's pixels of row `y` as they are in the source.
    ///
    /// # Safety
    /// As for [`Results::take`].
    #[inline(always)]
    pub(crate) unsafe fn copy(&self, half: i32, row: i32, y: i32) {
        let pass = self.pass;
        let from = Source::of_channel(&pass.src, pass, block_z() * block_height() + thread_y()).row_inside(y);
        let mut values = [0.0; PX];
        let mut i = 0;
        while i < PX {
            if self.x + (i as i32) < pass.width {
                // SAFETY: the pixel lies in the image.
                values[i] = unsafe { load_value(pass.src.scalar, from.at(self.x + i as i32)) };
            }
            i += 1;
        }
        // SAFETY: as the caller promised.
        unsafe { self.put(half, row, y, values) };
    }

    /// Whether the lane's pixel `i` lies in the region.
    #[inline(always)]
    fn has(&self, i: usize) -> bool {
        let x = self.x + i as i32;
        x >= self.pass.region.x0 && x < self.pass.region.x1
    }

    #[inline(always)]
    unsafe fn put(&self, half: i32, row: i32, y: i32, values: [f32; PX]) {
        let scalar = self.pass.dst.scalar;
        let channels = block_height();
        // SAFETY: as the caller of `take` promised; each pixel is stored only if it lies in the region.
        unsafe {
            if self.way == Way::Words {
                let first = self.base + (half * ROUND + row) * self.row_bytes();
                let at = |i: usize| (PX as i32 * thread_x() + i as i32) * channels + thread_y();
                let mut i = 0;
                while i < PX {
                    let bits = to_bits(scalar, values[i]);
                    match scalar {
                        U8 => self.shared.store_u8(first + at(i), bits),
                        F32 => self.shared.store(first / 4 + at(i), values[i]),
                        _ => self.shared.store_u16(first + 2 * at(i), bits),
                    }
                    i += 1;
                }
                return;
            }
            let target = Target::of_channel(self.pass, block_z() * channels + thread_y());
            if self.way == Way::Vector && self.has(0) && self.has(PX - 1) {
                store_vector(scalar, target.at(self.x, y), values);
                return;
            }
            let mut i = 0;
            while i < PX {
                if self.has(i) {
                    store_bits(scalar, target.at(self.x + i as i32, y), to_bits(scalar, values[i]));
                }
                i += 1;
            }
        }
    }

    /// Writes the rows of a round that lie in `top..bottom` to the destination; row `y` is the round's first.
    ///
    /// # Safety
    /// All warps have taken their results of that half. All threads call together.
    #[inline(always)]
    pub(crate) unsafe fn flush(&self, half: i32, y: i32, (top, bottom): (i32, i32)) {
        if self.way != Way::Words {
            return;
        }
        let (pass, row_bytes) = (self.pass, self.row_bytes());
        let pixel = pass.dst.pixel;
        // The bytes of a row that lie in the region.
        let first = if pass.region.x0 > self.left { (pass.region.x0 - self.left) * pixel } else { 0 };
        let inside = (pass.region.x1 - self.left) * pixel;
        let end = if inside < row_bytes { inside } else { row_bytes };
        let target = Target::of_channel(pass, block_z() * block_height());
        let from = self.base / 4 + half * ROUND * (row_bytes / 4);
        let mut word = 32 * thread_y() + thread_x();
        while word < ROUND * (row_bytes / 4) {
            let row = if word >= row_bytes / 4 { 1 } else { 0 };
            let byte = 4 * word - row * row_bytes;
            if y + row >= top && y + row < bottom && byte + 4 > first && byte < end {
                // SAFETY: words lie in the results, bytes in the region.
                unsafe {
                    let value = self.shared.load_word(from + word);
                    let at = target.at(self.left, y + row).wrapping_add(byte as u64);
                    if byte >= first && byte + 4 <= end {
                        store_words(at, [value]);
                    } else {
                        let mut i = opaque(0);
                        while i < 4 {
                            if byte + i >= first && byte + i < end {
                                store_u8(at.wrapping_add(i as u64), value >> (8 * i));
                            }
                            i += 1;
                        }
                    }
                }
            }
            word += 32 * block_height();
        }
    }
}

/// Stores a lane's pixels side by side in one access.
///
/// # Safety
/// There is room for them, aligned to their size together.
#[inline(always)]
unsafe fn store_vector<const PX: usize>(scalar: u32, at: u64, values: [f32; PX]) {
    const { assert!(PX == 2 || PX == 4) }
    let bits = |i: usize| to_bits(scalar, values[i]);
    // SAFETY: as the caller promised.
    unsafe {
        match (scalar, PX) {
            (U8, 4) => store_words(at, [to_bytes([values[0], values[1], values[2 % PX], values[3 % PX]])]),
            (U8, _) => store_u16(at, bits(0) | bits(1) << 8),
            (F32, 4) => store_words(at, [bits(0), bits(1), bits(2 % PX), bits(3 % PX)]),
            (F32, _) => store_words(at, [bits(0), bits(1)]),
            (_, 4) => store_words(at, [bits(0) | bits(1) << 16, bits(2 % PX) | bits(3 % PX) << 16]),
            _ => store_words(at, [bits(0) | bits(1) << 16]),
        }
    }
}
