//! Colours weighted by alpha: `sum(tap * (colour * alpha)) / sum(tap * alpha)`, and alpha's own
//! sum, in f64, and rounded once. Bytes made of bytes are exact: see [`super::weighted_bytes`].
//!
//! The sums are defined row by row, left to right, each product and each sum rounded
//! (`gpu-kernels/src/kernels/weighted.rs`). Where taps are kept as a row and a column, and nothing
//! is negative, a row pass and a column pass come first: their sums are off by a known part of
//! themselves, and only results that this could change are summed as defined.
//!
//! A job is a band of rows, whose row passes it keeps in a ring.

use std::ops::Range;

use super::bands::band;
use super::share::share;
use crate::image::{ImageView, ImageViewMut, Pixel, Shape};
use crate::progress::Stage;
use crate::simd::{Isa, Lanes, Vectorized};
use crate::window::Window;
use crate::{Filter, Result};

/// Filters all channels, of which the last is alpha.
pub(super) fn run<S: Pixel, D: Pixel>(
    isa: Isa,
    filter: &Filter,
    window: &Window,
    src: &ImageView<'_, S>,
    dst: &mut ImageViewMut<'_, D>,
    stage: &Stage<'_>,
) -> Result<()> {
    let Shape { width, height, channels } = src.shape();
    let factors = Factors::new(filter);
    let band = band(height, window.rows, 1, stage.cut_for());
    share(stage, dst.bands_mut(band).enumerate(), |scratch: &mut Scratch, (index, rows)| {
        scratch.start(window, src.shape(), factors.is_some())?;
        for (y, out) in (index * band..).zip(rows) {
            let near =
                factors.as_ref().filter(|factors| scratch.passes(isa, window, factors, src, y));
            match near {
                None => scratch.defined(isa, filter, window, src, y),
                Some(factors) => scratch.resolve(filter, window, factors.error, src, y, out),
            }
            if near.is_none() {
                for (sums, out) in
                    scratch.sums.chunks_exact(channels).zip(out.chunks_exact_mut(channels))
                {
                    store(sums, out);
                }
            }
            window.restore(src, channels, &(0..width), y, out);
        }
        Ok(())
    })
}

/// A pixel from its sums.
fn store<D: Pixel>(sums: &[f64], out: &mut [D]) {
    let weight = sums[sums.len() - 1];
    for (out, &sum) in out.iter_mut().zip(&sums[..sums.len() - 1]) {
        *out = D::from_f64(if weight == 0.0 { 0.0 } else { sum / weight });
    }
    out[sums.len() - 1] = D::from_f64(weight);
}

/// The factors of taps that are kept as such.
struct Factors<'a> {
    row: &'a [f64],
    column: &'a [f64],
    /// A result is off by at most this part of itself.
    error: f64,
}

impl<'a> Factors<'a> {
    /// Taps so small that a product of them and of pixels might be subnormal.
    const LEAST: f64 = 1e-150;

    fn new(filter: &'a Filter) -> Option<Self> {
        if filter.dense_f64().is_some() {
            return None;
        }
        let (row, column) = filter.separated()?;
        let least = |taps: &[f64]| {
            taps.iter().filter(|&&tap| tap != 0.0).fold(f64::INFINITY, |a, b| a.min(b.abs()))
        };
        if least(row) * least(column) < Self::LEAST
            || row.iter().chain(column).any(|&tap| tap < 0.0)
        {
            return None;
        }
        // Of both ways to sum: a rounding for each product and each sum, so in a quotient twice as
        // many, and those of the quotient.
        let roundings =
            row.len() as f64 * column.len() as f64 + (row.len() + column.len()) as f64 + 8.0;
        Some(Self { row, column, error: 4.0 * roundings * f64::EPSILON })
    }
}

/// A thread's memory.
#[derive(Default)]
struct Scratch {
    /// A row's products of colour and alpha, and its alpha, with the border's pixels on both sides.
    padded: Vec<f64>,
    /// Row passes.
    lines: Vec<f64>,
    /// Which line each place holds, and whether nothing in it is negative or no number.
    held: Vec<(usize, bool)>,
    sums: Vec<f64>,
}

