//! Exact quotients of single results, over bytes under a mask.

use gpu_kernels::divisor::ratio;

use crate::filter::whole::{Whole, WholeTaps};
use crate::image::{ImageView, Shape};
use crate::window::Window;

/// What a quotient is made of.
pub(super) struct Exact<'a> {
    pub(super) whole: &'a Whole,
    pub(super) window: &'a Window,
    /// Pixels, and the mask as the last channel. Windows of the results lie inside.
    pub(super) copy: ImageView<'a, u8>,
    /// The result where no pixel is known.
    pub(super) empty: u8,
}

impl Exact<'_> {
    /// The byte of a result.
    pub(super) fn byte(&self, (x, y): (usize, usize), channel: usize) -> u8 {
        let Window { cols, rows, anchor_x, anchor_y, .. } = *self.window;
        let Shape { channels, .. } = self.copy.shape();
        // A pixel's product and its weight.
        let pair = |row: usize, col: usize| {
            let pixel = &self.copy.row(y - anchor_y + row)[(x - anchor_x + col) * channels..];
            let weight = i64::from(pixel[channels - 1]);
            [i64::from(pixel[channel]) * weight, weight]
        };
        let line = |row: usize, taps: &[i64]| {
            // Below 2^61: 2^45 for the taps of a table, 2^37 for those of a row, and 2^16.
            taps.iter().enumerate().fold([0i64; 2], |[sum, below], (col, tap)| {
                let [product, weight] = pair(row, col);
                [sum + tap * product, below + tap * weight]
            })
        };
        let mut sums = [0i128; 2];
        let mut add = |factor: i128, parts: [i64; 2]| {
            sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += factor * i128::from(part));
        };
        match &self.whole.taps {
            WholeTaps::Table(taps) => {
                for (row, taps) in taps.chunks_exact(cols).enumerate() {
                    add(1, line(row, taps));
                }
            }
            WholeTaps::Products { terms, point, .. } => {
                for (across, down) in terms {
                    for (row, &tap) in down.iter().enumerate() {
                        add(tap.into(), line(row, across));
                    }
                }
                if *point != 0 {
                    add(*point, pair(rows / 2, cols / 2));
                }
            }
        }
        if sums[1] == 0 { self.empty } else { ratio(sums[0], sums[1]) as u8 }
    }
}
