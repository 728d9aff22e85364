//! The direct family without its sliding kernel: launches `gpu-kernels/src/kernels/direct.rs`.

use gpu_kernels::abi::{MAX_CONSTANT_TAPS, Pass, Window};
use gpu_kernels::entry::{Entry, TapsEntry};
use gpu_kernels::kernels::direct::{
    BLOCK, UNROLLED as UNROLLED_ENTRIES, UNROLLED_PIXELS, direct_constant, direct_naive, direct_shared,
    direct_shared_buffer, direct_unrolled_51,
};

use super::prepared::{Kernel, Prepared, Work};
use super::separable::Line;
#[cfg(feature = "gpu")]
use crate::gpu::{launch::Grid, stream::Stream};
use crate::plan::machine::{Machine, Times};
use crate::plan::problem::Problem;
use crate::{Variant, Why};

/// The size whose entry reads its taps from memory, because they are too many for parameters.
const UNROLLED_FROM_MEMORY: i32 = 51;

pub(super) static NAIVE: Kernel = Kernel {
    variant: Variant::DirectNaive,
    entries: || vec![direct_naive.name()],
    prepare: |_| Ok(Prepared::new(Variant::DirectNaive, Launch { entry: Taps::Memory(direct_naive), tile: None })),
    cost: |problem, machine| {
        const TIMES: Times = Times { h200: &[(25.0, 12.9), (289.0, 104.8)], h100: &[(25.0, 12.8), (289.0, 104.8)] };
        TIMES.on(machine, problem.taps())
    },
};

pub(super) static CONSTANT: Kernel = Kernel {
    variant: Variant::DirectConstant,
    entries: || vec![direct_constant.name()],
    prepare: |problem| {
        if problem.cols * problem.rows > MAX_CONSTANT_TAPS {
            let taps = problem.cols * problem.rows;
            return Err(format!("{taps} taps, the constant bank takes {MAX_CONSTANT_TAPS}").into());
        }
        let entry = Taps::Constant(direct_constant.with_taps());
        Ok(Prepared::new(Variant::DirectConstant, Launch { entry, tile: None }))
    },
    cost: |problem, machine| {
        const TIMES: Times = Times { h200: &[(25.0, 12.9), (289.0, 104.7)], h100: &[(25.0, 12.9), (289.0, 104.8)] };
        TIMES.on(machine, problem.taps())
    },
};

pub(super) static SHARED: Kernel = Kernel {
    variant: Variant::DirectShared,
    entries: || vec![direct_shared.name(), direct_shared_buffer.name()],
    prepare: |problem| shared(problem, Variant::DirectShared),
    cost: of_any_size,
};

/// The time of the kernels for a window of any size.
fn of_any_size(problem: &Problem, machine: &Machine) -> f64 {
    const TIMES: Times =
        Times { h200: &[(9.0, 10.0), (25.0, 14.1), (289.0, 81.1)], h100: &[(9.0, 10.0), (25.0, 14.1), (289.0, 81.1)] };
    TIMES.on(machine, problem.taps())
}

pub(super) static UNROLLED: Kernel = Kernel {
    variant: Variant::DirectUnrolled,
    entries: || {
        let sizes = UNROLLED_ENTRIES.iter().map(|(_, entry)| entry.name()).chain(Line::entries());
        sizes.chain([direct_unrolled_51.name(), direct_shared.name(), direct_shared_buffer.name()]).collect()
    },
    prepare: |problem| {
        if let Some(line) = Line::of(problem) {
            return Ok(Prepared::new(Variant::DirectUnrolled, line));
        }
        let Some(entry) = unrolled(problem) else { return shared(problem, Variant::DirectUnrolled) };
        let tile = Some(Tile { bytes: tile_bytes(problem)?, rows: UNROLLED_PIXELS });
        Ok(Prepared::new(Variant::DirectUnrolled, Launch { entry, tile }))
    },
    cost: |problem, machine| {
        const TIMES: Times = Times {
            h200: &[
                (9.0, 4.4),
                (25.0, 5.3),
                (49.0, 6.7),
                (81.0, 8.7),
                (121.0, 11.0),
                (289.0, 21.5),
                (961.0, 70.0),
                (2601.0, 508.0),
            ],
            // The window of 961 taps was timed on an H200 alone.
            h100: &[(9.0, 4.7), (25.0, 5.6), (49.0, 6.8), (81.0, 8.7), (289.0, 21.5), (961.0, 70.0), (2601.0, 509.0)],
        };
        match (Line::of(problem), unrolled(problem)) {
            (Some(_), _) => Line::cost(problem.taps(), machine),
            (None, Some(_)) => TIMES.on(machine, problem.taps()),
            (None, None) => of_any_size(problem, machine),
        }
    },
};

