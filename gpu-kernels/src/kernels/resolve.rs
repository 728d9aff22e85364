//! Bytes that their estimates leave uncertain: the exact sums of taps times bytes, in whole
//! numbers, and what they make.
//!
//! Estimating kernels note such results in a list. Here a team of lanes takes each: as many as the
//! window has words of four columns and rows, up to a warp; under a large window, a block. A lane
//! goes down some rows of a column of words. The list is empty again at the end. A segment of the
//! list whose places did not suffice has all its pixels computed.
//! Taps are whole numbers in digits of 8 bits, -128 to 127, so that one instruction multiplies
//! four of them with four bytes. The order of the sums makes no difference.
//! - A table's: six digits for each four columns of a row.
//! - Products': the column in five digits for each four rows, and the row as numbers of 64 bits.
//!   A lane's rows give the sums of four columns, which are multiplied with the row's taps.
//!   Under small windows a rounded table takes less time, and decides nearly all results.
//!
//! Pixels of up to four bytes are read as words, of which each has a byte or several.
//! Shared memory: the counts of the block's segments, then a sum for each warp.
//! Limits: source and destination are bytes, and so is what lies outside the image; no epilogue.

use crate::abi::{Doubts, Pass, Window};
use crate::border;
use crate::device::*;
use crate::divisor::Divisor;
use crate::pixel::{U8, joined, store_bits};
use crate::tile::view::{Source, Target};
use crate::tile::whole::transposed;

/// Threads of a block.
pub const BLOCK: (u32, u32) = (32, 4);
/// Blocks of a launch, at least. They have the list's segments in turn.
pub const LEAST_BLOCKS: i32 = 32;
/// Blocks of a launch, at most.
pub const BLOCKS: i32 = Doubts::SEGMENTS;
/// Words of shared memory before the warps' sums, and of a sum.
const SUMS: i32 = BLOCKS / LEAST_BLOCKS;
const SUM: i32 = 4;
/// Bytes of shared memory.
pub const SHARED: u32 = 4 * (SUMS + SUM * BLOCK.1 as i32) as u32;
/// Digits of a tap of a table, and of a column.
pub const TABLE_DIGITS: usize = 6;
/// See above.
pub const COLUMN_DIGITS: usize = 5;
/// Bytes of a column's digits for four rows: with room, so that they are read at once.
pub const COLUMN_BYTES: usize = 32;
/// Zeros before a row's taps, and behind them.
pub const ROW_PADDING: (usize, usize) = (4, 8);
/// Steps of a lane after which its sums of digits become numbers of 64 bits.
const STEPS: i32 = 4096;

/// How the threads of a block take results.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Team {
    /// Lanes side by side, each at a word of four columns: the exponent of a power of two.
    pub across: i32,
    /// Lanes below each other, likewise.
    pub down: i32,
    /// Whether a block takes a result: its warps are below each other.
    pub is_block: u32,
}

impl Team {
    /// Words and rows of a window from which on a block takes a result.
    const BLOCK_FROM: i64 = 4096;

    /// For a window of so many words of four columns, and of so many rows, or steps of rows.
    pub const fn new(words: i32, rows: i32) -> Self {
        const WARP: i32 = 5;
        let (wide, high) = (exponent(words), exponent(rows));
        // Rows need no reduction, and words side by side are one access of memory: 8 are enough.
        let room = WARP - if high < 2 { high } else { 2 };
        let across = if wide < room { wide } else { room };
        let down = if high < WARP - across { high } else { WARP - across };
        Self { across, down, is_block: (words as i64 * rows as i64 >= Self::BLOCK_FROM) as u32 }
    }

    /// This thread's word, and its row.
    #[inline(always)]
    fn place(&self) -> (i32, i32) {
        let (lane, warp) = (thread_x(), if self.is_block != 0 { thread_y() } else { 0 });
        let row = (lane >> self.across) & ((1 << self.down) - 1);
        (lane & ((1 << self.across) - 1), row + (warp << self.down))
    }

    /// Rows from one of a lane to the next.
    #[inline(always)]
    fn rows(&self) -> i32 {
        (if self.is_block != 0 { block_height() } else { 1 }) << self.down
    }
}

