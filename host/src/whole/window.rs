//! The taps of a window as whole numbers of one to three digits, for the tensor cores.

use super::GREATEST;
use crate::filter::{Fact, lowest_bit};
use crate::{Filter, Why};

/// What a problem's kernel depends on of its taps as whole numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Digits {
    /// Digits of a tap: 1 to 3.
    pub(crate) count: u32,
    /// The share of results that are uncertain if sums are spread evenly.
    pub(crate) share: f64,
}

/// Taps as multiples of a power of two, in balanced digits to the base 256.
#[derive(Clone, Debug)]
pub(crate) struct WindowDigits {
    /// Row by row: taps times 2 to the power of `bits`, rounded unless there are fewer than three
    /// digits.
    pub(crate) taps: Vec<i32>,
    pub(crate) bits: i32,
    pub(crate) digits: u32,
    /// With three digits, what the second one's sums begin with, and the distance from a half at
    /// which a sum is uncertain; in units of a joined sum, which lacks the lowest 8 bits.
    pub(crate) start: i32,
    pub(crate) near: i32,
}

/// The most taps: 128 * 255 times so many, and what is carried, is below 2^31.
const MAX_TAPS: usize = 65536;

/// The greatest tap in two digits: 127 in each.
const GREATEST_OF_TWO: f64 = 32_639.0;

/// The most bits behind the point: more would not be seen, as sums go up to 255.
const MAX_BITS: i32 = 30;

impl WindowDigits {
    /// The taps of a filter for bytes, or why they have no such form.
    pub(crate) fn new(filter: &Filter) -> Result<Self, Why> {
        let (cols, rows) = (filter.cols(), filter.rows());
        if cols.checked_mul(rows).is_none_or(|count| count > MAX_TAPS) {
            return Err(format!("{cols}x{rows} taps, the limit is {MAX_TAPS}").into());
        }
        let taps: Vec<f64> = (0..cols * rows).map(|i| filter.tap(i / cols, i % cols)).collect();
        let greatest = taps.iter().fold(0.0, |greatest: f64, tap| greatest.max(tap.abs()));
        Self::exact(&taps, greatest)
            .or_else(|| Self::rounded(&taps, greatest))
            .ok_or_else(|| format!("a tap of {greatest} is too large for u8 results").into())
    }

    /// Those that one or two digits hold as they are.
    fn exact(taps: &[f64], greatest: f64) -> Option<Self> {
        let bits = (-lowest_bit(taps)).max(0);
        if bits > MAX_BITS || greatest * 2f64.powi(bits) > GREATEST_OF_TWO {
            return None;
        }
        let taps: Vec<i32> = taps.iter().map(|tap| (tap * 2f64.powi(bits)) as i32).collect();
        let sum: i64 = taps.iter().map(|&tap| i64::from(tap.abs())).sum();
        if 255 * sum + (1 << bits) > i64::from(i32::MAX) {
            return None;
        }
        let digits = if taps.iter().all(|tap| (-128..128).contains(tap)) { 1 } else { 2 };
        Some(Self { taps, bits, digits, start: 0, near: 0 })
    }

    /// Any others, with as many bits as three digits and the joined sum have room for.
    fn rounded(exact: &[f64], greatest: f64) -> Option<Self> {
        // A mean's taps are rounded to f64.
        let in_f64 = 255.0 * f64::EPSILON * exact.iter().map(|tap| tap.abs()).sum::<f64>();
        (9..=MAX_BITS).rev().find_map(|bits| {
            let unit = 2f64.powi(bits);
            if (greatest * unit).round() > GREATEST {
                return None;
            }
            let taps: Vec<i32> = exact.iter().map(|tap| (tap * unit).round() as i32).collect();
            let loss =
                || exact.iter().zip(&taps).map(|(exact, &tap)| exact * unit - f64::from(tap));
            // Bytes are 127.5 and up to as much more or less: the sum for all 127.5 is known, so
            // half of the error remains.
            let centre = 127.5 * loss().sum::<f64>() / 256.0;
            let error = 127.5 * loss().map(f64::abs).sum::<f64>() * (1.0 + 1e-9) / 256.0;
            // A joined sum lacks 8 bits: half of what they can be is added, and the other half is
            // an error. So is half a unit of what is added.
            let error = 0.5 + 0.5 + error + in_f64 * unit / 256.0;
            let half = 1i64 << (bits - 9);
            if error >= half as f64 / 2.0 {
                return None;
            }
            let near = error as i64 + 1;
            let start = half + near + (centre + 0.5).round() as i64;
            let sum: i64 = taps.iter().map(|&tap| i64::from(tap.abs())).sum();
            let fits = 255 * sum / 256 + start.abs() + 2 <= i64::from(i32::MAX);
            fits.then_some(Self { taps, bits, digits: 3, start: start as i32, near: near as i32 })
        })
    }

    /// What a problem's kernel depends on.
    pub(crate) fn digits(&self) -> Digits {
        Digits { count: self.digits, share: self.share() }
    }

    /// The share of results that are uncertain if sums are spread evenly.
    pub(crate) fn share(&self) -> f64 {
        if self.is_exact() { 0.0 } else { 2.0 * f64::from(self.near) / 2f64.powi(self.bits - 8) }
    }

    /// Whether no result is uncertain.
    pub(crate) fn is_exact(&self) -> bool {
        self.digits < 3
    }
}

impl Fact for Option<WindowDigits> {
    /// `None` if the taps have no such form.
    fn of(filter: &Filter) -> Self {
        WindowDigits::new(filter).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(filter: &Filter) -> WindowDigits {
        WindowDigits::new(filter).unwrap()
    }

    #[test]
    fn digits_make_up_the_taps() {
        let taps = [0.5, -0.25, 1.0 / 3.0, -0.000_123, 1.0, 0.0];
        let dense = whole(&Filter::from_taps_f64(3, 2, &taps).unwrap());
        assert_eq!((dense.digits, dense.bits), (3, 22));
        for (i, tap) in taps.into_iter().enumerate() {
            let sum: i64 = (0..3)
                .map(|digit| i64::from(crate::whole::digit(dense.taps[i], digit)) << (8 * digit))
                .sum();
            assert_eq!(sum, (tap * f64::from(1 << 22)).round() as i64);
        }
        let cases: [(&str, u32, i32); 6] = [
            ("taps:1 2 1", 1, 0),
            ("taps:1 4 6 4 1/4", 1, 2),
            ("taps:0.5 0.25", 1, 2),
            ("taps:255 -1", 2, 0),
            ("taps:32639 -32639", 2, 0),
            ("taps:0 0", 1, 0),
        ];
        for (text, digits, bits) in cases {
            let found = whole(&text.parse().unwrap());
            assert_eq!((found.digits, found.bits), (digits, bits), "{text}");
            assert_eq!(found.is_exact(), digits < 3);
        }
        let gaussian = whole(&Filter::gaussian(2.5).unwrap());
        assert!(gaussian.share() > 0.0 && gaussian.share() < 2e-4, "{gaussian:?}");
    }

    #[test]
    fn taps_that_have_no_such_form() {
        for text in ["taps:20000.5 0.3", "taps:32639 -32640", "taps:1e9", "box:cols=65537,rows=1"] {
            assert!(WindowDigits::new(&text.parse().unwrap()).is_err(), "{text}");
        }
    }
}
