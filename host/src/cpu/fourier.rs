//! Correlation as a product of spectra, tile by tile: what `gpu-kernels/src/fourier.rs` does, within the same error, with
//! tiles as large as the window wants and rustfft's transforms.

use std::sync::Arc;

use gpu_kernels::border::KEEP;
use rayon::prelude::*;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};

use super::{Window, leaves, resolve};
use crate::pixels::Planes;
use crate::{Filter, spectrum, tuning};

/// A window's spectra, for tiles of one size.
pub(super) struct Spectra {
    size: usize,
    /// Beyond it, and where a pixel is not finite, a tile is computed tap by tap.
    greatest: f32,
    parts: Vec<Part>,
    forward: Arc<dyn Fft<f32>>,
    inverse: Arc<dyn Fft<f32>>,
}

/// The part of the window from column `left` and row `top` on.
struct Part {
    left: usize,
    top: usize,
    cols: usize,
    rows: usize,
    /// Columns as rows, as a tile has them after its second transform.
    spectrum: Vec<Complex<f32>>,
}

impl std::fmt::Debug for Spectra {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Spectra({} of {}x{})", self.parts.len(), self.size, self.size)
    }
}

impl Spectra {
    pub(super) fn new(filter: &Filter) -> Self {
        let (cols, rows) = (filter.cols() as i32, filter.rows() as i32);
        let size = tuning::cpu_tile(cols, rows);
        let mut parts = Vec::new();
        for (top, rows) in tuning::fourier_parts(rows, size) {
            for (left, cols) in tuning::fourier_parts(cols, size) {
                let [left, top, cols, rows] = [left, top, cols, rows].map(|number| number as usize);
                let taps = |x: usize, y: usize| filter.tap(top + y, left + x);
                let mut spectrum = spectrum::of_taps(size as usize, (cols, rows), taps);
                spectrum::transpose(&mut spectrum, size as usize);
                let spectrum = spectrum.iter().map(|value| Complex::new(value.re as f32, value.im as f32)).collect();
                parts.push(Part { left, top, cols, rows, spectrum });
            }
        }
        let mut planner = FftPlanner::new();
        let size = size as usize;
        Self {
            size,
            greatest: spectrum::greatest_pixel(filter.weight()),
            parts,
            forward: planner.plan_fft_forward(size),
            inverse: planner.plan_fft_inverse(size),
        }
    }
}

/// What one thread works in.
struct Work {
    tile: Vec<Complex<f32>>,
    scratch: Vec<Complex<f32>>,
}

pub(super) fn run(window: &Window, taps: &[f32], spectra: &Spectra, src: Planes<'_>, dst: &mut [f32]) {
    let (width, height, size) = (src.width, src.height, spectra.size);
    let scratch = spectra.forward.get_inplace_scratch_len().max(spectra.inverse.get_inplace_scratch_len());
    let zeros = |len: usize| vec![Complex::default(); len];
    for (index, part) in spectra.parts.iter().enumerate() {
        let rows = size + 1 - part.rows;
        dst.par_chunks_mut(width * height).zip(src.data.par_chunks(width * height)).for_each(|(dst, plane)| {
            dst.par_chunks_mut(width * rows).enumerate().for_each_init(
                || Work { tile: zeros(size * size), scratch: zeros(scratch) },
                |work, (band, out)| {
                    let band = Band { window, taps, spectra, part, plane, width, height, top: band * rows };
                    band.filter(work, out, index > 0);
                },
            );
        });
    }
    if window.border == KEEP {
        dst.par_chunks_mut(width).zip(src.data.par_chunks(width)).enumerate().for_each(|(y, (out, input))| {
            let whole = leaves(y % height, window.anchor_y, window.rows, height);
            for (x, (out, &pixel)) in out.iter_mut().zip(input).enumerate() {
                if whole || leaves(x, window.anchor_x, window.cols, width) {
                    *out = pixel;
                }
            }
        });
    }
}

