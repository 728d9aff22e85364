//! Symmetric rows and columns of a few taps for bytes, as small Gaussians have them: sums of 16-bit whole numbers.
//!
//! A job is a band of rows. For each row, the column pass reads the rows under the window as they are stored, and leaves sums in units of
//! 1/256, those of even and of odd elements apart: then no byte has to be moved to another lane, neither when bytes are read nor when
//! results are stored. The row pass sums them up. Whole numbers are rounded down after each product, by less than one unit; [`Smooth::new`]
//! adds up how far a sum may be off. A few results in a hundred lie so near a half that this decides, and are summed again
//! in 64 bits: symmetric pixels are added first, so that takes few products. What even that leaves in doubt goes the way of all others
//! ([`crate::round`]).

use super::bands::{PAGE, band};
use super::share::share;
use crate::filter::lowest_bit;
use crate::image::{ImageView, ImageViewMut, Shape};
use crate::progress::Stage;
use crate::round::{self, Rounder, places, places_room};
use crate::simd::{Isa, Lanes, Words, Work};
use crate::window::Window;
use crate::{Filter, Result};

/// The most taps to each side of the middle. With 7 taps 4 % of the sums in 16 bits are in doubt, and f32 takes no longer.
const REACH: usize = 2;

/// The most channels: the second sum is compiled for each number, and a line has room for the reach of so many.
pub(super) const CHANNELS: usize = 4;

/// Taps from the middle on.
const TAPS: usize = REACH + 1;

/// The most rows under a window.
const ROWS: usize = 2 * REACH + 1;

/// A unit of sums in 16 bits is 1/256, one of those in 64 bits 2^-29: then a tap has two halves of 15 bits, whose products with two pixels
/// have room in 32. The f64 sums of taps that are whole in it are exact.
const UNIT: f64 = 256.0;
const BITS: u32 = 29;
const HALF_BITS: u32 = 15;
const FINE_UNIT: f64 = (1u64 << BITS) as f64;

/// Numbers before the first element of a line, of the even ones or of the odd ones: more than any reach, and as many as a cache line holds.
const BEFORE: usize = 32;

/// Numbers after the last: a vector that begins there, and the reach.
const AFTER: usize = 64;

/// A filter in whole numbers.
#[derive(Debug)]
pub(super) struct Smooth {
    /// Taps to each side of the middle.
    reach: usize,
    /// The middle tap of the column, and twice each next one, times 2^16.
    column: [u16; TAPS],
    row: [u16; TAPS],
    /// Is added to a sum in 16 bits. Then its upper byte is the result, unless the lower one is at most `doubt`.
    bias: u16,
    doubt: u8,
    /// The taps, a row for each distance from the middle row.
    fine: [[u64; TAPS]; TAPS],
    /// How far a sum in 64 bits may lie from the exact one; 0 if it is exact.
    error: u64,
}

/// How many ways to divide the taps' weight between row and column are tried, and how far the column's sum may then be from 1.
const SPLITS: usize = 128;
const SPLIT: f64 = 1.0 / 280.0;

/// The taps of one pass, and how far its sums may be off.
#[derive(Clone, Copy)]
struct Pass {
    taps: [u16; TAPS],
    /// The sum of the exact taps, and without the middle one.
    weight: f64,
    beside: f64,
    below: f64,
    above: f64,
}

impl Pass {
    /// Of the middle tap and those beside it, each rounded by `round`, for values of at most 65535. What is multiplied with the middle tap is
    /// a multiple of the first unit, and with another of the second.
    fn new(exact: &[f64; TAPS], units: [u64; 2], round: fn(f64) -> f64) -> Self {
        let (mut taps, mut weight, mut below, mut above) = ([0; TAPS], 0.0, 0.0, 0.0);
        for (i, (tap, &exact)) in taps.iter_mut().zip(exact).enumerate() {
            // One factor for the mean of two pixels.
            let (exact, unit) = if i == 0 { (exact, units[0]) } else { (2.0 * exact, units[1]) };
            *tap = round(exact * 65536.0).min(65535.0) as u16;
            let loss = f64::from(*tap) - exact * 65536.0;
            // A product is a multiple of this many parts of 65536, so less than one unit is lost.
            let step = 1u64 << ((unit * u64::from(*tap)) | 65536).trailing_zeros();
            weight += exact;
            below += loss.min(0.0) - (1.0 - step as f64 / 65536.0);
            above += loss.max(0.0);
        }
        Self { taps, weight, beside: weight - exact[0], below, above }
    }
}

