//! Launches of kernels: apron's, and a program's own.

use std::ffi::c_void;

use gpu_kernels::abi::Region;
use gpu_kernels::entry::{Entry, TapsEntry};
use kernel_builder::Tier;

use super::device::{Gpu, Kernel, Key};
use super::driver;
use super::stream::Stream;
use crate::{Error, Result};

/// A kernel that is loaded on a GPU. It stays loaded until the process ends; cheap to clone.
///
/// ```no_run
/// use std::ffi::c_void;
///
/// use apron::gpu::{Gpu, Grid, Tier};
/// use apron::{Image, Shape};
///
/// // A build script calls kernel_builder::embed, and this is:
/// // static KERNELS: &[Tier] = include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
/// # static KERNELS: &[Tier] = &[];
/// let gpu = Gpu::open(0)?;
/// let double = gpu.load(KERNELS, "double")?;
/// let image = gpu.upload(&Image::from_vec(vec![0.5f32; 1024], 1024, 1, 1)?.view())?;
/// let mut stream = gpu.stream()?;
/// let (address, factor) = (image.address(), 2.0f32);
/// let arguments: [*const c_void; 2] = [(&raw const address).cast(), (&raw const factor).cast()];
/// let grid = Grid { blocks: (4, 1, 1), block: (256, 1, 1), shared: 0 };
/// // SAFETY: `double` takes an address of 1024 floats and a factor; the image lives until the
/// // stream is synchronized.
/// unsafe { stream.launch(&double, grid, &arguments)? };
/// stream.synchronize()?;
/// # Ok::<(), apron::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Function {
    gpu: Gpu,
    key: Key,
    function: driver::Function,
}

impl Function {
    /// Its entry's name.
    pub fn entry(&self) -> &'static str {
        self.key.0
    }
}

/// The blocks of one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// How many blocks there are in x, y and z.
    pub blocks: (u32, u32, u32),
    /// Threads of a block in x, y and z.
    pub block: (u32, u32, u32),
    /// Bytes of dynamic shared memory for each block.
    pub shared: u32,
}

impl Grid {
    /// The grid that covers a region from column `left` on, with a tile of pixels for each block,
    /// in one plane.
    pub(crate) fn covering(
        region: &Region,
        left: i32,
        tile: (u32, u32),
        block: (u32, u32),
    ) -> Self {
        let (width, height) = ((region.x1 - left) as u32, (region.y1 - region.y0) as u32);
        let blocks = (width.div_ceil(tile.0), height.div_ceil(tile.1), 1);
        Self { blocks, block: (block.0, block.1, 1), shared: 0 }
    }

    /// The same with bytes of dynamic shared memory for each block.
    pub(crate) fn sharing(self, shared: u32) -> Self {
        Self { shared, ..self }
    }
}

/// The tuple of an entry's arguments.
pub(crate) trait Arguments {
    /// A pointer to each, in their order.
    fn pointers(&self) -> Vec<*const c_void>;
}

macro_rules! arguments {
    ($($type:ident)*) => {
        impl<$($type),*> Arguments for ($($type,)*) {
            #[allow(non_snake_case)]
            fn pointers(&self) -> Vec<*const c_void> {
                let ($($type,)*) = self;
                vec![$((&raw const *$type).cast()),*]
            }
        }
    };
}

arguments!(A);
arguments!(A B);
arguments!(A B C);
arguments!(A B C D);
arguments!(A B C D E);
arguments!(A B C D E F);
arguments!(A B C D E F G);

impl Gpu {
    /// The grid for so many planes, which its z axis counts, limited to the height that the GPU
    /// takes: kernels walk the remaining rows in a grid-stride loop.
    pub(crate) fn fitting(&self, grid: Grid, planes: u32) -> Grid {
        let (across, down, _) = grid.blocks;
        Grid { blocks: (across, down.min(self.grid_rows()), planes), ..grid }
    }

    /// Loads a kernel of a set that [`kernel_builder::embed`] made, for example
    /// [`super::embedded`], as plans load theirs: machine code where the set has it for this GPU,
    /// else PTX that the driver compiles. Once for each set and entry, and with all the shared
    /// memory that a block can have.
    ///
    /// # Errors
    /// [`crate::Error::Driver`] if the set has no such entry, or none for this GPU and its driver;
    /// driver errors.
    pub fn load(&self, kernels: &'static [Tier], entry: &'static str) -> Result<Function> {
        let (key, kernel) = self.find(kernels, entry, 0)?;
        Ok(Function { gpu: self.clone(), key, function: kernel.function })
    }
}

