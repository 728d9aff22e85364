//! Separable correlation of bytes in f64, in two passes: for windows so large that many f32 sums leave the byte in doubt.
//!
//! Tiling: a block has 32 lines and 128 results of each: rows in the row pass, columns in the column pass; a warp has 16 neighbouring results of all 32 lines.
//! Any number of taps: the numbers under them come to shared memory 64 at a time, and their apron (`Tile`).
//! Where the tensor cores multiply f64 (compute capability 9.0), a warp's results are products of matrices: of the taps, of which each row of the matrix has them
//! one column further right than the row above, and the numbers of 8 lines. Elsewhere, and where the order counts, a lane has a line, and reads 31 numbers for 16 taps
//! of 16 results: with 8 results, shared memory is what such a loop waits for. Numbers lie so that lanes meet in no bank.
//! Order: taps ascending, but for the tensor cores; products and sums are fused, and results that this could change go to the pass's list. With
//! `passes_rows_defined` and `passes_columns_defined` each product and each sum is rounded: this is what the byte is where a window has more taps than are summed
//! one by one (`host/src/round`). There, if few results are in the list, `passes_settle` does the same for these, a warp for each, whose lanes take a row at a time;
//! `passes_verdict` says whether they are.
//! The intermediate image is f64, for the region's columns and the rows that the column pass reads. `passes_columns_summed` adds up the columns
//! of one or two, the terms of a sum, and the pixel's own tap times the pixel.
//! Limits: the destination is bytes; no epilogue. KEEP is left to `keep.rs`.

use super::settle::{Place, by_definition, each_segment};
use crate::abi::{Doubts, Pass, Window};
use crate::border;
use crate::device::*;
use crate::pixel::{U8, byte_to_f64, note, store_bits, to_byte};
use crate::tile::view::{Row, Source, Target};

/// Threads of a block of either pass.
pub const BLOCK: (u32, u32) = (32, 8);
/// Results of a thread. Rows of the intermediate image have room for so many from any of its columns on that is a multiple of it.
pub const RESULTS: usize = 16;
/// Results of a block in a line.
const ACROSS: i32 = BLOCK.1 as i32 * RESULTS as i32;
/// Columns and rows that a block of the row pass computes.
pub const ROWS_TILE: (u32, u32) = (ACROSS as u32, 32);
/// Columns and rows that a block of the column pass computes.
pub const COLUMNS_TILE: (u32, u32) = (32, ACROSS as u32);
/// Taps that either pass takes at a time, or columns of the matrix that they make.
const CHUNK: i32 = 64;
/// Numbers of a line of a tile at most: the results and their apron.
const LINE: i32 = ACROSS + CHUNK - 1;
/// Numbers of a tile, with those between its lines.
const NUMBERS: i32 = if 32 * LINE > (LINE - 15) * 36 { 32 * LINE } else { (LINE - 15) * 36 };
/// Bytes of shared memory of either pass.
pub const SHARED: u32 = 8 * NUMBERS as u32;
/// Threads of a block that settles, or that finds the verdict.
pub const SETTLE_BLOCK: (u32, u32) = (32, 4);
/// Where its numbers begin, of which each warp has 32, behind a word for the counter; and bytes of shared memory.
const SETTLE_NUMBERS: i32 = 4;
/// See above.
pub const SETTLE_SHARED: u32 = 4 * (SETTLE_NUMBERS as u32 + 64 * SETTLE_BLOCK.1);
/// Numbers that a thread loads before it waits for the first.
const AT_ONCE: usize = 6;
/// Zeros before and behind a line of taps in memory, for the matrix that they make.
pub const PADDING: usize = 24;

/// The intermediate image.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Middle {
    /// The address that column 0 of row 0 of the first plane has, or would have.
    pub base: u64,
    /// Bytes from one row to the next.
    pub row: i64,
    /// Bytes from one plane to the next.
    pub plane: i64,
    /// The rows that are there.
    pub first_row: i32,
    /// See `first_row`.
    pub end_row: i32,
}

