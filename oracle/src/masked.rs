//! Sums over known pixels, by definition: images of products and of weights, filtered one after the
//! other.

use apron::{Border, Filter, Shape};

use crate::{Order, Products, Whole, bytes_of_image, bytes_weighted_by_alpha, constant, with_taps};

/// An image, and a weight for each of its values.
#[derive(Clone, Copy, Debug)]
pub struct Weighted<'a, P> {
    /// Values, channels interleaved.
    pub values: &'a [P],
    /// As many weights; 0 is unknown.
    pub weights: &'a [P],
    /// The image's size.
    pub shape: Shape,
}

/// The results in the order of a family, to the last bit: an average is
/// `sum(w m p) / (sum(w m) / sum(w))`, and of taps that do not sum to 1 it is `sum(w m p)`. Where
/// no pixel is known, it is `unknown`.
pub fn masked(
    order: Order,
    Weighted { values, weights, shape }: Weighted<'_, f32>,
    filter: &Filter,
    border: Border,
    unknown: f32,
) -> Vec<f32> {
    let product =
        |(&value, &weight): (&f32, &f32)| if weight == 0.0 { 0.0 } else { value * weight };
    let products: Vec<f32> = values.iter().zip(weights).map(product).collect();
    let of_weights =
        if matches!(border, Border::Constant(_)) { Border::Constant(1.0) } else { border };
    let sums = order.filter_image(&products, shape, filter, border);
    let below = order.filter_image(weights, shape, filter, of_weights);
    let one = Shape { width: 1, height: 1, channels: 1 };
    let ones = order.filter_image(&[1.0], one, filter, Border::Replicate)[0];

    let taps = with_taps(filter, |taps| taps.values.to_vec());
    let is_quotient = (taps.iter().sum::<f64>() - 1.0).abs() <= 1e-6;
    let is_average = is_quotient && taps.iter().all(|&tap| tap >= 0.0);
    let sizes = if is_average {
        below.clone()
    } else {
        let sizes = magnitudes(filter);
        let order = if Products::of(&sizes).is_none() { Order::Direct } else { order };
        order.filter_image(weights, shape, &sizes, of_weights)
    };
    let result = |((sum, below), size): ((f32, f32), f32)| match (is_quotient, is_average) {
        (true, true) if below == 0.0 => unknown,
        (true, false) if below.abs() <= 1e-6 * size => unknown,
        (true, _) => sum / (below / ones),
        _ if size == 0.0 => unknown,
        _ => sum,
    };
    sums.into_iter().zip(below).zip(sizes).map(result).collect()
}

/// The filter with each tap's magnitude; as a row and a column, if it has them.
fn magnitudes(filter: &Filter) -> Filter {
    let of = |taps: &[f64]| taps.iter().map(|tap| tap.abs()).collect::<Vec<_>>();
    let made = match filter.separated() {
        Some((row, column)) => Filter::separable_f64(&of(row), &of(column)),
        None => {
            with_taps(filter, |taps| Filter::from_taps_f64(taps.cols, taps.rows, &of(taps.values)))
        }
    };
    let (x, y) = filter.anchor();
    made.and_then(|filter| filter.anchored(x, y)).expect("magnitudes of finite taps are taps")
}

/// The bytes of averages over an image of bytes under a mask of bytes, and 0 where no pixel is
/// known.
///
/// # Panics
/// As [`bytes`](crate::bytes), and for [`Border::Constant`].
pub fn masked_bytes(
    Weighted { values, weights, shape }: Weighted<'_, u8>,
    filter: &Filter,
    whole: &Whole,
    border: Border,
) -> Vec<u8> {
    assert_eq!(constant(border), 0.0, "outside there is a pixel that is known");
    let Shape { width, height, channels } = shape;
    let mut dst = bytes_of_image(values, shape, whole, border);
    // Where a pixel that is not known entirely lies under the window.
    let unknown: Vec<f64> = weights.iter().map(|&byte| f64::from(byte != 255)).collect();
    let window = vec![1.0; filter.cols() * filter.rows()];
    for channel in 0..channels {
        let part =
            |all: &[u8]| all.iter().skip(channel).step_by(channels).copied().collect::<Vec<_>>();
        let (plane, mask) = (part(values), part(weights));
        let pairs: Vec<u8> = plane.iter().zip(&mask).flat_map(|(&p, &m)| [p, m]).collect();
        let pair = Shape { channels: 2, ..shape };
        let found = bytes_weighted_by_alpha(&pairs, pair, whole, border);
        let unknown: Vec<f64> = unknown.iter().skip(channel).step_by(channels).copied().collect();
        let (cols, rows, anchor) = (filter.cols(), filter.rows(), filter.anchor());
        let taps = crate::Taps { cols, rows, anchor, values: &window };
        let outside = if border == Border::None { Border::Constant(1.0) } else { border };
        let touched = crate::correlate(&unknown, (width, height), taps, outside);
        for (at, _) in touched.iter().enumerate().filter(|(_, count)| **count > 0.5) {
            dst[at * channels + channel] = found[2 * at];
        }
    }
    dst
}
