//! A contest on pictures in a GPU's memory: values of any type, channels interleaved, one picture
//! or many in a call.
//!
//! Every value of a result is compared with the CPU's result before it is timed. The CPU's result
//! is compared with the definition.

use std::ops::Range;

use anyhow::{Context, Result, ensure};
use apron::gpu::{DeviceImage, DeviceView, DeviceViewMut, Gpu, Stream, Strides};
use apron::{Accuracy, Border, Device, Image, Layout, Plan, Scalar, Shape, Step, Variant};
use rayon::prelude::*;

use crate::cases::{Case, Form, Random};
use crate::check::{self, Against, Checked};
use crate::contest::{OnDevice, Times, Track};
use crate::measure::Bed;

/// The name of the plan that chooses its variant.
pub(crate) const CHOSEN: &str = "chosen";

/// The name of such a plan whose errors are relative to the greatest pixels, as cuFFT's are.
pub(crate) const OF_RANGE: &str = "chosen, errors of the range";

/// A case's pictures, one below the other, and the result that every contender must give.
pub(crate) struct Pictures<S, D> {
    each: Shape,
    pub(crate) src: Image<S>,
    pub(crate) expected: Image<D>,
}

/// The contenders that were checked.
pub(crate) struct OnPictures<'a, S, D> {
    pictures: &'a Pictures<S, D>,
    gpu: &'a Gpu,
    src: DeviceImage,
    track: Track<'a>,
}

impl<S: Random, D: Random> Pictures<S, D> {
    /// The case's pixels and the CPU's result.
    ///
    /// # Errors
    /// If the result differs from the definition, or if memory is short.
    pub(crate) fn new(case: &Case, step: &Step) -> Result<Self> {
        let each = case.shape();
        let src = Image::from_vec(case.pixels::<S>(), each.width, case.rows(), each.channels)?;
        let variant = match step {
            Step::Gradient(_) => None,
            Step::Filter(_) if case.form == Form::Mean => None,
            Step::Filter(filter) if filter.is_separable() || filter.summed().is_some() => {
                Some(Variant::Separable)
            }
            Step::Filter(_) => Some(Variant::DirectNaive),
        };
        let plan = Plan::builder(step).device(Device::Cpu).variant(variant).build()?;
        let mut expected = Vec::with_capacity(case.values());
        for i in 0..case.images {
            let rows = i * each.height..(i + 1) * each.height;
            let picture = part(&src, each, rows)?;
            expected
                .extend(filtered::<S, D>(&plan, step, &picture).context("on the CPU")?.into_vec());
        }
        let expected = Image::from_vec(expected, each.width, case.rows(), each.channels)?;
        Ok(Self { each, src, expected })
    }

    /// The pictures on a GPU.
    ///
    /// # Errors
    /// Memory and driver errors.
    pub(crate) fn on<'a>(&'a self, gpu: &'a Gpu) -> Result<OnPictures<'a, S, D>> {
        let src = gpu.upload_stored(&self.src.view())?;
        let bed = Bed::between(gpu, &src, &self.result(gpu)?)?;
        let copies = if S::SCALAR == D::SCALAR { None } else { Some(self.copies(gpu)?) };
        Ok(OnPictures { pictures: self, gpu, src, track: Track::new(bed, copies) })
    }

    /// Memory for the results.
    fn result(&self, gpu: &Gpu) -> Result<DeviceImage> {
        Ok(gpu.image_of(self.src.shape(), D::SCALAR, Layout::Interleaved)?)
    }

    /// Images whose copy reads and writes as many bytes as the filter, where source and result have
    /// values of different sizes.
    fn copies(&self, gpu: &Gpu) -> Result<Bed> {
        let (read, written) = (S::SCALAR.bytes(), D::SCALAR.bytes());
        let shape = self.src.shape();
        let shape =
            Shape { height: (shape.height * (read + written)).div_ceil(2 * written), ..shape };
        let mut source = gpu.image_of(shape, D::SCALAR, Layout::Interleaved)?;
        let stream = gpu.stream()?;
        source.fill(0.0, &stream)?;
        stream.synchronize()?;
        Ok(Bed::new(gpu, &source)?)
    }
}

