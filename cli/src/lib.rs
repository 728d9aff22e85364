//! The command-line tool `apron`: from arguments to results on stdout, one line on stderr and an
//! exit code.
//!
//! A library for the tool's own tests and fuzz targets; programs use the crate `apron`.

mod args;
mod carried;
mod channels;
mod chunks;
mod codec;
mod ends;
mod exif;
mod extra;
mod failure;
mod files;
mod filter;
mod formats;
mod frames;
pub mod fuzz;
mod info;
mod jobs;
mod light;
mod limits;
mod manual;
mod masks;
mod memory;
mod meta;
mod notes;
mod npy;
mod output;
mod picture;
mod plan;
mod replace;
mod scaling;
mod spread;
mod steps;
mod stream;
mod taps;
mod taps_file;
mod task;
mod video;
mod volume;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command};
use crate::failure::{Result, caught, keep_panics};
use crate::output::{print, report};

/// Runs the tool: exit code 0, 1 if something failed, 2 if the command line is wrong.
pub fn main() -> ExitCode {
    keep_panics();
    memory::keep_freed();
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) if !error.use_stderr() => {
            return ExitCode::from(u8::from(error.print().is_err()));
        }
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

fn run(args: Args) -> Result {
    if let Some(path) = &args.ptx {
        use_kernels(path)?;
    }
    match args.command {
        Command::Filter(args) => filter::run(args),
        Command::Plan(args) => plan::run(&args),
        Command::Taps(args) => taps::run(&args),
        Command::Filters => print(|out| info::filters(out)),
        Command::Info => print(|out| info::info(out)),
        Command::Completions { shell } => print(|out| manual::completions(shell, out)),
        Command::Man { command } => manual::page(command.as_deref()),
    }
}

#[cfg(feature = "gpu")]
fn use_kernels(path: &Path) -> Result {
    apron::gpu::use_kernels(Some(apron::gpu::Kernels::read(path)?));
    Ok(())
}

#[cfg(not(feature = "gpu"))]
fn use_kernels(_: &Path) -> Result {
    Err(failure::Failure::usage("--ptx: this build has no GPU support (feature \"gpu\")"))
}
