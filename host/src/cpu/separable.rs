//! Separable correlation, the twin of `gpu-kernels/src/separable.rs`: a row pass into a plane of f32, then a column pass;
//! each a single accumulator, taps in ascending order, fused multiply-add.

use gpu_kernels::border::KEEP;
use multiversion::multiversion;
use rayon::prelude::*;

use super::{Window, leaves, resolve};
use crate::Result;
use crate::image::planes::Planes;

/// Pixels whose sums are held in registers at a time.
const LANES: usize = 32;

/// The two factors of a filter, as kernels use them.
#[derive(Debug)]
pub(super) struct Pair {
    row: Vec<f32>,
    column: Vec<f32>,
}

impl Pair {
    pub(super) fn new(row: &[f64], column: &[f64]) -> Self {
        let round = |taps: &[f64]| taps.iter().map(|&tap| tap as f32).collect();
        Self { row: round(row), column: round(column) }
    }

    pub(super) fn row(&self) -> &[f32] {
        &self.row
    }

    pub(super) fn column(&self) -> &[f32] {
        &self.column
    }
}

pub(super) fn run(window: &Window, pair: &Pair, src: Planes<'_>, dst: &mut [f32]) -> Result<()> {
    let (width, height) = (src.width, src.height);
    let mut middle = crate::memory::zeroed(src.data.len())?;
    middle.par_chunks_mut(width).zip(src.data.par_chunks(width)).for_each(|(out, input)| {
        row_pass(window, &pair.row, input, out);
    });
    // A row outside the image holds the border's value everywhere, and so does its filtered row everywhere the same.
    let outside = pair.row.iter().fold(0.0, |sum, &tap| tap.mul_add(window.border_value, sum));
    dst.par_chunks_mut(width).zip(src.data.par_chunks(width)).enumerate().for_each(|(index, (out, input))| {
        let (plane, y) = (index / height, index % height);
        let plane = &middle[plane * width * height..][..width * height];
        column_pass(window, &pair.column, outside, plane, height, y, out);
        if window.border == KEEP {
            keep(window, y, height, input, out);
        }
    });
    Ok(())
}

/// Filters one row along itself.
#[multiversion(targets("x86_64+avx512f+avx512vl+fma", "x86_64+avx2+fma"))]
fn row_pass(window: &Window, taps: &[f32], input: &[f32], out: &mut [f32]) {
    let width = input.len();
    let left = window.anchor_x.min(width);
    let right = (width + window.anchor_x + 1).saturating_sub(window.cols).clamp(left, width);
    for x in (0..left).chain(right..width) {
        let mut sum = 0.0;
        for (col, &tap) in taps.iter().enumerate() {
            let value = resolve(window.border, x, col, window.anchor_x, width)
                .map_or(window.border_value, |source| input[source]);
            sum = tap.mul_add(value, sum);
        }
        out[x] = sum;
    }
    let mut x = left;
    while x < right {
        let lanes = LANES.min(right - x);
        let mut sums = [0.0f32; LANES];
        let source = &input[x - window.anchor_x..];
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
        out[x..x + lanes].copy_from_slice(&sums[..lanes]);
        x += lanes;
    }
}

/// Filters one row of output along the columns of `plane`.
#[multiversion(targets("x86_64+avx512f+avx512vl+fma", "x86_64+avx2+fma"))]
fn column_pass(window: &Window, taps: &[f32], outside: f32, plane: &[f32], height: usize, y: usize, out: &mut [f32]) {
    let width = out.len();
    for (chunk, out) in out.chunks_mut(LANES).enumerate() {
        let mut sums = [0.0f32; LANES];
        for (row, &tap) in taps.iter().enumerate() {
            match resolve(window.border, y, row, window.anchor_y, height) {
                Some(source) => {
                    let values = &plane[source * width + chunk * LANES..];
                    if let Some(values) = values.get(..LANES) {
                        for (sum, &value) in sums.iter_mut().zip(values) {
                            *sum = tap.mul_add(value, *sum);
                        }
                    } else {
                        for (sum, &value) in sums.iter_mut().zip(values) {
                            *sum = tap.mul_add(value, *sum);
                        }
                    }
                }
                None => {
                    for sum in &mut sums {
                        *sum = tap.mul_add(outside, *sum);
                    }
                }
            }
        }
        out.copy_from_slice(&sums[..out.len()]);
    }
}

/// Copies the input wherever the window leaves the image.
fn keep(window: &Window, y: usize, height: usize, input: &[f32], out: &mut [f32]) {
    let width = input.len();
    if leaves(y, window.anchor_y, window.rows, height) {
        out.copy_from_slice(input);
        return;
    }
    for x in 0..width {
        if leaves(x, window.anchor_x, window.cols, width) {
            out[x] = input[x];
        }
    }
}
