//! Bytes whose f32 sum does not decide them: their sums in f64, which do.
//!
//! The byte is the integer nearest to the sum in f64, half to even, saturated; each product and each sum rounded to f64, row
//! by row, left to right (`host/src/round` defines it, and computes the same on the CPU).
//!
//! Thread mapping: a block for each segment of the list. If the window is small, a thread computes a result; else a warp does:
//! each lane sums every 32nd column if the window is a product of a row and a column, else every 32nd tap; then their sums are added.
//! That order is another one, so where it could change the byte (at ties), lane 0 computes the sum again in the order that defines
//! it. A segment whose places did not suffice has
//! all its pixels computed. At the end its counter is zero again.
//! Shared memory: a word for the counter, then, for each warp, 32 numbers of 64 bits.
//! Limits: source and destination are bytes; no epilogue.

use crate::abi::{Doubts, Pass, Window};
use crate::border;
use crate::device::*;
use crate::pixel::{U8, store_bits, to_byte};
use crate::tile::view::{Source, Target};

/// Threads of a block.
pub const BLOCK: (u32, u32) = (32, 4);
/// Bytes of shared memory.
pub const SHARED: u32 = 8 + 8 * BLOCK.0 * BLOCK.1;
/// The most taps for which a thread computes a result by itself.
const ALONE: i32 = 81;

kernel! {
    /// Settles the results in the pass's list. `taps` are the address of the window's taps in f64, row by row; `row` and `column` those
    /// of the factors whose product they are, or 0; `reordering` is how far apart f64 sums in two orders can be.
    fn settle(pass: Pass, window: Window, taps: u64, row: u64, column: u64, reordering: f64, planes: i32) {
        directive!(".maxnreg 64");
        segments(&pass, &window, Exact::new(taps, (row, column), reordering, &window), planes)
    }
}

/// What the sums are made of.
#[derive(Clone, Copy)]
struct Exact {
    taps: u64,
    row: u64,
    column: u64,
    reordering: f64,
    /// Where in the window a lane's first tap is, and how far from one tap to its next: columns, and rows.
    first: (i32, i32),
    step: (i32, i32),
}

impl Exact {
    #[inline(always)]
    fn new(taps: u64, (row, column): (u64, u64), reordering: f64, window: &Window) -> Self {
        // `checked`, so that no panic is compiled in; a window has columns.
        let divided = |count: i32| {
            let rows = count.checked_div(window.cols).unwrap_or(0);
            (count - rows * window.cols, rows)
        };
        Self { taps, row, column, reordering, first: divided(thread_x()), step: divided(32) }
    }
}

/// A pixel of a channel.
#[derive(Clone, Copy)]
struct Place {
    x: i32,
    y: i32,
    z: i32,
}

/// Goes through the segments of this block.
///
/// # Safety
/// The pass has a list and describes allocated memory; the launch has the block shape and the shared memory stated above.
#[inline(always)]
unsafe fn segments(pass: &Pass, window: &Window, exact: Exact, planes: i32) {
    let shared = Shared::dynamic();
    // Whether each thread takes a result, or each warp; so many take turns.
    let alone = window.cols * window.rows <= ALONE;
    let turns = if alone { 32 * block_height() } else { block_height() };
    let turn = if alone { 32 * thread_y() + thread_x() } else { thread_y() };
    let mut segment = block_x();
    while segment < Doubts::SEGMENTS {
        // SAFETY: the list has this segment; all threads of the block meet at each barrier.
        unsafe {
            let counter = pass.doubts.counter(segment);
            if thread_x() == 0 && thread_y() == 0 {
                shared.store(0, f32::from_bits(reload_word(counter)));
            }
            barrier();
            let count = shared.load_word(0);
            if count <= pass.doubts.capacity {
                let mut i = turn as u32;
                let mut next = noted(&pass.doubts, segment, i, count);
                while i < count {
                    let place = next;
                    i += turns as u32;
                    next = noted(&pass.doubts, segment, i, count);
                    settle_one(pass, window, exact, place, alone);
                }
            } else {
                all(pass, window, exact, segment, planes, (turn, turns), alone);
            }
            barrier();
            if count != 0 && thread_x() == 0 && thread_y() == 0 {
                store_words(counter, [0]);
            }
        }
        segment += grid_width();
    }
}

