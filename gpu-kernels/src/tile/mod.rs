//! What kernels of several families share: the way from an image to registers or shared memory and
//! back.

pub mod flat;
pub mod parted;
pub mod ring;
pub mod strip;
pub(crate) mod unrolled;
pub(crate) mod view;
pub mod whole;
