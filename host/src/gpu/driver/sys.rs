//! The driver's functions, found in its library when first called. Signatures are those of
//! `cuda.h`, with numbers for its enumerations.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use libloading::Library;

#[cfg(windows)]
const LIBRARY: &str = "nvcuda.dll";
#[cfg(not(windows))]
const LIBRARY: &str = "libcuda.so.1";

/// The driver's library, or why it cannot be had. Looked for once.
pub(in crate::gpu) fn load() -> Result<&'static Library, String> {
    static DRIVER: OnceLock<Result<Library, String>> = OnceLock::new();
    let driver = DRIVER.get_or_init(|| {
        let library = std::env::var_os("APRON_DRIVER").unwrap_or_else(|| LIBRARY.into());
        // SAFETY: the driver's library may be loaded at any time; it stays loaded until the process
        // ends.
        unsafe { Library::new(&library) }.map_err(|error| {
            format!("the NVIDIA driver's library {} cannot be loaded ({error})", library.display())
        })
    });
    driver.as_ref().map_err(Clone::clone)
}

pub(in crate::gpu) type Device = c_int;
/// An address in device memory.
pub(in crate::gpu) type Address = u64;
/// What the driver knows an object by: its address, to a program without meaning.
pub(in crate::gpu) type Handle = *mut c_void;

/// `CU_MEMORYTYPE_HOST`.
pub(in crate::gpu) const MEMORY_HOST: c_uint = 1;
/// `CU_MEMORYTYPE_DEVICE`.
pub(in crate::gpu) const MEMORY_DEVICE: c_uint = 2;

/// `CU_MEM_ATTACH_HOST`.
pub(in crate::gpu) const ATTACH_HOST: c_uint = 2;
/// `CU_MEM_ATTACH_SINGLE`.
pub(in crate::gpu) const ATTACH_SINGLE: c_uint = 4;

/// `CUDA_MEMCPY2D`: rows of bytes, from where to where.
#[repr(C)]
#[derive(Debug)]
pub(in crate::gpu) struct Copy2D {
    pub(in crate::gpu) src_x: usize,
    pub(in crate::gpu) src_y: usize,
    pub(in crate::gpu) src_kind: c_uint,
    pub(in crate::gpu) src_host: *const c_void,
    pub(in crate::gpu) src_device: Address,
    pub(in crate::gpu) src_array: Handle,
    pub(in crate::gpu) src_pitch: usize,
    pub(in crate::gpu) dst_x: usize,
    pub(in crate::gpu) dst_y: usize,
    pub(in crate::gpu) dst_kind: c_uint,
    pub(in crate::gpu) dst_host: *mut c_void,
    pub(in crate::gpu) dst_device: Address,
    pub(in crate::gpu) dst_array: Handle,
    pub(in crate::gpu) dst_pitch: usize,
    pub(in crate::gpu) width: usize,
    pub(in crate::gpu) height: usize,
}

/// `CUDA_KERNEL_NODE_PARAMS` of CUDA 10 to 11, which the functions without a suffix take: a launch.
#[repr(C)]
#[derive(Debug)]
pub(in crate::gpu) struct KernelNode {
    pub(in crate::gpu) function: Handle,
    pub(in crate::gpu) blocks: [c_uint; 3],
    pub(in crate::gpu) block: [c_uint; 3],
    pub(in crate::gpu) shared: c_uint,
    pub(in crate::gpu) parameters: *mut *mut c_void,
    pub(in crate::gpu) extra: *mut *mut c_void,
}

/// `CUlaunchConfig`: a launch with attributes.
#[repr(C)]
#[derive(Debug)]
pub(in crate::gpu) struct LaunchConfig {
    pub(in crate::gpu) blocks: [c_uint; 3],
    pub(in crate::gpu) block: [c_uint; 3],
    pub(in crate::gpu) shared: c_uint,
    pub(in crate::gpu) stream: Handle,
    pub(in crate::gpu) attributes: *const LaunchAttribute,
    pub(in crate::gpu) count: c_uint,
}

