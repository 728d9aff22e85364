//! Filters along the axes of an array: a pass of a plan for each, over views of the array as
//! pictures.

#[cfg(feature = "gpu")]
use crate::gpu::{DeviceView, DeviceViewMut, Stream};
use crate::image::{ImageView, ImageViewMut, Pixel};
use crate::{Border, Device, Error, Filter, Form, Plan, Result, memory};

/// Filters along the axes of an array, each with taps and an anchor of its own: volumes, stacks of
/// volumes, signals.
///
/// Arrays have one axis or more and lie in C's order, the last axis without gaps. A pass filters
/// along one axis, and the last two axes share one if they can. Sums are in f32, as those of a
/// [`Plan`]: a pass errs by at most `(n + 4) * 2^-24` of the sum of `|tap * value|` over its `n`
/// taps. Between passes values stay in f32, so results of bytes are sums in f32, rounded; a single
/// pass makes a plan's bytes.
///
/// ```
/// use apron::{Axes, Border, Device};
///
/// // A volume of 20 x 30 x 40 voxels, the first axis with half of the resolution.
/// let volume: Vec<u8> = (0..20 * 30 * 40).map(|at| (at % 251) as u8).collect();
/// let blur = Axes::gaussian(&[1.0, 2.0, 2.0], Border::Reflect, Device::Cpu)?;
/// let mut blurred = vec![0.0f32; volume.len()];
/// blur.run(&[20, 30, 40], &volume, &mut blurred)?;
/// # Ok::<(), apron::Error>(())
/// ```
#[derive(Debug)]
pub struct Axes {
    /// The number of axes.
    axes: usize,
    passes: Vec<Pass>,
}

/// A pass along an axis, or along the last two.
#[derive(Debug)]
struct Pass {
    plan: Plan,
    axis: usize,
    is_pair: bool,
}

/// Pictures of one channel that make up an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pictures {
    count: usize,
    rows: usize,
    columns: usize,
}

impl Axes {
    /// For an array with as many axes as there are items, from the first axis on. An item's filter
    /// has a single row or a single column of taps, wherever they lie; `None` leaves the axis as it
    /// is. The border is that of each axis.
    ///
    /// # Errors
    /// [`Error::Parameter`] without an axis, for other filters, and for [`Border::Keep`] and
    /// [`Border::None`]; as for [`crate::PlanBuilder::build`].
    pub fn new(
        lines: impl IntoIterator<Item = Option<Filter>>,
        border: Border,
        device: Device,
    ) -> Result<Self> {
        let wrong = |name, value: String, expected: &str| {
            Err(Error::Parameter { name, value, expected: expected.to_owned() })
        };
        let lines = lines
            .into_iter()
            .map(|line| line.map(Line::of).transpose())
            .collect::<Result<Vec<_>>>()?;
        let Some(last) = lines.len().checked_sub(1) else {
            return wrong("axes", "none".to_owned(), "at least one");
        };
        if matches!(border, Border::Keep | Border::None) {
            let expected = "one by which each place outside has a value: neighbours differ by pass";
            return wrong("border", border.to_string(), expected);
        }
        let plan = |row: &Line, column: &Line| {
            let filter = Filter::separable_f64(&row.taps, &column.taps)?;
            let filter = filter.anchored(row.anchor, column.anchor)?;
            Plan::builder(filter).border(border).device(device).build()
        };
        // A second pass finds the constant outside, where one pass finds the filtered constant.
        let pairs = !matches!(border, Border::Constant(value) if value != 0.0);
        let one = Line { taps: vec![1.0], anchor: 0 };
        let mut passes = Vec::new();
        for (axis, line) in lines.iter().enumerate() {
            let Some(line) = line else { continue };
            let next = lines.get(axis + 1).and_then(Option::as_ref);
            let pair = next.filter(|_| pairs && axis + 1 == last);
            let (row, column) = match pair {
                Some(next) => (next, line),
                None if axis == last => (line, &one),
                None => (&one, line),
            };
            passes.push(Pass { plan: plan(row, column)?, axis, is_pair: pair.is_some() });
            if pair.is_some() {
                break;
            }
        }
        if passes.is_empty() {
            passes.push(Pass { plan: plan(&one, &one)?, axis: last, is_pair: false });
        }
        Ok(Self { axes: lines.len(), passes })
    }

