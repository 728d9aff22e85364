//! Direct correlation of bytes to bytes on the tensor cores, in whole numbers.
//!
//! Taps are whole multiples of a power of two, cut into one, two or three signed bytes: their digits to the base 256. A product of
//! bytes and the sums of such products are exact, so their order is of no account. The sums of each digit are joined, and rounded once.
//!
//! Tiling: a block has a tile of 128 values of a row and 96 rows, one after the other; a value is a channel of a pixel, and the same
//! channel of the next pixel is `channels` values further. The rows that a tile needs come by asynchronous copies while the block
//! computes on the tile before; results go through shared memory, so that whole lines are written.
//!
//! Thread mapping: a warp has 16 neighbouring values, and takes M times 16 rows at a time. The image is the first factor: 16 rows of 32 bytes, of which a lane
//! holds four words of four neighbours. The second factor is a band: in column `n`, the taps of a row from byte `n` on; zero elsewhere. So the
//! product has, for 16 rows and 8 columns, the sums of a row of taps. The 32 bytes are two halves of 16, from any two places: those that the
//! taps of a row reach, half after half, and then the next row's. The host makes the bands, as the lanes take them, and the list of places.
//!
//! With J = 2, the 16 values of a warp share the image's bytes: they need the bytes that 16 values reach. With J = 1 each 8 values have
//! bytes of their own, and the same band: small windows, and some wide ones, have fewer halves so. Fewer sums are held at a time then, and more
//! blocks run on a multiprocessor.
//!
//! Rounding: with one or two digits the taps are exact, and so is the joined sum; it is rounded half to even. With three, taps may be off
//! by half of the last digit's unit. Where that, or what the joining cuts off, could change the byte, the result goes to the pass's list.
//!
//! Limits: bytes to bytes, no epilogue; windows of up to 65536 taps, so that no sum of a digit overflows; a row of taps reaches over at most
//! a row of shared memory, of PITCH bytes; outside the image nothing but bytes. KEEP is left to `keep.rs`.

use crate::abi::Pass;
use crate::border;
use crate::device::*;
use crate::pixel::note;
use crate::tile::view::{Row, Source, Target};

/// Values and rows of a tile.
pub const TILE: (i32, i32) = (128, 96);

/// Threads of a block.
pub const BLOCK: (u32, u32) = (32, 8);

/// Bytes of a row of results in shared memory: an odd multiple of 16, as PITCH is, so that neighbouring rows lie in other banks.
const RESULTS: i32 = TILE.0 + 16;

/// Bytes of shared memory for so many tap rows.
pub const fn shared_bytes(pitch: i32, tap_rows: i32) -> i32 {
    2 * (TILE.1 + tap_rows - 1) * pitch + TILE.1 * RESULTS
}

/// The second factors, and how sums become bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bands {
    /// The address of the places of each step's halves: for each two numbers, of words from a lane's first one in shared memory. There is
    /// one pair more, which is read and of no account.
    pub places: u64,
    /// The address of the fragments: for each step, digit (from the lowest on) and band two words of each lane.
    pub fragments: u64,
    /// Pairs of halves.
    pub steps: i32,
    /// Tap rows.
    pub rows: i32,
    /// The anchor's row.
    pub anchor_y: i32,
    /// How many bytes left of a tile its rows begin: a multiple of 16.
    pub left: i32,
    /// How many times 16 bytes are fetched of a row.
    pub chunks: i32,
    /// What the sums of the first and the second of three digits begin with; of fewer digits, what is added to a joined sum before the
    /// shift, and the bit that makes ties even.
    pub start: [i32; 2],
    /// Bits of a joined sum behind the point.
    pub shift: i32,
    /// With three digits, sums whose bits behind the point are less, shifted to the top, are in doubt.
    pub near: u32,
}

/// Declares the entries `name: digits, bands of a digit, both together, how many times 16 rows a warp computes at a time, bytes of a row in
/// shared memory, the most registers of a thread`, and lists them.
macro_rules! matrix {
    ($($name:ident: $d:literal, $j:literal, $f:literal, $m:literal, $pitch:literal, $limit:literal;)*) => {
        kernel! {$(
            fn $name(pass: Pass, bands: Bands, channels: i32, filtered: i32, images: i32) {
                directive!($limit);
                filter::<$d, $j, $f, $m, $pitch>(&pass, &bands, channels, filtered, images)
            }
        )*}

        host! {
            /// The entries; of those that take a problem, the first is the fastest.
            pub const ENTRIES: &[Matrix] =
                &[$(Matrix { entry: $name, digits: $d, bands: $j, pitch: $pitch }),*];
        }
    };
}

