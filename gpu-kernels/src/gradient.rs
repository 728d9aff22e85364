//! The gradient of an image: the arithmetic that the GPU and the CPU share. Each operation is
//! rounded, in this order.
//!
//! Each of the three rows around a pixel gives the difference `right - left` and the smoothed sum
//! of its three pixels. The three differences, smoothed, are the derivative along x. The last row's
//! smoothed sum minus the first row's is the derivative along y. The centre pixel does not
//! contribute.

use core::ops::Add;

/// `side * (first + last) + middle * centre`, for the weights `[side, centre]`. Order: the sum, its
/// product, then a fused multiply-add for the rest. `zero` is 0.
#[inline(always)]
pub fn smoothed<T: Copy + Add<Output = T>>(
    [first, middle, last]: [T; 3],
    [side, centre]: [T; 2],
    zero: T,
    fma: impl Fn(T, T, T) -> T,
) -> T {
    fma(centre, middle, fma(side, first + last, zero))
}

/// `dx * dx + dy * dy`: the second square first, then a fused multiply-add. The square root is the
/// magnitude.
#[inline(always)]
pub fn squares<T: Copy>(dx: T, dy: T, zero: T, fma: impl Fn(T, T, T) -> T) -> T {
    fma(dx, dx, fma(dy, dy, zero))
}

/// The angle of the gradient in radians, from -pi to pi. It is 0 where values rise to the right,
/// pi/2 where they rise downwards, and 0 without a slope. Its error is at most 5e-7.
///
/// The polynomial is Cephes' `atanf`, by Stephen Moshier.
#[inline(always)]
pub fn angle(dx: f32, dy: f32, fma: impl Fn(f32, f32, f32) -> f32) -> f32 {
    use core::f32::consts::{FRAC_PI_2, FRAC_PI_4, PI};
    const TAN_PI_8: f32 = 0.414_213_57;
    let (x, y) = (dx.abs(), dy.abs());
    let is_steep = x < y;
    let (low, high) = if is_steep { (x, y) } else { (y, x) };
    if high == 0.0 {
        return 0.0;
    }
    let ratio = low / high;
    let is_large = ratio > TAN_PI_8;
    let r = if is_large { (ratio - 1.0) / (ratio + 1.0) } else { ratio };
    let z = fma(r, r, 0.0);
    let p = fma(fma(fma(8.053_744_5e-2, z, -1.387_768_6e-1), z, 1.997_771_1e-1), z, -3.333_295e-1);
    let small = fma(fma(p, z, 0.0), r, r);
    let of_ratio = if is_large { FRAC_PI_4 + small } else { small };
    let quarter = if is_steep { FRAC_PI_2 - of_ratio } else { of_ratio };
    let half = if dx < 0.0 { PI - quarter } else { quarter };
    if dy < 0.0 { -half } else { half }
}
