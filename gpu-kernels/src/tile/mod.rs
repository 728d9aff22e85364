//! Code that several kernel families share: moving pixels between an image and registers or shared
//! memory.

pub mod flat;
pub mod planar;
pub mod ring;
pub mod strip;
pub(crate) mod unrolled;
pub(crate) mod view;
pub mod whole;
