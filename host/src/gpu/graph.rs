//! CUDA graphs, built kernel by kernel.
//!
//! Capturing a stream would do the same with less code. But other threads that use the driver at
//! the same time (to load a kernel or allocate memory) may invalidate the capture, and the capture
//! may make their calls fail.

use std::ffi::c_void;

use super::device::Gpu;
use super::driver::sys::{
    Handle, KernelNode, cuGraphAddKernelNode, cuGraphCreate, cuGraphDestroy, cuGraphExecDestroy,
    cuGraphInstantiate_v2, cuGraphLaunch,
};
use super::driver::{Answer, Function, check};

/// A graph, ready to be launched.
#[derive(Debug)]
pub(super) struct Graph {
    ready: Handle,
    gpu: Gpu,
}

// SAFETY: a handle; the driver takes it from any thread, one at a time, which `&mut` at its only
// use ensures.
unsafe impl Send for Graph {}
// SAFETY: as above: nothing can be done with a shared reference.
unsafe impl Sync for Graph {}

/// A graph under construction.
pub(super) struct Recording(Handle);

/// The kernels of a graph under construction, each of which waits for the one before it, as in a
/// stream. It stays in a stream no longer than the graph's [`Recording`] lives.
#[derive(Debug)]
pub(super) struct Chain {
    graph: Handle,
    /// The last kernel, or null.
    last: Handle,
}

// SAFETY: handles; the driver takes them from any thread, one at a time, which `&mut` ensures.
unsafe impl Send for Chain {}
// SAFETY: as above: nothing can be done with a shared reference.
unsafe impl Sync for Chain {}

impl Graph {
    /// Puts the graph's work into a stream.
    ///
    /// # Safety
    /// Everything that the work uses is alive, and the stream is this GPU's.
    pub(super) unsafe fn launch(&mut self, stream: Handle) -> Answer {
        // SAFETY: as the caller promised.
        check(unsafe { cuGraphLaunch(self.ready, stream) })
    }
}

impl Recording {
    pub(super) fn new() -> Answer<Self> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: the driver writes a handle.
        check(unsafe { cuGraphCreate(&mut graph, 0) })?;
        Ok(Self(graph))
    }

    /// The graph's kernels, none so far.
    pub(super) fn chain(&self) -> Chain {
        Chain { graph: self.0, last: std::ptr::null_mut() }
    }

    /// The graph, ready to be launched on its GPU.
    pub(super) fn ready(self, gpu: &Gpu) -> Answer<Graph> {
        let mut ready = std::ptr::null_mut();
        let nowhere = std::ptr::null_mut();
        // SAFETY: the graph is alive; the pointers for messages may be null.
        check(unsafe {
            cuGraphInstantiate_v2(&mut ready, self.0, nowhere, std::ptr::null_mut(), 0)
        })?;
        Ok(Graph { ready, gpu: gpu.clone() })
    }
}

impl Chain {
    /// Adds a kernel.
    ///
    /// # Safety
    /// `arguments` are those that the kernel takes; they are copied before the call returns. The
    /// kernel's contract allows such blocks, with so many threads and bytes of shared memory.
    pub(super) unsafe fn add(
        &mut self,
        kernel: Function,
        blocks: (u32, u32, u32),
        block: (u32, u32, u32),
        shared: u32,
        arguments: &mut [*mut c_void],
    ) -> Answer {
        let node = KernelNode {
            function: kernel.raw(),
            blocks: blocks.into(),
            block: block.into(),
            shared,
            parameters: arguments.as_mut_ptr(),
            extra: std::ptr::null_mut(),
        };
        let before = self.last;
        let count = usize::from(!before.is_null());
        // SAFETY: graph and node are alive, as the recording is; the kernel and its arguments are
        // by the caller's promise.
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
            // SAFETY: nobody else has it. The driver lets a running launch finish first.
            unsafe { cuGraphExecDestroy(self.ready) };
        }
    }
}
