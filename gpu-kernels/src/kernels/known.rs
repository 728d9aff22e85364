//! Normalised convolution: sums over the pixels that are known.
//!
//! ```text
//! known_weigh      stored values: planes of products with weights, and of weights
//! a kernel for f32: their sums
//! known_results    sums of both: results
//! known_exactly    bytes in the list, by exact sums
//! ```
//!
//! With taps w, weights m and pixels p, a result is `sum(w m p) / (sum(w m) / sum(w))`, or the
//! first sum alone: see `host/src/mask.rs`, which has the rules. Results are those of
//! `host/src/cpu/masked/`, with the same bits. Bytes of bytes under a mask of bytes are exact.
//!
//! Thread mapping: a block of 32 x 8 threads, a warp a row, a thread a value; the grid's z axis
//! counts the channels of all images. `known_exactly`: a warp a result. No epilogue.

use crate::abi::{Pass, Plane, Window};
use crate::border;
use crate::device::*;
use crate::divisor::ratio;
use crate::pixel::{U8, load_value, note, store_bits, to_bits};

use super::exactly::{Spot, TEAM};
use super::light::{BATCH, each_batch};
use super::resolve::{Pixel, Place, each_result};
use super::weighted::Weights;

/// How sums become results, as in [`Known::rule`]: `sum(w m p) / (sum(w m) / sum(w))`, where no tap
/// is negative.
pub const AVERAGE: u32 = 0;
/// The same, where some are: the divisor may cancel.
pub const QUOTIENT: u32 = 1;
/// `sum(w m p)`.
pub const SUM: u32 = 2;

/// Where a divisor is at most this part of `sum(|w| m)`, it has cancelled.
const CANCELLED: f32 = 1e-6;

/// Of bytes, sums of weights of at most this part of the taps' sum are summed exactly.
const LITTLE: f32 = 1.0 / 64.0;

/// The weight of a byte of a mask that is known.
const WHOLE: i64 = 255;

/// What is known of an image, and how its sums become results.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The mask, or [`Plane::NONE`], as the other planes here.
    pub mask: Plane,
    /// The planes of weights.
    pub weights: Plane,
    /// The planes of their sums, if they are needed.
    pub below: Plane,
    /// Where the sums of weights go, in f32, if they are asked for.
    pub to_weights: Plane,
    /// Where bytes go that are 255 for results with known pixels, and 0 for others; likewise.
    pub to_known: Plane,
    /// The address of all taps, row by row, in f32; 0 if no tap is negative.
    pub taps: u64,
    /// Channels of an image.
    pub channels: i32,
    /// Channels of the mask: 1, or those of the image.
    pub of_mask: i32,
    /// Planes of weights of an image: 1, or its channels.
    pub of_weights: i32,
    /// Whether pixels that are NaN are unknown.
    pub is_nan: u32,
    /// Whether known pixels are copied.
    pub keeps: u32,
    /// [`AVERAGE`], [`QUOTIENT`] or [`SUM`].
    pub rule: u32,
    /// The sum of the taps.
    pub ones: f32,
    /// The result where no pixel is known.
    pub unknown: f32,
    /// The weight of what lies outside the image where the border finds no pixel.
    pub outside: f32,
    /// A greater sum of weights, in magnitude, has not cancelled.
    pub sure: f32,
    /// How far sums may be off, relative to themselves, where bytes are exact.
    pub relative: f32,
    /// The same, relative to the greatest value.
    pub absolute: f32,
}