impl<S: Random, D: Random> OnPictures<'_, S, D> {
    /// Runs the plan once, and compares its result with the CPU's: bits, or values if the plan was
    /// built for errors of the range.
    ///
    /// # Errors
    /// If it fails, or if a value differs.
    pub(crate) fn enter(
        &mut self,
        name: String,
        plan: Plan,
        accuracy: Option<Accuracy>,
    ) -> Result<()> {
        let (each, gpu) = (self.pictures.each, self.gpu.clone());
        let mut run: OnDevice<'_> =
            Box::new(move |src, dst, stream| batch(&gpu, &plan, each, src, dst, stream));
        let mut once = || -> Result<Checked> {
            let mut stream = self.gpu.stream()?;
            let mut dst = self.pictures.result(self.gpu)?;
            // Memory that the driver hands out may still hold another run's right result.
            dst.fill(D::POISON.to_f32(), &stream)?;
            run(&self.src, &mut dst, &mut stream)?;
            stream.synchronize()?;
            let found = self.gpu.download_stored::<D>(&dst)?;
            if accuracy == Some(Accuracy::Range) {
                // 40 units in the last place of pixels up to 1, or a step of integers.
                let float = D::SCALAR == Scalar::F32;
                let allowed = if float { 40.0 * f64::from(f32::EPSILON) } else { 1.0 };
                let difference = check::difference(&found, &self.pictures.expected);
                ensure!(difference <= allowed, "off by {difference}, {allowed} are allowed");
            } else {
                check::same(&found, &self.pictures.expected)?;
            }
            Ok(Checked { checksum: Some(check::sum(&found)), ..Checked::against(Against::Cpu) })
        };
        let checked = once().with_context(|| name.clone())?;
        self.track.enter(name, checked, run)
    }

    /// As [`Track::time`].
    ///
    /// # Errors
    /// If a contender fails.
    pub(crate) fn time(self, rounds: usize) -> Result<Times> {
        self.track.time(rounds)
    }
}

/// Some rows of an image.
fn part<P: Random>(image: &Image<P>, shape: Shape, rows: Range<usize>) -> Result<Image<P>> {
    let row = shape.row_len();
    let pixels = image.as_slice()[rows.start * row..rows.end * row].to_vec();
    Ok(Image::from_vec(pixels, shape.width, rows.len(), shape.channels)?)
}

/// The CPU's result for a picture. Bytes from bytes are rounded as if from the exact sum; other
/// values are f32 results converted.
fn filtered<S: Random, D: Random>(plan: &Plan, step: &Step, src: &Image<S>) -> Result<Image<D>> {
    let shape = src.shape();
    let converted =
        |pixels: Vec<D>| Image::from_vec(pixels, shape.width, shape.height, shape.channels);
    if (S::SCALAR, D::SCALAR) == (Scalar::U8, Scalar::U8) {
        let mut found = converted(vec![D::POISON; src.as_slice().len()])?;
        plan.run(&src.view(), &mut found.view_mut())?;
        spots(step, src, &found)?;
        return Ok(found);
    }
    let mut found = Image::<f32>::zeroed(shape.width, shape.height, shape.channels)?;
    plan.run(&src.view(), &mut found.view_mut())?;
    spots(step, src, &found)?;
    Ok(converted(found.as_slice().par_iter().map(|&value| D::from_f32(value)).collect())?)
}

/// Compares up to a thousand results of a filter with the definition. The tests compare gradients.
fn spots<S: Random, D: Random>(step: &Step, src: &Image<S>, found: &Image<D>) -> Result<()> {
    match step {
        Step::Filter(filter) => check::spots(filter, Border::default(), src, found, 0.0),
        Step::Gradient(_) => Ok(()),
    }
}

