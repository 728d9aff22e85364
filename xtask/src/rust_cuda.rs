//! Compiles the kernels with rust-cuda: the workspace `rust-cuda/`, which has its own toolchain.

use std::env;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail, ensure};
use kernel_builder::Module;

use crate::root;

/// Compiles a package of kernels for an architecture, as `sm_90`.
pub(crate) fn compile(package: &str, arch: &str) -> Result<Module> {
    let cuda = prerequisites()?;
    let folder = root().join("rust-cuda");
    let pins = Pins::read(&folder)?;
    // The other toolchain must not get this program's cargo and settings.
    let mut cargo = Command::new("cargo");
    for variable in
        ["RUSTUP_TOOLCHAIN", "RUSTC", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_TARGET_DIR"]
    {
        cargo.env_remove(variable);
    }
    let mut libraries = OsString::from(cuda.join("nvvm/lib64"));
    if let Some(others) = env::var_os("LD_LIBRARY_PATH") {
        libraries.push(":");
        libraries.push(others);
    }
    let result = cargo
        .args(["run", "--release", "--locked", "--", package])
        .current_dir(&folder)
        .env("APRON_ARCH", arch)
        .env("LD_LIBRARY_PATH", libraries)
        .stderr(Stdio::inherit())
        .output()
        .context("starting cargo")?;
    ensure!(
        result.status.success(),
        "rust-cuda does not compile the kernels for {arch}; its messages are above"
    );
    let ptx = String::from_utf8_lossy(&result.stdout);
    let fault = |reason| anyhow!("rust-cuda's PTX for {arch} cannot be used: {reason}");
    let backend = Module::read(&ptx).map_err(fault)?.compiler;
    Module::of(&format!("rust-cuda {:.7}, {backend}", pins.revision), &ptx).map_err(fault)
}

/// The versions that `rust-cuda/` is pinned to.
#[derive(Debug, PartialEq)]
struct Pins {
    channel: String,
    revision: String,
}

impl Pins {
    fn read(folder: &Path) -> Result<Self> {
        let value = |file: &str, key: &str| {
            let path = folder.join(file);
            let text =
                std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let value = text.split_once(key).and_then(|(_, rest)| rest.split('"').nth(1));
            value.map(str::to_owned).with_context(|| format!("{} has no {key}", path.display()))
        };
        Ok(Self {
            channel: value("rust-toolchain.toml", "channel")?,
            revision: value("Cargo.toml", "rev =")?,
        })
    }
}

/// Looks for everything that rust-cuda's compiler needs; returns the CUDA toolkit's folder.
pub(crate) fn prerequisites() -> Result<PathBuf> {
    let mut missing = Vec::new();
    let Pins { channel, .. } = &Pins::read(&root().join("rust-cuda"))?;
    match ask("rustup", &["component", "list", "--installed", "--toolchain", channel]) {
        Ok(list) => {
            let absent: Vec<_> = ["rust-src", "rustc-dev", "llvm-tools"]
                .into_iter()
                .filter(|&component| !list.lines().any(|line| line.starts_with(component)))
                .collect();
            if !absent.is_empty() {
                let names = absent.join(" ");
                missing.push((
                    format!("components of {channel}: {names}"),
                    format!("rustup component add --toolchain {channel} {names}"),
                ));
            }
        }
        Err(_) => missing.push((
            format!("the toolchain {channel}, which rust-cuda's compiler is made for"),
            format!(
                "rustup toolchain install {channel} -c rust-src -c rustc-dev -c llvm-tools-preview"
            ),
        )),
    }
    let config = env::var("LLVM_CONFIG").unwrap_or_else(|_| "llvm-config".into());
    if !ask(&config, &["--version"]).is_ok_and(|version| version.starts_with("7.")) {
        missing.push((
            format!("LLVM 7, which {config} is not"),
            "build LLVM 7.1 for X86 and NVPTX, and set LLVM_CONFIG to its bin/llvm-config".into(),
        ));
    }
    let named =
        ["CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR"].into_iter().filter_map(env::var_os);
    let usual = ["/usr/lib/cuda", "/usr/local/cuda", "/opt/cuda"].into_iter().map(OsString::from);
    let cuda = named
        .chain(usual)
        .map(PathBuf::from)
        .find(|folder| folder.join("include/cuda.h").is_file());
    match cuda {
        Some(cuda) if missing.is_empty() => return Ok(cuda),
        Some(_) => {}
        None => missing.push((
            "the CUDA toolkit, 12.0 or newer, with libNVVM".into(),
            "install it, and set CUDA_PATH to it unless it is /usr/local/cuda".into(),
        )),
    }
    let mut text = String::from("rust-cuda's compiler is not complete here. Missing:\n");
    for (what, remedy) in &missing {
        writeln!(text, "  - {what}\n    -> {remedy}")?;
    }
    bail!(
        "{text}Or take the container that has it all: see rust-cuda/README.md. `--compiler rustc` needs none of it."
    )
}

/// The output of a program, if it succeeds.
fn ask(program: &str, arguments: &[&str]) -> Result<String> {
    let result = Command::new(program).args(arguments).stderr(Stdio::null()).output()?;
    ensure!(result.status.success(), "{program} fails");
    Ok(String::from_utf8_lossy(&result.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_pinned_to_one_revision_in_all_places() {
        let folder = root().join("rust-cuda");
        let pins = Pins::read(&folder).unwrap();
        assert!(pins.channel.starts_with("nightly-20"), "{}", pins.channel);
        assert!(
            pins.revision.len() == 40 && pins.revision.chars().all(|c| c.is_ascii_hexdigit()),
            "{}",
            pins.revision
        );
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        assert_eq!(manifest.matches("rev = ").count(), manifest.matches(&pins.revision).count());
        let lock = std::fs::read_to_string(folder.join("Cargo.lock")).unwrap();
        let git: Vec<_> = lock.lines().filter(|line| line.starts_with("source = \"git+")).collect();
        assert!(
            !git.is_empty() && git.iter().all(|line| line.matches(&pins.revision).count() == 2),
            "{git:?}"
        );
        let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
        assert!(readme.contains(&pins.channel) && readme.contains(&pins.revision[..7]));
        // The first glam that cuda_std does not compile with is 0.31.
        assert!(lock.contains("name = \"glam\"\nversion = \"0.30."));
    }

    #[test]
    fn the_main_workspace_needs_no_git() {
        let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
        assert!(!lock.contains("git+"));
    }

    #[test]
    fn the_manifests_are_well_formed() {
        // `--no-deps`, because the dependencies are in a git repository.
        let result = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
            .current_dir(root().join("rust-cuda"))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&result.stdout);
        assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr));
        for part in ["\"apron-rust-cuda\"", "gpu-kernels/src/lib.rs", "studies/kernels/src/lib.rs"]
        {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}
