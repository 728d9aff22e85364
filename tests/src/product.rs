//! The product as an implementation: a variant, or the one the plan chooses, on a device.

use apron::{
    Border, Device, Error, Family, Filter, Image, ImageView, ImageViewMut, Plan, Result, Shape,
    Variant,
};
use oracle::Order;

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

    fn must_take(&self, window: &Window, _: Border) -> bool {
        self.variant.is_none_or(|variant| promised(variant, window))
    }

    fn prepare(&self, window: &Window, border: Border) -> Result<Plan> {
        let plan = Plan::builder(&window.filter)
            .border(border)
            .device(self.device)
            .variant(self.variant)
            .build()?;
        // Else the CPU might be compared with itself.
        assert_eq!(plan.device(), self.device, "the plan went elsewhere");
        Ok(plan)
    }
}

/// The variants to test on a device, without those for bytes alone. On the CPU all variants of a
/// family run the same code, so one of each family is tested: the one that takes every window and
/// border.
pub fn variants(device: Device) -> Vec<Variant> {
    match device {
        Device::Cpu => {
            vec![Variant::DirectNaive, Variant::Separable, Variant::Fourier, Variant::SpectraPasses]
        }
        _ => Variant::all().filter(|variant| !variant.takes_only_bytes()).collect(),
    }
}

/// Whether a variant's summary promises a window. Every device has shared memory for a tile of
/// 31x31 taps.
fn promised(variant: Variant, window: &Window) -> bool {
    let Window { cols, rows, anchor, .. } = *window;
    let slides = |most: usize| {
        cols == rows && cols % 2 == 1 && (3..=most).contains(&cols) && anchor.0 == cols / 2
    };
    match variant {
        Variant::DirectNaive => true,
        Variant::DirectConstant | Variant::DirectShared | Variant::DirectUnrolled => {
            cols * rows <= 31 * 31
        }
        Variant::DirectSliding => slides(17),
        // Sums of several products are not promised.
        Variant::Separable => window.filter.is_separable(),
        // Bytes need a small error.
        Variant::SpectraPasses => {
            let weight = |taps: &[f64]| taps.iter().map(|tap| tap.abs()).sum::<f64>();
            let pair = window.filter.separated();
            let weights = pair.map(|(row, column)| (weight(row), weight(column)));
            let range = 1e-15..=1e15;
            weights.is_some_and(|(row, column)| {
                range.contains(&row) && range.contains(&column) && row * column <= 64.0
            })
        }
        Variant::SeparableTile => {
            window.filter.is_separable()
                && cols == rows
                && cols % 2 == 1
                && (5..=17).contains(&cols)
        }
        Variant::SeparableFused => window.filter.is_separable() && slides(33),
        // They take bytes alone, and only taps that whole numbers can represent, or means.
        Variant::Matrix | Variant::SeparableMatrix | Variant::RunningSums => false,
        Variant::Fourier => {
            (1e-20..=1e30).contains(&window.taps.iter().map(|tap| tap.abs()).sum::<f64>())
        }
        // A variant that is not listed here must take everything.
        _ => true,
    }
}

impl Ready for Plan {
    fn order(&self, shape: Shape) -> Result<Option<Order>> {
        Ok(Order::of(self.variant_for(shape)?.family()))
    }

    fn is_of_range(&self, shape: Shape) -> bool {
        self.variant_for(shape).is_ok_and(|variant| variant.family() == Family::SpectraPasses)
    }

    fn run<S: Sample, D: Sample>(
        &self,
        shape: Shape,
        src: Source<'_, S>,
        dst: Target<'_, D>,
    ) -> Result<()> {
        let Shape { width, height, channels } = shape;
        let rows = &mut dst.buffer[dst.start..][..dst.stride * height];
        let src = ImageView::with_stride(src.data, width, height, channels, src.stride)?;
        Plan::run(
            self,
            &src,
            &mut ImageViewMut::with_stride(rows, width, height, channels, dst.stride)?,
        )
    }
}

/// A variant on images in device memory. Gaps and output are poisoned before each run, because new
/// memory may still hold another run's right result.
///
/// The tests convert the pixels, so results are in f32.
#[cfg(feature = "cust")]
#[derive(Clone, Copy, Debug)]
pub struct OnDevice {
    /// The variant.
    pub variant: Variant,
    /// Whether channels are interleaved, rather than plane by plane.
    pub interleaved: bool,
}

#[cfg(feature = "cust")]
impl Implementation for OnDevice {
    type Ready = DevicePlan;

    fn name(&self) -> String {
        let layout = if self.interleaved { ", interleaved" } else { "" };
        format!("{} in device memory{layout}", self.variant)
    }

    fn must_take(&self, window: &Window, _: Border) -> bool {
        !self.interleaved && promised(self.variant, window)
    }

    fn prepare(&self, window: &Window, border: Border) -> Result<DevicePlan> {
        let product = Product { variant: Some(self.variant), device: Gpu::DEVICE };
        let plan = product.prepare(window, border)?;
        Ok(DevicePlan { plan, gpu: apron::gpu::Gpu::open(0)?, interleaved: self.interleaved })
    }
}

/// The prepared form of [`OnDevice`].
#[cfg(feature = "cust")]
#[derive(Debug)]
pub struct DevicePlan {
    plan: Plan,
    gpu: apron::gpu::Gpu,
    interleaved: bool,
}

