//! Averages of bytes over known pixels: quotients of sums in f32 that decide nearly all results.
//!
//! No tap and no pixel is negative, so a sum's error is a small part of the sum, however little is
//! known. A quotient N/D has the errors of both:
//!
//! ```text
//! for each tile of results, as in Reach, or for all:
//!     for a few rows:
//!         N: sums of known pixels             whole taps, or f32, as in bands
//!         D: sums of the mask's bytes         likewise
//!         bytes of 255 N/D, those too near a half noted
//!         the noted ones by exact sums; of a tile that has many, all by Exact
//! ```
//!
//! Under a mask of 0 and 255, unknown pixels are 0 in N, a sum of bytes. Of other masks, products
//! with the mask's bytes are two bytes each, and N is the sum of two sums.

use std::ops::Range;

use gpu_kernels::divisor::ratio;

use super::exact::Exact;
use super::reach::{Reach, Tile};
use super::weigh::{BLOCK, MOST, repeat};
use crate::cpu::bands::band;
use crate::cpu::frame::{Frame, Passes, Target, Terms};
use crate::cpu::lines::Scratch;
use crate::cpu::rows::{AddPoint, BESIDE};
use crate::cpu::run::Run;
use crate::cpu::share::share;
use crate::cpu::taps::Bytes;
use crate::cpu::tile::{ROWS, SLACK};
use crate::filter::ByteFilter;
use crate::filter::whole::WholeTaps;
use crate::image::{ImageView, ImageViewMut, Shape};
use crate::progress::Stage;
use crate::round::{self, Place, Resolver};
use crate::simd::{Lanes, Vectorized};
use crate::whole::row::WholeRow;
use crate::window::Window;
use crate::{Border, Result};

/// Of so many results, one may be resolved by itself; else all of a tile are exact sums.
const MANY: usize = 16;

/// The greatest relative error of a quotient for which results are estimated.
const GREATEST_ERROR: f64 = 1.0 / 4096.0;

/// Taps of a column that are summed apart.
const BLOCK_OF_COLUMN: usize = 12;

/// Numbers below may be rounded with more than a relative error.
const LEAST: f64 = 1e-25;

/// Half the distance of neighbouring f32 around 1.
const UNIT: f64 = 1.0 / (1 << 24) as f64;

/// A filter's taps for sums in f32 whose errors are small parts of the sums.
pub(super) struct Estimate<'a> {
    /// A row, in whole numbers if these are near enough, and a column; or all taps.
    factors: Option<(Vec<f32>, Option<WholeRow>, Vec<f32>)>,
    dense: &'a [f32],
    /// How many taps are summed apart: see [`Run`].
    block: usize,
    error: Error,
    /// Of quotients of sums of the same row passes by columns in f64.
    by_columns: Error,
    /// The column for these, if there is one.
    column: Option<&'a [f64]>,
}

/// How far quotients may be off.
#[derive(Clone, Copy)]
struct Error {
    /// As a part of a quotient.
    relative: f32,
    /// Because taps are rounded to whole numbers: as a part of a quotient, and where all is known.
    /// The lesser of both counts; the second grows as less is known.
    lost: f32,
    loss: f32,
}

impl Error {
    /// Whether a quotient is too near a half. `inverse` is 1 over the known part of the taps.
    #[inline(always)]
    fn is_uncertain(self, quotient: f32, inverse: f32) -> bool {
        let rest = (quotient - ((quotient + LIFT) - LIFT)).abs();
        let lost = (quotient * self.lost).min(inverse * self.loss);
        let is_certain = rest + (quotient * self.relative + lost) < 0.5;
        !is_certain
    }
}

