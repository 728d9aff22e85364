//! Moves rows of interleaved pixels, with 8 or 16 bits a value, to f32 planes in shared memory, and
//! moves results back.
//!
//! A block has a strip of the image and a warp for each channel. It takes [`ROUND`] rows at a time.
//! A thread loads four neighbouring pixels, as stored, while the block computes the previous rows.
//! One store puts each channel's four values into its plane, and each warp computes on its plane
//! alone. Results are interleaved in shared memory, then copied to the destination by whole words.
//! A single channel goes straight to the destination. All buffers are double, because slower warps
//! still read one half; so a round has one barrier.
//!
//! Where vector loads cannot be used, the border rule patches single values after a round is
//! placed: columns and rows beyond the image, unaligned rows, and pixels that are not side by side.
//! Results are written one by one in strips that the region cuts, with an epilogue, or into such a
//! destination. That code is short and apart: the loop needs the registers and the instruction
//! cache.
//!
//! Limits: 1 to 4 channels. A row of a plane is a row of a ring (`ring.rs`): the strip's 32 * PX
//! pixels and its aprons.

use crate::abi::Pass;
use crate::device::*;
use crate::pixel::{
    self, F16, F32, U8, U16, is_uncertain, load_value, note, of_byte, of_half, to_bits, to_bytes,
};
use crate::tile::ring::{MAX_SHARE, ring_apron, ring_row};
use crate::tile::view::{Source, Target, finished};

/// Rows that a block takes at a time.
pub const ROUND: i32 = 2;

/// The most channels of a pixel.
pub const MAX_CHANNELS: u32 = 4;

/// Floats of the planes in a block's shared memory, for K tap columns and `px` pixels a lane.
const fn planes_floats(k: i32, px: i32, channels: i32) -> i32 {
    2 * ROUND * channels * ring_row(k, px)
}

/// Bytes of a strip's row of stored results.
const fn results_bytes(px: i32, channels: i32, value: i32) -> i32 {
    32 * px * channels * value
}

/// Bytes of shared memory of a block whose results have `value` bytes each.
pub const fn planar_bytes(k: i32, px: i32, channels: i32, value: i32) -> u32 {
    let results = if channels == 1 { 0 } else { 2 * ROUND * results_bytes(px, channels, value) };
    (4 * planes_floats(k, px, channels) + results) as u32
}

/// The data that a thread loads for a round, as stored.
pub(crate) type Raw = [u32; 8];

/// The most groups of four pixels that a thread loads for a round.
const TURNS: usize = 5;

