//! `cargo xtask platforms`: builds the CPU's part of apron for other platforms, runs its tests
//! there, under Wine and qemu, and compares the files that the tool writes there and here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use crate::test::{Summary, summed};
use crate::{cargo, print, root};

/// Options of `cargo xtask platforms`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only platforms whose target contains this text.
    #[arg(long, value_name = "TEXT", default_value = "")]
    target: String,
}

/// A platform other than this machine's.
struct Platform {
    name: &'static str,
    target: &'static str,
    linker: &'static str,
    /// Debian's packages with the linker, the C library and the runner.
    packages: &'static str,
    runner: Runner,
    /// Names of tests that the runner cannot run.
    skipped: &'static [&'static str],
}

/// The program that runs the platform's programs here.
#[derive(Clone, Copy, PartialEq)]
enum Runner {
    Qemu,
    Wine,
}

const PLATFORMS: [Platform; 2] = [
    Platform {
        name: "Linux on aarch64 (qemu)",
        target: "aarch64-unknown-linux-gnu",
        linker: "aarch64-linux-gnu-gcc",
        packages: "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user",
        runner: Runner::Qemu,
        // It starts itself, but this machine's kernel starts no program of another architecture.
        skipped: &["round::tests::every_instruction_set_rounds_alike"],
    },
    Platform {
        name: "Windows on x86-64 (Wine)",
        target: "x86_64-pc-windows-gnu",
        linker: "x86_64-w64-mingw32-gcc",
        packages: "gcc-mingw-w64-x86-64 wine64",
        runner: Runner::Wine,
        skipped: &[],
    },
];

/// The CPU's part of these packages is built and tested.
const PACKAGES: [&str; 7] =
    ["--no-default-features", "-p", "apron", "-p", "apron-cli", "-p", "conformance"];

/// Where Debian has the C library of aarch64.
const ARM_ROOT: &str = "/usr/aarch64-linux-gnu";

/// Rust's standard library imports this function from a DLL that Wine 8 does not have.
const PROCESS_PRNG: &[u8] = b"
#include <windows.h>
#include <ntsecapi.h>
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T length) {
    return RtlGenRandom(data, (ULONG)length);
}
";

