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

#[cfg(feature = "cust")]
mod cust;
#[cfg(not(feature = "cust"))]
mod handles;
pub(super) mod sys;

use std::ffi::{CStr, c_char, c_void};

#[cfg(feature = "cust")]
pub(super) use cust::{Context, DeviceMemory, Function, HostMemory, Queue};
#[cfg(not(feature = "cust"))]
pub(super) use handles::{Context, DeviceMemory, Function, HostMemory, Queue};
pub(super) use sys::load;

/// What the driver answers a call: its error's number, if it failed.
pub(super) type Answer<T = ()> = Result<T, Fault>;

/// An error's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault(u32);

impl Fault {
    pub(super) const OUT_OF_MEMORY: Self = Self(2);
    pub(super) const NO_DEVICE: Self = Self(100);
}

/// The driver's message for an error.
pub(super) fn message(Fault(code): Fault) -> String {
    type Ask = unsafe fn(u32, *mut *const c_char) -> u32;
    let describe = |ask: Ask| {
        let mut text = std::ptr::null();
        // SAFETY: both functions return static strings.
        unsafe {
            (ask(code, &mut text) == 0 && !text.is_null())
                .then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    };
    match (describe(sys::cuGetErrorString), describe(sys::cuGetErrorName)) {
        (Some(words), Some(name)) => format!("{words} ({name})"),
        _ => format!("error {code}"),
    }
}

/// A call's result.
pub(super) fn check(code: u32) -> Answer {
    if code == 0 { Ok(()) } else { Err(Fault(code)) }
}

/// Starts the driver, and counts the devices.
pub(super) fn device_count() -> Answer<u32> {
    let mut count = 0;
    // SAFETY: the pointer is to a local.
    unsafe {
        check(sys::cuInit(0))?;
        check(sys::cuDeviceGetCount(&mut count))?;
    }
    Ok(count as u32)
}

/// The newest version of CUDA that the driver knows: major and minor.
pub(super) fn version() -> Answer<(u32, u32)> {
    let mut version = 0;
    // SAFETY: the pointer is to a local.
    check(unsafe { sys::cuDriverGetVersion(&mut version) })?;
    Ok((version as u32 / 1000, version as u32 % 1000 / 10))
}

/// Bytes of memory of the device that is current: those that are free, and all.
pub(super) fn memory() -> Answer<(u64, u64)> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the pointers are to locals.
    check(unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
    Ok((free as u64, total as u64))
}

/// A device, by the driver's number for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Device(sys::Device);

impl Device {
    pub(super) fn new(ordinal: u32) -> Answer<Self> {
        let mut device = 0;
        // SAFETY: the pointer is to a local.
        check(unsafe { sys::cuDeviceGet(&mut device, ordinal as i32) })?;
        Ok(Self(device))
    }

    pub(super) fn name(self) -> Answer<String> {
        let mut name = [0u8; 128];
        // SAFETY: as many bytes as the driver is told; the last one stays 0.
        check(unsafe {
            sys::cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as i32 - 1, self.0)
        })?;
        let text = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }

    /// Bytes of its memory.
    pub(super) fn memory(self) -> Answer<u64> {
        let mut bytes = 0;
        // SAFETY: the pointer is to a local.
        check(unsafe { sys::cuDeviceTotalMem_v2(&mut bytes, self.0) })?;
        Ok(bytes as u64)
    }

    pub(super) fn attribute(self, attribute: DeviceAttribute) -> Answer<u32> {
        let mut value = 0;
        // SAFETY: the pointer is to a local.
        check(unsafe { sys::cuDeviceGetAttribute(&mut value, attribute as u32, self.0) })?;
        Ok(value as u32)
    }
}

/// Numbers of `CUdevice_attribute`.
#[derive(Clone, Copy, Debug)]
pub(super) enum DeviceAttribute {
    MaxGridDimY = 6,
    MaxPitch = 11,
    MultiprocessorCount = 16,
    MemoryClockRate = 36,
    GlobalMemoryBusWidth = 37,
    L2CacheSize = 38,
    ComputeCapabilityMajor = 75,
    ComputeCapabilityMinor = 76,
    MaxSharedMemoryPerBlockOptin = 97,
}

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

/// Puts a kernel into a stream.
///
/// # Safety
/// The stream is there. `arguments` are those that the kernel takes; they are copied before the
/// call returns. The kernel's contract allows such blocks, with so many threads and bytes of shared
/// memory.
unsafe fn launch(
    stream: sys::Handle,
    kernel: Function,
    (x, y, z): (u32, u32, u32),
    block: (u32, u32, u32),
    shared: u32,
    arguments: &mut [*mut c_void],
) -> Answer {
    let (arguments, extra) = (arguments.as_mut_ptr(), std::ptr::null_mut());
    // SAFETY: by the caller's promise; a kernel stays loaded.
    check(unsafe {
        sys::cuLaunchKernel(
            kernel.raw(),
            x,
            y,
            z,
            block.0,
            block.1,
            block.2,
            shared,
            stream,
            arguments,
            extra,
        )
    })
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
