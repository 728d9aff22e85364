//! The driver's functions, with the signatures of `cuda.h`; numbers stand for its enumerations.
//!
//! The emulator runs the work of a stream as late as the driver's contract permits: when a call
//! waits for it. A program that forgets to wait therefore reads old data. A program that overwrites
//! the source of a copy too soon spoils the copy. The call that waits reports a kernel's error, and
//! so does every later call, because the context is dead.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_uint, c_ushort, c_void};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::machine::{Arguments, Entry, Finding, ILLEGAL_ADDRESS, LAUNCH_FAILED, Launch, Machine};
use crate::memory::Memory;
use crate::settings::{Order, Sabotage, Settings};
use crate::texture::{Description, Resource, Texture};

/// New memory of the host holds these bytes, which are no correct result, to expose reads that come
/// too early.
const NO_RESULT: u8 = 0xA5;

const SUCCESS: u32 = 0;
const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;
const NOT_INITIALIZED: u32 = 3;
const NO_DEVICE: u32 = 100;
const INVALID_DEVICE: u32 = 101;
const INVALID_IMAGE: u32 = 200;
const INVALID_CONTEXT: u32 = 201;
const NO_BINARY_FOR_GPU: u32 = 209;
const UNSUPPORTED_PTX_VERSION: u32 = 222;
const INVALID_HANDLE: u32 = 400;
const NOT_FOUND: u32 = 500;
const NOT_READY: u32 = 600;
const UNKNOWN: u32 = 999;

