//! Filters: taps with an anchor, and the factors of separable ones.

mod factor;
mod facts;
pub(crate) mod parameters;
mod presets;
mod scaled;
mod syntax;
mod table;
mod view;
pub(crate) mod whole;

pub use factor::RowAndColumn;
pub(crate) use factor::lowest_bit;

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use self::factor::Factors;
use self::facts::Facts;
use self::whole::Whole;
use crate::{Error, Result};

/// A window of taps and its anchor.
///
/// Output `(x, y)` is the sum over rows `r` and columns `c` of
/// `tap(r, c) * input(x + c - anchor_x, y + r - anchor_y)`: correlation, as OpenCV's `filter2D` and
/// SciPy's `correlate`. [`Filter::flipped`] gives true convolution. The anchor is the cell that
/// lies on the output pixel: the middle, `(cols / 2, rows / 2)`, unless [`Filter::anchored`] sets
/// another.
///
/// A filter comes from taps ([`Filter::from_taps`], [`Filter::separable`], [`Filter::parse_taps`]),
/// from a preset ([`Filter::gaussian`] and others) or from text, as on the command line:
///
/// ```
/// use apron::Filter;
///
/// let blur = Filter::gaussian(1.5)?;
/// assert_eq!((blur.cols(), blur.rows(), blur.is_separable()), (13, 13, true));
///
/// let edges: Filter = "laplacian:neighbours=8".parse()?;
/// assert_eq!(edges, Filter::from_taps(3, 3, &[1., 1., 1., 1., -8., 1., 1., 1., 1.])?);
/// # Ok::<(), apron::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Filter {
    cols: usize,
    rows: usize,
    anchor: (usize, usize),
    taps: Taps,
    /// The preset as text, while the taps are the preset's.
    preset: Option<String>,
    /// The taps as a sum of products, known to the preset or found in the taps.
    sum: Option<Sum>,
    /// Results that differ from the pixel by less become the pixel.
    least_change: f64,
    /// Integer taps for images of bytes whose results are bytes; computed on first use.
    bytes: OnceLock<Arc<ByteFilter>>,
    facts: Facts,
}

/// A filter for images of bytes whose results are bytes.
#[derive(Debug)]
pub(crate) struct ByteFilter {
    /// The integer taps whose exact sums are the results.
    pub(crate) whole: Whole,
    /// The same taps in f64: see [`Whole`].
    pub(crate) filter: Filter,
}

/// A value that depends on a filter alone: see [`Filter::fact`].
pub(crate) trait Fact: Send + Sync + Sized + 'static {
    /// Computes it.
    fn of(filter: &Filter) -> Self;
}

/// Products of rows and columns that add up to a filter's taps, up to rounding in f64.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sum {
    /// Added to the tap in the middle of the window, cell `(cols / 2, rows / 2)`.
    pub(crate) point: f64,
    /// Rows and columns, each as long as the window's.
    pub(crate) terms: Vec<RowAndColumn>,
    /// Whether the filter was made from this sum. If so, the sum decides the result bytes.
    pub(crate) is_given: bool,
}

impl Sum {
    /// `sum |tap|` of all terms.
    pub(crate) fn weight(&self) -> f64 {
        let sum = |taps: &[f64]| taps.iter().map(|tap| tap.abs()).sum::<f64>();
        self.point.abs()
            + self.terms.iter().map(|(row, column)| sum(row) * sum(column)).sum::<f64>()
    }
}

/// The form in which a filter was given. For bytes in and bytes out, the form decides the integer
/// taps: see [`Filter::form`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Form<'a> {
    /// Taps row by row, whether or not they are also a product.
    Table(&'a [f64]),
    /// Tap `(r, c)` is `column[r] * row[c]`.
    Product {
        /// One tap for each column of the window.
        row: &'a [f64],
        /// One tap for each row of the window.
        column: &'a [f64],
    },
    /// A sum of products, plus the pixel times a factor: unsharp masks, Laplacians of Gaussians and
    /// differences of Gaussians.
    Sum {
        /// The factor of the pixel under the middle of the window, cell `(cols / 2, rows / 2)`.
        point: f64,
        /// Rows and columns, each as long as the window's.
        terms: &'a [RowAndColumn],
    },
}

/// Taps are kept in f64; kernels use them rounded to f32.
#[derive(Clone, Debug, PartialEq)]
enum Taps {
    /// Taps row by row, as given, and their factors if the filter is separable.
    Dense { taps: Vec<f64>, factors: Option<Factors> },
    /// Tap `(r, c)` is `column[r] * row[c]`.
    Product(Factors),
}

