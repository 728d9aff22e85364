//! Arrays in a GPU's memory: other libraries' arrays, by their own description, and `DeviceArray`,
//! which describes itself to other libraries.

use std::any::Any;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use apron::gpu::{DeviceCoverage, DeviceImage, DeviceView, DeviceViewMut, Gpu, Stream, Strides};
use apron::{Alpha, ImageView, Layout, Scalar, Shape, passes};
use numpy::{PyArray1, PyArrayDescr, PyReadonlyArrayDyn};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

use crate::array::{Axes, dims};
use crate::dlpack::{self, Exchange, Lent};
use crate::filter::error;
use crate::number::NumberType;
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
        Self::of(address, NumberType::from_typestr(kind)?.scalar()?, (shape, strides), axes)
    }

    /// The same, of a type for kernels.
    fn of(
        address: u64,
        scalar: Scalar,
        (shape, strides): (&[usize], &[i64]),
        axes: Axes,
    ) -> PyResult<Self> {
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

    /// A view of the arrays, to read.
    ///
    /// # Safety
    /// As for [`DeviceView::from_raw`].
    unsafe fn view(&self, gpu: &Gpu) -> apron::Result<DeviceView<'_>> {
        let (kind, rows) = ((self.scalar, self.strides), 0..self.shape.height);
        // SAFETY: the caller's promise.
        unsafe { DeviceView::from_raw(gpu, self.address, kind, self.shape, self.images, rows) }
    }

    /// The same, to write.
    ///
    /// # Safety
    /// As for [`DeviceViewMut::from_raw`].
    unsafe fn view_mut(&self, gpu: &Gpu) -> apron::Result<DeviceViewMut<'_>> {
        let (kind, rows) = ((self.scalar, self.strides), 0..self.shape.height);
        // SAFETY: the caller's promise.
        unsafe { DeviceViewMut::from_raw(gpu, self.address, kind, self.shape, self.images, rows) }
    }
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

/// The library's current stream, which has this handle. If it is new, `owner` is called with the
/// GPU's number, and returns the object that the stream belongs to.
pub(crate) fn foreign_stream(
    gpu: &Gpu,
    handle: u64,
    owner: &Bound<'_, PyAny>,
) -> PyResult<Arc<Mutex<Stream>>> {
    let device = gpu.info().ordinal;
    let lock = || STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let find = |streams: &mut VecDeque<Known>| {
        let at =
            streams.iter().position(|known| (known.device, known.handle) == (device, handle))?;
        let known = streams.remove(at)?;
        let stream = known.stream.clone();
        streams.push_front(known);
        Some(stream)
    };
    if let Some(stream) = find(&mut lock()) {
        return Ok(stream);
    }
    // The call may run another thread, which may want the list: so the list is unlocked.
    let owner = owner.call1((device,))?.unbind();
    let mut streams = lock();
    if let Some(stream) = find(&mut streams) {
        return Ok(stream);
    }
    // SAFETY: the library gave this handle as that of a stream of this GPU. The object that the
    // stream belongs to is kept as long as the stream.
    let stream = unsafe { gpu.stream_from_raw(driver_handle(handle)) };
    let stream = Arc::new(Mutex::new(stream));
    streams.push_front(Known { device, handle, stream: stream.clone(), _owner: owner });
    let last = if streams.len() > MAX_STREAMS { streams.pop_back() } else { None };
    // Dropping waits for the stream, then drops its owner, which may also run another thread.
    drop(streams);
    drop(last);
    Ok(stream)
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
    let foreign = stream.map(|handle| foreign_stream(&gpu, handle, owner)).transpose()?;
    let (source, target) = (of(&source)?, of(&target)?);
    let alpha = plan.mode(source.shape.channels);
    enqueue(py, (&plan.plan, alpha), &gpu, (&source, &target), foreign)
}

