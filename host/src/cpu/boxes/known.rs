//! Means of the known pixels: sums of pixels, of which unknown ones are 0, over sums of the mask's
//! bytes of 0 and 255. Both are counted side by side, and where all pixels are known, only the
//! first is divided.

use super::super::masked::reach::Reach;
use super::super::masked::weigh::repeat;
use super::mean::{Mean, counts, is_few};
use super::{CHUNK, Count, Descend, Divide, Few, Scratch, add_few, add_up_all};
use crate::Result;
use crate::cpu::bands::band;
use crate::cpu::share::share;
use crate::image::{ImageView, ImageViewMut, Shape};
use crate::progress::Stage;
use crate::simd::{Isa, Lanes, Vectorized};
use crate::window::Window;

/// The most channels.
const CHANNELS: usize = 4;

/// What means are made of.
pub(in crate::cpu) struct KnownMean<'a> {
    pub(in crate::cpu) isa: Isa,
    pub(in crate::cpu) window: Window,
    pub(in crate::cpu) mean: Mean,
    /// Pixels, of which unknown ones are 0.
    pub(in crate::cpu) pixels: ImageView<'a, u8>,
    /// Bytes of 0 and 255.
    pub(in crate::cpu) mask: ImageView<'a, u8>,
    /// The mask's byte of what lies outside.
    pub(in crate::cpu) outside: u8,
    pub(in crate::cpu) reach: &'a Reach,
    /// The result where no pixel is known.
    pub(in crate::cpu) empty: u8,
}

impl KnownMean<'_> {
    /// Whether a mean of images of this shape is counted.
    pub(in crate::cpu) fn takes(mean: Mean, window: &Window, shape: Shape) -> bool {
        let Window { cols, rows, .. } = *window;
        counts(cols, rows, usize::MAX)
            && shape.channels <= CHANNELS
            && mean.numerator > 0
            && i128::from(mean.numerator) * (cols * rows) as i128 == i128::from(mean.divisor)
    }

    pub(in crate::cpu) fn run(
        &self,
        dst: &mut ImageViewMut<'_, u8>,
        stage: &Stage<'_>,
    ) -> Result<()> {
        let Window { cols, rows, .. } = self.window;
        let (channels, of_mask) = (self.pixels.shape().channels, self.mask.shape().channels);
        if !is_few(cols, rows) {
            return self.by_columns(
                dst,
                stage,
                |[pixels, weights]: &mut [Scratch<u32>; 2], _, out| {
                    self.isa.run(Before { scratch: pixels, channels });
                    self.isa.run(Before { scratch: weights, channels: of_mask });
                    let [pixels, weights] = [&pixels.before, &weights.before];
                    self.isa.run(Quotients {
                        pixels,
                        weights,
                        window: cols,
                        channels,
                        of_mask,
                        empty: self.empty,
                        out,
                    });
                },
            );
        }
        let mean = self.mean.of_few(cols * rows);
        self.by_columns(dst, stage, |[pixels, weights]: &mut [Scratch<u16>; 2], y, out| {
            for strip in self.reach.strips() {
                let values = strip.start * channels..strip.end * channels;
                let (columns, out) = (&pixels.columns[values.start..], &mut out[values]);
                if self.reach.under(&strip, y).has_unknown() {
                    let weights = &weights.columns[strip.start * of_mask..];
                    self.isa.run(FewQuotients {
                        columns,
                        weights,
                        cols,
                        channels,
                        of_mask,
                        empty: self.empty,
                        out,
                    });
                } else if let Some(mean) = mean {
                    self.isa.run(Divide { mean, columns, cols, channels, out });
                } else {
                    self.isa.run(Few { columns, out, cols, channels, factor: self.mean.factor() });
                }
            }
        })
    }

    /// Keeps the sums of all columns of both pictures, row by row, and calls `finish` with them,
    /// the row's number and its results.
    fn by_columns<C: Count>(
        &self,
        dst: &mut ImageViewMut<'_, u8>,
        stage: &Stage<'_>,
        finish: impl Fn(&mut [Scratch<C>; 2], usize, &mut [u8]) + Sync,
    ) -> Result<()> {
        let window = self.window;
        let sources = [
            (self.pixels, window),
            (self.mask, Window { border_value: self.outside.into(), ..window }),
        ];
        let height = self.pixels.shape().height;
        let band = band(height, window.rows, 1, stage.cut_for());
        let source = |line: usize| window.row(line, 0, height);
        share(
            stage,
            dst.bands_mut(band).enumerate(),
            |memory: &mut [Scratch<C>; 2], (index, rows)| {
                let first = index * band;
                for (scratch, (image, window)) in memory.iter_mut().zip(&sources) {
                    scratch.start(window, image.shape())?;
                    for line in first..first + window.rows - 1 {
                        self.isa.run(Descend {
                            scratch,
                            entering: source(line).map(|y| image.row(y)),
                            leaving: None,
                        });
                    }
                }
                for (y, out) in (first..).zip(rows) {
                    for (scratch, (image, window)) in memory.iter_mut().zip(&sources) {
                        let entering = source(y + window.rows - 1).map(|y| image.row(y));
                        let leaving = (y > first).then(|| source(y - 1).map(|y| image.row(y)));
                        self.isa.run(Descend { scratch, entering, leaving });
                        scratch.add_sides(window, image.shape().channels);
                    }
                    finish(memory, y, out);
                }
                Ok(())
            },
        )
    }
}

