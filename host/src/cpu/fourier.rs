//! Correlation as a product of spectra, tile by tile, with the error bound of `gpu-kernels/src/kernels/fourier/tiles.rs`. The size of
//! the tiles depends on the window, and rustfft transforms their lines: rows as they are loaded; columns a few at a time, which are then
//! multiplied and transformed back while they are in the cache; then the rows of results, which are added up at once. In f64 where 8-bit results are rounded: their error bound,
//! [`spectrum::error_in_f64`], is so small that hardly a result is in doubt.

use std::sync::Arc;

use gpu_kernels::border::KEEP;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftNum, FftPlanner};

use super::share::share;
use crate::image::{ImageView, ImageViewMut, Pixel};
use crate::progress::Stage;
use crate::round::{self, Rounder};
use crate::simd::{self, Float, Isa, Lanes};
use crate::spectrum::Part;
use crate::window::Window;
use crate::{Filter, Result, spectrum};

/// A type that spectra are computed in.
pub(super) trait Real: Float + FftNum + Default {
    /// The size of tiles for a window.
    const TILE: fn(cols: i32, rows: i32) -> i32;

    /// A part's spectrum over taps of this type.
    fn spectrum(part: &Part, filter: &Filter, size: usize) -> Result<Vec<Complex<f64>>>;
}

impl Real for f32 {
    const TILE: fn(i32, i32) -> i32 = spectrum::cpu_tile;

    fn spectrum(part: &Part, filter: &Filter, size: usize) -> Result<Vec<Complex<f64>>> {
        part.spectrum(filter, size)
    }
}

impl Real for f64 {
    const TILE: fn(i32, i32) -> i32 = spectrum::exact_tile;

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
        let size = E::TILE(filter.cols() as i32, filter.rows() as i32);
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

/// Columns that are transformed together: of complex numbers in f32, as many as a cache line holds.
const TOGETHER: usize = 8;

/// A thread's memory.
#[derive(Default)]
struct Work<E> {
    /// A pair of tiles, one as real, one as imaginary parts. Rows lie further apart than their length, a power of two, so that a column's
    /// values do not compete for places in the cache.
    tile: Vec<Complex<E>>,
    stride: usize,
    /// Some columns, one after the other.
    columns: Vec<Complex<E>>,
    scratch: Vec<Complex<E>>,
    /// A row of pixels under a pair of tiles.
    line: Vec<E>,
    /// The image column under each of them.
    under: Vec<Option<usize>>,
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
            self.line = crate::memory::zeroed(spectra.cols + spectra.size)?;
            self.columns = crate::memory::zeroed(TOGETHER * spectra.size)?;
            self.stride = spectra.size + TOGETHER;
            self.tile = crate::memory::zeroed(spectra.size * self.stride)?;
        }
        Ok(())
    }
}

/// Filters the first `filtered` channels and copies the others. `taps` are for pixels that spectra have no room for, which a `rounder`
/// excludes. Each pair of tiles is a job.
pub(super) fn run<S: Pixel, D: Pixel, E: Real>(
    isa: Isa,
    (window, taps): (&Window, &[f32]),
    spectra: &Spectra<E>,
    rounder: Option<&Rounder<'_, E>>,
    src: &ImageView<'_, S>,
    (dst, filtered): (&mut ImageViewMut<'_, D>, usize),
    stage: &Stage<'_>,
) -> Result<()> {
    let (wide, channels) = (2 * spectra.cols, src.shape().channels);
    let mut jobs = Vec::new();
    for (band, rows) in dst.bands_mut(spectra.rows).enumerate() {
        let mut pairs: Vec<_> = (0..src.shape().width.div_ceil(wide))
            .map(|pair| ((pair * wide, band * spectra.rows), Vec::with_capacity(rows.len())))
            .collect();
        for row in rows {
            for ((_, parts), part) in pairs.iter_mut().zip(row.chunks_mut(wide * channels)) {
                parts.push(part);
            }
        }
        jobs.extend(pairs);
    }
    share(stage, jobs.into_iter(), |work: &mut Work<E>, (at, mut rows)| {
        work.start(spectra)?;
        for channel in 0..channels {
            let plane = Plane { isa, window, taps, spectra, rounder, src, channel, at };
            if channel < filtered {
                plane.filter(work, &mut rows);
            } else {
                plane.copy(&mut rows);
            }
        }
        Ok(())
    })
}

/// One channel, and a pair of tiles' results.
struct Plane<'a, S: Pixel, E: Real> {
    isa: Isa,
    window: &'a Window,
    taps: &'a [f32],
    spectra: &'a Spectra<E>,
    rounder: Option<&'a Rounder<'a, E>>,
    src: &'a ImageView<'a, S>,
    channel: usize,
    /// Column and row of the first result.
    at: (usize, usize),
}

