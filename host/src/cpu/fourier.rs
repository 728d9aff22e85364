//! Correlation as a product of spectra, tile by tile, with the error bound of `gpu-kernels/src/kernels/fourier/tiles.rs`. The size of
//! the tiles depends on the window, and rustfft transforms them. In f64 where 8-bit results are rounded: their error bound,
//! [`spectrum::error_in_f64`], is so small that hardly a result is in doubt.

use std::sync::Arc;

use gpu_kernels::border::KEEP;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftNum, FftPlanner};

use super::share::share;
use crate::image::{ImageView, ImageViewMut, Pixel};
use crate::progress::Stage;
use crate::round::{self, Rounder};
use crate::simd::{Float, Isa};
use crate::spectrum::Part;
use crate::window::Window;
use crate::{Filter, Result, spectrum};

/// A type that spectra are computed in.
pub(super) trait Real: Float + FftNum + Default {
    /// A part's spectrum over taps of this type.
    fn spectrum(part: &Part, filter: &Filter, size: usize) -> Result<Vec<Complex<f64>>>;
}

impl Real for f32 {
    fn spectrum(part: &Part, filter: &Filter, size: usize) -> Result<Vec<Complex<f64>>> {
        part.spectrum(filter, size)
    }
}

impl Real for f64 {
    fn spectrum(part: &Part, filter: &Filter, size: usize) -> Result<Vec<Complex<f64>>> {
        part.exact_spectrum(filter, size)
    }
}

/// A window's spectra, for tiles of one size.
pub(super) struct Spectra<E> {
    size: usize,
    /// Columns and rows of a tile that wrap-around does not reach, for any part.
    cols: usize,
    rows: usize,
    /// The greatest pixel of a transformed tile; beyond it, or with a pixel that is not finite, results are computed tap by tap.
    greatest: f32,
    /// Each part of the window, and its spectrum: columns as rows, as a tile has them after its second transform.
    parts: Vec<(Part, Vec<Complex<E>>)>,
    forward: Arc<dyn Fft<E>>,
    inverse: Arc<dyn Fft<E>>,
}

impl<E> std::fmt::Debug for Spectra<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Spectra({} of {}x{})", self.parts.len(), self.size, self.size)
    }
}

impl<E: Real> Spectra<E> {
    pub(super) fn new(filter: &Filter) -> Result<Self> {
        let size = spectrum::cpu_tile(filter.cols() as i32, filter.rows() as i32);
        let mut parts = Vec::new();
        for part in spectrum::parts(filter, size) {
            let mut exact = E::spectrum(&part, filter, size as usize)?;
            spectrum::transpose(&mut exact, size as usize);
            let mut spectrum = crate::memory::reserve(exact.len())?;
            spectrum.extend(exact.iter().map(|value| Complex::new(E::of(value.re), E::of(value.im))));
            parts.push((part, spectrum));
        }
        let mut planner = FftPlanner::new();
        let size = size as usize;
        Ok(Self {
            size,
            cols: size + 1 - parts.first().map_or(1, |(part, _)| part.cols),
            rows: size + 1 - parts.first().map_or(1, |(part, _)| part.rows),
            greatest: spectrum::greatest_pixel(filter.weight()),
            parts,
            forward: planner.plan_fft_forward(size),
            inverse: planner.plan_fft_inverse(size),
        })
    }
}

impl<E> Spectra<E> {
    /// Rows of results in a tile.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }
}

/// A thread's memory.
#[derive(Default)]
struct Work<E> {
    tile: Vec<Complex<E>>,
    scratch: Vec<Complex<E>>,
    /// The results of a pair of tiles, the second right of the first.
    sums: Vec<E>,
    rounder: round::Scratch,
}

