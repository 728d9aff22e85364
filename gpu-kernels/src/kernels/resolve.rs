//! Resolves uncertain results: bytes whose estimates do not determine the rounding. The kernels sum
//! taps times bytes exactly, in integers, and round the sum.
//!
//! Estimating kernels append such results to a list. Here each result has a team of lanes, up to a
//! warp; a large window has a block. A lane goes down some rows of a column of words of four
//! pixels. At the end the list is empty again. Where a segment of the list overflowed, all pixels
//! of the segment are computed.
//!
//! Taps are integers in digits of 8 bits, -128 to 127: one dot-product instruction multiplies four
//! digits with four bytes. The order of the sums makes no difference.
//! - Table: six digits for each tap, stored by groups of four columns.
//! - Products: the column in five digits for each tap, stored by groups of four rows; the row as
//!   64-bit integers. A lane sums four columns down its rows, then multiplies with the row's taps.
//!   Under small windows a rounded table is faster and decides nearly all results.
//!
//! Pixels of up to four bytes are read as words. Shared memory: the counts of the block's segments,
//! then a sum for each warp. Limits: source, destination and the value outside the image are bytes;
//! no epilogue.

use crate::abi::{Each, Pass, Plane, UncertainList, Window};
use crate::border;
use crate::device::*;
use crate::divisor::Divisor;
use crate::pixel::{U8, joined, store_bits};
use crate::tile::view::{Source, Target};
use crate::tile::whole::transposed;

/// Threads of a block with several teams.
pub const BLOCK: (u32, u32) = (32, 4);
/// Threads of a block that is one team.
pub const TEAM_BLOCK: (u32, u32) = (32, 8);
/// Least blocks of a launch. Blocks take the list's segments in a grid-stride loop.
pub const LEAST_BLOCKS: i32 = 32;
/// Most blocks of a launch.
pub const BLOCKS: i32 = UncertainList::SEGMENTS;
/// Words of shared memory before the warps' sums, and words of a sum.
const SUMS: i32 = BLOCKS / LEAST_BLOCKS;
const SUM: i32 = 4;
/// Bytes of shared memory.
pub const SHARED: u32 = 4 * (SUMS + SUM * TEAM_BLOCK.1 as i32) as u32;
/// Digits of a tap in a table.
pub const TABLE_DIGITS: usize = 6;
/// Digits of a tap in a product's column.
pub const COLUMN_DIGITS: usize = 5;
/// Bytes of a column's digits for four rows: 20, padded so that aligned vector loads read them.
pub const COLUMN_BYTES: usize = 32;
/// Zero taps before and after a product's row.
pub const ROW_PADDING: (usize, usize) = (4, 8);
/// The word of a lane that has none.
const NOWHERE: i32 = i32::MAX;
/// Rows of a window that a lane loads before it sums them.
const BATCH: usize = 4;
/// Steps of a lane between two conversions of its 32-bit digit sums to 64 bits.
const STEPS: i32 = 4096;

/// How the threads of a block share results.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Team {
    /// log2 of a team's lanes in a warp. Lanes beyond `across * down` only pass sums on.
    pub lanes: i32,
    /// Lanes side by side, each at a word of four columns.
    pub across: i32,
    /// Lanes below each other.
    pub down: i32,
    /// Whether a whole block is the team; its warps are below each other.
    pub is_block: u32,
}

impl Team {
    /// Least words times rows of a window for which a block is the team.
    const BLOCK_FROM: i64 = 4096;

    /// Most steps of a lane, a word each, unless a team needs more than a warp: its loads are in
    /// flight at once. A result waits for memory several times, so a warp should have many.
    const MAX_STEPS: i64 = 3;
    /// log2 of the least lanes of a team.
    const LEAST_LANES: i32 = 2;

