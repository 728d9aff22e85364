//! Tiles of 1024 x 1024, in three kernels.

use gpu_kernels::kernels::fourier::Large;

use crate::kernels::prepared::Work;
use crate::plan::machine::Machine;
use crate::plan::problem::Problem;
use crate::spectrum;

/// Pairs that are taken at a time, at most: so many that they fill a GPU, and so few that their numbers stay in its level-2 cache, nearly all of them.
#[cfg(feature = "gpu")]
const TOGETHER: u32 = 6;

/// Bytes of scratch for each.
#[cfg(feature = "gpu")]
const EACH: u64 = Large::NUMBERS + Large::WORDS;

/// Microseconds for a million results: for each pair of tiles, for the share of its rows that are read, and of those that hold results. From an H200.
pub(super) fn time(problem: &Problem, machine: &Machine) -> f64 {
    const PAIR: f64 = 9.0;
    const READ: f64 = 7.5;
    const RESULTS: f64 = 5.5;
    let along = |taps: usize| {
        let (parts, longest) = spectrum::cut_into(taps as i32, Large::SIDE);
        (f64::from(parts), f64::from(Large::results(longest)), f64::from(longest))
    };
    let ((beside, across, _), (below, down, rows)) = (along(problem.cols), along(problem.rows));
    let (width, height) = (problem.width as f64, problem.height as f64);
    let (pairs, bands) = ((width / (2.0 * across)).ceil(), (height / down).ceil());
    let share = |lines: f64| lines / f64::from(Large::SIDE);
    let column = PAIR * bands + READ * share(height + bands * (rows - 1.0)) + RESULTS * share(height);
    machine.slower() * beside * below * pairs * column / (width * height / 1e6)
}

#[derive(Debug)]
pub(super) struct Launch {
    /// Whether pixels or results are not in planes of f32.
    pub(super) stored: bool,
}

impl Work for Launch {
    #[cfg(feature = "gpu")]
    fn launch(
        &self,
        job: &crate::kernels::prepared::Job<'_>,
        stream: &mut crate::gpu::stream::Stream,
    ) -> crate::Result<()> {
        use gpu_kernels::kernels::fourier::{
            Pairs, fourier_large_columns, fourier_large_results, fourier_large_results_stored, fourier_large_rows,
            fourier_large_rows_stored,
        };

        use crate::gpu::launch::Grid;

        const SIDE: usize = Large::SIDE as usize;
        let spectra = job
            .taps
            .spectra(|filter| super::numbers(filter, SIDE, |at| (at % 32) * (at / 32), |kx, ky| SIDE * ky + kx))?;
        let tiling = super::Tiling::new(job, &spectra, Large::SIDE);
        let parts = tiling.parts;
        let count = parts.across as u32 * tiling.down * job.planes;
        let together = TOGETHER.min(count);
        let bytes = (u64::from(together) * EACH).next_multiple_of(128) as usize;
        let pass = tiling.pass(job, bytes, stream)?;
        // The same memory, if it is reserved already.
        let numbers = stream.scratch(bytes)?;
        let words = numbers + u64::from(together) * Large::NUMBERS;
        let (rows_entry, results_entry) = match self.stored {
            true => (fourier_large_rows_stored, fourier_large_results_stored),
            false => (fourier_large_rows, fourier_large_results),
        };
        let (taps, spectra) = (job.taps.dense_in_memory()?, spectra.numbers);
        let lines = |region: i32, most: i32| (region.min(most) as u32).div_ceil(Large::ROW_BLOCK.1);
        let height = job.pass.region.y1 - job.pass.region.y0;
        let row_blocks = lines(height + parts.rows - 1, Large::SIDE);
        let result_blocks = lines(height, Large::results(parts.rows));
        for first in (0..count).step_by(together as usize) {
            let grid = |blocks, (width, height): (u32, u32), shared| {
                let blocks = (blocks, together.min(count - first), 1);
                Grid { blocks, block: (width, height, 1), shared }
            };
            for part in 0..parts.count {
                let pairs = Pairs { numbers, words, first: first as i32, down: tiling.down as i32, part };
                // SAFETY: the blocks are those of the layout; the spectra are those of these parts; the pass describes allocated memory, and
                // scratch has room for this many pairs.
                unsafe {
                    let grid_of = |blocks| grid(blocks, Large::ROW_BLOCK, Large::ROW_SHARED);
                    stream.enqueue(rows_entry, grid_of(row_blocks), &(pass, parts, pairs, spectra))?;
                    let columns = grid(Large::SIDE as u32 / Large::COLUMNS, Large::COLUMN_BLOCK, Large::COLUMN_SHARED);
                    stream.enqueue(fourier_large_columns, columns, &(pass, parts, pairs, spectra))?;
                    stream.enqueue(results_entry, grid_of(result_blocks), &(pass, parts, pairs, spectra, taps))?;
                }
            }
        }
        tiling.finish(job, &pass, stream)
    }

    #[cfg(feature = "gpu")]
    fn tiles(&self, filter: &crate::Filter) -> Option<crate::kernels::prepared::Tiles> {
        Some(super::tiles_of(filter, Large::SIDE))
    }

    #[cfg(feature = "gpu")]
    fn scratch(&self) -> usize {
        size_of::<f32>()
    }

    #[cfg(feature = "gpu")]
    fn reserved(&self) -> u64 {
        u64::from(TOGETHER) * EACH
    }
}
