//! The direct and the separable family: one pass over all taps, or a row pass and a column pass.
//!
//! The image is cut into rectangles, one for each job: bands of rows, and strips of columns where lines are long. A job
//! keeps the lines under the window in a ring that stays in the cache: each is a row of source pixels as they are stored,
//! channels interleaved, converted to f32, with the border's pixels around it; for a separable filter, the row pass's
//! result. The kernel of [`super::tile`] computes a few rows of sums from it, which are rounded to pixels at once.
//!
//! Every sum takes its taps in the order of its family, as in the GPU's kernels, so the bits are the same. Only where 8-bit
//! results come from 8-bit pixels is the order free, as they are correctly rounded in any case (see [`crate::round`]).

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Mutex, PoisonError};

use super::exact::{self, Exact};
use super::share::share;
use super::tile::{MARGIN, Outs, ROWS, SLACK, Tiles, rows_at_once};
use super::whole::{Pair, RowSums, WholeRow};
use crate::Result;
use crate::image::{ImageView, ImageViewMut, Pixel, Shape};
use crate::progress::Stage;
use crate::round::{self, Order, Rounder, column_block, row_block, terms_together};
use crate::simd::{Float, Isa, Lanes, Work};
use crate::window::Window;

/// Bytes in a ring, if the image's size allows it: a quarter of a megabyte, which every second-level cache holds.
const RING: usize = 1 << 18;

/// Bytes in a ring that holds every line under the window; beyond, the window is taken in blocks of rows.
const GREATEST_RING: usize = 1 << 20;

/// The least length of a strip's lines, in bytes.
const STRIP: usize = 2048;

/// Bytes in a cache line.
const CACHE_LINE: usize = 64;

/// Bytes in a page of memory.
pub(super) const PAGE: usize = 4096;

/// A filter as the engine computes it, in f32 or in f64.
#[derive(Clone, Copy)]
pub(super) struct Passes<'a, E> {
    /// A separable filter's row of taps, for the first pass.
    pub(super) across: Option<&'a [E]>,
    /// The same in whole numbers, for bytes in f32, where its order is free.
    pub(super) whole: Option<&'a WholeRow>,
    /// What is subtracted from pixels that have no row pass.
    pub(super) middle: f32,
    /// What sums lack for either.
    pub(super) lacks: f64,
    /// The taps of the last pass, row by row: all taps, or a separable filter's column.
    pub(super) taps: &'a [E],
}

impl<'a, E> Passes<'a, E> {
    /// All taps, row by row.
    pub(super) fn dense(taps: &'a [E]) -> Self {
        Self { across: None, whole: None, middle: 0.0, lacks: 0.0, taps }
    }

    /// A row and a column.
    pub(super) fn new(row: &'a [E], column: &'a [E]) -> Self {
        Self { across: Some(row), whole: None, middle: 0.0, lacks: 0.0, taps: column }
    }
}

/// A filter as a sum of such.
pub(super) struct Terms<'a, E> {
    /// The factor of the pixel itself, if it has one beside the passes.
    pub(super) point: Option<E>,
    /// At least one; more than one, or one beside a point, are all separable.
    pub(super) passes: Vec<Passes<'a, E>>,
}

impl<E: Float> Terms<'_, E> {
    /// What all sums lack.
    fn lack(&self) -> f64 {
        self.passes.iter().map(|passes| passes.lacks).sum()
    }

    /// The taps of all columns in turn, tap by tap.
    fn columns(&self) -> Vec<E> {
        let rows = self.passes.first().map_or(0, |passes| passes.taps.len());
        (0..rows).flat_map(|row| self.passes.iter().map(move |passes| passes.taps[row])).collect()
    }
}

impl<'a, E> From<Passes<'a, E>> for Terms<'a, E> {
    fn from(passes: Passes<'a, E>) -> Self {
        Self { point: None, passes: vec![passes] }
    }
}

/// An image, a window over it, and the destination.
pub(super) struct Frame<'a, S, D> {
    pub(super) isa: Isa,
    pub(super) window: Window,
    pub(super) src: ImageView<'a, S>,
    pub(super) dst: Target<'a, D>,
    /// Channels that are filtered; the others are copied.
    pub(super) filtered: usize,
}

impl<'a, S: Pixel, D: Pixel> Frame<'a, S, D> {
    pub(super) fn new(
        isa: Isa,
        window: Window,
        src: &ImageView<'a, S>,
        dst: &'a mut ImageViewMut<'_, D>,
        filtered: usize,
    ) -> Self {
        let dst = Target { stride: dst.stride(), first: dst.as_mut_ptr(), image: PhantomData };
        Self { isa, window, src: *src, dst, filtered }
    }
}

/// Everything that the jobs share: a frame, and the filter with sums of type `E`.
pub(super) struct Run<'a, S, D, E> {
    frame: &'a Frame<'a, S, D>,
    terms: &'a Terms<'a, E>,
    rounder: Option<&'a Rounder<'a, E>>,
    /// Each term's column, and the point's factor, in f64.
    in_f64: (Vec<&'a [f64]>, f64),
    /// Taps of exact passes for a result.
    exact_taps: usize,
    /// The taps of all terms' columns in turn, where one pass takes them together: a line of the ring then has a part for each term.
    together: Vec<E>,
    /// Tap columns in the last pass.
    cols: usize,
    /// How many taps of the last pass are summed apart.
    block: usize,
    /// How many taps of a row pass are summed apart.
    row_block: usize,
    /// The number of blocks that the window's rows are divided into.
    blocks: usize,
    /// Lines in the ring.
    slots: usize,
}

/// The destination, to be written in rectangles by several threads.
pub(super) struct Target<'a, D> {
    first: *mut D,
    stride: usize,
    image: PhantomData<&'a mut [D]>,
}

// SAFETY: it stands for an exclusive borrow of the pixels, and threads write disjoint rectangles; see `row`.
unsafe impl<D: Send> Sync for Target<'_, D> {}

