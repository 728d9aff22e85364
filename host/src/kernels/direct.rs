//! The direct family without its sliding kernel: launches `gpu-kernels/src/kernels/direct.rs`.

use gpu_kernels::abi::{MAX_CONSTANT_TAPS, Pass, Window};
use gpu_kernels::entry::{Entry, TapsEntry};
use gpu_kernels::kernels::direct::{
    BLOCK, SHARED_PIXELS, TILE_BLOCK, UNROLLED as UNROLLED_ENTRIES, UNROLLED_PIXELS,
    direct_constant, direct_naive, direct_shared, direct_shared_buffer, direct_unrolled_51,
};

use super::cost::{LAUNCH, rounded, stored};
use super::prepared::{Kernel, Launcher, Prepared};
use super::separable::Line;
use super::uncertain::estimates;
#[cfg(feature = "gpu")]
use crate::gpu::{launch::Grid, stream::Stream};
use crate::problem::Problem;
use crate::problem::machine::{Bound, Machine, Time, Times};
use crate::{Variant, Why};

/// The size whose entry reads its taps from memory, because they are too many for parameters.
const UNROLLED_FROM_MEMORY: i32 = 51;

pub(super) static NAIVE: Kernel = Kernel {
    variant: Variant::DirectNaive,
    entries: || vec![direct_naive.name()],
    prepare: |_| {
        Ok(Prepared::new(Variant::DirectNaive, Launch::without_tile(Taps::Memory(direct_naive))))
    },
    time: |problem, machine| {
        const TIMES: Times = Times(Bound::Floats, &[(9.0, 9.2), (25.0, 12.7), (289.0, 107.5)]);
        time(Variant::DirectNaive, problem, machine, &TIMES)
    },
    rule: |problem| estimates(problem, Variant::DirectNaive),
};

pub(super) static CONSTANT: Kernel = Kernel {
    variant: Variant::DirectConstant,
    entries: || vec![direct_constant.name()],
    prepare: |problem| {
        if problem.cols * problem.rows > MAX_CONSTANT_TAPS {
            let taps = problem.cols * problem.rows;
            return Err(format!("{taps} taps, constant memory holds {MAX_CONSTANT_TAPS}").into());
        }
        let entry = Taps::Constant(direct_constant.with_taps());
        Ok(Prepared::new(Variant::DirectConstant, Launch::without_tile(entry)))
    },
    time: |problem, machine| {
        const TIMES: Times = Times(Bound::Floats, &[(25.0, 12.9), (289.0, 104.7)]);
        time(Variant::DirectConstant, problem, machine, &TIMES)
    },
    rule: |problem| estimates(problem, Variant::DirectConstant),
};

pub(super) static SHARED: Kernel = Kernel {
    variant: Variant::DirectShared,
    entries: || vec![direct_shared.name(), direct_shared_buffer.name()],
    prepare: |problem| shared(problem, Variant::DirectShared),
    time: |problem, machine| time(Variant::DirectShared, problem, machine, &OF_ANY_SIZE),
    rule: |problem| estimates(problem, Variant::DirectShared),
};

/// The times of the kernels for a window of any size.
const OF_ANY_SIZE: Times = Times(
    Bound::Floats,
    &[(9.0, 6.7), (25.0, 9.6), (49.0, 14.2), (121.0, 31.6), (289.0, 72.5), (2601.0, 513.0)],
);

