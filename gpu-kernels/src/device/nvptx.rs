//! PTX instructions: the part of the device layer that both compilers share.

use super::{asm, dynamic_shared, fma};

/// Whether the architecture has asynchronous copies: compute capability 8.0 and up. rustc and
/// rust-cuda name this feature differently.
const ASYNC_COPIES: bool = cfg!(any(target_feature = "sm_80", target_feature = "compute_80"));

/// Whether one instruction rounds two numbers to the halves of a word: also compute capability 8.0
/// and up.
const HALVES_AT_ONCE: bool = ASYNC_COPIES;

/// Whether a kernel can be launched before the previous one has ended: compute capability 9.0 and
/// up.
const EARLY_LAUNCHES: bool = cfg!(any(target_feature = "sm_90", target_feature = "compute_90"));

/// Waits until the previous kernels have ended and their stores are visible.
#[inline(always)]
pub(crate) fn wait_for_kernels_ahead() {
    if EARLY_LAUNCHES {
        // SAFETY: only waits. Declared to change memory, so the compiler moves no load ahead of it.
        unsafe { asm!("griddepcontrol.wait;", options(nostack, preserves_flags)) }
    }
}

/// Lets the next kernel, if it is launched early, begin once every block of this one has reached
/// this call or ended. Its blocks take their places on the multiprocessors and wait there for this
/// kernel's end.
#[inline(always)]
pub(crate) fn let_next_kernel_begin() {
    if EARLY_LAUNCHES {
        // SAFETY: the next kernel waits for this one before it reads memory.
        unsafe {
            asm!("griddepcontrol.launch_dependents;", options(nomem, nostack, preserves_flags))
        }
    }
}

/// As `fma`, but the compiler moves no load ahead of it. Such loads would take registers and lower
/// occupancy.
#[inline(always)]
pub(crate) fn fma_in_place(a: f32, b: f32, c: f32) -> f32 {
    let sum;
    // SAFETY: arithmetic. Not `pure`, because the compiler could move it then.
    unsafe {
        asm!(
            "fma.rn.f32 {}, {}, {}, {};",
            out(reg32) sum,
            in(reg32) a,
            in(reg32) b,
            in(reg32) c,
            options(nomem, nostack, preserves_flags)
        );
    }
    sum
}

/// `value`, hidden from the optimiser. A loop over it is not unrolled, and nothing that depends on
/// it is computed before this point.
#[inline(always)]
pub(crate) fn opaque(value: i32) -> i32 {
    let hidden;
    // SAFETY: copies a register.
    unsafe {
        asm!(
            "mov.u32 {}, {};",
            out(reg32) hidden,
            in(reg32) value,
            options(nomem, nostack, preserves_flags)
        );
    }
    hidden
}

/// First in a loop's body, keeps the assembler from unrolling the loop; [`opaque`] does not.
#[inline(always)]
pub(crate) fn keep_rolled() {
    // SAFETY: a pragma about a loop; it does nothing.
    unsafe { asm!(".pragma \"nounroll\";", options(nomem, nostack, preserves_flags)) }
}

