//! Exact correlation of bytes with a product of a row and a column of taps, or with the sum of two
//! such products: for many uncertain results, and for windows that no other kernel takes.
//!
//! Arithmetic: taps are integers of at most 37 bits, cut into [`DIGITS`] signed digits to the
//! base 256. The row pass multiplies bytes by digits on the tensor cores. Its sums are below 2^45
//! in magnitude; [`BIAS`] makes them positive numbers of `PLANES` bytes. The column pass multiplies
//! each of these bytes by each digit. Products of equal weight share a 32-bit sum, and `carry`
//! joins these sums. All sums are exact, so their order does not matter.
//!
//! Tiling: a block has 128 results of several lines (rows in the row pass, columns in the column
//! pass), a warp 16 neighbouring results of every line. The numbers under the window come to shared
//! memory in chunks, so a window may have any length. The first matrix factor is a band of 16 rows,
//! each with the taps one column right of the row above; the host stores it in the order of the
//! lanes ([`fragment`]). The second factor has 8 lines as columns. A word of shared memory has four
//! neighbouring numbers of a line; words of 8 lines lie side by side, which avoids bank conflicts.
//!
//! After an estimate, `passes_verdict` counts the results in the pass's list. If there are few, the
//! passes return at once; else the list is emptied. Without a list the passes always compute.
//! Limits: bytes to bytes, no epilogue; the value outside the image is a byte. Copies at the border
//! are left to `keep.rs`.

use crate::abi::{Pass, UncertainList, Window};
use crate::border;
use crate::device::*;
use crate::divisor::Divisor;
use crate::pixel::{U8, joined, store_bits};
use crate::tile::view::{Row, Source, Target};
use crate::tile::whole::transposed;

/// Threads of a block of either pass.
pub const BLOCK: (u32, u32) = (32, 8);
/// Results of a block in a line.
const ACROSS: i32 = 16 * BLOCK.1 as i32;
/// Groups of 8 lines in a block of the row pass, and of the column pass.
const ROW_GROUPS: usize = 4;
const COLUMN_GROUPS: usize = 2;
/// Columns and rows of results of a block of the row pass.
pub const ROWS_TILE: (u32, u32) = (ACROSS as u32, 8 * ROW_GROUPS as u32);
/// Columns and rows of results of a block of the column pass.
pub const COLUMNS_TILE: (u32, u32) = (8 * COLUMN_GROUPS as u32, ACROSS as u32);

/// Digits of a tap.
pub const DIGITS: usize = 5;
/// Bytes of a row sum that the column pass multiplies.
const PLANES: usize = 6;
/// The row pass adds this to each row sum, so that none is negative.
pub const BIAS: i64 = 1 << 45;

/// Columns of the band in one matrix product.
pub const STEP: i32 = 32;
/// Columns of the band in a chunk, in the row pass and in the column pass. A chunk's numbers are in
/// shared memory together.
const ROW_CHUNK: i32 = 256;
const COLUMN_CHUNK: i32 = 128;
/// Columns of the band between two calls of [`carry`]. In each column up to 5 products of a byte
/// and a digit share a sum: `5 * 255 * 128 * 8192` plus the carried rest is below 2^31.
const UNTIL_CARRY: i32 = 8192;
const _: () = assert!(UNTIL_CARRY % ROW_CHUNK == 0 && UNTIL_CARRY % COLUMN_CHUNK == 0);

/// Words of four numbers in a line of a chunk; words from a group of 8 lines to the next.
const fn quads(chunk: i32) -> i32 {
    (ACROSS - 16 + chunk) / 4
}
const fn stride(chunk: i32) -> i32 {
    8 * quads(chunk) + 16
}

/// Bytes of shared memory of the row pass; [`COLUMNS_SHARED`] is that of the column pass.
pub const ROWS_SHARED: u32 = 4 * ROW_GROUPS as u32 * stride(ROW_CHUNK) as u32;
/// See [`ROWS_SHARED`].
pub const COLUMNS_SHARED: u32 = 4 * (PLANES * COLUMN_GROUPS) as u32 * stride(COLUMN_CHUNK) as u32;

/// Words of pixels that a thread loads together, to hide latency.
const AT_ONCE: usize = 4;