/// Number `i` of the places in a segment, if it has so many.
///
/// # Safety
/// The list has this segment.
#[inline(always)]
unsafe fn noted(doubts: &Doubts, segment: i32, i: u32, count: u32) -> Place {
    if i >= count {
        return Place { x: 0, y: 0, z: 0 };
    }
    let at = doubts.place(segment, i);
    // SAFETY: the place is one of the list's.
    unsafe { Place { x: reload_word(at) as i32, y: reload_word(at + 4) as i32, z: reload_word(at + 8) as i32 } }
}

/// Settles all results of a segment, every `turns`th row of quads by the same threads.
///
/// # Safety
/// As for [`segments`].
#[inline(always)]
unsafe fn all(
    pass: &Pass,
    window: &Window,
    exact: Exact,
    segment: i32,
    planes: i32,
    (turn, turns): (i32, i32),
    alone: bool,
) {
    let region = &pass.region;
    let mut z = opaque(0);
    while z < planes {
        let mut y = region.y0 + turn;
        while y < region.y1 {
            let first = region.x0 >> 2;
            let behind = Doubts::segment(4 * first, y);
            let mut quad = first + ((segment - behind) & (Doubts::SEGMENTS - 1));
            while 4 * quad < region.x1 {
                let mut i = opaque(0);
                while i < 4 {
                    let x = 4 * quad + i;
                    if x >= region.x0 && x < region.x1 {
                        // SAFETY: as the caller promised.
                        unsafe { settle_one(pass, window, exact, Place { x, y, z }, alone) };
                    }
                    i += 1;
                }
                quad += Doubts::SEGMENTS;
            }
            y += turns;
        }
        z += 1;
    }
}

/// Computes and stores one result: by this thread, or by its whole warp.
///
/// # Safety
/// As for [`segments`]; if not alone, the whole warp calls for the same place.
#[inline(always)]
unsafe fn settle_one(pass: &Pass, window: &Window, exact: Exact, place: Place, alone: bool) {
    let Place { x, y, z } = place;
    let (left, top) = (x - window.anchor_x, y - window.anchor_y);
    let leaves = border::leaves(left, window.cols, pass.width) || border::leaves(top, window.rows, pass.height);
    // What KEEP copies is no sum.
    if leaves && pass.border == border::KEEP {
        return;
    }
    let source = Source::of_channel(&pass.src, pass, z);
    // SAFETY: as the caller promised.
    unsafe {
        if !alone {
            let part = if exact.row != 0 {
                by_columns(&source, window, exact, (left, top), leaves)
            } else {
                by_taps(&source, window, exact, (left, top), leaves)
            };
            let estimate = added(part);
            if thread_x() != 0 {
                return;
            }
            let (byte, distance) = to_byte(estimate);
            // A NaN may come from the other order alone.
            if distance < 0.5 - exact.reordering && !estimate.is_nan() {
                store(pass, place, byte);
                return;
            }
        }
        let mut sum = 0.0;
        let mut r = opaque(0);
        while r < window.rows {
            let row = source.row(top + r);
            let mut c = opaque(0);
            while c < window.cols {
                let tap = load_f64(exact.taps + 8 * (r * window.cols + c) as u64);
                sum = add_f64(sum, mul_f64(tap, row.pixel(left + c) as f64));
                c += 1;
            }
            r += 1;
        }
        store(pass, place, to_byte(sum).0);
    }
}

/// The lane's part of the sum: every 32nd column, each times its factor; `leaves` says whether the window leaves the image.
///
/// # Safety
/// As for [`settle_one`]; the window is a product of a row and a column.
#[inline(always)]
unsafe fn by_columns(source: &Source<'_>, window: &Window, exact: Exact, (left, top): (i32, i32), leaves: bool) -> f64 {
    // So many loads are under way at once: each is likely to go to memory.
    const AT_ONCE: usize = 18;
    let below = source.pass.src.row;
    let start = source.row_inside(opaque(top));
    let mut sum = 0.0;
    let mut c = opaque(thread_x());
    while c < window.cols {
        let first = start.at(left + c);
        let mut down = 0.0;
        let mut r = opaque(0);
        // SAFETY: taps and pixels are there.
        unsafe {
            while !leaves && r < window.rows {
                let mut bytes = [0; AT_ONCE];
                let mut n = 0;
                while n < AT_ONCE {
                    // Rows below the window are its last one again, and do not count.
                    let row = if r + (n as i32) < window.rows { r + n as i32 } else { window.rows - 1 };
                    bytes[n] = load_u8(first.wrapping_add((row as i64 * below) as u64));
                    n += 1;
                }
                let mut n = 0;
                while n < AT_ONCE {
                    if r + (n as i32) < window.rows {
                        let tap = load_f64(exact.column.wrapping_add(8 * (r + n as i32) as u64));
                        down = fma_f64(tap, byte_to_f64(bytes[n]), down);
                    }
                    n += 1;
                }
                r += AT_ONCE as i32;
            }
            while r < window.rows {
                let value = source.row(top + r).pixel(left + c) as f64;
                down = fma_f64(load_f64(exact.column.wrapping_add(8 * r as u64)), value, down);
                r = opaque(r + 1);
            }
            sum = fma_f64(load_f64(exact.row.wrapping_add(8 * c as u64)), down, sum);
        }
        c += 32;
    }
    sum
}

