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

impl Implementation for Product {
    type Ready = Plan;

    fn name(&self) -> String {
        format!("{} on {}", self.variant.map_or("the chosen variant", Variant::name), self.device)
    }

    fn must_take(&self, window: &Window, border: Border) -> bool {
        self.variant.is_none_or(|variant| promised(variant, window, border))
    }

    fn prepare(&self, window: &Window, border: Border) -> Result<Plan> {
        let plan = Plan::builder(&window.filter).border(border).device(self.device).variant(self.variant).build()?;
        // Else the CPU might be compared with itself.
        assert_eq!(plan.device(), self.device, "the plan went elsewhere");
        Ok(plan)
    }
}

/// The variants to test on a device, but for studies: on the CPU, where all variants of a family run the same code, the
/// one of each family that takes every window and border.
pub fn variants(device: Device) -> Vec<Variant> {
    match device {
        Device::Cpu => vec![Variant::DirectNaive, Variant::Separable, Variant::Fourier],
        _ => Variant::all().filter(|variant| variant.study().is_none()).collect(),
    }
}

/// What a variant's summary says it takes. Every device has shared memory for a tile of 31x31 taps.
fn promised(variant: Variant, window: &Window, border: Border) -> bool {
    let Window { cols, rows, anchor, .. } = *window;
    let slides = |most: usize| cols == rows && cols % 2 == 1 && (3..=most).contains(&cols) && anchor.0 == cols / 2;
    // Square, odd, with the anchor in the middle.
    let central = |least: usize, most: usize| {
        cols == rows && cols % 2 == 1 && (least..=most).contains(&cols) && anchor == (cols / 2, rows / 2)
    };
    let constant = matches!(border, Border::Constant(_));
    let separates = window.filter.is_separable();
    let tile = |width: usize, height: usize| (width + cols - 1) * (height + rows - 1);
    match variant {
        Variant::BlogShared => cols * rows <= 31 * 31 && tile(32, 32) <= 48 << 8 && border != Border::Keep,
        Variant::BlogUnrolled => central(5, 5) && border != Border::Keep,
        Variant::ClassNaive
        | Variant::ClassShared
        | Variant::ClassMul24
        | Variant::ClassConflicts
        | Variant::ClassSeparable
        | Variant::ClassSteps => constant && separates && central(17, 17),
        Variant::PaperSeparable | Variant::PaperLooped => constant && separates && central(3, 33),
        // It has a limit of its own for the image.
        Variant::PaperTexture => false,
        Variant::PaperIdle => constant && tile(16, 16) <= 1024 && cols * rows <= 31 * 31,
        Variant::PaperHalfIdle => constant && rows <= 49 && cols * rows <= 31 * 31 && tile(16, 16) <= 48 << 8,
        Variant::PaperBusy => constant && cols * rows <= 31 * 31 && tile(16, 16) <= 48 << 8,
        Variant::StripUntiled | Variant::StripTiled => border == Border::Keep && central(3, 33),
        Variant::LineNaive | Variant::LineConstant | Variant::LineShared | Variant::LineGhost | Variant::LineVector => {
            constant && (cols, rows, anchor.0) == (5, 1, 2)
        }
        Variant::DirectNaive => true,
        Variant::DirectConstant | Variant::DirectShared | Variant::DirectUnrolled => cols * rows <= 31 * 31,
        Variant::DirectSliding => slides(17),
        Variant::Separable => window.filter.is_separable(),
        Variant::SeparableFused => window.filter.is_separable() && slides(65),
        Variant::Fourier => (1e-20..=1e30).contains(&window.taps.iter().map(|tap| tap.abs()).sum::<f64>()),
        // A variant that is not listed here must take everything.
        _ => true,
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

/// A variant on images in device memory, whose gaps and whose output are poisoned before each run: memory that the driver
/// hands out may still hold another run's right result.
///
/// Pixels are converted by the tests, so only results in f32 can be asked of it.
#[cfg(feature = "gpu")]
#[derive(Clone, Copy, Debug)]
pub struct OnDevice {
    /// The variant.
    pub variant: Variant,
    /// Whether the channels of images take turns row by row, rather than plane by plane.
    pub by_rows: bool,
}

#[cfg(feature = "gpu")]
impl Implementation for OnDevice {
    type Ready = DevicePlan;

    fn name(&self) -> String {
        format!("{} in device memory{}", self.variant, if self.by_rows { ", row by row" } else { "" })
    }

    fn must_take(&self, window: &Window, border: Border) -> bool {
        promised(self.variant, window, border)
    }

    fn prepare(&self, window: &Window, border: Border) -> Result<DevicePlan> {
        let product = Product { variant: Some(self.variant), device: Gpu::DEVICE };
        Ok(DevicePlan { plan: product.prepare(window, border)?, gpu: apron::gpu::Gpu::open(0)?, by_rows: self.by_rows })
    }
}

/// What [`OnDevice`] prepares.
#[cfg(feature = "gpu")]
#[derive(Debug)]
pub struct DevicePlan {
    plan: Plan,
    gpu: apron::gpu::Gpu,
    by_rows: bool,
}

#[cfg(feature = "gpu")]
impl Ready for DevicePlan {
    fn family(&self, shape: Shape) -> Result<Family> {
        Ready::family(&self.plan, shape)
    }

    fn run<S: Sample, D: Sample>(&self, shape: Shape, src: Source<'_, S>, dst: Target<'_, D>) -> Result<()> {
        let Shape { width, height, channels } = shape;
        let mut stream = self.gpu.stream()?;
        let uploaded = self.gpu.upload(&ImageView::with_stride(src.data, width, height, channels, src.stride)?)?;
        // A window that leaves the image everywhere, under `Border::Keep`, copies pixels and leaves the gaps as they are.
        let copier = Filter::from_taps(1, height + 1, &vec![0.0; height + 1])?;
        let copier = Plan::builder(&copier).border(Border::Keep).device(Gpu::DEVICE).variant(Variant::DirectNaive);
        let image = |by_rows| if by_rows { self.gpu.image_by_rows(shape) } else { self.gpu.image(shape) };
        let mut poisoned = image(self.by_rows)?;
        poisoned.fill(f32::POISON, &stream)?;
        copier.build()?.run_on_device(&uploaded, &mut poisoned, &mut stream)?;
        // Laid out in the other way, so that where there are several channels no stride can stand for another; and every other
        // problem's gaps make rows begin where no vector may, but for studies, some of which put textures there.
        let odd = !(dst.stride - shape.row_len()).is_multiple_of(2);
        let unaligned = odd && self.plan.variant_for(shape)?.study().is_none();
        let mut filtered = if unaligned { self.gpu.image_unaligned(shape)? } else { image(!self.by_rows)? };
        filtered.fill(f32::POISON, &stream)?;
        self.plan.run_on_device(&poisoned, &mut filtered, &mut stream)?;
        stream.synchronize()?;
        if let Some((channel, y, float)) = self.gpu.spoilt_padding(&filtered, f32::POISON)? {
            let place = format!("float {float} of row {y} of channel {channel}, rows have {width}");
            return Err(Error::Driver { call: "filtering", message: format!("it wrote outside the image: {place}") });
        }
        let filtered = self.gpu.download(&filtered)?;
        for (y, row) in filtered.as_slice().chunks(shape.row_len()).enumerate() {
            let out = &mut dst.buffer[dst.start + y * dst.stride..][..row.len()];
            for (out, &value) in out.iter_mut().zip(row) {
                // Poison must stay poison, which a conversion by value would not promise.
                *out = if Sample::is_poison(value) { D::POISON } else { D::nearest(value.into()) };
            }
        }
        Ok(())
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
        #[cfg(feature = "gpu")]
        if let Err(error) = take_kernels() {
            return Self::Broken(error.to_string());
        }
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

/// Takes the GPU's kernels from the PTX file that `APRON_PTX` names, if it does: so another compiler's are tested.
#[cfg(feature = "gpu")]
fn take_kernels() -> Result<()> {
    if let Some(path) = std::env::var_os("APRON_PTX") {
        apron::gpu::use_kernels(Some(apron::gpu::Kernels::read(path.as_ref())?));
    }
    Ok(())
}
