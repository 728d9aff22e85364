//! The GPU as a kernel sees it: indices, barrier, memory, arithmetic.
//!
//! Kernels use the GPU only through these functions. Two compilers take the same kernels: rustc's
//! own NVPTX backend and, under `cfg(rust_cuda)`, rust-cuda's, through its `cuda_std`. Most
//! functions are one PTX instruction and serve both (`nvptx.rs`, and `mma.rs` for the tensor
//! cores). The differences are in `rustc.rs` and `nvvm.rs`, and in the macros below. On the host
//! kernels are type-checked, and their entries become constants, by which the host launches them:
//! `absent.rs`. The package `emulator` has all of these functions in a form that runs on the host,
//! with checks.

#[cfg(not(any(target_arch = "nvptx64", rust_cuda)))]
mod absent;
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
mod mma;
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
mod nvptx;
#[cfg(rust_cuda)]
mod nvvm;
#[cfg(all(target_arch = "nvptx64", not(rust_cuda)))]
mod rustc;
mod taps;

#[cfg(target_arch = "nvptx64")]
pub(crate) use core::arch::asm;

#[cfg(not(any(target_arch = "nvptx64", rust_cuda)))]
pub(crate) use absent::*;
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
#[allow(
    unused_imports,
    reason = "the studies' kernels take this file too, and have no products"
)]
pub(crate) use mma::*;
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
pub(crate) use nvptx::*;
#[cfg(rust_cuda)]
pub(crate) use nvvm::*;
#[cfg(all(target_arch = "nvptx64", not(rust_cuda)))]
pub(crate) use rustc::*;
pub(crate) use taps::*;

/// Replaces inline PTX where kernels are only type-checked, as rust-cuda's are on the host.
#[cfg(all(rust_cuda, not(target_arch = "nvptx64")))]
macro_rules! asm {
    ($($code:tt)*) => {
        unimplemented!("PTX runs on the GPU alone")
    };
}
#[cfg(all(rust_cuda, not(target_arch = "nvptx64")))]
pub(crate) use asm;

/// Declares kernel entries. Each may be launched before the previous kernels in the stream end, and
/// first waits for them. Only this macro depends on how a compiler declares an entry. rust-cuda's
/// attribute replaces the ABI here by the one that its compiler needs.
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
macro_rules! kernel {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        $(#[$attribute])*
        #[cfg_attr(rust_cuda, cuda_std::kernel)]
        #[cfg_attr(not(rust_cuda), unsafe(no_mangle))]
        pub unsafe extern "ptx-kernel" fn $name($($argument: $type),*) {
            $crate::device::wait_for_kernels_ahead();
            // SAFETY: only the host's typed launchers launch entries, and they uphold each kernel's
            // contract.
            unsafe { $body }
        }
    )*};
}

/// Directives for the assembler of this kernel, such as `.maxntid 512, 1, 1`. The kernel builder
/// moves them to their place in PTX.
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
macro_rules! directive {
    ($directive:literal) => {
        $crate::device::asm!(concat!("//@ ", $directive), options(nomem, nostack, preserves_flags))
    };
}

/// The address of by-value parameter number `index` of the kernel, for [`Parameter`].
///
/// Plain Rust that reads a parameter at a run-time index first copies all of it to local memory.
/// Both compilers name parameters in this way.
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
macro_rules! parameter {
    ($kernel:ident, $index:literal, $argument:ident) => {{
        let _ = &$argument;
        let address: u64;
        $crate::device::asm!(
            concat!("mov.b64 {}, ", stringify!($kernel), "_param_", $index, ";"),
            out(reg64) address,
            options(pure, nomem, nostack, preserves_flags)
        );
        $crate::device::Parameter(address)
    }};
}

/// Items of a kernel's file for the host only: lists of its entries. (The studies share this file,
/// and have no such lists.)
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
#[allow(unused_macros)]
macro_rules! host {
    ($($item:item)*) => {};
}

#[cfg(any(target_arch = "nvptx64", rust_cuda))]
#[allow(unused_imports)]
pub(crate) use {directive, host, kernel, parameter};
