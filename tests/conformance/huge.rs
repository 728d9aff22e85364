//! Images of more than 2^31 elements on the CPU and 2^32 on the GPU. Compares the first and the
//! last rows, and the rows where an index exceeds 32 bits, with the references; the same kernels
//! compute all other rows. Also tests rows further apart than 32 bits can count, and the longest
//! possible row. Runs only where there is enough memory.

#[cfg(feature = "gpu")]
use apron::Variant;
#[cfg(feature = "gpu")]
use apron::gpu::{DeviceImage, DeviceView, DeviceViewMut, Stream, Strides};
use apron::{Border, Device, Image, Plan, Shape};
#[cfg(feature = "gpu")]
use apron::{Error, Family, Filter};
#[cfg(feature = "gpu")]
use conformance::bounds::bound;
use conformance::problem::Window;
use conformance::product::Gpu;
use conformance::select::Selection;
use conformance::suite::gpu_trial;
#[cfg(not(feature = "gpu"))]
use conformance::suite::{no_gpu as on_gpu, no_gpu as signal_on_gpu, no_gpu as strides_on_gpu};
use libtest_mimic::{Failed, Trial};
#[cfg(feature = "gpu")]
use oracle::scalar;
use rayon::prelude::*;

/// A picture whose rows repeat.
struct Picture {
    shape: Shape,
    /// The number of rows after which they repeat. A prime, so that rows differ if an index that
    /// wraps at 32 bits confuses them.
    period: usize,
}

/// For the CPU: 2^31 elements are passed at row 42943, 2^30 at row 21471: 4 GiB of f32.
const ON_CPU: Picture =
    Picture { shape: Shape { width: 50_007, height: 43_003, channels: 1 }, period: usize::MAX };

/// For the GPU: 2^32 elements are passed at row 65060 with rows of 66016 floats: 17.4 GB.
#[cfg(feature = "gpu")]
const ON_GPU: Picture =
    Picture { shape: Shape { width: 66_000, height: 66_000, channels: 1 }, period: 509 };

/// GiB of memory that a test needs on the host and on the device.
type Need = (u64, u64);

/// The picture, its results, and the plan's copies of both.
const CPU: Need = (40, 0);
/// On the host a few rows; on the device the source, the result and an intermediate image.
const LARGE: Need = (4, 52);
/// On the host a few rows; on the device nine rows 2 GiB apart, and the intermediate image.
const STRIDES: Need = (1, 22);
/// The source, two results, and copies on their way to the device.
const SIGNAL: Need = (40, 32);

pub(crate) fn trials(selection: Selection, gpu: &Gpu) -> Vec<Trial> {
    let short = short_of(selection, None, CPU);
    let on_cpu = Trial::test(named("huge::cpu", short.as_deref()), on_cpu)
        .with_ignored_flag(short.is_some());
    let trial = |name: &str, need, test: fn() -> Result<(), Failed>| match short_of(
        selection,
        Some(gpu),
        need,
    ) {
        Some(reason) => Trial::test(named(name, Some(&reason)), || Ok(())).with_ignored_flag(true),
        None => gpu_trial(name, gpu, test),
    };
    vec![
        on_cpu,
        trial("huge::gpu", LARGE, on_gpu),
        trial("huge::strides::gpu", STRIDES, strides_on_gpu),
        trial("huge::signal::gpu", SIGNAL, signal_on_gpu),
    ]
}

/// The name of a test; a skipped test names the reason.
fn named(name: &str, reason: Option<&str>) -> String {
    reason.map_or_else(|| name.to_owned(), |reason| format!("{name} ({reason})"))
}

/// The reason to skip the test, if any.
fn short_of(selection: Selection, gpu: Option<&Gpu>, (host, device): Need) -> Option<String> {
    if selection != Selection::Full {
        return Some("not in a selection".to_owned());
    }
    if let Some(gpu) = gpu {
        match (gpu, device_memory()) {
            (Gpu::Ready, Some(free)) if free < device << 30 => {
                return Some(format!("{} GiB of device memory free, {device} needed", free >> 30));
            }
            (Gpu::Ready, Some(_)) => {}
            _ => return Some("no GPU".to_owned()),
        }
    }
    match host_memory() {
        Some(free) if free >= host << 30 => None,
        Some(free) => Some(format!("{} GiB of host memory free, {host} needed", free >> 30)),
        None => Some("how much memory is free is not known".to_owned()),
    }
}

#[cfg(feature = "gpu")]
fn device_memory() -> Option<u64> {
    Some(apron::gpu::Gpu::open(0).ok()?.memory().ok()?.0)
}

