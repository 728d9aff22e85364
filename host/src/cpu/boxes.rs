//! Filters of equal taps for bytes: pixels are added as integers, so that the time hardly depends on the window.
//!
//! A job is a band of rows. For each column, it keeps the sum of the pixels under the window. For each next row, it adds the
//! row that enters and subtracts the one that leaves. A window's sum is the sum of all columns up to its end, minus
//! the sum of those before it; of a few columns, their sum, in 16 bits, which is faster. Integers accumulate no rounding errors, as floats would.

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

/// The most taps, and columns of them, that are added up in 16 bits: a sum of bytes stays below 2^16.
const FEW_TAPS: usize = 257;
const FEW_COLUMNS: usize = 16;

/// Whether adding integers is faster, and their sums have room.
pub(crate) fn counts(cols: usize, rows: usize, pixels: usize) -> bool {
    (is_few(cols, rows) || cols.max(rows) >= TAPS) && cols * rows <= MOST_TAPS && pixels >= PIXELS
}

/// Whether a window's sums have room in 16 bits, and are worth it.
fn is_few(cols: usize, rows: usize) -> bool {
    (2..=FEW_COLUMNS).contains(&cols) && rows > 1 && cols * rows <= FEW_TAPS
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

/// A type that columns are summed up in.
trait Count: Copy + Default + Send {
    fn of(sum: u32) -> Self;
    fn add(self, value: u8) -> Self;
    fn subtract(self, value: u8) -> Self;

    /// For each result, the sum under the window, times the tap.
    fn sum(window: Sum<'_, Self>);

    /// One of the sums under the window, of `cols` columns.
    fn of_window(columns: &Columns<Self>, at: usize, cols: usize, channels: usize) -> u32;
}

macro_rules! count {
    ($type:ident, $sum:path, |$columns:ident, $at:ident, $cols:ident, $channels:ident| $of_window:expr) => {
        impl Count for $type {
            #[inline(always)]
            fn of(sum: u32) -> Self {
                sum as Self
            }

            #[inline(always)]
            fn add(self, value: u8) -> Self {
                self.wrapping_add(value.into())
            }

            #[inline(always)]
            fn subtract(self, value: u8) -> Self {
                self.wrapping_sub(value.into())
            }

            #[inline(always)]
            fn sum(window: Sum<'_, Self>) {
                $sum(window)
            }

            fn of_window($columns: &Columns<Self>, $at: usize, $cols: usize, $channels: usize) -> u32 {
                $of_window
            }
        }
    };
}

count!(u16, few, |columns, at, cols, channels| {
    (0..cols).map(|col| u32::from(columns.sums[at + col * channels])).sum()
});
count!(u32, many, |columns, at, cols, channels| columns.before[at + cols * channels].wrapping_sub(columns.before[at]));

/// Filters the first `filtered` channels by equal taps, and copies the others. `rounder` takes sums in the order
/// [`round::Order::Counted`].
pub(super) fn run(
    isa: Isa,
    window: &Window,
    tap: f64,
    src: &ImageView<'_, u8>,
    results: (&mut ImageViewMut<'_, u8>, usize),
    rounder: &Rounder<'_, f32>,
    stage: &Stage<'_>,
) -> Result<()> {
    if is_few(window.cols, window.rows) {
        run_in::<u16>(isa, window, tap, src, results, rounder, stage)
    } else {
        run_in::<u32>(isa, window, tap, src, results, rounder, stage)
    }
}

fn run_in<C: Count>(
    isa: Isa,
    window: &Window,
    tap: f64,
    src: &ImageView<'_, u8>,
    (dst, filtered): (&mut ImageViewMut<'_, u8>, usize),
    rounder: &Rounder<'_, f32>,
    stage: &Stage<'_>,
) -> Result<()> {
    let (Shape { width, height, channels }, cols) = (src.shape(), window.cols);
    let is_few = is_few(window.cols, window.rows);
    // A band first adds all the rows under its window.
    let band = band(height, window.rows, 1, rayon::current_num_threads());
    // The row under tap row 0, for an anchor at 0; `None` outside the image.
    let row = |y: usize| window.row(y, 0, height).map(|y| src.row(y));
    share(stage, dst.bands_mut(band).enumerate(), |scratch: &mut Scratch<C>, (index, rows)| {
        let first = index * band;
        scratch.start(window, src.shape())?;
        for entering in first..first + window.rows - 1 {
            isa.run(Descend { scratch, entering: row(entering), leaving: None });
        }
        for (y, out) in (first..).zip(rows) {
            let leaving = (y > first).then(|| row(y - 1));
            isa.run(Descend { scratch, entering: row(y + window.rows - 1), leaving });
            scratch.add_sides(window, channels);
            let Scratch { columns, sums, rounder: memory, .. } = &mut *scratch;
            isa.run(Sum { columns, sums, cols, channels, tap: tap as f32 });
            // The count is exact, so its product in f64 is within what the order of f64 sums could change. Of few taps, nearly all that is in
            // doubt is a tie.
            let product = |at: usize| f64::from(C::of_window(columns, at, cols, channels)) * tap;
            rounder.store_part(isa, sums, (0, y), out, memory, |at| (!is_few).then(|| product(at)));
            window.restore(src, filtered, &(0..width), y, out);
        }
        Ok(())
    })
}

/// The sums of columns.
#[derive(Default)]
struct Columns<C> {
    /// For each element of a row with the border's pixels on both sides, the sum of its column under the window.
    sums: Vec<C>,
    /// For each element, and one pixel more, the sum of all elements before it in its channel; if there are many columns.
    before: Vec<u32>,
}

/// A thread's memory.
#[derive(Default)]
struct Scratch<C> {
    /// A row outside the image.
    outside: Vec<u8>,
    columns: Columns<C>,
    /// The elements that lie in the image.
    inside: Range<usize>,
    /// The other pixels of the padded row, and the image column that each copies, if it does not have the border's value.
    sides: Vec<(usize, Option<usize>)>,
    /// For each result, the sum under the window, times the tap.
    sums: Vec<f32>,
    rounder: round::Scratch,
}

impl<C: Count> Scratch<C> {
    /// Starts with sums of zero.
    fn start(&mut self, window: &Window, Shape { width, channels, .. }: Shape) -> Result<()> {
        let (len, padded) = (width * channels, width + window.cols - 1);
        if self.columns.sums.is_empty() {
            self.outside = crate::memory::zeroed(len)?;
            self.outside.fill(window.border_value as u8);
            let before = if is_few(window.cols, window.rows) { 0 } else { (padded + 1) * channels };
            self.columns.before = crate::memory::zeroed(before)?;
            self.sums = crate::memory::zeroed(len)?;
            self.sides = crate::memory::reserve(window.cols - 1)?;
            self.inside = window.anchor_x * channels..window.anchor_x * channels + len;
            let sides = (0..window.anchor_x).chain(window.anchor_x + width..padded);
            self.sides.extend(sides.map(|at| (at, window.column(at, 0, width))));
            // Resized last: its length tells that all are allocated.
            self.columns.sums = crate::memory::zeroed(padded * channels)?;
        }
        self.columns.sums.fill(C::default());
        Ok(())
    }

    /// Sets the sums of the columns outside the image.
    fn add_sides(&mut self, window: &Window, channels: usize) {
        let outside = C::of(window.rows as u32 * window.border_value as u32);
        let sums = &mut self.columns.sums;
        for &(at, column) in &self.sides {
            for channel in 0..channels {
                let sum = column.map_or(outside, |x| sums[(window.anchor_x + x) * channels + channel]);
                sums[at * channels + channel] = sum;
            }
        }
    }
}

/// Adds a row to the columns' sums and subtracts the one that leaves. A row outside the image is `None`.
struct Descend<'a, C> {
    scratch: &'a mut Scratch<C>,
    entering: Option<&'a [u8]>,
    leaving: Option<Option<&'a [u8]>>,
}

impl<C: Count> Work for Descend<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Scratch { outside, columns, inside, .. } = self.scratch;
        let columns = columns.sums[inside.clone()].iter_mut().zip(self.entering.unwrap_or(outside));
        match self.leaving {
            None => columns.for_each(|(sum, &value)| *sum = sum.add(value)),
            Some(leaving) => columns.zip(leaving.unwrap_or(outside)).for_each(|((sum, &entering), &leaving)| {
                *sum = sum.add(entering).subtract(leaving);
            }),
        }
    }
}

/// Sums of `cols` columns times the tap.
struct Sum<'a, C> {
    columns: &'a mut Columns<C>,
    sums: &'a mut [f32],
    cols: usize,
    channels: usize,
    tap: f32,
}

