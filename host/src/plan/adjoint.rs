//! Adjoints: the transposed filter with its border, which carries gradients of a loss from filtered
//! images back to their sources.

use std::ops::Range;

use super::{Plan, agree};
use crate::image::{Image, ImageView, ImageViewMut, Number, Shape};
use crate::threads::{self, Effort};
use crate::{Border, Error, Result};

/// Nanoseconds per value to copy it into a wider image, or to add it to a pixel.
const MOVED: f64 = 1.0;

/// Bytes of wider images that one call holds at a time, unless a single image needs more.
const CHUNK: usize = 64 << 20;

/// The adjoint of a plan's filter with its border, made by [`Plan::adjoint`].
///
/// A plan computes `A x + b`: `A` is linear, and `b` is what a constant border adds. The adjoint
/// computes the transposed `A' y`, for which `<A x, y> = <x, A' y>` for all images `x` and `y`. If
/// `y` is the gradient of a loss with respect to the plan's results, `A' y` is the gradient with
/// respect to its source.
///
/// `A' y` is the correlation of `y`, with zeros around it, with the taps rotated by 180 degrees.
/// It reaches beyond the image, as the window does. What lies there is added to the pixel that the
/// border rule finds, in f64; under a constant border it belongs to no pixel. A border that copies
/// pixels hands their values through.
#[derive(Debug)]
pub struct Adjoint {
    /// Correlates with the rotated taps.
    flipped: Plan,
    /// The border of the plan that this is the adjoint of.
    border: Border,
    /// That plan's window along the columns and along the rows.
    windows: [Window; 2],
}

/// A window's extent along one axis.
#[derive(Clone, Copy, Debug)]
struct Window {
    size: usize,
    anchor: usize,
}

impl Window {
    /// The results whose window does not leave `0..extent`.
    fn inside(self, extent: usize) -> Range<usize> {
        let end = (extent + self.anchor + 1).saturating_sub(self.size);
        self.anchor.min(end)..end
    }
}

/// Filters pictures in one call.
type Batch<T> = fn(&Plan, &mut [(ImageView<'_, T>, ImageViewMut<'_, T>)]) -> Result<()>;

impl Plan {
    /// The adjoint of the plan's filter with its border, on the same device.
    ///
    /// ```
    /// use apron::{Border, Device, Filter, Image, Plan};
    ///
    /// let difference = Filter::from_taps(2, 1, &[-1.0, 1.0])?.anchored(0, 0)?;
    /// let plan = Plan::builder(&difference).border(Border::Replicate).device(Device::Cpu);
    /// let plan = plan.build()?;
    /// // The plan computes (x1 - x0, x2 - x1, x2 - x2).
    /// let gradient = Image::from_vec(vec![1.0f32, 10.0, 100.0], 3, 1, 1)?;
    /// let mut of_source = Image::zeroed(3, 1, 1)?;
    /// plan.adjoint()?.run(&gradient.view(), &mut of_source.view_mut())?;
    /// assert_eq!(of_source.as_slice(), [-1.0, 1.0 - 10.0, 10.0]);
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Parameter`] for what is not linear (a gradient, [linear light](crate::Light) and
    /// [`Filter::unsharp_above`](crate::Filter::unsharp_above)), and if pixels may be unknown:
    /// under [`Border::None`], and with [`PlanBuilder::nan`](crate::PlanBuilder::nan) other than
    /// [`Nan::Spread`](crate::Nan::Spread).
    pub fn adjoint(&self) -> Result<Adjoint> {
        let refused = |name, value: String, expected: &str| {
            Err(Error::Parameter { name, value, expected: expected.to_owned() })
        };
        if let Some(gradient) = self.gradient {
            let expected = "a filter, since a gradient is not linear: take the adjoints of its \
                            derivatives, such as sobel-x";
            return refused("the step", gradient.to_string(), expected);
        }
        if self.border == Border::None {
            return refused("border", self.border.to_string(), "another border to have an adjoint");
        }
        if self.light.is_some() {
            return refused("light", "linear".to_owned(), "stored to have an adjoint");
        }
        if self.filter.least_change() > 0.0 {
            let expected = "a filter without a threshold to have an adjoint";
            return refused("the filter", self.filter.to_string(), expected);
        }
        if self.unknown.nan != crate::Nan::Spread {
            return refused("nan", self.unknown.nan.to_string(), "spread to have an adjoint");
        }
        let border = match self.border {
            // Rotating a picture's pixels keeps it a picture that repeats.
            Border::Wrap => Border::Wrap,
            _ => Border::Constant(0.0),
        };
        let flipped = Self::builder(self.filter.clone().flipped())
            .border(border)
            .device(self.device())
            .accuracy(self.accuracy)
            .build()?;
        let (x, y) = self.filter.anchor();
        let windows = [
            Window { size: self.filter.cols(), anchor: x },
            Window { size: self.filter.rows(), anchor: y },
        ];
        Ok(Adjoint { flipped, border: self.border, windows })
    }
}

impl Adjoint {
    /// Writes `A' src` into `dst`, channel by channel, in f32 as [`Plan::run`] computes it.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if sizes differ; [`Error::Geometry`] if the image and the window
    /// together exceed [`Shape::MAX_EXTENT`]; memory and driver errors.
    pub fn run(&self, src: &ImageView<'_, f32>, dst: &mut ImageViewMut<'_, f32>) -> Result<()> {
        self.run_batch(&mut [(*src, dst.reborrow())]).map_err(alone)
    }

