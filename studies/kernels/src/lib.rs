//! The studies' kernels: convolution as other documents have it, step by step, for `docs/ladder.md`
//! to compare.
//!
//! | document | file | what changes from step to step |
//! | --- | --- | --- |
//! | a blog's 5x5 ladder | `blog.rs` | the shape of a block |
//! | a class project, 2008 | `class.rs` | taps as a product, shared memory and its layout, two passes |
//! | NVIDIA's white paper | `paper.rs`, `idle.rs` | two passes with apron, unrolled or not; idle threads |
//! | its texture sample | `texture.rs` | both passes through `tex.2d` |
//! | a comparison of blurs | `strip.rs` | tiled and untiled |
//! | a blog on one dimension | `line.rs` | where taps and neighbours come from |
//!
//! A study supports its document's border, and images as tall as a grid. Compiled for the host,
//! this crate is the entries' names and sizes ([`sizes`]) and the arguments of a launch ([`frame`],
//! [`abi`], [`border`]).
//!
//! The device layer and the conventions are those of `gpu-kernels`, whose files are included by
//! path, because kernels are compiled without dependencies.
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch))]
#![cfg_attr(
    all(target_arch = "nvptx64", not(rust_cuda)),
    no_std,
    feature(abi_ptx, core_intrinsics, stdarch_nvptx),
    allow(internal_features)
)]
// As in gpu-kernels.
#![cfg_attr(all(rust_cuda, not(target_arch = "nvptx64")), allow(unused, unreachable_code))]

#[path = "../../../gpu-kernels/src/abi.rs"]
pub mod abi;
#[path = "../../../gpu-kernels/src/border.rs"]
pub mod border;
pub mod frame;
pub mod sizes;

#[cfg(any(target_arch = "nvptx64", rust_cuda))]
mod blog;
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
mod class;
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
#[allow(dead_code)]
mod device;
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
mod idle;
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
mod line;
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
mod paper;
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
mod pixels;
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
mod strip;
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
mod texture;
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
#[path = "../../../gpu-kernels/src/tile/unrolled.rs"]
mod unrolled;

// rust-cuda's `cuda_std` has its own panic handler.
#[cfg(all(target_arch = "nvptx64", not(rust_cuda)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    device::trap()
}