impl<C: Count> Work for Sum<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        C::sum(self);
    }
}

/// Sums of any number of columns, from the sums of all before.
#[inline(always)]
fn many(Sum { columns: Columns { sums: columns, before }, sums, cols, channels, tap }: Sum<'_, u32>) {
    match channels {
        1 => add_up::<1>(columns, before),
        2 => add_up::<2>(columns, before),
        3 => add_up::<3>(columns, before),
        _ => add_up::<4>(columns, before),
    }
    // The sums may wrap around; their difference is below 2^32 and is exact.
    let ends = before[cols * channels..].iter().zip(&**before);
    sums.iter_mut().zip(ends).for_each(|(sum, (end, start))| *sum = end.wrapping_sub(*start) as f32 * tap);
}

/// Sums of a few columns, one by one.
#[inline(always)]
fn few(Sum { columns: Columns { sums: columns, .. }, sums, cols, channels, tap }: Sum<'_, u16>) {
    /// So many results stay in registers.
    const TOGETHER: usize = 64;
    let add = |at: usize| {
        let mut all = [0u16; TOGETHER];
        for col in 0..cols {
            if let Some(columns) = columns[at + col * channels..].first_chunk::<TOGETHER>() {
                for i in 0..TOGETHER {
                    all[i] = all[i].wrapping_add(columns[i]);
                }
            }
        }
        all
    };
    let mut rows = sums.chunks_exact_mut(TOGETHER);
    let mut at = 0;
    for sums in &mut rows {
        let all = add(at);
        for i in 0..TOGETHER {
            sums[i] = f32::from(all[i]) * tap;
        }
        at += TOGETHER;
    }
    for (at, sum) in (at..).zip(rows.into_remainder()) {
        let all = (0..cols).fold(0u16, |all, col| all.wrapping_add(columns[at + col * channels]));
        *sum = f32::from(all) * tap;
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
