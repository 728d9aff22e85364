//! The class `Plan`, and its calls with NumPy's arrays.

use std::sync::{Arc, OnceLock};

use apron::{
    Accuracy, Adjoint, Alpha, Border, Device, ImageView, ImageViewMut, Light, Nan, Number, Pixel,
    Scalar, Variant, with_pixels,
};
use numpy::npyffi::{NPY_ORDER, PY_ARRAY_API};
use numpy::{
    PyArrayDescr, PyArrayDescrMethods, PyReadonlyArray3, PyReadwriteArray3, PyUntypedArray,
    PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyEllipsis};

use crate::array::{self, Axes};
use crate::device::Foreign;
use crate::filter::{Filter, error};
use crate::layout::Layout;
use crate::masked::Arrays;
use crate::threads::without_lock;

/// A filter ready to run on a device, with a rule for pixels outside the image. A plan filters
/// images of any size, from any thread.
///
/// Parameters
/// ----------
/// filter : Filter or str
///     The filter, or its text.
/// border : str, default "reflect101"
///     The rule for pixels outside the image: "constant" (zeros), "constant:VALUE", "replicate",
///     "reflect", "reflect101", "wrap", "keep", which copies the image where the window leaves it,
///     or "none": results come from the pixels inside the image alone.
/// device : str, default "auto"
///     "cpu", "gpu", "gpu:N", "gpu:all", or "auto": for each call the CPU or the first GPU,
///     whichever is predicted to be faster.
/// variant : str, optional
///     The variant to run; by default chosen for each size of image.
/// accuracy : str, optional
///     What the errors of sums may be relative to: "window", the pixels under the window, or
///     "range", the greatest pixels around, which makes wide blurs on a GPU faster. By default
///     "window", except for large filters that are not separable. Bytes of bytes are exact.
/// memory : int, optional
///     Maximum GPU memory of a call for images on the host, in bytes.
/// autotune : bool, default False
///     Whether to measure which variant is fastest on this GPU.
/// alpha : str, optional
///     The treatment of the last channel of an image of two, four or more channels; one and three
///     channels are colours. "filter" filters it like the others. "premultiply" weights the colours
///     by it, so that the colour of transparent pixels does not bleed. "premultiplied" is for
///     colours that are already multiplied by alpha: averages filter every channel, other filters
///     copy alpha. "keep" copies it. "auto" is "premultiply" for averages, whose taps are not
///     negative and sum to 1, and "keep" for other filters. The default is "filter" for arrays,
///     which do not state the meaning of their channels, and "auto" for PIL images, which do.
/// nan : str, default "spread"
///     The treatment of NaN in floating-point numbers, and of what a mask leaves out. "spread": NaN
///     under the window gives NaN. "ignore": NaN is unknown, and every result comes from the known
///     pixels. "fill": likewise, but known pixels are copied. The default leaves out what a mask
///     does alone.
/// unknown : float, default NaN
///     The result where no pixel under the window is known; integers take 0 for NaN.
/// linear : bool or str, default False
///     Whether to filter the light that values stand for: values are decoded, filtered and encoded
///     again. True is for sRGB; "bt709", "gamma=NUMBER", "pq" and "hlg" name other functions. White
///     is 255 for uint8, 65535 for uint16 and 1 for floats.
///
/// Raises
/// ------
/// ValueError
///     For an unknown border, device, variant, accuracy, alpha or nan, a variant that cannot run
///     this filter, or "premultiply" for a filter that is no average.
/// RuntimeError
///     If a GPU was named that cannot be used.
#[pyclass(frozen, subclass, module = "apron", name = "Plan")]
pub(crate) struct Plan {
    pub(crate) plan: Arc<apron::Plan>,
    /// The mode that the user gave.
    alpha: Option<Alpha>,
    filter: Filter,
    border: Border,
    variant: Option<Variant>,
    accuracy: Option<Accuracy>,
    memory: Option<u64>,
    autotune: bool,
    nan: Nan,
    unknown: f64,
    /// The text of the light, unless values are filtered as they are stored.
    linear: Option<String>,
    /// Computed on first use.
    adjoint: OnceLock<Arc<Adjoint>>,
}

