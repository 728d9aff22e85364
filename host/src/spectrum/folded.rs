//! Tiles of complex numbers on a GPU, and how far sums by folded ones may be off: facts of a
//! window, for `host/src/kernels/fourier` and for bounds.

use gpu_kernels::kernels::fourier::{Large, MIDDLE};

use super::Cut;
use crate::Filter;
use crate::filter::Fact;

/// Pixels transformed for each result, from which on large tiles are faster. From an H200.
const LARGE_FROM: f64 = 5.5;

/// The side of the tiles for such a window, on a GPU that has room for large ones: where bytes are
/// made of bytes by tiles of 128, or anywhere.
pub(crate) fn greatest_side(taps: (usize, usize), bytes: bool) -> i32 {
    if TileShape::new(taps, 128, bytes).transformed(taps) >= LARGE_FROM { Large::SIDE } else { 128 }
}

/// The error bound of a sum that makes a byte of bytes, in units in the last place of the greatest
/// pixel: see [`super::units`].
pub(crate) fn units(filter: &Filter) -> f64 {
    let point = f64::from(point(filter));
    if point == 0.0 { units_without(filter, 0.0) } else { units_with(filter, point) }
}

/// The error bound of a sum by folded tiles that makes a byte of bytes, for pixels of at most
/// `greatest`, with this value outside the image.
///
/// Pixels are less by [`MIDDLE`], which makes the roundings of a tile's numbers less (see
/// [`super::units`]), but not by half: those of a picture of 0 and 255 hardly change. A search
/// for bad pictures found 0.6 to 0.95 of the error without, with what is added; of the tile's
/// numbers three quarters are allowed. Roundings of the taps' spectrum stay, as pixels that are
/// aligned with them are 0 or 255, of which either is as far from the middle. What the taps make of
/// the middle is rounded, and so is its sum with the rest; where a byte's sum is greater than 256,
/// it is 255 anyway.
pub(crate) fn folded_error(filter: &Filter, greatest: f64, outside: f64) -> f64 {
    /// Half a unit in the last place of 1.
    const HALF: f64 = f32::EPSILON as f64 / 2.0;
    let point = f64::from(point(filter));
    let is_byte = outside.fract() == 0.0 && (0.0..=255.0).contains(&outside);
    let size = if is_byte { 0.75 * greatest } else { greatest + f64::from(MIDDLE) };
    let (weight, norm, side) = less(filter, point);
    let units = super::units_of([size * weight, greatest * norm], side);
    // A value outside that is no byte is rounded as the middle is taken off.
    let outside = if is_byte { 0.0 } else { size * weight };
    let sums = if point == 0.0 { 1.0 } else { 2.0 };
    HALF * (2.0 * units + outside + f64::from(middle(filter, point as f32).abs()) + sums * 256.5)
}

/// What spectra of bytes leave out: a fact of a filter's view.
pub(crate) struct LeftOut {
    /// The centre tap, where it outweighs all others; else 0.
    pub(crate) point: f32,
    /// What the other taps make of pixels of [`MIDDLE`].
    pub(crate) middle: f32,
}

impl Fact for LeftOut {
    fn of(view: &Filter) -> Self {
        let point = point(view);
        Self { point, middle: middle(view, point) }
    }
}

/// What the taps without the pixel's own, if that is left out, make of pixels of [`MIDDLE`].
fn middle(filter: &Filter, point: f32) -> f32 {
    (f64::from(MIDDLE) * (filter.sum_of_taps() - f64::from(point))) as f32
}

/// The anchor's tap, if spectra for bytes leave it out; else 0.
fn point(filter: &Filter) -> f32 {
    let (taps, (x, y)) = ((filter.cols(), filter.rows()), filter.anchor());
    let is_large = greatest_side(taps, true) == Large::SIDE
        && TileShape::new(taps, Large::SIDE, true).packing == Packing::Folded;
    let point = filter.tap(y, x) as f32;
    // It costs a load for each result.
    let is_worth =
        is_large && 1.5 * units_with(filter, f64::from(point)) < units_without(filter, 0.0);
    if is_worth { point } else { 0.0 }
}

/// [`units`] of a filter less a tap of this size.
fn units_without(filter: &Filter, tap: f64) -> f64 {
    let (weight, norm, side) = less(filter, tap);
    super::units(weight, norm, side)
}

/// `sum |tap|` and `sqrt(sum tap^2)` of a filter less a tap of this size, and the side of the tiles
/// for it.
fn less(filter: &Filter, tap: f64) -> (f64, f64, f64) {
    let side = greatest_side((filter.cols(), filter.rows()), false);
    let norm = (filter.norm().powi(2) - tap * tap).max(0.0).sqrt();
    ((filter.weight() - tap.abs()).max(0.0), norm, f64::from(side))
}

/// The same, and what it takes to add the tap's product: the sum is rounded, half a unit for each
/// 255 of it. Where it is greater than 256, the byte is 255 anyway. What the tap loses as f32 stays
/// in the spectrum.
fn units_with(filter: &Filter, tap: f64) -> f64 {
    const GREATEST: f64 = 256.5 / 255.0;
    units_without(filter, tap) + 0.5 * GREATEST
}

/// What a tile's complex numbers hold: see `gpu-kernels/src/kernels/fourier/mod.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// Pairs of tiles beside each other.
    Beside,
    /// A folded tile.
    Folded,
    /// Pairs of tiles one above the other.
    Stacked,
}

/// Tiles of complex numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TileShape {
    /// Numbers of a line.
    pub(crate) size: i32,
    pub(crate) packing: Packing,
}

impl TileShape {
    /// For a window, to make bytes of bytes, or any other results. Tiles are folded that have room
    /// for the whole window, unless pairs would transform less for its parts.
    pub(crate) fn new(taps: (usize, usize), size: i32, bytes: bool) -> Self {
        let (pairs, folded) =
            (Self { size, packing: Packing::Beside }, Self { size, packing: Packing::Folded });
        let (width, height) = folded.tile();
        let has_room = taps.0 < width as usize && taps.1 < height as usize;
        if bytes && has_room && folded.transformed(taps) <= pairs.transformed(taps) {
            folded
        } else {
            pairs
        }
    }

    /// Columns and rows of a tile.
    pub(crate) fn tile(self) -> (i32, i32) {
        (if self.packing == Packing::Folded { 2 * self.size } else { self.size }, self.size)
    }

    /// How a window is cut into parts.
    pub(crate) fn cut(self, taps: (usize, usize)) -> Cut {
        if self.packing == Packing::Beside { Cut::new(taps, self.tile()) } else { Cut::whole(taps) }
    }

    /// Pixels that are transformed for each result.
    pub(crate) fn transformed(self, (cols, rows): (usize, usize)) -> f64 {
        let ((width, height), (cols, rows)) = (self.tile(), (cols as i32, rows as i32));
        match self.packing {
            Packing::Beside => super::work(cols, width) * super::work(rows, height),
            _ => f64::from(width * height) / f64::from((width + 1 - cols) * (height + 1 - rows)),
        }
    }

    /// Columns and rows of results of a pair of tiles, or of a folded one, for a part of a window.
    pub(crate) fn results(self, cut: &Cut) -> (i32, i32) {
        let (width, height) = self.tile();
        let (across, down) = (width + 1 - cut.cols, height + 1 - cut.rows);
        match self.packing {
            Packing::Beside => (2 * across, down),
            Packing::Folded => (across, down),
            Packing::Stacked => (across, 2 * down),
        }
    }
}
