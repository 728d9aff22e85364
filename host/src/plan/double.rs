//! Plans and pipelines in f64, on the CPU: for pictures of f64, and of integers that f32 does not
//! hold.
//!
//! A step is a few passes of [`crate::passes`] over whole arrays, with results of one pass in an
//! image of f64 for the next. The first pass reads the picture's type, and the last one rounds to
//! the result's.

use std::cell::Cell;
use std::sync::OnceLock;

use gpu_kernels::border::copies;

use super::masked_f64::masked;
use crate::image::{Image, ImageView, ImageViewMut, Number, Shape};
use crate::mask::{Coverage, Known, Mask, Nan};
use crate::passes::{self, Array, Reach, Sums};
use crate::pipeline::check_alpha;
use crate::plan::{Channels, agree, pixels};
use crate::progress::Call;
use crate::threads::{self, Effort};
use crate::{
    Alpha, Border, Device, Error, Extra, Family, Filter, Gradient, Pipeline, Plan, Result, Variant,
};

impl Plan {
    /// As [`Plan::run`], in f64 and on the CPU, for pictures and results of any type of numbers.
    ///
    /// A sum takes the taps row by row, from left to right. A filter that separates takes a pass
    /// along the rows and then one along the columns, if that needs less than half of the
    /// multiplications, and if its products are the taps but for roundings in f64. A filter that
    /// [`Filter::summed`] knows as a sum of products adds these up in their order, and then the
    /// pixel times its factor. Each product and each sum is rounded to f64 by itself, without fused
    /// multiply-adds. So the bits are the same on every processor, and with any number of threads.
    ///
    /// With `n` taps (or rows plus columns), a sum is off by at most `(n + 8) u` times the sum of
    /// all `|tap * pixel|`, where `u` is 2^-53. Whole numbers are exact as long as sums stay below
    /// 2^53. Integers are exact in f64, and a result is the sum rounded once, half to even, and
    /// saturated. An i64 or u64 beyond 2^53 is refused. Gradients are `sqrt(dx * dx + dy * dy)` and
    /// `atan2(dy, dx)`.
    ///
    /// A NaN under the window gives NaN, whatever its tap. An infinity gives one of its tap's sign,
    /// but in a sum of products, where both signs may meet.
    ///
    /// There are no spectra: 301x301 taps that do not separate take 90,601 multiplications for each
    /// pixel. A filter that separates needs memory for one picture of f64 beside the result, and a
    /// sum of products for three.
    ///
    /// ```
    /// use apron::{Filter, ImageView, ImageViewMut, Plan};
    ///
    /// // Beside 4,600,000 an f32 has no hundredths.
    /// let height = |i: i32| 4_600_000.0 + 0.01 * f64::from(i % 5 * (i % 5));
    /// let parabola: Vec<f64> = (0..25).map(height).collect();
    /// let mut bent = [0.0; 25];
    /// let plan = Plan::builder(Filter::laplacian(4)?).build()?;
    /// let mut result = ImageViewMut::new(&mut bent, 5, 5, 1)?;
    /// plan.run_f64(&ImageView::new(&parabola, 5, 5, 1)?, &mut result)?;
    /// assert!((bent[12] - 0.02f64).abs() < 1e-8);
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Mismatch`] if sizes differ. [`Error::Parameter`] for a plan that was built for a
    /// GPU, for integers beyond 2^53, and for angles as integers. [`Error::Unsupported`] for a
    /// variant of spectra or of bytes. [`Error::HostMemory`].
    pub fn run_f64<S: Number, D: Number>(
        &self,
        src: &ImageView<'_, S>,
        dst: &mut ImageViewMut<'_, D>,
    ) -> Result<()> {
        let steps = [(self, Channels::First(src.shape().channels))];
        run_views(&steps, src, dst)
    }

    /// As [`Plan::run_f64`], for many pictures, whose sizes may differ. Small ones are filtered
    /// side by side, each on one thread.
    ///
    /// ```
    /// use apron::{Filter, ImageView, ImageViewMut, Plan};
    ///
    /// let plan = Plan::builder(Filter::box_filter(3, 1)?).build()?;
    /// let (one, two) = ([1.0f64, 2.0, 3.0], [10.0f64, 40.0]);
    /// let (mut of_one, mut of_two) = ([0.0f64; 3], [0.0f64; 2]);
    /// plan.run_f64_batch(&mut [
    ///     (ImageView::new(&one, 3, 1, 1)?, ImageViewMut::new(&mut of_one, 3, 1, 1)?),
    ///     (ImageView::new(&two, 2, 1, 1)?, ImageViewMut::new(&mut of_two, 2, 1, 1)?),
    /// ])?;
    /// assert!((of_one[1] - 2.0).abs() < 1e-15 && (of_two[0] - 30.0).abs() < 1e-14);
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InBatch`] names the first picture that could not be filtered, and gives the error
    /// of [`Plan::run_f64`]. The pictures before it are done.
    pub fn run_f64_batch<S: Number, D: Number>(
        &self,
        pictures: &mut [(ImageView<'_, S>, ImageViewMut<'_, D>)],
    ) -> Result<()> {
        let arrays = |(src, dst): &mut (ImageView<'_, S>, ImageViewMut<'_, D>)| {
            (Array::of(src), Array::of_mut(dst))
        };
        let arrays: Vec<_> = pictures.iter_mut().map(arrays).collect();
        // SAFETY: the views describe memory that is there, and by Rust's borrowing rules they have
        // no byte in common.
        unsafe { self.run_arrays(&arrays, None) }
    }

    /// As [`Plan::run_f64_batch`], for arrays of rows, columns and channels, of which the last is
    /// alpha if a mode is given. For the Python package.
    ///
    /// # Errors
    /// As for [`Plan::run_f64_batch`].
    ///
    /// # Safety
    /// As for [`passes::filter`]; all arrays have three axes, no extent is 0, and no target has a
    /// byte in common with another array.
    #[doc(hidden)]
    pub unsafe fn run_arrays(&self, arrays: &[(Array, Array)], alpha: Option<Alpha>) -> Result<()> {
        let taps = self.multiplications();
        let efforts = arrays.iter().map(|(source, _)| {
            let values = source.shape.iter().map(|&extent| extent as f64).product::<f64>();
            Effort::of_work(values * taps as f64 * ADDITION)
        });
        let threads = threads::across(efforts);
        let done = threads::try_for_each(threads, arrays.iter(), |(source, target)| {
            let channels = source.shape[2];
            let filtered = match alpha {
                Some(mode) => {
                    check_alpha(channels)?;
                    mode.channels_of(self, channels)?
                }
                None => Channels::First(channels),
            };
            // SAFETY: the caller's promise.
            unsafe { run(&[(self, filtered)], source, target) }
        });
        // Of this thread's call, some arrays or all may have been filtered by others.
        super::ran::keep_in_f64([self.number].into_iter());
        done.map_err(|(picture, error)| Error::InBatch { picture, error: Box::new(error) })
    }

    /// Multiplications for each value in f64, about.
    fn multiplications(&self) -> usize {
        let (cols, rows) = (self.filter.cols(), self.filter.rows());
        match Products::of(&self.filter, self.variant) {
            Ok(Some(products)) => products.terms.len() * (cols + rows),
            _ => cols.saturating_mul(rows),
        }
    }

    /// # Errors
    /// [`Error::Parameter`] for a plan that was built for a GPU.
    fn check_is_on_cpu(&self) -> Result<()> {
        match self.device {
            Device::Auto | Device::Cpu => Ok(()),
            device => Err(Error::Parameter {
                name: "device",
                value: device.to_string(),
                expected: "cpu or auto for values that are filtered in f64; for a GPU, convert them to f32 first"
                    .into(),
            }),
        }
    }
}

impl Pipeline {
    /// As [`Pipeline::run`], with each step as [`Plan::run_f64`] has it. Between two steps values
    /// stay in f64.
    ///
    /// # Errors
    /// As for [`Plan::run_f64`].
    pub fn run_f64<S: Number, D: Number>(
        &self,
        src: &ImageView<'_, S>,
        dst: &mut ImageViewMut<'_, D>,
    ) -> Result<()> {
        let channels = Channels::First(src.shape().channels);
        let steps: Vec<_> = self.plans().iter().map(|plan| (plan, channels)).collect();
        run_views(&steps, src, dst)
    }

    /// As [`Pipeline::run_with_extra`], with each step as [`Plan::run_f64`] has it.
    ///
    /// # Errors
    /// As for [`Pipeline::run_with_extra`] and [`Plan::run_f64`].
    pub fn run_f64_with_extra<S: Number, D: Number>(
        &self,
        src: &ImageView<'_, S>,
        dst: &mut ImageViewMut<'_, D>,
        extra: Extra,
        alpha: Alpha,
    ) -> Result<()> {
        let channels = src.shape().channels;
        check_alpha(channels)?;
        if alpha.takes_alpha_away() {
            return self.run_f64(&alpha.apart(src, extra)?.view(), dst);
        }
        let alpha = alpha.for_kind(extra);
        let steps = self.plans().iter().map(|plan| Ok((plan, alpha.channels_of(plan, channels)?)));
        run_views(&steps.collect::<Result<Vec<_>>>()?, src, dst)
    }
}

fn run_views<S: Number, D: Number>(
    steps: &[(&Plan, Channels)],
    src: &ImageView<'_, S>,
    dst: &mut ImageViewMut<'_, D>,
) -> Result<()> {
    agree(src.shape(), dst.shape())?;
    // SAFETY: the views describe memory that is there, and by Rust's borrowing rules they have no
    // byte in common.
    unsafe { run(steps, &Array::of(src), &Array::of_mut(dst)) }
}

/// Runs plans, one after the other.
///
/// # Safety
/// As for [`Plan::run_arrays`].
unsafe fn run(steps: &[(&Plan, Channels)], source: &Array, target: &Array) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { run_known(steps, source, target, None) }
}

/// As [`run`]; the only step may know its image and write what it knows of its results.
///
/// # Safety
/// As for [`Plan::run_arrays`].
pub(super) unsafe fn run_known(
    steps: &[(&Plan, Channels)],
    source: &Array,
    target: &Array,
    known: Option<(Known<'_>, &mut Coverage<'_>)>,
) -> Result<()> {
    let Some((&(last, channels), others)) = steps.split_last() else { return Ok(()) };
    let shape = shape_of(source);
    shape.check()?;
    agree(shape, shape_of(target))?;
    steps.iter().try_for_each(|(plan, _)| plan.check_is_on_cpu().and(plan.check_is_plain()))?;
    if target.kind.is_integer {
        last.check_takes_integers(target.kind.name)?;
    }
    super::ran::keep_in_f64(steps.iter().map(|(plan, _)| plan.number));
    // SAFETY: the caller's promise; an image of its own is no part of anything else.
    unsafe {
        check_exact(source)?;
        let mut between: Option<Image<f64>> = None;
        for &(plan, channels) in others {
            let mut next = image_of(shape)?;
            let from =
                between.as_ref().map_or_else(|| source.clone(), |image| Array::of(&image.view()));
            step(plan, channels, &from, &Array::of_mut(&mut next.view_mut()))?;
            between = Some(next);
        }
        let from =
            between.as_ref().map_or_else(|| source.clone(), |image| Array::of(&image.view()));
        match known {
            Some(known) => step_known(last, channels, (&from, target), known),
            None => step(last, channels, &from, target),
        }
    }
}

pub(super) fn shape_of(array: &Array) -> Shape {
    Shape { width: array.shape[1], height: array.shape[0], channels: array.shape[2] }
}

pub(super) fn image_of(Shape { width, height, channels }: Shape) -> Result<Image<f64>> {
    Image::zeroed(width, height, channels)
}

/// # Errors
/// [`Error::Parameter`] if f64 does not hold a value.
///
/// # Safety
/// The array's values are there, and nobody writes to them.
unsafe fn check_exact(array: &Array) -> Result<()> {
    if !array.kind.is_integer || array.kind.size < size_of::<f64>() {
        return Ok(());
    }
    let Shape { width, height, channels } = shape_of(array);
    let [down, across, deep] = [0, 1, 2].map(|axis| array.strides[axis]);
    let found = OnceLock::new();
    let check = |y: usize| {
        (0..channels).find_map(|channel| {
            let row = array.data.wrapping_offset(y as isize * down + channel as isize * deep);
            // SAFETY: the row's values of this channel.
            let (x, value) = unsafe { (array.kind.inexact)(row, across, width)? };
            Some((y, x, channel, value))
        })
    };
    let together = CHUNK.div_ceil(width * channels);
    let jobs = (0..height).step_by(together);
    threads::for_each(threads_for(width * height * channels, CHECK), jobs, |(): &mut (), first| {
        // One is told of, whichever is found first.
        if found.get().is_none()
            && let Some(inexact) = (first..height.min(first + together)).find_map(check)
        {
            let _ = found.set(inexact);
        }
    });
    let Some((y, x, channel, value)) = found.into_inner() else { return Ok(()) };
    let limit = i64::GREATEST_EXACT;
    Err(Error::Parameter {
        name: "a pixel",
        value: format!("{value} in row {y}, column {x}, channel {channel}"),
        expected: format!(
            "from -{limit} to {limit}, the integers that f64 holds exactly; convert the values to f64 first if they may be rounded"
        ),
    })
}

/// Runs one plan.
///
/// # Safety
/// As for [`Plan::run_arrays`].
pub(super) unsafe fn step(
    plan: &Plan,
    channels: Channels,
    source: &Array,
    target: &Array,
) -> Result<()> {
    let has_nan = !source.kind.is_integer && plan.unknown.nan != Nan::Spread;
    if plan.border == Border::None || has_nan {
        let known = (plan.known(Mask::All), &mut Coverage::default());
        // SAFETY: the caller's promise.
        return unsafe { step_known(plan, channels, (source, target), known) };
    }
    let shape = shape_of(source);
    let pixels = pixels(shape);
    let call = plan.report.call(pixels);
    let products = Products::of(&plan.filter, plan.variant)?;
    let of_filter = products.as_ref().map_or(1, Products::passes);
    let passes = match (channels, plan.gradient) {
        (Channels::Weighted, _) => of_filter + 2,
        (_, Some(_)) => 3,
        (_, None) => of_filter,
    };
    let work = Step { plan, products, call: &call, pixels, done: Cell::new(0), passes };
    // SAFETY: the caller's promise; parts of arrays are no more than the arrays.
    unsafe {
        let filtered = match channels {
            Channels::Weighted => {
                work.weighted(source, target)?;
                shape.channels
            }
            Channels::First(count) => {
                let (from, to) = (source.part(2, 0..count), target.part(2, 0..count));
                match plan.gradient {
                    Some(gradient) => work.gradient(gradient, &from, &to)?,
                    None => work.correlate(&from, &to, plan.border)?,
                }
                count
            }
        };
        if filtered < shape.channels {
            let rest = filtered..shape.channels;
            work.copy(&source.part(2, rest.clone()), &target.part(2, rest))?;
        }
        if copies(plan.border.code().0) {
            work.restore(source, target)?;
        }
    }
    call.reach(pixels)
}

/// Runs one plan over known pixels.
///
/// # Safety
/// As for [`Plan::run_arrays`].
unsafe fn step_known(
    plan: &Plan,
    channels: Channels,
    images: (&Array, &Array),
    (known, coverage): (Known<'_>, &mut Coverage<'_>),
) -> Result<()> {
    let filtered = channels.of_known()?;
    let call = plan.report.call(pixels(shape_of(images.0)));
    // SAFETY: the caller's promise.
    unsafe { masked(plan, filtered, images, &known, coverage, &call) }
}

/// A step that is under way.
pub(super) struct Step<'a> {
    plan: &'a Plan,
    /// What the filter is computed by, unless it is tap by tap.
    products: Option<Products<'a>>,
    call: &'a Call<'a>,
    pixels: u64,
    /// Passes that were begun, and how many there are but for copies of some channels or pixels:
    /// they tell how far the step has come.
    done: Cell<u64>,
    passes: u64,
}

impl<'a> Step<'a> {
    /// A step that copies pixels alone.
    pub(super) fn for_copies(plan: &'a Plan, call: &'a Call<'a>) -> Self {
        Self { plan, products: None, call, pixels: 0, done: Cell::new(0), passes: 1 }
    }
}

impl Step<'_> {
    /// One pass over an array.
    ///
    /// # Safety
    /// As for [`passes::filter`].
    unsafe fn pass(
        &self,
        source: &Array,
        target: &Array,
        reach: [Reach; 2],
        taps: Vec<(usize, f64)>,
        border: Border,
    ) -> Result<()> {
        let number = self.done.replace(self.done.get() + 1);
        let at = |number: u64| self.pixels / self.passes * number.min(self.passes);
        let stage = self.call.stage(at(number), at(number + 1) - at(number));
        let reach = [reach[0], reach[1], Reach::default()];
        // From -0, to which adding changes nothing: an identity keeps it.
        let sums = Sums::InOrder { start: -0.0, taps };
        // SAFETY: the caller's promise.
        unsafe {
            passes::filter(source, target, &reach, &sums, border, &|done, all| {
                stage.jobs(done, all)
            })
        }
    }

    /// Converts values.
    ///
    /// # Safety
    /// As for [`passes::filter`].
    unsafe fn copy(&self, source: &Array, target: &Array) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe {
            self.pass(source, target, [Reach::default(); 2], vec![(0, 1.0)], Border::Replicate)
        }
    }

    /// Filters every channel.
    ///
    /// # Safety
    /// As for [`passes::filter`].
    unsafe fn correlate(&self, source: &Array, target: &Array, border: Border) -> Result<()> {
        let filter = &self.plan.filter;
        let Some(Products { point, terms }) = &self.products else {
            let places =
                (0..filter.rows()).flat_map(|row| (0..filter.cols()).map(move |col| (row, col)));
            let taps = numbered(
                filter.rows().saturating_mul(filter.cols()),
                places.map(|(row, col)| filter.tap(row, col)),
            )?;
            // SAFETY: the caller's promise.
            return unsafe { self.pass(source, target, reach(filter), taps, border) };
        };
        let shape = shape_of(source);
        let mut lines = image_of(shape)?;
        let lines = Array::of_mut(&mut lines.view_mut());
        // SAFETY: the caller's promise; images of their own are no part of anything else.
        unsafe {
            if let (0.0, [term]) = (*point, &terms[..]) {
                return self.product(*term, source, &lines, target, border);
            }
            let (mut sum, mut more) = (image_of(shape)?, image_of(shape)?);
            for (number, &term) in terms.iter().enumerate() {
                let into = if number == 0 { &mut sum } else { &mut more };
                self.product(term, source, &lines, &Array::of_mut(&mut into.view_mut()), border)?;
                if number > 0 {
                    each(&mut sum, &more, ADDITION, |sum, term| sum + term);
                }
            }
            if *point != 0.0 {
                self.copy(source, &Array::of_mut(&mut more.view_mut()))?;
                each(&mut sum, &more, ADDITION, |sum, pixel| sum + point * pixel);
            }
            self.copy(&Array::of(&sum.view()), target)
        }
    }

    /// A pass along the rows, into `lines`, and one along the columns.
    ///
    /// # Safety
    /// As for [`passes::filter`], also for `lines`.
    unsafe fn product(
        &self,
        (row, column): (&[f64], &[f64]),
        source: &Array,
        lines: &Array,
        target: &Array,
        border: Border,
    ) -> Result<()> {
        let taps = |taps: &[f64]| numbered(taps.len(), taps.iter().copied());
        let [down, across] = reach(&self.plan.filter);
        // Above and below the image, each line is that of a row of the constant.
        let outside = match border {
            Border::Constant(value) => {
                Border::Constant(row.iter().fold(-0.0, |sum, tap| sum + value * tap))
            }
            other => other,
        };
        // SAFETY: the caller's promise.
        unsafe {
            self.pass(source, lines, [Reach::default(), across], taps(row)?, border)?;
            self.pass(lines, target, [down, Reach::default()], taps(column)?, outside)
        }
    }

    /// Filters colours weighted by alpha, the last channel: see [`Alpha::Premultiply`].
    ///
    /// # Safety
    /// As for [`passes::filter`].
    unsafe fn weighted(&self, source: &Array, target: &Array) -> Result<()> {
        let shape = shape_of(source);
        let (mut weighted, mut sums) = (image_of(shape)?, image_of(shape)?);
        let last = shape.channels - 1;
        // SAFETY: the caller's promise; images of their own are no part of anything else.
        unsafe { self.copy(source, &Array::of_mut(&mut weighted.view_mut()))? };
        let each_pixel = |image: &mut Image<f64>, work: &(dyn Fn(&mut f64, f64) + Sync)| {
            let values = image.as_mut_slice();
            let threads = threads_for(values.len(), DIVISION);
            let parts = values.chunks_mut(CHUNK.next_multiple_of(shape.channels));
            threads::for_each(threads, parts, |(): &mut (), pixels| {
                for pixel in pixels.chunks_exact_mut(shape.channels) {
                    let alpha = pixel[last];
                    pixel[..last].iter_mut().for_each(|colour| work(colour, alpha));
                }
            });
        };
        each_pixel(&mut weighted, &|colour, alpha| *colour *= alpha);
        let (from, to) = (Array::of(&weighted.view()), Array::of_mut(&mut sums.view_mut()));
        let border = self.plan.border;
        let parts = match border {
            // Outside, the products are the constant's square, and alpha is the constant.
            Border::Constant(value) => {
                vec![(0..last, Border::Constant(value * value)), (last..last + 1, border)]
            }
            _ => vec![(0..last + 1, border)],
        };
        for (part, border) in parts {
            // SAFETY: likewise.
            unsafe { self.correlate(&from.part(2, part.clone()), &to.part(2, part), border)? };
        }
        each_pixel(&mut sums, &|colour, alpha| {
            *colour = if alpha == 0.0 { 0.0 } else { *colour / alpha }
        });
        // SAFETY: likewise.
        unsafe { self.copy(&Array::of(&sums.view()), target) }
    }

    /// The magnitude or the angle of both derivatives. The pixel itself takes no part.
    ///
    /// # Safety
    /// As for [`passes::filter`].
    unsafe fn gradient(&self, gradient: Gradient, source: &Array, target: &Array) -> Result<()> {
        let [side, centre] = gradient.weights().map(f64::from);
        let across = vec![(0, -side), (2, side), (3, -centre), (5, centre), (6, -side), (8, side)];
        let down = vec![(0, -side), (1, -centre), (2, -side), (6, side), (7, centre), (8, side)];
        let shape = shape_of(source);
        let (mut dx, mut dy) = (image_of(shape)?, image_of(shape)?);
        let (reach, border) = (reach(&self.plan.filter), self.plan.border);
        // SAFETY: the caller's promise; images of their own are no part of anything else.
        unsafe {
            self.pass(source, &Array::of_mut(&mut dx.view_mut()), reach, across, border)?;
            self.pass(source, &Array::of_mut(&mut dy.view_mut()), reach, down, border)?;
        }
        if gradient.is_angle() {
            // Where there is no slope, a -0 would turn the angle around.
            each(&mut dx, &dy, ANGLE, |dx, dy| (dy + 0.0).atan2(dx + 0.0));
        } else {
            each(&mut dx, &dy, DIVISION, |dx, dy| (dx * dx + dy * dy).sqrt());
        }
        // SAFETY: likewise.
        unsafe { self.copy(&Array::of(&dx.view()), target) }
    }

    /// Copies the pixels whose window leaves the image: see [`Border::Keep`].
    ///
    /// # Safety
    /// As for [`passes::filter`].
    pub(super) unsafe fn restore(&self, source: &Array, target: &Array) -> Result<()> {
        let filter = &self.plan.filter;
        let inside = |anchor: usize, window: usize, extent: usize| {
            let end = (extent + anchor + 1).saturating_sub(window);
            if anchor < end { anchor..end } else { extent..extent }
        };
        let Shape { width, height, .. } = shape_of(source);
        let rows = inside(filter.anchor().1, filter.rows(), height);
        let columns = if rows.is_empty() {
            width..width
        } else {
            inside(filter.anchor().0, filter.cols(), width)
        };
        let copy = |axis: usize, range: std::ops::Range<usize>, of: &Array, to: &Array| {
            // SAFETY: the caller's promise.
            unsafe { self.copy(&of.part(axis, range.clone()), &to.part(axis, range)) }
        };
        copy(0, 0..rows.start, source, target)?;
        copy(0, rows.end..height, source, target)?;
        let (source, target) = (source.part(0, rows.clone()), target.part(0, rows));
        copy(1, 0..columns.start, &source, &target)?;
        copy(1, columns.end..width, &source, &target)
    }
}

/// Taps with their positions in the window.
fn numbered(count: usize, taps: impl Iterator<Item = f64>) -> Result<Vec<(usize, f64)>> {
    let mut numbered = crate::memory::reserve(count)?;
    numbered.extend(taps.enumerate());
    Ok(numbered)
}

/// The window's reach along the columns, and along the rows.
fn reach(filter: &Filter) -> [Reach; 2] {
    let (x, y) = filter.anchor();
    [Reach::anchored(filter.rows(), y), Reach::anchored(filter.cols(), x)]
}

/// Values that a thread takes at a time.
const CHUNK: usize = 1 << 14;

/// Nanoseconds for a value on one thread, about: to check an integer, for a product or a sum, for a
/// quotient or a root, and for an angle.
const CHECK: f64 = 0.5;
const ADDITION: f64 = 0.5;
const DIVISION: f64 = 1.0;
const ANGLE: f64 = 20.0;

/// Threads for so many values, each of which takes so many nanoseconds.
fn threads_for(values: usize, each: f64) -> usize {
    Effort::of_work(values as f64 * each).threads_now()
}

/// Makes each value of `image` what `work` makes of it and of the other's, in so many nanoseconds.
fn each(
    image: &mut Image<f64>,
    other: &Image<f64>,
    nanoseconds: f64,
    work: impl Fn(f64, f64) -> f64 + Sync,
) {
    let (values, others) = (image.as_mut_slice(), other.as_slice());
    let threads = threads_for(values.len(), nanoseconds);
    let parts = values.chunks_mut(CHUNK).zip(others.chunks(CHUNK));
    threads::for_each(threads, parts, |(): &mut (), (values, others)| {
        values.iter_mut().zip(others).for_each(|(value, other)| *value = work(*value, *other));
    });
}

/// Rows and columns whose products add up to the taps.
struct Products<'a> {
    /// Added to the tap in the middle of the window, cell `(cols / 2, rows / 2)`.
    point: f64,
    terms: Vec<(&'a [f64], &'a [f64])>,
}

impl<'a> Products<'a> {
    /// How far a tap may be from the sum of products, in units of the sum of their magnitudes: few
    /// roundings in f64. What [`Filter::SEPARABLE_TOLERANCE`] allows is for f32.
    const TOLERANCE: f64 = 4.0 * f64::EPSILON;

    /// Those that a filter is computed by, unless it is tap by tap.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a variant of spectra or of bytes.
    fn of(filter: &'a Filter, variant: Option<Variant>) -> Result<Option<Self>> {
        let point = filter.sum().map_or(0.0, |sum| sum.point);
        let products = Self { point, terms: filter.products() };
        Ok(match variant {
            Some(variant)
                if matches!(variant.family(), Family::Fourier | Family::SpectraPasses)
                    || variant.takes_only_bytes() =>
            {
                let reason =
                    "filters in f64 run on the CPU, tap by tap or in row and column passes".into();
                return Err(Error::Unsupported { variant: variant.name(), reason });
            }
            Some(variant) => Some(products).filter(|_| variant.family() == Family::Separable),
            None => Some(products)
                .filter(|products| products.are_worth(filter) && products.are_taps(filter)),
        })
    }

    /// Passes over the picture.
    fn passes(&self) -> u64 {
        let terms = 2 * self.terms.len() as u64;
        match (self.terms.len(), self.point == 0.0) {
            (1, true) => terms,
            (_, true) => terms + 1,
            (_, false) => terms + 2,
        }
    }

    /// Whether they are less than half of the multiplications.
    fn are_worth(&self, filter: &Filter) -> bool {
        let taps = filter.cols().saturating_mul(filter.rows());
        !self.terms.is_empty() && 2 * self.terms.len() * (filter.cols() + filter.rows()) < taps
    }

    /// Whether they are the taps, but for roundings in f64.
    fn are_taps(&self, filter: &Filter) -> bool {
        let Some(taps) = filter.dense_f64() else { return true };
        let (x, y) = filter.anchor();
        taps.chunks_exact(filter.cols()).enumerate().all(|(r, taps)| {
            taps.iter().enumerate().all(|(c, tap)| {
                let point = if (c, r) == (x, y) { self.point } else { 0.0 };
                let add = |(sum, size): (f64, f64), part: f64| (sum + part, size + part.abs());
                let products = self.terms.iter().map(|(row, column)| column[r] * row[c]);
                let (sum, size) = products.fold((point, point.abs()), add);
                (tap - sum).abs() <= Self::TOLERANCE * size
            })
        })
    }
}