/// As [`enqueue_foreign`], for arrays of one library whose type has a table of DLPack's functions,
/// in that library's current stream. `layout` is that of a batch, if they are one. False if a plan
/// does not filter the one into the other as they are.
#[pyfunction]
#[pyo3(signature = (plan, source, target, axis, layout, owner))]
pub(crate) fn enqueue_lent(
    plan: &Plan,
    source: &Bound<'_, PyAny>,
    target: &Bound<'_, PyAny>,
    axis: isize,
    layout: Option<&str>,
    owner: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    let py = source.py();
    let Some(exchange) = Exchange::of(source) else { return Ok(false) };
    let (Some(from), Some(to)) = (exchange.lent(source), exchange.lent(target)) else {
        return Ok(false);
    };
    let (kind, id) = from.device;
    let (Ok(of_source), Ok(of_target)) = (from.number.scalar(), to.number.scalar()) else {
        return Ok(false);
    };
    let is_there = kind == dlpack::CUDA && from.address != 0 && to.address != 0;
    if !is_there || from.device != to.device || from.shape != to.shape {
        return Ok(false);
    }
    let Some(handle) = exchange.stream(py, from.device) else { return Ok(false) };
    let gpu = Gpu::open(id as u32).map_err(error)?;
    let stream = foreign_stream(&gpu, handle, owner)?;
    let axes = if layout.is_some() { Axes::Many } else { Axes::One(axis) };
    let of = |lent: Lent, scalar: Scalar| {
        let Lent { address, mut shape, mut strides, .. } = lent;
        match (layout, shape.len()) {
            (Some("nchw"), 4) => {
                shape[1..].rotate_left(1);
                strides[1..].rotate_left(1);
            }
            (Some("nhw"), 3) => {
                shape.push(1);
                strides.push(scalar.bytes() as i64);
            }
            _ => {}
        }
        Described::of(address, scalar, (&shape, &strides), axes)
    };
    let (source, target) = (of(from, of_source)?, of(to, of_target)?);
    let alpha = plan.mode(source.shape.channels);
    enqueue(py, (&plan.plan, alpha), &gpu, (&source, &target), Some(stream))?;
    Ok(true)
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
        let Shape { width, height, .. } = source.shape;
        let run =
            |src: &DeviceView<'_>, dst: &mut DeviceViewMut<'_>, stream: &mut Stream| match alpha {
                Alpha::Filter => plan.run_region(src, dst, 0..width, 0..height, stream),
                alpha => plan.run_region_with_alpha(src, dst, 0..width, 0..height, (alpha, stream)),
            };
        // SAFETY: the arrays' library says that these values exist at these addresses. Python's
        // caller keeps the arrays alive, and libraries free memory in stream order. Overlapping
        // views are refused.
        let (src, mut dst) = unsafe { (source.view(gpu)?, target.view_mut(gpu)?) };
        in_stream(gpu, foreign, |stream| run(&src, &mut dst, stream))
    })
    .map_err(error)
}

