//! Plain references in f32: one set of loops for each promised order of additions.
//!
//! Every variant of a family, on every device, and every study of an order must give these bits.

use apron::Border;
use multiversion::multiversion;

use crate::{Padded, Products, Taps, constant, keep};

/// The direct family: one sum a pixel, taps row by row, left to right, fused multiply-add.
pub fn direct(
    plane: &[f32],
    (width, height): (usize, usize),
    taps: Taps,
    border: Border,
) -> Vec<f32> {
    let padded = Padded::new(plane, (width, height), taps, border, constant(border));
    let narrow: Vec<f32> = taps.values.iter().map(|&tap| tap as f32).collect();
    rows(plane, (width, height), taps, border, |y, sums| {
        for (row, across) in narrow.chunks(taps.cols).enumerate() {
            for (col, &tap) in across.iter().enumerate() {
                accumulate(tap, &padded.data[(y + row) * padded.width + col..][..width], sums);
            }
        }
    })
}

/// The separable family, for a filter that is one product: see [`summed`].
pub fn separable(
    plane: &[f32],
    size: (usize, usize),
    taps: Taps,
    pair: (&[f64], &[f64]),
    border: Border,
) -> Vec<f32> {
    summed(plane, size, taps, &Products { centre: 0.0, terms: vec![pair] }, border)
}

/// The separable family. For each product, the row taps filter every row of the padded plane, and
/// the results are rounded to f32. The column taps then filter these results: for each tap in
/// ascending order, first those of the first product, then the others. Last comes the pixel times
/// its factor, unless the factor is 0. Each result is one sum of fused multiply-adds.
pub fn summed(
    plane: &[f32],
    (width, height): (usize, usize),
    taps: Taps,
    products: &Products<'_>,
    border: Border,
) -> Vec<f32> {
    let padded = Padded::new(plane, (width, height), taps, border, constant(border));
    let middles: Vec<Vec<f32>> = products
        .terms
        .iter()
        .map(|(row_taps, _)| {
            let mut middle = vec![0.0; width * (height + taps.rows - 1)];
            for (sums, values) in middle.chunks_mut(width).zip(padded.data.chunks(padded.width)) {
                for (col, &tap) in row_taps.iter().enumerate() {
                    accumulate(tap as f32, &values[col..][..width], sums);
                }
            }
            middle
        })
        .collect();
    rows(plane, (width, height), taps, border, |y, sums| {
        for row in 0..taps.rows {
            for ((_, column_taps), middle) in products.terms.iter().zip(&middles) {
                accumulate(column_taps[row] as f32, &middle[(y + row) * width..][..width], sums);
            }
        }
        if products.centre as f32 != 0.0 {
            accumulate(products.centre as f32, &plane[y * width..][..width], sums);
        }
    })
}

/// The order of products: one sum a pixel, taps column by column, top to bottom. The pixel times
/// the row tap is rounded; a fused multiply-add with the column tap adds it to the sum.
pub fn product(
    plane: &[f32],
    (width, height): (usize, usize),
    taps: Taps,
    (row_taps, column_taps): (&[f64], &[f64]),
    border: Border,
) -> Vec<f32> {
    let padded = Padded::new(plane, (width, height), taps, border, constant(border));
    rows(plane, (width, height), taps, border, |y, sums| {
        for (col, &across) in row_taps.iter().enumerate() {
            for (row, &down) in column_taps.iter().enumerate() {
                let values = &padded.data[(y + row) * padded.width + col..][..width];
                let products: Vec<f32> = values.iter().map(|value| value * across as f32).collect();
                accumulate(down as f32, &products, sums);
            }
        }
    })
}

/// A result whose rows begin as zero and are summed by `add`. Pixels that the border keeps are
/// copied.
fn rows(
    plane: &[f32],
    (width, height): (usize, usize),
    taps: Taps,
    border: Border,
    add: impl Fn(usize, &mut [f32]),
) -> Vec<f32> {
    let mut result = vec![0.0; width * height];
    for (y, sums) in result.chunks_mut(width).enumerate() {
        add(y, sums);
        if border == Border::Keep {
            keep(taps, y, (width, height), &plane[y * width..][..width], sums);
        }
    }
    result
}

/// Adds `tap` times each value to its sum. The versions for other instruction sets only serve
/// speed: a fused multiply-add gives the same bits in each.
#[multiversion(targets("x86_64+avx2+fma"))]
fn accumulate(tap: f32, values: &[f32], sums: &mut [f32]) {
    for (sum, &value) in sums.iter_mut().zip(values) {
        *sum = tap.mul_add(value, *sum);
    }
}
