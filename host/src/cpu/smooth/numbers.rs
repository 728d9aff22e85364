//! A filter's taps in 16 bits and in 64, and how far sums may be off.

use crate::Filter;
use crate::filter::lowest_bit;
use crate::window::Window;

/// The most taps to each side of the middle. With 7 taps 4 % of the sums in 16 bits are uncertain,
/// and f32 takes no longer.
pub(super) const REACH: usize = 2;

/// The most channels: the second sum is compiled for each number, and a line has room for the reach
/// of so many.
pub(in crate::cpu) const CHANNELS: usize = 4;

/// Taps from the middle on.
pub(super) const TAPS: usize = REACH + 1;

/// The most rows under a window.
pub(super) const ROWS: usize = 2 * REACH + 1;

/// A unit of sums in 16 bits is 1/256, one of those in 64 bits 2^-29: then a tap has two halves of
/// 15 bits, whose products with two pixels have room in 32. The f64 sums of taps that are whole in
/// it are exact.
pub(super) const UNIT: f64 = 256.0;
pub(super) const BITS: u32 = 29;
pub(super) const HALF_BITS: u32 = 15;
pub(super) const FINE_UNIT: f64 = (1u64 << BITS) as f64;

/// A filter in whole numbers.
#[derive(Debug)]
pub(in crate::cpu) struct Smooth {
    /// Taps to each side of the middle.
    pub(in crate::cpu) reach: usize,
    /// The middle tap of the column, and twice each next one, times 2^16.
    pub(super) column: [u16; TAPS],
    pub(super) row: [u16; TAPS],
    /// Is added to a sum in 16 bits. Then its upper byte is the result, unless the lower one is at
    /// most `margin`.
    pub(super) bias: u16,
    pub(super) margin: u8,
    /// The taps, a row for each distance from the middle row.
    pub(super) fine: [[u64; TAPS]; TAPS],
    /// How far a sum in 64 bits may lie from the exact one; 0 if it is exact.
    pub(super) error: u64,
}

/// How many ways to divide the taps' weight between row and column are tried, and how far the
/// column's sum may then be from 1.
const SPLITS: usize = 128;
const SPLIT: f64 = 1.0 / 280.0;

/// The taps of one pass, and how far its sums may be off.
#[derive(Clone, Copy)]
struct Pass {
    taps: [u16; TAPS],
    /// The sum of the exact taps, and without the middle one.
    weight: f64,
    beside: f64,
    below: f64,
    above: f64,
}

impl Pass {
    /// Of the middle tap and those beside it, each rounded by `round`, for values of at most 65535.
    /// What is multiplied with the middle tap is a multiple of the first unit, and with another of
    /// the second.
    fn new(exact: &[f64; TAPS], units: [u64; 2], round: fn(f64) -> f64) -> Self {
        let (mut taps, mut weight, mut below, mut above) = ([0; TAPS], 0.0, 0.0, 0.0);
        for (i, (tap, &exact)) in taps.iter_mut().zip(exact).enumerate() {
            // One factor for the mean of two pixels.
            let (exact, unit) = if i == 0 { (exact, units[0]) } else { (2.0 * exact, units[1]) };
            *tap = round(exact * 65536.0).min(65535.0) as u16;
            let loss = f64::from(*tap) - exact * 65536.0;
            // A product is a multiple of this many parts of 65536, so less than one unit is lost.
            let step = 1u64 << ((unit * u64::from(*tap)) | 65536).trailing_zeros();
            weight += exact;
            below += loss.min(0.0) - (1.0 - step as f64 / 65536.0);
            above += loss.max(0.0);
        }
        Self { taps, weight, beside: weight - exact[0], below, above }
    }
}

/// Both passes: with `bias` added to a sum in 16 bits, its upper byte is the result, unless the
/// lower one is at most `margin`.
struct Passes {
    column: Pass,
    row: Pass,
    bias: f64,
    margin: f64,
}

impl Passes {
    /// `rest` is how far the taps as given are from the whole ones, in units of sums. `None` where
    /// 16 bits have no room.
    fn new(
        column: &[f64; TAPS],
        row: &[f64; TAPS],
        rest: f64,
        round: fn(f64) -> f64,
    ) -> Option<Self> {
        // A pixel is multiplied by 256 units, and the sum of two by 128.
        let (column, row) = (Pass::new(column, [256, 128], round), Pass::new(row, [1, 1], round));
        // A sum s in 16 bits and the true one t, both in units: t + below <= s <= t + above. What a
        // row pass takes is off by what the column pass left, times all taps, and by half a unit
        // where a mean is rounded up.
        let below = column.below * row.weight + row.below - rest;
        let above = column.above * row.weight + row.above + row.beside / 2.0 + rest;
        // Then s + bias - margin <= t + 128 <= s + bias: where all lie between two multiples of
        // 256, the upper byte is the result.
        let bias = (128.0 - below).ceil();
        let margin = above + bias - 128.0;
        let greatest = 255.0 * UNIT * column.weight;
        let fits = greatest + column.above < 65535.0
            && greatest * row.weight + above + bias < 65535.0
            && margin < 64.0;
        fits.then_some(Self { column, row, bias, margin: margin.floor() })
    }

