//! Separable correlation of bytes to bytes on the tensor cores, in integers: both passes in one
//! kernel. A filter may be the sum of two such products of a row and a column, its terms.
//!
//! Tiling: `tile/strip.rs`. A block is a warp. It slides down a strip of [`TILES`] tiles, 16 rows
//! at a time, G tiles at a time. Each group of 16 rows takes the row pass once; shared memory keeps
//! the blocks of sums that later results need, one word a lane. Warps never wait for each other.
//! Entries for wide windows de-interleave three or four channels: a strip is 16 pixels, and each
//! channel is a tile.
//!
//! Row pass: one factor is a band, with the row's taps from byte `m` on in row `m`; the other is 8
//! rows of 32 bytes of the image, in memory order. A lane gets sums of neighbouring rows in columns
//! `lane / 4` of both halves of a tile. Column pass: the bytes of four such sums form a word of
//! this lane's factor, if the rows of a block are in the order 0, 1, 8, 9, 2, 3, 10, 11, ... The
//! host stores the column's band in that order, so lanes exchange nothing. The column pass takes
//! the blocks of two terms as if they were those of one column.
//!
//! Arithmetic: see [`Bands`]. The host states the bound of the cut; results so near to a tie that
//! the cut could change the byte go to the pass's list. Limits: bytes to bytes, no epilogue; shared
//! memory holds a result's blocks and the rows in flight; the value outside the image is a byte.
//! Copies at the border are left to `keep.rs`. Entries named `each` take images with taps of their
//! own, in windows of the same size.

use crate::abi::{Each, Pass};
use crate::device::*;
use crate::tile::strip::{AHEAD, Feed, Output, Ring, Strip, Sums, TILE};
use crate::tile::whole::Rounding;

/// Tiles of a strip whose channels are interleaved.
pub const TILES: usize = 4;

/// Factors that join the digits' sums of a row pass.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Across {
    /// Right shift of the lowest digit's sums, in bits.
    pub down: i32,
    /// Multiplier of the second digit's sums.
    pub second: i32,
    /// Multiplier of the third digit's sums.
    pub third: i32,
}

/// The factors of both passes, and the steps between and after them.
///
/// The taps of the row and of the column are multiples of a power of two, each in three signed
/// digits to the base 256. Joined sums of the row pass are biased so that none is negative, then
/// cut to their upper 24 of 32 bits: three unsigned bytes for the column pass. The column pass adds
/// the six greater of nine products of digits, joins the sums and rounds. All steps but the cuts
/// are exact.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bands {
    /// The address of the row's fragments: for each step and digit (lowest first) four words of
    /// each lane. The second term's row follows.
    pub row: u64,
    /// The address of the column's fragments: one step for two blocks of 16 rows; with two terms,
    /// for one block of each term.
    pub column: u64,
    /// The address of the initial second-digit sums, each stored four times: of each term's row
    /// pass, then of the column pass. Initial sums of four words in memory take one instruction.
    pub begin: u64,
    /// Steps of a row pass, 32 bytes each.
    pub steps: i32,
    /// Bytes from a row's first half of 16 bytes in the last step to its second half; 0 if the
    /// second half is not needed.
    pub last: i32,
    /// Blocks of 16 rows for each term that 16 rows of results need.
    pub blocks: i32,
    /// The row pass of each term.
    pub across: [Across; 2],
    /// Multiplier of the value itself, in units of a joined sum, for filters such as an unsharp
    /// mask: products plus a multiple of the value. 0 if there is none.
    pub point: i32,
    /// The input rows in shared memory.
    pub ring: Ring,
    /// How the sums of the column pass become bytes.
    pub rounding: Rounding,
}

/// Bytes of shared memory for `blocks` blocks of sums of `tiles` tiles.
pub const fn stored_bytes(blocks: usize, tiles: usize) -> usize {
    4 * 32 * WORDS * tiles * blocks
}

/// Words of a lane in a tile's block: see [`Block`].
const WORDS: usize = 6;

/// Whether uncertain results queue in shared memory (`tile/strip.rs`): with more steps or terms,
/// queuing takes up to 5 % longer.
const fn queues(steps: usize, terms: usize) -> bool {
    steps == 1 && terms == 1
}

/// The bands of an image of a batch with taps for each: an entry of their table.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ImageBands {
    /// Bytes from this entry to the row's fragments, which the column's and the initial sums
    /// follow; 0 if another launch filters the image.
    pub row: u64,
    /// The row pass.
    pub across: Across,
    /// How the sums of the column pass become bytes, for three digits.
    pub rounding: Rounding,
}