impl<D> Target<'_, D> {
    /// A part of row `y`.
    ///
    /// # Safety
    /// The part lies in the image, and there is no other reference to any of it.
    #[expect(clippy::mut_from_ref, reason = "as a cell's; the contract says when")]
    pub(super) unsafe fn row(&self, y: usize, part: Range<usize>) -> &mut [D] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(y * self.stride + part.start), part.len()) }
    }
}

/// Filters the image in f32. Bytes are computed exactly where many results are uncertain: from where a rectangle's [`Allowance`]
/// ends, and whole rectangles while f32 has taken longer for those so far.
pub(super) fn run<S: Pixel, D: Pixel>(
    in_f32: &Run<'_, S, D, f32>,
    exact: Option<&Exact<'_>>,
    stage: &Stage<'_>,
) -> Result<()> {
    let Shape { width, height, channels } = in_f32.frame.src.shape();
    let (window_rows, strip) = (in_f32.frame.window.rows, in_f32.strip());
    let strips = width.div_ceil(strip);
    // By how many nanoseconds f32 was faster, in all rectangles so far.
    let gained = Mutex::new(0.0);
    let gain = |nanoseconds: f64| {
        let mut all = gained.lock().unwrap_or_else(PoisonError::into_inner);
        *all += nanoseconds;
        *all
    };
    type Both = (Scratch<f32>, exact::Scratch);
    let rectangle = |(narrow, wide): &mut Both, columns: Range<usize>, rows: Range<usize>| {
        let Some(exact) = exact else { return in_f32.rectangle(narrow, &columns, rows, &mut None).map(|_| ()) };
        let (settling, mut first) = (in_f32.settling(), rows.start);
        if gain(0.0) >= 0.0 {
            let start = Allowance::new(settling, exact);
            let mut allowance = Some(start);
            first = in_f32.rectangle(narrow, &columns, rows.clone(), &mut allowance)?;
            gain(allowance.map_or(0.0, |allowance| allowance.left - start.left));
        } else {
            let results = columns.len() * rows.len() * channels;
            gain(RETRY * settling.per_result * results as f64);
        }
        exact.rectangle(wide, &columns, first..rows.end)
    };

    let band = match stage.cut_for() {
        1 => height,
        threads => band(height, window_rows, strips, threads),
    };
    let bands = height.div_ceil(band);
    share(stage, 0..bands * strips, |memory, job| {
        let (x, y) = (job % strips * strip, job / strips * band);
        rectangle(memory, x..width.min(x + strip), y..height.min(y + band))
    })
}

/// The rows of a band, of an image in so many strips. Where bands meet, lines are computed twice, so a band should have several times the
/// window's rows, if that keeps all threads busy.
pub(crate) fn band(height: usize, window: usize, strips: usize, threads: usize) -> usize {
    let even = |jobs: usize| height.div_ceil((jobs / strips).max(1));
    // A job more than there are threads would take as long as all others.
    even(4 * threads).max(even(threads).min(4 * window))
}

/// The values of a strip's line of f32, for a ring under a window of so many rows, without what is beside the strip.
pub(crate) fn strip_values(rows: usize) -> usize {
    let slots = rows + rows_at_once(rows) - 1;
    (RING / size_of::<f32>() / slots).saturating_sub(SLACK).max(STRIP / size_of::<f32>())
}

/// What an exact rectangle adds to what f32 has gained, as a part of what it takes longer: so f32 is tried again now and then.
const RETRY: f64 = 1.0 / 16.0;

/// How long it takes to be sure of uncertain results.
#[derive(Clone, Copy)]
pub(crate) struct Settling {
    /// Nanoseconds that an exact pass takes longer for a result.
    pub(crate) per_result: f64,
    /// Nanoseconds to resolve a result, after the sum by columns if there is one.
    per_doubt: f64,
    /// Nanoseconds for a sum by columns, of a result and those beside it.
    per_sum: f64,
}

impl Settling {
    /// For a window, channels that are side by side, and the taps that a result takes in f32 and in exact passes. Where a column
    /// pass in f64 over the rows in the ring comes first, `columns` are its taps, and the part of uncertain results that it leaves so.
    pub(crate) fn new(
        (cols, rows): (usize, usize),
        channels: usize,
        (taps, exact_taps): (f64, f64),
        columns: Option<(usize, f64)>,
    ) -> Self {
        let from = |bytes: usize| if bytes > CACHE { FAR } else { 1.0 };
        let under = cols * rows * channels;
        let by_window = from(under) * SETTLED_TAP * under as f64 + SETTLED;
        let column_tap = from(rows * STRIP) * COLUMN_TAP;
        let (per_sum, left) = columns.map_or((0.0, 1.0), |(taps, left)| (column_tap * taps as f64, left));
        let per_result = PASS_TAP * (2.0 * exact_taps - taps).max(0.0);
        Self { per_result, per_doubt: left * by_window, per_sum }
    }

    /// Nanoseconds to resolve a result with no other beside it.
    pub(crate) fn alone(&self) -> f64 {
        self.per_sum + self.per_doubt
    }
}

/// How many results of a rectangle may be resolved one by one before exact passes go on.
///
/// They take over when this has taken as long as it would have taken to compute all exactly from the start, so at worst it takes twice the
/// time of the better way.
#[derive(Clone, Copy)]
struct Allowance {
    settling: Settling,
    /// What is left, in nanoseconds.
    left: f64,
}

impl Allowance {
    fn new(settling: Settling, exact: &Exact<'_>) -> Self {
        // The lines under the window are made again.
        let again = exact.taps_before() as f64 * PASS_TAP * (STRIP / 4) as f64;
        Self { settling, left: 2.0 * again }
    }

    /// Counts results, uncertain ones, and the sums by columns that are taken for them; says whether they are still to be resolved one by one.
    fn covers(&mut self, results: usize, doubts: usize, sums: usize) -> bool {
        let Settling { per_result, per_doubt, per_sum } = self.settling;
        self.left += per_result * results as f64 - per_doubt * doubts as f64 - per_sum * sums as f64;
        self.left >= 0.0
    }
}

