//! The sum in f64 that decides a result in doubt: first in the fastest order; then, if the order could change the result, in the order
//! that defines it.

use std::sync::OnceLock;

use gpu_kernels::border::KEEP;

use super::doubt::Doubt;
use crate::image::ImageView;
use crate::simd::{Isa, Lanes, Vector, Work};
use crate::window::Window;
use crate::{Border, Filter};

/// The most taps for which a separable filter's results are defined by the sum over all of them.
pub(super) const MAX_WINDOW: usize = 1 << 16;

/// Values under a window are summed in groups of so many.
const LANES: usize = 64;

/// The most values of [`Settler::spread`].
const MOST_SPREAD: usize = 1 << 20;

/// Computes single results of an 8-bit image in f64.
pub(crate) struct Settler<'a> {
    src: ImageView<'a, u8>,
    /// The channels that are filtered.
    filtered: usize,
    pub(super) filter: &'a Filter,
    pub(super) window: Window,
    outside: f64,
    /// Which f64 sums may round to another result in a different order.
    doubt: Doubt<f64>,
    /// Whether two passes define the result, rather than the sum over all taps.
    pub(super) defined_by_passes: bool,
    /// The rows of taps, or the row whose multiples they are, as they lie on the pixels of an interleaved row: with zeros
    /// on the other channels. Empty if that would take too much memory.
    spread: OnceLock<Vec<f64>>,
    /// For each value, the result where all pixels under the window have it.
    flat: [OnceLock<f64>; 256],
}

/// A thread's memory.
#[derive(Default)]
pub(crate) struct Scratch {
    /// The chunks of a row that hold results in doubt.
    pub(super) chunks: Vec<usize>,
    /// The row of results that `rows` are for.
    y: Option<usize>,
    /// The row of the image that each tap row reads, if none has the border's value.
    rows: Vec<usize>,
    /// The pixel of the row that each tap column reads.
    columns: Vec<Option<usize>>,
    /// The pixels under a row of taps.
    values: Vec<f64>,
}

impl<'a> Settler<'a> {
    /// For the first `filtered` channels of `src`.
    pub(crate) fn new(src: ImageView<'a, u8>, filtered: usize, filter: &'a Filter, border: Border) -> Self {
        let window = Window::new(filter, border);
        let product = filter.dense_f64().is_none();
        Self {
            src,
            filtered,
            filter,
            window,
            outside: f64::from(window.border_value),
            doubt: Doubt::new(super::bound::of_reordering(filter, super::greatest(&window))),
            defined_by_passes: product && filter.cols() * filter.rows() > MAX_WINDOW,
            spread: OnceLock::new(),
            flat: [const { OnceLock::new() }; 256],
        }
    }

    pub(super) fn greatest(&self) -> f64 {
        super::greatest(&self.window)
    }

    pub(super) fn channels(&self) -> usize {
        self.src.shape().channels
    }

    /// Whether f64 sums in every order round to the same result as this one.
    pub(super) fn settles(&self, sum: f64) -> bool {
        !self.doubt.about(sum)
    }

    /// The result at element `at` of a part of row `y` that begins at column `x`: at once by the sum that defines it, or first by a faster
    /// one. `None` in a channel that is not filtered.
    pub(super) fn settled(
        &self,
        isa: Isa,
        (x, y): (usize, usize),
        at: usize,
        by_definition: bool,
        scratch: &mut Scratch,
    ) -> Option<f64> {
        let (shape, window) = (self.src.shape(), &self.window);
        let (x, channel) = (x + at / shape.channels, at % shape.channels);
        if channel >= self.filtered {
            return None;
        }
        if window.border == KEEP && (window.leaves_columns(x, shape.width) || window.leaves_rows(y, shape.height)) {
            return Some(f64::from(self.src.row(y)[x * shape.channels + channel]));
        }
        let inside = if by_definition {
            None
        } else {
            {
                if scratch.y != Some(y) {
                    scratch.y = Some(y);
                    scratch.rows.clear();
                    scratch.rows.extend((0..window.rows).map_while(|row| window.row(y, row, shape.height)));
                }
                isa.run(Estimate { settler: self, x, rows: &scratch.rows, channel })
            }
        };
        if let Some(estimate) = inside.filter(|&estimate| self.settles(estimate)) {
            return Some(estimate);
        }
        let column = |col| window.column(x, col, shape.width).map(|source| source * shape.channels + channel);
        scratch.columns.clear();
        scratch.columns.extend((0..window.cols).map(column));
        if !by_definition && inside.is_none() {
            let estimate = self.window_sum(y, scratch, |sum, row, values| sum + self.row_sum(row, values));
            if self.settles(estimate) {
                return Some(estimate);
            }
        }
        Some(match self.one_value(y, scratch) {
            Some(value) => *self.flat[usize::from(value)].get_or_init(|| {
                scratch.values.clear();
                scratch.values.resize(window.cols, f64::from(value));
                (0..window.rows).fold(0.0, |sum, row| self.next_row(sum, row, &scratch.values))
            }),
            None => self.window_sum(y, scratch, |sum, row, values| self.next_row(sum, row, values)),
        })
    }

