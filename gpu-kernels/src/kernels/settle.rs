//! Bytes whose f32 sum does not decide them: their sums in f64, which do.
//!
//! The byte is the integer nearest to the sum in f64, half to even, saturated; each product and each sum rounded to f64, row
//! by row, left to right (`host/src/round` defines it, and computes the same on the CPU).
//!
//! Thread mapping: a block for each segment of the list. If the window is small and the segment has more results than five eighths of the window's taps, a thread computes one;
//! else 16 lanes do, or a warp if the window is larger: each sums every 16th tap, or every 32nd; then their sums are added.
//! That order is another one, so where it could change the byte (at ties), one of them computes the sum again in the order that defines it. Filters whose sums are often
//! ties have a kernel of their own, in `ties.rs`, and so have larger windows, in `wide.rs`. A segment whose places did not suffice has all its pixels computed. At the end its counter is zero again.
//! Of a window that has no more columns and rows than that, each lane first finds a column and a row for all, be it inside the image or not: in code of its own, which was in no
//! cache, the few windows that leave the image were what the kernel's end waited for.
//! Shared memory: two words for the counter, and 64 for each warp's columns and rows.
//! Limits: source and destination are bytes; no epilogue.

use crate::abi::{Doubts, Pass, Plane, Window};
use crate::border;
use crate::device::*;
use crate::pixel::{U8, byte_to_f64, store_bits, to_byte};
use crate::tile::view::{Source, Target};

/// Threads of a block.
pub const BLOCK: (u32, u32) = (32, 4);
/// Bytes of shared memory.
pub const SHARED: u32 = 4 * (COUNTER + FOUND * BLOCK.1 as i32) as u32;
/// Words of the counter.
const COUNTER: i32 = 2;
/// Words of a warp's columns, and of these and its rows.
const COLUMNS: i32 = 32;
const FOUND: i32 = 2 * COLUMNS;
/// Words of shared memory that a warp needs to compute the sum that defines a result: a product of each lane.
pub(super) const TOGETHER: i32 = 2 * 32;
/// The most taps for which a thread computes a result by itself.
pub(super) const ALONE: i32 = 81;

kernel! {
    /// Settles the results in the pass's list. `taps` are the address of the window's taps in f64, row by row; `reordering` is how far apart f64 sums in two orders can be.
    fn settle(pass: Pass, window: Window, taps: u64, reordering: f64, planes: i32) {
        directive!(".maxnreg 64");
        segments(&pass, &window, Exact::new(taps, reordering, &pass, &window), planes)
    }
}

/// What the sums are made of.
#[derive(Clone, Copy)]
struct Exact {
    taps: u64,
    reordering: f64,
    /// Lanes that take a result together: 16 if the window is one turn for them, else 32.
    lanes: i32,
    /// Whether each column and each row of the window has a lane, which finds it for all: see [`find`].
    are_found: bool,
    /// A lane's way through the window.
    walk: Walk,
}

impl Exact {
    #[inline(always)]
    fn new(taps: u64, reordering: f64, pass: &Pass, window: &Window) -> Self {
        let lanes = if window.cols * window.rows <= 16 * TAPS_AT_ONCE as i32 { 16 } else { 32 };
        let are_found = window.cols.max(window.rows) <= lanes && !goes_longer(&pass.src, false);
        Self { taps, reordering, lanes, are_found, walk: Walk::new(window, thread_x() & (lanes - 1), lanes) }
    }
}

/// A thread's way through a window, of whose taps several threads take turns.
#[derive(Clone, Copy)]
pub(super) struct Walk {
    column: i32,
    row: i32,
    /// How far it is from one to the next: columns, and rows.
    step: (i32, i32),
}

impl Walk {
    /// That of a thread by itself.
    const FIRST: Self = Self { column: 0, row: 0, step: (1, 0) };

