//! Compiles the kernels to PTX, and writes `kernels.rs`, which `src/main.rs` includes.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    kernel_builder::embed(&kernel_builder::KernelBuilder::new("kernels").device())
}
