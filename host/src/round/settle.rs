//! The sum in f64 that decides a result in doubt: first in the fastest order; then, if the order could change the result, in the order
//! that defines it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::OnceLock;

use gpu_kernels::border::KEEP;

use super::doubt::Doubt;
use super::{Bound, Bounds, Order};
use crate::image::ImageView;
use crate::simd::{Isa, Lanes, Vector, Work};
use crate::window::Window;
use crate::{Border, Filter};

/// The most taps for which a separable filter's results are defined by the sum over all of them.
pub(super) const MAX_WINDOW: usize = 1 << 16;

/// Values under a window are summed in groups of so many.
const LANES: usize = 64;

/// The most taps for which results next to each other are defined together, in vectors.
pub(crate) const TOGETHER: usize = 200;

/// The same for results that nothing else can decide.
const TIES_TOGETHER: usize = 4096;

/// How many results next to each other that is, and how many such groups at once, as each sum is a chain of additions.
const BESIDE: usize = 8;
const GROUPS: usize = 4;

/// One result in so many is where the products of whole rows are worth it.
const MANY: usize = 16;

/// How many results that are not next to each other.
const APART: usize = 8;

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
    /// The taps that define results, row by row, of a window that has few.
    few: OnceLock<Vec<f64>>,
    /// The value of every tap, if all are equal.
    equal: Option<f64>,
    /// Where they are, each value times the tap.
    products: OnceLock<[f64; 256]>,
    /// For each value, the result where all pixels under the window have it.
    flat: [OnceLock<f64>; 256],
}

/// Places of a row that are taken together: the first result, and the element under its first tap.
struct Places<const N: usize> {
    places: [(usize, usize); N],
    count: usize,
}

impl<const N: usize> Default for Places<N> {
    fn default() -> Self {
        Self { places: [(0, 0); N], count: 0 }
    }
}

impl<const N: usize> Places<N> {
    /// Adds a place; takes them if that was the last there is room for.
    fn push(&mut self, place: (usize, usize), take: impl FnOnce(&[(usize, usize); N])) {
        self.places[self.count] = place;
        self.count += 1;
        if self.count == N {
            self.finish(take);
        }
    }

    /// Takes those that are left, the first of them several times.
    fn finish(&mut self, take: impl FnOnce(&[(usize, usize); N])) {
        if self.count > 0 {
            let first = self.places[0];
            self.places[self.count..].fill(first);
            self.count = 0;
            take(&self.places);
        }
    }
}

/// A thread's memory.
#[derive(Default)]
pub(crate) struct Scratch {
    /// The chunks of a row that hold results in doubt, with a bit for each that may be.
    pub(super) chunks: Vec<(usize, u64)>,
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
    /// For each channel, the last result whose window has the same pixel all along each row: the place of such a pixel, and the result.
    one_row: [Option<(usize, f64)>; 4],
    /// For each element, the last result whose window has the same row all the way down: that row, and the result.
    one_column: HashMap<usize, (usize, f64)>,
    /// The element of the row that each tap column reads.
    columns: Vec<Option<usize>>,
    /// The pixels under a row of taps.
    values: Vec<f64>,
    /// A row of taps, as they lie on the pixels that a window at the image's edge reads.
    folded: Vec<f64>,
    products: Products,
}

/// Rows of the image times a tap, rounded as the definition says: where all taps are equal, results next to each other add up the
/// same products.
#[derive(Default)]
struct Products {
    /// The elements of each row.
    part: Range<usize>,
    /// The row in each place: row `y` is in place `y % places.len()`.
    places: Vec<Option<usize>>,
    values: Vec<f64>,
}

impl Products {
    /// Has these rows, which follow each other, ready; false if there is no room.
    fn find(&mut self, isa: Isa, src: &ImageView<'_, u8>, rows: &[usize], part: Range<usize>, tap: f64) -> bool {
        if self.part != part || self.places.len() != rows.len() {
            self.part = part;
            self.places.clear();
            self.places.resize(rows.len(), None);
            self.values.clear();
            if self.values.try_reserve_exact(rows.len() * self.part.len()).is_err() {
                self.places.clear();
                return false;
            }
            self.values.resize(rows.len() * self.part.len(), 0.0);
        }
        for &row in rows {
            let place = row % rows.len();
            if self.places[place] != Some(row) {
                self.places[place] = Some(row);
                let products = &mut self.values[place * self.part.len()..][..self.part.len()];
                isa.run(Multiply { values: &src.row(row)[self.part.clone()], tap, products });
            }
        }
        true
    }
}

/// Pixels times a tap.
struct Multiply<'a> {
    values: &'a [u8],
    tap: f64,
    products: &'a mut [f64],
}

