//! Correct rounding of 8-bit results.
//!
//! A kernel's f32 sum lies within a known distance of the sum in f64. An 8-bit result is in doubt only where a boundary
//! between two results, a half-integer, lies within that distance: there the pixel is computed again in f64, from the
//! source. So 8-bit pictures are the same from every variant and device, and the same as SciPy's `correlate` in f64,
//! rounded half to even and saturated.
//!
//! What "in f64" means where even that is a tie: each product and each sum rounded to f64, row by row, left to right. A
//! separable filter of more than [`MAX_WINDOW`] taps, where that would take hours, is defined by its two passes instead:
//! along the rows, then along the columns, in ascending order.

use gpu_kernels::border::{self as rule, CONSTANT, KEEP};
use multiversion::multiversion;
use rayon::prelude::*;

use crate::filter::lowest_bit;
use crate::image::ImageView;
use crate::{Border, Family, Filter, Result};

/// The most taps for which a separable filter's pixels are computed again one by one.
const MAX_WINDOW: usize = 1 << 16;

/// Pixels that are tested together.
const CHUNK: usize = 64;

/// Rounds planes that `filter` and `border` made from `src`.
pub(crate) struct Exact<'a> {
    src: ImageView<'a, u8>,
    filter: &'a Filter,
    border: u32,
    outside: f64,
    doubt: Doubt,
    /// How far sums in f64 of different order may lie apart.
    noise: f64,
    passes: Option<Passes<'a>>,
}

/// Memory for one pixel's computation.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Where each tap column finds its pixel in the row.
    columns: Vec<Option<usize>>,
    /// What lies under a row of taps.
    values: Vec<f64>,
    /// A row of results.
    line: Vec<f64>,
}

impl<'a> Exact<'a> {
    /// For the first `channels` channels of `src`, filtered by a variant of `family`.
    pub(crate) fn new(
        src: ImageView<'a, u8>,
        channels: usize,
        filter: &'a Filter,
        border: Border,
        family: Family,
    ) -> Result<Self> {
        let (border, outside) = border.code();
        let outside = f64::from(outside);
        let greatest = if border == CONSTANT { outside.abs().max(255.0) } else { 255.0 };
        let noise = noise(filter, greatest);
        let error = kernel_error(filter, family, greatest, outside);
        let doubt = Doubt::new(if error == 0.0 { 0.0 } else { error + noise });
        let mut exact = Self { src, filter, border, outside, doubt, noise, passes: None };
        let large = filter.cols() * filter.rows() > MAX_WINDOW && filter.dense_f64().is_none();
        if let (true, true, Some((row, column))) = (large, exact.doubt.possible, filter.separated()) {
            exact.passes = Some(Passes::new(&exact, channels, row, column)?);
        }
        Ok(exact)
    }

