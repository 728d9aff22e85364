//! The GPU as a kernel sees it: indices, barrier, memory, arithmetic, tensor cores. kernel-builder
//! compiles this file as the crate `device`, for kernels that request it with
//! `KernelBuilder::device`.
//!
//! ```ignore
//! use crate::device::{block_width, block_x, fma, kernel, load, reload, store, thread_x};
//!
//! kernel! {
//!     /// `y = a * x + y`, for `n` numbers.
//!     fn saxpy(n: u32, a: f32, x: *const f32, y: *mut f32) {
//!         let i = (block_x() * block_width() + thread_x()) as usize;
//!         if i < n as usize {
//!             store(y, i, fma(a, load(x, i), reload(y, i)));
//!         }
//!     }
//! }
//! ```
//!
//! The root of a crate of kernels needs `#![no_std]`, `#![feature(abi_ptx)]` and
//! `extern crate device;`.
#![no_std]
#![feature(asm_experimental_arch, core_intrinsics, stdarch_nvptx)]
#![allow(internal_features)]

use core::arch::{asm, global_asm, nvptx};

// rustc has no address spaces: the block's dynamic shared memory is declared here and accessed by
// its 32-bit address.
global_asm!(".extern .shared .align 16 .b8 dynamic_shared[];");

/// Declares kernels: functions that the host launches by name. Bodies may call unsafe functions;
/// the host must meet the contracts of these functions.
#[macro_export]
macro_rules! kernel {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        $(#[$attribute])*
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $name($($argument: $type),*) {
            #[allow(unused_unsafe)]
            // SAFETY: the host keeps to the kernel's contract.
            unsafe { $body }
        }
    )*};
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: no precondition.
    unsafe { nvptx::trap() }
}

