//! How far a sum in f32 may lie from the exact one.

use crate::filter::{Sum, lowest_bit};
use crate::spectrum::folded;
use crate::whole::row::{WholeRow, lack};
use crate::{Family, Filter, spectrum};

/// The most rows of results that the CPU's column pass computes together: with the adjacent
/// vectors, as many as 32 registers hold.
pub(crate) const ROWS: usize = 6;

/// The order in which the f32 sums were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// All taps in sequence.
    TapByTap,
    /// The taps of each row in sequence, then the rows.
    ByRows,
    /// A row pass, then a column pass.
    TwoPasses,
    /// The same; the row pass is in whole numbers ([`WholeRow`]) where that can be, and else, as
    /// the column pass, takes a block of taps at a time ([`row_block`], [`column_block`]), to add
    /// their sums then.
    BlockPasses,
    /// The terms of the filter's [`Sum`](crate::filter::Sum): the pixel's own, then each as in
    /// `BlockPasses`, but a column is at least one block; or several, if they are short, all
    /// columns together ([`terms_together`]).
    Terms,
    /// None: the product of spectra, in a GPU's tiles.
    Spectra,
    /// The same, folded, of bytes that become bytes.
    FoldedSpectra,
    /// The same in those of the CPU, which may be larger.
    LargeSpectra,
}

impl Order {
    /// Every order, each at its number.
    pub(crate) const ALL: [Self; 8] = [
        Self::TapByTap,
        Self::ByRows,
        Self::TwoPasses,
        Self::BlockPasses,
        Self::Terms,
        Self::Spectra,
        Self::FoldedSpectra,
        Self::LargeSpectra,
    ];
}

/// How many taps of a column of so many are summed apart. Fewer would leave fewer uncertain
/// results, but take longer.
pub(crate) fn column_block(taps: usize) -> usize {
    if taps > 128 { 32 } else { usize::MAX }
}

/// Whether the columns of all terms of a sum are taken together, a row of each in turn, where they
/// are so long.
pub(crate) fn terms_together(rows: usize) -> bool {
    column_block(rows) == usize::MAX
}

/// The same as [`column_block`] for a row, where the processor has time to spare.
pub(crate) fn row_block(taps: usize) -> usize {
    if taps > 24 { 12 } else { usize::MAX }
}

impl From<Family> for Order {
    fn from(family: Family) -> Self {
        match family {
            Family::Direct => Self::TapByTap,
            Family::Separable | Family::SpectraPasses => Self::TwoPasses,
            Family::Fourier => Self::Spectra,
        }
    }
}

/// What a row pass of [`Order::BlockPasses`] or [`Order::TwoPasses`] does to a row of taps, for
/// pixels of at most 1.
struct RowPass {
    /// The sum of the bounds of all that is rounded.
    rounded: f64,
    /// The sum of the differences between the taps and those that it takes, and the sum of all
    /// their magnitudes.
    loss: f64,
    weight: f64,
    /// The greatest magnitude of a result.
    greatest: f64,
    /// What is subtracted from pixels; all above are for what is left of them.
    middle: f64,
}

impl RowPass {
    /// In f32, each block of taps apart.
    fn in_f32(row: &[f64], block: usize) -> Self {
        let mut across = PartialSum { plus: 0.0, minus: 0.0, signed: false };
        let rounded = across.add_blocks(row, block);
        Self {
            rounded,
            loss: loss(row),
            weight: magnitudes(row),
            greatest: across.greatest(),
            middle: 0.0,
        }
    }

    /// In whole numbers where that can be; a column of so many taps comes next.
    fn of_bytes(row: &[f64], rows: usize) -> Self {
        WholeRow::new(row, rows).map_or_else(
            || Self::in_f32(row, row_block(row.len())),
            |WholeRow { loss, greatest, greatest_low, middle, pixel, .. }| Self {
                // The sums of both parts are rounded to f32, and so is what they are joined to.
                rounded: 2.0 * greatest + 3.0 * greatest_low,
                loss: pixel * loss,
                weight: pixel * magnitudes(row),
                greatest,
                middle,
            },
        )
    }

    /// What the column pass's sums lack, and how far that may be off as it is computed in f64.
    fn lack(&self, row: &[f64], column: &[f64]) -> (f64, f64) {
        if self.middle == 0.0 {
            return (0.0, 0.0);
        }
        let steps = (row.len() + column.len() + 2) as f64;
        (
            lack(self.middle, row, column),
            gamma(steps, UNIT_ROUNDOFF_F64) * self.middle * magnitudes(row) * magnitudes(column),
        )
    }
}