/// A column of taps, and the intermediate image that it runs over.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The image.
    pub middle: Middle,
    /// The address of the taps in f64.
    pub taps: u64,
    /// What the row pass makes of a row outside the image.
    pub outside: f64,
}

impl Middle {
    /// The address of a place in this block's plane.
    #[inline(always)]
    fn at(&self, x: i32, y: i32) -> u64 {
        let offset = block_z() as i64 * self.plane + y as i64 * self.row + 8 * x as i64;
        self.base.wrapping_add(offset as u64)
    }
}

kernel! {
    /// The row pass, products and sums fused. `taps` are the address of the row's taps in f64.
    fn passes_rows(pass: Pass, window: Window, middle: Middle, taps: u64) {
        rows::<false>(&pass, &window, &middle, taps)
    }

    /// The row pass, each product and each sum rounded, if the verdict is that many results are in doubt.
    fn passes_rows_defined(pass: Pass, window: Window, middle: Middle, taps: u64) {
        if reload_word(pass.doubts.verdict()) != 0 {
            rows::<true>(&pass, &window, &middle, taps)
        }
    }

    /// The column pass, fused. Its sums are at most `reordering` from those that define the bytes.
    fn passes_columns(pass: Pass, window: Window, column: Column, reordering: f64) {
        columns::<false, _>(&pass, &window, (&[column], 0.0), reordering)
    }

    /// The column pass, likewise.
    fn passes_columns_defined(pass: Pass, window: Window, column: Column, reordering: f64) {
        if reload_word(pass.doubts.verdict()) != 0 {
            columns::<true, _>(&pass, &window, (&[column], 0.0), reordering)
        }
    }

    /// Stores the verdict whether more than `most` results, or more than its list has places for, are in doubt, and empties the list then. One block.
    fn passes_verdict(pass: Pass, most: u32) {
        verdict(&pass.doubts, most)
    }

    /// Settles the results in the list: each row's sum, then the column's, each product and each sum rounded. `row` and `column` are the addresses of their taps in f64.
    fn passes_settle(pass: Pass, window: Window, row: u64, column: u64, planes: i32) {
        directive!(".maxnreg 64");
        each_segment(&pass, planes, |segment| {
            let mut i = thread_y() as i64;
            while i < segment.count {
                let place = segment.place(&pass, &window, i);
                if place.is_there() {
                    define(&pass, &window, (row, column), place);
                }
                i += block_height() as i64;
            }
        })
    }

    /// The column pass of one term, and of a `second` one if it has taps; `point` is the tap that the pixel has beside them.
    fn passes_columns_summed(pass: Pass, window: Window, column: Column, second: Column, point: f64, reordering: f64) {
        // More, and a multiprocessor has one block instead of two: an unsharp mask of sigma 20 1.92 ms instead of 1.44, 4096x4096x3 on an H200.
        directive!(".maxnreg 128");
        if second.taps == 0 {
            columns::<false, _>(&pass, &window, (&[column], point), reordering)
        } else {
            columns::<false, _>(&pass, &window, (&[column, second], point), reordering)
        }
    }
}

/// Stores the verdict: see `passes_verdict`.
///
/// # Safety
/// There is a list, which no other block uses; all threads of the block call, and shared memory is that of [`SETTLE_SHARED`].
#[inline(always)]
unsafe fn verdict(doubts: &Doubts, most: u32) {
    let (shared, thread, threads) = (Shared::dynamic(), 32 * thread_y() + thread_x(), 32 * block_height());
    let (mut count, mut overflows) = (0, false);
    // SAFETY: as the caller promised; the block meets between what threads store and what others load.
    unsafe {
        let mut segment = thread;
        while segment < Doubts::SEGMENTS {
            let noted = reload_word(doubts.counter(segment));
            overflows |= noted > doubts.capacity;
            // Of a list as long as that, more would make no difference.
            count += noted.min(most + 1);
            segment += threads;
        }
        let mut apart = opaque(16);
        while apart > 0 {
            count += exchange(count, apart as u32);
            apart /= 2;
        }
        if thread_x() == 0 {
            shared.store(thread_y(), f32::from_bits(count));
        }
        let overflows = barrier_or(overflows);
        let (mut all, mut warp) = (0, 0);
        while warp < block_height() {
            all += shared.load_word(warp);
            warp += 1;
        }
        let many = overflows || all > most;
        // `many` is the whole block's.
        let mut segment = thread;
        while many && segment < Doubts::SEGMENTS {
            store_words(doubts.counter(segment), [0]);
            segment += threads;
        }
        if thread == 0 {
            store_words(doubts.verdict(), [many as u32]);
        }
    }
}

