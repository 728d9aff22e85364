#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

mod border;
mod cpu;
mod error;
mod filter;
#[cfg(feature = "gpu")]
pub mod gpu;
mod image;
#[cfg_attr(not(feature = "gpu"), allow(dead_code, unused_imports, reason = "nothing is launched without a GPU"))]
mod kernels;
mod memory;
mod plan;
mod progress;
mod round;
mod simd;
mod spectrum;
mod variant;
mod window;

pub use border::Border;
pub use error::{Error, Result, Why};
pub use filter::Filter;
pub use filter::parameters::{Parameter, Preset};
pub use half::f16;
#[cfg(feature = "image")]
pub use image::dynamic::filter;
pub use image::{AsImage, AsImageMut, Format, Image, ImageView, ImageViewMut, Layout, Pixel, Scalar, Shape};
pub use plan::{Candidate, Device, Gpus, Plan, PlanBuilder, RowSink, RowSource};
pub use progress::Progress;
pub use variant::{Family, Variant};