/// The sums of all columns before each.
struct Before<'a> {
    scratch: &'a mut Scratch<u32>,
    channels: usize,
}

impl Vectorized for Before<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Scratch { columns, before, .. } = self.scratch;
        add_up_all(&columns[..columns.len() - CHUNK], before, self.channels);
    }
}

/// Quotients under windows of any number of columns, from the sums of all columns before.
struct Quotients<'a> {
    pixels: &'a [u32],
    weights: &'a [u32],
    /// Columns of a window.
    window: usize,
    channels: usize,
    of_mask: usize,
    empty: u8,
    out: &'a mut [u8],
}

impl Vectorized for Quotients<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Self { pixels, weights, window, channels, of_mask, empty, out } = self;
        // The sums may wrap around; their difference is below 2^32 and is exact.
        let sums = |before: &'_ [u32], at: usize, step: usize| -> f64 {
            before[at + window * step].wrapping_sub(before[at]).into()
        };
        let per_weight = channels / of_mask;
        let mut inverse = [0.0; CHUNK];
        for (number, out) in out.chunks_mut(CHUNK * per_weight).enumerate() {
            let inverse = &mut inverse[..out.len() / per_weight];
            let first = number * CHUNK;
            for (i, inverse) in inverse.iter_mut().enumerate() {
                let weight = sums(weights, first + i, of_mask);
                *inverse = if weight == 0.0 { -1.0 } else { 255.0 / weight };
            }
            for (i, (out, &inverse)) in out.chunks_exact_mut(per_weight).zip(&*inverse).enumerate()
            {
                for (c, out) in out.iter_mut().enumerate() {
                    let sum = sums(pixels, (first + i) * per_weight + c, channels);
                    let byte = Mean::nearest(sum * inverse);
                    *out = if inverse < 0.0 { empty } else { byte };
                }
            }
        }
    }
}

/// Quotients under windows of a few columns.
struct FewQuotients<'a> {
    columns: &'a [u16],
    weights: &'a [u16],
    cols: usize,
    channels: usize,
    of_mask: usize,
    empty: u8,
    out: &'a mut [u8],
}

impl Vectorized for FewQuotients<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Self { columns, weights, cols, channels, of_mask, empty, out } = self;
        let per_weight = channels / of_mask;
        let chunks = out.len().div_ceil(CHUNK * per_weight);
        assert!(CHUNK * chunks + (cols - 1) * of_mask <= weights.len());
        let mut inverses = [0.0f32; CHUNK * CHANNELS];
        for (number, out) in out.chunks_mut(CHUNK * per_weight).enumerate() {
            // SAFETY: this is in `Vectorized::run`, and the columns of each chunk exist, as is
            // asserted.
            let sums = unsafe {
                let weights = weights.as_ptr().add(number * CHUNK);
                add_few::<L::Words>(0, weights, cols, of_mask)
            };
            let inverse = sums.map(|sum| if sum == 0 { -1.0 } else { 255.0 / f32::from(sum) });
            let inverses = &mut inverses[..CHUNK * per_weight];
            match per_weight {
                1 => inverses.copy_from_slice(&inverse),
                _ => repeat(&inverse, per_weight, inverses),
            }
            for (part, (out, inverse)) in
                out.chunks_mut(CHUNK).zip(inverses.chunks(CHUNK)).enumerate()
            {
                let first = (number * per_weight + part) * CHUNK;
                assert!(first + CHUNK + (cols - 1) * channels <= columns.len());
                // SAFETY: as above.
                let sums =
                    unsafe { add_few::<L::Words>(0, columns.as_ptr().add(first), cols, channels) };
                let mut bytes = [0; CHUNK];
                for ((byte, &sum), &inverse) in bytes.iter_mut().zip(&sums).zip(inverse) {
                    let mean = (f32::from(sum) * inverse + GRID) - GRID;
                    *byte = if inverse < 0.0 { empty } else { (mean + LIFT).to_bits() as u8 };
                }
                out.copy_from_slice(&bytes[..out.len()]);
            }
        }
    }
}

/// Numbers as great as that are multiples of 2^-10. A mean of at most 257 pixels that is no tie
/// lies at least 1/514 from one, and is off by less than 2^-14: so to the nearest such multiple, a
/// tie is one, and nothing else is.
const GRID: f32 = 1.5 * (1 << 13) as f32;

/// To numbers of this size, a number is added as a multiple of 1.
const LIFT: f32 = 1.5 * (1 << 23) as f32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::whole::Divisor;

    /// All means of up to 257 pixels, on each set of instructions.
    #[test]
    fn quotients_are_exact() {
        for isa in Isa::all() {
            for count in (1..=257u16).filter(|count| count % 7 == 5 || *count > 254) {
                let sums: Vec<u16> = (0..=255 * count).collect();
                let (mut columns, mut weights) = (sums.clone(), vec![255 * count; sums.len()]);
                columns.resize(sums.len().next_multiple_of(CHUNK), 0);
                weights.resize(columns.len(), 0);
                let (columns, weights) = (&columns[..], &weights[..]);
                let mut out = vec![0; sums.len()];
                isa.run(FewQuotients {
                    columns,
                    weights,
                    cols: 1,
                    channels: 1,
                    of_mask: 1,
                    empty: 7,
                    out: &mut out,
                });
                for (sum, found) in out.into_iter().enumerate() {
                    let right = Divisor::Number(count.into()).byte(sum as i128);
                    assert_eq!(found, right, "{sum} / {count}, {isa:?}");
                }
            }
        }
    }
}
