//! Compiles the kernels for the architecture that `APRON_ARCH` names, as sm_90.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use cuda_builder::{CudaBuilder, NvvmArch};

/// Each package of kernels, and the folder of its manifest; the source is that of the main
/// workspace.
const KERNELS: [(&str, &str); 2] = [("gpu-kernels", "kernels"), ("study-kernels", "studies")];
const SOURCES: [&str; 2] = ["../gpu-kernels/src", "../studies/kernels/src"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
    }
    println!("cargo::rerun-if-env-changed=APRON_ARCH");
    let arch = env::var("APRON_ARCH").unwrap_or_else(|_| "sm_90".into());
    let target: NvvmArch = arch.replace("sm_", "compute_").parse().map_err(|_| format!("no architecture {arch}"))?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    for (package, folder) in KERNELS {
        CudaBuilder::new(fs::canonicalize(folder)?)
            .arch(target)
            // As in rustc, a product and a sum are one operation only where the source says so.
            .fma_contraction(false)
            .copy_to(out.join(package).with_extension("ptx"))
            .build()
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}
