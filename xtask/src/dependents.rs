//! `cargo xtask dependents`: tests apron as a dependency. Packs all packages, unpacks them into an
//! empty folder outside the workspace, and builds and runs the programs of `tests/consumers`
//! against them; then once more against a git repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::package::{PACKAGES, copy, pack, unpack};
use crate::{cargo, print, root};

/// A small picture that the emulator filters quickly.
const PICTURE: &str = "fuzz/corpus/picture/rgb.png";

/// Where the packages come from.
enum Source<'a> {
    /// Folders of unpacked packages.
    Packed(&'a [PathBuf]),
    /// A git repository.
    Git(&'a Path),
}

/// An empty folder outside the workspace.
struct Place {
    folder: PathBuf,
    /// All programs share one target folder; it stays, so that a second run has little to compile.
    target: PathBuf,
    emulator: PathBuf,
}

pub(crate) fn run() -> Result<ExitCode> {
    let start = Instant::now();
    let folder = std::env::temp_dir().join(format!("apron-dependents-{}", std::process::id()));
    ensure!(!folder.starts_with(root()), "{} lies in the workspace", folder.display());
    let emulator =
        format!("{}apron_emulator{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let place = Place {
        target: root().join("target/dependents"),
        emulator: root().join("target/release").join(emulator),
        folder,
    };
    let outcome = place.all();
    let _ = fs::remove_dir_all(&place.folder);
    outcome?;
    print(&format!("dependents: all passed in {:.0} s\n", start.elapsed().as_secs_f64()))?;
    Ok(ExitCode::SUCCESS)
}

impl Place {
    fn all(&self) -> Result<()> {
        expect(
            cargo().args(["build", "--quiet", "--release", "-p", "emulator"]),
            "building the emulator",
        )?;
        let packages =
            unpack(&pack(&root().join("target/packages"))?, &self.folder.join("packages"))?;
        let [builder, kernels, apron, tool] = packages.as_slice() else {
            bail!("{} packages", packages.len())
        };
        // These programs depend on the library's packages, not on the tool's.
        let library = [builder.clone(), kernels.clone(), apron.clone()];
        let source = Source::Packed(&library);
        // An earlier run leaves a link to the workspace's compiled kernels.
        let cache = self.target.join("kernels");
        let _ = fs::remove_file(&cache).or_else(|_| fs::remove_dir_all(&cache));

        let views = self.build("views", &source)?;
        ensure!(output(&mut Command::new(&views), "views")? == "ok\n", "views has no result");
        self.depends_on_nothing_of(&["image", "libloading", "cust", "apron-kernel-builder"])?;

        let five_lines = self.build("five-lines", &source)?;
        self.filters_with_and_without_a_gpu(&five_lines)?;
        defines_no_symbols_of_the_driver(&five_lines)?;

        let frames = self.build("frames", &source)?;
        ensure!(output(&mut self.emulated(&frames), "frames")? == "ok\n", "frames has no result");

        let mut build = self.cargo(tool);
        self.patch(&mut build, &library);
        expect(build.args(["build", "--quiet", "--offline"]), "building the tool")?;
        let info =
            output(self.emulated(&self.target.join("debug/apron")).arg("info"), "apron info")?;
        ensure!(info.contains("sm_90"), "apron info tells of no kernels:\n{info}");

        ensure!(!cache.exists(), "a dependent compiled kernels");
        step("packages: library with and without its features, and the tool")?;

        // The next steps compile the same kernels as the workspace, so they get its compiled ones.
        std::os::unix::fs::symlink(root().join("target/kernels"), &cache)?;
        let mut new = self.cargo(&self.folder);
        new.args(["run", "--quiet", "--offline", "--manifest-path"])
            .arg(builder.join("Cargo.toml"));
        expect(new.args(["--", "new", "saxpy"]), "kernel-builder new saxpy")?;
        let saxpy = self.build("saxpy", &source)?;
        let result = output(&mut self.emulated(&saxpy), "saxpy")?;
        ensure!(result.contains("1000 sums are right"), "saxpy: {result}");
        step("a new project with a kernel of its own")?;

        let repository = self.repository()?;
        let frames = self.build("frames", &Source::Git(&repository))?;
        ensure!(output(&mut self.emulated(&frames), "frames")? == "ok\n", "frames has no result");
        defines_no_symbols_of_the_driver(&frames)?;
        step("a git dependency, which compiles the kernels")
    }

    /// cargo in a folder, as for a user of the packages: without this workspace's settings.
    fn cargo(&self, folder: &Path) -> Command {
        let mut cargo = cargo();
        cargo.current_dir(folder).env("CARGO_TARGET_DIR", &self.target);
        for variable in ["CUDA_LIBRARY_PATH", "RUSTC_BOOTSTRAP", "APRON_DRIVER"] {
            cargo.env_remove(variable);
        }
        cargo
    }

    /// Makes cargo use these packages instead of those on crates.io.
    fn patch(&self, cargo: &mut Command, packages: &[PathBuf]) {
        for (package, (name, _)) in packages.iter().zip(PACKAGES) {
            cargo
                .arg("--config")
                .arg(format!("patch.crates-io.{name}.path={:?}", package.display().to_string()));
        }
    }

    /// Copies a program here and builds it; returns where it is.
    fn build(&self, name: &str, source: &Source<'_>) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        if !folder.exists() {
            copy(&root().join("tests/consumers").join(name), &folder)?;
        }
        // The lock file keeps cargo at the versions that this machine already has.
        copy(&root().join("Cargo.lock"), &folder.join("Cargo.lock"))?;
        let mut build = self.cargo(&folder);
        match source {
            Source::Packed(packages) => {
                self.patch(&mut build, packages);
                build.arg("--offline");
            }
            Source::Git(repository) => {
                let url = format!("file://{}", repository.display());
                build.arg("--config").arg(format!("patch.crates-io.apron.git={url:?}"));
                // lzma-rust2 compresses all kernels, which takes minutes without optimisation.
                build.args(["--config", "profile.dev.package.lzma-rust2.opt-level=3"]);
            }
        }
        expect(build.args(["build", "--quiet"]), name)?;
        Ok(self.target.join("debug").join(name))
    }

    /// Checks that the program `views` depends on none of the packages named, as cargo has resolved
    /// it.
    fn depends_on_nothing_of(&self, names: &[&str]) -> Result<()> {
        let lock = fs::read_to_string(self.folder.join("views/Cargo.lock"))?;
        // Patches that are not used are listed at the end.
        let used = lock.split("[[patch.unused]]").next().unwrap_or_default();
        ensure!(used.contains("name = \"rayon\""), "views depends on little:\n{used}");
        for name in names {
            ensure!(
                !used.contains(&format!("name = {name:?}")),
                "without its features apron depends on {name}"
            );
        }
        Ok(())
    }

    /// A program on the emulator.
    fn emulated(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("APRON_DRIVER", &self.emulator);
        command
    }

    /// Runs the program without a driver and on the emulator, and checks that its pictures are the
    /// same. The program may choose either device; `frames` asks for the GPU.
    fn filters_with_and_without_a_gpu(&self, program: &Path) -> Result<()> {
        let folder = self.folder.join("pictures");
        copy(&root().join(PICTURE), &folder.join("in.png"))?;
        let filtered = |command: &mut Command| {
            expect(command.current_dir(&folder), "five-lines")?;
            fs::read(folder.join("out.png")).context("out.png")
        };
        let cpu = filtered(Command::new(program).env("APRON_DRIVER", "/nonexistent"))?;
        let gpu = filtered(&mut self.emulated(program))?;
        ensure!(cpu == gpu, "beside the emulator the picture is another one");
        ensure!(cpu != fs::read(folder.join("in.png"))?, "nothing was filtered");
        fs::remove_dir_all(&folder)?;
        Ok(())
    }

    /// A git repository of the workspace as it is now.
    fn repository(&self) -> Result<PathBuf> {
        // A fixed address, because cargo caches what it fetches by address.
        let repository = root().join("target/dependents-repository");
        if repository.exists() {
            fs::remove_dir_all(&repository)?;
        }
        let git = |folder: &Path| {
            let mut git = Command::new("git");
            git.current_dir(folder).args([
                "-c",
                "user.name=apron",
                "-c",
                "user.email=apron@localhost",
            ]);
            git
        };
        let files = output(
            git(&root()).args(["ls-files", "-z", "-co", "--exclude-standard"]),
            "git ls-files",
        )?;
        for file in files.split('\0').filter(|file| !file.is_empty() && root().join(file).is_file())
        {
            copy(&root().join(file), &repository.join(file))?;
        }
        for arguments in [
            &["init", "--quiet"][..],
            &["add", "--all"],
            &["commit", "--quiet", "--message", "apron"],
        ] {
            expect(git(&repository).args(arguments), "git")?;
        }
        Ok(repository)
    }
}