/// Words of [`ImageBands`], a multiple of 16 bytes.
pub const IMAGE_WORDS: usize = 12;

impl ImageBands {
    /// The entry as the table has it.
    pub const fn to_words(&self) -> [u32; IMAGE_WORDS] {
        let Self { row, across: Across { down, second, third }, rounding } = *self;
        let Rounding { start: [start, _], shift, near, third: _, top } = rounding;
        let [low, high] = [row as u32, (row >> 32) as u32];
        let across = [down as u32, second as u32, third as u32];
        let [down, second, third] = across;
        [low, high, start as u32, shift as u32, down, second, third, near, top, 0, 0, 0]
    }

    /// The bands of this block's image, if the launch filters it. `bands` are those of an image of
    /// the table, with addresses.
    ///
    /// # Safety
    /// The table has an entry for the image.
    #[inline(always)]
    unsafe fn of_block(each: &Each, bands: &Bands) -> Option<Bands> {
        let at = each.entry(block_z(), 4 * IMAGE_WORDS);
        // SAFETY: as the caller promised.
        let ([low, high, start, shift], [down, second, third, near], [top]) = unsafe {
            (load_words(at), load_words(at.wrapping_add(16)), load_words(at.wrapping_add(32)))
        };
        if low | high == 0 {
            return None;
        }
        let row = at.wrapping_add((high as u64) << 32 | low as u64);
        let across = Across { down: down as i32, second: second as i32, third: third as i32 };
        let start = [start as i32, 0];
        Some(Bands {
            row,
            column: row.wrapping_add(bands.column.wrapping_sub(bands.row)),
            begin: row.wrapping_add(bands.begin.wrapping_sub(bands.row)),
            across: [across; 2],
            rounding: Rounding { start, shift: shift as i32, near, top, ..bands.rounding },
            ..*bands
        })
    }
}

/// Declares and lists the entries. Each has: name; blocks of 16 rows that a result needs (0: any
/// number); steps of the row pass (0: any number); channels, if de-interleaved (else 1); tiles of a
/// strip; tiles at a time; terms; the most registers of a thread; the entry that reads a table of
/// [`ImageBands`], if there is one.
macro_rules! separable_matrix {
    ($($name:ident: $h:literal, $r:literal, $p:literal, $t:literal, $g:literal, $n:literal, $limit:literal $(, $each:ident)?;)*) => {
        kernel! {$(
            fn $name(pass: Pass, bands: Bands, channels: i32, filtered: i32, rows: i32) {
                directive!($limit);
                slide::<$h, $r, $p, $t, $g, $n, { queues($r, $n) }>(&pass, &bands, (channels, filtered), rows)
            }
            $(
                fn $each(pass: Pass, bands: Bands, channels: i32, filtered: i32, rows: i32, each: Each) {
                    directive!($limit);
                    if let Some(bands) = ImageBands::of_block(&each, &bands) {
                        slide::<$h, $r, $p, $t, $g, $n, { queues($r, $n) }>(&pass, &bands, (channels, filtered), rows)
                    }
                }
            )?
        )*}

        host! {
            /// The entries. The first entry that supports a problem is the fastest.
            pub const ENTRIES: &[SeparableMatrix] = &[$(
                SeparableMatrix {
                    entry: $name,
                    each: [$($each)?].first().copied(),
                    blocks: $h,
                    steps: $r,
                    planar: $p,
                    tiles: $t,
                    terms: $n,
                    queues: queues($r, $n),
                }
            ),*];
        }
    };
}

