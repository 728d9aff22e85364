//! A block of threads. Each is a coroutine that runs until it waits for others, all on the thread that launches.
//!
//! Blocks run one after the other, so every run is the same. Orders that only a GPU would show are detected
//! by rules, not by chance. Each float of shared memory keeps its last writer and readers, with the
//! number of block barriers and of their warp's barriers passed until then. Two accesses are in order if one thread makes
//! both, if a block barrier stands between them, or a warp's barrier and both are the warp's; two that are not in order,
//! one of them a write, are a race.
//!
//! No thread may touch the floats of an asynchronous copy from its start until the copying thread has waited for its group; then
//! they count as written by that thread at that moment.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::ptr;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::abi::Pass;
use crate::border;
use crate::frame::Frame;
use crate::memory::{Memory, Toucher, Wrong};
use crate::settings::Sabotage;

/// A kernel: the macro `kernel!` makes one of each entry.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    /// Bytes of each parameter.
    pub(crate) parameters: &'static [usize],
    /// Runs the kernel as the current thread.
    ///
    /// # Safety
    /// The parameters are those of the kernel.
    pub(crate) run: unsafe fn(Parameters),
}

inventory::collect!(Entry);

impl Entry {
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        inventory::iter::<Self>.into_iter().find(|entry| entry.name == name)
    }
}

/// Copies of the parameters of a launch.
pub(crate) struct Arguments(Vec<Vec<u8>>);

impl Arguments {
    /// Copies the parameters of a kernel, of which the driver gets the addresses.
    ///
    /// # Safety
    /// They are the kernel's.
    pub(crate) unsafe fn copy(entry: &Entry, addresses: *const *mut c_void) -> Self {
        let copy = |(i, &bytes): (usize, &usize)| {
            // SAFETY: as the caller promised.
            unsafe { std::slice::from_raw_parts((*addresses.add(i)).cast::<u8>(), bytes) }.to_vec()
        };
        Self(entry.parameters.iter().enumerate().map(copy).collect())
    }
}

/// The parameters that a thread has not taken yet.
#[derive(Clone, Copy)]
pub(crate) struct Parameters {
    next: *const Vec<u8>,
}

impl Parameters {
    /// The next one.
    ///
    /// # Safety
    /// There is one, of this type.
    pub(crate) unsafe fn next<T: Copy + 'static>(&mut self) -> T {
        // SAFETY: as the caller promised.
        let mut value = unsafe { (*self.next).as_ptr().cast::<T>().read_unaligned() };
        self.next = self.next.wrapping_add(1);
        if here().launch.sabotage == Some(Sabotage::Border) {
            let value: &mut dyn std::any::Any = &mut value;
            let border = match value.downcast_mut::<Pass>() {
                Some(pass) => Some(&mut pass.border),
                None => value.downcast_mut::<Frame>().map(|frame| &mut frame.border),
            };
            if let Some(border) = border {
                *border = match *border {
                    border::REFLECT => border::REFLECT_101,
                    border::REFLECT_101 => border::REFLECT,
                    other => other,
                };
            }
        }
        value
    }
}

/// What is launched.
#[derive(Clone, Copy)]
pub(crate) struct Launch<'a> {
    /// Launches are numbered from 1.
    pub(crate) number: u32,
    pub(crate) entry: &'static Entry,
    pub(crate) arguments: &'a Arguments,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub(crate) shared: usize,
    pub(crate) memory: &'static Memory,
    /// Whether the device has asynchronous copies; else they are done at once.
    pub(crate) asynchronous: bool,
    pub(crate) sabotage: Option<Sabotage>,
}

/// A kernel's violation of the rules.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    /// The driver's number for the error that ends the launch.
    pub(crate) code: u32,
    pub(crate) text: String,
}

pub(crate) const ILLEGAL_ADDRESS: u32 = 700;
const MISALIGNED_ADDRESS: u32 = 716;
pub(crate) const LAUNCH_FAILED: u32 = 719;

