//! Strips of bytes for the tensor cores. Each warp slides down a strip on its own. Input rows enter
//! a ring in shared memory, 16 at a time. The sums of 16 rows become bytes, which go straight from
//! registers to the destination.
//!
//! A strip is one or more tiles of 16 neighbouring values. A value is one channel of a pixel; the
//! same channel of the next pixel is `channels` values further. Rows come by asynchronous copies,
//! up to [`AHEAD`] groups before their use. If pixels are split by channel, a strip is 16 pixels
//! and each channel is a tile. Then rows come through registers.
//!
//! Uncertain results go to the pass's list, whose counters are in global memory. Kernels that do
//! little work per result buffer them behind the ring until a warp has one for each lane.
//!
//! The grid's x axis counts the strips at the image's left and right edges first, because they take
//! longer. The other strips follow row by row, so that neighbouring strips, which share input, run
//! at the same time. The z axis counts images.

use crate::abi::Pass;
use crate::device::*;
use crate::tile::view::Source;
use crate::tile::whole::{self, Found, GROUP, Rounding, is_whole};

/// Values of a tile in a row.
pub const TILE: i32 = 16;

/// Groups of 16 rows in flight, in addition to those in use.
pub const AHEAD: i32 = 2;

/// Capacity of the buffer of uncertain results: at most 31 from before, and one more of each lane.
const MAX_QUEUED: i32 = 63;

/// Bytes of that buffer, behind the ring: a count, then one word for each result. The lower half of
/// the word is the value's number from the strip's first value on; the upper half is the number of
/// rows above the strip's end.
const QUEUE_BYTES: i32 = 4 * (1 + MAX_QUEUED);

/// The rows of a strip in shared memory. If pixels are split by channel, a value is a pixel, and
/// each channel has its own line of bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    /// Tap rows.
    pub rows: i32,
    /// The anchor's row.
    pub anchor_y: i32,
    /// Values from a row's start in the ring to the strip's first value. Rows start at multiples of
    /// 16, so strips start at a multiple of 16 plus this number.
    pub left: i32,
    /// Values that a result needs on its left.
    pub ahead: i32,
    /// Values that a result needs on both sides together.
    pub reach: i32,
    /// Pieces of a row: of 16 values, or of 4 pixels.
    pub pieces: i32,
    /// Bytes from one tile's part of a row to the next tile's part.
    pub tile: i32,
    /// Bytes from one row to the next: an odd multiple of 16, so that 8 rows lie in different
    /// banks.
    pub pitch: i32,
    /// Groups of 16 rows: those that 16 rows of results need, and those in flight.
    pub groups: i32,
}

impl Ring {
    /// Bytes of shared memory that it needs.
    pub const fn shared_bytes(&self) -> i32 {
        16 * self.groups * self.pitch
    }

    /// Bytes of shared memory, including the buffer of uncertain results if `wait` is true.
    pub const fn with_queue(&self, wait: bool) -> i32 {
        self.shared_bytes() + if wait { QUEUE_BYTES } else { 0 }
    }

    /// The start of the first strip of a region whose first value is number `first`.
    pub const fn first(&self, first: i32) -> i32 {
        ((first - self.left) & !15) + self.left
    }
}

/// A block's part of the region.
#[derive(Clone, Copy)]
pub(crate) struct Strip {
    /// The first value and the number of values; pixels if they are split by channel.
    pub(crate) x: i32,
    pub(crate) width: i32,
    /// The first row, and the one behind the last.
    pub(crate) top: i32,
    pub(crate) bottom: i32,
}

impl Strip {
    /// This block's strip, of `tiles` tiles and at most `rows` rows. P is the number of channels
    /// that pixels are split into, 1 if they are not split.
    #[inline(always)]
    pub(crate) fn new<const P: usize>(
        pass: &Pass,
        ring: &Ring,
        channels: i32,
        tiles: i32,
        rows: i32,
    ) -> Self {
        let region = &pass.region;
        let (width, each) = if P == 1 { (TILE * tiles, channels) } else { (TILE, 1) };
        let first = ring.first(region.x0 * each);
        // At least one strip exists. `checked`, so that no panic is compiled in.
        let across = (region.x1 * each - first + width - 1) / width;
        let lines = ((region.y1 - region.y0 + rows - 1) as u32)
            .checked_div(rows as u32)
            .unwrap_or(0) as i32;
        let (column, line) = edges_first(block_x(), across, lines);
        let top = region.y0 + rows * line;
        let bottom = if region.y1 - top < rows { region.y1 } else { top + rows };
        Self { x: first + width * column, width, top, bottom }
    }
}

