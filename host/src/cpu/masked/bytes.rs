//! Bytes made of bytes and a mask of bytes.
//!
//! Quotients are exact, rounded half to even, over the whole taps. Where every pixel under the
//! window is known, the result is the plain filter's byte. So where few results have an unknown
//! pixel under their windows, the plain filter makes all results, and [`Quotients`] those; else
//! [`Quotients`] makes all.
//!
//! Sums over known pixels are the plain filter's, over an image in which unknown pixels are 0.

use super::Job;
use super::exact::Exact;
use super::quotients::{Estimate, Plane, Quotients};
use super::reach::Reach;
use super::support::{Lines, Support};
use super::weigh::{BLOCK, MOST, repeat};
use crate::cpu::Engine;
use crate::cpu::bands::band;
use crate::cpu::boxes::known::KnownMean;
use crate::cpu::boxes::mean::Mean;
use crate::cpu::share::share;
use crate::cpu::taps::Bytes;
use crate::image::{Image, ImageView, ImageViewMut, Pixel, Shape};
use crate::mask::{Coverage, Mask, Nan, Rule};
use crate::progress::Stage;
use crate::simd::{Lanes, Vectorized};
use crate::{Family, Result};

/// The greatest share of results with unknown pixels for which the plain filter makes all results
/// first: quotients take about twice its time.
const FEW: f64 = 0.5;

impl Engine {
    pub(super) fn run_masked_bytes(
        &self,
        (family, rule): (Family, Rule),
        job: &Job<'_, u8>,
        dst: &mut ImageViewMut<'_, u8>,
        coverage: &mut Coverage<'_>,
        stage: &Stage<'_>,
    ) -> Result<()> {
        let Shape { width, height, .. } = job.src.shape();
        let all_known;
        let mask = match job.known.mask {
            Mask::Bytes(view) => view,
            _ => {
                let bytes = vec![255; width * height];
                all_known = Image::from_vec(bytes, width, height, 1)?;
                all_known.view()
            }
        };
        let given = matches!(job.known.mask, Mask::Bytes(_)).then_some(&mask);
        let reach = Reach::new(self.isa, &self.window(), given, job, stage)?;
        let is_by_weights = rule == Rule::Sum && reach.all.has_weights();
        if is_by_weights || coverage.weights.is_some() || coverage.known.is_some() {
            self.masked_values((family, rule), job, dst, coverage, stage)?;
        }
        match rule {
            _ if is_by_weights => return Ok(()),
            Rule::Sum => self.sums_of_bytes(family, job, (mask, &reach), dst, stage)?,
            _ => self.quotients_of_bytes((family, rule), job, (mask, &reach), dst, stage)?,
        }
        self.finish(job, dst, stage)
    }

    /// Copies the results that are not computed.
    fn finish(
        &self,
        job: &Job<'_, u8>,
        dst: &mut ImageViewMut<'_, u8>,
        stage: &Stage<'_>,
    ) -> Result<()> {
        let Shape { width, height, .. } = job.src.shape();
        let band = band(height, 1, 1, stage.cut_for());
        share(stage, dst.bands_mut(band).enumerate(), |own: &mut Vec<f32>, (number, rows)| {
            for (y, out) in (number * band..).zip(rows) {
                if job.known.unknown.nan == Nan::Fill {
                    job.keep_known(&(0..width), y, own, out, None);
                }
                self.window().restore(&job.src, job.filtered, &(0..width), y, out);
            }
            Ok(())
        })
    }

