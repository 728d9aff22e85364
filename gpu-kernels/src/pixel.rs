//! Stored pixels: conversion between a stored value and the f32 that kernels compute with.

pub(crate) use crate::abi::scalar::{F16, F32, U8, U16, bytes};
use crate::abi::{Pass, UncertainList, scalar};
use crate::device::*;

// In this crate, the arm `_` of a match on a stored type stands for f16, or for u16 and f16.
const _: () = assert!(
    scalar::ALL.len() == 4,
    "a stored type was added: it needs an arm in each match on one, here and in tile/view.rs, \
     tile/planar.rs, tile/flat.rs and kernels/fourier/holes.rs"
);

/// Adding it to a number from 0 to 2^23 rounds that number to an integer, ties to even, and leaves
/// the integer in the lowest bits.
const SHIFT: f32 = 8_388_608.0;

/// Reads the value at an address.
///
/// # Safety
/// A value of this type lies there, and nothing writes it while the kernel runs.
#[inline(always)]
pub(crate) unsafe fn load_value(scalar: u32, at: u64) -> f32 {
    // SAFETY: as the caller promised.
    unsafe {
        match scalar {
            F32 => load(at as *const f32, 0),
            U8 => load_u8(at) as f32,
            _ => of_bits(scalar, load_u16(at)),
        }
    }
}

/// The number that the lowest bits of `bits` store.
#[inline(always)]
pub(crate) fn of_bits(scalar: u32, bits: u32) -> f32 {
    match scalar {
        F32 => f32::from_bits(bits),
        U8 => (bits & 0xff) as f32,
        U16 => (bits & 0xffff) as f32,
        _ => half_to_f32(bits),
    }
}

/// The bits above those of an integer, for [`of_byte`] and [`of_half`]. Hidden, so that the
/// assembler keeps them in a register and the selectors in the instructions.
#[inline(always)]
pub(crate) fn high_bits() -> u32 {
    opaque(SHIFT.to_bits() as i32) as u32
}

/// Byte `number` of a word, counted from the lowest, as a number. The byte becomes the lowest bits
/// of 2^23: two instructions at full rate; a conversion has an eighth of that rate.
#[inline(always)]
pub(crate) fn of_byte(word: u32, number: usize, high: u32) -> f32 {
    f32::from_bits(over_shift(word, number, high)) - SHIFT
}

/// The bits of [`SHIFT`] plus byte `number` of a word.
#[inline(always)]
fn over_shift(word: u32, number: usize, high: u32) -> u32 {
    match number {
        0 => permute::<0x7440>(word, high),
        1 => permute::<0x7441>(word, high),
        2 => permute::<0x7442>(word, high),
        _ => permute::<0x7443>(word, high),
    }
}

/// About the middle of all bytes: a byte minus this has at most half the magnitude.
pub const MIDDLE: f32 = 128.0;

/// As [`of_byte`], minus [`MIDDLE`].
#[inline(always)]
pub(crate) fn of_byte_less_middle(word: u32, number: usize, high: u32) -> f32 {
    f32::from_bits(over_shift(word, number, high)) - (SHIFT + MIDDLE)
}

/// The lower (0) or upper (1) half of a word, u16 or f16, as a number; see [`of_byte`].
#[inline(always)]
pub(crate) fn of_half(scalar: u32, word: u32, number: usize, high: u32) -> f32 {
    if scalar == F16 {
        return half_to_f32(if number == 0 { word } else { word >> 16 });
    }
    let shifted =
        if number == 0 { permute::<0x7410>(word, high) } else { permute::<0x7432>(word, high) };
    f32::from_bits(shifted) - SHIFT
}

/// `value` limited to 0 to `greatest`; NaN becomes 0.
#[inline(always)]
fn saturated(value: f32, greatest: f32) -> f32 {
    value.max(0.0).min(greatest)
}

/// As [`saturated`], plus [`SHIFT`].
#[inline(always)]
fn shifted(value: f32, greatest: f32) -> f32 {
    saturated(value, greatest) + SHIFT
}

/// The nearest stored value, as the lowest bits. Integers are rounded, ties to even, and saturated;
/// NaN becomes 0.
#[inline(always)]
pub(crate) fn to_bits(scalar: u32, value: f32) -> u32 {
    match scalar {
        F32 => value.to_bits(),
        U8 => shifted(value, 255.0).to_bits() & 0xff,
        U16 => shifted(value, 65535.0).to_bits() & 0xffff,
        _ => f32_to_half(value),
    }
}

