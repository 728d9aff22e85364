//! What a mask makes of a row of pixels before a pass: products with weights, or the weights.
//!
//! An unknown pixel weighs 0, and its product is 0 whatever it holds: 0 times NaN would spread.

use std::ops::Range;

use crate::cpu::lines::Padding;
use crate::cpu::rows::Widen;
use crate::cpu::run::Run;
use crate::image::{Pixel, Shape};
use crate::mask::{Mask, weight};
use crate::simd::{Isa, Lanes, Vectorized};

/// How the pixels of a frame are weighted.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Weigh<'a> {
    pub(in crate::cpu) mask: Mask<'a>,
    /// Whether pixels that are NaN are unknown.
    pub(in crate::cpu) nan: bool,
    /// The weight of what lies outside the image where the border finds no pixel.
    pub(in crate::cpu) outside: f32,
    /// Whether lines hold the weights themselves.
    pub(in crate::cpu) alone: bool,
}

impl<S: Pixel, D: Pixel> Run<'_, S, D> {
    /// Weighs a padded row in place, whose source is row `y` of the image or lies outside. Says
    /// whether every weight is 1.
    pub(in crate::cpu) fn weigh(
        &self,
        weigh: &Weigh<'_>,
        padding: &Padding<'_>,
        y: Option<usize>,
        values: &mut [f32],
    ) -> bool {
        let Shape { channels, .. } = self.frame.src.shape();
        let outside = |values: &mut [f32]| weigh.apply(self.frame.isa, &[weigh.outside], values);
        let Some(y) = y else { return outside(values) };
        let inside = padding.inside.start * channels..padding.inside.end * channels;
        let first = padding.first + padding.inside.start - self.frame.window.anchor_x;
        let mut all = weigh.row(self.frame.isa, y, first, channels, &mut values[inside]);
        for &(at, source) in padding.sides {
            let values = &mut values[at * channels..][..channels];
            all &= match source {
                Some(x) => weigh.row(self.frame.isa, y, x, channels, values),
                None => outside(values),
            };
        }
        all
    }

    /// The weighted pixels of row `y` under some columns.
    pub(in crate::cpu) fn weighted_row(
        &self,
        weigh: &Weigh<'_>,
        out: &mut [f32],
        columns: &Range<usize>,
        y: usize,
    ) {
        let Shape { channels, .. } = self.frame.src.shape();
        let values = &self.frame.src.row(y)[columns.start * channels..columns.end * channels];
        self.frame.isa.run(Widen { values, middle: 0.0, out });
        weigh.row(self.frame.isa, y, columns.start, channels, out);
    }
}

impl Weigh<'_> {
    /// Weighs values of row `y` from column `x` on; says whether every weight is 1.
    pub(in crate::cpu) fn row(
        &self,
        isa: Isa,
        y: usize,
        x: usize,
        channels: usize,
        values: &mut [f32],
    ) -> bool {
        let part = |of_mask: usize| x * of_mask..x * of_mask + values.len() / channels * of_mask;
        match &self.mask {
            Mask::All => self.apply(isa, &[1.0], values),
            Mask::Bytes(view) => {
                let bytes = &view.row(y)[part(view.shape().channels)];
                // Most rows of most masks are known as a whole.
                match isa.run(AllKnown(bytes)) {
                    true if !self.nan && !self.alone => true,
                    true => self.apply(isa, &[1.0], values),
                    false => self.apply(isa, bytes, values),
                }
            }
            Mask::Weights(view) => {
                self.apply(isa, &view.row(y)[part(view.shape().channels)], values)
            }
        }
    }

    /// Weighs values by weights, each of which is for as many values; says whether every weight
    /// is 1.
    fn apply<W: Weight>(&self, isa: Isa, weights: &[W], values: &mut [f32]) -> bool {
        let Self { nan, alone, .. } = *self;
        isa.run(Apply { weights, nan, alone, values })
    }
}

/// A mask's number as a weight.
trait Weight: Copy {
    fn weight(self) -> f32;
}

