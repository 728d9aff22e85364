//! How a window and a job are cut into tiles, and the spectra that kernels read.

use gpu_kernels::abi::{Epilogue, Pass, UncertainList, scalar};
use gpu_kernels::kernels::fourier::Large;
use gpu_kernels::kernels::fourier::{
    Parts, fourier_holes,
    holes::{self, Holes},
};

use crate::Filter;
use crate::gpu::taps::TapHomes;
use crate::gpu::{launch::Grid, stream::Stream};
use crate::kernels::{keep, prepared::PassJob};
use crate::spectrum::folded::{Packing, TileShape};
use crate::spectrum::{self, folded::LeftOut};

/// The spectra of a window's parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spectra {
    /// Their address, behind tables of factors.
    pub(super) numbers: *const f32,
    /// See [`spectrum::greatest_pixel`].
    pub(super) greatest: f32,
}

/// The numbers that kernels of one tile layout read: tables of factors, then the spectrum of each
/// part of the window.
pub(super) struct SpectraTable<Place> {
    pub(super) shape: TileShape,
    /// Factors of a table for each `k`: number `j` of them is `exp(-2 pi i j k / size)`.
    pub(super) each: usize,
    /// Whether the kernel also reads a folded tile's factors with the twist of `k`.
    pub(super) of_k: bool,
    /// The anchor's tap, if it is left out.
    pub(super) point: f32,
    /// Where the frequency of column `kx` and row `ky` is.
    pub(super) place: Place,
}

impl<Place: Fn(usize, usize) -> usize> SpectraTable<Place> {
    /// Of a filter.
    fn make(&self, filter: &Filter) -> crate::Result<Vec<f32>> {
        use rustfft::num_complex::Complex;

        let (size, tables) = (self.shape.size as usize, self.tables());
        let parts: Vec<_> = match self.shape.packing {
            Packing::Beside => spectrum::parts(filter, self.shape.tile()).collect(),
            _ => vec![spectrum::Part::whole(filter)],
        };
        let folded = self.shape.packing == Packing::Folded;
        let mut numbers =
            crate::memory::zeroed::<Complex<f32>>(size * (tables + parts.len() * size))?;
        let narrow = |value: Complex<f64>| Complex::new(value.re as f32, value.im as f32);
        let (factors, spectra) = numbers.split_at_mut(size * tables);
        for (at, factor) in factors.iter_mut().enumerate() {
            let (k, j) = (at % size / self.each, at % self.each);
            // In quarters of a full circle through `size`.
            let angle = 4.0 * (j * k) as f64 - [0, j, k][at / size] as f64;
            *factor = narrow(Complex::from_polar(
                1.0,
                -std::f64::consts::TAU * angle / (4 * size) as f64,
            ));
        }
        for (part, spectrum) in parts.iter().zip(spectra.chunks_mut(size * size)) {
            for (at, value) in
                part.spectrum(filter, f64::from(self.point), size, folded)?.into_iter().enumerate()
            {
                spectrum[(self.place)(at % size, at / size)] = narrow(value);
            }
        }
        Ok(numbers.iter().flat_map(|number| [number.re, number.im]).collect())
    }

    /// Tables of factors.
    fn tables(&self) -> usize {
        if self.shape.packing == Packing::Folded { 2 + usize::from(self.of_k) } else { 1 }
    }

    /// The same in a GPU's memory, and how many tables there are. On a GPU each packing has tiles
    /// of one size.
    pub(super) fn in_memory(&self, taps: &TapHomes) -> crate::Result<(Spectra, i32)> {
        let name = match self.shape.packing {
            Packing::Beside => ("spectra of pairs", 0),
            Packing::Folded => ("folded spectra", self.shape.size as usize),
            Packing::Stacked => ("stacked spectra", 0),
        };
        let filter = taps.filter();
        let (numbers, greatest) = taps
            .table(name, || Ok((self.make(filter)?, spectrum::greatest_pixel(filter.weight()))))?;
        Ok((Spectra { numbers: numbers as *const f32, greatest }, self.tables() as i32))
    }
}

/// The bits of a filter's signs in the GPU's memory, as `holes.rs` reads them: one for each tap
/// above 0, row by row, then one for each below.
fn signs_in_memory(taps: &TapHomes) -> crate::Result<u64> {
    let make = || {
        let (cols, rows) = taps_of(taps.filter());
        let words = holes::words(cols as i32) as usize;
        let mut signs = crate::memory::zeroed::<u32>(2 * words * rows)?;
        let lines = taps.dense()?.chunks_exact(cols).zip(signs.chunks_exact_mut(2 * words));
        for (taps, signs) in lines {
            for (at, &tap) in taps.iter().enumerate() {
                signs[at / 32] |= u32::from(tap > 0.0) << (at % 32);
                signs[words + at / 32] |= u32::from(tap < 0.0) << (at % 32);
            }
        }
        Ok((signs, ()))
    };
    Ok(taps.table(("signs", 0), make)?.0)
}

