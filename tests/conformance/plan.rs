//! The choices of a plan, and the requests that it declines.

use apron::{Border, Device, Error, Filter, Image, ImageView, ImageViewMut, Plan, Shape, Variant};
use conformance::problem::Group;
#[cfg(feature = "gpu")]
use conformance::product::image_unaligned;
use conformance::product::{Gpu, Product};
use conformance::select::Selection;
use conformance::suite;
#[cfg(not(feature = "gpu"))]
use conformance::suite::{no_gpu as copied, no_gpu as replayed};
use libtest_mimic::{Failed, Trial};

use crate::{direct, separable};

pub(crate) fn trials(selection: Selection, gpu: &Gpu) -> Vec<Trial> {
    let choice = move |device: Device| {
        move || {
            let product = [Product { variant: None, device }];
            suite::check(&format!("plan::choice::{device}"), &product, &groups(selection))
        }
    };
    vec![
        Trial::test("plan::choice::cpu", choice(Device::Cpu)),
        suite::gpu_trial("plan::choice::gpu", gpu, choice(Gpu::DEVICE)),
        Trial::test("plan::geometry_is_checked", geometry),
        Trial::test("plan::declines::cpu", || declines(Device::Cpu)),
        suite::gpu_trial("plan::declines::gpu", gpu, || declines(Gpu::DEVICE)),
        suite::gpu_trial("plan::replayed::gpu", gpu, replayed),
        suite::gpu_trial("plan::copied::gpu", gpu, copied),
    ]
}

/// Thin lists of both families: every window must find a variant, in a plan that changes the
/// variant with the image.
fn groups(selection: Selection) -> Vec<Group> {
    let small = Selection::Small;
    let mut groups =
        [direct::exhaustive(small), direct::wild(small), separable::exhaustive(small)].concat();
    groups.extend(direct::stored(selection));
    groups.extend(separable::stored(selection));
    groups
}

/// Images that do not fit their slices, are empty, or exceed any memory; images of different
/// shapes; windows without taps.
fn geometry() -> Result<(), Failed> {
    let illegal = |what: &str, result: Result<(), Error>| -> Result<(), Failed> {
        match result {
            Err(
                Error::Geometry { .. }
                | Error::HostMemory { .. }
                | Error::Parameter { .. }
                | Error::TapCount { .. },
            ) => Ok(()),
            other => Err(format!("{what}: {other:?}").into()),
        }
    };
    let (some, max) = (vec![0u8; 100], usize::MAX);
    // Width, height, channels, stride.
    for (width, height, channels, stride) in [
        (0, 5, 1, 5),
        (5, 0, 1, 5),
        (0, 0, 1, 0),
        (5, 5, 0, 5),
        (5, 5, 5, 25),
        (10, 10, 1, 9),
        (5, 10, 2, 9),
        (10, 11, 1, 10),
        (10, 10, 1, 11),
        (50, 1, 3, 150),
        (max, 1, 1, max),
        (1, max, 1, 1),
        (max, max, 4, max),
        (1 << 32, 1 << 32, 1, 1 << 32),
        (5, 5, 1, max),
        ((1 << 29) + 1, 1, 1, (1 << 29) + 1),
    ] {
        let what = format!("{width}x{height}x{channels}, stride {stride}");
        illegal(&what, ImageView::with_stride(&some, width, height, channels, stride).map(drop))?;
        illegal(
            &what,
            ImageViewMut::with_stride(&mut some.clone(), width, height, channels, stride).map(drop),
        )?;
        if stride == width.wrapping_mul(channels) {
            illegal(&what, ImageView::new(&some, width, height, channels).map(drop))?;
            illegal(&what, Image::from_vec(some.clone(), width, height, channels).map(drop))?;
        }
    }
    for (width, height) in [(0, 1), (1, 0), (max, 1), (max, max), (1 << 29, 1 << 29)] {
        illegal(
            &format!("{width}x{height} zeros"),
            Image::<f32>::zeroed(width, height, 4).map(drop),
        )?;
    }
    // The last row needs no gap behind it.
    ImageView::with_stride(&some[..99], 9, 10, 1, 10)?;

    for (cols, rows, taps) in
        [(0, 0, 0), (0, 3, 0), (3, 0, 0), (2, 2, 3), (2, 2, 5), (max, max, 1), (max, 2, 0)]
    {
        illegal(
            &format!("{cols}x{rows} taps"),
            Filter::from_taps(cols, rows, &vec![1.0; taps]).map(drop),
        )?;
    }
    illegal("no row", Filter::separable(&[], &[1.0]).map(drop))?;
    illegal("no column", Filter::separable(&[1.0], &[]).map(drop))?;

    let plan = Plan::builder(Filter::gaussian(1.0)?).device(Device::Cpu).build()?;
    let src = Image::<u8>::zeroed(10, 10, 2)?;
    for (width, height, channels) in [(10, 9, 2), (9, 10, 2), (10, 10, 1), (20, 10, 1)] {
        let found =
            plan.run(&src.view(), &mut Image::<u8>::zeroed(width, height, channels)?.view_mut());
        if !matches!(found, Err(Error::Mismatch { .. })) {
            return Err(format!("into {width}x{height}x{channels}: {found:?}").into());
        }
    }
    for filtered in [0, 3] {
        let mut dst = Image::<u8>::zeroed(10, 10, 2)?;
        illegal(
            "channels to filter",
            plan.run_channels(&src.view(), &mut dst.view_mut(), filtered),
        )?;
    }
    Ok(())
}

