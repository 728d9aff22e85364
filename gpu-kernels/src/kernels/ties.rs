//! Bytes of filters whose sums are often ties, such as means over even sizes: the sums in the order that defines the bytes (see `settle.rs`), of 32 results at a time.
//!
//! Where most of what is in doubt are ties, an estimate in another order decides nothing.
//! Thread mapping: a block for each segment of the list; a warp takes 32 results, a lane one of them. While its lanes sum up a piece of a row of all 32 windows from
//! shared memory, the warp loads the next piece, words of neighbouring pixels by neighbouring lanes: each lane by itself would wait for memory at every few taps. Of few
//! results a warp takes one after the other, whose products its lanes make; results of small windows are a thread's by itself.
//! Order of accumulation: row by row, left to right, each product and each sum rounded.
//! Shared memory: a word for the counter, then, for each warp, two pieces of 32 lines of pixels, and where 32 windows lie; or
//! products in f64.
//! Limits: as `settle.rs`.

use super::settle::{ALONE, Place, Segment, TOGETHER, by_definition, by_definition_together, each_segment};
use crate::abi::{Pass, Window};
use crate::border;
use crate::device::*;
use crate::pixel::{byte_to_f64, to_byte};
use crate::tile::view::Source;

/// Threads of a block.
pub const BLOCK: (u32, u32) = (32, 4);
/// Words of a piece of a window's row: two for each of 8 lanes.
const WORDS: i32 = 2 * LANES;
/// Lanes that load a window's piece.
const LANES: i32 = 8;
/// Windows whose pieces a lane has a part in: every fourth one.
const WINDOWS: usize = LANES as usize;
/// Windows whose pieces the warp loads at the same time.
const ACROSS: i32 = 32 / LANES;
/// Words from one line of pieces to the next: an odd number, so that the lanes' pixels lie in different banks.
const LINE: i32 = WORDS + 1;
/// Words of a piece of all windows.
const PIECE: i32 = 32 * LINE;
/// Words of a warp in shared memory, from word 4 on: two pieces, and an address for each window.
const OF_WARP: i32 = 2 * PIECE + 64;
/// Bytes of shared memory.
pub const SHARED: u32 = 4 * (4 + OF_WARP as u32 * BLOCK.1);
/// Results of a segment for each warp that are few.
const FEW: i32 = 8;
const _: () = assert!(TOGETHER <= OF_WARP);
/// Pixels at the image's edge that a lane loads before it waits for the first.
const EDGE_AT_ONCE: usize = 7;

kernel! {
    /// Settles the results in the pass's list. `taps` are the address of the window's taps in f64, row by row.
    fn settle_ties(pass: Pass, window: Window, taps: u64, planes: i32) {
        directive!(".maxnreg 64");
        each_segment(&pass, planes, |segment| settle(&pass, &window, taps, segment))
    }
}

/// Settles the results of a segment.
///
/// # Safety
/// As for [`define`].
#[inline(always)]
unsafe fn settle(pass: &Pass, window: &Window, taps: u64, segment: &Segment) {
    // Of few results a warp takes one after the other; of small windows with many, a thread takes one.
    let few = segment.count <= (FEW * block_height()) as i64;
    let alone = !few && window.cols * window.rows <= ALONE;
    let step = if few { 1 } else { 32 };
    let mut first = (step * thread_y()) as i64;
    // SAFETY: as the caller promised, and for the warp together.
    unsafe {
        while first < segment.count {
            let number = if few { first } else { first + thread_x() as i64 };
            let place = segment.place(pass, window, number);
            if !few && !alone {
                define(pass, window, taps, place);
            } else if place.is_there() {
                let source = Source::of_channel(&pass.src, pass, place.z);
                let (corner, leaves) = place.corner(pass, window);
                if few {
                    let numbers = 4 + OF_WARP * thread_y();
                    let sum = by_definition_together::<3>(&source, window, (taps, numbers), corner, leaves);
                    if thread_x() == 0 {
                        place.store(pass, to_byte(sum).0);
                    }
                } else {
                    place.store(pass, to_byte(by_definition(&source, window, taps, corner, leaves)).0);
                }
            }
            first += (step * block_height()) as i64;
        }
    }
}

