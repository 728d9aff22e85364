//! Correlation as a product of spectra, tile by tile, with the error bound of
//! `gpu-kernels/src/kernels/fourier/tiles.rs`. The size of the tiles depends on the window and on
//! the image's width ([`Tile::new`]), and rustfft transforms their lines: rows as they are loaded;
//! columns a few at a time, which are then multiplied and transformed back while they are in the
//! cache; then the rows of results, which are stored at once, or added up where the window has
//! several parts.
//!
//! Pixels that spectra cannot hold are replaced before a tile's transform, and their results mended
//! ([`super::special`]); finite ones that are too great leave the pair of tiles to sums tap by tap
//! ([`super::patch`]). So do infinities under windows so small that these sums take less time
//! ([`Spectra::mends`]).
//!
//! For bytes made of bytes, the sums are in f32 too where few are uncertain
//! ([`Precision::of_bytes`]). Else, and for a tile where many are uncertain, as flat regions may
//! have them, in f64 ([`Finer`]): that error's bound, [`spectrum::error_in_f64`], is so small that
//! hardly a result is uncertain. The exact sum decides each that is.

use std::ops::Range;
use std::sync::Arc;

use rustfft::num_complex::Complex;

use super::channel::StoreChannel;
use super::patch;
use super::real::Real;
use super::share::share;
use super::special::{
    Greatest, INFINITE, Infinities, MENDED, MarkInfinite, Mend, Scale, Sort, Specials, TINY, row_of,
};
use super::spectra::Spectra;
use crate::Result;
use crate::image::{ImageView, ImageViewMut, Pixel};
use crate::progress::Stage;
use crate::round::{self, Rounder};
use crate::simd::{self, Isa, Lanes};
use crate::spectrum::{self, Part, Precision, Tile};
use crate::window::Window;

/// What computes a pair of tiles with many uncertain results.
#[derive(Clone, Copy)]
pub(super) struct Finer<'a> {
    /// Made when there is such a pair.
    pub(super) spectra: &'a (dyn Fn() -> Result<Arc<Spectra<f64>>> + Sync),
    pub(super) rounder: &'a Rounder<'a, f64>,
}

/// Columns that are transformed together: of complex numbers in f32, as many as a cache line holds.
const TOGETHER: usize = 8;

/// A thread's memory.
#[derive(Default)]
struct TileMemory<E> {
    /// A pair of tiles, one as real, one as imaginary parts. Rows lie further apart than their
    /// length, a power of two, so that a column's values do not compete for places in the cache.
    tile: Vec<Complex<E>>,
    stride: usize,
    /// Some columns, one after the other.
    columns: Vec<Complex<E>>,
    scratch: Vec<Complex<E>>,
    /// A row of pixels under a pair of tiles.
    line: Vec<E>,
    /// The image column under each of them.
    under: Vec<Option<usize>>,
    /// The uncertain results of a row, and those of each row of a pair of tiles.
    in_row: Vec<usize>,
    uncertain: Vec<(usize, Vec<usize>)>,
    /// The results of a pair of tiles, the second right of the first; if the window has one part,
    /// of a row.
    sums: Vec<E>,
    rounder: round::Scratch,
    specials: Specials<E>,
}

impl<E: Real> TileMemory<E> {
    /// Allocates the memory, unless that has been done.
    fn start(&mut self, spectra: &Spectra<E>) -> Result<()> {
        if self.tile.is_empty() {
            let transforms = spectra.across.iter().chain(&spectra.down);
            let scratch = transforms.map(|transform| transform.get_inplace_scratch_len()).max();
            let rows = if spectra.parts.len() > 1 { spectra.rows } else { 1 };
            self.sums = crate::memory::zeroed(2 * spectra.cols * rows)?;
            self.scratch = crate::memory::zeroed(scratch.unwrap_or(0))?;
            self.line = crate::memory::zeroed(spectra.cols + spectra.width)?;
            self.columns = crate::memory::zeroed(TOGETHER * spectra.height)?;
            self.stride = spectra.width + TOGETHER;
            self.tile = crate::memory::zeroed(spectra.height * self.stride)?;
        }
        Ok(())
    }
}

