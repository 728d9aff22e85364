//! The progress of a call, and early cancellation.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Error, Result};

/// The progress of a call: see [`crate::PlanBuilder::progress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Pixels with finished results.
    pub done: u64,
    /// Pixels of all images of the call.
    pub total: u64,
}

type Function = dyn Fn(Progress) -> ControlFlow<()> + Send + Sync;

/// The progress function of a plan, if any.
#[derive(Clone, Default)]
pub(crate) struct Report(Option<Arc<Function>>);

impl Report {
    pub(crate) fn new(
        report: impl Fn(Progress) -> ControlFlow<()> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(report)))
    }

    /// Starts the progress of a call over `total` pixels.
    pub(crate) fn call(&self, total: u64) -> Call<'_> {
        Call { report: self.0.as_deref(), total, done: Mutex::new(0) }
    }
}

impl std::fmt::Debug for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Report(..)" } else { "None" })
    }
}

/// The progress of a running call.
pub(crate) struct Call<'a> {
    report: Option<&'a Function>,
    total: u64,
    done: Mutex<u64>,
}

impl Call<'_> {
    /// Reports that `pixels` pixels are done, unless at least as many were reported already.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if the progress function ends the call.
    pub(crate) fn reach(&self, pixels: u64) -> Result<()> {
        let Some(report) = self.report else { return Ok(()) };
        // Hold the lock during the report, so that reports come one at a time and numbers never
        // fall. If a report panics, the stored number is still valid.
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if pixels <= *done {
            return Ok(());
        }
        *done = pixels;
        match report(Progress { done: pixels, total: self.total }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Cancelled { done: pixels, total: self.total }),
        }
    }

    /// The part of the call that covers pixels `from` to `from + pixels`.
    pub(crate) fn stage(&self, from: u64, pixels: u64) -> Stage<'_> {
        Stage { call: self, from, pixels, threads: 1 }
    }
}

/// A part of a call, and the number of threads that run it.
pub(crate) struct Stage<'a> {
    call: &'a Call<'a>,
    from: u64,
    pixels: u64,
    threads: usize,
}

impl Stage<'_> {
    /// The same part, run by `threads` threads; the default is 1.
    pub(crate) fn on(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    /// The number of threads that may run this part, the caller included.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// The number of threads to divide the work for. At least 4 with a progress function, because a
    /// call can end only between two jobs.
    pub(crate) fn cut_for(&self) -> usize {
        if self.is_watched() { self.threads.max(4) } else { self.threads }
    }

    /// Whether the plan has a progress function.
    pub(crate) fn is_watched(&self) -> bool {
        self.call.report.is_some()
    }

    /// Reports that `done` of `all` jobs of this part are done. Jobs are about equally large, or
    /// single pixels.
    ///
    /// # Errors
    /// As for [`Call::reach`].
    pub(crate) fn jobs(&self, done: usize, all: usize) -> Result<()> {
        let pixels = u128::from(self.pixels) * done as u128 / all.max(1) as u128;
        self.call.reach(self.from + pixels as u64)
    }
}
