//! Arrays in a GPU's memory: other libraries' arrays, by their own description, and `DeviceArray`,
//! which describes itself to other libraries.

use std::any::Any;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use apron::gpu::{DeviceImage, DeviceView, DeviceViewMut, Gpu, Stream, Strides};
use apron::{Alpha, ImageView, Layout, Pixel, Scalar, Shape, with_pixels};
use numpy::{PyArray1, PyArrayDescr, PyArrayMethods, PyReadonlyArrayDyn};
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

use crate::array::{Axes, dims};
use crate::dlpack;
use crate::filter::error;
use crate::plan::Plan;

/// Images in a GPU's memory, described for kernels.
struct Described {
    address: u64,
    scalar: Scalar,
    images: usize,
    shape: Shape,
    strides: Strides,
}

impl Described {
    /// From an array's shape and strides, in bytes.
    fn new(
        address: u64,
        kind: &str,
        shape: &[usize],
        strides: &[i64],
        axes: Axes,
    ) -> PyResult<Self> {
        let scalar = scalar(kind)?;
        let ([images, height, width, channels], [image, row, pixel, channel]) =
            dims(shape, strides, axes, scalar.bytes() as i64)?;
        let pixel = i32::try_from(pixel).map_err(|_| {
            PyValueError::new_err(format!(
                "the pixels of a row are {pixel} bytes apart: at most 2 GiB"
            ))
        })?;
        let shape = Shape { width, height, channels };
        let image = if images == 1 { 0 } else { image };
        Ok(Self { address, scalar, images, shape, strides: Strides { row, pixel, channel, image } })
    }
}

/// A type that kernels take, from its letter and size as in NumPy's `typestr`; `None` for others.
pub(crate) fn scalar_of(kind: &str) -> Option<Scalar> {
    let numpy = kind.trim_start_matches(['<', '|', '=']);
    Scalar::ALL.iter().copied().find(|scalar| scalar.numpy() == numpy)
}

fn scalar(kind: &str) -> PyResult<Scalar> {
    scalar_of(kind).ok_or_else(|| {
        PyTypeError::new_err(format!(
            "the device array's type is {kind}: uint8, uint16, float16 or float32 is needed; other numbers are filtered in float64 on \
             the CPU, as NumPy's arrays"
        ))
    })
}

fn kind(scalar: Scalar) -> String {
    let order = if scalar.bytes() == 1 { '|' } else { '<' };
    format!("{order}{}", scalar.numpy())
}

/// Another library's description of an array: address, type, shape, and strides in bytes.
pub(crate) type Foreign = (u64, String, Vec<usize>, Vec<i64>);

/// A stream of another library, with its scratch memory.
struct Known {
    device: u32,
    handle: u64,
    stream: Arc<Mutex<Stream>>,
    /// The object that the stream belongs to; dropped after the stream.
    _owner: Py<PyAny>,
}

/// The streams used last.
static STREAMS: Mutex<VecDeque<Known>> = Mutex::new(VecDeque::new());

/// Maximum number of streams in [`STREAMS`].
const MAX_STREAMS: usize = 16;

/// A stream's handle for the driver. `__cuda_array_interface__` and DLPack write the legacy default
/// stream as 1, since 0 means no stream there.
fn driver_handle(handle: u64) -> *mut c_void {
    (if handle == 1 { 0 } else { handle }) as *mut c_void
}

/// The stream with this handle; `owner` keeps it alive.
fn foreign_stream(gpu: &Gpu, handle: u64, owner: &Bound<'_, PyAny>) -> Arc<Mutex<Stream>> {
    let device = gpu.info().ordinal;
    let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let at = streams.iter().position(|known| (known.device, known.handle) == (device, handle));
    if let Some(known) = at.and_then(|at| streams.remove(at)) {
        let stream = known.stream.clone();
        streams.push_front(known);
        return stream;
    }
    // SAFETY: the library gave this handle as that of a stream of this GPU. `owner`, the object
    // that the stream belongs to, is kept as long as the stream.
    let stream = unsafe { gpu.stream_from_raw(driver_handle(handle)) };
    let stream = Arc::new(Mutex::new(stream));
    streams.push_front(Known {
        device,
        handle,
        stream: stream.clone(),
        _owner: owner.clone().unbind(),
    });
    let last = if streams.len() > MAX_STREAMS { streams.pop_back() } else { None };
    // Dropping waits for the stream, then drops its owner. That may run another thread, which may
    // want the list: so the list is unlocked first.
    drop(streams);
    drop(last);
    stream
}

