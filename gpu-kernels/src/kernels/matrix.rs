//! Direct correlation of bytes to bytes on the tensor cores, in integers.
//!
//! Arithmetic: taps are multiples of a power of two, cut into one, two or three signed digits to
//! the base 256. Products of bytes and their sums are exact, so their order does not matter. The
//! sums of the digits are joined and rounded once.
//!
//! Tiling: `tile/strip.rs`. A block is a warp and slides down a strip of [`TILES`] tiles, 16 output
//! rows at a time. Warps never wait for each other. Entries for wider windows de-interleave three
//! or four channels in shared memory: a strip is 16 pixels, and each channel is a tile.
//!
//! Threads: a step multiplies 16 rows of 32 bytes (first factor) with a band (second factor), for
//! each tile. Column `n` of the band has the taps of a row from byte `n` on, else 0. Two bands make
//! 16 values, in an order of columns that gives a lane four neighbours. The 32 bytes are two halves
//! of 16: the halves that a row of taps spans, then the next row's. The host stores bands in the
//! order of the lanes.
//!
//! Rounding: with one or two digits exact, half to even. With three, taps may be off by half of the
//! last digit's unit. If that or the cut in joining could change the byte, the result goes to the
//! pass's list. Limits: bytes to bytes, no epilogue; up to 65536 taps, so that no sum overflows;
//! rows for 16 results in shared memory; a byte outside the image. Copies at the border: `keep.rs`.

use crate::abi::Pass;
use crate::device::*;
use crate::tile::strip::{AHEAD, Feed, Output, Ring, Strip, Sums, TILE};
use crate::tile::whole::Rounding;

/// Tiles of a strip whose channels are interleaved.
pub const TILES: usize = 3;

/// The second factors, and how sums become bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bands {
    /// The address of the fragments: for each step and digit (lowest first) four words of each
    /// lane, two for each band.
    pub fragments: u64,
    /// Halves of 16 bytes that a row of taps spans; two rows of one half count as one of two. Steps
    /// take two halves at a time, over all rows. The last step may have one half too many, with
    /// zero taps.
    pub halves: i32,
    /// Bytes from a row's first half to its second half.
    pub second: i32,
    /// Bytes from the end of a row's last half to the next row's first half.
    pub skip: i32,
    /// Bytes from the very first half to the very last half.
    pub last: i32,
    /// Steps.
    pub steps: i32,
    /// The input rows in shared memory.
    pub ring: Ring,
    /// How sums become bytes.
    pub rounding: Rounding,
}

/// Whether uncertain results queue in shared memory: only in entries for a fixed number of steps.
/// Any other kernel does more work for a result than the queue saves.
const fn queues(steps: usize) -> bool {
    steps > 0
}

/// Declares and lists the entries. Each has: name; digits; steps (0: any number); channels, if
/// de-interleaved (else 1); tiles; the most registers of a thread.
macro_rules! matrix {
    ($($name:ident: $d:literal, $s:literal, $p:literal, $t:literal, $limit:literal;)*) => {
        kernel! {$(
            fn $name(pass: Pass, bands: Bands, channels: i32, filtered: i32, rows: i32) {
                directive!($limit);
                let_next_kernel_begin();
                slide::<$d, $s, $p, $t, { queues($s) }>(&pass, &bands, (channels, filtered), rows)
            }
        )*}

        host! {
            /// The entries. The first entry that supports a problem's number of steps is the
            /// fastest.
            pub const ENTRIES: &[Matrix] = &[$(Matrix { entry: $name, digits: $d, steps: $s, planar: $p, queues: queues($s) }),*];
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
    /// An entry. Arguments: the pass, the bands, the channels of a pixel, the number of filtered
    /// channels, the rows of a strip (a multiple of 16).
    #[derive(Clone, Copy, Debug)]
    pub struct Matrix {
        /// The entry to launch.
        pub entry: crate::entry::Entry<(Pass, Bands, i32, i32, i32)>,
        /// Digits of a tap.
        pub digits: u32,
        /// Steps; 0 for any number.
        pub steps: usize,
        /// Channels, if the entry de-interleaves them; else 1.
        pub planar: usize,
        /// Whether uncertain results queue in shared memory.
        pub queues: bool,
    }
}

/// Filters a strip from top to bottom.
///
/// # Safety
/// `pass` describes allocated memory and keeps the limits above; `bands` are made for it. The
/// launch has blocks of a warp, one in x for each strip. Its shared memory has room for the ring,
/// and for queued results if QUEUES.
#[inline(always)]
unsafe fn slide<
    const D: usize,
    const S: usize,
    const P: usize,
    const T: usize,
    const QUEUES: bool,
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
    let mut output =
        unsafe { Output::<P, T, QUEUES>::new(pass, ring, (channels, filtered), strip) };
    let shared = Shared::dynamic().in_register();
    let lane = thread_x();
    // SAFETY: as the caller promised; the places lie in the ring, all lanes reach each product, and
    // only this warp writes the results.
    unsafe {
        let fragments = bands.fragments.wrapping_add(16 * lane as u64);
        let mut near = [[[0; 4]; D]; S];
        let mut step = 0;
        while step < S {
            near[step] = factors(fragments.wrapping_add(512 * (D * step) as u64));
            step += 1;
        }
        // 16 lanes have the address of a row's half each; the others have the addresses of the
        // step's second half.
        let second = lane >> 4;
        let (size, group) = (ring.shared_bytes(), 16 * ring.pitch);
        let mut start = (lane & 15) * ring.pitch;
        // Groups to start before the first wait.
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
                // The first step is outside the loop, as its sums begin with constants.
                let here = at(core::cmp::min(bands.second * second, bands.last));
                multiply::<D, P, T>(&mut sums, shared, (here, ring.tile), &factors(fragments));
                let mut fragment = fragments;
                let (mut place, mut half) = (bands.second * second, second);
                let mut left = opaque(bands.steps - 1);
                while left > 0 {
                    // The assembler would unroll the loop four times, and spill registers.
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
                // The next group overwrites the oldest rows.
                warp_barrier();
            }
            start += group;
            start = if start >= size { start - size } else { start };
        }
        output.finish::<D>();
    }
}

/// A lane's words of a step's second factors.
///
/// # Safety
/// The words are at this address.
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

/// Adds a step to the sums of all tiles. `at` is the byte of this lane's half of a row in the first
/// tile, and `tile` the bytes from tile to tile.
///
/// # Safety
/// The bytes lie in the ring; all lanes call this together.
#[inline(always)]
unsafe fn multiply<const D: usize, const P: usize, const T: usize>(
    sums: &mut [Sums<D>; T],
    shared: Shared,
    (at, tile): (i32, i32),
    factors: &[[u32; 4]; D],
) {
    // A compile-time constant if channels are interleaved.
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
