//! Separable correlation of bytes to bytes on the tensor cores: row and column pass in one kernel,
//! for one product of a row and a column or the sum of two.
//!
//! Taps are whole multiples of a power of two, in three signed digits to the base 256. Row sums are
//! joined, shifted to be positive and cut to 24 bits: three unsigned bytes. The column pass adds
//! the six greater of their nine products with its digits, joins the sums and rounds once. A term
//! of the pixel itself is added to the joined sum.
//!
//! Tiling: `tile/strip.rs`. A block is a warp; it slides down a strip of [`TILES`] tiles, 16 rows
//! at a time, G tiles at a time. Row sums for later results wait in shared memory, one word a lane.
//! Entries that split channels take strips of 16 pixels, each channel as a tile.
//!
//! Thread mapping: in the row pass the first factor is a band of taps, the second one 8 rows of 32
//! bytes; a lane gets sums of neighbouring rows. With the rows of a block of 16 in the order 0, 1,
//! 8, 9, 2, 3, 10, 11 and so on, these are what the same lane needs of the column pass's second
//! factor: no value passes between lanes.
//!
//! Rounding: results so near a half that the cut could change the byte go to the work list; the
//! host states the bound. Limits: no epilogue; blocks and rows fit in shared memory; the value
//! outside the image is a byte. KEEP is left to `keep.rs`.

use crate::abi::Pass;
use crate::device::*;
use crate::tile::strip::{AHEAD, Feed, Output, Ring, Strip, Sums, TILE};
use crate::tile::whole::Rounding;

/// Tiles side by side that a strip has if channels are not parted.
pub const TILES: usize = 4;

/// How the digits' sums of a row pass make a number.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Across {
    /// By how many bits the sums of the lowest digit are shifted down;
    pub down: i32,
    /// by what the second digit's are multiplied,
    pub second: i32,
    /// and the third one's.
    pub third: i32,
}

/// The factors of both passes, and what is done between and after them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bands {
    /// The address of the row's fragments: for each step and digit (from the lowest on) four words
    /// of each lane. Then those of the second term's row.
    pub row: u64,
    /// The address of the column's, a step for each two blocks of 16 rows; of two terms, for a
    /// block of each.
    pub column: u64,
    /// The address of what sums of second digits begin with, four times each: those of each term's
    /// row pass, which are joined to a number whose upper 24 bits the column pass takes; and those
    /// of the column pass. Sums that begin with four words from memory need one instruction for
    /// them.
    pub begin: u64,
    /// Steps of a row pass: times 32 bytes.
    pub steps: i32,
    /// Bytes from a row's first half of 16 in the last step to the second one: 0 if that is not
    /// needed.
    pub last: i32,
    /// Blocks of 16 rows that 16 rows of results need, of each term.
    pub blocks: i32,
    /// The row pass of each term.
    pub across: [Across; 2],
    /// What a value itself is multiplied by beside the products, in units of a joined sum; 0 if it
    /// is in them.
    pub point: i32,
    /// The rows.
    pub ring: Ring,
    /// How the sums of the column pass become bytes.
    pub rounding: Rounding,
}

/// Bytes of shared memory in which so many blocks of sums of so many tiles wait.
pub const fn stored_bytes(blocks: usize, tiles: usize) -> usize {
    4 * 32 * WORDS * tiles * blocks
}

/// Words of a lane in a tile's block: see [`Block`].
const WORDS: usize = 6;

/// Whether uncertain results wait, with so many steps and terms: where a kernel does less for a
/// result than they cost.
const fn waits(steps: usize, terms: usize) -> bool {
    steps == 1 && terms == 1
}

/// Declares the entries and lists them. A row: the name, then blocks of 16 rows that a result needs
/// (0: any number), steps of the row pass (0: any number), channels that are split (1: none), tiles
/// of a strip, tiles at a time, terms, and the most registers of a thread.
macro_rules! separable_matrix {
    ($($name:ident: $h:literal, $r:literal, $p:literal, $t:literal, $g:literal, $n:literal, $limit:literal;)*) => {
        kernel! {$(
            fn $name(pass: Pass, bands: Bands, channels: i32, filtered: i32, rows: i32) {
                directive!($limit);
                slide::<$h, $r, $p, $t, $g, $n, { waits($r, $n) }>(&pass, &bands, (channels, filtered), rows)
            }
        )*}

        host! {
            /// The entries; of those that take a problem, the first is the fastest.
            pub const ENTRIES: &[SeparableMatrix] =
                &[$(SeparableMatrix { entry: $name, blocks: $h, steps: $r, parted: $p, tiles: $t, terms: $n, waits: waits($r, $n) }),*];
        }
    };
}

