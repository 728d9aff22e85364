//! Exact sums over bytes, for a part of an image where many results are uncertain.
//!
//! Taps are the whole numbers that define bytes. A table is one pass in f64, whose sums lie below
//! 2^53. A product of a row and a column is two passes. The row pass multiplies bytes with digits
//! of taps, in sums of 32 bits ([`DigitRow`]). Joined, its sums lie below 2^45, and the magnitudes
//! of a column's taps add up to at most 2^37. So a row sum, less that of pixels of 127.5, is split
//! into three parts of up to 15 bits: a column pass in f64 over each part stays below 2^53. A part
//! that is all zero needs no pass: so it is for patterns that a wide blur turns into one grey,
//! whose results may all be ties. [`ToBytes`] rounds what the parts are together.
//!
//! ```text
//! for each strip of columns:
//!     for each few rows of results:
//!         for each new line under them:
//!             row pass by digits; join and split its sums    exact
//!         for each part that is not zero under them:
//!             column pass                                    exact
//!         round the sums of the parts                        once
//! ```

use std::ops::Range;

use super::frame::Frame;
use super::tile::{MARGIN, Outs, ROWS, SLACK, Tiles, rows_at_once};
use super::whole::{DIGIT_BITS, DIGITS, DigitRow, Pair, carried};
use crate::Result;
use crate::filter::whole::{Divisor, Whole, WholeTaps};
use crate::simd::{Float, Lanes, Vectorized};

/// Parts of a row sum, and what each is a multiple of: 1, `STEP` and `STEP * STEP`.
const PARTS: usize = DIGITS;
const STEP_BITS: u32 = DIGIT_BITS;
const STEP: f64 = (1 << STEP_BITS) as f64;

/// Bytes in a ring of lines, which every second-level cache holds, and the least results in a
/// strip.
const RING: usize = 1 << 18;
const STRIP: usize = 4 * SLACK;

/// A number of this size is a multiple of 1: added to another and taken away again, it rounds that.
const LIFT: f64 = 1.5 * (1u64 << 52) as f64;

/// A row of taps, unless all are in `down`; and a column.
struct Term {
    across: Option<DigitRow>,
    down: Vec<f64>,
}

impl Term {
    fn table(taps: &[i64]) -> Self {
        Self { across: None, down: numbers(taps) }
    }

    fn product((row, column): &(Vec<i64>, Vec<i64>)) -> Self {
        Self { across: Some(DigitRow::new(row)), down: numbers(column) }
    }
}

fn numbers(taps: &[i64]) -> Vec<f64> {
    taps.iter().map(|&tap| tap as f64).collect()
}

/// A filter in whole numbers, over an image.
pub(super) struct Exact<'a> {
    frame: &'a Frame<'a, u8, u8>,
    terms: Vec<Term>,
    /// The factor of the pixel under the window's middle, in parts.
    point: Option<[f64; PARTS]>,
    /// What all sums lack, as row sums are taken less their middle, in parts.
    lack: [f64; PARTS],
    divisor: Divisor,
}

/// Taps of passes in f64 that a result takes: digits of a row's tap take about half of the time of
/// one.
pub(crate) fn taps_taken(whole: &Whole) -> usize {
    match &whole.taps {
        WholeTaps::Table(taps) => taps.len(),
        WholeTaps::Products { terms, .. } => {
            terms.iter().map(|(row, column)| row.len() / 2 + PARTS * column.len()).sum()
        }
    }
}

impl<'a> Exact<'a> {
    /// `None` where f64 has no room: for sums of more than two products, and for divisors that no
    /// usual filter has.
    pub(super) fn new(frame: &'a Frame<'a, u8, u8>, whole: &Whole) -> Option<Self> {
        let (terms, point, lack) = match &whole.taps {
            WholeTaps::Table(taps) => (vec![Term::table(taps)], None, 0),
            WholeTaps::Products { terms, point, .. } => {
                let has_room = match whole.divisor {
                    Divisor::PowerOfTwo(shift) => shift > 2 * STEP_BITS as i32,
                    Divisor::Number(divisor) => divisor <= 1 << 43,
                };
                if terms.len() + usize::from(*point != 0) > 2 || !has_room {
                    return None;
                }
                let lack = |(row, column): &(Vec<i64>, Vec<i64>)| {
                    i128::from(DigitRow::middle(row)) * i128::from(column.iter().sum::<i64>())
                };
                let point = Some(*point).filter(|&point| point != 0).map(parts);
                (terms.iter().map(Term::product).collect(), point, terms.iter().map(lack).sum())
            }
        };
        Some(Self { frame, terms, point, lack: parts(lack), divisor: whole.divisor })
    }

