//! Direct correlation with a window that slides down the image in registers, one f32 channel.
//!
//! Tiling: each warp filters a strip 32 * PX pixels wide and `rows` high; the warps of a block have neighbouring strips.
//! Input rows come through the warp's `Ring`. A lane computes PX neighbouring pixels of every row: for each of the K
//! tap rows it holds the sums of the output row that this tap row now works on. An input row is added to all of them, R
//! input rows at a time so that a tap is fetched once for all R; the oldest sums are then complete, and a new row begins.
//!
//! Order: as `direct.rs`, and the same bits: the sums of an output row take its input rows, that is its tap rows, from top
//! to bottom, and each row's taps from left to right.
//! Taps: in the constant bank, at positions known to the compiler.
//! Limits: odd K, anchor column K / 2; the source plain (`tile/view.rs`), its rows aligned to 16 bytes. KEEP is left to `keep.rs`.
//! Cost beyond the K * K multiply-adds a pixel: (K - 1) / `rows` of them are done twice, where strips meet.

use crate::abi::{Pass, Taps};
use crate::device::*;
use crate::tile::ring::{MAX_SHARE, Ring, ring_apron};
use crate::tile::view::Target;

/// Declares the entries `name: taps, pixels of a lane, rows at a time, stages of the ring`, and lists them.
macro_rules! sliding {
    ($($name:ident: $k:literal, $px:literal, $r:literal, $stages:literal;)*) => {
        kernel! {$(
            fn $name(pass: Pass, anchor_y: i32, rows: i32, taps: Taps<{ $k * $k }>) {
                let direct = Direct(parameter!($name, 3, taps));
                slide::<$k, $px, $r, $stages, _>(&pass, anchor_y, rows, direct)
            }
        )*}

        host! {
            /// The entries: windows of K x K taps.
            pub const ENTRIES: &[Strip] = &[$(
                Strip { entry: $name.with_taps(), taps: $k, pixels: $px, rows: $r, stages: $stages }
            ),*];
        }
    };
}

sliding! {
    sliding_3: 3, 4, 2, 8;
    sliding_5: 5, 4, 2, 8;
    sliding_7: 7, 4, 2, 8;
    sliding_9: 9, 4, 2, 8;
    sliding_11: 11, 4, 2, 8;
    sliding_13: 13, 4, 1, 8;
    sliding_15: 15, 4, 1, 8;
    sliding_17: 17, 4, 1, 8;
}

host! {
    /// An entry that slides down strips of the image: the pass, the anchor's row, the rows of a strip, the taps.
    #[derive(Clone, Copy, Debug)]
    pub struct Strip {
        /// What to launch.
        pub entry: crate::entry::TapsEntry<(Pass, i32, i32)>,
        /// Tap columns, and tap rows.
        pub taps: i32,
        /// Pixels of a row that a lane computes.
        pub pixels: i32,
        /// Rows that it takes at a time.
        pub rows: i32,
        /// Rows in the ring.
        pub stages: i32,
    }
}

/// A family's work on R input rows; `sums` are those of the K output rows in progress, newest first.
pub(crate) trait Step<const K: usize, const PX: usize, const R: usize> {
    /// Adds input rows, of which each is `ring_apron(K) - K / 2` floats and then the window's, to the sums, and returns the
    /// R output rows that are now complete.
    ///
    /// # Safety
    /// The parameter holds the taps.
    unsafe fn step(&self, rows: [Share; R], sums: &mut [[f32; PX]; K]) -> [[f32; PX]; R];
}

type Share = [f32; MAX_SHARE];

/// Every tap for every pixel.
struct Direct(Parameter);

impl<const K: usize, const PX: usize, const R: usize> Step<K, PX, R> for Direct {
    #[inline(always)]
    unsafe fn step(&self, rows: [Share; R], sums: &mut [[f32; PX]; K]) -> [[f32; PX]; R] {
        let skew = ring_apron(K as i32) as usize - K / 2;
        // SAFETY: K * K taps are in the parameter.
        advance(sums, |tap_row, r, start| unsafe {
            let mut sum = start;
            let mut col = 0;
            while col < K {
                let tap = self.0.tap(tap_row * K + col);
                let mut i = 0;
                while i < PX {
                    sum[i] = fma(tap, rows[r][skew + col + i], sum[i]);
                    i += 1;
                }
                col += 1;
            }
            sum
        })
    }
}

