//! The separable family in two passes: launches `gpu-kernels/src/kernels/separable.rs`. The row pass writes scratch memory, the column
//! pass reads it. For the sum of two terms there are two row passes, and one pass along the columns of both.

use gpu_kernels::abi::{Pass, Plane, Window};
use gpu_kernels::entry::{Entry, TapsEntry};
use gpu_kernels::kernels::separable::{
    COLUMNS, COLUMNS_BLOCK, COLUMNS_TILE, ROWS, ROWS_BLOCK, ROWS_TILE, SUMMED_SHARED, TAPS_CHUNK, columns_shared,
    rows_shared, separable_columns, separable_columns_summed, separable_rows,
};

use super::prepared::{Kernel, Prepared, Work};
use crate::Variant;
#[cfg(feature = "gpu")]
use crate::gpu::{launch::Grid, stream::Stream};
use crate::plan::machine::Times;

pub(super) static SEPARABLE: Kernel = Kernel {
    variant: Variant::Separable,
    entries: || {
        let rows = ROWS.iter().map(|(_, entry)| entry.name());
        let columns = COLUMNS.iter().map(|(_, entry)| entry.name());
        let any = [separable_rows.name(), separable_columns.name(), separable_columns_summed.name()];
        rows.chain(columns).chain(any).collect()
    },
    prepare: |problem| {
        let terms = problem.terms()?;
        let known = |taps: &i32, len: usize| *taps as usize == len;
        let rows = match ROWS.iter().find(|(taps, _)| known(taps, problem.cols)) {
            Some(&(taps, entry)) => RowPass::Known { taps, entry },
            None => RowPass::Any(separable_rows),
        };
        let columns = match COLUMNS.iter().find(|(taps, _)| known(taps, problem.rows)) {
            _ if problem.sum.is_some() => ColumnPass::Summed { terms, entry: separable_columns_summed },
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
        // Of sums, their columns of any number of taps; from an H200 alone.
        const SUMMED: Times = Times {
            h200: &[(18.0, 10.5), (34.0, 12.5), (66.0, 22.0), (130.0, 39.0)],
            h100: &[(18.0, 14.0), (34.0, 17.0), (66.0, 28.0), (130.0, 48.0)],
        };
        let times = if problem.sum.is_some() { SUMMED } else { TIMES };
        times.on(machine, problem.pair_taps())
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
    Known {
        taps: i32,
        entry: TapsEntry<(Pass, Window, Plane)>,
    },
    Any(Entry<(Pass, Window, Plane, *const f32)>),
    /// For sums: then come how many terms there are, the second one's image, and what is outside it.
    Summed {
        terms: usize,
        entry: Entry<(Pass, Window, Plane, i32, Plane, f32, *const f32)>,
    },
}

#[derive(Debug)]
struct Launch {
    rows: RowPass,
    columns: ColumnPass,
}

impl Work for Launch {
    #[cfg(feature = "gpu")]
    fn scratch(&self) -> usize {
        self.terms() * size_of::<f32>()
    }

    #[cfg(feature = "gpu")]
    fn launch(&self, job: &super::prepared::Job<'_>, stream: &mut Stream) -> crate::Result<()> {
        let (pass, window) = (job.pass, job.window);
        // The intermediate image has the rows that the column pass reads.
        let rows = crate::plan::problem::rows_read(
            pass.border,
            (window.anchor_y as usize, window.rows as usize),
            pass.region.y0 as usize..pass.region.y1 as usize,
            pass.height as usize,
        );
        // A row that holds the border's value everywhere has its filtered value everywhere.
        let outside = |term| -> crate::Result<f32> {
            let taps = &job.taps.row(term)?[..window.cols as usize];
            Ok(taps.iter().fold(0.0, |sum, &tap: &f32| tap.mul_add(pass.outside, sum)))
        };
        let [middle, second] = match self.terms() {
            1 => [job.scratch::<1>(rows, stream)?[0]; 2],
            _ => job.scratch::<2>(rows, stream)?,
        };
        for (term, middle) in [middle, second].into_iter().enumerate().take(self.terms()) {
            self.across(job, term, middle, stream)?;
        }
        let down = Pass { src: middle, outside: outside(0)?, ..pass };
        let shared = match self.columns {
            ColumnPass::Known { taps, .. } => columns_shared(taps),
            ColumnPass::Any(_) => columns_shared(TAPS_CHUNK),
            ColumnPass::Summed { .. } => SUMMED_SHARED,
        };
        let tile = (COLUMNS_BLOCK.0, COLUMNS_TILE as u32);
        let grid = Grid::covering(&pass.region, pass.region.x0, tile, COLUMNS_BLOCK).sharing(shared);
        let grid = stream.gpu().fitting(grid, job.planes);
        // SAFETY: block and shared memory are those that the kernel's contract states for so many taps; the pass describes
        // allocated memory; the column pass finds every row that it reads in scratch, and the image before it where KEEP copies from.
        unsafe {
            match self.columns {
                ColumnPass::Known { entry, .. } => {
                    stream.enqueue_with_taps(entry, grid, &(down, window, pass.src), job.taps.column(0)?)
                }
                ColumnPass::Any(entry) => {
                    stream.enqueue(entry, grid, &(down, window, pass.src, job.taps.columns_in_memory()?))
                }
                ColumnPass::Summed { terms, entry } => {
                    let (outside, taps) = (outside(terms - 1)?, job.taps.columns_in_memory()?);
                    stream.enqueue(entry, grid, &(down, window, pass.src, terms as i32, second, outside, taps))
                }
            }
        }
    }
}

#[cfg(feature = "gpu")]
impl Launch {
    /// How many products of a row and a column are added up.
    fn terms(&self) -> usize {
        if let ColumnPass::Summed { terms, .. } = self.columns { terms } else { 1 }
    }

    /// Puts a term's row pass into the stream, for the rows that `middle` has.
    fn across(
        &self,
        job: &super::prepared::Job<'_>,
        term: usize,
        middle: Plane,
        stream: &mut Stream,
    ) -> crate::Result<()> {
        use gpu_kernels::abi::{Doubts, Epilogue, Region};

        let (pass, window) = (job.pass, job.window);
        let region = Region { y0: middle.first_row, y1: middle.end_row, ..pass.region };
        let pass = Pass { dst: middle, region, epilogue: Epilogue::NONE, point: 0.0, doubts: Doubts::NONE, ..pass };
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
                    stream.enqueue_with_taps(entry, grid, &(pass, window), job.taps.row(term)?)
                }
                RowPass::Any(entry) => stream.enqueue(entry, grid, &(pass, window, job.taps.row_in_memory(term)?)),
            }
        }
    }
}
