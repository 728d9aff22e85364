//! Images of more than 2^31 elements and 4 GiB: rows at the start, where an index leaves 32 bits, and at the end are held to
//! the references; all the rest is the same kernel's work. The longest row there may be. Only where there is memory for it.

#[cfg(feature = "gpu")]
use apron::Variant;
use apron::{Border, Device, Family, Image, Plan, Shape};
#[cfg(feature = "gpu")]
use conformance::bounds::bound;
use conformance::problem::Window;
use conformance::product::Gpu;
use conformance::select::Selection;
use conformance::suite::gpu_trial;
#[cfg(not(feature = "gpu"))]
use conformance::suite::{no_gpu as on_gpu, no_gpu as signal_on_gpu};
use libtest_mimic::{Failed, Trial};
use oracle::scalar;
use rayon::prelude::*;

/// 2^31 elements are passed at row 42943, 2^30 at row 21471: 4 GiB of f32.
const SHAPE: Shape = Shape { width: 50_007, height: 43_003, channels: 1 };

/// Host memory for the image, what is computed from it, and the copy on its way to the device.
const HOST: u64 = 40 << 30;

/// Device memory for source, result and an intermediate image.
const DEVICE: u64 = 32 << 30;

pub(crate) fn trials(selection: Selection, gpu: &Gpu) -> Vec<Trial> {
    let short = short_of(selection, None);
    let on_cpu = Trial::test(named("huge::cpu", short.as_deref()), on_cpu).with_ignored_flag(short.is_some());
    let short = short_of(selection, Some(gpu));
    let trial = |name: &str, test: fn() -> Result<(), Failed>| match &short {
        Some(reason) => Trial::test(named(name, Some(reason)), || Ok(())).with_ignored_flag(true),
        None => gpu_trial(name, gpu, test),
    };
    vec![on_cpu, trial("huge::gpu", on_gpu), trial("huge::signal::gpu", signal_on_gpu)]
}

/// A test that is skipped says why in its name.
fn named(name: &str, reason: Option<&str>) -> String {
    reason.map_or_else(|| name.to_owned(), |reason| format!("{name} ({reason})"))
}

