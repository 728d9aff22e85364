//! Counts the results in a list, so that all blocks of a kernel that settles them have as many, wherever in the list they are; and brings those that are to be computed into the
//! order of where they are, so that blocks read pixels that others have brought into the caches, if that is asked for.
//!
//! Thread mapping: `count_doubts` is one block, a thread for each segment of the list. It empties the list's counters, too. Of all results, `choose_different` in `alike.rs` chooses those
//! that are to be computed, and counts how many lie in each tile of the image. `sort_chosen` has a thread for each of all results, and each block adds up the counts by itself.
//! Shared memory: `count_doubts` two words a thread; `sort_chosen` a word for each count, and two a thread.
//! Limits: fewer than 2^31 results.

use super::settle::{Place, Segment};
use crate::abi::{Doubts, Pass, Window};
use crate::device::*;

/// Threads of the block.
pub const BLOCK: (u32, u32) = (32, Doubts::SEGMENTS as u32 / 32);
/// Bytes of its shared memory.
pub const SHARED: u32 = 8 * Doubts::SEGMENTS as u32;
/// Threads of a block of `sort_chosen`.
pub const SORT_BLOCK: (u32, u32) = (32, THREADS as u32 / 32);
const THREADS: i32 = 256;
/// Bytes of its shared memory.
pub const SORT_SHARED: u32 = 4 * (slot(BINS) + 2 * THREADS) as u32;

/// Counts of results by where they are, at most: a power of two.
const BINS: i32 = 1 << 12;
/// Columns and rows of a tile of one plane, whose results are counted together: `2^7`. Where tiles are more than [`BINS`], so are those of neighbours.
const TILE_BITS: i32 = 7;
/// Counts that a thread adds up.
const OWN: usize = (BINS / THREADS) as usize;
const _: () = assert!(BINS % THREADS == 0 && OWN.is_multiple_of(4));

/// The word of shared memory for a tile: one of 33 is left out, as threads store those of [`OWN`] neighbours each, and would meet in two banks.
const fn slot(bin: i32) -> i32 {
    bin + bin / 32
}

/// How many results are in doubt, in memory: see above.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// The address of words: for each segment how many results lie in those before it, then how many there are; how many each has noted; how many are taken, how
    /// many are chosen.
    pub at: u64,
    /// The address of four words for each of those that are chosen: column, row, channel as the z axis counts it, and whether it is stored for itself alone. 0 if all are taken.
    pub chosen: u64,
    /// The address of words, if those that are chosen are sorted: how many lie in each tile, and how many of these have their place in the order. Then a half word for each of all: the
    /// number of its tile, and what it is chosen for. 0 if they are not sorted.
    pub tiles: u64,
    /// If there are more, all are taken.
    pub most: i32,
}

/// Beside the number of a result's tile: that it is stored for itself alone, and that it is chosen.
const ALONE: u32 = 1 << 14;
const CHOSEN: u32 = 1 << 15;

impl Counts {
    /// Bytes of the words of all, and some more.
    pub const BYTES: usize = 8 * Doubts::SEGMENTS as usize + 128;
    /// Bytes for each of those that are chosen, and for each of all if they are sorted.
    const LISTED: usize = 16;
    const MARKED: usize = 2;
    /// Bytes of the words of tiles.
    const TILES: usize = 8 * BINS as usize;

    /// All are taken; counted in memory from an address on.
    pub const fn of_all(at: u64) -> Self {
        Self { at, chosen: 0, tiles: 0, most: 0 }
    }

    /// The same, but at most so many are not all taken; those that are chosen are listed from an address on, a multiple of 16, sorted or not.
    pub const fn choosing(self, chosen: u64, most: usize, sorts: bool) -> Self {
        let tiles = if sorts { chosen.wrapping_add((Self::LISTED * most) as u64) } else { 0 };
        Self { chosen, tiles, most: most as i32, ..self }
    }

    /// Bytes for those that are chosen of so many.
    pub const fn bytes_chosen(most: usize, sorts: bool) -> usize {
        Self::LISTED * most + if sorts { Self::TILES + Self::MARKED * most } else { 0 }
    }

