//! Runs a block of threads. Each thread is a coroutine that runs until it waits for other threads.
//! All coroutines run on the CPU thread that launches the kernel.
//!
//! Blocks run one after the other, so every run is the same. Rules, not chance, detect orders that
//! only a GPU would show. Each float of shared memory records its last writer and readers. The
//! record also holds the numbers of block barriers and warp barriers passed until then. After a
//! partial write, each byte records its last writer. Two accesses are in order if one thread makes
//! both or a block barrier separates them. They are also in order if both belong to one warp and a
//! barrier of that warp separates them. Two accesses that are not in order are a race if one of
//! them is a write.
//!
//! No thread may touch the floats of an asynchronous copy from its start until the copying thread
//! has waited for its group. Then that thread counts as their writer at that moment.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::ptr;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::abi::Pass;
use crate::border;
use crate::frame::Frame;
use crate::memory::{Memory, Toucher, Wrong};
use crate::settings::Sabotage;

/// A kernel; the macro `kernel!` makes an `Entry` for each entry point.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    /// Bytes of each parameter.
    pub(crate) parameters: &'static [usize],
    /// Runs the kernel as the current thread.
    ///
    /// # Safety
    /// `Parameters` holds the values that this kernel takes.
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
    /// Copies the parameters of a kernel; `addresses` is the array that the driver gets.
    ///
    /// # Safety
    /// Each address points to a parameter of `entry`, in order.
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
    /// Takes the next parameter.
    ///
    /// # Safety
    /// A parameter is left, and its type is `T`.
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

/// A launch of a kernel.
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
    /// Whether the device has asynchronous copies; otherwise a copy completes at once.
    pub(crate) asynchronous: bool,
    /// Whether this kernel may start before earlier kernels end; its threads must then wait for
    /// those kernels.
    pub(crate) early: bool,
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
    /// It waits for its block; the barrier returns whether any thread passed `flag`.
    Block { flag: bool },
    /// It waits for its warp.
    Warp,
    /// It waits for all lanes of its warp at an instruction that they execute together. This orders
    /// no memory accesses.
    Together,
    /// It has left the kernel.
    Done,
    /// It broke a rule or panicked.
    Fault,
}

type Lane = Coroutine<(), Pause, ()>;

const WARP: usize = 32;
/// Bytes of stack for a thread's variables, enough even for unoptimised code.
const STACK: usize = 256 << 10;

thread_local! {
    /// The machine that runs kernels on this CPU thread.
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
    /// The position and the number of the block that runs.
    block: Cell<(i32, i32, i32)>,
    block_number: Cell<u32>,
    /// The number of the running thread in its block, and its position there.
    current: Cell<usize>,
    thread: Cell<(i32, i32)>,
    threads: Vec<Thread>,
    shared: Vec<Word>,
    /// Last writers of each byte of the floats that were written in part.
    parts: OnceCell<Vec<[Access; 4]>>,
    /// Block barriers passed, counted over all blocks. An access from before `first` belongs to an
    /// earlier block.
    epoch: Cell<u32>,
    first: Cell<u32>,
    /// Barriers that each warp has passed.
    warps: Vec<Cell<u32>>,
    /// The result of the block's last barrier.
    any: Cell<bool>,
    finding: RefCell<Option<Finding>>,
}

/// The state of one thread.
struct Thread {
    at: (i32, i32),
    yielder: Cell<*const Yielder<(), Pause>>,
    /// The barrier or warp instruction where it waits.
    site: Cell<&'static Location<'static>>,
    /// Barriers reached in this block, and stores made to device memory.
    barriers: Cell<u32>,
    stores: Cell<u32>,
    /// Whether it has waited for the earlier kernels.
    waited: Cell<bool>,
    /// Number of copy groups that it has committed.
    groups: Cell<usize>,
    copies: RefCell<VecDeque<InFlight>>,
    /// Number of warp instructions begun, and this lane's operands of the last two. Two are kept
    /// because other lanes may still read the older ones.
    together: Cell<usize>,
    factors: [Cell<Factors>; 2],
    rows: [Cell<i32>; 2],
}

/// A lane's parts of the matrices A and B of a product.
type Factors = ([u32; 4], [u32; 2]);

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
    written: Cell<Written>,
    writer: Access,
    /// The last reader. `several`: other threads of its warp have read since the warp's last
    /// barrier. `crossed`: threads of other warps have read since the block's last barrier.
    reader: Access,
}

/// How a float of shared memory was written.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Written {
    #[default]
    Whole,
    /// By an asynchronous copy in flight.
    Copy,
    /// Byte by byte: each byte has its own writer. The float's `writer` only tells which block
    /// wrote.
    InParts,
}

#[derive(Default)]
struct Access {
    epoch: Cell<u32>,
    warp_epoch: Cell<u32>,
    thread: Cell<u16>,
    several: Cell<bool>,
    crossed: Cell<bool>,
    site: Cell<Option<&'static Location<'static>>>,
}

