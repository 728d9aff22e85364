//! From host memory to host memory: bands of pictures go through lanes, so that uploads, kernels,
//! downloads and copies from and to pageable memory overlap.
//!
//! Feeders are the calling thread and threads of rayon's pool. They take bands from one queue, each
//! for lanes of its own. A GPU has one feeder, or two where threads copy between pageable and
//! pinned memory: one copies while the other calls the driver. Feeders do not wait for each other,
//! so a run ends even if only the first one gets a thread.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpu_kernels::border;

pub(crate) use super::band::Step;
use super::band::{Band, Needs, Planned, PlannedStep, UnderWay, bytes, last};
use super::engine::Engine;
use super::lane::{Copying, Idle, Lane, SHARE};
use super::timeline::{Clocks, Noted};
use crate::image::stored::{StoredView, StoredViewMut};
use crate::image::{Scalar, Shape};
use crate::plan::schedule::{Bands, FlowOptions};
use crate::progress::Stage;
use crate::{Error, Result, threads};

/// Bands under way on a GPU: one is uploaded, one filtered, one downloaded.
const LANES: usize = 3;

/// The same where threads copy between pageable and pinned memory, for both feeders of a GPU
/// together: each has a band on the GPU and a band that is copied.
const STAGED_LANES: usize = 4;

/// Feeders of a GPU where threads copy.
const STAGED_FEEDERS: usize = 2;

/// The least bands of a run for each feeder: with fewer, a further feeder only delays the first
/// band.
const BANDS_EACH: usize = 3;

/// Up to so many bytes of the source, one feeder is enough: the run ends before another thread
/// wakes up.
const ALONE: usize = 1 << 20;

/// The most bands of pinned pictures in a lane: so many that no GPU waits for the host. With one
/// feeder, only the memory of notes limits them.
const DEEP: usize = 64;

/// The same where several feeders share the queue, so that no GPU takes more than its share. Once
/// all lanes together could hold the rest of the queue, a lane takes one band at a time.
const SHARED_DEEP: usize = 4;

/// A lane that holds so many times what it needs gives its memory back.
const TOO_LARGE: u64 = 8;

/// A picture to filter, from host memory to host memory.
#[derive(Debug)]
pub(crate) struct Picture<'a> {
    src: StoredView<'a>,
    dst: StoredViewMut<'a>,
    /// How many channels are filtered; the others are copied.
    filtered: usize,
}

impl<'a> Picture<'a> {
    /// A picture and its destination, which have the same shape.
    pub(crate) fn new(src: StoredView<'a>, dst: StoredViewMut<'a>, filtered: usize) -> Self {
        Self { src, dst, filtered }
    }

    fn is_pinned(&self) -> bool {
        self.src.is_pinned() && self.dst.is_pinned()
    }

    /// The properties that its bands depend on.
    fn kind(&self) -> Kind {
        let kinds = (self.src.scalar(), self.dst.scalar());
        Kind { shape: self.src.shape(), filtered: self.filtered, kinds, staged: !self.is_pinned() }
    }
}

/// What pictures with the same kernels and bands share.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Kind {
    shape: Shape,
    filtered: usize,
    /// The types of source and results.
    kinds: (Scalar, Scalar),
    /// Whether threads copy it from or to pinned memory.
    staged: bool,
}

/// A lane with bands that are under way: one, or several of pinned pictures.
struct Busy<'q> {
    lane: Lane,
    bands: Vec<UnderWay<'q>>,
}

/// The kernels and bands of all pictures that are not done.
struct Plans {
    of_kinds: Vec<Planned>,
    /// For each of these pictures, which of them.
    of_pictures: Vec<usize>,
    /// Lanes of a GPU.
    lanes: usize,
    /// Bands of all of these pictures.
    bands: usize,
}

/// The pictures of a run, and how far it has come.
struct Flow<'r, 'a> {
    steps: &'r [Step<'r>],
    /// The first step's engines, and the idle lanes of each.
    engines: &'r [Engine],
    idle: &'r [Idle],
    pictures: &'r mut [Picture<'a>],
    stage: &'r Stage<'r>,
    options: &'r FlowOptions,
    clocks: Option<Clocks<'r>>,
    /// Pixels of all pictures.
    pixels: usize,
    done: Done,
    /// How often bands were made smaller, because memory was exhausted.
    smaller: u32,
}

