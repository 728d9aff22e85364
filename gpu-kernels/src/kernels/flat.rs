//! Both sliding kernels for bytes that become bytes or f32, and for u16 and f16 that keep their
//! type. The channels of a pixel are interleaved.
//!
//! Tiling and threads: a block is a warp. It has a strip of 32 * V values of a row, and slides down
//! `rows` output rows; a lane has V neighbouring values (`tile/flat.rs`). The grid's x axis counts
//! strips column by column. The strips at the image's left and right edge come first: they take
//! longer, and the last strips determine the launch's end. Order: as `sliding.rs` and `fused.rs`.
//! Factors of taps and sums are powers of two, so the bits are the same, too. Taps: in the constant
//! bank, at compile-time positions. The taps of a window, or of a row, are times `TAP_SCALE`,
//! except for f16. Limits: those of `tile/flat.rs`; K x K taps, odd K; anchor column K / 2. Copies
//! at the border are left to `keep.rs`.

use crate::abi::scalar::{F16, F32, U8, U16};
use crate::abi::{Pass, Taps};
use crate::device::*;
use crate::kernels::fused::down;
use crate::kernels::sliding::advance;
use crate::tile::flat::{Results, Rows, value, words};

/// Values of a row that a lane computes.
pub const VALUES: usize = 8;

/// Declares and lists the entries
/// `name: taps, channels, values and results, the most registers of a thread`.
macro_rules! flat {
    ($($list:ident, $step:ident, $count:expr; { $($name:ident: $k:literal, $c:literal, $source:ident to $result:ident, $limit:literal;)* })*) => {
        kernel! {$($(
            fn $name(pass: Pass, anchor_y: i32, rows: i32, filtered: i32, taps: Taps<{ $count($k) }>) {
                directive!($limit);
                let_next_kernel_begin();
                let step = $step(parameter!($name, 4, taps));
                slide_flat::<$source, $result, $k, $c, VALUES, { words($source, $k, $c, VALUES) }, _>(
                    &pass, anchor_y, rows, filtered, step,
                )
            }
        )*)*}

        host! {$(
            /// The entries.
            pub const $list: &[Flat] = &[$(
                Flat { entry: $name.with_taps(), taps: $k, channels: $c, source: $source, result: $result }
            ),*];
        )*}
    };
}

/// Taps of a window.
const fn window(k: usize) -> usize {
    k * k
}

/// Taps of a row and a column.
const fn pair(k: usize) -> usize {
    2 * k
}

