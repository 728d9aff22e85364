//! Compiles the kernels, and writes `kernels.rs`: the table of tiers that `src/gpu/kernels.rs` embeds.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "gpu")]
    if let Err(error) = kernels::embed() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

#[cfg(feature = "gpu")]
mod kernels {
    use std::error::Error;
    use std::fmt::Write;
    use std::path::{Path, PathBuf};
    use std::{env, fs};

    use kernel_builder::{KernelBuilder, MACHINES, TIERS};

    const KERNELS: &str = "../gpu-kernels";

    /// Compiles for one tier, and assembles for the machines that run no higher one.
    fn builder(tier: u32) -> KernelBuilder {
        let best = |machine: &u32| TIERS.iter().filter(|&tier| tier <= machine).max() == Some(&tier);
        let builder = KernelBuilder::new(KERNELS).arch(format!("sm_{tier}"));
        MACHINES
            .iter()
            .filter(|machine| best(machine))
            .fold(builder, |builder, machine| builder.assemble(format!("sm_{machine}")))
    }

    pub(super) fn embed() -> Result<(), Box<dyn Error>> {
        let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: cargo runs this")?);
        let mut table = String::from("pub(crate) static TIERS: &[Tier] = &[\n");
        // The tiers at once: each is a single thread's work.
        let reports = std::thread::scope(|scope| {
            TIERS
                .map(|arch| scope.spawn(move || builder(arch).build()))
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
                "    Tier {{\n        arch: {arch},\n        compiler: {:?},\n        entries: &[",
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
        table.push_str("];\n");
        fs::write(out.join("kernels.rs"), table)?;
        // A file that is added changes its folder.
        println!("cargo:rerun-if-changed={KERNELS}/src");
        Ok(())
    }
}
