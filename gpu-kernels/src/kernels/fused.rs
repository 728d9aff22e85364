//! Separable correlation, both passes in one kernel, one f32 channel: the image is read once and written once.
//!
//! Tiling and thread mapping: as `sliding.rs`. An input row is filtered along itself in registers, from the lane's share
//! of it; the result is then added to the K sums in progress down the columns.
//! Order: the row pass, then the column pass, each one accumulator, taps ascending, fused multiply-add: the same bits as
//! `separable.rs`.
//! Taps: in the constant bank, the row's and then the column's, at positions known to the compiler.
//! Limits: as many taps in the row as in the column, odd; anchor column K / 2; the source plain (`tile/view.rs`), its rows aligned
//! to 16 bytes. KEEP is left to `keep.rs`.

use crate::abi::{Pass, Taps};
use crate::device::*;
use crate::kernels::sliding::{Step, advance, slide};
use crate::tile::ring::{MAX_SHARE, ring_apron};

/// Declares the entries `name: taps, pixels of a lane, rows at a time, stages of the ring`, and lists them.
macro_rules! fused {
    ($($name:ident: $k:literal, $px:literal, $r:literal, $stages:literal;)*) => {
        kernel! {$(
            fn $name(pass: Pass, anchor_y: i32, rows: i32, taps: Taps<{ 2 * $k }>) {
                slide::<$k, $px, $r, $stages, _>(&pass, anchor_y, rows, Fused(parameter!($name, 3, taps)))
            }
        )*}

        host! {
            /// The entries: K taps in the row, and as many in the column.
            pub const ENTRIES: &[crate::kernels::sliding::Strip] = &[$(
                crate::kernels::sliding::Strip { entry: $name.with_taps(), taps: $k, pixels: $px, rows: $r, stages: $stages }
            ),*];
        }
    };
}

fused! {
    fused_3: 3, 4, 2, 8;
    fused_5: 5, 4, 2, 8;
    fused_7: 7, 4, 2, 8;
    fused_9: 9, 4, 2, 8;
    fused_11: 11, 4, 2, 8;
    fused_13: 13, 4, 1, 8;
    fused_15: 15, 4, 1, 8;
    fused_17: 17, 4, 1, 8;
    fused_19: 19, 4, 1, 8;
    fused_21: 21, 4, 1, 8;
    fused_23: 23, 4, 1, 8;
    fused_25: 25, 4, 1, 8;
    fused_27: 27, 4, 1, 8;
    fused_29: 29, 4, 1, 8;
    fused_31: 31, 4, 1, 8;
    fused_33: 33, 4, 1, 8;
    fused_35: 35, 4, 1, 8;
    fused_37: 37, 4, 1, 8;
    fused_39: 39, 4, 1, 8;
    fused_41: 41, 4, 1, 8;
    fused_43: 43, 4, 1, 8;
    fused_45: 45, 4, 1, 8;
    fused_47: 47, 4, 1, 8;
    fused_49: 49, 4, 1, 8;
    fused_51: 51, 2, 1, 8;
    fused_53: 53, 2, 1, 8;
    fused_55: 55, 2, 1, 8;
    fused_57: 57, 2, 1, 8;
    fused_59: 59, 2, 1, 8;
    fused_61: 61, 2, 1, 8;
    fused_63: 63, 2, 1, 8;
    fused_65: 65, 2, 1, 8;
}

struct Fused(Parameter);

impl<const K: usize, const PX: usize, const R: usize> Step<K, PX, R> for Fused {
    #[inline(always)]
    unsafe fn step(&self, rows: [[f32; MAX_SHARE]; R], sums: &mut [[f32; PX]; K]) -> [[f32; PX]; R] {
        let skew = ring_apron(K as i32) as usize - K / 2;
        let mut across = [[0.0; PX]; R];
        let mut col = 0;
        while col < K {
            // SAFETY: K row taps are in the parameter.
            let tap = unsafe { self.0.tap(col) };
            let mut r = 0;
            while r < R {
                let mut i = 0;
                while i < PX {
                    across[r][i] = fma(tap, rows[r][skew + col + i], across[r][i]);
                    i += 1;
                }
                r += 1;
            }
            col += 1;
        }
        advance(sums, |tap_row, r, start| {
            // SAFETY: behind them are K column taps.
            let tap = unsafe { self.0.tap(K + tap_row) };
            let mut sum = start;
            let mut i = 0;
            while i < PX {
                sum[i] = fma(tap, across[r][i], sum[i]);
                i += 1;
            }
            sum
        })
    }
}