/// How device memory is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    /// A path whose caches do not see what the launch writes.
    ReadOnly,
    Plain,
}

/// Why a thread stops running.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    /// It waits for its block, which is told whether any thread came with the flag.
    Block { flag: bool },
    /// It waits for its warp.
    Warp,
    /// It has left the kernel.
    Done,
    /// It is at fault.
    Fault,
}

type Lane = Coroutine<(), Pause, ()>;

const WARP: usize = 32;
/// Room for a thread's variables, even where the compiler optimises nothing.
const STACK: usize = 256 << 10;

thread_local! {
    /// The machine that runs on this thread.
    static MACHINE: Cell<*const Machine<'static>> = const { Cell::new(ptr::null()) };
    /// Stacks for the next launch.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// The machine that the calling thread of a kernel runs on.
#[inline(always)]
pub(crate) fn here() -> &'static Machine<'static> {
    // SAFETY: kernels are run by `Machine::run`, whose machine outlives them.
    unsafe { &*MACHINE.get() }
}

pub(crate) struct Machine<'a> {
    launch: Launch<'a>,
    /// The block that runs, and its number.
    block: Cell<(i32, i32, i32)>,
    block_number: Cell<u32>,
    /// The thread that runs, and its place in the block.
    current: Cell<usize>,
    thread: Cell<(i32, i32)>,
    threads: Vec<Thread>,
    shared: Vec<Word>,
    /// Block barriers passed, counted on from block to block; what was before `first` is another block's.
    epoch: Cell<u32>,
    first: Cell<u32>,
    /// Barriers that each warp has passed.
    warps: Vec<Cell<u32>>,
    /// The result of the block's last barrier.
    any: Cell<bool>,
    finding: RefCell<Option<Finding>>,
}

/// What belongs to one thread.
struct Thread {
    at: (i32, i32),
    yielder: Cell<*const Yielder<(), Pause>>,
    /// The barrier that it waits at.
    site: Cell<&'static Location<'static>>,
    /// Barriers that it has come to in this block, and stores it has made to device memory.
    barriers: Cell<u32>,
    stores: Cell<u32>,
    /// Groups of copies that it has closed.
    groups: Cell<usize>,
    copies: RefCell<VecDeque<InFlight>>,
}

/// A float on its way to shared memory.
struct InFlight {
    group: usize,
    word: usize,
    value: u32,
}

/// A float of shared memory.
#[derive(Default)]
struct Word {
    value: Cell<u32>,
    writer: Access,
    /// The last reader; `several` if other threads of its warp have read since the same barrier of the warp, `crossed` if
    /// threads of other warps have since the same barrier of the block.
    reader: Access,
}

#[derive(Default)]
struct Access {
    epoch: Cell<u32>,
    warp_epoch: Cell<u32>,
    thread: Cell<u16>,
    several: Cell<bool>,
    crossed: Cell<bool>,
    /// An asynchronous copy is in flight.
    pending: Cell<bool>,
    site: Cell<Option<&'static Location<'static>>>,
}

