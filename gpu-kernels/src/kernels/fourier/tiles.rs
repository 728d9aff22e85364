//! Correlation as a product of spectra, tile by tile, for large windows that do not separate.
//!
//! Tiling: a block transforms two neighbouring tiles of SIZE x SIZE pixels (128 or 64) at once, as
//! the real and the imaginary part of the same numbers: taps are real, so the two never mix. A tile
//! gives `SIZE + 1 - cols` by `SIZE + 1 - rows` results that wrap-around does not reach
//! (overlap-save). The entries for bytes fold one tile of `2 SIZE` columns instead (see `mod.rs`).
//! A window too large for a tile has parts of at most 3/4 of a tile each way; one thread adds all
//! parts of a result.
//!
//! Threads: a warp takes 4 rows at a time, 8 lanes a row; columns likewise. A lane holds M = SIZE /
//! 8 values of a line: elements `j + 8 m` of lane `j` before a transform, frequencies `q + 8 n` of
//! lane `q` after. A line takes a transform of M in the lane, twiddle factors, an exchange among 8
//! lanes, then M / 8 transforms of 8. The inverse takes the same steps backwards, so spectra are
//! never reordered. Strides avoid bank conflicts: 9 in an exchange, 4 more than a multiple of 16
//! between rows.
//!
//! Error: that of two f32 transforms, relative to the largest pixel times the sum of all taps.
//! Limits: copies at the border are left to `keep.rs`; several parts need an f32 destination; BYTES
//! takes one part.

use super::bytes::{self, row_of};
use super::fft::{Complex, ZERO, eight, twisted, within};
use super::holes::note;
use super::layout::{Layout, Parts};
use crate::abi::Pass;
use crate::device::*;
use crate::tile::view::{BYTES, PLANES, Row, STORED, Source, Target};

/// A lane's view of a line in shared memory. The line's 8 M complex numbers are `step` numbers
/// apart; `lane` is the lane's index among the 8 that share the line.
#[derive(Clone, Copy)]
struct Place<const M: usize> {
    shared: Shared,
    start: i32,
    step: i32,
    lane: i32,
}

impl<const M: usize> Place<M> {
    /// The lane's row among rows `4 * four` to `4 * four + 3`, and its view of that row.
    #[inline(always)]
    fn along(shared: Shared, four: i32) -> (i32, Self) {
        let lane = thread_x();
        let row = 4 * four + row_of(lane);
        (row, Self { shared, start: row * Layout::<M>::PITCH, step: 1, lane: lane & 7 })
    }

    /// The tile row of a view from [`Place::along`].
    #[inline(always)]
    fn row(self) -> i32 {
        self.start / Layout::<M>::PITCH
    }

    /// The lane's view of its column among columns `4 * four` to `4 * four + 3`.
    #[inline(always)]
    fn down(shared: Shared, four: i32) -> Self {
        let lane = thread_x();
        Self { shared, start: 4 * four + (lane & 3), step: Layout::<M>::PITCH, lane: lane >> 2 }
    }

    /// Number `base + offset` of the line. The offset is a compile-time constant, encoded in the
    /// instruction.
    #[inline(always)]
    unsafe fn load(self, base: i32, offset: i32) -> Complex {
        // SAFETY: lines lie in the tile's part of shared memory.
        let [re, im] = unsafe {
            self.shared.load2(2 * (self.start + base * self.step) + 2 * offset * self.step)
        };
        Complex { re, im }
    }

    #[inline(always)]
    unsafe fn store(self, base: i32, offset: i32, value: Complex) {
        let at = 2 * (self.start + base * self.step) + 2 * offset * self.step;
        // SAFETY: lines lie in the tile's part of shared memory.
        unsafe { self.shared.store2(at, [value.re, value.im]) };
    }

    /// The lane's share of the line: every eighth number.
    #[inline(always)]
    unsafe fn load_line(self) -> [Complex; M] {
        let mut line = [ZERO; M];
        let mut m = 0;
        while m < M {
            // SAFETY: a line has 8 M numbers.
            line[m] = unsafe { self.load(self.lane, 8 * m as i32) };
            m += 1;
        }
        line
    }

