//! Bytes in doubt under larger windows: their sums in f64, as in `settle.rs`, but several at a time.
//!
//! Thread mapping: a block for each segment of the list. Of 32 results at a time it lists those whose windows lie in the image, and takes RESULTS of them together. A thread takes
//! every 256th tap, and what lies under it in all of these windows: a tap is loaded once for all of them, and their pixels are under way together. The sums of the
//! threads are added within a warp, then those of the warps. It takes the others one after the other, and each thread some taps at a time, through the border rule.
//! Order: another one than that which defines the byte, in which a warp computes the sum again where that could change the byte.
//! Shared memory: a word for the counter, two for how many results of either kind are listed, the list, then the warps' sums, and
//! products in f64 of each warp.
//! Limits: source and destination are bytes; no epilogue.

use super::alike::Alike;
use super::settle::{
    Place, Segment, TOGETHER, Walk, added, by_definition_together, each_segment, exchanged, gathered, goes_longer,
};
use crate::abi::{Pass, Plane, Window};
use crate::device::*;
use crate::pixel::{byte_to_f64, to_byte};
use crate::tile::view::Source;

/// Threads of a block.
pub const BLOCK: (u32, u32) = (32, WARPS as u32);
const WARPS: i32 = 8;
pub(super) const THREADS: i32 = 32 * WARPS;
/// The least taps of a window for which this is faster than `settle.rs`. From an H200.
pub const LEAST: i32 = 512;
/// Results that a block takes at a time.
pub(super) const RESULTS: usize = 8;
/// Taps that a thread takes at a time.
const TAPS: usize = 2;
/// The same of a window that leaves the image.
const EDGE_TAPS: usize = 4;
/// Zeros behind a window's taps in memory, so that a thread can take so many at a time.
pub const PADDING: usize = EDGE_TAPS * THREADS as usize;
const _: () =
    assert!(PADDING >= super::settle::PADDING && EDGE_TAPS >= TAPS, "the other kernels' zeros are among them");

/// Words of shared memory: how many listed windows lie in the image, and how many do not; the list; and sums.
pub(super) const COUNTS: i32 = 2;
const LISTED: i32 = 4;
/// Words of a listed result: the address of its window's first pixel, if that lies in the image; column, row and channel; and whether it is stored for itself alone.
const WORDS: i32 = 6;
const SUMS: i32 = LISTED + 32 * WORDS;
/// Words of the warps' sums of one turn. They take two places by turns, so that the next turn need not wait until one warp has added up those of the last.
const TURN: i32 = 2 * WARPS * RESULTS as i32;
/// The warps' products.
const NUMBERS: i32 = SUMS + 2 * TURN;
/// Bytes of shared memory.
pub const SHARED: u32 = 4 * (NUMBERS + WARPS * TOGETHER) as u32;

kernel! {
    /// Settles the results in the pass's list. `taps` are the address of the window's taps in f64, row by row, and `reordering` is how far apart f64 sums in
    /// two orders can be.
    fn settle_wide(pass: Pass, window: Window, taps: u64, reordering: f64, planes: i32) {
        directive!(".maxnreg 80");
        let exact = Exact { taps, point: 0.0, error: reordering, from: &pass.src, is_padded: false, alike: Alike::NONE };
        each_segment(&pass, planes, |segment| settle(&pass, &window, exact, segment))
    }
}

/// What the sums are made of.
#[derive(Clone, Copy)]
pub(super) struct Exact<'a> {
    /// The address of the taps in f64.
    pub(super) taps: u64,
    /// The tap of the result's own pixel, if it is not among those that are summed up, else 0.
    pub(super) point: f64,
    /// How far a sum can be from the one that defines the byte.
    pub(super) error: f64,
    /// Where pixels are: in the source, or in a copy that no window leaves.
    pub(super) from: &'a Plane,
    pub(super) is_padded: bool,
    /// Where that has rows that repeat.
    pub(super) alike: Alike,
}

