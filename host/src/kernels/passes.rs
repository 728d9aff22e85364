//! Exact sums over products of a row and a column of bytes, in two passes: launches
//! `gpu-kernels/src/kernels/passes.rs`.

use std::ops::Range;

use gpu_kernels::abi::{Pass, Region};
use gpu_kernels::kernels::passes::{
    BIAS, BLOCK, COLUMNS_SHARED, COLUMNS_TILE, Column, DIGITS, Ending, Middle, ROWS_SHARED,
    ROWS_TILE, STEP, VERDICT_BLOCK, VERDICT_SHARED, band, band_bytes, fragment, passes_columns,
    passes_rows, passes_verdict,
};

use super::prepared::PassJob;
use crate::filter::whole::WholeTaps;
use crate::gpu::{launch::Grid, stream::Stream};
use crate::problem::rows_read;
use crate::whole::digit;
use crate::{Error, Filter, Result, Variant};

/// The intermediate images get this fraction of a GPU's memory, 1 / 64, unless a band of a few rows
/// needs more. A band takes 5 us on an H200 even if its passes return at once.
const SCRATCH_SHARE: u64 = 64;

/// Waves of blocks of a launch, unless a row of results needs more. Few, as the passes mostly
/// return at once, and each further block costs time.
const WAVES: u64 = 2;

/// What the kernels need of a filter.
struct ExactTaps {
    /// For each term the sum of the row pass over bytes of 1.
    across: Vec<i64>,
    /// For each term the addresses of its row's band and of its column's.
    bands: Vec<(u64, u64)>,
    ending: Ending,
}

impl ExactTaps {
    fn new(job: &PassJob<'_>) -> Result<Self> {
        let filter = job.taps.given();
        let whole = &filter.byte_filter()?.whole;
        let (terms, point) = match (whole.two_terms(), &whole.taps) {
            (Some(terms), WholeTaps::Products { point, .. }) => (terms, *point),
            _ => return Err(no_product()),
        };
        let sum = |taps: &[i64]| taps.iter().sum::<i64>();
        let down: i128 = terms.iter().map(|(_, column)| i128::from(sum(column))).sum();
        let (x, y) = filter.anchor();
        let apart = |size: usize, anchor: usize| (size / 2) as i32 - anchor as i32;
        let ending = Ending {
            start: halves(-i128::from(BIAS) * down),
            point: halves(point),
            apart: [apart(filter.cols(), x), apart(filter.rows(), y)],
            divisor: whole.divisor.into(),
        };
        let across = terms.iter().map(|(row, _)| sum(row)).collect();
        Ok(Self { across, bands: bands_in_memory(job)?, ending })
    }
}

/// For each term: the addresses of its row's band and of its column's, in the GPU's memory.
fn bands_in_memory(job: &PassJob<'_>) -> Result<Vec<(u64, u64)>> {
    let filter = job.taps.given();
    let (memory, ()) = job.taps.table(("exact bands", 0), || Ok((bands(filter)?, ())))?;
    let (row, column) = (band_bytes(filter.cols() as i32), band_bytes(filter.rows() as i32));
    let starts = (0..2).map(|term| memory + term * (row + column));
    Ok(starts.map(|start| (start, start + row)).collect())
}

/// The bands of a filter's rows and columns as the kernels read them, one term after the other.
fn bands(filter: &Filter) -> Result<Vec<u32>> {
    let terms = filter.byte_filter()?.whole.two_terms().ok_or_else(no_product)?;
    let lines: Vec<&[i64]> =
        terms.iter().flat_map(|(row, column)| [&row[..], &column[..]]).collect();
    let bytes: u64 = lines.iter().map(|taps| band_bytes(taps.len() as i32)).sum();
    let mut bands = crate::memory::reserve(bytes as usize / 4)?;
    for taps in lines {
        for step in 0..band(taps.len() as i32) / STEP {
            for number in 0..DIGITS as u32 {
                let of = |at: i32| {
                    usize::try_from(at)
                        .ok()
                        .and_then(|at| taps.get(at))
                        .map_or(0, |&t| digit(t, number))
                };
                bands.extend((0..128).map(|word| fragment(step, word / 4, word % 4, of)));
            }
        }
    }
    Ok(bands)
}

/// Counts the uncertain results in the pass's list. Above this share, it empties the list, and
/// [`launch`] computes all results.
pub(crate) fn judge(job: &PassJob<'_>, few: f64, stream: &mut Stream) -> Result<()> {
    let region = &job.pass.region;
    let results =
        f64::from(region.x1 - region.x0) * f64::from(region.y1 - region.y0) * f64::from(job.planes);
    let most = (few * results).min(f64::from(u32::MAX / 2)) as u32;
    let grid = Grid {
        blocks: (1, 1, 1),
        block: (VERDICT_BLOCK.0, VERDICT_BLOCK.1, 1),
        shared: VERDICT_SHARED,
    };
    // SAFETY: that is the kernel's block; the pass has a list.
    unsafe { stream.enqueue(passes_verdict, grid, &(job.pass, most)) }
}

