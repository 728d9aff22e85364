//! Colours of bytes weighted by alpha, where the results are bytes: quotients of exact sums.
//!
//! The taps are the whole numbers that define bytes ([`Whole`]), as f64. A product of a colour and
//! alpha is below 2^16. So sums of a row's taps lie below 2^53, exact in f64. Sums over a table lie
//! below 2^61, and sums of a column's taps times row sums below 2^92: these are kept in two parts
//! ([`Sums`]).
//!
//! ```text
//! for each strip of columns:
//!     for each row of results:
//!         for each new line under it:
//!             products of colours and alpha, with the border's on both sides
//!             row sums of each term                          exact
//!         sums of lines, each times a tap                    exact, in two parts
//!         round the quotients                                once
//! ```

use std::ops::Range;

use gpu_kernels::divisor::ratio;

use super::bands::band;
use super::share::share;
use super::weighted::pad;
use crate::Result;
use crate::filter::whole::{Divisor, Whole, WholeTaps};
use crate::image::{ImageView, ImageViewMut, Shape};
use crate::progress::Stage;
use crate::simd::{Isa, Lanes, Vector, Vectorized};
use crate::window::Window;

/// The length of a line is a multiple of this, and this a multiple of any vectors.
const LANES: usize = 64;

/// Values in a ring of lines, and the least pixels in a strip.
const RING: usize = 1 << 17;
const STRIP: usize = 64;

/// To numbers of this size, a number is added as a multiple of 1.
const LIFT: f64 = 1.5 * (1u64 << 52) as f64;

/// The greatest product of a colour and alpha.
const PRODUCT: u128 = 255 * 255;

/// A filter's whole taps.
struct Taps {
    /// For each line of a row: the taps of its sums; `None` if it is the products themselves.
    lines: Vec<Option<Vec<f64>>>,
    /// Which line of which row under the window, from which column on, is multiplied with what.
    column: Vec<(usize, usize, usize, f64)>,
    /// High parts are multiples of 2 to this power.
    shift: u32,
    divisor: Divisor,
}

impl Taps {
    fn new(whole: &Whole, window: &Window) -> Self {
        let size =
            |taps: &[i64]| taps.iter().map(|tap| u128::from(tap.unsigned_abs())).sum::<u128>();
        let (mut lines, mut column) = (Vec::new(), Vec::new());
        let greatest = match &whole.taps {
            WholeTaps::Table(taps) => {
                lines.push(None);
                let place = |(at, &tap)| (at / window.cols, 0, at % window.cols, tap as f64);
                column.extend(taps.iter().enumerate().map(place).filter(|&(.., tap)| tap != 0.0));
                size(taps)
            }
            WholeTaps::Products { terms, point, .. } => {
                for (number, (row, down)) in terms.iter().enumerate() {
                    lines.push(Some(row.iter().map(|&tap| tap as f64).collect()));
                    column.extend(
                        down.iter().enumerate().map(|(row, &tap)| (row, number, 0, tap as f64)),
                    );
                }
                if *point != 0 {
                    // A rounded f64: exact.
                    column.push((window.rows / 2, lines.len(), window.cols / 2, *point as f64));
                    lines.push(None);
                }
                terms.iter().map(|(row, column)| size(row) * size(column)).sum::<u128>()
                    + point.unsigned_abs()
            }
        };
        // Sums are below 2^(50 + shift): that leaves a bit of high parts for what they lack.
        let bits = u128::BITS - (PRODUCT * greatest).leading_zeros();
        Self { lines, column, shift: bits.saturating_sub(50), divisor: whole.divisor }
    }
}

/// Filters all channels, of which the last is alpha. Colours are `empty` where alphas add up to 0.
pub(super) fn run(
    isa: Isa,
    (whole, empty): (&Whole, u8),
    window: &Window,
    src: &ImageView<'_, u8>,
    dst: &mut ImageViewMut<'_, u8>,
    stage: &Stage<'_>,
) -> Result<()> {
    let Shape { width, height, channels } = src.shape();
    let (taps, band) = (Taps::new(whole, window), band(height, window.rows, 1, stage.cut_for()));
    let engine = Engine { isa, taps, window, src, empty };
    let values = RING / (engine.slots() * engine.taps.lines.len());
    let strip = (values / channels).max(STRIP);
    share(stage, dst.bands_mut(band).enumerate(), |scratch: &mut Scratch, (index, mut rows)| {
        for first in (0..width).step_by(strip) {
            let columns = first..width.min(first + strip);
            scratch.start(&engine, &columns)?;
            for (y, out) in (index * band..).zip(&mut rows) {
                let out = &mut out[columns.start * channels..columns.end * channels];
                scratch.sum(&engine, &columns, y);
                engine.round(scratch, out);
                window.restore(src, channels, &columns, y, out);
            }
        }
        Ok(())
    })
}