kernel! {
    /// Multiplies stored values with their weights.
    fn known_weigh(pass: Pass, known: Known) {
        let at = Channel::of(block_z(), &known);
        let origin = |plane: &Plane| at.origin(plane, at.channel, known.channels);
        let (source, target) = (origin(&pass.src), origin(&pass.dst));
        let writes_weight = at.channel < known.of_weights;
        each_batch(&pass, |x, rows, count| {
            let (mut values, mut weights, mut i) = ([0.0; BATCH], [0.0; BATCH], 0);
            while i < BATCH {
                values[i] = load_value(pass.src.scalar, place(&pass.src, source, x, rows[i]));
                weights[i] = known.mask_at(at, x, rows[i]);
                i += 1;
            }
            i = 0;
            while i < BATCH {
                if i < count {
                    let weight = known.weight(values[i], weights[i]);
                    let product = if weight == 0.0 { 0.0 } else { values[i] * weight };
                    store(place(&pass.dst, target, x, rows[i]) as *mut f32, 0, product);
                    if writes_weight {
                        let to = at.origin(&known.weights, at.channel, known.of_weights);
                        store(place(&known.weights, to, x, rows[i]) as *mut f32, 0, weight);
                    }
                }
                i += 1;
            }
        })
    }

    /// Makes results of sums. `sums` are those of products.
    fn known_results(pass: Pass, window: Window, known: Known, sums: Plane) {
        each_value(&pass, &window, &known, &sums, false, |sum, below| {
            (to_bits(pass.dst.scalar, known.quotient(sum, below)), true)
        })
    }

    /// As `known_results`, for bytes made of bytes: notes those that are uncertain.
    fn known_bytes(pass: Pass, window: Window, known: Known, sums: Plane) {
        // Whether an exact divisor is 0, its sum in f32 does not say.
        let always = known.rule == QUOTIENT;
        each_value(&pass, &window, &known, &sums, always, |sum, below| {
            let (value, error) = known.near(sum, below);
            let (least, most) = (to_bits(U8, value - error), to_bits(U8, value + error));
            (least, least == most && error < f32::INFINITY)
        })
    }

    /// Stores the bytes in the pass's list, by exact sums.
    fn known_exactly(pass: Pass, window: Window, weights: Weights, known: Known, planes: i32) {
        each_result(&pass, &window, TEAM, planes, |at, is_there| {
            let channel = Channel::of(at.result.z, &known);
            let mask = |spot: Spot| known.byte_at(channel, spot);
            let [some, all] = known.seen(at, &window, is_there, mask);
            let Pixel { x, y, .. } = at.result;
            if known.keeps != 0 && is_there && known.mask_at(channel, x, y) != 0.0 {
                let source = channel.origin(&pass.src, channel.channel, known.channels);
                return load_u8(place(&pass.src, source, x, y));
            }
            if all {
                let [sum] = weights.sums(at, &window, is_there, |spot| [at.byte_at(spot) as i64]);
                return weights.divisor.byte((sum >> 64) as i64, sum as u64);
            }
            let [sum, below] = weights.sums(at, &window, is_there, |spot| {
                let weight = mask(spot);
                [at.byte_at(spot) as i64 * weight, weight]
            });
            if known.rule == SUM {
                let byte = weights.divisor.byte_of_parts(sum, WHOLE as i128);
                return if some { byte } else { to_bits(U8, known.unknown) };
            }
            if below == 0 { to_bits(U8, known.unknown) } else { ratio(sum, below) }
        })
    }
}

/// A channel of an image.
#[derive(Clone, Copy)]
struct Channel {
    image: i32,
    channel: i32,
}

impl Channel {
    /// By its number on the z axis.
    #[inline(always)]
    fn of(z: i32, known: &Known) -> Self {
        // `checked`, so that no panic is compiled in.
        let image = (z as u32).checked_div(known.channels as u32).unwrap_or(0) as i32;
        Self { image, channel: z - image * known.channels }
    }
}

impl Channel {
    /// The address of column 0 of row 0 of a channel of this image, in a plane with so many
    /// channels.
    #[inline(always)]
    fn origin(&self, plane: &Plane, channel: i32, channels: i32) -> u64 {
        let image = self.image as i64 * plane.image(channels as u32);
        plane.base.wrapping_add((image + channel as i64 * plane.channel) as u64)
    }
}

/// The address of a pixel of a channel that begins at `origin`.
#[inline(always)]
fn place(plane: &Plane, origin: u64, x: i32, y: i32) -> u64 {
    origin.wrapping_add((y as i64 * plane.row + mul_wide(x, plane.pixel)) as u64)
}

impl Known {
    /// The address of the mask for a channel's pixel.
    #[inline(always)]
    fn at_mask(&self, at: Channel, x: i32, y: i32) -> u64 {
        let channel = if self.of_mask > 1 { at.channel } else { 0 };
        place(&self.mask, at.origin(&self.mask, channel, self.of_mask), x, y)
    }

