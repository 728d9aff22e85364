//! Compiles a crate of GPU kernels written in Rust to PTX, from a build script or a task runner.
//!
//! ```no_run
//! # fn main() -> Result<(), kernel_builder::Error> {
//! let builder = kernel_builder::KernelBuilder::new("../gpu-kernels").arch("sm_90");
//! let report = builder.copy_to("kernels.ptx").build()?;
//! for entry in &report.entries {
//!     println!("{}: {}", entry.name, entry.path.display());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The compiler is rustc's own NVPTX backend. It needs the source of `core` of exactly its own
//! version; [`compiler`] looks for both and installs them where it can. The builder calls rustc
//! directly, because a nested cargo with `-Zbuild-std` first fetches the dependencies of all of
//! `std` from the network. `core` is compiled once for each compiler, to bitcode. The crate is
//! compiled for each architecture and linked with `core` by the optimiser, so the result holds only
//! the used parts of `core`. The result is one PTX module. It is then split into one module for
//! each entry, because a driver compiles all that it loads.
//!
//! A directive for the assembler, such as a limit on the number of threads, is a comment of inline
//! assembly in the entry's source: `asm!("//@ .maxntid 512, 1, 1")`. The builder moves it to the
//! entry's head.
//!
//! A crate of kernels is a `no_std` library of edition 2024 with its source under `src`. It has no
//! build script. Its only possible dependency is `device`: see [`KernelBuilder::device`]. It
//! includes source that it shares with other crates by `#[path]`, and [`KernelBuilder::with`] names
//! the folder of that source.
//!
//! Results are kept under `<target folder>/kernels`, in a folder named after a hash of all their
//! inputs: source, flags and compiler. So debug and release builds share them, and so do tools that
//! run outside cargo.
#![deny(missing_docs)]

pub mod compiler;
mod directives;
mod embed;
pub mod module;
pub mod ptxas;
mod split;

use std::collections::hash_map::DefaultHasher;
use std::ffi::OsString;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use compiler::Compiler;
pub use embed::{Group, Kernel, Packed, Tier, embed, gpus, pack};
pub use module::Module;

/// The result of every fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why no PTX was built.
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
    /// The compiler rejected its input.
    #[error("{what} does not compile with {compiler}:\n{log}")]
    Compile {
        /// The input.
        what: String,
        /// The compiler's version.
        compiler: String,
        /// What the compiler printed.
        log: String,
    },
    /// The compiler's output is not usable.
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
    command.output().map_err(|source| Error::Start {
        program: command.get_program().to_string_lossy().into_owned(),
        source,
    })
}

/// Flags of every compilation.
const FLAGS: &[&str] = &[
    "--edition=2024",
    "--target=nvptx64-nvidia-cuda",
    "-Cpanic=abort",
    "-Ccodegen-units=1",
    // Allows `--extern=noprelude:core`, by which every crate gets `core`, on a stable compiler too.
    "-Zunstable-options",
];

/// Flags for `core`: only its bitcode is needed, and its warnings do not concern the kernels.
const CORE_FLAGS: &[&str] = &[
    "--crate-type=rlib",
    "--emit=link",
    "-Copt-level=3",
    "-Clinker-plugin-lto",
    "--cap-lints=allow",
];

/// Flags for the kernels.
///
/// PTX needs no linker, so `true` is the linker. The threshold lets loops over taps unroll whenever
/// their count is known.
const KERNEL_FLAGS: &[&str] =
    &["--crate-type=cdylib", "-Clto=fat", "-Clinker=true", "-Cllvm-args=-unroll-threshold=100000"];

const RELEASE_FLAGS: &[&str] = &["-Copt-level=3"];

const DEBUG_FLAGS: &[&str] = &["-Copt-level=1", "-Cdebug-assertions=yes", "-Coverflow-checks=yes"];

/// rustc links `compiler_builtins` to everything. On this target the backend expands its operations
/// itself, so an empty crate is enough.
const COMPILER_BUILTINS: &str =
    "#![feature(compiler_builtins)]\n#![compiler_builtins]\n#![no_std]\n";

/// The compute capabilities, as 10 * major + minor, that apron's kernels are compiled for. A device
/// runs the kernels of the highest one that is not above its own.
pub const TIERS: [u32; 2] = [75, 90];

