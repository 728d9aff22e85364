//! Linear light: decodes stored values before a filter, and encodes its sums.
//!
//! A kernel for f32 filters planes of light in between. Decoding and encoding are those of
//! `host/src/light/`, with the same bits. Bytes made of bytes are exact: a sum whose error leaves
//! its byte uncertain is noted in the pass's list, and summed again in whole numbers.
//!
//! | kernel | source | destination |
//! | --- | --- | --- |
//! | `light_of_bytes` | bytes | planes of light, where white is 1 |
//! | `light_of_values` | any other type | the same |
//! | `bytes_of_light` | sums over light of bytes | bytes |
//! | `values_of_light` | sums over any light | any type |
//! | `light_exactly` | bytes | the bytes in the list |
//!
//! Where alpha weighs colours, a colour's light is multiplied by its alpha, and a colour's sum
//! divided by alpha's. Then alpha is an image's last channel, number `alpha`; else `alpha` is
//! [`NO_ALPHA`]. The light of bytes keeps alpha from 0 to 255.
//!
//! Thread mapping: a block of 32 x 8 threads, a warp a row, a thread a value; the grid's z axis
//! counts channels. `light_exactly`: a warp a result, its lanes side by side. No epilogue.

use crate::abi::{Pass, Window};
use crate::device::*;
use crate::divisor::floor;
use crate::pixel::{U8, load_value, note, store_bits, to_bits};
use crate::tile::view::{Source, Target};

use super::exactly::TEAM;
use super::resolve::{Pixel, Place, each_result};
use super::weighted::Weights;

/// Threads of a block.
pub const BLOCK: (u32, u32) = (32, 8);
/// Columns and rows of a block's results in a grid that covers them.
pub const TILE: (u32, u32) = (32, 64);
/// Bytes of shared memory for `light_of_bytes`: the light of each byte.
pub const SHARED: u32 = 4 * 256;
/// No channel is alpha.
pub const NO_ALPHA: i32 = -1;
/// White, in whole numbers.
const WHITE: i32 = 1 << 24;

/// A function of a number's magnitude, in parabolas: see `host/src/light/smooth.rs`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Curve {
    /// The address of the parabolas: for each its middle, value, slope and bend, in f32.
    pub parts: u64,
    /// How many there are.
    pub count: i32,
    /// Bits of a number below those that name its parabola.
    pub shift: u32,
    /// The first parabola's name.
    pub first: i32,
    /// Numbers of at most this are told apart.
    pub end: f32,
    /// Below, the function is `slope x + start`.
    pub kink: f32,
    /// See `kink`.
    pub slope: f32,
    /// See `kink`.
    pub start: f32,
    /// Padding.
    pub unused: u32,
}

impl Curve {
    /// The function of a number. NaN and infinities stay what they are.
    ///
    /// # Safety
    /// The parabolas are in memory.
    #[inline(always)]
    unsafe fn of(&self, number: f32) -> f32 {
        let size = number.abs();
        let part = ((size.to_bits() >> self.shift) as i32 - self.first).max(0).min(self.count - 1);
        // SAFETY: as the caller promised.
        let part = unsafe { load_words::<4>(self.parts + 16 * part as u64) }.map(f32::from_bits);
        let [middle, value, slope, bend] = part;
        let t = size.min(self.end) - middle;
        let result = if size < self.kink {
            fma(self.slope, size, self.start)
        } else {
            fma(fma(bend, t, slope), t, value)
        };
        let signed = if number.to_bits() >> 31 != 0 { -result } else { result };
        if size < f32::INFINITY { signed } else { number }
    }
}

/// The thresholds between the light of bytes: see `host/src/light/bytes.rs`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Thresholds {
    /// The address of the places: for each its threshold in f32, then the byte below it and, in the
    /// next eight bits, the byte from it on.
    pub places: u64,
    /// How many there are.
    pub count: i32,
    /// Bits of a number below those that name its place.
    pub shift: u32,
    /// The first place's name.
    pub first: i32,
    /// How far a sum may be off, relative to itself.
    pub relative: f32,
    /// The same in parts of white.
    pub absolute: f32,
    /// Padding.
    pub unused: u32,
}

impl Thresholds {
    /// The number of a sum's place.
    #[inline(always)]
    fn place(&self, sum: f32) -> i32 {
        let name = (sum.max(0.0).to_bits() >> self.shift) as i32 - self.first;
        name.max(0).min(self.count - 1)
    }

    /// The byte of a sum in its place.
    ///
    /// # Safety
    /// The places are in memory.
    #[inline(always)]
    unsafe fn byte(&self, place: i32, sum: f32) -> u32 {
        // SAFETY: as the caller promised.
        let [threshold, bytes] = unsafe { load_words(self.places + 8 * place as u64) };
        (if sum >= f32::from_bits(threshold) { bytes >> 8 } else { bytes }) & 0xff
    }