    /// That of thread number `thread` of `threads`.
    #[inline(always)]
    pub(super) fn new(window: &Window, thread: i32, threads: i32) -> Self {
        // `checked`, so that no panic is compiled in; a window has columns.
        let divided = |count: i32| {
            let rows = count.checked_div(window.cols).unwrap_or(0);
            (count - rows * window.cols, rows)
        };
        let (column, row) = divided(thread);
        Self { column, row, step: divided(threads) }
    }

    /// Column and row of the next tap. Rows below the window are its last one again, whose taps are zero.
    #[inline(always)]
    pub(super) fn next(&mut self, window: &Window) -> (i32, i32) {
        let taken = (self.column, self.row.min(window.rows - 1));
        self.column += self.step.0;
        let wraps = self.column >= window.cols;
        self.column -= if wraps { window.cols } else { 0 };
        self.row += self.step.1 + if wraps { 1 } else { 0 };
        taken
    }
}

/// A pixel of a channel.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) x: i32,
    pub(super) y: i32,
    pub(super) z: i32,
}

impl Place {
    pub(super) const NONE: Self = Self { x: 0, y: 0, z: -1 };

    /// Whether there is one.
    #[inline(always)]
    pub(super) fn is_there(&self) -> bool {
        self.z >= 0
    }

    /// Where its window begins, and whether that leaves the image.
    #[inline(always)]
    pub(super) fn corner(&self, pass: &Pass, window: &Window) -> ((i32, i32), bool) {
        let (left, top) = (self.x - window.anchor_x, self.y - window.anchor_y);
        let leaves = border::leaves(left, window.cols, pass.width) || border::leaves(top, window.rows, pass.height);
        ((left, top), leaves)
    }

    /// Stores its byte.
    ///
    /// # Safety
    /// It lies in the region, and one thread has it.
    #[inline(always)]
    pub(super) unsafe fn store(&self, pass: &Pass, byte: u32) {
        // SAFETY: as the caller promised.
        unsafe { store_bits(U8, self.at(pass), byte) };
    }

    /// The address of its byte.
    #[inline(always)]
    pub(super) fn at(&self, pass: &Pass) -> u64 {
        Target::of_channel(pass, self.z).at(self.x, self.y)
    }
}

/// The results of a segment.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    number: i32,
    /// How many there are.
    pub(super) count: i64,
    /// Whether all pixels of the segment are meant, those in its list and others.
    pub(super) is_all: bool,
    /// Quads of the segment in a row, at most.
    quads: i32,
}

impl Segment {
    /// Segment number `number`, in which so many results are noted.
    #[inline(always)]
    pub(super) fn new(pass: &Pass, number: i32, noted: u32, planes: i32) -> Self {
        let region = &pass.region;
        let quads = ((((region.x1 + 3) >> 2) - (region.x0 >> 2)) + Doubts::SEGMENTS - 1) / Doubts::SEGMENTS;
        let is_all = noted > pass.doubts.capacity;
        let lines = mul_wide(quads * planes, region.y1 - region.y0);
        let count = if is_all { 4 * lines } else { noted as i64 };
        Self { number, count, is_all, quads }
    }

    /// Result number `i`, if there is one that is a sum: what KEEP copies is none.
    ///
    /// # Safety
    /// The pass has a list.
    #[inline(always)]
    pub(super) unsafe fn place(&self, pass: &Pass, window: &Window, i: i64) -> Place {
        if i >= self.count {
            return Place::NONE;
        }
        let region = &pass.region;
        let place = if self.is_all {
            // `checked`, so that no panic is compiled in; there are quads and rows.
            let divided = |number: u32, by: i32| {
                let whole = number.checked_div(by as u32).unwrap_or(0);
                (whole, (number - whole * by as u32) as i32)
            };
            let (line, quad) = divided((i >> 2) as u32, self.quads);
            let (z, row) = divided(line, region.y1 - region.y0);
            let (y, first) = (region.y0 + row, region.x0 >> 2);
            let behind = (self.number - Doubts::segment(4 * first, y)) & (Doubts::SEGMENTS - 1);
            let x = 4 * (first + behind + quad * Doubts::SEGMENTS) + (i as i32 & 3);
            if x < region.x0 || x >= region.x1 {
                return Place::NONE;
            }
            Place { x, y, z: z as i32 }
        } else {
            // SAFETY: the list has this segment.
            unsafe { noted(&pass.doubts, self.number, i as u32, self.count as u32) }
        };
        if pass.border == border::KEEP && place.corner(pass, window).1 { Place::NONE } else { place }
    }
}