    /// Sums over known pixels, under a mask of 0 and 255.
    fn sums_of_bytes(
        &self,
        family: Family,
        job: &Job<'_, u8>,
        (mask, reach): (ImageView<'_, u8>, &Reach),
        dst: &mut ImageViewMut<'_, u8>,
        stage: &Stage<'_>,
    ) -> Result<()> {
        let Shape { height, channels, .. } = job.src.shape();
        let made = self.selected(job, &mask, reach, stage)?;
        let seen = made.as_ref().map_or(job.src, Image::view);
        self.run(family, &seen.into(), &mut dst.reborrow().into(), job.filtered, stage)?;
        let (filter, outside) = (&self.taps.filter, job.outside());
        let support = Support::new((self.isa, self.window()), filter, mask, outside);
        let unknown = job.unknown();
        let band = band(height, self.window().rows, 1, stage.cut_for());
        let per_byte = channels / mask.shape().channels;
        share(stage, dst.bands_mut(band).enumerate(), |lines: &mut Lines, (number, rows)| {
            for (y, out) in (number * band..).zip(rows) {
                let is_reached = |columns: &_| reach.under(columns, y).has_unknown();
                for columns in reach.strips().filter(is_reached) {
                    let known = lines.known(&support, &columns, y)?;
                    let out = &mut out[columns.start * channels..columns.end * channels];
                    self.isa.run(Leave { known, per_byte, unknown, out });
                }
            }
            Ok(())
        })
    }

    /// Averages, and other quotients.
    fn quotients_of_bytes(
        &self,
        (family, rule): (Family, Rule),
        job: &Job<'_, u8>,
        (mask, reach): (ImageView<'_, u8>, &Reach),
        dst: &mut ImageViewMut<'_, u8>,
        stage: &Stage<'_>,
    ) -> Result<()> {
        if reach.share() == 0.0 {
            let (src, to) = (job.src.into(), &mut dst.reborrow().into());
            return self.run(family, &src, to, job.filtered, stage).map(|_| ());
        }
        let window = self.window();
        let byte_filter = self.taps.filter.byte_filter()?;
        let bytes = self.bytes.get_or_init(|| Bytes::new(byte_filter, &window));
        let takes = |mean: &Mean| KnownMean::takes(*mean, &window, job.src.shape());
        if let Some(mean) = bytes.mean.filter(takes).filter(|_| !reach.all.has_weights()) {
            let made = self.selected(job, &mask, reach, stage)?;
            let pixels = made.as_ref().map_or(job.src, Image::view);
            let (isa, outside, empty) = (self.isa, job.outside(), job.unknown());
            let means = KnownMean { isa, window, mean, pixels, mask, outside, reach, empty };
            return means.run(dst, stage);
        }
        let estimate = match rule {
            Rule::Average => Estimate::new(byte_filter, bytes)?,
            _ => None,
        };
        let is_all = estimate.is_some() && reach.share() > FEW;
        if !is_all {
            self.run(family, &job.src.into(), &mut dst.reborrow().into(), job.filtered, stage)?;
        }
        let products: &[_] = match reach.all.has_weights() {
            true => &[(Product::High, 256), (Product::Low, 1)],
            false => &[(Product::Selected, 255)],
        };
        let images = match reach.all.has_unknown() && estimate.is_some() {
            true => products
                .iter()
                .map(|&(product, _)| self.products(job, &mask, product, stage))
                .collect::<Result<Vec<_>>>()?,
            false => Vec::new(),
        };
        let planes = products.iter().enumerate().map(|(number, &(product, factor))| Plane {
            bytes: images.get(number).map_or(job.src, Image::view),
            outside: product.of(window.border_value as u8, 255),
            factor,
        });
        let planes = planes.collect();
        let (whole, empty) = (&byte_filter.whole, job.unknown());
        let exact = Exact { engine: self, family, whole, window, job, mask, empty };
        Quotients { exact, byte_filter, planes, reach, estimate }.run(is_all, dst, stage)
    }

    /// The pixels under a mask of 0 and 255, unknown ones as 0; `None` if all are known.
    fn selected(
        &self,
        job: &Job<'_, u8>,
        mask: &ImageView<'_, u8>,
        reach: &Reach,
        stage: &Stage<'_>,
    ) -> Result<Option<Image<u8>>> {
        let some = || self.products(job, mask, Product::Selected, stage);
        reach.all.has_unknown().then(some).transpose()
    }

    /// The products of pixels with the mask's bytes.
    fn products(
        &self,
        job: &Job<'_, u8>,
        mask: &ImageView<'_, u8>,
        product: Product,
        stage: &Stage<'_>,
    ) -> Result<Image<u8>> {
        let shape @ Shape { width, height, channels } = job.src.shape();
        let per_byte = channels / mask.shape().channels;
        let mut products = Image::<u8>::zeroed(width, height, channels)?;
        let band = band(height, 1, 1, stage.cut_for());
        let bands = products.as_mut_slice().chunks_mut(band * shape.row_len()).enumerate();
        share(stage, bands, |_: &mut (), (number, rows)| {
            for (y, out) in (number * band..).zip(rows.chunks_exact_mut(shape.row_len())) {
                let (pixels, mask) = (job.src.row(y), mask.row(y));
                self.isa.run(Multiply { product, pixels, mask, per_byte, out });
            }
            Ok(())
        })?;
        Ok(products)
    }
}

impl Job<'_, u8> {
    /// The mask's byte of what lies outside the image.
    fn outside(&self) -> u8 {
        if self.known.outside() == 0.0 { 0 } else { 255 }
    }

    /// The result where no pixel is known.
    fn unknown(&self) -> u8 {
        u8::from_f32(self.known.unknown.result as f32)
    }
}

/// What is taken of a pixel times the mask's byte.
#[derive(Clone, Copy)]
enum Product {
    /// All, over 255: the byte is 0 or 255.
    Selected,
    /// The high byte.
    High,
    /// The low byte.
    Low,
}

impl Product {
    #[inline(always)]
    fn of(self, pixel: u8, weight: u8) -> u8 {
        let product = u16::from(pixel) * u16::from(weight);
        match self {
            Self::Selected => pixel & weight,
            Self::High => (product >> 8) as u8,
            Self::Low => product as u8,
        }
    }
}

/// Products of a row.
struct Multiply<'a> {
    product: Product,
    pixels: &'a [u8],
    /// Each byte for as many values.
    mask: &'a [u8],
    per_byte: usize,
    out: &'a mut [u8],
}

