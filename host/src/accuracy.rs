//! What errors of sums are relative to.

use crate::{Error, Result};

/// What the errors of sums are relative to, for results that are not bytes of bytes. Bytes of bytes
/// are exact in any case.
///
/// Sums in the picture, tap by tap or pass by pass, err relative to the pixels under the window.
/// Products of spectra err relative to the greatest pixel of a tile, which may lie up to 4096
/// pixels away: a sun of 60000 in an HDR picture spoils dark areas around it, by about 0.005. In
/// return, their time hardly depends on the window's size.
///
/// | | filters that separate | other windows over 17x17 |
/// | --- | --- | --- |
/// | unless set | passes | spectra |
/// | [`Accuracy::Window`] | passes | tap by tap, or passes for sums of products |
/// | [`Accuracy::Range`] | rows or columns from 72 taps on: 1-D spectra | spectra |
///
/// ```
/// use apron::{Accuracy, Device, Family, Filter, Plan, Shape};
///
/// let plan = Plan::builder(Filter::gaussian(50.0)?)
///     .accuracy(Accuracy::Range)
///     .device(Device::Cpu)
///     .build()?;
/// let shape = Shape { width: 640, height: 480, channels: 1 };
/// assert_eq!(plan.variant_for(shape)?.family(), Family::SpectraPasses);
/// # Ok::<(), apron::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Accuracy {
    /// Errors are relative to the pixels under the window.
    Window,
    /// Errors may be relative to the greatest pixel of a tile.
    Range,
}

impl std::str::FromStr for Accuracy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "window" => Ok(Self::Window),
            "range" => Ok(Self::Range),
            _ => Err(Error::Parameter {
                name: "accuracy",
                value: text.to_owned(),
                expected: "window or range".to_owned(),
            }),
        }
    }
}

impl std::fmt::Display for Accuracy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Window => "window",
            Self::Range => "range",
        })
    }
}
