//! The column pass by 1-D spectra: see `lines.rs`.

use super::fft::{Complex, ZERO};
use super::line::{EACH, Line, Lines, greatest, is_finite, moved};
use super::lines::Sum;
use crate::abi::Pass;
use crate::border;
use crate::device::*;
use crate::pixel::{F32, U8, load_value, note, to_bits, to_near_byte};
use crate::tile::view::{BYTES, STORED, Source, Target, finished};

/// Rows that are loaded together at the image's edges.
const TOGETHER: usize = 8;

/// Each block takes tiles of J pairs of columns.
///
/// # Safety
/// The pass describes allocated memory. Its source is plain, of f32, and has the region's columns,
/// from and to an even column. `numbers` are made for these lines. Blocks have the shape and the
/// shared memory of the entry.
#[inline(always)]
pub(super) unsafe fn columns<
    const R: usize,
    const J: i32,
    const KIND: u32,
    const IN_PARTS: bool,
>(
    pass: &Pass,
    lines: &Lines,
    numbers: *const f32,
    sum: &Sum,
) {
    let line = Line::<R, J>::of_thread();
    let step = Line::<R, J>::SIZE + 1 - lines.part;
    let (block, plane) = lines.block();
    let source = Source::of_channel(&pass.src, pass, plane);
    let region = &pass.region;
    let x = (region.x0 & !(2 * J - 1)) + 2 * (J * block + line.number);
    // Pairs outside the region repeat the nearest pair and are not stored.
    let pair = x.max(region.x0 & !1).min((region.x1 - 1) & !1);
    let mut tile = lines.first + block_y();
    while tile * step < region.y1 {
        let (first, line) = (tile * step, line.here());
        // SAFETY: as the caller promised.
        unsafe {
            let (sums, squares) =
                line.filtered::<IN_PARTS>(lines, sum.terms, numbers, |term, tap| {
                    let term = Term::new(source, sum, term);
                    load_pair(&line, lines, term, (pair, first, tap))
                });
            if KIND == BYTES {
                let mark = greatest_mark::<R, J>(pass, lines, sum, opaque(first));
                let (squares, greatest) = line.here().totals(squares, [mark, greatest(&sums)]);
                let near = lines.near - greatest[0] - moved::<R>(lines, squares, greatest[1]);
                let results = Results::new(&line.here(), pass, (x, first), step);
                results.store_bytes(pass, (lines, sum, near), &sums);
            } else {
                let mut sums = sums;
                if !is_finite(&sums) {
                    sums = by_taps(&line.here(), lines, (source, sum, numbers), (pair, first));
                }
                Results::new(&line.here(), pass, (x, first), step).store_values(
                    pass,
                    (lines, sum),
                    &sums,
                );
            }
            // The next tile overwrites the same shared memory.
            barrier();
        }
        tile += grid_height();
    }
}

/// The row pass's results of one term.
#[derive(Clone, Copy)]
struct Term<'a> {
    source: Source<'a>,
    /// Bytes from the source to the term's plane.
    apart: isize,
    /// The value of rows outside the image.
    outside: f32,
}

impl<'a> Term<'a> {
    #[inline(always)]
    fn new(source: Source<'a>, sum: &Sum, number: i32) -> Self {
        let (apart, outside) = match number {
            0 => (0, source.pass.outside),
            _ => (sum.apart as isize, sum.outside),
        };
        Self { source, apart, outside }
    }

    /// The pairs of columns from `x` on in [`TOGETHER`] rows, `apart` rows apart from row `y` on.
    ///
    /// # Safety
    /// As for [`columns`].
    #[inline(always)]
    unsafe fn found(&self, x: i32, y: i32, apart: i32) -> [[f32; 2]; TOGETHER] {
        let pass = self.source.pass;
        let (there, end) = (pass.src.first_row, pass.src.end_row);
        let (mut pairs, mut outside) = ([[0.0; 2]; TOGETHER], [false; TOGETHER]);
        let mut i = 0;
        while i < TOGETHER {
            let y = border::resolve_briefly(pass.border, y + apart * i as i32, pass.height);
            outside[i] = y < 0;
            // The nearest row in memory stands in for a row that memory lacks.
            let from = self.source.plain_row(y.max(there).min(end - 1)).at_plain(x);
            // SAFETY: as the caller promised.
            pairs[i] = unsafe { load2(from.wrapping_byte_offset(self.apart), 0) };
            i += 1;
        }
        i = 0;
        while i < TOGETHER {
            pairs[i] = if outside[i] { [self.outside; 2] } else { pairs[i] };
            i += 1;
        }
        pairs
    }