/// The input rows of one strip: values of BYTES bytes, K tap columns.
pub(crate) struct Rows<'a, const BYTES: usize, const K: usize, const PX: usize> {
    /// The first channel of the source.
    source: Source<'a>,
    shared: Shared,
    channels: i32,
    /// The image column of a row's first float.
    left: i32,
    /// Floats `lo` to before `hi` of a row are loaded by vectors. Floats from `end` on affect no
    /// stored result.
    lo: i32,
    hi: i32,
    end: i32,
    /// The address of column `left` in row 0; and whether rows are less than 2 GiB apart. Then a
    /// product of two 32-bit numbers gives the offset of any row.
    start: u64,
    short_rows: bool,
    /// For each of the thread's groups of four pixels: its first float in a row.
    at: [i32; TURNS],
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
        let left = x - ring_apron(K as i32);
        let inside = pass.width - left;
        let mut rows = Self {
            source,
            shared: Shared::dynamic(),
            channels,
            left,
            lo: if left < 0 { -left } else { 0 },
            hi: match inside {
                _ if !(aligned && side_by_side) => 0,
                _ if inside < Self::ROW => inside & !3,
                _ => Self::ROW,
            },
            end: if inside + ring_apron(K as i32) < Self::ROW {
                inside + ring_apron(K as i32)
            } else {
                Self::ROW
            },
            start: source.origin().wrapping_add((left as i64 * plane.pixel as i64) as u64),
            short_rows: plane.row == plane.row as i32 as i64,
            at: [0; TURNS],
        };
        let mut turn = 0;
        while turn < TURNS {
            let number = rows.number(turn);
            rows.at[turn] = 4 * if number >= Self::FOURS { number - Self::FOURS } else { number };
            turn += 1;
        }
        rows
    }

    /// The number of the thread's group in iteration `turn`.
    #[inline(always)]
    fn number(&self, turn: usize) -> i32 {
        32 * (turn as i32 * self.channels + thread_y()) + thread_x()
    }

    #[inline(always)]
    fn row_of<const C: usize>(&self, turn: usize) -> i32 {
        if (turn + 1) * 32 * C <= Self::FOURS as usize {
            0
        } else if turn * 32 * C >= Self::FOURS as usize || self.number(turn) >= Self::FOURS {
            1
        } else {
            0
        }
    }

    /// Whether the thread has a group in iteration `turn`.
    #[inline(always)]
    fn has<const C: usize>(&self, turn: usize) -> bool {
        (turn + 1) * 32 * C <= Self::ALL as usize || self.number(turn) < Self::ALL
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

    /// Loads this thread's share of rows `y` to `y + ROUND - 1`, where vector loads can be used.
    ///
    /// # Safety
    /// The pass describes allocated memory.
    #[inline(always)]
    pub(crate) unsafe fn load(&self, y: i32) -> Raw {
        let starts = if self.short_rows && self.source.has_rows(y, y + ROUND) {
            let row = self.source.pass.src.row as i32;
            let first = self.start.wrapping_add(mul_wide(y, row) as u64);
            [first, first.wrapping_add(row as i64 as u64)]
        } else {
            let (first, second) = (self.source.row(opaque(y)), self.source.row(opaque(y + 1)));
            [first.at(self.left), second.at(self.left)]
        };
        // SAFETY: as the caller promised.
        unsafe {
            match self.channels {
                1 => self.load_of::<1>(starts),
                2 => self.load_of::<2>(starts),
                3 => self.load_of::<3>(starts),
                _ => self.load_of::<4>(starts),
            }
        }
    }

    #[inline(always)]
    unsafe fn load_of<const C: usize>(&self, starts: [u64; 2]) -> Raw {
        let mut raw = [0; 8];
        let words = C * BYTES;
        let mut turn = 0;
        while turn * 32 * C < Self::ALL as usize {
            let at = self.at[turn];
            if self.has::<C>(turn) && at >= self.lo && at < self.hi {
                let start = if self.row_of::<C>(turn) == 0 { starts[0] } else { starts[1] };
                // SAFETY: the four pixels lie in the image.
                unsafe {
                    load_four::<C, BYTES>(
                        &mut raw,
                        turn * words,
                        start.wrapping_add((at as u32 * words as u32) as u64),
                    )
                };
            }
            turn += 1;
        }
        raw
    }

    /// Converts the data that [`Rows::load`] loaded from row `y` on, and places it in the planes of
    /// half `half`. Patches all values that were not loaded.
    ///
    /// # Safety
    /// No warp still reads that half. All warps call together.
    #[inline(always)]
    pub(crate) unsafe fn place(&self, raw: &Raw, y: i32, half: i32) {
        let f16 = BYTES == 2 && self.source.pass.src.scalar == F16;
        let to = half * ROUND * self.channels * Self::ROW;
        // SAFETY: as the caller promised.
        unsafe {
            match (self.channels, f16) {
                (1, false) => self.place_of::<1, false>(raw, to),
                (2, false) => self.place_of::<2, false>(raw, to),
                (3, false) => self.place_of::<3, false>(raw, to),
                (_, false) => self.place_of::<4, false>(raw, to),
                (1, true) => self.place_of::<1, true>(raw, to),
                (2, true) => self.place_of::<2, true>(raw, to),
                (3, true) => self.place_of::<3, true>(raw, to),
                (_, true) => self.place_of::<4, true>(raw, to),
            }
            if self.lo > 0 || self.hi < Self::ROW || y < 0 || y + ROUND > self.source.pass.height {
                self.patch(y, to);
            }
        }
    }

    #[inline(always)]
    unsafe fn place_of<const C: usize, const IS_F16: bool>(&self, raw: &Raw, to: i32) {
        let scalar = if IS_F16 { F16 } else { U16 };
        let high = pixel::high_bits();
        let mut turn = 0;
        while turn * 32 * C < Self::ALL as usize {
            if self.has::<C>(turn) {
                let to = to + self.row_of::<C>(turn) * C as i32 * Self::ROW + self.at[turn];
                let mut c = 0;
                while c < C {
                    let mut four = [0.0; 4];
                    let mut i = 0;
                    while i < 4 {
                        let value = i * C + c;
                        four[i] = if BYTES == 1 {
                            of_byte(raw[turn * C + value / 4], value % 4, high)
                        } else {
                            of_half(scalar, raw[turn * 2 * C + value / 2], value % 2, high)
                        };
                        i += 1;
                    }
                    // SAFETY: the plane has this place, which is this thread's.
                    unsafe { self.shared.store4(to + c as i32 * Self::ROW, four) };
                    c += 1;
                }
            }
            turn += 1;
        }
    }

    /// Stores values that vector loads could not fetch, for the rows from `y` on, into the planes
    /// from float `to` on.
    ///
    /// # Safety
    /// As for [`Rows::place`].
    #[inline(always)]
    unsafe fn patch(&self, y: i32, to: i32) {
        // Any thread may have stored to these places before.
        // SAFETY: all warps are here.
        unsafe { self.meet() };
        let pass = self.source.pass;
        // Rows outside the image are patched whole, and so are all rows if vectors cannot be used.
        // In other rows, the columns before `lo` and from `hi` to `end` are patched.
        let whole = y < 0 || y + ROUND > pass.height;
        let (lo, hi) = if whole || self.hi == 0 { (0, 0) } else { (self.lo, self.hi) };
        let columns = lo + if self.end > hi { self.end - hi } else { 0 };
        let all = ROUND * self.channels * columns;
        let mut number = opaque(32 * thread_y() + thread_x());
        while number < all {
            // At least one column exists. `checked`, so that no panic is compiled in.
            let line = number.checked_div(columns).unwrap_or(0);
            let column = number - line * columns;
            let at = if column < lo { column } else { column - lo + hi };
            let (row, channel) =
                if line >= self.channels { (1, line - self.channels) } else { (0, line) };
            let row = Source::of_channel(&pass.src, pass, block_z() * self.channels + channel)
                .row(y + row);
            // SAFETY: the place is this thread's; the border rule finds a pixel for any column.
            unsafe { self.shared.store(to + line * Self::ROW + at, row.pixel(self.left + at)) };
            number += 32 * self.channels;
        }
    }

    /// The first `count` floats (a multiple of PX) of the lane's share of row `row` of a round, in
    /// the warp's channel. Float `ring_apron(K) - K / 2` is the leftmost that its first pixel
    /// needs.
    ///
    /// # Safety
    /// The row has been placed; `count` is at most `PX + 2 * ring_apron(K)`.
    #[inline(always)]
    pub(crate) unsafe fn read(&self, half: i32, row: i32, count: usize) -> [f32; MAX_SHARE] {
        let plane = ((half * ROUND + row) * self.channels + thread_y()) * Self::ROW;
        // SAFETY: the last lane's share ends with the row.
        unsafe {
            crate::tile::ring::read_share::<PX>(self.shared, plane + PX as i32 * thread_x(), count)
        }
    }
}

