//! A window's spectra for tiles of one size, and those that a plan keeps.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};

use super::cost;
use super::real::Real;
use super::special::{self, GREAT, INFINITE};
use crate::spectrum::{Part, Tile};
use crate::{Filter, Result, spectrum};

/// A window's spectra, for tiles of one size.
pub(super) struct Spectra<E> {
    /// A tile's columns and rows.
    pub(super) width: usize,
    pub(super) height: usize,
    /// Those that wrap-around does not reach, for any part.
    pub(super) cols: usize,
    pub(super) rows: usize,
    /// The greatest pixel of a transformed tile; with a greater one, results are computed tap by
    /// tap.
    pub(super) greatest: f32,
    /// Whether a pair of tiles with an infinity is mended, by two more correlations, as that takes
    /// less time than sums tap by tap. It depends on sizes alone, so a picture's chunks agree.
    mends: bool,
    /// Each part of the window, and its spectrum, column by column.
    pub(super) parts: Vec<(Part, Vec<Complex<E>>)>,
    /// For each part the spectra for infinite pixels, once there was one: of [`special::of_tap`].
    of_infinite: Vec<OnceLock<[Vec<Complex<E>>; 2]>>,
    /// Of rows and of columns, forward and inverse.
    pub(super) across: [Arc<dyn Fft<E>>; 2],
    pub(super) down: [Arc<dyn Fft<E>>; 2],
}

impl<E> std::fmt::Debug for Spectra<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Spectra({} of {}x{})", self.parts.len(), self.width, self.height)
    }
}

impl<E: Real> Spectra<E> {
    fn new(filter: &Filter, tile: Tile) -> Result<Self> {
        let (width, height) = (tile.width as usize, tile.height as usize);
        let mut parts = Vec::new();
        for part in spectrum::parts(filter, (tile.width, tile.height)) {
            let spectrum = rounded(&part.by_columns(filter, (width, height), E::tap)?)?;
            parts.push((part, spectrum));
        }
        let mut planner = FftPlanner::new();
        let mut plan = |len| [planner.plan_fft_forward(len), planner.plan_fft_inverse(len)];
        let cols = width + 1 - parts.first().map_or(1, |(part, _)| part.cols);
        let rows = height + 1 - parts.first().map_or(1, |(part, _)| part.rows);
        let mended = (3 * parts.len()) as f64 * tile.time(E::PRECISION);
        Ok(Self {
            width,
            height,
            cols,
            rows,
            mends: mended <= (2 * cols * rows) as f64 * cost::direct(filter.cols() * filter.rows()),
            greatest: spectrum::greatest_pixel(filter.weight()),
            of_infinite: parts.iter().map(|_| OnceLock::new()).collect(),
            parts,
            across: plan(width),
            down: plan(height),
        })
    }

    fn bytes(&self) -> usize {
        let of_infinite = self.of_infinite.iter().filter_map(OnceLock::get).flatten();
        let spectra = self.parts.iter().map(|(_, spectrum)| spectrum).chain(of_infinite);
        spectra.map(|spectrum| size_of_val(spectrum.as_slice())).sum()
    }

    /// The kinds of pixels that leave a pair of tiles to sums tap by tap.
    pub(super) fn left(&self, part: &Part) -> u8 {
        if self.mends && self.counts(part) { GREAT } else { GREAT | INFINITE }
    }

    /// Whether the counts of infinite pixels under a part are off by less than a half. They add up
    /// to at most its taps.
    fn counts(&self, part: &Part) -> bool {
        let (taps, side) =
            ((part.cols * part.rows) as f64, ((self.width * self.height) as f64).sqrt());
        spectrum::units(taps, taps.sqrt(), side) * E::EPSILON < 0.5
    }

    /// The spectra for infinite pixels and a part of the window, of `cols` columns of taps.
    pub(super) fn of_infinite(
        &self,
        number: usize,
        taps: &[E],
        cols: usize,
    ) -> Result<&[Vec<Complex<E>>; 2]> {
        let part = &self.parts[number].0;
        crate::memory::once(&self.of_infinite[number], || {
            let spectrum = |which: usize| {
                let tap =
                    |y, x| special::of_tap(taps[(part.top + y) * cols + part.left + x])[which];
                rounded(&spectrum::of_taps((self.height, self.width), (part.rows, part.cols), tap)?)
            };
            Ok([spectrum(0)?, spectrum(1)?])
        })
    }
}

/// A spectrum in the precision in which tiles are transformed.
fn rounded<E: Real>(exact: &[Complex<f64>]) -> Result<Vec<Complex<E>>> {
    let mut spectrum = crate::memory::reserve(exact.len())?;
    spectrum.extend(exact.iter().map(|value| Complex::new(E::of(value.re), E::of(value.im))));
    Ok(spectrum)
}

/// The spectra that were made last, for tiles of several sizes: one plan may filter images of
/// several widths.
#[derive(Debug)]
pub(super) struct Cache<E>(Mutex<Vec<Arc<Spectra<E>>>>);

impl<E> Default for Cache<E> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<E: Real> Cache<E> {
    /// Bytes that are kept, unless the last spectra alone have more.
    const ROOM: usize = 64 << 20;

    /// The spectra for images of this width.
    pub(super) fn of(&self, filter: &Filter, width: usize) -> Result<Arc<Spectra<E>>> {
        self.of_tile(filter, tile::<E>(filter, width))
    }

    /// The same for the tiles that other spectra have.
    pub(super) fn like<F>(&self, filter: &Filter, other: &Spectra<F>) -> Result<Arc<Spectra<E>>> {
        self.of_tile(filter, Tile { width: other.width as i32, height: other.height as i32 })
    }

    fn of_tile(&self, filter: &Filter, tile: Tile) -> Result<Arc<Spectra<E>>> {
        let held = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |spectra: &Arc<Spectra<E>>| {
            (spectra.width, spectra.height) == (tile.width as usize, tile.height as usize)
        };
        let known = held().iter().find(|spectra| is_it(spectra)).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let spectra = Arc::new(Spectra::new(filter, tile)?);
        let mut held = held();
        // Another thread may have been faster.
        if !held.iter().any(is_it) {
            held.push(Arc::clone(&spectra));
            while held.len() > 1
                && held.iter().map(|spectra| spectra.bytes()).sum::<usize>() > Self::ROOM
            {
                held.remove(0);
            }
        }
        Ok(spectra)
    }
}

fn tile<E: Real>(filter: &Filter, width: usize) -> Tile {
    Tile::new(E::PRECISION, (filter.cols() as i32, filter.rows() as i32), width as i32)
}

/// Rows of results in a tile, in f32.
pub(super) fn step(filter: &Filter, width: usize) -> usize {
    let Tile { height, .. } = tile::<f32>(filter, width);
    let longest = spectrum::cut(filter.rows() as i32, height).next().map_or(1, |(_, rows)| rows);
    (height + 1 - longest) as usize
}
