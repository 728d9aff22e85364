//! Plans on the CPU round 8-bit results correctly.

use proptest::prelude::*;

use super::bound::of_sums;
use super::*;
use crate::filter::whole::WholeTaps;
use crate::{Border, Device, Family, Image, ImageView, Plan, Variant};

/// The whole taps of a filter, row by row.
fn numerators(filter: &Filter) -> Vec<i128> {
    let (cols, rows) = (filter.cols(), filter.rows());
    match &filter.byte_filter().unwrap().whole.taps {
        WholeTaps::Table(taps) => taps.iter().map(|&tap| tap.into()).collect(),
        WholeTaps::Products { terms, point, .. } => {
            let tap = |at: usize| {
                let is_middle = (at % cols, at / cols) == (cols / 2, rows / 2);
                let products = terms.iter().map(|(row, column)| {
                    i128::from(row[at % cols]) * i128::from(column[at / cols])
                });
                products.sum::<i128>() + if is_middle { *point } else { 0 }
            };
            (0..cols * rows).map(tap).collect()
        }
    }
}

/// The definition: padded by copying, summed in whole numbers, divided.
pub(crate) fn defined(
    src: &[u8],
    (width, height): (usize, usize),
    filter: &Filter,
    border: Border,
) -> Vec<u8> {
    let (cols, rows) = (filter.cols() as i64, filter.rows() as i64);
    let (anchor_x, anchor_y) = (filter.anchor().0 as i64, filter.anchor().1 as i64);
    let at = |mut i: i64, n: i64| loop {
        if (0..n).contains(&i) {
            return Some(i as usize);
        }
        let low = i < 0;
        i = match border {
            Border::Constant(_) | Border::None => return None,
            Border::Replicate | Border::Keep => i + if low { 1 } else { -1 },
            Border::Reflect => (if low { -1 } else { 2 * n - 1 }) - i,
            Border::Reflect101 if n == 1 => 0,
            Border::Reflect101 => (if low { 0 } else { 2 * n - 2 }) - i,
            Border::Wrap => i + if low { n } else { -n },
        };
    };
    let outside = if let Border::Constant(value) = border { value as u8 } else { 0 };
    let (taps, divisor) = (numerators(filter), filter.byte_filter().unwrap().whole.divisor);
    let under: Vec<Vec<Option<usize>>> = (0..width as i64)
        .map(|x| (0..cols).map(|c| at(x - anchor_x + c, width as i64)).collect())
        .collect();
    let mut out = Vec::new();
    for y in 0..height as i64 {
        let lines: Vec<Option<usize>> =
            (0..rows).map(|r| at(y - anchor_y + r, height as i64)).collect();
        for x in 0..width as i64 {
            let (left, top) = (x - anchor_x, y - anchor_y);
            let leaves =
                left < 0 || top < 0 || left + cols > width as i64 || top + rows > height as i64;
            if border == Border::Keep && leaves {
                out.push(src[y as usize * width + x as usize]);
                continue;
            }
            let mut sum = 0;
            for (line, taps) in lines.iter().zip(taps.chunks_exact(cols as usize)) {
                for (column, tap) in under[x as usize].iter().zip(taps) {
                    let pixel = line.zip(*column).map_or(outside, |(y, x)| src[y * width + x]);
                    sum += tap * i128::from(pixel);
                }
            }
            out.push(divisor.byte(sum));
        }
    }
    out
}

/// An f32 plane as wrong as `error` allows, alternately above and below the truth.
fn disturbed(truth: &[f64], error: f64) -> Vec<f32> {
    let disturb = |(index, &value): (usize, &f64)| {
        let worst = if index % 2 == 0 { value + error } else { value - error };
        let nearest = worst as f32;
        if (f64::from(nearest) - value).abs() <= error {
            nearest
        } else if f64::from(nearest) > value {
            nearest.next_down()
        } else {
            nearest.next_up()
        }
    };
    truth.iter().enumerate().map(disturb).collect()
}

