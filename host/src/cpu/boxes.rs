//! Means of equal taps for bytes: pixels are added as integers, so that the time hardly depends on
//! the window.
//!
//! A job is a band of rows. For each column, it keeps the sum of the pixels under the window. For
//! each next row, it adds the row that enters and subtracts the one that leaves. A window's sum is
//! the sum of all columns up to its end, minus the sum of those before it; of a few columns, their
//! sum, in 16 bits, which is faster. Integers accumulate no rounding errors, as floats would. The
//! quotient is exact, by a multiplication: nothing is uncertain.

#![expect(
    clippy::needless_range_loop,
    reason = "an index says which register; iterators do not always leave them there"
)]

pub(super) mod mean;

use std::ops::Range;

use gpu_kernels::border::copies;

use super::bands::band;
use super::cost::{Cost, bands, results};
use super::method::{Call, Method, Request};
use super::share::share;
use crate::image::{ImageView, ImageViewMut, Shape};
use crate::problem::Problem;
use crate::progress::Stage;
use crate::simd::{Isa, Lanes, Vectorized, Words};
use crate::window::Window;
use crate::{Result, Variant};
use mean::{Mean, MeanOfFew, counts, is_few};

/// Results of a few columns that are computed together.
const CHUNK: usize = 64;

/// Means of a few pixels, in 16 bits.
pub(super) static OF_FEW: Method = Method {
    variant: Variant::RunningSums,
    why: WHY,
    takes: |request| is_counted(request) && request.forms.mean_of_few,
    cost: |problem, threads| {
        // Nanoseconds for a result, and for each column of the window.
        const RESULT: f64 = 0.13;
        const COLUMN: f64 = 0.011;
        cost(problem, threads, RESULT + COLUMN * problem.cols as f64)
    },
    run: run_mean,
};

/// Any other means.
pub(super) static OF_MANY: Method = Method {
    variant: Variant::RunningSums,
    why: WHY,
    takes: is_counted,
    cost: |problem, threads| {
        // Nanoseconds for a result, with one channel and with several.
        const RESULT: [f64; 2] = [0.72, 0.52];
        cost(problem, threads, RESULT[usize::from(problem.planes > 1)])
    },
    run: run_mean,
};

const WHY: &str = "equal taps on u8 images run as running sums";

fn is_counted(request: &Request<'_>) -> bool {
    let Request { forms, pixels, .. } = *request;
    forms.is_mean && counts(forms.cols, forms.rows, pixels)
}

/// Where a result takes so many nanoseconds.
fn cost(problem: &Problem, threads: usize, each: f64) -> Cost {
    // Nanoseconds for a value beyond a row's ends.
    const BESIDE: f64 = 2.0;
    let jobs = bands(problem, problem.rows, threads);
    let again = 0.3 * (jobs * problem.rows) as f64 / problem.height as f64;
    let beside = BESIDE * (problem.cols * problem.planes * problem.height) as f64;
    Cost { nanoseconds: results(problem) * each * (1.0 + again) + beside, jobs }
}

