//! Models of GPUs, for predictions on machines without one.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// A model of GPU: what predictions for it need. Figures are those of its data sheet, with the
/// boost clock; under a power limit, a GPU may run more slowly.
///
/// ```
/// use apron::GpuModel;
///
/// let gpu: GpuModel = "rtx-4090".parse()?;
/// assert_eq!((gpu.capability, gpu.multiprocessors), ((8, 9), 128));
/// assert!("rtx-1".parse::<GpuModel>().is_err());
/// # Ok::<(), apron::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct GpuModel {
    /// Its name, such as `rtx-4090`.
    pub name: &'static str,
    /// Compute capability: major and minor.
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Clocks a second of the multiprocessors.
    pub clock: f64,
    /// Bytes a second of the device memory, read and written.
    pub bandwidth: f64,
    /// Bytes of device memory.
    pub memory: u64,
    /// Bytes of level-2 cache.
    pub l2_cache: u64,
    /// Bytes of shared memory that a block can have.
    pub shared_memory: usize,
}

/// A row of the table: name, capability, multiprocessors, GHz, GB/s, GiB of memory, MiB of level-2
/// cache.
const fn model(
    name: &'static str,
    capability: (u32, u32),
    multiprocessors: u32,
    gigahertz: f64,
    bandwidth: f64,
    memory: u64,
    l2_cache: u64,
) -> GpuModel {
    // CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability".
    let kilobytes = match capability {
        (7, _) => 64,
        (8, 0 | 7) => 163,
        (8, _) | (12, _) => 99,
        _ => 227,
    };
    GpuModel {
        name,
        capability,
        multiprocessors,
        clock: 1e9 * gigahertz,
        bandwidth: 1e9 * bandwidth,
        memory: memory << 30,
        l2_cache: l2_cache << 20,
        shared_memory: kilobytes << 10,
    }
}

/// Multiply-adds of a multiprocessor in a clock, from a compute capability on: of f32, of 32-bit
/// integers, and of 8-bit integers by the instruction `mma.sync` on the tensor cores.
///
/// The first two are those of the CUDA C++ Programming Guide, table "Throughput of Native
/// Arithmetic Instructions"; the third those of data sheets. For 9.0, `mma.sync` was measured at 64
/// % of the data sheet's rate, which other instructions reach; for 10.0, which has instructions of
/// its own likewise, the rate of 8.0 is assumed.
const PER_CLOCK: [((u32, u32), [f64; 3]); 8] = [
    ((7, 5), [64.0, 64.0, 1024.0]),
    ((8, 0), [64.0, 64.0, 2048.0]),
    ((8, 6), [128.0, 64.0, 1024.0]),
    ((8, 7), [128.0, 64.0, 2048.0]),
    ((8, 9), [128.0, 64.0, 1024.0]),
    ((9, 0), [128.0, 64.0, 2620.0]),
    ((10, 0), [128.0, 64.0, 2048.0]),
    ((12, 0), [128.0, 64.0, 1024.0]),
];

impl GpuModel {
    /// Its row of [`PER_CLOCK`]: the last whose capability is not above its own.
    pub(crate) const fn per_clock(&self) -> [f64; 3] {
        let (major, minor) = self.capability;
        let mut row = 0;
        let mut next = 1;
        while next < PER_CLOCK.len() {
            let ((of_major, of_minor), _) = PER_CLOCK[next];
            if of_major < major || of_major == major && of_minor <= minor {
                row = next;
            }
            next += 1;
        }
        PER_CLOCK[row].1
    }

    /// Multiply-adds of f32 a second.
    pub fn float_rate(&self) -> f64 {
        self.clock * f64::from(self.multiprocessors) * self.per_clock()[0]
    }

    /// Multiply-adds of 8-bit integers a second, by `mma.sync` on the tensor cores.
    pub fn tensor_rate(&self) -> f64 {
        self.clock * f64::from(self.multiprocessors) * self.per_clock()[2]
    }

    /// The GPU that times were measured on. Its bandwidth is the one that the driver reports.
    pub const H200: Self = model("h200", (9, 0), 132, 1.98, 4917.0, 141, 50);

    /// All that have a name here.
    pub const ALL: [Self; 12] = [
        model("t4", (7, 5), 40, 1.59, 320.0, 16, 4),
        model("a10", (8, 6), 72, 1.695, 600.0, 24, 6),
        model("l4", (8, 9), 58, 2.04, 300.0, 24, 48),
        model("rtx-3060", (8, 6), 28, 1.777, 360.0, 12, 3),
        model("rtx-4060", (8, 9), 24, 2.46, 272.0, 8, 24),
        model("rtx-4090", (8, 9), 128, 2.52, 1008.0, 24, 72),
        model("rtx-5090", (12, 0), 170, 2.407, 1792.0, 32, 96),
        model("orin", (8, 7), 16, 1.3, 204.8, 64, 4),
        model("a100", (8, 0), 108, 1.41, 2039.0, 80, 40),
        model("h100", (9, 0), 132, 1.98, 3352.0, 80, 50),
        Self::H200,
        model("b200", (10, 0), 148, 1.965, 8000.0, 180, 126),
    ];
}

impl FromStr for GpuModel {
    type Err = Error;

    /// # Errors
    /// [`Error::Parameter`] if no model has this name.
    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|model| model.name == name).ok_or_else(|| Error::Parameter {
            name: "GPU",
            value: format!("{name:?}"),
            expected: format!("one of {}", Self::ALL.map(|model| model.name).join(", ")),
        })
    }
}

impl fmt::Display for GpuModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