    /// Stores row `y` of a channel's plane into every `src.channels`-th element of `out`.
    pub(crate) fn store(&self, plane_row: &[f32], channel: usize, y: usize, out: &mut [u8], scratch: &mut Scratch) {
        let channels = self.src.shape().channels;
        scratch.line.clear();
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

    /// The result in f64.
    fn pixel(&self, x: usize, y: usize, channel: usize, scratch: &mut Scratch) -> f64 {
        let shape = self.src.shape();
        let (cols, rows) = (self.filter.cols(), self.filter.rows());
        let (anchor_x, anchor_y) = self.filter.anchor();
        if self.border == KEEP && (leaves(x, anchor_x, cols, shape.width) || leaves(y, anchor_y, rows, shape.height)) {
            return f64::from(self.src.row(y)[x * shape.channels + channel]);
        }
        if let Some(passes) = &self.passes {
            if scratch.line.is_empty() {
                passes.column_pass(self, channel, y, &mut scratch.line);
            }
            return scratch.line[x];
        }
        scratch.columns.clear();
        scratch
            .columns
            .extend((0..cols).map(|col| {
                self.resolve(x, col, anchor_x, shape.width).map(|source| source * shape.channels + channel)
            }));
        let estimate = self.window_sum(y, scratch, |sum, row, values| sum + self.row_sum(row, values));
        let settled = estimate.clamp(0.0, 255.0);
        if (settled - settled.round_ties_even()).abs() < 0.5 - self.noise {
            return estimate;
        }
        self.window_sum(y, scratch, |mut sum, row, values| {
            for (col, value) in values.iter().enumerate() {
                sum += self.filter.tap(row, col) * value;
            }
            sum
        })
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

fn nearest(value: f64) -> u8 {
    value.round_ties_even() as u8
}

/// Which f32 results may round to another integer than the true ones.
struct Doubt {
    possible: bool,
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
        Self { possible: error != 0.0, low: near, high: -down(-254.5 - error), near }
    }

    /// Rounds to the nearest integer in 0 to 255, half to even; NaN becomes 0. Says whether any result is in doubt.
    #[inline(always)]
    fn round(&self, values: &[f32], rounded: &mut [u8]) -> bool {
        for (rounded, &value) in rounded.iter_mut().zip(values) {
            *rounded = shifted(value).to_bits() as u8;
        }
        self.possible && values.iter().fold(false, |any, &value| any | self.about(value))
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

/// How far a family's f32 result may lie from the exact sum over the f64 taps, if no pixel exceeds `greatest`.
///
/// Direct: let `n` be the number of taps that are not zero (a multiply-add with zero rounds nothing) and `t'` a tap `t`
/// rounded to f32. A sum of `n` products in any order, products rounded or not, passes at most `n` roundings on every
/// way from a product to the sum (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1), so
/// `|result - sum t' p| <= compound(n) * sum |t'| * greatest`; the taps' own rounding adds `sum |t - t'| * greatest`.
///
/// Separable: the row pass is such a sum with the `cols` taps of the row and the column pass with the `rows` taps of the
/// column, over values that have the first's relative error: `compound(cols + rows)` in all. The taps that count are
/// `column'[r] * row'[c]`; what they differ from the filter's taps is summed as above.
///
/// To each comes what is lost where a result is too small for f32: half of its smallest number at each rounding,
/// multiplied in a row pass by the column's taps.
///
/// 0 if nothing is rounded at all: taps that are whole multiples of a power of two, with sums below 2^24 of it.
fn kernel_error(filter: &Filter, family: Family, greatest: f64, outside: f64) -> f64 {
    let rounded = |tap: f64| f64::from(tap as f32);
    let weight = |taps: &[f64]| taps.iter().map(|&tap| rounded(tap).abs()).sum::<f64>();
    let loss = |taps: &[f64]| taps.iter().map(|&tap| (tap - rounded(tap)).abs()).sum::<f64>();
    let count = |taps: &[f64]| taps.iter().filter(|&&tap| tap != 0.0).count() as f64;
    // In units of the lowest bit of all taps, the greatest sum.
    let whole = outside.fract() == 0.0;
    let in_bits = |sum: f64, bit: i32| {
        whole && (-126..=100).contains(&bit) && sum * greatest * 2f64.powi(-bit) <= f64::from(1 << 24)
    };

    match (family, filter.separated()) {
        (Family::Separable, Some((row, column))) => {
            let (row_weight, column_weight) = (weight(row), weight(column));
            let mut taps_loss = loss(column) * row.iter().map(|tap| tap.abs()).sum::<f64>() + column_weight * loss(row);
            if let Some(taps) = filter.dense_f64() {
                for (taps, down) in taps.chunks_exact(row.len()).zip(column) {
                    taps_loss += taps.iter().zip(row).map(|(tap, across)| (tap - down * across).abs()).sum::<f64>();
                }
            }
            let (row_bit, column_bit) = (lowest_bit(row), lowest_bit(column));
            let row_exact = in_bits(row_weight, row_bit);
            if row_exact && taps_loss == 0.0 && in_bits(row_weight * column_weight, row_bit + column_bit) {
                return 0.0;
            }
            let row_steps = if row_exact { 0.0 } else { count(row) };
            let underflow = LEAST * (row_steps * column_weight + count(column));
            let rounding = compound(row_steps + count(column), UNIT) * row_weight * column_weight;
            (rounding + taps_loss) * greatest + underflow
        }
        (Family::Direct | Family::Separable, _) => {
            let (mut steps, mut taps_weight, mut taps_loss, mut bit) = (0.0, 0.0, 0.0, i32::MAX);
            for_each_row(filter, |taps| {
                steps += count(taps);
                taps_weight += weight(taps);
                taps_loss += loss(taps);
                bit = bit.min(lowest_bit(taps));
            });
            if taps_loss == 0.0 && in_bits(taps_weight, bit) {
                return 0.0;
            }
            (compound(steps, UNIT) * taps_weight + taps_loss) * greatest + LEAST * steps
        }
    }
}

/// How far sums over the f64 taps, computed in f64 in whatever order, may lie apart.
fn noise(filter: &Filter, greatest: f64) -> f64 {
    let sum = |taps: &[f64]| taps.iter().map(|tap| tap.abs()).sum::<f64>();
    let weight = match (filter.dense_f64(), filter.separated()) {
        (None, Some((row, column))) => sum(row) * sum(column),
        (taps, _) => sum(taps.unwrap_or_default()),
    };
    // Each may be off by as many roundings as there are taps, and a few for the products of factors.
    let steps = filter.cols() as f64 * filter.rows() as f64 + 4.0;
    2.0 * compound(steps, f64::EPSILON / 2.0) * weight * greatest
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

/// A separable filter's row pass over whole planes, and what its column pass needs.
struct Passes<'a> {
    column: &'a [f64],
    /// The filtered rows of each channel, one plane after the other.
    middle: Vec<f64>,
    /// What a row outside the image gives.
    outside: f64,
}

impl<'a> Passes<'a> {
    fn new(exact: &Exact<'_>, channels: usize, row: &[f64], column: &'a [f64]) -> Result<Self> {
        let shape = exact.src.shape();
        let (anchor_x, _) = exact.filter.anchor();
        let mut middle = crate::memory::zeroed(crate::pixels::planes_len(shape, channels)?)?;
        middle.par_chunks_mut(shape.width).enumerate().for_each_init(Vec::new, |padded, (index, out)| {
            let (channel, y) = (index / shape.height, index % shape.height);
            let input = exact.src.row(y);
            padded.clear();
            padded.extend((0..shape.width + row.len() - 1).map(|at| {
                let source = exact.resolve(at, 0, anchor_x, shape.width);
                source.map_or(exact.outside, |x| f64::from(input[x * shape.channels + channel]))
            }));
            accumulate(row.iter().enumerate().map(|(col, &tap)| (tap, &padded[col..])), out);
        });
        let outside = row.iter().fold(0.0, |sum, tap| sum + tap * exact.outside);
        Ok(Self { column, middle, outside })
    }

    fn column_pass(&self, exact: &Exact<'_>, channel: usize, y: usize, out: &mut Vec<f64>) {
        let shape = exact.src.shape();
        let (_, anchor_y) = exact.filter.anchor();
        let plane = &self.middle[channel * shape.width * shape.height..][..shape.width * shape.height];
        out.resize(shape.width, 0.0);
        let outside = vec![self.outside; shape.width];
        let rows = self.column.iter().enumerate().map(|(row, &tap)| {
            let source = exact.resolve(y, row, anchor_y, shape.height);
            (tap, source.map_or(&outside[..], |y| &plane[y * shape.width..]))
        });
        accumulate(rows, out);
    }
}

/// Adds up each tap times its line, in order.
fn accumulate<'a>(lines: impl Iterator<Item = (f64, &'a [f64])>, out: &mut [f64]) {
    for (tap, line) in lines {
        add_line(tap, line, out);
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn add_line(tap: f64, line: &[f64], out: &mut [f64]) {
    for (sum, value) in out.iter_mut().zip(line) {
        *sum += tap * value;
    }
}
