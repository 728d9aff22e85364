//! Which code makes bytes of bytes. Results are the same, so this is a matter of time alone; it
//! follows from the filter, the border and the picture's size, and a family that a plan prefers
//! decides what these leave open.

use super::boxes::{self, Mean};
use super::{LONG_ROW, smooth};
use crate::filter::OfBytes;
use crate::filter::whole::WholeTaps;
use crate::window::Window;
use crate::{Family, Variant, round};

/// A way to make bytes of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// One tap, looked up in a table.
    Table,
    /// Symmetric rows and columns of a few taps, in 16 bits; so many taps on either side of the
    /// middle.
    Smooth(usize),
    /// A mean of equal taps: pixels are added up as whole numbers. Whether they are few.
    Counted { few: bool },
    /// The terms of a sum, each by its row and column.
    Terms,
    /// A row and a column, or one of them.
    Passes,
    /// Spectra.
    Spectra,
    /// Tap by tap.
    Dense,
}

impl Way {
    /// The variant that does the same on a GPU.
    pub(crate) fn variant(self) -> Variant {
        match self {
            Self::Table | Self::Dense => Variant::DirectNaive,
            Self::Smooth(_) | Self::Terms | Self::Passes => Variant::Separable,
            Self::Counted { .. } => Variant::RunningSums,
            Self::Spectra => Variant::Fourier,
        }
    }

    /// Why nothing else makes the bytes.
    pub(crate) fn why(self) -> &'static str {
        match self {
            Self::Table => "one tap over bytes is a table of 256 results",
            Self::Smooth(_) => {
                "a few symmetric taps over bytes are summed up in 16 bits, by rows and columns"
            }
            Self::Counted { .. } => "equal taps over bytes are counted, as running sums of pixels",
            Self::Terms => "a sum of products over bytes goes by their rows and columns",
            Self::Passes => "a row or a column of taps over bytes is a pass in whole numbers",
            Self::Spectra => "so many taps over bytes go by spectra",
            Self::Dense => "these taps over bytes are taken one by one",
        }
    }
}

/// What of a filter and a border decides the way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Ways {
    cols: usize,
    rows: usize,
    /// Whether it is a mean of equal taps.
    is_mean: bool,
    /// Whether it is a mean of a few pixels, which are counted in 16 bits.
    mean_of_few: bool,
    /// See [`Way::Smooth`].
    smooth: Option<usize>,
    is_sum: bool,
    is_separable: bool,
    /// Whether a row and a column define the bytes.
    is_product: bool,
    /// Whether sums by spectra in f64 can decide a byte.
    spectra: bool,
}

impl Ways {
    pub(crate) fn new(OfBytes { whole, filter }: &OfBytes, window: &Window) -> Self {
        let (is_sum, is_separable) = (filter.sum().is_some(), filter.is_separable());
        let mean = Mean::new(whole);
        let is_table = matches!(whole.taps, WholeTaps::Table(_));
        Self {
            cols: filter.cols(),
            rows: filter.rows(),
            is_mean: mean.is_some(),
            mean_of_few: mean.is_some_and(|mean| mean.is_of_few(window)),
            smooth: smooth::smooth_reach(filter, window),
            is_sum,
            is_separable,
            is_product: is_separable && !is_table,
            spectra: !is_sum && round::spectra_decide(filter),
        }
    }

    /// The way for a picture of so many pixels and channels, in this family's order where that is
    /// open.
    pub(crate) fn way(&self, family: Family, pixels: usize, channels: usize) -> Way {
        let is_counted = self.is_mean && boxes::counts(self.cols, self.rows, pixels);
        let few = is_counted && self.mean_of_few;
        let (is_line, is_short_row) =
            (self.cols.min(self.rows) == 1, self.rows == 1 && self.cols < LONG_ROW);
        match (self.smooth, family) {
            _ if self.cols * self.rows == 1 => Way::Table,
            (Some(reach), _) if channels <= smooth::CHANNELS && !few => Way::Smooth(reach),
            _ if is_counted => Way::Counted { few },
            _ if self.is_sum => Way::Terms,
            // A single column too, as uncertain results are decided from the lines in the ring; and
            // a single row, for whole numbers.
            _ if self.is_separable && (family == Family::Separable || is_line && !is_short_row) => {
                Way::Passes
            }
            // Passes decide a product's bytes in any picture, and take less time.
            (_, Family::Fourier) if self.is_product => Way::Passes,
            (_, Family::Fourier) if self.spectra => Way::Spectra,
            _ => Way::Dense,
        }
    }
}
