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

use super::share::share;
use super::tile::{MARGIN, Outs, ROWS, SLACK, Tiles, rows_at_once};
use crate::Result;
use crate::image::{ImageView, ImageViewMut, Pixel, Shape};
use crate::round::{self, Order, Rounder};
use crate::simd::{Isa, Lanes, Work};
use crate::window::Window;

/// Floats in a ring, if the image's size allows it: a quarter of a megabyte, which every second-level cache holds.
const RING: usize = 1 << 16;

/// Floats in a ring that holds every line under the window; beyond, the window is taken in blocks of rows.
const GREATEST_RING: usize = 1 << 18;

/// The least length of a strip's lines, in floats.
const STRIP: usize = 512;

/// Floats in a cache line.
const CACHE_LINE: usize = 16;

/// Bytes in a page of memory.
const PAGE: usize = 4096;

/// Below so many multiply-adds, one thread does all the work.
const SMALL: usize = 1 << 19;

/// A filter as the engine computes it.
#[derive(Clone, Copy)]
pub(super) struct Passes<'a> {
    /// A separable filter's row of taps, for the first pass.
    pub(super) across: Option<&'a [f32]>,
    /// The taps of the last pass, row by row: all taps, or a separable filter's column.
    pub(super) taps: &'a [f32],
}

/// Everything that the jobs share.
pub(super) struct Run<'a, S, D> {
    isa: Isa,
    window: Window,
    passes: Passes<'a>,
    src: ImageView<'a, S>,
    dst: Target<'a, D>,
    /// Channels that are filtered; the others are copied.
    filtered: usize,
    rounder: Option<&'a Rounder<'a>>,
    /// Tap columns in the last pass.
    cols: usize,
    by_rows: bool,
    /// The number of blocks that the window's rows are divided into.
    blocks: usize,
    /// Lines in the ring.
    slots: usize,
}

/// The destination, to be written in rectangles by several threads.
struct Target<'a, D> {
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
    unsafe fn row(&self, y: usize, part: Range<usize>) -> &mut [D] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(y * self.stride + part.start), part.len()) }
    }
}

impl<'a, S: Pixel, D: Pixel> Run<'a, S, D> {
    pub(super) fn new(
        isa: Isa,
        window: Window,
        passes: Passes<'a>,
        src: &ImageView<'a, S>,
        dst: &'a mut ImageViewMut<'_, D>,
        filtered: usize,
        rounder: Option<&'a Rounder<'a>>,
    ) -> Self {
        let cols = if passes.across.is_some() { 1 } else { window.cols };
        let halo = (cols - 1) * src.shape().channels;
        let most = (GREATEST_RING / (STRIP + halo + SLACK)).max(8);
        // A row pass costs too much to repeat it for each block.
        let blocks = if cols == 1 { 1 } else { window.rows.div_ceil(most) };
        let block = window.rows.div_ceil(blocks);
        let slots = (block + rows_at_once(block) - 1).min(src.shape().height + 1);
        let by_rows = rounder.is_some_and(|rounder| rounder.order() == Order::ByRows);
        let dst = Target { stride: dst.stride(), first: dst.as_mut_ptr(), image: PhantomData };
        Self { isa, window, passes, src: *src, dst, filtered, rounder, cols, by_rows, blocks, slots }
    }

