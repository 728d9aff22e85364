//! A transfer function over bytes: the light of each, in whole numbers, and the byte of a sum.

use super::power::Power;
use super::transfer::Transfer;

/// White, in whole numbers.
const WHITE: f64 = (1u32 << 24) as f64;

/// Numbers between two powers of two that have a place of their own: 2 to the first power, or up to
/// the second.
const BITS: (u32, u32) = (7, 12);

/// The light of bytes.
#[derive(Debug)]
pub(crate) struct Bytes {
    /// The light of each byte, over [`WHITE`]: exact.
    pub(crate) light: [f32; 256],
    /// Bits of a number below those that name its place, and the first place's name.
    shift: u32,
    first: i32,
    places: Vec<Place>,
    /// For functions that are powers.
    pub(crate) power: Option<Power>,
}

/// What is known of the numbers of a place: those from `threshold` on have another byte.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    threshold: f32,
    below: u8,
    above: u8,
}

impl Bytes {
    pub(super) fn new(transfer: &Transfer) -> Self {
        let whole = |value: f64| {
            let light = (WHITE * transfer.decode(value / 255.0)).round_ties_even();
            (light.clamp(0.0, WHITE) / WHITE) as f32
        };
        let light = std::array::from_fn(|byte| whole(byte as f64));
        // A threshold of 0 would make 1 of black.
        let least = (1.0 / WHITE) as f32;
        let thresholds: Vec<f32> =
            (0..255).map(|byte| whole(byte as f64 + 0.5).max(least)).collect();
        let name =
            |threshold: f32, bits: u32| threshold.to_bits() >> (f32::MANTISSA_DIGITS - 1 - bits);
        let are_apart = |bits: u32| {
            let is_apart =
                |pair: &[f32]| pair[0] == pair[1] || name(pair[0], bits) < name(pair[1], bits);
            thresholds.windows(2).all(is_apart)
        };
        let bits = (BITS.0..BITS.1).find(|&bits| are_apart(bits)).unwrap_or(BITS.1);
        // One place for all that is less, and one for all that is more.
        let first = name(thresholds[0], bits) - 1;
        let end = name(thresholds[254], bits) + 2;
        let place = |place: u32| {
            let at = thresholds.partition_point(|&threshold| name(threshold, bits) < place);
            let after = thresholds.partition_point(|&threshold| name(threshold, bits) <= place);
            let threshold = if after > at { thresholds[at] } else { f32::INFINITY };
            Place { threshold, below: at as u8, above: after as u8 }
        };
        Self {
            light,
            shift: f32::MANTISSA_DIGITS - 1 - bits,
            first: first as i32,
            places: (first..end).map(place).collect(),
            power: Power::new(transfer, &thresholds),
        }
    }

    /// For each place its threshold's bits, and its bytes, the one below in the lowest bits; bits
    /// of a number below those that name its place; and the first place's name.
    #[cfg(feature = "gpu")]
    pub(crate) fn thresholds(&self) -> (Vec<u32>, u32, i32) {
        let words = |place: &Place| {
            let bytes = u32::from(place.below) | u32::from(place.above) << 8;
            [place.threshold.to_bits(), bytes]
        };
        (self.places.iter().flat_map(words).collect(), self.shift, self.first)
    }

    /// The byte of a sum over [`WHITE`]; 0 for NaN.
    #[inline(always)]
    pub(crate) fn byte(&self, sum: f32) -> u8 {
        let Place { threshold, below, above } = self.places[self.place(sum) as usize];
        if sum >= threshold { above } else { below }
    }

    /// The number of a sum's place.
    #[inline(always)]
    fn place(&self, sum: f32) -> u32 {
        let name = (sum.max(0.0).to_bits() >> self.shift) as i32 - self.first;
        name.max(0).min(self.places.len() as i32 - 1) as u32
    }

    /// The byte of a sum that is off by at most `relative` of itself and `absolute`; `None` if it
    /// has several.
    pub(crate) fn certain(&self, sum: f32, (relative, absolute): (f32, f32)) -> Option<u8> {
        let byte = self.byte((1.0 - relative) * sum - absolute);
        let is_one = self.byte((1.0 + relative) * sum + absolute) == byte;
        (is_one && sum.is_finite()).then_some(byte)
    }

    /// The byte of a sum in whole numbers, rounded down.
    pub(crate) fn of_whole(&self, sum: i128) -> u8 {
        self.byte((sum.clamp(0, WHITE as i128) as f64 / WHITE) as f32)
    }

    /// The light of a byte, in whole numbers.
    pub(crate) fn whole(&self, byte: u8) -> i64 {
        (f64::from(self.light[usize::from(byte)]) * WHITE) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Transfer> {
        let flat: Vec<f64> = (0..64).map(|i| (f64::from(i) / 40.0).min(1.0)).collect();
        let mut all = vec![Transfer::srgb(), Transfer::bt709(), Transfer::pq(), Transfer::hlg()];
        all.extend([0.1, 0.5, 1.0, 1.8, 2.2, 10.0].map(|gamma| Transfer::gamma(gamma).unwrap()));
        all.push(Transfer::table(&flat).unwrap());
        all
    }

    /// Every byte that has a light of its own is found again from it.
    #[test]
    fn bytes_are_found_again() {
        for transfer in all() {
            let bytes = Bytes::new(&transfer);
            for byte in 0..=255u8 {
                let light = bytes.light[usize::from(byte)];
                let beside = [byte.saturating_sub(1), byte.saturating_add(1)];
                let is_alone = beside.iter().all(|&other| {
                    other == byte
                        || (bytes.light[usize::from(other)] - light).abs() > 1e-3 * light + 2.4e-7
                });
                if is_alone {
                    assert_eq!(bytes.byte(light), byte, "{transfer:?}");
                    assert_eq!(bytes.of_whole(bytes.whole(byte).into()), byte, "{transfer:?}");
                }
            }
        }
    }

    /// A byte is the number of thresholds that a sum reaches.
    #[test]
    fn a_byte_counts_thresholds() {
        let transfer = Transfer::srgb();
        let bytes = Bytes::new(&transfer);
        let thresholds: Vec<f64> = (0..255)
            .map(|k| (WHITE * transfer.decode((f64::from(k) + 0.5) / 255.0)).round_ties_even())
            .collect();
        let near = thresholds.iter().flat_map(|&t| [t - 1.0, t - 0.5, t, t + 0.5, t + 1.0]);
        let spread = (0..4096).map(|i| f64::from(i) * 4096.0 + f64::from(i % 7));
        for sum in near.chain(spread).chain([0.0, WHITE, 1.5 * WHITE, -5.0]) {
            let right =
                |sum: f64| thresholds.iter().filter(|&&threshold| threshold <= sum).count() as u8;
            let in_f32 = (sum / WHITE) as f32;
            assert_eq!(bytes.byte(in_f32), right(WHITE * f64::from(in_f32)), "{sum}");
            assert_eq!(bytes.of_whole(sum.floor() as i128), right(sum), "{sum}");
        }
        assert_eq!(bytes.byte(f32::NAN), 0);
        assert_eq!(bytes.byte(f32::INFINITY), 255);
        assert_eq!(bytes.byte(f32::NEG_INFINITY), 0);
    }
}
