//! The oracle: a reference implementation that shares no code with the library, only its types.
//!
//! | item | what it computes |
//! | --- | --- |
//! | [`bytes`], [`bytes_weighted_by_alpha`], [`Whole`] | 8-bit results of 8-bit images: whole taps, exact sums |
//! | [`masked`], [`masked_bytes`] | sums over known pixels |
//! | [`correlate`] | a whole plane in f64, for results of other types |
//! | [`spots`], [`byte_spots`] | the same at up to a thousand pixels, for images that are too large to be computed as a whole |
//! | [`scalar`], [`Order`] | one plain f32 loop for each order of sums; every variant and study in that order must give the same bits |
//! | [`tolerance`] | the error bound of a result by spectra |
//!
//! Borders use no index formulas but whole periods: [`fold`] mirrors a coordinate until it lies in
//! the image, and [`Padded`] pads a plane before any sum.

mod masked;
pub mod scalar;
mod spot;
mod whole;

use apron::{Border, Family, Filter, RowAndColumn, Shape};
use multiversion::multiversion;

pub use crate::masked::{Weighted, masked, masked_bytes};
pub use crate::spot::{Layout, Wrong, byte_spots, spots};
pub use crate::whole::{
    Denominator, Made, Whole, WholeTaps, byte_at, bytes, bytes_of_image, bytes_weighted_by_alpha,
    takes_bytes,
};

/// A filter as numbers.
#[derive(Clone, Copy, Debug)]
pub struct Taps<'a> {
    /// Tap columns.
    pub cols: usize,
    /// Tap rows.
    pub rows: usize,
    /// Column and row of the anchor.
    pub anchor: (usize, usize),
    /// `cols * rows` taps, row by row.
    pub values: &'a [f64],
}

impl Taps<'_> {
    /// The sum of the absolute values of all taps.
    pub fn weight(&self) -> f64 {
        self.values.iter().map(|tap| tap.abs()).sum()
    }
}

/// Calls `use_them` with the numbers of a filter of the library. The oracle reads nothing else of
/// the filter.
pub fn with_taps<T>(filter: &Filter, use_them: impl FnOnce(Taps<'_>) -> T) -> T {
    let (cols, rows, anchor) = (filter.cols(), filter.rows(), filter.anchor());
    let values: Vec<_> = (0..cols * rows).map(|i| filter.tap(i / cols, i % cols)).collect();
    use_them(Taps { cols, rows, anchor, values: &values })
}

/// The form in which the separable family computes a filter: products of a row and a column, and a
/// factor for the pixel itself.
#[derive(Clone, Debug)]
pub struct Products<'a> {
    /// The factor of the pixel itself.
    pub centre: f64,
    /// Rows and columns.
    pub terms: Vec<(&'a [f64], &'a [f64])>,
}

impl<'a> Products<'a> {
    /// The products that the library takes for a filter; `None` if the filter neither separates nor
    /// is a sum of filters that do.
    pub fn of(filter: &'a Filter) -> Option<Self> {
        let one = filter.separated().map(|pair| Self { centre: 0.0, terms: vec![pair] });
        let sum = |(centre, terms): (f64, &'a [RowAndColumn])| Self {
            centre,
            terms: terms.iter().map(|(row, column)| (&row[..], &column[..])).collect(),
        };
        one.or_else(|| filter.summed().map(sum))
    }

    /// The sum of the absolute values of all taps, and the largest such sum of a row and of a
    /// column.
    pub fn weights(&self) -> (f64, f64, f64) {
        let sum = |taps: &[f64]| taps.iter().map(|tap| tap.abs()).sum::<f64>();
        let sums = || self.terms.iter().map(|(row, column)| (sum(row), sum(column)));
        let all = self.centre.abs() + sums().map(|(row, column)| row * column).sum::<f64>();
        (
            all,
            sums().map(|(row, _)| row).fold(0.0, f64::max),
            sums().map(|(_, column)| column).fold(0.0, f64::max),
        )
    }
}