matrix! {
    matrix_1_near: 1, 2, 2, 3, 176, ".maxnreg 80";
    matrix_2_near: 2, 2, 4, 3, 176, ".maxnreg 128";
    matrix_3_near: 3, 2, 6, 3, 176, ".maxnreg 128";
    matrix_1_apart: 1, 1, 1, 2, 176, ".maxnreg 80";
    matrix_2_apart: 2, 1, 2, 2, 176, ".maxnreg 80";
    matrix_3_apart: 3, 1, 3, 2, 176, ".maxnreg 80";
    matrix_1_wide: 1, 2, 2, 3, 272, ".maxnreg 80";
    matrix_2_wide: 2, 2, 4, 3, 272, ".maxnreg 128";
    matrix_3_wide: 3, 2, 6, 3, 272, ".maxnreg 128";
}

host! {
    /// An entry: the pass, the bands, the channels of a pixel, how many of them are filtered, the images.
    #[derive(Clone, Copy, Debug)]
    pub struct Matrix {
        /// What to launch.
        pub entry: crate::entry::Entry<(Pass, Bands, i32, i32, i32)>,
        /// Digits of a tap.
        pub digits: u32,
        /// Bands of a digit in a step: 2 if 16 values share the image's bytes, 1 if each 8 values have their own.
        pub bands: i32,
        /// Bytes from one row to the next in shared memory.
        pub pitch: i32,
    }
}

/// A tile of an image: its first value and row, and the image, or plane, as the z axis would count it.
#[derive(Clone, Copy)]
struct Tile {
    x: i32,
    y: i32,
    z: i32,
}

/// The tiles of a pass, in the order in which blocks take them.
struct Tiles {
    first: i32,
    top: i32,
    across: i32,
    down: i32,
    count: i32,
}

impl Tiles {
    #[inline(always)]
    fn new(pass: &Pass, channels: i32, images: i32) -> Self {
        let region = &pass.region;
        let first = (region.x0 * channels) & !15;
        let across = (region.x1 * channels - first + TILE.0 - 1) / TILE.0;
        let down = (region.y1 - region.y0 + TILE.1 - 1) / TILE.1;
        Self { first, top: region.y0, across, down, count: across * down * images }
    }

    #[inline(always)]
    fn tile(&self, number: i32) -> Tile {
        // `checked`, so that no panic is compiled in; there are tiles.
        let line = (number as u32).checked_div(self.across as u32).unwrap_or(0) as i32;
        let z = (line as u32).checked_div(self.down as u32).unwrap_or(0) as i32;
        let (column, row) = (number - line * self.across, line - z * self.down);
        Tile { x: self.first + TILE.0 * column, y: self.top + TILE.1 * row, z }
    }
}

/// Filters tile after tile.
///
/// # Safety
/// `pass` describes allocated memory and keeps the limits above; `bands` are made for it. The launch has the block shape stated above,
/// any number of blocks in x, and [`shared_bytes`] of shared memory.
#[inline(always)]
unsafe fn filter<const D: usize, const J: usize, const F: usize, const M: usize, const PITCH: i32>(
    pass: &Pass,
    bands: &Bands,
    channels: i32,
    filtered: i32,
    images: i32,
) {
    const { assert!(F == D * J && (PITCH / 16) % 2 == 1) }
    let tiles = Tiles::new(pass, channels, images);
    let mut number = block_x();
    if number >= tiles.count {
        return;
    }
    // Half of the shared memory for rows, in bytes; the results are behind both.
    let rows = (TILE.1 + bands.rows - 1) * PITCH;
    let mut buffer = 0;
    // SAFETY: all threads of the block do the same; the rest as the caller promised.
    unsafe {
        fetch::<PITCH>(pass, bands, channels, tiles.tile(number), buffer);
        copies_commit();
        while number < tiles.count {
            // Hidden, here and below, so that all is computed anew for each tile: the sums want the registers.
            let channels = opaque(channels);
            let tiles = Tiles::new(pass, channels, images);
            let (tile, next) = (tiles.tile(number), number + grid_width());
            // Nobody reads the other half any more: the barrier behind the last tile's sums stands in between.
            if next < tiles.count {
                fetch::<PITCH>(pass, bands, channels, tiles.tile(next), rows - buffer);
            }
            copies_commit();
            copies_wait::<1>();
            barrier();
            sum_up::<D, J, F, M, PITCH>(pass, bands, (channels, filtered), tile, (buffer, 2 * rows));
            barrier();
            write(pass, (channels, filtered), tile, 2 * rows);
            buffer = rows - buffer;
            number = next;
        }
    }
}

