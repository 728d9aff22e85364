//! Sums over known pixels in f64, on the CPU.
//!
//! An image of products and one of weights are filtered as any other, and make the results.

use gpu_kernels::border::copies;

use super::double::{Step, image_of, shape_of, step};
use super::{Channels, Plan, agree, pixels};
use crate::image::{Image, ImageView, ImageViewMut, Number, Shape};
use crate::mask::{Coverage, Known, Mask, Nan, Rule, rows_of};
use crate::passes::Array;
use crate::progress::Call;
use crate::threads::{self, Effort};
use crate::{Border, Device, Filter, Result};

/// Nanoseconds on one thread to weigh a value, and to make a result.
const EACH: f64 = 3.0;

impl Plan {
    /// As [`Plan::run_masked_with`], in f64 and on the CPU, for pictures and results of any type of
    /// numbers: see [`Plan::run_f64`].
    ///
    /// ```
    /// use apron::{Coverage, Filter, ImageView, ImageViewMut, Mask, Nan, Plan};
    ///
    /// let plan = Plan::builder(Filter::box_filter(3, 1)?).nan(Nan::Ignore).build()?;
    /// let (values, mut means) = ([1.0, f64::NAN, 3.0, 1e9], [0.0; 4]);
    /// let src = ImageView::new(&values, 4, 1, 1)?;
    /// let mask = [255u8, 255, 255, 0];
    /// let mask: Mask = ImageView::new(&mask, 4, 1, 1)?.into();
    /// let mut dst = ImageViewMut::new(&mut means, 4, 1, 1)?;
    /// plan.run_masked_f64(&src, mask, &mut dst, Coverage::default())?;
    /// assert_eq!(means, [1.0, 2.0, 3.0, 3.0]);
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Plan::run_masked_with`] and [`Plan::run_f64`].
    pub fn run_masked_f64<'m, S: Number, D: Number>(
        &self,
        src: &ImageView<'_, S>,
        mask: impl Into<Mask<'m>>,
        dst: &mut ImageViewMut<'_, D>,
        coverage: Coverage<'_>,
    ) -> Result<()> {
        agree(src.shape(), dst.shape())?;
        // SAFETY: the views describe memory that is there, and by Rust's borrowing rules they have
        // no byte in common.
        unsafe {
            self.run_masked_arrays(&Array::of(src), mask.into(), &Array::of_mut(dst), coverage)
        }
    }

    /// As [`Plan::run_masked_f64`], for arrays of rows, columns and channels. For the Python
    /// package.
    ///
    /// # Errors
    /// As for [`Plan::run_masked_f64`].
    ///
    /// # Safety
    /// As for [`Plan::run_arrays`].
    #[doc(hidden)]
    pub unsafe fn run_masked_arrays(
        &self,
        source: &Array,
        mask: Mask<'_>,
        target: &Array,
        mut coverage: Coverage<'_>,
    ) -> Result<()> {
        let shape = shape_of(source);
        mask.check(shape)?;
        coverage.check(shape)?;
        if let Some(gradient) = self.gradient {
            return Err(super::builder::no_gradient(gradient));
        }
        let known = (self.known(mask), &mut coverage);
        let steps = [(self, Channels::First(shape.channels))];
        // SAFETY: the caller's promise.
        unsafe { super::double::run_known(&steps, source, target, Some(known)) }
    }

    /// A plan in f64 for the sums of a call.
    fn of_sums(&self, filter: &Filter, border: Border) -> Result<Self> {
        let builder = Self::builder(filter).border(border).device(Device::Cpu);
        builder.variant(self.variant).build()
    }
}

/// Runs a plan over the known pixels of the first `filtered` channels, and copies the others.
///
/// # Safety
/// As for [`Plan::run_arrays`].
pub(super) unsafe fn masked(
    plan: &Plan,
    filtered: usize,
    (source, target): (&Array, &Array),
    known: &Known<'_>,
    coverage: &mut Coverage<'_>,
    call: &Call<'_>,
) -> Result<()> {
    let shape = shape_of(source);
    let (filter, rule) = (&plan.filter, Rule::of(&plan.filter));
    let weigher = Weigher { source, known, shape };
    // SAFETY: the caller's promise; images of their own are no part of anything else.
    unsafe {
        let (mut products, mut weights) = (image_of(shape)?, image_of(weigher.of_weights())?);
        weigher.weigh(&mut products, &mut weights);
        let sums = |filter: &Filter, border: Border, image: Image<f64>| -> Result<Image<f64>> {
            let (plan, mut sums) = (plan.of_sums(filter, border)?, image_of(image.shape())?);
            let channels = Channels::First(image.shape().channels);
            step(&plan, channels, &Array::of(&image.view()), &Array::of_mut(&mut sums.view_mut()))?;
            Ok(sums)
        };
        let outside = match known.border {
            Border::None => [Border::Constant(0.0); 2],
            Border::Constant(value) => [Border::Constant(value), Border::Constant(1.0)],
            Border::Keep => [Border::Replicate; 2],
            other => [other; 2],
        };
        let products = sums(filter, outside[0], products)?;
        let magnitudes = match rule {
            Rule::Average => None,
            _ => Some(sums(&filter.magnitudes()?, outside[1], weights.clone())?),
        };
        let weights = sums(filter, outside[1], weights)?;
        let finish = Finish { weigher: &weigher, rule, ones: filter.sum_of_taps(), filtered };
        finish.store(target, (&products, &weights, magnitudes.as_ref()), coverage);
        if copies(plan.border.code().0) {
            Step::for_copies(plan, call).restore(source, target)?;
        }
    }
    call.reach(pixels(shape))
}

/// The source, and what is known of it.
struct Weigher<'a> {
    source: &'a Array,
    known: &'a Known<'a>,
    shape: Shape,
}

impl Weigher<'_> {
    /// Whether pixels that are NaN are unknown.
    fn is_nan(&self) -> bool {
        !self.source.kind.is_integer && self.known.unknown.nan != Nan::Spread
    }

    /// The shape of the image of weights.
    fn of_weights(&self) -> Shape {
        let channels = match (self.is_nan(), self.known.mask.channels()) {
            (false, Some(of_mask)) => of_mask,
            _ => self.shape.channels,
        };
        Shape { channels, ..self.shape }
    }

    /// Reads the pixels of row `y` and their weights, a weight for each value.
    ///
    /// # Safety
    /// As for [`masked`].
    unsafe fn read(&self, y: usize, memory: &mut Memory) {
        let Shape { width, channels, .. } = self.shape;
        let [down, across, deep] = [0, 1, 2].map(|axis| self.source.strides[axis]);
        let Memory { one, values, mask, weights } = memory;
        one.resize(width, 0.0);
        values.resize(width * channels, 0.0);
        weights.resize(width * channels, 0.0);
        for channel in 0..channels {
            let row = y as isize * down + channel as isize * deep;
            // SAFETY: the caller's promise: the values of a row.
            unsafe { (self.source.kind.load)(self.source.data.offset(row), across, one) };
            for (value, &one) in values[channel..].iter_mut().step_by(channels).zip(&*one) {
                *value = one;
            }
        }
        let of_mask = self.known.mask.channels().unwrap_or(1);
        mask.resize(width * of_mask, 1.0);
        self.known.mask.row(y, 0, mask);
        let is_nan = self.is_nan();
        for (at, (weight, value)) in weights.iter_mut().zip(&*values).enumerate() {
            let known = f64::from(mask[at * of_mask / channels]);
            *weight = if is_nan && value.is_nan() { 0.0 } else { known };
        }
    }

    /// Makes images of products and of weights.
    ///
    /// # Safety
    /// As for [`masked`].
    unsafe fn weigh(&self, products: &mut Image<f64>, weights: &mut Image<f64>) {
        let Shape { width, channels, .. } = self.shape;
        let few = weights.shape().channels;
        let rows = products.as_mut_slice().chunks_exact_mut(width * channels);
        let rows = rows.zip(weights.as_mut_slice().chunks_exact_mut(width * few)).enumerate();
        let threads = self.threads();
        threads::for_each(threads, rows, |memory: &mut Memory, (y, (products, weights))| {
            // SAFETY: the caller's promise.
            unsafe { self.read(y, memory) };
            let pairs = memory.values.iter().zip(&memory.weights);
            for (product, (&value, &weight)) in products.iter_mut().zip(pairs) {
                *product = if weight == 0.0 { 0.0 } else { value * weight };
            }
            let step = channels / few;
            for (out, &weight) in weights.iter_mut().zip(memory.weights.iter().step_by(step)) {
                *out = weight;
            }
        });
    }

    fn threads(&self) -> usize {
        let Shape { width, height, channels } = self.shape;
        Effort::of_work(EACH * (width * height * channels) as f64).threads_now()
    }
}

/// A thread's memory: of a row, a channel, the pixels, the mask and the weights.
#[derive(Default)]
struct Memory {
    one: Vec<f64>,
    values: Vec<f64>,
    mask: Vec<f32>,
    weights: Vec<f64>,
}

/// What makes results of the sums.
struct Finish<'a> {
    weigher: &'a Weigher<'a>,
    rule: Rule,
    /// The sum of the taps.
    ones: f64,
    filtered: usize,
}

impl Finish<'_> {
    /// Stores the results, and what is to be written beside them.
    ///
    /// # Safety
    /// As for [`masked`].
    unsafe fn store(
        &self,
        target: &Array,
        (products, weights, magnitudes): (&Image<f64>, &Image<f64>, Option<&Image<f64>>),
        coverage: &mut Coverage<'_>,
    ) {
        let shape @ Shape { width, height, .. } = self.weigher.shape;
        let few = weights.shape().channels;
        let of_weights = rows_of(coverage.weights.as_mut(), 1, height).into_iter().flatten();
        let of_known = rows_of(coverage.known.as_mut(), 1, height).into_iter().flatten();
        let rows: Vec<_> = of_weights.zip(of_known).enumerate().collect();
        let threads = self.weigher.threads();
        threads::for_each(threads, rows.into_iter(), |memory: &mut Memory, (y, beside)| {
            let row = |channels: usize| y * width * channels..(y + 1) * width * channels;
            let sums = [
                &products.as_slice()[row(shape.channels)],
                &weights.as_slice()[row(few)],
                &magnitudes.unwrap_or(weights).as_slice()[row(few)],
            ];
            // SAFETY: the caller's promise; each row is stored once.
            unsafe { self.row(target, y, sums, beside, memory) };
        });
    }

    /// Stores row `y` of results.
    ///
    /// # Safety
    /// As for [`masked`]; nothing else uses this row of the target.
    unsafe fn row(
        &self,
        target: &Array,
        y: usize,
        [products, weights, magnitudes]: [&[f64]; 3],
        (mut of_weights, mut of_known): (Option<&mut [f32]>, Option<&mut [u8]>),
        memory: &mut Memory,
    ) {
        let Shape { width, channels, .. } = self.weigher.shape;
        let few = weights.len() / width;
        let unknown = self.weigher.known.unknown;
        // SAFETY: the caller's promise.
        unsafe { self.weigher.read(y, memory) };
        for (at, value) in memory.values.iter_mut().enumerate() {
            let (weight, magnitude) =
                (weights[at * few / channels], magnitudes[at * few / channels]);
            let mut is_known = match self.rule {
                Rule::Average => weight != 0.0,
                Rule::Quotient => weight.abs() > Rule::CANCELLED * magnitude,
                Rule::Sum => magnitude != 0.0,
            };
            let keeps = unknown.nan == Nan::Fill && memory.weights[at] != 0.0;
            if at % channels < self.filtered && !keeps {
                *value = match (is_known, self.rule) {
                    (false, _) => unknown.result,
                    (_, Rule::Sum) => products[at],
                    _ => products[at] / (weight / self.ones),
                };
            }
            is_known |= keeps;
            if let Some(out) = &mut of_weights {
                out[at] = weight as f32;
            }
            if let Some(out) = &mut of_known {
                out[at] = if is_known { 255 } else { 0 };
            }
        }
        let [down, across, deep] = [0, 1, 2].map(|axis| target.strides[axis]);
        for channel in 0..channels {
            let values = memory.values[channel..].iter().step_by(channels);
            memory.one.iter_mut().zip(values).for_each(|(one, &value)| *one = value);
            let row = y as isize * down + channel as isize * deep;
            // SAFETY: the caller's promise: the values of a row.
            unsafe { (target.kind.store)(target.data.offset(row), across, &memory.one) };
        }
    }
}