/// What the tool is asked to do on each platform, in a folder with the pictures of `assets`. The
/// files that it writes must not differ.
const COMMANDS: [&str; 23] = [
    "filter astronaut.png blurred.png --filter gaussian:2",
    "filter hubble_deep_field.jpg sharp.jpg --filter unsharp:sigma=1.5,amount=0.8",
    "filter moon.png slopes.npy --filter gaussian:1.3 --filter sobel --output-type f32",
    "filter moon.png deep.png --filter box:5 --output-type u16",
    "filter deep.png deep.tif --filter gaussian:3 --compression deflate",
    "filter deep.png deep.npy --filter motion:length=9,angle=30 --border wrap",
    "filter slopes.npy wide.npy --filter gaussian:25",
    "filter slopes.npy slopes.exr --filter box:7 --output-type f16",
    "filter slopes.npy slopes.pfm --filter laplacian",
    "filter astronaut.png small.webp --filter emboss",
    "filter astronaut.png small.gif --filter sharpen",
    "filter astronaut.png small.qoi --filter sobel-x --offset 128",
    "filter astronaut.png linear.bmp --filter gaussian:1.5 --linear",
    "filter astronaut.png masked.tga --filter gaussian:4 --mask moon.png",
    "filter slopes.npy bands.npy --filter gaussian:2 --chunk-above 1K",
    "filter astronaut.png moon.png deep.png folder/ --filter sharpen --jobs 3",
    "filter folder/ all/ --recursive --format pam --filter gaussian:0.8 --jobs 2",
    "filter blurred.png blurred.png --filter sharpen",
    "filter - - --format png --filter sobel < moon.png > piped.png",
    "filter moon.png moon.raw --filter identity",
    "filter - - --raw 64x64x1 --frames --format raw --filter box:3 < moon.raw > frames.raw",
    "APRON_ISA=portable filter slopes.npy portable.npy --filter gaussian:2",
    "filters > filters.txt",
];

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let chosen = |platform: &&Platform| platform.target.contains(&options.target);
    let platforms: Vec<_> = PLATFORMS.iter().filter(chosen).collect();
    ensure!(!platforms.is_empty(), "no target contains \"{}\"", options.target);
    let mut rows = Vec::new();
    let mut good = true;
    for platform in platforms {
        print(&format!("\n== {}\n", platform.name))?;
        let missing = platform.missing()?;
        let cells = if missing.is_empty() {
            platform.cells(&mut good)?
        } else {
            let why = format!("SKIP: {}", missing.join("; "));
            print(&format!("{why}\n"))?;
            [why, "-".into(), "-".into(), "-".into()]
        };
        rows.push((platform.name, cells));
    }
    print("\n| platform | built | tests run | passed | files like this machine's |\n")?;
    print("| --- | --- | ---: | ---: | ---: |\n")?;
    for (name, cells) in rows {
        print(&format!("| {name} | {} |\n", cells.join(" | ")))?;
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Platform {
    /// What is missing here, and how to install it.
    fn missing(&self) -> Result<Vec<String>> {
        let mut missing = Vec::new();
        let rustc = ["--print", "target-libdir", "--target", self.target];
        if !Path::new(rustc_says(&rustc)?.trim()).is_dir() {
            missing.push(format!("rustup target add {}", self.target));
        }
        let has_library = self.runner == Runner::Wine || Path::new(ARM_ROOT).is_dir();
        if on_path(self.linker).is_none() || self.runner.find().is_none() || !has_library {
            missing.push(format!("apt-get install {}", self.packages));
        }
        Ok(missing)
    }

    /// Builds and runs everything; returns the other cells of the table.
    fn cells(&self, good: &mut bool) -> Result<[String; 4]> {
        let mut tests = self.cargo("test");
        let built = tests.args(["--no-run", "--lib", "--test", "cli"]).status()?.success();
        let tool = self.cargo("build").args(["--bin", "apron"]).status()?.success();
        if !(built && tool) {
            *good = false;
            return Ok(["no".into(), "-".into(), "-".into(), "-".into()]);
        }
        let place = Place::new(self)?;
        let Summary { passed, failed, .. } = self.test(&place)?;
        let (files, differ) = self.compare(&place)?;
        *good &= failed == 0 && passed > 0 && files > 0 && differ.is_empty();
        for name in &differ {
            print(&format!("{name} differs from this machine's\n"))?;
        }
        let like = format!("{} of {files}", files - differ.len());
        Ok(["yes".into(), (passed + failed).to_string(), passed.to_string(), like])
    }

    /// Runs the tests of the library and of the tool.
    fn test(&self, place: &Place) -> Result<Summary> {
        let mut command = self.cargo("test");
        command.args(["--no-fail-fast", "--lib", "--test", "cli"]);
        command.env(self.variable("RUNNER"), &place.runner).env("APRON_BIN", &place.started);
        command.arg("--").args(self.skipped.iter().flat_map(|name| ["--skip", name]));
        summed(command).map(|(_, summary)| summary)
    }

    /// Runs [`COMMANDS`] there and here: the number of files, and the names of those that differ.
    fn compare(&self, place: &Place) -> Result<(usize, Vec<String>)> {
        let host = rustc_says(&["-vV"])?;
        let host = host.lines().find_map(|line| line.strip_prefix("host: "));
        let host = host.context("rustc names no host")?;
        // Not into the folder of builds with a GPU.
        let built = cargo()
            .args(["build", "--release", "--bin", "apron", "--target", host])
            .args(PACKAGES)
            .status()?;
        ensure!(built.success(), "the tool does not compile for this machine");
        let native = target_folder().join(host).join("release/apron");
        let here = written(&place.folder.join("here"), || Command::new(&native))?;
        let there = written(&place.folder.join("there"), || {
            let mut command = Command::new(&place.runner);
            command.arg(&place.tool);
            command
        })?;
        let names: BTreeSet<_> = here.keys().chain(there.keys()).collect();
        let differ = names.iter().filter(|name| here.get(**name) != there.get(**name));
        Ok((names.len(), differ.map(|name| name.to_string()).collect()))
    }

    /// Cargo, to build or test [`PACKAGES`] for this platform.
    fn cargo(&self, task: &str) -> Command {
        let mut command = cargo();
        command.args([task, "--release", "--target", self.target]).args(PACKAGES);
        command.env(self.variable("LINKER"), self.linker);
        command
    }

    /// The name of a variable that sets this target's linker or runner.
    fn variable(&self, what: &str) -> String {
        format!("CARGO_TARGET_{}_{what}", self.target.replace('-', "_").to_uppercase())
    }
}

impl Runner {
    fn find(self) -> Option<PathBuf> {
        match self {
            Self::Qemu => on_path("qemu-aarch64"),
            // Debian's package wine64 puts nothing on the path.
            Self::Wine => on_path("wine64").or_else(|| {
                Some(PathBuf::from("/usr/lib/wine/wine64")).filter(|path| path.is_file())
            }),
        }
    }
}

/// What runs a platform's programs.
struct Place {
    folder: PathBuf,
    /// The tool, as this machine names it.
    tool: PathBuf,
    /// A script that runs the program in its arguments.
    runner: PathBuf,
    /// The tool, as a program of the platform starts it.
    started: PathBuf,
}

impl Place {
    fn new(platform: &Platform) -> Result<Self> {
        let folder = target_folder().join("platforms").join(platform.target);
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let tool = target_folder().join(platform.target).join("release/apron");
        let program = platform.runner.find().context("no runner")?;
        let (runner, program) = (folder.join("run"), program.display());
        let (tool, started) = match platform.runner {
            Runner::Qemu => {
                script(&runner, &format!("exec '{program}' -L {ARM_ROOT} \"$@\""))?;
                // This machine's kernel starts scripts, but no program of another architecture.
                let started = folder.join("apron");
                let line = format!("exec '{}' '{}' \"$@\"", runner.display(), tool.display());
                script(&started, &line)?;
                (tool, started)
            }
            Runner::Wine => {
                let tool = tool.with_extension("exe");
                process_prng(platform.linker, &folder)?;
                let folder = folder.display();
                let variables =
                    format!("WINEPREFIX='{folder}/wine' WINEDEBUG=-all WINEPATH='Z:{folder}'");
                script(&runner, &format!("{variables} exec '{program}' \"$@\""))?;
                // Wine's drive Z is the root.
                let started = format!("Z:{}", tool.display()).into();
                (tool, started)
            }
        };
        Ok(Self { folder, tool, runner, started })
    }
}

/// Writes a script for the shell. Without `CARGO`, test programs build no others for themselves.
fn script(path: &Path, line: &str) -> Result<()> {
    fs::write(path, format!("#!/bin/sh\nunset CARGO\n{line}\n"))
        .with_context(|| path.display().to_string())?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Compiles [`PROCESS_PRNG`] into a DLL.
fn process_prng(compiler: &str, folder: &Path) -> Result<()> {
    let mut child = Command::new(compiler)
        .args(["-shared", "-x", "c", "-", "-o"])
        .arg(folder.join("bcryptprimitives.dll"))
        .arg("-ladvapi32")
        .stdin(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {compiler}"))?;
    child.stdin.take().context("its input")?.write_all(PROCESS_PRNG)?;
    ensure!(child.wait()?.success(), "{compiler} failed");
    Ok(())
}

/// Runs [`COMMANDS`] in a new folder, and returns each file in it.
fn written(folder: &Path, tool: impl Fn() -> Command) -> Result<BTreeMap<String, Vec<u8>>> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    for entry in fs::read_dir(root().join("assets"))? {
        let entry = entry?;
        fs::copy(entry.path(), folder.join(entry.file_name()))?;
    }
    for line in COMMANDS {
        let mut command = tool();
        command.current_dir(folder).stdin(Stdio::null());
        let mut words = line.split(' ');
        while let Some(word) = words.next() {
            let mut file = || words.next().map(|name| folder.join(name)).context("no file");
            match word {
                _ if word.starts_with("APRON_") => {
                    let (name, value) = word.split_once('=').context("no value")?;
                    command.env(name, value)
                }
                "<" => command.stdin(File::open(file()?)?),
                ">" => command.stdout(File::create(file()?)?),
                _ => command.arg(word),
            };
        }
        let output = command.output().with_context(|| format!("{command:?}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{line}: {}, {said}", output.status);
    }
    let mut files = BTreeMap::new();
    read(folder, "", &mut files)?;
    Ok(files)
}

/// Reads all files of a folder and its folders.
fn read(folder: &Path, prefix: &str, files: &mut BTreeMap<String, Vec<u8>>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match path.is_dir() {
            true => read(&path, &format!("{prefix}{name}/"), files)?,
            false => drop(files.insert(format!("{prefix}{name}"), fs::read(&path)?)),
        }
    }
    Ok(())
}

/// The folder that cargo builds into.
fn target_folder() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// What rustc prints, in the workspace, whose file chooses the toolchain.
fn rustc_says(arguments: &[&str]) -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(arguments).current_dir(root()).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A program's path, if it is installed.
fn on_path(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}
