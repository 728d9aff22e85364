//! Filters of equal taps for bytes: pixels are added as integers, so that the time hardly depends on the window.
//!
//! A job is a band of rows. For each column, it keeps the sum of the pixels under the window. For each next row, it adds the
//! row that enters and subtracts the one that leaves. A window's sum is the sum of all columns up to its end, minus
//! the sum of those before it; of a few columns, their sum, in 16 bits, which is faster. Integers accumulate no rounding errors, as floats would.
//! A mean of few pixels is divided in 16 bits, too, by a product; its remainder tells whether it is a tie, and nothing else is in doubt.

#![expect(
    clippy::needless_range_loop,
    reason = "an index says which register; iterators do not always leave them there"
)]

use std::ops::Range;

use gpu_kernels::border::{CONSTANT, KEEP};

use super::bands::band;
use super::share::share;
use crate::image::{ImageView, ImageViewMut, Shape};
use crate::progress::Stage;
use crate::round::{self, Finer, Rounder};
use crate::simd::{Isa, Lanes, Words, Work};
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

/// Results of a few columns that are computed together: a mask has a bit for each.
const CHUNK: usize = 64;

/// Whether adding integers is faster, and their sums have room.
pub(super) fn counts(cols: usize, rows: usize, pixels: usize) -> bool {
    (is_few(cols, rows) || cols.max(rows) >= TAPS) && cols * rows <= MOST_TAPS && pixels >= PIXELS
}

/// Whether results of these taps are a mean of so few pixels that it is computed in 16 bits.
pub(super) fn is_mean_of_few(filter: &Filter) -> bool {
    let count = filter.cols() * filter.rows();
    is_few(filter.cols(), filter.rows()) && filter.equal_tap().and_then(|tap| Mean::new(count, tap)).is_some()
}

/// Whether a window's sums have room in 16 bits, and are worth it.
fn is_few(cols: usize, rows: usize) -> bool {
    (2..=FEW_COLUMNS).contains(&cols) && rows > 1 && cols * rows <= FEW_TAPS
}

/// The value of every tap, if all are equal, and the border's value is an integer too.
pub(super) fn tap(filter: &Filter, window: &Window) -> Option<f64> {
    if !window.is_all_bytes() {
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
}

macro_rules! count {
    ($type:ident) => {
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
        }
    };
}

count!(u16);
count!(u32);

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
    let Window { cols, rows, .. } = *window;
    let channels = src.shape().channels;
    if !is_few(cols, rows) {
        return by_columns(isa, window, src, results, stage, |scratch: &mut Scratch<u32>, is_bilevel, part, out| {
            let Scratch { columns, before, sums, rounder: memory, .. } = scratch;
            isa.run(Many { columns, before, sums, cols, channels, tap: tap as f32 });
            // The count is exact, so its product in f64 is within what the order of f64 sums could change.
            let finer = |at: usize| {
                let count = before[at + cols * channels].wrapping_sub(before[at]);
                let byte = if is_bilevel { rounder.of_white(count / 255) } else { None };
                byte.map_or_else(|| Finer::Sum(f64::from(count) * tap), Finer::Byte)
            };
            rounder.store_part(isa, &sums[..out.len()], part, out, memory, finer);
        });
    }
    match Mean::new(cols * rows, tap) {
        Some(mean) => {
            by_columns(isa, window, src, results, stage, |scratch: &mut Scratch<u16>, is_bilevel, part, out| {
                let Scratch { columns, masks, places, ties, rounder: memory, .. } = scratch;
                let found = isa.run(Divide { mean, columns, cols, channels, out, masks, places });
                ties.clear();
                ties.extend(places[..found].iter().map(|&at| at as usize));
                if is_bilevel {
                    ties.retain(|&at| {
                        let byte = rounder.of_white(mean.sum_of_tie(out[at]) / 255);
                        out[at] = byte.unwrap_or(out[at]);
                        byte.is_none()
                    });
                }
                rounder.settle_all(isa, part, true, ties, out, memory);
            })
        }
        None => by_columns(isa, window, src, results, stage, |scratch: &mut Scratch<u16>, _, part, out| {
            let Scratch { columns, sums, rounder: memory, .. } = scratch;
            isa.run(Few { columns, sums, cols, channels, tap: tap as f32 });
            // Of few taps, nearly all that is in doubt is a tie.
            rounder.store_part(isa, &sums[..out.len()], part, out, memory, |_| Finer::Nothing);
        }),
    }
}

