//! Spectra of taps, for the Fourier family on every device.

use rustfft::algorithm::Radix4;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftDirection};

use crate::{Filter, Result, Why};

/// The least and the greatest `sum |tap|` for which spectra stay within the range of f32.
pub(crate) const WEIGHTS: (f64, f64) = (1e-20, 1e30);

/// The error bound of a result, in units in the last place of `sum |tap| * max |pixel|`.
///
/// It is measured. Tests check it on all devices, and a search for bad pixels on a GPU (`tests/conformance/worst.rs`) has found 4.3. What
/// decides bytes rests on twice the bound.
pub(crate) const UNITS: f64 = 8.0;

/// The error bound of a result by spectra in f64 with tiles of `size`, for pixels of at most 1 and taps with `sum |tap|` equal to 1.
///
/// Unlike [`UNITS`], it is proved. A transform in f64 is a network of butterflies, each of which rounds by at most 5 units `u`: twiddle
/// factors, product and sum (Higham, Accuracy and Stability of Numerical Algorithms, section 24.1). One of a line of `n` has `log2 n`
/// levels, so the tile's and its inverse's have `4 log2 n` together and the taps' have `2 log2 n`; with the product, 6 log2 n + 2
/// levels. A transform keeps the 2-norm up to a factor, and a spectrum's magnitude is at most the sum of the taps'; so
/// the result's error is at most that of all levels, times the 2-norm of a tile of `n * n` complex pixels.
pub(crate) fn error_in_f64(size: usize) -> f64 {
    let levels = 6.0 * f64::from(size.ilog2()) + 2.0;
    // A radix above 2 takes fewer levels, of more roundings each; twice the bound has room for those.
    2.0 * 5.0 * levels * (f64::EPSILON / 2.0) * std::f64::consts::SQRT_2 * size as f64
}

/// The greatest pixel with which a tile is transformed, for taps with `sum |tap|` equal to `weight`: beyond it, sums
/// over the tile could leave the range of f32.
pub(crate) fn greatest_pixel(weight: f64) -> f32 {
    (1e34 / weight).min(1e30) as f32
}

/// Whether spectra can represent a window of this size with `sum |tap|` equal to `weight`; if not, why.
pub(crate) fn has_room(cols: usize, rows: usize, weight: f64) -> Result<(), Why> {
    let (least, greatest) = WEIGHTS;
    if cols.saturating_mul(rows) > i32::MAX as usize {
        Err(format!("{cols}x{rows} taps are more than 2^31").into())
    } else if !(least..=greatest).contains(&weight) {
        Err(format!("the taps' sizes add up to {weight:e}, not from {least:e} to {greatest:e}").into())
    } else {
        Ok(())
    }
}

/// How a window's `taps` columns, or rows, are cut for a Fourier kernel with tiles of `size`: where each part begins, and
/// how many taps it has.
///
/// A part of k taps gives `size + 1 - k` results in a tile, and the parts are computed one after the other. So there are few and
/// long parts while they are short compared with the tile, and more parts beyond that.
pub(crate) fn cut(taps: i32, size: i32) -> impl Iterator<Item = (i32, i32)> {
    // Beyond three quarters, nearly all of a tile is wrapped around.
    let least = (4 * taps + 3 * size - 1) / (3 * size);
    let longest = move |parts: i32| (taps + parts - 1) / parts;
    let cost = |parts: &i32| i64::from(*parts) * (1 << 20) / i64::from(size + 1 - longest(*parts));
    let parts = (least..=taps.min(2 * least + 2)).min_by_key(cost).unwrap_or(least);
    (0..taps).step_by(longest(parts) as usize).map(move |first| (first, longest(parts).min(taps - first)))
}

/// How many elements of a line are transformed for each result, with tiles of `size`.
pub(crate) fn work(taps: i32, size: i32) -> f64 {
    cut(taps, size).map(|(_, part)| f64::from(size) / f64::from(size + 1 - part)).sum()
}