/// Checks that a program defines no symbols of the driver: another CUDA library may be linked into
/// it.
fn defines_no_symbols_of_the_driver(program: &Path) -> Result<()> {
    let symbols = output(Command::new("nm").arg(program), "nm")?;
    ensure!(symbols.contains(" main"), "nm lists nothing of {}", program.display());
    let drivers = |name: &str| {
        name.strip_prefix("cu").is_some_and(|rest| rest.starts_with(char::is_uppercase))
    };
    let found: Vec<_> = symbols
        .lines()
        .filter(|line| line.split_whitespace().next_back().is_some_and(drivers))
        .collect();
    ensure!(found.is_empty(), "{} has symbols of the driver: {found:?}", program.display());
    Ok(())
}

fn step(done: &str) -> Result<()> {
    print(&format!("ok: {done}\n"))
}

/// Runs a command that must succeed.
fn expect(command: &mut Command, what: &str) -> Result<()> {
    output(command, what).map(|_| ())
}

/// The output of a command that must succeed.
fn output(command: &mut Command, what: &str) -> Result<String> {
    let result = command.output().with_context(|| format!("starting {what}"))?;
    let text = String::from_utf8_lossy(&result.stdout).into_owned();
    ensure!(
        result.status.success(),
        "{what} failed:\n{text}{}",
        String::from_utf8_lossy(&result.stderr)
    );
    Ok(text)
}
