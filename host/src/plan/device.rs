//! Where a plan runs, as a value and as text.

use std::fmt::{Display, Formatter};
use std::str::FromStr;

use crate::{Error, Result};

/// Where a plan runs.
///
/// ```
/// use apron::{Device, Gpus};
///
/// let two = Device::Gpus(Gpus::new([0, 2])?);
/// for device in [Device::Auto, Device::Cpu, Device::Gpu(1), two, Device::AllGpus] {
///     assert_eq!(device.to_string().parse::<Device>()?, device);
/// }
/// # Ok::<(), apron::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Device {
    /// The CPU or the first GPU: for each call the one that is predicted to be faster, from the
    /// caller's memory to the caller's memory.
    ///
    /// Opening a GPU takes about 0.2 s. Until a program has lost as much time by not having it,
    /// calls run on the CPU; then it is opened, by a thread of its own, while calls go on. A single
    /// call that loses more waits for it. Predictions are corrected by what calls take, so now and
    /// then a call tries the device that seems to be slower. A driver or a GPU that is not there
    /// costs nothing: [`crate::Plan::fallback`] says why the CPU is used, [`crate::Plan::ran_on`]
    /// where a call ran, [`crate::Plan::estimate`] what was estimated. After a GPU is lost, the
    /// call that met it returns the error, and later ones use the CPU. A call for which the GPU has
    /// too little memory uses the CPU too.
    ///
    /// Bytes made of bytes are the same on either device. Other results have the same bits on both
    /// if the filter is of the direct or the separable family, which it alone decides: see
    /// [`crate::Family`]. Results of the Fourier family may differ within its bound, and with the
    /// same picture from call to call; name a device where that matters.
    ///
    /// Images in a GPU's memory are filtered there.
    #[default]
    Auto,
    /// The CPU, on rayon's current thread pool.
    Cpu,
    /// The GPU of this number, as the driver counts them; an error where there is none.
    Gpu(u32),
    /// These GPUs, which share pictures and batches from host memory; an error where one is
    /// missing, or where they are of several kinds.
    Gpus(Gpus),
    /// Every GPU, as [`Device::Gpus`].
    AllGpus,
}

/// A list of GPUs, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gpus {
    /// A bit for each.
    bits: u64,
}

impl Gpus {
    /// GPUs of these numbers, as the driver counts them. Each counts once, and their order does not
    /// matter.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there is none, or if a number is above 63.
    pub fn new(ordinals: impl IntoIterator<Item = u32>) -> Result<Self> {
        let wrong = |value: String| {
            let expected = "at least one GPU, numbered from 0 to 63".to_owned();
            Error::Parameter { name: "device", value, expected }
        };
        let mut bits = 0;
        for ordinal in ordinals {
            bits |= 1u64.checked_shl(ordinal).ok_or_else(|| wrong(ordinal.to_string()))?;
        }
        if bits == 0 { Err(wrong("an empty list".to_owned())) } else { Ok(Self { bits }) }
    }

    /// The numbers, from low to high.
    pub fn ordinals(self) -> impl Iterator<Item = u32> {
        (0..u64::BITS).filter(move |ordinal| self.bits >> ordinal & 1 == 1)
    }
}

/// `auto`, `cpu`, `gpu:N`, `gpu:N,M` or `gpu:all`.
impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::Parameter {
            name: "device",
            value: text.to_owned(),
            expected: "one of auto, cpu, gpu, gpu:N with N from 0, a list such as gpu:0,1, gpu:all"
                .to_owned(),
        };
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "gpu" => Ok(Self::Gpu(0)),
            "gpu:all" => Ok(Self::AllGpus),
            _ => {
                let list = text.strip_prefix("gpu:").ok_or_else(wrong)?;
                let ordinals: Result<Vec<u32>, _> = list.split(',').map(str::parse).collect();
                match ordinals.map_err(|_| wrong())?[..] {
                    [ordinal] => Ok(Self::Gpu(ordinal)),
                    ref ordinals => Gpus::new(ordinals.iter().copied()).map(Self::Gpus),
                }
            }
        }
    }
}

impl Display for Device {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Cpu => f.pad("cpu"),
            Self::Gpu(n) => f.pad(&format!("gpu:{n}")),
            Self::Gpus(gpus) => {
                let numbers: Vec<_> = gpus.ordinals().map(|ordinal| ordinal.to_string()).collect();
                f.pad(&format!("gpu:{}", numbers.join(",")))
            }
            Self::AllGpus => f.pad("gpu:all"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        let list = |ordinals: &[u32]| Device::Gpus(Gpus::new(ordinals.iter().copied()).unwrap());
        assert_eq!("gpu:3,1,3".parse::<Device>().unwrap(), list(&[1, 3]));
        assert_eq!(list(&[63, 0]).to_string(), "gpu:0,63");
        for wrong in ["gpu:", "gpu:1,", "gpu:0,x", "gpu:-1", "gpu:0,64", "gpus", ""] {
            let error = wrong.parse::<Device>().unwrap_err();
            assert!(matches!(error, Error::Parameter { name: "device", .. }), "{wrong}: {error}");
        }
    }
}
