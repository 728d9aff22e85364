//! Transfer functions in f32: parabolas for parts of the axis.
//!
//! A part is 1/64 of the numbers between two powers of two, or less where the function bends more.
//! A number's bits give its part. Each parabola meets the function at three Chebyshev nodes.

use super::transfer::Transfer;

/// Parts cover numbers from 2 to the first power to 2 to the second.
const POWERS: (i32, i32) = (-40, 17);

/// Parts between two powers of two: 2 to the first power, or up to the second.
const BITS: (u32, u32) = (6, 9);

/// A transfer function and its inverse.
#[derive(Debug)]
pub(crate) struct Both {
    pub(crate) decode: Smooth,
    pub(crate) encode: Smooth,
}

impl Both {
    pub(super) fn new(transfer: &Transfer) -> Self {
        match transfer.parameters() {
            Some(parametric) => {
                let kink = parametric.d;
                let (slope, start) = (parametric.c, parametric.f);
                let light = parametric.light_at_kink();
                let (inverse, back) =
                    if slope > 0.0 { (1.0 / slope, -start / slope) } else { (0.0, kink) };
                Self {
                    decode: Smooth::new(&|x| parametric.power(x), (kink, slope, start)),
                    encode: Smooth::new(&|y| parametric.root(y), (light, inverse, back)),
                }
            }
            None => Self {
                decode: Smooth::new(&|x| transfer.decode(x), (0.0, 0.0, 0.0)),
                encode: Smooth::new(&|y| transfer.encode(y), (0.0, 0.0, 0.0)),
            },
        }
    }
}

/// A function of a number's magnitude, with the number's sign.
#[derive(Debug)]
pub(crate) struct Smooth {
    /// Below, the function is `slope x + start`.
    kink: f32,
    slope: f32,
    start: f32,
    /// Bits of a number below those that name its part, and the first part's name.
    shift: u32,
    first: i32,
    parts: Vec<Part>,
}

/// `value + t (slope + t bend)` for `t = x - middle`.
#[derive(Clone, Copy, Debug)]
struct Part {
    middle: f32,
    value: f32,
    slope: f32,
    bend: f32,
}

impl Smooth {
    fn new(function: &dyn Fn(f64) -> f64, (kink, slope, start): (f64, f64, f64)) -> Self {
        let least = 2f64.powi(POWERS.0);
        let (kink, slope, start) =
            if kink > least { (kink, slope, start) } else { (least, function(least) / least, 0.0) };
        let of_bits = |bits: u32| {
            let shift = f32::MANTISSA_DIGITS - 1 - bits;
            let [first, end] =
                [POWERS.0, POWERS.1].map(|power| 2f32.powi(power).to_bits() >> shift);
            let number = |part: u32| f64::from(f32::from_bits(part << shift));
            let parts =
                (first..end).map(|part| Part::new(function, number(part), number(part + 1)));
            Self {
                kink: kink as f32,
                slope: slope as f32,
                start: start as f32,
                shift,
                first: first as i32,
                parts: parts.collect(),
            }
        };
        let is_close = |smooth: &Self| {
            // From the kink, or from 2^-12, to white; functions may end there.
            let parts = smooth.parts.iter().map(|part| f64::from(part.middle));
            let mut places = parts.flat_map(|x| [0.9995 * x, 1.0005 * x]);
            places.all(|x| {
                let value = function(f64::from(x as f32));
                let is_beyond = x < f64::from(smooth.kink).max(2f64.powi(-12)) || x > 1.0;
                is_beyond || (f64::from(smooth.of(x as f32)) - value).abs() <= 3e-7 * value.abs()
            })
        };
        let mut bits = BITS.0;
        let mut smooth = of_bits(bits);
        while bits < BITS.1 && !is_close(&smooth) {
            bits += 1;
            smooth = of_bits(bits);
        }
        smooth
    }

    /// Middle, value, slope and bend of each part.
    #[cfg(feature = "gpu")]
    pub(crate) fn numbers(&self) -> impl Iterator<Item = [f32; 4]> {
        self.parts.iter().map(|part| [part.middle, part.value, part.slope, part.bend])
    }

