//! [`Device::Auto`](crate::Device::Auto): each call runs on the device that is faster for it, host
//! memory to host memory.
//!
//! The estimate has three parts, all pure functions of numbers. [`Load::on_gpu`] predicts the time
//! of a call on a GPU, where copies over the link, kernels and the host's copies overlap.
//! [`Learned`] corrects predictions by measured times. [`Odds::verdict`] compares the devices, and
//! the one-time cost of making the GPU ready. That cost is paid once the calls so far have lost as
//! much by running on the CPU. So a program takes at most twice the time of the best decision made
//! in advance.
//!
//! The state of the process is in `host/src/gpu/opening.rs` (the GPU and its link) and in [`known`]
//! (the corrections).

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::schedule::{BAND, BANDS, STAGED_BANDS};
use crate::Device;
use crate::image::{Scalar, Shape};
use crate::threads::{Effort, copy_rate};

/// Seconds to open a GPU: the driver of an H200.
pub(crate) const OPENING: f64 = 0.25;

/// Seconds to measure the link of a GPU that is open already.
#[cfg(feature = "gpu")]
pub(crate) const MEASURING: f64 = 0.003;

/// Seconds of a call on the GPU in addition to its bands, and of a band on the host. From `cargo
/// xtask bench flow` on an H200: 256x256 bytes take 45 us, and each band adds 12 us to its copies
/// and kernels.
const GPU_CALL: f64 = 26e-6;
const GPU_BAND: f64 = 12e-6;

/// Seconds of a band in addition, if threads copy it; and the bytes that one thread copies alone.
const COPIED_BAND: f64 = 50e-6;
const COPIED_ALONE: f64 = (512 << 10) as f64;

/// Seconds that a plan's first call on a GPU takes longer than the next, for streams and memory;
/// and bytes of pinned memory allocated a second.
const SETUP: f64 = 1e-3;
const PINNING: f64 = 5e9;

/// Bands under way at a time.
const LANES: f64 = 3.0;

/// Measured times count up to so many times the predicted ones.
const BELIEVED: f64 = 64.0;

/// The slower device gets trials if it is predicted to take at most so many times as long: before
/// three calls have been measured there, and after.
const HOPELESS: [f64; 2] = [32.0, 2.0];

/// Before a trial, calls on the faster device have taken so many times the extra cost of the trial:
/// for the first trial, the next two, and any other.
const PATIENCE: [f64; 3] = [4.0, 2.0, 192.0];

/// Trials come in a row of three if the device seems to take at most so many times as long: an idle
/// device is slower at first. With other calls between the trials, 256x256 bytes stayed on the CPU
/// of a host with an H200: 80 us instead of 52.
const CLOSE: f64 = 4.0;
const ROW: u32 = 3;

/// Most kinds of calls to remember.
const MAX_KINDS: usize = 4096;

/// A call, for [`Plan::estimate`](crate::Plan::estimate): pictures of one size and type, from
/// host memory to host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Width, height and channels of each picture.
    pub shape: Shape,
    /// The type of the pictures' values.
    pub source: Scalar,
    /// The type of the results.
    pub target: Scalar,
    /// How many pictures a call has: 1 for [`Plan::run`](crate::Plan::run), more for
    /// [`Plan::run_batch`](crate::Plan::run_batch).
    pub pictures: usize,
    /// Whether pictures and results are in pinned memory: see `apron::gpu::HostImage`.
    pub pinned: bool,
}

impl Work {
    /// One picture in pageable memory, with results of its own type.
    pub fn one(shape: Shape, scalar: Scalar) -> Self {
        Self { shape, source: scalar, target: scalar, pictures: 1, pinned: false }
    }
}

/// The predicted times of a call, and the choice of [`Device::Auto`]. From
/// [`Plan::estimate`](crate::Plan::estimate).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CallEstimate {
    /// Where a plan on [`Device::Auto`] would run the call now: [`Device::Cpu`] or the first GPU.
    pub device: Device,
    /// Why, as a phrase.
    pub why: String,
    /// The time on the CPU; `None` if the plan's variant cannot run there.
    pub cpu: Option<Duration>,
    /// The CPU's threads.
    pub threads: usize,
    /// The time on the GPU and its parts; `None` if there is no GPU, or if the plan's variant
    /// cannot run there.
    pub gpu: Option<GpuEstimate>,
}

