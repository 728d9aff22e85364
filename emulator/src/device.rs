//! The device layer of `gpu-kernels/src/device` for the emulator: every function calls the emulated machine, which checks it.
//!
//! Each function of `nvptx.rs` there is here too, with the same contract. `#[track_caller]` lets a finding name the line
//! of the kernel.

use crate::machine::{self, Pause, Via};

#[path = "../../gpu-kernels/src/device/taps.rs"]
mod taps;

pub(crate) use taps::*;

/// Declares kernel entries: plain functions, and a row for each in the table that launches look into.
macro_rules! kernel {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        $(#[$attribute])*
        unsafe fn $name($($argument: $type),*) {
            // SAFETY: the emulator is told to launch what the host's typed launchers launch.
            unsafe { $body }
        }

        inventory::submit! {
            $crate::machine::Entry {
                name: stringify!($name),
                parameters: &[$(size_of::<$type>()),*],
                run: {
                    unsafe fn run(mut parameters: $crate::machine::Parameters) {
                        // SAFETY: the launch passes what the entry takes.
                        unsafe {
                            $(let $argument: $type = parameters.next();)*
                            $name($($argument),*);
                        }
                    }
                    run
                },
            }
        }
    )*};
}

/// Directives for the assembler: the launch is checked against a greatest number of threads.
macro_rules! directive {
    ($directive:literal) => {
        $crate::machine::directive($directive)
    };
}

/// By-value parameter number `index` of the kernel named, for [`Parameter`].
macro_rules! parameter {
    ($kernel:ident, $index:literal, $argument:ident) => {
        $crate::device::Parameter::new(&$argument)
    };
}

/// Lists of entries are the launching host's: entries are found by name here.
macro_rules! host {
    ($($item:item)*) => {};
}

pub(crate) use {directive, host, kernel, parameter};

pub(crate) fn thread_x() -> i32 {
    machine::here().thread().0
}

pub(crate) fn thread_y() -> i32 {
    machine::here().thread().1
}

pub(crate) fn block_x() -> i32 {
    machine::here().block().0
}

pub(crate) fn block_y() -> i32 {
    machine::here().block().1
}

pub(crate) fn block_z() -> i32 {
    machine::here().block().2
}

pub(crate) fn block_width() -> i32 {
    machine::here().block_size().0
}

pub(crate) fn block_height() -> i32 {
    machine::here().block_size().1
}

pub(crate) fn grid_width() -> i32 {
    machine::here().grid_width()
}

pub(crate) fn grid_height() -> i32 {
    machine::here().grid_height()
}

#[track_caller]
pub(crate) unsafe fn barrier() {
    machine::here().wait(Pause::Block { flag: false });
}

#[track_caller]
pub(crate) unsafe fn barrier_or(flag: bool) -> bool {
    machine::here().wait(Pause::Block { flag })
}

#[track_caller]
pub(crate) fn warp_barrier() {
    machine::here().wait(Pause::Warp);
}

pub(crate) fn first_tap() -> usize {
    0
}

pub(crate) fn fma(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}

pub(crate) fn fma_in_place(a: f32, b: f32, c: f32) -> f32 {
    fma(a, b, c)
}

pub(crate) fn mul24(a: i32, b: i32) -> i32 {
    let low = |value: i32| i64::from(value << 8 >> 8);
    (low(a) * low(b)) as i32
}

pub(crate) fn opaque(value: i32) -> i32 {
    value
}

pub(crate) fn mul_wide(a: i32, b: i32) -> i64 {
    i64::from(a) * i64::from(b)
}

#[track_caller]
pub(crate) unsafe fn load(base: *const f32, index: usize) -> f32 {
    let [value] = machine::here().load(base.wrapping_add(index).addr(), Via::ReadOnly);
    value
}

#[track_caller]
pub(crate) unsafe fn load2(base: *const f32, index: usize) -> [f32; 2] {
    machine::here().load(base.wrapping_add(index).addr(), Via::ReadOnly)
}

#[track_caller]
pub(crate) unsafe fn reload(base: *const f32, index: usize) -> f32 {
    let [value] = machine::here().load(base.wrapping_add(index).addr(), Via::Plain);
    value
}

#[track_caller]
pub(crate) unsafe fn store(base: *mut f32, index: usize, value: f32) {
    machine::here().store(base.wrapping_add(index).addr(), [value]);
}

#[track_caller]
pub(crate) unsafe fn store_run<const PX: usize>(base: *mut f32, index: usize, values: [f32; PX]) {
    machine::here().store(base.wrapping_add(index).addr(), values);
}

#[track_caller]
pub(crate) fn copies_commit() {
    machine::here().copies_commit();
}

#[track_caller]
pub(crate) fn copies_wait<const N: i32>() {
    machine::here().copies_wait(N as usize);
}

/// The block's dynamic shared memory, as an array of f32.
#[derive(Clone, Copy)]
pub(crate) struct Shared(());

impl Shared {
    pub(crate) fn dynamic() -> Self {
        Self(())
    }

    #[track_caller]
    pub(crate) unsafe fn load(self, index: i32) -> f32 {
        let [value] = machine::here().load_shared(index);
        value
    }

    #[track_caller]
    pub(crate) unsafe fn load2(self, index: i32) -> [f32; 2] {
        machine::here().load_shared(index)
    }

    #[track_caller]
    pub(crate) unsafe fn load4(self, index: i32) -> [f32; 4] {
        machine::here().load_shared(index)
    }

    #[track_caller]
    pub(crate) unsafe fn copy4(self, index: i32, from: *const f32) {
        machine::here().copy::<4>(index, from.addr());
    }

    #[track_caller]
    pub(crate) unsafe fn copy1(self, index: i32, from: *const f32) {
        machine::here().copy::<1>(index, from.addr());
    }

    #[track_caller]
    pub(crate) unsafe fn store(self, index: i32, value: f32) {
        machine::here().store_shared(index, [value]);
    }

    #[track_caller]
    pub(crate) unsafe fn store2(self, index: i32, values: [f32; 2]) {
        machine::here().store_shared(index, values);
    }
}

/// A by-value array parameter of the kernel. Made by the macro `parameter!`.
#[derive(Clone, Copy)]
pub(crate) struct Parameter {
    first: *const f32,
    len: usize,
}

impl Parameter {
    pub(crate) fn new<T>(value: &T) -> Self {
        Self { first: (&raw const *value).cast(), len: size_of::<T>() / 4 }
    }

    pub(crate) fn advanced(self, count: usize) -> Self {
        Self { first: self.first.wrapping_add(count), len: self.len.saturating_sub(count) }
    }

    #[track_caller]
    pub(crate) unsafe fn load(self, index: usize) -> f32 {
        if index >= self.len {
            machine::here().fault(format!("reads tap {index} of a parameter that holds {}", self.len));
        }
        // SAFETY: inside the parameter, which the kernel holds.
        unsafe { *self.first.add(index) }
    }
}

/// A texture object over one plane of f32 pixels: the address of the emulated driver's own.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Texture(u64);

impl Texture {
    #[track_caller]
    pub(crate) unsafe fn fetch(self, x: f32, y: f32) -> f32 {
        // SAFETY: the driver made it, and keeps it until it is destroyed, which the host does when the stream is done.
        let texture = unsafe { &*(self.0 as usize as *const crate::texture::Texture) };
        match texture.at(x, y) {
            Ok(address) => {
                let [value] = machine::here().load(address, Via::ReadOnly);
                value
            }
            Err(outside) => outside,
        }
    }
}