/// The order of additions, which determines every bit of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// The order of [`Family::Direct`]: [`scalar::direct`].
    Direct,
    /// The order of [`Family::Separable`]: [`scalar::summed`].
    Separable,
    /// An order that only studies have: [`scalar::product`].
    Product,
}

impl Order {
    /// A family's order; `None` if the family promises none, as [`Family::Fourier`].
    ///
    /// # Panics
    /// If the family is not listed here.
    pub fn of(family: Family) -> Option<Self> {
        match family {
            Family::Direct => Some(Self::Direct),
            Family::Separable => Some(Self::Separable),
            Family::Fourier | Family::SpectraPasses => None,
            other => panic!("the oracle knows no order for {other:?}: add it here"),
        }
    }

    /// The name in tables and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Separable => "separable",
            Self::Product => "product",
        }
    }

    /// Filters a plane of `size` in this order. `products` is the filter's form for the separable
    /// family.
    ///
    /// # Panics
    /// If the order needs products, and there are none.
    pub fn filter(
        self,
        plane: &[f32],
        size: (usize, usize),
        taps: Taps,
        products: Option<&Products<'_>>,
        border: Border,
    ) -> Vec<f32> {
        let products = || products.expect("only a filter that separates is computed in this order");
        match self {
            Self::Direct => scalar::direct(plane, size, taps, border),
            Self::Separable => scalar::summed(plane, size, taps, products(), border),
            Self::Product => scalar::product(plane, size, taps, products().terms[0], border),
        }
    }

    /// As [`Order::filter`], for an image whose channels are interleaved.
    ///
    /// # Panics
    /// If the order needs a filter that separates, and this one does not.
    pub fn filter_image(
        self,
        src: &[f32],
        shape: Shape,
        filter: &Filter,
        border: Border,
    ) -> Vec<f32> {
        let Shape { width, height, channels } = shape;
        let mut dst = vec![0.0; src.len()];
        for channel in 0..channels {
            let plane: Vec<_> = src.iter().skip(channel).step_by(channels).copied().collect();
            let found = with_taps(filter, |taps| {
                self.filter(&plane, (width, height), taps, Products::of(filter).as_ref(), border)
            });
            dst.iter_mut()
                .skip(channel)
                .step_by(channels)
                .zip(found)
                .for_each(|(to, from)| *to = from);
        }
        dst
    }
}

/// The error bound of a result by spectra, in roundings. One rounding is half a unit in the last
/// place of the sum of |tap| times the greatest |pixel|: [`apron::Variant::Fourier`] states it.
pub const SPECTRAL_STEPS: usize = 16;

/// The largest error of a result by spectra, where no |pixel| exceeds `greatest`.
pub fn tolerance(taps: Taps, greatest: f64) -> f64 {
    SPECTRAL_STEPS as f64 * (f64::from(f32::EPSILON) / 2.0) * taps.weight() * greatest
}

/// The index in `0..n` that the border maps coordinate `i` to; `None` for the border's constant.
///
/// [`Border::Keep`] maps as [`Border::Replicate`]: the pixels that it copies never use this index
/// (see [`kept`]).
pub fn fold(border: Border, mut i: i64, n: usize) -> Option<usize> {
    let n = i64::try_from(n).expect("an extent fits i64");
    // Whole periods change nothing. Windows may be thousands of times wider than an image.
    i %= match border {
        Border::Wrap => n,
        Border::Reflect => 2 * n,
        Border::Reflect101 => 2 * (n - 1).max(1),
        Border::Constant(_) | Border::Replicate | Border::Keep | Border::None => i64::MAX,
    };
    while !(0..n).contains(&i) {
        let below = i < 0;
        i = match border {
            Border::Constant(_) | Border::None => return None,
            Border::Replicate | Border::Keep => i.clamp(0, n - 1),
            // The mirror is at the edge of the image: -1 maps to 0, n to n - 1.
            Border::Reflect => (if below { -1 } else { 2 * n - 1 }) - i,
            // The mirror is at the middle of the edge pixel. A single pixel maps to itself.
            Border::Reflect101 if n == 1 => 0,
            Border::Reflect101 => (if below { 0 } else { 2 * (n - 1) }) - i,
            Border::Wrap => i + if below { n } else { -n },
        };
    }
    Some(i as usize)
}

