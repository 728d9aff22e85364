//! Formats of stored pixels: value types, at compile time and at run time.

use half::f16;

use super::Number;
use crate::{Error, Result};

/// The type of a stored value at run time, as [`Pixel`] is at compile time.
///
/// ```
/// use apron::{Pixel, Scalar};
///
/// let scalar: Scalar = "u16".parse()?;
/// assert_eq!(scalar, u16::SCALAR);
/// assert_eq!((scalar.name(), scalar.bytes()), ("u16", 2));
/// # Ok::<(), apron::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// Unsigned integers of 8 bits.
    U8,
    /// Unsigned integers of 16 bits.
    U16,
    /// Floating-point numbers of 16 bits, IEEE 754 binary16.
    F16,
    /// Floating-point numbers of 32 bits, IEEE 754 binary32.
    F32,
}

impl Scalar {
    /// Every type.
    pub const ALL: &'static [Self] = &[Self::U8, Self::U16, Self::F16, Self::F32];

    const fn facts(self) -> Facts {
        use gpu_kernels::abi::scalar;
        let (name, numpy, code, greatest) = match self {
            Self::U8 => ("u8", "u1", scalar::U8, Some(255.0)),
            Self::U16 => ("u16", "u2", scalar::U16, Some(65535.0)),
            Self::F16 => ("f16", "f2", scalar::F16, None),
            Self::F32 => ("f32", "f4", scalar::F32, None),
        };
        Facts { name, numpy, code, greatest }
    }

    /// The name of the type, as Rust spells it.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// Bytes per value.
    pub const fn bytes(self) -> usize {
        gpu_kernels::abi::scalar::bytes(self.code()) as usize
    }

    /// The name of the type as NumPy's array interface spells it, without the byte order: `u2`.
    pub const fn numpy(self) -> &'static str {
        self.facts().numpy
    }

    /// The greatest value of a type of integers; `None` for floating-point numbers.
    pub const fn greatest(self) -> Option<f64> {
        self.facts().greatest
    }

    /// The type's code in the kernels.
    pub(crate) const fn code(self) -> u32 {
        self.facts().code
    }
}

/// What [`Scalar`]'s functions return.
struct Facts {
    name: &'static str,
    numpy: &'static str,
    code: u32,
    greatest: Option<f64>,
}

/// Evaluates an expression in which a name stands for the pixel type of a
/// [`Scalar`](crate::Scalar).
///
/// ```
/// use apron::{Pixel, Scalar};
///
/// fn doubled<P: Pixel>(value: f32) -> f32 {
///     P::from_f32(2.0 * value).to_f32()
/// }
/// let scalar: Scalar = "u8".parse()?;
/// assert_eq!(apron::with_pixels!(scalar, P => doubled::<P>(200.0)), 255.0);
/// # Ok::<(), apron::Error>(())
/// ```
#[macro_export]
macro_rules! with_pixels {
    ($scalar:expr, $P:ident => $body:expr) => {
        match $scalar {
            $crate::Scalar::U8 => {
                type $P = u8;
                $body
            }
            $crate::Scalar::U16 => {
                type $P = u16;
                $body
            }
            $crate::Scalar::F16 => {
                type $P = $crate::f16;
                $body
            }
            $crate::Scalar::F32 => {
                type $P = f32;
                $body
            }
        }
    };
}

/// Prints [`Scalar::name`].
impl std::fmt::Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Reads [`Scalar::name`].
impl std::str::FromStr for Scalar {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.iter().copied().find(|scalar| scalar.name() == text).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|scalar| scalar.name()).collect();
            Error::Parameter {
                name: "pixel type",
                value: text.to_owned(),
                expected: format!("one of {}", known.join(", ")),
            }
        })
    }
}

/// The order of a pixel's channels in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Layout {
    /// The channels of a pixel are adjacent: a row is `width * channels` values.
    Interleaved,
    /// Each channel is a plane: all its rows, then the next channel's.
    Planar,
}

/// How an image stores its pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Format {
    /// The type of a value.
    pub scalar: Scalar,
    /// Values in a pixel, 1 to [`Shape::MAX_CHANNELS`](crate::Shape::MAX_CHANNELS).
    pub channels: usize,
    /// The order of a pixel's values in memory.
    pub layout: Layout,
}

/// Prints as in `u8 x 3 interleaved`.
impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let layout = match self.layout {
            Layout::Interleaved => "interleaved",
            Layout::Planar => "planar",
        };
        write!(f, "{} x {} {layout}", self.scalar, self.channels)
    }
}

mod sealed {
    use half::f16;
    use half::slice::HalfFloatSliceExt;

    use super::Pixel;

