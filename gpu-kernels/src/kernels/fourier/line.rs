//! A line of 256 R numbers, filtered by the threads that share it: forward transform, the taps'
//! spectrum, inverse.
//!
//! Thread mapping: 16 R threads share a line, each with 16 numbers. With `N = 16 * 16 * R`:
//! 1. Thread t has elements `t + 16 R m`: a transform over m, to k1, then twiddle factors of
//!    `t k1`.
//! 2. An exchange over the block: thread (k1, u) gets elements `t = u + R m`. A transform over m,
//!    to k2, then twiddle factors of `u k2`.
//! 3. An exchange among the R threads of one k1, inside a warp: thread (k1, v) gets all u for
//!    `k2 = v + R q`. Transforms of R over u, to k3.
//!
//! Frequency `k1 + 16 (k2 + 16 k3)` ends as number `R q + k3` of thread `R k1 + v`. Nothing is
//! reordered: the taps' spectrum lies in memory in the threads' order of frequencies. The inverse
//! takes the same steps backwards. Banks: element t of k1 is at place `t ^ R (k1 mod 16 / R)` for
//! rows, and frequency k2 of thread u at place u ^ (k2 mod R): no half-warp has a bank conflict.

use super::fft::{Complex, ZERO, within};
use crate::device::*;

/// Numbers of a line that a thread holds.
pub(super) const EACH: usize = 16;

/// Least warps of a block. Warps of a block are at nearly the same instruction, so more warps mean
/// fewer misses of the instruction cache.
const BLOCK_WARPS: i32 = 8;

/// Factors in a table for each thread: frequencies 1, 2, 3, 4, 8 and 12. The other factors are
/// products of two of these.
pub(super) const FACTORS: usize = 6;

/// The window of a pass along lines, and the tiles of a launch.
///
/// The buffer `numbers` has, as complex numbers, each table ordered by
/// [`FACTOR_OF`](super::lines::FACTOR_OF):
/// 1. `exp(-2 pi i t k / N)` for each thread t of a line;
/// 2. `exp(-2 pi i u k / 16 R)` for each u below R;
/// 3. for each part of each term the spectrum of the taps: number n of thread t at `16 R n + t`.
///
/// Behind them are each term's taps as real numbers, for results that are added tap by tap.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    /// Taps of the whole window along the line.
    pub taps: i32,
    /// The tap that lies on the result.
    pub anchor: i32,
    /// Taps of a part: the last one may have fewer.
    pub part: i32,
    /// The number of parts.
    pub parts: i32,
    /// The number of the first tile.
    pub first: i32,
    /// The sum of all taps times the middle of bytes. The row pass takes bytes minus the middle, so
    /// the column pass adds this to each sum.
    pub middle: f32,
    /// A sum at least this far from the nearest byte is uncertain. The column pass subtracts the
    /// error bound of its tile.
    pub near: f32,
    /// Error bound of the pass, factor of the root mean square of a tile's input numbers.
    pub of_input: f32,
    /// Error bound of the pass, factor of the root mean square of a tile's sums.
    pub of_output: f32,
    /// Error bound of the pass, factor of the greatest magnitude of a tile's sums.
    pub of_greatest: f32,
    /// Marks of the row pass.
    pub marks: Marks,
    /// Channels of all images. The grid's x axis counts them, then tiles or columns, so that blocks
    /// which share sectors of interleaved pixels run at the same time.
    pub planes: i32,
}

impl Lines {
    /// This block's number among those of a plane's row, and its plane.
    #[inline(always)]
    pub(super) fn block(&self) -> (i32, i32) {
        let (number, planes) = (opaque(block_x()) as u32, self.planes as u32);
        // `checked`, so that no panic is compiled into the kernel.
        let x = number.checked_div(planes).unwrap_or(0);
        (x as i32, (number - x * planes) as i32)
    }
}

/// The row pass's marks, an f32 for each tile of a pair of rows: tile by tile, then pair by pair,
/// plane by plane.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Marks {
    /// The address of the first mark.
    pub at: u64,
    /// The number of the first tile.
    pub first: i32,
    /// The number of tiles in a row.
    pub across: i32,
    /// Results of a tile in a row.
    pub step: i32,
    /// The number of the first pair of rows.
    pub pair: i32,
    /// The number of pairs of rows.
    pub pairs: i32,
}

impl Marks {
    /// The place of a mark in a plane.
    #[inline(always)]
    pub(super) fn place(&self, plane: i32, pair: i32, tile: i32) -> *mut f32 {
        let number = (plane * self.pairs + pair) as i64 * self.across as i64 + tile as i64;
        (self.at as *mut f32).wrapping_offset(number as isize)
    }