/// The 64-bit product of two 32-bit numbers in one instruction; the compiler often takes three.
#[inline(always)]
pub(crate) fn mul_wide(a: i32, b: i32) -> i64 {
    let product;
    // SAFETY: arithmetic.
    unsafe {
        asm!(
            "mul.wide.s32 {}, {}, {};",
            out(reg64) product,
            in(reg32) a,
            in(reg32) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    product
}

/// Reads element `index` of memory that nothing writes while the kernel runs (the read-only data
/// path).
///
/// # Safety
/// The element lies inside the allocation that `base` points into.
#[inline(always)]
pub(crate) unsafe fn load(base: *const f32, index: usize) -> f32 {
    let value;
    // SAFETY: in bounds by the caller's promise; kernels never read what the same launch writes.
    unsafe {
        asm!(
            "ld.global.nc.f32 {}, [{}];",
            out(reg32) value,
            in(reg64) base.wrapping_add(index),
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    value
}

/// Reads elements `index` and `index + 1` as [`load`] does, in one access; `index` is even and
/// `base` aligned to 8 bytes.
///
/// # Safety
/// As for [`load`].
#[inline(always)]
pub(crate) unsafe fn load2(base: *const f32, index: usize) -> [f32; 2] {
    let (a, b);
    // SAFETY: in bounds and aligned by the caller's promise.
    unsafe {
        asm!(
            "ld.global.nc.v2.f32 {{{}, {}}}, [{}];",
            out(reg32) a,
            out(reg32) b,
            in(reg64) base.wrapping_add(index),
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    [a, b]
}

/// Reads element `index` of memory that this kernel writes.
///
/// # Safety
/// The element lies inside the allocation that `base` points into, and no other thread writes it.
#[inline(always)]
pub(crate) unsafe fn reload(base: *const f32, index: usize) -> f32 {
    let value;
    // SAFETY: in bounds by the caller's promise.
    unsafe {
        asm!(
            "ld.global.f32 {}, [{}];",
            out(reg32) value,
            in(reg64) base.wrapping_add(index),
            options(readonly, nostack, preserves_flags)
        );
    }
    value
}

/// Reads elements `index` and `index + 1` as [`reload`] does, in one access; `index` is even and
/// `base` aligned to 8 bytes.
///
/// # Safety
/// As for [`reload`].
#[inline(always)]
pub(crate) unsafe fn reload2(base: *const f32, index: usize) -> [f32; 2] {
    let (a, b);
    // SAFETY: in bounds and aligned by the caller's promise.
    unsafe {
        asm!(
            "ld.global.v2.f32 {{{}, {}}}, [{}];",
            out(reg32) a,
            out(reg32) b,
            in(reg64) base.wrapping_add(index),
            options(readonly, nostack, preserves_flags)
        );
    }
    [a, b]
}

/// Writes element `index`.
///
/// # Safety
/// The element lies inside the allocation that `base` points into, and no other thread writes it.
#[inline(always)]
pub(crate) unsafe fn store(base: *mut f32, index: usize, value: f32) {
    // SAFETY: in bounds by the caller's promise.
    unsafe {
        asm!(
            "st.global.f32 [{}], {};",
            in(reg64) base.wrapping_add(index),
            in(reg32) value,
            options(nostack, preserves_flags)
        );
    }
}

/// Writes PX elements, 2 or 4, from `index` on in one access; their address is a multiple of its
/// size.
///
/// # Safety
/// As for [`store`].
#[inline(always)]
pub(crate) unsafe fn store_run<const PX: usize>(base: *mut f32, index: usize, values: [f32; PX]) {
    const { assert!(PX == 2 || PX == 4) }
    let to = base.wrapping_add(index);
    // SAFETY: in bounds and aligned by the caller's promise.
    unsafe {
        if PX == 4 {
            asm!(
                "st.global.v4.f32 [{}], {{{}, {}, {}, {}}};",
                in(reg64) to,
                in(reg32) values[0],
                in(reg32) values[1],
                in(reg32) values[2],
                in(reg32) values[3],
                options(nostack, preserves_flags)
            );
        } else {
            asm!(
                "st.global.v2.f32 [{}], {{{}, {}}};",
                in(reg64) to,
                in(reg32) values[0],
                in(reg32) values[1],
                options(nostack, preserves_flags)
            );
        }
    }
}

/// Reads a byte of memory that nothing writes while the kernel runs (the read-only data path).
///
/// # Safety
/// The byte lies inside an allocation.
#[inline(always)]
pub(crate) unsafe fn load_u8(at: u64) -> u32 {
    let value;
    // SAFETY: as the caller promised. Kernels never read memory that the same launch writes.
    unsafe {
        asm!(
            "ld.global.nc.u8 {}, [{}];",
            out(reg32) value,
            in(reg64) at,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    value
}

/// As [`load_u8`] if `there`, else 0. A predicated load, because after a branch each load would
/// complete before the next one is issued.
///
/// # Safety
/// As for [`load_u8`], if `there`.
#[inline(always)]
pub(crate) unsafe fn load_u8_if(there: bool, at: u64) -> u32 {
    let value;
    // SAFETY: as the caller promised.
    unsafe {
        asm!(
            "{{",
            ".reg .pred there;",
            "setp.ne.u32 there, {there}, 0;",
            "mov.u32 {value}, 0;",
            "@there ld.global.nc.u8 {value}, [{at}];",
            "}}",
            value = out(reg32) value,
            there = in(reg32) there as u32,
            at = in(reg64) at,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    value
}

/// As [`load_u8`], for two bytes at an even address.
///
/// # Safety
/// As for [`load_u8`].
#[inline(always)]
pub(crate) unsafe fn load_u16(at: u64) -> u32 {
    let value;
    // SAFETY: see `load_u8`.
    unsafe {
        asm!(
            "ld.global.nc.u16 {}, [{}];",
            out(reg32) value,
            in(reg64) at,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    value
}

/// As [`load_u8`], for N words (1, 2 or 4) at an address that is a multiple of their size.
///
/// # Safety
/// As for [`load_u8`].
#[inline(always)]
pub(crate) unsafe fn load_words<const N: usize>(at: u64) -> [u32; N] {
    const { assert!(N == 1 || N == 2 || N == 4) }
    let mut words = [0; N];
    // SAFETY: see `load_u8`.
    unsafe {
        if N == 4 {
            asm!(
                "ld.global.nc.v4.b32 {{{}, {}, {}, {}}}, [{}];",
                out(reg32) words[0],
                out(reg32) words[1],
                out(reg32) words[2],
                out(reg32) words[3],
                in(reg64) at,
                options(pure, readonly, nostack, preserves_flags)
            );
        } else if N == 2 {
            asm!(
                "ld.global.nc.v2.b32 {{{}, {}}}, [{}];",
                out(reg32) words[0],
                out(reg32) words[1],
                in(reg64) at,
                options(pure, readonly, nostack, preserves_flags)
            );
        } else {
            asm!(
                "ld.global.nc.b32 {}, [{}];",
                out(reg32) words[0],
                in(reg64) at,
                options(pure, readonly, nostack, preserves_flags)
            );
        }
    }
    words
}

/// As [`load_u8`], for a number of 64 bits at a multiple of 8.
///
/// # Safety
/// As for [`load_u8`].
#[inline(always)]
pub(crate) unsafe fn load_f64(at: u64) -> f64 {
    let value;
    // SAFETY: see `load_u8`.
    unsafe {
        asm!(
            "ld.global.nc.f64 {}, [{}];",
            out(reg64) value,
            in(reg64) at,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    value
}

/// Reads a word that this kernel, or another one in the same stream, writes.
///
/// # Safety
/// The word lies inside an allocation, at a multiple of 4, and no other thread writes it meanwhile.
#[inline(always)]
pub(crate) unsafe fn reload_word(at: u64) -> u32 {
    let value;
    // SAFETY: as the caller promised.
    unsafe {
        asm!("ld.global.b32 {}, [{}];", out(reg32) value, in(reg64) at, options(readonly, nostack, preserves_flags));
    }
    value
}

/// As [`reload_word`], a value of one or two bytes at a multiple of its size.
///
/// # Safety
/// As for [`reload_word`].
#[inline(always)]
pub(crate) unsafe fn reload_small<const BYTES: usize>(at: u64) -> u32 {
    let value;
    // SAFETY: as the caller promised.
    unsafe {
        if BYTES == 1 {
            asm!("ld.global.u8 {}, [{}];", out(reg32) value, in(reg64) at, options(readonly, nostack, preserves_flags));
        } else {
            asm!("ld.global.u16 {}, [{}];", out(reg32) value, in(reg64) at, options(readonly, nostack, preserves_flags));
        }
    }
    value
}

/// Adds to a word and returns its previous value. Threads that add to the same word do so one after
/// the other.
///
/// # Safety
/// The word lies inside an allocation, at a multiple of 4, and is touched in no other way in this
/// launch.
#[inline(always)]
pub(crate) unsafe fn atomic_add(at: u64, value: u32) -> u32 {
    let before;
    // SAFETY: as the caller promised.
    unsafe {
        asm!(
            "atom.global.add.u32 {}, [{}], {};",
            out(reg32) before,
            in(reg64) at,
            in(reg32) value,
            options(nostack, preserves_flags)
        );
    }
    before
}

/// Writes the lowest byte of `value`.
///
/// # Safety
/// The byte lies inside an allocation, and no other thread writes it.
#[inline(always)]
pub(crate) unsafe fn store_u8(at: u64, value: u32) {
    // SAFETY: as the caller promised.
    unsafe {
        asm!("st.global.u8 [{}], {};", in(reg64) at, in(reg32) value, options(nostack, preserves_flags))
    }
}

/// Writes the lower half of `value` at an even address.
///
/// # Safety
/// As for [`store_u8`].
#[inline(always)]
pub(crate) unsafe fn store_u16(at: u64, value: u32) {
    // SAFETY: as the caller promised.
    unsafe {
        asm!("st.global.u16 [{}], {};", in(reg64) at, in(reg32) value, options(nostack, preserves_flags))
    }
}

/// Defines `$name`, which writes N words (1, 2 or 4) by this instruction.
macro_rules! word_stores {
    ($(#[$doc:meta])* $name:ident, $instruction:literal) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As for [`store_u8`].
        #[inline(always)]
        pub(crate) unsafe fn $name<const N: usize>(at: u64, words: [u32; N]) {
            const { assert!(N == 1 || N == 2 || N == 4) }
            // SAFETY: as the caller promised.
            unsafe {
                if N == 4 {
                    asm!(
                        concat!($instruction, ".v4.b32 [{}], {{{}, {}, {}, {}}};"),
                        in(reg64) at,
                        in(reg32) words[0],
                        in(reg32) words[1],
                        in(reg32) words[2],
                        in(reg32) words[3],
                        options(nostack, preserves_flags)
                    );
                } else if N == 2 {
                    asm!(
                        concat!($instruction, ".v2.b32 [{}], {{{}, {}}};"),
                        in(reg64) at,
                        in(reg32) words[0],
                        in(reg32) words[1],
                        options(nostack, preserves_flags)
                    );
                } else {
                    asm!(
                        concat!($instruction, ".b32 [{}], {};"),
                        in(reg64) at,
                        in(reg32) words[0],
                        options(nostack, preserves_flags)
                    );
                }
            }
        }
    };
}

word_stores! {
    /// Writes N words (1, 2 or 4) at an address that is a multiple of their size.
    store_words, "st.global"
}

word_stores! {
    /// As [`store_words`], but the L2 cache evicts these words first.
    stream_words, "st.global.cs"
}

/// Four of the eight bytes of `a` (0 to 3) and `b` (4 to 7). The four lowest hexadecimal digits of
/// SELECTOR are their numbers; the lowest digit selects the result's lowest byte.
#[inline(always)]
pub(crate) fn permute<const SELECTOR: u32>(a: u32, b: u32) -> u32 {
    let bytes;
    // SAFETY: arithmetic.
    unsafe {
        asm!(
            "prmt.b32 {}, {}, {}, {};",
            out(reg32) bytes,
            in(reg32) a,
            in(reg32) b,
            const SELECTOR,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    bytes
}

/// As [`permute`], by a selector known only at run time.
#[inline(always)]
pub(crate) fn permute_by(a: u32, b: u32, selector: u32) -> u32 {
    let bytes;
    // SAFETY: arithmetic.
    unsafe {
        asm!(
            "prmt.b32 {}, {}, {}, {};",
            out(reg32) bytes,
            in(reg32) a,
            in(reg32) b,
            in(reg32) selector,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    bytes
}

/// 32 bits of the two words, from bit `bits` (modulo 32) of `low` on.
#[inline(always)]
pub(crate) fn funnel(low: u32, high: u32, bits: u32) -> u32 {
    let word;
    // SAFETY: arithmetic.
    unsafe {
        asm!(
            "shf.r.wrap.b32 {}, {}, {}, {};",
            out(reg32) word,
            in(reg32) low,
            in(reg32) high,
            in(reg32) bits,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    word
}

/// `sum` plus four products: each byte of `bytes` times the same byte of `signed`, which is signed.
#[inline(always)]
pub(crate) fn dot(bytes: u32, signed: u32, sum: i32) -> i32 {
    let all;
    // SAFETY: arithmetic.
    unsafe {
        asm!(
            "dp4a.u32.s32 {}, {}, {}, {};",
            out(reg32) all,
            in(reg32) bytes,
            in(reg32) signed,
            in(reg32) sum,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    all
}

/// Fetches the memory at an address into the L2 cache.
#[inline(always)]
pub(crate) fn prefetch(at: u64) {
    // SAFETY: changes nothing that a program sees.
    unsafe { asm!("prefetch.global.L2 [{}];", in(reg64) at, options(nostack, preserves_flags)) }
}

/// Two integers, saturated to bytes, as the lower half of a word; its upper half is the lower half
/// of `above`.
#[inline(always)]
pub(crate) fn pack_bytes(high: i32, low: i32, above: u32) -> u32 {
    let word;
    // SAFETY: arithmetic.
    unsafe {
        asm!(
            "cvt.pack.sat.u8.s32.b32 {}, {}, {}, {};",
            out(reg32) word,
            in(reg32) high,
            in(reg32) low,
            in(reg32) above,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    word
}

/// Two integers, saturated to 16 bits, as the halves of a word.
#[inline(always)]
pub(crate) fn pack_halves(high: i32, low: i32) -> u32 {
    let word;
    // SAFETY: arithmetic.
    unsafe {
        asm!(
            "cvt.pack.sat.u16.s32 {}, {}, {};",
            out(reg32) word,
            in(reg32) high,
            in(reg32) low,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    word
}

/// The number whose IEEE binary16 representation is the lower half of `bits`.
#[inline(always)]
pub(crate) fn half_to_f32(bits: u32) -> f32 {
    let value;
    // SAFETY: arithmetic.
    unsafe {
        asm!(
            "{{ .reg .b16 half; cvt.u16.u32 half, {}; cvt.f32.f16 {}, half; }}",
            in(reg32) bits,
            out(reg32) value,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    value
}

/// The IEEE binary16 representation of the number nearest to `value`, ties to even.
#[inline(always)]
pub(crate) fn f32_to_half(value: f32) -> u32 {
    let bits;
    // SAFETY: arithmetic.
    unsafe {
        asm!(
            "{{ .reg .b16 half; cvt.rn.f16.f32 half, {}; cvt.u32.u16 {}, half; }}",
            in(reg32) value,
            out(reg32) bits,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    bits
}

/// The IEEE binary16 representations of the numbers nearest to `high` and `low`, ties to even, as
/// the halves of a word.
#[inline(always)]
pub(crate) fn f32_to_halves(high: f32, low: f32) -> u32 {
    if !HALVES_AT_ONCE {
        return f32_to_half(high) << 16 | f32_to_half(low);
    }
    let word;
    // SAFETY: arithmetic.
    unsafe {
        asm!(
            "cvt.rn.f16x2.f32 {}, {}, {};",
            out(reg32) word,
            in(reg32) high,
            in(reg32) low,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    word
}

/// Four numbers, each times `2^-24`, rounded to integers, ties to even. The two words hold the
/// integers as 16-bit halves: negative ones are 0, and others stay distinct up to 1024. The last
/// word holds them saturated, as bytes.
#[inline(always)]
pub(crate) fn rounded(four: [f32; 4]) -> ([u32; 2], u32) {
    if !HALVES_AT_ONCE {
        const SCALE: f32 = f32::from_bits((127 + 24) << 23);
        // Added to a number below 2^22, it leaves the integer in the lowest bits.
        const SHIFT: f32 = 12_582_912.0;
        let whole = four
            .map(|number| fma(number, SCALE, SHIFT).to_bits().wrapping_sub(SHIFT.to_bits()) as i32);
        let halves = [pack_halves(whole[1], whole[0]), pack_halves(whole[3], whole[2])];
        return (halves, pack_bytes(whole[1], whole[0], pack_bytes(whole[3], whole[2], 0)));
    }
    // The bits of such a number as f16, which is subnormal up to 1023, are the integer.
    let halves = [positive_halves(four[1], four[0]), positive_halves(four[3], four[2])];
    (halves, permute::<0x6420>(no_more_than_bytes(halves[0]), no_more_than_bytes(halves[1])))
}

/// As [`f32_to_halves`], but negative numbers become 0.
#[inline(always)]
fn positive_halves(high: f32, low: f32) -> u32 {
    let word;
    // SAFETY: arithmetic.
    unsafe {
        asm!(
            "cvt.rn.relu.f16x2.f32 {}, {}, {};",
            out(reg32) word,
            in(reg32) high,
            in(reg32) low,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    word
}

/// The minimum of 255 and each half of a word, as integers; no half is negative as f16.
#[inline(always)]
fn no_more_than_bytes(halves: u32) -> u32 {
    let word;
    // SAFETY: arithmetic.
    unsafe {
        asm!(
            "min.f16x2 {}, {}, {};",
            out(reg32) word,
            in(reg32) halves,
            in(reg32) 0x00ff_00ff,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    word
}

/// The square root, rounded to nearest.
#[inline(always)]
pub(crate) fn sqrt(value: f32) -> f32 {
    let root;
    // SAFETY: arithmetic.
    unsafe {
        asm!(
            "sqrt.rn.f32 {}, {};",
            out(reg32) root,
            in(reg32) value,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    root
}

/// The square root of a number that is 0 or normal, with a relative error of at most 2^-23. A few
/// instructions; the rounded root takes many.
#[inline(always)]
pub(crate) fn sqrt_near(value: f32) -> f32 {
    let root;
    // SAFETY: arithmetic.
    unsafe {
        asm!(
            "sqrt.approx.ftz.f32 {}, {};",
            out(reg32) root,
            in(reg32) value,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    root
}

/// `a * b`, rounded; never fused with a sum.
#[inline(always)]
pub(crate) fn mul_f64(a: f64, b: f64) -> f64 {
    let product;
    // SAFETY: arithmetic.
    unsafe {
        asm!(
            "mul.rn.f64 {}, {}, {};",
            out(reg64) product,
            in(reg64) a,
            in(reg64) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    product
}

/// `a * b + c`, rounded once.
#[inline(always)]
pub(crate) fn fma_f64(a: f64, b: f64, c: f64) -> f64 {
    let sum;
    // SAFETY: arithmetic.
    unsafe {
        asm!(
            "fma.rn.f64 {}, {}, {}, {};",
            out(reg64) sum,
            in(reg64) a,
            in(reg64) b,
            in(reg64) c,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sum
}

/// `a + b`, rounded; never fused with a product.
#[inline(always)]
pub(crate) fn add_f64(a: f64, b: f64) -> f64 {
    let sum;
    // SAFETY: arithmetic.
    unsafe {
        asm!(
            "add.rn.f64 {}, {}, {};",
            out(reg64) sum,
            in(reg64) a,
            in(reg64) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sum
}

/// The square root, rounded.
#[inline(always)]
pub(crate) fn sqrt_f64(value: f64) -> f64 {
    let root;
    // SAFETY: arithmetic.
    unsafe {
        asm!(
            "sqrt.rn.f64 {}, {};",
            out(reg64) root,
            in(reg64) value,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    root
}

/// Closes the group of copies that this thread has started since its last commit.
#[inline(always)]
pub(crate) fn copies_commit() {
    if ASYNC_COPIES {
        // SAFETY: no precondition.
        unsafe { asm!("cp.async.commit_group;", options(nostack, preserves_flags)) }
    }
}

/// Waits until at most N groups of this thread's copies are in flight. The other lanes see the
/// copied floats after a barrier.
#[inline(always)]
pub(crate) fn copies_wait<const N: i32>() {
    if ASYNC_COPIES {
        // SAFETY: no precondition.
        unsafe { asm!("cp.async.wait_group {};", const N, options(nostack, preserves_flags)) }
    }
}

/// Waits for the other lanes of the warp; orders their shared-memory accesses.
#[inline(always)]
pub(crate) fn warp_barrier() {
    // SAFETY: kernels call it where no lane of the warp has left or diverged.
    unsafe { asm!("bar.warp.sync 0xffffffff;", options(nostack, preserves_flags)) }
}

/// A bit for each lane of the warp that says yes.
///
/// # Safety
/// All 32 lanes of the warp call together.
#[inline(always)]
pub(crate) unsafe fn ballot(yes: bool) -> u32 {
    let lanes;
    // SAFETY: as the caller promised. Not `pure`, so that no lane's part moves into a branch.
    unsafe {
        asm!(
            "{{ .reg .pred yes; setp.ne.u32 yes, {1}, 0; vote.sync.ballot.b32 {0}, yes, 0xffffffff; }}",
            out(reg32) lanes,
            in(reg32) yes as u32,
            options(nomem, nostack, preserves_flags)
        );
    }
    lanes
}

/// The word of the lane whose number is this lane's XOR `apart`.
///
/// # Safety
/// All 32 lanes of the warp call together.
#[inline(always)]
pub(crate) unsafe fn exchange(word: u32, apart: u32) -> u32 {
    let other;
    // SAFETY: as the caller promised. Not `pure`, so that no lane's part moves into a branch.
    unsafe {
        asm!(
            "shfl.sync.bfly.b32 {}, {}, {}, 0x1f, 0xffffffff;",
            out(reg32) other,
            in(reg32) word,
            in(reg32) apart,
            options(nomem, nostack, preserves_flags)
        );
    }
    other
}

/// The block's dynamic shared memory, as an array of f32.
#[derive(Clone, Copy)]
pub(crate) struct Shared(u32);

impl Shared {
    /// All of it, from its start.
    #[inline(always)]
    pub(crate) fn dynamic() -> Self {
        Self(dynamic_shared())
    }

    /// The same memory, with its address in a register. The assembler may otherwise recompute the
    /// address in every iteration, by an instruction with a long latency. It cannot if the address
    /// includes a zero that it does not know.
    #[inline(always)]
    pub(crate) fn in_register(self) -> Self {
        Self(self.0.wrapping_add(first_tap() as u32))
    }

    /// The memory from element `first` on.
    #[inline(always)]
    pub(crate) fn after(self, first: i32) -> Self {
        Self(self.0.wrapping_add(4 * first as u32))
    }

    /// Reads element `index`.
    ///
    /// # Safety
    /// The element lies inside the memory that the launch reserved. A barrier stands between its
    /// write and this read.
    #[inline(always)]
    pub(crate) unsafe fn load(self, index: i32) -> f32 {
        let value;
        // SAFETY: in bounds by the caller's promise. Not `pure`: the value may change at a barrier.
        unsafe {
            asm!(
                "ld.shared.f32 {}, [{}];",
                out(reg32) value,
                in(reg32) self.at(index),
                options(readonly, nostack, preserves_flags)
            );
        }
        value
    }

    /// Reads elements `index` to `index + 3`; `index` is a multiple of 4.
    ///
    /// # Safety
    /// As for [`Shared::load`].
    #[inline(always)]
    pub(crate) unsafe fn load4(self, index: i32) -> [f32; 4] {
        let (a, b, c, d);
        // SAFETY: in bounds and aligned by the caller's promise.
        unsafe {
            asm!(
                "ld.shared.v4.f32 {{{}, {}, {}, {}}}, [{}];",
                out(reg32) a,
                out(reg32) b,
                out(reg32) c,
                out(reg32) d,
                in(reg32) self.at(index),
                options(readonly, nostack, preserves_flags)
            );
        }
        [a, b, c, d]
    }

    /// Reads elements `index` and `index + 1`; `index` is even.
    ///
    /// # Safety
    /// As for [`Shared::load`].
    #[inline(always)]
    pub(crate) unsafe fn load2(self, index: i32) -> [f32; 2] {
        let (a, b);
        // SAFETY: in bounds and aligned by the caller's promise.
        unsafe {
            asm!(
                "ld.shared.v2.f32 {{{}, {}}}, [{}];",
                out(reg32) a,
                out(reg32) b,
                in(reg32) self.at(index),
                options(readonly, nostack, preserves_flags)
            );
        }
        [a, b]
    }

    /// Starts copying 4 floats to elements `index` to `index + 3`; both addresses are multiples
    /// of 16. The L2 cache fetches 128 bytes, because neighbouring lanes need them. Before compute
    /// capability 8.0, which has no asynchronous copies, the copy is done when the call returns.
    ///
    /// # Safety
    /// Source and destination lie inside their allocations. Nothing touches the elements before
    /// [`copies_wait`] and a barrier.
    #[inline(always)]
    pub(crate) unsafe fn copy4(self, index: i32, from: *const f32) {
        // SAFETY: as the caller promised.
        unsafe {
            if ASYNC_COPIES {
                asm!(
                    "cp.async.cg.shared.global.L2::128B [{}], [{}], 16;",
                    in(reg32) self.at(index),
                    in(reg64) from,
                    options(nostack, preserves_flags)
                );
            } else {
                asm!(
                    "{{ .reg .b32 a, b, c, d;",
                    "ld.global.nc.v4.b32 {{a, b, c, d}}, [{}];",
                    "st.shared.v4.b32 [{}], {{a, b, c, d}}; }}",
                    in(reg64) from,
                    in(reg32) self.at(index),
                    options(nostack, preserves_flags)
                );
            }
        }
    }

    /// As [`Shared::copy4`] for one float.
    ///
    /// # Safety
    /// As for [`Shared::copy4`].
    #[inline(always)]
    pub(crate) unsafe fn copy1(self, index: i32, from: *const f32) {
        // SAFETY: as the caller promised.
        unsafe {
            if ASYNC_COPIES {
                asm!(
                    "cp.async.ca.shared.global [{}], [{}], 4;",
                    in(reg32) self.at(index),
                    in(reg64) from,
                    options(nostack, preserves_flags)
                );
            } else {
                self.store(index, load(from, 0));
            }
        }
    }

    /// Writes element `index`.
    ///
    /// # Safety
    /// The element lies inside the memory that the launch reserved. No other thread touches it
    /// before the next barrier.
    #[inline(always)]
    pub(crate) unsafe fn store(self, index: i32, value: f32) {
        // SAFETY: in bounds by the caller's promise.
        unsafe {
            asm!(
                "st.shared.f32 [{}], {};",
                in(reg32) self.at(index),
                in(reg32) value,
                options(nostack, preserves_flags)
            );
        }
    }

    /// Writes elements `index` and `index + 1`; `index` is even.
    ///
    /// # Safety
    /// As for [`Shared::store`].
    #[inline(always)]
    pub(crate) unsafe fn store2(self, index: i32, values: [f32; 2]) {
        // SAFETY: in bounds and aligned by the caller's promise.
        unsafe {
            asm!(
                "st.shared.v2.f32 [{}], {{{}, {}}};",
                in(reg32) self.at(index),
                in(reg32) values[0],
                in(reg32) values[1],
                options(nostack, preserves_flags)
            );
        }
    }

    /// Writes elements `index` to `index + 3`; `index` is a multiple of 4.
    ///
    /// # Safety
    /// As for [`Shared::store`].
    #[inline(always)]
    pub(crate) unsafe fn store4(self, index: i32, values: [f32; 4]) {
        // SAFETY: in bounds and aligned by the caller's promise.
        unsafe {
            asm!(
                "st.shared.v4.f32 [{}], {{{}, {}, {}, {}}};",
                in(reg32) self.at(index),
                in(reg32) values[0],
                in(reg32) values[1],
                in(reg32) values[2],
                in(reg32) values[3],
                options(nostack, preserves_flags)
            );
        }
    }

    /// Writes the lowest byte of `value` as byte `byte` of the memory, counted from its start.
    ///
    /// # Safety
    /// As for [`Shared::store`].
    #[inline(always)]
    pub(crate) unsafe fn store_u8(self, byte: i32, value: u32) {
        // SAFETY: in bounds by the caller's promise.
        unsafe {
            asm!(
                "st.shared.u8 [{}], {};",
                in(reg32) self.at_byte(byte),
                in(reg32) value,
                options(nostack, preserves_flags)
            );
        }
    }

    /// Writes the lower half of `value` as bytes `byte`, which is even, and `byte + 1` of the
    /// memory.
    ///
    /// # Safety
    /// As for [`Shared::store`].
    #[inline(always)]
    pub(crate) unsafe fn store_u16(self, byte: i32, value: u32) {
        // SAFETY: in bounds and aligned by the caller's promise.
        unsafe {
            asm!(
                "st.shared.u16 [{}], {};",
                in(reg32) self.at_byte(byte),
                in(reg32) value,
                options(nostack, preserves_flags)
            );
        }
    }

    /// Reads the bits of element `index`.
    ///
    /// # Safety
    /// As for [`Shared::load`].
    #[inline(always)]
    pub(crate) unsafe fn load_word(self, index: i32) -> u32 {
        let value;
        // SAFETY: in bounds by the caller's promise. Not `pure`: see `load`.
        unsafe {
            asm!(
                "ld.shared.b32 {}, [{}];",
                out(reg32) value,
                in(reg32) self.at(index),
                options(readonly, nostack, preserves_flags)
            );
        }
        value
    }

    #[inline(always)]
    fn at(self, index: i32) -> u32 {
        self.at_byte(index.wrapping_mul(4))
    }

    /// The address of a byte.
    #[inline(always)]
    pub(super) fn at_byte(self, byte: i32) -> u32 {
        self.0.wrapping_add(byte as u32)
    }
}

/// 0, but the assembler does not know that it is the same for all threads (it is their z index).
/// With a tap's index counted from here, the assembler reads the constant bank by the instruction
/// for per-thread indices. The instruction for a warp-uniform index is several times slower if the
/// taps do not fit in its small cache.
#[inline(always)]
pub(crate) fn first_tap() -> usize {
    let zero: u32;
    // SAFETY: reads a special register.
    unsafe {
        asm!("mov.u32 {}, %tid.z;", out(reg32) zero, options(pure, nomem, nostack, preserves_flags))
    };
    zero as usize
}

/// A by-value array parameter of the kernel, in the constant bank; the macro `parameter!` makes it.
#[derive(Clone, Copy)]
pub(crate) struct Parameter(pub(crate) u64);

impl Parameter {
    /// The elements from number `count` on.
    #[inline(always)]
    pub(crate) fn advanced(self, count: usize) -> Self {
        Self(self.0.wrapping_add(4 * count as u64))
    }

    /// Reads element `index`.
    ///
    /// # Safety
    /// The element lies inside the parameter.
    #[inline(always)]
    pub(crate) unsafe fn load(self, index: usize) -> f32 {
        let value;
        // SAFETY: in bounds by the caller's promise; parameters do not change while a kernel runs.
        unsafe {
            asm!(
                "ld.param.f32 {}, [{}];",
                out(reg32) value,
                in(reg64) self.0.wrapping_add(4 * index as u64),
                options(pure, readonly, nostack, preserves_flags)
            );
        }
        value
    }
}