/// Filters the first `filtered` channels and copies the others. `taps` are for pixels that spectra
/// cannot hold, which bytes are not. Bytes made of bytes have a rounder, and one in f32 something
/// finer. Each pair of tiles is a job.
pub(super) fn run<S: Pixel, D: Pixel, E: Real>(
    isa: Isa,
    (window, taps): (&Window, &[E]),
    spectra: &Spectra<E>,
    of_bytes: Option<(&Rounder<'_, E>, Option<Finer<'_>>)>,
    src: &ImageView<'_, S>,
    (dst, filtered): (&mut ImageViewMut<'_, D>, usize),
    stage: &Stage<'_>,
) -> Result<()> {
    let (rounder, finer) = of_bytes.map_or((None, None), |(rounder, finer)| (Some(rounder), finer));
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
    share(
        stage,
        jobs.into_iter(),
        |(work, again): &mut (TileMemory<E>, TileMemory<f64>), (at, mut rows)| {
            work.start(spectra)?;
            for channel in 0..filtered {
                let plane = patch::Plane { isa, window, taps, src, channel };
                let outcome = Pair { plane, spectra, rounder, has_finer: finer.is_some(), at }
                    .filter(work, &mut rows)?;
                match (outcome, finer) {
                    (Outcome::Uncertain, Some(Finer { spectra, rounder })) => {
                        let (spectra, rounder, has_finer) = (&*spectra()?, Some(rounder), false);
                        again.start(spectra)?;
                        let plane = patch::Plane { isa, window, taps: &[], src, channel };
                        Pair { plane, spectra, rounder, has_finer, at }.filter(again, &mut rows)?;
                    }
                    (Outcome::Left, _) => plane.filter(at, &mut rows, stage.threads())?,
                    _ => {}
                }
            }
            for (y, row) in (at.1..).zip(rows) {
                window.restore(src, filtered, &(at.0..at.0 + row.len() / channels), y, row);
            }
            Ok(())
        },
    )
}

/// How the attempt to filter a pair of tiles ended.
enum Outcome {
    Done,
    /// Too many results are uncertain.
    Uncertain,
    /// A pixel is too great for spectra, or infinite where sums tap by tap take less time or are
    /// the only way ([`Spectra::left`]).
    Left,
}

/// One channel, and a pair of tiles' results.
struct Pair<'a, S: Pixel, E: Real> {
    plane: patch::Plane<'a, S, E>,
    spectra: &'a Spectra<E>,
    rounder: Option<&'a Rounder<'a, E>>,
    has_finer: bool,
    /// Column and row of the first result.
    at: (usize, usize),
}