    /// As [`Adjoint::run`], for many images, whose sizes may differ.
    ///
    /// # Errors
    /// [`Error::InBatch`] names the first image that failed and gives the error of
    /// [`Adjoint::run`].
    pub fn run_batch(
        &self,
        pictures: &mut [(ImageView<'_, f32>, ImageViewMut<'_, f32>)],
    ) -> Result<()> {
        self.run_all(pictures, Plan::run_batch)
    }

    /// As [`Adjoint::run`], in f64 and on the CPU, as [`Plan::run_f64`] computes it.
    ///
    /// # Errors
    /// As [`Adjoint::run`], and those of [`Plan::run_f64`].
    pub fn run_f64(&self, src: &ImageView<'_, f64>, dst: &mut ImageViewMut<'_, f64>) -> Result<()> {
        self.run_f64_batch(&mut [(*src, dst.reborrow())]).map_err(alone)
    }

    /// As [`Adjoint::run_f64`], for many images, whose sizes may differ.
    ///
    /// # Errors
    /// As [`Adjoint::run_batch`], and those of [`Plan::run_f64`].
    pub fn run_f64_batch(
        &self,
        pictures: &mut [(ImageView<'_, f64>, ImageViewMut<'_, f64>)],
    ) -> Result<()> {
        self.run_all(pictures, Plan::run_f64_batch)
    }

    fn run_all<T: Number>(
        &self,
        pictures: &mut [(ImageView<'_, T>, ImageViewMut<'_, T>)],
        run: Batch<T>,
    ) -> Result<()> {
        if matches!(self.border, Border::Constant(_) | Border::Wrap) {
            return run(&self.flipped, pictures);
        }
        let mut first = 0;
        while first < pictures.len() {
            let shape = |at: usize| self.wider(pictures[at].0.shape());
            let bytes = |at: usize| {
                let Shape { width, height, channels } = shape(at);
                width.saturating_mul(height).saturating_mul(channels * size_of::<T>())
            };
            let mut count = 1;
            let mut all = bytes(first);
            while first + count < pictures.len() {
                all = all.saturating_add(bytes(first + count));
                if all > CHUNK {
                    break;
                }
                count += 1;
            }
            self.run_some(&mut pictures[first..first + count], run)
                .map_err(|(picture, error)| in_batch(first + picture, error))?;
            first += count;
        }
        Ok(())
    }

    /// Runs some pictures by way of wider ones.
    fn run_some<T: Number>(
        &self,
        pictures: &mut [(ImageView<'_, T>, ImageViewMut<'_, T>)],
        run: Batch<T>,
    ) -> Result<(), (usize, Error)> {
        let mut wider = Vec::new();
        for (number, (src, dst)) in pictures.iter().enumerate() {
            agree(src.shape(), dst.shape()).map_err(|error| (number, error))?;
            let Shape { width, height, channels } = self.wider(src.shape());
            let zeroed = || Image::<T>::zeroed(width, height, channels);
            let pair = zeroed().and_then(|image| Ok((image, zeroed()?)));
            wider.push(pair.map_err(|error| (number, error))?);
        }
        let threads = threads::across(wider.iter().map(|(image, _)| effort(image.shape())));
        let sources = pictures.iter().map(|(src, _)| src).zip(&mut wider);
        threads::for_each(threads, sources, |(): &mut (), (src, (image, _))| {
            self.widen(src, image);
        });
        let mut views: Vec<_> =
            wider.iter_mut().map(|(image, sums)| (image.view(), sums.view_mut())).collect();
        run(&self.flipped, &mut views).map_err(|error| match error {
            Error::InBatch { picture, error } => (picture, *error),
            other => (0, other),
        })?;
        let results = pictures.iter_mut().zip(&wider);
        threads::for_each(threads, results, |(): &mut (), ((src, dst), (_, sums))| {
            if self.border == Border::Keep {
                self.keep(src, sums, dst);
            } else {
                self.fold(sums, dst);
            }
        });
        Ok(())
    }

