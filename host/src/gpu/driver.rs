//! NVIDIA's driver, found when the program runs.
//!
//! cust declares the driver's functions as external symbols. They are defined here: each finds the real one in the
//! driver's library when first called, and passes the call on. So one program builds with no CUDA installed and starts
//! with no driver. A function is added to the list when the linker asks for it.
//!
//! Where the environment variable `APRON_DRIVER` names a library, that one is loaded instead: the tests' emulator, say.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use cust::error::{CudaError, CudaResult};
use cust::sys::*;
use libloading::Library;

#[cfg(windows)]
const LIBRARY: &str = "nvcuda.dll";
#[cfg(not(windows))]
const LIBRARY: &str = "libcuda.so.1";

/// The driver's library, or why it cannot be had. Looked for once.
pub(super) fn load() -> Result<&'static Library, String> {
    static DRIVER: OnceLock<Result<Library, String>> = OnceLock::new();
    let driver = DRIVER.get_or_init(|| {
        let library = std::env::var_os("APRON_DRIVER").unwrap_or_else(|| LIBRARY.into());
        // SAFETY: the driver's library may be loaded at any time; it stays loaded until the process ends.
        unsafe { Library::new(&library) }
            .map_err(|error| format!("the NVIDIA driver's library {} cannot be loaded ({error})", library.display()))
    });
    driver.as_ref().map_err(Clone::clone)
}

thread_local! {
    /// The number of the last error on this thread: newer drivers have errors that cust has no name for.
    static LAST_ERROR: Cell<u32> = const { Cell::new(0) };
}

/// The driver's message for an error that cust has just returned on this thread.
pub(super) fn message(error: CudaError) -> String {
    type Describe = unsafe extern "C" fn(u32, *mut *const c_char) -> u32;
    let code = match LAST_ERROR.get() {
        0 => error as u32,
        code => code,
    };
    let describe = |function: &[u8]| {
        let driver = load().ok()?;
        let mut text = std::ptr::null();
        // SAFETY: both functions have this signature (the enumeration is a C int), and return static strings.
        unsafe {
            let function = driver.get::<Describe>(function).ok()?;
            (function(code, &mut text) == 0 && !text.is_null())
                .then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    };
    match (describe(b"cuGetErrorString"), describe(b"cuGetErrorName")) {
        (Some(words), Some(name)) => format!("{words} ({name})"),
        _ => format!("error {code}"),
    }
}

/// A driver call's result in cust's terms.
pub(super) fn check(status: CUresult) -> CudaResult<()> {
    match status {
        CUresult::CUDA_SUCCESS => Ok(()),
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(CudaError::OutOfMemory),
        CUresult::CUDA_ERROR_NO_DEVICE => Err(CudaError::NoDevice),
        // `message` has the number.
        _ => Err(CudaError::UnknownError),
    }
}

/// Remembers the driver's result, and maps it into the range of cust's enumeration.
fn answer(code: u32) -> CUresult {
    LAST_ERROR.set(code);
    match code {
        0 => CUresult::CUDA_SUCCESS,
        1..=8
        | 34
        | 100..=102
        | 200..=202
        | 205..=224
        | 300..=304
        | 400
        | 401
        | 500
        | 600
        | 700..=705
        | 708..=720
        | 800..=809
        | 900..=911 => {
            // SAFETY: `CUresult` is a `repr(u32)` enumeration with a variant for each of these numbers.
            unsafe { std::mem::transmute::<u32, CUresult>(code) }
        }
        _ => CUresult::CUDA_ERROR_UNKNOWN,
    }
}

macro_rules! driver {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {$(
        /// # Safety
        /// As the driver's function of this name.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> CUresult {
            type Function = unsafe extern "C" fn($($type),*) -> u32;
            static FUNCTION: OnceLock<Option<Function>> = OnceLock::new();
            let function = FUNCTION.get_or_init(|| {
                // SAFETY: the type is the one that cust declares for this symbol, with the result as a number.
                unsafe { load().ok()?.get::<Function>(stringify!($name).as_bytes()).ok().map(|symbol| *symbol) }
            });
            match function {
                // SAFETY: the caller keeps to the function's contract.
                Some(function) => answer(unsafe { function($($argument),*) }),
                None if load().is_ok() => CUresult::CUDA_ERROR_NOT_FOUND,
                None => CUresult::CUDA_ERROR_NO_DEVICE,
            }
        }
    )*};
}