/// Adds R input rows to the sums of the K output rows in progress, and returns the R output rows that are then complete;
/// `add(s, r, sum)` is `sum` plus the products of tap row `s` and input row `r`.
///
/// `sums[s]` has taken tap rows 0 to `s`. From the oldest on, each takes its next R tap rows and moves up R places: into a
/// place that has just been read, so that nothing is copied, and with tap rows that the one before it has used.
#[inline(always)]
pub(crate) fn advance<const K: usize, const PX: usize, const R: usize>(
    sums: &mut [[f32; PX]; K],
    add: impl Fn(usize, usize, [f32; PX]) -> [f32; PX],
) -> [[f32; PX]; R] {
    let mut complete = [[0.0; PX]; R];
    // The next tap row of a sum is `next`, counted so that the R - 1 output rows that begin below the first of the input
    // rows are numbered too.
    let mut take = |next: i32| {
        let first = next - (R as i32 - 1);
        let mut sum = if first > 0 { sums[first as usize - 1] } else { [0.0; PX] };
        let mut r = 0;
        while r < R {
            let row = first + r as i32;
            if row >= 0 && row < K as i32 {
                sum = add(row as usize, r, sum);
                if row == K as i32 - 1 {
                    complete[r] = sum;
                } else if r == R - 1 {
                    sums[row as usize] = sum;
                }
            }
            r += 1;
        }
    };
    // Two loops, because rust-cuda's compiler does not unroll one of 17 rows, and would keep the sums in memory.
    let mut next = (K + R - 1) as i32;
    let half = next / 2;
    while next > half {
        next -= 1;
        take(next);
    }
    while next > 0 {
        next -= 1;
        take(next);
    }
    complete
}

/// Filters a strip from top to bottom, for both sliding kernels.
///
/// # Safety
/// `pass` describes allocated memory, its source plain and aligned to 16 bytes, and the launch has 32 threads a row of the
/// block and [`crate::tile::ring::ring_floats`] floats of shared memory for each.
#[inline(always)]
pub(crate) unsafe fn slide<const K: usize, const PX: usize, const R: usize, const STAGES: usize, S: Step<K, PX, R>>(
    pass: &Pass,
    anchor_y: i32,
    rows: i32,
    step: S,
) {
    let strip = 32 * PX as i32;
    let strip_left = pass.region.aligned_left() + (block_x() * block_height() + thread_y()) * strip;
    if strip_left >= pass.region.x1 {
        return;
    }
    // SAFETY: the whole warp is here, with its shared memory.
    let ring = unsafe { Ring::<K, PX, R, STAGES>::new(pass, strip_left) };
    let x = strip_left + PX as i32 * thread_x();
    let run = Target::new(pass).run::<PX>(x);
    let share = (ring_apron(K as i32) as usize + K / 2 + PX).next_multiple_of(PX);

    let mut top = pass.region.y0 + block_y() * rows;
    while top < pass.region.y1 {
        let bottom = if pass.region.y1 - top < rows { pass.region.y1 } else { top + rows };
        // Rows of input are counted from the first that the strip needs.
        let first = top - anchor_y;
        let count = bottom - top + K as i32 - 1;
        let mut sums = [[0.0; PX]; K];
        let mut ahead = opaque(0);
        while ahead < (STAGES - R) as i32 {
            // SAFETY: these buffers have not been used, or the barrier below has been passed since.
            unsafe { fetch_or_none(&ring, first, ahead, count) };
            ahead += R as i32;
        }
        let mut i = 0;
        while i < count {
            // A group is committed for every R rows, so all rows but those of the newest groups have arrived.
            wait_for_rows::<R, STAGES>();
            warp_barrier();
            // SAFETY: all lanes have read the rows before these, and passed the barrier; the rows read have arrived.
            let results = unsafe {
                fetch_or_none(&ring, first, i + (STAGES - R) as i32, count);
                let mut shares = [[0.0; MAX_SHARE]; R];
                let mut r = 0;
                while r < R {
                    shares[r] = ring.read(i + r as i32, share);
                    r += 1;
                }
                step.step(shares, &mut sums)
            };
            // The oldest sums have just taken their last tap row.
            let done = top + i - (K as i32 - 1);
            let mut r = 0;
            while r < R {
                let y = done + r as i32;
                if y >= top && y < bottom {
                    // SAFETY: the row lies in the strip, which is this warp's alone.
                    unsafe { run.write(y, results[r]) };
                }
                r += 1;
            }
            i += R as i32;
        }
        copies_wait::<0>();
        warp_barrier();
        top += grid_height() * rows;
    }
}

/// Starts the copies of R rows from row `i` of the strip on, if it has them; always commits a group.
///
/// # Safety
/// As for [`Ring::fetch`].
#[inline(always)]
unsafe fn fetch_or_none<const K: usize, const PX: usize, const R: usize, const STAGES: usize>(
    ring: &Ring<'_, K, PX, R, STAGES>,
    first: i32,
    i: i32,
    count: i32,
) {
    if i < count {
        // SAFETY: as the caller promised.
        unsafe { ring.fetch(first + i, i) };
    }
    copies_commit();
}

/// Waits until all groups but the `STAGES / R - 2` newest have arrived.
#[inline(always)]
fn wait_for_rows<const R: usize, const STAGES: usize>() {
    match STAGES / R {
        2 => copies_wait::<0>(),
        4 => copies_wait::<2>(),
        8 => copies_wait::<6>(),
        _ => copies_wait::<14>(),
    }
}
