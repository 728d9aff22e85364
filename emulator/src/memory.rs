//! Device memory: words, and a mark for each. The mark says whether the word is allocated, and who
//! wrote and read it last.
//!
//! Kernels mostly access whole words, so one mark stands for four bytes. A partial access by a
//! kernel or a copy gives each byte its own mark. An access to the whole word can merge them again.
//!
//! Device addresses are not host addresses: a program that dereferences one on the host crashes, as
//! with a GPU. On a device that shares the host's memory they are, and managed memory lies here.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The first address of the first device.
const BASE: u64 = 0x7a00_0000_0000;
/// Bytes from there to the first address of the next device.
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

/// Bits of a packed `Toucher`. Cut-off bits can make two touchers look the same: the emulator may
/// miss a fault, but never invents one.
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

/// The state of a word or a byte: one of four marks, and the last writer. State 0 means that no
/// allocation holds it.
const ALLOCATED: u64 = 1;
/// For words only: [`Parts`] has a state for each byte.
const IN_PARTS: u64 = 2;
const WRITTEN: u64 = 3;
const KIND: u64 = 3;
const WRITER: u32 = 2;

/// Bit of a packed reader: it read by the read-only path. The other bits are its thread's number
/// and the low bits of the launch's number.
const READ_ONLY: u32 = 1;

/// A faulty access.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// The address is in no allocation.
    OutOfBounds,
    /// Nothing has written the word or byte.
    NotWritten,
    /// This thread has written it in the same launch.
    WrittenBy(Toucher),
    /// A thread of this number has read it in the same launch.
    ReadBy { thread: u32, read_only: bool },
    /// Several threads add to it in the same launch.
    AddedTo,
}

/// The result of an access to a word, or the first byte of the word that is at fault.
pub(crate) type Outcome<T> = Result<T, (usize, Wrong)>;

/// Whether the thread may read a word or byte of this state.
#[inline(always)]
fn readable(state: u64, by: Toucher, read_only: bool) -> Result<(), Wrong> {
    if state & KIND != WRITTEN {
        return Err(if state == 0 { Wrong::OutOfBounds } else { Wrong::NotWritten });
    }
    let writer = state >> WRITER;
    if by.same_launch(writer) && (read_only || writer != by.pack()) {
        return Err(Wrong::WrittenBy(Toucher::unpack(writer)));
    }
    Ok(())
}

/// Whether the thread may write a word or byte of this state.
#[inline(always)]
fn writable(state: u64, by: Toucher) -> Result<(), Wrong> {
    if state & ALLOCATED == 0 {
        return Err(Wrong::OutOfBounds);
    }
    let writer = state >> WRITER;
    if state & KIND == WRITTEN && by.same_launch(writer) && writer != by.pack() {
        return Err(Wrong::WrittenBy(Toucher::unpack(writer)));
    }
    Ok(())
}

/// Fails if another thread of the launch is the last reader, or any thread by the read-only path.
#[inline(always)]
fn unread(reader: u32, by: Toucher) -> Result<(), Wrong> {
    if reader >> (THREAD_BITS + 1) == by.launch << (THREAD_BITS + 1) >> (THREAD_BITS + 1) {
        let (thread, read_only) = (reader >> 1 & ((1 << THREAD_BITS) - 1), reader & READ_ONLY != 0);
        if read_only || thread != by.thread {
            return Err(Wrong::ReadBy { thread, read_only });
        }
    }
    Ok(())
}

#[inline(always)]
fn reader(by: Toucher, read_only: bool) -> u32 {
    by.launch << (THREAD_BITS + 1) | by.thread << 1 | if read_only { READ_ONLY } else { 0 }
}

/// Marks of a word that is accessed in part.
struct Parts {
    states: [AtomicU64; 4],
    readers: [AtomicU32; 4],
    /// The last launch that added to the word, unless it has been written otherwise since. The
    /// lowest bit says whether several of the launch's threads added.
    adders: AtomicU32,
}

impl Parts {
    /// Whether several threads of the launch add to the word; `None` if none does.
    fn adders(&self, by: Toucher) -> Option<bool> {
        let adders = self.adders.load(Relaxed);
        (adders >> 1 == by.launch << 1 >> 1).then_some(adders & 1 != 0)
    }

