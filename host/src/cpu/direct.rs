//! Direct correlation, the twin of `gpu-kernels/src/direct.rs`: one accumulator a pixel, taps row by row, left to right,
//! fused multiply-add. Where the processor has no such instruction the result is the same and slower.

use gpu_kernels::border::KEEP;
use multiversion::multiversion;
use rayon::prelude::*;

use super::{Window, leaves, resolve};
use crate::image::planes::Planes;

/// Pixels whose sums are held in registers at a time.
const LANES: usize = 32;

pub(super) fn run(window: &Window, taps: &[f32], src: Planes<'_>, dst: &mut [f32]) {
    let (width, height) = (src.width, src.height);
    dst.par_chunks_mut(width).enumerate().for_each(|(index, out)| {
        let (plane, y) = (index / height, index % height);
        let plane = &src.data[plane * width * height..][..width * height];
        filter_row(window, taps, plane, width, height, y, out);
    });
}

/// One row of output.
#[multiversion(targets("x86_64+avx512f+avx512vl+fma", "x86_64+avx2+fma"))]
fn filter_row(window: &Window, taps: &[f32], plane: &[f32], width: usize, height: usize, y: usize, out: &mut [f32]) {
    let input = &plane[y * width..][..width];
    if window.border == KEEP && leaves(y, window.anchor_y, window.rows, height) {
        out.copy_from_slice(input);
        return;
    }
    // From `left` to `right` the window stays inside the row.
    let left = window.anchor_x.min(width);
    let right = (width + window.anchor_x + 1).saturating_sub(window.cols).clamp(left, width);
    let source_row = |row: usize| {
        resolve(window.border, y, row, window.anchor_y, height).map(|source| &plane[source * width..][..width])
    };

    for x in (0..left).chain(right..width) {
        out[x] = if window.border == KEEP {
            input[x]
        } else {
            let mut sum = 0.0;
            for row in 0..window.rows {
                let source = source_row(row);
                for (col, &tap) in taps[row * window.cols..][..window.cols].iter().enumerate() {
                    let value = source
                        .zip(resolve(window.border, x, col, window.anchor_x, width))
                        .map_or(window.border_value, |(source, x)| source[x]);
                    sum = tap.mul_add(value, sum);
                }
            }
            sum
        };
    }

    let mut x = left;
    while x < right {
        let lanes = LANES.min(right - x);
        let mut sums = [0.0f32; LANES];
        for row in 0..window.rows {
            let taps = &taps[row * window.cols..][..window.cols];
            match source_row(row) {
                Some(source) => {
                    let source = &source[x - window.anchor_x..];
                    for (col, &tap) in taps.iter().enumerate() {
                        if let Some(values) = source.get(col..col + LANES) {
                            for (sum, &value) in sums.iter_mut().zip(values) {
                                *sum = tap.mul_add(value, *sum);
                            }
                        } else {
                            for (sum, &value) in sums.iter_mut().zip(&source[col..][..lanes]) {
                                *sum = tap.mul_add(value, *sum);
                            }
                        }
                    }
                }
                None => {
                    for &tap in taps {
                        for sum in &mut sums {
                            *sum = tap.mul_add(window.border_value, *sum);
                        }
                    }
                }
            }
        }
        out[x..x + lanes].copy_from_slice(&sums[..lanes]);
        x += lanes;
    }
}
