//! Filters of equal taps for bytes: pixels are added as integers, so that the time hardly depends on the window.
//!
//! A job is a band of rows. For each column, it keeps the sum of the pixels under the window. For each next row, it adds the
//! row that enters and subtracts the one that leaves. A window's sum is the sum of all columns up to its end, minus
//! the sum of those before it. Integers accumulate no rounding errors, as floats would.

use std::ops::Range;

use super::bands::band;
use super::share::share;
use crate::image::{ImageView, ImageViewMut, Shape};
use crate::progress::Stage;
use crate::round::{self, Rounder};
use crate::simd::{Isa, Lanes, Work};
use crate::window::Window;
use crate::{Filter, Result};

/// The least pixels and taps for which adding integers is faster.
const PIXELS: usize = 1 << 15;
const TAPS: usize = 13;

/// The most taps: a sum of bytes stays below 2^32.
const MOST_TAPS: usize = 1 << 24;

/// Whether adding integers is faster, and their sums have room.
pub(crate) fn counts(cols: usize, rows: usize, pixels: usize) -> bool {
    cols.max(rows) >= TAPS && cols * rows <= MOST_TAPS && pixels >= PIXELS
}

/// The value of every tap, if all are equal, they are so many that adding integers is faster, and the border's value is an integer too.
pub(super) fn tap(filter: &Filter, window: &Window, shape: Shape) -> Option<f64> {
    let (cols, rows) = (filter.cols(), filter.rows());
    if !window.is_all_bytes() || !counts(cols, rows, shape.width * shape.height) {
        return None;
    }
    // Taps that a float holds with full precision, and whose sums stay within its range.
    filter.equal_tap().filter(|tap| (1e-30..1e20).contains(&tap.abs()))
}

/// Filters the first `filtered` channels by equal taps, and copies the others. `rounder` takes sums in the order
/// [`round::Order::Counted`].
pub(super) fn run(
    isa: Isa,
    window: &Window,
    tap: f64,
    src: &ImageView<'_, u8>,
    (dst, filtered): (&mut ImageViewMut<'_, u8>, usize),
    rounder: &Rounder<'_, f32>,
    stage: &Stage<'_>,
) -> Result<()> {
    let Shape { width, height, channels } = src.shape();
    // A band first adds all the rows under its window.
    let band = band(height, window.rows, 1, rayon::current_num_threads());
    // The row under tap row 0, for an anchor at 0; `None` outside the image.
    let row = |y: usize| window.row(y, 0, height).map(|y| src.row(y));
    share(stage, dst.bands_mut(band).enumerate(), |scratch: &mut Scratch, (index, rows)| {
        let first = index * band;
        scratch.start(window, src.shape())?;
        for entering in first..first + window.rows - 1 {
            isa.run(Descend { scratch, entering: row(entering), leaving: None });
        }
        for (y, out) in (first..).zip(rows) {
            let leaving = (y > first).then(|| row(y - 1));
            isa.run(Descend { scratch, entering: row(y + window.rows - 1), leaving });
            scratch.add_sides(window, channels);
            isa.run(Sum { scratch, cols: window.cols, channels, tap: tap as f32 });
            let Scratch { before, sums, rounder: memory, .. } = &mut *scratch;
            // The count is exact, so its product in f64 is within what the order of f64 sums could change.
            let product = |at: usize| f64::from(before[at + window.cols * channels].wrapping_sub(before[at])) * tap;
            rounder.store_part(isa, sums, (0, y), out, memory, |at| Some(product(at)));
            window.restore(src, filtered, &(0..width), y, out);
        }
        Ok(())
    })
}

/// A thread's memory.
#[derive(Default)]
struct Scratch {
    /// A row outside the image.
    outside: Vec<u8>,
    /// For each element of a row with the border's pixels on both sides, the sum of its column under the window.
    columns: Vec<u32>,
    /// The elements that lie in the image.
    inside: Range<usize>,
    /// The other pixels of the padded row, and the image column that each copies, if it does not have the border's value.
    sides: Vec<(usize, Option<usize>)>,
    /// For each element, and one pixel more, the sum of all elements before it in its channel.
    before: Vec<u32>,
    /// For each result, the sum under the window, times the tap.
    sums: Vec<f32>,
    rounder: round::Scratch,
}

impl Scratch {
    /// Starts with sums of zero.
    fn start(&mut self, window: &Window, Shape { width, channels, .. }: Shape) -> Result<()> {
        let (len, padded) = (width * channels, width + window.cols - 1);
        if self.columns.is_empty() {
            self.outside = crate::memory::zeroed(len)?;
            self.outside.fill(window.border_value as u8);
            self.before = crate::memory::zeroed((padded + 1) * channels)?;
            self.sums = crate::memory::zeroed(len)?;
            self.sides = crate::memory::reserve(window.cols - 1)?;
            self.inside = window.anchor_x * channels..window.anchor_x * channels + len;
            let sides = (0..window.anchor_x).chain(window.anchor_x + width..padded);
            self.sides.extend(sides.map(|at| (at, window.column(at, 0, width))));
            // Resized last: its length tells that all are allocated.
            self.columns = crate::memory::zeroed(padded * channels)?;
        }
        self.columns.fill(0);
        Ok(())
    }

    /// Sets the sums of the columns outside the image.
    fn add_sides(&mut self, window: &Window, channels: usize) {
        let outside = window.rows as u32 * window.border_value as u32;
        for &(at, column) in &self.sides {
            for channel in 0..channels {
                let sum = column.map_or(outside, |x| self.columns[(window.anchor_x + x) * channels + channel]);
                self.columns[at * channels + channel] = sum;
            }
        }
    }
}

/// Adds a row to the columns' sums and subtracts the one that leaves. A row outside the image is `None`.
struct Descend<'a> {
    scratch: &'a mut Scratch,
    entering: Option<&'a [u8]>,
    leaving: Option<Option<&'a [u8]>>,
}