/// Nanoseconds that a thread takes for a tap of a pass in f32, and about as many more for one in f64.
const PASS_TAP: f64 = 0.03;

/// Nanoseconds for a tap of a column pass in f64 for a single result.
const COLUMN_TAP: f64 = 1.5;

/// Bytes that a core's own cache holds, and how much longer both take where the pixels do not fit.
const CACHE: usize = 1 << 20;
const FAR: f64 = 3.0;

/// Nanoseconds for a tap of a result that is resolved, other channels' values between them included, and for the result itself.
const SETTLED_TAP: f64 = 0.09;
const SETTLED: f64 = 100.0;

impl<S: Pixel, D: Pixel> Run<'_, S, D, f32> {
    /// How long it takes to be sure of results, if they may be uncertain.
    fn settling(&self) -> Settling {
        let Window { cols, rows, .. } = self.frame.window;
        let left = self.rounder.and_then(Rounder::left_by_columns);
        let columns = left.map(|left| (rows * self.terms.passes.len(), left));
        let taps = (self.taps_taken() as f64, self.exact_taps as f64);
        Settling::new((cols, rows), self.frame.src.shape().channels, taps, columns)
    }
}

impl<'a, S: Pixel, D: Pixel, E: Float> Run<'a, S, D, E> {
    pub(super) fn new(
        frame: &'a Frame<'a, S, D>,
        terms: &'a Terms<'a, E>,
        rounder: Option<&'a Rounder<'a, E>>,
    ) -> Self {
        let Frame { window, src, .. } = frame;
        let separable = terms.passes.iter().all(|passes| passes.across.is_some());
        let cols = if separable { 1 } else { window.cols };
        let halo = (cols - 1) * src.shape().channels;
        let most = (GREATEST_RING / size_of::<E>() / (STRIP / size_of::<E>() + halo + SLACK)).max(8);
        // A row pass costs too much to repeat it for each block.
        let blocks = if cols == 1 { 1 } else { window.rows.div_ceil(most) };
        let block = window.rows.div_ceil(blocks);
        let slots = (block + rows_at_once(block) - 1).min(src.shape().height + 1);
        let beside = terms.passes.len() > 1 && (rounder.is_none() || terms_together(window.rows));
        let together = if beside { terms.columns() } else { Vec::new() };
        // In f64 nothing is gained by blocks.
        let in_f32 = size_of::<E>() == size_of::<f32>();
        let (apart, row_block) = match rounder.map(Rounder::order) {
            Some(Order::ByRows) => (window.cols, usize::MAX),
            Some(Order::BlockPasses) if in_f32 => (column_block(window.rows), row_block(window.cols)),
            // A term's column is one block at least.
            Some(Order::Terms) if in_f32 && !beside => {
                (column_block(window.rows).min(window.rows), row_block(window.cols))
            }
            Some(Order::Terms) if in_f32 => (usize::MAX, row_block(window.cols)),
            _ => (usize::MAX, usize::MAX),
        };
        let in_f64 = (Vec::new(), 0.0);
        Self { frame, terms, rounder, in_f64, exact_taps: 0, together, cols, block: apart, row_block, blocks, slots }
    }

    /// The same, with the columns of all terms, if they are separable, and the factor of the pixel itself, in f64; and the taps
    /// of exact passes for a result.
    pub(super) fn with_columns(self, columns: Vec<&'a [f64]>, point: f64, exact_taps: usize) -> Self {
        Self { in_f64: (columns, point), exact_taps, ..self }
    }

    fn strip(&self) -> usize {
        let Shape { width, channels, .. } = self.frame.src.shape();
        let halo = (self.cols - 1) * channels;
        let (ring, least) = (RING / size_of::<E>(), STRIP / size_of::<E>());
        let strip = (ring / (self.slots * self.terms.passes.len())).saturating_sub(halo + SLACK).max(least) / channels;
        // A whole number of tiles.
        width.div_ceil(width.div_ceil(strip.max(1))).next_multiple_of(SLACK)
    }

    /// How many pairs a line of these columns is made of, if any of its rows is in whole numbers.
    fn pairs_read(&self, columns: &Range<usize>) -> Option<usize> {
        let channels = self.frame.src.shape().channels;
        let rows = self.terms.passes.iter().filter_map(|passes| passes.whole);
        rows.map(|row| row.pairs_read(columns.len() * channels, channels)).max()
    }

    /// How many taps are taken for a result.
    fn taps_taken(&self) -> usize {
        self.terms.passes.iter().map(|passes| passes.across.map_or(0, <[E]>::len) + passes.taps.len()).sum()
    }

    /// Filters some columns of some rows. No two jobs have a pixel in common. Ends early, with the row to go on from, if the allowance does not last.
    fn rectangle(
        &self,
        scratch: &mut Scratch<E>,
        columns: &Range<usize>,
        rows: Range<usize>,
        allowance: &mut Option<Allowance>,
    ) -> Result<usize> {
        let channels = self.frame.src.shape().channels;
        if rows.is_empty() {
            return Ok(rows.end);
        }
        scratch.start(self, columns)?;
        let mut y = rows.start;
        while y < rows.end && allowance.is_none_or(|allowance| allowance.left >= 0.0) {
            let count = self.rows_together(rows.end - y);
            let mut parts: [&mut [D]; ROWS] = std::array::from_fn(|i| {
                if i < count {
                    // SAFETY: the rows and columns are this job's own; each part is borrowed once.
                    unsafe { self.frame.dst.row(y + i, columns.start * channels..columns.end * channels) }
                } else {
                    &mut []
                }
            });
            if !self.rows(scratch, columns, y, &mut parts[..count], allowance) {
                break;
            }
            y += count;
        }
        Ok(y)
    }