/// Loads four pixels of C channels into words of `raw` from `first` on.
///
/// # Safety
/// The pixels lie at this address. It is a multiple of their size, or of 16 bytes if they are
/// larger, or of a third of their size for three channels.
#[inline(always)]
unsafe fn load_four<const C: usize, const BYTES: usize>(raw: &mut Raw, first: usize, at: u64) {
    let words = C * BYTES;
    let vector = match words {
        1 | 3 => 1,
        2 | 6 => 2,
        _ => 4,
    };
    let mut w = 0;
    while w < words {
        let (to, at) = (first + w, at.wrapping_add(4 * w as u64));
        // SAFETY: as the caller promised.
        unsafe {
            if vector == 1 {
                raw[to] = load_words::<1>(at)[0];
            } else if vector == 2 {
                let two = load_words::<2>(at);
                raw[to] = two[0];
                raw[to + 1] = two[1];
            } else {
                let four = load_words::<4>(at);
                raw[to] = four[0];
                raw[to + 1] = four[1];
                raw[to + 2] = four[2];
                raw[to + 3] = four[3];
            }
        }
        w += vector;
    }
}

/// The results of one strip.
pub(crate) struct Results<'a, const PX: usize> {
    pass: &'a Pass,
    shared: Shared,
    /// The first byte of the results in shared memory.
    base: i32,
    /// The lane's first column.
    x: i32,
    /// How many channels are filtered: the first ones.
    filtered: i32,
    /// Bytes of a value.
    value: i32,
    /// Whether results go to the destination side by side as whole vectors or words, without an
    /// epilogue, and rows are less than 2 GiB apart, as in most strips.
    is_simple: bool,
    /// With a single channel, the address in row 0 of the lane's first pixel; otherwise of the
    /// thread's first word.
    at: u64,
}

