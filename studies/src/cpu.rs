//! The studies' results on the CPU. apron computes the orders of summation that it has; the
//! oracle's plain loop computes the other one.

use apron::{Border, Device, Error, Filter, Image, Plan, Result, Shape, Variant};
use oracle::Order;

use crate::{Problem, Study};

/// A study, ready to filter images on the CPU.
#[derive(Debug)]
pub struct CpuPlan {
    study: Study,
    filter: Filter,
    border: Border,
    /// `None` if apron does not have the order of summation.
    plan: Option<Plan>,
}

impl Study {
    /// Prepares the study for the CPU.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the study never supports this filter with this border.
    pub fn plan_on_cpu(self, filter: &Filter, border: Border) -> Result<CpuPlan> {
        let variant = match self.order() {
            Order::Direct => Some(Variant::DirectNaive),
            Order::Separable => Some(Variant::Separable),
            Order::Product => None,
        };
        let build = |variant| {
            Plan::builder(filter).border(border).device(Device::Cpu).variant(Some(variant)).build()
        };
        let smallest = Shape { width: 1, height: 1, channels: 1 };
        self.check(&Problem { filter, border, shape: smallest, shared_memory: usize::MAX })?;
        Ok(CpuPlan {
            study: self,
            filter: filter.clone(),
            border,
            plan: variant.map(build).transpose()?,
        })
    }
}

impl CpuPlan {
    /// Whether the study takes images of this shape.
    ///
    /// # Errors
    /// [`Error::Unsupported`], which names the limit, if it does not.
    pub fn takes(&self, shape: Shape) -> Result<()> {
        let Self { study, filter, border, .. } = self;
        study.check(&Problem { filter, border: *border, shape, shared_memory: usize::MAX })
    }

    /// Filters one image into another.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if sizes differ; otherwise as [`CpuPlan::takes`]; memory errors.
    pub fn run(&self, src: &Image<f32>, dst: &mut Image<f32>) -> Result<()> {
        let shape = src.shape();
        if shape != dst.shape() {
            return Err(Error::Mismatch { src: shape.to_string(), dst: dst.shape().to_string() });
        }
        self.takes(shape)?;
        if let Some(plan) = &self.plan {
            return plan.run(&src.view(), &mut dst.view_mut());
        }
        let filtered =
            self.study.order().filter_image(src.as_slice(), shape, &self.filter, self.border);
        *dst = Image::from_vec(filtered, shape.width, shape.height, shape.channels)?;
        Ok(())
    }
}