/// The compute capabilities that apron's kernels are also assembled for, if ptxas is installed.
/// Machine code also runs on later devices of the same major number. So these two serve A100,
/// GeForce 30 and 40, L4 and L40; H100 and H200. These devices compile nothing at run time.
pub const MACHINES: [u32; 2] = [80, 90];

/// Sets of results to keep: enough for a few branches and two crates.
const KEPT: usize = 16;

/// One set of kernels to compile; see the [crate's documentation](crate).
#[derive(Clone, Debug)]
#[must_use]
pub struct KernelBuilder {
    krate: PathBuf,
    with: Vec<PathBuf>,
    packed: Option<PathBuf>,
    device: bool,
    arch: String,
    release: bool,
    ptx_isa: Option<u32>,
    copy_to: Option<PathBuf>,
    target_dir: Option<PathBuf>,
    machines: Vec<String>,
}

impl KernelBuilder {
    /// Compiles the library of the crate in folder `krate`, optimised, for sm_75.
    pub fn new(krate: impl Into<PathBuf>) -> Self {
        Self {
            krate: krate.into(),
            with: Vec::new(),
            packed: None,
            device: false,
            arch: "sm_75".into(),
            release: true,
            ptx_isa: None,
            copy_to: None,
            target_dir: None,
            machines: Vec::new(),
        }
    }

    /// A further folder of source, from which the crate includes files by `#[path]`. A change there
    /// counts as a change of the crate.
    pub fn with(mut self, folder: impl Into<PathBuf>) -> Self {
        self.with.push(folder.into());
        self
    }

    /// A folder written by [`pack`]. If it exists, [`embed`] uses it and compiles nothing. It
    /// belongs in a published package, but not in the repository, where it would hide changes of
    /// the source.
    pub fn packed(mut self, folder: impl Into<PathBuf>) -> Self {
        self.packed = Some(folder.into());
        self
    }

    /// Gives the kernels the crate `device`: indices, barriers, shared memory, loads and stores,
    /// and the macro `kernel!` that declares them. Its source, which documents it, is
    /// `src/device.rs` of this package.
    pub fn device(mut self) -> Self {
        self.device = true;
        self
    }

    /// The folders of source files.
    fn sources(&self) -> impl Iterator<Item = PathBuf> {
        [self.krate.join("src")].into_iter().chain(self.with.iter().cloned())
    }

    /// The architecture to compile for, such as `sm_90`. A device runs code for its own
    /// architecture or an older one.
    pub fn arch(mut self, arch: impl Into<String>) -> Self {
        self.arch = arch.into();
        self
    }

    /// Whether to optimise fully (the default). Otherwise the kernels also check for overflow and
    /// debug assertions, and trap if a check fails.
    pub fn release(mut self, release: bool) -> Self {
        self.release = release;
        self
    }

    /// The version of the PTX language, such as 83 for 8.3, if the compiler's default for the
    /// architecture is too old. The driver must support it: 8.3 came with CUDA 12.3.
    pub fn ptx_isa(mut self, version: u32) -> Self {
        self.ptx_isa = Some(version);
        self
    }

    /// Also copies the module with all entries to this file.
    pub fn copy_to(mut self, path: impl Into<PathBuf>) -> Self {
        self.copy_to = Some(path.into());
        self
    }

    /// Also assembles each entry for this architecture, if ptxas is installed. The architecture
    /// must be able to run code for [`KernelBuilder::arch`].
    pub fn assemble(mut self, machine: impl Into<String>) -> Self {
        self.machines.push(machine.into());
        self
    }

