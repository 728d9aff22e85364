//! A filter's window over an image: the pixel that each tap reads, inside the image and outside.

use std::ops::Range;

use gpu_kernels::border as rule;

use crate::image::{ImageView, Pixel, Shape};
use crate::{Border, Filter};

/// The window's size and anchor, and the code of the border rule in the kernels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) cols: usize,
    pub(crate) rows: usize,
    pub(crate) anchor_x: usize,
    pub(crate) anchor_y: usize,
    pub(crate) border: u32,
    pub(crate) border_value: f32,
    /// Results that differ from the pixel by less become the pixel.
    pub(crate) least_change: f32,
}

impl Window {
    pub(crate) fn new(filter: &Filter, border: Border) -> Self {
        let (border, border_value) = border.code();
        let (anchor_x, anchor_y) = filter.anchor();
        Self {
            cols: filter.cols(),
            rows: filter.rows(),
            anchor_x,
            anchor_y,
            border,
            border_value,
            least_change: filter.least_change() as f32,
        }
    }

    /// The image column that tap column `col` reads for the result in column `x`; `None` for the
    /// border's constant.
    pub(crate) fn column(&self, x: usize, col: usize, width: usize) -> Option<usize> {
        resolve(self.border, x + col, self.anchor_x, width)
    }

    /// The image row that tap row `row` reads for the result in row `y`; `None` for the border's
    /// constant.
    pub(crate) fn row(&self, y: usize, row: usize, height: usize) -> Option<usize> {
        resolve(self.border, y + row, self.anchor_y, height)
    }

    /// Whether the window of the result in column `x` extends beyond the left or the right edge.
    pub(crate) fn leaves_columns(&self, x: usize, width: usize) -> bool {
        rule::leaves(x as i32 - self.anchor_x as i32, self.cols as i32, width as i32)
    }

    /// Whether the window of the result in row `y` extends beyond the upper or the lower edge.
    pub(crate) fn leaves_rows(&self, y: usize, height: usize) -> bool {
        rule::leaves(y as i32 - self.anchor_y as i32, self.rows as i32, height as i32)
    }

    /// Copies source pixels to the results of row `y` that are not computed: channels from
    /// `filtered` on, pixels that the border copies, and those that results hardly change. `part`
    /// holds the columns `columns` of the row.
    pub(crate) fn restore<S: Pixel, D: Pixel>(
        &self,
        src: &ImageView<'_, S>,
        filtered: usize,
        columns: &Range<usize>,
        y: usize,
        part: &mut [D],
    ) {
        let Shape { width, height, channels } = src.shape();
        let row = &src.row(y)[columns.start * channels..columns.end * channels];
        let copy = |out: &mut [D], row: &[S]| {
            out.iter_mut().zip(row).for_each(|(out, value)| *out = D::from_f32(value.to_f32()));
        };
        if self.least_change > 0.0 {
            for (out, value) in part.iter_mut().zip(row) {
                let change = (out.to_f32() - value.to_f32()).abs();
                *out = if change < self.least_change { D::from_f32(value.to_f32()) } else { *out };
            }
        }
        if filtered < channels {
            for (out, row) in part.chunks_exact_mut(channels).zip(row.chunks_exact(channels)) {
                copy(&mut out[filtered..], &row[filtered..]);
            }
        }
        if rule::copies(self.border) {
            let inside = self.anchor_x..(width + self.anchor_x + 1).saturating_sub(self.cols);
            let (left, right) = match self.leaves_rows(y, height) || inside.is_empty() {
                true => (columns.end, columns.end),
                false => (
                    inside.start.clamp(columns.start, columns.end),
                    inside.end.clamp(columns.start, columns.end),
                ),
            };
            let (left, right) =
                ((left - columns.start) * channels, (right - columns.start) * channels);
            copy(&mut part[..left], &row[..left]);
            copy(&mut part[right..], &row[right..]);
        }
    }
}

/// The index in `0..extent` that coordinate `position - anchor` reads; `None` for the border's
/// constant.
fn resolve(border: u32, position: usize, anchor: usize, extent: usize) -> Option<usize> {
    // Image and window sizes are at most 2^29, so the sums fit an i32.
    let coordinate = position as i32 - anchor as i32;
    usize::try_from(rule::resolve(border, coordinate, extent as i32)).ok()
}