/// How far a run has come: everything before this is done.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    /// The first picture of which not everything is there, and its first row that is not.
    picture: usize,
    row: usize,
    pixels: usize,
}

/// Filters pictures from host memory to host memory by these steps, one after the other, on the
/// same GPUs, with the idle lanes of the first step. There is at least one step. The run is a
/// `stage` of a call, which may end it.
///
/// # Errors
/// The number of the first picture of which something is missing, and why. The pictures before it
/// are done.
pub(crate) fn run(
    (steps, idle): (&[Step<'_>], &[Idle]),
    pictures: &mut [Picture<'_>],
    stage: &Stage<'_>,
) -> Result<(), (usize, Error)> {
    let engines = steps[0].engines;
    let options = &engines[0].limits().flow;
    let gpus = || engines.iter().map(Engine::gpu);
    let clocks =
        options.timeline.as_ref().map(|timeline| Clocks::new(timeline, gpus())).transpose();
    let clocks = clocks.map_err(|error| (0, error))?;
    let pixels = pictures.iter().map(|picture| pixels(picture.src.shape())).sum();
    let done = Done::default();
    let mut flow =
        Flow { steps, engines, idle, pictures, stage, options, clocks, pixels, done, smaller: 0 };
    let mut first = true;
    loop {
        match flow.attempt() {
            // A smaller band may fit. Idle lanes give their memory back first.
            Err(Again::Smaller) => {
                let idle: usize = idle.iter().map(|idle| idle.lanes().drain(..).count()).sum();
                flow.smaller += u32::from(idle == 0 || !first);
                first = false;
            }
            Err(Again::Never(error)) => {
                return Err((flow.done.picture.min(flow.pictures.len().saturating_sub(1)), error));
            }
            Ok(()) => return Ok(()),
        }
    }
}

fn pixels(shape: Shape) -> usize {
    shape.width.saturating_mul(shape.height)
}

/// What an error means for the run.
enum Again {
    /// It may go on with smaller bands.
    Smaller,
    Never(Error),
}

impl From<Error> for Again {
    fn from(error: Error) -> Self {
        if matches!(error, Error::DeviceMemory { .. }) { Self::Smaller } else { Self::Never(error) }
    }
}

/// A thread's share of a run: its GPUs, by number, and its lanes on each.
struct Feeder {
    engines: Vec<usize>,
    lanes: usize,
}

impl Feeder {
    /// Lanes of all its GPUs.
    fn most(&self) -> usize {
        self.engines.len() * self.lanes
    }
}

/// Up to so many feeders for so many GPUs with so many lanes each.
fn crew(feeders: usize, engines: usize, lanes: usize) -> Vec<Feeder> {
    let feeder = |number: usize| {
        if feeders <= engines {
            return Feeder { engines: (number..engines).step_by(feeders).collect(), lanes };
        }
        let engine = number % engines;
        let (mates, rank) = ((feeders - engine).div_ceil(engines), number / engines);
        Feeder { engines: vec![engine], lanes: (lanes + mates - 1 - rank) / mates }
    };
    (0..feeders).map(feeder).filter(|feeder| feeder.lanes > 0).collect()
}

impl Flow<'_, '_> {
    /// Runs all bands that are not done.
    fn attempt(&mut self) -> Result<(), Again> {
        if self.done.picture == self.pictures.len() {
            return Ok(());
        }
        let plans = self.plan_all()?;
        let (first, engines) = (self.done, self.engines.len());
        let feeders = self.feeders(plans.bands);
        let rest = &mut self.pictures[first.picture..];
        let pinned = rest.iter().all(Picture::is_pinned);
        let crew = crew(feeders, engines, plans.lanes);
        let deep = self.options.deep.unwrap_or(if crew.len() == 1 { DEEP } else { SHARED_DEEP });
        // Stream order is enough: no band waits for the host.
        let deep = if pinned && !self.stage.is_watched() { deep } else { 1 };
        let lanes = crew.iter().map(Feeder::most).sum::<usize>();
        let run = Run {
            steps: self.steps,
            engines: self.engines,
            idle: self.idle,
            stage: self.stage,
            clocks: self.clocks.as_ref(),
            copying: Copying {
                share: self.options.share.unwrap_or(SHARE),
                clocked: self.clocks.is_some(),
            },
            pixels: self.pixels,
            deep,
            plenty: if crew.len() == 1 { 0 } else { deep * lanes },
            queue: Mutex::new(Queue {
                plans: &plans,
                rest: rest.iter_mut(),
                picture: first.picture,
                row: first.row,
                first_picture: first.picture,
                current: None,
                tickets: 0,
                taken: VecDeque::new(),
                done: first,
                failed: None,
                lanes: vec![0; engines],
            }),
        };
        let next = AtomicUsize::new(0);
        threads::run(crew.len(), &|| {
            if let Some(feeder) = crew.get(next.fetch_add(1, Ordering::Relaxed)) {
                run.feed(feeder);
            }
        });
        let Queue { done, failed, .. } =
            run.queue.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.done = done;
        failed.map_or(Ok(()), |(_, again)| Err(again))
    }

    /// Feeders for so many bands of the pictures that are not done.
    fn feeders(&self, bands: usize) -> usize {
        let rest = &self.pictures[self.done.picture..];
        let bytes = |picture: &Picture<'_>| picture.src.row_bytes() * picture.src.shape().height;
        let all: usize = rest.iter().map(bytes).sum();
        let staged: usize = rest.iter().filter(|picture| !picture.is_pinned()).map(bytes).sum();
        let engines = self.engines.len();
        let feeders = match self.options.feeders {
            Some(of_each) => of_each * engines,
            None if all < ALONE => 1,
            None if staged < ALONE => engines.min(bands).min(rayon::current_num_threads()),
            None => {
                let most = (STAGED_FEEDERS * engines).min(rayon::current_num_threads());
                most.min(bands.div_ceil(BANDS_EACH))
            }
        };
        feeders.max(1)
    }

    /// Kernels and bands for every picture that is not done.
    fn plan_all(&self) -> Result<Plans, Again> {
        let mut known = HashMap::new();
        let mut plans =
            Plans { of_kinds: Vec::new(), of_pictures: Vec::new(), lanes: usize::MAX, bands: 0 };
        let rest = &self.pictures[self.done.picture..];
        let mut latest = None;
        for picture in rest {
            let kind = picture.kind();
            let number = match latest {
                Some((same, number)) if same == kind => number,
                _ => match known.get(&kind) {
                    Some(&number) => number,
                    None => {
                        let number = plans.of_kinds.len();
                        plans.of_kinds.push(self.plan(kind)?);
                        known.insert(kind, number);
                        number
                    }
                },
            };
            latest = Some((kind, number));
            let Bands { rows, lanes } = plans.of_kinds[number].bands;
            plans.lanes = plans.lanes.min(lanes);
            plans.bands += kind.shape.height.div_ceil(rows);
            plans.of_pictures.push(number);
        }
        Ok(plans)
    }

    /// The kernels and the bands for pictures of a kind.
    fn plan(
        &self,
        Kind { shape, filtered, kinds: (mut source, target), staged }: Kind,
    ) -> Result<Planned, Again> {
        let alone = self.pictures.len() == 1;
        let (mut steps, mut needs) = (Vec::new(), Vec::<Needs>::new());
        for (number, step) in self.steps.iter().enumerate() {
            let filtered = if step.takes_all { shape.channels } else { filtered };
            let target = if number + 1 == self.steps.len() { target } else { step.target };
            let kinds = (source, target);
            let prepared = (step.prepare)(shape, filtered, kinds).map_err(Again::Never)?;
            let mut of_step =
                step.engines[0].needs(&prepared, shape, kinds, filtered, (alone, staged))?;
            if let Some(before) = needs.last() {
                // The results of the step before are counted there.
                of_step.pitches.0 = 0;
                of_step.extent.beside = before.extent.beside + before.extent.reach - 1;
            }
            source = target;
            steps.push((prepared, filtered, target));
            needs.push(of_step);
        }
        // Under WRAP, a band may need rows of both ends of every step's results: then all steps
        // take whole pictures.
        if needs.len() > 1 && needs.iter().any(|needs| needs.extent.border == border::WRAP) {
            needs.iter_mut().for_each(|needs| needs.extent.step = shape.height);
        }
        let bands = self.bands(&needs, staged)?;
        let bytes = bytes(&needs, bands.rows);
        let steps = steps.into_iter().zip(&needs);
        let steps = steps.map(|((prepared, filtered, target), needs)| PlannedStep {
            prepared,
            filtered,
            target,
            extent: needs.extent,
        });
        let integrated = || self.engines.iter().all(|engine| engine.gpu().info().integrated);
        let in_place = self.options.in_place.unwrap_or_else(integrated);
        Ok(Planned { shape, steps: steps.collect(), bands, bytes, in_place })
    }

    /// The bands for which the plan's limit, each GPU's memory and `smaller` have room.
    fn bands(&self, needs: &[Needs], staged: bool) -> Result<Bands, Again> {
        let engine = &self.engines[0];
        let extent = last(needs).0.extent;
        let limit = engine.limits().memory;
        let refused = |needed| Again::Never(limit_passed(needed, limit));
        let bytes = |rows| bytes(needs, rows);
        let lanes = self.options.lanes.unwrap_or(if staged { STAGED_LANES } else { LANES });
        let mut bands = extent.bands(limit, lanes, bytes).map_err(refused)?;
        for (engine, idle) in self.engines.iter().zip(self.idle) {
            // Idle lanes have their memory already.
            let held = idle.lanes().iter().map(|lane| lane.allowed).sum::<u64>();
            let wanted = bytes(bands.rows).saturating_mul(extent.lanes_in_use(&bands) as u64);
            if wanted > held {
                let (free, total) = engine.gpu().memory()?;
                // The driver hands memory out in large pieces.
                let room = held.saturating_add(free - free / 16).min(limit);
                let exhausted = |needed| Again::Never(Error::DeviceMemory { needed, free, total });
                let fewer = extent.bands(room, lanes, bytes).map_err(exhausted)?;
                bands = if (fewer.rows, fewer.lanes) < (bands.rows, bands.lanes) {
                    fewer
                } else {
                    bands
                };
            }
        }
        for _ in 0..self.smaller {
            let exhausted = || engine.gpu().out_of_memory(bytes(bands.rows));
            bands = extent.smaller(bands).ok_or_else(|| Again::Never(exhausted()))?;
        }
        Ok(bands)
    }
}

/// The bands that no feeder has taken yet, and the state of the others.
struct Queue<'q, 'a> {
    plans: &'q Plans,
    rest: std::slice::IterMut<'q, Picture<'a>>,
    /// The picture of the next band, and its row.
    picture: usize,
    row: usize,
    /// The first picture that the plans are for.
    first_picture: usize,
    /// The picture of the next band, if it has been begun: the rows of its destination that no band
    /// has.
    current: Option<(StoredView<'q>, StoredViewMut<'q>)>,
    tickets: usize,
    /// Bands from the first that is not done, in order: the picture, the end of their rows, and
    /// whether they are done.
    taken: VecDeque<(usize, usize, bool)>,
    done: Done,
    /// The first band that failed, and what that means.
    failed: Option<(usize, Again)>,
    /// How many lanes each GPU has had.
    lanes: Vec<usize>,
}

impl<'q> Queue<'q, '_> {
    /// Bands that no feeder has taken.
    fn left(&self) -> usize {
        self.plans.bands.saturating_sub(self.tickets)
    }

    /// The next band, unless the run has failed.
    fn take(&mut self) -> Option<Band<'q>> {
        if self.failed.is_some() {
            return None;
        }
        let (src, dst) = match self.current.take() {
            Some(current) => current,
            None => {
                let picture = self.rest.next()?;
                (picture.src, picture.dst.below(self.row))
            }
        };
        let plan = &self.plans.of_kinds[self.plans.of_pictures[self.picture - self.first_picture]];
        let (job, between) = plan.job(self.row);
        let (picture, end) = (self.picture, job.results.end);
        let (dst, others) = dst.split_at_row(job.results.len());
        if end == src.shape().height {
            (self.picture, self.row) = (picture + 1, 0);
        } else {
            self.row = end;
            self.current = Some((src, others));
        }
        let ticket = self.tickets;
        self.tickets += 1;
        self.taken.push_back((picture, end, false));
        Some(Band { ticket, picture, plan, job, between, src, dst })
    }

    /// Notes that a band is done. Returns the pixels that are done with all before them.
    fn finish(&mut self, band: &Band<'_>) -> usize {
        let first = self.tickets - self.taken.len();
        if let Some((.., done)) = self.taken.get_mut(band.ticket - first) {
            *done = true;
        }
        while let Some(&(picture, end, true)) = self.taken.front() {
            self.taken.pop_front();
            let plan = &self.plans.of_kinds[self.plans.of_pictures[picture - self.first_picture]];
            let Shape { width, height, .. } = plan.shape;
            let begin = if picture == self.done.picture { self.done.row } else { 0 };
            self.done.pixels += (end - begin) * width;
            (self.done.picture, self.done.row) =
                if end == height { (picture + 1, 0) } else { (picture, end) };
        }
        self.done.pixels
    }

    /// Notes that a band failed. No other band begins then.
    fn fail(&mut self, ticket: usize, again: Again) {
        let weight = |ticket: usize, again: &Again| (matches!(again, Again::Smaller), ticket);
        let worse =
            |(known, reason): &(usize, Again)| weight(ticket, &again) < weight(*known, reason);
        if self.failed.as_ref().is_none_or(worse) {
            self.failed = Some((ticket, again));
        }
    }
}

/// What the feeders of an attempt share.
struct Run<'q, 'a> {
    steps: &'q [Step<'q>],
    engines: &'q [Engine],
    idle: &'q [Idle],
    stage: &'q Stage<'q>,
    clocks: Option<&'q Clocks<'q>>,
    copying: Copying,
    /// Pixels of all pictures.
    pixels: usize,
    /// Bands that a lane may have at once, while at least `plenty` are left in the queue; then one.
    deep: usize,
    /// See there.
    plenty: usize,
    queue: Mutex<Queue<'q, 'a>>,
}

