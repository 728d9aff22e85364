//! The sum in f64 that decides a result in doubt: first in the fastest order; then, if the order could change the result, in the order
//! that defines it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::OnceLock;

use gpu_kernels::border::KEEP;

use super::doubt::Doubt;
use super::{Bound, Bounds, Order};
use crate::image::{ImageView, Shape};
use crate::simd::{Float, InPlace, Isa, Lanes, Octets, Vector, Work};
use crate::window::Window;
use crate::{Border, Filter};

/// The most taps for which a separable filter's results are defined by the sum over all of them.
pub(crate) const MAX_WINDOW: usize = 1 << 16;

/// Values under a window are summed in groups of so many.
const LANES: usize = 64;

/// The most taps for which results in doubt are defined at once, without a faster sum before.
pub(crate) const TOGETHER: usize = 200;

/// The most vectors of results that are defined together: each sum is a chain of additions, and a chain for each lane of a few vectors
/// keeps the processor busy.
const VECTORS: usize = 4;

/// How many results are gathered before they are defined: these vectors, where they are longest.
const ABREAST: usize = 32;

/// Bytes of a row that are loaded together.
const OCTET: usize = 8;

/// Where windows have more taps, results that are known from others are looked for.
const LARGE: usize = 4096;

/// Rows of a window that are summed together.
const BLOCK: usize = 32;

/// The most values of [`Settler::spread`].
const MOST_SPREAD: usize = 1 << 20;

/// Computes single results of an 8-bit image in f64.
pub(crate) struct Settler<'a> {
    src: ImageView<'a, u8>,
    /// The channels that are filtered.
    filtered: usize,
    pub(super) filter: &'a Filter,
    pub(super) window: Window,
    outside: f64,
    bounds: &'a Bounds,
    /// Which f64 sums may round to another result in a different order.
    doubt: Doubt<f64>,
    /// Whether two passes define the result, rather than the sum over all taps.
    pub(super) defined_by_passes: bool,
    /// The rows of taps, or the row whose multiples they are, as they lie on the pixels of an interleaved row: with zeros
    /// on the other channels. Empty if that would take too much memory.
    spread: OnceLock<Vec<f64>>,
    /// The taps that define results, row by row, of a window that has few; or one row, if all are equal.
    few: OnceLock<Vec<InPlace>>,
    /// The value of every tap, if all are equal.
    equal: Option<f64>,
    /// For each value, the result where all pixels under the window have it.
    flat: [OnceLock<f64>; 256],
    /// For each number of pixels, the result where so many have the greatest value and the others are 0, if all taps are equal.
    white: OnceLock<Vec<f64>>,
}

/// Up to [`ABREAST`] results of a row.
#[derive(Default)]
struct Places {
    /// The element under the first tap of each.
    firsts: [usize; ABREAST],
    count: usize,
}

impl Places {
    /// Adds a result; takes them if that was the last there is room for.
    fn push(&mut self, first: usize, take: impl FnOnce(&Self)) {
        self.firsts[self.count] = first;
        self.count += 1;
        if self.count == ABREAST {
            self.finish(take);
        }
    }

    /// Takes those that are left.
    fn finish(&mut self, take: impl FnOnce(&Self)) {
        if self.count > 0 {
            // The other lanes compute the first one again.
            let first = self.firsts[0];
            self.firsts[self.count..].fill(first);
            take(self);
            self.count = 0;
        }
    }
}

/// A thread's memory.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(super) memory: super::Memory,
    /// A row's results in doubt.
    pub(super) doubts: Vec<usize>,
    /// A row of one channel's results.
    pub(super) bytes: Vec<u8>,
    /// The row of results that the fields up to `one_row` are for.
    y: Option<usize>,
    /// The row of the image that each tap row reads, up to the first that has the border's value.
    rows: Vec<usize>,
    /// Elements in which all these rows are equal.
    equal: Range<usize>,
    /// For each of the first channels, the last result whose window has the same pixel all along
    /// each row: the place of such a pixel, and the result.
    one_row: [Option<(usize, f64)>; 4],
    /// For each element, the last result whose window has the same row all the way down: that row, and the result.
    one_column: HashMap<usize, (usize, f64)>,
    /// The element of the row that each tap column reads.
    columns: Vec<Option<usize>>,
    /// The pixels under a row of taps.
    values: Vec<f64>,
    /// A row of taps, as they lie on the pixels that a window at the image's edge reads.
    folded: Vec<f64>,
}