    #[inline(always)]
    unsafe fn store_line(self, line: &[Complex; M]) {
        let mut m = 0;
        while m < M {
            // SAFETY: a line has 8 M numbers.
            unsafe { self.store(self.lane, 8 * m as i32, line[m]) };
            m += 1;
        }
    }

    /// The lane's twiddle factor for `k`, from the table after the tile; if `folded`, times the
    /// twist.
    #[inline(always)]
    unsafe fn twiddle(self, k: i32, folded: bool) -> Complex {
        let table = Layout::<M>::TABLE + if folded { Layout::<M>::SIZE } else { 0 };
        // SAFETY: a table has 8 factors for each of M values of `k`.
        let [re, im] = unsafe { self.shared.load2(2 * self.lane + 2 * (table + 8 * k)) };
        Complex { re, im }
    }

    /// Transforms a line from elements `lane + 8 m` to frequencies `lane + 8 n`.
    ///
    /// During the exchange, lane `j`'s value for `k` is at `9 k + j`.
    ///
    /// # Safety
    /// The whole warp calls this; no other warp uses the line's part of shared memory.
    #[inline(always)]
    unsafe fn forward(self, line: [Complex; M], folded: bool) -> [Complex; M] {
        let mut part = within::<M, false>(if folded { twisted::<M, false>(line) } else { line });
        let mut out = [ZERO; M];
        // SAFETY: as the caller promised.
        unsafe {
            // Other lanes must have read their shares of the line before the exchange overwrites
            // the line.
            warp_barrier();
            let mut k = 0;
            while k < M {
                if folded || k > 0 {
                    part[k] = part[k].times(self.twiddle(k as i32, folded));
                }
                self.store(self.lane, 9 * k as i32, part[k]);
                k += 1;
            }
            warp_barrier();
            let mut share = 0;
            while share < M / 8 {
                let mut x = [ZERO; 8];
                let mut j = 0;
                while j < 8 {
                    x[j] = self.load(9 * self.lane, (72 * share + j) as i32);
                    j += 1;
                }
                let y = eight::<false>(x);
                let mut k = 0;
                while k < 8 {
                    out[share + M / 8 * k] = y[k];
                    k += 1;
                }
                share += 1;
            }
            warp_barrier();
        }
        out
    }

    /// The inverse transform, 8 M times too large.
    ///
    /// # Safety
    /// As for [`Place::forward`].
    #[inline(always)]
    unsafe fn inverse(self, line: [Complex; M], folded: bool) -> [Complex; M] {
        let mut part = [ZERO; M];
        // SAFETY: as the caller promised.
        unsafe {
            // As in `forward`: other lanes read the line before the exchange overwrites the line.
            warp_barrier();
            let mut share = 0;
            while share < M / 8 {
                let mut x = [ZERO; 8];
                let mut k = 0;
                while k < 8 {
                    x[k] = line[share + M / 8 * k];
                    k += 1;
                }
                let y = eight::<true>(x);
                let mut j = 0;
                while j < 8 {
                    self.store(9 * self.lane, (72 * share + j) as i32, y[j]);
                    j += 1;
                }
                share += 1;
            }
            warp_barrier();
            let mut k = 0;
            while k < M {
                let value = self.load(self.lane, 9 * k as i32);
                let turns = folded || k > 0;
                part[k] = if turns {
                    value.times_conjugate(self.twiddle(k as i32, folded))
                } else {
                    value
                };
                k += 1;
            }
            warp_barrier();
        }
        let line = within::<M, true>(part);
        if folded { twisted::<M, true>(line) } else { line }
    }
}