    fn is_table(&self) -> bool {
        self.terms.iter().all(|term| term.across.is_none())
    }

    /// Parts of a row sum. Pixels under a table have one.
    fn parts(&self) -> usize {
        if self.is_table() { 1 } else { PARTS }
    }

    /// Lines of the ring for each row under a window.
    fn lines(&self) -> usize {
        if self.is_table() { 1 } else { PARTS * self.terms.len() }
    }

    /// Tap columns of the last pass.
    fn cols(&self) -> usize {
        if self.is_table() { self.frame.window.cols } else { 1 }
    }

    fn slots(&self) -> usize {
        (self.frame.window.rows + ROWS - 1).min(self.frame.src.shape().height + 1)
    }

    /// Taps of passes for a column of a rectangle, before its first results.
    pub(super) fn taps_before(&self) -> usize {
        let across = if self.is_table() { 1 } else { self.frame.window.cols };
        self.slots() * self.terms.len() * across
    }

    /// Computes the bytes of a rectangle.
    pub(super) fn rectangle(
        &self,
        scratch: &mut Scratch,
        columns: &Range<usize>,
        rows: Range<usize>,
    ) -> Result<()> {
        let channels = self.frame.src.shape().channels;
        let values = RING / size_of::<f64>() / (self.slots() * self.lines());
        let strip = (values.saturating_sub((self.cols() - 1) * channels + MARGIN).max(STRIP)
            / channels)
            .max(1);
        for first in columns.clone().step_by(strip).filter(|_| !rows.is_empty()) {
            self.strip(scratch, first..columns.end.min(first + strip), rows.clone())?;
        }
        Ok(())
    }

    fn strip(
        &self,
        scratch: &mut Scratch,
        columns: Range<usize>,
        rows: Range<usize>,
    ) -> Result<()> {
        let Frame { window, src, filtered, .. } = *self.frame;
        let channels = src.shape().channels;
        let len = columns.len() * channels;
        scratch.start(self, &columns)?;
        let (most, lines) = (rows_at_once(window.rows), self.lines());
        let mut y = rows.start;
        while y < rows.end {
            let count = if rows.end - y >= most { most } else { 1 };
            let places: Vec<_> = (y..y + window.rows + count - 1)
                .map(|row| self.line(scratch, row) * lines * scratch.line_len)
                .collect();
            for part in 0..self.parts() {
                self.sum(scratch, part, &places, (count, len));
            }
            for i in 0..count {
                // SAFETY: the rows and columns are this job's own; each part is borrowed once.
                let out = unsafe {
                    self.frame.dst.row(y + i, columns.start * channels..columns.end * channels)
                };
                self.store(scratch, (y + i, i), out);
                window.restore(&src, filtered, &columns, y + i, out);
            }
            y += count;
        }
        Ok(())
    }

    /// Computes a part of the sums of `count` rows of `len` values, over lines at these places of
    /// the ring and after them.
    fn sum(
        &self,
        scratch: &mut Scratch,
        part: usize,
        places: &[usize],
        (count, len): (usize, usize),
    ) {
        let mut outs = scratch.sums[part].chunks_mut(len + SLACK);
        let mut outs: [&mut [f64]; ROWS] = std::array::from_fn(|_| outs.next().unwrap_or_default());
        let mut resume = false;
        for (number, term) in self.terms.iter().enumerate() {
            let line = number * self.parts() + part;
            let is_there = |place: &usize| scratch.found[place / scratch.line_len + line];
            if !self.is_table() && !places.iter().any(is_there) {
                continue;
            }
            let first = line * scratch.line_len;
            let lines: Vec<_> = places.iter().map(|place| place + first).collect();
            self.frame.isa.run(Tiles {
                ring: &scratch.ring,
                lines: &lines,
                taps: &term.down,
                cols: self.cols(),
                step: self.frame.src.shape().channels,
                outs: Outs::Floats(&mut outs[..count]),
                len,
                ahead: ([std::ptr::null(); ROWS], 0),
                resume,
                block: usize::MAX,
            });
            resume = true;
        }
        if !resume && !scratch.are_zero[part] {
            scratch.sums[part].fill(0.0);
        }
        scratch.are_zero[part] = !resume;
    }