impl<'a, const PX: usize> Results<'a, PX> {
    /// The results of the strip that begins at column `left`, with K tap columns.
    #[inline(always)]
    pub(crate) fn new<const K: usize>(pass: &'a Pass, left: i32, filtered: i32) -> Self {
        let (plane, channels, value) = (&pass.dst, block_height(), pixel::bytes(pass.dst.scalar));
        let side_by_side =
            plane.pixel == channels * value && (channels == 1 || plane.channel == value as i64);
        let lane = PX as i32 * value;
        let unit = match channels {
            1 if lane > 16 => 16,
            1 => lane,
            _ => 4,
        };
        let start = plane.origin(block_z() * channels, &pass.channels);
        // The strip begins at a multiple of four pixels, which may be half of a lane's vector.
        let begin = start.wrapping_add((left as i64 * plane.pixel as i64) as u64);
        let aligned = (begin | plane.row as u64) & (unit as u64 - 1) == 0;
        let x = left + PX as i32 * thread_x();
        let (first, end) =
            if channels == 1 { (x, x + PX as i32) } else { (left, left + 32 * PX as i32) };
        let inside = first >= pass.region.x0 && end <= pass.region.x1;
        let lane =
            if channels == 1 { lane * thread_x() } else { 4 * (32 * thread_y() + thread_x()) };
        let short_rows = plane.row == plane.row as i32 as i64;
        Self {
            pass,
            shared: Shared::dynamic(),
            base: 4 * planes_floats(K as i32, PX as i32, channels),
            x,
            filtered,
            value,
            is_simple: side_by_side && aligned && inside && short_rows && pass.epilogue.flags == 0,
            at: begin.wrapping_add(lane as i64 as u64),
        }
    }

    /// The address `at`, for row `y` instead of row 0.
    #[inline(always)]
    fn at(&self, y: i32) -> u64 {
        self.at.wrapping_add(mul_wide(y, self.pass.dst.row as i32) as u64)
    }

    /// The first byte in shared memory of row `row` of a half, and the bytes of a row.
    #[inline(always)]
    fn row(&self, half: i32, row: i32) -> (i32, i32) {
        let bytes = results_bytes(PX as i32, block_height(), self.value);
        (self.base + (half * ROUND + row) * bytes, bytes)
    }

    /// Takes the lane's sums of row `y`, row `row` of a round, in half `half`.
    ///
    /// # Safety
    /// The row lies in the region; no warp still reads that half.
    #[inline(always)]
    pub(crate) unsafe fn take(&self, half: i32, row: i32, y: i32, sums: [f32; PX]) {
        let (scalar, uncertain) = (self.pass.dst.scalar, &self.pass.uncertain);
        // SAFETY: as the caller promised.
        unsafe {
            if scalar == U8 && PX.is_multiple_of(4) && self.is_simple {
                let mut words = [0; PX];
                let mut greatest = 0.0f32;
                let mut i = 0;
                while i < PX / 4 {
                    let four = |n: usize| sums[(4 * i + n) % PX];
                    let (word, distance) = to_bytes([four(0), four(1), four(2), four(3)]);
                    words[i] = word;
                    greatest = greatest.max(distance);
                    i += 1;
                }
                if block_height() == 1 {
                    store_run_of_words::<PX>(self.at(y), words);
                } else {
                    self.put_words(half, row, words);
                }
                // Without a list, no distance is as great.
                if greatest >= uncertain.near {
                    self.note_all(y, sums);
                }
                return;
            }
            if uncertain.list != 0 {
                self.note_all(y, sums);
            }
            if self.is_simple {
                if block_height() == 1 {
                    store_vector(scalar, self.at(y), sums);
                } else {
                    self.put_row(half, row, sums);
                }
            } else {
                let values = finished(self.pass, sums);
                let mut i = 0;
                while i < PX {
                    self.put_one(y, opaque(i as i32), values[i]);
                    i += 1;
                }
            }
        }
    }

