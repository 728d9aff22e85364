//! How long the CPU engine's parts take, for the costs of its methods.
//!
//! The times are those of one thread on a core with AVX-512 (Emerald Rapids), the least of several
//! calls, from `cargo xtask bench plan`.

use super::bands::band;
use super::resolving::Resolving;
use super::run::strip_values;
use crate::Scalar;
use crate::problem::Problem;
use crate::problem::machine::{Curve, interpolated};
use crate::round::Order;

/// What a call has to do.
pub(crate) struct Cost {
    /// Time on one thread.
    pub(crate) nanoseconds: f64,
    /// How many parts of it there are for threads.
    pub(crate) jobs: usize,
}

/// Nanoseconds for a row.
pub(super) const ROW: f64 = 60.0;

/// Nanoseconds for a result in the direct order, in f32.
pub(super) fn direct(taps: usize) -> f64 {
    const DENSE: Curve = &[
        (9.0, 0.345),
        (25.0, 0.575),
        (49.0, 0.87),
        (81.0, 1.24),
        (169.0, 2.3),
        (289.0, 3.73),
        (529.0, 6.8),
        (961.0, 12.0),
    ];
    interpolated(DENSE, taps as f64)
}

pub(crate) fn results(problem: &Problem) -> f64 {
    problem.width as f64 * problem.height as f64 * problem.planes as f64
}

/// Results, and those that are made beside them where a row is no multiple of a tile of so many
/// values.
pub(super) fn in_tiles(problem: &Problem, tile: usize) -> f64 {
    (problem.width * problem.planes).next_multiple_of(tile) as f64 * problem.height as f64
}

/// How many bands of rows a picture has under a window of so many rows.
pub(super) fn bands(problem: &Problem, rows: usize, threads: usize) -> usize {
    problem.height.div_ceil(band(problem.height, rows, 1, threads))
}

/// How many rectangles a picture is cut into, and how many of them lie one below the other.
pub(super) fn rectangles(problem: &Problem, threads: usize) -> (usize, usize) {
    if threads == 1 {
        return (1, 1);
    }
    let values = problem.width * problem.planes;
    let strips = values.div_ceil(strip_values(problem.rows));
    let bands = problem.height.div_ceil(band(problem.height, problem.rows, strips, threads));
    (bands * strips, bands)
}

/// Nanoseconds for a result to resolve the uncertain ones after sums in this order of so many taps
/// and of so many columns, or for exact passes instead.
pub(super) fn resolving(problem: &Problem, order: Order, taps: f64, columns: usize) -> f64 {
    let Some(rounding) = problem.rounding else { return 0.0 };
    let columns = rounding.left(order).map(|left| (columns * problem.rows, left));
    let resolving = Resolving::new(
        (problem.cols, problem.rows),
        problem.planes,
        (taps, rounding.forms.exact_taps),
        columns,
    );
    (rounding.share(order) * resolving.alone()).min(resolving.per_result)
}

/// Nanoseconds for a value to be converted to f32, and from it.
pub(super) fn conversion(problem: &Problem) -> f64 {
    let of = |scalar: Scalar| match scalar {
        Scalar::U8 => 0.0,
        Scalar::U16 | Scalar::F32 => 0.04,
        Scalar::F16 => 0.2,
    };
    of(problem.source) + of(problem.target)
}