    /// How many rows are computed together where so many are left.
    fn rows_together(&self, left: usize) -> usize {
        let most = rows_at_once(self.frame.window.rows.div_ceil(self.blocks));
        if left >= most { most } else { 1 }
    }

    /// Computes the pixels of a few rows; false, and they are not finished, if the allowance does not last.
    fn rows(
        &self,
        scratch: &mut Scratch<E>,
        columns: &Range<usize>,
        y: usize,
        parts: &mut [&mut [D]],
        allowance: &mut Option<Allowance>,
    ) -> bool {
        let whole = self.blocks == 1 && columns.len() * self.frame.src.shape().channels >= SLACK;
        let is_stored_so = D::floats_mut(&mut []).and_then(E::of_floats).is_some();
        let finished = match self.rounder.map(|rounder| (rounder, rounder.limit().filter(|_| whole))) {
            Some((rounder, Some(limit))) => self.bytes(scratch, columns, y, parts, (rounder, limit), allowance),
            _ if whole && self.rounder.is_none() && self.terms.point.is_none() && is_stored_so => {
                self.floats(scratch, columns, y, parts);
                true
            }
            _ => {
                self.sums(scratch, columns, y, parts, allowance);
                true
            }
        };
        let Frame { window, src, filtered, .. } = self.frame;
        for (i, part) in parts.iter_mut().enumerate() {
            window.restore(src, *filtered, columns, y + i, part);
        }
        finished
    }

    /// Rounds the sums to bytes as they are made.
    fn bytes(
        &self,
        scratch: &mut Scratch<E>,
        columns: &Range<usize>,
        y: usize,
        parts: &mut [&mut [D]],
        (rounder, limit): (&Rounder<'_, E>, E),
        allowance: &mut Option<Allowance>,
    ) -> bool {
        let count = parts.len();
        let mut places = parts.iter_mut().filter_map(|part| D::bytes_mut(part));
        let mut outs: [&mut [u8]; ROWS] = std::array::from_fn(|_| places.next().unwrap_or_default());
        let mut noted = std::mem::take(&mut scratch.noted);
        noted.iter_mut().for_each(Vec::clear);
        let mut sums = std::mem::take(&mut scratch.sums);
        self.before_last(scratch, columns, y, count, &mut sums);
        let mut from = sums.chunks(columns.len() * self.frame.src.shape().channels + SLACK);
        let from: [&[E]; ROWS] = std::array::from_fn(|_| from.next().unwrap_or_default());
        let from = if self.adds_up() { &from[..count] } else { &[] };
        let lack = self.terms.lack();
        let outs_now = Outs::Bytes { rows: &mut outs[..count], lack: E::of(lack), limit, noted: &mut noted, from };
        self.tiles(scratch, columns, y, (self.last(), 0), outs_now, self.adds_up());
        scratch.sums = sums;
        let results = outs.iter().map(|out| out.len()).sum();
        let doubts = noted.iter().map(Vec::len).sum();
        let sums = noted.iter().map(|noted| noted.chunk_by(|a, b| a / BESIDE == b / BESIDE).count()).sum();
        let covered = allowance.as_mut().is_none_or(|allowance| allowance.covers(results, doubts, sums));
        if covered {
            for (row, (noted, out)) in
                noted.iter_mut().zip(&mut outs).enumerate().filter(|(_, (noted, _))| !noted.is_empty())
            {
                let mut sums = (usize::MAX, [0.0; BESIDE]);
                noted.retain(|&at| {
                    let first = at / BESIDE * BESIDE;
                    let sum = || {
                        if sums.0 != first {
                            sums = (first, self.column_sums(scratch, first, row));
                        }
                        self.point(columns, (y + row, at)) + sums.1[at - first] + lack
                    };
                    !rounder.decides(sum, &mut out[at])
                });
                if !noted.is_empty() {
                    let part = (columns.start, y + row);
                    rounder.resolve(self.frame.isa, part, noted, out, &mut scratch.rounder);
                }
            }
        }
        scratch.noted = noted;
        covered
    }

    /// The pixel's own term in f64, for element `at` of row `y`.
    fn point(&self, columns: &Range<usize>, (y, at): (usize, usize)) -> f64 {
        let pixel = self.frame.src.row(y)[columns.start * self.frame.src.shape().channels + at].to_f32();
        self.in_f64.1 * f64::from(pixel)
    }

    /// The sums in f64 of the row passes' results under the terms' columns, for elements from `at` on of row `row` of those made last.
    fn column_sums(&self, scratch: &Scratch<E>, at: usize, row: usize) -> [f64; BESIDE] {
        // A row has the same place in each ring.
        let lines = &scratch.rings[0].called[row..];
        let mut all = [0.0; BESIDE];
        for (term, column) in self.in_f64.0.iter().enumerate() {
            // In a ring of its own, or beside the others'.
            let (ring, part) = if self.beside() == 1 { (term, 0) } else { (0, term) };
            let values = &scratch.rings[ring].lines[part * scratch.line_len + at..];
            let sums = self.frame.isa.run(ColumnSums { values, lines, column });
            all.iter_mut().zip(sums).for_each(|(all, sum)| *all += sum);
        }
        all
    }

    /// Writes the sums directly to the output.
    fn floats(&self, scratch: &mut Scratch<E>, columns: &Range<usize>, y: usize, parts: &mut [&mut [D]]) {
        let count = parts.len();
        let mut places = parts.iter_mut().filter_map(|part| D::floats_mut(part).and_then(E::of_floats));
        let mut outs: [&mut [E]; ROWS] = std::array::from_fn(|_| places.next().unwrap_or_default());
        self.tiles(scratch, columns, y, (0, 0), Outs::Floats(&mut outs[..count]), false);
    }

    /// Whether the last pass goes on from other sums.
    fn adds_up(&self) -> bool {
        self.rounder.is_some() && (self.terms.point.is_some() || self.last() > 0)
    }

    /// How many terms share a ring.
    fn beside(&self) -> usize {
        if self.together.is_empty() { 1 } else { self.terms.passes.len() }
    }

    /// The ring that the last pass reads.
    fn last(&self) -> usize {
        self.terms.passes.len() / self.beside() - 1
    }

    /// The sums of all terms but the last, for `count` rows, if the last pass goes on from them.
    fn before_last(&self, scratch: &mut Scratch<E>, columns: &Range<usize>, y: usize, count: usize, sums: &mut [E]) {
        if !self.adds_up() {
            return;
        }
        let channels = self.frame.src.shape().channels;
        let len = columns.len() * channels;
        let mut outs = sums.chunks_mut(len + SLACK);
        let mut outs: [&mut [E]; ROWS] = std::array::from_fn(|_| outs.next().unwrap_or_default());
        if let Some(factor) = self.terms.point {
            for (i, out) in outs.iter_mut().take(count).enumerate() {
                let values = &self.frame.src.row(y + i)[columns.start * channels..columns.end * channels];
                self.frame.isa.run(Scale { factor, values, out });
            }
        }
        for term in 0..self.last() {
            let resume = term > 0 || self.terms.point.is_some();
            self.tiles(scratch, columns, y, (term, 0), Outs::Floats(&mut outs[..count]), resume);
        }
    }

    /// Adds up the sums of `count` rows, block by block, and what they lack; all but a point that is not rounded to bytes. Returns each row's.
    fn add_up<'s>(
        &self,
        scratch: &mut Scratch<E>,
        columns: &Range<usize>,
        (y, count): (usize, usize),
        sums: &'s mut [E],
    ) -> [&'s mut [E]; ROWS] {
        let len = columns.len() * self.frame.src.shape().channels;
        self.before_last(scratch, columns, y, count, sums);
        let mut rows = sums.chunks_mut(len + SLACK);
        let mut rows: [&mut [E]; ROWS] = std::array::from_fn(|_| rows.next().unwrap_or_default());
        for block in 0..self.blocks {
            let at = (self.last(), block);
            self.tiles(scratch, columns, y, at, Outs::Floats(&mut rows[..count]), block > 0 || self.adds_up());
        }
        let lack = E::of(self.terms.lack());
        rows.map(|row| {
            let row = &mut row[..len];
            if lack != E::default() {
                row.iter_mut().for_each(|sum| *sum = *sum + lack);
            }
            row
        })
    }