impl Scratch {
    /// Begins a band: no line is known.
    fn start(
        &mut self,
        window: &Window,
        Shape { width, height, channels }: Shape,
        ring: bool,
    ) -> Result<()> {
        let len = width * channels;
        let slots = if ring { window.rows.min(height + 1) } else { 0 };
        if self.sums.is_empty() {
            self.padded =
                crate::memory::zeroed((width + window.cols - 1).saturating_mul(channels))?;
            self.lines = crate::memory::zeroed(slots.saturating_mul(len))?;
            self.held = crate::memory::reserve(slots)?;
            self.sums = crate::memory::zeroed(len)?;
        }
        self.held.clear();
        self.held.resize(slots, (usize::MAX, false));
        Ok(())
    }

    /// The sums of row `y` by a row pass and a column pass; false if something is negative or no
    /// number.
    fn passes<S: Pixel>(
        &mut self,
        isa: Isa,
        window: &Window,
        factors: &Factors<'_>,
        src: &ImageView<'_, S>,
        y: usize,
    ) -> bool {
        let Shape { width, height, channels } = src.shape();
        let len = self.sums.len();
        self.sums.fill(0.0);
        let mut counts = true;
        for (r, &tap) in factors.column.iter().enumerate() {
            // Each line of a small image has a fixed place; lines of a large one take places in
            // turn.
            let line = y + r;
            let small = height < window.rows;
            let slot = if small {
                window.row(line, 0, height).unwrap_or(height)
            } else {
                line % self.held.len()
            };
            let name = if small { slot } else { line };
            if self.held[slot].0 != name {
                self.held[slot] =
                    (name, pad(isa, window, src, line, &(0..width), &mut self.padded));
                let out = &mut self.lines[slot * len..(slot + 1) * len];
                out.fill(0.0);
                isa.run(Row { taps: factors.row, values: &self.padded, step: channels, out });
            }
            counts &= self.held[slot].1;
            let values = &self.lines[slot * len..(slot + 1) * len];
            isa.run(Row { taps: &[tap], values, step: channels, out: &mut self.sums });
        }
        counts
    }

    /// The sums of row `y` as they are defined.
    fn defined<S: Pixel>(
        &mut self,
        isa: Isa,
        filter: &Filter,
        window: &Window,
        src: &ImageView<'_, S>,
        y: usize,
    ) {
        self.sums.fill(0.0);
        let mut taps = vec![0.0; window.cols];
        let Shape { width, channels, .. } = src.shape();
        for r in 0..window.rows {
            taps.iter_mut().enumerate().for_each(|(col, tap)| *tap = filter.tap(r, col));
            pad(isa, window, src, y + r, &(0..width), &mut self.padded);
            isa.run(Row { taps: &taps, values: &self.padded, step: channels, out: &mut self.sums });
        }
    }

    /// Stores the results of row `y`; those that an error of this part of themselves could change
    /// are summed as defined.
    fn resolve<S: Pixel, D: Pixel>(
        &self,
        filter: &Filter,
        window: &Window,
        error: f64,
        src: &ImageView<'_, S>,
        y: usize,
        out: &mut [D],
    ) {
        let Shape { channels, .. } = src.shape();
        let mut sums = vec![0.0; channels];
        let (mut least, mut most) = (vec![D::default(); channels], vec![D::default(); channels]);
        for (x, (near, out)) in
            self.sums.chunks_exact(channels).zip(out.chunks_exact_mut(channels)).enumerate()
        {
            let bound = |factor: f64, out: &mut [D]| {
                let weight = near[channels - 1];
                for (out, &sum) in out.iter_mut().zip(&near[..channels - 1]) {
                    *out = D::from_f64(if weight == 0.0 { 0.0 } else { sum / weight * factor });
                }
                out[channels - 1] = D::from_f64(weight * factor);
            };
            bound(1.0 - error, &mut least);
            bound(1.0 + error, &mut most);
            if least == most {
                out.copy_from_slice(&least);
                continue;
            }
            sum_one(filter, window, src, (x, y), &mut sums);
            store(&sums, out);
        }
    }
}