#[cfg(feature = "cust")]
impl Ready for DevicePlan {
    fn order(&self, shape: Shape) -> Result<Option<Order>> {
        Ready::order(&self.plan, shape)
    }

    fn is_of_range(&self, shape: Shape) -> bool {
        self.plan.is_of_range(shape)
    }

    fn run<S: Sample, D: Sample>(
        &self,
        shape: Shape,
        src: Source<'_, S>,
        dst: Target<'_, D>,
    ) -> Result<()> {
        if self.interleaved {
            let (scalar, layout) = (apron::Scalar::F32, apron::Layout::Interleaved);
            let image = || self.gpu.image_of(shape, scalar, layout);
            return filter_on_device([image()?, image()?], src, dst, |src, dst, stream| {
                self.plan.run_on_device(src, dst, stream)
            });
        }
        // The layout differs from the source's, so that with several channels a wrong stride shows.
        // In every other problem, rows begin where vectors are not aligned.
        let odd = !(dst.stride - shape.row_len()).is_multiple_of(2);
        let layout = if odd { image_unaligned } else { studies::image_by_rows };
        let images = [self.gpu.image(shape)?, layout(&self.gpu, shape)?];
        filter_on_device(images, src, dst, |src, dst, stream| {
            self.plan.run_on_device(src, dst, stream)
        })
    }
}

/// An image with rows an odd number of floats apart: most of them begin where vectors of floats are
/// not aligned.
///
/// # Errors
/// Memory and driver errors.
#[cfg(feature = "cust")]
pub fn image_unaligned(gpu: &apron::gpu::Gpu, shape: Shape) -> Result<apron::gpu::DeviceImage> {
    let stride = shape.width.next_multiple_of(32) + 1;
    gpu.image_with(shape, stride, stride * shape.height)
}

/// Filters from one image on a device into the other, both poisoned before. A write outside the
/// pixels is an error.
///
/// # Errors
/// Whatever stops it.
#[cfg(feature = "cust")]
pub(crate) fn filter_on_device<S: Sample, D: Sample>(
    [mut poisoned, mut filtered]: [apron::gpu::DeviceImage; 2],
    src: Source<'_, S>,
    dst: Target<'_, D>,
    filter: impl FnOnce(
        &apron::gpu::DeviceImage,
        &mut apron::gpu::DeviceImage,
        &mut apron::gpu::Stream,
    ) -> Result<()>,
) -> Result<()> {
    let gpu = poisoned.gpu().clone();
    let Shape { width, height, channels } = poisoned.shape();
    let mut stream = gpu.stream()?;
    let view = ImageView::with_stride(src.data, width, height, channels, src.stride)?;
    let interleaved = poisoned.format().layout == apron::Layout::Interleaved;
    let planes = gpu.upload(&view)?;
    let uploaded =
        if interleaved { gpu.upload_stored(&gpu.download(&planes)?.view())? } else { planes };
    // Under `Border::Keep`, a window that leaves the image everywhere copies all pixels and leaves
    // the gaps as they are.
    let copier = Filter::from_taps(1, height + 1, &vec![0.0; height + 1])?;
    let copier = Plan::builder(&copier)
        .border(Border::Keep)
        .device(Gpu::DEVICE)
        .variant(Variant::DirectNaive);
    poisoned.fill(f32::POISON, &stream)?;
    copier.build()?.run_on_device(&uploaded, &mut poisoned, &mut stream)?;
    filtered.fill(f32::POISON, &stream)?;
    filter(&poisoned, &mut filtered, &mut stream)?;
    stream.synchronize()?;
    if let Some((channel, y, float)) = gpu.spoilt_padding(&filtered, f32::POISON)? {
        let place = format!("float {float} of row {y} of channel {channel}, rows have {width}");
        return Err(Error::Driver {
            call: "filtering",
            message: format!("it wrote outside the image: {place}"),
        });
    }
    let found =
        if interleaved { gpu.download_stored(&filtered)? } else { gpu.download(&filtered)? };
    put(&found, dst);
    Ok(())
}

/// Stores an image in a target's type.
pub(crate) fn put<D: Sample>(image: &Image<f32>, dst: Target<'_, D>) {
    for (y, row) in image.as_slice().chunks(image.shape().row_len()).enumerate() {
        let out = &mut dst.buffer[dst.start + y * dst.stride..][..row.len()];
        for (out, &value) in out.iter_mut().zip(row) {
            // Poison must stay poison, which a conversion by value would not promise.
            *out = if Sample::is_poison(value) { D::POISON } else { D::nearest(value.into()) };
        }
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
        let plan = Filter::from_taps(1, 1, &[1.0])
            .and_then(|filter| Plan::builder(&filter).device(Self::DEVICE).build());
        match plan {
            Ok(_) => Self::Ready,
            Err(error @ (Error::NoGpu { .. } | Error::NoSuchGpu { .. })) if !required => {
                Self::Missing(error.to_string())
            }
            Err(error) => Self::Broken(error.to_string()),
        }
    }
}

/// Takes the GPU's kernels from the PTX file that `APRON_PTX` names, if it is set: this tests
/// another compiler's kernels.
#[cfg(feature = "gpu")]
fn take_kernels() -> Result<()> {
    if let Some(path) = std::env::var_os("APRON_PTX") {
        apron::gpu::use_kernels(Some(apron::gpu::Kernels::read(path.as_ref())?));
    }
    Ok(())
}