impl<S: Pixel, E: Real> Pair<'_, S, E> {
    /// Filters the tiles; each of the rows is a part of a row of results.
    fn filter<D: Pixel>(&self, work: &mut TileMemory<E>, rows: &mut [&mut [D]]) -> Result<Outcome> {
        let Spectra { width, cols, parts, across: [_, inverse], .. } = self.spectra;
        // As many as take as long as all would in f64.
        let tile = Tile { width: *width as i32, height: self.spectra.height as i32 };
        let window = self.plane.window;
        let most = tile.time(Precision::Double) / spectrum::resolving(window.cols, window.rows);
        let mut count = 0;
        work.uncertain.clear();
        for (number, (part, spectrum)) in parts.iter().enumerate() {
            let (found, scale) = self.load(part, work)?;
            if found & self.spectra.left(part) != 0 {
                return Ok(Outcome::Left);
            }
            if found & MENDED != 0 {
                self.mark(number, found, work, rows.len())?;
            }
            self.multiply(spectrum, work, rows.len());
            for (y, out) in rows.iter_mut().enumerate() {
                let row = &mut work.tile[y * work.stride..];
                inverse.process_with_scratch(&mut row[..*width], &mut work.scratch);
                if let Some(scale) = scale {
                    self.plane.isa.run(Rescale { row: &mut row[..*width], factor: scale.undo });
                }
                let first = if parts.len() > 1 { 2 * cols * y } else { 0 };
                let sums = first..first + 2 * cols;
                self.plane.isa.run(AddUp {
                    row,
                    sums: &mut work.sums[sums.clone()],
                    resume: number > 0,
                });
                if found & MENDED != 0 {
                    let marks = &work.specials.marks[row_of(2 * cols, y)];
                    self.plane.isa.run(Mend { sums: &mut work.sums[sums.clone()], marks });
                }
                if number + 1 == parts.len() {
                    count += self.store(sums, y, out, work);
                }
                if self.has_finer && count as f64 > most {
                    return Ok(Outcome::Uncertain);
                }
            }
        }
        for (y, at) in &work.uncertain {
            if let (Some(rounder), Some(out)) = (self.rounder, D::bytes_mut(rows[*y])) {
                rounder.resolve(
                    self.plane.isa,
                    (self.at.0, self.at.1 + y),
                    at,
                    out,
                    &mut work.rounder,
                );
            }
        }
        Ok(Outcome::Done)
    }

    /// Marks the results that a part's special pixels change, for so many rows.
    fn mark(&self, number: usize, found: u8, work: &mut TileMemory<E>, rows: usize) -> Result<()> {
        let Spectra { width, cols, parts, across: [forward, inverse], .. } = self.spectra;
        let (part, wide) = (&parts[number].0, 2 * cols);
        work.specials.mark_nan((part.cols, part.rows), (wide, rows))?;
        if found & INFINITE == 0 {
            return Ok(());
        }
        let spectra = self.spectra.of_infinite(number, self.plane.taps, self.plane.window.cols)?;
        if work.specials.spare.is_empty() {
            work.specials.spare = crate::memory::zeroed(work.tile.len())?;
            work.specials.signs = crate::memory::zeroed(wide * self.spectra.rows)?;
        }
        // The pixels' numbers wait.
        std::mem::swap(&mut work.tile, &mut work.specials.spare);
        let (isa, mut sums) = (self.plane.isa, crate::memory::zeroed(wide)?);
        for (signs, spectrum) in [true, false].into_iter().zip(spectra) {
            let TileMemory { tile, stride, line, scratch, specials, .. } = work;
            for (y, row) in tile.chunks_mut(*stride).enumerate() {
                let row = &mut row[..*width];
                if specials.found[y] & INFINITE == 0 {
                    row.fill(Complex::default());
                    continue;
                }
                isa.run(Infinities { kinds: specials.row(y), signs, line });
                isa.run(Join { line, cols: *cols, row, greatest: E::of(1.0) });
                forward.process_with_scratch(row, scratch);
            }
            self.multiply(spectrum, work, rows);
            let TileMemory {
                tile,
                stride,
                scratch,
                specials: Specials { signs: first, marks, .. },
                ..
            } = work;
            for (y, row) in tile.chunks_mut(*stride).take(rows).enumerate() {
                inverse.process_with_scratch(&mut row[..*width], scratch);
                let (first, marks) = (&mut first[row_of(wide, y)], &mut marks[row_of(wide, y)]);
                isa.run(AddUp { row, sums: if signs { first } else { &mut sums }, resume: false });
                if !signs {
                    isa.run(MarkInfinite { signs: first, places: &sums, marks });
                }
            }
        }
        std::mem::swap(&mut work.tile, &mut work.specials.spare);
        Ok(())
    }

    /// Stores a row of results, but for those that are uncertain, and says how many these are.
    fn store<D: Pixel>(
        &self,
        sums: Range<usize>,
        y: usize,
        out: &mut [D],
        work: &mut TileMemory<E>,
    ) -> usize {
        let TileMemory { sums: all, in_row, uncertain, rounder: scratch, .. } = work;
        let (sums, channel) = (&mut all[sums], self.plane.channel);
        let (Some(rounder), Some(out)) = (self.rounder, D::bytes_mut(out)) else {
            self.plane.isa.run(StoreChannel {
                sums,
                out,
                channels: self.plane.src.shape().channels,
                channel,
            });
            return 0;
        };
        rounder.store_channel(self.plane.isa, sums, (out, channel), scratch, in_row);
        if !in_row.is_empty() {
            uncertain.push((y, in_row.clone()));
        }
        in_row.len()
    }

    /// Multiplies the tile's spectrum with a part's, and transforms the product's columns back, for
    /// so many rows.
    fn multiply(&self, spectrum: &[Complex<E>], work: &mut TileMemory<E>, rows: usize) {
        let Spectra { width, height, down: [forward, inverse], .. } = self.spectra;
        let TileMemory { tile, stride, columns, scratch, .. } = work;
        for (left, spectrum) in
            (0..*width).step_by(TOGETHER).zip(spectrum.chunks(TOGETHER * height))
        {
            self.plane.isa.run(Gather { tile, stride: *stride, left, columns });
            forward.process_with_scratch(columns, scratch);
            self.plane.isa.run(Multiply { columns, spectrum });
            inverse.process_with_scratch(columns, scratch);
            self.plane.isa.run(Scatter {
                columns,
                tile: &mut tile[..rows * *stride],
                stride: *stride,
                left,
            });
        }
    }

    /// Fills the tile with the pixels that two tiles' results need, and transforms its rows;
    /// returns what special pixels there are, and how pixels were scaled. If one is
    /// [`Spectra::left`] to sums tap by tap, the tile is not finished.
    fn load(&self, part: &Part, work: &mut TileMemory<E>) -> Result<(u8, Option<Scale<E>>)> {
        let (left, top) = self.at;
        let image = self.plane.src.shape();
        // What lies behind the window of the last result is not needed.
        let needed = work.line.len().min(image.width - left + part.cols - 1);
        work.line[needed..].fill(E::default());
        work.under.clear();
        work.under.extend(
            (left..left + needed).map(|x| self.plane.window.column(x, part.left, image.width)),
        );
        let found = self.load_scaled(part, work, None)?;
        if found & TINY == 0 {
            return Ok((found, None));
        }
        let mut most = E::default();
        for y in top..top + self.spectra.height {
            let TileMemory { line, under, .. } = &mut *work;
            self.line(part, y, under, line);
            most = self.plane.isa.run(Greatest { line, greatest: self.greatest(), before: most });
        }
        let scale = Scale::new(most);
        Ok((
            self.load_scaled(part, work, Some(scale))?,
            Some(scale).filter(|scale| scale.undo != E::of(1.0)),
        ))
    }

    /// The same with a scale, or ending early at a tiny pixel. The line's columns are known.
    fn load_scaled(
        &self,
        part: &Part,
        work: &mut TileMemory<E>,
        scale: Option<Scale<E>>,
    ) -> Result<u8> {
        let Spectra { cols, width, height, across: [forward, _], .. } = self.spectra;
        let TileMemory { tile, stride, line, under, scratch, specials, .. } = work;
        let (isa, greatest, ends) =
            (self.plane.isa, self.greatest(), self.spectra.left(part) | TINY);
        let scales = scale.is_some_and(|scale| scale.undo != E::of(1.0));
        let mut all = 0;
        for (y, row) in tile.chunks_mut(*stride).enumerate() {
            self.line(part, self.at.1 + y, under, line);
            let row = &mut row[..*width];
            let is_plain = isa.run(Join { line, cols: *cols, row, greatest });
            if !is_plain || scales {
                if all == 0 {
                    specials.start(line.len(), *height)?;
                }
                let found = isa.run(Sort { line, kinds: specials.row_mut(y), greatest, scale });
                specials.found[y] = found;
                all |= found;
                if all & ends != 0 {
                    break;
                }
                isa.run(Join { line, cols: *cols, row, greatest });
            }
            forward.process_with_scratch(row, scratch);
        }
        Ok(all)
    }

    /// Fills a line with the pixels under a part's first row, for results in row `y`.
    fn line(&self, part: &Part, y: usize, under: &[Option<usize>], line: &mut [E]) {
        let source = self.plane.window.row(y, part.top, self.plane.src.shape().height);
        self.plane.load(source, (self.at.0 + part.left, under), &mut line[..under.len()]);
    }

    /// The greatest pixel that a tile may have.
    fn greatest(&self) -> E {
        E::of(self.spectra.greatest.into())
    }
}