#[cfg(not(feature = "gpu"))]
fn device_memory() -> Option<u64> {
    None
}

/// Available memory of the host, from Linux.
fn host_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse().ok().map(|kib: u64| kib << 10)
}

/// A value that differs from its neighbours and from those 2^30, 2^31 and 2^32 elements away.
fn pixel(x: usize, y: usize) -> u8 {
    (((x as u64 * 0x9E37_79B9) ^ (y as u64 + 1).wrapping_mul(0xC2B2_AE3D_27D4_EB4F)) >> 17) as u8
}

impl Picture {
    fn pixel(&self, x: usize, y: usize) -> u8 {
        pixel(x, y % self.period)
    }

    /// The rows to check: the first, the last, and those around 2^29 to 2^32 elements for each
    /// stride.
    fn places(&self, strides: &[usize]) -> Vec<std::ops::Range<usize>> {
        let height = self.shape.height;
        let around = |element: usize| {
            strides.iter().map(move |stride| element / stride - 1..element / stride + 2)
        };
        let inside = (29..=32).flat_map(|bits| around(1 << bits)).filter(|rows| rows.end <= height);
        let ends = [0..2, height - 2..height];
        inside.chain(ends).collect()
    }

    /// The expected results of some rows: the family's bits and the oracle's values. The strip they
    /// come from ends at the image's edges, or beyond the reach of the window and its reflection.
    #[cfg(feature = "gpu")]
    fn expected(
        &self,
        window: &Window,
        border: Border,
        family: Family,
        rows: &std::ops::Range<usize>,
    ) -> (Vec<f32>, Vec<f64>) {
        let (plane, size, part) = self.strip(window, rows);
        let plane: Vec<f32> = plane.into_iter().map(f32::from).collect();
        let (bits, exact) = references(&plane, size, window, border, family);
        (bits[part.clone()].to_vec(), exact[part].to_vec())
    }

    /// The expected bytes of some rows.
    fn bytes(&self, window: &Window, border: Border, rows: &std::ops::Range<usize>) -> Vec<u8> {
        let (plane, size, part) = self.strip(window, rows);
        oracle::bytes(&plane, size, &window.whole(), border)[part].to_vec()
    }

    /// A strip, its size, and the range of the rows in it.
    fn strip(
        &self,
        window: &Window,
        rows: &std::ops::Range<usize>,
    ) -> (Vec<u8>, (usize, usize), std::ops::Range<usize>) {
        let Shape { width, height, .. } = self.shape;
        let (top, bottom) =
            (rows.start.saturating_sub(window.rows), (rows.end + window.rows).min(height));
        let plane = (top..bottom).flat_map(|y| (0..width).map(move |x| self.pixel(x, y))).collect();
        (plane, (width, bottom - top), (rows.start - top) * width..(rows.end - top) * width)
    }
}

/// The family's bits and the oracle's values.
#[cfg(feature = "gpu")]
fn references(
    plane: &[f32],
    size: (usize, usize),
    window: &Window,
    border: Border,
    family: Family,
) -> (Vec<f32>, Vec<f64>) {
    let wide: Vec<f64> = plane.iter().map(|&value| f64::from(value)).collect();
    let taps = window.as_taps();
    let bits = match (family, window.filter.separated()) {
        (Family::Separable, Some(pair)) => scalar::separable(plane, size, taps, pair, border),
        _ => scalar::direct(plane, size, taps, border),
    };
    (bits, oracle::correlate(&wide, size, taps, border))
}

fn picture() -> Result<Image<u8>, Failed> {
    let Shape { width, height, .. } = ON_CPU.shape;
    let mut data = Vec::new();
    data.try_reserve_exact(width * height)?;
    data.resize(width * height, 0u8);
    data.par_chunks_mut(width).enumerate().for_each(|(y, row)| {
        row.iter_mut().enumerate().for_each(|(x, value)| *value = ON_CPU.pixel(x, y));
    });
    Ok(Image::from_vec(data, width, height, 1)?)
}

fn on_cpu() -> Result<(), Failed> {
    let src = picture()?;
    let Shape { width, height, .. } = ON_CPU.shape;
    let mut dst = Image::<u8>::zeroed(width, height, 1)?;
    for (window, border) in [
        (Window::random(3, 3, 1), Border::Reflect101),
        (Window::preset("gaussian:sigma=2"), Border::Reflect),
    ] {
        let plan = Plan::builder(&window.filter).border(border).device(Device::Cpu).build()?;
        plan.run(&src.view(), &mut dst.view_mut())?;
        for rows in ON_CPU.places(&[width]) {
            for (i, right) in ON_CPU.bytes(&window, border, &rows).into_iter().enumerate() {
                let (x, y) = (i % width, rows.start + i / width);
                let found = dst.view().row(y)[x];
                if found != right {
                    return Err(format!(
                        "{window}: pixel ({x}, {y}): {right} expected, {found} found"
                    )
                    .into());
                }
            }
        }
    }
    Ok(())
}

