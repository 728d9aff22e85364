//! Error bounds of sums over bytes by 1-D spectra.

use gpu_kernels::kernels::fourier::MIDDLE;

use super::fit::Fit;
use crate::Filter;
use crate::filter::Fact;

/// `sum |tap|`.
fn weight(taps: &[f64]) -> f64 {
    taps.iter().map(|tap| tap.abs()).sum()
}

/// Error bounds of sums over bytes, compared with the exact sums over the whole taps.
#[derive(Clone, Debug, Default)]
pub(super) struct Errors {
    /// For each term, the error of its row pass relative to root mean squares and to the greatest
    /// sum of a tile: see [`Fit::units`].
    pub(super) rows: Vec<[f64; 3]>,
    /// The error of the column pass, likewise.
    pub(super) columns: [f64; 3],
    /// The errors that do not depend on the pixels.
    pub(super) others: f64,
    /// What a constant border adds to them.
    pub(super) outside: f64,
    /// The bound for any bytes.
    all: f64,
}

impl Fact for Option<Errors> {
    /// Of a filter's view; `None` if it is no product, nor the sum of one or two.
    fn of(filter: &Filter) -> Self {
        /// Half a unit in the last place of 1.
        const HALF: f64 = f32::EPSILON as f64 / 2.0;
        /// The greatest root mean square of two lines of bytes less their middle.
        const GREATEST: f64 = std::f64::consts::SQRT_2 * MIDDLE as f64;
        let terms = filter.products();
        let is_sum = filter.sum().is_some();
        let scaled = |units: [f64; 3], factor: f64| units.map(|unit| HALF * factor * unit);
        let (mut rows, mut columns) = (Vec::new(), [0.0; 3]);
        let (mut all, mut outside, mut size) = (0.0, 0.0, point(filter).abs());
        for (row, column) in &terms {
            let (across, down) = (weight(row), weight(column));
            let of_row = scaled(Fit::of_rows(row.len()).units(row), down);
            let of_column =
                scaled(Fit::of_columns(column.len(), terms.len(), is_sum).units(column), 1.0);
            // For any bytes: the root mean square of two lines is greater than that of either.
            let most = |[input, output, greatest]: [f64; 3], weight: f64| {
                GREATEST * (input + output * weight) + f64::from(MIDDLE) * greatest * weight
            };
            all += most(of_row, across) + most(of_column, down) * across;
            rows.push(of_row);
            // The squares of both terms' numbers are added up, and so are their sums.
            columns = [columns[0] + of_column[0], of_column[1].max(columns[1]), of_column[2]];
            // A row outside the image has one sum, which is rounded.
            outside += f64::from(MIDDLE) * across * down;
            size += across * down;
        }
        // The sum with the middle is rounded: between 128 and 256 to a multiple of 2^-16. A sum
        // above 256 becomes 255 in any case. With a point, that sum may be greater, and a product
        // is added to it.
        let rounded = if is_sum { 255.0 * point(filter).abs() + 2.0 * 256.5 } else { 128.0 };
        let of_middle = (middle(filter) - f64::from(middle(filter) as f32)).abs();
        // A table of taps may differ from its factors or terms.
        let apart = match (filter.dense_f64(), filter.sum()) {
            (Some(_), Some(sum)) if sum.is_given => 0.0,
            (Some(_), Some(sum)) => crate::round::terms_loss(filter, sum),
            (Some(taps), None) => terms
                .first()
                .map_or(0.0, |(row, column)| crate::round::products_loss(taps, row, column)),
            (None, _) => 0.0,
        };
        // The taps of means are rounded to f64; the bound itself is computed in f32.
        let taps = 2.0 * f64::EPSILON * size;
        let others = HALF * rounded + of_middle + 255.0 * (apart + taps) + 1e-6 * all;
        let outside = HALF * outside;
        let all = all + others + outside;
        (!terms.is_empty()).then_some(Errors { rows, columns, others, outside, all })
    }
}

/// The error bound of sums over any bytes; `None` if the filter is neither a product nor a sum of
/// one or two. Infinite if f32 has no room.
pub(crate) fn error(filter: &Filter) -> Option<f64> {
    if filter.products().is_empty() {
        return None;
    }
    let filter = &filter.byte_filter().ok()?.filter;
    if !fits_f32(filter) {
        return Some(f64::INFINITY);
    }
    filter.fact::<Option<Errors>>().as_ref().as_ref().map(|errors| errors.all)
}

/// Whether products and spectra of each row and column fit f32.
pub(super) fn fits_f32(filter: &Filter) -> bool {
    /// The least and the greatest `sum |tap|`.
    const WEIGHTS: std::ops::RangeInclusive<f64> = 1e-15..=1e15;
    let weights =
        filter.products().into_iter().flat_map(|(row, column)| [weight(row), weight(column)]);
    weights.into_iter().all(|weight| WEIGHTS.contains(&weight))
}

/// What the rows and columns of a filter make of the middle of bytes.
pub(super) fn middle(filter: &Filter) -> f64 {
    let sum = |taps: &[f64]| taps.iter().sum::<f64>();
    let all = filter.products().iter().map(|(row, column)| sum(row) * sum(column)).sum::<f64>();
    f64::from(MIDDLE) * all
}

/// The factor of the pixel itself, beside the products.
pub(super) fn point(filter: &Filter) -> f64 {
    filter.sum().map_or(0.0, |sum| sum.point)
}

/// The distance from a byte at which a sum with this error is uncertain, as an f32 that is not
/// greater.
#[cfg(feature = "gpu")]
pub(super) fn near(error: f64) -> f32 {
    let near = 0.5 - error;
    if near <= 0.0 { -1.0 } else { (near as f32).next_down() }
}
