//! Streams: queues of work for a GPU, each with its own scratch memory.

use std::ffi::c_void;
use std::time::Duration;

use gpu_kernels::abi::UncertainList;

use super::device::Gpu;
use super::driver::sys::{Handle, cuMemsetD32Async};
use super::driver::{self, Event, Queue};
use super::graph::Chain;
use super::memory::Memory;
use super::view::DeviceViewMut;
use crate::{Result, Scalar};

/// A queue of work. Work in one stream runs in order; work in two may overlap.
///
/// Scratch memory belongs to the stream, so plans that run in two streams share no mutable memory.
///
/// A stream is `Send` and `Sync`: the driver takes calls for one stream from any thread, after this
/// GPU has been made current there, and the scratch memory is changed through `&mut` only. So
/// several threads need a lock around a shared stream; with a stream for each thread they need
/// none.
#[derive(Debug)]
pub struct Stream {
    pub(super) gpu: Gpu,
    pub(super) queue: Queue,
    scratch: Option<Memory>,
    /// Scratch memory of launches around others.
    beneath: Option<Memory>,
    /// Sums between the passes along an array's axes.
    between: [Option<Memory>; 2],
    /// The list of uncertain results, and the places of its segments.
    uncertain: Option<(Memory, u32)>,
    /// Words that note pixels which spectra leave out, and the number of launches that had one.
    holes: Option<(Memory, usize)>,
    /// The recording that collects kernels while a plan's work is recorded.
    pub(super) recording: Option<Chain>,
}

impl Gpu {
    /// A new stream.
    ///
    /// # Errors
    /// Driver errors.
    pub fn stream(&self) -> Result<Stream> {
        self.enter()?;
        let queue = Queue::new().map_err(|error| self.error("creating a stream", error))?;
        Ok(Stream::new(self, queue))
    }

    /// Another library's stream: a driver's `CUstream`, which is also the runtime's `cudaStream_t`.
    /// A plan's work goes into it in turn with that library's, so neither side has to wait for the
    /// other. Null is the legacy default stream, as for the driver.
    ///
    /// Dropping the returned stream does not destroy it, but waits for it, since scratch memory is
    /// freed then.
    ///
    /// ```no_run
    /// use apron::gpu::{DeviceView, DeviceViewMut, Gpu, Strides};
    /// use apron::{Device, Filter, Plan, Scalar, Shape};
    ///
    /// # let (handle, from, to) = (std::ptr::null_mut(), 0, 0);
    /// let gpu = Gpu::open(0)?;
    /// let filter: Filter = "gaussian:sigma=2".parse()?;
    /// let plan = Plan::builder(filter).device(Device::Gpu(0)).build()?;
    /// // Two tensors of another library: 1080 rows of 1920 pixels of 3 bytes, without gaps.
    /// let shape = Shape { width: 1920, height: 1080, channels: 3 };
    /// let bytes = (Scalar::U8, Strides { row: 5760, pixel: 3, channel: 1, image: 0 });
    /// // SAFETY: the tensor has these bytes, and lives until the stream has passed the work.
    /// let src = unsafe { DeviceView::from_raw(&gpu, from, bytes, shape, 1, 0..1080)? };
    /// // SAFETY: as above, and nothing else uses this one meanwhile.
    /// let mut dst = unsafe { DeviceViewMut::from_raw(&gpu, to, bytes, shape, 1, 0..1080)? };
    /// // SAFETY: the library's stream outlives this one.
    /// let mut stream = unsafe { gpu.stream_from_raw(handle) };
    /// plan.run_region(&src, &mut dst, 0..1920, 0..1080, &mut stream)?;
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Safety
    /// The handle is null or a stream of this GPU's primary context (the one that the CUDA runtime,
    /// CuPy and PyTorch use), and it is not destroyed before what is returned here is dropped.
    pub unsafe fn stream_from_raw(&self, handle: *mut c_void) -> Stream {
        Stream::new(self, Queue::foreign(handle))
    }
}

impl Stream {
    fn new(gpu: &Gpu, queue: Queue) -> Self {
        Self {
            gpu: gpu.clone(),
            queue,
            scratch: None,
            beneath: None,
            between: [None, None],
            uncertain: None,
            holes: None,
            recording: None,
        }
    }

    /// The driver's `CUstream`, for other libraries: see [`Gpu::stream_from_raw`]. It is destroyed
    /// with this stream.
    pub fn handle(&self) -> *mut c_void {
        self.queue.raw()
    }

    /// Waits until all work put into the stream is done.
    ///
    /// # Errors
    /// The error of that work, if it failed.
    pub fn synchronize(&self) -> Result<()> {
        self.gpu.enter()?;
        self.queue.synchronize().map_err(|error| self.gpu.error("running a kernel", error))
    }