struct Engine<'a> {
    isa: Isa,
    taps: Taps,
    window: &'a Window,
    src: &'a ImageView<'a, u8>,
    empty: u8,
}

impl Engine<'_> {
    /// Rows of lines that are kept.
    fn slots(&self) -> usize {
        self.window.rows.min(self.src.shape().height + 1)
    }

    /// What high parts begin at: to numbers of this size, a number is added as a multiple of 2 to
    /// the power of `shift`.
    fn lift(&self) -> f64 {
        LIFT * 2f64.powi(self.taps.shift as i32)
    }

    /// The bytes of a row's sums: by estimated quotients, and where one of a pixel's is nearly a
    /// half, by exact sums.
    fn round(&self, scratch: &Scratch, out: &mut [u8]) {
        /// Beyond what an estimate of at most 255 is off by, from a half.
        const CERTAIN: f64 = 0.5 - 1e-9;
        let channels = self.src.shape().channels;
        let (lift, unit) = (self.lift(), self.taps.divisor.unit());
        let about = |(high, low): (&f64, &f64)| (high - lift) + low;
        let pixels = scratch.high.chunks_exact(channels).zip(scratch.low.chunks_exact(channels));
        for ((high, low), out) in pixels.zip(out.chunks_exact_mut(channels)) {
            let weight = about((&high[channels - 1], &low[channels - 1]));
            let inverse = if weight == 0.0 { 0.0 } else { 1.0 / weight };
            let mut rest = 0.0f64;
            let mut nearest = |value: f64| {
                let value = value.clamp(0.0, 255.0);
                let lifted = value + LIFT;
                rest = rest.max((value - (lifted - LIFT)).abs());
                lifted.to_bits() as u8
            };
            let sums = high.iter().zip(low).map(about).take(channels - 1);
            out.iter_mut().zip(sums).for_each(|(out, sum)| *out = nearest(sum * inverse));
            out[channels - 1] = nearest(weight * unit);
            if rest > CERTAIN {
                self.resolve((high, low), out);
            }
            if weight == 0.0 {
                // Exact, so nothing is under the window.
                out[..channels - 1].fill(self.empty);
            }
        }
    }

    /// A pixel's bytes.
    #[cold]
    fn resolve(&self, (high, low): (&[f64], &[f64]), out: &mut [u8]) {
        let Taps { shift, divisor, .. } = self.taps;
        let (lift, unit) = (self.lift(), 2f64.powi(-(shift as i32)));
        let exact = |(high, low): (&f64, &f64)| {
            (i128::from(((high - lift) * unit) as i64) << shift) + i128::from(*low as i64)
        };
        let mut sums = high.iter().zip(low).map(exact);
        let weight = sums.next_back().unwrap_or(0);
        out.iter_mut().zip(sums).for_each(|(out, sum)| *out = ratio(sum, weight) as u8);
        if let Some(alpha) = out.last_mut() {
            *alpha = divisor.byte(weight);
        }
    }
}

/// A thread's memory.
#[derive(Default)]
struct Scratch {
    /// A row's products of colour and alpha, and its alpha, with the border's pixels on both sides.
    padded: Vec<f64>,
    /// Lines, and which row's each place holds.
    ring: Vec<f64>,
    held: Vec<usize>,
    /// Where in the ring each line begins that a tap is multiplied with.
    taps: Vec<(usize, f64)>,
    /// The parts of sums.
    high: Vec<f64>,
    low: Vec<f64>,
}

impl Scratch {
    /// Begins a strip: no line is known.
    fn start(&mut self, engine: &Engine<'_>, columns: &Range<usize>) -> Result<()> {
        let channels = engine.src.shape().channels;
        let len = (columns.len() * channels).next_multiple_of(LANES);
        let resize = |values: &mut Vec<f64>, len: usize| -> Result<()> {
            if values.len() != len {
                *values = Vec::new();
                *values = crate::memory::zeroed(len)?;
            }
            Ok(())
        };
        let line = len + (engine.window.cols - 1) * channels;
        resize(&mut self.padded, line)?;
        resize(&mut self.ring, engine.slots().saturating_mul(engine.taps.lines.len() * line))?;
        resize(&mut self.high, len)?;
        resize(&mut self.low, len)?;
        self.held.clear();
        self.held.resize(engine.slots(), usize::MAX);
        Ok(())
    }