flat! {
    DIRECT, Direct, window; {
        sliding_flat_c1_3: 3, 1, U8 to U8, ".maxnreg 72";
        sliding_flat_c3_3: 3, 3, U8 to U8, ".maxnreg 72";
        sliding_flat_c4_3: 3, 4, U8 to U8, ".maxnreg 72";
        sliding_flat_c1_5: 5, 1, U8 to U8, ".maxnreg 80";
        sliding_flat_c3_5: 5, 3, U8 to U8, ".maxnreg 96";
        sliding_flat_c4_5: 5, 4, U8 to U8, ".maxnreg 96";
        sliding_flat_c1_7: 7, 1, U8 to U8, ".maxnreg 128";
        sliding_flat_c3_7: 7, 3, U8 to U8, ".maxnreg 136";
        sliding_flat_c4_7: 7, 4, U8 to U8, ".maxnreg 144";
        sliding_flat_c1_9: 9, 1, U8 to U8, ".maxnreg 144";
        sliding_flat_c3_9: 9, 3, U8 to U8, ".maxnreg 144";
        sliding_flat_c4_9: 9, 4, U8 to U8, ".maxnreg 168";
        sliding_floats_c1_3: 3, 1, U8 to F32, ".maxnreg 80";
        sliding_floats_c3_3: 3, 3, U8 to F32, ".maxnreg 80";
        sliding_floats_c4_3: 3, 4, U8 to F32, ".maxnreg 80";
        sliding_u16_c1_3: 3, 1, U16 to U16, ".maxnreg 72";
        sliding_u16_c3_3: 3, 3, U16 to U16, ".maxnreg 80";
        sliding_u16_c4_3: 3, 4, U16 to U16, ".maxnreg 96";
        sliding_u16_c1_5: 5, 1, U16 to U16, ".maxnreg 128";
        sliding_u16_c3_5: 5, 3, U16 to U16, ".maxnreg 128";
        sliding_u16_c4_5: 5, 4, U16 to U16, ".maxnreg 128";
        sliding_u16_c1_7: 7, 1, U16 to U16, ".maxnreg 128";
        sliding_u16_c3_7: 7, 3, U16 to U16, ".maxnreg 168";
        sliding_u16_c4_7: 7, 4, U16 to U16, ".maxnreg 168";
        sliding_f16_c1_3: 3, 1, F16 to F16, ".maxnreg 72";
        sliding_f16_c3_3: 3, 3, F16 to F16, ".maxnreg 80";
        sliding_f16_c4_3: 3, 4, F16 to F16, ".maxnreg 96";
        sliding_f16_c1_5: 5, 1, F16 to F16, ".maxnreg 128";
        sliding_f16_c3_5: 5, 3, F16 to F16, ".maxnreg 128";
        sliding_f16_c4_5: 5, 4, F16 to F16, ".maxnreg 128";
        sliding_f16_c1_7: 7, 1, F16 to F16, ".maxnreg 128";
        sliding_f16_c3_7: 7, 3, F16 to F16, ".maxnreg 168";
        sliding_f16_c4_7: 7, 4, F16 to F16, ".maxnreg 168";
    }
    FUSED, Fused, pair; {
        fused_flat_c1_3: 3, 1, U8 to U8, ".maxnreg 64";
        fused_flat_c3_3: 3, 3, U8 to U8, ".maxnreg 64";
        fused_flat_c4_3: 3, 4, U8 to U8, ".maxnreg 64";
        fused_flat_c1_5: 5, 1, U8 to U8, ".maxnreg 80";
        fused_flat_c3_5: 5, 3, U8 to U8, ".maxnreg 80";
        fused_flat_c4_5: 5, 4, U8 to U8, ".maxnreg 80";
        fused_flat_c1_7: 7, 1, U8 to U8, ".maxnreg 96";
        fused_flat_c3_7: 7, 3, U8 to U8, ".maxnreg 96";
        fused_flat_c4_7: 7, 4, U8 to U8, ".maxnreg 96";
        fused_flat_c1_9: 9, 1, U8 to U8, ".maxnreg 120";
        fused_flat_c3_9: 9, 3, U8 to U8, ".maxnreg 120";
        fused_flat_c4_9: 9, 4, U8 to U8, ".maxnreg 120";
        fused_flat_c1_11: 11, 1, U8 to U8, ".maxnreg 160";
        fused_flat_c3_11: 11, 3, U8 to U8, ".maxnreg 160";
        fused_flat_c4_11: 11, 4, U8 to U8, ".maxnreg 168";
        fused_flat_c1_13: 13, 1, U8 to U8, ".maxnreg 184";
        fused_flat_c3_13: 13, 3, U8 to U8, ".maxnreg 184";
        fused_flat_c4_13: 13, 4, U8 to U8, ".maxnreg 200";
        fused_flat_c1_15: 15, 1, U8 to U8, ".maxnreg 208";
        fused_flat_c3_15: 15, 3, U8 to U8, ".maxnreg 208";
        fused_flat_c4_15: 15, 4, U8 to U8, ".maxnreg 224";
        fused_flat_c1_17: 17, 1, U8 to U8, ".maxnreg 240";
        fused_flat_c3_17: 17, 3, U8 to U8, ".maxnreg 240";
        fused_flat_c4_17: 17, 4, U8 to U8, ".maxnreg 255";
        fused_u16_c1_3: 3, 1, U16 to U16, ".maxnreg 80";
        fused_u16_c3_3: 3, 3, U16 to U16, ".maxnreg 96";
        fused_u16_c4_3: 3, 4, U16 to U16, ".maxnreg 80";
        fused_u16_c1_5: 5, 1, U16 to U16, ".maxnreg 96";
        fused_u16_c3_5: 5, 3, U16 to U16, ".maxnreg 128";
        fused_u16_c4_5: 5, 4, U16 to U16, ".maxnreg 128";
        fused_u16_c1_7: 7, 1, U16 to U16, ".maxnreg 112";
        fused_u16_c3_7: 7, 3, U16 to U16, ".maxnreg 144";
        fused_u16_c4_7: 7, 4, U16 to U16, ".maxnreg 152";
        fused_u16_c1_9: 9, 1, U16 to U16, ".maxnreg 128";
        fused_u16_c3_9: 9, 3, U16 to U16, ".maxnreg 168";
        fused_u16_c4_9: 9, 4, U16 to U16, ".maxnreg 168";
        fused_u16_c1_11: 11, 1, U16 to U16, ".maxnreg 160";
        fused_u16_c1_13: 13, 1, U16 to U16, ".maxnreg 184";
        fused_u16_c1_15: 15, 1, U16 to U16, ".maxnreg 224";
        fused_u16_c1_17: 17, 1, U16 to U16, ".maxnreg 255";
        fused_f16_c1_3: 3, 1, F16 to F16, ".maxnreg 80";
        fused_f16_c3_3: 3, 3, F16 to F16, ".maxnreg 96";
        fused_f16_c4_3: 3, 4, F16 to F16, ".maxnreg 80";
        fused_f16_c1_5: 5, 1, F16 to F16, ".maxnreg 96";
        fused_f16_c3_5: 5, 3, F16 to F16, ".maxnreg 128";
        fused_f16_c4_5: 5, 4, F16 to F16, ".maxnreg 128";
        fused_f16_c1_7: 7, 1, F16 to F16, ".maxnreg 112";
        fused_f16_c3_7: 7, 3, F16 to F16, ".maxnreg 144";
        fused_f16_c4_7: 7, 4, F16 to F16, ".maxnreg 152";
        fused_f16_c1_9: 9, 1, F16 to F16, ".maxnreg 128";
        fused_f16_c3_9: 9, 3, F16 to F16, ".maxnreg 168";
        fused_f16_c4_9: 9, 4, F16 to F16, ".maxnreg 168";
        fused_f16_c1_11: 11, 1, F16 to F16, ".maxnreg 160";
        fused_f16_c1_13: 13, 1, F16 to F16, ".maxnreg 184";
        fused_f16_c1_15: 15, 1, F16 to F16, ".maxnreg 224";
        fused_f16_c1_17: 17, 1, F16 to F16, ".maxnreg 255";
    }
}