/// Threads of the only block of `passes_verdict`: one for each segment of a list.
pub const VERDICT_BLOCK: (u32, u32) = (32, UncertainList::SEGMENTS as u32 / 32);
const _: () = assert!(VERDICT_BLOCK.1 == 32);
/// Bytes of shared memory of `passes_verdict`.
pub const VERDICT_SHARED: u32 = 4 * VERDICT_BLOCK.1;

/// Bytes of a step of the band: 16 for each lane and digit.
pub const STEP_BYTES: u64 = 512 * DIGITS as u64;

/// Bytes of the band of `taps` taps.
pub const fn band_bytes(taps: i32) -> u64 {
    STEP_BYTES * (band(taps) / STEP) as u64
}

/// Columns of the band of `taps` taps.
pub const fn band(taps: i32) -> i32 {
    (taps + 15 + STEP - 1) / STEP * STEP
}

/// Word `word` of a lane's four words in a step of the band: digits in four columns. `digit` gives
/// the digit of a tap, 0 outside the window.
pub fn fragment(step: i32, lane: i32, word: i32, digit: impl Fn(i32) -> i8) -> u32 {
    let row = (lane >> 2) + 8 * (word & 1);
    let column = STEP * step + 4 * (lane & 3) + 16 * (word >> 1);
    u32::from_le_bytes([0, 1, 2, 3].map(|byte| digit(column + byte - row) as u8))
}

/// The intermediate image of row sums, 8 bytes each. It has the region's columns, and the rows that
/// the column pass reads.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Middle {
    /// The address of column 0 of row 0 of the first plane, even if memory has no such row.
    pub base: u64,
    /// Bytes from one row to the next.
    pub row: i64,
    /// Bytes from one plane to the next.
    pub plane: i64,
    /// The first row in memory.
    pub first_row: i32,
    /// The end of the rows in memory.
    pub end_row: i32,
}

/// A product's column.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The product's intermediate image.
    pub middle: Middle,
    /// The address of the column's band; 0 if there is no such product.
    pub band: u64,
    /// The sum of a row outside the image, with [`BIAS`].
    pub outside: u64,
}

/// How the column pass turns sums into bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    /// 128-bit number that removes the bias from each sum: low half, high half.
    pub start: [u64; 2],
    /// 128-bit numerator of the extra term for a single pixel: low half, high half. 0 for none.
    pub point: [u64; 2],
    /// Columns right of the result, and rows below it, of that pixel.
    pub apart: [i32; 2],
    /// The divisor of the sums.
    pub divisor: Divisor,
}

impl Middle {
    /// The address of a row sum in this block's plane.
    #[inline(always)]
    fn at(&self, x: i32, y: i32) -> u64 {
        let offset = block_z() as i64 * self.plane + y as i64 * self.row + 8 * x as i64;
        self.base.wrapping_add(offset as u64)
    }
}

kernel! {
    /// The row pass. `band` is the address of the row's band.
    fn passes_rows(pass: Pass, window: Window, middle: Middle, band: u64) {
        directive!(".maxnreg 128");
        let_next_kernel_begin();
        if is_needed(&pass.uncertain) {
            rows(&pass, &window, &middle, band)
        }
    }

    /// The column pass of one or two products.
    fn passes_columns(pass: Pass, window: Window, first: Column, second: Column, ending: Ending) {
        directive!(".maxnreg 128");
        let_next_kernel_begin();
        if is_needed(&pass.uncertain) {
            columns(&pass, &window, [&first, &second], &ending)
        }
    }

    /// Stores the verdict: whether more than `most` results are uncertain, or a segment of the list
    /// overflowed. If so, empties the list. The launch has one block.
    fn passes_verdict(pass: Pass, most: u32) {
        let_next_kernel_begin();
        verdict(&pass.uncertain, most)
    }
}

/// Whether the passes have to compute.
///
/// # Safety
/// If there is a list, its verdict is stored.
#[inline(always)]
unsafe fn is_needed(uncertain: &UncertainList) -> bool {
    // SAFETY: as the caller promised.
    uncertain.list == 0 || unsafe { reload_word(uncertain.verdict()) } != 0
}

