//! The Fourier family: launches `gpu-kernels/src/kernels/fourier`. The window alone decides whether its tiles are those of a block's shared memory
//! (`tiles.rs`) or larger (`large.rs`).

mod large;
mod tiles;

#[cfg(feature = "gpu")]
use gpu_kernels::abi::{Doubts, Epilogue, Pass, scalar};
#[cfg(feature = "gpu")]
use gpu_kernels::kernels::fourier::Parts;
use gpu_kernels::kernels::fourier::{self as kernels, ENTRIES, Large, Tiled};

#[cfg(feature = "gpu")]
use super::keep;
#[cfg(feature = "gpu")]
use super::prepared::Job;
use super::prepared::{Kernel, Prepared};
#[cfg(feature = "gpu")]
use crate::gpu::{stream::Stream, taps::Spectra};
use crate::plan::machine::{Machine, Times};
use crate::plan::problem::Problem;
use crate::{Scalar, Variant, spectrum};

pub(super) static FOURIER: Kernel = Kernel {
    variant: Variant::Fourier,
    entries: || {
        let sizes = ENTRIES.iter().flat_map(|tiled| [tiled.entry, tiled.stored, tiled.bytes].map(|entry| entry.name()));
        let large = [
            kernels::fourier_large_rows.name(),
            kernels::fourier_large_rows_stored.name(),
            kernels::fourier_large_columns.name(),
            kernels::fourier_large_results.name(),
            kernels::fourier_large_results_stored.name(),
            gpu_kernels::kernels::keep::keep_edges.name(),
        ];
        sizes.chain(large).collect()
    },
    prepare: |problem| {
        spectrum::has_room(problem.cols, problem.rows, problem.weight)?;
        let machine = problem.place.machine();
        let Some(tiled) = largest(machine) else {
            let bytes = machine.shared_memory;
            return Err(format!("its tile does not fit in the {bytes} bytes of shared memory of a block").into());
        };
        let stored = (problem.source, problem.target, problem.side_by_side) != (Scalar::F32, Scalar::F32, 1);
        let entry = match stored {
            true if problem.makes_bytes() && !in_parts(problem, tiled.size) => tiled.bytes,
            true => tiled.stored,
            false => tiled.entry,
        };
        Ok(match is_large(problem, machine) {
            true => Prepared::new(Variant::Fourier, large::Launch { stored }),
            false => Prepared::new(Variant::Fourier, tiles::Launch { tiled, entry }),
        })
    },
    cost: |problem, machine| {
        // The last of the H100's was timed on an H200 alone.
        const TIMES: Times = Times {
            h200: &[(1.3, 5.6), (2.7, 9.8), (4.0, 13.1)],
            h100: &[(1.3, 5.87), (1.78, 6.94), (2.7, 9.82), (4.0, 13.1)],
        };
        // Of windows in parts, whose sums are read again for each; from an H200 alone.
        const PARTED: Times = Times {
            h200: &[(0.0, 0.0), (10.6, 58.6), (16.0, 65.0), (88.6, 499.0), (154.0, 700.0)],
            h100: &[(0.0, 0.0), (10.6, 58.6), (16.0, 65.0), (88.6, 499.0), (154.0, 700.0)],
        };
        if is_large(problem, machine) {
            return large::time(problem, machine);
        }
        let size = largest(machine).map_or(128, |tiled| tiled.size);
        let times = if in_parts(problem, size) { PARTED } else { TIMES };
        times.on(machine, transformed((problem.cols, problem.rows), size))
    },
};

/// The entry for a machine: the larger the tile, the smaller the share of it that is wrapped around.
fn largest(machine: &Machine) -> Option<&'static Tiled> {
    ENTRIES.iter().find(|tiled| tiled.shared as usize <= machine.shared_memory)
}

/// Pixels transformed for each result, from which on large tiles are faster. From an H200.
const LARGE_FROM: f64 = 5.5;

/// Whether a window's tiles are large. So a picture's size does not decide its bits.
fn is_large(problem: &Problem, machine: &Machine) -> bool {
    machine.shared_memory >= Large::COLUMN_SHARED as usize && greatest_side(problem.cols, problem.rows) == Large::SIDE
}

/// The side of the tiles for such a window, on a GPU that has room for large ones.
pub(crate) fn greatest_side(cols: usize, rows: usize) -> i32 {
    if transformed((cols, rows), 128) >= LARGE_FROM { Large::SIDE } else { 128 }
}

/// Pixels that are transformed for each result, with tiles of `size`.
fn transformed((cols, rows): (usize, usize), size: i32) -> f64 {
    spectrum::work(cols as i32, size) * spectrum::work(rows as i32, size)
}

