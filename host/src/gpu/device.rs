//! GPUs: finding them, opening them once, loading kernels when first used.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cust::context::{Context, CurrentContext};
use cust::device::DeviceAttribute;
use cust::error::{CudaError, CudaResult};
use cust::function::{Function, FunctionAttribute};
use cust::module::Module;
use cust::sys;
use kernel_builder::Tier;

use super::embedded::Kernels;
use super::{driver, embedded};
use crate::plan::machine::Machine;
use crate::{Error, Result};

/// An open GPU. Opened once in a process and shared; cheap to clone.
///
/// `Send` and `Sync`: the driver's functions may be called from any thread, and each method first makes the GPU current on the
/// calling thread, whichever GPU that thread used before. The GPU stays current afterwards: other CUDA
/// code on that thread that uses another GPU must make that one current again. Loaded kernels are kept behind a lock, and
/// never unloaded.
#[derive(Clone, Debug)]
pub struct Gpu {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    info: Info,
    context: Context,
    tier: &'static Tier,
    /// Rows of blocks that a grid may have.
    grid_rows: u32,
    /// The greatest number of bytes from one row to the next in the driver's copies by rows.
    max_pitch: usize,
    functions: Mutex<BTreeMap<Key, Loaded>>,
    /// Blocks that run at a time, by kernel, threads and bytes of shared memory.
    resident: Mutex<HashMap<(Key, u32, u32), u64>>,
}

/// A kernel by its entry's name, and by the address of its source: a set of tiers, or [`Kernels`] from a file.
pub(super) type Key = (&'static str, usize);

/// A set of kernels, for all tiers.
type Set = &'static [Tier];

/// A kernel that the driver has loaded.
#[derive(Clone, Copy, Debug)]
struct Loaded {
    function: &'static Function<'static>,
    from: Option<&'static Kernels>,
    time: Duration,
    launches: u64,
}

/// The properties of a loaded kernel.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoadedKernel {
    /// Its entry's name.
    pub entry: &'static str,
    /// The file that it comes from; `None` for an embedded kernel.
    pub from: Option<&'static Kernels>,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of a thread's local memory.
    pub local: u32,
    /// The time to load it, most of which is compilation.
    pub time: Duration,
}

/// The properties of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// Its number, as the driver counts.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// Compute capability: major and minor.
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of device memory.
    pub memory: u64,
    /// Bytes of level-2 cache.
    pub l2_cache: u64,
    /// Bytes a second of the device memory, as the device reports it; 0 if it does not.
    pub bandwidth: u64,
    /// Bytes of shared memory that a block can have.
    pub shared_memory: usize,
    /// The newest CUDA version that the driver knows: major and minor.
    pub driver: (u32, u32),
}

/// The GPUs that this process has opened. They stay open until it ends: a primary context that is released and taken
/// again would load every kernel anew.
static OPEN: Mutex<BTreeMap<u32, Gpu>> = Mutex::new(BTreeMap::new());

impl Gpu {
    /// How many GPUs there are.
    ///
    /// # Errors
    /// [`Error::NoGpu`] if there is no driver, or it finds none.
    pub fn count() -> Result<u32> {
        driver::load().map_err(|reason| Error::NoGpu { reason })?;
        let count = cust::init(cust::CudaFlags::empty()).and_then(|()| cust::device::Device::num_devices());
        match count {
            Ok(0) | Err(CudaError::NoDevice) => {
                Err(Error::NoGpu { reason: "the NVIDIA driver is there but finds no device".into() })
            }
            Ok(count) => Ok(count),
            Err(error) => Err(Error::NoGpu { reason: driver::message(error) }),
        }
    }