/// The parts of a call's predicted time on a GPU.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GpuEstimate {
    /// From host memory to host memory, on an open GPU, after a plan's first call. Parts overlap,
    /// so it is less than their sum.
    pub total: Duration,
    /// Copies over the link, both ways at once.
    pub link: Duration,
    /// Kernels.
    pub kernel: Duration,
    /// Copies between pageable and pinned memory, by the CPU's threads.
    pub staging: Duration,
    /// The rest of a call.
    pub call: Duration,
    /// The extra time of a plan's first call; zero after it.
    pub setup: Duration,
    /// The time to open the GPU; zero if it is open.
    pub opening: Duration,
    /// Bytes a second over the link, up and down, if they were measured; else PCI Express 4 and an
    /// H200 are assumed.
    pub measured: Option<(f64, f64)>,
}

/// Bytes a second over the link to a GPU: to it, from it, and in sum if copies go both ways at
/// once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Link {
    pub(crate) up: f64,
    pub(crate) down: f64,
    pub(crate) both: f64,
    /// Whether only what is pinned is copied, as the GPU shares the host's memory.
    pub(crate) only_pinned: bool,
}

impl Link {
    /// PCI Express 4 with 16 lanes.
    pub(crate) const ASSUMED: Self = Self { up: 25e9, down: 25e9, both: 45e9, only_pinned: false };
}

/// The pictures of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    /// How many there are.
    pub(crate) pictures: f64,
    /// Bytes of all of them, and of all results.
    pub(crate) source: f64,
    pub(crate) results: f64,
    /// The bytes of both that are not in pinned memory.
    pub(crate) staged: f64,
}

/// Seconds of a call on a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OnGpu {
    pub(crate) total: f64,
    pub(crate) link: f64,
    pub(crate) kernel: f64,
    pub(crate) staging: f64,
    pub(crate) call: f64,
}

impl Load {
    /// Bytes of a band, and how many bands all pictures have together.
    fn bands(&self) -> (f64, f64) {
        let picture = self.source.max(self.results) / self.pictures;
        let bands = if self.staged > 0.0 { STAGED_BANDS } else { BANDS } as f64;
        let (least, most) = (BAND.start as f64, BAND.end as f64);
        let band = if self.pictures > 1.0 { most } else { (picture / bands).clamp(least, most) };
        let each = (picture / band).floor().max(1.0);
        (picture / each, each * self.pictures)
    }

    /// The time on a GPU whose kernels take `kernel` seconds. Bands go through the stages like a
    /// pipeline: the slowest stage sets the pace.
    pub(crate) fn on_gpu(&self, kernel: f64, link: Link, threads: usize) -> OnGpu {
        let (_, bands) = self.bands();
        let all = self.source + self.results;
        let copied = if link.only_pinned { 1.0 - self.staged / all } else { 1.0 };
        let (up, down) = (copied * self.source / link.up, copied * self.results / link.down);
        let copies = up.max(down).max(copied * all / link.both);
        // A band's pixels and the results of another are copied together.
        let copy = Effort::of_copy((self.staged / bands) as usize);
        let staging = self.staged / (1e9 * copy_rate(copy.threads(threads)));
        let beside = if self.staged / bands > 2.0 * COPIED_ALONE { COPIED_BAND } else { 0.0 };
        let call = GPU_CALL + (GPU_BAND + beside) * bands;
        let through = (staging + up + kernel + down) / bands;
        let pace = copies.max(kernel).max(staging) / bands;
        OnGpu { total: call + through + (bands - 1.0) * pace, link: copies, kernel, staging, call }
    }

    /// Bytes of pinned memory that a plan keeps for such calls, and the extra seconds of its first
    /// call.
    pub(crate) fn setup(&self) -> (f64, f64) {
        let (band, bands) = self.bands();
        let share = self.staged / self.source.max(self.results);
        let pinned = share * band * bands.min(LANES);
        (pinned, SETUP + pinned / PINNING)
    }
}

/// Where a call runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    Cpu,
    #[cfg_attr(not(feature = "gpu"), allow(dead_code, reason = "there is no GPU"))]
    Gpu,
}