/// Starts to bring the rows that a tile needs to shared memory, from byte `to` on.
///
/// # Safety
/// As for [`filter`]; nobody touches that memory before a wait for the copies, and a barrier.
#[inline(always)]
unsafe fn fetch<const PITCH: i32>(pass: &Pass, bands: &Bands, channels: i32, tile: Tile, to: i32) {
    let (shared, plane) = (Shared::dynamic(), &pass.src);
    let source = Source::of_channel(plane, pass, tile.z * channels);
    let rows = TILE.1 + bands.rows - 1;
    let (left, top) = (tile.x - bands.left, tile.y - bands.anchor_y);
    let width = pass.width * channels;
    let whole = is_whole(plane.pixel, plane.channel, channels, source.origin() | plane.row as u64);
    // Pieces from `lo` to before `hi` lie in the image. 16 threads take those of a row, as far as there are so many.
    let inside = if whole { (width - left) >> 4 } else { 0 };
    let lo = if left < 0 { (15 - left) >> 4 } else { 0 };
    let hi = if inside < bands.chunks { inside } else { bands.chunks };
    let (lo, hi) = if lo < hi { (lo, hi) } else { (0, 0) };
    let thread = opaque(32 * thread_y() + thread_x());
    let (piece, first) = (thread & 15, thread >> 4);
    // SAFETY: as the caller promised.
    unsafe {
        let mut at = opaque(lo + piece);
        if source.has_rows(top, top + rows) {
            let start = source.row_inside(top + first).at(0);
            while at < hi {
                let mut from = start.wrapping_add((left + 16 * at) as i64 as u64);
                let mut row = opaque(first);
                let mut place = (to + first * PITCH + 16 * at) / 4;
                while row < rows {
                    shared.copy4(place, from as *const f32);
                    from = from.wrapping_add((16 * plane.row) as u64);
                    place += 4 * PITCH;
                    row += 16;
                }
                at += 16;
            }
        } else {
            while at < hi {
                let mut row = opaque(first);
                while row < rows {
                    let (line, place) = (source.row(top + row), (to + row * PITCH + 16 * at) / 4);
                    if line.is_inside() {
                        shared.copy4(place, line.at(0).wrapping_add((left + 16 * at) as i64 as u64) as *const f32);
                    } else {
                        shared.store4(place, [f32::from_bits(pass.outside as u32 * 0x0101_0101); 4]);
                    }
                    row += 16;
                }
                at += 16;
            }
        }
        // The others go word by word: 8 threads take those of a row.
        let words = 4 * (bands.chunks - hi + lo);
        if words > 0 {
            let mut row = opaque(thread >> 3);
            while row < rows {
                let line = source.row(top + row);
                let mut word = opaque(thread & 7);
                while word < words {
                    let at = if word < 4 * lo { word } else { word + 4 * (hi - lo) };
                    let four = four(pass, line, channels, left + 4 * at);
                    shared.store((to + row * PITCH) / 4 + at, f32::from_bits(four));
                    word += 8;
                }
                row += 32;
            }
        }
    }
}

/// Whether 16 values of a plane may be read or written at once: side by side, at multiples of 16 bytes.
#[inline(always)]
fn is_whole(pixel: i32, channel: i64, channels: i32, steps: u64) -> bool {
    pixel == channels && (channels == 1 || channel == 1) && steps & 15 == 0
}