host! {
    /// An entry. Arguments: the pass, the anchor's row, the rows of a strip, the number of filtered
    /// channels, the taps.
    #[derive(Clone, Copy, Debug)]
    pub struct Flat {
        /// The entry to launch.
        pub entry: crate::entry::TapsEntry<(Pass, i32, i32, i32)>,
        /// Tap columns, and tap rows.
        pub taps: i32,
        /// Channels of a pixel.
        pub channels: i32,
        /// The type of values: one of the constants in [`crate::abi::scalar`].
        pub source: u32,
        /// The type of results.
        pub result: u32,
    }
}

/// A kernel's work on an input row of values of type T.
pub(crate) trait Step<const T: u32, const K: usize, const C: usize, const V: usize, const W: usize>
{
    /// State from row to row: in the filter families, the sums of the K output rows in progress,
    /// newest first.
    type State;

    /// The state before the first row of a strip.
    const START: Self::State;

    /// Adds an input row to the state, and returns the output row that is now complete. An output
    /// row's sums begin with `bias`.
    ///
    /// # Safety
    /// The parameter holds the taps.
    unsafe fn step(&self, row: &[u32; W], state: &mut Self::State, bias: f32) -> [f32; V];
}

/// Correlation with every tap of a window.
struct Direct(Parameter);

impl<const T: u32, const K: usize, const C: usize, const V: usize, const W: usize>
    Step<T, K, C, V, W> for Direct
{
    type State = [[f32; V]; K];
    const START: Self::State = [[0.0; V]; K];

    #[inline(always)]
    unsafe fn step(&self, row: &[u32; W], sums: &mut [[f32; V]; K], bias: f32) -> [f32; V] {
        // SAFETY: K * K taps are in the parameter.
        let [complete] = advance(sums, |tap_row, _, start| unsafe {
            let mut sum = if tap_row == 0 { [bias; V] } else { start };
            let mut col = 0;
            while col < K {
                let tap = self.0.tap(tap_row * K + col);
                let mut i = 0;
                while i < V {
                    sum[i] = fma(tap, value::<T, K, C, W>(row, C * col + i), sum[i]);
                    i += 1;
                }
                col += 1;
            }
            sum
        });
        complete
    }
}