    /// Stores the sums as pixels, when they are complete.
    fn sums(
        &self,
        scratch: &mut Scratch<E>,
        columns: &Range<usize>,
        y: usize,
        parts: &mut [&mut [D]],
        allowance: &mut Option<Allowance>,
    ) {
        let channels = self.frame.src.shape().channels;
        let mut all = std::mem::take(&mut scratch.sums);
        let rows = self.add_up(scratch, columns, (y, parts.len()), &mut all);
        for (i, (part, sums)) in parts.iter_mut().zip(rows).enumerate() {
            match (self.rounder, D::bytes_mut(part)) {
                (Some(rounder), Some(part)) => {
                    let (isa, at) = (self.frame.isa, (columns.start, y + i));
                    let settled = rounder.store_part(isa, sums, at, part, &mut scratch.rounder);
                    // The rows are finished; the next ones may be left to exact passes.
                    let _ = allowance.as_mut().map(|allowance| allowance.covers(sums.len(), settled, settled));
                }
                _ => {
                    if let Some(factor) = self.terms.point {
                        let values = &self.frame.src.row(y + i)[columns.start * channels..columns.end * channels];
                        self.frame.isa.run(AddPoint { factor, values, sums });
                    }
                    self.frame.isa.run(Narrow { values: sums, out: part });
                }
            }
        }
        scratch.sums = all;
    }

    /// Calls the kernel for a block of tap rows of a term, or of all that share a ring.
    fn tiles(
        &self,
        scratch: &mut Scratch<E>,
        columns: &Range<usize>,
        y: usize,
        (term, block): (usize, usize),
        outs: Outs<'_, '_, E>,
        resume: bool,
    ) {
        let in_place = matches!(outs, Outs::Floats(_));
        let channels = self.frame.src.shape().channels;
        let bound = |block: usize| block * self.frame.window.rows / self.blocks;
        let tap_rows = bound(block)..bound(block + 1);
        // Most lines are known from the call before.
        let rows = y + tap_rows.start..y + tap_rows.end + outs.count() - 1;
        let mut lines = std::mem::take(&mut scratch.rings[term].called);
        let known = scratch.rings[term].first..scratch.rings[term].first + lines.len();
        if known.contains(&rows.start) && known.end <= rows.end {
            lines.drain(..rows.start - known.start);
        } else {
            lines.clear();
        }
        lines.extend((rows.start + lines.len()..rows.end).map(|row| self.line(scratch, columns, term, row)));
        scratch.rings[term].first = rows.start;
        // The rows that the next call will read. Within a page the processor prefetches by itself.
        let Shape { width, height, .. } = self.frame.src.shape();
        let next = y + tap_rows.end + outs.count() - 1;
        let far = width * channels * size_of::<S>() > PAGE;
        let ahead = std::array::from_fn(|i| {
            let source = (next + i).saturating_sub(self.frame.window.anchor_y).min(height - 1);
            self.frame.src.row(source)[columns.start * channels..].as_ptr().cast()
        });
        let ahead = (ahead, if far { size_of::<S>() } else { 0 });
        // Terms that share a ring are columns to the kernel, a line's length apart.
        let (taps, cols, step) = match self.beside() {
            1 => (self.terms.passes[term].taps, self.cols, channels),
            terms => (&self.together[..], terms, scratch.line_len),
        };
        self.frame.isa.run(Tiles {
            ring: &scratch.rings[term].lines,
            lines: &lines,
            taps: &taps[tap_rows.start * cols..tap_rows.end * cols],
            cols,
            step,
            outs,
            len: columns.len() * channels,
            ahead,
            // Bytes go on from other rows than their own.
            resume: resume && in_place,
            block: self.block,
        });
        scratch.rings[term].called = lines;
    }