    /// The index of the tile that has column `x`.
    #[inline(always)]
    pub(super) fn tile(&self, x: i32) -> i32 {
        // `checked`, so that no panic is compiled into the kernel.
        (x as u32).checked_div(self.step as u32).unwrap_or(0) as i32 - self.first
    }
}

/// A thread's place in a line of 256 R numbers. J lines are interleaved in shared memory.
#[derive(Clone, Copy)]
pub(super) struct Line<const R: usize, const J: i32> {
    shared: Shared,
    /// The thread's index in its line, and the line's index.
    pub(super) thread: i32,
    pub(super) number: i32,
}

impl<const R: usize, const J: i32> Line<R, J> {
    pub(super) const THREADS: i32 = 16 * R as i32;
    pub(super) const SIZE: i32 = 256 * R as i32;
    const RADIX: i32 = R as i32;
    /// Warps that share J lines.
    const WARPS: i32 = R as i32 * J / 2;
    /// Groups of J lines in a block.
    pub(super) const GROUPS: i32 =
        if Self::WARPS < BLOCK_WARPS { BLOCK_WARPS / Self::WARPS } else { 1 };
    /// The bits of k1 that move a row's elements to other banks.
    const MOVED: i32 = if J == 1 { 16 / R as i32 - 1 } else { 0 };

    /// Lanes of a warp count lines first, then threads.
    #[inline(always)]
    pub(super) fn of_thread() -> Self {
        // Unsigned, so that division by a power of two is a shift.
        let (lane, lines) = (thread_x() as u32, J as u32);
        let thread = (32 / J) * Self::warp() + (lane / lines) as i32;
        let shared = Shared::dynamic().after(2 * Self::SIZE * J * Self::group());
        Self { shared, thread, number: (lane % lines) as i32 }
    }

    /// The index of this warp among those that share its lines.
    #[inline(always)]
    fn warp() -> i32 {
        if Self::GROUPS == 1 { thread_y() } else { thread_y() & (Self::WARPS - 1) }
    }

    /// The index of this warp's group of J lines. Each group has its own part of shared memory.
    #[inline(always)]
    pub(super) fn group() -> i32 {
        if Self::GROUPS == 1 { 0 } else { (thread_y() as u32 / Self::WARPS as u32) as i32 }
    }

    /// The same place, opaque to the compiler: addresses are computed at their use, which saves
    /// registers.
    #[inline(always)]
    pub(super) fn here(&self) -> Self {
        Self { thread: opaque(self.thread), ..*self }
    }

    /// `k1`, and `u` or `v`.
    #[inline(always)]
    fn split(&self) -> (i32, i32) {
        let (thread, radix) = (self.thread as u32, R as u32);
        ((thread / radix) as i32, (thread % radix) as i32)
    }

    /// The place of element `t` of `k1`, which this thread has in step 1.
    #[inline(always)]
    fn own(&self, k1: i32) -> i32 {
        (k1 * Self::THREADS + (self.thread ^ (Self::RADIX * (k1 & Self::MOVED)))) * J + self.number
    }

    /// The place of element `u + R m` of this thread's `k1` in step 2.
    #[inline(always)]
    fn across(&self, m: i32) -> i32 {
        let (k1, u) = self.split();
        (k1 * Self::THREADS + u + Self::RADIX * self.moved(m)) * J + self.number
    }

    /// The place of frequency `k2` of thread `(k1, u)`, for this thread's `k1`.
    #[inline(always)]
    fn within(&self, k2: i32, u: i32) -> i32 {
        let (k1, _) = self.split();
        (k1 * Self::THREADS + Self::RADIX * self.moved(k2) + (u ^ (k2 & (Self::RADIX - 1)))) * J
            + self.number
    }

    /// XORs the bits of this thread's `k1` into a number, to spread accesses over the banks.
    #[inline(always)]
    fn moved(&self, number: i32) -> i32 {
        let (k1, _) = self.split();
        (number & !Self::MOVED) + ((number & Self::MOVED) ^ (k1 & Self::MOVED))
    }

    #[inline(always)]
    unsafe fn load(&self, place: i32) -> Complex {
        // SAFETY: every place lies in the line's part of shared memory.
        let [re, im] = unsafe { self.shared.load2(2 * place) };
        Complex { re, im }
    }

    #[inline(always)]
    unsafe fn store(&self, place: i32, value: Complex) {
        // SAFETY: as in `load`.
        unsafe { self.shared.store2(2 * place, [value.re, value.im]) }
    }

