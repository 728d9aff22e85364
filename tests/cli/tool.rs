//! Finding the tool and running it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use conformance::built;
use tempfile::TempDir;

/// The tool to test: `APRON_BIN`; under cargo the one of this workspace, built now so that it is not an old one; else the
/// one in the tests' folder.
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

    /// Runs the tool there, with more in its environment.
    pub(crate) fn run_with<S: AsRef<OsStr>>(&self, arguments: &[S], more: &[(&str, &OsStr)]) -> Result<Output, String> {
        let tool = apron()?;
        let mut command = Command::new(tool);
        command.args(arguments).envs(more.iter().copied()).current_dir(self.path());
        let output = command.output();
        output.map_err(|error| format!("{}: {error}", tool.display()))
    }

    /// Runs the tool, which must succeed and have nothing to complain about.
    pub(crate) fn succeed(&self, arguments: &[&str]) -> Result<(), String> {
        let output = self.run(arguments)?;
        let complaints = String::from_utf8_lossy(&output.stderr);
        if output.status.success() && complaints.is_empty() {
            Ok(())
        } else {
            Err(format!("apron {arguments:?}: {}, {complaints}", output.status))
        }
    }

    /// Every file there and what it holds.
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
