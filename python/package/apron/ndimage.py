"""SciPy's linear filters, by SciPy's names, with SciPy's arguments and SciPy's results.

Every function has the arguments and the result of the function with the same name in
:mod:`scipy.ndimage`. Sums are f64, in SciPy's order, and each pass converts its result to the
output's type as C does. So results are SciPy's bit for bit: 8-bit Gaussians lose their fraction
twice. Passes run on all cores, without Python's global lock.

Arrays have any number of dimensions and SciPy's types: bool, integers of 8 to 64 bits, float32,
float64, and complex. The functions that pass over one axis at a time also take Dask arrays (see
:mod:`apron.dask`).

All functions take arrays in a GPU's memory, such as those of CuPy and PyTorch, and filter them
there, in their library's current stream, with the same results. The result is an array of the same
library, or a :class:`apron.DeviceArray` if that library is not known. Such arrays are real.

Within ``with precision("f32")`` arrays of float32 are added up in f32, which is faster: see
:func:`precision`.
"""

import functools
import numbers
import operator
import warnings

import numpy as np

from . import _apron, _axes, _device_arrays, _singles
from ._axes import axes_from_0, axis_from_0, per_axis
from ._device_arrays import Array, takes_device_arrays
from ._inputs import as_array
from ._singles import precision as precision

# SciPy's names, which a star imports. `precision` is apron's own.
__all__ = [
    "convolve",
    "convolve1d",
    "correlate",
    "correlate1d",
    "gaussian_filter",
    "gaussian_filter1d",
    "gaussian_gradient_magnitude",
    "gaussian_laplace",
    "generic_gradient_magnitude",
    "generic_laplace",
    "laplace",
    "prewitt",
    "sobel",
    "uniform_filter",
    "uniform_filter1d",
]


def _native(array):
    """The array in this machine's byte order."""
    if array.dtype.isnative:
        return array
    return array.astype(array.dtype.newbyteorder("="))


def _input(array):
    """NumPy's array of an input, or the input if it is a Dask array or a device array."""
    if isinstance(array, Array):
        return array
    if not _is_dask(array):
        return as_array(array, "input")
    from . import dask

    return dask.checked(array, "input")


def _output(output, input, complex_output=False):
    """The array for the result: the one given, or a new one of the given type or the input's.

    For a Dask array, the result's type.
    """
    if _is_dask(input):
        from . import dask

        return dask.result_type(input, output, lambda none: _output(output, none, complex_output))
    if isinstance(input, Array) and complex_output:
        raise TypeError("a device array is filtered by real weights: filter by their parts")
    new = input.like if isinstance(input, Array) else functools.partial(np.zeros, input.shape)
    if output is None:
        return new(np.promote_types(input.dtype, np.complex64) if complex_output else input.dtype.newbyteorder("="))
    if isinstance(output, (type, np.dtype)):
        if complex_output and np.dtype(output).kind != "c":
            warnings.warn("promoting specified output dtype to complex", stacklevel=3)
            output = np.promote_types(output, np.complex64)
        return new(output)
    if isinstance(output, str):
        output = np.dtype(output)
        if complex_output and output.kind != "c":
            raise RuntimeError("output must have complex dtype")
        if not issubclass(output.type, np.number):
            raise RuntimeError("output must have numeric dtype")
        return new(output)
    if not isinstance(output, Array):
        output = as_array(output, "output")
    if output.shape != input.shape:
        raise RuntimeError("output shape not correct")
    if complex_output and output.dtype.kind != "c":
        raise RuntimeError("output must have complex dtype")
    return output


def _to_native(output, run):
    """Calls `run` with the output, or with a temporary array if the output's bytes are swapped."""
    if output.dtype.isnative:
        run(output)
    else:
        temporary = _native(output)
        run(temporary)
        output[...] = temporary


def _by_parts(run, input, weights, output, cval):
    """A complex result from parts: ``run(input, weights, output, cval)`` filters real arrays."""
    if input.dtype.kind == "c" and weights.dtype.kind == "c":
        part = np.empty(output.shape, output.real.dtype)
        run(input.real, weights.real, output.real, np.real(cval))
        run(input.imag, weights.imag, part, np.imag(cval))
        output.real -= part
        run(input.real, weights.imag, output.imag, np.real(cval))
        run(input.imag, weights.real, part, np.imag(cval))
        output.imag += part
    elif input.dtype.kind == "c":
        run(input.real, weights, output.real, np.real(cval))
        run(input.imag, weights, output.imag, np.imag(cval))
    else:
        if np.iscomplexobj(cval):
            raise ValueError("Cannot provide a complex-valued cval when the input is real.")
        run(input, weights.real, output.real, cval)
        run(input, weights.imag, output.imag, cval)
    return output