/// Stores the bytes of 32 results, each lane that of its own, if it has one.
///
/// # Safety
/// The pass describes allocated memory; the launch has the block shape and the shared memory stated above; the whole warp calls.
#[inline(always)]
unsafe fn define(pass: &Pass, window: &Window, taps: u64, place: Place) {
    let (shared, lane) = (Shared::dynamic(), thread_x());
    // Pixels may run backwards in memory; in shared memory they never do.
    let backwards = pass.src.pixel < 0;
    let pixel = if backwards { 1 } else { pass.src.pixel };
    let pieces = 4 + OF_WARP * thread_y();
    let addresses = pieces + 2 * PIECE;
    let ((left, top), leaves) = place.corner(pass, window);
    // What lies outside may be no byte.
    let outside = pass.outside;
    let is_byte = (0.0..=255.0).contains(&outside) && outside == (outside as u32) as f32;
    let staged = place.is_there() && (!leaves || pass.border != border::CONSTANT || is_byte);
    // Whole words are loaded: three pixels beside the window have to be there.
    let inside = staged && !leaves && !backwards && left >= 3 && left + window.cols + 3 <= pass.width;
    let source = Source::of_channel(&pass.src, pass, place.z.max(0));
    let start = if inside { source.row_inside(top).at(left) } else { 0 };
    // SAFETY: as the caller promised; lanes meet between what they store and what others load.
    unsafe {
        // A bit for each window that is loaded as words; and where one of them lies. In place of each other window the lanes load that one, which is
        // of no account, so that there are no branches.
        let mut loaded = (inside as u32) << lane;
        let mut some = start;
        let mut apart = opaque(16);
        while apart > 0 {
            loaded |= exchange(loaded, apart as u32);
            let (low, high) = (exchange(some as u32, apart as u32), exchange((some >> 32) as u32, apart as u32));
            some = some.max(low as u64 | (high as u64) << 32);
            apart /= 2;
        }
        warp_barrier();
        let address = if inside { start } else { some };
        shared.store2(addresses + 2 * lane, [address as u32, (address >> 32) as u32].map(f32::from_bits));
        warp_barrier();
        // Taps of a piece: however its first pixel lies in a word, all fit.
        let most = (4 * WORDS - 4).checked_div(pixel).unwrap_or(0) + 1;
        let (mut ahead, mut here) = (Piece::FIRST, Piece::FIRST);
        let (mut sum, mut taps_at, mut slot) = (0.0, taps, 0);
        let mut first = true;
        while here.row < window.rows {
            let mut words = [[0; 2]; WINDOWS];
            if ahead.row < window.rows && loaded != 0 {
                words = ahead.load(pass, addresses, ahead.taps(window, most));
            }
            if !first {
                let count = here.taps(window, most);
                if staged {
                    let skipped = if inside { start.wrapping_add(here.offset(pass)) as i32 & 3 } else { 0 };
                    sum = add_piece(sum, (4 * (pieces + slot + LINE * lane) + skipped, pixel), taps_at, count);
                }
                taps_at = taps_at.wrapping_add(8 * count as u64);
                here.advance(window, most);
                slot = PIECE - slot;
            }
            first = false;
            if ahead.row < window.rows {
                // The other piece is the one that all have read before they met.
                let lines = pieces + slot;
                let mut i = 0;
                while i < WINDOWS {
                    let number = lane / LANES + ACROSS * i as i32;
                    // Lines of windows at an edge are their lanes' own.
                    if loaded >> number & 1 != 0 {
                        let at = lines + LINE * number + lane % LANES;
                        shared.store(at, f32::from_bits(words[i][0]));
                        shared.store(at + LANES, f32::from_bits(words[i][1]));
                    }
                    i += 1;
                }
                if staged && !inside {
                    ahead.bring(&source, (left, top), ahead.taps(window, most), (4 * (lines + LINE * lane), pixel));
                }
                ahead.advance(window, most);
            }
            warp_barrier();
        }
        if place.is_there() {
            if !staged {
                sum = by_definition(&source, window, taps, (left, top), leaves);
            }
            place.store(pass, to_byte(sum).0);
        }
    }
}

/// `sum` plus so many taps times pixels, each product and each sum rounded. The pixels lie in shared memory from a byte on, each so many bytes behind the last.
///
/// # Safety
/// Taps and pixels are there.
#[inline(always)]
unsafe fn add_piece(mut sum: f64, (mut at, pixel): (i32, i32), mut taps: u64, mut count: i32) -> f64 {
    // Loaded together, as the additions wait for each other anyway.
    const AT_ONCE: i32 = 4;
    let shared = Shared::dynamic();
    // SAFETY: as the caller promised.
    unsafe {
        while count >= AT_ONCE {
            let (mut bytes, mut weights) = ([0; AT_ONCE as usize], [0.0; AT_ONCE as usize]);
            let mut n = 0;
            while n < AT_ONCE as usize {
                bytes[n] = shared.load_u8(at + n as i32 * pixel);
                weights[n] = load_f64(taps.wrapping_add(8 * n as u64));
                n += 1;
            }
            let mut n = 0;
            while n < AT_ONCE as usize {
                sum = add_f64(sum, mul_f64(weights[n], byte_to_f64(bytes[n])));
                n += 1;
            }
            at += AT_ONCE * pixel;
            taps = taps.wrapping_add(8 * AT_ONCE as u64);
            count -= AT_ONCE;
        }
        while count > 0 {
            let (byte, weight) = (shared.load_u8(at), load_f64(taps));
            sum = add_f64(sum, mul_f64(weight, byte_to_f64(byte)));
            at += pixel;
            taps = taps.wrapping_add(8);
            count = opaque(count - 1);
        }
    }
    sum
}

