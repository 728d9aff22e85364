//! Direct correlation with a window that slides down the image in registers.
//!
//! Tiling: each warp filters a strip 32 * PX pixels wide and `rows` high; the warps of a block have
//! neighbouring strips. Input rows of f32 come through the warp's `Ring`. Interleaved channels of
//! f32 are one row of values, whose taps are C places apart. For interleaved channels of 8 or 16
//! bits, a block has a warp for each channel, all on the same strip (`tile/planar.rs`).
//! A lane computes PX neighbouring pixels of every row. It holds the sums of K output rows, one for
//! each tap row. An input row is added to all of them, R input rows at a time so that a tap is
//! fetched once for all R. The oldest sums are then complete, and a new row begins.
//!
//! Order: as `direct.rs`, and the same bits. The sums of an output row take its tap rows from top
//! to bottom, and each row's taps from left to right. Taps: in the constant bank, at compile-time
//! positions. Limits: odd K, anchor column K / 2; f32: the source plain (`tile/view.rs`), its rows
//! aligned to 16 bytes; 8 and 16 bits: at most 4 channels. Copies at the border are left to
//! `keep.rs`. Cost beyond K * K multiply-adds a pixel: a fraction (K - 1) / `rows` is done twice,
//! where strips meet.

use crate::abi::{Pass, Taps};
use crate::device::*;
use crate::tile::planar::{ROUND, Results, Rows};
use crate::tile::ring::{MAX_SHARE, Ring, ring_apron};
use crate::tile::view::{Run, Source, Target};

/// Declares and lists the entries. Each has: name, name for 8 bits, name for 16 bits; taps; pixels
/// of a lane, and for 8 bits; rows at a time; stages of the ring; the most registers of a thread
/// for 8 bits. Then those for interleaved channels of f32: name; taps; channels; rows at a time.
macro_rules! sliding {
    (stored { $($name:ident, $bits8:ident, $bits16:ident: $k:literal, $px:literal, $px8:literal, $r:literal, $stages:literal, $limit:literal;)* }
    f32 { $($values:ident: $values_k:literal, $values_c:literal, $values_r:literal;)* }) => {
        kernel! {$(
            fn $name(pass: Pass, anchor_y: i32, rows: i32, taps: Taps<{ $k * $k }>) {
                let direct = Direct::<1>(parameter!($name, 3, taps));
                slide::<$k, $k, 1, $px, $r, $stages, _>(&pass, anchor_y, rows, direct)
            }
            fn $bits8(pass: Pass, anchor_y: i32, rows: i32, filtered: i32, taps: Taps<{ $k * $k }>) {
                directive!($limit);
                let direct = Direct::<1>(parameter!($bits8, 4, taps));
                slide_planar::<1, $k, $px8, $r, _>(&pass, anchor_y, rows, filtered, direct)
            }
            fn $bits16(pass: Pass, anchor_y: i32, rows: i32, filtered: i32, taps: Taps<{ $k * $k }>) {
                let direct = Direct::<1>(parameter!($bits16, 4, taps));
                slide_planar::<2, $k, { narrower($px, $px8) as usize }, $r, _>(&pass, anchor_y, rows, filtered, direct)
            }
        )*
        $(
            fn $values(pass: Pass, anchor_y: i32, rows: i32, taps: Taps<{ $values_k * $values_k }>) {
                let direct = Direct::<$values_c>(parameter!($values, 3, taps));
                slide::<$values_k, { span($values_k, $values_c) }, $values_c, 4, $values_r, 8, _>(&pass, anchor_y, rows, direct)
            }
        )*}

        host! {
            /// The entries: windows of K x K taps.
            pub const ENTRIES: &[Strip] = &[$(
                Strip {
                    entry: $name.with_taps(),
                    planar: Some([
                        Planar { entry: $bits8.with_taps(), pixels: $px8, rows: $r },
                        Planar { entry: $bits16.with_taps(), pixels: narrower($px, $px8), rows: $r },
                    ]),
                    taps: $k,
                    channels: 1,
                    pixels: $px,
                    rows: $r,
                    stages: $stages,
                },
            )* $(
                Strip {
                    entry: $values.with_taps(),
                    planar: None,
                    taps: $values_k,
                    channels: $values_c,
                    pixels: 4,
                    rows: $values_r,
                    stages: 8,
                },
            )*];
        }
    };
}