impl<S: Pixel, E: Real> Plane<'_, S, E> {
    fn copy<D: Pixel>(&self, rows: &mut [&mut [D]]) {
        let (channels, (left, top)) = (self.src.shape().channels, self.at);
        for (y, out) in (top..).zip(rows) {
            let from = &self.src.row(y)[left * channels..];
            for (out, value) in out.iter_mut().zip(from).skip(self.channel).step_by(channels) {
                *out = D::from_f32(value.to_f32());
            }
        }
    }

    /// Filters a pair of tiles; each of the rows is a part of a row of results.
    fn filter<D: Pixel>(&self, work: &mut Work<E>, rows: &mut [&mut [D]]) {
        let (width, channels, cols) = (self.src.shape().width, self.src.shape().channels, self.spectra.cols);
        let (left, top) = self.at;
        work.sums.fill(E::default());
        let tame = self.spectra.parts.iter().all(|part| self.add(part, work, rows.len()));
        if !tame {
            for (y, sums) in (top..).zip(work.sums.chunks_mut(2 * cols)).take(rows.len()) {
                (left..width).zip(sums).for_each(|(x, sum)| *sum = E::of(self.by_taps(x, y).into()));
            }
        }
        for ((y, out), sums) in (top..).zip(rows.iter_mut()).zip(work.sums.chunks(2 * cols)) {
            let (border, height) = (self.window.border, self.src.shape().height);
            let whole = border == KEEP && self.window.leaves_rows(y, height);
            if let (Some(rounder), Some(out)) = (self.rounder, D::bytes_mut(out)) {
                rounder.store_channel(self.isa, sums, (left, y), self.channel, out, &mut work.rounder);
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

    /// Adds a part's products with a pair of tiles to their sums, in `rows` rows; false, and nothing is added, if
    /// a pixel is too large for spectra.
    fn add(&self, (part, spectrum): &(Part, Vec<Complex<E>>), work: &mut Work<E>, rows: usize) -> bool {
        let Spectra { size, cols, forward, inverse, .. } = self.spectra;
        if !self.load(part, work) {
            return false;
        }
        let Work { tile, stride, columns, scratch, sums, .. } = work;
        for (left, spectrum) in (0..*size).step_by(TOGETHER).zip(spectrum.chunks(TOGETHER * size)) {
            self.isa.run(Gather { tile, stride: *stride, left, columns });
            forward.process_with_scratch(columns, scratch);
            self.isa.run(Multiply { columns, spectrum });
            inverse.process_with_scratch(columns, scratch);
            self.isa.run(Scatter { columns, tile: &mut tile[..rows * *stride], stride: *stride, left });
        }
        for (row, sums) in tile.chunks_mut(*stride).zip(sums.chunks_mut(2 * cols)).take(rows) {
            inverse.process_with_scratch(&mut row[..*size], scratch);
            self.isa.run(AddUp { row, sums });
        }
        true
    }

    /// Fills the tile with the pixels that two tiles' results need, and transforms its rows; returns whether all pixels are small enough
    /// for spectra.
    fn load(&self, part: &Part, work: &mut Work<E>) -> bool {
        let (Spectra { cols, size, forward, .. }, channels) = (self.spectra, self.src.shape().channels);
        let (left, top) = self.at;
        let Work { tile, stride, line, under, scratch, .. } = work;
        under.clear();
        under.extend((left..left + cols + size).map(|x| self.column(x, part.left)));
        // The part that lies in the image is loaded at once, as nearly all of it does.
        let first = (left + part.left) as isize - self.window.anchor_x as isize;
        let len = line.len() as isize;
        let inside = (-first).clamp(0, len) as usize..(self.src.shape().width as isize - first).clamp(0, len) as usize;
        let mut tame = true;
        for (y, row) in (top..).zip(tile.chunks_mut(*stride)) {
            match self.row(y, part.top) {
                None => line.fill(E::of(self.window.border_value.into())),
                Some(source) => {
                    let row = &self.src.row(source)[self.channel..];
                    if !inside.is_empty() {
                        let pixels =
                            row[(first + inside.start as isize) as usize * channels..].iter().step_by(channels);
                        let line = line[inside.clone()].iter_mut();
                        line.zip(pixels).for_each(|(value, pixel)| *value = E::of(pixel.to_f32().into()));
                    }
                    for x in (0..inside.start).chain(inside.end.max(inside.start)..line.len()) {
                        let pixel = under[x].map_or(self.window.border_value, |x| row[x * channels].to_f32());
                        line[x] = E::of(pixel.into());
                    }
                }
            }
            let row = &mut row[..*size];
            tame &= self.isa.run(Pair { line, cols: *cols, row, greatest: E::of(self.spectra.greatest.into()) });
            forward.process_with_scratch(row, scratch);
        }
        tame
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

/// Two tiles' pixels of a row, side by side in a line, as complex numbers. Says whether none is too large.
struct Pair<'a, E> {
    line: &'a [E],
    cols: usize,
    row: &'a mut [Complex<E>],
    greatest: E,
}

impl<E: Real> simd::Work for Pair<'_, E> {
    type Output = bool;

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> bool {
        let mut tame = true;
        for ((value, &re), &im) in self.row.iter_mut().zip(self.line).zip(&self.line[self.cols..]) {
            tame &= (re.abs() <= self.greatest) & (im.abs() <= self.greatest);
            *value = Complex { re, im };
        }
        tame
    }
}

/// Some columns of a tile as rows.
struct Gather<'a, E> {
    tile: &'a [Complex<E>],
    stride: usize,
    left: usize,
    columns: &'a mut [Complex<E>],
}

impl<E: Real> simd::Work for Gather<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let size = self.columns.len() / TOGETHER;
        let mut columns = self.columns.chunks_exact_mut(size);
        let mut columns: [&mut [Complex<E>]; TOGETHER] = std::array::from_fn(|_| columns.next().unwrap_or_default());
        for (y, row) in self.tile.chunks_exact(self.stride).enumerate() {
            for (column, &value) in columns.iter_mut().zip(&row[self.left..][..TOGETHER]) {
                column[y] = value;
            }
        }
    }
}

