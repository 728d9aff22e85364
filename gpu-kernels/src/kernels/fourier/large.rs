//! Correlation as a product of spectra of tiles of 1024 x 1024 pixels, which exceed a block's
//! shared memory: for windows that leave too few results in a tile of 128.
//!
//! Tiling: as in `tiles.rs`, with SIDE for SIZE. Three kernels take some pairs of tiles, one after
//! the other: rows to spectra; columns to spectra, times the taps' spectrum, and back; rows back to
//! results. A buffer keeps the numbers between them, and fits in the L2 cache if pairs are few.
//! Rows that no result in the image needs are 0 and not transformed.
//!
//! Threads: 32 threads share a line, 32 numbers each: `j + 32 m` of thread `j` before a transform,
//! frequencies `k + 32 n` of thread `k` after. A line takes a transform of 32 in registers, twiddle
//! factors, an exchange and a transform of 32. The inverse takes the same steps with conjugate
//! factors. A warp takes one row, and exchanges without a block barrier. A block takes eight
//! columns, so that it accesses 64 bytes of each row of the buffer. Strides avoid bank conflicts:
//! 33 numbers for rows, eight more than a multiple of sixteen for columns.
//!
//! Error and limits: as in `tiles.rs`.

use super::fft::{Complex, ZERO, twisted, within};
use super::holes::note;
use super::layout::{BESIDE, FOLDED, Large, Pairs, Parts, STACKED};
use super::tiles::{Share, leave_holes, put};
use crate::abi::Pass;
use crate::device::*;
use crate::tile::view::{BYTES, PLANES, Row, STORED, Source, Target};

const SIDE: i32 = Large::SIDE;
/// Numbers of a line in a thread, and threads that share a line.
const EACH: usize = 32;
/// Rows of a block, one for each warp, and columns of a block.
const ROWS: i32 = Large::ROW_BLOCK.1 as i32;
const COLUMNS: i32 = Large::COLUMNS as i32;

/// Addresses of an exchange among the 32 threads of a line: thread `j` stores its number `k` at
/// `from + apart * k`, and loads one number of each thread at `to`, `to + step`, ...
struct Exchange {
    shared: Shared,
    /// The thread's index in its line.
    thread: i32,
    from: i32,
    apart: i32,
    to: i32,
    step: i32,
}

impl Exchange {
    /// A row, in the warp's own part of shared memory.
    #[inline(always)]
    fn of_row() -> Self {
        let start = 33 * 32 * thread_y();
        let thread = thread_x();
        Self {
            shared: Shared::dynamic(),
            thread,
            from: start + thread,
            apart: 33,
            to: start + 33 * thread,
            step: 1,
        }
    }

    /// The thread's column, counted from the block's first, and the exchange in that column.
    #[inline(always)]
    fn of_column() -> (i32, Self) {
        let (column, thread) = (thread_x() & 7, 4 * thread_y() + (thread_x() >> 3));
        let (apart, step) = (33 * COLUMNS, COLUMNS);
        let (from, to) = (column + step * thread, column + apart * thread);
        (column, Self { shared: Shared::dynamic(), thread, from, apart, to, step })
    }

    /// Transforms a line, or transforms back, SIDE times too large. `table` has twiddle factor
    /// `j k` at `32 k + j`. For a folded line the factors include the twist of `j`, or that of `k`
    /// for the inverse; the caller applies the twist of `m`.
    ///
    /// # Safety
    /// All threads of the line call this, and with BLOCK all of the block; the line's part of
    /// shared memory is not in use.
    #[inline(always)]
    unsafe fn transform<const INVERSE: bool, const BLOCK: bool>(
        &self,
        line: [Complex; EACH],
        table: *const f32,
        folded: bool,
    ) -> [Complex; EACH] {
        let mut numbers = within::<EACH, INVERSE>(line);
        let table = table.wrapping_add(2 * self.thread as usize);
        // SAFETY: as the caller promised; the table has 32 factors for each of 32 values of `k`.
        unsafe {
            let mut k = 0;
            while k < EACH {
                if folded || k > 0 {
                    let [re, im] = load2(table, 2 * 32 * k);
                    numbers[k] =
                        numbers[k].times(Complex { re, im: if INVERSE { -im } else { im } });
                }
                self.shared.store2(
                    2 * (self.from + self.apart * k as i32),
                    [numbers[k].re, numbers[k].im],
                );
                k += 1;
            }
            Self::wait::<BLOCK>();
            let mut j = 0;
            while j < EACH {
                let [re, im] = self.shared.load2(2 * (self.to + self.step * j as i32));
                numbers[j] = Complex { re, im };
                j += 1;
            }
            // The next line's numbers overwrite the same places.
            Self::wait::<BLOCK>();
        }
        within::<EACH, INVERSE>(numbers)
    }

