//! Filters: taps with an anchor, and what is known about them.

use crate::{Error, Result};

/// A window of taps and its anchor.
///
/// Output `(x, y)` is the sum over rows `r` and columns `c` of `tap(r, c) * input(x + c - anchor_x, y + r - anchor_y)`:
/// correlation, as OpenCV's `filter2D` and SciPy's `correlate`. [`Filter::flipped`] gives true convolution.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    cols: usize,
    rows: usize,
    anchor: (usize, usize),
    taps: Taps,
}

/// Taps are kept in f64; kernels compute with each rounded to f32.
#[derive(Clone, Debug, PartialEq)]
enum Taps {
    /// Row by row; the filter does not separate.
    Dense(Vec<f64>),
    /// Tap `(r, c)` is `column[r] * row[c]`.
    Separable { row: Vec<f64>, column: Vec<f64> },
}

impl Filter {
    /// The greatest number of tap columns and of tap rows.
    pub const MAX_EXTENT: usize = gpu_kernels::abi::MAX_EXTENT as usize;

    /// Tap columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Tap rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Column and row of the cell that lies on the output pixel.
    pub fn anchor(&self) -> (usize, usize) {
        self.anchor
    }

    /// Whether the taps are the product of a column and a row.
    pub fn is_separable(&self) -> bool {
        matches!(self.taps, Taps::Separable { .. })
    }

    /// The row and the column whose product the taps are, if they are one.
    pub fn separated(&self) -> Option<(&[f64], &[f64])> {
        match &self.taps {
            Taps::Separable { row, column } => Some((row, column)),
            Taps::Dense(_) => None,
        }
    }

    /// The tap in row `row` and column `col`.
    ///
    /// # Panics
    /// If there is none.
    pub fn tap(&self, row: usize, col: usize) -> f64 {
        match &self.taps {
            Taps::Dense(taps) => taps[row * self.cols + col],
            Taps::Separable { row: across, column } => column[row] * across[col],
        }
    }

    /// All taps as kernels use them, row by row.
    pub(crate) fn dense_f32(&self) -> Result<Vec<f32>> {
        let mut taps = crate::memory::reserve(self.cols.saturating_mul(self.rows))?;
        for row in 0..self.rows {
            taps.extend((0..self.cols).map(|col| self.tap(row, col) as f32));
        }
        Ok(taps)
    }

    /// Taps given row by row.
    ///
    /// # Errors
    /// [`Error::TapCount`] unless there are `cols * rows` of them.
    pub fn from_taps(cols: usize, rows: usize, taps: &[f32]) -> Result<Self> {
        let taps: Vec<f64> = taps.iter().map(|&tap| f64::from(tap)).collect();
        if taps.len() != cols * rows || taps.is_empty() {
            return Err(Error::TapCount { cols, rows, expected: cols * rows, found: taps.len() });
        }
        Ok(Self { cols, rows, anchor: (cols / 2, rows / 2), taps: Taps::Dense(taps) })
    }
}
