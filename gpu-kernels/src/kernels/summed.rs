//! Filters that are almost a product of a row and a column, in one kernel: the image is read once
//! and written once. A filter is a sum of two products, such as a Laplacian of Gaussians, or one
//! product plus a multiple of the pixel itself, such as an unsharp mask.
//!
//! Tiling and threads: as `sliding.rs`. A lane filters its share of an input row with each term's
//! row, in registers, then adds the results to the K sums in progress down the columns. The terms
//! share these sums, so two terms take hardly more registers than one. Order: the row passes, each
//! one accumulator, taps ascending; then one accumulator down the columns: for each tap row, from
//! the top, the first term's product, then the second's; at last `Pass::point` times the pixel; all
//! by fused multiply-add. `separable_columns_summed` gives the same bits. Taps: in the constant
//! bank, at compile-time positions: the rows, interleaved tap by tap, then the columns, so that one
//! fetch gets the taps of both terms. Limits: planes of f32; as many taps in the rows as in the
//! columns, odd; anchor column K / 2; the source as for `sliding.rs`. Copies at the border are left
//! to `keep.rs`.

use crate::abi::{Pass, Taps};
use crate::device::*;
use crate::kernels::fused::Fused;
use crate::kernels::sliding::{Share, Step, advance, slide};
use crate::tile::ring::ring_apron;

/// Declares and lists the entries
/// `name: taps, pixels of a lane, rows at a time, stages of the ring`, for two terms, or for one
/// term and the pixel.
macro_rules! summed {
    (
        $table:ident, $step:expr, $factors:literal, $meaning:literal:
        $($name:ident: $k:literal, $px:literal, $r:literal, $stages:literal;)*
    ) => {
        kernel! {$(
            fn $name(pass: Pass, anchor_y: i32, rows: i32, taps: Taps<{ $factors * $k }>) {
                slide::<$k, $k, 1, $px, $r, $stages, _>(&pass, anchor_y, rows, $step(parameter!($name, 3, taps)))
            }
        )*}

        host! {
            #[doc = $meaning]
            pub const $table: &[crate::kernels::sliding::Strip] = &[$(
                crate::kernels::sliding::Strip {
                    entry: $name.with_taps(),
                    planar: None,
                    taps: $k,
                    channels: 1,
                    pixels: $px,
                    rows: $r,
                    stages: $stages,
                }
            ),*];
        }
    };
}

summed! {
    TWO, Two, 4, "The entries for two terms: K taps in each row, and as many in each column.":
    summed_two_9: 9, 4, 4, 8;
    summed_two_11: 11, 4, 2, 8;
    summed_two_13: 13, 4, 2, 8;
    summed_two_15: 15, 4, 2, 8;
    summed_two_17: 17, 4, 4, 8;
    summed_two_19: 19, 4, 2, 8;
    summed_two_21: 21, 4, 2, 8;
    summed_two_23: 23, 4, 2, 8;
    summed_two_25: 25, 4, 2, 8;
    summed_two_27: 27, 4, 2, 8;
    summed_two_29: 29, 4, 2, 8;
    summed_two_31: 31, 4, 1, 8;
    summed_two_33: 33, 4, 1, 8;
}

summed! {
    POINT, Point, 2, "The entries for one term and the pixel: K taps in the row, and as many in the column.":
    summed_point_5: 5, 4, 2, 8;
    summed_point_7: 7, 4, 2, 8;
    summed_point_9: 9, 4, 4, 8;
    summed_point_11: 11, 4, 2, 8;
    summed_point_13: 13, 4, 4, 8;
    summed_point_15: 15, 4, 4, 8;
    summed_point_17: 17, 4, 4, 8;
    summed_point_19: 19, 4, 4, 8;
    summed_point_21: 21, 4, 4, 8;
    summed_point_23: 23, 4, 4, 8;
    summed_point_25: 25, 4, 4, 8;
    summed_point_27: 27, 4, 4, 8;
    summed_point_29: 29, 4, 4, 8;
    summed_point_31: 31, 4, 4, 8;
    summed_point_33: 33, 4, 4, 8;
}

/// The taps of two rows and two columns.
struct Two(Parameter);

impl<const K: usize, const PX: usize, const R: usize> Step<K, PX, R> for Two {
    type State = [[f32; PX]; K];
    const START: Self::State = [[0.0; PX]; K];

    #[inline(always)]
    unsafe fn step(&self, rows: [Share; R], sums: &mut [[f32; PX]; K]) -> [[f32; PX]; R] {
        let skew = ring_apron(K as i32) as usize - K / 2;
        let mut across = [[[0.0; PX]; R]; 2];
        let mut col = 0;
        while col < K {
            let mut term = 0;
            while term < 2 {
                // SAFETY: K taps of either row are in the parameter.
                let tap = unsafe { self.0.tap(2 * col + term) };
                let mut r = 0;
                while r < R {
                    let mut i = 0;
                    while i < PX {
                        across[term][r][i] = fma(tap, rows[r][skew + col + i], across[term][r][i]);
                        i += 1;
                    }
                    r += 1;
                }
                term += 1;
            }
            col += 1;
        }
        advance(sums, |tap_row, r, start| {
            let mut sum = start;
            let mut term = 0;
            while term < 2 {
                // SAFETY: K taps of either column follow those of the rows.
                let tap = unsafe { self.0.tap(2 * K + 2 * tap_row + term) };
                let mut i = 0;
                while i < PX {
                    sum[i] = fma(tap, across[term][r][i], sum[i]);
                    i += 1;
                }
                term += 1;
            }
            sum
        })
    }
}

/// The taps of a row and a column, and the pass's point.
struct Point(Parameter);

impl<const K: usize, const PX: usize, const R: usize> Step<K, PX, R> for Point {
    type State = [[f32; PX]; K];
    const START: Self::State = [[0.0; PX]; K];
    const POINT: bool = true;

    #[inline(always)]
    unsafe fn step(&self, rows: [Share; R], sums: &mut [[f32; PX]; K]) -> [[f32; PX]; R] {
        // SAFETY: as the caller promised.
        unsafe { Fused::<1>(self.0).step(rows, sums) }
    }
}