/// Filters every pair of tiles of this block.
///
/// # Safety
/// `pass` describes allocated memory, the buffers hold the contents that `parts` describes, and the
/// launch has 32 threads a row of the block and [`Layout::SHARED`] bytes of shared memory.
#[inline(always)]
pub(super) unsafe fn correlate<const M: usize, const KIND: u32>(
    pass: &Pass,
    parts: &Parts,
    spectra: *const f32,
) {
    let shared = Shared::dynamic();
    let thread = 32 * thread_y() + thread_x();
    if thread < Layout::<M>::SIZE * tables(KIND) {
        // SAFETY: the tables come first in the buffer, and after the tile in shared memory; a block
        // has at least as many threads as two tables have factors.
        unsafe {
            shared.store2(2 * (Layout::<M>::TABLE + thread), load2(spectra, 2 * thread as usize))
        };
    }
    // SAFETY: all threads of the block reach this barrier.
    unsafe { barrier() };
    let tall = Layout::<M>::results(parts.rows);
    let mut turns =
        if folds(KIND) { BlockTiles::of_block(pass, parts, tall) } else { BlockTiles::NONE };
    // Pairs count along a row of tiles, then row by row; a block takes every `grid_width()`-th
    // pair.
    let (mut column, mut top) = (block_x(), pass.region.y0);
    loop {
        if folds(KIND) {
            if turns.left == 0 {
                return;
            }
            (column, top) = turns.next(pass, parts, tall);
        } else {
            while column >= parts.across {
                column -= parts.across;
                top += tall;
            }
            if top >= pass.region.y1 {
                return;
            }
        }
        // SAFETY: as the caller promised; the whole block calls.
        unsafe { filter_pair::<M, KIND>(pass, parts, spectra, column, top) };
        column += grid_width();
    }
}

/// A block's folded tiles: a strided or a contiguous range of tile numbers. Numbers go along the
/// rows of tiles; last come the half tiles at the right edge, which hold two rows of tiles each.
struct BlockTiles {
    number: i32,
    step: i32,
    left: i32,
    /// The number of tiles before the half tiles.
    whole: i32,
}

impl BlockTiles {
    const NONE: Self = Self { number: 0, step: 0, left: 0, whole: 0 };

    /// This block's tiles, with `tall` rows of results each.
    #[inline(always)]
    fn of_block(pass: &Pass, parts: &Parts, tall: i32) -> Self {
        let down = divided(pass.region.y1 - pass.region.y0 + tall - 1, tall);
        let whole = parts.across * down;
        let tiles = whole + if parts.halves != 0 { (down + 1) / 2 } else { 0 };
        let (few, block) = (divided(tiles, grid_width()), block_x());
        let more = tiles - few * grid_width();
        let before = few * block + if block < more { block } else { more };
        let left = few + if block < more { 1 } else { 0 };
        let (number, step) = if parts.strided != 0 { (block, grid_width()) } else { (before, 1) };
        Self { number, step, left, whole }
    }

    /// The next tile's column of tiles, and its first row of results.
    #[inline(always)]
    fn next(&mut self, pass: &Pass, parts: &Parts, tall: i32) -> (i32, i32) {
        let row = divided(self.number, parts.across);
        let (column, row) = match self.number < self.whole {
            true => (self.number - row * parts.across, row),
            false => (parts.across, 2 * (self.number - self.whole)),
        };
        self.number += self.step;
        self.left -= 1;
        (column, pass.region.y0 + row * tall)
    }
}

/// The quotient of two non-negative numbers; `checked`, so that no panic is compiled into the
/// kernel.
#[inline(always)]
fn divided(a: i32, b: i32) -> i32 {
    (a as u32).checked_div(b as u32).unwrap_or(0) as i32
}

/// Whether tiles are folded.
#[inline(always)]
const fn folds(kind: u32) -> bool {
    kind == BYTES
}

/// Tables of factors before the spectra.
#[inline(always)]
const fn tables(kind: u32) -> i32 {
    1 + folds(kind) as i32
}

/// Columns and rows from the pixel in a real part to the pixel in the imaginary part.
#[inline(always)]
fn pair_offset<const M: usize, const KIND: u32>(parts: &Parts, column: i32) -> (i32, i32) {
    match folds(KIND) {
        true if column == parts.across => (0, Layout::<M>::results(parts.rows)),
        true => (Layout::<M>::SIZE, 0),
        false => (Layout::<M>::results(parts.cols), 0),
    }
}

