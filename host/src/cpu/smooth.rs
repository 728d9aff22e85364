//! Symmetric rows and columns of a few taps for bytes, as small Gaussians have them: sums of 16-bit
//! whole numbers.
//!
//! A job is a band of rows. For each row, the column pass reads the rows under the window as they
//! are stored, and leaves sums in units of 1/256, those of even and of odd elements apart: then no
//! byte has to be moved to another lane, neither when bytes are read nor when results are stored.
//! The row pass sums them up. Whole numbers are rounded down after each product, by less than one
//! unit; [`Smooth::new`] adds up how far a sum may be off. A few results in a hundred lie so near a
//! half that this decides, and are summed again in 64 bits: symmetric pixels are added first, so
//! that takes few products. What even that leaves uncertain goes the way of all others
//! ([`crate::round`]).

mod again;
pub(super) mod numbers;
#[cfg(test)]
mod tests;

use super::bands::band;
use super::cost::{Cost, ROW, bands, results};
use super::method::{Call, Method};
use super::share::{PAGE, share};
use crate::image::{ImageView, ImageViewMut, Shape};
use crate::progress::Stage;
use crate::round::{self, Order, Rounder, places, places_room};
use crate::simd::{Isa, Lanes, Vectorized, Words};
use crate::window::Window;
use crate::{Result, Variant};
use again::Again;
use numbers::{CHANNELS, REACH, ROWS, Smooth, TAPS};

/// Numbers before the first element of a line, of the even ones or of the odd ones: more than any
/// reach, and as many as a cache line holds.
const BEFORE: usize = 32;

/// Numbers after the last: a vector that begins there, and the reach.
const AFTER: usize = 64;

pub(super) static SMOOTH: Method = Method {
    variant: Variant::Separable,
    why: "a few symmetric taps over bytes are summed up in 16 bits, by rows and columns",
    takes: |request| request.forms.smooth.is_some() && request.channels <= CHANNELS,
    cost: |problem, threads| {
        // Nanoseconds for a result of three and of five taps each way.
        const RESULT: [f64; 2] = [0.22, 0.43];
        let reach = problem.rounding.and_then(|rounding| rounding.forms.smooth).unwrap_or(REACH);
        let nanoseconds =
            results(problem) * RESULT[usize::from(reach > 1)] + ROW * problem.height as f64;
        Cost { nanoseconds, jobs: bands(problem, 2 * reach + 1, threads) }
    },
    run: |call| {
        let Call { isa, window, bytes, resolver, src, dst, filtered, stage, .. } = call;
        let Some(smooth) = &bytes.smooth else { unreachable!("such a filter was taken") };
        let rounder = Rounder::in_f32(resolver, Order::BlockPasses);
        run(isa, smooth, &window, src, (dst, filtered), &rounder, stage)
    },
};

/// Filters the first `filtered` channels, and copies the others. `rounder` resolves what is left
/// uncertain.
fn run(
    isa: Isa,
    smooth: &Smooth,
    window: &Window,
    src: &ImageView<'_, u8>,
    (dst, filtered): (&mut ImageViewMut<'_, u8>, usize),
    rounder: &Rounder<'_, f32>,
    stage: &Stage<'_>,
) -> Result<()> {
    let Shape { width, height, channels } = src.shape();
    let (reach, border) = (smooth.reach, (window.border_value as u8, channels));
    let around = around(window, reach);
    let spread = smooth.spread(channels);
    let band = band(height, around.rows, 1, stage.cut_for());
    let stride = dst.stride();
    share(stage, dst.bands_mut(band).enumerate(), |scratch: &mut Scratch, (index, rows)| {
        scratch.prepare(&around, src.shape())?;
        for (y, out) in (index * band..).zip(rows) {
            let Scratch { outside, lines, sides, masks, uncertain, left, rounder: memory } =
                &mut *scratch;
            let under = under(&around, src, outside, y);
            // Within a page the processor prefetches by itself.
            let below = around.row(y + 1, around.rows - 1, height).filter(|_| out.len() > PAGE);
            let ahead =
                below.map(|below| [src.row(below).as_ptr(), out.as_ptr().wrapping_add(stride)]);
            let found = isa.run(Row {
                smooth,
                under: &under,
                ahead,
                lines,
                sides,
                border,
                masks,
                uncertain,
                out,
            });
            left.clear();
            let uncertain = &uncertain[..found];
            isa.run(Again {
                smooth,
                under: &under,
                channels,
                spread: spread.as_ref(),
                uncertain,
                out,
                left,
            });
            if !left.is_empty() {
                rounder.resolve(isa, (0, y), left, out, memory);
            }
            window.restore(src, filtered, &(0..width), y, out);
        }
        Ok(())
    })
}

/// A window as wide and as high as the greater of both passes, with taps of zero.
fn around(window: &Window, reach: usize) -> Window {
    let side = 2 * reach + 1;
    Window { cols: side, rows: side, anchor_x: reach, anchor_y: reach, ..*window }
}

/// The rows under the window of row `y`. A row that is not in the image is `outside`.
fn under<'a>(
    window: &Window,
    src: &'a ImageView<'_, u8>,
    outside: &'a [u8],
    y: usize,
) -> [&'a [u8]; ROWS] {
    std::array::from_fn(|row| match row < window.rows {
        true => window.row(y, row, src.shape().height).map_or(outside, |y| src.row(y)),
        false => &[],
    })
}

