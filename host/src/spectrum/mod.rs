//! Spectra of taps, for the Fourier family on every device.

pub(crate) mod folded;

use std::sync::Arc;

use rustfft::algorithm::Radix4;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftDirection, FftPlanner};

use crate::{Filter, Result, Why};

/// The least and the greatest `sum |tap|` for which spectra stay within the range of f32.
pub(crate) const WEIGHTS: (f64, f64) = (1e-20, 1e30);

/// The error bound of a result by spectra in f32, in units in the last place of the greatest pixel:
/// for taps with such `sum |tap|` and `sqrt(sum tap^2)`, and tiles of `side` by `side` complex
/// numbers or as many.
///
/// It is measured, and the greater of two. Roundings of the tile's numbers are relative to its
/// pixels and to `sum |tap|`: a search for bad pixels (`tests/conformance/worst.rs`) has found 4.3
/// units of that on a GPU and 4.04 on the CPU, and 8 are allowed. Roundings of the taps' spectrum
/// spread over the whole tile, so they are relative to `sqrt(sum tap^2)` and to the tile's side,
/// and matter where few taps outweigh all others: pixels that are aligned with them make 13 units
/// of that for a side of 128, and 18 are allowed, beside 5.5 of the former.
pub(crate) fn units(weight: f64, norm: f64, side: f64) -> f64 {
    units_of([weight, norm], side)
}

/// The same, for pixels that are not as great to the tile's numbers as they are to the taps'
/// spectrum: times either.
pub(crate) fn units_of([weight, norm]: [f64; 2], side: f64) -> f64 {
    const OF_WEIGHT: [f64; 2] = [8.0, 5.5];
    const OF_NORM: f64 = 18.0 / 128.0;
    (OF_WEIGHT[0] * weight).max(OF_WEIGHT[1] * weight + OF_NORM * side * norm)
}

/// The side of a square of as many pixels as the largest tile of f32 on the CPU has.
pub(crate) fn greatest_side() -> f64 {
    ((LARGEST / size_of::<Complex<f32>>()) as f64).sqrt()
}

/// The error bound of a result by spectra in f64 on the CPU, for pixels of at most 1 and taps with
/// `sum |tap|` equal to 1.
///
/// Unlike [`units`], it is proved, for the largest tile of [`LINES`]. A transform in f64 is a
/// network of butterflies. One of two values rounds by at most 5 units `u`, relative to the 2-norm:
/// twiddle factors, product and sum (Higham, Accuracy and Stability of Numerical Algorithms,
/// section 24.1). A line of `n = 2^k` has `k = log2 n` such levels. A larger radix takes fewer
/// levels, of more roundings each; twice the bound has room for those of 4 and 8, which consist of
/// butterflies of two.
///
/// A butterfly of three values counts as two levels, which is 20 units with that room, and one of
/// five as three, 30 units. It needs at most 5 roundings on the way from a value to a result (a sum
/// of two values, the product with a rounded constant, two more sums), and 6 for five values, with
/// constants whose real and imaginary parts add up to less than 1.42 in magnitude. So the error of
/// a result is at most `6 * 1.42 u` times the sum of `r` magnitudes, which is at most `sqrt(r)`
/// times their 2-norm; that of all `r` results at most `6 * 1.42 * r * u` times it, and the
/// results' norm is `sqrt(r)` times it: 15 units for three and 20 for five. The twiddle factors'
/// product adds less than 5.
///
/// The tile's transform, its inverse and the taps' transform each have the levels of a row and of a
/// column; the product counts as two more. A transform keeps the 2-norm up to a factor, and a
/// spectrum's magnitude is at most the sum of the taps'; so the result's error is at most that of
/// all levels, times the 2-norm of a tile of complex pixels.
pub(crate) fn error_in_f64() -> f64 {
    let levels = |mut size: i32| {
        let mut levels = 0;
        for (radix, count) in [(2, 1), (3, 2), (5, 3)] {
            while size % radix == 0 {
                (size, levels) = (size / radix, levels + count);
            }
        }
        levels
    };
    let most = LINES.iter().map(|&(size, _)| levels(size)).max().unwrap_or(0);
    let pixels = LARGEST / size_of::<Complex<f64>>();
    2.0 * 5.0 * f64::from(6 * most + 2) * (f64::EPSILON / 2.0) * (2.0 * pixels as f64).sqrt()
}

