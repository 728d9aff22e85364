//! Measures the links between pinned host memory and GPUs: the limit for pictures that come from
//! there and go there.

use std::time::Instant;

use super::device::Gpu;
use super::image::Rows;
use super::memory::{Memory, Pinned};
use super::stream::Stream;
use crate::Result;

/// Bytes of a copy, and of each of its rows.
const BYTES: usize = 32 << 20;
const ROW: usize = 64 << 10;

/// Places in host memory that the benchmark's copies take in turn: all of them are more than a
/// processor's cache. With one place, two GPUs of a host were measured with 154 to 185 GB/s, from
/// one run to the next; memory that pictures come from does not give as much.
const PLACES: usize = 8;

/// Bytes a second between pinned memory and GPUs, all of these together.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkRates {
    /// To the GPUs alone.
    pub up: f64,
    /// From them alone.
    pub down: f64,
    /// Both at once, the sum of both.
    pub both: f64,
}

/// One direction of a GPU's link.
struct Way {
    stream: Stream,
    device: Memory,
    host: Pinned,
    /// Bytes of a copy, and where in host memory the next one begins.
    bytes: usize,
    next: usize,
    up: bool,
}

impl Way {
    fn new(gpu: &Gpu, up: bool, bytes: usize, places: usize) -> Result<Self> {
        let mut host = gpu.pin(places * bytes)?;
        host.bytes_mut().fill(0);
        Ok(Self { stream: gpu.stream()?, device: gpu.allocate(bytes)?, host, bytes, next: 0, up })
    }

    fn copy(&mut self) -> Result<()> {
        let host = Rows::host(self.host.bytes_mut()[self.next..].as_mut_ptr(), ROW);
        self.next = (self.next + self.bytes) % self.host.bytes().len();
        let device = Rows::device(self.device.address(), ROW);
        let (from, to) = if self.up { (host, device) } else { (device, host) };
        // SAFETY: both places have so many bytes and are this object's; its stream, which waits for
        // its work, is dropped first.
        unsafe { self.stream.copy_rows(from, to, (ROW, self.bytes / ROW), "measuring the link") }
    }
}

impl Gpu {
    /// How many bytes a second go between pinned host memory and these GPUs, all at the same time:
    /// the most of some measurements, each of `copies` copies of 32 MiB. For the benchmark.
    ///
    /// # Errors
    /// Memory and driver errors.
    #[doc(hidden)]
    pub fn link_rates(gpus: &[Self], copies: usize) -> Result<LinkRates> {
        Self::rates(gpus, copies, BYTES, PLACES)
    }

    /// The same by copies of so many bytes, a multiple of a row's, that take so many places in host
    /// memory in turn.
    pub(crate) fn rates(
        gpus: &[Self],
        copies: usize,
        bytes: usize,
        places: usize,
    ) -> Result<LinkRates> {
        let ways = |up| {
            gpus.iter().map(move |gpu| Way::new(gpu, up, bytes, places)).collect::<Result<Vec<_>>>()
        };
        let (mut up, mut down) = (ways(true)?, ways(false)?);
        // What comes down has been written.
        for way in &mut down {
            way.up = true;
            way.copy()?;
            way.stream.synchronize()?;
            way.up = false;
        }
        let rate = |mut ways: Vec<&mut Way>| -> Result<f64> {
            let mut best = 0f64;
            for _ in 0..4 {
                let start = Instant::now();
                for _ in 0..copies {
                    ways.iter_mut().try_for_each(|way| way.copy())?;
                }
                ways.iter().try_for_each(|way| way.stream.synchronize())?;
                best =
                    best.max((copies * ways.len() * bytes) as f64 / start.elapsed().as_secs_f64());
            }
            Ok(best)
        };
        Ok(LinkRates {
            up: rate(up.iter_mut().collect())?,
            down: rate(down.iter_mut().collect())?,
            both: rate(up.iter_mut().chain(&mut down).collect())?,
        })
    }
}
