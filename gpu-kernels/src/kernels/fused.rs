//! Separable correlation, both passes in one kernel: the image is read once and written once.
//!
//! Tiling and threads: as `sliding.rs`. A lane filters its share of an input row along the row, in
//! registers, then adds the result to the K sums in progress down the columns. Order: the row pass,
//! then the column pass, each one accumulator, taps ascending, fused multiply-add: the same bits as
//! `separable.rs`. Taps: in the constant bank, the row's, then the column's, at compile-time
//! positions. Limits: as many taps in the row as in the column, odd; anchor column K / 2; the
//! source as for `sliding.rs`; 8 and 16 bits up to 33 taps: beyond, two passes are faster. Copies
//! at the border are left to `keep.rs`.

use crate::abi::{Pass, Taps};
use crate::device::*;
use crate::kernels::sliding::{Step, advance, narrower, skew, slide, slide_planar, span};
use crate::tile::ring::MAX_SHARE;

/// Declares and lists the entries. Each has: name, name for 8 bits, name for 16 bits; taps; pixels
/// of a lane, and for 8 bits; rows at a time, and for 8 and 16 bits; stages of the ring; the most
/// registers of a thread for 8 bits. Then those for f32 alone: name; taps; pixels of a lane; rows
/// at a time; stages of the ring. Then those for interleaved channels of f32: name; taps; channels;
/// rows at a time.
macro_rules! fused {
    (stored { $($name:ident, $bits8:ident, $bits16:ident: $k:literal, $px:literal, $px8:literal, $r:literal, $r8:literal, $stages:literal, $limit:literal;)* }
    f32 { $($wide:ident: $wide_k:literal, $wide_px:literal, $wide_r:literal, $wide_stages:literal;)* }
    interleaved { $($values:ident: $values_k:literal, $values_c:literal, $values_r:literal;)* }) => {
        kernel! {$(
            fn $name(pass: Pass, anchor_y: i32, rows: i32, taps: Taps<{ 2 * $k }>) {
                slide::<$k, $k, 1, $px, $r, $stages, _>(&pass, anchor_y, rows, Fused::<1>(parameter!($name, 3, taps)))
            }
            fn $bits8(pass: Pass, anchor_y: i32, rows: i32, filtered: i32, taps: Taps<{ 2 * $k }>) {
                directive!($limit);
                let fused = Fused::<1>(parameter!($bits8, 4, taps));
                slide_planar::<1, $k, $px8, $r8, _>(&pass, anchor_y, rows, filtered, fused)
            }
            fn $bits16(pass: Pass, anchor_y: i32, rows: i32, filtered: i32, taps: Taps<{ 2 * $k }>) {
                let fused = Fused::<1>(parameter!($bits16, 4, taps));
                slide_planar::<2, $k, { narrower($px, $px8) as usize }, $r8, _>(&pass, anchor_y, rows, filtered, fused)
            }
        )*
        $(
            fn $wide(pass: Pass, anchor_y: i32, rows: i32, taps: Taps<{ 2 * $wide_k }>) {
                slide::<$wide_k, $wide_k, 1, $wide_px, $wide_r, $wide_stages, _>(&pass, anchor_y, rows, Fused::<1>(parameter!($wide, 3, taps)))
            }
        )*
        $(
            fn $values(pass: Pass, anchor_y: i32, rows: i32, taps: Taps<{ 2 * $values_k }>) {
                let fused = Fused::<$values_c>(parameter!($values, 3, taps));
                slide::<$values_k, { span($values_k, $values_c) }, $values_c, 4, $values_r, 8, _>(&pass, anchor_y, rows, fused)
            }
        )*}

        host! {
            /// The entries: K taps in the row, and as many in the column.
            pub const ENTRIES: &[crate::kernels::sliding::Strip] = &[$(
                crate::kernels::sliding::Strip {
                    entry: $name.with_taps(),
                    planar: Some([
                        crate::kernels::sliding::Planar { entry: $bits8.with_taps(), pixels: $px8, rows: $r8 },
                        crate::kernels::sliding::Planar {
                            entry: $bits16.with_taps(),
                            pixels: narrower($px, $px8),
                            rows: $r8,
                        },
                    ]),
                    taps: $k,
                    channels: 1,
                    pixels: $px,
                    rows: $r,
                    stages: $stages,
                },
            )* $(
                crate::kernels::sliding::Strip {
                    entry: $wide.with_taps(),
                    planar: None,
                    taps: $wide_k,
                    channels: 1,
                    pixels: $wide_px,
                    rows: $wide_r,
                    stages: $wide_stages,
                },
            )* $(
                crate::kernels::sliding::Strip {
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

fused! {
    stored {
        fused_3, fused_8bit_3, fused_16bit_3: 3, 4, 8, 2, 2, 8, ".maxnreg 128";
        fused_5, fused_8bit_5, fused_16bit_5: 5, 4, 8, 2, 2, 8, ".maxnreg 128";
        fused_7, fused_8bit_7, fused_16bit_7: 7, 4, 8, 2, 2, 8, ".maxnreg 128";
        fused_9, fused_8bit_9, fused_16bit_9: 9, 4, 4, 2, 2, 8, ".maxnreg 128";
        fused_11, fused_8bit_11, fused_16bit_11: 11, 4, 4, 2, 2, 8, ".maxnreg 128";
        fused_13, fused_8bit_13, fused_16bit_13: 13, 4, 4, 2, 1, 8, ".maxnreg 128";
        fused_15, fused_8bit_15, fused_16bit_15: 15, 4, 4, 2, 1, 8, ".maxnreg 128";
        fused_17, fused_8bit_17, fused_16bit_17: 17, 4, 4, 2, 1, 8, ".maxnreg 128";
        fused_19, fused_8bit_19, fused_16bit_19: 19, 4, 4, 2, 1, 8, ".maxnreg 128";
        fused_21, fused_8bit_21, fused_16bit_21: 21, 4, 4, 2, 1, 8, ".maxnreg 128";
        fused_23, fused_8bit_23, fused_16bit_23: 23, 4, 4, 2, 1, 8, ".maxnreg 168";
        fused_25, fused_8bit_25, fused_16bit_25: 25, 4, 4, 2, 1, 8, ".maxnreg 168";
        fused_27, fused_8bit_27, fused_16bit_27: 27, 4, 4, 2, 1, 8, ".maxnreg 168";
        fused_29, fused_8bit_29, fused_16bit_29: 29, 4, 4, 2, 1, 8, ".maxnreg 168";
        fused_31, fused_8bit_31, fused_16bit_31: 31, 4, 4, 2, 1, 8, ".maxnreg 168";
        fused_33, fused_8bit_33, fused_16bit_33: 33, 4, 4, 2, 1, 8, ".maxnreg 168";
    }
    f32 {
        fused_35: 35, 4, 2, 8;
        fused_37: 37, 4, 2, 8;
        fused_39: 39, 4, 2, 8;
        fused_41: 41, 4, 1, 8;
        fused_43: 43, 4, 1, 8;
        fused_45: 45, 4, 1, 8;
        fused_47: 47, 4, 1, 8;
        fused_49: 49, 4, 1, 8;
        fused_51: 51, 2, 2, 8;
        fused_53: 53, 2, 2, 8;
        fused_55: 55, 2, 2, 8;
        fused_57: 57, 2, 2, 8;
        fused_59: 59, 2, 2, 8;
        fused_61: 61, 2, 2, 8;
        fused_63: 63, 2, 2, 8;
        fused_65: 65, 2, 2, 8;
    }
    interleaved {
        fused_f32_c3_3: 3, 3, 2;
        fused_f32_c4_3: 3, 4, 2;
        fused_f32_c3_5: 5, 3, 2;
        fused_f32_c4_5: 5, 4, 2;
        fused_f32_c3_7: 7, 3, 2;
        fused_f32_c4_7: 7, 4, 2;
        fused_f32_c3_9: 9, 3, 1;
        fused_f32_c4_9: 9, 4, 1;
        fused_f32_c3_11: 11, 3, 1;
        fused_f32_c4_11: 11, 4, 1;
        fused_f32_c3_13: 13, 3, 1;
        fused_f32_c4_13: 13, 4, 1;
        fused_f32_c3_15: 15, 3, 1;
        fused_f32_c4_15: 15, 4, 1;
        fused_f32_c3_17: 17, 3, 1;
        fused_f32_c4_17: 17, 4, 1;
        fused_f32_c3_19: 19, 3, 1;
        fused_f32_c3_21: 21, 3, 1;
    }
}

/// The taps of a row, C values apart, and of a column.
pub(crate) struct Fused<const C: usize>(pub(crate) Parameter);

impl<const C: usize, const K: usize, const PX: usize, const R: usize> Step<K, PX, R> for Fused<C> {
    type State = [[f32; PX]; K];
    const START: Self::State = [[0.0; PX]; K];

    #[inline(always)]
    unsafe fn step(
        &self,
        rows: [[f32; MAX_SHARE]; R],
        sums: &mut [[f32; PX]; K],
    ) -> [[f32; PX]; R] {
        let skew = const { skew(K, C) };
        let mut across = [[0.0; PX]; R];
        let mut col = 0;
        while col < K {
            // SAFETY: K row taps are in the parameter.
            let tap = unsafe { self.0.tap(col) };
            let mut r = 0;
            while r < R {
                let mut i = 0;
                while i < PX {
                    across[r][i] = fma(tap, rows[r][skew + C * col + i], across[r][i]);
                    i += 1;
                }
                r += 1;
            }
            col += 1;
        }
        // SAFETY: the K column taps follow the row taps.
        unsafe { down(self.0.advanced(K), &across, sums, 0.0) }
    }
}

/// The column pass: adds R row-filtered rows to the sums, and returns the R output rows that are
/// now complete. An output row's sums begin with `bias`.
///
/// # Safety
/// The parameter holds K taps.
#[inline(always)]
pub(crate) unsafe fn down<const K: usize, const PX: usize, const R: usize>(
    column: Parameter,
    across: &[[f32; PX]; R],
    sums: &mut [[f32; PX]; K],
    bias: f32,
) -> [[f32; PX]; R] {
    advance(sums, |tap_row, r, start| {
        // SAFETY: as the caller promised.
        let tap = unsafe { column.tap(tap_row) };
        let mut sum = if tap_row == 0 { [bias; PX] } else { start };
        let mut i = 0;
        while i < PX {
            sum[i] = fma(tap, across[r][i], sum[i]);
            i += 1;
        }
        sum
    })
}