impl<'a> Estimate<'a> {
    /// `None` if errors may be great.
    pub(super) fn new(byte_filter: &ByteFilter, bytes: &'a Bytes) -> Result<Option<Self>> {
        let (view, whole) = (&bytes.taps.filter, &byte_filter.whole);
        let least = |taps: &[f64]| {
            let some = taps.iter().filter(|&&tap| tap != 0.0);
            some.fold(f64::INFINITY, |least, tap| least.min(tap.abs()))
        };
        let factors = view.separated().filter(|(row, column)| least(row) * least(column) > LEAST);
        let column = factors.map(|(_, column)| column);
        let dense = if factors.is_some() { &[] } else { bytes.taps.dense()? };
        // In a sum of products, a tap may be the small difference of great ones.
        let is_sum = matches!(
            &whole.taps,
            WholeTaps::Products { terms, point, .. } if terms.len() > 1 || *point != 0
        );
        if is_sum || dense.iter().any(|&tap| tap != 0.0 && f64::from(tap) < LEAST) {
            return Ok(None);
        }
        let in_f32 = |taps: &[f64]| taps.iter().map(|&tap| tap as f32).collect::<Vec<_>>();
        let factors = factors.map(|(row, column)| {
            let across = WholeRow::of_pixels(row)
                .filter(|across| across.greatest_loss < GREATEST_ERROR / 16.0);
            (in_f32(row), across, in_f32(column))
        });
        // Roundings of a sum: each tap's, each addition's. Whole numbers have two parts, at most
        // twice the sum, which are rounded, and so is what they are joined to.
        let (block, of_row, of_column) = match &factors {
            Some((_, Some(_), column)) => (BLOCK_OF_COLUMN, 5, column.len()),
            Some((row, None, column)) => (BLOCK_OF_COLUMN, row.len() + 1, column.len()),
            None => (view.cols(), view.cols() + view.rows() + ROWS, 0),
        };
        let blocks = of_column / BLOCK_OF_COLUMN + 1;
        let of_column = of_column.min(BLOCK_OF_COLUMN + ROWS) + blocks + 1;
        let weight = column.map_or(1.0, |column| column.iter().sum::<f64>().abs());
        let across = factors.as_ref().and_then(|(_, across, _)| across.as_ref());
        // Where all is known, the result is a sum over the divisor.
        let one = (whole.total() as f64 * whole.divisor.unit() - 1.0).abs();
        let error = |roundings: usize| Error {
            relative: (1.001 * ((2 * roundings + 10) as f64 * UNIT + one)) as f32,
            lost: across.map_or(0.0, |across| 2.01 * across.greatest_loss) as f32,
            loss: across.map_or(0.0, |across| 514.0 * weight * across.loss) as f32,
        };
        let (error, by_columns) = (error(of_row + of_column), error(of_row));
        let is_small = f64::from(error.relative + error.lost) < GREATEST_ERROR;
        Ok(is_small.then_some(Self { factors, dense, block, error, by_columns, column }))
    }

    fn terms(&self) -> Terms<'_> {
        match &self.factors {
            Some((row, whole, column)) => {
                Passes { whole: whole.as_ref(), ..Passes::new(row, column) }.into()
            }
            None => Passes::dense(self.dense).into(),
        }
    }
}

/// A picture of bytes whose sums are a part of N, each times a factor.
pub(super) struct Plane<'a> {
    pub(super) bytes: ImageView<'a, u8>,
    pub(super) outside: u8,
    pub(super) factor: u16,
}

/// What quotients are made of.
pub(super) struct Quotients<'a> {
    pub(super) exact: Exact<'a>,
    pub(super) byte_filter: &'a ByteFilter,
    pub(super) planes: Vec<Plane<'a>>,
    pub(super) reach: &'a Reach,
    /// `None` if all are exact sums.
    pub(super) estimate: Option<Estimate<'a>>,
}

