//! Types of an array's numbers, as NumPy, DLPack and kernels name them.

use apron::Scalar;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// A type that NumPy and DLPack have: a letter, and the bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NumberType {
    pub(crate) letter: u8,
    pub(crate) bytes: usize,
}

impl NumberType {
    const ALL: [Self; 14] = [
        Self::new(b'b', 1),
        Self::new(b'u', 1),
        Self::new(b'u', 2),
        Self::new(b'u', 4),
        Self::new(b'u', 8),
        Self::new(b'i', 1),
        Self::new(b'i', 2),
        Self::new(b'i', 4),
        Self::new(b'i', 8),
        Self::new(b'f', 2),
        Self::new(b'f', 4),
        Self::new(b'f', 8),
        Self::new(b'c', 8),
        Self::new(b'c', 16),
    ];

    const fn new(letter: u8, bytes: usize) -> Self {
        Self { letter, bytes }
    }

    /// From NumPy's `typestr`, in this machine's byte order.
    ///
    /// # Errors
    /// `TypeError` for other types.
    pub(crate) fn from_typestr(typestr: &str) -> PyResult<Self> {
        let known = typestr.strip_prefix(['<', '|', '=']).and_then(Self::named);
        known.ok_or_else(|| {
            PyTypeError::new_err(format!(
                "the device array's type is {typestr}: bool, an integer of 8 to 64 bits, or a real or \
                 complex floating-point number in this machine's byte order is needed"
            ))
        })
    }

    /// From a letter and a size.
    fn named(name: &str) -> Option<Self> {
        let bytes = name.get(1..)?.parse().ok()?;
        let letter = name.as_bytes()[0];
        Self::ALL.into_iter().find(|number| (number.letter, number.bytes) == (letter, bytes))
    }

    /// NumPy's `typestr`.
    pub(crate) fn typestr(self) -> String {
        let order = if self.bytes == 1 { '|' } else { '<' };
        format!("{order}{}{}", char::from(self.letter), self.bytes)
    }

    /// DLPack's code, bits and lanes.
    pub(crate) fn to_dlpack(self) -> (u8, u8, u16) {
        let code = match self.letter {
            b'i' => 0,
            b'u' => 1,
            b'f' => 2,
            b'c' => 5,
            _ => 6,
        };
        (code, 8 * self.bytes as u8, 1)
    }

    /// From DLPack's code, bits and lanes.
    ///
    /// # Errors
    /// `TypeError` for other types.
    pub(crate) fn from_dlpack(code: u8, bits: u8, lanes: u16) -> PyResult<Self> {
        let known = Self::ALL.into_iter().find(|number| number.to_dlpack() == (code, bits, lanes));
        known.ok_or_else(|| {
            PyTypeError::new_err(format!(
                "DLPack type {code} of {bits} bits, {lanes} lanes: bool, an integer, or a real or \
                 complex floating-point number that NumPy has is needed"
            ))
        })
    }

    /// The type for kernels of plans.
    ///
    /// # Errors
    /// `TypeError` if they do not take it.
    pub(crate) fn scalar(self) -> PyResult<Scalar> {
        let mut scalars = Scalar::ALL.iter().copied();
        scalars.find(|scalar| Self::named(scalar.numpy()) == Some(self)).ok_or_else(|| {
            let typestr = self.typestr();
            PyTypeError::new_err(format!(
                "the device array's type is {typestr}: uint8, uint16, float16 or float32 is needed; \
                 other numbers are filtered in float64 on the CPU, as NumPy's arrays, or by the \
                 functions of apron.ndimage"
            ))
        })
    }
}