    /// For a window of `words` words of four columns and `rows` rows, or steps of four rows. Of the
    /// ways to lay out its lanes, it has one with the fewest steps, and of these the widest: lanes
    /// side by side share memory accesses.
    pub const fn new(words: i32, rows: i32) -> Self {
        let all = words as i64 * rows as i64;
        let lanes = exponent(if all < 32 * Self::MAX_STEPS {
            ((all + Self::MAX_STEPS - 1) / Self::MAX_STEPS) as i32
        } else {
            32
        });
        let lanes = if lanes < Self::LEAST_LANES { Self::LEAST_LANES } else { lanes };
        let (mut best, mut least, mut across) = (1, i64::MAX, 1);
        while across <= 1 << lanes && across <= words {
            let down = (1 << lanes) / across;
            let steps = ((words + across - 1) / across) as i64 * ((rows + down - 1) / down) as i64;
            if steps <= least {
                (best, least) = (across, steps);
            }
            across += 1;
        }
        let is_block = (all >= Self::BLOCK_FROM) as u32;
        Self { lanes, across: best, down: (1 << lanes) / best, is_block }
    }

    /// The threads of a block.
    pub const fn block(&self) -> (u32, u32) {
        if self.is_block != 0 { TEAM_BLOCK } else { BLOCK }
    }

    /// The thread's first word and first row.
    #[inline(always)]
    fn place(&self) -> (i32, i32) {
        let (lane, warp) = (thread_x(), if self.is_block != 0 { thread_y() } else { 0 });
        let lane = lane & ((1 << self.lanes) - 1);
        // `checked`, so that no panic is compiled in.
        let row = (lane as u32).checked_div(self.across as u32).unwrap_or(0) as i32;
        let word = if row < self.down { lane - row * self.across } else { NOWHERE };
        (word, row + warp * self.down)
    }

    /// Rows from a lane's row to its next row.
    #[inline(always)]
    fn rows(&self) -> i32 {
        (if self.is_block != 0 { block_height() } else { 1 }) * self.down
    }
}

/// log2 of the least power of two that is at least `number`.
const fn exponent(number: i32) -> i32 {
    if number <= 1 { 0 } else { 32 - (number - 1).leading_zeros() as i32 }
}

/// The taps as a sum of products of a column and a row.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Products {
    /// The address of the first column's digits; its row follows.
    pub taps: u64,
    /// Bytes from one product to the next.
    pub apart: i64,
    /// An extra numerator for the pixel under the middle of the window: the high part, then the
    /// lowest [`PART`] bits.
    pub point: [i64; 2],
    /// The number of products.
    pub terms: i32,
    /// Padding.
    pub unused: i32,
}

/// A rounded table of the products' taps, as for `resolve_table`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Near {
    /// The address of the table's digits; 0 if there is no table.
    pub taps: u64,
    /// Error bound of a sum over bytes, in numerators.
    pub error: i64,
    /// The divisor of the numerators.
    pub divisor: Divisor,
}

/// The product of an image of a batch with a product for each: an entry of their table. Windows of
/// all images have the same size and anchor.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ImageProduct {
    /// Bytes from this entry to the column's digits; its row follows.
    pub taps: u64,
    /// Rounds an entry up to a multiple of 16 bytes.
    pub unused: u64,
    /// The divisor of the numerators.
    pub divisor: Divisor,
}

impl ImageProduct {
    /// The entry as the table has it.
    pub const fn to_words(&self) -> [u32; 8] {
        let [a, b, c, d] = self.divisor.to_words();
        [self.taps as u32, (self.taps >> 32) as u32, 0, 0, a, b, c, d]
    }

    /// The entry for plane number `z`, with an address instead of a distance.
    ///
    /// # Safety
    /// The table has it.
    #[inline(always)]
    unsafe fn of_plane(each: &Each, z: i32) -> Self {
        let at = each.entry(z, size_of::<Self>());
        // SAFETY: as the caller promised.
        let ([low, high], divisor) = unsafe { (load_words(at), load_words(at + 16)) };
        let taps = at.wrapping_add((high as u64) << 32 | low as u64);
        Self { taps, unused: 0, divisor: Divisor::of_words(divisor) }
    }
}

/// Bits of the low part of a number of up to 85 bits.
pub const PART: u32 = 23;

/// A sum of numerators: `high * 2^PART + low`. Both parts may collect many products and stay below
/// 2^62 in magnitude.
#[derive(Clone, Copy)]
struct Sum {
    high: i64,
    low: i64,
}