/// Filters pictures that lie one below the other: one as an image, many as a batch.
pub(crate) fn batch(
    gpu: &Gpu,
    plan: &Plan,
    each: Shape,
    src: &DeviceImage,
    dst: &mut DeviceImage,
    stream: &mut Stream,
) -> apron::Result<()> {
    let images = src.shape().height / each.height;
    if images == 1 {
        return plan.run_on_device(src, dst, stream);
    }
    let layout = |image: &DeviceImage| {
        let scalar = image.format().scalar;
        let row = (scalar.bytes() * image.stride()) as i64;
        let pixel = (scalar.bytes() * each.channels) as i32;
        let strides =
            Strides { row, pixel, channel: scalar.bytes() as i64, image: row * each.height as i64 };
        (scalar, strides)
    };
    let rows = 0..each.height;
    // SAFETY: the image is these pictures one below the other, in this layout. It is borrowed while
    // the view is used, and its memory is freed in stream order.
    let from = unsafe {
        DeviceView::from_raw(gpu, src.address(), layout(src), each, images, rows.clone())?
    };
    // SAFETY: as above, and borrowed exclusively.
    let mut to = unsafe {
        DeviceViewMut::from_raw(gpu, dst.address(), layout(dst), each, images, rows.clone())?
    };
    plan.run_region(&from, &mut to, 0..each.width, rows, stream)
}

#[cfg(test)]
mod tests {
    use apron::{Scalar, f16};

    use super::*;
    use crate::cases::{Form, Suite};

    fn case(
        images: usize,
        (stored, channels, target): (Scalar, usize, Scalar),
        form: Form,
    ) -> Case {
        Case {
            suite: Suite::Pictures,
            images,
            width: 67,
            height: 41,
            channels,
            stored,
            target,
            taps: 3,
            form,
            goals: [None; 2],
            sums: [None; 2],
            large: false,
        }
    }

    /// The CPU's result. If there is a GPU, every variant on it, and a plan that chooses, must give
    /// the same.
    fn expected<S: Random, D: Random>(case: &Case) -> Image<D> {
        let step = case.step().unwrap();
        let pictures = Pictures::<S, D>::new(case, &step).unwrap();
        if let Ok(gpu) = Gpu::open(0) {
            let mut contest = pictures.on(&gpu).unwrap();
            let plan = || Plan::builder(&step).device(Device::Gpu(0)).build().unwrap();
            contest.enter(CHOSEN.to_owned(), plan(), None).unwrap();
            let other =
                Plan::builder(&step).device(Device::Gpu(0)).border(Border::Wrap).build().unwrap();
            assert!(contest.enter("another border".to_owned(), other, None).is_err());
            let times = contest.time(1).unwrap();
            assert!(times.copies.len() == 1 && times.entries.len() == 1);
        }
        pictures.expected
    }

    #[test]
    fn every_type_of_picture_has_a_result_to_compare_with() {
        let types = |stored, channels| (stored, channels, stored);
        for channels in [1, 3, 4] {
            expected::<u8, u8>(&case(1, types(Scalar::U8, channels), Form::Random));
            expected::<u8, u8>(&case(1, types(Scalar::U8, channels), Form::Gaussian));
        }
        expected::<u16, u16>(&case(1, types(Scalar::U16, 1), Form::Random));
        expected::<f16, f16>(&case(1, types(Scalar::F16, 1), Form::Random));
        expected::<u8, f32>(&case(1, (Scalar::U8, 3, Scalar::F32), Form::Gradient));
        let signed = expected::<u8, f32>(&case(1, (Scalar::U8, 1, Scalar::F32), Form::Sobel));
        assert!(signed.as_slice().iter().any(|&value| value < 0.0));
    }

    #[test]
    fn each_picture_of_a_batch_is_filtered_by_itself() {
        let batch = case(3, (Scalar::U8, 3, Scalar::U8), Form::Random);
        let found = expected::<u8, u8>(&batch);
        let filter = batch.filter().unwrap();
        let src = Image::from_vec(batch.pixels::<u8>(), batch.width, batch.rows(), batch.channels)
            .unwrap();
        let plan = Plan::builder(&filter).device(Device::Cpu).build().unwrap();
        let second = part(&src, batch.shape(), 41..82).unwrap();
        let second = plan.filter(&second.view()).unwrap();
        check::same(&part(&found, batch.shape(), 41..82).unwrap(), &second).unwrap();
    }
}