/// Results in a row of a pair of tiles, or of a folded one.
#[inline(always)]
fn wide<const M: usize, const KIND: u32>(parts: &Parts) -> i32 {
    if folds(KIND) {
        2 * Layout::<M>::SIZE + 1 - parts.cols
    } else {
        2 * Layout::<M>::results(parts.cols)
    }
}

/// The first column of a pair's results.
#[inline(always)]
fn left_of<const M: usize, const KIND: u32>(pass: &Pass, parts: &Parts, column: i32) -> i32 {
    pass.region.x0 + opaque(column) * wide::<M, KIND>(parts)
}

/// Filters the pair of tiles of a column whose results begin at row `top`.
///
/// # Safety
/// As for [`correlate`].
#[inline(always)]
unsafe fn filter_pair<const M: usize, const KIND: u32>(
    pass: &Pass,
    parts: &Parts,
    spectra: *const f32,
    column: i32,
    top: i32,
) {
    let mut part = 0;
    while part < parts.count {
        // SAFETY: as the caller promised. At the end of a part a warp only reads its own lines,
        // before it overwrites them for the next part.
        unsafe { add_part::<M, KIND>(pass, parts, spectra, part, column, top) };
        part = opaque(part + 1);
    }
}

/// Adds part number `part` to a pair's results.
///
/// # Safety
/// As for [`correlate`].
#[inline(always)]
unsafe fn add_part<const M: usize, const KIND: u32>(
    pass: &Pass,
    parts: &Parts,
    spectra: *const f32,
    part: i32,
    column: i32,
    top: i32,
) {
    // SAFETY: as the caller promised; a barrier separates rows from columns.
    unsafe {
        transform_rows::<M, KIND>(pass, parts, part, column, top);
        barrier();
        multiply_columns::<M, KIND>(spectra, part);
        barrier();
        rows_to_results::<M, KIND>(pass, parts, part, column, top);
    }
}

/// Loads the rows of a pair for part number `part`, and transforms them.
///
/// # Safety
/// As for [`correlate`]; nobody else uses the lines.
#[inline(always)]
unsafe fn transform_rows<const M: usize, const KIND: u32>(
    pass: &Pass,
    parts: &Parts,
    part: i32,
    column: i32,
    top: i32,
) {
    let shared = Shared::dynamic();
    // SAFETY: only one warp uses a line.
    unsafe {
        let mut wild = false;
        let mut four = opaque(thread_y());
        while four < Layout::<M>::SIZE / 4 {
            let (row, place) = Place::<M>::along(shared, four);
            // Recomputed for each line: cheaper than holding a register.
            let part = opaque(part);
            // `checked`, so that no panic is compiled into the kernel.
            let down = (part as u32).checked_div(parts.beside as u32).unwrap_or(0) as i32;
            let (x, y) = ((part - down * parts.beside) * parts.cols, down * parts.rows);
            let left = left_of::<M, KIND>(pass, parts, column);
            let (x, y) = (left - parts.window.anchor_x + x, top - parts.window.anchor_y + y + row);
            let pair_offset = pair_offset::<M, KIND>(parts, opaque(column));
            let mut line = if folds(KIND) && has_four_rows::<M>(pass, x, pair_offset, y) {
                bytes::load(&Source::new(pass), (x, y - row_of(thread_x())))
            } else {
                load_pair::<M, KIND>(pass, place, x, pair_offset, y)
            };
            // The second condition is the same for the whole launch, so the branch is uniform.
            if KIND == PLANES || KIND != BYTES && parts.greatest < f32::INFINITY {
                wild |= leave_holes(&mut line, parts.greatest);
            }
            place.store_line(&place.forward(line, folds(KIND)));
            four += block_height();
        }
        if KIND != BYTES {
            note(parts.noted, wild);
        }
    }
}