    /// The target folder for results. The default is the one that contains this build script or
    /// this program.
    pub fn target_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.target_dir = Some(path.into());
        self
    }

    /// Compiles, unless the result exists already.
    ///
    /// # Errors
    /// If there is no compiler, if the kernels do not compile, or if a file cannot be written.
    pub fn build(&self) -> Result<Report> {
        let krate = self.krate.canonicalize().map_err(at(&self.krate))?;
        let root =
            self.target_dir.clone().or_else(target_dir).ok_or(Error::NoTargetDir)?.join("kernels");
        fs::create_dir_all(&root).map_err(at(&root))?;
        let root = root.canonicalize().map_err(at(&root))?;

        let (compiler, core) = {
            let _lock = lock(&root.join("core.lock"))?;
            let compiler = compiler::find_or_install()?;
            let core = build_core(&compiler, &root)?;
            (compiler, core)
        };

        let mut inputs = Vec::new();
        let mut hasher = hasher(&compiler);
        for folder in self.sources() {
            add(&folder.canonicalize().map_err(at(&folder))?, &mut inputs, &mut hasher)?;
        }
        if self.device {
            DEVICE_SOURCE.hash(&mut hasher);
        }
        let set = root.join(format!("{:016x}", hasher.finish()));
        fs::create_dir_all(&set).map_err(at(&set))?;
        let used = set.join("used");
        fs::write(&used, "").map_err(at(&used))?;
        prune(&root);

        let folder = set.join(self.name());
        let _lock = lock(&root.join(format!("{}.lock", self.name())))?;
        if !folder.is_dir() {
            self.compile(&krate, &compiler, &core, &root, &folder)?;
        }
        let module = folder.join(MODULE);
        if let Some(path) = &self.copy_to {
            fs::copy(&module, path).map_err(at(path))?;
        }
        let entries = entries(&folder.join(ENTRIES))?;
        let mut machine_code = Vec::new();
        for machine in &self.machines {
            if let Some(files) = assemble(&entries, machine, &folder.join(machine))? {
                machine_code.push((machine.clone(), files));
            }
        }
        let warnings = folder.join(WARNINGS);
        Ok(Report {
            arch: self.arch.clone(),
            compiler: compiler.version,
            entries,
            warnings: fs::read_to_string(&warnings).map_err(at(&warnings))?,
            module,
            machine_code,
            inputs,
        })
    }

    /// The name of this result among results of the same sources.
    fn name(&self) -> String {
        let mut name = self.arch.clone();
        if let Some(version) = self.ptx_isa {
            name.push_str(&format!("-ptx{version}"));
        }
        if !self.release {
            name.push_str("-debug");
        }
        if self.device {
            name.push_str("-device");
        }
        name
    }

    /// Compiles into `folder`, which appears only when complete.
    fn compile(
        &self,
        krate: &Path,
        compiler: &Compiler,
        core: &Path,
        root: &Path,
        folder: &Path,
    ) -> Result<()> {
        let unfinished = fresh_folder(&root.join(format!("{}.unfinished", self.name())))?;
        let module = unfinished.join(MODULE);
        let name = krate
            .file_name()
            .map(|name| name.to_string_lossy().replace('-', "_"))
            .unwrap_or_default();

        let mut rustc = compiler.command(&unfinished);
        rustc.args(FLAGS).args(KERNEL_FLAGS).args(if self.release {
            RELEASE_FLAGS
        } else {
            DEBUG_FLAGS
        });
        rustc.arg(format!("-Ctarget-cpu={}", self.arch));
        if let Some(version) = self.ptx_isa {
            rustc.arg(format!("-Ctarget-feature=+ptx{version}"));
        }
        rustc.args(libraries(core));
        if self.device {
            let device = self.compile_device(compiler, core, &unfinished)?;
            // `device` depends on the libraries there.
            rustc.arg(joined("-Ldependency=", core)).arg(joined("--extern=device=", &device));
        }
        rustc.arg("--crate-name").arg(name).arg(krate.join("src/lib.rs"));
        // Intermediate files are named after the crate, so parallel builds for two architectures
        // must not share a folder.
        rustc.arg("--out-dir").arg(&unfinished);
        // Only a compilation with a link step takes in the parts of `core` that it uses.
        rustc
            .arg(joined("--emit=link=", &unfinished.join("unused")))
            .arg(joined("--emit=asm=", &module));
        let warnings =
            run(&mut rustc, compiler, || format!("{} for {}", krate.display(), self.arch))?;

        // Kernels may pack bytes by one instruction, which PTX has from 6.5 on (CUDA 10.2). For
        // sm_75 the compiler states 6.3, unless an unstable flag is given, which causes a warning.
        let text = fs::read_to_string(&module).map_err(at(&module))?.replacen(
            ".version 6.3\n",
            ".version 6.5\n",
            1,
        );
        let ptx = Module::of(&compiler.version, &text)
            .map_err(|reason| Error::Ptx { arch: self.arch.clone(), reason })?;
        fs::write(&module, &ptx.text).map_err(at(&module))?;
        let entries = fresh_folder(&unfinished.join(ENTRIES))?;
        for (name, text) in ptx.entries {
            let path = entries.join(format!("{name}.ptx"));
            fs::write(&path, text).map_err(at(&path))?;
        }
        let path = unfinished.join(WARNINGS);
        fs::write(&path, warnings).map_err(at(&path))?;
        fs::rename(&unfinished, folder).map_err(at(folder))
    }

    /// Compiles the crate `device` for the architecture, because its code depends on the
    /// architecture.
    fn compile_device(&self, compiler: &Compiler, core: &Path, folder: &Path) -> Result<PathBuf> {
        let (source, library) = (folder.join("device.rs"), folder.join("libdevice.rlib"));
        fs::write(&source, DEVICE_SOURCE).map_err(at(&source))?;
        let mut rustc = compiler.command(folder);
        rustc.args(FLAGS).args(CORE_FLAGS).args(libraries(core)).arg("--crate-name=device");
        rustc.arg(format!("-Ctarget-cpu={}", self.arch)).arg(&source).arg("-o").arg(&library);
        run(&mut rustc, compiler, || format!("device for {}", self.arch))?;
        Ok(library)
    }
}

