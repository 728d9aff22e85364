//! References at single pixels.

use apron::{Border, Shape};

use crate::{Taps, Whole, byte_at, constant, fold, kept};

/// The shape of both images, whose channels are interleaved, and the range of the results.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Width, height and channels of both images.
    pub shape: Shape,
    /// The greatest integer, for results that are integers from zero.
    pub most: Option<f64>,
}

/// A wrong value of a result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wrong {
    /// Column and row of the pixel.
    pub at: (usize, usize),
    /// The value there.
    pub found: f64,
    /// The value in f64.
    pub expected: f64,
}

/// Compares up to a thousand values of a result, the corners included, with sums in f64. `slack` is
/// the error allowed beyond the rounding of each step. For 8-bit results of 8-bit images see
/// [`byte_spots`].
///
/// # Errors
/// The first value that is wrong.
pub fn spots<S: Copy + Into<f64>, D: Copy + Into<f64>>(
    taps: Taps,
    border: Border,
    Layout { shape, most }: Layout,
    (src, dst): (&[S], &[D]),
    slack: f64,
) -> Result<(), Wrong> {
    let Shape { width, height, channels } = shape;
    for (x, y, channel) in places(shape, taps.values.len()) {
        let index = |x: usize, y: usize| (y * width + x) * channels + channel;
        let Sum { mut value, scale } =
            sum(taps, border, (width, height), (x, y), |x, y| src[index(x, y)].into());
        // In f32, each tap, product and sum has a rounding error of at most half a unit in the last
        // place. An integer result adds a half.
        let mut bound = (taps.values.len() + 2) as f64 * f64::from(f32::EPSILON) * scale + slack;
        if let Some(most) = most {
            value = value.clamp(0.0, most);
            bound += 0.5;
        }
        let (across, down) =
            (kept(x, taps.anchor.0, taps.cols, width), kept(y, taps.anchor.1, taps.rows, height));
        if border == Border::Keep && (across || down) {
            (value, bound) = (src[index(x, y)].into(), 0.0);
        }
        let found: f64 = dst[index(x, y)].into();
        // NaN is not near.
        let near = (found - value).abs() <= bound;
        if !near {
            return Err(Wrong { at: (x, y), found, expected: value });
        }
    }
    Ok(())
}

/// Compares up to a thousand 8-bit results of an 8-bit image, the corners included, with
/// [`crate::bytes`].
///
/// # Errors
/// The first byte that is wrong.
pub fn byte_spots(
    whole: &Whole,
    border: Border,
    shape: Shape,
    (src, dst): (&[u8], &[u8]),
) -> Result<(), Wrong> {
    for (x, y, channel) in places(shape, whole.cols * whole.rows) {
        let index = |x: usize, y: usize| (y * shape.width + x) * shape.channels + channel;
        let right =
            byte_at((shape.width, shape.height), (x, y), whole, border, |x, y| src[index(x, y)]);
        let found = dst[index(x, y)];
        if found != right {
            return Err(Wrong { at: (x, y), found: found.into(), expected: right.into() });
        }
    }
    Ok(())
}

/// Column, row and channel of a thousand values, the corners first; of fewer under a large window.
fn places(
    Shape { width, height, channels }: Shape,
    taps: usize,
) -> impl Iterator<Item = (usize, usize, usize)> {
    /// Products that take about a second.
    const PRODUCTS: usize = 20_000_000;
    let mut random = fastrand::Rng::with_seed(1);
    (0..(PRODUCTS / taps.max(1)).clamp(20, 1000)).map(move |spot| {
        let (x, y) = match spot {
            0 => (0, 0),
            1 => (width - 1, 0),
            2 => (0, height - 1),
            3 => (width - 1, height - 1),
            _ => (random.usize(..width), random.usize(..height)),
        };
        (x, y, spot % channels)
    })
}

/// The sum of the products at one pixel, and the sum of their absolute values.
struct Sum {
    value: f64,
    scale: f64,
}

fn sum(
    taps: Taps,
    border: Border,
    (width, height): (usize, usize),
    (x, y): (usize, usize),
    pixel: impl Fn(usize, usize) -> f64,
) -> Sum {
    let outside = f64::from(constant(border));
    let mut sum = Sum { value: 0.0, scale: 0.0 };
    for (row, across) in taps.values.chunks(taps.cols).enumerate() {
        let source = fold(border, (y + row) as i64 - taps.anchor.1 as i64, height);
        for (col, tap) in across.iter().enumerate() {
            let at = fold(border, (x + col) as i64 - taps.anchor.0 as i64, width);
            let product = tap * at.zip(source).map_or(outside, |(x, y)| pixel(x, y));
            sum.value += product;
            sum.scale += product.abs();
        }
    }
    sum
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { at: (x, y), found, expected } = self;
        write!(f, "wrong result: {found} instead of {expected} at ({x}, {y})")
    }
}

