//! Gradients: both derivatives from one pass over the rows.
//!
//! A job is a band of rows. Of the last three rows it keeps the differences and the smoothed
//! pixels, each computed once. The arithmetic is that of `gpu-kernels/src/gradient.rs`, in the same
//! order, so the bits are the GPU's. Of bytes, f32 decides every magnitude: both derivatives and,
//! up to 255, the sum of their squares are whole numbers below 2^24, and no root of one is half way
//! between integers.

use gpu_kernels::gradient::{angle, smoothed, squares};

use super::share::share;
use crate::image::{ImageView, ImageViewMut, Pixel, Shape};
use crate::progress::Stage;
use crate::simd::{Isa, Lanes, Vectorized};
use crate::window::Window;
use crate::{Gradient, Result};

/// Rows of a band at least: at each end, two rows are read twice.
const LEAST: usize = 16;

/// Computes the gradient of the first `filtered` channels, and copies the others. `window` is the
/// gradient's.
pub(super) fn run<S: Pixel, D: Pixel>(
    isa: Isa,
    window: &Window,
    gradient: Gradient,
    src: &ImageView<'_, S>,
    dst: &mut ImageViewMut<'_, D>,
    filtered: usize,
    stage: &Stage<'_>,
) -> Result<()> {
    let Shape { width, height, channels } = src.shape();
    let band = height.div_ceil(4 * stage.cut_for()).max(LEAST);
    share(stage, dst.bands_mut(band).enumerate(), |scratch: &mut Scratch, (index, rows)| {
        let first = index * band;
        scratch.start(width, channels)?;
        for (y, out) in (first..).zip(rows) {
            // Of the lines under the window, the last is new; of a band's first row, all are.
            for line in if y == first { y..y + 3 } else { y + 2..y + 3 } {
                scratch.pad(window, src, line);
                isa.run(Line { scratch, line, channels, weights: gradient.weights() });
            }
            isa.run(Root { scratch, y, gradient, out });
            window.restore(src, filtered, &(0..width), y, out);
        }
        Ok(())
    })
}

/// A thread's memory.
#[derive(Default)]
struct Scratch {
    /// A row with a pixel more on each side.
    padded: Vec<f32>,
    /// The differences of the last three rows, line `n` in place `n % 3`, and their smoothed
    /// pixels.
    across: [Vec<f32>; 3],
    along: [Vec<f32>; 3],
    results: Vec<f32>,
}

impl Scratch {
    fn start(&mut self, width: usize, channels: usize) -> Result<()> {
        if self.padded.is_empty() {
            let len = width * channels;
            for line in self.across.iter_mut().chain(&mut self.along).chain([&mut self.results]) {
                *line = crate::memory::zeroed(len)?;
            }
            self.padded = crate::memory::zeroed(len + 2 * channels)?;
        }
        Ok(())
    }

    /// Takes the row that lies under the window's first row at row `line`.
    fn pad<S: Pixel>(&mut self, window: &Window, src: &ImageView<'_, S>, line: usize) {
        let Shape { width, height, channels } = src.shape();
        let Some(y) = window.row(line, 0, height) else {
            return self.padded.fill(window.border_value);
        };
        let row = src.row(y);
        let end = self.padded.len() - channels;
        S::widen(row, &mut self.padded[channels..end]);
        for (at, column) in
            [(0, window.column(0, 0, width)), (end, window.column(width - 1, 2, width))]
        {
            let out = &mut self.padded[at..at + channels];
            match column {
                Some(x) => S::widen(&row[x * channels..(x + 1) * channels], out),
                None => out.fill(window.border_value),
            }
        }
    }
}

/// The differences and the smoothed pixels of the padded row, as line `line`.
struct Line<'a> {
    scratch: &'a mut Scratch,
    line: usize,
    channels: usize,
    weights: [f32; 2],
}

impl Vectorized for Line<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Scratch { padded, across, along, .. } = self.scratch;
        let (across, along) = (&mut across[self.line % 3], &mut along[self.line % 3]);
        let (left, middle, right) =
            (&padded[..], &padded[self.channels..], &padded[2 * self.channels..]);
        let pixels = left.iter().zip(middle).zip(right);
        for (((left, middle), right), (across, along)) in pixels.zip(across.iter_mut().zip(along)) {
            *across = right - left;
            *along = smoothed([*left, *middle, *right], self.weights, 0.0, f32::mul_add);
        }
    }
}

/// The results of row `y`.
struct Root<'a, D> {
    scratch: &'a mut Scratch,
    y: usize,
    gradient: Gradient,
    out: &'a mut [D],
}

impl<D: Pixel> Vectorized for Root<'_, D> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Self { y, gradient, .. } = self;
        let Scratch { across, along, results, .. } = self.scratch;
        let [first, middle, last] = [0, 1, 2].map(|row| &across[(y + row) % 3][..]);
        let across = first.iter().zip(middle).zip(last);
        let along = along[y % 3].iter().zip(&along[(y + 2) % 3]);
        let weights = gradient.weights();
        let each = across.zip(along).map(|(((first, middle), last), (above, below))| {
            (smoothed([*first, *middle, *last], weights, 0.0, f32::mul_add), below - above)
        });
        if gradient.is_angle() {
            results
                .iter_mut()
                .zip(each)
                .for_each(|(result, (dx, dy))| *result = angle(dx, dy, f32::mul_add));
        } else {
            let root = |(dx, dy)| squares(dx, dy, 0.0, f32::mul_add).sqrt();
            results.iter_mut().zip(each).for_each(|(result, slopes)| *result = root(slopes));
        }
        D::narrow(results, self.out);
    }
}