/// `CUlaunchAttribute` whose value is a number.
#[repr(C, align(8))]
#[derive(Debug)]
pub(in crate::gpu) struct LaunchAttribute {
    pub(in crate::gpu) id: c_uint,
    pub(in crate::gpu) padding: [u8; 4],
    pub(in crate::gpu) value: c_int,
    pub(in crate::gpu) rest: [u8; 60],
}

/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`.
pub(in crate::gpu) const PROGRAMMATIC_STREAM_SERIALIZATION: c_uint = 6;

macro_rules! driver {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        $(
            /// # Safety
            /// As the driver's function of this name. Returns its error's number, or 0.
            $(#[$attribute])*
            #[allow(non_snake_case, clippy::too_many_arguments, reason = "it is that of `cuda.h`")]
            pub(in crate::gpu) unsafe fn $name($($argument: $type),*) -> u32 {
                const NO_DEVICE: u32 = 100;
                const NOT_FOUND: u32 = 500;
                type Function = unsafe extern "C" fn($($type),*) -> u32;
                static FUNCTION: OnceLock<Option<Function>> = OnceLock::new();
                let function = FUNCTION.get_or_init(|| {
                    // SAFETY: the type is the one that NVIDIA documents for this name, with the
                    // result as a number.
                    unsafe { load().ok()?.get::<Function>(stringify!($name).as_bytes()).ok().map(|symbol| *symbol) }
                });
                match function {
                    // SAFETY: the caller keeps to the function's contract.
                    Some(function) => unsafe { function($($argument),*) },
                    None if load().is_ok() => NOT_FOUND,
                    None => NO_DEVICE,
                }
            }
        )*

        /// The symbols that cust links with: it declares the driver's functions as external.
        #[cfg(feature = "cust")]
        mod symbols {
            use super::*;

            $(
                /// # Safety
                /// As the driver's function of this name.
                #[unsafe(no_mangle)]
                unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
                    // SAFETY: the caller keeps to the function's contract.
                    super::super::last_error::told(unsafe { super::$name($($argument),*) })
                }
            )*
        }
    };
}

// A function is added when the compiler, or for cust the linker, asks for it. Some are cust's
// alone, and two for textures are called by the package studies: a symbol is defined once in a
// program.
driver! {
    fn cuInit(flags: c_uint);
    fn cuDriverGetVersion(version: *mut c_int);
    fn cuGetErrorString(error: u32, text: *mut *const c_char);
    fn cuGetErrorName(error: u32, text: *mut *const c_char);
    fn cuDeviceGet(device: *mut Device, ordinal: c_int);
    fn cuDeviceGetCount(count: *mut c_int);
    fn cuDeviceGetName(name: *mut c_char, length: c_int, device: Device);
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: Device);
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: Device);
    fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: Device);
    fn cuDevicePrimaryCtxRelease_v2(device: Device);
    fn cuCtxSetCurrent(context: Handle);
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    fn cuMemAlloc_v2(address: *mut Address, bytes: usize);
    fn cuMemFree_v2(address: Address);
    fn cuMemAllocHost_v2(pointer: *mut *mut c_void, bytes: usize);
    fn cuMemFreeHost(pointer: *mut c_void);
    fn cuMemAllocManaged(address: *mut Address, bytes: usize, flags: c_uint);
    fn cuStreamAttachMemAsync(stream: Handle, address: Address, bytes: usize, flags: c_uint);
    fn cuMemcpyHtoD_v2(to: Address, from: *const c_void, bytes: usize);
    fn cuMemcpyDtoDAsync_v2(to: Address, from: Address, bytes: usize, stream: Handle);
    fn cuMemcpy2DAsync_v2(copy: *const Copy2D, stream: Handle);
    fn cuMemsetD32Async(to: Address, word: c_uint, words: usize, stream: Handle);
    fn cuModuleLoadDataEx(module: *mut Handle, image: *const c_void, count: c_uint, options: *mut c_uint, values: *mut *mut c_void);
    #[cfg_attr(not(feature = "cust"), allow(dead_code))]
    fn cuModuleUnload(module: Handle);
    fn cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char);
    fn cuFuncGetAttribute(value: *mut c_int, attribute: c_uint, function: Handle);
    fn cuFuncSetAttribute(function: Handle, attribute: c_uint, value: c_int);
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut c_int, function: Handle, threads: c_int, shared: usize);
    fn cuLaunchKernelEx(config: *const LaunchConfig, function: Handle, parameters: *mut *mut c_void, extra: *mut *mut c_void);
    fn cuLaunchKernel(function: Handle, blocks_x: c_uint, blocks_y: c_uint, blocks_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, shared: c_uint, stream: Handle, parameters: *mut *mut c_void, extra: *mut *mut c_void);
    #[cfg_attr(not(feature = "cust"), allow(dead_code))]
    fn cuTexObjectCreate(object: *mut u64, resource: *const c_void, texture: *const c_void, view: *const c_void);
    #[cfg_attr(not(feature = "cust"), allow(dead_code))]
    fn cuTexObjectDestroy(object: u64);
    fn cuStreamCreateWithPriority(stream: *mut Handle, flags: c_uint, priority: c_int);
    fn cuStreamSynchronize(stream: Handle);
    fn cuStreamDestroy_v2(stream: Handle);
    fn cuGraphCreate(graph: *mut Handle, flags: c_uint);
    fn cuGraphAddKernelNode(node: *mut Handle, graph: Handle, dependencies: *const Handle, count: usize, parameters: *const KernelNode);
    fn cuGraphInstantiate_v2(ready: *mut Handle, graph: Handle, node: *mut Handle, log: *mut c_char, length: usize);
    fn cuGraphDestroy(graph: Handle);
    fn cuGraphLaunch(ready: Handle, stream: Handle);
    fn cuGraphExecDestroy(ready: Handle);
    fn cuEventCreate(event: *mut Handle, flags: c_uint);
    fn cuEventRecord(event: Handle, stream: Handle);
    fn cuEventSynchronize(event: Handle);
    fn cuEventElapsedTime(milliseconds: *mut f32, start: Handle, end: Handle);
    fn cuEventDestroy_v2(event: Handle);
}

#[cfg(all(test, feature = "cust"))]
mod tests {
    use cust::sys;

    use super::*;

    /// What is passed by pointer is laid out as the driver's headers say, from which cust's types
    /// are made.
    #[test]
    fn structures_are_those_of_the_headers() {
        use std::mem::offset_of;
        assert_eq!(size_of::<Copy2D>(), size_of::<sys::CUDA_MEMCPY2D>());
        assert_eq!(offset_of!(Copy2D, src_pitch), offset_of!(sys::CUDA_MEMCPY2D, srcPitch));
        assert_eq!(offset_of!(Copy2D, dst_kind), offset_of!(sys::CUDA_MEMCPY2D, dstMemoryType));
        assert_eq!(offset_of!(Copy2D, dst_device), offset_of!(sys::CUDA_MEMCPY2D, dstDevice));
        assert_eq!(offset_of!(Copy2D, height), offset_of!(sys::CUDA_MEMCPY2D, Height));
        assert_eq!(size_of::<KernelNode>(), size_of::<sys::CUDA_KERNEL_NODE_PARAMS>());
        assert_eq!(
            offset_of!(KernelNode, block),
            offset_of!(sys::CUDA_KERNEL_NODE_PARAMS, blockDimX)
        );
        assert_eq!(
            offset_of!(KernelNode, parameters),
            offset_of!(sys::CUDA_KERNEL_NODE_PARAMS, kernelParams)
        );
        assert_eq!(MEMORY_HOST, sys::CUmemorytype::CU_MEMORYTYPE_HOST as u32);
        assert_eq!(MEMORY_DEVICE, sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as u32);
    }
}
