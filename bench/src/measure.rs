//! Measurement of times.
//!
//! On a GPU, a measurement puts many runs into a stream between two events, which hold times of the
//! GPU's clock. Enough other work comes before the first event for the host to put in all runs
//! before the GPU reaches them. So the time is the GPU's and not the host's. The runs rotate
//! through more buffers than the level-2 cache holds.
//!
//! On the CPU, contenders alternate ([`Turn`]).

use std::time::{Duration, Instant};

use apron::gpu::{DeviceImage, Gpu, Recorded, Stream};
use apron::{Layout, Plan, Result, Shape};

/// The median of some times.
///
/// # Panics
/// If there is none.
pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// A time in microseconds.
pub fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The time that the threads of this process have been running, in total. Linux's scheduler counts
/// it, a few milliseconds late.
///
/// # Errors
/// If the system does not count it.
pub fn running() -> anyhow::Result<Duration> {
    let mut nanoseconds = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        nanoseconds += text.split_whitespace().next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// Bytes of an image's rows, with the padding between them.
fn bytes(image: &DeviceImage) -> u64 {
    let (shape, format) = (image.shape(), image.format());
    let planes = if format.layout == Layout::Interleaved { 1 } else { shape.channels };
    (format.scalar.bytes() * image.stride() * shape.height * planes) as u64
}

/// The driver's fastest copy of an image: the limit for filters.
///
/// # Errors
/// Driver errors.
pub fn copy(src: &DeviceImage, dst: &mut DeviceImage, stream: &mut Stream) -> Result<()> {
    dst.copy_memory_from(src, stream)
}

/// Times of `rounds` runs on the CPU, after one that is not counted.
///
/// # Errors
/// Those of `run`.
pub fn on_host<E>(
    rounds: usize,
    mut run: impl FnMut() -> Result<(), E>,
) -> Result<Vec<Duration>, E> {
    run()?;
    (0..rounds)
        .map(|_| {
            let start = Instant::now();
            run().map(|()| start.elapsed())
        })
        .collect()
}

/// How long a contender on the CPU runs when its turn comes.
///
/// While others run, its threads sleep. Linux in a virtual machine may then wake both threads of
/// two cores on one core, because it mistakes the halted core for one that the host has taken away.
/// Until it separates them, which can take a tenth of a second, everything takes twice as long.
/// This affects any program with threads, so it is not to be measured.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// It first runs for this long without being timed.
    pub lead: Duration,
    /// Then each run that begins within this time is timed, at least one.
    pub span: Duration,
}

impl Turn {
    /// For runs that take less than the lead. [`Turn::after`] times longer runs once, without a
    /// lead.
    pub const BRIEF: Self =
        Self { lead: Duration::from_millis(150), span: Duration::from_millis(25) };

    /// For many contenders whose times need not be exact.
    pub const SHORT: Self = Self { lead: Duration::from_millis(5), span: Duration::from_millis(5) };

    /// The turn of a contender whose last run took this long, if it has run.
    pub fn after(last: Option<Duration>) -> Self {
        let brief = last.is_none_or(|last| last < Self::BRIEF.lead);
        if brief { Self::BRIEF } else { Self { lead: Duration::ZERO, span: Duration::ZERO } }
    }

    /// The times.
    ///
    /// # Errors
    /// Those of `run`.
    pub fn times<E>(self, mut run: impl FnMut() -> Result<(), E>) -> Result<Vec<Duration>, E> {
        let begin = Instant::now();
        while begin.elapsed() < self.lead {
            run()?;
        }
        let (begin, mut times) = (Instant::now(), Vec::new());
        while times.is_empty() || begin.elapsed() < self.span {
            let start = Instant::now();
            run()?;
            times.push(start.elapsed());
        }
        Ok(times)
    }
}

/// Pairs of images in device memory, and a stream to use them in.
#[derive(Debug)]
pub struct Bed {
    pairs: Vec<(DeviceImage, DeviceImage)>,
    stream: Stream,
    ballast: DeviceImage,
    ballast_time: Duration,
}

/// The same work recorded for several pairs of images, which are used in rotation.
#[derive(Debug)]
pub struct Replays {
    all: Vec<Recorded>,
    turn: usize,
}

impl Replays {
    /// Replays the next.
    ///
    /// # Errors
    /// Driver errors.
    pub fn next(&mut self, stream: &mut Stream) -> Result<()> {
        self.turn = (self.turn + 1) % self.all.len();
        self.all[self.turn].replay(stream)
    }

    /// The result of the first recording.
    pub fn result(&self) -> &DeviceImage {
        self.all[0].dst()
    }
}

/// How many runs a measurement has, and how much other work comes first.
#[derive(Clone, Copy, Debug)]
pub struct Rhythm {
    passes: usize,
    ballast: u32,
}

