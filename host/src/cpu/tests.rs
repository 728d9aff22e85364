//! The engine compared with plain loops, for large windows and images.

use multiversion::multiversion;

use super::Engine;
use crate::Scalar;
use crate::progress::Report;
use crate::{Border, Device, Family, Filter, Image, Light, Pixel, Plan, Shape, Variant};

const BORDER: Border = Border::Reflect;

/// Adds a tap times each value to its sum, rounded once.
#[multiversion(targets("x86_64+avx2+fma"))]
fn add_f32(tap: f64, values: &[f32], sums: &mut [f32]) {
    sums.iter_mut().zip(values).for_each(|(sum, &value)| *sum = (tap as f32).mul_add(value, *sum));
}

/// The same with the product rounded too.
fn add_f64(tap: f64, values: &[f32], sums: &mut [f64]) {
    sums.iter_mut().zip(values).for_each(|(sum, &value)| *sum += tap * f64::from(value));
}

/// A plane with `cols - 1` columns and `rows - 1` rows around it.
fn padded(plane: &[f32], width: usize, filter: &Filter) -> Vec<Vec<f32>> {
    let mirror = |i: usize, anchor: usize, extent: usize| {
        let i = (i as i64 - anchor as i64).rem_euclid(2 * extent as i64) as usize;
        i.min(2 * extent - 1 - i)
    };
    let (height, anchor) = (plane.len() / width, filter.anchor());
    let row = |y: usize| &plane[mirror(y, anchor.1, height) * width..][..width];
    let padded =
        |y| (0..width + filter.cols() - 1).map(|x| row(y)[mirror(x, anchor.0, width)]).collect();
    (0..height + filter.rows() - 1).map(padded).collect()
}

/// All taps, row by row.
fn direct<T: Copy + Default>(
    padded: &[Vec<f32>],
    filter: &Filter,
    add: fn(f64, &[f32], &mut [T]),
) -> Vec<T> {
    let width = padded[0].len() + 1 - filter.cols();
    let mut result = Vec::new();
    for y in 0..=padded.len() - filter.rows() {
        let mut sums = vec![T::default(); width];
        for row in 0..filter.rows() {
            for col in 0..filter.cols() {
                add(filter.tap(row, col), &padded[y + row][col..], &mut sums);
            }
        }
        result.extend(sums);
    }
    result
}

/// Rows, then columns.
fn separable(padded: &[Vec<f32>], filter: &Filter) -> Vec<f32> {
    let (across, down) = filter.separated().expect("a filter with factors");
    let pass =
        |lines: &[Vec<f32>], taps: &[f64], (step_x, step_y): (usize, usize)| -> Vec<Vec<f32>> {
            let reach = taps.len() - 1;
            let width = lines[0].len() - step_x * reach;
            let sums = |y: usize| {
                let mut sums = vec![0.0; width];
                for (i, &tap) in taps.iter().enumerate() {
                    add_f32(tap, &lines[y + step_y * i][step_x * i..], &mut sums);
                }
                sums
            };
            (0..lines.len() - step_y * reach).map(sums).collect()
        };
    pass(&pass(padded, across, (1, 0)), down, (0, 1)).concat()
}

/// The expected result of one channel.
fn expected<D: Pixel>(
    plane: &[f32],
    width: usize,
    filter: &Filter,
    family: Family,
    bytes: bool,
) -> Vec<D> {
    let padded = padded(plane, width, filter);
    if bytes {
        let sums = direct(&padded, filter, add_f64);
        return sums.into_iter().map(|sum| D::from_f32(sum.round_ties_even() as f32)).collect();
    }
    let sums = match family {
        Family::Separable => separable(&padded, filter),
        _ => direct(&padded, filter, add_f32),
    };
    sums.into_iter().map(D::from_f32).collect()
}

