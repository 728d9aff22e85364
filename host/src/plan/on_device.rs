//! Runs over images in a GPU's memory.

use gpu_kernels::abi::Epilogue;

use super::engines::On;
use super::{Plan, ran};
use crate::gpu::engine::Part;
use crate::gpu::{DeviceImage, DeviceView, DeviceViewMut, Recorded, Stream};
use crate::problem::{Numbers, Place, Problem};
use crate::{Result, Scalar};

impl Plan {
    /// Filters an image that is on the device into another one there; see
    /// [`crate::gpu::Gpu::upload`]. The work is put into `stream` and may not have finished when
    /// the function returns.
    ///
    /// # Errors
    /// [`Error::Mismatch`](crate::Error::Mismatch) if sizes differ,
    /// [`Error::NoGpu`](crate::Error::NoGpu) if the plan runs on the CPU; memory and driver errors.
    /// A plan on [`Device::Auto`](crate::Device::Auto) runs on the images' GPU, whichever that is.
    pub fn run_on_device(
        &self,
        src: &DeviceImage,
        dst: &mut DeviceImage,
        stream: &mut Stream,
    ) -> Result<()> {
        self.run_part(&src.view(), &mut dst.view_mut(), &Part::whole(src.shape()), stream)
    }

    /// As [`Plan::run_on_device`], for images or batches of any layout, and for a part of them: the
    /// results in these columns and rows only are computed and written. The border stays that of
    /// the whole image, so the results of a band are the same as those rows of the whole image:
    /// `src` must have the rows that the windows reach, and `dst` the rows that are written.
    ///
    /// ```no_run
    /// use apron::{Device, Filter, Image, Plan, gpu::Gpu};
    ///
    /// let gpu = Gpu::open(0)?;
    /// let plan = Plan::builder(Filter::box_filter(3, 3)?).device(Device::Gpu(0)).build()?;
    /// let src = gpu.upload(&Image::from_vec(vec![0.5f32; 640 * 480], 640, 480, 1)?.view())?;
    /// let mut dst = gpu.image(src.shape())?;
    /// let mut stream = gpu.stream()?;
    /// // Rows 100 to 199 read rows 99 to 200.
    /// let band = src.view().rows(99..201)?;
    /// plan.run_region(&band, &mut dst.view_mut(), 0..640, 100..200, &mut stream)?;
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Plan::run_on_device`]; [`Error::Parameter`](crate::Error::Parameter) if a view
    /// lacks the columns or rows.
    pub fn run_region(
        &self,
        src: &DeviceView<'_>,
        dst: &mut DeviceViewMut<'_>,
        columns: std::ops::Range<usize>,
        rows: std::ops::Range<usize>,
        stream: &mut Stream,
    ) -> Result<()> {
        self.run_part(src, dst, &Part { columns, rows, ..Part::whole(src.shape()) }, stream)
    }

    /// As [`Plan::run_region`], each sum multiplied with `scale`, added to `offset` by a fused
    /// multiply-add and, if `absolute`, without its sign. Pixels that the border copies stay
    /// as they are. For tests: the builder does not offer this yet.
    ///
    /// # Errors
    /// As for [`Plan::run_region`].
    #[doc(hidden)]
    pub fn run_with_epilogue(
        &self,
        src: &DeviceView<'_>,
        dst: &mut DeviceViewMut<'_>,
        (scale, offset, absolute): (f32, f32, bool),
        stream: &mut Stream,
    ) -> Result<()> {
        let flags = Epilogue::LINEAR | if absolute { Epilogue::ABSOLUTE } else { 0 };
        let part = Part { epilogue: Epilogue { flags, scale, offset }, ..Part::whole(src.shape()) };
        self.run_part(src, dst, &part, stream)
    }

    pub(super) fn run_part(
        &self,
        src: &DeviceView<'_>,
        dst: &mut DeviceViewMut<'_>,
        part: &Part,
        stream: &mut Stream,
    ) -> Result<()> {
        self.check_kinds((src.scalar(), dst.scalar()))?;
        let gpus = self.gpus_of(src.gpu())?;
        let engine = gpus.engine_of(src.gpu());
        let place = On::Gpu(&gpus).place();
        let problem = self.problem_on((src, dst), part, place);
        let ran =
            engine.enqueue(&self.prepare(&problem, &gpus, engine)?, src, dst, part, stream)?;
        ran::keep_one(self.number, ran);
        Ok(())
    }

    /// The problem of a part of images on a device.
    pub(super) fn problem_on(
        &self,
        (src, dst): (&DeviceView<'_>, &DeviceViewMut<'_>),
        part: &Part,
        place: Place,
    ) -> Problem {
        // What an epilogue makes is rounded from f32.
        let plain = part.epilogue == Epilogue::NONE;
        let bytes = (src.scalar(), dst.scalar()) == (Scalar::U8, Scalar::U8);
        Problem {
            numbers: if plain { self.numbers(place) } else { Numbers::default() },
            rounding: (plain && bytes).then(|| self.rounding()),
            width: part.columns.len(),
            height: part.rows.len(),
            planes: src.images() * part.filtered,
            source: src.scalar(),
            target: dst.scalar(),
            side_by_side: src.side_by_side(),
            // Kernels filter all values of a row of interleaved channels, in both images.
            source_is_aligned: src.is_aligned()
                && (src.side_by_side() == 1
                    || src.side_by_side() == dst.side_by_side()
                        && part.filtered == src.shape().channels),
            ..self.problem(src.shape(), place)
        }
    }

    /// Records what [`Plan::run_on_device`] would do with these images, to be replayed with one
    /// call of the driver each time. Filters `src` once as it does so.
    ///
    /// # Errors
    /// As for [`Plan::run_on_device`].
    pub fn record(&self, src: DeviceImage, dst: DeviceImage) -> Result<Recorded> {
        let gpu = self.gpus_of(src.gpu())?.engine_of(src.gpu()).gpu().clone();
        Recorded::new(&gpu, src, dst, |src, dst, stream| self.run_on_device(src, dst, stream))
    }
}
