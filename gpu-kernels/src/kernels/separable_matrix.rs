//! Separable correlation of bytes to bytes on the tensor cores, in whole numbers: both passes in one kernel.
//!
//! The taps of the row and of the column are whole multiples of a power of two, each cut into three signed bytes: its digits to the base
//! 256. Sums of the row pass are joined, moved so that none is negative, and cut to 24 bits: three unsigned bytes, which the column pass takes. Of
//! its nine products of digits the six greater ones are added up, joined and rounded. All of this is exact but for what is cut off.
//!
//! Tiling: `tile/whole.rs`, with as many rows as the host finds best. Rows that a tile shares with the next one are filtered twice.
//!
//! Thread mapping: a warp has 16 neighbouring values and goes down 16 rows at a time.
//! - Row pass: the first factor is a band, in row `m` the taps from byte `m` on; the second one is the image, 8 rows of 32 bytes, as they lie. So
//!   a lane gets sums of neighbouring rows, in the columns `lane / 4` of each half of the 16 values.
//! - Column pass: these are just what a lane holds of a second factor, if the rows of a block of 16 are counted in the order 0, 1, 8, 9, 2, 3, 10, 11
//!   and so on: the bytes of four sums, put together, are a word of it. The first factor is the column's band, whose taps the host puts in that order. No
//!   value passes from lane to lane.
//!
//! The last H blocks of 16 rows are kept in registers: 16 rows of results need `15 + taps` rows.
//!
//! A filter that is such a product and the value itself times a factor, as an unsharp mask is, adds that to the joined sums.
//!
//! Rounding: results so near to a half that the cut could change the byte go to the pass's list. The host states the bound.
//!
//! Limits: bytes to bytes, no epilogue; up to `16 * H - 15` taps in a column; a row of taps reaches over at most a row of shared memory; outside
//! the image nothing but bytes. KEEP is left to `keep.rs`.

use crate::abi::Pass;
use crate::device::*;
use crate::tile::whole::{Frame, Places, Rounding, Tile, put, walk};

/// The factors of both passes, and what is done between and after them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bands {
    /// The address of the row's fragments: for each step and digit (from the lowest on) four words of each lane.
    pub row: u64,
    /// The address of the column's, a step for each two blocks of 16 rows.
    pub column: u64,
    /// Steps of the row pass: times 32 bytes.
    pub steps: i32,
    /// How far behind the begin of a fetched row the first warp's first byte is: a multiple of 4.
    pub base: i32,
    /// The sums of the row's digits are joined to a number whose upper 24 bits the column pass takes. What the second digit's begin with;
    pub start: i32,
    /// by how many bits the lowest digit's are shifted down;
    pub down: i32,
    /// by what the second digit's are multiplied,
    pub second: i32,
    /// and the third one's.
    pub third: i32,
    /// What a value itself is multiplied by beside the products, in units of a joined sum; 0 if it is in them.
    pub point: i32,
    /// The rows of a tile.
    pub frame: Frame,
    /// How the sums of the column pass become bytes.
    pub rounding: Rounding,
}

/// The most steps of the row pass whose fragments stay in registers.
const RESIDENT: usize = 3;

/// Declares the entries `name: blocks of 16 rows that a result needs, pairs of them, steps of the row pass (0: any number), the most
/// registers of a thread, blocks that a multiprocessor then has`, and lists them.
macro_rules! separable_matrix {
    ($($name:ident: $h:literal, $p:literal, $r:literal, $limit:literal, $resident:literal;)*) => {
        kernel! {$(
            fn $name(pass: Pass, bands: Bands, channels: i32, filtered: i32, images: i32) {
                directive!($limit);
                filter::<$h, $p, $r>(&pass, &bands, channels, filtered, images)
            }
        )*}

        host! {
            /// The entries; of those that take a problem, the first is the fastest.
            pub const ENTRIES: &[SeparableMatrix] =
                &[$(SeparableMatrix { entry: $name, blocks: $h, steps: $r, resident: $resident }),*];
        }
    };
}

separable_matrix! {
    separable_matrix_17_one: 2, 1, 1, ".maxnreg 80", 3;
    separable_matrix_17_two: 2, 1, 2, ".maxnreg 112", 2;
    separable_matrix_17_three: 2, 1, 3, ".maxnreg 128", 2;
    separable_matrix_17: 2, 1, 0, ".maxnreg 128", 2;
    separable_matrix_33_two: 3, 2, 2, ".maxnreg 128", 2;
    separable_matrix_33: 3, 2, 0, ".maxnreg 128", 2;
    separable_matrix_65: 5, 3, 0, ".maxnreg 128", 2;
    separable_matrix_97: 7, 4, 0, ".maxnreg 168", 1;
}