/// Filters are equal if they compute the same: the same taps in the same form, the same anchor, and
/// the same terms where the taps are computed as a sum of products. A filter's name and its
/// constructor do not count.
impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        (self.cols, self.rows, self.anchor) == (other.cols, other.rows, other.anchor)
            && self.taps == other.taps
            && self.sum() == other.sum()
            && self.given_sum() == other.given_sum()
            && self.least_change == other.least_change
    }
}

/// Taps are finite, so each filter equals itself.
impl Eq for Filter {}

/// Equal filters have equal hashes: 0 and -0 are equal taps.
impl Hash for Filter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Python hashes the filters of a batch at each call: an operation or two for each tap.
        let mixed = |taps: &[f64]| {
            taps.iter().fold(0u64, |mixed, tap| {
                (mixed.rotate_left(5) ^ (tap + 0.0).to_bits()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            })
        };
        match &self.taps {
            Taps::Dense { taps, .. } => mixed(taps).hash(state),
            Taps::Product(Factors { row, column }) => (mixed(row), mixed(column)).hash(state),
        }
        // The terms are not hashed. They follow from the taps, except for presets that bring their
        // own: such a filter may share its hash with another.
        (self.cols, self.rows, self.anchor).hash(state);
    }
}

impl Filter {
    /// The largest number of tap columns, and of tap rows.
    pub const MAX_EXTENT: usize = gpu_kernels::abi::MAX_EXTENT as usize;

    /// The least difference between a result and the pixel: results that differ less become the
    /// pixel. 0 but for [`Filter::unsharp_above`].
    pub fn least_change(&self) -> f64 {
        self.least_change
    }

    /// The tolerance for factoring a table of taps, relative to the greatest |tap|: 2⁻²³, one unit
    /// in the last place of an f32.
    ///
    /// A table counts as the product of a row and a column if no tap differs from that product by
    /// more. A table that was computed as a product and rounded to f32 passes. The error of the
    /// two-pass result stays within f32 rounding.
    ///
    /// The same tolerance holds for the sum of two products. Such sums are not looked for if the
    /// taps are small integer multiples of one number, so that sums over bytes are exact tap by
    /// tap.
    pub const SEPARABLE_TOLERANCE: f64 = factor::TOLERANCE;

    /// A filter from taps given row by row. The constructor detects whether they are the product of
    /// a row and a column. It also detects the sum of two such products where that sum takes much
    /// less arithmetic (see [`Filter::SEPARABLE_TOLERANCE`]).
    ///
    /// # Errors
    /// [`Error::TapCount`] unless there are `cols * rows` taps; [`Error::Parameter`] if `cols` or
    /// `rows` is not in `1..=MAX_EXTENT` or a tap is not finite.
    pub fn from_taps(cols: usize, rows: usize, taps: &[f32]) -> Result<Self> {
        Self::dense(cols, rows, widened(taps)?)
    }

    /// As [`Filter::from_taps`], for taps in double precision. Kernels use each tap rounded to f32.
    /// For bytes in and bytes out, results are exact sums over these taps, each rounded to an
    /// integer of at most 45 bits over one divisor: see [`Filter::form`].
    ///
    /// # Errors
    /// As [`Filter::from_taps`], and if a tap is too great for an f32.
    pub fn from_taps_f64(cols: usize, rows: usize, taps: &[f64]) -> Result<Self> {
        Self::dense(cols, rows, copied(taps)?)
    }

