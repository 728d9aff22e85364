//! Failures: an exit code, and one line for stderr.

use std::panic::{self, UnwindSafe};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
}

pub(crate) type Result<T = (), E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// Something failed.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { code: 1, message: message.into() }
    }

    /// The command line is wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { code: 2, message: message.into() }
    }

    /// Something failed with this file.
    pub(crate) fn at(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self::new(format!("{}: {reason}", path.display()))
    }
}

impl From<apron::Error> for Failure {
    fn from(error: apron::Error) -> Self {
        // A way out on the command line, which the library does not know.
        let hint = match error {
            apron::Error::NoGpu { .. } | apron::Error::DeviceMemory { .. } => " (--device cpu)",
            _ => "",
        };
        Self::new(format!("{error}{hint}"))
    }
}

/// Keeps the message of a panic for [`caught`] instead of printing it.
///
/// Panics are reported like other failures. They most likely come from a decoder on an unusual
/// file.
pub(crate) fn keep_panics() {
    panic::set_hook(Box::new(|panic| *last_panic() = Some(panic.to_string())));
}

/// Runs `work`; a panic becomes a failure.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T> + UnwindSafe) -> Result<T> {
    panic::catch_unwind(work).unwrap_or_else(|_| {
        let panic = last_panic().take().unwrap_or_default();
        Err(Failure::new(format!("internal error, please report it with the picture: {panic}")))
    })
}

fn last_panic() -> MutexGuard<'static, Option<String>> {
    static LAST: Mutex<Option<String>> = Mutex::new(None);
    LAST.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_out_is_an_option() {
        let failure = Failure::from(apron::Error::NoGpu { reason: "none".into() });
        assert_eq!(failure.message, "no GPU: none; the CPU gives the same results (--device cpu)");
    }

    #[test]
    fn panics_become_failures() {
        let result = caught(|| -> Result { panic!("a decoder gave up") });
        assert_eq!(result.unwrap_err().code, 1);
    }
}