fn check<S: Pixel, D: Pixel>(
    filter: &Filter,
    family: Family,
    (width, height, channels): (usize, usize, usize),
) {
    let values =
        (0..width * height * channels).map(|i| S::from_f32((i * 7919 % 1009) as f32 / 4.0));
    let src = Image::<S>::from_vec(values.collect(), width, height, channels).unwrap();
    let (shape, filtered) = (Shape { width, height, channels }, channels.min(3));
    let bytes = S::SCALAR == Scalar::U8 && D::SCALAR == Scalar::U8;
    let of_channel = |channel: usize| src.as_slice()[channel..].iter().step_by(channels);
    let expected: Vec<Vec<D>> = (0..channels)
        .map(|channel| {
            let plane: Vec<f32> = of_channel(channel).map(|value| value.to_f32()).collect();
            match channel < filtered {
                true => expected(&plane, width, filter, family, bytes),
                false => plane.into_iter().map(D::from_f32).collect(),
            }
        })
        .collect();
    let engine = Engine::new(filter, BORDER).unwrap();
    for threads in [1, 3] {
        let mut found = Image::<D>::zeroed(width, height, channels).unwrap();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let report = Report::default();
        let (call, view) = (report.call(0), found.view_mut());
        let stage = call.stage(0, 0).on(threads);
        pool.install(|| engine.run(family, &src.view().into(), &mut view.into(), filtered, &stage))
            .unwrap();
        let at = |(i, value): (usize, &D)| *value != expected[i % channels][i / channels];
        let wrong = found.as_slice().iter().enumerate().position(at);
        let (cols, rows) = (filter.cols(), filter.rows());
        assert_eq!(wrong, None, "{cols}x{rows} taps, {shape}, {threads} threads");
    }
}

/// Windows whose lines do not all fit the ring, images of several strips, on pools of any size.
#[test]
fn large_windows_and_wide_images_give_the_families_bits() {
    let taps = |len: usize| -> Vec<f32> {
        (0..len).map(|i| ((i * 31 + 7) % 64) as f32 / 640.0 - 0.04).collect()
    };
    for (cols, rows) in [(3, 450), (450, 3), (900, 40), (33, 35)] {
        let filter = Filter::from_taps(cols, rows, &taps(cols * rows)).unwrap();
        check::<f32, f32>(&filter, Family::Direct, (700, 23, 1));
        check::<u8, u8>(&filter, Family::Direct, (260, 19, 4));
    }
    for (cols, rows) in [(2, 700), (700, 5), (9, 9)] {
        let filter = Filter::separable(&taps(cols), &taps(rows)).unwrap();
        check::<f32, u16>(&filter, Family::Separable, (1500, 31, 2));
        check::<u8, u8>(&filter, Family::Separable, (1201, 17, 1));
        check::<u16, f32>(&filter, Family::Separable, (40, 900, 4));
    }
}

/// Every channel of many is what it is alone: bits in f32, too, as tiles depend on the width.
#[test]
fn spectra_take_any_number_of_channels() {
    let taps: Vec<f32> = (0..19 * 21).map(|i| (i * 7919 % 997) as f32 / 99700.0 - 0.002).collect();
    let plan = Plan::builder(Filter::from_taps(19, 21, &taps).unwrap())
        .device(Device::Cpu)
        .variant(Variant::Fourier);
    let plan = plan.build().unwrap();
    let (width, height) = (47, 33);
    for channels in 1..=7 {
        let pixels: Vec<u8> =
            (0..width * height * channels).map(|i| (i * 7919 % 251) as u8).collect();
        let all = Image::from_vec(pixels.clone(), width, height, channels).unwrap();
        let (bytes, mut floats) =
            (plan.filter(&all).unwrap(), Image::<f32>::zeroed(width, height, channels).unwrap());
        plan.run(&all, &mut floats).unwrap();
        for channel in 0..channels {
            let of = |pixels: &[u8]| {
                pixels.iter().skip(channel).step_by(channels).copied().collect::<Vec<_>>()
            };
            let one = Image::from_vec(of(&pixels), width, height, 1).unwrap();
            assert_eq!(
                of(bytes.as_slice()),
                plan.filter(&one).unwrap().as_slice(),
                "{channel} of {channels}"
            );
            let mut alone = Image::<f32>::zeroed(width, height, 1).unwrap();
            plan.run(&one, &mut alone).unwrap();
            let found: Vec<f32> =
                floats.as_slice().iter().skip(channel).step_by(channels).copied().collect();
            assert_eq!(found, alone.as_slice(), "{channel} of {channels}, f32");
        }
    }
}