/// Every variant, with a window that it takes.
#[cfg(feature = "gpu")]
fn jobs() -> [(Variant, Window); 9] {
    let (pair, odd) =
        (|| Window::preset("gaussian:sigma=2"), || Window::random(4, 3, 2).anchored(0, 2));
    let square = || Window::random(5, 5, 3);
    [
        (Variant::DirectNaive, odd()),
        (Variant::DirectConstant, odd()),
        (Variant::DirectShared, odd()),
        (Variant::DirectUnrolled, square()),
        (Variant::DirectSliding, square()),
        (Variant::Separable, pair()),
        (Variant::SeparableTile, pair()),
        (Variant::SeparableFused, pair()),
        (Variant::Fourier, odd()),
    ]
}

/// A block of floats in device memory, row by row, as an image of its own. The tests compute its
/// address in 64 bits, so a kernel that copies it has only small offsets.
#[cfg(feature = "gpu")]
#[derive(Clone, Copy)]
struct Block {
    address: u64,
    /// Floats from one row to the next.
    stride: i64,
    shape: Shape,
}

#[cfg(feature = "gpu")]
impl Block {
    fn strides(&self) -> Strides {
        Strides { row: 4 * self.stride, pixel: 4, channel: 0, image: 0 }
    }

    /// # Safety
    /// As for [`DeviceView::from_raw`].
    unsafe fn view<'a>(&self, gpu: &apron::gpu::Gpu) -> apron::Result<DeviceView<'a>> {
        // SAFETY: by the caller's promise.
        unsafe {
            DeviceView::from_raw(
                gpu,
                self.address,
                (apron::Scalar::F32, self.strides()),
                self.shape,
                1,
                0..self.shape.height,
            )
        }
    }

    /// # Safety
    /// As for [`DeviceViewMut::from_raw`].
    unsafe fn view_mut<'a>(&self, gpu: &apron::gpu::Gpu) -> apron::Result<DeviceViewMut<'a>> {
        // SAFETY: by the caller's promise.
        unsafe {
            DeviceViewMut::from_raw(
                gpu,
                self.address,
                (apron::Scalar::F32, self.strides()),
                self.shape,
                1,
                0..self.shape.height,
            )
        }
    }
}

/// Copies blocks within device memory.
#[cfg(feature = "gpu")]
struct Copier {
    gpu: apron::gpu::Gpu,
    plan: Plan,
}

#[cfg(feature = "gpu")]
impl Copier {
    fn new(gpu: &apron::gpu::Gpu) -> apron::Result<Self> {
        let one = Filter::from_taps(1, 1, &[1.0])?;
        let plan = Plan::builder(&one).device(Gpu::DEVICE).variant(Variant::DirectNaive).build()?;
        Ok(Self { gpu: gpu.clone(), plan })
    }

    /// # Safety
    /// Both blocks lie in memory of this GPU that is allocated until the stream has passed the
    /// copy. They do not overlap.
    unsafe fn copy(&self, from: Block, to: Block, stream: &mut Stream) -> apron::Result<()> {
        let Shape { width, height, .. } = to.shape;
        let from = Block { shape: to.shape, ..from };
        // SAFETY: by the caller's promise. `from` has at least the shape of `to`.
        let (from, mut to) = unsafe { (from.view(&self.gpu)?, to.view_mut(&self.gpu)?) };
        self.plan.run_region(&from, &mut to, 0..width, 0..height, stream)
    }
}

/// The picture on the device. One block of its rows is uploaded, then copied down the image.
#[cfg(feature = "gpu")]
fn uploaded(gpu: &apron::gpu::Gpu, picture: &Picture) -> Result<DeviceImage, Failed> {
    let Picture { shape, period } = *picture;
    let mut rows = vec![0.0f32; shape.width * period];
    rows.par_chunks_mut(shape.width).enumerate().for_each(|(y, row)| {
        row.iter_mut().enumerate().for_each(|(x, value)| *value = f32::from(pixel(x, y)));
    });
    let rows = gpu.upload(&Image::from_vec(rows, shape.width, period, 1)?.view())?;
    let from = Block { address: rows.address(), stride: rows.stride() as i64, shape: rows.shape() };
    let whole = gpu.image(shape)?;
    let (copier, mut stream) = (Copier::new(gpu)?, gpu.stream()?);
    for top in (0..shape.height).step_by(period) {
        let address = whole.address() + 4 * (whole.stride() * top) as u64;
        let shape = Shape { height: period.min(shape.height - top), ..shape };
        let to = Block { address, stride: whole.stride() as i64, shape };
        // SAFETY: both are rows of images that live until the stream is synchronized.
        unsafe { copier.copy(from, to, &mut stream)? };
    }
    stream.synchronize()?;
    Ok(whole)
}