/// The least power of two, as an exponent, that is not below a number.
const fn exponent(number: i32) -> i32 {
    if number <= 1 { 0 } else { 32 - (number - 1).leading_zeros() as i32 }
}

/// Products of a row and a column whose sum the taps are.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Products {
    /// The address of the first column's digits, behind which its row lies.
    pub taps: u64,
    /// Bytes from one product to the next.
    pub apart: i64,
    /// The numerator of the pixel under the middle of the window: its lowest [`PART`] bits behind
    /// the others.
    pub point: [i64; 2],
    /// How many products there are.
    pub terms: i32,
    /// Nothing.
    pub unused: i32,
}

/// The taps of products, rounded to a table, as for `resolve_table`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Near {
    /// The address of their digits; 0 if there is no such table.
    pub taps: u64,
    /// How far a sum over bytes may be off, in numerators.
    pub error: i64,
    /// What they are divided by.
    pub divisor: Divisor,
}

/// Bits of the low part of a number of up to 85 bits.
pub const PART: u32 = 23;

/// A sum of numerators: `high * 2^PART + low`. Either part may be added up of many products: both
/// stay below 2^62 in magnitude.
#[derive(Clone, Copy)]
struct Sum {
    high: i64,
    low: i64,
}

impl Sum {
    const ZERO: Self = Self { high: 0, low: 0 };

    /// This sum and the product of a number below 2^46 and one below 2^38, in magnitude.
    #[inline(always)]
    fn plus_product(self, number: i64, factor: i64) -> Self {
        let (high, low) = (number >> PART, number & ((1 << PART) - 1));
        Self { high: self.high + high * factor, low: self.low + low * factor }
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        Self { high: self.high + other.high, low: self.low + other.low }
    }

    /// The same number with a low part of as few bits as it has room for.
    #[inline(always)]
    fn settled(self) -> Self {
        Self { high: self.high + (self.low >> PART), low: self.low & ((1 << PART) - 1) }
    }

    /// The byte that it makes.
    #[inline(always)]
    fn byte(self, divisor: &Divisor) -> u32 {
        let Self { high, low } = self.settled();
        divisor.byte(high >> (64 - PART), (high as u64) << PART | low as u64)
    }
}

kernel! {
    /// Resolves the results in the pass's list. `taps` are the address of a table's digits.
    fn resolve_table(pass: Pass, window: Window, taps: u64, divisor: Divisor, team: Team, planes: i32) {
        directive!(".maxnreg 72");
        each_result(&pass, &window, team, planes, |at, is_there| {
            let part = if is_there { of_table(at, &window, team, taps) } else { 0 };
            added(Sum { high: 0, low: part }, team).byte(&divisor)
        })
    }

    /// The same for products.
    fn resolve_products(pass: Pass, window: Window, products: Products, near: Near, divisor: Divisor, team: Team, planes: i32) {
        directive!(".maxnreg 96");
        each_result(&pass, &window, team, planes, |at, is_there| {
            let (mut byte, mut is_open) = (0, is_there);
            // The same for every thread of the launch.
            if near.taps != 0 {
                let part = if is_there { of_table(at, &window, team, near.taps) } else { 0 };
                let sum = added(Sum { high: 0, low: part }, team);
                byte = sum.plus(Sum { high: 0, low: -near.error }).byte(&near.divisor);
                is_open &= byte != sum.plus(Sum { high: 0, low: near.error }).byte(&near.divisor);
                // The teams of a warp add up their parts together. A block has one sum.
                if ballot(is_open) == 0 {
                    return byte;
                }
            }
            let part = if is_open { of_products(at, &window, team, &products) } else { Sum::ZERO };
            let sum = added(part, team);
            if is_open { sum.plus(of_point(at, &window, &products)).byte(&divisor) } else { byte }
        })
    }
}

impl Window {
    /// Words of four columns.
    #[inline(always)]
    fn words(&self) -> i32 {
        (self.cols + 3) >> 2
    }
}

/// A result, and the pixels under its window.
struct Place<'a> {
    source: Source<'a>,
    /// Where the window begins.
    left: i32,
    top: i32,
    /// The address of its first pixel, if that is there.
    start: u64,
    /// Whether the window lies in the image.
    is_inside: bool,
}

