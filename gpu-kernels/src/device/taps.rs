//! Sources of taps: parameters or memory.

use super::{Parameter, load};

/// A source that a kernel reads its taps from.
pub(crate) trait TapSource: Copy {
    /// Tap `index`, counted row by row.
    ///
    /// # Safety
    /// `index` is below the number of taps.
    unsafe fn tap(self, index: usize) -> f32;

    /// The taps from number `count` on.
    fn skip(self, count: usize) -> Self;
}

/// Taps in global memory.
#[derive(Clone, Copy)]
pub(crate) struct Buffer(pub(crate) *const f32);

impl TapSource for Buffer {
    #[inline(always)]
    unsafe fn tap(self, index: usize) -> f32 {
        // SAFETY: the caller keeps `index` in range; nothing writes the buffer while a kernel runs.
        unsafe { load(self.0, index) }
    }

    #[inline(always)]
    fn skip(self, count: usize) -> Self {
        Self(self.0.wrapping_add(count))
    }
}

impl TapSource for Parameter {
    #[inline(always)]
    unsafe fn tap(self, index: usize) -> f32 {
        // SAFETY: as the caller promised.
        unsafe { self.load(index) }
    }

    #[inline(always)]
    fn skip(self, count: usize) -> Self {
        self.advanced(count)
    }
}

/// K taps in registers. The compiler must know each index, or they go to local memory.
#[derive(Clone, Copy)]
pub(crate) struct Held<const K: usize>(pub(crate) [f32; K]);

impl<const K: usize> TapSource for Held<K> {
    #[inline(always)]
    unsafe fn tap(self, index: usize) -> f32 {
        self.0[index]
    }

    #[inline(always)]
    fn skip(self, count: usize) -> Self {
        Self(core::array::from_fn(|index| self.0[(index + count) % K]))
    }
}