/// A variant that cannot run a window returns an error with its name, and no other variant replaces
/// it.
fn declines(device: Device) -> Result<(), Failed> {
    let shape = Shape { width: 100, height: 100, channels: 1 };
    let large = Filter::from_taps(33, 33, &[1.0; 33 * 33])?;
    let plain = Filter::from_taps(2, 2, &[1.0, 2.0, 3.0, 5.0])?;
    // The windows that a variant's kernel takes. On the CPU a variant runs wherever its family
    // does.
    for (variant, filter, on_gpu, on_cpu) in [
        (Variant::DirectConstant, &large, false, true),
        (Variant::DirectNaive, &large, true, true),
        (Variant::Separable, &large, true, true),
        (Variant::Separable, &plain, false, false),
        (Variant::DirectConstant, &plain, true, true),
        (Variant::DirectSliding, &plain, false, true),
        (Variant::SeparableFused, &large, true, true),
    ] {
        let runs = if matches!(device, Device::Cpu) { on_cpu } else { on_gpu };
        let built =
            Plan::builder(filter).border(Border::Wrap).device(device).variant(variant).build();
        let found = built.and_then(|plan| plan.variant_for(shape));
        let right = match &found {
            Ok(found) => runs && *found == variant,
            Err(Error::Unsupported { variant: named, .. }) => !runs && *named == variant.name(),
            Err(_) => false,
        };
        if !right {
            return Err(format!(
                "{variant} for {}x{} taps: {found:?}",
                filter.cols(),
                filter.rows()
            )
            .into());
        }
    }
    Ok(())
}

/// Recorded work gives the same result again, also for another picture in the same image.
#[cfg(feature = "gpu")]
fn replayed() -> Result<(), Failed> {
    let gpu = apron::gpu::Gpu::open(0)?;
    let shape = Shape { width: 301, height: 77, channels: 2 };
    let pictures: Vec<_> = (1..=2)
        .map(|factor| {
            let values = (0..301 * 77 * 2).map(|i| (i * 7919 * factor % 1009) as f32).collect();
            apron::Image::from_vec(values, 301, 77, 2)
        })
        .collect::<Result<_, _>>()?;
    let filter = Filter::gaussian(2.0)?;
    for variant in conformance::product::variants(Gpu::DEVICE) {
        for border in [Border::Reflect101, Border::Keep] {
            let plan = Plan::builder(&filter)
                .border(border)
                .device(Gpu::DEVICE)
                .variant(variant)
                .build()?;
            if plan.variant_for(shape).is_err() {
                continue;
            }
            let mut stream = gpu.stream()?;
            let mut recorded = plan.record(gpu.upload(&pictures[0].view())?, gpu.image(shape)?)?;
            for picture in pictures.iter().rev() {
                let src = gpu.upload(&picture.view())?;
                let mut expected = gpu.image(shape)?;
                plan.run_on_device(&src, &mut expected, &mut stream)?;
                recorded.src_mut().copy_from(&src, &stream)?;
                recorded.replay(&mut stream)?;
                stream.synchronize()?;
                if gpu.download(recorded.dst())? != gpu.download(&expected)? {
                    return Err(format!(
                        "{variant}, border {border}: a replay gives another result"
                    )
                    .into());
                }
            }
        }
    }
    Ok(())
}

/// An image is copied from any layout into any other. Gaps are neither read nor written.
#[cfg(feature = "gpu")]
fn copied() -> Result<(), Failed> {
    let gpu = apron::gpu::Gpu::open(0)?;
    let stream = gpu.stream()?;
    // One width has gaps between the rows; the other has none in two of three layouts.
    for width in [47, 64] {
        let shape = Shape { width, height: 11, channels: 3 };
        let picture =
            Image::from_vec((0..width * 11 * 3).map(|i| i as f32).collect(), width, 11, 3)?;
        let layouts = || {
            [gpu.image(shape), studies::image_by_rows(&gpu, shape), image_unaligned(&gpu, shape)]
        };
        for (i, src) in layouts().into_iter().enumerate() {
            let mut src = src?;
            gpu.upload_into(&picture.view(), &mut src)?;
            for (j, dst) in layouts().into_iter().enumerate() {
                let context = format!("{width} wide, from layout {i} to layout {j}");
                let mut dst = dst?;
                dst.fill(-7.5, &stream)?;
                dst.copy_from(&src, &stream)?;
                stream.synchronize()?;
                if gpu.download(&dst)? != picture {
                    return Err(format!("{context}: the pixels change").into());
                }
                if let Some(place) = gpu.spoilt_padding(&dst, -7.5)? {
                    return Err(
                        format!("{context}: written beside the pixels, at {place:?}").into()
                    );
                }
            }
        }
    }
    let shape = Shape { width: 47, height: 11, channels: 3 };
    let other = gpu.image(Shape { width: 46, ..shape })?;
    match gpu.image(shape)?.copy_from(&other, &stream) {
        Err(Error::Mismatch { .. }) => Ok(()),
        outcome => Err(format!("an image of another size is copied: {outcome:?}").into()),
    }
}