    /// Adds the lane's uncertain results of row `y` to the pass's list.
    ///
    /// # Safety
    /// The pass has a list.
    #[inline(always)]
    unsafe fn note_all(&self, y: i32, sums: [f32; PX]) {
        let mut found = 0;
        let mut i = 0;
        while i < PX {
            found |= if is_uncertain(&self.pass.uncertain, sums[i]) { 1 << i } else { 0 };
            i += 1;
        }
        let mut i = 0;
        while found >> i != 0 {
            let x = self.x + i;
            if found >> i & 1 != 0 && x >= self.pass.region.x0 && x < self.pass.region.x1 {
                // The list does not count channels that are not filtered.
                // SAFETY: as the caller promised.
                unsafe { note(self.pass, x, y, block_z() * self.filtered + thread_y()) };
            }
            i = opaque(i + 1);
        }
    }

    /// Stores the lane's bytes, four in a word, into a row in shared memory.
    ///
    /// # Safety
    /// As for [`Results::take`].
    #[inline(always)]
    unsafe fn put_words(&self, half: i32, row: i32, words: [u32; PX]) {
        let (first, _) = self.row(half, row);
        let channels = block_height();
        let mut at = first + PX as i32 * thread_x() * channels + thread_y();
        let mut i = 0;
        while i < PX {
            // SAFETY: the row has this place, and it belongs to the lane.
            unsafe { self.shared.store_u8(at, words[i / 4] >> (8 * (i % 4))) };
            at += channels;
            i += 1;
        }
    }

    /// Copies the lane's pixels of row `y` unchanged from the source.
    ///
    /// # Safety
    /// As for [`Results::take`].
    #[inline(always)]
    pub(crate) unsafe fn copy(&self, half: i32, row: i32, y: i32) {
        let pass = self.pass;
        let from = Source::of_channel(&pass.src, pass, block_z() * block_height() + thread_y())
            .row_inside(y);
        let (first, _) = self.row(half, row);
        let mut i = opaque(0);
        while i < PX as i32 && self.x + i < pass.width {
            // SAFETY: the pixel lies in the image; the rest as the caller promised.
            unsafe {
                let value = load_value(pass.src.scalar, from.at(self.x + i));
                if self.is_simple {
                    let at = (PX as i32 * thread_x() + i) * block_height() + thread_y();
                    store_shared(
                        self.shared,
                        pass.dst.scalar,
                        first,
                        at,
                        to_bits(pass.dst.scalar, value),
                    );
                } else {
                    self.put_one(y, i, value);
                }
            }
            i += 1;
        }
    }

    /// Stores the lane's results into a row in shared memory.
    ///
    /// # Safety
    /// As for [`Results::take`].
    #[inline(always)]
    unsafe fn put_row(&self, half: i32, row: i32, values: [f32; PX]) {
        let (first, _) = self.row(half, row);
        let channels = block_height();
        let scalar = self.pass.dst.scalar;
        let mut at = PX as i32 * thread_x() * channels + thread_y();
        let mut i = 0;
        // SAFETY: the row has these places, and they belong to the lane.
        unsafe {
            while i < PX {
                store_shared(self.shared, scalar, first, at, to_bits(scalar, values[i]));
                at += channels;
                i += 1;
            }
        }
    }

