//! Programs that the tests start: the command-line tool, and the emulator.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The library of the package `emulator`. Under cargo, that of this workspace, built now so that it
/// is up to date; else the library beside the tests.
///
/// # Errors
/// If it cannot be built, or is not there.
pub fn emulator() -> Result<&'static Path, String> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let name =
        format!("{}apron_emulator{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let found = FOUND.get_or_init(|| find(&name, &["-p", "emulator"]));
    found.as_ref().map(PathBuf::as_path).map_err(String::clone)
}

/// Why there is no emulator, if there is neither cargo to build it nor its library beside the
/// tests.
pub fn no_emulator() -> Option<String> {
    if std::env::var_os("CARGO").is_some() { None } else { emulator().err() }
}

/// A file that cargo builds with these arguments, in the profile of the tests.
///
/// # Errors
/// If it cannot be built, or is not there.
pub fn find(name: &str, arguments: &[&str]) -> Result<PathBuf, String> {
    let tests = std::env::current_exe().map_err(|error| error.to_string())?;
    let folder = tests.parent().ok_or("the tests lie in no folder")?;
    if let (Some(cargo), Some(manifest)) =
        (std::env::var_os("CARGO"), std::env::var_os("CARGO_MANIFEST_DIR"))
    {
        build(&cargo, &manifest, folder, arguments)
            .map_err(|error| format!("building {name}: {error}"))?;
    }
    let places = [folder.join(name), folder.join("..").join(name)];
    let found = places.iter().find(|path| path.is_file());
    found.cloned().ok_or_else(|| format!("no {name} beside {}", tests.display()))
}

/// Builds into the folder above the tests'.
fn build(cargo: &OsStr, manifest: &OsStr, tests: &Path, arguments: &[&str]) -> Result<(), String> {
    let mut command = Command::new(cargo);
    command.current_dir(manifest).args(["build", "--quiet"]).args(arguments);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    if let Some(target) = tests.ancestors().nth(2) {
        command.arg("--target-dir").arg(target);
    }
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.to_string()),
        Err(error) => Err(error.to_string()),
    }
}