    /// Gaussians of these standard deviations, in elements, one for each axis from the first on; 0
    /// leaves an axis as it is. Windows are those of [`Filter::gaussian`], which are SciPy's.
    ///
    /// # Errors
    /// As for [`Filter::gaussian`] and [`Axes::new`].
    pub fn gaussian(sigmas: &[f64], border: Border, device: Device) -> Result<Self> {
        let line = |&sigma: &f64| -> Result<Option<Filter>> {
            if sigma == 0.0 {
                return Ok(None);
            }
            let gaussian = Filter::gaussian(sigma)?;
            let row = gaussian.products().first().map(|&(row, _)| row);
            row.map(|row| Filter::separable_f64(row, &[1.0])).transpose()
        };
        let lines = sigmas.iter().map(line).collect::<Result<Vec<_>>>()?;
        Self::new(lines, border, device)
    }

    /// The plans of the passes, in their order.
    pub fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.passes.iter().map(|pass| &pass.plan)
    }

    /// Filters an array of this shape in host memory, as [`Plan::run_batch`] filters its pictures:
    /// on the CPU's threads, or in bands on GPUs, which the array need not fit.
    ///
    /// # Errors
    /// [`Error::Parameter`] for another number of axes, an axis without elements, or slices of
    /// another length than the shape's; as for [`Plan::run`]. After an error the contents of `dst`
    /// are unspecified.
    pub fn run<S: Pixel, D: Pixel>(&self, shape: &[usize], src: &[S], dst: &mut [D]) -> Result<()> {
        let len = self.elements(shape)?;
        for (name, found) in [("the source", src.len()), ("the destination", dst.len())] {
            check_len(name, found, shape, len)?;
        }
        let [passes @ .., last] = &self.passes[..] else { return Ok(()) };
        let [first, middle @ ..] = passes else { return last.run(shape, src, dst) };
        let mut sums = memory::zeroed::<f32>(len)?;
        first.run(shape, src, &mut sums)?;
        let mut others = memory::zeroed::<f32>(if middle.is_empty() { 0 } else { len })?;
        for pass in middle {
            pass.run(shape, &sums, &mut others)?;
            std::mem::swap(&mut sums, &mut others);
        }
        last.run(shape, &sums, dst)
    }

    /// Filters an array of this shape in a GPU's memory, in stream order. The views have one
    /// channel, and no gaps between rows and images. Memory for the sums between passes stays with
    /// the stream. The work may not have finished when the function returns.
    ///
    /// # Errors
    /// As for [`Axes::run`]; [`Error::Parameter`] for views with gaps; memory and driver errors.
    #[cfg(feature = "gpu")]
    pub fn run_on_device(
        &self,
        shape: &[usize],
        src: &DeviceView<'_>,
        dst: &mut DeviceViewMut<'_>,
        stream: &mut Stream,
    ) -> Result<()> {
        let len = self.elements(shape)?;
        check_len("the source", src.elements()?, shape, len)?;
        check_len("the destination", dst.elements()?, shape, len)?;
        let last = self.passes.len() - 1;
        let mut before: Option<DeviceViewMut<'static>> = None;
        for (number, pass) in self.passes.iter().enumerate() {
            let Pictures { count, rows, columns } = pass.pictures(shape);
            let size = (count, rows, columns);
            let from = match &before {
                Some(sums) => sums.to_read(size)?,
                None => src.reshaped(size)?,
            };
            if number == last {
                let mut to = dst.reshaped(size)?;
                pass.plan.run_region(&from, &mut to, 0..columns, 0..rows, stream)?;
            } else {
                // Not where the pass before left its sums.
                let mut to = stream.between(number % 2, size)?;
                pass.plan.run_region(&from, &mut to, 0..columns, 0..rows, stream)?;
                before = Some(to);
            }
        }
        Ok(())
    }

    /// The number of an array's elements.
    fn elements(&self, shape: &[usize]) -> Result<usize> {
        let len = shape.iter().try_fold(1usize, |len, &extent| len.checked_mul(extent));
        len.filter(|&len| shape.len() == self.axes && len > 0).ok_or_else(|| {
            let expected = format!("{} axes, each with at least one element", self.axes);
            Error::Parameter { name: "the shape", value: format!("{shape:?}"), expected }
        })
    }
}