fn check(src: &[u8], (width, height): (usize, usize), filter: &Filter, border: Border) {
    let expected = defined(src, (width, height), filter, border);
    let view = ImageView::new(src, width, height, 1).unwrap();
    let mut variants = vec![Variant::DirectNaive];
    if filter.is_separable() {
        variants.push(Variant::Separable);
    }
    for variant in variants {
        let plan = Plan::builder(filter)
            .border(border)
            .device(Device::Cpu)
            .variant(variant)
            .build()
            .unwrap();
        let found = plan.filter(&view).unwrap();
        assert_eq!(
            found.as_slice(),
            expected,
            "{variant} of {filter}, border {border}, {width}x{height}"
        );
    }
}

fn noise_pixels(len: usize, mut seed: u64) -> Vec<u8> {
    let mut next = move || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Every rule, and constants that are bytes; from the third one on each rule once.
pub(crate) const BORDERS: [Border; 8] = [
    Border::Constant(0.0),
    Border::Constant(255.0),
    Border::Constant(77.0),
    Border::Replicate,
    Border::Reflect,
    Border::Reflect101,
    Border::Wrap,
    Border::Keep,
];

/// Taps whose sums f32 holds exactly, so the kernels' sums are compared directly.
#[test]
fn tiny_images_under_every_window() {
    let taps: Vec<f64> = (0..49).map(|i| f64::from(i * i % 11 - 4) / 16.0).collect();
    for (cols, rows) in (1..=7).flat_map(|cols| [1, 2, 3, 6].map(|rows| (cols, rows))) {
        let dense = Filter::from_taps_f64(cols, rows, &taps[..cols * rows]).unwrap();
        let product = Filter::separable_f64(&taps[..cols], &taps[7..7 + rows]).unwrap();
        for filter in [dense, product] {
            assert_eq!(of_sums(&filter.byte_filter().unwrap().filter, Order::TapByTap), 0.0);
            for anchor in [(0, 0), (cols - 1, 0), (cols / 2, rows / 2), (cols - 1, rows - 1)] {
                let filter = filter.clone().anchored(anchor.0, anchor.1).unwrap();
                for size in (1..=4).flat_map(|width| (1..=3).map(move |height| (width, height))) {
                    let pixels = noise_pixels(size.0 * size.1, (size.0 * 8 + size.1) as u64);
                    for border in BORDERS {
                        check(&pixels, size, &filter, border);
                    }
                }
            }
        }
    }
}

#[test]
fn many_ties_are_exact() {
    // Sums over tenths and over even counts: every few pixels a tie.
    let filters = [
        "box:size=2",
        "box:size=6",
        "box:cols=10,rows=2",
        "box:cols=5,rows=4",
        "sharpen:amount=0.1",
        "separable:row=0.1 0.2 0.3 0.2 0.2,column=0.5 0.5",
        "taps:0.1 0.3 0.1; 0 -0.5 0; 1/2 1/4 0.3",
        "taps:2 2 2; 2 2 2",
        "taps:-1 0.5",
        "sobel-x",
        "unsharp:sigma=0.7,amount=1.5",
        "gaussian:sigma=1.1",
    ];
    for filter in filters {
        let filter: Filter = filter.parse().unwrap();
        for border in BORDERS {
            for (width, height) in [(1, 1), (2, 5), (67, 3), (31, 30)] {
                check(&noise_pixels(width * height, 7), (width, height), &filter, border);
                let checkers: Vec<u8> = (0..width * height)
                    .map(|i| 100 + ((i % width + i / width) % 2) as u8)
                    .collect();
                check(&checkers, (width, height), &filter, border);
            }
        }
    }
}

#[test]
fn the_worst_that_a_kernel_may_give_is_put_right() {
    for (text, family) in [
        ("gaussian:sigma=2", Family::Separable),
        ("gaussian:sigma=2", Family::Direct),
        ("box:size=6", Family::Separable),
        ("motion:length=9,angle=30", Family::Direct),
        ("unsharp:sigma=1,amount=20", Family::Direct),
    ] {
        let filter: Filter = text.parse().unwrap();
        let (width, height) = (61, 47);
        let pixels = noise_pixels(width * height, 3);
        let src = ImageView::new(&pixels, width, height, 1).unwrap();
        for border in [Border::Constant(9.0), Border::Reflect101, Border::Keep] {
            let plan = Plan::builder(&filter).border(border).device(Device::Cpu).build().unwrap();
            let mut truth = vec![0f32; pixels.len()];
            plan.run(&src, &mut crate::ImageViewMut::new(&mut truth, width, height, 1).unwrap())
                .unwrap();
            let truth: Vec<f64> = truth.into_iter().map(f64::from).collect();
            let of_bytes = filter.byte_filter().unwrap();
            let error = of_sums(&of_bytes.filter, family.into());
            assert!(error > 0.0 && error < 0.5);
            // The truth here is itself an f32 result, so half of the allowance is left to disturb
            // it by.
            let planes = disturbed(&truth, error / 2.0);
            let resolver = Resolver::new(src, 1, of_bytes, border);
            let rounder = Rounder::in_f32(&resolver, family.into());
            let mut scratch = Scratch::default();
            let mut found = vec![0xa5u8; pixels.len()];
            for (y, (sums, out)) in planes.chunks(width).zip(found.chunks_mut(width)).enumerate() {
                rounder.store_part(Isa::fastest(), sums, (0, y), out, &mut scratch);
            }
            let expected = defined(&pixels, (width, height), &filter, border);
            let kept = |x: usize, y: usize| {
                border == Border::Keep
                    && (x < filter.anchor().0
                        || y < filter.anchor().1
                        || x + filter.cols() - filter.anchor().0 > width
                        || y + filter.rows() - filter.anchor().1 > height)
            };
            for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert!(
                    found == expected || kept(index % width, index / width),
                    "{text} {border} {index}"
                );
            }
        }
    }
}

