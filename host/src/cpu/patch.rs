//! One channel of a rectangle tap by tap, with the bits of the direct family: for tiles with pixels
//! that spectra cannot hold.
//!
//! The engine of [`super::bands`] takes all channels at once, and its rectangles are the jobs; a
//! tile that spectra leave is one channel of a job. The kernel is the same, [`Tiles`], over a ring
//! of lines of this channel alone.

use std::ops::Range;

use super::channel::{ReadChannel, StoreChannel};
use super::real::Real;
use super::share::share;
use super::tile::{MARGIN, Outs, ROWS, SLACK, Tiles, rows_at_once};
use crate::Result;
use crate::image::{ImageView, Pixel, Shape};
use crate::progress::Report;
use crate::simd::Isa;
use crate::window::Window;

/// Results of a row that are computed at a time, so that the lines under a window of usual size
/// stay in the cache.
const STRIP: usize = 4 * SLACK;

/// One channel of an image, and a window over it.
#[derive(Clone, Copy)]
pub(super) struct Plane<'a, S, E> {
    pub(super) isa: Isa,
    pub(super) window: &'a Window,
    pub(super) taps: &'a [E],
    pub(super) src: &'a ImageView<'a, S>,
    pub(super) channel: usize,
}

/// A thread's memory.
#[derive(Default)]
struct Ring<E> {
    /// Lines under the windows, each in the place of its number modulo their count.
    lines: Vec<E>,
    /// Where those of the next call begin.
    places: Vec<usize>,
    sums: Vec<E>,
    /// The image column under each place of a line.
    under: Vec<Option<usize>>,
}

impl<E: Real> Ring<E> {
    /// Makes room for lines of so many numbers, in the first call.
    fn start(&mut self, numbers: usize) -> Result<()> {
        if self.lines.is_empty() {
            self.lines = crate::memory::zeroed(numbers)?;
            self.sums = crate::memory::zeroed(ROWS * (STRIP + SLACK))?;
        }
        Ok(())
    }
}

