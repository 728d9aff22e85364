//! Bytes for the tensor cores: rows as they lie in memory, on their way into shared memory, and sums in whole numbers that
//! become bytes; for `separable_matrix.rs`, tiles of rows, double-buffered.
//!
//! A tile is 128 values of a row and a number of rows, one after the other; a value is a channel of a pixel, and the same
//! channel of the next pixel is `channels` values further. The rows that a tile needs come by asynchronous copies while the block
//! computes on the tile before; results go through shared memory, so that whole lines are written. A warp has 16 neighbouring values.

use crate::abi::{Pass, Plane};
use crate::border;
use crate::device::*;
use crate::pixel::note;
use crate::tile::view::{Row, Source, Target};

/// Values of a row of a tile.
pub const WIDTH: i32 = 128;

/// Threads of a block.
pub const BLOCK: (u32, u32) = (32, 8);

/// Bytes of a row of results in shared memory: an odd multiple of 16, as the pitch is, so that neighbouring rows lie in other banks.
const RESULTS: i32 = WIDTH + 16;

/// The rows that a tile needs, in shared memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Rows of results of a tile: a multiple of 16.
    pub height: i32,
    /// Tap rows.
    pub rows: i32,
    /// The anchor's row.
    pub anchor_y: i32,
    /// How many bytes left of a tile its rows begin: a multiple of 16.
    pub left: i32,
    /// How many times 16 bytes are fetched of a row.
    pub chunks: i32,
    /// Bytes from one row to the next: an odd multiple of 16.
    pub pitch: i32,
}

/// How sums become bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Rounding {
    /// What the sums of the second of three digits begin with, and nothing; of fewer digits, what is added to a joined sum before the
    /// shift, and the bit that makes ties even.
    pub start: [i32; 2],
    /// Bits of a joined sum behind the point.
    pub shift: i32,
    /// With three digits, sums whose bits behind the point are less, shifted to the top, are in doubt.
    pub near: u32,
    /// The factors of products that take the place of shifts, as multiply-adds have a pipe of their own, and shifts share theirs with most of what is
    /// done to a sum: 2^8, for the third digit, and 2 to the power of `32 - shift`. The compiler must not know them.
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

    /// That of a joined sum of three digits with so many bits behind the point, which is in doubt if it is at most `near` units from a half. `start` is
    /// what the second digit's sums begin with.
    pub const fn of_three(start: i32, shift: i32, near: i32) -> Self {
        let top = 1 << (32 - shift);
        Self { start: [start, 0], shift, near: (2 * near as u32).wrapping_mul(top), third: 1 << 8, top }
    }

    /// A joined sum's bits behind the point, shifted to the top.
    #[inline(always)]
    pub(crate) fn behind(&self, whole: i32) -> u32 {
        (whole as u32).wrapping_mul(self.top)
    }
}

/// Rows of bytes in shared memory.
#[derive(Clone, Copy)]
pub(crate) struct Lines {
    pub(crate) rows: i32,
    /// Bytes from one row to the next: a multiple of 16.
    pub(crate) pitch: i32,
    /// How many times 16 bytes a row has.
    pub(crate) pieces: i32,
}

impl Frame {
    /// Rows that are fetched for a tile.
    #[inline(always)]
    pub const fn fetched(&self) -> i32 {
        self.height + self.rows - 1
    }

    /// Bytes of shared memory that a block needs.
    pub const fn shared_bytes(&self) -> i32 {
        2 * self.fetched() * self.pitch + self.height * RESULTS
    }
}

/// A tile of an image: its first value and row, and the image, or plane, as the z axis would count it.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    pub(crate) x: i32,
    pub(crate) y: i32,
    pub(crate) z: i32,
}

/// Where the rows of a tile are, and where its results go.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    /// The byte of shared memory at which the rows begin.
    pub(crate) rows: i32,
    /// The same of the results.
    pub(crate) results: i32,
}

/// The tiles of a pass, in the order in which blocks take them.
struct Tiles {
    height: i32,
    first: i32,
    top: i32,
    across: i32,
    down: i32,
    count: i32,
}