def _passes(input, output, passes):
    """Runs each of ``passes(source, target)`` on the result of the one before.

    Each pass stores its result in the output's type.
    """
    if _is_dask(input):
        from . import dask

        return dask.passes(input, output, passes)
    if not passes:
        output[...] = input
        return output
    new = output.like if isinstance(output, Array) else functools.partial(np.empty_like, output)
    _axes.in_turns(input, output, passes, new)
    return output


def _along(input, output, windows, modes, cval):
    """Correlates along axes, one after the other: `windows` and `modes` are those of each axis."""
    if len(set(modes.values())) == 1:
        mode = next(iter(modes.values()))
        if _singles.takes(input, output, windows.values(), mode):
            return _singles.passes(input, output, {axis: (taps, 0) for axis, taps in windows.items()}, mode, cval)

    def along(axis, taps):
        return lambda source, target: correlate1d(source, taps, axis, target, modes[axis], cval, 0)

    return _passes(input, output, [along(*window) for window in windows.items()])


@takes_device_arrays
def correlate1d(input, weights, axis=-1, output=None, mode="reflect", cval=0.0, origin=0):
    """Correlate along one axis.

    Parameters
    ----------
    input : array_like
        An array of any shape.
    weights : array_like
        The taps, one-dimensional.
    axis : int, default -1
        The axis that the taps lie along.
    output : array or dtype, optional
        The array for the result, or the result's type; the input's type unless given.
    mode : str, default "reflect"
        The rule for elements outside the array: "reflect" (``dcba|abcd|dcba``), "mirror"
        (``dcb|abcd|cba``), "nearest", "wrap" or "constant".
    cval : scalar, default 0.0
        The value outside, for "constant".
    origin : int, default 0
        The distance of the window's anchor from its middle, to the left.

    Returns
    -------
    ndarray
        The result, of the input's shape.

    Raises
    ------
    RuntimeError
        If there are no taps, or for an unknown mode or type.
    ValueError
        If the origin lies outside the window.
    """
    if _is_dask(input):
        from . import dask

        weights = as_array(weights, "weights")
        return dask.along_axis(correlate1d, input, weights, weights.size, axis, output, mode, cval, origin)
    input = _input(input)
    weights = as_array(weights, "weights")
    if "c" in (input.dtype.kind, weights.dtype.kind):
        if weights.dtype.kind == "c":
            weights = weights.conj().astype(np.complex128, copy=False)
        output = _output(output, input, complex_output=True)

        def run(input, weights, output, cval):
            correlate1d(input, weights, axis, output, mode, cval, origin)

        return _by_parts(run, input, weights, output, cval)
    output = _output(output, input)
    weights = np.asarray(weights, np.float64)
    if weights.ndim != 1 or weights.shape[0] < 1:
        raise RuntimeError("no filter weights given")
    axis = axis_from_0(axis, input.ndim)
    size = len(weights)
    if not -(size // 2) <= origin <= (size - 1) // 2:
        raise ValueError("Invalid origin; origin must satisfy -(len(weights) // 2) <= origin <= (len(weights)-1) // 2")
    if _singles.takes(input, output, [weights], mode):
        return _singles.passes(input, output, {axis: (weights, origin)}, mode, cval)
    if input.dtype.isnative and output.dtype.isnative:
        _apron.correlate1d(input, weights, axis, output, mode, cval, origin)
    else:
        _to_native(output, lambda target: _apron.correlate1d(_native(input), weights, axis, target, mode, cval, origin))
    return output


@takes_device_arrays
def convolve1d(input, weights, axis=-1, output=None, mode="reflect", cval=0.0, origin=0):
    """Convolve along one axis: :func:`correlate1d` with the taps reversed.

    Parameters
    ----------
    input, weights, axis, output, mode, cval, origin
        As for :func:`correlate1d`.

    Returns
    -------
    ndarray
        The result, of the input's shape.
    """
    weights = as_array(weights, "weights")[::-1]
    origin = -origin
    if len(weights) % 2 == 0:
        origin -= 1
    if weights.dtype.kind == "c":
        # The correlation conjugates the weights.
        weights = weights.conj()
    return correlate1d(input, weights, axis, output, mode, cval, origin)


def _gaussian_taps(sigma, order, radius):
    """Samples of a Gaussian, or of its derivative of the given order."""
    if order < 0:
        raise ValueError("order must be non-negative")
    x = np.arange(-radius, radius + 1)
    variance = sigma * sigma
    taps = np.exp(-0.5 / variance * x**2)
    taps = taps / taps.sum()
    if order == 0:
        return taps
    # A derivative is q(x) times the Gaussian, and (q g)' = (q' - q x / variance) g: a matrix on the
    # coefficients of q.
    powers = np.arange(order + 1)
    derive = np.diag(powers[1:], 1) + np.diag(np.ones(order) / -variance, -1)
    q = np.zeros(order + 1)
    q[0] = 1
    for _ in range(order):
        q = derive.dot(q)
    return (x[:, None] ** powers).dot(q) * taps


def _gaussian_window(sigma, order, truncate, radius):
    """The taps of a Gaussian or its derivative, as a correlation takes them."""
    if radius is None:
        radius = int(truncate * float(sigma) + 0.5)
    if not isinstance(radius, numbers.Integral) or radius < 0:
        raise ValueError("Radius must be a nonnegative integer.")
    taps = _kept_gaussian_taps if isinstance(sigma, numbers.Real) else _gaussian_taps
    return taps(sigma, order, radius)[::-1]


# Typed, because the taps of np.float32(1.1) are not those of 1.1.
@functools.lru_cache(maxsize=64, typed=True)
def _kept_gaussian_taps(sigma, order, radius):
    taps = _gaussian_taps(sigma, order, radius)
    taps.flags.writeable = False
    return taps


@takes_device_arrays
def gaussian_filter1d(
    input, sigma, axis=-1, order=0, output=None, mode="reflect", cval=0.0, truncate=4.0, *, radius=None
):
    """Blur along one axis with a Gaussian, or correlate with its derivative.

    Parameters
    ----------
    input : array_like
        An array of any shape.
    sigma : scalar
        The standard deviation, in elements.
    axis : int, default -1
        The axis.
    order : int, default 0
        0 for the Gaussian, 1 for its first derivative, and so on.
    output, mode, cval
        As for :func:`correlate1d`.
    truncate : float, default 4.0
        The radius at which the Gaussian is cut off, in standard deviations.
    radius : int, optional
        The radius at which it is cut off, in elements, instead of `truncate`.

    Returns
    -------
    ndarray
        The result, of the input's shape.

    Raises
    ------
    ValueError
        If the radius is not an integer of at least 0, or the order is negative.
    """
    return correlate1d(input, _gaussian_window(sigma, order, truncate, radius), axis, output, mode, cval, 0)


@takes_device_arrays
def gaussian_filter(
    input, sigma, order=0, output=None, mode="reflect", cval=0.0, truncate=4.0, *, radius=None, axes=None
):
    """Blur with a Gaussian, one axis after the other.

    Parameters
    ----------
    input : array_like
        An array of any shape.
    sigma, order, mode, radius : scalar or sequence
        As for :func:`gaussian_filter1d`: one value for all axes, or one for each.
    output, cval, truncate
        As for :func:`gaussian_filter1d`. The result of each pass has the output's type.
    axes : int or tuple of int, optional
        The axes to filter along; by default all. Sequences have one element for each of them.

    Returns
    -------
    ndarray
        The result, of the input's shape.

    Raises
    ------
    RuntimeError
        If a sequence does not have one element for each axis.
    """
    input = _input(input)
    output = _output(output, input)
    axes = axes_from_0(axes, input.ndim)
    given = zip(*(per_axis(value, len(axes)) for value in (axes, sigma, order, mode, radius)))
    given = [each for each in given if each[1] > 1e-15]
    windows = {axis: _gaussian_window(sigma, order, truncate, radius) for axis, sigma, order, _, radius in given}
    return _along(input, output, windows, {axis: mode for axis, _, _, mode, _ in given}, cval)


def _derivative(input, axis, output, mode, cval, smoothing):
    """A difference along one axis, smoothed along the others."""
    input = _input(input)
    axis = axis_from_0(axis, input.ndim)
    output = _output(output, input)
    modes = dict(enumerate(per_axis(mode, input.ndim)))
    others = {other: np.array(smoothing, float) for other in range(input.ndim) if other != axis}
    return _along(input, output, {axis: np.array([-1.0, 0, 1])} | others, modes, cval)


@takes_device_arrays
def sobel(input, axis=-1, output=None, mode="reflect", cval=0.0):
    """Sobel's derivative along one axis: ``-1 0 1`` there, ``1 2 1`` along all others.

    Parameters
    ----------
    input, axis, output, cval
        As for :func:`correlate1d`.
    mode : str or sequence of str
        As for :func:`correlate1d`: one mode for all axes, or one for each.

    Returns
    -------
    ndarray
        The result, of the input's shape. In an unsigned type, negative values wrap.
    """
    return _derivative(input, axis, output, mode, cval, [1, 2, 1])


@takes_device_arrays
def prewitt(input, axis=-1, output=None, mode="reflect", cval=0.0):
    """Prewitt's derivative along one axis: ``-1 0 1`` there, ``1 1 1`` along all others.

    Parameters
    ----------
    input, axis, output, mode, cval
        As for :func:`sobel`.

    Returns
    -------
    ndarray
        The result, of the input's shape. In an unsigned type, negative values wrap.
    """
    return _derivative(input, axis, output, mode, cval, [1, 1, 1])


def _combined(input, derivative, output, mode, cval, arguments, keywords, axes, squared):
    """The sum of a function's results along each axis, or of their squares."""
    input = _input(input)
    output = _output(output, input)
    axes = axes_from_0(axes, input.ndim)
    keywords = keywords or {}
    modes = per_axis(mode, len(axes)) if axes else []

    def part(at, output):
        if not isinstance(input, Array):
            return derivative(input, axes[at], output, modes[at], cval, *arguments, **keywords)
        output = output.array if isinstance(output, Array) else output
        return Array(derivative(input.array, axes[at], output, modes[at], cval, *arguments, **keywords), input)

    if _is_dask(input):
        from . import dask

        return dask.combined(input, [part(at, output) for at in range(len(axes))], output, squared)
    if not axes:
        output[...] = input
        return output
    on_device = isinstance(input, Array)
    if (_apron.overlap if on_device else np.may_share_memory)(input, output):
        # Every axis reads the input, so the output must not overwrite it.
        input = input.copy()
    part(0, output)
    added = _device_arrays.added if on_device else _axes.added
    return added(output, (part(at, output.dtype) for at in range(1, len(axes))), squared)


@takes_device_arrays
def generic_laplace(
    input, derivative2, output=None, mode="reflect", cval=0.0, extra_arguments=(), extra_keywords=None, *, axes=None
):
    """The sum of second derivatives along all axes, computed by the given function.

    Parameters
    ----------
    input : array_like
        An array of any shape.
    derivative2 : callable
        ``derivative2(input, axis, output, mode, cval, *extra_arguments, **extra_keywords)``; its
        `output` is an array or a type.
    output, mode, cval, axes
        As for :func:`gaussian_filter`.
    extra_arguments, extra_keywords
        Further arguments for the function.

    Returns
    -------
    ndarray
        The result, of the input's shape.
    """
    return _combined(input, derivative2, output, mode, cval, extra_arguments, extra_keywords, axes, squared=False)


@takes_device_arrays
def laplace(input, output=None, mode="reflect", cval=0.0, *, axes=None):
    """The Laplacian by second differences, ``1 -2 1`` along each axis.

    Parameters
    ----------
    input, output, mode, cval, axes
        As for :func:`gaussian_filter`.

    Returns
    -------
    ndarray
        The result, of the input's shape.
    """
    def second(input, axis, output, mode, cval):
        return correlate1d(input, [1, -2, 1], axis, output, mode, cval, 0)

    return generic_laplace(input, second, output, mode, cval, axes=axes)


def _sigmas(sigma, axes, dims):
    """A standard deviation for each dimension: 0 for axes that are not filtered."""
    sigmas = [0] * dims
    for axis, value in zip(axes, per_axis(sigma, len(axes))):
        sigmas[axis] = value
    return sigmas


@takes_device_arrays
def gaussian_laplace(input, sigma, output=None, mode="reflect", cval=0.0, *, axes=None, **kwargs):
    """The Laplacian of a Gaussian blur.

    Parameters
    ----------
    input, sigma, output, mode, cval, axes
        As for :func:`gaussian_filter`.
    **kwargs
        Passed to :func:`gaussian_filter`.

    Returns
    -------
    ndarray
        The result, of the input's shape.
    """
    input = _input(input)
    dims = input.ndim
    axes = axes_from_0(axes, dims)
    sigmas = _sigmas(sigma, axes, dims)

    def second(input, axis, output, mode, cval, sigma, **kwargs):
        order = [0] * dims
        order[axis] = 2
        return gaussian_filter(input, sigma, order, output, mode, cval, **kwargs)

    return generic_laplace(input, second, output, mode, cval, (sigmas,), kwargs, axes=axes)


@takes_device_arrays
def generic_gradient_magnitude(
    input, derivative, output=None, mode="reflect", cval=0.0, extra_arguments=(), extra_keywords=None, *, axes=None
):
    """The magnitude of the gradient, whose components the given function computes.

    Parameters
    ----------
    input : array_like
        An array of any shape.
    derivative : callable
        ``derivative(input, axis, output, mode, cval, *extra_arguments, **extra_keywords)``; its
        `output` is an array or a type.
    output, mode, cval, axes
        As for :func:`gaussian_filter`.
    extra_arguments, extra_keywords
        Further arguments for the function.

    Returns
    -------
    ndarray
        The result, of the input's shape.
    """
    return _combined(input, derivative, output, mode, cval, extra_arguments, extra_keywords, axes, squared=True)


@takes_device_arrays
def gaussian_gradient_magnitude(input, sigma, output=None, mode="reflect", cval=0.0, *, axes=None, **kwargs):
    """The magnitude of the gradient of a Gaussian blur.

    Parameters
    ----------
    input, sigma, output, mode, cval, axes
        As for :func:`gaussian_filter`.
    **kwargs
        Passed to :func:`gaussian_filter`.

    Returns
    -------
    ndarray
        The result, of the input's shape.
    """
    input = _input(input)
    dims = input.ndim

    def first(input, axis, output, mode, cval, sigma, **kwargs):
        order = [0] * dims
        order[axis] = 1
        return gaussian_filter(input, sigma, order, output, mode, cval, **kwargs)

    return generic_gradient_magnitude(input, first, output, mode, cval, (sigma,), kwargs, axes=axes)


def _correlate(input, weights, output, mode, cval, origin, convolution, axes):
    if _is_dask(input):
        from . import dask

        function = convolve if convolution else correlate
        return dask.window(function, input, as_array(weights, "weights"), output, mode, cval, origin, axes)
    input = _input(input)
    weights = as_array(weights, "weights")
    if "c" in (input.dtype.kind, weights.dtype.kind):
        if weights.dtype.kind == "c" and not convolution:
            weights = weights.conj()
        output = _output(output, input, complex_output=True)

        def run(input, weights, output, cval):
            _correlate(input, weights, output, mode, cval, origin, convolution, axes)

        return _by_parts(run, input, weights, output, cval)
    axes = axes_from_0(axes, input.ndim)
    weights = np.asarray(weights, np.float64)
    origins = [0] * input.ndim
    for axis, value in zip(axes, per_axis(origin, len(axes))):
        origins[axis] = operator.index(value)
    if len(axes) < input.ndim:
        if weights.ndim != len(axes):
            raise RuntimeError(f"weights.ndim ({weights.ndim}) must match len(axes) ({len(axes)})")
        weights = np.expand_dims(weights, tuple(axis for axis in range(input.ndim) if axis not in axes))
    if weights.ndim != input.ndim or 0 in weights.shape:
        dims = sum(size > 0 for size in weights.shape)
        raise RuntimeError(f"weights.ndim ({dims}) must match len(axes) ({len(axes)})")
    if convolution:
        weights = np.flip(weights)
        origins = [-origin - (size + 1) % 2 for origin, size in zip(origins, weights.shape)]
    for origin, size in zip(origins, weights.shape):
        if not -(size // 2) <= origin <= (size - 1) // 2:
            raise ValueError(
                "Invalid origin; origin must satisfy -(weights.shape[k] // 2) <= origin[k] <= (weights.shape[k]-1) // 2"
            )
    output = _output(output, input)
    if not isinstance(mode, str):
        raise RuntimeError("A sequence of modes is not supported")
    _to_native(output, lambda target: _apron.correlate(_native(input), weights, target, mode, cval, origins))
    return output


@takes_device_arrays
def correlate(input, weights, output=None, mode="reflect", cval=0.0, origin=0, *, axes=None):
    """Correlate with a window of as many dimensions as the array.

    Parameters
    ----------
    input : array_like
        An array of any shape.
    weights : array_like
        The taps. Taps of at most f64's epsilon are left out, as in SciPy.
    output, mode, cval
        As for :func:`correlate1d`.
    origin : int or sequence of int, default 0
        The distance of the window's anchor before its middle: one for all axes, or one for each.
    axes : int or tuple of int, optional
        The axes that the window extends along; by default all.

    Returns
    -------
    ndarray
        The result, of the input's shape.

    Raises
    ------
    RuntimeError
        If the window has another number of dimensions, or for an unknown mode or type.
    ValueError
        If an origin lies outside the window.
    """
    return _correlate(input, weights, output, mode, cval, origin, False, axes)


@takes_device_arrays
def convolve(input, weights, output=None, mode="reflect", cval=0.0, origin=0, *, axes=None):
    """Convolve with a window of as many dimensions as the array.

    This is :func:`correlate` with a flipped window.

    Parameters
    ----------
    input, weights, output, mode, cval, origin, axes
        As for :func:`correlate`.

    Returns
    -------
    ndarray
        The result, of the input's shape.
    """
    return _correlate(input, weights, output, mode, cval, origin, True, axes)


@takes_device_arrays
def uniform_filter1d(input, size, axis=-1, output=None, mode="reflect", cval=0.0, origin=0):
    """The mean of `size` elements along one axis.

    Parameters
    ----------
    input : array_like
        An array of any shape.
    size : int
        The number of elements.
    axis, output, mode, cval, origin
        As for :func:`correlate1d`.

    Returns
    -------
    ndarray
        The result, of the input's shape.

    Raises
    ------
    RuntimeError
        If `size` is below 1.
    ValueError
        If the origin lies outside the window.
    """
    if _is_dask(input):
        from . import dask

        return dask.along_axis(uniform_filter1d, input, size, size, axis, output, mode, cval, origin)
    input = _input(input)
    axis = axis_from_0(axis, input.ndim)
    if size < 1:
        raise RuntimeError("incorrect filter size")
    complex_output = input.dtype.kind == "c"
    output = _output(output, input, complex_output=complex_output)
    if not 0 <= size // 2 + origin < size:
        raise ValueError("invalid origin")
    if complex_output:
        uniform_filter1d(input.real, size, axis, output.real, mode, np.real(cval), origin)
        uniform_filter1d(input.imag, size, axis, output.imag, mode, np.imag(cval), origin)
        return output
    if _singles.takes(input, output, [], mode):
        return _singles.passes(input, output, {axis: (np.full(size, 1 / size), origin)}, mode, cval)
    _to_native(output, lambda target: _apron.uniform_filter1d(_native(input), size, axis, target, mode, cval, origin))
    return output


@takes_device_arrays
def uniform_filter(input, size=3, output=None, mode="reflect", cval=0.0, origin=0, *, axes=None):
    """The mean of a box, one axis after the other.

    Parameters
    ----------
    input : array_like
        An array of any shape.
    size, origin, mode : scalar or sequence
        As for :func:`uniform_filter1d`: one value for all axes, or one for each.
    output, cval
        As for :func:`uniform_filter1d`. The result of each pass has the output's type.
    axes : int or tuple of int, optional
        The axes to filter along; by default all.

    Returns
    -------
    ndarray
        The result, of the input's shape.
    """
    input = _input(input)
    output = _output(output, input, complex_output=input.dtype.kind == "c")
    axes = axes_from_0(axes, input.ndim)
    given = [each for each in zip(*(per_axis(value, len(axes)) for value in (axes, size, origin, mode))) if each[1] > 1]
    if len({mode for *_, mode in given}) == 1 and _singles.takes(input, output, [], given[0][3]):
        if not all(0 <= size // 2 + origin < size for _, size, origin, _ in given):
            raise ValueError("invalid origin")
        windows = {axis: (np.full(int(size), 1 / int(size)), origin) for axis, size, origin, _ in given}
        return _singles.passes(input, output, windows, given[0][3], cval)

    def mean(axis, size, origin, mode):
        return lambda source, target: uniform_filter1d(source, int(size), axis, target, mode, cval, origin)

    return _passes(input, output, [mean(*each) for each in given])


def _is_dask(array):
    return type(array).__module__.startswith("dask.")
