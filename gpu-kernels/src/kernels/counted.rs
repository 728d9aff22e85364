//! Counts the results in a list, so that all blocks of a kernel that settles them have as many, wherever in the list they are.
//!
//! Thread mapping: one block, a thread for each segment of the list. It empties the list's counters, too.
//! Shared memory: two words a thread.
//! Of all results, `list_different` in `alike.rs` may choose those that are to be computed.
//! Limits: fewer than 2^31 results.

use super::settle::{Place, Segment};
use crate::abi::{Doubts, Pass, Window};
use crate::device::*;

/// Threads of the block.
pub const BLOCK: (u32, u32) = (32, Doubts::SEGMENTS as u32 / 32);
/// Bytes of its shared memory.
pub const SHARED: u32 = 8 * Doubts::SEGMENTS as u32;

/// How many results are in doubt, in memory: see above.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// The address of words: for each segment how many results lie in those before it, then how many there are; how many each has noted; how many are taken, how
    /// many are chosen, and in how many tiles something was found (see `alike.rs`).
    pub at: u64,
    /// The address of a word for each that is chosen: its number, and as the highest bit whether it is stored for itself alone. 0 if all are taken.
    pub chosen: u64,
    /// If there are more, all are taken.
    pub most: i32,
}

/// A chosen result is stored for itself alone.
const ALONE: u32 = 1 << 31;

impl Counts {
    /// Bytes of these words, and some more.
    pub const BYTES: usize = 8 * Doubts::SEGMENTS as usize + 128;

    /// The word of those before a segment.
    #[inline(always)]
    fn before(&self, segment: i32) -> u64 {
        self.at.wrapping_add(4 * segment as u64)
    }

    /// The word of those that it has noted.
    #[inline(always)]
    fn noted(&self, segment: i32) -> u64 {
        self.before(Doubts::SEGMENTS + 1 + segment)
    }

    /// The word of those that are taken.
    #[inline(always)]
    fn taken(&self) -> u64 {
        self.noted(Doubts::SEGMENTS)
    }

    /// The word of those that are chosen.
    #[inline(always)]
    fn listed(&self) -> u64 {
        self.taken().wrapping_add(4)
    }

    /// The word of tiles in which something was found.
    #[inline(always)]
    fn tiles(&self) -> u64 {
        self.taken().wrapping_add(8)
    }

    /// How many there are.
    ///
    /// # Safety
    /// They have been counted.
    #[inline(always)]
    pub(super) unsafe fn all(&self) -> i32 {
        // SAFETY: as the caller promised.
        unsafe { reload_word(self.before(Doubts::SEGMENTS)) as i32 }
    }

    /// Notes that something was found in a tile.
    ///
    /// # Safety
    /// As for [`Self::all`].
    #[inline(always)]
    pub(super) unsafe fn note_tile(&self) {
        // SAFETY: as the caller promised.
        unsafe { atomic_add(self.tiles(), 1) };
    }

    /// Whether some are chosen, of all: not if there are too many, or nothing was found.
    ///
    /// # Safety
    /// As for [`Self::all`].
    #[inline(always)]
    pub(super) unsafe fn are_chosen(&self) -> bool {
        // SAFETY: as the caller promised.
        self.chosen != 0 && unsafe { self.all() <= self.most && reload_word(self.tiles()) != 0 }
    }

    /// How many are to be taken.
    ///
    /// # Safety
    /// As for [`Self::all`]; they are chosen, or all are taken.
    #[inline(always)]
    pub(super) unsafe fn left(&self) -> i32 {
        // SAFETY: as the caller promised.
        unsafe { if self.are_chosen() { reload_word(self.listed()) as i32 } else { self.all() } }
    }

    /// The number among all of number `i` of those that are to be taken, and whether it is stored for itself alone.
    ///
    /// # Safety
    /// As for [`Self::left`]; there are so many.
    #[inline(always)]
    pub(super) unsafe fn number(&self, i: i32) -> (i32, bool) {
        // SAFETY: as the caller promised.
        unsafe {
            if !self.are_chosen() {
                return (i, true);
            }
            let word = reload_word(self.chosen.wrapping_add(4 * i as u64));
            ((word & !ALONE) as i32, word & ALONE != 0)
        }
    }

    /// Adds so many to those that are chosen, and says how many they were before.
    ///
    /// # Safety
    /// As for [`Self::all`].
    #[inline(always)]
    pub(super) unsafe fn add(&self, many: u32) -> u32 {
        // SAFETY: as the caller promised.
        unsafe { atomic_add(self.listed(), many) }
    }

    /// Chooses result number `number`, as the `i`-th.
    ///
    /// # Safety
    /// There is room for so many.
    #[inline(always)]
    pub(super) unsafe fn list(&self, i: u32, number: i32, alone: bool) {
        let word = number as u32 | if alone { ALONE } else { 0 };
        // SAFETY: as the caller promised.
        unsafe { store_words(self.chosen.wrapping_add(4 * i as u64), [word]) };
    }

    /// Takes so many, and says which is the first of them; there may be none.
    ///
    /// # Safety
    /// They have been counted.
    #[inline(always)]
    pub(super) unsafe fn take(&self, many: i32) -> i32 {
        // SAFETY: as the caller promised.
        unsafe { atomic_add(self.taken(), many as u32) as i32 }
    }

    /// Number `number` of all, if it is a sum (see [`Segment::place`]); and whether it was in doubt, or is one of a segment whose places did not suffice.
    ///
    /// # Safety
    /// There are so many.
    #[inline(always)]
    pub(super) unsafe fn place(&self, pass: &Pass, window: &Window, planes: i32, number: i32) -> (Place, bool) {
        // The last segment that does not begin behind it.
        let (mut segment, mut step) = (0, opaque(Doubts::SEGMENTS / 2));
        // SAFETY: as the caller promised.
        unsafe {
            while step > 0 {
                segment += if reload_word(self.before(segment + step)) as i32 <= number { step } else { 0 };
                step /= 2;
            }
            let number = number - reload_word(self.before(segment)) as i32;
            let noted = reload_word(self.noted(segment));
            let segment = Segment::new(pass, segment, noted, planes);
            (segment.place(pass, window, number as i64), !segment.is_all)
        }
    }
}

kernel! {
    /// Counts the results in the pass's list, and empties its counters.
    fn count_doubts(pass: Pass, planes: i32, counts: Counts) {
        let (shared, thread) = (Shared::dynamic(), 32 * thread_y() + thread_x());
        let counter = pass.doubts.counter(thread);
        let noted = reload_word(counter);
        let own = Segment::new(&pass, thread, noted, planes).count as u32;
        if noted != 0 {
            store_words(counter, [0]);
        }
        // The sum of those up to this one, of twice as many each time; by turns in either half of shared memory.
        let (mut sum, mut apart, mut half) = (own, opaque(1), 0);
        while apart < Doubts::SEGMENTS {
            shared.store(half + thread, f32::from_bits(sum));
            barrier();
            sum += if thread >= apart { shared.load_word(half + thread - apart) } else { 0 };
            apart *= 2;
            half ^= Doubts::SEGMENTS;
        }
        store_words(counts.before(thread), [sum - own]);
        store_words(counts.noted(thread), [noted]);
        if thread == Doubts::SEGMENTS - 1 {
            store_words(counts.before(Doubts::SEGMENTS), [sum]);
            store_words(counts.taken(), [0]);
            store_words(counts.listed(), [0]);
            store_words(counts.tiles(), [0]);
        }
    }
}
