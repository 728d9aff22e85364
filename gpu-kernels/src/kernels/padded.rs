//! Bytes in doubt under large windows, where they are many: their sums in whole numbers, of a copy of the image.
//!
//! `pad_bytes` makes the copy, if any result is in doubt: what the border puts around the image is part of it, so that no window leaves it, and each channel lies by itself, so
//! that what lies under a window's row are neighbours in memory. A thread makes four neighbours of ROWS rows, of each channel of an image. A block has 32 x 8 threads: 128 columns
//! and 32 rows, of which it finds whether each is like the one above (see `alike.rs`). The grid's z axis counts images.
//!
//! `settle_padded` has blocks take LISTED results at a time, those that are next (see `counted.rs`), and RESULTS of them together, as `wide.rs` does. A thread takes
//! every 256th word of the window, which is four taps of a row, and the four bytes under it of each result. Taps are whole numbers of DIGITS digits of eight bits, so that one
//! instruction multiplies four bytes by a digit of four taps and adds the products up.
//! A tap of the result's own pixel that outweighs all others is not among them, as it would leave the others few digits.
//! Where windows below each other hold the same, one of them is taken for all (see `alike.rs`).
//! Order of accumulation: whole numbers, digit by digit; then the threads' sums in f64, as in `wide.rs`. What taps lose as whole numbers is part of
//! the error within which the byte is not decided, and a warp computes the sum that defines it.
//! Shared memory: as `wide.rs`, whose first word says where the block is.
//! Limits: bytes alone, no epilogue; what is outside the image is a byte; at most 2^22 taps, and fewer than 2^31 results. The copy lies less than
//! 2^31 bytes behind the counts; its rows begin at multiples of four bytes, and have [`BEYOND`] columns behind the last.

use super::alike::{self, Alike};
use super::counted::Counts;
use super::settle::{Place, Walk};
use super::wide::{COUNTS, Exact, RESULTS, THREADS, add_up, finish, list, starts};
use crate::abi::{Pass, Plane, Window};
use crate::border;
use crate::device::*;
use crate::tile::view::{Row, Source};

/// Threads of a block of `pad_bytes`.
pub const BLOCK: (u32, u32) = (32, 8);
/// Columns and rows of a block of `pad_bytes`.
pub const TILE: (u32, u32) = (128, 8 * ROWS as u32);
/// Rows that a thread makes together, and reads: these, and the one above.
const ROWS: usize = 4;
const READ: usize = ROWS + 1;
const _: () = assert!(TILE.0 as i32 == alike::TILE.0 && TILE.1 as i32 == alike::TILE.1);
/// Columns that a thread may read behind the last of a window.
pub const BEYOND: i32 = 8;
/// Digits of a tap.
pub const DIGITS: usize = 5;
/// The greatest tap as a whole number: digits are from -128 to 127.
pub const GREATEST: i64 = 127 * ((1 << (8 * DIGITS)) - 1) / 255;
/// Words of taps of so many, with those behind them that threads may read.
pub const fn words(count: usize) -> usize {
    const BLOCK: usize = THREADS as usize;
    count.next_multiple_of(2 * BLOCK) + BLOCK
}
/// The most taps for which a thread's sums have 32 bits.
pub const MOST: i32 = 1 << 22;
/// Words of taps whose digits lie together in memory: the first digit of all of them, then the next.
pub const TOGETHER: usize = 32;
/// Results that a block of `settle_padded` lists at a time, at most.
const LISTED: i32 = 2 * RESULTS as i32;

/// What `settle_padded` computes with.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Padded {
    /// The copy.
    pub from: Plane,
    /// How many results are in doubt.
    pub counts: Counts,
    /// Where rows of the copy repeat.
    pub alike: Alike,
    /// The address of the digits of the window's taps, each row with words of its own.
    pub digits: u64,
    /// What whole numbers count multiples of.
    pub unit: f64,
    /// The tap of the result's own pixel, if it is not among them, else 0.
    pub point: f64,
    /// A sum is nearer than this to the one that defines the byte.
    pub error: f64,
}