    /// The position in the ring of the line under tap row 0 of row `y`, for an anchor at 0. Computes the line if it is not there.
    fn line(&self, scratch: &mut Scratch<E>, columns: &Range<usize>, term: usize, y: usize) -> usize {
        let Shape { height, channels, .. } = self.frame.src.shape();
        let source = self.frame.window.row(y, 0, height);
        // Each line of a small image has a fixed place; lines of a large one take places in turn.
        let slot = if height < self.slots { source.unwrap_or(height) } else { y % self.slots };
        let name = if height < self.slots { slot } else { y };
        let all = self.beside() * scratch.line_len;
        let at = slot * all;
        let Ring { lines, held, .. } = &mut scratch.rings[term];
        if held[slot] == name {
            return at;
        }
        held[slot] = name;
        let lines = &mut lines[at..][..all];
        let passes = &self.terms.passes[term..];
        let (row, len) = (source.map(|y| self.frame.src.row(y)), columns.len() * channels);
        let outside = self.frame.window.border_value;
        let padding = Padding {
            first: columns.start,
            window: &self.frame.window,
            inside: &scratch.inside,
            sides: &scratch.sides,
        };
        let passes = &passes[..self.beside()];
        if let Some(read) = self.pairs_read(columns) {
            // Pairs inside the image come from there; of its bytes only those beside its edges are copied.
            let ends = |row: &[S], out: &mut [u8]| {
                let (row, last) = (S::bytes(row).unwrap_or_default(), out.len() - channels);
                out[..channels].copy_from_slice(&row[..channels]);
                out[last..].copy_from_slice(&row[last..]);
            };
            padding.pad(row, channels, outside as u8, &mut scratch.bytes, |value| value.to_f32() as u8, ends);
            let pairs = &mut scratch.pairs[..read];
            let mut pair = |values: &[u8], part: Range<usize>| {
                self.frame.isa.run(Pair { values, step: channels, pairs: &mut pairs[part] });
            };
            match row.and_then(|row| S::bytes(padding.part(row, channels))) {
                Some(part) => {
                    let first = padding.inside.start * channels;
                    let last = first + part.len() - channels;
                    pair(&scratch.bytes, 0..first);
                    pair(part, first..last);
                    pair(&scratch.bytes[last..], last..read);
                }
                None => pair(&scratch.bytes, 0..read),
            }
        }
        if passes.iter().any(|passes| passes.whole.is_none()) {
            let out = if passes[0].across.is_some() { &mut scratch.across[..] } else { &mut *lines };
            let middle = passes[0].middle;
            let of = |value: f32| E::of((value - middle).into());
            let widen = |values: &[S], out: &mut [E]| self.frame.isa.run(Widen { values, middle, out });
            padding.pad(row, channels, of(outside), out, |value| of(value.to_f32()), widen);
        }
        for (line, passes) in lines.chunks_exact_mut(scratch.line_len).zip(passes) {
            let Some(taps) = passes.across else { break };
            if let (Some(row), Some(out)) = (passes.whole, E::as_floats(line)) {
                self.frame.isa.run(RowSums { row, pairs: &scratch.pairs, channels, out, len });
                continue;
            }
            let ring = &scratch.across;
            let mut outs = [line];
            self.frame.isa.run(Tiles {
                ring,
                lines: &[0],
                taps,
                cols: taps.len(),
                step: channels,
                outs: Outs::Floats(&mut outs),
                len,
                ahead: ([std::ptr::null(); ROWS], 0),
                resume: false,
                block: self.row_block,
            });
        }
        at
    }
}

/// How a row of the source lies in a line.
struct Padding<'a> {
    /// The strip's first column.
    first: usize,
    window: &'a Window,
    inside: &'a Range<usize>,
    sides: &'a [(usize, Option<usize>)],
}

impl Padding<'_> {
    /// The part of a row that lies under the strip and on both sides of it.
    fn part<'r, S>(&self, row: &'r [S], channels: usize) -> &'r [S] {
        let (left, right) = (self.inside.start, self.inside.end);
        let first = self.first + left - self.window.anchor_x;
        &row[first * channels..][..(right - left) * channels]
    }

    /// Lays out the strip itself and the part of the image on both sides of it by `copy`, and the border's pixels one by one.
    fn pad<S: Copy, T: Copy>(
        &self,
        row: Option<&[S]>,
        channels: usize,
        outside: T,
        out: &mut [T],
        one: impl Fn(S) -> T,
        copy: impl FnOnce(&[S], &mut [T]),
    ) {
        let Some(row) = row else { return out.fill(outside) };
        copy(self.part(row, channels), &mut out[self.inside.start * channels..self.inside.end * channels]);
        for &(at, source) in self.sides {
            let out = &mut out[at * channels..][..channels];
            match source {
                Some(x) => out.iter_mut().zip(&row[x * channels..]).for_each(|(out, &value)| *out = one(value)),
                None => out.fill(outside),
            }
        }
    }
}

/// A thread's memory.
#[derive(Default)]
struct Scratch<E> {
    /// For each term, or for all that are taken together, the lines.
    rings: Vec<Ring<E>>,
    /// Floats of a term's line.
    line_len: usize,
    /// A padded row before its row pass.
    across: Aligned<E>,
    /// The same for a row pass in whole numbers, and its pairs.
    bytes: Vec<u8>,
    pairs: Vec<u32>,
    /// Rows of sums, before they become pixels.
    sums: Aligned<E>,
    /// Of each row, the columns of results in doubt.
    noted: [Vec<usize>; ROWS],
    /// The pixels of a padded row that lie in the image.
    inside: Range<usize>,
    /// The other pixels of the padded row, and the source pixel that each copies, if it does not have the border's value.
    sides: Vec<(usize, Option<usize>)>,
    rounder: round::Scratch,
}