fn run_mean(call: Call<'_, '_, '_>) -> Result<()> {
    let Call { isa, window, bytes, src, dst, filtered, stage, .. } = call;
    let Some(mean) = bytes.mean else { unreachable!("only means are taken") };
    run(isa, &window, mean, src, (dst, filtered), stage)
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

/// Filters the first `filtered` channels by a mean, and copies the others.
fn run(
    isa: Isa,
    window: &Window,
    mean: Mean,
    src: &ImageView<'_, u8>,
    results: (&mut ImageViewMut<'_, u8>, usize),
    stage: &Stage<'_>,
) -> Result<()> {
    let Window { cols, rows, .. } = *window;
    let (channels, factor) = (src.shape().channels, mean.factor());
    if !is_few(cols, rows) {
        return by_columns(isa, window, src, results, stage, |scratch: &mut Scratch<u32>, out| {
            let Scratch { columns, before, .. } = scratch;
            isa.run(Many { columns, before, out, cols, channels, factor });
        });
    }
    match mean.of_few(cols * rows) {
        Some(mean) => {
            by_columns(isa, window, src, results, stage, |scratch: &mut Scratch<u16>, out| {
                isa.run(Divide { mean, columns: &scratch.columns, cols, channels, out });
            })
        }
        None => by_columns(isa, window, src, results, stage, |scratch: &mut Scratch<u16>, out| {
            isa.run(Few { columns: &scratch.columns, out, cols, channels, factor });
        }),
    }
}

/// Keeps the sums of all columns under a row of windows, row by row, and calls `finish` with them
/// and the row of results. Where rows of pixels repeat, it copies the row of results above.
fn by_columns<C: Count>(
    isa: Isa,
    window: &Window,
    src: &ImageView<'_, u8>,
    (dst, filtered): (&mut ImageViewMut<'_, u8>, usize),
    stage: &Stage<'_>,
    finish: impl Fn(&mut Scratch<C>, &mut [u8]) + Sync,
) -> Result<()> {
    let Shape { width, height, channels } = src.shape();
    // A band first adds all the rows under its window.
    let band = band(height, window.rows, 1, stage.cut_for());
    // The row under tap row 0, for an anchor at 0; `None` outside the image.
    let row = |y: usize| window.row(y, 0, height).map(|y| src.row(y));
    share(stage, dst.bands_mut(band).enumerate(), |scratch: &mut Scratch<C>, (index, rows)| {
        let first = index * band;
        scratch.start(window, src.shape())?;
        let mut same = Same::default();
        for y in first..first + window.rows - 1 {
            same.add(row(y));
            isa.run(Descend { scratch, entering: row(y), leaving: None });
        }
        let mut above: Option<&mut [u8]> = None;
        for (y, out) in (first..).zip(rows) {
            let entering = row(y + window.rows - 1);
            same.add(entering);
            match above.filter(|_| same.count > window.rows && !copies(window.border)) {
                // The row that leaves is the same too, so no sum changes.
                Some(above) => out.copy_from_slice(above),
                None => {
                    let leaving = (y > first).then(|| row(y - 1));
                    isa.run(Descend { scratch, entering, leaving });
                    scratch.add_sides(window, channels);
                    finish(scratch, out);
                    window.restore(src, filtered, &(0..width), y, out);
                }
            }
            above = Some(out);
        }
        Ok(())
    })
}

/// How many of the last rows that came under the window are the same.
#[derive(Default)]
struct Same<'a> {
    last: Option<Option<&'a [u8]>>,
    count: usize,
}

impl<'a> Same<'a> {
    fn add(&mut self, row: Option<&'a [u8]>) {
        self.count = if self.last == Some(row) { self.count + 1 } else { 1 };
        self.last = Some(row);
    }
}

/// A thread's memory.
#[derive(Default)]
struct Scratch<C> {
    /// A row outside the image.
    outside: Vec<u8>,
    /// For each element of a row with the border's pixels on both sides, the sum of its column
    /// under the window; and [`CHUNK`] more.
    columns: Vec<C>,
    /// For each element, and one pixel more, the sum of all elements before it in its channel; if
    /// there are many columns.
    before: Vec<u32>,
    /// The elements that lie in the image.
    inside: Range<usize>,
    /// The other pixels of the padded row, and the image column that each copies, if it does not
    /// have the border's value.
    sides: Vec<(usize, Option<usize>)>,
}

impl<C: Count> Scratch<C> {
    /// Starts with sums of zero.
    fn start(&mut self, window: &Window, Shape { width, channels, .. }: Shape) -> Result<()> {
        let (len, padded) = (width * channels, width + window.cols - 1);
        if self.columns.is_empty() {
            self.outside = crate::memory::zeroed(len)?;
            self.outside.fill(window.border_value as u8);
            if !is_few(window.cols, window.rows) {
                self.before = crate::memory::zeroed((padded + 1) * channels)?;
            }
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
                let sum =
                    column.map_or(outside, |x| sums[(window.anchor_x + x) * channels + channel]);
                sums[at * channels + channel] = sum;
            }
        }
    }
}

/// Adds a row to the columns' sums and subtracts the one that leaves. A row outside the image is
/// `None`.
struct Descend<'a, C> {
    scratch: &'a mut Scratch<C>,
    entering: Option<&'a [u8]>,
    leaving: Option<Option<&'a [u8]>>,
}

