//! Comparison with SciPy, where Python has it: `scipy/compare.py` over the demo pictures.

use std::ffi::OsString;
use std::process::Command;

use conformance::product::Gpu;
use conformance::suite;
use libtest_mimic::{Failed, Trial};

use crate::tool::{self, Bench, PICTURES};

const SCRIPT: &str = include_str!("../scipy/compare.py");
/// A module that it imports: the definition of bytes.
const WHOLE: &str = include_str!("../scipy/whole.py");
/// A module that all scripts import.
const JUDGE: &str = include_str!("../scipy/judge.py");

/// The Python that has NumPy and SciPy, or why there is none.
pub(crate) fn probe() -> Result<OsString, String> {
    python_with("import numpy, scipy.ndimage")
}

/// The Python that can import these modules, or why there is none.
pub(crate) fn python_with(imports: &str) -> Result<OsString, String> {
    let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let output = Command::new(&python).args(["-c", imports]).output();
    match output {
        Ok(output) if output.status.success() => Ok(python),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(said.lines().last().unwrap_or("python3 failed").to_owned())
        }
        Err(error) => Err(format!("python3: {error}")),
    }
}

/// Runs a Python program on the tool. Its last line becomes the report of test `name`; if it fails,
/// so does its whole output.
pub(crate) fn judged(name: &str, script: &str, python: OsString) -> Result<(), Failed> {
    let bench = Bench::new();
    let file = bench.path().join("script.py");
    std::fs::write(&file, script)?;
    std::fs::write(bench.path().join("judge.py"), JUDGE)?;
    let output = Command::new(python).arg(file).arg("--apron").arg(tool::apron()?).output()?;
    let (out, said) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() {
        println!("{name}: {}", out.lines().last().unwrap_or_default());
        Ok(())
    } else {
        Err(format!("{out}\n{said}").into())
    }
}

pub(crate) fn trials(python: &Result<OsString, String>, gpu: &Gpu) -> Vec<Trial> {
    let on = |device: &'static str| {
        let python = python.clone();
        move || compare(python?, device)
    };
    vec![
        Trial::test("scipy::cpu", on("cpu")).with_ignored_flag(python.is_err()),
        suite::gpu_trial("scipy::gpu", gpu, on("gpu:0"))
            .with_ignored_flag(python.is_err() || matches!(gpu, Gpu::Missing(_))),
    ]
}

fn compare(python: OsString, device: &str) -> Result<(), Failed> {
    let bench = Bench::new();
    for (name, contents) in PICTURES {
        bench.put(name, contents);
    }
    let script = bench.path().join("compare.py");
    std::fs::write(&script, SCRIPT)?;
    std::fs::write(bench.path().join("whole.py"), WHOLE)?;
    let output = Command::new(python)
        .arg(script)
        .arg("--apron")
        .arg(tool::apron()?)
        .arg("--pictures")
        .arg(bench.path())
        .args(["--device", device])
        // A process that opens a GPU starts slowly.
        .args((device != "cpu").then_some("--quick"))
        .output()?;
    let (out, said) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let last = out.lines().last().unwrap_or_default();
    if output.status.success() {
        println!("scipy::{device}: {last}");
        Ok(())
    } else {
        Err(format!("{last}\n{said}").into())
    }
}