/// The unit roundoffs of f32 and of f64: the relative error of one rounding.
const UNIT_ROUNDOFF: f64 = f32::EPSILON as f64 / 2.0;
const UNIT_ROUNDOFF_F64: f64 = f64::EPSILON / 2.0;

/// The greatest pixel.
const GREATEST: f64 = 255.0;

/// Half of the smallest number that f32 can hold: the absolute error of a rounding that underflows.
const UNDERFLOW: f64 = f32::from_bits(1) as f64 / 2.0;

/// The error bound of sums when what they lack has been added to them in a type with this unit
/// roundoff, where it is `rounded`; `error` is the one before. A sum beyond 256 by twice that error
/// is saturated, however it is rounded.
fn added(error: f64, (lack, off): (f64, f64), rounded: f64, unit: f64) -> f64 {
    if lack == 0.0 && off == 0.0 {
        error
    } else {
        error + off + (lack - rounded).abs() + unit * (256.0 + 2.0 * error)
    }
}

/// The relative error after `steps` successive roundings of relative error `unit`: at most
/// `(1 + unit)^steps - 1`; not finite if there is no bound. Higham's gamma.
fn gamma(steps: f64, unit: f64) -> f64 {
    let error = steps * unit;
    if error < 0.5 { error / (1.0 - error) } else { f64::INFINITY }
}

/// The bound of the error of f32 sums over bytes in this order, compared with the exact sum over
/// whole taps; the filter is their view in f64 ([`ByteFilter`](crate::filter::ByteFilter)).
///
/// A multiply-add that gives the partial sum `s` is off by at most `UNIT_ROUNDOFF * |s|`, and one
/// with a zero tap by nothing. Those errors add up (Higham, Accuracy and Stability of Numerical
/// Algorithms, section 3.3). No pixel is negative, so a partial sum is at most the greater of the
/// positive and of the negative taps' weight so far, times 255; `gamma` has room for its own error.
/// Sums of single rows, and then their sums, count alike. In two passes, the column's taps multiply
/// the first pass's errors, and the first pass's sums are the second one's values.
///
/// Three errors are added. Taps are rounded to f32, or are products of two rounded factors:
/// `sum |t - t'| * 255`. Results too small for f32 lose half of its smallest number at each
/// rounding. Taps of the view that are quotients are rounded to f64.
///
/// 0 if nothing is rounded at all: taps that are whole multiples of a power of two, with sums below
/// 2^24 of it.
pub(super) fn of_sums(filter: &Filter, order: Order) -> f64 {
    let error = of_rounded_sums(filter, order);
    if error == 0.0 { 0.0 } else { error + of_view(filter) }
}

/// How far the exact sum over the view's taps may lie from that over the whole ones: a mean's
/// quotients are rounded to f64, each factor of a product too, and so are the dense taps of a given
/// sum.
fn of_view(filter: &Filter) -> f64 {
    4.0 * UNIT_ROUNDOFF_F64 * filter.weight().max(filter.sum().map_or(0.0, Sum::weight)) * GREATEST
}

/// [`of_sums`] without what the view is off.
fn of_rounded_sums(filter: &Filter, order: Order) -> f64 {
    match (order, filter.separated()) {
        (Order::TwoPasses, None) if filter.sum().is_some() => {
            filter.sum().map_or(f64::INFINITY, |sum| of_terms_in_f32(filter, sum))
        }
        (Order::Spectra, _) => 2.0 * UNIT_ROUNDOFF * folded::units(filter) * GREATEST,
        (Order::FoldedSpectra, _) => folded::folded_error(filter, GREATEST, 0.0),
        (Order::LargeSpectra, _) => {
            2.0 * UNIT_ROUNDOFF
                * spectrum::units(filter.weight(), filter.norm(), spectrum::greatest_side())
                * GREATEST
        }
        (Order::Terms, _) => filter.sum().map_or(f64::INFINITY, |sum| of_terms(filter, sum)),
        (Order::TwoPasses, Some((row, column))) => {
            let across = RowPass::in_f32(row, usize::MAX);
            of_two_passes(filter, (row, column), &across, usize::MAX)
        }
        (Order::BlockPasses, Some((row, column))) => {
            let across = RowPass::of_bytes(row, column.len());
            of_two_passes(filter, (row, column), &across, column_block(column.len()))
        }
        _ => of_all_taps(filter, order == Order::ByRows),
    }
}

