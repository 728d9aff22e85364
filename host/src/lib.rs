#![doc = include_str!("../../README.md")]

// The tool is written as any program that uses the library.
#[cfg(feature = "cli")]
extern crate self as apron;

mod border;
mod choice;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
mod cpu;
mod dynamic;
mod error;
mod filter;
#[cfg(feature = "gpu")]
pub mod gpu;
mod image;
mod memory;
#[cfg(feature = "gpu")]
mod pixels;
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
pub use dynamic::filter;
pub use error::{Error, Result};
pub use filter::{Filter, Parameter, Preset};
pub use half::f16;
pub use image::{Image, ImageView, ImageViewMut, Pixel, Shape};
pub use plan::{Device, Plan, PlanBuilder};
pub use variants::{Family, Variant};