/// Both passes: with `bias` added to a sum in 16 bits, its upper byte is the result, unless the lower one is at most `doubt`.
struct Passes {
    column: Pass,
    row: Pass,
    bias: f64,
    doubt: f64,
}

impl Passes {
    /// `rest` is how far the taps as given are from the whole ones, in units of sums. `None` where 16 bits have no room.
    fn new(column: &[f64; TAPS], row: &[f64; TAPS], rest: f64, round: fn(f64) -> f64) -> Option<Self> {
        // A pixel is multiplied by 256 units, and the sum of two by 128.
        let (column, row) = (Pass::new(column, [256, 128], round), Pass::new(row, [1, 1], round));
        // A sum s in 16 bits and the true one t, both in units: t + below <= s <= t + above. What a row pass takes is off by what the
        // column pass left, times all taps, and by half a unit where a mean is rounded up.
        let below = column.below * row.weight + row.below - rest;
        let above = column.above * row.weight + row.above + row.beside / 2.0 + rest;
        // Then s + bias - doubt <= t + 128 <= s + bias: where all lie between two multiples of 256, the upper byte is the result.
        let bias = (128.0 - below).ceil();
        let doubt = above + bias - 128.0;
        let greatest = 255.0 * UNIT * column.weight;
        let fits = greatest + column.above < 65535.0 && greatest * row.weight + above + bias < 65535.0 && doubt < 64.0;
        fits.then_some(Self { column, row, bias, doubt: doubt.floor() })
    }
}

impl Smooth {
    /// A filter of a symmetric row and a symmetric column whose taps are not negative and add up to 1 at most; `None` for others.
    pub(super) fn new(filter: &Filter, window: &Window) -> Option<Self> {
        let (row, column) = filter.separated()?;
        let bits = lowest_bit(row) + lowest_bit(column);
        let reach = row.len().max(column.len()) / 2;
        let odd = row.len() % 2 == 1 && column.len() % 2 == 1;
        let centred = (window.anchor_x, window.anchor_y) == (row.len() / 2, column.len() / 2);
        if !(1..=REACH).contains(&reach) || !odd || !centred {
            return None;
        }
        let from_the_middle = |taps: &[f64], factor: f64| {
            let middle = taps.len() / 2;
            let symmetric = taps.iter().eq(taps.iter().rev());
            let taps: [f64; TAPS] = std::array::from_fn(|i| taps.get(middle + i).map_or(0.0, |tap| factor * tap));
            (symmetric && taps.iter().all(|tap| (0.0..=1.0).contains(tap))).then_some(taps)
        };
        // The column's sum becomes 1.
        let scale: f64 = column.iter().sum();
        let (column, row) = (from_the_middle(column, 1.0 / scale)?, from_the_middle(row, scale)?);

        let fine = column.map(|down| row.map(|across| (down * across * FINE_UNIT).round() as u64));
        // How far the taps in both forms are from the whole ones, whose products `tap` gives in f64.
        let (mut loss, mut fine_loss) = (0.0, 0.0);
        for r in 0..window.rows {
            for c in 0..window.cols {
                let tap = filter.tap(r, c);
                let (down, across) = (r.abs_diff(window.anchor_y), c.abs_diff(window.anchor_x));
                loss += (tap - column[down] * row[across]).abs();
                fine_loss += (tap - fine[down][across] as f64 / FINE_UNIT).abs();
            }
        }
        // Taps that are whole in the fine unit have exact sums.
        let in_f64 = 4.0 * f64::EPSILON * filter.weight();
        let error = match fine_loss {
            0.0 if bits >= -(BITS as i32) => 0,
            _ => (1.01 * 255.0 * (fine_loss + in_f64) * FINE_UNIT).ceil() as u64 + 1,
        };
        if error >= 1 << (BITS - 8) {
            return None;
        }

        // A little more than follows from the taps, for the roundings of all this arithmetic, which are below 1e-9 units.
        let rest = 1.01 * (loss + in_f64) * 255.0 * UNIT + 1e-6;
        // Of the ways to divide the weight between both, one whose taps are nearly whole leaves fewest in doubt.
        let mut best: Option<Passes> = None;
        for split in 0..SPLITS {
            // The first is the middle.
            let at = (split + SPLITS / 2) % SPLITS;
            let split = 1.0 + SPLIT * (2.0 * at as f64 / SPLITS as f64 - 1.0);
            for round in [f64::round, f64::ceil] {
                let passes = Passes::new(&column.map(|tap| tap * split), &row.map(|tap| tap / split), rest, round);
                let fewer = |passes: &Passes| best.as_ref().is_none_or(|best| passes.doubt < best.doubt);
                if let Some(passes) = passes.filter(fewer) {
                    best = Some(passes);
                }
            }
        }
        best.map(|Passes { column, row, bias, doubt }| Self {
            reach,
            column: column.taps,
            row: row.taps,
            bias: bias as u16,
            doubt: doubt as u8,
            fine,
            error,
        })
    }
}

