//! A window of one tap over bytes: each byte's result is looked up in a table of 256.

use super::bands::band;
use super::share::share;
use crate::Result;
use crate::image::{ImageView, ImageViewMut};
use crate::progress::Stage;

/// Replaces the bytes of the first `filtered` channels by their results, and copies the others.
pub(super) fn run(
    results: &[u8; 256],
    src: &ImageView<'_, u8>,
    (dst, filtered): (&mut ImageViewMut<'_, u8>, usize),
    stage: &Stage<'_>,
) -> Result<()> {
    let (height, channels) = (src.shape().height, src.shape().channels);
    let band = band(height, 1, 1, rayon::current_num_threads());
    share(stage, dst.bands_mut(band).enumerate(), |(): &mut (), (index, rows)| {
        for (y, out) in (index * band..).zip(rows) {
            let row = &src.row(y)[..out.len()];
            if filtered == channels {
                out.iter_mut().zip(row).for_each(|(out, &byte)| *out = results[usize::from(byte)]);
                continue;
            }
            for (out, pixel) in out.chunks_exact_mut(channels).zip(row.chunks_exact(channels)) {
                out.copy_from_slice(pixel);
                out[..filtered].iter_mut().for_each(|byte| *byte = results[usize::from(*byte)]);
            }
        }
        Ok(())
    })
}
