//! Tiles of 1024 x 1024, in three kernels.

#[cfg(feature = "gpu")]
use gpu_kernels::abi::Pass;
#[cfg(feature = "gpu")]
use gpu_kernels::entry::Entry;
use gpu_kernels::kernels::fourier::Large;
#[cfg(feature = "gpu")]
use gpu_kernels::kernels::fourier::{self as kernels, Pairs, Parts};

#[cfg(feature = "gpu")]
use crate::gpu::{launch::Grid, stream::Stream};
use crate::kernels::prepared::Launcher;
#[cfg(feature = "gpu")]
use crate::kernels::prepared::PassJob;
use crate::problem::Problem;
use crate::problem::machine::{Bound, Machine, Time};

#[cfg(feature = "gpu")]
use crate::spectrum::folded::LeftOut;
use crate::spectrum::folded::{Packing, TileShape};

use super::size::{shape_of, small};
use super::tiles;
#[cfg(feature = "gpu")]
use super::tiling::{SpectraTable, Tiling, taps_of, tiles_of};

/// The most pairs at a time: enough to fill a GPU, and few enough that nearly all their numbers
/// stay in the level-2 cache.
const TOGETHER: u32 = 6;

/// The time for a million results.
pub(super) fn time(problem: &Problem, machine: &Machine) -> Time {
    let (shape, small) = (shape_of(problem, Large::SIDE), small(problem, 128));
    let (taps, size) =
        ((problem.cols, problem.rows), (problem.width as i32, problem.height as i32));
    let split = Split::new(shape, small, taps, size, machine);
    split.time * (1e6 / (f64::from(size.0) * f64::from(size.1)))
}

/// The time of a column of pairs of tiles: in microseconds for each pair, for the share of its rows
/// that is read, and for the share that holds results. If the level-2 cache does not hold the
/// numbers of the pairs under way, they are written and read twice.
fn column(shape: TileShape, taps: (usize, usize), height: i32, machine: &Machine) -> Time {
    const PAIR: f64 = 9.0;
    const READ: f64 = 7.5;
    const RESULTS: f64 = 5.5;
    let cut = shape.cut(taps);
    // Both tiles of a stacked pair are read and stored, like those side by side.
    let tall = f64::from(shape.results(&cut).1);
    let stacked = tall / f64::from(Large::results(cut.rows));
    let (pairs, height) = ((f64::from(height) / tall).ceil(), f64::from(height) / stacked);
    let share = |lines: f64| lines / f64::from(Large::SIDE);
    let read = READ * share(height + pairs * f64::from(cut.rows - 1));
    let measured = f64::from(cut.count) * (PAIR * pairs + read + RESULTS * share(height));
    let numbers = Large::NUMBERS as f64;
    let fits = f64::from(TOGETHER) * numbers <= machine.l2_cache;
    let moved = if fits { 0.0 } else { 4.0 * f64::from(cut.count) * pairs * numbers };
    machine.time(Bound::Floats, moved / 1e6, measured)
}

/// How an image's columns are taken: large folded tiles, and other tiles for the columns that do
/// not fill one.
#[derive(Clone, Copy, Debug)]
struct Split {
    /// Columns in large folded tiles.
    whole: i32,
    /// How the others are taken, if there are any: stacked large tiles or folded small ones.
    rest: Option<Packing>,
    /// For a plane.
    time: Time,
}

impl Split {
    /// For large tiles of this shape, and small ones if they can take the rest.
    fn new(
        large: TileShape,
        small: Option<TileShape>,
        taps: (usize, usize),
        size: (i32, i32),
        machine: &Machine,
    ) -> Self {
        let (width, height) = size;
        let (across, _) = large.results(&large.cut(taps));
        let each = column(large, taps, height, machine);
        let columns = f64::from(width) / f64::from(across);
        let all = Self { whole: width, rest: None, time: each * columns.ceil() };
        let rest = width % across;
        if large.packing != Packing::Folded || rest == 0 {
            return all;
        }
        let but_rest = |packing, time| Self {
            whole: width - rest,
            rest: Some(packing),
            time: each * columns.floor() + time,
        };
        let stacked = TileShape { packing: Packing::Stacked, ..large };
        let stacked = (rest <= stacked.results(&stacked.cut(taps)).0)
            .then(|| but_rest(Packing::Stacked, column(stacked, taps, height, machine)));
        let results = f64::from(rest) * f64::from(height) / 1e6;
        let small = small
            .map(|small| but_rest(Packing::Folded, tiles::time(small, taps, machine) * results));
        [stacked, small]
            .into_iter()
            .flatten()
            .fold(all, |best, other| if other.time.us < best.time.us { other } else { best })
    }
}

#[derive(Debug)]
pub(super) struct Launch {
    pub(super) shape: TileShape,
    /// Whether pixels and results are in planes of f32.
    pub(super) of_planes: bool,
    /// Small tiles that can take columns which do not fill a folded one.
    pub(super) small: Option<tiles::Launch>,
}

