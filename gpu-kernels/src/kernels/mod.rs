//! The kernels, a file for each family. Each opens with its contract: tiling, thread mapping, order of accumulation, limits.

pub mod alike;
pub mod counted;
pub mod direct;
pub mod flat;
pub mod fourier;
pub mod fused;
pub mod gradient;
pub mod keep;
pub mod matrix;
pub mod means;
pub mod padded;
pub mod passes;
pub mod peak;
pub mod running_sums;
pub mod separable;
pub mod separable_matrix;
pub mod settle;
pub mod sliding;
pub mod summed;
pub mod ties;
pub mod weighted;
pub mod wide;
