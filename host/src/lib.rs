#![doc = include_str!("../../README.md")]

mod border;
mod choice;
mod cpu;
mod error;
mod filter;
#[cfg(feature = "gpu")]
pub mod gpu;
mod image;
mod memory;
mod plan;
mod round;
mod simd;
mod spectrum;
#[cfg_attr(not(feature = "gpu"), allow(dead_code, reason = "the choice of a variant needs only a part of it"))]
mod tuning;
mod variants;
mod window;

pub use border::Border;
pub use choice::Candidate;
pub use error::{Error, Result};
pub use filter::Filter;
pub use filter::parameters::{Parameter, Preset};
pub use half::f16;
pub use image::dynamic::filter;
pub use image::{Format, Image, ImageView, ImageViewMut, Layout, Pixel, Scalar, Shape};
pub use plan::{Device, Plan, PlanBuilder};
pub use variants::{Family, Variant};