    #[inline(always)]
    unsafe fn wait<const BLOCK: bool>() {
        if BLOCK {
            // SAFETY: all threads of the block reach this barrier.
            unsafe { barrier() };
        } else {
            warp_barrier();
        }
    }
}

/// A pair of tiles, or a folded tile.
struct Pair {
    /// The channel, as other grids count it along z.
    z: i32,
    /// Columns and rows from the pixel in a real part to the pixel in the imaginary part; then
    /// results in a row of both parts.
    apart: (i32, i32),
    wide: i32,
    /// The first column and row of the first tile's results.
    left: i32,
    top: i32,
    /// Rows to transform: those that the tile's results in the image need. A region that ends
    /// within the tile reads them too, so its results have the bits of the whole image's.
    read: i32,
    /// Rows of results in the region.
    rows: i32,
    /// The address of the pair's complex numbers, row by row.
    numbers: u64,
}

impl Pair {
    /// The pair of this block.
    #[inline(always)]
    fn of_block<const WAY: u32>(pass: &Pass, parts: &Parts, pairs: &Pairs) -> Self {
        let number = (pairs.first + block_y()) as u32;
        // `checked`, so that no panic is compiled into the kernel.
        let row = number.checked_div(parts.across as u32).unwrap_or(0);
        let column = number - row * parts.across as u32;
        let z = row.checked_div(pairs.down as u32).unwrap_or(0);
        let row = (row - z * pairs.down as u32) as i32;
        let (cols, rows) = (Large::results(parts.cols), Large::results(parts.rows));
        let (apart, wide) = match WAY {
            FOLDED => ((SIDE, 0), SIDE + cols),
            STACKED => ((0, rows), cols),
            _ => ((cols, 0), 2 * cols),
        };
        let (left, top) =
            (pass.region.x0 + column as i32 * wide, pass.region.y0 + row * pairs.tall);
        let read = least(rows, pass.height - top) + parts.rows - 1;
        let rows = least(rows, pass.region.y1 - top);
        let numbers = pairs.numbers + block_y() as u64 * Large::NUMBERS;
        Self { z: z as i32, apart, wide, left, top, read, rows, numbers }
    }

    /// The address of the complex number in column `x` and row `y`.
    #[inline(always)]
    fn number(&self, x: i32, y: i32) -> *mut f32 {
        (self.numbers + 8 * (y as u64 * SIDE as u64 + x as u64)) as *mut f32
    }

    /// The end of the columns of results.
    #[inline(always)]
    fn end(&self, pass: &Pass) -> i32 {
        least(self.left + self.wide, pass.region.x1)
    }
}

/// Table of factors `number`: 0 without a twist, 1 with the twist of `j`, 2 with the twist of `k`.
#[inline(always)]
fn of_table(tables: *const f32, number: usize) -> *const f32 {
    tables.wrapping_add(2 * SIDE as usize * number)
}

#[inline(always)]
fn least(a: i32, b: i32) -> i32 {
    if a < b { a } else { b }
}