/// Stores one result, the sums of its rows and then of its column as they define the byte.
///
/// # Safety
/// The pass describes allocated memory, and the taps are there; the whole warp calls, and shared memory is that of [`SETTLE_SHARED`].
#[inline(always)]
unsafe fn define(pass: &Pass, window: &Window, (row, column): (u64, u64), place: Place) {
    let (shared, source) = (Shared::dynamic(), Source::of_channel(&pass.src, pass, place.z));
    let ((left, top), leaves) = place.corner(pass, window);
    let numbers = SETTLE_NUMBERS + 64 * thread_y();
    let line = Window { rows: 1, ..*window };
    let mut sum = 0.0;
    let mut first = opaque(0);
    while first < window.rows {
        // SAFETY: as the caller promised; lanes meet between what they store and what lane 0 loads.
        unsafe {
            // A row below the window is its last one again, and does not count.
            let y = top + (first + thread_x()).min(window.rows - 1);
            let across = by_definition(&source, &line, row, (left, y), leaves);
            shared.store_f64(numbers + 2 * thread_x(), across);
            warp_barrier();
            let mut r = opaque(0);
            while r < 32 && first + r < window.rows {
                let tap = load_f64(column.wrapping_add(8 * (first + r) as u64));
                sum = add_f64(sum, mul_f64(tap, shared.load_f64(numbers + 2 * r)));
                r += 1;
            }
            warp_barrier();
        }
        first += 32;
    }
    if thread_x() == 0 {
        // SAFETY: the place is this warp's.
        unsafe { place.store(pass, to_byte(sum).0) };
    }
}

/// `sum` plus the product of tap and value.
#[inline(always)]
fn add<const DEFINED: bool>(tap: f64, value: f64, sum: f64) -> f64 {
    if DEFINED { add_f64(sum, mul_f64(tap, value)) } else { fma_f64(tap, value, sum) }
}

/// A tile in shared memory.
#[derive(Clone, Copy)]
struct Tile {
    shared: Shared,
    /// Numbers from one to the next of a line.
    step: i32,
    /// Numbers from one line to the next.
    line: i32,
    /// Whether the tensor cores multiply. The whole launch answers alike.
    matrices: bool,
}

impl Tile {
    /// Lines are rows; or else columns.
    #[inline(always)]
    fn new<const DEFINED: bool>(rows: bool) -> Self {
        let matrices = has_mma_f64() && !DEFINED;
        // With matrices, 16 lanes read 4 neighbours of 4 lines: an odd multiple of 4 numbers apart they are in different banks. Else lanes read
        // numbers of different lines.
        let (step, line) = match (rows, matrices) {
            (true, true) => (1, LINE - 11),
            (true, false) => (1, LINE),
            (false, true) => (36, 1),
            (false, false) => (32, 1),
        };
        const { assert!((LINE - 11) % 16 == 4 && LINE % 2 == 1) }
        Self { shared: Shared::dynamic(), step, line, matrices }
    }

    /// Numbers under so many taps, in all: a matrix has them in 16 places.
    #[inline(always)]
    fn length(&self, taps: i32) -> i32 {
        if self.matrices { (taps + 15 + 7) & !7 } else { taps }
    }

    /// Numbers of a line that are loaded, for so many of those at a time.
    #[inline(always)]
    fn width(&self, count: i32) -> i32 {
        if self.matrices { ACROSS - 16 + count } else { ACROSS - 1 + count }
    }