impl<E: Real> Work<E> {
    /// Allocates the memory, unless that has been done.
    fn start(&mut self, spectra: &Spectra<E>) -> Result<()> {
        if self.tile.is_empty() {
            let transforms = [&spectra.forward, &spectra.inverse].map(|transform| transform.get_inplace_scratch_len());
            self.sums = crate::memory::zeroed(2 * spectra.cols * spectra.rows)?;
            self.scratch = crate::memory::zeroed(transforms[0].max(transforms[1]))?;
            self.tile = crate::memory::zeroed(spectra.size * spectra.size)?;
        }
        Ok(())
    }
}

/// Filters the first `filtered` channels and copies the others. `taps` are for pixels that spectra have no room for, which a `rounder`
/// excludes.
pub(super) fn run<S: Pixel, D: Pixel, E: Real>(
    window: &Window,
    taps: &[f32],
    spectra: &Spectra<E>,
    rounder: Option<(Isa, &Rounder<'_, E>)>,
    src: &ImageView<'_, S>,
    (dst, filtered): (&mut ImageViewMut<'_, D>, usize),
    stage: &Stage<'_>,
) -> Result<()> {
    share(stage, dst.bands_mut(spectra.rows).enumerate(), |work: &mut Work<E>, (band, mut rows)| {
        work.start(spectra)?;
        for channel in 0..src.shape().channels {
            let plane = Plane { window, taps, spectra, rounder, src, channel, top: band * spectra.rows };
            if channel < filtered {
                plane.filter(work, &mut rows);
            } else {
                plane.copy(&mut rows);
            }
        }
        Ok(())
    })
}

/// One channel, and the rows of results of the tiles that start at `top`.
struct Plane<'a, S: Pixel, E: Real> {
    window: &'a Window,
    taps: &'a [f32],
    spectra: &'a Spectra<E>,
    rounder: Option<(Isa, &'a Rounder<'a, E>)>,
    src: &'a ImageView<'a, S>,
    channel: usize,
    top: usize,
}

impl<S: Pixel, E: Real> Plane<'_, S, E> {
    fn copy<D: Pixel>(&self, rows: &mut [&mut [D]]) {
        let channels = self.src.shape().channels;
        for (y, out) in rows.iter_mut().enumerate() {
            for (out, value) in out.iter_mut().zip(self.src.row(self.top + y)).skip(self.channel).step_by(channels) {
                *out = D::from_f32(value.to_f32());
            }
        }
    }

    /// Filters tiles in pairs: one as real, one as imaginary parts.
    fn filter<D: Pixel>(&self, work: &mut Work<E>, rows: &mut [&mut [D]]) {
        let (width, channels, cols) = (self.src.shape().width, self.src.shape().channels, self.spectra.cols);
        for left in (0..width).step_by(2 * cols) {
            work.sums.fill(E::default());
            let tame = self.spectra.parts.iter().all(|part| self.add(part, work, left, rows.len()));
            if !tame {
                for (y, sums) in (self.top..).zip(work.sums.chunks_mut(2 * cols)).take(rows.len()) {
                    (left..width).zip(sums).for_each(|(x, sum)| *sum = E::of(self.by_taps(x, y).into()));
                }
            }
            for ((y, out), sums) in (self.top..).zip(rows.iter_mut()).zip(work.sums.chunks(2 * cols)) {
                let (border, height) = (self.window.border, self.src.shape().height);
                let whole = border == KEEP && self.window.leaves_rows(y, height);
                let out = &mut out[left * channels..];
                if let (Some((isa, rounder)), Some(out)) = (self.rounder, D::bytes_mut(out)) {
                    rounder.store_channel(isa, sums, (left, y), self.channel, out, &mut work.rounder);
                    if border != KEEP {
                        continue;
                    }
                }
                let every = out[self.channel..].iter_mut().step_by(channels);
                for ((x, out), &sum) in (left..).zip(every).zip(sums) {
                    let keep = whole || border == KEEP && self.window.leaves_columns(x, width);
                    if keep || self.rounder.is_none() {
                        *out = D::from_f32(if keep { self.pixel(Some(y), Some(x)) } else { sum.to_f32() });
                    }
                }
            }
        }
    }

    /// Adds a part's products with a pair of tiles to their sums, in `rows` rows; false, and nothing is added, if
    /// a pixel is too large for spectra.
    fn add(&self, (part, spectrum): &(Part, Vec<Complex<E>>), work: &mut Work<E>, left: usize, rows: usize) -> bool {
        let (size, cols) = (self.spectra.size, self.spectra.cols);
        if !self.load(part, work, left) {
            return false;
        }
        self.multiply(spectrum, work);
        let Work { tile, sums, .. } = work;
        for (y, sums) in sums.chunks_mut(2 * cols).enumerate().take(rows) {
            let (first, second) = sums.split_at_mut(cols);
            for ((first, second), value) in first.iter_mut().zip(second).zip(&tile[y * size..]) {
                *first = *first + value.re;
                *second = *second + value.im;
            }
        }
        true
    }

    /// Fills the tile with the pixels that two tiles' results need; returns whether all of them are small enough for spectra.
    fn load(&self, part: &Part, work: &mut Work<E>, left: usize) -> bool {
        let (cols, size, channels) = (self.spectra.cols, self.spectra.size, self.src.shape().channels);
        let mut tame = true;
        for (y, row) in work.tile.chunks_mut(size).enumerate() {
            let source = self.row(self.top + y, part.top);
            let first = (left + part.left).checked_sub(self.window.anchor_x);
            let inside = source.zip(first).filter(|(_, first)| first + cols + size <= self.src.shape().width);
            if let Some((source, first)) = inside {
                let pixels = self.src.row(source);
                let pixels = |column: usize| pixels[column * channels + self.channel..].iter().step_by(channels);
                for ((value, re), im) in row.iter_mut().zip(pixels(first)).zip(pixels(first + cols)) {
                    *value = Complex { re: E::of(re.to_f32().into()), im: E::of(im.to_f32().into()) };
                }
            } else {
                for (x, value) in (left..).zip(row.iter_mut()) {
                    let pixel = |x: usize| E::of(self.pixel(source, self.column(x, part.left)).into());
                    *value = Complex { re: pixel(x), im: pixel(x + cols) };
                }
            }
            let greatest = E::of(self.spectra.greatest.into());
            tame &= row.iter().all(|value| value.re.abs() <= greatest && value.im.abs() <= greatest);
        }
        tame
    }

    /// Transforms the tile, multiplies it with a part's spectrum, and transforms back the rows that are results.
    fn multiply(&self, spectrum: &[Complex<E>], Work { tile, scratch, .. }: &mut Work<E>) {
        let Spectra { size, rows, forward, inverse, .. } = self.spectra;
        forward.process_with_scratch(tile, scratch);
        spectrum::transpose(tile, *size);
        forward.process_with_scratch(tile, scratch);
        tile.iter_mut().zip(spectrum).for_each(|(value, &factor)| *value = *value * factor);
        inverse.process_with_scratch(tile, scratch);
        spectrum::transpose(tile, *size);
        inverse.process_with_scratch(&mut tile[..size * rows], scratch);
    }

    /// One result tap by tap, in the direct family's order.
    fn by_taps(&self, x: usize, y: usize) -> f32 {
        let mut sum = 0.0;
        for (row, taps) in self.taps.chunks(self.window.cols).enumerate() {
            let source = self.row(y, row);
            for (col, tap) in taps.iter().enumerate() {
                sum = tap.mul_add(self.pixel(source, self.column(x, col)), sum);
            }
        }
        sum
    }

    /// The image row under tap row `offset` of row `y`, if there is one.
    fn row(&self, y: usize, offset: usize) -> Option<usize> {
        self.window.row(y, offset, self.src.shape().height)
    }

    fn column(&self, x: usize, offset: usize) -> Option<usize> {
        self.window.column(x, offset, self.src.shape().width)
    }

    /// A pixel, or the border's value.
    fn pixel(&self, row: Option<usize>, column: Option<usize>) -> f32 {
        match (row, column) {
            (Some(y), Some(x)) => self.src.row(y)[x * self.src.shape().channels + self.channel].to_f32(),
            _ => self.window.border_value,
        }
    }
}
