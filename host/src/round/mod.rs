//! Correct rounding of 8-bit results.
//!
//! A result is correctly rounded if it is the integer nearest to the filter's sum in f64, half to even, saturated to 0 to
//! 255: what SciPy's `correlate` gives in f64. So 8-bit pictures are the same from every variant and device.
//!
//! It would be slow to compute every sum in f64. This is Ziv's strategy instead:
//!
//! 1. [`bound`]: how far a sum in f32 may lie from the one in f64.
//! 2. [`doubt`]: whether a half-integer, where the result changes, lies within that distance. If none does, the sum in f32
//!    decides. This is the case for nearly all results.
//! 3. [`settle`], with [`passes`]: for the other results, the sum in f64 is computed from the source, and decides.
//!
//! "The sum in f64" must be one number even if it is a tie: each product and each sum is rounded to f64, row by row,
//! left to right. That could take hours for a separable filter of more than 65536 taps. There it means two passes: along
//! the rows, then along the columns, in ascending order.

mod bound;
mod doubt;
mod passes;
mod settle;
#[cfg(test)]
mod tests;

use std::ops::Range;

use gpu_kernels::border::CONSTANT;

use crate::image::ImageView;
use crate::simd::{Isa, Lanes, Work};
use crate::window::Window;
use crate::{Border, Filter, Result};

pub(crate) use bound::Order;
use doubt::Doubt;
use settle::{Settler, nearest};

/// What decides a byte on a GPU, where a kernel tests the f32 sums and another one settles what is in doubt.
#[cfg(feature = "gpu")]
#[derive(Clone, Debug)]
pub(crate) struct Uncertainty {
    /// A sum whose distance from an integer is at least this is in doubt; `None` if no sum ever is.
    pub(crate) near: Option<f32>,
    /// The greatest difference between f64 sums in two orders.
    pub(crate) reordering: f64,
    /// The share of results that are in doubt if sums are spread evenly.
    share: f64,
    /// Whether two passes in f64 take the place of the f32 sums, and whether they define the bytes.
    pub(crate) passes: Option<bool>,
}

#[cfg(feature = "gpu")]
impl Uncertainty {
    /// No result is in doubt.
    pub(crate) const NONE: Self = Self { near: None, reordering: 0.0, share: 0.0, passes: None };

    /// For a filter's f32 sums over bytes, in this order.
    pub(crate) fn new(filter: &Filter, border: Border, order: Order) -> Self {
        let window = Window::new(filter, border);
        let (error, reordering, tame) = errors(filter, &window, order);
        let doubt = Doubt::new(error);
        let near = match error {
            0.0 if tame => None,
            // Every sum is in doubt where one may not be a number.
            _ if !tame || doubt.limit().is_nan() => Some(-1.0),
            _ => Some(doubt.limit()),
        };
        let share = (2.0 * error).min(1.0);
        let (cols, rows) = (filter.cols() as f64, filter.rows() as f64);
        let factors = filter.dense_f64().is_none() && filter.is_separable() && near.is_some();
        let defined = cols * rows > settle::MAX_WINDOW as f64;
        // A tap of a result in doubt costs about eight times one of a pass in f32, and a tap of a pass in f64 about twice that.
        let better = 8.0 * share * cols * rows > 1.3 * (cols + rows);
        Self { near, reordering, share, passes: (factors && (defined || better)).then_some(defined) }
    }

    /// Places of each of so many segments of a list for so many results: four times those expected, so that a list is seldom
    /// too short.
    pub(crate) fn places(&self, results: usize, segments: usize) -> u32 {
        const MOST: f64 = 16384.0;
        let evenly = results as f64 / segments as f64;
        (4.0 * self.share * evenly + 64.0).min(evenly + 4.0).min(MOST) as u32
    }
}

