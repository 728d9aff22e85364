//! Bytes whose f32 sum does not decide them: their sums in f64, which do.
//!
//! The byte is the integer nearest to the sum in f64, half to even, saturated; each product and each sum rounded to f64, row
//! by row, left to right (`host/src/round` defines it, and computes the same on the CPU).
//!
//! Thread mapping: a block for each segment of the list. If the window is small and the segment has more results than five eighths of the window's taps, a thread computes one; else a warp does:
//! each lane sums every 32nd column if the window is a product of a row and a column, else every 32nd tap; then their sums are added.
//! That order is another one, so where it could change the byte (at ties), the sum is computed again in the order that defines it: by lane 0; in
//! `settle_ties` a warp collects 32 such results, and each lane takes one. Of few that are left at the end, it takes one after the other: its lanes
//! make the products, and lane 0 adds them up. A segment whose places did not suffice has all its pixels computed. At the end its counter is zero again.
//! Shared memory: a word for the counter, then, for each warp, 96 numbers of 64 bits.
//! Limits: source and destination are bytes; no epilogue.

use crate::abi::{Doubts, Pass, Window};
use crate::border;
use crate::device::*;
use crate::pixel::{U8, store_bits, to_byte};
use crate::tile::view::{Source, Target};

/// Threads of a block.
pub const BLOCK: (u32, u32) = (32, 4);
/// Numbers of a warp in shared memory.
const NUMBERS: i32 = 32 * PRODUCTS as i32;
/// Bytes of shared memory.
pub const SHARED: u32 = 8 + 8 * NUMBERS as u32 * BLOCK.1;
/// The most taps for which a thread computes a result by itself.
const ALONE: i32 = 81;

