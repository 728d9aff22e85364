//! The kernels. They run on the GPU: no standard library, and the functions of the crate `device`
//! instead.
#![no_std]
#![feature(abi_ptx)]

extern crate device;
mod saxpy;