/// Pixels are read one by one; as words that they fill; or as words of which each pixel is a byte.
const ALONE: u32 = 0;
const WORDS: u32 = 1;
const SPREAD: u32 = 2;

/// Four pixels of up to four bytes each, among the words of memory from the first one's on.
#[derive(Clone, Copy)]
struct Spread {
    /// Bytes from the first two words, which have two pixels, to the two that have the others.
    behind: u64,
    /// Which of the eight bytes are the pixels, as `permute_by` has it.
    pairs: [u32; 2],
}

impl Spread {
    /// The four pixels' bytes, as a word.
    ///
    /// # Safety
    /// The words are there.
    #[inline(always)]
    unsafe fn load(&self, at: u64) -> u32 {
        let second = at.wrapping_add(self.behind);
        // SAFETY: as the caller promised.
        unsafe {
            let ([a], [b]) = (load_words(at), load_words(at.wrapping_add(4)));
            let ([c], [d]) = (load_words(second), load_words(second.wrapping_add(4)));
            permute_by(permute_by(a, b, self.pairs[0]), permute_by(c, d, self.pairs[1]), 0x5410)
        }
    }
}

/// How far a row or a column of pixels is that lies outside the image.
const OUTSIDE: i64 = i64::MIN;

impl<'a> Place<'a> {
    #[inline(always)]
    fn new(pass: &'a Pass, window: &Window, result: Pixel) -> Self {
        let source = Source::of_channel(&pass.src, pass, result.z);
        let (left, top) = (result.x - window.anchor_x, result.y - window.anchor_y);
        let start = source.row_inside(top).at(left);
        Self { source, left, top, start, is_inside: !result.leaves(pass, window) }
    }

    /// Bytes of the first pixel's word that lie before it.
    #[inline(always)]
    fn ahead(&self) -> i32 {
        self.start as i32 & 3
    }

    /// How so many words of four pixels of each of the window's rows can be read.
    #[inline(always)]
    fn way(&self, words: i32) -> u32 {
        let (pass, plane) = (self.source.pass, self.source.plane());
        let (pixel, ahead) = (plane.pixel, self.ahead());
        let has_words =
            self.is_inside && plane.row as i32 as i64 == plane.row && plane.row & 3 == 0;
        // From the row's first byte of this channel on.
        let (first, end) =
            (mul_wide(pixel, self.left) - ahead as i64, mul_wide(pixel, pass.width - 1) + 1);
        if !has_words || !(1..=4).contains(&pixel) || first < 0 {
            ALONE
        } else if pixel == 1 && first + 4 * words as i64 + 4 <= end {
            WORDS
        } else if pixel > 1 && first + mul_wide(4 * pixel, words - 1) + 16 <= end {
            SPREAD
        } else {
            ALONE
        }
    }

    /// Where the bytes of four pixels are among words: see [`Spread`].
    #[inline(always)]
    fn spread(&self) -> Spread {
        let (pixel, first) = (self.source.plane().pixel as u32, self.ahead() as u32);
        let third = first + 2 * pixel;
        let behind = third & !3;
        let pair = |first: u32| first | (first + pixel) << 4;
        Spread { behind: behind as u64, pairs: [pair(first), pair(third - behind)] }
    }

    /// How far the column of pixels is that a coordinate finds.
    #[inline(always)]
    fn column(&self, x: i32) -> i64 {
        let pass = self.source.pass;
        let x = border::resolve_briefly(pass.border, x, pass.width);
        if x < 0 { OUTSIDE } else { mul_wide(x, self.source.plane().pixel) }
    }

    /// How far the row of pixels is that a coordinate finds; of rows that are not there, which no
    /// result needs, the nearest one.
    #[inline(always)]
    fn row(&self, y: i32) -> i64 {
        let (pass, plane) = (self.source.pass, self.source.plane());
        let y = border::resolve_briefly(pass.border, y, pass.height);
        let there = y.max(plane.first_row).min(plane.end_row - 1);
        if y < 0 { OUTSIDE } else { there as i64 * plane.row }
    }

