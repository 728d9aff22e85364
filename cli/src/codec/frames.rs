//! Animations: composes the parts in a file into the whole pictures that a viewer shows.
//!
//! The readers of GIF, PNG and WebP decode the parts; this module draws them on a canvas. The
//! canvas begins transparent, whatever background colour a file names: browsers do the same.

use apron::{Image, Pixel};

use super::io::{Pages, Result, image_of, zeroes};
use crate::extra::straight;
use crate::meta::Meta;
use crate::picture::{Document, Picture, Pixels};

/// The change to a part's area before the next part is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disposal {
    Keep,
    /// Makes the area transparent.
    Clear,
    /// Brings back the area as it was before the part.
    Restore,
}

/// The position and size of a part, and how it is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) width: usize,
    pub(super) height: usize,
    /// Whether the pixels are composed over the canvas. Otherwise they replace it, alpha too.
    pub(super) over: bool,
    pub(super) disposal: Disposal,
}

/// A sample of 8 or 16 bits. The greatest value means opaque.
pub(super) trait Sample:
    Pixel + bytemuck::Pod + Into<u64> + TryFrom<u64> + Default + PartialEq
{
    const GREATEST: Self;
    /// Converts a value read from a big-endian file.
    fn of_big_endian(self) -> Self;
}

impl Sample for u8 {
    const GREATEST: Self = Self::MAX;

    fn of_big_endian(self) -> Self {
        self
    }
}

impl Sample for u16 {
    const GREATEST: Self = Self::MAX;

    fn of_big_endian(self) -> Self {
        Self::from_be(self)
    }
}

/// The picture as it is shown: RGBA with straight alpha.
pub(super) struct Canvas<P> {
    width: usize,
    height: usize,
    values: Vec<P>,
    /// The part drawn last, and the rows that [`Disposal::Restore`] brings back.
    shown: Option<(Part, Vec<P>)>,
}

impl<P: Sample> Canvas<P> {
    pub(super) fn new(width: usize, height: usize) -> Result<Self> {
        Ok(Self { width, height, values: zeroes(width * height * 4)?, shown: None })
    }

    /// Draws the next part, whose pixels are RGBA. Pixels outside the canvas are cut off.
    pub(super) fn draw(&mut self, part: Part, pixels: &[P]) -> Result<()> {
        self.dispose();
        let mut before = Vec::new();
        for (number, row) in
            pixels.chunks_exact(part.width.max(1) * 4).enumerate().take(part.height)
        {
            let place = self.place(part, number);
            let canvas = &mut self.values[place];
            if part.disposal == Disposal::Restore {
                before
                    .try_reserve(canvas.len())
                    .map_err(|_| "a frame does not fit in memory".to_owned())?;
                before.extend_from_slice(canvas);
            }
            if part.over {
                let (canvas, _) = canvas.as_chunks_mut::<4>();
                canvas
                    .iter_mut()
                    .zip(row.as_chunks::<4>().0)
                    .for_each(|(below, above)| lay(below, above));
            } else {
                let len = canvas.len();
                canvas.copy_from_slice(&row[..len]);
            }
        }
        self.shown = Some((part, before));
        Ok(())
    }

    /// The indices of one row of a part within the values; empty outside the canvas.
    fn place(&self, part: Part, row: usize) -> std::ops::Range<usize> {
        let y = part.y.saturating_add(row);
        let [left, right] = [part.x, part.x.saturating_add(part.width)].map(|x| x.min(self.width));
        if y >= self.height {
            0..0
        } else {
            (y * self.width + left) * 4..(y * self.width + right) * 4
        }
    }

    /// Applies the disposal of the part drawn last.
    fn dispose(&mut self) {
        let Some((part, before)) = self.shown.take() else { return };
        let mut before = &before[..];
        for row in 0..part.height {
            let place = self.place(part, row);
            let canvas = &mut self.values[place];
            match part.disposal {
                Disposal::Keep => return,
                Disposal::Clear => canvas.fill(P::default()),
                Disposal::Restore => {
                    let Some((row, others)) = before.split_at_checked(canvas.len()) else { return };
                    canvas.copy_from_slice(row);
                    before = others;
                }
            }
        }
    }

    /// A copy of the canvas.
    fn shown(&self) -> Result<Vec<P>> {
        let mut values = zeroes(self.values.len())?;
        values.copy_from_slice(&self.values);
        Ok(values)
    }
}

/// Composes one pixel over another: the exact result of Porter and Duff's "over" for straight
/// alpha, rounded half up.
fn lay<P: Sample>(below: &mut [P; 4], above: &[P; 4]) {
    let greatest: u64 = P::GREATEST.into();
    let [above_alpha, below_alpha]: [u64; 2] = [above[3].into(), below[3].into()];
    if above_alpha == 0 {
        return;
    }
    if above_alpha == greatest || below_alpha == 0 {
        *below = *above;
        return;
    }
    let weights = [above_alpha * greatest, below_alpha * (greatest - above_alpha)];
    let total = weights[0] + weights[1];
    let rounded =
        |sum: u64, divisor: u64| P::try_from((sum + divisor / 2) / divisor).unwrap_or(P::GREATEST);
    for channel in 0..3 {
        let sum = above[channel].into() * weights[0] + below[channel].into() * weights[1];
        below[channel] = rounded(sum, total);
    }
    below[3] = rounded(total, greatest);
}

/// Collects the frames of an animation as they are shown.
pub(super) struct Frames<'a, P> {
    pub(super) pages: Pages<'a>,
    canvas: Canvas<P>,
    meta: Meta,
}