separable_matrix! {
    separable_matrix_17_one: 2, 1, 1, 4, 2, 1, ".maxnreg 128";
    separable_matrix_17_two: 2, 2, 1, 4, 2, 1, ".maxnreg 128";
    separable_matrix_17_three: 2, 3, 1, 4, 2, 1, ".maxnreg 128";
    separable_matrix_33_two: 3, 2, 1, 4, 2, 1, ".maxnreg 128";
    separable_matrix_any: 0, 0, 1, 2, 2, 1, ".maxnreg 128";
    separable_matrix_rgb: 0, 0, 3, 3, 3, 1, ".maxnreg 128";
    separable_matrix_rgba: 0, 0, 4, 4, 4, 1, ".maxnreg 168";
    separable_matrix_two_17_one: 2, 1, 1, 4, 2, 2, ".maxnreg 128";
    separable_matrix_two_17_two: 2, 2, 1, 4, 2, 2, ".maxnreg 128";
    separable_matrix_two_17_three: 2, 3, 1, 4, 2, 2, ".maxnreg 128";
    separable_matrix_two_33_two: 3, 2, 1, 2, 2, 2, ".maxnreg 128";
    separable_matrix_two_33_three: 3, 3, 1, 2, 2, 2, ".maxnreg 128";
    separable_matrix_two: 0, 0, 1, 2, 2, 2, ".maxnreg 128";
    separable_matrix_two_rgb: 0, 0, 3, 3, 3, 2, ".maxnreg 128";
    separable_matrix_two_rgba: 0, 0, 4, 4, 4, 2, ".maxnreg 168";
}

host! {
    /// An entry: the pass, the bands, the channels of a pixel, how many of them are filtered, the
    /// rows of a strip (a multiple of 16).
    #[derive(Clone, Copy, Debug)]
    pub struct SeparableMatrix {
        /// What to launch.
        pub entry: crate::entry::Entry<(Pass, Bands, i32, i32, i32)>,
        /// Blocks of 16 rows that 16 rows of results need; 0 for any number.
        pub blocks: usize,
        /// Steps of the row pass; 0 for any number.
        pub steps: usize,
        /// Channels, if they are parted; else 1.
        pub parted: usize,
        /// Tiles of a strip.
        pub tiles: usize,
        /// Products of a row and a column.
        pub terms: usize,
        /// Whether uncertain results wait in shared memory.
        pub waits: bool,
    }
}

/// The digits of 16 columns of 16 rows: for each half of the columns and digit, from the lowest on,
/// those of four rows, as a word.
type Block = [[u32; 3]; 2];

/// Filters a strip from top to bottom.
///
/// # Safety
/// `pass` describes allocated memory and keeps the limits above; `bands` are made for it. The
/// launch has blocks of a warp, as many in x as there are strips, and the shared memory that the
/// ring and the blocks need, and uncertain results if they wait.
#[inline(always)]
unsafe fn slide<
    const H: usize,
    const R: usize,
    const P: usize,
    const T: usize,
    const G: usize,
    const N: usize,
    const WAITS: bool,