    /// Of how many some can be chosen and sorted in so many bytes.
    pub const fn most_sorted(bytes: usize) -> usize {
        bytes.saturating_sub(Self::TILES) / (Self::LISTED + Self::MARKED)
    }

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

    /// How many there are.
    ///
    /// # Safety
    /// They have been counted.
    #[inline(always)]
    pub(super) unsafe fn all(&self) -> i32 {
        // SAFETY: as the caller promised.
        unsafe { reload_word(self.before(Doubts::SEGMENTS)) as i32 }
    }

    /// The word of the results in a tile.
    #[inline(always)]
    fn bin(&self, bin: i32) -> u64 {
        self.tiles.wrapping_add(4 * bin as u64)
    }

    /// The word of those of a tile that have their place in the order.
    #[inline(always)]
    fn filled(&self, bin: i32) -> u64 {
        self.bin(BINS + bin)
    }

    /// Whether some are chosen, of all: not if there are too many.
    ///
    /// # Safety
    /// As for [`Self::all`].
    #[inline(always)]
    pub(super) unsafe fn are_chosen(&self) -> bool {
        // SAFETY: as the caller promised.
        self.chosen != 0 && unsafe { self.all() <= self.most }
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

    /// Number `i` of the results that are to be taken, if it is a sum, and whether it is stored for itself alone.
    ///
    /// # Safety
    /// As for [`Self::left`]; there are so many.
    #[inline(always)]
    pub(super) unsafe fn result(&self, pass: &Pass, window: &Window, planes: i32, i: i32) -> (Place, bool) {
        // SAFETY: as the caller promised.
        unsafe {
            if !self.are_chosen() {
                return (self.place(pass, window, planes, i).0, true);
            }
            let [x, y, z, alone] = load_words::<4>(self.listed_at(i));
            (Place { x: x as i32, y: y as i32, z: z as i32 }, alone != 0)
        }
    }

    /// The address of number `i` of those that are chosen.
    #[inline(always)]
    fn listed_at(&self, i: i32) -> u64 {
        self.chosen.wrapping_add(mul_wide(Self::LISTED as i32, i) as u64)
    }

    /// Notes whether result number `number`, at this place, is chosen; and if so, whether it is stored for itself alone. If it is to be sorted, it is only marked, else it is listed.
    ///
    /// # Safety
    /// As for [`Self::left`]; there are so many.
    #[inline(always)]
    pub(super) unsafe fn note(&self, pass: &Pass, planes: i32, number: i32, (place, alone): (Place, Option<bool>)) {
        // SAFETY: as the caller promised; one thread has the number, and the list has room for as many as there are.
        unsafe {
            match alone {
                Some(alone) if self.tiles != 0 => {
                    let bin = bin_of(pass, planes, &place);
                    atomic_add(self.bin(bin), 1);
                    store_u16(self.marked(number), bin as u32 | CHOSEN | if alone { ALONE } else { 0 });
                }
                None if self.tiles != 0 => store_u16(self.marked(number), 0),
                Some(alone) => self.list(atomic_add(self.listed(), 1) as i32, &place, alone),
                None => {}
            }
        }
    }

    /// Lists a result as number `i` of those that are chosen.
    ///
    /// # Safety
    /// There is room for it, and no other has the number.
    #[inline(always)]
    unsafe fn list(&self, i: i32, place: &Place, alone: bool) {
        let words = [place.x, place.y, place.z, alone as i32].map(|word| word as u32);
        // SAFETY: as the caller promised.
        unsafe { store_words(self.listed_at(i), words) };
    }

    /// The address of result number `number`'s mark.
    #[inline(always)]
    fn marked(&self, number: i32) -> u64 {
        self.bin(2 * BINS).wrapping_add(mul_wide(Self::MARKED as i32, number) as u64)
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

/// The count that a result belongs to: tiles lie row by row, plane by plane.
#[inline(always)]
fn bin_of(pass: &Pass, planes: i32, place: &Place) -> i32 {
    let region = &pass.region;
    let tiles = |pixels: i32| (pixels + (1 << TILE_BITS) - 1) >> TILE_BITS;
    let (across, down) = (tiles(region.x1 - region.x0), tiles(region.y1 - region.y0));
    let (column, row) = ((place.x - region.x0) >> TILE_BITS, (place.y - region.y0) >> TILE_BITS);
    let shift = 32 - ((planes * across * down - 1) as u32 / BINS as u32).leading_zeros();
    ((place.z * down + row) * across + column) >> shift
}

kernel! {
    /// Counts the results in the pass's list, and empties its counters.
    fn count_doubts(pass: Pass, planes: i32, counts: Counts) {
        let thread = 32 * thread_y() + thread_x();
        let counter = pass.doubts.counter(thread);
        let noted = reload_word(counter);
        let own = Segment::new(&pass, thread, noted, planes).count as u32;
        if noted != 0 {
            store_words(counter, [0]);
        }
        let sum = up_to(own, 0, (thread, Doubts::SEGMENTS));
        store_words(counts.before(thread), [sum - own]);
        store_words(counts.noted(thread), [noted]);
        if thread == Doubts::SEGMENTS - 1 {
            store_words(counts.before(Doubts::SEGMENTS), [sum]);
            store_words(counts.taken(), [0]);
            store_words(counts.listed(), [0]);
        }
        let mut bin = thread;
        while counts.tiles != 0 && bin < 2 * BINS {
            store_words(counts.bin(bin), [0]);
            bin += Doubts::SEGMENTS;
        }
    }

    /// Lists the results that are chosen in the order of where they are.
    fn sort_chosen(pass: Pass, window: Window, planes: i32, counts: Counts) {
        let (shared, thread, all) = (Shared::dynamic(), 32 * thread_y() + thread_x(), counts.all());
        let mut number = THREADS * block_x() + thread;
        if counts.are_chosen() && number - thread < all {
            let chosen = begin(counts, thread);
            // The first block says how many they are.
            if number == THREADS - 1 {
                store_words(counts.listed(), [chosen]);
            }
            while number < all {
                let mark = load_u16(counts.marked(number));
                if mark & CHOSEN != 0 {
                    let bin = (mark as i32) & (BINS - 1);
                    let i = shared.load_word(slot(bin)) as i32 + atomic_add(counts.filled(bin), 1) as i32;
                    let (place, _) = counts.place(&pass, &window, planes, number);
                    counts.list(i, &place, mark & ALONE != 0);
                }
                number += THREADS * grid_width();
            }
        }
    }
}

/// Stores in shared memory how many results lie in the tiles before each. Returns how many lie in all tiles up to the thread's last one.
///
/// # Safety
/// They have been counted; the whole block calls.
#[inline(always)]
unsafe fn begin(counts: Counts, thread: i32) -> u32 {
    let (first, mut bins) = (OWN as i32 * thread, [0; OWN]);
    // SAFETY: as the caller promised; the block meets between what a thread stores and what others load.
    unsafe {
        let (mut own, mut i) = (0, 0);
        while i < OWN {
            let some = load_words::<4>(counts.bin(first + i as i32));
            let mut n = 0;
            while n < 4 {
                bins[i + n] = some[n];
                own += some[n];
                n += 1;
            }
            i += 4;
        }
        let sum = up_to(own, slot(BINS), (thread, THREADS));
        let mut before = sum - own;
        i = 0;
        while i < OWN {
            Shared::dynamic().store(slot(first + i as i32), f32::from_bits(before));
            before += bins[i];
            i += 1;
        }
        barrier();
        sum
    }
}

/// The sum of the numbers that threads have, up to this thread's own: of so many threads, which have two words of shared memory each, from word `first` on.
///
/// # Safety
/// The whole block calls, whose shared memory has so many words.
#[inline(always)]
unsafe fn up_to(own: u32, first: i32, (thread, threads): (i32, i32)) -> u32 {
    let shared = Shared::dynamic();
    // Of twice as many each time; by turns in either half.
    let (mut sum, mut apart, mut half) = (own, opaque(1), 0);
    while apart < threads {
        // SAFETY: as the caller promised; the block meets between what a thread stores and what others load.
        unsafe {
            shared.store(first + half + thread, f32::from_bits(sum));
            barrier();
            sum += if thread >= apart { shared.load_word(first + half + thread - apart) } else { 0 };
        }
        apart *= 2;
        half ^= threads;
    }
    sum
}