macro_rules! registers {
    ($($(#[$attribute:meta])* $name:ident = $register:ident;)*) => {$(
        $(#[$attribute])*
        #[inline(always)]
        pub fn $name() -> i32 {
            // SAFETY: reads a special register.
            unsafe { nvptx::$register() as i32 }
        }
    )*};
}

registers! {
    /// The thread's index in its block.
    thread_x = _thread_idx_x;
    /// The thread's index along y.
    thread_y = _thread_idx_y;
    /// The block's index in the grid.
    block_x = _block_idx_x;
    /// The block's index along y.
    block_y = _block_idx_y;
    /// The block's index along z.
    block_z = _block_idx_z;
    /// Threads of a block along x.
    block_width = _block_dim_x;
    /// Threads of a block along y.
    block_height = _block_dim_y;
    /// Blocks of the grid along x.
    grid_width = _grid_dim_x;
    /// Blocks of the grid along y.
    grid_height = _grid_dim_y;
}

/// Waits for every thread of the block; orders their accesses to shared memory.
///
/// # Safety
/// All threads of the block reach the same barrier.
#[inline(always)]
pub unsafe fn barrier() {
    // SAFETY: the caller's promise is the instruction's contract.
    unsafe { nvptx::_syncthreads() }
}

/// `a * b + c`, rounded once.
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    core::intrinsics::fmaf32(a, b, c)
}

mod sealed {
    pub trait Sealed: Copy {
        fn of_bits(bits: u32) -> Self;
        fn bits(self) -> u32;
    }
}
use sealed::Sealed;

/// A 32-bit value: `f32`, `u32` or `i32`. A `u32` may carry four bytes or two 16-bit halves.
pub trait Word: Sealed {}

macro_rules! words {
    ($($word:ty: $of_bits:expr, $bits:expr;)*) => {$(
        impl Sealed for $word {
            #[inline(always)]
            fn of_bits(bits: u32) -> Self {
                $of_bits(bits)
            }
            #[inline(always)]
            fn bits(self) -> u32 {
                $bits(self)
            }
        }
        impl Word for $word {}
    )*};
}

words! {
    f32: f32::from_bits, f32::to_bits;
    u32: |bits| bits, |word| word;
    i32: |bits: u32| bits as i32, |word: i32| word as u32;
}

/// Reads element `index` of memory that nothing writes while the kernel runs (the read-only data
/// path).
///
/// # Safety
/// The element lies inside the allocation that `base` points into.
#[inline(always)]
pub unsafe fn load<W: Word>(base: *const W, index: usize) -> W {
    let bits;
    // SAFETY: in bounds by the caller's promise, and nothing writes it.
    unsafe {
        asm!(
            "ld.global.nc.b32 {}, [{}];",
            out(reg32) bits,
            in(reg64) base.wrapping_add(index),
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    W::of_bits(bits)
}

/// Reads elements `index` and `index + 1` as [`load`] does, in one access; `index` is even and
/// `base` aligned to 8 bytes.
///
/// # Safety
/// As for [`load`].
#[inline(always)]
pub unsafe fn load2<W: Word>(base: *const W, index: usize) -> [W; 2] {
    let (a, b);
    // SAFETY: in bounds and aligned by the caller's promise.
    unsafe {
        asm!(
            "ld.global.nc.v2.b32 {{{}, {}}}, [{}];",
            out(reg32) a,
            out(reg32) b,
            in(reg64) base.wrapping_add(index),
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    [a, b].map(W::of_bits)
}

/// Reads elements `index` to `index + 3` as [`load`] does, in one access; `index` is a multiple of
/// 4 and `base` aligned to 16 bytes.
///
/// # Safety
/// As for [`load`].
#[inline(always)]
pub unsafe fn load4<W: Word>(base: *const W, index: usize) -> [W; 4] {
    let (a, b, c, d);
    // SAFETY: in bounds and aligned by the caller's promise.
    unsafe {
        asm!(
            "ld.global.nc.v4.b32 {{{}, {}, {}, {}}}, [{}];",
            out(reg32) a,
            out(reg32) b,
            out(reg32) c,
            out(reg32) d,
            in(reg64) base.wrapping_add(index),
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    [a, b, c, d].map(W::of_bits)
}

/// Reads element `index` of memory that this kernel writes.
///
/// # Safety
/// The element lies inside the allocation that `base` points into, and no other thread writes it.
#[inline(always)]
pub unsafe fn reload<W: Word>(base: *const W, index: usize) -> W {
    let bits;
    // SAFETY: in bounds by the caller's promise.
    unsafe {
        asm!(
            "ld.global.b32 {}, [{}];",
            out(reg32) bits,
            in(reg64) base.wrapping_add(index),
            options(readonly, nostack, preserves_flags)
        );
    }
    W::of_bits(bits)
}

/// Writes element `index`.
///
/// # Safety
/// The element lies inside the allocation that `base` points into, and no other thread reads or
/// writes it.
#[inline(always)]
pub unsafe fn store<W: Word>(base: *mut W, index: usize, value: W) {
    // SAFETY: in bounds by the caller's promise.
    unsafe {
        asm!(
            "st.global.b32 [{}], {};",
            in(reg64) base.wrapping_add(index),
            in(reg32) value.bits(),
            options(nostack, preserves_flags)
        );
    }
}

/// Writes elements `index` to `index + 3` in one access; `index` is a multiple of 4 and `base`
/// aligned to 16 bytes.
///
/// # Safety
/// As for [`store`].
#[inline(always)]
pub unsafe fn store4<W: Word>(base: *mut W, index: usize, values: [W; 4]) {
    let [a, b, c, d] = values.map(W::bits);
    // SAFETY: in bounds and aligned by the caller's promise.
    unsafe {
        asm!(
            "st.global.v4.b32 [{}], {{{}, {}, {}, {}}};",
            in(reg64) base.wrapping_add(index),
            in(reg32) a,
            in(reg32) b,
            in(reg32) c,
            in(reg32) d,
            options(nostack, preserves_flags)
        );
    }
}

/// The product of two small matrices of bytes on the tensor cores, added to `sums`, exact modulo
/// 2^32. `a` has 16 rows and 32 columns of unsigned bytes; `b` has 32 rows and 8 columns of signed
/// bytes. The lanes of a warp hold them together. With `g = lane / 4` and `t = lane % 4`, where
/// `lane` is the thread's number in its warp, byte `i` of a lane's words is
///
/// | word | of | row | column |
/// | --- | --- | --- | --- |
/// | `a[0]`, `a[1]` | `a` | `g`, `g + 8` | `4 * t + i` |
/// | `a[2]`, `a[3]` | `a` | `g`, `g + 8` | `16 + 4 * t + i` |
/// | `b[0]`, `b[1]` | `b` | `4 * t + i`, `16 + 4 * t + i` | `g` |
/// | `sums[0]`, `sums[1]` | the sums | `g` | `2 * t`, `2 * t + 1` |
/// | `sums[2]`, `sums[3]` | the sums | `g + 8` | `2 * t`, `2 * t + 1` |
///
/// From compute capability 8.0 on this is one instruction, `mma.sync.m16n8k32`. Before, four
/// `m8n8k16` instructions give the same result. (PTX ISA, "Matrix multiply-accumulate operation
/// using mma instruction".)
///
/// # Safety
/// All 32 lanes of the warp call together.
#[inline(always)]
pub unsafe fn mma(sums: [i32; 4], a: [u32; 4], b: [u32; 2]) -> [i32; 4] {
    if cfg!(target_feature = "sm_80") {
        let [mut s0, mut s1, mut s2, mut s3] = sums;
        // SAFETY: as the caller promised. Not `pure`, so that no lane's product moves into a branch
        // that other lanes do not take.
        unsafe {
            asm!(
                "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {{{0}, {1}, {2}, {3}}}, {{{4}, {5}, {6}, {7}}}, {{{8}, {9}}}, {{{0}, {1}, {2}, {3}}};",
                inout(reg32) s0,
                inout(reg32) s1,
                inout(reg32) s2,
                inout(reg32) s3,
                in(reg32) a[0],
                in(reg32) a[1],
                in(reg32) a[2],
                in(reg32) a[3],
                in(reg32) b[0],
                in(reg32) b[1],
                options(nomem, nostack, preserves_flags)
            );
        }
        [s0, s1, s2, s3]
    } else {
        // SAFETY: as the caller promised.
        unsafe {
            let [s0, s1] = quarter(quarter([sums[0], sums[1]], a[0], b[0]), a[2], b[1]);
            let [s2, s3] = quarter(quarter([sums[2], sums[3]], a[1], b[0]), a[3], b[1]);
            [s0, s1, s2, s3]
        }
    }
}

/// As [`mma`], for 8 rows of `a` and half of its columns.
///
/// # Safety
/// As for [`mma`].
#[inline(always)]
unsafe fn quarter(sums: [i32; 2], a: u32, b: u32) -> [i32; 2] {
    let [mut s0, mut s1] = sums;
    // SAFETY: as the caller promised; see `mma`.
    unsafe {
        asm!(
            "mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {{{0}, {1}}}, {{{2}}}, {{{3}}}, {{{0}, {1}}};",
            inout(reg32) s0,
            inout(reg32) s1,
            in(reg32) a,
            in(reg32) b,
            options(nomem, nostack, preserves_flags)
        );
    }
    [s0, s1]
}

/// The block's dynamic shared memory, in elements of 32 bits. The launch determines its size.
#[derive(Clone, Copy)]
pub struct Shared(u32);

impl Shared {
    /// All of it.
    #[inline(always)]
    pub fn dynamic() -> Self {
        let address;
        // SAFETY: reads the address of the symbol declared above.
        unsafe { asm!("mov.u32 {}, dynamic_shared;", out(reg32) address, options(pure, nomem, nostack, preserves_flags)) };
        Self(address)
    }

    /// Reads element `index`.
    ///
    /// # Safety
    /// The launch gives the block enough shared memory for the element. The element was written
    /// before a [`barrier`] that precedes this read.
    #[inline(always)]
    pub unsafe fn load<W: Word>(self, index: i32) -> W {
        let bits;
        // SAFETY: in bounds by the caller's promise. Not `pure`: other threads may write the
        // element between two reads.
        unsafe {
            asm!("ld.shared.b32 {}, [{}];", out(reg32) bits, in(reg32) self.at(index), options(readonly, nostack, preserves_flags));
        }
        W::of_bits(bits)
    }

    /// Reads elements `index` to `index + 3`; `index` is a multiple of 4.
    ///
    /// # Safety
    /// As for [`Shared::load`].
    #[inline(always)]
    pub unsafe fn load4<W: Word>(self, index: i32) -> [W; 4] {
        let (a, b, c, d);
        // SAFETY: in bounds and aligned by the caller's promise.
        unsafe {
            asm!(
                "ld.shared.v4.b32 {{{}, {}, {}, {}}}, [{}];",
                out(reg32) a,
                out(reg32) b,
                out(reg32) c,
                out(reg32) d,
                in(reg32) self.at(index),
                options(readonly, nostack, preserves_flags)
            );
        }
        [a, b, c, d].map(W::of_bits)
    }

    /// Writes element `index`.
    ///
    /// # Safety
    /// The launch gives the block enough shared memory for the element. A [`barrier`] lies between
    /// this and accesses by other threads.
    #[inline(always)]
    pub unsafe fn store<W: Word>(self, index: i32, value: W) {
        // SAFETY: in bounds by the caller's promise.
        unsafe {
            asm!("st.shared.b32 [{}], {};", in(reg32) self.at(index), in(reg32) value.bits(), options(nostack, preserves_flags));
        }
    }

    #[inline(always)]
    fn at(self, index: i32) -> u32 {
        self.0.wrapping_add(index.wrapping_mul(4) as u32)
    }
}