>(
    pass: &Pass,
    bands: &Bands,
    (channels, filtered): (i32, i32),
    rows: i32,
) {
    const { assert!(H != 1 && T.is_multiple_of(G) && (P == 1 || (P == 3 || P == 4) && T == P && G == P)) }
    const { assert!(N == 1 || N == 2 && (H == 0) == (R == 0)) }
    let ring = &bands.ring;
    let strip = Strip::new::<P>(pass, ring, channels, T as i32, rows);
    let mut feed = Feed::<P>::new(pass, ring, channels, strip);
    // SAFETY: as the caller promised.
    let mut output = unsafe { Output::<P, G, WAITS>::new(pass, ring, (channels, filtered), strip) };
    let lane = thread_x();
    // SAFETY: as the caller promised; the places lie in the ring, all lanes are here at each
    // product, and the results are this warp's.
    unsafe {
        let (row, column) =
            (bands.row.wrapping_add(16 * lane as u64), bands.column.wrapping_add(16 * lane as u64));
        let mut near = Near::<H, R, N>::load((row, column));
        // Each 8 lanes have the addresses of 8 rows: the upper ones' first half of 16 bytes, their
        // second half, and the same of the lower ones.
        let (line, second) = ((lane & 7) + (lane >> 4 << 3), 16 * (lane >> 3 & 1));
        let (size, group) = (ring.shared_bytes(), 16 * ring.pitch);
        let mut start = line * ring.pitch;
        let blocks = if H > 0 { H as i32 } else { bands.blocks };
        // Of all terms.
        let terms = N as i32;
        let all = terms * blocks;
        let slots = if H > 0 { terms * (H as i32 - 1) } else { all };
        let mut stored = Stored { oldest: 0, slots, begin: (ring.with_doubts(WAITS) >> 2) + lane };
        // Groups that are under way before the first is waited for, and blocks that results wait
        // for.
        let (mut ahead, mut missing) = (if P == 1 { AHEAD } else { 0 }, blocks - 1);
        while output.has_rows() {
            if P == 1 && ahead <= 0 {
                copies_wait::<{ AHEAD - 1 }>();
                warp_barrier();
            }
            feed.start(|| near = Near::load((row, column)));
            ahead -= 1;
            if ahead >= 0 {
                continue;
            }
            if P > 1 {
                warp_barrier();
            }
            if output.is_last() {
                // So that the next one is there when this one ends. Any sooner, it would take the
                // places of blocks that have not begun.
                let_next_kernel_begin();
            }
            let mut tile = opaque(0);
            while tile < T as i32 {
                keep_rolled();
                let apart = if P == 1 { TILE } else { ring.tile };
                let at = (start + apart * tile, second, apart);
                let mut new = [[[[0; 3]; 2]; G]; N];
                new[0] = across::<R, G, N>(bands, at, (0, row), &near.row);
                if H == 0 {
                    stored.put::<T, G>(all - terms, tile, &new[0]);
                }
                // Under way while the last row pass is computed.
                let first = if H == 0 { fragments(column) } else { near.column };
                if N == 2 {
                    let second = row.wrapping_add((1536 * bands.steps) as u64);
                    new[1 % N] = across::<R, G, N>(bands, at, (1, second), &near.row);
                    if H == 0 {
                        stored.put::<T, G>(all - 1, tile, &new[1 % N]);
                    }
                }
                if missing <= 0 {
                    let mut sums =
                        along::<H, R, T, G, N>(bands, (column, &first), (stored, all, tile), &new);
                    if bands.point != 0 {
                        let above = start - line * ring.pitch - 16 * (blocks - 1) * ring.pitch;
                        add_point::<P, G>(bands, &mut sums, above, tile);
                    }
                    output.write(&bands.rounding, TILE * tile, &sums, || {
                        near = Near::load((row, column))
                    });
                }
                if H > 0 {
                    // In the place of the oldest ones, which nobody needs any more.
                    stored.put::<T, G>(slots, tile, &new[0]);
                    if N == 2 {
                        stored.put::<T, G>(slots + 1, tile, &new[1 % N]);
                    }
                }
                tile += G as i32;
            }
            stored.advance(terms);
            if missing <= 0 {
                output.advance();
            } else {
                missing -= 1;
            }
            if P > 1 {
                // The next group takes the place of the first one.
                warp_barrier();
            }
            start += group;
            start = if start >= size { start - size } else { start };
        }
        output.finish::<3>();
    }
}

/// Fragments that stay in registers, of a single term: those of R steps of the row pass, and of the
/// column pass if it has but one.
struct Near<const H: usize, const R: usize, const N: usize> {
    row: [[[u32; 4]; 3]; R],
    column: [[u32; 4]; 3],
}

impl<const H: usize, const R: usize, const N: usize> Near<H, R, N> {
    /// Whether the column's stay, too.
    const HAS_COLUMN: bool = H == 2 && R < 3 && N == 1;

