//! NumPy's arrays as memory.

use apron::f16;
use apron::passes::{Array, Kind};
use numpy::npyffi::{NPY_ARRAY_WRITEABLE, PyArrayObject};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// The address of the first value. This function neither reads nor writes there.
pub(crate) fn address(array: &Bound<'_, PyUntypedArray>) -> *mut u8 {
    let object: *mut PyArrayObject = array.as_array_ptr();
    // SAFETY: the pointer is a NumPy array's object, which `array` keeps alive.
    unsafe { (*object).fields.data.cast() }
}

/// # Errors
/// `ValueError` if the array is read-only.
pub(crate) fn check_writeable(array: &Bound<'_, PyUntypedArray>) -> PyResult<()> {
    let object: *mut PyArrayObject = array.as_array_ptr();
    // SAFETY: the pointer is a NumPy array's object, which `array` keeps alive.
    let flags = unsafe { (*object).fields.flags };
    if flags & NPY_ARRAY_WRITEABLE == 0 {
        return Err(PyValueError::new_err(
            "the output array is read-only: pass one that can be written",
        ));
    }
    Ok(())
}

/// Taps with this number of dimensions, as an array of f64 in C's order.
///
/// # Errors
/// The errors of `apron._inputs.as_taps`: for masked arrays, complex numbers and other dimensions.
pub(crate) fn taps<'py>(
    taps: &Bound<'py, PyAny>,
    name: &str,
    dims: usize,
) -> PyResult<Bound<'py, PyAny>> {
    static AS_TAPS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    AS_TAPS.import(taps.py(), "apron._inputs", "as_taps")?.call1((taps, name, dims))
}

/// NumPy's letter for the type of an array's values, and their size in bytes.
///
/// # Errors
/// `TypeError` if the bytes are not in this machine's order.
pub(crate) fn kind(array: &Bound<'_, PyUntypedArray>) -> PyResult<(u8, usize)> {
    let dtype = array.dtype();
    if dtype.is_native_byteorder() == Some(false) {
        return Err(PyTypeError::new_err(
            "the array's byte order is not this machine's: convert it with astype first",
        ));
    }
    Ok((dtype.kind(), dtype.itemsize()))
}

/// A number type that plans filter, directly or in f64; `None` for other types.
pub(crate) fn number(dtype: &Bound<'_, PyArrayDescr>) -> Option<Kind> {
    if dtype.is_native_byteorder() == Some(false) {
        return None;
    }
    Some(match (dtype.kind(), dtype.itemsize()) {
        (b'u', 1) => Kind::of::<u8>(),
        (b'i', 1) => Kind::of::<i8>(),
        (b'u', 2) => Kind::of::<u16>(),
        (b'i', 2) => Kind::of::<i16>(),
        (b'u', 4) => Kind::of::<u32>(),
        (b'i', 4) => Kind::of::<i32>(),
        (b'u', 8) => Kind::of::<u64>(),
        (b'i', 8) => Kind::of::<i64>(),
        (b'f', 2) => Kind::of::<f16>(),
        (b'f', 4) => Kind::of::<f32>(),
        (b'f', 8) => Kind::of::<f64>(),
        _ => return None,
    })
}

/// The meaning of an array's axes.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Axes {
    /// One image: rows and columns, or with channels on this one of three axes.
    One(isize),
    /// Images, rows, columns and channels, in this order.
    Many,
}

impl From<Option<isize>> for Axes {
    /// The axis of the channels of one image; `None` for many images.
    fn from(axis: Option<isize>) -> Self {
        axis.map_or(Self::Many, Self::One)
    }
}

/// Images, height, width and channels of a shape, and the strides of these four axes.
///
/// # Errors
/// `ValueError` unless one image has two dimensions, or three of which its axis is one, and many
/// images have four.
pub(crate) fn dims<T: Copy>(
    shape: &[usize],
    strides: &[T],
    axes: Axes,
    one: T,
) -> PyResult<([usize; 4], [T; 4])> {
    if shape.contains(&0) {
        return Err(PyValueError::new_err(format!(
            "the image's shape is {shape:?}: every extent must be at least 1"
        )));
    }
    match (shape, axes) {
        (&[height, width], Axes::One(_)) => {
            Ok(([1, height, width, 1], [one, strides[0], strides[1], one]))
        }
        (&[_, _, _], Axes::One(axis)) => {
            let channels = match axis {
                -3..=2 => axis.rem_euclid(3) as usize,
                _ => {
                    return Err(PyValueError::new_err(format!(
                        "axis is {axis}: a number from -3 to 2 is needed for three dimensions"
                    )));
                }
            };
            let (y, x) = (usize::from(channels == 0), if channels == 2 { 1 } else { 2 });
            Ok((
                [1, shape[y], shape[x], shape[channels]],
                [one, strides[y], strides[x], strides[channels]],
            ))
        }
        (&[images, height, width, channels], Axes::Many) => Ok((
            [images, height, width, channels],
            [strides[0], strides[1], strides[2], strides[3]],
        )),
        _ => {
            let dims = shape.len();
            Err(PyValueError::new_err(format!(
                "the image has {dims} dimensions: 2 or 3 are needed (rows, columns, channels), or \
                 layout= \"nhwc\", \"nchw\" or \"nhw\" for a batch of images"
            )))
        }
    }
}

/// An array's images, each as rows, columns and channels.
///
/// # Errors
/// As for [`dims`].
pub(crate) fn pictures(
    array: &Bound<'_, PyUntypedArray>,
    kind: Kind,
    axes: Axes,
) -> PyResult<Vec<Array>> {
    let ([images, shape @ ..], [image, strides @ ..]) =
        dims(array.shape(), array.strides(), axes, kind.size as isize)?;
    let picture = |number: usize| Array {
        data: address(array).wrapping_offset(number as isize * image),
        kind,
        shape: shape.to_vec(),
        strides: strides.to_vec(),
    };
    Ok((0..images).map(picture).collect())
}

/// Whether extents and strides ensure that no two values share a byte.
pub(crate) fn is_apart(array: &Bound<'_, PyUntypedArray>) -> bool {
    let mut axes: Vec<_> =
        array.shape().iter().zip(array.strides()).filter(|(len, _)| **len > 1).collect();
    axes.sort_by_key(|(_, stride)| stride.unsigned_abs());
    let mut covered = array.dtype().itemsize();
    axes.into_iter().all(|(&len, stride)| {
        let apart = stride.unsigned_abs() >= covered;
        covered += (len - 1) * stride.unsigned_abs();
        apart
    })
}

/// The range of bytes that an array's values lie in, from the first value's address: the lowest
/// byte and the end.
pub(crate) fn span(shape: &[usize], strides: &[isize], size: usize) -> (isize, isize) {
    if shape.contains(&0) {
        return (0, 0);
    }
    let offsets = shape.iter().zip(strides).map(|(&len, &stride)| (len as isize - 1) * stride);
    offsets
        .fold((0, size as isize), |(low, high), offset| (low + offset.min(0), high + offset.max(0)))
}

/// Whether the byte ranges of two arrays overlap.
pub(crate) fn overlap(one: &Bound<'_, PyUntypedArray>, other: &Bound<'_, PyUntypedArray>) -> bool {
    let range = |array: &Bound<'_, PyUntypedArray>| {
        let (low, high) = span(array.shape(), array.strides(), array.dtype().itemsize());
        let address = address(array).addr() as isize;
        (address + low, address + high)
    };
    let (one, other) = (range(one), range(other));
    one.0 < other.1 && other.0 < one.1
}