impl Sum {
    const ZERO: Self = Self { high: 0, low: 0 };

    /// Adds a product of a number below 2^46 and a factor below 2^38, in magnitude.
    #[inline(always)]
    fn plus_product(self, number: i64, factor: i64) -> Self {
        let (high, low) = (number >> PART, number & ((1 << PART) - 1));
        Self { high: self.high + high * factor, low: self.low + low * factor }
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        Self { high: self.high + other.high, low: self.low + other.low }
    }

    /// The same value with a `low` of [`PART`] bits.
    #[inline(always)]
    fn normalized(self) -> Self {
        Self { high: self.high + (self.low >> PART), low: self.low & ((1 << PART) - 1) }
    }

    /// The byte nearest to the quotient.
    #[inline(always)]
    fn byte(self, divisor: &Divisor) -> u32 {
        let Self { high, low } = self.normalized();
        divisor.byte(high >> (64 - PART), (high as u64) << PART | low as u64)
    }
}

kernel! {
    /// Resolves the results in the pass's list by a table. `taps` is the address of its digits.
    fn resolve_table(pass: Pass, window: Window, taps: u64, divisor: Divisor, team: Team, planes: i32) {
        directive!(".maxnreg 80");
        let_next_kernel_begin();
        each_result(&pass, &window, team, planes, |at, is_there| {
            let part = if is_there { of_table(at, &window, team, taps) } else { 0 };
            added(Sum { high: 0, low: part }, team).byte(&divisor)
        })
    }

    /// Resolves the results in the pass's list by products.
    fn resolve_products(pass: Pass, window: Window, products: Products, near: Near, divisor: Divisor, team: Team, planes: i32) {
        directive!(".maxnreg 128");
        let_next_kernel_begin();
        each_result(&pass, &window, team, planes, |at, is_there| {
            let (mut byte, mut is_open) = (0, is_there);
            // A uniform branch: the condition is the same for the whole launch.
            if near.taps != 0 {
                let part = if is_there { of_table(at, &window, team, near.taps) } else { 0 };
                let sum = added(Sum { high: 0, low: part }, team);
                byte = sum.plus(Sum { high: 0, low: -near.error }).byte(&near.divisor);
                is_open &= byte != sum.plus(Sum { high: 0, low: near.error }).byte(&near.divisor);
                // The lanes of all teams in a warp exchange parts together, so the warp decides as
                // one. In a block team, all threads have the same sum.
                if ballot(is_open) == 0 {
                    return byte;
                }
            }
            let part = if is_open { of_products(at, &window, team, &products) } else { Sum::ZERO };
            let sum = added(part, team);
            if is_open { sum.plus(of_point(at, &window, &products)).byte(&divisor) } else { byte }
        })
    }

    /// Resolves the results in the pass's list by a product for each image: a table of
    /// [`ImageProduct`].
    fn resolve_each(pass: Pass, window: Window, each: Each, team: Team, planes: i32) {
        directive!(".maxnreg 128");
        let_next_kernel_begin();
        each_result(&pass, &window, team, planes, |at, is_there| {
            let product = ImageProduct::of_plane(&each, if is_there { at.result.z } else { 0 });
            let ImageProduct { taps, divisor, .. } = product;
            let products = Products { taps, apart: 0, point: [0; 2], terms: 1, unused: 0 };
            let part = if is_there { of_products(at, &window, team, &products) } else { Sum::ZERO };
            added(part, team).byte(&divisor)
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

/// A result's window on the source.
pub(super) struct Place<'a> {
    pub(super) result: Pixel,
    pub(super) source: Source<'a>,
    /// The column and row of the window's first pixel.
    pub(super) left: i32,
    pub(super) top: i32,
    /// The address of the window's first pixel, valid if the image has that pixel.
    start: u64,
    /// Whether the window lies in the image.
    pub(super) is_inside: bool,
}

/// How pixels are read: one by one; as words of four bytes side by side; as words with one byte for
/// each pixel (see [`Spread`]).
const ALONE: u32 = 0;
const WORDS: u32 = 1;
const SPREAD: u32 = 2;

/// Four pixels of up to four bytes each, in the words of memory from the first pixel's word on.
#[derive(Clone, Copy)]
struct Spread {
    /// Bytes from the two words of the first two pixels to the two words of the others.
    behind: u64,
    /// For each pair of pixels, a selector of their bytes among two words, as for `permute_by`.
    pairs: [u32; 2],
}

impl Spread {
    /// Loads one byte of each of the four pixels, joined in a word.
    ///
    /// # Safety
    /// The words are in allocated memory.
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

/// Marks a column outside the image, in place of a byte offset.
pub(super) const OUTSIDE: i64 = i64::MIN;

impl<'a> Place<'a> {
    #[inline(always)]
    pub(super) fn new(pass: &'a Pass, window: &Window, result: Pixel) -> Self {
        let source = Source::of_channel(&pass.src, pass, result.z);
        let (left, top) = (result.x - window.anchor_x, result.y - window.anchor_y);
        let start = source.row_inside(top).at(left);
        Self {
            result,
            source,
            left,
            top,
            start,
            is_inside: result.is_there() && !result.leaves(pass, window),
        }
    }

    /// Brings a row of the window to the L2 cache, if the whole window lies in the image.
    #[inline(always)]
    fn prefetch(&self, window: &Window, row: i32) {
        if self.is_inside && row < window.rows {
            let plane = self.source.plane();
            let first = self.start.wrapping_add((row as i64 * plane.row) as u64);
            prefetch(first);
            prefetch(first.wrapping_add(mul_wide(plane.pixel, window.cols - 1) as u64));
        }
    }

    /// Bytes before the first pixel in its aligned word.
    #[inline(always)]
    fn ahead(&self) -> i32 {
        self.start as i32 & 3
    }

    /// How pixels are read where [`Place::has_words`] holds.
    #[inline(always)]
    fn way(&self) -> u32 {
        let Plane { row, pixel, .. } = *self.source.plane();
        match pixel {
            1 if row & 3 == 0 => WORDS,
            2..=4 if row & 3 == 0 => SPREAD,
            _ => ALONE,
        }
    }

    /// The address of the word of row 0 that has the first byte of column `x`.
    #[inline(always)]
    fn word(&self, x: i32) -> u64 {
        self.source.origin().wrapping_add(mul_wide(x, self.source.plane().pixel) as u64) & !3
    }

    /// Whether pixels can be read this way from column `x` on until four pixels from column `last`
    /// on: all words lie between the first and the last byte of the channel in a row.
    #[inline(always)]
    fn has_words(&self, way: u32, x: i32, last: i32) -> bool {
        let (origin, pixel) = (self.source.origin(), self.source.plane().pixel);
        let size = if way == WORDS { 4 } else { self.spread().behind + 8 };
        let end = origin.wrapping_add(mul_wide(pixel, self.source.pass.width - 1) as u64) + 1;
        way != ALONE && self.word(x) >= origin && self.word(last) + size <= end
    }

    /// Where four pixels' bytes are in words of memory.
    #[inline(always)]
    fn spread(&self) -> Spread {
        let (pixel, first) = (self.source.plane().pixel as u32, self.ahead() as u32);
        let third = first + 2 * pixel;
        let behind = third & !3;
        let pair = |first: u32| first | (first + pixel) << 4;
        Spread { behind: behind as u64, pairs: [pair(first), pair(third - behind)] }
    }

    /// The byte offset of the column that the border rule gives for `x`.
    #[inline(always)]
    fn column(&self, x: i32) -> i64 {
        let pass = self.source.pass;
        let x = border::resolve_briefly(pass.border, x, pass.width);
        if x < 0 { OUTSIDE } else { mul_wide(x, self.source.plane().pixel) }
    }

    /// The row that the border rule gives for `y`, and whether the image has it. If memory lacks
    /// that row, no result needs it. The nearest row in memory stands in.
    #[inline(always)]
    pub(super) fn line(&self, y: i32) -> (i32, bool) {
        let (pass, plane) = (self.source.pass, self.source.plane());
        let y = border::resolve_briefly(pass.border, y, pass.height);
        (y.max(plane.first_row).min(plane.end_row - 1), y >= 0)
    }

    /// The byte offset of a row from [`Place::line`].
    #[inline(always)]
    fn row(&self, y: i32) -> (i64, bool) {
        let (y, is_there) = self.line(y);
        (y as i64 * self.source.plane().row, is_there)
    }

    /// Four pixels outside the image.
    #[inline(always)]
    fn outside(&self) -> u32 {
        self.source.pass.outside as u32 * 0x0101_0101
    }

    /// The byte at a row and a column of the image, by their offsets.
    #[inline(always)]
    pub(super) unsafe fn byte(&self, row: i64, column: i64) -> u32 {
        let is_there = column != OUTSIDE;
        let at = self.source.origin().wrapping_add(row.wrapping_add(column) as u64);
        // SAFETY: as the caller promised; outside the image, nothing is loaded.
        let byte = unsafe { load_u8_if(is_there, at) };
        if is_there { byte } else { self.source.pass.outside as u32 }
    }

    /// Four bytes of a row from [`Place::row`], as a word.
    #[inline(always)]
    unsafe fn bytes(&self, (row, is_there): (i64, bool), columns: &[i64; 4]) -> u32 {
        // SAFETY: as the caller promised.
        let word = unsafe {
            joined([
                self.byte(row, columns[0]),
                self.byte(row, columns[1]),
                self.byte(row, columns[2]),
                self.byte(row, columns[3]),
            ])
        };
        if is_there { word } else { self.outside() }
    }

    /// The offsets of four columns from `x` on.
    #[inline(always)]
    fn columns(&self, x: i32) -> [i64; 4] {
        [self.column(x), self.column(x + 1), self.column(x + 2), self.column(x + 3)]
    }
}

/// This thread's part of the sum over a table, whose digits are at address `taps`.
///
/// # Safety
/// The digits and the pixels are in allocated memory.
#[inline(always)]
unsafe fn of_table(at: &Place<'_>, window: &Window, team: Team, taps: u64) -> i64 {
    // SAFETY: as the caller promised.
    unsafe {
        let way = at.way();
        // A row that begins inside a word takes one word more.
        let words = if way == WORDS { window.words() } else { window.words() - 1 };
        let has_words = at.is_inside && at.has_words(way, at.left, at.left + 4 * words);
        match if has_words { way } else { ALONE } {
            WORDS => table::<WORDS>(at, window, team, taps),
            SPREAD => table::<SPREAD>(at, window, team, taps),
            _ => table::<ALONE>(at, window, team, taps),
        }
    }
}

/// [`of_table`] for one way to read pixels.
///
/// # Safety
/// As for [`of_table`]; `WAY` is [`ALONE`], or [`Place::way`] gives it and there are such words.
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
                // All pixels before the first sum: they wait for memory together.
                let batch = if WAY == ALONE { 1 } else { BATCH };
                let (mut bytes, mut i) = ([0; BATCH], 0);
                while i < batch {
                    // SAFETY: as the caller promised; word loads beyond the window stay in the
                    // image. A row below the window repeats the row before, and counts as zeros.
                    let read = unsafe {
                        match WAY {
                            WORDS => {
                                let ([low], [high]) =
                                    (load_words(from), load_words(from.wrapping_add(4)));
                                funnel(low, high, bits)
                            }
                            SPREAD => spread.load(from),
                            _ => at.bytes(at.row(at.top + row), &columns),
                        }
                    };
                    let is_there = row + i as i32 * rows < window.rows;
                    bytes[i] = if is_there { read } else { 0 };
                    if row + (i as i32 + 1) * rows < window.rows {
                        from = from.wrapping_add(row_step as u64);
                    }
                    i += 1;
                }
                i = 0;
                while i < batch {
                    // SAFETY: as the caller promised.
                    unsafe {
                        let [a, b] = load_words(digits);
                        let [c, d] = load_words(digits.wrapping_add(8));
                        let [e, f] = load_words(digits.wrapping_add(16));
                        add_digits(&mut sums, bytes[i], [a, b, c, d, e, f]);
                    }
                    row += rows;
                    if row < window.rows {
                        digits = digits.wrapping_add(tap_step as u64);
                    }
                    i += 1;
                }
            }
            sum += number(&sums);
        }
        word += team.across;
    }
    sum
}

