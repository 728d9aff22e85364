//! What ran when: the steps of each band of a run, by the GPU's clock and the host's. For the
//! benchmark and for tests.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::device::Gpu;
use super::stream::Mark;
use crate::Result;

/// Where runs note what they do. Clones are the same list.
#[derive(Clone, Debug, Default)]
pub struct Timeline(Arc<Mutex<Vec<Span>>>);

/// What happens to a band, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Threads of the host copy its rows to pinned memory.
    Stage,
    /// It is copied to the device.
    Upload,
    /// Kernels filter it.
    Kernel,
    /// It is copied from the device.
    Download,
    /// Threads of the host copy results from pinned memory to where they belong.
    Drain,
}

/// A time that a band took for something. On the device, that begins when the lane's work before it
/// has ended; the wait for a copy engine that another lane uses, or for multiprocessors, is a part
/// of it.
#[derive(Clone, Debug)]
pub struct Span {
    /// The GPU, by its place in the plan's list.
    pub gpu: usize,
    /// The lane, by its number among those of this GPU.
    pub lane: usize,
    /// The picture, by its number in the call.
    pub picture: usize,
    /// The band's results.
    pub rows: Range<usize>,
    /// What happens.
    pub what: What,
    /// From the beginning of the run.
    pub start: Duration,
    /// Likewise.
    pub end: Duration,
}

impl Timeline {
    /// What was noted since the last time.
    #[must_use]
    pub fn take(&self) -> Vec<Span> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, spans: impl IntoIterator<Item = Span>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(spans);
    }
}

/// How often a moment is taken by both clocks.
const TRIES: usize = 16;

/// The clocks of a run: the host's, and a moment of each GPU's by both.
pub(super) struct Clocks<'t> {
    timeline: &'t Timeline,
    start: Instant,
    bases: Vec<(Mark, Duration)>,
}

/// What is known of a band that is under way.
#[derive(Default)]
pub(super) struct Noted {
    pub(super) staged: Option<(Instant, Instant)>,
    pub(super) drained: Option<(Instant, Instant)>,
    /// Before the upload, behind it, behind the kernels and behind the download.
    pub(super) marks: Vec<Mark>,
}

impl<'t> Clocks<'t> {
    pub(super) fn new<'g>(
        timeline: &'t Timeline,
        gpus: impl IntoIterator<Item = &'g Gpu>,
    ) -> Result<Self> {
        let mut bases = Vec::new();
        let mut moments = Vec::new();
        for gpu in gpus {
            let stream = gpu.stream()?;
            // A mark is reached between two moments; where the GPU has other work, these may be far
            // from each other, so the nearest count.
            let take = || -> Result<(Duration, Instant, Mark)> {
                let before = Instant::now();
                let mark = stream.mark()?;
                stream.synchronize()?;
                let between = before.elapsed();
                Ok((between, before + between / 2, mark))
            };
            let mut nearest = take()?;
            for _ in 1..TRIES {
                let next = take()?;
                if next.0 < nearest.0 {
                    nearest = next;
                }
            }
            let (_, moment, mark) = nearest;
            moments.push(moment);
            bases.push(mark);
        }
        let start = moments.iter().min().copied().unwrap_or_else(Instant::now);
        let bases =
            bases.into_iter().zip(moments.iter().map(|moment| moment.duration_since(start)));
        Ok(Self { timeline, start, bases: bases.collect() })
    }

    /// Notes a band that is done.
    pub(super) fn note(
        &self,
        (gpu, lane): (usize, usize),
        (picture, rows): (usize, &Range<usize>),
        noted: &Noted,
    ) -> Result<()> {
        let (base, moment) = &self.bases[gpu];
        let ends = noted.marks.iter().map(|mark| mark.since(base).map(|time| *moment + time));
        let ends: Vec<_> = ends.collect::<Result<_>>()?;
        let on_device =
            [What::Upload, What::Kernel, What::Download].into_iter().zip(ends.windows(2));
        let on_device = on_device.map(|(what, ends)| (what, ends[0], ends[1]));
        let on_host = [(What::Stage, noted.staged), (What::Drain, noted.drained)].into_iter();
        let since = |moment: Instant| moment.saturating_duration_since(self.start);
        let on_host = on_host
            .filter_map(|(what, times)| times.map(|(from, to)| (what, since(from), since(to))));
        let span =
            |(what, start, end)| Span { gpu, lane, picture, rows: rows.clone(), what, start, end };
        self.timeline.note(on_device.chain(on_host).map(span));
        Ok(())
    }
}