/// The results of a window of equal taps that has no, one, two and so on pixels of the greatest value, and others of 0: as zeros change no sum, it does not matter where they are.
pub(crate) fn sums_of_white(tap: f64) -> impl Iterator<Item = f64> {
    std::iter::successors(Some(0.0), move |sum| Some(sum + tap * 255.0))
}

impl<'a> Settler<'a> {
    /// For the first `filtered` channels of `src`; `bounds` are those of the filter under this border.
    pub(crate) fn new(
        src: ImageView<'a, u8>,
        filtered: usize,
        filter: &'a Filter,
        border: Border,
        bounds: &'a Bounds,
    ) -> Self {
        let window = Window::new(filter, border);
        let product = filter.dense_f64().is_none();
        let reordering =
            bounds.reordering.get_or_init(|| super::bound::of_reordering(filter, super::greatest(&window)));
        Self {
            src,
            filtered,
            filter,
            window,
            outside: f64::from(window.border_value),
            bounds,
            doubt: Doubt::new(*reordering),
            defined_by_passes: product && filter.cols() * filter.rows() > MAX_WINDOW,
            spread: OnceLock::new(),
            few: OnceLock::new(),
            equal: filter.equal_tap(),
            flat: [const { OnceLock::new() }; 256],
            white: OnceLock::new(),
        }
    }

    /// The bounds of sums in this order.
    pub(super) fn bound(&self, order: Order) -> Bound {
        *self.bounds.orders[order as usize].get_or_init(|| Bound::new(self.filter, &self.window, order))
    }

    /// The results of a window of one tap, for each value.
    pub(crate) fn of_single_pixels(&self) -> [u8; 256] {
        std::array::from_fn(|value| self.next_row(0.0, 0, &[value as f64]).byte())
    }

    /// The result where so many pixels under the window have the greatest value and the others are 0, if all taps are equal and are not too many.
    pub(super) fn of_white(&self, count: usize) -> Option<f64> {
        const MOST: usize = 1 << 18;
        let tap = self.equal.filter(|_| !self.defined_by_passes)?;
        let taps = self.window.cols * self.window.rows;
        let sums = || sums_of_white(tap).take(taps + 1).collect();
        if taps > MOST { None } else { self.white.get_or_init(sums).get(count).copied() }
    }

    /// Whether results in doubt are ties for the most part, as those of a few equal taps are: only the sums that define them decide.
    pub(crate) fn meets_ties(&self) -> bool {
        self.equal.is_some() && self.window.cols * self.window.rows <= TOGETHER
    }

    pub(super) fn channels(&self) -> usize {
        self.src.shape().channels
    }

    /// Whether f64 sums in every order round to the same result as this one.
    pub(super) fn settles(&self, sum: f64) -> bool {
        !self.doubt.about(sum)
    }

    /// The result at element `at` of a part of row `y` that begins at column `x`: at once by the sum that defines it, or first by a faster
    /// one. `None` in a channel that is not filtered.
    pub(super) fn settled(
        &self,
        isa: Isa,
        (x, y): (usize, usize),
        at: usize,
        by_definition: bool,
        scratch: &mut Scratch,
    ) -> Option<f64> {
        let (shape, window) = (self.src.shape(), &self.window);
        let (x, channel) = (x + at / shape.channels, at % shape.channels);
        if channel >= self.filtered {
            return None;
        }
        if window.border == KEEP && (window.leaves_columns(x, shape.width) || window.leaves_rows(y, shape.height)) {
            return Some(f64::from(self.src.row(y)[x * shape.channels + channel]));
        }
        self.find_rows(y, scratch);
        if let Some(sum) = self.small((x, channel), &scratch.rows) {
            return Some(sum);
        }
        scratch.columns.clear();
        if !by_definition {
            let estimate = self.estimate(isa, (x, y), channel, scratch);
            if self.settles(estimate) {
                return Some(estimate);
            }
        }
        self.find_columns(x, channel, scratch);
        Some(self.defined((x, y), channel, scratch))
    }

