//! Between interleaved stored pixels and the planes of f32 that kernels compute on.

use rayon::prelude::*;

use crate::exact::{Exact, Scratch};
use crate::image::{ImageView, ImageViewMut, Pixel, Shape};
use crate::{Border, Error, Family, Filter, Result};

/// Planes of f32, one after the other without gaps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planes<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) width: usize,
    pub(crate) height: usize,
}

impl<'a> Planes<'a> {
    pub(crate) fn new(data: &'a [f32], width: usize, height: usize) -> Self {
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
/// A variant of `family` made `planes` from `src` with `filter` and `border`. From 8 bits to 8 bits the results are those of
/// a computation in f64 (see [`crate::exact`]); everything else is the f32 value rounded once.
pub(crate) fn join<S: Pixel, D: Pixel>(
    planes: &[f32],
    src: &ImageView<'_, S>,
    dst: &mut ImageViewMut<'_, D>,
    channels: usize,
    filter: &Filter,
    border: Border,
    family: Family,
) -> Result<()> {
    let shape = src.shape();
    let exact = match src.as_bytes() {
        Some(src) if D::bytes_mut(&mut []).is_some() => Some(Exact::new(src, channels, filter, border, family)?),
        _ => None,
    };
    dst.rows_mut().enumerate().for_each_init(Scratch::default, |scratch, (y, row)| {
        for channel in 0..shape.channels {
            let out = &mut row[channel..];
            if channel < channels {
                let plane = &planes[(channel * shape.height + y) * shape.width..][..shape.width];
                match (&exact, D::bytes_mut(out)) {
                    (Some(exact), Some(out)) => exact.store(plane, channel, y, out, scratch),
                    _ => store(plane, out.iter_mut().step_by(shape.channels)),
                }
            } else {
                let copied = src.row(y)[channel..].iter().zip(out).step_by(shape.channels);
                copied.for_each(|(&value, out)| *out = D::from_f32(value.to_f32()));
            }
        }
    });
    Ok(())
}

/// Stores planes into all channels of `dst`.
#[cfg(feature = "gpu")]
pub(crate) fn interleave<D: Pixel>(planes: &[f32], dst: &mut ImageViewMut<'_, D>) {
    let shape = dst.shape();
    dst.rows_mut().enumerate().for_each(|(y, out)| {
        for channel in 0..shape.channels {
            let plane = &planes[(channel * shape.height + y) * shape.width..][..shape.width];
            store(plane, out[channel..].iter_mut().step_by(shape.channels));
        }
    });
}

fn store<'a, D: Pixel>(plane: &[f32], out: impl Iterator<Item = &'a mut D>) {
    out.zip(plane).for_each(|(out, &value)| *out = D::from_f32(value));
}