impl<'q, 'a> Run<'q, 'a> {
    fn queue(&self) -> MutexGuard<'_, Queue<'q, 'a>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bands that a lane may have at once, now.
    fn deep(&self) -> usize {
        if self.deep > 1 && self.queue().left() < self.plenty { 1 } else { self.deep }
    }

    /// Takes bands and puts them into lanes until none are left or the run has failed. Bands under
    /// way are completed in any case.
    fn feed(&self, feeder: &Feeder) {
        let most = feeder.most();
        let mut busy = VecDeque::<Busy<'q>>::new();
        loop {
            let mut oldest = if busy.len() < most { None } else { busy.pop_front() };
            let mut arrived = Vec::new();
            if let Some(Busy { lane, bands }) = &mut oldest
                && bands.len() >= self.deep()
            {
                if let Err(error) = lane.wait() {
                    self.queue().fail(bands[0].0.ticket, error.into());
                    break;
                }
                arrived = std::mem::take(bands);
            }
            let taken = self.queue().take();
            let Some(band) = taken else {
                if let Some(Busy { lane, mut bands }) = oldest {
                    bands.append(&mut arrived);
                    self.finish(Busy { lane, bands });
                }
                break;
            };
            let next = match oldest {
                Some(oldest) => Ok(oldest),
                None => {
                    self.lane(feeder.engines[busy.len() % feeder.engines.len()], band.plan.bytes)
                }
            };
            match next {
                Ok(mut next) => {
                    self.start(&mut next, band, arrived);
                    busy.push_back(next);
                }
                Err(error) => {
                    self.queue().fail(band.ticket, error.into());
                    break;
                }
            }
        }
        busy.into_iter().for_each(|busy| self.finish(busy));
    }

