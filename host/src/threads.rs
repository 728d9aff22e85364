//! Threads: how many a job gets, and how a job runs on them.
//!
//! [`Effort::threads`] decides the number. It is a pure function of the predicted time of the work,
//! of the bytes the work copies and of the available threads. A small image stays on the calling
//! thread.
//!
//! `run` starts the threads. The caller works too, and each thread that starts wakes half of the
//! threads left to it. The caller waits only for helpers that have started, never for a helper that
//! wakes after the work is done. So a late thread costs the call nothing, and concurrent calls do
//! not wait for each other's threads. Helpers come from rayon's current pool, so
//! `rayon::ThreadPool::install` limits their number.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;

/// The predicted cost of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Effort {
    /// Nanoseconds of arithmetic on one thread.
    pub nanoseconds: f64,
    /// Bytes copied from memory to memory.
    pub bytes: f64,
}

/// Nanoseconds from a thread's wake-up until it works, about, on a halted core of a virtual
/// machine.
const START: f64 = 25_000.0;

/// Nanoseconds that each thread adds to a call, about, for wake-ups, locks and the search for work.
const EACH: f64 = 1_000.0;

/// Bytes that one thread copies in a nanosecond. More threads share the memory bandwidth. Measured
/// on the host of an H200: 6.4 with one thread, 12.6 with 2, 22.5 with 4, 35.4 with 8, 43.2 with
/// 16, 70.4 with 32.
const COPIED: f64 = 6.4;

/// The number of copying threads at which contention halves the speed of each.
const CROWD: f64 = 16.0;

/// The memory's bandwidth, in bytes per nanosecond: the limit for any number of threads.
const MEMORY: f64 = 70.0;

/// Fewer threads are preferred if their predicted time is at most this factor above the shortest.
const ENOUGH: f64 = 1.05;

/// Bytes per nanosecond that `threads` threads copy.
pub(crate) fn copy_rate(threads: usize) -> f64 {
    let threads = threads.max(1) as f64;
    (COPIED * threads / (1.0 + threads / CROWD)).min(MEMORY)
}

/// Nanoseconds that waking `threads` threads, the caller included, adds to a call.
fn woken(threads: usize) -> f64 {
    let count = threads as f64;
    if threads > 1 { START * count.log2() + EACH * count } else { 0.0 }
}

impl Effort {
    /// Arithmetic that takes one thread this many nanoseconds.
    pub fn of_work(nanoseconds: f64) -> Self {
        Self { nanoseconds, bytes: 0.0 }
    }

    /// A copy of `bytes` bytes.
    pub fn of_copy(bytes: usize) -> Self {
        Self { nanoseconds: 0.0, bytes: bytes as f64 }
    }

    /// The predicted nanoseconds on `threads` threads.
    pub fn time(&self, threads: usize) -> f64 {
        self.nanoseconds / threads.max(1) as f64 + self.bytes / copy_rate(threads) + woken(threads)
    }

    /// The number of threads for the job, at most `available`: the fewest within 5 % of the
    /// shortest predicted time.
    pub fn threads(&self, available: usize) -> usize {
        let mut best = self.time(1);
        for threads in 2..=available {
            if woken(threads) >= best {
                break;
            }
            best = best.min(self.time(threads));
        }
        (1..=available).find(|&threads| self.time(threads) <= ENOUGH * best).unwrap_or(1)
    }

    /// As [`Effort::threads`], with the threads of rayon's current pool that no other call uses
    /// now.
    pub fn threads_now(&self) -> usize {
        #[cfg(test)]
        if let Some(threads) = tests::FORCED.get() {
            return threads;
        }
        // Below this much work a second thread cannot pay. The check is cheap for small calls.
        if self.nanoseconds + self.bytes / COPIED <= START { 1 } else { self.threads(available()) }
    }
}