/// The inverse of [`Gather`], for the first rows.
struct Scatter<'a, E> {
    columns: &'a [Complex<E>],
    tile: &'a mut [Complex<E>],
    stride: usize,
    left: usize,
}

impl<E: Real> simd::Work for Scatter<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let size = self.columns.len() / TOGETHER;
        for (y, row) in self.tile.chunks_exact_mut(self.stride).enumerate() {
            for (value, column) in row[self.left..][..TOGETHER].iter_mut().zip(self.columns.chunks_exact(size)) {
                *value = column[y];
            }
        }
    }
}

/// A product of spectra.
struct Multiply<'a, E> {
    columns: &'a mut [Complex<E>],
    spectrum: &'a [Complex<E>],
}

impl<E: Real> simd::Work for Multiply<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        self.columns.iter_mut().zip(self.spectrum).for_each(|(value, &factor)| *value = *value * factor);
    }
}

/// Adds a row of two tiles' results to their sums.
struct AddUp<'a, E> {
    row: &'a [Complex<E>],
    sums: &'a mut [E],
}

impl<E: Real> simd::Work for AddUp<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let (first, second) = self.sums.split_at_mut(self.sums.len() / 2);
        for ((first, second), value) in first.iter_mut().zip(second).zip(self.row) {
            *first = *first + value.re;
            *second = *second + value.im;
        }
    }
}
