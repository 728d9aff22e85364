//! Colours weighted by alpha: launches `gpu-kernels/src/kernels/weighted.rs`.

use std::sync::Arc;

use gpu_kernels::abi::scalar::U8;
use gpu_kernels::kernels::weighted::{BLOCK, Weights, weighted, weighted_bytes};

use super::prepared::{Launcher, PassJob, Prepared};
use crate::Result;
use crate::filter::whole::{Whole, WholeTaps};
use crate::gpu::{launch::Grid, stream::Stream};
use crate::plan::ran::Ran;

/// The kernel for pixels whose last channel is alpha.
pub(crate) fn prepare() -> Prepared {
    Prepared { ran: Ran::Weighted, launcher: Arc::new(Launch) }
}

#[derive(Debug)]
struct Launch;

impl Launcher for Launch {
    fn launch(&self, job: &PassJob<'_>, stream: &mut Stream) -> Result<()> {
        let grid = Grid::covering(&job.pass.region, job.pass.region.x0, BLOCK, BLOCK);
        let grid = stream.gpu().fitting(grid, job.planes / job.channels);
        let (pass, window, colours) = (job.pass, job.window, job.channels as i32 - 1);
        let is_bytes = (pass.src.scalar, pass.dst.scalar) == (U8, U8);
        // SAFETY: the kernels take any grid of such blocks; the pass describes allocated memory,
        // with all channels of its images.
        unsafe {
            if is_bytes {
                return stream.enqueue(
                    weighted_bytes,
                    grid,
                    &(pass, window, weights_of_bytes(job)?, colours),
                );
            }
            stream.enqueue(weighted, grid, &(pass, window, taps_in_f64(job)?, colours))
        }
    }

    fn takes_pixels(&self) -> bool {
        true
    }
}

/// The address of all taps in f64, row by row, in the GPU's memory.
fn taps_in_f64(job: &PassJob<'_>) -> Result<u64> {
    let filter = job.taps.filter();
    let (cols, rows) = (filter.cols(), filter.rows());
    let make = || {
        let mut taps: Vec<f64> = crate::memory::reserve(cols * rows)?;
        taps.extend((0..rows).flat_map(|row| (0..cols).map(move |col| filter.tap(row, col))));
        Ok((taps, ()))
    };
    Ok(job.taps.table(("taps in f64", 0), make)?.0)
}

/// The whole taps, in the GPU's memory.
pub(super) fn weights_of_bytes(job: &PassJob<'_>) -> Result<Weights> {
    let filter = job.taps.given();
    let (whole, size) = (&filter.byte_filter()?.whole, (filter.cols(), filter.rows()));
    let (address, ()) = job.taps.table(("weights", 0), || Ok((numbers(whole, size)?, ())))?;
    Ok(weights(address, whole, size))
}

/// A filter's whole taps as the kernel reads them: see [`Weights`].
fn numbers(whole: &Whole, (cols, rows): (usize, usize)) -> Result<Vec<i64>> {
    match &whole.taps {
        WholeTaps::Table(taps) => {
            let mut numbers = crate::memory::reserve(rows + taps.len())?;
            numbers.resize(rows, 1);
            numbers.extend(taps);
            Ok(numbers)
        }
        WholeTaps::Products { terms, .. } => {
            let mut numbers = crate::memory::reserve(terms.len() * (rows + cols))?;
            numbers.extend(terms.iter().flat_map(|(row, column)| column.iter().chain(row)));
            Ok(numbers)
        }
    }
}

/// The taps whose [`numbers`] have this address.
fn weights(taps: u64, whole: &Whole, (cols, rows): (usize, usize)) -> Weights {
    let (terms, row, point) = match &whole.taps {
        WholeTaps::Table(_) => (1, cols, 0),
        WholeTaps::Products { terms, point, .. } => (terms.len(), 0, *point),
    };
    Weights {
        taps,
        apart: 8 * (rows + cols) as i64,
        terms: terms as i32,
        row: row as i32,
        point: [point as u64, (point >> 64) as u64],
        divisor: whole.divisor.into(),
    }
}
