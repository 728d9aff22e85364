//! The Fourier family: launches `gpu-kernels/src/kernels/fourier`.

use gpu_kernels::kernels::fourier::{ENTRIES, Tiled};

use super::prepared::{Kernel, Prepared, Work};
use crate::plan::machine::{Machine, Times};
use crate::plan::problem::Problem;
use crate::{Scalar, Variant, spectrum};

pub(super) static FOURIER: Kernel = Kernel {
    variant: Variant::Fourier,
    entries: || {
        let sizes = ENTRIES.iter().flat_map(|tiled| [tiled.entry.name(), tiled.stored.name()]);
        sizes.chain([gpu_kernels::kernels::keep::keep_edges.name()]).collect()
    },
    prepare: |problem| {
        spectrum::has_room(problem.cols, problem.rows, problem.weight)?;
        let Some(tiled) = largest(problem.place.machine()) else {
            let bytes = problem.place.machine().shared_memory;
            return Err(format!("its tile does not fit in the {bytes} bytes of shared memory of a block").into());
        };
        let stored = (problem.source, problem.target, problem.side_by_side) != (Scalar::F32, Scalar::F32, 1);
        Ok(Prepared::new(Variant::Fourier, Launch { tiled, stored }))
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
        let size = largest(machine).map_or(128, |tiled| tiled.size);
        let times = if in_parts(problem, size) { PARTED } else { TIMES };
        times.on(machine, transformed(problem, size))
    },
};

/// The entry for a machine: the larger the tile, the smaller the share of it that is wrapped around.
fn largest(machine: &Machine) -> Option<&'static Tiled> {
    ENTRIES.iter().find(|tiled| tiled.shared as usize <= machine.shared_memory)
}

/// Pixels that are transformed for each result, with tiles of `size`.
fn transformed(problem: &Problem, size: i32) -> f64 {
    spectrum::work(problem.cols as i32, size) * spectrum::work(problem.rows as i32, size)
}

/// Whether the window is too large for a tile.
fn in_parts(problem: &Problem, size: i32) -> bool {
    [problem.cols, problem.rows].into_iter().any(|taps| spectrum::cut(taps as i32, size).count() > 1)
}

#[derive(Debug)]
struct Launch {
    tiled: &'static Tiled,
    /// Whether pixels or results are not in planes of f32.
    stored: bool,
}

impl Work for Launch {
    #[cfg(feature = "gpu")]
    fn launch(&self, job: &super::prepared::Job<'_>, stream: &mut crate::gpu::stream::Stream) -> crate::Result<()> {
        use gpu_kernels::abi::{Doubts, Epilogue, Pass, scalar};
        use gpu_kernels::kernels::fourier::Parts;

        let Tiled { size, block, shared, .. } = *self.tiled;
        let entry = if self.stored { self.tiled.stored } else { self.tiled.entry };
        let spectra = job.taps.spectra(|filter| numbers(self.tiled, filter))?;
        let cut = spectrum::Cut::new(job.taps.filter(), size);
        let greatest = spectrum::greatest_pixel(job.taps.filter().weight());
        // What kernels for any pixels need not ask.
        let tame =
            self.stored && job.pass.src.scalar == scalar::U8 && greatest >= 255.0 && job.pass.outside.abs() <= greatest;
        let slots = stream.gpu().resident_blocks(entry.name(), block.0 * block.1, shared)?;
        let region = &job.pass.region;
        let across = ((region.x1 - region.x0) as u32).div_ceil(2 * (size + 1 - cut.cols) as u32);
        let down = ((region.y1 - region.y0) as u32).div_ceil((size + 1 - cut.rows) as u32);
        let blocks = (u64::from(across) * u64::from(down)).min((slots / u64::from(job.planes)).max(1)) as u32;
        let parts = Parts {
            window: job.window,
            cols: cut.cols,
            rows: cut.rows,
            count: cut.count,
            beside: cut.beside,
            greatest: if tame { f32::INFINITY } else { greatest },
            across: across as i32,
        };
        let grid = crate::gpu::launch::Grid { blocks: (blocks, 1, job.planes), block: (block.0, block.1, 1), shared };
        // Parts are added in f32.
        let apart = parts.count > 1 && job.pass.dst.scalar != scalar::F32;
        let mut pass = super::keep::left_out(job.pass);
        if apart {
            [pass.dst] = job.scratch(region.y0 as usize..region.y1 as usize, stream)?;
            (pass.epilogue, pass.doubts) = (Epilogue::NONE, Doubts::NONE);
        }
        let arguments = (pass, parts, spectra, job.taps.dense_in_memory()?);
        // SAFETY: the kernel takes any number of blocks of this shape; the spectra are those of these parts; the pass describes
        // allocated memory.
        unsafe { stream.enqueue(entry, grid, &arguments)? };
        if apart {
            super::keep::copy(&Pass { src: pass.dst, ..job.pass }, job.planes, stream)?;
        }
        super::keep::restore(job, stream)
    }

    #[cfg(feature = "gpu")]
    fn tiles(&self, filter: &crate::Filter) -> Option<super::prepared::Tiles> {
        let cut = spectrum::Cut::new(filter, self.tiled.size);
        let (step, reach) = (self.tiled.size + 1 - cut.rows, cut.count / cut.beside * cut.rows);
        Some(super::prepared::Tiles { step: step as usize, reach: reach as usize })
    }

    #[cfg(feature = "gpu")]
    fn scratch(&self) -> usize {
        size_of::<f32>()
    }
}

/// The table of twiddle factors, then the spectrum of each of the window's parts, as the kernel reads them.
#[cfg(feature = "gpu")]
fn numbers(tiled: &Tiled, filter: &crate::Filter) -> crate::Result<Vec<f32>> {
    use rustfft::num_complex::Complex;

    let size = tiled.size as usize;
    let parts: Vec<_> = spectrum::parts(filter, (tiled.size, tiled.size)).collect();
    let mut numbers = crate::memory::zeroed::<Complex<f32>>(size + parts.len() * size * size)?;
    let narrow = |value: Complex<f64>| Complex::new(value.re as f32, value.im as f32);
    let (factors, spectra) = numbers.split_at_mut(size);
    for (at, factor) in factors.iter_mut().enumerate() {
        let angle = -std::f64::consts::TAU * ((at % 8) * (at / 8)) as f64 / size as f64;
        *factor = narrow(Complex::from_polar(1.0, angle));
    }
    for (part, spectrum) in parts.iter().zip(spectra.chunks_mut(size * size)) {
        for (at, value) in part.spectrum(filter, size)?.into_iter().enumerate() {
            spectrum[tiled.place(at % size, at / size)] = narrow(value);
        }
    }
    Ok(numbers.iter().flat_map(|number| [number.re, number.im]).collect())
}
