//! For build scripts: a crate of kernels compiled for every tier, as a table that the program embeds.

use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::{KernelBuilder, MACHINES, TIERS};

/// The kernels of a crate compiled for one compute capability and those above it: a row of the table that [`embed`] writes.
#[derive(Debug)]
pub struct Tier {
    /// The lowest compute capability they run on, as 10 * major + minor.
    pub arch: u32,
    /// The compiler and its version.
    pub compiler: &'static str,
    /// Each entry's name and its PTX module, by name.
    pub entries: &'static [(&'static str, &'static str)],
    /// Machine code of all entries, by the compute capability that it was assembled for.
    pub machine_code: &'static [(u32, &'static [u8])],
}

impl Tier {
    /// The PTX module of an entry.
    pub fn ptx(&self, entry: &str) -> Option<&'static str> {
        self.entries.iter().find(|(name, _)| *name == entry).map(|(_, ptx)| *ptx)
    }
}

/// Compiles the kernels of `builder` for all [`TIERS`], assembles them for all [`MACHINES`] where ptxas is there, and writes
/// `kernels.rs` into cargo's `OUT_DIR`: an expression of type `&'static [Tier]`. Tells cargo what the table depends on.
///
/// ```ignore
/// static TIERS: &[kernel_builder::Tier] = include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
/// ```
///
/// # Errors
/// If the kernels cannot be compiled, if a file cannot be written, or if it is not cargo that runs this.
pub fn embed(builder: &KernelBuilder) -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: cargo runs this")?);
    let mut table = String::from("&[\n");
    // The tiers at once: each is a single thread's work.
    let reports = std::thread::scope(|scope| {
        TIERS
            .map(|arch| scope.spawn(move || for_tier(builder, arch).build()))
            .map(|tier| tier.join().map_err(|_| "the kernel builder panicked"))
    });
    for (arch, report) in TIERS.into_iter().zip(reports) {
        let report = report??;
        let folder = out.join(&report.arch);
        // A new folder: entries that are no more must not stay.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        writeln!(
            table,
            "    ::kernel_builder::Tier {{\n        arch: {arch},\n        compiler: {:?},\n        entries: &[",
            report.compiler
        )?;
        for entry in &report.entries {
            let file = format!("{}.ptx", entry.name);
            fs::copy(&entry.path, folder.join(&file))?;
            let path = Path::new("/").join(&report.arch).join(file);
            writeln!(
                table,
                "            ({:?}, include_str!(concat!(env!(\"OUT_DIR\"), {:?}))),",
                entry.name,
                path.display().to_string()
            )?;
        }
        table.push_str("        ],\n        machine_code: &[\n");
        for (machine, path) in &report.machine_code {
            let file = format!("{machine}.cubin");
            fs::copy(path, out.join(&file))?;
            let arch = machine.trim_start_matches("sm_");
            let path = Path::new("/").join(file);
            writeln!(
                table,
                "            ({arch}, include_bytes!(concat!(env!(\"OUT_DIR\"), {:?}))),",
                path.display().to_string()
            )?;
        }
        table.push_str("        ],\n    },\n");
        for input in report.inputs {
            println!("cargo:rerun-if-changed={}", input.display());
        }
    }
    table.push_str("]\n");
    fs::write(out.join("kernels.rs"), table)?;
    // A file that is added changes its folder.
    for folder in builder.sources() {
        println!("cargo:rerun-if-changed={}", folder.display());
    }
    Ok(())
}

/// Compiles for one tier, and assembles for the machines that run no higher one.
fn for_tier(builder: &KernelBuilder, tier: u32) -> KernelBuilder {
    let best = |machine: &u32| TIERS.iter().filter(|&tier| tier <= machine).max() == Some(&tier);
    let builder = builder.clone().arch(format!("sm_{tier}"));
    let machines = MACHINES.iter().filter(|machine| best(machine));
    machines.fold(builder, |builder, machine| builder.assemble(format!("sm_{machine}")))
}