impl Work for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        self.products.iter_mut().zip(self.values).for_each(|(product, &value)| *product = self.tap * f64::from(value));
    }
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
            products: OnceLock::new(),
            flat: [const { OnceLock::new() }; 256],
        }
    }

    /// The bounds of sums in this order.
    pub(super) fn bound(&self, order: Order) -> Bound {
        *self.bounds.orders[order as usize].get_or_init(|| Bound::new(self.filter, &self.window, order))
    }

    /// The results of a window of one tap, for each value.
    pub(crate) fn of_single_pixels(&self) -> [u8; 256] {
        std::array::from_fn(|value| nearest(self.next_row(0.0, 0, &[value as f64])))
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

    /// Stores correct results at elements of a part of row `y` that begins at column `x`: those in doubt, in ascending order, and some
    /// beside them. Calls `one` for each that is not next to enough others, or whose window leaves the image.
    pub(super) fn together(
        &self,
        isa: Isa,
        (x, y): (usize, usize),
        (are_ties, doubts): (bool, impl Iterator<Item = usize>),
        out: &mut [u8],
        scratch: &mut Scratch,
        mut one: impl FnMut(usize, &mut [u8], &mut Scratch),
    ) {
        let Window { cols, rows, anchor_x, .. } = self.window;
        let shape = self.src.shape();
        self.find_rows(y, scratch);
        let most = if are_ties { TIES_TOGETHER } else { TOGETHER };
        let mut apart = Places::<APART>::default();
        // The element under the first tap of the first result of the part.
        let start = (x as isize - anchor_x as isize) * shape.channels as isize;
        // The same for another one, if so many elements from there on lie in the image.
        let inside = |at: usize, reach: usize| {
            usize::try_from(start + at as isize).ok().filter(|first| first + reach <= shape.row_len())
        };
        let is_inside = !self.defined_by_passes && scratch.rows.len() == rows;
        if cols * rows > most || !is_inside || out.len() < BESIDE {
            let reach = (cols - 1) * shape.channels + 1;
            let together = are_ties && is_inside && self.equal.is_some();
            for at in doubts {
                let first = inside(at, reach).filter(|_| together);
                match first.filter(|&first| !self.is_plain(&(first..first + reach), scratch)) {
                    Some(first) => apart.push((at, first), |places| self.add_up_apart(places, &scratch.rows, out)),
                    None => one(at, out, scratch),
                }
            }
            return apart.finish(|places| self.add_up_apart(places, &scratch.rows, out));
        }
        let taps = self.few.get_or_init(|| match (self.filter.dense_f64(), self.filter.separated()) {
            (None, Some((across, down))) => {
                down.iter().flat_map(|down| across.iter().map(move |tap| down * tap)).collect()
            }
            (taps, _) => taps.unwrap_or_default().to_vec(),
        });
        let reach = (cols - 1) * shape.channels + BESIDE;
        let end = start.saturating_add_unsigned(out.len() + reach).max(0) as usize;
        let under = usize::try_from(start).unwrap_or(0)..end.min(shape.row_len());
        let mut groups = Places::<GROUPS>::default();
        // Products of a row are for many results.
        let few = doubts.size_hint().0 < out.len() / MANY;
        let mut doubts = doubts.peekable();
        while let Some(doubt) = doubts.next() {
            let at = doubt.min(out.len() - BESIDE);
            let Some(first) = inside(at, reach) else {
                one(doubt, out, scratch);
                continue;
            };
            let second = doubts.next_if(|&next| next < at + BESIDE);
            let more = doubts.peek().is_some_and(|&next| next < at + BESIDE);
            if self.equal.is_some() && (few || !more) {
                for doubt in [Some(doubt), second].into_iter().flatten() {
                    apart.push((doubt, first + doubt - at), |places| self.add_up_apart(places, &scratch.rows, out));
                }
                continue;
            }
            while doubts.next_if(|&next| next < at + BESIDE).is_some() {}
            groups.push((at, first), |places| self.define(isa, (places, &under), taps, out, scratch));
        }
        groups.finish(|places| self.define(isa, (places, &under), taps, out, scratch));
        apart.finish(|places| self.add_up_apart(places, &scratch.rows, out));
    }

    /// Stores the results that the definition gives to groups of results next to each other.
    fn define(
        &self,
        isa: Isa,
        (groups, under): (&[(usize, usize); GROUPS], &Range<usize>),
        taps: &[f64],
        out: &mut [u8],
        scratch: &mut Scratch,
    ) {
        let rows = &scratch.rows;
        let in_order = rows.windows(2).all(|pair| pair[1] == pair[0] + 1);
        let equal =
            self.equal.filter(|&tap| in_order && scratch.products.find(isa, &self.src, rows, under.clone(), tap));
        let sums = if equal.is_some() {
            isa.run(AddUp { settler: self, groups, rows, products: &scratch.products })
        } else {
            isa.run(Define { settler: self, groups, rows, taps })
        };
        for ((at, _), sums) in groups.iter().zip(sums) {
            out[*at..][..BESIDE].iter_mut().zip(sums).for_each(|(out, sum)| *out = nearest(sum));
        }
    }

    /// The same for results far from each other, where all taps are equal.
    fn add_up_apart(&self, places: &[(usize, usize); APART], rows: &[usize], out: &mut [u8]) {
        let tap = self.equal.unwrap_or(0.0);
        let products = self.products.get_or_init(|| std::array::from_fn(|value| tap * value as f64));
        let channels = self.channels();
        let len = (self.window.cols - 1) * channels + 1;
        let mut sums = [0.0; APART];
        for &row in rows {
            let row = self.src.row(row);
            let lines: [&[u8]; APART] = std::array::from_fn(|i| &row[places[i].1..][..len]);
            for at in (0..len).step_by(channels) {
                for (sum, line) in sums.iter_mut().zip(lines) {
                    *sum += products[usize::from(line[at])];
                }
            }
        }
        for ((at, _), sum) in places.iter().zip(sums) {
            out[*at] = nearest(sum);
        }
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
            match scratch.one_row[channel] {
                Some((at, result)) if same(at) => result,
                _ => {
                    let result = compute(scratch);
                    scratch.one_row[channel] = Some((least, result));
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

/// Rounds half to even and saturates.
pub(super) fn nearest(value: f64) -> u8 {
    /// A number beyond which f64 has no fractions. The function that rounds is a call where the processor may be an old one.
    const WHOLE: f64 = 1.5 * (1u64 << 52) as f64;
    (value.clamp(0.0, 255.0) + WHOLE - WHOLE) as u8
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

/// The sums that define [`BESIDE`] results next to each other, in [`GROUPS`] places of a row.
struct Define<'a> {
    settler: &'a Settler<'a>,
    /// For each group, the element under the first tap of its first result.
    groups: &'a [(usize, usize); GROUPS],
    /// The row under each row of taps.
    rows: &'a [usize],
    taps: &'a [f64],
}

impl Work for Define<'_> {
    type Output = [[f64; BESIDE]; GROUPS];

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> Self::Output {
        let Self { settler, groups, rows, taps } = self;
        let (cols, shape) = (settler.window.cols, settler.src.shape());
        let reach = (cols - 1) * shape.channels + BESIDE;
        assert!(groups.iter().all(|(_, first)| first + reach <= shape.row_len()) && taps.len() == cols * rows.len());
        const { assert!(BESIDE.is_multiple_of(L::Wide::LEN)) };
        let mut all = [[0.0; BESIDE]; GROUPS];
        // SAFETY: this is in a `Work`; every group's windows lie in the row, as is asserted, and `all` has a place for each vector.
        unsafe {
            let zero = L::Wide::splat(0.0);
            for part in (0..BESIDE).step_by(L::Wide::LEN) {
                let mut sums = [zero; GROUPS];
                for (&row, taps) in rows.iter().zip(taps.chunks_exact(cols)) {
                    let line = settler.src.row(row).as_ptr();
                    let lines: [*const u8; GROUPS] = std::array::from_fn(|group| line.add(groups[group].1 + part));
                    for (col, &tap) in taps.iter().enumerate() {
                        let tap = L::Wide::splat(tap);
                        for (sum, line) in sums.iter_mut().zip(lines) {
                            // The product is rounded before it is added.
                            let product = L::widen_bytes(line.add(col * shape.channels)).mul_add(tap, zero);
                            *sum = sum.add(product);
                        }
                    }
                }
                for (all, sum) in all.iter_mut().zip(sums) {
                    sum.store(all.as_mut_ptr().add(part));
                }
            }
        }
        all
    }
}

/// The same where all taps are equal, from products.
struct AddUp<'a> {
    settler: &'a Settler<'a>,
    groups: &'a [(usize, usize); GROUPS],
    rows: &'a [usize],
    products: &'a Products,
}

impl Work for AddUp<'_> {
    type Output = [[f64; BESIDE]; GROUPS];

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> Self::Output {
        let Self { settler, groups, rows, products } = self;
        let (cols, channels, part) = (settler.window.cols, settler.channels(), &products.part);
        let reach = (cols - 1) * channels + BESIDE;
        assert!(groups.iter().all(|(_, first)| part.start <= *first && first + reach <= part.end));
        assert!(products.values.len() == rows.len() * part.len());
        const { assert!(BESIDE.is_multiple_of(L::Wide::LEN)) };
        let mut all = [[0.0; BESIDE]; GROUPS];
        // SAFETY: this is in a `Work`; every group's windows lie in the part, as is asserted, and `all` has a place for each vector.
        unsafe {
            for beside in (0..BESIDE).step_by(L::Wide::LEN) {
                let mut sums = [L::Wide::splat(0.0); GROUPS];
                for &row in rows {
                    let line = products.values.as_ptr().add(row % rows.len() * part.len() + beside);
                    let lines: [*const f64; GROUPS] =
                        std::array::from_fn(|group| line.add(groups[group].1 - part.start));
                    for col in 0..cols {
                        for (sum, line) in sums.iter_mut().zip(lines) {
                            *sum = sum.add(L::Wide::load(line.add(col * channels)));
                        }
                    }
                }
                for (all, sum) in all.iter_mut().zip(sums) {
                    sum.store(all.as_mut_ptr().add(beside));
                }
            }
        }
        all
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