/// A thread's memory.
#[derive(Default)]
struct Scratch {
    /// A row outside the image.
    outside: Vec<u8>,
    lines: Lines,
    /// The elements on both sides of a line, and those that they copy. Without one, it is the
    /// border's value.
    sides: Vec<(isize, Option<usize>)>,
    /// A bit for each uncertain result.
    masks: Vec<u64>,
    /// A row's uncertain results, in ascending order.
    uncertain: Vec<u32>,
    /// Those that are still uncertain.
    left: Vec<usize>,
    rounder: round::Scratch,
}

impl Scratch {
    fn prepare(&mut self, window: &Window, Shape { width, channels, .. }: Shape) -> Result<()> {
        if !self.outside.is_empty() {
            return Ok(());
        }
        let (len, reach) = (width * channels, window.anchor_x);
        let numbers = BEFORE + len.div_ceil(2) + AFTER;
        self.lines = Lines { even: aligned(numbers)?, odd: aligned(numbers)? };
        self.masks = crate::memory::zeroed(len.div_ceil(16))?;
        self.uncertain = crate::memory::zeroed(places_room(len))?;
        self.left = crate::memory::reserve(len)?;
        self.sides = crate::memory::reserve(2 * reach * channels)?;
        for distance in 1..=reach {
            let left = (-(distance as isize), window.column(0, reach - distance, width));
            let right = (
                (width + distance - 1) as isize,
                window.column(width - 1, reach + distance, width),
            );
            for (x, column) in [left, right] {
                let element = |channel: usize| x * channels as isize + channel as isize;
                self.sides.extend(
                    (0..channels).map(|at| (element(at), column.map(|x| x * channels + at))),
                );
            }
        }
        // Last, as it tells that all are allocated.
        self.outside = crate::memory::zeroed(len)?;
        self.outside.fill(window.border_value as u8);
        Ok(())
    }
}

/// The column pass's sums: those of even elements, and those of odd ones.
#[derive(Default)]
struct Lines {
    even: Vec<Aligned>,
    odd: Vec<Aligned>,
}

/// A cache line.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Aligned([u16; 32]);

fn aligned(numbers: usize) -> Result<Vec<Aligned>> {
    crate::memory::zeroed(numbers.div_ceil(32))
}

impl Lines {
    /// Where the sums of the first even and of the first odd element are.
    ///
    /// # Safety
    /// Each line has more than [`BEFORE`] numbers.
    #[inline(always)]
    unsafe fn starts(&mut self) -> [*mut u16; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            [&mut self.even, &mut self.odd].map(|line| line.as_mut_ptr().cast::<u16>().add(BEFORE))
        }
    }

    /// The sum of an element; those on the left have negative numbers.
    #[inline(always)]
    fn at(&mut self, element: isize) -> &mut u16 {
        let line = if element.rem_euclid(2) == 0 { &mut self.even } else { &mut self.odd };
        let at = BEFORE.wrapping_add_signed(element.div_euclid(2));
        &mut line[at / 32].0[at % 32]
    }
}