    /// The sums of row `y`.
    fn sum(&mut self, engine: &Engine<'_>, columns: &Range<usize>, y: usize) {
        let channels = engine.src.shape().channels;
        let line = self.padded.len();
        for row in y..y + engine.window.rows {
            self.line(engine, columns, row);
        }
        self.taps.clear();
        for &(row, number, col, tap) in &engine.taps.column {
            let place = self.slot(engine, y + row).0 * engine.taps.lines.len() + number;
            self.taps.push((place * line + col * channels, tap));
        }
        let Self { ring, taps, high, low, .. } = self;
        engine.isa.run(Sums { ring, taps, lift: engine.lift(), high, low: Some(low) });
    }

    /// The place of the lines under the window's first row at row `y`, and their name: each line of
    /// a small image has a place, those of a large one take places in turn.
    fn slot(&self, engine: &Engine<'_>, y: usize) -> (usize, usize) {
        let (window, height) = (engine.window, engine.src.shape().height);
        if height < window.rows {
            let slot = window.row(y, 0, height).unwrap_or(height);
            return (slot, slot);
        }
        (y % self.held.len(), y)
    }

    /// Computes the lines under the window's first row at row `y`, unless they are there.
    fn line(&mut self, engine: &Engine<'_>, columns: &Range<usize>, y: usize) {
        let (slot, name) = self.slot(engine, y);
        if self.held[slot] == name {
            return;
        }
        self.held[slot] = name;
        let Engine { isa, taps, window, src, .. } = engine;
        let channels = src.shape().channels;
        let padded = &mut self.padded[..(columns.len() + window.cols - 1) * channels];
        pad(*isa, window, src, y, columns, padded);
        let all = taps.lines.len() * self.padded.len();
        let lines = self.ring[slot * all..][..all].chunks_exact_mut(self.padded.len());
        for (line, taps) in lines.zip(&taps.lines) {
            let Some(taps) = taps else {
                line.copy_from_slice(&self.padded);
                continue;
            };
            self.taps.clear();
            self.taps.extend(taps.iter().enumerate().map(|(col, &tap)| (col * channels, tap)));
            let high = &mut line[..self.high.len()];
            isa.run(Sums { ring: &self.padded, taps: &self.taps, lift: 0.0, high, low: None });
        }
    }
}

/// Sums of lines, each times a tap.
///
/// A sum of up to 53 bits is exact. A greater one begins at a `lift`, so great that the sum is
/// rounded to a multiple of the same power of two with each product. What it is rounded by is exact
/// in f64, and is added up in the low part.
struct Sums<'a> {
    ring: &'a [f64],
    /// Where in the ring each line begins, and its tap.
    taps: &'a [(usize, f64)],
    lift: f64,
    high: &'a mut [f64],
    low: Option<&'a mut [f64]>,
}

impl Sums<'_> {
    /// Products after which the low part is added to the high one: so it stays below 2^53.
    const FEW: usize = 1024;

    /// # Safety
    /// This is called in a [`Vectorized`].
    #[inline(always)]
    unsafe fn all<L: Vector<Float = f64>, const W: usize, const LOW: bool>(self) {
        const { assert!(LANES.is_multiple_of(W * L::LEN)) };
        let Self { ring, taps, lift, high, low } = self;
        let (len, low) = (high.len(), low.unwrap_or_default());
        assert!(len.is_multiple_of(LANES) && (!LOW || low.len() == len));
        assert!(taps.iter().all(|(line, _)| line + len <= ring.len()));
        for at in (0..len).step_by(W * L::LEN) {
            // SAFETY: lines and sums have room for whole vectors, as is asserted.
            unsafe {
                let minus = L::splat(-1.0);
                let (mut highs, mut lows) = ([L::splat(lift); W], [L::splat(0.0); W]);
                for taps in taps.chunks(Self::FEW) {
                    for &(line, tap) in taps {
                        let (values, tap) = (ring.as_ptr().add(line + at), L::splat(tap));
                        for (v, (high, low)) in highs.iter_mut().zip(&mut lows).enumerate() {
                            let value = L::load(values.add(v * L::LEN));
                            let sum = value.mul_add(tap, *high);
                            if LOW {
                                *low = low.add(value.mul_add(tap, sum.mul_add(minus, *high)));
                            }
                            *high = sum;
                        }
                    }
                    for (high, low) in highs.iter_mut().zip(&mut lows).filter(|_| LOW) {
                        let sum = high.add(*low);
                        *low = low.add(sum.mul_add(minus, *high));
                        *high = sum;
                    }
                }
                for (v, (sum, rest)) in highs.iter().zip(&lows).enumerate() {
                    sum.store(high.as_mut_ptr().add(at + v * L::LEN));
                    if LOW {
                        rest.store(low.as_mut_ptr().add(at + v * L::LEN));
                    }
                }
            }
        }
    }
}

