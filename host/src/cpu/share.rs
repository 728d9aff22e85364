//! Jobs shared among threads.

use std::sync::{Mutex, OnceLock, PoisonError};

use crate::Result;

/// Runs every job, on the calling thread and on threads of rayon's current pool, together as many as the pool has. Each thread takes
/// the next free job. `T` is a thread's memory. The first error ends the work.
///
/// The caller does not wait while the pool works: one thread fewer has to be woken, and a virtual machine's Linux may wake
/// two of them on one core, and take many milliseconds to separate them (see `docs/cpu.md`).
pub(super) fn share<T: Default, J: Send>(
    jobs: impl ExactSizeIterator<Item = J> + Send,
    work: impl Fn(&mut T, J) -> Result<()> + Sync,
) -> Result<()> {
    let threads = rayon::current_num_threads().min(jobs.len());
    let (jobs, failed) = (Mutex::new(jobs), OnceLock::new());
    let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run = || {
        let mut memory = T::default();
        while let (None, Some(job)) = (failed.get(), next()) {
            if let Err(error) = work(&mut memory, job) {
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
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::Error;

    #[test]
    fn every_job_is_done_once_wherever_it_is_called_from() {
        let once = |jobs: usize| {
            let counts: Vec<_> = (0..jobs).map(|_| AtomicU32::new(0)).collect();
            let work = |memory: &mut usize, job: usize| {
                *memory += 1;
                counts[job].fetch_add(1, Ordering::Relaxed);
                Ok(())
            };
            share(0..jobs, work).unwrap();
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
        let result = share(0..1_000_000, |_: &mut (), job: usize| {
            done.fetch_add(1, Ordering::Relaxed);
            if job == 10 { Err(Error::HostMemory { bytes: job }) } else { Ok(()) }
        });
        assert!(matches!(result, Err(Error::HostMemory { bytes: 10 })));
        assert!(done.load(Ordering::Relaxed) < 1_000_000);
    }
}