/// The greatest pixel with which a tile is transformed, for taps with `sum |tap|` equal to
/// `weight`: beyond it, sums over the tile could leave the range of f32.
pub(crate) fn greatest_pixel(weight: f64) -> f32 {
    (1e34 / weight).min(1e30) as f32
}

/// Whether spectra can represent a window of this size with `sum |tap|` equal to `weight`; if not,
/// why.
pub(crate) fn has_room(cols: usize, rows: usize, weight: f64) -> Result<(), Why> {
    let (least, greatest) = WEIGHTS;
    if cols.saturating_mul(rows) > i32::MAX as usize {
        Err(format!("{cols}x{rows} taps are too many, the limit is 2^31 - 1").into())
    } else if !(least..=greatest).contains(&weight) {
        Err(format!("the sum of |tap| is {weight:e}, but must be from {least:e} to {greatest:e}")
            .into())
    } else {
        Ok(())
    }
}

/// How a window's `taps` columns, or rows, are cut for a Fourier kernel with tiles of `size`: where
/// each part begins, and how many taps it has.
///
/// A part of k taps gives `size + 1 - k` results in a tile, and the parts are computed one after
/// the other. So there are few and long parts while they are short compared with the tile, and more
/// parts beyond that.
pub(crate) fn cut(taps: i32, size: i32) -> impl Iterator<Item = (i32, i32)> {
    // Beyond three quarters, nearly all of a tile is wrapped around.
    let least = (4 * taps + 3 * size - 1) / (3 * size);
    let longest = move |parts: i32| (taps + parts - 1) / parts;
    let cost = |parts: &i32| i64::from(*parts) * (1 << 20) / i64::from(size + 1 - longest(*parts));
    let parts = (least..=taps.min(2 * least + 2)).min_by_key(cost).unwrap_or(least);
    (0..taps)
        .step_by(longest(parts) as usize)
        .map(move |first| (first, longest(parts).min(taps - first)))
}

/// How many parts there are, and the taps of the first one, which is as long as any.
pub(crate) fn cut_into(taps: i32, size: i32) -> (i32, i32) {
    let mut parts = cut(taps, size);
    let longest = parts.next().map_or(1, |(_, longest)| longest);
    (1 + parts.count() as i32, longest)
}

/// How many elements of a line are transformed for each result, with tiles of `size`.
pub(crate) fn work(taps: i32, size: i32) -> f64 {
    cut(taps, size).map(|(_, part)| f64::from(size) / f64::from(size + 1 - part)).sum()
}

/// Columns or rows of a tile on the CPU, and the nanoseconds that rustfft takes for each element of
/// such a line, in f32 and in f64; one thread on a core with AVX-512 (Emerald Rapids). Multiples of
/// eight, as columns are taken eight at a time.
const LINES: [(i32, [f64; 2]); 13] = [
    (64, [0.70, 1.10]),
    (128, [0.83, 1.23]),
    (192, [1.15, 1.70]),
    (256, [0.93, 1.40]),
    (288, [1.23, 1.94]),
    (384, [1.28, 1.94]),
    (432, [1.03, 1.93]),
    (512, [0.86, 1.85]),
    (576, [1.05, 2.19]),
    (640, [1.10, 2.14]),
    (768, [1.10, 2.51]),
    (864, [1.11, 2.60]),
    (1024, [1.14, 2.19]),
];

/// Nanoseconds for an element of a tile beside its transforms, in a tile that fits a core's cache
/// and in a larger one: elements are loaded, moved to columns, multiplied, moved back and stored.
const BESIDE: [[f64; 2]; 2] = [[2.1, 4.0], [4.9, 6.5]];