/// For some columns of results, what lies under the window's first row at row `line`: products of
/// colours and alpha, and alpha, with the border's pixels on both sides. Says whether nothing in it
/// is negative or no number.
pub(super) fn pad<S: Pixel>(
    isa: Isa,
    window: &Window,
    src: &ImageView<'_, S>,
    line: usize,
    columns: &Range<usize>,
    padded: &mut [f64],
) -> bool {
    let Shape { width, height, channels } = src.shape();
    let outside = f64::from(window.border_value);
    let fill = |out: &mut [f64]| {
        out.fill(outside * outside);
        out[channels - 1] = outside;
    };
    let Some(y) = window.row(line, 0, height) else {
        padded.chunks_exact_mut(channels).for_each(fill);
        return outside >= 0.0;
    };
    let (row, start, end) = (src.row(y), columns.start, columns.end + window.cols - 1);
    // Where the image's columns lie as they follow each other: some do, wherever the anchor is.
    let inside = window.anchor_x.max(start)..(window.anchor_x + width).min(end);
    let pixels = &row
        [(inside.start - window.anchor_x) * channels..(inside.end - window.anchor_x) * channels];
    let out = &mut padded[(inside.start - start) * channels..(inside.end - start) * channels];
    let counts = isa.run(Products { row: pixels, channels, out });
    for at in (start..inside.start).chain(inside.end..end) {
        let out = &mut padded[(at - start) * channels..(at - start + 1) * channels];
        match window.column(at, 0, width) {
            Some(x) => {
                products(&row[x * channels..(x + 1) * channels], out);
            }
            None => fill(out),
        }
    }
    counts && outside >= 0.0
}

/// The sums of one pixel, as they are defined.
fn sum_one<S: Pixel>(
    filter: &Filter,
    window: &Window,
    src: &ImageView<'_, S>,
    (x, y): (usize, usize),
    sums: &mut [f64],
) {
    let Shape { width, height, channels } = src.shape();
    let outside = f64::from(window.border_value);
    sums.fill(0.0);
    for r in 0..window.rows {
        let row = window.row(y, r, height).map(|y| src.row(y));
        for col in 0..window.cols {
            let tap = filter.tap(r, col);
            let pixel = row
                .zip(window.column(x, col, width))
                .map(|(row, x)| &row[x * channels..(x + 1) * channels]);
            let alpha = pixel.map_or(outside, |pixel| pixel[channels - 1].to_f32().into());
            for (c, sum) in sums.iter_mut().enumerate() {
                let colour = pixel.map_or(outside, |pixel| pixel[c].to_f32().into());
                *sum += tap * if c + 1 == channels { alpha } else { colour * alpha };
            }
        }
    }
}

/// The products of a pixel's colours and its alpha, and its alpha; whether none is negative or no
/// number.
#[inline(always)]
fn products<S: Pixel>(pixel: &[S], out: &mut [f64]) -> bool {
    let alpha = f64::from(pixel[pixel.len() - 1].to_f32());
    let mut counts = alpha >= 0.0;
    let last = pixel.len() - 1;
    for (out, colour) in out[..last].iter_mut().zip(pixel) {
        *out = f64::from(colour.to_f32()) * alpha;
        counts &= *out >= 0.0;
    }
    out[last] = alpha;
    counts
}

/// [`products`] of a row.
struct Products<'a, S> {
    row: &'a [S],
    channels: usize,
    out: &'a mut [f64],
}

impl<S: Pixel> Vectorized for Products<'_, S> {
    type Output = bool;

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> bool {
        let pixels =
            self.row.chunks_exact(self.channels).zip(self.out.chunks_exact_mut(self.channels));
        pixels.fold(true, |counts, (pixel, out)| products(pixel, out) && counts)
    }
}

/// Adds to each sum a row of taps times its values, `step` apart, from left to right.
struct Row<'a> {
    taps: &'a [f64],
    values: &'a [f64],
    step: usize,
    out: &'a mut [f64],
}

impl Vectorized for Row<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        for (col, tap) in self.taps.iter().enumerate() {
            for (sum, value) in self.out.iter_mut().zip(&self.values[col * self.step..]) {
                *sum += tap * value;
            }
        }
    }
}
