//! Direct correlation of bytes to bytes on the tensor cores, in whole numbers.
//!
//! Taps are whole multiples of a power of two, cut into one, two or three signed bytes: their digits to the base 256. A product of
//! bytes and the sums of such products are exact, so their order is of no account. The sums of each digit are joined, and rounded once.
//!
//! Tiling: a block is a warp. It has a strip of [`TILES`] tiles of 16 neighbouring values each, and slides down `rows` output rows, 16 at a time; a value
//! is a channel of a pixel, and the same channel of the next pixel is `channels` values further. Input rows come by asynchronous copies into a ring in shared memory,
//! in groups of 16, up to [`AHEAD`] groups ahead of their use. No warp waits for another one. The grid's x axis counts strips at the image's left and right
//! edge first, as they take longer, then the others row by row: strips side by side, which share parts of their rows, run at the same time.
//!
//! With three or four channels, a row of taps reaches over as many times more bytes. So there are entries for wider windows that part the
//! channels: a strip is 16 pixels, and each channel is a tile. Rows are parted on their way into shared memory, by way of registers, and results are put
//! together again.
//!
//! Thread mapping: a step multiplies 16 rows of 32 bytes with a band, for each of the strip's tiles. The image is the first factor, whose
//! four words of a lane come by one instruction from shared memory. The second factor is a band: in column `n`, the taps of a row from byte `n` on; zero
//! elsewhere. So the product has, for 16 rows and 8 columns, the sums of a row of taps; two bands make the 16 values, and their columns are in such an
//! order that a lane has four neighbours. The 32 bytes are two halves of 16: those that the taps of a row reach, half after half, and then the
//! next row's. The host makes the bands, as the lanes take them.
//!
//! Rounding: with one or two digits the taps are exact, and so is the joined sum; it is rounded half to even. With three, taps may be off
//! by half of the last digit's unit. Where that, or what the joining cuts off, could change the byte, the result goes to the pass's list.
//!
//! Limits: bytes to bytes, no epilogue; windows of up to 65536 taps, so that no sum of a digit overflows; the rows that 16 results need have room in
//! shared memory; outside the image nothing but bytes. KEEP is left to `keep.rs`.

use crate::abi::Pass;
use crate::device::*;
use crate::tile::view::{Row, Source};
use crate::tile::whole::{self, Lines, Rounding, is_whole};

/// Tiles side by side that a strip has if channels are not parted.
pub const TILES: usize = 3;

/// Values of a tile in a row.
const TILE: i32 = 16;

/// Groups of 16 rows that are under way beside those in use.
pub const AHEAD: i32 = 2;

/// The rows that a strip holds, in shared memory. Where channels are parted, a value is a pixel, and each channel has a line of bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    /// Tap rows.
    pub rows: i32,
    /// The anchor's row.
    pub anchor_y: i32,
    /// How many values left of a strip its rows begin. Rows begin at multiples of 16, so strips begin at as many more.
    pub left: i32,
    /// Values that a result needs on its left, and on both sides together.
    pub ahead: i32,
    /// See there.
    pub reach: i32,
    /// Pieces of a row: of 16 values, or of 4 pixels.
    pub pieces: i32,
    /// Bytes from a tile's part of a row to that of the next tile.
    pub tile: i32,
    /// Bytes from one row to the next: an odd multiple of 16, so that 8 rows lie in different banks.
    pub pitch: i32,
    /// Groups of 16 rows: those that 16 rows of results need, and those that are under way beside.
    pub groups: i32,
}

impl Ring {
    /// Bytes of shared memory that a block needs.
    pub const fn shared_bytes(&self) -> i32 {
        16 * self.groups * self.pitch
    }

    /// The first value of the strips of a region whose first value is number `first`.
    pub const fn first(&self, first: i32) -> i32 {
        ((first - self.left) & !15) + self.left
    }
}

/// The second factors, and how sums become bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bands {
    /// The address of the fragments: for each step and digit (from the lowest on) four words of each lane, two for each band.
    pub fragments: u64,
    /// Halves of 16 bytes that a row of taps reaches; two rows of one half count as one of two. Steps take two halves, of all rows in turn; the last
    /// one may have one too many, with taps of zero.
    pub halves: i32,
    /// Bytes from a row's first half to its second one,
    pub second: i32,
    /// from what would be the next half behind a row's last one to the next row's first,
    pub skip: i32,
    /// and from the first half of all to the last.
    pub last: i32,
    /// Steps.
    pub steps: i32,
    /// The rows.
    pub ring: Ring,
    /// How sums become bytes.
    pub rounding: Rounding,
}