    /// Loads them. They are loaded anew behind code that is rarely needed, so that they take no
    /// registers meanwhile, which would not suffice.
    ///
    /// # Safety
    /// They are there.
    #[inline(always)]
    unsafe fn load((row, column): (u64, u64)) -> Self {
        // Hidden, so that no value from before is taken.
        let hidden = opaque(0) as u64;
        let mut near = Self { row: [[[0; 4]; 3]; R], column: [[0; 4]; 3] };
        // SAFETY: as the caller promised.
        unsafe {
            let mut step = 0;
            while step < R && N == 1 {
                near.row[step] = fragments(row.wrapping_add(hidden + 1536 * step as u64));
                step += 1;
            }
            if Self::HAS_COLUMN {
                near.column = fragments(column.wrapping_add(hidden));
            }
        }
        near
    }
}

/// The blocks of sums that wait in shared memory, in slots that are taken in turn. A lane has its
/// own words of each.
#[derive(Clone, Copy)]
struct Stored {
    /// The slot of the oldest block, and the number of slots.
    oldest: i32,
    slots: i32,
    /// The word of shared memory at which a lane's begin.
    begin: i32,
}

impl Stored {
    /// The word at which block `number`, counted from the oldest on, has those of tile `tile` of T.
    #[inline(always)]
    fn place<const T: usize>(self, number: i32, tile: i32) -> i32 {
        let slot = self.oldest + number;
        let slot = if slot >= self.slots { slot - self.slots } else { slot };
        self.begin + (slot * T as i32 + tile) * (32 * WORDS as i32)
    }

    /// Puts the blocks of G tiles.
    ///
    /// # Safety
    /// They have room in shared memory.
    #[inline(always)]
    unsafe fn put<const T: usize, const G: usize>(
        self,
        number: i32,
        tile: i32,
        blocks: &[Block; G],
    ) {
        let place = self.place::<T>(number, tile);
        let mut word = 0;
        while word < WORDS * G {
            let value = blocks[word / WORDS][word / 3 % 2][word % 3];
            // SAFETY: as the caller promised.
            unsafe { Shared::dynamic().store(place + 32 * word as i32, f32::from_bits(value)) };
            word += 1;
        }
    }

    /// A word of a block.
    ///
    /// # Safety
    /// This lane has put it.
    #[inline(always)]
    unsafe fn word(place: i32, (tile, half, digit): (usize, usize, usize)) -> u32 {
        // SAFETY: as the caller promised.
        unsafe {
            Shared::dynamic().load_word(place + 32 * (WORDS * tile + 3 * half + digit) as i32)
        }
    }

    /// So many of the oldest blocks give their places to new ones; there is a multiple of as many.
    #[inline(always)]
    fn advance(&mut self, count: i32) {
        self.oldest = if self.oldest + count >= self.slots { 0 } else { self.oldest + count };
    }
}