    /// Stores number `at` of a line.
    ///
    /// # Safety
    /// It lies in the tile.
    #[inline(always)]
    unsafe fn store(&self, line: i32, at: i32, value: f64) {
        // SAFETY: as the caller promised.
        unsafe { self.shared.store_f64(2 * (line * self.line + at * self.step), value) };
    }

    /// The line, and the place in it, of the thread's result number `i`.
    #[inline(always)]
    fn result(&self, i: usize) -> (i32, i32) {
        let (first, lane, i) = (RESULTS as i32 * thread_y(), thread_x(), i as i32);
        if self.matrices {
            (8 * (i / 4) + 2 * (lane & 3) + (i & 1), first + (lane >> 2) + 8 * ((i / 2) & 1))
        } else {
            (lane, first + i)
        }
    }

    /// Adds to the thread's results what `count` numbers from number `done` on, which the tile begins with, make with their taps.
    ///
    /// # Safety
    /// Taps, with their padding, and numbers are there; the whole warp calls.
    #[inline(always)]
    unsafe fn add<const DEFINED: bool>(&self, sums: &mut [f64; RESULTS], taps: u64, done: i32, count: i32) {
        let taps = taps.wrapping_add(mul_wide(done, 8) as u64);
        // SAFETY: as the caller promised.
        unsafe {
            if self.matrices {
                self.add_matrices(sums, taps, count);
                return;
            }
            let mut tap = 0;
            while tap + 16 <= count {
                self.add_taps::<DEFINED, 16>(sums, taps, tap);
                tap += 16;
            }
            while tap + 4 <= count {
                self.add_taps::<DEFINED, 4>(sums, taps, tap);
                tap += 4;
            }
            while tap < count {
                self.add_taps::<DEFINED, 1>(sums, taps, tap);
                tap += 1;
            }
        }
    }

    /// Adds taps number `first` to before `first + N`.
    ///
    /// # Safety
    /// As for [`Tile::add`].
    #[inline(always)]
    unsafe fn add_taps<const DEFINED: bool, const N: usize>(&self, sums: &mut [f64; RESULTS], taps: u64, first: i32) {
        let start = thread_x() * self.line + (RESULTS as i32 * thread_y() + first) * self.step;
        // SAFETY: as the caller promised, here and below.
        let value = |number: usize| unsafe { self.shared.load_f64(2 * (start + number as i32 * self.step)) };
        // The values under a tap, each at its number's remainder: under the next tap, one of them is another.
        let mut values = [0.0; RESULTS];
        let mut i = 0;
        while i < RESULTS {
            values[i] = value(i);
            i += 1;
        }
        let mut t = 0;
        while t < N {
            // SAFETY: as above.
            let weight = unsafe { load_f64(taps.wrapping_add(8 * (first as u64 + t as u64))) };
            let mut i = 0;
            while i < RESULTS {
                sums[i] = add::<DEFINED>(weight, values[(t + i) % RESULTS], sums[i]);
                i += 1;
            }
            if t + 1 < N {
                values[t % RESULTS] = value(t + RESULTS);
            }
            t += 1;
        }
    }

    /// Adds the product of the matrix of taps, of which it takes `count` columns, and of the tile's numbers.
    ///
    /// # Safety
    /// As for [`Tile::add`].
    #[inline(always)]
    unsafe fn add_matrices(&self, sums: &mut [f64; RESULTS], taps: u64, count: i32) {
        let (g, t) = (thread_x() >> 2, thread_x() & 3);
        let taps = taps.wrapping_add(mul_wide(t - g, 8) as u64);
        let start = g * self.line + (RESULTS as i32 * thread_y() + t) * self.step;
        // SAFETY: as the caller promised.
        unsafe {
            // Taps so many columns further right, in all rows; those 8 rows further down have moved on by two steps.
            let tap = |column: i32| load_f64(taps.wrapping_add(mul_wide(column, 8) as u64));
            let mut before = [tap(-8), tap(-4)];
            let mut k = 0;
            while k < count {
                let here = [tap(k), tap(k + 4)];
                let a = [here[0], before[0], here[1], before[1]];
                let mut eight = 0;
                while eight < RESULTS / 4 {
                    let at = start + 8 * eight as i32 * self.line + k * self.step;
                    let b = [self.shared.load_f64(2 * at), self.shared.load_f64(2 * (at + 4 * self.step))];
                    let i = 4 * eight;
                    let product = mma_f64([sums[i], sums[i + 1], sums[i + 2], sums[i + 3]], a, b);
                    (sums[i], sums[i + 1], sums[i + 2], sums[i + 3]) = (product[0], product[1], product[2], product[3]);
                    eight += 1;
                }
                before = here;
                k += 8;
            }
        }
    }
}

