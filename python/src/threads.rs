//! Threads of forked processes. Threads of rayon's own pool do not survive a fork: work for them
//! would wait for ever.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Whether this process is a fork of one in which the module was imported.
static FORKED: AtomicBool = AtomicBool::new(false);

/// The threads of a forked process.
static POOL: Mutex<Option<Arc<ThreadPool>>> = Mutex::new(None);

/// Runs `work`, which may use rayon, without Python's lock.
pub(crate) fn without_lock<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send,
) -> PyResult<T> {
    py.detach(|| {
        if !FORKED.load(Ordering::Relaxed) {
            return Ok(work());
        }
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        let pool = match &*pool {
            Some(pool) => pool.clone(),
            None => {
                let new = ThreadPoolBuilder::new().build();
                let new = new.map_err(|error| {
                    PyRuntimeError::new_err(format!("starting threads: {error}"))
                })?;
                pool.insert(Arc::new(new)).clone()
            }
        };
        Ok(pool.install(work))
    })
}

/// Call this in a forked process. It starts its own threads when it needs some.
#[pyfunction]
pub(crate) fn after_fork() {
    apron::threads::after_fork();
    if FORKED.swap(true, Ordering::Relaxed)
        && let Ok(mut pool) = POOL.try_lock()
    {
        // The parent was a fork too. The threads of its pool are not in this process, so dropping
        // the pool would wait for ever.
        std::mem::forget(pool.take());
    }
}