    /// A filter from a row and a column: tap `(r, c)` is `column[r] * row[c]`.
    ///
    /// ```
    /// let sobel = apron::Filter::separable(&[-1.0, 0.0, 1.0], &[1.0, 2.0, 1.0])?;
    /// assert_eq!(sobel, apron::Filter::sobel_x());
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Parameter`] if `row` or `column` is empty or longer than [`Filter::MAX_EXTENT`], or
    /// if a tap or a product of two taps is not finite or too great for an f32.
    pub fn separable(row: &[f32], column: &[f32]) -> Result<Self> {
        Self::product(widened(row)?, widened(column)?)
    }

    /// As [`Filter::separable`], for taps in double precision.
    ///
    /// # Errors
    /// As [`Filter::separable`].
    pub fn separable_f64(row: &[f64], column: &[f64]) -> Result<Self> {
        Self::product(copied(row)?, copied(column)?)
    }

    /// The same taps with another anchor, the cell that lies on the output pixel: column `x`, row
    /// `y`.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless `x` is below the number of columns and `y` below the number of
    /// rows.
    pub fn anchored(mut self, x: usize, y: usize) -> Result<Self> {
        if x >= self.cols || y >= self.rows {
            return Err(Error::Parameter {
                name: "anchor",
                value: format!("{x},{y}"),
                expected: format!(
                    "a cell of the {}x{} window, from 0,0 to {},{}",
                    self.cols,
                    self.rows,
                    self.cols - 1,
                    self.rows - 1
                ),
            });
        }
        self.anchor = (x, y);
        self.forget_facts();
        Ok(self)
    }

    /// The filter and its anchor rotated by 180 degrees. Correlation with the rotated filter is
    /// true convolution with the original, as in SciPy's `convolve`.
    #[must_use]
    pub fn flipped(mut self) -> Self {
        self.anchor = (self.cols - 1 - self.anchor.0, self.rows - 1 - self.anchor.1);
        self.forget_facts();
        if self.is_symmetric() {
            return self;
        }
        match &mut self.taps {
            Taps::Dense { taps, factors } => {
                taps.reverse();
                if let Some(Factors { row, column }) = factors {
                    row.reverse();
                    column.reverse();
                }
            }
            Taps::Product(Factors { row, column }) => {
                row.reverse();
                column.reverse();
            }
        }
        self.preset = None;
        // Found again rather than reversed, so that the terms equal those of a filter made from
        // these taps.
        self.sum = self.found_sum();
        self
    }

    /// Whether the taps and the terms of their sum are the same after rotation by 180 degrees.
    fn is_symmetric(&self) -> bool {
        let same = |taps: &[f64]| taps.iter().eq(taps.iter().rev());
        let pair = |row: &[f64], column: &[f64]| same(row) && same(column);
        let taps = match &self.taps {
            Taps::Dense { taps, factors } => {
                same(taps) && factors.iter().all(|it| pair(&it.row, &it.column))
            }
            Taps::Product(factors) => pair(&factors.row, &factors.column),
        };
        taps && self.sum.iter().flat_map(|sum| &sum.terms).all(|(row, column)| pair(row, column))
    }

    /// Tap columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Tap rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Column and row of the cell that lies on the output pixel, from 0.
    pub fn anchor(&self) -> (usize, usize) {
        self.anchor
    }

    /// The form in which the filter was given. A table whose factors were detected stays a table.
    ///
    /// For bytes in and bytes out, the form decides the result. The taps become integers over one
    /// divisor. A result is the exact sum of taps times bytes over that divisor, rounded half to
    /// even and saturated. Integer sums are exact in any order, so a result does not depend on the
    /// order of summation.
    ///
    /// 1. A mean: every tap is k/d rounded to f64, for integers k and one d of at most 65,536, the
    ///    least that fits. Failing that, all taps are the same 1/d rounded to f64, for an integer d
    ///    of at most 2^45; or the same k/d rounded to f32, for d of at most 65,536. The integer
    ///    taps are the k, and the divisor is d. A product is a mean if its row and its column are.
    /// 2. A product, or a sum of products and the pixel itself: the row is `round-half-even(t 2^a)`
    ///    with the greatest a for which `sum |r| <= 2^37`. The column uses b likewise. An integer
    ///    tap is the exact product, and the divisor is `2^(a + b)`. All terms of a sum share a and
    ///    b, the least over the terms. If the pixel's factor exceeds `2^(74 - a - b)`, b is
    ///    reduced.
    /// 3. A table: `round-half-even(t 2^s)` with the greatest s for which `255 sum |w| <= 2^53`.
    ///
    /// `t` is the tap in f64. A mean counts only if its k satisfy the limit of their form:
    /// `255 sum |k| <= 2^53` for a table, `sum |k| <= 2^37` for a row and for a column.
    ///
    /// ```
    /// use apron::{Filter, Form};
    ///
    /// assert!(matches!(Filter::gaussian(2.0)?.form(), Form::Product { .. }));
    /// assert!(matches!(Filter::unsharp(2.0, 0.5)?.form(), Form::Sum { .. }));
    /// let table = Filter::from_taps(3, 3, &[1.0; 9])?;
    /// assert!(table.is_separable() && matches!(table.form(), Form::Table(_)));
    /// # Ok::<(), apron::Error>(())
    /// ```
    pub fn form(&self) -> Form<'_> {
        match (&self.taps, self.given_sum()) {
            (_, Some(Sum { point, terms, .. })) => Form::Sum { point: *point, terms },
            (Taps::Product(Factors { row, column }), None) => Form::Product { row, column },
            (Taps::Dense { taps, .. }, None) => Form::Table(taps),
        }
    }

    /// Whether the taps are the product of a row and a column.
    pub fn is_separable(&self) -> bool {
        self.factors().is_some()
    }

    /// The row and the column whose product gives the taps, if the filter is separable.
    pub fn separated(&self) -> Option<(&[f64], &[f64])> {
        self.factors().map(|factors| (&factors.row[..], &factors.column[..]))
    }

    /// The sum that computes the filter, if the filter is not separable but a sum of products is
    /// much less arithmetic. Returns the point, which is added to the tap on the output pixel, and
    /// the terms: rows and columns whose products add up to the other taps.
    /// [`Family::Separable`](crate::Family::Separable) gives the order of the sums.
    ///
    /// ```
    /// use apron::Filter;
    ///
    /// let unsharp = Filter::unsharp(2.0, 0.5)?;
    /// let (centre, terms) = unsharp.summed().map(|(centre, all)| (centre, all.len())).unwrap();
    /// assert_eq!((centre, terms), (1.5, 1));
    /// assert!(Filter::gaussian(2.0)?.summed().is_none());
    /// # Ok::<(), apron::Error>(())
    /// ```
    pub fn summed(&self) -> Option<(f64, &[RowAndColumn])> {
        self.sum().map(|sum| (sum.point, &sum.terms[..]))
    }

    fn factors(&self) -> Option<&Factors> {
        match &self.taps {
            Taps::Dense { factors, .. } => factors.as_ref(),
            Taps::Product(factors) => Some(factors),
        }
    }

    /// The taps row by row, if they are stored; a product stores only its factors.
    pub(crate) fn dense_f64(&self) -> Option<&[f64]> {
        match &self.taps {
            Taps::Dense { taps, .. } => Some(taps),
            Taps::Product(_) => None,
        }
    }

    /// A number of which all taps are integer multiples, up to rounding in f64, if an f32 holds the
    /// multiples exactly.
    #[cfg(feature = "gpu")]
    pub(crate) fn unit(&self) -> Option<f64> {
        match &self.taps {
            Taps::Dense { taps, .. } => factor::common_divisor(taps),
            Taps::Product(Factors { row, column }) => {
                Some(factor::common_divisor(row)? * factor::common_divisor(column)?)
            }
        }
    }

    /// The sum of products, if the filter has one, is not separable, and the sum is much less
    /// arithmetic. A sum with a point needs the anchor in the middle, where the point is added.
    pub(crate) fn sum(&self) -> Option<&Sum> {
        let here = |sum: &&Sum| sum.point == 0.0 || self.anchor == (self.cols / 2, self.rows / 2);
        self.sum
            .as_ref()
            .filter(here)
            .filter(|sum| !self.is_separable() && self.is_worth(sum.terms.len()))
    }

    /// The sum of products that the filter was made from.
    fn given_sum(&self) -> Option<&Sum> {
        self.sum.as_ref().filter(|sum| sum.is_given)
    }

    /// A value that depends on the filter alone, computed on first use and kept with the filter.
    pub(crate) fn fact<T: Fact>(&self) -> Arc<T> {
        self.facts.get(|| T::of(self))
    }

    /// Drops cached values. Called wherever taps or the anchor change.
    fn forget_facts(&mut self) {
        (self.bytes, self.facts) = (OnceLock::new(), Facts::default());
    }

    /// The filter for bytes in and bytes out, computed on first use.
    pub(crate) fn byte_filter(&self) -> Result<&ByteFilter> {
        if self.bytes.get().is_none() {
            let whole = self.whole()?;
            let filter = whole.view(self);
            _ = self.bytes.set(Arc::new(ByteFilter { whole, filter }));
        }
        Ok(self.bytes.get().expect("it was set"))
    }

    /// The integer taps for bytes in and bytes out.
    fn whole(&self) -> Result<Whole> {
        match self.form() {
            Form::Table(taps) => Whole::of_table(taps),
            Form::Product { row, column } => Ok(Whole::of_product(row, column)),
            Form::Sum { point, terms } => {
                let terms: Vec<_> =
                    terms.iter().map(|(row, column)| (&row[..], &column[..])).collect();
                Ok(Whole::of_sum(point, &terms))
            }
        }
    }

    /// Two products that add up to a table of taps, if they are much less arithmetic.
    fn found_sum(&self) -> Option<Sum> {
        let (None, Some(taps), true) = (self.factors(), self.dense_f64(), self.is_worth(2)) else {
            return None;
        };
        let terms = factor::two_products(self.cols, self.rows, taps)?;
        // Terms that cancel each other would lose precision of the taps.
        let near = |sum: &Sum| sum.weight() <= 4.0 * self.weight();
        Some(Sum { point: 0.0, terms: terms.into(), is_given: false }).filter(near)
    }

    /// The rows and columns whose products the separable family adds up: one pair if the filter is
    /// separable, otherwise the terms of its sum.
    pub(crate) fn products(&self) -> Vec<(&[f64], &[f64])> {
        let of_sum = || {
            self.sum()
                .into_iter()
                .flat_map(|sum| &sum.terms)
                .map(|(row, column)| (&row[..], &column[..]))
        };
        self.separated().map_or_else(|| of_sum().collect(), |pair| vec![pair])
    }

    /// Whether `terms` products of a row and a column are much less arithmetic than all taps.
    fn is_worth(&self, terms: usize) -> bool {
        2 * terms * (self.cols + self.rows) < self.cols.saturating_mul(self.rows)
    }

    /// The tap in row `row` and column `col`.
    ///
    /// # Panics
    /// If `row` or `col` is outside the window.
    pub fn tap(&self, row: usize, col: usize) -> f64 {
        assert!(
            row < self.rows && col < self.cols,
            "no tap ({row}, {col}) in {} rows of {}",
            self.rows,
            self.cols
        );
        match &self.taps {
            Taps::Dense { taps, .. } => taps[row * self.cols + col],
            Taps::Product(factors) => factors.column[row] * factors.row[col],
        }
    }

    /// `sum |tap|`.
    pub(crate) fn weight(&self) -> f64 {
        let sum = |taps: &[f64]| taps.iter().map(|tap| tap.abs()).sum::<f64>();
        match &self.taps {
            Taps::Dense { taps, .. } => sum(taps),
            Taps::Product(factors) => sum(&factors.row) * sum(&factors.column),
        }
    }

    /// `sum tap`.
    pub(crate) fn sum_of_taps(&self) -> f64 {
        let sum = |taps: &[f64]| taps.iter().sum::<f64>();
        match &self.taps {
            Taps::Dense { taps, .. } => sum(taps),
            Taps::Product(factors) => sum(&factors.row) * sum(&factors.column),
        }
    }

    /// The filter with each tap's magnitude. It has a row and a column if this filter has.
    pub(crate) fn magnitudes(&self) -> Result<Self> {
        let magnitudes = |taps: &[f64]| -> Result<Vec<f64>> {
            let mut all = crate::memory::reserve(taps.len())?;
            all.extend(taps.iter().map(|tap| tap.abs()));
            Ok(all)
        };
        let (x, y) = self.anchor;
        match self.separated() {
            Some((row, column)) => Self::product(magnitudes(row)?, magnitudes(column)?),
            None => Self::dense(self.cols, self.rows, magnitudes(self.dense_f64().unwrap_or(&[]))?),
        }?
        .anchored(x, y)
    }

    /// `sqrt(sum tap^2)`.
    pub(crate) fn norm(&self) -> f64 {
        let sum = |taps: &[f64]| taps.iter().map(|tap| tap * tap).sum::<f64>();
        match &self.taps {
            Taps::Dense { taps, .. } => sum(taps).sqrt(),
            Taps::Product(factors) => (sum(&factors.row) * sum(&factors.column)).sqrt(),
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

    fn dense(cols: usize, rows: usize, taps: Vec<f64>) -> Result<Self> {
        check_extents(cols, rows)?;
        let expected = cols.saturating_mul(rows);
        if taps.len() != expected {
            return Err(Error::TapCount { cols, rows, expected, found: taps.len() });
        }
        if let Some(index) = taps.iter().position(|&tap| !fits_f32(tap)) {
            return Err(bad_tap(taps[index], index / cols, index % cols));
        }
        let factors = factor::factors(cols, rows, &taps)?;
        let mut filter = Self {
            cols,
            rows,
            anchor: (cols / 2, rows / 2),
            taps: Taps::Dense { taps, factors },
            preset: None,
            sum: None,
            least_change: 0.0,
            bytes: OnceLock::new(),
            facts: Facts::default(),
        };
        filter.sum = filter.found_sum();
        Ok(filter)
    }

    fn product(row: Vec<f64>, column: Vec<f64>) -> Result<Self> {
        let (cols, rows) = (row.len(), column.len());
        check_extents(cols, rows)?;
        if let Some(index) = row.iter().position(|&tap| !fits_f32(tap)) {
            return Err(bad_tap(row[index], 0, index));
        }
        if let Some(index) = column.iter().position(|&tap| !fits_f32(tap)) {
            return Err(bad_tap(column[index], index, 0));
        }
        let (c, r) = (factor::greatest(&row), factor::greatest(&column));
        if !fits_f32(row[c] * column[r]) {
            return Err(bad_tap(row[c] * column[r], r, c));
        }
        let taps = Taps::Product(Factors { row, column });
        Ok(Self {
            cols,
            rows,
            anchor: (cols / 2, rows / 2),
            taps,
            preset: None,
            sum: None,
            least_change: 0.0,
            bytes: OnceLock::new(),
            facts: Facts::default(),
        })
    }
}

fn check_extents(cols: usize, rows: usize) -> Result<()> {
    for (name, extent) in [("cols", cols), ("rows", rows)] {
        if extent == 0 || extent > Filter::MAX_EXTENT {
            return Err(Error::Parameter {
                name,
                value: extent.to_string(),
                expected: format!("1 to {}, the limit for a filter", Filter::MAX_EXTENT),
            });
        }
    }
    Ok(())
}

fn fits_f32(tap: f64) -> bool {
    (tap as f32).is_finite()
}

fn bad_tap(tap: f64, row: usize, col: usize) -> Error {
    Error::Parameter {
        name: "tap",
        value: format!("{tap:e} in row {row}, column {col}"),
        expected: format!("a finite number of magnitude at most {:e}", f32::MAX),
    }
}

fn widened(taps: &[f32]) -> Result<Vec<f64>> {
    let mut wide = crate::memory::reserve(taps.len())?;
    wide.extend(taps.iter().map(|&tap| f64::from(tap)));
    Ok(wide)
}

fn copied(taps: &[f64]) -> Result<Vec<f64>> {
    let mut copy = crate::memory::reserve(taps.len())?;
    copy.extend_from_slice(taps);
    Ok(copy)
}

/// Checks that the text of a filter, and of the flipped filter, parses to an equal filter.
#[cfg(test)]
fn reads_back(text: &str) {
    let read =
        |text: &str| text.parse::<Filter>().unwrap_or_else(|error| panic!("{text}: {error}"));
    let filter = read(text);
    let printed = filter.to_string();
    assert_eq!(read(&printed), filter, "{text} printed {printed}");
    assert_eq!(read(&printed).to_string(), printed);
    let flipped = filter.flipped();
    assert_eq!(read(&flipped.to_string()), flipped, "{text} flipped");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense(filter: &Filter) -> Vec<f64> {
        (0..filter.rows())
            .flat_map(|row| (0..filter.cols()).map(move |col| filter.tap(row, col)))
            .collect()
    }

    #[test]
    fn taps_are_checked() {
        for (cols, rows, len) in
            [(0, 3, 0), (3, 0, 0), (0, 0, 0), (usize::MAX, 2, 2), (2, Filter::MAX_EXTENT + 1, 2)]
        {
            let error = Filter::from_taps(cols, rows, &vec![1.0; len]).unwrap_err();
            assert!(matches!(error, Error::Parameter { .. }), "{error}");
        }
        for (cols, rows, len) in
            [(3, 3, 8), (3, 3, 10), (Filter::MAX_EXTENT, Filter::MAX_EXTENT, 1)]
        {
            let error = Filter::from_taps(cols, rows, &vec![1.0; len]).unwrap_err();
            assert!(matches!(error, Error::TapCount { found, .. } if found == len), "{error}");
        }
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let message = Filter::from_taps(2, 2, &[1.0, 1.0, bad, 1.0]).unwrap_err().to_string();
            assert!(message.contains("row 1, column 0"), "{message}");
            assert!(Filter::separable(&[1.0, bad], &[1.0]).is_err());
            assert!(Filter::separable(&[1.0], &[bad]).is_err());
        }
        assert!(Filter::from_taps_f64(1, 1, &[1e39]).is_err());
        assert!(Filter::from_taps_f64(1, 1, &[f64::from(f32::MAX)]).is_ok());
        assert!(Filter::separable(&[], &[1.0]).is_err());
        assert!(Filter::separable(&[1.0], &[]).is_err());
        assert!(Filter::separable(&[1e20, 0.0], &[1e20]).is_err());
    }

    #[test]
    fn anchors_are_cells_of_the_window() {
        let filter = Filter::box_filter(4, 3).unwrap();
        assert_eq!(filter.anchor(), (2, 1));
        assert_eq!(filter.clone().anchored(0, 2).unwrap().anchor(), (0, 2));
        assert_eq!(filter.clone().anchored(3, 0).unwrap().flipped().anchor(), (0, 2));
        assert!(filter.clone().anchored(4, 0).is_err());
        assert!(filter.anchored(0, 3).is_err());
    }

    #[test]
    fn flipping_turns_taps_and_anchor() {
        let whole = Filter::from_taps(3, 2, &[1., 2., 3., 4., 5., 7.]).unwrap();
        assert!(!whole.is_separable());
        let flipped = whole.clone().flipped();
        assert_eq!(dense(&flipped), [7., 5., 4., 3., 2., 1.]);
        assert_eq!(flipped.anchor(), (1, 0));
        assert_eq!(flipped.flipped(), whole);
        let product = Filter::from_taps(3, 2, &[1., 2., 3., 2., 4., 6.]).unwrap();
        assert!(product.is_separable());
        let flipped = product.flipped();
        assert_eq!(dense(&flipped), [6., 4., 2., 3., 2., 1.]);
        assert_eq!(flipped.separated(), Some((&[3., 2., 1.][..], &[2., 1.][..])));
    }

    fn hash(filter: &Filter) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        filter.hash(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn equal_filters_compute_the_same() {
        // Zeros of both signs, windows of one shape, rows and columns, anchors, and terms both from
        // presets and found in the taps.
        let mut filters = Vec::new();
        for taps in [[0.0, 1.0, 2.0], [-0.0, 1.0, 2.0], [0.0, 2.0, 1.0], [1.0, 2.0, 1.0]] {
            for (cols, rows) in [(3, 1), (1, 3)] {
                filters.extend((0..3).map(|at| {
                    let filter = Filter::from_taps(cols, rows, &taps).unwrap();
                    filter.anchored(at.min(cols - 1), at.min(rows - 1)).unwrap()
                }));
            }
            filters.push(Filter::separable(&taps, &[1.0]).unwrap());
            filters.push(Filter::separable(&taps, &taps).unwrap());
        }
        for text in
            ["unsharp:sigma=2", "log:sigma=2", "dog:sigma=1", "emboss", "motion:length=9,angle=30"]
        {
            let preset: Filter = text.parse().unwrap();
            let (cols, rows, (x, y)) = (preset.cols(), preset.rows(), preset.anchor());
            filters.push(Filter::from_taps_f64(cols, rows, &dense(&preset)).unwrap());
            filters.push(preset.clone().anchored(0, 0).unwrap());
            filters.push(preset.clone().anchored(0, 0).unwrap().anchored(x, y).unwrap());
            filters.push(preset.clone().flipped());
            filters.push(preset);
        }
        for one in &filters {
            for other in &filters {
                let form = |it: &Filter| matches!(it.taps, Taps::Dense { .. });
                let same = (one.cols, one.rows, one.anchor, form(one))
                    == (other.cols, other.rows, other.anchor, form(other))
                    && dense(one) == dense(other)
                    && one.separated() == other.separated()
                    && one.summed() == other.summed();
                assert_eq!(one == other, same, "{one} and {other}");
                assert!(!same || hash(one) == hash(other), "{one} and {other}");
            }
            let printed: Filter = one.to_string().parse().unwrap();
            assert_eq!(&printed, one);
        }
    }

    #[test]
    fn long_factors_need_no_product() {
        let taps = vec![1e-4f32; 200_000];
        let filter = Filter::separable(&taps, &taps).unwrap();
        assert_eq!((filter.cols(), filter.rows()), (200_000, 200_000));
        assert!(filter.is_separable());
        assert_eq!(filter.flipped().anchor(), (99_999, 99_999));
    }
}