    /// As [`Term::found`] for `N` rows that memory has.
    ///
    /// # Safety
    /// As for [`columns`].
    #[inline(always)]
    unsafe fn inside<const N: usize>(&self, x: i32, y: i32, apart: i32) -> [[f32; 2]; N] {
        let mut from = self.source.plain_row(y).at_plain(x).wrapping_byte_offset(self.apart);
        let next = self.source.plain_offset(apart);
        let mut pairs = [[0.0; 2]; N];
        let mut m = 0;
        while m < N {
            // SAFETY: memory has every row.
            pairs[m] = unsafe { load2(from, 0) };
            from = from.wrapping_byte_offset(next);
            m += 1;
        }
        pairs
    }
}

/// Loads the thread's share of a pair of columns from `x` on, for the part of the window that
/// begins at tap `tap`. A row that no result in the image needs is 0, except under WRAP: a wrapped
/// band is an image of its own, whose height differs from the picture's.
///
/// # Safety
/// As for [`columns`]; shared memory is not in use.
#[inline(always)]
unsafe fn load_pair<const R: usize, const J: i32>(
    line: &Line<R, J>,
    lines: &Lines,
    term: Term<'_>,
    (x, first, tap): (i32, i32, i32),
) -> [Complex; EACH] {
    let (pass, apart) = (term.source.pass, Line::<R, J>::THREADS);
    let top = first - lines.anchor + tap;
    // SAFETY: as the caller promised; outside memory, each row goes through the border rule.
    unsafe {
        if term.source.has_rows(top, top + Line::<R, J>::SIZE) {
            let pairs = term.inside::<EACH>(x, top + line.thread, apart);
            let mut numbers = [ZERO; EACH];
            let mut m = 0;
            while m < EACH {
                numbers[m] = Complex { re: pairs[m][0], im: pairs[m][1] };
                m += 1;
            }
            return numbers;
        }
        let needed = match pass.border {
            border::WRAP => i32::MAX,
            _ => pass.height - first + lines.taps - 1 - tap,
        };
        let mut m = opaque(0);
        while m < EACH as i32 {
            let n = line.thread + apart * m;
            let pairs = term.found(x, top + n, apart);
            let mut i = 0;
            while i < TOGETHER {
                let is_needed = n + apart * (i as i32) < needed;
                let [re, im] = if is_needed { pairs[i] } else { [0.0; 2] };
                line.keep(m + i as i32, Complex { re, im });
                i += 1;
            }
            m = opaque(m + TOGETHER as i32);
        }
        line.kept()
    }
}