/// Bytes of a tile that fits, and of the largest tile: each thread has one.
const CACHED: usize = 5 << 18;
const LARGEST: usize = 9 << 20;

/// The types in which spectra are computed on the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    Single,
    /// For 8-bit results, where the uncertain ones after sums in f32 would take longer.
    Double,
}

impl Precision {
    /// For bytes that bytes are made of, in an image of this width; `share` of the f32 sums are
    /// uncertain, if these can decide.
    pub(crate) fn of_bytes((cols, rows): (i32, i32), image: i32, share: Option<f64>) -> Self {
        // Nanoseconds for a result, and the parts of the window.
        let each = |precision| {
            let tile = Tile::new(precision, (cols, rows), image);
            let parts = work(cols, tile.width) * work(rows, tile.height);
            let elements = f64::from(tile.width) * f64::from(tile.height);
            let is_whole = cut(cols, tile.width).count() * cut(rows, tile.height).count() == 1;
            (0.5 * tile.time(precision) / elements * parts, is_whole)
        };
        let (single, is_whole) = each(Self::Single);
        match share.filter(|_| is_whole) {
            Some(share)
                if single + share * resolving(cols as usize, rows as usize)
                    <= each(Self::Double).0 =>
            {
                Self::Single
            }
            _ => Self::Double,
        }
    }
}

/// Taps of a row that are taken together where an uncertain result is summed up in f64.
pub(crate) const LANES: usize = 64;

/// Nanoseconds for such a result.
pub(crate) fn resolving(cols: usize, rows: usize) -> f64 {
    const TAP: f64 = 0.09;
    const RESULT: f64 = 100.0;
    RESULT + TAP * (cols.next_multiple_of(LANES) * rows) as f64
}

/// The Fourier family's tiles on the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tile {
    pub(crate) width: i32,
    pub(crate) height: i32,
}

impl Tile {
    /// The tile that takes the least time for a window, in an image of this width. It does not
    /// depend on the image's height, as chunks of an image have the tiles of the whole: it is
    /// chosen for one as high as wide, or of 512 rows if that is more, and for a few threads.
    pub(crate) fn new(precision: Precision, (cols, rows): (i32, i32), image: i32) -> Self {
        const THREADS: f64 = 4.0;
        const LEAST: i32 = 512;
        // Pairs of tiles beside each other, and rows of tiles; and the window's parts each way.
        let across = LINES.map(|(width, _)| tiles(cols, width, 2, image));
        let down = LINES.map(|(height, _)| tiles(rows, height, 1, image.max(LEAST)));
        let mut best = (f64::INFINITY, Self { width: 256, height: 256 });
        for (row, (pairs, beside)) in LINES.iter().zip(across) {
            for (column, (bands, below)) in LINES.iter().zip(down) {
                let tile = Self { width: row.0, height: column.0 };
                if tile.bytes(precision) > LARGEST {
                    continue;
                }
                let rounds = (pairs * bands / THREADS).ceil();
                let time = rounds * beside * below * tile.time_of(precision, [row, column]);
                if time < best.0 {
                    best = (time, tile);
                }
            }
        }
        best.1
    }

    /// Nanoseconds for a pair of tiles and one part of the window.
    pub(crate) fn time(self, precision: Precision) -> f64 {
        let line = |size| LINES.iter().find(|(known, _)| *known == size).unwrap_or(&LINES[0]);
        self.time_of(precision, [self.width, self.height].map(line))
    }

    /// The same, from the rows of the table that the tile's lines have.
    fn time_of(self, precision: Precision, [row, column]: [&(i32, [f64; 2]); 2]) -> f64 {
        let [row, column] = [row, column].map(|(_, times)| times[precision as usize]);
        let larger = self.bytes(precision) > CACHED;
        let each = 2.0 * (row + column) + BESIDE[precision as usize][usize::from(larger)];
        f64::from(self.width) * f64::from(self.height) * each
    }

