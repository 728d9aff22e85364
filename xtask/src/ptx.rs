//! `cargo xtask ptx`: the kernels of every tier, and what each entry costs.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::{Result, bail};
use kernel_builder::{KernelBuilder, Report, TIERS, ptxas};

use crate::{print, root};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Compile for these architectures only, as sm_90.
    #[arg(long, value_name = "ARCH")]
    arch: Vec<String>,
    /// Compile with checks for overflow and debug assertions, and with little optimisation.
    #[arg(long)]
    debug: bool,
    /// Fail if the compiler warns, if ptxas is missing, or if an entry spills registers to memory.
    #[arg(long)]
    strict: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let archs = match options.arch.as_slice() {
        [] => TIERS.map(|tier| format!("sm_{tier}")).to_vec(),
        archs => archs.to_vec(),
    };
    let assembler = ptxas::find();
    match &assembler {
        Some(path) => print(&format!("ptxas: {}\n", path.display()))?,
        None => print(&format!(
            "ptxas: not found, so registers and spills are unknown; {}\n",
            ptxas::REMEDIES.join(", or ")
        ))?,
    }
    let mut faults = Vec::new();
    if options.strict && assembler.is_none() {
        faults.push("ptxas is missing".to_owned());
    }
    for arch in &archs {
        let report = KernelBuilder::new(root().join("gpu-kernels")).arch(arch).release(!options.debug).build()?;
        let mut text = format!("\n{}, {}: {} entries", report.arch, report.compiler, report.entries.len());
        writeln!(text, ", {}", report.module.display())?;
        if !report.warnings.is_empty() {
            writeln!(text, "{}", report.warnings)?;
            faults.push(format!("{arch}: the compiler warns"));
        }
        list(&report, &mut text, &mut faults)?;
        print(&text)?;
    }
    if options.strict && !faults.is_empty() {
        bail!("{}", faults.join("; "));
    }
    Ok(ExitCode::SUCCESS)
}

/// Adds a line for each entry of a tier; notes the entries that spill.
fn list(report: &Report, text: &mut String, faults: &mut Vec<String>) -> Result<()> {
    let Some(usages) = ptxas::check(&report.module, &report.arch)? else {
        for entry in &report.entries {
            writeln!(text, "{}", entry.name)?;
        }
        return Ok(());
    };
    let wide = report.entries.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    writeln!(
        text,
        "{:wide$} {:>9} {:>6} {:>6} {:>6} {:>9}",
        "entry", "registers", "stack", "spills", "shared", "PTX bytes"
    )?;
    for entry in &report.entries {
        let Some(usage) = usages.iter().find(|usage| usage.entry == entry.name) else {
            bail!("ptxas does not list entry {}", entry.name);
        };
        let spills = usage.spill_stores + usage.spill_loads;
        if spills > 0 {
            faults.push(format!("{} for {} spills {spills} bytes", entry.name, report.arch));
        }
        let bytes = std::fs::metadata(&entry.path)?.len();
        writeln!(
            text,
            "{:wide$} {:>9} {:>6} {spills:>6} {:>6} {bytes:>9}",
            entry.name, usage.registers, usage.stack, usage.shared
        )?;
    }
    Ok(())
}
