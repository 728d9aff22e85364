//! Pixels that spectra cannot hold: NaN, infinities, numbers too great and numbers too small.
//!
//! A transform would spread one NaN or infinity over its whole tile. So a tile's special pixels are
//! replaced by 0 before the transform, and the results under whose windows they lie are mended
//! afterwards, by adding what the special pixels make of a sum:
//!
//! - A NaN makes NaN of every result whose window holds it, whatever the tap. Two passes of running
//!   counts find these results, in a time that does not depend on the window.
//! - An infinity makes an infinity with the sign of its product with the tap, and NaN under a tap
//!   of zero. Two correlations find these results: of the infinities' signs with the taps' signs,
//!   and of the infinities' places with 1 for each tap, or 2 for a tap of zero. Half their sum
//!   counts the products that are `+inf`, half their difference those that are `-inf`, and a tap of
//!   zero counts as both. The counts are whole numbers, so the rounding errors of spectra do no
//!   harm while they are less than a half: for up to half a million taps. A greater window, or part
//!   of one, is left to [`super::patch`]; so is one so small that sums tap by tap take less time.
//! - A finite pixel too great for the transform leaves the whole pair of tiles to [`super::patch`].
//!
//! Numbers so small that products may be subnormal take hundreds of cycles each on some processors.
//! A tile of such numbers is scaled by a power of two; in a tile with greater ones they are far
//! below the error bound, and become 0.

use std::ops::Range;

use rustfft::num_complex::Complex;

use super::real::Real;
use crate::simd::{Lanes, Vectorized};

/// What makes a pixel special: a bit each.
pub(super) const NAN: u8 = 1;
pub(super) const PLUS: u8 = 2;
pub(super) const MINUS: u8 = 4;
pub(super) const GREAT: u8 = 8;
pub(super) const TINY: u8 = 16;

/// Pixels whose results are mended.
pub(super) const INFINITE: u8 = PLUS | MINUS;
pub(super) const MENDED: u8 = NAN | INFINITE;

/// Brings the finite pixels of a tile within the range of spectra.
#[derive(Clone, Copy)]
pub(super) struct Scale<E> {
    /// Smaller pixels become 0.
    pub(super) least: E,
    /// What pixels are multiplied by, a power of two, and what undoes that.
    pub(super) factor: E,
    pub(super) undo: E,
}

impl<E: Real> Scale<E> {
    /// For a tile with tiny pixels, from its greatest one.
    pub(super) fn new(greatest: E) -> Self {
        if greatest >= E::LOW || greatest == E::default() {
            return Self { least: E::TINY, factor: E::of(1.0), undo: E::of(1.0) };
        }
        // Neither factor is subnormal; scaled pixels are less than 1.
        let exponent = (-1 - greatest.exponent()).min(E::EXPONENT);
        let [factor, undo] = [exponent, -exponent].map(|exponent| E::of(2f64.powi(exponent)));
        Self { least: E::default(), factor, undo }
    }
}

/// The special pixels of a tile, and what they make of its results.
#[derive(Default)]
pub(super) struct Specials<E> {
    /// What each pixel is, in rows as long as a line; only rows in which something was found.
    pub(super) kinds: Vec<u8>,
    /// What was found in each row.
    pub(super) found: Vec<u8>,
    /// What is added to each result, by the bits of [`NAN`], [`PLUS`] and [`MINUS`]; rows of
    /// results.
    pub(super) marks: Vec<u8>,
    /// Whether a NaN lies under the window's columns, for each row of the tile; and how many rows
    /// of a window have one.
    across: Vec<u8>,
    counts: Vec<u16>,
    /// The first of both correlations.
    pub(super) signs: Vec<E>,
    /// A tile's numbers, while the infinities are in its place.
    pub(super) spare: Vec<Complex<E>>,
}

impl<E: Real> Specials<E> {
    /// Allocates memory for kinds, unless that has been done, and forgets what was found.
    pub(super) fn start(&mut self, line: usize, height: usize) -> crate::Result<()> {
        if self.kinds.is_empty() {
            self.kinds = crate::memory::zeroed(line * height)?;
            self.found = crate::memory::zeroed(height)?;
        }
        self.found.fill(0);
        Ok(())
    }