impl<C: Count> Vectorized for Descend<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Scratch { outside, columns, inside, .. } = self.scratch;
        let columns = columns[inside.clone()].iter_mut().zip(self.entering.unwrap_or(outside));
        match self.leaving {
            None => columns.for_each(|(sum, &value)| *sum = sum.add(value)),
            Some(leaving) => {
                columns.zip(leaving.unwrap_or(outside)).for_each(|((sum, &entering), &leaving)| {
                    *sum = sum.add(entering).subtract(leaving);
                })
            }
        }
    }
}

/// Means under windows of any number of columns, from the sums of all columns before.
struct Many<'a> {
    columns: &'a [u32],
    before: &'a mut [u32],
    out: &'a mut [u8],
    cols: usize,
    channels: usize,
    factor: f64,
}

impl Vectorized for Many<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Self { columns, before, out, cols, channels, factor } = self;
        let columns = &columns[..columns.len() - CHUNK];
        match channels {
            1 => add_up::<1>(columns, before),
            2 => add_up::<2>(columns, before),
            3 => add_up::<3>(columns, before),
            _ => add_up::<4>(columns, before),
        }
        // The sums may wrap around; their difference is below 2^32 and is exact.
        let ends = before[cols * channels..].iter().zip(&*before);
        out.iter_mut()
            .zip(ends)
            .for_each(|(out, (end, start))| *out = Mean::byte(end.wrapping_sub(*start), factor));
    }
}

/// Means under windows of a few columns.
struct Few<'a> {
    columns: &'a [u16],
    out: &'a mut [u8],
    cols: usize,
    channels: usize,
    factor: f64,
}

impl Vectorized for Few<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Self { columns, out, cols, channels, factor } = self;
        let chunks = out.len().div_ceil(CHUNK);
        assert!(CHUNK * chunks + (cols - 1) * channels <= columns.len());
        for (chunk, out) in out.chunks_mut(CHUNK).enumerate() {
            // SAFETY: this is in `Vectorized::run`, and the columns of each chunk exist, as is
            // asserted.
            let all = unsafe {
                add_few::<L::Words>(0, columns.as_ptr().add(chunk * CHUNK), cols, channels)
            };
            out.iter_mut().zip(all).for_each(|(out, sum)| *out = Mean::byte(sum.into(), factor));
        }
    }
}

/// The sums of `cols` columns from each of the first few elements on, added to `start`.
///
/// # Safety
/// As for [`Words`]; there are `CHUNK + (cols - 1) * channels` elements.
#[inline(always)]
unsafe fn add_few<X: Words>(
    start: u16,
    columns: *const u16,
    cols: usize,
    channels: usize,
) -> [u16; CHUNK] {
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

impl MeanOfFew {
    /// The means of `cols` columns from each of the first few elements on.
    ///
    /// # Safety
    /// As for [`add_few`].
    #[inline(always)]
    unsafe fn chunk<X: Words, const IS_EVEN: bool>(
        self,
        columns: *const u16,
        cols: usize,
        channels: usize,
    ) -> [u8; CHUNK] {
        const { assert!(CHUNK.is_multiple_of(X::LEN)) };
        let mut quotients = [0; CHUNK];
        // SAFETY: the caller's promise; a chunk is whole vectors.
        unsafe {
            let sums = add_few::<X>(self.half(), columns, cols, channels);
            for at in (0..CHUNK).step_by(X::LEN) {
                self.divide::<X, IS_EVEN>(X::load(sums.as_ptr().add(at)))
                    .store(quotients.as_mut_ptr().add(at));
            }
        }
        quotients.map(|quotient: u16| quotient as u8)
    }
}

/// A row of means of a few pixels.
struct Divide<'a> {
    mean: MeanOfFew,
    columns: &'a [u16],
    cols: usize,
    channels: usize,
    out: &'a mut [u8],
}

impl Vectorized for Divide<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        if self.mean.count.is_multiple_of(2) {
            self.all::<L::Words, true>()
        } else {
            self.all::<L::Words, false>()
        }
    }
}