    /// Opens GPU number `ordinal`, counted from 0.
    ///
    /// # Errors
    /// [`Error::NoGpu`] if there is none, [`Error::NoSuchGpu`] if there are fewer; driver errors.
    pub fn open(ordinal: u32) -> Result<Self> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gpu) = open.get(&ordinal) {
            return Ok(gpu.clone());
        }
        let count = Self::count()?;
        if ordinal >= count {
            return Err(Error::NoSuchGpu { ordinal, count });
        }
        let gpu = Self { inner: Arc::new(Inner::new(ordinal)?) };
        open.insert(ordinal, gpu.clone());
        Ok(gpu)
    }

    /// The GPU's properties.
    pub fn info(&self) -> &Info {
        &self.inner.info
    }

    /// The properties that kernels' policies and times depend on.
    pub(crate) fn machine(&self) -> Machine {
        let Info { name, bandwidth, shared_memory, .. } = &self.inner.info;
        Machine::new(name, *bandwidth, *shared_memory)
    }

    /// Bytes of device memory: those that are free now, and all.
    ///
    /// # Errors
    /// Driver errors.
    pub fn memory(&self) -> Result<(u64, u64)> {
        self.enter()?;
        cust::memory::mem_get_info()
            .map(|(free, total)| (free as u64, total as u64))
            .map_err(|error| self.error("asking for free memory", error))
    }

    /// The compute capability, as 10 * major + minor, that the kernels loaded on this GPU were compiled for.
    pub fn tier(&self) -> u32 {
        self.inner.tier.arch
    }

    /// Rows of blocks that a grid may have; for larger images, kernels use a grid-stride loop.
    pub(super) fn grid_rows(&self) -> u32 {
        self.inner.grid_rows
    }

    /// The greatest number of bytes from one row to the next in the driver's copies by rows.
    pub(super) fn max_pitch(&self) -> usize {
        self.inner.max_pitch
    }

    /// Makes the GPU current on the calling thread, as a program's own driver calls need. It stays current there until
    /// another one is made current.
    ///
    /// # Errors
    /// Driver errors.
    pub fn make_current(&self) -> Result<()> {
        self.enter()
    }

    /// Makes the GPU current on the calling thread, as every driver call needs.
    pub(super) fn enter(&self) -> Result<()> {
        CurrentContext::set_current(&self.inner.context).map_err(|error| self.error("making the GPU current", error))
    }

    /// # Errors
    /// [`Error::Parameter`] if something that is to work with this GPU belongs to another one.
    pub(super) fn same(&self, name: &'static str, other: &Self) -> Result<()> {
        let (here, there) = (self.info().ordinal, other.info().ordinal);
        if here == there {
            return Ok(());
        }
        let expected = format!("one of GPU {here}, as all that works together");
        Err(Error::Parameter { name, value: format!("one of GPU {there}"), expected })
    }

    /// The kernel of this name, loaded on first use, for a launch, which is counted.
    pub(super) fn function_to_launch(&self, entry: &'static str) -> Result<&'static Function<'static>> {
        self.find(embedded::embedded(), entry, 1).map(|(_, function)| function)
    }

    /// A kernel of a set, loaded on first use, and its key; adds `launches` to its count.
    pub(super) fn find(
        &self,
        set: Set,
        entry: &'static str,
        launches: u64,
    ) -> Result<(Key, &'static Function<'static>)> {
        // A file's kernels replace apron's own.
        let given = embedded::instead_of(entry).filter(|_| std::ptr::eq(set, embedded::embedded()));
        let key = key(entry, set, given);
        let mut functions = self.inner.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = functions.get_mut(&key) {
            loaded.launches += launches;
            return Ok((key, loaded.function));
        }
        self.enter()?;
        let start = Instant::now();
        let function = match given {
            Some(kernels) => self.load_given(entry, kernels)?,
            None => self.load_from(set, entry)?,
        };
        functions.insert(key, Loaded { function, from: given, time: start.elapsed(), launches });
        Ok((key, function))
    }

    /// Counts a launch of a kernel that is loaded already.
    pub(super) fn count_launch(&self, key: Key) {
        let mut functions = self.inner.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = functions.get_mut(&key) {
            loaded.launches += 1;
        }
    }

    /// Loads a kernel of a set: from machine code if the set has it, else the driver compiles its PTX.
    fn load_from(&self, set: Set, entry: &'static str) -> Result<&'static Function<'static>> {
        let fail = |message| Error::Driver { call: "loading a kernel", message };
        let tier = embedded::best(set, self.inner.info.capability, self.inner.info.driver).map_err(fail)?;
        let kernel = tier.entry(entry).ok_or_else(|| fail(format!("this build has no entry \"{entry}\"")))?;
        let (major, minor) = self.inner.info.capability;
        let code = kernel.machine_code(10 * major + minor).map_err(fail)?;
        // A driver older than the assembler may refuse its machine code; then it gets the PTX.
        let module = match code.and_then(|code| Module::from_cubin(code, &[]).ok()) {
            Some(module) => Ok(kept(module)),
            None => compiled(&kernel.ptx().map_err(fail)?),
        };
        self.prepare(entry, module).map_err(|error| self.error("loading a kernel", error))
    }

    /// How many blocks of a kernel the whole GPU runs at a time.
    pub(crate) fn resident_blocks(&self, entry: &'static str, threads: u32, shared: u32) -> Result<u64> {
        let (key, function) = self.find(embedded::embedded(), entry, 0)?;
        let key = (key, threads, shared);
        let resident = || self.inner.resident.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&blocks) = resident().get(&key) {
            return Ok(blocks);
        }
        self.enter()?;
        let each = function
            .max_active_blocks_per_multiprocessor(threads.into(), shared as usize)
            .map_err(|error| self.error("asking how many blocks fit", error))?;
        let blocks = u64::from(each) * u64::from(self.inner.info.multiprocessors);
        resident().insert(key, blocks);
        Ok(blocks)
    }

    /// Every kernel that was loaded so far, by entry.
    ///
    /// # Errors
    /// Driver errors.
    pub fn loaded(&self) -> Result<Vec<LoadedKernel>> {
        self.enter()?;
        let functions = self.inner.functions.lock().unwrap_or_else(PoisonError::into_inner);
        let describe = |(&(entry, _), loaded): (&Key, &Loaded)| {
            let attribute = |attribute| loaded.function.get_attribute(attribute).map(|value| value as u32);
            Ok(LoadedKernel {
                entry,
                from: loaded.from,
                registers: attribute(FunctionAttribute::NumRegisters)?,
                local: attribute(FunctionAttribute::LocalSizeBytes)?,
                time: loaded.time,
            })
        };
        let described: CudaResult<_> = functions.iter().map(describe).collect();
        described.map_err(|error| self.error("asking what a kernel is like", error))
    }

    /// Every kernel that was launched so far, by entry, and how often; a replay of what was recorded does not count. For
    /// tests, which must not pass without a launch.
    #[doc(hidden)]
    pub fn launches(&self) -> Vec<(&'static str, u64)> {
        let functions = self.inner.functions.lock().unwrap_or_else(PoisonError::into_inner);
        let launches = functions.iter().map(|(&(entry, _), loaded)| (entry, loaded.launches));
        launches.filter(|&(_, launches)| launches > 0).collect()
    }

    /// Compiles one entry of kernels from a file.
    fn load_given(&self, entry: &'static str, kernels: &'static Kernels) -> Result<&'static Function<'static>> {
        let (major, minor) = self.inner.info.capability;
        let fail = |reason| Error::Kernels { path: kernels.path().to_owned(), reason };
        if kernels.arch() > 10 * major + minor {
            let name = &self.inner.info.name;
            return Err(fail(format!("they are for sm_{}, {name} is sm_{major}{minor}", kernels.arch())));
        }
        let function = self.prepare(entry, compiled(kernels.ptx(entry).unwrap_or_default()));
        function.map_err(|error| fail(format!("loading {entry}: {}", driver::message(error))))
    }

    /// Finds one entry in a module, and allows it all of a block's shared memory.
    fn prepare(
        &self,
        entry: &'static str,
        module: CudaResult<&'static Module>,
    ) -> CudaResult<&'static Function<'static>> {
        let function = module?.get_function(entry)?;
        let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function was loaded just now, and the size is the one that the device reports.
        let status =
            unsafe { sys::cuFuncSetAttribute(function.to_raw(), attribute, self.inner.info.shared_memory as i32) };
        driver::check(status)?;
        Ok(Box::leak(Box::new(function)))
    }

    /// The error for a failed driver call.
    pub(super) fn error(&self, call: &'static str, error: CudaError) -> Error {
        if error == CudaError::OutOfMemory {
            return self.out_of_memory(0);
        }
        Error::Driver { call, message: driver::message(error) }
    }

    /// The error for an allocation of `needed` bytes that failed.
    pub(crate) fn out_of_memory(&self, needed: u64) -> Error {
        let (free, total) = cust::memory::mem_get_info().unwrap_or((0, 0));
        Error::DeviceMemory { needed, free: free as u64, total: total as u64 }
    }
}