/// Keeps the sums of all columns under a row of windows, row by row, and calls `finish` with them for each: with whether all pixels are 0 or 255,
/// the place of the first result, and the row of results. Where rows of pixels repeat, it repeats the row of results.
fn by_columns<C: Count>(
    isa: Isa,
    window: &Window,
    src: &ImageView<'_, u8>,
    (dst, filtered): (&mut ImageViewMut<'_, u8>, usize),
    stage: &Stage<'_>,
    finish: impl Fn(&mut Scratch<C>, bool, (usize, usize), &mut [u8]) + Sync,
) -> Result<()> {
    let Shape { width, height, channels } = src.shape();
    // A band first adds all the rows under its window.
    let band = band(height, window.rows, 1, stage.cut_for());
    // The row under tap row 0, for an anchor at 0; `None` outside the image.
    let row = |y: usize| window.row(y, 0, height).map(|y| src.row(y));
    // What lies outside may be under a window of any row.
    let outside_is_bilevel = window.border != CONSTANT || is_bilevel(&[window.border_value as u8]);
    share(stage, dst.bands_mut(band).enumerate(), |scratch: &mut Scratch<C>, (index, rows)| {
        let first = index * band;
        scratch.start(window, src.shape())?;
        let mut runs = Runs::default();
        for y in first..first + window.rows - 1 {
            let entering = row(y);
            runs.add(entering);
            isa.run(Descend { scratch, entering, leaving: None });
        }
        let mut last: Option<&mut [u8]> = None;
        for (y, out) in (first..).zip(rows) {
            let entering = row(y + window.rows - 1);
            runs.add(entering);
            match last.filter(|_| runs.equal > window.rows && window.border != KEEP) {
                Some(last) => out.copy_from_slice(last),
                None => {
                    isa.run(Descend { scratch, entering, leaving: (y > first).then(|| row(y - 1)) });
                    scratch.add_sides(window, channels);
                    finish(scratch, outside_is_bilevel && runs.bilevel >= window.rows, (0, y), out);
                    window.restore(src, filtered, &(0..width), y, out);
                }
            }
            last = Some(out);
        }
        Ok(())
    })
}

/// How many of the last rows that came under the window are alike.
#[derive(Default)]
struct Runs<'a> {
    last: Option<Option<&'a [u8]>>,
    /// Those equal to the last one, itself among them.
    equal: usize,
    /// Those of which each pixel is 0 or 255, or outside.
    bilevel: usize,
}

impl<'a> Runs<'a> {
    fn add(&mut self, row: Option<&'a [u8]>) {
        self.equal = if self.last == Some(row) { self.equal + 1 } else { 1 };
        self.bilevel = if row.is_none_or(is_bilevel) { self.bilevel + 1 } else { 0 };
        self.last = Some(row);
    }
}

/// Whether each is 0 or 255.
fn is_bilevel(pixels: &[u8]) -> bool {
    // A few at a time without a branch; most pictures have another one among the first.
    pixels.chunks(CHUNK).all(|pixels| pixels.iter().fold(true, |all, pixel| all & (pixel.wrapping_add(1) <= 1)))
}

/// A thread's memory.
#[derive(Default)]
struct Scratch<C> {
    /// A row outside the image.
    outside: Vec<u8>,
    /// For each element of a row with the border's pixels on both sides, the sum of its column under the window; and [`CHUNK`] more.
    columns: Vec<C>,
    /// For each element, and one pixel more, the sum of all elements before it in its channel; if there are many columns.
    before: Vec<u32>,
    /// The elements that lie in the image.
    inside: Range<usize>,
    /// The other pixels of the padded row, and the image column that each copies, if it does not have the border's value.
    sides: Vec<(usize, Option<usize>)>,
    /// For each result, the sum under the window, times the tap; as many as whole chunks have.
    sums: Vec<f32>,
    /// For each chunk, a bit for each tie; the places of all bits, and the ties.
    masks: Vec<u64>,
    places: Vec<u32>,
    ties: Vec<usize>,
    rounder: round::Scratch,
}

