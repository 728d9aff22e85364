//! GPUs: finding them, opening them once, loading kernels when first used.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use kernel_builder::Tier;

use super::driver::{Answer, Context, Device, DeviceAttribute, Fault, Function, FunctionAttribute};
use super::embedded::Kernels;
use super::{driver, embedded};
use crate::problem::machine::Machine;
use crate::problem::model::GpuModel;
use crate::{Error, Result};

/// An open GPU. Opened once in a process and shared; cheap to clone.
///
/// `Send` and `Sync`: the driver's functions may be called from any thread, and each method first
/// makes the GPU current on the calling thread, whichever GPU that thread used before. The GPU
/// stays current afterwards: other CUDA code on that thread that uses another GPU must make that
/// one current again. Loaded kernels are kept behind a lock, and never unloaded.
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
    functions: Mutex<BTreeMap<Key, Arc<Slot>>>,
    /// Blocks that run at a time, by kernel, threads and bytes of shared memory.
    resident: Mutex<HashMap<(Key, u32, u32), u64>>,
}

/// A kernel by its entry's name, and by the address of its source: a set of tiers, or [`Kernels`]
/// from a file.
pub(super) type Key = (&'static str, usize);

/// A set of kernels, for all tiers.
type Set = &'static [Tier];

/// The architecture from which on apron's kernels are compiled to wait for those ahead of them, and
/// how they do it.
const WAITING: u32 = 90;
const WAIT: &str = "griddepcontrol.wait";

/// A kernel to launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    pub(super) function: Function,
    /// Whether it waits for the kernels ahead of it before it touches memory.
    pub(super) waits: bool,
}

/// A kernel's place among those of a GPU. Whoever asks first loads it; others who want the same
/// kernel wait, and launches of other kernels go on: the driver may compile for seconds.
#[derive(Debug, Default)]
struct Slot {
    loaded: OnceLock<Loaded>,
    loading: Mutex<()>,
    launches: AtomicU64,
}

/// A kernel that the driver has loaded.
#[derive(Clone, Copy, Debug)]
struct Loaded {
    kernel: Kernel,
    from: Option<&'static Kernels>,
    time: Duration,
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
    /// Clocks a second of the multiprocessors; 0 if the device does not report them.
    pub clock: u64,
    /// Bytes of device memory.
    pub memory: u64,
    /// Whether it is part of a chip with processors, as in a Jetson, and shares their memory.
    /// Threads then copy pictures to memory that kernels read; the device copies pinned ones alone.
    pub integrated: bool,
    /// Bytes of level-2 cache.
    pub l2_cache: u64,
    /// Bytes a second of the device memory, as the device reports it; 0 if it does not.
    pub bandwidth: u64,
    /// Bytes of shared memory that a block can have.
    pub shared_memory: usize,
    /// The newest CUDA version that the driver knows: major and minor.
    pub driver: (u32, u32),
}

/// The GPUs that this process has opened. They stay open until it ends: a primary context that is
/// released and taken again would load every kernel anew.
static OPEN: Mutex<BTreeMap<u32, Gpu>> = Mutex::new(BTreeMap::new());

