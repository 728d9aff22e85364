//! Stored pixel types for the tests, with conversions of their own, random values, and a poison.

use apron::{Pixel, f16};
use fastrand::Rng;

/// One of the four stored types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// 8-bit.
    U8,
    /// 16-bit.
    U16,
    /// Half precision.
    F16,
    /// Single precision.
    F32,
}

impl Kind {
    /// All four.
    pub const ALL: [Self; 4] = [Self::U8, Self::U16, Self::F16, Self::F32];

    /// Whether values are rounded to whole numbers.
    pub fn is_integer(self) -> bool {
        matches!(self, Self::U8 | Self::U16)
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::F16 => "f16",
            Self::F32 => "f32",
        })
    }
}

/// How the pixels of a problem are generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Data {
    /// Integers over their whole range, floats of magnitude up to 1000.
    Random,
    /// The least and the greatest value only (floats: 0 and 1000): sums that saturate.
    Extremes,
    /// Floats with NaN, infinities, negative zero, subnormal and huge values among them.
    Wild,
    /// Floats so small that products and sums are subnormal.
    Tiny,
    /// Random floats, and an infinity at the end of the last row.
    Lone,
    /// Random floats, with a few NaN and infinities among them.
    Holes,
    /// Random floats, with a few infinities among them.
    Infinite,
    /// As `Random`, but each row repeats the row above. At two fifths of the height the right half
    /// changes. Rows below two thirds are of `Extremes`.
    Repeated,
    /// One byte everywhere.
    Flat(u8),
    /// Two bytes, each as often as the other.
    Two(u8, u8),
    /// Black and white squares with sides of this many pixels: under a wide blur all results are
    /// near 127.5.
    Checker(u8),
    /// Bytes that grow along both axes.
    Gradient,
    /// A gradient in black and white, by Bayer's matrix of 4x4.
    Dither,
}

impl Data {
    /// The byte at a place, for data that depend on the place alone.
    pub fn placed(self, (x, y): (usize, usize), channel: usize) -> Option<u8> {
        const BAYER: [u8; 16] = [0, 8, 2, 10, 12, 4, 14, 6, 3, 11, 1, 9, 15, 7, 13, 5];
        let gradient = (x + y + 85 * channel) as u8;
        Some(match self {
            Self::Flat(byte) => byte,
            Self::Checker(size) => {
                255 * ((x / usize::from(size) + y / usize::from(size) + channel) % 2) as u8
            }
            Self::Gradient => gradient,
            Self::Dither => 255 * u8::from(gradient / 16 > BAYER[4 * (y % 4) + x % 4]),
            _ => return None,
        })
    }
}

/// A stored type under test. Nothing here calls the product's conversions.
pub trait Sample: Pixel {
    /// Which type it is.
    const KIND: Kind;
    /// The value of outputs and gaps before a run.
    const POISON: Self;
    /// A second poison of integer types, for pixels whose right value is the first one.
    const OTHER_POISON: Self;

    /// A random value of this type.
    fn random(rng: &mut Rng, data: Data) -> Self;
    /// The value, exactly.
    fn value(self) -> f64;
    /// The nearest stored value, ties to even; integers saturate, and hold 0 for NaN.
    fn nearest(value: f64) -> Self;
    /// The bits, widened.
    fn bits(self) -> u32;
    /// The value with these lowest bits.
    fn of_bits(bits: u32) -> Self;

    /// Whether two results have the same bits, or are both NaN with any payload. Poison equals
    /// nothing else.
    fn same(self, other: Self) -> bool {
        self.bits() == other.bits()
            || (self.value().is_nan() && other.value().is_nan() && !self.is_poison())
    }

    /// Whether this is the poison from before the run. Only floats can tell.
    fn is_poison(self) -> bool {
        !Self::KIND.is_integer() && self.bits() == Self::POISON.bits()
    }

    /// The poison for a pixel whose right value is `expected`.
    fn poison_for(expected: Self) -> Self {
        if expected.bits() == Self::POISON.bits() { Self::OTHER_POISON } else { Self::POISON }
    }
}

impl Sample for u8 {
    const KIND: Kind = Kind::U8;
    const POISON: Self = 0xA5;
    const OTHER_POISON: Self = 0x5A;