    /// The mask's weight of a channel's pixel.
    ///
    /// # Safety
    /// The mask has the pixel.
    #[inline(always)]
    unsafe fn mask_at(&self, at: Channel, x: i32, y: i32) -> f32 {
        if !self.mask.is_there() {
            return 1.0;
        }
        // SAFETY: as the caller promised.
        let weight = unsafe { load_value(self.mask.scalar, self.at_mask(at, x, y)) };
        if self.mask.scalar == U8 { weight / WHOLE as f32 } else { weight }
    }

    /// The weight of a pixel with this value.
    #[inline(always)]
    fn weight(&self, value: f32, weight: f32) -> f32 {
        if self.is_nan != 0 && value.is_nan() { 0.0 } else { weight }
    }

    /// The mask's byte at a spot.
    ///
    /// # Safety
    /// The mask is of bytes, and has the rows of the source.
    #[inline(always)]
    unsafe fn byte_at(&self, at: Channel, spot: Spot) -> i64 {
        if !spot.is_inside() {
            return if self.outside == 0.0 { 0 } else { WHOLE };
        }
        if !self.mask.is_there() {
            return WHOLE;
        }
        // SAFETY: as the caller promised.
        unsafe { load_u8(self.at_mask(at, spot.x, spot.y)) as i64 }
    }

    /// Whether a pixel under a tap that is not 0 is known, and whether all pixels under the window
    /// are; for all lanes of a warp. `mask` gives the mask's byte.
    ///
    /// # Safety
    /// The whole warp calls this. If `is_there`, the pixels are in memory.
    #[inline(always)]
    unsafe fn seen(
        &self,
        at: &Place<'_>,
        window: &Window,
        is_there: bool,
        mask: impl Fn(Spot) -> i64,
    ) -> [bool; 2] {
        let (mut some, mut all, mut row) = (false, true, opaque(0));
        while is_there && row < window.rows {
            let mut col = thread_x();
            while col < window.cols {
                let byte = mask(at.spot(row, col));
                all &= byte == WHOLE;
                // SAFETY: as the caller promised.
                some |= byte != 0 && unsafe { self.tap(row * window.cols + col) } != 0.0;
                col += 32;
            }
            row += 1;
        }
        // SAFETY: as the caller promised.
        unsafe { [ballot(some) != 0, ballot(!all) == 0] }
    }

    /// A tap; 1 where they are not needed.
    ///
    /// # Safety
    /// There is such a tap.
    #[inline(always)]
    unsafe fn tap(&self, number: i32) -> f32 {
        // SAFETY: as the caller promised.
        if self.taps == 0 { 1.0 } else { unsafe { load(self.taps as *const f32, number as usize) } }
    }

    /// A result with known pixels.
    #[inline(always)]
    fn quotient(&self, sum: f32, below: f32) -> f32 {
        if self.rule == SUM { sum } else { sum / (below / self.ones) }
    }

    /// A byte before it is rounded, and how far the exact one may be from it.
    #[inline(always)]
    fn near(&self, sum: f32, below: f32) -> (f32, f32) {
        let error = self.relative * sum.abs() + self.absolute * WHOLE as f32;
        if self.rule == SUM {
            return (sum, error);
        }
        let (value, of_below) = (sum / below, self.relative * below.abs() + self.absolute);
        if below.abs() <= LITTLE * self.ones.abs() + 2.0 * of_below {
            return (value, f32::INFINITY);
        }
        // The quotient, its roundings, and that of exact sums where the taps do not sum to 1.
        let rounded = 4.0 * f32::EPSILON + (self.ones - 1.0).abs();
        let of_quotient = (error + value.abs() * of_below) / (below.abs() - of_below);
        (value, of_quotient + value.abs() * rounded)
    }