    /// Refuses an access to a word that several threads of the launch add to: nothing orders it.
    fn alone(&self, by: Toucher) -> Outcome<()> {
        if self.adders(by) == Some(true) { Err((0, Wrong::AddedTo)) } else { Ok(()) }
    }
}

/// Words that get their `Parts` in one allocation.
const PAGE: usize = 4096;

/// A mask of these bytes of a word.
#[inline(always)]
fn mask(bytes: &Range<usize>) -> u32 {
    u32::MAX >> (8 * (4 - bytes.len())) << (8 * bytes.start)
}

pub(crate) struct Memory {
    base: u64,
    words: Box<[AtomicU32]>,
    states: Box<[AtomicU64]>,
    readers: Box<[AtomicU32]>,
    /// `Parts` of each page with a word that was accessed in part.
    parts: Box<[OnceLock<Box<[Parts]>>]>,
    /// Held while a word's one mark becomes four: launches of two host threads may access bytes of
    /// one word.
    splitting: Mutex<()>,
    /// Size in bytes of each allocation, by its offset.
    allocations: Mutex<BTreeMap<usize, usize>>,
    total: usize,
}

impl Memory {
    /// The memory of a device, of which `total` bytes can be allocated. If it is `shared` with the
    /// host, addresses are those on the host.
    pub(crate) fn new(device: u32, total: usize, shared: bool) -> Self {
        // Guards take room too, and so do gaps too small for an allocation.
        let count = (total + total / 2 + (64 << 20)) / 4;
        // SAFETY: all-zero bytes are an atomic integer of zero.
        let words: Box<[AtomicU32]> = unsafe { Box::new_zeroed_slice(count).assume_init() };
        let own = BASE + DEVICE * u64::from(device);
        // SAFETY: as above.
        unsafe {
            Self {
                base: if shared { words.as_ptr().addr() as u64 } else { own },
                words,
                states: Box::new_zeroed_slice(count).assume_init(),
                readers: Box::new_zeroed_slice(count).assume_init(),
                parts: (0..count.div_ceil(PAGE)).map(|_| OnceLock::new()).collect(),
                splitting: Mutex::default(),
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
        let used: usize =
            self.allocations().values().map(|bytes| bytes.next_multiple_of(ALIGNMENT)).sum();
        (self.total.saturating_sub(used), self.total)
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Option<u64> {
        if bytes > self.info().0 {
            return None;
        }
        let base = self.base as usize;
        let aligned = |offset: usize| (base + offset).next_multiple_of(ALIGNMENT) - base;
        let mut allocations = self.allocations();
        let mut start = aligned(GUARD);
        for (&next, &len) in allocations.iter() {
            if start + bytes + GUARD <= next {
                break;
            }
            start = aligned(next + len + GUARD);
        }
        if start + bytes + GUARD > 4 * self.words.len() {
            return None;
        }
        allocations.insert(start, bytes);
        let end = start + bytes;
        self.states[start / 4..end.div_ceil(4)]
            .iter()
            .for_each(|state| state.store(ALLOCATED, Relaxed));
        if !end.is_multiple_of(4) {
            let parts = self.parts(end / 4).expect("its word is marked above");
            parts.states[end % 4..].iter().for_each(|state| state.store(0, Relaxed));
        }
        Some(self.base + start as u64)
    }

    /// Whether an allocation begins here.
    pub(crate) fn begins_at(&self, address: u64) -> bool {
        self.allocations().contains_key(&(address.wrapping_sub(self.base) as usize))
    }

    pub(crate) fn free(&self, address: u64) -> bool {
        let start = address.wrapping_sub(self.base) as usize;
        let mut allocations = self.allocations();
        let Some(bytes) = allocations.remove(&start) else { return false };
        self.states[start / 4..(start + bytes).div_ceil(4)]
            .iter()
            .for_each(|state| state.store(0, Relaxed));
        true
    }

    /// The index of the word that holds an address; out of range if there is none.
    #[inline(always)]
    pub(crate) fn word(&self, address: usize) -> usize {
        address.wrapping_sub(self.base as usize) / 4
    }

    /// Reads a word for a thread.
    #[inline]
    pub(crate) fn load(&self, word: usize, by: Toucher, read_only: bool) -> Outcome<u32> {
        let Some(state) = self.states.get(word) else { return Err((0, Wrong::OutOfBounds)) };
        let state = state.load(Relaxed);
        if state & KIND != WRITTEN {
            return self.load_parts(word, by, read_only);
        }
        readable(state, by, read_only).map_err(|wrong| (0, wrong))?;
        self.readers[word].store(reader(by, read_only), Relaxed);
        Ok(self.words[word].load(Relaxed))
    }

    /// Writes a word for a thread.
    #[inline]
    pub(crate) fn store(&self, word: usize, value: u32, by: Toucher) -> Outcome<()> {
        let Some(state) = self.states.get(word) else { return Err((0, Wrong::OutOfBounds)) };
        let known = state.load(Relaxed);
        if known & ALLOCATED == 0 {
            return self.store_parts(word, value, by);
        }
        writable(known, by).map_err(|wrong| (0, wrong))?;
        unread(self.readers[word].load(Relaxed), by).map_err(|wrong| (0, wrong))?;
        state.store(by.pack() << WRITER | WRITTEN, Relaxed);
        self.words[word].store(value, Relaxed);
        Ok(())
    }

    /// Gives the word a mark for each byte and returns the marks; `None` if no allocation holds it.
    fn parts(&self, word: usize) -> Option<&Parts> {
        let state = self.states.get(word)?.load(Acquire);
        if state == 0 {
            return None;
        }
        let page = self.parts[word / PAGE].get_or_init(|| {
            // SAFETY: all-zero bytes are atomic integers of zero.
            unsafe { Box::new_zeroed_slice(PAGE).assume_init() }
        });
        let parts = &page[word % PAGE];
        if state != IN_PARTS {
            self.split(word, parts);
        }
        Some(parts)
    }

    /// Gives each byte the mark of its word.
    fn split(&self, word: usize, parts: &Parts) {
        let _splitting = self.splitting.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.states[word].load(Relaxed);
        if state == IN_PARTS {
            return;
        }
        let reader = self.readers[word].load(Relaxed);
        parts.states.iter().for_each(|byte| byte.store(state, Relaxed));
        parts.readers.iter().for_each(|byte| byte.store(reader, Relaxed));
        parts.adders.store(0, Relaxed);
        self.states[word].store(IN_PARTS, Release);
    }

    /// Reads some bytes of a word for a thread; the first is the result's lowest.
    #[inline]
    pub(crate) fn load_part(
        &self,
        word: usize,
        bytes: Range<usize>,
        by: Toucher,
        read_only: bool,
    ) -> Outcome<u32> {
        let parts = self.parts(word).ok_or((bytes.start, Wrong::OutOfBounds))?;
        parts.alone(by)?;
        for byte in bytes.clone() {
            let state = parts.states[byte].load(Relaxed);
            readable(state, by, read_only).map_err(|wrong| (byte, wrong))?;
            parts.readers[byte].store(reader(by, read_only), Relaxed);
        }
        Ok((self.words[word].load(Relaxed) & mask(&bytes)) >> (8 * bytes.start))
    }

    /// Writes some bytes of a word for a thread, the value's lowest first.
    #[inline]
    pub(crate) fn store_part(
        &self,
        word: usize,
        bytes: Range<usize>,
        value: u32,
        by: Toucher,
    ) -> Outcome<()> {
        let parts = self.parts(word).ok_or((bytes.start, Wrong::OutOfBounds))?;
        parts.alone(by)?;
        for byte in bytes.clone() {
            let state = parts.states[byte].load(Relaxed);
            writable(state, by).map_err(|wrong| (byte, wrong))?;
            unread(parts.readers[byte].load(Relaxed), by).map_err(|wrong| (byte, wrong))?;
        }
        for byte in bytes.clone() {
            parts.states[byte].store(by.pack() << WRITER | WRITTEN, Relaxed);
        }
        parts.adders.store(0, Relaxed);
        let (mask, value) = (mask(&bytes), value << (8 * bytes.start));
        // The launch of another host thread may write the other bytes.
        let update = |word| Some(word & !mask | value & mask);
        let _ = self.words[word].fetch_update(Relaxed, Relaxed, update);
        Ok(())
    }

    /// Reads a word whose bytes have their own marks, or that may not be read.
    #[cold]
    fn load_parts(&self, word: usize, by: Toucher, read_only: bool) -> Outcome<u32> {
        let value = self.load_part(word, 0..4, by, read_only)?;
        let parts = self.parts(word).ok_or((0, Wrong::OutOfBounds))?;
        // If no byte's writer belongs to this launch, the writers do not matter: one mark is enough
        // again.
        if !parts.states.iter().any(|state| by.same_launch(state.load(Relaxed) >> WRITER)) {
            self.readers[word].store(reader(by, read_only), Relaxed);
            self.states[word].store(WRITTEN, Relaxed);
        }
        Ok(value)
    }

    /// Writes a whole word, after which one mark is enough; fails if no allocation holds it.
    #[cold]
    fn store_parts(&self, word: usize, value: u32, by: Toucher) -> Outcome<()> {
        self.store_part(word, 0..4, value, by)?;
        self.states[word].store(by.pack() << WRITER | WRITTEN, Relaxed);
        Ok(())
    }

    /// Adds to a word for a thread; returns the previous value. Nothing orders the additions of a
    /// launch's threads, nor any other access by another thread.
    pub(crate) fn add(&self, word: usize, value: u32, by: Toucher) -> Outcome<u32> {
        let parts = self.parts(word).ok_or((0, Wrong::OutOfBounds))?;
        let adders = parts.adders(by);
        let mut own = false;
        for byte in 0..4 {
            let state = parts.states[byte].load(Relaxed);
            if state & KIND != WRITTEN {
                return Err((
                    byte,
                    if state == 0 { Wrong::OutOfBounds } else { Wrong::NotWritten },
                ));
            }
            if adders.is_none() {
                writable(state, by).map_err(|wrong| (byte, wrong))?;
            }
            unread(parts.readers[byte].load(Relaxed), by).map_err(|wrong| (byte, wrong))?;
            own |= state >> WRITER == by.pack();
        }
        let several = match adders {
            // This thread's earlier plain write still counts as a write for the other threads.
            None if own => None,
            None => Some(false),
            Some(several) => Some(several || !own),
        };
        if let Some(several) = several {
            parts.adders.store(by.launch << 1 | u32::from(several), Relaxed);
        }
        parts.states.iter().for_each(|state| state.store(by.pack() << WRITER | WRITTEN, Relaxed));
        Ok(self.words[word].fetch_add(value, Relaxed))
    }

    /// The bytes from `address` on, if they lie in one allocation.
    fn bytes(&self, address: u64, len: usize) -> Result<*mut u8, String> {
        let start = address.wrapping_sub(self.base) as usize;
        let allocations = self.allocations();
        let left = allocations
            .range(..=start)
            .next_back()
            .and_then(|(first, bytes)| (first + bytes).checked_sub(start));
        let inside = left.is_some_and(|left| len <= left);
        if inside || len == 0 {
            Ok(self.words.as_ptr().cast_mut().cast::<u8>().wrapping_add(start))
        } else {
            drop(allocations);
            Err(format!("{len} bytes at {}", self.describe(address)))
        }
    }

    /// The words that hold these bytes, and the bytes of each.
    fn words(
        &self,
        address: u64,
        len: usize,
    ) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let start = address.wrapping_sub(self.base) as usize;
        let words = if len == 0 { 0..0 } else { start / 4..(start + len).div_ceil(4) };
        words.map(move |word| {
            (word, start.saturating_sub(4 * word)..(start + len - 4 * word).min(4))
        })
    }

    /// Marks bytes of an allocation as written by the host.
    fn written(&self, address: u64, len: usize) {
        for (word, bytes) in self.words(address, len) {
            if bytes == (0..4) {
                self.states[word].store(WRITTEN, Relaxed);
            } else if let Some(parts) = self.parts(word) {
                parts.states[bytes].iter().for_each(|state| state.store(WRITTEN, Relaxed));
            }
        }
    }

    /// Copies from the host.
    /// # Safety
    /// `from` is valid for reads of `len` bytes.
    pub(crate) unsafe fn upload(&self, to: u64, from: *const u8, len: usize) -> Result<(), String> {
        let bytes = self.bytes(to, len)?;
        // SAFETY: the bytes lie in the memory; the host's bytes are valid by the caller's promise.
        unsafe { bytes.copy_from_nonoverlapping(from, len) };
        self.written(to, len);
        Ok(())
    }

    /// Copies to the host; also returns the address of the first byte that nothing has written.
    ///
    /// # Safety
    /// `to` is valid for writes of `len` bytes.
    pub(crate) unsafe fn download(
        &self,
        to: *mut u8,
        from: u64,
        len: usize,
    ) -> Result<Option<u64>, String> {
        let bytes = self.bytes(from, len)?;
        // SAFETY: as in `upload`.
        unsafe { to.copy_from_nonoverlapping(bytes, len) };
        Ok(self.unknown(from, len))
    }

    /// The address of the first byte that nothing has written.
    fn unknown(&self, from: u64, len: usize) -> Option<u64> {
        self.words(from, len).find_map(|(word, mut bytes)| {
            let first = match self.states[word].load(Relaxed) {
                IN_PARTS => {
                    let parts = self.parts(word)?;
                    bytes.find(|&byte| parts.states[byte].load(Relaxed) & KIND != WRITTEN)
                }
                state => (state & KIND != WRITTEN).then_some(bytes.start),
            };
            first.map(|byte| self.base + (4 * word + byte) as u64)
        })
    }

    /// Copies within the device; also returns the address of the first byte that nothing has
    /// written.
    pub(crate) fn copy(&self, to: u64, from: u64, len: usize) -> Result<Option<u64>, String> {
        let (to_bytes, from_bytes) = (self.bytes(to, len)?, self.bytes(from, len)?);
        let unknown = self.unknown(from, len);
        // SAFETY: both lie in the memory.
        unsafe { to_bytes.copy_from(from_bytes, len) };
        self.written(to, len);
        Ok(unknown)
    }

    /// Sets `count` elements to `value`.
    pub(crate) fn fill(&self, to: u64, value: &[u8], count: usize) -> Result<(), String> {
        let len = value.len().saturating_mul(count);
        let bytes = self.bytes(to, len)?;
        if !to.is_multiple_of(value.len() as u64) {
            return Err(format!(
                "{0} bytes each at {to:#x}, not aligned to {0} bytes",
                value.len()
            ));
        }
        for i in 0..count {
            // SAFETY: inside the memory, which `bytes` has checked.
            unsafe {
                bytes.add(i * value.len()).copy_from_nonoverlapping(value.as_ptr(), value.len())
            };
        }
        self.written(to, len);
        Ok(())
    }

    /// Describes an address by its place relative to the nearest allocation.
    pub(crate) fn describe(&self, address: u64) -> String {
        let start = address.wrapping_sub(self.base) as usize;
        let allocations = self.allocations();
        let before = allocations.range(..=start).next_back().map(|(&first, &bytes)| (first, bytes));
        let after = allocations
            .range(start.saturating_add(1)..)
            .next()
            .map(|(&first, &bytes)| (first, bytes));
        let place = match (before, after) {
            _ if address < self.base || start > 4 * self.words.len() => {
                "which is not memory of this device".to_owned()
            }
            (Some((first, bytes)), _) if start < first + bytes => {
                format!("byte {} of an allocation of {bytes} bytes", start - first)
            }
            (Some((first, bytes)), after)
                if after.is_none_or(|(next, _)| start - (first + bytes) <= next - start) =>
            {
                format!("{} bytes after an allocation of {bytes} bytes", start - (first + bytes))
            }
            (_, Some((next, bytes))) => {
                format!("{} bytes before an allocation of {bytes} bytes", next - start)
            }
            _ => "where nothing is allocated".to_owned(),
        };
        format!("{address:#x}, {place}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Memory {
        Memory::new(0, 1 << 20, false)
    }

    fn thread(launch: u32, thread: u32) -> Toucher {
        Toucher { launch, block: 0, thread }
    }

    #[test]
    fn words_go_into_parts_and_back() {
        let memory = memory();
        let word = memory.word(memory.allocate(8).unwrap() as usize);
        let in_parts = || memory.states[word].load(Relaxed) == IN_PARTS;
        assert_eq!(memory.store(word, 0x0403_0201, thread(1, 0)), Ok(()));
        assert!(!in_parts());
        assert_eq!(memory.load_part(word, 1..2, thread(2, 0), true), Ok(2));
        assert!(in_parts());
        assert_eq!(memory.store_part(word, 0..1, 0x0809, thread(2, 1)), Ok(()));
        // Only the byte's own mark records this writer.
        assert_eq!(memory.load(word, thread(2, 1), false), Ok(0x0403_0209));
        assert!(in_parts());
        assert_eq!(memory.load(word, thread(3, 5), true), Ok(0x0403_0209));
        assert!(!in_parts());
        let read = Wrong::ReadBy { thread: 5, read_only: true };
        assert_eq!(memory.store_part(word, 2..4, 0, thread(3, 6)), Err((2, read)));
        assert_eq!(memory.store(word, 5, thread(4, 6)), Ok(()));
        assert!(!in_parts());
        assert_eq!(
            memory.load_part(word, 3..4, thread(4, 7), false),
            Err((3, Wrong::WrittenBy(thread(4, 6))))
        );
        assert_eq!(memory.load_part(word, 0..1, thread(4, 6), false), Ok(5));
    }

    #[test]
    fn allocations_end_at_any_byte() {
        let memory = memory();
        for bytes in 1..10 {
            let at = memory.allocate(bytes).unwrap();
            let word = memory.word(at as usize + bytes);
            let beyond = memory.store_part(word, bytes % 4..bytes % 4 + 1, 0, thread(1, 0));
            assert_eq!(beyond, Err((bytes % 4, Wrong::OutOfBounds)));
            assert!(memory.fill(at, &[1], bytes + 1).is_err());
            assert_eq!(memory.fill(at, &[1], bytes), Ok(()));
            let last = bytes - 1;
            assert_eq!(
                memory.load_part(
                    memory.word(at as usize + last),
                    last % 4..last % 4 + 1,
                    thread(1, 0),
                    true
                ),
                Ok(1)
            );
            assert!(memory.free(at));
            assert_eq!(
                memory.load_part(memory.word(at as usize), 0..1, thread(2, 0), true),
                Err((0, Wrong::OutOfBounds))
            );
        }
    }

    #[test]
    fn the_host_copies_bytes() {
        let memory = memory();
        let (from, to) = (memory.allocate(13).unwrap(), memory.allocate(13).unwrap());
        let bytes = [1, 2, 3, 4, 5, 6, 7];
        let mut back = [0; 7];
        // SAFETY: both slices have 7 bytes.
        unsafe {
            assert_eq!(memory.upload(from + 3, bytes.as_ptr(), 7), Ok(()));
            assert_eq!(memory.download(back.as_mut_ptr(), from + 3, 7), Ok(None));
            assert_eq!(back, bytes);
            assert_eq!(memory.download(back.as_mut_ptr(), from + 2, 7), Ok(Some(from + 2)));
            assert_eq!(memory.download(back.as_mut_ptr(), from + 4, 7), Ok(Some(from + 10)));
        }
        assert_eq!(memory.copy(to, from + 3, 7), Ok(None));
        assert_eq!(memory.unknown(to, 7), None);
        assert_eq!(memory.unknown(to, 13), Some(to + 7));
        assert_eq!(memory.fill(to + 8, &2u16.to_le_bytes(), 2), Ok(()));
        assert!(memory.fill(to + 7, &2u16.to_le_bytes(), 2).is_err());
        assert!(memory.fill(to + 2, &2u32.to_le_bytes(), 1).is_err());
        assert_eq!(memory.unknown(to + 8, 4), None);
        assert_eq!(memory.unknown(to, 13), Some(to + 7));
        assert_eq!(memory.fill(to + 7, &[9], 1), Ok(()));
        assert_eq!(memory.unknown(to, 13), Some(to + 12));
        assert!(memory.copy(to + 7, from, 7).is_err());
        assert_eq!(memory.load(memory.word(to as usize + 8), thread(1, 0), true), Ok(0x2_0002));
    }
}
