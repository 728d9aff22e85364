//! `cargo xtask package`: the packages as crates.io gets them, with the kernels' PTX inside.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use kernel_builder::KernelBuilder;

use crate::{cargo, print, root};

/// The packages that others may depend on, each after those that it needs, and their folders.
pub(crate) const PACKAGES: [(&str, &str); 4] = [
    ("apron-kernel-builder", "kernel-builder"),
    ("gpu-kernels", "gpu-kernels"),
    ("apron", "host"),
    ("apron-cli", "cli"),
];

/// The folder of the package `apron` that holds its kernels; its build script takes them from
/// there.
const KERNELS: &str = "host/kernels";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The folder for the files `NAME-VERSION.crate`.
    #[arg(long, value_name = "FOLDER", default_value = "target/packages")]
    out: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    for file in pack(&root().join(&options.out))? {
        let bytes = fs::metadata(&file).with_context(|| file.display().to_string())?.len();
        print(&format!("{}: {} KiB\n", file.display(), bytes >> 10))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Packs all packages into a folder; returns their files in the order of [`PACKAGES`].
///
/// They are packed from a copy of their folders. In the workspace itself, compiled kernels beside
/// their source would hide later changes of the source.
pub(crate) fn pack(out: &Path) -> Result<Vec<PathBuf>> {
    let version = version()?;
    let stage = root().join("target/package-stage");
    if stage.exists() {
        fs::remove_dir_all(&stage).context("removing what an earlier run left")?;
    }
    for (_, folder) in PACKAGES {
        copy(&root().join(folder), &stage.join(folder))?;
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            copy(&root().join(licence), &stage.join(folder).join(licence))?;
        }
    }
    copy(&root().join("Cargo.lock"), &stage.join("Cargo.lock"))?;
    fs::write(stage.join("Cargo.toml"), manifest()?)?;
    let kernels = KernelBuilder::new(root().join("gpu-kernels"));
    kernel_builder::pack(&kernels, &stage.join(KERNELS))
        .map_err(|error| anyhow::anyhow!("{error}"))?;

    let target = stage.join("target");
    let mut command = cargo();
    // The copy lies in a folder that git ignores, hence `--allow-dirty`. `cargo xtask dependents`
    // builds the packages, hence `--no-verify`.
    command.current_dir(&stage).args([
        "package",
        "--workspace",
        "--quiet",
        "--allow-dirty",
        "--no-verify",
        "--offline",
    ]);
    let status = command.arg("--target-dir").arg(&target).status().context("starting cargo")?;
    ensure!(status.success(), "cargo package failed");

    fs::create_dir_all(out)?;
    let files = PACKAGES.map(|(name, _)| {
        let file = format!("{name}-{version}.crate");
        let to = out.join(&file);
        copy(&target.join("package").join(&file), &to).map(|()| to)
    });
    files.into_iter().collect()
}

/// Unpacks packages into a folder, each into a folder of its own; returns those folders.
pub(crate) fn unpack(files: &[PathBuf], to: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(to)?;
    let unpacked = files.iter().map(|file| {
        let status = Command::new("tar")
            .arg("-xzf")
            .arg(file)
            .arg("-C")
            .arg(to)
            .status()
            .context("starting tar")?;
        ensure!(status.success(), "tar cannot unpack {}", file.display());
        Ok(to.join(file.file_stem().unwrap_or_default()))
    });
    unpacked.collect()
}

/// The version of all packages.
pub(crate) fn version() -> Result<String> {
    field("version")
}

/// A text in the workspace's manifest.
fn field(name: &str) -> Result<String> {
    let manifest = fs::read_to_string(root().join("Cargo.toml"))?;
    let line = manifest.lines().find_map(|line| line.strip_prefix(&format!("{name} = \"")));
    let text = line.and_then(|line| line.strip_suffix('"'));
    Ok(text.with_context(|| format!("Cargo.toml has no {name}"))?.to_owned())
}

/// The workspace's manifest, with the packages alone as members.
fn manifest() -> Result<String> {
    let manifest = fs::read_to_string(root().join("Cargo.toml"))?;
    let members: Vec<_> = PACKAGES.iter().map(|(_, folder)| format!("{folder:?}")).collect();
    let mut found = false;
    let lines = manifest.lines().map(|line| {
        if line.starts_with("members = [") && line.ends_with(']') {
            found = true;
            format!("members = [{}]\n", members.join(", "))
        } else {
            format!("{line}\n")
        }
    });
    let manifest: String = lines.collect();
    if !found {
        bail!("Cargo.toml has no line of members");
    }
    Ok(manifest)
}

/// Copies a file, or a folder with all that is in it.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    } else {
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(from, to).with_context(|| from.display().to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Rust version that dependents need is the one that runs the tests.
    #[test]
    fn the_minimum_version_of_rust_is_the_one_in_use() {
        let toolchain = fs::read_to_string(root().join("rust-toolchain.toml")).unwrap();
        let promised = field("rust-version").unwrap();
        assert!(toolchain.contains(&format!("channel = \"{promised}.")), "{toolchain}");
    }

    #[test]
    fn the_copy_has_the_packages_as_members() {
        let manifest = manifest().unwrap();
        assert!(
            manifest.contains(r#"members = ["kernel-builder", "gpu-kernels", "host", "cli"]"#),
            "{manifest}"
        );
        assert!(manifest.contains("[workspace.dependencies]"));
    }
}