const MODULE: &str = "module.ptx";
const ENTRIES: &str = "entries";
const WARNINGS: &str = "warnings.txt";

/// The results of a build.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The architecture, such as `sm_90`.
    pub arch: String,
    /// The compiler, such as `rustc 1.95.0`.
    pub compiler: String,
    /// The PTX module of all entries.
    pub module: PathBuf,
    /// The entries by name, each with a module of its own.
    pub entries: Vec<Entry>,
    /// For each assembled architecture, a file of machine code for each entry.
    pub machine_code: Vec<(String, Vec<PathBuf>)>,
    /// The compiler's warnings; empty if there are none.
    pub warnings: String,
    /// The files that the result depends on, for `cargo:rerun-if-changed`.
    pub inputs: Vec<PathBuf>,
}

/// A kernel that the host can launch.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// The entry's name in PTX.
    pub name: String,
    /// A PTX module with this entry and no other.
    pub path: PathBuf,
}

/// Assembles each entry into a file of `folder`, unless the file exists already. `None` if no ptxas
/// is found, or if it does not support the architecture.
fn assemble(entries: &[Entry], machine: &str, folder: &Path) -> Result<Option<Vec<PathBuf>>> {
    fs::create_dir_all(folder).map_err(at(folder))?;
    let files: Vec<_> =
        entries.iter().map(|entry| folder.join(format!("{}.cubin", entry.name))).collect();
    let missing: Vec<_> = entries.iter().zip(&files).filter(|(_, file)| !file.is_file()).collect();
    if missing.is_empty() {
        return Ok(Some(files));
    }
    let Some(program) = ptxas::find() else { return Ok(None) };
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((entry, file)) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
            if !ptxas::assemble(&program, &entry.path, machine, file)? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(missing.len());
    let complete = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let results = workers.into_iter().map(|worker| worker.join().expect("no worker panics"));
        results.collect::<Result<Vec<_>>>()
    })?;
    Ok(complete.iter().all(|&all| all).then_some(files))
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

/// The target folder that contains a build script's output, or else this program.
pub fn target_dir() -> Option<PathBuf> {
    let inside =
        std::env::var_os("OUT_DIR").map(PathBuf::from).or_else(|| std::env::current_exe().ok())?;
    inside.ancestors().find(|folder| is_target_dir(folder)).map(Path::to_owned)
}

/// Whether cargo keeps results in this folder. It tags folders that it created, and keeps a file of
/// its own in all of them.
fn is_target_dir(folder: &Path) -> bool {
    ["CACHEDIR.TAG", ".rustc_info.json"].iter().any(|name| folder.join(name).is_file())
}