impl Tiles {
    #[inline(always)]
    fn new(pass: &Pass, height: i32, channels: i32, images: i32) -> Self {
        let region = &pass.region;
        let first = (region.x0 * channels) & !15;
        let across = (region.x1 * channels - first + WIDTH - 1) / WIDTH;
        // `checked`, so that no panic is compiled in: the height is not 0.
        let down = ((region.y1 - region.y0 + height - 1) as u32).checked_div(height as u32).unwrap_or(0) as i32;
        Self { height, first, top: region.y0, across, down, count: across * down * images }
    }

    #[inline(always)]
    fn tile(&self, number: i32) -> Tile {
        // `checked`, so that no panic is compiled in; there are tiles.
        let line = (number as u32).checked_div(self.across as u32).unwrap_or(0) as i32;
        let z = (line as u32).checked_div(self.down as u32).unwrap_or(0) as i32;
        let (column, row) = (number - line * self.across, line - z * self.down);
        Tile { x: self.first + WIDTH * column, y: self.top + self.height * row, z }
    }
}

/// Brings the rows of tile after tile, lets `sum_up` compute a tile's results from its rows, and writes them. `sum_up` takes the tile, the channels, and where rows and results are.
///
/// # Safety
/// `pass` describes allocated memory, with at most 2^30 values in a row. The launch has blocks of [`BLOCK`], any number of them in x, and
/// the shared memory that `frame` needs. `sum_up` does no more than is said.
#[inline(always)]
pub(crate) unsafe fn walk(
    pass: &Pass,
    frame: &Frame,
    (channels, filtered, images): (i32, i32, i32),
    sum_up: impl Fn(Tile, i32, Places),
) {
    let tiles = Tiles::new(pass, frame.height, channels, images);
    let mut number = block_x();
    if number >= tiles.count {
        return;
    }
    // Half of the shared memory for rows, in bytes; the results are behind both.
    let rows = frame.fetched() * frame.pitch;
    let mut buffer = 0;
    // SAFETY: all threads of the block do the same; the rest as the caller promised.
    unsafe {
        fetch(pass, frame, channels, tiles.tile(number), buffer);
        copies_commit();
        while number < tiles.count {
            // Hidden, here and below, so that all is computed anew for each tile: the sums want the registers.
            let channels = opaque(channels);
            let tiles = Tiles::new(pass, frame.height, channels, images);
            let (tile, next) = (tiles.tile(number), number + grid_width());
            // Nobody reads the other half any more: the barrier behind the last tile's sums stands in between.
            if next < tiles.count {
                fetch(pass, frame, channels, tiles.tile(next), rows - buffer);
            }
            copies_commit();
            copies_wait::<1>();
            barrier();
            sum_up(tile, channels, Places { rows: buffer, results: 2 * rows });
            barrier();
            write(pass, frame.height, (channels, filtered), tile, 2 * rows);
            buffer = rows - buffer;
            number = next;
        }
    }
}

/// Starts to bring the rows that a tile needs to shared memory, from byte `to` on.
///
/// # Safety
/// As for [`walk`]; nobody touches that memory before a wait for the copies, and a barrier.
#[inline(always)]
unsafe fn fetch(pass: &Pass, frame: &Frame, channels: i32, tile: Tile, to: i32) {
    let source = Source::of_channel(&pass.src, pass, tile.z * channels);
    let lines = Lines { rows: frame.fetched(), pitch: frame.pitch, pieces: frame.chunks };
    // SAFETY: as the caller promised.
    unsafe {
        bring::<{ 32 * BLOCK.1 as i32 }, 16>(
            pass,
            source,
            channels,
            (tile.x - frame.left, tile.y - frame.anchor_y),
            &lines,
            (i32::MIN / 2, i32::MAX / 2),
            to,
        )
    }
}

