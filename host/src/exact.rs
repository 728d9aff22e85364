//! Correct rounding of 8-bit results.
//!
//! A kernel's f32 sum lies within a known distance of the sum in f64. An 8-bit result is in doubt only where a boundary
//! between two results, a half-integer, lies within that distance: there the pixel is computed again in f64, from the
//! source. So 8-bit pictures are the same from every variant and device, and the same as SciPy's `correlate` in f64,
//! rounded half to even and saturated.
//!
//! What "in f64" means where even that is a tie: each product and each sum rounded to f64, row by row, left to right. A
//! separable filter of more than [`MAX_WINDOW`] taps, where that could take hours, is defined by its two passes instead:
//! along the rows, then along the columns, in ascending order.

mod passes;

use std::ops::Range;

use gpu_kernels::border::{self as rule, CONSTANT, KEEP};

use crate::cpu::simd::{Isa, Lanes, Work};
use crate::filter::lowest_bit;
use crate::image::ImageView;
use crate::{Border, Family, Filter, Result, spectrum};
use passes::{Passes, Ring};

/// The most taps for which a separable filter's results are defined by the sum over all of them.
const MAX_WINDOW: usize = 1 << 16;

/// Columns of a window that are summed side by side.
const LANES: usize = 16;

/// Pixels that are tested together.
const CHUNK: usize = 64;

/// In which order the f32 sums were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// All taps after each other.
    TapByTap,
    /// The taps of each row after each other, then the rows.
    ByRows,
    /// A row pass, then a column pass.
    TwoPasses,
    /// None: the product of spectra.
    Spectra,
    /// None: pixels are summed up in whole numbers, and then multiplied with the tap that all are.
    Counted,
}

impl From<Family> for Order {
    fn from(family: Family) -> Self {
        match family {
            Family::Direct => Self::TapByTap,
            Family::Separable => Self::TwoPasses,
            Family::Fourier => Self::Spectra,
        }
    }
}

/// Rounds sums that `filter` and `border` made from `src`.
pub(crate) struct Exact<'a> {
    src: ImageView<'a, u8>,
    filter: &'a Filter,
    /// The channels that are filtered.
    channels: usize,
    order: Order,
    border: u32,
    outside: f64,
    doubt: Doubt,
    /// The greatest magnitude of a sum, and of a part of it.
    greatest: f64,
    /// How far sums in f64 of different order may lie apart.
    noise: f64,
    passes: Option<Passes<'a>>,
    /// The rows of taps, or the row whose multiples they are, as they lie on the pixels of an interleaved row: with zeros
    /// on the other channels.
    spread: Vec<f64>,
}

/// Memory for one pixel's computation.
#[derive(Default)]
pub(crate) struct Scratch {
    /// The chunks of a row that hold results in doubt.
    chunks: Vec<usize>,
    /// Where each tap column finds its pixel in the row.
    columns: Vec<Option<usize>>,
    /// What lies under a row of taps.
    values: Vec<f64>,
    ring: Ring,
}

impl<'a> Exact<'a> {
    /// For the first `channels` channels of `src`, summed in this order.
    pub(crate) fn new(
        src: ImageView<'a, u8>,
        channels: usize,
        filter: &'a Filter,
        border: Border,
        order: Order,
    ) -> Result<Self> {
        let (border, outside) = border.code();
        let outside = f64::from(outside);
        let greatest = if border == CONSTANT { outside.abs().max(255.0) } else { 255.0 };
        let noise = noise(filter, greatest);
        let error = kernel_error(filter, order, greatest, outside);
        let doubt = Doubt::new(if error == 0.0 { 0.0 } else { error + noise });
        let spread = if error == 0.0 { Vec::new() } else { spread(filter, src.shape().channels)? };
        let mut exact = Self {
            src,
            filter,
            channels,
            order,
            greatest: filter.weight() * greatest,
            border,
            outside,
            doubt,
            noise,
            passes: None,
            spread,
        };
        if let (None, Some((row, column))) = (filter.dense_f64(), filter.separated()) {
            // The share of pixels in doubt is what lies within the error of a boundary. A tap costs three times as much
            // there as in a pass.
            let one_by_one = (2.0 * exact.doubt.error).min(1.0) * filter.cols() as f64 * filter.rows() as f64;
            if exact.defined_by_passes() || 3.0 * one_by_one > (filter.cols() + filter.rows()) as f64 {
                exact.passes = Some(Passes { row, column });
            }
        }
        Ok(exact)
    }