/// The extra term for the pixel under the middle of the window.
///
/// # Safety
/// The pixels are in allocated memory.
#[inline(always)]
unsafe fn of_point(at: &Place<'_>, window: &Window, products: &Products) -> Sum {
    let [high, low] = products.point;
    if high | low == 0 {
        return Sum::ZERO;
    }
    let column = at.column(at.left + (window.cols >> 1));
    let (row, is_there) = at.row(at.top + (window.rows >> 1));
    // SAFETY: as the caller promised.
    let byte = unsafe { at.byte(row, if is_there { column } else { OUTSIDE }) } as i64;
    Sum { high: high * byte, low: low * byte }
}

/// This thread's part of the sum over products.
///
/// # Safety
/// The taps and the pixels are in allocated memory.
#[inline(always)]
unsafe fn of_products(at: &Place<'_>, window: &Window, team: Team, products: &Products) -> Sum {
    let ((first_word, first_step), rows) = (team.place(), team.rows());
    // Loads are aligned to words of memory: the row's taps shift instead of the pixels.
    let ahead = if at.way() == WORDS { at.ahead() } else { 0 };
    let (words, steps) = ((window.cols + ahead + 3) >> 2, (window.rows + 3) >> 2);
    let mut sum = Sum::ZERO;
    let (mut term, mut columns_taps) = (opaque(0), products.taps);
    while term < products.terms {
        let row_taps = columns_taps.wrapping_add(mul_wide(steps, COLUMN_BYTES as i32) as u64);
        let mut word = first_word;
        while word < words {
            let column = Column::new(at, at.left + 4 * word - ahead);
            let mut step = first_step;
            while step < steps {
                let mut sums = [[0; COLUMN_DIGITS]; 4];
                let end = step.saturating_add(rows * STEPS).min(steps);
                while step < end {
                    // SAFETY: as the caller promised.
                    let lines = unsafe { column.four_rows(at, window, step) };
                    let digits =
                        columns_taps.wrapping_add(mul_wide(step, COLUMN_BYTES as i32) as u64);
                    // SAFETY: as the caller promised.
                    let ([a, b, c, d], [e]) =
                        unsafe { (load_words(digits), load_words(digits.wrapping_add(16))) };
                    let (bytes, mut i) = (transposed(lines), 0);
                    while i < 4 {
                        add_digits(&mut sums[i], bytes[i], [a, b, c, d, e]);
                        i += 1;
                    }
                    step += rows;
                }
                let mut i = 0;
                while i < 4 {
                    let place = ROW_PADDING.0 as i32 + 4 * word + i as i32 - ahead;
                    // SAFETY: as the caller promised; there are zeros before and after the row.
                    let [low, high] =
                        unsafe { load_words(row_taps.wrapping_add(mul_wide(place, 8) as u64)) };
                    sum = sum.plus_product(number(&sums[i]), low as i64 | (high as i64) << 32);
                    i += 1;
                }
            }
            word += team.across;
        }
        columns_taps = columns_taps.wrapping_add(products.apart as u64);
        term = opaque(term + 1);
    }
    sum
}