    /// Puts a band into a lane, and takes the results that have arrived there.
    fn start(&self, next: &mut Busy<'q>, mut band: Band<'q>, mut arrived: Vec<UnderWay<'q>>) {
        let lane = &mut next.lane;
        lane.allowed = lane.allowed.max(band.plan.bytes);
        let mut noted = self.clocks.map(|_| Noted::default());
        // If several have arrived, they are pinned, and the device has written them to their place.
        let staged = lane.stage(self.copying, &band, arrived.last_mut());
        arrived.iter().for_each(|arrived| self.note(lane, arrived));
        let started = staged.and_then(|staged| {
            if let Some(noted) = &mut noted {
                noted.staged = staged;
            }
            // The call may have ended meanwhile.
            if self.queue().failed.is_some() {
                Ok(false)
            } else {
                lane.start(self.steps, &mut band, noted.as_mut()).map(|()| true)
            }
        });
        match started {
            Ok(true) => next.bands.push((band, noted)),
            Ok(false) => {}
            Err(error) => self.queue().fail(band.ticket, error.into()),
        }
    }

    /// Waits for a lane, takes its results, and leaves the lane to later runs.
    fn finish(&self, Busy { lane, mut bands }: Busy<'q>) {
        if let Err(error) = lane.wait() {
            let ticket = bands.first().map_or(usize::MAX, |(band, _)| band.ticket);
            return self.queue().fail(ticket, error.into());
        }
        for arrived in &mut bands {
            lane.drain(self.copying, arrived);
            self.note(&lane, arrived);
        }
        // A lane of a failed run may hold too much memory.
        let failed = self.queue().failed.is_some();
        if !failed {
            self.idle[lane.engine].lanes().push(lane);
        }
    }

