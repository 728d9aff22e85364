//! Studies as implementations: on the CPU, and on images in device memory. Their results are in
//! f32.

use apron::{Border, Image, Result, Shape};
use oracle::Order;
use studies::{CpuPlan, Study};

use crate::problem::Window;
use crate::product::put;
use crate::runner::{Implementation, Ready, Source, Target};
use crate::sample::Sample;

/// Whether a study's summary promises a window. Every device has shared memory for a tile of 31x31
/// taps.
fn promised(study: Study, window: &Window, border: Border) -> bool {
    let Window { cols, rows, anchor, .. } = *window;
    // Square, odd, with the anchor in the middle.
    let central = |least: usize, most: usize| {
        cols == rows
            && cols % 2 == 1
            && (least..=most).contains(&cols)
            && anchor == (cols / 2, rows / 2)
    };
    let constant = matches!(border, Border::Constant(_));
    let separates = window.filter.is_separable();
    let tile = |width: usize, height: usize| (width + cols - 1) * (height + rows - 1);
    match study {
        Study::DirectNaive => true,
        Study::DirectConstant => cols * rows <= 31 * 31,
        Study::BlogShared => {
            cols * rows <= 31 * 31 && tile(32, 32) <= 48 << 8 && border != Border::Keep
        }
        Study::BlogUnrolled => central(5, 5) && border != Border::Keep,
        Study::ClassNaive
        | Study::ClassShared
        | Study::ClassMul24
        | Study::ClassConflicts
        | Study::ClassSeparable
        | Study::ClassSteps => constant && separates && central(17, 17),
        Study::PaperSeparable | Study::PaperLooped => constant && separates && central(3, 33),
        // It has its own limit on the image's size.
        Study::PaperTexture => false,
        Study::PaperIdle => constant && tile(16, 16) <= 1024 && cols * rows <= 31 * 31,
        Study::PaperHalfIdle => {
            constant && rows <= 49 && cols * rows <= 31 * 31 && tile(16, 16) <= 48 << 8
        }
        Study::PaperBusy => constant && cols * rows <= 31 * 31 && tile(16, 16) <= 48 << 8,
        Study::StripUntiled | Study::StripTiled => border == Border::Keep && central(3, 33),
        Study::LineNaive
        | Study::LineConstant
        | Study::LineShared
        | Study::LineGhost
        | Study::LineVector => constant && (cols, rows, anchor.0) == (5, 1, 2),
    }
}

/// A study on the CPU.
#[derive(Clone, Copy, Debug)]
pub struct OnCpu(pub Study);

/// The prepared form of [`OnCpu`].
#[derive(Debug)]
pub struct Prepared {
    study: Study,
    plan: CpuPlan,
}

impl Implementation for OnCpu {
    type Ready = Prepared;

    fn name(&self) -> String {
        format!("{} on the CPU", self.0)
    }

    fn must_take(&self, window: &Window, border: Border) -> bool {
        promised(self.0, window, border)
    }

    fn prepare(&self, window: &Window, border: Border) -> Result<Prepared> {
        Ok(Prepared { study: self.0, plan: self.0.plan_on_cpu(&window.filter, border)? })
    }
}

impl Ready for Prepared {
    fn order(&self, shape: Shape) -> Result<Option<Order>> {
        self.plan.takes(shape)?;
        Ok(Some(self.study.order()))
    }

    fn run<S: Sample, D: Sample>(
        &self,
        shape: Shape,
        src: Source<'_, S>,
        dst: Target<'_, D>,
    ) -> Result<()> {
        let rows = src.data.chunks(src.stride).take(shape.height);
        let pixels =
            rows.flat_map(|row| row[..shape.row_len()].iter().map(|value| value.value() as f32));
        let src = Image::from_vec(pixels.collect(), shape.width, shape.height, shape.channels)?;
        let mut filtered = Image::zeroed(shape.width, shape.height, shape.channels)?;
        self.plan.run(&src, &mut filtered)?;
        put(&filtered, dst);
        Ok(())
    }
}

/// A study on images in device memory, poisoned as for [`crate::product::OnDevice`].
#[cfg(feature = "cust")]
#[derive(Clone, Copy, Debug)]
pub struct OnDevice {
    /// The study.
    pub study: Study,
    /// Whether the source interleaves channels row by row, rather than plane by plane. The result
    /// has the other layout.
    pub by_rows: bool,
}

/// The prepared form of [`OnDevice`].
#[cfg(feature = "cust")]
#[derive(Debug)]
pub struct DevicePrepared {
    study: OnDevice,
    filter: apron::Filter,
    border: Border,
    gpu: apron::gpu::Gpu,
}

#[cfg(feature = "cust")]
impl DevicePrepared {
    /// A plan for each run: a plan has an intermediate image, and problems are solved in parallel.
    fn plan(&self) -> Result<studies::StudyPlan> {
        self.study.study.plan(&self.filter, self.border, &self.gpu, None)
    }
}

#[cfg(feature = "cust")]
impl Implementation for OnDevice {
    type Ready = DevicePrepared;

    fn name(&self) -> String {
        format!("{} in device memory{}", self.study, if self.by_rows { ", row by row" } else { "" })
    }

    fn must_take(&self, window: &Window, border: Border) -> bool {
        promised(self.study, window, border)
    }

    fn prepare(&self, window: &Window, border: Border) -> Result<DevicePrepared> {
        let gpu = apron::gpu::Gpu::open(0)?;
        let prepared = DevicePrepared { study: *self, filter: window.filter.clone(), border, gpu };
        prepared.plan()?;
        Ok(prepared)
    }
}

#[cfg(feature = "cust")]
impl Ready for DevicePrepared {
    fn order(&self, shape: Shape) -> Result<Option<Order>> {
        let Self { study: OnDevice { study, .. }, filter, border, gpu } = self;
        let shared_memory = gpu.info().shared_memory;
        let problem = studies::Problem { filter, border: *border, shape, shared_memory };
        let declined = |reason| apron::Error::Unsupported { variant: study.name(), reason };
        study.accepts(&problem).map(|()| Some(study.order())).map_err(declined)
    }

    fn run<S: Sample, D: Sample>(
        &self,
        shape: Shape,
        src: Source<'_, S>,
        dst: Target<'_, D>,
    ) -> Result<()> {
        let mut images = [self.gpu.image(shape)?, studies::image_by_rows(&self.gpu, shape)?];
        if self.study.by_rows {
            images.reverse();
        }
        let mut plan = self.plan()?;
        crate::product::filter_on_device(images, src, dst, |src, dst, stream| {
            plan.run_on_device(src, dst, stream)
        })
    }
}
