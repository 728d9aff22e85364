//! `cargo xtask ptx`: the kernels of every tier, and what each entry costs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
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
    /// Fail if the compiler warns, if ptxas is missing, if an entry spills registers to memory, or needs clearly more of
    /// them than gpu-kernels/registers.txt has.
    #[arg(long)]
    strict: bool,
    /// Write the registers that each entry needs to gpu-kernels/registers.txt.
    #[arg(long, conflicts_with_all = ["debug", "strict", "arch"])]
    write: bool,
}

/// The committed list: entry, tier, registers of a thread.
const LIST: &str = "gpu-kernels/registers.txt";

/// By how many registers an entry may exceed the list: compilers of other versions differ a little.
const SLACK: u32 = 8;

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
    let mut registers = BTreeMap::new();
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
        list(&report, &mut text, &mut faults, &mut registers)?;
        print(&text)?;
    }
    if options.write {
        let lines: String =
            registers.iter().map(|((entry, arch), count)| format!("{entry} {arch} {count}\n")).collect();
        std::fs::write(root().join(LIST), lines).context(LIST)?;
    } else if !options.debug && !registers.is_empty() {
        compare(&registers, &archs, &mut faults)?;
    }
    if options.strict && !faults.is_empty() {
        bail!("{}", faults.join("; "));
    }
    Ok(ExitCode::SUCCESS)
}

/// Registers by entry and architecture.
type Registers = BTreeMap<(String, String), u32>;

/// Holds the registers found to the committed list.
fn compare(found: &Registers, archs: &[String], faults: &mut Vec<String>) -> Result<()> {
    let text = std::fs::read_to_string(root().join(LIST)).context(LIST)?;
    let listed: Option<Registers> = text
        .lines()
        .map(|line| {
            let mut words = line.split_whitespace();
            Some(((words.next()?.to_owned(), words.next()?.to_owned()), words.next()?.parse().ok()?))
        })
        .collect();
    let listed = listed.with_context(|| format!("{LIST}: a line is not an entry, an architecture and a number"))?;
    for ((entry, arch), count) in found {
        match listed.get(&(entry.clone(), arch.clone())) {
            None => faults.push(format!("{entry} for {arch} is not in {LIST}; `cargo xtask ptx --write` renews it")),
            Some(listed) if *count > listed + SLACK => {
                faults.push(format!("{entry} for {arch} needs {count} registers, {LIST} has {listed}"));
            }
            Some(_) => {}
        }
    }
    let gone = listed.keys().filter(|key| archs.contains(&key.1) && !found.contains_key(*key));
    faults.extend(gone.map(|(entry, arch)| format!("{entry} for {arch} is in {LIST} and nowhere else")));
    Ok(())
}

/// Adds a line for each entry of a tier; notes its registers, and the entries that spill.
fn list(report: &Report, text: &mut String, faults: &mut Vec<String>, registers: &mut Registers) -> Result<()> {
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
        registers.insert((entry.name.clone(), report.arch.clone()), usage.registers);
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
