//! What is done to a row of values before a pass and after it.

use crate::image::Pixel;
use crate::simd::{Lanes, Vectorized};

/// Bytes in a cache line.
pub(super) const CACHE_LINE: usize = 64;

/// Elements whose columns are summed in f64 together: those of a vector, in half of a cache line,
/// which is read for one of them anyway.
pub(super) const BESIDE: usize = CACHE_LINE / size_of::<f64>();

/// Sums in f64 of elements next to each other, over lines that begin at these places of the values.
pub(super) struct ColumnSums<'a> {
    pub(super) values: &'a [f32],
    pub(super) lines: &'a [usize],
    pub(super) column: &'a [f64],
}

impl Vectorized for ColumnSums<'_> {
    type Output = [f64; BESIDE];

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> [f64; BESIDE] {
        const CHAINS: usize = 4;
        let Self { values, lines, column } = self;
        let add = |sums: &mut [f64; BESIDE], tap: f64, line: usize| {
            let values = &values[line..][..BESIDE];
            for i in 0..BESIDE {
                sums[i] += tap * f64::from(values[i]);
            }
        };
        // Several sums of each, as an addition waits for the one before it.
        let mut sums = [[0.0; BESIDE]; CHAINS];
        for (taps, lines) in column.chunks_exact(CHAINS).zip(lines.chunks_exact(CHAINS)) {
            for (sums, (&tap, &line)) in sums.iter_mut().zip(taps.iter().zip(lines)) {
                add(sums, tap, line);
            }
        }
        let left = column.len() / CHAINS * CHAINS;
        for (sums, (&tap, &line)) in sums.iter_mut().zip(column[left..].iter().zip(&lines[left..]))
        {
            add(sums, tap, line);
        }
        std::array::from_fn(|i| sums.iter().map(|sums| sums[i]).sum())
    }
}

/// Pixels to floats, less the middle.
pub(super) struct Widen<'a, S> {
    pub(super) values: &'a [S],
    pub(super) middle: f32,
    pub(super) out: &'a mut [f32],
}

impl<S: Pixel> Vectorized for Widen<'_, S> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        S::widen(self.values, self.out);
        if self.middle != 0.0 {
            self.out.iter_mut().for_each(|value| *value -= self.middle);
        }
    }
}

/// Pixels times a factor.
pub(super) struct Scale<'a, S> {
    pub(super) factor: f32,
    pub(super) values: &'a [S],
    pub(super) out: &'a mut [f32],
}

impl<S: Pixel> Vectorized for Scale<'_, S> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let each = self.out.iter_mut().zip(self.values);
        each.for_each(|(out, value)| *out = self.factor * value.to_f32());
    }
}

/// Adds pixels times a factor to sums, each by a fused multiply-add.
pub(super) struct AddPoint<'a, S> {
    pub(super) factor: f32,
    pub(super) values: &'a [S],
    pub(super) sums: &'a mut [f32],
}

impl<S: Pixel> Vectorized for AddPoint<'_, S> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let each = self.sums.iter_mut().zip(self.values);
        each.for_each(|(sum, value)| *sum = self.factor.mul_add(value.to_f32(), *sum));
    }
}

/// Floats to pixels.
pub(super) struct Narrow<'a, D> {
    pub(super) values: &'a mut [f32],
    pub(super) out: &'a mut [D],
}

impl<D: Pixel> Vectorized for Narrow<'_, D> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        D::narrow(self.values, self.out);
    }
}