/// Names and descriptions of the errors that apron's users meet.
const ERRORS: &[(u32, &CStr, &CStr)] = &[
    (SUCCESS, c"CUDA_SUCCESS", c"no error"),
    (INVALID_VALUE, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
    (OUT_OF_MEMORY, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
    (NOT_INITIALIZED, c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
    (NO_DEVICE, c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
    (INVALID_DEVICE, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
    (INVALID_IMAGE, c"CUDA_ERROR_INVALID_IMAGE", c"device kernel image is invalid"),
    (INVALID_CONTEXT, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
    (
        NO_BINARY_FOR_GPU,
        c"CUDA_ERROR_NO_BINARY_FOR_GPU",
        c"no kernel image is available for execution on the device",
    ),
    (
        UNSUPPORTED_PTX_VERSION,
        c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        c"the provided PTX was compiled with an unsupported toolchain.",
    ),
    (INVALID_HANDLE, c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
    (NOT_FOUND, c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
    (NOT_READY, c"CUDA_ERROR_NOT_READY", c"device not ready"),
    (ILLEGAL_ADDRESS, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered"),
    (701, c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", c"too many resources requested for launch"),
    (702, c"CUDA_ERROR_LAUNCH_TIMEOUT", c"the launch timed out and was terminated"),
    (716, c"CUDA_ERROR_MISALIGNED_ADDRESS", c"misaligned address"),
    (LAUNCH_FAILED, c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure"),
    (214, c"CUDA_ERROR_ECC_UNCORRECTABLE", c"uncorrectable ECC error encountered"),
    (UNKNOWN, c"CUDA_ERROR_UNKNOWN", c"unknown error"),
];

/// Errors after which a context takes no more calls.
fn kills(code: u32) -> bool {
    matches!(code, 214 | 220 | 226 | 700 | 702 | 709 | 714..=719 | 721 | 999)
}

struct Driver {
    settings: Settings,
    devices: Vec<Device>,
    initialised: AtomicU32,
    /// Number of threads that are opening a device.
    opening: AtomicU32,
    launches: AtomicU32,
    state: Mutex<State>,
}

/// A device, and its one context.
struct Device {
    memory: Memory,
    /// The error that killed the context, or 0.
    dead: AtomicU32,
}

#[derive(Default)]
struct State {
    /// Number of calls of each function that the settings may make fail.
    calls: HashMap<&'static str, u32>,
    findings: Vec<CString>,
    seen: HashSet<&'static str>,
    /// The kernels that are running, and when each began.
    running: HashMap<u32, (&'static str, Instant)>,
    /// Live handles by number: the device whose context owns the object, and the object.
    handles: HashMap<usize, (usize, Handle)>,
    /// Pinned memory: the start of each allocation, and its size in bytes.
    pinned: BTreeMap<usize, usize>,
    /// Number of calls that waited for a stream with work; sabotage drops one of these waits.
    waits: u32,
    next: usize,
}

/// Work for a stream; returns its error code.
type Work = Arc<dyn Fn() -> u32 + Send + Sync>;

/// A stream: its pending work.
#[derive(Default)]
struct Queue {
    /// The stream's number; newer streams have greater numbers.
    number: usize,
    waiting: Mutex<VecDeque<Work>>,
    /// Held by the thread that runs the work.
    turn: Mutex<()>,
    /// The first error of its work, until a call reports it.
    failed: AtomicU32,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<Work>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, work: Work) {
        self.waiting().push_back(work);
    }

    /// Runs all pending work in order, but none once the context is dead.
    fn run(&self, driver: &Driver) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // `put` may add work meanwhile: the lock is free while work runs.
            let Some(work) = self.waiting().pop_front() else { return };
            let code = if driver.here().dead.load(Relaxed) == 0 { work() } else { SUCCESS };
            if code != SUCCESS {
                let _ = self.failed.compare_exchange(SUCCESS, code, Relaxed, Relaxed);
            }
        }
    }
}

enum Handle {
    Stream(Arc<Queue>),
    /// A graph's nodes in the order of its chain, ready to launch or not.
    Graph(Vec<Work>),
    /// The stream that recorded the event, and the time when the earlier work was done.
    Event(Option<(Arc<Queue>, Arc<OnceLock<Instant>>)>),
    /// The text of a PTX module; `None` for machine code.
    Module(Option<String>),
    Texture(#[expect(dead_code, reason = "kernels have its address")] Box<Texture>),
    Function {
        entry: &'static Entry,
        shared: u32,
    },
}

/// The context handle of the first device; the other devices' handles follow.
const CONTEXT: usize = 0xC0;

thread_local! {
    /// The device whose context is current on this thread.
    static CURRENT: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) };
}

fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(|| {
        let text = std::env::var("APRON_EMULATOR").unwrap_or_default();
        let settings = Settings::parse(&text).unwrap_or_else(|error| {
            eprintln!("APRON_EMULATOR: {error}");
            std::process::exit(70)
        });
        Driver {
            devices: (0..settings.devices)
                .map(|number| Device {
                    memory: Memory::new(number, settings.memory, settings.integrated),
                    dead: AtomicU32::default(),
                })
                .collect(),
            settings,
            initialised: AtomicU32::default(),
            opening: AtomicU32::default(),
            launches: AtomicU32::default(),
            state: Mutex::default(),
        }
    })
}

/// Makes a process with findings end with an error. A process that ends while a thread opens a
/// device also ends with an error, because a real driver shuts down at that moment.
extern "C" fn report() {
    if driver().opening.load(Relaxed) > 0 {
        eprintln!("emulator: the process ends while a device is being opened");
        // SAFETY: as below: the other handlers have nothing to do with the emulator.
        unsafe { libc::_exit(70) };
    }
    let findings = driver().state().findings.len();
    if findings > 0 {
        eprintln!("emulator: {findings} finding(s), see above");
        // SAFETY: the other handlers have nothing to do with the emulator.
        unsafe { libc::_exit(70) };
    }
}

impl Driver {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device whose context is current on this thread. Functions that need one are never called
    /// without one.
    fn here(&self) -> &Device {
        &self.devices[CURRENT.get().expect("a context is current")]
    }

    /// Reports a finding and kills the context.
    fn find(&self, Finding { code, text }: Finding) {
        eprintln!("emulator: {text}");
        let words = words(code).map_or("error", |(_, words)| words.to_str().unwrap_or_default());
        let text = format!("{words}; the emulator found: {text}").replace('\0', " ");
        self.state().findings.extend(CString::new(text));
        self.here().dead.store(code, Relaxed);
    }

    /// Whether the settings `sabotage` and `limit` apply to this kernel.
    fn is_chosen(&self, kernel: &str) -> bool {
        kernel.starts_with(&*self.settings.kernels)
    }

    /// Registers a launch that begins. A separate thread watches all running launches, because
    /// nothing else can end an endless kernel.
    fn watch(&'static self, launch: u32, kernel: &'static str) {
        static WATCH: Once = Once::new();
        self.state().running.insert(launch, (kernel, Instant::now()));
        WATCH.call_once(|| {
            let limit = Duration::from_secs(self.settings.limit.into());
            let watch = move || loop {
                std::thread::sleep(Duration::from_millis(500));
                let endless = self
                    .state()
                    .running
                    .values()
                    .find(|(_, since)| since.elapsed() > limit)
                    .copied();
                if let Some((kernel, _)) = endless {
                    eprintln!(
                        "emulator: kernel {kernel} has run for {} s: it does not end",
                        limit.as_secs()
                    );
                    // SAFETY: the process ends here, so no other thread goes on.
                    unsafe { libc::_exit(70) };
                }
            };
            std::thread::spawn(watch);
        });
    }

    /// Reports why an argument is refused.
    fn refuse(&self, call: &str, why: &str) -> u32 {
        eprintln!("emulator: {call}: {why}");
        INVALID_VALUE
    }
}

fn words(code: u32) -> Option<(&'static CStr, &'static CStr)> {
    ERRORS.iter().find(|&&(number, ..)| number == code).map(|&(_, name, words)| (name, words))
}

impl State {
    fn add(&mut self, handle: Handle) -> usize {
        self.next += 16;
        self.add_at(self.next, handle);
        self.next
    }

    fn add_at(&mut self, number: usize, handle: Handle) {
        self.handles.insert(number, (CURRENT.get().expect("a context is current"), handle));
    }

    /// Whether all host memory of a copy is pinned.
    fn is_pinned(&self, copy: &Copy2D) -> bool {
        let side = |kind, host: *const u8, (x, y): (usize, usize), pitch: usize| {
            let (first, bytes) =
                (host.addr() + y * pitch + x, copy.height.saturating_sub(1) * pitch + copy.width);
            let before = self.pinned.range(..=first).next_back();
            kind != HOST || before.is_some_and(|(start, len)| first + bytes <= start + len)
        };
        side(copy.src_type, copy.src_host, (copy.src_x, copy.src_y), copy.src_pitch)
            && side(copy.dst_type, copy.dst_host, (copy.dst_x, copy.dst_y), copy.dst_pitch)
    }

    /// The object with this number, if it belongs to the current context.
    fn get(&mut self, number: usize) -> Option<&mut Handle> {
        let found = self.handles.get_mut(&number);
        found.filter(|(device, _)| Some(*device) == CURRENT.get()).map(|(_, handle)| handle)
    }
}

/// The state that a function needs.
#[derive(PartialEq, PartialOrd)]
enum Needs {
    Nothing,
    /// `cuInit`.
    Driver,
    /// A context, current and alive.
    Context,
}

/// Checks every call as a driver does, and makes the call fail if the settings say so.
fn call(name: &'static str, needs: Needs, body: impl FnOnce(&'static Driver) -> u32) -> u32 {
    let driver = driver();
    let injected = {
        let mut state = driver.state();
        let count = state.calls.entry(name).or_default();
        *count += 1;
        let count = *count;
        driver
            .settings
            .failures
            .iter()
            .find(|failure| failure.function == name && failure.call == count)
    };
    if let Some(failure) = injected {
        if kills(failure.code) && CURRENT.get().is_some() {
            driver.here().dead.store(failure.code, Relaxed);
        }
        return failure.code;
    }
    if needs >= Needs::Driver && driver.initialised.load(Relaxed) == 0 {
        return NOT_INITIALIZED;
    }
    if needs == Needs::Context {
        if CURRENT.get().is_none() {
            return INVALID_CONTEXT;
        }
        let dead = driver.here().dead.load(Relaxed);
        if dead != 0 {
            return dead;
        }
    }
    catch_unwind(AssertUnwindSafe(|| body(driver))).unwrap_or(UNKNOWN)
}

/// Writes a result through the caller's pointer.
///
/// # Safety
/// `to` is null or valid for writes.
unsafe fn put<T>(to: *mut T, value: T) -> u32 {
    if to.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: as the caller promised.
    unsafe { to.write(value) };
    SUCCESS
}

macro_rules! exports {
    ($($needs:ident fn $name:ident($driver:ident $(, $argument:ident: $type:ty)* $(,)?) $body:block)*) => {$(
        /// # Safety
        /// As the driver's function of this name.
        #[unsafe(no_mangle)]
        #[allow(unused_unsafe, reason = "some do nothing that needs it")]
        unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
            // SAFETY: the caller keeps to the function's contract.
            call(stringify!($name), Needs::$needs, |$driver| unsafe { $body })
        }
    )*};
}

type Pointer = u64;

exports! {
    Nothing fn cuInit(driver, _flags: c_uint) {
        static REPORTED: Once = Once::new();
        // Registered once the driver exists. Otherwise a process that ends meanwhile would wait in
        // `report` for the driver, and then report the device that opens next.
        // SAFETY: `report` may run at the process's end.
        REPORTED.call_once(|| unsafe {
            libc::atexit(report);
        });
        if driver.settings.devices == 0 {
            return NO_DEVICE;
        }
        driver.initialised.store(1, Relaxed);
        SUCCESS
    }

    Nothing fn cuDriverGetVersion(driver, version: *mut c_int) {
        put(version, driver.settings.driver as c_int)
    }

    Driver fn cuDeviceGetCount(driver, count: *mut c_int) {
        put(count, driver.settings.devices as c_int)
    }

    Driver fn cuDeviceGet(driver, device: *mut c_int, ordinal: c_int) {
        if ordinal < 0 || ordinal as u32 >= driver.settings.devices {
            return INVALID_DEVICE;
        }
        put(device, ordinal)
    }

    Driver fn cuDeviceGetName(driver, name: *mut c_char, len: c_int, _device: c_int) {
        let text = format!("emulated sm_{}", driver.settings.arch);
        let bytes = text.bytes().take(len.max(1) as usize - 1).chain([0]);
        bytes.enumerate().for_each(|(i, byte)| name.add(i).write(byte as c_char));
        SUCCESS
    }

    Driver fn cuDeviceTotalMem_v2(driver, bytes: *mut usize, _device: c_int) {
        put(bytes, driver.settings.memory)
    }

    Driver fn cuDeviceGetAttribute(driver, value: *mut c_int, attribute: c_int, _device: c_int) {
        match attribute_of(&driver.settings, attribute) {
            Some(found) => put(value, found as c_int),
            None => driver.refuse("cuDeviceGetAttribute", &format!("attribute {attribute} is not known to the emulator")),
        }
    }

    Driver fn cuDevicePrimaryCtxRetain(driver, context: *mut usize, device: c_int) {
        driver.opening.fetch_add(1, Relaxed);
        std::thread::sleep(Duration::from_millis(driver.settings.opening.into()));
        driver.opening.fetch_sub(1, Relaxed);
        match driver.devices.get(device as usize).map(|device| device.dead.load(Relaxed)) {
            Some(0) => put(context, CONTEXT + device as usize),
            Some(dead) => dead,
            None => INVALID_DEVICE,
        }
    }

    Driver fn cuDevicePrimaryCtxRelease_v2(_driver, _device: c_int) {
        SUCCESS
    }

    Driver fn cuCtxSetCurrent(driver, context: usize) {
        CURRENT.set(context.checked_sub(CONTEXT).filter(|&device| device < driver.devices.len()));
        if CURRENT.get().is_some() || context == 0 { SUCCESS } else { INVALID_CONTEXT }
    }

    Context fn cuMemGetInfo_v2(driver, free: *mut usize, total: *mut usize) {
        let info = driver.here().memory.info();
        put(free, info.0) | put(total, info.1)
    }

    Context fn cuMemAlloc_v2(driver, pointer: *mut Pointer, bytes: usize) {
        if bytes == 0 {
            return INVALID_VALUE;
        }
        driver.here().memory.allocate(bytes).map_or(OUT_OF_MEMORY, |address| put(pointer, address))
    }

    Context fn cuMemFree_v2(driver, pointer: Pointer) {
        // A real driver frees memory once the device no longer uses it.
        finish_all(driver);
        if pointer == 0 || driver.here().memory.free(pointer) {
            SUCCESS
        } else {
            driver.refuse("cuMemFree", &format!("nothing is allocated at {pointer:#x}"))
        }
    }

    // A stream's memory may be used when the stream has no work, as all memory here.
    Context fn cuStreamAttachMemAsync(driver, stream: usize, address: Pointer, bytes: usize, flags: c_uint) {
        const SINGLE: c_uint = 4;
        if bytes != 0 || flags != SINGLE || !driver.here().memory.begins_at(address) {
            return driver.refuse("cuStreamAttachMemAsync", &format!("{bytes} bytes at {address:#x}, flags {flags}"));
        }
        in_stream(driver, stream, || SUCCESS)
    }

    Context fn cuMemAllocManaged(driver, pointer: *mut Pointer, bytes: usize, _flags: c_uint) {
        if !driver.settings.integrated {
            return driver.refuse("cuMemAllocManaged", "the device does not share the host's memory");
        }
        let memory = &driver.here().memory;
        let Some(address) = memory.allocate(bytes) else { return OUT_OF_MEMORY };
        copied(driver, "cuMemAllocManaged", memory.fill(address, &[NO_RESULT], bytes)) | put(pointer, address)
    }

    Context fn cuMemAllocHost_v2(driver, pointer: *mut *mut c_void, bytes: usize) {
        let memory = libc::malloc(bytes.max(1));
        if memory.is_null() {
            return OUT_OF_MEMORY;
        }
        libc::memset(memory, NO_RESULT.into(), bytes);
        driver.state().pinned.insert(memory.addr(), bytes);
        put(pointer, memory)
    }

    Context fn cuMemFreeHost(driver, pointer: *mut c_void) {
        finish_all(driver);
        if driver.state().pinned.remove(&pointer.addr()).is_none() {
            return driver.refuse("cuMemFreeHost", &format!("nothing is allocated at {pointer:?}"));
        }
        libc::free(pointer);
        SUCCESS
    }

    Context fn cuMemcpyHtoD_v2(driver, to: Pointer, from: *const u8, bytes: usize) {
        copied(driver, "cuMemcpyHtoD", driver.here().memory.upload(to, from, bytes))
    }

    Context fn cuMemcpyDtoDAsync_v2(driver, to: Pointer, from: Pointer, bytes: usize, stream: usize) {
        in_stream(driver, stream, move || {
            let result = driver.here().memory.copy(to, from, bytes);
            copied(driver, "cuMemcpyDtoDAsync", result.map(|unknown| note_unknown(driver, unknown)))
        })
    }

    Context fn cuMemcpy2DAsync_v2(driver, copy: *const Copy2D, stream: usize) {
        let copy = copy.read();
        if let Err(code) = check_2d(driver, &copy) {
            return code;
        }
        let pageable = !driver.state().is_pinned(&copy);
        let code = in_stream(driver, stream, move || copy_2d(driver, &copy));
        // For memory that is not pinned, the driver copies before the call returns.
        if pageable && code == SUCCESS { wait(driver, stream) } else { code }
    }

    Context fn cuMemsetD32Async(driver, to: Pointer, value: c_uint, words: usize, stream: usize) {
        in_stream(driver, stream, move || {
            copied(driver, "cuMemsetD32Async", driver.here().memory.fill(to, &value.to_le_bytes(), words))
        })
    }

    Context fn cuMemsetD16Async(driver, to: Pointer, value: c_ushort, halves: usize, stream: usize) {
        in_stream(driver, stream, move || {
            copied(driver, "cuMemsetD16Async", driver.here().memory.fill(to, &value.to_le_bytes(), halves))
        })
    }

    Context fn cuMemsetD8Async(driver, to: Pointer, value: c_uchar, bytes: usize, stream: usize) {
        in_stream(driver, stream, move || copied(driver, "cuMemsetD8Async", driver.here().memory.fill(to, &[value], bytes)))
    }

    Context fn cuMemsetD2D8Async(driver, to: Pointer, pitch: usize, value: c_uchar, width: usize, height: usize, stream: usize) {
        if height > 1 && width > pitch {
            return driver.refuse("cuMemsetD2D8Async", "rows are longer than their pitch");
        }
        in_stream(driver, stream, move || {
            let row = |row: usize| driver.here().memory.fill(to.wrapping_add((row * pitch) as u64), &[value], width);
            copied(driver, "cuMemsetD2D8Async", (0..height).try_for_each(row))
        })
    }

    Context fn cuTexObjectCreate(driver, object: *mut u64, resource: *const Resource, description: *const Description, view: *const c_void) {
        if !view.is_null() {
            return driver.refuse("cuTexObjectCreate", "the emulator has no resource views");
        }
        match Texture::new(&*resource, &*description) {
            Ok(texture) => {
                // Kernels get its address, so it must not move.
                let texture = Box::new(texture);
                let address = (&raw const *texture).addr();
                driver.state().add_at(address, Handle::Texture(texture));
                put(object, address as u64)
            }
            Err(why) => driver.refuse("cuTexObjectCreate", &why),
        }
    }

    Context fn cuTexObjectDestroy(driver, object: u64) {
        remove(driver, object as usize)
    }

    Context fn cuModuleLoadDataEx(driver, module: *mut usize, image: *const c_char, _options: c_uint, _names: *mut c_int, _values: *mut *mut c_void) {
        match load(&driver.settings, image) {
            Ok(text) => put(module, driver.state().add(Handle::Module(text))),
            Err(code) => code,
        }
    }

    Context fn cuModuleUnload(driver, module: usize) {
        remove(driver, module)
    }

    Context fn cuModuleGetFunction(driver, function: *mut usize, module: usize, name: *const c_char) {
        let name = CStr::from_ptr(name).to_string_lossy();
        let mut state = driver.state();
        let has = match state.get(module) {
            Some(Handle::Module(Some(text))) => text.contains(&format!(".entry {name}(")),
            Some(Handle::Module(None)) => true,
            _ => return INVALID_HANDLE,
        };
        match Entry::find(&name).filter(|_| has) {
            Some(entry) => put(function, state.add(Handle::Function { entry, shared: 48 << 10 })),
            None => {
                eprintln!("emulator: there is no kernel {name}{}", if has { ": is it in emulator/src/lib.rs?" } else { "" });
                NOT_FOUND
            }
        }
    }

    Context fn cuFuncSetAttribute(driver, function: usize, attribute: c_int, value: c_int) {
        const MAX_DYNAMIC_SHARED_SIZE_BYTES: c_int = 8;
        match driver.state().get(function) {
            Some(Handle::Function { shared, .. }) if attribute == MAX_DYNAMIC_SHARED_SIZE_BYTES => {
                if value < 0 || value as u32 > driver.settings.shared {
                    return INVALID_VALUE;
                }
                *shared = value as u32;
                SUCCESS
            }
            Some(Handle::Function { .. }) => SUCCESS,
            _ => INVALID_HANDLE,
        }
    }

    Context fn cuOccupancyMaxActiveBlocksPerMultiprocessor(driver, blocks: *mut c_int, function: usize, threads: c_int, shared: usize) {
        let Some(Handle::Function { .. }) = driver.state().get(function) else { return INVALID_HANDLE };
        if threads <= 0 {
            return INVALID_VALUE;
        }
        // Each block takes 1 KiB of shared memory in addition to its own. A multiprocessor has 1
        // KiB more than its largest block needs.
        let by_shared = (driver.settings.shared as usize + 1024) / (shared + 1024);
        put(blocks, (2048 / threads).min(by_shared as c_int).min(32))
    }

    Context fn cuLaunchKernel(
        driver,
        function: usize,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: usize,
        parameters: *const *mut c_void,
        extra: *const *mut c_void,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let node = KernelNode { function, grid, block, shared, parameters, extra };
        prepare(driver, &node, false).map_or_else(|code| code, |work| in_stream(driver, stream, move || work()))
    }

    Context fn cuLaunchKernelEx(driver, config: *const LaunchConfig, function: usize, parameters: *const *mut c_void, extra: *const *mut c_void) {
        const PROGRAMMATIC_STREAM_SERIALIZATION: c_uint = 6;
        let &LaunchConfig { grid, block, shared, stream, attributes, count } = &*config;
        let mut early = false;
        for i in 0..count as usize {
            let attribute = &*attributes.add(i);
            if attribute.id != PROGRAMMATIC_STREAM_SERIALIZATION {
                return driver.refuse("cuLaunchKernelEx", &format!("the emulator has no attribute {}", attribute.id));
            }
            early = attribute.value != 0;
        }
        let node = KernelNode { function, grid, block, shared, parameters, extra };
        prepare(driver, &node, early).map_or_else(|code| code, |work| in_stream(driver, stream, move || work()))
    }

    Context fn cuFuncGetAttribute(driver, value: *mut c_int, attribute: c_int, function: usize) {
        const PTX_VERSION: c_int = 5;
        match driver.state().get(function) {
            Some(Handle::Function { .. }) if attribute == PTX_VERSION => put(value, driver.settings.arch as c_int),
            Some(Handle::Function { .. }) => INVALID_VALUE,
            _ => INVALID_HANDLE,
        }
    }

    Context fn cuStreamCreateWithPriority(driver, stream: *mut usize, _flags: c_uint, _priority: c_int) {
        let mut state = driver.state();
        let queue = Queue { number: state.next, ..Queue::default() };
        put(stream, state.add(Handle::Stream(Arc::new(queue))))
    }

    Context fn cuStreamSynchronize(driver, stream: usize) {
        if let Some(Sabotage::MissingWait(lost)) = driver.settings.sabotage {
            let idle = queue(driver, stream).is_none_or(|queue| queue.waiting().is_empty());
            let mut state = driver.state();
            state.waits += u32::from(!idle);
            if state.waits == lost && !idle {
                return SUCCESS;
            }
        }
        wait(driver, stream)
    }

    Context fn cuGraphCreate(driver, graph: *mut usize, _flags: c_uint) {
        put(graph, driver.state().add(Handle::Graph(Vec::new())))
    }

    Context fn cuGraphAddKernelNode(
        driver,
        node: *mut usize,
        graph: usize,
        _dependencies: *const usize,
        count: usize,
        parameters: *const KernelNode,
    ) {
        let work = match prepare(driver, &*parameters, false) {
            Ok(work) => work,
            Err(code) => return code,
        };
        match driver.state().get(graph) {
            // A chain: each node but the first depends on exactly one node, the previous one.
            Some(Handle::Graph(chain)) if count == usize::from(!chain.is_empty()) => {
                chain.push(work);
                put(node, chain.len())
            }
            _ => INVALID_VALUE,
        }
    }

    Context fn cuGraphInstantiate_v2(driver, ready: *mut usize, graph: usize, _node: *mut usize, _log: *mut c_char, _log_len: usize) {
        let mut state = driver.state();
        match state.get(graph) {
            Some(Handle::Graph(recorded)) => {
                let recorded = recorded.clone();
                put(ready, state.add(Handle::Graph(recorded)))
            }
            _ => INVALID_HANDLE,
        }
    }

    Context fn cuGraphLaunch(driver, ready: usize, stream: usize) {
        let recorded = match driver.state().get(ready) {
            Some(Handle::Graph(recorded)) => recorded.clone(),
            _ => return INVALID_HANDLE,
        };
        in_stream(driver, stream, move || recorded.iter().map(|work| work()).find(|&code| code != SUCCESS).unwrap_or(SUCCESS))
    }

    Context fn cuGraphDestroy(driver, graph: usize) {
        remove(driver, graph)
    }

    Context fn cuGraphExecDestroy(driver, ready: usize) {
        remove(driver, ready)
    }

    Context fn cuStreamDestroy_v2(driver, stream: usize) {
        let code = wait(driver, stream);
        if code == INVALID_HANDLE { code } else { remove(driver, stream) }
    }

    Context fn cuEventCreate(driver, event: *mut usize, _flags: c_uint) {
        put(event, driver.state().add(Handle::Event(None)))
    }

    Context fn cuEventRecord(driver, event: usize, stream: usize) {
        let Some(queue) = queue(driver, stream) else { return INVALID_HANDLE };
        let moment = Arc::new(OnceLock::new());
        match driver.state().get(event) {
            Some(Handle::Event(recorded)) => *recorded = Some((queue, moment.clone())),
            _ => return INVALID_HANDLE,
        }
        in_stream(driver, stream, move || {
            moment.get_or_init(Instant::now);
            SUCCESS
        })
    }

    Context fn cuEventSynchronize(driver, event: usize) {
        let recorded = match driver.state().get(event) {
            Some(Handle::Event(recorded)) => recorded.clone(),
            _ => return INVALID_HANDLE,
        };
        match recorded {
            Some((queue, moment)) if moment.get().is_none() => finish(driver, &queue),
            _ => SUCCESS,
        }
    }

    Context fn cuEventElapsedTime(driver, milliseconds: *mut f32, start: usize, end: usize) {
        let mut state = driver.state();
        let mut when = |event| match state.get(event) {
            Some(Handle::Event(Some((_, moment)))) => moment.get().copied().ok_or(NOT_READY),
            _ => Err(INVALID_HANDLE),
        };
        match (when(start), when(end)) {
            (Ok(start), Ok(end)) => put(milliseconds, end.saturating_duration_since(start).as_secs_f32() * 1e3),
            (Err(code), _) | (_, Err(code)) => code,
        }
    }

    Context fn cuEventDestroy_v2(driver, event: usize) {
        remove(driver, event)
    }
}

/// # Safety
/// As the driver's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(error: u32, text: *mut *const c_char) -> u32 {
    // SAFETY: the caller keeps to the function's contract.
    words(error).map_or(INVALID_VALUE, |(name, _)| unsafe { put(text, name.as_ptr()) })
}

/// The description of the error. If a finding killed the context with this error, the finding's
/// text instead.
///
/// # Safety
/// As the driver's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(error: u32, text: *mut *const c_char) -> u32 {
    let driver = driver();
    let state = driver.state();
    let killed = driver.devices.iter().any(|device| device.dead.load(Relaxed) == error);
    let found = state.findings.first().filter(|_| error != SUCCESS && killed);
    // Findings live on the heap until the process ends, so the pointer stays valid when the list
    // grows.
    let pointer =
        found.map(|found| found.as_ptr()).or_else(|| words(error).map(|(_, words)| words.as_ptr()));
    // SAFETY: the caller keeps to the function's contract.
    pointer.map_or(INVALID_VALUE, |pointer| unsafe { put(text, pointer) })
}

/// The value of an attribute, by its number in `CUdevice_attribute`.
fn attribute_of(settings: &Settings, attribute: c_int) -> Option<u32> {
    Some(match attribute {
        // Maximum threads per block and along each side of it; then maximum blocks along each side
        // of the grid.
        1..=3 => 1024,
        4 => 64,
        5 => i32::MAX as u32,
        6 | 7 => 65535,
        // Bytes of shared memory per block without opting in to more; bytes of constant memory.
        8 => 48 << 10,
        9 => 64 << 10,
        // Threads in a warp.
        10 => WARP,
        11 => settings.pitch,
        12 => 65536,
        // Clock, in kHz.
        13 => 1000 * settings.clock,
        16 => settings.multiprocessors,
        // Whether it shares the host's memory.
        18 => settings.integrated.into(),
        // Memory: clock in kHz, bus width in bits, bytes of L2 cache.
        36 => settings.bandwidth * (1_000_000 / 16),
        37 => 64,
        38 => settings.cache,
        39 => 2048,
        75 => settings.arch / 10,
        76 => settings.arch % 10,
        81 => settings.shared + 1024,
        97 => settings.shared,
        _ => return None,
    })
}

const WARP: u32 = 32;

/// The error code of a copy.
fn copied(driver: &Driver, call: &str, result: Result<(), String>) -> u32 {
    result.map_or_else(|why| driver.refuse(call, &why), |()| SUCCESS)
}

/// The queue of a stream. The default stream (0) has no queue of its own: its work never outlasts
/// the call.
fn queue(driver: &Driver, stream: usize) -> Option<Arc<Queue>> {
    match driver.state().get(stream) {
        Some(Handle::Stream(queue)) => Some(queue.clone()),
        _ if stream == 0 => Some(Arc::default()),
        _ => None,
    }
}

/// Puts work into a stream.
fn in_stream(
    driver: &'static Driver,
    stream: usize,
    work: impl Fn() -> u32 + Send + Sync + 'static,
) -> u32 {
    let Some(queue) = queue(driver, stream) else { return INVALID_HANDLE };
    queue.put(Arc::new(work));
    if stream == 0 || driver.settings.order == Order::Early {
        finish(driver, &queue)
    } else {
        SUCCESS
    }
}

/// Waits for a stream.
fn wait(driver: &Driver, stream: usize) -> u32 {
    queue(driver, stream).map_or(INVALID_HANDLE, |queue| finish(driver, &queue))
}

/// Runs a stream's work and returns its error, if any. If the settings say so, first runs the work
/// of all other streams of the device, the newest first.
fn finish(driver: &Driver, queue: &Arc<Queue>) -> u32 {
    if driver.settings.order == Order::OthersFirst {
        finish_all_but(driver, Some(queue));
    }
    queue.run(driver);
    match queue.failed.swap(SUCCESS, Relaxed) {
        SUCCESS => driver.here().dead.load(Relaxed),
        code => code,
    }
}

/// Runs the work of every stream of the device.
fn finish_all(driver: &Driver) {
    finish_all_but(driver, None);
}

fn finish_all_but(driver: &Driver, but: Option<&Arc<Queue>>) {
    let mut queues: Vec<Arc<Queue>> = {
        let state = driver.state();
        let here = state.handles.values().filter(|(device, _)| Some(*device) == CURRENT.get());
        let streams =
            here.filter_map(
                |(_, handle)| if let Handle::Stream(queue) = handle { Some(queue) } else { None },
            );
        streams.filter(|queue| but.is_none_or(|but| !Arc::ptr_eq(but, queue))).cloned().collect()
    };
    queues.sort_by_key(|queue| std::cmp::Reverse(queue.number));
    queues.iter().for_each(|queue| queue.run(driver));
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LaunchConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: usize,
    attributes: *const LaunchAttribute,
    count: c_uint,
}

/// `CUlaunchAttribute` whose value is a number.
#[repr(C, align(8))]
struct LaunchAttribute {
    id: c_uint,
    padding: [u8; 4],
    value: c_int,
    rest: [u8; 60],
}

/// `CUDA_KERNEL_NODE_PARAMS`, first version.
#[repr(C)]
struct KernelNode {
    function: usize,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    parameters: *const *mut c_void,
    extra: *const *mut c_void,
}

/// Makes a launch with its arguments, which may run any number of times; or the error that forbids
/// it.
///
/// # Safety
/// `node.parameters` holds the parameters of the kernel.
unsafe fn prepare(driver: &'static Driver, node: &KernelNode, early: bool) -> Result<Work, u32> {
    let &KernelNode { grid, block, shared, .. } = node;
    let (entry, most) = match driver.state().get(node.function) {
        Some(&mut Handle::Function { entry, shared }) => (entry, shared),
        _ => return Err(INVALID_HANDLE),
    };
    let limits = [grid[0] <= i32::MAX as u32, grid[1] <= 65535, grid[2] <= 65535]
        .into_iter()
        .chain([block[0] <= 1024, block[1] <= 1024, block[2] <= 64])
        .all(|kept| kept);
    let threads = block.iter().map(|&size| u64::from(size)).product::<u64>();
    if grid.contains(&0) || block.contains(&0) || !limits || threads > 1024 {
        let why = format!("{}: a grid of {grid:?} blocks of {block:?} threads", entry.name);
        return Err(driver.refuse("cuLaunchKernel", &why));
    }
    if shared > most {
        let name = entry.name;
        let why = format!("{name}: {shared} bytes of shared memory, the limit is {most}");
        return Err(driver.refuse("cuLaunchKernel", &why));
    }
    if node.parameters.is_null() || !node.extra.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: as the caller promised.
    let arguments = unsafe { Arguments::copy(entry, node.parameters) };
    Ok(Arc::new(move || {
        let launch = Launch {
            number: driver.launches.fetch_add(1, Relaxed) + 1,
            entry,
            arguments: &arguments,
            grid,
            block,
            shared: shared as usize,
            memory: &driver.here().memory,
            asynchronous: driver.settings.arch >= 80,
            early,
            sabotage: driver.settings.sabotage.filter(|_| driver.is_chosen(entry.name)),
        };
        note(driver, entry.name);
        if driver.is_chosen(entry.name) {
            driver.watch(launch.number, entry.name);
        }
        let done = Machine::run(launch);
        driver.state().running.remove(&launch.number);
        if let Err(finding) = done {
            driver.find(finding);
        }
        SUCCESS
    }))
}

fn remove(driver: &Driver, handle: usize) -> u32 {
    let mut state = driver.state();
    if state.get(handle).is_none() {
        return INVALID_HANDLE;
    }
    state.handles.remove(&handle);
    SUCCESS
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
struct Copy2D {
    src_x: usize,
    src_y: usize,
    src_type: c_int,
    src_host: *const u8,
    src_device: Pointer,
    src_array: *const c_void,
    src_pitch: usize,
    dst_x: usize,
    dst_y: usize,
    dst_type: c_int,
    dst_host: *mut u8,
    dst_device: Pointer,
    dst_array: *const c_void,
    dst_pitch: usize,
    width: usize,
    height: usize,
}

// SAFETY: whoever puts the copy into a stream is responsible for the memory behind its pointers.
unsafe impl Send for Copy2D {}
// SAFETY: likewise.
unsafe impl Sync for Copy2D {}

const HOST: c_int = 1;
const DEVICE: c_int = 2;

/// Whether the driver would accept a copy.
fn check_2d(driver: &Driver, copy: &Copy2D) -> Result<(), u32> {
    if copy.width > copy.src_pitch || copy.width > copy.dst_pitch {
        return Err(driver.refuse("cuMemcpy2DAsync", "rows are longer than their pitch"));
    }
    let pitch = copy.src_pitch.max(copy.dst_pitch);
    if pitch > driver.settings.pitch as usize {
        return Err(driver.refuse("cuMemcpy2DAsync", &format!("a pitch of {pitch} bytes")));
    }
    Ok(())
}

/// Copies rows, between host and device or within the device.
///
/// # Safety
/// The host rows are valid for reads as a source and for writes as a destination.
unsafe fn copy_2d(driver: &Driver, copy: &Copy2D) -> u32 {
    let memory = &driver.here().memory;
    let mut unknown = None;
    for row in 0..copy.height {
        let from = (copy.src_y + row) * copy.src_pitch + copy.src_x;
        let to = (copy.dst_y + row) * copy.dst_pitch + copy.dst_x;
        let (src, dst) =
            (copy.src_device.wrapping_add(from as u64), copy.dst_device.wrapping_add(to as u64));
        // SAFETY: as the caller promised.
        let result = unsafe {
            match (copy.src_type, copy.dst_type) {
                (HOST, DEVICE) => {
                    memory.upload(dst, copy.src_host.wrapping_add(from), copy.width).map(|()| None)
                }
                (DEVICE, HOST) => memory.download(copy.dst_host.wrapping_add(to), src, copy.width),
                (DEVICE, DEVICE) => memory.copy(dst, src, copy.width),
                other => Err(format!("memory of types {other:?}")),
            }
        };
        match result {
            Ok(word) => unknown = unknown.or(word),
            Err(why) => return driver.refuse("cuMemcpy2DAsync", &format!("row {row}: {why}")),
        }
    }
    note_unknown(driver, unknown);
    SUCCESS
}

/// Reports a copy that read memory that nothing had written, if there was one.
fn note_unknown(driver: &Driver, address: Option<Pointer>) {
    if let Some(address) = address {
        let address = driver.here().memory.describe(address);
        let text = format!("a copy reads memory that nothing wrote: address {address}");
        driver.find(Finding { code: ILLEGAL_ADDRESS, text });
    }
}

/// Loads a module: PTX text that driver and device support, or machine code.
///
/// # Safety
/// `image` points to machine code or to PTX that ends with a zero.
unsafe fn load(settings: &Settings, image: *const c_char) -> Result<Option<String>, u32> {
    let toolkit = (settings.driver / 1000, settings.driver % 1000 / 10);
    // PTX 7 belongs to CUDA 11, PTX 8 to CUDA 12, and so on.
    let newest = (toolkit.0.saturating_sub(4), toolkit.1);
    // SAFETY: an image has at least four bytes.
    if unsafe { std::slice::from_raw_parts(image.cast::<u8>(), 4) } == b"\x7fELF" {
        return if newest < (8, 0) { Err(INVALID_IMAGE) } else { Ok(None) };
    }
    // SAFETY: PTX ends with a zero.
    let text = unsafe { CStr::from_ptr(image) }.to_string_lossy().into_owned();
    let word = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()).map(str::to_owned).ok_or(INVALID_IMAGE)
    };
    let version = word(".version")?;
    let (major, minor) = version.split_once('.').ok_or(INVALID_IMAGE)?;
    let version =
        (major.parse().map_err(|_| INVALID_IMAGE)?, minor.parse().map_err(|_| INVALID_IMAGE)?);
    if version > newest {
        return Err(UNSUPPORTED_PTX_VERSION);
    }
    let target = word(".target sm_")?;
    let target: u32 = target
        .trim_end_matches(|c: char| !c.is_ascii_digit())
        .parse()
        .map_err(|_| INVALID_IMAGE)?;
    if target > settings.arch { Err(NO_BINARY_FOR_GPU) } else { Ok(Some(text)) }
}

/// Appends a kernel's name to the file of launched kernels.
fn note(driver: &Driver, kernel: &'static str) {
    let Some(path) = &driver.settings.launches else { return };
    if driver.state().seen.insert(kernel) {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        // In one write, because other threads append to the file too.
        if let Err(error) =
            file.and_then(|mut file| file.write_all(format!("{kernel}\n").as_bytes()))
        {
            eprintln!("emulator: {}: {error}", path.display());
        }
    }
}
