//! The first GPU for plans that choose between it and the CPU: whether it is ready, opening it
//! beside other work, and the speed of its link.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::device::Gpu;
use super::link::LinkRates;
use crate::plan::auto::{Link, MEASURING, OPENING, Readiness};
use crate::{Error, Result};

/// The GPU that such plans use.
pub(crate) const ORDINAL: u32 = 0;

/// The longest that the end of a process waits for a GPU that is being opened.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of the copies by which the link is measured, and how many of them are timed at once.
const COPY: usize = 4 << 20;
const COPIES: usize = 2;

/// The speed of the link, once the GPU is open and it was measured.
static LINK: OnceLock<Link> = OnceLock::new();

/// Why the GPU cannot be used by such plans.
static FAILURE: OnceLock<Error> = OnceLock::new();

/// The process that has opened it: in one that was forked off, the driver refuses every call.
static OWNER: AtomicU32 = AtomicU32::new(0);

static STATE: Mutex<State> = Mutex::new(State { lost: 0.0, under_way: None });

/// Signalled when a thread no longer opens the GPU.
static ENDED: Condvar = Condvar::new();

struct State {
    /// Seconds that calls have lost because the GPU was not open.
    lost: f64,
    /// The process of which a thread opens the GPU; one that was forked off has no such thread.
    under_way: Option<u32>,
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the GPU can be used, without a call of the driver.
pub(crate) fn readiness() -> Readiness {
    if FAILURE.get().is_some() {
        return Readiness::Never;
    }
    if LINK.get().is_some() {
        let here = OWNER.load(Ordering::Relaxed) == std::process::id();
        return if here { Readiness::Ready } else { Readiness::Never };
    }
    let state = state();
    match state.under_way {
        Some(_) => Readiness::UnderWay,
        None => Readiness::Closed {
            cost: if Gpu::is_open(ORDINAL) { MEASURING } else { OPENING },
            lost: state.lost,
        },
    }
}

/// The speed of the link, if it was measured.
pub(crate) fn link() -> Option<Link> {
    LINK.get().copied()
}

/// Why plans that may choose no longer choose the GPU.
pub(crate) fn failure() -> Option<&'static Error> {
    FAILURE.get()
}

/// From now on, plans that may choose use the CPU. The first reason stays.
pub(crate) fn give_up(reason: Error) {
    // Another thread's reason may have come first.
    let _ = FAILURE.set(reason);
}

/// Notes that a call has lost time because the GPU was not open.
pub(crate) fn lose(seconds: f64) {
    state().lost += seconds;
}

/// Opens the GPU, or waits for the thread that does, and measures its link.
///
/// # Errors
/// Those of [`Gpu::open`].
pub(crate) fn open() -> Result<Gpu> {
    let gpu = Gpu::open(ORDINAL)?;
    LINK.get_or_init(|| {
        OWNER.store(std::process::id(), Ordering::Relaxed);
        measured(&gpu).unwrap_or(Link::ASSUMED)
    });
    Ok(gpu)
}

thread_local! {
    /// Whether this thread is the one that opens the GPU.
    static OPENS: Cell<bool> = const { Cell::new(false) };
}

/// Opens the GPU in a thread of its own, unless one does so already.
pub(crate) fn open_in_background() {
    let mut state = state();
    if state.under_way.is_some() || LINK.get().is_some() || FAILURE.get().is_some() {
        return;
    }
    state.under_way = Some(std::process::id());
    drop(state);
    at_exit();
    let thread = std::thread::Builder::new().name("apron-opens-gpu".into()).spawn(|| {
        let _end = End;
        OPENS.set(true);
        // What the driver registers when it starts would come before what is registered already.
        let outcome = Gpu::count().map(|_| at_exit()).and_then(|()| open());
        if let Err(error) = outcome {
            give_up(error);
        }
    });
    if thread.is_err() {
        // No thread to be had: as much has to be lost again before the next attempt.
        drop(End);
        self::state().lost = 0.0;
    }
}

/// Notes that no thread opens the GPU any more, whatever ended it.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        state().under_way = None;
        ENDED.notify_all();
    }
}

/// Has the end of the process wait for a thread that opens the GPU: a driver that takes itself down
/// under its own calls may crash. Functions that are registered last are called first, so this one
/// is registered again when the driver has started.
fn at_exit() {
    unsafe extern "C" {
        fn atexit(function: extern "C" fn()) -> i32;
    }
    // SAFETY: C's function, which every platform with a driver has; what is registered does not
    // unwind, and neither uses nor needs anything that is gone by then. If there is no room for it,
    // the process ends as it would without.
    unsafe { atexit(wait_for_end) };
}

extern "C" fn wait_for_end() {
    // The driver itself may end the process.
    if OPENS.get() {
        return;
    }
    let end = Instant::now() + PATIENCE;
    let mut state = state();
    while state.under_way == Some(std::process::id()) {
        let Some(left) = end.checked_duration_since(Instant::now()) else { return };
        state = ENDED.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// The link's speed with pinned memory: copies up, copies down, and both at once.
fn measured(gpu: &Gpu) -> Result<Link> {
    let LinkRates { up, down, both } = Gpu::rates(std::slice::from_ref(gpu), COPIES, COPY, 1)?;
    // Of a link so slow or so fast something else was measured.
    let plausible = |speed: f64| speed.clamp(1e8, 1e12);
    let only_pinned = gpu.info().integrated;
    Ok(Link { up: plausible(up), down: plausible(down), both: plausible(both), only_pinned })
}