separable_matrix! {
    separable_matrix_17_one: 2, 1, 1, 4, 2, 1, ".maxnreg 128", separable_matrix_each_17_one;
    separable_matrix_17_two: 2, 2, 1, 4, 2, 1, ".maxnreg 128", separable_matrix_each_17_two;
    separable_matrix_17_three: 2, 3, 1, 4, 2, 1, ".maxnreg 128", separable_matrix_each_17_three;
    separable_matrix_33_two: 3, 2, 1, 4, 2, 1, ".maxnreg 128";
    separable_matrix_any: 0, 0, 1, 2, 2, 1, ".maxnreg 128", separable_matrix_each;
    separable_matrix_rgb: 0, 0, 3, 3, 3, 1, ".maxnreg 128", separable_matrix_each_rgb;
    separable_matrix_rgba: 0, 0, 4, 4, 4, 1, ".maxnreg 168", separable_matrix_each_rgba;
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
    /// The arguments of an entry for images with taps of their own.
    pub type OfEach = (Pass, Bands, i32, i32, i32, Each);

    /// An entry. Arguments: the pass, the bands, the channels of a pixel, the number of filtered
    /// channels, the rows of a strip (a multiple of 16).
    #[derive(Clone, Copy, Debug)]
    pub struct SeparableMatrix {
        /// The entry to launch.
        pub entry: crate::entry::Entry<(Pass, Bands, i32, i32, i32)>,
        /// The entry for images with taps of their own, if there is one. Its last argument is
        /// their table.
        pub each: Option<crate::entry::Entry<OfEach>>,
        /// Blocks of 16 rows that 16 rows of results need; 0 for any number.
        pub blocks: usize,
        /// Steps of the row pass; 0 for any number.
        pub steps: usize,
        /// Channels, if the entry de-interleaves them; else 1.
        pub planar: usize,
        /// Tiles of a strip.
        pub tiles: usize,
        /// Products of a row and a column.
        pub terms: usize,
        /// Whether uncertain results queue in shared memory.
        pub queues: bool,
    }
}

/// The digits of sums in 16 columns and 16 rows: by half of the columns and by digit, lowest first,
/// four rows' digits in a word.
type Block = [[u32; 3]; 2];

/// Filters a strip from top to bottom.
///
/// # Safety
/// `pass` describes allocated memory and keeps the limits above; `bands` are made for it. The
/// launch has blocks of a warp, one in x for each strip. Its shared memory has room for the ring
/// and the blocks, and for queued results if QUEUES.
#[inline(always)]
unsafe fn slide<
    const H: usize,
    const R: usize,
    const P: usize,
    const T: usize,
    const G: usize,
    const N: usize,
    const QUEUES: bool,
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
    let mut output =
        unsafe { Output::<P, G, QUEUES>::new(pass, ring, (channels, filtered), strip) };
    let lane = thread_x();
    // SAFETY: as the caller promised; the places lie in the ring, all lanes reach each product, and
    // only this warp writes the results.
    unsafe {
        let (row, column) =
            (bands.row.wrapping_add(16 * lane as u64), bands.column.wrapping_add(16 * lane as u64));
        let mut near = Near::<H, R, N>::load((row, column));
        // Each group of 8 lanes has the addresses of 8 rows: first half of 16 bytes of the upper
        // rows, their second half, then both halves of the lower rows.
        let (line, second) = ((lane & 7) + (lane >> 4 << 3), 16 * (lane >> 3 & 1));
        let (size, group) = (ring.shared_bytes(), 16 * ring.pitch);
        let mut start = line * ring.pitch;
        let blocks = if H > 0 { H as i32 } else { bands.blocks };
        // Blocks of all terms.
        let terms = N as i32;
        let all = terms * blocks;
        let slots = if H > 0 { terms * (H as i32 - 1) } else { all };
        let mut stored = Stored { oldest: 0, slots, begin: (ring.with_queue(QUEUES) >> 2) + lane };
        // Groups to start before the first wait; blocks missing before the first result.
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
                // The next kernel begins as this one ends. Any sooner, it would take the places of
                // blocks that have not begun.
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
                // The column's fragments load during the last row pass.
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
                    // The new blocks replace the oldest, which no later result needs.
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
                // The next group overwrites the oldest rows.
                warp_barrier();
            }
            start += group;
            start = if start >= size { start - size } else { start };
        }
        output.finish::<3>();
    }
}

/// Fragments that stay in registers if there is one term: R steps of the row pass, and the column
/// pass if it has one step.
struct Near<const H: usize, const R: usize, const N: usize> {
    row: [[[u32; 4]; 3]; R],
    column: [[u32; 4]; 3],
}

impl<const H: usize, const R: usize, const N: usize> Near<H, R, N> {
    /// Whether the column's fragments stay in registers, too.
    const HAS_COLUMN: bool = H == 2 && R < 3 && N == 1;