    /// Stores the sums of row `y`, number `i` of those computed together.
    fn store(&self, scratch: &mut Scratch, (y, i): (usize, usize), out: &mut [u8]) {
        let Frame { isa, window, src, .. } = self.frame;
        let pitch = out.len() + SLACK;
        let at = i * pitch..i * pitch + out.len();
        if self.is_table() {
            return isa.run(TableToBytes {
                divisor: self.divisor,
                sums: &scratch.sums[0][at],
                out,
            });
        }
        if self.point.is_some() {
            scratch.load(self, window.row(y, window.rows / 2, src.shape().height));
        }
        let Scratch { sums, padded, .. } = scratch;
        let parts = sums.each_ref().map(|sums| &sums[at.clone()]);
        let point =
            self.point.map(|factor| (&padded[window.cols / 2 * src.shape().channels..], factor));
        isa.run(ToBytes { divisor: self.divisor, parts, lack: self.lack, point, out });
    }

    /// The place in the ring of the lines under tap row 0 of row `y`, for an anchor at 0. Computes
    /// them if they are not there.
    fn line(&self, scratch: &mut Scratch, y: usize) -> usize {
        let Frame { isa, window, src, .. } = self.frame;
        let (height, channels) = (src.shape().height, src.shape().channels);
        let source = window.row(y, 0, height);
        // Each line of a small image has a fixed place; lines of a large one take places in turn.
        let is_small = height < self.slots();
        let slot = if is_small { source.unwrap_or(height) } else { y % self.slots() };
        let name = if is_small { slot } else { y };
        if scratch.held[slot] == name {
            return slot;
        }
        scratch.held[slot] = name;
        scratch.load(self, source);
        let Scratch { ring, line_len, padded, pairs, digits, found, .. } = scratch;
        let found = &mut found[slot * self.lines()..][..self.lines()];
        let lines = &mut ring[slot * self.lines() * *line_len..][..self.lines() * *line_len];
        if self.is_table() {
            isa.run(Widen { bytes: padded, out: lines });
            return slot;
        }
        isa.run(Pair { values: padded, step: channels, pairs });
        let len = digits.len() / DIGITS - SLACK;
        let each = lines.chunks_mut(PARTS * *line_len).zip(found.chunks_mut(PARTS));
        for (term, (lines, found)) in self.terms.iter().zip(each) {
            term.across.iter().for_each(|row| row.sums(*isa, pairs, channels, digits, len));
            let mut parts = lines.chunks_mut(*line_len);
            let parts: [&mut [f64]; PARTS] =
                std::array::from_fn(|_| parts.next().unwrap_or_default());
            let mut sums = digits.chunks(len + SLACK);
            let sums = std::array::from_fn(|_| &sums.next().unwrap_or_default()[..len]);
            found.copy_from_slice(&isa.run(Split { sums, parts }));
        }
        slot
    }
}

/// A whole number of at most 2^74 in parts, of which all but the last have [`STEP_BITS`].
fn parts(mut number: i128) -> [f64; PARTS] {
    std::array::from_fn(|part| {
        let rest = if part + 1 < PARTS { number & ((1 << STEP_BITS) - 1) } else { number };
        number = (number - rest) >> STEP_BITS;
        rest as f64
    })
}

