//! Frames between the thread that reads and the threads that filter, in order and in bounded
//! memory.

use std::collections::VecDeque;
use std::io::BufRead;
use std::panic::AssertUnwindSafe;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use bytemuck::Pod;

use super::header::{Fault, frame_line};
use crate::codec::zeroes;
use crate::failure::caught;

/// One frame. Its memory serves a later frame again.
pub(super) struct Frame<P> {
    /// Counted from 1.
    pub(super) number: usize,
    /// The line before the samples, with its end.
    pub(super) line: Vec<u8>,
    pub(super) samples: Vec<P>,
}

/// How the input ended.
#[derive(Debug, PartialEq)]
pub(super) enum End {
    /// After a frame.
    Whole,
    /// With a frame of this number that is unusable.
    At(usize, Fault),
}

struct State<P> {
    /// Frames that were read, in order.
    ready: VecDeque<Frame<P>>,
    /// Memory for frames.
    free: Vec<Frame<P>>,
    end: Option<End>,
    /// The number of the frame to write next.
    next: usize,
    stopped: bool,
}

/// Frames that were read, and memory for further ones.
pub(super) struct Queue<P> {
    state: Mutex<State<P>>,
    changed: Condvar,
}

impl<P: Pod + Send> Queue<P> {
    /// A queue with memory for `count` frames, which the first use of each allocates.
    pub(super) fn new(count: usize) -> Self {
        let empty = |_| Frame { number: 0, line: Vec::new(), samples: Vec::new() };
        let free = (0..count).map(empty).collect();
        let state = State { ready: VecDeque::new(), free, end: None, next: 1, stopped: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `found` returns a value; `None` if the work is to stop.
    fn wait<T>(&self, mut found: impl FnMut(&mut State<P>) -> Option<T>) -> Option<T> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(found) = found(&mut state) {
                return Some(found);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Reads frames of this many samples, until the input ends or the work is to stop.
    pub(super) fn read(&self, input: &mut impl BufRead, samples: usize) {
        for number in 1.. {
            let Some(mut frame) = self.wait(|state| state.free.pop()) else { return };
            frame.number = number;
            let read = caught(AssertUnwindSafe(|| Ok(read(&mut frame, input, samples))));
            let end = read
                .unwrap_or_else(|failure| Some(End::At(number, Fault::Damaged(failure.message))));
            let mut state = self.lock();
            match end {
                None => state.ready.push_back(frame),
                Some(end) => state.end = Some(end),
            }
            let ended = state.end.is_some();
            drop(state);
            self.changed.notify_all();
            if ended {
                return;
            }
        }
    }

    /// The next frame; `None` after the last, or if the work is to stop.
    pub(super) fn take(&self) -> Option<Frame<P>> {
        self.wait(|state| match state.ready.pop_front() {
            Some(frame) => Some(Some(frame)),
            None => state.end.is_some().then_some(None),
        })
        .flatten()
    }

    /// Waits until all frames before this one are written. Returns false if the work is to stop.
    pub(super) fn turn(&self, number: usize) -> bool {
        self.wait(|state| (state.next == number).then_some(())).is_some()
    }

    /// Takes back the memory of a frame that was written.
    pub(super) fn written(&self, frame: Frame<P>) {
        let mut state = self.lock();
        state.next = frame.number + 1;
        state.free.push(frame);
        drop(state);
        self.changed.notify_all();
    }

    /// Ends the work of all threads.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// The number of frames written, and how the input ended, if it did.
    pub(super) fn outcome(&self) -> (usize, Option<End>) {
        let mut state = self.lock();
        (state.next - 1, state.end.take())
    }
}

/// Reads a frame of this many samples into the memory of an earlier one. `None` is a frame.
fn read<P: Pod>(frame: &mut Frame<P>, input: &mut impl BufRead, samples: usize) -> Option<End> {
    let number = frame.number;
    match frame_line(input) {
        Ok(Some(line)) => frame.line = line,
        Ok(None) => return Some(End::Whole),
        Err(fault) => return Some(End::At(number, fault)),
    }
    let damaged = |reason: String| Some(End::At(number, Fault::Damaged(reason)));
    if frame.samples.is_empty() {
        match zeroes(samples) {
            Ok(memory) => frame.samples = memory,
            Err(reason) => return damaged(reason),
        }
    }
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut frame.samples);
    let mut done = 0;
    while done < bytes.len() {
        match input.read(&mut bytes[done..]) {
            Ok(0) => {
                let all = bytes.len();
                let reason = format!("the stream ends after {done} of the frame's {all} bytes");
                return Some(End::At(number, Fault::Cut(reason)));
            }
            Ok(read) => done += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return damaged(error.to_string()),
        }
    }
    in_this_machines_order(&mut frame.samples);
    None
}

/// Converts samples between the stream's byte order, the low byte first, and the machine's.
pub(super) fn in_this_machines_order<P: Pod>(samples: &mut [P]) {
    if cfg!(target_endian = "big") {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(samples);
        bytes.chunks_exact_mut(size_of::<P>()).for_each(<[u8]>::reverse);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_in_order_until_the_end() {
        let queue = Queue::<u8>::new(3);
        queue.read(&mut &b"FRAME\nabcFRAME Ip\ndefFRAME\ngh"[..], 3);
        let first = queue.take().unwrap();
        assert_eq!(
            (first.number, &first.line[..], &first.samples[..]),
            (1, &b"FRAME\n"[..], &b"abc"[..])
        );
        let second = queue.take().unwrap();
        assert_eq!(
            (second.number, &second.line[..], &second.samples[..]),
            (2, &b"FRAME Ip\n"[..], &b"def"[..])
        );
        assert!(queue.take().is_none());
        assert!(queue.turn(1));
        queue.written(first);
        let (written, end) = queue.outcome();
        let reason = "the stream ends after 2 of the frame's 3 bytes".to_owned();
        assert_eq!((written, end), (1, Some(End::At(3, Fault::Cut(reason)))));
    }

    #[test]
    fn no_thread_waits_after_the_stop() {
        let queue = Queue::<u8>::new(1);
        std::thread::scope(|scope| {
            // There is memory for one frame, and nobody takes it.
            scope.spawn(|| queue.read(&mut &b"FRAME\naFRAME\nb"[..], 1));
            scope.spawn(|| assert!(!queue.turn(2)));
            queue.stop();
        });
        assert!(queue.take().is_none());
    }
}
