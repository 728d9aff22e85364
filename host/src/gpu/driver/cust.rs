//! Handles, by the crate cust. Each type and method is that of `handles.rs`.
//!
//! cust declares the driver's functions as external symbols, which `sys.rs` defines for it.

use std::ffi::c_void;

use cust::context::CurrentContext;
use cust::error::CudaError;
use cust::memory::{CopyDestination, DeviceBuffer, LockedBuffer};
use cust::module::Module;
use cust::stream::StreamFlags;

use super::answer::{Answer, Fault, check};
use super::device::Device;
use super::last_error::LAST_ERROR;
use super::launch::launch;
use super::sys::{self, Handle};

impl From<CudaError> for Fault {
    /// The error that cust has just returned on this thread.
    fn from(error: CudaError) -> Self {
        match LAST_ERROR.get() {
            0 => Self(error as u32),
            code => Self(code),
        }
    }
}

/// A device's primary context.
#[derive(Debug)]
pub(in crate::gpu) struct Context(cust::context::Context);

impl Context {
    pub(in crate::gpu) fn new(Device(device): Device) -> Answer<Self> {
        // A device is its ordinal.
        Ok(Self(cust::context::Context::new(cust::device::Device::get_device(device as u32)?)?))
    }

    pub(in crate::gpu) fn make_current(&self) -> Answer {
        Ok(CurrentContext::set_current(&self.0)?)
    }
}

/// A kernel. It stays loaded until the process ends.
#[derive(Clone, Copy, Debug)]
pub(in crate::gpu) struct Function(&'static cust::function::Function<'static>);

impl Function {
    pub(in crate::gpu) fn of_ptx(ptx: &str, entry: &str) -> Answer<Self> {
        Self::load(Module::from_ptx(ptx, &[])?, entry)
    }

    pub(in crate::gpu) fn of_machine_code(code: &[u8], entry: &str) -> Answer<Self> {
        Self::load(Module::from_cubin(code, &[])?, entry)
    }

    /// Modules are kept until the process ends, as the GPU is, so they are leaked once here rather
    /// than counted everywhere.
    fn load(module: Module, entry: &str) -> Answer<Self> {
        let module: &'static Module = Box::leak(Box::new(module));
        Ok(Self(Box::leak(Box::new(module.get_function(entry)?))))
    }

    pub(in crate::gpu) fn raw(self) -> Handle {
        self.0.to_raw().cast()
    }
}

/// A stream.
#[derive(Debug)]
pub(in crate::gpu) enum Queue {
    Own(cust::stream::Stream),
    /// Another library's, which cust cannot take.
    Foreign(Handle),
}

// SAFETY: a handle; the driver takes it from any thread.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Queue {
    pub(in crate::gpu) fn new() -> Answer<Self> {
        Ok(Self::Own(cust::stream::Stream::new(StreamFlags::NON_BLOCKING, None)?))
    }

    pub(in crate::gpu) fn foreign(stream: Handle) -> Self {
        Self::Foreign(stream)
    }

    pub(in crate::gpu) fn raw(&self) -> Handle {
        match self {
            Self::Own(stream) => stream.as_inner().cast(),
            Self::Foreign(stream) => *stream,
        }
    }

    pub(in crate::gpu) fn synchronize(&self) -> Answer {
        match self {
            Self::Own(stream) => Ok(stream.synchronize()?),
            // SAFETY: the stream is there, by the promise with which it was given.
            Self::Foreign(stream) => check(unsafe { sys::cuStreamSynchronize(*stream) }),
        }
    }

    /// # Safety
    /// As in `handles.rs`.
    pub(in crate::gpu) unsafe fn launch(
        &self,
        kernel: Function,
        blocks: (u32, u32, u32),
        block: (u32, u32, u32),
        shared: u32,
        arguments: &mut [*mut c_void],
    ) -> Answer {
        match self {
            Self::Own(stream) => {
                // SAFETY: by the caller's promise.
                Ok(unsafe { stream.launch(kernel.0, blocks, block, shared, arguments) }?)
            }
            // SAFETY: likewise.
            Self::Foreign(stream) => unsafe {
                launch(*stream, kernel.raw(), blocks, block, shared, arguments)
            },
        }
    }
}

/// Device memory of the context that was current, which must be when this is dropped: cust would
/// leak the memory else, without an error.
#[derive(Debug)]
pub(in crate::gpu) struct DeviceMemory(DeviceBuffer<u8>);

impl DeviceMemory {
    pub(in crate::gpu) fn new(bytes: usize) -> Answer<Self> {
        // SAFETY: who reads the memory has written it first.
        Ok(Self(unsafe { DeviceBuffer::uninitialized(bytes) }?))
    }

    pub(in crate::gpu) fn len(&self) -> usize {
        self.0.len()
    }

    pub(in crate::gpu) fn address(&self) -> u64 {
        self.0.as_device_ptr().as_raw()
    }

    pub(in crate::gpu) fn copy_from(&mut self, bytes: &[u8]) -> Answer {
        Ok(self.0.copy_from(bytes)?)
    }
}

/// Pinned host memory of the context that was current, which must be when this is dropped.
#[derive(Debug)]
pub(in crate::gpu) struct HostMemory(LockedBuffer<u8>);

impl HostMemory {
    pub(in crate::gpu) fn new(bytes: usize) -> Answer<Self> {
        // SAFETY: pinned memory comes from the driver, so its bytes have values.
        Ok(Self(unsafe { LockedBuffer::uninitialized(bytes) }?))
    }

    pub(in crate::gpu) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(in crate::gpu) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}
