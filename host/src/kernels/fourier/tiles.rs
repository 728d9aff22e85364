//! Tiles in a block's shared memory.

use gpu_kernels::abi::Pass;
use gpu_kernels::entry::Entry;
use gpu_kernels::kernels::fourier::{Parts, Tiled};

use crate::kernels::prepared::Work;

#[derive(Debug)]
pub(super) struct Launch {
    pub(super) tiled: &'static Tiled,
    /// That of its entries which takes the problem.
    pub(super) entry: Entry<(Pass, Parts, *const f32, *const f32)>,
}

impl Work for Launch {
    #[cfg(feature = "gpu")]
    fn launch(
        &self,
        job: &crate::kernels::prepared::Job<'_>,
        stream: &mut crate::gpu::stream::Stream,
    ) -> crate::Result<()> {
        let Self { tiled: &Tiled { size, block, shared, .. }, entry } = *self;
        let spectra = job.taps.spectra(|filter| {
            let place = |kx, ky| self.tiled.place(kx, ky);
            super::numbers(filter, size as usize, |at| (at % 8) * (at / 8), place)
        })?;
        let tiling = super::Tiling::new(job, &spectra, size);
        let slots = stream.gpu().resident_blocks(entry.name(), block.0 * block.1, shared)?;
        let pairs = tiling.parts.across as u64 * u64::from(tiling.down);
        let blocks = pairs.min((slots / u64::from(job.planes)).max(1)) as u32;
        let grid = crate::gpu::launch::Grid { blocks: (blocks, 1, job.planes), block: (block.0, block.1, 1), shared };
        let pass = tiling.pass(job, 0, stream)?;
        let arguments = (pass, tiling.parts, spectra.numbers, job.taps.dense_in_memory()?);
        // SAFETY: the kernel takes any number of blocks of this shape; the spectra are those of these parts; the pass describes
        // allocated memory.
        unsafe { stream.enqueue(entry, grid, &arguments)? };
        tiling.finish(job, &pass, stream)
    }

    #[cfg(feature = "gpu")]
    fn tiles(&self, filter: &crate::Filter) -> Option<crate::kernels::prepared::Tiles> {
        Some(super::tiles_of(filter, self.tiled.size))
    }

    #[cfg(feature = "gpu")]
    fn scratch(&self) -> usize {
        size_of::<f32>()
    }
}