    /// The kinds of a row's pixels.
    pub(super) fn row(&self, y: usize) -> &[u8] {
        let line = self.kinds.len() / self.found.len();
        &self.kinds[y * line..][..line]
    }

    pub(super) fn row_mut(&mut self, y: usize) -> &mut [u8] {
        let line = self.kinds.len() / self.found.len();
        &mut self.kinds[y * line..][..line]
    }

    /// Marks the results under whose windows of `cols` by `rows` a NaN lies, of so many rows of
    /// `wide` results; and no others.
    pub(super) fn mark_nan(
        &mut self,
        (cols, rows): (usize, usize),
        (wide, results): (usize, usize),
    ) -> crate::Result<()> {
        let height = self.found.len();
        if self.marks.is_empty() {
            self.marks = crate::memory::zeroed(wide * height)?;
            self.across = crate::memory::zeroed(wide * height)?;
            self.counts = crate::memory::zeroed(wide)?;
        }
        let Self { kinds, found, marks, across, counts, .. } = self;
        let line = kinds.len() / height;
        for y in (0..height).filter(|&y| found[y] & NAN != 0) {
            spread(&kinds[y * line..][..line], cols, &mut across[row_of(wide, y)]);
        }
        counts.fill(0);
        // A row enters the counts, or leaves them.
        let change = |counts: &mut [u16], y: usize, by: u16| {
            if found[y] & NAN != 0 {
                let row = counts.iter_mut().zip(&across[row_of(wide, y)]);
                row.for_each(|(count, &any)| *count = count.wrapping_add(by * u16::from(any)));
            }
        };
        (0..rows - 1).for_each(|y| change(counts, y, 1));
        for y in 0..results {
            change(counts, y + rows - 1, 1);
            let row = marks[row_of(wide, y)].iter_mut().zip(&*counts);
            row.for_each(|(mark, &count)| *mark = if count > 0 { NAN } else { 0 });
            change(counts, y, u16::MAX);
        }
        Ok(())
    }
}

/// Notes for each result whether a NaN lies under its window of so many columns.
fn spread(kinds: &[u8], cols: usize, results: &mut [u8]) {
    results.fill(0);
    // Results before this one are done.
    let mut done = 0;
    for (at, _) in kinds.iter().enumerate().filter(|(_, kind)| **kind & NAN != 0) {
        let reached = (at + 1).saturating_sub(cols).max(done)..(at + 1).min(results.len());
        if !reached.is_empty() {
            done = reached.end;
            results[reached].fill(1);
        }
    }
}

/// Says what the pixels of a line are, replaces the special ones by 0, and scales the others.
/// Returns all that was found.
pub(super) struct Sort<'a, E> {
    pub(super) line: &'a mut [E],
    pub(super) kinds: &'a mut [u8],
    /// The greatest pixel that is not special.
    pub(super) greatest: E,
    /// If it is known how to scale.
    pub(super) scale: Option<Scale<E>>,
}

impl<E: Real> Vectorized for Sort<'_, E> {
    type Output = u8;

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> u8 {
        let zero = E::default();
        let (tiny, least, factor) = match self.scale {
            Some(scale) => (zero, scale.least, scale.factor),
            None => (E::TINY, zero, E::of(1.0)),
        };
        let mut all = 0;
        for (value, kind) in self.line.iter_mut().zip(self.kinds) {
            let (size, infinity) = (value.abs(), E::of(f64::INFINITY));
            let bit = |is_so: bool, bit: u8| if is_so { bit } else { 0 };
            let is_number = size <= infinity;
            let wild = bit(!is_number, NAN)
                | bit(*value == infinity, PLUS)
                | bit(zero - *value == infinity, MINUS)
                | bit((size > self.greatest) & (size < infinity), GREAT);
            *kind = wild;
            all |= wild | bit((size < tiny) & (size > zero), TINY);
            *value = if (size <= self.greatest) & (size >= least) { *value * factor } else { zero };
        }
        all
    }
}

/// The size of the greatest of a line's pixels, but for special ones, or that of those before it.
pub(super) struct Greatest<'a, E> {
    pub(super) line: &'a [E],
    /// The greatest pixel that is not special.
    pub(super) greatest: E,
    pub(super) before: E,
}