impl Vectorized for Sums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        // SAFETY: this is a `Vectorized`.
        unsafe {
            match self.low {
                Some(_) => self.all::<L::Wide, V, true>(),
                None => self.all::<L::Wide, W, false>(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Image;
    use crate::progress::Report;
    use crate::{Border, Filter};

    /// The numerator of a tap.
    fn numerator(whole: &Whole, window: &Window, (row, col): (usize, usize)) -> i128 {
        match &whole.taps {
            WholeTaps::Table(taps) => taps[row * window.cols + col].into(),
            WholeTaps::Products { terms, point, .. } => {
                let is_middle = (row, col) == (window.rows / 2, window.cols / 2);
                let products = terms
                    .iter()
                    .map(|(across, down)| i128::from(across[col]) * i128::from(down[row]))
                    .sum::<i128>();
                products + if is_middle { *point } else { 0 }
            }
        }
    }

    /// Each instruction set gives the quotients of sums tap by tap.
    #[test]
    fn sums_are_exact() {
        let shape @ Shape { width, height, channels } =
            Shape { width: 61, height: 17, channels: 4 };
        let pictures: [fn(usize) -> u8; 3] = [
            |i| (i as u32).wrapping_mul(0x9e37_79b1).rotate_left(9) as u8,
            |i| 255 * ((i / 4 + i / 244 + i % 4) % 2) as u8,
            |i| if i % 4 == 3 { [0, 255, 3][i / 90 % 3] } else { 200 },
        ];
        let filters = [
            "gaussian:3",
            "box:cols=2,rows=6",
            "motion:length=9,angle=30",
            "unsharp:sigma=1,amount=-0.6",
            "taps:0.5 0.5",
        ];
        for (text, picture) in
            filters.into_iter().flat_map(|text| pictures.map(|picture| (text, picture)))
        {
            let filter: Filter = text.parse().unwrap();
            let (whole, window) =
                (&filter.byte_filter().unwrap().whole, Window::new(&filter, Border::Constant(9.0)));
            let pixels: Vec<u8> = (0..shape.row_len() * height).map(picture).collect();
            let src = ImageView::new(&pixels, width, height, channels).unwrap();
            let mut right = Vec::new();
            for (x, y) in (0..width * height).map(|i| (i % width, i / width)) {
                let mut sums = [0; 4];
                for place in
                    (0..window.rows).flat_map(|row| (0..window.cols).map(move |col| (row, col)))
                {
                    let found =
                        window.row(y, place.0, height).zip(window.column(x, place.1, width));
                    let value = |c: usize| {
                        found.map_or(9, |(y, x)| i128::from(src.row(y)[x * channels + c]))
                    };
                    let alpha = numerator(whole, &window, place) * value(3);
                    for (c, sum) in sums.iter_mut().enumerate() {
                        *sum += alpha * if c < 3 { value(c) } else { 1 };
                    }
                }
                right.extend(sums[..3].iter().map(|&sum| ratio(sum, sums[3]) as u8));
                right.push(whole.divisor.byte(sums[3]));
            }
            for isa in Isa::all() {
                let mut dst = Image::<u8>::zeroed(width, height, channels).unwrap();
                let report = Report::default();
                let call = report.call(0);
                let stage = call.stage(0, 0).on(1);
                run(isa, (whole, 0), &window, &src, &mut dst.view_mut(), &stage).unwrap();
                let wrong =
                    dst.as_slice().iter().zip(&right).position(|(found, right)| found != right);
                assert_eq!(wrong, None, "{text}, {isa:?}");
            }
        }
    }

    /// Above, on and below each half, for small and great divisors of both signs.
    #[test]
    fn quotients_are_rounded_half_to_even() {
        for number in [1, 2, 3, 255 * 36, (1 << 53) - 1, 1 << 74, (1i128 << 83) - 12_345] {
            for halves in 0..520 {
                for beside in [-1, 0, 1] {
                    // In halves of the divisor, so that each half is there.
                    let (sum, number) = (halves * number + beside, 2 * number);
                    let is_beyond = |byte: i128| {
                        let half = (2 * byte + 1) * number;
                        2 * sum > half || 2 * sum == half && byte % 2 == 1
                    };
                    let right = (0..255).filter(|&byte| is_beyond(byte)).count() as u32;
                    assert_eq!(ratio(sum, number), right, "{sum} / {number}");
                    assert_eq!(ratio(-sum, -number), right, "{sum} / {number}");
                    assert!(sum < 0 || ratio(-sum, number) == 0, "-{sum} / {number}");
                }
            }
        }
        assert_eq!((ratio(0, 0), ratio(5, 0), ratio(-5, 0)), (0, 0, 0));
    }
}
