//! From an integer sum to a byte: the quotient by a divisor, rounded with ties to even, saturated.
//!
//! This is the definition of a byte (`host/src/filter/whole.rs`), for sums of up to 127 bits.

/// The divisor of a sum: a number or a power of two.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Divisor {
    /// The number, or 0: then the divisor is 2 to the power of `shift`.
    number: u64,
    /// `1 / number`, rounded to f32.
    inverse: f32,
    /// The exponent, which may be negative.
    shift: i32,
}

impl Divisor {
    /// A divisor of at most 2^61. Sums are below 2^62.
    pub fn number(number: u64) -> Self {
        Self { number, inverse: 1.0 / number as f32, shift: 0 }
    }

    /// The divisor 2 to the power of `shift`.
    pub const fn power_of_two(shift: i32) -> Self {
        Self { number: 0, inverse: 0.0, shift }
    }

    /// The divisor that [`Divisor::to_words`] describes.
    #[inline(always)]
    pub const fn of_words([low, high, inverse, shift]: [u32; 4]) -> Self {
        let number = (high as u64) << 32 | low as u64;
        Self { number, inverse: f32::from_bits(inverse), shift: shift as i32 }
    }

    /// Its fields as words.
    pub const fn to_words(&self) -> [u32; 4] {
        let (low, high) = (self.number as u32, (self.number >> 32) as u32);
        [low, high, self.inverse.to_bits(), self.shift as u32]
    }

    /// The byte of the sum `high * 2^64 + low`, as the lowest bits of a word.
    #[inline(always)]
    pub fn byte(&self, high: i64, low: u64) -> u32 {
        if high < 0 || (high as u64 | low) == 0 {
            0
        } else if self.number != 0 {
            self.mean(low as i64)
        } else if self.shift <= 0 {
            let is_small = high == 0 && low < 256 && self.shift > -8;
            if is_small { least(low << (-self.shift & 7)) } else { 255 }
        } else {
            // `halves` has one fraction bit; `rest` is not 0 if any lower bit is set.
            let cut = self.shift - 1;
            let (halves, rest) = if cut >= 127 {
                (0, 1)
            } else if cut >= 64 {
                let (halves, back) =
                    (high as u64 >> (cut & 63), (high as u64 >> (cut & 63)) << (cut & 63));
                (halves, (high as u64 ^ back) | low)
            } else {
                let above = if cut == 0 { 0 } else { (high as u64) << ((64 - cut) & 63) };
                let halves = if high as u64 >> cut == 0 { above | low >> cut } else { u64::MAX };
                (halves, low ^ (low >> cut) << cut)
            };
            let whole = halves >> 1;
            let is_up = halves & 1 != 0 && (rest != 0 || whole & 1 != 0);
            least(whole + is_up as u64)
        }
    }

    /// The quotient of a sum, rounded down, from 0 to `most`.
    #[inline(always)]
    pub fn floor(&self, sum: i128, most: i32) -> i32 {
        if self.number != 0 {
            return floor(sum, self.number as i128, most);
        }
        let sum = sum.max(0);
        if self.shift > 0 {
            let whole = if self.shift < 127 { sum >> self.shift } else { 0 };
            return if whole < most as i128 { whole as i32 } else { most };
        }
        let up = (-self.shift).min(31);
        if sum > (most >> up) as i128 { most } else { (sum as i32) << up }
    }

    /// The byte of a sum that is `parts` times too great, from 1 to 2^16 times. The sum is below
    /// 2^100 in magnitude.
    #[inline(always)]
    pub fn byte_of_parts(&self, sum: i128, parts: i128) -> u32 {
        if self.number != 0 {
            ratio(sum, parts * self.number as i128)
        } else if self.shift > 100 {
            0
        } else if self.shift > 0 {
            ratio(sum, parts << self.shift)
        } else {
            // A sum of 2^24 parts saturates, whatever the divisor.
            ratio(sum.min(1 << 24) << (-self.shift).min(24), parts)
        }
    }

    /// The byte of a positive sum below 2^62, divided by `number`.
    ///
    /// Three roundings to f32 make the estimate wrong by `256 * 3 * 2^-24` at most. So `whole` is
    /// the integer part of the quotient, or the next integer if the quotient is just below it, or
    /// the previous one if the quotient is just above its own integer part. In each case the
    /// remainder is less than half of the number, unless the next integer is nearer.
    #[inline(always)]
    fn mean(&self, sum: i64) -> u32 {
        let near = sum as f32 * self.inverse;
        let whole = if near < 256.0 { near as i32 } else { 256 };
        let (twice, number) = (2 * (sum - whole as i64 * self.number as i64), self.number as i64);
        let is_up = twice > number || twice == number && whole & 1 != 0;
        least((whole + is_up as i32) as u64)
    }
}

/// The byte nearest to a quotient, ties to even, saturated; 0 if the divisor is 0. Both numbers are
/// below 2^117 in magnitude.
#[inline(always)]
pub fn ratio(sum: i128, number: i128) -> u32 {
    let (sum, number) = if number < 0 { (-sum, -number) } else { (sum, number) };
    if sum <= 0 || number == 0 {
        return 0;
    }
    // As in `Divisor::mean`, with two more roundings.
    let near = rounded(sum) / rounded(number);
    let whole = if near < 256.0 { near as i32 } else { 256 };
    let (twice, middle) = (2 * sum, (2 * whole + 1) as i128 * number);
    let is_up = twice > middle || twice == middle && whole & 1 != 0;
    least((whole + is_up as i32) as u64)
}

/// A quotient, rounded down, from 0 to `most`, a power of two; 0 if the divisor is not positive.
/// `most` times the divisor is below 2^127.
#[inline(always)]
pub fn floor(sum: i128, number: i128, most: i32) -> i32 {
    let (mut whole, mut bit) = (0, most);
    while bit > 0 {
        let next = whole + bit;
        if next <= most && number > 0 && next as i128 * number <= sum {
            whole = next;
        }
        bit >>= 1;
    }
    whole
}

/// The nearest f32 of a number that is not negative, except for rounding errors.
#[inline(always)]
fn rounded(number: i128) -> f32 {
    const UPPER: f32 = 18_446_744_073_709_551_616.0;
    (number >> 64) as i64 as f32 * UPPER + number as u64 as f32
}

/// A number as a byte, saturated.
#[inline(always)]
fn least(number: u64) -> u32 {
    if number < 255 { number as u32 } else { 255 }
}