sliding! {
    stored {
        sliding_3, sliding_8bit_3, sliding_16bit_3: 3, 4, 8, 2, 8, ".maxnreg 96";
        sliding_5, sliding_8bit_5, sliding_16bit_5: 5, 4, 8, 2, 8, ".maxnreg 128";
        sliding_7, sliding_8bit_7, sliding_16bit_7: 7, 4, 8, 2, 8, ".maxnreg 168";
        sliding_9, sliding_8bit_9, sliding_16bit_9: 9, 4, 4, 2, 8, ".maxnreg 168";
        sliding_11, sliding_8bit_11, sliding_16bit_11: 11, 4, 4, 2, 8, ".maxnreg 168";
        sliding_13, sliding_8bit_13, sliding_16bit_13: 13, 4, 4, 1, 8, ".maxnreg 168";
        sliding_15, sliding_8bit_15, sliding_16bit_15: 15, 4, 4, 1, 8, ".maxnreg 168";
        sliding_17, sliding_8bit_17, sliding_16bit_17: 17, 4, 4, 1, 8, ".maxnreg 168";
    }
    f32 {
        sliding_f32_c3_3: 3, 3, 2;
        sliding_f32_c4_3: 3, 4, 2;
        sliding_f32_c3_5: 5, 3, 2;
        sliding_f32_c4_5: 5, 4, 2;
        sliding_f32_c3_7: 7, 3, 1;
        sliding_f32_c4_7: 7, 4, 1;
        sliding_f32_c3_9: 9, 3, 1;
        sliding_f32_c4_9: 9, 4, 1;
    }
}

host! {
    /// An entry that slides down strips of the image. Arguments: the pass, the anchor's row, the
    /// rows of a strip, the taps.
    #[derive(Clone, Copy, Debug)]
    pub struct Strip {
        /// The entry for f32.
        pub entry: crate::entry::TapsEntry<(Pass, i32, i32)>,
        /// The entries for interleaved values of 8 and of 16 bits, if there are any.
        pub planar: Option<[Planar; 2]>,
        /// Tap columns, and tap rows.
        pub taps: i32,
        /// Interleaved channels of f32: the pixels are values in memory order if there are several.
        pub channels: i32,
        /// Pixels of a row that a lane computes.
        pub pixels: i32,
        /// Rows that a lane takes at a time.
        pub rows: i32,
        /// Rows in the ring.
        pub stages: i32,
    }

    /// An entry for interleaved values: as [`Strip`], with one more argument after the rows: the
    /// number of filtered channels. The others are copied.
    #[derive(Clone, Copy, Debug)]
    pub struct Planar {
        /// The entry to launch.
        pub entry: crate::entry::TapsEntry<(Pass, i32, i32, i32)>,
        /// Pixels of a row that a lane computes.
        pub pixels: i32,
        /// Rows that a lane takes at a time.
        pub rows: i32,
    }
}

/// The pixels of a lane for 16-bit values: as many as for 32 bits, or as for 8 bits if these are
/// fewer.
pub(crate) const fn narrower(px: i32, px8: i32) -> i32 {
    if px8 < px { px8 } else { px }
}

/// A kernel's work on R input rows.
pub(crate) trait Step<const K: usize, const PX: usize, const R: usize> {
    /// State from row to row: in the filter families, the sums of the K output rows in progress,
    /// newest first.
    type State;

    /// The state before the first row of a strip.
    const START: Self::State;

    /// Whether the pass's point is added to complete rows. Its pixel is loaded again, as its row
    /// has left the ring.
    const POINT: bool = false;