/// As [`enqueue_foreign`], for a plan for each image. The arrays have images, rows, columns and
/// channels.
pub(crate) fn enqueue_plans(
    py: Python<'_>,
    plans: &apron::Plans,
    gpu: &Gpu,
    (source, target): (&Foreign, &Foreign),
    (stream, owner): (Option<u64>, &Bound<'_, PyAny>),
) -> PyResult<()> {
    let of = |(address, kind, shape, strides): &Foreign| {
        Described::new(*address, kind, shape, strides, Axes::Many)
    };
    let foreign = stream.map(|handle| foreign_stream(gpu, handle, owner)).transpose()?;
    let (source, target) = (of(source)?, of(target)?);
    let run = || {
        // SAFETY: as in [`enqueue`].
        let (src, mut dst) = unsafe { (source.view(gpu)?, target.view_mut(gpu)?) };
        in_stream(gpu, foreign, |stream| plans.run_on_device(&src, &mut dst, stream))
    };
    py.detach(run).map_err(error)
}

/// As [`enqueue_foreign`], for the known pixels of one image. The mask is of uint8 or float32, and
/// `weights`, which get the sums of its weights, of float32.
#[pyfunction]
#[pyo3(signature = (plan, device, arrays, axis, stream, owner))]
pub(crate) fn enqueue_masked(
    py: Python<'_>,
    plan: &Plan,
    device: u32,
    arrays: (Foreign, Option<Foreign>, Foreign, Option<Foreign>),
    axis: isize,
    stream: Option<u64>,
    owner: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let of = |(address, kind, shape, strides): &Foreign| {
        Described::new(*address, kind, shape, strides, Axes::One(axis))
    };
    let (source, mask, target, weights) = &arrays;
    let (source, target) = (of(source)?, of(target)?);
    let mask = mask.as_ref().map(of).transpose()?;
    let weights = weights.as_ref().map(of).transpose()?;
    let gpu = Gpu::open(device).map_err(error)?;
    let foreign = stream.map(|handle| foreign_stream(&gpu, handle, owner)).transpose()?;
    let run = || -> apron::Result<()> {
        let Shape { width, height, .. } = source.shape;
        // SAFETY: as in [`enqueue`].
        let (src, mask, mut dst, weights) = unsafe {
            (
                source.view(&gpu)?,
                mask.as_ref().map(|mask| mask.view(&gpu)).transpose()?,
                target.view_mut(&gpu)?,
                weights.as_ref().map(|weights| weights.view_mut(&gpu)).transpose()?,
            )
        };
        let coverage = DeviceCoverage { weights, known: None };
        in_stream(&gpu, foreign, |stream| {
            let part = (0..width, 0..height);
            let beside = (&coverage, stream);
            plan.plan.run_region_masked(&src, mask.as_ref(), &mut dst, part, beside)
        })
    };
    py.detach(run).map_err(error)
}

/// Puts work into a stream. Without one, puts it into one of apron's and waits for it.
pub(crate) fn in_stream(
    gpu: &Gpu,
    foreign: Option<Arc<Mutex<Stream>>>,
    work: impl FnOnce(&mut Stream) -> apron::Result<()>,
) -> apron::Result<()> {
    match foreign {
        Some(stream) => work(&mut stream.lock().unwrap_or_else(PoisonError::into_inner)),
        None => {
            let mut stream = gpu.stream()?;
            work(&mut stream)?;
            stream.synchronize()
        }
    }
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

/// An array in a GPU's memory, of a type of numbers that NumPy has.
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
    number: NumberType,
    shape: Vec<usize>,
    /// In bytes.
    strides: Vec<i64>,
    readonly: bool,
}

impl DeviceArray {
    /// A new array with undefined values. Its last axis, or its last two if `axis` says that the
    /// last are channels, lie in one row of memory; rows begin at multiples of what kernels want.
    fn new(gpu: &Gpu, number: NumberType, shape: Vec<usize>, axis: isize) -> PyResult<Self> {
        if shape.contains(&0) || shape.is_empty() {
            return Err(PyValueError::new_err(format!(
                "the shape is {shape:?}: one or more extents of at least 1 are needed"
            )));
        }
        let dims = shape.len();
        // Axes that lie in one row of memory.
        let inner = match (dims, axis) {
            (1 | 2 | 5.., _) | (3, -3 | 0) | (4, -3 | 1) => 1,
            (3, -1 | 2) | (4, -1 | 3) => 2,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "axis is {axis}: the channels of a new device array are before its rows and \
                     columns, or after them"
                )));
            }
        };
        let (outer, row) = shape.split_at(dims - inner);
        let product = |extents: &[usize], first: usize| {
            extents.iter().fold(first, |all, &extent| all.saturating_mul(extent))
        };
        let rows =
            Shape { width: product(row, number.bytes), height: product(outer, 1), channels: 1 };
        let image = gpu.image_of(rows, Scalar::U8, Layout::Interleaved).map_err(error)?;
        let mut strides = vec![number.bytes as i64; dims];
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
            number,
            shape,
            strides,
            readonly: false,
        })
    }

    /// The memory, as rows of bytes, if it belongs to apron.
    fn image(&self) -> Option<&Mutex<DeviceImage>> {
        self.owner.downcast_ref()
    }

    /// A copy in memory that apron owns.
    fn copied(&self, py: Python<'_>) -> PyResult<Self> {
        let gpu = Gpu::open(self.device).map_err(error)?;
        // The axis that is last in memory may be any.
        let axis = if (3..=4).contains(&self.shape.len()) { -1 } else { 0 };
        let copy = Self::new(&gpu, self.number, self.shape.clone(), axis)?;
        // The bytes of a number are elements along an axis of their own.
        let bytes = |array: &Self| {
            let size = array.number.bytes;
            let (mut shape, mut strides) = (array.shape.clone(), array.strides.clone());
            shape.push(size);
            strides.push(1);
            passes::Array {
                data: std::ptr::without_provenance_mut(array.address as usize),
                kind: passes::Kind::cast::<u8>(),
                shape,
                strides: strides.into_iter().map(|stride| stride as isize).collect(),
            }
        };
        let (source, target) = (bytes(self), bytes(&copy));
        // SAFETY: this array keeps its memory until the stream has passed the work, and nobody else
        // has the copy.
        let copied = |stream: &mut Stream| unsafe { stream.convert_array(&source, &target) };
        py.detach(|| in_stream(&gpu, None, copied)).map_err(error)?;
        Ok(copy)
    }
}

