//! Separable filters of bytes in f64, where f32 sums would leave many bytes in doubt: launches `gpu-kernels/src/kernels/passes.rs`.

use gpu_kernels::abi::{Doubts, Pass, Region};
use gpu_kernels::kernels::passes::{
    BLOCK, COLUMNS_TILE, Column, Middle, RESULTS, ROWS_TILE, SETTLE_BLOCK, SETTLE_SHARED, SHARED, passes_columns,
    passes_columns_defined, passes_columns_summed, passes_rows, passes_rows_defined, passes_settle, passes_verdict,
};

use super::prepared::Job;
use super::uncertain::InPasses;
use crate::Result;
use crate::gpu::{launch::Grid, stream::Stream};
use crate::plan::problem::rows_read;

/// Bytes of scratch for the intermediate image, unless a band of a few rows needs more.
const SCRATCH: usize = 512 << 20;

/// Of so many results one may be in doubt, so that each is settled; with more, all are computed again. On an H200, one that is settled takes about as long as a few hundred
/// do in two passes.
const FEW: u64 = 512;

/// Puts both passes into the stream. The pass's list takes what is in doubt; where passes define the bytes, that is settled here.
pub(crate) fn launch(job: &Job<'_>, InPasses { defined, error }: InPasses, stream: &mut Stream) -> Result<()> {
    both(job, (false, error), stream)?;
    if defined {
        let region = &job.pass.region;
        let area = (region.x1 - region.x0) as u64 * (region.y1 - region.y0) as u64;
        let most = (area * u64::from(job.planes) / FEW).min(u64::from(u32::MAX / 2)) as u32;
        let (row, column) = job.taps.exact_pairs_in_memory()?[0];
        let grid =
            |blocks| Grid { blocks: (blocks, 1, 1), block: (SETTLE_BLOCK.0, SETTLE_BLOCK.1, 1), shared: SETTLE_SHARED };
        let arguments = (job.pass, job.window, row, column, job.planes as i32);
        // SAFETY: blocks and shared memory are what the kernels state; the pass has a list, and describes allocated memory.
        unsafe {
            stream.enqueue(passes_verdict, grid(1), &(job.pass, most))?;
            stream.enqueue(passes_settle, grid(Doubts::SEGMENTS as u32), &arguments)?;
        }
        both(job, (true, error), stream)?;
    }
    super::keep::restore(job, stream)
}

/// Puts both passes into the stream, for bands of the region whose intermediate images are not too large.
fn both(job: &Job<'_>, (defined, error): (bool, f64), stream: &mut Stream) -> Result<()> {
    let (pass, window) = (super::keep::left_out(job.pass), job.window);
    let region = pass.region;
    let left = region.aligned_left();
    let row = 8 * ((region.x1 - left) as usize).next_multiple_of(RESULTS);
    let (pairs, outside) = (job.taps.exact_pairs_in_memory()?, job.taps.rows_of(pass.outside));
    // Rows that belong to two bands are computed twice: few, if a band has many times the window's.
    let most = (SCRATCH / (row * job.planes as usize * pairs.len())).max(4 * window.rows as usize);
    let band = (most - (window.rows as usize).min(most - 1)).max(1);
    for first in (region.y0 as usize..region.y1 as usize).step_by(band) {
        let rows = first..(first + band).min(region.y1 as usize);
        let anchor = (window.anchor_y as usize, window.rows as usize);
        let read = rows_read(pass.border, anchor, rows.clone(), pass.height as usize);
        let plane = row * read.len();
        let bytes = plane.checked_mul(job.planes as usize * pairs.len());
        let start = stream.scratch(bytes.ok_or_else(|| stream.gpu().out_of_memory(u64::MAX))?)?;
        let offset = read.start as i64 * row as i64 + 8 * i64::from(left);
        let middle = |term: usize| Middle {
            base: (start + (term * plane * job.planes as usize) as u64).wrapping_sub(offset as u64),
            row: row as i64,
            plane: plane as i64,
            first_row: read.start as i32,
            end_row: read.end as i32,
        };
        let column = |term: usize| Column { middle: middle(term), taps: pairs[term].1, outside: outside[term] };
        let across = Pass { region: Region { y0: read.start as i32, y1: read.end as i32, ..region }, ..pass };
        let down = Pass { region: Region { y0: rows.start as i32, y1: rows.end as i32, ..region }, ..pass };
        let grid = |region: &Region, left, tile, stream: &Stream| {
            stream.gpu().fitting(Grid::covering(region, left, tile, BLOCK).sharing(SHARED), job.planes)
        };
        let (rows_grid, columns_grid) =
            (grid(&across.region, left, ROWS_TILE, stream), grid(&down.region, region.x0, COLUMNS_TILE, stream));
        let rows_entry = if defined { passes_rows_defined } else { passes_rows };
        let columns_entry = if defined { passes_columns_defined } else { passes_columns };
        // SAFETY: blocks and shared memory are what the kernels state; the passes describe allocated memory, and scratch has a place
        // for each row that is read, of each term.
        unsafe {
            for (term, (taps, _)) in pairs.iter().enumerate() {
                stream.enqueue(rows_entry, rows_grid, &(across, window, middle(term), *taps))?;
            }
            match job.taps.filter().sum() {
                Some(sum) => {
                    let second = if pairs.len() > 1 { column(1) } else { Column { taps: 0, ..column(0) } };
                    let summed = (down, window, column(0), second, sum.point, error);
                    stream.enqueue(passes_columns_summed, columns_grid, &summed)?;
                }
                None => stream.enqueue(columns_entry, columns_grid, &(down, window, column(0), error))?,
            }
        }
    }
    Ok(())
}