impl<E: Float> Scratch<E> {
    /// Makes room for a rectangle of these columns and forgets all lines.
    fn start<S: Pixel, D: Pixel>(&mut self, run: &Run<'_, S, D, E>, columns: &Range<usize>) -> Result<()> {
        let (Shape { width, channels, .. }, Window { cols, anchor_x, .. }) = (run.frame.src.shape(), run.frame.window);
        let len = columns.len() * channels;
        // Lines begin where cache lines do.
        let line_len = (len + (run.cols - 1) * channels + MARGIN).next_multiple_of(CACHE_LINE / size_of::<E>());
        let across = if run.cols == 1 { len + (cols - 1) * channels + MARGIN } else { 0 };
        self.line_len = line_len;
        self.rings.resize_with(run.last() + 1, Ring::default);
        for ring in &mut self.rings {
            ring.lines.grow(run.slots.saturating_mul(run.beside() * line_len))?;
            ring.called.clear();
            ring.held.clear();
            ring.held.resize(run.slots, usize::MAX);
        }
        self.across.grow(across)?;
        let pairs = run.pairs_read(columns).unwrap_or(0);
        if self.pairs.len() < pairs {
            self.bytes = crate::memory::zeroed(pairs + channels)?;
            self.pairs = crate::memory::zeroed(pairs)?;
        }
        self.sums.grow(ROWS * (len + SLACK))?;

        let padded = columns.len() + cols - 1;
        let left = anchor_x.saturating_sub(columns.start);
        self.inside = left..padded.min(width + anchor_x - columns.start);
        let sides = (0..left).chain(self.inside.end..padded);
        self.sides.clear();
        self.sides.extend(sides.map(|at| (at, run.frame.window.column(columns.start + at, 0, width))));
        Ok(())
    }
}

/// The lines under a window.
#[derive(Default)]
struct Ring<E> {
    lines: Aligned<E>,
    /// Which line each place holds.
    held: Vec<usize>,
    /// Where the lines of the last call begin, from that of row `first` on.
    called: Vec<usize>,
    first: usize,
}

/// Values that start at a cache line.
#[derive(Default)]
struct Aligned<E> {
    data: Vec<E>,
    first: usize,
}

impl<E: Float> Aligned<E> {
    fn grow(&mut self, len: usize) -> Result<()> {
        let slack = CACHE_LINE / size_of::<E>();
        if self.data.len() < len.saturating_add(slack) {
            self.data = Vec::new();
            self.data = crate::memory::zeroed(len.saturating_add(slack))?;
            self.first = self.data.as_ptr().align_offset(CACHE_LINE).min(slack);
        }
        Ok(())
    }
}

impl<E> Deref for Aligned<E> {
    type Target = [E];

    fn deref(&self) -> &[E] {
        &self.data[self.first..]
    }
}

impl<E> DerefMut for Aligned<E> {
    fn deref_mut(&mut self) -> &mut [E] {
        &mut self.data[self.first..]
    }
}

/// Elements whose columns are summed in f64 together: those of a vector, in half of a cache line, which is read for one of them anyway.
const BESIDE: usize = CACHE_LINE / size_of::<f64>();

/// Sums in f64 of elements next to each other, over lines that begin at these places of the values.
struct ColumnSums<'a, E> {
    values: &'a [E],
    lines: &'a [usize],
    column: &'a [f64],
}

impl<E: Float> Work for ColumnSums<'_, E> {
    type Output = [f64; BESIDE];

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> [f64; BESIDE] {
        const CHAINS: usize = 4;
        let Self { values, lines, column } = self;
        let add = |sums: &mut [f64; BESIDE], tap: f64, line: usize| {
            let values = &values[line..][..BESIDE];
            for i in 0..BESIDE {
                sums[i] += tap * f64::from(values[i].to_f32());
            }
        };
        // Several sums of each, as an addition waits for the one before it.
        let mut sums = [[0.0; BESIDE]; CHAINS];
        for (taps, lines) in column.chunks_exact(CHAINS).zip(lines.chunks_exact(CHAINS)) {
            for (sums, (&tap, &line)) in sums.iter_mut().zip(taps.iter().zip(lines)) {
                add(sums, tap, line);
            }
        }
        let left = column.len() / CHAINS * CHAINS;
        for (sums, (&tap, &line)) in sums.iter_mut().zip(column[left..].iter().zip(&lines[left..])) {
            add(sums, tap, line);
        }
        std::array::from_fn(|i| sums.iter().map(|sums| sums[i]).sum())
    }
}

/// Pixels to floats, less the middle.
struct Widen<'a, S, E> {
    values: &'a [S],
    middle: f32,
    out: &'a mut [E],
}

impl<S: Pixel, E: Float> Work for Widen<'_, S, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        match E::as_floats(self.out) {
            Some(out) => {
                S::widen(self.values, out);
                if self.middle != 0.0 {
                    out.iter_mut().for_each(|value| *value -= self.middle);
                }
            }
            None => {
                let each = self.out.iter_mut().zip(self.values);
                each.for_each(|(out, value)| *out = E::of((value.to_f32() - self.middle).into()));
            }
        }
    }
}

/// Pixels times a factor.
struct Scale<'a, S, E> {
    factor: E,
    values: &'a [S],
    out: &'a mut [E],
}

impl<S: Pixel, E: Float> Work for Scale<'_, S, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let each = self.out.iter_mut().zip(self.values);
        each.for_each(|(out, value)| *out = self.factor * E::of(value.to_f32().into()));
    }
}

/// Adds pixels times a factor to sums, each by a fused multiply-add.
struct AddPoint<'a, S, E> {
    factor: E,
    values: &'a [S],
    sums: &'a mut [E],
}

impl<S: Pixel, E: Float> Work for AddPoint<'_, S, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let each = self.sums.iter_mut().zip(self.values);
        each.for_each(|(sum, value)| *sum = self.factor.mul_add(E::of(value.to_f32().into()), *sum));
    }
}

