//! As `rustc.rs`, for rust-cuda's `cuda_std`.

use cuda_std::{intrinsics, shared, thread};

use super::asm;

#[inline(always)]
pub(crate) fn thread_x() -> i32 {
    thread::thread_idx_x() as i32
}

#[inline(always)]
pub(crate) fn thread_y() -> i32 {
    thread::thread_idx_y() as i32
}

#[inline(always)]
pub(crate) fn block_x() -> i32 {
    thread::block_idx_x() as i32
}

#[inline(always)]
pub(crate) fn block_y() -> i32 {
    thread::block_idx_y() as i32
}

#[inline(always)]
pub(crate) fn block_z() -> i32 {
    thread::block_idx_z() as i32
}

#[inline(always)]
pub(crate) fn block_width() -> i32 {
    thread::block_dim_x() as i32
}

#[inline(always)]
pub(crate) fn block_height() -> i32 {
    thread::block_dim_y() as i32
}

#[inline(always)]
pub(crate) fn grid_width() -> i32 {
    thread::grid_dim_x() as i32
}

#[inline(always)]
pub(crate) fn grid_height() -> i32 {
    thread::grid_dim_y() as i32
}

/// Waits for every thread of the block; orders their shared-memory accesses.
///
/// # Safety
/// All threads of the block reach the same barrier.
#[inline(always)]
pub(crate) unsafe fn barrier() {
    thread::sync_threads();
}

/// As [`barrier`]; returns whether any thread of the block passed `flag`.
///
/// # Safety
/// As for [`barrier`].
#[inline(always)]
pub(crate) unsafe fn barrier_or(flag: bool) -> bool {
    thread::sync_threads_or(flag.into()) != 0
}

/// `a * b + c`, rounded once.
#[inline(always)]
pub(crate) fn fma(a: f32, b: f32, c: f32) -> f32 {
    // SAFETY: a function of libdevice, which rust-cuda links; it has no precondition.
    unsafe { intrinsics::fmaf(a, b, c) }
}

/// The 32-bit address of the block's dynamic shared memory.
#[inline(always)]
pub(super) fn dynamic_shared() -> u32 {
    let start = shared::dynamic_shared_mem::<f32>();
    let address;
    // SAFETY: the pointer is to shared memory. `cuda_std::ptr` has the same conversion, but its PTX
    // lacks a semicolon.
    unsafe {
        asm!(
            "{{ .reg .b64 wide;",
            "cvta.to.shared.u64 wide, {};",
            "cvt.u32.u64 {}, wide; }}",
            in(reg64) start,
            out(reg32) address,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    address
}