    /// The byte where a row and a column meet.
    #[inline(always)]
    unsafe fn byte(&self, row: i64, column: i64) -> u32 {
        let is_there = row != OUTSIDE && column != OUTSIDE;
        let at = self.source.origin().wrapping_add(row.wrapping_add(column) as u64);
        // SAFETY: a row and a column of the image, if both are there.
        let byte = unsafe { load_u8_if(is_there, at) };
        if is_there { byte } else { self.source.pass.outside as u32 }
    }

    /// Four bytes of a row, as a word.
    #[inline(always)]
    unsafe fn bytes(&self, y: i32, columns: &[i64; 4]) -> u32 {
        let row = self.row(y);
        // SAFETY: as the caller promised.
        unsafe {
            joined([
                self.byte(row, columns[0]),
                self.byte(row, columns[1]),
                self.byte(row, columns[2]),
                self.byte(row, columns[3]),
            ])
        }
    }

    /// The columns of a word, the first of which is at this coordinate.
    #[inline(always)]
    fn columns(&self, x: i32) -> [i64; 4] {
        [self.column(x), self.column(x + 1), self.column(x + 2), self.column(x + 3)]
    }
}

/// This thread's part of the sum over a table whose digits have this address.
///
/// # Safety
/// The digits and the pixels are there.
#[inline(always)]
unsafe fn of_table(at: &Place<'_>, window: &Window, team: Team, taps: u64) -> i64 {
    // SAFETY: as the caller promised.
    unsafe {
        match at.way(window.words()) {
            WORDS => table::<WORDS>(at, window, team, taps),
            SPREAD => table::<SPREAD>(at, window, team, taps),
            _ => table::<ALONE>(at, window, team, taps),
        }
    }
}

/// The same, where the window's rows can be read so.
///
/// # Safety
/// Likewise.
#[inline(always)]
unsafe fn table<const WAY: u32>(at: &Place<'_>, window: &Window, team: Team, taps: u64) -> i64 {
    const BYTES: i32 = 4 * TABLE_DIGITS as i32;
    let ((first_word, first_row), rows, words) = (team.place(), team.rows(), window.words());
    let stride = at.source.plane().row;
    let (bits, spread) = (8 * at.ahead() as u32, at.spread());
    let across = if WAY == SPREAD { 4 * at.source.plane().pixel } else { 4 };
    let (row_step, tap_step) = (rows as i64 * stride, rows as i64 * mul_wide(words, BYTES));
    let mut sum = 0;
    let mut word = first_word;
    while word < words {
        let columns = if WAY == ALONE { at.columns(at.left + 4 * word) } else { [0; 4] };
        let mut row = first_row;
        let first =
            at.start.wrapping_sub(at.ahead() as u64).wrapping_add(mul_wide(across, word) as u64);
        let mut from = first.wrapping_add((row as i64 * stride) as u64);
        let mut digits =
            taps.wrapping_add((row as i64 * mul_wide(words, BYTES) + mul_wide(word, BYTES)) as u64);
        while row < window.rows {
            let mut sums = [0; TABLE_DIGITS];
            let end = row.saturating_add(rows * STEPS).min(window.rows);
            while row < end {
                // SAFETY: as the caller promised; words beside the window lie in the image.
                unsafe {
                    let bytes = match WAY {
                        WORDS => {
                            let ([low], [high]) =
                                (load_words(from), load_words(from.wrapping_add(4)));
                            funnel(low, high, bits)
                        }
                        SPREAD => spread.load(from),
                        _ => at.bytes(at.top + row, &columns),
                    };
                    let [a, b] = load_words(digits);
                    let [c, d] = load_words(digits.wrapping_add(8));
                    let [e, f] = load_words(digits.wrapping_add(16));
                    add_digits(&mut sums, bytes, [a, b, c, d, e, f]);
                }
                row += rows;
                from = from.wrapping_add(row_step as u64);
                digits = digits.wrapping_add(tap_step as u64);
            }
            sum += number(&sums);
        }
        word += 1 << team.across;
    }
    sum
}

/// What the pixel in the middle of the window adds beside the products.
///
/// # Safety
/// The pixels are there.
#[inline(always)]
unsafe fn of_point(at: &Place<'_>, window: &Window, products: &Products) -> Sum {
    let [high, low] = products.point;
    if high | low == 0 {
        return Sum::ZERO;
    }
    let (column, row) =
        (at.column(at.left + (window.cols >> 1)), at.row(at.top + (window.rows >> 1)));
    // SAFETY: as the caller promised.
    let byte = unsafe { at.byte(row, column) } as i64;
    Sum { high: high * byte, low: low * byte }
}

