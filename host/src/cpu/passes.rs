//! The methods that go by [`super::bands`]: the terms of a sum, a row and a column, all taps one by
//! one.

use super::bands;
use super::cost::{Cost, ROW, conversion, direct, in_tiles, rectangles, resolving, results};
use super::exact::{self, Exact};
use super::frame::{Frame, Passes, Terms};
use super::method::{Call, Method, Request};
use super::run::Run;
use super::taps::{Factors, Taps};
use crate::problem::Problem;
use crate::problem::machine::{Curve, interpolated};
use crate::round::{Order, Rounder};
use crate::{Family, Result, Variant};

/// The terms of a sum, each by its row and column.
pub(super) static TERMS: Method = Method {
    variant: Variant::Separable,
    why: "a sum of separable filters on u8 images runs as row and column passes",
    takes: |request| request.forms.is_sum,
    cost: |problem, threads| {
        // Nanoseconds for the pixel's own term.
        const POINT: f64 = 0.14;
        let (terms, point) = problem.sum.unwrap_or((1, false));
        let (once, jobs) = row_and_column(problem, threads);
        let resolving = resolving(problem, Order::Terms, terms as f64 * problem.pair_taps(), terms);
        let each = resolving + if point { POINT } else { 0.0 } + conversion(problem);
        Cost { nanoseconds: terms as f64 * once + results(problem) * each, jobs }
    },
    run: |call| {
        let filter = &call.bytes.taps.filter;
        let columns = filter.products().into_iter().map(|(_, column)| column).collect();
        let point = filter.sum().map_or(0.0, |sum| sum.point);
        match call.bytes.taps.terms(Factors::of_bytes) {
            Some(terms) => by_bands(call, &terms, Order::Terms, (columns, point)),
            None => one_by_one(call),
        }
    },
};

/// A row and a column, or one of them.
pub(super) static PASSES: Method = Method {
    variant: Variant::Separable,
    why: "rows and columns of taps on u8 images run as integer passes",
    takes: |&Request { forms, family, .. }| {
        /// The least taps of a row by itself that are summed up faster in whole numbers than tap
        /// by tap.
        const LONG_ROW: usize = 6;
        let is_line = forms.cols.min(forms.rows) == 1;
        let is_short_row = forms.rows == 1 && forms.cols < LONG_ROW;
        match family {
            Family::Separable | Family::SpectraPasses => forms.is_separable,
            // A single column too, as uncertain results are decided from the lines in the ring; and
            // a single row, for whole numbers.
            _ if forms.is_separable && is_line && !is_short_row => true,
            // Passes decide a product's bytes in any picture, and take less time.
            Family::Fourier => forms.is_product,
            Family::Direct => false,
        }
    },
    cost: |problem, threads| {
        let (both, jobs) = row_and_column(problem, threads);
        let resolving = resolving(problem, Order::BlockPasses, problem.pair_taps(), 1);
        let nanoseconds = both + results(problem) * (resolving + conversion(problem));
        Cost { nanoseconds, jobs }
    },
    run: |call| {
        let columns =
            call.bytes.taps.filter.products().into_iter().map(|(_, column)| column).collect();
        match &call.bytes.taps.factors {
            Some(factors) => {
                let terms = factors.of_bytes().into();
                by_bands(call, &terms, Order::BlockPasses, (columns, 0.0))
            }
            None => one_by_one(call),
        }
    },
};

/// Tap by tap.
pub(super) static DENSE: Method = Method {
    variant: Variant::DirectNaive,
    why: "these taps on u8 images are summed one by one",
    takes: |_| true,
    cost: |problem, threads| {
        let (cols, rows) = (problem.cols, problem.rows);
        let (jobs, _) = rectangles(problem, threads);
        let each = direct(cols * rows);
        let by_rows = problem.rounding.is_some() && sums_by_rows(cols, rows);
        let order = if by_rows { Order::ByRows } else { Order::TapByTap };
        let apart = if by_rows { 2.8 / cols as f64 * each } else { 0.0 };
        let resolving = resolving(problem, order, problem.taps(), 0);
        let nanoseconds = in_tiles(problem, 64) * each
            + results(problem) * (apart + resolving + conversion(problem))
            + ROW * problem.height as f64;
        Cost { nanoseconds, jobs }
    },
    run: one_by_one,
};

fn one_by_one(call: Call<'_, '_, '_>) -> Result<()> {
    let Taps { filter, .. } = &call.bytes.taps;
    let by_rows = sums_by_rows(filter.cols(), filter.rows());
    let order = if by_rows { Order::ByRows } else { Order::TapByTap };
    let terms = Passes::dense(call.bytes.taps.dense()?).into();
    by_bands(call, &terms, order, (Vec::new(), 0.0))
}

/// Filters in f32; exactly where many results are uncertain. `in_f64` are the columns of all terms,
/// if they are separable, and the factor of the pixel itself.
fn by_bands(
    call: Call<'_, '_, '_>,
    terms: &Terms<'_>,
    order: Order,
    in_f64: (Vec<&[f64]>, f64),
) -> Result<()> {
    let Call { isa, window, byte_filter, resolver, src, dst, filtered, stage, .. } = call;
    let frame = Frame::new(isa, window, src, dst, filtered);
    let rounder = Rounder::in_f32(resolver, order);
    let (columns, point) = in_f64;
    let in_f32 = Run::new(&frame, terms, Some(&rounder)).with_columns(
        columns,
        point,
        exact::taps_taken(&byte_filter.whole),
    );
    // Exactly only where that decides something.
    let exact = if rounder.share() > 0.0 { Exact::new(&frame, &byte_filter.whole) } else { None };
    bands::run(&in_f32, exact.as_ref(), stage)
}

/// Whether 8-bit results are summed row by row. That is more work, but leaves fewer results
/// uncertain.
fn sums_by_rows(cols: usize, rows: usize) -> bool {
    cols >= 13 && rows > 1
}

/// Nanoseconds of a row pass and a column pass, and the jobs.
fn row_and_column(problem: &Problem, threads: usize) -> (f64, usize) {
    // For a result, by the taps of both passes.
    const BOTH: Curve = &[
        (10.0, 0.57),
        (18.0, 0.69),
        (34.0, 0.95),
        (66.0, 1.6),
        (130.0, 3.1),
        (258.0, 6.06),
        (1602.0, 42.0),
    ];
    // The part that is the row pass.
    const ACROSS: f64 = 0.6;
    // How much faster that is over bytes that become bytes, in whole numbers.
    const WHOLE: f64 = 0.62;
    let Problem { height, rows, .. } = *problem;
    let (jobs, bands) = rectangles(problem, threads);
    // Lines under the windows of two bands are made twice; those of an image that is less high than
    // a window, once for each band.
    let lines = if height < rows { bands * height } else { height + bands * (rows - 1) };
    let each = interpolated(BOTH, problem.pair_taps());
    let whole = if problem.rounding.is_some() { WHOLE } else { 1.0 };
    let across = whole * ACROSS * in_tiles(problem, 128) * lines as f64 / height as f64;
    let down = (1.0 - ACROSS) * in_tiles(problem, 64);
    (each * (across + down) + ROW * (lines + height) as f64, jobs)
}
