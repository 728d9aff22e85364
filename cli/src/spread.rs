//! How values are spread over threads.

use apron::threads::Effort;

/// Values that a thread converts at a time, and nanoseconds per value.
const CHUNK: usize = 1 << 16;
const VALUE: f64 = 2.0;

/// [`CHUNK`], rounded down to whole pixels.
pub(crate) fn chunk(channels: usize) -> usize {
    CHUNK - CHUNK % channels
}

/// Threads to convert this number of values.
pub(crate) fn threads_for(values: usize) -> usize {
    Effort::of_work(VALUE * values as f64).threads_now().min(values.div_ceil(CHUNK))
}
