//! Direct correlation of bytes to bytes on the tensor cores, in whole numbers.
//!
//! Taps are whole multiples of a power of two, in one to three signed digits to the base 256. The
//! sums of each digit are exact, so their order does not matter; they are joined and rounded once.
//!
//! Tiling: `tile/strip.rs`. A block is a warp; it slides down a strip of [`TILES`] tiles, 16 rows
//! at a time. Entries for wide windows of three or four channels split them on the way into shared
//! memory: a strip is 16 pixels, and each channel is a tile.
//!
//! Thread mapping: a step multiplies 16 rows of 32 bytes, the first factor, by a band of taps for
//! each tile. In column `n` of the band are the taps of a row from byte `n` on, and zeros
//! elsewhere. Two bands make 16 values, with columns in an order that gives a lane four neighbours.
//! The 32 bytes are two halves of 16: those that a row of taps reaches, then the next row's. The
//! host makes the bands as lanes take them.
//!
//! Rounding: one or two digits hold the taps exactly; results are rounded half to even. With three,
//! a result that the taps' rounding could change goes to the work list. Limits: no epilogue; up to
//! 65536 taps; the rows of 16 results fit in shared memory; the value outside the image is a byte.
//! KEEP is left to `keep.rs`.

use crate::abi::Pass;
use crate::device::*;
use crate::tile::strip::{AHEAD, Feed, Output, Ring, Strip, Sums, TILE};
use crate::tile::whole::Rounding;

/// Tiles side by side that a strip has if channels are not parted.
pub const TILES: usize = 3;

/// The second factors, and how sums become bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bands {
    /// The address of the fragments: for each step and digit (from the lowest on) four words of
    /// each lane, two for each band.
    pub fragments: u64,
    /// Halves of 16 bytes that a row of taps reaches; two rows of one half count as one of two.
    /// Steps take two halves, of all rows in turn; the last one may have one too many, with taps of
    /// zero.
    pub halves: i32,
    /// Bytes from a row's first half to its second one,
    pub second: i32,
    /// from what would be the next half behind a row's last one to the next row's first,
    pub skip: i32,
    /// and from the first half of all to the last.
    pub last: i32,
    /// Steps.
    pub steps: i32,
    /// The rows.
    pub ring: Ring,
    /// How sums become bytes.
    pub rounding: Rounding,
}

/// Whether uncertain results wait, where so many steps are known: with any number, a kernel does
/// more for a result than they cost.
const fn waits(steps: usize) -> bool {
    steps > 0
}

/// Declares the entries and lists them. A row: the name, then digits, steps (0: any number),
/// channels that are split (1: none), tiles, and the most registers of a thread.
macro_rules! matrix {
    ($($name:ident: $d:literal, $s:literal, $p:literal, $t:literal, $limit:literal;)*) => {
        kernel! {$(
            fn $name(pass: Pass, bands: Bands, channels: i32, filtered: i32, rows: i32) {
                directive!($limit);
                let_next_kernel_begin();
                slide::<$d, $s, $p, $t, { waits($s) }>(&pass, &bands, (channels, filtered), rows)
            }
        )*}

        host! {
            /// The entries; of those that take a problem with as many steps, the first is the
            /// fastest.
            pub const ENTRIES: &[Matrix] = &[$(Matrix { entry: $name, digits: $d, steps: $s, parted: $p, waits: waits($s) }),*];
        }
    };
}

matrix! {
    matrix_3_five: 3, 5, 1, 3, ".maxnreg 168";
    matrix_1: 1, 0, 1, 3, ".maxnreg 96";
    matrix_2: 2, 0, 1, 3, ".maxnreg 128";
    matrix_3: 3, 0, 1, 3, ".maxnreg 128";
    matrix_3_rgb: 3, 0, 3, 3, ".maxnreg 128";
    matrix_3_rgba: 3, 0, 4, 4, ".maxnreg 168";
}

host! {
    /// An entry: the pass, the bands, the channels of a pixel, how many of them are filtered, the
    /// rows of a strip (a multiple of 16).
    #[derive(Clone, Copy, Debug)]
    pub struct Matrix {
        /// What to launch.
        pub entry: crate::entry::Entry<(Pass, Bands, i32, i32, i32)>,
        /// Digits of a tap.
        pub digits: u32,
        /// Steps; 0 for any number.
        pub steps: usize,
        /// Channels, if they are parted; else 1.
        pub parted: usize,
        /// Whether uncertain results wait in shared memory.
        pub waits: bool,
    }
}

/// Filters a strip from top to bottom.
///
/// # Safety
/// `pass` describes allocated memory and keeps the limits above; `bands` are made for it. The
/// launch has blocks of a warp, as many in x as there are strips, and the shared memory that the
/// ring needs, and uncertain results if they wait.
#[inline(always)]
unsafe fn slide<
    const D: usize,
    const S: usize,
    const P: usize,
    const T: usize,
    const WAITS: bool,