/// A row pass, then a column pass.
struct Fused(Parameter);

impl<const T: u32, const K: usize, const C: usize, const V: usize, const W: usize>
    Step<T, K, C, V, W> for Fused
{
    type State = [[f32; V]; K];
    const START: Self::State = [[0.0; V]; K];

    #[inline(always)]
    unsafe fn step(&self, row: &[u32; W], sums: &mut [[f32; V]; K], bias: f32) -> [f32; V] {
        let mut across = [0.0; V];
        // Each value goes to all its sums at once, so that few values are in registers. Each sum
        // still takes its taps in ascending order.
        let mut at = 0;
        while at < (K - 1) * C + V {
            let value = value::<T, K, C, W>(row, at);
            let mut col = 0;
            while col < K {
                if at >= C * col && at - C * col < V {
                    // SAFETY: K row taps are in the parameter.
                    let tap = unsafe { self.0.tap(col) };
                    across[at - C * col] = fma(tap, value, across[at - C * col]);
                }
                col += 1;
            }
            at += 1;
        }
        // SAFETY: the K column taps follow the row taps.
        let [complete] = unsafe { down(self.0.advanced(K), &[across], sums, bias) };
        complete
    }
}

/// Filters a strip from top to bottom.
///
/// # Safety
/// `pass` describes allocated memory and keeps the limits of `tile/flat.rs`; a block has 32 threads
/// and [`crate::tile::flat::flat_bytes`] of shared memory.
#[inline(always)]
pub(crate) unsafe fn slide_flat<
    const T: u32,
    const R: u32,
    const K: usize,
    const C: usize,
    const V: usize,
    const W: usize,
    S: Step<T, K, C, V, W>,
>(
    pass: &Pass,
    anchor_y: i32,
    rows: i32,
    filtered: i32,
    step: S,
) {
    let left = (pass.region.x0 * C as i32) & -(V as i32);
    let (y0, height) = (pass.region.y0, pass.region.y1 - pass.region.y0);
    // `checked`, so that no panic is compiled in; both divisors are positive.
    let divided = |count: u32, by: u32| count.checked_div(by).unwrap_or(0);
    let strips = divided((height + rows - 1) as u32, rows as u32);
    let column = divided(block_x() as u32, strips);
    let columns = divided(grid_width() as u32, strips);
    let strip_left = left + edges_first(column, columns) as i32 * 32 * V as i32;
    let x = strip_left + V as i32 * thread_x();
    let input = Rows::<T, V, C, K, W>::new(pass, x);
    let output = Results::<T, R, V, C>::new(pass, x, filtered);

    let top = y0 + (block_x() as u32 - column * strips) as i32 * rows;
    let bottom = if pass.region.y1 - top < rows { pass.region.y1 } else { top + rows };
    // The first and the last input row that the strip needs.
    let first = top - anchor_y;
    let last = first + bottom - top + K as i32 - 2;
    // SAFETY: as the caller promised.
    unsafe {
        if input.has(first, last + 2) && output.has_strip() {
            inside(&input, &output, &step, (top, first, last));
        } else {
            at_edge(&input, &output, &step, (top, first, last));
        }
    }
}

/// Column `number` of `count` columns in launch order: the first, the last, then the others.
#[inline(always)]
fn edges_first(number: u32, count: u32) -> u32 {
    match number {
        0 => 0,
        1 => count - 1,
        _ => number - 1,
    }
}

/// Rows between a prefetch into the L2 cache and the use of that row.
const AHEAD: i32 = 8;

/// Filters a strip whose input, and one more row, lies in the image. Each row loads during the step
/// before its use.
///
/// # Safety
/// That input lies in the image, and the results lie in the region; the rest as for [`slide_flat`].
#[inline(always)]
unsafe fn inside<
    const T: u32,
    const R: u32,
    const K: usize,
    const C: usize,
    const V: usize,
    const W: usize,
    S: Step<T, K, C, V, W>,
