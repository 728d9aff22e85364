//! Finds a rustc that can compile for NVPTX: one with the source of `core` of its own version.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Error, Result, output};

/// Ways to get a compiler; each one is enough.
pub const REMEDIES: [&str; 2] = [
    "with rustup: rustup component add rust-src (in this folder, for its toolchain)",
    "on Debian, as root: apt-get update && apt-get install rustc-web rust-web-src (in addition to the toolchain in use)",
];

/// Debian's compiler; its source is a separate package.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_PACKAGES: [&str; 2] = ["rustc-web", "rust-web-src"];

/// The oldest rustc whose NVPTX backend has what kernels need, as (major, minor): this crate's own
/// minimum.
fn minimum() -> (u32, u32) {
    parse_version(env!("CARGO_PKG_RUST_VERSION")).unwrap_or_default()
}

/// A compiler for kernels.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Compiler {
    /// The program.
    pub rustc: PathBuf,
    /// Name and version, such as `rustc 1.95.0`.
    pub version: String,
    /// The full output of `rustc -vV`.
    pub(crate) identity: String,
    core: PathBuf,
}

impl Compiler {
    /// `rustc`, if it can compile kernels; otherwise the reason why not.
    fn check(rustc: &Path) -> Result<Self, String> {
        let ask = |arguments: &[&str]| match Command::new(rustc).args(arguments).output() {
            Ok(result) if result.status.success() => {
                Ok(String::from_utf8_lossy(&result.stdout).into_owned())
            }
            Ok(result) => Err(format!("{}: {}", rustc.display(), first_line(&result.stderr))),
            Err(error) => Err(format!("{}: {error}", rustc.display())),
        };
        let sysroot = PathBuf::from(ask(&["--print", "sysroot"])?.trim());
        let identity = ask(&["-vV"])?;
        // A rustup proxy chooses its compiler by the folder it is started in, so call that compiler
        // itself.
        let direct = sysroot.join("bin").join("rustc");
        let rustc = if direct.is_file() { direct } else { rustc.to_owned() };
        let version = identity
            .lines()
            .find_map(|line| line.strip_prefix("release: "))
            .ok_or_else(|| format!("{} does not report its version", rustc.display()))?
            .to_owned();

        if parse_version(&version).is_none_or(|found| found < minimum()) {
            let (major, minor) = minimum();
            return Err(format!(
                "{} is {version}, at least {major}.{minor} is needed",
                rustc.display()
            ));
        }
        let source = sysroot.join("lib/rustlib/src/rust");
        let core = source.join("library/core/src/lib.rs");
        if !core.is_file() {
            return Err(format!(
                "{} {version} has no library source in {}",
                rustc.display(),
                source.display()
            ));
        }
        // Debian's source is a separate package, which may have been upgraded alone; it states its
        // version.
        if let Ok(found) = std::fs::read_to_string(source.join("src/version"))
            && found.trim() != version
        {
            return Err(format!(
                "{} is {version} but its library source is {}",
                rustc.display(),
                found.trim()
            ));
        }
        Ok(Self { rustc, version: format!("rustc {version}"), identity, core })
    }

    /// A command that starts the compiler in `folder`, with all features that kernels and `core`
    /// use. The compiler keeps intermediate files in the folder where it starts, and two
    /// compilations use the same names.
    pub(crate) fn command(&self, folder: &Path) -> Command {
        let mut rustc = Command::new(&self.rustc);
        rustc.env("RUSTC_BOOTSTRAP", "1").current_dir(folder);
        rustc
    }

    /// The root of `core`'s source.
    pub(crate) fn core(&self) -> &Path {
        &self.core
    }
}

/// The compiler to use, if there is one: the active toolchain's, or Debian's.
///
/// # Errors
/// [`Error::NoCompiler`] with the reason why each cannot be used.
pub fn find() -> Result<Compiler> {
    let mut tried = Vec::new();
    for (name, rustc) in
        [("the active toolchain", active()), ("Debian's rustc-web", DEBIAN_RUSTC.into())]
    {
        match Compiler::check(&rustc) {
            Ok(compiler) => return Ok(compiler),
            Err(reason) => tried.push(format!("{name}: {reason}")),
        }
    }
    Err(Error::NoCompiler { tried })
}