/// [`of_rounded_sums`] for a row pass and a column pass that takes a block of taps at a time.
fn of_two_passes(
    filter: &Filter,
    (row, column): (&[f64], &[f64]),
    across: &RowPass,
    block: usize,
) -> f64 {
    let (row_weight, column_weight) = (weight(row), weight(column));
    let taps_loss = factors_loss(filter, (row, column), across);
    let (row_bit, column_bit) = (lowest_bit(row), lowest_bit(column));
    let row_exact = is_exact(row_weight, row_bit);
    if row_exact && taps_loss == 0.0 && is_exact(row_weight * column_weight, row_bit + column_bit) {
        return 0.0;
    }
    let mut down = PartialSum { plus: 0.0, minus: 0.0, signed: true };
    let (in_rows, row_steps) = if row_exact { (0.0, 0.0) } else { (across.rounded, count(row)) };
    let partials = in_rows * column_weight + across.greatest * down.add_column(column, block);
    let rounding =
        UNIT_ROUNDOFF * partials * (1.0 + gamma(2.0 * (row_steps + count(column)), UNIT_ROUNDOFF));
    let error =
        (rounding + taps_loss) * GREATEST + UNDERFLOW * (row_steps * column_weight + count(column));
    let lack = across.lack(row, column);
    added(error, lack, rounded(lack.0), UNIT_ROUNDOFF)
}

/// [`of_rounded_sums`] for one pass over all taps, each row apart or all in sequence.
fn of_all_taps(filter: &Filter, by_rows: bool) -> f64 {
    let (mut steps, mut taps_weight, mut taps_loss, mut bit) = (0.0, 0.0, 0.0, i32::MAX);
    let (mut partial, mut partials) = (PartialSum { plus: 0.0, minus: 0.0, signed: false }, 0.0);
    for_each_row(filter, |taps| {
        steps += count(taps);
        taps_weight += weight(taps);
        taps_loss += loss(taps);
        bit = bit.min(lowest_bit(taps));
        if by_rows {
            partials += partial.add_blocks(taps, taps.len());
        } else {
            partials += partial.add_all(taps);
        }
    });
    if taps_loss == 0.0 && is_exact(taps_weight, bit) {
        return 0.0;
    }
    // Adding row sums takes no more roundings than there are taps, except for empty rows.
    let rounding =
        UNIT_ROUNDOFF * partials * (1.0 + gamma(steps + filter.rows() as f64, UNIT_ROUNDOFF));
    (rounding + taps_loss) * GREATEST + UNDERFLOW * steps
}

/// Whether f32 holds all sums over taps of this weight, of which `bit` is the lowest: in its units,
/// the greatest one.
fn is_exact(weight: f64, bit: i32) -> bool {
    (-126..=100).contains(&bit) && weight * GREATEST * 2f64.powi(-bit) <= f64::from(1 << 24)
}

/// [`of_sums`] for [`Order::Terms`]: as for two passes, and each block's sum is added to all that
/// came before.
fn of_terms(filter: &Filter, sum: &Sum) -> f64 {
    let point = rounded(sum.point).abs();
    let (mut total, mut partials, mut steps) = (point, point, 1.0);
    let mut taps_loss = (sum.point - rounded(sum.point)).abs() + terms_loss(filter, sum);
    let mut lack = (0.0, 0.0);
    let rows: Vec<_> =
        sum.terms.iter().map(|(row, column)| RowPass::of_bytes(row, column.len())).collect();
    let together = rows.len() > 1 && terms_together(filter.rows());
    for ((row, column), across) in sum.terms.iter().zip(&rows) {
        let (column_weight, block) = (weight(column), column_block(column.len()).min(column.len()));
        partials += across.rounded * column_weight;
        if !together {
            let mut down = PartialSum { plus: 0.0, minus: 0.0, signed: true };
            partials += across.greatest * down.add_column(column, block);
            partials += (column.len().div_ceil(block) + 1) as f64
                * (total + across.greatest * down.greatest());
            total += across.greatest * down.greatest();
        }
        taps_loss += loss(column) * across.weight + column_weight * across.loss;
        let (more, off) = across.lack(row, column);
        lack = (lack.0 + more, lack.1 + off);
        steps += 2.0 * (row.len() + column.len()) as f64;
    }
    if together {
        for row in 0..filter.rows() {
            for ((_, column), across) in sum.terms.iter().zip(&rows) {
                total += across.greatest * rounded(column[row]).abs();
                partials += total;
            }
        }
    }
    let rounding = UNIT_ROUNDOFF * partials * (1.0 + gamma(steps, UNIT_ROUNDOFF));
    let error = (rounding + taps_loss) * GREATEST + UNDERFLOW * steps * (1.0 + sum.weight());
    added(error, lack, rounded(lack.0), UNIT_ROUNDOFF)
}