    /// The shape of the image that is correlated: that of the source with all pixels that its
    /// windows reach. Windows that leave the image count for nothing if the border copies.
    fn wider(&self, shape: Shape) -> Shape {
        if self.border == Border::Keep {
            return shape;
        }
        let [across, down] = self.windows;
        Shape {
            width: shape.width.saturating_add(across.size - 1),
            height: shape.height.saturating_add(down.size - 1),
            ..shape
        }
    }

    /// Copies the values that take part in sums into a wider image of zeros.
    fn widen<T: Number>(&self, src: &ImageView<'_, T>, image: &mut Image<T>) {
        let Shape { width, height, channels } = src.shape();
        let [across, down] = self.windows;
        let (rows, columns, corner) = if self.border == Border::Keep {
            (down.inside(height), across.inside(width), (0, 0))
        } else {
            (0..height, 0..width, (across.anchor, down.anchor))
        };
        let row_len = image.shape().row_len();
        let values = columns.start * channels..columns.end * channels;
        let start = (corner.0 + columns.start) * channels;
        for y in rows {
            let into = &mut image.as_mut_slice()[(corner.1 + y) * row_len + start..];
            into[..values.len()].copy_from_slice(&src.row(y)[values.clone()]);
        }
    }

    /// Adds the values of a wider image to the pixels that the border rule finds.
    fn fold<T: Number>(&self, sums: &Image<T>, dst: &mut ImageViewMut<'_, T>) {
        let Shape { width, height, channels } = dst.shape();
        let [across, down] = self.windows;
        let found = |window: Window, extent: usize| -> Vec<usize> {
            let at = |index: usize| index as isize - window.anchor as isize;
            let found = |index| self.border.resolve(at(index), extent as isize);
            (0..extent + window.size - 1).filter_map(found).map(|index| index as usize).collect()
        };
        let columns = found(across, width);
        let mut rows = vec![Vec::new(); height];
        for (row, y) in found(down, height).into_iter().enumerate() {
            rows[y].push(row);
        }
        let outside = (0..across.anchor).chain(across.anchor + width..columns.len());
        let outside: Vec<usize> = outside.collect();
        let row_len = sums.shape().row_len();
        let threads = effort(sums.shape()).threads_now();
        let lines = dst.bands_mut(1).flatten().zip(&rows);
        threads::for_each(threads, lines, |line: &mut Vec<f64>, (result, rows)| {
            line.clear();
            line.resize(row_len, 0.0);
            for row in rows {
                let values = &sums.as_slice()[row * row_len..][..row_len];
                line.iter_mut().zip(values).for_each(|(sum, value)| *sum += value.to_f64());
            }
            for &column in &outside {
                for channel in 0..channels {
                    line[(across.anchor + columns[column]) * channels + channel] +=
                        line[column * channels + channel];
                }
            }
            let inside = &line[across.anchor * channels..][..width * channels];
            result.iter_mut().zip(inside).for_each(|(value, sum)| *value = T::from_f64(*sum));
        });
    }

    /// Adds the values that [`Border::Keep`] hands through.
    fn keep<T: Number>(
        &self,
        src: &ImageView<'_, T>,
        sums: &Image<T>,
        dst: &mut ImageViewMut<'_, T>,
    ) {
        let Shape { width, height, channels } = src.shape();
        let [across, down] = self.windows;
        let (rows, columns) = (down.inside(height), across.inside(width));
        for (y, result) in dst.bands_mut(1).flatten().enumerate() {
            let kept = if rows.contains(&y) { columns.clone() } else { 0..0 };
            let values = sums.view().row(y).iter().zip(src.row(y)).enumerate();
            for (result, (at, (sum, value))) in result.iter_mut().zip(values) {
                let is_copied = !kept.contains(&(at / channels));
                let value = if is_copied { value.to_f64() } else { 0.0 };
                *result = T::from_f64(sum.to_f64() + value);
            }
        }
    }
}

