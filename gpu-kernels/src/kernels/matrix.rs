//! Direct correlation of bytes to bytes on the tensor cores, in whole numbers.
//!
//! Taps are whole multiples of a power of two, cut into one, two or three signed bytes: their digits to the base 256. A product of
//! bytes and the sums of such products are exact, so their order is of no account. The sums of each digit are joined, and rounded once.
//!
//! Tiling: a block has a tile of 128 values of a row and 96 rows, one after the other; a value is a channel of a pixel, and the same
//! channel of the next pixel is `channels` values further. The rows that a tile needs come by asynchronous copies while the block
//! computes on the tile before; results go through shared memory, so that whole lines are written.
//!
//! Thread mapping: a warp has 16 neighbouring values, and takes M times 16 rows at a time. The image is the first factor: 16 rows of 32 bytes, of which a lane
//! holds four words of four neighbours. The second factor is a band: in column `n`, the taps of a row from byte `n` on; zero elsewhere. So the
//! product has, for 16 rows and 8 columns, the sums of a row of taps. The 32 bytes are two halves of 16, from any two places: those that the
//! taps of a row reach, half after half, and then the next row's. The host makes the bands, as the lanes take them, and the list of places.
//!
//! With J = 2, the 16 values of a warp share the image's bytes: they need the bytes that 16 values reach. With J = 1 each 8 values have
//! bytes of their own, and the same band: small windows, and some wide ones, have fewer halves so. Fewer sums are held at a time then, and more
//! blocks run on a multiprocessor.
//!
//! Rounding: with one or two digits the taps are exact, and so is the joined sum; it is rounded half to even. With three, taps may be off
//! by half of the last digit's unit. Where that, or what the joining cuts off, could change the byte, the result goes to the pass's list.
//!
//! Limits: bytes to bytes, no epilogue; windows of up to 65536 taps, so that no sum of a digit overflows; a row of taps reaches over at most
//! a row of shared memory, of PITCH bytes; outside the image nothing but bytes. KEEP is left to `keep.rs`.

use crate::abi::Pass;
use crate::device::*;
use crate::tile::whole::{Frame, Places, Rounding, Tile, put, walk};

/// Rows of a tile.
pub const HEIGHT: i32 = 96;

/// The second factors, and how sums become bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bands {
    /// The address of the places of each step's halves: for each two numbers, of words from a lane's first one in shared memory. There is
    /// one pair more, which is read and of no account.
    pub places: u64,
    /// The address of the fragments: for each step, digit (from the lowest on) and band two words of each lane.
    pub fragments: u64,
    /// Pairs of halves.
    pub steps: i32,
    /// The rows of a tile, as the entry's constants say.
    pub frame: Frame,
    /// How sums become bytes.
    pub rounding: Rounding,
}

/// Declares the entries `name: digits, bands of a digit, both together, how many times 16 rows a warp computes at a time, bytes of a row in
/// shared memory, the most registers of a thread`, and lists them.
macro_rules! matrix {
    ($($name:ident: $d:literal, $j:literal, $f:literal, $m:literal, $pitch:literal, $limit:literal;)*) => {
        kernel! {$(
            fn $name(pass: Pass, bands: Bands, channels: i32, filtered: i32, images: i32) {
                directive!($limit);
                filter::<$d, $j, $f, $m, $pitch>(&pass, &bands, channels, filtered, images)
            }
        )*}

        host! {
            /// The entries; of those that take a problem, the first is the fastest.
            pub const ENTRIES: &[Matrix] =
                &[$(Matrix { entry: $name, digits: $d, bands: $j, pitch: $pitch }),*];
        }
    };
}

matrix! {
    matrix_1_near: 1, 2, 2, 3, 176, ".maxnreg 80";
    matrix_2_near: 2, 2, 4, 3, 176, ".maxnreg 128";
    matrix_3_near: 3, 2, 6, 3, 176, ".maxnreg 128";
    matrix_1_apart: 1, 1, 1, 2, 176, ".maxnreg 80";
    matrix_2_apart: 2, 1, 2, 2, 176, ".maxnreg 80";
    matrix_3_apart: 3, 1, 3, 2, 176, ".maxnreg 80";
    matrix_1_wide: 1, 2, 2, 3, 272, ".maxnreg 80";
    matrix_2_wide: 2, 2, 4, 3, 272, ".maxnreg 128";
    matrix_3_wide: 3, 2, 6, 3, 272, ".maxnreg 128";
}