#[test]
fn large_windows_are_exact() {
    for (text, size) in [
        ("gaussian:sigma=33", (8, 5)),
        ("box:cols=300,rows=220", (3, 7)),
        ("gaussian:sigma=28", (11, 6)),
        ("box:cols=250,rows=230", (14, 9)),
    ] {
        let filter: Filter = text.parse().unwrap();
        let halves: Vec<u8> = (0..size.0 * size.1).map(|i| (i % 2) as u8).collect();
        for border in [Border::Constant(3.0), Border::Reflect, Border::Wrap, Border::Keep] {
            check(&noise_pixels(size.0 * size.1, 5), size, &filter, border);
            check(&halves, size, &filter, border);
        }
    }
}

#[test]
fn taps_of_any_size_saturate() {
    for taps in [
        [3e38, -3e38, 1.0],
        [1e-42, 1e-40, 3e-39],
        [8388607.0, 1e30, -1e30],
        [0.5, f64::from(f32::MAX), 0.0],
        [1e-300, 3e-301, 0.0],
    ] {
        let filter = Filter::from_taps_f64(3, 1, &taps).unwrap();
        for border in BORDERS {
            check(&noise_pixels(60, 11), (12, 5), &filter, border);
        }
    }
}

/// Taps of any size in one filter, and rows that are as much greater as columns are smaller.
#[test]
fn taps_of_all_scales_are_exact() {
    let mut seed = 17u64;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    for turn in 0..400 {
        let (cols, rows) = [(113, 2), (3, 90), (7, 5), (41, 43)][turn % 4];
        let scale = 10f64.powi([-36, -9, 0, 9, 35, 36][random(6) as usize]);
        let mut tap = || {
            (random(2000) as f64 / 1000.0 - 0.7)
                * 10f64.powi([0, 0, -1, -3, -9, -300][random(6) as usize])
        };
        let row: Vec<f64> = (0..cols).map(|_| tap() * scale).collect();
        let column: Vec<f64> = (0..rows).map(|_| tap() / scale).collect();
        let Ok(filter) = Filter::separable_f64(&row, &column) else { continue };
        let size = [(1, 18), (31, 3), (140, 7)][random(3) as usize];
        check(
            &noise_pixels(size.0 * size.1, random(1 << 30)),
            size,
            &filter,
            BORDERS[turn % BORDERS.len()],
        );
    }
}