    fn bytes(self, precision: Precision) -> usize {
        (self.width * self.height) as usize * [8, 16][precision as usize]
    }
}

/// How many groups of so many tiles of `size` a line of an image takes, and in how many parts the
/// window is cut.
fn tiles(taps: i32, size: i32, together: i32, image: i32) -> (f64, f64) {
    let (parts, longest) = cut_into(taps, size);
    let results = f64::from(together * (size + 1 - longest));
    ((f64::from(image) / results).ceil(), f64::from(parts))
}

/// A part of a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) left: usize,
    pub(crate) top: usize,
    pub(crate) cols: usize,
    pub(crate) rows: usize,
}

/// The parts of a filter's window that tiles of this size have room for, row by row. The first is
/// as large as any.
pub(crate) fn parts(filter: &Filter, (width, height): (i32, i32)) -> impl Iterator<Item = Part> {
    let across: Vec<_> = cut(filter.cols() as i32, width).collect();
    cut(filter.rows() as i32, height).flat_map(move |(top, rows)| {
        let part = move |(left, cols)| {
            let [left, top, cols, rows] =
                [left, top, cols, rows].map(|number: i32| number as usize);
            Part { left, top, cols, rows }
        };
        across.clone().into_iter().map(part)
    })
}

/// How a window is cut into parts, as kernels take it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Tap columns and rows of the first part, which is as large as any.
    pub(crate) cols: i32,
    pub(crate) rows: i32,
    /// How many parts there are, and how many of them side by side.
    pub(crate) count: i32,
    #[cfg_attr(not(feature = "gpu"), expect(dead_code, reason = "kernels alone read it"))]
    pub(crate) beside: i32,
}

impl Cut {
    /// For a window and tiles of this size.
    pub(crate) fn new((cols, rows): (usize, usize), (width, height): (i32, i32)) -> Self {
        let ((beside, cols), (down, rows)) =
            (cut_into(cols as i32, width), cut_into(rows as i32, height));
        Self { cols, rows, count: beside * down, beside }
    }

    /// A window in one part.
    pub(crate) fn whole((cols, rows): (usize, usize)) -> Self {
        Self { cols: cols as i32, rows: rows as i32, count: 1, beside: 1 }
    }
}

impl Part {
    /// A whole window.
    #[cfg(feature = "gpu")]
    pub(crate) fn whole(filter: &Filter) -> Self {
        Self { left: 0, top: 0, cols: filter.cols(), rows: filter.rows() }
    }

    /// The spectrum of the part's taps, of which the pixel's own is less by `point`, each rounded
    /// to f32 as in every other family, row by row, for tiles of `size` numbers each way: see
    /// [`of_taps`], and [`of_folded_taps`].
    #[cfg(feature = "gpu")]
    pub(crate) fn spectrum(
        &self,
        filter: &Filter,
        point: f64,
        size: usize,
        folded: bool,
    ) -> Result<Vec<Complex<f64>>> {
        let taps = |x, y| {
            let (x, y) = (self.left + x, self.top + y);
            let left_out = if (x, y) == filter.anchor() { point } else { 0.0 };
            f64::from((filter.tap(y, x) - left_out) as f32)
        };
        match folded {
            true => of_folded_taps(size, (self.cols, self.rows), taps),
            false => of_taps((size, size), (self.cols, self.rows), taps),
        }
    }

    /// The same column by column, of taps that `rounded` makes of the filter's.
    pub(crate) fn by_columns(
        &self,
        filter: &Filter,
        (width, height): (usize, usize),
        rounded: impl Fn(f64) -> f64,
    ) -> Result<Vec<Complex<f64>>> {
        of_taps((height, width), (self.rows, self.cols), |y, x| {
            rounded(filter.tap(self.top + y, self.left + x))
        })
    }
}