/// This thread's part of the sum over products.
///
/// # Safety
/// The taps and the pixels are there.
#[inline(always)]
unsafe fn of_products(at: &Place<'_>, window: &Window, team: Team, products: &Products) -> Sum {
    // SAFETY: as the caller promised.
    unsafe {
        // A word more, as the first one may begin before the window.
        match at.way(window.words() + 1) {
            WORDS => summed::<WORDS>(at, window, team, products),
            SPREAD => summed::<SPREAD>(at, window, team, products),
            _ => summed::<ALONE>(at, window, team, products),
        }
    }
}

/// The same, where the window's rows can be read so.
///
/// # Safety
/// Likewise.
#[inline(always)]
unsafe fn summed<const WAY: u32>(
    at: &Place<'_>,
    window: &Window,
    team: Team,
    products: &Products,
) -> Sum {
    let ((first_word, first_step), rows) = (team.place(), team.rows());
    // Words begin where those of memory do: the row's taps are moved instead.
    let ahead = if WAY == WORDS { at.ahead() } else { 0 };
    let (spread, across) =
        (at.spread(), if WAY == SPREAD { 4 * at.source.plane().pixel } else { 4 });
    let (words, steps) = ((window.cols + ahead + 3) >> 2, (window.rows + 3) >> 2);
    let mut sum = Sum::ZERO;
    let (mut term, mut columns_taps) = (opaque(0), products.taps);
    while term < products.terms {
        let row_taps = columns_taps.wrapping_add(mul_wide(steps, COLUMN_BYTES as i32) as u64);
        let mut word = first_word;
        while word < words {
            let columns = if WAY == ALONE { at.columns(at.left + 4 * word) } else { [0; 4] };
            let first = at
                .start
                .wrapping_sub(at.ahead() as u64)
                .wrapping_add(mul_wide(across, word) as u64);
            let mut step = first_step;
            while step < steps {
                let mut sums = [[0; COLUMN_DIGITS]; 4];
                let end = step.saturating_add(rows * STEPS).min(steps);
                while step < end {
                    let mut lines = [0; 4];
                    let mut i = 0;
                    while i < 4 {
                        // A row below the window is its last one again, whose digits are zeros.
                        let row = (4 * step + i as i32).min(window.rows - 1);
                        // SAFETY: as the caller promised.
                        lines[i] = unsafe {
                            let from = first
                                .wrapping_add(mul_wide(row, at.source.plane().row as i32) as u64);
                            match WAY {
                                WORDS => load_words::<1>(from)[0],
                                SPREAD => spread.load(from),
                                _ => at.bytes(at.top + row, &columns),
                            }
                        };
                        i += 1;
                    }
                    let digits =
                        columns_taps.wrapping_add(mul_wide(step, COLUMN_BYTES as i32) as u64);
                    // SAFETY: as the caller promised.
                    let ([a, b, c, d], [e]) =
                        unsafe { (load_words(digits), load_words(digits.wrapping_add(16))) };
                    let bytes = transposed(lines);
                    i = 0;
                    while i < 4 {
                        add_digits(&mut sums[i], bytes[i], [a, b, c, d, e]);
                        i += 1;
                    }
                    step += rows;
                }
                let mut i = 0;
                while i < 4 {
                    let place = ROW_PADDING.0 as i32 + 4 * word + i as i32 - ahead;
                    // SAFETY: as the caller promised; there are zeros before and behind the row.
                    let [low, high] =
                        unsafe { load_words(row_taps.wrapping_add(mul_wide(place, 8) as u64)) };
                    sum = sum.plus_product(number(&sums[i]), low as i64 | (high as i64) << 32);
                    i += 1;
                }
            }
            word += 1 << team.across;
        }
        columns_taps = columns_taps.wrapping_add(products.apart as u64);
        term = opaque(term + 1);
    }
    sum
}