/// Transforms the rows of some pairs.
///
/// # Safety
/// `pass` describes allocated memory, `table` is the table of twiddle factors, `pairs` has room for
/// the grid's pairs, and the blocks are those of [`Large::ROW_BLOCK`] with their shared memory.
#[inline(always)]
pub(super) unsafe fn rows<const KIND: u32, const WAY: u32>(
    pass: &Pass,
    parts: &Parts,
    pairs: &Pairs,
    table: *const f32,
) {
    let pair = Pair::of_block::<WAY>(pass, parts, pairs);
    let row = ROWS * block_x() + thread_y();
    // SAFETY: as the caller promised; only one warp takes a row.
    unsafe {
        if row < pair.read {
            let exchange = Exchange::of_row();
            let mut line = load_pair::<KIND, WAY>(pass, parts, pairs, &pair, row, &exchange);
            // The second condition is the same for the whole launch, so the branch is uniform.
            if KIND != BYTES && parts.greatest < f32::INFINITY {
                note(parts.noted, leave_holes(&mut line, parts.greatest));
            }
            let line = match WAY == FOLDED {
                true => exchange.transform::<false, false>(
                    twisted::<EACH, false>(line),
                    of_table(table, 1),
                    true,
                ),
                false => exchange.transform::<false, false>(line, table, false),
            };
            let to = pair.number(exchange.thread, row);
            let mut n = 0;
            while n < EACH {
                store_run(to, 2 * 32 * n, [line[n].re, line[n].im]);
                n += 1;
            }
        }
    }
}

/// Transforms the columns of some pairs, multiplies with the spectrum of the window's part, and
/// transforms back.
///
/// # Safety
/// As for [`rows`], with blocks of [`Large::COLUMN_BLOCK`]; `spectra` is the table, then the
/// spectra of the window's parts.
#[inline(always)]
pub(super) unsafe fn columns(pass: &Pass, parts: &Parts, pairs: &Pairs, spectra: *const f32) {
    // The columns' place in the image does not matter here.
    let pair = Pair::of_block::<BESIDE>(pass, parts, pairs);
    let (column, exchange) = Exchange::of_column();
    let (column, thread) = (COLUMNS * block_x() + column, exchange.thread);
    let numbers = pair.number(column, thread);
    let mut line = [ZERO; EACH];
    // SAFETY: as the caller promised; only one block takes a column.
    unsafe {
        let mut m = 0;
        while m < EACH {
            if thread + 32 * (m as i32) < pair.read {
                let [re, im] = reload2(numbers, 2 * 32 * SIDE as usize * m);
                line[m] = Complex { re, im };
            }
            m += 1;
        }
        let mut line = exchange.transform::<false, true>(line, spectra, false);
        let first = SIDE as usize * (parts.tables as usize + SIDE as usize * pairs.part as usize);
        let spectrum =
            spectra.wrapping_add(2 * (first + SIDE as usize * thread as usize + column as usize));
        let mut n = 0;
        while n < EACH {
            let [re, im] = load2(spectrum, 2 * 32 * SIDE as usize * n);
            line[n] = line[n].times(Complex { re, im });
            n += 1;
        }
        let line = exchange.transform::<true, true>(line, spectra, false);
        let mut m = 0;
        while m < EACH {
            if thread + 32 * (m as i32) < pair.rows {
                store_run(numbers, 2 * 32 * SIDE as usize * m, [line[m].re, line[m].im]);
            }
            m += 1;
        }
    }
}

/// Transforms the rows of some pairs back, to results.
///
/// # Safety
/// As for [`rows`].
#[inline(always)]
pub(super) unsafe fn results<const KIND: u32, const WAY: u32>(
    pass: &Pass,
    parts: &Parts,
    pairs: &Pairs,
    table: *const f32,
) {
    let pair = Pair::of_block::<WAY>(pass, parts, pairs);
    let row = ROWS * block_x() + thread_y();
    if row >= pair.rows {
        return;
    }
    let share = Share { adds: pairs.part > 0, ends: pairs.part == parts.count - 1 };
    // SAFETY: as the caller promised; only one warp takes a row.
    unsafe {
        let exchange = Exchange::of_row();
        let numbers = pair.number(exchange.thread, row);
        let mut line = [ZERO; EACH];
        let mut n = 0;
        while n < EACH {
            let [re, im] = load2(numbers, 2 * 32 * n);
            line[n] = Complex { re, im };
            n += 1;
        }
        let line = match WAY == FOLDED {
            true => twisted::<EACH, true>(exchange.transform::<true, false>(
                line,
                of_table(table, 2),
                true,
            )),
            false => exchange.transform::<true, false>(line, table, false),
        };
        store_pair::<KIND>(pass, parts, &pair, share, row, &exchange, &line);
    }
}