impl Work for Descend<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Scratch { outside, columns, inside, .. } = self.scratch;
        let columns = columns[inside.clone()].iter_mut().zip(self.entering.unwrap_or(outside));
        match self.leaving {
            None => columns.for_each(|(sum, &value)| *sum += u32::from(value)),
            Some(leaving) => columns.zip(leaving.unwrap_or(outside)).for_each(|((sum, &entering), &leaving)| {
                *sum = *sum + u32::from(entering) - u32::from(leaving);
            }),
        }
    }
}

/// Sums of `cols` columns times the tap.
struct Sum<'a> {
    scratch: &'a mut Scratch,
    cols: usize,
    channels: usize,
    tap: f32,
}

impl Work for Sum<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Scratch { columns, before, sums, .. } = self.scratch;
        match self.channels {
            1 => add_up::<1>(columns, before),
            2 => add_up::<2>(columns, before),
            3 => add_up::<3>(columns, before),
            _ => add_up::<4>(columns, before),
        }
        // The sums may wrap around; their difference is below 2^32 and is exact.
        let ends = before[self.cols * self.channels..].iter().zip(&**before);
        sums.iter_mut().zip(ends).for_each(|(sum, (end, start))| *sum = end.wrapping_sub(*start) as f32 * self.tap);
    }
}

/// For each element the sum of those before it in its channel, of C; the running sums stay in registers.
#[inline(always)]
fn add_up<const C: usize>(columns: &[u32], before: &mut [u32]) {
    let mut sums = [0u32; C];
    let mut step = |before: &mut [u32], columns: &[u32]| {
        for channel in 0..C {
            before[channel] = sums[channel];
            sums[channel] = sums[channel].wrapping_add(columns[channel]);
        }
    };
    // Eight pixels in each iteration: the loop's counter costs as much as an addition.
    let whole = columns.len() - columns.len() % (8 * C);
    let (befores, rest) = before.split_at_mut(whole);
    for (before, columns) in befores.chunks_exact_mut(8 * C).zip(columns.chunks_exact(8 * C)) {
        for pixel in 0..8 {
            step(&mut before[pixel * C..][..C], &columns[pixel * C..][..C]);
        }
    }
    for (before, columns) in rest.chunks_exact_mut(C).zip(columns[whole..].chunks_exact(C).chain([&[0; C][..]])) {
        step(before, columns);
    }
}
