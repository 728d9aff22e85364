//! Compiles a crate of GPU kernels written in Rust to PTX, from a build script or a task runner.
//!
//! ```no_run
//! # fn main() -> Result<(), kernel_builder::Error> {
//! let report = kernel_builder::KernelBuilder::new("../gpu-kernels").arch("sm_90").copy_to("kernels.ptx").build()?;
//! for entry in &report.entries {
//!     println!("{}: {}", entry.name, entry.path.display());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The compiler is rustc's own NVPTX backend. It needs the source of `core`, of its own version; [`compiler`] looks for
//! both, and installs them where it can. A nested cargo builds `core` once, and the crate once for each architecture, as a
//! `cdylib` with link-time optimisation: so what it uses of `core` is part of it, and nothing else. The result is one PTX
//! module, which is then split into one module for each entry, because a driver compiles all of what it is given to load.
//!
//! Results are kept under `<target folder>/kernels`, in a folder named after a hash of everything that they depend on:
//! the crate's files, the workspace's manifest and lock file, the flags, and the compiler's version. So debug and release
//! builds, and cargo and tools beside it, share them. A crate of kernels that depends on a crate in another folder is
//! not supported: changes there would go unnoticed.

pub mod compiler;
pub mod ptxas;
mod split;

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use compiler::Compiler;

/// What every fallible function of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why there is no PTX.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No compiler for NVPTX was found, and none could be installed.
    #[error(
        "no Rust compiler with the matching source of `core`, which compiling kernels to PTX needs.\n\
         Tried:\n{}\n\
         Any one of these helps:\n{}",
        list(tried),
        list(&compiler::REMEDIES.map(String::from))
    )]
    NoCompiler {
        /// What was tried, and how each attempt ended.
        tried: Vec<String>,
    },
    /// The compiler rejected the kernels.
    #[error("the kernels do not compile for {arch} with {compiler}:\n{log}")]
    Compile {
        /// The architecture, as `sm_90`.
        arch: String,
        /// The compiler's version.
        compiler: String,
        /// What the compiler printed.
        log: String,
    },
    /// The compiler's output is not what it should be.
    #[error("the PTX for {arch} cannot be used: {reason}")]
    Ptx {
        /// The architecture, as `sm_90`.
        arch: String,
        /// What is wrong.
        reason: String,
    },
    /// ptxas rejected a module.
    #[error("ptxas rejects {}:\n{log}", path.display())]
    Ptxas {
        /// The module.
        path: PathBuf,
        /// What ptxas printed.
        log: String,
    },
    /// No target folder was found to keep results in.
    #[error("no target folder found; name one with KernelBuilder::target_dir")]
    NoTargetDir,
    /// A program could not be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

fn list(items: &[String]) -> String {
    items.iter().map(|item| format!("  - {item}")).collect::<Vec<_>>().join("\n")
}

/// Names the file in an input or output error.
fn at(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::Io { path: path.to_owned(), source }
}

/// Starts a program and waits for its output.
fn output(command: &mut Command) -> Result<std::process::Output> {
    command
        .output()
        .map_err(|source| Error::Start { program: command.get_program().to_string_lossy().into_owned(), source })
}

/// What the crate's compilation gets beside its architecture.
///
/// Nothing is linked, so the program that does nothing stands in for a linker. The threshold lets loops over taps unroll
/// whenever their count is known.
const FLAGS: &[&str] = &["-Clinker=true", "-Cllvm-args=-unroll-threshold=100000"];

/// The compute capabilities, as 10 * major + minor, that apron's kernels are compiled for. A device runs what was compiled
/// for the highest at or under its own.
pub const TIERS: [u32; 2] = [75, 90];

/// How many sets of results to keep: a few branches' worth.
const KEPT: usize = 4;

/// One set of kernels to compile; see the [crate's documentation](crate).
#[derive(Clone, Debug)]
#[must_use]
pub struct KernelBuilder {
    krate: PathBuf,
    arch: String,
    release: bool,
    ptx_isa: Option<u32>,
    copy_to: Option<PathBuf>,
    target_dir: Option<PathBuf>,
}

impl KernelBuilder {
    /// Compiles the library of the crate in folder `krate`, optimised, for sm_75.
    pub fn new(krate: impl Into<PathBuf>) -> Self {
        Self {
            krate: krate.into(),
            arch: "sm_75".into(),
            release: true,
            ptx_isa: None,
            copy_to: None,
            target_dir: None,
        }
    }

    /// The architecture to compile for, as `sm_90`. A device runs what was compiled for its own or an older one.
    pub fn arch(mut self, arch: impl Into<String>) -> Self {
        self.arch = arch.into();
        self
    }

