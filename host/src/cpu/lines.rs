//! The lines under a window: rows of the image with the border's pixels around them, or the row
//! pass's sums over them.

use std::ops::{Deref, DerefMut, Range};

use super::light::Light;
use super::rows::{CACHE_LINE, Widen};
use super::run::Run;
use super::tile::{MARGIN, Outs, ROWS, SLACK, Tiles};
use super::whole::{Pair, RowSums};
use crate::image::{Pixel, Shape};
use crate::window::Window;
use crate::{Result, round};

impl<S: Pixel, D: Pixel> Run<'_, S, D> {
    /// The position in the ring of the line under tap row 0 of row `y`, for an anchor at 0.
    /// Computes the line if it is not there.
    pub(super) fn line(
        &self,
        scratch: &mut Scratch,
        columns: &Range<usize>,
        term: usize,
        y: usize,
    ) -> usize {
        let height = self.frame.src.shape().height;
        let source = self.frame.window.row(y, 0, height);
        // Each line of a small image has a fixed place; lines of a large one take places in turn.
        let slot = if height < self.slots { source.unwrap_or(height) } else { y % self.slots };
        let name = if height < self.slots { slot } else { y };
        let at = slot * self.terms_per_ring() * scratch.line_len;
        if scratch.rings[term].held[slot] != name {
            scratch.rings[term].held[slot] = name;
            let (clean, greatest) = self.load(scratch, columns, (term, at), source);
            scratch.rings[term].clean[slot] = clean;
            scratch.rings[term].greatest[slot] = greatest;
        }
        at
    }

    /// Computes the line at `at` in a term's ring, from row `source` of the image or from outside.
    /// Says whether pixels are weighted and every weight is 1; and the greatest light, if pixels
    /// are decoded.
    fn load(
        &self,
        scratch: &mut Scratch,
        columns: &Range<usize>,
        (term, at): (usize, usize),
        source: Option<usize>,
    ) -> (bool, f32) {
        let channels = self.frame.src.shape().channels;
        let terms = self.terms_per_ring();
        let lines = &mut scratch.rings[term].lines[at..][..terms * scratch.line_len];
        let passes = &self.terms.passes[term..][..terms];
        let row = source.map(|y| self.frame.src.row(y));
        let (mut clean, mut greatest) = (false, 0.0);
        let padding = Padding {
            first: columns.start,
            window: &self.frame.window,
            inside: &scratch.inside,
            sides: &scratch.sides,
        };
        if let Some(read) = self.pairs_read(columns) {
            self.pair(&padding, row, &mut scratch.bytes, &mut scratch.pairs[..read]);
        }
        if passes.iter().any(|passes| passes.whole.is_none()) {
            let out =
                if passes[0].across.is_some() { &mut scratch.across[..] } else { &mut *lines };
            let middle = passes[0].middle;
            let table = self.frame.light.as_ref().and_then(Light::table);
            let of =
                |value: f32| table.map_or(value - middle, |light| light[usize::from(value as u8)]);
            let widen = |values: &[S], out: &mut [f32]| match (table, S::bytes(values)) {
                (Some(light), Some(bytes)) => {
                    let values = out.iter_mut().zip(bytes);
                    values.for_each(|(out, &byte)| *out = light[usize::from(byte)]);
                }
                _ => self.frame.isa.run(Widen { values, middle, out }),
            };
            let outside = of(self.frame.window.border_value);
            padding.pad(row, channels, outside, out, |value| of(value.to_f32()), widen);
            let padded = (columns.len() + self.frame.window.cols - 1) * channels;
            if let Some(weigh) = &self.frame.weigh {
                clean = self.weigh(weigh, &padding, source, &mut out[..padded]);
            }
            if let Some(light) = &self.frame.light {
                if table.is_none() {
                    light.decode(self.frame.isa, channels, &mut out[..padded]);
                }
                greatest = light.greatest(self.frame.isa, &out[..padded]);
            }
        }
        let len = columns.len() * channels;
        for (out, passes) in lines.chunks_exact_mut(scratch.line_len).zip(passes) {
            let Some(taps) = passes.across else { break };
            match passes.whole {
                Some(row) => {
                    let pairs = &scratch.pairs;
                    self.frame.isa.run(RowSums { row, pairs, channels, out, len });
                }
                // Of ones, a row pass gives one number.
                None if clean && self.frame.weigh.is_some_and(|weigh| weigh.alone) => {
                    out[..len].fill(taps.iter().fold(0.0, |sum, &tap| sum + tap));
                }
                None => self.across(taps, &scratch.across, out, len),
            }
        }
        (clean, greatest)
    }

    /// The greatest light in the lines that the last call read.
    pub(super) fn greatest(&self, scratch: &Scratch) -> f32 {
        if self.blocks > 1 {
            return 1.0;
        }
        let len = self.terms_per_ring() * scratch.line_len;
        let of_ring = |ring: &Ring| {
            ring.called.iter().fold(0.0, |most: f32, &line| most.max(ring.greatest[line / len]))
        };
        scratch.rings.iter().map(of_ring).fold(0.0, f32::max)
    }

    /// Makes pairs of a row of bytes. Pairs inside the image come from its row; of that row, only
    /// the bytes beside the edges are copied.
    fn pair(&self, padding: &Padding<'_>, row: Option<&[S]>, bytes: &mut [u8], pairs: &mut [u32]) {
        let channels = self.frame.src.shape().channels;
        let outside = self.frame.window.border_value as u8;
        let ends = |row: &[S], out: &mut [u8]| {
            let (row, last) = (S::bytes(row).unwrap_or_default(), out.len() - channels);
            out[..channels].copy_from_slice(&row[..channels]);
            out[last..].copy_from_slice(&row[last..]);
        };
        padding.pad(row, channels, outside, bytes, |value| value.to_f32() as u8, ends);
        let read = pairs.len();
        let mut pair = |values: &[u8], part: Range<usize>| {
            self.frame.isa.run(Pair { values, step: channels, pairs: &mut pairs[part] });
        };
        match row.and_then(|row| S::bytes(padding.part(row, channels))) {
            Some(part) => {
                let first = padding.inside.start * channels;
                let last = first + part.len() - channels;
                pair(bytes, 0..first);
                pair(part, first..last);
                pair(&bytes[last..], last..read);
            }
            None => pair(bytes, 0..read),
        }
    }

    /// The row pass in f32 over a padded row.
    fn across(&self, taps: &[f32], padded: &[f32], out: &mut [f32], len: usize) {
        self.frame.isa.run(Tiles {
            ring: padded,
            lines: &[0],
            taps,
            cols: taps.len(),
            step: self.frame.src.shape().channels,
            outs: Outs::Floats(&mut [out]),
            len,
            ahead: ([std::ptr::null(); ROWS], 0),
            resume: false,
            block: self.row_block,
        });
    }
}