/// Whether [`Border::Keep`] copies the pixel at `position` along one axis, because the window there
/// leaves `0..extent`.
pub fn kept(position: usize, anchor: usize, len: usize, extent: usize) -> bool {
    position < anchor || position + (len - anchor) > extent
}

/// A plane padded by the border, so that the window of the result at `(x, y)` begins at `(x, y)` of
/// `data`.
#[derive(Debug)]
pub struct Padded<T> {
    /// Values, row by row.
    pub data: Vec<T>,
    /// Values in a row.
    pub width: usize,
}

impl<T: Copy> Padded<T> {
    /// Pads a plane of `width` by `height` values; `constant` is the value outside for
    /// [`Border::Constant`].
    pub fn new(
        plane: &[T],
        (width, height): (usize, usize),
        taps: Taps,
        border: Border,
        constant: T,
    ) -> Self {
        let axis = |anchor: usize, len: usize, extent: usize| -> Vec<Option<usize>> {
            (0..extent + len - 1).map(|i| fold(border, i as i64 - anchor as i64, extent)).collect()
        };
        let columns = axis(taps.anchor.0, taps.cols, width);
        let rows = axis(taps.anchor.1, taps.rows, height);
        let mut data = Vec::with_capacity(columns.len() * rows.len());
        for &row in &rows {
            data.extend(columns.iter().map(|&column| match (row, column) {
                (Some(row), Some(column)) => plane[row * width + column],
                _ => constant,
            }));
        }
        Self { data, width: columns.len() }
    }
}

/// The correlation of a plane with taps in f64: each product and each sum is rounded, as in SciPy's
/// `ndimage.correlate`.
pub fn correlate(
    plane: &[f64],
    (width, height): (usize, usize),
    taps: Taps,
    border: Border,
) -> Vec<f64> {
    let constant = f64::from(constant(border));
    let padded = Padded::new(plane, (width, height), taps, border, constant);
    let mut result = vec![0.0; width * height];
    for (y, sums) in result.chunks_mut(width).enumerate() {
        for (row, across) in taps.values.chunks(taps.cols).enumerate() {
            for (col, &tap) in across.iter().enumerate() {
                let values = &padded.data[(y + row) * padded.width + col..][..width];
                accumulate(tap, values, sums);
            }
        }
        if border == Border::Keep {
            keep(taps, y, (width, height), &plane[y * width..][..width], sums);
        }
    }
    result
}

#[multiversion(targets("x86_64+avx2"))]
fn accumulate(tap: f64, values: &[f64], sums: &mut [f64]) {
    for (sum, &value) in sums.iter_mut().zip(values) {
        *sum += tap * value;
    }
}

/// Copies the source values of row `y` to the results that [`Border::Keep`] leaves unfiltered.
pub(crate) fn keep<T: Copy>(
    taps: Taps,
    y: usize,
    (width, height): (usize, usize),
    row: &[T],
    sums: &mut [T],
) {
    let all = kept(y, taps.anchor.1, taps.rows, height);
    for x in 0..width {
        if all || kept(x, taps.anchor.0, taps.cols, width) {
            sums[x] = row[x];
        }
    }
}

/// The value of [`Border::Constant`]; 0 for other borders.
pub(crate) fn constant(border: Border) -> f32 {
    if let Border::Constant(value) = border { value as f32 } else { 0.0 }
}
