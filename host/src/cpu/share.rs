//! Jobs shared among threads.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::progress::Stage;
use crate::{Result, threads};

/// Bytes in a page of memory.
pub(super) const PAGE: usize = 4096;

/// Runs every job, on as many threads as the stage has. Each takes the next free job. `T` is a
/// thread's memory. The first error ends the work, and so does whoever watches it.
pub(super) fn share<T: Default, J: Send>(
    stage: &Stage<'_>,
    jobs: impl ExactSizeIterator<Item = J> + Send,
    work: impl Fn(&mut T, J) -> Result<()> + Sync,
) -> Result<()> {
    let all = jobs.len();
    let done = AtomicUsize::new(0);
    let failed = OnceLock::new();
    threads::for_each(stage.threads().min(all), jobs, |memory: &mut T, job| {
        if failed.get().is_some() {
            return;
        }
        let outcome = work(memory, job);
        if let Err(error) =
            outcome.and_then(|()| stage.jobs(done.fetch_add(1, Ordering::Relaxed) + 1, all))
        {
            // Another thread's error may already be stored.
            let _ = failed.set(error);
        }
    });
    failed.into_inner().map_or(Ok(()), Err)
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
        let once = |threads: usize, jobs: usize| {
            let counts: Vec<_> = (0..jobs).map(|_| AtomicU32::new(0)).collect();
            let work = |memory: &mut usize, job: usize| {
                *memory += 1;
                counts[job].fetch_add(1, Ordering::Relaxed);
                Ok(())
            };
            share(&Report::default().call(0).stage(0, 0).on(threads), 0..jobs, work).unwrap();
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{jobs} jobs");
        };
        for threads in 1..=5 {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| [0, 1, 2, 3, 100].into_iter().for_each(|jobs| once(threads, jobs)));
            [0, 1, 2, 3, 100].into_iter().for_each(|jobs| once(threads, jobs));
        }
    }

    #[test]
    fn an_error_ends_the_work() {
        let done = AtomicU32::new(0);
        let report = Report::default();
        let result =
            share(&report.call(0).stage(0, 0).on(4), 0..1_000_000, |_: &mut (), job: usize| {
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
        let result =
            share(&call.stage(0, 3_000_000).on(4), 0..1_000_000, |_: &mut (), _job: usize| {
                done.fetch_add(1, Ordering::Relaxed);
                Ok(())
            });
        assert!(matches!(result, Err(Error::Cancelled { done: 30.., total: 3_000_000 })));
        assert!(done.load(Ordering::Relaxed) < 1_000_000);
    }
}