/// The first value that is wrong: other bits, or for spectra beyond the tolerance.
#[cfg(feature = "gpu")]
fn wrong(
    variant: Variant,
    window: &Window,
    found: &[f32],
    (bits, exact): &(Vec<f32>, Vec<f64>),
) -> Option<(usize, String)> {
    let allowed = if variant == Variant::Fourier { bound(None, window, 255.0) } else { 0.0 };
    let right = |i: usize| {
        found[i].to_bits() == bits[i].to_bits() || (f64::from(found[i]) - exact[i]).abs() <= allowed
    };
    let i = (0..bits.len()).find(|&i| !right(i))?;
    Some((i, format!("{} expected, {} found", bits[i], found[i])))
}

#[cfg(feature = "gpu")]
fn on_gpu() -> Result<(), Failed> {
    let gpu = apron::gpu::Gpu::open(0)?;
    let (picture, width) = (&ON_GPU, ON_GPU.shape.width);
    let src = uploaded(&gpu, picture)?;
    let mut dst = gpu.image(picture.shape)?;
    let mut stream = gpu.stream()?;
    let places = picture.places(&[src.stride()]);
    for &(variant, ref window) in &jobs() {
        for border in [Border::Reflect101, Border::Keep] {
            let plan = Plan::builder(&window.filter)
                .border(border)
                .device(Gpu::DEVICE)
                .variant(variant)
                .build()?;
            dst.fill(f32::NAN, &stream)?;
            plan.run_on_device(&src, &mut dst, &mut stream)?;
            stream.synchronize()?;
            places.par_iter().try_for_each(|rows| {
                let found = gpu.download_rows(&dst, rows.clone())?;
                let expected = picture.expected(window, border, variant.family(), rows);
                let Some((i, what)) = wrong(variant, window, found.as_slice(), &expected) else {
                    return Ok(());
                };
                let (x, y) = (i % width, rows.start + i / width);
                Err(Failed::from(format!(
                    "{variant}, {window}, border {border}: pixel ({x}, {y}): {what}"
                )))
            })?;
        }
    }
    Ok(())
}