    fn find_rows(&self, y: usize, scratch: &mut Scratch) {
        if scratch.y != Some(y) {
            scratch.y = Some(y);
            scratch.rows.clear();
            let height = self.src.shape().height;
            scratch.rows.extend((0..self.window.rows).map_while(|row| self.window.row(y, row, height)));
            scratch.equal = 0..0;
            scratch.one_row = [None; 4];
        }
    }

    /// Stores correct results at these elements of a part of row `y` that begins at column `x`, which may all be ties. Calls `one` for each
    /// whose window leaves the image, or that a faster sum may decide.
    pub(super) fn together(
        &self,
        isa: Isa,
        (x, y): (usize, usize),
        (are_ties, doubts): (bool, &[usize]),
        out: &mut [u8],
        scratch: &mut Scratch,
        mut one: impl FnMut(usize, &mut [u8], &mut Scratch),
    ) {
        let (Window { cols, rows, anchor_x, .. }, shape) = (self.window, self.src.shape());
        self.find_rows(y, scratch);
        let at_once = cols * rows <= TOGETHER || are_ties && self.equal.is_some();
        let is_inside = !self.defined_by_passes && scratch.rows.len() == rows;
        if !(at_once && is_inside) {
            return doubts.iter().for_each(|&at| one(at, out, scratch));
        }
        let taps = self.few.get_or_init(|| {
            let taps = match (self.equal, self.filter.dense_f64(), self.filter.separated()) {
                (Some(tap), ..) => vec![tap; cols],
                (_, None, Some((across, down))) => {
                    down.iter().flat_map(|down| across.iter().map(move |tap| down * tap)).collect()
                }
                (_, taps, _) => taps.unwrap_or_default().to_vec(),
            };
            let place = |at: usize| at % cols * shape.channels % OCTET % InPlace::BYTES;
            taps.into_iter().enumerate().map(|(at, tap)| InPlace::new(tap, place(at))).collect()
        });
        let under = (cols - 1) * shape.channels + 1;
        let reach = under.next_multiple_of(OCTET);
        // The element under the first tap of the first result of the part.
        let start = (x as isize - anchor_x as isize) * shape.channels as isize;
        // Results whose windows lie in the image, with what is read behind them.
        let last = shape.row_len() as isize - reach as isize - start;
        let inside = (-start).max(0) as usize..(last + 1).max(0) as usize;
        let is_large = cols * rows > LARGE;
        let mut places = Places::default();
        let define = |places: &Places, out: &mut [u8], rows: &[usize]| {
            let bytes = isa.run(Define { settler: self, places, rows, taps });
            for (first, byte) in places.firsts[..places.count].iter().zip(bytes) {
                out[first.wrapping_add_signed(-start)] = byte;
            }
        };
        for &at in doubts {
            let first = at.wrapping_add_signed(start);
            if inside.contains(&at) && !(is_large && self.is_plain(&(first..first + under), scratch)) {
                places.push(first, |places| define(places, out, &scratch.rows));
            } else {
                one(at, out, scratch);
            }
        }
        places.finish(|places| define(places, out, &scratch.rows));
    }

    /// The sum that defines a result, for a window of a few taps inside the image.
    fn small(&self, (x, channel): (usize, usize), rows: &[usize]) -> Option<f64> {
        const SMALL: usize = 64;
        let Window { cols, anchor_x, .. } = self.window;
        let shape = self.src.shape();
        let left = x.checked_sub(anchor_x).filter(|left| left + cols <= shape.width)?;
        if cols * self.window.rows > SMALL || rows.len() < self.window.rows {
            return None;
        }
        let mut sum = 0.0;
        let values = |row: usize| self.src.row(row)[left * shape.channels + channel..].iter().step_by(shape.channels);
        match (self.filter.dense_f64(), self.filter.separated()) {
            (None, Some((across, column))) => {
                for (&row, down) in rows.iter().zip(column) {
                    across.iter().zip(values(row)).for_each(|(across, &value)| sum += down * across * f64::from(value));
                }
            }
            (taps, _) => {
                for (&row, taps) in rows.iter().zip(taps.unwrap_or_default().chunks(cols)) {
                    taps.iter().zip(values(row)).for_each(|(tap, &value)| sum += tap * f64::from(value));
                }
            }
        }
        Some(sum)
    }