/// Transforms the columns, multiplies with the spectrum of part number `part`, and transforms back.
///
/// # Safety
/// As for [`correlate`]; nobody else uses the lines.
#[inline(always)]
unsafe fn multiply_columns<const M: usize, const KIND: u32>(spectra: *const f32, part: i32) {
    let (shared, size) = (Shared::dynamic(), Layout::<M>::SIZE);
    // SAFETY: only one warp uses a line.
    unsafe {
        let mut four = opaque(thread_y());
        while four < size / 4 {
            let place = Place::<M>::down(shared, four);
            let mut line = place.forward(place.load_line(), false);
            let first = tables(KIND) as usize + size as usize * part as usize;
            let spectrum = spectra.wrapping_add(2 * (size as usize * first));
            let spectrum = spectrum.wrapping_add(2 * (32 * four + thread_x()) as usize);
            let mut n = 0;
            while n < M {
                let [re, im] = load2(spectrum, 2 * 8 * size as usize * n);
                line[n] = line[n].times(Complex { re, im });
                n += 1;
            }
            place.store_line(&place.inverse(line, false));
            four += block_height();
        }
    }
}

/// Transforms the rows back, and adds them to the pair's results.
///
/// # Safety
/// As for [`correlate`]; nobody else uses the lines.
#[inline(always)]
unsafe fn rows_to_results<const M: usize, const KIND: u32>(
    pass: &Pass,
    parts: &Parts,
    part: i32,
    column: i32,
    top: i32,
) {
    let (shared, rows) = (Shared::dynamic(), Layout::<M>::results(parts.rows));
    // SAFETY: only one warp uses a line.
    unsafe {
        // Wrap-around reaches the remaining rows: they hold no results.
        let mut four = opaque(thread_y());
        while 4 * four < rows {
            let (row, place) = Place::<M>::along(shared, four);
            let line = place.inverse(place.load_line(), folds(KIND));
            // Four rows of a folded tile are stored together.
            let row = if folds(KIND) { 4 * four } else { row };
            let y = top + row;
            if row < rows && y < pass.region.y1 {
                let share = Share { adds: part > 0, ends: part == parts.count - 1 };
                store_pair::<M, KIND>(pass, parts, share, place, &line, column, y);
            }
            four += block_height();
        }
    }
}

/// Whether all columns of four rows of a folded tile lie in the image. Row `y` is the lane's. The
/// imaginary parts are `pair_offset` columns and `below` rows after the real parts.
#[inline(always)]
fn has_four_rows<const M: usize>(
    pass: &Pass,
    left: i32,
    (pair_offset, below): (i32, i32),
    y: i32,
) -> bool {
    let top = y - row_of(thread_x());
    let has_columns = left >= 0 && left + pair_offset + Layout::<M>::SIZE <= pass.width;
    has_columns && below == 0 && Source::new(pass).has_rows(top, top + 4)
}

/// Loads the lane's share of a row of both tiles: the first as real, the second as imaginary parts.
/// Inside the image, all loads of a type are in flight at once. Entries for PLANES omit the typed
/// loads and stores: with the larger code they would be 7 % slower, by misses of the instruction
/// cache.
#[inline(always)]
unsafe fn load_pair<const M: usize, const KIND: u32>(
    pass: &Pass,
    place: Place<M>,
    left: i32,
    (pair_offset, below): (i32, i32),
    y: i32,
) -> [Complex; M] {
    let source = Source::new(pass);
    let is_plain = KIND != BYTES && source.is_plain();
    let row = if is_plain && source.has_rows(y, y + 1) {
        source.plain_row(y)
    } else {
        source.row(opaque(y))
    };
    // SAFETY: inside, every column lies in the image; else each column goes through the border
    // rule. Only this warp uses the line in shared memory.
    unsafe {
        let inside =
            left >= 0 && left + pair_offset + Layout::<M>::SIZE <= pass.width && row.is_inside();
        let inside = inside && (!folds(KIND) || below == 0);
        if inside && is_plain {
            let (first, second) =
                (row.at_plain(left + place.lane), row.at_plain(left + place.lane + pair_offset));
            let mut line = [ZERO; M];
            let mut m = 0;
            while m < M {
                line[m] = Complex { re: load(first, 8 * m), im: load(second, 8 * m) };
                m += 1;
            }
            line
        } else if KIND != PLANES && inside {
            let first = row.pixels_strided::<M, KIND>(left + place.lane, 8);
            let second = row.pixels_strided::<M, KIND>(left + place.lane + pair_offset, 8);
            let mut line = [ZERO; M];
            let mut m = 0;
            while m < M {
                line[m] = Complex { re: first[m], im: second[m] };
                m += 1;
            }
            line
        } else {
            let other = if folds(KIND) { source.row(opaque(y + below)) } else { row };
            load_pair_at_edge::<M, KIND>(place, [row, other], [left, left + pair_offset])
        }
    }
}

