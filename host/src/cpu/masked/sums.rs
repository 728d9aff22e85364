//! The direct and the separable family: sums of products and of weights side by side.
//!
//! ```text
//! for each rectangle of results, as in bands:
//!     for a few rows:
//!         sums of weighted pixels               in the order of the filter's family
//!         sums of weights                       likewise; one number where every weight is 1
//!         sums of |tap| times weights           where taps are negative
//!         results from these, to pixels
//! ```

use std::ops::Range;

use super::{Job, Make, Results};
use crate::cpu::bands::{self, band};
use crate::cpu::frame::{Frame, Passes, Target, Terms};
use crate::cpu::lines::Scratch;
use crate::cpu::rows::{AddPoint, Narrow};
use crate::cpu::run::Run;
use crate::cpu::share::share;
use crate::cpu::taps::Taps;
use crate::cpu::tile::SLACK;
use crate::image::{ImageView, ImageViewMut, Pixel, Shape};
use crate::mask::{Coverage, Mask, Nan, Rule};
use crate::progress::{Report, Stage};
use crate::simd::Isa;
use crate::window::Window;
use crate::{Border, Family, Result};

/// A filter's taps, or their magnitudes, in the order of a family.
pub(super) struct Ordered<'a> {
    terms: Terms<'a>,
    /// The sum of the taps in that order.
    ones: f32,
}

impl<'a> Ordered<'a> {
    pub(super) fn new(isa: Isa, taps: &'a Taps, family: Family) -> Result<Self> {
        let (one, mut sum) = ([1.0f32], [0.0f32]);
        let src = ImageView::new(&one, 1, 1, 1)?;
        let mut dst = ImageViewMut::new(&mut sum, 1, 1, 1)?;
        let window = Window::new(&taps.filter, Border::Replicate);
        let frame = Frame::new(isa, window, &src, &mut dst, 1);
        let (report, (_, terms)) = (Report::default(), taps.ordered(family)?);
        bands::run(&Run::new(&frame, &terms, None), None, &report.call(0).stage(0, 0))?;
        Ok(Self { terms, ones: sum[0] })
    }

    /// The sum of the taps.
    pub(super) fn ones(&self) -> f32 {
        self.ones
    }

    /// Taps that are taken for a result.
    pub(super) fn taps(&self) -> usize {
        let taps = |passes: &Passes<'_>| passes.across.map_or(0, <[f32]>::len) + passes.taps.len();
        1 + self.terms.passes.iter().map(taps).sum::<usize>()
    }
}

/// A source of sums, whatever its pixels' type.
trait Sums: Sync {
    /// Values of a pixel.
    fn channels(&self) -> usize;
    /// Columns of results in a rectangle.
    fn strip(&self) -> usize;
    /// The greatest number of rows that are computed together.
    fn together(&self, left: usize) -> usize;
    /// Begins a rectangle.
    fn start(&self, scratch: &mut Scratch, columns: &Range<usize>) -> Result<()>;
    /// Computes the sums of `count` rows from row `y` on, into `scratch.sums`. Where every pixel
    /// under the windows weighs 1, all sums of weights are `ones`. Says whether they all are.
    fn sum(
        &self,
        scratch: &mut Scratch,
        columns: &Range<usize>,
        rows: (usize, usize),
        ones: f32,
    ) -> bool;
}

impl<S: Pixel> Sums for Run<'_, S, f32> {
    fn channels(&self) -> usize {
        self.frame.src.shape().channels
    }

    fn strip(&self) -> usize {
        Run::strip(self)
    }

    fn together(&self, left: usize) -> usize {
        self.rows_together(left)
    }

    fn start(&self, scratch: &mut Scratch, columns: &Range<usize>) -> Result<()> {
        scratch.start(self, columns)
    }

    fn sum(
        &self,
        scratch: &mut Scratch,
        columns: &Range<usize>,
        (y, count): (usize, usize),
        ones: f32,
    ) -> bool {
        let mut sums = std::mem::take(&mut scratch.sums);
        let (len, mut row, mut all) = (columns.len() * self.channels(), 0, true);
        while row < count {
            let some = self.rows_together(count - row);
            let out = &mut sums[row * (len + SLACK)..];
            if self.all_ones(scratch, columns, (y + row, some)) {
                out.chunks_mut(len + SLACK).take(some).for_each(|row| row[..len].fill(ones));
            } else {
                all = false;
                let rows = self.add_up(scratch, columns, (y + row, some), out);
                self.add_points(scratch, columns, y + row, rows.into_iter().take(some));
            }
            row += some;
        }
        scratch.sums = sums;
        all
    }
}