/// The error bound of f32 sums and the greatest difference between f64 sums in two orders, both 0 if nothing is rounded; and whether no
/// sum is NaN, or too great for an `i32`.
fn errors(filter: &Filter, window: &Window, order: Order) -> (f64, f64, bool) {
    let outside = f64::from(window.border_value);
    let greatest = if window.border == CONSTANT { outside.abs().max(255.0) } else { 255.0 };
    let reordering = bound::of_reordering(filter, greatest);
    let error = bound::of_sums(filter, order, greatest, outside);
    let error = if error == 0.0 { 0.0 } else { error + reordering };
    (error, reordering, filter.weight() * greatest < 1e9 && !outside.is_nan())
}

/// Number of pixels that are tested together.
const CHUNK: usize = 64;

/// Rounds f32 sums that a filter made of an 8-bit image.
pub(crate) struct Rounder<'a> {
    settler: Settler<'a>,
    doubt: Doubt,
    order: Order,
    /// The channels that are filtered.
    filtered: usize,
    /// Elements from one pixel of a channel to the next.
    channels: usize,
    /// No sum is NaN, or too great for an `i32`.
    tame: bool,
}

/// A thread's memory.
#[derive(Default)]
pub(crate) struct Scratch {
    /// The chunks of a row that hold results in doubt.
    chunks: Vec<usize>,
    settler: settle::Scratch,
}

impl<'a> Rounder<'a> {
    /// For the first `filtered` channels of `src`, summed in this order.
    pub(crate) fn new(
        src: ImageView<'a, u8>,
        filtered: usize,
        filter: &'a Filter,
        border: Border,
        order: Order,
    ) -> Result<Self> {
        let window = Window::new(filter, border);
        let (error, reordering, tame) = errors(filter, &window, order);
        let doubt = Doubt::new(error);
        Ok(Self {
            settler: Settler::new(src, filter, window, doubt.error(), reordering)?,
            doubt,
            order,
            filtered,
            channels: src.shape().channels,
            tame,
        })
    }

    /// The order of the sums that it takes.
    pub(crate) fn order(&self) -> Order {
        self.order
    }

    /// Prepares for rows of these columns, from top to bottom.
    pub(crate) fn begin(&self, columns: &Range<usize>, scratch: &mut Scratch) -> Result<()> {
        self.settler.begin(columns, &mut scratch.settler)
    }

    /// The distance from an integer at which a sum is in doubt; `None` if a sum may be NaN, or too great for an
    /// `i32`.
    pub(crate) fn limit(&self) -> Option<f32> {
        let limit = self.doubt.limit();
        (limit > 0.0 && self.tame).then_some(limit)
    }

    /// Stores the interleaved sums of a part of row `y`, from column `x` on.
    pub(crate) fn store_part(&self, isa: Isa, sums: &[f32], x: usize, y: usize, out: &mut [u8], scratch: &mut Scratch) {
        scratch.chunks.clear();
        isa.run(Round { doubt: &self.doubt, sums, out, chunks: &mut scratch.chunks });
        for index in 0..scratch.chunks.len() {
            let first = scratch.chunks[index];
            for (offset, &value) in sums[first..].iter().take(CHUNK).enumerate() {
                if self.doubt.about(value) {
                    self.settle(isa, x, y, first + offset, out, scratch);
                }
            }
        }
    }

    /// Computes and stores the correct result at element `at` of a part of row `y` that begins at column `x`.
    pub(crate) fn settle(&self, isa: Isa, x: usize, y: usize, at: usize, out: &mut [u8], scratch: &mut Scratch) {
        let (x, channel) = (x + at / self.channels, at % self.channels);
        if channel < self.filtered {
            out[at] = nearest(self.settler.fast_result(isa, x, y, channel, &mut scratch.settler));
        }
    }
}

/// Rounds a row; notes the chunks with results in doubt.
struct Round<'a> {
    doubt: &'a Doubt,
    sums: &'a [f32],
    out: &'a mut [u8],
    chunks: &'a mut Vec<usize>,
}

impl Work for Round<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        for (index, (sums, out)) in self.sums.chunks(CHUNK).zip(self.out.chunks_mut(CHUNK)).enumerate() {
            if self.doubt.round(sums, out) {
                self.chunks.push(index * CHUNK);
            }
        }
    }
}
