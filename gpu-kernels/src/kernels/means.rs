//! Bytes of means over large windows whose sums are ties: the sums that define them (see `settle.rs`), by all lanes of a warp.
//!
//! Thread mapping: a block for each segment of the list, a warp for each result. A lane makes every 32nd product, TAPS at a time.
//! Order of accumulation: row by row, left to right, each product and each sum rounded. But it is not computed one by one: as long as a sum grows and stays below the next
//! power of two, its steps do not change, and so each product is rounded to a multiple of the same step, whatever comes before it. Those of all lanes are
//! added at once then; sums of such multiples are exact. Where a sum passes a power of two, or a product lies in the middle between two multiples, which the
//! sum before it decides, as many as needed are added one by one.
//! Shared memory: a word for the counter, then each warp's products in f64.
//! Limits: as `settle.rs`; all taps are the same, and positive.

use super::settle::{Place, Segment, Walk, added, each_segment, gathered, goes_longer};
use crate::abi::{Pass, Window};
use crate::device::*;
use crate::pixel::{byte_to_f64, to_byte};
use crate::tile::view::Source;

/// Threads of a block.
pub const BLOCK: (u32, u32) = (32, 8);
/// The least taps of a window for which this is faster than `ties.rs`.
pub const LEAST: i32 = 1024;
/// Products of a lane at a time.
const TAPS: usize = 8;
/// Products of a warp at a time.
const AT_ONCE: i32 = 32 * TAPS as i32;
/// Bytes of shared memory.
pub const SHARED: u32 = 4 * (4 + 2 * AT_ONCE as u32 * BLOCK.1);

kernel! {
    /// Settles the results in the pass's list, of a window whose taps are all `tap`.
    fn settle_means(pass: Pass, window: Window, tap: f64, planes: i32) {
        directive!(".maxnreg 64");
        each_segment(&pass, planes, |segment| settle(&pass, &window, tap, segment))
    }
}

/// Settles the results of a segment.
///
/// # Safety
/// The pass describes allocated memory; the launch has the block shape and the shared memory stated above; the whole block calls.
#[inline(always)]
unsafe fn settle(pass: &Pass, window: &Window, tap: f64, segment: &Segment) {
    let mut number = thread_y() as i64;
    // SAFETY: as the caller promised, and for the warp together.
    unsafe {
        while number < segment.count {
            let place = segment.place(pass, window, number);
            if place.is_there() {
                let sum = defined(pass, window, tap, place);
                if thread_x() == 0 {
                    place.store(pass, to_byte(sum).0);
                }
            }
            number += block_height() as i64;
        }
    }
}

/// The sum that defines a result, in all lanes.
///
/// # Safety
/// As for [`settle`], for the whole warp.
#[inline(always)]
unsafe fn defined(pass: &Pass, window: &Window, tap: f64, place: Place) -> f64 {
    let (shared, lane, plane) = (Shared::dynamic(), thread_x(), &pass.src);
    let products_at = 4 + 2 * AT_ONCE * thread_y();
    let ((left, top), leaves) = place.corner(pass, window);
    let longer = goes_longer(plane, leaves);
    let source = Source::of_channel(plane, pass, place.z);
    let start = source.row_inside(opaque(top)).at(left);
    let count = window.cols * window.rows;
    let mut walk = Walk::new(window, lane, 32);
    // From it on a sum is so much greater than each product that all of them are rounded alike.
    let least = mul_f64(tap, 1024.0);
    let mut sum = 0.0;
    let mut done = opaque(0);
    while done < count {
        let mut at = [(0, 0); TAPS];
        let mut n = 0;
        while n < TAPS {
            at[n] = walk.next(window);
            n += 1;
        }
        let mut products = [0.0; TAPS];
        // SAFETY: pixels are there.
        unsafe {
            if longer {
                products = gathered(&source, at.map(|(c, r)| (left + c, top + r)));
            } else {
                let mut bytes = [0; TAPS];
                n = 0;
                while n < TAPS {
                    let offset = mul_wide(at[n].1, plane.row as i32) + mul_wide(at[n].0, plane.pixel);
                    bytes[n] = load_u8(start.wrapping_add(offset as u64));
                    n += 1;
                }
                n = 0;
                while n < TAPS {
                    products[n] = byte_to_f64(bytes[n]);
                    n += 1;
                }
            }
        }
        n = 0;
        while n < TAPS {
            // Zeros behind the last change no sum.
            let is_there = done + 32 * n as i32 + lane < count;
            products[n] = if is_there { mul_f64(tap, products[n]) } else { 0.0 };
            n += 1;
        }
        // SAFETY: the whole warp is here; the words are its own, and it meets between what a lane stores and what others load.
        unsafe {
            let (next, fits) = together(sum, least, &products);
            if fits {
                sum = next;
            } else {
                n = 0;
                while n < TAPS {
                    shared.store_f64(products_at + 2 * (32 * n as i32 + lane), products[n]);
                    n += 1;
                }
                warp_barrier();
                let mut first = opaque(products_at);
                while first < products_at + 2 * AT_ONCE {
                    let (next, fits) = together(sum, least, &[shared.load_f64(first + 2 * lane)]);
                    sum = if fits { next } else { one_by_one(sum, first) };
                    first = opaque(first + 64);
                }
                warp_barrier();
            }
        }
        done += AT_ONCE;
    }
    sum
}

/// A sum plus the products of all lanes, if it does not matter in which order they are added; and whether that is so.
///
/// # Safety
/// The whole warp calls, all lanes with the same sum.
#[inline(always)]
unsafe fn together<const N: usize>(sum: f64, least: f64, products: &[f64; N]) -> (f64, bool) {
    const EXPONENT: u64 = 0x7ff << 52;
    /// `2^-53`.
    const HALF_STEP: f64 = f64::from_bits((1023 - 53) << 52);
    // The greatest power of two that is not above the sum. Half as much again, added to a product, has it rounded to a multiple of the sum's step.
    let power = if sum >= least { f64::from_bits(sum.to_bits() & EXPONENT) } else { 0.0 };
    let (shift, middle) = (mul_f64(power, 1.5), mul_f64(power, HALF_STEP));
    let (mut part, mut is_middle) = (0.0, false);
    let mut n = 0;
    while n < N {
        let rounded = add_f64(add_f64(products[n], shift), -shift);
        let off = add_f64(products[n], -rounded);
        is_middle |= off == middle || off == -middle;
        part = add_f64(part, rounded);
        n += 1;
    }
    // A product in the middle makes the total infinite.
    let part = if is_middle && power > 0.0 { f64::INFINITY } else { part };
    // SAFETY: as the caller promised.
    let total = unsafe { added(part) };
    let next = add_f64(sum, total);
    (next, if power > 0.0 { next < mul_f64(power, 2.0) } else { total == 0.0 })
}

/// A sum plus 32 products that stand in shared memory from a word on.
///
/// # Safety
/// They do.
#[inline(always)]
unsafe fn one_by_one(mut sum: f64, first: i32) -> f64 {
    // Loaded together, as the additions wait for each other anyway.
    const TOGETHER: usize = 8;
    let mut at = opaque(first);
    while at < first + 64 {
        let mut products = [0.0; TOGETHER];
        let mut n = 0;
        while n < TOGETHER {
            // SAFETY: as the caller promised.
            products[n] = unsafe { Shared::dynamic().load_f64(at + 2 * n as i32) };
            n += 1;
        }
        n = 0;
        while n < TOGETHER {
            sum = add_f64(sum, products[n]);
            n += 1;
        }
        at = opaque(at + 2 * TOGETHER as i32);
    }
    sum
}