impl<C: Count> Scratch<C> {
    /// Starts with sums of zero.
    fn start(&mut self, window: &Window, Shape { width, channels, .. }: Shape) -> Result<()> {
        let (len, padded) = (width * channels, width + window.cols - 1);
        if self.columns.is_empty() {
            self.outside = crate::memory::zeroed(len)?;
            self.outside.fill(window.border_value as u8);
            if is_few(window.cols, window.rows) {
                self.masks = crate::memory::zeroed(len.div_ceil(CHUNK))?;
                self.places = crate::memory::zeroed(round::places_room(len))?;
                self.ties = crate::memory::reserve(len)?;
            } else {
                self.before = crate::memory::zeroed((padded + 1) * channels)?;
            }
            self.sums = crate::memory::zeroed(len.next_multiple_of(CHUNK))?;
            self.sides = crate::memory::reserve(window.cols - 1)?;
            self.inside = window.anchor_x * channels..window.anchor_x * channels + len;
            let sides = (0..window.anchor_x).chain(window.anchor_x + width..padded);
            self.sides.extend(sides.map(|at| (at, window.column(at, 0, width))));
            // Last, as it tells that all are allocated.
            self.columns = crate::memory::zeroed(padded * channels + CHUNK)?;
        }
        self.columns.fill(C::default());
        Ok(())
    }

    /// Sets the sums of the columns outside the image.
    fn add_sides(&mut self, window: &Window, channels: usize) {
        let outside = C::of(window.rows as u32 * window.border_value as u32);
        let sums = &mut self.columns;
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
        let columns = columns[inside.clone()].iter_mut().zip(self.entering.unwrap_or(outside));
        match self.leaving {
            None => columns.for_each(|(sum, &value)| *sum = sum.add(value)),
            Some(leaving) => columns.zip(leaving.unwrap_or(outside)).for_each(|((sum, &entering), &leaving)| {
                *sum = sum.add(entering).subtract(leaving);
            }),
        }
    }
}

/// Sums under windows of any number of columns, from the sums of all columns before, times the tap.
struct Many<'a> {
    columns: &'a [u32],
    before: &'a mut [u32],
    sums: &'a mut [f32],
    cols: usize,
    channels: usize,
    tap: f32,
}

impl Work for Many<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Self { columns, before, sums, cols, channels, tap } = self;
        let columns = &columns[..columns.len() - CHUNK];
        match channels {
            1 => add_up::<1>(columns, before),
            2 => add_up::<2>(columns, before),
            3 => add_up::<3>(columns, before),
            _ => add_up::<4>(columns, before),
        }
        // The sums may wrap around; their difference is below 2^32 and is exact.
        let ends = before[cols * channels..].iter().zip(&*before);
        sums.iter_mut().zip(ends).for_each(|(sum, (end, start))| *sum = end.wrapping_sub(*start) as f32 * tap);
    }
}

/// Sums under windows of a few columns, times the tap.
struct Few<'a> {
    columns: &'a [u16],
    sums: &'a mut [f32],
    cols: usize,
    channels: usize,
    tap: f32,
}

impl Work for Few<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Self { columns, sums, cols, channels, tap } = self;
        let (chunks, _) = sums.as_chunks_mut::<CHUNK>();
        assert!(CHUNK * chunks.len() + (cols - 1) * channels <= columns.len());
        for (chunk, sums) in chunks.iter_mut().enumerate() {
            // SAFETY: this is in a `Work`, and the columns of each chunk exist, as is asserted.
            let all = unsafe { add_few::<L::Words>(0, columns.as_ptr().add(chunk * CHUNK), cols, channels) };
            for i in 0..CHUNK {
                sums[i] = f32::from(all[i]) * tap;
            }
        }
    }
}

