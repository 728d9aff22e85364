//! Both passes of the separable family by blocks that have a tile each: launches
//! `gpu-kernels/src/kernels/separable_tile.rs`. For small pictures.

use gpu_kernels::abi::{Pass, Window};
use gpu_kernels::entry::TapsEntry;
use gpu_kernels::kernels::separable_tile::{BLOCK, ENTRIES, TILE, shared};

use super::cost::{rounded, stored};
#[cfg(feature = "gpu")]
use super::prepared::PassJob;
use super::prepared::{Kernel, Launcher, Prepared};
use super::uncertain::estimates;
use crate::Variant;
#[cfg(feature = "gpu")]
use crate::gpu::{launch::Grid, stream::Stream};
use crate::problem::machine::{Bound, Time, Times};

pub(super) static TILES: Kernel = Kernel {
    variant: Variant::SeparableTile,
    entries: || ENTRIES.iter().map(|(_, entry)| entry.name()).collect(),
    prepare: |problem| {
        problem.terms()?;
        if problem.sum.is_some() {
            return Err("it has no kernel for sums of separable filters".into());
        }
        let (cols, rows) = (problem.cols, problem.rows);
        let fits = |(taps, _): &&(i32, _)| (*taps as usize, *taps as usize) == (cols, rows);
        match ENTRIES.iter().find(fits) {
            Some(&(taps, entry)) => {
                Ok(Prepared::new(Variant::SeparableTile, Launch { taps, entry }))
            }
            None => Err(format!("it has no kernel for {cols}x{rows} taps").into()),
        }
    },
    time: |problem, machine| {
        // 256x256 to 4096x4096.
        const TIMES: Times = Times(Bound::Floats, &[(10.0, 4.0), (18.0, 4.4), (34.0, 5.2)]);
        /// The start; and how many times as long stored pixels take.
        const START: Time = Time::start(3.2);
        const STORED: f64 = 1.2;
        /// The bytes that blocks read and write for one, with the tiles' aprons: an estimate.
        const APRON: f64 = 1.1;
        let (slower, bytes) = (stored(problem, STORED), APRON * problem.bytes());
        let each = TIMES.on(machine, bytes / slower, problem.pair_taps()) * slower;
        rounded(Variant::SeparableTile, problem, START + each * problem.millions())
    },
    rule: |problem| estimates(problem, Variant::SeparableTile),
};

/// An entry for so many taps in the row, and as many in the column.
#[derive(Debug)]
struct Launch {
    taps: i32,
    entry: TapsEntry<(Pass, Window)>,
}

impl Launcher for Launch {
    #[cfg(feature = "gpu")]
    fn launch(&self, job: &PassJob<'_>, stream: &mut Stream) -> crate::Result<()> {
        let region = &job.pass.region;
        let tile = (TILE.0 as u32, TILE.1 as u32);
        let grid = Grid::covering(region, region.x0, tile, BLOCK).sharing(shared(self.taps));
        let grid = stream.gpu().fitting(grid, job.planes);
        let taps = job.taps.rows_and_columns()?;
        // SAFETY: block and shared memory are those that the kernel's contract states for so many
        // taps; the pass describes allocated memory.
        unsafe { stream.enqueue_with_taps(self.entry, grid, &(job.pass, job.window), taps) }
    }
}