/// Declares the entries `name: digits, steps (0: any number), channels that are parted (1: none), tiles, the most registers of a thread`, and lists them.
macro_rules! matrix {
    ($($name:ident: $d:literal, $s:literal, $p:literal, $t:literal, $limit:literal;)*) => {
        kernel! {$(
            fn $name(pass: Pass, bands: Bands, channels: i32, filtered: i32, rows: i32) {
                directive!($limit);
                let_next_kernel_begin();
                slide::<$d, $s, $p, $t>(&pass, &bands, (channels, filtered), rows)
            }
        )*}

        host! {
            /// The entries; of those that take a problem with as many steps, the first is the fastest.
            pub const ENTRIES: &[Matrix] = &[$(Matrix { entry: $name, digits: $d, steps: $s, parted: $p }),*];
        }
    };
}

matrix! {
    matrix_3_five: 3, 5, 1, 3, ".maxnreg 168";
    matrix_1: 1, 0, 1, 3, ".maxnreg 96";
    matrix_2: 2, 0, 1, 3, ".maxnreg 128";
    matrix_3: 3, 0, 1, 3, ".maxnreg 128";
    matrix_3_rgb: 3, 0, 3, 3, ".maxnreg 128";
    matrix_3_rgba: 3, 0, 4, 4, ".maxnreg 168";
}

host! {
    /// An entry: the pass, the bands, the channels of a pixel, how many of them are filtered, the rows of a strip (a multiple of 16).
    #[derive(Clone, Copy, Debug)]
    pub struct Matrix {
        /// What to launch.
        pub entry: crate::entry::Entry<(Pass, Bands, i32, i32, i32)>,
        /// Digits of a tap.
        pub digits: u32,
        /// Steps; 0 for any number.
        pub steps: usize,
        /// Channels, if they are parted; else 1.
        pub parted: usize,
    }
}

/// The sums of a tile, as its products leave them: of each band and digit, a lane's four.
type Sums<const D: usize> = [[[i32; 4]; D]; 2];

/// Filters a strip from top to bottom.
///
/// # Safety
/// `pass` describes allocated memory and keeps the limits above; `bands` are made for it. The launch has blocks of a warp, as many in x as there are strips,
/// and the shared memory that the ring needs.
#[inline(always)]
unsafe fn slide<const D: usize, const S: usize, const P: usize, const T: usize>(
    pass: &Pass,
    bands: &Bands,
    (channels, filtered): (i32, i32),
    rows: i32,
) {
    const { assert!(P == 1 || (P == 3 || P == 4) && T == P) }
    let (ring, region) = (&bands.ring, &pass.region);
    // Values of a strip; and of a pixel, as strips count them.
    let (width, each) = if P == 1 { (TILE * T as i32, channels) } else { (TILE, 1) };
    let first = ring.first(region.x0 * each);
    // `checked`, so that no panic is compiled in; there are strips.
    let across = (region.x1 * each - first + width - 1) / width;
    let lines = ((region.y1 - region.y0 + rows - 1) as u32).checked_div(rows as u32).unwrap_or(0) as i32;
    let (column, line) = edges_first(block_x(), across, lines);
    let x = first + width * column;
    let top = region.y0 + rows * line;
    let bottom = if region.y1 - top < rows { region.y1 } else { top + rows };

    let mut feed = Feed::<P>::new(pass, ring, channels, (x - ring.left, top - ring.anchor_y), (width, bottom - top));
    let mut output = Output::<P, T>::new(pass, (channels, filtered), (x, top));
    let shared = Shared::dynamic().in_register();
    let lane = thread_x();
    // SAFETY: as the caller promised; the places lie in the ring, all lanes are here at each product, and the results are this warp's.
    unsafe {
        let fragments = bands.fragments.wrapping_add(16 * lane as u64);
        let mut near = [[[0; 4]; D]; S];
        let mut step = 0;
        while step < S {
            near[step] = factors(fragments.wrapping_add(512 * (D * step) as u64));
            step += 1;
        }
        // 16 lanes have the address of a row's half each, the others those of a step's second half.
        let second = lane >> 4;
        let (size, group) = (ring.shared_bytes(), 16 * ring.pitch);
        let mut start = (lane & 15) * ring.pitch;
        // Groups that are under way before the first is waited for.
        let mut ahead = ring.groups - 1;
        while output.y < bottom {
            if P == 1 && ahead <= 0 {
                copies_wait::<{ AHEAD - 1 }>();
                warp_barrier();
            }
            feed.start();
            ahead -= 1;
            if ahead >= 0 {
                continue;
            }
            if P > 1 {
                warp_barrier();
            }
            let at = |place: i32| {
                let at = (start + place) as u32;
                core::cmp::min(at, at.wrapping_sub(size as u32)) as i32
            };
            let mut sums = [[[[0; 4]; D]; 2]; T];
            if D == 3 {
                let mut t = 0;
                while t < T {
                    sums[t][0][1 % D] = [bands.rounding.start[0]; 4];
                    sums[t][1][1 % D] = [bands.rounding.start[0]; 4];
                    t += 1;
                }
            }
            if S > 0 {
                let mut step = 0;
                while step < S {
                    let place = step as i32 * ring.pitch + 16 * second;
                    multiply::<D, P, T>(&mut sums, shared, (at(place), ring.tile), &near[step]);
                    step += 1;
                }
            } else {
                // The first step by itself, whose sums begin with constants.
                let here = at(core::cmp::min(bands.second * second, bands.last));
                multiply::<D, P, T>(&mut sums, shared, (here, ring.tile), &factors(fragments));
                let mut fragment = fragments;
                let (mut place, mut half) = (bands.second * second, second);
                let mut left = opaque(bands.steps - 1);
                while left > 0 {
                    // The assembler would unroll it four times, and spill.
                    keep_rolled();
                    fragment = fragment.wrapping_add(512 * D as u64);
                    (place, half) = (place + 32, half + 2);
                    if half >= bands.halves {
                        (place, half) = (place + bands.skip, half - bands.halves);
                    }
                    let here = at(core::cmp::min(place, bands.last));
                    multiply::<D, P, T>(&mut sums, shared, (here, ring.tile), &factors(fragment));
                    left -= 1;
                }
            }
            output.write(&bands.rounding, bottom, &sums);
            if P > 1 {
                // The next group takes the place of the first one.
                warp_barrier();
            }
            start += group;
            start = if start >= size { start - size } else { start };
        }
    }
}