    /// Loads the fragments. Callers load them again after rarely executed code, to save registers
    /// there.
    ///
    /// # Safety
    /// The fragments are there.
    #[inline(always)]
    unsafe fn load((row, column): (u64, u64)) -> Self {
        // Opaque, so that the compiler does not reuse earlier values.
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

/// A ring of blocks of sums in shared memory. A lane stores and loads only its own words.
#[derive(Clone, Copy)]
struct Stored {
    /// The slot of the oldest block, and the number of slots.
    oldest: i32,
    slots: i32,
    /// The lane's first word in shared memory.
    begin: i32,
}

impl Stored {
    /// The lane's first word of block `number`, counted from the oldest, and tile `tile` of T.
    #[inline(always)]
    fn place<const T: usize>(self, number: i32, tile: i32) -> i32 {
        let slot = self.oldest + number;
        let slot = if slot >= self.slots { slot - self.slots } else { slot };
        self.begin + (slot * T as i32 + tile) * (32 * WORDS as i32)
    }

    /// Stores block `number` of G tiles from `tile` on.
    ///
    /// # Safety
    /// The blocks have room in shared memory.
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

    /// Loads a word of a block.
    ///
    /// # Safety
    /// This lane has stored the word.
    #[inline(always)]
    unsafe fn word(place: i32, (tile, half, digit): (usize, usize, usize)) -> u32 {
        // SAFETY: as the caller promised.
        unsafe {
            Shared::dynamic().load_word(place + 32 * (WORDS * tile + 3 * half + digit) as i32)
        }
    }

    /// Frees the slots of the `count` oldest blocks. The number of slots is a multiple of `count`.
    #[inline(always)]
    fn advance(&mut self, count: i32) {
        self.oldest = if self.oldest + count >= self.slots { 0 } else { self.oldest + count };
    }
}

/// The row pass of G tiles for one of N terms. The term's fragments are at address `fragment`; a
/// single term's fragments are in `near`, too. `start` is the byte of this lane's row in the first
/// tile, `second` the offset of the lane's half of 16 bytes, `apart` the bytes from tile to tile.
///
/// # Safety
/// As for [`slide`]; all lanes call this together.
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
            // The first step is outside the loop, as its sums begin with constants.
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
                // Opaque, so that the next operation stays one multiply-add.
                let lower =
                    opaque(second[at].wrapping_mul(factor).wrapping_add(lowest[at] >> down));
                four[i] = third[at].wrapping_mul(greatest).wrapping_add(lower) as u32;
                i += 1;
            }
            // The upper three bytes of four sums, bytes of equal weight in one word.
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

/// The initial value of four sums.
///
/// # Safety
/// There are four words at this address.
#[inline(always)]
unsafe fn begin(at: u64) -> [i32; 4] {
    // SAFETY: as the caller promised.
    unsafe { load_words::<4>(at) }.map(|word| word as i32)
}

/// Adds a step of the row pass to the sums of G tiles. `at` is the byte of this lane's half of a
/// row in the first tile.
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

/// The column pass of G tiles from `tile` on, over `blocks` blocks of all terms. Returns, for both
/// halves of the columns, the sums of each weight, lowest first. `first` are the first fragments,
/// `new` the terms' last blocks.
///
/// # Safety
/// As for [`slide`]; all lanes call this together.
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
                    // Shared memory does not have the last block of each term yet.
                    let word = |number: usize, place: i32| match number < N * (H - 1) {
                        true => Stored::word(place, (t, half, digit)),
                        false => new[number % N][t][half][digit],
                    };
                    [word(2 * pair, upper), word(2 * pair + 1, lower)]
                });
                pair += 1;
            }
        } else {
            // The last of an odd number of blocks comes twice: its taps are 0 the second time.
            let words = |number: i32| {
                let next = if number + 1 < blocks { number + 1 } else { number };
                let places = [stored.place::<T>(number, tile), stored.place::<T>(next, tile)];
                move |t, half, digit| places.map(|place| Stored::word(place, (t, half, digit)))
            };
            // The first pair is outside the loop, as its sums begin with constants.
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

/// Adds the products of two blocks of G tiles. `words` gives a lane's words of both blocks.
///
/// # Safety
/// All lanes call this together.
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
                // Digits `d` of the taps and `digit` of the blocks add up to `weight + 2`.
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

/// Adds the values times a factor to the sums of G tiles from `tile` on. `above` is the ring's byte
/// for the row `ring.anchor_y` rows above the first result, before wrap-around.
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
                // The sums of the second weight are in units of a joined sum.
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

/// A lane's words of a step's fragments of three digits.
///
/// # Safety
/// The fragments are at this address.
#[inline(always)]
unsafe fn fragments(at: u64) -> [[u32; 4]; 3] {
    // SAFETY: as the caller promised.
    unsafe { [load_words(at), load_words(at.wrapping_add(512)), load_words(at.wrapping_add(1024))] }
}