/// Filters the first `filtered` channels, and copies the others. `rounder` settles what is left in doubt.
pub(super) fn run(
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
    // As wide and as high as the greater of both passes, with taps of zero.
    let around = Window { cols: 2 * reach + 1, rows: 2 * reach + 1, anchor_x: reach, anchor_y: reach, ..*window };
    let spread = smooth.spread(channels);
    let band = band(height, around.rows, 1, stage.cut_for());
    let stride = dst.stride();
    share(stage, dst.bands_mut(band).enumerate(), |scratch: &mut Scratch, (index, rows)| {
        scratch.prepare(&around, src.shape())?;
        for (y, out) in (index * band..).zip(rows) {
            let Scratch { outside, lines, sides, masks, doubts, left, rounder: memory } = &mut *scratch;
            let mut under: [&[u8]; ROWS] = [&[]; ROWS];
            for (row, under) in under.iter_mut().take(around.rows).enumerate() {
                *under = around.row(y, row, height).map_or(&outside[..], |y| src.row(y));
            }
            // Within a page the processor prefetches by itself.
            let below = around.row(y + 1, around.rows - 1, height).filter(|_| out.len() > PAGE);
            let ahead = below.map(|below| [src.row(below).as_ptr(), out.as_ptr().wrapping_add(stride)]);
            let found = isa.run(Row { smooth, under: &under, ahead, lines, sides, border, masks, doubts, out });
            left.clear();
            let doubts = &doubts[..found];
            isa.run(Again { smooth, under: &under, channels, spread: spread.as_ref(), doubts, out, left });
            if !left.is_empty() {
                rounder.resolve(isa, (0, y), left, out, memory);
            }
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
    lines: Lines,
    /// The elements on both sides of a line, and those that they copy. Without one, it is the border's value.
    sides: Vec<(isize, Option<usize>)>,
    /// A bit for each result in doubt.
    masks: Vec<u64>,
    /// A row's results in doubt, in ascending order.
    doubts: Vec<u32>,
    /// Those that are still in doubt.
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
        self.doubts = crate::memory::zeroed(places_room(len))?;
        self.left = crate::memory::reserve(len)?;
        self.sides = crate::memory::reserve(2 * reach * channels)?;
        for distance in 1..=reach {
            let left = (-(distance as isize), window.column(0, reach - distance, width));
            let right = ((width + distance - 1) as isize, window.column(width - 1, reach + distance, width));
            for (x, column) in [left, right] {
                let element = |channel: usize| x * channels as isize + channel as isize;
                self.sides.extend((0..channels).map(|at| (element(at), column.map(|x| x * channels + at))));
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
    /// The sum of an element; those on the left have negative numbers.
    #[inline(always)]
    fn at(&mut self, element: isize) -> &mut u16 {
        let line = if element.rem_euclid(2) == 0 { &mut self.even } else { &mut self.odd };
        let at = BEFORE.wrapping_add_signed(element.div_euclid(2));
        &mut line[at / 32].0[at % 32]
    }
}

/// A row of results, but those in doubt.
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
    doubts: &'a mut [u32],
    out: &'a mut [u8],
}

impl Work for Row<'_> {
    /// How many are in doubt.
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
    fn sum<L: Lanes, const K: usize>(self) -> usize {
        let Self { smooth, under, ahead, lines, sides, border: (value_outside, channels), masks, doubts, out } = self;
        let (len, bytes) = (out.len(), 2 * L::Words::LEN);
        let (whole, blocks) = (len / bytes * bytes, len.div_ceil(bytes));
        let numbers = 32 * lines.even.len().min(lines.odd.len());
        assert!(under[..=2 * K].iter().all(|row| row.len() == len) && K * channels < BEFORE);
        assert!(numbers >= BEFORE + len.div_ceil(2) + AFTER && masks.len() >= blocks);
        const { assert!(2 * L::Words::LEN <= 64) };

        // SAFETY: this is in a `Work`. Whole blocks lie in the rows, and the last one is taken from copies. A line has numbers for all
        // blocks, and for less than a cache line before and after them, as is asserted.
        unsafe {
            let (even, odd) = (lines.even.as_mut_ptr().cast::<u16>(), lines.odd.as_mut_ptr().cast::<u16>());
            let (even, odd) = (even.add(BEFORE), odd.add(BEFORE));
            let taps = Taps::<L::Words, K>::new(&smooth.column);
            let lines_under = under.map(<[u8]>::as_ptr);
            for at in (0..whole).step_by(bytes) {
                for ahead in ahead.into_iter().flatten() {
                    L::prefetch(ahead.wrapping_add(at));
                }
                let sums = taps.column(&lines_under, at);
                sums[0].store(even.add(at / 2));
                sums[1].store(odd.add(at / 2));
            }
            if whole < len {
                let mut rest = [[0; 64]; ROWS];
                rest.iter_mut().zip(&under[..=2 * K]).for_each(|(rest, row)| {
                    rest[..len - whole].copy_from_slice(&row[whole..]);
                });
                let sums = taps.column(&rest.each_ref().map(|rest| rest.as_ptr()), 0);
                sums[0].store(even.add(whole / 2));
                sums[1].store(odd.add(whole / 2));
            }
        }

        // The sum of a column outside.
        let mut outside = None;
        for &(element, copied) in sides {
            *lines.at(element) = match copied {
                Some(copied) => *lines.at(copied as isize),
                None => *outside.get_or_insert_with(|| smooth.column_of(value_outside)),
            };
        }

        // SAFETY: as above.
        unsafe {
            let (even, odd) = (lines.even.as_ptr().cast::<u16>(), lines.odd.as_ptr().cast::<u16>());
            let (even, odd) = (even.add(BEFORE), odd.add(BEFORE));
            let taps = Taps::<L::Words, K>::new(&smooth.row);
            let limits = (L::Words::splat(smooth.bias), L::Words::splat(u16::from(smooth.doubt) * 0x101));
            // The numbers as far on each side as a tap is, for each of its results at even places, and at odd ones.
            let mut beside = [[[even; 2]; K]; 2];
            for (parity, beside) in (0..).zip(&mut beside) {
                for (step, beside) in (channels as isize..).step_by(channels).zip(beside) {
                    *beside = [parity - step, parity + step].map(|element| {
                        let line = if element % 2 == 0 { even } else { odd };
                        line.offset(element.div_euclid(2))
                    });
                }
            }
            for (block, mask) in masks[..whole / bytes].iter_mut().enumerate() {
                let (results, in_doubt) = taps.row([even, odd], &beside, block * L::Words::LEN, limits);
                results.store_bytes(out.as_mut_ptr().add(block * bytes));
                *mask = in_doubt;
            }
            if whole < len {
                let (results, in_doubt) = taps.row([even, odd], &beside, whole / 2, limits);
                let mut rest = [0; 64];
                results.store_bytes(rest.as_mut_ptr());
                out[whole..].copy_from_slice(&rest[..len - whole]);
                masks[blocks - 1] = in_doubt & ((1 << (len - whole)) - 1);
            }
        }
        places(&masks[..blocks], bytes, doubts)
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

    /// Results from the numbers at `at` on, and a bit for each that is in doubt. `beside` is what lies to the left and to the right of even
    /// elements, and of odd ones; `limits` the bias, and the greatest lower byte of those in doubt.
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

/// For each distance from the middle row, the upper halves of its taps and the lower ones, with zeros in between.
type Spread = [[[i16; 16]; 2]; TAPS];

/// Stores the results in doubt that sums in 64 bits decide; the others are `left`.
struct Again<'a> {
    smooth: &'a Smooth,
    /// The rows under the window.
    under: &'a [&'a [u8]; ROWS],
    channels: usize,
    spread: Option<&'a Spread>,
    doubts: &'a [u32],
    out: &'a mut [u8],
    left: &'a mut Vec<usize>,
}

impl Work for Again<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        match (self.smooth.reach, self.channels) {
            (1, 1) => self.sum_each::<L, 1, 1>(),
            (1, 2) => self.sum_each::<L, 1, 2>(),
            (1, 3) => self.sum_each::<L, 1, 3>(),
            (1, _) => self.sum_each::<L, 1, CHANNELS>(),
            (_, 1) => self.sum_each::<L, REACH, 1>(),
            (_, 2) => self.sum_each::<L, REACH, 2>(),
            (_, 3) => self.sum_each::<L, REACH, 3>(),
            _ => self.sum_each::<L, REACH, CHANNELS>(),
        }
    }
}

impl Again<'_> {
    #[inline(always)]
    fn sum_each<L: Lanes, const K: usize, const C: usize>(self) {
        let Self { smooth, under, channels, spread, doubts, out, left } = self;
        assert!(C == channels && K == smooth.reach);
        let len = under[..=2 * K].iter().map(|row| row.len()).min().unwrap_or(0);
        for &doubt in doubts {
            let at = doubt as usize;
            let first = at.wrapping_sub(K * C);
            let halves = match spread {
                Some(spread) if at >= K * C && first + 16 <= len => {
                    let mut beside = [[under[K].as_ptr(); 2]; K];
                    // SAFETY: this is in a `Work`, and each row has 16 bytes from the first one on.
                    unsafe {
                        for k in 0..K {
                            beside[k] = [under[K - 1 - k].as_ptr().add(first), under[K + 1 + k].as_ptr().add(first)];
                        }
                        L::weigh(under[K].as_ptr().add(first), &beside, spread)
                    }
                }
                _ => None,
            };
            let sum = match halves {
                Some([upper, lower]) => Some((u64::from(upper) << HALF_BITS) + u64::from(lower)),
                None => smooth.fine_sum::<K, C>(under, at),
            };
            match sum.and_then(|sum| smooth.rounded(sum)) {
                Some(result) => out[at] = result,
                None => left.push(at),
            }
        }
    }
}