impl<'a> Exact<'a> {
    /// The channel of a result.
    #[inline(always)]
    fn source(&self, pass: &'a Pass, place: &Place) -> Source<'a> {
        Source::of_channel(self.from, pass, place.z)
    }

    /// Where a result's window begins, and whether that leaves what there is of pixels.
    #[inline(always)]
    fn corner(&self, pass: &Pass, window: &Window, place: &Place) -> ((i32, i32), bool) {
        let (corner, leaves) = place.corner(pass, window);
        (corner, leaves && !self.is_padded)
    }

    /// Stores a result, and if it is not alone, those whose windows hold the same.
    ///
    /// # Safety
    /// It is there, in a pass that describes allocated memory; of windows that hold the same, one alone is taken.
    #[inline(always)]
    unsafe fn store(&self, pass: &Pass, window: &Window, (place, alone): &(Place, bool), byte: u32) {
        // SAFETY: as the caller promised; no window leaves the copy.
        unsafe {
            if *alone || !self.is_padded {
                return place.store(pass, byte);
            }
            let rows = self.alike.rows(pass, window, place, place.corner(pass, window).0);
            let mut y = rows.first;
            while y <= rows.last {
                Place { y, ..*place }.store(pass, byte);
                y = opaque(y + 1);
            }
        }
    }
}

/// Settles the results of a segment.
///
/// # Safety
/// The pass describes allocated memory; the launch has the block shape and the shared memory stated above; the whole block calls.
#[inline(always)]
unsafe fn settle(pass: &Pass, window: &Window, exact: Exact<'_>, segment: &Segment) {
    let shared = Shared::dynamic();
    let (mut first, mut turn) = (0, opaque(0));
    // SAFETY: as the caller promised; the block meets between what a warp stores and what others load.
    unsafe {
        while first < segment.count {
            if thread_y() == 0 {
                list(pass, window, exact, (segment.place(pass, window, first + thread_x() as i64), true));
            }
            barrier();
            let (inside, leaving) = (shared.load_word(COUNTS) as i32, shared.load_word(COUNTS + 1) as i32);
            // Those that lie in the image, then the others, from the list's end back.
            let (mut at, mut last) = (opaque(0), 31);
            while at < inside || last > 31 - leaving {
                let these = if at < inside {
                    let these = (at, inside);
                    add_up(take(window, exact, these), turn);
                    at += RESULTS as i32;
                    these
                } else {
                    let these = (last, last + 1);
                    add_up_one(take_one(pass, window, exact, last), turn);
                    last -= 1;
                    these
                };
                finish(pass, window, exact, these, turn);
                turn += 1;
            }
            // The list is in use until all are here.
            barrier();
            first += 32;
        }
    }
}

/// Lists each lane's result, which may be stored for itself alone: if its window lies in the image, from the first word on; else from the last.
///
/// # Safety
/// As for [`settle`], for one warp.
#[inline(always)]
pub(super) unsafe fn list(pass: &Pass, window: &Window, exact: Exact<'_>, (place, alone): (Place, bool)) {
    let (shared, lane) = (Shared::dynamic(), thread_x());
    let ((left, top), leaves) = exact.corner(pass, window, &place);
    let longer = goes_longer(exact.from, leaves);
    // SAFETY: as the caller promised.
    unsafe {
        let (inside, leaving) = (ballot(place.is_there() && !longer), ballot(place.is_there() && longer));
        if place.is_there() {
            let before = |lanes: u32| (lanes & ((1 << lane) - 1)).count_ones() as i32;
            let number = if longer { 31 - before(leaving) } else { before(inside) };
            let words = LISTED + WORDS * number;
            let start = exact.source(pass, &place).row_inside(top).at(left);
            shared.store2(words, [start as u32, (start >> 32) as u32].map(f32::from_bits));
            shared.store2(words + 2, [place.x as u32, place.y as u32].map(f32::from_bits));
            shared.store2(words + 4, [place.z as u32, alone as u32].map(f32::from_bits));
        }
        if lane == 0 {
            shared.store2(COUNTS, [inside.count_ones(), leaving.count_ones()].map(f32::from_bits));
        }
    }
}

/// Number `i` of the list, and whether it is stored for itself alone.
///
/// # Safety
/// There is one.
#[inline(always)]
unsafe fn listed(i: i32) -> (Place, bool) {
    let (shared, words) = (Shared::dynamic(), LISTED + WORDS * i);
    // SAFETY: as the caller promised.
    let ([x, y], [z, alone]) = unsafe { (shared.load2(words + 2), shared.load2(words + 4)) };
    let place = Place { x: x.to_bits() as i32, y: y.to_bits() as i32, z: z.to_bits() as i32 };
    (place, alone.to_bits() != 0)
}

/// What a thread's taps make of the results from number `at` on of so many whose windows lie in the image, RESULTS at most.
///
/// # Safety
/// As for [`settle`].
#[inline(always)]
unsafe fn take(window: &Window, exact: Exact<'_>, these: (i32, i32)) -> [f64; RESULTS] {
    /// Pixels that a thread loads before it waits for the first.
    const PIXELS: usize = TAPS * RESULTS;
    let thread = 32 * thread_y() + thread_x();
    // SAFETY: as the caller promised; taps, with their padding, and pixels are there.
    unsafe {
        let starts = starts(these);
        let mut sums = [0.0; RESULTS];
        let mut walk = Walk::new(window, thread, THREADS);
        let mut tap = exact.taps.wrapping_add(8 * thread as u64);
        let mut left_over = window.cols * window.rows - thread;
        while left_over > 0 {
            let (mut weights, mut offsets) = ([0.0; TAPS], [0; TAPS]);
            let mut t = 0;
            while t < TAPS {
                let (column, row) = walk.next(window);
                offsets[t] = (mul_wide(row, exact.from.row as i32) + mul_wide(column, exact.from.pixel)) as u64;
                weights[t] = load_f64(tap.wrapping_add(8 * THREADS as u64 * t as u64));
                t += 1;
            }
            let mut bytes = [0; PIXELS];
            let mut n = 0;
            while n < PIXELS {
                bytes[n] = load_u8(starts[n % RESULTS].wrapping_add(offsets[n / RESULTS]));
                n += 1;
            }
            n = 0;
            while n < PIXELS {
                sums[n % RESULTS] = fma_f64(weights[n / RESULTS], byte_to_f64(bytes[n]), sums[n % RESULTS]);
                n += 1;
            }
            tap = tap.wrapping_add(8 * (TAPS as i32 * THREADS) as u64);
            left_over -= TAPS as i32 * THREADS;
        }
        sums
    }
}

/// Where the windows begin of the results from number `at` on of so many: in place of results behind the last one, that one again.
///
/// # Safety
/// They are listed.
#[inline(always)]
pub(super) unsafe fn starts((at, count): (i32, i32)) -> [u64; RESULTS] {
    let mut starts = [0; RESULTS];
    let mut i = 0;
    while i < RESULTS {
        let words = LISTED + WORDS * (at + i as i32).min(count - 1);
        // SAFETY: as the caller promised.
        let [low, high] = unsafe { Shared::dynamic().load2(words) }.map(f32::to_bits);
        starts[i] = low as u64 | (high as u64) << 32;
        i += 1;
    }
    starts
}

/// Adds up within each warp what its threads have made of several results. The warps' sums are in shared memory then.
///
/// # Safety
/// As for [`settle`].
#[inline(always)]
pub(super) unsafe fn add_up(sums: [f64; RESULTS], turn: i32) {
    // SAFETY: as the caller promised.
    unsafe {
        let sum = added_each(sums);
        if thread_x() & 3 == 0 {
            Shared::dynamic().store_f64(sum_of(turn, thread_y(), thread_x() >> 2), sum);
        }
    }
}

/// The same of one result.
///
/// # Safety
/// As for [`settle`].
#[inline(always)]
unsafe fn add_up_one(sum: f64, turn: i32) {
    // SAFETY: as the caller promised.
    unsafe {
        let sum = added(sum);
        if thread_x() == 0 {
            Shared::dynamic().store_f64(sum_of(turn, thread_y(), 0), sum);
        }
    }
}

/// Stores the results from number `at` on of so many, RESULTS at most, whose warps' sums are in shared memory.
///
/// # Safety
/// As for [`settle`].
#[inline(always)]
pub(super) unsafe fn finish(pass: &Pass, window: &Window, exact: Exact<'_>, (at, count): (i32, i32), turn: i32) {
    // SAFETY: as the caller promised.
    unsafe {
        barrier();
        if is_turn(turn) {
            decide(pass, window, exact, (at, (count - at).min(RESULTS as i32)), turn);
        }
    }
}

/// Where a warp's sum of a number is, in words.
#[inline(always)]
fn sum_of(turn: i32, warp: i32, number: i32) -> i32 {
    SUMS + TURN * (turn & 1) + 2 * (RESULTS as i32 * warp + number)
}

/// Whether it is this warp's turn to decide.
#[inline(always)]
fn is_turn(turn: i32) -> bool {
    thread_y() == turn & (WARPS - 1)
}

/// What a thread's taps make of the result of this number, of any window.
///
/// # Safety
/// As for [`settle`].
#[inline(always)]
unsafe fn take_one(pass: &Pass, window: &Window, exact: Exact<'_>, number: i32) -> f64 {
    let thread = 32 * thread_y() + thread_x();
    // SAFETY: as the caller promised.
    let (place, _) = unsafe { listed(number) };
    let (source, ((left, top), _)) = (exact.source(pass, &place), place.corner(pass, window));
    let mut walk = Walk::new(window, thread, THREADS);
    let mut tap = exact.taps.wrapping_add(8 * thread as u64);
    let mut left_over = window.cols * window.rows - thread;
    let mut sum = 0.0;
    // SAFETY: as the caller promised; taps, with their padding, and pixels are there.
    unsafe {
        while left_over > 0 {
            let mut at = [(0, 0); EDGE_TAPS];
            let mut t = 0;
            while t < EDGE_TAPS {
                let (column, row) = walk.next(window);
                at[t] = (left + column, top + row);
                t += 1;
            }
            let values = gathered(&source, at);
            t = 0;
            while t < EDGE_TAPS {
                let weight = load_f64(tap.wrapping_add(8 * THREADS as u64 * t as u64));
                sum = fma_f64(weight, values[t], sum);
                t += 1;
            }
            tap = tap.wrapping_add(8 * (EDGE_TAPS as i32 * THREADS) as u64);
            left_over = opaque(left_over - EDGE_TAPS as i32 * THREADS);
        }
    }
    sum
}

/// Stores the bytes of so many listed results from number `first` on, which the warps' sums make, or the sums that define them.
///
/// # Safety
/// As for [`settle`], but for one warp.
#[inline(always)]
unsafe fn decide(pass: &Pass, window: &Window, exact: Exact<'_>, (first, count): (i32, i32), turn: i32) {
    let number = thread_x();
    let (mut all, mut warp) = (0.0, 0);
    // SAFETY: as the caller promised; lanes without a result read the sums of another, and store none.
    unsafe {
        while warp < WARPS {
            all = add_f64(all, Shared::dynamic().load_f64(sum_of(turn, warp, number.min(count - 1))));
            warp += 1;
        }
        if exact.point != 0.0 {
            let (place, _) = listed(first + number.min(count - 1));
            let byte = load_u8(exact.source(pass, &place).row_inside(place.y).at(place.x));
            all = fma_f64(exact.point, byte_to_f64(byte), all);
        }
        let (byte, distance) = to_byte(all);
        // A NaN may come from the other order alone.
        let sure = distance < 0.5 - exact.error && !all.is_nan();
        if number < count && sure {
            exact.store(pass, window, &listed(first + number), byte);
        }
        let mut left_over = ballot(number < count && !sure);
        while left_over != 0 {
            let result = listed(first + left_over.trailing_zeros() as i32);
            let (corner, leaves) = exact.corner(pass, window, &result.0);
            let source = exact.source(pass, &result.0);
            let numbers = NUMBERS + TOGETHER * thread_y();
            let sum = by_definition_together::<4>(&source, window, (exact.taps, numbers), corner, leaves);
            if thread_x() == 0 {
                exact.store(pass, window, &result, to_byte(sum).0);
            }
            left_over &= left_over - 1;
        }
    }
}

/// The warp's sums: number `i` in lanes `4 i` to `4 i + 3`.
///
/// # Safety
/// The whole warp calls.
#[inline(always)]
unsafe fn added_each(sums: [f64; RESULTS]) -> f64 {
    const { assert!(RESULTS == 8) };
    // SAFETY: as the caller promised.
    unsafe {
        // Each step leaves a lane with half as many results, and the other one's share of them.
        let [a, b, c, d, e, f, g, h] = sums;
        let upper = thread_x() & 16 != 0;
        let [a, b, c, d] = [half(upper, 16, a, e), half(upper, 16, b, f), half(upper, 16, c, g), half(upper, 16, d, h)];
        let upper = thread_x() & 8 != 0;
        let [a, b] = [half(upper, 8, a, c), half(upper, 8, b, d)];
        let mut sum = half(thread_x() & 4 != 0, 4, a, b);
        sum = add_f64(sum, exchanged(sum, 2));
        add_f64(sum, exchanged(sum, 1))
    }
}

/// Of two numbers the one that the lane keeps, plus that of the lane `apart`.
///
/// # Safety
/// The whole warp calls.
#[inline(always)]
unsafe fn half(upper: bool, apart: u32, low: f64, high: f64) -> f64 {
    let (kept, given) = if upper { (high, low) } else { (low, high) };
    // SAFETY: as the caller promised.
    add_f64(kept, unsafe { exchanged(given, apart) })
}
