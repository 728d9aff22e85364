//! A row of taps in whole numbers of two 16-bit parts, for the CPU's row pass over bytes.
//!
//! A tap is rounded to `(2^shift * high + low) * unit`. `host/src/cpu/whole.rs` multiplies pairs of
//! such parts with pairs of pixels.

use crate::filter::lowest_bit;

/// The middle of the range of pixels, and the least taps for which it is worth an addition for each
/// result that fewer are uncertain.
pub(crate) const MIDDLE: f64 = 128.0;
pub(crate) const LONG: usize = 17;

/// The greatest pixel, and the greatest sum of parts of taps whose products with it 32 bits hold.
const PIXEL: f64 = 255.0;
const ROOM: f64 = i32::MAX as f64 / PIXEL;

/// The greatest part of a tap, less what rounding may add.
const PART: f64 = i16::MAX as f64 - 1.0;

/// The bits of a low part: at most so many, and where fewer fit, sums in f32 are as exact.
const MAX_BITS: i32 = 16;
const LEAST_BITS: i32 = 8;

/// The exponents of units that f32 holds.
const EXPONENTS: std::ops::RangeInclusive<i32> = -100..=100;

/// A row of taps in whole numbers.
#[derive(Debug)]
pub(crate) struct WholeRow {
    /// The high and the low parts of two neighbouring taps. After the last tap comes a zero.
    pub(crate) taps: Vec<[u32; 2]>,
    /// What sums of both parts begin at.
    pub(crate) start: [u32; 2],
    /// What the sums of the high and of the low parts are multiplied by: powers of two.
    pub(crate) units: [f32; 2],
    /// What is subtracted from pixels: [`MIDDLE`] or 0.
    pub(crate) middle: f64,
    /// The greatest magnitude of a pixel less the middle, as a part of the greatest pixel.
    pub(crate) pixel: f64,
    /// The sum of the differences between the taps and these.
    pub(crate) loss: f64,
    /// The greatest magnitude of a sum, and of its low part, as parts of the greatest pixel.
    pub(crate) greatest: f64,
    pub(crate) greatest_low: f64,
}

impl WholeRow {
    /// For a column of so many taps, and an image of bytes. `None` if there is no room, or for a
    /// single tap of 1 and the pixels as they are, as then the column pass goes over them.
    pub(crate) fn new(taps: &[f64], rows: usize) -> Option<Self> {
        let (bits, exponent) = scale(taps)?;
        let scale = 2f64.powi(exponent);
        let half = 1 << (bits - 1);
        let (mut loss, mut plus, mut minus, mut low_weight) = (0.0, 0.0, 0.0, 0.0);
        let mut sums = [0i32; 2];
        let mut parts = taps.iter().map(|&tap| {
            let whole = (tap * scale).round();
            let rounded = whole / scale;
            loss += (tap - rounded).abs();
            plus += rounded.max(0.0);
            minus -= rounded.min(0.0);
            let low = ((whole as i32 + half) & (2 * half - 1)) - half;
            low_weight += f64::from(low.abs()) / scale;
            let parts = [(whole as i32 - low) >> bits, low];
            sums = [sums[0] + parts[0], sums[1] + parts[1]];
            parts.map(|part| u32::from(part as u16))
        });
        let mut pairs = Vec::with_capacity(taps.len().div_ceil(2));
        while let Some([high, low]) = parts.next() {
            let [next_high, next_low] = parts.next().unwrap_or_default();
            pairs.push([high | next_high << 16, low | next_low << 16]);
        }
        drop(parts);
        let units = [2f64.powi(bits - exponent) as f32, 2f64.powi(-exponent) as f32];
        // Sums lie between both weights times a pixel, or within all of it times half of one.
        let is_smaller =
            taps.len().max(rows) >= LONG && MIDDLE * (plus + minus) < PIXEL * plus.max(minus);
        if taps == [1.0] && !is_smaller {
            return None;
        }
        let (middle, pixel) = if is_smaller { (MIDDLE, MIDDLE / PIXEL) } else { (0.0, 1.0) };
        let greatest = if is_smaller { pixel * (plus + minus) } else { plus.max(minus) };
        // All parts times a pixel have room.
        let start = sums.map(|sum| (-(middle as i32) * sum) as u32);
        Some(Self {
            taps: pairs,
            start,
            units,
            middle,
            pixel,
            loss,
            greatest,
            greatest_low: pixel * low_weight,
        })
    }
}

/// The bits of a low part, and the exponent of what taps are multiplied by before they are rounded;
/// `None` if there is no room.
fn scale(taps: &[f64]) -> Option<(i32, i32)> {
    let count = taps.len() as f64;
    let bits = ((ROOM / count).log2().floor() as i32 + 1).min(MAX_BITS);
    let (greatest, weight) =
        taps.iter().fold((0.0f64, 0.0), |(most, sum), tap| (tap.abs().max(most), sum + tap.abs()));
    if bits < LEAST_BITS || greatest == 0.0 {
        return None;
    }
    // So small a unit that the greatest tap and all together just fit; or that of the taps, if they
    // are whole in a greater one.
    let most = (PART / greatest).min((ROOM - count) / weight).log2().floor() as i32 + bits;
    let exponent = most.min(-lowest_bit(taps));
    EXPONENTS.contains(&exponent).then_some((bits, exponent))
}

/// What the sums of both passes lack if pixels are taken less `middle`.
pub(crate) fn lack(middle: f64, row: &[f64], column: &[f64]) -> f64 {
    middle * row.iter().sum::<f64>() * column.iter().sum::<f64>()
}
