//! Normalised convolution: sums over known pixels, `sum(w m p)`, and of their weights,
//! `sum(w m)`.
//!
//! An average is `sum(w m p) / (sum(w m) / sum(w))`, each sum in f32. Where every weight under the
//! window is 1 the divisor is 1, so the result is the plain filter's, to the last bit.
//!
//! | file | what it computes |
//! | --- | --- |
//! | [`weigh`] | a row's products with weights, or its weights |
//! | [`sums`] | the direct and the separable family |
//! | [`spectra`] | the family of spectra, and sums tap by tap where little is known |
//! | [`bytes`], [`exact`] | bytes made of bytes and a mask of bytes: exact |

mod bytes;
mod exact;
mod spectra;
mod sums;
#[cfg(test)]
mod tests;
pub(super) mod weigh;

use std::ops::Range;

use super::Engine;
use super::taps::Taps;
use crate::image::stored::{StoredView, StoredViewMut};
use crate::image::{ImageView, ImageViewMut, Pixel, Scalar};
use crate::mask::{Coverage, Known, Mask, Rule};
use crate::progress::Stage;
use crate::simd::{Lanes, Vectorized};
use crate::{Family, Result, with_pixels};
use sums::{Ordered, Orders};
use weigh::{BLOCK, MOST, Weigh, repeat};

/// What a call filters, and what it knows of the image.
struct Job<'a, S> {
    known: &'a Known<'a>,
    src: ImageView<'a, S>,
    /// Channels that are filtered; the others are copied.
    filtered: usize,
}

impl<S: Pixel> Job<'_, S> {
    /// Channels of the sums of weights: those of the mask, if it says it all.
    fn weights(&self) -> usize {
        let channels = self.src.shape().channels;
        if self.known.unknown.is_nan(S::SCALAR) {
            return channels;
        }
        self.known.mask.channels().unwrap_or(channels)
    }

    fn weigh(&self, alone: bool) -> Weigh<'_> {
        let nan = self.known.unknown.is_nan(S::SCALAR);
        Weigh { mask: self.known.mask, nan, outside: self.known.outside(), alone }
    }

    /// Copies the known pixels of row `y` to their results.
    fn keep_known<D: Pixel>(
        &self,
        columns: &Range<usize>,
        y: usize,
        own: &mut Vec<f32>,
        out: &mut [D],
        mut known: Option<&mut [u8]>,
    ) {
        let channels = self.src.shape().channels;
        let (mask, nan) = (&self.known.mask, self.known.unknown.is_nan(S::SCALAR));
        let of_mask = mask.channels().unwrap_or(1);
        own.resize(columns.len() * of_mask, 1.0);
        mask.row(y, columns.start * of_mask, own);
        let row = &self.src.row(y)[columns.start * channels..columns.end * channels];
        for (at, (out, value)) in out.iter_mut().zip(row).enumerate() {
            let value = value.to_f32();
            if own[at * of_mask / channels] != 0.0 && !(nan && value.is_nan()) {
                *out = D::from_f32(value);
                if let Some(known) = &mut known {
                    known[at] = 255;
                }
            }
        }
    }
}

/// What makes results of the sums of a row.
struct Results<'a> {
    rule: Rule,
    /// The sum of the taps.
    ones: f32,
    /// The result where no pixel is known.
    unknown: f32,
    /// Values for each sum of weights.
    per_weight: usize,
    /// Empty under [`Rule::Sum`], unless they are asked for.
    weights: &'a [f32],
    /// Sums of weights, where no tap is negative.
    magnitudes: &'a [f32],
}

impl Results<'_> {
    /// A result, and whether it has known pixels.
    #[inline(always)]
    fn of(&self, sum: f32, weight: f32, magnitude: f32) -> (f32, bool) {
        let known = match self.rule {
            Rule::Average => weight != 0.0,
            Rule::Quotient => weight.abs() > Rule::CANCELLED as f32 * magnitude,
            Rule::Sum => magnitude != 0.0,
        };
        let value = if self.rule == Rule::Sum { sum } else { sum / (weight / self.ones) };
        (if known { value } else { self.unknown }, known)
    }

    /// The sums that decide each result.
    #[inline(always)]
    fn below(&self) -> impl Iterator<Item = (f32, f32)> {
        let weights = if self.rule == Rule::Sum { self.magnitudes } else { self.weights };
        weights.iter().copied().zip(self.magnitudes.iter().copied())
    }

    /// Writes 255 for results with known pixels, and 0 for others.
    fn known(&self, known: &mut [u8]) {
        for (known, (weight, magnitude)) in
            known.chunks_exact_mut(self.per_weight).zip(self.below())
        {
            known.fill(if self.of(0.0, weight, magnitude).1 { 255 } else { 0 });
        }
    }
}

/// Makes the results of a row's sums.
struct Make<'a> {
    results: Results<'a>,
    values: &'a [f32],
    to: &'a mut [f32],
}