impl Vectorized for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Self { product, pixels, mask, per_byte, out } = self;
        let all = |of: fn(u8, u8) -> u8, out: &mut [u8]| {
            each(mask, per_byte, out, |out, weights, at| {
                let pixels = pixels[at..].iter().zip(weights);
                out.iter_mut().zip(pixels).for_each(|(out, (&p, &m))| *out = of(p, m));
            });
        };
        match product {
            Product::Selected => all(|p, m| Product::Selected.of(p, m), out),
            Product::High => all(|p, m| Product::High.of(p, m), out),
            Product::Low => all(|p, m| Product::Low.of(p, m), out),
        }
    }
}

/// Leaves the results with known pixels as they are.
struct Leave<'a> {
    /// 0 where none is known, each for as many results.
    known: &'a [u8],
    per_byte: usize,
    unknown: u8,
    out: &'a mut [u8],
}

impl Vectorized for Leave<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Self { known, per_byte, unknown, out } = self;
        each(known, per_byte, out, |out, known, _| {
            let each = out.iter_mut().zip(known);
            each.for_each(|(out, &known)| *out = if known == 0 { unknown } else { *out });
        });
    }
}

/// Calls `work` for parts of a row: its values, a number for each of them, and the first value's
/// place. Each of the row's numbers is for `channels` values.
#[inline(always)]
fn each(
    numbers: &[u8],
    channels: usize,
    values: &mut [u8],
    work: impl Fn(&mut [u8], &[u8], usize),
) {
    let mut spread = [0; BLOCK * MOST];
    match channels {
        1 => work(values, numbers, 0),
        2..=MOST => {
            let parts = values.chunks_mut(BLOCK * channels).zip(numbers.chunks(BLOCK));
            for (part, (values, numbers)) in parts.enumerate() {
                let spread = &mut spread[..values.len()];
                repeat(numbers, channels, spread);
                work(values, spread, part * BLOCK * channels);
            }
        }
        _ => {
            let pixels = values.chunks_exact_mut(channels).zip(numbers);
            for (pixel, (values, &number)) in pixels.enumerate() {
                for (part, values) in values.chunks_mut(BLOCK).enumerate() {
                    work(values, &[number; BLOCK], pixel * channels + part * BLOCK);
                }
            }
        }
    }
}
