//! The studies' results on the CPU: apron's for the orders that it has, and one plain loop for the other.

use apron::{Border, Device, Error, Filter, Image, Plan, Result, Shape, Variant};
use rayon::prelude::*;
use study_kernels::border::{CONSTANT, resolve};

use crate::{Order, Problem, Study};

/// Filters `src` into `dst` in a study's order.
///
/// # Errors
/// [`Error::Unsupported`] if the study does not take the problem; [`Error::Mismatch`] if sizes differ; memory errors.
pub fn run(study: Study, filter: &Filter, border: Border, src: &Image<f32>, dst: &mut Image<f32>) -> Result<()> {
    study.check(&Problem { filter, border, shape: src.shape(), shared_memory: usize::MAX })?;
    let plan = |variant| Plan::builder(filter).border(border).device(Device::Cpu).variant(Some(variant)).build();
    match study.order() {
        Order::Direct => plan(Variant::DirectNaive)?.run(&src.view(), &mut dst.view_mut()),
        Order::Separable => plan(Variant::Separable)?.run(&src.view(), &mut dst.view_mut()),
        Order::Product => {
            *dst = product(filter, border, src)?;
            Ok(())
        }
    }
}

/// See [`Order::Product`], whose studies have a constant beyond the edge.
fn product(filter: &Filter, border: Border, src: &Image<f32>) -> Result<Image<f32>> {
    let (Some((row, column)), Border::Constant(constant)) = (filter.separated(), border) else {
        let reason = format!("its order is that of a row and a column under a constant border, not {border}");
        return Err(Error::Unsupported { variant: "product", reason });
    };
    let Shape { width, height, channels } = src.shape();
    let (anchor_x, anchor_y) = filter.anchor();
    let find = |at: usize, tap: usize, anchor: usize, extent: usize| {
        // Sizes are at most 2^29, so the sums stay in range.
        usize::try_from(resolve(CONSTANT, (at + tap) as i32 - anchor as i32, extent as i32)).ok()
    };
    let mut out = vec![0.0f32; src.as_slice().len()];
    out.par_chunks_mut(width * channels).enumerate().for_each(|(y, out)| {
        for (col, &across) in row.iter().enumerate() {
            for (row, &down) in column.iter().enumerate() {
                let line =
                    find(y, row, anchor_y, height).map(|y| &src.as_slice()[y * width * channels..][..width * channels]);
                for (i, sum) in out.iter_mut().enumerate() {
                    let x = find(i / channels, col, anchor_x, width);
                    let value = line.zip(x).map_or(constant, |(line, x)| line[x * channels + i % channels]);
                    *sum = (value * across as f32).mul_add(down as f32, *sum);
                }
            }
        }
    });
    Image::from_vec(out, width, height, channels)
}
