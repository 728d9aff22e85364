//! Which results a kernel's f32 sums leave uncertain where bytes are made of bytes, and what decides them then.

use crate::round::{self, Order};
use crate::window::Window;
use crate::{Border, Filter};

/// What decides a byte on a GPU, where a kernel tests the f32 sums and another one settles what is in doubt.
#[derive(Clone, Debug)]
pub(crate) struct Uncertainty {
    /// A sum whose distance from an integer is at least this is in doubt; `None` if no sum ever is.
    pub(crate) near: Option<f32>,
    /// The greatest difference between f64 sums in two orders.
    pub(crate) reordering: f64,
    /// The share of results that are in doubt if sums are spread evenly.
    share: f64,
    /// The least share of results that the list has room for.
    least: f64,
    /// Whether sums are often exact ties, whatever the pixels.
    pub(crate) ties: bool,
    /// Whether pixels are counted, so that ties alone are in doubt.
    pub(crate) counted: bool,
    /// The two passes in f64 that take the place of the f32 sums, if they do.
    pub(crate) passes: Option<InPasses>,
}

/// Two passes in f64 on a GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InPasses {
    /// Whether such sums define the bytes, each product and each sum rounded.
    pub(crate) defined: bool,
    /// How far fused ones may be from the sums that do.
    pub(crate) error: f64,
}

impl Uncertainty {
    /// No result is in doubt.
    pub(crate) const NONE: Self =
        Self { near: None, reordering: 0.0, share: 0.0, least: 0.0, ties: false, counted: false, passes: None };

    /// For a filter's f32 sums over bytes, in this order.
    pub(crate) fn new(filter: &Filter, border: Border, order: Order) -> Self {
        let window = Window::new(filter, border);
        // Two passes of a sum are those of its terms.
        let summed = order == Order::TwoPasses && filter.sum().is_some();
        let order = if summed { Order::Terms } else { order };
        let (error, reordering, tame) = round::errors(filter, &window, order);
        let near = round::limit(error, tame);
        let ties = round::ties(filter);
        let share = (2.0 * error).min(1.0).max(ties);
        let (cols, rows) = (filter.cols(), filter.rows());
        let in_order = if summed { Order::Terms } else { Order::TwoPasses };
        let in_passes =
            near.is_some() && (summed || round::is_product(filter) && round::passes_are_better(share, cols, rows));
        let defined = in_passes && round::is_product(filter) && round::passes_define(cols, rows);
        let passes = in_passes.then(|| InPasses {
            defined,
            error: round::error_of_passes(filter, &window, (defined, in_order), reordering),
        });
        // Of sums in f64, few are in doubt but ties; and where passes define the bytes, those are not listed if they are many.
        let ties = if defined { 0.0 } else { ties };
        let share = if in_passes { share.min(0.01).max(ties) } else { share };
        Self { near, reordering, share, least: least_listed(filter, ties), ties: ties > 0.0, counted: false, passes }
    }

    /// The share of results that are in doubt if sums are spread evenly.
    pub(crate) fn share(&self) -> f64 {
        self.share
    }

    /// For the sums of a filter's taps as whole numbers, over bytes and no other value, of which such a share is in doubt; `counted` where pixels are, and ties
    /// alone are in doubt.
    pub(crate) fn of_whole(filter: &Filter, share: f64, counted: bool) -> Self {
        if share == 0.0 {
            return Self::NONE;
        }
        let ties = round::ties(filter);
        // Kernels know for themselves which sums are in doubt.
        let (share, reordering, least) = (share.max(ties), round::reordering(filter), least_listed(filter, ties));
        Self { near: Some(1.0), reordering, share, least, ties: ties > 0.0, counted, passes: None }
    }

    /// Places of each of so many segments of a list for so many results: four times those expected, and those of [`least_listed`].
    pub(crate) fn places(&self, results: usize, segments: usize) -> u32 {
        const MOST: f64 = 16384.0;
        let evenly = results as f64 / segments as f64;
        ((4.0 * self.share).max(self.least) * evenly + 64.0).min(evenly + 4.0).min(MOST) as u32
    }
}

/// The share of results that a list has room for at least, so that it is seldom too short: pictures have areas where all is in doubt.
fn least_listed(filter: &Filter, ties: f64) -> f64 {
    /// Of sums that are often ties: pictures of two values and gradients have many more.
    const TIES: f64 = 0.2;
    /// Of a row or a column of taps: where pixels are the same along it, a result is one of 256, each of which is in doubt or not, wherever it comes.
    const LINE: f64 = 0.06;
    const LEAST: f64 = 0.01;
    if ties > 0.0 {
        TIES
    } else if filter.cols() == 1 || filter.rows() == 1 {
        LINE
    } else {
        LEAST
    }
}
