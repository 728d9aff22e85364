//! A CUDA driver in software: apron's kernels on the host, under watch.
//!
//! The library exports the driver's functions that apron calls. Where the environment variable `APRON_DRIVER` names it, the
//! product loads it in place of NVIDIA's, and runs on it unchanged: launchers, grids, parameters, passes and scratch
//! are those of a real run. A kernel's name leads to the same source, compiled for the host here; nothing of this
//! package is a part of the product, or of its PTX.
//!
//! | module | what it is |
//! | --- | --- |
//! | `driver` | the exported functions: handles, limits, errors, injected faults |
//! | `memory` | device memory, with a mark for each word of it |
//! | `machine` | a block of threads: barriers, shared memory, asynchronous copies, and the rules they are held to |
//! | `texture` | texture objects |
//! | `settings` | what `APRON_EMULATOR` asks for |
//! | `device` | the functions that kernels call, in the place of `gpu-kernels/src/device` |
//!
//! What a kernel does against the rules is a finding: a line on standard error that names the kernel, the block, the thread,
//! the line of source and the fault. The launch then fails as it would on a GPU, the context is dead, and the process
//! ends with exit code 70 whatever it made of that. `docs/reliability.md` says what is found, and what cannot be.

mod driver;
mod machine;
mod memory;
mod settings;
mod texture;

// The kernels, compiled into this package from their own source: as a feature of the package `gpu-kernels`, the emulator
// would come into the product whenever both are built together.
#[path = "../../gpu-kernels/src/abi.rs"]
pub mod abi;
#[path = "../../gpu-kernels/src/border.rs"]
pub mod border;
mod device;
#[path = "../../gpu-kernels/src/kernels/mod.rs"]
pub mod kernels;
#[path = "../../gpu-kernels/src/tile/mod.rs"]
pub mod tile;

// The studies' kernels likewise.
#[path = "../../studies/kernels/src/blog.rs"]
mod blog;
#[path = "../../studies/kernels/src/class.rs"]
mod class;
#[path = "../../studies/kernels/src/frame.rs"]
pub mod frame;
#[path = "../../studies/kernels/src/idle.rs"]
mod idle;
#[path = "../../studies/kernels/src/line.rs"]
mod line;
#[path = "../../studies/kernels/src/paper.rs"]
mod paper;
#[path = "../../studies/kernels/src/pixels.rs"]
mod pixels;
#[path = "../../studies/kernels/src/sizes.rs"]
pub mod sizes;
#[path = "../../studies/kernels/src/strip.rs"]
mod strip;
#[path = "../../studies/kernels/src/texture.rs"]
mod textured;
#[path = "../../gpu-kernels/src/tile/unrolled.rs"]
mod unrolled;