    /// The byte of a sum, and whether it is certain.
    ///
    /// # Safety
    /// As for [`Thresholds::byte`].
    #[inline(always)]
    unsafe fn near(&self, sum: f32) -> (u32, bool) {
        let least = (1.0 - self.relative) * sum - self.absolute;
        let most = (1.0 + self.relative) * sum + self.absolute;
        let (first, last) = (self.place(least), self.place(most));
        // SAFETY: as the caller promised.
        unsafe {
            let byte = self.byte(first, least);
            // Both have one place nearly always, which is then loaded once.
            let other = if first == last { self.byte(first, most) } else { self.byte(last, most) };
            (byte, byte == other && sum.abs() < f32::INFINITY)
        }
    }
}

kernel! {
    /// Decodes bytes. `light` is the address of the light of each, in f32.
    fn light_of_bytes(pass: Pass, light: u64, alpha: i32) {
        let (tile, thread) = (Shared::dynamic(), 32 * thread_y() + thread_x());
        tile.store(thread, load(light as *const f32, thread as usize));
        barrier();
        decode(&pass, alpha, |at| tile.load(load_u8(at) as i32), |at| load_u8(at) as f32)
    }

    /// Decodes other values, whose white is `white`.
    fn light_of_values(pass: Pass, curve: Curve, white: f32, alpha: i32) {
        let scalar = pass.src.scalar;
        let part = |at| load_value(scalar, at) / white;
        decode(&pass, alpha, |at| curve.of(part(at)), part)
    }

    /// Encodes sums over the light of bytes, and notes those whose byte is uncertain.
    fn bytes_of_light(pass: Pass, thresholds: Thresholds, alpha: i32) {
        let of_alpha = |sum: f32| {
            let least = to_bits(U8, (1.0 - thresholds.relative) * sum);
            let most = to_bits(U8, (1.0 + thresholds.relative) * sum);
            (least, least == most && sum.abs() < f32::INFINITY)
        };
        encode(&pass, alpha, |sum| thresholds.near(sum), of_alpha, |at, byte| store_u8(at, byte))
    }

    /// Encodes sums as values whose white is `white`. Sums of alpha are in units of `unit`.
    fn values_of_light(pass: Pass, curve: Curve, white: f32, unit: f32, alpha: i32) {
        let scalar = pass.dst.scalar;
        let of_light = |sum| (to_bits(scalar, white * curve.of(sum)), true);
        let of_alpha = |sum: f32| (to_bits(scalar, sum * unit), true);
        encode(&pass, alpha, of_light, of_alpha, |at, bits| store_bits(scalar, at, bits))
    }

    /// Stores the bytes in the pass's list, by exact sums. `light` is as for `light_of_bytes`.
    fn light_exactly(pass: Pass, window: Window, weights: Weights, light: u64, thresholds: Thresholds, alpha: i32, planes: i32) {
        let whole = |byte: u32| (load(light as *const f32, byte as usize) * WHITE as f32) as i64;
        each_result(&pass, &window, TEAM, planes, |at, is_there| {
            let role = Role::of(at.result.z, alpha);
            let quotient = if role.is_weighed() {
                let beside = Place::new(&pass, &window, Pixel { z: role.alpha, ..at.result });
                let [sum, below] = weights.sums(at, &window, is_there, |spot| {
                    let alpha = beside.byte_at(spot) as i64;
                    [whole(at.byte_at(spot)) * alpha, alpha]
                });
                floor(sum, below, WHITE)
            } else if role.is_alpha {
                let [sum] = weights.sums(at, &window, is_there, |spot| [at.byte_at(spot) as i64]);
                return weights.divisor.byte((sum >> 64) as i64, sum as u64);
            } else {
                let [sum] = weights.sums(at, &window, is_there, |spot| [whole(at.byte_at(spot))]);
                weights.divisor.floor(sum, WHITE)
            };
            let sum = quotient as f32 / WHITE as f32;
            thresholds.byte(thresholds.place(sum), sum)
        })
    }
}

/// What a channel is.
#[derive(Clone, Copy)]
struct Role {
    /// The number on the z axis of the channel that weighs it: its own, if none does.
    alpha: i32,
    z: i32,
    is_alpha: bool,
}

impl Role {
    /// Of a channel by its number on the z axis.
    #[inline(always)]
    fn of(z: i32, alpha: i32) -> Self {
        if alpha == NO_ALPHA {
            return Self { alpha: z, z, is_alpha: false };
        }
        // `checked`, so that no panic is compiled in.
        let image = (z as u32).checked_div(alpha as u32 + 1).unwrap_or(0) as i32;
        let own = image * (alpha + 1) + alpha;
        Self { alpha: own, z, is_alpha: own == z }
    }

