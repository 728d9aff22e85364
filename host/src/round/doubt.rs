//! Which results are in doubt: those whose f32 sum lies so near a half-integer that its error could change the result.

/// The rounding test, for sums with a known bound of the error.
pub(super) struct Doubt {
    /// The error bound of sums; 0 if none is in doubt.
    error: f64,
    /// Below, the true result is at most 0.5 and rounds to 0.
    low: f32,
    /// Above, the true result is more than 254.5 and rounds to 255.
    high: f32,
    /// Closer to an integer than this, the true result rounds to the same one.
    near: f32,
}

impl Doubt {
    /// For sums with an error of at most `error`.
    pub(super) fn new(error: f64) -> Self {
        // Rounded to the safe side; NaN stays NaN, and then every comparison fails, which is safe too.
        let down = |bound: f64| if f64::from(bound as f32) > bound { (bound as f32).next_down() } else { bound as f32 };
        let near = down(0.5 - error);
        Self { error, low: near, high: -down(-254.5 - error), near }
    }

    pub(super) fn error(&self) -> f64 {
        self.error
    }

    /// The distance from an integer at which a sum between 0 and 255 is in doubt: none is as far as 1.
    pub(super) fn limit(&self) -> f32 {
        if self.error == 0.0 { 1.0 } else { self.near }
    }

    /// Rounds to the nearest integer in 0 to 255, half to even; NaN becomes 0. Says whether any result is in doubt.
    #[inline(always)]
    pub(super) fn round(&self, values: &[f32], rounded: &mut [u8]) -> bool {
        for (rounded, &value) in rounded.iter_mut().zip(values) {
            *rounded = shifted(value).to_bits() as u8;
        }
        self.error != 0.0 && values.iter().fold(false, |any, &value| any | self.about(value))
    }

    /// Whether the result of this sum is in doubt.
    #[inline(always)]
    pub(super) fn about(&self, value: f32) -> bool {
        // NaN stays NaN here, and in doubt.
        let distance = (value.clamp(0.0, 255.0) - (shifted(value) - SHIFT)).abs();
        // An infinity comes from a partial sum that overflowed: it says nothing about the true one.
        let saturated = (value.abs() <= f32::MAX) & ((value < self.low) | (value > self.high));
        !(saturated | (distance < self.near))
    }
}

/// Adding it to a number in 0 to 255 rounds that to an integer, half to even, and leaves it in the lowest byte.
const SHIFT: f32 = 8_388_608.0;

#[inline(always)]
#[expect(clippy::manual_clamp, reason = "NaN becomes 0")]
fn shifted(value: f32) -> f32 {
    value.max(0.0).min(255.0) + SHIFT
}