impl Launcher for Launch {
    #[cfg(feature = "gpu")]
    fn launch(&self, job: &PassJob<'_>, stream: &mut Stream) -> crate::Result<()> {
        use gpu_kernels::abi::Region;

        let Self { shape, ref small, .. } = *self;
        let region = job.pass.region;
        let (taps, size) =
            (taps_of(job.taps.filter()), (region.x1 - region.x0, region.y1 - region.y0));
        let split = Split::new(
            shape,
            small.as_ref().map(|small| small.shape),
            taps,
            size,
            &stream.gpu().machine(),
        );
        let end = region.x0 + split.whole;
        let columns = |x0, x1| PassJob {
            pass: Pass { region: Region { x0, x1, ..region }, ..job.pass },
            ..*job
        };
        match (split.rest, small) {
            (None, _) => {}
            (Some(Packing::Folded), Some(small)) => {
                small.launch(&columns(end, region.x1), stream)?
            }
            (Some(packing), _) => {
                self.pairs(TileShape { packing, ..shape }, &columns(end, region.x1), stream)?
            }
        }
        if split.whole == 0 { Ok(()) } else { self.pairs(shape, &columns(region.x0, end), stream) }
    }

    #[cfg(feature = "gpu")]
    fn tiles(&self, filter: &crate::Filter) -> Option<crate::kernels::prepared::Tiles> {
        Some(tiles_of(filter, self.shape))
    }

    #[cfg(feature = "gpu")]
    fn scratch(&self) -> usize {
        size_of::<f32>()
    }

    #[cfg(feature = "gpu")]
    fn reserved(&self) -> u64 {
        u64::from(TOGETHER) * Large::NUMBERS
    }
}

#[cfg(feature = "gpu")]
impl Launch {
    /// The kernels of rows and of results.
    fn entries(&self, packing: Packing) -> [Entry<(Pass, Parts, Pairs, *const f32)>; 2] {
        match packing {
            Packing::Folded => {
                [kernels::fourier_large_rows_bytes, kernels::fourier_large_results_bytes]
            }
            Packing::Stacked => {
                [kernels::fourier_large_rows_stacked, kernels::fourier_large_results_stacked]
            }
            Packing::Beside if self.of_planes => {
                [kernels::fourier_large_rows, kernels::fourier_large_results]
            }
            Packing::Beside => {
                [kernels::fourier_large_rows_stored, kernels::fourier_large_results_stored]
            }
        }
    }

    /// Enqueues a job in large tiles of a shape.
    fn pairs(&self, shape: TileShape, job: &PassJob<'_>, stream: &mut Stream) -> crate::Result<()> {
        const SIDE: usize = Large::SIDE as usize;
        let [rows, results] = self.entries(shape.packing);
        let point = if shape.packing == Packing::Beside {
            0.0
        } else {
            job.taps.filter().fact::<LeftOut>().point
        };
        let numbers =
            SpectraTable { shape, each: 32, of_k: true, point, place: |kx, ky| SIDE * ky + kx };
        let (spectra, tables) = numbers.in_memory(job.taps)?;
        let tiling = Tiling::new(job, (spectra, tables), shape, stream)?;
        let parts = Parts { point, ..tiling.parts };
        let count = parts.across as u32 * tiling.down * job.planes;
        let together = TOGETHER.min(count);
        let bytes = (u64::from(together) * Large::NUMBERS).next_multiple_of(128) as usize;
        let pass = tiling.pass(job, bytes, stream)?;
        // The same memory, if it is reserved by now.
        let numbers = stream.scratch(bytes)?;
        let spectra = spectra.numbers;
        let lines = |region: i32, most: i32| (region.min(most) as u32).div_ceil(Large::ROW_BLOCK.1);
        let (height, below) =
            (job.pass.region.y1 - job.pass.region.y0, job.pass.height - job.pass.region.y0);
        let row_blocks = lines(below + parts.rows - 1, Large::SIDE);
        let result_blocks = lines(height, Large::results(parts.rows));
        for first in (0..count).step_by(together as usize) {
            let grid = |blocks, (width, height): (u32, u32), shared| {
                let blocks = (blocks, together.min(count - first), 1);
                Grid { blocks, block: (width, height, 1), shared }
            };
            let grid_of = |blocks| grid(blocks, Large::ROW_BLOCK, Large::ROW_SHARED);
            let columns = grid(
                Large::SIDE as u32 / Large::COLUMNS,
                Large::COLUMN_BLOCK,
                Large::COLUMN_SHARED,
            );
            for part in 0..parts.count {
                let pairs = Pairs {
                    numbers,
                    first: first as i32,
                    down: tiling.down as i32,
                    tall: tiling.tall,
                    part,
                };
                let arguments = (pass, parts, pairs, spectra);
                // SAFETY: the blocks are those of the layout; the spectra are those of these parts;
                // the pass describes allocated memory, and scratch has room for this many pairs.
                unsafe {
                    stream.enqueue(rows, grid_of(row_blocks), &arguments)?;
                    stream.enqueue(kernels::fourier_large_columns, columns, &arguments)?;
                    stream.enqueue(results, grid_of(result_blocks), &arguments)?;
                }
            }
        }
        tiling.finish(job, &pass, stream)
    }
}