    /// The order of the sums that it takes.
    pub(crate) fn order(&self) -> Order {
        self.order
    }

    /// Prepares for rows of these columns, from top to bottom.
    pub(crate) fn begin(&self, columns: &Range<usize>, scratch: &mut Scratch) -> Result<()> {
        match &self.passes {
            Some(passes) => scratch.ring.begin(self, passes, columns),
            None => Ok(()),
        }
    }

    /// Whether the two passes are not an estimate of the result in f64, but the result.
    fn defined_by_passes(&self) -> bool {
        self.doubt.error != 0.0
            && self.filter.dense_f64().is_none()
            && self.filter.cols() * self.filter.rows() > MAX_WINDOW
    }

    /// Stores row `y` of a channel's plane into every `src.channels`-th element of `out`.
    pub(crate) fn store(&self, plane_row: &[f32], channel: usize, y: usize, out: &mut [u8], scratch: &mut Scratch) {
        let channels = self.src.shape().channels;
        for (index, values) in plane_row.chunks(CHUNK).enumerate() {
            let first = index * CHUNK;
            let mut rounded = [0u8; CHUNK];
            let rounded = &mut rounded[..values.len()];
            if self.doubt.round(values, rounded) {
                for (offset, &value) in values.iter().enumerate() {
                    if self.doubt.about(value) {
                        rounded[offset] = nearest(self.pixel(first + offset, y, channel, scratch));
                    }
                }
            }
            let out = out[first * channels..].iter_mut().step_by(channels);
            out.zip(rounded).for_each(|(out, value)| *out = *value);
        }
    }

    /// The distance from an integer at which a sum is in doubt, if it is that simple: no sum is NaN, or too great for an
    /// `i32`.
    pub(crate) fn limit(&self) -> Option<f32> {
        let near = if self.doubt.error == 0.0 { 1.0 } else { self.doubt.near };
        let simple = near > 0.0 && self.greatest < 1e9 && !self.outside.is_nan();
        simple.then_some(near)
    }

    /// Stores the interleaved sums of a part of row `y`, from column `x` on.
    pub(crate) fn store_part(&self, isa: Isa, sums: &[f32], x: usize, y: usize, out: &mut [u8], scratch: &mut Scratch) {
        scratch.chunks.clear();
        isa.run(Round { doubt: &self.doubt, sums, out, chunks: &mut scratch.chunks });
        for index in 0..scratch.chunks.len() {
            let first = scratch.chunks[index];
            for (offset, &value) in sums[first..].iter().take(CHUNK).enumerate() {
                if self.doubt.about(value) {
                    self.settle(isa, x, y, first + offset, out, scratch);
                }
            }
        }
    }

    /// Stores what is right at element `at` of a part of row `y` that begins at column `x`.
    pub(crate) fn settle(&self, isa: Isa, x: usize, y: usize, at: usize, out: &mut [u8], scratch: &mut Scratch) {
        let channels = self.src.shape().channels;
        let (x, channel) = (x + at / channels, at % channels);
        if channel < self.channels {
            out[at] = match isa.run(Estimate { exact: self, x, y, channel }) {
                Some(estimate) if self.settles(estimate) => nearest(estimate),
                _ => nearest(self.pixel(x, y, channel, scratch)),
            };
        }
    }