/// The taps to each side of the middle, where filters of bytes are taken here.
pub(super) fn smooth_reach(filter: &Filter, window: &Window) -> Option<usize> {
    Smooth::new(filter, window).map(|smooth| smooth.reach)
}

impl Smooth {
    /// The sum of a column of equal pixels, in units.
    fn column_of(&self, value: u8) -> u16 {
        self.column.iter().map(|&tap| (((u32::from(value) << 8) * u32::from(tap)) >> 16) as u16).sum()
    }

    /// The halves of the taps, each as far from the next as the same channel of neighbouring pixels; `None` if 16 bytes do not hold a row.
    fn spread(&self, channels: usize) -> Option<Spread> {
        let mut spread = [[[0; 16]; 2]; TAPS];
        for (halves, taps) in spread.iter_mut().zip(&self.fine) {
            for column in 0..=2 * self.reach {
                let tap = taps[column.abs_diff(self.reach)];
                let parts = [tap >> HALF_BITS, tap & ((1 << HALF_BITS) - 1)];
                for (half, part) in halves.iter_mut().zip(parts) {
                    // A tap is at most 1, so its upper half is at most 2^14.
                    *half.get_mut(column * channels)? = part as i16;
                }
            }
        }
        Some(spread)
    }

    /// The sum at an element, if its window lies in the rows.
    #[inline(always)]
    fn fine_sum<const K: usize, const C: usize>(&self, under: &[&[u8]; ROWS], at: usize) -> Option<u64> {
        let first = at.checked_sub(K * C)?;
        let len = under[K].len();
        if at + K * C >= len {
            return None;
        }
        let mut sum = 0;
        for k in 0..=K {
            let above = under[K - k].get(first..first + 2 * K * C + 1)?;
            let below = under[K + k].get(first..first + 2 * K * C + 1)?;
            let pixels = |at: usize| match k {
                0 => u32::from(above[at]),
                _ => u32::from(above[at]) + u32::from(below[at]),
            };
            sum += u64::from(pixels(K * C)) * self.fine[k][0];
            for side in 1..=K {
                sum += u64::from(pixels((K - side) * C) + pixels((K + side) * C)) * self.fine[k][side];
            }
        }
        Some(sum)
    }