host! {
    /// An entry: the pass, the bands, the channels of a pixel, how many of them are filtered, the images.
    #[derive(Clone, Copy, Debug)]
    pub struct SeparableMatrix {
        /// What to launch.
        pub entry: crate::entry::Entry<(Pass, Bands, i32, i32, i32)>,
        /// Blocks of 16 rows that 16 rows of results need, at most.
        pub blocks: usize,
        /// Steps of the row pass; 0 for any number.
        pub steps: usize,
        /// Blocks of threads for which a multiprocessor has registers.
        pub resident: usize,
    }
}

/// Filters tile after tile.
///
/// # Safety
/// `pass` describes allocated memory and keeps the limits above; `bands` are made for it. The rest as for [`walk`].
#[inline(always)]
unsafe fn filter<const H: usize, const P: usize, const R: usize>(
    pass: &Pass,
    bands: &Bands,
    channels: i32,
    filtered: i32,
    images: i32,
) {
    const { assert!(P == H.div_ceil(2) && R <= RESIDENT) }
    // SAFETY: as the caller promised.
    unsafe {
        walk(pass, &bands.frame, (channels, filtered, images), |tile, channels, places| {
            sum_up::<H, P, R>(pass, bands, (channels, filtered), tile, places);
        });
    }
}

/// The digits of 16 columns of 16 rows: for each half of the columns and digit, from the lowest on, those of four rows, as a word.
type Block = [[u32; 3]; 2];

/// Computes this warp's part of a tile.
///
/// # Safety
/// As for [`filter`]; the rows are there.
#[inline(always)]
unsafe fn sum_up<const H: usize, const P: usize, const R: usize>(
    pass: &Pass,
    bands: &Bands,
    (channels, filtered): (i32, i32),
    tile: Tile,
    places: Places,
) {
    // Rows that a block of results needs besides its own.
    let apron = 16 * (H as i32 - 1);
    let region = &pass.region;
    let x = tile.x + 16 * thread_y();
    if x + 16 <= region.x0 * channels || x >= region.x1 * channels {
        return;
    }
    let lane = opaque(thread_x());
    let (group, turn) = (lane >> 2, lane & 3);
    let first = (places.rows + bands.base + 16 * thread_y() + 4 * turn) >> 2;
    let (row, column) = (bands.row.wrapping_add(16 * lane as u64), bands.column.wrapping_add(16 * lane as u64));
    // SAFETY: the fragments are there; the rows are, and others are not read; all lanes are here at each product. The results
    // are this warp's, and there is a list.
    unsafe {
        let mut near = [[[0; 4]; 3]; RESIDENT];
        let mut step = 0;
        while step < R {
            near[step] = fragments(row.wrapping_add(1536 * step as u64));
            step += 1;
        }
        let mut blocks: [Block; H] = [[[0; 3]; 2]; H];
        let mut down = opaque(0);
        while down < bands.frame.height + apron && tile.y + down < region.y1 + apron {
            // Before the row pass, so that they are there when it has ended.
            let first_two = fragments(column);
            let mut h = 1;
            while h < H {
                blocks[h - 1] = blocks[h];
                h += 1;
            }
            blocks[H - 1] = across::<R>(bands, (first, down + group), row, &near);
            let above = down - apron;
            if above >= 0 {
                let mut sums = along::<H, P>(bands, column, first_two, &blocks);
                if bands.point != 0 {
                    add_point(bands, &mut sums, (above + group, turn), places);
                }
                put(pass, &bands.rounding, (channels, filtered), (tile, above), &sums, places);
            }
            // Hidden, so that the loop stays as it is.
            down = opaque(down + 16);
        }
    }
}