/// The sums of `cols` columns from each of the first few elements on, added to `start`.
///
/// # Safety
/// As for [`Words`]; there are `CHUNK + (cols - 1) * channels` elements.
#[inline(always)]
unsafe fn add_few<X: Words>(start: u16, columns: *const u16, cols: usize, channels: usize) -> [u16; CHUNK] {
    const { assert!(CHUNK.is_multiple_of(2 * X::LEN)) };
    let mut all = [0; CHUNK];
    // SAFETY: the caller's promise.
    unsafe {
        for at in (0..CHUNK).step_by(2 * X::LEN) {
            let mut sums = [X::splat(start); 2];
            for col in 0..cols {
                for v in 0..2 {
                    sums[v] = sums[v].add(X::load(columns.add(at + v * X::LEN + col * channels)));
                }
            }
            for v in 0..2 {
                sums[v].store(all.as_mut_ptr().add(at + v * X::LEN));
            }
        }
    }
    all
}

/// A mean of a few pixels in whole numbers of 16 bits.
#[derive(Clone, Copy)]
struct Mean {
    /// The pixels.
    count: u16,
    /// 2^16 over that, rounded down.
    reciprocal: u16,
    /// Whether the sum that defines a result is exact, so that a tie goes to the even number.
    exact: bool,
}

impl Mean {
    /// Of so many pixels times this tap; `None` if that is no mean, or 16 bits have no room.
    ///
    /// Let `s` be the sum of the pixels. Unless `s / count` is a tie, it is `1 / (2 count)` or more from a half, which is at least 1/512. The sum
    /// that defines the result is less than `255 * 2^-20` from it, so both round to the same number.
    fn new(count: usize, tap: f64) -> Option<Self> {
        let is_mean = (tap * count as f64 - 1.0).abs() < 2f64.powi(-20);
        let exact = count.is_power_of_two() && tap * count as f64 == 1.0;
        let count = u16::try_from(count).ok().filter(|count| is_mean && (2..=256).contains(count))?;
        Some(Self { count, reciprocal: (65536 / u32::from(count)) as u16, exact })
    }

    /// Whether the sums that define results decide ties.
    fn meets_ties(self) -> bool {
        self.count.is_multiple_of(2) && !self.exact
    }

    /// The sum of pixels whose mean lies half a step below this.
    fn sum_of_tie(self, quotient: u8) -> u32 {
        u32::from(self.count) * u32::from(quotient) - u32::from(self.half())
    }

    /// Half of the pixels, rounded down. With it, a sum still has room, and its quotient is the mean, a half rounded up.
    fn half(self) -> u16 {
        self.count / 2
    }

    /// The quotients, and the remainders: 0 for a tie, if there can be one.
    ///
    /// # Safety
    /// As for [`Words`].
    #[inline(always)]
    unsafe fn divide<X: Words>(self, numbers: X) -> (X, X) {
        // SAFETY: the caller's promise.
        unsafe {
            let (count, one) = (X::splat(self.count), X::splat(1));
            // The product with the reciprocal is less than 1 below the true quotient, so this is that, rounded down, or one less.
            let low = numbers.high_product(X::splat(self.reciprocal));
            let rest = numbers.subtract(low.low_product(count));
            // Below zero it wraps around to more than 2^15.
            let less = rest.subtract(count);
            let is_right = less.high_product(X::splat(2));
            let (quotient, rest) = (low.add(one).subtract(is_right), rest.least(less));
            if !self.exact {
                return (quotient, rest);
            }
            let half = quotient.high_product(X::splat(1 << 15));
            let is_odd = quotient.subtract(half.add(half));
            (quotient.subtract(is_odd.low_product(one.subtract(rest.least(one)))), rest)
        }
    }
}

/// A row of means of a few pixels.
struct Divide<'a> {
    mean: Mean,
    columns: &'a [u16],
    cols: usize,
    channels: usize,
    out: &'a mut [u8],
    masks: &'a mut [u64],
    places: &'a mut [u32],
}

