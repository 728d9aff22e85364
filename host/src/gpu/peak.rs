//! Measures the device's arithmetic, `gpu-kernels/src/peak.rs`.

use gpu_kernels::abi::PEAK_SUMS;

use super::device::Gpu;
use super::engine::argument;
use crate::Result;

impl Gpu {
    /// How many floating-point operations a second the GPU does in f32 with multiply-adds alone, each counted as two: what
    /// the arithmetic of a kernel can be compared with. Takes a few milliseconds.
    ///
    /// # Errors
    /// Memory and driver errors.
    pub fn fma_peak(&self) -> Result<f64> {
        const THREADS: u32 = 256;
        const STEPS: i32 = 1 << 14;
        let function = self.function("fma_peak")?;
        let blocks = 16 * self.info().multiprocessors;
        let out = self.allocate(1)?;
        let stream = self.stream()?;
        let (out, steps, factor, term) = (out.address(), STEPS, 0.5f32, 0.25f32);
        let arguments =
            [argument(&out), argument(&steps), argument(&factor), argument(&term)].map(<*const _>::cast_mut);
        let mut best = f64::MAX;
        for _ in 0..5 {
            let start = stream.mark()?;
            // SAFETY: the kernel takes a float to write, and three numbers by value.
            let status = unsafe { stream.queue.launch(function, (blocks, 1, 1), (THREADS, 1, 1), 0, &arguments) };
            status.map_err(|error| self.error("launching a kernel", error))?;
            best = best.min(stream.mark()?.since(&start)?.as_secs_f64());
        }
        Ok(2.0 * PEAK_SUMS as f64 * f64::from(STEPS) * f64::from(blocks * THREADS) / best)
    }
}