    /// Notes that a band is done, and reports progress.
    fn note(&self, lane: &Lane, (band, noted): &UnderWay<'_>) {
        let (done, failed) = {
            let mut queue = self.queue();
            (queue.finish(band), queue.failed.is_some())
        };
        let told = if failed { Ok(()) } else { self.stage.jobs(done, self.pixels) };
        let noted = noted.as_ref().zip(self.clocks).map_or(Ok(()), |(noted, clocks)| {
            clocks.note((lane.engine, lane.number), (band.picture, &band.job.results), noted)
        });
        if let Err(error) = told.and(noted) {
            self.queue().fail(band.ticket, Again::Never(error));
        }
    }

    /// An idle lane of a GPU, or a new one.
    fn lane(&self, number: usize, bytes: u64) -> Result<Busy<'q>> {
        let engine = &self.engines[number];
        let idle = self.idle[number].lanes().pop();
        let mut lane = match idle.filter(|lane| lane.allowed / TOO_LARGE <= bytes.max(64 << 20)) {
            Some(lane) => lane,
            None => Lane::new(engine.gpu().stream()?),
        };
        let mut queue = self.queue();
        queue.lanes[number] += 1;
        (lane.engine, lane.number) = (number, queue.lanes[number] - 1);
        Ok(Busy { lane, bands: Vec::new() })
    }
}

/// The error for a plan's limit that is too low.
fn limit_passed(needed: u64, limit: u64) -> Error {
    let expected = format!(
        "at least {needed} bytes, for the smallest band of this picture; without a limit, all free memory is used"
    );
    Error::Parameter { name: "memory", value: limit.to_string(), expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gpu_has_its_lanes_however_many_feeders_there_are() {
        for (engines, feeders, lanes) in (1..6).flat_map(|engines| {
            (1..12).flat_map(move |feeders| (1..7).map(move |lanes| (engines, feeders, lanes)))
        }) {
            let crew = crew(feeders, engines, lanes);
            for engine in 0..engines {
                let of_it = crew.iter().filter(|feeder| feeder.engines.contains(&engine));
                let (count, all) =
                    of_it.fold((0, 0), |(count, all), feeder| (count + 1, all + feeder.lanes));
                assert_eq!(all, lanes, "{feeders} feeders, {engines} GPUs");
                assert!(count >= 1 && (count == 1 || feeders > engines));
            }
            assert!(crew.len() <= feeders && crew.iter().all(|feeder| feeder.lanes > 0));
        }
    }
}