/// Stores the verdict: see `passes_verdict`.
///
/// # Safety
/// There is a list, which no other block uses. All threads of the block call this, with
/// [`VERDICT_SHARED`] bytes of shared memory.
#[inline(always)]
unsafe fn verdict(uncertain: &UncertainList, most: u32) {
    let (shared, segment) = (Shared::dynamic(), 32 * thread_y() + thread_x());
    // SAFETY: as the caller promised. The block passes a barrier between a thread's stores and
    // other threads' loads.
    unsafe {
        let noted = reload_word(uncertain.counter(segment));
        // More than `most + 1` in a segment makes no difference.
        let of_warp = sum_of_lanes(noted.min(most + 1));
        if thread_x() == 0 {
            shared.store(thread_y(), f32::from_bits(of_warp));
        }
        let overflows = barrier_or(noted > uncertain.capacity);
        // As many warps as lanes.
        let all = sum_of_lanes(shared.load_word(thread_x()));
        // The same for the whole block.
        let many = overflows || all > most;
        if many {
            store_words(uncertain.counter(segment), [0]);
        }
        if segment == 0 {
            store_words(uncertain.verdict(), [many as u32]);
        }
    }
}

/// The sum of a number over the lanes of a warp.
///
/// # Safety
/// All lanes call this.
#[inline(always)]
unsafe fn sum_of_lanes(number: u32) -> u32 {
    let (mut sum, mut apart) = (number, 16);
    while apart > 0 {
        // SAFETY: as the caller promised.
        sum += unsafe { exchange(sum, apart) };
        apart /= 2;
    }
    sum
}

/// A lane's sums for groups of 8 lines: four for each weight.
type Sums<const WEIGHTS: usize, const GROUPS: usize> = [[[i32; 4]; WEIGHTS]; GROUPS];

/// Adds `count` columns of the band, a multiple of [`STEP`], to the sums of all lines. `band` is
/// the address of the first of these columns, whose numbers lie in the first word of each line. A
/// number has PLANES bytes, and each byte plane has its own words.
///
/// # Safety
/// The band and the numbers are there; all lanes of the warp call this.
#[inline(always)]
unsafe fn add<const PLANES: usize, const WEIGHTS: usize, const GROUPS: usize>(
    sums: &mut Sums<WEIGHTS, GROUPS>,
    band: u64,
    stride: i32,
    count: i32,
) {
    let (shared, lane) = (Shared::dynamic(), thread_x());
    let mut fragments = band.wrapping_add(16 * lane as u64);
    // A warp's 16 results are four words further, and so is the second half of a step.
    let mut start = 8 * (4 * thread_y() + (lane & 3)) + (lane >> 2);
    let mut left = opaque(count);
    // SAFETY: as the caller promised.
    unsafe {
        while left > 0 {
            keep_rolled();
            let mut taps = [[0; 4]; DIGITS];
            let mut digit = 0;
            while digit < DIGITS {
                taps[digit] = load_words(fragments.wrapping_add(512 * digit as u64));
                digit += 1;
            }
            let mut group = 0;
            while group < GROUPS {
                let mut plane = 0;
                while plane < PLANES {
                    let at = start + stride * (PLANES * group + plane) as i32;
                    let numbers = [shared.load_word(at), shared.load_word(at + 8 * 4)];
                    let mut digit = 0;
                    while digit < DIGITS {
                        let weight = plane + digit;
                        sums[group][weight] = mma_signed(sums[group][weight], taps[digit], numbers);
                        digit += 1;
                    }
                    plane += 1;
                }
                group += 1;
            }
            fragments = fragments.wrapping_add(STEP_BYTES);
            start += 8 * STEP / 4;
            left -= STEP;
        }
    }
}

/// Leaves a byte in each sum, except that of the greatest weight; adds the rest to the next
/// weight's sum.
#[inline(always)]
fn carry<const WEIGHTS: usize, const GROUPS: usize>(sums: &mut Sums<WEIGHTS, GROUPS>) {
    let mut group = 0;
    while group < GROUPS {
        let mut weight = 0;
        while weight + 1 < WEIGHTS {
            let mut i = 0;
            while i < 4 {
                let sum = sums[group][weight][i];
                sums[group][weight + 1][i] = sums[group][weight + 1][i].wrapping_add(sum >> 8);
                sums[group][weight][i] = sum & 0xff;
                i += 1;
            }
            weight += 1;
        }
        group += 1;
    }
}