    /// Whether alpha weighs the channel.
    #[inline(always)]
    fn is_weighed(&self) -> bool {
        self.alpha != self.z
    }
}

/// Rows of a thread that are loaded before the first is stored.
pub(super) const BATCH: usize = 4;

/// Decodes this thread's values. `light` and `part` give the light and the alpha of the value at an
/// address.
///
/// # Safety
/// The pass describes allocated memory; its destination has planes of f32.
#[inline(always)]
unsafe fn decode(pass: &Pass, alpha: i32, light: impl Fn(u64) -> f32, part: impl Fn(u64) -> f32) {
    let (source, target) = (Source::new(pass), Target::new(pass));
    let role = Role::of(block_z(), alpha);
    let beside = Source::of_channel(&pass.src, pass, role.alpha);
    // SAFETY: as the caller promised; the values lie in the region.
    unsafe {
        each_batch(pass, |x, rows, count| {
            let (mut values, mut i) = ([0.0; BATCH], 0);
            while i < BATCH {
                let at = source.row_inside(rows[i]).at(x);
                values[i] = if role.is_alpha {
                    part(at)
                } else if role.is_weighed() {
                    light(at) * part(beside.row_inside(rows[i]).at(x))
                } else {
                    light(at)
                };
                i += 1;
            }
            i = 0;
            while i < BATCH {
                if i < count {
                    store(target.at(x, rows[i]) as *mut f32, 0, values[i]);
                }
                i += 1;
            }
        });
    }
}

/// Encodes this thread's sums. `of_light` and `of_alpha` give the bits of a sum of light, and of
/// alpha, and whether they are certain; `put` stores them at an address.
///
/// # Safety
/// The pass describes allocated memory; its source has planes of f32. It has a list if sums may be
/// uncertain.
#[inline(always)]
unsafe fn encode(
    pass: &Pass,
    alpha: i32,
    of_light: impl Fn(f32) -> (u32, bool),
    of_alpha: impl Fn(f32) -> (u32, bool),
    put: impl Fn(u64, u32),
) {
    let (source, target) = (Source::new(pass), Target::new(pass));
    let role = Role::of(block_z(), alpha);
    let beside = Source::of_channel(&pass.src, pass, role.alpha);
    let sum = |source: &Source<'_>, x: i32, y: i32| {
        // SAFETY: as the caller promised; the sum lies in the region.
        unsafe { load(source.row_inside(y).at(x) as *const f32, 0) }
    };
    // SAFETY: as the caller promised.
    unsafe {
        each_batch(pass, |x, rows, count| {
            let (mut sums, mut i) = ([0.0; BATCH], 0);
            while i < BATCH {
                sums[i] = sum(&source, x, rows[i]);
                i += 1;
            }
            let (mut bits, mut open) = ([0; BATCH], 0u32);
            i = 0;
            while i < BATCH {
                let (found, is_certain) = if role.is_alpha {
                    of_alpha(sums[i])
                } else if role.is_weighed() {
                    let below = sum(&beside, x, rows[i]);
                    of_light(if below == 0.0 { 0.0 } else { sums[i] / below })
                } else {
                    of_light(sums[i])
                };
                bits[i] = found;
                open |= ((i < count && !is_certain) as u32) << i;
                i += 1;
            }
            i = 0;
            while i < BATCH {
                if i < count {
                    put(target.at(x, rows[i]), bits[i]);
                }
                i += 1;
            }
            i = 0;
            while open != 0 && i < BATCH {
                if open >> i & 1 != 0 {
                    note(pass, x, rows[i], target.z());
                }
                i += 1;
            }
        });
    }
}

/// Calls `each` with a column and [`BATCH`] of this thread's rows, of which the first so many are
/// there; the others repeat the first.
#[inline(always)]
pub(super) fn each_batch(pass: &Pass, mut each: impl FnMut(i32, [i32; BATCH], usize)) {
    let x = pass.region.x0 + block_x() * block_width() + thread_x();
    let mut y = pass.region.y0 + block_y() * block_height() + thread_y();
    let step = grid_height() * block_height();
    while x < pass.region.x1 && y < pass.region.y1 {
        let (mut rows, mut count, mut i) = ([y; BATCH], 1, 1);
        while i < BATCH {
            let row = y + i as i32 * step;
            if row < pass.region.y1 {
                rows[i] = row;
                count = i + 1;
            }
            i += 1;
        }
        each(x, rows, count);
        y += BATCH as i32 * step;
    }
}
