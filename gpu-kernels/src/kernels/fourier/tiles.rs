//! Correlation as a product of spectra in tiles of SIZE x SIZE numbers (128 or 64) in shared
//! memory.
//!
//! Tiling: a block takes pairs of neighbouring tiles, as real and imaginary parts of the same
//! numbers, or folded tiles (`mod.rs`). A tile gives `SIZE + 1 - cols` by `SIZE + 1 - rows` results
//! (overlap-save). Larger windows are cut into parts of at most 3/4 of a tile each way; a thread
//! adds the parts of its results in order.
//!
//! Thread mapping: a warp transforms 4 lines at a time, 8 lanes a line. A lane holds M = SIZE / 8
//! values: elements `j + 8 m` of lane `j` before a transform, frequencies `q + 8 n` of lane `q`
//! after it. A line is a transform of M in the lane, twiddle factors, an exchange among the 8 lanes
//! in shared memory, and M / 8 transforms of 8. Two barriers a pair, between rows and columns; no
//! bank conflicts.
//!
//! Columns at the right edge that fill less than half a folded tile share one for two rows of
//! tiles. Bytes are less their middle. A pixel that is not finite, or too great, is 0 in its tile,
//! and noted for `holes.rs`.
//!
//! Limits: KEEP is left to `keep.rs`; parts of a window need a destination of f32, entries for
//! bytes take one part. Error: of two f32 transforms, relative to the largest pixel and the taps'
//! sum.

use super::bytes::{self, row_of};
use super::fft::{Complex, ZERO, eight, twisted, within};
use super::holes::note;
use super::{Layout, Parts};
use crate::abi::Pass;
use crate::device::*;
use crate::tile::view::{BYTES, PLANES, Row, STORED, Source, Target};

/// A line of the tile in shared memory, `step` complex numbers from one of its 8 M numbers to the
/// next, and the lane's place among the 8 that share it.
#[derive(Clone, Copy)]
struct Place<const M: usize> {
    shared: Shared,
    start: i32,
    step: i32,
    lane: i32,
}

impl<const M: usize> Place<M> {
    /// The lane's row among rows `4 * four` to `4 * four + 3`, and its place in it.
    #[inline(always)]
    fn along(shared: Shared, four: i32) -> (i32, Self) {
        let lane = thread_x();
        let row = 4 * four + row_of(lane);
        (row, Self { shared, start: row * Layout::<M>::PITCH, step: 1, lane: lane & 7 })
    }

    /// The row of the tile, of a line that [`Place::along`] found.
    #[inline(always)]
    fn row(self) -> i32 {
        self.start / Layout::<M>::PITCH
    }

    /// The lane's place in its column among columns `4 * four` to `4 * four + 3`.
    #[inline(always)]
    fn down(shared: Shared, four: i32) -> Self {
        let lane = thread_x();
        Self { shared, start: 4 * four + (lane & 3), step: Layout::<M>::PITCH, lane: lane >> 2 }
    }

    /// Number `base + offset` of the line. The offset is known to the compiler, and becomes part of
    /// the instruction.
    #[inline(always)]
    unsafe fn load(self, base: i32, offset: i32) -> Complex {
        // SAFETY: lines lie in the tile.
        let [re, im] = unsafe {
            self.shared.load2(2 * (self.start + base * self.step) + 2 * offset * self.step)
        };
        Complex { re, im }
    }

    #[inline(always)]
    unsafe fn store(self, base: i32, offset: i32, value: Complex) {
        let at = 2 * (self.start + base * self.step) + 2 * offset * self.step;
        // SAFETY: lines lie in the tile.
        unsafe { self.shared.store2(at, [value.re, value.im]) };
    }

    /// The lane's share of the line's numbers, every eighth.
    #[inline(always)]
    unsafe fn load_line(self) -> [Complex; M] {
        let mut line = [ZERO; M];
        let mut m = 0;
        while m < M {
            // SAFETY: 8 M numbers are in a line.
            line[m] = unsafe { self.load(self.lane, 8 * m as i32) };
            m += 1;
        }
        line
    }

    #[inline(always)]
    unsafe fn store_line(self, line: &[Complex; M]) {
        let mut m = 0;
        while m < M {
            // SAFETY: 8 M numbers are in a line.
            unsafe { self.store(self.lane, 8 * m as i32, line[m]) };
            m += 1;
        }
    }

