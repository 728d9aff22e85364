//! The direct and the separable family: one pass over all taps, or a row pass and a column pass.
//!
//! The image is cut into rectangles, one for each job: bands of rows, and strips of columns where
//! lines are long. A job keeps the lines under the window in a ring that stays in the cache: each
//! is a row of source pixels as they are stored, channels interleaved, converted to f32, with the
//! border's pixels around it; for a separable filter, the row pass's result. The kernel of
//! [`super::tile`] computes a few rows of sums from it, which are rounded to pixels at once.
//!
//! Every sum takes its taps in the order of its family, as in the GPU's kernels, so the bits are
//! the same. Only where 8-bit results come from 8-bit pixels is the order free, as they are
//! correctly rounded in any case (see [`crate::round`]).

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::exact::{self, Exact};
use super::frame::Frame;
use super::lines::Scratch;
use super::resolving::{Allowance, RETRY};
use super::rows::{AddPoint, BESIDE, ColumnSums, Narrow, Scale, Widen};
use super::run::Run;
use super::share::{PAGE, share};
use super::tile::{Outs, ROWS, SLACK, Tiles, rows_at_once};
use crate::Result;
use crate::image::{Pixel, Shape};
use crate::progress::Stage;
use crate::round::Rounder;

/// Filters the image in f32. Bytes are computed exactly where many results are uncertain: from
/// where a rectangle's [`Allowance`] ends, and whole rectangles while f32 has taken longer for
/// those so far.
pub(super) fn run<S: Pixel, D: Pixel>(
    in_f32: &Run<'_, S, D>,
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
    type Both = (Scratch, exact::Scratch);
    let rectangle = |(narrow, wide): &mut Both, columns: Range<usize>, rows: Range<usize>| {
        let Some(exact) = exact else {
            return in_f32.rectangle(narrow, &columns, rows, &mut None).map(|_| ());
        };
        let (resolving, mut first) = (in_f32.resolving(), rows.start);
        if gain(0.0) >= 0.0 {
            let start = Allowance::new(resolving, exact.taps_before());
            let mut allowance = Some(start);
            first = in_f32.rectangle(narrow, &columns, rows.clone(), &mut allowance)?;
            gain(allowance.map_or(0.0, |allowance| allowance.left - start.left));
        } else {
            let results = columns.len() * rows.len() * channels;
            gain(RETRY * resolving.per_result * results as f64);
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

/// The rows of a band, of an image in so many strips. Where bands meet, lines are computed twice,
/// so a band should have several times the window's rows, if that keeps all threads busy.
pub(crate) fn band(height: usize, window: usize, strips: usize, threads: usize) -> usize {
    let even = |jobs: usize| height.div_ceil((jobs / strips).max(1));
    // A job more than there are threads would take as long as all others.
    even(4 * threads).max(even(threads).min(4 * window))
}

impl<S: Pixel, D: Pixel> Run<'_, S, D> {
    /// Filters some columns of some rows. No two jobs have a pixel in common. Ends early, with the
    /// row to go on from, if the allowance does not last.
    fn rectangle(
        &self,
        scratch: &mut Scratch,
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
                    unsafe {
                        self.frame.dst.row(y + i, columns.start * channels..columns.end * channels)
                    }
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
    pub(super) fn rows_together(&self, left: usize) -> usize {
        let most = rows_at_once(self.frame.window.rows.div_ceil(self.blocks));
        if left >= most { most } else { 1 }
    }

    /// Computes the pixels of a few rows; false, and they are not finished, if the allowance does
    /// not last.
    fn rows(
        &self,
        scratch: &mut Scratch,
        columns: &Range<usize>,
        y: usize,
        parts: &mut [&mut [D]],
        allowance: &mut Option<Allowance>,
    ) -> bool {
        let whole = self.blocks == 1 && columns.len() * self.frame.src.shape().channels >= SLACK;
        let is_stored_so = D::floats_mut(&mut []).is_some();
        let finished =
            match self.rounder.map(|rounder| (rounder, rounder.limit().filter(|_| whole))) {
                Some((rounder, Some(limit))) => {
                    self.bytes(scratch, columns, y, parts, (rounder, limit), allowance)
                }
                _ if whole && is_stored_so && self.rounder.is_none() && self.is_plain() => {
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
        scratch: &mut Scratch,
        columns: &Range<usize>,
        y: usize,
        parts: &mut [&mut [D]],
        (rounder, limit): (&Rounder<'_, f32>, f32),
        allowance: &mut Option<Allowance>,
    ) -> bool {
        let count = parts.len();
        let mut places = parts.iter_mut().filter_map(|part| D::bytes_mut(part));
        let mut outs: [&mut [u8]; ROWS] =
            std::array::from_fn(|_| places.next().unwrap_or_default());
        let mut noted = std::mem::take(&mut scratch.noted);
        noted.iter_mut().for_each(Vec::clear);
        let mut sums = std::mem::take(&mut scratch.sums);
        self.before_last(scratch, columns, y, count, &mut sums);
        let mut from = sums.chunks(columns.len() * self.frame.src.shape().channels + SLACK);
        let from: [&[f32]; ROWS] = std::array::from_fn(|_| from.next().unwrap_or_default());
        let from = if self.adds_up() { &from[..count] } else { &[] };
        let outs_now = Outs::Bytes {
            rows: &mut outs[..count],
            lack: self.terms.lack() as f32,
            limit,
            noted: &mut noted,
            from,
        };
        self.tiles(scratch, columns, y, (self.last(), 0), outs_now, self.adds_up());
        scratch.sums = sums;
        let results = outs.iter().map(|out| out.len()).sum();
        let uncertain = noted.iter().map(Vec::len).sum();
        let sums =
            noted.iter().map(|noted| noted.chunk_by(|a, b| a / BESIDE == b / BESIDE).count()).sum();
        let covered =
            allowance.as_mut().is_none_or(|allowance| allowance.covers(results, uncertain, sums));
        if covered {
            for (row, (noted, out)) in noted.iter_mut().zip(&mut outs).enumerate() {
                if !noted.is_empty() {
                    self.resolve(scratch, columns, (y, row), rounder, (noted, out));
                }
            }
        }
        scratch.noted = noted;
        covered
    }

    /// Computes the uncertain results of row `y + row`, number `row` of those made last: by the
    /// columns in f64 if that decides, else by the rounder.
    fn resolve(
        &self,
        scratch: &mut Scratch,
        columns: &Range<usize>,
        (y, row): (usize, usize),
        rounder: &Rounder<'_, f32>,
        (noted, out): (&mut Vec<usize>, &mut [u8]),
    ) {
        let lack = self.terms.lack();
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

    /// The pixel's own term in f64, for element `at` of row `y`.
    fn point(&self, columns: &Range<usize>, (y, at): (usize, usize)) -> f64 {
        let pixel =
            self.frame.src.row(y)[columns.start * self.frame.src.shape().channels + at].to_f32();
        self.in_f64.1 * f64::from(pixel)
    }

    /// The sums in f64 of the row passes' results under the terms' columns, for elements from `at`
    /// on of row `row` of those made last.
    fn column_sums(&self, scratch: &Scratch, at: usize, row: usize) -> [f64; BESIDE] {
        // A row has the same place in each ring.
        let lines = &scratch.rings[0].called[row..];
        let mut all = [0.0; BESIDE];
        for (term, column) in self.in_f64.0.iter().enumerate() {
            // In a ring of its own, or beside the others'.
            let (ring, part) = if self.terms_per_ring() == 1 { (term, 0) } else { (0, term) };
            let values = &scratch.rings[ring].lines[part * scratch.line_len + at..];
            let sums = self.frame.isa.run(ColumnSums { values, lines, column });
            all.iter_mut().zip(sums).for_each(|(all, sum)| *all += sum);
        }
        all
    }

    /// Writes the sums directly to the output.
    fn floats(
        &self,
        scratch: &mut Scratch,
        columns: &Range<usize>,
        y: usize,
        parts: &mut [&mut [D]],
    ) {
        let count = parts.len();
        let mut places = parts.iter_mut().filter_map(|part| D::floats_mut(part));
        let mut outs: [&mut [f32]; ROWS] =
            std::array::from_fn(|_| places.next().unwrap_or_default());
        self.tiles(scratch, columns, y, (0, 0), Outs::Floats(&mut outs[..count]), false);
    }

    /// Whether sums of the passes are results.
    fn is_plain(&self) -> bool {
        self.terms.point.is_none() && self.frame.light.is_none()
    }

    /// Whether the last pass goes on from other sums.
    fn adds_up(&self) -> bool {
        self.rounder.is_some() && (self.terms.point.is_some() || self.last() > 0)
    }

    /// The sums of all terms but the last, for `count` rows, if the last pass goes on from them.
    fn before_last(
        &self,
        scratch: &mut Scratch,
        columns: &Range<usize>,
        y: usize,
        count: usize,
        sums: &mut [f32],
    ) {
        if !self.adds_up() {
            return;
        }
        let channels = self.frame.src.shape().channels;
        let len = columns.len() * channels;
        let mut outs = sums.chunks_mut(len + SLACK);
        let mut outs: [&mut [f32]; ROWS] = std::array::from_fn(|_| outs.next().unwrap_or_default());
        if let Some(factor) = self.terms.point {
            for (i, out) in outs.iter_mut().take(count).enumerate() {
                let values =
                    &self.frame.src.row(y + i)[columns.start * channels..columns.end * channels];
                self.frame.isa.run(Scale { factor, values, out });
            }
        }
        for term in 0..self.last() {
            let resume = term > 0 || self.terms.point.is_some();
            self.tiles(scratch, columns, y, (term, 0), Outs::Floats(&mut outs[..count]), resume);
        }
    }

    /// Adds up the sums of `count` rows, block by block, and what they lack; all but a point that
    /// is not rounded to bytes. Returns each row's.
    pub(super) fn add_up<'s>(
        &self,
        scratch: &mut Scratch,
        columns: &Range<usize>,
        (y, count): (usize, usize),
        sums: &'s mut [f32],
    ) -> [&'s mut [f32]; ROWS] {
        let len = columns.len() * self.frame.src.shape().channels;
        self.before_last(scratch, columns, y, count, sums);
        let mut rows = sums.chunks_mut(len + SLACK);
        let mut rows: [&mut [f32]; ROWS] = std::array::from_fn(|_| rows.next().unwrap_or_default());
        for block in 0..self.blocks {
            let at = (self.last(), block);
            self.tiles(
                scratch,
                columns,
                y,
                at,
                Outs::Floats(&mut rows[..count]),
                block > 0 || self.adds_up(),
            );
        }
        let lack = self.terms.lack() as f32;
        rows.map(|row| {
            let row = &mut row[..len];
            if lack != 0.0 {
                row.iter_mut().for_each(|sum| *sum += lack);
            }
            row
        })
    }

    /// Stores the sums as pixels, when they are complete.
    fn sums(
        &self,
        scratch: &mut Scratch,
        columns: &Range<usize>,
        y: usize,
        parts: &mut [&mut [D]],
        allowance: &mut Option<Allowance>,
    ) {
        let channels = self.frame.src.shape().channels;
        let mut all = std::mem::take(&mut scratch.sums);
        let rows = self.add_up(scratch, columns, (y, parts.len()), &mut all);
        let greatest = self.greatest(scratch);
        for (i, (part, sums)) in parts.iter_mut().zip(rows).enumerate() {
            match (self.rounder, D::bytes_mut(part)) {
                (Some(rounder), Some(part)) => {
                    let (isa, at) = (self.frame.isa, (columns.start, y + i));
                    let resolved = rounder.store_part(isa, sums, at, part, &mut scratch.rounder);
                    // The rows are finished; the next ones may be left to exact passes.
                    let _ = allowance
                        .as_mut()
                        .map(|allowance| allowance.covers(sums.len(), resolved, resolved));
                }
                _ => {
                    let row = &self.frame.src.row(y + i)
                        [columns.start * channels..columns.end * channels];
                    match &self.frame.light {
                        Some(light) => {
                            let (isa, at) = (self.frame.isa, (columns.start, y + i));
                            if let Some(factor) = self.terms.point {
                                let values = &mut scratch.point[..sums.len()];
                                isa.run(Widen { values: row, middle: 0.0, out: &mut *values });
                                light.decode(isa, channels, values);
                                isa.run(AddPoint { factor, values: &*values, sums });
                            }
                            light.store(isa, channels, (at, greatest), sums, part);
                        }
                        None => {
                            if let Some(factor) = self.terms.point {
                                self.frame.isa.run(AddPoint { factor, values: row, sums });
                            }
                            self.frame.isa.run(Narrow { values: sums, out: part });
                        }
                    }
                }
            }
        }
        scratch.sums = all;
    }

    /// Calls the kernel for a block of tap rows of a term, or of all that share a ring.
    fn tiles(
        &self,
        scratch: &mut Scratch,
        columns: &Range<usize>,
        y: usize,
        (term, block): (usize, usize),
        outs: Outs<'_, '_, f32>,
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
        lines.extend(
            (rows.start + lines.len()..rows.end).map(|row| self.line(scratch, columns, term, row)),
        );
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
        let (taps, cols, step) = match self.terms_per_ring() {
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
}

#[cfg(test)]
mod tests;