/// As [`find`]; if there is none, installs one: rustup's component or, as root on Debian, two
/// packages.
///
/// # Errors
/// [`Error::NoCompiler`] with every attempt.
pub fn find_or_install() -> Result<Compiler> {
    let mut tried = match find() {
        Err(Error::NoCompiler { tried }) => tried,
        other => return other,
    };
    for install in [install_component, install_packages] {
        match install() {
            Ok(()) => match find() {
                Err(Error::NoCompiler { tried: again }) => {
                    tried.extend(again.into_iter().map(|why| format!("then {why}")))
                }
                other => return other,
            },
            Err(reason) => tried.push(reason),
        }
    }
    Err(Error::NoCompiler { tried })
}

/// The rustc in use: as cargo tells a build script, or from the `PATH`.
fn active() -> PathBuf {
    std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()).into()
}

fn install_component() -> Result<(), String> {
    const STEP: &str = "rustup component add rust-src";
    let sysroot = Command::new(active()).args(["--print", "sysroot"]).output();
    let sysroot = sysroot.map_err(|error| format!("{STEP}: {error}"))?;
    let sysroot = PathBuf::from(String::from_utf8_lossy(&sysroot.stdout).trim());
    if !sysroot.parent().is_some_and(|parent| parent.ends_with("toolchains")) {
        return Err(format!("{STEP}: the active toolchain is not rustup's"));
    }
    step(STEP, Command::new("rustup").args(["component", "add", "rust-src"]))
}

fn install_packages() -> Result<(), String> {
    let step_name = format!("apt-get install {}", DEBIAN_PACKAGES.join(" "));
    if !Path::new("/etc/debian_version").is_file() {
        return Err(format!("{step_name}: this is not Debian"));
    }
    let user = output(Command::new("id").arg("-u")).map_err(|error| error.to_string())?;
    if user.stdout.trim_ascii() != b"0" {
        return Err(format!("{step_name}: this needs root"));
    }
    let apt = || {
        let mut apt = Command::new("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive").args([
            "-q",
            "-y",
            "-o",
            "DPkg::Lock::Timeout=300",
        ]);
        apt
    };
    // If some lists cannot be refreshed, the others may still name the packages.
    let refreshed = step("apt-get update", apt().arg("update"));
    let installed =
        step(&step_name, apt().args(["install", "--no-install-recommends"]).args(DEBIAN_PACKAGES));
    installed.map_err(|reason| match refreshed {
        Ok(()) => reason,
        Err(before) => format!("{before}; {reason}"),
    })
}

/// Runs one command of an installation, and reports it on stderr, because it changes the machine.
fn step(name: &str, command: &mut Command) -> Result<(), String> {
    eprintln!("kernel-builder: no compiler for kernels yet, trying: {name}");
    match command.output() {
        Ok(result) if result.status.success() => Ok(()),
        Ok(result) => Err(format!("{name}: {}", first_line(&result.stderr))),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

fn first_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    // The line with the error, or else the first line.
    let error = lines.clone().find(|line| line.starts_with("error") || line.starts_with("E:"));
    error.or_else(|| lines.next()).unwrap_or("it failed without a message").trim().to_owned()
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split(['.', '-', ' ']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert_eq!(parse_version("1.95"), Some((1, 95)));
        assert_eq!(parse_version("1.100.0-nightly"), Some((1, 100)));
        assert!(parse_version("1.100.0") > parse_version("1.95.0"));
        assert_eq!(parse_version("unknown"), None);
        assert_ne!(minimum(), (0, 0));
    }

    #[test]
    fn a_program_that_is_no_compiler_says_why() {
        let reason = Compiler::check(Path::new("/nonexistent/rustc")).unwrap_err();
        assert!(reason.contains("No such file"), "{reason}");
        assert!(Compiler::check(Path::new("false")).is_err());
    }
}