/// The text of the light that the user gave.
fn light(linear: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    match linear.extract::<bool>() {
        Ok(linear) => Ok(linear.then(|| "linear".to_owned())),
        Err(_) => linear.extract().map(Some).map_err(|_| {
            let kind = linear.get_type();
            PyTypeError::new_err(format!(
                "linear is of type {kind}: True, False or the name of a function is needed"
            ))
        }),
    }
}

/// A filter, or its text.
fn given(filter: &Bound<'_, PyAny>) -> PyResult<Filter> {
    if let Ok(filter) = filter.cast::<Filter>() {
        return Ok(filter.get().clone());
    }
    let text: String = filter.extract().map_err(|_| {
        let kind = filter.get_type();
        PyTypeError::new_err(format!(
            "filter is of type {kind}: an apron.Filter or the text of one is needed"
        ))
    })?;
    parsed(&text).map(Filter)
}

fn parsed<T: std::str::FromStr<Err = apron::Error>>(text: &str) -> PyResult<T> {
    text.parse().map_err(error)
}

#[pymethods]
impl Plan {
    #[new]
    #[pyo3(signature = (filter, border = "reflect101", device = "auto", *, variant = None, accuracy = None, memory = None, autotune = false, alpha = None, nan = "spread", unknown = f64::NAN, linear = None))]
    #[expect(clippy::too_many_arguments, reason = "named ones, as Python has them")]
    fn new(
        py: Python<'_>,
        filter: &Bound<'_, PyAny>,
        border: &str,
        device: &str,
        variant: Option<&str>,
        accuracy: Option<&str>,
        memory: Option<u64>,
        autotune: bool,
        alpha: Option<&str>,
        nan: &str,
        unknown: f64,
        linear: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let nan = parsed(nan)?;
        let linear = linear.map(light).transpose()?.flatten();
        let filter = given(filter)?;
        let (border, device): (Border, Device) = (parsed(border)?, parsed(device)?);
        let variant = variant.map(parsed::<Variant>).transpose()?;
        let accuracy = accuracy.map(parsed::<Accuracy>).transpose()?;
        let alpha = alpha.map(|text| mode(text, &filter)).transpose()?;
        let builder = apron::Plan::builder(&filter.0)
            .border(border)
            .device(device)
            .variant(variant)
            .accuracy(accuracy)
            .autotune(autotune)
            .nan(nan)
            .unknown(unknown)
            .light(linear.as_deref().map(parsed::<Light>).transpose()?.unwrap_or_default());
        let builder = if let Some(bytes) = memory { builder.memory(bytes) } else { builder };
        let plan = Arc::new(py.detach(|| builder.build()).map_err(error)?);
        let adjoint = OnceLock::new();
        Ok(Self {
            plan,
            alpha,
            filter,
            border,
            variant,
            accuracy,
            memory,
            autotune,
            nan,
            unknown,
            linear,
            adjoint,
        })
    }

    /// The treatment of the last channel; None if the user gave none.
    #[getter]
    fn alpha(&self) -> Option<String> {
        self.alpha.map(|alpha| alpha.to_string())
    }

    /// The same plan with another mode for the last channel.
    fn _with_alpha(&self, alpha: &str) -> PyResult<Self> {
        let alpha = Some(mode(alpha, &self.filter)?);
        let (plan, filter, border) = (self.plan.clone(), self.filter.clone(), self.border);
        Ok(Self {
            plan,
            alpha,
            filter,
            border,
            variant: self.variant,
            accuracy: self.accuracy,
            memory: self.memory,
            autotune: self.autotune,
            nan: self.nan,
            unknown: self.unknown,
            linear: self.linear.clone(),
            adjoint: self.adjoint.clone(),
        })
    }

    /// The treatment of NaN, and of what a mask leaves out.
    #[getter]
    fn nan(&self) -> String {
        self.nan.to_string()
    }

    /// The result where no pixel under the window is known.
    #[getter]
    fn unknown(&self) -> f64 {
        self.unknown
    }

    /// The name of the function by which values stand for light; None if they are filtered as they
    /// are.
    #[getter]
    fn linear(&self) -> Option<&str> {
        self.linear.as_deref()
    }

    /// The filter.
    #[getter]
    fn filter(&self) -> Filter {
        self.filter.clone()
    }