#[test]
fn each_channel_is_rounded_for_itself_and_the_rest_copied() {
    let filters = [
        Filter::from_taps_f64(3, 2, &[0.1, 0.2, 0.3, 0.1, 0.2, 0.1]).unwrap(),
        // Looked up; every second result is a tie.
        Filter::from_taps_f64(1, 1, &[0.5]).unwrap(),
        Filter::separable_f64(&[-0.3], &[-5.0]).unwrap(),
    ];
    let (width, height) = (21, 19);
    let pixels = noise_pixels(width * height * 4, 23);
    for filter in filters {
        let plan = Plan::builder(&filter).device(Device::Cpu).build().unwrap();
        let mut found = vec![0u8; pixels.len()];
        let src = ImageView::new(&pixels, width, height, 4).unwrap();
        let mut dst = crate::ImageViewMut::new(&mut found, width, height, 4).unwrap();
        plan.run_channels(&src, &mut dst, 3).unwrap();
        for channel in 0..4 {
            let take =
                |values: &[u8]| values[channel..].iter().step_by(4).copied().collect::<Vec<_>>();
            let expected = match channel {
                3 => take(&pixels),
                _ => defined(&take(&pixels), (width, height), &filter, Border::Reflect101),
            };
            assert_eq!(take(&found), expected, "{filter}, channel {channel}");
        }
    }
}

/// Means of bytes, where rows of pixels repeat and where pixels are 0 or 255: beside those that are
/// and do not.
#[test]
fn means_of_alike_rows_and_of_two_values_are_exact() {
    let (width, height) = (211, 160);
    for (number, text) in ["box:size=4", "box:size=6", "box:size=5", "box:size=14", "box:size=20"]
        .into_iter()
        .enumerate()
    {
        let filter: Filter = text.parse().unwrap();
        for (turn, border) in
            BORDERS.into_iter().chain([Border::Constant(255.0), Border::Constant(77.0)]).enumerate()
        {
            let channels = 1 + (number + turn) % 4;
            let random =
                noise_pixels(2 * height + width * height * channels, (10 * number + turn) as u64);
            let (runs, noise) = random.split_at(2 * height);
            // Rows that repeat up to 40 times, of two values or of any.
            let mut pixels: Vec<u8> = Vec::new();
            for y in 0..height {
                let row = &noise[y * width * channels..][..width * channels];
                match (y > 0 && runs[y] % 16 > 1, runs[height + y] % 8 > 0) {
                    (true, _) => pixels.extend_from_within(pixels.len() - width * channels..),
                    (_, true) => pixels.extend(row.iter().map(|value| 255 * (value % 2))),
                    _ => pixels.extend(row),
                }
            }
            check_channels(&pixels, (width, height, channels), &filter, border);
            let two: Vec<u8> = noise.iter().map(|value| 255 * (value % 2)).collect();
            check_channels(&two, (width, height, channels), &filter, border);
        }
    }
}

/// Compares every family, on one thread and on three, with the definition; the last channel is
/// copied if there are four.
fn check_channels(
    src: &[u8],
    (width, height, channels): (usize, usize, usize),
    filter: &Filter,
    border: Border,
) {
    let filtered = channels.min(3);
    let take = |values: &[u8], channel: usize| {
        values[channel..].iter().step_by(channels).copied().collect::<Vec<_>>()
    };
    let expected: Vec<Vec<u8>> = (0..channels)
        .map(|channel| match take(src, channel) {
            plane if channel < filtered => defined(&plane, (width, height), filter, border),
            plane => plane,
        })
        .collect();
    let view = ImageView::new(src, width, height, channels).unwrap();
    let mut variants = vec![Variant::Fourier];
    variants.extend(filter.is_separable().then_some(Variant::Separable));
    // Tap by tap, the widest take minutes without vectors.
    variants.extend((filter.cols() * filter.rows() < 10_000).then_some(Variant::DirectNaive));
    for (variant, threads) in variants.into_iter().flat_map(|variant| [(variant, 1), (variant, 3)])
    {
        let plan = Plan::builder(filter)
            .border(border)
            .device(Device::Cpu)
            .variant(variant)
            .build()
            .unwrap();
        let mut found = vec![0xa5; src.len()];
        let mut dst = crate::ImageViewMut::new(&mut found, width, height, channels).unwrap();
        crate::threads::tests::forced(threads, || plan.run_channels(&view, &mut dst, filtered))
            .unwrap();
        for (channel, expected) in expected.iter().enumerate() {
            let wrong = take(&found, channel)
                .iter()
                .zip(expected)
                .position(|(found, expected)| found != expected);
            let image = format!("{width}x{height}x{channels}");
            assert_eq!(
                wrong, None,
                "{variant} of {filter}, {border}, {image}, channel {channel}, {threads} threads"
            );
        }
    }
}

