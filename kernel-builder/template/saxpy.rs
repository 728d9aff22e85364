//! A kernel in ten lines.

use crate::device::{block_width, block_x, fma, kernel, load, reload, store, thread_x};

kernel! {
    /// `y = a * x + y`, for `n` numbers, one of them in each thread.
    fn saxpy(n: u32, a: f32, x: *const f32, y: *mut f32) {
        let i = (block_x() * block_width() + thread_x()) as usize;
        if i < n as usize {
            store(y, i, fma(a, load(x, i), reload(y, i)));
        }
    }
}