/// The factors for the spectrum of a tile of `width` by `height` that correlate the tile with
/// `cols` by `rows` taps: row by row, computed in f64, with the division by `width * height` that a
/// transform and its inverse need between them.
///
/// Element `(x, y)` of the product's inverse is the sum of `taps(c, r) * tile(x + c, y + r)`,
/// coordinates taken modulo the tile's size: right wherever none has wrapped around.
pub(crate) fn of_taps(
    size: (usize, usize),
    taps: (usize, usize),
    tap: impl Fn(usize, usize) -> f64,
) -> Result<Vec<Complex<f64>>> {
    of_numbers(size, taps, |x, y| Complex::new(tap(x, y), 0.0))
}

/// The same for a folded tile, of `2 size` columns and `size` rows: number `n` of a line is its
/// pixels `n`, as real part, and `n + size`, as imaginary part, times the twist
/// `exp(i pi n / (2 size))`. Columns that have wrapped around count with the opposite sign.
#[cfg(any(feature = "gpu", test))]
fn of_folded_taps(
    size: usize,
    (cols, rows): (usize, usize),
    tap: impl Fn(usize, usize) -> f64,
) -> Result<Vec<Complex<f64>>> {
    of_numbers((size, size), (cols.min(size), rows), |x, y| {
        let behind = if x + size < cols { tap(x + size, y) } else { 0.0 };
        Complex::new(tap(x, y), behind) * twist(x, size)
    })
}

/// What number `n` of a folded line of `size` is multiplied by.
#[cfg(any(feature = "gpu", test))]
fn twist(n: usize, size: usize) -> Complex<f64> {
    Complex::from_polar(1.0, std::f64::consts::FRAC_PI_2 * n as f64 / size as f64)
}

/// [`of_taps`], of complex numbers.
fn of_numbers(
    (width, height): (usize, usize),
    (cols, rows): (usize, usize),
    number: impl Fn(usize, usize) -> Complex<f64>,
) -> Result<Vec<Complex<f64>>> {
    /// Columns that are transformed together, as a cache line is much longer than a number.
    const TOGETHER: usize = 8;
    let scale = 1.0 / (width * height) as f64;
    let mut tile = crate::memory::zeroed::<Complex<f64>>(width * height)?;
    let across = transform(width);
    // Other rows are zero, and so are their spectra.
    for (y, row) in tile.chunks_mut(width).take(rows).enumerate() {
        for (x, value) in row.iter_mut().take(cols).enumerate() {
            *value = number(x, y) * scale;
        }
        across.process(row);
    }
    let down = transform(height);
    let mut columns = crate::memory::zeroed::<Complex<f64>>(TOGETHER * height)?;
    for left in (0..width).step_by(TOGETHER) {
        let together = left..(left + TOGETHER).min(width);
        for (y, row) in tile.chunks(width).enumerate() {
            for (column, value) in columns.chunks_mut(height).zip(&row[together.clone()]) {
                column[y] = *value;
            }
        }
        down.process(&mut columns);
        for (y, row) in tile.chunks_mut(width).enumerate() {
            for (column, value) in columns.chunks(height).zip(&mut row[together.clone()]) {
                *value = column[y].conj();
            }
        }
    }
    Ok(tile)
}