impl<'a, P: Sample> Frames<'a, P>
where
    Pixels: From<Image<P>>,
{
    /// Checks the canvas's size before allocating it.
    pub(super) fn new(pages: Pages<'a>, (width, height): (u32, u32), meta: Meta) -> Result<Self> {
        pages.check(width.into(), height.into(), 4 * size_of::<P>() as u64)?;
        Ok(Self { pages, canvas: Canvas::new(width as usize, height as usize)?, meta })
    }

    /// Takes the next part of the animation, and its duration in milliseconds.
    pub(super) fn push(&mut self, part: Part, pixels: &[P], delay: f64) -> Result<()> {
        self.canvas.draw(part, pixels)?;
        if !self.pages.wants() {
            self.pages.skip();
            return Ok(());
        }
        let (width, height) = (self.canvas.width as u32, self.canvas.height as u32);
        self.pages.check(width.into(), height.into(), 4 * size_of::<P>() as u64)?;
        let pixels = Pixels::from(image_of(self.canvas.shown()?, width, height, 4)?);
        let meta = self.meta.clone();
        // Only the first frame carries the metadata that a file holds once.
        self.meta.carried.clear();
        self.meta.xmp = None;
        self.pages.push(Picture {
            extras: straight(true),
            delay: Some(delay),
            meta,
            ..Picture::new(pixels)
        });
        Ok(())
    }

    /// All frames. They have the file's channels, and alpha if any pixel is not opaque.
    pub(super) fn finish(
        self,
        channels: usize,
        plays: u32,
        failed: Option<String>,
    ) -> Result<Document> {
        let document = self.pages.finish(Some(plays), failed)?;
        let opaque = document.pages.iter().all(|page| match &page.pixels {
            Pixels::U8(image) => is_opaque(image),
            Pixels::U16(image) => is_opaque(image),
            _ => false,
        });
        if !opaque {
            return Ok(document);
        }
        let kept = if channels < 3 { 1 } else { 3 };
        document.map(|page| {
            let pixels = match &page.pixels {
                Pixels::U8(image) => Pixels::U8(colours(image, kept)?),
                Pixels::U16(image) => Pixels::U16(colours(image, kept)?),
                _ => return Ok(page),
            };
            Ok(Picture { pixels, extras: straight(false), channel_axis: kept > 1, ..page })
        })
    }
}

fn is_opaque<P: Sample>(image: &Image<P>) -> bool {
    image.as_slice().chunks_exact(4).all(|pixel| pixel[3] == P::GREATEST)
}

/// The first channels of RGBA: grey or RGB.
fn colours<P: Sample>(image: &Image<P>, kept: usize) -> Result<Image<P>> {
    let (width, height) = (image.shape().width, image.shape().height);
    let mut values = zeroes::<P>(width * height * kept)?;
    for (to, from) in values.chunks_exact_mut(kept).zip(image.as_slice().chunks_exact(4)) {
        to.copy_from_slice(&from[..kept]);
    }
    image_of(values, width as u32, height as u32, kept)
}

/// Pixels of one to four channels as RGBA.
pub(super) fn as_rgba<P: Sample>(pixels: &[P], channels: usize) -> Result<Vec<P>> {
    let mut rgba = zeroes::<P>(pixels.len() / channels.max(1) * 4)?;
    for (to, from) in rgba.as_chunks_mut::<4>().0.iter_mut().zip(pixels.chunks_exact(channels)) {
        *to = match *from {
            [grey] => [grey, grey, grey, P::GREATEST],
            [grey, alpha] => [grey, grey, grey, alpha],
            [red, green, blue] => [red, green, blue, P::GREATEST],
            [red, green, blue, alpha, ..] => [red, green, blue, alpha],
            [] => *to,
        };
    }
    Ok(rgba)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the formula in f64, for every alpha above and below.
    #[test]
    fn over_is_exact() {
        for above_alpha in 0..=255u8 {
            for below_alpha in (0..=255u8).step_by(5) {
                let above = [255, 200, 3, above_alpha];
                let mut below = [255, 7, 90, below_alpha];
                let [sa, da] = [above_alpha, below_alpha].map(|alpha| f64::from(alpha) / 255.0);
                let alpha = sa + da * (1.0 - sa);
                let expected = [0, 1, 2].map(|channel| {
                    let [s, d] = [above[channel], below[channel]].map(f64::from);
                    (s * sa + d * da * (1.0 - sa)) / alpha
                });
                lay(&mut below, &above);
                assert!((f64::from(below[3]) - alpha * 255.0).abs() <= 0.5 + 1e-9);
                for (channel, expected) in expected.into_iter().enumerate().filter(|_| alpha > 0.0)
                {
                    let found = f64::from(below[channel]);
                    assert!(
                        (found - expected).abs() <= 0.5 + 1e-9,
                        "{above:?}, {below_alpha}: {found} for {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn parts_outside_of_the_canvas_are_cut_off() {
        let mut canvas = Canvas::<u8>::new(3, 2).unwrap();
        for disposal in [Disposal::Restore, Disposal::Clear, Disposal::Keep] {
            for (x, y) in [(2, 1), (3, 2), (usize::MAX, usize::MAX), (0, 0)] {
                let part = Part { x, y, width: 4, height: 3, over: false, disposal };
                canvas.draw(part, &[9; 4 * 3 * 4]).unwrap();
            }
        }
        assert_eq!(canvas.values, [9; 3 * 2 * 4]);
    }
}