/// The error of sums whose row passes are those of [`Order::BlockPasses`], and whose column passes
/// are in f64, compared with the exact ones; `None` where there are no row passes.
pub(super) fn of_row_pass(filter: &Filter, order: Order) -> Option<f64> {
    let by_terms = match order {
        Order::BlockPasses if filter.is_separable() => false,
        Order::Terms if filter.sum().is_some() => true,
        _ => return None,
    };
    let terms = filter.products();
    let in_columns = 2.0 * terms.iter().map(|(_, column)| column.len() as f64).sum::<f64>() + 8.0;
    let of_term = |&(row, column): &(&[f64], &[f64])| {
        let down = magnitudes(column);
        let across = RowPass::of_bytes(row, column.len());
        let steps = 2.0 * row.len() as f64;
        // A column alone has a row of one tap.
        let exact = is_exact(weight(row), lowest_bit(row));
        let rounded = if exact {
            0.0
        } else {
            UNIT_ROUNDOFF * (1.0 + gamma(steps, UNIT_ROUNDOFF)) * across.rounded
        };
        let in_column = gamma(in_columns, UNIT_ROUNDOFF_F64) * down * across.greatest;
        let lack = across.lack(row, column);
        let error =
            ((rounded + across.loss) * down + in_column) * GREATEST + UNDERFLOW * steps * down;
        added(error, lack, lack.0, UNIT_ROUNDOFF_F64)
    };
    // Factors that were found in a table differ from it.
    let loss = match (filter.sum().filter(|_| by_terms), filter.separated(), filter.dense_f64()) {
        (Some(sum), ..) => terms_loss(filter, sum),
        (None, Some((row, column)), Some(taps)) => 1.01 * products_loss(taps, row, column),
        _ => 0.0,
    };
    Some(terms.iter().map(of_term).sum::<f64>() + loss * GREATEST + of_view(filter))
}

/// The sum of the differences between the taps and the sums of products, each as computed here a
/// few roundings off; 0 if the filter was made from that sum.
pub(crate) fn terms_loss(filter: &Filter, sum: &Sum) -> f64 {
    if sum.is_given {
        return 0.0;
    }
    let (cols, anchor) = (filter.cols(), filter.anchor());
    let mut loss = 0.0;
    for (r, taps) in filter.dense_f64().unwrap_or_default().chunks_exact(cols).enumerate() {
        for (c, tap) in taps.iter().enumerate() {
            let start = if (c, r) == anchor { sum.point } else { 0.0 };
            loss += (tap
                - sum.terms.iter().fold(start, |all, (row, column)| all + column[r] * row[c]))
            .abs();
        }
    }
    1.01 * loss + 8.0 * f64::EPSILON * sum.weight()
}

/// The number of taps other than 0.
fn count(taps: &[f64]) -> f64 {
    taps.iter().filter(|&&tap| tap != 0.0).count() as f64
}

/// The sum of the magnitudes of taps in f32.
fn weight(taps: &[f64]) -> f64 {
    taps.iter().map(|&tap| rounded(tap).abs()).sum()
}

/// The sum of the rounding errors of taps in f32.
fn loss(taps: &[f64]) -> f64 {
    taps.iter().map(|&tap| (tap - rounded(tap)).abs()).sum()
}

/// The sum of the magnitudes of taps.
fn magnitudes(taps: &[f64]) -> f64 {
    taps.iter().map(|tap| tap.abs()).sum()
}

/// How far the products of a row and a column in f32 are from the filter's taps.
fn factors_loss(filter: &Filter, (row, column): (&[f64], &[f64]), across: &RowPass) -> f64 {
    let rounding = loss(column) * across.weight + weight(column) * across.loss;
    rounding + filter.dense_f64().map_or(0.0, |taps| products_loss(taps, row, column))
}

/// The sum of the differences between taps and the products of a row and a column.
pub(crate) fn products_loss(taps: &[f64], row: &[f64], column: &[f64]) -> f64 {
    let lines = taps.chunks_exact(row.len()).zip(column);
    let of_line = |(taps, down): (&[f64], &f64)| -> f64 {
        taps.iter().zip(row).map(|(tap, across)| (tap - down * across).abs()).sum()
    };
    lines.map(of_line).sum()
}

fn rounded(tap: f64) -> f64 {
    f64::from(tap as f32)
}

/// The weight of the taps that a sum has taken.
#[derive(Clone, Copy)]
struct PartialSum {
    plus: f64,
    minus: f64,
    /// Whether the values may be negative.
    signed: bool,
}

impl PartialSum {
    /// The greatest possible sum, if no value exceeds 1.
    fn greatest(&self) -> f64 {
        if self.signed { self.plus + self.minus } else { self.plus.max(self.minus) }
    }