    /// The rule for pixels outside the image.
    #[getter]
    fn border(&self) -> String {
        self.border.to_string()
    }

    /// The plan's device: "auto" if each call chooses between the CPU and the first GPU.
    #[getter]
    fn device(&self) -> String {
        self.plan.device().to_string()
    }

    /// The variant that the user gave; None if the plan chooses one for each size of image.
    #[getter]
    fn variant(&self) -> Option<&'static str> {
        self.variant.map(Variant::name)
    }

    /// The accuracy that the user gave, or None.
    #[getter]
    fn accuracy(&self) -> Option<String> {
        self.accuracy.map(|accuracy| accuracy.to_string())
    }

    /// The device of this thread's last call, if the plan's device is "auto": "cpu" or "gpu:0".
    /// Otherwise the plan's device.
    #[getter]
    fn ran_on(&self) -> String {
        self.plan.ran_on().to_string()
    }

    /// Why "auto" became the CPU, if it did: there is no driver, or the GPU could not be opened or
    /// was lost.
    #[getter]
    fn fallback(&self) -> Option<String> {
        self.plan.fallback().map(ToString::to_string)
    }

    /// The name of the variant that an image of this size runs.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If the plan was made for a variant that cannot run it.
    #[pyo3(signature = (height, width, channels = 1))]
    fn variant_for(&self, height: usize, width: usize, channels: usize) -> PyResult<&'static str> {
        self.plan
            .variant_for(apron::Shape { width, height, channels })
            .map(Variant::name)
            .map_err(error)
    }

    fn __repr__(&self) -> String {
        format!(
            "apron.Plan({}, border={:?}, device={:?})",
            self.filter.described(),
            self.border(),
            self.device()
        )
    }

    /// Pickled with its device, or with "cpu" if there was no GPU for "auto".
    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, (Filter, String, String))> {
        let (py, plan) = (slf.py(), slf.get());
        let options = PyDict::new(py);
        options.set_item("variant", plan.variant())?;
        options.set_item("accuracy", plan.accuracy())?;
        options.set_item("memory", plan.memory)?;
        options.set_item("autotune", plan.autotune)?;
        options.set_item("alpha", plan.alpha())?;
        options.set_item("nan", plan.nan())?;
        options.set_item("unknown", plan.unknown())?;
        options.set_item("linear", plan.linear())?;
        let class = py.import("apron")?.getattr("Plan")?;
        let partial = py.import("functools")?.getattr("partial")?;
        let again = partial.call((class,), Some(&options))?;
        Ok((again, (plan.filter(), plan.border(), plan.device())))
    }

    /// Filter an image.
    ///
    /// The call releases Python's lock: meanwhile no other thread may write to the image or use the
    /// output.
    ///
    /// Parameters
    /// ----------
    /// image : array
    ///     Rows and columns, or rows, columns and channels; channels do not mix. NumPy's arrays,
    ///     arrays of libraries with DLPack, CuPy's and PyTorch's on a GPU, Dask's, and objects that
    ///     NumPy turns into arrays. The types uint8, uint16, float16 and float32 are filtered
    ///     without a conversion. If the image or the result has type float64 or another integer
    ///     type, all arithmetic is in float64, on the CPU.
    /// out : array, optional
    ///     The array for the result, of the same shape and of any of these types. It may be the
    ///     image, but not on a GPU.
    /// axis : int, default -1
    ///     The axis of the channels of an image of three dimensions; 0 for planes.
    /// layout : str, optional
    ///     The axes of a batch of images, which one call filters: "nhwc" for images, rows, columns
    ///     and channels, "nchw" for planes, or "nhw" without channels. A PyTorch tensor of four
    ///     dimensions is "nchw" unless given.
    /// dtype : dtype, optional
    ///     The result's type; by default the image's. float32 keeps a derivative's sign. Integers
    ///     are rounded half to even and saturated.
    /// mask : array, optional
    ///     Which pixels are known: bool; uint8, where 0 is unknown, 255 known, and v between weighs
    ///     v/255; or weights as floating-point numbers. Rows and columns, or the image's shape. A
    ///     result is ``sum(w m p) / sum(w m)`` for taps that sum to 1, and ``sum(w m p)`` for
    ///     others. The masked elements of a NumPy masked array are unknown too, and then the result
    ///     is a masked array. The mask is where the image is, in host memory or on its GPU. Weights
    ///     on a GPU are not checked.
    /// weights : array, optional
    ///     A float32 array of the image's shape, which gets ``sum(w m)``.
    ///
    /// Returns
    /// -------
    /// array
    ///     The result: `out`, or a new array of the image's library. An image on a GPU is filtered
    ///     there, in its library's current stream, without a copy. The result may not be computed
    ///     yet when the call returns.
    ///
    /// Notes
    /// -----
    /// A plan reads and writes a view in place if the pixels of each row, or of each plane's rows,
    /// are contiguous. The rows may be any distance apart. Other views are copied once.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     For another number of dimensions, an axis or a layout that does not exist, or an output
    ///     that is read-only or of another shape. For float64 or other integers if the device is a
    ///     GPU. For 64-bit integers beyond 2**53, which float64 does not hold.
    /// TypeError
    ///     For other types.
    /// MemoryError
    ///     If the host or the GPU lacks memory for the call.
    // `layout` is an argument of `apron.Plan`, the class in Python.
    #[pyo3(signature = (image, out = None, *, axis = -1, dtype = None))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        image: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
        axis: isize,
        dtype: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // Exactly NumPy's type: a subclass may have a mask, or mean something else.
        if let (Ok(src), None | Some(Ok(_))) = (
            image.cast_exact::<PyUntypedArray>(),
            out.map(|out| out.cast_exact::<PyUntypedArray>()),
        ) {
            let out = out.and_then(|out| out.cast_exact::<PyUntypedArray>().ok());
            if let Some(result) = slf.get().filtered(src, out, Axes::One(axis), dtype)? {
                return Ok(result);
            }
        }
        static OTHERS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let others = OTHERS.import(slf.py(), "apron._arrays", "call")?;
        others.call1((slf, image, out, axis, dtype))
    }

    /// Filters many images: arrays of images, rows, columns and channels. None if the types need a
    /// conversion.
    #[pyo3(signature = (image, out, dtype))]
    fn _batch<'py>(
        &self,
        image: &Bound<'py, PyUntypedArray>,
        out: Option<&Bound<'py, PyUntypedArray>>,
        dtype: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.filtered(image, out, Axes::Many, dtype)
    }

    /// Filters from one array of another library in host memory into another. Without an axis of
    /// channels, the arrays hold images, rows, columns and channels. False if the arrays need a
    /// conversion or a copy.
    #[pyo3(signature = (source, target, axis))]
    fn _filter_at(
        &self,
        py: Python<'_>,
        source: Foreign,
        target: Foreign,
        axis: Option<isize>,
    ) -> PyResult<bool> {
        let of = |array| Layout::of_foreign(array, axis.into());
        let (Some(source), Some(target)) = (of(&source)?, of(&target)?) else { return Ok(false) };
        let takes = target.scalar == source.scalar || target.scalar == Scalar::F32;
        let alpha = self.mode(source.channels) != Alpha::Filter && !source.interleaved;
        if !takes || alpha || !target.is_like(&source) || source.overlaps(&target) {
            return Ok(false);
        }
        self.run(py, &source, &target)?;
        Ok(true)
    }

    /// Filters images with the adjoint: float32 or float64 arrays of images, rows and columns, in
    /// C's order.
    #[pyo3(signature = (source, target))]
    fn _adjoint(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        target: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let adjoint = match self.adjoint.get() {
            Some(adjoint) => adjoint,
            None => {
                let made = Arc::new(self.plan.adjoint().map_err(error)?);
                self.adjoint.get_or_init(|| made)
            }
        };
        if let (Ok(source), Ok(target)) = (source.extract(), target.extract()) {
            return transposed::<f32>(py, (source, target), |batch| adjoint.run_batch(batch));
        }
        let (source, target) = (source.extract()?, target.extract()?);
        transposed::<f64>(py, (source, target), |batch| adjoint.run_f64_batch(batch))
    }

    /// Filters the known pixels of an image. All arrays have rows, columns and channels, in C's
    /// order, and those that are written share no byte with another.
    #[pyo3(signature = (image, mask, result, weights, known))]
    fn _masked<'py>(
        &self,
        image: &Bound<'py, PyUntypedArray>,
        mask: Option<&Bound<'py, PyUntypedArray>>,
        result: &Bound<'py, PyUntypedArray>,
        weights: Option<&Bound<'py, PyUntypedArray>>,
        known: Option<&Bound<'py, PyUntypedArray>>,
    ) -> PyResult<()> {
        self.masked(image.py(), &Arrays { image, mask, result, weights, known })
    }
}