/// The bytes nearest to four values, as a word; and the greatest distance of a saturated value from
/// its byte.
#[inline(always)]
pub(crate) fn to_bytes(values: [f32; 4]) -> (u32, f32) {
    let (mut bits, mut greatest) = ([0; 4], 0.0f32);
    let mut i = 0;
    while i < 4 {
        let clamped = saturated(values[i], 255.0);
        let shifted = clamped + SHIFT;
        bits[i] = shifted.to_bits();
        greatest = greatest.max((clamped - (shifted - SHIFT)).abs());
        i += 1;
    }
    (joined(bits), greatest)
}

/// A word of four bytes, each the lowest of another word.
#[inline(always)]
pub(crate) fn joined(words: [u32; 4]) -> u32 {
    let (low, high) =
        (permute::<0x0040>(words[0], words[1]), permute::<0x0040>(words[2], words[3]));
    permute::<0x5410>(low, high)
}

/// Writes the lowest bits of `bits` as a stored value.
///
/// # Safety
/// The address has room for a value of this type, and no other thread writes it.
#[inline(always)]
pub(crate) unsafe fn store_bits(scalar: u32, at: u64, bits: u32) {
    // SAFETY: as the caller promised.
    unsafe {
        match scalar {
            F32 => store_words(at, [bits]),
            U8 => store_u8(at, bits),
            _ => store_u16(at, bits),
        }
    }
}

/// Whether a sum is so near a half-integer that its error could change the byte.
#[inline(always)]
pub(crate) fn is_uncertain(uncertain: &UncertainList, sum: f32) -> bool {
    to_near_byte(sum).1 >= uncertain.near
}

/// The byte nearest to a number, as the lowest bits of a word, and the distance of the saturated
/// number from it.
#[inline(always)]
pub(crate) fn to_near_byte(value: f32) -> (u32, f32) {
    let clamped = saturated(value, 255.0);
    let shifted = clamped + SHIFT;
    (shifted.to_bits(), (clamped - (shifted - SHIFT)).abs())
}

/// Adds the result at `(x, y)` to the list of uncertain results; `z` is its channel's number on the
/// grid's z axis.
///
/// # Safety
/// The pass has a list.
#[inline(always)]
pub(crate) unsafe fn note(pass: &Pass, x: i32, y: i32, z: i32) {
    let uncertain = &pass.uncertain;
    let segment = UncertainList::segment(x, y);
    // SAFETY: the list has a counter for each segment, and `capacity` places. A place is taken
    // once.
    unsafe {
        let place = atomic_add(uncertain.counter(segment), 1);
        if place < uncertain.capacity {
            store_words(uncertain.place(segment, place), [x as u32, y as u32, z as u32, 0]);
        }
    }
}

/// The byte nearest to a number in f64, ties to even, saturated, NaN as 0; and the distance of the
/// saturated number from it.
#[inline(always)]
pub(crate) fn to_byte(value: f64) -> (u32, f64) {
    to_whole(value, 255.0)
}

/// The nearest stored value of a number in f64, rounded once, as the lowest bits; as [`to_bits`].
#[inline(always)]
pub(crate) fn f64_to_bits(scalar: u32, value: f64) -> u32 {
    match scalar {
        F32 => (value as f32).to_bits(),
        U8 => to_byte(value).0 & 0xff,
        U16 => to_whole(value, 65535.0).0 & 0xffff,
        _ => f32_to_half(to_odd(value)),
    }
}

/// A number rounded to odd: itself if f32 holds it, else the one of its two f32 neighbours whose
/// last bit is 1. Rounding the result to fewer bits equals rounding the number itself.
#[inline(always)]
fn to_odd(value: f64) -> f32 {
    let near = value as f32;
    let (wide, size) = ((near as f64).abs(), value.abs());
    if wide == size || value.is_nan() {
        return near;
    }
    let bits = if wide > size { near.to_bits() - 1 } else { near.to_bits() };
    f32::from_bits(bits | 1)
}

/// The nearest integer from 0 to `greatest`; otherwise as [`to_byte`].
#[inline(always)]
fn to_whole(value: f64, greatest: f64) -> (u32, f64) {
    /// Adding it to a number from 0 to 2^52 rounds that number to an integer, ties to even, in the
    /// lowest bits.
    const SHIFT: f64 = 4_503_599_627_370_496.0;
    let clamped = if value > 0.0 { if value < greatest { value } else { greatest } } else { 0.0 };
    let shifted = clamped + SHIFT;
    let distance = clamped - (shifted - SHIFT);
    (shifted.to_bits() as u32, if distance < 0.0 { -distance } else { distance })
}