/// Enqueues the filtering of one device array into another in a stream of their library. Without a
/// stream, filters in one of apron's and waits for it. Without an axis of channels, the arrays hold
/// images, rows, columns and channels.
#[pyfunction]
#[pyo3(name = "enqueue", signature = (plan, device, source, target, axis, stream, owner))]
#[expect(clippy::too_many_arguments, reason = "two arrays and a stream, as Python tells them")]
pub(crate) fn enqueue_foreign(
    py: Python<'_>,
    plan: &Plan,
    device: u32,
    source: Foreign,
    target: Foreign,
    axis: Option<isize>,
    stream: Option<u64>,
    owner: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let of = |(address, kind, shape, strides): &Foreign| {
        Described::new(*address, kind, shape, strides, axis.into())
    };
    let gpu = Gpu::open(device).map_err(error)?;
    let foreign = stream.map(|handle| foreign_stream(&gpu, handle, owner));
    let (source, target) = (of(&source)?, of(&target)?);
    let alpha = plan.mode(source.shape.channels);
    enqueue(py, (&plan.plan, alpha), &gpu, (&source, &target), foreign)
}

/// Filters one array into another in a stream. Without one, uses a stream of apron's and waits for
/// it.
fn enqueue(
    py: Python<'_>,
    (plan, alpha): (&apron::Plan, Alpha),
    gpu: &Gpu,
    (source, target): (&Described, &Described),
    foreign: Option<Arc<Mutex<Stream>>>,
) -> PyResult<()> {
    py.detach(|| -> apron::Result<()> {
        let kind = |image: &Described| (image.scalar, image.strides);
        let Shape { width, height, .. } = source.shape;
        let run =
            |src: &DeviceView<'_>, dst: &mut DeviceViewMut<'_>, stream: &mut Stream| match alpha {
                Alpha::Filter => plan.run_region(src, dst, 0..width, 0..height, stream),
                alpha => plan.run_region_with_alpha(src, dst, 0..width, 0..height, (alpha, stream)),
            };
        // SAFETY: the arrays' library says that these values exist at these addresses. Python's
        // caller keeps the arrays alive, and libraries free memory in stream order. Overlapping
        // views are refused.
        let (src, mut dst) = unsafe {
            (
                DeviceView::from_raw(
                    gpu,
                    source.address,
                    kind(source),
                    source.shape,
                    source.images,
                    0..height,
                )?,
                DeviceViewMut::from_raw(
                    gpu,
                    target.address,
                    kind(target),
                    target.shape,
                    target.images,
                    0..height,
                )?,
            )
        };
        match foreign {
            Some(stream) => {
                let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
                run(&src, &mut dst, &mut stream)
            }
            None => {
                let mut stream = gpu.stream()?;
                run(&src, &mut dst, &mut stream)?;
                stream.synchronize()
            }
        }
    })
    .map_err(error)
}

/// Waits for another library's stream on this GPU.
#[pyfunction]
pub(crate) fn synchronize(py: Python<'_>, device: u32, handle: u64) -> PyResult<()> {
    py.detach(|| {
        let gpu = Gpu::open(device)?;
        // SAFETY: the library gave this handle as that of a stream of this GPU, for consumers of
        // its array to wait for.
        unsafe { gpu.stream_from_raw(driver_handle(handle)) }.synchronize()
    })
    .map_err(error)
}

/// An array in a GPU's memory, of type uint8, uint16, float16 or float32.
///
/// :func:`apron.to_device` makes one. So does a plan whose image is one, or a device array of a
/// library that apron does not know. Libraries take it without a copy, by
/// ``__cuda_array_interface__`` or DLPack. No write to it is pending.
#[pyclass(frozen, module = "apron", name = "DeviceArray")]
pub(crate) struct DeviceArray {
    /// The owner of the memory.
    owner: Arc<dyn Any + Send + Sync>,
    address: u64,
    device: u32,
    scalar: Scalar,
    shape: Vec<usize>,
    /// In bytes.
    strides: Vec<i64>,
    readonly: bool,
}