/// A piece of the windows' rows: its first column, and its row.
#[derive(Clone, Copy)]
struct Piece {
    column: i32,
    row: i32,
}

impl Piece {
    const FIRST: Self = Self { column: 0, row: 0 };

    /// How many taps it has, of at most so many.
    #[inline(always)]
    fn taps(&self, window: &Window, most: i32) -> i32 {
        (window.cols - self.column).min(most)
    }

    /// Bytes from the window's first pixel to the piece's.
    #[inline(always)]
    fn offset(&self, pass: &Pass) -> u64 {
        (self.row as i64).wrapping_mul(pass.src.row).wrapping_add(mul_wide(self.column, pass.src.pixel)) as u64
    }

    /// On to the next.
    #[inline(always)]
    fn advance(&mut self, window: &Window, most: i32) {
        self.column += most;
        if self.column >= window.cols {
            (self.column, self.row) = (0, self.row + 1);
        }
    }

    /// The lane's two words of its windows, whose first pixels' addresses lie in shared memory.
    ///
    /// # Safety
    /// The windows lie in the image, with three pixels to each side.
    #[inline(always)]
    unsafe fn load(&self, pass: &Pass, addresses: i32, count: i32) -> [[u32; 2]; WINDOWS] {
        let (offset, last) = (self.offset(pass), (count - 1) * pass.src.pixel);
        let (shared, byte) = (Shared::dynamic(), 4 * (thread_x() % LANES));
        let mut words = [[0; 2]; WINDOWS];
        let mut i = 0;
        while i < WINDOWS {
            let number = thread_x() / LANES + ACROSS * i as i32;
            // SAFETY: as the caller promised; the first and the last word of the piece lie in the image, as there are three pixels beside the window.
            unsafe {
                let [low, high] = shared.load2(addresses + 2 * number).map(f32::to_bits);
                let from = (low as u64 | (high as u64) << 32).wrapping_add(offset);
                // Words behind the piece are its last one again.
                let end = ((from as i32 & 3) + last) & !3;
                let at = |byte: i32| (from & !3).wrapping_add(byte.min(end) as u32 as u64);
                [words[i][0]] = load_words::<1>(at(byte));
                [words[i][1]] = load_words::<1>(at(byte + 4 * LANES));
            }
            i += 1;
        }
        words
    }

    /// Brings the pixels of the lane's own window, whose first column and row are given, through the border rule to shared memory, from a byte on and so many bytes apart.
    ///
    /// # Safety
    /// The pass describes allocated memory; there is room.
    #[inline(always)]
    unsafe fn bring(&self, source: &Source<'_>, (left, top): (i32, i32), count: i32, (at, apart): (i32, i32)) {
        let (shared, pass) = (Shared::dynamic(), source.pass);
        let row = source.row(top + self.row);
        let mut tap = opaque(0);
        while tap < count {
            // Without branches between the loads: one behind a branch would be waited for before the next is issued.
            let (mut from, mut inside) = ([0; EDGE_AT_ONCE], [true; EDGE_AT_ONCE]);
            let mut n = 0;
            while n < EDGE_AT_ONCE {
                let x = left + self.column + (tap + n as i32).min(count - 1);
                let x = border::resolve(pass.border, x, pass.width);
                inside[n] = x >= 0 && row.is_inside();
                from[n] = row.at(x.max(0));
                n += 1;
            }
            let mut bytes = [0; EDGE_AT_ONCE];
            let mut n = 0;
            while n < EDGE_AT_ONCE {
                // SAFETY: a pixel of the image.
                bytes[n] = unsafe { load_u8(from[n]) };
                n += 1;
            }
            let mut n = 0;
            while n < EDGE_AT_ONCE {
                if tap + (n as i32) < count {
                    let byte = if inside[n] { bytes[n] } else { pass.outside as u32 };
                    // SAFETY: as the caller promised.
                    unsafe { shared.store_u8(at + (tap + n as i32) * apart, byte) };
                }
                n += 1;
            }
            tap += EDGE_AT_ONCE as i32;
        }
    }
}
