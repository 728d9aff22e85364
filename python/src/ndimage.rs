//! One pass over an array, for `apron.ndimage`.

use apron::Border;
use apron::gpu::{Gpu, Stream};
use apron::passes::{self, Array, Kind, Reach, Sums};
use numpy::{PyReadonlyArrayDyn, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::array;
use crate::device::{Foreign, foreign_stream, in_stream};
use crate::filter::error;
use crate::number::NumberType;
use crate::threads::without_lock;

fn border(mode: &str, cval: f64) -> PyResult<Border> {
    Ok(match mode {
        "reflect" | "grid-mirror" => Border::Reflect,
        "constant" | "grid-constant" => Border::Constant(cval),
        "nearest" => Border::Replicate,
        "mirror" => Border::Reflect101,
        "wrap" | "grid-wrap" => Border::Wrap,
        // SciPy's message, which programs may look for.
        _ => return Err(PyRuntimeError::new_err("boundary mode not supported")),
    })
}

fn memory(array: &Bound<'_, PyUntypedArray>) -> PyResult<Array> {
    let kind = kind(array::kind(array)?)
        .ok_or_else(|| PyRuntimeError::new_err("data type not supported"))?;
    Ok(Array {
        data: array::address(array),
        kind,
        shape: array.shape().to_vec(),
        strides: array.strides().to_vec(),
    })
}

/// An array in a GPU's memory, which Python describes.
fn device_memory(array: &Bound<'_, PyAny>) -> PyResult<Array> {
    let (address, kind, shape, strides): Foreign = array.getattr("described")?.extract()?;
    let NumberType { letter, bytes } = NumberType::from_typestr(&kind)?;
    Ok(Array {
        data: std::ptr::without_provenance_mut(address as usize),
        kind: self::kind((letter, bytes))
            .ok_or_else(|| PyRuntimeError::new_err("data type not supported"))?,
        shape,
        strides: strides.into_iter().map(|stride| stride as isize).collect(),
    })
}

/// The type of values with this letter and size in bytes, with SciPy's conversions. `None` for
/// types that SciPy does not filter either. Truth values are bytes.
fn kind(kind: (u8, usize)) -> Option<Kind> {
    Some(match kind {
        (b'b' | b'u', 1) => Kind::cast::<u8>(),
        (b'i', 1) => Kind::cast::<i8>(),
        (b'u', 2) => Kind::cast::<u16>(),
        (b'i', 2) => Kind::cast::<i16>(),
        (b'u', 4) => Kind::cast::<u32>(),
        (b'i', 4) => Kind::cast::<i32>(),
        (b'u', 8) => Kind::cast::<u64>(),
        (b'i', 8) => Kind::cast::<i64>(),
        (b'f', 4) => Kind::cast::<f32>(),
        (b'f', 8) => Kind::cast::<f64>(),
        _ => return None,
    })
}

/// SciPy's sums of a window along one axis. Taps on both sides form pairs if they agree to within
/// f64's epsilon.
fn sums_along(taps: &[f64]) -> Sums {
    let (size, half) = (taps.len(), taps.len() / 2);
    let agree = |sign: f64| {
        size % 2 == 1
            && (1..=half).all(|i| (taps[half + i] - sign * taps[half - i]).abs() <= f64::EPSILON)
    };
    if let Some(sign) = [1.0, -1.0].into_iter().find(|&sign| agree(sign)) {
        let pairs = (0..half).map(|i| (i, size - 1 - i, taps[i])).collect();
        return Sums::Paired { middle: (half, taps[half]), pairs, sign };
    }
    // The last tap is first. The sum starts at -0, which changes no value added to it.
    let order = std::iter::once(size - 1).chain(0..size - 1);
    Sums::InOrder { start: -0.0, taps: order.map(|i| (i, taps[i])).collect() }
}

/// A window over an array.
struct Window {
    reach: Vec<Reach>,
    sums: Sums,
    border: Border,
}

/// Filters one of NumPy's arrays into another, or a device array into another.
fn run(input: &Bound<'_, PyAny>, output: &Bound<'_, PyAny>, window: &Window) -> PyResult<()> {
    match input.cast::<PyUntypedArray>() {
        Ok(input) => run_on_host(input, output.cast()?, window),
        Err(_) if overlap(input, output)? => run(&input.call_method0("copy")?, output, window),
        Err(_) => {
            let (source, target) = (device_memory(input)?, device_memory(output)?);
            let Window { reach, sums, border } = window;
            // SAFETY: as for `on_device`.
            on_device(input, |stream| unsafe {
                stream.filter_array(&source, &target, reach, sums, *border)
            })
        }
    }
}

fn run_on_host(
    input: &Bound<'_, PyUntypedArray>,
    output: &Bound<'_, PyUntypedArray>,
    window: &Window,
) -> PyResult<()> {
    if input.shape() != output.shape() {
        return Err(PyRuntimeError::new_err("output shape not correct"));
    }
    array::check_writeable(output)?;
    if array::overlap(input, output) {
        let temporary = input.py().import("numpy")?.call_method1("empty_like", (output,))?;
        run_on_host(input, temporary.cast()?, window)?;
        return output.set_item(pyo3::types::PyEllipsis::get(input.py()), temporary);
    }
    let (source, target) = (memory(input)?, memory(output)?);
    let Window { reach, sums, border } = window;
    // SAFETY: NumPy's shapes, strides and types describe memory that the arrays keep alive, and the
    // two arrays share none. The caller promises that no other thread writes to them meanwhile, as
    // for every function of NumPy that releases the GIL.
    without_lock(input.py(), || unsafe {
        passes::filter(&source, &target, reach, sums, *border, &|_, _| Ok(()))
    })?
    .map_err(error)
}

/// Puts work on device arrays, which share no memory, into the stream that one of them names.
///
/// The arrays' library says that their values exist at their addresses. Python's caller keeps the
/// arrays alive, and libraries free memory in stream order.
fn on_device(
    array: &Bound<'_, PyAny>,
    work: impl FnOnce(&mut Stream) -> apron::Result<()> + Send,
) -> PyResult<()> {
    let gpu = Gpu::open(array.getattr("device")?.extract()?).map_err(error)?;
    let handle: Option<u64> = array.getattr("stream")?.extract()?;
    let owner = array.getattr("owner")?;
    let foreign = handle.map(|handle| foreign_stream(&gpu, handle, &owner)).transpose()?;
    array.py().detach(|| in_stream(&gpu, foreign, work)).map_err(error)
}

/// Whether the byte ranges of two device arrays of one GPU overlap.
#[pyfunction]
pub(crate) fn overlap(one: &Bound<'_, PyAny>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
    let range = |array: &Bound<'_, PyAny>| -> PyResult<_> {
        let Array { data, kind, shape, strides } = device_memory(array)?;
        let (low, high) = array::span(&shape, &strides, kind.size);
        let address = data.addr() as isize;
        Ok((address + low, address + high))
    };
    let (one, other) = (range(one)?, range(other)?);
    Ok(one.0 < other.1 && other.0 < one.1)
}