    /// Filters the image.
    pub(super) fn run(&self) -> Result<()> {
        let Shape { width, height, channels } = self.src.shape();
        let halo = (self.cols - 1) * channels;
        let strip = (RING / self.slots).saturating_sub(halo + SLACK).max(STRIP) / channels;
        let strips = width.div_ceil(strip.max(1));
        // A whole number of tiles.
        let strip = width.div_ceil(strips).next_multiple_of(SLACK);
        let strips = width.div_ceil(strip);

        let taps = self.passes.across.map_or(0, <[f32]>::len) + self.passes.taps.len();
        let work = width.saturating_mul(height).saturating_mul(channels).saturating_mul(taps);
        let threads = rayon::current_num_threads();
        if threads == 1 || work < SMALL {
            let mut scratch = Scratch::default();
            return (0..strips)
                .try_for_each(|i| self.rectangle(&mut scratch, i * strip..width.min((i + 1) * strip), 0..height));
        }
        // Where bands meet, lines are computed twice, so a band should have several times the window's rows, if that keeps all
        // threads busy.
        let even = |jobs: usize| height.div_ceil(jobs.div_ceil(strips));
        let band = even(4 * threads).max(even(threads).min(4 * self.window.rows));
        let bands = height.div_ceil(band);
        share(0..bands * strips, |scratch, job| {
            let (x, y) = (job % strips * strip, job / strips * band);
            self.rectangle(scratch, x..width.min(x + strip), y..height.min(y + band))
        })
    }

    /// Filters some columns of some rows. No two jobs have a pixel in common.
    fn rectangle(&self, scratch: &mut Scratch, columns: Range<usize>, rows: Range<usize>) -> Result<()> {
        let channels = self.src.shape().channels;
        let len = columns.len() * channels;
        // Lines begin where cache lines do.
        let line_len = (len + (self.cols - 1) * channels + MARGIN).next_multiple_of(CACHE_LINE);
        let across = self.passes.across.map_or(0, |across| len + (across.len() - 1) * channels + MARGIN);
        scratch.start(self, line_len, across, &columns)?;
        if let Some(rounder) = self.rounder {
            rounder.begin(&columns, &mut scratch.rounder)?;
        }

        let mut y = rows.start;
        while y < rows.end {
            let most = rows_at_once(self.window.rows.div_ceil(self.blocks));
            let count = if rows.end - y >= most { most } else { 1 };
            let mut parts: [&mut [D]; ROWS] = std::array::from_fn(|i| {
                if i < count {
                    // SAFETY: the rows and columns are this job's own; each part is borrowed once.
                    unsafe { self.dst.row(y + i, columns.start * channels..columns.end * channels) }
                } else {
                    &mut []
                }
            });
            self.rows(scratch, &columns, y, &mut parts[..count]);
            y += count;
        }
        Ok(())
    }

    /// Computes the pixels of a few rows.
    fn rows(&self, scratch: &mut Scratch, columns: &Range<usize>, y: usize, parts: &mut [&mut [D]]) {
        let whole = self.blocks == 1 && columns.len() * self.src.shape().channels >= SLACK;
        match self.rounder.map(|rounder| (rounder, rounder.limit().filter(|_| whole))) {
            Some((rounder, Some(limit))) => self.bytes(scratch, columns, y, parts, rounder, limit),
            _ if whole && D::floats_mut(&mut []).is_some() => self.floats(scratch, columns, y, parts),
            _ => self.sums(scratch, columns, y, parts),
        }
        for (i, part) in parts.iter_mut().enumerate() {
            self.window.restore(&self.src, self.filtered, columns, y + i, part);
        }
    }

    /// Rounds the sums to bytes as they are made.
    fn bytes(
        &self,
        scratch: &mut Scratch,
        columns: &Range<usize>,
        y: usize,
        parts: &mut [&mut [D]],
        rounder: &Rounder<'_>,
        limit: f32,
    ) {
        let count = parts.len();
        let mut places = parts.iter_mut().filter_map(|part| D::bytes_mut(part));
        let mut outs: [&mut [u8]; ROWS] = std::array::from_fn(|_| places.next().unwrap_or_default());
        let mut noted = std::mem::take(&mut scratch.noted);
        noted.clear();
        self.tiles(scratch, columns, y, 0, Outs::Bytes { rows: &mut outs[..count], limit, noted: &mut noted });
        for &(row, at) in &noted {
            rounder.settle(self.isa, columns.start, y + row, at, outs[row], &mut scratch.rounder);
        }
        scratch.noted = noted;
    }