impl Quotients<'_> {
    /// Computes all results, or those that an unknown pixel reaches.
    pub(super) fn run(
        &self,
        is_all: bool,
        dst: &mut ImageViewMut<'_, u8>,
        stage: &Stage<'_>,
    ) -> Result<()> {
        let Exact { window, job, mask, .. } = &self.exact;
        let Shape { width, height, .. } = job.src.shape();
        let to = Target::new(dst);
        let rows = |strips: usize| match stage.cut_for() {
            1 => height,
            threads => band(height, window.rows, strips, threads),
        };
        let Some(estimate) = &self.estimate else {
            let tiles = self.reach.tiles(window.rows, 64.max(2 * window.rows));
            return share(stage, tiles.into_iter(), |_: &mut (), tile| self.exactly(&tile, &to));
        };
        let terms = estimate.terms();
        let weights =
            Plane { bytes: *mask, outside: (255.0 * job.known.outside()) as u8, factor: 1 };
        let planes: Vec<&Plane<'_>> = self.planes.iter().chain([&weights]).collect();
        let frames: Vec<_> = planes.iter().map(|plane| self.frame(plane)).collect();
        let runs = frames.iter().map(|frame| {
            let run = Run { block: estimate.block, ..Run::new(frame, &terms, None) };
            run.with_columns(estimate.column.into_iter().collect(), 0.0, 0)
        });
        let runs = runs.collect();
        let resolvers = planes.iter().map(|plane| self.resolver(plane)).collect();
        let total = 255 * self.byte_filter.whole.total();
        let call = Call { quotients: self, estimate, total, runs, resolvers, to };
        let tiles = match is_all {
            true => {
                let strip = call.runs[0].strip();
                let band = rows(width.div_ceil(strip));
                let columns = (0..width).step_by(strip).map(|x| x..width.min(x + strip));
                let rows = (0..height).step_by(band).map(|y| y..height.min(y + band));
                rows.flat_map(|rows| {
                    columns.clone().map(move |columns| Tile { columns, rows: rows.clone() })
                })
                .collect()
            }
            false => self.reach.tiles(window.rows, rows(1)),
        };
        share(stage, tiles.into_iter(), |memory: &mut Memory, tile| call.tile(memory, &tile))
    }

    /// Of a plane's sums.
    fn frame<'p>(&self, plane: &Plane<'p>) -> Frame<'p, u8, f32> {
        Frame {
            isa: self.exact.engine.isa,
            window: Window { border_value: plane.outside.into(), ..self.exact.window },
            src: plane.bytes,
            dst: Target::nowhere(),
            filtered: plane.bytes.shape().channels,
            weigh: None,
            light: None,
        }
    }

    /// Computes exact sums over a plane.
    fn resolver<'p>(&'p self, plane: &Plane<'p>) -> Resolver<'p> {
        let border = match self.exact.engine.border {
            Border::Constant(_) | Border::None => Border::Constant(plane.outside.into()),
            other => other,
        };
        Resolver::new(plane.bytes, plane.bytes.shape().channels, self.byte_filter, border)
    }

    /// Computes a tile by exact sums.
    fn exactly(&self, tile: &Tile, to: &Target<'_, u8>) -> Result<()> {
        self.exact.tile(tile, |y, row| {
            // SAFETY: no other job has this tile, and each row is taken once.
            unsafe { self.row(to, &tile.columns, y) }.copy_from_slice(row);
        })
    }

    /// A part of row `y` of the results.
    ///
    /// # Safety
    /// As for [`Target::row`].
    #[expect(clippy::mut_from_ref, reason = "as `Target::row`")]
    unsafe fn row<'t>(
        &self,
        to: &'t Target<'_, u8>,
        columns: &Range<usize>,
        y: usize,
    ) -> &'t mut [u8] {
        let channels = self.exact.job.src.shape().channels;
        // SAFETY: the caller's promise.
        unsafe { to.row(y, columns.start * channels..columns.end * channels) }
    }
}

/// A call with estimates.
struct Call<'a> {
    quotients: &'a Quotients<'a>,
    to: Target<'a, u8>,
    /// The sums of all planes, and of the mask last.
    runs: Vec<Run<'a, u8, f32>>,
    resolvers: Vec<Resolver<'a>>,
    estimate: &'a Estimate<'a>,
    /// The sum of the whole taps, times 255.
    total: i128,
}

/// A thread's memory.
#[derive(Default)]
struct Memory {
    /// For each run.
    scratch: Vec<Scratch>,
    /// For each resolver.
    resolving: Vec<round::Scratch>,
    /// The columns of a row's uncertain results.
    noted: Vec<usize>,
}

