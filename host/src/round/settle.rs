//! The sum in f64 that decides a result in doubt: first in the fastest order; then, if the order could change the result, in the order
//! that defines it.

use std::ops::Range;

use gpu_kernels::border::KEEP;

use super::passes::{Passes, Ring};
use crate::image::ImageView;
use crate::simd::{Isa, Lanes, Work};
use crate::window::Window;
use crate::{Filter, Result};

/// The most taps for which a separable filter's results are defined by the sum over all of them.
pub(super) const MAX_WINDOW: usize = 1 << 16;

/// Columns of a window that are summed in parallel lanes.
const LANES: usize = 16;

/// Computes results in f64.
pub(super) struct Settler<'a> {
    src: ImageView<'a, u8>,
    filter: &'a Filter,
    window: Window,
    outside: f64,
    /// The greatest difference between f64 sums in different orders.
    reordering: f64,
    /// Two passes, if they are faster or define the result.
    pub(super) passes: Option<Passes<'a>>,
    /// Whether the two passes define the result, rather than estimate it.
    pub(super) defined_by_passes: bool,
    /// The rows of taps, or the row whose multiples they are, as they lie on the pixels of an interleaved row: with zeros
    /// on the other channels.
    spread: Vec<f64>,
}

/// Memory for one pixel's computation.
#[derive(Default)]
pub(super) struct Scratch {
    /// The pixel of the row that each tap column reads.
    columns: Vec<Option<usize>>,
    /// The pixels under a row of taps.
    values: Vec<f64>,
    ring: Ring,
}

impl<'a> Settler<'a> {
    /// For f32 sums with an error of at most `error`, and f64 sums that depend on the order by at most `reordering`.
    pub(super) fn new(
        src: ImageView<'a, u8>,
        filter: &'a Filter,
        window: Window,
        error: f64,
        reordering: f64,
    ) -> Result<Self> {
        let mut settler = Self {
            src,
            filter,
            window,
            outside: f64::from(window.border_value),
            reordering,
            passes: None,
            defined_by_passes: false,
            spread: if error == 0.0 { Vec::new() } else { spread(filter, src.shape().channels)? },
        };
        if let (None, Some((row, column))) = (filter.dense_f64(), filter.separated()) {
            let (cols, rows) = (filter.cols(), filter.rows());
            settler.defined_by_passes = error != 0.0 && cols * rows > MAX_WINDOW;
            // The share of pixels in doubt is that within the error of a boundary. A tap costs three times as much
            // there as in a pass.
            let one_by_one = (2.0 * error).min(1.0) * cols as f64 * rows as f64;
            if settler.defined_by_passes || 3.0 * one_by_one > (cols + rows) as f64 {
                settler.passes = Some(Passes { src, window, row, column });
            }
        }
        Ok(settler)
    }

    /// Prepares for rows of these columns, from top to bottom.
    pub(super) fn begin(&self, columns: &Range<usize>, scratch: &mut Scratch) -> Result<()> {
        match &self.passes {
            Some(passes) => scratch.ring.begin(passes, columns),
            None => Ok(()),
        }
    }

    /// As [`Settler::result`], in vectors if that gives the same result.
    pub(super) fn fast_result(&self, isa: Isa, x: usize, y: usize, channel: usize, scratch: &mut Scratch) -> f64 {
        match isa.run(Estimate { settler: self, x, y, channel }) {
            Some(estimate) if self.settles(estimate) => estimate,
            _ => self.result(x, y, channel, scratch),
        }
    }

    /// The result in f64.
    pub(super) fn result(&self, x: usize, y: usize, channel: usize, scratch: &mut Scratch) -> f64 {
        let (shape, window) = (self.src.shape(), &self.window);
        if window.border == KEEP && (window.leaves_columns(x, shape.width) || window.leaves_rows(y, shape.height)) {
            return f64::from(self.src.row(y)[x * shape.channels + channel]);
        }
        if let Some(passes) = &self.passes {
            let result = scratch.ring.pixel(passes, x, y, channel);
            if self.defined_by_passes || self.settles(result) {
                return result;
            }
        }
        let column = |col| window.column(x, col, shape.width).map(|source| source * shape.channels + channel);
        scratch.columns.clear();
        scratch.columns.extend((0..window.cols).map(column));
        if self.passes.is_none() {
            let estimate = self.window_sum(y, scratch, |sum, row, values| sum + self.row_sum(row, values));
            if self.settles(estimate) {
                return estimate;
            }
        }
        self.window_sum(y, scratch, |mut sum, row, values| {
            for (col, value) in values.iter().enumerate() {
                sum += self.filter.tap(row, col) * value;
            }
            sum
        })
    }

    /// Whether sums in every order round to the same result as this one.
    fn settles(&self, estimate: f64) -> bool {
        let clamped = estimate.clamp(0.0, 255.0);
        (clamped - clamped.round_ties_even()).abs() < 0.5 - self.reordering
    }

