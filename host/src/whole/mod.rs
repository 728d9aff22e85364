//! Taps as whole numbers, in the forms that kernels for bytes multiply. The whole numbers that
//! define a byte are in `host/src/filter/whole.rs`; these forms are estimates of them, with a
//! bound.

pub(crate) mod products;
pub(crate) mod row;
pub(crate) mod window;

/// The greatest tap in three digits: 127 in each.
pub(crate) const GREATEST: f64 = 8_355_711.0;

/// A digit of a number to the base 256, -128 to 127, from the lowest on.
pub(crate) fn digit(number: impl Into<i64>, digit: u32) -> i8 {
    // What is left of a number after its lowest digit was taken off.
    let rest = (0..digit).fold(number.into(), |rest, _| (rest - i64::from(rest as i8)) >> 8);
    rest as i8
}