impl Call<'_> {
    fn tile(&self, memory: &mut Memory, Tile { columns, rows }: &Tile) -> Result<()> {
        let Quotients { exact, reach, .. } = self.quotients;
        memory.scratch.resize_with(self.runs.len(), Scratch::default);
        memory.resolving.resize_with(self.runs.len(), round::Scratch::default);
        for (run, scratch) in self.runs.iter().zip(&mut memory.scratch) {
            scratch.start(run, columns)?;
        }
        let mut y = rows.start;
        while y < rows.end {
            let count = self.runs[0].rows_together(rows.end - y);
            if (y..y + count).all(|y| !reach.under(columns, y).has_known()) {
                for y in y..y + count {
                    // SAFETY: no other job has this tile, and each row is taken once.
                    unsafe { self.quotients.row(&self.to, columns, y) }.fill(exact.empty);
                }
            } else if !self.rows(memory, columns, (y, count)) {
                let left = Tile { columns: columns.clone(), rows: y..rows.end };
                return self.quotients.exactly(&left, &self.to);
            }
            y += count;
        }
        Ok(())
    }

    /// Computes a few rows from row `y` on. False, and they are not finished, if many results are
    /// uncertain.
    fn rows(
        &self,
        Memory { scratch, resolving, noted }: &mut Memory,
        columns: &Range<usize>,
        (y, count): (usize, usize),
    ) -> bool {
        let Exact { engine, job, mask, empty, .. } = self.quotients.exact;
        let (channels, of_mask) = (job.src.shape().channels, mask.shape().channels);
        for (run, scratch) in self.runs.iter().zip(&mut *scratch) {
            let mut sums = std::mem::take(&mut scratch.sums);
            run.add_up(scratch, columns, (y, count), &mut sums);
            scratch.sums = sums;
        }
        let (len, few) = (columns.len() * channels, columns.len() * of_mask);
        let Some((weights, products)) = scratch.split_last_mut() else { return true };
        if let [high, low] = products {
            let factor = self.quotients.planes[0].factor;
            let (values, sums) = (&high.sums[..], &mut low.sums[..]);
            engine.isa.run(AddPoint { factor: factor.into(), values, sums });
        }
        let Some(products) = products.last() else { return true };
        let factor = self.quotients.planes.last().map_or(1, |plane| plane.factor);
        let weights_and_products = (&weights.sums, &products.sums);
        let mut left = count * len / MANY;
        let mut all = std::mem::take(noted);
        all.clear();
        for i in 0..count {
            // SAFETY: no other job has this tile, and no part of it is borrowed elsewhere.
            let out = unsafe { self.quotients.row(&self.to, columns, y + i) };
            let (weights, products) = weights_and_products;
            let first = all.len();
            engine.isa.run(Divide {
                products: &products[i * (len + SLACK)..][..len],
                weights: &weights[i * (few + SLACK)..][..few],
                factor: factor.into(),
                error: self.estimate.error,
                empty,
                out,
                noted: &mut all,
            });
            all[first..].iter_mut().for_each(|at| *at += i * len);
        }
        for &at in &all {
            let (i, at) = (at / len, at % len);
            // SAFETY: as above.
            let out = unsafe { self.quotients.row(&self.to, columns, y + i) };
            if let Some(byte) = self.by_columns(scratch, i, at) {
                out[at] = byte;
                continue;
            }
            if left == 0 {
                *noted = all;
                return false;
            }
            left -= 1;
            let place = (columns.start + at / channels, y + i, at % channels);
            out[at] = self.resolve(resolving, place);
        }
        *noted = all;
        true
    }

    /// The byte of result `at` of row `i` of those summed last, by columns in f64 if that decides.
    fn by_columns(&self, scratch: &[Scratch], i: usize, at: usize) -> Option<u8> {
        self.estimate.column?;
        let Quotients { exact, planes, .. } = self.quotients;
        let (channels, of_mask) = (exact.job.src.shape().channels, exact.mask.shape().channels);
        let sum = |number: usize, at: usize| {
            let first = at / BESIDE * BESIDE;
            self.runs[number].column_sums(&scratch[number], first, i)[at - first]
        };
        let product =
            |(number, plane): (usize, &Plane<'_>)| f64::from(plane.factor) * sum(number, at);
        let products: f64 = planes.iter().enumerate().map(product).sum();
        let weight = sum(planes.len(), at * of_mask / channels);
        let quotient = (products / weight) as f32;
        let is_decided = weight > 0.0
            && !self.estimate.by_columns.is_uncertain(quotient, (255.0 / weight) as f32);
        is_decided.then(|| (quotient.min(255.0) + LIFT).to_bits() as u8)
    }

    /// The byte of a result, by exact sums.
    fn resolve(&self, resolving: &mut [round::Scratch], (x, y, channel): Place) -> u8 {
        let Quotients { exact, byte_filter, planes, .. } = self.quotients;
        let (channels, of_mask) = (exact.job.src.shape().channels, exact.mask.shape().channels);
        let mut sums = self.resolvers.iter().zip(resolving).enumerate().map(
            |(number, (resolver, scratch))| {
                let is_mask = number == planes.len();
                let channel = if is_mask { channel * of_mask / channels } else { channel };
                resolver.sum(exact.engine.isa, (x, y, channel), scratch)
            },
        );
        let sum = planes
            .iter()
            .zip(&mut sums)
            .map(|(plane, sum)| i128::from(plane.factor) * sum)
            .sum::<i128>();
        match sums.next() {
            None | Some(0) => exact.empty,
            // The plain filter's.
            Some(weight) if weight == self.total => byte_filter.whole.divisor.byte(sum / 255),
            Some(weight) => ratio(sum, weight) as u8,
        }
    }
}

