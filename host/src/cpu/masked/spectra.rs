//! The family of spectra: whole images of products and of weights, filtered one after the other.
//!
//! Spectra leave an error in every sum, as great as that of the greatest. So a sum of weights must
//! not be small beside the sum of taps: where it is, all sums are taken tap by tap, in f64
//! ([`LITTLE`]).

use gpu_kernels::border::{REPLICATE, copies};

use super::{Job, Results, Weighing};
use crate::cpu::share::share;
use crate::cpu::taps::Taps;
use crate::cpu::{Engine, bands, fourier};
use crate::image::{Image, ImageViewMut, Pixel, Shape};
use crate::mask::{Coverage, Nan, Rule, rows_of};
use crate::progress::Stage;
use crate::window::Window;
use crate::{Filter, Result};

/// Results with less than this part of the taps' weight are summed tap by tap. Elsewhere, a
/// quotient's error is at most 16 times that of spectra.
const LITTLE: f32 = 1.0 / 16.0;

/// The sums of an image. Weights and magnitudes have the channels of [`Job::weights`].
struct Sums {
    products: Image<f32>,
    weights: Image<f32>,
    /// `None` where no tap is negative: they are the weights.
    magnitudes: Option<Image<f32>>,
}

/// Filters an image as [`Engine::run_masked`] says.
pub(super) fn run<S: Pixel, D: Pixel>(
    engine: &Engine,
    weighing: Weighing,
    job: &Job<'_, S>,
    dst: &mut ImageViewMut<'_, D>,
    coverage: &mut Coverage<'_>,
    stage: &Stage<'_>,
) -> Result<()> {
    let Shape { width, height, channels } = job.src.shape();
    let few = job.weights();
    let mut products = Image::zeroed(width, height, channels)?;
    let mut weights = Image::zeroed(width, height, few)?;
    weigh(engine, job, (&mut products, &mut weights), stage)?;
    let outside = job.known.outside();
    // What a border copies is restored in the results alone.
    let border = match engine.window().border {
        border if copies(border) => REPLICATE,
        border => border,
    };
    let plain = Window { border, ..engine.window() };
    let of_weights = Window { border_value: outside, ..plain };
    let filtered = |taps: &Taps, window: &Window, image: &Image<f32>| -> Result<Image<f32>> {
        let Shape { channels, .. } = image.shape();
        let mut sums = Image::zeroed(width, height, channels)?;
        let (dense, spectra) = (taps.dense()?, taps.spectra.of(&taps.filter, width)?);
        let to = (&mut sums.view_mut(), channels);
        fourier::run(engine.isa, (window, dense), &spectra, None, &image.view(), to, stage)?;
        Ok(sums)
    };
    let (rule, taps) = (weighing.rule, engine.taps_of(weighing)?);
    let magnitudes = engine.magnitudes(weighing)?;
    let sums = Sums {
        products: filtered(taps, &plain, &products)?,
        magnitudes: magnitudes.map(|taps| filtered(taps, &of_weights, &weights)).transpose()?,
        weights: filtered(taps, &of_weights, &weights)?,
    };
    let greatest = weights.as_slice().iter().fold(0.0f32, |most, &weight| most.max(weight));
    let finish = Finish {
        engine,
        filter: &taps.filter,
        rule,
        job,
        window: of_weights,
        columns: (0..width + of_weights.cols - 1)
            .map(|at| of_weights.column(at, 0, width))
            .collect(),
        ones: [taps.filter.sum_of_taps(), taps.filter.weight()].map(|sum| sum as f32),
        greatest,
        from: (&products, &weights),
        sums: &sums,
    };
    let band = bands::band(height, 1, 1, stage.cut_for());
    let of_weights = rows_of(coverage.weights.as_mut(), band, height);
    let known = rows_of(coverage.known.as_mut(), band, height);
    let rows = dst.bands_mut(band).zip(of_weights.into_iter().zip(known)).enumerate();
    let rows: Vec<_> = rows.collect();
    share(stage, rows.into_iter(), |memory: &mut Memory, (number, (out, (weights, known)))| {
        let beside = weights.into_iter().zip(known);
        for (y, (out, (weights, known))) in (number * band..).zip(out.into_iter().zip(beside)) {
            finish.row(memory, y, out, (weights, known));
        }
        Ok(())
    })
}

/// Makes images of products and of weights.
fn weigh<S: Pixel>(
    engine: &Engine,
    job: &Job<'_, S>,
    (products, weights): (&mut Image<f32>, &mut Image<f32>),
    stage: &Stage<'_>,
) -> Result<()> {
    let Shape { width, height, channels } = job.src.shape();
    let few = job.weights();
    let rows = products.as_mut_slice().chunks_exact_mut(width * channels);
    let rows = rows.zip(weights.as_mut_slice().chunks_exact_mut(width * few)).enumerate();
    debug_assert_eq!(rows.len(), height);
    share(stage, rows, |_: &mut (), (y, (products, weights))| {
        S::widen(job.src.row(y), products);
        if few == channels {
            weights.copy_from_slice(products);
        }
        job.weigh(true).row(engine.isa, y, 0, few, weights);
        job.weigh(false).row(engine.isa, y, 0, channels, products);
        Ok(())
    })
}

/// A thread's memory.
#[derive(Default)]
struct Memory {
    own: Vec<f32>,
    row: Vec<f32>,
    /// Of each channel of the weights, the columns under a row's windows with known pixels.
    known: Vec<Vec<bool>>,
}