/// How a job is cut into tiles.
pub(super) struct Tiling {
    pub(super) parts: Parts,
    /// Rows of pairs of tiles, and rows of results of each.
    pub(super) down: u32,
    pub(super) tall: i32,
    /// Whether parts are added in an image of f32 apart.
    pub(super) apart: bool,
}

impl Tiling {
    /// In tiles of this shape.
    pub(super) fn new(
        job: &PassJob<'_>,
        (spectra, tables): (Spectra, i32),
        shape: TileShape,
        stream: &mut Stream,
    ) -> crate::Result<Self> {
        let PassJob { pass, window, .. } = job;
        let cut = shape.cut(taps_of(job.taps.filter()));
        let region = &pass.region;
        let (wide, tall) = shape.results(&cut);
        let tiles = |results: i32, tile: i32| (results as u32).div_ceil(tile as u32);
        let width = region.x1 - region.x0;
        // Columns that half a small folded tile has room for.
        let left = width % wide;
        let halves = shape.packing == Packing::Folded
            && shape.size < Large::SIDE
            && left > 0
            && left <= shape.size + 1 - cut.cols;
        // Bytes are never too large for spectra.
        let is_tame = pass.src.scalar == scalar::U8 && pass.outside.abs() <= spectra.greatest;
        let parts = Parts {
            window: *window,
            cols: cut.cols,
            rows: cut.rows,
            count: cut.count,
            beside: cut.beside,
            greatest: if is_tame { f32::INFINITY } else { spectra.greatest },
            noted: if is_tame { 0 } else { stream.holes()? },
            across: if halves { width / wide } else { tiles(width, wide) as i32 },
            halves: i32::from(halves),
            strided: 1,
            tables,
            point: 0.0,
            middle: job.taps.filter().fact::<LeftOut>().middle,
        };
        Ok(Self {
            parts,
            down: tiles(region.y1 - region.y0, tall),
            tall,
            apart: parts.count > 1 && pass.dst.scalar != scalar::F32,
        })
    }

    /// The pass of the kernels that take tiles: to its destination, or to the image apart, behind
    /// some bytes of scratch.
    pub(super) fn pass(
        &self,
        job: &PassJob<'_>,
        behind: usize,
        stream: &mut Stream,
    ) -> crate::Result<Pass> {
        let mut pass = keep::left_out(job.pass);
        if self.apart {
            let region = &job.pass.region;
            [pass.dst] = job.scratch(behind, region.y0 as usize..region.y1 as usize, stream)?;
            (pass.epilogue, pass.uncertain) = (Epilogue::NONE, UncertainList::NONE);
        }
        Ok(pass)
    }

    /// Overwrites the results that pixels reach which cannot be transformed, if there may be any.
    fn mend(&self, job: &PassJob<'_>, stream: &mut Stream) -> crate::Result<()> {
        let &Parts { window, greatest, noted, .. } = &self.parts;
        if noted == 0 {
            return Ok(());
        }
        let grid = Grid::covering(&job.pass.region, job.pass.region.x0, holes::TILE, holes::BLOCK);
        let grid = Grid { shared: holes::SHARED, ..stream.gpu().fitting(grid, job.planes) };
        let holes = Holes { window, greatest, noted, signs: signs_in_memory(job.taps)? };
        let arguments = (keep::left_out(job.pass), holes, job.taps.dense_in_memory()?);
        // SAFETY: the kernel takes any grid of such blocks; the pass describes allocated memory,
        // the signs and the taps are the window's.
        unsafe { stream.enqueue(fourier_holes, grid, &arguments) }
    }

    /// Copies the sums of parts to the destination, and the pixels that the border keeps.
    pub(super) fn finish(
        &self,
        job: &PassJob<'_>,
        pass: &Pass,
        stream: &mut Stream,
    ) -> crate::Result<()> {
        if self.apart {
            keep::copy(&Pass { src: pass.dst, ..job.pass }, job.planes, stream)?;
        }
        self.mend(job, stream)?;
        keep::restore(job, stream)
    }
}

/// Columns and rows of a filter's taps.
pub(super) fn taps_of(filter: &Filter) -> (usize, usize) {
    (filter.cols(), filter.rows())
}

/// The grid of tiles of this shape that results depend on.
pub(super) fn tiles_of(filter: &Filter, shape: TileShape) -> crate::kernels::prepared::Tiles {
    let cut = shape.cut(taps_of(filter));
    let (step, reach) = (shape.size + 1 - cut.rows, cut.count / cut.beside * cut.rows);
    crate::kernels::prepared::Tiles { step: step as usize, reach: reach as usize }
}
