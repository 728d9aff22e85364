//! Filtering on NVIDIA GPUs: devices, images in device memory, streams to put work into.
//!
//! Host images and device images are different types, and nothing crosses unasked. [`crate::Plan::run`] takes host images
//! and does the crossing itself; [`crate::Plan::run_on_device`] works on what is already there:
//!
//! ```no_run
//! use apron::{Device, Filter, Image, Plan, gpu::Gpu};
//!
//! let gpu = Gpu::open(0)?;
//! let plan = Plan::builder(&Filter::gaussian(2.0)?).device(Device::Gpu(0)).build()?;
//! let src = gpu.upload(&Image::from_vec(vec![0.5f32; 640 * 480], 640, 480, 1)?.view())?;
//! let mut dst = gpu.image(src.shape())?;
//! let mut stream = gpu.stream()?;
//! plan.run_on_device(&src, &mut dst, &mut stream)?;
//! stream.synchronize()?;
//! let filtered: Image<f32> = gpu.download(&dst)?;
//! # Ok::<(), apron::Error>(())
//! ```
//!
//! A program's own kernels run beside: see [`Function`].

mod device;
mod direct;
mod driver;
mod engine;
mod fourier;
mod image;
mod kernels;
mod launch;
mod memory;
mod peak;
mod recorded;
mod separable;
mod sliding;
mod stream;
mod tuned;

pub use device::{Gpu, Info, LoadedKernel};
pub(crate) use engine::Engine;
pub use image::DeviceImage;
pub use kernel_builder::Tier;
pub use kernels::{Kernels, embedded, kernels_in_use, use_kernels};
pub use launch::{Function, Grid};
pub use recorded::Recorded;
pub use stream::{Mark, Stream};
pub(crate) use tuned::Tuned;