/// The column and the line of the strip that is number `number` of so many columns and lines: those of the first and the last column, then line by line.
#[inline(always)]
fn edges_first(number: i32, columns: i32, lines: i32) -> (i32, i32) {
    if columns == 1 {
        return (0, number);
    }
    let inner = number - 2 * lines;
    if inner < 0 {
        return (if number & 1 == 0 { 0 } else { columns - 1 }, number >> 1);
    }
    // `checked`, so that no panic is compiled in; there are columns between.
    let line = (inner as u32).checked_div((columns - 2) as u32).unwrap_or(0) as i32;
    (1 + inner - line * (columns - 2), line)
}

/// A lane's words of the second factors of a step.
///
/// # Safety
/// They are there.
#[inline(always)]
unsafe fn factors<const D: usize>(at: u64) -> [[u32; 4]; D] {
    let mut factors = [[0; 4]; D];
    let mut d = 0;
    while d < D {
        // SAFETY: as the caller promised.
        factors[d] = unsafe { load_words(at.wrapping_add(512 * d as u64)) };
        d += 1;
    }
    factors
}

/// Adds a step to the sums of all tiles; byte `at` is where this lane's half of a row begins for the first one, and `tile` how many bytes further it does for the
/// next.
///
/// # Safety
/// It lies in the ring; all lanes call together.
#[inline(always)]
unsafe fn multiply<const D: usize, const P: usize, const T: usize>(
    sums: &mut [Sums<D>; T],
    shared: Shared,
    (at, tile): (i32, i32),
    factors: &[[u32; 4]; D],
) {
    // Known to the compiler.
    let tile = if P == 1 { TILE } else { tile };
    let mut t = 0;
    while t < T {
        // SAFETY: as the caller promised.
        unsafe {
            let image = shared.load_matrices(at + tile * t as i32);
            let mut d = 0;
            while d < D {
                let [a, b, c, e] = factors[d];
                sums[t][0][d] = mma(sums[t][0][d], image, [a, b]);
                sums[t][1][d] = mma(sums[t][1][d], image, [c, e]);
                d += 1;
            }
        }
        t += 1;
    }
}