/// The row pass of G tiles, of one of N terms, whose fragments are at an address, and in registers
/// if it is the only one. `at` is the byte of this lane's row for the first tile, how many bytes
/// further its half of 16 begins, and how many the next tile.
///
/// # Safety
/// As for [`slide`]; all lanes call together.
#[inline(always)]
unsafe fn across<const R: usize, const G: usize, const N: usize>(
    bands: &Bands,
    (start, second, apart): (i32, i32, i32),
    (term, fragment): (usize, u64),
    near: &[[[u32; 4]; 3]; R],
) -> [Block; G] {
    let Across { down, second: factor, third: greatest } = bands.across[term];
    let begins = bands.begin.wrapping_add(16 * term as u64);
    let last = core::cmp::min(second, bands.last);
    let mut sums: [[[[i32; 4]; 3]; 2]; G] = [[[[0; 4]; 3]; 2]; G];
    // SAFETY: as the caller promised.
    unsafe {
        let mut t = 0;
        while t < G {
            sums[t][0][1] = begin(begins);
            sums[t][1][1] = begin(begins);
            t += 1;
        }
        if R > 0 {
            let mut step = 0;
            while step < R {
                let half = if step + 1 < R { second } else { last };
                let taps = if N == 1 {
                    near[step]
                } else {
                    fragments(fragment.wrapping_add(1536 * step as u64))
                };
                multiply::<G>(&mut sums, &taps, start + 32 * step as i32 + half, apart);
                step += 1;
            }
        } else {
            // The first step by itself, whose sums begin with constants.
            let half = |left: i32| if left > 1 { second } else { last };
            multiply::<G>(&mut sums, &fragments(fragment), start + half(bands.steps), apart);
            let (mut fragment, mut at) = (fragment, start);
            let mut left = opaque(bands.steps - 1);
            while left > 0 {
                keep_rolled();
                (fragment, at) = (fragment.wrapping_add(1536), at + 32);
                multiply::<G>(&mut sums, &fragments(fragment), at + half(left), apart);
                left -= 1;
            }
        }
    }
    let mut blocks = [[[0; 3]; 2]; G];
    let mut t = 0;
    while t < G {
        let mut half = 0;
        while half < 2 {
            let mut four = [0; 4];
            let mut i = 0;
            while i < 4 {
                let [lowest, second, third] = sums[t][i / 2];
                let at = 2 * half + i % 2;
                // Hidden, so that what follows stays a multiply-add.
                let lower =
                    opaque(second[at].wrapping_mul(factor).wrapping_add(lowest[at] >> down));
                four[i] = third[at].wrapping_mul(greatest).wrapping_add(lower) as u32;
                i += 1;
            }
            // The upper three bytes of four numbers, those of the same weight together.
            let (low, high) = (
                [permute::<0x6251>(four[0], four[1]), permute::<0x6251>(four[2], four[3])],
                [permute::<0x0073>(four[0], four[1]), permute::<0x0073>(four[2], four[3])],
            );
            blocks[t][half] = [
                permute::<0x5410>(low[0], low[1]),
                permute::<0x7632>(low[0], low[1]),
                permute::<0x5410>(high[0], high[1]),
            ];
            half += 1;
        }
        t += 1;
    }
    blocks
}

/// What four sums begin with.
///
/// # Safety
/// It is there.
#[inline(always)]
unsafe fn begin(at: u64) -> [i32; 4] {
    // SAFETY: as the caller promised.
    unsafe { load_words::<4>(at) }.map(|word| word as i32)
}

/// Adds a step of the row pass to the sums of G tiles: byte `at` is where this lane's half of a row
/// begins for the first one.
///
/// # Safety
/// As for [`across`].
#[inline(always)]
unsafe fn multiply<const G: usize>(
    sums: &mut [[[[i32; 4]; 3]; 2]; G],
    taps: &[[u32; 4]; 3],
    at: i32,
    apart: i32,
) {
    let shared = Shared::dynamic();
    let mut t = 0;
    while t < G {
        // SAFETY: as the caller promised.
        unsafe {
            let [a, b, c, d] = shared.load_matrices(at + apart * t as i32);
            let mut digit = 0;
            while digit < 3 {
                sums[t][0][digit] = mma_signed(sums[t][0][digit], taps[digit], [a, b]);
                sums[t][1][digit] = mma_signed(sums[t][1][digit], taps[digit], [c, d]);
                digit += 1;
            }
        }
        t += 1;
    }
}