    /// Whether to optimise fully (the default). Otherwise the kernels also check for overflow and debug assertions, and
    /// end with a trap where one fails.
    pub fn release(mut self, release: bool) -> Self {
        self.release = release;
        self
    }

    /// The version of the PTX language, as 83 for 8.3, where the compiler's default for the architecture is too old. The
    /// driver must know it: 8.3 came with CUDA 12.3.
    pub fn ptx_isa(mut self, version: u32) -> Self {
        self.ptx_isa = Some(version);
        self
    }

    /// Also copies the whole module to this file.
    pub fn copy_to(mut self, path: impl Into<PathBuf>) -> Self {
        self.copy_to = Some(path.into());
        self
    }

    /// The target folder to keep results in. The default is the one that this build script, or this program, lies in.
    pub fn target_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.target_dir = Some(path.into());
        self
    }

    /// Compiles, unless the result is there already.
    ///
    /// # Errors
    /// If there is no compiler, if the kernels do not compile, or if a file cannot be written.
    pub fn build(&self) -> Result<Report> {
        let krate = self.krate.canonicalize().map_err(at(&self.krate))?;
        let root = self.target_dir.clone().or_else(target_dir).ok_or(Error::NoTargetDir)?.join("kernels");
        fs::create_dir_all(&root).map_err(at(&root))?;

        // One build at a time; whoever waited finds the result of the other.
        let lock_path = root.join("lock");
        let lock = fs::File::create(&lock_path).map_err(at(&lock_path))?;
        lock.lock().map_err(at(&lock_path))?;

        let compiler = compiler::find_or_install()?;
        let inputs = inputs(&krate)?;
        let set = root.join(format!("{:016x}", hash(&krate, &inputs, &compiler)?));
        let folder = set.join(self.name());
        if !folder.is_dir() {
            self.compile(&krate, &root, &compiler, &folder)?;
        }
        let used = set.join("used");
        fs::write(&used, "").map_err(at(&used))?;
        prune(&root);

        let module = folder.join(MODULE);
        if let Some(path) = &self.copy_to {
            fs::copy(&module, path).map_err(at(path))?;
        }
        let log = folder.join(LOG);
        Ok(Report {
            arch: self.arch.clone(),
            compiler: compiler.version,
            entries: entries(&folder.join(ENTRIES))?,
            warnings: fs::read_to_string(&log).map_err(at(&log))?,
            module,
            inputs,
        })
    }

    /// What sets this result apart from others of the same sources.
    fn name(&self) -> String {
        let mut name = self.arch.clone();
        if let Some(version) = self.ptx_isa {
            name.push_str(&format!("-ptx{version}"));
        }
        if !self.release {
            name.push_str("-debug");
        }
        name
    }

    /// Compiles into `folder`, which appears only when complete.
    fn compile(&self, krate: &Path, root: &Path, compiler: &Compiler, folder: &Path) -> Result<()> {
        let temporary = root.join("unfinished");
        if temporary.exists() {
            fs::remove_dir_all(&temporary).map_err(at(&temporary))?;
        }
        let entries = temporary.join(ENTRIES);
        fs::create_dir_all(&entries).map_err(at(&entries))?;

        // The nested cargo skips a crate that it has compiled before, even if the file it wrote was taken away. A name
        // that it has not seen makes it compile.
        let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        let raw = temporary.join(format!("{}-{}.ptx", std::process::id(), now.as_nanos()));
        let module = temporary.join(MODULE);

        let profile = if self.release { "RELEASE" } else { "DEV" };
        let mut cargo = compiler.cargo(krate);
        cargo
            .args(["rustc", "--lib", "--crate-type=cdylib", "--target=nvptx64-nvidia-cuda", "-Zbuild-std=core"])
            .arg("--target-dir")
            .arg(root.join("build"))
            .env(format!("CARGO_PROFILE_{profile}_LTO"), "fat")
            .env(format!("CARGO_PROFILE_{profile}_PANIC"), "abort")
            .env(format!("CARGO_PROFILE_{profile}_CODEGEN_UNITS"), "1")
            .env(format!("CARGO_PROFILE_{profile}_DEBUG"), "0")
            .env(format!("CARGO_PROFILE_{profile}_OPT_LEVEL"), if self.release { "3" } else { "1" });
        if self.release {
            cargo.arg("--release");
        }
        // These reach the crate alone and not `core`, which all architectures therefore share: its functions come out of
        // it as bitcode, and are compiled with the crate.
        cargo.arg("--").args(FLAGS).arg(format!("-Ctarget-cpu={}", self.arch));
        if let Some(version) = self.ptx_isa {
            cargo.arg(format!("-Ctarget-feature=+ptx{version}"));
        }
        let mut emit = std::ffi::OsString::from("--emit=asm=");
        emit.push(&raw);
        cargo.arg(emit);

        let result = output(&mut cargo)?;
        let log = String::from_utf8_lossy(&result.stderr).into_owned();
        if !result.status.success() {
            return Err(Error::Compile { arch: self.arch.clone(), compiler: compiler.version.clone(), log });
        }
        fs::rename(&raw, &module).map_err(at(&raw))?;

        let ptx = fs::read_to_string(&module).map_err(at(&module))?;
        let parts = split::split(&ptx).map_err(|reason| Error::Ptx { arch: self.arch.clone(), reason })?;
        for (name, text) in parts {
            let path = entries.join(format!("{name}.ptx"));
            fs::write(&path, text).map_err(at(&path))?;
        }
        let log_path = temporary.join(LOG);
        fs::write(&log_path, warnings(&log)).map_err(at(&log_path))?;

        let set = folder.parent().unwrap_or(root);
        fs::create_dir_all(set).map_err(at(set))?;
        fs::rename(&temporary, folder).map_err(at(folder))
    }
}