/// Copies a device array into another: see [`Stream::convert_array`].
#[pyfunction]
pub(crate) fn convert(input: &Bound<'_, PyAny>, output: &Bound<'_, PyAny>) -> PyResult<()> {
    let (source, target) = (device_memory(input)?, device_memory(output)?);
    // SAFETY: as for `on_device`.
    on_device(input, |stream| unsafe { stream.convert_array(&source, &target) })
}

/// Joins device arrays element by element: see [`Stream::join_array`].
#[pyfunction]
pub(crate) fn join(
    input: Option<&Bound<'_, PyAny>>,
    output: &Bound<'_, PyAny>,
    squared: (bool, bool),
    root: bool,
) -> PyResult<()> {
    let (source, target) = (input.map(device_memory).transpose()?, device_memory(output)?);
    // SAFETY: as for `on_device`.
    on_device(output, |stream| unsafe {
        stream.join_array(source.as_ref(), &target, squared, root)
    })
}

/// A window's reach along one axis.
fn along(
    input: &Bound<'_, PyAny>,
    axis: usize,
    size: usize,
    origin: isize,
) -> PyResult<Vec<Reach>> {
    let dims = input.getattr("ndim")?.extract()?;
    let mut reach = vec![Reach::default(); dims];
    let place =
        reach.get_mut(axis).ok_or_else(|| PyValueError::new_err("there is no such axis"))?;
    *place = inside(size, origin)?;
    Ok(reach)
}

/// The reach of a window, if its origin is inside the window.
fn inside(size: usize, origin: isize) -> PyResult<Reach> {
    let half = (size / 2) as isize;
    if size == 0 || !(-half..=(size as isize - 1) / 2).contains(&origin) {
        return Err(PyValueError::new_err("the origin lies outside the window"));
    }
    Ok(Reach::new(size, origin))
}

/// Correlates along one axis, in SciPy's order of sums.
#[pyfunction]
pub(crate) fn correlate1d(
    input: &Bound<'_, PyAny>,
    weights: PyReadonlyArrayDyn<'_, f64>,
    axis: usize,
    output: &Bound<'_, PyAny>,
    mode: &str,
    cval: f64,
    origin: isize,
) -> PyResult<()> {
    let taps: Vec<f64> = weights.as_array().iter().copied().collect();
    if taps.is_empty() {
        return Err(PyRuntimeError::new_err("no filter weights given"));
    }
    let reach = along(input, axis, taps.len(), origin)?;
    let sums = sums_along(&taps);
    run(input, output, &Window { reach, sums, border: border(mode, cval)? })
}

/// A running mean along one axis.
#[pyfunction]
pub(crate) fn uniform_filter1d(
    input: &Bound<'_, PyAny>,
    size: usize,
    axis: usize,
    output: &Bound<'_, PyAny>,
    mode: &str,
    cval: f64,
    origin: isize,
) -> PyResult<()> {
    let reach = along(input, axis, size, origin)?;
    let sums = match size {
        1 => sums_along(&[1.0]),
        _ => Sums::Running { axis, size },
    };
    run(input, output, &Window { reach, sums, border: border(mode, cval)? })
}

/// Correlates with a window of as many dimensions as the array. Taps of at most f64's epsilon are
/// left out.
#[pyfunction]
pub(crate) fn correlate(
    input: &Bound<'_, PyAny>,
    weights: PyReadonlyArrayDyn<'_, f64>,
    output: &Bound<'_, PyAny>,
    mode: &str,
    cval: f64,
    origins: Vec<isize>,
) -> PyResult<()> {
    let window = weights.as_array();
    let dims: usize = input.getattr("ndim")?.extract()?;
    if window.ndim() != dims || origins.len() != dims {
        return Err(PyRuntimeError::new_err("the window needs as many dimensions as the array"));
    }
    let reach = window.shape().iter().zip(&origins).map(|(&size, &origin)| inside(size, origin));
    let reach = reach.collect::<PyResult<Vec<_>>>()?;
    let taps =
        window.iter().copied().enumerate().filter(|(_, tap)| tap.abs() > f64::EPSILON).collect();
    let sums = Sums::InOrder { start: 0.0, taps };
    run(input, output, &Window { reach, sums, border: border(mode, cval)? })
}
