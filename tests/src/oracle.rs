//! The oracle: what a filter's result is, in f64, written without a line of the product.
//!
//! Borders are not index arithmetic here: a coordinate is folded back one step at a time until it lies in the image, and
//! the image is padded before anything is summed.

use apron::Border;

use crate::problem::Window;

/// Where coordinate `i` finds its pixel among `n`; `None` if the border's constant is there.
///
/// [`Border::Keep`] is answered as [`Border::Replicate`]: pixels that it concerns never use the answer (see [`kept`]).
pub fn fold(border: Border, mut i: i64, n: usize) -> Option<usize> {
    let n = i64::try_from(n).expect("an extent fits i64");
    while !(0..n).contains(&i) {
        let below = i < 0;
        i = match border {
            Border::Constant(_) => return None,
            Border::Replicate | Border::Keep => i + if below { 1 } else { -1 },
            // The mirror stands on the edge of the picture: -1 is 0's image, n is n - 1's.
            Border::Reflect => (if below { -1 } else { 2 * n - 1 }) - i,
            // The mirror stands on the middle of the edge pixel, and one pixel alone is its own image.
            Border::Reflect101 if n == 1 => 0,
            Border::Reflect101 => (if below { 0 } else { 2 * (n - 1) }) - i,
            Border::Wrap => i + if below { n } else { -n },
        };
    }
    Some(i as usize)
}

/// Whether [`Border::Keep`] copies the pixel at `position` along one axis, because the window there leaves `0..extent`.
pub fn kept(position: usize, anchor: usize, len: usize, extent: usize) -> bool {
    position < anchor || position + (len - anchor) > extent
}

/// A plane with what the border puts around it, so that the window at `(x, y)` begins at `(x, y)` of `data`.
#[derive(Debug)]
pub struct Padded<T> {
    /// Values, row by row.
    pub data: Vec<T>,
    /// Values in a row.
    pub width: usize,
}

impl<T: Copy> Padded<T> {
    /// Pads a plane of `width` by `height` values; `constant` is what [`Border::Constant`] puts outside.
    pub fn new(plane: &[T], (width, height): (usize, usize), window: &Window, border: Border, constant: T) -> Self {
        let axis = |anchor: usize, len: usize, extent: usize| -> Vec<Option<usize>> {
            (0..extent + len - 1).map(|i| fold(border, i as i64 - anchor as i64, extent)).collect()
        };
        let columns = axis(window.anchor.0, window.cols, width);
        let rows = axis(window.anchor.1, window.rows, height);
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

/// The correlation of a plane with the window's taps in f64: product by product, row by row, left to right, each product
/// and each sum rounded to f64. That is how SciPy's `ndimage.correlate` computes, and what an 8-bit result is defined by.
pub fn correlate(plane: &[f64], (width, height): (usize, usize), window: &Window, border: Border) -> Vec<f64> {
    let constant = if let Border::Constant(value) = border { f64::from(value) } else { 0.0 };
    let padded = Padded::new(plane, (width, height), window, border, constant);
    let mut result = vec![0.0; width * height];
    for (y, sums) in result.chunks_mut(width).enumerate() {
        for (row, taps) in window.taps.chunks(window.cols).enumerate() {
            for (col, &tap) in taps.iter().enumerate() {
                let values = &padded.data[(y + row) * padded.width + col..][..width];
                for (sum, &value) in sums.iter_mut().zip(values) {
                    *sum += tap * value;
                }
            }
        }
        if border == Border::Keep {
            keep(window, y, (width, height), &plane[y * width..][..width], sums);
        }
    }
    result
}

/// Puts row `y`'s source values where [`Border::Keep`] wants them.
pub(crate) fn keep<T: Copy>(window: &Window, y: usize, (width, height): (usize, usize), row: &[T], sums: &mut [T]) {
    let all = kept(y, window.anchor.1, window.rows, height);
    for x in 0..width {
        if all || kept(x, window.anchor.0, window.cols, width) {
            sums[x] = row[x];
        }
    }
}
