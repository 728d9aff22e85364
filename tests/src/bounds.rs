//! The table of tolerances: the only place in which a test says how far a result may lie from the
//! oracle's.
//!
//! | result | must be | because |
//! | --- | --- | --- |
//! | u8 from u8 | `oracle::bytes` | whole-number taps have one exact sum, in any order |
//! | u8 from u8, border constant that is no byte | refused | sums of whole numbers need bytes |
//! | all else, direct | the bits of `oracle::scalar::direct`, converted once | every variant and device sums in one order, by fused multiply-adds |
//! | all else, separable | the bits of `oracle::scalar::summed`, converted once | likewise |
//! | all else, product | the bits of `oracle::scalar::product`, converted once | likewise |
//! | `Border::Keep`'s copies | the source value, converted | nothing is computed |
//! | all else, Fourier | within [`bound`] of the oracle, converted once | no order of roundings is promised |
//! | the same, with a pixel beyond [`room`] in the window | the bits of `oracle::scalar::direct` | kernels sum such results tap by tap |
//! | the scalar references | within [`bound`] of the oracle | see [`bound`] |
//!
//! All NaNs are equal. Other values are equal only if their bits are: -0 is not 0.

use oracle::Order;

use crate::problem::Window;

/// Half an ulp of 1: the relative error of one rounding to f32.
const UNIT: f64 = f32::EPSILON as f64 / 2.0;

/// The least subnormal.
const LEAST: f64 = f32::from_bits(1) as f64;

/// The greatest pixel with which no sum in this order can overflow f32. Beyond it a sum has
/// promised bits, but no error bound.
pub fn room(order: Option<Order>, window: &Window) -> f64 {
    // The sums of a row pass may be greater than the result, if the column's taps are small.
    let (weight, of_row, _) = weights(order, window);
    let most = f64::from(f32::MAX);
    (most / 2.0 / weight.max(of_row)).min(most)
}

/// The sum of the magnitudes of all taps in an order. Then the sums of the row's and of the
/// column's, where the order takes them separately.
fn weights(order: Option<Order>, window: &Window) -> (f64, f64, f64) {
    let weight = window.as_taps().weight();
    match (order, window.products()) {
        (Some(Order::Separable | Order::Product), Some(products)) => {
            let (all, of_row, of_column) = products.weights();
            (all.max(weight), of_row, of_column)
        }
        _ => (weight, 0.0, 0.0),
    }
}

/// How far a sum in f32 in this order may lie from the exact sum:
/// `k * unit * sum|tap| * max|pixel|`.
///
/// - A tap rounded to f32 is off by one unit, and each fused multiply-add rounds once. A direct sum
///   has `cols * rows` of them after one rounded tap: k = `cols * rows + 1`.
/// - A separable sum has `cols` roundings in its row and `rows` in its column, with a rounded tap
///   in each: k = `cols + rows + 2`. With several terms, each adds `rows` roundings and two rounded
///   taps; a centre tap counts as a term. If taps were given as a table, the filter's factors may
///   differ from them by [`Window::split_error`]. The product documents this difference, and the
///   bound adds it.
/// - A product's sum multiplies each pixel with two rounded taps, and rounds in between: k =
///   `cols * rows + 3`.
/// - A product of spectra has no order. It promises k = [`oracle::SPECTRAL_STEPS`], whatever the
///   window. Underflow errors add up over a tile.
/// - Errors compound: `k` roundings make `k * unit / (1 - k * unit)`.
/// - A result that underflows loses up to half the least subnormal at each step, whatever its size.
///   In a row pass the column's taps then multiply this loss.
/// - A tap that is subnormal as an f32 loses as much. The pixels, and the other factor's taps, then
///   multiply this loss.
///
/// Only for pixels within [`room`].
pub fn bound(order: Option<Order>, window: &Window, greatest_pixel: f64) -> f64 {
    let (steps, split, least) = match order {
        Some(Order::Direct) => (window.cols * window.rows + 1, 0.0, LEAST),
        Some(Order::Separable) => {
            let terms = window
                .products()
                .map_or(1, |products| products.terms.len() + usize::from(products.centre != 0.0));
            (window.cols + terms * window.rows + 2 * terms, window.split_error(), LEAST)
        }
        Some(Order::Product) => (window.cols * window.rows + 3, window.split_error(), LEAST),
        None => (oracle::SPECTRAL_STEPS, 0.0, 128.0 * 128.0 * LEAST),
    };
    let (weight, of_row, of_column) = weights(order, window);
    let scale = weight * greatest_pixel;
    let steps = steps as f64;
    let subnormal = (window.cols * window.rows) as f64
        * LEAST
        * greatest_pixel
        * of_row.max(of_column).max(1.0);
    let underflow = steps * least * weight.max(of_column).max(1.0);
    steps * UNIT / (1.0 - steps * UNIT) * scale + split * greatest_pixel + underflow + subnormal
}
