//! The GPU as a kernel sees it: indices, barrier, memory, arithmetic.
//!
//! Kernels touch the machine through these functions alone, so that a file beside `nvptx.rs` can bring the same kernels
//! to another compiler or to the host.

mod nvptx;

pub(crate) use nvptx::*;

/// Declares kernel entries: the one place that knows how an entry is spelled for the compiler in use.
macro_rules! kernel {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        $(#[$attribute])*
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $name($($argument: $type),*) {
            // SAFETY: the host launches entries through its typed launchers alone, which uphold each kernel's contract.
            unsafe { $body }
        }
    )*};
}

/// Directives for the assembler that turns the kernel at hand into machine code, as `.maxntid 512, 1, 1`. The kernel builder
/// moves them to where PTX has them.
macro_rules! directive {
    ($directive:literal) => {
        core::arch::asm!(concat!("//@ ", $directive), options(nomem, nostack, preserves_flags))
    };
}

/// The address of by-value parameter number `index` of the kernel named, for [`Parameter`].
///
/// Reading a parameter at an index known only at run time in plain Rust would copy all of it to local memory first.
macro_rules! parameter {
    ($kernel:ident, $index:literal, $argument:ident) => {{
        let _ = &$argument;
        let address: u64;
        core::arch::asm!(
            concat!("mov.b64 {}, ", stringify!($kernel), "_param_", $index, ";"),
            out(reg64) address,
            options(pure, nomem, nostack, preserves_flags)
        );
        $crate::device::Parameter(address)
    }};
}

pub(crate) use {directive, kernel, parameter};

/// Where a kernel reads its taps from.
pub(crate) trait TapSource: Copy {
    /// Tap `index`, counted row by row.
    ///
    /// # Safety
    /// `index` is below the number of taps.
    unsafe fn tap(self, index: usize) -> f32;
}

/// Taps in global memory.
#[derive(Clone, Copy)]
pub(crate) struct Buffer(pub(crate) *const f32);

impl TapSource for Buffer {
    #[inline(always)]
    unsafe fn tap(self, index: usize) -> f32 {
        // SAFETY: the caller keeps `index` in range; the buffer is not written while a kernel runs.
        unsafe { load(self.0, index) }
    }
}

impl TapSource for Parameter {
    #[inline(always)]
    unsafe fn tap(self, index: usize) -> f32 {
        // SAFETY: as the caller promised.
        unsafe { self.load(index) }
    }
}
