//! Work that is recorded once and put into streams again and again, with a single call of the driver (a CUDA graph).
//!
//! The graph is put together kernel by kernel. Capturing a stream would do the same with less code, but whatever else other
//! threads do in the driver meanwhile (load a kernel, allocate memory) may break a capture, and a capture may break it.

use std::ffi::c_void;

use cust::error::CudaResult;
use cust::function::Function;
use cust::sys::{
    CUDA_KERNEL_NODE_PARAMS, CUgraph, CUgraphExec, CUgraphNode, cuGraphAddKernelNode, cuGraphCreate, cuGraphDestroy,
    cuGraphExecDestroy, cuGraphInstantiate_v2, cuGraphLaunch,
};

use super::device::Gpu;
use super::driver::check;
use super::image::DeviceImage;
use super::stream::Stream;
use crate::Result;

/// A plan's work on two images, ready to be put into a stream over and over: for small images, where starting a kernel
/// takes as long as the kernel. Made by [`crate::Plan::record`].
///
/// ```no_run
/// use apron::{Device, Filter, Image, Plan, gpu::Gpu};
///
/// let gpu = Gpu::open(0)?;
/// let plan = Plan::builder(&Filter::gaussian(1.0)?).device(Device::Gpu(0)).build()?;
/// let frame = Image::from_vec(vec![0.5f32; 640 * 480], 640, 480, 1)?;
/// let src = gpu.upload(&frame.view())?;
/// let dst = gpu.image(src.shape())?;
/// let mut recorded = plan.record(src, dst)?;
/// let mut stream = gpu.stream()?;
/// for _ in 0..1000 {
///     recorded.replay(&mut stream)?;
/// }
/// stream.synchronize()?;
/// let filtered: Image<f32> = gpu.download(recorded.dst())?;
/// # Ok::<(), apron::Error>(())
/// ```
#[derive(Debug)]
pub struct Recorded {
    // Dropped in this order: nothing of the graph may outlive what it works in.
    graph: Graph,
    /// Has the scratch memory that the work uses.
    stream: Stream,
    src: DeviceImage,
    dst: DeviceImage,
}

impl Recorded {
    /// Records what `enqueue` puts into a stream. It is called twice, and first for real, so that kernels are loaded and
    /// scratch is reserved: neither can be recorded.
    pub(crate) fn new(
        gpu: &Gpu,
        src: DeviceImage,
        mut dst: DeviceImage,
        enqueue: impl Fn(&DeviceImage, &mut DeviceImage, &mut Stream) -> Result<()>,
    ) -> Result<Self> {
        let mut stream = gpu.stream()?;
        enqueue(&src, &mut dst, &mut stream)?;
        stream.synchronize()?;
        let failed = |error| gpu.error("recording a graph", error);
        let recording = Recording::new().map_err(failed)?;
        stream.recording = Some(recording.chain());
        let enqueued = enqueue(&src, &mut dst, &mut stream);
        stream.recording = None;
        enqueued?;
        let graph = Graph { ready: recording.ready().map_err(failed)?, gpu: gpu.clone() };
        Ok(Self { graph, stream, src, dst })
    }

    /// Puts the work into `stream`; it may not have finished when the function returns. Replays that use the same images
    /// belong in one stream.
    ///
    /// # Errors
    /// Driver errors; [`crate::Error::Parameter`] if the stream is another GPU's.
    pub fn replay(&mut self, stream: &mut Stream) -> Result<()> {
        let gpu = &self.stream.gpu;
        gpu.same("the stream", &stream.gpu)?;
        gpu.enter()?;
        // SAFETY: graph and stream are alive, and so are the images and the scratch that the recorded work points to.
        let launched = check(unsafe { cuGraphLaunch(self.graph.ready, stream.raw()) });
        launched.map_err(|error| gpu.error("replaying a graph", error))
    }

    /// The image that is filtered.
    pub fn src(&self) -> &DeviceImage {
        &self.src
    }

    /// The same, to put another picture into it with [`DeviceImage::copy_from`].
    pub fn src_mut(&mut self) -> &mut DeviceImage {
        &mut self.src
    }

    /// The image that is written.
    pub fn dst(&self) -> &DeviceImage {
        &self.dst
    }
}

/// A graph, ready to be launched.
#[derive(Debug)]
struct Graph {
    ready: CUgraphExec,
    gpu: Gpu,
}

// SAFETY: a handle; the driver takes it from any thread, one at a time, which `&mut` at its only use ensures.
unsafe impl Send for Graph {}
// SAFETY: as above: nothing can be done with a shared reference.
unsafe impl Sync for Graph {}

/// A graph in the making.
struct Recording(CUgraph);

/// The kernels of a graph in the making, each of which waits for the one before it, as in a stream. In a stream no longer than
/// the graph's [`Recording`] lives.
#[derive(Debug)]
pub(super) struct Chain {
    graph: CUgraph,
    /// The last kernel, or null.
    last: CUgraphNode,
}

// SAFETY: handles; the driver takes them from any thread, one at a time, which `&mut` ensures.
unsafe impl Send for Chain {}
// SAFETY: as above: nothing can be done with a shared reference.
unsafe impl Sync for Chain {}

impl Recording {
    fn new() -> CudaResult<Self> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: the driver writes a handle.
        check(unsafe { cuGraphCreate(&mut graph, 0) })?;
        Ok(Self(graph))
    }

    /// The graph's kernels, none so far.
    fn chain(&self) -> Chain {
        Chain { graph: self.0, last: std::ptr::null_mut() }
    }

    fn ready(self) -> CudaResult<CUgraphExec> {
        let mut ready = std::ptr::null_mut();
        let nowhere = std::ptr::null_mut();
        // SAFETY: the graph is alive; no text is asked for.
        check(unsafe { cuGraphInstantiate_v2(&mut ready, self.0, nowhere, std::ptr::null_mut(), 0) })?;
        Ok(ready)
    }
}

impl Chain {
    /// Adds a kernel.
    ///
    /// # Safety
    /// `arguments` are what it takes; they are copied before the call returns. `blocks` of so many threads and bytes of shared
    /// memory are what it keeps to.
    pub(super) unsafe fn add(
        &mut self,
        kernel: &Function<'_>,
        blocks: (u32, u32, u32),
        block: (u32, u32, u32),
        shared: u32,
        arguments: &mut [*mut c_void],
    ) -> CudaResult<()> {
        let node = CUDA_KERNEL_NODE_PARAMS {
            func: kernel.to_raw(),
            gridDimX: blocks.0,
            gridDimY: blocks.1,
            gridDimZ: blocks.2,
            blockDimX: block.0,
            blockDimY: block.1,
            blockDimZ: block.2,
            sharedMemBytes: shared,
            kernelParams: arguments.as_mut_ptr(),
            extra: std::ptr::null_mut(),
        };
        let before = self.last;
        let count = usize::from(!before.is_null());
        // SAFETY: graph and node are alive, as the recording is; the kernel and its arguments are by the caller's promise.
        check(unsafe { cuGraphAddKernelNode(&mut self.last, self.graph, &before, count, &node) })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // SAFETY: nobody else has it; what was instantiated does not need it.
        unsafe { cuGraphDestroy(self.0) };
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: nobody else has it. The driver lets a launch that is under way finish first.
            unsafe { cuGraphExecDestroy(self.ready) };
        }
    }
}