/// What is lacking, if something is.
fn short_of(selection: Selection, gpu: Option<&Gpu>) -> Option<String> {
    if selection != Selection::Full {
        return Some("not in a selection".to_owned());
    }
    if let Some(gpu) = gpu {
        match (gpu, device_memory()) {
            (Gpu::Ready, Some(free)) if free < DEVICE => {
                return Some(format!("{} GiB of device memory free, {} needed", free >> 30, DEVICE >> 30));
            }
            (Gpu::Ready, Some(_)) => {}
            _ => return Some("no GPU".to_owned()),
        }
    }
    match host_memory() {
        Some(free) if free >= HOST => None,
        Some(free) => Some(format!("{} GiB of host memory free, {} needed", free >> 30, HOST >> 30)),
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

/// Linux says it.
fn host_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse().ok().map(|kib: u64| kib << 10)
}

/// A value that differs from those around it and from those 2^30, 2^31 and 2^32 elements away.
fn pixel(x: usize, y: usize) -> u8 {
    (((x as u64 * 0x9E37_79B9) ^ (y as u64 + 1).wrapping_mul(0xC2B2_AE3D_27D4_EB4F)) >> 17) as u8
}

fn picture() -> Result<Image<u8>, Failed> {
    let mut data = Vec::new();
    data.try_reserve_exact(SHAPE.width * SHAPE.height)?;
    data.resize(SHAPE.width * SHAPE.height, 0u8);
    data.par_chunks_mut(SHAPE.width).enumerate().for_each(|(y, row)| {
        row.iter_mut().enumerate().for_each(|(x, value)| *value = pixel(x, y));
    });
    Ok(Image::from_vec(data, SHAPE.width, SHAPE.height, 1)?)
}

/// Rows to look at: the first, those around 2^30, 2^31 and 2^31 elements with the device's stride, the last.
fn places() -> Vec<std::ops::Range<usize>> {
    let around = |element: usize, stride: usize| element / stride - 1..element / stride + 2;
    let padded = SHAPE.width.next_multiple_of(32);
    vec![
        0..2,
        around(1 << 30, SHAPE.width),
        around(1 << 30, padded),
        around(1 << 31, SHAPE.width),
        around(1 << 31, padded),
        SHAPE.height - 2..SHAPE.height,
    ]
}

/// What must be in some rows: the family's bits and the oracle's values. The strip that they are computed from has the
/// image's own edges, or ends further away than the window and its reflection reach.
fn expected(window: &Window, border: Border, family: Family, rows: &std::ops::Range<usize>) -> (Vec<f32>, Vec<f64>) {
    let (top, bottom) = (rows.start.saturating_sub(window.rows), (rows.end + window.rows).min(SHAPE.height));
    let size = (SHAPE.width, bottom - top);
    let plane: Vec<f32> = (top..bottom).flat_map(|y| (0..SHAPE.width).map(move |x| f32::from(pixel(x, y)))).collect();
    let wide: Vec<f64> = plane.iter().map(|&value| f64::from(value)).collect();
    let part = (rows.start - top) * SHAPE.width..(rows.end - top) * SHAPE.width;
    let taps = window.as_taps();
    let bits = match (family, window.filter.separated()) {
        (Family::Separable, Some(pair)) => scalar::separable(&plane, size, taps, pair, border),
        _ => scalar::direct(&plane, size, taps, border),
    };
    (bits[part.clone()].to_vec(), oracle::correlate(&wide, size, taps, border)[part].to_vec())
}

fn on_cpu() -> Result<(), Failed> {
    let src = picture()?;
    let mut dst = Image::<u8>::zeroed(SHAPE.width, SHAPE.height, 1)?;
    for (window, border) in
        [(Window::random(3, 3, 1), Border::Reflect101), (Window::preset("gaussian:sigma=2"), Border::Reflect)]
    {
        let plan = Plan::builder(&window.filter).border(border).device(Device::Cpu).build()?;
        plan.run(&src.view(), &mut dst.view_mut())?;
        for rows in places() {
            let (_, exact) = expected(&window, border, Family::Direct, &rows);
            for (i, exact) in exact.iter().enumerate() {
                let (x, y) = (i % SHAPE.width, rows.start + i / SHAPE.width);
                let (found, right) = (dst.view().row(y)[x], exact.round_ties_even().clamp(0.0, 255.0) as u8);
                if found != right {
                    return Err(format!("{window}: pixel ({x}, {y}): {right} expected, {found} found").into());
                }
            }
        }
    }
    Ok(())
}

/// Every variant, with a window that it takes.
#[cfg(feature = "gpu")]
fn jobs() -> [(Variant, Window); 8] {
    let (pair, odd) = (|| Window::preset("gaussian:sigma=2"), || Window::random(4, 3, 2).anchored(0, 2));
    let square = || Window::random(5, 5, 3);
    [
        (Variant::DirectNaive, odd()),
        (Variant::DirectConstant, odd()),
        (Variant::DirectShared, odd()),
        (Variant::DirectUnrolled, square()),
        (Variant::DirectSliding, square()),
        (Variant::Separable, pair()),
        (Variant::SeparableFused, pair()),
        (Variant::Fourier, odd()),
    ]
}

#[cfg(feature = "gpu")]
fn on_gpu() -> Result<(), Failed> {
    let gpu = apron::gpu::Gpu::open(0)?;
    let src = gpu.upload(&picture()?.view())?;
    let mut dst = gpu.image(SHAPE)?;
    let mut stream = gpu.stream()?;
    for &(variant, ref window) in &jobs() {
        for border in [Border::Reflect101, Border::Keep] {
            let plan = Plan::builder(&window.filter).border(border).device(Gpu::DEVICE).variant(variant).build()?;
            dst.fill(f32::NAN, &stream)?;
            plan.run_on_device(&src, &mut dst, &mut stream)?;
            stream.synchronize()?;
            for rows in places() {
                let found = gpu.download_rows(&dst, rows.clone())?;
                let (bits, exact) = expected(window, border, variant.family(), &rows);
                let allowed = if variant == Variant::Fourier { bound(None, window, 255.0) } else { 0.0 };
                for (i, &found) in found.as_slice().iter().enumerate() {
                    let right = found.to_bits() == bits[i].to_bits() || (f64::from(found) - exact[i]).abs() <= allowed;
                    if !right {
                        let (x, y) = (i % SHAPE.width, rows.start + i / SHAPE.width);
                        let told = format!("{variant}, {window}, border {border}: pixel ({x}, {y})");
                        return Err(format!("{told}: {} expected, {found} found", bits[i]).into());
                    }
                }
            }
        }
    }
    Ok(())
}

/// One row of 2^29 floats: 2 GiB, a byte more than CUDA promises to copy by rows (`CU_DEVICE_ATTRIBUTE_MAX_PITCH`), though
/// driver 580 does it. The whole result is held to the CPU's.
#[cfg(feature = "gpu")]
fn signal_on_gpu() -> Result<(), Failed> {
    const LENGTH: usize = Shape::MAX_EXTENT;
    let src: Vec<f32> = (0..LENGTH).into_par_iter().map(|x| f32::from(pixel(x, 0))).collect();
    let src = Image::from_vec(src, LENGTH, 1, 1)?;
    let (mut found, mut right) = (Image::<f32>::zeroed(LENGTH, 1, 1)?, Image::<f32>::zeroed(LENGTH, 1, 1)?);
    for &(variant, ref window) in &jobs() {
        let run = |variant: Variant, device: Device, dst: &mut Image<f32>| {
            Plan::builder(&window.filter).device(device).variant(variant).build()?.run(&src.view(), &mut dst.view_mut())
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
            (!is_right).then(|| format!("{variant}, {window}: pixel {x}: {right} expected, {found} found"))
        });
        if let Some(wrong) = wrong {
            return Err(wrong.into());
        }
    }
    Ok(())
}