    /// Goes through the window over row `y`, a row at a time; its columns are in `scratch`.
    fn window_sum(&self, y: usize, scratch: &mut Scratch, mut add: impl FnMut(f64, usize, &[f64]) -> f64) -> f64 {
        let mut sum = 0.0;
        for row in 0..self.window.rows {
            scratch.values.clear();
            match self.window.row(y, row, self.src.shape().height) {
                Some(source) => {
                    let source = self.src.row(source);
                    let value = |column: &Option<usize>| column.map_or(self.outside, |at| f64::from(source[at]));
                    scratch.values.extend(scratch.columns.iter().map(value));
                }
                None => scratch.values.resize(scratch.columns.len(), self.outside),
            }
            sum = add(sum, row, &scratch.values);
        }
        sum
    }

    /// A row of taps times the pixels under it, in the fastest order.
    fn row_sum(&self, row: usize, values: &[f64]) -> f64 {
        match (self.filter.dense_f64(), self.filter.separated()) {
            (None, Some((across, column))) => column[row] * dot(across, values),
            (Some(taps), _) => dot(&taps[row * values.len()..][..values.len()], values),
            (None, None) => unreachable!("a filter has its taps or their factors"),
        }
    }
}

/// Rounds half to even and saturates.
pub(super) fn nearest(value: f64) -> u8 {
    value.round_ties_even() as u8
}

fn dot(taps: &[f64], values: &[f64]) -> f64 {
    const LANES: usize = 8;
    let mut sums = [0.0; LANES];
    let (taps_chunks, values_chunks) = (taps.chunks_exact(LANES), values.chunks_exact(LANES));
    let rest: f64 = taps_chunks.remainder().iter().zip(values_chunks.remainder()).map(|(tap, value)| tap * value).sum();
    for (taps, values) in taps_chunks.zip(values_chunks) {
        for ((sum, tap), value) in sums.iter_mut().zip(taps).zip(values) {
            *sum += tap * value;
        }
    }
    sums.iter().sum::<f64>() + rest
}

/// See [`Settler::spread`]. Empty if that would take too much memory.
fn spread(filter: &Filter, channels: usize) -> Result<Vec<f64>> {
    let taps = match (filter.dense_f64(), filter.separated()) {
        (None, Some((row, _))) => row,
        (taps, _) => taps.unwrap_or_default(),
    };
    let cols = filter.cols();
    let len = (cols * channels).next_multiple_of(LANES);
    if len * (taps.len() / cols) > MAX_WINDOW {
        return Ok(Vec::new());
    }
    let mut spread = crate::memory::zeroed(len * (taps.len() / cols))?;
    for (spread, taps) in spread.chunks_exact_mut(len).zip(taps.chunks_exact(cols)) {
        spread.iter_mut().step_by(channels).zip(taps).for_each(|(spread, &tap)| *spread = tap);
    }
    Ok(spread)
}

/// A pixel's result in f64, in the fastest order; `None` if its window is too near the image's edge.
struct Estimate<'a> {
    settler: &'a Settler<'a>,
    x: usize,
    y: usize,
    channel: usize,
}

impl Work for Estimate<'_> {
    type Output = Option<f64>;

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> Option<f64> {
        let Settler { src, filter, spread, .. } = self.settler;
        let shape = src.shape();
        let (anchor_x, anchor_y) = filter.anchor();
        let (x, y) = (self.x.checked_sub(anchor_x)?, self.y.checked_sub(anchor_y)?);
        let first = x * shape.channels + self.channel;
        let len = (filter.cols() * shape.channels).next_multiple_of(LANES);
        let inside = first + len <= shape.row_len() && y + filter.rows() <= shape.height;
        if !inside || spread.is_empty() || self.settler.passes.is_some() {
            return None;
        }
        let under = |row: usize, chunk: usize| src.row(y + row)[first + chunk..].first_chunk::<LANES>();
        let mut sum = 0.0;
        for chunk in (0..len).step_by(LANES) {
            let mut sums = [0.0; LANES];
            match (filter.dense_f64(), filter.separated()) {
                (None, Some((_, column))) => {
                    for (row, &tap) in column.iter().enumerate() {
                        // SAFETY: this is in a `Work`.
                        unsafe { L::add_products(&mut sums, &[tap; LANES], under(row, chunk)?) }
                    }
                    sums.iter_mut().zip(&spread[chunk..]).for_each(|(sum, tap)| *sum *= tap);
                }
                _ => {
                    for (row, taps) in spread.chunks_exact(len).enumerate() {
                        // SAFETY: as above.
                        unsafe { L::add_products(&mut sums, taps[chunk..].first_chunk()?, under(row, chunk)?) }
                    }
                }
            }
            sum += sums.iter().sum::<f64>();
        }
        Some(sum)
    }
}