/// Four carried sums of a lane's result `i`, from weight `first` on, joined in a word.
#[inline(always)]
fn word<const WEIGHTS: usize>(sums: &[[i32; 4]; WEIGHTS], first: usize, i: usize) -> u32 {
    joined([0, 1, 2, 3].map(|weight| sums[first + weight][i] as u32))
}

/// The row pass.
///
/// # Safety
/// `pass` and `middle` describe allocated memory, `taps` is the band of `window.cols` taps, and the
/// launch has the block shape and the shared memory stated above.
#[inline(always)]
unsafe fn rows(pass: &Pass, window: &Window, middle: &Middle, taps: u64) {
    let mut left = pass.region.aligned_left() + block_x() * ACROSS;
    while left < pass.region.x1 {
        // SAFETY: as the caller promised.
        unsafe { rows_from(pass, window, middle, taps, left) };
        left += grid_width() * ACROSS;
    }
}

/// The block's part of the row pass in the [`ACROSS`] columns from `left` on.
///
/// # Safety
/// As for [`rows`].
#[inline(always)]
unsafe fn rows_from(pass: &Pass, window: &Window, middle: &Middle, taps: u64, left: i32) {
    let (source, lane) = (Source::new(pass), thread_x());
    let length = band(window.cols);
    let mut top = middle.first_row + block_y() * ROWS_TILE.1 as i32;
    while top < middle.end_row {
        // The line that this thread loads. Lines beyond the last row repeat the last row and are
        // not stored.
        let line = 8 * (thread_y() & 3) + (lane & 7);
        let y = top + line;
        let row = source.row_inside(if y < middle.end_row { y } else { middle.end_row - 1 });
        let mut sums = [[[0; 4]; DIGITS]; ROW_GROUPS];
        let mut done = opaque(0);
        while done < length {
            let count = if length - done < ROW_CHUNK { length - done } else { ROW_CHUNK };
            // SAFETY: the numbers lie in the chunk's part of shared memory; the whole block reaches
            // the barriers.
            unsafe {
                load_bytes(pass, row, left + done - window.anchor_x, count);
                barrier();
                let at = taps.wrapping_add(STEP_BYTES * (done / STEP) as u64);
                add::<1, DIGITS, ROW_GROUPS>(&mut sums, at, stride(ROW_CHUNK), count);
                barrier();
            }
            done += count;
            if done % UNTIL_CARRY == 0 {
                carry(&mut sums);
            }
        }
        carry(&mut sums);
        let mut group = 0;
        while group < ROW_GROUPS {
            let mut i = 0;
            while i < 4 {
                let x = left + 16 * thread_y() + (lane >> 2) + 8 * (i as i32 >> 1);
                let y = top + 8 * group as i32 + 2 * (lane & 3) + (i as i32 & 1);
                if x < pass.region.x1 && y < middle.end_row {
                    let high = sums[group][DIGITS - 1][i].wrapping_add((BIAS >> 32) as i32);
                    // SAFETY: only this thread stores to this place.
                    unsafe {
                        store_words(middle.at(x, y), [word(&sums[group], 0, i), high as u32])
                    };
                }
                i += 1;
            }
            group += 1;
        }
        top += grid_height() * ROWS_TILE.1 as i32;
    }
}

