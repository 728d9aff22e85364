//! Conversion between stored, interleaved pixels and planes of f32, on which kernels compute.

use crate::image::{ImageView, ImageViewMut, Pixel, Shape};
use crate::threads::{self, Effort};
use crate::{Error, Result};

/// The number of values in `channels` planes of this shape.
pub(crate) fn planes_len(shape: Shape, channels: usize) -> Result<usize> {
    shape
        .width
        .checked_mul(shape.height)
        .and_then(|n| n.checked_mul(channels))
        .ok_or(Error::HostMemory { bytes: usize::MAX })
}

/// Writes the first `channels` channels of `src` to planes.
pub(crate) fn split<P: Pixel>(src: &ImageView<'_, P>, channels: usize, planes: &mut [f32]) {
    let shape = src.shape();
    let (threads, rows) = shares(shape, planes.len());
    let parts = planes.chunks_mut(shape.width * rows).enumerate();
    threads::for_each(threads, parts, |(): &mut (), (part, lines)| {
        for (index, out) in (part * rows..).zip(lines.chunks_mut(shape.width)) {
            let (channel, y) = (index / shape.height, index % shape.height);
            debug_assert!(channel < channels);
            let row = src.row(y)[channel..].iter().step_by(shape.channels);
            for (out, &value) in out.iter_mut().zip(row) {
                *out = value.to_f32();
            }
        }
    });
}

/// Stores planes into all channels of `dst`.
pub(crate) fn interleave<D: Pixel>(planes: &[f32], dst: &mut ImageViewMut<'_, D>) {
    let shape = dst.shape();
    let (threads, rows) = shares(shape, planes.len());
    threads::for_each(threads, dst.bands_mut(rows).enumerate(), |(): &mut (), (band, lines)| {
        for (y, out) in (band * rows..).zip(lines) {
            for channel in 0..shape.channels {
                let plane = &planes[(channel * shape.height + y) * shape.width..][..shape.width];
                store(plane, out[channel..].iter_mut().step_by(shape.channels));
            }
        }
    });
}

/// The number of threads that convert `values` values, and the rows of one job.
fn shares(shape: Shape, values: usize) -> (usize, usize) {
    /// Nanoseconds to convert one value that is adjacent in memory to the next.
    const VALUE: f64 = 0.5;
    let effort =
        Effort { nanoseconds: VALUE * values as f64, bytes: (size_of::<f32>() * values) as f64 };
    let threads = effort.threads_now();
    (threads, shape.height.div_ceil(4 * threads).max(1))
}

fn store<'a, D: Pixel>(plane: &[f32], out: impl Iterator<Item = &'a mut D>) {
    out.zip(plane).for_each(|(out, &value)| *out = D::from_f32(value));
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::{Border, Device, Image, Plan};

    fn run<S: Pixel, D: Pixel>(
        filter: &str,
        border: Border,
        src: &[S],
        width: usize,
        channels: usize,
    ) -> Vec<D> {
        let plan = Plan::builder(filter.parse::<crate::Filter>().unwrap())
            .border(border)
            .device(Device::Cpu)
            .build()
            .unwrap();
        let height = src.len() / width / channels;
        let mut dst = Image::zeroed(width, height, channels).unwrap();
        plan.run(&ImageView::new(src, width, height, channels).unwrap(), &mut dst.view_mut())
            .unwrap();
        dst.into_vec()
    }

    #[test]
    fn a_wider_type_keeps_sign_and_fraction() {
        let steps = [10u8, 20, 40, 255];
        assert_eq!(
            run::<_, f32>("taps:-0.5 0 0.5", Border::Replicate, &steps, 4, 1),
            [5.0, 15.0, 117.5, 107.5]
        );
        assert_eq!(
            run::<_, f32>("taps:0.5 0 -0.5", Border::Replicate, &steps, 4, 1),
            [-5.0, -15.0, -117.5, -107.5]
        );
        assert_eq!(
            run::<_, f16>("taps:0.5 0 -0.5", Border::Replicate, &steps, 4, 1),
            [-5.0, -15.0, -117.5, -107.5].map(f16::from_f32)
        );
        assert_eq!(
            run::<_, u16>("taps:300", Border::Replicate, &steps, 4, 1),
            [3000, 6000, 12000, 65535]
        );
    }

    #[test]
    fn integers_round_half_to_even_and_saturate() {
        let values = [
            -1.0,
            -0.5,
            0.5,
            1.5,
            2.5,
            254.5,
            255.5,
            1e9,
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
        ];
        assert_eq!(
            run::<_, u8>("identity", Border::Wrap, &values, 11, 1),
            [0, 0, 0, 2, 2, 254, 255, 255, 0, 255, 0]
        );
        let values = [65534.5f32, 65535.5, 65536.0, 32767.5, 0.49999997, 8388607.5, -3e38];
        assert_eq!(
            run::<_, u16>("identity", Border::Wrap, &values, 7, 1),
            [65534, 65535, 65535, 32768, 0, 65535, 0]
        );
        assert_eq!(
            run::<_, u8>("taps:0.5", Border::Wrap, &[1u16, 3, 5, 600], 4, 1),
            [0, 2, 2, 255]
        );
        for value in u16::MIN..=u16::MAX {
            for offset in [-0.5, -0.49609375, 0.0, 0.49609375, 0.5] {
                let value = f32::from(value) + offset;
                assert_eq!(u16::from_f32(value), value.round_ties_even() as u16);
                assert_eq!(u8::from_f32(value), value.round_ties_even() as u8);
            }
        }
    }

    #[test]
    fn channels_do_not_mix() {
        let src: Vec<u16> = (0..3 * 4 * 5).map(|i| i * 7 % 31).collect();
        let whole: Vec<u16> = run("box:size=3", Border::Reflect, &src, 4, 3);
        for channel in 0..3 {
            let take =
                |values: &[u16]| values[channel..].iter().step_by(3).copied().collect::<Vec<_>>();
            assert_eq!(
                take(&whole),
                run::<_, u16>("box:size=3", Border::Reflect, &take(&src), 4, 1)
            );
        }
    }

    #[test]
    fn gaps_between_rows_are_neither_read_nor_written() {
        let (width, height, src_stride, dst_stride) = (5, 4, 9, 7);
        let mut src = vec![f32::NAN; src_stride * height];
        for y in 0..height {
            src[y * src_stride..][..width].fill(y as f32);
        }
        let mut dst = vec![0xa5u8; dst_stride * height];
        let plan = Plan::builder("gaussian:sigma=1".parse::<crate::Filter>().unwrap())
            .device(Device::Cpu)
            .build()
            .unwrap();
        plan.run(
            &ImageView::with_stride(&src, width, height, 1, src_stride).unwrap(),
            &mut ImageViewMut::with_stride(&mut dst, width, height, 1, dst_stride).unwrap(),
        )
        .unwrap();
        for row in dst.chunks(dst_stride) {
            assert!(row[..width].iter().all(|&value| value < 4));
            assert_eq!(row[width..], [0xa5; 2]);
        }
    }
}