/// Column and line of strip number `number`. The strips of the first and the last column come
/// first, then the others line by line.
#[inline(always)]
pub(crate) fn edges_first(number: i32, columns: i32, lines: i32) -> (i32, i32) {
    if columns == 1 {
        return (0, number);
    }
    let inner = number - 2 * lines;
    if inner < 0 {
        return (if number & 1 == 0 { 0 } else { columns - 1 }, number >> 1);
    }
    // Columns remain between the edges. `checked`, so that no panic is compiled in.
    let line = (inner as u32).checked_div((columns - 2) as u32).unwrap_or(0) as i32;
    (1 + inner - line * (columns - 2), line)
}

/// Facts for rows that may leave the image, or that have no whole pieces to load. Rebuilt for each
/// group of such rows, because it would occupy registers all the time.
struct Edge<'a> {
    source: Source<'a>,
    /// The first value, or pixel, that is fetched.
    left: i32,
    /// The first value or pixel that results need, and the end of the needed range.
    needed: (i32, i32),
    /// `is_whole`: whole pieces of a row may be loaded. `is_inside`: they may, and all pieces of
    /// the strip lie in the image.
    is_whole: bool,
    is_inside: bool,
}

impl<'a> Edge<'a> {
    /// The facts for a strip of `width` values or pixels from `x` on.
    #[inline(always)]
    fn new<const P: usize>(
        pass: &'a Pass,
        ring: &Ring,
        channels: i32,
        (x, width): (i32, i32),
    ) -> Self {
        let left = x - ring.left;
        let source = Source::of_channel(&pass.src, pass, block_z() * channels);
        let is_whole = if P == 3 {
            is_whole::<3>(&pass.src, channels, source.origin())
        } else {
            is_whole::<15>(&pass.src, channels, source.origin())
        };
        // Values in a piece, and values in an image column.
        let (values, each) = if P == 1 { (16, channels) } else { (4, 1) };
        let is_inside = is_whole && left >= 0 && left + values * ring.pieces <= pass.width * each;
        // The strip's results that lie in the region.
        let region = &pass.region;
        let first = if x > region.x0 * each { x } else { region.x0 * each };
        let last = if x + width < region.x1 * each { x + width } else { region.x1 * each };
        let needed = (first - ring.ahead, last - ring.ahead + ring.reach);
        Self { source, left, needed, is_whole, is_inside }
    }
}

/// The rows of a strip, on their way into the ring, group by group.
pub(crate) struct Feed<'a, const P: usize> {
    pass: &'a Pass,
    ring: &'a Ring,
    channels: i32,
    /// The strip's first value or pixel, and their number.
    x: i32,
    width: i32,
    is_inside: bool,
    /// The next group's first row, and the first row that no result needs.
    y: i32,
    end: i32,
    /// The address of that row's first byte, if there is such a row.
    from: u64,
    /// The byte of shared memory where the group goes.
    to: i32,
}

impl<'a, const P: usize> Feed<'a, P> {
    #[inline(always)]
    pub(crate) fn new(pass: &'a Pass, ring: &'a Ring, channels: i32, strip: Strip) -> Self {
        let Strip { x, width, top, bottom } = strip;
        let Edge { source, left, is_inside, .. } = Edge::new::<P>(pass, ring, channels, (x, width));
        let y = top - ring.anchor_y;
        let from = source.row_inside(y).at(0).wrapping_add((left * P as i32) as i64 as u64);
        // Results are computed in groups of 16 rows, too.
        let end = y + ((bottom - top + 15) & !15) + ring.rows - 1;
        Self { pass, ring, channels, x, width, is_inside, y, end, from, to: 0 }
    }