>(
    input: &Rows<'_, T, V, C, K, W>,
    output: &Results<'_, T, R, V, C>,
    step: &S,
    (top, first, last): (i32, i32, i32),
) {
    let (below, out_below) = (input.row() as u64, output.row() as u64);
    let mut state = S::START;
    let mut at = input.at(first);
    // The output row that the next input row completes. The first K - 1 lie above the strip.
    let mut y = top - (K as i32 - 1);
    let mut to = output.at(y);
    let bottom = y + last - first;
    // The row to prefetch next, and the last output row with a prefetch.
    let last_far = opaque(bottom - AHEAD);
    let mut far = prefetch_first(at, below, (y, bottom));
    // SAFETY: as the caller promised.
    unsafe {
        let mut row = input.load_inside(at);
        loop {
            at = at.wrapping_add(below);
            far = far.wrapping_add(below);
            let next =
                turn(input, output, step, &mut state, &row, (y, top, last_far), (at, far, to));
            if y == bottom {
                break;
            }
            if K > TWO_TURNS {
                row = next;
                (y, to) = (y + 1, to.wrapping_add(out_below));
                continue;
            }
            at = at.wrapping_add(below);
            far = far.wrapping_add(below);
            let to_next = to.wrapping_add(out_below);
            row = turn(
                input,
                output,
                step,
                &mut state,
                &next,
                (y + 1, top, last_far),
                (at, far, to_next),
            );
            if y + 1 == bottom {
                break;
            }
            (y, to) = (y + 2, to.wrapping_add(2 * out_below));
        }
    }
}

/// Prefetches [`AHEAD`] - 1 rows below the one at address `at`, `below` bytes apart, as far as
/// output rows from `y` to `bottom` need them. Returns the address of the last of these rows.
#[inline(always)]
fn prefetch_first(at: u64, below: u64, (y, bottom): (i32, i32)) -> u64 {
    let (mut far, mut ahead) = (at, opaque(1));
    while ahead < AHEAD {
        far = far.wrapping_add(below);
        if y + ahead <= bottom {
            prefetch(far);
        }
        ahead += 1;
    }
    far
}

/// One step: starts to load the next row, at address `at`; prefetches the row at `far`, up to
/// output row `last_far`; adds `row`, which completes output row `y`, at address `to`.
///
/// # Safety
/// As for [`inside`].
#[inline(always)]
unsafe fn turn<
    const T: u32,
    const R: u32,
    const K: usize,
    const C: usize,
    const V: usize,
    const W: usize,
    S: Step<T, K, C, V, W>,
>(
    input: &Rows<'_, T, V, C, K, W>,
    output: &Results<'_, T, R, V, C>,
    step: &S,
    state: &mut S::State,
    row: &[u32; W],
    (y, top, last_far): (i32, i32, i32),
    (at, far, to): (u64, u64, u64),
) -> [u32; W] {
    // SAFETY: as the caller promised.
    unsafe {
        let next = input.load_inside(at);
        if y <= last_far {
            prefetch(far);
        }
        let complete = step.step(row, state, output.bias());
        if y >= top {
            output.write(true, y, to, &complete);
        }
        next
    }
}

/// Most tap rows for which the loop has two steps, which saves copies between registers. With more
/// tap rows, two steps exceed the instruction cache.
const TWO_TURNS: usize = 7;

/// Filters any strip.
///
/// # Safety
/// As for [`slide_flat`].
#[inline(always)]
unsafe fn at_edge<
    const T: u32,
    const R: u32,
    const K: usize,
    const C: usize,
    const V: usize,
    const W: usize,
    S: Step<T, K, C, V, W>,
>(
    input: &Rows<'_, T, V, C, K, W>,
    output: &Results<'_, T, R, V, C>,
    step: &S,
    (top, first, last): (i32, i32, i32),
) {
    // Loads begin one row ahead, unless two rows of W words exceed the registers.
    let early = T == U8 || W < 14;
    let mut state = S::START;
    // SAFETY: as the caller promised.
    unsafe {
        let mut started = input.start(opaque(first));
        let mut y = first;
        while y <= last {
            let next = if early { input.start(opaque(y + 1)) } else { started };
            let complete = step.step(&input.finish(&started), &mut state, output.bias());
            let done = y - first + top - (K as i32 - 1);
            if done >= top {
                output.write(false, done, output.at(done), &complete);
            }
            started = if early { next } else { input.start(opaque(y + 1)) };
            y += 1;
        }
    }
}
