//! The product as an implementation: a variant, or the one the plan chooses, on a device.

use apron::{Border, Device, Error, Family, Filter, ImageView, ImageViewMut, Plan, Result, Shape, Variant};

use crate::problem::Window;
use crate::runner::{Implementation, Ready, Source, Target};
use crate::sample::Sample;

/// A variant on a device.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// `None` leaves the choice to the plan.
    pub variant: Option<Variant>,
    /// Never [`Device::Auto`].
    pub device: Device,
}

impl Product {
    /// Every variant of a family on a device.
    pub fn family(family: Family, device: Device) -> Vec<Self> {
        let variants = Variant::all().filter(|variant| variant.family() == family);
        variants.map(|variant| Self { variant: Some(variant), device }).collect()
    }
}

impl Implementation for Product {
    type Ready = Plan;

    fn name(&self) -> String {
        format!("{} on {}", self.variant.map_or("the chosen variant", Variant::name), self.device)
    }

    fn prepare(&self, window: &Window, border: Border) -> Result<Plan> {
        Plan::builder(&window.filter).border(border).device(self.device).variant(self.variant).build()
    }
}

impl Ready for Plan {
    fn family(&self, shape: Shape) -> Result<Family> {
        Ok(self.variant_for(shape)?.family())
    }

    fn run<S: Sample, D: Sample>(&self, shape: Shape, src: Source<'_, S>, dst: Target<'_, D>) -> Result<()> {
        let Shape { width, height, channels } = shape;
        let rows = &mut dst.buffer[dst.start..][..dst.stride * height];
        let src = ImageView::with_stride(src.data, width, height, channels, src.stride)?;
        Plan::run(self, &src, &mut ImageViewMut::with_stride(rows, width, height, channels, dst.stride)?)
    }
}

/// Whether there is a GPU to test on.
#[derive(Clone, Debug)]
pub enum Gpu {
    /// The first one works.
    Ready,
    /// There is none, for this reason: its tests are skipped, unless `APRON_REQUIRE_GPU=1`.
    Missing(String),
    /// There is one, and it failed: its tests fail.
    Broken(String),
}

impl Gpu {
    /// The device that tests run on.
    pub const DEVICE: Device = Device::Gpu(0);

    /// Tries the first GPU.
    pub fn probe() -> Self {
        let required = std::env::var_os("APRON_REQUIRE_GPU").is_some_and(|value| value == "1");
        let plan =
            Filter::from_taps(1, 1, &[1.0]).and_then(|filter| Plan::builder(&filter).device(Self::DEVICE).build());
        match plan {
            Ok(_) => Self::Ready,
            Err(error @ (Error::NoGpu { .. } | Error::NoSuchGpu { .. })) if !required => {
                Self::Missing(error.to_string())
            }
            Err(error) => Self::Broken(error.to_string()),
        }
    }
}
