//! Whether a result is right.

use anyhow::{Result, bail, ensure};
use apron::{Filter, Image, Pixel};
use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

use crate::cases::Random;

/// What a result that is not computed in the families' fixed order may be off by, as a part of the sum of |tap| times the
/// greatest |pixel|: 16 units in the last place.
pub(crate) const TOLERANCE: f64 = 16.0 * f32::EPSILON as f64;

/// The XXH3 checksum of an image's stored bytes.
pub(crate) fn sum<P: Random>(image: &Image<P>) -> u64 {
    xxh3_64(bytemuck::cast_slice(image.as_slice()))
}

/// Holds an image to another one: every pixel's bits.
pub(crate) fn same<P: Random>(found: &Image<P>, expected: &Image<P>) -> Result<()> {
    let bytes = |pixel: &P| bytemuck::bytes_of(pixel).to_vec();
    let (left, right) = (found.as_slice(), expected.as_slice());
    ensure!(left.len() == right.len(), "wrong result: {} values instead of {}", left.len(), right.len());
    if bytemuck::cast_slice::<P, u8>(left) == bytemuck::cast_slice::<P, u8>(right) {
        return Ok(());
    }
    let wrong = |i: &usize| bytes(&left[*i]) != bytes(&right[*i]);
    let count = (0..left.len()).into_par_iter().filter(wrong).count();
    let at = (0..left.len()).find(wrong).unwrap_or(0);
    bail!("wrong result: {:?} instead of {:?} at {}, and {count} values in all", left[at], right[at], place(found, at));
}

/// The greatest difference between two images of one size; NaN anywhere counts as infinite.
pub(crate) fn difference<P: Pixel>(found: &Image<P>, expected: &Image<P>) -> f64 {
    let pairs = found.as_slice().par_iter().zip(expected.as_slice());
    let of_pair = |(left, right): (&P, &P)| {
        let difference = f64::from((left.to_f32() - right.to_f32()).abs());
        if difference.is_nan() { f64::INFINITY } else { difference }
    };
    pairs.map(of_pair).reduce(|| 0.0, f64::max)
}

/// Holds an image to another one within [`TOLERANCE`]; the greatest difference.
pub(crate) fn near(filter: &Filter, found: &Image<f32>, expected: &Image<f32>, greatest: f64) -> Result<f64> {
    let taps: f64 = (0..filter.rows())
        .flat_map(|r| (0..filter.cols()).map(move |c| (r, c)))
        .map(|(r, c)| filter.tap(r, c).abs())
        .sum();
    let (difference, bound) = (difference(found, expected), TOLERANCE * taps * greatest);
    ensure!(difference <= bound, "wrong result: off by {difference:e}, more than {bound:e}");
    Ok(difference)
}

/// A thousand values, those of the corners among them, against the definition computed in f64.
pub(crate) fn spots<P: Pixel>(filter: &Filter, src: &Image<P>, dst: &Image<P>) -> Result<()> {
    let shape = src.shape();
    let mut random = fastrand::Rng::with_seed(1);
    let (anchor_x, anchor_y) = filter.anchor();
    // Reflect101 for windows smaller than the image: one fold is enough.
    let fold = |i: isize, n: usize| if i < 0 { -i } else { i.min(2 * (n as isize - 1) - i) } as usize;
    for spot in 0..1000 {
        let (x, y) = match spot {
            0 => (0, 0),
            1 => (shape.width - 1, 0),
            2 => (0, shape.height - 1),
            3 => (shape.width - 1, shape.height - 1),
            _ => (random.usize(..shape.width), random.usize(..shape.height)),
        };
        let channel = spot % shape.channels;
        let (mut sum, mut scale) = (0.0f64, 0.0f64);
        for row in 0..filter.rows() {
            let source = src.view().row(fold((y + row) as isize - anchor_y as isize, shape.height));
            for col in 0..filter.cols() {
                let at = fold((x + col) as isize - anchor_x as isize, shape.width);
                let product = filter.tap(row, col) * f64::from(source[at * shape.channels + channel].to_f32());
                sum += product;
                scale += product.abs();
            }
        }
        let found = f64::from(dst.view().row(y)[x * shape.channels + channel].to_f32());
        // Each tap, product and sum in f32 is off by half a unit in the last place at most; an integer by a half more.
        let mut bound = (filter.cols() * filter.rows() + 2) as f64 * f64::from(f32::EPSILON) * scale;
        if P::NAME != f32::NAME {
            sum = sum.clamp(0.0, 255.0);
            bound += 0.5;
        }
        ensure!((found - sum).abs() <= bound, "wrong result: {found} instead of {sum} at ({x}, {y})");
    }
    Ok(())
}

fn place<P: Pixel>(image: &Image<P>, at: usize) -> String {
    let shape = image.shape();
    let pixel = at / shape.channels;
    format!("({}, {})", pixel % shape.width, pixel / shape.width)
}