/// Floats to pixels.
struct Narrow<'a, D, E> {
    values: &'a mut [E],
    out: &'a mut [D],
}

impl<D: Pixel, E: Float> Work for Narrow<'_, D, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        match E::as_floats(self.values) {
            Some(values) => D::narrow(values, self.out),
            None => self.out.iter_mut().zip(self.values).for_each(|(out, value)| *out = D::from_f32(value.to_f32())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{Bytes, Engine, Factors};
    use crate::round::{Bounds, Resolver};
    use crate::{Border, Filter, Image};

    /// The greatest error of the sums that bytes are made of, as a part of its bound.
    fn error(filter: &Filter, border: Border, (width, height, channels): (usize, usize, usize), src: Vec<u8>) -> f64 {
        let of_bytes = filter.of_bytes().unwrap();
        let (engine, filter) = (Engine::new(filter, border).unwrap(), &of_bytes.filter);
        let bytes = Bytes::new(of_bytes, &engine.window());
        let (terms, order) = match bytes.taps.terms(Factors::of_bytes) {
            Some(terms) => (terms, Order::Terms),
            None => (bytes.taps.factors.as_ref().unwrap().of_bytes().into(), Order::BlockPasses),
        };
        let mut dst = Image::<u8>::zeroed(width, height, channels).unwrap();
        let (src, mut dst) = (Image::from_vec(src, width, height, channels).unwrap(), dst.view_mut());
        let (resolver, bounds) = (Resolver::new(src.view(), channels, of_bytes, border), Bounds::default());
        let rounder = Rounder::in_f32(&resolver, &bounds, order);
        let window = engine.window();
        let frame = Frame::new(engine.isa, window, &src.view(), &mut dst, channels);
        let run = Run::new(&frame, &terms, Some(&rounder));
        assert!(run.blocks == 1 && rounder.share() < 1.0);

        let mut found = Vec::new();
        let (mut scratch, mut sums) = (Scratch::default(), vec![0.0; ROWS * (width * channels + SLACK)]);
        scratch.start(&run, &(0..width)).unwrap();
        while found.len() < height * width * channels {
            let y = found.len() / (width * channels);
            let count = run.rows_together(height - y);
            let rows = run.add_up(&mut scratch, &(0..width), (y, count), &mut sums);
            rows.into_iter().take(count).for_each(|row| found.extend_from_slice(row));
        }

        // Both passes of each term in f64.
        let products = filter.products();
        let point = filter.sum().map_or(0.0, |sum| sum.point);
        let pixel = |y: Option<usize>, x: Option<usize>, channel: usize| match (y, x) {
            (Some(y), Some(x)) => f64::from(src.as_slice()[(y * width + x) * channels + channel]),
            _ => f64::from(window.border_value),
        };
        let mut worst = 0.0f64;
        for channel in 0..channels {
            let mut exact: Vec<f64> =
                (0..height * width).map(|at| point * pixel(Some(at / width), Some(at % width), channel)).collect();
            for (row, column) in &products {
                let line = |y: usize| -> Vec<f64> {
                    let source = window.row(y, 0, height);
                    let under = |x: usize, col: usize| pixel(source, window.column(x, col, width), channel);
                    (0..width).map(|x| (0..row.len()).map(|col| row[col] * under(x, col)).sum()).collect()
                };
                let lines: Vec<Vec<f64>> = (0..height + column.len() - 1).map(line).collect();
                for (at, exact) in exact.iter_mut().enumerate() {
                    *exact +=
                        column.iter().zip(&lines[at / width..]).map(|(tap, line)| tap * line[at % width]).sum::<f64>();
                }
            }
            for (at, exact) in exact.into_iter().enumerate() {
                worst = worst.max((f64::from(found[at * channels + channel]) - exact).abs());
            }
        }
        2.0 * worst / rounder.share()
    }

    /// Contents that are worst for sums of one sign, or of both.
    #[test]
    fn sums_for_bytes_are_within_their_bound() {
        let mut seed = 1u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as u8
        };
        let mut filters: Vec<Filter> = [
            "gaussian:sigma=0.8",
            "gaussian:sigma=3",
            "gaussian:sigma=21",
            "gaussian:sigma=40",
            "unsharp:sigma=2,amount=1.5",
            "unsharp:sigma=20",
            "log:sigma=2",
            "dog:sigma=12",
        ]
        .map(|text| text.parse().unwrap())
        .into();
        for (cols, rows) in [(1, 9), (1, 41), (9, 1), (3, 40), (12, 5), (31, 200)] {
            let mut taps = |count: usize| -> Vec<f64> {
                (0..count).map(|_| (f64::from(random()) / 99.0 - 0.7) / count as f64).collect()
            };
            filters.push(Filter::separable_f64(&taps(cols), &taps(rows)).unwrap());
        }
        let mut greatest = 0.0f64;
        for filter in &filters {
            for (border, channels) in
                [(Border::Reflect101, 3), (Border::Constant(255.0), 1), (Border::Constant(0.0), 2)]
            {
                let (width, height) = (if channels == 1 { 203 } else { 97 }, 23);
                let count = width * height * channels;
                let contents: [Vec<u8>; 5] = [
                    (0..count).map(|_| random()).collect(),
                    vec![255; count],
                    vec![0; count],
                    (0..count).map(|_| if random() < 128 { 0 } else { 255 }).collect(),
                    (0..count).map(|_| 250 + random() % 6).collect(),
                ];
                for (number, pixels) in contents.into_iter().enumerate() {
                    let part = error(filter, border, (width, height, channels), pixels);
                    assert!(part <= 1.0, "{filter}, {border}, contents {number}: {part}");
                    greatest = greatest.max(part);
                }
            }
        }
        // It is no bound of something else.
        assert!(greatest > 0.05, "{greatest}");
    }
}