/// How a row of the source lies in a line.
pub(super) struct Padding<'a> {
    /// The strip's first column.
    pub(super) first: usize,
    pub(super) window: &'a Window,
    pub(super) inside: &'a Range<usize>,
    pub(super) sides: &'a [(usize, Option<usize>)],
}

impl Padding<'_> {
    /// The part of a row that lies under the strip and on both sides of it.
    pub(super) fn part<'r, S>(&self, row: &'r [S], channels: usize) -> &'r [S] {
        let (left, right) = (self.inside.start, self.inside.end);
        let first = self.first + left - self.window.anchor_x;
        &row[first * channels..][..(right - left) * channels]
    }

    /// Lays out the strip itself and the part of the image on both sides of it by `copy`, and the
    /// border's pixels one by one.
    pub(super) fn pad<S: Copy, T: Copy>(
        &self,
        row: Option<&[S]>,
        channels: usize,
        outside: T,
        out: &mut [T],
        one: impl Fn(S) -> T,
        copy: impl FnOnce(&[S], &mut [T]),
    ) {
        let Some(row) = row else { return out.fill(outside) };
        copy(
            self.part(row, channels),
            &mut out[self.inside.start * channels..self.inside.end * channels],
        );
        for &(at, source) in self.sides {
            let out = &mut out[at * channels..][..channels];
            match source {
                Some(x) => out
                    .iter_mut()
                    .zip(&row[x * channels..])
                    .for_each(|(out, &value)| *out = one(value)),
                None => out.fill(outside),
            }
        }
    }
}

