//! Borders: the rules for pixels outside the image.

use gpu_kernels::border as rule;

use crate::{Error, Result};

/// The rule for pixels that a window reads outside the image; `|` marks the image's edges.
///
/// Exact for windows of any size: reflections repeat as often as needed.
///
/// | here | OpenCV | SciPy, CuPy | NPP | PyTorch |
/// | --- | --- | --- | --- | --- |
/// | `Constant(v)` | `BORDER_CONSTANT` | `constant`, `cval=v` | `CONSTANT` | `constant` |
/// | `Replicate` | `BORDER_REPLICATE` | `nearest` | `REPLICATE` | `replicate` |
/// | `Reflect` | `BORDER_REFLECT` | `reflect` | - | - |
/// | `Reflect101` | `BORDER_REFLECT_101` | `mirror` | `MIRROR` | `reflect` |
/// | `Wrap` | `BORDER_WRAP` | `wrap` | `WRAP` | `circular` |
/// | `Keep` | - | - | - | - |
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Border {
    /// `vvv|abcd|vvv`, with v in the units of the stored pixels: 0 to 255 for 8-bit images. v must
    /// be an integer from 0 to 255 where 8-bit images give 8-bit results. Where sums are in f32, v
    /// is rounded to f32.
    Constant(f64),
    /// `aaa|abcd|ddd`
    Replicate,
    /// `cba|abcd|dcb`: the edge pixel is repeated.
    Reflect,
    /// `dcb|abcd|cba`: the edge pixel is not repeated.
    #[default]
    Reflect101,
    /// `bcd|abcd|abc`
    Wrap,
    /// The output is a copy of the input where the window leaves the image.
    Keep,
}

impl Border {
    /// # Errors
    /// [`Error::Parameter`] if the constant outside the image is not an integer from 0 to 255.
    pub(crate) fn check_is_byte(self) -> Result<()> {
        match self {
            Self::Constant(value) if f64::from(value as u8) != value => {
                let expected = "a whole number from 0 to 255 for u8 results of u8 images: round it, or \
                                ask for results in f32 (--output-type f32)";
                Err(Error::Parameter {
                    name: "border",
                    value: self.to_string(),
                    expected: expected.to_owned(),
                })
            }
            _ => Ok(()),
        }
    }

    /// The rule's code in the kernels, and the value outside the image.
    pub(crate) fn code(self) -> (u32, f32) {
        match self {
            Self::Constant(value) => (rule::CONSTANT, value as f32),
            Self::Replicate => (rule::REPLICATE, 0.0),
            Self::Reflect => (rule::REFLECT, 0.0),
            Self::Reflect101 => (rule::REFLECT_101, 0.0),
            Self::Wrap => (rule::WRAP, 0.0),
            Self::Keep => (rule::KEEP, 0.0),
        }
    }
}

/// Reads `constant` (zero), `constant:V`, `replicate`, `reflect`, `reflect101`, `wrap` or `keep`.
/// SciPy's and NumPy's names are accepted: `mirror` for `reflect101`, `nearest` and `edge` for
/// `replicate`.
///
/// ```
/// use apron::Border;
/// assert_eq!("constant:12.5".parse::<Border>()?, Border::Constant(12.5));
/// assert_eq!("mirror".parse::<Border>()?, Border::Reflect101);
/// assert!("reflex".parse::<Border>().is_err());
/// # Ok::<(), apron::Error>(())
/// ```
impl std::str::FromStr for Border {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let unknown = || {
            Error::Parameter {
            name: "border",
            value: text.to_owned(),
            expected: "one of constant, constant:VALUE, replicate (or nearest, edge), reflect, reflect101 (or mirror), wrap, keep"
                .to_owned(),
        }
        };
        match text {
            "constant" => Ok(Self::Constant(0.0)),
            "replicate" | "nearest" | "edge" => Ok(Self::Replicate),
            "reflect" => Ok(Self::Reflect),
            "reflect101" | "mirror" => Ok(Self::Reflect101),
            "wrap" => Ok(Self::Wrap),
            "keep" => Ok(Self::Keep),
            _ => text
                .strip_prefix("constant:")
                .and_then(|value| value.parse().ok())
                .map(Self::Constant)
                .ok_or_else(unknown),
        }
    }
}

impl std::fmt::Display for Border {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Constant(value) => write!(f, "constant:{value}"),
            Self::Replicate => f.write_str("replicate"),
            Self::Reflect => f.write_str("reflect"),
            Self::Reflect101 => f.write_str("reflect101"),
            Self::Wrap => f.write_str("wrap"),
            Self::Keep => f.write_str("keep"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_outside_of_bytes_is_a_byte() {
        for value in [0.0, -0.0, 1.0, 127.0, 255.0] {
            assert!(Border::Constant(value).check_is_byte().is_ok(), "{value}");
        }
        for value in [-1.0, 0.5, 254.999_999_999, 255.5, 256.0, 1e300, f64::INFINITY, f64::NAN] {
            let message = Border::Constant(value).check_is_byte().unwrap_err().to_string();
            assert!(
                message.contains(&format!("constant:{value}"))
                    && message.contains("--output-type f32"),
                "{message}"
            );
        }
    }
}