    /// Whether a result has known pixels: whether its divisor, the sum `below`, has not cancelled;
    /// or of sums alone, whether a pixel under a tap that is not 0 is known.
    ///
    /// # Safety
    /// The pass describes allocated memory, with planes of weights; `(x, y)` is in its region.
    #[inline(always)]
    unsafe fn has_known(
        &self,
        pass: &Pass,
        window: &Window,
        origin: u64,
        (x, y): (i32, i32),
        below: f32,
    ) -> bool {
        if self.rule == AVERAGE {
            return below != 0.0;
        }
        if self.rule == QUOTIENT && below.abs() > self.sure {
            return true;
        }
        let (mut sum, mut row) = (0.0, opaque(0));
        while row < window.rows {
            let source_row = border::resolve(pass.border, y - window.anchor_y + row, pass.height);
            let mut col = opaque(0);
            while col < window.cols {
                let at = border::resolve(pass.border, x - window.anchor_x + col, pass.width);
                // SAFETY: as the caller promised.
                unsafe {
                    let weight = if source_row < 0 || at < 0 {
                        self.outside
                    } else {
                        load(place(&self.weights, origin, at, source_row) as *const f32, 0)
                    };
                    let tap = self.tap(row * window.cols + col);
                    if self.rule == SUM && weight != 0.0 && tap != 0.0 {
                        return true;
                    }
                    sum = fma(tap.abs(), weight, sum);
                }
                col = opaque(col + 1);
            }
            row = opaque(row + 1);
        }
        self.rule == QUOTIENT && below.abs() > CANCELLED * sum
    }
}

/// Computes this thread's results. `bits` gives those of a result with known pixels, or of any if
/// `always`, and whether they are certain, from its sum and the sum of weights.
///
/// # Safety
/// The pass describes allocated memory, and so do the planes. It has a list if results may be
/// uncertain.
#[inline(always)]
unsafe fn each_value(
    pass: &Pass,
    window: &Window,
    known: &Known,
    sums: &Plane,
    always: bool,
    bits: impl Fn(f32, f32) -> (u32, bool),
) {
    let at = Channel::of(block_z(), known);
    let of_weight = if known.of_weights > 1 { at.channel } else { 0 };
    let origin = |plane: &Plane| at.origin(plane, at.channel, known.channels);
    let (source, target, of_sums) = (origin(&pass.src), origin(&pass.dst), origin(sums));
    let below = at.origin(&known.below, of_weight, known.of_weights);
    let weights = at.origin(&known.weights, of_weight, known.of_weights);
    let at_weight = |x: i32, y: i32| place(&known.weights, weights, x, y);
    let (to_weights, to_known) = (origin(&known.to_weights), origin(&known.to_known));
    let scalar = pass.dst.scalar;
    // SAFETY: as the caller promised.
    unsafe {
        each_batch(pass, |x, rows, count| {
            let (mut values, mut divisors, mut i) = ([0.0; BATCH], [0.0; BATCH], 0);
            while i < BATCH {
                values[i] = load(place(sums, of_sums, x, rows[i]) as *const f32, 0);
                if known.below.is_there() {
                    divisors[i] = load(place(&known.below, below, x, rows[i]) as *const f32, 0);
                }
                i += 1;
            }
            i = 0;
            while i < BATCH {
                let (y, below) = (rows[i], divisors[i]);
                if i < count {
                    let mut is_known = known.has_known(pass, window, weights, (x, y), below);
                    let (mut result, mut is_certain) = (to_bits(scalar, known.unknown), true);
                    if known.keeps != 0 && load(at_weight(x, y) as *const f32, 0) != 0.0 {
                        let value = load_value(pass.src.scalar, place(&pass.src, source, x, y));
                        (result, is_known) = (to_bits(scalar, value), true);
                    } else if is_known || always {
                        (result, is_certain) = bits(values[i], below);
                    }
                    store_bits(scalar, place(&pass.dst, target, x, y), result);
                    if !is_certain {
                        note(pass, x, y, block_z());
                    }
                    if known.to_weights.is_there() {
                        let to = place(&known.to_weights, to_weights, x, y);
                        store(to as *mut f32, 0, below);
                    }
                    if known.to_known.is_there() {
                        let byte = if is_known { WHOLE as u32 } else { 0 };
                        store_u8(place(&known.to_known, to_known, x, y), byte);
                    }
                }
                i += 1;
            }
        });
    }
}