kernel! {
    /// Settles the results in the pass's list. `taps` are the address of the window's taps in f64, row by row; `row` and `column` those
    /// of the factors whose product they are, or 0; `reordering` is how far apart f64 sums in two orders can be.
    fn settle(pass: Pass, window: Window, taps: u64, row: u64, column: u64, reordering: f64, planes: i32) {
        directive!(".maxnreg 64");
        segments::<false>(&pass, &window, Exact::new(taps, (row, column), reordering, &window), planes)
    }

    /// The same for filters whose sums are often ties.
    fn settle_ties(pass: Pass, window: Window, taps: u64, row: u64, column: u64, reordering: f64, planes: i32) {
        directive!(".maxnreg 64");
        segments::<true>(&pass, &window, Exact::new(taps, (row, column), reordering, &window), planes)
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

    /// Where the tap is that a lane takes after the one at `(c, r)`.
    #[inline(always)]
    fn next(&self, (c, r): (i32, i32), window: &Window) -> (i32, i32) {
        let (c, r) = (c + self.step.0, r + self.step.1);
        let wraps = c >= window.cols;
        (c - if wraps { window.cols } else { 0 }, r + if wraps { 1 } else { 0 })
    }
}

/// A pixel of a channel.
#[derive(Clone, Copy)]
struct Place {
    x: i32,
    y: i32,
    z: i32,
}

impl Place {
    /// Where its window begins, and whether that leaves the image.
    #[inline(always)]
    fn corner(&self, pass: &Pass, window: &Window) -> ((i32, i32), bool) {
        let (left, top) = (self.x - window.anchor_x, self.y - window.anchor_y);
        let leaves = border::leaves(left, window.cols, pass.width) || border::leaves(top, window.rows, pass.height);
        ((left, top), leaves)
    }
}

/// Results that only the sum which defines them can decide, of a warp: lane `n` holds number `n`.
#[derive(Clone, Copy)]
struct Ties {
    mine: Place,
    count: i32,
}

impl Ties {
    const NONE: Self = Self { mine: Place { x: 0, y: 0, z: 0 }, count: 0 };

    /// Takes one more, and settles all when each lane has one.
    ///
    /// # Safety
    /// As for [`settle_one`]; the whole warp calls.
    #[inline(always)]
    unsafe fn take(&mut self, pass: &Pass, window: &Window, exact: Exact, place: Place) {
        if thread_x() == self.count {
            self.mine = place;
        }
        self.count += 1;
        if self.count == 32 {
            // SAFETY: as the caller promised.
            unsafe { define(pass, window, exact, self.mine) };
            self.count = 0;
        }
    }

    /// Settles those that are left.
    ///
    /// # Safety
    /// As for [`Ties::take`].
    #[inline(always)]
    unsafe fn settle(&mut self, pass: &Pass, window: &Window, exact: Exact) {
        // A lane alone waits for memory again and again: about as long as the warp takes for so many.
        const FEW: i32 = 8;
        let shared = Shared::dynamic();
        // SAFETY: as the caller promised; the numbers are the warp's, which meets at each barrier.
        unsafe {
            if self.count > FEW {
                if thread_x() < self.count {
                    define(pass, window, exact, self.mine);
                }
                self.count = 0;
            }
            let mut turn = opaque(0);
            while turn < self.count {
                warp_barrier();
                if thread_x() == turn {
                    let Place { x, y, z } = self.mine;
                    shared.store(numbers(), f32::from_bits(x as u32));
                    shared.store(numbers() + 1, f32::from_bits(y as u32));
                    shared.store(numbers() + 2, f32::from_bits(z as u32));
                }
                warp_barrier();
                let word = |number: i32| shared.load_word(numbers() + number) as i32;
                let place = Place { x: word(0), y: word(1), z: word(2) };
                let (corner, leaves) = place.corner(pass, window);
                let source = Source::of_channel(&pass.src, pass, place.z);
                let sum = by_definition_together(&source, window, exact, corner, leaves);
                if thread_x() == 0 {
                    store(pass, place, to_byte(sum).0);
                }
                turn = opaque(turn + 1);
            }
        }
        self.count = 0;
    }
}

/// Stores the byte of the sum that defines it, by this thread alone.
///
/// # Safety
/// As for [`settle_one`].
#[inline(always)]
unsafe fn define(pass: &Pass, window: &Window, exact: Exact, place: Place) {
    let source = Source::of_channel(&pass.src, pass, place.z);
    let (corner, leaves) = place.corner(pass, window);
    // SAFETY: as the caller promised.
    unsafe { store(pass, place, to_byte(by_definition(&source, window, exact.taps, corner, leaves)).0) };
}

/// Goes through the segments of this block.
///
/// # Safety
/// The pass has a list and describes allocated memory; the launch has the block shape and the shared memory stated above.
#[inline(always)]
unsafe fn segments<const TIES: bool>(pass: &Pass, window: &Window, exact: Exact, planes: i32) {
    let shared = Shared::dynamic();
    let mut ties = Ties::NONE;
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
            // Whether each thread takes a result, or each warp; so many take turns.
            // A thread waits for memory at least once for each row of its window; a warp once for each result, of which it has a quarter.
            let taps = window.cols * window.rows;
            let alone = taps <= ALONE && count > (taps * 5 / 8) as u32;
            let turns = if alone { 32 * block_height() } else { block_height() };
            let turn = if alone { 32 * thread_y() + thread_x() } else { thread_y() };
            if count <= pass.doubts.capacity {
                let mut i = turn as u32;
                let mut next = noted(&pass.doubts, segment, i, count);
                while i < count {
                    let place = next;
                    i += turns as u32;
                    next = noted(&pass.doubts, segment, i, count);
                    settle_one::<TIES>(pass, window, exact, place, alone, &mut ties);
                }
            } else {
                all::<TIES>(pass, window, exact, (segment, planes), (turn, turns), alone, &mut ties);
            }
            if TIES {
                ties.settle(pass, window, exact);
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
unsafe fn all<const TIES: bool>(
    pass: &Pass,
    window: &Window,
    exact: Exact,
    (segment, planes): (i32, i32),
    (turn, turns): (i32, i32),
    alone: bool,
    ties: &mut Ties,
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
                        unsafe { settle_one::<TIES>(pass, window, exact, Place { x, y, z }, alone, ties) };
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

/// Computes and stores one result, by this thread or by its whole warp; or leaves it to `ties`.
///
/// # Safety
/// As for [`segments`]; if not alone, the whole warp calls for the same place.
#[inline(always)]
unsafe fn settle_one<const TIES: bool>(
    pass: &Pass,
    window: &Window,
    exact: Exact,
    place: Place,
    alone: bool,
    ties: &mut Ties,
) {
    let ((left, top), leaves) = place.corner(pass, window);
    // What KEEP copies is no sum.
    if leaves && pass.border == border::KEEP {
        return;
    }
    let source = Source::of_channel(&pass.src, pass, place.z);
    // SAFETY: as the caller promised.
    unsafe {
        if !alone {
            let part = if exact.row != 0 {
                by_columns(&source, window, exact, (left, top), leaves)
            } else {
                by_taps(&source, window, exact, (left, top), leaves)
            };
            let estimate = added(part);
            if !TIES && thread_x() != 0 {
                return;
            }
            let (byte, distance) = to_byte(estimate);
            // A NaN may come from the other order alone.
            let decided = distance < 0.5 - exact.reordering && !estimate.is_nan();
            if TIES && !decided {
                ties.take(pass, window, exact, place);
                return;
            }
            if decided {
                if thread_x() == 0 {
                    store(pass, place, byte);
                }
                return;
            }
        }
        let sum = by_definition(&source, window, exact.taps, (left, top), leaves);
        store(pass, place, to_byte(sum).0);
    }
}

/// Bytes that a lane loads before it waits for the first: each is likely to come from memory.
const AT_ONCE: usize = 9;
/// The same, of taps that lanes take in turn.
const TAPS_AT_ONCE: usize = 5;
/// The same, where products are made for lane 0.
const PRODUCTS: usize = 3;
/// The same under windows that leave the image: one result at an edge, taken tap by tap, would have all others wait for it.
const EDGE_AT_ONCE: usize = 3;
/// Zeros behind a column's taps in memory, and behind a window's, so that a lane can take so many at a time.
pub const PADDING: usize = if AT_ONCE > 32 * TAPS_AT_ONCE { AT_ONCE } else { 32 * TAPS_AT_ONCE };

/// The lane's part of the sum: every 32nd column, each times its factor; `leaves` says whether the window leaves the image.
///
/// # Safety
/// As for [`settle_one`]; the window is a product of a row and a column.
#[inline(always)]
unsafe fn by_columns(source: &Source<'_>, window: &Window, exact: Exact, (left, top): (i32, i32), leaves: bool) -> f64 {
    let below = source.pass.src.row;
    let start = source.row_inside(opaque(top));
    let mut sum = 0.0;
    let mut c = opaque(thread_x());
    while c < window.cols {
        let first = start.at(left + c);
        let mut down = 0.0;
        let mut r = opaque(0);
        // SAFETY: taps, with their padding, and pixels are there.
        unsafe {
            // Without branches: a load behind one would be waited for before the next is issued.
            while !leaves && r < window.rows {
                let mut bytes = [0; AT_ONCE];
                let mut n = 0;
                while n < AT_ONCE {
                    // Rows below the window are its last one again, times zero.
                    let row = (r + n as i32).min(window.rows - 1);
                    bytes[n] = load_u8(first.wrapping_add((row as i64).wrapping_mul(below) as u64));
                    n += 1;
                }
                let taps = exact.column.wrapping_add(8 * r as u64);
                let mut n = 0;
                while n < AT_ONCE {
                    down = fma_f64(load_f64(taps.wrapping_add(8 * n as u64)), byte_to_f64(bytes[n]), down);
                    n += 1;
                }
                r += AT_ONCE as i32;
            }
            while r < window.rows {
                let mut at = [(left + c, 0); EDGE_AT_ONCE];
                let mut n = 0;
                while n < EDGE_AT_ONCE {
                    at[n].1 = top + (r + n as i32).min(window.rows - 1);
                    n += 1;
                }
                let values = gathered(source, at);
                let taps = exact.column.wrapping_add(8 * r as u64);
                let mut n = 0;
                while n < EDGE_AT_ONCE {
                    down = fma_f64(load_f64(taps.wrapping_add(8 * n as u64)), values[n], down);
                    n += 1;
                }
                r = opaque(r + EDGE_AT_ONCE as i32);
            }
            sum = fma_f64(load_f64(exact.row.wrapping_add(8 * c as u64)), down, sum);
        }
        c += 32;
    }
    sum
}

/// The sum that defines the byte: each product and each sum rounded, row by row, left to right.
///
/// # Safety
/// As for [`settle_one`].
#[inline(always)]
unsafe fn by_definition(source: &Source<'_>, window: &Window, taps: u64, (left, top): (i32, i32), leaves: bool) -> f64 {
    // Taps of a row that are loaded before the first is waited for.
    const AT_ONCE: usize = 5;
    let plane = &source.pass.src;
    // A product of two 32-bit numbers leads to any row, unless rows are far apart: then each pixel goes the longer way.
    let longer = leaves || plane.row != plane.row as i32 as i64;
    let start = source.row_inside(opaque(top)).at(left);
    let (mut sum, mut taps) = (0.0, taps);
    let mut r = opaque(0);
    while r < window.rows {
        let first = start.wrapping_add(mul_wide(r, plane.row as i32) as u64);
        let mut c = opaque(0);
        // SAFETY: taps and pixels are there.
        unsafe {
            while !longer && c < window.cols {
                let (mut bytes, mut weights) = ([0; AT_ONCE], [0.0; AT_ONCE]);
                let mut n = 0;
                while n < AT_ONCE {
                    let column = (c + n as i32).min(window.cols - 1);
                    bytes[n] = load_u8(first.wrapping_add(mul_wide(column, plane.pixel) as u64));
                    weights[n] = load_f64(taps.wrapping_add(8 * column as u64));
                    n += 1;
                }
                let mut n = 0;
                while n < AT_ONCE {
                    let next = add_f64(sum, mul_f64(weights[n], byte_to_f64(bytes[n])));
                    sum = if c + (n as i32) < window.cols { next } else { sum };
                    n += 1;
                }
                c += AT_ONCE as i32;
            }
            while c < window.cols {
                let (mut at, mut weights) = ([(0, top + r); EDGE_AT_ONCE], [0.0; EDGE_AT_ONCE]);
                let mut n = 0;
                while n < EDGE_AT_ONCE {
                    let column = (c + n as i32).min(window.cols - 1);
                    at[n].0 = left + column;
                    weights[n] = load_f64(taps.wrapping_add(8 * column as u64));
                    n += 1;
                }
                let values = gathered(source, at);
                let mut n = 0;
                while n < EDGE_AT_ONCE {
                    let next = add_f64(sum, mul_f64(weights[n], values[n]));
                    sum = if c + (n as i32) < window.cols { next } else { sum };
                    n += 1;
                }
                c = opaque(c + EDGE_AT_ONCE as i32);
            }
        }
        taps = taps.wrapping_add(8 * window.cols as u64);
        r = opaque(r + 1);
    }
    sum
}

/// Where this warp's numbers begin in shared memory, in elements of f32.
#[inline(always)]
fn numbers() -> i32 {
    2 + 2 * NUMBERS * thread_y()
}

/// The same sum in lane 0 of a warp, whose lanes make the products. Alone, a thread would wait for memory again and again.
///
/// # Safety
/// As for [`settle_one`]; the whole warp calls.
#[inline(always)]
unsafe fn by_definition_together(
    source: &Source<'_>,
    window: &Window,
    exact: Exact,
    (left, top): (i32, i32),
    leaves: bool,
) -> f64 {
    let (shared, count, lane) = (Shared::dynamic(), window.cols * window.rows, thread_x());
    let plane = &source.pass.src;
    let longer = leaves || plane.row != plane.row as i32 as i64;
    let start = source.row_inside(opaque(top)).at(left);
    let mut next = exact.first;
    let mut sum = 0.0;
    // The sum of the lanes' parts may still be read.
    warp_barrier();
    let mut done = opaque(0);
    while done < count {
        let mut at = [(0, 0); PRODUCTS];
        let mut n = 0;
        while n < PRODUCTS {
            // Rows below the window are its last one again, and do not count.
            at[n] = (next.0, next.1.min(window.rows - 1));
            next = exact.next(next, window);
            n += 1;
        }
        // SAFETY: taps, with their padding, and pixels are there; the numbers are the warp's, which meets at each barrier.
        unsafe {
            let mut values = [0.0; PRODUCTS];
            if longer {
                values = gathered(source, at.map(|(c, r)| (left + c, top + r)));
            } else {
                let mut bytes = [0; PRODUCTS];
                let mut n = 0;
                while n < PRODUCTS {
                    let offset = mul_wide(at[n].1, plane.row as i32) + mul_wide(at[n].0, plane.pixel);
                    bytes[n] = load_u8(start.wrapping_add(offset as u64));
                    n += 1;
                }
                let mut n = 0;
                while n < PRODUCTS {
                    values[n] = byte_to_f64(bytes[n]);
                    n += 1;
                }
            }
            let mut n = 0;
            while n < PRODUCTS {
                let place = 32 * n as i32 + lane;
                let tap = load_f64(exact.taps.wrapping_add(8 * (done + place) as u64));
                shared.store_f64(numbers() + 2 * place, mul_f64(tap, values[n]));
                n += 1;
            }
            warp_barrier();
            if lane == 0 {
                let end = (count - done).min(NUMBERS);
                let mut i = opaque(0);
                while i < end {
                    // Loaded together, as the additions wait for each other anyway.
                    let mut four = [0.0; 4];
                    let mut n = 0;
                    while n < 4 {
                        four[n] = shared.load_f64(numbers() + 2 * (i + n as i32));
                        n += 1;
                    }
                    let mut n = 0;
                    while n < 4 {
                        let next = add_f64(sum, four[n]);
                        sum = if i + (n as i32) < end { next } else { sum };
                        n += 1;
                    }
                    i += 4;
                }
            }
            warp_barrier();
        }
        done += NUMBERS;
    }
    sum
}

/// The lane's part of the sum: every 32nd tap.
///
/// # Safety
/// As for [`settle_one`].
#[inline(always)]
unsafe fn by_taps(source: &Source<'_>, window: &Window, exact: Exact, (left, top): (i32, i32), leaves: bool) -> f64 {
    let count = window.cols * window.rows;
    // Each lane takes every 32nd tap.
    let lane = thread_x();
    let mut at = exact.first;
    let plane = &source.pass.src;
    // A product of two 32-bit numbers leads to any row, unless rows are far apart: then each pixel goes the longer way.
    let longer = leaves || plane.row != plane.row as i32 as i64;
    let start = source.row_inside(opaque(top)).at(left);
    let mut sum = 0.0;
    let mut taps = exact.taps + 8 * lane as u64;
    // The lane's next tap.
    let mut next = || {
        let taken = at;
        at = exact.next(at, window);
        taken
    };
    // SAFETY: taps, with their padding, and pixels are there.
    unsafe {
        // Without branches, as in `by_columns`.
        let mut left_over = count - lane;
        while !longer && left_over > 0 {
            let (mut bytes, mut weights) = ([0; TAPS_AT_ONCE], [0.0; TAPS_AT_ONCE]);
            let mut n = 0;
            while n < TAPS_AT_ONCE {
                let (c, r) = next();
                // Rows below the window are its last one again, times zero.
                let offset = mul_wide(r.min(window.rows - 1), plane.row as i32) + mul_wide(c, plane.pixel);
                bytes[n] = load_u8(start.wrapping_add(offset as u64));
                weights[n] = load_f64(taps.wrapping_add(256 * n as u64));
                n += 1;
            }
            let mut n = 0;
            while n < TAPS_AT_ONCE {
                sum = fma_f64(weights[n], byte_to_f64(bytes[n]), sum);
                n += 1;
            }
            taps = taps.wrapping_add(256 * TAPS_AT_ONCE as u64);
            left_over -= 32 * TAPS_AT_ONCE as i32;
        }
        while left_over > 0 {
            let mut at = [(0, 0); EDGE_AT_ONCE];
            let mut n = 0;
            while n < EDGE_AT_ONCE {
                let (c, r) = next();
                at[n] = (left + c, top + r.min(window.rows - 1));
                n += 1;
            }
            let values = gathered(source, at);
            let mut n = 0;
            while n < EDGE_AT_ONCE {
                sum = fma_f64(load_f64(taps.wrapping_add(256 * n as u64)), values[n], sum);
                n += 1;
            }
            taps = taps.wrapping_add(256 * EDGE_AT_ONCE as u64);
            left_over = opaque(left_over - 32 * EDGE_AT_ONCE as i32);
        }
    }
    sum
}

/// What bytes at any coordinates are, or what the border puts there; all are loaded before the first is waited for.
///
/// # Safety
/// As for [`settle_one`].
#[inline(always)]
unsafe fn gathered<const N: usize>(source: &Source<'_>, at: [(i32, i32); N]) -> [f64; N] {
    let pass = source.pass;
    let (mut from, mut inside) = ([0; N], [true; N]);
    let mut n = 0;
    while n < N {
        let (x, row) = (border::resolve(pass.border, at[n].0, pass.width), source.row(at[n].1));
        inside[n] = x >= 0 && row.is_inside();
        // In place of what the border puts there, a pixel that is of no account.
        from[n] = row.at(x.max(0));
        n += 1;
    }
    let mut bytes = [0; N];
    let mut n = 0;
    while n < N {
        // SAFETY: a row and a column of the image.
        bytes[n] = unsafe { load_u8(from[n]) };
        n += 1;
    }
    let mut values = [0.0; N];
    let mut n = 0;
    while n < N {
        values[n] = if inside[n] { byte_to_f64(bytes[n]) } else { pass.outside as f64 };
        n += 1;
    }
    values
}

/// The sum of the lanes' parts, in all lanes of the warp.
///
/// # Safety
/// The whole warp calls.
#[inline(always)]
unsafe fn added(mut sum: f64) -> f64 {
    let mut apart = opaque(16);
    while apart > 0 {
        let (low, high) = (sum.to_bits() as u32, (sum.to_bits() >> 32) as u32);
        // SAFETY: as the caller promised.
        let (low, high) = unsafe { (exchange(low, apart as u32), exchange(high, apart as u32)) };
        sum = add_f64(sum, f64::from_bits(low as u64 | (high as u64) << 32));
        apart /= 2;
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