    /// The byte nearest to a sum in 64 bits, if no error could change it.
    #[inline(always)]
    fn rounded(&self, sum: u64) -> Option<u8> {
        const HALF: u64 = 1 << (BITS - 1);
        const REST: u64 = (1 << BITS) - 1;
        let shifted = sum + HALF;
        let byte = (shifted >> BITS).min(255) as u8;
        if shifted.wrapping_add(self.error) & REST > 2 * self.error {
            return Some(byte);
        }
        // Half to even, where the sum is exact.
        (self.error == 0).then_some(byte & !1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Image;
    use crate::border::Border;
    use crate::progress::Report;
    use crate::round::tests::defined;
    use crate::round::{Bounds, Order, Resolver};

    const SETS: [&str; 4] = ["portable", "avx2", "avx512", "neon"];
    const BORDERS: [Border; 8] = [
        Border::Constant(0.0),
        Border::Constant(255.0),
        Border::Constant(77.0),
        Border::Replicate,
        Border::Reflect,
        Border::Reflect101,
        Border::Wrap,
        Border::Keep,
    ];

    struct Random(u64);

    impl Random {
        fn byte(&mut self) -> u8 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 56) as u8
        }
    }

    /// Symmetric taps with a sum of 1, unlike each other.
    fn taps(len: usize, random: &mut Random) -> Vec<f64> {
        let half: Vec<f64> = (0..=len / 2).map(|_| f64::from(random.byte()) + 1.0).collect();
        let taps: Vec<f64> = (0..len).map(|i| half[i.abs_diff(len / 2)]).collect();
        let sum: f64 = taps.iter().sum();
        taps.iter().map(|tap| tap / sum).collect()
    }