/// Enqueues both passes, in bands of the region whose intermediate images fit scratch memory. If
/// the pass has a list, they compute only if the last [`judge`] says so.
pub(crate) fn launch(job: &PassJob<'_>, stream: &mut Stream) -> Result<()> {
    let inner = PassJob { pass: super::keep::left_out(job.pass), ..*job };
    let region = inner.pass.region;
    let taps = ExactTaps::new(job)?;
    let row = 8 * ((region.x1 - region.aligned_left()) as usize).next_multiple_of(16);
    let window = job.window.rows as usize;
    // Rows between two bands are computed twice: few, if a band has many times the window's rows.
    let scratch = (stream.gpu().info().memory / SCRATCH_SHARE) as usize;
    let most = (scratch / (row * job.planes as usize * taps.across.len())).max(4 * window);
    let band = (most - window.min(most - 1)).max(1);
    for first in (region.y0 as usize..region.y1 as usize).step_by(band) {
        let rows = first..(first + band).min(region.y1 as usize);
        launch_band(&inner, &taps, rows, row, stream)?;
    }
    super::keep::restore(job, stream)
}

/// Enqueues both passes for these rows of results. A row of an intermediate image has `row` bytes.
fn launch_band(
    job: &PassJob<'_>,
    taps: &ExactTaps,
    rows: Range<usize>,
    row: usize,
    stream: &mut Stream,
) -> Result<()> {
    let PassJob { pass, window, planes, .. } = *job;
    let (region, left, terms) = (pass.region, pass.region.aligned_left(), taps.across.len());
    let anchor = (window.anchor_y as usize, window.rows as usize);
    let read = rows_read(pass.border, anchor, rows.clone(), pass.height as usize);
    let plane = row * read.len();
    let bytes = plane.checked_mul(planes as usize * terms);
    let start = stream.scratch(bytes.ok_or_else(|| stream.gpu().out_of_memory(u64::MAX))?)?;
    let offset = read.start as i64 * row as i64 + 8 * i64::from(left);
    let column = |term: usize| Column {
        middle: Middle {
            base: (start + (term * plane * planes as usize) as u64).wrapping_sub(offset as u64),
            row: row as i64,
            plane: plane as i64,
            first_row: read.start as i32,
            end_row: read.end as i32,
        },
        band: taps.bands[term].1,
        outside: (taps.across[term] * pass.outside as i64 + BIAS) as u64,
    };
    let first = column(0);
    let second = if terms > 1 { column(1) } else { Column { band: 0, ..first } };
    let pass_over = |rows: &Range<usize>| Pass {
        region: Region { y0: rows.start as i32, y1: rows.end as i32, ..region },
        ..pass
    };
    let (of_rows, of_columns) = (pass_over(&read), pass_over(&rows));
    let grid = Grid::covering(&of_rows.region, left, ROWS_TILE, BLOCK).sharing(ROWS_SHARED);
    let rows_grid = in_waves(passes_rows.name(), grid, planes, stream)?;
    let grid = Grid::covering(&of_columns.region, region.x0, COLUMNS_TILE, BLOCK);
    let grid = grid.sharing(COLUMNS_SHARED);
    let columns_grid = in_waves(passes_columns.name(), grid, planes, stream)?;
    // SAFETY: blocks and shared memory are what the kernels state; the passes describe allocated
    // memory, and scratch has a place for each row that is read, of each term.
    unsafe {
        for (term, (band, _)) in taps.bands.iter().take(terms).enumerate() {
            let middle = column(term).middle;
            stream.enqueue(passes_rows, rows_grid, &(of_rows, window, middle, *band))?;
        }
        let arguments = (of_columns, window, first, second, taps.ending);
        stream.enqueue(passes_columns, columns_grid, &arguments)
    }
}

/// A grid with at most [`WAVES`] times the blocks that the GPU holds, unless there are more planes;
/// each block takes several tiles.
fn in_waves(entry: &'static str, grid: Grid, planes: u32, stream: &Stream) -> Result<Grid> {
    let mut grid = stream.gpu().fitting(grid, planes);
    let most = WAVES * stream.gpu().resident_blocks(entry, BLOCK.0 * BLOCK.1, grid.shared)?;
    let fewer = |blocks: u32, others: u32| {
        blocks.min((most / (u64::from(others) * u64::from(planes))).max(1) as u32)
    };
    grid.blocks.1 = fewer(grid.blocks.1, grid.blocks.0);
    grid.blocks.0 = fewer(grid.blocks.0, grid.blocks.1);
    Ok(grid)
}

/// A number of 128 bits, the lower half first.
fn halves(number: i128) -> [u64; 2] {
    [number as u64, (number >> 64) as u64]
}

pub(crate) fn no_product() -> Error {
    let reason = "its taps are no product of a row and a column".to_owned();
    Error::Unsupported { variant: Variant::Separable.name(), reason }
}