/// Channels that lie further apart than the bytes that are loaded together, and more than results
/// are kept for.
#[test]
fn many_channels_are_rounded_as_one() {
    let (width, height) = (41, 12);
    for (channels, text) in [5, 8, 9, 16, 31, 40].into_iter().flat_map(|channels| {
        ["gaussian:1", "box:size=4", "box:size=6", "taps:0.25 0.25; 0.125 0.375"]
            .map(|text| (channels, text))
    }) {
        let filter: Filter = text.parse().unwrap();
        for pixels in contents((width, height, channels), 77) {
            let plan = Plan::builder(&filter).device(Device::Cpu).build().unwrap();
            let found =
                plan.filter(&ImageView::new(&pixels, width, height, channels).unwrap()).unwrap();
            for channel in 0..channels {
                let take = |values: &[u8]| {
                    values[channel..].iter().step_by(channels).copied().collect::<Vec<_>>()
                };
                let expected =
                    defined(&take(&pixels), (width, height), &filter, Border::Reflect101);
                assert_eq!(
                    take(found.as_slice()),
                    expected,
                    "{text}, channel {channel} of {channels}"
                );
            }
        }
    }
}

/// Pixels of several kinds: noise; one value; equal rows, equal columns; two values; half noise,
/// half of one value.
fn contents((width, height, channels): (usize, usize, usize), odd: u8) -> Vec<Vec<u8>> {
    let len = width * height * channels;
    let noise = noise_pixels(len, 41);
    let each = |value: &dyn Fn(usize, usize) -> u8| -> Vec<u8> {
        (0..len).map(|i| value(i / channels % width, i / channels / width)).collect()
    };
    vec![
        each(&|_, _| odd),
        each(&|x, _| (x * 255 / width) as u8),
        each(&|_, y| (y * 255 / height) as u8),
        noise.iter().map(|value| if value % 2 == 0 { 0 } else { 255 }).collect(),
        each(&|x, y| 100 + ((x + y) % 2) as u8),
        noise.iter().enumerate().map(|(i, &value)| if i < len / 2 { value } else { odd }).collect(),
        noise,
    ]
}

/// Wide windows, whose sums in f32 are often uncertain, and taps whose sum over one value is half
/// way between integers.
#[test]
fn wide_windows_and_ties_are_exact() {
    let halves = |len: usize| -> Vec<f64> { (0..len).map(|i| (1 + i * i % 7) as f64).collect() };
    let half = |cols: usize, rows: usize| {
        let (row, column) = (halves(cols), halves(rows));
        let sum: f64 = row.iter().sum::<f64>() * column.iter().sum::<f64>();
        let row: Vec<f64> = row.iter().map(|tap| 0.5 * tap / sum).collect();
        (row, column)
    };
    let dense = |cols: usize, rows: usize| {
        let (row, column) = half(cols, rows);
        let mut taps: Vec<f64> =
            column.iter().flat_map(|down| row.iter().map(move |across| down * across)).collect();
        // No product any more, but with the same sum.
        (taps[0], taps[1]) = (taps[0] + taps[2] / 3.0, taps[1] - taps[2] / 3.0);
        Filter::from_taps_f64(cols, rows, &taps).unwrap()
    };
    let product = |cols: usize, rows: usize| {
        let (row, column) = half(cols, rows);
        Filter::separable_f64(&row, &column).unwrap()
    };
    let filters = [
        "gaussian:sigma=7".parse().unwrap(),
        product(27, 30).anchored(26, 3).unwrap(),
        product(5, 61),
        dense(19, 14),
        dense(30, 3).anchored(0, 2).unwrap(),
    ];
    for (number, (filter, border)) in
        filters.iter().flat_map(|filter| BORDERS.map(|border| (filter, border))).enumerate()
    {
        for (size, pixels) in [(131, 37, 1), (67, 21, 1 + number % 4)]
            .into_iter()
            .flat_map(|size| contents(size, 77).into_iter().map(move |pixels| (size, pixels)))
            .skip(number % 4)
            .step_by(4)
        {
            check_channels(&pixels, size, filter, border);
        }
    }
}

