//! Jobs shared among threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::Result;
use crate::progress::Stage;

/// Runs every job, on the calling thread and on threads of rayon's current pool, together as many as the pool has. Each thread takes
/// the next free job. `T` is a thread's memory. The first error ends the work, and so does whoever watches it.
///
/// The caller does not wait while the pool works: one thread fewer has to be woken, and a virtual machine's Linux may wake
/// two of them on one core, and take many milliseconds to separate them (see `docs/cpu.md`).
pub(super) fn share<T: Default, J: Send>(
    stage: &Stage<'_>,
    jobs: impl ExactSizeIterator<Item = J> + Send,
    work: impl Fn(&mut T, J) -> Result<()> + Sync,
) -> Result<()> {
    let all = jobs.len();
    let threads = rayon::current_num_threads().min(all);
    let done = AtomicUsize::new(0);
    let (jobs, failed) = (Mutex::new(jobs), OnceLock::new());
    let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run = || {
        let mut memory = T::default();
        while let (None, Some(job)) = (failed.get(), next()) {
            let outcome = work(&mut memory, job);
            if let Err(error) = outcome.and_then(|()| stage.jobs(done.fetch_add(1, Ordering::Relaxed) + 1, all)) {
                // Another thread's error may have come first.
                let _ = failed.set(error);
            }
        }
    };
    rayon::in_place_scope(|scope| spread(scope, threads, &run));
    failed.into_inner().map_or(Ok(()), Err)
}

/// Runs the same function on so many threads; each thread wakes half of the remaining ones.
fn spread<'a>(scope: &rayon::Scope<'a>, mut threads: usize, run: &'a (impl Fn() + Sync)) {
    while threads > 1 {
        let half = threads / 2;
        scope.spawn(move |scope| spread(scope, half, run));
        threads -= half;
    }
    run();
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::Error;
    use crate::progress::Report;

    #[test]
    fn every_job_is_done_once_wherever_it_is_called_from() {
        let once = |jobs: usize| {
            let counts: Vec<_> = (0..jobs).map(|_| AtomicU32::new(0)).collect();
            let work = |memory: &mut usize, job: usize| {
                *memory += 1;
                counts[job].fetch_add(1, Ordering::Relaxed);
                Ok(())
            };
            share(&Report::default().call(0).stage(0, 0), 0..jobs, work).unwrap();
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{jobs} jobs");
        };
        for threads in 1..=5 {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| [0, 1, 2, 3, 100].into_iter().for_each(once));
        }
        [0, 1, 2, 3, 100].into_iter().for_each(once);
    }

    #[test]
    fn an_error_ends_the_work() {
        let done = AtomicU32::new(0);
        let report = Report::default();
        let result = share(&report.call(0).stage(0, 0), 0..1_000_000, |_: &mut (), job: usize| {
            done.fetch_add(1, Ordering::Relaxed);
            if job == 10 { Err(Error::HostMemory { bytes: job }) } else { Ok(()) }
        });
        assert!(matches!(result, Err(Error::HostMemory { bytes: 10 })));
        assert!(done.load(Ordering::Relaxed) < 1_000_000);
    }

    #[test]
    fn whoever_watches_can_end_the_work() {
        let report = Report::new(|progress| {
            assert_eq!(progress.total, 3_000_000);
            if progress.done >= 30 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let done = AtomicU32::new(0);
        let call = report.call(3_000_000);
        let result = share(&call.stage(0, 3_000_000), 0..1_000_000, |_: &mut (), _job: usize| {
            done.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        assert!(matches!(result, Err(Error::Cancelled { done: 30.., total: 3_000_000 })));
        assert!(done.load(Ordering::Relaxed) < 1_000_000);
    }
}