    /// Starts to load the next group, if it is needed, and commits it. Rows that leave the image
    /// take longer. After them, `then` is called to reload values that should not occupy registers
    /// meanwhile.
    ///
    /// # Safety
    /// `pass` describes allocated memory; no lane reads the group's place in the ring any more.
    #[inline(always)]
    pub(crate) unsafe fn start(&mut self, then: impl FnOnce()) {
        let (ring, to) = (self.ring, self.to);
        if self.y < self.end {
            // SAFETY: as the caller promised; the rows are there.
            unsafe {
                let plane = &self.pass.src;
                if self.is_inside && self.y >= plane.first_row && self.y + 16 <= plane.end_row {
                    if P > 1 {
                        self.part();
                    } else if ring.pieces <= 4 {
                        self.copy::<4>();
                    } else {
                        self.copy::<8>();
                    }
                } else {
                    // Hidden, so that the compiler computes none of it earlier.
                    let edge = Edge::new::<P>(
                        self.pass,
                        ring,
                        self.channels,
                        (opaque(self.x), self.width),
                    );
                    if P > 1 {
                        self.part_edge(&edge);
                    } else {
                        let (start, size) = ((edge.left, self.y), (ring.pieces, ring.pitch));
                        whole::bring(
                            self.pass,
                            edge.source,
                            self.channels,
                            start,
                            size,
                            edge.needed,
                            to,
                        );
                    }
                    then();
                }
            }
        }
        if P == 1 {
            copies_commit();
        }
        self.y += 16;
        self.from = self.from.wrapping_add((16 * self.pass.src.row) as u64);
        let next = to + 16 * ring.pitch;
        self.to = if next >= ring.shared_bytes() { 0 } else { next };
    }

    /// Copies 16 rows that lie in the image, with ACROSS lanes for a row.
    ///
    /// # Safety
    /// The rows lie in the image; otherwise as for [`Feed::start`].
    #[inline(always)]
    unsafe fn copy<const ACROSS: i32>(&self) {
        let (shared, pitch, stride) = (Shared::dynamic(), self.ring.pitch, self.pass.src.row);
        let (row, mut piece) = (thread_x() / ACROSS, thread_x() % ACROSS);
        let start = self.from.wrapping_add((row as i64 * stride) as u64);
        while piece < self.ring.pieces {
            let mut from = start.wrapping_add(16 * piece as u64);
            let mut place = (self.to + row * pitch + 16 * piece) >> 2;
            let mut done = 0;
            while done < 16 {
                // SAFETY: as the caller promised.
                unsafe { shared.copy4(place, from as *const f32) };
                from = from.wrapping_add(((32 / ACROSS) as i64 * stride) as u64);
                place += 32 / ACROSS * (pitch >> 2);
                done += 32 / ACROSS;
            }
            piece += ACROSS;
        }
    }

    /// Loads 16 rows of pixels that lie in the image, in pieces of 4 pixels, and stores each
    /// channel to its own line.
    ///
    /// # Safety
    /// The rows lie in the image; otherwise as for [`Feed::start`].
    #[inline(always)]
    unsafe fn part(&self) {
        let stride = self.pass.src.row;
        let (row, mut piece) = (thread_x() / 8, thread_x() % 8);
        // 4 rows at a time, 8 pieces of each. The loads of all 16 rows are in flight together.
        while piece < self.ring.pieces {
            let start = self
                .from
                .wrapping_add((row as i64 * stride + (4 * P as i32 * piece) as i64) as u64);
            // SAFETY: as the caller promised; the pieces lie in the ring.
            unsafe {
                let mut words = [[0; P]; 4];
                let mut i = 0;
                while i < 4 {
                    words[i] = load_pixels(start.wrapping_add((4 * i as i64 * stride) as u64));
                    i += 1;
                }
                let mut i = 0;
                while i < 4 {
                    self.put(row + 4 * i as i32, piece, words[i]);
                    i += 1;
                }
            }
            piece += 8;
        }
    }