/// Adds four bytes' products with each of their digits.
#[inline(always)]
fn add_digits<const N: usize>(sums: &mut [i32; N], bytes: u32, digits: [u32; N]) {
    let mut n = 0;
    while n < N {
        sums[n] = dot(bytes, digits[n], sums[n]);
        n += 1;
    }
}

/// The number that sums of digits are.
#[inline(always)]
fn number<const N: usize>(sums: &[i32; N]) -> i64 {
    let mut all = 0;
    let mut n = N;
    while n > 0 {
        n -= 1;
        all = (all << 8) + sums[n] as i64;
    }
    all
}

/// Stores the results of this block's segments. `byte` makes each, if there is one, and is called
/// by a team's threads.
///
/// # Safety
/// The pass has a list and describes allocated memory; the launch has the block and the shared
/// memory stated above.
#[inline(always)]
unsafe fn each_result(
    pass: &Pass,
    window: &Window,
    team: Team,
    planes: i32,
    byte: impl Fn(&Place<'_>, bool) -> u32,
) {
    let (thread, threads) = (32 * thread_y() + thread_x(), 32 * block_height());
    let shift = team.across + team.down;
    let is_block = team.is_block != 0;
    let (number, teams) = if is_block { (0, 1) } else { (thread >> shift, threads >> shift) };
    // All of a warp go on as long as one of its teams has a result.
    let before = if is_block { 0 } else { (thread_x() >> shift) as i64 };
    let is_first = if is_block { thread == 0 } else { thread & ((1 << shift) - 1) == 0 };
    // SAFETY: as the caller promised.
    unsafe {
        each_segment(pass, planes, |segment| {
            let mut i = number as i64;
            while i - before < segment.count {
                let result = segment.pixel(pass, window, i);
                i += teams as i64;
                let byte = byte(&Place::new(pass, window, result), result.is_there());
                if is_first && result.is_there() {
                    let target = Target::of_channel(pass, result.z);
                    store_bits(U8, target.at(result.x, result.y), byte);
                }
            }
        });
    }
}

/// The sum of a team's parts, in all of its threads.
///
/// # Safety
/// All threads of the block call, if a block is a team; else all lanes of the warp.
#[inline(always)]
unsafe fn added(sum: Sum, team: Team) -> Sum {
    // Low parts have room for the sum of all then, in 32 bits.
    let mut sum = sum.settled();
    let mut apart = opaque(1 << (team.across + team.down) >> 1);
    // SAFETY: as the caller promised; the block meets before others read what a warp stores, and
    // before it stores again.
    unsafe {
        while apart > 0 {
            sum = Sum {
                high: sum.high + exchanged(sum.high, apart as u32),
                low: sum.low + exchange(sum.low as u32, apart as u32) as i64,
            };
            apart >>= 1;
        }
        if team.is_block == 0 {
            return sum;
        }
        let shared = Shared::dynamic();
        if thread_x() == 0 {
            let own = SUMS + SUM * thread_y();
            shared.store(own, f32::from_bits(sum.high as u32));
            shared.store(own + 1, f32::from_bits((sum.high >> 32) as u32));
            shared.store(own + 2, f32::from_bits(sum.low as u32));
        }
        barrier();
        let (mut all, mut warp) = (Sum::ZERO, opaque(0));
        while warp < block_height() {
            let own = SUMS + SUM * warp;
            let high = shared.load_word(own) as i64 | (shared.load_word(own + 1) as i64) << 32;
            all = Sum { high: all.high + high, low: all.low + shared.load_word(own + 2) as i64 };
            warp = opaque(warp + 1);
        }
        barrier();
        all
    }
}

/// The number that the lane has whose number differs in the bits of `apart`.
///
/// # Safety
/// The whole warp calls.
#[inline(always)]
unsafe fn exchanged(number: i64, apart: u32) -> i64 {
    // SAFETY: as the caller promised.
    let (low, high) =
        unsafe { (exchange(number as u32, apart), exchange((number >> 32) as u32, apart)) };
    low as i64 | (high as i64) << 32
}

/// A pixel of a channel.
#[derive(Clone, Copy)]
struct Pixel {
    x: i32,
    y: i32,
    z: i32,
}

impl Pixel {
    const NONE: Self = Self { x: 0, y: 0, z: -1 };

    /// Whether there is one.
    #[inline(always)]
    fn is_there(&self) -> bool {
        self.z >= 0
    }

    /// Whether its window leaves the image.
    #[inline(always)]
    fn leaves(&self, pass: &Pass, window: &Window) -> bool {
        let (left, top) = (self.x - window.anchor_x, self.y - window.anchor_y);
        border::leaves(left, window.cols, pass.width)
            || border::leaves(top, window.rows, pass.height)
    }
}

/// The results of a segment.
#[derive(Clone, Copy)]
struct Segment {
    number: i32,
    /// How many there are.
    count: i64,
    /// Whether all pixels of the segment are meant, those in its list and others.
    is_all: bool,
    /// Quads of the segment in a row, at most.
    quads: i32,
}

impl Segment {
    /// Segment number `number`, in which so many results are noted.
    #[inline(always)]
    fn new(pass: &Pass, number: i32, noted: u32, planes: i32) -> Self {
        let region = &pass.region;
        let quads =
            ((((region.x1 + 3) >> 2) - (region.x0 >> 2)) + Doubts::SEGMENTS - 1) / Doubts::SEGMENTS;
        let is_all = noted > pass.doubts.capacity;
        let lines = mul_wide(quads * planes, region.y1 - region.y0);
        let count = if is_all { 4 * lines } else { noted as i64 };
        Self { number, count, is_all, quads }
    }

    /// Pixel number `i`, if there is one that is a sum: what KEEP copies is none.
    ///
    /// # Safety
    /// The pass has a list.
    #[inline(always)]
    unsafe fn pixel(&self, pass: &Pass, window: &Window, i: i64) -> Pixel {
        if i >= self.count {
            return Pixel::NONE;
        }
        let region = &pass.region;
        let result = if self.is_all {
            // `checked`, so that no panic is compiled in; there are quads and rows.
            let divided = |number: u32, by: i32| {
                let whole = number.checked_div(by as u32).unwrap_or(0);
                (whole, (number - whole * by as u32) as i32)
            };
            let (line, quad) = divided((i >> 2) as u32, self.quads);
            let (z, row) = divided(line, region.y1 - region.y0);
            let (y, first) = (region.y0 + row, region.x0 >> 2);
            let behind = (self.number - Doubts::segment(4 * first, y)) & (Doubts::SEGMENTS - 1);
            let x = 4 * (first + behind + quad * Doubts::SEGMENTS) + (i as i32 & 3);
            if x < region.x0 || x >= region.x1 {
                return Pixel::NONE;
            }
            Pixel { x, y, z: z as i32 }
        } else {
            let at = pass.doubts.place(self.number, i as u32);
            // SAFETY: the place is one of the list's.
            unsafe {
                Pixel {
                    x: reload_word(at) as i32,
                    y: reload_word(at + 4) as i32,
                    z: reload_word(at + 8) as i32,
                }
            }
        };
        if pass.border == border::KEEP && result.leaves(pass, window) {
            Pixel::NONE
        } else {
            result
        }
    }
}

/// Calls `each` for every segment of this block that has results, and empties it then.
///
/// # Safety
/// The pass has a list; all threads of the block call, and the launch has [`LEAST_BLOCKS`] at
/// least.
#[inline(always)]
unsafe fn each_segment(pass: &Pass, planes: i32, each: impl Fn(&Segment)) {
    let (shared, thread) = (Shared::dynamic(), 32 * thread_y() + thread_x());
    let number = |at: i32| block_x() + at * grid_width();
    let is_own = thread < SUMS && number(thread) < Doubts::SEGMENTS;
    // SAFETY: the list has these segments; all threads of the block meet at each barrier.
    unsafe {
        if is_own {
            shared.store(thread, f32::from_bits(reload_word(pass.doubts.counter(number(thread)))));
        }
        barrier();
        let mut at = opaque(0);
        while number(at) < Doubts::SEGMENTS {
            let noted = shared.load_word(at);
            if noted != 0 {
                each(&Segment::new(pass, number(at), noted, planes));
            }
            at = opaque(at + 1);
        }
        barrier();
        if is_own && shared.load_word(thread) != 0 {
            store_words(pass.doubts.counter(number(thread)), [0]);
        }
    }
}
