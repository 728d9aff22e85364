//! Times.
//!
//! On a GPU, a measurement puts many runs into a stream between two marks of the stream's own clock. Before the first mark
//! comes enough other work for the host to have put in all runs before the GPU gets to them: so the time is the GPU's and
//! not the host's. The runs take turns over more buffers than the level-2 cache holds.

use std::time::{Duration, Instant};

use apron::gpu::{DeviceImage, Gpu, Stream};
use apron::{Result, Shape};

/// The middle one of some times.
///
/// # Panics
/// If there is none.
pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Times of `rounds` runs on the CPU, after one that is not counted.
///
/// # Errors
/// Those of `run`.
pub fn on_host<E>(rounds: usize, mut run: impl FnMut() -> Result<(), E>) -> Result<Vec<Duration>, E> {
    run()?;
    (0..rounds)
        .map(|_| {
            let start = Instant::now();
            run().map(|()| start.elapsed())
        })
        .collect()
}

/// Pairs of images in device memory, and a stream to use them in.
#[derive(Debug)]
pub struct Bed {
    pairs: Vec<(DeviceImage, DeviceImage)>,
    stream: Stream,
    ballast: DeviceImage,
    ballast_time: Duration,
}

impl Bed {
    /// Runs in one measurement, at least.
    const RUNS: usize = 16;

    /// Enough pairs of a shape to hold twice what the level-2 cache does; each source is a copy of `src`.
    ///
    /// # Errors
    /// Memory and driver errors.
    pub fn new(gpu: &Gpu, src: &DeviceImage) -> Result<Self> {
        let shape = src.shape();
        let bytes = 8 * (src.stride() * shape.height * shape.channels) as u64;
        let count = (2 * gpu.info().l2_cache).div_ceil(bytes).max(2);
        let stream = gpu.stream()?;
        let mut pairs = Vec::new();
        for _ in 0..count {
            let mut copy = gpu.image(shape)?;
            copy.copy_from(src, &stream)?;
            pairs.push((copy, gpu.image(shape)?));
        }
        let mut ballast = gpu.image(Shape { width: 8192, height: 4096, channels: 1 })?;
        // The first time is not counted.
        ballast.fill(0.0, &stream)?;
        let start = stream.mark()?;
        ballast.fill(0.0, &stream)?;
        let ballast_time = stream.mark()?.since(&start)?;
        Ok(Self { pairs, stream, ballast, ballast_time })
    }

    /// The GPU's time for one run, once.
    ///
    /// # Errors
    /// Those of `run`, and driver errors.
    pub fn time(
        &mut self,
        mut run: impl FnMut(&DeviceImage, &mut DeviceImage, &mut Stream) -> Result<()>,
    ) -> Result<Duration> {
        let rounds = Self::RUNS.div_ceil(self.pairs.len());
        let Self { pairs, stream, .. } = self;
        let mut all = |stream: &mut Stream| -> Result<()> {
            for _ in 0..rounds {
                pairs.iter_mut().try_for_each(|(src, dst)| run(src, dst, stream))?;
            }
            Ok(())
        };
        // Loads kernels, reserves scratch, and tells how long the host takes.
        stream.synchronize()?;
        all(stream)?;
        stream.synchronize()?;
        let begin = Instant::now();
        all(stream)?;
        let host = begin.elapsed();
        stream.synchronize()?;

        let ballast = 1 + (2 * host.as_nanos() / self.ballast_time.as_nanos().max(1)) as u32;
        for _ in 0..ballast {
            self.ballast.fill(0.0, stream)?;
        }
        let start = stream.mark()?;
        all(stream)?;
        let elapsed = stream.mark()?.since(&start)?;
        Ok(elapsed / (rounds * self.pairs.len()) as u32)
    }
}