    /// Bits of a number below those that name its part, the first part's name, and the end of the
    /// last part.
    #[cfg(feature = "gpu")]
    pub(crate) fn parts(&self) -> (u32, i32, f32) {
        (self.shift, self.first, 2f32.powi(POWERS.1))
    }

    /// Up to the first number, the function is `slope x + start`: that number, slope and start.
    #[cfg(feature = "gpu")]
    pub(crate) fn line(&self) -> (f32, f32, f32) {
        (self.kink, self.slope, self.start)
    }

    /// The function of a number. NaN and infinities are returned as they are, and what is beyond
    /// the last part is taken as its end.
    #[inline(always)]
    pub(crate) fn of(&self, number: f32) -> f32 {
        let size = number.abs();
        let part = ((size.to_bits() >> self.shift) as i32 - self.first).max(0) as usize;
        let Part { middle, value, slope, bend } = self.parts[part.min(self.parts.len() - 1)];
        let t = size.min(2f32.powi(POWERS.1)) - middle;
        let result = if size < self.kink {
            self.slope.mul_add(size, self.start)
        } else {
            bend.mul_add(t, slope).mul_add(t, value)
        };
        if size.is_finite() { result.copysign(number) } else { number }
    }
}

impl Part {
    /// The parabola that meets a function at three Chebyshev nodes.
    fn new(function: &dyn Fn(f64) -> f64, from: f64, to: f64) -> Self {
        // cos(30 degrees).
        let (middle, apart) = (f64::midpoint(from, to), 0.75f64.sqrt() * (to - from) / 2.0);
        let middle = f64::from(middle as f32);
        let [low, value, high] = [middle - apart, middle, middle + apart].map(function);
        Self {
            middle: middle as f32,
            value: value as f32,
            slope: ((high - low) / (2.0 * apart)) as f32,
            bend: ((high + low - 2.0 * value) / (2.0 * apart * apart)) as f32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The greatest error of both functions, relative to the value, from `least` to `greatest`.
    fn errors(transfer: &Transfer, least: f32, greatest: f32) -> [f64; 2] {
        let both = Both::new(transfer);
        let exact: [&dyn Fn(f64) -> f64; 2] = [&|x| transfer.decode(x), &|x| transfer.encode(x)];
        let mut worst = [0.0f64; 2];
        let mut x = least;
        while x <= greatest {
            for ((worst, smooth), exact) in
                worst.iter_mut().zip([&both.decode, &both.encode]).zip(exact)
            {
                let value = exact(x.into());
                *worst = worst.max((f64::from(smooth.of(x)) - value).abs() / value.abs());
                assert_eq!(smooth.of(-x), -smooth.of(x));
            }
            x *= 1.000_37;
        }
        worst
    }

    #[test]
    fn functions_are_met_within_the_error_that_is_stated() {
        for transfer in [Transfer::srgb(), Transfer::bt709()] {
            // Below, both halves of the encoder are linear.
            assert!(errors(&transfer, 2f32.powi(-40), 1.3e5).iter().all(|&error| error < 4e-7));
        }
        for gamma in [1.0, 1.8, 2.2, 2.6] {
            let [decode, encode] = errors(&Transfer::gamma(gamma).unwrap(), 2f32.powi(-40), 1.3e5);
            assert!(decode.max(encode) < 4e-7, "{gamma}: {decode:e}, {encode:e}");
        }
        for transfer in [Transfer::pq(), Transfer::hlg()] {
            let [decode, encode] = errors(&transfer, 2f32.powi(-12), 1.0);
            assert!(decode.max(encode) < 1e-6, "{transfer:?}: {decode:e}, {encode:e}");
        }
    }

    #[test]
    fn what_is_no_light_stays() {
        let both = Both::new(&Transfer::srgb());
        for smooth in [&both.decode, &both.encode] {
            assert!(smooth.of(f32::NAN).is_nan());
            assert_eq!(smooth.of(f32::NEG_INFINITY), f32::NEG_INFINITY);
            assert_eq!(smooth.of(0.0), 0.0);
            assert!(smooth.of(f32::MAX).is_finite());
        }
    }
}