    /// As `part`, for rows that may leave the image.
    ///
    /// # Safety
    /// As for [`Feed::start`].
    #[inline(always)]
    unsafe fn part_edge(&self, edge: &Edge<'_>) {
        let pieces = self.ring.pieces;
        let (row, piece) = (thread_x() / 8, thread_x() % 8);
        let left = edge.left;
        // Pieces from `lo` to before `hi` lie in the image; pieces from `first` to before `end` are
        // needed.
        let (lo, hi) =
            if edge.is_whole { ((3 - left) >> 2, (self.pass.width - left) >> 2) } else { (0, 0) };
        let (lo, hi) = (clamped(lo, 0, pieces), clamped(hi, 0, pieces));
        let (lo, hi) = if lo < hi { (lo, hi) } else { (0, 0) };
        // SAFETY: as the caller promised; the pieces lie in the ring.
        unsafe {
            let mut piece = opaque(lo + piece);
            while piece < hi {
                let mut row = opaque(row);
                while row < GROUP {
                    let line = edge.source.row(self.y + row);
                    let outside = [self.pass.outside as u32 * 0x0101_0101; P];
                    let at = line.at(0).wrapping_add((P as i32 * (left + 4 * piece)) as i64 as u64);
                    self.put(row, piece, if line.is_inside() { load_pixels(at) } else { outside });
                    row += 4;
                }
                piece += 8;
            }
            // Pieces that no result needs are 0.
            let (first, end) = ((edge.needed.0 - left) >> 2, (edge.needed.1 - left + 3) >> 2);
            whole::rest(pieces - hi + lo, |number, row| {
                let piece = if number < lo { number } else { number + hi - lo };
                let value = P as i32 * (left + 4 * piece);
                let mut found = [Found::new(self.pass, self.channels, value); P];
                let mut w = 1;
                while w < P {
                    found[w] = Found::new(self.pass, self.channels, value + 4 * w as i32);
                    w += 1;
                }
                let is_needed = piece >= first && piece < end;
                let mut row = opaque(row);
                while row < GROUP {
                    let line = edge.source.row(self.y + row);
                    let mut words = [0; P];
                    let mut w = 0;
                    while is_needed && w < P {
                        [words[w]] = found[w].words([line]);
                        w += 1;
                    }
                    self.put(row, piece, words);
                    row += 4;
                }
            });
        }
    }

    /// Stores four pixels to their place in the ring, each channel to its line.
    ///
    /// # Safety
    /// As for [`Feed::start`].
    #[inline(always)]
    unsafe fn put(&self, row: i32, piece: i32, words: [u32; P]) {
        let lines = whole::part(words);
        let place = self.to + row * self.ring.pitch + 4 * piece;
        let mut p = 0;
        while p < P {
            // SAFETY: as the caller promised.
            unsafe {
                Shared::dynamic()
                    .store((place + p as i32 * self.ring.tile) >> 2, f32::from_bits(lines[p]))
            };
            p += 1;
        }
    }
}

/// `number`, limited to the range from `least` to `most`.
#[inline(always)]
fn clamped(number: i32, least: i32, most: i32) -> i32 {
    if number < least {
        least
    } else if number > most {
        most
    } else {
        number
    }
}

/// Loads four pixels.
///
/// # Safety
/// The pixels lie in an allocation. With four channels they start at a multiple of 16 bytes, with
/// three at a multiple of 4.
#[inline(always)]
unsafe fn load_pixels<const P: usize>(at: u64) -> [u32; P] {
    let mut words = [0; P];
    // SAFETY: as the caller promised.
    unsafe {
        if P == 4 {
            let four = load_words::<4>(at);
            let mut w = 0;
            while w < P {
                words[w] = four[w];
                w += 1;
            }
        } else {
            let mut w = 0;
            while w < P {
                words[w] = load_words::<1>(at.wrapping_add(4 * w as u64))[0];
                w += 1;
            }
        }
    }
    words
}

/// The sums of a tile in the layout of the matrix products: for each half (or band) and digit, a
/// lane's four sums. They belong to two neighbouring values, in row `lane / 4` and 8 rows below.
/// The halves interleave, so a lane has four neighbouring values.
pub(crate) type Sums<const D: usize> = [[[i32; 4]; D]; 2];

/// Writes the results of a strip, T tiles at a time. QUEUES: uncertain results are buffered.
pub(crate) struct Output<'a, const P: usize, const T: usize, const QUEUES: bool> {
    pass: &'a Pass,
    channels: i32,
    filtered: i32,
    /// The lane's first value in the strip's first tile.
    x: i32,
    /// The next row of results, and the end of the rows.
    y: i32,
    bottom: i32,
    /// The address of value `x` in the lane's first of the next rows.
    at: u64,
    /// `whole`: four values, or four pixels of four channels, may be written at once. `is_inside`:
    /// they may, and all of the strip lies in the region. `copies`: the last of four channels is
    /// copied meanwhile.
    whole: bool,
    is_inside: bool,
    copies: bool,
    /// The word of shared memory that counts the buffered uncertain results.
    waiting: i32,
}

