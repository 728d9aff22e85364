//! The project's commands.

mod dependents;
mod dist;
#[cfg(test)]
mod docs;
mod doctor;
mod package;
mod platforms;
mod ptx;
mod rust_cuda;
mod test;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use kernel_builder::KernelBuilder;

/// The commands of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Filter the demo pictures: PNGs, a contact sheet under out/, a table of times.
    #[command(disable_help_flag = true)]
    Run {
        /// Passed on to the demo; `--help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Measure the kernels and the device's limits; with --peers, other libraries too.
    /// `bench ladder`: the kernels of five documents on convolution, step by step. `bench flow`:
    /// from host memory to host memory; with --auto, where the library chooses the device.
    /// `bench plan`: predicted times beside measured ones. `bench bound`: the rows on GPUs that are
    /// not here, calculated. `bench cliffs`: where 8-bit results are slow. `bench cores`: whether
    /// more threads are slower.
    #[command(disable_help_flag = true)]
    Bench {
        /// Passed on to the benchmark; `--help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run all tests, and print their totals.
    Test {
        /// Passed on to cargo test.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run the GPU's tests under compute-sanitizer, and print how many kernels it checked.
    #[command(disable_help_flag = true)]
    Sanitize {
        /// Passed on to the test program; `--help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Compile the kernels, and list each entry's registers and spills.
    Ptx(ptx::Options),
    /// Pack the packages as crates.io gets them, with the kernels' PTX inside.
    Package(package::Options),
    /// Make the files of a release: the tool's archive, the packages, the wheel, checksums, a bill
    /// of materials.
    Dist(dist::Options),
    /// Build for Windows and for Linux on aarch64, without a GPU, and test there, under Wine and
    /// qemu. What this machine lacks for that is listed.
    Platforms(platforms::Options),
    /// Build and run programs that depend on the packed packages, and on the git repository.
    Dependents,
    /// List what is missing on this machine, and how to install it.
    Doctor,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Task::Run { arguments } => demo(&arguments),
        Task::Bench { arguments } => match arguments.split_first() {
            Some((first, rest))
                if ["ladder", "flow", "cliffs", "cores", "plan", "bound"]
                    .contains(&first.as_str()) =>
            {
                bench(first, rest)
            }
            _ => bench("bench", &arguments),
        },
        Task::Test { arguments } => test::run(&arguments),
        Task::Sanitize { arguments } => sanitize(&arguments),
        Task::Ptx(options) => ptx::run(&options),
        Task::Package(options) => package::run(&options),
        Task::Dist(options) => dist::run(&options),
        Task::Platforms(options) => platforms::run(&options),
        Task::Dependents => dependents::run(),
        Task::Doctor => doctor::run(),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// Starts the demonstration. Where there is no GPU, it is built for the CPU alone, and the kernels
/// are compiled meanwhile.
fn demo(arguments: &[String]) -> Result<ExitCode> {
    let names_gpu = arguments.iter().any(|argument| argument.contains("gpu"));
    if names_gpu || !kernel_builder::gpus().is_empty() {
        return program("apron-demo", &[], arguments);
    }
    let options = ["--package", "apron-demo", "--no-default-features"];
    std::thread::scope(|scope| {
        let kernels = scope.spawn(|| KernelBuilder::new(root().join("gpu-kernels")).build());
        let built = cargo().args(["build", "--release"]).args(options).status();
        let kernels = kernels.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        if !built.context("starting cargo")?.success() {
            return Ok(ExitCode::FAILURE);
        }
        let (count, arch) = (kernels.entries.len(), kernels.arch);
        print(&format!("{count} GPU kernels compiled for {arch}, and not run\n"))?;
        program("apron-demo", &options, arguments)
    })
}

/// Starts one of the benchmark's commands.
fn bench(command: &str, arguments: &[String]) -> Result<ExitCode> {
    let is_given = |option: &str| arguments.iter().any(|argument| argument == option);
    // Other Rust libraries are built only for --peers. `bench flow` needs none: its peers are
    // Python's.
    let has_peers = command != "flow" && is_given("--peers");
    let features: &[&str] = if has_peers { &["--features", "apron-bench/peers"] } else { &[] };
    let arguments: Vec<_> = std::iter::once(command.to_owned()).chain(arguments.to_vec()).collect();
    program("apron-bench", features, &arguments)
}

/// Builds a program with these options of cargo, and starts it; the exit code is the program's.
fn program(name: &str, options: &[&str], arguments: &[String]) -> Result<ExitCode> {
    let mut cargo = cargo();
    // Unless `options` name a package, the features are those of the whole workspace, as for the
    // tests: cargo builds apron once for all.
    cargo.args(["run", "--release", "--bin", name]).args(options);
    // The driver caches compiled kernels, and the next run's load times would be too short.
    if arguments.iter().any(|argument| argument == "--compare-compilers") {
        cargo.env("CUDA_CACHE_DISABLE", "1");
    }
    cargo.arg("--").args(arguments);
    Ok(exit_code(cargo.status().context("starting cargo")?))
}

/// Builds the tests and has them run themselves under compute-sanitizer: see
/// `tests/conformance/sanitize.rs`.
fn sanitize(arguments: &[String]) -> Result<ExitCode> {
    let mut cargo = cargo();
    cargo.args([
        "test",
        "--release",
        "--package",
        "conformance",
        "--test",
        "conformance",
        "--",
        "sanitize",
    ]);
    Ok(exit_code(cargo.args(arguments).status().context("starting cargo")?))
}

/// The cargo that started this program, in the workspace's root.
fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}

/// The workspace's root.
fn root() -> PathBuf {
    // Cargo says where the manifest is now; the folder may have been moved since the program was
    // compiled.
    let manifest =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&manifest).parent().map(Path::to_owned).unwrap_or_default()
}

/// Prints to standard output. A closed pipe is no error.
fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("writing")
        }
        _ => Ok(()),
    }
}

fn exit_code(status: std::process::ExitStatus) -> ExitCode {
    if status.success() {
        return ExitCode::SUCCESS;
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok()).filter(|&code| code != 0);
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}