impl DeviceArray {
    /// A new array of two to four dimensions with undefined values. Its last axis are the values
    /// of a row: pixels with their channels, or the pixels of a plane.
    fn new(gpu: &Gpu, scalar: Scalar, shape: Vec<usize>, axis: isize) -> PyResult<Self> {
        if shape.contains(&0) || !(2..=4).contains(&shape.len()) {
            return Err(PyValueError::new_err(format!(
                "the shape is {shape:?}: 2 to 4 extents of at least 1 are needed"
            )));
        }
        let dims = shape.len();
        // Axes that lie in one row of memory.
        let inner = match (dims, axis) {
            (2, _) | (3, -3 | 0) | (4, -3 | 1) => 1,
            (3, -1 | 2) | (4, -1 | 3) => 2,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "axis is {axis}: the channels of a new device array are before its rows and \
                     columns, or after them"
                )));
            }
        };
        let (outer, row) = shape.split_at(dims - inner);
        let rows = Shape {
            width: row[0],
            height: outer.iter().fold(1, |rows, &extent| rows.saturating_mul(extent)),
            channels: row.get(1).copied().unwrap_or(1),
        };
        let image = gpu.image_of(rows, scalar, Layout::Interleaved).map_err(error)?;
        let mut strides = vec![scalar.bytes() as i64; dims];
        for at in (0..dims - 1).rev() {
            strides[at] = if at + 1 == dims - inner {
                image.strides().row
            } else {
                strides[at + 1] * shape[at + 1] as i64
            };
        }
        let (address, device) = (image.address(), gpu.info().ordinal);
        Ok(Self {
            owner: Arc::new(Mutex::new(image)),
            address,
            device,
            scalar,
            shape,
            strides,
            readonly: false,
        })
    }

    /// The image, if the memory belongs to apron.
    fn image(&self) -> Option<&Mutex<DeviceImage>> {
        self.owner.downcast_ref()
    }

    fn upload<P: Pixel + numpy::Element>(
        &self,
        py: Python<'_>,
        values: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let values: PyReadonlyArrayDyn<'_, P> = values.extract()?;
        let values = values.as_slice()?;
        let Some(image) = self.image() else { return Ok(()) };
        py.detach(|| {
            let mut image = image.lock().unwrap_or_else(PoisonError::into_inner);
            let Shape { width, height, channels } = image.shape();
            let gpu = image.gpu().clone();
            gpu.upload_into(&ImageView::new(values, width, height, channels)?, &mut image)
        })
        .map_err(error)
    }

    fn download<'py, P: Pixel + numpy::Element>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(image) = self.image() else { return self.copied(py)?.download::<P>(py) };
        let values = py.detach(|| {
            let image = image.lock().unwrap_or_else(PoisonError::into_inner);
            image.gpu().download_stored::<P>(&image).map(apron::Image::into_vec)
        });
        Ok(PyArray1::from_vec(py, values.map_err(error)?).reshape(self.shape.clone())?.into_any())
    }

    /// A copy in memory that apron owns.
    fn copied(&self, py: Python<'_>) -> PyResult<Self> {
        let gpu = Gpu::open(self.device).map_err(error)?;
        let copy = Self::new(&gpu, self.scalar, self.shape.clone(), -1)?;
        // Whatever the axes mean, a copy may take them as rows, columns and channels.
        let axes = if self.shape.len() == 4 { Axes::Many } else { Axes::One(-1) };
        let identity = apron::Filter::identity();
        let device = apron::Device::Gpu(self.device);
        let plan =
            py.detach(|| apron::Plan::builder(&identity).device(device).build()).map_err(error)?;
        enqueue(
            py,
            (&plan, Alpha::Filter),
            &gpu,
            (&self.described(axes)?, &copy.described(axes)?),
            None,
        )?;
        Ok(copy)
    }

    fn described(&self, axes: Axes) -> PyResult<Described> {
        Described::new(self.address, &kind(self.scalar), &self.shape, &self.strides, axes)
    }
}