/// The size of the Fourier family's tile on the CPU for a window: the one with the least work for each result, among those that
/// fit in a thread's cache.
pub(crate) fn cpu_tile(cols: i32, rows: i32) -> i32 {
    least_work(cols, rows, |_| 1.0)
}

/// The same in f64, where the largest tile leaves the second-level cache.
pub(crate) fn exact_tile(cols: i32, rows: i32) -> i32 {
    least_work(cols, rows, |size| if size > 256 { 1.7 } else { 1.0 })
}

fn least_work(cols: i32, rows: i32, slower: impl Fn(i32) -> f64) -> i32 {
    let cost = |size: &i32| work(cols, *size) * work(rows, *size) * f64::from(size.ilog2()) * slower(*size);
    [64, 128, 256, 512].into_iter().min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or(256)
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
    let across: Vec<_> = cut(filter.cols() as i32, size).collect();
    cut(filter.rows() as i32, size).flat_map(move |(top, rows)| {
        let part = move |(left, cols)| {
            let [left, top, cols, rows] = [left, top, cols, rows].map(|number: i32| number as usize);
            Part { left, top, cols, rows }
        };
        across.clone().into_iter().map(part)
    })
}

/// How a window is cut into parts, as kernels take it.
#[cfg(feature = "gpu")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Tap columns and rows of the first part, which is as large as any.
    pub(crate) cols: i32,
    pub(crate) rows: i32,
    /// How many parts there are, and how many of them side by side.
    pub(crate) count: i32,
    pub(crate) beside: i32,
}

#[cfg(feature = "gpu")]
impl Cut {
    /// For a filter and tiles of `size`.
    pub(crate) fn new(filter: &Filter, size: i32) -> Self {
        let along = |taps: usize| {
            let longest = cut(taps as i32, size).next().map_or(1, |(_, longest)| longest);
            (longest, cut(taps as i32, size).count() as i32)
        };
        let ((cols, beside), (rows, down)) = (along(filter.cols()), along(filter.rows()));
        Self { cols, rows, count: beside * down, beside }
    }
}

impl Part {
    /// The spectrum of the part's taps, each rounded to f32 as in every other family: see [`of_taps`].
    pub(crate) fn spectrum(&self, filter: &Filter, size: usize) -> Result<Vec<Complex<f64>>> {
        of_taps(size, (self.cols, self.rows), |x, y| f64::from(filter.tap(self.top + y, self.left + x) as f32))
    }

    /// The same of the taps as they are.
    pub(crate) fn exact_spectrum(&self, filter: &Filter, size: usize) -> Result<Vec<Complex<f64>>> {
        of_taps(size, (self.cols, self.rows), |x, y| filter.tap(self.top + y, self.left + x))
    }
}

/// The factors for the spectrum of a `size` by `size` tile that correlate the tile with `cols` by `rows` taps: row
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
            tile[y * size + x].re = taps(x, y) * scale;
        }
    }
    // Tiles are powers of two, so no planner is needed.
    let transform = Radix4::new(size, FftDirection::Forward);
    transform.process(&mut tile);
    transpose(&mut tile, size);
    transform.process(&mut tile);
    transpose(&mut tile, size);
    tile.iter_mut().for_each(|value| *value = value.conj());
    Ok(tile)
}

/// Transposes a square.
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
    fn parts_cover_a_window() {
        for (taps, size) in (1..2000).flat_map(|taps| [(taps, 64), (taps, 128)]) {
            let parts: Vec<_> = cut(taps, size).collect();
            let mut next = 0;
            for &(first, part) in &parts {
                assert!(first == next && (1..=size / 4 * 3).contains(&part), "{taps} taps: {parts:?}");
                next += part;
            }
            assert_eq!(next, taps);
        }
        assert_eq!(cut(51, 128).count(), 1);
        assert_eq!(cut(101, 128).count(), 2);
    }

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
        for direction in [FftDirection::Forward, FftDirection::Inverse] {
            let transform = Radix4::new(size, direction);
            transform.process(&mut tile);
            transpose(&mut tile, size);
            transform.process(&mut tile);
            transpose(&mut tile, size);
            if direction == FftDirection::Forward {
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