/// Four values of a row from number `first` on, each found through the border rule.
///
/// # Safety
/// As for [`filter`].
#[inline(always)]
unsafe fn four(pass: &Pass, line: Row<'_>, channels: i32, first: i32) -> u32 {
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

/// Computes this warp's part of a tile from the rows at byte `rows` of shared memory, and puts the bytes to those from `results` on.
///
/// # Safety
/// As for [`filter`]; the rows are there.
#[inline(always)]
unsafe fn sum_up<const D: usize, const J: usize, const F: usize, const M: usize, const PITCH: i32>(
    pass: &Pass,
    bands: &Bands,
    (channels, filtered): (i32, i32),
    tile: Tile,
    (rows, results): (i32, i32),
) {
    const { assert!(TILE.1 % (16 * M as i32) == 0 && M <= 4) }
    let (shared, region) = (Shared::dynamic(), &pass.region);
    let lane = opaque(thread_x());
    let (group, turn) = (lane >> 2, lane & 3);
    let x = tile.x + 16 * thread_y();
    if x + 16 <= region.x0 * channels || x >= region.x1 * channels {
        return;
    }
    let mut down = opaque(0);
    while down < TILE.1 && tile.y + down < region.y1 {
        let base = (rows + (down + group) * PITCH + 16 * thread_y() + 4 * turn) / 4;
        let mut sums = [[[[0; 4]; D]; 2]; M];
        if D == 3 {
            let mut m = 0;
            while m < M {
                sums[m][0][0] = [bands.start[0]; 4];
                sums[m][1][0] = [bands.start[0]; 4];
                sums[m][0][1 % D] = [bands.start[1]; 4];
                sums[m][1][1 % D] = [bands.start[1]; 4];
                m += 1;
            }
        }
        let mut place = bands.places;
        let mut fragment = bands.fragments.wrapping_add(8 * lane as u64);
        // SAFETY: there are places, and one more pair behind the last.
        let mut next = unsafe { load_words::<2>(place) };
        let mut step = opaque(0);
        while step < bands.steps {
            // SAFETY: there are so many places and fragments; the places lie in the rows. All lanes are here.
            unsafe {
                let halves = next;
                place = place.wrapping_add(8);
                next = load_words::<2>(place);
                let mut factors = [[0; 2]; F];
                let mut i = 0;
                while i < F {
                    factors[i] = load_words::<2>(fragment.wrapping_add(256 * i as u64));
                    i += 1;
                }
                let at = [base + halves[0] as i32, base + halves[1] as i32];
                let mut m = 0;
                while m < M {
                    let mut image = [0; 4];
                    let mut j = 0;
                    while j < 2 {
                        if j == 0 || J == 1 {
                            let first = m as i32 * 4 * PITCH + 2 * j as i32;
                            let eighth = first + 2 * PITCH;
                            image = [
                                shared.load_word(at[0] + first),
                                shared.load_word(at[0] + eighth),
                                shared.load_word(at[1] + first),
                                shared.load_word(at[1] + eighth),
                            ];
                        }
                        let mut d = 0;
                        while d < D {
                            sums[m][j][d] = mma(sums[m][j][d], image, factors[d * J + j % J]);
                            d += 1;
                        }
                        j += 1;
                    }
                    m += 1;
                }
            }
            fragment = fragment.wrapping_add(256 * F as u64);
            // Hidden, so that the loop stays as it is where registers are few.
            step = if M == 2 { opaque(step + 1) } else { step + 1 };
        }
        let mut doubts = 0;
        let mut m = 0;
        while m < 2 * M {
            // Rows `group` and `group + 8` of each 16.
            let (above, pair) = (m / 2, 2 * (m % 2));
            let mut bytes = [[0; 2]; 2];
            let (mut bits, mut least) = ([[0; 2]; 2], u32::MAX);
            let mut v = 0;
            while v < 4 {
                let (j, i) = (v / 2, v % 2);
                let mut digits = [0; D];
                let mut d = 0;
                while d < D {
                    digits[d] = sums[above][j][d][pair + i];
                    d += 1;
                }
                bytes[j][i] = joined(bands, &digits);
                if D == 3 {
                    let whole = bytes[j][i];
                    bytes[j][i] = whole >> bands.shift;
                    bits[j][i] = (whole as u32) << (32 - bands.shift);
                    least = if bits[j][i] < least { bits[j][i] } else { least };
                }
                v += 1;
            }
            let to = results + (down + 8 * m as i32 + group) * RESULTS + 16 * thread_y();
            // SAFETY: the place in the results is this lane's.
            unsafe {
                if J == 2 {
                    let high = pack_bytes(bytes[1][1], bytes[1][0], 0);
                    let word = pack_bytes(bytes[0][1], bytes[0][0], high);
                    shared.store(to / 4 + turn, f32::from_bits(word));
                } else {
                    shared.store_u16(to + 2 * turn, pack_bytes(bytes[0][1], bytes[0][0], 0));
                    shared.store_u16(to + 2 * turn + 8, pack_bytes(bytes[1][1], bytes[1][0], 0));
                }
            }
            if D == 3 && least < bands.near {
                let mut v = 0;
                while v < 4 {
                    doubts |= if bits[v / 2][v % 2] < bands.near { 1 << (4 * m + v) } else { 0 };
                    v += 1;
                }
            }
            m += 1;
        }
        let mut number = opaque(0);
        while doubts != 0 {
            if doubts & 1 != 0 {
                let y = tile.y + down + 8 * (number >> 2) + group;
                let (j, i) = (number >> 1 & 1, number & 1);
                let value = x + if J == 2 { 4 * turn + 2 * j + i } else { 8 * j + 2 * turn + i };
                let pixel = (value as u32).checked_div(channels as u32).unwrap_or(0) as i32;
                let channel = value - channels * pixel;
                if y < region.y1 && pixel >= region.x0 && pixel < region.x1 && channel < filtered {
                    // Channels that are not filtered are not counted in the list.
                    // SAFETY: with three digits there is a list.
                    unsafe { note(pass, pixel, y, tile.z * filtered + channel) };
                }
            }
            doubts >>= 1;
            number = opaque(number + 1);
        }
        down += 16 * M as i32;
    }
}

/// The sums of the digits as one number: with three digits without its lowest 8 bits, else rounded to a whole number.
#[inline(always)]
fn joined<const D: usize>(bands: &Bands, digits: &[i32; D]) -> i32 {
    if D == 3 {
        let lower = digits[1 % D].wrapping_add(digits[0] >> 8);
        return lower.wrapping_add(digits[2 % D] << 8);
    }
    let whole = if D == 2 { digits[0].wrapping_add(digits[1 % D] << 8) } else { digits[0] };
    whole.wrapping_add(bands.start[0]).wrapping_add(whole >> bands.shift & bands.start[1]) >> bands.shift
}

/// Writes the results of a tile that lie in the region, from byte `results` of shared memory on.
///
/// # Safety
/// As for [`filter`]; the results are there.
#[inline(always)]
unsafe fn write(pass: &Pass, (channels, filtered): (i32, i32), tile: Tile, results: i32) {
    const PIECES: i32 = TILE.0 / 16;
    let (shared, region, plane) = (Shared::dynamic(), &pass.region, &pass.dst);
    let thread = opaque(32 * thread_y() + thread_x());
    let x = tile.x + 16 * (thread % PIECES);
    let (first, end) = (region.x0 * channels, region.x1 * channels);
    if x + 16 <= first || x >= end {
        return;
    }
    let origin = plane.origin(tile.z * channels, &pass.channels);
    let source = Source::of_channel(&pass.src, pass, tile.z * channels);
    let whole =
        is_whole(plane.pixel, plane.channel, channels, origin | plane.row as u64) && x >= first && x + 16 <= end;
    // Of four channels side by side the last one may be copied, word by word.
    let keeps = filtered != channels;
    let steps = source.origin() | pass.src.row as u64;
    let copies = keeps && (filtered, channels) == (3, 4) && is_whole(pass.src.pixel, pass.src.channel, channels, steps);
    let mut row = thread / PIECES;
    while row < TILE.1 && tile.y + row < region.y1 {
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
                write_values(pass, (channels, filtered), (x, y, tile.z), from);
            }
        }
        row += 32 * BLOCK.1 as i32 / PIECES;
    }
}

/// Writes 16 results of row `y` from value `x` on one by one, as far as they lie in the region.
///
/// # Safety
/// As for [`write`].
#[inline(always)]
unsafe fn write_values(pass: &Pass, (channels, filtered): (i32, i32), (x, y, z): (i32, i32, i32), from: i32) {
    let source = Source::of_channel(&pass.src, pass, z * channels);
    let target = Target::of_channel(pass, z * channels);
    let mut i = opaque(0);
    while i < 16 {
        let pixel = ((x + i) as u32).checked_div(channels as u32).unwrap_or(0) as i32;
        let channel = x + i - channels * pixel;
        if pixel >= pass.region.x0 && pixel < pass.region.x1 {
            // SAFETY: the value lies in the region.
            unsafe {
                let byte = if channel < filtered {
                    Shared::dynamic().load_word((from + i) / 4) >> (8 * (i & 3))
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
