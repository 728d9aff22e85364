//! What of a filter and a border decides by which method bytes are made of bytes.

use super::boxes::mean::Mean;
use super::exact;
use super::smooth::numbers::Smooth;
use crate::filter::ByteFilter;
use crate::filter::whole::WholeTaps;
use crate::round;
use crate::window::Window;

/// The forms that a filter has, as far as a method takes them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Forms {
    pub(super) cols: usize,
    pub(super) rows: usize,
    /// Whether it is a mean of equal taps.
    pub(super) is_mean: bool,
    /// Whether it is a mean of a few pixels, which are counted in 16 bits.
    pub(super) mean_of_few: bool,
    /// The taps to each side of the middle, if it is a symmetric row and column of a few.
    pub(super) smooth: Option<usize>,
    pub(super) is_sum: bool,
    pub(super) is_separable: bool,
    /// Whether a row and a column define the bytes.
    pub(super) is_product: bool,
    /// Whether sums by spectra in f64 can decide a byte.
    pub(super) spectra: bool,
    /// Taps of exact passes for a result.
    pub(crate) exact_taps: f64,
}

impl Forms {
    pub(crate) fn new(ByteFilter { whole, filter }: &ByteFilter, window: &Window) -> Self {
        let (is_sum, is_separable) = (filter.sum().is_some(), filter.is_separable());
        let mean = Mean::new(whole);
        let is_table = matches!(whole.taps, WholeTaps::Table(_));
        Self {
            cols: filter.cols(),
            rows: filter.rows(),
            is_mean: mean.is_some(),
            mean_of_few: mean.is_some_and(|mean| mean.is_of_few(window)),
            smooth: Smooth::new(filter, window).map(|smooth| smooth.reach),
            is_sum,
            is_separable,
            is_product: is_separable && !is_table,
            spectra: !is_sum && round::spectra_decide(filter),
            exact_taps: exact::taps_taken(whole) as f64,
        }
    }
}