/// The rows of a strip, on their way into the ring, group by group.
struct Feed<'a, const P: usize> {
    pass: &'a Pass,
    ring: &'a Ring,
    channels: i32,
    source: Source<'a>,
    /// Whether whole pieces of a row may be loaded; the same, and all of the strip's lie in the image.
    is_whole: bool,
    is_inside: bool,
    left: i32,
    /// The first value that results need, and the one behind the last.
    needed: (i32, i32),
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
    fn new(
        pass: &'a Pass,
        ring: &'a Ring,
        channels: i32,
        (left, top): (i32, i32),
        (width, height): (i32, i32),
    ) -> Self {
        let source = Source::of_channel(&pass.src, pass, block_z() * channels);
        let whole = if P == 3 {
            is_whole::<3>(&pass.src, channels, source.origin())
        } else {
            is_whole::<15>(&pass.src, channels, source.origin())
        };
        // Of a piece.
        let (values, each) = if P == 1 { (16, channels) } else { (4, 1) };
        let is_inside = whole && left >= 0 && left + values * ring.pieces <= pass.width * each;
        // Of the strip's results, those that lie in the region.
        let (x, region) = (left + ring.left, &pass.region);
        let first = if x > region.x0 * each { x } else { region.x0 * each };
        let last = if x + width < region.x1 * each { x + width } else { region.x1 * each };
        let needed = (first - ring.ahead, last - ring.ahead + ring.reach);
        let left = if P == 1 { left } else { left * P as i32 };
        let from = source.row_inside(top).at(0).wrapping_add(left as i64 as u64);
        // Results are computed in groups, too.
        let end = top + ((height + 15) & !15) + ring.rows - 1;
        Self { pass, ring, channels, source, is_whole: whole, is_inside, left, needed, y: top, end, from, to: 0 }
    }

    /// Starts to bring the next group, if it is needed, and commits it.
    ///
    /// # Safety
    /// As for [`slide`]; nobody reads its place in the ring any more.
    #[inline(always)]
    unsafe fn start(&mut self) {
        let (ring, to) = (self.ring, self.to);
        if self.y < self.end {
            // SAFETY: as the caller promised; the rows are there.
            unsafe {
                let inside = self.is_inside && self.source.has_rows(self.y, self.y + 16);
                if P > 1 {
                    self.part(inside);
                } else if inside && ring.pieces <= 4 {
                    self.copy::<4>();
                } else if inside {
                    self.copy::<8>();
                } else {
                    let lines = Lines { rows: 16, pitch: ring.pitch, pieces: ring.pieces };
                    let start = (self.left, self.y);
                    whole::bring::<32, 4>(self.pass, self.source, self.channels, start, &lines, self.needed, to);
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

    /// Copies 16 rows that lie in the image, ACROSS lanes a row.
    ///
    /// # Safety
    /// They do; the rest as for [`Feed::start`].
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

    /// Brings 16 rows of pixels, each channel to a line of its own, in pieces of 4 pixels. `inside` says that all lie in the image.
    ///
    /// # Safety
    /// As for [`Feed::start`].
    #[inline(always)]
    unsafe fn part(&self, inside: bool) {
        let (pieces, stride) = (self.ring.pieces, self.pass.src.row);
        let (row, mut piece) = (thread_x() / 8, thread_x() % 8);
        if inside {
            // 4 rows at a time, 8 pieces of each; all loads of four turns are under way together.
            while piece < pieces {
                let start = self.from.wrapping_add((row as i64 * stride + (4 * P as i32 * piece) as i64) as u64);
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
            return;
        }
        let left = self.left / P as i32;
        // Pieces from `lo` to before `hi` lie in the image, those from `first` to before `end` are needed.
        let (lo, hi) = if self.is_whole { ((3 - left) >> 2, (self.pass.width - left) >> 2) } else { (0, 0) };
        let (lo, hi) = (whole::clamped(lo, 0, pieces), whole::clamped(hi, 0, pieces));
        let (lo, hi) = if lo < hi { (lo, hi) } else { (0, 0) };
        let first = whole::clamped((self.needed.0 - left) >> 2, 0, lo);
        let end = whole::clamped((self.needed.1 - left + 3) >> 2, hi, pieces);
        // SAFETY: as the caller promised; the pieces lie in the ring.
        unsafe {
            while piece < pieces {
                let mut row = opaque(row);
                while row < 16 {
                    if piece >= lo && piece < hi {
                        let line = self.source.row(self.y + row);
                        let outside = [self.pass.outside as u32 * 0x0101_0101; P];
                        let at = line.at(0).wrapping_add((self.left + 4 * P as i32 * piece) as i64 as u64);
                        self.put(row, piece, if line.is_inside() { load_pixels(at) } else { outside });
                    } else if piece < first || piece >= end {
                        // No result needs it.
                        self.put(row, piece, [0; P]);
                    }
                    row += 4;
                }
                piece += 8;
            }
            let count = lo - first + end - hi;
            let mut task = opaque(thread_x());
            while task < 16 * count {
                // `checked`, so that no panic is compiled in; there are such pieces.
                let row = (task as u32).checked_div(count as u32).unwrap_or(0) as i32;
                let piece = first + task - row * count;
                let piece = if piece < lo { piece } else { piece + hi - lo };
                self.put(row, piece, self.found(self.source.row(self.y + row), 4 * P as i32 * piece));
                task += 32;
            }
        }
    }

    /// Puts four pixels to their place in the ring, each channel to its line.
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
            unsafe { Shared::dynamic().store((place + p as i32 * self.ring.tile) >> 2, f32::from_bits(lines[p])) };
            p += 1;
        }
    }

    /// Four pixels of a row, `offset` bytes behind the strip's first, each found through the border rule.
    ///
    /// # Safety
    /// As for [`Feed::start`].
    #[inline(always)]
    unsafe fn found(&self, line: Row<'_>, offset: i32) -> [u32; P] {
        let mut words = [0; P];
        let mut w = opaque(0);
        while w < P as i32 {
            // SAFETY: as the caller promised.
            let word = unsafe { whole::four(self.pass, line, self.channels, self.left + offset + 4 * w) };
            let mut n = 0;
            while n < P {
                words[n] = if n as i32 == w { word } else { words[n] };
                n += 1;
            }
            w = opaque(w + 1);
        }
        words
    }
}

/// Loads four pixels.
///
/// # Safety
/// They are there; four channels begin at a multiple of 16 bytes, three at one of 4.
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

/// The results of a strip, on their way out.
struct Output<'a, const P: usize, const T: usize> {
    pass: &'a Pass,
    channels: i32,
    filtered: i32,
    /// The first value of a lane in the strip's first tile.
    x: i32,
    /// The next row of results, and its first one that is this lane's.
    y: i32,
    row: i32,
    /// The address of value `x` in that row.
    at: u64,
    /// Whether four values, or four pixels of four channels, may be written at once; the same, and all of the strip's lie in the region.
    whole: bool,
    is_inside: bool,
    /// Whether the last of four channels is copied, four values at once.
    copies: bool,
}

impl<'a, const P: usize, const T: usize> Output<'a, P, T> {
    /// From one of a lane's words to the next: four values further, or a tile.
    const STEP: i32 = if P == 1 { TILE } else { 4 };

    #[inline(always)]
    fn new(pass: &'a Pass, (channels, filtered): (i32, i32), (x, y): (i32, i32)) -> Self {
        let z = block_z() * channels;
        let (origin, source) = (pass.dst.origin(z, &pass.channels), pass.src.origin(z, &pass.channels));
        let copies = (filtered, channels) == (3, 4) && is_whole::<3>(&pass.src, channels, source);
        let aligned = if P == 4 {
            is_whole::<15>(&pass.dst, channels, origin)
        } else {
            is_whole::<3>(&pass.dst, channels, origin)
        };
        let whole = aligned && (copies || filtered == channels);
        let (first, end) = (pass.region.x0 * channels, pass.region.x1 * channels);
        let each = P as i32;
        let (x, width) = (x * each, if P == 1 { TILE * T as i32 } else { TILE * each });
        let is_inside = whole && x >= first && x + width <= end;
        let (x, row) = (x + 4 * each * (thread_x() & 3), y + (thread_x() >> 2));
        let at = origin.wrapping_add((row as i64 * pass.dst.row + x as i64) as u64);
        Self { pass, channels, filtered, x, y, row, at, whole, is_inside, copies }
    }

    /// Writes the results of the next 16 rows, as far as they are above `bottom`, and notes those in doubt.
    ///
    /// # Safety
    /// As for [`slide`].
    #[inline(always)]
    unsafe fn write<const D: usize>(&mut self, rounding: &Rounding, bottom: i32, sums: &[Sums<D>; T]) {
        // Of each tile, four values of a lane's upper row, then of the lower one, as numbers that are shifted to become bytes.
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
        // SAFETY: the values lie in the region, or only those are written that do; with three digits there is a list.
        unsafe {
            if self.is_inside && self.y + 16 <= bottom {
                if self.copies {
                    let mut lower = 0;
                    while lower < 2 {
                        let mut t = 0;
                        while t < T {
                            let place = (self.x + Self::STEP * t as i32, self.row + 8 * lower as i32);
                            words[lower][t] = self.with_copied(words[lower][t], place);
                            t += 1;
                        }
                        lower += 1;
                    }
                }
                // Tile after tile of a row, so that its parts meet in the cache.
                let mut lower = 0;
                while lower < 2 {
                    let at = self.at.wrapping_add((8 * lower as i64 * self.pass.dst.row) as u64);
                    if P == 4 {
                        let [a, b, c, d] = [0, 1 % T, 2 % T, 3 % T].map(|t| words[lower][t]);
                        store_words(at, [a, b, c, d]);
                    } else {
                        let mut t = 0;
                        while t < T {
                            store_words(at.wrapping_add((Self::STEP * t as i32) as u64), [words[lower][t]]);
                            t += 1;
                        }
                    }
                    lower += 1;
                }
            } else {
                self.write_edge(bottom, &words);
            }
            if D == 3 && least < rounding.near {
                self.note(rounding, bottom, &wholes);
            }
        }
        self.y += 16;
        self.row += 16;
        self.at = self.at.wrapping_add((16 * self.pass.dst.row) as u64);
    }

    /// A pixel's word with the last channel of the source's pixel, whose first value is number `x` of row `y`.
    ///
    /// # Safety
    /// The pixel is there.
    #[inline(always)]
    unsafe fn with_copied(&self, word: u32, (x, y): (i32, i32)) -> u32 {
        let source = Source::of_channel(&self.pass.src, self.pass, block_z() * self.channels);
        // SAFETY: as the caller promised.
        let [pixel] = unsafe { load_words(source.row_inside(y).at(0).wrapping_add(x as i64 as u64)) };
        permute::<0x7210>(word, pixel)
    }

    /// Writes those of the results that lie in the region.
    ///
    /// # Safety
    /// As for [`slide`].
    #[inline(always)]
    unsafe fn write_edge(&self, bottom: i32, words: &[[u32; T]; 2]) {
        let Self { pass, channels, filtered, .. } = *self;
        let (first, end) = (pass.region.x0 * channels, pass.region.x1 * channels);
        let mut number = opaque(0);
        while number < 2 * T as i32 {
            let (t, lower) = (number >> 1, number & 1);
            // Registers have no numbers at run time.
            let mut word = 0;
            let mut n = 0;
            while n < 2 * T {
                word = if n as i32 == number { words[n % 2][n / 2] } else { word };
                n += 1;
            }
            let (x, y) = (self.x + Self::STEP * t, self.row + 8 * lower);
            // SAFETY: each value is stored only if it lies in the region.
            unsafe {
                if y >= bottom || x + 4 <= first || x >= end {
                } else if self.whole && x >= first && x + 4 <= end {
                    let word = if self.copies { self.with_copied(word, (x, y)) } else { word };
                    let offset = 8 * lower as i64 * pass.dst.row + (Self::STEP * t) as i64;
                    store_words(self.at.wrapping_add(offset as u64), [word]);
                } else {
                    let byte = |i: i32| word >> (8 * i);
                    whole::write_values::<4>(pass, (channels, filtered), (x, y, block_z()), byte);
                }
            }
            number = opaque(number + 1);
        }
    }

    /// Notes the results in doubt.
    ///
    /// # Safety
    /// There is a list.
    #[inline(always)]
    unsafe fn note(&self, rounding: &Rounding, bottom: i32, wholes: &[[i32; 8]; T]) {
        const { assert!(8 * T <= 32) }
        let mut doubts = 0u32;
        let mut n = 0;
        while n < 8 * T {
            doubts |= if rounding.behind(wholes[n / 8][n % 8]) < rounding.near { 1 << n } else { 0 };
            n += 1;
        }
        let mut number = opaque(0);
        while doubts != 0 {
            let row = self.row + 8 * (number >> 2 & 1);
            if doubts & 1 != 0 && row < bottom {
                let (t, v) = (number >> 3, number & 3);
                let value = self.x + if P == 1 { TILE * t + v } else { P as i32 * v + t };
                // SAFETY: as the caller promised.
                unsafe { whole::note_value(self.pass, (self.channels, self.filtered), (value, row, block_z())) };
            }
            doubts >>= 1;
            number = opaque(number + 1);
        }
    }
}