/// A row of results, but the uncertain ones.
struct Row<'a> {
    smooth: &'a Smooth,
    /// The rows under the window.
    under: &'a [&'a [u8]; ROWS],
    /// The row of pixels and the row of results that the next call begins with, to prefetch.
    ahead: Option<[*const u8; 2]>,
    lines: &'a mut Lines,
    sides: &'a [(isize, Option<usize>)],
    /// The border's value, and the number of channels.
    border: (u8, usize),
    masks: &'a mut [u64],
    uncertain: &'a mut [u32],
    out: &'a mut [u8],
}

impl Vectorized for Row<'_> {
    /// How many are uncertain.
    type Output = usize;

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> usize {
        match self.smooth.reach {
            1 => self.sum::<L, 1>(),
            _ => self.sum::<L, REACH>(),
        }
    }
}

impl Row<'_> {
    /// Both passes.
    #[inline(always)]
    fn sum<L: Lanes, const K: usize>(mut self) -> usize {
        let (len, bytes) = (self.out.len(), 2 * L::Words::LEN);
        let blocks = len.div_ceil(bytes);
        let numbers = 32 * self.lines.even.len().min(self.lines.odd.len());
        assert!(self.under[..=2 * K].iter().all(|row| row.len() == len));
        assert!(K * self.border.1 < BEFORE);
        assert!(numbers >= BEFORE + len.div_ceil(2) + AFTER && self.masks.len() >= blocks);
        const { assert!(2 * L::Words::LEN <= 64) };

        // SAFETY: this is in `Vectorized::run`. The rows are as long as the results, a line has
        // numbers for all blocks, and for less than a cache line before and after them, as is
        // asserted.
        unsafe {
            self.column_pass::<L, K>();
            self.fill_sides();
            self.row_pass::<L, K>();
        }
        places(&self.masks[..blocks], bytes, self.uncertain)
    }

    /// Leaves the sums of columns in the lines.
    ///
    /// # Safety
    /// As for [`Words`]; the first `2 * K + 1` rows are as long as the results, and the lines have
    /// [`BEFORE`] numbers and then those of all blocks.
    #[inline(always)]
    unsafe fn column_pass<L: Lanes, const K: usize>(&mut self) {
        let (len, bytes) = (self.out.len(), 2 * L::Words::LEN);
        let whole = len / bytes * bytes;
        // SAFETY: the caller's promise. Whole blocks lie in the rows, and the last one is taken
        // from copies.
        unsafe {
            let [even, odd] = self.lines.starts();
            let taps = Taps::<L::Words, K>::new(&self.smooth.column);
            let lines_under = self.under.map(<[u8]>::as_ptr);
            for at in (0..whole).step_by(bytes) {
                for ahead in self.ahead.into_iter().flatten() {
                    L::prefetch(ahead.wrapping_add(at));
                }
                let sums = taps.column(&lines_under, at);
                sums[0].store(even.add(at / 2));
                sums[1].store(odd.add(at / 2));
            }
            if whole < len {
                let mut rest = [[0; 64]; ROWS];
                rest.iter_mut().zip(&self.under[..=2 * K]).for_each(|(rest, row)| {
                    rest[..len - whole].copy_from_slice(&row[whole..]);
                });
                let sums = taps.column(&rest.each_ref().map(|rest| rest.as_ptr()), 0);
                sums[0].store(even.add(whole / 2));
                sums[1].store(odd.add(whole / 2));
            }
        }
    }

    /// The sums of columns beside the image.
    #[inline(always)]
    fn fill_sides(&mut self) {
        // The sum of a column outside.
        let mut outside = None;
        for &(element, copied) in self.sides {
            *self.lines.at(element) = match copied {
                Some(copied) => *self.lines.at(copied as isize),
                None => *outside.get_or_insert_with(|| self.smooth.column_of(self.border.0)),
            };
        }
    }

    /// Sums the lines up to results, with a bit for each uncertain one.
    ///
    /// # Safety
    /// As for [`Words`]; the lines have [`BEFORE`] numbers, then those of all blocks and of `K`
    /// pixels. So many pixels have fewer than [`BEFORE`] numbers.
    #[inline(always)]
    unsafe fn row_pass<L: Lanes, const K: usize>(&mut self) {
        let Self { smooth, lines, border: (_, channels), masks, out, .. } = self;
        let (len, bytes) = (out.len(), 2 * L::Words::LEN);
        let whole = len / bytes * bytes;
        // SAFETY: the caller's promise.
        unsafe {
            let [even, odd] = lines.starts().map(<*mut u16>::cast_const);
            let taps = Taps::<L::Words, K>::new(&smooth.row);
            let limits =
                (L::Words::splat(smooth.bias), L::Words::splat(u16::from(smooth.margin) * 0x101));
            // The numbers as far on each side as a tap is, for each of its results at even places,
            // and at odd ones.
            let mut beside = [[[even; 2]; K]; 2];
            for (parity, beside) in (0..).zip(&mut beside) {
                for (step, beside) in (*channels as isize..).step_by(*channels).zip(beside) {
                    *beside = [parity - step, parity + step].map(|element| {
                        let line = if element % 2 == 0 { even } else { odd };
                        line.offset(element.div_euclid(2))
                    });
                }
            }
            for (block, mask) in masks[..whole / bytes].iter_mut().enumerate() {
                let (results, uncertain) =
                    taps.row([even, odd], &beside, block * L::Words::LEN, limits);
                results.store_bytes(out.as_mut_ptr().add(block * bytes));
                *mask = uncertain;
            }
            if whole < len {
                let (results, uncertain) = taps.row([even, odd], &beside, whole / 2, limits);
                let mut rest = [0; 64];
                results.store_bytes(rest.as_mut_ptr());
                out[whole..].copy_from_slice(&rest[..len - whole]);
                masks[whole / bytes] = uncertain & ((1 << (len - whole)) - 1);
            }
        }
    }
}