/// Whether the window is too large for a tile.
fn in_parts(problem: &Problem, size: i32) -> bool {
    [problem.cols, problem.rows].into_iter().any(|taps| spectrum::cut(taps as i32, size).count() > 1)
}

/// The table of twiddle factors, then the spectrum of each of the window's parts, as kernels read them: of a tile of `size`, whose frequency of column
/// `kx` and row `ky` has its place among the numbers; factor number `at` is that of a full circle times `angle(at) / size`.
#[cfg(feature = "gpu")]
fn numbers(
    filter: &crate::Filter,
    size: usize,
    angle: impl Fn(usize) -> usize,
    place: impl Fn(usize, usize) -> usize,
) -> crate::Result<Vec<f32>> {
    use rustfft::num_complex::Complex;

    let parts: Vec<_> = spectrum::parts(filter, (size as i32, size as i32)).collect();
    let mut numbers = crate::memory::zeroed::<Complex<f32>>(size + parts.len() * size * size)?;
    let narrow = |value: Complex<f64>| Complex::new(value.re as f32, value.im as f32);
    let (factors, spectra) = numbers.split_at_mut(size);
    for (at, factor) in factors.iter_mut().enumerate() {
        *factor = narrow(Complex::from_polar(1.0, -std::f64::consts::TAU * angle(at) as f64 / size as f64));
    }
    for (part, spectrum) in parts.iter().zip(spectra.chunks_mut(size * size)) {
        for (at, value) in part.spectrum(filter, size)?.into_iter().enumerate() {
            spectrum[place(at % size, at / size)] = narrow(value);
        }
    }
    Ok(numbers.iter().flat_map(|number| [number.re, number.im]).collect())
}

/// How a job is cut into tiles.
#[cfg(feature = "gpu")]
struct Tiling {
    parts: Parts,
    /// Rows of tiles.
    down: u32,
    /// Whether parts are added in an image of f32 apart.
    apart: bool,
}

#[cfg(feature = "gpu")]
impl Tiling {
    /// In tiles of `size`.
    fn new(job: &Job<'_>, spectra: &Spectra, size: i32) -> Self {
        let Job { pass, window, .. } = job;
        let cut = spectrum::Cut::new(job.taps.filter(), size);
        let region = &pass.region;
        let tiles = |results: i32, tile: i32| (results as u32).div_ceil(tile as u32);
        // Of bytes, and what is outside the image of them, none is too large for spectra.
        let of_bytes = pass.src.scalar == scalar::U8 && spectra.greatest >= 255.0;
        let is_tame = of_bytes && pass.outside.abs() <= spectra.greatest;
        let parts = Parts {
            window: *window,
            cols: cut.cols,
            rows: cut.rows,
            count: cut.count,
            beside: cut.beside,
            greatest: if is_tame { f32::INFINITY } else { spectra.greatest },
            across: tiles(region.x1 - region.x0, 2 * (size + 1 - cut.cols)) as i32,
        };
        Self {
            parts,
            down: tiles(region.y1 - region.y0, size + 1 - cut.rows),
            apart: parts.count > 1 && pass.dst.scalar != scalar::F32,
        }
    }

    /// The pass of the kernels that take tiles: to its destination, or to the image apart, behind some bytes of scratch.
    fn pass(&self, job: &Job<'_>, behind: usize, stream: &mut Stream) -> crate::Result<Pass> {
        let mut pass = keep::left_out(job.pass);
        if self.apart {
            let region = &job.pass.region;
            [pass.dst] = job.scratch(behind, region.y0 as usize..region.y1 as usize, stream)?;
            (pass.epilogue, pass.doubts) = (Epilogue::NONE, Doubts::NONE);
        }
        Ok(pass)
    }

    /// Brings the sums of parts from there to the destination, and copies what the border keeps.
    fn finish(&self, job: &Job<'_>, pass: &Pass, stream: &mut Stream) -> crate::Result<()> {
        if self.apart {
            keep::copy(&Pass { src: pass.dst, ..job.pass }, job.planes, stream)?;
        }
        keep::restore(job, stream)
    }
}

/// The grid on which results depend, of tiles of `size`.
#[cfg(feature = "gpu")]
fn tiles_of(filter: &crate::Filter, size: i32) -> super::prepared::Tiles {
    let cut = spectrum::Cut::new(filter, size);
    let (step, reach) = (size + 1 - cut.rows, cut.count / cut.beside * cut.rows);
    super::prepared::Tiles { step: step as usize, reach: reach as usize }
}