impl<'a> Machine<'a> {
    /// Runs a launch to its end, or to the first finding.
    pub(crate) fn run(launch: Launch<'a>) -> Result<(), Finding> {
        let size = launch.block.map(|size| size as usize);
        let count = size[0] * size[1] * size[2];
        let nowhere = Location::caller();
        let thread = |number: usize| Thread {
            at: ((number % size[0]) as i32, (number / size[0] % size[1]) as i32),
            yielder: Cell::new(ptr::null()),
            site: Cell::new(nowhere),
            barriers: Cell::default(),
            stores: Cell::default(),
            groups: Cell::default(),
            copies: RefCell::default(),
        };
        let machine = Self {
            launch,
            block: Cell::default(),
            block_number: Cell::default(),
            current: Cell::default(),
            thread: Cell::default(),
            threads: (0..count).map(thread).collect(),
            shared: (0..launch.shared / 4).map(|_| Word::default()).collect(),
            epoch: Cell::default(),
            first: Cell::default(),
            warps: (0..count.div_ceil(WARP)).map(|_| Cell::default()).collect(),
            any: Cell::default(),
            finding: RefCell::default(),
        };
        let mut lanes = match (0..count).map(lane).collect::<Result<Vec<_>, _>>() {
            Ok(lanes) => lanes,
            Err(error) => return Err(Finding { code: LAUNCH_FAILED, text: format!("no stack for a thread: {error}") }),
        };
        MACHINE.set((&raw const machine).cast());
        let mut result = Ok(());
        let [across, down, deep] = machine.launch.grid;
        'blocks: for z in 0..deep {
            for y in 0..down {
                for x in 0..across {
                    machine.begin(x, y, z);
                    if machine.run_block(&mut lanes).is_none() {
                        let finding = machine.finding.take();
                        result =
                            Err(finding.unwrap_or(Finding { code: LAUNCH_FAILED, text: "no reason given".into() }));
                        break 'blocks;
                    }
                }
            }
        }
        MACHINE.set(ptr::null());
        STACKS.with_borrow_mut(|stacks| {
            for mut lane in lanes {
                // SAFETY: kernels own nothing that would have to be dropped.
                unsafe { lane.force_reset() };
                stacks.push(lane.into_stack());
            }
        });
        result
    }

    fn begin(&self, x: u32, y: u32, z: u32) {
        let (x, y) = if self.launch.sabotage == Some(Sabotage::GridAxes) { (y, x) } else { (x, y) };
        self.block.set((x as i32, y as i32, z as i32));
        let [across, down, _] = self.launch.grid;
        self.block_number.set((z.wrapping_mul(down).wrapping_add(y)).wrapping_mul(across).wrapping_add(x));
        self.epoch.update(|epoch| epoch + 1);
        self.first.set(self.epoch.get());
        for thread in &self.threads {
            thread.barriers.set(0);
            thread.stores.set(0);
            thread.groups.set(0);
            thread.copies.borrow_mut().clear();
        }
    }

    /// Runs a block to its end; `None` if a thread is at fault.
    fn run_block(&self, lanes: &mut [Lane]) -> Option<()> {
        let mut pauses: Vec<Option<Pause>> = vec![None; lanes.len()];
        loop {
            for (number, warp) in self.warps.iter().enumerate() {
                let members = WARP * number..(WARP * (number + 1)).min(lanes.len());
                loop {
                    for thread in members.clone() {
                        if pauses[thread].is_none() {
                            pauses[thread] = Some(self.resume(thread, &mut lanes[thread])?);
                        }
                    }
                    if pauses[members.clone()].iter().any(|&pause| pause != Some(Pause::Warp)) {
                        break;
                    }
                    self.same_site(members.clone(), "a barrier of the warp")?;
                    warp.update(|passed| passed + 1);
                    pauses[members.clone()].fill(None);
                }
            }
            let waits = |thread: &usize| matches!(pauses[*thread], Some(Pause::Block { .. }));
            let all = 0..lanes.len();
            if all.clone().all(|thread| pauses[thread] == Some(Pause::Done)) {
                return Some(());
            }
            // Threads that wait for less than the block were released above, if possible.
            let stuck = all.clone().find(|thread| !waits(thread) && pauses[*thread] != Some(Pause::Done));
            let missing = match stuck {
                Some(waiting) => {
                    let warp = waiting / WARP * WARP..(waiting / WARP * WARP + WARP).min(lanes.len());
                    warp.clone()
                        .find(|&thread| pauses[thread] != Some(Pause::Warp))
                        .map(|other| (waiting, other, "warp"))
                }
                None => all
                    .clone()
                    .find(|thread| !waits(thread))
                    .and_then(|other| all.clone().find(waits).map(|waiting| (waiting, other, "block"))),
            };
            if let Some((waiting, other, whom)) = missing {
                let does = match pauses[other] {
                    Some(Pause::Done) => "has left the kernel".to_owned(),
                    _ => format!("waits at {}", place(self.threads[other].site.get())),
                };
                let other = self.name(other);
                self.find(
                    waiting,
                    self.threads[waiting].site.get(),
                    LAUNCH_FAILED,
                    &format!("waits at a barrier of the {whom} that not all threads reach: thread {other} {does}"),
                );
                return None;
            }
            self.same_site(all, "a barrier of the block")?;
            self.any.set(pauses.contains(&Some(Pause::Block { flag: true })));
            self.epoch.update(|epoch| epoch + 1);
            pauses.fill(None);
        }
    }

    /// Runs a thread until it stops; `None` if it is at fault.
    fn resume(&self, thread: usize, lane: &mut Lane) -> Option<Pause> {
        self.current.set(thread);
        self.thread.set(self.threads[thread].at);
        match lane.resume(()) {
            CoroutineResult::Yield(Pause::Fault) | CoroutineResult::Return(()) => None,
            CoroutineResult::Yield(pause) => Some(pause),
        }
    }

    /// Whether all these threads wait at one barrier of the source.
    fn same_site(&self, mut threads: std::ops::Range<usize>, what: &str) -> Option<()> {
        let first = threads.start;
        let site = self.threads[first].site.get();
        let Some(other) = threads.find(|&thread| self.threads[thread].site.get() != site) else { return Some(()) };
        let (name, there) = (self.name(other), place(self.threads[other].site.get()));
        let text = format!("waits at {what}, thread {name} at another: {there}");
        self.find(first, site, LAUNCH_FAILED, &text);
        None
    }

    fn name(&self, thread: usize) -> String {
        let (x, y) = self.threads[thread].at;
        format!("({x}, {y}, {})", thread / (self.launch.block[0] * self.launch.block[1]) as usize)
    }

    fn find(&self, thread: usize, site: &Location<'_>, code: u32, fault: &str) {
        let (x, y, z) = self.block.get();
        let (kernel, thread, site) = (self.launch.entry.name, self.name(thread), place(site));
        let text = format!("kernel {kernel}, block ({x}, {y}, {z}), thread {thread}, {site}: {fault}");
        self.finding.borrow_mut().get_or_insert(Finding { code, text });
    }

    /// Ends the launch.
    #[cold]
    #[track_caller]
    fn end(&self, code: u32, fault: &str) -> ! {
        self.find(self.current.get(), Location::caller(), code, fault);
        loop {
            self.suspend(Pause::Fault);
        }
    }

    /// Ends the launch with an error.
    #[cold]
    #[track_caller]
    pub(crate) fn fault(&self, fault: String) -> ! {
        self.end(LAUNCH_FAILED, &fault)
    }

    fn suspend(&self, pause: Pause) {
        // SAFETY: a thread's yielder is there while the thread runs.
        unsafe { &*self.threads[self.current.get()].yielder.get() }.suspend(pause);
    }

    #[inline(always)]
    pub(crate) fn thread(&self) -> (i32, i32) {
        self.thread.get()
    }

    #[inline(always)]
    pub(crate) fn block(&self) -> (i32, i32, i32) {
        self.block.get()
    }

    pub(crate) fn block_size(&self) -> (i32, i32) {
        (self.launch.block[0] as i32, self.launch.block[1] as i32)
    }

    pub(crate) fn grid_width(&self) -> i32 {
        self.launch.grid[0] as i32
    }

    pub(crate) fn grid_height(&self) -> i32 {
        if self.launch.sabotage == Some(Sabotage::NoEnd) { 0 } else { self.launch.grid[1] as i32 }
    }

    /// Waits for the block or the warp; whether any thread of the block came to its barrier with the flag.
    #[track_caller]
    pub(crate) fn wait(&self, pause: Pause) -> bool {
        let thread = &self.threads[self.current.get()];
        thread.barriers.update(|count| count + 1);
        if self.launch.sabotage == Some(Sabotage::MissingBarrier(thread.barriers.get())) {
            return matches!(pause, Pause::Block { flag: true });
        }
        thread.site.set(Location::caller());
        self.suspend(pause);
        self.any.get()
    }

    fn toucher(&self) -> Toucher {
        Toucher { launch: self.launch.number, block: self.block_number.get(), thread: self.current.get() as u32 }
    }

    /// The first word of `count` at an address that must be a multiple of their size.
    #[inline(always)]
    #[track_caller]
    fn aligned(&self, address: usize, count: usize, does: &str) -> usize {
        if !address.is_multiple_of(4 * count) {
            self.end(MISALIGNED_ADDRESS, &format!("{does} {} bytes at {address:#x}, no multiple of that", 4 * count));
        }
        self.launch.memory.word(address)
    }

    #[inline]
    #[track_caller]
    pub(crate) fn load<const N: usize>(&self, address: usize, via: Via) -> [f32; N] {
        let first = self.aligned(address, N, "reads");
        let (by, read_only) = (self.toucher(), via == Via::ReadOnly);
        let mut values = [0.0; N];
        for (i, value) in values.iter_mut().enumerate() {
            match self.launch.memory.load(first + i, by, read_only) {
                Ok(bits) => *value = f32::from_bits(bits),
                Err(wrong) => self.wrong("reads", address + 4 * i, wrong),
            }
        }
        values
    }

    #[inline]
    #[track_caller]
    pub(crate) fn store<const N: usize>(&self, address: usize, mut values: [f32; N]) {
        let first = self.aligned(address, N, "writes");
        if self.launch.sabotage == Some(Sabotage::OnePixel) {
            let stores = &self.threads[self.current.get()].stores;
            if (self.current.get(), self.block_number.get(), stores.replace(1)) == (0, 0, 0) {
                values[0] = f32::from_bits(values[0].to_bits() ^ 1);
            }
        }
        let by = self.toucher();
        for (i, value) in values.iter().enumerate() {
            if let Err(wrong) = self.launch.memory.store(first + i, value.to_bits(), by) {
                self.wrong("writes", address + 4 * i, wrong);
            }
        }
    }

    /// Ends the launch because of an access to device memory.
    #[cold]
    #[track_caller]
    fn wrong(&self, does: &str, address: usize, wrong: Wrong) -> ! {
        let at = self.launch.memory.describe(address as u64);
        match wrong {
            Wrong::OutOfBounds => self.end(ILLEGAL_ADDRESS, &format!("{does} out of bounds: address {at}")),
            Wrong::NotWritten => self.fault(format!("{does} memory that nothing wrote: address {at}")),
            Wrong::WrittenBy(Toucher { block, thread, .. }) => {
                let [across, down, _] = self.launch.grid;
                let block = (block % across, block / across % down, block / (across * down));
                let thread = self.name(thread as usize);
                self.fault(format!(
                    "{does} what thread {thread} of block {block:?} wrote in the same launch: address {at}"
                ))
            }
            Wrong::ReadBy { thread, read_only } => {
                let (path, thread) =
                    (if read_only { " by the read-only path" } else { "" }, self.name(thread as usize));
                self.fault(format!("{does} what a thread {thread} read{path} in the same launch: address {at}"))
            }
        }
    }

    /// The words of shared memory from `index` on.
    #[inline(always)]
    #[track_caller]
    fn shared(&self, index: i32, count: usize, does: &str) -> &[Word] {
        let words = usize::try_from(index).ok().and_then(|first| self.shared.get(first..first + count));
        let Some(words) = words else {
            let (bytes, len) = (4 * i64::from(index), self.launch.shared);
            self.end(
                ILLEGAL_ADDRESS,
                &format!("{does} out of bounds: byte {bytes} of shared memory, the block has {len} bytes"),
            );
        };
        if !(index as usize).is_multiple_of(count) {
            let bytes = 4 * index;
            self.end(
                MISALIGNED_ADDRESS,
                &format!("{does} {} bytes at byte {bytes} of shared memory, no multiple of that", 4 * count),
            );
        }
        words
    }

    /// Whether an earlier access in this block is ordered before one that the current thread makes now.
    #[inline(always)]
    fn ordered(&self, access: &Access) -> bool {
        let (now, then) = (self.current.get(), access.thread.get() as usize);
        access.epoch.get() < self.epoch.get()
            || now == then
            || now / WARP == then / WARP && access.warp_epoch.get() < self.warps[now / WARP].get()
    }

    /// Records an access of the current thread.
    #[inline(always)]
    #[track_caller]
    fn note(&self, access: &Access) {
        let thread = self.current.get();
        access.epoch.set(self.epoch.get());
        access.warp_epoch.set(self.warps[thread / WARP].get());
        access.thread.set(thread as u16);
        access.several.set(false);
        access.crossed.set(false);
        access.pending.set(false);
        access.site.set(Some(Location::caller()));
    }

    #[cold]
    #[track_caller]
    fn race(&self, does: &str, index: i32, did: &str, access: &Access) -> ! {
        let (thread, site) = (self.name(access.thread.get().into()), access.site.get().map_or_else(String::new, place));
        self.fault(format!(
            "{does} float {index} of shared memory in a race: no barrier stands between this and {did} of thread {thread} \
             at {site}"
        ))
    }

    #[cold]
    #[track_caller]
    fn copied(&self, does: &str, index: i32, access: &Access) -> ! {
        let (thread, site) = (self.name(access.thread.get().into()), access.site.get().map_or_else(String::new, place));
        self.fault(format!(
            "{does} float {index} of shared memory while an asynchronous copy to it is in flight, which thread {thread} \
             started at {site} and has not waited for"
        ))
    }

    #[inline]
    #[track_caller]
    pub(crate) fn load_shared<const N: usize>(&self, index: i32) -> [f32; N] {
        let words = self.shared(index, N, "reads");
        let mut values = [0.0; N];
        let thread = self.current.get();
        let (warp, warp_epoch) = (thread / WARP, self.warps[thread / WARP].get());
        for (i, (value, Word { value: bits, writer, reader })) in values.iter_mut().zip(words).enumerate() {
            let index = index + i as i32;
            if writer.epoch.get() < self.first.get() {
                self.fault(format!("reads float {index} of shared memory, which nothing wrote"));
            }
            if writer.pending.get() {
                self.copied("reads", index, writer);
            }
            if !self.ordered(writer) {
                self.race("reads", index, "a write", writer);
            }
            *value = f32::from_bits(bits.get());
            if reader.epoch.get() < self.epoch.get() {
                self.note(reader);
            } else if reader.thread.get() as usize / WARP != warp {
                reader.crossed.set(true);
            } else if reader.warp_epoch.get() < warp_epoch {
                let crossed = reader.crossed.get();
                self.note(reader);
                reader.crossed.set(crossed);
            } else if reader.thread.get() as usize != thread {
                reader.several.set(true);
            }
        }
        values
    }

    /// Checks a write against the rules, and records it.
    #[inline(always)]
    #[track_caller]
    fn write(&self, index: i32, Word { writer, reader, .. }: &Word) {
        if writer.epoch.get() >= self.first.get() {
            if writer.pending.get() {
                self.copied("writes", index, writer);
            }
            if !self.ordered(writer) {
                self.race("writes", index, "a write", writer);
            }
        }
        if reader.epoch.get() == self.epoch.get() {
            let thread = self.current.get();
            let same_warp = reader.thread.get() as usize / WARP == thread / WARP;
            let since = same_warp && reader.warp_epoch.get() == self.warps[thread / WARP].get();
            if reader.crossed.get() || !self.ordered(reader) || since && reader.several.get() {
                self.race("writes", index, "a read", reader);
            }
        }
        self.note(writer);
    }

    #[inline]
    #[track_caller]
    pub(crate) fn store_shared<const N: usize>(&self, index: i32, values: [f32; N]) {
        let words = self.shared(index, N, "writes");
        if self.drops() {
            return;
        }
        for (i, (value, word)) in values.iter().zip(words).enumerate() {
            self.write(index + i as i32, word);
            word.value.set(value.to_bits());
        }
    }

    /// Whether a write to shared memory is lost to sabotage: those of the block's last thread before its first barrier.
    #[inline(always)]
    fn drops(&self) -> bool {
        let last = self.threads.len() - 1;
        self.launch.sabotage == Some(Sabotage::HaloRow)
            && self.current.get() == last
            && self.threads[last].barriers.get() == 0
    }

    /// Starts an asynchronous copy of N floats.
    #[track_caller]
    pub(crate) fn copy<const N: usize>(&self, index: i32, from: usize) {
        let values = self.load::<N>(from, Via::ReadOnly);
        if !self.launch.asynchronous {
            return self.store_shared(index, values);
        }
        let words = self.shared(index, N, "copies to");
        if self.drops() {
            return;
        }
        let thread = &self.threads[self.current.get()];
        let mut copies = thread.copies.borrow_mut();
        for (i, (value, word)) in values.iter().zip(words).enumerate() {
            self.write(index + i as i32, word);
            word.writer.pending.set(true);
            copies.push_back(InFlight { group: thread.groups.get(), word: index as usize + i, value: value.to_bits() });
        }
    }

    pub(crate) fn copies_commit(&self) {
        self.threads[self.current.get()].groups.update(|groups| groups + 1);
    }

    /// Waits until at most `left` groups are in flight.
    #[track_caller]
    pub(crate) fn copies_wait(&self, left: usize) {
        let thread = &self.threads[self.current.get()];
        let mut copies = thread.copies.borrow_mut();
        while let Some(copy) = copies.pop_front_if(|copy| copy.group + left < thread.groups.get()) {
            let word = &self.shared[copy.word];
            word.value.set(copy.value);
            self.note(&word.writer);
        }
    }
}

