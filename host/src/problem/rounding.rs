//! What the time to round bytes made of bytes depends on.

use crate::cpu::forms::Forms;
use crate::round::{Bound, Order};
use crate::window::Window;
use crate::{Border, Filter};

/// What follows from a filter and a border for the rounding of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rounding {
    /// What decides by which code the CPU makes them.
    pub(crate) forms: Forms,
    /// Whether the taps add up to 1.
    pub(crate) keeps_levels: bool,
    /// For each [`Order`], the share of uncertain f32 sums if they are spread evenly.
    shares: [f64; Order::ALL.len()],
    /// The part of them that a column pass in f64 on the CPU leaves uncertain, where there is one.
    left: [Option<f64>; Order::ALL.len()],
}

impl Rounding {
    /// All zeros if there is no memory for the whole taps; then a call says so.
    pub(crate) fn new(filter: &Filter, border: Border) -> Self {
        /// The most taps that are gone through one by one, and where passes are faster anyway.
        const LIMIT: (usize, usize) = (1 << 24, 1 << 12);
        let Ok(of_bytes) = filter.byte_filter() else { return Self::default() };
        let view = &of_bytes.filter;
        let most = if view.is_separable() { LIMIT.1 } else { LIMIT.0 };
        let bound = |order: Order| {
            let one_by_one = matches!(order, Order::TapByTap | Order::ByRows);
            let is_long = one_by_one && view.cols() * view.rows() > most;
            (!is_long).then(|| Bound::of(view, order))
        };
        let bounds = Order::ALL.map(bound);
        Self {
            forms: Forms::new(of_bytes, &Window::new(view, border)),
            keeps_levels: (view.sum_of_taps() - 1.0).abs() < 1e-6,
            shares: bounds.map(|bound| bound.map_or(1.0, Bound::share)),
            left: bounds.map(|bound| bound.and_then(Bound::left)),
        }
    }

    /// Of the sums by spectra in f32 on the CPU, the share that is uncertain, if they can decide.
    pub(crate) fn by_spectra(&self) -> Option<f64> {
        Some(self.share(Order::LargeSpectra)).filter(|&share| share < 1.0)
    }

    /// The part of uncertain results in this order that a column pass in f64 on the CPU leaves so,
    /// where there is one.
    pub(crate) fn left(&self, order: Order) -> Option<f64> {
        self.left[order as usize]
    }

    /// The share of f32 sums in this order that are uncertain if they are spread evenly.
    pub(crate) fn share(&self, order: Order) -> f64 {
        self.shares[order as usize]
    }
}