impl<S: Pixel, E: Real> Plane<'_, S, E> {
    /// Filters a rectangle whose first result is at column and row `at`; each of the rows is a part
    /// of a row of results, with all channels. So many threads share the work.
    pub(super) fn filter<D: Pixel>(
        &self,
        at: (usize, usize),
        rows: &mut [&mut [D]],
        threads: usize,
    ) -> Result<()> {
        // A job loads the lines of a window beside those of its own rows, so it has as many of
        // these at least.
        let even = rows.len().div_ceil(4 * threads);
        let together = even.max(self.window.rows).next_multiple_of(ROWS);
        let jobs = rows.chunks_mut(together).enumerate();
        // The caller's job counts as one, whoever does a part of it.
        let report = Report::default();
        share(&report.call(0).stage(0, 0).on(threads), jobs, |ring: &mut Ring<E>, (job, rows)| {
            let width = rows.first().map_or(0, |row| row.len() / self.src.shape().channels);
            for first in (0..width).step_by(STRIP) {
                self.strip(
                    ring,
                    (at.0, at.1 + job * together),
                    first..width.min(first + STRIP),
                    rows,
                )?;
            }
            Ok(())
        })
    }

    /// Filters some columns of the rows, counted from `left`.
    fn strip<D: Pixel>(
        &self,
        ring: &mut Ring<E>,
        (left, top): (usize, usize),
        columns: Range<usize>,
        rows: &mut [&mut [D]],
    ) -> Result<()> {
        let (window, channels) = (self.window, self.src.shape().channels);
        let most = rows_at_once(window.rows);
        let slots = window.rows + most - 1;
        let line = STRIP + window.cols - 1 + MARGIN;
        let first = left + columns.start;
        ring.start(slots * line)?;
        let Ring { lines, places, sums, under } = ring;
        let width = self.src.shape().width;
        under.clear();
        under.extend(
            (first..first + columns.len() + window.cols - 1).map(|x| window.column(x, 0, width)),
        );
        let last = top + rows.len() + window.rows - 2;
        let (mut y, mut known) = (0, 0);
        while y < rows.len() {
            let count = if rows.len() >= most { most } else { 1 };
            // The last rows are computed with some before them again: one by one they take longer.
            y = y.min(rows.len() - count);
            let end = y + window.rows + count - 1;
            for number in known..end {
                let source = window.row(top + number, 0, self.src.shape().height);
                self.load(
                    source,
                    (first, under),
                    &mut lines[number % slots * line..][..under.len()],
                );
            }
            known = end;
            places.clear();
            places.extend((y..end).map(|number| number % slots * line));
            let mut outs = sums.chunks_mut(STRIP + SLACK);
            let mut outs: [&mut [E]; ROWS] =
                std::array::from_fn(|_| outs.next().unwrap_or_default());
            self.isa.run(Tiles {
                ring: lines,
                lines: places,
                taps: self.taps,
                cols: window.cols,
                step: 1,
                outs: Outs::Floats(&mut outs[..count]),
                len: columns.len(),
                // The next call's lines are read from afar meanwhile.
                ahead: (self.ahead(first, top + end, last), channels * size_of::<S>()),
                resume: false,
                block: usize::MAX,
            });
            self.store(&mut outs[..count], &columns, &mut rows[y..]);
            y += count;
        }
        Ok(())
    }

    /// The stored pixels that a window at column `left` begins with, in the rows from `next` on, at
    /// most in row `last`; null outside the image.
    fn ahead(&self, left: usize, next: usize, last: usize) -> [*const u8; ROWS] {
        let Shape { width, height, channels } = self.src.shape();
        let within = left.saturating_sub(self.window.anchor_x).min(width - 1) * channels;
        std::array::from_fn(|i| {
            let source = self.window.row((next + i).min(last), 0, height);
            source.map_or(std::ptr::null(), |row| self.src.row(row)[within..].as_ptr().cast())
        })
    }

    /// Stores rows of sums in some columns of the rows of results.
    fn store<D: Pixel>(
        &self,
        sums: &mut [&mut [E]],
        columns: &Range<usize>,
        rows: &mut [&mut [D]],
    ) {
        let (channels, channel) = (self.src.shape().channels, self.channel);
        for (row, sums) in rows.iter_mut().zip(sums) {
            let out = &mut row[columns.start * channels..columns.end * channels];
            let sums = &mut sums[..columns.len()];
            self.isa.run(StoreChannel { sums, out, channels, channel });
        }
    }

    /// Fills a line with the pixels of a row of the image, or with the border's value where there
    /// is none. It begins under the first tap of a window at column `left`; `under` are the image's
    /// columns along it.
    pub(super) fn load(
        &self,
        source: Option<usize>,
        (left, under): (usize, &[Option<usize>]),
        line: &mut [E],
    ) {
        let (outside, channels) = (self.window.border_value, self.src.shape().channels);
        let Some(source) = source else { return line.fill(E::of(outside.into())) };
        let row = &self.src.row(source)[self.channel..];
        // The part that lies in the image is loaded at once, as nearly all of it does.
        let (first, len) = (left as isize - self.window.anchor_x as isize, line.len() as isize);
        let inside = (-first).clamp(0, len) as usize
            ..(self.src.shape().width as isize - first).clamp(0, len) as usize;
        if !inside.is_empty() {
            let from = (first + inside.start as isize) as usize * channels;
            self.isa.run(ReadChannel {
                row: &row[from..],
                channels,
                line: &mut line[inside.clone()],
            });
        }
        for x in (0..inside.start).chain(inside.end.max(inside.start)..line.len()) {
            let pixel = under[x].map_or(outside, |x| row[x * channels].to_f32());
            line[x] = E::of(pixel.into());
        }
    }
}