/// Loads the thread's share of a row of both tiles: the first as real, the second as imaginary
/// parts. A column that no result in the image needs is 0.
#[inline(always)]
unsafe fn load_pair<const KIND: u32, const WAY: u32>(
    pass: &Pass,
    parts: &Parts,
    pairs: &Pairs,
    pair: &Pair,
    row: i32,
    exchange: &Exchange,
) -> [Complex; EACH] {
    let down = (pairs.part as u32).checked_div(parts.beside as u32).unwrap_or(0) as i32;
    let beside = pairs.part - down * parts.beside;
    let x = pair.left - parts.window.anchor_x + beside * parts.cols;
    let y = pair.top - parts.window.anchor_y + down * parts.rows + row;
    let (apart, below) = pair.apart;
    let source = Source::of_channel(&pass.src, pass, pair.z);
    let row = source.row(y);
    let other = if WAY == STACKED { source.row(y + below) } else { row };
    let lane = exchange.thread;
    let inside = x >= 0 && x + apart + SIDE <= pass.width && row.is_inside() && other.is_inside();
    let mut line = [ZERO; EACH];
    // SAFETY: inside, every column lies in the image; else each column goes through the border
    // rule. Only this thread uses the numbers in shared memory.
    unsafe {
        if KIND != BYTES && inside && source.is_plain() {
            let (first, second) = (row.at_plain(x + lane), row.at_plain(x + lane + apart));
            let mut m = 0;
            while m < EACH {
                line[m] = Complex { re: load(first, 32 * m), im: load(second, 32 * m) };
                m += 1;
            }
        } else if KIND != PLANES && inside {
            let first = row.pixels_strided::<EACH, KIND>(x + lane, 32);
            let second = other.pixels_strided::<EACH, KIND>(x + lane + apart, 32);
            let mut m = 0;
            while m < EACH {
                line[m] = Complex { re: first[m], im: second[m] };
                m += 1;
            }
        } else {
            // The end of needed columns, counted from the first column of the real parts.
            let needed = pass.width - pair.left + parts.cols - 1;
            line = load_at_edge::<KIND>([row, other], x, apart, needed, exchange);
        }
    }
    line
}

