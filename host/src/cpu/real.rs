//! The types that spectra are computed in on the CPU.

use rustfft::FftNum;

use crate::simd::Float;
use crate::spectrum::Precision;

/// A type that spectra are computed in.
pub(super) trait Real: Float + FftNum + Default {
    const PRECISION: Precision;
    /// A unit in the last place of 1.
    const EPSILON: f64;

    /// Smaller pixels are tiny: products with them may be subnormal, which takes some processors
    /// hundreds of cycles.
    const TINY: Self;
    /// Where the greatest pixel of a tile is smaller, and one is tiny, the tile is scaled, by at
    /// most two to the power of `EXPONENT`.
    const LOW: Self;
    const EXPONENT: i32;

    /// The exponent of a number above 0, subnormal or not.
    fn exponent(self) -> i32;

    /// A tap as sums in this type have it.
    fn tap(tap: f64) -> f64;
}

impl Real for f32 {
    const PRECISION: Precision = Precision::Single;
    const EPSILON: f64 = f32::EPSILON as f64;
    const TINY: Self = f32::from_bits((127 - 80) << 23);
    const LOW: Self = f32::from_bits((127 - 40) << 23);
    const EXPONENT: i32 = 100;

    fn exponent(self) -> i32 {
        f64::from(self).log2().floor() as i32
    }

    fn tap(tap: f64) -> f64 {
        f64::from(tap as f32)
    }
}

impl Real for f64 {
    const PRECISION: Precision = Precision::Double;
    const EPSILON: f64 = f64::EPSILON;
    const TINY: Self = f64::from_bits((1023 - 800) << 52);
    const LOW: Self = f64::from_bits((1023 - 700) << 52);
    const EXPONENT: i32 = 1000;

    fn exponent(self) -> i32 {
        self.log2().floor() as i32
    }

    fn tap(tap: f64) -> f64 {
        tap
    }
}