/// A thread's memory.
#[derive(Default)]
pub(super) struct Scratch {
    /// Lines: of a table, padded pixels; else each term's row sums, in parts.
    ring: Vec<f64>,
    line_len: usize,
    /// Which line each place of the ring holds, and which parts of it are not all zero.
    held: Vec<usize>,
    found: Vec<bool>,
    /// Columns of a padded row that lie under columns of the image which follow each other, and the
    /// first of these; or outside.
    runs: Vec<(Range<usize>, Option<usize>)>,
    /// A row of pixels with the border's on both sides, and the same in pairs.
    padded: Vec<u8>,
    pairs: Vec<u32>,
    /// Its sums, in digits.
    digits: Vec<u32>,
    /// Rows of sums, in parts, and whether all of a part are 0.
    sums: [Vec<f64>; PARTS],
    are_zero: [bool; PARTS],
}

impl Scratch {
    /// Makes room for a strip of these columns and forgets all lines.
    fn start(&mut self, exact: &Exact<'_>, columns: &Range<usize>) -> Result<()> {
        let Frame { window, src, .. } = exact.frame;
        let (width, channels) = (src.shape().width, src.shape().channels);
        let len = columns.len() * channels;
        fn resize<T: Clone + Default>(values: &mut Vec<T>, len: usize) -> Result<()> {
            if values.len() != len {
                *values = Vec::new();
                *values = crate::memory::zeroed(len)?;
            }
            Ok(())
        }
        let is_table = exact.is_table();
        self.line_len = len + (exact.cols() - 1) * channels + MARGIN;
        resize(&mut self.ring, exact.slots().saturating_mul(exact.lines() * self.line_len))?;
        let pairs = len + (window.cols - 1) * channels + MARGIN;
        resize(&mut self.padded, pairs + channels)?;
        if !is_table {
            resize(&mut self.pairs, pairs)?;
            resize(&mut self.digits, DIGITS * (len + SLACK))?;
        }
        for sums in &mut self.sums[..exact.parts()] {
            resize(sums, ROWS * (len + SLACK))?;
        }
        self.held.clear();
        self.held.resize(exact.slots(), usize::MAX);
        self.found.resize(exact.slots() * exact.lines(), false);
        self.runs.clear();
        for x in 0..columns.len() + window.cols - 1 {
            let column = window.column(columns.start + x, 0, width);
            match self.runs.last_mut() {
                Some((run, first)) if column == first.map(|first| first + run.len()) => {
                    run.end += 1
                }
                _ => self.runs.push((x..x + 1, column)),
            }
        }
        Ok(())
    }

    /// Fills the padded row with the pixels of a row of the image, or with the border's value where
    /// there is none.
    fn load(&mut self, exact: &Exact<'_>, source: Option<usize>) {
        let Frame { window, src, .. } = exact.frame;
        let (channels, outside) = (src.shape().channels, window.border_value as u8);
        let Some(row) = source.map(|y| src.row(y)) else { return self.padded.fill(outside) };
        for (run, first) in &self.runs {
            let out = &mut self.padded[run.start * channels..run.end * channels];
            match first {
                Some(x) => out.copy_from_slice(&row[x * channels..][..out.len()]),
                None => out.fill(outside),
            }
        }
    }
}

/// Bytes to f64.
struct Widen<'a> {
    bytes: &'a [u8],
    out: &'a mut [f64],
}

impl Vectorized for Widen<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        self.out.iter_mut().zip(self.bytes).for_each(|(out, &byte)| *out = byte.into());
    }
}

/// Sums of digits to parts.
struct Split<'a> {
    sums: [&'a [u32]; DIGITS],
    parts: [&'a mut [f64]; PARTS],
}

impl Vectorized for Split<'_> {
    /// Which parts are not all zero.
    type Output = [bool; PARTS];

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> [bool; PARTS] {
        let Self { sums, parts: [low, middle, high] } = self;
        let sums = sums[0].iter().zip(sums[1]).zip(sums[2]);
        let mut any = [0; PARTS];
        for (((low, middle), high), ((&a, &b), &c)) in
            low.iter_mut().zip(middle).zip(high).zip(sums)
        {
            let digits = carried([a as i32, b as i32, c as i32]);
            [*low, *middle, *high] = digits.map(f64::from);
            any = [any[0] | digits[0], any[1] | digits[1], any[2] | digits[2]];
        }
        any.map(|any| any != 0)
    }
}