/// What makes results of the sums.
struct Finish<'a, S> {
    engine: &'a Engine,
    filter: &'a Filter,
    rule: Rule,
    job: &'a Job<'a, S>,
    /// The window over the weights.
    window: Window,
    /// The image's column under each column of a row's windows.
    columns: Vec<Option<usize>>,
    /// The sums of the taps and of their magnitudes.
    ones: [f32; 2],
    /// The greatest weight.
    greatest: f32,
    /// Products and weights.
    from: (&'a Image<f32>, &'a Image<f32>),
    sums: &'a Sums,
}

impl<S: Pixel> Finish<'_, S> {
    fn row<D: Pixel>(
        &self,
        memory: &mut Memory,
        y: usize,
        out: &mut [D],
        (mut weights, mut known): (Option<&mut [f32]>, Option<&mut [u8]>),
    ) {
        let Shape { width, channels, .. } = self.job.src.shape();
        let few = self.job.weights();
        let part = |channels: usize| y * width * channels..(y + 1) * width * channels;
        let products = &self.sums.products.as_slice()[part(channels)];
        let of_weights = &self.sums.weights.as_slice()[part(few)];
        let magnitudes = self.sums.magnitudes.as_ref().unwrap_or(&self.sums.weights);
        let magnitudes = &magnitudes.as_slice()[part(few)];
        let ones = if self.rule == Rule::Average { self.ones[0] } else { self.ones[1] };
        let least = LITTLE * self.greatest * ones;
        let result = Results {
            rule: self.rule,
            ones: self.ones[0],
            unknown: self.job.known.unknown.result as f32,
            per_weight: channels / few,
            weights: &[],
            magnitudes: &[],
        };
        memory.row.clear();
        memory.known.clear();
        for (at, &sum) in products.iter().enumerate() {
            let weight = at * few / channels;
            let mut sums = [sum, of_weights[weight], magnitudes[weight]];
            if sums[2].partial_cmp(&least) != Some(std::cmp::Ordering::Greater) {
                sums = self.little((at / channels, y), at % channels, &mut memory.known);
            }
            let (value, is_known) = result.of(sums[0], sums[1], sums[2]);
            memory.row.push(value);
            if let Some(weights) = &mut weights {
                weights[at] = sums[1];
            }
            if let Some(known) = &mut known {
                known[at] = if is_known { 255 } else { 0 };
            }
        }
        D::narrow(&memory.row, out);
        let all = 0..width;
        if self.job.known.unknown.nan == Nan::Fill {
            self.job.keep_known(&all, y, &mut memory.own, out, known);
        }
        self.engine.window().restore(&self.job.src, self.job.filtered, &all, y, out);
    }

    /// The sums of a result of which little is known. `known` is empty at a row's first one.
    fn little(
        &self,
        (x, y): (usize, usize),
        channel: usize,
        known: &mut Vec<Vec<bool>>,
    ) -> [f32; 3] {
        let (few, channels) = (self.job.weights(), self.job.src.shape().channels);
        if known.is_empty() {
            known.resize_with(few, Vec::new);
            known.iter_mut().enumerate().for_each(|(c, known)| self.known_columns(y, c, known));
        }
        // Spectra do not say for certain that nothing is known.
        match known[channel * few / channels][x..x + self.window.cols].contains(&true) {
            true => self.by_taps((x, y), channel).map(|sum| sum as f32),
            false => [0.0; 3],
        }
    }

    /// Under each column of a row's windows, whether a pixel of a channel is known.
    fn known_columns(&self, y: usize, channel: usize, known: &mut Vec<bool>) {
        let Shape { width, height, .. } = self.job.src.shape();
        let (few, weights) = (self.job.weights(), self.from.1.as_slice());
        known.clear();
        known.resize(self.columns.len(), false);
        for r in 0..self.window.rows {
            match self.window.row(y, r, height) {
                Some(row) => {
                    let row = &weights[row * width * few..][..width * few];
                    for (known, column) in known.iter_mut().zip(&self.columns) {
                        let weight =
                            column.map_or(self.window.border_value, |x| row[x * few + channel]);
                        *known |= weight != 0.0;
                    }
                }
                None if self.window.border_value != 0.0 => return known.fill(true),
                None => {}
            }
        }
    }

    /// The sums of one result, tap by tap: of products, of weights, and of magnitudes.
    fn by_taps(&self, (x, y): (usize, usize), channel: usize) -> [f64; 3] {
        let Shape { width, height, channels } = self.job.src.shape();
        let few = self.job.weights();
        let (products, weights) = (self.from.0.as_slice(), self.from.1.as_slice());
        let outside = [self.engine.window().border_value, self.window.border_value].map(f64::from);
        let columns = &self.columns[x..x + self.window.cols];
        let mut sums = [0.0; 3];
        for r in 0..self.window.rows {
            let row = self.window.row(y, r, height);
            for (c, &column) in columns.iter().enumerate() {
                let tap = self.filter.tap(r, c);
                let [product, weight] = row.zip(column).map_or(outside, |(y, x)| {
                    let at = y * width + x;
                    let weight = weights[at * few + channel * few / channels];
                    [products[at * channels + channel], weight].map(f64::from)
                });
                sums[0] += tap * product;
                sums[1] += tap * weight;
                sums[2] += tap.abs() * weight;
            }
        }
        sums
    }
}