    /// The passes that leave fewest results uncertain, over several divisions of the weight between
    /// column and row: a division may make the taps nearly whole.
    fn best(column: &[f64; TAPS], row: &[f64; TAPS], rest: f64) -> Option<Self> {
        let mut best: Option<Self> = None;
        for split in 0..SPLITS {
            // The first is the middle.
            let at = (split + SPLITS / 2) % SPLITS;
            let split = 1.0 + SPLIT * (2.0 * at as f64 / SPLITS as f64 - 1.0);
            let (column, row) = (column.map(|tap| tap * split), row.map(|tap| tap / split));
            for round in [f64::round, f64::ceil] {
                let fewer =
                    |passes: &Self| best.as_ref().is_none_or(|best| passes.margin < best.margin);
                if let Some(passes) = Self::new(&column, &row, rest, round).filter(fewer) {
                    best = Some(passes);
                }
            }
        }
        best
    }
}

impl Smooth {
    /// A filter of a symmetric row and a symmetric column whose taps are not negative and add up to
    /// 1 at most; `None` for others.
    pub(in crate::cpu) fn new(filter: &Filter, window: &Window) -> Option<Self> {
        let (row, column) = filter.separated()?;
        let bits = lowest_bit(row) + lowest_bit(column);
        let reach = row.len().max(column.len()) / 2;
        let odd = row.len() % 2 == 1 && column.len() % 2 == 1;
        let centred = (window.anchor_x, window.anchor_y) == (row.len() / 2, column.len() / 2);
        if !(1..=REACH).contains(&reach) || !odd || !centred {
            return None;
        }
        let from_the_middle = |taps: &[f64], factor: f64| {
            let middle = taps.len() / 2;
            let symmetric = taps.iter().eq(taps.iter().rev());
            let taps: [f64; TAPS] =
                std::array::from_fn(|i| taps.get(middle + i).map_or(0.0, |tap| factor * tap));
            (symmetric && taps.iter().all(|tap| (0.0..=1.0).contains(tap))).then_some(taps)
        };
        // The column's sum becomes 1.
        let scale: f64 = column.iter().sum();
        let (column, row) = (from_the_middle(column, 1.0 / scale)?, from_the_middle(row, scale)?);

        let fine = column.map(|down| row.map(|across| (down * across * FINE_UNIT).round() as u64));
        // How far the taps in both forms are from the whole ones, whose products `tap` gives in
        // f64.
        let (mut loss, mut fine_loss) = (0.0, 0.0);
        for r in 0..window.rows {
            for c in 0..window.cols {
                let tap = filter.tap(r, c);
                let (down, across) = (r.abs_diff(window.anchor_y), c.abs_diff(window.anchor_x));
                loss += (tap - column[down] * row[across]).abs();
                fine_loss += (tap - fine[down][across] as f64 / FINE_UNIT).abs();
            }
        }
        // Taps that are whole in the fine unit have exact sums.
        let in_f64 = 4.0 * f64::EPSILON * filter.weight();
        let error = match fine_loss {
            0.0 if bits >= -(BITS as i32) => 0,
            _ => (1.01 * 255.0 * (fine_loss + in_f64) * FINE_UNIT).ceil() as u64 + 1,
        };
        if error >= 1 << (BITS - 8) {
            return None;
        }

        // A little more than follows from the taps, for the roundings of all this arithmetic, which
        // are below 1e-9 units.
        let rest = 1.01 * (loss + in_f64) * 255.0 * UNIT + 1e-6;
        let best = Passes::best(&column, &row, rest);
        best.map(|Passes { column, row, bias, margin }| Self {
            reach,
            column: column.taps,
            row: row.taps,
            bias: bias as u16,
            margin: margin as u8,
            fine,
            error,
        })
    }
}

impl Smooth {
    /// The sum of a column of equal pixels, in units.
    pub(super) fn column_of(&self, value: u8) -> u16 {
        self.column
            .iter()
            .map(|&tap| (((u32::from(value) << 8) * u32::from(tap)) >> 16) as u16)
            .sum()
    }
}