/// Two tiles' pixels of a row, side by side in a line, as complex numbers. Says whether none is
/// special.
struct Join<'a, E> {
    line: &'a [E],
    cols: usize,
    row: &'a mut [Complex<E>],
    greatest: E,
}

impl<E: Real> simd::Vectorized for Join<'_, E> {
    type Output = bool;

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> bool {
        let is_plain = |value: E| {
            let size = value.abs();
            (size <= self.greatest) & ((size >= E::TINY) | (size == E::default()))
        };
        let mut plain = true;
        for ((value, &re), &im) in self.row.iter_mut().zip(self.line).zip(&self.line[self.cols..]) {
            plain &= is_plain(re) & is_plain(im);
            *value = Complex { re, im };
        }
        plain
    }
}

/// A row of complex numbers times a factor.
struct Rescale<'a, E> {
    row: &'a mut [Complex<E>],
    factor: E,
}

impl<E: Real> simd::Vectorized for Rescale<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        self.row.iter_mut().for_each(|value| {
            *value = Complex { re: value.re * self.factor, im: value.im * self.factor }
        });
    }
}

/// Some columns of a tile as rows.
struct Gather<'a, E> {
    tile: &'a [Complex<E>],
    stride: usize,
    left: usize,
    columns: &'a mut [Complex<E>],
}

impl<E: Real> simd::Vectorized for Gather<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let size = self.columns.len() / TOGETHER;
        let mut columns = self.columns.chunks_exact_mut(size);
        let mut columns: [&mut [Complex<E>]; TOGETHER] =
            std::array::from_fn(|_| columns.next().unwrap_or_default());
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

impl<E: Real> simd::Vectorized for Scatter<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let size = self.columns.len() / TOGETHER;
        for (y, row) in self.tile.chunks_exact_mut(self.stride).enumerate() {
            for (value, column) in
                row[self.left..][..TOGETHER].iter_mut().zip(self.columns.chunks_exact(size))
            {
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

impl<E: Real> simd::Vectorized for Multiply<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        self.columns
            .iter_mut()
            .zip(self.spectrum)
            .for_each(|(value, &factor)| *value = *value * factor);
    }
}

/// A row of two tiles' results as their sums, or added to them.
struct AddUp<'a, E> {
    row: &'a [Complex<E>],
    sums: &'a mut [E],
    resume: bool,
}

impl<E: Real> simd::Vectorized for AddUp<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let (first, second) = self.sums.split_at_mut(self.sums.len() / 2);
        let sums = first.iter_mut().zip(second).zip(self.row);
        if self.resume {
            sums.for_each(|((first, second), value)| {
                *first = *first + value.re;
                *second = *second + value.im;
            });
        } else {
            sums.for_each(|((first, second), value)| (*first, *second) = (value.re, value.im));
        }
    }
}
