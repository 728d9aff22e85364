//! Handles, by the driver's own functions.

use std::ffi::{CString, c_uint, c_void};

use super::answer::{Answer, Fault, check};
use super::device::Device;
use super::launch::launch;
use super::sys::{self, Handle};

const INVALID_VALUE: Fault = Fault(1);

/// A device's primary context.
#[derive(Debug)]
pub(in crate::gpu) struct Context {
    device: sys::Device,
    context: Handle,
}

// SAFETY: a handle; the driver takes it from any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Retains it; it is current on this thread afterwards.
    pub(in crate::gpu) fn new(Device(device): Device) -> Answer<Self> {
        let mut context = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        check(unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) })?;
        let context = Self { device, context };
        context.make_current()?;
        Ok(context)
    }

    pub(in crate::gpu) fn make_current(&self) -> Answer {
        // SAFETY: the context is retained.
        check(unsafe { sys::cuCtxSetCurrent(self.context) })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once, and released once.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// A kernel. It stays loaded until the process ends.
#[derive(Clone, Copy, Debug)]
pub(in crate::gpu) struct Function(Handle);

// SAFETY: a handle; the driver takes it from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    /// An entry of a PTX module, which the driver compiles.
    pub(in crate::gpu) fn of_ptx(ptx: &str, entry: &str) -> Answer<Self> {
        Self::load(ptx.as_bytes(), entry)
    }

    /// An entry of a module of machine code.
    pub(in crate::gpu) fn of_machine_code(code: &[u8], entry: &str) -> Answer<Self> {
        Self::load(code, entry)
    }

    fn load(image: &[u8], entry: &str) -> Answer<Self> {
        let name = CString::new(entry).map_err(|_| INVALID_VALUE)?;
        // PTX ends with a zero byte; machine code tells its length, and takes no harm from one.
        let image = [image, &[0]].concat();
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        let none = std::ptr::null_mut();
        // SAFETY: the image is complete, as PTX or as machine code must be, and there are no
        // options; the name is a string. The module is never unloaded, so neither is its function.
        unsafe {
            check(sys::cuModuleLoadDataEx(
                &mut module,
                image.as_ptr().cast(),
                0,
                none,
                none.cast(),
            ))?;
            check(sys::cuModuleGetFunction(&mut function, module, name.as_ptr()))?;
        }
        Ok(Self(function))
    }

    pub(in crate::gpu) fn raw(self) -> Handle {
        self.0
    }
}

/// A stream.
#[derive(Debug)]
pub(in crate::gpu) struct Queue {
    stream: Handle,
    /// Whether it is another library's, which destroys it.
    foreign: bool,
}

// SAFETY: a handle; the driver takes it from any thread.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Queue {
    /// A stream of the context that is current.
    pub(in crate::gpu) fn new() -> Answer<Self> {
        const NON_BLOCKING: c_uint = 1;
        let mut stream = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        check(unsafe { sys::cuStreamCreateWithPriority(&mut stream, NON_BLOCKING, 0) })?;
        Ok(Self { stream, foreign: false })
    }

    /// Another library's stream.
    pub(in crate::gpu) fn foreign(stream: Handle) -> Self {
        Self { stream, foreign: true }
    }

    pub(in crate::gpu) fn raw(&self) -> Handle {
        self.stream
    }

    /// Waits for its work.
    pub(in crate::gpu) fn synchronize(&self) -> Answer {
        // SAFETY: the stream is there.
        check(unsafe { sys::cuStreamSynchronize(self.stream) })
    }

    /// Puts a kernel into it.
    ///
    /// # Safety
    /// `arguments` are those that the kernel takes; they are copied before the call returns. The
    /// kernel's contract allows such blocks, with so many threads and bytes of shared memory.
    pub(in crate::gpu) unsafe fn launch(
        &self,
        kernel: Function,
        blocks: (u32, u32, u32),
        block: (u32, u32, u32),
        shared: u32,
        arguments: &mut [*mut c_void],
    ) -> Answer {
        // SAFETY: by the caller's promise; the stream is there.
        unsafe { launch(self.stream, kernel.raw(), blocks, block, shared, arguments) }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if !self.foreign {
            // SAFETY: nobody else has it. The driver lets its work finish first.
            unsafe { sys::cuStreamDestroy_v2(self.stream) };
        }
    }
}

/// Device memory of the context that was current, which must be when this is dropped.
#[derive(Debug)]
pub(in crate::gpu) struct DeviceMemory {
    address: sys::Address,
    bytes: usize,
}

impl DeviceMemory {
    /// So many bytes, their values unspecified.
    pub(in crate::gpu) fn new(bytes: usize) -> Answer<Self> {
        let mut address = 0;
        if bytes > 0 {
            // SAFETY: the pointer is to a local.
            check(unsafe { sys::cuMemAlloc_v2(&mut address, bytes) })?;
        }
        Ok(Self { address, bytes })
    }

    pub(in crate::gpu) fn len(&self) -> usize {
        self.bytes
    }

    pub(in crate::gpu) fn address(&self) -> u64 {
        self.address
    }

    /// Copies as many bytes into it as it has. The copy may still be on its way when the call
    /// returns.
    pub(in crate::gpu) fn copy_from(&mut self, bytes: &[u8]) -> Answer {
        assert_eq!(bytes.len(), self.bytes, "as many bytes as the memory has");
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: both places have so many bytes.
        check(unsafe { sys::cuMemcpyHtoD_v2(self.address, bytes.as_ptr().cast(), bytes.len()) })
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: nobody else has it. The driver frees it when the device is done with it.
            unsafe { sys::cuMemFree_v2(self.address) };
        }
    }
}

/// Pinned host memory of the context that was current, which must be when this is dropped.
#[derive(Debug)]
pub(in crate::gpu) struct HostMemory {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: owned memory; it may be read and freed by any thread.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// So many bytes, at least one, their values unspecified.
    pub(in crate::gpu) fn new(bytes: usize) -> Answer<Self> {
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let mut start = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        check(unsafe { sys::cuMemAllocHost_v2(&mut start, bytes) })?;
        Ok(Self { start: start.cast(), bytes })
    }

    pub(in crate::gpu) fn bytes(&self) -> &[u8] {
        // SAFETY: so many bytes, which the driver has mapped with values, and which are this
        // object's.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }

    pub(in crate::gpu) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        unsafe { sys::cuMemFreeHost(self.start.cast()) };
    }
}
