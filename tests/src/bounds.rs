//! The table of tolerances: the only place in which a test says how far a result may lie from the
//! oracle's.
//!
//! | result | must be | because |
//! | --- | --- | --- |
//! | u8 from u8 | `oracle::bytes` | whole taps have one exact sum, in any order |
//! | u8 from u8, outside a constant that is no byte | refused | whole numbers have no other pixels |
//! | all else, direct | the bits of `oracle::scalar::direct`, converted once | one order, fused, for every variant and device |
//! | all else, separable | the bits of `oracle::scalar::summed`, converted once | likewise |
//! | all else, product | the bits of `oracle::scalar::product`, converted once | likewise |
//! | `Border::Keep`'s copies | the source value, converted | nothing is computed |
//! | all else, Fourier | within [`bound`] of the oracle, converted once | transforms round in no order that is promised |
//! | the same, with a pixel beyond [`room`] in the window | the bits of `oracle::scalar::direct` | such tiles are computed tap by tap |
//! | the scalar references | within [`bound`] of the oracle | see there |
//!
//! Two NaNs are equal whatever their payload; beyond that, bits are bits, and -0 is not 0.

use oracle::Order;

use crate::problem::Window;

/// Half an ulp of 1: the relative error of one rounding to f32.
const UNIT: f64 = f32::EPSILON as f64 / 2.0;

/// The least subnormal.
const LEAST: f64 = f32::from_bits(1) as f64;

/// The greatest pixel with which no sum in an order can leave f32. Beyond it nothing is to be said
/// of a sum but its bits.
pub fn room(order: Option<Order>, window: &Window) -> f64 {
    // What a row pass makes may be greater than the result, if the column's taps are small.
    let (weight, of_row, _) = weights(order, window);
    let most = f64::from(f32::MAX);
    (most / 2.0 / weight.max(of_row)).min(most)
}

/// The sizes of all taps that an order takes added up; and those of a row's, and of a column's,
/// where it takes them apart.
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

/// How far an order's sum in f32 may lie from the exact one: `k * unit * sum|tap| * max|pixel|`.
///
/// - A tap rounded to f32 is off by one unit, and each fused multiply-add rounds once. A direct sum
///   has `cols * rows` of them behind one rounded tap: k = `cols * rows + 1`.
/// - A separable sum passes `cols` roundings in its row and `rows` in its column, with a rounded
///   tap in each: k = `cols + rows + 2`; with more terms, `rows` for each of them, and two for the
///   pixel's own factor. The filter's own factors may differ from taps that were given as a whole
///   by [`Window::split_error`], which the product documents and which is added.
/// - A product's sum multiplies each pixel with two rounded taps, and rounds in between: k =
///   `cols * rows + 3`.
/// - A product of spectra, which has no order, promises k = [`oracle::SPECTRAL_STEPS`], whatever
///   the window; numbers as small as a subnormal's error are added up over a tile.
/// - Errors compound: `k` roundings make `k * unit / (1 - k * unit)`.
/// - A result that underflows loses up to half the least subnormal at each step, whatever its size;
///   in a row pass the column's taps then multiply it.
/// - So does a tap that is subnormal as an f32; the pixels, and the other factor's taps, then
///   multiply it.
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
