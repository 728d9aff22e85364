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
use crate::pixel::{U8, load_value, note, to_bits};
use crate::tile::view::{Source, Target};

use super::resolve::{OUTSIDE, Pixel, Place, Team, each_result, exchanged};
use super::weighted::{Weights, load_i64};

/// Threads of a block.
pub const BLOCK: (u32, u32) = (32, 8);
/// Columns and rows of a block's results in a grid that covers them.
pub const TILE: (u32, u32) = (32, 64);
/// Bytes of shared memory for `light_of_bytes`: the light of each byte.
pub const SHARED: u32 = 4 * 256;
/// No channel is alpha.
pub const NO_ALPHA: i32 = -1;
/// The threads that share a result of `light_exactly`: a warp.
pub const TEAM: Team = Team { lanes: 5, across: 32, down: 1, is_block: 0 };
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
    /// The byte of a sum that is not NaN.
    ///
    /// # Safety
    /// The places are in memory.
    #[inline(always)]
    unsafe fn byte(&self, sum: f32) -> u32 {
        let name = (sum.max(0.0).to_bits() >> self.shift) as i32 - self.first;
        let place = name.max(0).min(self.count - 1);
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
        // SAFETY: as the caller promised.
        unsafe {
            let least = self.byte((1.0 - self.relative) * sum - self.absolute);
            let most = self.byte((1.0 + self.relative) * sum + self.absolute);
            (least, least == most && sum.abs() < f32::INFINITY)
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
        encode(&pass, alpha, |target, (x, y), sum| {
            let (byte, is_certain) = match sum {
                Sum::Light(sum) => thresholds.near(sum),
                Sum::Alpha(sum) => {
                    let least = to_bits(U8, (1.0 - thresholds.relative) * sum);
                    let most = to_bits(U8, (1.0 + thresholds.relative) * sum);
                    (least, least == most && sum.abs() < f32::INFINITY)
                }
            };
            store_u8(target.at(x, y), byte);
            if !is_certain {
                note(&pass, x, y, target.z());
            }
        })
    }

    /// Encodes sums as values whose white is `white`. Sums of alpha are in units of `unit`.
    fn values_of_light(pass: Pass, curve: Curve, white: f32, unit: f32, alpha: i32) {
        encode(&pass, alpha, |target, (x, y), sum| {
            let value = match sum {
                Sum::Light(sum) => white * curve.of(sum),
                Sum::Alpha(sum) => sum * unit,
            };
            target.write_plain(x, y, value)
        })
    }

    /// Stores the bytes in the pass's list, by exact sums. `light` is as for `light_of_bytes`.
    fn light_exactly(pass: Pass, window: Window, weights: Weights, light: u64, thresholds: Thresholds, alpha: i32, planes: i32) {
        each_result(&pass, &window, TEAM, planes, |at, is_there| {
            let role = Role::of(at.result.z, alpha);
            let beside = Place::new(&pass, &window, Pixel { z: role.alpha, ..at.result });
            let whole = |byte: u32| (load(light as *const f32, byte as usize) * WHITE as f32) as i64;
            let is_colour = !role.is_alpha;
            let sums = added(if is_there {
                weights.sums(at, &window, |row, column| {
                    let byte = at.byte(row, column);
                    let alpha = if role.is_weighed() { beside.byte(row, column) as i64 } else { 1 };
                    [if is_colour { whole(byte) * alpha } else { byte as i64 }, alpha]
                })
            } else {
                [0; 2]
            });
            let quotient = if role.is_weighed() {
                floor(sums[0], sums[1], WHITE)
            } else if is_colour {
                weights.divisor.floor(sums[0], WHITE)
            } else {
                return weights.divisor.byte((sums[0] >> 64) as i64, sums[0] as u64);
            };
            thresholds.byte(quotient as f32 / WHITE as f32)
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
    let x = pass.region.x0 + block_x() * block_width() + thread_x();
    let mut y = pass.region.y0 + block_y() * block_height() + thread_y();
    // SAFETY: as the caller promised; the value lies in the region.
    unsafe {
        while x < pass.region.x1 && y < pass.region.y1 {
            let at = source.row_inside(y).at(x);
            let value = if role.is_alpha {
                part(at)
            } else if role.is_weighed() {
                light(at) * part(beside.row_inside(y).at(x))
            } else {
                light(at)
            };
            store(target.at(x, y) as *mut f32, 0, value);
            y += grid_height() * block_height();
        }
    }
}

/// A sum that is to be encoded.
enum Sum {
    /// Of light, over alpha's if that weighs it.
    Light(f32),
    Alpha(f32),
}

/// Calls `put` for this thread's sums.
///
/// # Safety
/// The pass describes allocated memory; its source has planes of f32.
#[inline(always)]
unsafe fn encode(pass: &Pass, alpha: i32, put: impl Fn(&Target<'_>, (i32, i32), Sum)) {
    let (source, target) = (Source::new(pass), Target::new(pass));
    let role = Role::of(block_z(), alpha);
    let beside = Source::of_channel(&pass.src, pass, role.alpha);
    let x = pass.region.x0 + block_x() * block_width() + thread_x();
    let mut y = pass.region.y0 + block_y() * block_height() + thread_y();
    // SAFETY: as the caller promised; the sum lies in the region.
    unsafe {
        while x < pass.region.x1 && y < pass.region.y1 {
            let value = load(source.row_inside(y).at(x) as *const f32, 0);
            let sum = if role.is_alpha {
                Sum::Alpha(value)
            } else if role.is_weighed() {
                let below = load(beside.row_inside(y).at(x) as *const f32, 0);
                Sum::Light(if below == 0.0 { 0.0 } else { value / below })
            } else {
                Sum::Light(value)
            };
            put(&target, (x, y), sum);
            y += grid_height() * block_height();
        }
    }
}

impl Weights {
    /// This lane's part of the sums of whole taps times two numbers of each pixel, below 2^32.
    /// `numbers` gives them by the byte offsets of a row and a column.
    ///
    /// # Safety
    /// The taps and the pixels are in memory.
    #[inline(always)]
    unsafe fn sums(
        &self,
        at: &Place<'_>,
        window: &Window,
        numbers: impl Fn(i64, i64) -> [i64; 2],
    ) -> [i128; 2] {
        let mut sums = [0; 2];
        // SAFETY: as the caller promised.
        unsafe {
            let (mut term, mut column_taps) = (opaque(0), self.taps);
            while term < self.terms {
                let rows_taps = column_taps.wrapping_add(mul_wide(window.rows, 8) as u64);
                let mut col = thread_x();
                while col < window.cols {
                    let across = rows_taps.wrapping_add(mul_wide(col, 8) as u64);
                    // Of the upper and the lower 16 bits of each number: below 2^61.
                    let mut halves = [[0i64; 2]; 2];
                    let mut row = opaque(0);
                    while row < window.rows {
                        let tap = load_i64(if self.row == 0 {
                            column_taps.wrapping_add(mul_wide(row, 8) as u64)
                        } else {
                            across.wrapping_add((8 * mul_wide(row, self.row)) as u64)
                        });
                        let numbers = at.numbers((row, col), &numbers);
                        let mut n = 0;
                        while n < 2 {
                            halves[n][0] += tap * (numbers[n] >> 16);
                            halves[n][1] += tap * (numbers[n] & 0xffff);
                            n += 1;
                        }
                        row += 1;
                    }
                    let factor = if self.row == 0 { load_i64(across) } else { 1 };
                    let mut n = 0;
                    while n < 2 {
                        let sum = ((halves[n][0] as i128) << 16) + halves[n][1] as i128;
                        sums[n] += factor as i128 * sum;
                        n += 1;
                    }
                    col += 32;
                }
                column_taps = column_taps.wrapping_add(self.apart as u64);
                term = opaque(term + 1);
            }
            let point = (self.point[1] as i128) << 64 | self.point[0] as i128;
            if point != 0 && thread_x() == 0 {
                let numbers = at.numbers((window.rows >> 1, window.cols >> 1), &numbers);
                let mut n = 0;
                while n < 2 {
                    sums[n] += point * numbers[n] as i128;
                    n += 1;
                }
            }
        }
        sums
    }
}

impl Place<'_> {
    /// What `numbers` gives for the pixel under a tap.
    #[inline(always)]
    fn numbers(&self, (row, col): (i32, i32), numbers: &impl Fn(i64, i64) -> [i64; 2]) -> [i64; 2] {
        let (row, is_there) = self.row(self.top + row);
        numbers(row, if is_there { self.column(self.left + col) } else { OUTSIDE })
    }
}

/// The sums of a warp's parts, for all of its lanes.
///
/// # Safety
/// The whole warp calls this.
#[inline(always)]
unsafe fn added(mut sums: [i128; 2]) -> [i128; 2] {
    let mut apart = opaque(16);
    while apart > 0 {
        let mut n = 0;
        while n < 2 {
            // SAFETY: as the caller promised.
            let (high, low) = unsafe {
                (
                    exchanged((sums[n] >> 64) as i64, apart as u32),
                    exchanged(sums[n] as i64, apart as u32),
                )
            };
            sums[n] += (high as i128) << 64 | low as u64 as i128;
            n += 1;
        }
        apart >>= 1;
    }
    sums
}
