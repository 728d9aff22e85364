//! Compiles the kernels for the architecture that `APRON_ARCH` names, as sm_90.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use cuda_builder::{CudaBuilder, NvvmArch};

/// The folder of the kernels' manifest; their source is that of the main workspace.
const KERNELS: &str = "kernels";
const SOURCE: &str = "../gpu-kernels/src";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=APRON_ARCH");
    let arch = env::var("APRON_ARCH").unwrap_or_else(|_| "sm_90".into());
    let target: NvvmArch = arch.replace("sm_", "compute_").parse().map_err(|_| format!("no architecture {arch}"))?;
    let ptx = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?).join("kernels.ptx");
    CudaBuilder::new(fs::canonicalize(KERNELS)?)
        .arch(target)
        // As rustc: a product and a sum are one operation only where the source says so.
        .fma_contraction(false)
        .copy_to(ptx)
        .build()
        .map_err(|error| error.to_string())?;
    Ok(())
}