    fn gaussian(len: usize, sigma: f64) -> Vec<f64> {
        let taps: Vec<f64> = (0..len).map(|i| (-(i.abs_diff(len / 2) as f64 / sigma).powi(2) / 2.0).exp()).collect();
        let sum: f64 = taps.iter().sum();
        taps.iter().map(|tap| tap / sum).collect()
    }

    /// Filters of every kind that is taken.
    fn filters() -> Vec<Filter> {
        let mut random = Random(5);
        let mut filters: Vec<Filter> =
            ["box:size=3", "box:size=5", "gaussian:sigma=0.5"].map(|text| text.parse().unwrap()).into();
        for (row, column) in [(3, 3), (5, 5), (3, 5), (5, 1), (1, 3)] {
            filters.push(Filter::separable_f64(&taps(row, &mut random), &taps(column, &mut random)).unwrap());
        }
        // The sums of these are exact, and many are ties.
        filters.push(Filter::separable_f64(&[0.25, 0.5, 0.25], &[0.25, 0.5, 0.25]).unwrap());
        filters.push(Filter::separable_f64(&[0.5, 0.0, 0.5], &[1.0]).unwrap());
        filters.push(
            Filter::separable_f64(
                &[1.0, 4.0, 6.0, 4.0, 1.0].map(|tap| tap / 16.0),
                &[2.0, 4.0, 2.0].map(|tap| tap / 8.0),
            )
            .unwrap(),
        );
        // Many are ties in the exact arithmetic, which roundings decide.
        filters.push(Filter::separable_f64(&[0.1, 0.3, 0.1], &[1.0]).unwrap());
        // The weight lies in one factor, and the other's taps are negative.
        filters.push(Filter::separable_f64(&[-20.0, -60.0, -20.0], &[-0.001, -0.008, -0.001]).unwrap());
        // Taps whose factors have been found.
        filters.push(
            Filter::from_taps(3, 3, &[0.0625, 0.125, 0.0625, 0.125, 0.25, 0.125, 0.0625, 0.125, 0.0625]).unwrap(),
        );
        filters
    }