impl<'a, const P: usize, const T: usize, const QUEUES: bool> Output<'a, P, T, QUEUES> {
    /// Values from one of a lane's words to the next: four, or a tile.
    const STEP: i32 = if P == 1 { TILE } else { 4 };

    /// # Safety
    /// Shared memory has room for the ring, and for the buffer of uncertain results behind it if
    /// QUEUES.
    #[inline(always)]
    pub(crate) unsafe fn new(
        pass: &'a Pass,
        ring: &Ring,
        (channels, filtered): (i32, i32),
        strip: Strip,
    ) -> Self {
        let z = block_z() * channels;
        let (origin, source) =
            (pass.dst.origin(z, &pass.channels), pass.src.origin(z, &pass.channels));
        let copies = (filtered, channels) == (3, 4) && is_whole::<3>(&pass.src, channels, source);
        let aligned = if P == 4 {
            is_whole::<15>(&pass.dst, channels, origin)
        } else {
            is_whole::<3>(&pass.dst, channels, origin)
        };
        let whole = aligned && (copies || filtered == channels);
        let (first, end) = (pass.region.x0 * channels, pass.region.x1 * channels);
        let each = P as i32;
        let x = strip.x * each;
        let is_inside = whole && x >= first && x + strip.width * each <= end;
        let (x, y) = (x + 4 * each * (thread_x() & 3), strip.top);
        let row = y + (thread_x() >> 2);
        let at = origin.wrapping_add((row as i64 * pass.dst.row + x as i64) as u64);
        let waiting = ring.shared_bytes() / 4;
        if QUEUES && thread_x() == 0 {
            // SAFETY: as the caller promised.
            unsafe { Shared::dynamic().store(waiting, 0.0) };
        }
        Self {
            pass,
            channels,
            filtered,
            x,
            y,
            bottom: strip.bottom,
            at,
            whole,
            is_inside,
            copies,
            waiting,
        }
    }

    /// The lane's first of the next rows.
    #[inline(always)]
    fn row(&self) -> i32 {
        self.y + (opaque(thread_x()) >> 2)
    }

    /// The strip's first value.
    #[inline(always)]
    fn first(&self) -> i32 {
        self.x - 4 * P as i32 * (opaque(thread_x()) & 3)
    }

    /// Whether the next rows are the last ones.
    #[inline(always)]
    pub(crate) fn is_last(&self) -> bool {
        self.y + 16 >= self.bottom
    }

    /// Whether rows are left.
    #[inline(always)]
    pub(crate) fn has_rows(&self) -> bool {
        self.y < self.bottom
    }

    /// Goes on to the next 16 rows.
    #[inline(always)]
    pub(crate) fn advance(&mut self) {
        self.y += 16;
        self.at = self.at.wrapping_add((16 * self.pass.dst.row) as u64);
    }

