use super::numbers::UNIT;
use super::*;
use crate::border::Border;
use crate::progress::Report;
use crate::round::Resolver;
use crate::round::tests::{BORDERS, defined};
use crate::{Filter, Image};

const SETS: [&str; 4] = ["portable", "avx2", "avx512", "neon"];

struct Random(u64);

impl Random {
    fn byte(&mut self) -> u8 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 56) as u8
    }
}

/// Symmetric taps with a sum of 1, unlike each other.
fn taps(len: usize, random: &mut Random) -> Vec<f64> {
    let half: Vec<f64> = (0..=len / 2).map(|_| f64::from(random.byte()) + 1.0).collect();
    let taps: Vec<f64> = (0..len).map(|i| half[i.abs_diff(len / 2)]).collect();
    let sum: f64 = taps.iter().sum();
    taps.iter().map(|tap| tap / sum).collect()
}

fn gaussian(len: usize, sigma: f64) -> Vec<f64> {
    let taps: Vec<f64> =
        (0..len).map(|i| (-(i.abs_diff(len / 2) as f64 / sigma).powi(2) / 2.0).exp()).collect();
    let sum: f64 = taps.iter().sum();
    taps.iter().map(|tap| tap / sum).collect()
}

/// Filters of every kind that is taken.
fn filters() -> Vec<Filter> {
    let mut random = Random(5);
    let mut filters: Vec<Filter> =
        ["box:size=3", "box:size=5", "gaussian:sigma=0.5"].map(|text| text.parse().unwrap()).into();
    for (row, column) in [(3, 3), (5, 5), (3, 5), (5, 1), (1, 3)] {
        filters.push(
            Filter::separable_f64(&taps(row, &mut random), &taps(column, &mut random)).unwrap(),
        );
    }
    // The sums of these are exact, and many are ties.
    filters.push(Filter::separable_f64(&[0.25, 0.5, 0.25], &[0.25, 0.5, 0.25]).unwrap());
    filters.push(Filter::separable_f64(&[0.5, 0.0, 0.5], &[1.0]).unwrap());
    filters.push(
        Filter::separable_f64(
            &[1.0, 4.0, 6.0, 4.0, 1.0].map(|tap| tap / 16.0),
            &[2.0, 4.0, 2.0].map(|tap| tap / 8.0),
        )
        .unwrap(),
    );
    // Many are ties in the exact arithmetic, which roundings decide.
    filters.push(Filter::separable_f64(&[0.1, 0.3, 0.1], &[1.0]).unwrap());
    // The weight lies in one factor, and the other's taps are negative.
    filters.push(Filter::separable_f64(&[-20.0, -60.0, -20.0], &[-0.001, -0.008, -0.001]).unwrap());
    // Taps whose factors have been found.
    filters.push(
        Filter::from_taps(
            3,
            3,
            &[0.0625, 0.125, 0.0625, 0.125, 0.25, 0.125, 0.0625, 0.125, 0.0625],
        )
        .unwrap(),
    );
    filters
}

fn picture(kind: usize, len: usize) -> Vec<u8> {
    let mut random = Random(len as u64 + 1);
    (0..len)
        .map(|i| match kind {
            0 => random.byte(),
            1 => (i * 3 % 256) as u8,
            2 => {
                if random.byte() < 128 {
                    0
                } else {
                    255
                }
            }
            _ => 200,
        })
        .collect()
}

fn check(
    filter: &Filter,
    border: Border,
    (width, height, channels): (usize, usize, usize),
    kind: usize,
) {
    let (window, byte_filter) = (Window::new(filter, border), filter.byte_filter().unwrap());
    let smooth = Smooth::new(&byte_filter.filter, &window).expect("a filter that is taken");
    let src =
        Image::from_vec(picture(kind, width * height * channels), width, height, channels).unwrap();
    let filtered = channels.min(3);
    let mut expected = src.as_slice().to_vec();
    for channel in 0..filtered {
        let plane: Vec<u8> = src.as_slice()[channel..].iter().step_by(channels).copied().collect();
        let plane = defined(&plane, (width, height), filter, border);
        expected[channel..]
            .iter_mut()
            .step_by(channels)
            .zip(plane)
            .for_each(|(to, byte)| *to = byte);
    }
    for isa in SETS.iter().filter_map(|name| Isa::named(name).ok()) {
        let mut found = Image::<u8>::zeroed(width, height, channels).unwrap();
        let resolver = Resolver::new(src.view(), filtered, byte_filter, border);
        let rounder = Rounder::in_f32(&resolver, Order::BlockPasses);
        let report = Report::default();
        let (call, mut view) = (report.call(0), found.view_mut());
        run(isa, &smooth, &window, &src.view(), (&mut view, filtered), &rounder, &call.stage(0, 0))
            .unwrap();
        let wrong =
            found.as_slice().iter().zip(&expected).position(|(found, expected)| found != expected);
        assert_eq!(
            wrong, None,
            "{isa:?}, {filter:?}, {border:?}, {width}x{height}x{channels}, picture {kind}"
        );
    }
}

