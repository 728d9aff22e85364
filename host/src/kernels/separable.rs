//! The separable family in two passes: launches `gpu-kernels/src/kernels/separable.rs`. The row pass writes scratch memory, the column
//! pass reads it.

use gpu_kernels::abi::{Pass, Plane, Window};
use gpu_kernels::entry::{Entry, TapsEntry};
use gpu_kernels::kernels::separable::{
    COLUMNS, COLUMNS_BLOCK, COLUMNS_TILE, ROWS, ROWS_BLOCK, ROWS_TILE, TAPS_CHUNK, columns_shared, rows_shared,
    separable_columns, separable_rows,
};

use super::prepared::{Kernel, Prepared, Work};
#[cfg(feature = "gpu")]
use crate::gpu::{launch::Grid, stream::Stream};
use crate::plan::machine::Times;
use crate::{Variant, Why};

pub(super) static SEPARABLE: Kernel = Kernel {
    variant: Variant::Separable,
    entries: || {
        let rows = ROWS.iter().map(|(_, entry)| entry.name());
        let columns = COLUMNS.iter().map(|(_, entry)| entry.name());
        rows.chain(columns).chain([separable_rows.name(), separable_columns.name()]).collect()
    },
    prepare: |problem| {
        if !problem.separable {
            return Err(Why::NOT_SEPARABLE);
        }
        let known = |taps: &i32, len: usize| *taps as usize == len;
        let rows = match ROWS.iter().find(|(taps, _)| known(taps, problem.cols)) {
            Some(&(taps, entry)) => RowPass::Known { taps, entry },
            None => RowPass::Any(separable_rows),
        };
        let columns = match COLUMNS.iter().find(|(taps, _)| known(taps, problem.rows)) {
            Some(&(taps, entry)) => ColumnPass::Known { taps, entry },
            None => ColumnPass::Any(separable_columns),
        };
        Ok(Prepared::new(Variant::Separable, Launch { rows, columns }))
    },
    cost: |problem, machine| {
        const TIMES: Times = Times {
            h200: &[(10.0, 4.8), (34.0, 5.6), (66.0, 12.2), (102.0, 14.0)],
            // The pair of 102 taps was timed on an H200 alone.
            h100: &[(10.0, 6.0), (34.0, 6.5), (66.0, 12.3), (102.0, 14.0)],
        };
        TIMES.on(machine, problem.pair_taps())
    },
};

/// An entry of the row pass: one for a fixed number of taps, or the one for any number.
#[derive(Clone, Copy, Debug)]
enum RowPass {
    Known { taps: i32, entry: TapsEntry<(Pass, Window)> },
    Any(Entry<(Pass, Window, *const f32)>),
}

/// An entry of the column pass, likewise. The argument after the window is the image before the row pass.
#[derive(Clone, Copy, Debug)]
enum ColumnPass {
    Known { taps: i32, entry: TapsEntry<(Pass, Window, Plane)> },
    Any(Entry<(Pass, Window, Plane, *const f32)>),
}

#[derive(Debug)]
struct Launch {
    rows: RowPass,
    columns: ColumnPass,
}

impl Work for Launch {
    #[cfg(feature = "gpu")]
    fn scratch(&self) -> usize {
        size_of::<f32>()
    }

    #[cfg(feature = "gpu")]
    fn launch(&self, job: &super::prepared::Job<'_>, stream: &mut Stream) -> crate::Result<()> {
        use gpu_kernels::abi::{Doubts, Epilogue, Region};

        let (pass, window) = (job.pass, job.window);
        // The intermediate image has the rows that the column pass reads.
        let rows = crate::plan::problem::rows_read(
            pass.border,
            (window.anchor_y as usize, window.rows as usize),
            pass.region.y0 as usize..pass.region.y1 as usize,
            pass.height as usize,
        );
        let middle = job.scratch(rows, stream)?;
        let region = Region { y0: middle.first_row, y1: middle.end_row, ..pass.region };
        let first = Pass { dst: middle, region, epilogue: Epilogue::NONE, doubts: Doubts::NONE, ..pass };
        let taps = match self.rows {
            RowPass::Known { taps, .. } => taps,
            RowPass::Any(_) => TAPS_CHUNK,
        };
        let tile = (ROWS_TILE as u32, ROWS_BLOCK.1);
        let grid = Grid::covering(&region, region.aligned_left(), tile, ROWS_BLOCK).sharing(rows_shared(taps));
        let grid = stream.gpu().fitting(grid, job.planes);
        // SAFETY: block and shared memory are those that the kernel's contract states for so many taps; the pass describes
        // allocated memory, and scratch has a place for all of the region.
        unsafe {
            match self.rows {
                RowPass::Known { entry, .. } => {
                    stream.enqueue_with_taps(entry, grid, &(first, window), job.taps.row()?)?;
                }
                RowPass::Any(entry) => stream.enqueue(entry, grid, &(first, window, job.taps.row_in_memory()?))?,
            }
        }

        // A row that holds the border's value everywhere has its filtered value everywhere.
        let outside =
            job.taps.row()?[..window.cols as usize].iter().fold(0.0, |sum, &tap: &f32| tap.mul_add(pass.outside, sum));
        let second = Pass { src: middle, outside, ..pass };
        let taps = match self.columns {
            ColumnPass::Known { taps, .. } => taps,
            ColumnPass::Any(_) => TAPS_CHUNK,
        };
        let tile = (COLUMNS_BLOCK.0, COLUMNS_TILE as u32);
        let grid = Grid::covering(&pass.region, pass.region.x0, tile, COLUMNS_BLOCK).sharing(columns_shared(taps));
        let grid = stream.gpu().fitting(grid, job.planes);
        let arguments = (second, window, pass.src);
        // SAFETY: as above; the column pass finds every row that it reads in scratch, and the image before it where KEEP
        // copies from.
        unsafe {
            match self.columns {
                ColumnPass::Known { entry, .. } => {
                    stream.enqueue_with_taps(entry, grid, &arguments, job.taps.column()?)
                }
                ColumnPass::Any(entry) => {
                    let (pass, window, original) = arguments;
                    stream.enqueue(entry, grid, &(pass, window, original, job.taps.column_in_memory()?))
                }
            }
        }
    }
}
