//! Tells the kernels which compiler they are for.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=rust_cuda");
    println!("cargo::rustc-check-cfg=cfg(rust_cuda)");
    // rust-cuda's name for what rustc calls sm_80.
    println!("cargo::rustc-check-cfg=cfg(target_feature, values(\"compute_80\"))");
}