/// Rows just as far apart as 32 bits can count, and further, in both directions.
#[cfg(feature = "gpu")]
fn strides_on_gpu() -> Result<(), Failed> {
    const GIB_2: i64 = 1 << 29;
    const WIDTH: usize = 301;
    /// Floats from the start of a row to its results, and the floats of poison checked on either
    /// side.
    const ASIDE: u64 = 4096;
    const AROUND: usize = 32;
    let gpu = apron::gpu::Gpu::open(0)?;
    // Each row holds pixels of the source, then results.
    let (stride, height) = (GIB_2 as usize + 32, 9);
    let mut memory =
        gpu.image_with(Shape { width: 8192, height, channels: 1 }, stride, stride * height)?;
    let (copier, mut stream) = (Copier::new(&gpu)?, gpu.stream()?);
    // Floats from one row to the next, and the number of rows.
    for (stride, height) in
        [(GIB_2 - 32, 9), (GIB_2 + 32, 9), (2 * GIB_2 + 32, 4), (-GIB_2, 9), (-GIB_2 - 32, 9)]
    {
        let shape = Shape { width: WIDTH, height, channels: 1 };
        let top = if stride < 0 { (height as i64 - 1) * -stride } else { 0 };
        let row = |y: usize| (top + y as i64 * stride) as u64;
        let plane: Vec<f32> =
            (0..height).flat_map(|y| (0..WIDTH).map(move |x| f32::from(pixel(x, y)))).collect();
        let packed = gpu.upload(&Image::from_vec(plane.clone(), WIDTH, height, 1)?.view())?;
        for &(variant, ref window) in &jobs() {
            for border in [Border::Reflect101, Border::Keep] {
                let told = format!(
                    "{variant}, {window}, border {border}, rows {} bytes apart",
                    4 * stride
                );
                memory.fill(f32::NAN, &stream)?;
                let place = |address: u64, width: usize| {
                    let shape = Shape { width, height: 1, channels: 1 };
                    Block { address, stride: width as i64, shape }
                };
                for y in 0..height {
                    let from = place(packed.address() + 4 * (packed.stride() * y) as u64, WIDTH);
                    // SAFETY: both are rows of images that live until the stream is synchronized.
                    unsafe {
                        copier.copy(
                            from,
                            place(memory.address() + 4 * row(y), WIDTH),
                            &mut stream,
                        )?
                    };
                }
                let src = Block { address: memory.address() + 4 * row(0), stride, shape };
                let dst = Block { address: src.address + 4 * ASIDE, ..src };
                let plan = Plan::builder(&window.filter)
                    .border(border)
                    .device(Gpu::DEVICE)
                    .variant(variant)
                    .build()?;
                // SAFETY: all rows lie in `memory`, which lives until the stream is synchronized.
                // Source and results do not overlap.
                let (src, mut dst) = unsafe { (src.view(&gpu)?, dst.view_mut(&gpu)?) };
                match plan.run_region(&src, &mut dst, 0..WIDTH, 0..height, &mut stream) {
                    Ok(()) => {}
                    // These variants take only rows less than 2 GiB apart.
                    Err(Error::Unsupported { .. })
                        if matches!(variant, Variant::DirectSliding | Variant::SeparableFused)
                            && !(-GIB_2..GIB_2).contains(&stride) =>
                    {
                        continue;
                    }
                    Err(error) => return Err(format!("{told}: {error}").into()),
                }
                let expected =
                    references(&plane, (WIDTH, height), window, border, variant.family());
                let results =
                    gpu.image(Shape { width: WIDTH + 2 * AROUND, height, channels: 1 })?;
                for y in 0..height {
                    let from = memory.address() + 4 * (row(y) + ASIDE - AROUND as u64);
                    let to = results.address() + 4 * (results.stride() * y) as u64;
                    let width = WIDTH + 2 * AROUND;
                    // SAFETY: as above.
                    unsafe { copier.copy(place(from, width), place(to, width), &mut stream)? };
                }
                stream.synchronize()?;
                let results = gpu.download(&results)?;
                let rows = results.as_slice().chunks(WIDTH + 2 * AROUND);
                let beside = |row: &[f32]| {
                    let mut beside = row[..AROUND].iter().chain(&row[AROUND + WIDTH..]);
                    beside.any(|value| !value.is_nan())
                };
                if let Some(y) = rows.clone().position(beside) {
                    return Err(format!("{told}: row {y}: written beside the results").into());
                }
                let found: Vec<f32> =
                    rows.flat_map(|row| row[AROUND..][..WIDTH].to_vec()).collect();
                if let Some((i, what)) = wrong(variant, window, &found, &expected) {
                    return Err(
                        format!("{told}: pixel ({}, {}): {what}", i % WIDTH, i / WIDTH).into()
                    );
                }
            }
        }
    }
    Ok(())
}

/// One row of 2^29 floats: 2 GiB. CUDA promises copies by rows only up to one byte less
/// (`CU_DEVICE_ATTRIBUTE_MAX_PITCH`), though driver 580 does this one. The whole result must equal
/// the CPU's.
#[cfg(feature = "gpu")]
fn signal_on_gpu() -> Result<(), Failed> {
    const LENGTH: usize = Shape::MAX_EXTENT;
    let src: Vec<f32> = (0..LENGTH).into_par_iter().map(|x| f32::from(pixel(x, 0))).collect();
    let src = Image::from_vec(src, LENGTH, 1, 1)?;
    let (mut found, mut right) =
        (Image::<f32>::zeroed(LENGTH, 1, 1)?, Image::<f32>::zeroed(LENGTH, 1, 1)?);
    for &(variant, ref window) in &jobs() {
        let run = |variant: Variant, device: Device, dst: &mut Image<f32>| {
            Plan::builder(&window.filter)
                .device(device)
                .variant(variant)
                .build()?
                .run(&src.view(), &mut dst.view_mut())
        };
        let (plain, allowed) = match variant.family() {
            Family::Fourier => (Variant::DirectNaive, bound(None, window, 255.0) as f32),
            _ => (variant, 0.0),
        };
        run(variant, Gpu::DEVICE, &mut found)?;
        run(plain, Device::Cpu, &mut right)?;
        let wrong = (0..LENGTH).into_par_iter().find_map_first(|x| {
            let (found, right) = (found.as_slice()[x], right.as_slice()[x]);
            let is_right = found.to_bits() == right.to_bits() || (found - right).abs() <= allowed;
            (!is_right)
                .then(|| format!("{variant}, {window}: pixel {x}: {right} expected, {found} found"))
        });
        if let Some(wrong) = wrong {
            return Err(wrong.into());
        }
    }
    Ok(())
}
