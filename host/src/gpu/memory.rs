//! Device memory, and host memory that a GPU reaches by itself, freed on the GPU that it belongs
//! to.

use super::device::Gpu;
use super::driver::{self, DeviceMemory, Fault, HostMemory, ManagedMemory};
use super::stream::Stream;
use crate::{Error, Result};

/// Bytes in the memory of a GPU.
///
/// The driver frees memory only where that GPU is current on the calling thread, and the thread
/// that drops this may have used another one last, or none: the memory would not be freed then.
#[derive(Debug)]
pub(super) struct Memory {
    gpu: Gpu,
    buffer: DeviceMemory,
}

impl Memory {
    /// How many bytes there are.
    pub(super) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Where they begin.
    pub(super) fn address(&self) -> u64 {
        self.buffer.address()
    }

    /// The same as a pointer to floats, which means nothing on the host.
    pub(super) fn pointer(&self) -> *mut f32 {
        self.address() as *mut f32
    }

    pub(super) fn gpu(&self) -> &Gpu {
        &self.gpu
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // The buffer is freed after this. An error cannot be returned here; the next call reports
        // it.
        let _ = self.gpu.enter();
    }
}

/// Bytes of host memory that a GPU copies from and to by itself. Copies from and to other host
/// memory are not asynchronous.
#[derive(Debug)]
pub(super) struct Pinned {
    gpu: Gpu,
    buffer: Buffer,
}

#[derive(Debug)]
enum Buffer {
    Pinned(HostMemory),
    /// Kernels reach it, too.
    Managed(ManagedMemory),
}

impl Pinned {
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.buffer {
            Buffer::Pinned(memory) => memory.bytes(),
            Buffer::Managed(memory) => memory.bytes(),
        }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.buffer {
            Buffer::Pinned(memory) => memory.bytes_mut(),
            Buffer::Managed(memory) => memory.bytes_mut(),
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // As for `Memory`.
        let _ = self.gpu.enter();
    }
}

impl Gpu {
    /// Pinned host memory of so many bytes.
    pub(super) fn pin(&self, bytes: usize) -> Result<Pinned> {
        self.enter()?;
        let buffer = HostMemory::new(bytes).map_err(|_| Error::HostMemory { bytes })?;
        Ok(Pinned { gpu: self.clone(), buffer: Buffer::Pinned(buffer) })
    }

    /// Device memory of so many bytes, its contents unspecified; it begins at a multiple of 256.
    pub(super) fn allocate(&self, bytes: usize) -> Result<Memory> {
        self.enter()?;
        let buffer = DeviceMemory::new(bytes).map_err(|error| match error {
            Fault::OUT_OF_MEMORY => self.out_of_memory(bytes as u64),
            error => self.error("allocating device memory", error),
        })?;
        Ok(Memory { gpu: self.clone(), buffer })
    }

    /// Device memory that holds these values.
    pub(super) fn holding<T: bytemuck::NoUninit>(
        &self,
        values: &[T],
        what: &'static str,
    ) -> Result<Memory> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let mut memory = self.allocate(bytes.len())?;
        memory.buffer.copy_from(bytes).map_err(|error| self.error(what, error))?;
        // The copy may still be on its way, and streams do not wait for the one that it is in.
        // SAFETY: the stream without a handle is always there.
        let status = unsafe { driver::sys::cuStreamSynchronize(std::ptr::null_mut()) };
        driver::check(status).map_err(|error| self.error(what, error))?;
        Ok(memory)
    }
}

impl Stream {
    /// So many bytes of memory that the host uses while this stream has no work, and kernels of
    /// this stream else.
    pub(super) fn managed(&self, bytes: usize) -> Result<Pinned> {
        self.gpu().enter()?;
        let memory = ManagedMemory::new(bytes, &self.queue);
        let buffer = memory.map_err(|_| Error::HostMemory { bytes })?;
        Ok(Pinned { gpu: self.gpu().clone(), buffer: Buffer::Managed(buffer) })
    }
}
