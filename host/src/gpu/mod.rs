//! Filtering on NVIDIA GPUs: devices, images in device memory, streams to put work into.
//!
//! Host images and device images are different types, and no conversion is implicit.
//! [`crate::Plan::run`] takes host images and copies them to the device and back;
//! [`crate::Plan::run_on_device`] works on images that are already there:
//!
//! ```no_run
//! use apron::{Device, Filter, Image, Plan, gpu::Gpu};
//!
//! let gpu = Gpu::open(0)?;
//! let plan = Plan::builder(Filter::gaussian(2.0)?).device(Device::Gpu(0)).build()?;
//! let src = gpu.upload(&Image::from_vec(vec![0.5f32; 640 * 480], 640, 480, 1)?.view())?;
//! let mut dst = gpu.image(src.shape())?;
//! let mut stream = gpu.stream()?;
//! plan.run_on_device(&src, &mut dst, &mut stream)?;
//! stream.synchronize()?;
//! let filtered: Image<f32> = gpu.download(&dst)?;
//! # Ok::<(), apron::Error>(())
//! ```
//!
//! A program can launch its own kernels on the same images and streams: see [`Function`].

mod arrays;
mod autotune;
mod band;
pub(crate) mod device;
mod driver;
pub(crate) mod each;
mod embedded;
pub(crate) mod engine;
pub(crate) mod flow;
mod graph;
mod host;
mod image;
pub(crate) mod lane;
pub(crate) mod launch;
mod link;
mod masked;
mod memory;
pub(crate) mod opening;
mod peak;
mod recorded;
pub(crate) mod stream;
pub(crate) mod taps;
mod timeline;
mod view;

pub(crate) use autotune::Tuned;
pub use device::{Gpu, Info, LoadedKernel};
pub use embedded::{Kernels, embedded, kernels_in_use, use_kernels};
pub use gpu_kernels::abi::Strides;
pub use host::HostImage;
pub use image::DeviceImage;
pub use kernel_builder::{Group, Kernel, Packed, Tier};
pub use launch::{Function, Grid};
#[doc(hidden)]
pub use link::LinkRates;
pub use masked::DeviceCoverage;
pub use recorded::Recorded;
pub use stream::{Mark, Stream};
#[doc(hidden)]
pub use timeline::{Span, Timeline, What};
pub use view::{DeviceView, DeviceViewMut};
