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
/// | `None` | - | - | - | - |
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
    /// Nothing is known outside the image, and results come from the pixels inside alone: see
    /// [`Plan::run_masked`](crate::Plan::run_masked).
    None,
}

impl Border {
    /// The names that `Border` is read from.
    pub const NAMES: &str = "constant, constant:VALUE, replicate (or nearest, edge), reflect, \
                             reflect101 (or mirror), wrap, keep, none";

    /// The index in `0..n` that the rule finds for `index`; `None` for a constant. As
    /// [`gpu_kernels::border::resolve`], for arrays of any size.
    pub(crate) fn resolve(self, index: isize, n: isize) -> Option<isize> {
        if (0..n).contains(&index) {
            return Some(index);
        }
        match self {
            Self::Constant(_) | Self::None => None,
            Self::Replicate | Self::Keep => Some(index.clamp(0, n - 1)),
            Self::Wrap => Some(index.rem_euclid(n)),
            Self::Reflect => {
                let folded = index.rem_euclid(2 * n);
                Some(folded.min(2 * n - 1 - folded))
            }
            Self::Reflect101 if n == 1 => Some(0),
            Self::Reflect101 => {
                let folded = index.rem_euclid(2 * n - 2);
                Some(folded.min(2 * n - 2 - folded))
            }
        }
    }

    /// The value outside the image; 0 under a rule that finds a pixel.
    pub(crate) fn constant(self) -> f64 {
        if let Self::Constant(value) = self { value } else { 0.0 }
    }

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
        let code = match self {
            // What is unknown is 0 in sums.
            Self::Constant(_) | Self::None => rule::CONSTANT,
            Self::Replicate => rule::REPLICATE,
            Self::Reflect => rule::REFLECT,
            Self::Reflect101 => rule::REFLECT_101,
            Self::Wrap => rule::WRAP,
            Self::Keep => rule::KEEP,
        };
        (code, self.constant() as f32)
    }
}

/// Reads one of [`Border::NAMES`]; `constant` alone is `constant:0`. SciPy's and NumPy's names are
/// accepted: `mirror` for `reflect101`, `nearest` and `edge` for `replicate`.
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
        let unknown = || Error::Parameter {
            name: "border",
            value: text.to_owned(),
            expected: format!("one of {}", Self::NAMES),
        };
        match text {
            "constant" => Ok(Self::Constant(0.0)),
            "replicate" | "nearest" | "edge" => Ok(Self::Replicate),
            "reflect" => Ok(Self::Reflect),
            "reflect101" | "mirror" => Ok(Self::Reflect101),
            "wrap" => Ok(Self::Wrap),
            "keep" => Ok(Self::Keep),
            "none" => Ok(Self::None),
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
            Self::None => f.write_str("none"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_kernels_find_the_same_pixel() {
        use Border::{Constant, Keep, Reflect, Reflect101, Replicate, Wrap};

        for border in [Constant(1.0), Replicate, Reflect, Reflect101, Wrap, Keep] {
            for (n, i) in (1..9).flat_map(|n| (-40..40).map(move |i| (n, i))) {
                let mode = border.code().0;
                let found = rule::resolve(mode, i, n);
                let of_host = border.resolve(i as isize, n as isize);
                assert_eq!(of_host.map_or(rule::OUTSIDE, |i| i as i32), found, "{border}: {i}/{n}");
                assert_eq!(rule::resolve_briefly(mode, i, n), found, "{border}: {i}/{n}");
            }
        }
    }

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
