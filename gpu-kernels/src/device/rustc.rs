//! The part of the device layer for rustc's NVPTX backend: indices, barriers, arithmetic, and the
//! address of shared memory.

use core::arch::{asm, global_asm, nvptx};

// rustc has no address spaces: the block's dynamic shared memory is declared here and accessed by
// its 32-bit address.
global_asm!(".extern .shared .align 16 .b8 dynamic_shared[];");

#[inline(always)]
pub(crate) fn thread_x() -> i32 {
    // SAFETY: reads a special register.
    unsafe { nvptx::_thread_idx_x() as i32 }
}

#[inline(always)]
pub(crate) fn thread_y() -> i32 {
    // SAFETY: see `thread_x`.
    unsafe { nvptx::_thread_idx_y() as i32 }
}

#[inline(always)]
pub(crate) fn block_x() -> i32 {
    // SAFETY: see `thread_x`.
    unsafe { nvptx::_block_idx_x() as i32 }
}

#[inline(always)]
pub(crate) fn block_y() -> i32 {
    // SAFETY: see `thread_x`.
    unsafe { nvptx::_block_idx_y() as i32 }
}

#[inline(always)]
pub(crate) fn block_z() -> i32 {
    // SAFETY: see `thread_x`.
    unsafe { nvptx::_block_idx_z() as i32 }
}

#[inline(always)]
pub(crate) fn block_width() -> i32 {
    // SAFETY: see `thread_x`.
    unsafe { nvptx::_block_dim_x() as i32 }
}

#[inline(always)]
pub(crate) fn block_height() -> i32 {
    // SAFETY: see `thread_x`.
    unsafe { nvptx::_block_dim_y() as i32 }
}

#[inline(always)]
pub(crate) fn grid_width() -> i32 {
    // SAFETY: see `thread_x`.
    unsafe { nvptx::_grid_dim_x() as i32 }
}

#[inline(always)]
pub(crate) fn grid_height() -> i32 {
    // SAFETY: see `thread_x`.
    unsafe { nvptx::_grid_dim_y() as i32 }
}

/// Waits for every thread of the block; orders their shared-memory accesses.
///
/// # Safety
/// All threads of the block reach the same barrier.
#[inline(always)]
pub(crate) unsafe fn barrier() {
    // SAFETY: the caller's promise is the instruction's contract.
    unsafe { nvptx::_syncthreads() }
}

/// As [`barrier`]; returns whether any thread of the block passed `flag`.
///
/// # Safety
/// As for [`barrier`].
#[inline(always)]
pub(crate) unsafe fn barrier_or(flag: bool) -> bool {
    let any: u32;
    // SAFETY: as the caller promised.
    unsafe {
        asm!(
            "{{ .reg .pred mine, all;",
            "setp.ne.u32 mine, {}, 0;",
            "bar.red.or.pred all, 0, mine;",
            "selp.u32 {}, 1, 0, all; }}",
            in(reg32) u32::from(flag),
            out(reg32) any,
            options(nostack)
        );
    }
    any != 0
}

/// Ends the kernel with an error that the host sees at its next call.
pub(crate) fn trap() -> ! {
    // SAFETY: no precondition.
    unsafe { nvptx::trap() }
}

/// `a * b + c`, rounded once. The NVPTX backend does not contract a plain product and sum.
#[inline(always)]
pub(crate) fn fma(a: f32, b: f32, c: f32) -> f32 {
    core::intrinsics::fmaf32(a, b, c)
}

/// The 32-bit address of the block's dynamic shared memory.
#[inline(always)]
pub(super) fn dynamic_shared() -> u32 {
    let address;
    // SAFETY: reads the address of the symbol declared above.
    unsafe {
        asm!(
            "mov.u32 {}, dynamic_shared;",
            out(reg32) address,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    address
}
