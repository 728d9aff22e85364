//! How far sums of light in f32 may be off.

use crate::{Filter, spectrum};

/// The relative error of one rounding to f32.
const UNIT_ROUNDOFF: f64 = f32::EPSILON as f64 / 2.0;

/// How sums are made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Made {
    /// With at most so many roundings one after the other.
    InSteps(usize),
    /// By products of spectra, in tiles of at most `side` by `side` numbers or as many.
    BySpectra { side: f64 },
}

/// The error of a sum over the light of bytes, for the taps of a filter's view for bytes: relative
/// to the sum, and to the greatest light that it is made of. If `weighted`, of a quotient of two
/// such sums.
pub(crate) fn of_sums(view: &Filter, made: Made, weighted: bool) -> (f32, f32) {
    let (relative, absolute) = match made {
        Made::BySpectra { side } => {
            (0.0, 2.0 * UNIT_ROUNDOFF * spectrum::units(view.weight(), view.norm(), side))
        }
        Made::InSteps(steps) => {
            // A rounding for each step, for each factor of a tap, for a colour times alpha, and for
            // this bound; a quotient has twice as many.
            let steps = steps as f64 + 8.0;
            let roundings = if weighted { 2.0 * steps } else { steps };
            let gamma = roundings * UNIT_ROUNDOFF / (1.0 - (roundings * UNIT_ROUNDOFF).min(0.5));
            let weight = view.weight().max(view.sum().map_or(0.0, crate::filter::Sum::weight));
            if is_positive(view) { (gamma, 0.0) } else { (0.0, gamma * weight) }
        }
    };
    (relative as f32, absolute as f32)
}

/// Whether all taps are at least 0, so that sums err relative to themselves.
fn is_positive(view: &Filter) -> bool {
    let positive = |taps: &[f64]| taps.iter().all(|&tap| tap >= 0.0);
    match (view.sum(), view.separated()) {
        (Some(_), _) => false,
        (None, Some((row, column))) => positive(row) && positive(column),
        (None, None) => {
            (0..view.rows()).all(|row| (0..view.cols()).all(|col| view.tap(row, col) >= 0.0))
        }
    }
}
