//! Sums over known pixels on GPUs: of pictures in their memory, and in the host's.

use std::ops::Range;

use super::engines::{On, OnGpus};
use super::{Plan, ran};
use crate::gpu::engine::{Engine, Part};
use crate::gpu::{DeviceCoverage, DeviceImage, DeviceView, DeviceViewMut, Gpu, Stream};
use crate::image::stored::{StoredView, StoredViewMut};
use crate::image::{Image, Layout, Pixel, Shape};
use crate::kernels::known::{self, Kernels, Knows};
use crate::kernels::prepared::Prepared;
use crate::mask::{Coverage, Mask};
use crate::problem::{Problem, rows_read};
use crate::{Family, Result, Scalar, Variant, cpu, with_pixels};

impl Plan {
    /// As [`Plan::run_region`], from the pixels that the mask knows, as [`Plan::run_masked_with`]
    /// says. The mask is of bytes, or of weights in f32, which are not checked: they must be finite
    /// and not negative.
    ///
    /// ```no_run
    /// use apron::gpu::{DeviceCoverage, Gpu};
    /// use apron::{Device, Filter, Image, Plan};
    ///
    /// let gpu = Gpu::open(0)?;
    /// let plan = Plan::builder(Filter::gaussian(2.0)?).device(Device::Gpu(0)).build()?;
    /// let src = gpu.upload(&Image::<f32>::zeroed(640, 480, 1)?.view())?;
    /// let mask = gpu.upload_stored(&Image::<u8>::zeroed(640, 480, 1)?.view())?;
    /// let mut dst = gpu.image(src.shape())?;
    /// let mut stream = gpu.stream()?;
    /// let (src, mask, dst) = (src.view(), mask.view(), &mut dst.view_mut());
    /// let beside = (&DeviceCoverage::default(), &mut stream);
    /// plan.run_region_masked(&src, Some(&mask), dst, (0..640, 0..480), beside)?;
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Plan::run_region`] and [`Plan::run_masked_with`];
    /// [`Error::Parameter`](crate::Error::Parameter) for several images, or if mask or coverage are
    /// of another type or lack rows.
    pub fn run_region_masked(
        &self,
        src: &DeviceView<'_>,
        mask: Option<&DeviceView<'_>>,
        dst: &mut DeviceViewMut<'_>,
        (columns, rows): (Range<usize>, Range<usize>),
        (coverage, stream): (&DeviceCoverage<'_>, &mut Stream),
    ) -> Result<()> {
        self.check_kinds((src.scalar(), dst.scalar()))?;
        self.check_masked()?;
        let gpus = self.gpus_of(src.gpu())?;
        let engine = gpus.engine_of(src.gpu());
        let knows = engine.knows(self.unknown, src, mask, coverage, &rows)?;
        let part = Part { columns, rows, ..Part::whole(src.shape()) };
        let problem = self.problem_on((src, dst), &part, On::Gpu(&gpus).place());
        let prepared = self.prepare_known(&problem, knows, &gpus, engine)?;
        let ran = engine.enqueue(&prepared, src, dst, &part, stream)?;
        ran::keep_one(self.number, ran);
        Ok(())
    }

    /// The kernels for known pixels.
    pub(super) fn prepare_known(
        &self,
        problem: &Problem,
        knows: Knows,
        gpus: &OnGpus,
        engine: &Engine,
    ) -> Result<Prepared> {
        let sums = self.prepare_sums(problem, true, gpus, engine)?;
        let family = sums.variant().map_or(Family::Direct, Variant::family);
        let ones = cpu::sum_of_taps(&self.filter, family)?;
        let inside = match knows.knows_inside(problem.source) {
            true => Some(self.prepare_variant(self.variant, problem, gpus, engine)?),
            false => None,
        };
        // Both kernels must make the same bits: a picture's size decides which results each makes.
        let is_same = |inside: &Prepared| {
            problem.makes_bytes() || inside.variant().map(Variant::family) == Some(family)
        };
        let kernels = Kernels { sums, inside: inside.filter(is_same) };
        Ok(known::prepare(kernels, &self.filter, ones, problem.source, knows))
    }

    /// What a call without a mask knows.
    pub(super) fn knows(&self) -> Knows {
        Knows { unknown: self.unknown, border: self.border, mask: None, to: [None; 2] }
    }

    /// Filters known pixels on the first of the plan's GPUs, in bands of rows.
    pub(super) fn run_known_on_gpu(
        &self,
        gpus: &OnGpus,
        (src, mask): (&StoredView<'_>, &Mask<'_>),
        dst: &mut StoredViewMut<'_>,
        coverage: &mut Coverage<'_>,
        mut reach: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        /// Bytes of a value on the GPU: the pixel, the mask and the results, and planes of f32
        /// between them.
        const EACH: u64 = 48;
        let gpu = gpus.engines[0].gpu();
        let Shape { width, height, channels } = src.shape();
        let fitting = gpu.memory()?.0 / 2 / (EACH * (width * channels) as u64);
        let fitting = usize::try_from(fitting).unwrap_or(usize::MAX);
        let band = self.rows.unwrap_or(fitting.saturating_sub(self.filter.rows()));
        let mut stream = gpu.stream()?;
        for first in (0..height).step_by(band.clamp(1, height)) {
            let rows = first..height.min(first + band.clamp(1, height));
            let reaches = (self.filter.anchor().1, self.filter.rows());
            let read = rows_read(self.border.code().0, reaches, rows.clone(), height);
            let from = upload(gpu, src, &read)?;
            let mask = match mask {
                Mask::All => None,
                Mask::Bytes(view) => Some(upload(gpu, &(*view).into(), &read)?),
                Mask::Weights(view) => Some(upload(gpu, &(*view).into(), &read)?),
            };
            let shape = Shape { width, height: rows.len(), channels };
            let image = |scalar: Scalar| gpu.image_of(shape, scalar, Layout::Interleaved);
            let mut to = image(dst.scalar())?;
            let mut weights = coverage.weights.as_ref().map(|_| image(Scalar::F32)).transpose()?;
            let mut known = coverage.known.as_ref().map(|_| image(Scalar::U8)).transpose()?;
            let mask = mask.as_ref().map(|mask| mask.as_rows_of(height, read.start)).transpose()?;
            let beside = DeviceCoverage {
                weights: weights.as_mut().map(|to| to.rows_of(height, first)).transpose()?,
                known: known.as_mut().map(|to| to.rows_of(height, first)).transpose()?,
            };
            let from = from.as_rows_of(height, read.start)?;
            let part = (0..width, rows.clone());
            let dst_rows = &mut to.rows_of(height, first)?;
            let beside = (&beside, &mut stream);
            self.run_region_masked(&from, mask.as_ref(), dst_rows, part, beside)?;
            stream.synchronize()?;
            download(gpu, &to, first, &mut dst.reborrow())?;
            if let (Some(found), Some(view)) = (&weights, &mut coverage.weights) {
                download(gpu, found, first, &mut view.reborrow().into())?;
            }
            if let (Some(found), Some(view)) = (&known, &mut coverage.known) {
                download(gpu, found, first, &mut view.reborrow().into())?;
            }
            reach(rows.end)?;
        }
        Ok(())
    }
}

/// Copies some rows of a picture to a GPU.
fn upload(gpu: &Gpu, view: &StoredView<'_>, rows: &Range<usize>) -> Result<DeviceImage> {
    fn of<P: Pixel>(gpu: &Gpu, view: &StoredView<'_>, rows: &Range<usize>) -> Result<DeviceImage> {
        let (view, Shape { width, channels, .. }) = (view.typed::<P>(), view.shape());
        let mut part = Image::<P>::zeroed(width, rows.len(), channels)?;
        let copies = part.as_mut_slice().chunks_exact_mut(width * channels);
        copies.zip(rows.clone()).for_each(|(copy, y)| copy.copy_from_slice(view.row(y)));
        gpu.upload_stored(&part.view())
    }
    with_pixels!(view.scalar(), P => of::<P>(gpu, view, rows))
}

/// Copies an image from a GPU to the rows of a picture from row `first` on.
fn download(
    gpu: &Gpu,
    image: &DeviceImage,
    first: usize,
    dst: &mut StoredViewMut<'_>,
) -> Result<()> {
    fn of<P: Pixel>(gpu: &Gpu, image: &DeviceImage, dst: &mut StoredViewMut<'_>) -> Result<()> {
        let found = gpu.download_stored::<P>(image)?;
        let rows = found.as_slice().chunks_exact(found.shape().row_len());
        let mut dst = dst.typed::<P>();
        dst.bands_mut(usize::MAX).flatten().zip(rows).for_each(|(to, row)| to.copy_from_slice(row));
        Ok(())
    }
    let mut dst = dst.below(first);
    with_pixels!(image.format().scalar, P => of::<P>(gpu, image, &mut dst))
}