impl Divide<'_> {
    #[inline(always)]
    fn all<X: Words, const IS_EVEN: bool>(self) {
        let Self { mean, columns, cols, channels, out } = self;
        let chunks = out.len().div_ceil(CHUNK);
        assert!(CHUNK * chunks + (cols - 1) * channels <= columns.len());
        let (whole, rest) = out.as_chunks_mut::<CHUNK>();
        // SAFETY: this is in `Vectorized::run`, and the columns of each chunk exist, as is
        // asserted.
        unsafe {
            let mut columns = columns.as_ptr();
            for out in whole {
                *out = mean.chunk::<X, IS_EVEN>(columns, cols, channels);
                columns = columns.add(CHUNK);
            }
            if !rest.is_empty() {
                rest.copy_from_slice(
                    &mean.chunk::<X, IS_EVEN>(columns, cols, channels)[..rest.len()],
                );
            }
        }
    }
}

/// For each element the sum of those before it in its channel, of C; the running sums stay in
/// registers.
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
    for (before, columns) in
        rest.chunks_exact_mut(C).zip(columns[whole..].chunks_exact(C).chain([&[0; C][..]]))
    {
        step(before, columns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Filter;
    use crate::filter::whole::Divisor;

    fn mean(filter: &Filter) -> Option<Mean> {
        Mean::new(&filter.byte_filter().unwrap().whole)
    }

    /// All sums of all means of few pixels, on each set of instructions, by both divisions.
    #[test]
    fn quotients_are_exact() {
        for (count, isa) in (2..=256).flat_map(|count| Isa::all().map(move |isa| (count, isa))) {
            let mean = MeanOfFew::new(count).unwrap();
            let sums: Vec<u16> = (0..=255 * count as u16).collect();
            let mut columns = sums.clone();
            columns.resize(sums.len().next_multiple_of(CHUNK), 0);
            let (mut divided, mut multiplied) = (vec![0; sums.len()], vec![0; sums.len()]);
            isa.run(Divide { mean, columns: &columns, cols: 1, channels: 1, out: &mut divided });
            let factor = 1.0 / count as f64;
            isa.run(Few { columns: &columns, cols: 1, channels: 1, out: &mut multiplied, factor });
            for (sum, found) in divided.into_iter().zip(multiplied).enumerate() {
                let byte = Divisor::Number(count as u64).byte(sum as i128);
                assert_eq!(found, (byte, byte), "{sum} / {count}, {isa:?}");
            }
        }
    }

    /// Sums next to ties, of divisors up to the greatest, whatever the numerator.
    #[test]
    fn ties_of_large_means_are_exact() {
        let mut state = 7u64;
        let mut random = |bits: u32| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state >> (64 - bits)
        };
        for turn in 0..200_000 {
            let divisor = (random(28) >> random(4)).clamp(1, Mean::LIMIT);
            let numerator = if turn % 4 == 0 { random(20) as i64 - (1 << 19) } else { 1 };
            let sum = (2 * random(8) + 1) * divisor / 2 / numerator.unsigned_abs().max(1);
            for sum in sum.saturating_sub(1)..=sum + 1 {
                let Ok(sum) = u32::try_from(sum) else { continue };
                let found = Mean::byte(sum, Mean { numerator, divisor }.factor());
                let expected =
                    Divisor::Number(divisor).byte(i128::from(sum) * i128::from(numerator));
                assert_eq!(found, expected, "{sum} * {numerator} / {divisor}");
            }
        }
    }

    #[test]
    fn means_are_what_is_counted() {
        for text in [
            "box:size=6",
            "box:cols=3000,rows=50",
            "taps:0.5 0.5; 0.5 0.5",
            "taps:2 2; 2 2",
            "taps:-1 -1; -1 -1",
        ] {
            assert!(mean(&text.parse().unwrap()).is_some(), "{text}");
        }
        for text in
            ["taps:0.02777778 0.02777778", "taps:1 2", "gaussian:sigma=2", "unsharp:sigma=2"]
        {
            assert!(mean(&text.parse().unwrap()).is_none(), "{text}");
        }
        let of_f32 = Filter::from_taps(6, 6, &[1.0 / 36.0; 36]).unwrap();
        assert!(mean(&of_f32).unwrap().of_few(36).is_some());
    }
}