    fn random(rng: &mut Rng, data: Data) -> Self {
        match data {
            Data::Extremes => rng.choice([0, Self::MAX]).unwrap_or(0),
            Data::Two(one, other) => rng.choice([one, other]).unwrap_or(one),
            _ => rng.u8(..),
        }
    }
    fn value(self) -> f64 {
        self.into()
    }
    fn nearest(value: f64) -> Self {
        whole(value, Self::MAX.into()) as Self
    }
    fn bits(self) -> u32 {
        self.into()
    }
    fn of_bits(bits: u32) -> Self {
        bits as Self
    }
}

impl Sample for u16 {
    const KIND: Kind = Kind::U16;
    const POISON: Self = 0xA5A5;
    const OTHER_POISON: Self = 0x5A5A;

    fn random(rng: &mut Rng, data: Data) -> Self {
        if data == Data::Extremes { rng.choice([0, Self::MAX]).unwrap_or(0) } else { rng.u16(..) }
    }
    fn value(self) -> f64 {
        self.into()
    }
    fn nearest(value: f64) -> Self {
        whole(value, Self::MAX.into()) as Self
    }
    fn bits(self) -> u32 {
        self.into()
    }
    fn of_bits(bits: u32) -> Self {
        bits as Self
    }
}

impl Sample for f16 {
    const KIND: Kind = Kind::F16;
    const POISON: Self = Self::from_bits(0x7EA5);
    const OTHER_POISON: Self = Self::POISON;

    fn random(rng: &mut Rng, data: Data) -> Self {
        Self::nearest(float(rng, data, 16.0, 6.0e-8, 65504.0))
    }
    fn value(self) -> f64 {
        // Sign, exponent, fraction; no call to the crate that the product converts with.
        let bits = self.to_bits();
        let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
        let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
        sign * match exponent {
            0 => fraction * 2f64.powi(-24),
            31 if fraction == 0.0 => f64::INFINITY,
            31 => f64::NAN,
            _ => (fraction + 1024.0) * 2f64.powi(exponent - 25),
        }
    }
    fn nearest(value: f64) -> Self {
        let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
        let size = value.abs();
        Self::from_bits(if size.is_nan() {
            0x7E00
        } else if size >= 65520.0 {
            sign | 0x7C00
        } else {
            // Half precision's steps: 2^-24 up to 2^-14, then 1024 of them in each power of two.
            let exponent = (0..=29).rev().find(|&e| size >= 2f64.powi(e - 14)).unwrap_or(0);
            let steps = even(size / 2f64.powi(exponent - 24)) as u16;
            // `steps` carries the implicit leading bit into the exponent, also where rounding
            // reached the next power.
            sign | (((exponent as u16) << 10) + steps)
        })
    }
    fn bits(self) -> u32 {
        self.to_bits().into()
    }
    fn of_bits(bits: u32) -> Self {
        Self::from_bits(bits as u16)
    }
}

impl Sample for f32 {
    const KIND: Kind = Kind::F32;
    const POISON: Self = Self::from_bits(0x7FC5_A5A5);
    const OTHER_POISON: Self = Self::POISON;

    fn random(rng: &mut Rng, data: Data) -> Self {
        float(rng, data, 1000.0, 1e-42, f64::from(Self::MAX)) as Self
    }
    fn value(self) -> f64 {
        self.into()
    }
    fn nearest(value: f64) -> Self {
        value as Self
    }
    fn bits(self) -> u32 {
        self.to_bits()
    }
    fn of_bits(bits: u32) -> Self {
        Self::from_bits(bits)
    }
}

/// A whole number in `0..=max`, ties to even.
fn whole(value: f64, max: f64) -> f64 {
    // Written so that NaN ends as zero.
    if value > 0.0 { even(value.min(max)) } else { 0.0 }
}

/// The nearest whole number of a value that is not negative, ties to even.
fn even(value: f64) -> f64 {
    let below = value.floor();
    match value - below {
        rest if rest < 0.5 => below,
        rest if rest > 0.5 => below + 1.0,
        _ => below + below % 2.0,
    }
}

fn float(rng: &mut Rng, data: Data, scale: f64, tiny: f64, huge: f64) -> f64 {
    let unit = 2.0 * rng.f64() - 1.0;
    match data {
        Data::Two(one, other) => rng.choice([one, other]).unwrap_or(one).into(),
        Data::Extremes => rng.choice([0.0, scale]).unwrap_or(0.0),
        Data::Tiny => unit * tiny * 1000.0,
        Data::Wild => match rng.u8(0..24) {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => f64::NEG_INFINITY,
            3 => -0.0,
            4 => 0.0,
            5..7 => unit * tiny,
            7..9 => unit * huge,
            _ => unit * scale,
        },
        _ => unit * scale,
    }
}