impl Where {
    fn other(self) -> Self {
        match self {
            Self::Cpu => Self::Gpu,
            Self::Gpu => Self::Cpu,
        }
    }
}

/// Measured over predicted time: the least of the last three calls, as disturbances only slow a run
/// down.
#[derive(Clone, Copy, Debug, Default)]
struct Ratio {
    last: [f64; 3],
    count: u32,
}

impl Ratio {
    fn note(&mut self, ratio: f64) {
        self.last[self.count as usize % 3] = ratio.clamp(1.0 / BELIEVED, BELIEVED);
        // From 3 on, only the remainder of 3 matters.
        self.count = if self.count == 5 { 3 } else { self.count + 1 };
    }

    fn typical(&self) -> Option<f64> {
        let known = &self.last[..self.count.min(3) as usize];
        known.iter().copied().reduce(f64::min)
    }
}

/// The same over calls of many kinds, smoothed.
#[derive(Clone, Copy, Debug, Default)]
struct Trend {
    logarithm: f64,
    count: u32,
}

impl Trend {
    fn note(&mut self, ratio: f64) {
        self.count = (self.count + 1).min(8);
        let step = ratio.clamp(1.0 / BELIEVED, BELIEVED).ln() - self.logarithm;
        self.logarithm += step.clamp(-1.0, 1.0) / f64::from(self.count);
    }

    fn ratio(&self) -> f64 {
        self.logarithm.exp()
    }
}

/// A kind of call: its filters, types and size, as a number; and whether it makes bytes of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) hash: u64,
    pub(crate) bytes: bool,
}

/// The state of a kind of call.
#[derive(Clone, Copy, Debug, Default)]
struct Experience {
    cpu: Ratio,
    gpu: Ratio,
    /// Seconds of calls since the slower device was tried last.
    since: f64,
    /// Trials of a row that are still to come, on the CPU and on the GPU.
    row: [u32; 2],
}

impl Experience {
    fn of(&mut self, place: Where) -> &mut Ratio {
        match place {
            Where::Cpu => &mut self.cpu,
            Where::Gpu => &mut self.gpu,
        }
    }
}

/// Predicted seconds of a call on both devices; infinite if it cannot run there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pair {
    pub(crate) cpu: f64,
    pub(crate) gpu: f64,
}

impl Pair {
    fn of(&self, place: Where) -> f64 {
        match place {
            Where::Cpu => self.cpu,
            Where::Gpu => self.gpu,
        }
    }

    fn faster(&self) -> Where {
        if self.gpu < self.cpu { Where::Gpu } else { Where::Cpu }
    }
}

/// Corrections that a process has learned from its calls.
#[derive(Debug, Default)]
pub(crate) struct Learned {
    kinds: HashMap<u64, Experience>,
    /// For calls of kinds that have not been measured: on the CPU and on the GPU, for bytes made of
    /// bytes and for all others.
    trends: [[Trend; 2]; 2],
}

impl Learned {
    fn trend(&mut self, kind: Kind, place: Where) -> &mut Trend {
        &mut self.trends[place as usize][usize::from(kind.bytes)]
    }

    /// Predicted times as calls have corrected them.
    pub(crate) fn corrected(&mut self, kind: Kind, predicted: Pair) -> Pair {
        let known = self.kinds.get(&kind.hash).copied().unwrap_or_default();
        let cpu = known.cpu.typical().unwrap_or_else(|| self.trend(kind, Where::Cpu).ratio());
        let gpu = known.gpu.typical().unwrap_or_else(|| self.trend(kind, Where::Gpu).ratio());
        Pair { cpu: predicted.cpu * cpu, gpu: predicted.gpu * gpu }
    }

    /// Notes the time of a call.
    pub(crate) fn note(&mut self, kind: Kind, place: Where, predicted: f64, measured: f64) {
        if !(predicted > 0.0 && predicted.is_finite() && measured > 0.0) {
            return;
        }
        if self.kinds.len() >= MAX_KINDS && !self.kinds.contains_key(&kind.hash) {
            self.kinds.clear();
        }
        let known = self.kinds.entry(kind.hash).or_default();
        known.since += measured.min(BELIEVED * predicted);
        known.of(place).note(measured / predicted);
        self.trend(kind, place).note(measured / predicted);
    }