    fn find_columns(&self, x: usize, channel: usize, scratch: &mut Scratch) {
        let (shape, window) = (self.src.shape(), &self.window);
        let column = |col| window.column(x, col, shape.width).map(|source| source * shape.channels + channel);
        if scratch.columns.is_empty() {
            scratch.columns.extend((0..window.cols).map(column));
        }
    }

    /// The result in the fastest order.
    fn estimate(&self, isa: Isa, (x, y): (usize, usize), channel: usize, scratch: &mut Scratch) -> f64 {
        let (shape, window) = (self.src.shape(), &self.window);
        let channels = shape.channels;
        let all_rows = scratch.rows.len() == window.rows;
        let spread = self.spread.get_or_init(|| spread(self.filter, channels));
        let left = x.checked_sub(window.anchor_x).filter(|left| left + window.cols <= shape.width);
        let first = left.map(|left| left * channels + channel);
        let len = (window.cols * channels).next_multiple_of(LANES);
        if let Some(first) = first.filter(|first| all_rows && !spread.is_empty() && first + len <= shape.row_len()) {
            return isa.run(Estimate { settler: self, first, rows: &scratch.rows, taps: spread });
        }
        self.find_columns(x, channel, scratch);
        if let (true, None, Some((across, down))) = (all_rows, self.filter.dense_f64(), self.filter.separated()) {
            let least = scratch.columns.iter().flatten().min().copied().unwrap_or(0);
            let end = scratch.columns.iter().flatten().max().map_or(1, |last| last + 1);
            let len = (end - least).next_multiple_of(LANES);
            scratch.folded.clear();
            let room = scratch.folded.try_reserve(len).is_ok();
            if let Some(latest) = shape.row_len().checked_sub(len).filter(|_| room) {
                let first = least.min(latest);
                scratch.folded.resize(len, 0.0);
                let mut outside = 0.0;
                for (tap, column) in across.iter().zip(&scratch.columns) {
                    match column {
                        Some(column) => scratch.folded[column - first] += tap,
                        None => outside += tap * self.outside,
                    }
                }
                let taps = &scratch.folded;
                let inside = isa.run(Estimate { settler: self, first, rows: &scratch.rows, taps });
                return inside + outside * down.iter().sum::<f64>();
            }
        }
        self.window_sum(y, scratch, |sum, row, values| sum + self.row_sum(row, values))
    }

    /// The sum that defines a result; its columns are in `scratch`. Windows of one value, or of equal rows or columns, as skies, walls and
    /// gradients have them, often share a result that is exactly half way between two integers, so it is kept.
    fn defined(&self, (x, y): (usize, usize), channel: usize, scratch: &mut Scratch) -> f64 {
        let compute =
            |scratch: &mut Scratch| self.window_sum(y, scratch, |sum, row, values| self.next_row(sum, row, values));
        let least = scratch.columns.iter().flatten().min().copied();
        let end = scratch.columns.iter().flatten().max().map(|last| last + 1);
        let inside = scratch.rows.len() == self.window.rows && scratch.columns.iter().all(Option::is_some);
        let (Some(least), Some(end), true, Some(&top)) = (least, end, inside, scratch.rows.first()) else {
            return compute(scratch);
        };
        let under = least..end;
        let row = |row: usize| &self.src.row(row)[under.clone()];
        let channels = self.channels();
        if self.rows_are_equal(&under, scratch) {
            if is_even(row(top), channels) {
                let value = row(top)[0];
                return *self.flat[usize::from(value)].get_or_init(|| {
                    scratch.values.clear();
                    scratch.values.resize(self.window.cols, f64::from(value));
                    (0..self.window.rows).fold(0.0, |sum, row| self.next_row(sum, row, &scratch.values))
                });
            }
            let at = x * channels + channel;
            match scratch.one_column.get(&at) {
                Some(&(known, result)) if row(known) == row(top) => result,
                _ => {
                    let result = compute(scratch);
                    // Without room it is computed again.
                    if scratch.one_column.try_reserve(1).is_ok() {
                        scratch.one_column.insert(at, (top, result));
                    }
                    result
                }
            }
        } else if scratch.rows.iter().all(|&at| is_even(row(at), channels)) {
            let same = |at: usize| scratch.rows.iter().all(|&row| self.src.row(row)[at] == self.src.row(row)[least]);
            match scratch.one_row.get(channel) {
                Some(&Some((at, result))) if same(at) => result,
                _ => {
                    let result = compute(scratch);
                    if let Some(known) = scratch.one_row.get_mut(channel) {
                        *known = Some((least, result));
                    }
                    result
                }
            }
        } else {
            compute(scratch)
        }
    }

