//! Compiles the kernels, and writes `kernels.rs`: the table of tiers that `src/gpu/embedded.rs`
//! includes. A package has that table in its folder `kernels`, which `cargo xtask package` makes.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "gpu")]
    if let Err(error) = kernel_builder::embed(
        &kernel_builder::KernelBuilder::new("../gpu-kernels").packed("kernels"),
    ) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
