//! Work that is recorded once and put into streams again and again, with a single call of the driver (a CUDA graph).

use cust::error::CudaResult;
use cust::sys::{
    CUgraph, CUgraphExec, CUstreamCaptureMode, cuGraphDestroy, cuGraphExecDestroy, cuGraphInstantiate_v2,
    cuGraphLaunch, cuStreamBeginCapture_v2, cuStreamEndCapture,
};

use super::device::Gpu;
use super::driver::check;
use super::image::DeviceImage;
use super::stream::Stream;
use crate::{Error, Result};

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
        let graph = Graph::record(&mut stream, |stream| enqueue(&src, &mut dst, stream))?;
        Ok(Self { graph, stream, src, dst })
    }

    /// Puts the work into `stream`; it may not have finished when the function returns. Replays that use the same images
    /// belong in one stream.
    ///
    /// # Errors
    /// Driver errors; [`Error::Parameter`] if the stream is another GPU's.
    pub fn replay(&mut self, stream: &mut Stream) -> Result<()> {
        let gpu = &self.stream.gpu;
        if stream.gpu.info().ordinal != gpu.info().ordinal {
            return Err(Error::Parameter {
                name: "stream",
                value: format!("a stream of GPU {}", stream.gpu.info().ordinal),
                expected: format!("a stream of GPU {}, on which the work was recorded", gpu.info().ordinal),
            });
        }
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

impl Graph {
    /// What `work` puts into the stream, which is idle.
    fn record(stream: &mut Stream, work: impl FnOnce(&mut Stream) -> Result<()>) -> Result<Self> {
        let gpu = stream.gpu.clone();
        gpu.enter()?;
        let failed = |error| gpu.error("recording a graph", error);
        // SAFETY: the stream is alive and not recording. Other threads may use the driver as they like meanwhile.
        let begun =
            unsafe { cuStreamBeginCapture_v2(stream.raw(), CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED) };
        check(begun).map_err(failed)?;
        let worked = work(stream);
        let mut recorded: CUgraph = std::ptr::null_mut();
        // SAFETY: the stream is recording, and stops at this whatever came of the work.
        let ended = check(unsafe { cuStreamEndCapture(stream.raw(), &mut recorded) });
        let made = worked.and_then(|()| ended.and_then(|()| instantiate(recorded)).map_err(failed));
        if !recorded.is_null() {
            // SAFETY: nobody else has it; what was instantiated does not need it.
            unsafe { cuGraphDestroy(recorded) };
        }
        made.map(|ready| Self { ready, gpu })
    }
}

fn instantiate(recorded: CUgraph) -> CudaResult<CUgraphExec> {
    let mut ready: CUgraphExec = std::ptr::null_mut();
    let nowhere = std::ptr::null_mut();
    // SAFETY: the graph is alive; no text is asked for.
    check(unsafe { cuGraphInstantiate_v2(&mut ready, recorded, nowhere, std::ptr::null_mut(), 0) })?;
    Ok(ready)
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: nobody else has it. The driver lets a launch that is under way finish first.
            unsafe { cuGraphExecDestroy(self.ready) };
        }
    }
}