    /// The value of all pixels under the window over row `y`, if they have one and lie in the image; its columns are in `scratch`.
    fn one_value(&self, y: usize, scratch: &Scratch) -> Option<u8> {
        let row = |row| self.window.row(y, row, self.src.shape().height).map(|source| self.src.row(source));
        let value = row(0)?[(*scratch.columns.first()?)?];
        // The far corner first: most windows end there.
        let same = |at: usize| {
            row(at).is_some_and(|row| scratch.columns.iter().all(|column| column.is_some_and(|x| row[x] == value)))
        };
        (0..self.window.rows).rev().all(same).then_some(value)
    }

    /// Goes on with the sum that defines a result, by a row of the window.
    fn next_row(&self, mut sum: f64, row: usize, values: &[f64]) -> f64 {
        match (self.filter.dense_f64(), self.filter.separated()) {
            (None, Some((across, column))) if self.defined_by_passes => {
                sum + column[row] * across.iter().zip(values).fold(0.0, |sum, (tap, value)| sum + tap * value)
            }
            (None, Some((across, column))) => {
                let down = column[row];
                across.iter().zip(values).for_each(|(across, value)| sum += down * across * value);
                sum
            }
            (taps, _) => {
                let taps = &taps.unwrap_or_default()[row * values.len()..];
                taps.iter().zip(values).for_each(|(tap, value)| sum += tap * value);
                sum
            }
        }
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

/// See [`Settler::spread`].
fn spread(filter: &Filter, channels: usize) -> Vec<f64> {
    let taps = match (filter.dense_f64(), filter.separated()) {
        (None, Some((row, _))) => row,
        (taps, _) => taps.unwrap_or_default(),
    };
    let cols = filter.cols();
    let len = (cols * channels).next_multiple_of(LANES);
    if len * (taps.len() / cols) > MOST_SPREAD {
        return Vec::new();
    }
    let mut spread: Vec<f64> = crate::memory::zeroed(len * (taps.len() / cols)).unwrap_or_default();
    for (spread, taps) in spread.chunks_exact_mut(len).zip(taps.chunks_exact(cols)) {
        spread.iter_mut().step_by(channels).zip(taps).for_each(|(spread, &tap)| *spread = tap);
    }
    spread
}

/// A pixel's result in f64, in the fastest order; `None` if its window reaches, or nearly reaches, over the image's left or right edge, or
/// over pixels of the border's value.
struct Estimate<'a> {
    settler: &'a Settler<'a>,
    x: usize,
    rows: &'a [usize],
    channel: usize,
}

impl Work for Estimate<'_> {
    type Output = Option<f64>;

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> Option<f64> {
        let Settler { src, filter, window, .. } = self.settler;
        let shape = src.shape();
        let first = self.x.checked_sub(window.anchor_x)? * shape.channels + self.channel;
        let len = (filter.cols() * shape.channels).next_multiple_of(LANES);
        let spread = self.settler.spread.get_or_init(|| spread(filter, shape.channels));
        if first + len > shape.row_len() || spread.is_empty() || self.rows.len() < window.rows {
            return None;
        }
        let under = |row: usize, chunk: usize| src.row(row)[first + chunk..].first_chunk::<LANES>();
        const { assert!(LANES.is_multiple_of(W * L::Wide::LEN)) };
        let mut all = [0.0; LANES];
        // SAFETY: this is in a `Work`; every pointer is that of an array, or of a part of a row, of at least LANES values.
        unsafe {
            for chunk in (0..len).step_by(LANES) {
                for part in (0..LANES).step_by(W * L::Wide::LEN) {
                    let mut sums = [L::Wide::splat(0.0); W];
                    match (filter.dense_f64(), filter.separated()) {
                        (None, Some((_, column))) => {
                            for (&row, &tap) in self.rows.iter().zip(column) {
                                let bytes = under(row, chunk)?.as_ptr().add(part);
                                for (v, sum) in sums.iter_mut().enumerate() {
                                    let values = L::widen_bytes(bytes.add(v * L::Wide::LEN));
                                    *sum = values.mul_add(L::Wide::splat(tap), *sum);
                                }
                            }
                            for (v, sum) in sums.iter().enumerate() {
                                let at = part + v * L::Wide::LEN;
                                let taps = L::Wide::load(spread[chunk..].first_chunk::<LANES>()?.as_ptr().add(at));
                                let place = all.as_mut_ptr().add(at);
                                sum.mul_add(taps, L::Wide::load(place)).store(place);
                            }
                        }
                        _ => {
                            for (&row, taps) in self.rows.iter().zip(spread.chunks_exact(len)) {
                                let bytes = under(row, chunk)?.as_ptr().add(part);
                                let taps = taps[chunk..].first_chunk::<LANES>()?.as_ptr().add(part);
                                for (v, sum) in sums.iter_mut().enumerate() {
                                    let values = L::widen_bytes(bytes.add(v * L::Wide::LEN));
                                    *sum = values.mul_add(L::Wide::load(taps.add(v * L::Wide::LEN)), *sum);
                                }
                            }
                            for (v, sum) in sums.iter().enumerate() {
                                let place = all.as_mut_ptr().add(part + v * L::Wide::LEN);
                                L::Wide::load(place).add(*sum).store(place);
                            }
                        }
                    }
                }
            }
        }
        Some(all.iter().sum())
    }
}