fn lane(thread: usize) -> std::io::Result<Lane> {
    let stack = STACKS.with_borrow_mut(Vec::pop).map_or_else(|| DefaultStack::new(STACK), Ok)?;
    Ok(Coroutine::with_stack(stack, move |yielder, ()| {
        let machine = here();
        machine.threads[thread].yielder.set(yielder);
        let Launch { entry, arguments, .. } = machine.launch;
        let parameters = Parameters { next: arguments.0.as_ptr() };
        loop {
            // SAFETY: whoever launches passes the parameters that the entry takes.
            let done = catch_unwind(AssertUnwindSafe(|| unsafe { (entry.run)(parameters) }));
            let pause = match done {
                Ok(()) => Pause::Done,
                Err(_) => {
                    machine.find(thread, machine.threads[thread].site.get(), LAUNCH_FAILED, "panicked");
                    Pause::Fault
                }
            };
            yielder.suspend(pause);
        }
    }))
}

/// File and line.
fn place(site: &Location<'_>) -> String {
    let file = site.file().rsplit(['/', '\\']).next().unwrap_or_default();
    format!("{file}:{}", site.line())
}

/// Checks the launch against a directive of the kernel, such as `.maxntid 512, 1, 1`.
#[track_caller]
pub(crate) fn directive(text: &str) {
    let machine = here();
    let Some(sizes) = text.strip_prefix(".maxntid ").filter(|_| machine.current.get() == 0) else { return };
    let most: u32 = sizes.split(',').filter_map(|size| size.trim().parse::<u32>().ok()).product();
    let threads = machine.threads.len();
    if threads > most as usize {
        machine.fault(format!("{threads} threads a block, the kernel was assembled for at most {most}"));
    }
}
