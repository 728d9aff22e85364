//! Between interleaved stored pixels and the planes of f32 that kernels compute on.

use rayon::prelude::*;

use crate::image::{ImageView, ImageViewMut, Pixel, Shape};
use crate::{Border, Error, Filter, Result};

/// Planes of f32, one after the other without gaps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planes<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// Planes of f32 to write, one after the other without gaps.
#[derive(Debug)]
pub(crate) struct PlanesMut<'a> {
    pub(crate) data: &'a mut [f32],
    pub(crate) width: usize,
    pub(crate) height: usize,
}

impl<'a> Planes<'a> {
    pub(crate) fn new(data: &'a [f32], width: usize, height: usize) -> Self {
        Self { data, width, height }
    }
}

impl<'a> PlanesMut<'a> {
    pub(crate) fn new(data: &'a mut [f32], width: usize, height: usize) -> Self {
        Self { data, width, height }
    }
}

/// Elements of `channels` planes of this shape.
pub(crate) fn planes_len(shape: Shape, channels: usize) -> Result<usize> {
    shape
        .width
        .checked_mul(shape.height)
        .and_then(|n| n.checked_mul(channels))
        .ok_or(Error::HostMemory { bytes: usize::MAX })
}

/// Writes the first `channels` channels of `src` as planes.
pub(crate) fn split<P: Pixel>(src: &ImageView<'_, P>, channels: usize, planes: &mut [f32]) {
    let shape = src.shape();
    planes.par_chunks_mut(shape.width).enumerate().for_each(|(index, out)| {
        let (channel, y) = (index / shape.height, index % shape.height);
        debug_assert!(channel < channels);
        let row = src.row(y)[channel..].iter().step_by(shape.channels);
        for (out, &value) in out.iter_mut().zip(row) {
            *out = value.to_f32();
        }
    });
}

/// Stores planes into the first `channels` channels of `dst`; the other channels are copied from `src`.
///
/// `filter` and `border` made `planes` from `src`.
pub(crate) fn join<S: Pixel, D: Pixel>(
    planes: &[f32],
    src: &ImageView<'_, S>,
    dst: &mut ImageViewMut<'_, D>,
    channels: usize,
    filter: &Filter,
    border: Border,
) {
    let _ = (filter, border);
    let shape = src.shape();
    dst.rows_mut().enumerate().for_each(|(y, out)| {
        for channel in 0..shape.channels {
            let out = out[channel..].iter_mut().step_by(shape.channels);
            if channel < channels {
                let plane = &planes[(channel * shape.height + y) * shape.width..][..shape.width];
                out.zip(plane).for_each(|(out, &value)| *out = D::from_f32(value));
            } else {
                let row = src.row(y)[channel..].iter().step_by(shape.channels);
                out.zip(row).for_each(|(out, &value)| *out = D::from_f32(value.to_f32()));
            }
        }
    });
}
