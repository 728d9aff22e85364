#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

mod accuracy;
mod alpha;
mod axes;
mod border;
mod cpu;
mod error;
mod extra;
mod filter;
#[cfg(feature = "gpu")]
pub mod gpu;
mod gradient;
mod image;
#[cfg_attr(
    not(feature = "gpu"),
    allow(dead_code, unused_imports, reason = "nothing is launched without a GPU")
)]
mod kernels;
mod light;
mod mask;
mod memory;
#[doc(hidden)]
pub mod passes;
mod pipeline;
mod plan;
#[cfg_attr(
    not(feature = "gpu"),
    allow(dead_code, reason = "GPUs have no problems without the feature")
)]
mod problem;
mod progress;
mod round;
mod simd;
#[cfg_attr(not(feature = "gpu"), allow(dead_code, reason = "a GPU alone folds tiles"))]
mod spectrum;
#[doc(hidden)]
pub mod threads;
mod variant;
#[cfg_attr(not(feature = "gpu"), allow(dead_code, reason = "a GPU alone multiplies digits"))]
mod whole;
mod window;

pub use accuracy::Accuracy;
pub use alpha::Alpha;
pub use axes::Axes;
pub use border::Border;
pub use error::{Error, Result, Why};
pub use extra::Extra;
pub use filter::parameters::{Need, Parameter, Preset};
pub use filter::{Filter, Form, RowAndColumn};
pub use gradient::Gradient;
pub use half::f16;
pub use image::convert::{AsImage, AsImageMut};
#[cfg(feature = "image")]
pub use image::dynamic::filter;
pub use image::{Format, Image, ImageView, ImageViewMut, Layout, Number, Pixel, Scalar, Shape};
pub use light::{Light, Transfer};
pub use mask::{Coverage, Mask, Nan};
pub use pipeline::Pipeline;
pub use plan::Plan;
pub use plan::adjoint::Adjoint;
pub use plan::auto::{CallEstimate, GpuEstimate, Work};
pub use plan::builder::PlanBuilder;
pub use plan::choose::Candidate;
pub use plan::device::{Device, Gpus};
pub use plan::each::Plans;
pub use plan::ran::Ran;
#[cfg(feature = "gpu")]
#[doc(hidden)]
pub use plan::schedule::FlowOptions;
pub use plan::step::Step;
pub use plan::streamed::{RowSink, RowSource};
pub use problem::machine::Bound;
pub use problem::model::GpuModel;
pub use progress::Progress;
pub use variant::{Family, Variant};