impl<E: Real> Vectorized for Greatest<'_, E> {
    type Output = E;

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> E {
        self.line.iter().map(|value| value.abs()).fold(self.before, |most, size| {
            if (size > most) & (size <= self.greatest) { size } else { most }
        })
    }
}

/// The infinities of a row as numbers: their signs, or 1 for each.
pub(super) struct Infinities<'a, E> {
    pub(super) kinds: &'a [u8],
    pub(super) signs: bool,
    pub(super) line: &'a mut [E],
}

impl<E: Real> Vectorized for Infinities<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let (zero, one) = (E::default(), E::of(1.0));
        let minus = if self.signs { zero - one } else { one };
        for (value, &kind) in self.line.iter_mut().zip(self.kinds) {
            *value = if kind & PLUS != 0 {
                one
            } else if kind & MINUS != 0 {
                minus
            } else {
                zero
            };
        }
    }
}

/// Marks results from the two correlations of infinities.
pub(super) struct MarkInfinite<'a, E> {
    pub(super) signs: &'a [E],
    pub(super) places: &'a [E],
    pub(super) marks: &'a mut [u8],
}

impl<E: Real> Vectorized for MarkInfinite<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        // Twice a count is 0, or 2 and more.
        let one = E::of(1.0);
        for ((mark, &sign), &place) in self.marks.iter_mut().zip(self.signs).zip(self.places) {
            *mark |= if place + sign > one { PLUS } else { 0 };
            *mark |= if place - sign > one { MINUS } else { 0 };
        }
    }
}

/// Adds to sums what special pixels make of them.
pub(super) struct Mend<'a, E> {
    pub(super) sums: &'a mut [E],
    pub(super) marks: &'a [u8],
}

impl<E: Real> Vectorized for Mend<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let added = [
            0.0,
            f64::NAN,
            f64::INFINITY,
            f64::NAN,
            f64::NEG_INFINITY,
            f64::NAN,
            f64::NAN,
            f64::NAN,
        ]
        .map(E::of);
        for (sum, &mark) in self.sums.iter_mut().zip(self.marks) {
            *sum = *sum + added[usize::from(mark & MENDED)];
        }
    }
}

/// The factors for the correlations of infinities, from a tap: its sign, and 1, or 2 if it is zero.
pub(super) fn of_tap<E: Real>(tap: E) -> [f64; 2] {
    let zero = E::default();
    let sign = if tap > zero {
        1.0
    } else if tap < zero {
        -1.0
    } else {
        0.0
    };
    [sign, if sign == 0.0 { 2.0 } else { 1.0 }]
}

/// A part of a row of results.
pub(super) fn row_of(wide: usize, y: usize) -> Range<usize> {
    y * wide..(y + 1) * wide
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_spread_as_far_as_windows_reach() {
        for cols in [1, 2, 5, 9] {
            for places in 0..1 << 9 {
                let kind = |x: usize| if places >> (x * 7 % 9) & 1 == 1 { NAN } else { PLUS };
                let kinds: Vec<u8> = (0..20 + cols - 1).map(kind).collect();
                let mut found = vec![7; 20];
                spread(&kinds, cols, &mut found);
                let expected: Vec<u8> =
                    kinds.windows(cols).map(|under| u8::from(under.contains(&NAN))).collect();
                assert_eq!(found, expected, "{cols} columns, {kinds:?}");
            }
        }
    }

    #[test]
    fn tiny_pixels_are_scaled_or_dropped() {
        for exponent in (-149..100).step_by(3) {
            let greatest = 2f32.powi(exponent.max(-126)) * 2f32.powi(exponent.min(-126) + 126);
            let Scale { least, factor, undo } = Scale::new(greatest);
            assert_eq!(factor * undo, 1.0);
            assert!(factor.is_normal() && undo.is_normal());
            assert!(least <= greatest * f32::EPSILON / 256.0, "{greatest:e}: {least:e}");
            let is_scaled = greatest < f32::LOW;
            assert_eq!(is_scaled, factor != 1.0, "{greatest:e}");
            assert!(
                !is_scaled || (2f32.powi(-50)..=1.0).contains(&(greatest * factor)),
                "{greatest:e} {factor:e}"
            );
        }
    }
}