/// A symmetric row or column of taps in vectors.
struct Taps<X, const K: usize> {
    middle: X,
    sides: [X; K],
}

impl<X: Words, const K: usize> Taps<X, K> {
    /// # Safety
    /// As for [`Words`].
    #[inline(always)]
    unsafe fn new(taps: &[u16; TAPS]) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let mut sides = [X::splat(0); K];
            for k in 0..K {
                sides[k] = X::splat(taps[k + 1]);
            }
            Self { middle: X::splat(taps[0]), sides }
        }
    }

    /// The sums of columns, those of even elements and of odd ones.
    ///
    /// # Safety
    /// As for [`Words`]; each of the first `2 * K + 1` rows points to `at + 2 * X::LEN` bytes.
    #[inline(always)]
    unsafe fn column(&self, rows: &[*const u8; ROWS], at: usize) -> [X; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let middle = X::load_bytes(rows[K].add(at));
            let mut even = middle.even().high_product(self.middle);
            let mut odd = middle.odd().high_product(self.middle);
            for k in 0..K {
                let above = X::load_bytes(rows[K - 1 - k].add(at));
                let below = X::load_bytes(rows[K + 1 + k].add(at));
                even = even.add(above.even().average(below.even()).high_product(self.sides[k]));
                odd = odd.add(above.odd().average(below.odd()).high_product(self.sides[k]));
            }
            [even, odd]
        }
    }

    /// Results from the numbers at `at` on, and a bit for each that is uncertain. `beside` is what
    /// lies to the left and to the right of even elements, and of odd ones; `limits` the bias, and
    /// the greatest lower byte of the uncertain ones.
    ///
    /// # Safety
    /// As for [`Words`]; each line points to `at + X::LEN` numbers.
    #[inline(always)]
    unsafe fn row(
        &self,
        lines: [*const u16; 2],
        beside: &[[[*const u16; 2]; K]; 2],
        at: usize,
        (bias, limit): (X, X),
    ) -> (X, u64) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums = [bias; 2];
            for parity in 0..2 {
                let mut sum = X::load(lines[parity].add(at)).high_product(self.middle).add(bias);
                for (&[left, right], &tap) in beside[parity].iter().zip(&self.sides) {
                    let mean = X::load(left.add(at)).average(X::load(right.add(at)));
                    sum = sum.add(mean.high_product(tap));
                }
                sums[parity] = sum;
            }
            let [even, odd] = sums;
            (even.upper_bytes(odd), even.lower_bytes(odd).bytes_at_most(limit))
        }
    }
}