    /// Writes the sums directly to the output.
    fn floats(&self, scratch: &mut Scratch, columns: &Range<usize>, y: usize, parts: &mut [&mut [D]]) {
        let count = parts.len();
        let mut places = parts.iter_mut().filter_map(|part| D::floats_mut(part));
        let mut outs: [&mut [f32]; ROWS] = std::array::from_fn(|_| places.next().unwrap_or_default());
        self.tiles(scratch, columns, y, 0, Outs::Floats(&mut outs[..count]));
    }

    /// Adds up the sums, block by block, and then stores them.
    fn sums(&self, scratch: &mut Scratch, columns: &Range<usize>, y: usize, parts: &mut [&mut [D]]) {
        let len = columns.len() * self.src.shape().channels;
        let mut sums = std::mem::take(&mut scratch.sums);
        let mut outs = sums.chunks_mut(len + SLACK);
        let mut outs: [&mut [f32]; ROWS] = std::array::from_fn(|_| outs.next().unwrap_or_default());
        for block in 0..self.blocks {
            self.tiles(scratch, columns, y, block, Outs::Floats(&mut outs[..parts.len()]));
        }
        for (i, part) in parts.iter_mut().enumerate() {
            let sums = &outs[i][..len];
            match (self.rounder, D::bytes_mut(part)) {
                (Some(rounder), Some(part)) => {
                    rounder.store_part(self.isa, sums, columns.start, y + i, part, &mut scratch.rounder);
                }
                _ => self.isa.run(Narrow { values: sums, out: part }),
            }
        }
        scratch.sums = sums;
    }

    /// Calls the kernel for a block of tap rows.
    fn tiles(&self, scratch: &mut Scratch, columns: &Range<usize>, y: usize, block: usize, outs: Outs<'_, '_>) {
        let channels = self.src.shape().channels;
        let bound = |block: usize| block * self.window.rows / self.blocks;
        let tap_rows = bound(block)..bound(block + 1);
        scratch.lines.clear();
        for row in y + tap_rows.start..y + tap_rows.end + outs.count() - 1 {
            let at = self.line(scratch, columns, row);
            scratch.lines.push(at);
        }
        // The rows that the next call will read. Within a page the processor prefetches by itself.
        let Shape { width, height, .. } = self.src.shape();
        let next = y + tap_rows.end + outs.count() - 1;
        let far = width * channels * size_of::<S>() > PAGE;
        let ahead = std::array::from_fn(|i| {
            let source = (next + i).saturating_sub(self.window.anchor_y).min(height - 1);
            self.src.row(source)[columns.start * channels..].as_ptr().cast()
        });
        let ahead = (ahead, if far { size_of::<S>() } else { 0 });
        self.isa.run(Tiles {
            ring: &scratch.ring,
            lines: &scratch.lines,
            taps: &self.passes.taps[tap_rows.start * self.cols..tap_rows.end * self.cols],
            cols: self.cols,
            step: channels,
            outs,
            len: columns.len() * channels,
            ahead,
            resume: block > 0,
            by_rows: self.by_rows,
        });
    }

    /// The position in the ring of the line under tap row 0 of row `y`, for an anchor at 0. Computes the line if it is not there.
    fn line(&self, scratch: &mut Scratch, columns: &Range<usize>, y: usize) -> usize {
        let Shape { height, channels, .. } = self.src.shape();
        let source = self.window.row(y, 0, height);
        // Each line of a small image has a fixed place; lines of a large one take places in turn.
        let slot = if height < self.slots { source.unwrap_or(height) } else { y % self.slots };
        let name = if height < self.slots { slot } else { y };
        let at = slot * scratch.line_len;
        if scratch.held[slot] == name {
            return at;
        }
        scratch.held[slot] = name;
        let line = &mut scratch.ring[at..][..scratch.line_len];
        let out = if self.passes.across.is_some() { &mut scratch.across[..] } else { &mut *line };
        match source {
            None => out.fill(self.window.border_value),
            Some(y) => {
                let row = self.src.row(y);
                // The strip itself, and the part of the image on both sides of it.
                let (left, right) = (scratch.inside.start, scratch.inside.end);
                let first = columns.start + left - self.window.anchor_x;
                let values = &row[first * channels..][..(right - left) * channels];
                self.isa.run(Widen { values, out: &mut out[left * channels..right * channels] });
                for &(at, source) in &scratch.sides {
                    let out = &mut out[at * channels..][..channels];
                    match source {
                        Some(x) => {
                            out.iter_mut().zip(&row[x * channels..]).for_each(|(out, value)| *out = value.to_f32())
                        }
                        None => out.fill(self.window.border_value),
                    }
                }
            }
        }
        if let Some(taps) = self.passes.across {
            let (ring, len) = (&scratch.across, columns.len() * channels);
            let mut outs = [line];
            self.isa.run(Tiles {
                ring,
                lines: &[0],
                taps,
                cols: taps.len(),
                step: channels,
                outs: Outs::Floats(&mut outs),
                len,
                ahead: ([std::ptr::null(); ROWS], 0),
                resume: false,
                by_rows: false,
            });
        }
        at
    }
}

