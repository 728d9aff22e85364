//! The command-line tool: from arguments to one line on stderr and an exit code.

mod args;
mod files;
mod filter;
pub mod fuzz;
mod info;
mod npy;
mod plan;
mod taps;

use std::io::{self, Write};
use std::panic::{self, UnwindSafe};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use clap::Parser;

/// Why a command did not do its work: an exit code, and one line for stderr.
#[derive(Debug)]
struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// Something failed.
    fn new(message: impl Into<String>) -> Self {
        Self { code: 1, message: message.into() }
    }

    /// The command line does not make sense.
    fn usage(message: impl Into<String>) -> Self {
        Self { code: 2, message: message.into() }
    }

    /// Something failed that has to do with this file.
    fn at(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self::new(format!("{}: {reason}", path.display()))
    }
}

impl From<apron::Error> for Failure {
    fn from(error: apron::Error) -> Self {
        Self::new(error.to_string())
    }
}

type Result<T = (), E = Failure> = std::result::Result<T, E>;

/// Runs the tool: exit code 0, 1 if something failed, 2 if the command line does not make sense.
pub fn main() -> ExitCode {
    // A panic, most likely a decoder's on a file that no one has tried before, is reported like every other failure.
    panic::set_hook(Box::new(|panic| *last_panic() = Some(panic.to_string())));
    let args = match args::Args::try_parse() {
        Ok(args) => args,
        Err(error) if !error.use_stderr() => return ExitCode::from(u8::from(error.print().is_err())),
        Err(error) => {
            report(&args::usage(&error));
            return ExitCode::from(2);
        }
    };
    match caught(|| run(args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            report(&failure.message);
            ExitCode::from(failure.code)
        }
    }
}

fn run(args: args::Args) -> Result {
    if let Some(path) = &args.ptx {
        take_kernels(path)?;
    }
    match args.command {
        args::Command::Filter(args) => filter::run(args),
        args::Command::Plan(args) => plan::run(&args),
        args::Command::Taps(args) => taps::run(&args),
        args::Command::Filters => print(|out| info::filters(out)),
        args::Command::Info => print(|out| info::info(out)),
    }
}

#[cfg(feature = "gpu")]
fn take_kernels(path: &Path) -> Result {
    apron::gpu::use_kernels(Some(apron::gpu::Kernels::read(path)?));
    Ok(())
}

#[cfg(not(feature = "gpu"))]
fn take_kernels(_: &Path) -> Result {
    Err(Failure::usage("--ptx: this build has no GPU support (feature \"gpu\")"))
}

/// Runs `work`; a panic becomes a failure.
fn caught<T>(work: impl FnOnce() -> Result<T> + UnwindSafe) -> Result<T> {
    panic::catch_unwind(work).unwrap_or_else(|_| {
        let panic = last_panic().take().unwrap_or_default();
        Err(Failure::new(format!("internal error, please report it with the picture: {panic}")))
    })
}

fn last_panic() -> std::sync::MutexGuard<'static, Option<String>> {
    static LAST: Mutex<Option<String>> = Mutex::new(None);
    LAST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One line on stderr, whatever the message holds. Nothing is left to do if that fails.
fn report(message: &str) {
    let _ = writeln!(io::stderr(), "apron: {}", one_line(message));
}

fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split(['\n', '\r', '\t']).map(str::trim).filter(|line| !line.is_empty()).collect();
    let line = words.join(" ");
    line.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Writes to stdout. That no one reads to the end, as in `apron info | head`, is no failure.
fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result {
    let mut out = io::BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(format!("stdout: {error}"))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_stay_on_one_line() {
        assert_eq!(one_line("a\n\n  b\r\nc"), "a b c");
        assert_eq!(one_line("\u{1b}[31mred"), "\u{fffd}[31mred");
    }

    #[test]
    fn panics_become_failures() {
        let result = caught(|| -> Result { panic!("a decoder gave up") });
        assert_eq!(result.unwrap_err().code, 1);
    }
}