// The two for textures are called by the package studies: a symbol is defined once in a program.
driver! {
    fn cuInit(flags: c_uint);
    fn cuDriverGetVersion(driver_version: *mut c_int);
    fn cuGetErrorString(error: CUresult, str: *mut *const c_char);
    fn cuGetErrorName(error: CUresult, str: *mut *const c_char);
    fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    fn cuDeviceGetCount(count: *mut c_int);
    fn cuDeviceGetName(name: *mut c_char, len: c_int, dev: CUdevice);
    fn cuDeviceGetAttribute(pi: *mut c_int, attrib: CUdevice_attribute, dev: CUdevice);
    fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice);
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, dev: CUdevice);
    fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice);
    fn cuCtxSetCurrent(ctx: CUcontext);
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    fn cuMemAlloc_v2(pointer: *mut CUdeviceptr, bytesize: usize);
    fn cuMemFree_v2(pointer: CUdeviceptr);
    fn cuMemAllocHost_v2(pointer: *mut *mut c_void, bytesize: usize);
    fn cuMemFreeHost(p: *mut c_void);
    fn cuMemcpyHtoD_v2(dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize);
    fn cuMemcpyDtoDAsync_v2(dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize, stream: CUstream);
    fn cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: CUstream);
    fn cuMemsetD32Async(dst_device: CUdeviceptr, ui: c_uint, n: usize, stream: CUstream);
    fn cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, num_options: c_uint, options: *mut CUjit_option, option_values: *mut *mut c_void);
    fn cuModuleUnload(hmod: CUmodule);
    fn cuModuleGetFunction(hfunc: *mut CUfunction, hmod: CUmodule, name: *const c_char);
    fn cuFuncGetAttribute(value: *mut c_int, attrib: CUfunction_attribute, hfunc: CUfunction);
    fn cuFuncSetAttribute(hfunc: CUfunction, attrib: CUfunction_attribute, value: c_int);
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut c_int, func: CUfunction, block_size: c_int, shared: usize);
    fn cuLaunchKernel(f: CUfunction, grid_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, stream: CUstream, kernel_params: *mut *mut c_void, extra: *mut *mut c_void);
    fn cuTexObjectCreate(object: *mut CUtexObject, resource: *const CUDA_RESOURCE_DESC, texture: *const CUDA_TEXTURE_DESC, view: *const CUDA_RESOURCE_VIEW_DESC);
    fn cuTexObjectDestroy(object: CUtexObject);
    fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int);
    fn cuStreamSynchronize(stream: CUstream);
    fn cuStreamDestroy_v2(stream: CUstream);
    fn cuGraphCreate(graph: *mut CUgraph, flags: c_uint);
    fn cuGraphAddKernelNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, parameters: *const CUDA_KERNEL_NODE_PARAMS);
    fn cuGraphInstantiate_v2(exec: *mut CUgraphExec, graph: CUgraph, error_node: *mut CUgraphNode, log: *mut c_char, log_len: usize);
    fn cuGraphDestroy(graph: CUgraph);
    fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream);
    fn cuGraphExecDestroy(exec: CUgraphExec);
    fn cuEventCreate(event: *mut CUevent, flags: c_uint);
    fn cuEventRecord(event: CUevent, stream: CUstream);
    fn cuEventSynchronize(event: CUevent);
    fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);
    fn cuEventDestroy_v2(event: CUevent);
}
