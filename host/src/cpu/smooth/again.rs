//! Results that sums in 16 bits leave uncertain, summed again in 64 bits.

use super::numbers::{BITS, CHANNELS, HALF_BITS, REACH, ROWS, Smooth, TAPS};
use crate::simd::{Lanes, Vectorized};

/// For each distance from the middle row, the upper halves of its taps and the lower ones, with
/// zeros in between.
pub(super) type Spread = [[[i16; 16]; 2]; TAPS];

/// Stores the uncertain results that sums in 64 bits decide; the others are `left`.
pub(super) struct Again<'a> {
    pub(super) smooth: &'a Smooth,
    /// The rows under the window.
    pub(super) under: &'a [&'a [u8]; ROWS],
    pub(super) channels: usize,
    pub(super) spread: Option<&'a Spread>,
    pub(super) uncertain: &'a [u32],
    pub(super) out: &'a mut [u8],
    pub(super) left: &'a mut Vec<usize>,
}

impl Vectorized for Again<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        match (self.smooth.reach, self.channels) {
            (1, 1) => self.sum_each::<L, 1, 1>(),
            (1, 2) => self.sum_each::<L, 1, 2>(),
            (1, 3) => self.sum_each::<L, 1, 3>(),
            (1, _) => self.sum_each::<L, 1, CHANNELS>(),
            (_, 1) => self.sum_each::<L, REACH, 1>(),
            (_, 2) => self.sum_each::<L, REACH, 2>(),
            (_, 3) => self.sum_each::<L, REACH, 3>(),
            _ => self.sum_each::<L, REACH, CHANNELS>(),
        }
    }
}

impl Again<'_> {
    #[inline(always)]
    fn sum_each<L: Lanes, const K: usize, const C: usize>(self) {
        let Self { smooth, under, channels, spread, uncertain, out, left } = self;
        assert!(C == channels && K == smooth.reach);
        let len = under[..=2 * K].iter().map(|row| row.len()).min().unwrap_or(0);
        for &place in uncertain {
            let at = place as usize;
            let first = at.wrapping_sub(K * C);
            let halves = match spread {
                Some(spread) if at >= K * C && first + 16 <= len => {
                    let mut beside = [[under[K].as_ptr(); 2]; K];
                    // SAFETY: this is in `Vectorized::run`, and each row has 16 bytes from the
                    // first one on.
                    unsafe {
                        for k in 0..K {
                            beside[k] = [
                                under[K - 1 - k].as_ptr().add(first),
                                under[K + 1 + k].as_ptr().add(first),
                            ];
                        }
                        L::weigh(under[K].as_ptr().add(first), &beside, spread)
                    }
                }
                _ => None,
            };
            let sum = match halves {
                Some([upper, lower]) => Some((u64::from(upper) << HALF_BITS) + u64::from(lower)),
                None => smooth.fine_sum::<K, C>(under, at),
            };
            match sum.and_then(|sum| smooth.rounded(sum)) {
                Some(result) => out[at] = result,
                None => left.push(at),
            }
        }
    }
}

impl Smooth {
    /// The halves of the taps, each as far from the next as the same channel of neighbouring
    /// pixels; `None` if 16 bytes do not hold a row.
    pub(super) fn spread(&self, channels: usize) -> Option<Spread> {
        let mut spread = [[[0; 16]; 2]; TAPS];
        for (halves, taps) in spread.iter_mut().zip(&self.fine) {
            for column in 0..=2 * self.reach {
                let tap = taps[column.abs_diff(self.reach)];
                let parts = [tap >> HALF_BITS, tap & ((1 << HALF_BITS) - 1)];
                for (half, part) in halves.iter_mut().zip(parts) {
                    // A tap is at most 1, so its upper half is at most 2^14.
                    *half.get_mut(column * channels)? = part as i16;
                }
            }
        }
        Some(spread)
    }

    /// The sum at an element, if its window lies in the rows.
    #[inline(always)]
    pub(super) fn fine_sum<const K: usize, const C: usize>(
        &self,
        under: &[&[u8]; ROWS],
        at: usize,
    ) -> Option<u64> {
        let first = at.checked_sub(K * C)?;
        let len = under[K].len();
        if at + K * C >= len {
            return None;
        }
        let mut sum = 0;
        for k in 0..=K {
            let above = under[K - k].get(first..first + 2 * K * C + 1)?;
            let below = under[K + k].get(first..first + 2 * K * C + 1)?;
            let pixels = |at: usize| match k {
                0 => u32::from(above[at]),
                _ => u32::from(above[at]) + u32::from(below[at]),
            };
            sum += u64::from(pixels(K * C)) * self.fine[k][0];
            for side in 1..=K {
                sum +=
                    u64::from(pixels((K - side) * C) + pixels((K + side) * C)) * self.fine[k][side];
            }
        }
        Some(sum)
    }

    /// The byte nearest to a sum in 64 bits, if no error could change it.
    #[inline(always)]
    pub(super) fn rounded(&self, sum: u64) -> Option<u8> {
        const HALF: u64 = 1 << (BITS - 1);
        const REST: u64 = (1 << BITS) - 1;
        let shifted = sum + HALF;
        let byte = (shifted >> BITS).min(255) as u8;
        if shifted.wrapping_add(self.error) & REST > 2 * self.error {
            return Some(byte);
        }
        // Half to even, where the sum is exact.
        (self.error == 0).then_some(byte & !1)
    }
}