host! {
    /// An entry: the pass, the bands, the channels of a pixel, how many of them are filtered, the images.
    #[derive(Clone, Copy, Debug)]
    pub struct Matrix {
        /// What to launch.
        pub entry: crate::entry::Entry<(Pass, Bands, i32, i32, i32)>,
        /// Digits of a tap.
        pub digits: u32,
        /// Bands of a digit in a step: 2 if 16 values share the image's bytes, 1 if each 8 values have their own.
        pub bands: i32,
        /// Bytes from one row to the next in shared memory.
        pub pitch: i32,
    }
}

/// Filters tile after tile.
///
/// # Safety
/// `pass` describes allocated memory and keeps the limits above; `bands` are made for it. The rest as for [`walk`].
#[inline(always)]
unsafe fn filter<const D: usize, const J: usize, const F: usize, const M: usize, const PITCH: i32>(
    pass: &Pass,
    bands: &Bands,
    channels: i32,
    filtered: i32,
    images: i32,
) {
    const { assert!(F == D * J && (PITCH / 16) % 2 == 1) }
    // Known to the compiler.
    let frame = Frame { height: HEIGHT, pitch: PITCH, ..bands.frame };
    // SAFETY: as the caller promised.
    unsafe {
        walk(pass, &frame, (channels, filtered, images), |tile, channels, places| {
            sum_up::<D, J, F, M, PITCH>(pass, bands, (channels, filtered), tile, places);
        });
    }
}

/// Computes this warp's part of a tile.
///
/// # Safety
/// As for [`filter`]; the rows are there.
#[inline(always)]
unsafe fn sum_up<const D: usize, const J: usize, const F: usize, const M: usize, const PITCH: i32>(
    pass: &Pass,
    bands: &Bands,
    (channels, filtered): (i32, i32),
    tile: Tile,
    places: Places,
) {
    const { assert!(HEIGHT % (16 * M as i32) == 0 && M <= 4) }
    let (shared, region) = (Shared::dynamic(), &pass.region);
    let lane = opaque(thread_x());
    let (group, turn) = (lane >> 2, lane & 3);
    let x = tile.x + 16 * thread_y();
    if x + 16 <= region.x0 * channels || x >= region.x1 * channels {
        return;
    }
    let mut down = opaque(0);
    while down < HEIGHT && tile.y + down < region.y1 {
        let base = (places.rows + (down + group) * PITCH + 16 * thread_y() + 4 * turn) / 4;
        let mut sums = [[[[0; 4]; D]; 2]; M];
        if D == 3 {
            let mut m = 0;
            while m < M {
                sums[m][0][0] = [bands.rounding.start[0]; 4];
                sums[m][1][0] = [bands.rounding.start[0]; 4];
                sums[m][0][1 % D] = [bands.rounding.start[1]; 4];
                sums[m][1][1 % D] = [bands.rounding.start[1]; 4];
                m += 1;
            }
        }
        let mut place = bands.places;
        let mut fragment = bands.fragments.wrapping_add(8 * lane as u64);
        // SAFETY: there are places, and one more pair behind the last.
        let mut next = unsafe { load_words::<2>(place) };
        let mut step = opaque(0);
        while step < bands.steps {
            if J == 1 {
                // The assembler would unroll it, and spill: these entries have few registers.
                keep_rolled();
            }
            // SAFETY: there are so many places and fragments; the places lie in the rows. All lanes are here.
            unsafe {
                let halves = next;
                place = place.wrapping_add(8);
                next = load_words::<2>(place);
                let mut factors = [[0; 2]; F];
                let mut i = 0;
                while i < F {
                    factors[i] = load_words::<2>(fragment.wrapping_add(256 * i as u64));
                    i += 1;
                }
                let at = [base + halves[0] as i32, base + halves[1] as i32];
                let mut m = 0;
                while m < M {
                    let mut image = [0; 4];
                    let mut j = 0;
                    while j < 2 {
                        if j == 0 || J == 1 {
                            let first = m as i32 * 4 * PITCH + 2 * j as i32;
                            let eighth = first + 2 * PITCH;
                            image = [
                                shared.load_word(at[0] + first),
                                shared.load_word(at[0] + eighth),
                                shared.load_word(at[1] + first),
                                shared.load_word(at[1] + eighth),
                            ];
                        }
                        let mut d = 0;
                        while d < D {
                            sums[m][j][d] = mma(sums[m][j][d], image, factors[d * J + j % J]);
                            d += 1;
                        }
                        j += 1;
                    }
                    m += 1;
                }
            }
            fragment = fragment.wrapping_add(256 * F as u64);
            // Hidden, so that the loop stays as it is: unrolled, it would spill.
            step = opaque(step + 1);
        }
        // SAFETY: these results are this warp's; with three digits there is a list.
        unsafe { put::<D, J, M>(pass, &bands.rounding, (channels, filtered), (tile, down), &sums, places) };
        down += 16 * M as i32;
    }
}