/// The thread's results of a pair of columns from `x` on, tap by tap in ascending order, term by
/// term.
///
/// # Safety
/// As for [`columns`]; no other thread uses this thread's places in shared memory.
#[inline(always)]
unsafe fn by_taps<const R: usize, const J: i32>(
    line: &Line<R, J>,
    lines: &Lines,
    (source, sum, numbers): (Source<'_>, &Sum, *const f32),
    (x, first): (i32, i32),
) -> [Complex; EACH] {
    let apart = Line::<R, J>::THREADS;
    let top = first - lines.anchor + line.thread;
    let is_inside = source
        .has_rows(first - lines.anchor, first - lines.anchor + Line::<R, J>::SIZE + lines.taps);
    // SAFETY: as the caller promised.
    unsafe {
        let mut m = opaque(0);
        while m < EACH as i32 {
            let (mut sums, mut number) = ([[0.0; 2]; TOGETHER], opaque(0));
            while number < sum.terms {
                let term = Term::new(source, sum, number);
                let taps = Line::<R, J>::taps(lines, sum.terms, numbers)
                    .wrapping_offset(mul_wide(number, lines.taps) as isize);
                let mut tap = opaque(0);
                while tap < lines.taps {
                    let (factor, y) = (load(taps, tap as usize), top + apart * m + tap);
                    let pairs = match is_inside {
                        true => term.inside::<TOGETHER>(x, y, apart),
                        false => term.found(x, y, apart),
                    };
                    let mut i = 0;
                    while i < TOGETHER {
                        let [re, im] = sums[i];
                        sums[i] = [fma(factor, pairs[i][0], re), fma(factor, pairs[i][1], im)];
                        i += 1;
                    }
                    tap = opaque(tap + 1);
                }
                number = opaque(number + 1);
            }
            let mut i = 0;
            while i < TOGETHER {
                line.keep(m + i as i32, Complex { re: sums[i][0], im: sums[i][1] });
                i += 1;
            }
            m = opaque(m + TOGETHER as i32);
        }
        line.kept()
    }
}

/// The maximum of the thread's share of the marks for the rows that a tile of columns reads; twice
/// the maximum for two terms.
///
/// # Safety
/// As for [`columns`].
#[inline(always)]
unsafe fn greatest_mark<const R: usize, const J: i32>(
    pass: &Pass,
    lines: &Lines,
    sum: &Sum,
    first: i32,
) -> f32 {
    let (marks, region) = (&lines.marks, &pass.region);
    let (block, plane) = lines.block();
    let left = (region.x0 & !(2 * J - 1)) + 2 * J * block;
    let (from, to) = (left.max(region.x0 & !1), (left + 2 * J).min((region.x1 + 1) & !1) - 1);
    let (from, to) = (marks.tile(from), marks.tile(to));
    let top = first - lines.anchor;
    let bottom = top + (lines.parts - 1) * lines.part + Line::<R, J>::SIZE;
    // With rows outside the image, the border rule may give any row.
    let is_inside = top >= pass.src.first_row && bottom <= pass.src.end_row;
    let (mut pair, end) = match is_inside {
        true => ((top >> 1) - marks.pair, ((bottom - 1) >> 1) - marks.pair + 1),
        false => (0, marks.pairs),
    };
    pair += 32 * thread_y() + thread_x();
    let mut greatest = 0.0f32;
    while pair < end {
        let mut tile = from;
        while tile <= to {
            // SAFETY: the row pass stored a mark for each tile of each pair.
            unsafe {
                let place = marks.place(plane, pair, tile) as *const f32;
                greatest = greatest.max(load(place, 0));
                if sum.terms > 1 {
                    greatest =
                        greatest.max(load(place.wrapping_byte_offset(sum.marks_apart as isize), 0));
                }
            }
            tile += 1;
        }
        pair += Line::<R, J>::THREADS * J;
    }
    if sum.terms > 1 { 2.0 * greatest } else { greatest }
}

/// A thread's results of a pair of columns.
struct Results<const R: usize, const J: i32> {
    /// The thread's index in its line.
    thread: i32,
    /// The pair's first column, and the row of the line's first number.
    x: i32,
    first: i32,
    /// The line's numbers that are results in the region: the first, and the end.
    from: i32,
    end: i32,
    /// Whether each column lies in the region.
    has: [bool; 2],
}

impl<const R: usize, const J: i32> Results<R, J> {
    /// Rows from one of the thread's results to the next.
    const APART: i32 = Line::<R, J>::THREADS;

    /// For lines with `step` results.
    #[inline(always)]
    fn new(line: &Line<R, J>, pass: &Pass, (x, first): (i32, i32), step: i32) -> Self {
        let region = &pass.region;
        Self {
            thread: line.thread,
            x,
            first,
            from: region.y0 - first,
            end: step.min(region.y1 - first),
            has: [x >= region.x0 && x < region.x1, x + 1 >= region.x0 && x + 1 < region.x1],
        }
    }

    /// Whether the thread's number `m` is a result.
    #[inline(always)]
    fn is_result(&self, m: usize) -> bool {
        (self.from..self.end).contains(&(self.thread + Self::APART * m as i32))
    }

    /// The row of the thread's number `m`.
    #[inline(always)]
    fn row(&self, m: i32) -> i32 {
        self.first + self.thread + Self::APART * m
    }

    /// Adds `point` times each result's own pixel to the sums.
    ///
    /// # Safety
    /// `pixels` are in allocated memory; the results lie in the image.
    #[inline(always)]
    unsafe fn add_point<const KIND: u32>(
        &self,
        pixels: &Source<'_>,
        point: f32,
        (re, im): (&mut [f32; EACH], &mut [f32; EACH]),
    ) {
        let mut m = 0;
        while m < EACH {
            let row = pixels.row_inside(self.row(m as i32));
            let value = |x: i32, has: bool| {
                let (there, at) = (self.is_result(m) && has, row.at(x));
                // SAFETY: as the caller promised.
                unsafe {
                    match KIND {
                        BYTES => load_u8_if(there, at) as f32,
                        _ if there => load_value(pixels.plane().scalar, at),
                        _ => 0.0,
                    }
                }
            };
            let (left, right) = (value(self.x, self.has[0]), value(self.x + 1, self.has[1]));
            re[m] = fma(point, left, re[m]);
            im[m] = fma(point, right, im[m]);
            m += 1;
        }
    }

    /// The values of results, from sums to which `middle` is added.
    ///
    /// # Safety
    /// As for [`columns`].
    #[inline(always)]
    unsafe fn values<const KIND: u32>(
        &self,
        pass: &Pass,
        (sum, middle, plane): (&Sum, f32, i32),
        sums: &[Complex; EACH],
    ) -> ([f32; EACH], [f32; EACH]) {
        let (mut re, mut im) = ([0.0; EACH], [0.0; EACH]);
        let mut m = 0;
        while m < EACH {
            (re[m], im[m]) = match KIND {
                BYTES => (sums[m].re + middle, sums[m].im + middle),
                _ => (sums[m].re, sums[m].im),
            };
            m += 1;
        }
        if sum.point != 0.0 {
            let pixels = Source::of_channel(&sum.pixels, pass, plane);
            // SAFETY: as the caller promised.
            unsafe { self.add_point::<KIND>(&pixels, sum.point, (&mut re, &mut im)) };
        }
        (finished(pass, re), finished(pass, im))
    }

    /// Stores sums as bytes, and notes uncertain results in the pass's list.
    ///
    /// # Safety
    /// As for [`columns`]; only one thread stores each result.
    #[inline(always)]
    unsafe fn store_bytes(
        &self,
        pass: &Pass,
        (lines, sum, near): (&Lines, &Sum, f32),
        sums: &[Complex; EACH],
    ) {
        let target = Target::of_channel(pass, lines.block().1);
        // SAFETY: as the caller promised.
        let (re, im) = unsafe { self.values::<BYTES>(pass, (sum, lines.middle, target.z()), sums) };
        // Two bits for each pair of results, so that the sums need no registers.
        let (mut words, mut uncertain) = ([0; EACH], 0u32);
        let mut m = 0;
        while m < EACH {
            let ((left, distance), (right, other)) = (to_near_byte(re[m]), to_near_byte(im[m]));
            words[m] = permute::<0x0040>(left, right);
            uncertain |=
                ((distance >= near) as u32) << (2 * m) | ((other >= near) as u32) << (2 * m + 1);
            m += 1;
        }
        // Opaque, so that the compiler computes it here and keeps no sum for it.
        let uncertain = opaque(uncertain as i32) as u32;
        // SAFETY: as the caller promised; the last call needs a list.
        unsafe {
            self.store_words_of_two::<1>(&target, &words);
            if pass.uncertain.list != 0 {
                self.note(&target, uncertain);
            }
        }
    }

    /// Stores sums as values of the destination's type.
    ///
    /// # Safety
    /// As for [`columns`]; only one thread stores each result.
    #[inline(always)]
    unsafe fn store_values(
        &self,
        pass: &Pass,
        (lines, sum): (&Lines, &Sum),
        sums: &[Complex; EACH],
    ) {
        let target = Target::of_channel(pass, lines.block().1);
        let scalar = pass.dst.scalar;
        // SAFETY: as the caller promised.
        unsafe {
            let (re, im) = self.values::<STORED>(pass, (sum, 0.0, target.z()), sums);
            if scalar == F32 {
                return self.store_pairs(
                    &target,
                    4,
                    |at, m| store_words(at, [re[m].to_bits(), im[m].to_bits()]),
                    |at, m, value| store_words(at, [[re[m], im[m]][value].to_bits()]),
                );
            }
            let (mut words, mut m) = ([0; EACH], 0);
            while m < EACH {
                let [left, right] = [re[m], im[m]].map(|value| to_bits(scalar, value));
                words[m] = left | right << if scalar == U8 { 8 } else { 16 };
                m += 1;
            }
            match scalar {
                U8 => self.store_words_of_two::<1>(&target, &words),
                _ => self.store_words_of_two::<2>(&target, &words),
            }
        }
    }

    /// Stores words of two values of SIZE (1 or 2) bytes each.
    ///
    /// # Safety
    /// As for [`Results::store_pairs`].
    #[inline(always)]
    unsafe fn store_words_of_two<const SIZE: u32>(&self, target: &Target<'_>, words: &[u32; EACH]) {
        // SAFETY: as the caller promised.
        unsafe {
            self.store_pairs(
                target,
                SIZE,
                |at, m| match SIZE {
                    1 => store_u16(at, words[m]),
                    _ => store_words(at, [words[m]]),
                },
                |at, m, value| match SIZE {
                    1 => store_u8(at, words[m] >> (8 * value)),
                    _ => store_u16(at, words[m] >> (16 * value)),
                },
            );
        }
    }

    /// Stores the results: where two values of `size` bytes lie side by side, `both` stores result
    /// `m` of both columns; else `one` stores result `m` of column 0 or 1.
    ///
    /// # Safety
    /// The region is in allocated memory; no other thread stores these results.
    #[inline(always)]
    unsafe fn store_pairs(
        &self,
        target: &Target<'_>,
        size: u32,
        both: impl Fn(u64, usize),
        one: impl Fn(u64, usize, usize),
    ) {
        let (plane, has, size) = (&target.pass().dst, self.has, size as u64);
        let mut at = target.at(self.x, self.row(0));
        let next = (Self::APART as i64).wrapping_mul(plane.row) as u64;
        let beside = plane.pixel as i64 as u64;
        let is_pair = has[0] && has[1] && beside == size && (at | next) & (2 * size - 1) == 0;
        let mut m = 0;
        if is_pair {
            while m < EACH {
                if self.is_result(m) {
                    both(at, m);
                }
                at = at.wrapping_add(next);
                m += 1;
            }
        } else {
            while m < EACH {
                if self.is_result(m) && has[0] {
                    one(at, m, 0);
                }
                if self.is_result(m) && has[1] {
                    one(at.wrapping_add(beside), m, 1);
                }
                at = at.wrapping_add(next);
                m += 1;
            }
        }
    }

    /// Notes the results whose bits are set: bit `2 m` for number `m` of the first column, the next
    /// bit for that of the second.
    ///
    /// # Safety
    /// The pass has a list.
    #[inline(always)]
    unsafe fn note(&self, target: &Target<'_>, mut uncertain: u32) {
        while uncertain != 0 {
            keep_rolled();
            let bit = uncertain.trailing_zeros() as i32;
            uncertain &= uncertain - 1;
            let has = if bit & 1 == 0 { self.has[0] } else { self.has[1] };
            if self.is_result((bit >> 1) as usize) && has {
                // SAFETY: as the caller promised.
                unsafe { note(target.pass(), self.x + (bit & 1), self.row(bit >> 1), target.z()) };
            }
        }
    }
}