/// A folder with `core` as bitcode, compiled now unless it exists already.
fn build_core(compiler: &Compiler, root: &Path) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    (include_str!("lib.rs"), &compiler.identity).hash(&mut hasher);
    let folder = root.join(format!("core-{:016x}", hasher.finish()));
    if folder.is_dir() {
        return Ok(folder);
    }
    for old in fs::read_dir(root).map_err(at(root))?.flatten() {
        if old.file_name().to_string_lossy().starts_with("core-") {
            let _ = fs::remove_dir_all(old.path());
        }
    }
    let unfinished = fresh_folder(&root.join("core.unfinished"))?;

    let mut rustc = compiler.command(&unfinished);
    rustc.args(FLAGS).args(CORE_FLAGS).arg("-Zforce-unstable-if-unmarked").arg("--crate-name=core");
    rustc.arg(compiler.core()).arg("-o").arg(unfinished.join(CORE));
    run(&mut rustc, compiler, || "core".to_owned())?;

    let source = unfinished.join("compiler_builtins.rs");
    fs::write(&source, COMPILER_BUILTINS).map_err(at(&source))?;
    let mut rustc = compiler.command(&unfinished);
    rustc.args(FLAGS).args(CORE_FLAGS).arg("--crate-name=compiler_builtins");
    rustc.arg(joined("--extern=noprelude:core=", &unfinished.join(CORE)));
    rustc.arg(&source).arg("-o").arg(unfinished.join(BUILTINS));
    run(&mut rustc, compiler, || "compiler_builtins".to_owned())?;

    fs::rename(&unfinished, &folder).map_err(at(&folder))?;
    Ok(folder)
}

const CORE: &str = "libcore.rlib";
const BUILTINS: &str = "libcompiler_builtins.rlib";
const DEVICE_SOURCE: &str = include_str!("device.rs");

/// Flags that make a crate use the libraries in the folder that [`build_core`] returned.
fn libraries(core: &Path) -> [OsString; 2] {
    [
        joined("--extern=noprelude:core=", &core.join(CORE)),
        joined("--extern=noprelude:compiler_builtins=", &core.join(BUILTINS)),
    ]
}

/// Runs a compiler; returns its warnings.
fn run(rustc: &mut Command, compiler: &Compiler, what: impl Fn() -> String) -> Result<String> {
    let result = output(rustc)?;
    let log = String::from_utf8_lossy(&result.stderr).trim().to_owned();
    if result.status.success() {
        Ok(log)
    } else {
        Err(Error::Compile { what: what(), compiler: compiler.version.clone(), log })
    }
}

/// Keeps other processes and threads out until the file is closed.
fn lock(path: &Path) -> Result<fs::File> {
    let file = fs::File::create(path).map_err(at(path))?;
    file.lock().map_err(at(path))?;
    Ok(file)
}

/// Creates an empty folder; removes the leftovers of an interrupted build.
fn fresh_folder(path: &Path) -> Result<PathBuf> {
    if path.exists() {
        fs::remove_dir_all(path).map_err(at(path))?;
    }
    fs::create_dir_all(path).map_err(at(path))?;
    Ok(path.to_owned())
}

fn joined(option: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(option);
    argument.push(path);
    argument
}

/// A hasher for all inputs that are not part of a result's name. It already holds the compiler and
/// this program's source.
fn hasher(compiler: &Compiler) -> DefaultHasher {
    let mut hasher = DefaultHasher::new();
    (include_str!("lib.rs"), include_str!("module.rs"), &compiler.identity).hash(&mut hasher);
    (include_str!("directives.rs"), include_str!("split.rs")).hash(&mut hasher);
    hasher
}

/// Adds the source files of a folder to the inputs, and to their hash.
fn add(source: &Path, inputs: &mut Vec<PathBuf>, hasher: &mut DefaultHasher) -> Result<()> {
    let mut files = Vec::new();
    let mut folders = vec![source.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(at(&folder))? {
            let entry = entry.map_err(at(&folder))?;
            let path = entry.path();
            // Editors keep hidden files next to source files.
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files.sort();
    for path in &files {
        path.strip_prefix(source).unwrap_or(path).hash(hasher);
        fs::read(path).map_err(at(path))?.hash(hasher);
    }
    inputs.append(&mut files);
    Ok(())
}

/// Removes all but the newest sets of results. A set that cannot be removed stays until the next
/// call.
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
