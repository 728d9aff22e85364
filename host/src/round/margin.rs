//! Which results are uncertain: those whose sum lies so near a half-integer that its error could
//! change the result.

use crate::simd::Float;

/// The rounding test, for sums with a known bound of the error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Margin<E> {
    /// The error bound of sums; 0 if none is uncertain.
    error: f64,
    /// Below, the true result is at most 0.5 and rounds to 0.
    low: E,
    /// Above, the true result is more than 254.5 and rounds to 255.
    high: E,
    /// Closer to an integer than this, the true result rounds to the same one.
    near: E,
}

impl<E: Float> Margin<E> {
    /// For sums with an error of at most `error`.
    pub(super) fn new(error: f64) -> Self {
        // Rounded to the safe side; NaN stays NaN, and then every comparison fails, which is safe
        // too.
        let near = E::below(0.5 - error);
        Self { error, low: near, high: E::default() - E::below(-254.5 - error), near }
    }

    pub(super) fn error(&self) -> f64 {
        self.error
    }

    /// The distance from an integer at which a sum between 0 and 255 is uncertain: none is as far
    /// as 1.
    pub(super) fn limit(&self) -> E {
        if self.error == 0.0 { E::of(1.0) } else { self.near }
    }

    /// Rounds to the nearest integer in 0 to 255, half to even; NaN becomes 0. Says whether any
    /// result is uncertain.
    #[inline(always)]
    pub(super) fn round(&self, values: &[E], rounded: &mut [u8]) -> bool {
        for (rounded, &value) in rounded.iter_mut().zip(values) {
            *rounded = value.byte();
        }
        self.error != 0.0 && values.iter().fold(false, |any, &value| any | self.is_within(value))
    }

    /// Whether the result of this sum is uncertain.
    #[inline(always)]
    pub(super) fn is_within(&self, value: E) -> bool {
        // An infinity comes from a partial sum that overflowed, and NaN from two: they say nothing
        // about the true one.
        let is_known = (value < self.low) | (value > self.high) | (value.distance() < self.near);
        !(value.is_finite() & is_known)
    }
}

/// How many places are written at once.
const AT_ONCE: usize = 4;

/// Room for as many places, and for a few more than can be found.
pub(crate) fn places_room(count: usize) -> usize {
    count + AT_ONCE
}

/// Writes the places of all bits, of which each mask has so many, and says how many there are. Few
/// at a time without a branch: whether there is another one is hard to predict.
#[inline(always)]
pub(crate) fn places(masks: &[u64], bits: usize, places: &mut [u32]) -> usize {
    let mut found = 0;
    for (block, &mask) in masks.iter().enumerate() {
        let (mut mask, mut at) = (mask, found);
        found += mask.count_ones() as usize;
        loop {
            for place in &mut places[at..at + AT_ONCE] {
                *place = (block * bits) as u32 + mask.trailing_zeros();
                mask &= mask.wrapping_sub(1);
            }
            at += AT_ONCE;
            if mask == 0 {
                break;
            }
        }
    }
    found
}