    /// Conversions of whole slices.
    pub trait Sealed: bytemuck::Pod {
        /// The values as bytes, if this type is u8.
        fn bytes(_: &[Self]) -> Option<&[u8]> {
            None
        }
        /// The values as bytes for writing, if this type is u8.
        fn bytes_mut(_: &mut [Self]) -> Option<&mut [u8]> {
            None
        }
        /// The values as f32 for writing, if this type is f32.
        fn floats_mut(_: &mut [Self]) -> Option<&mut [f32]> {
            None
        }
        /// `Pixel::to_f32` of each value.
        fn widen(values: &[Self], out: &mut [f32]);
        /// `Pixel::from_f32` of each value.
        fn narrow(values: &[f32], out: &mut [Self]);
    }
    impl Sealed for u8 {
        fn bytes(values: &[Self]) -> Option<&[u8]> {
            Some(values)
        }
        fn bytes_mut(values: &mut [Self]) -> Option<&mut [u8]> {
            Some(values)
        }
        #[inline(always)]
        fn widen(values: &[Self], out: &mut [f32]) {
            out.iter_mut().zip(values).for_each(|(out, value)| *out = value.to_f32());
        }
        #[inline(always)]
        fn narrow(values: &[f32], out: &mut [Self]) {
            out.iter_mut().zip(values).for_each(|(out, &value)| *out = Pixel::from_f32(value));
        }
    }
    impl Sealed for u16 {
        #[inline(always)]
        fn widen(values: &[Self], out: &mut [f32]) {
            out.iter_mut().zip(values).for_each(|(out, value)| *out = value.to_f32());
        }
        #[inline(always)]
        fn narrow(values: &[f32], out: &mut [Self]) {
            out.iter_mut().zip(values).for_each(|(out, &value)| *out = Pixel::from_f32(value));
        }
    }
    // Whole slices at once: for single values the crate `half` would detect the processor's
    // features each time.
    impl Sealed for f16 {
        #[inline(always)]
        fn widen(values: &[Self], out: &mut [f32]) {
            values.convert_to_f32_slice(out);
        }
        #[inline(always)]
        fn narrow(values: &[f32], out: &mut [Self]) {
            out.convert_from_f32_slice(values);
        }
    }
    impl Sealed for f32 {
        fn floats_mut(values: &mut [Self]) -> Option<&mut [f32]> {
            Some(values)
        }
        #[inline(always)]
        fn widen(values: &[Self], out: &mut [f32]) {
            out.copy_from_slice(values);
        }
        #[inline(always)]
        fn narrow(values: &[f32], out: &mut [Self]) {
            out.copy_from_slice(values);
        }
    }
}

/// A type that stores a channel: `u8`, `u16`, [`half::f16`] or `f32`.
///
/// Values are not scaled: 0 to 255 stays 0 to 255. Integers are rounded half to even and saturated
/// when stored.
pub trait Pixel: sealed::Sealed + Number {
    /// The same type as a run-time value.
    const SCALAR: Scalar;
    /// The value as f32; exact for every type.
    fn to_f32(self) -> f32;
    /// The nearest stored value; NaN becomes 0 in integer types.
    fn from_f32(value: f32) -> Self;
}

impl Pixel for u8 {
    const SCALAR: Scalar = Scalar::U8;
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from(self)
    }
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        rounded(value, Self::MAX.into()) as Self
    }
}

impl Pixel for u16 {
    const SCALAR: Scalar = Scalar::U16;
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from(self)
    }
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        rounded(value, Self::MAX.into()) as Self
    }
}

impl Pixel for f16 {
    const SCALAR: Scalar = Scalar::F16;
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self.into()
    }
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        Self::from_f32(value)
    }
}

impl Pixel for f32 {
    const SCALAR: Scalar = Scalar::F32;
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        value
    }
}

/// The nearest integer in 0 to `greatest`, half to even, for a `greatest` below 2^23.
#[inline(always)]
fn rounded(value: f32, greatest: f32) -> u32 {
    // An f32 from 2^23 to 2^24 has no fraction, and its last bits are the integer. Unlike
    // `round_ties_even` and a saturating conversion, this is a plain addition on every processor.
    const SHIFT: f32 = 8_388_608.0;
    (value.max(0.0).min(greatest) + SHIFT).to_bits() - SHIFT.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_are_the_pixel_types() {
        fn check<P: Pixel>() {
            assert_eq!(P::SCALAR.bytes(), size_of::<P>());
            assert_eq!(P::SCALAR.name(), std::any::type_name::<P>().rsplit("::").next().unwrap());
        }
        check::<u8>();
        check::<u16>();
        check::<f16>();
        check::<f32>();
    }

    #[test]
    fn scalars_read_back_as_they_print() {
        for &scalar in Scalar::ALL {
            assert_eq!(scalar.to_string().parse::<Scalar>().unwrap(), scalar);
        }
        for text in ["", "U8", "u8 ", "i8", "f64"] {
            let message = text.parse::<Scalar>().unwrap_err().to_string();
            assert!(message.contains("u8, u16, f16, f32"), "{message}");
        }
    }
}