/// Loads the pixels of this thread's row under `count` columns of the band, from column `left` of
/// the image on.
///
/// # Safety
/// The pass describes allocated memory, and the row is there. The whole block calls this, with the
/// shared memory of the row pass.
#[inline(always)]
unsafe fn load_bytes(pass: &Pass, row: Row<'_>, left: i32, count: i32) {
    let (shared, lane, warp) = (Shared::dynamic(), thread_x(), thread_y());
    let pixels = ACROSS - 16 + count;
    let start = stride(ROW_CHUNK) * (warp & 3) + (lane & 7);
    let mut quad = opaque(4 * (warp >> 2) + (lane >> 3));
    // SAFETY: as the caller promised; the words lie in the chunk's part of shared memory.
    unsafe {
        if left >= 0 && left + pixels <= pass.width {
            while 4 * quad < pixels {
                // All loads are in flight before the first store waits for its word.
                let mut bytes = [[0; 4]; AT_ONCE];
                let mut n = 0;
                while n < AT_ONCE {
                    // Loads beyond the last pixel repeat the last word.
                    let first = (4 * (quad + 8 * n as i32)).min(pixels - 4);
                    let mut i = 0;
                    while i < 4 {
                        bytes[n][i] = load_u8(row.at(left + first + i as i32));
                        i += 1;
                    }
                    n += 1;
                }
                let mut n = 0;
                while n < AT_ONCE {
                    let quad = quad + 8 * n as i32;
                    if 4 * quad < pixels {
                        shared.store(start + 8 * quad, f32::from_bits(joined(bytes[n])));
                    }
                    n += 1;
                }
                quad += 8 * AT_ONCE as i32;
            }
        } else {
            while 4 * quad < pixels {
                let mut i = opaque(0);
                while i < 4 {
                    keep_rolled();
                    let byte = row.pixel(left + 4 * quad + i) as i32;
                    shared.store_u8(4 * (start + 8 * quad) + i, byte as u32);
                    i += 1;
                }
                quad += 8;
            }
        }
    }
}

/// The column pass: adds the products and the extra term for a single pixel.
///
/// # Safety
/// As for [`rows`], with `window.rows` taps.
#[inline(always)]
unsafe fn columns(pass: &Pass, window: &Window, terms: [&Column; 2], ending: &Ending) {
    let mut left = pass.region.x0 + block_x() * COLUMNS_TILE.0 as i32;
    while left < pass.region.x1 {
        // SAFETY: as the caller promised.
        unsafe { columns_from(pass, window, terms, ending, left) };
        left += grid_width() * COLUMNS_TILE.0 as i32;
    }
}

/// The block's part of the column pass in the columns of a tile from `left` on.
///
/// # Safety
/// As for [`columns`].
#[inline(always)]
unsafe fn columns_from(
    pass: &Pass,
    window: &Window,
    terms: [&Column; 2],
    ending: &Ending,
    left: i32,
) {
    const WEIGHTS: usize = PLANES + DIGITS - 1;
    let length = band(window.rows);
    let mut top = pass.region.y0 + block_y() * ACROSS;
    while top < pass.region.y1 {
        let mut sums = [[[0; 4]; WEIGHTS]; COLUMN_GROUPS];
        let mut term = opaque(0);
        while term < 2 {
            let column = if term == 0 { *terms[0] } else { *terms[1] };
            let mut done = if column.band == 0 { length } else { 0 };
            while done < length {
                let count = if length - done < COLUMN_CHUNK { length - done } else { COLUMN_CHUNK };
                // SAFETY: the numbers lie in the chunk's part of shared memory; the whole block
                // reaches the barriers.
                unsafe {
                    load_sums(pass, &column, (left, top + done - window.anchor_y), count);
                    barrier();
                    let at = column.band.wrapping_add(STEP_BYTES * (done / STEP) as u64);
                    add::<PLANES, WEIGHTS, COLUMN_GROUPS>(
                        &mut sums,
                        at,
                        stride(COLUMN_CHUNK),
                        count,
                    );
                    barrier();
                }
                done += count;
                if done % UNTIL_CARRY == 0 {
                    carry(&mut sums);
                }
            }
            carry(&mut sums);
            term += 1;
        }
        // SAFETY: as the caller promised.
        unsafe { write(pass, ending, &sums, (left, top)) };
        top += grid_height() * ACROSS;
    }
}

