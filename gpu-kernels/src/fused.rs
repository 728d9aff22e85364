//! Separable correlation, both passes in one kernel, one f32 channel: the image is read once and written once.
//!
//! Tiling and thread mapping: as `sliding.rs`. An input row is filtered along itself in registers, from the lane's share
//! of it; the result is then added to the K sums under way down the columns.
//! Order: the row pass, then the column pass, each one accumulator, taps ascending, fused multiply-add: the same bits as
//! `separable.rs`.
//! Taps: in the constant bank, the row's and then the column's, at positions known to the compiler.
//! Limits: as many taps in the row as in the column, odd; anchor column K / 2; the source's rows aligned to 16 bytes.
//! KEEP is left to `keep.rs`.

use crate::abi::{Frame, Taps, ring_apron};
use crate::device::*;
use crate::sliding::{Step, advance, slide};

macro_rules! declare {
    ($($name:ident: $k:literal, $px:literal, $r:literal, $stages:literal;)*) => {kernel! {$(
        fn $name(frame: Frame, anchor_y: i32, rows: i32, taps: Taps<{ 2 * $k }>) {
            slide::<$k, $px, $r, $stages, _>(&frame, anchor_y, rows, Fused(parameter!($name, 3, taps)))
        }
    )*}};
}

crate::fused_entries!(declare);

struct Fused(Parameter);

impl<const K: usize, const PX: usize, const R: usize> Step<K, PX, R> for Fused {
    #[inline(always)]
    unsafe fn step(&self, rows: [[f32; crate::ring::MAX_SHARE]; R], sums: &mut [[f32; PX]; K]) -> [[f32; PX]; R] {
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