/// Rows of which each has half the numbers of the one before, down to subnormal ones: with the
/// greatest at 2^-70 tiles are scaled, at 1 tiny numbers are dropped.
#[test]
fn spectra_take_small_numbers() {
    let taps: Vec<f32> = (0..9 * 9).map(|i| (i * 7919 % 997) as f32 / 997.0 - 0.4).collect();
    let filter = Filter::from_taps(9, 9, &taps).unwrap();
    let plan = Plan::builder(&filter).device(Device::Cpu).variant(Variant::Fourier);
    let plan = plan.border(BORDER).build().unwrap();
    let (width, height) = (61, 80);
    let size = |i: usize| (1.0 + (i * 31 % 64) as f64 / 64.0) * 0.5f64.powi((i / width) as i32);
    for exponent in [0, -35, -45, -70, -120] {
        let scale = 2f64.powi(exponent);
        let pixels: Vec<f32> = (0..width * height).map(|i| (scale * size(i)) as f32).collect();
        let found =
            plan.filter(&Image::from_vec(pixels.clone(), width, height, 1).unwrap()).unwrap();
        let expected = direct(&padded(&pixels, width, &filter), &filter, add_f64);
        // The anchors of `padded` are the filter's, and the greatest pixel is less than 2.
        let allowed = 2.0 * scale * 8.0 * filter.weight() * f64::from(f32::EPSILON)
            + f64::from(f32::from_bits(1));
        for (found, expected) in found.as_slice().iter().zip(expected) {
            assert!(
                (f64::from(*found) - expected).abs() <= allowed,
                "2^{exponent}: {found:e}, not {expected:e}"
            );
        }
    }
}

/// Under a threshold, a result that changes its pixel less is the pixel, whatever computes it.
#[test]
fn small_changes_are_left_out() {
    fn check<S: Pixel, D: Pixel>(text: &str, light: Light) {
        let (width, height, channels) = (71, 40, 3);
        let plan = |text: &str| {
            let filter: Filter = text.parse().unwrap();
            let plan = Plan::builder(filter).light(light.clone()).border(BORDER);
            plan.device(Device::Cpu).build().unwrap()
        };
        let noise = |i: usize| S::from_f32(100.0 + (i * 7919 % 23) as f32);
        let pixels: Vec<S> = (0..width * height * channels).map(noise).collect();
        let src = Image::from_vec(pixels, width, height, channels).unwrap();
        let (mut all, mut some) = (
            Image::<D>::zeroed(width, height, channels).unwrap(),
            Image::<D>::zeroed(width, height, channels).unwrap(),
        );
        plan(text).run(&src, &mut all).unwrap();
        plan(&format!("{text},threshold=6")).run(&src, &mut some).unwrap();
        let mut kept = 0;
        for ((pixel, all), some) in src.as_slice().iter().zip(all.as_slice()).zip(some.as_slice()) {
            let pixel = pixel.to_f32();
            let is_kept = (all.to_f32() - pixel).abs() < 0.5 * 6.0;
            assert_eq!(*some, if is_kept { D::from_f32(pixel) } else { *all }, "{text}");
            kept += usize::from(is_kept);
        }
        assert!(kept > 1000 && kept < 8000, "{text}: {kept}");
    }
    for text in ["unsharp:sigma=1,amount=0.5", "unsharp:sigma=9,amount=0.5"] {
        check::<u8, u8>(text, Light::Stored);
        check::<u8, u8>(text, Light::Linear);
        check::<u8, f32>(text, Light::Stored);
        check::<u16, u16>(text, Light::Stored);
        check::<f32, f32>(text, Light::Stored);
    }
}