/// As [`load_pair`], through the border rule. Real parts are pixels of the first row from column
/// `x` on, imaginary parts pixels of the second row, `apart` columns further right. Columns from
/// `x + needed` on are 0.
///
/// # Safety
/// The pass describes allocated memory. Only this thread uses the numbers in shared memory.
#[inline(always)]
unsafe fn load_at_edge<const KIND: u32>(
    [row, other]: [Row<'_>; 2],
    x: i32,
    apart: i32,
    needed: i32,
    exchange: &Exchange,
) -> [Complex; EACH] {
    // SAFETY: as the caller promised.
    unsafe {
        let mut m = opaque(0);
        while m < EACH as i32 {
            let at = exchange.thread + 32 * m;
            let first = row.found_strided::<8, KIND>(x + at, 32);
            let second = other.found_strided::<8, KIND>(x + at + apart, 32);
            let mut i = 0;
            while i < 8 {
                let at = at + 32 * i as i32;
                let re = if at < needed { first[i] } else { 0.0 };
                let im = if at + apart < needed { second[i] } else { 0.0 };
                let place = exchange.from + exchange.apart * (m + i as i32);
                exchange.shared.store2(2 * place, [re, im]);
                i += 1;
            }
            m = opaque(m + 8);
        }
        let (mut line, mut m) = ([ZERO; EACH], 0);
        while m < EACH {
            let place = exchange.from + exchange.apart * m as i32;
            let [re, im] = exchange.shared.load2(2 * place);
            line[m] = Complex { re, im };
            m += 1;
        }
        line
    }
}

/// Stores the results of a row of both tiles, or adds them to the results of earlier parts.
#[inline(always)]
unsafe fn store_pair<const KIND: u32>(
    pass: &Pass,
    parts: &Parts,
    pair: &Pair,
    share: Share,
    row: i32,
    exchange: &Exchange,
    line: &[Complex; EACH],
) {
    let target = Target::of_channel(pass, pair.z);
    let (lane, (apart, below), y) = (exchange.thread, pair.apart, pair.top + row);
    let other = y + below;
    // The end of results in the real parts, and in the imaginary parts.
    let end = pair.end(pass);
    let ends = match below {
        0 => (least(pair.left + apart, end), end),
        _ => (end, if other < pass.region.y1 { end } else { pair.left }),
    };
    let (first, second) = (pair.left + lane, pair.left + apart + lane);
    // SAFETY: each pixel lies in the region, and one thread stores it. Only this thread uses the
    // numbers in shared memory.
    unsafe {
        if KIND != BYTES && target.is_simple() && !share.adds {
            let (to_first, to_second) = (target.at_plain(first, y), target.at_plain(second, y));
            let mut m = 0;
            while m < EACH {
                let at = 32 * m as i32;
                if first + at < ends.0 {
                    store(to_first, 32 * m, line[m].re);
                }
                if second + at < ends.1 {
                    store(to_second, 32 * m, line[m].im);
                }
                m += 1;
            }
        } else if KIND == BYTES || KIND == STORED && !share.adds && share.ends {
            let (mut re, mut im) = ([0.0; EACH], [0.0; EACH]);
            let mut m = 0;
            while m < EACH {
                (re[m], im[m]) = (line[m].re, line[m].im);
                if KIND == BYTES {
                    (re[m], im[m]) = (re[m] + parts.middle, im[m] + parts.middle);
                }
                m += 1;
            }
            let point = parts.point;
            if KIND == BYTES && point != 0.0 {
                let source = Source::of_channel(&pass.src, pass, pair.z);
                add_point(&source, point, (first, y), ends.0, &mut re);
                add_point(&source, point, (second, other), ends.1, &mut im);
            }
            target.write_strided::<EACH, KIND>((first, y), 32, ends.0, re);
            target.write_strided::<EACH, KIND>((second, other), 32, ends.1, im);
        } else {
            let mut m = 0;
            while m < EACH {
                let at = exchange.from + exchange.apart * m as i32;
                exchange.shared.store2(2 * at, [line[m].re, line[m].im]);
                m += 1;
            }
            let mut m = opaque(0);
            while m < EACH as i32 {
                let [re, im] = exchange.shared.load2(2 * (exchange.from + exchange.apart * m));
                if first + 32 * m < ends.0 {
                    put(&target, pass, share, first + 32 * m, y, re);
                }
                if second + 32 * m < ends.1 {
                    put(&target, pass, share, second + 32 * m, y, im);
                }
                m = opaque(m + 1);
            }
        }
    }
}

/// Adds the centre tap's products with the bytes under the results, 32 columns apart from `x` on,
/// up to column `end`.
///
/// # Safety
/// The pass describes allocated memory; the results lie in the image.
#[inline(always)]
unsafe fn add_point(
    source: &Source<'_>,
    point: f32,
    (x, y): (i32, i32),
    end: i32,
    sums: &mut [f32; EACH],
) {
    let row = source.row_inside(y);
    let mut bytes = [0; EACH];
    let mut m = 0;
    while m < EACH {
        let x = x + 32 * m as i32;
        // SAFETY: as the caller promised.
        bytes[m] = unsafe { load_u8_if(x < end, row.at(x)) };
        m += 1;
    }
    m = 0;
    while m < EACH {
        sums[m] = fma(point, bytes[m] as f32, sums[m]);
        m += 1;
    }
}