    /// Writes the results of T tiles in the next 16 rows, as far as they lie in the region. The
    /// first tile starts `beside` values right of the strip's start. Notes uncertain results. Calls
    /// `then` if some results are not written or some are noted, as in [`Feed::start`].
    ///
    /// # Safety
    /// `pass` describes allocated memory, and has a list if there are three digits; no other warp
    /// writes these results.
    #[inline(always)]
    pub(crate) unsafe fn write<const D: usize>(
        &self,
        rounding: &Rounding,
        beside: i32,
        sums: &[Sums<D>; T],
        mut then: impl FnMut(),
    ) {
        // For each tile, four values of the lane's upper row, then four of its lower row. A right
        // shift turns these numbers into bytes.
        let (mut wholes, mut least) = ([[0; 8]; T], u32::MAX);
        let mut words = [[0; T]; 2];
        let mut t = 0;
        while t < T {
            let mut v = 0;
            while v < 8 {
                let (lower, j, i) = (v / 4, v / 2 % 2, v % 2);
                let mut digits = [0; D];
                let mut d = 0;
                while d < D {
                    digits[d] = sums[t][j][d][2 * lower + i];
                    d += 1;
                }
                wholes[t][v] = whole::joined(rounding, &digits);
                if D == 3 {
                    least = core::cmp::min(least, rounding.behind(wholes[t][v]));
                }
                v += 1;
            }
            let mut lower = 0;
            while lower < 2 {
                let mut bytes = [0; 4];
                let mut v = 0;
                while v < 4 {
                    let whole = wholes[t][4 * lower + v];
                    bytes[v] = if D == 3 { whole >> rounding.shift } else { whole };
                    v += 1;
                }
                words[lower][t] = pack_bytes(bytes[1], bytes[0], pack_bytes(bytes[3], bytes[2], 0));
                lower += 1;
            }
            t += 1;
        }
        if P > 1 {
            words = [whole::interleave(words[0]), whole::interleave(words[1])];
        }
        // SAFETY: all values lie in the region, or `write_edge` writes only those that do; with
        // three digits there is a list.
        unsafe {
            if self.is_inside && self.y + 16 <= self.bottom {
                if self.copies {
                    let mut lower = 0;
                    while lower < 2 {
                        let mut t = 0;
                        while t < T {
                            let place = (
                                self.x + beside + Self::STEP * t as i32,
                                self.row() + 8 * lower as i32,
                            );
                            words[lower][t] = whole::with_copied(
                                self.pass,
                                self.channels,
                                words[lower][t],
                                place,
                            );
                            t += 1;
                        }
                        lower += 1;
                    }
                }
                // Tile after tile of a row, so that the cache merges the row's parts. Streaming
                // stores leave pixels in the cache, because uncertain results need them again.
                let mut lower = 0;
                while lower < 2 {
                    let at = self.at.wrapping_add((8 * lower as i64 * self.pass.dst.row) as u64);
                    let at = at.wrapping_add(beside as u64);
                    if P == 4 {
                        let [a, b, c, d] = [0, 1 % T, 2 % T, 3 % T].map(|t| words[lower][t]);
                        stream_words(at, [a, b, c, d]);
                    } else {
                        let mut t = 0;
                        while t < T {
                            stream_words(
                                at.wrapping_add((Self::STEP * t as i32) as u64),
                                [words[lower][t]],
                            );
                            t += 1;
                        }
                    }
                    lower += 1;
                }
            } else {
                self.write_edge(beside, &words);
                then();
            }
            // The whole warp adds to the buffer.
            if D == 3 && QUEUES && ballot(least < rounding.near) != 0 {
                self.wait(rounding, beside, &wholes);
                then();
            }
            if D == 3 && !QUEUES && least < rounding.near {
                self.note(rounding, beside, &wholes);
                then();
            }
        }
    }

    /// Writes the results that lie in the region.
    ///
    /// # Safety
    /// As for [`Output::write`].
    #[inline(always)]
    unsafe fn write_edge(&self, beside: i32, words: &[[u32; T]; 2]) {
        let Self { pass, channels, filtered, bottom, .. } = *self;
        let (first, end) = (pass.region.x0 * channels, pass.region.x1 * channels);
        let row = self.row();
        let mut number = opaque(0);
        while number < 2 * T as i32 {
            let (t, lower) = (number >> 1, number & 1);
            // Registers cannot be indexed at run time, so select the word by comparisons.
            let mut word = 0;
            let mut n = 0;
            while n < 2 * T {
                word = if n as i32 == number { words[n % 2][n / 2] } else { word };
                n += 1;
            }
            let (x, y) = (self.x + beside + Self::STEP * t, row + 8 * lower);
            // SAFETY: each value is stored only if it lies in the region.
            unsafe {
                if y >= bottom || x + 4 <= first || x >= end {
                } else if self.whole && x >= first && x + 4 <= end {
                    let word = if self.copies {
                        whole::with_copied(pass, channels, word, (x, y))
                    } else {
                        word
                    };
                    let offset = 8 * lower as i64 * pass.dst.row + (beside + Self::STEP * t) as i64;
                    store_words(self.at.wrapping_add(offset as u64), [word]);
                } else {
                    let byte = |i: i32| word >> (8 * i);
                    whole::write_values::<4>(pass, (channels, filtered), (x, y, block_z()), byte);
                }
            }
            number = opaque(number + 1);
        }
    }

    /// A bit for each uncertain result of the lane, in the order of `wholes`.
    #[inline(always)]
    fn uncertain(rounding: &Rounding, wholes: &[[i32; 8]; T]) -> u32 {
        const { assert!(8 * T <= 32) }
        let (mut uncertain, mut n) = (0, 0);
        while n < 8 * T {
            uncertain |=
                if rounding.behind(wholes[n / 8][n % 8]) < rounding.near { 1 << n } else { 0 };
            n += 1;
        }
        uncertain
    }