/// The row pass of a block, whose row of this lane's group in the upper half is number `row` of those fetched; words of its rows begin at
/// number `first`.
///
/// # Safety
/// As for [`sum_up`]; all lanes call together.
#[inline(always)]
unsafe fn across<const R: usize>(
    bands: &Bands,
    (first, row): (i32, i32),
    fragment: u64,
    near: &[[[u32; 4]; 3]; RESIDENT],
) -> Block {
    // Below the rows that were fetched, the column has no taps: any row will do.
    let (last, pitch) = (bands.frame.fetched() - 1, bands.frame.pitch >> 2);
    let upper = first + (if row < last { row } else { last }) * pitch;
    let lower = first + (if row + 8 < last { row + 8 } else { last }) * pitch;
    let mut sums = [[[0; 4], [bands.start; 4], [0; 4]]; 2];
    // SAFETY: as the caller promised.
    unsafe {
        if R > 0 {
            let mut step = 0;
            while step < R {
                multiply(&mut sums, &near[step], upper + 8 * step as i32, lower + 8 * step as i32);
                step += 1;
            }
        } else {
            let mut step = opaque(0);
            while step < bands.steps {
                let taps = fragments(fragment.wrapping_add(1536 * step as u64));
                multiply(&mut sums, &taps, upper + 8 * step, lower + 8 * step);
                step = opaque(step + 1);
            }
        }
    }
    let mut block = [[0; 3]; 2];
    let mut half = 0;
    while half < 2 {
        let mut four = [0; 4];
        let mut i = 0;
        while i < 4 {
            let [lowest, second, third] = sums[i / 2];
            let at = 2 * half + i % 2;
            let lower = second[at].wrapping_mul(bands.second).wrapping_add(lowest[at] >> bands.down);
            four[i] = third[at].wrapping_mul(bands.third).wrapping_add(lower) as u32;
            i += 1;
        }
        // The upper three bytes of four numbers, those of the same weight together.
        let (low, high) = (
            [permute::<0x6251>(four[0], four[1]), permute::<0x6251>(four[2], four[3])],
            [permute::<0x0073>(four[0], four[1]), permute::<0x0073>(four[2], four[3])],
        );
        block[half] =
            [permute::<0x5410>(low[0], low[1]), permute::<0x7632>(low[0], low[1]), permute::<0x5410>(high[0], high[1])];
        half += 1;
    }
    block
}

/// Adds a step of the row pass: a lane's words of the image are those from number `upper` on, and from `lower` on 8 rows further down.
///
/// # Safety
/// As for [`across`].
#[inline(always)]
unsafe fn multiply(sums: &mut [[[i32; 4]; 3]; 2], taps: &[[u32; 4]; 3], upper: i32, lower: i32) {
    let shared = Shared::dynamic();
    // SAFETY: as the caller promised.
    unsafe {
        let image = [
            [shared.load_word(upper), shared.load_word(upper + 4)],
            [shared.load_word(lower), shared.load_word(lower + 4)],
        ];
        let mut d = 0;
        while d < 3 {
            sums[0][d] = mma_signed(sums[0][d], taps[d], image[0]);
            sums[1][d] = mma_signed(sums[1][d], taps[d], image[1]);
            d += 1;
        }
    }
}

/// The column pass: for both halves of the columns, the sums of each weight, from the lowest on. `first_two` are the fragments of the first
/// two blocks.
///
/// # Safety
/// As for [`sum_up`]; all lanes call together.
#[inline(always)]
unsafe fn along<const H: usize, const P: usize>(
    bands: &Bands,
    fragment: u64,
    first_two: [[u32; 4]; 3],
    blocks: &[Block; H],
) -> [[[i32; 4]; 3]; 2] {
    let mut sums = [[[0; 4], [bands.rounding.start[0]; 4], [0; 4]]; 2];
    let mut pair = 0;
    while pair < P {
        // SAFETY: as the caller promised.
        let taps = if pair == 0 { first_two } else { unsafe { fragments(fragment.wrapping_add(1536 * pair as u64)) } };
        let mut weight = 0;
        while weight < 3 {
            // Digits of the taps and of the blocks whose numbers make `weight + 2`.
            let mut d = weight;
            while d < 3 {
                let e = weight + 2 - d;
                let mut half = 0;
                while half < 2 {
                    let below = if 2 * pair + 1 < H { blocks[2 * pair + 1][half][e] } else { 0 };
                    let two = [blocks[2 * pair][half][e], below];
                    // SAFETY: as the caller promised.
                    sums[half][weight] = unsafe { mma_signed(sums[half][weight], taps[d], two) };
                    half += 1;
                }
                d += 1;
            }
            weight += 1;
        }
        pair += 1;
    }
    sums
}

/// Adds the values themselves times a factor to their sums: those of row `row` of a tile, and of the one 8 rows below.
///
/// # Safety
/// As for [`sum_up`].
#[inline(always)]
unsafe fn add_point(bands: &Bands, sums: &mut [[[i32; 4]; 3]; 2], (row, turn): (i32, i32), places: Places) {
    let frame = &bands.frame;
    // A lane's values of both halves lie side by side: see `put`.
    let first = places.rows + (row + frame.anchor_y) * frame.pitch + frame.left + 16 * thread_y() + 4 * turn;
    let mut lower = 0;
    while lower < 2 {
        // SAFETY: as the caller promised.
        let four = unsafe { Shared::dynamic().load_word((first >> 2) + 2 * lower as i32 * frame.pitch) };
        let mut value = 0;
        while value < 4 {
            // The second weight's sums count in units of a joined sum.
            let sum = &mut sums[value / 2][1][2 * lower + value % 2];
            *sum = sum.wrapping_add(bands.point.wrapping_mul((four >> (8 * value) & 0xff) as i32));
            value += 1;
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
