//! The program behind `cargo xtask bench`.

use std::process::ExitCode;

use apron_bench::{bench, bound, cliffs, cores, flow, ladder, plan};
use clap::{Parser, Subcommand};

/// Benchmark of apron.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure the kernels and the device's limits; with --peers, other libraries too.
    Bench(bench::Options),
    /// Measure pictures and batches from host memory to host memory.
    Flow(flow::Options),
    /// Measure a list of jobs beside the times that plans predict for them.
    Plan(plan::Options),
    /// Calculate the benchmark's rows for GPUs that are not here.
    Bound(bound::Options),
    /// Measure 8-bit results beside f32 results: finds filters, sizes and contents for which they
    /// are slow.
    Cliffs(cliffs::Options),
    /// Measure a list of jobs with 1, 2, 4, ... threads; fails where more threads take longer.
    Cores(cores::Options),
    /// Measure the kernels of five documents on convolution, step by step, and show their published
    /// times.
    Ladder(ladder::Options),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Bench(options) => bench::run(&options),
        Command::Flow(options) => flow::run(&options),
        Command::Plan(options) => plan::run(&options),
        Command::Bound(options) => bound::run(&options),
        Command::Cliffs(options) => cliffs::run(&options),
        Command::Cores(options) => cores::run(&options),
        Command::Ladder(options) => ladder::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