    /// Adds taps one by one; returns the sum of the bounds of all partial sums.
    fn add_all(&mut self, taps: &[f64]) -> f64 {
        let mut partials = 0.0;
        for tap in taps.iter().map(|&tap| rounded(tap)).filter(|&tap| tap != 0.0) {
            self.plus += tap.max(0.0);
            self.minus -= tap.min(0.0);
            partials += self.greatest();
        }
        partials
    }

    /// As `add_blocks`, for a column of a tile of up to [`ROWS`] rows: of the `ROWS - 1` lines that
    /// lie under some of them only, the upper ones belong to the first block and the lower ones to
    /// the last.
    fn add_column(&mut self, taps: &[f64], block: usize) -> f64 {
        let seam = ROWS - 1;
        if taps.len() <= block.saturating_add(seam) {
            return self.add_blocks(taps, taps.len());
        }
        let start = *self;
        let above = |above: usize| {
            let mut all = start;
            let (first, rest) = taps.split_at(above + block);
            // The last block, whole or not, is one with the lines below.
            let whole = (taps.len() - seam - block - 1) / block * block;
            let (middle, last) = rest.split_at(whole.min(rest.len()));
            let partials = all.add_blocks(first, first.len()) + all.add_blocks(middle, block);
            (partials + all.add_blocks(last, last.len().max(1)), all)
        };
        let single = {
            let mut all = start;
            (all.add_blocks(taps, block), all)
        };
        let worst = (0..=seam).map(above).chain([single]).max_by(|a, b| a.0.total_cmp(&b.0));
        let (partials, all) = worst.unwrap_or((f64::INFINITY, start));
        *self = all;
        partials
    }

    /// Adds the sums of blocks of taps; returns the sum of the bounds of all partial sums.
    fn add_blocks(&mut self, taps: &[f64], block: usize) -> f64 {
        if taps.len() <= block && self.plus + self.minus == 0.0 {
            return self.add_all(taps);
        }
        let mut partials = 0.0;
        for taps in taps.chunks(block.max(1)) {
            let mut apart = Self { plus: 0.0, minus: 0.0, ..*self };
            partials += apart.add_all(taps);
            self.plus += apart.plus;
            self.minus += apart.minus;
            partials += self.greatest();
        }
        partials
    }
}

/// How far sums by spectra in f64 may lie from the exact ones.
pub(super) fn of_spectra_in_f64(filter: &Filter) -> f64 {
    // The taps' rounding in the view is far below that.
    1.01 * spectrum::error_in_f64() * filter.weight() * GREATEST
}

/// The bound of f32 sums over the terms of a sum: each product of a tap of a row, one of a column
/// and a pixel is rounded at most once for each tap of that row and for each tap of all columns,
/// and so are the taps.
fn of_terms_in_f32(filter: &Filter, sum: &Sum) -> f64 {
    let steps = (filter.cols() + sum.terms.len() * filter.rows()) as f64 + 6.0;
    let rounded = gamma(steps, UNIT_ROUNDOFF) * sum.weight() + terms_loss(filter, sum);
    rounded * GREATEST + UNDERFLOW * steps * (1.0 + sum.weight())
}

/// Calls `visit` with each row of taps.
fn for_each_row(filter: &Filter, mut visit: impl FnMut(&[f64])) {
    match (filter.dense_f64(), filter.separated()) {
        (None, Some((row, column))) => {
            let mut taps = row.to_vec();
            for down in column {
                taps.iter_mut().zip(row).for_each(|(tap, across)| *tap = down * across);
                visit(&taps);
            }
        }
        (taps, _) => taps.unwrap_or_default().chunks(filter.cols()).for_each(visit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_that_f32_holds_need_no_second_look() {
        for text in [
            "sobel-x:size=5",
            "sharpen",
            "box:size=4",
            "laplacian:neighbours=8",
            "emboss",
            "taps:65792 1",
        ] {
            let filter: Filter = text.parse().unwrap();
            let filter = &filter.byte_filter().unwrap().filter;
            assert_eq!(of_sums(filter, Order::TapByTap), 0.0, "{text}");
            if filter.is_separable() {
                assert_eq!(of_sums(filter, Order::TwoPasses), 0.0, "{text}");
            }
        }
        for text in ["box:size=5", "gaussian:sigma=1", "sobel-x:size=31", "taps:65793 1"] {
            let filter: Filter = text.parse().unwrap();
            assert_ne!(
                of_sums(&filter.byte_filter().unwrap().filter, Order::TapByTap),
                0.0,
                "{text}"
            );
        }
    }
}
