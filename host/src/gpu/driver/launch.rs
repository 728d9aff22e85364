//! Launches by handle.

use std::ffi::c_void;

use super::answer::{Answer, check};
use super::sys;

/// Puts a kernel into a stream.
///
/// # Safety
/// The stream and the kernel are there. `arguments` are those that the kernel takes; they are
/// copied before the call returns. The kernel's contract allows such blocks, with so many threads
/// and bytes of shared memory.
pub(super) unsafe fn launch(
    stream: sys::Handle,
    kernel: sys::Handle,
    (x, y, z): (u32, u32, u32),
    block: (u32, u32, u32),
    shared: u32,
    arguments: &mut [*mut c_void],
) -> Answer {
    let (arguments, extra) = (arguments.as_mut_ptr(), std::ptr::null_mut());
    // SAFETY: by the caller's promise.
    check(unsafe {
        sys::cuLaunchKernel(
            kernel, x, y, z, block.0, block.1, block.2, shared, stream, arguments, extra,
        )
    })
}