fn key(entry: &'static str, set: Set, given: Option<&'static Kernels>) -> Key {
    (entry, given.map_or_else(|| set.as_ptr().addr(), |kernels| std::ptr::from_ref(kernels).addr()))
}

/// The driver compiles PTX.
fn compiled(ptx: &str) -> CudaResult<&'static Module> {
    Module::from_ptx(ptx, &[]).map(kept)
}

/// Modules are kept until the process ends, as the GPU is, so they are leaked once here rather than counted everywhere.
fn kept(module: Module) -> &'static Module {
    Box::leak(Box::new(module))
}

impl Inner {
    fn new(ordinal: u32) -> Result<Self> {
        let fail = |error| Error::Driver { call: "opening the GPU", message: driver::message(error) };
        let info = Info::read(ordinal).map_err(fail)?;
        let tier = embedded::best(embedded::embedded(), info.capability, info.driver)
            .map_err(|reason| Error::NoGpu { reason: format!("{} cannot be used: {reason}", info.name) })?;
        let device = cust::device::Device::get_device(ordinal).map_err(fail)?;
        let attribute = |attribute| device.get_attribute(attribute).map(|value| value as u32).map_err(fail);
        let grid_rows = grid_rows(attribute(DeviceAttribute::MaxGridDimY)?)?;
        let max_pitch = attribute(DeviceAttribute::MaxPitch)? as usize;
        let context = Context::new(device).map_err(fail)?;
        Ok(Self { info, context, tier, grid_rows, max_pitch, functions: Mutex::default(), resident: Mutex::default() })
    }
}

