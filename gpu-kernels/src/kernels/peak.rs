//! Measures the peak rate of multiply-adds, the limit for a kernel's arithmetic.
//!
//! Thread mapping: any grid and block; every thread runs [`SUMS`] independent sums through `steps`
//! multiply-adds each, which hides their latency.

use crate::device::*;

/// Independent sums of a thread.
pub const SUMS: usize = 16;

kernel! {
    /// Stores to `out` only for a total that never occurs, so that the compiler cannot drop the
    /// sums.
    fn fma_peak(out: *mut f32, steps: i32, factor: f32, term: f32) {
        let mut sums = [0.0; SUMS];
        let mut i = 0;
        while i < SUMS {
            sums[i] = i as f32;
            i += 1;
        }
        let mut step = 0;
        while step < steps {
            let mut i = 0;
            while i < SUMS {
                sums[i] = fma(sums[i], factor, term);
                i += 1;
            }
            step += 1;
        }
        let mut total = 0.0;
        let mut i = 0;
        while i < SUMS {
            total += sums[i];
            i += 1;
        }
        if total == -1.0 {
            store(out, 0, total);
        }
    }
}
