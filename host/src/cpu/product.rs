//! Direct correlation whose taps are products, the twin of the first steps in `gpu-kernels/src/class.rs`: one accumulator a
//! pixel, taps column by column, top to bottom; `pixel * row tap` is rounded, and added by a fused multiply-add with the
//! column's tap.

use rayon::prelude::*;

use super::separable::Pair;
use super::{Window, resolve};
use crate::image::planes::Planes;

pub(super) fn run(window: &Window, pair: &Pair, src: Planes<'_>, dst: &mut [f32]) {
    let (width, height) = (src.width, src.height);
    let columns: Vec<_> =
        (0..width + window.cols - 1).map(|x| resolve(window.border, x, 0, window.anchor_x, width)).collect();
    dst.par_chunks_mut(width).enumerate().for_each(|(index, out)| {
        let (plane, y) = (index / height, index % height);
        let plane = &src.data[plane * width * height..][..width * height];
        out.fill(0.0);
        for (col, &across) in pair.row().iter().enumerate() {
            for (row, &down) in pair.column().iter().enumerate() {
                let line =
                    resolve(window.border, y, row, window.anchor_y, height).map(|y| &plane[y * width..][..width]);
                for (sum, &column) in out.iter_mut().zip(&columns[col..]) {
                    let value = line.zip(column).map_or(window.border_value, |(line, x)| line[x]);
                    *sum = (value * across).mul_add(down, *sum);
                }
            }
        }
    });
}