/// As many rows of results as a tile gives.
struct Band<'a> {
    window: &'a Window,
    taps: &'a [f32],
    spectra: &'a Spectra,
    part: &'a Part,
    plane: &'a [f32],
    width: usize,
    height: usize,
    top: usize,
}

impl Band<'_> {
    /// Filters the band's tiles by twos: one as real, one as imaginary parts. `adds` to what `out` holds, or replaces it.
    fn filter(&self, work: &mut Work, out: &mut [f32], adds: bool) {
        let cols = self.spectra.size + 1 - self.part.cols;
        let put = |out: &mut f32, value: f32| *out = if adds { *out + value } else { value };
        for left in (0..self.width).step_by(2 * cols) {
            let tame = self.load(work, left, cols);
            if tame {
                self.multiply(work);
            }
            for (y, out) in out.chunks_mut(self.width).enumerate() {
                let row = &work.tile[y * self.spectra.size..][..cols];
                for (x, out) in out[left..].iter_mut().enumerate().take(2 * cols) {
                    let value = match row.get(x) {
                        _ if !tame => self.by_taps(left + x, self.top + y),
                        Some(value) => value.re,
                        None => row[x - cols].im,
                    };
                    put(out, value);
                }
            }
        }
    }

    /// Fills the tile with the pixels that two tiles' results need; returns whether spectra have room for all of them.
    fn load(&self, work: &mut Work, left: usize, cols: usize) -> bool {
        let (part, window, size) = (self.part, self.window, self.spectra.size);
        let mut tame = true;
        for (y, row) in work.tile.chunks_mut(size).enumerate() {
            let source =
                self.row(self.top + y, part.top).map(|source| &self.plane[source * self.width..][..self.width]);
            let pixel = |x: usize| {
                let column = resolve(window.border, x, part.left, window.anchor_x, self.width);
                source.zip(column).map_or(window.border_value, |(source, column)| source[column])
            };
            let first = (left + part.left).checked_sub(window.anchor_x);
            let whole = source.zip(first).and_then(|(source, first)| source.get(first..first + cols + size));
            match whole {
                Some(pixels) => {
                    for ((value, &re), &im) in row.iter_mut().zip(pixels).zip(&pixels[cols..]) {
                        *value = Complex { re, im };
                    }
                }
                None => {
                    for (x, value) in row.iter_mut().enumerate() {
                        *value = Complex { re: pixel(left + x), im: pixel(left + cols + x) };
                    }
                }
            }
            let greatest = self.spectra.greatest;
            tame &= row.iter().all(|value| value.re.abs() <= greatest && value.im.abs() <= greatest);
        }
        tame
    }

    /// Where row `y` of the window's part finds its pixels.
    fn row(&self, y: usize, offset: usize) -> Option<usize> {
        resolve(self.window.border, y, offset, self.window.anchor_y, self.height)
    }

    /// Transforms the tile, multiplies it with the part's spectrum, and transforms back the rows that are results.
    fn multiply(&self, Work { tile, scratch }: &mut Work) {
        let Spectra { size, forward, inverse, .. } = self.spectra;
        forward.process_with_scratch(tile, scratch);
        spectrum::transpose(tile, *size);
        forward.process_with_scratch(tile, scratch);
        tile.iter_mut().zip(&self.part.spectrum).for_each(|(value, factor)| *value *= factor);
        inverse.process_with_scratch(tile, scratch);
        spectrum::transpose(tile, *size);
        inverse.process_with_scratch(&mut tile[..size * (size + 1 - self.part.rows)], scratch);
    }

    /// One result, tap by tap.
    fn by_taps(&self, x: usize, y: usize) -> f32 {
        let (part, window) = (self.part, self.window);
        let mut sum = 0.0;
        for row in part.top..part.top + part.rows {
            let source = self.row(y, row).map(|source| &self.plane[source * self.width..][..self.width]);
            for col in part.left..part.left + part.cols {
                let column = resolve(window.border, x, col, window.anchor_x, self.width);
                let value = source.zip(column).map_or(window.border_value, |(source, column)| source[column]);
                sum = self.taps[row * window.cols + col].mul_add(value, sum);
            }
        }
        sum
    }
}