/// The row pass.
///
/// # Safety
/// `pass` and `middle` describe allocated memory, `taps` has `window.cols` taps, with their padding, and the launch has the block shape and the shared
/// memory stated above.
#[inline(always)]
unsafe fn rows<const DEFINED: bool>(pass: &Pass, window: &Window, middle: &Middle, taps: u64) {
    let (tile, source) = (Tile::new::<DEFINED>(true), Source::new(pass));
    let left = pass.region.aligned_left() + block_x() * ACROSS;
    let length = tile.length(window.cols);
    let mut top = middle.first_row + block_y() * ROWS_TILE.1 as i32;
    while top < middle.end_row {
        let mut sums = [0.0; RESULTS];
        let mut done = opaque(0);
        while done < length {
            let count = if length - done < CHUNK { length - done } else { CHUNK };
            // SAFETY: numbers lie in the tile; the whole block meets at the barriers.
            unsafe {
                let mut r = thread_y();
                while r < ROWS_TILE.1 as i32 {
                    // Rows behind the last hold copies of it, which are not stored.
                    let y = if top + r < middle.end_row { top + r } else { middle.end_row - 1 };
                    load_line(pass, source.row_inside(y), left + done - window.anchor_x, tile.width(count), (&tile, r));
                    r += BLOCK.1 as i32;
                }
                barrier();
                tile.add::<DEFINED>(&mut sums, taps, done, count);
                barrier();
            }
            done += count;
        }
        let mut i = 0;
        while i < RESULTS {
            let (line, place) = tile.result(i);
            let (x, y) = (left + place, top + line);
            if x < pass.region.x1 && y < middle.end_row {
                let bits = sums[i].to_bits();
                // SAFETY: the place is this thread's.
                unsafe { store_words(middle.at(x, y), [bits as u32, (bits >> 32) as u32]) };
            }
            i += 1;
        }
        top += grid_height() * ROWS_TILE.1 as i32;
    }
}

/// Loads so many pixels of a row from column `left` on into a line of the tile, a warp together.
///
/// # Safety
/// The pass describes allocated memory, and the row is there; the numbers lie in the tile.
#[inline(always)]
unsafe fn load_line(pass: &Pass, row: Row<'_>, left: i32, count: i32, (tile, line): (&Tile, i32)) {
    let mut c = thread_x();
    // SAFETY: as the caller promised.
    unsafe {
        if left >= 0 && left + count <= pass.width {
            let mut bytes = [0; AT_ONCE];
            let mut n = 0;
            while n < AT_ONCE {
                // Behind the last pixel, that one again.
                bytes[n] = load_u8(row.at(left + (c + 32 * n as i32).min(count - 1)));
                n += 1;
            }
            let mut n = 0;
            while n < AT_ONCE {
                if c + 32 * (n as i32) < count {
                    tile.store(line, c + 32 * n as i32, byte_to_f64(bytes[n]));
                }
                n += 1;
            }
        } else {
            while c < count {
                tile.store(line, c, row.pixel(left + c) as f64);
                c += 32;
            }
        }
    }
}