fn transform(size: usize) -> Arc<dyn Fft<f64>> {
    // No planner is needed for a power of two.
    match size.is_power_of_two() {
        true => Arc::new(Radix4::new(size, FftDirection::Forward)),
        false => FftPlanner::new().plan_fft_forward(size),
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
                assert!(
                    first == next && (1..=size / 4 * 3).contains(&part),
                    "{taps} taps: {parts:?}"
                );
                next += part;
            }
            assert_eq!(next, taps);
        }
        assert_eq!(cut(51, 128).count(), 1);
        assert_eq!(cut(101, 128).count(), 2);
    }

    #[test]
    fn the_bound_knows_every_radix() {
        for (mut size, _) in LINES {
            assert_eq!(size % 8, 0, "{size}");
            for radix in [2, 3, 5] {
                while size % radix == 0 {
                    size /= radix;
                }
            }
            assert_eq!(size, 1);
        }
    }

    #[test]
    fn tiles_fit_windows_and_images() {
        let tile = |precision, taps, width| Tile::new(precision, (taps, taps), width);
        for (precision, most) in
            [(Precision::Single, LARGEST / 8), (Precision::Double, LARGEST / 16)]
        {
            for taps in [1, 17, 51, 101, 301, 401, 1001] {
                for width in [1, 100, 512, 2048, 4000, 1 << 20] {
                    let Tile { width: across, height: down } = tile(precision, taps, width);
                    assert!(
                        (across * down) as usize <= most,
                        "{taps} taps, {width} columns: {across}x{down}"
                    );
                }
            }
        }
        // One pair covers a narrow image, and windows are not cut where there is room.
        assert!(tile(Precision::Single, 31, 256).width <= 192);
        assert!(tile(Precision::Single, 301, 4000).width > 400);
    }

    /// A square of numbers whose spectrum is multiplied by another.
    fn filtered(
        size: usize,
        mut tile: Vec<Complex<f64>>,
        spectrum: &[Complex<f64>],
    ) -> Vec<Complex<f64>> {
        for direction in [FftDirection::Forward, FftDirection::Inverse] {
            let transform = Radix4::new(size, direction);
            for _ in 0..2 {
                transform.process(&mut tile);
                tile = (0..size * size).map(|at| tile[at % size * size + at / size]).collect();
            }
            if direction == FftDirection::Forward {
                tile.iter_mut().zip(spectrum).for_each(|(value, factor)| *value *= factor);
            }
        }
        tile
    }

    #[test]
    fn the_spectrum_of_a_folded_tile_correlates() {
        let size = 8;
        for (cols, rows) in [(3, 2), (8, 3), (11, 6)] {
            let taps = |x: usize, y: usize| ((1 + 5 * x + 3 * y) % 7) as f64 - 2.0;
            let pixel = |x: usize, y: usize| ((3 * x + 11 * y + x * y) % 13) as f64;
            let spectrum = of_folded_taps(size, (cols, rows), taps).unwrap();
            let number = |at: usize| {
                let (x, y) = (at % size, at / size);
                Complex::new(pixel(x, y), pixel(x + size, y)) * twist(x, size)
            };
            let found = filtered(size, (0..size * size).map(number).collect(), &spectrum);
            for (y, x) in
                (0..size + 1 - rows).flat_map(|y| (0..2 * size + 1 - cols).map(move |x| (y, x)))
            {
                let number = found[size * y + x % size] * twist(x % size, size).conj();
                let value = if x < size { number.re } else { number.im };
                let places = (0..rows).flat_map(|r| (0..cols).map(move |c| (c, r)));
                let expected: f64 = places.map(|(c, r)| taps(c, r) * pixel(x + c, y + r)).sum();
                assert!(
                    (value - expected).abs() < 1e-11,
                    "{cols}x{rows} at ({x}, {y}): {value}, not {expected}"
                );
            }
        }
    }

    #[test]
    fn the_spectrum_correlates() {
        let (size, cols, rows) = (8, 3, 2);
        let taps = |x: usize, y: usize| (1 + x + 4 * y) as f64;
        let spectrum = of_taps((size, size), (cols, rows), taps).unwrap();
        // An impulse at (5, 6) meets tap (c, r) where the window's corner is at (5 - c, 6 - r).
        let mut tile = vec![Complex::default(); size * size];
        tile[6 * size + 5].re = 1.0;
        let tile = filtered(size, tile, &spectrum);
        for (at, value) in tile.iter().enumerate() {
            let (c, r) = (5usize.wrapping_sub(at % size), 6usize.wrapping_sub(at / size));
            let expected = if c < cols && r < rows { taps(c, r) } else { 0.0 };
            assert!((value - expected).norm() < 1e-12, "{at}: {value}");
        }
    }
}