    /// Whether a call should be a trial of the device that seems to be slower. `setup` is the extra
    /// time of the GPU.
    pub(crate) fn tries(&self, kind: Kind, times: Pair, setup: f64) -> bool {
        let Some(mut known) = self.kinds.get(&kind.hash).copied() else { return false };
        let faster = times.faster();
        let beside = if faster == Where::Cpu { setup } else { 0.0 };
        let (best, other) = (times.of(faster), times.of(faster.other()) + beside);
        let tried = known.of(faster.other()).count;
        if known.of(faster).count == 0 {
            return false;
        }
        let (most, patience) = match tried {
            0 => (HOPELESS[0], PATIENCE[0]),
            _ if known.row[faster.other() as usize] > 0 && other <= CLOSE * best => {
                (HOPELESS[0], 0.0)
            }
            1 | 2 => (HOPELESS[0], PATIENCE[1]),
            _ => (HOPELESS[1], PATIENCE[2]),
        };
        // Trials are rare even if they cost nothing.
        other <= most * best && known.since >= patience * (other - best).max(0.1 * best)
    }

    /// Notes that this device, which seems to be slower, gets its trial.
    pub(crate) fn tried(&mut self, kind: Kind, place: Where) {
        if let Some(known) = self.kinds.get_mut(&kind.hash) {
            known.since = 0.0;
            let row = &mut known.row[place as usize];
            *row = row.checked_sub(1).unwrap_or(ROW - 1);
        }
    }
}

/// The corrections of this process.
pub(crate) fn known() -> MutexGuard<'static, Learned> {
    static KNOWN: LazyLock<Mutex<Learned>> = LazyLock::new(Mutex::default);
    // Each number is valid by itself.
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How ready the GPU is; seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Readiness {
    Ready,
    /// Another thread opens it.
    UnderWay,
    /// It takes `cost` to open. If it had been open, `lost` would have been saved so far.
    Closed {
        cost: f64,
        lost: f64,
    },
    /// It cannot be used.
    Never,
}

/// The numbers that the choice for a call depends on; seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Odds {
    pub(crate) times: Pair,
    pub(crate) readiness: Readiness,
    /// The extra time of the plan's first call on the GPU; 0 after it.
    pub(crate) setup: f64,
    /// What that would have saved so far.
    pub(crate) lost: f64,
    /// Whether the slower device has its trial.
    pub(crate) tries: bool,
}

/// Where a call goes, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    CpuFaster,
    GpuFaster,
    /// The GPU would save time, but not yet as much as it costs to open.
    TooLittle,
    /// Enough was lost: the GPU is opened while the CPU runs this call.
    OpenInBackground,
    /// It is being opened.
    UnderWay,
    /// This call alone saves more than it costs to open the GPU.
    OpenNow,
    /// The GPU would save time, but not yet the extra time of the plan's first call there.
    NotSetUp,
    /// The other device seems faster; this one has a trial.
    Trial(Where),
    /// There is no GPU.
    NoGpu,
}

impl Verdict {
    pub(crate) fn place(self) -> Where {
        match self {
            Self::GpuFaster | Self::OpenNow => Where::Gpu,
            Self::Trial(place) => place,
            _ => Where::Cpu,
        }
    }
}

impl Odds {
    /// What a call loses on the CPU.
    pub(crate) fn loss(&self) -> f64 {
        (self.times.cpu - self.times.gpu).max(0.0)
    }

    pub(crate) fn verdict(&self) -> Verdict {
        let loss = self.loss();
        match self.readiness {
            Readiness::Never => Verdict::NoGpu,
            _ if self.times.gpu.is_infinite() => Verdict::CpuFaster,
            Readiness::Ready if self.tries => Verdict::Trial(self.times.faster().other()),
            Readiness::Ready if loss == 0.0 => Verdict::CpuFaster,
            Readiness::Ready if self.lost + loss >= self.setup => Verdict::GpuFaster,
            Readiness::Ready => Verdict::NotSetUp,
            // The GPU is open for other plans. Getting ready costs little, and only a trial can
            // tell.
            Readiness::Closed { cost, .. } if self.tries && cost < OPENING => {
                Verdict::OpenInBackground
            }
            _ if loss == 0.0 => Verdict::CpuFaster,
            Readiness::UnderWay if loss >= OPENING + self.setup => Verdict::OpenNow,
            Readiness::UnderWay => Verdict::UnderWay,
            Readiness::Closed { cost, .. } if loss >= cost + self.setup => Verdict::OpenNow,
            Readiness::Closed { cost, lost } if lost + loss >= cost => Verdict::OpenInBackground,
            Readiness::Closed { .. } => Verdict::TooLittle,
        }
    }

