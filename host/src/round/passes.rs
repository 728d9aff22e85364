//! A separable filter in f64: each row along itself, then down the columns, each product and each sum rounded.

use std::ops::Range;

use multiversion::multiversion;

use crate::Result;
use crate::image::ImageView;
use crate::window::Window;

/// A separable filter's factors, and the image that they filter.
pub(super) struct Passes<'a> {
    pub(super) src: ImageView<'a, u8>,
    pub(super) window: Window,
    pub(super) row: &'a [f64],
    pub(super) column: &'a [f64],
}

/// Filtered rows as the column pass needs them, for some columns of the image; channels interleaved.
#[derive(Default)]
pub(super) struct Ring {
    columns: Range<usize>,
    lines: Vec<f64>,
    /// Which row each line in the ring comes from.
    held: Vec<usize>,
    /// A row with the border's pixels around it.
    padded: Vec<f64>,
    /// A row of results, and its number.
    result: Vec<f64>,
    y: Option<usize>,
}

impl Ring {
    pub(super) fn begin(&mut self, passes: &Passes<'_>, columns: &Range<usize>) -> Result<()> {
        if self.columns == *columns {
            return Ok(());
        }
        let shape = passes.src.shape();
        let len = columns.len() * shape.channels;
        let slots = passes.column.len().min(shape.height + 1);
        self.columns = columns.clone();
        self.y = None;
        self.held = crate::memory::reserve(slots)?;
        self.held.resize(slots, usize::MAX);
        self.lines = crate::memory::zeroed(slots.saturating_mul(len))?;
        self.padded = crate::memory::zeroed(len + (passes.row.len() - 1) * shape.channels)?;
        self.result = crate::memory::zeroed(len)?;
        Ok(())
    }

    /// The result at column `x` of row `y`.
    pub(super) fn pixel(&mut self, passes: &Passes<'_>, x: usize, y: usize, channel: usize) -> f64 {
        if self.y != Some(y) {
            self.y = Some(y);
            self.result.fill(0.0);
            for (row, &tap) in passes.column.iter().enumerate() {
                let at = self.line(passes, y + row);
                add_line(tap, &self.lines[at..], &mut self.result);
            }
        }
        self.result[(x - self.columns.start) * passes.src.shape().channels + channel]
    }

    /// The start of the line under tap row 0 of row `y`, for an anchor at 0. Computes the line if it is not there.
    fn line(&mut self, passes: &Passes<'_>, y: usize) -> usize {
        let (shape, window) = (passes.src.shape(), &passes.window);
        let source = window.row(y, 0, shape.height);
        // Each line of a small image has a fixed place; lines of a large one take places in turn.
        let name = if shape.height < self.held.len() { source.unwrap_or(shape.height) } else { y };
        let slot = name % self.held.len();
        let at = slot * self.result.len();
        if self.held[slot] == name {
            return at;
        }
        self.held[slot] = name;
        let outside = f64::from(window.border_value);
        match source {
            None => self.padded.fill(outside),
            Some(source) => {
                let row = passes.src.row(source);
                for (at, out) in self.padded.chunks_exact_mut(shape.channels).enumerate() {
                    match window.column(self.columns.start + at, 0, shape.width) {
                        Some(x) => out.iter_mut().zip(&row[x * shape.channels..]).for_each(|(out, &p)| *out = p.into()),
                        None => out.fill(outside),
                    }
                }
            }
        }
        let out = &mut self.lines[at..][..self.result.len()];
        out.fill(0.0);
        for (col, &tap) in passes.row.iter().enumerate() {
            add_line(tap, &self.padded[col * shape.channels..], out);
        }
        at
    }
}

/// Adds a tap times a line.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn add_line(tap: f64, line: &[f64], out: &mut [f64]) {
    for (sum, value) in out.iter_mut().zip(line) {
        *sum += tap * value;
    }
}