impl Bed {
    /// The approximate time that the runs of one measurement take together.
    const SPAN: Duration = Duration::from_millis(2);

    /// Pairs of a shape, enough to fill twice the level-2 cache; each source is a copy of `src`.
    ///
    /// # Errors
    /// Memory and driver errors.
    pub fn new(gpu: &Gpu, src: &DeviceImage) -> Result<Self> {
        Self::between(gpu, src, src)
    }

    /// As [`Bed::new`], for results like `dst`.
    ///
    /// # Errors
    /// Memory and driver errors.
    pub fn between(gpu: &Gpu, src: &DeviceImage, dst: &DeviceImage) -> Result<Self> {
        let count = (2 * gpu.info().l2_cache).div_ceil(bytes(src) + bytes(dst)).max(2);
        let stream = gpu.stream()?;
        let mut pairs = Vec::new();
        for _ in 0..count {
            let mut copy = gpu.image_like(src)?;
            // [`copy`] also copies the padding between the rows, so it must be initialised.
            copy.fill(0.0, &stream)?;
            copy.copy_from(src, &stream)?;
            pairs.push((copy, gpu.image_like(dst)?));
        }
        let mut ballast = gpu.image(Shape { width: 8192, height: 4096, channels: 1 })?;
        // The first run does not count.
        ballast.fill(0.0, &stream)?;
        let start = stream.mark()?;
        ballast.fill(0.0, &stream)?;
        let ballast_time = stream.mark()?.since(&start)?;
        Ok(Self { pairs, stream, ballast, ballast_time })
    }

    /// Records a plan's work, on as many pairs of images with the same sources.
    ///
    /// # Errors
    /// Memory and driver errors.
    pub fn recorded(&self, gpu: &Gpu, plan: &Plan) -> Result<Replays> {
        let record = |(src, _): &(DeviceImage, DeviceImage)| {
            let mut copy = gpu.image(src.shape())?;
            copy.copy_from(src, &self.stream)?;
            let mut dst = gpu.image(src.shape())?;
            dst.fill(f32::NAN, &self.stream)?;
            self.stream.synchronize()?;
            plan.record(copy, dst)
        };
        Ok(Replays { all: self.pairs.iter().map(record).collect::<Result<_>>()?, turn: 0 })
    }

    /// Warms up the work to be measured, and computes its rhythm.
    ///
    /// # Errors
    /// Those of `run`, and driver errors.
    pub fn rhythm(
        &mut self,
        mut run: impl FnMut(&DeviceImage, &mut DeviceImage, &mut Stream) -> Result<()>,
    ) -> Result<Rhythm> {
        // This pass loads kernels and reserves scratch memory.
        self.pass(&mut run)?;
        self.stream.synchronize()?;
        let (begin, start) = (Instant::now(), self.stream.mark()?);
        self.pass(&mut run)?;
        let host = begin.elapsed();
        let pass = self.stream.mark()?.since(&start)?;
        let passes = Self::SPAN.as_nanos().div_ceil(pass.as_nanos().max(1)).clamp(1, 32);
        let ballast = 2 * passes * host.as_nanos() / self.ballast_time.as_nanos().max(1);
        Ok(Rhythm { passes: passes as usize, ballast: 1 + ballast as u32 })
    }

    /// The GPU's time for one run.
    ///
    /// # Errors
    /// Those of `run`, and driver errors.
    pub fn time(
        &mut self,
        rhythm: Rhythm,
        mut run: impl FnMut(&DeviceImage, &mut DeviceImage, &mut Stream) -> Result<()>,
    ) -> Result<Duration> {
        for _ in 0..rhythm.ballast {
            self.ballast.fill(0.0, &self.stream)?;
        }
        let start = self.stream.mark()?;
        for _ in 0..rhythm.passes {
            self.pass(&mut run)?;
        }
        let elapsed = self.stream.mark()?.since(&start)?;
        Ok(elapsed / (rhythm.passes * self.pairs.len()) as u32)
    }

    /// The GPU's times for one run, measured `turns` times.
    ///
    /// # Errors
    /// Those of `run`, and driver errors.
    pub fn times(
        &mut self,
        turns: usize,
        mut run: impl FnMut(&DeviceImage, &mut DeviceImage, &mut Stream) -> Result<()>,
    ) -> Result<Vec<Duration>> {
        let rhythm = self.rhythm(&mut run)?;
        (0..turns).map(|_| self.time(rhythm, &mut run)).collect()
    }

    /// One run over each pair.
    fn pass(
        &mut self,
        run: &mut impl FnMut(&DeviceImage, &mut DeviceImage, &mut Stream) -> Result<()>,
    ) -> Result<()> {
        let Self { pairs, stream, .. } = self;
        pairs.iter_mut().try_for_each(|(src, dst)| run(src, dst, stream))
    }
}