    /// The verdict in words.
    pub(crate) fn why(&self) -> String {
        let ms = |seconds: f64| format!("{:.1} ms", seconds * 1e3);
        let loss = ms(self.loss());
        match (self.verdict(), self.readiness) {
            (_, _) if self.times.cpu.is_infinite() => "the CPU cannot run this call".into(),
            (Verdict::CpuFaster | Verdict::GpuFaster, _) => "its estimated time is shorter".into(),
            (Verdict::TooLittle, Readiness::Closed { cost, lost }) => {
                format!(
                    "the GPU would save {loss}, {} with earlier calls, and takes {} to open",
                    ms(lost + self.loss()),
                    ms(cost)
                )
            }
            (Verdict::OpenInBackground, _) if self.tries => {
                "the GPU is made ready in the background, to measure again which device is faster".into()
            }
            (Verdict::OpenInBackground, _) => {
                "CPU calls have lost as much time as opening the GPU takes: it is opened in the background".into()
            }
            (Verdict::UnderWay, _) => "the GPU is being opened".into(),
            (Verdict::OpenNow, _) => format!("the GPU saves {loss}, more than it takes to open"),
            (Verdict::NotSetUp, _) => {
                format!(
                    "the GPU would save {loss}, less than the {} that a plan's first GPU call takes in addition",
                    ms(self.setup)
                )
            }
            (Verdict::Trial(_), _) => "a trial, to measure whether this device is still slower".into(),
            (Verdict::NoGpu | Verdict::TooLittle, _) => "there is no GPU to use".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The link of an H200, and its host's threads.
    const LINK: Link = Link { up: 55e9, down: 55e9, both: 101e9, only_pinned: false };
    const THREADS: usize = 16;

    fn load(pictures: f64, bytes: f64, pinned: bool) -> Load {
        let all = pictures * bytes;
        Load { pictures, source: all, results: all, staged: if pinned { 0.0 } else { 2.0 * all } }
    }

    /// Times that `cargo xtask bench flow` has measured on an H200, in microseconds, are predicted
    /// within a factor.
    #[test]
    fn measured_times_are_predicted() {
        for (what, pictures, bytes, kernel, pinned, ordinary) in [
            ("6000x4000x3 bytes", 1.0, 72e6, 310.0, 1768.0, 3918.0),
            ("6000x4000x3 bytes, wide", 1.0, 72e6, 7000.0, 7478.0, 9099.0),
            ("8192x8192 floats", 1.0, 268.4e6, 160.0, 5883.0, 10057.0),
            ("1920x1080x3 bytes", 1.0, 6.22e6, 27.0, 258.0, 674.0),
            ("a batch of 200 of these", 200.0, 6.22e6, 200.0 * 27.0, 200.0 * 143.0, 200.0 * 310.0),
            ("256x256 bytes", 1.0, 65536.0, 5.0, 45.5, 56.1),
        ] {
            for (is_pinned, measured) in [(true, pinned), (false, ordinary)] {
                let predicted =
                    load(pictures, bytes, is_pinned).on_gpu(kernel * 1e-6, LINK, THREADS).total
                        * 1e6;
                let ratio: f64 = measured / predicted;
                let within = if is_pinned { 0.8..1.25 } else { 0.65..1.6 };
                assert!(
                    within.contains(&ratio),
                    "{what}, pinned: {is_pinned}: {measured} us, predicted {predicted}"
                );
            }
        }
    }

    #[test]
    fn parts_overlap() {
        let parts = load(1.0, 100e6, false).on_gpu(1e-3, LINK, THREADS);
        let sum = parts.link + parts.kernel + parts.staging + parts.call;
        let most = parts.link.max(parts.kernel).max(parts.staging);
        assert!(parts.total > most && parts.total < sum, "{parts:?}");
        // A single band has nothing to overlap with.
        let small = load(1.0, 1e6, true).on_gpu(1e-5, LINK, THREADS);
        assert!((small.total - (small.call + 2e6 / 55e9 + 1e-5)).abs() < 1e-9, "{small:?}");
        assert_eq!(load(1.0, 1e6, true).setup(), (0.0, SETUP));
        assert_eq!(load(1.0, 1e6, false).setup().0, 2e6);
    }

    fn odds(cpu: f64, gpu: f64, readiness: Readiness) -> Odds {
        Odds { times: Pair { cpu, gpu }, readiness, setup: 0.0, lost: 0.0, tries: false }
    }

    #[test]
    fn a_gpu_that_is_ready_is_used_where_it_is_faster() {
        assert_eq!(odds(1e-5, 5e-5, Readiness::Ready).verdict(), Verdict::CpuFaster);
        assert_eq!(odds(1e-3, 5e-4, Readiness::Ready).verdict(), Verdict::GpuFaster);
        let new = Odds { setup: 2e-3, ..odds(1e-3, 5e-4, Readiness::Ready) };
        assert_eq!(new.verdict(), Verdict::NotSetUp);
        assert_eq!(Odds { lost: 1.6e-3, ..new }.verdict(), Verdict::GpuFaster);
        assert_eq!(Odds { tries: true, ..new }.verdict(), Verdict::Trial(Where::Cpu));
        assert_eq!(odds(9.0, 1.0, Readiness::Never).verdict(), Verdict::NoGpu);
        // One that is open, but not for these plans, is made ready for a trial; one that is not, is
        // not opened for it.
        let trial =
            |cost| Odds { tries: true, ..odds(1e-5, 5e-5, Readiness::Closed { cost, lost: 0.0 }) };
        assert_eq!(trial(3e-3).verdict(), Verdict::OpenInBackground);
        assert_eq!(trial(OPENING).verdict(), Verdict::CpuFaster);
        // A variant that one of them does not have.
        assert_eq!(odds(9.0, f64::INFINITY, Readiness::Ready).verdict(), Verdict::CpuFaster);
        assert_eq!(odds(f64::INFINITY, 9.0, Readiness::Ready).verdict(), Verdict::GpuFaster);
        assert_eq!(
            odds(f64::INFINITY, 9.0, Readiness::Closed { cost: OPENING, lost: 0.0 }).verdict(),
            Verdict::OpenNow
        );
        assert_eq!(
            odds(f64::INFINITY, f64::INFINITY, Readiness::Ready).verdict(),
            Verdict::CpuFaster
        );
    }

    /// Whatever calls there are, and whenever they end: what they take is at most twice as long as
    /// with the best decision made in advance, which is to open the GPU at once or never; if
    /// opening takes as long as was thought.
    #[test]
    fn at_most_twice_the_time_of_who_knows_the_future() {
        let mut rng = fastrand_like(7);
        for _ in 0..2000 {
            let (mut lost, mut open, mut taken) = (0.0, false, 0.0);
            let (mut all_on_cpu, mut with_gpu) = (0.0, OPENING);
            for _ in 0..(rng() % 60) {
                let cpu = (rng() % 1000) as f64 * 1e-4;
                let gpu = cpu * (rng() % 150) as f64 * 1e-2;
                all_on_cpu += cpu;
                with_gpu += cpu.min(gpu);
                let readiness =
                    if open { Readiness::Ready } else { Readiness::Closed { cost: OPENING, lost } };
                let odds = odds(cpu, gpu, readiness);
                let verdict = odds.verdict();
                taken += if verdict.place() == Where::Gpu { gpu } else { cpu };
                match verdict {
                    Verdict::TooLittle => lost += odds.loss(),
                    // Here nothing else goes on meanwhile.
                    Verdict::OpenInBackground | Verdict::OpenNow => {
                        taken += OPENING;
                        open = true;
                    }
                    _ => {}
                }
                let best: f64 = f64::min(all_on_cpu, with_gpu);
                assert!(taken <= 2.0 * best + 1e-9, "{taken} s, {best} with foresight");
            }
        }
    }

    /// Numbers that look random.
    fn fastrand_like(seed: u64) -> impl FnMut() -> u64 {
        let mut state = seed;
        move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state >> 33
        }
    }

    const KIND: Kind = Kind { hash: 1, bytes: true };

    #[test]
    fn measured_times_correct_predictions() {
        let mut learned = Learned::default();
        let predicted = Pair { cpu: 1e-3, gpu: 2e-3 };
        assert_eq!(learned.corrected(KIND, predicted), predicted);
        learned.note(KIND, Where::Cpu, 1e-3, 4e-3);
        assert_eq!(learned.corrected(KIND, predicted).cpu, 4e-3);
        assert_eq!(learned.corrected(KIND, predicted).gpu, 2e-3);
        // Another kind is corrected by the trend, which has moved that way.
        let other = learned.corrected(Kind { hash: 2, bytes: true }, predicted).cpu;
        assert!(other > 2e-3 && other < 4e-3, "{other}");
        assert_eq!(learned.corrected(Kind { hash: 2, bytes: false }, predicted).cpu, 1e-3);
        // One outlier among three changes nothing.
        learned.note(KIND, Where::Cpu, 1e-3, 4e-3);
        learned.note(KIND, Where::Cpu, 1e-3, 1.0);
        assert_eq!(learned.corrected(KIND, predicted).cpu, 4e-3);
        // Three in a row do, and one right one heals it.
        for _ in 0..2 {
            learned.note(KIND, Where::Cpu, 1e-3, 1.0);
        }
        assert!(learned.corrected(KIND, predicted).cpu > 0.05);
        learned.note(KIND, Where::Cpu, 1e-3, 4e-3);
        assert_eq!(learned.corrected(KIND, predicted).cpu, 4e-3);
        for nonsense in [0.0, -1.0, f64::NAN] {
            learned.note(KIND, Where::Cpu, 1e-3, nonsense);
            learned.note(KIND, Where::Cpu, nonsense, 1e-3);
        }
        assert_eq!(learned.corrected(KIND, predicted).cpu, 4e-3);
    }

    /// Calls on two devices whose true times differ from the predicted ones, in any way: after some
    /// calls nearly all go to the faster device, also when a first measurement was wrong, and
    /// trials take a small part of the time.
    #[test]
    fn wrong_predictions_heal() {
        for (true_cpu, true_gpu, first, rested) in [
            (4e-3, 2e-3, 1.0, 1.0),
            (2e-3, 4e-3, 1.0, 1.0),
            (1e-4, 5e-5, 1.0, 1.0),
            (2e-3, 3e-3, 20.0, 1.0),
            (3e-3, 2.5e-3, 20.0, 1.0),
            (9e-3, 1e-3, 1.0, 1.0),
            (79e-5, 52e-5, 1.0, 2.0),
            (79e-5, 52e-5, 20.0, 2.0),
            (52e-5, 79e-5, 1.0, 2.0),
        ] {
            for predicted in [
                Pair { cpu: 1e-3, gpu: 2e-3 },
                Pair { cpu: 4e-3, gpu: 2e-3 },
                Pair { cpu: 1e-3, gpu: 1e-3 },
            ] {
                let truth = Pair { cpu: true_cpu, gpu: true_gpu };
                let mut learned = Learned::default();
                let (mut taken, mut best, mut last) = (0.0, 0.0, None);
                for call in 0..3000 {
                    let times = learned.corrected(KIND, predicted);
                    let tries = learned.tries(KIND, times, 0.0);
                    if tries {
                        learned.tried(KIND, times.faster().other());
                    }
                    let odds = Odds { tries, ..odds(times.cpu, times.gpu, Readiness::Ready) };
                    let place = odds.verdict().place();
                    // The first run is an outlier, and a device that has rested takes longer.
                    let slower = if last == Some(place) { 1.0 } else { rested };
                    let measured = truth.of(place) * if call == 0 { first } else { slower };
                    last = Some(place);
                    learned.note(KIND, place, predicted.of(place), measured);
                    if call >= 300 {
                        taken += measured;
                        best += truth.of(truth.faster());
                    }
                }
                assert!(
                    taken < 1.05 * best,
                    "{truth:?} predicted as {predicted:?}: {taken} s, {best} at best"
                );
            }
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut learned = Learned::default();
        for hash in 0..3 * MAX_KINDS as u64 {
            learned.note(Kind { hash, bytes: false }, Where::Gpu, 1e-3, 1e-3);
        }
        assert!(learned.kinds.len() <= MAX_KINDS);
    }
}
