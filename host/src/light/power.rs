//! The byte of light by a power function, in vectors: about, but fast.
//!
//! The byte of a sum `s` is about `y = 255 encode(s)`, with `encode(s) = (root(s - e) - b) / a` by
//! a root that is computed as `2^(log2(x) / g)`. Both functions are polynomials that meet theirs at
//! Chebyshev nodes.

use super::transfer::Transfer;

/// `255 encode(s)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Power {
    /// Below, the function is `slope s + start`.
    kink: f32,
    slope: f32,
    start: f32,
    /// From there on it is `factor (s - less)^exponent - minus`.
    less: f32,
    exponent: f32,
    factor: f32,
    minus: f32,
    /// How far `y` is from a byte and a half at the threshold between two bytes, at most; and how
    /// far the function may be from rising.
    off: f32,
}

/// `log2(1 + z) / z` for `1 + z` from the root of 1/2 to that of 2, within 3.3e-7.
const LOG: [f32; 8] = [
    std::f32::consts::LOG2_E,
    -0.721_352_93,
    0.480_916_7,
    -0.360_225_18,
    0.287_288_88,
    -0.249_271_82,
    0.232_652_58,
    -0.142_759_73,
];

/// `2^f` for `f` from -1/2 to 1/2, within 8e-8.
const POWER: [f32; 6] = [
    1.000_000_1,
    std::f32::consts::LN_2,
    0.240_221_07,
    0.055_503_57,
    0.009_676_032,
    0.001_339_086_3,
];

/// `log2` and powers of 2 err by 1e-6 of `y + minus`, twice over.
const NOISE: f32 = 6e-4;

impl Power {
    /// Of a transfer function that is a power, and the thresholds between bytes.
    pub(super) fn new(transfer: &Transfer, thresholds: &[f32]) -> Option<Self> {
        let parameters = transfer.parameters()?;
        let (g, a, b) = (parameters.g, parameters.a, parameters.b);
        let (slope, start) = match parameters.c {
            0.0 => (0.0, 255.0 * parameters.d),
            c => (255.0 / c, -255.0 * parameters.f / c),
        };
        let mut power = Self {
            kink: parameters.light_at_kink() as f32,
            slope: slope as f32,
            start: start as f32,
            less: parameters.e as f32,
            exponent: (1.0 / g) as f32,
            factor: (255.0 / a) as f32,
            minus: (255.0 * b / a) as f32,
            off: 0.0,
        };
        let off =
            |(byte, &threshold): (usize, &f32)| (power.of(threshold) - byte as f32 - 0.5).abs();
        power.off = thresholds.iter().enumerate().map(off).fold(0.0, f32::max) + NOISE;
        Some(power)
    }

    /// About 255 times the stored value for light; between -1 and 256.
    #[inline(always)]
    #[expect(clippy::manual_clamp, reason = "NaN becomes a number, too")]
    pub(crate) fn of(&self, light: f32) -> f32 {
        let x = (light - self.less).max(1e-30);
        // `x = 2^exponent (1 + z)`, from bits.
        let half_root = std::f32::consts::FRAC_1_SQRT_2.to_bits();
        let exponent = (x.to_bits().wrapping_sub(half_root) as i32) >> 23;
        let z = f32::from_bits(x.to_bits().wrapping_sub((exponent << 23) as u32)) - 1.0;
        let log = polynomial(&LOG, z).mul_add(z, exponent as f32);
        // From -127 to 127, so that a power of 2 is a normal number.
        let whole = (log * self.exponent).clamp(-126.0, 126.0);
        // Adding it rounds to an integer, which the lowest bits then hold.
        const SHIFT: f32 = 12_582_912.0;
        let shifted = whole + SHIFT;
        let scale = f32::from_bits(shifted.to_bits().wrapping_add(127).wrapping_shl(23));
        let root = polynomial(&POWER, whole - (shifted - SHIFT)) * scale;
        let curve = self.factor.mul_add(root, -self.minus);
        let line = self.slope.mul_add(light, self.start);
        (if light < self.kink { line } else { curve }).max(-1.0).min(256.0)
    }

    /// How near to a byte and a half a result is uncertain, if sums are off by so much of
    /// themselves and by `absolute`.
    pub(crate) fn margin(&self, (relative, absolute): (f32, f32)) -> f32 {
        // `s y'(s)`, and `y'(1)` for functions that grow steeper, at most.
        let steepest = ((255.0 + self.minus) * self.exponent).max(255.0);
        let at_black = self.of(absolute) - self.of(0.0);
        self.off + 1.01 * (steepest * relative + at_black.max(steepest * absolute))
    }
}

/// The polynomial with these coefficients, the constant first.
#[inline(always)]
fn polynomial<const N: usize>(coefficients: &[f32; N], x: f32) -> f32 {
    let mut sum = coefficients[N - 1];
    for i in (0..N - 1).rev() {
        sum = sum.mul_add(x, coefficients[i]);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_near_the_function() {
        let gammas = [0.5, 1.0, 1.8, 2.2].map(|gamma| Transfer::gamma(gamma).unwrap());
        for transfer in gammas.into_iter().chain([Transfer::srgb(), Transfer::bt709()]) {
            let power = Power::new(&transfer, &[]).unwrap();
            let mut light = 1e-9f32;
            while light < 1.0 {
                let right = 255.0 * transfer.encode(light.into());
                assert!(
                    (f64::from(power.of(light)) - right).abs() < f64::from(NOISE) / 2.0,
                    "{transfer:?}: {light}"
                );
                light *= 1.000_1;
            }
            assert!(power.of(f32::NAN).is_finite() && power.of(f32::INFINITY) == 256.0);
        }
    }
}