impl Pass {
    /// The array's pictures. Axes behind the filtered one are a picture's columns, those before it
    /// count pictures.
    fn pictures(&self, shape: &[usize]) -> Pictures {
        let (before, extent) = (shape[..self.axis].iter().product(), shape[self.axis]);
        let columns = shape[self.axis + 1..].iter().product();
        match self.is_pair || self.axis + 1 < shape.len() {
            true => Pictures { count: before, rows: extent, columns },
            false => Pictures { count: 1, rows: before, columns: extent },
        }
    }

    fn run<S: Pixel, D: Pixel>(&self, shape: &[usize], src: &[S], dst: &mut [D]) -> Result<()> {
        let Pictures { rows, columns, .. } = self.pictures(shape);
        let pictures = src.chunks(rows * columns).zip(dst.chunks_mut(rows * columns));
        let view = |(src, dst)| {
            let src = ImageView::new(src, columns, rows, 1)?;
            Ok((src, ImageViewMut::new(dst, columns, rows, 1)?))
        };
        let ran = self.plan.run_batch(&mut pictures.map(view).collect::<Result<Vec<_>>>()?);
        // The array is one, whatever its pictures are.
        ran.map_err(|error| match error {
            Error::InBatch { error, .. } => *error,
            error => error,
        })
    }
}

/// Taps along an axis.
struct Line {
    taps: Vec<f64>,
    anchor: usize,
}

impl Line {
    /// Those of a filter with a single row or column.
    fn of(filter: Filter) -> Result<Self> {
        let (x, y) = filter.anchor();
        match filter.form() {
            Form::Product { row, column: [tap] } => {
                Ok(Self { taps: row.iter().map(|&other| tap * other).collect(), anchor: x })
            }
            Form::Product { row: [tap], column } => {
                Ok(Self { taps: column.iter().map(|&other| tap * other).collect(), anchor: y })
            }
            _ => Err(Error::Parameter {
                name: "a filter along an axis",
                value: format!("{filter}, {}x{} taps", filter.cols(), filter.rows()),
                expected: "a single row or column of taps, as Filter::separable makes them".into(),
            }),
        }
    }
}

