//! The kernels of apron.
//!
//! Compiled for `nvptx64-nvidia-cuda`, this crate is the PTX that runs on the GPU. Compiled for the
//! host, it is the library that both sides of a launch share: arguments ([`abi`]), tile sizes and
//! typed entries ([`kernels`]), the border rules ([`border`]).
//!
//! | family | file in `kernels/` | what it computes |
//! | --- | --- | --- |
//! | direct | `direct.rs` | every tap for every pixel; four steps from naive to compile-time size |
//! | direct, sliding | `sliding.rs` | every tap, with a window that slides down the image in registers |
//! | separable | `separable.rs` | a row pass, then a column pass, each through shared memory |
//! | separable, tiles | `separable_tile.rs` | both passes over a tile by one block, for small pictures |
//! | separable, fused | `fused.rs` | both passes in one kernel, sliding down the image |
//! | both sliding kernels, bytes to bytes | `flat.rs` | the same results, on rows of bytes in memory order |
//! | direct, on tensor cores | `matrix.rs` | bytes to bytes, by integer products |
//! | exact | `passes.rs` | bytes to bytes, by exact sums of rows, then of columns |
//! | gradient | `gradient.rs` | the magnitude or the angle of two derivatives, from one read |
//! | weighted | `weighted.rs` | colours weighted by alpha |
//! | light | `light.rs` | decodes values to light before another kernel, encodes its sums |
//! | known pixels | `known.rs` | weighs values before another kernel, divides its sums |
//! | arrays | `arrays.rs` | sums in f64 over arrays of any number of dimensions, with the CPU's bits |
//! | Fourier | `fourier/` | a product of spectra, tile by tile, for large windows that do not separate |
//!
//! `kernels/keep.rs` restores the pixels that a border copies; `kernels/peak.rs` measures the
//! device's arithmetic. `tile/` moves pixels between an image and registers or shared memory:
//! `view.rs` reads through the border rule and writes; `ring.rs`, `planar.rs` and `flat.rs` load
//! image rows for the sliding kernels. `device/` is the GPU.
//!
//! All kernels keep these conventions:
//! - A launch is a [`abi::Pass`]: it reads a source and writes a region of a destination. Each has
//!   any layout that strides can describe. The grid's z axis counts the channels of all images.
//! - Correlation: output `(x, y)` is the sum of
//!   `taps[r][c] * input[y + r - anchor_y][x + c - anchor_x]`.
//! - Taps accumulate in f32 with fused multiply-add, starting from zero, row by row, left to right.
//! - In y, blocks walk the region in a grid-stride loop, so no image is too tall for the hardware's
//!   limit of 65535 blocks.
//! - Addresses are 64-bit; coordinates are `i32` (see [`abi::MAX_EXTENT`]).
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch))]
#![cfg_attr(
    all(target_arch = "nvptx64", not(rust_cuda)),
    no_std,
    feature(abi_ptx, core_intrinsics, stdarch_nvptx),
    allow(internal_features)
)]
// rust-cuda's builder sets `no_std` itself. On the host, rust-cuda's kernels are only type-checked:
// no PTX is made from them.
#![cfg_attr(all(rust_cuda, not(target_arch = "nvptx64")), allow(unused, unreachable_code))]

pub mod abi;
pub mod array;
pub mod border;
mod device;
pub mod divisor;
#[cfg(not(any(target_arch = "nvptx64", rust_cuda)))]
pub mod entry;
pub mod gradient;
pub mod kernels;
mod pixel;
pub mod tile;

// rust-cuda's `cuda_std` has its own panic handler.
#[cfg(all(target_arch = "nvptx64", not(rust_cuda)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    device::trap()
}
