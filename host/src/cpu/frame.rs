//! What a call of the CPU engine goes over: a filter's taps, an image, a window and the
//! destination.

use std::marker::PhantomData;
use std::ops::Range;

use super::light::Light;
use super::masked::weigh::Weigh;
use crate::image::{ImageView, ImageViewMut, Pixel};
use crate::simd::Isa;
use crate::whole::row::WholeRow;
use crate::window::Window;

/// The least length of a strip's lines, in bytes.
pub(super) const STRIP: usize = 2048;

/// A filter as the engine computes it.
#[derive(Clone, Copy)]
pub(super) struct Passes<'a> {
    /// A separable filter's row of taps, for the first pass.
    pub(super) across: Option<&'a [f32]>,
    /// The same in whole numbers, for bytes in f32, where its order is free.
    pub(super) whole: Option<&'a WholeRow>,
    /// What is subtracted from pixels that have no row pass.
    pub(super) middle: f32,
    /// What sums lack for either.
    pub(super) lacks: f64,
    /// The taps of the last pass, row by row: all taps, or a separable filter's column.
    pub(super) taps: &'a [f32],
}

impl<'a> Passes<'a> {
    /// All taps, row by row.
    pub(super) fn dense(taps: &'a [f32]) -> Self {
        Self { across: None, whole: None, middle: 0.0, lacks: 0.0, taps }
    }

    /// A row and a column.
    pub(super) fn new(row: &'a [f32], column: &'a [f32]) -> Self {
        Self { across: Some(row), whole: None, middle: 0.0, lacks: 0.0, taps: column }
    }
}

/// A filter as a sum of such.
pub(super) struct Terms<'a> {
    /// The factor of the pixel itself, if it has one beside the passes.
    pub(super) point: Option<f32>,
    /// At least one; more than one, or one beside a point, are all separable.
    pub(super) passes: Vec<Passes<'a>>,
}

impl Terms<'_> {
    /// What all sums lack.
    pub(super) fn lack(&self) -> f64 {
        self.passes.iter().map(|passes| passes.lacks).sum()
    }

    /// The taps of all columns in turn, tap by tap.
    pub(super) fn columns(&self) -> Vec<f32> {
        let rows = self.passes.first().map_or(0, |passes| passes.taps.len());
        (0..rows).flat_map(|row| self.passes.iter().map(move |passes| passes.taps[row])).collect()
    }
}

impl<'a> From<Passes<'a>> for Terms<'a> {
    fn from(passes: Passes<'a>) -> Self {
        Self { point: None, passes: vec![passes] }
    }
}

/// An image, a window over it, and the destination.
pub(super) struct Frame<'a, S, D> {
    pub(super) isa: Isa,
    pub(super) window: Window,
    pub(super) src: ImageView<'a, S>,
    pub(super) dst: Target<'a, D>,
    /// Channels that are filtered; the others are copied.
    pub(super) filtered: usize,
    /// How pixels are weighted before they are filtered.
    pub(super) weigh: Option<Weigh<'a>>,
    /// What their values stand for.
    pub(super) light: Option<Light<'a>>,
}

impl<'a, S: Pixel, D: Pixel> Frame<'a, S, D> {
    pub(super) fn new(
        isa: Isa,
        window: Window,
        src: &ImageView<'a, S>,
        dst: &'a mut ImageViewMut<'_, D>,
        filtered: usize,
    ) -> Self {
        Self { isa, window, src: *src, dst: Target::new(dst), filtered, weigh: None, light: None }
    }
}

/// The destination, to be written in rectangles by several threads.
pub(super) struct Target<'a, D> {
    first: *mut D,
    stride: usize,
    image: PhantomData<&'a mut [D]>,
}

// SAFETY: it stands for an exclusive borrow of the pixels, and threads write disjoint rectangles;
// see `row`.
unsafe impl<D: Send> Sync for Target<'_, D> {}

impl<'a, D: Pixel> Target<'a, D> {
    pub(super) fn new(dst: &'a mut ImageViewMut<'_, D>) -> Self {
        Self { stride: dst.stride(), first: dst.as_mut_ptr(), image: PhantomData }
    }

    /// A destination without pixels, for sums that become others' results.
    pub(super) fn nowhere() -> Self {
        Self { stride: 0, first: std::ptr::null_mut(), image: PhantomData }
    }
}

impl<D> Target<'_, D> {
    /// A part of row `y`.
    ///
    /// # Safety
    /// The part lies in the image, and there is no other reference to any of it.
    #[expect(clippy::mut_from_ref, reason = "as a cell's; the contract says when")]
    pub(super) unsafe fn row(&self, y: usize, part: Range<usize>) -> &mut [D] {
        // SAFETY: the caller's promise.
        unsafe {
            std::slice::from_raw_parts_mut(self.first.add(y * self.stride + part.start), part.len())
        }
    }
}
