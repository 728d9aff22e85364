//! Tiles in a block's shared memory.

use gpu_kernels::abi::Pass;
use gpu_kernels::entry::Entry;
use gpu_kernels::kernels::fourier::{Parts, Tiled};

use crate::kernels::prepared::Launcher;
use crate::problem::machine::{Bound, Machine, Time, Times};

#[cfg(feature = "gpu")]
use super::tiling::{SpectraTable, Tiling, tiles_of};
use crate::spectrum::folded::{Packing, TileShape};

/// The time for a million results.
pub(super) fn time(shape: TileShape, taps: (usize, usize), machine: &Machine) -> Time {
    const PAIRS: Times = Times(Bound::Floats, &[(1.3, 5.6), (2.7, 9.8), (4.0, 13.1)]);
    // Windows in parts: each part reads the sums again.
    const PLANAR: Times = Times(
        Bound::Floats,
        &[(0.0, 0.0), (10.6, 58.6), (16.0, 65.0), (88.6, 499.0), (154.0, 700.0)],
    );
    const FOLDED: Times = Times(Bound::Floats, &[(1.5, 7.0), (2.04, 8.8), (7.5, 27.0)]);
    // Only bytes are folded; others are f32 or smaller.
    let (times, bytes) = match shape.cut(taps).count {
        _ if shape.packing == Packing::Folded => (FOLDED, 2.0),
        1 => (PAIRS, 8.0),
        _ => (PLANAR, 8.0),
    };
    times.on(machine, bytes, shape.transformed(taps))
}

#[derive(Debug)]
pub(super) struct Launch {
    pub(super) shape: TileShape,
    pub(super) tiled: &'static Tiled,
    /// The entry of `tiled` for the problem.
    pub(super) entry: Entry<(Pass, Parts, *const f32)>,
}

/// Tiles in the columns of tiles that take one row of them each, and in one more that takes two.
#[cfg(feature = "gpu")]
fn count(parts: &Parts, down: u32) -> u64 {
    let halves = if parts.halves != 0 { down.div_ceil(2) } else { 0 };
    parts.across as u64 * u64::from(down) + u64::from(halves)
}

/// Whether `blocks` end sooner if they take tiles round-robin than if each takes a run of tiles.
/// Tiles in the first and the last column take half as long again, as some of their columns lie
/// outside the image. Round-robin, a block could get only those, and end last.
#[cfg(feature = "gpu")]
fn are_better_strided(parts: &Parts, down: u32, blocks: u32) -> bool {
    let (across, tiles) = (parts.across as u64, count(parts, down));
    let (each, more) = (tiles / u64::from(blocks), tiles % u64::from(blocks));
    // Twice the time of a block's tiles, in tiles inside the image.
    let time = |of_block: &mut dyn Iterator<Item = u64>| -> u64 {
        let is_last = |tile: u64| tile % across == across - 1 && parts.halves == 0;
        let at_edge = |tile: u64| {
            tile >= across * u64::from(down) || tile.is_multiple_of(across) || is_last(tile)
        };
        of_block.map(|tile| 2 + u64::from(at_edge(tile))).sum()
    };
    let blocks = || 0..u64::from(blocks);
    let strided = blocks().map(|block| time(&mut (block..tiles).step_by(blocks().count()))).max();
    let in_a_row = blocks().map(|block| {
        let first = each * block + block.min(more);
        time(&mut (first..first + each + u64::from(block < more)))
    });
    strided <= in_a_row.max()
}

impl Launcher for Launch {
    #[cfg(feature = "gpu")]
    fn launch(
        &self,
        job: &crate::kernels::prepared::PassJob<'_>,
        stream: &mut crate::gpu::stream::Stream,
    ) -> crate::Result<()> {
        let Self { shape, tiled: &Tiled { block, shared, .. }, entry } = *self;
        let numbers = SpectraTable {
            shape,
            each: 8,
            of_k: false,
            point: 0.0,
            place: |kx, ky| self.tiled.place(kx, ky),
        };
        let (spectra, tables) = numbers.in_memory(job.taps)?;
        let mut tiling = Tiling::new(job, (spectra, tables), shape, stream)?;
        let slots = stream.gpu().resident_blocks(entry.name(), block.0 * block.1, shared)?;
        let pairs = count(&tiling.parts, tiling.down);
        let blocks = pairs.min((slots / u64::from(job.planes)).max(1)) as u32;
        let grid = crate::gpu::launch::Grid {
            blocks: (blocks, 1, job.planes),
            block: (block.0, block.1, 1),
            shared,
        };
        // For bytes only: the times of others were measured round-robin.
        let strided = shape.packing != Packing::Folded
            || are_better_strided(&tiling.parts, tiling.down, blocks);
        tiling.parts.strided = i32::from(strided);
        let pass = tiling.pass(job, 0, stream)?;
        let arguments = (pass, tiling.parts, spectra.numbers);
        // SAFETY: the kernel takes any number of blocks of this shape; the spectra are those of
        // these parts; the pass describes allocated memory.
        unsafe { stream.enqueue(entry, grid, &arguments)? };
        tiling.finish(job, &pass, stream)
    }

    #[cfg(feature = "gpu")]
    fn tiles(&self, filter: &crate::Filter) -> Option<crate::kernels::prepared::Tiles> {
        Some(tiles_of(filter, self.shape))
    }

    #[cfg(feature = "gpu")]
    fn scratch(&self) -> usize {
        size_of::<f32>()
    }
}
