//! The GPU as a kernel sees it: indices, barrier, memory, arithmetic. kernel-builder compiles this file as the crate
//! `device`, for kernels that ask for it with `KernelBuilder::device`.
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
//! The root of a crate of kernels needs `#![no_std]`, `#![feature(abi_ptx)]` and `extern crate device;`.
#![no_std]
#![feature(asm_experimental_arch, core_intrinsics, stdarch_nvptx)]
#![allow(internal_features)]

use core::arch::{asm, global_asm, nvptx};

// rustc has no address spaces: the block's dynamic shared memory is declared here and reached by its 32-bit address.
global_asm!(".extern .shared .align 16 .b8 dynamic_shared[];");

/// Declares kernels: functions that the host launches by their names. Bodies may call unsafe functions; what they promise,
/// the host has to keep.
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
    /// The thread's number in its block.
    thread_x = _thread_idx_x;
    /// Likewise, along y.
    thread_y = _thread_idx_y;
    /// The block's number in the grid.
    block_x = _block_idx_x;
    /// Likewise, along y.
    block_y = _block_idx_y;
    /// Likewise, along z.
    block_z = _block_idx_z;
    /// Threads of a block.
    block_width = _block_dim_x;
    /// Likewise, along y.
    block_height = _block_dim_y;
    /// Blocks of the grid.
    grid_width = _grid_dim_x;
    /// Likewise, along y.
    grid_height = _grid_dim_y;
}

/// Waits for every thread of the block; orders their accesses of shared memory.
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

/// Reads element `index` of memory that nothing writes while the kernel runs (the read-only data path).
///
/// # Safety
/// The element lies inside the allocation that `base` points into.
#[inline(always)]
pub unsafe fn load(base: *const f32, index: usize) -> f32 {
    let value;
    // SAFETY: in bounds by the caller's promise, and nothing writes it.
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

/// Reads elements `index` and `index + 1` as [`load`] does, in one access; `index` is even and `base` aligned to 8 bytes.
///
/// # Safety
/// As for [`load`].
#[inline(always)]
pub unsafe fn load2(base: *const f32, index: usize) -> [f32; 2] {
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
pub unsafe fn reload(base: *const f32, index: usize) -> f32 {
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

/// Writes element `index`.
///
/// # Safety
/// The element lies inside the allocation that `base` points into, and no other thread reads or writes it.
#[inline(always)]
pub unsafe fn store(base: *mut f32, index: usize, value: f32) {
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

/// The block's dynamic shared memory, as floats. The launch says how much there is.
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
    /// The launch gives the block so much shared memory; who wrote the element did so before a [`barrier`].
    #[inline(always)]
    pub unsafe fn load(self, index: i32) -> f32 {
        let value;
        // SAFETY: in bounds by the caller's promise. Not `pure`: other threads write it between two reads.
        unsafe {
            asm!("ld.shared.f32 {}, [{}];", out(reg32) value, in(reg32) self.at(index), options(readonly, nostack, preserves_flags));
        }
        value
    }

    /// Reads elements `index` to `index + 3`; `index` is a multiple of 4.
    ///
    /// # Safety
    /// As for [`Shared::load`].
    #[inline(always)]
    pub unsafe fn load4(self, index: i32) -> [f32; 4] {
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

    /// Writes element `index`.
    ///
    /// # Safety
    /// The launch gives the block so much shared memory; a [`barrier`] lies between this and accesses by other threads.
    #[inline(always)]
    pub unsafe fn store(self, index: i32, value: f32) {
        // SAFETY: in bounds by the caller's promise.
        unsafe {
            asm!("st.shared.f32 [{}], {};", in(reg32) self.at(index), in(reg32) value, options(nostack, preserves_flags));
        }
    }

    #[inline(always)]
    fn at(self, index: i32) -> u32 {
        self.0.wrapping_add(index.wrapping_mul(4) as u32)
    }
}
