//! `cargo xtask platforms`: builds apron for other platforms, runs its tests there, under Wine and
//! qemu, and compares the files that the tool writes there and here. The GPU there is the emulator.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use crate::dist::archive;
use crate::package::{copy, unpack, version};
use crate::test::{Summary, summed};
use crate::{cargo, print, root};

/// Options of `cargo xtask platforms`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only platforms whose target contains this text.
    #[arg(long, value_name = "TEXT", default_value = "")]
    target: String,
    /// Of the tests, only those that depend most on the platform, as in CI.
    #[arg(long)]
    quick: bool,
}

/// A platform other than this machine's.
pub(crate) struct Platform {
    name: &'static str,
    /// Its name in a release's files.
    pub(crate) release: &'static str,
    pub(crate) target: &'static str,
    linker: &'static str,
    /// Debian's packages with the linker, the C library and the runner.
    packages: &'static str,
    runner: Runner,
    /// Arguments of all test programs.
    arguments: &'static [&'static str],
    /// The tool's tests whose names begin with this are run by `--quick`.
    quick: &'static str,
}

/// The program that runs the platform's programs here.
#[derive(Clone, Copy, PartialEq)]
enum Runner {
    Qemu,
    Wine,
}

pub(crate) const PLATFORMS: [Platform; 2] = [
    Platform {
        name: "Linux on aarch64 (qemu)",
        release: "aarch64-linux",
        target: "aarch64-unknown-linux-gnu",
        linker: "aarch64-linux-gnu-gcc",
        packages: "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user",
        runner: Runner::Qemu,
        // It starts its own program, which this machine's kernel cannot run.
        arguments: &["--skip", "round::tests::every_instruction_set_rounds_alike"],
        // Processors differ, and the commands below compare them; paths and signals do not.
        quick: "volume::",
    },
    Platform {
        name: "Windows on x86-64 (Wine)",
        release: "x86_64-windows",
        target: "x86_64-pc-windows-gnu",
        linker: "x86_64-w64-mingw32-gcc",
        packages: "gcc-mingw-w64-x86-64 wine64",
        runner: Runner::Wine,
        // Wine 8 sometimes fails to start a program if threads start several at once.
        arguments: &["--test-threads", "1"],
        quick: "",
    },
];

/// These packages are built and tested, without what needs the crate cust, whose build wants CUDA.
const PACKAGES: &str = "--no-default-features --features conformance/gpu \
    -p apron -p apron-cli -p conformance -p emulator";

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

/// What the tool is asked to do on each platform, in a folder with the pictures of `assets` and
/// [`SMALL`]. The files that it writes must not differ. It finds a GPU, the emulator, only if it is
/// asked for one.
const COMMANDS: [&str; 30] = [
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
    "APRON_ISA=portable filter astronaut.png portable.png --filter unsharp:sigma=1.5,amount=0.8",
    "filters > filters.txt",
    "filter small.ppm gpu.png --filter gaussian:2 --device gpu:0",
    "filter small.ppm gpu.jpg --filter emboss --border wrap --device gpu:0",
    "filter small.ppm gpu-wide.png --filter gaussian:20 --device gpu:0",
    "filter small.ppm gpu-bands.png --filter box:7 --chunk-above 1K --device gpu:0",
    "filter small.ppm gpu.npy --filter gaussian:1.3 --filter sobel --output-type f32 \
     --device gpu:0",
    "filter gpu.npy gpu-deep.tif --filter motion:length=9,angle=30 --output-type f16 \
     --device gpu:0",
];

