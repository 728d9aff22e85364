//! When exact passes take over from results that are resolved one by one.

use super::frame::STRIP;

/// The part of the time that an exact rectangle takes longer by which it adds to what f32 has
/// gained: so f32 is tried again now and then.
pub(super) const RETRY: f64 = 1.0 / 16.0;

/// How long it takes to be sure of uncertain results.
#[derive(Clone, Copy)]
pub(crate) struct Resolving {
    /// Nanoseconds that an exact pass takes longer for a result.
    pub(crate) per_result: f64,
    /// Nanoseconds to resolve a result, after the sum by columns if there is one.
    per_uncertain: f64,
    /// Nanoseconds for a sum by columns, of a result and those beside it.
    per_sum: f64,
}

impl Resolving {
    /// For a window, channels that are side by side, and the taps that a result takes in f32 and in
    /// exact passes. Where a column pass in f64 over the rows in the ring comes first, `columns`
    /// are its taps, and the part of uncertain results that it leaves uncertain.
    pub(crate) fn new(
        (cols, rows): (usize, usize),
        channels: usize,
        (taps, exact_taps): (f64, f64),
        columns: Option<(usize, f64)>,
    ) -> Self {
        let from = |bytes: usize| if bytes > CACHE { FAR } else { 1.0 };
        let under = cols * rows * channels;
        let by_window = from(under) * RESOLVED_TAP * under as f64 + RESOLVED;
        let column_tap = from(rows * STRIP) * COLUMN_TAP;
        let (per_sum, left) =
            columns.map_or((0.0, 1.0), |(taps, left)| (column_tap * taps as f64, left));
        let per_result = PASS_TAP * (2.0 * exact_taps - taps).max(0.0);
        Self { per_result, per_uncertain: left * by_window, per_sum }
    }

    /// Nanoseconds to resolve a result with no other beside it.
    pub(crate) fn alone(&self) -> f64 {
        self.per_sum + self.per_uncertain
    }
}

/// How many results of a rectangle may be resolved one by one before exact passes go on.
///
/// They take over when this has taken as long as it would have taken to compute all exactly from
/// the start, so at worst a rectangle takes twice the time of the better way.
#[derive(Clone, Copy)]
pub(super) struct Allowance {
    resolving: Resolving,
    /// What is left, in nanoseconds.
    pub(super) left: f64,
}

impl Allowance {
    /// Where exact passes have so many taps before their last one.
    pub(super) fn new(resolving: Resolving, taps_before: usize) -> Self {
        // The lines under the window are made again.
        let again = taps_before as f64 * PASS_TAP * (STRIP / 4) as f64;
        Self { resolving, left: 2.0 * again }
    }

    /// Counts results, uncertain ones, and the sums by columns that are taken for them. Says
    /// whether these are still to be resolved one by one.
    pub(super) fn covers(&mut self, results: usize, uncertain: usize, sums: usize) -> bool {
        let Resolving { per_result, per_uncertain, per_sum } = self.resolving;
        self.left +=
            per_result * results as f64 - per_uncertain * uncertain as f64 - per_sum * sums as f64;
        self.left >= 0.0
    }
}

/// Nanoseconds that a thread takes for a tap of a pass in f32; a pass in f64 takes about twice as
/// many.
const PASS_TAP: f64 = 0.03;

/// Nanoseconds for a tap of a column pass in f64 for a single result.
const COLUMN_TAP: f64 = 1.5;

/// Bytes that a core's own cache holds, and how much longer both take where the pixels do not fit.
const CACHE: usize = 1 << 20;
const FAR: f64 = 3.0;

/// Nanoseconds for a tap of a result that is resolved, other channels' values between taps
/// included, and for the result itself.
const RESOLVED_TAP: f64 = 0.09;
const RESOLVED: f64 = 100.0;
