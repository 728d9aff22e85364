//! Compiles the studies' kernels, and writes `kernels.rs`: the table of tiers that `src/gpu.rs`
//! embeds.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "gpu")]
    if let Err(error) = kernel_builder::embed(
        &kernel_builder::KernelBuilder::new("kernels").with("../gpu-kernels/src"),
    ) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