#[pymethods]
impl DeviceArray {
    /// A new array of this shape and type, with undefined values.
    #[staticmethod]
    #[pyo3(signature = (shape, typestr, device = 0, axis = -1))]
    fn _empty(shape: Vec<usize>, typestr: &str, device: u32, axis: isize) -> PyResult<Self> {
        let number = NumberType::from_typestr(typestr)?;
        Self::new(&Gpu::open(device).map_err(error)?, number, shape, axis)
    }

    /// A copy of a NumPy array in C's order.
    #[staticmethod]
    #[pyo3(signature = (array, typestr, device = 0, axis = -1))]
    fn _of(array: &Bound<'_, PyAny>, typestr: &str, device: u32, axis: isize) -> PyResult<Self> {
        let copy = Self::_empty(array.getattr("shape")?.extract()?, typestr, device, axis)?;
        let bytes = array.call_method1("reshape", (-1,))?.call_method1("view", ("u1",))?;
        let bytes: PyReadonlyArrayDyn<'_, u8> = bytes.extract()?;
        let bytes = bytes.as_slice()?;
        if let Some(image) = copy.image() {
            let upload = || {
                let mut image = image.lock().unwrap_or_else(PoisonError::into_inner);
                let Shape { width, height, channels } = image.shape();
                let gpu = image.gpu().clone();
                gpu.upload_into(&ImageView::new(bytes, width, height, channels)?, &mut image)
            };
            array.py().detach(upload).map_err(error)?;
        }
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
        let value = array.number.bytes as i64;
        Ok(Self {
            owner: array.owner,
            address: array.address,
            device: array.device.1 as u32,
            number: array.number,
            shape: array.shape.iter().map(|&len| len as usize).collect(),
            strides: array.strides.iter().map(|stride| stride * value).collect(),
            readonly: array.readonly,
        })
    }

    /// A copy on the host, in C's order.
    fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let Some(image) = self.image() else { return self.copied(py)?.numpy(py) };
        let bytes = py.detach(|| {
            let image = image.lock().unwrap_or_else(PoisonError::into_inner);
            image.gpu().download_stored::<u8>(&image).map(apron::Image::into_vec)
        });
        let bytes = PyArray1::from_vec(py, bytes.map_err(error)?);
        bytes.call_method1("view", (self.dtype(py)?,))?.call_method1("reshape", (self.shape(py)?,))
    }

    /// The extents.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// The number of axes.
    #[getter]
    fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// Bytes from one element to the next along each axis.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.strides)
    }

    /// The type, as NumPy's dtype.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArrayDescr>> {
        PyArrayDescr::new(py, self.number.typestr())
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

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!(
            "apron.DeviceArray(shape={:?}, dtype={}, device={:?})",
            self.shape,
            self.dtype(py)?,
            self.device()
        ))
    }

    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("typestr", self.number.typestr())?;
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
        let value = self.number.bytes as i64;
        let array = dlpack::Array {
            owner: self.owner.clone(),
            address: self.address,
            device: (dlpack::CUDA, self.device as i32),
            number: self.number,
            shape: self.shape.iter().map(|&len| len as i64).collect(),
            strides: self.strides.iter().map(|stride| stride / value).collect(),
            readonly: self.readonly,
        };
        array.export(py, max_version.is_some_and(|(major, _)| major >= 1))
    }
}