#[pymethods]
impl DeviceArray {
    /// A new array of this shape and type, with undefined values.
    #[staticmethod]
    #[pyo3(signature = (shape, typestr, device = 0, axis = -1))]
    fn _empty(shape: Vec<usize>, typestr: &str, device: u32, axis: isize) -> PyResult<Self> {
        Self::new(&Gpu::open(device).map_err(error)?, scalar(typestr)?, shape, axis)
    }

    /// A copy of a NumPy array in C's order.
    #[staticmethod]
    #[pyo3(signature = (array, typestr, device = 0, axis = -1))]
    fn _of(array: &Bound<'_, PyAny>, typestr: &str, device: u32, axis: isize) -> PyResult<Self> {
        let py = array.py();
        let copy = Self::_empty(array.getattr("shape")?.extract()?, typestr, device, axis)?;
        with_pixels!(copy.scalar, P => copy.upload::<P>(py, array))?;
        Ok(copy)
    }

    /// Takes over a DLPack capsule of a GPU's array, to which no write is pending.
    #[staticmethod]
    fn _taken(capsule: &Bound<'_, PyCapsule>) -> PyResult<Self> {
        let array = dlpack::Array::import(capsule)?;
        if !matches!(array.device.0, dlpack::CUDA | dlpack::CUDA_MANAGED) {
            let message =
                format!("DLPack device {:?}: an array of a CUDA device is needed", array.device);
            return Err(PyBufferError::new_err(message));
        }
        let value = array.scalar.bytes() as i64;
        Ok(Self {
            owner: array.owner,
            address: array.address,
            device: array.device.1 as u32,
            scalar: array.scalar,
            shape: array.shape.iter().map(|&len| len as usize).collect(),
            strides: array.strides.iter().map(|stride| stride * value).collect(),
            readonly: array.readonly,
        })
    }

    /// A copy on the host, in C's order.
    fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        with_pixels!(self.scalar, P => self.download::<P>(py))
    }

    /// The extents.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// Bytes from one element to the next along each axis.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.strides)
    }

    /// The type, as NumPy's dtype.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArrayDescr>> {
        PyArrayDescr::new(py, kind(self.scalar))
    }

    #[getter]
    fn _ordinal(&self) -> u32 {
        self.device
    }

    /// The GPU's name, as plans use it.
    #[getter]
    fn device(&self) -> String {
        format!("gpu:{}", self.device)
    }

    fn __repr__(&self) -> String {
        format!(
            "apron.DeviceArray(shape={:?}, dtype={}, device={:?})",
            self.shape,
            self.scalar,
            self.device()
        )
    }

    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("typestr", kind(self.scalar))?;
        interface.set_item("data", (self.address, self.readonly))?;
        interface.set_item("strides", self.strides(py)?)?;
        interface.set_item("stream", py.None())?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }

    fn __dlpack_device__(&self) -> (i32, u32) {
        (dlpack::CUDA, self.device)
    }

    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, u32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stream == Some(0) {
            return Err(PyValueError::new_err(
                "stream is 0, which DLPack does not allow: pass 1 for the legacy default stream",
            ));
        }
        if dl_device.is_some_and(|device| device != self.__dlpack_device__()) {
            return Err(PyBufferError::new_err(
                "the array is in GPU memory: numpy() copies it to the host",
            ));
        }
        if copy == Some(true) {
            return Err(PyBufferError::new_err(
                "copy is True, but __dlpack__ does not copy: copy the result of from_dlpack",
            ));
        }
        let value = self.scalar.bytes() as i64;
        let array = dlpack::Array {
            owner: self.owner.clone(),
            address: self.address,
            device: (dlpack::CUDA, self.device as i32),
            scalar: self.scalar,
            shape: self.shape.iter().map(|&len| len as i64).collect(),
            strides: self.strides.iter().map(|stride| stride / value).collect(),
            readonly: self.readonly,
        };
        array.export(py, max_version.is_some_and(|(major, _)| major >= 1))
    }
}