/// Four columns of the image.
struct Column {
    x: i32,
    /// How they are read.
    way: u32,
    /// Their first word in row 0.
    first: u64,
    spread: Spread,
}

impl Column {
    /// Columns from `x` on, for the window at a place.
    #[inline(always)]
    fn new(at: &Place<'_>, x: i32) -> Self {
        let (way, spread) = (at.way(), at.spread());
        let way = if at.has_words(way, x, x) { way } else { ALONE };
        Self { x, way, first: at.word(x), spread }
    }

    /// Their bytes in four rows, from row `4 * step` of the window on.
    ///
    /// # Safety
    /// As for [`of_products`].
    #[inline(always)]
    unsafe fn four_rows(&self, at: &Place<'_>, window: &Window, step: i32) -> [u32; 4] {
        let stride = at.source.plane().row;
        // SAFETY: as the caller promised.
        unsafe {
            if at.is_inside && 4 * step + 4 <= window.rows && self.way != ALONE {
                let first = (at.top + 4 * step) as i64 * stride;
                return self.words([first, first + stride, first + 2 * stride, first + 3 * stride]);
            }
            // A row below the window repeats the last row; its digits are zeros.
            let row = |i: i32| at.row(at.top + (4 * step + i).min(window.rows - 1));
            let rows = [row(0), row(1), row(2), row(3)];
            if self.way == ALONE {
                // Opaque, so that the offsets are computed here and need no registers elsewhere.
                let columns = at.columns(opaque(self.x));
                return rows.map(|row| at.bytes(row, &columns));
            }
            let words = self.words(rows.map(|(start, _)| start));
            let line = |i: usize| if rows[i].1 { words[i] } else { at.outside() };
            [line(0), line(1), line(2), line(3)]
        }
    }

