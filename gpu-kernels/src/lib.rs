//! The kernels of apron.
//!
//! Compiled for `nvptx64-nvidia-cuda`, this crate is the PTX that runs on the GPU. Compiled for the host, it is a small
//! library: the launch parameters and tile sizes ([`abi`]) and the border rules ([`border`]), written once and used on
//! both sides.
//!
//! | family | file | what it computes |
//! | --- | --- | --- |
//! | direct | `direct.rs` | every tap for every pixel; four steps from naive to compile-time size |
//! | direct, sliding | `sliding.rs` | the same, with a window that slides down the image in registers |
//! | separable | `separable.rs` | a row pass, then a column pass, each through shared memory |
//! | separable, fused | `fused.rs` | both passes in one kernel, sliding down the image |
//! | Fourier | `fourier.rs` | a product of spectra, tile by tile, for large windows that do not separate |
//!
//! `ring.rs` brings image rows to the sliding kernels; `keep.rs` restores the pixels that a KEEP border copies; `peak.rs`
//! measures the device's arithmetic.
//!
//! All kernels keep these conventions:
//! - An image is `height` rows of `width` pixels, `stride` elements from one row to the next; several planes of the same
//!   size lie a fixed number of elements apart, and the grid's z axis counts them.
//! - Correlation: output `(x, y)` is the sum of `taps[r][c] * input[y + r - anchor_y][x + c - anchor_x]`.
//! - Taps accumulate in f32 with fused multiply-add, starting from zero, row by row, left to right.
//! - The grid may be smaller than the image in y: blocks step on by the height of the grid until no row is left, so no
//!   image is too tall for the hardware's limit of 65535 blocks.
//! - Offsets into an image are 64-bit; coordinates are `i32` (see [`abi::MAX_EXTENT`]).
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch))]
#![cfg_attr(
    all(target_arch = "nvptx64", not(rust_cuda)),
    no_std,
    feature(abi_ptx, core_intrinsics, stdarch_nvptx),
    allow(internal_features)
)]
// rust-cuda's builder says `no_std` itself. On the host, rust-cuda's kernels are only checked: no PTX stands behind them.
#![cfg_attr(all(rust_cuda, not(target_arch = "nvptx64")), allow(unused, unreachable_code))]

pub mod abi;
pub mod border;

// The studies' kernels, in studies/kernels, take these files too, and use of them what no kernel here does.
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
#[allow(dead_code)]
mod device;
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
mod direct;
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
mod fourier;
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
#[allow(dead_code)]
mod frame;
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
mod fused;
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
mod keep;
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
mod peak;
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
mod ring;
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
mod separable;
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
mod sliding;
#[cfg(any(target_arch = "nvptx64", rust_cuda))]
mod unrolled;

// rust-cuda's `cuda_std` brings its own.
#[cfg(all(target_arch = "nvptx64", not(rust_cuda)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    device::trap()
}