    /// Result number `n` of a lane: values right of the lane's first value in the strip, and rows
    /// below.
    #[inline(always)]
    fn place(n: i32) -> (i32, i32) {
        let (t, v) = (n >> 3, n & 3);
        (if P == 1 { TILE * t + v } else { P as i32 * v + t }, 8 * (n >> 2 & 1))
    }

    /// Adds the lane's uncertain results to the pass's list.
    ///
    /// # Safety
    /// There is a list.
    #[inline(always)]
    unsafe fn note(&self, rounding: &Rounding, beside: i32, wholes: &[[i32; 8]; T]) {
        let first = self.row();
        let mut uncertain = Self::uncertain(rounding, wholes);
        let mut number = opaque(0);
        while uncertain != 0 {
            let (right, down) = Self::place(number);
            if uncertain & 1 != 0 && first + down < self.bottom {
                let place = (self.x + beside + right, first + down, block_z());
                // SAFETY: as the caller promised.
                unsafe { whole::note_value(self.pass, (self.channels, self.filtered), place) };
            }
            uncertain >>= 1;
            number = opaque(number + 1);
        }
    }

    /// Buffers the lane's uncertain results, and notes all buffered ones once there are 32. One
    /// addition to a counter in global memory delays a warp as long as one addition for each lane.
    ///
    /// # Safety
    /// There is a list; all lanes of the warp call together.
    #[inline(always)]
    unsafe fn wait(&self, rounding: &Rounding, beside: i32, wholes: &[[i32; 8]; T]) {
        let (shared, lane, first) = (Shared::dynamic(), opaque(thread_x()), self.row());
        let mut uncertain = Self::uncertain(rounding, wholes);
        // Results of the lane's lower row have the higher bits of each byte.
        uncertain &= if first + 8 < self.bottom { u32::MAX } else { 0x0f0f_0f0f };
        uncertain = if first < self.bottom { uncertain } else { 0 };
        // SAFETY: as the caller promised; a warp barrier separates a lane's stores from other
        // lanes' loads and stores of the same words.
        unsafe {
            warp_barrier();
            let mut count = shared.load_word(self.waiting) as i32;
            loop {
                // Each lane with results left adds one.
                let lanes = ballot(uncertain != 0);
                if lanes == 0 {
                    break;
                }
                if uncertain != 0 {
                    let (right, down) = Self::place(uncertain.trailing_zeros() as i32);
                    let (value, row) = (self.x - self.first() + beside + right, first + down);
                    let before = (lanes & ((1 << lane) - 1)).count_ones() as i32;
                    let word = value | (self.bottom - row) << 16;
                    shared.store(self.waiting + 1 + count + before, f32::from_bits(word as u32));
                    uncertain &= uncertain - 1;
                }
                count += lanes.count_ones() as i32;
                if count >= 32 {
                    self.note_waiting(count);
                    count = 0;
                }
            }
            warp_barrier();
            if lane == 0 {
                shared.store(self.waiting, f32::from_bits(count as u32));
            }
        }
    }

    /// Adds `count` buffered results to the pass's list.
    ///
    /// # Safety
    /// As for [`Output::wait`].
    #[inline(always)]
    unsafe fn note_waiting(&self, count: i32) {
        // SAFETY: as the caller promised.
        unsafe {
            warp_barrier();
            let mut number = opaque(thread_x());
            while number < count {
                let word = Shared::dynamic().load_word(self.waiting + 1 + number) as i32;
                let place = (self.first() + (word & 0xffff), self.bottom - (word >> 16), block_z());
                whole::note_value(self.pass, (self.channels, self.filtered), place);
                number += 32;
            }
            warp_barrier();
        }
    }

    /// Notes the results that are still buffered. With fewer than three digits, no result is
    /// uncertain.
    ///
    /// # Safety
    /// As for [`Output::wait`].
    #[inline(always)]
    pub(crate) unsafe fn finish<const D: usize>(&self) {
        if D == 3 && QUEUES {
            // SAFETY: as the caller promised.
            unsafe {
                warp_barrier();
                self.note_waiting(Shared::dynamic().load_word(self.waiting) as i32);
            }
        }
    }
}