kernel! {
    /// Stores the region, which may be larger than the image, to the destination, if there are results to settle. An image has so many of all planes.
    /// Finds, too, where rows of the copy repeat, if its tiles are given.
    fn pad_bytes(pass: Pass, channels: i32, planes: i32, counts: Counts, alike: Alike) {
        directive!(".maxnreg 80");
        if counts.all() != 0 {
            let x = pass.region.aligned_left() + 4 * (block_x() * block_width() + thread_x());
            let (mut row, first) = (block_y(), block_z() * channels);
            let end = (first + channels).min(planes);
            let mut top = pass.region.y0 + row * TILE.1 as i32;
            while top < pass.region.y1 {
                let y = top + ROWS as i32 * thread_y();
                let is_there = x < pass.region.x1 && y < pass.region.y1;
                let differs = if is_there { pad(&pass, (x, y), (first, end)) } else { 0 };
                let mut z = first;
                while alike.at != 0 && z < end {
                    let found = if barrier_or(differs & bit(z - first) != 0) { 0 } else { alike::ROWS };
                    if thread_y() == 0 {
                        alike.note((block_x(), row, z), found);
                    }
                    z = opaque(z + 1);
                }
                row += grid_height();
                top += grid_height() * TILE.1 as i32;
            }
        }
    }

    /// Settles the results in the pass's list. `taps` are the address of the window's taps in f64, row by row.
    fn settle_padded(pass: Pass, window: Window, taps: u64, planes: i32, padded: Padded) {
        directive!(".maxnreg 128");
        let Padded { point, error, alike, .. } = padded;
        let exact = Exact { taps, point, error, from: &padded.from, is_padded: true, alike };
        let all = padded.counts.left();
        // Where they are few, no block should be waited for that has taken more than the others.
        let together = if all < 4 * LISTED * grid_width() { RESULTS as i32 } else { LISTED };
        let (shared, mut turn) = (Shared::dynamic(), opaque(0));
        let is_first = thread_x() == 0 && thread_y() == 0;
        // The next ones' number comes while these are taken.
        let mut next = if is_first { padded.counts.take(together) } else { 0 };
        loop {
            if thread_y() == 0 {
                if thread_x() == 0 {
                    shared.store(0, f32::from_bits(next as u32));
                }
                warp_barrier();
                let number = shared.load_word(0) as i32 + thread_x();
                let is_there = thread_x() < together && number < all;
                let result = if is_there { padded.counts.result(&pass, &window, planes, number) } else { (Place::NONE, true) };
                list(&pass, &window, exact, result);
            }
            barrier();
            if shared.load_word(0) as i32 >= all {
                break;
            }
            if is_first {
                next = padded.counts.take(together);
            }
            let listed = shared.load_word(COUNTS) as i32;
            let mut at = opaque(0);
            while at < listed {
                add_up(sums(&window, &padded, starts((at, listed))), turn);
                finish(&pass, &window, exact, (at, listed), turn);
                turn += 1;
                at += RESULTS as i32;
            }
            // The list is in use until all are here.
            barrier();
        }
    }
}

/// What a thread's words make of the results whose windows begin there.
///
/// # Safety
/// The windows lie in allocated memory, with BEYOND columns behind them; so do the digits, with zeros behind them: to a multiple of two words for each of a block's threads, and one more.
#[inline(always)]
unsafe fn sums(window: &Window, padded: &Padded, starts: [u64; RESULTS]) -> [f64; RESULTS] {
    let thread = 32 * thread_y() + thread_x();
    let words = Window { cols: (window.cols + 3) / 4, ..*window };
    let mut walk = Walk::new(&words, thread, THREADS);
    let mut digits =
        padded.digits.wrapping_add(4 * (DIGITS * TOGETHER) as u64 * thread_y() as u64 + 4 * thread_x() as u64);
    let mut left_over = words.cols * words.rows - thread;
    let mut sums = [[0; DIGITS]; RESULTS];
    // In bytes from the counts on, behind which the copy lies: half the registers of addresses.
    let (base, starts) = (padded.counts.at, starts.map(|start| start.wrapping_sub(padded.counts.at) as u32));
    let mut load = || {
        let (column, row) = walk.next(&words);
        let offset = (row as u32).wrapping_mul(padded.from.row as u32).wrapping_add(4 * column as u32);
        let mut turn = Turn { low: [0; RESULTS], high: [0; RESULTS], taps: [0; DIGITS] };
        // SAFETY: as the caller promised; a window's first word begins up to three bytes before it, in the same word of memory. Behind the last row comes
        // that one again.
        unsafe {
            let mut i = 0;
            while i < RESULTS {
                let at = base.wrapping_add((starts[i] & !3).wrapping_add(offset) as u64);
                [turn.low[i]] = load_words(at);
                [turn.high[i]] = load_words(at.wrapping_add(4));
                i += 1;
            }
            let mut d = 0;
            while d < DIGITS {
                [turn.taps[d]] = load_words(digits.wrapping_add(4 * (TOGETHER * d) as u64));
                d += 1;
            }
        }
        digits = digits.wrapping_add(4 * (DIGITS * THREADS as usize) as u64);
        turn
    };
    // The next ones are under way while these are multiplied, in registers of their own.
    let mut these = load();
    while left_over > 0 {
        let next = load();
        these.add(&starts, &mut sums);
        these = load();
        next.add(&starts, &mut sums);
        left_over -= 2 * THREADS;
    }
    sums.map(|digits| mul_f64(whole(digits), padded.unit))
}

