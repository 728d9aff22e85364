//! One channel of interleaved pixels, as a line of numbers and back.

use super::real::Real;
use crate::image::Pixel;
use crate::simd::{Lanes, Vectorized};

/// One channel of a row as numbers; the row begins with that channel.
pub(super) struct ReadChannel<'a, S, E> {
    pub(super) row: &'a [S],
    pub(super) channels: usize,
    pub(super) line: &'a mut [E],
}

impl<S: Pixel, E: Real> ReadChannel<'_, S, E> {
    /// One pixel in so many values: vectors come of a number that the compiler knows.
    #[inline(always)]
    fn each(self, channels: usize) {
        // The last pixel may lack the channels behind its own.
        let Some((last, line)) = self.line.split_last_mut() else { return };
        for (value, pixel) in line.iter_mut().zip(self.row.chunks_exact(channels)) {
            *value = E::of(pixel[0].to_f32().into());
        }
        *last = E::of(self.row[line.len() * channels].to_f32().into());
    }
}

impl<S: Pixel, E: Real> Vectorized for ReadChannel<'_, S, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        match self.channels {
            1 => match E::as_floats(self.line) {
                Some(line) => S::widen(&self.row[..line.len()], line),
                None => self.each(1),
            },
            2 => self.each(2),
            3 => self.each(3),
            4 => self.each(4),
            channels => self.each(channels),
        }
    }
}

/// Sums as results in a channel's places.
pub(super) struct StoreChannel<'a, D, E> {
    pub(super) sums: &'a mut [E],
    pub(super) out: &'a mut [D],
    pub(super) channels: usize,
    pub(super) channel: usize,
}

impl<D: Pixel, E: Real> Vectorized for StoreChannel<'_, D, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Self { sums, out, channels, channel } = self;
        match E::as_floats(sums) {
            // The last pair of tiles may reach beyond the image.
            Some(sums) if channels == 1 => D::narrow(&sums[..out.len()], out),
            _ => {
                let out = out[channel..].iter_mut().step_by(channels);
                out.zip(sums).for_each(|(out, sum)| *out = D::from_f32(sum.to_f32()));
            }
        }
    }
}