#[test]
fn bytes_are_exact() {
    let shapes = [
        (1, 1),
        (1, 7),
        (9, 1),
        (2, 3),
        (3, 2),
        (5, 5),
        (63, 3),
        (64, 4),
        (65, 5),
        (127, 2),
        (128, 3),
        (129, 4),
    ];
    for filter in filters() {
        for (index, border) in BORDERS.into_iter().enumerate() {
            for (turn, &(width, height)) in shapes.iter().enumerate() {
                for channels in 1..=4 {
                    check(
                        &filter,
                        border,
                        (width, height, channels),
                        (index + turn + channels) % 4,
                    );
                }
            }
        }
        for (channels, kind) in [(1, 0), (1, 1), (3, 0), (3, 2), (4, 0), (2, 0)] {
            check(&filter, Border::Reflect101, (301, 120, channels), kind);
        }
    }
}

#[test]
fn gaussians_of_any_sigma_are_taken() {
    for sigma in [0.3, 0.5, 0.8, 1.1, 3.0, 100.0] {
        for len in [3, 5] {
            let taps = gaussian(len, sigma);
            let filter = Filter::separable_f64(&taps, &taps).unwrap();
            let smooth = Smooth::new(&filter, &Window::new(&filter, Border::Reflect101)).unwrap();
            assert!(
                smooth.margin <= if len == 3 { 5 } else { 8 },
                "{len} taps, sigma {sigma}: {}",
                smooth.margin
            );
            check(&filter, Border::Reflect101, (150, 100, 1), 0);
        }
    }
}

/// The bound holds for the pixels that are worst for it, among them those that lose most in every
/// product.
#[test]
fn sums_in_16_bits_are_within_their_bound() {
    let mut random = Random(9);
    for filter in filters() {
        let window = Window::new(&filter, Border::Reflect101);
        let smooth = Smooth::new(&filter, &window).unwrap();
        let product = |a: u32, tap: u16| (a * u32::from(tap)) >> 16;
        for turn in 0..20_000 {
            let dense = ROWS / 2;
            let pixels: [[u8; ROWS]; ROWS] = std::array::from_fn(|_| {
                std::array::from_fn(|_| match turn % 4 {
                    0 => random.byte(),
                    1 => {
                        if random.byte() < 128 {
                            0
                        } else {
                            255
                        }
                    }
                    2 => 255 - random.byte() % 4,
                    _ => random.byte() % 8,
                })
            });
            let column = |x: usize| -> u32 {
                let pair =
                    |k: usize| u32::from(pixels[dense - k][x]) + u32::from(pixels[dense + k][x]);
                let middle = product(u32::from(pixels[dense][x]) << 8, smooth.column[0]);
                middle + (1..TAPS).map(|k| product(pair(k) << 7, smooth.column[k])).sum::<u32>()
            };
            let columns: [u32; ROWS] = std::array::from_fn(column);
            assert!(columns.iter().all(|&sum| sum < 65536));
            let mean = |k: usize| (columns[dense - k] + columns[dense + k]).div_ceil(2);
            let across = (1..TAPS).map(|k| product(mean(k), smooth.row[k])).sum::<u32>();
            let sum = product(columns[dense], smooth.row[0]) + across + u32::from(smooth.bias);
            let mut exact = 0.0;
            for r in 0..window.rows {
                for c in 0..window.cols {
                    let (y, x) = (dense + r - window.anchor_y, dense + c - window.anchor_x);
                    exact += filter.tap(r, c) * f64::from(pixels[y][x]);
                }
            }
            let exact = exact * UNIT + 128.0;
            assert!(sum < 65536 && exact <= f64::from(sum), "{filter:?}: {exact}, {sum}");
            // The bound is rounded down, as what it is compared with is whole.
            assert!(
                exact > f64::from(sum) - f64::from(smooth.margin) - 1.0,
                "{filter:?}: {exact}, {sum}"
            );
        }
    }
}

#[test]
fn others_are_left_to_the_other_engines() {
    let refused = |filter: Filter, border: Border| {
        Smooth::new(&filter, &Window::new(&filter, border)).is_none()
    };
    let three = || Filter::separable_f64(&gaussian(3, 0.8), &gaussian(3, 0.8)).unwrap();
    assert!(!refused(three(), Border::Constant(255.0)));
    let separable = |row: &[f64], column: &[f64]| Filter::separable_f64(row, column).unwrap();
    for (row, column) in [
        (&[0.2, 0.5, 0.3][..], &[0.25, 0.5, 0.25][..]),
        (&[0.25, 0.5, 0.25], &[0.5, 0.5]),
        (&[-0.25, 1.5, -0.25], &[0.25, 0.5, 0.25]),
        (&[0.3, 0.5, 0.3], &[0.25, 0.5, 0.25]),
        (&[0.25, 0.5, 0.25], &[0.0, 0.0, 0.0]),
        (&[0.1; 7], &[0.1; 3]),
    ] {
        assert!(refused(separable(row, column), Border::Reflect101), "{row:?} by {column:?}");
    }
}
