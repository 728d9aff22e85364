//! A CUDA driver in software: runs apron's kernels on the host and checks every access.
//!
//! This library exports the driver's functions that apron calls. If the environment variable
//! `APRON_DRIVER` names it, apron loads it instead of NVIDIA's driver, and runs on it unchanged:
//! launchers, grids, parameters, passes and scratch are those of a real run. Each kernel has the
//! same source, compiled for the host here. Nothing of this package is part of apron or of its PTX.
//!
//! | module | what it is |
//! | --- | --- |
//! | `driver` | the exported functions: handles, limits, errors, injected faults |
//! | `memory` | device memory, with a mark for each word, and for each byte of words that are accessed in part |
//! | `machine` | a block of threads: barriers, shared memory, asynchronous copies, and the rules for them |
//! | `texture` | texture objects |
//! | `settings` | the settings in `APRON_EMULATOR` |
//! | `device` | the functions that kernels call, instead of those of `gpu-kernels/src/device` |
//!
//! If a kernel breaks a rule, that is a finding: a line on standard error that names the kernel,
//! the block, the thread, the line of source and the fault. The launch then fails as on a GPU, the
//! context is dead, and the process ends with exit code 70, however the program handles the error.
//! `docs/reliability.md` says which faults are detected, and which cannot be.
#![cfg_attr(test, allow(unused, reason = "only kernels use it"))]

mod driver;
mod machine;
mod memory;
mod settings;
mod texture;

// The kernels, compiled into this package from their own source. As a feature of the package
// `gpu-kernels`, the emulator would become part of the product whenever both are built together.
// The tests here have a kernel of their own, and take a minute less to build without these.
#[path = "../../gpu-kernels/src/abi.rs"]
pub mod abi;
#[path = "../../gpu-kernels/src/array.rs"]
pub mod array;
#[path = "../../gpu-kernels/src/border.rs"]
pub mod border;
#[allow(dead_code, reason = "it has functions before kernels call them")]
mod device;
#[path = "../../gpu-kernels/src/divisor.rs"]
pub mod divisor;
#[path = "../../gpu-kernels/src/gradient.rs"]
pub mod gradient;
#[cfg(not(test))]
#[path = "../../gpu-kernels/src/kernels/mod.rs"]
pub mod kernels;
#[path = "../../gpu-kernels/src/pixel.rs"]
pub mod pixel;
#[path = "../../gpu-kernels/src/tile/mod.rs"]
pub mod tile;
use tile::unrolled;

// The studies' kernels, compiled from their own source, too.
#[cfg(not(test))]
#[path = "../../studies/kernels/src/blog.rs"]
mod blog;
#[cfg(not(test))]
#[path = "../../studies/kernels/src/class.rs"]
mod class;
#[path = "../../studies/kernels/src/frame.rs"]
pub mod frame;
#[cfg(not(test))]
#[path = "../../studies/kernels/src/idle.rs"]
mod idle;
#[cfg(not(test))]
#[path = "../../studies/kernels/src/line.rs"]
mod line;
#[cfg(not(test))]
#[path = "../../studies/kernels/src/paper.rs"]
mod paper;
#[cfg(not(test))]
#[path = "../../studies/kernels/src/pixels.rs"]
mod pixels;
#[path = "../../studies/kernels/src/sizes.rs"]
pub mod sizes;
#[cfg(not(test))]
#[path = "../../studies/kernels/src/strip.rs"]
mod strip;
#[cfg(not(test))]
#[path = "../../studies/kernels/src/texture.rs"]
mod textured;

// The kernel of the project that `kernel-builder new` writes.
#[cfg(not(test))]
#[path = "../../kernel-builder/template/saxpy.rs"]
mod saxpy;
