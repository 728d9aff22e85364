//! `cargo xtask dist`: makes the files of a release.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::package::{PACKAGES, copy, pack, unpack, version};
use crate::platforms::{PLATFORMS, Platform};
use crate::{cargo, print, root};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The folder for all files.
    #[arg(long, value_name = "FOLDER", default_value = "target/dist")]
    out: PathBuf,
    /// Leave out the Python wheel, which needs maturin.
    #[arg(long)]
    no_wheel: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let out = root().join(&options.out);
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| out.display().to_string())?;
    }
    let mut platforms = vec![None];
    for platform in &PLATFORMS {
        match platform.missing()?.as_slice() {
            [] => platforms.push(Some(platform)),
            missing => print(&format!("{}: SKIP: {}\n", platform.release, missing.join("; ")))?,
        }
    }
    let mut files = pack(&out)?;
    let stage = root().join("target/dist-stage");
    let _ = fs::remove_dir_all(&stage);
    let packages = unpack(&files, &stage)?;
    for &platform in &platforms {
        files.push(tool(platform, &packages, &out)?);
    }
    files.push(bill(&out)?);
    if !options.no_wheel && root().join("python").is_dir() {
        files.extend(wheels(&platforms, &out)?);
    }
    checksums(&files, &out)?;
    for file in files.iter().chain([&out.join(SUMS)]) {
        print(&format!("{}\n", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The archive with the tool and its licences, for a platform or for this machine's: Linux on
/// x86-64. On Linux it runs with the C library that it was linked with, and with newer ones. The
/// tool is built from the packages, which have PTX and no machine code of NVIDIA's assembler.
///
/// Where `cargo zigbuild` is installed, the tool runs with glibc 2.28 and newer. (It cannot be
/// linked to musl as a whole: such a program cannot load the driver.)
fn tool(platform: Option<&Platform>, packages: &[PathBuf], out: &Path) -> Result<PathBuf> {
    let (tool, library) = packages.split_last().context("no packages")?;
    let target = platform.map_or("x86_64-unknown-linux-gnu", |platform| platform.target);
    let is_linux = target.contains("linux");
    let zig = is_linux
        && cargo()
            .args(["zigbuild", "--version"])
            .output()
            .is_ok_and(|result| result.status.success());
    let mut build = cargo();
    build
        .current_dir(tool)
        .env_remove("CUDA_LIBRARY_PATH")
        .env("CARGO_TARGET_DIR", root().join("target/dist-build"));
    if let Some(platform) = platform.filter(|_| !zig) {
        platform.link(&mut build);
    }
    for (package, (name, _)) in library.iter().zip(PACKAGES) {
        build
            .arg("--config")
            .arg(format!("patch.crates-io.{name}.path={:?}", package.display().to_string()));
    }
    // These settings make the tool a tenth smaller, and the build minutes longer.
    build.args([
        "--config",
        "profile.release.lto=\"fat\"",
        "--config",
        "profile.release.codegen-units=1",
    ]);
    build.args(["--config", "profile.release.strip=true"]);
    build.args([if zig { "zigbuild" } else { "build" }, "--release", "--quiet"]);
    build.arg("--target").arg(if zig { format!("{target}.2.28") } else { target.to_owned() });
    ensure!(build.status().context("starting cargo")?.success(), "the tool cannot be built");
    let program = root().join("target/dist-build").join(target).join("release/apron");
    let program = program.with_extension(platform.map_or("", Platform::extension));

    let release = platform.map_or("x86_64-linux", |platform| platform.release);
    let mut name = format!("apron-{}-{release}", version()?);
    if is_linux {
        let objdump = platform.map_or_else(|| "objdump".into(), Platform::objdump);
        name += &format!("-glibc{}", needed_glibc(&objdump, &program)?);
    }
    archive(&program, &name, out)
}

/// Packs a tool with its licences into `NAME.tar.gz`, in a folder of that name.
pub(crate) fn archive(program: &Path, name: &str, out: &Path) -> Result<PathBuf> {
    let stage = root().join("target/dist-stage");
    let folder = stage.join(name);
    copy(program, &folder.join(program.file_name().unwrap_or_default()))?;
    copy(&root().join("cli/README.md"), &folder.join("README.md"))?;
    for file in ["CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        copy(&root().join(file), &folder.join(file))?;
    }
    let archive = out.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--mtime=2000-01-01", "-czf"]);
    tar.arg(&archive).arg("-C").arg(&stage).arg(name);
    ensure!(tar.status().context("starting tar")?.success(), "tar cannot pack the tool");
    Ok(archive)
}

/// The version of glibc that a program needs: the greatest that its symbols name.
fn needed_glibc(objdump: &str, program: &Path) -> Result<String> {
    let result =
        Command::new(objdump).arg("-T").arg(program).output().context("starting objdump")?;
    ensure!(result.status.success(), "{objdump} cannot read {}", program.display());
    greatest_glibc(&String::from_utf8_lossy(&result.stdout))
        .context("the tool names no version of glibc")
}

fn greatest_glibc(symbols: &str) -> Option<String> {
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let version: String =
            rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        let mut numbers = version.split('.').map(|number| number.parse::<u32>());
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    versions.max().map(|(major, minor)| format!("{major}.{minor}"))
}

/// The wheels of the folder `python`.
fn wheels(platforms: &[Option<&Platform>], out: &Path) -> Result<Vec<PathBuf>> {
    for platform in platforms {
        let mut maturin = Command::new("python3");
        maturin
            .args(["-m", "maturin", "build", "--release", "--out"])
            .arg(out)
            .env("APRON_GPUS", "all")
            .current_dir(root().join("python"));
        if let Some(platform) = platform {
            platform.link(&mut maturin);
            maturin.args(["--target", platform.target]);
        }
        let status = maturin.status().context("starting python3")?;
        ensure!(
            status.success(),
            "maturin failed; without it: --no-wheel, with it: pip install maturin"
        );
    }
    let files = fs::read_dir(out)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    Ok(files
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .collect())
}

/// A bill of materials, CycloneDX 1.5: the crates that the tool is made of.
fn bill(out: &Path) -> Result<PathBuf> {
    let mut tree = cargo();
    tree.args([
        "tree",
        "--locked",
        "--package",
        "apron-cli",
        "--edges",
        "normal",
        "--prefix",
        "none",
    ]);
    tree.args(["--target", "x86_64-unknown-linux-gnu", "--format", "{p}|{l}"]);
    let result = tree.output().context("starting cargo")?;
    ensure!(result.status.success(), "cargo tree: {}", String::from_utf8_lossy(&result.stderr));
    let components = components(&String::from_utf8_lossy(&result.stdout));
    ensure!(components.len() > 10, "the tool is made of {} crates", components.len());
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": { "type": "application", "name": "apron", "version": version()? } },
        "components": components,
    });
    let path = out.join("apron.cdx.json");
    fs::write(&path, serde_json::to_string_pretty(&bill)? + "\n")?;
    Ok(path)
}

/// Lines such as `half v2.7.1|MIT OR Apache-2.0`, each crate once.
fn components(tree: &str) -> Vec<Value> {
    let mut found = BTreeMap::new();
    for line in tree.lines() {
        let Some((package, licence)) = line.split_once('|') else { continue };
        let mut words = package.split(' ');
        let (Some(name), Some(version)) = (words.next(), words.next()) else { continue };
        let version = version.trim_start_matches('v');
        found.insert(
            (name.to_owned(), version.to_owned()),
            json!({
                "type": "library",
                "name": name,
                "version": version,
                "purl": format!("pkg:cargo/{name}@{version}"),
                "licenses": [{ "expression": licence.trim_end_matches(" (*)").replace('/', " OR ") }],
            }),
        );
    }
    found.into_values().collect()
}

const SUMS: &str = "SHA256SUMS";

/// Writes the files' checksums, for `sha256sum --check`.
fn checksums(files: &[PathBuf], out: &Path) -> Result<()> {
    let names = files.iter().filter_map(|file| file.file_name());
    let result = Command::new("sha256sum")
        .args(names)
        .current_dir(out)
        .output()
        .context("starting sha256sum")?;
    ensure!(result.status.success(), "sha256sum: {}", String::from_utf8_lossy(&result.stderr));
    fs::write(out.join(SUMS), result.stdout)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_version_counts() {
        let symbols = "0 DF *UND* 0 (GLIBC_2.2.5) free\n0 DF *UND* 0 (GLIBC_2.34) dlopen\n0 DF *UND* 0 (GLIBC_2.9) x\n";
        assert_eq!(greatest_glibc(symbols).as_deref(), Some("2.34"));
        assert_eq!(greatest_glibc("free"), None);
    }

    #[test]
    fn each_crate_is_listed_once() {
        let tree = "apron-cli v0.1.0 (/here)|MIT OR Apache-2.0\nhalf v2.7.1|MIT/Apache-2.0\nhalf v2.7.1|MIT/Apache-2.0 (*)\n";
        let found = components(tree);
        assert_eq!(found.len(), 2);
        assert_eq!(found[1]["purl"], "pkg:cargo/half@2.7.1");
        assert_eq!(found[1]["licenses"][0]["expression"], "MIT OR Apache-2.0");
    }
}