/// A word of each window, and of the taps.
struct Turn {
    /// The words in memory in which it begins and ends.
    low: [u32; RESULTS],
    high: [u32; RESULTS],
    taps: [u32; DIGITS],
}

impl Turn {
    /// Adds the products to the sums of windows that begin at these bytes.
    #[inline(always)]
    fn add(&self, starts: &[u32; RESULTS], sums: &mut [[i32; DIGITS]; RESULTS]) {
        let mut i = 0;
        while i < RESULTS {
            let bytes = funnel(self.low[i], self.high[i], 8 * starts[i]);
            let mut d = 0;
            while d < DIGITS {
                sums[i][d] = dot(bytes, self.taps[d], sums[i][d]);
                d += 1;
            }
            i += 1;
        }
    }
}

/// The number that has these digits, each a sum of such.
#[inline(always)]
fn whole(digits: [i32; DIGITS]) -> f64 {
    /// `2^52`, in whose last bits a word is a number; and that plus `2^31`.
    const SHIFT: u64 = (1023 + 52) << 52;
    const MIDDLE: f64 = f64::from_bits(SHIFT | 1 << 31);
    let mut number = 0.0;
    let mut d = DIGITS;
    while d > 0 {
        d -= 1;
        let digit = add_f64(f64::from_bits(SHIFT | (digits[d] as u32 ^ 1 << 31) as u64), -MIDDLE);
        number = fma_f64(number, 256.0, digit);
    }
    number
}

/// The bit of a channel of an image, counted from its first; those behind the 31st share one.
#[inline(always)]
fn bit(channel: i32) -> u32 {
    1 << channel.min(31)
}

/// Stores the words at `x` of rows from `y` on, ROWS at most, of channels `first..end`, all of one image. Returns a bit for each channel: whether one of these words differs from that in
/// the row above.
///
/// # Safety
/// The pass describes allocated memory.
#[inline(always)]
unsafe fn pad(pass: &Pass, (x, y): (i32, i32), (first, end): (i32, i32)) -> u32 {
    // The row above, and in place of rows behind the last one that one again.
    let row_of = |r: usize| (y + r as i32 - 1).max(pass.region.y0).min(pass.region.y1 - 1);
    let source = Source::of_channel(&pass.src, pass, first);
    let (mut at, mut in_words) = ([0; READ], is_inside(pass, x) && pass.src.channel == 1);
    let mut r = 0;
    while r < READ {
        let row = source.row(row_of(r));
        at[r] = row.at(x);
        in_words &= row.is_inside() && at[r] & 3 == 0;
        r += 1;
    }
    // SAFETY: as the caller promised; of four pixels in whole words, as many words as a pixel has bytes are the image's.
    unsafe {
        match pass.src.pixel {
            3 if in_words => store(pass, (x, y), (first, end), parted::<3>(at)),
            4 if in_words => store(pass, (x, y), (first, end), parted::<4>(at)),
            _ => {
                let columns = [0, 1, 2, 3].map(|n| border::resolve_briefly(pass.border, x + n, pass.width));
                let (mut z, mut differs) = (first, 0);
                while z < end {
                    let source = Source::of_channel(&pass.src, pass, z);
                    let rows = [0, 1, 2, 3, 4].map(|r| source.row(row_of(r)));
                    let mut in_words = pass.src.pixel == 1 && is_inside(pass, x);
                    r = 0;
                    while r < READ {
                        in_words &= rows[r].is_inside() && rows[r].at(x) & 3 == 0;
                        r += 1;
                    }
                    let words = match in_words {
                        true => rows.map(|row| load_words::<1>(row.at(x))[0]),
                        // The row above by itself, as all of them together would need half as many registers again.
                        false => {
                            let ([above], [a, b, c, d]) = (
                                found(pass, [rows[0]], columns),
                                found(pass, [rows[1], rows[2], rows[3], rows[4]], columns),
                            );
                            [above, a, b, c, d]
                        }
                    };
                    let words = words.map(|word| [word, 0, 0, 0]);
                    differs |= if store(pass, (x, y), (z, z + 1), words) != 0 { bit(z - first) } else { 0 };
                    z = opaque(z + 1);
                }
                differs
            }
        }
    }
}