    fn picture(kind: usize, len: usize) -> Vec<u8> {
        let mut random = Random(len as u64 + 1);
        (0..len)
            .map(|i| match kind {
                0 => random.byte(),
                1 => (i * 3 % 256) as u8,
                2 => {
                    if random.byte() < 128 {
                        0
                    } else {
                        255
                    }
                }
                _ => 200,
            })
            .collect()
    }

    fn check(filter: &Filter, border: Border, (width, height, channels): (usize, usize, usize), kind: usize) {
        let (window, of_bytes) = (Window::new(filter, border), filter.of_bytes().unwrap());
        let smooth = Smooth::new(&of_bytes.filter, &window).expect("a filter that is taken");
        let src = Image::from_vec(picture(kind, width * height * channels), width, height, channels).unwrap();
        let filtered = channels.min(3);
        let mut expected = src.as_slice().to_vec();
        for channel in 0..filtered {
            let plane: Vec<u8> = src.as_slice()[channel..].iter().step_by(channels).copied().collect();
            let plane = defined(&plane, (width, height), filter, border);
            expected[channel..].iter_mut().step_by(channels).zip(plane).for_each(|(to, byte)| *to = byte);
        }
        let bounds = Bounds::default();
        for isa in SETS.iter().filter_map(|name| Isa::named(name).ok()) {
            let mut found = Image::<u8>::zeroed(width, height, channels).unwrap();
            let resolver = Resolver::new(src.view(), filtered, of_bytes, border);
            let rounder = Rounder::in_f32(&resolver, &bounds, Order::BlockPasses);
            let report = Report::default();
            let (call, mut view) = (report.call(0), found.view_mut());
            run(isa, &smooth, &window, &src.view(), (&mut view, filtered), &rounder, &call.stage(0, 0)).unwrap();
            let wrong = found.as_slice().iter().zip(&expected).position(|(found, expected)| found != expected);
            assert_eq!(wrong, None, "{isa:?}, {filter:?}, {border:?}, {width}x{height}x{channels}, picture {kind}");
        }
    }

    #[test]
    fn bytes_are_exact() {
        let shapes =
            [(1, 1), (1, 7), (9, 1), (2, 3), (3, 2), (5, 5), (63, 3), (64, 4), (65, 5), (127, 2), (128, 3), (129, 4)];
        for filter in filters() {
            for (index, border) in BORDERS.into_iter().enumerate() {
                for (turn, &(width, height)) in shapes.iter().enumerate() {
                    for channels in 1..=4 {
                        check(&filter, border, (width, height, channels), (index + turn + channels) % 4);
                    }
                }
            }
            for (channels, kind) in [(1, 0), (1, 1), (3, 0), (3, 2), (4, 0), (2, 0)] {
                check(&filter, Border::Reflect101, (301, 120, channels), kind);
            }
        }
    }