impl Access {
    /// Copies another access.
    fn set(&self, other: &Self) {
        let Self { epoch, warp_epoch, thread, several, crossed, site } = self;
        epoch.set(other.epoch.get());
        warp_epoch.set(other.warp_epoch.get());
        thread.set(other.thread.get());
        several.set(other.several.get());
        crossed.set(other.crossed.get());
        site.set(other.site.get());
    }
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
            waited: Cell::default(),
            groups: Cell::default(),
            copies: RefCell::default(),
            together: Cell::default(),
            factors: Default::default(),
            rows: Default::default(),
        };
        let machine = Self {
            launch,
            block: Cell::default(),
            block_number: Cell::default(),
            current: Cell::default(),
            thread: Cell::default(),
            threads: (0..count).map(thread).collect(),
            shared: (0..launch.shared.div_ceil(4)).map(|_| Word::default()).collect(),
            parts: OnceCell::new(),
            epoch: Cell::default(),
            first: Cell::default(),
            warps: (0..count.div_ceil(WARP)).map(|_| Cell::default()).collect(),
            any: Cell::default(),
            finding: RefCell::default(),
        };
        let mut lanes = match (0..count).map(lane).collect::<Result<Vec<_>, _>>() {
            Ok(lanes) => lanes,
            Err(error) => {
                return Err(Finding {
                    code: LAUNCH_FAILED,
                    text: format!("no stack for a thread: {error}"),
                });
            }
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
                        result = Err(finding.unwrap_or(Finding {
                            code: LAUNCH_FAILED,
                            text: "no reason given".into(),
                        }));
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
        self.block_number
            .set((z.wrapping_mul(down).wrapping_add(y)).wrapping_mul(across).wrapping_add(x));
        self.epoch.update(|epoch| epoch + 1);
        self.first.set(self.epoch.get());
        for thread in &self.threads {
            thread.barriers.set(0);
            thread.stores.set(0);
            thread.waited.set(false);
            thread.groups.set(0);
            thread.copies.borrow_mut().clear();
        }
    }

    /// Runs a block to its end; `None` if a thread faults.
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
                    let first = pauses[members.start];
                    let together = matches!(first, Some(Pause::Warp | Pause::Together));
                    if !together || pauses[members.clone()].iter().any(|&pause| pause != first) {
                        break;
                    }
                    if first == Some(Pause::Warp) {
                        self.same_site(members.clone(), "a warp barrier")?;
                        warp.update(|passed| passed + 1);
                    } else {
                        self.same_site(members.clone(), "a warp instruction")?;
                    }
                    pauses[members.clone()].fill(None);
                }
            }
            let waits = |thread: &usize| matches!(pauses[*thread], Some(Pause::Block { .. }));
            let all = 0..lanes.len();
            if all.clone().all(|thread| pauses[thread] == Some(Pause::Done)) {
                return Some(());
            }
            // The loop above has released every complete warp, so these threads wait for lanes that
            // did not arrive.
            let stuck =
                all.clone().find(|thread| !waits(thread) && pauses[*thread] != Some(Pause::Done));
            let missing = match stuck {
                Some(waiting) => {
                    let warp =
                        waiting / WARP * WARP..(waiting / WARP * WARP + WARP).min(lanes.len());
                    warp.clone()
                        .find(|&thread| pauses[thread] != pauses[waiting])
                        .map(|other| (waiting, other, "warp"))
                }
                None => all.clone().find(|thread| !waits(thread)).and_then(|other| {
                    all.clone().find(waits).map(|waiting| (waiting, other, "block"))
                }),
            };
            if let Some((waiting, other, whom)) = missing {
                let does = match pauses[other] {
                    Some(Pause::Done) => "has left the kernel".to_owned(),
                    _ => format!("waits at {}", place(self.threads[other].site.get())),
                };
                let other = self.name(other);
                let at = if pauses[waiting] == Some(Pause::Together) {
                    "instruction"
                } else {
                    "barrier"
                };
                self.find(
                    waiting,
                    self.threads[waiting].site.get(),
                    LAUNCH_FAILED,
                    &format!("waits at a {whom} {at} that some threads do not reach: thread {other} {does}"),
                );
                return None;
            }
            self.same_site(all, "a block barrier")?;
            self.any.set(pauses.contains(&Some(Pause::Block { flag: true })));
            self.epoch.update(|epoch| epoch + 1);
            pauses.fill(None);
        }
    }

    /// Runs a thread until it stops; `None` if it faults.
    fn resume(&self, thread: usize, lane: &mut Lane) -> Option<Pause> {
        self.current.set(thread);
        self.thread.set(self.threads[thread].at);
        match lane.resume(()) {
            CoroutineResult::Yield(Pause::Fault) | CoroutineResult::Return(()) => None,
            CoroutineResult::Yield(pause) => Some(pause),
        }
    }

    /// `None`, with a finding, unless all these threads wait at one place in the source.
    fn same_site(&self, mut threads: std::ops::Range<usize>, what: &str) -> Option<()> {
        let first = threads.start;
        let site = self.threads[first].site.get();
        // Comparing locations compares file names. Most threads wait at one `Location`.
        let differs = |there: &'static Location<'_>| !ptr::eq(there, site) && there != site;
        let Some(other) = threads.find(|&thread| differs(self.threads[thread].site.get())) else {
            return Some(());
        };
        let (name, there) = (self.name(other), place(self.threads[other].site.get()));
        let text = format!("waits at {what}, but thread {name} waits at another one: {there}");
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
        let text =
            format!("kernel {kernel}, block ({x}, {y}, {z}), thread {thread}, {site}: {fault}");
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
        // SAFETY: the thread runs, so its yielder exists.
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

    /// Waits for the block or the warp. Returns whether any thread of the block reached its last
    /// barrier with the flag.
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

    /// The lane's part of `sums + a * b`, a product of two matrices that the warp's lanes hold
    /// together. The PTX manual gives the layout for `mma.m16n8k32` of bytes. `times` multiplies
    /// two bytes.
    #[track_caller]
    pub(crate) fn product(
        &self,
        sums: [i32; 4],
        a: [u32; 4],
        b: [u32; 2],
        times: impl Fn(u8, u8) -> i32,
    ) -> [i32; 4] {
        let (warp, lane, turn) = self.together(|thread, turn| thread.factors[turn].set((a, b)));
        let rows = [lane / 4, lane / 4 + 8];
        let columns = [2 * (lane % 4), 2 * (lane % 4) + 1];
        let mut result = sums;
        // Each word holds four neighbouring elements of a row of A, or of a column of B.
        for k in (0..32).step_by(4) {
            let (holder, part) = (k / 4 % 4, k / 16);
            let word_of_a =
                |row: usize| warp[4 * (row % 8) + holder].factors[turn].get().0[2 * part + row / 8];
            let word_of_b = |column: usize| warp[4 * column + holder].factors[turn].get().1[part];
            let (a, b) = (rows.map(word_of_a), columns.map(word_of_b));
            for (at, sum) in result.iter_mut().enumerate() {
                let pairs = a[at / 2].to_le_bytes().into_iter().zip(b[at % 2].to_le_bytes());
                let product: i32 = pairs.map(|(a, b)| times(a, b)).sum();
                *sum = sum.wrapping_add(product);
            }
        }
        result
    }

    /// The lane's words of four matrices in shared memory. Each lane passes the first byte of one
    /// matrix row, as for `ldmatrix` in the PTX manual.
    #[track_caller]
    pub(crate) fn matrices(&self, byte: i32) -> [u32; 4] {
        if byte % 16 != 0 {
            self.end(
                MISALIGNED_ADDRESS,
                &format!("reads 16 bytes at byte {byte} of shared memory, not aligned to 16 bytes"),
            );
        }
        let (warp, lane, turn) = self.together(|thread, turn| thread.rows[turn].set(byte));
        std::array::from_fn(|matrix| {
            let row = warp[8 * matrix + lane / 4].rows[turn].get();
            let [word] = self.load_shared(row / 4 + (lane % 4) as i32);
            word
        })
    }

    /// The word of the lane whose number is this lane's XOR `apart`, as for `shfl.sync.bfly` in the
    /// PTX manual.
    #[track_caller]
    pub(crate) fn exchanged(&self, word: u32, apart: u32) -> u32 {
        let (warp, lane, turn) = self.together(|thread, turn| thread.rows[turn].set(word as i32));
        warp[(lane ^ apart as usize) % WARP].rows[turn].get() as u32
    }

    /// A bit for each lane that says yes, as for `vote.sync.ballot` in the PTX manual.
    #[track_caller]
    pub(crate) fn ballot(&self, yes: bool) -> u32 {
        let (warp, _, turn) = self.together(|thread, turn| thread.rows[turn].set(yes.into()));
        (0..WARP).fold(0, |lanes, lane| lanes | (warp[lane].rows[turn].get() as u32) << lane)
    }

    /// Stores this lane's operands of a warp instruction by `give` and waits for the other lanes.
    /// Returns the warp's threads, this lane's number, and the slot of the operands.
    #[track_caller]
    fn together(&self, give: impl Fn(&Thread, usize)) -> (&[Thread], usize, usize) {
        let current = self.current.get();
        let (first, lane) = (current / WARP * WARP, current % WARP);
        let Some(warp) = self.threads.get(first..first + WARP) else {
            self.fault(format!(
                "runs a warp instruction in a warp of only {} threads",
                self.threads.len() - first
            ));
        };
        let thread = &self.threads[current];
        let turn = thread.together.get() % 2;
        thread.together.update(|count| count + 1);
        give(thread, turn);
        thread.site.set(Location::caller());
        self.suspend(Pause::Together);
        (warp, lane, turn)
    }

    fn toucher(&self) -> Toucher {
        Toucher {
            launch: self.launch.number,
            block: self.block_number.get(),
            thread: self.current.get() as u32,
        }
    }

    /// The first word of `bytes` bytes at an address that must be a multiple of `bytes`.
    #[inline(always)]
    #[track_caller]
    fn aligned(&self, address: usize, bytes: usize, does: &str) -> usize {
        if self.launch.early && !self.threads[self.current.get()].waited.get() {
            self.fault(format!("{does} device memory before it has waited for the kernels ahead"));
        }
        if !address.is_multiple_of(bytes) {
            self.end(
                MISALIGNED_ADDRESS,
                &format!("{does} {bytes} bytes at {address:#x}, not aligned to {bytes} bytes"),
            );
        }
        self.launch.memory.word(address)
    }

    #[inline]
    #[track_caller]
    pub(crate) fn load<const N: usize>(&self, address: usize, via: Via) -> [u32; N] {
        let first = self.aligned(address, 4 * N, "reads");
        let (by, read_only) = (self.toucher(), via == Via::ReadOnly);
        let mut words = [0; N];
        for (i, word) in words.iter_mut().enumerate() {
            match self.launch.memory.load(first + i, by, read_only) {
                Ok(value) => *word = value,
                Err((byte, wrong)) => self.wrong("reads", address + 4 * i + byte, wrong),
            }
        }
        words
    }

    /// Reads one byte or two, by the read-only path or plainly.
    #[inline]
    #[track_caller]
    pub(crate) fn load_part<const BYTES: usize>(&self, address: usize, via: Via) -> u32 {
        let word = self.aligned(address, BYTES, "reads");
        let first = address % 4;
        match self.launch.memory.load_part(
            word,
            first..first + BYTES,
            self.toucher(),
            via == Via::ReadOnly,
        ) {
            Ok(value) => value,
            Err((byte, wrong)) => self.wrong("reads", address - first + byte, wrong),
        }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn store<const N: usize>(&self, address: usize, mut words: [u32; N]) {
        let first = self.aligned(address, 4 * N, "writes");
        self.spoil(&mut words[0]);
        let by = self.toucher();
        for (i, word) in words.into_iter().enumerate() {
            if let Err((byte, wrong)) = self.launch.memory.store(first + i, word, by) {
                self.wrong("writes", address + 4 * i + byte, wrong);
            }
        }
    }

    /// Writes the lowest byte or two of the value.
    #[inline]
    #[track_caller]
    pub(crate) fn store_part<const BYTES: usize>(&self, address: usize, mut value: u32) {
        let word = self.aligned(address, BYTES, "writes");
        let first = address % 4;
        self.spoil(&mut value);
        if let Err((byte, wrong)) =
            self.launch.memory.store_part(word, first..first + BYTES, value, self.toucher())
        {
            self.wrong("writes", address - first + byte, wrong);
        }
    }

    /// Flips a bit of the launch's first stored value if the settings ask for that sabotage.
    #[inline(always)]
    fn spoil(&self, value: &mut u32) {
        if self.launch.sabotage == Some(Sabotage::OnePixel) {
            let stores = &self.threads[self.current.get()].stores;
            if (self.current.get(), self.block_number.get(), stores.replace(1)) == (0, 0, 0) {
                *value ^= 1;
            }
        }
    }

    /// Adds to a word; returns the previous value.
    #[track_caller]
    pub(crate) fn add(&self, address: usize, value: u32) -> u32 {
        let word = self.aligned(address, 4, "adds to");
        match self.launch.memory.add(word, value, self.toucher()) {
            Ok(before) => before,
            Err((byte, wrong)) => self.wrong("adds to", address + byte, wrong),
        }
    }

    /// Ends the launch because of an access to device memory.
    #[cold]
    #[track_caller]
    fn wrong(&self, does: &str, address: usize, wrong: Wrong) -> ! {
        let at = self.launch.memory.describe(address as u64);
        match wrong {
            Wrong::OutOfBounds => {
                self.end(ILLEGAL_ADDRESS, &format!("{does} out of bounds: address {at}"))
            }
            Wrong::NotWritten => {
                self.fault(format!("{does} memory that nothing wrote: address {at}"))
            }
            Wrong::WrittenBy(Toucher { block, thread, .. }) => {
                let [across, down, _] = self.launch.grid;
                let block = (block % across, block / across % down, block / (across * down));
                let thread = self.name(thread as usize);
                self.fault(format!(
                    "{does} memory that thread {thread} of block {block:?} wrote in the same launch: address {at}"
                ))
            }
            Wrong::AddedTo => self.fault(format!(
                "{does} memory that several threads add to in the same launch: address {at}"
            )),
            Wrong::ReadBy { thread, read_only } => {
                let (path, thread) = (
                    if read_only { " through the read-only path" } else { "" },
                    self.name(thread as usize),
                );
                self.fault(format!(
                    "{does} memory that a thread {thread} read{path} in the same launch: address {at}"
                ))
            }
        }
    }

    /// `count` words of shared memory from `index` on.
    #[inline(always)]
    #[track_caller]
    fn shared(&self, index: i32, count: usize, does: &str) -> &[Word] {
        let whole = &self.shared[..self.launch.shared / 4];
        let words = usize::try_from(index).ok().and_then(|first| whole.get(first..first + count));
        let Some(words) = words else { self.outside(does, 4 * i64::from(index)) };
        if !(index as usize).is_multiple_of(count) {
            self.misaligned(does, 4 * count, 4 * i64::from(index));
        }
        words
    }

    #[cold]
    #[track_caller]
    fn outside(&self, does: &str, byte: i64) -> ! {
        let len = self.launch.shared;
        let text = format!(
            "{does} out of bounds: byte {byte} of shared memory, the block has {len} bytes"
        );
        self.end(ILLEGAL_ADDRESS, &text)
    }

    #[cold]
    #[track_caller]
    fn misaligned(&self, does: &str, bytes: usize, byte: i64) -> ! {
        let text = format!(
            "{does} {bytes} bytes at byte {byte} of shared memory, not aligned to {bytes} bytes"
        );
        self.end(MISALIGNED_ADDRESS, &text)
    }

    /// Whether an earlier access in this block is ordered before an access that the current thread
    /// makes now.
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
        access.site.set(Some(Location::caller()));
    }

    #[cold]
    #[track_caller]
    fn race(&self, does: &str, what: &str, index: i32, did: &str, access: &Access) -> ! {
        let (thread, site) = (
            self.name(access.thread.get().into()),
            access.site.get().map_or_else(String::new, place),
        );
        self.fault(format!(
            "{does} {what} {index} of shared memory in a race: no barrier stands between this and {did} of thread {thread} \
             at {site}"
        ))
    }

    #[cold]
    #[track_caller]
    fn copied(&self, does: &str, index: i32, access: &Access) -> ! {
        let (thread, site) = (
            self.name(access.thread.get().into()),
            access.site.get().map_or_else(String::new, place),
        );
        self.fault(format!(
            "{does} float {index} of shared memory while an asynchronous copy to it is in flight, which thread {thread} \
             started at {site} and has not waited for"
        ))
    }

    #[inline]
    #[track_caller]
    pub(crate) fn load_shared<const N: usize>(&self, index: i32) -> [u32; N] {
        let words = self.shared(index, N, "reads");
        let mut values = [0; N];
        for (i, (value, word)) in values.iter_mut().zip(words).enumerate() {
            *value = self.read(index + i as i32, word, 0..4);
        }
        values
    }

    /// Checks a read of some bytes of a float against the rules, and records it.
    #[inline(always)]
    #[track_caller]
    fn read(&self, index: i32, word: &Word, bytes: Range<usize>) -> u32 {
        let thread = self.current.get();
        let (warp, warp_epoch) = (thread / WARP, self.warps[thread / WARP].get());
        let Word { writer, reader, .. } = word;
        if writer.epoch.get() < self.first.get() {
            self.fault(format!("reads float {index} of shared memory, which nothing wrote"));
        }
        match word.written.get() {
            Written::Whole if self.ordered(writer) => (),
            Written::Whole => self.race("reads", "float", index, "a write", writer),
            Written::Copy => self.copied("reads", index, writer),
            Written::InParts => self.read_parts(index, word, bytes),
        }
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
        word.value.get()
    }

    /// Checks a write of a float against the rules, and records it.
    #[inline(always)]
    #[track_caller]
    fn write(&self, index: i32, word: &Word) {
        let writer = &word.writer;
        if writer.epoch.get() >= self.first.get() {
            match word.written.get() {
                Written::Whole if self.ordered(writer) => (),
                Written::Whole => self.race("writes", "float", index, "a write", writer),
                Written::Copy => self.copied("writes", index, writer),
                Written::InParts => self.write_parts(index, 0..4),
            }
        }
        self.unread("float", index, &word.reader);
        word.written.set(Written::Whole);
        self.note(writer);
    }

    /// Checks that the current thread's write of a float, or of a byte of it, is ordered after the
    /// float's reads.
    #[inline(always)]
    #[track_caller]
    fn unread(&self, what: &str, index: i32, reader: &Access) {
        if reader.epoch.get() == self.epoch.get() {
            let thread = self.current.get();
            let same_warp = reader.thread.get() as usize / WARP == thread / WARP;
            let since = same_warp && reader.warp_epoch.get() == self.warps[thread / WARP].get();
            if reader.crossed.get() || !self.ordered(reader) || since && reader.several.get() {
                self.race("writes", what, index, "a read", reader);
            }
        }
    }

    /// The writers of the bytes of a float.
    fn parts(&self, index: i32) -> &[Access; 4] {
        let parts =
            self.parts.get_or_init(|| self.shared.iter().map(|_| Default::default()).collect());
        &parts[index as usize]
    }

    /// Checks a read of some bytes of a float whose bytes have their own writers.
    #[cold]
    #[track_caller]
    fn read_parts(&self, index: i32, word: &Word, bytes: Range<usize>) {
        let parts = self.parts(index);
        for (byte, writer) in (4 * index..).zip(parts).skip(bytes.start).take(bytes.len()) {
            if writer.epoch.get() < self.first.get() {
                self.fault(format!("reads byte {byte} of shared memory, which nothing wrote"));
            }
            if !self.ordered(writer) {
                self.race("reads", "byte", byte, "a write", writer);
            }
        }
        // If later accesses of the block are ordered after all four writes, one writer is enough.
        let ordered = self.first.get()..self.epoch.get();
        if parts.iter().all(|writer| ordered.contains(&writer.epoch.get())) {
            word.writer.set(&parts[0]);
            word.written.set(Written::Whole);
        }
    }

    /// Checks that the current thread's write of some bytes of a float is ordered after earlier
    /// writes.
    #[cold]
    #[track_caller]
    fn write_parts(&self, index: i32, bytes: Range<usize>) {
        for (byte, writer) in
            (4 * index..).zip(self.parts(index)).skip(bytes.start).take(bytes.len())
        {
            if writer.epoch.get() >= self.first.get() && !self.ordered(writer) {
                self.race("writes", "byte", byte, "a write", writer);
            }
        }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn store_shared<const N: usize>(&self, index: i32, values: [u32; N]) {
        let words = self.shared(index, N, "writes");
        if self.drops() {
            return;
        }
        for (i, (&value, word)) in values.iter().zip(words).enumerate() {
            self.write(index + i as i32, word);
            word.value.set(value);
        }
    }

    /// Writes the lowest byte or two of the value to shared memory.
    #[track_caller]
    pub(crate) fn store_shared_part<const BYTES: usize>(&self, byte: i32, value: u32) {
        let first = usize::try_from(byte).ok().filter(|first| first + BYTES <= self.launch.shared);
        let Some(first) = first else { self.outside("writes", byte.into()) };
        if !first.is_multiple_of(BYTES) {
            self.misaligned("writes", BYTES, byte.into());
        }
        if self.drops() {
            return;
        }
        let (index, bytes) = (byte / 4, first % 4..first % 4 + BYTES);
        let (word, parts) = (&self.shared[first / 4], self.parts(index));
        let known = word.writer.epoch.get() >= self.first.get();
        if known && word.written.get() == Written::Copy {
            self.copied("writes", index, &word.writer);
        }
        if !known {
            // Writers in earlier blocks do not count.
            parts.iter().for_each(|writer| writer.epoch.set(0));
        } else if word.written.get() == Written::Whole {
            parts.iter().for_each(|writer| writer.set(&word.writer));
        }
        word.written.set(Written::InParts);
        self.note(&word.writer);
        self.write_parts(index, bytes.clone());
        self.unread("byte", byte, &word.reader);
        // A loop, because a closure would make `note` record the closure's own line.
        for writer in &parts[bytes.clone()] {
            self.note(writer);
        }
        for (i, byte) in bytes.enumerate() {
            let (mask, bits) = (0xff << (8 * byte), (value >> (8 * i) & 0xff) << (8 * byte));
            word.value.update(|word| word & !mask | bits);
        }
    }

    /// Whether sabotage drops this write to shared memory: it drops the writes of the block's last
    /// thread before its first barrier.
    #[inline(always)]
    fn drops(&self) -> bool {
        let last = self.threads.len() - 1;
        self.launch.sabotage == Some(Sabotage::HaloRow)
            && self.current.get() == last
            && self.threads[last].barriers.get() == 0
    }

    /// Starts an asynchronous copy of N words.
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
            word.written.set(Written::Copy);
            copies.push_back(InFlight {
                group: thread.groups.get(),
                word: index as usize + i,
                value: *value,
            });
        }
    }

    pub(crate) fn wait_for_kernels_ahead(&self) {
        self.threads[self.current.get()].waited.set(true);
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
            word.written.set(Written::Whole);
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
                    machine.find(
                        thread,
                        machine.threads[thread].site.get(),
                        LAUNCH_FAILED,
                        "panicked",
                    );
                    Pause::Fault
                }
            };
            yielder.suspend(pause);
        }
    }))
}