impl Plan {
    /// Filters NumPy's arrays. Returns `None` for types that need a conversion.
    fn filtered<'py>(
        &self,
        src: &Bound<'py, PyUntypedArray>,
        out: Option<&Bound<'py, PyUntypedArray>>,
        axes: Axes,
        dtype: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.on_host(src, out, axes, dtype)? {
            None => self.in_f64(src, out, axes, dtype),
            found => Ok(found),
        }
    }

    /// Filters an array of a type that kernels take. Returns `None` for other types.
    fn on_host<'py>(
        &self,
        src: &Bound<'py, PyUntypedArray>,
        out: Option<&Bound<'py, PyUntypedArray>>,
        axes: Axes,
        dtype: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = src.py();
        let Some(from) = scalar(&src.dtype()) else { return Ok(None) };
        let wanted = match (out, dtype) {
            (Some(_), Some(_)) => {
                return Err(PyTypeError::new_err("pass out or dtype: the result has out's type"));
            }
            (Some(out), None) => out.dtype(),
            (None, Some(dtype)) => PyArrayDescr::new(py, dtype)?,
            (None, None) => src.dtype(),
        };
        // Each pair of types is an engine of its own in the binary. Results of other types are
        // converted from f32, which gives the same bits.
        let Some(to) = scalar(&wanted).filter(|&to| to == from || to == Scalar::F32) else {
            return Ok(None);
        };
        if let Some(out) = out {
            check_output(src, out)?;
        }
        let Some(source) = Layout::of(src, from, axes)? else {
            return self.on_copy(src, out, axes, dtype);
        };
        if self.mode(source.channels) != Alpha::Filter && !source.interleaved {
            return self.on_pixels(src, out, axes, wanted);
        }
        // Write to the output itself if it holds rows of pixels in memory order and does not
        // overlap the source.
        if let Some(out) = out
            && let Some(target) =
                Layout::of(out, to, axes)?.filter(|target| target.is_like(&source))
            && !array::overlap(src, out)
        {
            self.run(py, &source, &target)?;
            return Ok(Some(out.as_any().clone()));
        }
        let result = like(src, wanted)?;
        let Some(target) = Layout::of(&result, to, axes)?.filter(|target| target.is_like(&source))
        else {
            return self.on_copy(src, out, axes, dtype);
        };
        self.run(py, &source, &target)?;
        Ok(Some(match out {
            Some(out) => {
                out.set_item(PyEllipsis::get(py), &result)?;
                out.as_any().clone()
            }
            None => result.into_any(),
        }))
    }

    /// Filters a copy of the source, whose pixels and rows are contiguous.
    fn on_copy<'py>(
        &self,
        src: &Bound<'py, PyUntypedArray>,
        out: Option<&Bound<'py, PyUntypedArray>>,
        axes: Axes,
        dtype: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let copy = src.py().import("numpy")?.call_method1("copy", (src, "C"))?;
        self.on_host(copy.cast()?, out, axes, dtype)
    }

    /// Filters a copy with interleaved channels: an alpha mode filters the channels of a pixel
    /// together.
    fn on_pixels<'py>(
        &self,
        src: &Bound<'py, PyUntypedArray>,
        out: Option<&Bound<'py, PyUntypedArray>>,
        axes: Axes,
        wanted: Bound<'py, PyArrayDescr>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = src.py();
        let (axis, interleaved) = match axes {
            Axes::One(axis) => (axis, Axes::One(-1)),
            Axes::Many => (-1, Axes::Many),
        };
        let numpy = py.import("numpy")?;
        let moved = |array: &Bound<'py, PyAny>, from: isize, to: isize| {
            numpy.call_method1(
                "ascontiguousarray",
                (numpy.call_method1("moveaxis", (array, from, to))?,),
            )
        };
        let pixels = moved(src.as_any(), axis, -1)?;
        let Some(result) =
            self.on_host(pixels.cast()?, None, interleaved, Some(wanted.as_any()))?
        else {
            return Ok(None);
        };
        let result = moved(&result, -1, axis)?;
        let Some(out) = out else { return Ok(Some(result)) };
        out.set_item(PyEllipsis::get(py), result)?;
        Ok(Some(out.as_any().clone()))
    }

    /// The alpha mode for an image with this number of channels.
    pub(crate) fn mode(&self, channels: usize) -> Alpha {
        match channels {
            // One and three channels are colours alone.
            1 | 3 => Alpha::Filter,
            _ => self.alpha.unwrap_or(Alpha::Filter),
        }
    }

    /// Filters an array in f64, if [`Plan::on_host`] does not take its type or the result's.
    /// Returns `None` for types that are not numbers.
    fn in_f64<'py>(
        &self,
        src: &Bound<'py, PyUntypedArray>,
        out: Option<&Bound<'py, PyUntypedArray>>,
        axes: Axes,
        dtype: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = src.py();
        let wanted = match (out, dtype) {
            // The next function reports the error.
            (Some(_), Some(_)) => return Ok(None),
            (Some(out), None) => out.dtype(),
            (None, Some(dtype)) => PyArrayDescr::new(py, dtype)?,
            (None, None) => src.dtype(),
        };
        let (Some(from), Some(to)) = (array::number(&src.dtype()), array::number(&wanted)) else {
            return Ok(None);
        };
        if scalar(&src.dtype()).is_some() && scalar(&wanted).is_some() {
            return Ok(None);
        }
        if let Some(out) = out {
            check_output(src, out)?;
        }
        let sources = array::pictures(src, from, axes)?;
        let result = match out.filter(|out| array::is_apart(out) && !array::overlap(src, out)) {
            Some(out) => out.clone(),
            None => like(src, wanted)?,
        };
        let targets = array::pictures(&result, to, axes)?;
        let alpha = Some(self.mode(sources[0].shape[2])).filter(|&mode| mode != Alpha::Filter);
        let pictures: Vec<_> = sources.into_iter().zip(targets).collect();
        // SAFETY: NumPy's shapes, strides and types describe memory that the arrays keep alive. The
        // two arrays share no byte, and no two values of the result share a byte. The caller
        // promises that no other thread writes to the arrays meanwhile, as for every function of
        // NumPy that releases the lock.
        without_lock(py, || unsafe { self.plan.run_arrays(&pictures, alpha) })?
            .map_err(|found| error(if axes == Axes::Many { found } else { alone(found) }))?;
        Ok(Some(match out {
            Some(out) => {
                if !out.is(&result) {
                    out.set_item(PyEllipsis::get(py), &result)?;
                }
                out.as_any().clone()
            }
            None => result.into_any(),
        }))
    }

    /// Filters between two layouts that share no byte: as one picture, or plane by plane.
    fn run(&self, py: Python<'_>, source: &Layout, target: &Layout) -> PyResult<()> {
        let run: fn(&apron::Plan, &Layout, &Layout, Alpha) -> apron::Result<()> = with_pixels!(source.scalar, S => {
            if target.scalar == source.scalar { run::<S, S> } else { run::<S, f32> }
        });
        let alpha = self.mode(source.channels);
        without_lock(py, || run(&self.plan, source, target, alpha))?
            .map_err(|found| error(if source.images > 1 { found } else { alone(found) }))
    }
}

