//! The settings in `APRON_EMULATOR`: `name=value`, separated by commas.

use std::path::PathBuf;

/// The device's properties, and the faults to inject.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Number of devices.
    pub(crate) devices: u32,
    /// Compute capability, as 10 * major + minor.
    pub(crate) arch: u32,
    pub(crate) multiprocessors: u32,
    /// The multiprocessors' clock in MHz, and the memory's rate in GB/s, that it reports.
    pub(crate) clock: u32,
    pub(crate) bandwidth: u32,
    /// Bytes of level-2 cache that it reports.
    pub(crate) cache: u32,
    /// Bytes of device memory.
    pub(crate) memory: usize,
    /// Whether the device shares the host's memory: then its addresses are those on the host.
    pub(crate) integrated: bool,
    /// Most bytes of shared memory that a block can have.
    pub(crate) shared: u32,
    /// Most bytes from one row to the next in a 2D copy.
    pub(crate) pitch: u32,
    /// The driver's version, as 1000 * major + 10 * minor.
    pub(crate) driver: u32,
    /// Seconds that a launch of one of these `kernels` may take; after that the process ends and
    /// reports an endless kernel.
    pub(crate) limit: u32,
    /// Milliseconds that opening a device takes.
    pub(crate) opening: u32,
    pub(crate) failures: Vec<Failure>,
    pub(crate) sabotage: Option<Sabotage>,
    /// Prefix of the names of kernels to sabotage or to limit; empty for all.
    pub(crate) kernels: String,
    /// When work in streams runs.
    pub(crate) order: Order,
    /// A file that collects the names of launched kernels.
    pub(crate) launches: Option<PathBuf>,
}

/// Call number `call` (from 1) of a driver function, which fails with this error.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) function: String,
    pub(crate) call: u32,
    pub(crate) code: u32,
}

/// When work in streams runs, within the driver's contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// When a call waits for it; no other stream's work runs then.
    Late,
    /// When a call waits for it; the work of all other streams runs first, the newest stream's
    /// first.
    OthersFirst,
    /// When it enters the stream.
    Early,
}

/// A fault made on purpose, which must be detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// No thread waits at this barrier, counted from 1 in each block.
    MissingBarrier(u32),
    /// The first value that the first thread of a launch stores has a flipped last bit.
    OnePixel,
    /// The writes of each block's last thread to shared memory before its first barrier are
    /// dropped.
    HaloRow,
    /// Blocks have their x and y indices swapped.
    GridAxes,
    /// Grid-stride loops end after their first iteration.
    NoEnd,
    /// A call that should wait for a stream with work returns at once; such calls are counted from
    /// 1 in the process.
    MissingWait(u32),
    /// A reflection is off by one: REFLECT and REFLECT_101 are swapped.
    Border,
}

impl Settings {
    /// Parses the text; the defaults describe a small device of compute capability 9.0.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut settings = Self {
            devices: 1,
            arch: 90,
            multiprocessors: 2,
            clock: 1000,
            bandwidth: 16,
            cache: 1 << 20,
            memory: 1 << 30,
            integrated: false,
            shared: 0,
            pitch: i32::MAX as u32,
            driver: 13000,
            limit: 300,
            opening: 0,
            failures: Vec::new(),
            sabotage: None,
            kernels: String::new(),
            order: Order::Late,
            launches: None,
        };
        for setting in text.split(',').map(str::trim).filter(|setting| !setting.is_empty()) {
            let (name, value) = setting
                .split_once('=')
                .ok_or_else(|| format!("\"{setting}\" is not name=value"))?;
            let wrong = || format!("\"{value}\" is not a valid value of {name}");
            let number = |value: &str| value.parse::<u32>().map_err(|_| wrong());
            match name {
                "devices" => settings.devices = number(value)?,
                "arch" => settings.arch = number(value)?,
                "multiprocessors" => settings.multiprocessors = number(value)?,
                "clock" => settings.clock = number(value)?,
                "bandwidth" => settings.bandwidth = number(value)?,
                "cache" => {
                    settings.cache =
                        bytes(value).and_then(|bytes| bytes.try_into().ok()).ok_or_else(wrong)?
                }
                "memory" => settings.memory = bytes(value).ok_or_else(wrong)?,
                "shared" => {
                    settings.shared =
                        bytes(value).and_then(|bytes| bytes.try_into().ok()).ok_or_else(wrong)?
                }
                "integrated" => settings.integrated = number(value)? != 0,
                "pitch" => settings.pitch = number(value)?,
                "limit" => settings.limit = number(value)?,
                "opening" => settings.opening = number(value)?,
                "driver" => {
                    let (major, minor) = value.split_once('.').ok_or_else(wrong)?;
                    settings.driver = 1000 * number(major)? + 10 * number(minor)?;
                }
                "fail" => {
                    let mut parts = value.split(':');
                    let function = parts.next().unwrap_or_default().to_owned();
                    let mut part = || parts.next().map_or_else(|| Err(wrong()), number);
                    settings.failures.push(Failure { function, call: part()?, code: part()? });
                }
                "sabotage" => {
                    settings.sabotage = Some(match value.split_once(':') {
                        Some(("missing-barrier", barrier)) => {
                            Sabotage::MissingBarrier(number(barrier)?)
                        }
                        Some(("missing-wait", wait)) => Sabotage::MissingWait(number(wait)?),
                        None if value == "one-pixel" => Sabotage::OnePixel,
                        None if value == "halo-row" => Sabotage::HaloRow,
                        None if value == "grid-axes" => Sabotage::GridAxes,
                        None if value == "no-end" => Sabotage::NoEnd,
                        None if value == "border" => Sabotage::Border,
                        _ => return Err(wrong()),
                    });
                }
                "kernels" => settings.kernels = value.to_owned(),
                "order" => {
                    settings.order = match value {
                        "late" => Order::Late,
                        "others-first" => Order::OthersFirst,
                        "early" => Order::Early,
                        _ => return Err(wrong()),
                    }
                }
                "launches" => settings.launches = Some(value.into()),
                _ => return Err(format!("no setting is called \"{name}\"")),
            }
        }
        if settings.shared == 0 {
            // The limit of devices of this generation.
            settings.shared = match settings.arch {
                90.. => 227 << 10,
                86 | 89 => 99 << 10,
                80.. => 163 << 10,
                70.. => 64 << 10,
                _ => 48 << 10,
            };
        }
        Ok(settings)
    }
}

/// A number of bytes, or of KiB, MiB or GiB.
fn bytes(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(1 << shift)
}