/// A thread's memory.
#[derive(Default)]
pub(super) struct Scratch {
    /// For each term, or for all that are taken together, the lines.
    pub(super) rings: Vec<Ring>,
    /// Floats of a term's line.
    pub(super) line_len: usize,
    /// A padded row before its row pass.
    pub(super) across: Aligned,
    /// The same for a row pass in whole numbers, and its pairs.
    pub(super) bytes: Vec<u8>,
    pub(super) pairs: Vec<u32>,
    /// The weighted or decoded pixels of a row.
    pub(super) point: Vec<f32>,
    /// Rows of sums, before they become pixels.
    pub(super) sums: Aligned,
    /// Of each row, the columns of uncertain results.
    pub(super) noted: [Vec<usize>; ROWS],
    /// The pixels of a padded row that lie in the image.
    pub(super) inside: Range<usize>,
    /// The other pixels of the padded row, and the source pixel that each copies, if it does not
    /// have the border's value.
    pub(super) sides: Vec<(usize, Option<usize>)>,
    pub(super) rounder: round::Scratch,
}

impl Scratch {
    /// Makes room for a rectangle of these columns and forgets all lines.
    pub(super) fn start<S: Pixel, D: Pixel>(
        &mut self,
        run: &Run<'_, S, D>,
        columns: &Range<usize>,
    ) -> Result<()> {
        let (Shape { width, channels, .. }, Window { cols, anchor_x, .. }) =
            (run.frame.src.shape(), run.frame.window);
        let len = columns.len() * channels;
        // Lines begin where cache lines do.
        let line_len = (len + (run.cols - 1) * channels + MARGIN)
            .next_multiple_of(CACHE_LINE / size_of::<f32>());
        let across = if run.cols == 1 { len + (cols - 1) * channels + MARGIN } else { 0 };
        self.line_len = line_len;
        self.rings.resize_with(run.last() + 1, Ring::default);
        for ring in &mut self.rings {
            ring.lines.grow(run.slots.saturating_mul(run.terms_per_ring() * line_len))?;
            ring.called.clear();
            ring.held.clear();
            ring.held.resize(run.slots, usize::MAX);
            ring.clean.clear();
            ring.clean.resize(run.slots, false);
            ring.greatest.resize(run.slots, 0.0);
        }
        self.across.grow(across)?;
        let pairs = run.pairs_read(columns).unwrap_or(0);
        if self.pairs.len() < pairs {
            self.bytes = crate::memory::zeroed(pairs + channels)?;
            self.pairs = crate::memory::zeroed(pairs)?;
        }
        self.sums.grow(ROWS * (len + SLACK))?;
        let has_point = run.frame.weigh.is_some() || run.frame.light.is_some();
        if has_point && self.point.len() < len {
            self.point = crate::memory::zeroed(len)?;
        }

        let padded = columns.len() + cols - 1;
        let left = anchor_x.saturating_sub(columns.start);
        self.inside = left..padded.min(width + anchor_x - columns.start);
        let sides = (0..left).chain(self.inside.end..padded);
        self.sides.clear();
        self.sides
            .extend(sides.map(|at| (at, run.frame.window.column(columns.start + at, 0, width))));
        Ok(())
    }
}

/// The lines under a window.
#[derive(Default)]
pub(super) struct Ring {
    pub(super) lines: Aligned,
    /// Which line each place holds.
    pub(super) held: Vec<usize>,
    /// Of each place, whether pixels are weighted and every weight in its line is 1.
    pub(super) clean: Vec<bool>,
    /// The greatest light in it, if pixels are decoded.
    pub(super) greatest: Vec<f32>,
    /// Where the lines of the last call begin, from that of row `first` on.
    pub(super) called: Vec<usize>,
    pub(super) first: usize,
}

/// Values that start at a cache line.
#[derive(Default)]
pub(super) struct Aligned {
    pub(super) data: Vec<f32>,
    pub(super) first: usize,
}

impl Aligned {
    pub(super) fn grow(&mut self, len: usize) -> Result<()> {
        let slack = CACHE_LINE / size_of::<f32>();
        if self.data.len() < len.saturating_add(slack) {
            self.data = Vec::new();
            self.data = crate::memory::zeroed(len.saturating_add(slack))?;
            self.first = self.data.as_ptr().align_offset(CACHE_LINE).min(slack);
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