/// Checks that an array has as many elements as its shape says.
fn check_len(name: &'static str, found: usize, shape: &[usize], len: usize) -> Result<()> {
    if found == len {
        return Ok(());
    }
    let expected = format!("{len} elements, as the shape {shape:?} has");
    Err(Error::Parameter { name, value: format!("{found} elements"), expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The array filtered along one axis after the other, in f64; a constant outside is 0.
    fn expected(
        shape: &[usize],
        array: &[f32],
        lines: &[Option<Filter>],
        border: Border,
    ) -> Vec<f64> {
        let (mode, _) = border.code();
        let mut values: Vec<f64> = array.iter().map(|&value| value.into()).collect();
        for (axis, line) in lines.iter().enumerate() {
            let Some(line) = line else { continue };
            let Line { taps, anchor } = Line::of(line.clone()).unwrap();
            let (extent, stride) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
            let at = |index: usize| {
                let place = index / stride % extent;
                let tap = |(number, tap): (usize, &f64)| {
                    let from = (place + number) as i32 - anchor as i32;
                    let from = gpu_kernels::border::resolve(mode, from, extent as i32);
                    let there = index - place * stride;
                    if from < 0 { 0.0 } else { tap * values[there + from as usize * stride] }
                };
                taps.iter().enumerate().map(tap).sum()
            };
            values = (0..values.len()).map(at).collect();
        }
        values
    }

    #[test]
    fn passes_are_sums_along_the_axes() {
        let mut rng = fastrand::Rng::with_seed(5);
        for turn in 0..60 {
            let axes = 1 + turn % 5;
            let shape: Vec<_> = (0..axes).map(|_| rng.usize(1..=7)).collect();
            let array: Vec<f32> = (0..shape.iter().product()).map(|_| rng.f32() - 0.3).collect();
            let mut line = || {
                let taps: Vec<f64> = (0..rng.usize(1..=9)).map(|_| rng.f64() - 0.4).collect();
                let anchor = rng.usize(..taps.len());
                let filter = match rng.bool() {
                    true => Filter::separable_f64(&taps, &[1.0]).unwrap().anchored(anchor, 0),
                    false => Filter::separable_f64(&[1.0], &taps).unwrap().anchored(0, anchor),
                };
                (rng.u32(..4) > 0).then(|| filter.unwrap())
            };
            let lines: Vec<_> = (0..axes).map(|_| line()).collect();
            let border = [Border::Reflect, Border::Wrap, Border::Replicate, Border::Constant(0.0)]
                [rng.usize(..4)];
            let filter = Axes::new(lines.clone(), border, Device::Cpu).unwrap();
            let mut found = vec![f32::NAN; array.len()];
            filter.run(&shape, &array, &mut found).unwrap();
            for (found, right) in found.iter().zip(expected(&shape, &array, &lines, border)) {
                let off = (f64::from(*found) - right).abs();
                assert!(off < 2e-5, "{shape:?}, {lines:?}, {border}: {found}, not {right}");
            }
        }
    }

    #[test]
    fn a_constant_is_outside_of_each_pass() {
        // Two passes over ones with a constant of 1 outside leave ones.
        let filter = Axes::gaussian(&[1.0, 0.0, 2.0], Border::Constant(1.0), Device::Cpu).unwrap();
        let mut found = [0.0f32; 60];
        filter.run(&[3, 4, 5], &[1.0f32; 60], &mut found).unwrap();
        assert!(found.iter().all(|value| (value - 1.0).abs() < 1e-6), "{found:?}");
        assert_eq!(filter.plans().count(), 2);
        let pair = Axes::gaussian(&[1.0, 2.0], Border::Wrap, Device::Cpu).unwrap();
        assert_eq!(pair.plans().count(), 1);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let words = |error: Error| error.to_string();
        let of = |sigmas: &[f64], border| Axes::gaussian(sigmas, border, Device::Cpu);
        assert!(words(of(&[], Border::Wrap).unwrap_err()).contains("axes is none"));
        assert!(words(of(&[1.0], Border::Keep).unwrap_err()).contains("border is keep"));
        let square = [Some(Filter::gaussian(1.0).unwrap())];
        let refused = Axes::new(square, Border::Wrap, Device::Cpu).unwrap_err();
        assert!(words(refused).contains("a single row or column"));
        let blur = of(&[1.0, 1.0], Border::Wrap).unwrap();
        let mut found = [0.0f32; 6];
        for (shape, len) in [(&[2, 3, 1][..], 6), (&[0, 6], 0), (&[2, 4], 8), (&[2, 3], 5)] {
            let refused = blur.run(shape, &vec![0.0f32; len], &mut found).unwrap_err();
            assert!(matches!(refused, Error::Parameter { .. }), "{refused}");
        }
    }
}
