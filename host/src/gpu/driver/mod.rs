//! NVIDIA's driver: the one interface to it that the rest of `gpu` uses.
//!
//! `sys.rs` finds the driver's functions when the program runs, so a program builds with no CUDA
//! installed and starts with no driver. What has a handle (a context, a kernel, a stream, memory)
//! is made, launched and freed by one of two files, which have the same types: `handles.rs` calls
//! those functions directly; with the feature `cust`, `cust.rs` leaves it to that crate. The rest
//! is here and is the same with both: events, questions about a device, and errors.
//!
//! Where the environment variable `APRON_DRIVER` names a library, that one is loaded instead: the
//! tests' emulator, say.

mod answer;
#[cfg(feature = "cust")]
mod cust;
mod device;
#[cfg(not(feature = "cust"))]
mod handles;
#[cfg(feature = "cust")]
mod last_error;
mod launch;
pub(super) mod sys;

use std::ffi::c_void;

pub(super) use answer::{Answer, Fault, check, message};
#[cfg(feature = "cust")]
pub(super) use cust::{Context, DeviceMemory, Function, HostMemory, Queue};
pub(super) use device::{Device, DeviceAttribute, device_count, memory, version};
#[cfg(not(feature = "cust"))]
pub(super) use handles::{Context, DeviceMemory, Function, HostMemory, Queue};
pub(super) use sys::load;

/// Numbers of `CUfunction_attribute`.
#[derive(Clone, Copy, Debug)]
pub(super) enum FunctionAttribute {
    LocalSizeBytes = 3,
    NumRegs = 4,
    /// The architecture that the function was compiled for first, such as 90.
    PtxVersion = 5,
    MaxDynamicSharedSizeBytes = 8,
}

impl Function {
    pub(super) fn attribute(self, attribute: FunctionAttribute) -> Answer<u32> {
        let mut value = 0;
        // SAFETY: a function stays loaded; the pointer is to a local.
        check(unsafe { sys::cuFuncGetAttribute(&mut value, attribute as u32, self.raw()) })?;
        Ok(value as u32)
    }

    /// Allows its blocks so many bytes of dynamic shared memory.
    pub(super) fn allow_shared_memory(self, bytes: usize) -> Answer {
        let attribute = FunctionAttribute::MaxDynamicSharedSizeBytes as u32;
        // SAFETY: a function stays loaded; the driver checks the value.
        check(unsafe { sys::cuFuncSetAttribute(self.raw(), attribute, bytes as i32) })
    }

    /// How many of its blocks a multiprocessor runs at a time.
    pub(super) fn blocks_per_multiprocessor(self, threads: u32, shared: u32) -> Answer<u32> {
        let mut blocks = 0;
        // SAFETY: a function stays loaded; the pointer is to a local.
        check(unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                self.raw(),
                threads as i32,
                shared as usize,
            )
        })?;
        Ok(blocks as u32)
    }
}

impl Queue {
    /// As [`Queue::launch`], but the kernel may begin before those ahead of it have ended.
    ///
    /// # Safety
    /// As for [`Queue::launch`]; the kernel waits for those ahead before it touches memory.
    pub(super) unsafe fn launch_early(
        &self,
        kernel: Function,
        (x, y, z): (u32, u32, u32),
        block: (u32, u32, u32),
        shared: u32,
        arguments: &mut [*mut c_void],
    ) -> Answer {
        let id = sys::PROGRAMMATIC_STREAM_SERIALIZATION;
        let attribute = sys::LaunchAttribute { id, padding: [0; 4], value: 1, rest: [0; 60] };
        let (blocks, block, stream) = ([x, y, z], block.into(), self.raw());
        let config =
            sys::LaunchConfig { blocks, block, shared, stream, attributes: &attribute, count: 1 };
        let (arguments, extra) = (arguments.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: by the caller's promise; the stream is there, a kernel stays loaded, and the
        // pointers are to locals.
        check(unsafe { sys::cuLaunchKernelEx(&config, kernel.raw(), arguments, extra) })
    }
}

/// Memory that the host uses while a stream has no work, and the stream's kernels else, at the same
/// address. Its context was current, and must be when this is dropped.
#[derive(Debug)]
pub(super) struct ManagedMemory {
    address: sys::Address,
    bytes: usize,
}

impl ManagedMemory {
    /// So many bytes, at least one, their values unspecified.
    pub(super) fn new(bytes: usize, queue: &Queue) -> Answer<Self> {
        let mut address = 0;
        // SAFETY: the pointer is to a local.
        check(unsafe { sys::cuMemAllocManaged(&mut address, bytes, sys::ATTACH_HOST) })?;
        let memory = Self { address, bytes };
        // By default, many GPUs forbid the host to use managed memory while any of their kernels
        // runs.
        // SAFETY: the memory is managed, all of it is meant, and the stream is there.
        check(unsafe { sys::cuStreamAttachMemAsync(queue.raw(), address, 0, sys::ATTACH_SINGLE) })?;
        queue.synchronize()?;
        Ok(memory)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: so many bytes, which the driver has mapped with values, and which are this
        // object's.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.bytes) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.bytes) }
    }
}

impl Drop for ManagedMemory {
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        unsafe { sys::cuMemFree_v2(self.address) };
    }
}

/// A moment in a stream.
#[derive(Debug)]
pub(super) struct Event(sys::Handle);

// SAFETY: a handle; the driver takes it from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// The moment at which the stream's work up to here will be done.
    pub(super) fn in_stream(queue: &Queue) -> Answer<Self> {
        let mut event = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        check(unsafe { sys::cuEventCreate(&mut event, 0) })?;
        let event = Self(event);
        // SAFETY: event and stream are there.
        check(unsafe { sys::cuEventRecord(event.0, queue.raw()) })?;
        Ok(event)
    }

    /// Milliseconds from another event to this one; waits for this one.
    pub(super) fn since(&self, start: &Self) -> Answer<f32> {
        let mut milliseconds = 0.0;
        // SAFETY: both events are there; the pointer is to a local.
        unsafe {
            check(sys::cuEventSynchronize(self.0))?;
            check(sys::cuEventElapsedTime(&mut milliseconds, start.0, self.0))?;
        }
        Ok(milliseconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        unsafe { sys::cuEventDestroy_v2(self.0) };
    }
}