/// Goes through the segments of this block.
///
/// # Safety
/// The pass has a list and describes allocated memory; the launch has the block shape and the shared memory stated above.
#[inline(always)]
unsafe fn segments(pass: &Pass, window: &Window, exact: Exact, planes: i32) {
    let (doubts, taps) = (&pass.doubts, window.cols * window.rows);
    let (thread, threads) = (32 * thread_y() + thread_x(), 32 * block_height());
    // SAFETY: as the caller promised.
    unsafe {
        each_segment(pass, planes, |segment| {
            // A thread waits for memory for some taps at a time; some lanes once for each result.
            if taps <= ALONE && segment.count > (taps * 5 / 8) as i64 {
                let mut i = thread as i64;
                while i < segment.count {
                    settle_alone(pass, window, exact, segment.place(pass, window, i));
                    i += threads as i64;
                }
                return;
            }
            let shift = exact.lanes.trailing_zeros();
            // All of a warp go on as long as one has a result.
            let (mut i, before) = ((thread >> shift) as i64, (thread_x() >> shift) as i64);
            let turns = (threads >> shift) as i64;
            let listed = if segment.is_all { 0 } else { segment.count as u32 };
            let mut next = noted(doubts, segment.number, i as u32, listed);
            while i - before < segment.count {
                let place = match segment.is_all {
                    true => segment.place(pass, window, i),
                    false if i < segment.count => next,
                    false => Place::NONE,
                };
                i += turns;
                next = noted(doubts, segment.number, i as u32, listed);
                settle_together(pass, window, exact, place);
            }
        });
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

/// Calls `each` for every segment of this block, and empties it then.
///
/// # Safety
/// The pass has a list; all threads of the block call, and shared memory has a word.
#[inline(always)]
pub(super) unsafe fn each_segment(pass: &Pass, planes: i32, each: impl Fn(&Segment)) {
    let shared = Shared::dynamic();
    let mut number = block_x();
    while number < Doubts::SEGMENTS {
        // SAFETY: the list has this segment; all threads of the block meet at each barrier.
        unsafe {
            let counter = pass.doubts.counter(number);
            if thread_x() == 0 && thread_y() == 0 {
                shared.store(0, f32::from_bits(reload_word(counter)));
            }
            barrier();
            let noted = shared.load_word(0);
            each(&Segment::new(pass, number, noted, planes));
            barrier();
            if noted != 0 && thread_x() == 0 && thread_y() == 0 {
                store_words(counter, [0]);
            }
        }
        number += grid_width();
    }
}

/// Computes and stores a result, if it is one, by this thread.
///
/// # Safety
/// As for [`segments`].
#[inline(always)]
unsafe fn settle_alone(pass: &Pass, window: &Window, exact: Exact, place: Place) {
    let (corner, leaves) = place.corner(pass, window);
    // What KEEP copies is no sum.
    if place.is_there() && !(leaves && pass.border == border::KEEP) {
        let source = Source::of_channel(&pass.src, pass, place.z);
        // SAFETY: as the caller promised.
        unsafe { place.store(pass, to_byte(by_definition(&source, window, exact.taps, corner, leaves)).0) };
    }
}

/// Computes and stores the results of a warp: all the lanes that take one together have the same place, which may be none.
///
/// # Safety
/// As for [`segments`]; the whole warp calls.
#[inline(always)]
unsafe fn settle_together(pass: &Pass, window: &Window, exact: Exact, place: Place) {
    let (corner, leaves) = place.corner(pass, window);
    // What KEEP copies is no sum.
    let is_there = place.is_there() && !(leaves && pass.border == border::KEEP);
    let source = Source::of_channel(&pass.src, pass, place.z.max(0));
    // SAFETY: as the caller promised.
    unsafe {
        let part = if exact.are_found {
            let found = find(&source, exact, corner);
            if is_there { by_found(&source, window, exact, found) } else { 0.0 }
        } else if is_there {
            by_taps(&source, window, exact, corner, leaves)
        } else {
            0.0
        };
        let estimate = added_by(part, exact.lanes);
        if !is_there || thread_x() & (exact.lanes - 1) != 0 {
            return;
        }
        let (byte, distance) = to_byte(estimate);
        // A NaN may come from the other order alone.
        let is_decided = distance < 0.5 - exact.reordering && !estimate.is_nan();
        let byte = match is_decided {
            true => byte,
            false => to_byte(by_definition(&source, window, exact.taps, corner, leaves)).0,
        };
        place.store(pass, byte);
    }
}

/// Taps whose bytes a lane loads before it waits for the first: each is likely to come from memory.
const TAPS_AT_ONCE: usize = 11;
/// The same under windows that leave the image: one result at an edge, taken tap by tap, would have all others wait for it.
const EDGE_AT_ONCE: usize = 3;
/// Zeros behind a window's taps in memory, so that a lane can take so many at a time.
pub const PADDING: usize = 32 * TAPS_AT_ONCE;

/// Whether each pixel of a window goes the longer way: a product of two 32-bit numbers leads to any row, unless the window leaves the image, or rows are far apart.
#[inline(always)]
pub(super) fn goes_longer(plane: &Plane, leaves: bool) -> bool {
    leaves || plane.row != plane.row as i32 as i64
}

/// The sum that defines the byte: each product and each sum rounded, row by row, left to right.
///
/// # Safety
/// As for [`segments`].
#[inline(always)]
pub(super) unsafe fn by_definition(
    source: &Source<'_>,
    window: &Window,
    taps: u64,
    (left, top): (i32, i32),
    leaves: bool,
) -> f64 {
    // Taps whose bytes are loaded before the first is waited for: two turns for 5x5.
    const AT_ONCE: usize = 13;
    let plane = &source.pass.src;
    let longer = goes_longer(plane, leaves);
    let start = source.row_inside(opaque(top)).at(left);
    let (mut sum, mut taps, mut walk) = (0.0, taps, Walk::FIRST);
    let mut left_over = opaque(window.cols * window.rows);
    // SAFETY: taps, with their padding, and pixels are there.
    unsafe {
        while !longer && left_over > 0 {
            let mut bytes = [0; AT_ONCE];
            let mut n = 0;
            while n < AT_ONCE {
                let (c, r) = walk.next(window);
                bytes[n] =
                    load_u8(start.wrapping_add((mul_wide(r, plane.row as i32) + mul_wide(c, plane.pixel)) as u64));
                n += 1;
            }
            n = 0;
            while n < AT_ONCE {
                // Zeros behind the last tap change no sum.
                sum = add_f64(sum, mul_f64(load_f64(taps.wrapping_add(8 * n as u64)), byte_to_f64(bytes[n])));
                n += 1;
            }
            taps = taps.wrapping_add(8 * AT_ONCE as u64);
            left_over -= AT_ONCE as i32;
        }
        while left_over > 0 {
            let mut at = [(0, 0); EDGE_AT_ONCE];
            let mut n = 0;
            while n < EDGE_AT_ONCE {
                let (c, r) = walk.next(window);
                at[n] = (left + c, top + r);
                n += 1;
            }
            let values = gathered(source, at);
            n = 0;
            while n < EDGE_AT_ONCE {
                // Of a value outside the image that is no number, zero times it would be none.
                let next = add_f64(sum, mul_f64(load_f64(taps.wrapping_add(8 * n as u64)), values[n]));
                sum = if (n as i32) < left_over { next } else { sum };
                n += 1;
            }
            taps = taps.wrapping_add(8 * EDGE_AT_ONCE as u64);
            left_over = opaque(left_over - EDGE_AT_ONCE as i32);
        }
    }
    sum
}

/// The same in all lanes of a warp, which make PRODUCTS each in a turn, as many as the kernel has registers for: alone, a thread would wait for memory again and
/// again. What the next products are made of is under way while these are added up: in any order, where that gives the same sum, and else one after the other.
/// `taps` comes with where the warp's [`TOGETHER`] words of shared memory begin. Not in this file's kernel, which took 10 us more with it when nothing was in doubt.
///
/// # Safety
/// As for [`segments`], for the whole warp.
#[inline(always)]
pub(super) unsafe fn by_definition_together<const PRODUCTS: usize>(
    source: &Source<'_>,
    window: &Window,
    (taps, numbers): (u64, i32),
    (left, top): (i32, i32),
    leaves: bool,
) -> f64 {
    const { assert!(32 * PRODUCTS <= PADDING) };
    let all = 32 * PRODUCTS as i32;
    let (count, lane) = (window.cols * window.rows, thread_x());
    let plane = source.plane();
    let longer = goes_longer(plane, leaves);
    let start = source.row_inside(opaque(top)).at(left);
    let (mut walk, mut tap) = (Walk::new(window, lane, 32), taps.wrapping_add(8 * lane as u64));
    // Bytes, or the bits of what a window has that goes the longer way.
    let (mut values, mut weights) = ([0; PRODUCTS], [0.0; PRODUCTS]);
    let mut sum = 0.0;
    // The first turn only loads.
    let mut done = opaque(-all);
    while done < count {
        let mut products = [0.0; PRODUCTS];
        let mut n = 0;
        while n < PRODUCTS {
            // Zeros behind the last tap change no sum, but what the border puts outside may be no number.
            products[n] = if !longer {
                mul_f64(weights[n], byte_to_f64(values[n]))
            } else if done + 32 * (n as i32) + lane < count {
                mul_f64(weights[n], f32::from_bits(values[n]) as f64)
            } else {
                0.0
            };
            n += 1;
        }
        let is_first = done < 0;
        done += all;
        // SAFETY: taps, with their padding, and pixels are there; the warp is here as a whole.
        unsafe {
            if done < count {
                let mut at = [(0, 0); PRODUCTS];
                n = 0;
                while n < PRODUCTS {
                    at[n] = walk.next(window);
                    weights[n] = load_f64(tap.wrapping_add(8 * 32 * n as u64));
                    n += 1;
                }
                tap = tap.wrapping_add(8 * all as u64);
                if longer {
                    let found = gathered(source, at.map(|(c, r)| (left + c, top + r)));
                    values = found.map(|value| (value as f32).to_bits());
                } else {
                    n = 0;
                    while n < PRODUCTS {
                        let offset = mul_wide(at[n].1, plane.row as i32) + mul_wide(at[n].0, plane.pixel);
                        values[n] = load_u8(start.wrapping_add(offset as u64));
                        n += 1;
                    }
                }
            }
            if !is_first {
                sum = match added_in_any_order(sum, &products) {
                    (sum, true) => sum,
                    _ => added_in_order(sum, &products, numbers),
                };
            }
        }
    }
    sum
}

/// A sum with the lanes' products of a turn added to it, and whether that is what it is one after the other: the first of each lane, then the second of each, and so on.
///
/// As long as the magnitude of a sum in f64 stays between two powers of two, it is a multiple of the same step, and so what a product adds to it is the multiple that is
/// nearest to the product, whatever came before. Only of a product half way between two it is that which makes the sum even. Multiples of a step have one sum
/// in any order.
///
/// # Safety
/// The whole warp calls, with the same sum.
#[inline(always)]
unsafe fn added_in_any_order<const PRODUCTS: usize>(sum: f64, products: &[f64; PRODUCTS]) -> (f64, bool) {
    /// Steps from a power of two to the next are two to this power.
    const STEPS: u64 = 52;
    let exponent = sum.to_bits() & 0x7ff << STEPS;
    // About the middle between the powers, steps are those of the sum, and it is an even number of them.
    let middle = f64::from_bits(exponent | 1 << (STEPS - 1));
    let half_a_step = f64::from_bits(exponent.wrapping_sub((STEPS + 1) << STEPS));
    let lanes_before = (1 << thread_x()) - 1;
    let mut is_odd = sum.to_bits() as u32 & 1;
    let (mut change, mut reach) = (0.0, 0.0);
    let mut n = 0;
    while n < PRODUCTS {
        let about = add_f64(products[n], middle);
        let mut steps = add_f64(about, -middle);
        let rest = add_f64(products[n], -steps);
        let is_half_way = rest.abs() == half_a_step;
        // SAFETY: as the caller promised.
        let (half_way, odd) = unsafe { (ballot(is_half_way), ballot(about.to_bits() & 1 != 0)) };
        if half_way != 0 {
            let was_odd = parity(is_odd, half_way & lanes_before, odd & lanes_before) != 0;
            // To the even number of steps, as which it was taken, or to the odd one on its other side.
            steps = if is_half_way && was_odd { fma_f64(2.0, rest, steps) } else { steps };
        }
        is_odd = parity(is_odd, half_way, odd);
        change = add_f64(change, steps);
        reach = add_f64(reach, steps.abs());
        n += 1;
    }
    // As [`added`], but both together: the lanes wait for each exchange.
    let mut apart = opaque(16);
    while apart > 0 {
        // SAFETY: as the caller promised.
        unsafe {
            change = add_f64(change, exchanged(change, apart as u32));
            reach = add_f64(reach, exchanged(reach, apart as u32));
        }
        apart /= 2;
    }
    let (magnitude, power) = (sum.abs(), f64::from_bits(exponent));
    let stays = reach < add_f64(magnitude, -power) && reach < add_f64(add_f64(power, power), -magnitude);
    // The least sums' steps cannot be halved.
    let has_halves = exponent > (STEPS + 1) << STEPS;
    (add_f64(sum, change), stays && has_halves)
}

/// Whether a sum, which was odd or even, is odd after some lanes' products: those of lanes that are half way between two steps make it even, others add an odd
/// number of steps.
#[inline(always)]
fn parity(was_odd: u32, half_way: u32, odd: u32) -> u32 {
    let behind_the_last = !(u32::MAX.checked_shr(half_way.leading_zeros()).unwrap_or(0));
    let was_odd = if half_way == 0 { was_odd } else { 0 };
    (was_odd + (odd & behind_the_last).count_ones()) & 1
}

/// A sum with the lanes' products of a turn added to it, one after the other.
///
/// # Safety
/// The whole warp calls, with the same sum; its words of shared memory begin there.
#[inline(always)]
unsafe fn added_in_order<const PRODUCTS: usize>(mut sum: f64, products: &[f64; PRODUCTS], numbers: i32) -> f64 {
    /// Numbers that are loaded together, as the additions wait for each other anyway.
    const AT_ONCE: usize = 8;
    let shared = Shared::dynamic();
    let mut n = 0;
    while n < PRODUCTS {
        // SAFETY: as the caller promised; the warp meets between what lanes store and what others load.
        unsafe {
            shared.store_f64(numbers + 2 * thread_x(), products[n]);
            warp_barrier();
            let mut i = opaque(0);
            while i < 32 {
                let mut next = [0.0; AT_ONCE];
                let mut k = 0;
                while k < AT_ONCE {
                    next[k] = shared.load_f64(numbers + 2 * (i + k as i32));
                    k += 1;
                }
                k = 0;
                while k < AT_ONCE {
                    sum = add_f64(sum, next[k]);
                    k += 1;
                }
                i = opaque(i + AT_ONCE as i32);
            }
            warp_barrier();
        }
        n += 1;
    }
    sum
}

/// The lane's part of the sum: every so many-th tap, as many as lanes take a result together.
///
/// # Safety
/// As for [`segments`], of a place that is there.
#[inline(always)]
unsafe fn by_taps(source: &Source<'_>, window: &Window, exact: Exact, (left, top): (i32, i32), leaves: bool) -> f64 {
    let count = window.cols * window.rows;
    let (lanes, lane) = (exact.lanes, thread_x() & (exact.lanes - 1));
    let mut walk = exact.walk;
    let plane = &source.pass.src;
    let longer = goes_longer(plane, leaves);
    let start = source.row_inside(opaque(top)).at(left);
    let mut sum = 0.0;
    let mut taps = exact.taps + 8 * lane as u64;
    // SAFETY: taps, with their padding, and pixels are there.
    unsafe {
        // Without branches: a load behind one would be waited for before the next is issued.
        let mut left_over = count - lane;
        while !longer && left_over > 0 {
            let (mut bytes, mut weights) = ([0; TAPS_AT_ONCE], [0.0; TAPS_AT_ONCE]);
            let mut n = 0;
            while n < TAPS_AT_ONCE {
                let (c, r) = walk.next(window);
                let offset = mul_wide(r, plane.row as i32) + mul_wide(c, plane.pixel);
                bytes[n] = load_u8(start.wrapping_add(offset as u64));
                weights[n] = load_f64(taps.wrapping_add(mul_wide(8 * n as i32, lanes) as u64));
                n += 1;
            }
            let mut n = 0;
            while n < TAPS_AT_ONCE {
                sum = fma_f64(weights[n], byte_to_f64(bytes[n]), sum);
                n += 1;
            }
            taps = taps.wrapping_add(mul_wide(8 * TAPS_AT_ONCE as i32, lanes) as u64);
            left_over -= lanes * TAPS_AT_ONCE as i32;
        }
        while left_over > 0 {
            let mut at = [(0, 0); EDGE_AT_ONCE];
            let mut n = 0;
            while n < EDGE_AT_ONCE {
                let (c, r) = walk.next(window);
                at[n] = (left + c, top + r);
                n += 1;
            }
            let values = gathered(source, at);
            let mut n = 0;
            while n < EDGE_AT_ONCE {
                sum = fma_f64(load_f64(taps.wrapping_add(mul_wide(8 * n as i32, lanes) as u64)), values[n], sum);
                n += 1;
            }
            taps = taps.wrapping_add(mul_wide(8 * EDGE_AT_ONCE as i32, lanes) as u64);
            left_over = opaque(left_over - lanes * EDGE_AT_ONCE as i32);
        }
    }
    sum
}

/// Finds the columns and the rows of a window, one of each by each lane that takes the result, and returns the word of shared memory where they begin.
///
/// # Safety
/// As for [`segments`]; the whole warp calls.
#[inline(always)]
unsafe fn find(source: &Source<'_>, exact: Exact, (left, top): (i32, i32)) -> i32 {
    let (pass, plane, lane) = (source.pass, source.plane(), thread_x() & (exact.lanes - 1));
    let x = border::resolve_briefly(pass.border, left + lane, pass.width);
    let y = border::resolve_briefly(pass.border, top + lane, pass.height);
    // Of rows that are not there, which no result needs, the nearest one that is.
    let y = if y < 0 { y } else { y.max(plane.first_row).min(plane.end_row - 1) };
    let (shared, own) = (Shared::dynamic(), COUNTER + FOUND * thread_y() + thread_x());
    // SAFETY: the warp's words; it meets between what a lane stores and what others load.
    unsafe {
        warp_barrier();
        shared.store(own, f32::from_bits(x as u32));
        shared.store(own + COLUMNS, f32::from_bits(y as u32));
        warp_barrier();
    }
    own - lane
}

/// As [`by_taps`], for a window whose columns and rows are found from a word of shared memory on.
///
/// # Safety
/// As for [`segments`], of a place that is there.
#[inline(always)]
unsafe fn by_found(source: &Source<'_>, window: &Window, exact: Exact, found: i32) -> f64 {
    let (lanes, lane) = (exact.lanes, thread_x() & (exact.lanes - 1));
    let (shared, plane) = (Shared::dynamic(), source.plane());
    let beyond = source.pass.outside as f64;
    let (mut walk, mut taps) = (exact.walk, exact.taps + 8 * lane as u64);
    let (mut sum, mut left_over) = (0.0, window.cols * window.rows - lane);
    // SAFETY: taps, with their padding, and pixels are there.
    unsafe {
        while left_over > 0 {
            let (mut bytes, mut weights, mut outside) = ([0; TAPS_AT_ONCE], [0.0; TAPS_AT_ONCE], 0);
            let mut n = 0;
            while n < TAPS_AT_ONCE {
                let (c, r) = walk.next(window);
                let (x, y) = (shared.load_word(found + c) as i32, shared.load_word(found + COLUMNS + r) as i32);
                outside |= ((x | y) as u32 >> 31) << n;
                // In place of what the border puts there, a pixel that is of no account.
                let offset = mul_wide(y.max(plane.first_row), plane.row as i32) + mul_wide(x.max(0), plane.pixel);
                bytes[n] = load_u8(source.origin().wrapping_add(offset as u64));
                weights[n] = load_f64(taps.wrapping_add(mul_wide(8 * n as i32, lanes) as u64));
                n += 1;
            }
            n = 0;
            while n < TAPS_AT_ONCE {
                let value = if outside & (1 << n) != 0 { beyond } else { byte_to_f64(bytes[n]) };
                sum = fma_f64(weights[n], value, sum);
                n += 1;
            }
            taps = taps.wrapping_add(mul_wide(8 * TAPS_AT_ONCE as i32, lanes) as u64);
            left_over -= lanes * TAPS_AT_ONCE as i32;
        }
    }
    sum
}

/// What bytes at any coordinates are, or what the border puts there; all are loaded before the first is waited for.
///
/// # Safety
/// As for [`segments`].
#[inline(always)]
pub(super) unsafe fn gathered<const N: usize>(source: &Source<'_>, at: [(i32, i32); N]) -> [f64; N] {
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
pub(super) unsafe fn added(sum: f64) -> f64 {
    // SAFETY: as the caller promised.
    unsafe { added_by(sum, 32) }
}

/// The sum of the parts of so many neighbouring lanes, a power of two, in all of them.
///
/// # Safety
/// The whole warp calls.
#[inline(always)]
unsafe fn added_by(mut sum: f64, lanes: i32) -> f64 {
    let mut apart = opaque(lanes / 2);
    while apart > 0 {
        // SAFETY: as the caller promised.
        sum = add_f64(sum, unsafe { exchanged(sum, apart as u32) });
        apart /= 2;
    }
    sum
}

/// The number that the lane has whose number differs in the bits of `apart`.
///
/// # Safety
/// The whole warp calls.
#[inline(always)]
pub(super) unsafe fn exchanged(number: f64, apart: u32) -> f64 {
    let (low, high) = (number.to_bits() as u32, (number.to_bits() >> 32) as u32);
    // SAFETY: as the caller promised.
    let (low, high) = unsafe { (exchange(low, apart), exchange(high, apart)) };
    f64::from_bits(low as u64 | (high as u64) << 32)
}