    /// Keeps number `m` of the line until [`Line::kept`] reads it, at a place that only this thread
    /// uses.
    ///
    /// # Safety
    /// The line's part of shared memory is not in use otherwise.
    #[inline(always)]
    pub(super) unsafe fn keep(&self, m: i32, value: Complex) {
        // SAFETY: as the caller promised.
        unsafe { self.store(self.own(m), value) }
    }

    /// The numbers that this thread stored with [`Line::keep`].
    ///
    /// # Safety
    /// This thread kept all 16 numbers.
    #[inline(always)]
    pub(super) unsafe fn kept(&self) -> [Complex; EACH] {
        let mut line = [ZERO; EACH];
        let mut m = 0;
        while m < EACH {
            // SAFETY: as the caller promised.
            line[m] = unsafe { self.load(self.own(m as i32)) };
            m += 1;
        }
        line
    }

    /// The first two steps of a line's transform. Afterwards shared memory holds frequencies k2 for
    /// each u.
    ///
    /// # Safety
    /// The whole block calls this, with the tables; the lines' part of shared memory is not in use.
    #[inline(always)]
    unsafe fn spread(&self, line: [Complex; EACH], tables: *const f32) {
        let (_, u) = self.split();
        let inner = tables.wrapping_add(2 * FACTORS * 16 * R);
        // SAFETY: as the caller promised.
        unsafe {
            let part = turned::<false>(within::<EACH, false>(line), tables, 16 * R, self.thread);
            let mut k = 0;
            while k < EACH {
                self.store(self.own(k as i32), part[k]);
                k += 1;
            }
            barrier();
            let mut part = [ZERO; EACH];
            let mut m = 0;
            while m < EACH {
                part[m] = self.load(self.across(m as i32));
                m += 1;
            }
            let part = turned::<false>(within::<EACH, false>(part), inner, R, u);
            // The lanes of this k1 must have read their elements before the frequencies overwrite
            // them.
            warp_barrier();
            let mut k = 0;
            while k < EACH {
                self.store(self.within(k as i32, u), part[k]);
                k += 1;
            }
            warp_barrier();
        }
    }

    /// Numbers `R q` up to `R (q + 1)` (exclusive) of the spectrum, which only this thread reads.
    ///
    /// # Safety
    /// After [`Line::spread`].
    #[inline(always)]
    unsafe fn frequencies(&self, q: usize) -> [Complex; R] {
        let (_, v) = self.split();
        let (mut part, mut u) = ([ZERO; R], 0);
        while u < R {
            // SAFETY: as the caller promised.
            part[u] = unsafe { self.load(self.within(v + Self::RADIX * q as i32, u as i32)) };
            u += 1;
        }
        within::<R, false>(part)
    }

    /// Stores the inverse of [`Line::frequencies`] at the same places.
    ///
    /// # Safety
    /// As for [`Line::frequencies`].
    #[inline(always)]
    unsafe fn put_back(&self, q: usize, frequencies: [Complex; R]) {
        let (_, v) = self.split();
        let (part, mut u) = (within::<R, true>(frequencies), 0);
        while u < R {
            // SAFETY: as the caller promised.
            unsafe { self.store(self.within(v + Self::RADIX * q as i32, u as i32), part[u]) };
            u += 1;
        }
    }

    /// The inverse transform of a spectrum that was put back, N times too large.
    ///
    /// # Safety
    /// As for [`Line::spread`], after [`Line::put_back`] for every `q`.
    #[inline(always)]
    unsafe fn gathered(&self, tables: *const f32) -> [Complex; EACH] {
        let line = self.here();
        let (_, u) = line.split();
        let inner = tables.wrapping_add(2 * FACTORS * 16 * R);
        // SAFETY: as the caller promised.
        unsafe {
            warp_barrier();
            let mut part = [ZERO; EACH];
            let mut k = 0;
            while k < EACH {
                part[k] = line.load(line.within(k as i32, u));
                k += 1;
            }
            let part = within::<EACH, true>(turned::<true>(part, inner, R, u));
            warp_barrier();
            let mut m = 0;
            while m < EACH {
                line.store(line.across(m as i32), part[m]);
                m += 1;
            }
            barrier();
            let part = turned::<true>(line.kept(), tables, 16 * R, line.thread);
            within::<EACH, true>(part)
        }
    }