/// A thread's memory.
#[derive(Default)]
struct Scratch {
    /// The lines.
    ring: Aligned,
    /// Floats from one line to the next.
    line_len: usize,
    /// Which line each place in the ring holds.
    held: Vec<usize>,
    /// Where the lines of a call begin.
    lines: Vec<usize>,
    /// A padded row before its row pass.
    across: Aligned,
    /// Rows of sums, before they become pixels.
    sums: Aligned,
    /// Row and column of results in doubt.
    noted: Vec<(usize, usize)>,
    /// The pixels of a padded row that lie in the image.
    inside: Range<usize>,
    /// The other pixels of the padded row, and the source pixel that each copies, if it does not have the border's value.
    sides: Vec<(usize, Option<usize>)>,
    rounder: round::Scratch,
}

impl Scratch {
    /// Makes room for a rectangle of these columns and forgets all lines.
    fn start<S: Pixel, D: Pixel>(
        &mut self,
        run: &Run<'_, S, D>,
        line_len: usize,
        across: usize,
        columns: &Range<usize>,
    ) -> Result<()> {
        let Shape { width, channels, .. } = run.src.shape();
        self.line_len = line_len;
        self.ring.grow(run.slots.saturating_mul(line_len))?;
        self.across.grow(across)?;
        self.sums.grow(ROWS * (columns.len() * channels + SLACK))?;
        self.held.clear();
        self.held.resize(run.slots, usize::MAX);

        let Window { cols, anchor_x, .. } = run.window;
        let padded = columns.len() + cols - 1;
        let left = anchor_x.saturating_sub(columns.start);
        self.inside = left..padded.min(width + anchor_x - columns.start);
        let sides = (0..left).chain(self.inside.end..padded);
        self.sides.clear();
        self.sides.extend(sides.map(|at| (at, run.window.column(columns.start + at, 0, width))));
        Ok(())
    }
}

/// Floats that start at a cache line.
#[derive(Default)]
struct Aligned {
    data: Vec<f32>,
    first: usize,
}

impl Aligned {
    fn grow(&mut self, len: usize) -> Result<()> {
        if self.data.len() < len.saturating_add(CACHE_LINE) {
            self.data = Vec::new();
            self.data = crate::memory::zeroed(len.saturating_add(CACHE_LINE))?;
            self.first = self.data.as_ptr().align_offset(4 * CACHE_LINE).min(CACHE_LINE);
        }
        Ok(())
    }
}

impl Deref for Aligned {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.data[self.first..]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.data[self.first..]
    }
}

/// Pixels to floats.
struct Widen<'a, S> {
    values: &'a [S],
    out: &'a mut [f32],
}

impl<S: Pixel> Work for Widen<'_, S> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        S::widen(self.values, self.out);
    }
}

/// Floats to pixels.
struct Narrow<'a, D> {
    values: &'a [f32],
    out: &'a mut [D],
}

impl<D: Pixel> Work for Narrow<'_, D> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        D::narrow(self.values, self.out);
    }
}