    #[test]
    fn gaussians_of_any_sigma_are_taken() {
        for sigma in [0.3, 0.5, 0.8, 1.1, 3.0, 100.0] {
            for len in [3, 5] {
                let taps = gaussian(len, sigma);
                let filter = Filter::separable_f64(&taps, &taps).unwrap();
                let smooth = Smooth::new(&filter, &Window::new(&filter, Border::Reflect101)).unwrap();
                assert!(smooth.doubt <= if len == 3 { 5 } else { 8 }, "{len} taps, sigma {sigma}: {}", smooth.doubt);
                check(&filter, Border::Reflect101, (150, 100, 1), 0);
            }
        }
    }

    /// The bound holds for the pixels that are worst for it, among them those that lose most in every product.
    #[test]
    fn sums_in_16_bits_are_within_their_bound() {
        let mut random = Random(9);
        for filter in filters() {
            let window = Window::new(&filter, Border::Reflect101);
            let smooth = Smooth::new(&filter, &window).unwrap();
            let product = |a: u32, tap: u16| (a * u32::from(tap)) >> 16;
            for turn in 0..20_000 {
                let dense = ROWS / 2;
                let pixels: [[u8; ROWS]; ROWS] = std::array::from_fn(|_| {
                    std::array::from_fn(|_| match turn % 4 {
                        0 => random.byte(),
                        1 => {
                            if random.byte() < 128 {
                                0
                            } else {
                                255
                            }
                        }
                        2 => 255 - random.byte() % 4,
                        _ => random.byte() % 8,
                    })
                });
                let column = |x: usize| -> u32 {
                    let pair = |k: usize| u32::from(pixels[dense - k][x]) + u32::from(pixels[dense + k][x]);
                    let middle = product(u32::from(pixels[dense][x]) << 8, smooth.column[0]);
                    middle + (1..TAPS).map(|k| product(pair(k) << 7, smooth.column[k])).sum::<u32>()
                };
                let columns: [u32; ROWS] = std::array::from_fn(column);
                assert!(columns.iter().all(|&sum| sum < 65536));
                let mean = |k: usize| (columns[dense - k] + columns[dense + k]).div_ceil(2);
                let across = (1..TAPS).map(|k| product(mean(k), smooth.row[k])).sum::<u32>();
                let sum = product(columns[dense], smooth.row[0]) + across + u32::from(smooth.bias);
                let mut exact = 0.0;
                for r in 0..window.rows {
                    for c in 0..window.cols {
                        let (y, x) = (dense + r - window.anchor_y, dense + c - window.anchor_x);
                        exact += filter.tap(r, c) * f64::from(pixels[y][x]);
                    }
                }
                let exact = exact * UNIT + 128.0;
                assert!(sum < 65536 && exact <= f64::from(sum), "{filter:?}: {exact}, {sum}");
                // The bound is rounded down, as what it is compared with is whole.
                assert!(exact > f64::from(sum) - f64::from(smooth.doubt) - 1.0, "{filter:?}: {exact}, {sum}");
            }
        }
    }

    #[test]
    fn others_are_left_to_the_other_engines() {
        let refused = |filter: Filter, border: Border| Smooth::new(&filter, &Window::new(&filter, border)).is_none();
        let three = || Filter::separable_f64(&gaussian(3, 0.8), &gaussian(3, 0.8)).unwrap();
        assert!(!refused(three(), Border::Constant(255.0)));
        let separable = |row: &[f64], column: &[f64]| Filter::separable_f64(row, column).unwrap();
        for (row, column) in [
            (&[0.2, 0.5, 0.3][..], &[0.25, 0.5, 0.25][..]),
            (&[0.25, 0.5, 0.25], &[0.5, 0.5]),
            (&[-0.25, 1.5, -0.25], &[0.25, 0.5, 0.25]),
            (&[0.3, 0.5, 0.3], &[0.25, 0.5, 0.25]),
            (&[0.25, 0.5, 0.25], &[0.0, 0.0, 0.0]),
            (&[0.1; 7], &[0.1; 3]),
        ] {
            assert!(refused(separable(row, column), Border::Reflect101), "{row:?} by {column:?}");
        }
    }
}
