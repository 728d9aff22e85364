//! NVIDIA's assembler, if it is installed: checks PTX without a GPU, and reports the cost of each
//! entry.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Error, Result, output};

/// Ways to get ptxas; each one is enough.
pub const REMEDIES: [&str; 2] = [
    "pip install nvidia-cuda-nvcc (only ptxas, no toolkit)",
    "install the CUDA toolkit, or point CUDA_HOME at it",
];

/// The resources that one entry needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// The entry's name in PTX.
    pub entry: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of a thread's stack, in local memory.
    pub stack: u32,
    /// Bytes spilled to local memory.
    pub spill_stores: u32,
    /// Bytes of spills that are loaded back.
    pub spill_loads: u32,
    /// Bytes of shared memory known at compile time.
    pub shared: u32,
}

/// The environment variables that locate ptxas, except `PATH`.
pub(crate) const VARIABLES: [&str; 3] = ["CUDA_HOME", "CUDA_PATH", "PYTHONPATH"];

/// The path of ptxas: on the `PATH`, in the CUDA toolkit, or in the PyPI package
/// `nvidia-cuda-nvcc`.
pub fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let toolkits =
        ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let fixed = std::env::split_paths(&path)
        .chain(toolkits.map(|toolkit| toolkit.join("bin")))
        .chain([PathBuf::from("/usr/local/cuda/bin")])
        .map(|folder| folder.join("ptxas"));
    fixed.chain(packaged()).find(|program| program.is_file())
}

/// The paths of ptxas in the PyPI packages, newest CUDA first. Empty without Python, or without a
/// package.
fn packaged() -> Vec<PathBuf> {
    let roots = Command::new("python3")
        .args(["-c", "import nvidia; print(*nvidia.__path__, sep='\\n')"])
        .output();
    let Ok(roots) = roots else { return Vec::new() };
    let roots = String::from_utf8_lossy(&roots.stdout).into_owned();
    let folders = ["cu13", "cuda_nvcc"];
    folders
        .iter()
        .flat_map(|folder| {
            roots.lines().map(move |root| Path::new(root).join(folder).join("bin/ptxas"))
        })
        .collect()
}

/// Assembles a PTX module for `arch` (such as `sm_90`) and returns the resources of each entry;
/// `None` without ptxas.
///
/// # Errors
/// [`Error::Ptxas`] if ptxas rejects the module.
pub fn check(module: &Path, arch: &str) -> Result<Option<Vec<Usage>>> {
    let Some(program) = find() else { return Ok(None) };
    let result = output(
        Command::new(program)
            .arg("-v")
            .arg(format!("-arch={arch}"))
            .args(["-o", "/dev/null"])
            .arg(module),
    )?;
    let log = String::from_utf8_lossy(&[result.stdout, result.stderr].concat()).into_owned();
    if !result.status.success() {
        return Err(Error::Ptxas { path: module.to_owned(), log });
    }
    Ok(Some(parse(&log)))
}

/// Assembles a PTX module into machine code for `arch` by `program`; `false` if it does not support
/// the architecture.
///
/// # Errors
/// If ptxas cannot be started, or the file cannot be written.
pub fn assemble(program: &Path, module: &Path, arch: &str, to: &Path) -> Result<bool> {
    let unfinished = to.with_extension("unfinished");
    let result = output(
        Command::new(program).arg(format!("-arch={arch}")).arg("-o").arg(&unfinished).arg(module),
    )?;
    if !result.status.success() {
        return Ok(false);
    }
    std::fs::rename(&unfinished, to).map_err(crate::at(to))?;
    Ok(true)
}

/// Reads the lines that `ptxas -v` prints for each entry.
fn parse(log: &str) -> Vec<Usage> {
    let mut usages: Vec<Usage> = Vec::new();
    // Properties of device functions follow the entry that calls them; only the entry's own lines
    // count.
    let mut own = false;
    for line in log.lines() {
        if let Some(rest) = line.split("Compiling entry function '").nth(1) {
            let entry = rest.split('\'').next().unwrap_or_default().to_owned();
            usages.push(Usage { entry, ..Usage::default() });
        } else if let Some(name) = line.split("Function properties for ").nth(1) {
            own = usages.last().is_some_and(|usage| usage.entry == name.trim().trim_matches('\''));
        }
        let Some(usage) = usages.last_mut() else { continue };
        let words: Vec<&str> = line.split_whitespace().collect();
        let before = |unit: &str| {
            let at = line.find(unit)?;
            line[..at].split_whitespace().next_back()?.parse().ok()
        };
        if own && line.contains("bytes stack frame") {
            usage.stack = before(" bytes stack frame").unwrap_or_default();
            usage.spill_stores = before(" bytes spill stores").unwrap_or_default();
            usage.spill_loads = before(" bytes spill loads").unwrap_or_default();
        } else if words.contains(&"Used") {
            usage.registers = before(" registers").unwrap_or_default();
            usage.shared = before(" bytes smem").unwrap_or_default();
        }
    }
    usages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_read() {
        let log = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_90'
ptxas info    : Function properties for first
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 16 bytes cumulative stack size, 256 bytes smem, 4396 bytes cmem[0]
ptxas info    : Compile time = 12.345 ms
ptxas info    : Function properties for helper
    64 bytes stack frame, 1 bytes spill stores, 2 bytes spill loads
ptxas info    : Compiling entry function 'second' for 'sm_90'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, 448 bytes cmem[0]
";
        let first = Usage {
            entry: "first".into(),
            registers: 40,
            stack: 16,
            spill_stores: 8,
            spill_loads: 12,
            shared: 256,
        };
        let second = Usage { entry: "second".into(), registers: 8, ..Usage::default() };
        assert_eq!(parse(log), [first, second]);
    }
}