    /// The sums of two numbers over the line's threads, and the maxima of two others over the
    /// group's lines.
    ///
    /// # Safety
    /// The whole block calls this; nobody needs the contents of shared memory any more.
    #[inline(always)]
    pub(super) unsafe fn totals(
        &self,
        mut sums: [f32; 2],
        mut greatest: [f32; 2],
    ) -> ([f32; 2], [f32; 2]) {
        let (lane, lanes, warps) = (opaque(thread_x()), 32 / J, Self::WARPS);
        // SAFETY: as the caller promised; one thread stores to each place, and a barrier precedes
        // the loads.
        unsafe {
            let mut apart = 16;
            while apart > 0 {
                greatest =
                    greater(greatest, [of_lane(greatest[0], apart), of_lane(greatest[1], apart)]);
                if apart >= J as u32 {
                    sums = [sums[0] + of_lane(sums[0], apart), sums[1] + of_lane(sums[1], apart)];
                }
                apart /= 2;
            }
            barrier();
            if lane < J {
                self.shared.store2(2 * (Self::warp() * J + self.number), sums);
            }
            if lane == 0 {
                self.shared.store2(2 * (warps * J + Self::warp()), greatest);
            }
            barrier();
            // Each lane takes some warps' sums.
            let (mut totals, mut warp) = ([0.0; 2], (lane as u32 / J as u32) as i32);
            while warp < warps {
                let [a, b] = self.shared.load2(2 * (warp * J + self.number));
                totals = [totals[0] + a, totals[1] + b];
                warp += lanes;
            }
            greatest = self.shared.load2(2 * (warps * J + (lane & (warps - 1))));
            let mut apart = 16;
            while apart > 0 {
                greatest =
                    greater(greatest, [of_lane(greatest[0], apart), of_lane(greatest[1], apart)]);
                if apart >= J as u32 {
                    totals = [
                        totals[0] + of_lane(totals[0], apart),
                        totals[1] + of_lane(totals[1], apart),
                    ];
                }
                apart /= 2;
            }
            (totals, greatest)
        }
    }

    /// A tile's results along the line, and the thread's sums of squared magnitudes of frequencies
    /// before and after the taps' spectrum. `load` takes a term and the first tap of a part, and
    /// gives the line's numbers.
    ///
    /// # Safety
    /// The whole block calls this, with factors and spectra for these lines; shared memory is not
    /// in use.
    #[inline(always)]
    pub(super) unsafe fn filtered<const IN_PARTS: bool>(
        &self,
        lines: &Lines,
        terms: i32,
        numbers: *const f32,
        load: impl Fn(i32, i32) -> [Complex; EACH],
    ) -> ([Complex; EACH], [f32; 2]) {
        if !IN_PARTS {
            // SAFETY: as the caller promised.
            return unsafe { self.filtered_whole(numbers, load(0, 0)) };
        }
        let spectra = self.spectra(numbers);
        let mut squares = [0.0; 2];
        // SAFETY: as the caller promised.
        unsafe {
            let (mut sum, mut term, mut part) = ([[ZERO; R]; EACH], opaque(0), opaque(0));
            loop {
                self.spread(load(term, part * lines.part), numbers);
                let line = self.here();
                let spectrum =
                    spectra.wrapping_add(2 * ((term * lines.parts + part) * Self::SIZE) as usize);
                let mut q = 0;
                while q < EACH / R {
                    let (part, mut i) = (line.frequencies(q), 0);
                    while i < R {
                        let [re, im] = reload2(spectrum, 2 * 16 * R * (R * q + i));
                        let (Complex { re: a, im: b }, to) = (part[i], &mut sum[q][i]);
                        squares[0] = with_square(squares[0], part[i]);
                        to.re = fma(a, re, fma(-b, im, to.re));
                        to.im = fma(a, im, fma(b, re, to.im));
                        i += 1;
                    }
                    q += 1;
                }
                part = opaque(part + 1);
                if part == lines.parts {
                    (term, part) = (opaque(term + 1), 0);
                }
                if term == terms {
                    let mut q = 0;
                    while q < EACH / R {
                        let mut i = 0;
                        while i < R {
                            squares[1] = with_square(squares[1], sum[q][i]);
                            i += 1;
                        }
                        line.put_back(q, sum[q]);
                        q += 1;
                    }
                    return (self.gathered(numbers), squares);
                }
                // The next line's numbers overwrite the same places.
                barrier();
            }
        }
    }

