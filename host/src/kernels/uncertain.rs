//! Which results a kernel's f32 sums leave uncertain where bytes are made of bytes, and what
//! decides them then.

use super::whole::few;
use crate::Filter;
use crate::round::{self, Order};

/// What decides a byte on a GPU, where a kernel tests the f32 sums and another one settles what is
/// in doubt.
#[derive(Clone, Debug)]
pub(crate) struct Uncertainty {
    /// A sum whose distance from an integer is at least this is in doubt; `None` if no sum ever is.
    pub(crate) near: Option<f32>,
    /// The share of results that are in doubt if sums are spread evenly.
    share: f64,
    /// The least share of results that the list has room for.
    least: f64,
    /// When exact passes compute all results, if they ever do.
    pub(crate) passes: Option<Exactly>,
}

/// When exact passes compute all results: see `passes.rs`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Exactly {
    /// In place of an estimate.
    Always,
    /// If more than this share of an estimate's results are uncertain.
    Beyond(f64),
}

impl Uncertainty {
    /// No result is in doubt.
    pub(crate) const NONE: Self = Self { near: None, share: 0.0, least: 0.0, passes: None };

    /// For a filter's f32 sums over bytes, in this order.
    pub(crate) fn new(filter: &Filter, order: Order) -> Self {
        let (error, tame) = match filter.sum() {
            Some(sum) if order == Order::TwoPasses => round::errors_of_terms(filter, sum),
            _ => round::errors(filter, order),
        };
        let near = round::limit(error, tame);
        let ties = round::ties(filter);
        let share = (2.0 * error).min(1.0).max(ties);
        let passes = near.and(exactly(filter, share));
        Self { near, share, least: least_listed(filter, ties), passes }
    }

    /// For the sums of a filter's taps as whole numbers, over bytes and no other value, of which
    /// such a share is in doubt.
    pub(crate) fn of_whole(filter: &Filter, share: f64) -> Self {
        if share == 0.0 {
            return Self::NONE;
        }
        let ties = round::ties(filter);
        // Kernels know for themselves which sums are in doubt.
        let share = share.max(ties);
        Self {
            near: Some(1.0),
            share,
            least: least_listed(filter, ties),
            passes: few(filter).map(Exactly::Beyond),
        }
    }

    /// Places of each of so many segments of a list for so many results: four times those expected,
    /// and those of [`least_listed`].
    pub(crate) fn places(&self, results: usize, segments: usize) -> u32 {
        const MOST: f64 = 16384.0;
        let evenly = results as f64 / segments as f64;
        ((4.0 * self.share).max(self.least) * evenly + 64.0).min(evenly + 4.0).min(MOST) as u32
    }
}

/// When exact passes compute the results of estimates that leave such a share uncertain.
fn exactly(filter: &Filter, share: f64) -> Option<Exactly> {
    let few = few(filter)?;
    Some(if share > few { Exactly::Always } else { Exactly::Beyond(few) })
}

/// The share of results that a list has room for at least, so that it is seldom too short: pictures
/// have areas where all is in doubt.
fn least_listed(filter: &Filter, ties: f64) -> f64 {
    /// Of sums that are often ties: pictures of two values and gradients have many more.
    const TIES: f64 = 0.2;
    /// Of a row or a column of taps: where pixels are the same along it, a result is one of 256,
    /// each of which is in doubt or not, wherever it comes.
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
