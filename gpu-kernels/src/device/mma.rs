//! Products of small integer matrices on the tensor cores: PTX instructions that a warp executes
//! together.

use super::{Shared, asm};

/// Whether the architecture has the product as one instruction: compute capability 8.0 and up. 7.5
/// has four smaller instructions, whose fragments are the same registers. rustc and rust-cuda name
/// the architecture differently.
const WHOLE: bool = cfg!(any(target_feature = "sm_80", target_feature = "compute_80"));

/// Defines `$name`, a product whose first factor has bytes of type `$a` and whose second one has
/// bytes of type `$b`. Also defines `$quarter`, the same for 8 rows of `a` and half of its columns.
macro_rules! product {
    ($(#[$doc:meta])* $name:ident, $quarter:ident, $a:literal, $b:literal) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// All 32 lanes of the warp call together.
        #[inline(always)]
        pub(crate) unsafe fn $name(sums: [i32; 4], a: [u32; 4], b: [u32; 2]) -> [i32; 4] {
            if WHOLE {
                let (s0, s1, s2, s3);
                // SAFETY: as the caller promised. Not `pure`, so that no lane's product moves into
                // a branch that other lanes do not take.
                unsafe {
                    asm!(
                        concat!(
                            "mma.sync.aligned.m16n8k32.row.col.s32.", $a, ".", $b,
                            ".s32 {{{}, {}, {}, {}}}, {{{}, {}, {}, {}}}, {{{}, {}}}, {{{}, {}, {}, {}}};"
                        ),
                        out(reg32) s0,
                        out(reg32) s1,
                        out(reg32) s2,
                        out(reg32) s3,
                        in(reg32) a[0],
                        in(reg32) a[1],
                        in(reg32) a[2],
                        in(reg32) a[3],
                        in(reg32) b[0],
                        in(reg32) b[1],
                        in(reg32) sums[0],
                        in(reg32) sums[1],
                        in(reg32) sums[2],
                        in(reg32) sums[3],
                        options(nomem, nostack, preserves_flags)
                    );
                }
                [s0, s1, s2, s3]
            } else {
                // SAFETY: as the caller promised.
                unsafe {
                    let upper = $quarter($quarter([sums[0], sums[1]], a[0], b[0]), a[2], b[1]);
                    let lower = $quarter($quarter([sums[2], sums[3]], a[1], b[0]), a[3], b[1]);
                    [upper[0], upper[1], lower[0], lower[1]]
                }
            }
        }

        /// # Safety
        /// As for the product.
        #[inline(always)]
        unsafe fn $quarter(sums: [i32; 2], a: u32, b: u32) -> [i32; 2] {
            let (s0, s1);
            // SAFETY: as the caller promised; see the product.
            unsafe {
                asm!(
                    concat!("mma.sync.aligned.m8n8k16.row.col.s32.", $a, ".", $b, ".s32 {{{}, {}}}, {{{}}}, {{{}}}, {{{}, {}}};"),
                    out(reg32) s0,
                    out(reg32) s1,
                    in(reg32) a,
                    in(reg32) b,
                    in(reg32) sums[0],
                    in(reg32) sums[1],
                    options(nomem, nostack, preserves_flags)
                );
            }
            [s0, s1]
        }
    };
}

product! {
    /// `sums + a * b`, exact modulo 2^32. `a` is a matrix of 16 rows and 32 columns of unsigned
    /// bytes; `b` has 32 rows and 8 columns of signed bytes. Each lane holds a part of them. With
    /// `g = lane / 4` and `t = lane % 4`, byte `i` of a lane's words is
    ///
    /// | word | of | row | column |
    /// | --- | --- | --- | --- |
    /// | `a[0]`, `a[1]` | `a` | `g`, `g + 8` | `4 * t + i` |
    /// | `a[2]`, `a[3]` | `a` | `g`, `g + 8` | `16 + 4 * t + i` |
    /// | `b[0]`, `b[1]` | `b` | `4 * t + i`, `16 + 4 * t + i` | `g` |
    /// | `sums[0]`, `sums[1]` | the sums | `g` | `2 * t`, `2 * t + 1` |
    /// | `sums[2]`, `sums[3]` | the sums | `g + 8` | `2 * t`, `2 * t + 1` |
    mma, quarter, "u8", "s8"
}

product! {
    /// As [`mma`], but the bytes of `a` are signed and those of `b` are unsigned.
    mma_signed, quarter_signed, "s8", "u8"
}

impl Shared {
    /// Reads four matrices of 8 rows of 16 bytes. Lanes `8 * i` to `8 * i + 7` pass the first bytes
    /// of the rows of matrix `i`, in order. From each matrix a lane gets word `lane % 4` of row
    /// `lane / 4`. These are the words of `a` in [`mma`], if the matrices are the upper and lower
    /// half of the rows of columns 0 to 15, then of columns 16 to 31.
    ///
    /// # Safety
    /// All 32 lanes of the warp call together. The bytes are multiples of 16. The rows lie inside
    /// the memory that the launch reserved, and a barrier stands between their writes and this
    /// read.
    #[inline(always)]
    pub(crate) unsafe fn load_matrices(self, byte: i32) -> [u32; 4] {
        let (a, b, c, d);
        // SAFETY: as the caller promised. Not `pure`: the values may change at a barrier, and no
        // lane's part may move into a branch.
        unsafe {
            asm!(
                "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{{}, {}, {}, {}}}, [{}];",
                out(reg32) a,
                out(reg32) b,
                out(reg32) c,
                out(reg32) d,
                in(reg32) self.at_byte(byte),
                options(readonly, nostack, preserves_flags)
            );
        }
        [a, b, c, d]
    }
}