/// Loads the row sums of the block's columns from column `x` on, and from row `y` on as many as
/// `count` columns of the band need.
///
/// # Safety
/// The pass and the column describe allocated memory. The whole block calls this, with the shared
/// memory of the column pass.
#[inline(always)]
unsafe fn load_sums(
    pass: &Pass,
    Column { middle, outside, .. }: &Column,
    (x, y): (i32, i32),
    count: i32,
) {
    let (shared, column) = (Shared::dynamic(), thread_x() & 15);
    let (rows, stride) = (ACROSS - 16 + count, stride(COLUMN_CHUNK));
    let is_inside = y >= middle.first_row && y + rows <= middle.end_row;
    // Columns beyond the region's last column repeat it and are not stored.
    let x = if x + column < pass.region.x1 { x + column } else { pass.region.x1 - 1 };
    let start = stride * PLANES as i32 * (column >> 3) + (column & 7);
    let mut quad = opaque(2 * thread_y() + (thread_x() >> 4));
    while 4 * quad < rows {
        let (mut low, mut high) = ([0; 4], [0; 4]);
        let mut i = 0;
        while i < 4 {
            let y = y + 4 * quad + i as i32;
            let found =
                if is_inside { y } else { border::resolve_briefly(pass.border, y, pass.height) };
            // Memory may lack rows that no result needs: the nearest row stands in.
            let there = found.max(middle.first_row).min(middle.end_row - 1);
            // SAFETY: the row sum is in memory.
            let sum = unsafe { load_words::<2>(middle.at(x, there)) };
            low[i] = if found < 0 { *outside as u32 } else { sum[0] };
            high[i] = if found < 0 { (*outside >> 32) as u32 } else { sum[1] };
            i += 1;
        }
        let [a, b, c, d] = transposed(low);
        let (upper, lower) =
            (permute::<0x5410>(high[0], high[1]), permute::<0x5410>(high[2], high[3]));
        let words = [a, b, c, d, permute::<0x6420>(upper, lower), permute::<0x7531>(upper, lower)];
        let mut plane = 0;
        while plane < PLANES {
            // SAFETY: the word lies in the chunk's part of shared memory.
            unsafe {
                shared.store(start + stride * plane as i32 + 8 * quad, f32::from_bits(words[plane]))
            };
            plane += 1;
        }
        quad += 16;
    }
}

/// Stores the bytes of a lane's carried sums. The block's first result is at `(left, top)`.
///
/// # Safety
/// The pass describes allocated memory.
#[inline(always)]
unsafe fn write<const WEIGHTS: usize>(
    pass: &Pass,
    ending: &Ending,
    sums: &Sums<WEIGHTS, COLUMN_GROUPS>,
    (left, top): (i32, i32),
) {
    let (source, target, lane) = (Source::new(pass), Target::new(pass), thread_x());
    let has_point = ending.point[0] | ending.point[1] != 0;
    let mut group = 0;
    while group < COLUMN_GROUPS {
        let mut i = 0;
        while i < 4 {
            let x = left + 8 * group as i32 + 2 * (lane & 3) + (i as i32 & 1);
            let y = top + 16 * thread_y() + (lane >> 2) + 8 * (i as i32 >> 1);
            if x < pass.region.x1 && y < pass.region.y1 {
                let of_group = &sums[group];
                let low = (word(of_group, 4, i) as u64) << 32 | word(of_group, 0, i) as u64;
                let high = (of_group[WEIGHTS - 1][i] as i64) << 8 | of_group[WEIGHTS - 2][i] as i64;
                let mut sum = plus([low, high as u64], ending.start);
                // SAFETY: only this thread stores to this place, and the pass describes allocated
                // memory.
                unsafe {
                    if has_point {
                        let byte =
                            source.pixel(x + ending.apart[0], y + ending.apart[1]) as i32 as u64;
                        sum = plus(sum, times(ending.point, byte));
                    }
                    store_bits(U8, target.at(x, y), ending.divisor.byte(sum[1] as i64, sum[0]));
                }
            }
            i += 1;
        }
        group += 1;
    }
}

/// The sum of two 128-bit numbers, low halves first.
#[inline(always)]
fn plus(a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
    let low = a[0].wrapping_add(b[0]);
    [low, a[1].wrapping_add(b[1]).wrapping_add((low < a[0]) as u64)]
}

/// The product of a 128-bit number and a byte.
#[inline(always)]
fn times(number: [u64; 2], byte: u64) -> [u64; 2] {
    let (lower, upper) = ((number[0] & 0xffff_ffff) * byte, (number[0] >> 32) * byte);
    plus([lower, number[1].wrapping_mul(byte)], [upper << 32, upper >> 32])
}