/// The bytes of quotients, and the columns of those that are too near a half, or NaN.
struct Divide<'a> {
    products: &'a [f32],
    /// Each for as many products.
    weights: &'a [f32],
    /// What products are multiplied by.
    factor: f32,
    error: Error,
    /// The result where no pixel is known.
    empty: u8,
    out: &'a mut [u8],
    noted: &'a mut Vec<usize>,
}

impl Vectorized for Divide<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Self { products, weights, factor, error, empty, out, noted } = self;
        let per_weight = products.len() / weights.len();
        let mut divide = Parts { error, unit: 255.0 / factor, empty, noted };
        // No tap is negative, so where a sum is 0, no pixel is known.
        let inverse = |weight: f32| if weight > 0.0 { factor / weight } else { -1.0 };
        if per_weight == 1 {
            for (at, out) in (0..).step_by(BLOCK).zip(out.chunks_mut(BLOCK)) {
                divide.part(at, &products[at..], &weights[at..], inverse, out);
            }
            return;
        }
        let step = if per_weight <= MOST { BLOCK } else { 1 };
        let (mut inverses, mut spread) = ([0.0; BLOCK], [0.0; BLOCK * MOST]);
        for (number, weights) in weights.chunks(step).enumerate() {
            let inverses = &mut inverses[..weights.len()];
            inverses.iter_mut().zip(weights).for_each(|(to, &weight)| *to = inverse(weight));
            let values = number * step * per_weight..(number * step + weights.len()) * per_weight;
            if per_weight <= MOST {
                repeat(inverses, per_weight, &mut spread[..values.len()]);
            } else {
                spread.fill(inverses[0]);
            }
            for at in values.clone().step_by(BLOCK) {
                let spread = &spread[if per_weight <= MOST { at - values.start } else { 0 }..];
                let out = &mut out[at..values.end.min(at + BLOCK)];
                divide.part(at, &products[at..], spread, |inverse| inverse, out);
            }
        }
    }
}

/// What all parts of a row share.
struct Parts<'a> {
    error: Error,
    /// What inverses are multiplied by, to be 1 over the known part of the taps.
    unit: f32,
    empty: u8,
    noted: &'a mut Vec<usize>,
}

impl Parts<'_> {
    /// Stores the bytes of up to [`BLOCK`] products, from column `first` on, times inverses of
    /// weights. An inverse of -1 says that nothing is known.
    #[inline(always)]
    fn part(
        &mut self,
        first: usize,
        products: &[f32],
        numbers: &[f32],
        inverse: impl Fn(f32) -> f32,
        out: &mut [u8],
    ) {
        let (products, numbers) = (&products[..out.len()], &numbers[..out.len()]);
        let mut any = false;
        for ((out, &product), &number) in out.iter_mut().zip(products).zip(numbers) {
            let inverse = inverse(number);
            let quotient = product * inverse;
            any |= self.error.is_uncertain(quotient, inverse * self.unit);
            let byte = (quotient.min(255.0) + LIFT).to_bits() as u8;
            *out = if inverse < 0.0 { self.empty } else { byte };
        }
        if any {
            for (at, (&product, &number)) in products.iter().zip(numbers).enumerate() {
                let inverse = inverse(number);
                if self.error.is_uncertain(product * inverse, inverse * self.unit) {
                    self.noted.push(first + at);
                }
            }
        }
    }
}

/// To numbers of this size, a number is added as a multiple of 1.
const LIFT: f32 = 1.5 * (1u32 << 23) as f32;