/// Every other pixel greater by one, with a step in the middle: half of the results lie near a
/// half.
#[test]
fn very_wide_gaussians_are_exact() {
    let cases = [
        ("gaussian:sigma=21", Border::Reflect101, (150, 33, 3)),
        ("gaussian:sigma=21", Border::Constant(200.0), (43, 19, 2)),
        ("gaussian:sigma=31", Border::Constant(255.0), (23, 11, 4)),
    ];
    for (text, border, size) in cases {
        let filter: Filter = text.parse().unwrap();
        let of_bytes = filter.byte_filter().unwrap();
        let resolver =
            Resolver::new(ImageView::new(&[0; 1], 1, 1, 1).unwrap(), 1, of_bytes, border);
        let rounder = Rounder::in_f32(&resolver, Order::BlockPasses);
        // A column pass in f64 over whole numbers leaves few.
        assert!(rounder.share() > 1e-4 && rounder.left_by_columns().unwrap() < 0.2);
        check_channels(&noise_pixels(size.0 * size.1 * size.2, 3), size, &filter, border);
        let steps = |i: usize| {
            100 + ((i / size.2 + i / size.2 / size.0) % 2) as u8
                + u8::from(i / size.2 % size.0 > size.0 / 2)
        };
        let near: Vec<u8> = (0..size.0 * size.1 * size.2).map(steps).collect();
        check_channels(&near, size, &filter, border);
    }
}

/// Some tests again, in processes of their own that use one instruction set each. Portable code has
/// no fused multiply-add in f32, so it takes the shortest alone.
#[test]
fn every_instruction_set_rounds_alike() {
    let wide = "round::tests::very_wide_gaussians_are_exact";
    let ties = "round::tests::many_ties_are_exact";
    let tests = [wide, ties, "round::tests::sums_of_products_round_as_their_taps"];
    let others = |name: &&str| Isa::named(name).is_ok_and(|isa| isa != Isa::fastest());
    for name in ["portable", "avx2", "avx512", "neon"].into_iter().filter(others) {
        let tests = if name == "portable" { &tests[..2] } else { &tests[..] };
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let output = command.args(tests).env("APRON_ISA", name).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let all = format!("{} passed; 0 failed", tests.len());
        assert!(output.status.success() && text.contains(&all), "{name}: {text}");
    }
}

/// The pixel and a Gaussian, or two products.
#[test]
fn sums_of_products_round_as_their_taps() {
    for text in [
        "unsharp:sigma=2,amount=1.5",
        "unsharp:sigma=4.5,amount=-0.3",
        "log:sigma=1.4",
        "log:sigma=5",
    ] {
        let filter: Filter = text.parse().unwrap();
        assert!(filter.sum().is_some(), "{text}");
        let (x, y) = (filter.cols() - 1, 0);
        let elsewhere = filter.clone().anchored(x, y).unwrap();
        assert_eq!(elsewhere.sum().is_some(), text.starts_with("log"), "{text}");
        for (number, border) in BORDERS.into_iter().enumerate() {
            let size = [(140, 23, 1 + number % 4), (9, 40, 2)];
            for size in size {
                for pixels in contents(size, 201).into_iter().skip(number % 3).step_by(3) {
                    check_channels(&pixels, size, &filter, border);
                    check_channels(&pixels, size, &elsewhere.clone().flipped(), border);
                }
            }
        }
    }
    assert!(Filter::unsharp(0.3, 1.0).unwrap().sum().is_none());
}