/// Starts to bring rows from row `top` and value `left` on to shared memory, from byte `to` on; all THREADS threads of a block call. ACROSS
/// of them take the pieces of a row, as far as there are so many. Values from number `needed.0` to before `needed.1` of each row are needed.
///
/// # Safety
/// `pass` describes allocated memory; nobody touches that shared memory before a wait for the copies, and a barrier.
#[inline(always)]
pub(crate) unsafe fn bring<const THREADS: i32, const ACROSS: i32>(
    pass: &Pass,
    source: Source<'_>,
    channels: i32,
    (left, top): (i32, i32),
    lines: &Lines,
    needed: (i32, i32),
    to: i32,
) {
    let (shared, plane) = (Shared::dynamic(), &pass.src);
    let Lines { rows, pitch, pieces } = *lines;
    let step = THREADS / ACROSS;
    let width = pass.width * channels;
    let whole = is_whole::<15>(plane, channels, source.origin());
    // Pieces from `lo` to before `hi` lie in the image.
    let inside = if whole { (width - left) >> 4 } else { 0 };
    let lo = if left < 0 { (15 - left) >> 4 } else { 0 };
    let hi = if inside < pieces { inside } else { pieces };
    let (lo, hi) = if lo < hi { (lo, hi) } else { (0, 0) };
    let thread = opaque(32 * thread_y() + thread_x());
    let (piece, first) = (thread % ACROSS, thread / ACROSS);
    // SAFETY: as the caller promised.
    unsafe {
        let mut at = opaque(lo + piece);
        if source.has_rows(top, top + rows) {
            let start = source.row_inside(top + first).at(0);
            while at < hi {
                let mut from = start.wrapping_add((left + 16 * at) as i64 as u64);
                let mut row = opaque(first);
                let mut place = (to + first * pitch + 16 * at) / 4;
                while row < rows {
                    shared.copy4(place, from as *const f32);
                    from = from.wrapping_add((step as i64 * plane.row) as u64);
                    place += step * pitch / 4;
                    row += step;
                }
                at += ACROSS;
            }
        } else {
            while at < hi {
                let mut row = opaque(first);
                while row < rows {
                    let (line, place) = (source.row(top + row), (to + row * pitch + 16 * at) / 4);
                    if line.is_inside() {
                        shared.copy4(place, line.at(0).wrapping_add((left + 16 * at) as i64 as u64) as *const f32);
                    } else {
                        shared.store4(place, [f32::from_bits(pass.outside as u32 * 0x0101_0101); 4]);
                    }
                    row += step;
                }
                at += ACROSS;
            }
        }
        // The others go word by word, as far as a result needs them: those left of `lo`, and those from `hi` on.
        let first_word = clamped((needed.0 - left) >> 2, 0, 4 * lo);
        let end_word = clamped((needed.1 - left + 3) >> 2, 4 * hi, 4 * pieces);
        let words = 4 * lo - first_word + end_word - 4 * hi;
        let mut task = opaque(thread);
        while task < rows * words {
            // `checked`, so that no panic is compiled in; there are words.
            let row = (task as u32).checked_div(words as u32).unwrap_or(0) as i32;
            let word = first_word + task - row * words;
            let at = if word < 4 * lo { word } else { word + 4 * (hi - lo) };
            let four = four(pass, source.row(top + row), channels, left + 4 * at);
            shared.store((to + row * pitch) / 4 + at, f32::from_bits(four));
            task += THREADS;
        }
        // What no result needs is 0.
        let mut row = if first_word > 0 || end_word < 4 * pieces { opaque(thread) } else { rows };
        while row < rows {
            let start = (to + row * pitch) / 4;
            let mut word = opaque(0);
            while word < 4 * pieces {
                if word < first_word || word >= end_word {
                    shared.store(start + word, 0.0);
                }
                word += 1;
            }
            row += THREADS;
        }
    }
}

/// A number, or the nearest one from `least` to `most`.
#[inline(always)]
pub(crate) fn clamped(number: i32, least: i32, most: i32) -> i32 {
    if number < least {
        least
    } else if number > most {
        most
    } else {
        number
    }
}

/// Whether values of a plane of bytes may be read or written several at once: side by side, with all rows at multiples of MASK + 1 bytes. `origin` is
/// the address of its first value.
#[inline(always)]
pub(crate) fn is_whole<const MASK: u64>(plane: &Plane, channels: i32, origin: u64) -> bool {
    let side_by_side = plane.pixel == channels && (channels == 1 || plane.channel == 1);
    side_by_side && (origin | plane.row as u64) & MASK == 0
}