/// The column pass over one or two columns, whose sums it adds up, and `point` times the pixel.
///
/// # Safety
/// As for [`rows`], with `window.rows` taps.
#[inline(always)]
unsafe fn columns<const DEFINED: bool, const TERMS: usize>(
    pass: &Pass,
    window: &Window,
    (terms, point): (&[Column; TERMS], f64),
    reordering: f64,
) {
    let (tile, target) = (Tile::new::<DEFINED>(false), Target::new(pass));
    let left = pass.region.x0 + block_x() * COLUMNS_TILE.0 as i32;
    let mut top = pass.region.y0 + block_y() * ACROSS;
    while top < pass.region.y1 {
        let mut sums = [0.0; RESULTS];
        let mut term = 0;
        while term < TERMS {
            // SAFETY: as the caller promised; the whole block is here.
            unsafe { add_column::<DEFINED>(pass, window, &terms[term], (left, top), &tile, &mut sums) };
            term += 1;
        }
        if point != 0.0 {
            // All are loaded before the first is waited for.
            let source = Source::new(pass);
            let mut bytes = [0; RESULTS];
            let mut i = 0;
            while i < RESULTS {
                let (line, place) = tile.result(i);
                // In place of a pixel that no result has, the region's last one.
                let (x, y) = ((left + line).min(pass.region.x1 - 1), (top + place).min(pass.region.y1 - 1));
                // SAFETY: the pixel lies in the region, and so in the image.
                bytes[i] = unsafe { load_u8(source.row_inside(y).at(x)) };
                i += 1;
            }
            i = 0;
            while i < RESULTS {
                sums[i] = fma_f64(point, byte_to_f64(bytes[i]), sums[i]);
                i += 1;
            }
        }
        let mut i = 0;
        while i < RESULTS {
            let (line, place) = tile.result(i);
            let (x, y) = (left + line, top + place);
            if x < pass.region.x1 && y < pass.region.y1 {
                let (byte, distance) = to_byte(sums[i]);
                // SAFETY: the place is this thread's.
                unsafe {
                    store_bits(U8, target.at(x, y), byte);
                    // A NaN may come from the other order alone.
                    let sure = distance < 0.5 - reordering && !sums[i].is_nan();
                    if !DEFINED && !sure {
                        note(pass, x, y, block_z());
                    }
                }
            }
            i += 1;
        }
        top += grid_height() * ACROSS;
    }
}

/// Adds a column's taps to the sums of the thread's results, in a tile of columns from `left` on and of rows from `top` on.
///
/// # Safety
/// As for [`columns`].
#[inline(always)]
unsafe fn add_column<const DEFINED: bool>(
    pass: &Pass,
    window: &Window,
    Column { middle, taps, outside }: &Column,
    (left, top): (i32, i32),
    tile: &Tile,
    sums: &mut [f64; RESULTS],
) {
    let x = left + thread_x();
    let column = if x < pass.region.x1 { x } else { pass.region.x1 - 1 };
    let length = tile.length(window.rows);
    let mut done = opaque(0);
    while done < length {
        let count = if length - done < CHUNK { length - done } else { CHUNK };
        // SAFETY: numbers lie in the tile; the whole block meets at the barriers.
        unsafe {
            let (first, end) = (top + done - window.anchor_y, tile.width(count));
            let mut r = thread_y();
            while r < end {
                let (mut values, mut inside) = ([0.0; AT_ONCE], [true; AT_ONCE]);
                let mut n = 0;
                while n < AT_ONCE {
                    let found = border::resolve(pass.border, first + r + BLOCK.1 as i32 * n as i32, pass.height);
                    inside[n] = found >= 0;
                    // Rows that no result needs may not be there: the nearest one stands for them.
                    let there = found.max(middle.first_row).min(middle.end_row - 1);
                    values[n] = load_f64(middle.at(column, there));
                    n += 1;
                }
                let mut n = 0;
                while n < AT_ONCE {
                    let at = r + BLOCK.1 as i32 * n as i32;
                    if at < end {
                        tile.store(thread_x(), at, if inside[n] { values[n] } else { *outside });
                    }
                    n += 1;
                }
                r += BLOCK.1 as i32 * AT_ONCE as i32;
            }
            barrier();
            tile.add::<DEFINED>(sums, *taps, done, count);
            barrier();
        }
        done += count;
    }
}