    /// Whether [`Settler::defined`] may know the result of a window over these elements, or a later one profit from it.
    fn is_plain(&self, under: &Range<usize>, scratch: &mut Scratch) -> bool {
        let is_even = |&at: &usize| is_even(&self.src.row(at)[under.clone()], self.channels());
        self.rows_are_equal(under, scratch) || scratch.rows.iter().all(is_even)
    }

    /// Whether all rows under the window are equal in these elements. Notes how far they are, as the next window is often the next pixel's.
    fn rows_are_equal(&self, under: &Range<usize>, scratch: &mut Scratch) -> bool {
        const AHEAD: usize = 256;
        let Some((&top, others)) = scratch.rows.split_first() else { return false };
        // The last row first: most windows end there.
        let equal = |part: Range<usize>| {
            others.iter().rev().all(|&row| self.src.row(row)[part.clone()] == self.src.row(top)[part.clone()])
        };
        let known = &mut scratch.equal;
        if !(known.start..=known.end).contains(&under.start) {
            *known = under.start..under.start;
        }
        let ahead = (under.end + AHEAD).min(self.src.shape().row_len());
        if known.end < under.end {
            if equal(known.end..ahead) {
                known.end = ahead;
            } else if equal(known.end..under.end) {
                known.end = under.end;
            }
        }
        known.end >= under.end
    }

    /// Goes on with the sum that defines a result, by a row of the window.
    fn next_row(&self, mut sum: f64, row: usize, values: &[f64]) -> f64 {
        match (self.filter.dense_f64(), self.filter.separated()) {
            (None, Some((across, column))) if self.defined_by_passes => {
                sum + column[row] * across.iter().zip(values).fold(0.0, |sum, (tap, value)| sum + tap * value)
            }
            (None, Some((across, column))) => {
                let down = column[row];
                across.iter().zip(values).for_each(|(across, value)| sum += down * across * value);
                sum
            }
            (taps, _) => {
                let taps = &taps.unwrap_or_default()[row * values.len()..];
                taps.iter().zip(values).for_each(|(tap, value)| sum += tap * value);
                sum
            }
        }
    }

    /// Goes through the window over row `y`, a row at a time; its columns are in `scratch`.
    fn window_sum(&self, y: usize, scratch: &mut Scratch, mut add: impl FnMut(f64, usize, &[f64]) -> f64) -> f64 {
        let mut sum = 0.0;
        for row in 0..self.window.rows {
            scratch.values.clear();
            match self.window.row(y, row, self.src.shape().height) {
                Some(source) => {
                    let source = self.src.row(source);
                    let value = |column: &Option<usize>| column.map_or(self.outside, |at| f64::from(source[at]));
                    scratch.values.extend(scratch.columns.iter().map(value));
                }
                None => scratch.values.resize(scratch.columns.len(), self.outside),
            }
            sum = add(sum, row, &scratch.values);
        }
        sum
    }

    /// A row of taps times the pixels under it, in the fastest order.
    fn row_sum(&self, row: usize, values: &[f64]) -> f64 {
        match (self.filter.dense_f64(), self.filter.separated()) {
            (None, Some((across, column))) => column[row] * dot(across, values),
            (Some(taps), _) => dot(&taps[row * values.len()..][..values.len()], values),
            (None, None) => unreachable!("a filter has its taps or their factors"),
        }
    }
}