/// File name and line of a place in the source.
fn place(site: &Location<'_>) -> String {
    let file = site.file().rsplit(['/', '\\']).next().unwrap_or_default();
    format!("{file}:{}", site.line())
}

/// Checks the launch against a kernel's directive, such as `.maxntid 512, 1, 1`.
#[track_caller]
pub(crate) fn directive(text: &str) {
    let machine = here();
    let Some(sizes) = text.strip_prefix(".maxntid ").filter(|_| machine.current.get() == 0) else {
        return;
    };
    let most: u32 = sizes.split(',').filter_map(|size| size.trim().parse::<u32>().ok()).product();
    let threads = machine.threads.len();
    if threads > most as usize {
        machine.fault(format!(
            "{threads} threads in a block, but the kernel was assembled for at most {most}"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::*;

    /// A step of a test kernel.
    #[derive(Clone, Copy)]
    enum Step {
        /// Every thread does it.
        All(fn(u64)),
        /// Only this thread of each block does it; the argument is the launch's address.
        By(i32, fn(u64)),
        /// All wait for their warp.
        Warp,
        /// All wait for the block.
        Block,
    }

    use Step::{Block, Warp};

    macro_rules! by {
        ($thread:literal, |$at:ident| $act:expr) => {
            Step::By($thread, |$at: u64| {
                let _ = $at;
                // SAFETY: the emulator checks every access of the step.
                #[allow(unused_unsafe)]
                let _ = unsafe { $act };
            })
        };
    }

    kernel! {
        fn script(steps: *const [Step], at: u64) {
            follow(steps, at)
        }
    }

    // The same kernel, but without the wait for earlier kernels that `kernel!` inserts.
    inventory::submit! {
        Entry {
            name: "hasty",
            parameters: &[size_of::<*const [Step]>(), size_of::<u64>()],
            // SAFETY: the launch passes what `script` takes.
            run: |mut parameters| unsafe { follow(parameters.next(), parameters.next()) },
        }
    }

    unsafe fn follow(steps: *const [Step], at: u64) {
        // SAFETY: the steps live as long as the launch.
        for &step in unsafe { &*steps } {
            match step {
                Step::All(act) => act(at),
                Step::By(thread, act) if thread_x() == thread => act(at),
                Step::By(..) => (),
                Step::Warp => warp_barrier(),
                // SAFETY: the emulator checks it.
                Step::Block => unsafe { barrier() },
            }
        }
    }

    /// A device with one allocation.
    struct Device {
        memory: &'static Memory,
        at: u64,
        launches: Cell<u32>,
        entry: &'static str,
        early: bool,
        sabotage: Option<Sabotage>,
        shared: usize,
    }

    const SHARED: usize = 30;

    impl Device {
        /// `written` initialises the allocation's first bytes.
        fn new(bytes: usize, written: &[u8]) -> Self {
            let memory = Box::leak(Box::new(Memory::new(0, 1 << 20, false)));
            let at = memory.allocate(bytes).unwrap();
            // SAFETY: the slice has `written.len()` bytes.
            unsafe { memory.upload(at, written.as_ptr(), written.len()) }.unwrap();
            Self {
                memory,
                at,
                launches: Cell::new(0),
                entry: "script",
                early: false,
                sabotage: None,
                shared: SHARED,
            }
        }

        /// Runs the steps in two blocks of two warps; returns the finding's text.
        fn finds(&self, steps: &[Step]) -> String {
            let entry = Entry::find(self.entry).unwrap();
            let (steps, at) = (&raw const *steps, self.at);
            let addresses =
                [(&raw const steps).cast_mut().cast(), (&raw const at).cast_mut().cast::<c_void>()];
            // SAFETY: both point to a parameter of `script`.
            let arguments = unsafe { Arguments::copy(entry, addresses.as_ptr()) };
            self.launches.update(|number| number + 1);
            let done = Machine::run(Launch {
                number: self.launches.get(),
                entry,
                arguments: &arguments,
                grid: [2, 1, 1],
                block: [64, 1, 1],
                shared: self.shared,
                memory: self.memory,
                asynchronous: true,
                early: self.early,
                sabotage: self.sabotage,
            });
            done.map_or_else(|finding| finding.text, |()| String::new())
        }

        fn read<const N: usize>(&self) -> [u8; N] {
            let mut bytes = [0; N];
            // SAFETY: `bytes` has room for N bytes.
            let unknown = unsafe { self.memory.download(bytes.as_mut_ptr(), self.at, N) };
            assert_eq!(unknown, Ok(None));
            bytes
        }
    }

    #[track_caller]
    fn assert_finds(device: &Device, steps: &[Step], what: &str) {
        let found = device.finds(steps);
        assert!(found.contains(what), "\"{found}\" does not say \"{what}\"");
    }

    /// Each block's own word: two blocks run every step and share device memory.
    fn own(at: u64) -> u64 {
        at + 4 * block_x() as u64
    }

    #[test]
    fn neighbouring_bytes_are_no_conflict() {
        let device = Device::new(8, &[]);
        let stores = [
            by!(0, |at| store_u8(own(at), 1)),
            by!(1, |at| store_u8(own(at) + 1, 2)),
            by!(40, |at| store_u16(own(at) + 2, 0xff_0403)),
        ];
        assert_eq!(device.finds(&stores), "");
        assert_eq!(device.read(), [1, 2, 3, 4, 1, 2, 3, 4]);
        let copies = [
            by!(0, |at| store_u8(own(at), load_u8(own(at) + 1))),
            by!(1, |at| store_u16(own(at) + 2, load_u8(own(at) + 1))),
        ];
        assert_eq!(device.finds(&copies), "");
        assert_eq!(device.read(), [2, 2, 2, 0, 2, 2, 2, 0]);
        let words = [by!(0, |at| store_words(own(at), [load_words::<2>(at)[1] + 1; 1]))];
        assert_finds(&device, &words, "thread (0, 0, 0) read through the read-only path");
    }

    #[test]
    fn bytes_of_nobody() {
        let device = Device::new(7, &[0; 7]);
        assert_eq!(
            device.finds(&[by!(0, |at| load_u8(at + 6)), by!(0, |at| load_u16(at + 4))]),
            ""
        );
        let behind = "0 bytes after an allocation of 7 bytes";
        assert_finds(
            &device,
            &[by!(3, |at| store_u8(at + 7, 0))],
            &format!("writes out of bounds: address {:#x}, {behind}", device.at + 7),
        );
        assert_finds(&device, &[by!(3, |at| load_u8(at + 7))], behind);
        assert_finds(&device, &[by!(3, |at| load_u16(at + 6))], behind);
        assert_finds(&device, &[by!(3, |at| load_words::<1>(at + 4))], behind);
        assert_finds(&device, &[by!(3, |at| store_words(at + 4, [0]))], behind);
        assert_finds(&device, &[by!(3, |at| store_words(at, [0; 2]))], behind);
        assert_finds(&device, &[by!(3, |at| atomic_add(at + 4, 0))], behind);
        assert_finds(&device, &[by!(3, |at| load_u8(at - 1))], "1 bytes before an allocation");
    }

    #[test]
    fn bytes_of_others() {
        let device = Device::new(8, &[0; 8]);
        let wrote =
            "writes memory that thread (0, 0, 0) of block (0, 0, 0) wrote in the same launch";
        assert_finds(
            &device,
            &[by!(0, |at| store_u8(own(at), 1)), by!(1, |at| store_u8(own(at), 1))],
            wrote,
        );
        assert_finds(
            &device,
            &[by!(0, |at| store_u8(own(at) + 3, 1)), by!(1, |at| store_u16(own(at) + 2, 1))],
            wrote,
        );
        assert_finds(
            &device,
            &[by!(0, |at| store_u8(own(at) + 3, 1)), by!(1, |at| store_words(own(at), [1]))],
            wrote,
        );
        assert_finds(
            &device,
            &[by!(0, |at| store_words(own(at), [1])), by!(1, |at| store_u8(own(at) + 3, 1))],
            wrote,
        );
        let other = [by!(0, |at| store_u8(at + 2, 1))];
        assert_finds(&device, &other, "of block (0, 0, 0) wrote");
        let read = "wrote in the same launch";
        assert_finds(
            &device,
            &[by!(0, |at| store_u8(own(at), 1)), by!(0, |at| load_u8(own(at)))],
            read,
        );
        assert_finds(
            &device,
            &[by!(0, |at| store_u8(own(at), 1)), by!(1, |at| reload_word(own(at)))],
            read,
        );
        let reader = "writes memory that a thread (0, 0, 0) read through the read-only path in the same launch";
        assert_finds(
            &device,
            &[by!(0, |at| load_u16(own(at))), by!(1, |at| store_u8(own(at) + 1, 0))],
            reader,
        );
        assert_finds(
            &device,
            &[by!(0, |at| load_words::<2>(at)), by!(1, |at| store_u8(at + 5, 0))],
            reader,
        );
        let own_word = [by!(0, |at| store_u8(own(at) + 1, 9)), by!(0, |at| reload_word(own(at)))];
        assert_eq!(device.finds(&own_word), "");
    }

    #[test]
    fn bytes_that_nothing_wrote() {
        let device = Device::new(8, &[1, 2, 3]);
        assert_eq!(device.finds(&[by!(0, |at| load_u8(at + 2))]), "");
        let unknown = "reads memory that nothing wrote";
        let address =
            format!("{unknown}: address {:#x}, byte 3 of an allocation of 8 bytes", device.at + 3);
        assert_finds(&device, &[by!(0, |at| load_u16(at + 2))], &address);
        assert_finds(&device, &[by!(0, |at| load_words::<1>(at))], &address);
        assert_finds(
            &device,
            &[by!(0, |at| atomic_add(at, 0))],
            "adds to memory that nothing wrote",
        );
        assert_finds(&device, &[by!(0, |at| load_u8(at + 4))], unknown);
        assert_eq!(
            device.finds(&[by!(0, |at| if block_x() == 0 {
                store_u8(at + 3, 4)
            })]),
            ""
        );
        assert_eq!(device.finds(&[by!(0, |at| assert_eq!(load_words(at), [0x0403_0201]))]), "");
    }

    #[test]
    fn misaligned() {
        let device = Device::new(32, &[0; 32]);
        assert_finds(&device, &[by!(0, |at| load_u16(at + 1))], "reads 2 bytes at");
        assert_finds(&device, &[by!(0, |at| store_u16(at + 3, 0))], "writes 2 bytes at");
        assert_finds(&device, &[by!(0, |at| load_words::<1>(at + 2))], "reads 4 bytes at");
        assert_finds(&device, &[by!(0, |at| store_words(at + 8, [0; 4]))], "writes 16 bytes at");
        assert_finds(&device, &[by!(0, |at| load_f64(at + 4))], "reads 8 bytes at");
        assert_finds(&device, &[by!(0, |at| reload_word(at + 1))], "not aligned to 4 bytes");
        assert_finds(&device, &[by!(0, |at| atomic_add(at + 2, 0))], "adds to 4 bytes at");
        assert_finds(
            &device,
            &[by!(0, |_at| Shared::dynamic().store_u16(3, 0))],
            "writes 2 bytes at byte 3 of shared",
        );
        assert_finds(
            &device,
            &[by!(0, |_at| Shared::dynamic().store2(1, [0.0; 2]))],
            "writes 8 bytes at byte 4 of shared",
        );
        assert_finds(
            &device,
            &[by!(0, |_at| Shared::dynamic().load2(3))],
            "reads 8 bytes at byte 12 of shared",
        );
        assert_finds(
            &device,
            &[by!(0, |_at| Shared::dynamic().store4(2, [0.0; 4]))],
            "writes 16 bytes at byte 8",
        );
    }

    #[test]
    fn wide_numbers() {
        let device = Device::new(16, &std::f64::consts::PI.to_le_bytes());
        let steps = [by!(63, |at| if block_x() == 0 {
            let bits = load_f64(at).to_bits();
            store_words(at + 8, [bits as u32, (bits >> 32) as u32])
        })];
        assert_eq!(device.finds(&steps), "");
        assert_eq!(device.read::<16>()[8..], std::f64::consts::PI.to_le_bytes());
    }

    #[test]
    fn sums() {
        let device = Device::new(4, &[255, 0, 0, 0]);
        let add = by!(0, |at| atomic_add(at, 1));
        let adds = [add, by!(1, |at| atomic_add(at, 2)), by!(63, |at| atomic_add(at, 100)), add];
        assert_eq!(device.finds(&adds), "");
        assert_eq!(device.finds(&[by!(5, |at| assert_eq!(reload_word(at), 255 + 2 * 104))]), "");
        assert_eq!(device.finds(&adds), "");
        assert_eq!(u32::from_le_bytes(device.read()), 255 + 4 * 104);
        let wrote = "wrote in the same launch";
        assert_finds(&device, &[add, by!(1, |at| reload_word(at))], wrote);
        assert_finds(&device, &[add, by!(1, |at| store_words(at, [0]))], wrote);
        assert_finds(&device, &[add, by!(1, |at| store_u8(at, 0))], wrote);
        assert_finds(&device, &[add, by!(0, |at| load_words::<1>(at))], wrote);
        let several = "memory that several threads add to in the same launch";
        assert_finds(
            &device,
            &[add, by!(1, |at| atomic_add(at, 1)), by!(1, |at| reload_word(at))],
            several,
        );
        assert_finds(
            &device,
            &[add, by!(1, |at| atomic_add(at, 1)), by!(1, |at| store_words(at, [0]))],
            several,
        );
        assert_finds(
            &device,
            &[by!(0, |at| reload_word(at)), by!(1, |at| atomic_add(at, 1))],
            "adds to memory that a thread (0, 0, 0) read",
        );
        assert_finds(
            &device,
            &[by!(0, |at| store_words(at, [0])), add, by!(1, |at| atomic_add(at, 1))],
            wrote,
        );
        let alone = [by!(0, |at| if block_x() == 0 {
            atomic_add(at, 1);
            store_words(at, [reload_word(at)]);
            atomic_add(at, 1);
        })];
        assert_eq!(device.finds(&alone), "");
        assert_finds(&device, &[alone[0], by!(1, |at| atomic_add(at, 1))], wrote);
    }

    #[test]
    fn an_early_kernel_waits_for_those_ahead() {
        let device = |entry, early| Device { entry, early, ..Device::new(4, &[0; 4]) };
        let read = by!(0, |at| load(at as usize as *const f32, 0));
        let store = by!(1, |at| if block_x() == 0 {
            store(at as usize as *mut f32, 0, 1.0)
        });
        for (step, does) in [(read, "reads"), (store, "writes")] {
            assert_finds(
                &device("hasty", true),
                &[step],
                &format!("{does} device memory before it has waited"),
            );
            assert_eq!(device("hasty", false).finds(&[step]), "");
            assert_eq!(device("script", true).finds(&[step]), "");
        }
        // A thread's wait covers no other thread.
        let wait = by!(0, |_at| wait_for_kernels_ahead());
        assert_eq!(device("hasty", true).finds(&[wait, read]), "");
        assert_finds(
            &device("hasty", true),
            &[wait, Block, store],
            "writes device memory before it has waited",
        );
    }

    #[test]
    fn shared_bytes() {
        let device = Device::new(4, &[0; 4]);
        let write = [
            by!(0, |_at| Shared::dynamic().store_u8(4, 1)),
            by!(1, |_at| Shared::dynamic().store_u8(5, 0x1_02)),
            by!(40, |_at| Shared::dynamic().store_u16(6, 0x0403)),
        ];
        let read = by!(63, |_at| assert_eq!(Shared::dynamic().load_word(1), 0x0403_0201));
        let with = |steps: &[Step]| [&write, steps].concat();
        assert_eq!(device.finds(&with(&[Block, read, read, Block, write[1], Block, read])), "");
        assert_eq!(device.finds(&[&write[..2], &[Warp, write[0]]].concat()), "");
        let race = "of shared memory in a race: no barrier stands between this and";
        assert_finds(
            &device,
            &with(&[read]),
            &format!("reads byte 4 {race} a write of thread (0, 0, 0)"),
        );
        assert_finds(&device, &with(&[Warp, read]), &format!("reads byte 4 {race}"));
        assert_finds(
            &device,
            &with(&[by!(2, |_at| Shared::dynamic().store_u8(5, 0))]),
            &format!("writes byte 5 {race}"),
        );
        assert_finds(
            &device,
            &with(&[by!(41, |_at| Shared::dynamic().store(1, 0.0))]),
            &format!("writes byte 4 {race}"),
        );
        let whole = by!(0, |_at| Shared::dynamic().store(1, 0.0));
        assert_finds(
            &device,
            &[whole, write[1]],
            &format!("writes byte 5 {race} a write of thread (0, 0, 0)"),
        );
        assert_finds(&device, &[whole, Block, read, Block], "panicked");
        let read = by!(0, |_at| Shared::dynamic().load_word(1));
        assert_finds(
            &device,
            &[whole, Block, read, write[2]],
            &format!("writes byte 6 {race} a read of thread (0, 0, 0)"),
        );
        assert_eq!(device.finds(&[whole, Block, read, Block, write[2]]), "");
        // A write in the first block does not count in the second.
        let once = [
            by!(0, |_at| if block_x() == 0 {
                Shared::dynamic().store_u8(7, 0)
            }),
            write[0],
            write[1],
        ];
        let two = [
            once[0],
            once[1],
            once[2],
            Block,
            by!(0, |_at| Shared::dynamic().store_u8(6, 0)),
            read,
        ];
        assert_finds(&device, &two, "block (1, 0, 0)");
        assert_finds(&device, &two, "reads byte 7 of shared memory, which nothing wrote");
        let copy = by!(0, |at| Shared::dynamic().copy1(1, at as usize as *const f32));
        assert_finds(
            &device,
            &[copy, write[0]],
            "writes float 1 of shared memory while an asynchronous copy",
        );
        let done = by!(0, |_at| {
            copies_commit();
            copies_wait::<0>()
        });
        assert_eq!(device.finds(&[write[1], Block, copy, done, Block, write[2], Block, read]), "");
    }

    /// Elements of two matrices: any byte, unsigned in A and signed in B.
    fn element_of_a(row: usize, column: usize) -> u8 {
        (row * 37 + column * 101 + row * column) as u8
    }

    fn element_of_b(row: usize, column: usize) -> i8 {
        (row * 59 + column * 83 + 5 * row * column + 128) as u8 as i8
    }

    /// Multiplies the two matrices: a lane's parts follow the table in the PTX manual. The lane
    /// stores its sums into the 16 by 8 result.
    fn multiply<const SIGNED: bool>(at: u64) {
        let lane = thread_x() as usize % 32;
        let (group, turn) = (lane / 4, lane % 4);
        let a = [0, 1, 2, 3].map(|word| {
            let (row, column) = (group + 8 * (word % 2), 4 * turn + 16 * (word / 2));
            u32::from_le_bytes([0, 1, 2, 3].map(|i| element_of_a(row, column + i)))
        });
        let b = [0, 1].map(|word| {
            let row = 4 * turn + 16 * word;
            u32::from_le_bytes([0, 1, 2, 3].map(|i| element_of_b(row + i, group) as u8))
        });
        // SAFETY: the emulator checks it.
        unsafe {
            let times = |sums| if SIGNED { mma_signed(sums, a, b) } else { mma(sums, a, b) };
            let sums = times(times([1, 2, 3, i32::MAX]));
            for (i, sum) in sums.into_iter().enumerate() {
                let place = 8 * (group + 8 * (i / 2)) + 2 * turn + i % 2;
                let warp = 2 * block_x() as u64 + thread_x() as u64 / 32;
                store_words(at + 512 * warp + 4 * place as u64, [sum as u32]);
            }
        }
    }

    #[test]
    fn products_of_matrices() {
        products(multiply::<false>, |a, b| i32::from(a) * i32::from(b));
        // The same bytes, but A's are signed and B's are not.
        products(multiply::<true>, |a, b| i32::from(a as i8) * i32::from(b as u8));
    }

    fn products(kernel: fn(u64), times: fn(u8, i8) -> i32) {
        let device = Device::new(4 * 512, &[]);
        assert_eq!(device.finds(&[Step::All(kernel)]), "");
        let found: [u8; 4 * 512] = device.read();
        for (place, bytes) in found.chunks(4).enumerate() {
            let (row, column) = (place / 8 % 16, place % 8);
            let product: i32 =
                (0..32).map(|k| times(element_of_a(row, k), element_of_b(k, column))).sum();
            let start = [1, 2, 3, i32::MAX][2 * (row / 8) + column % 2];
            let expected = start.wrapping_add(product).wrapping_add(product);
            assert_eq!(
                i32::from_le_bytes(bytes.try_into().unwrap()),
                expected,
                "row {row}, column {column}"
            );
        }
    }

    #[test]
    fn matrices_from_shared_memory() {
        // Rows lie 16 bytes apart, the last one first. Each lane stores words of rows, and reads
        // the words that the PTX manual names.
        fn load(at: u64) {
            let (warp, lane, shared) = (thread_x() / 32, thread_x() % 32, Shared::dynamic());
            let mine = at + 512 * (2 * block_x() + warp) as u64;
            // SAFETY: the emulator checks it.
            unsafe {
                for turn in 0..4 {
                    let word = lane + 32 * turn;
                    shared.store(128 * warp + word, f32::from_bits(word as u32));
                }
                warp_barrier();
                let words = shared.load_matrices(512 * warp + 16 * (31 - lane));
                for (matrix, word) in words.into_iter().enumerate() {
                    store_words(mine + 4 * (4 * lane as u64 + matrix as u64), [word]);
                }
            }
        }
        let device = Device { shared: 1024, ..Device::new(4 * 512, &[]) };
        assert_eq!(device.finds(&[Step::All(load)]), "");
        let found: [u8; 4 * 512] = device.read();
        for (place, bytes) in found.chunks(4).enumerate() {
            let (lane, matrix) = (place / 4 % 32, place % 4);
            let row = 31 - (8 * matrix + lane / 4);
            assert_eq!(
                u32::from_le_bytes(bytes.try_into().unwrap()),
                (4 * row + lane % 4) as u32,
                "{lane}, {matrix}"
            );
        }
        let odd = Step::All(|_at| {
            // SAFETY: the emulator checks it.
            unsafe { Shared::dynamic().load_matrices(8) };
        });
        assert_finds(
            &Device::new(4, &[]),
            &[odd],
            "reads 16 bytes at byte 8 of shared memory, not aligned to 16 bytes",
        );
    }

    #[test]
    fn lanes_that_miss_a_product() {
        let device = Device::new(4, &[0; 4]);
        let alone = by!(3, |_at| mma([0; 4], [0; 4], [0; 2]));
        assert_finds(
            &device,
            &[alone],
            "waits at a warp instruction that some threads do not reach",
        );
        assert_finds(
            &device,
            &[alone, Warp],
            "waits at a warp barrier that some threads do not reach: thread (3, 0, 0) waits at",
        );
        // The instruction is not a barrier.
        let all = Step::All(|_at| {
            // SAFETY: the emulator checks it.
            unsafe { mma([0; 4], [0; 4], [0; 2]) };
        });
        let (write, read) = (
            by!(0, |_at| Shared::dynamic().store(0, 1.0)),
            by!(1, |_at| Shared::dynamic().load_word(0)),
        );
        assert_finds(&device, &[write, all, read], "of shared memory in a race");
        assert_eq!(device.finds(&[write, all, Warp, all, read]), "");
    }

    #[test]
    fn the_end_of_shared_memory() {
        let device = Device::new(4, &[]);
        assert_eq!(device.finds(&[by!(0, |_at| Shared::dynamic().store_u16(28, 0))]), "");
        let beyond = "of shared memory, the block has 30 bytes";
        assert_finds(
            &device,
            &[by!(0, |_at| Shared::dynamic().store_u8(30, 0))],
            &format!("byte 30 {beyond}"),
        );
        assert_finds(
            &device,
            &[by!(0, |_at| Shared::dynamic().store_u8(-1, 0))],
            &format!("byte -1 {beyond}"),
        );
        assert_finds(
            &device,
            &[by!(0, |_at| Shared::dynamic().store(7, 0.0))],
            &format!("byte 28 {beyond}"),
        );
        assert_finds(
            &device,
            &[by!(0, |_at| Shared::dynamic().load_word(7))],
            &format!("byte 28 {beyond}"),
        );
    }

    #[test]
    fn sabotage_of_bytes() {
        let stores = [
            by!(0, |at| if block_x() == 0 {
                store_u8(at, 6)
            }),
            by!(1, |at| if block_x() == 0 {
                store_u8(at + 1, 6)
            }),
        ];
        let device = Device { sabotage: Some(Sabotage::OnePixel), ..Device::new(2, &[]) };
        assert_eq!(device.finds(&stores), "");
        assert_eq!(device.read(), [7, 6]);
        let lost = by!(63, |_at| Shared::dynamic().store_u8(0, 0));
        let device = Device { sabotage: Some(Sabotage::HaloRow), ..Device::new(2, &[]) };
        let rest = [
            by!(0, |_at| Shared::dynamic().store_u8(1, 0)),
            Block,
            by!(0, |_at| Shared::dynamic().load_word(0)),
        ];
        assert_finds(
            &device,
            &[&[lost], &rest[..]].concat(),
            "reads byte 0 of shared memory, which nothing wrote",
        );
    }
}