fn effort(shape: Shape) -> Effort {
    Effort::of_work(shape.row_len() as f64 * shape.height as f64 * MOVED)
}

fn in_batch(picture: usize, error: Error) -> Error {
    Error::InBatch { picture, error: Box::new(error) }
}

/// The error of the only picture of a batch.
fn alone(error: Error) -> Error {
    match error {
        Error::InBatch { error, .. } => *error,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Filter, Gradient, Light, Nan};

    /// Numbers from -1 to 1, and lengths: xorshift.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 >> 11
        }

        fn below(&mut self, end: usize) -> usize {
            (self.next() % end as u64) as usize
        }

        fn values(&mut self, count: usize) -> Vec<f64> {
            (0..count).map(|_| self.next() as f64 / (1u64 << 52) as f64 - 1.0).collect()
        }
    }

    /// A filter of up to 9x9 taps with any anchor: a table, a product, or a line.
    fn filter(random: &mut Random) -> Filter {
        let (cols, rows) = (1 + random.below(9), 1 + random.below(9));
        let filter = match random.below(3) {
            0 => Filter::separable_f64(&random.values(cols), &random.values(rows)),
            1 => Filter::from_taps_f64(cols, 1, &random.values(cols)),
            _ => Filter::from_taps_f64(cols, rows, &random.values(cols * rows)),
        }
        .unwrap();
        let anchor = (random.below(filter.cols()), random.below(filter.rows()));
        filter.anchored(anchor.0, anchor.1).unwrap()
    }

    const BORDERS: [Border; 6] = [
        Border::Constant(0.0),
        Border::Replicate,
        Border::Reflect,
        Border::Reflect101,
        Border::Wrap,
        Border::Keep,
    ];

    /// `<A x, y> = <x, A' y>`, relative to the sum of the magnitudes of all products. Images are
    /// from 1x1 to 12x12, so many windows are larger than their image.
    #[test]
    fn products_with_the_adjoint_are_those_with_the_filter() {
        let mut random = Random(0x9E37_79B9_7F4A_7C15);
        let mut larger = 0;
        for number in 0..1200 {
            let filter = filter(&mut random);
            let border = BORDERS[number % BORDERS.len()];
            let (width, height, channels) =
                (1 + random.below(12), 1 + random.below(12), 1 + random.below(3));
            larger += usize::from(filter.cols() > width || filter.rows() > height);
            let plan = Plan::builder(&filter).border(border).device(Device::Cpu).build().unwrap();
            let adjoint = plan.adjoint().unwrap();
            let len = width * height * channels;
            let (x, y) = (random.values(len), random.values(len));
            let image =
                |values: &[f64]| Image::from_vec(values.to_vec(), width, height, channels).unwrap();
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let size = (filter.weight() + 1.0) * len as f64;
            let problem = || format!("{filter} {border} {width}x{height}x{channels}");

            let mut of_x = image(&x);
            plan.run_f64(&image(&x).view(), &mut of_x.view_mut()).unwrap();
            let mut of_y = image(&y);
            adjoint.run_f64(&image(&y).view(), &mut of_y.view_mut()).unwrap();
            let (left, right) = (dot(of_x.as_slice(), &y), dot(&x, of_y.as_slice()));
            assert!((left - right).abs() <= 1e-14 * size, "{}: {left} {right}", problem());

            let single = |values: &[f64]| {
                let values = values.iter().map(|&value| value as f32).collect();
                Image::<f32>::from_vec(values, width, height, channels).unwrap()
            };
            let mut in_f32 = single(&y);
            adjoint.run(&single(&y).view(), &mut in_f32.view_mut()).unwrap();
            for (single, double) in in_f32.as_slice().iter().zip(of_y.as_slice()) {
                let error = (f64::from(*single) - double).abs();
                // The pixels of a small image may gather all taps many times.
                assert!(error <= 2e-6 * size, "{}: {single} {double}", problem());
            }
        }
        assert!(larger > 300, "{larger} windows are larger than their image");
    }

    /// Column `i` of the filter's matrix is the result of an image that is 1 in pixel `i` alone. It
    /// is row `i` of the adjoint's.
    #[test]
    fn the_matrix_is_transposed() {
        let taps = [1.0, 2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0, 19.0, 23.0, 29.0, 31.0, 37.0, 41.0];
        let filter = Filter::from_taps_f64(7, 2, &taps).unwrap().anchored(1, 1).unwrap();
        let (width, height) = (3, 4);
        let unit = |at: usize| {
            let mut image = Image::<f64>::zeroed(width, height, 1).unwrap();
            image.as_mut_slice()[at] = 1.0;
            image
        };
        for border in BORDERS {
            let plan = Plan::builder(&filter).border(border).device(Device::Cpu).build().unwrap();
            let adjoint = plan.adjoint().unwrap();
            let count = width * height;
            let (mut matrix, mut transposed) = (Vec::new(), Vec::new());
            for at in 0..count {
                let mut result = unit(at);
                plan.run_f64(&unit(at).view(), &mut result.view_mut()).unwrap();
                matrix.push(result.into_vec());
                let mut result = unit(at);
                adjoint.run_f64(&unit(at).view(), &mut result.view_mut()).unwrap();
                transposed.push(result.into_vec());
            }
            for (i, j) in (0..count).flat_map(|i| (0..count).map(move |j| (i, j))) {
                assert_eq!(matrix[i][j], transposed[j][i], "{border}: {i} {j}");
            }
        }
    }

    /// A constant border adds its constant to results, whose derivative is 0.
    #[test]
    fn the_constant_outside_has_no_adjoint() {
        let filter = Filter::box_filter(3, 3).unwrap();
        let of = |border| {
            let plan = Plan::builder(&filter).border(border).device(Device::Cpu).build().unwrap();
            let ones = Image::from_vec(vec![1.0f32; 20], 5, 4, 1).unwrap();
            let mut result = Image::zeroed(5, 4, 1).unwrap();
            plan.adjoint().unwrap().run(&ones.view(), &mut result.view_mut()).unwrap();
            result
        };
        assert_eq!(of(Border::Constant(7.0)), of(Border::Constant(0.0)));
    }

    /// A batch has the results of single calls, also where it exceeds a chunk, and names the image
    /// that failed.
    #[test]
    fn batches_are_as_single_calls() {
        let mut random = Random(7);
        let filter = Filter::from_taps_f64(5, 4, &random.values(20)).unwrap();
        for border in BORDERS {
            let plan = Plan::builder(&filter).border(border).device(Device::Cpu).build().unwrap();
            let adjoint = plan.adjoint().unwrap();
            let sources: Vec<Image<f32>> = [(2, 3), (1900, 900), (1900, 901), (4, 1), (1800, 3900)]
                .iter()
                .map(|&(width, height)| {
                    let values = random.values(width * height);
                    let values = values.iter().map(|&value| value as f32).collect();
                    Image::from_vec(values, width, height, 1).unwrap()
                })
                .collect();
            let zeroed = |image: &Image<f32>| {
                let Shape { width, height, channels } = image.shape();
                Image::<f32>::zeroed(width, height, channels).unwrap()
            };
            let mut results: Vec<_> = sources.iter().map(zeroed).collect();
            let mut batch: Vec<_> = sources
                .iter()
                .zip(&mut results)
                .map(|(src, dst)| (src.view(), dst.view_mut()))
                .collect();
            adjoint.run_batch(&mut batch).unwrap();
            for (src, result) in sources.iter().zip(&results) {
                let mut alone = zeroed(src);
                adjoint.run(&src.view(), &mut alone.view_mut()).unwrap();
                assert_eq!(alone, *result, "{border}");
            }
            let (one, mut same, mut other) =
                (&sources[0], zeroed(&sources[0]), zeroed(&sources[1]));
            let mut batch = [(one.view(), same.view_mut()), (one.view(), other.view_mut())];
            let error = adjoint.run_batch(&mut batch).unwrap_err();
            assert!(matches!(error, Error::InBatch { picture: 1, .. }), "{border}: {error}");
            let error = adjoint.run(&one.view(), &mut other.view_mut()).unwrap_err();
            assert!(matches!(error, Error::Mismatch { .. }), "{border}: {error}");
        }
    }

    #[test]
    fn what_is_not_linear_is_refused() {
        let mean = Filter::box_filter(3, 3).unwrap();
        for plan in [
            Plan::builder(&mean).border(Border::None),
            Plan::builder(&mean).nan(Nan::Ignore),
            Plan::builder("sobel".parse::<Gradient>().unwrap()),
            Plan::builder(&mean).light(Light::Linear),
            Plan::builder(Filter::unsharp_above(1.0, 1.0, 1.0, 2.0).unwrap()),
        ] {
            let plan = plan.device(Device::Cpu).build().unwrap();
            let error = plan.adjoint().unwrap_err();
            assert!(matches!(error, Error::Parameter { .. }), "{error}");
        }
    }
}
