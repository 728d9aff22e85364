use super::*;
use crate::cpu::Engine;
use crate::cpu::frame::Frame;
use crate::cpu::taps::{Bytes, Factors};
use crate::round::{Order, Resolver};
use crate::{Border, Filter, Image};

/// The greatest error of the sums that bytes are made of, as a part of its bound.
fn error(
    filter: &Filter,
    border: Border,
    (width, height, channels): (usize, usize, usize),
    src: Vec<u8>,
) -> f64 {
    let byte_filter = filter.byte_filter().unwrap();
    let (engine, filter) = (Engine::new(filter, border).unwrap(), &byte_filter.filter);
    let bytes = Bytes::new(byte_filter, &engine.window());
    let (terms, order) = match bytes.taps.terms(Factors::of_bytes) {
        Some(terms) => (terms, Order::Terms),
        None => (bytes.taps.factors.as_ref().unwrap().of_bytes().into(), Order::BlockPasses),
    };
    let mut dst = Image::<u8>::zeroed(width, height, channels).unwrap();
    let (src, mut dst) = (Image::from_vec(src, width, height, channels).unwrap(), dst.view_mut());
    let resolver = Resolver::new(src.view(), channels, byte_filter, border);
    let rounder = Rounder::in_f32(&resolver, order);
    let window = engine.window();
    let frame = Frame::new(engine.isa, window, &src.view(), &mut dst, channels);
    let run = Run::new(&frame, &terms, Some(&rounder));
    assert!(run.blocks == 1 && rounder.share() < 1.0);

    let mut found = Vec::new();
    let (mut scratch, mut sums) =
        (Scratch::default(), vec![0.0; ROWS * (width * channels + SLACK)]);
    scratch.start(&run, &(0..width)).unwrap();
    while found.len() < height * width * channels {
        let y = found.len() / (width * channels);
        let count = run.rows_together(height - y);
        let rows = run.add_up(&mut scratch, &(0..width), (y, count), &mut sums);
        rows.into_iter().take(count).for_each(|row| found.extend_from_slice(row));
    }

    // Both passes of each term in f64.
    let products = filter.products();
    let point = filter.sum().map_or(0.0, |sum| sum.point);
    let pixel = |y: Option<usize>, x: Option<usize>, channel: usize| match (y, x) {
        (Some(y), Some(x)) => f64::from(src.as_slice()[(y * width + x) * channels + channel]),
        _ => f64::from(window.border_value),
    };
    let mut worst = 0.0f64;
    for channel in 0..channels {
        let mut exact: Vec<f64> = (0..height * width)
            .map(|at| point * pixel(Some(at / width), Some(at % width), channel))
            .collect();
        for (row, column) in &products {
            let line = |y: usize| -> Vec<f64> {
                let source = window.row(y, 0, height);
                let under =
                    |x: usize, col: usize| pixel(source, window.column(x, col, width), channel);
                (0..width)
                    .map(|x| (0..row.len()).map(|col| row[col] * under(x, col)).sum())
                    .collect()
            };
            let lines: Vec<Vec<f64>> = (0..height + column.len() - 1).map(line).collect();
            for (at, exact) in exact.iter_mut().enumerate() {
                *exact += column
                    .iter()
                    .zip(&lines[at / width..])
                    .map(|(tap, line)| tap * line[at % width])
                    .sum::<f64>();
            }
        }
        for (at, exact) in exact.into_iter().enumerate() {
            worst = worst.max((f64::from(found[at * channels + channel]) - exact).abs());
        }
    }
    2.0 * worst / rounder.share()
}

/// Contents that are worst for sums of one sign, or of both.
#[test]
fn sums_for_bytes_are_within_their_bound() {
    let mut seed = 1u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as u8
    };
    let mut filters: Vec<Filter> = [
        "gaussian:sigma=0.8",
        "gaussian:sigma=3",
        "gaussian:sigma=21",
        "gaussian:sigma=40",
        "unsharp:sigma=2,amount=1.5",
        "unsharp:sigma=20",
        "log:sigma=2",
        "dog:sigma=12",
    ]
    .map(|text| text.parse().unwrap())
    .into();
    for (cols, rows) in [(1, 9), (1, 41), (9, 1), (3, 40), (12, 5), (31, 200)] {
        let mut taps = |count: usize| -> Vec<f64> {
            (0..count).map(|_| (f64::from(random()) / 99.0 - 0.7) / count as f64).collect()
        };
        filters.push(Filter::separable_f64(&taps(cols), &taps(rows)).unwrap());
    }
    let mut greatest = 0.0f64;
    for filter in &filters {
        for (border, channels) in
            [(Border::Reflect101, 3), (Border::Constant(255.0), 1), (Border::Constant(0.0), 2)]
        {
            let (width, height) = (if channels == 1 { 203 } else { 97 }, 23);
            let count = width * height * channels;
            let contents: [Vec<u8>; 5] = [
                (0..count).map(|_| random()).collect(),
                vec![255; count],
                vec![0; count],
                (0..count).map(|_| if random() < 128 { 0 } else { 255 }).collect(),
                (0..count).map(|_| 250 + random() % 6).collect(),
            ];
            for (number, pixels) in contents.into_iter().enumerate() {
                let part = error(filter, border, (width, height, channels), pixels);
                assert!(part <= 1.0, "{filter}, {border}, contents {number}: {part}");
                greatest = greatest.max(part);
            }
        }
    }
    // It is no bound of something else.
    assert!(greatest > 0.05, "{greatest}");
}