    /// Their bytes in four rows, read as words. The rows are given by their byte offsets.
    ///
    /// # Safety
    /// As for [`of_products`]; the rows are in memory.
    #[inline(always)]
    unsafe fn words(&self, rows: [i64; 4]) -> [u32; 4] {
        let at = rows.map(|row| self.first.wrapping_add(row as u64));
        // SAFETY: as the caller promised; words of columns lie in the image.
        unsafe {
            if self.way == WORDS {
                at.map(|at| load_words::<1>(at)[0])
            } else {
                at.map(|at| self.spread.load(at))
            }
        }
    }
}

/// Adds the dot products of four bytes with each digit of four taps.
#[inline(always)]
fn add_digits<const N: usize>(sums: &mut [i32; N], bytes: u32, digits: [u32; N]) {
    let mut n = 0;
    while n < N {
        sums[n] = dot(bytes, digits[n], sums[n]);
        n += 1;
    }
}

/// The integer that sums of digits represent.
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

/// Stores the results of this block's segments. All threads of a team call `byte` together; its
/// flag says whether there is a result.
///
/// # Safety
/// The pass has a list and describes allocated memory. The launch has [`Team::block`] threads a
/// block, [`SHARED`] bytes of shared memory and the blocks stated above.
#[inline(always)]
pub(super) unsafe fn each_result(
    pass: &Pass,
    window: &Window,
    team: Team,
    planes: i32,
    byte: impl Fn(&Place<'_>, bool) -> u32,
) {
    let (thread, threads) = (32 * thread_y() + thread_x(), 32 * block_height());
    let shift = team.lanes;
    let is_block = team.is_block != 0;
    let (number, teams) = if is_block { (0, 1) } else { (thread >> shift, threads >> shift) };
    // All lanes of a warp stay in the loop while one of its teams has a result.
    let before = if is_block { 0 } else { (thread_x() >> shift) as i64 };
    let is_first = if is_block { thread == 0 } else { thread & ((1 << shift) - 1) == 0 };
    // SAFETY: as the caller promised.
    unsafe {
        each_segment(pass, planes, |segment| {
            let mut i = number as i64;
            let mut next = segment.pixel(pass, window, i);
            while i - before < segment.count {
                let result = next;
                i += teams as i64;
                next = segment.pixel(pass, window, i);
                Place::new(pass, window, next).prefetch(window, thread_x() & ((1 << shift) - 1));
                let byte = byte(&Place::new(pass, window, result), result.is_there());
                if is_first && result.is_there() {
                    let target = Target::of_channel(pass, result.z);
                    store_bits(U8, target.at(result.x, result.y), byte);
                }
            }
        });
    }
}

/// The sum of a team's parts, for all of its threads.
///
/// # Safety
/// If a block is a team, all threads of the block call this; else all lanes of the warp.
#[inline(always)]
unsafe fn added(sum: Sum, team: Team) -> Sum {
    // With low parts of [`PART`] bits, the low part of the total fits in 32 bits.
    let mut sum = sum.normalized();
    let mut apart = opaque(1 << team.lanes >> 1);
    // SAFETY: as the caller promised. The block passes a barrier between a warp's store and the
    // loads of other warps, and again before the next store.
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

/// The number of the lane whose index differs in the bits of `apart`.
///
/// # Safety
/// The whole warp calls this.
#[inline(always)]
pub(super) unsafe fn exchanged(number: i64, apart: u32) -> i64 {
    // SAFETY: as the caller promised.
    let (low, high) =
        unsafe { (exchange(number as u32, apart), exchange((number >> 32) as u32, apart)) };
    low as i64 | (high as i64) << 32
}

/// A pixel of a channel.
#[derive(Clone, Copy)]
pub(super) struct Pixel {
    pub(super) x: i32,
    pub(super) y: i32,
    /// The channel's number on the z axis.
    pub(super) z: i32,
}

impl Pixel {
    const NONE: Self = Self { x: 0, y: 0, z: -1 };

    /// Whether this is a pixel, not [`Pixel::NONE`].
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
    /// The number of results.
    count: i64,
    /// Whether the list overflowed, so that all pixels of the segment are computed.
    is_all: bool,
    /// Most quads (four pixels side by side) of the segment in a row.
    quads: i32,
}

impl Segment {
    /// Segment `number`, for which `noted` results were appended.
    #[inline(always)]
    fn new(pass: &Pass, number: i32, noted: u32, planes: i32) -> Self {
        let region = &pass.region;
        let quads = ((((region.x1 + 3) >> 2) - (region.x0 >> 2)) + UncertainList::SEGMENTS - 1)
            / UncertainList::SEGMENTS;
        let is_all = noted > pass.uncertain.capacity;
        let lines = mul_wide(quads * planes, region.y1 - region.y0);
        let count = if is_all { 4 * lines } else { noted as i64 };
        Self { number, count, is_all, quads }
    }

    /// Pixel `i`, or [`Pixel::NONE`] beyond the end or where the border copies the source.
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
            // `checked`, so that no panic is compiled in; both divisors are positive.
            let divided = |number: u32, by: i32| {
                let whole = number.checked_div(by as u32).unwrap_or(0);
                (whole, (number - whole * by as u32) as i32)
            };
            let (line, quad) = divided((i >> 2) as u32, self.quads);
            let (z, row) = divided(line, region.y1 - region.y0);
            let (y, first) = (region.y0 + row, region.x0 >> 2);
            let behind = (self.number - UncertainList::segment(4 * first, y))
                & (UncertainList::SEGMENTS - 1);
            let x = 4 * (first + behind + quad * UncertainList::SEGMENTS) + (i as i32 & 3);
            if x < region.x0 || x >= region.x1 {
                return Pixel::NONE;
            }
            Pixel { x, y, z: z as i32 }
        } else {
            let at = pass.uncertain.place(self.number, i as u32);
            // SAFETY: `i` is below the number of results in the list.
            unsafe {
                Pixel {
                    x: reload_word(at) as i32,
                    y: reload_word(at + 4) as i32,
                    z: reload_word(at + 8) as i32,
                }
            }
        };
        if border::copies(pass.border) && result.leaves(pass, window) {
            Pixel::NONE
        } else {
            result
        }
    }
}

/// Calls `each` for every non-empty segment of this block, then empties the segments.
///
/// # Safety
/// The pass has a list. All threads of the block call this, and the launch has at least
/// [`LEAST_BLOCKS`] blocks.
#[inline(always)]
unsafe fn each_segment(pass: &Pass, planes: i32, each: impl Fn(&Segment)) {
    let (shared, thread) = (Shared::dynamic(), 32 * thread_y() + thread_x());
    let number = |at: i32| block_x() + at * grid_width();
    let is_own = thread < SUMS && number(thread) < UncertainList::SEGMENTS;
    // SAFETY: the list has these segments; all threads of the block reach each barrier.
    unsafe {
        if is_own {
            shared
                .store(thread, f32::from_bits(reload_word(pass.uncertain.counter(number(thread)))));
        }
        barrier();
        let mut at = opaque(0);
        while number(at) < UncertainList::SEGMENTS {
            let noted = shared.load_word(at);
            if noted != 0 {
                each(&Segment::new(pass, number(at), noted, planes));
            }
            at = opaque(at + 1);
        }
        barrier();
        if is_own && shared.load_word(thread) != 0 {
            store_words(pass.uncertain.counter(number(thread)), [0]);
        }
    }
}