/// The column pass of G tiles from number `tile` on, over so many blocks of all terms: for both
/// halves of the columns, the sums of each weight, from the lowest on. `first` are the first
/// fragments, `new` are the terms' last blocks.
///
/// # Safety
/// As for [`slide`]; all lanes call together.
#[inline(always)]
unsafe fn along<const H: usize, const R: usize, const T: usize, const G: usize, const N: usize>(
    bands: &Bands,
    (column, first): (u64, &[[u32; 4]; 3]),
    (stored, blocks, tile): (Stored, i32, i32),
    new: &[[Block; G]; N],
) -> [Sums<3>; G] {
    let mut sums: [Sums<3>; G] = [[[[0; 4]; 3]; 2]; G];
    // SAFETY: as the caller promised.
    unsafe {
        let mut t = 0;
        while t < G {
            sums[t][0][1] = begin(bands.begin.wrapping_add(16 * N as u64));
            sums[t][1][1] = begin(bands.begin.wrapping_add(16 * N as u64));
            t += 1;
        }
        if H > 0 {
            let mut pair = 0;
            while 2 * pair < N * H {
                let taps = match Near::<H, R, N>::HAS_COLUMN {
                    true => *first,
                    false => fragments(column.wrapping_add(1536 * pair as u64)),
                };
                let upper = stored.place::<T>(2 * pair as i32, tile);
                let lower = stored.place::<T>(2 * pair as i32 + 1, tile);
                add_pair::<G>(&mut sums, &taps, |t, half, digit| {
                    // The last block of each term is not stored yet.
                    let word = |number: usize, place: i32| match number < N * (H - 1) {
                        true => Stored::word(place, (t, half, digit)),
                        false => new[number % N][t][half][digit],
                    };
                    [word(2 * pair, upper), word(2 * pair + 1, lower)]
                });
                pair += 1;
            }
        } else {
            // Of an odd number, the last one comes twice: the taps for the second time are 0.
            let words = |number: i32| {
                let next = if number + 1 < blocks { number + 1 } else { number };
                let places = [stored.place::<T>(number, tile), stored.place::<T>(next, tile)];
                move |t, half, digit| places.map(|place| Stored::word(place, (t, half, digit)))
            };
            // The first two by themselves, whose sums begin with constants.
            add_pair::<G>(&mut sums, first, words(0));
            let mut fragment = column;
            let mut number = opaque(2);
            while number < blocks {
                keep_rolled();
                fragment = fragment.wrapping_add(1536);
                add_pair::<G>(&mut sums, &fragments(fragment), words(number));
                number += 2;
            }
        }
    }
    sums
}

/// Adds the products of two blocks of G tiles, of which `words` has a lane's words.
///
/// # Safety
/// All lanes call together.
#[inline(always)]
unsafe fn add_pair<const G: usize>(
    sums: &mut [Sums<3>; G],
    taps: &[[u32; 4]; 3],
    words: impl Fn(usize, usize, usize) -> [u32; 2],
) {
    let mut t = 0;
    while t < G {
        let mut half = 0;
        while half < 2 {
            let mut digit = 0;
            while digit < 3 {
                let two = words(t, half, digit);
                // Digits of the taps and of the blocks whose numbers make `weight + 2`.
                let mut d = 2 - digit;
                while d < 3 {
                    let weight = d + digit - 2;
                    // SAFETY: as the caller promised.
                    sums[t][half][weight] =
                        unsafe { mma_signed(sums[t][half][weight], taps[d], two) };
                    d += 1;
                }
                digit += 1;
            }
            half += 1;
        }
        t += 1;
    }
}

/// Adds the values themselves times a factor to the sums of G tiles from number `tile` on, in
/// results whose first row would be at byte `above` of the ring if the window began at its anchor's
/// row, before the ring is taken into account.
///
/// # Safety
/// As for [`slide`].
#[inline(always)]
unsafe fn add_point<const P: usize, const G: usize>(
    bands: &Bands,
    sums: &mut [Sums<3>; G],
    above: i32,
    tile: i32,
) {
    let (ring, lane) = (&bands.ring, opaque(thread_x()));
    let apart = if P == 1 { TILE } else { ring.tile };
    let mut lower = 0;
    while lower < 2 {
        let row = above + (ring.anchor_y + (lane >> 2) + 8 * lower as i32) * ring.pitch;
        let row = if row < 0 { row + ring.shared_bytes() } else { row };
        let mut t = 0;
        while t < G {
            // A lane's values of both halves lie side by side: see `Sums`.
            let byte = row + ring.left + apart * (tile + t as i32) + 4 * (lane & 3);
            // SAFETY: as the caller promised.
            let four = unsafe { Shared::dynamic().load_word(byte >> 2) };
            let mut value = 0;
            while value < 4 {
                // The second weight's sums count in units of a joined sum.
                let sum = &mut sums[t][value / 2][1][2 * lower + value % 2];
                *sum =
                    sum.wrapping_add(bands.point.wrapping_mul((four >> (8 * value) & 0xff) as i32));
                value += 1;
            }
            t += 1;
        }
        lower += 1;
    }
}

/// A lane's words of the three digits' fragments of a step.
///
/// # Safety
/// They are there.
#[inline(always)]
unsafe fn fragments(at: u64) -> [[u32; 4]; 3] {
    // SAFETY: as the caller promised.
    unsafe { [load_words(at), load_words(at.wrapping_add(512)), load_words(at.wrapping_add(1024))] }
}
