//! What the jobs of a call share: a frame, the filter's taps, and how lines lie in a ring.

use std::ops::Range;

use super::frame::{Frame, STRIP, Terms};
use super::light::Light;
use super::resolving::Resolving;
use super::tile::{SLACK, rows_at_once};
use crate::image::{Pixel, Shape};
use crate::round::{Order, Rounder, column_block, row_block, terms_together};
use crate::window::Window;

/// Bytes in a ring, if the image's size allows it: a quarter of a megabyte, which every
/// second-level cache holds.
const RING: usize = 1 << 18;

/// Bytes in a ring that holds every line under the window; beyond, the window is taken in blocks of
/// rows.
const GREATEST_RING: usize = 1 << 20;

/// The values of a strip's line of f32, for a ring under a window of so many rows, without what is
/// beside the strip.
pub(crate) fn strip_values(rows: usize) -> usize {
    let slots = rows + rows_at_once(rows) - 1;
    (RING / size_of::<f32>() / slots).saturating_sub(SLACK).max(STRIP / size_of::<f32>())
}

/// Everything that the jobs share: a frame, and the filter.
pub(super) struct Run<'a, S, D> {
    pub(super) frame: &'a Frame<'a, S, D>,
    pub(super) terms: &'a Terms<'a>,
    pub(super) rounder: Option<&'a Rounder<'a, f32>>,
    /// Each term's column, and the point's factor, in f64.
    pub(super) in_f64: (Vec<&'a [f64]>, f64),
    /// Taps of exact passes for a result.
    pub(super) exact_taps: usize,
    /// The taps of all terms' columns in turn, where one pass takes them together: a line of the
    /// ring then has a part for each term.
    pub(super) together: Vec<f32>,
    /// Tap columns in the last pass.
    pub(super) cols: usize,
    /// How many taps of the last pass are summed apart.
    pub(super) block: usize,
    /// How many taps of a row pass are summed apart.
    pub(super) row_block: usize,
    /// The number of blocks that the window's rows are divided into.
    pub(super) blocks: usize,
    /// Lines in the ring.
    pub(super) slots: usize,
}

impl<S: Pixel, D: Pixel> Run<'_, S, D> {
    /// How long it takes to be sure of results, if they may be uncertain.
    pub(super) fn resolving(&self) -> Resolving {
        let Window { cols, rows, .. } = self.frame.window;
        let left = self.rounder.and_then(Rounder::left_by_columns);
        let columns = left.map(|left| (rows * self.terms.passes.len(), left));
        let taps = (self.taps_taken() as f64, self.exact_taps as f64);
        Resolving::new((cols, rows), self.frame.src.shape().channels, taps, columns)
    }
}

impl<'a, S: Pixel, D: Pixel> Run<'a, S, D> {
    pub(super) fn new(
        frame: &'a Frame<'a, S, D>,
        terms: &'a Terms<'a>,
        rounder: Option<&'a Rounder<'a, f32>>,
    ) -> Self {
        let Frame { window, src, .. } = frame;
        let separable = terms.passes.iter().all(|passes| passes.across.is_some());
        let cols = if separable { 1 } else { window.cols };
        let halo = (cols - 1) * src.shape().channels;
        let most =
            (GREATEST_RING / size_of::<f32>() / (STRIP / size_of::<f32>() + halo + SLACK)).max(8);
        // A row pass costs too much to repeat it for each block.
        let blocks = if cols == 1 { 1 } else { window.rows.div_ceil(most) };
        let block = window.rows.div_ceil(blocks);
        let slots = (block + rows_at_once(block) - 1).min(src.shape().height + 1);
        let terms_per_ring =
            terms.passes.len() > 1 && (rounder.is_none() || terms_together(window.rows));
        let together = if terms_per_ring { terms.columns() } else { Vec::new() };
        let of_light = frame.light.as_ref().and_then(Light::order);
        let (apart, row_block) = match rounder.map(Rounder::order).or(of_light) {
            Some(Order::ByRows) => (window.cols, usize::MAX),
            Some(Order::BlockPasses) => (column_block(window.rows), row_block(window.cols)),
            // A term's column is one block at least.
            Some(Order::Terms) if !terms_per_ring => {
                (column_block(window.rows).min(window.rows), row_block(window.cols))
            }
            Some(Order::Terms) => (usize::MAX, row_block(window.cols)),
            _ => (usize::MAX, usize::MAX),
        };
        let in_f64 = (Vec::new(), 0.0);
        Self {
            frame,
            terms,
            rounder,
            in_f64,
            exact_taps: 0,
            together,
            cols,
            block: apart,
            row_block,
            blocks,
            slots,
        }
    }

    /// The same, with the columns of all terms, if they are separable, and the factor of the pixel
    /// itself, in f64; and the taps of exact passes for a result.
    pub(super) fn with_columns(
        self,
        columns: Vec<&'a [f64]>,
        point: f64,
        exact_taps: usize,
    ) -> Self {
        Self { in_f64: (columns, point), exact_taps, ..self }
    }

    pub(super) fn strip(&self) -> usize {
        let Shape { width, channels, .. } = self.frame.src.shape();
        let halo = (self.cols - 1) * channels;
        let (ring, least) = (RING / size_of::<f32>(), STRIP / size_of::<f32>());
        let strip =
            (ring / (self.slots * self.terms.passes.len())).saturating_sub(halo + SLACK).max(least)
                / channels;
        // A whole number of tiles.
        width.div_ceil(width.div_ceil(strip.max(1))).next_multiple_of(SLACK)
    }

    /// How many pairs a line of these columns is made of, if any of its rows is in whole numbers.
    pub(super) fn pairs_read(&self, columns: &Range<usize>) -> Option<usize> {
        let channels = self.frame.src.shape().channels;
        let rows = self.terms.passes.iter().filter_map(|passes| passes.whole);
        rows.map(|row| row.pairs_read(columns.len() * channels, channels)).max()
    }

    /// How many taps are taken for a result.
    pub(super) fn taps_taken(&self) -> usize {
        self.terms
            .passes
            .iter()
            .map(|passes| passes.across.map_or(0, <[f32]>::len) + passes.taps.len())
            .sum()
    }

    /// How many terms share a ring.
    pub(super) fn terms_per_ring(&self) -> usize {
        if self.together.is_empty() { 1 } else { self.terms.passes.len() }
    }

    /// The ring that the last pass reads.
    pub(super) fn last(&self) -> usize {
        self.terms.passes.len() / self.terms_per_ring() - 1
    }
}
