//! What the driver answers: results, and the messages of its errors.

use std::ffi::{CStr, c_char};

use super::sys;

/// What the driver answers a call: its error's number, if it failed.
pub(in crate::gpu) type Answer<T = ()> = Result<T, Fault>;

/// An error's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gpu) struct Fault(pub(super) u32);

impl Fault {
    pub(in crate::gpu) const OUT_OF_MEMORY: Self = Self(2);
    pub(in crate::gpu) const NO_DEVICE: Self = Self(100);
}

/// A call's result.
pub(in crate::gpu) fn check(code: u32) -> Answer {
    if code == 0 { Ok(()) } else { Err(Fault(code)) }
}

/// The driver's message for an error.
pub(in crate::gpu) fn message(Fault(code): Fault) -> String {
    type Ask = unsafe fn(u32, *mut *const c_char) -> u32;
    let describe = |ask: Ask| {
        let mut text = std::ptr::null();
        // SAFETY: both functions return static strings.
        unsafe {
            (ask(code, &mut text) == 0 && !text.is_null())
                .then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    };
    match (describe(sys::cuGetErrorString), describe(sys::cuGetErrorName)) {
        (Some(words), Some(name)) => format!("{words} ({name})"),
        _ => format!("error {code}"),
    }
}