/// The error of the only image of a batch.
fn alone(error: apron::Error) -> apron::Error {
    match error {
        apron::Error::InBatch { error, .. } => *error,
        error => error,
    }
}

fn run<S: Pixel, D: Pixel>(
    plan: &apron::Plan,
    source: &Layout,
    target: &Layout,
    alpha: Alpha,
) -> apron::Result<()> {
    // SAFETY: the caller of `Plan::run` keeps the arrays alive, and has checked that they share no
    // byte. Python's caller promises that no other thread writes to them meanwhile, as for every
    // function of NumPy that releases the lock. Two parts of the target are views at the same time
    // only if they share no byte, not even between their rows.
    let mut pictures = unsafe { source.pictures_with::<S, D>(target) };
    if alpha == Alpha::Filter && source.images * source.planes() > 1 && target.is_apart() {
        return plan.run_batch(&mut pictures.collect::<apron::Result<Vec<_>>>()?);
    }
    pictures.try_for_each(|picture| {
        let (src, mut dst) = picture?;
        match alpha {
            Alpha::Filter => plan.run(&src, &mut dst),
            alpha => plan.run_with_alpha(&src, &mut dst, alpha),
        }
    })
}

/// Runs an adjoint over images, rows and columns.
fn transposed<T: Number + numpy::Element>(
    py: Python<'_>,
    (source, mut target): (PyReadonlyArray3<'_, T>, PyReadwriteArray3<'_, T>),
    run: impl FnOnce(&mut [(ImageView<'_, T>, ImageViewMut<'_, T>)]) -> apron::Result<()> + Send,
) -> PyResult<()> {
    let &[images, height, width] = source.shape() else { return Ok(()) };
    if target.shape() != source.shape() {
        return Err(PyValueError::new_err(format!(
            "the images' shape is {:?} and the output's {:?}: they must be the same",
            source.shape(),
            target.shape()
        )));
    }
    let (source, target) = (source.as_slice()?, target.as_slice_mut()?);
    without_lock(py, || {
        let len = height * width;
        let mut batch = Vec::with_capacity(images);
        for (src, dst) in source.chunks_exact(len.max(1)).zip(target.chunks_exact_mut(len.max(1))) {
            batch.push((
                ImageView::new(src, width, height, 1)?,
                ImageViewMut::new(dst, width, height, 1)?,
            ));
        }
        run(&mut batch)
    })?
    .map_err(error)
}