>(
    pass: &Pass,
    bands: &Bands,
    (channels, filtered): (i32, i32),
    rows: i32,
) {
    const { assert!(P == 1 || (P == 3 || P == 4) && T == P) }
    let ring = &bands.ring;
    let strip = Strip::new::<P>(pass, ring, channels, T as i32, rows);
    let mut feed = Feed::<P>::new(pass, ring, channels, strip);
    // SAFETY: as the caller promised.
    let mut output = unsafe { Output::<P, T, WAITS>::new(pass, ring, (channels, filtered), strip) };
    let shared = Shared::dynamic().in_register();
    let lane = thread_x();
    // SAFETY: as the caller promised; the places lie in the ring, all lanes are here at each
    // product, and the results are this warp's.
    unsafe {
        let fragments = bands.fragments.wrapping_add(16 * lane as u64);
        let mut near = [[[0; 4]; D]; S];
        let mut step = 0;
        while step < S {
            near[step] = factors(fragments.wrapping_add(512 * (D * step) as u64));
            step += 1;
        }
        // 16 lanes have the address of a row's half each, the others those of a step's second half.
        let second = lane >> 4;
        let (size, group) = (ring.shared_bytes(), 16 * ring.pitch);
        let mut start = (lane & 15) * ring.pitch;
        // Groups that are under way before the first is waited for.
        let mut ahead = ring.groups - 1;
        while output.has_rows() {
            if P == 1 && ahead <= 0 {
                copies_wait::<{ AHEAD - 1 }>();
                warp_barrier();
            }
            feed.start(|| ());
            ahead -= 1;
            if ahead >= 0 {
                continue;
            }
            if P > 1 {
                warp_barrier();
            }
            let at = |place: i32| {
                let at = (start + place) as u32;
                core::cmp::min(at, at.wrapping_sub(size as u32)) as i32
            };
            let mut sums = [[[[0; 4]; D]; 2]; T];
            if D == 3 {
                let mut t = 0;
                while t < T {
                    sums[t][0][1 % D] = [bands.rounding.start[0]; 4];
                    sums[t][1][1 % D] = [bands.rounding.start[0]; 4];
                    t += 1;
                }
            }
            if S > 0 {
                let mut step = 0;
                while step < S {
                    let place = step as i32 * ring.pitch + 16 * second;
                    multiply::<D, P, T>(&mut sums, shared, (at(place), ring.tile), &near[step]);
                    step += 1;
                }
            } else {
                // The first step by itself, whose sums begin with constants.
                let here = at(core::cmp::min(bands.second * second, bands.last));
                multiply::<D, P, T>(&mut sums, shared, (here, ring.tile), &factors(fragments));
                let mut fragment = fragments;
                let (mut place, mut half) = (bands.second * second, second);
                let mut left = opaque(bands.steps - 1);
                while left > 0 {
                    // The assembler would unroll it four times, and spill.
                    keep_rolled();
                    fragment = fragment.wrapping_add(512 * D as u64);
                    (place, half) = (place + 32, half + 2);
                    if half >= bands.halves {
                        (place, half) = (place + bands.skip, half - bands.halves);
                    }
                    let here = at(core::cmp::min(place, bands.last));
                    multiply::<D, P, T>(&mut sums, shared, (here, ring.tile), &factors(fragment));
                    left -= 1;
                }
            }
            output.write(&bands.rounding, 0, &sums, || ());
            output.advance();
            if P > 1 {
                // The next group takes the place of the first one.
                warp_barrier();
            }
            start += group;
            start = if start >= size { start - size } else { start };
        }
        output.finish::<D>();
    }
}

/// A lane's words of the second factors of a step.
///
/// # Safety
/// They are there.
#[inline(always)]
unsafe fn factors<const D: usize>(at: u64) -> [[u32; 4]; D] {
    let mut factors = [[0; 4]; D];
    let mut d = 0;
    while d < D {
        // SAFETY: as the caller promised.
        factors[d] = unsafe { load_words(at.wrapping_add(512 * d as u64)) };
        d += 1;
    }
    factors
}

/// Adds a step to the sums of all tiles; byte `at` is where this lane's half of a row begins for
/// the first one, and `tile` how many bytes further it does for the next.
///
/// # Safety
/// It lies in the ring; all lanes call together.
#[inline(always)]
unsafe fn multiply<const D: usize, const P: usize, const T: usize>(
    sums: &mut [Sums<D>; T],
    shared: Shared,
    (at, tile): (i32, i32),
    factors: &[[u32; 4]; D],
) {
    // Known to the compiler.
    let tile = if P == 1 { TILE } else { tile };
    let mut t = 0;
    while t < T {
        // SAFETY: as the caller promised.
        unsafe {
            let image = shared.load_matrices(at + tile * t as i32);
            let mut d = 0;
            while d < D {
                let [a, b, c, e] = factors[d];
                sums[t][0][d] = mma(sums[t][0][d], image, [a, b]);
                sums[t][1][d] = mma(sums[t][1][d], image, [c, e]);
                d += 1;
            }
        }
        t += 1;
    }
}
