//! `cargo xtask test`: every test of the workspace, and one summary at the end.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use anyhow::{Context, Result};

use crate::{cargo, exit_code, print};

/// The totals that the test programs reported.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Summary {
    programs: usize,
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    ignored: usize,
    skips: Vec<String>,
}

impl Summary {
    /// Takes in one line of output.
    fn read(&mut self, line: &str) {
        if let Some((_, skip)) = line.split_once("GPU: SKIP") {
            self.skips.push(format!("GPU: SKIP{skip}"));
        }
        // `test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; ..; finished in 0.00s`
        let Some((_, counts)) =
            line.strip_prefix("test result: ").and_then(|result| result.split_once(". "))
        else {
            return;
        };
        self.programs += 1;
        for count in counts.split("; ") {
            let Some((number, what)) = count.split_once(' ') else { continue };
            let number = number.parse().unwrap_or(0);
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for skip in &self.skips {
            writeln!(f, "{skip}")?;
        }
        let Self { programs, passed, failed, ignored, .. } = self;
        write!(f, "{programs} test programs: {passed} passed, {failed} failed, {ignored} ignored")
    }
}

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let mut command = cargo();
    command.args(["test", "--release", "--workspace", "--no-fail-fast"]).args(arguments);
    let (status, summary) = summed(command)?;
    if status.success() && summary.passed == 0 {
        print("error: not one test was run\n")?;
        return Ok(ExitCode::FAILURE);
    }
    Ok(exit_code(status))
}

/// Runs tests by this command, and prints their output and its summary.
pub(crate) fn summed(mut command: Command) -> Result<(ExitStatus, Summary)> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("starting cargo")?;
    let mut summary = Summary::default();
    let mut out = std::io::stdout().lock();
    let mut lines = BufReader::new(child.stdout.take().context("cargo's output")?);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).context("reading cargo's output")? > 0 {
        out.write_all(&line).context("writing")?;
        summary.read(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    let status = child.wait().context("waiting for cargo")?;
    writeln!(out, "\n{summary}").context("writing")?;
    Ok((status, summary))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_summed() {
        let mut summary = Summary::default();
        for line in [
            "running 5 tests",
            "test a ... ok",
            "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "GPU: SKIP (no driver), 40 tests",
            "test result: FAILED. 20 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s",
        ] {
            summary.read(line);
        }
        let skips = vec!["GPU: SKIP (no driver), 40 tests".to_owned()];
        assert_eq!(summary, Summary { programs: 2, passed: 25, failed: 3, ignored: 1, skips });
        assert!(summary.to_string().ends_with("2 test programs: 25 passed, 3 failed, 1 ignored"));
    }
}