impl Vectorized for Make<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Self { results, values, to } = self;
        let below = if results.rule == Rule::Sum { results.magnitudes } else { results.weights };
        let some = |to: &mut [f32], values: &[f32], below: &[f32], magnitudes: &[f32]| {
            let below = below.iter().zip(magnitudes);
            for ((to, &sum), (&weight, &magnitude)) in to.iter_mut().zip(values).zip(below) {
                *to = results.of(sum, weight, magnitude).0;
            }
        };
        let per_weight = results.per_weight;
        if per_weight == 1 {
            return some(to, values, below, results.magnitudes);
        }
        let pixels = to.chunks_mut(BLOCK * per_weight).zip(values.chunks(BLOCK * per_weight));
        let below = below.chunks(BLOCK).zip(results.magnitudes.chunks(BLOCK));
        let mut spread = [[0.0; BLOCK * MOST]; 2];
        for ((to, values), (below, magnitudes)) in pixels.zip(below) {
            if per_weight <= MOST {
                let [a, b] = &mut spread;
                let (a, b) = (&mut a[..to.len()], &mut b[..to.len()]);
                repeat(below, per_weight, a);
                repeat(magnitudes, per_weight, b);
                some(to, values, a, b);
                continue;
            }
            let pixels = to.chunks_exact_mut(per_weight).zip(values.chunks_exact(per_weight));
            for ((to, values), (&weight, &magnitude)) in pixels.zip(below.iter().zip(magnitudes)) {
                for (to, &sum) in to.iter_mut().zip(values) {
                    *to = results.of(sum, weight, magnitude).0;
                }
            }
        }
    }
}

/// The sum of a filter's taps in f32, in the order of a family.
#[cfg(feature = "gpu")]
pub(crate) fn sum_of_taps(filter: &crate::Filter, family: Family) -> Result<f32> {
    Ok(Ordered::new(crate::simd::Isa::fastest(), &Taps::new(filter), family)?.ones())
}

impl Engine {
    /// Filters the first `filtered` channels over their known pixels and copies the others. It is a
    /// `stage` of a call, which may end it.
    pub(crate) fn run_masked(
        &self,
        family: Family,
        known: &Known<'_>,
        src: &StoredView<'_>,
        (dst, filtered): (&mut StoredViewMut<'_>, usize),
        coverage: &mut Coverage<'_>,
        stage: &Stage<'_>,
    ) -> Result<()> {
        if (src.scalar(), dst.scalar()) == (Scalar::U8, Scalar::U8)
            && !matches!(known.mask, Mask::Weights(_))
        {
            let job = Job { known, src: src.typed(), filtered };
            return self.run_masked_bytes(family, &job, &mut dst.typed(), coverage, stage);
        }
        let rule = Rule::of(&self.taps.filter);
        let weighing = Weighing { family, rule, of_bytes: false };
        with_pixels!(src.scalar(), S => with_pixels!(dst.scalar(), D => {
            let job = Job { known, src: src.typed::<S>(), filtered };
            self.masked_values::<S, D>(weighing, &job, &mut dst.typed(), coverage, stage)
        }))
    }

    /// Sums in f32.
    fn masked_values<S: Pixel, D: Pixel>(
        &self,
        weighing: Weighing,
        job: &Job<'_, S>,
        dst: &mut ImageViewMut<'_, D>,
        coverage: &mut Coverage<'_>,
        stage: &Stage<'_>,
    ) -> Result<()> {
        let Weighing { family, rule, .. } = weighing;
        if family == Family::Fourier {
            return spectra::run(self, weighing, job, dst, coverage, stage);
        }
        let of = |taps| Ordered::new(self.isa, taps, family);
        let taps = of(self.taps_of(weighing)?)?;
        let magnitudes = self.magnitudes(weighing)?.map(of).transpose()?;
        let orders = Orders { rule, taps, magnitudes };
        sums::run((self.isa, self.window()), &orders, job, dst, coverage, stage)
    }

    /// The taps of sums.
    fn taps_of(&self, weighing: Weighing) -> Result<&Taps> {
        if weighing.of_bytes { Ok(&self.bytes()?.taps) } else { Ok(&self.taps) }
    }

    /// Their magnitudes, where the rule needs them.
    fn magnitudes(&self, weighing: Weighing) -> Result<Option<&Taps>> {
        if weighing.rule == Rule::Average {
            return Ok(None);
        }
        let taps = self.taps_of(weighing)?;
        let made = &self.magnitudes[usize::from(weighing.of_bytes)];
        crate::memory::once(made, || Ok(Taps::new(&taps.filter.magnitudes()?))).map(Some)
    }
}

/// How sums are made.
#[derive(Clone, Copy)]
struct Weighing {
    family: Family,
    rule: Rule,
    /// Whether bytes are made of bytes, whose taps are whole numbers over a divisor.
    of_bytes: bool,
}