    /// Adds R input rows to the state, and returns the R output rows that are now complete. Each
    /// input row is `ring_apron(K) - K / 2` floats, then the window's.
    ///
    /// # Safety
    /// The parameter holds the taps.
    unsafe fn step(&self, rows: [Share; R], state: &mut Self::State) -> [[f32; PX]; R];
}

pub(crate) type Share = [f32; MAX_SHARE];

/// The values of a row from a window's first to its last, with C interleaved channels.
pub const fn span(taps: i32, channels: i32) -> usize {
    ((taps - 1) * channels + 1) as usize
}

/// The place in a [`Share`] of the first value under the window of the lane's first result.
#[inline(always)]
pub(crate) const fn skew(taps: usize, channels: usize) -> usize {
    let reach = taps / 2 * channels;
    ring_apron(2 * reach as i32 + 1) as usize - reach
}

/// Correlation with every tap of a window, C values apart.
struct Direct<const C: usize>(Parameter);

impl<const C: usize, const K: usize, const PX: usize, const R: usize> Step<K, PX, R> for Direct<C> {
    type State = [[f32; PX]; K];
    const START: Self::State = [[0.0; PX]; K];

    #[inline(always)]
    unsafe fn step(&self, rows: [Share; R], sums: &mut [[f32; PX]; K]) -> [[f32; PX]; R] {
        let skew = const { skew(K, C) };
        // SAFETY: K * K taps are in the parameter.
        advance(sums, |tap_row, r, start| unsafe {
            let mut sum = start;
            let mut col = 0;
            while col < K {
                let tap = self.0.tap(tap_row * K + col);
                let mut i = 0;
                while i < PX {
                    sum[i] = fma(tap, rows[r][skew + C * col + i], sum[i]);
                    i += 1;
                }
                col += 1;
            }
            sum
        })
    }
}