/// Threads in this process that calls of [`run`] hold now. Each call holds all its threads from
/// start to end. Helpers that wake late or have yet to fall asleep are not counted: they have no
/// work, and the next call would get fewer threads.
static BUSY: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether [`BUSY`] counts this thread.
    static COUNTED: Cell<bool> = const { Cell::new(false) };
}

/// The number of threads that a call from this thread may use.
fn available() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    let cores = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from));
    let others = BUSY.load(Ordering::Relaxed).saturating_sub(usize::from(COUNTED.get()));
    free(rayon::current_num_threads(), cores, others)
}

/// Threads of a pool that a call may use while other calls hold `others` threads: as many as there
/// are free cores.
fn free(pool: usize, cores: usize, others: usize) -> usize {
    // A pool may have more threads than there are cores: respect its owner's choice.
    cores.max(pool).saturating_sub(others).clamp(1, pool.max(1))
}

/// Call this in a forked child process, which has none of the parent's busy threads.
pub fn after_fork() {
    BUSY.store(0, Ordering::Relaxed);
}

/// Adds `count` to the busy threads until dropped.
struct Places<'a> {
    busy: &'a AtomicUsize,
    count: usize,
}

impl<'a> Places<'a> {
    fn new(busy: &'a AtomicUsize, count: usize) -> Self {
        busy.fetch_add(count, Ordering::Relaxed);
        Self { busy, count }
    }
}

impl Drop for Places<'_> {
    fn drop(&mut self) {
        // [`after_fork`] may have reset the count.
        let less = |busy: usize| Some(busy.saturating_sub(self.count));
        let _ = self.busy.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

/// Marks this thread as counted until dropped.
struct Counted(bool);

impl Counted {
    fn new() -> Self {
        Self(COUNTED.replace(true))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        COUNTED.set(self.0);
    }
}

/// A bit of [`Crew::helpers`], set once the caller accepts no more helpers.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// A call's work and its helpers.
struct Crew {
    work: ErasedCall,
    /// The number of helpers at work, and the bit [`CLOSED`].
    helpers: AtomicUsize,
    caller: Thread,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// The closure that helpers call. It may be gone once [`Crew::helpers`] equals [`CLOSED`].
struct ErasedCall(*const Call<'static>);

type Call<'a> = dyn Fn() + Sync + 'a;

// SAFETY: the pointer stands for a shared reference to a `Sync` closure. `Crew::help` states when
// the closure is alive.
unsafe impl Send for ErasedCall {}
// SAFETY: likewise.
unsafe impl Sync for ErasedCall {}

/// Runs `work` on the calling thread, and concurrently on up to `threads - 1` others, each of which
/// calls it once. Returns when all calls that started have ended; other threads do not start any
/// more. A panic in any of them resumes in the caller.
///
/// `work` must not wait for another thread to start.
pub(crate) fn run(threads: usize, work: &(dyn Fn() + Sync)) {
    run_counted(&BUSY, threads, work);
}

fn run_counted(busy: &AtomicUsize, threads: usize, work: &(dyn Fn() + Sync)) {
    // The caller of a nested call already counts its thread.
    let _places = Places::new(busy, threads.max(1) - usize::from(COUNTED.get()));
    let _counted = Counted::new();
    if threads <= 1 {
        return work();
    }
    // SAFETY: only the lifetime changes. `Closing` is dropped before this function ends, and
    // afterwards nobody uses the pointer.
    let erased = unsafe { std::mem::transmute::<*const Call<'_>, *const Call<'static>>(work) };
    let crew = Arc::new(Crew {
        work: ErasedCall(erased),
        helpers: AtomicUsize::new(0),
        caller: std::thread::current(),
        panic: Mutex::new(None),
    });
    let closing = Closing(&crew);
    Crew::wake(&crew, threads);
    work();
    drop(closing);
    if let Some(panic) = crew.panic.lock().unwrap_or_else(PoisonError::into_inner).take() {
        resume_unwind(panic);
    }
}

impl Crew {
    /// Makes the pool wake `threads - 1` helpers; each wakes half of those that are left.
    fn wake(crew: &Arc<Self>, mut threads: usize) {
        while threads > 1 {
            let (half, crew) = (threads / 2, crew.clone());
            rayon::spawn(move || Self::help(&crew, half));
            threads -= half;
        }
    }

    /// A helper: wakes others, so that `threads` helpers start including this one, then works.
    fn help(crew: &Arc<Self>, threads: usize) {
        let enter = |helpers: usize| (helpers & CLOSED == 0).then_some(helpers + 1);
        if crew.helpers.fetch_update(Ordering::Acquire, Ordering::Relaxed, enter).is_err() {
            return;
        }
        Self::wake(crew, threads);
        let counted = Counted::new();
        // SAFETY: this helper entered before the crew was closed, so `Closing` waits for it and the
        // closure is alive.
        let work = unsafe { &*crew.work.0 };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
            crew.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
        drop(counted);
        if crew.helpers.fetch_sub(1, Ordering::Release) == CLOSED + 1 {
            crew.caller.unpark();
        }
    }
}

/// On drop, accepts no more helpers and waits for those at work.
struct Closing<'a>(&'a Crew);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        /// Spins before the caller sleeps: some microseconds. The last jobs end at about the same
        /// time, and a thread takes longer than that to wake up.
        const LOOKS: u32 = 500;
        let mut left = self.0.helpers.fetch_or(CLOSED, Ordering::AcqRel) | CLOSED;
        let mut looks = 0;
        while left != CLOSED {
            if looks < LOOKS {
                std::hint::spin_loop();
            } else {
                std::thread::park();
            }
            looks += 1;
            left = self.0.helpers.load(Ordering::Acquire);
        }
    }
}