    /// The result in f64.
    fn pixel(&self, x: usize, y: usize, channel: usize, scratch: &mut Scratch) -> f64 {
        let shape = self.src.shape();
        let (cols, rows) = (self.filter.cols(), self.filter.rows());
        let (anchor_x, anchor_y) = self.filter.anchor();
        if self.border == KEEP && (leaves(x, anchor_x, cols, shape.width) || leaves(y, anchor_y, rows, shape.height)) {
            return f64::from(self.src.row(y)[x * shape.channels + channel]);
        }
        if let Some(passes) = &self.passes {
            let result = scratch.ring.pixel(self, passes, x, y, channel);
            if self.defined_by_passes() || self.settles(result) {
                return result;
            }
        }
        scratch.columns.clear();
        scratch
            .columns
            .extend((0..cols).map(|col| {
                self.resolve(x, col, anchor_x, shape.width).map(|source| source * shape.channels + channel)
            }));
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

    /// Whether sums in every order round as this one does.
    fn settles(&self, estimate: f64) -> bool {
        let clamped = estimate.clamp(0.0, 255.0);
        (clamped - clamped.round_ties_even()).abs() < 0.5 - self.noise
    }

    /// Goes through the window over row `y`, a row at a time; its columns are in `scratch`.
    fn window_sum(&self, y: usize, scratch: &mut Scratch, mut add: impl FnMut(f64, usize, &[f64]) -> f64) -> f64 {
        let (_, anchor_y) = self.filter.anchor();
        let mut sum = 0.0;
        for row in 0..self.filter.rows() {
            scratch.values.clear();
            match self.resolve(y, row, anchor_y, self.src.shape().height) {
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

    /// A row of taps times what lies under it, in the order that is fastest.
    fn row_sum(&self, row: usize, values: &[f64]) -> f64 {
        match (self.filter.dense_f64(), self.filter.separated()) {
            (None, Some((across, column))) => column[row] * dot(across, values),
            (Some(taps), _) => dot(&taps[row * values.len()..][..values.len()], values),
            (None, None) => unreachable!("a filter has its taps or their factors"),
        }
    }

    fn resolve(&self, position: usize, offset: usize, anchor: usize, extent: usize) -> Option<usize> {
        // Image and window sizes are at most 2^29, so the sums stay in range.
        let coordinate = (position + offset) as i32 - anchor as i32;
        usize::try_from(rule::resolve(self.border, coordinate, extent as i32)).ok()
    }
}

fn leaves(position: usize, anchor: usize, len: usize, extent: usize) -> bool {
    rule::leaves(position as i32 - anchor as i32, len as i32, extent as i32)
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

/// See [`Exact::spread`]. Empty if that would take too much memory.
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

/// Rounds a row, as sure as that is; notes the chunks in which it is not.
struct Round<'a> {
    doubt: &'a Doubt,
    sums: &'a [f32],
    out: &'a mut [u8],
    chunks: &'a mut Vec<usize>,
}

impl Work for Round<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        for (index, (sums, out)) in self.sums.chunks(CHUNK).zip(self.out.chunks_mut(CHUNK)).enumerate() {
            if self.doubt.round(sums, out) {
                self.chunks.push(index * CHUNK);
            }
        }
    }
}

/// A pixel's result in f64, in the order that is fastest; none if its window comes too near the image's edge.
struct Estimate<'a> {
    exact: &'a Exact<'a>,
    x: usize,
    y: usize,
    channel: usize,
}

impl Work for Estimate<'_> {
    type Output = Option<f64>;

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> Option<f64> {
        let Exact { src, filter, spread, .. } = self.exact;
        let shape = src.shape();
        let (anchor_x, anchor_y) = filter.anchor();
        let (x, y) = (self.x.checked_sub(anchor_x)?, self.y.checked_sub(anchor_y)?);
        let first = x * shape.channels + self.channel;
        let len = (filter.cols() * shape.channels).next_multiple_of(LANES);
        let inside = first + len <= shape.row_len() && y + filter.rows() <= shape.height;
        if !inside || spread.is_empty() || self.exact.passes.is_some() {
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

fn nearest(value: f64) -> u8 {
    value.round_ties_even() as u8
}

/// Which f32 results may round to another integer than the true ones.
struct Doubt {
    /// How far they may be off; 0 if there are none.
    error: f64,
    /// Below, the true result is at most 0.5 and rounds to 0.
    low: f32,
    /// Above, the true result is more than 254.5 and rounds to 255.
    high: f32,
    /// Closer to an integer than this, the true result rounds to the same one.
    near: f32,
}

impl Doubt {
    /// For results that may be off by `error`.
    fn new(error: f64) -> Self {
        // Rounded to the safe side; NaN stays NaN, and then every comparison fails, which is safe too.
        let down = |bound: f64| if f64::from(bound as f32) > bound { (bound as f32).next_down() } else { bound as f32 };
        let near = down(0.5 - error);
        Self { error, low: near, high: -down(-254.5 - error), near }
    }

    /// Rounds to the nearest integer in 0 to 255, half to even; NaN becomes 0. Says whether any result is in doubt.
    #[inline(always)]
    fn round(&self, values: &[f32], rounded: &mut [u8]) -> bool {
        for (rounded, &value) in rounded.iter_mut().zip(values) {
            *rounded = shifted(value).to_bits() as u8;
        }
        self.error != 0.0 && values.iter().fold(false, |any, &value| any | self.about(value))
    }

    #[inline(always)]
    fn about(&self, value: f32) -> bool {
        // NaN stays NaN here, and in doubt.
        let distance = (value.clamp(0.0, 255.0) - (shifted(value) - SHIFT)).abs();
        // An infinity comes from a partial sum that overflowed: it says nothing about the true one.
        let saturated = (value.abs() <= f32::MAX) & ((value < self.low) | (value > self.high));
        !(saturated | (distance < self.near))
    }
}

/// Adding it to a number in 0 to 255 rounds that to an integer, half to even, and leaves it in the lowest byte.
const SHIFT: f32 = 8_388_608.0;

#[inline(always)]
#[expect(clippy::manual_clamp, reason = "NaN becomes 0")]
fn shifted(value: f32) -> f32 {
    value.max(0.0).min(255.0) + SHIFT
}

/// The relative error of one rounding to f32.
const UNIT: f64 = f32::EPSILON as f64 / 2.0;

/// Half of the smallest number that f32 can hold: the absolute error of a rounding where numbers run out.
const LEAST: f64 = f32::from_bits(1) as f64 / 2.0;

/// What `steps` roundings of relative error `unit`, one upon the other, may do: `(1 + unit)^steps - 1` at most, and not
/// finite if nothing can be said.
fn compound(steps: f64, unit: f64) -> f64 {
    let error = steps * unit;
    if error < 0.5 { error / (1.0 - error) } else { f64::INFINITY }
}

/// How far f32 sums made in this order may lie from the exact sum over the f64 taps, if no pixel exceeds `greatest`.
///
/// A multiply-add that gives the partial sum `s` is off by `UNIT * |s|` at most, one with a zero tap by nothing, and those
/// errors add up (Higham, Accuracy and Stability of Numerical Algorithms, section 3.3). As no pixel is negative, a partial
/// sum is at most the greater of the positive and of the negative taps' weight so far, times `greatest`; how far it may be
/// off that itself is in `compound`. The sums of single rows, and then their sums, count alike. In two passes, the first
/// one's errors are multiplied by the column's taps, and the second one's values are the first one's sums.
///
/// To this comes what taps differ from the filter's: rounded to f32, `sum |t - t'| * greatest`; and as products of two such,
/// likewise. And what is lost where a result is too small for f32: half of its smallest number at each rounding.
///
/// 0 if nothing is rounded at all: taps that are whole multiples of a power of two, with sums below 2^24 of it.
fn kernel_error(filter: &Filter, order: Order, greatest: f64, outside: f64) -> f64 {
    let count = |taps: &[f64]| taps.iter().filter(|&&tap| tap != 0.0).count() as f64;
    // In units of the lowest bit of all taps, the greatest sum.
    let whole = outside.fract() == 0.0;
    let in_bits = |sum: f64, bit: i32| {
        whole && (-126..=100).contains(&bit) && sum * greatest * 2f64.powi(-bit) <= f64::from(1 << 24)
    };
    let nothing = Partial { plus: 0.0, minus: 0.0, signed: outside < 0.0 };

    match (order, filter.separated()) {
        (Order::Spectra, _) => 2.0 * spectrum::UNITS * UNIT * filter.weight() * greatest,
        // The sum, the tap and their product are rounded.
        (Order::Counted, _) => compound(3.0, UNIT) * filter.weight() * greatest,
        (Order::TwoPasses, Some((row, column))) => {
            let (row_weight, column_weight) = (weight(row), weight(column));
            let taps_loss = factors_loss(filter, row, column);
            let (row_bit, column_bit) = (lowest_bit(row), lowest_bit(column));
            let row_exact = in_bits(row_weight, row_bit);
            if row_exact && taps_loss == 0.0 && in_bits(row_weight * column_weight, row_bit + column_bit) {
                return 0.0;
            }
            let (mut across, mut down) = (nothing, Partial { signed: true, ..nothing });
            let in_rows = if row_exact { 0.0 } else { across.add_all(row) };
            let row_steps = if row_exact { 0.0 } else { count(row) };
            across = nothing;
            across.add_all(row);
            let partials = in_rows * column_weight + across.greatest() * down.add_all(column);
            let rounding = UNIT * partials * (1.0 + compound(row_steps + count(column), UNIT));
            (rounding + taps_loss) * greatest + LEAST * (row_steps * column_weight + count(column))
        }
        _ => {
            let (mut steps, mut taps_weight, mut taps_loss, mut bit) = (0.0, 0.0, 0.0, i32::MAX);
            let (mut partial, mut partials) = (nothing, 0.0);
            for_each_row(filter, |taps| {
                steps += count(taps);
                taps_weight += weight(taps);
                taps_loss += loss(taps);
                bit = bit.min(lowest_bit(taps));
                if order == Order::ByRows {
                    let mut row = nothing;
                    partials += row.add_all(taps);
                    partial.plus += row.plus;
                    partial.minus += row.minus;
                    partials += partial.greatest();
                } else {
                    partials += partial.add_all(taps);
                }
            });
            if taps_loss == 0.0 && in_bits(taps_weight, bit) {
                return 0.0;
            }
            // Sums of rows are no more roundings than there are taps, but for empty rows.
            let rounding = UNIT * partials * (1.0 + compound(steps + filter.rows() as f64, UNIT));
            (rounding + taps_loss) * greatest + LEAST * steps
        }
    }
}

/// The sum of the magnitudes of taps in f32.
fn weight(taps: &[f64]) -> f64 {
    taps.iter().map(|&tap| rounded(tap).abs()).sum()
}

/// What taps lose when they become f32.
fn loss(taps: &[f64]) -> f64 {
    taps.iter().map(|&tap| (tap - rounded(tap)).abs()).sum()
}

/// How far the products of a row and a column in f32 are from the filter's taps.
fn factors_loss(filter: &Filter, row: &[f64], column: &[f64]) -> f64 {
    let rounding = loss(column) * row.iter().map(|tap| tap.abs()).sum::<f64>() + weight(column) * loss(row);
    let Some(taps) = filter.dense_f64() else { return rounding };
    let lines = taps.chunks_exact(row.len()).zip(column);
    let of_line = |(taps, down): (&[f64], &f64)| -> f64 {
        taps.iter().zip(row).map(|(tap, across)| (tap - down * across).abs()).sum()
    };
    rounding + lines.map(of_line).sum::<f64>()
}

fn rounded(tap: f64) -> f64 {
    f64::from(tap as f32)
}

/// The weight of the taps that a sum has met.
#[derive(Clone, Copy)]
struct Partial {
    plus: f64,
    minus: f64,
    /// Whether the values may be negative.
    signed: bool,
}

impl Partial {
    /// How great the sum may be, if no value exceeds 1.
    fn greatest(&self) -> f64 {
        if self.signed { self.plus + self.minus } else { self.plus.max(self.minus) }
    }

    /// Adds taps one by one; returns the sum of what each partial sum may be.
    fn add_all(&mut self, taps: &[f64]) -> f64 {
        let mut partials = 0.0;
        for tap in taps.iter().map(|&tap| rounded(tap)).filter(|&tap| tap != 0.0) {
            self.plus += tap.max(0.0);
            self.minus -= tap.min(0.0);
            partials += self.greatest();
        }
        partials
    }
}

/// How far sums over the f64 taps, computed in f64 in whatever order, may lie apart.
fn noise(filter: &Filter, greatest: f64) -> f64 {
    // Each may be off by as many roundings as there are taps, and a few for the products of factors.
    let steps = filter.cols() as f64 * filter.rows() as f64 + 4.0;
    2.0 * compound(steps, f64::EPSILON / 2.0) * filter.weight() * greatest
}

/// Calls `visit` with each row of taps.
fn for_each_row(filter: &Filter, mut visit: impl FnMut(&[f64])) {
    match (filter.dense_f64(), filter.separated()) {
        (None, Some((row, column))) => {
            let mut taps = row.to_vec();
            for down in column {
                taps.iter_mut().zip(row).for_each(|(tap, across)| *tap = down * across);
                visit(&taps);
            }
        }
        (taps, _) => taps.unwrap_or_default().chunks(filter.cols()).for_each(visit),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Device, Plan, Variant};

    /// The definition: padded by copying, summed in f64, product by product.
    fn defined(src: &[u8], (width, height): (usize, usize), filter: &Filter, border: Border) -> Vec<u8> {
        let (cols, rows) = (filter.cols() as i64, filter.rows() as i64);
        let (anchor_x, anchor_y) = (filter.anchor().0 as i64, filter.anchor().1 as i64);
        let at = |mut i: i64, n: i64| loop {
            if (0..n).contains(&i) {
                return Some(i as usize);
            }
            let low = i < 0;
            i = match border {
                Border::Constant(_) => return None,
                Border::Replicate | Border::Keep => i + if low { 1 } else { -1 },
                Border::Reflect => (if low { -1 } else { 2 * n - 1 }) - i,
                Border::Reflect101 if n == 1 => 0,
                Border::Reflect101 => (if low { 0 } else { 2 * n - 2 }) - i,
                Border::Wrap => i + if low { n } else { -n },
            };
        };
        let outside = if let Border::Constant(value) = border { f64::from(value) } else { 0.0 };
        let mut out = Vec::new();
        for y in 0..height as i64 {
            for x in 0..width as i64 {
                let (left, top) = (x - anchor_x, y - anchor_y);
                if border == Border::Keep
                    && (left < 0 || top < 0 || left + cols > width as i64 || top + rows > height as i64)
                {
                    out.push(src[y as usize * width + x as usize]);
                    continue;
                }
                let mut sum = 0.0;
                for r in 0..rows {
                    for c in 0..cols {
                        let pixel = at(top + r, height as i64)
                            .zip(at(left + c, width as i64))
                            .map_or(outside, |(y, x)| f64::from(src[y * width + x]));
                        sum += filter.tap(r as usize, c as usize) * pixel;
                    }
                }
                let below = sum.floor();
                let nearest = match sum - below {
                    part if part < 0.5 => below,
                    part if part > 0.5 => below + 1.0,
                    _ => 2.0 * (sum / 2.0).round(),
                };
                out.push(nearest.clamp(0.0, 255.0) as u8);
            }
        }
        out
    }

    /// An f32 plane as wrong as `error` allows, alternately above and below the truth.
    fn disturbed(truth: &[f64], error: f64) -> Vec<f32> {
        let disturb = |(index, &value): (usize, &f64)| {
            let worst = if index % 2 == 0 { value + error } else { value - error };
            let nearest = worst as f32;
            if (f64::from(nearest) - value).abs() <= error {
                nearest
            } else if f64::from(nearest) > value {
                nearest.next_down()
            } else {
                nearest.next_up()
            }
        };
        truth.iter().enumerate().map(disturb).collect()
    }

    fn check(src: &[u8], (width, height): (usize, usize), filter: &Filter, border: Border) {
        let expected = defined(src, (width, height), filter, border);
        let view = ImageView::new(src, width, height, 1).unwrap();
        let mut variants = vec![Variant::DirectNaive];
        if filter.is_separable() {
            variants.push(Variant::Separable);
        }
        for variant in variants {
            let plan = Plan::builder(filter).border(border).device(Device::Cpu).variant(variant).build().unwrap();
            let found = plan.filter(&view).unwrap();
            assert_eq!(found.as_slice(), expected, "{variant} of {filter}, border {border}, {width}x{height}");
        }
    }

    fn noise_pixels(len: usize, mut seed: u64) -> Vec<u8> {
        let mut next = move || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    const BORDERS: [Border; 8] = [
        Border::Constant(0.0),
        Border::Constant(300.7),
        Border::Constant(f32::NAN),
        Border::Replicate,
        Border::Reflect,
        Border::Reflect101,
        Border::Wrap,
        Border::Keep,
    ];

    /// Taps that f32 sums hold, so what the kernels gave is what is compared.
    #[test]
    fn tiny_images_under_every_window() {
        let taps: Vec<f64> = (0..49).map(|i| f64::from(i * i % 11 - 4) / 16.0).collect();
        for (cols, rows) in (1..=7).flat_map(|cols| [1, 2, 3, 6].map(|rows| (cols, rows))) {
            let dense = Filter::from_taps_f64(cols, rows, &taps[..cols * rows]).unwrap();
            let product = Filter::separable_f64(&taps[..cols], &taps[7..7 + rows]).unwrap();
            for filter in [dense, product] {
                assert_eq!(kernel_error(&filter, Order::TapByTap, 255.0, 0.0), 0.0);
                for anchor in [(0, 0), (cols - 1, 0), (cols / 2, rows / 2), (cols - 1, rows - 1)] {
                    let filter = filter.clone().anchored(anchor.0, anchor.1).unwrap();
                    for size in (1..=4).flat_map(|width| (1..=3).map(move |height| (width, height))) {
                        let pixels = noise_pixels(size.0 * size.1, (size.0 * 8 + size.1) as u64);
                        for border in BORDERS {
                            check(&pixels, size, &filter, border);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn many_ties_are_settled_as_in_f64() {
        // Sums over tenths and over even counts: every few pixels a tie, or what f64 makes of one.
        let filters = [
            "box:size=2",
            "box:size=6",
            "box:cols=10,rows=2",
            "box:cols=5,rows=4",
            "sharpen:amount=0.1",
            "separable:row=0.1 0.2 0.3 0.2 0.2,column=0.5 0.5",
            "taps:0.1 0.3 0.1; 0 -0.5 0; 1/2 1/4 0.3",
            "taps:2 2 2; 2 2 2",
            "taps:-1 0.5",
            "sobel-x",
            "unsharp:sigma=0.7,amount=1.5",
            "gaussian:sigma=1.1",
        ];
        for filter in filters {
            let filter: Filter = filter.parse().unwrap();
            for border in BORDERS {
                for (width, height) in [(1, 1), (2, 5), (67, 3), (31, 30)] {
                    check(&noise_pixels(width * height, 7), (width, height), &filter, border);
                    let checkers: Vec<u8> =
                        (0..width * height).map(|i| 100 + ((i % width + i / width) % 2) as u8).collect();
                    check(&checkers, (width, height), &filter, border);
                }
            }
        }
    }

    #[test]
    fn the_worst_that_a_kernel_may_give_is_put_right() {
        for (text, family) in [
            ("gaussian:sigma=2", Family::Separable),
            ("gaussian:sigma=2", Family::Direct),
            ("box:size=6", Family::Separable),
            ("motion:length=9,angle=30", Family::Direct),
            ("unsharp:sigma=1,amount=20", Family::Direct),
        ] {
            let filter: Filter = text.parse().unwrap();
            let (width, height) = (61, 47);
            let pixels = noise_pixels(width * height, 3);
            let src = ImageView::new(&pixels, width, height, 1).unwrap();
            for border in [Border::Constant(9.5), Border::Reflect101, Border::Keep] {
                let plan = Plan::builder(&filter).border(border).device(Device::Cpu).build().unwrap();
                let mut truth = vec![0f32; pixels.len()];
                plan.run(&src, &mut crate::ImageViewMut::new(&mut truth, width, height, 1).unwrap()).unwrap();
                let truth: Vec<f64> = truth.into_iter().map(f64::from).collect();
                let error = kernel_error(&filter, family.into(), 255.0, 0.0);
                assert!(error > 0.0 && error < 0.5);
                // The truth here is itself an f32 result, so half of the allowance is left to disturb it by.
                let planes = disturbed(&truth, error / 2.0);
                let mut found = vec![0xa5u8; pixels.len()];
                let mut dst = crate::ImageViewMut::new(&mut found, width, height, 1).unwrap();
                crate::image::planes::join(&planes, &src, &mut dst, 1, &filter, border, family).unwrap();
                let expected = defined(&pixels, (width, height), &filter, border);
                let kept = |x: usize, y: usize| {
                    border == Border::Keep
                        && (x < filter.anchor().0
                            || y < filter.anchor().1
                            || x + filter.cols() - filter.anchor().0 > width
                            || y + filter.rows() - filter.anchor().1 > height)
                };
                for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    assert!(found == expected || kept(index % width, index / width), "{text} {border} {index}");
                }
            }
        }
    }

    #[test]
    fn sums_that_f32_holds_need_no_second_look() {
        for text in ["sobel-x:size=5", "sharpen", "box:size=4", "laplacian:neighbours=8", "emboss", "taps:65792 1"] {
            let filter: Filter = text.parse().unwrap();
            assert_eq!(kernel_error(&filter, Order::TapByTap, 255.0, 0.0), 0.0, "{text}");
            if filter.is_separable() {
                assert_eq!(kernel_error(&filter, Order::TwoPasses, 255.0, 0.0), 0.0, "{text}");
            }
            assert_ne!(kernel_error(&filter, Order::TapByTap, 255.0, 0.1), 0.0, "{text} with a border of 0.1");
        }
        for text in ["box:size=5", "gaussian:sigma=1", "sobel-x:size=31", "taps:65793 1"] {
            let filter: Filter = text.parse().unwrap();
            assert_ne!(kernel_error(&filter, Order::TapByTap, 255.0, 0.0), 0.0, "{text}");
        }
    }

    #[test]
    fn large_windows_go_by_passes() {
        for (text, size, defined) in [
            ("gaussian:sigma=33", (8, 5), true),
            ("box:cols=300,rows=220", (3, 7), true),
            ("gaussian:sigma=28", (11, 6), false),
            ("box:cols=250,rows=230", (14, 9), false),
        ] {
            let filter: Filter = text.parse().unwrap();
            let pixels = noise_pixels(size.0 * size.1, 5);
            let halves: Vec<u8> = (0..pixels.len()).map(|i| (i % 2) as u8).collect();
            for border in [Border::Constant(3.5), Border::Reflect, Border::Wrap, Border::Keep] {
                let src = ImageView::new(&pixels, size.0, size.1, 1).unwrap();
                let exact = Exact::new(src, 1, &filter, border, Order::TwoPasses).unwrap();
                assert_eq!((exact.passes.is_some(), exact.defined_by_passes()), (true, defined), "{text}");
                check(&pixels, size, &filter, border);
                if !defined {
                    check(&halves, size, &filter, border);
                }
            }
        }
    }

    #[test]
    fn taps_of_any_size_saturate() {
        for taps in
            [[3e38, -3e38, 1.0], [1e-42, 1e-40, 3e-39], [8388607.0, 1e30, -1e30], [0.5, f64::from(f32::MAX), 0.0]]
        {
            let filter = Filter::from_taps_f64(3, 1, &taps).unwrap();
            for border in BORDERS {
                check(&noise_pixels(60, 11), (12, 5), &filter, border);
            }
        }
    }

    #[test]
    fn each_channel_is_rounded_for_itself_and_the_rest_copied() {
        let filter = Filter::from_taps_f64(3, 2, &[0.1, 0.2, 0.3, 0.1, 0.2, 0.1]).unwrap();
        let (width, height) = (21, 9);
        let pixels = noise_pixels(width * height * 4, 23);
        let plan = Plan::builder(&filter).device(Device::Cpu).build().unwrap();
        let mut found = vec![0u8; pixels.len()];
        let src = ImageView::new(&pixels, width, height, 4).unwrap();
        let mut dst = crate::ImageViewMut::new(&mut found, width, height, 4).unwrap();
        plan.run_channels(&src, &mut dst, 3).unwrap();
        for channel in 0..4 {
            let take = |values: &[u8]| values[channel..].iter().step_by(4).copied().collect::<Vec<_>>();
            let expected = match channel {
                3 => take(&pixels),
                _ => defined(&take(&pixels), (width, height), &filter, Border::Reflect101),
            };
            assert_eq!(take(&found), expected, "channel {channel}");
        }
    }

    proptest! {
        #[test]
        fn any_filter_rounds_as_in_f64(
            cols in 1usize..8, rows in 1usize..8, width in 1usize..24, height in 1usize..12,
            taps in proptest::collection::vec(-2.0f64..2.0, 49), denominator in 1u32..40, whole: bool, normal: bool,
            anchor in (0usize..8, 0usize..8), border in 0usize..BORDERS.len(), seed: u64, product: bool,
        ) {
            let scale = if normal { 1.0 / (cols * rows) as f64 } else { 1.0 };
            let taps: Vec<f64> = taps.iter().map(|tap| match whole {
                true => (tap * 8.0).round() / f64::from(denominator) * scale,
                false => tap * scale,
            }).collect();
            let filter = match product {
                true => Filter::separable_f64(&taps[..cols], &taps[cols..cols + rows]),
                false => Filter::from_taps_f64(cols, rows, &taps[..cols * rows]),
            };
            let filter = filter.unwrap().anchored(anchor.0 % cols, anchor.1 % rows).unwrap();
            check(&noise_pixels(width * height, seed), (width, height), &filter, BORDERS[border]);
        }
    }
}
