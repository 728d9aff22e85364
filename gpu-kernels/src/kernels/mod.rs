//! The kernels, a file for each family. Each opens with its contract: tiling, thread mapping, order
//! of accumulation, limits.

pub mod arrays;
pub mod direct;
pub mod exactly;
pub mod flat;
pub mod fourier;
pub mod fused;
pub mod gradient;
pub mod keep;
pub mod known;
pub mod light;
pub mod matrix;
pub mod passes;
pub mod peak;
pub mod resolve;
pub mod running_sums;
pub mod separable;
pub mod separable_any;
pub mod separable_matrix;
pub mod separable_tile;
pub mod sliding;
pub mod summed;
pub mod weighted;