const MODULE: &str = "module.ptx";
const ENTRIES: &str = "entries";
const LOG: &str = "warnings.txt";

/// What was built.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The architecture, as `sm_90`.
    pub arch: String,
    /// The compiler, as `rustc 1.95.0`.
    pub compiler: String,
    /// PTX of all entries together.
    pub module: PathBuf,
    /// The entries by name, each with a module of its own.
    pub entries: Vec<Entry>,
    /// What the compiler warned of; empty if of nothing.
    pub warnings: String,
    /// The files that the result depends on, for `cargo:rerun-if-changed`.
    pub inputs: Vec<PathBuf>,
}

/// A kernel that the host can launch.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// Its name in PTX.
    pub name: String,
    /// A PTX module with this entry and no other.
    pub path: PathBuf,
}

fn entries(folder: &Path) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for file in fs::read_dir(folder).map_err(at(folder))? {
        let path = file.map_err(at(folder))?.path();
        if let Some(name) = path.file_stem().and_then(|stem| stem.to_str()) {
            entries.push(Entry { name: name.to_owned(), path });
        }
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// The target folder that a build script's output, or else this program, lies in.
pub fn target_dir() -> Option<PathBuf> {
    let inside = std::env::var_os("OUT_DIR").map(PathBuf::from).or_else(|| std::env::current_exe().ok())?;
    inside.ancestors().find(|folder| is_target_dir(folder)).map(Path::to_owned)
}

/// Whether cargo keeps results in this folder. It tags those it made itself, and keeps a file of its own in all.
fn is_target_dir(folder: &Path) -> bool {
    ["CACHEDIR.TAG", ".rustc_info.json"].iter().any(|name| folder.join(name).is_file())
}

/// A hash of everything that results depend on but what is in their names.
fn hash(krate: &Path, inputs: &[PathBuf], compiler: &Compiler) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    // This program's own part in the result.
    (include_str!("lib.rs"), include_str!("split.rs"), &compiler.identity).hash(&mut hasher);
    for path in inputs {
        path.strip_prefix(krate).unwrap_or(path).hash(&mut hasher);
        fs::read(path).map_err(at(path))?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

/// The crate's files, and the manifest and lock file of its workspace.
fn inputs(krate: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![krate.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(at(&folder))? {
            let entry = entry.map_err(at(&folder))?;
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            let path = entry.path();
            if hidden || is_target_dir(&path) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    let workspace = krate.ancestors().skip(1).find(|folder| folder.join("Cargo.lock").is_file());
    if let Some(workspace) = workspace {
        files.extend(["Cargo.toml", "Cargo.lock"].map(|name| workspace.join(name)).into_iter().filter(|p| p.is_file()));
    }
    files.sort();
    Ok(files)
}

/// The warnings in what cargo printed, without its lines of progress.
fn warnings(log: &str) -> String {
    let progress = ["Compiling", "Finished", "Locking", "Blocking", "Downloading", "Downloaded", "Updating", "Adding"];
    log.lines()
        .filter(|line| !progress.iter().any(|verb| line.trim_start().starts_with(verb)))
        .collect::<Vec<_>>()
        .join("\n")
        .trim()
        .to_owned()
}

/// Removes all but the newest sets of results. What cannot be removed is left for the next time.
fn prune(root: &Path) {
    let Ok(folders) = fs::read_dir(root) else { return };
    let mut sets: Vec<_> = folders
        .flatten()
        .filter_map(|folder| {
            let path = folder.path();
            let used = fs::metadata(path.join("used")).and_then(|stamp| stamp.modified()).ok()?;
            Some((used, path))
        })
        .collect();
    sets.sort();
    for (_, path) in sets.iter().rev().skip(KEPT) {
        let _ = fs::remove_dir_all(path);
    }
}
