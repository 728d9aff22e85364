//! The driver's errors by number, for the crate cust, which has no name for some.

use std::cell::Cell;

thread_local! {
    /// The number of the last error on this thread: newer drivers have errors that cust has no name
    /// for.
    pub(super) static LAST_ERROR: Cell<u32> = const { Cell::new(0) };
}

/// Remembers a call's result, and maps it into the range of cust's enumeration: a number outside it
/// would be no value of the type that cust declares.
pub(super) fn told(code: u32) -> u32 {
    const UNKNOWN: u32 = 999;
    LAST_ERROR.set(code);
    match code {
        0..=8
        | 34
        | 100..=102
        | 200..=202
        | 205..=224
        | 300..=304
        | 400
        | 401
        | 500
        | 600
        | 700..=705
        | 708..=720
        | 800..=809
        | 900..=911 => code,
        _ => UNKNOWN,
    }
}