/// Adds R input rows to the sums of the K output rows in progress, and returns the R output rows
/// that are then complete. `add(s, r, sum)` is `sum` plus the products of tap row `s` and input row
/// `r`.
///
/// `sums[s]` has taken tap rows 0 to `s`. From the oldest on, each takes its next R tap rows and
/// moves up R places. That place has just been read, so nothing is copied, and the tap rows are
/// those of the sum before.
#[inline(always)]
pub(crate) fn advance<const K: usize, const PX: usize, const R: usize>(
    sums: &mut [[f32; PX]; K],
    add: impl Fn(usize, usize, [f32; PX]) -> [f32; PX],
) -> [[f32; PX]; R] {
    let mut complete = [[0.0; PX]; R];
    // `next` numbers a sum's next tap row. The count includes the R - 1 output rows that begin
    // below the first input row.
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
    // Two loops, because rust-cuda's compiler does not unroll a loop of 17 iterations, and would
    // keep the sums in memory.
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
/// `pass` describes allocated memory, its source plain and aligned to 16 bytes. SPAN is [`span`] of
/// K and C; with several channels C, the pass's pixels are values. The launch has 32 threads a row
/// of the block, and [`crate::tile::ring::ring_floats`] floats of shared memory for each row.
#[inline(always)]
pub(crate) unsafe fn slide<
    const K: usize,
    const SPAN: usize,
    const C: usize,
    const PX: usize,
    const R: usize,
    const STAGES: usize,
    S: Step<K, PX, R>,
>(
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
    let ring = unsafe { Ring::<SPAN, C, PX, R, STAGES>::new(pass, strip_left) };
    let x = strip_left + PX as i32 * thread_x();
    let run = Target::new(pass).run::<PX>(x);

    let mut top = pass.region.y0 + block_y() * rows;
    while top < pass.region.y1 {
        let bottom = if pass.region.y1 - top < rows { pass.region.y1 } else { top + rows };
        // SAFETY: as the caller promised; the rows lie in the region.
        unsafe {
            slide_down::<K, SPAN, C, PX, R, STAGES, S>(
                pass,
                &ring,
                (&run, x),
                (top, bottom),
                anchor_y,
                &step,
            )
        };
        copies_wait::<0>();
        warp_barrier();
        top += grid_height() * rows;
    }
}

/// Filters the rows of a strip from `top` to before `bottom`. The lane's pixels begin at column
/// `x`; `run` are their results.
///
/// # Safety
/// As for [`slide`]; the ring's buffers are not in use, and only this warp writes these rows.
#[inline(always)]
unsafe fn slide_down<
    const K: usize,
    const SPAN: usize,
    const C: usize,
    const PX: usize,
    const R: usize,
    const STAGES: usize,
    S: Step<K, PX, R>,
>(
    pass: &Pass,
    ring: &Ring<'_, SPAN, C, PX, R, STAGES>,
    (run, x): (&Run<'_, PX>, i32),
    (top, bottom): (i32, i32),
    anchor_y: i32,
    step: &S,
) {
    let share = (ring_apron(SPAN as i32) as usize + SPAN / 2 + PX).next_multiple_of(PX);
    // Input rows are counted from the first row that the strip needs.
    let first = top - anchor_y;
    let count = bottom - top + K as i32 - 1;
    let mut state = S::START;
    // With a point, the pixels of the rows that are complete next, loaded one step ahead to hide
    // memory latency.
    let mut centres = [[0.0; PX]; R];
    // SAFETY: as the caller promised. Before a buffer is used again, all lanes have read its row
    // and passed the barrier; the rows read have arrived.
    unsafe {
        let mut ahead = opaque(0);
        while ahead < (STAGES - R) as i32 {
            fetch_or_none(ring, first, ahead, count);
            ahead += R as i32;
        }
        let mut i = 0;
        while i < count {
            // A group is committed for every R rows, so all rows but those of the newest groups
            // have arrived.
            wait_for_rows::<R, STAGES>();
            warp_barrier();
            fetch_or_none(ring, first, i + (STAGES - R) as i32, count);
            let mut shares = [[0.0; MAX_SHARE]; R];
            let mut r = 0;
            while r < R {
                shares[r] = ring.read(i + r as i32, share);
                r += 1;
            }
            let results = step.step(shares, &mut state);
            // The oldest sums have just taken their last tap row.
            let done = top + i - (K as i32 - 1);
            write_complete::<K, PX, R, S>(
                pass,
                (run, x),
                done,
                (top, bottom),
                &results,
                &mut centres,
            );
            i += R as i32;
        }
    }
}

/// Writes the R rows from `done` on that lie in the strip, plus the pass's point times `centres`;
/// then loads the pixels of the next R rows into `centres`.
///
/// # Safety
/// As for [`slide_down`].
#[inline(always)]
unsafe fn write_complete<const K: usize, const PX: usize, const R: usize, S: Step<K, PX, R>>(
    pass: &Pass,
    (run, x): (&Run<'_, PX>, i32),
    done: i32,
    (top, bottom): (i32, i32),
    results: &[[f32; PX]; R],
    centres: &mut [[f32; PX]; R],
) {
    let mut r = 0;
    while r < R {
        let y = done + r as i32;
        if y >= top && y < bottom {
            let mut sums = results[r];
            let mut n = 0;
            while S::POINT && n < PX {
                sums[n] = fma(pass.point, centres[r][n], sums[n]);
                n += 1;
            }
            // SAFETY: the row lies in the strip, which only this warp writes.
            unsafe { run.write(y, sums) };
        }
        let next = y + R as i32;
        if S::POINT && next >= top && next < bottom {
            // SAFETY: the row lies in the region, and so in the image.
            centres[r] = unsafe { Source::new(pass).pixels((x, next)) };
        }
        r += 1;
    }
}

/// As [`slide`], for interleaved channels of BYTES bytes a value. A block has a strip, and a warp
/// for each channel.
///
/// # Safety
/// `pass` describes allocated memory, and its channels are those of an image. The launch has a
/// block of 32 threads a channel for each strip, with [`crate::tile::planar::planar_bytes`] bytes
/// of shared memory.
#[inline(always)]
pub(crate) unsafe fn slide_planar<
    const BYTES: usize,
    const K: usize,
    const PX: usize,
    const R: usize,
    S: Step<K, PX, R>,
>(
    pass: &Pass,
    anchor_y: i32,
    rows: i32,
    filtered: i32,
    step: S,
) {
    let strip_left = pass.region.aligned_left() + block_x() * 32 * PX as i32;
    let input = Rows::<BYTES, K, PX>::new(pass, strip_left);
    let output = Results::<PX>::new::<K>(pass, strip_left, filtered);

    let mut top = pass.region.y0 + block_y() * rows;
    while top < pass.region.y1 {
        let bottom = if pass.region.y1 - top < rows { pass.region.y1 } else { top + rows };
        let first = top - anchor_y;
        let count = bottom - top + K as i32 - 1;
        let mut state = S::START;
        // SAFETY: as the caller promised; every warp of the block takes the same path. Between the
        // barriers of two rounds, each half of shared memory is either only written or only read.
        unsafe {
            let mut raw = input.load(first);
            let mut half = 0;
            let mut i = 0;
            while i < count {
                input.place(&raw, first + i, half);
                if i + ROUND < count {
                    raw = input.load(first + i + ROUND);
                }
                input.meet();
                // The rows that this round completes.
                let done = top + i - (K as i32 - 1);
                output.flush(half ^ 1, done - ROUND, (top, bottom));
                // A compile-time constant if one step takes the whole round.
                let mut row = if R as i32 == ROUND { 0 } else { opaque(0) };
                while row < ROUND {
                    let y = done + row;
                    let places = (&input, &output, half);
                    step_planar(places, (row, y), (top, bottom), filtered, &step, &mut state);
                    row += R as i32;
                }
                half ^= 1;
                i += ROUND;
            }
            input.meet();
            output.flush(half ^ 1, top + i - ROUND - (K as i32 - 1), (top, bottom));
        }
        top += grid_height() * rows;
    }
}

/// Filters R rows of a round from number `row` on, which complete output row `y` and those below;
/// copies the results if the warp's channel is not filtered. `half` is the half of shared memory
/// that has the round's rows and results.
///
/// # Safety
/// As for [`slide_planar`]; the rows are in shared memory.
#[inline(always)]
unsafe fn step_planar<
    const BYTES: usize,
    const K: usize,
    const PX: usize,
    const R: usize,
    S: Step<K, PX, R>,
>(
    (input, output, half): (&Rows<'_, BYTES, K, PX>, &Results<'_, PX>, i32),
    (row, y): (i32, i32),
    (top, bottom): (i32, i32),
    filtered: i32,
    step: &S,
    state: &mut S::State,
) {
    let share =
        (ring_apron(K as i32) as usize + K / 2 + PX).next_multiple_of(if PX < 4 { PX } else { 4 });
    // SAFETY: as the caller promised.
    unsafe {
        if thread_y() < filtered {
            let mut shares = [[0.0; MAX_SHARE]; R];
            let mut r = 0;
            while r < R {
                shares[r] = input.read(half, row + r as i32, share);
                r += 1;
            }
            let results = step.step(shares, state);
            let mut r = 0;
            while r < R {
                let y = y + r as i32;
                if y >= top && y < bottom {
                    output.take(half, row + r as i32, y, results[r]);
                }
                r += 1;
            }
        } else {
            let mut r = opaque(0);
            while r < R as i32 {
                if y + r >= top && y + r < bottom {
                    output.copy(half, row + r, y + r);
                }
                r += 1;
            }
        }
    }
}

/// Starts the copies of R rows from row `i` of the strip on, if the strip has them. Commits a group
/// in any case.
///
/// # Safety
/// As for [`Ring::fetch`].
#[inline(always)]
unsafe fn fetch_or_none<
    const K: usize,
    const C: usize,
    const PX: usize,
    const R: usize,
    const STAGES: usize,
>(
    ring: &Ring<'_, K, C, PX, R, STAGES>,
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