/// Sums over a table to bytes.
struct TableToBytes<'a> {
    divisor: Divisor,
    sums: &'a [f64],
    out: &'a mut [u8],
}

impl Vectorized for TableToBytes<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let each = self.out.iter_mut().zip(self.sums);
        match self.divisor {
            // Below 2^45 a quotient that is no tie lies further from one than it is rounded.
            Divisor::Number(divisor) => {
                let divisor = divisor as f64;
                each.for_each(|(out, sum)| *out = (sum / divisor).byte());
            }
            Divisor::PowerOfTwo(_) => {
                let unit = self.divisor.unit();
                each.for_each(|(out, sum)| *out = (sum * unit).byte());
            }
        }
    }
}

/// Sums in parts to bytes.
///
/// Let `k` be the estimated quotient, rounded down. The byte is k or k + 1: which one, the sign of
/// `sum - (k + 1/2) * divisor` says, where 0 is a tie. Only near a tie may roundings matter, and
/// there are none: the high part less the half lies below 2^68 and is a multiple of 2^30; with the
/// middle part, it lies below 2^54 and is a multiple of 2^15.
struct ToBytes<'a> {
    divisor: Divisor,
    parts: [&'a [f64]; PARTS],
    /// What each part of all sums lacks.
    lack: [f64; PARTS],
    /// Pixels and their factor in parts, if it is not 0.
    point: Option<(&'a [u8], [f64; PARTS])>,
    out: &'a mut [u8],
}

impl Vectorized for ToBytes<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Self { divisor, parts: [low, middle, high], lack, point, out } = self;
        let unit = divisor.unit();
        let steps = match divisor {
            Divisor::Number(divisor) => divisor as f64,
            Divisor::PowerOfTwo(shift) => 2f64.powi(shift),
        };
        // All products are exact, so it makes no difference where they are rounded before.
        let fused = |a: f64, b: f64, c: f64| if L::FUSES { a.mul_add(b, c) } else { a * b + c };
        let byte = |[low, middle, high]: [f64; PARTS], lack: [f64; PARTS]| {
            let low = low + lack[0];
            let middle = fused(middle, STEP, lack[1] * STEP);
            let high = fused(high, STEP * STEP, lack[2] * (STEP * STEP));
            let estimate = fused(high + (middle + low), unit, -0.5);
            let lifted = estimate.clamp(-0.5, 254.5) + LIFT;
            let half = fused(lifted - LIFT, steps, 0.5 * steps);
            let above = ((high - half) + middle) + low;
            let floor = lifted.to_bits() & 0xff;
            let up = (above > 0.0) | ((above == 0.0) & (floor & 1 == 1));
            (floor + u64::from(up)).min(255) as u8
        };
        let each = out.iter_mut().zip(low).zip(middle).zip(high);
        let each = each.map(|(((out, &low), &middle), &high)| (out, [low, middle, high]));
        match point {
            None => each.for_each(|(out, parts)| *out = byte(parts, lack)),
            Some((pixels, factor)) => each.zip(pixels).for_each(|((out, parts), &pixel)| {
                let pixel = f64::from(pixel);
                *out = byte(parts, std::array::from_fn(|part| lack[part] + factor[part] * pixel));
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Image, ImageView};
    use crate::round::tests::{BORDERS, defined};
    use crate::simd::Isa;
    use crate::window::Window;
    use crate::{Border, Filter};

    /// The bytes of a filter by exact passes, in two rectangles.
    fn found(
        isa: Isa,
        filter: &Filter,
        border: Border,
        src: &ImageView<'_, u8>,
        filtered: usize,
    ) -> Option<Vec<u8>> {
        let (shape, byte_filter) = (src.shape(), filter.byte_filter().unwrap());
        let mut found = Image::<u8>::zeroed(shape.width, shape.height, shape.channels).unwrap();
        let mut view = found.view_mut();
        let frame = Frame::new(isa, Window::new(filter, border), src, &mut view, filtered);
        let exact = Exact::new(&frame, &byte_filter.whole)?;
        let mut scratch = Scratch::default();
        let (columns, rows) = (shape.width / 3, shape.height / 2);
        for columns in [0..columns, columns..shape.width] {
            for rows in [0..rows, rows..shape.height] {
                exact.rectangle(&mut scratch, &columns, rows).unwrap();
            }
        }
        Some(found.as_slice().to_vec())
    }

    /// Filters of all forms, of any size and scale, over noise, checkerboards and flat pictures.
    #[test]
    fn passes_are_exact() {
        let mut state = 11u64;
        let mut random = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state >> 33
        };
        let mut filters: Vec<Filter> = [
            "gaussian:sigma=2",
            "gaussian:sigma=12",
            "box:size=6",
            "box:cols=41,rows=14",
            "unsharp:sigma=2,amount=1.5",
            "unsharp:sigma=3,amount=-0.7",
            "log:sigma=2",
            "dog:sigma=2,wider=3",
            "motion:length=9,angle=30",
            "taps:0.1 0.2 0.4; 0.1 -0.3 0.5",
            "separable:row=1e-20 2e-20 -1e-20,column=1e20 -3e20 2e20",
            "separable:row=0 0 0,column=1 2 1",
            "separable:row=1e-200 1e-199,column=1e-150 1e-151",
            "taps:1e-300 2e-300",
        ]
        .map(|text| text.parse().unwrap())
        .into();
        for turn in 0..40 {
            let (cols, rows) = (1 + random() as usize % 12, 1 + random() as usize % 12);
            let mut tap = || {
                (random() as f64 / f64::from(1u32 << 31) - 0.4) * 2f64.powi(random() as i32 % 9 - 6)
            };
            let (row, column): (Vec<_>, Vec<_>) =
                ((0..cols).map(|_| tap()).collect(), (0..rows).map(|_| tap()).collect());
            let filter = match turn % 2 {
                0 => Filter::separable_f64(&row, &column),
                _ => Filter::from_taps_f64(
                    cols,
                    rows,
                    &(0..cols * rows).map(|_| tap()).collect::<Vec<_>>(),
                ),
            };
            filters.push(filter.unwrap());
        }
        let borders = &BORDERS[2..];
        for (number, filter) in filters.into_iter().enumerate() {
            let anchor = (random() as usize % filter.cols(), random() as usize % filter.rows());
            let elsewhere = filter.clone().anchored(anchor.0, anchor.1).unwrap();
            for (turn, filter) in [filter, elsewhere].into_iter().enumerate() {
                let border = borders[(number + turn) % borders.len()];
                let (width, height, channels) =
                    [(150, 37, 1), (61, 44, 3), (7, 5, 4), (33, 90, 2)][(number + 2 * turn) % 4];
                let contents: [&mut dyn FnMut(usize) -> u8; 3] = [
                    &mut |_| random() as u8,
                    &mut |at| 255 * ((at / channels + at / channels / width) % 2) as u8,
                    &mut |_| 200,
                ];
                for pixel in contents {
                    let pixels: Vec<u8> = (0..width * height * channels).map(pixel).collect();
                    let src = ImageView::new(&pixels, width, height, channels).unwrap();
                    let filtered = channels.min(3);
                    let mut expected = pixels.clone();
                    for channel in 0..filtered {
                        let plane: Vec<u8> =
                            pixels[channel..].iter().step_by(channels).copied().collect();
                        let bytes = defined(&plane, (width, height), &filter, border);
                        expected[channel..]
                            .iter_mut()
                            .step_by(channels)
                            .zip(bytes)
                            .for_each(|(to, byte)| *to = byte);
                    }
                    for isa in Isa::all() {
                        let found = found(isa, &filter, border, &src, filtered)
                            .expect("usual filters have room");
                        let wrong = found
                            .iter()
                            .zip(&expected)
                            .position(|(found, expected)| found != expected);
                        assert_eq!(
                            wrong, None,
                            "{filter}, {border}, {width}x{height}x{channels}, {isa:?}"
                        );
                    }
                }
            }
        }
    }
}