/// The bound of a sum of products holds for the sums that the engine makes: it is compared where
/// results are not rounded to bytes.
#[test]
fn the_terms_add_up_to_the_taps() {
    for text in ["unsharp:sigma=3,amount=0.7", "log:sigma=2"] {
        let filter: Filter = text.parse().unwrap();
        let sum = filter.sum().unwrap();
        let (mut worst, mut all) = (0.0f64, 0.0);
        for r in 0..filter.rows() {
            for c in 0..filter.cols() {
                let point = if (c, r) == filter.anchor() { sum.point } else { 0.0 };
                let tap =
                    sum.terms.iter().fold(point, |tap, (row, column)| tap + row[c] * column[r]);
                worst = worst.max((tap - filter.tap(r, c)).abs());
                all += filter.tap(r, c).abs();
            }
        }
        assert!(worst <= 1e-15 * all, "{text}: {worst:e}");
    }
}

proptest! {
    #[test]
    fn any_filter_is_exact(
        cols in 1usize..8, rows in 1usize..8, width in 1usize..24, height in 1usize..12,
        taps in proptest::collection::vec(-2.0f64..2.0, 49), denominator in 1u32..40, whole: bool, normal: bool,
        anchor in (0usize..8, 0usize..8), border in 0usize..BORDERS.len(), seed: u64, product: bool,
    ) {
        let scale = if normal { 1.0 / (cols * rows) as f64 } else { 1.0 };
        let taps: Vec<f64> = taps.iter().map(|tap| match whole {
            true => (tap * 8.0).round() / f64::from(denominator) * scale,
            false => tap * scale,
        }).collect();
        let filter = match product {
            true => Filter::separable_f64(&taps[..cols], &taps[cols..cols + rows]),
            false => Filter::from_taps_f64(cols, rows, &taps[..cols * rows]),
        };
        let filter = filter.unwrap().anchored(anchor.0 % cols, anchor.1 % rows).unwrap();
        check(&noise_pixels(width * height, seed), (width, height), &filter, BORDERS[border]);
    }
}

#[test]
fn sums_of_products_into_floats_are_those_of_their_taps() {
    let (size, channels) = ((83, 57), 3);
    let pixels = noise_pixels(size.0 * size.1 * channels, 7);
    let src = ImageView::new(&pixels, size.0, size.1, channels).unwrap();
    for text in [
        "unsharp:sigma=2",
        "unsharp:sigma=11,amount=0.4",
        "log:sigma=2",
        "dog:sigma=3",
        "dog:sigma=12,wider=5",
    ] {
        let filter: Filter = text.parse().unwrap();
        let sum = filter.sum().unwrap();
        for border in [Border::Reflect101, Border::Constant(41.5), Border::Wrap, Border::Keep] {
            let run = |variant: Variant| {
                let plan = Plan::builder(&filter)
                    .border(border)
                    .variant(variant)
                    .device(Device::Cpu)
                    .build()
                    .unwrap();
                let mut found = Image::<f32>::zeroed(size.0, size.1, channels).unwrap();
                plan.run(&src, &mut found.view_mut()).unwrap();
                found
            };
            let (found, expected) = (run(Variant::Separable), run(Variant::DirectNaive));
            let steps = 4.0 * (filter.cols() + filter.rows()) as f64;
            let error = steps * f64::from(f32::EPSILON) * sum.weight() * 255.0;
            // The sum tap by tap has an error of its own.
            let tap_by_tap = of_sums(&filter, Order::TapByTap);
            for (found, expected) in found.as_slice().iter().zip(expected.as_slice()) {
                let off = f64::from((found - expected).abs());
                assert!(
                    off <= error + tap_by_tap,
                    "{text} {border}: {found}, tap by tap {expected}"
                );
            }
        }
    }
}