/// As [`load_pair`], through the border rule. Real and imaginary parts have a row each, and begin
/// at a column each.
///
/// # Safety
/// The pass describes allocated memory. Only this warp uses the line in shared memory.
#[inline(always)]
unsafe fn load_pair_at_edge<const M: usize, const KIND: u32>(
    place: Place<M>,
    [row, other]: [Row<'_>; 2],
    [left, right]: [i32; 2],
) -> [Complex; M] {
    // SAFETY: as the caller promised; every lane loads only the numbers it stored.
    unsafe {
        let mut m = opaque(0);
        while folds(KIND) && m < M as i32 {
            let (first, second) = (
                found::<KIND>(row, left + 8 * m, place.lane),
                found::<KIND>(other, right + 8 * m, place.lane),
            );
            let mut i = 0;
            while i < FOUND {
                let number = Complex { re: first[i], im: second[i] };
                place.store(place.lane + 8 * m, 8 * i as i32, number);
                i += 1;
            }
            m = opaque(m + FOUND as i32);
        }
        while !folds(KIND) && m < M as i32 {
            let at = place.lane + 8 * m;
            let first = row.found_strided::<4, KIND>(left + at, 8);
            let second = other.found_strided::<4, KIND>(right + at, 8);
            let mut i = 0;
            while i < 4 {
                place.store(at, 8 * i as i32, Complex { re: first[i], im: second[i] });
                i += 1;
            }
            m = opaque(m + 4);
        }
        place.load_line()
    }
}

/// Pixels that a lane loads together from a row of a folded tile at the image's edge.
const FOUND: usize = 8;

/// The lane's pixels among the `8 FOUND` columns from `left` on. The border rule applies if some of
/// these columns leave the image.
///
/// # Safety
/// The pass describes allocated memory.
#[inline(always)]
unsafe fn found<const KIND: u32>(row: Row<'_>, left: i32, lane: i32) -> [f32; FOUND] {
    // SAFETY: as the caller promised.
    unsafe {
        match row.has_columns(left, 8 * FOUND as i32) {
            true => row.pixels_strided::<FOUND, KIND>(left + lane, 8),
            false => row.found_strided::<FOUND, KIND>(left + lane, 8),
        }
    }
}

/// Sets pixels to 0 that are not finite or too large for the transform; returns whether there were
/// any.
#[inline(always)]
pub(super) fn leave_holes<const M: usize>(line: &mut [Complex; M], greatest: f32) -> bool {
    let mut tame = true;
    let mut m = 0;
    while m < M {
        let Complex { re, im } = line[m];
        let (has_re, has_im) = (re.abs() <= greatest, im.abs() <= greatest);
        line[m] = Complex { re: if has_re { re } else { 0.0 }, im: if has_im { im } else { 0.0 } };
        tame &= has_re & has_im;
        m += 1;
    }
    !tame
}

/// A part's place in the sum of all parts.
#[derive(Clone, Copy)]
pub(super) struct Share {
    /// Whether the part adds to the results of earlier parts.
    pub(super) adds: bool,
    /// Whether the part is the last one, so that the sum is complete.
    pub(super) ends: bool,
}

/// Stores the results of four rows of a folded tile, from row `y` on.
///
/// # Safety
/// As for [`correlate`]; the whole warp calls this.
#[inline(always)]
unsafe fn store_folded<const M: usize>(
    pass: &Pass,
    parts: &Parts,
    place: Place<M>,
    line: &[Complex; M],
    column: i32,
    y: i32,
) {
    let left = left_of::<M, BYTES>(pass, parts, column);
    let ((pair_offset, below), wide) =
        (pair_offset::<M, BYTES>(parts, column), wide::<M, BYTES>(parts));
    let target = Target::new(pass);
    let end = (left + wide).min(pass.region.x1);
    let middle = if below != 0 { end } else { (left + pair_offset).min(end) };
    let (mut first, mut second) = ([0.0; M], [0.0; M]);
    let mut m = 0;
    while m < M {
        (first[m], second[m]) = (line[m].re + parts.middle, line[m].im + parts.middle);
        m += 1;
    }
    // Wrap-around reaches the remaining rows: they hold no results.
    let rows = Layout::<M>::results(parts.rows) - (place.row() - row_of(thread_x()));
    let is_there = |y: i32| rows.min(pass.region.y1 - y);
    // SAFETY: each pixel lies in the region, and one thread stores it.
    unsafe {
        bytes::store(&target, (left, y), (middle, is_there(y)), first);
        bytes::store(&target, (left + pair_offset, y + below), (end, is_there(y + below)), second);
    }
}

/// Stores the results of a row of both tiles, or adds them to the results of earlier parts.
#[inline(always)]
unsafe fn store_pair<const M: usize, const KIND: u32>(
    pass: &Pass,
    parts: &Parts,
    share: Share,
    place: Place<M>,
    line: &[Complex; M],
    column: i32,
    y: i32,
) {
    if folds(KIND) {
        // SAFETY: as the caller promised.
        return unsafe { store_folded(pass, parts, place, line, column, y) };
    }
    let left = left_of::<M, KIND>(pass, parts, column);
    let ((pair_offset, _), wide) = (pair_offset::<M, KIND>(parts, column), wide::<M, KIND>(parts));
    let target = Target::new(pass);
    // SAFETY: each pixel lies in the region, and one thread stores it. The line in shared memory is
    // used as in `load_pair`.
    unsafe {
        let within = left + wide <= pass.region.x1;
        if within && !share.adds && target.is_simple() {
            let (first, second) = (
                target.at_plain(left + place.lane, y),
                target.at_plain(left + pair_offset + place.lane, y),
            );
            let mut m = 0;
            while m < M {
                if place.lane + 8 * (m as i32) < pair_offset {
                    store(first, 8 * m, line[m].re);
                    store(second, 8 * m, line[m].im);
                }
                m += 1;
            }
        } else if KIND == STORED && within && !share.adds && share.ends {
            let (mut first, mut second) = ([0.0; M], [0.0; M]);
            let mut m = 0;
            while m < M {
                (first[m], second[m]) = (line[m].re, line[m].im);
                m += 1;
            }
            let x = left + place.lane;
            target.write_strided::<M, KIND>((x, y), 8, left + pair_offset, first);
            target.write_strided::<M, KIND>((x + pair_offset, y), 8, left + wide, second);
        } else {
            place.store_line(line);
            let mut at = opaque(place.lane);
            while at < pair_offset {
                let value = place.load(at, 0);
                put(&target, pass, share, left + at, y, value.re);
                put(&target, pass, share, left + pair_offset + at, y, value.im);
                at += 8;
            }
        }
    }
}

/// Stores one result, or adds it to the result of earlier parts, if the result lies in the region.
#[inline(always)]
pub(super) unsafe fn put(
    target: &Target<'_>,
    pass: &Pass,
    share: Share,
    x: i32,
    y: i32,
    value: f32,
) {
    if x < pass.region.x1 {
        // SAFETY: as the caller promised.
        unsafe {
            let sum = if share.adds { target.written(x, y) + value } else { 0.0 + value };
            if share.ends {
                target.write(x, y, sum);
            } else {
                target.write_plain(x, y, sum);
            }
        }
    }
}
