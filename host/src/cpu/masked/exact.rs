//! Exact quotients of a rectangle of results, over bytes under a mask of bytes.

use gpu_kernels::border::REPLICATE;

use super::Job;
use super::reach::Tile;
use crate::cpu::{Engine, weighted_bytes};
use crate::filter::whole::Whole;
use crate::image::{Image, ImageView, Shape};
use crate::progress::Report;
use crate::window::Window;
use crate::{Family, Result};

/// What quotients are made of.
pub(super) struct Exact<'a> {
    pub(super) engine: &'a Engine,
    pub(super) family: Family,
    pub(super) whole: &'a Whole,
    pub(super) window: Window,
    pub(super) job: &'a Job<'a, u8>,
    pub(super) mask: ImageView<'a, u8>,
    /// The result where no pixel is known.
    pub(super) empty: u8,
}

/// A copy of what lies under a tile's windows, in some channels, with the border's pixels.
struct Copied {
    pixels: Image<u8>,
    /// The pixels with the mask as last channel.
    masked: Image<u8>,
}

impl Exact<'_> {
    /// Computes a tile's results and gives them to `store`, row by row: the row, and its values.
    pub(super) fn tile(&self, tile: &Tile, mut store: impl FnMut(usize, &[u8])) -> Result<()> {
        let (channels, of_mask) = (self.job.src.shape().channels, self.mask.shape().channels);
        // A mask with one channel weighs all colours of a copy.
        let together = channels / of_mask;
        let parts = (0..of_mask)
            .map(|channel| self.results(&self.copied(tile, channel * together, together)?))
            .collect::<Result<Vec<_>>>()?;
        let mut row = vec![0; tile.columns.len() * channels];
        for (line, y) in (self.window.anchor_y..).zip(tile.rows.clone()) {
            for (part, found) in parts.iter().enumerate() {
                let wide = found.shape().width;
                let from = &found.as_slice()[(line * wide + self.window.anchor_x) * together..];
                let pixels = row.chunks_exact_mut(channels).zip(from.chunks_exact(together));
                for (out, from) in pixels {
                    out[part * together..][..together].copy_from_slice(from);
                }
            }
            store(y, &row);
        }
        Ok(())
    }

    fn copied(&self, tile: &Tile, channel: usize, together: usize) -> Result<Copied> {
        let (window, Shape { width, height, channels }) = (&self.window, self.job.src.shape());
        let of_mask = self.mask.shape().channels;
        let (wide, high) =
            (tile.columns.len() + window.cols - 1, tile.rows.len() + window.rows - 1);
        let mut copied = Copied {
            pixels: Image::zeroed(wide, high, together)?,
            masked: Image::zeroed(wide, high, together + 1)?,
        };
        let outside = vec![window.border_value as u8; together];
        let mut pixels = copied.pixels.as_mut_slice().chunks_exact_mut(together);
        let mut masked = copied.masked.as_mut_slice().chunks_exact_mut(together + 1);
        for line in tile.rows.start..tile.rows.start + high {
            let row = window.row(line, 0, height);
            for at in tile.columns.start..tile.columns.start + wide {
                let (from, weight) = match row.zip(window.column(at, 0, width)) {
                    Some((y, x)) => (
                        &self.job.src.row(y)[x * channels + channel..][..together],
                        self.mask.row(y)[x * of_mask + channel / together],
                    ),
                    None => (&outside[..], (255.0 * self.job.known.outside()) as u8),
                };
                if let (Some(pixel), Some(masked)) = (pixels.next(), masked.next()) {
                    pixel.copy_from_slice(from);
                    masked[..together].copy_from_slice(from);
                    masked[together] = weight;
                }
            }
        }
        Ok(copied)
    }

    /// The results over a copy: quotients, and the plain filter's where all is known. Those whose
    /// windows leave the copy are of no use.
    fn results(&self, Copied { pixels, masked }: &Copied) -> Result<Image<u8>> {
        let Shape { width, height, channels } = pixels.shape();
        let Window { cols, rows, anchor_x, anchor_y, .. } = self.window;
        let mut plain = Image::zeroed(width, height, channels)?;
        let mut quotients = Image::<u8>::zeroed(width, height, channels + 1)?;
        let report = Report::default();
        let call = report.call(0);
        let stage = &call.stage(0, 0);
        let to = &mut plain.view_mut().into();
        self.engine.run(self.family, &pixels.view().into(), to, channels, stage)?;
        let over_copy = Window { border: REPLICATE, ..self.window };
        let (taps, to) = ((self.whole, self.empty), &mut quotients.view_mut());
        weighted_bytes::run(self.engine.isa, taps, &over_copy, &masked.view(), to, stage)?;
        // For each column, how many lines in sequence have an unknown pixel in none of the columns
        // under the window.
        let mut clean = vec![0; width + 1 - cols];
        let row = |y: usize, channels: usize| y * width * channels..(y + 1) * width * channels;
        for line in 0..height {
            let weights = &masked.as_slice()[row(line, channels + 1)];
            let weights = weights.chunks_exact(channels + 1).map(|pixel| pixel[channels]);
            let mut known = 0;
            for (at, weight) in weights.enumerate() {
                known = if weight == 255 { known + 1 } else { 0 };
                if let Some(first) = (at + 1).checked_sub(cols) {
                    clean[first] = if known >= cols { clean[first] + 1 } else { 0 };
                }
            }
            let Some(y) = (line + 1).checked_sub(rows).map(|top| top + anchor_y) else { continue };
            let from = &quotients.as_slice()[row(y, channels + 1)];
            let to = &mut plain.as_mut_slice()[row(y, channels)];
            for (first, _) in clean.iter().enumerate().filter(|(_, lines)| **lines < rows) {
                let x = first + anchor_x;
                to[x * channels..][..channels]
                    .copy_from_slice(&from[x * (channels + 1)..][..channels]);
            }
        }
        Ok(plain)
    }
}