/// The rows of blocks that a device takes, or fewer if the environment says so: then tests reach the grid-stride loops
/// without an image of half a million rows.
fn grid_rows(most: u32) -> Result<u32> {
    const VARIABLE: &str = "APRON_GRID_ROWS";
    let Some(value) = std::env::var_os(VARIABLE) else { return Ok(most) };
    let value = value.to_string_lossy().into_owned();
    let rows = value.parse().ok().filter(|rows| (1..=most).contains(rows));
    rows.ok_or_else(|| Error::Parameter { name: VARIABLE, value, expected: format!("a number from 1 to {most}") })
}

/// Bytes a second of a device's memory, if the driver reports it: two transfers a clock, which is in kHz; the bus is in bits.
fn bandwidth(device: &cust::device::Device) -> u64 {
    let attribute = |attribute| device.get_attribute(attribute).ok().and_then(|value| u64::try_from(value).ok());
    let clock = attribute(DeviceAttribute::MemoryClockRate).unwrap_or(0);
    2 * 1000 * clock * attribute(DeviceAttribute::GlobalMemoryBusWidth).unwrap_or(0) / 8
}

impl Info {
    fn read(ordinal: u32) -> CudaResult<Self> {
        let device = cust::device::Device::get_device(ordinal)?;
        let attribute = |attribute| device.get_attribute(attribute).map(|value| value as u32);
        // cust has no name for the opt-in limit, the largest that a kernel may ask for.
        let mut shared_memory = 0;
        let optin = sys::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        // SAFETY: the device was found just now; the pointer is to a local.
        driver::check(unsafe { sys::cuDeviceGetAttribute(&mut shared_memory, optin, device.as_raw()) })?;
        let driver = cust::CudaApiVersion::get()?;
        Ok(Self {
            ordinal,
            name: device.name()?,
            capability: (
                attribute(DeviceAttribute::ComputeCapabilityMajor)?,
                attribute(DeviceAttribute::ComputeCapabilityMinor)?,
            ),
            multiprocessors: attribute(DeviceAttribute::MultiprocessorCount)?,
            memory: device.total_memory()? as u64,
            l2_cache: u64::from(attribute(DeviceAttribute::L2CacheSize)?),
            bandwidth: bandwidth(&device),
            shared_memory: shared_memory as usize,
            driver: (driver.major() as u32, driver.minor() as u32),
        })
    }
}
