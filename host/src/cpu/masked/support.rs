//! Which results of a sum over known pixels have any: a pixel under a tap that is not zero.
//!
//! ```text
//! for each new line under a row of results:   the mask's bytes, with the border's on both sides
//! for each part of the row:
//!     for each row of taps, each tap that is not 0:
//!         known |= bytes under the tap
//!     until all are known
//! ```

use std::ops::Range;

use super::weigh::BLOCK;
use crate::Filter;
use crate::Result;
use crate::image::{ImageView, Shape};
use crate::simd::{Isa, Lanes, Vectorized};
use crate::window::Window;

/// A mask under a filter's taps.
pub(super) struct Support<'a> {
    isa: Isa,
    window: Window,
    mask: ImageView<'a, u8>,
    /// The byte of what lies outside the image.
    outside: u8,
    /// For each row of taps, the columns of those that are not 0.
    taps: Vec<Vec<usize>>,
}

impl<'a> Support<'a> {
    pub(super) fn new(
        (isa, window): (Isa, Window),
        filter: &Filter,
        mask: ImageView<'a, u8>,
        outside: u8,
    ) -> Self {
        let is_tap = |row: usize, col: &usize| filter.tap(row, *col) as f32 != 0.0;
        let taps = (0..window.rows)
            .map(|row| (0..window.cols).filter(|col| is_tap(row, col)).collect())
            .collect();
        Self { isa, window, mask, outside, taps }
    }
}

/// A thread's memory: the lines under a row of windows.
#[derive(Default)]
pub(super) struct Lines {
    lines: Vec<Vec<u8>>,
    /// Which line each holds.
    held: Vec<usize>,
    known: Vec<u8>,
}

impl Lines {
    /// Not 0 for each byte of the mask in these columns of row `y` whose result has a known pixel.
    pub(super) fn known(
        &mut self,
        support: &Support<'_>,
        columns: &Range<usize>,
        y: usize,
    ) -> Result<&[u8]> {
        let Support { isa, window, mask, taps, .. } = support;
        let Shape { channels, width, .. } = mask.shape();
        if self.lines.is_empty() {
            self.held = vec![usize::MAX; window.rows];
            self.lines.resize_with(window.rows, Vec::new);
            for line in &mut self.lines {
                let len = (width + window.cols - 1) * channels;
                *line = crate::memory::zeroed(len + BLOCK)?;
            }
        }
        for line in y..y + window.rows {
            let slot = line % window.rows;
            if self.held[slot] != line {
                self.held[slot] = line;
                support.line(line, &mut self.lines[slot]);
            }
        }
        self.known.resize(columns.len() * channels, 0);
        let lines: Vec<&[u8]> = (y..y + window.rows)
            .map(|line| &self.lines[line % window.rows][columns.start * channels..])
            .collect();
        isa.run(Known { lines: &lines, taps, channels, known: &mut self.known });
        Ok(&self.known)
    }
}

impl Support<'_> {
    /// Lays out a line of the mask under the windows.
    fn line(&self, line: usize, out: &mut [u8]) {
        let Shape { channels, width, height } = self.mask.shape();
        let anchor = self.window.anchor_x;
        // Lines have a block more, so that the last one is whole.
        let Some(y) = self.window.row(line, 0, height) else { return out.fill(self.outside) };
        let row = self.mask.row(y);
        out[anchor * channels..(anchor + width) * channels].copy_from_slice(row);
        for at in (0..anchor).chain(anchor + width..width + self.window.cols - 1) {
            let out = &mut out[at * channels..][..channels];
            match self.window.column(at, 0, width) {
                Some(x) => out.copy_from_slice(&row[x * channels..][..channels]),
                None => out.fill(self.outside),
            }
        }
    }
}

/// Unions of bytes under taps.
struct Known<'a> {
    /// A line for each row of taps, from the first result's first tap on.
    lines: &'a [&'a [u8]],
    taps: &'a [Vec<usize>],
    channels: usize,
    known: &'a mut [u8],
}

impl Vectorized for Known<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Self { lines, taps, channels, known } = self;
        for (number, known) in known.chunks_mut(BLOCK).enumerate() {
            let mut any = [0u8; BLOCK];
            for (line, taps) in lines.iter().zip(taps) {
                for col in taps {
                    let bytes = line[number * BLOCK + col * channels..].first_chunk::<BLOCK>();
                    let bytes = bytes.unwrap_or(&[0; BLOCK]);
                    any.iter_mut().zip(bytes).for_each(|(any, byte)| *any |= byte);
                }
                if any.iter().fold(255, |least, &any| least.min(any)) != 0 {
                    break;
                }
            }
            known.copy_from_slice(&any[..known.len()]);
        }
    }
}