    /// [`Line::filtered`] for one term and a window of one part.
    ///
    /// # Safety
    /// As for [`Line::filtered`].
    #[inline(always)]
    unsafe fn filtered_whole(
        &self,
        numbers: *const f32,
        loaded: [Complex; EACH],
    ) -> ([Complex; EACH], [f32; 2]) {
        let spectrum = self.spectra(numbers);
        let mut squares = [0.0; 2];
        // SAFETY: as the caller promised.
        unsafe {
            self.spread(loaded, numbers);
            let line = self.here();
            let mut q = 0;
            while q < EACH / R {
                let (mut part, mut i) = (line.frequencies(q), 0);
                while i < R {
                    let [re, im] = reload2(spectrum, 2 * 16 * R * (R * q + i));
                    let product = part[i].times(Complex { re, im });
                    squares = [with_square(squares[0], part[i]), with_square(squares[1], product)];
                    part[i] = product;
                    i += 1;
                }
                line.put_back(q, part);
                q += 1;
            }
            (self.gathered(numbers), squares)
        }
    }

    /// The thread's first number of the spectra, which follow the factors.
    #[inline(always)]
    fn spectra(&self, numbers: *const f32) -> *const f32 {
        numbers.wrapping_add(2 * FACTORS * 17 * R + 2 * self.thread as usize)
    }

    /// The taps of the first term, which follow the spectra of all terms.
    #[inline(always)]
    pub(super) fn taps(lines: &Lines, terms: i32, numbers: *const f32) -> *const f32 {
        let spectra = mul_wide(terms * lines.parts, 2 * Self::SIZE);
        numbers.wrapping_add(2 * FACTORS * 17 * R).wrapping_offset(spectra as isize)
    }
}

/// The greatest magnitude of a thread's sums.
#[inline(always)]
pub(super) fn greatest(sums: &[Complex; EACH]) -> f32 {
    let (mut greatest, mut m) = (0.0f32, 0);
    while m < EACH {
        greatest = greatest.max(sums[m].re.abs()).max(sums[m].im.abs());
        m += 1;
    }
    greatest
}

/// Error bound of a pass for the sums of a line of 256 R numbers. `squares` are the sums of squared
/// magnitudes of all frequencies. Before the taps' spectrum that sum is N squared times the mean
/// square of the input; after it, the mean square of the sums.
#[inline(always)]
pub(super) fn moved<const R: usize>(lines: &Lines, squares: [f32; 2], greatest: f32) -> f32 {
    let part = 1.0 / (256 * R) as f32;
    fma(
        lines.of_input,
        part * sqrt(squares[0]),
        fma(lines.of_output, sqrt(squares[1]), lines.of_greatest * greatest),
    )
}

/// Whether all of a thread's sums are finite.
#[inline(always)]
pub(super) fn is_finite(sums: &[Complex; EACH]) -> bool {
    let (mut zero, mut m) = (0.0f32, 0);
    while m < EACH {
        zero = fma(sums[m].re, 0.0, fma(sums[m].im, 0.0, zero));
        m += 1;
    }
    zero == 0.0
}

/// The element-wise maximum of two pairs.
#[inline(always)]
fn greater(a: [f32; 2], b: [f32; 2]) -> [f32; 2] {
    [a[0].max(b[0]), a[1].max(b[1])]
}

/// The value of the lane whose index differs in the bits of `apart`.
///
/// # Safety
/// The whole warp calls this.
#[inline(always)]
unsafe fn of_lane(value: f32, apart: u32) -> f32 {
    // SAFETY: as the caller promised.
    f32::from_bits(unsafe { exchange(value.to_bits(), apart) })
}

/// `sum` plus the squared magnitude of `number`.
#[inline(always)]
fn with_square(sum: f32, number: Complex) -> f32 {
    fma(number.re, number.re, fma(number.im, number.im, sum))
}

/// Multiplies frequency k with factor k of element `at`. The table has `apart` numbers for each
/// factor.
///
/// # Safety
/// The table has these factors.
#[inline(always)]
unsafe fn turned<const INVERSE: bool>(
    mut numbers: [Complex; EACH],
    table: *const f32,
    apart: usize,
    at: i32,
) -> [Complex; EACH] {
    // Opaque to the compiler, which would otherwise hold the factors in registers for the inverse.
    let table = table.wrapping_add(2 * opaque(at) as usize);
    let mut factors = [ZERO; FACTORS];
    let mut i = 0;
    while i < FACTORS {
        // SAFETY: as the caller promised.
        let [re, im] = unsafe { reload2(table, 2 * apart * i) };
        factors[i] = Complex { re, im };
        i += 1;
    }
    let mut k = 1;
    while k < EACH {
        let factor = match (k / 4, k % 4) {
            (0, b) => factors[b - 1],
            (a, 0) => factors[2 + a],
            (a, b) => factors[2 + a].times(factors[b - 1]),
        };
        numbers[k] =
            if INVERSE { numbers[k].times_conjugate(factor) } else { numbers[k].times(factor) };
        k += 1;
    }
    numbers
}