/// The entry whose size is the problem's window.
fn unrolled(problem: &Problem) -> Option<Taps> {
    let size = |size: i32| problem.cols == size as usize && problem.rows == size as usize;
    match UNROLLED_ENTRIES.iter().find(|&&(taps, _)| size(taps)) {
        Some(&(_, entry)) => Some(Taps::Constant(entry)),
        None => size(UNROLLED_FROM_MEMORY).then_some(Taps::Memory(direct_unrolled_51)),
    }
}

/// A variant's launch of `direct_shared`, or of `direct_shared_buffer` if there are too many taps.
fn shared(problem: &Problem, variant: Variant) -> Result<Prepared, Why> {
    let constant = problem.cols * problem.rows <= MAX_CONSTANT_TAPS;
    let entry = if constant { Taps::Constant(direct_shared.with_taps()) } else { Taps::Memory(direct_shared_buffer) };
    Ok(Prepared::new(variant, Launch { entry, tile: Some(Tile { bytes: tile_bytes(problem)?, rows: 1 }) }))
}

/// Bytes of a block's pixels and their apron, which must fit in shared memory.
fn tile_bytes(problem: &Problem) -> Result<u32, Why> {
    let (width, height) = (BLOCK.0 as usize, BLOCK.1 as usize);
    let bytes = 4 * (problem.cols + width - 1) * (problem.rows + height - 1);
    problem.fits_shared_memory(bytes, "its tile")
}

/// An entry of the family, by the place that it reads its taps from.
#[derive(Clone, Copy, Debug)]
enum Taps {
    Memory(Entry<(Pass, Window, *const f32)>),
    Constant(TapsEntry<(Pass, Window)>),
}

/// The tile that the threads of a block load together.
#[derive(Clone, Copy, Debug)]
struct Tile {
    bytes: u32,
    /// Rows of pixels that a thread computes.
    rows: u32,
}

#[derive(Debug)]
struct Launch {
    entry: Taps,
    /// `None` if each thread reads its neighbours from global memory.
    tile: Option<Tile>,
}

impl Work for Launch {
    #[cfg(feature = "gpu")]
    fn launch(&self, job: &super::prepared::Job<'_>, stream: &mut Stream) -> crate::Result<()> {
        let (rows, shared) = self.tile.map_or((1, 0), |tile| (tile.rows, tile.bytes));
        let block = (BLOCK.0, BLOCK.1 / rows);
        let grid = Grid::covering(&job.pass.region, job.pass.region.x0, BLOCK, block).sharing(shared);
        let grid = stream.gpu().fitting(grid, job.planes);
        // SAFETY: the entries take blocks of this shape, and this tile in shared memory; the pass describes allocated memory.
        unsafe {
            match self.entry {
                Taps::Memory(entry) => {
                    stream.enqueue(entry, grid, &(job.pass, job.window, job.taps.dense_in_memory()?))
                }
                Taps::Constant(entry) => {
                    stream.enqueue_with_taps(entry, grid, &(job.pass, job.window), job.taps.dense()?)
                }
            }
        }
    }
}