/// Runs every job on up to `threads` threads, the caller included. Each thread takes the next job
/// from the queue. `T` is the thread's own state.
pub fn for_each<T: Default, J: Send>(
    threads: usize,
    jobs: impl Iterator<Item = J> + Send,
    work: impl Fn(&mut T, J) + Sync,
) {
    let jobs = Mutex::new(jobs.fuse());
    let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
    run(threads, &|| {
        let mut memory = T::default();
        while let Some(job) = next() {
            work(&mut memory, job);
        }
    });
}

/// As [`for_each`], for jobs that may fail. After an error no further job starts.
///
/// # Errors
/// The error of the failed job with the lowest number, counted from 0. The jobs before it are done.
pub(crate) fn try_for_each<J: Send, E: Send>(
    threads: usize,
    jobs: impl Iterator<Item = J> + Send,
    work: impl Fn(J) -> Result<(), E> + Sync,
) -> Result<(), (usize, E)> {
    let failed = Mutex::new(None::<(usize, E)>);
    let goes_on = || failed.lock().unwrap_or_else(PoisonError::into_inner).is_none();
    let jobs = jobs.enumerate().take_while(|_| goes_on());
    for_each(threads, jobs, |(): &mut (), (number, job)| {
        if let Err(error) = work(job) {
            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
            if failed.as_ref().is_none_or(|(other, _)| number < *other) {
                *failed = Some((number, error));
            }
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// The number of threads to give whole jobs to, where each job could also use several: 1 if the
/// jobs go faster one by one, each on all of its threads.
pub(crate) fn across(efforts: impl Iterator<Item = Effort>) -> usize {
    across_with(efforts, Effort::threads_now)
}

fn across_with(efforts: impl Iterator<Item = Effort>, threads: impl Fn(&Effort) -> usize) -> usize {
    let (mut count, mut all, mut inner) = (0, Effort::default(), 1);
    for effort in efforts {
        count += 1;
        all.nanoseconds += effort.nanoseconds;
        all.bytes += effort.bytes;
        inner = inner.max(threads(&effort));
    }
    let across = if count > 1 { threads(&all).min(count) } else { 1 };
    if across > inner { across } else { 1 }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;

    thread_local! {
        /// Overrides [`Effort::threads_now`] on this thread, for tests of small images.
        pub(crate) static FORCED: Cell<Option<usize>> = const { Cell::new(None) };
    }

    /// Runs a test's call on exactly `threads` threads.
    pub(crate) fn forced<R: Send>(threads: usize, call: impl FnOnce() -> R + Send) -> R {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            FORCED.set(Some(threads));
            call()
        })
    }

    /// The number of threads, of 128, for jobs of various times on one thread and bytes to copy.
    #[test]
    fn jobs_get_as_many_threads_as_they_have_work_for() {
        for (what, load, least, most) in [
            ("nothing", Effort::default(), 1, 1),
            ("50 us of work", Effort::of_work(50e3), 1, 1),
            ("80 us", Effort::of_work(80e3), 2, 2),
            ("0.25 ms", Effort::of_work(250e3), 2, 6),
            ("5 ms", Effort::of_work(5e6), 16, 48),
            ("60 ms, and what no cache holds", Effort { nanoseconds: 60e6, bytes: 72e6 }, 64, 128),
            ("a second of work", Effort::of_work(1e9), 100, 128),
            ("a copy of 64 KB", Effort::of_copy(64 << 10), 1, 1),
            ("a copy of 512 KB", Effort::of_copy(512 << 10), 1, 3),
            ("a copy of a band of 8 MB", Effort::of_copy(8 << 20), 6, 16),
            ("a copy of 24 MP", Effort::of_copy(72_000_000), 16, 35),
            ("a copy of 4 GB", Effort::of_copy(4 << 30), 28, 35),
        ] {
            let threads = load.threads(128);
            assert!((least..=most).contains(&threads), "{what}: {threads} of 128 threads");
        }
    }

    /// More available threads never make the predicted time more than 5 % longer. A longer job
    /// never gets fewer threads.
    #[test]
    fn more_threads_are_never_slower() {
        let sizes = || (0..60).map(|step| 1e3 * 1.3f64.powi(step));
        for load in sizes().flat_map(|size| {
            let parts = [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, 20.0)];
            parts.map(|(work, bytes)| Effort { nanoseconds: work * size, bytes: bytes * size })
        }) {
            let mut before = load.time(1);
            for available in [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256] {
                let threads = load.threads(available);
                let time = load.time(threads);
                assert!((1..=available).contains(&threads));
                assert!(
                    time <= ENOUGH * before,
                    "{load:?}: {time} ns with {available}, {before} with fewer"
                );
                before = before.min(time);
            }
            let longer = Effort { nanoseconds: 1.3 * load.nanoseconds, bytes: 1.3 * load.bytes };
            assert!(longer.threads(128) >= load.threads(128), "{load:?}");
        }
    }

    /// Short jobs go side by side, and long ones one after the other, each on all threads.
    #[test]
    fn short_jobs_go_side_by_side() {
        for (what, nanoseconds, count, least, most) in [
            ("one short job", 20e3, 1, 1, 1),
            ("many short jobs", 20e3, 1000, 2, 8),
            ("two long jobs", 60e6, 2, 1, 1),
            ("no job", 0.0, 0, 1, 1),
        ] {
            let efforts = std::iter::repeat_n(Effort::of_work(nanoseconds), count);
            let found = across_with(efforts, |effort| effort.threads(8));
            assert!((least..=most).contains(&found), "{what}: {found}");
        }
    }

    #[test]
    fn the_first_failure_is_returned() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
        for threads in [1, 4] {
            let done = Mutex::new(HashSet::new());
            let result = pool.install(|| {
                try_for_each(threads, 0..1000, |job| {
                    done.lock().unwrap().insert(job);
                    if job % 100 == 37 { Err(job * 10) } else { Ok(()) }
                })
            });
            assert_eq!(result, Err((37, 370)));
            let done = done.into_inner().unwrap();
            assert!((0..37).all(|job| done.contains(&job)) && done.len() < 100, "{done:?}");
            assert_eq!(try_for_each(threads, 0..9, |_| Ok::<(), ()>(())), Ok(()));
        }
    }

    /// Concurrent callers share the cores; a pool of its own gets its part of them.
    #[test]
    fn callers_share_the_cores() {
        for (pool, cores, others, expected) in [
            (16, 16, 0, 16),
            (16, 16, 12, 4),
            (16, 16, 15, 1),
            (16, 16, 40, 1),
            (4, 16, 12, 4),
            (4, 16, 13, 3),
            (64, 2, 0, 64),
            (1, 16, 0, 1),
        ] {
            let found = free(pool, cores, others);
            assert_eq!(found, expected, "a pool of {pool}, {cores} cores, {others} busy");
        }
    }

    /// The next call gets all threads, even if helpers of the last call have not started or are not
    /// asleep again.
    #[test]
    fn calls_in_a_row_have_all_threads() {
        static MINE: AtomicUsize = AtomicUsize::new(0);
        for pool in [1, 2, 4, 16] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(pool).build().unwrap();
            pool.install(|| {
                for call in 0..1000 {
                    assert_eq!(MINE.load(Ordering::Relaxed), 0, "before call {call}");
                    run_counted(&MINE, 4, &|| {
                        assert_eq!(MINE.load(Ordering::Relaxed), 4);
                        // This thread is already counted.
                        run_counted(&MINE, 1, &|| assert_eq!(MINE.load(Ordering::Relaxed), 4));
                    });
                }
            });
        }
    }

    #[test]
    fn every_job_is_done_once_by_at_most_so_many_threads() {
        for (pool, threads) in [(1, 1), (2, 1), (3, 2), (8, 3), (64, 5), (64, 64), (2, 16)] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(pool).build().unwrap();
            for jobs in [0, 1, 2, 3, 100, 5000] {
                let (seen, who) = (Mutex::new(vec![0; jobs]), Mutex::new(HashSet::new()));
                pool.install(|| {
                    for_each(threads, 0..jobs, |(): &mut (), job| {
                        seen.lock().unwrap()[job] += 1;
                        who.lock().unwrap().insert(std::thread::current().id());
                    });
                });
                assert!(seen.into_inner().unwrap().iter().all(|&count| count == 1), "{jobs} jobs");
                assert!(who.into_inner().unwrap().len() <= threads);
            }
        }
    }

    /// The caller does not wait for helpers that could not start.
    #[test]
    fn a_pool_that_is_busy_delays_nobody() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let (held, blocked) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        pool.install(|| {
            let other = (held.clone(), blocked.clone());
            // The other thread of the pool is occupied until the test ends.
            rayon::spawn(move || {
                other.1.fetch_add(1, Ordering::Relaxed);
                while other.0.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            while blocked.load(Ordering::Relaxed) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let done = AtomicUsize::new(0);
            for_each(2, 0..100, |(): &mut (), _| {
                done.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(done.into_inner(), 100);
        });
        held.store(false, Ordering::Relaxed);
    }

    #[test]
    fn a_helpers_panic_is_the_callers() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
        for bad in [0, 500, 999] {
            let call = || {
                pool.install(|| {
                    for_each(4, 0..1000, |(): &mut (), job| {
                        std::thread::sleep(Duration::from_micros(20));
                        assert!(job != bad, "job {bad}");
                    });
                });
            };
            let panic = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
            assert_eq!(
                panic.downcast_ref::<String>().map(String::as_str),
                Some(&*format!("job {bad}"))
            );
        }
    }

    /// Many callers of one pool, and nested callers.
    #[test]
    fn callers_beside_and_within_each_other() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let done = AtomicUsize::new(0);
        let call = || {
            for_each(3, 0..20, |(): &mut (), _| {
                for_each(2, 0..20, |(): &mut (), _| {
                    done.fetch_add(1, Ordering::Relaxed);
                });
            });
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..10).for_each(|_| pool.install(call)));
            }
        });
        assert_eq!(done.into_inner(), 8 * 10 * 400);
    }
}
