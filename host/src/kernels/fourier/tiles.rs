//! Tiles in a block's shared memory.

use gpu_kernels::kernels::fourier::Tiled;

use crate::kernels::prepared::Work;
#[cfg(feature = "gpu")]
use crate::spectrum;

#[derive(Debug)]
pub(super) struct Launch {
    pub(super) tiled: &'static Tiled,
    /// Whether pixels or results are not in planes of f32.
    pub(super) stored: bool,
}

impl Work for Launch {
    #[cfg(feature = "gpu")]
    fn launch(
        &self,
        job: &crate::kernels::prepared::Job<'_>,
        stream: &mut crate::gpu::stream::Stream,
    ) -> crate::Result<()> {
        use gpu_kernels::abi::{Doubts, Epilogue, Pass, scalar};
        use gpu_kernels::kernels::fourier::Parts;

        let Tiled { size, block, shared, .. } = *self.tiled;
        let entry = if self.stored { self.tiled.stored } else { self.tiled.entry };
        let spectra = job.taps.spectra(|filter| {
            let place = |kx, ky| self.tiled.place(kx, ky);
            super::numbers(filter, size as usize, |at| (at % 8) * (at / 8), place)
        })?;
        let cut = spectrum::Cut::new(job.taps.filter(), size);
        let greatest = spectrum::greatest_pixel(job.taps.filter().weight());
        let slots = stream.gpu().resident_blocks(entry.name(), block.0 * block.1, shared)?;
        let region = &job.pass.region;
        let across = ((region.x1 - region.x0) as u32).div_ceil(2 * (size + 1 - cut.cols) as u32);
        let down = ((region.y1 - region.y0) as u32).div_ceil((size + 1 - cut.rows) as u32);
        let blocks = (u64::from(across) * u64::from(down)).min((slots / u64::from(job.planes)).max(1)) as u32;
        let parts = Parts {
            window: job.window,
            cols: cut.cols,
            rows: cut.rows,
            count: cut.count,
            beside: cut.beside,
            greatest: if super::is_tame(&job.pass, greatest) { f32::INFINITY } else { greatest },
            across: across as i32,
        };
        let grid = crate::gpu::launch::Grid { blocks: (blocks, 1, job.planes), block: (block.0, block.1, 1), shared };
        // Parts are added in f32.
        let apart = parts.count > 1 && job.pass.dst.scalar != scalar::F32;
        let mut pass = crate::kernels::keep::left_out(job.pass);
        if apart {
            [pass.dst] = job.scratch(0, region.y0 as usize..region.y1 as usize, stream)?;
            (pass.epilogue, pass.doubts) = (Epilogue::NONE, Doubts::NONE);
        }
        let arguments = (pass, parts, spectra, job.taps.dense_in_memory()?);
        // SAFETY: the kernel takes any number of blocks of this shape; the spectra are those of these parts; the pass describes
        // allocated memory.
        unsafe { stream.enqueue(entry, grid, &arguments)? };
        if apart {
            crate::kernels::keep::copy(&Pass { src: pass.dst, ..job.pass }, job.planes, stream)?;
        }
        crate::kernels::keep::restore(job, stream)
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
