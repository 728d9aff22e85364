//! Memory that a picture leaves behind, for the next one.
//!
//! The C library returns freed memory to the system, and each page of new memory costs a fault and
//! is cleared. For pictures of some megabytes that follow one another this takes longer than to
//! decode and encode them.

/// Lets the C library keep freed memory, up to a limit, where that library is glibc.
pub(crate) fn keep_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    glibc::keep_freed();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::ffi::c_int;

    /// Blocks from this many bytes on are taken from the system, and returned to it: 32 MiB, the
    /// greatest number that glibc takes.
    const LARGE: c_int = 32 << 20;

    /// Freed bytes at the end of an arena from which on they are returned: what two or three large
    /// blocks leave.
    const KEPT: c_int = 128 << 20;

    const M_TRIM_THRESHOLD: c_int = -1;
    const M_MMAP_THRESHOLD: c_int = -3;

    // SAFETY: the signature is the one in malloc.h. The function takes any numbers.
    unsafe extern "C" {
        safe fn mallopt(parameter: c_int, value: c_int) -> c_int;
    }

    pub(super) fn keep_freed() {
        // Each returns 0 if it refuses the number. Then the defaults stay.
        mallopt(M_MMAP_THRESHOLD, LARGE);
        mallopt(M_TRIM_THRESHOLD, KEPT);
    }
}