impl std::error::Error for Wrong {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate;

    const BORDERS: [Border; 6] = [
        Border::Constant(0.5),
        Border::Replicate,
        Border::Reflect,
        Border::Reflect101,
        Border::Wrap,
        Border::Keep,
    ];

    fn random(count: usize, seed: u64) -> Vec<f64> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..count).map(|_| f64::from(random.f32()) - 0.25).collect()
    }

    /// An image of random planes and its correlation, both with interleaved channels.
    fn images(taps: Taps, border: Border, shape: Shape) -> (Vec<f64>, Vec<f64>) {
        let Shape { width, height, channels } = shape;
        let planes: Vec<_> =
            (0..channels as u64).map(|seed| random(width * height, seed)).collect();
        let results: Vec<_> =
            planes.iter().map(|plane| correlate(plane, (width, height), taps, border)).collect();
        let interleave = |planes: &[Vec<f64>]| -> Vec<f64> {
            (0..width * height).flat_map(|i| planes.iter().map(move |plane| plane[i])).collect()
        };
        (interleave(&planes), interleave(&results))
    }

    #[test]
    fn single_pixels_are_those_of_the_whole_plane_under_every_border() {
        // The second window reaches around the image more than once.
        for (cols, rows, anchor, (width, height)) in
            [(5, 4, (1, 3), (23, 17)), (11, 9, (10, 0), (4, 3))]
        {
            let values = random(cols * rows, 7);
            let taps = Taps { cols, rows, anchor, values: &values };
            let layout = Layout { shape: Shape { width, height, channels: 3 }, most: None };
            for computed in BORDERS {
                let (src, dst) = images(taps, computed, layout.shape);
                for checked in BORDERS {
                    let passes = spots(taps, checked, layout, (&src, &dst), 0.0).is_ok();
                    assert_eq!(
                        passes,
                        checked == computed,
                        "{cols}x{rows}: {computed} as {checked}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_wrong_value_is_named_and_nan_is_wrong() {
        let shape = Shape { width: 9, height: 5, channels: 1 };
        let values = random(9, 7);
        let taps = Taps { cols: 3, rows: 3, anchor: (1, 1), values: &values };
        let (src, dst) = images(taps, Border::Wrap, shape);
        for (value, slack) in [(dst[44] + 1e-3, 9e-4), (f64::NAN, 1e9)] {
            let mut changed = dst.clone();
            changed[44] = value;
            let layout = Layout { shape, most: None };
            let wrong = spots(taps, Border::Wrap, layout, (&src, &changed), slack).unwrap_err();
            assert_eq!((wrong.at, wrong.expected), ((8, 4), dst[44]));
        }
    }

    #[test]
    fn bytes_are_those_of_whole_taps() {
        let shape = Shape { width: 23, height: 17, channels: 3 };
        let filter = apron::Filter::from_taps(3, 1, &[0.3, -0.1, 0.8]).expect("legal taps");
        let whole = Whole::of(&filter);
        let mut rng = fastrand::Rng::with_seed(5);
        let src: Vec<u8> = (0..23 * 17 * 3).map(|_| rng.u8(..)).collect();
        let right = crate::bytes_of_image(&src, shape, &whole, Border::Wrap);
        assert_eq!(byte_spots(&whole, Border::Wrap, shape, (&src, &right)), Ok(()));
        assert!(byte_spots(&whole, Border::Keep, shape, (&src, &right)).is_err());
        let mut wrong = right.clone();
        wrong[0] ^= 1;
        let found =
            byte_spots(&whole, Border::Wrap, shape, (&src, &wrong)).expect_err("it is wrong");
        assert_eq!((found.at, found.expected), ((0, 0), right[0].into()));
    }

    #[test]
    fn integers_are_saturated_and_may_be_rounded_either_way() {
        let layout =
            Layout { shape: Shape { width: 4, height: 1, channels: 1 }, most: Some(255.0) };
        let taps = Taps { cols: 1, rows: 1, anchor: (0, 0), values: &[1.5] };
        let check =
            |dst: [u8; 4]| spots(taps, Border::Wrap, layout, (&[1, 2, 200, 0], &dst), 0.0).is_ok();
        assert!(check([2, 3, 255, 0]) && check([1, 3, 255, 0]));
        assert!(!check([2, 3, 44, 0]) && !check([2, 2, 255, 0]));
    }
}
