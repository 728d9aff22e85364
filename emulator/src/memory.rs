//! Device memory: words, and a mark for each that says whether it is allocated and who wrote and read it last.
//!
//! Device addresses are not host addresses: a program that dereferences one on the host crashes, as with a GPU.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The first address of the first device.
const BASE: u64 = 0x7a00_0000_0000;
/// From there to the first address of the next device.
const DEVICE: u64 = 1 << 40;
/// Allocations begin at multiples of this many bytes, as the driver's do.
const ALIGNMENT: usize = 512;
/// Bytes between two allocations, which belong to none.
const GUARD: usize = 64 << 10;

/// The thread that touched a word, with its block and launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Toucher {
    /// Launches are numbered from 1; 0 is the host.
    pub(crate) launch: u32,
    /// Blocks are numbered along x, then y, then z.
    pub(crate) block: u32,
    pub(crate) thread: u32,
}

/// Bits of a packed toucher. Cut-off bits can make two touchers look like one: a fault may be missed, but never invented.
const LAUNCH_BITS: u32 = 26;
const BLOCK_BITS: u32 = 26;
const THREAD_BITS: u32 = 10;

impl Toucher {
    fn pack(self) -> u64 {
        let cut = |value: u32, bits: u32| u64::from(value & ((1 << bits) - 1));
        cut(self.launch, LAUNCH_BITS) << (BLOCK_BITS + THREAD_BITS)
            | cut(self.block, BLOCK_BITS) << THREAD_BITS
            | cut(self.thread, THREAD_BITS)
    }

    fn unpack(packed: u64) -> Self {
        let part = |shift: u32, bits: u32| (packed >> shift) as u32 & ((1 << bits) - 1);
        Self {
            launch: part(BLOCK_BITS + THREAD_BITS, LAUNCH_BITS),
            block: part(THREAD_BITS, BLOCK_BITS),
            thread: part(0, THREAD_BITS),
        }
    }

    fn same_launch(self, packed: u64) -> bool {
        packed >> (BLOCK_BITS + THREAD_BITS) == u64::from(self.launch & ((1 << LAUNCH_BITS) - 1))
    }
}

/// The state of a word: whether it is allocated, whether anything wrote it, and the last writer.
const ALLOCATED: u64 = 1;
const WRITTEN: u64 = 2;
const WRITER: u32 = 2;

/// The last reader: whether by the read-only path, its thread, and as much of the launch's number as there is room for.
const READ_ONLY: u32 = 1;

/// A faulty access.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// The word is in no allocation.
    OutOfBounds,
    /// Nothing has written it.
    NotWritten,
    /// This thread has written it in the same launch.
    WrittenBy(Toucher),
    /// A thread of this number has read it in the same launch, by the read-only path or not.
    ReadBy { thread: u32, read_only: bool },
}

pub(crate) struct Memory {
    base: u64,
    words: Box<[AtomicU32]>,
    states: Box<[AtomicU64]>,
    readers: Box<[AtomicU32]>,
    /// Bytes of each allocation, by the offset where it begins.
    allocations: Mutex<BTreeMap<usize, usize>>,
    total: usize,
}

impl Memory {
    /// Memory of a device, of which `total` bytes can be allocated.
    pub(crate) fn new(device: u32, total: usize) -> Self {
        // Guards, and gaps that no allocation fits into, take room too.
        let words = (total + total / 2 + (64 << 20)) / 4;
        // SAFETY: all-zero bytes are an atomic integer of zero.
        unsafe {
            Self {
                base: BASE + DEVICE * u64::from(device),
                words: Box::new_zeroed_slice(words).assume_init(),
                states: Box::new_zeroed_slice(words).assume_init(),
                readers: Box::new_zeroed_slice(words).assume_init(),
                allocations: Mutex::default(),
                total,
            }
        }
    }