impl Work for Divide<'_> {
    /// How many places of ties there are.
    type Output = usize;

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> usize {
        let Self { mean, columns, cols, channels, out, masks, places } = self;
        let chunks = out.len().div_ceil(CHUNK);
        assert!(chunks <= masks.len() && CHUNK * chunks + (cols - 1) * channels <= columns.len());
        // SAFETY: this is in a `Work`, and the columns of each chunk exist, as is asserted.
        let divide = |chunk: usize, mask: &mut u64| unsafe {
            let sums = add_few::<L::Words>(mean.half(), columns.as_ptr().add(chunk * CHUNK), cols, channels);
            divide_chunk::<L::Words>(mean, &sums, mask)
        };
        let (whole, rest) = out.as_chunks_mut::<CHUNK>();
        for (chunk, (out, mask)) in whole.iter_mut().zip(&mut *masks).enumerate() {
            *out = divide(chunk, mask);
        }
        if !rest.is_empty() {
            let mask = &mut masks[chunks - 1];
            rest.copy_from_slice(&divide(chunks - 1, mask)[..rest.len()]);
            *mask &= u64::MAX >> (CHUNK - rest.len());
        }
        if mean.meets_ties() { round::places(&masks[..chunks], CHUNK, places) } else { 0 }
    }
}

/// The means of sums to which half of the pixels' number has been added, and a bit for each tie.
///
/// # Safety
/// As for [`Words`].
#[inline(always)]
unsafe fn divide_chunk<X: Words>(mean: Mean, sums: &[u16; CHUNK], mask: &mut u64) -> [u8; CHUNK] {
    const { assert!(CHUNK == u64::BITS as usize && CHUNK.is_multiple_of(X::LEN)) };
    let mut quotients = [0; CHUNK];
    *mask = 0;
    // SAFETY: the caller's promise; a chunk is whole vectors.
    unsafe {
        for at in (0..CHUNK).step_by(X::LEN) {
            let (quotient, rest) = mean.divide(X::load(sums.as_ptr().add(at)));
            quotient.store(quotients.as_mut_ptr().add(at));
            if mean.meets_ties() {
                *mask |= u64::from(rest.zeros()) << at;
            }
        }
    }
    quotients.map(|quotient: u16| quotient as u8)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// All sums of all means, on each set of instructions.
    #[test]
    fn quotients_and_ties_are_exact() {
        for (count, isa) in (2..=256).flat_map(|count| Isa::all().map(move |isa| (count, isa))) {
            let mean = Mean::new(count, 1.0 / count as f64).unwrap();
            let sums: Vec<u16> = (0..=255 * count as u16).collect();
            let chunks = sums.len().div_ceil(CHUNK);
            let mut columns = sums.clone();
            columns.resize(chunks * CHUNK, 0);
            let (mut out, mut masks) = (vec![0; sums.len()], vec![0; chunks]);
            let mut places = vec![0; round::places_room(sums.len())];
            let (columns, masks, places_found) = (&columns[..], &mut masks[..], &mut places[..]);
            let found =
                isa.run(Divide { mean, columns, cols: 1, channels: 1, out: &mut out, masks, places: places_found });
            let is_tie = |sum: usize| sum % count * 2 == count;
            let ties: Vec<u32> =
                (0..sums.len()).filter(|&sum| is_tie(sum) && !mean.exact).map(|sum| sum as u32).collect();
            assert_eq!(places[..found], ties, "means of {count}, {isa:?}");
            for (sum, &byte) in out.iter().enumerate() {
                let up = (sum + count / 2) / count;
                let nearest = if is_tie(sum) && mean.exact { up & !1 } else { up };
                assert_eq!(usize::from(byte), nearest, "{sum} / {count}, {isa:?}");
            }
        }
    }

    #[test]
    fn other_taps_are_no_means() {
        let is_mean = |count: usize, tap: f64| Mean::new(count, tap).is_some();
        assert!(is_mean(36, 1.0 / 36.0) && is_mean(36, f64::from(1.0f32 / 36.0)) && is_mean(256, 1.0 / 256.0));
        assert!(!is_mean(36, 1.0 / 35.9) && !is_mean(36, -1.0 / 36.0) && !is_mean(36, 1.0));
        assert!(!is_mean(257, 1.0 / 257.0) && !is_mean(36, 1.0 / 36.0 + 1e-7) && !is_mean(1, 1.0));
    }
}
