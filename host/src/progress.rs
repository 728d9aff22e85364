//! How far a call has come, and the way to end it early.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Error, Result};

/// How far a call has come: see [`crate::PlanBuilder::progress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Pixels whose results are there.
    pub done: u64,
    /// Pixels of all pictures of the call.
    pub total: u64,
}

type Function = dyn Fn(Progress) -> ControlFlow<()> + Send + Sync;

/// What a plan's user wants to be told.
#[derive(Clone, Default)]
pub(crate) struct Report(Option<Arc<Function>>);

impl Report {
    pub(crate) fn new(
        report: impl Fn(Progress) -> ControlFlow<()> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(report)))
    }

    /// A call about so many pixels.
    pub(crate) fn call(&self, total: u64) -> Call<'_> {
        Call { report: self.0.as_deref(), total, done: Mutex::new(0) }
    }
}

impl std::fmt::Debug for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Report(..)" } else { "None" })
    }
}

/// A call that is under way.
pub(crate) struct Call<'a> {
    report: Option<&'a Function>,
    total: u64,
    done: Mutex<u64>,
}

impl Call<'_> {
    /// Tells that so many pixels are done, if that is more than was told before.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if the call shall end.
    pub(crate) fn reach(&self, pixels: u64) -> Result<()> {
        let Some(report) = self.report else { return Ok(()) };
        // The lock is kept, so that threads report one after the other, and numbers never fall. A
        // report that panicked leaves a number that is right.
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

    /// The part of the call that is about pixels `from` to `from + pixels`.
    pub(crate) fn stage(&self, from: u64, pixels: u64) -> Stage<'_> {
        Stage { call: self, from, pixels, threads: 1 }
    }
}

/// A part of a call, and how many threads run it.
pub(crate) struct Stage<'a> {
    call: &'a Call<'a>,
    from: u64,
    pixels: u64,
    threads: usize,
}

impl Stage<'_> {
    /// The same on so many threads; without this, it is one.
    pub(crate) fn on(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    /// How many threads may run it, the calling one among them.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// For how many threads the work is cut. Where somebody watches, for some at least: a call can
    /// end between two jobs.
    pub(crate) fn cut_for(&self) -> usize {
        if self.is_watched() { self.threads.max(4) } else { self.threads }
    }

    /// Whether anybody wants to know.
    pub(crate) fn is_watched(&self) -> bool {
        self.call.report.is_some()
    }

    /// Tells that so many jobs of the part are done, which are about as large as each other, or
    /// pixels.
    ///
    /// # Errors
    /// As for [`Call::reach`].
    pub(crate) fn jobs(&self, done: usize, all: usize) -> Result<()> {
        let pixels = u128::from(self.pixels) * done as u128 / all.max(1) as u128;
        self.call.reach(self.from + pixels as u64)
    }
}