/// Parses an alpha mode that keeps the image's shape.
fn mode(text: &str, filter: &Filter) -> PyResult<Alpha> {
    match text.parse() {
        Ok(Alpha::Premultiply) if !filter.0.is_average() => Err(PyValueError::new_err(
            "alpha is premultiply: auto, premultiplied, keep or filter is needed for filters whose taps are negative or do not sum to 1",
        )),
        Ok(Alpha::Drop | Alpha::Flatten(_)) | Err(_) => Err(PyValueError::new_err(format!(
            "alpha is {text:?}: one of auto, premultiply, premultiplied, keep, filter is needed"
        ))),
        Ok(mode) => Ok(mode),
    }
}

/// # Errors
/// `ValueError` if the output has another shape, or is read-only.
fn check_output(src: &Bound<'_, PyUntypedArray>, out: &Bound<'_, PyUntypedArray>) -> PyResult<()> {
    if out.shape() != src.shape() {
        let shapes =
            format!("the image's shape is {:?} and the output's {:?}", src.shape(), out.shape());
        return Err(PyValueError::new_err(format!("{shapes}: they must be the same")));
    }
    array::check_writeable(out)
}

/// A type that kernels take; `None` for others.
pub(crate) fn scalar(dtype: &Bound<'_, PyArrayDescr>) -> Option<Scalar> {
    if dtype.is_native_byteorder() == Some(false) {
        return None;
    }
    let numpy = format!("{}{}", char::from(dtype.kind()), dtype.itemsize());
    Scalar::ALL.iter().copied().find(|scalar| scalar.numpy() == numpy)
}

/// A new array of the same shape and order of axes.
fn like<'py>(
    array: &Bound<'py, PyUntypedArray>,
    dtype: Bound<'py, PyArrayDescr>,
) -> PyResult<Bound<'py, PyUntypedArray>> {
    let py = array.py();
    // SAFETY: NumPy reads the array, takes the reference to the type, and returns a new array or
    // null with an exception set.
    let new = unsafe {
        let order = NPY_ORDER::NPY_KEEPORDER;
        let new = PY_ARRAY_API.PyArray_NewLikeArray(
            py,
            array.as_array_ptr(),
            order,
            dtype.into_dtype_ptr(),
            0,
        );
        Bound::from_owned_ptr_or_err(py, new)?
    };
    Ok(new.cast_into()?)
}