impl<S: Pixel> Run<'_, S, f32> {
    /// Whether weights alone are summed, and every one under the windows of these rows is 1.
    fn all_ones(
        &self,
        scratch: &mut Scratch,
        columns: &Range<usize>,
        (y, count): (usize, usize),
    ) -> bool {
        let is_alone = self.frame.weigh.is_some_and(|weigh| weigh.alone);
        is_alone
            && self.blocks == 1
            && (y..y + count + self.frame.window.rows - 1).fold(true, |all, row| {
                let slot = self.line(scratch, columns, 0, row)
                    / (self.terms_per_ring() * scratch.line_len);
                all & scratch.rings[0].clean[slot]
            })
    }

    /// Adds the pixel's own term to the sums of rows from row `y` on.
    fn add_points<'s>(
        &self,
        scratch: &mut Scratch,
        columns: &Range<usize>,
        y: usize,
        rows: impl Iterator<Item = &'s mut [f32]>,
    ) {
        let (Some(factor), Some(weigh)) = (self.terms.point, &self.frame.weigh) else { return };
        for (i, sums) in rows.enumerate() {
            let values = &mut scratch.point[..sums.len()];
            self.weighted_row(weigh, values, columns, y + i);
            let values = &*values;
            self.frame.isa.run(AddPoint { factor, values, sums });
        }
    }
}

/// The sums of a call: of weights and of magnitudes times weights, those that it needs.
struct AllSums<'a> {
    products: &'a dyn Sums,
    weights: Option<&'a dyn Sums>,
    magnitudes: Option<&'a dyn Sums>,
}

/// The orders of the taps, and of their magnitudes where the rule needs them.
pub(super) struct Orders<'a> {
    pub(super) rule: Rule,
    pub(super) taps: Ordered<'a>,
    pub(super) magnitudes: Option<Ordered<'a>>,
}

/// Filters an image as [`super::Engine::run_masked`] says, in the direct or the separable family.
pub(super) fn run<S: Pixel, D: Pixel>(
    (isa, window): (Isa, Window),
    orders: &Orders<'_>,
    job: &Job<'_, S>,
    dst: &mut ImageViewMut<'_, D>,
    coverage: &mut Coverage<'_>,
    stage: &Stage<'_>,
) -> Result<()> {
    let (src, filtered, nowhere) = (job.src, job.filtered, Target::nowhere);
    let weigh = Some(job.weigh(false));
    let frame = Frame { isa, window, src, dst: nowhere(), filtered, weigh, light: None };
    let products = Run::new(&frame, &orders.taps.terms, None);
    let targets = Targets::new(dst, coverage);
    let call = Call { isa, window, orders, job, products: &products, targets, stage };
    // Weights come from the mask alone, unless the pixels say something too.
    let (window, weigh) = (Window { border_value: 0.0, ..window }, Some(job.weigh(true)));
    match job.known.mask {
        Mask::Bytes(src) if !job.known.unknown.is_nan(S::SCALAR) => {
            call.weighted(&Frame { isa, window, src, dst: nowhere(), filtered, weigh, light: None })
        }
        Mask::Weights(src) if !job.known.unknown.is_nan(S::SCALAR) => {
            call.weighted(&Frame { isa, window, src, dst: nowhere(), filtered, weigh, light: None })
        }
        _ => {
            call.weighted(&Frame { isa, window, src, dst: nowhere(), filtered, weigh, light: None })
        }
    }
}

/// What a call writes to.
struct Targets<'a, D> {
    results: Target<'a, D>,
    weights: Option<Target<'a, f32>>,
    known: Option<Target<'a, u8>>,
}

impl<'a, D: Pixel> Targets<'a, D> {
    fn new(dst: &'a mut ImageViewMut<'_, D>, coverage: &'a mut Coverage<'_>) -> Self {
        Self {
            results: Target::new(dst),
            weights: coverage.weights.as_mut().map(Target::new),
            known: coverage.known.as_mut().map(Target::new),
        }
    }
}

/// A call under way.
struct Call<'a, S, D> {
    isa: Isa,
    window: Window,
    orders: &'a Orders<'a>,
    job: &'a Job<'a, S>,
    products: &'a dyn Sums,
    targets: Targets<'a, D>,
    stage: &'a Stage<'a>,
}

/// A thread's memory.
#[derive(Default)]
struct Memory {
    products: Scratch,
    weights: Scratch,
    magnitudes: Scratch,
    /// The weights of the pixels themselves.
    own: Vec<f32>,
}

