//! Light: what a picture's values stand for, and filters over it.
//!
//! A camera's light is proportional to energy; the values of most files are not. They are encoded
//! by a transfer function, about a square root. An average of encoded values is too dark: a fine
//! pattern of black and white looks like 188 from afar, not like 128. Under [`Light::Linear`] a
//! plan decodes values, filters them, and encodes the sums.
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`transfer`] | transfer functions, in f64 |
//! | [`bytes`] | tables for bytes: exact |
//! | [`error`] | how far sums in f32 may be off |
//! | [`power`] | bytes of light by powers: about, but fast |
//! | [`smooth`] | the functions in f32, for other types |

pub(crate) mod bytes;
pub(crate) mod error;
pub(crate) mod power;
pub(crate) mod smooth;
pub(crate) mod transfer;

use std::sync::OnceLock;

pub use transfer::Transfer;

use crate::{Error, Result, Scalar};

/// What a plan filters: values as they are stored, or the light that they stand for.
///
/// In linear light, a value `v` of a picture whose white is `w` stands for `decode(v / w)`, by a
/// [`Transfer`] function. The window's sum of these is `s`, and the result is `w encode(s)`. White
/// is 255 for u8 pixels, 65535 for u16 pixels and 1 for floats; if the pixels are floats and the
/// results integers, it is the results' greatest value. Alpha is linear already: colours are
/// decoded, weighted by alpha and filtered.
///
/// **Bytes made of bytes are exact**, as always: one answer, on every device. A byte `b` stands for
/// the whole number `L(b) = round(2^24 decode(b / 255))`. The sum of whole taps ([`Filter::form`])
/// times these is exact, and so is its quotient `q` by the taps' divisor. The result is the number
/// of thresholds `round(2^24 decode((k + 1/2) / 255))`, for `k` from 0 to 254, that `q` reaches.
/// (Thresholds that differ by less than 1/4096 of themselves count as one.)
///
/// **Other types** are decoded and encoded in f32, with an error of at most 4e-7 of a value from
/// 2^-40 to 2^17 times white: 0.03 of a step of 16 bits. Negative values follow the function of
/// their magnitude, with their sign; NaN and infinities stay what they are.
///
/// Gradients, masks and sums in f64 do not know light: decode the values first.
///
/// ```
/// use apron::{Device, Filter, Image, Light, Plan};
///
/// let mean = Filter::box_filter(2, 1)?;
/// let plan = Plan::builder(&mean).light(Light::Linear).device(Device::Cpu).build()?;
/// let lines = Image::from_vec(vec![0u8, 255, 0, 255, 0], 5, 1, 1)?;
/// assert_eq!(plan.filter(&lines)?.as_slice(), [188; 5]);
/// # Ok::<(), apron::Error>(())
/// ```
///
/// [`Filter::form`]: crate::Filter::form
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Light {
    /// The values as they are.
    #[default]
    Stored,
    /// Linear light, of values that sRGB's function encodes.
    Linear,
    /// Linear light, of values that another function encodes.
    Through(Transfer),
}

impl Light {
    /// What `Light` is read from.
    pub const NAMES: &str = "stored, linear (or srgb), bt709, gamma=NUMBER, pq, hlg";

    /// The function of the values, unless they are filtered as they are.
    pub fn transfer(&self) -> Option<Transfer> {
        match self {
            Self::Stored => None,
            Self::Linear => Some(Transfer::srgb()),
            Self::Through(transfer) => Some(transfer.clone()),
        }
    }
}

impl From<Transfer> for Light {
    fn from(transfer: Transfer) -> Self {
        Self::Through(transfer)
    }
}

/// Reads one of [`Light::NAMES`].
///
/// ```
/// use apron::{Light, Transfer};
///
/// assert_eq!("srgb".parse::<Light>()?, Light::Linear);
/// assert_eq!("gamma=2.2".parse::<Light>()?, Transfer::gamma(2.2)?.into());
/// assert!("bright".parse::<Light>().is_err());
/// # Ok::<(), apron::Error>(())
/// ```
impl std::str::FromStr for Light {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "stored" => Self::Stored,
            "linear" | "srgb" => Self::Linear,
            "bt709" => Transfer::bt709().into(),
            "pq" => Transfer::pq().into(),
            "hlg" => Transfer::hlg().into(),
            _ => {
                let gamma = text.strip_prefix("gamma=").and_then(|gamma| gamma.parse().ok());
                let unknown = || Error::Parameter {
                    name: "light",
                    value: text.to_owned(),
                    expected: format!("one of {}", Self::NAMES),
                };
                Transfer::gamma(gamma.ok_or_else(unknown)?)?.into()
            }
        })
    }
}

/// A transfer function, ready for pictures of any type.
#[derive(Debug)]
pub(crate) struct Tables {
    transfer: Transfer,
    bytes: OnceLock<bytes::Bytes>,
    smooth: OnceLock<smooth::Both>,
}

impl Tables {
    pub(crate) fn new(transfer: Transfer) -> Self {
        Self { transfer, bytes: OnceLock::new(), smooth: OnceLock::new() }
    }

    pub(crate) fn bytes(&self) -> &bytes::Bytes {
        self.bytes.get_or_init(|| bytes::Bytes::new(&self.transfer))
    }

    pub(crate) fn smooth(&self) -> &smooth::Both {
        self.smooth.get_or_init(|| smooth::Both::new(&self.transfer))
    }
}

/// The value that stands for white in pictures of these types: see [`Light`].
pub(crate) fn white(source: Scalar, target: Scalar) -> f32 {
    source.greatest().or_else(|| target.greatest()).unwrap_or(1.0) as f32
}
