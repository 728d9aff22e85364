//! Spectra of taps, for the Fourier family on every device.

use rustfft::FftPlanner;
use rustfft::num_complex::Complex;

use crate::{Filter, Result, tuning};

/// The least and the greatest `sum |tap|` for which spectra in f32 have room.
pub(crate) const WEIGHTS: (f64, f64) = (1e-20, 1e30);

/// By how many units in the last place of `sum |tap| * max |pixel|` a result may be off; tests hold all devices to it.
pub(crate) const UNITS: f64 = 8.0;

/// The greatest pixel that a tile may have to be transformed, for taps whose sizes add up to `weight`: beyond it, sums
/// over the tile could leave f32.
pub(crate) fn greatest_pixel(weight: f64) -> f32 {
    (1e34 / weight).min(1e30) as f32
}

/// A part of a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) left: usize,
    pub(crate) top: usize,
    pub(crate) cols: usize,
    pub(crate) rows: usize,
}

/// The parts of a filter's window that tiles of `size` have room for, row by row. The first is as large as any.
pub(crate) fn parts(filter: &Filter, size: i32) -> impl Iterator<Item = Part> {
    let across: Vec<_> = tuning::fourier_parts(filter.cols() as i32, size).collect();
    tuning::fourier_parts(filter.rows() as i32, size).flat_map(move |(top, rows)| {
        let part = move |(left, cols)| {
            let [left, top, cols, rows] = [left, top, cols, rows].map(|number: i32| number as usize);
            Part { left, top, cols, rows }
        };
        across.clone().into_iter().map(part)
    })
}

impl Part {
    /// The spectrum of the part's taps: see [`of_taps`].
    pub(crate) fn spectrum(&self, filter: &Filter, size: usize) -> Result<Vec<Complex<f64>>> {
        of_taps(size, (self.cols, self.rows), |x, y| filter.tap(self.top + y, self.left + x))
    }
}

/// What the spectrum of a `size` by `size` tile is multiplied with to correlate the tile with `cols` by `rows` taps: row
/// by row, computed in f64, with the division by `size * size` that a transform and its inverse need between them.
///
/// Element `(x, y)` of the product's inverse is the sum of `taps(c, r) * tile(x + c, y + r)`, coordinates taken modulo
/// `size`: right wherever none has wrapped around.
pub(crate) fn of_taps(
    size: usize,
    (cols, rows): (usize, usize),
    taps: impl Fn(usize, usize) -> f64,
) -> Result<Vec<Complex<f64>>> {
    let scale = 1.0 / (size * size) as f64;
    let mut tile = crate::memory::zeroed::<Complex<f64>>(size * size)?;
    for y in 0..rows {
        for x in 0..cols {
            // Rounded as every other family has them.
            tile[y * size + x].re = f64::from(taps(x, y) as f32) * scale;
        }
    }
    let transform = FftPlanner::new().plan_fft_forward(size);
    transform.process(&mut tile);
    transpose(&mut tile, size);
    transform.process(&mut tile);
    transpose(&mut tile, size);
    tile.iter_mut().for_each(|value| *value = value.conj());
    Ok(tile)
}

/// Turns the rows of a square into its columns.
pub(crate) fn transpose<T>(square: &mut [T], size: usize) {
    // In blocks that stay in the cache.
    const BLOCK: usize = 16;
    for top in (0..size).step_by(BLOCK) {
        for left in (top..size).step_by(BLOCK) {
            for y in top..(top + BLOCK).min(size) {
                for x in left.max(y + 1)..(left + BLOCK).min(size) {
                    square.swap(y * size + x, x * size + y);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_square_is_transposed() {
        let size = 37;
        let mut square: Vec<usize> = (0..size * size).collect();
        transpose(&mut square, size);
        assert!(square.iter().enumerate().all(|(at, &value)| value == at % size * size + at / size));
    }

    #[test]
    fn the_spectrum_correlates() {
        let (size, cols, rows) = (8, 3, 2);
        let taps = |x: usize, y: usize| (1 + x + 4 * y) as f64;
        let spectrum = of_taps(size, (cols, rows), taps).unwrap();
        // An impulse at (5, 6) meets tap (c, r) where the window's corner is at (5 - c, 6 - r).
        let mut tile = vec![Complex::default(); size * size];
        tile[6 * size + 5].re = 1.0;
        let mut planner = FftPlanner::new();
        for transform in [planner.plan_fft_forward(size), planner.plan_fft_inverse(size)] {
            transform.process(&mut tile);
            transpose(&mut tile, size);
            transform.process(&mut tile);
            transpose(&mut tile, size);
            if transform.fft_direction() == rustfft::FftDirection::Forward {
                tile.iter_mut().zip(&spectrum).for_each(|(value, factor)| *value *= factor);
            }
        }
        for (at, value) in tile.iter().enumerate() {
            let (c, r) = (5usize.wrapping_sub(at % size), 6usize.wrapping_sub(at / size));
            let expected = if c < cols && r < rows { taps(c, r) } else { 0.0 };
            assert!((value - expected).norm() < 1e-12, "{at}: {value}");
        }
    }
}
