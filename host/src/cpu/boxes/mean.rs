//! Means of equal taps as exact quotients.

use crate::filter::whole::Whole;
use crate::simd::{Float, Words};
use crate::window::Window;

/// The least pixels and taps for which adding integers is faster.
const PIXELS: usize = 1 << 15;
const TAPS: usize = 13;

/// The most taps: a sum of bytes stays below 2^32.
const MAX_TAPS: usize = 1 << 24;

/// The most taps, and columns of them, that are added up in 16 bits: a sum of bytes stays below
/// 2^16.
const FEW_TAPS: usize = 257;
const FEW_COLUMNS: usize = 16;

/// Whether adding integers is faster, and their sums have room.
pub(in crate::cpu) fn counts(cols: usize, rows: usize, pixels: usize) -> bool {
    (is_few(cols, rows) || cols.max(rows) >= TAPS) && cols * rows <= MAX_TAPS && pixels >= PIXELS
}

/// Whether a window's sums have room in 16 bits, and are worth it.
pub(super) fn is_few(cols: usize, rows: usize) -> bool {
    (2..=FEW_COLUMNS).contains(&cols) && rows > 1 && cols * rows <= FEW_TAPS
}

/// A mean: the sum of pixels times one numerator, over a divisor.
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu) struct Mean {
    pub(super) numerator: i64,
    pub(super) divisor: u64,
}

impl Mean {
    /// The greatest divisor: see [`Mean::byte`].
    pub(super) const LIMIT: u64 = 1 << 28;

    /// Of taps that are all the same part of a whole number; `None` for others.
    pub(in crate::cpu) fn new(whole: &Whole) -> Option<Self> {
        let (numerator, divisor) = whole.mean()?;
        (divisor <= Self::LIMIT).then_some(Self { numerator, divisor })
    }

    /// Whether it is computed in 16 bits under this window.
    pub(in crate::cpu) fn is_of_few(self, window: &Window) -> bool {
        is_few(window.cols, window.rows) && self.of_few(window.cols * window.rows).is_some()
    }

    pub(super) fn of_few(self, count: usize) -> Option<MeanOfFew> {
        (self.numerator == 1 && self.divisor == count as u64)
            .then(|| MeanOfFew::new(count))
            .flatten()
    }

    pub(super) fn factor(self) -> f64 {
        self.numerator as f64 / self.divisor as f64
    }

    /// The byte of a sum of pixels: their mean, rounded half to even.
    ///
    /// The product with the factor is off by less than 2^-43 up to 256. A mean that is no tie lies
    /// at least `1 / (2 * LIMIT)`, 2^-29, from one. So to the nearest multiple of 2^-30, a tie is
    /// one, and nothing else is.
    #[inline(always)]
    pub(super) fn byte(sum: u32, factor: f64) -> u8 {
        /// Numbers as great as that are multiples of 2^-30.
        const GRID: f64 = 1.5 * (1 << 22) as f64;
        ((f64::from(sum) * factor + GRID) - GRID).byte()
    }
}

/// A mean of a few pixels in whole numbers of 16 bits.
#[derive(Clone, Copy)]
pub(super) struct MeanOfFew {
    /// The pixels.
    pub(super) count: u16,
    /// 2^16 over that, rounded down.
    reciprocal: u16,
}

impl MeanOfFew {
    /// Of so many pixels; `None` if 16 bits have no room.
    pub(super) fn new(count: usize) -> Option<Self> {
        let count = u16::try_from(count).ok().filter(|count| (2..=256).contains(count))?;
        Some(Self { count, reciprocal: (65536 / u32::from(count)) as u16 })
    }

    /// Half of the pixels, rounded down. With it, a sum still has room, and its quotient is the
    /// mean, a half rounded up.
    pub(super) fn half(self) -> u16 {
        self.count / 2
    }

    /// The quotients of sums to which [`MeanOfFew::half`] has been added. `IS_EVEN` says that the
    /// count is: then a remainder of 0 is a tie, which goes to the even number.
    ///
    /// # Safety
    /// As for [`Words`].
    #[inline(always)]
    pub(super) unsafe fn divide<X: Words, const IS_EVEN: bool>(self, numbers: X) -> X {
        // SAFETY: the caller's promise.
        unsafe {
            let (count, one) = (X::splat(self.count), X::splat(1));
            // The product with the reciprocal is less than 1 below the true quotient, so this is
            // that, rounded down, or one less.
            let low = numbers.high_product(X::splat(self.reciprocal));
            let rest = numbers.subtract(low.low_product(count));
            // Below zero it wraps around to more than 2^15.
            let less = rest.subtract(count);
            let is_right = less.high_product(X::splat(2));
            let quotient = low.add(one).subtract(is_right);
            if !IS_EVEN {
                return quotient;
            }
            let half = quotient.high_product(X::splat(1 << 15));
            let is_odd = quotient.subtract(half.add(half));
            quotient.subtract(is_odd.low_product(one.subtract(rest.least(less).least(one))))
        }
    }
}
