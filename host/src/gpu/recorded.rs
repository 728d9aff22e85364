//! Work that is recorded once and then put into streams many times, with a single driver call each
//! (a CUDA graph).

use super::device::Gpu;
use super::graph::{Graph, Recording};
use super::image::DeviceImage;
use super::stream::Stream;
use crate::Result;

/// A plan's work on two images, ready to be put into a stream many times: for small images, where
/// starting a kernel takes as long as the kernel. Made by [`crate::Plan::record`].
///
/// ```no_run
/// use apron::{Device, Filter, Image, Plan, gpu::Gpu};
///
/// let gpu = Gpu::open(0)?;
/// let plan = Plan::builder(Filter::gaussian(1.0)?).device(Device::Gpu(0)).build()?;
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
    // Fields are dropped in this order: the graph must not outlive the memory that it uses.
    graph: Graph,
    /// Has the scratch memory that the work uses.
    stream: Stream,
    src: DeviceImage,
    dst: DeviceImage,
}

impl Recorded {
    /// Records what `enqueue` puts into a stream. It is called twice, and first for real, so that
    /// kernels are loaded and scratch is reserved: neither can be recorded.
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
        let graph = recording.ready(gpu).map_err(failed)?;
        Ok(Self { graph, stream, src, dst })
    }

    /// Puts the work into `stream`; it may not have finished when the function returns. Replays
    /// that use the same images belong in one stream.
    ///
    /// # Errors
    /// Driver errors; [`crate::Error::Parameter`] if the stream is another GPU's.
    pub fn replay(&mut self, stream: &mut Stream) -> Result<()> {
        let gpu = &self.stream.gpu;
        gpu.same("the stream", &stream.gpu)?;
        gpu.enter()?;
        // SAFETY: graph and stream are alive, and so are the images and the scratch that the
        // recorded work points to.
        let launched = unsafe { self.graph.launch(stream.raw()) };
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
