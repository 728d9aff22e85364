//! Finds the tool and runs it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use conformance::built;
use libtest_mimic::Failed;
use tempfile::TempDir;

/// The tool to test: `APRON_BIN`; under cargo that of this workspace, built now so that it is up to
/// date; else the one in the tests' folder.
pub(crate) fn apron() -> Result<&'static Path, String> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FOUND.get_or_init(find).as_ref().map(PathBuf::as_path).map_err(String::clone)
}

fn find() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("APRON_BIN") {
        return Ok(path.into());
    }
    let features = if cfg!(feature = "gpu") {
        &["--bin", "apron", "--workspace"][..]
    } else {
        &["--bin", "apron", "-p", "apron-cli", "--no-default-features"]
    };
    let found = built::find(&format!("apron{}", std::env::consts::EXE_SUFFIX), features);
    found.map_err(|error| format!("{error}: set APRON_BIN to the tool"))
}

/// What starts a program, again if Wine 8 did not start it: about one start in two thousand ends
/// with error 1359 there.
pub(crate) fn started<T>(mut start: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    const INTERNAL_ERROR: i32 = 1359;
    const TURNS: usize = 3;
    for _ in 1..TURNS {
        match start() {
            Err(error) if cfg!(windows) && error.raw_os_error() == Some(INTERNAL_ERROR) => {}
            outcome => return outcome,
        }
    }
    start()
}

/// A separate folder for one test, with the tool run in it.
pub(crate) struct Bench {
    folder: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file to start with.
    pub(crate) fn put(&self, name: &str, contents: &[u8]) {
        std::fs::write(self.path().join(name), contents).expect("a temporary file");
    }

    /// Reads a file.
    pub(crate) fn get(&self, name: &str) -> Result<Vec<u8>, String> {
        std::fs::read(self.path().join(name)).map_err(|error| format!("{name}: {error}"))
    }

    /// Runs the tool there.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<Output, String> {
        self.run_with(arguments, &[])
    }

    /// Runs the tool there, with additional environment variables.
    pub(crate) fn run_with<S: AsRef<OsStr>>(
        &self,
        arguments: &[S],
        more: &[(&str, &OsStr)],
    ) -> Result<Output, String> {
        let tool = apron()?;
        let mut command = Command::new(tool);
        command.args(arguments).envs(more.iter().copied()).current_dir(self.path());
        let output = started(|| command.output());
        output.map_err(|error| format!("{}: {error}", tool.display()))
    }

    /// Runs the tool, which must succeed and print nothing on stderr.
    pub(crate) fn succeed(&self, arguments: &[&str]) -> Result<(), String> {
        let output = self.run(arguments)?;
        let complaints = String::from_utf8_lossy(&output.stderr);
        if output.status.success() && complaints.is_empty() {
            Ok(())
        } else {
            Err(format!("apron {arguments:?}: {}, {complaints}", output.status))
        }
    }

    /// Every file in the folder and its contents.
    pub(crate) fn contents(&self) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        fn visit(folder: &Path, found: &mut BTreeMap<PathBuf, Option<Vec<u8>>>) {
            for entry in std::fs::read_dir(folder).expect("a temporary folder").flatten() {
                let path = entry.path();
                if path.is_dir() {
                    visit(&path, found);
                    found.insert(path, None);
                } else {
                    let contents = std::fs::read(&path).ok();
                    found.insert(path, contents);
                }
            }
        }
        let mut found = BTreeMap::new();
        visit(self.path(), &mut found);
        found
    }
}

/// Runs the tool, which must refuse its arguments: exit code 1 or 2, one line on stderr with these
/// words, and no file changed.
pub(crate) fn refuse(bench: &Bench, arguments: &[&str], words: &[&str]) -> Result<(), Failed> {
    let before = bench.contents();
    let output = bench.run(arguments)?;
    let (out, line) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let shown = format!("apron {arguments:?}: {}, stdout {out:?}, stderr {line:?}", output.status);
    // A process that a signal ended has no exit code.
    if !matches!(output.status.code(), Some(1 | 2)) {
        return Err(format!("the exit code is not 1 or 2: {shown}").into());
    }
    if !out.is_empty()
        || line.lines().count() != 1
        || !line.ends_with('\n')
        || line.trim().is_empty()
    {
        return Err(format!("not exactly one line on stderr: {shown}").into());
    }
    if let Some(word) = words.iter().find(|&&word| !line.contains(word)) {
        return Err(format!("\"{word}\" is not named: {shown}").into());
    }
    if line.contains("panicked") {
        return Err(format!("it panicked: {shown}").into());
    }
    if bench.contents() != before {
        return Err(format!("files have changed: {shown}").into());
    }
    Ok(())
}

/// Runs the tool, which must succeed and print nothing on stdout. Returns its stderr.
pub(crate) fn said(bench: &Bench, arguments: &[&str]) -> Result<String, Failed> {
    let output = bench.run(arguments)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() && output.stdout.is_empty() && !said.is_empty() {
        Ok(said)
    } else {
        Err(format!("apron {arguments:?}: {}, stderr {said:?}", output.status).into())
    }
}

/// An array in NumPy's format, version 1.
pub(crate) fn npy(descr: &str, shape: &str, values: &[u8]) -> Vec<u8> {
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    header.extend(std::iter::repeat_n(' ', 63 - (10 + header.len()) % 64));
    header.push('\n');
    let length = u16::try_from(header.len()).expect("a short header");
    [b"\x93NUMPY\x01\x00", &length.to_le_bytes()[..], header.as_bytes(), values].concat()
}

/// The three demo pictures.
pub(crate) const PICTURES: [(&str, &[u8]); 3] = [
    ("astronaut.png", include_bytes!("../../assets/astronaut.png")),
    ("hubble_deep_field.jpg", include_bytes!("../../assets/hubble_deep_field.jpg")),
    ("moon.png", include_bytes!("../../assets/moon.png")),
];