impl<S: Pixel, D: Pixel> Call<'_, S, D> {
    /// Filters with the weights of a frame.
    fn weighted<M: Pixel>(&self, frame: &Frame<'_, M, f32>) -> Result<()> {
        let orders = self.orders;
        let needs_weights = orders.rule != Rule::Sum || self.targets.weights.is_some();
        let weights = Run::new(frame, &orders.taps.terms, None);
        let magnitudes =
            orders.magnitudes.as_ref().map(|ordered| Run::new(frame, &ordered.terms, None));
        self.rectangles(&AllSums {
            products: self.products,
            weights: needs_weights.then_some(&weights as &dyn Sums),
            magnitudes: magnitudes.as_ref().map(|magnitudes| magnitudes as &dyn Sums),
        })
    }

    fn rectangles(&self, sums: &AllSums<'_>) -> Result<()> {
        let Shape { width, height, .. } = self.job.src.shape();
        let strip = sums.products.strip();
        let strips = width.div_ceil(strip);
        let band = match self.stage.cut_for() {
            1 => height,
            threads => band(height, self.window.rows, strips, threads),
        };
        share(self.stage, 0..height.div_ceil(band) * strips, |memory: &mut Memory, job| {
            let (x, y) = (job % strips * strip, job / strips * band);
            let (columns, rows) = (x..width.min(x + strip), y..height.min(y + band));
            sums.products.start(&mut memory.products, &columns)?;
            for (sums, scratch) in
                [(sums.weights, &mut memory.weights), (sums.magnitudes, &mut memory.magnitudes)]
            {
                sums.map_or(Ok(()), |sums| sums.start(scratch, &columns))?;
            }
            let mut y = rows.start;
            while y < rows.end {
                let count = sums.products.together(rows.end - y);
                self.rows(sums, memory, &columns, (y, count));
                y += count;
            }
            Ok(())
        })
    }

    /// Computes the results of a few rows.
    fn rows(
        &self,
        sums: &AllSums<'_>,
        memory: &mut Memory,
        columns: &Range<usize>,
        rows: (usize, usize),
    ) {
        let Memory { products, weights, magnitudes, own } = memory;
        let ones = [Some(&self.orders.taps), self.orders.magnitudes.as_ref()]
            .map(|ordered| ordered.map_or(0.0, |ordered| ordered.ones));
        sums.products.sum(products, columns, rows, 0.0);
        let mut all_ones = true;
        if let Some(sums) = sums.weights {
            all_ones &= sums.sum(weights, columns, rows, ones[0]);
        }
        if let Some(sums) = sums.magnitudes {
            all_ones &= sums.sum(magnitudes, columns, rows, ones[1]);
        }
        let (channels, of_weights) = (self.job.src.shape().channels, self.job.weights());
        let (len, few) = (columns.len() * channels, columns.len() * of_weights);
        for (i, values) in products.sums.chunks_mut(len + SLACK).take(rows.1).enumerate() {
            let row = i * (few + SLACK)..i * (few + SLACK) + few;
            let weights = sums.weights.map(|_| &weights.sums[row.clone()]);
            let magnitudes = sums.magnitudes.map(|_| &magnitudes.sums[row]);
            let values = &mut values[..len];
            let of_row = RowOfSums { values, weights, magnitudes, all_ones };
            // SAFETY: no other job has these rows and columns, and each row is taken once.
            unsafe { self.results(of_row, columns, rows.0 + i, own) };
        }
    }

    /// Writes the results of row `y`.
    ///
    /// # Safety
    /// Nothing else refers to this part of the destinations.
    unsafe fn results(
        &self,
        sums: RowOfSums<'_>,
        columns: &Range<usize>,
        y: usize,
        own: &mut Vec<f32>,
    ) {
        let (src, known) = (&self.job.src, self.job.known);
        let channels = src.shape().channels;
        let part = columns.start * channels..columns.end * channels;
        // SAFETY: the caller's promise.
        let (out, out_weights, mut out_known) = unsafe {
            (
                self.targets.results.row(y, part.clone()),
                self.targets.weights.as_ref().map(|to| to.row(y, part.clone())),
                self.targets.known.as_ref().map(|to| to.row(y, part.clone())),
            )
        };
        let RowOfSums { values, weights, magnitudes, all_ones } = sums;
        let per_weight = channels / self.job.weights();
        if let (Some(out), Some(weights)) = (out_weights, weights) {
            for (out, &weight) in out.chunks_exact_mut(per_weight).zip(weights) {
                out.fill(weight);
            }
        }
        let to = D::floats_mut(&mut *out);
        if all_ones {
            if let Some(known) = &mut out_known {
                known.fill(255);
            }
            self.isa.run(Narrow { values, out });
        } else {
            let results = Results {
                rule: self.orders.rule,
                ones: self.orders.taps.ones,
                unknown: known.unknown.result as f32,
                per_weight,
                weights: weights.unwrap_or_default(),
                magnitudes: magnitudes.or(weights).unwrap_or_default(),
            };
            if let Some(known) = &mut out_known {
                results.known(known);
            }
            match to {
                Some(to) => self.isa.run(Make { results, values: &*values, to }),
                None => {
                    own.resize(values.len(), 0.0);
                    self.isa.run(Make { results, values: &*values, to: own });
                    self.isa.run(Narrow { values: own, out });
                }
            }
        }
        if known.unknown.nan == Nan::Fill {
            self.job.keep_known(columns, y, own, out, out_known);
        }
        self.window.restore(src, self.job.filtered, columns, y, out);
    }
}

/// The sums of a part of a row.
struct RowOfSums<'a> {
    values: &'a mut [f32],
    weights: Option<&'a [f32]>,
    magnitudes: Option<&'a [f32]>,
    /// Whether every pixel under the windows weighs 1.
    all_ones: bool,
}