/// The name and size of a picture of noise, which the emulator filters in seconds.
const SMALL: (&str, usize, usize) = ("small.ppm", 96, 64);

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
            platform.cells(options.quick, &mut good)?
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
    pub(crate) fn missing(&self) -> Result<Vec<String>> {
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
    fn cells(&self, quick: bool, good: &mut bool) -> Result<[String; 4]> {
        // Also the emulator.
        let built = self.cargo("build").args(["--bin", "apron", "--lib"]).status()?.success();
        if !(built && self.tests(quick).arg("--no-run").status()?.success()) {
            *good = false;
            return Ok(["no".into(), "-".into(), "-".into(), "-".into()]);
        }
        let place = Place::new(self)?;
        let Summary { passed, failed, .. } = self.test(quick, &place)?;
        let (files, differ) = self.compare(&place)?;
        *good &= failed == 0 && passed > 0 && files > 0 && differ.is_empty();
        for name in &differ {
            print(&format!("{name} differs from this machine's\n"))?;
        }
        let like = format!("{} of {files}", files - differ.len());
        Ok(["yes".into(), (passed + failed).to_string(), passed.to_string(), like])
    }

    /// Runs the tests.
    fn test(&self, quick: bool, place: &Place) -> Result<Summary> {
        let mut command = self.tests(quick);
        command.arg("--no-fail-fast");
        command.env(self.variable("RUNNER"), &place.runner).env("APRON_BIN", &place.started);
        command.arg("--").args(self.arguments);
        if quick {
            command.arg(self.quick);
        }
        summed(command).map(|(_, summary)| summary)
    }

    /// Cargo, to run the tests of the library and of the tool; if `quick`, of the tool alone.
    fn tests(&self, quick: bool) -> Command {
        let mut command = self.cargo("test");
        command.args(["--test", "cli"]).args((!quick).then_some("--lib"));
        command
    }

    /// Runs [`COMMANDS`] there and here: the number of files, and the names of those that differ.
    fn compare(&self, place: &Place) -> Result<(usize, Vec<String>)> {
        // As the tests build them.
        for what in [&["--workspace", "--bin", "apron"][..], &["-p", "emulator"]] {
            let built = cargo().args(["build", "--release"]).args(what).status()?;
            ensure!(built.success(), "the tool does not compile for this machine");
        }
        let release = target_folder().join("release");
        let driver = driver(&release.join("libapron_emulator.so"), "libcuda.so.1", "here")?;
        let here =
            written(&place.folder.join("here"), &driver, || Command::new(release.join("apron")))?;
        let there = written(&place.folder.join("there"), &place.driver, || {
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
        // The emulator compiles in half of the time.
        let emulator = ["--config", "profile.release.package.emulator.opt-level=1"];
        command.args([task, "--release", "--target", self.target]).args(emulator);
        command.args(PACKAGES.split(' '));
        self.link(&mut command);
        command
    }

    /// Lets cargo link with this platform's linker.
    pub(crate) fn link(&self, cargo: &mut Command) {
        cargo.env(self.variable("LINKER"), self.linker);
    }

    /// The platform's objdump.
    pub(crate) fn objdump(&self) -> String {
        self.linker.replace("gcc", "objdump")
    }

    /// The extension of programs' names.
    pub(crate) fn extension(&self) -> &'static str {
        if self.runner == Runner::Wine { "exe" } else { "" }
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
    /// The folder of the emulator, under the name of NVIDIA's driver. The script looks for
    /// libraries in the folder that `LD_LIBRARY_PATH` names.
    driver: PathBuf,
}

impl Place {
    fn new(platform: &Platform) -> Result<Self> {
        let folder = target_folder().join("platforms").join(platform.target);
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let release = target_folder().join(platform.target).join("release");
        let program = platform.runner.find().context("no runner")?;
        let (runner, program) = (folder.join("run"), program.display());
        let unpacked = unpacked(platform, &release, &folder)?;
        let (tool, started, driver) = match platform.runner {
            Runner::Qemu => {
                script(&runner, &format!("exec '{program}' -L {ARM_ROOT} \"$@\""))?;
                let tool = unpacked.join("apron");
                // This machine's kernel starts scripts, but no program of another architecture.
                let started = folder.join("apron");
                let line = format!("exec '{}' '{}' \"$@\"", runner.display(), tool.display());
                script(&started, &line)?;
                let emulator = release.join("libapron_emulator.so");
                (tool, started, driver(&emulator, "libcuda.so.1", platform.target)?)
            }
            Runner::Wine => {
                process_prng(platform.linker, &folder)?;
                let folder = folder.display();
                let variables = format!(
                    "WINEPREFIX='{folder}/wine' WINEDEBUG=-all \
                     WINEPATH=\"Z:{folder};Z:$LD_LIBRARY_PATH\""
                );
                script(&runner, &format!("{variables} exec '{program}' \"$@\""))?;
                let tool = unpacked.join("apron.exe");
                // Wine's drive Z is the root.
                let started = format!("Z:{}", tool.display()).into();
                let emulator = release.join("apron_emulator.dll");
                (tool, started, driver(&emulator, "nvcuda.dll", platform.target)?)
            }
        };
        Ok(Self { folder, tool, runner, started, driver })
    }
}

/// Packs the tool as a release has it, and unpacks it into a folder of the platform's.
fn unpacked(platform: &Platform, release: &Path, folder: &Path) -> Result<PathBuf> {
    let program = release.join("apron").with_extension(platform.extension());
    let name = format!("apron-{}-{}", version()?, platform.release);
    unpack(&[archive(&program, &name, folder)?], folder)?;
    Ok(folder.join(name))
}

/// A folder with a copy of the emulator under the driver's name.
fn driver(emulator: &Path, name: &str, platform: &str) -> Result<PathBuf> {
    let folder = target_folder().join("platforms/drivers").join(platform);
    copy(emulator, &folder.join(name))?;
    Ok(folder)
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

/// Runs [`COMMANDS`] in a new folder, and returns each file in it. What runs on a GPU finds the
/// driver in the folder `driver`.
fn written(
    folder: &Path,
    driver: &Path,
    tool: impl Fn() -> Command,
) -> Result<BTreeMap<String, Vec<u8>>> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    for entry in fs::read_dir(root().join("assets"))? {
        let entry = entry?;
        fs::copy(entry.path(), folder.join(entry.file_name()))?;
    }
    let (name, width, height) = SMALL;
    let noise = (0..3 * width * height).map(|i| (i as u32).wrapping_mul(0x9E37_79B9) >> 24);
    let mut small = format!("P6\n{width} {height}\n255\n").into_bytes();
    small.extend(noise.map(|value| value as u8));
    fs::write(folder.join(name), small)?;
    for line in COMMANDS {
        let mut command = tool();
        command.current_dir(folder).stdin(Stdio::null());
        match line.contains("gpu:0") {
            true => command.env("LD_LIBRARY_PATH", driver).env_remove("APRON_DRIVER"),
            false => command.env("APRON_DRIVER", "none"),
        };
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