    /// The lane's twiddle factor for `k`, from the table behind the tile; of a folded line, with
    /// the twist.
    #[inline(always)]
    unsafe fn twiddle(self, k: i32, folded: bool) -> Complex {
        let table = Layout::<M>::TABLE + if folded { Layout::<M>::SIZE } else { 0 };
        // SAFETY: a table has 8 factors for each of M `k`.
        let [re, im] = unsafe { self.shared.load2(2 * self.lane + 2 * (table + 8 * k)) };
        Complex { re, im }
    }

    /// Transforms a line, which may be folded: from elements `lane + 8 m` to frequencies
    /// `lane + 8 n`.
    ///
    /// While lanes exchange, what lane `j` has for `k` is at `9 k + j`.
    ///
    /// # Safety
    /// The whole warp calls; the line's part of shared memory is not in other warps' use.
    #[inline(always)]
    unsafe fn forward(self, line: [Complex; M], folded: bool) -> [Complex; M] {
        let mut part = within::<M, false>(if folded { twisted::<M, false>(line) } else { line });
        let mut out = [ZERO; M];
        // SAFETY: as the caller promised.
        unsafe {
            // Other lanes have read their shares of the line before it is written over.
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
            // As in `forward`.
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
/// `pass` describes allocated memory, the buffers hold what the parts say, and the launch has 32
/// threads a row of the block and [`Layout::SHARED`] bytes of shared memory.
#[inline(always)]
pub(super) unsafe fn correlate<const M: usize, const KIND: u32>(
    pass: &Pass,
    parts: &Parts,
    spectra: *const f32,
) {
    let shared = Shared::dynamic();
    let thread = 32 * thread_y() + thread_x();
    if thread < Layout::<M>::SIZE * tables(KIND) {
        // SAFETY: the tables come first in the buffer, and behind the tile in shared memory; a
        // block has threads for two.
        unsafe {
            shared.store2(2 * (Layout::<M>::TABLE + thread), load2(spectra, 2 * thread as usize))
        };
    }
    // SAFETY: the whole block is here.
    unsafe { barrier() };
    let tall = Layout::<M>::results(parts.rows);
    let mut turns = if folds(KIND) { Turns::of_block(pass, parts, tall) } else { Turns::NONE };
    // Pairs are counted along the rows of tiles.
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
        // SAFETY: as the caller promised; the whole block is here.
        unsafe { filter_pair::<M, KIND>(pass, parts, spectra, column, top) };
        column += grid_width();
    }
}

/// A block's folded tiles: every so many-th, or some that follow each other. They are counted along
/// the rows of tiles; last come those at the right edge that take two rows of tiles each.
struct Turns {
    number: i32,
    step: i32,
    left: i32,
    /// How many come before those that take two rows.
    whole: i32,
}

impl Turns {
    const NONE: Self = Self { number: 0, step: 0, left: 0, whole: 0 };

    /// Of this block, with so many rows of results in a tile.
    #[inline(always)]
    fn of_block(pass: &Pass, parts: &Parts, tall: i32) -> Self {
        let down = divided(pass.region.y1 - pass.region.y0 + tall - 1, tall);
        let whole = parts.across * down;
        let tiles = whole + if parts.halves != 0 { (down + 1) / 2 } else { 0 };
        let (few, block) = (divided(tiles, grid_width()), block_x());
        let more = tiles - few * grid_width();
        let before = few * block + if block < more { block } else { more };
        let left = few + if block < more { 1 } else { 0 };
        let (number, step) = if parts.in_turn != 0 { (block, grid_width()) } else { (before, 1) };
        Self { number, step, left, whole }
    }

    /// The next one's column of tiles, and its first row of results.
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

/// A quotient of numbers that are not negative; `checked`, so that no panic is compiled into the
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

/// Tables of factors ahead of the spectra.
#[inline(always)]
const fn tables(kind: u32) -> i32 {
    1 + folds(kind) as i32
}

/// Columns and rows from a number's real part to its imaginary part, in tiles of this column.
#[inline(always)]
fn apart<const M: usize, const KIND: u32>(parts: &Parts, column: i32) -> (i32, i32) {
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

/// The pair of tiles of a column whose results begin at row `top`.
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
        // SAFETY: as the caller promised; what a part leaves in shared memory its own warp reads,
        // before the next part's.
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
    let shared = Shared::dynamic();
    let (size, lines) = (Layout::<M>::SIZE, Layout::<M>::SIZE / 4);
    let rows = Layout::<M>::results(parts.rows);
    // SAFETY: every line is its warp's alone until the barrier that follows it.
    unsafe {
        let mut wild = false;
        let mut four = opaque(thread_y());
        while four < lines {
            let (row, place) = Place::<M>::along(shared, four);
            // Computed again for each line, which is cheaper than a register.
            let part = opaque(part);
            // `checked`, so that no panic is compiled into the kernel.
            let down = (part as u32).checked_div(parts.beside as u32).unwrap_or(0) as i32;
            let (x, y) = ((part - down * parts.beside) * parts.cols, down * parts.rows);
            let left = left_of::<M, KIND>(pass, parts, column);
            let (x, y) = (left - parts.window.anchor_x + x, top - parts.window.anchor_y + y + row);
            let apart = apart::<M, KIND>(parts, opaque(column));
            let mut line = if folds(KIND) && has_four_rows::<M>(pass, x, apart, y) {
                bytes::load(&Source::new(pass), (x, y - row_of(thread_x())))
            } else {
                load_pair::<M, KIND>(pass, place, x, apart, y)
            };
            // The second condition is the same for every thread of the launch.
            if KIND == PLANES || KIND != BYTES && parts.greatest < f32::INFINITY {
                wild |= leave_holes(&mut line, parts.greatest);
            }
            place.store_line(&place.forward(line, folds(KIND)));
            four += block_height();
        }
        if KIND != BYTES {
            note(parts.noted, wild);
        }
        barrier();
        let mut four = opaque(thread_y());
        while four < lines {
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
        barrier();
        // Rows that wrap-around reaches hold no results.
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

/// Whether all columns and four rows of a folded tile lie in the image, of which row `y` is the
/// lane's; its imaginary parts come from so many columns and rows behind its real parts.
#[inline(always)]
fn has_four_rows<const M: usize>(
    pass: &Pass,
    left: i32,
    (apart, below): (i32, i32),
    y: i32,
) -> bool {
    let top = y - row_of(thread_x());
    let has_columns = left >= 0 && left + apart + Layout::<M>::SIZE <= pass.width;
    has_columns && below == 0 && Source::new(pass).has_rows(top, top + 4)
}

/// The lane's share of a row of both tiles, the first as real, the second as imaginary parts.
#[inline(always)]
unsafe fn load_pair<const M: usize, const KIND: u32>(
    pass: &Pass,
    place: Place<M>,
    left: i32,
    (apart, below): (i32, i32),
    y: i32,
) -> [Complex; M] {
    let source = Source::new(pass);
    let is_plain = KIND != BYTES && source.is_plain();
    let row = if is_plain && source.has_rows(y, y + 1) {
        source.plain_row(y)
    } else {
        source.row(opaque(y))
    };
    // SAFETY: inside, every column lies in the image; else each goes through the border rule. The
    // line in shared memory is this warp's, and every lane reads back its own numbers.
    unsafe {
        let inside = left >= 0 && left + apart + Layout::<M>::SIZE <= pass.width && row.is_inside();
        let inside = inside && (!folds(KIND) || below == 0);
        if inside && is_plain {
            let (first, second) =
                (row.at_plain(left + place.lane), row.at_plain(left + place.lane + apart));
            let mut line = [ZERO; M];
            let mut m = 0;
            while m < M {
                line[m] = Complex { re: load(first, 8 * m), im: load(second, 8 * m) };
                m += 1;
            }
            line
        } else if KIND != PLANES && inside {
            let first = row.pixels_apart::<M, KIND>(left + place.lane, 8);
            let second = row.pixels_apart::<M, KIND>(left + place.lane + apart, 8);
            let mut line = [ZERO; M];
            let mut m = 0;
            while m < M {
                line[m] = Complex { re: first[m], im: second[m] };
                m += 1;
            }
            line
        } else {
            let other = if folds(KIND) { source.row(opaque(y + below)) } else { row };
            let mut m = opaque(0);
            while folds(KIND) && m < M as i32 {
                let (first, second) = (left + 8 * m, left + apart + 8 * m);
                let (first, second) = (
                    found::<KIND>(row, first, place.lane),
                    found::<KIND>(other, second, place.lane),
                );
                let mut i = 0;
                while i < FOUND {
                    place.store(
                        place.lane + 8 * m,
                        8 * i as i32,
                        Complex { re: first[i], im: second[i] },
                    );
                    i += 1;
                }
                m = opaque(m + FOUND as i32);
            }
            while !folds(KIND) && m < M as i32 {
                let at = place.lane + 8 * m;
                let first = row.found_apart::<4, KIND>(left + at, 8);
                let second = other.found_apart::<4, KIND>(left + apart + at, 8);
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
}

/// Pixels of a row of a folded tile at the image's edge that a lane loads together.
const FOUND: usize = 8;

/// The lane's of the next `8 FOUND` columns from `left` on of a row, through the border rule where
/// some of them leave the image.
///
/// # Safety
/// The pass describes allocated memory.
#[inline(always)]
unsafe fn found<const KIND: u32>(row: Row<'_>, left: i32, lane: i32) -> [f32; FOUND] {
    // SAFETY: as the caller promised.
    unsafe {
        match row.has_columns(left, 8 * FOUND as i32) {
            true => row.pixels_apart::<FOUND, KIND>(left + lane, 8),
            false => row.found_apart::<FOUND, KIND>(left + lane, 8),
        }
    }
}

/// Makes 0 of each pixel that is not finite, or too large for the transform of the tile; says
/// whether there was one.
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
    /// It adds to those of the parts before.
    pub(super) adds: bool,
    /// It is the last one: the sum is complete.
    pub(super) ends: bool,
}

/// Stores the results that belong to four rows of a folded tile from row `y` on.
///
/// # Safety
/// As for [`correlate`]; the whole warp calls.
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
    let ((apart, below), wide) = (apart::<M, BYTES>(parts, column), wide::<M, BYTES>(parts));
    let target = Target::new(pass);
    let end = (left + wide).min(pass.region.x1);
    let middle = if below != 0 { end } else { (left + apart).min(end) };
    let (mut first, mut second) = ([0.0; M], [0.0; M]);
    let mut m = 0;
    while m < M {
        (first[m], second[m]) = (line[m].re + parts.middle, line[m].im + parts.middle);
        m += 1;
    }
    // Rows that wrap-around reaches hold no results.
    let rows = Layout::<M>::results(parts.rows) - (place.row() - row_of(thread_x()));
    let is_there = |y: i32| rows.min(pass.region.y1 - y);
    // SAFETY: each pixel lies in the region and is one thread's.
    unsafe {
        bytes::store(&target, (left, y), (middle, is_there(y)), first);
        bytes::store(&target, (left + apart, y + below), (end, is_there(y + below)), second);
    }
}

/// Stores the results that belong to a row of both tiles, or adds them to those of the parts
/// before.
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
    let ((apart, _), wide) = (apart::<M, KIND>(parts, column), wide::<M, KIND>(parts));
    let target = Target::new(pass);
    // SAFETY: each pixel lies in the region and is one thread's; the line in shared memory as in
    // `load_pair`.
    unsafe {
        let within = left + wide <= pass.region.x1;
        if within && !share.adds && target.is_simple() {
            let (first, second) = (
                target.at_plain(left + place.lane, y),
                target.at_plain(left + apart + place.lane, y),
            );
            let mut m = 0;
            while m < M {
                if place.lane + 8 * (m as i32) < apart {
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
            target.write_apart::<M, KIND>((x, y), 8, left + apart, first);
            target.write_apart::<M, KIND>((x + apart, y), 8, left + wide, second);
        } else {
            place.store_line(line);
            let mut at = opaque(place.lane);
            while at < apart {
                let value = place.load(at, 0);
                put(&target, pass, share, left + at, y, value.re);
                put(&target, pass, share, left + apart + at, y, value.im);
                at += 8;
            }
        }
    }
}

/// Stores one result, or adds it to those of the parts before, if it lies in the region.
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