/// Whether all pixels of a part of a row are equal.
fn is_even(row: &[u8], channels: usize) -> bool {
    row[channels.min(row.len())..] == row[..row.len().saturating_sub(channels)]
}

fn dot(taps: &[f64], values: &[f64]) -> f64 {
    const LANES: usize = 8;
    let mut sums = [0.0; LANES];
    let (taps_chunks, values_chunks) = (taps.chunks_exact(LANES), values.chunks_exact(LANES));
    let rest: f64 = taps_chunks.remainder().iter().zip(values_chunks.remainder()).map(|(tap, value)| tap * value).sum();
    for (taps, values) in taps_chunks.zip(values_chunks) {
        for ((sum, tap), value) in sums.iter_mut().zip(taps).zip(values) {
            *sum += tap * value;
        }
    }
    sums.iter().sum::<f64>() + rest
}

/// See [`Settler::spread`].
fn spread(filter: &Filter, channels: usize) -> Vec<f64> {
    let taps = match (filter.dense_f64(), filter.separated()) {
        (None, Some((row, _))) => row,
        (taps, _) => taps.unwrap_or_default(),
    };
    let cols = filter.cols();
    let len = (cols * channels).next_multiple_of(LANES);
    if len * (taps.len() / cols) > MOST_SPREAD {
        return Vec::new();
    }
    let mut spread: Vec<f64> = crate::memory::zeroed(len * (taps.len() / cols)).unwrap_or_default();
    for (spread, taps) in spread.chunks_exact_mut(len).zip(taps.chunks_exact(cols)) {
        spread.iter_mut().step_by(channels).zip(taps).for_each(|(spread, &tap)| *spread = tap);
    }
    spread
}

/// The results that the definition gives, wherever they are in a row: a lane for each.
struct Define<'a> {
    settler: &'a Settler<'a>,
    places: &'a Places,
    /// The row under each row of taps.
    rows: &'a [usize],
    /// As [`Settler::few`].
    taps: &'a [InPlace],
}

impl Work for Define<'_> {
    type Output = [u8; ABREAST];

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> Self::Output {
        const { assert!(ABREAST.is_multiple_of(VECTORS * L::Wide::LEN)) };
        let (len, count) = (L::Wide::LEN, self.places.count);
        let mut bytes = [0; ABREAST];
        for (at, bytes) in (0..count).step_by(VECTORS * len).zip(bytes.chunks_exact_mut(VECTORS * len)) {
            match count - at {
                left if left <= len => self.results::<L, 1>(at, bytes),
                left if left <= 2 * len => self.results::<L, 2>(at, bytes),
                _ => self.results::<L, VECTORS>(at, bytes),
            }
        }
        bytes
    }
}

impl Define<'_> {
    /// Those from `at` on, in so many vectors.
    #[inline(always)]
    fn results<L: Lanes, const N: usize>(&self, at: usize, bytes: &mut [u8]) {
        let &Self { settler, places, rows, taps } = self;
        let firsts = &places.firsts[at..][..N * L::Wide::LEN];
        let (cols, Shape { channels, .. }) = (settler.window.cols, settler.src.shape());
        let reach = ((cols - 1) * channels + 1).next_multiple_of(OCTET);
        let furthest = firsts.iter().fold(0, |furthest: usize, &first| furthest.max(first));
        assert!(furthest + reach <= settler.src.shape().row_len());
        assert!([cols, cols * rows.len()].contains(&taps.len()));
        let next = if taps.len() == cols { 0 } else { cols };
        let mut all = [0.0; ABREAST];
        // SAFETY: this is in a `Work`; all bytes lie in the rows, and the taps are those of all rows or of one, as is asserted.
        unsafe {
            let mut sums = [L::Wide::splat(0.0); N];
            for (index, &row) in rows.iter().enumerate() {
                let line = settler.src.row(row).as_ptr();
                let taps = taps.as_ptr().add(index * next);
                let (mut col, mut byte) = (0, 0);
                for at in (0..reach).step_by(OCTET) {
                    let mut octets: [L::Octets; N] =
                        std::array::from_fn(|v| L::Octets::load(line.add(at), firsts[v * L::Wide::LEN..].as_ptr()));
                    let mut in_place = InPlace::BYTES;
                    while byte < OCTET && col < cols {
                        if byte >= in_place {
                            octets = octets.map(|octets| octets.skip(InPlace::BYTES));
                            in_place = OCTET;
                        }
                        let tap = &*taps.add(col);
                        for v in 0..N {
                            // The product is rounded before it is added.
                            sums[v] = sums[v].add(L::times_byte(octets[v], tap));
                        }
                        byte += channels;
                        col += 1;
                    }
                    // Of many channels, the next tap may lie beyond the next octet.
                    byte = byte.saturating_sub(OCTET);
                }
            }
            for (sum, all) in sums.iter().zip(all.chunks_exact_mut(L::Wide::LEN)) {
                sum.store(all.as_mut_ptr());
            }
        }
        bytes.iter_mut().zip(all).for_each(|(byte, sum)| *byte = sum.byte());
    }
}