/// The lane's part of the sum: every 32nd tap.
///
/// # Safety
/// As for [`settle_one`].
#[inline(always)]
unsafe fn by_taps(source: &Source<'_>, window: &Window, exact: Exact, (left, top): (i32, i32), leaves: bool) -> f64 {
    let (cols, count) = (window.cols, window.cols * window.rows);
    // Each lane takes every 32nd tap.
    let lane = thread_x();
    let (mut c, mut r) = exact.first;
    let plane = &source.pass.src;
    // A product of two 32-bit numbers leads to any row, unless rows are far apart: then each pixel goes the longer way.
    let longer = leaves || plane.row != plane.row as i32 as i64;
    let start = source.row_inside(opaque(top)).at(left);
    let mut sum = 0.0;
    let mut i = lane;
    let mut taps = exact.taps + 8 * lane as u64;
    while i < count {
        // So many loads are under way at once.
        const AT_ONCE: usize = 4;
        let (mut values, mut weights) = ([0.0; AT_ONCE], [0.0; AT_ONCE]);
        let mut n = 0;
        while n < AT_ONCE {
            if i < count {
                // SAFETY: taps and pixels are there.
                unsafe {
                    weights[n] = load_f64(taps + 256 * n as u64);
                    values[n] = if longer {
                        source.row(opaque(top + r)).pixel(opaque(left + c)) as f64
                    } else {
                        let offset = mul_wide(r, plane.row as i32) + mul_wide(c, plane.pixel);
                        byte_to_f64(load_u8(start.wrapping_add(offset as u64)))
                    };
                }
            }
            i += 32;
            c += exact.step.0;
            r += exact.step.1;
            if c >= cols {
                c -= cols;
                r += 1;
            }
            n += 1;
        }
        taps += 256 * AT_ONCE as u64;
        let mut n = 0;
        while n < AT_ONCE {
            // A weight that is not there is 0, and so is its value.
            sum = fma_f64(weights[n], values[n], sum);
            n += 1;
        }
    }
    sum
}

/// The sum of the lanes' parts, in lane 0 of the warp.
///
/// # Safety
/// The whole warp calls.
#[inline(always)]
unsafe fn added(mut sum: f64) -> f64 {
    let (shared, lane) = (Shared::dynamic(), thread_x());
    // Elements of f32 before the warp's own 32 numbers.
    let mine = 2 + 64 * thread_y();
    // SAFETY: the numbers are the warp's, which meets at each barrier.
    unsafe {
        shared.store_f64(mine + 2 * lane, sum);
        warp_barrier();
        let mut half = opaque(16);
        while half > 0 {
            if lane < half {
                sum = add_f64(sum, shared.load_f64(mine + 2 * (lane + half)));
                shared.store_f64(mine + 2 * lane, sum);
            }
            warp_barrier();
            half /= 2;
        }
    }
    sum
}

/// A byte as a number.
#[inline(always)]
fn byte_to_f64(byte: u32) -> f64 {
    // It becomes the lowest bits of 2^52: a conversion is slower.
    const SHIFT: u64 = 0x4330_0000_0000_0000;
    f64::from_bits(SHIFT | byte as u64) - f64::from_bits(SHIFT)
}

/// Stores a byte.
///
/// # Safety
/// As for [`settle_one`].
#[inline(always)]
unsafe fn store(pass: &Pass, place: Place, byte: u32) {
    let target = Target::of_channel(pass, place.z);
    // SAFETY: the place lies in the region; one thread has it.
    unsafe { store_bits(U8, target.at(place.x, place.y), byte) };
}