impl Stream {
    /// Puts a kernel into the stream; it may not have finished when the function returns.
    ///
    /// # Safety
    /// - `arguments` points to one value for each of the kernel's parameters, in their order, each
    ///   of the parameter's size and alignment, and of bytes that are right for its type. They are
    ///   copied before the call returns.
    /// - With these arguments, a grid of this shape reads and writes memory of this GPU alone,
    ///   which stays allocated until the stream has passed the kernel. Of images, that is what
    ///   [`super::DeviceImage::address`] describes; one that it writes is not used in another
    ///   stream meanwhile.
    /// - The kernel keeps to the shape of the blocks, and to their shared memory.
    ///
    /// # Errors
    /// [`crate::Error::Parameter`] if the kernel was loaded on another GPU; driver errors.
    pub unsafe fn launch(
        &mut self,
        function: &Function,
        grid: Grid,
        arguments: &[*const c_void],
    ) -> Result<()> {
        self.gpu.same("the kernel", &function.gpu)?;
        self.gpu.enter()?;
        self.gpu.count_launch(function.key);
        // SAFETY: by the caller's promise.
        unsafe { self.put(Kernel { function: function.function, waits: false }, grid, arguments) }
    }

    /// Puts one of apron's own kernels into the stream.
    ///
    /// # Safety
    /// The grid is one that the kernel's contract allows, and memory is as for [`Stream::launch`].
    /// The compiler checks the types of the arguments.
    pub(crate) unsafe fn enqueue<A: Arguments>(
        &mut self,
        entry: Entry<A>,
        grid: Grid,
        arguments: &A,
    ) -> Result<()> {
        let kernel = self.gpu.kernel_to_launch(entry.name())?;
        // SAFETY: as the caller promised; a tuple's values have the sizes that the entry was
        // declared with.
        unsafe { self.put(kernel, grid, &arguments.pointers()) }
    }

    /// As [`Stream::enqueue`], for an entry that takes taps by value after the other arguments: the
    /// first of `taps`.
    ///
    /// # Safety
    /// As for [`Stream::enqueue`].
    pub(crate) unsafe fn enqueue_with_taps<A: Arguments>(
        &mut self,
        entry: TapsEntry<A>,
        grid: Grid,
        arguments: &A,
        taps: &[f32],
    ) -> Result<()> {
        if taps.len() < entry.taps() {
            let message =
                format!("{entry:?} needs {} taps, but {} were given", entry.taps(), taps.len());
            return Err(Error::Driver { call: "launching a kernel", message });
        }
        let kernel = self.gpu.kernel_to_launch(entry.name())?;
        let mut pointers = arguments.pointers();
        pointers.push(taps.as_ptr().cast());
        // SAFETY: as for `enqueue`, and there are as many taps as the entry takes.
        unsafe { self.put(kernel, grid, &pointers) }
    }

    /// Puts a kernel of this GPU, which is current, into the stream, or into what is recorded
    /// instead. One that waits for the kernels ahead of it in the stream may begin before they have
    /// ended.
    ///
    /// # Safety
    /// As for [`Stream::launch`].
    unsafe fn put(
        &mut self,
        Kernel { function, waits }: Kernel,
        Grid { blocks, block, shared }: Grid,
        arguments: &[*const c_void],
    ) -> Result<()> {
        let mut pointers: Vec<_> = arguments.iter().map(|argument| argument.cast_mut()).collect();
        // SAFETY: by the caller's promise the arguments are what the kernel takes; the driver
        // copies them before the call returns.
        let status = unsafe {
            match &mut self.recording {
                None if waits => {
                    self.queue.launch_early(function, blocks, block, shared, &mut pointers)
                }
                None => self.queue.launch(function, blocks, block, shared, &mut pointers),
                Some(recording) => recording.add(function, blocks, block, shared, &mut pointers),
            }
        };
        status.map_err(|error| self.gpu.error("launching a kernel", error))
    }
}