/// A result in f64, in the fastest order.
struct Estimate<'a> {
    settler: &'a Settler<'a>,
    /// The element under the first tap.
    first: usize,
    /// The row under each row of taps.
    rows: &'a [usize],
    /// As [`Settler::spread`]: a row for a product, else every row. A row is a multiple of LANES long, and all of it lies on the image.
    taps: &'a [f64],
}

impl Work for Estimate<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> f64 {
        let Self { settler: Settler { src, filter, .. }, first, rows, taps: spread } = self;
        let product = filter.dense_f64().is_none();
        let len = if product { spread.len() } else { spread.len() / rows.len() };
        assert!(len.is_multiple_of(LANES) && first + len <= src.shape().row_len());
        // The chunk is in the row, as is asserted.
        let under = |row: usize, chunk: usize| &src.row(row)[first + chunk..][..LANES];
        const { assert!(LANES.is_multiple_of(W * L::Wide::LEN)) };
        let mut all = [0.0; LANES];
        // SAFETY: this is in a `Work`; every pointer is that of an array, or of a part of a row, of at least LANES values.
        unsafe {
            // A few rows at a time, which the processor fetches ahead; so many as there are pages that it finds at once.
            for (index, rows) in rows.chunks(BLOCK).enumerate() {
                for at in (0..len).step_by(W * L::Wide::LEN) {
                    let (chunk, part) = (at / LANES * LANES, at % LANES);
                    let mut sums = [L::Wide::splat(0.0); W];
                    match filter.separated() {
                        Some((_, column)) if product => {
                            for (&row, &tap) in rows.iter().zip(&column[index * BLOCK..]) {
                                let bytes = under(row, chunk).as_ptr().add(part);
                                for (v, sum) in sums.iter_mut().enumerate() {
                                    let values = L::widen_bytes(bytes.add(v * L::Wide::LEN));
                                    *sum = values.mul_add(L::Wide::splat(tap), *sum);
                                }
                            }
                            for (v, sum) in sums.iter().enumerate() {
                                let at = part + v * L::Wide::LEN;
                                let taps = L::Wide::load(spread[chunk..][..LANES].as_ptr().add(at));
                                let place = all.as_mut_ptr().add(at);
                                sum.mul_add(taps, L::Wide::load(place)).store(place);
                            }
                        }
                        _ => {
                            for (&row, taps) in rows.iter().zip(spread[index * BLOCK * len..].chunks_exact(len)) {
                                let bytes = under(row, chunk).as_ptr().add(part);
                                let taps = taps[chunk..][..LANES].as_ptr().add(part);
                                for (v, sum) in sums.iter_mut().enumerate() {
                                    let values = L::widen_bytes(bytes.add(v * L::Wide::LEN));
                                    *sum = values.mul_add(L::Wide::load(taps.add(v * L::Wide::LEN)), *sum);
                                }
                            }
                            for (v, sum) in sums.iter().enumerate() {
                                let place = all.as_mut_ptr().add(part + v * L::Wide::LEN);
                                L::Wide::load(place).add(*sum).store(place);
                            }
                        }
                    }
                }
            }
        }
        all.iter().sum()
    }
}
