//! The kernels. They run on the GPU: without the standard library, but with the functions of the
//! crate `device`.
#![no_std]
#![feature(abi_ptx)]

extern crate device;
mod saxpy;