    /// Marks the moment when the stream's work up to here is done.
    ///
    /// # Errors
    /// Driver errors.
    pub fn mark(&self) -> Result<Mark> {
        self.gpu.enter()?;
        let event = Event::in_stream(&self.queue)
            .map_err(|error| self.gpu.error("recording an event", error))?;
        Ok(Mark { gpu: self.gpu.clone(), event })
    }

    /// The GPU that it belongs to.
    pub(crate) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The address of at least so many bytes of scratch memory. The next call returns the same
    /// memory.
    pub(crate) fn scratch(&mut self, bytes: usize) -> Result<u64> {
        self.grown(|stream| &mut stream.scratch, bytes)
    }

    /// As [`Stream::scratch`], of other memory, for launches around others.
    pub(crate) fn beneath(&mut self, bytes: usize) -> Result<u64> {
        self.grown(|stream| &mut stream.beneath, bytes)
    }

    /// Images of f32 without gaps, so many of so many rows and columns, in one of two memories.
    pub(crate) fn between(
        &mut self,
        number: usize,
        (images, rows, columns): (usize, usize, usize),
    ) -> Result<DeviceViewMut<'static>> {
        let kept: fn(&mut Self) -> &mut Option<Memory> = match number {
            0 => |stream| &mut stream.between[0],
            _ => |stream| &mut stream.between[1],
        };
        let address = self.grown(kept, 4 * images * rows * columns)?;
        DeviceViewMut::without_gaps(&self.gpu, address, Scalar::F32, (images, rows, columns))
    }

    /// The address of memory that becomes as large as its greatest use.
    fn grown(&mut self, kept: fn(&mut Self) -> &mut Option<Memory>, bytes: usize) -> Result<u64> {
        if kept(self).as_ref().is_none_or(|memory| memory.len() < bytes) {
            // Work in flight may still use the old one.
            kept(self).take().map_or(Ok(()), |_old| self.synchronize())?;
            *kept(self) = Some(self.gpu.allocate(bytes)?);
        }
        Ok(kept(self).as_ref().map_or(0, Memory::address))
    }

    /// An empty work list of uncertain results with at least so many places a segment. Sums at
    /// least `near` away from an integer are uncertain. The kernels that use the list leave it
    /// empty.
    pub(crate) fn uncertain(&mut self, capacity: u32, near: f32) -> Result<UncertainList> {
        if self.uncertain.as_ref().is_none_or(|&(_, known)| known < capacity) {
            self.uncertain.take().map_or(Ok(()), |_old| self.synchronize())?;
            let memory = self.gpu.allocate(UncertainList::bytes(capacity) as usize)?;
            self.clear(&memory, UncertainList::counters() as usize / 4)?;
            self.uncertain = Some((memory, capacity));
        }
        let (list, capacity) =
            self.uncertain.as_ref().map_or((0, 0), |(memory, known)| (memory.address(), *known));
        Ok(UncertainList { list, capacity, near })
    }

    /// The address of a word that is 0, in which a launch notes pixels that spectra leave out. Each
    /// launch gets another word, so that none has to clear it. Replays of recorded work share a
    /// word: once one noted such a pixel, all later ones look for them.
    pub(crate) fn holes(&mut self) -> Result<u64> {
        const WORDS: usize = 1024;
        let (memory, used) = match self.holes.take() {
            Some((memory, used)) if used < WORDS => (memory, used),
            kept => {
                let memory =
                    kept.map_or_else(|| self.gpu.allocate(4 * WORDS), |(memory, _)| Ok(memory))?;
                self.clear(&memory, WORDS)?;
                (memory, 0)
            }
        };
        let address = memory.address() + 4 * used as u64;
        self.holes = Some((memory, used + 1));
        Ok(address)
    }

    /// Clears the first words of memory.
    fn clear(&self, memory: &Memory, words: usize) -> Result<()> {
        // SAFETY: the words lie in the memory, which only this stream's work uses.
        let status = unsafe { cuMemsetD32Async(memory.address(), 0, words, self.raw()) };
        driver::check(status).map_err(|error| self.gpu.error("clearing memory", error))
    }

    pub(super) fn raw(&self) -> Handle {
        self.queue.raw()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Scratch must outlive the work that uses it. An error cannot be returned here; the next
        // call reports it.
        let _ = self.synchronize();
    }
}

/// A moment in a stream, by the GPU's clock.
#[derive(Debug)]
pub struct Mark {
    gpu: Gpu,
    event: Event,
}

impl Mark {
    /// The time from `start` to this mark; waits for both.
    ///
    /// # Errors
    /// [`crate::Error::Parameter`] if `start` is another GPU's; driver errors, those of the work in
    /// between too.
    pub fn since(&self, start: &Self) -> Result<Duration> {
        self.gpu.same("the mark to start from", &start.gpu)?;
        self.gpu.enter()?;
        let milliseconds = self
            .event
            .since(&start.event)
            .map_err(|error| self.gpu.error("running a kernel", error))?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // As for memory: the event is destroyed after this.
        let _ = self.gpu.enter();
    }
}
