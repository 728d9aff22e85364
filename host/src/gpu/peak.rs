//! Measures the device's arithmetic, `gpu-kernels/src/kernels/peak.rs`.

use gpu_kernels::kernels::peak::{SUMS, fma_peak};

use super::device::Gpu;
use super::launch::Grid;
use crate::Result;

impl Gpu {
    /// How many floating-point operations a second the GPU does in f32 with multiply-adds alone,
    /// each counted as two: what the arithmetic of a kernel can be compared with. Takes a few
    /// milliseconds.
    ///
    /// # Errors
    /// Memory and driver errors.
    pub fn fma_peak(&self) -> Result<f64> {
        const THREADS: u32 = 256;
        const STEPS: i32 = 1 << 14;
        let blocks = 16 * self.info().multiprocessors;
        let out = self.allocate(4)?;
        let mut stream = self.stream()?;
        let arguments = (out.pointer(), STEPS, 0.5f32, 0.25f32);
        let grid = Grid { blocks: (blocks, 1, 1), block: (THREADS, 1, 1), shared: 0 };
        let mut best = f64::MAX;
        for _ in 0..5 {
            let start = stream.mark()?;
            // SAFETY: the kernel takes any grid; the float that it may write is alive until the
            // mark below.
            unsafe { stream.enqueue(fma_peak, grid, &arguments)? };
            best = best.min(stream.mark()?.since(&start)?.as_secs_f64());
        }
        Ok(2.0 * SUMS as f64 * f64::from(STEPS) * f64::from(blocks * THREADS) / best)
    }
}