pub(super) static UNROLLED: Kernel = Kernel {
    variant: Variant::DirectUnrolled,
    entries: || {
        let sizes = UNROLLED_ENTRIES.iter().map(|(_, entry)| entry.name()).chain(Line::entries());
        sizes
            .chain([direct_unrolled_51.name(), direct_shared.name(), direct_shared_buffer.name()])
            .collect()
    },
    prepare: |problem| {
        if let Some(line) = Line::of(problem) {
            return Ok(Prepared::new(Variant::DirectUnrolled, line));
        }
        let Some(entry) = unrolled(problem) else {
            return shared(problem, Variant::DirectUnrolled);
        };
        let launch = Launch::with_tile(entry, UNROLLED_PIXELS, problem)?;
        Ok(Prepared::new(Variant::DirectUnrolled, launch))
    },
    time: |problem, machine| {
        const TIMES: Times = Times(
            Bound::Floats,
            &[
                (9.0, 3.5),
                (25.0, 4.3),
                (49.0, 5.3),
                (81.0, 6.5),
                (121.0, 8.2),
                (289.0, 15.9),
                (961.0, 52.0),
                (2601.0, 420.0),
            ],
        );
        let times = match (Line::of(problem), unrolled(problem)) {
            (Some(_), _) => &Line::TIMES,
            (None, Some(_)) => &TIMES,
            (None, None) => &OF_ANY_SIZE,
        };
        time(Variant::DirectUnrolled, problem, machine, times)
    },
    rule: |problem| estimates(problem, Variant::DirectUnrolled),
};

/// The time of a kernel with these times.
fn time(variant: Variant, problem: &Problem, machine: &Machine, times: &Times) -> Time {
    /// How many times as long stored pixels take, which are read one by one.
    const STORED: f64 = 2.3;
    /// For a tap, however small the picture: 256x256 and 17x17 taps.
    const BLOCK_TAP: f64 = 0.03;
    let slower = stored(problem, STORED);
    let each = times.on(machine, problem.bytes() / slower, problem.taps()) * slower;
    // A block takes its taps one after the other.
    let block = Time::start(BLOCK_TAP * problem.taps());
    rounded(variant, problem, LAUNCH + (each * problem.millions()).or(block))
}

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
    let entry = if constant {
        Taps::Constant(direct_shared.with_taps())
    } else {
        Taps::Memory(direct_shared_buffer)
    };
    Ok(Prepared::new(variant, Launch::with_tile(entry, SHARED_PIXELS, problem)?))
}

/// An entry of the family, by the place that it reads its taps from.
#[derive(Clone, Copy, Debug)]
enum Taps {
    Memory(Entry<(Pass, Window, *const f32)>),
    Constant(TapsEntry<(Pass, Window)>),
}

#[derive(Debug)]
struct Launch {
    entry: Taps,
    /// Columns and rows of pixels that a block computes.
    pixels: (u32, u32),
    /// How many of these rows a thread computes.
    rows: u32,
    /// Bytes of the tile that a block's threads load together.
    tile: u32,
}

impl Launch {
    /// Each thread reads its neighbours from global memory.
    fn without_tile(entry: Taps) -> Self {
        Self { entry, pixels: BLOCK, rows: 1, tile: 0 }
    }

    /// A block's pixels and their apron come through a tile, which must fit in shared memory.
    fn with_tile(entry: Taps, rows: u32, problem: &Problem) -> Result<Self, Why> {
        let (width, height) = (TILE_BLOCK.0 as usize, TILE_BLOCK.1 as usize);
        let bytes = 4 * (problem.cols + width - 1) * (problem.rows + height - 1);
        Ok(Self {
            entry,
            pixels: TILE_BLOCK,
            rows,
            tile: problem.fits_shared_memory(bytes, "its tile")?,
        })
    }
}

impl Launcher for Launch {
    #[cfg(feature = "gpu")]
    fn launch(&self, job: &super::prepared::PassJob<'_>, stream: &mut Stream) -> crate::Result<()> {
        let block = (self.pixels.0, self.pixels.1 / self.rows);
        let grid = Grid::covering(&job.pass.region, job.pass.region.x0, self.pixels, block)
            .sharing(self.tile);
        let grid = stream.gpu().fitting(grid, job.planes);
        // SAFETY: the entries take blocks of this shape, and this tile in shared memory; the pass
        // describes allocated memory.
        unsafe {
            match self.entry {
                Taps::Memory(entry) => stream.enqueue(
                    entry,
                    grid,
                    &(job.pass, job.window, job.taps.dense_in_memory()?),
                ),
                Taps::Constant(entry) => stream.enqueue_with_taps(
                    entry,
                    grid,
                    &(job.pass, job.window),
                    job.taps.dense()?,
                ),
            }
        }
    }
}
