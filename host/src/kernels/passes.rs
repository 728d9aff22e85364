//! Separable filters of bytes in f64, where f32 sums would leave many bytes in doubt: launches `gpu-kernels/src/kernels/passes.rs`.

use gpu_kernels::abi::{Pass, Region};
use gpu_kernels::kernels::passes::{
    BLOCK, COLUMNS_TILE, Middle, ROWS_TILE, SHARED, passes_columns, passes_columns_defined, passes_rows,
    passes_rows_defined,
};

use super::prepared::Job;
use crate::Result;
use crate::gpu::{launch::Grid, stream::Stream};
use crate::plan::problem::rows_read;

/// Bytes of scratch for the intermediate image, unless a band of a few rows needs more.
const SCRATCH: usize = 512 << 20;

/// Puts both passes into the stream, for bands of the region whose intermediate image is not too large. `defined` says whether the passes
/// define the bytes; if not, f64 sums in two orders are at most `reordering` apart, and the pass's list takes what is in doubt.
pub(crate) fn launch(job: &Job<'_>, defined: bool, reordering: f64, stream: &mut Stream) -> Result<()> {
    let (pass, window) = (super::keep::left_out(job.pass), job.window);
    let region = pass.region;
    let left = region.aligned_left();
    let row = 8 * ((region.x1 - left) as usize).next_multiple_of(16);
    // Rows that belong to two bands are computed twice: few, if a band has many times the window's.
    let most = (SCRATCH / (row * job.planes as usize)).max(4 * window.rows as usize);
    let band = (most - (window.rows as usize).min(most - 1)).max(1);
    let (row_taps, column_taps) = job.taps.exact_pair_in_memory()?;
    let outside = job.taps.row_of(pass.outside);
    for first in (region.y0 as usize..region.y1 as usize).step_by(band) {
        let rows = first..(first + band).min(region.y1 as usize);
        let anchor = (window.anchor_y as usize, window.rows as usize);
        let read = rows_read(pass.border, anchor, rows.clone(), pass.height as usize);
        let plane = row * read.len();
        let bytes = plane.checked_mul(job.planes as usize).ok_or_else(|| stream.gpu().out_of_memory(u64::MAX))?;
        let start = stream.scratch(bytes)?;
        let offset = read.start as i64 * row as i64 + 8 * i64::from(left);
        let middle = Middle {
            base: start.wrapping_sub(offset as u64),
            row: row as i64,
            plane: plane as i64,
            first_row: read.start as i32,
            end_row: read.end as i32,
        };
        let across = Region { y0: middle.first_row, y1: middle.end_row, ..region };
        let down = Region { y0: rows.start as i32, y1: rows.end as i32, ..region };
        let grid = |region: &Region, tile, stream: &Stream| {
            stream.gpu().fitting(Grid::covering(region, region.x0, tile, BLOCK).sharing(SHARED), job.planes)
        };
        let (rows_grid, columns_grid) = (grid(&across, ROWS_TILE, stream), grid(&down, COLUMNS_TILE, stream));
        let rows_entry = if defined { passes_rows_defined } else { passes_rows };
        let columns_entry = if defined { passes_columns_defined } else { passes_columns };
        let first = (Pass { region: across, ..pass }, window, middle, row_taps);
        let second = (Pass { region: down, ..pass }, window, middle, column_taps, outside, reordering);
        // SAFETY: blocks and shared memory are what the kernels state; the passes describe allocated memory, and scratch has a place
        // for each row that is read.
        unsafe {
            stream.enqueue(rows_entry, rows_grid, &first)?;
            stream.enqueue(columns_entry, columns_grid, &second)?;
        }
    }
    super::keep::restore(job, stream)
}
