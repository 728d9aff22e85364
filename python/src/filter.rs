//! The class `Filter`.

use numpy::{
    PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyMemoryError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::array;

/// apron's errors as Python's.
pub(crate) fn error(error: apron::Error) -> PyErr {
    use apron::Error;
    let text = error.to_string();
    let cause = match &error {
        Error::InBatch { error, .. } => error,
        error => error,
    };
    match cause {
        Error::HostMemory { .. } | Error::DeviceMemory { .. } => PyMemoryError::new_err(text),
        Error::NoGpu { .. } | Error::NoSuchGpu { .. } | Error::Driver { .. } => {
            PyRuntimeError::new_err(text)
        }
        Error::Io { .. } | Error::Kernels { .. } => PyOSError::new_err(text),
        _ => PyValueError::new_err(text),
    }
}

/// A window of taps, and its anchor: the cell that lies on the output pixel.
///
/// Filters correlate, as SciPy's `correlate` and OpenCV's `filter2D` do: the taps are not flipped.
/// The anchor is the middle, ``size // 2``, unless another one is given. Filters are immutable,
/// hashable, picklable, and equal if they compute the same.
///
/// Pairs are ``(x, y)``, as on the command line: anchors, sizes and standard deviations. So
/// ``gaussian((3, 1))`` blurs more along the rows; :func:`apron.ndimage.gaussian_filter` has
/// SciPy's order, ``(sigma_y, sigma_x)``. Only :attr:`shape` is NumPy's ``(rows, columns)``.
///
/// Parameters
/// ----------
/// text : str
///     A filter as the command line takes it: ``"gaussian:sigma=2"``, ``"sobel-x"``,
///     ``"taps:0 1 0; 1 -4 1; 0 1 0"``, ``"separable:row=1 2 1,column=1 2 1"``. ``@x,y`` at the end
///     gives the anchor.
///
/// Raises
/// ------
/// ValueError
///     If the text is not a filter.
#[pyclass(frozen, eq, hash, module = "apron", name = "Filter", from_py_object)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Filter(pub(crate) apron::Filter);

impl Filter {
    fn of(filter: apron::Result<apron::Filter>) -> PyResult<Self> {
        filter.map(Self).map_err(error)
    }

    /// The Python expression that makes this filter.
    pub(crate) fn described(&self) -> String {
        format!("apron.Filter({:?})", self.0.to_string())
    }
}

#[pymethods]
impl Filter {
    #[new]
    pub(crate) fn new(text: &str) -> PyResult<Self> {
        Self::of(text.parse())
    }

    /// A filter from its taps.
    ///
    /// Parameters
    /// ----------
    /// taps : array_like
    ///     Taps of two dimensions: rows and columns. The constructor detects whether they are the
    ///     product of a row and a column.
    /// anchor : tuple of int, optional
    ///     Column and row of the cell that lies on the output pixel; by default the middle.
    ///
    /// Returns
    /// -------
    /// Filter
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If there are no taps, if one is not finite or too great for a float32, or if the anchor
    ///     is outside the window.
    #[staticmethod]
    #[pyo3(signature = (taps, anchor = None))]
    fn from_taps(taps: &Bound<'_, PyAny>, anchor: Option<(usize, usize)>) -> PyResult<Self> {
        let taps: PyReadonlyArray2<'_, f64> = array::taps(taps, "taps", 2)?.extract()?;
        let (rows, cols) = (taps.shape()[0], taps.shape()[1]);
        let values: Vec<f64> = taps.as_array().iter().copied().collect();
        let filter = apron::Filter::from_taps_f64(cols, rows, &values);
        Self::of(match anchor {
            Some((x, y)) => filter.and_then(|filter| filter.anchored(x, y)),
            None => filter,
        })
    }

    /// The product of a row and a column: tap ``(r, c)`` is ``column[r] * row[c]``.
    ///
    /// Parameters
    /// ----------
    /// row, column : array_like
    ///     Of one dimension.
    /// anchor : tuple of int, optional
    ///     As for :meth:`from_taps`.
    ///
    /// Returns
    /// -------
    /// Filter
    #[staticmethod]
    #[pyo3(signature = (row, column, anchor = None))]
    fn separable(
        row: &Bound<'_, PyAny>,
        column: &Bound<'_, PyAny>,
        anchor: Option<(usize, usize)>,
    ) -> PyResult<Self> {
        let row: PyReadonlyArray1<'_, f64> = array::taps(row, "row", 1)?.extract()?;
        let column: PyReadonlyArray1<'_, f64> = array::taps(column, "column", 1)?.extract()?;
        let filter = apron::Filter::separable_f64(row.as_slice()?, column.as_slice()?);
        Self::of(match anchor {
            Some((x, y)) => filter.and_then(|filter| filter.anchored(x, y)),
            None => filter,
        })
    }

    /// The filter rotated by 180 degrees with its anchor. Its correlation is the original's
    /// convolution.
    fn flipped(&self) -> Self {
        Self(self.0.clone().flipped())
    }

    /// Rows and columns of the window, as NumPy orders them.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        (self.0.rows(), self.0.cols())
    }

    /// Column and row of the cell that lies on the output pixel, from 0.
    #[getter]
    fn anchor(&self) -> (usize, usize) {
        self.0.anchor()
    }

    /// Whether the taps are the product of a row and a column.
    #[getter]
    fn is_separable(&self) -> bool {
        self.0.is_separable()
    }

    /// The taps, of shape (rows, columns) and type float64.
    #[getter]
    fn taps<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let (rows, cols) = self.shape();
        let taps = (0..rows).flat_map(|row| (0..cols).map(move |col| self.0.tap(row, col)));
        PyArray1::from_iter(py, taps).reshape([rows, cols])
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        self.described()
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> (Py<PyAny>, (String,)) {
        (slf.get_type().into_any().unbind(), (slf.get().__str__(),))
    }
}