    /// Stores one of the lane's pixels in row `y`, if it lies in the region.
    ///
    /// # Safety
    /// As for [`Results::take`].
    #[inline(always)]
    unsafe fn put_one(&self, y: i32, i: i32, value: f32) {
        let x = self.x + i;
        if x >= self.pass.region.x0 && x < self.pass.region.x1 {
            let target = Target::of_channel(self.pass, block_z() * block_height() + thread_y());
            // SAFETY: the pixel lies in the region.
            unsafe { target.write_plain(x, y, value) };
        }
    }

    /// Writes the rows of a round that lie in `top..bottom` to the destination. Row `y` is the
    /// round's first.
    ///
    /// # Safety
    /// All warps have stored their results of that half. All threads call together.
    #[inline(always)]
    pub(crate) unsafe fn flush(&self, half: i32, y: i32, (top, bottom): (i32, i32)) {
        if !self.is_simple || block_height() == 1 {
            return;
        }
        let mut row = 0;
        while row < ROUND {
            if y + row >= top && y + row < bottom {
                let (first, bytes) = self.row(half, row);
                let mut byte = 4 * (32 * thread_y() + thread_x());
                let mut at = self.at(y + row);
                while byte < bytes {
                    // SAFETY: the word is one of the results, and lies in the region.
                    unsafe { store_words(at, [self.shared.load_word((first + byte) / 4)]) };
                    byte += 128 * block_height();
                    at = at.wrapping_add(128 * block_height() as u64);
                }
            }
            row += 1;
        }
    }
}

/// Stores value number `at` of an array that starts at byte `first` of shared memory.
///
/// # Safety
/// The place belongs to the thread, and lies inside the memory that the launch reserved.
#[inline(always)]
unsafe fn store_shared(shared: Shared, scalar: u32, first: i32, at: i32, bits: u32) {
    // SAFETY: as the caller promised.
    unsafe {
        match scalar {
            U8 => shared.store_u8(first + at, bits),
            F32 => shared.store(first / 4 + at, f32::from_bits(bits)),
            _ => shared.store_u16(first + 2 * at, bits),
        }
    }
}

/// Stores the words of a lane's PX bytes.
///
/// # Safety
/// The destination has room for them, aligned to their total size.
#[inline(always)]
unsafe fn store_run_of_words<const PX: usize>(at: u64, words: [u32; PX]) {
    // SAFETY: as the caller promised.
    unsafe {
        if PX == 8 {
            store_words(at, [words[0], words[1 % PX]]);
        } else {
            store_words(at, [words[0]]);
        }
    }
}

/// Stores a lane's pixels side by side.
///
/// # Safety
/// The destination has room for them, aligned to their total size, or to 16 bytes if that is less.
#[inline(always)]
unsafe fn store_vector<const PX: usize>(scalar: u32, at: u64, values: [f32; PX]) {
    const { assert!(PX == 2 || PX.is_multiple_of(4)) }
    let bits = |i: usize| to_bits(scalar, values[i % PX]);
    let two = |i: usize| bits(i) | bits(i + 1) << 16;
    // SAFETY: as the caller promised.
    unsafe {
        match (scalar, PX) {
            (U8, 2) => store_u16(at, bits(0) | bits(1) << 8),
            (U8, _) => {
                let mut i = 0;
                while i < PX {
                    let four = [
                        values[i % PX],
                        values[(i + 1) % PX],
                        values[(i + 2) % PX],
                        values[(i + 3) % PX],
                    ];
                    store_words(at.wrapping_add(i as u64), [to_bytes(four).0]);
                    i += 4;
                }
            }
            (F32, 2) => store_words(at, [bits(0), bits(1)]),
            (F32, _) => {
                let mut i = 0;
                while i < PX {
                    store_words(
                        at.wrapping_add(4 * i as u64),
                        [bits(i), bits(i + 1), bits(i + 2), bits(i + 3)],
                    );
                    i += 4;
                }
            }
            (_, 2) => store_words(at, [two(0)]),
            (_, 4) => store_words(at, [two(0), two(2)]),
            _ => store_words(at, [two(0), two(2), two(4), two(6)]),
        }
    }
}