impl Weight for u8 {
    #[inline(always)]
    fn weight(self) -> f32 {
        weight(self)
    }
}

impl Weight for f32 {
    #[inline(always)]
    fn weight(self) -> f32 {
        self
    }
}

/// Whether all bytes of a mask are 255.
struct AllKnown<'a>(&'a [u8]);

impl Vectorized for AllKnown<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> bool {
        self.0.iter().fold(255, |all, byte| all & byte) == 255
    }
}

/// Weighs values in place; says whether every weight is 1.
struct Apply<'a, W> {
    weights: &'a [W],
    nan: bool,
    alone: bool,
    values: &'a mut [f32],
}

impl<N: Weight> Vectorized for Apply<'_, N> {
    type Output = bool;

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> bool {
        let Self { weights, nan, alone, values } = self;
        match (nan, alone) {
            (false, false) => each(weights, values, |_, weight| weight, product),
            (false, true) => each(weights, values, |_, weight| weight, |_, weight| weight),
            (true, false) => each(weights, values, known, product),
            (true, true) => each(weights, values, known, |_, weight| weight),
        }
    }
}

/// The weight of a value that may be NaN.
#[inline(always)]
fn known(value: f32, weight: f32) -> f32 {
    if value.is_nan() { 0.0 } else { weight }
}

/// What is unknown has no part, whatever it holds.
#[inline(always)]
fn product(value: f32, weight: f32) -> f32 {
    if weight == 0.0 { 0.0 } else { value * weight }
}

/// Replaces values by `result` of them and of their `weight`; says whether every weight is 1.
#[inline(always)]
fn each<N: Weight>(
    weights: &[N],
    values: &mut [f32],
    weight: impl Fn(f32, f32) -> f32,
    result: impl Fn(f32, f32) -> f32,
) -> bool {
    let mut all = true;
    let mut some = |values: &mut [f32], weights: &[f32]| {
        for (value, &number) in values.iter_mut().zip(weights) {
            let weight = weight(*value, number);
            all &= weight == 1.0;
            *value = result(*value, weight);
        }
    };
    if let [number] = *weights {
        let weights = [number.weight(); BLOCK];
        values.chunks_mut(BLOCK).for_each(|values| some(values, &weights));
    } else if !weights.is_empty() {
        let per_weight = values.len() / weights.len();
        let (mut numbers, mut spread) = ([0.0; BLOCK], [0.0; BLOCK * MOST]);
        for (values, weights) in values.chunks_mut(BLOCK * per_weight).zip(weights.chunks(BLOCK)) {
            let numbers = &mut numbers[..weights.len()];
            numbers.iter_mut().zip(weights).for_each(|(number, weight)| *number = weight.weight());
            if per_weight == 1 {
                some(values, numbers);
            } else if per_weight <= MOST {
                let spread = &mut spread[..values.len()];
                repeat(numbers, per_weight, spread);
                some(values, spread);
            } else {
                for (values, &number) in values.chunks_exact_mut(per_weight).zip(&*numbers) {
                    let weights = [number; BLOCK];
                    values.chunks_mut(BLOCK).for_each(|values| some(values, &weights));
                }
            }
        }
    }
    all
}

/// Numbers that are repeated for the channels of their pixels together, so that loops over values
/// become vectors; and the most channels.
pub(super) const BLOCK: usize = 64;
pub(super) const MOST: usize = 4;

/// Repeats each number for the channels of its pixel, of which there are at most [`MOST`].
#[inline(always)]
pub(super) fn repeat(numbers: &[f32], channels: usize, out: &mut [f32]) {
    #[inline(always)]
    fn fixed<const C: usize>(numbers: &[f32], out: &mut [f32]) {
        out.chunks_exact_mut(C).zip(numbers).for_each(|(out, &number)| {
            // Not `fill`, which may become a call.
            for out in out {
                *out = number;
            }
        });
    }
    match channels {
        2 => fixed::<2>(numbers, out),
        3 => fixed::<3>(numbers, out),
        _ => fixed::<MOST>(numbers, out),
    }
}