/// Four values of a row from number `first` on, each found through the border rule.
///
/// # Safety
/// As for [`walk`].
#[inline(always)]
pub(crate) unsafe fn four(pass: &Pass, line: Row<'_>, channels: i32, first: i32) -> u32 {
    /// No window reaches as many pixels beside the image.
    const BESIDE: i32 = 4096;
    // Shifted by whole pixels, so that the division rounds down.
    let shifted = (first + channels * BESIDE) as u32;
    let mut pixel = shifted.checked_div(channels as u32).unwrap_or(0) as i32 - BESIDE;
    let mut channel = first - channels * pixel;
    let (mut bytes, mut found) = ([0; 4], [false; 4]);
    let mut i = 0;
    while i < 4 {
        let column = border::resolve(pass.border, pixel, pass.width);
        found[i] = column >= 0 && line.is_inside();
        // What is not found is loaded from elsewhere, so that no load waits for another one.
        let at = line.at(if column < 0 { 0 } else { column });
        let offset = channel as i64 * pass.src.channel;
        // SAFETY: it is a pixel of the image, in a row that is there.
        bytes[i] = unsafe { load_u8(at.wrapping_add(offset as u64)) };
        channel += 1;
        if channel == channels {
            channel = 0;
            pixel += 1;
        }
        i += 1;
    }
    let (mut word, mut i) = (0, 0);
    while i < 4 {
        word |= if found[i] { bytes[i] } else { pass.outside as u32 } << (8 * i);
        i += 1;
    }
    word
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
fn transposed<const P: usize>(words: [u32; P]) -> [u32; P] {
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

/// Makes bytes of the sums of 16 values and 16 rows, from row `down` of a tile on, as the lanes hold them after products, and puts them
/// to the results; notes those in doubt.
///
/// `sums[j][d]` are a lane's of half `j` and digit `d`. The values of the halves lie in turn, two by two.
///
/// # Safety
/// The results of these rows and of the warp's 16 values are this warp's, and there is a list of doubts.
#[inline(always)]
pub(crate) unsafe fn put(
    pass: &Pass,
    rounding: &Rounding,
    (channels, filtered): (i32, i32),
    (tile, down): (Tile, i32),
    sums: &[[[i32; 4]; 3]; 2],
    places: Places,
) {
    let shared = Shared::dynamic();
    let lane = opaque(thread_x());
    let (group, turn) = (lane >> 2, lane & 3);
    let beside = 16 * thread_y();
    let end = pass.region.y1 - tile.y;
    let (mut bits, mut least) = ([0; 8], u32::MAX);
    // Rows `group` and `group + 8` of 16.
    let mut lower = 0;
    while lower < 2 {
        let mut bytes = [0; 4];
        let mut v = 0;
        while v < 4 {
            let (j, at) = (v / 2, 2 * lower + v % 2);
            let whole = joined(rounding, &[sums[j][0][at], sums[j][1][at], sums[j][2][at]]);
            bytes[v] = whole >> rounding.shift;
            let behind = rounding.behind(whole);
            bits[4 * lower + v] = behind;
            least = if behind < least { behind } else { least };
            v += 1;
        }
        let to = places.results + (down + 8 * lower as i32 + group) * RESULTS + beside;
        let word = pack_bytes(bytes[1], bytes[0], pack_bytes(bytes[3], bytes[2], 0));
        // SAFETY: as the caller promised.
        unsafe { shared.store((to >> 2) + turn, f32::from_bits(word)) };
        lower += 1;
    }
    let mut doubts = 0;
    if least < rounding.near {
        let mut v = 0;
        while v < 8 {
            doubts |= if bits[v] < rounding.near { 1 << v } else { 0 };
            v += 1;
        }
    }
    let mut number = opaque(0);
    while doubts != 0 {
        let row = down + 8 * (number >> 2) + group;
        if doubts & 1 != 0 && row < end {
            let value = tile.x + beside + 4 * turn + (number & 3);
            // SAFETY: as the caller promised.
            unsafe { note_value(pass, (channels, filtered), (value, tile.y + row, tile.z)) };
        }
        doubts >>= 1;
        number = opaque(number + 1);
    }
}

/// Notes that value `value` of row `y` is in doubt, if it lies in the region's columns, and if its channel is filtered.
///
/// # Safety
/// The pass has a list.
#[inline(always)]
pub(crate) unsafe fn note_value(pass: &Pass, (channels, filtered): (i32, i32), (value, y, z): (i32, i32, i32)) {
    let pixel = (value as u32).checked_div(channels as u32).unwrap_or(0) as i32;
    let channel = value - channels * pixel;
    if value >= 0 && pixel >= pass.region.x0 && pixel < pass.region.x1 && channel < filtered {
        // Channels that are not filtered are not counted in the list.
        // SAFETY: as the caller promised.
        unsafe { note(pass, pixel, y, z * filtered + channel) };
    }
}

/// The sums of the digits as one number: with three digits without its lowest 8 bits, else rounded to a whole number.
#[inline(always)]
pub(crate) fn joined<const D: usize>(rounding: &Rounding, digits: &[i32; D]) -> i32 {
    if D == 3 {
        let lower = digits[1 % D].wrapping_add(digits[0] >> 8);
        return digits[2 % D].wrapping_mul(rounding.third).wrapping_add(lower);
    }
    let whole = if D == 2 { digits[0].wrapping_add(digits[1 % D] << 8) } else { digits[0] };
    whole.wrapping_add(rounding.start[0]).wrapping_add(whole >> rounding.shift & rounding.start[1]) >> rounding.shift
}

/// Writes the results of a tile that lie in the region, from byte `results` of shared memory on.
///
/// # Safety
/// As for [`walk`]; the results are there.
#[inline(always)]
unsafe fn write(pass: &Pass, height: i32, (channels, filtered): (i32, i32), tile: Tile, results: i32) {
    const PIECES: i32 = WIDTH / 16;
    let (shared, region, plane) = (Shared::dynamic(), &pass.region, &pass.dst);
    let thread = opaque(32 * thread_y() + thread_x());
    let x = tile.x + 16 * (thread % PIECES);
    let (first, end) = (region.x0 * channels, region.x1 * channels);
    if x + 16 <= first || x >= end {
        return;
    }
    let origin = plane.origin(tile.z * channels, &pass.channels);
    let source = Source::of_channel(&pass.src, pass, tile.z * channels);
    let whole = is_whole::<15>(plane, channels, origin) && x >= first && x + 16 <= end;
    // Of four channels side by side the last one may be copied, word by word.
    let keeps = filtered != channels;
    let copies = keeps && (filtered, channels) == (3, 4) && is_whole::<15>(&pass.src, channels, source.origin());
    let mut row = thread / PIECES;
    while row < height && tile.y + row < region.y1 {
        let y = tile.y + row;
        let from = results + row * RESULTS + 16 * (thread % PIECES);
        // SAFETY: each value is stored only if it lies in the region; a pixel of the region lies in the source.
        unsafe {
            if whole && (copies || !keeps) {
                let mut words = shared.load4(from / 4).map(f32::to_bits);
                if copies {
                    let pixels = load_words::<4>(source.row_inside(y).at(0).wrapping_add(x as u64));
                    let mut w = 0;
                    while w < 4 {
                        words[w] = permute::<0x7210>(words[w], pixels[w]);
                        w += 1;
                    }
                }
                let line = origin.wrapping_add((y as i64 * plane.row) as u64);
                store_words(line.wrapping_add(x as u64), words);
            } else {
                let byte = |i: i32| shared.load_word((from + i) / 4) >> (8 * (i & 3));
                write_values::<16>(pass, (channels, filtered), (x, y, tile.z), byte);
            }
        }
        row += 32 * BLOCK.1 as i32 / PIECES;
    }
}

/// Writes COUNT results of row `y` from value `x` on one by one, as far as they lie in the region; `byte` has each in its lowest bits.
///
/// # Safety
/// As for [`walk`].
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