impl Gpu {
    /// How many GPUs there are.
    ///
    /// # Errors
    /// [`Error::NoGpu`] if there is no driver, or it finds none.
    pub fn count() -> Result<u32> {
        driver::load().map_err(|reason| Error::NoGpu { reason })?;
        match driver::device_count() {
            Ok(0) | Err(Fault::NO_DEVICE) => Err(Error::NoGpu {
                reason: "the NVIDIA driver is there but finds no device".into(),
            }),
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

    /// Whether there is a driver, which may have no GPU.
    ///
    /// # Errors
    /// [`Error::NoGpu`] if there is none.
    pub(crate) fn driver() -> Result<()> {
        driver::load().map(|_| ()).map_err(|reason| Error::NoGpu { reason })
    }

    /// Whether this process has opened the GPU; not while it opens one.
    pub(crate) fn is_open(ordinal: u32) -> bool {
        let open = match OPEN.try_lock() {
            Ok(open) => open,
            Err(TryLockError::Poisoned(open)) => open.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        open.contains_key(&ordinal)
    }

    /// The GPU's properties.
    pub fn info(&self) -> &Info {
        &self.inner.info
    }

    /// The properties that kernels' policies and times depend on.
    pub(crate) fn machine(&self) -> Machine {
        let Info { capability, multiprocessors, clock, bandwidth, memory, .. } = self.inner.info;
        let Info { l2_cache, shared_memory, .. } = self.inner.info;
        // What a driver does not report counts as an H200's.
        let or = |reported: u64, h200| if reported == 0 { h200 } else { reported as f64 };
        Machine::of(&GpuModel {
            name: "",
            capability,
            multiprocessors,
            clock: or(clock, GpuModel::H200.clock),
            bandwidth: or(bandwidth, GpuModel::H200.bandwidth),
            memory,
            l2_cache,
            shared_memory,
        })
    }

    /// Bytes of device memory: those that are free now, and all.
    ///
    /// # Errors
    /// Driver errors.
    pub fn memory(&self) -> Result<(u64, u64)> {
        self.enter()?;
        driver::memory().map_err(|error| self.error("asking for free memory", error))
    }

    /// The compute capability, as 10 * major + minor, that the kernels loaded on this GPU were
    /// compiled for.
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

    /// Makes the GPU current on the calling thread, as a program's own driver calls need. It stays
    /// current there until another one is made current.
    ///
    /// # Errors
    /// Driver errors.
    pub fn make_current(&self) -> Result<()> {
        self.enter()
    }

    /// Makes the GPU current on the calling thread, as every driver call needs.
    pub(super) fn enter(&self) -> Result<()> {
        self.inner
            .context
            .make_current()
            .map_err(|error| self.error("making the GPU current", error))
    }

    /// # Errors
    /// [`Error::Parameter`] if something that is to work with this GPU belongs to another one.
    pub(super) fn same(&self, name: &'static str, other: &Self) -> Result<()> {
        let (here, there) = (self.info().ordinal, other.info().ordinal);
        if here == there {
            return Ok(());
        }
        let expected = format!("on GPU {here}: all images and streams of a call share one GPU");
        Err(Error::Parameter { name, value: format!("on GPU {there}"), expected })
    }

    /// The kernel of this name, loaded on first use, for a launch, which is counted.
    pub(super) fn kernel_to_launch(&self, entry: &'static str) -> Result<Kernel> {
        self.find(embedded::embedded(), entry, 1).map(|(_, kernel)| kernel)
    }

    /// A kernel of a set, loaded on first use, and its key; adds `launches` to its count.
    pub(super) fn find(
        &self,
        set: Set,
        entry: &'static str,
        launches: u64,
    ) -> Result<(Key, Kernel)> {
        // A file's kernels replace apron's own.
        let given = embedded::instead_of(entry).filter(|_| std::ptr::eq(set, embedded::embedded()));
        let key = key(entry, set, given);
        let slot = self.functions().entry(key).or_default().clone();
        let loaded = match slot.loaded.get() {
            Some(&loaded) => loaded,
            None => {
                let _loading = slot.loading.lock().unwrap_or_else(PoisonError::into_inner);
                match slot.loaded.get() {
                    Some(&loaded) => loaded,
                    None => {
                        let loaded = self.load_kernel(set, entry, given)?;
                        *slot.loaded.get_or_init(|| loaded)
                    }
                }
            }
        };
        slot.launches.fetch_add(launches, Ordering::Relaxed);
        Ok((key, loaded.kernel))
    }

    /// Loads a kernel: of a file, if it replaces that of the set.
    fn load_kernel(
        &self,
        set: Set,
        entry: &'static str,
        given: Option<&'static Kernels>,
    ) -> Result<Loaded> {
        self.enter()?;
        let start = Instant::now();
        let function = match given {
            Some(kernels) => self.load_given(entry, kernels)?,
            None => self.load_from(set, entry)?,
        };
        let asked = function.attribute(FunctionAttribute::PtxVersion);
        let arch = asked.map_err(|error| {
            self.error("asking for the architecture that a kernel was compiled for", error)
        })?;
        // Of a file, another version's source may not wait.
        let waits = arch >= WAITING
            && given.is_none_or(|kernels| kernels.ptx(entry).is_some_and(|ptx| ptx.contains(WAIT)));
        Ok(Loaded { kernel: Kernel { function, waits }, from: given, time: start.elapsed() })
    }

    fn functions(&self) -> MutexGuard<'_, BTreeMap<Key, Arc<Slot>>> {
        self.inner.functions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a launch of a kernel that is loaded already.
    pub(super) fn count_launch(&self, key: Key) {
        if let Some(slot) = self.functions().get(&key) {
            slot.launches.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Loads a kernel of a set: from machine code if the set has it, else the driver compiles its
    /// PTX.
    fn load_from(&self, set: Set, entry: &'static str) -> Result<Function> {
        let fail = |message| Error::Driver { call: "loading a kernel", message };
        let tier = embedded::best(set, self.inner.info.capability, self.inner.info.driver)
            .map_err(fail)?;
        let kernel = tier
            .entry(entry)
            .ok_or_else(|| fail(format!("this build has no entry \"{entry}\"")))?;
        let (major, minor) = self.inner.info.capability;
        let code = kernel.machine_code(10 * major + minor).map_err(fail)?;
        // A driver older than the assembler may refuse its machine code; then it gets the PTX.
        let function = match code.and_then(|code| Function::of_machine_code(&code, entry).ok()) {
            Some(function) => Ok(function),
            None => Function::of_ptx(&kernel.ptx().map_err(fail)?, entry),
        };
        self.prepare(function).map_err(|error| self.error("loading a kernel", error))
    }

    /// How many blocks of a kernel the whole GPU runs at a time.
    pub(crate) fn resident_blocks(
        &self,
        entry: &'static str,
        threads: u32,
        shared: u32,
    ) -> Result<u64> {
        let (key, Kernel { function, .. }) = self.find(embedded::embedded(), entry, 0)?;
        let key = (key, threads, shared);
        let resident = || self.inner.resident.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&blocks) = resident().get(&key) {
            return Ok(blocks);
        }
        self.enter()?;
        let each = function
            .blocks_per_multiprocessor(threads, shared)
            .map_err(|error| self.error("asking for the number of resident blocks", error))?;
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
        let functions = self.functions();
        let loaded = functions.iter().filter_map(|(key, slot)| Some((key, slot.loaded.get()?)));
        let describe = |(&(entry, _), loaded): (&Key, &Loaded)| {
            Ok(LoadedKernel {
                entry,
                from: loaded.from,
                registers: loaded.kernel.function.attribute(FunctionAttribute::NumRegs)?,
                local: loaded.kernel.function.attribute(FunctionAttribute::LocalSizeBytes)?,
                time: loaded.time,
            })
        };
        let described: Answer<_> = loaded.map(describe).collect();
        described.map_err(|error| self.error("asking for a kernel's attributes", error))
    }

    /// Every kernel that was launched so far, by entry, and how often; a replay of what was
    /// recorded does not count. For tests, which must not pass without a launch.
    #[doc(hidden)]
    pub fn launches(&self) -> Vec<(&'static str, u64)> {
        let functions = self.functions();
        let count = |slot: &Slot| slot.launches.load(Ordering::Relaxed);
        let launches = functions.iter().map(|(&(entry, _), slot)| (entry, count(slot)));
        launches.filter(|&(_, launches)| launches > 0).collect()
    }

    /// Compiles one entry of kernels from a file.
    fn load_given(&self, entry: &'static str, kernels: &'static Kernels) -> Result<Function> {
        let (major, minor) = self.inner.info.capability;
        let fail = |reason| Error::Kernels { path: kernels.path().to_owned(), reason };
        if kernels.arch() > 10 * major + minor {
            let name = &self.inner.info.name;
            return Err(fail(format!(
                "they are for sm_{}, {name} is sm_{major}{minor}",
                kernels.arch()
            )));
        }
        let function =
            self.prepare(Function::of_ptx(kernels.ptx(entry).unwrap_or_default(), entry));
        function.map_err(|error| fail(format!("loading {entry}: {}", driver::message(error))))
    }

    /// Allows a kernel all of a block's shared memory.
    fn prepare(&self, function: Answer<Function>) -> Answer<Function> {
        let function = function?;
        function.allow_shared_memory(self.inner.info.shared_memory)?;
        Ok(function)
    }

    /// The error for a failed driver call.
    pub(super) fn error(&self, call: &'static str, error: Fault) -> Error {
        if error == Fault::OUT_OF_MEMORY {
            return self.out_of_memory(0);
        }
        Error::Driver { call, message: driver::message(error) }
    }

    /// The error for an allocation of `needed` bytes that failed.
    pub(crate) fn out_of_memory(&self, needed: u64) -> Error {
        let (free, total) = driver::memory().unwrap_or((0, 0));
        Error::DeviceMemory { needed, free, total }
    }
}

fn key(entry: &'static str, set: Set, given: Option<&'static Kernels>) -> Key {
    (entry, given.map_or_else(|| set.as_ptr().addr(), |kernels| std::ptr::from_ref(kernels).addr()))
}

impl Inner {
    fn new(ordinal: u32) -> Result<Self> {
        let fail =
            |error| Error::Driver { call: "opening the GPU", message: driver::message(error) };
        let info = Info::read(ordinal).map_err(fail)?;
        let tier = embedded::best(embedded::embedded(), info.capability, info.driver).map_err(
            |reason| Error::NoGpu { reason: format!("{} cannot be used: {reason}", info.name) },
        )?;
        let device = Device::new(ordinal).map_err(fail)?;
        let attribute = |attribute| device.attribute(attribute).map_err(fail);
        let grid_rows = grid_rows(attribute(DeviceAttribute::MaxGridDimY)?)?;
        let max_pitch = attribute(DeviceAttribute::MaxPitch)? as usize;
        let context = Context::new(device).map_err(fail)?;
        Ok(Self {
            info,
            context,
            tier,
            grid_rows,
            max_pitch,
            functions: Mutex::default(),
            resident: Mutex::default(),
        })
    }
}

/// The rows of blocks that a device takes, or fewer if the environment says so: then tests reach
/// the grid-stride loops without an image of half a million rows.
fn grid_rows(most: u32) -> Result<u32> {
    const VARIABLE: &str = "APRON_GRID_ROWS";
    let Some(value) = std::env::var_os(VARIABLE) else { return Ok(most) };
    let value = value.to_string_lossy().into_owned();
    let rows = value.parse().ok().filter(|rows| (1..=most).contains(rows));
    rows.ok_or_else(|| Error::Parameter {
        name: VARIABLE,
        value,
        expected: format!("a number from 1 to {most}"),
    })
}

/// Bytes a second of a device's memory, if the driver reports it: two transfers a clock, which is
/// in kHz; the bus is in bits.
fn bandwidth(device: Device) -> u64 {
    let attribute = |attribute| device.attribute(attribute).map_or(0, u64::from);
    2 * 1000
        * attribute(DeviceAttribute::MemoryClockRate)
        * attribute(DeviceAttribute::GlobalMemoryBusWidth)
        / 8
}

impl Info {
    fn read(ordinal: u32) -> Answer<Self> {
        let device = Device::new(ordinal)?;
        let attribute = |attribute| device.attribute(attribute);
        Ok(Self {
            ordinal,
            name: device.name()?,
            capability: (
                attribute(DeviceAttribute::ComputeCapabilityMajor)?,
                attribute(DeviceAttribute::ComputeCapabilityMinor)?,
            ),
            multiprocessors: attribute(DeviceAttribute::MultiprocessorCount)?,
            clock: device
                .attribute(DeviceAttribute::ClockRate)
                .map_or(0, |kilo| 1000 * u64::from(kilo)),
            memory: device.memory()?,
            integrated: attribute(DeviceAttribute::Integrated)? != 0,
            l2_cache: u64::from(attribute(DeviceAttribute::L2CacheSize)?),
            bandwidth: bandwidth(device),
            // The largest that a kernel may ask for.
            shared_memory: attribute(DeviceAttribute::MaxSharedMemoryPerBlockOptin)? as usize,
            driver: driver::version()?,
        })
    }
}