/// Stores a word for each row and channel, but for the row above. Returns what [`pad`] does, for these channels.
///
/// # Safety
/// As for [`pad`].
#[inline(always)]
unsafe fn store(pass: &Pass, (x, y): (i32, i32), (first, end): (i32, i32), words: [[u32; 4]; READ]) -> u32 {
    let mut row = pass.dst.origin(first, &pass.channels);
    row = row.wrapping_add((y as i64).wrapping_mul(pass.dst.row) as u64).wrapping_add(x as i64 as u64);
    let (mut r, mut differs) = (1, 0);
    while r < READ {
        let (mut to, mut c) = (row, 0);
        while c < 4 {
            if first + (c as i32) < end && y + (r as i32) - 1 < pass.region.y1 {
                // SAFETY: as the caller promised; the region is the destination's.
                unsafe { store_words(to, [words[r][c]]) };
            }
            differs |= if words[r][c] != words[r - 1][c] { 1 << c } else { 0 };
            to = to.wrapping_add(pass.dst.channel as u64);
            c += 1;
        }
        row = row.wrapping_add(pass.dst.row as u64);
        r += 1;
    }
    differs
}

/// Whether columns `x` to `x + 3` lie in the image.
#[inline(always)]
fn is_inside(pass: &Pass, x: i32) -> bool {
    x >= 0 && x <= pass.width - 4
}

/// The channels of four pixels of so many bytes each in every row, a word for each channel.
///
/// # Safety
/// They lie in allocated memory, at multiples of 4.
#[inline(always)]
unsafe fn parted<const BYTES: usize>(at: [u64; READ]) -> [[u32; 4]; READ] {
    let mut words = [[0; BYTES]; READ];
    let mut n = 0;
    while n < READ * BYTES {
        let (r, w) = (n / BYTES, n % BYTES);
        // SAFETY: as the caller promised.
        [words[r][w]] = unsafe { load_words(at[r].wrapping_add(4 * w as u64)) };
        n += 1;
    }
    words.map(|words| {
        let (mut parted, mut byte) = ([0; 4], 0);
        while byte < 4 * BYTES {
            let value = words[byte / 4] >> (8 * (byte % 4)) & 0xff;
            parted[byte % BYTES] |= value << (8 * (byte / BYTES));
            byte += 1;
        }
        parted
    })
}

/// The bytes of four columns of these rows, or what the border puts there: of a column that is not there, its number is negative. All are under way together, as a block
/// at the image's edge would keep the others waiting else.
///
/// # Safety
/// They are in the image.
#[inline(always)]
unsafe fn found<const N: usize>(pass: &Pass, rows: [Row<'_>; N], columns: [i32; 4]) -> [u32; N] {
    let mut bytes = [[0; 4]; N];
    let mut n = 0;
    while n < 4 * N {
        let (row, column) = (&rows[n / 4], columns[n % 4]);
        // In place of what is outside, a pixel that is of no account.
        // SAFETY: as the caller promised.
        bytes[n / 4][n % 4] = unsafe { load_u8(row.at(column.max(0))) };
        n += 1;
    }
    let mut words = [0; N];
    n = 0;
    while n < 4 * N {
        let is_inside = rows[n / 4].is_inside() && columns[n % 4] >= 0;
        words[n / 4] |= (if is_inside { bytes[n / 4][n % 4] } else { pass.outside as u32 }) << (8 * (n % 4));
        n += 1;
    }
    words
}