    fn allocations(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        self.allocations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Free and total bytes.
    pub(crate) fn info(&self) -> (usize, usize) {
        let used: usize = self.allocations().values().map(|bytes| bytes.next_multiple_of(ALIGNMENT)).sum();
        (self.total.saturating_sub(used), self.total)
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Option<u64> {
        if bytes > self.info().0 {
            return None;
        }
        let mut allocations = self.allocations();
        let mut start = GUARD;
        for (&next, &len) in allocations.iter() {
            if start + bytes + GUARD <= next {
                break;
            }
            start = (next + len + GUARD).next_multiple_of(ALIGNMENT);
        }
        if start + bytes + GUARD > 4 * self.words.len() {
            return None;
        }
        allocations.insert(start, bytes);
        self.states[start / 4..(start + bytes).div_ceil(4)].iter().for_each(|state| state.store(ALLOCATED, Relaxed));
        Some(self.base + start as u64)
    }

    pub(crate) fn free(&self, address: u64) -> bool {
        let start = address.wrapping_sub(self.base) as usize;
        let mut allocations = self.allocations();
        let Some(bytes) = allocations.remove(&start) else { return false };
        self.states[start / 4..(start + bytes).div_ceil(4)].iter().for_each(|state| state.store(0, Relaxed));
        true
    }

    /// The index of the word at an address that is a multiple of 4; too large where there is none.
    pub(crate) fn word(&self, address: usize) -> usize {
        address.wrapping_sub(self.base as usize) / 4
    }

    /// Reads a word on behalf of a thread.
    #[inline]
    pub(crate) fn load(&self, word: usize, by: Toucher, read_only: bool) -> Result<u32, Wrong> {
        let Some(state) = self.states.get(word) else { return Err(Wrong::OutOfBounds) };
        let state = state.load(Relaxed);
        if state & WRITTEN == 0 {
            return Err(if state & ALLOCATED == 0 { Wrong::OutOfBounds } else { Wrong::NotWritten });
        }
        let writer = state >> WRITER;
        if by.same_launch(writer) && (read_only || writer != by.pack()) {
            return Err(Wrong::WrittenBy(Toucher::unpack(writer)));
        }
        let mark = by.launch << (THREAD_BITS + 1) | by.thread << 1 | if read_only { READ_ONLY } else { 0 };
        self.readers[word].store(mark, Relaxed);
        Ok(self.words[word].load(Relaxed))
    }

    /// Writes a word on behalf of a thread.
    #[inline]
    pub(crate) fn store(&self, word: usize, value: u32, by: Toucher) -> Result<(), Wrong> {
        let Some(state) = self.states.get(word) else { return Err(Wrong::OutOfBounds) };
        let known = state.load(Relaxed);
        if known & ALLOCATED == 0 {
            return Err(Wrong::OutOfBounds);
        }
        let writer = known >> WRITER;
        if known & WRITTEN != 0 && by.same_launch(writer) && writer != by.pack() {
            return Err(Wrong::WrittenBy(Toucher::unpack(writer)));
        }
        let reader = self.readers[word].load(Relaxed);
        if reader >> (THREAD_BITS + 1) == by.launch << (THREAD_BITS + 1) >> (THREAD_BITS + 1) {
            let (thread, read_only) = (reader >> 1 & ((1 << THREAD_BITS) - 1), reader & READ_ONLY != 0);
            if read_only || thread != by.thread {
                return Err(Wrong::ReadBy { thread, read_only });
            }
        }
        state.store(by.pack() << WRITER | WRITTEN | ALLOCATED, Relaxed);
        self.words[word].store(value, Relaxed);
        Ok(())
    }

    /// The bytes from `address` on, if they lie in one allocation.
    fn bytes(&self, address: u64, len: usize) -> Result<*mut u8, String> {
        let start = address.wrapping_sub(self.base) as usize;
        let allocations = self.allocations();
        let inside =
            allocations.range(..=start).next_back().is_some_and(|(&first, &bytes)| start + len <= first + bytes);
        if inside || len == 0 {
            Ok(self.words.as_ptr().cast_mut().cast::<u8>().wrapping_add(start))
        } else {
            drop(allocations);
            Err(format!("{len} bytes at {}", self.describe(address)))
        }
    }

    fn states(&self, address: u64, len: usize) -> &[AtomicU64] {
        let start = address.wrapping_sub(self.base) as usize;
        if len == 0 { &[] } else { &self.states[start / 4..(start + len).div_ceil(4)] }
    }

    /// Copies from the host.
    ///
    /// # Safety
    /// `len` bytes can be read at `from`.
    pub(crate) unsafe fn upload(&self, to: u64, from: *const u8, len: usize) -> Result<(), String> {
        let bytes = self.bytes(to, len)?;
        // SAFETY: the bytes lie in the memory; those on the host by the caller's promise.
        unsafe { bytes.copy_from_nonoverlapping(from, len) };
        self.states(to, len).iter().for_each(|state| state.store(WRITTEN | ALLOCATED, Relaxed));
        Ok(())
    }

    /// Copies to the host; also returns the address of the first word that nothing has written.
    ///
    /// # Safety
    /// `len` bytes can be written at `to`.
    pub(crate) unsafe fn download(&self, to: *mut u8, from: u64, len: usize) -> Result<Option<u64>, String> {
        let bytes = self.bytes(from, len)?;
        // SAFETY: as in `upload`.
        unsafe { to.copy_from_nonoverlapping(bytes, len) };
        Ok(self.unknown(from, len))
    }

    /// The address of the first word that nothing has written.
    fn unknown(&self, from: u64, len: usize) -> Option<u64> {
        let word = self.states(from, len).iter().position(|state| state.load(Relaxed) & WRITTEN == 0)?;
        Some(from + 4 * word as u64)
    }

    /// Copies within the device; also returns the address of the first word that nothing has written.
    pub(crate) fn copy(&self, to: u64, from: u64, len: usize) -> Result<Option<u64>, String> {
        let unknown = self.unknown(from, len);
        let (to_bytes, from_bytes) = (self.bytes(to, len)?, self.bytes(from, len)?);
        // SAFETY: both lie in the memory.
        unsafe { to_bytes.copy_from(from_bytes, len) };
        self.states(to, len).iter().for_each(|state| state.store(WRITTEN | ALLOCATED, Relaxed));
        Ok(unknown)
    }

    /// Sets words.
    pub(crate) fn fill(&self, to: u64, value: u32, words: usize) -> Result<(), String> {
        self.bytes(to, 4 * words)?;
        let first = self.word(to as usize);
        self.words[first..first + words].iter().for_each(|word| word.store(value, Relaxed));
        self.states(to, 4 * words).iter().for_each(|state| state.store(WRITTEN | ALLOCATED, Relaxed));
        Ok(())
    }

    /// An address in words: where it lies in the allocation nearest to it.
    pub(crate) fn describe(&self, address: u64) -> String {
        let start = address.wrapping_sub(self.base) as usize;
        let allocations = self.allocations();
        let before = allocations.range(..=start).next_back().map(|(&first, &bytes)| (first, bytes));
        let after = allocations.range(start.saturating_add(1)..).next().map(|(&first, &bytes)| (first, bytes));
        let place = match (before, after) {
            _ if address < self.base || start > 4 * self.words.len() => "which is no memory of this device".to_owned(),
            (Some((first, bytes)), _) if start < first + bytes => {
                format!("byte {} of an allocation of {bytes} bytes", start - first)
            }
            (Some((first, bytes)), after) if after.is_none_or(|(next, _)| start - (first + bytes) <= next - start) => {
                format!("{} bytes behind an allocation of {bytes} bytes", start - (first + bytes))
            }
            (_, Some((next, bytes))) => format!("{} bytes before an allocation of {bytes} bytes", next - start),
            _ => "where nothing is allocated".to_owned(),
        };
        format!("{address:#x}, {place}")
    }
}
