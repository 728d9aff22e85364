"""Passes of :mod:`apron.ndimage` with sums in f32: plans over views of an array.

See :func:`apron.ndimage.precision`.
"""

import contextlib
import contextvars
import functools
import math

import numpy as np

from . import _apron
from ._axes import in_turns
from ._device_arrays import Array, c_strides
from ._plan import Plan

#: How sums are added up: "f64" or "f32".
_sums = contextvars.ContextVar("apron.ndimage.precision", default="f64")

_BORDERS = {
    "reflect": "reflect", "grid-mirror": "reflect", "mirror": "reflect101", "nearest": "replicate",
    "wrap": "wrap", "grid-wrap": "wrap", "constant": "constant", "grid-constant": "constant",
}  # fmt: skip

#: The taps of an axis without a filter.
_ONE = (np.ones(1), 0)


@contextlib.contextmanager
def precision(sums):
    """Choose how the functions of :mod:`apron.ndimage` add up arrays of float32.

    With "f32", sums are f32, in the order of :class:`apron.Plan`, and two neighbouring axes are
    filtered at once. It is several times as fast on a GPU, and up to twice on the CPU. A pass over n
    elements errs by at most ``(n + 4) * 2**-24`` of the sum of ``abs(weight * element)``. It applies to each
    pass along an axis from float32 to float32, if the weights are finite. All other passes keep
    SciPy's sums, and so do :func:`apron.ndimage.correlate` and :func:`apron.ndimage.convolve`.
    Arrays that do not lie in C's order are copied first.

    Parameters
    ----------
    sums : str
        "f32", or "f64" for SciPy's results.

    Returns
    -------
    context manager
        For this thread or task, until its block ends.

    Raises
    ------
    ValueError
        For another name.

    Examples
    --------
    >>> import numpy as np
    >>> from apron import ndimage
    >>> volume = np.random.default_rng(0).random((20, 30, 40), np.float32)
    >>> with ndimage.precision("f32"):
    ...     blurred = ndimage.gaussian_filter(volume, 2)
    >>> bool(np.allclose(blurred, ndimage.gaussian_filter(volume, 2), atol=1e-5))
    True
    """
    if sums not in ("f32", "f64"):
        raise ValueError(f'precision is {sums!r}: "f32" or "f64" is needed')
    token = _sums.set(sums)
    try:
        yield
    finally:
        _sums.reset(token)


def takes(input, output, windows, mode):
    """Whether windows along axes are added up in f32. `windows` has their weights."""
    return (
        _sums.get() == "f32"
        and mode in _BORDERS
        and all(isinstance(array, (np.ndarray, Array)) for array in (input, output))
        and all((array.dtype.kind, array.dtype.itemsize) == ("f", 4) for array in (input, output))
        and math.prod(input.shape) > 0
        and all(np.isfinite(weights).all() for weights in windows)
    )


def _lies_well(array):
    """Whether it lies in C's order."""
    if isinstance(array, Array):
        return array.is_in_c_order()
    return array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative


def _like(array):
    """A new array of the same shape in C's order."""
    return array.like_in_c_order() if isinstance(array, Array) else np.empty(array.shape, np.float32)


def _copied(array):
    copy = _like(array)
    copy[...] = array
    return copy


def passes(input, output, windows, mode, cval):
    """Filter along axes: `windows` has weights and origin for each, by the axis's number."""
    if not windows:
        output[...] = input
        return output
    border = _BORDERS[mode]
    if border == "constant":
        border = f"constant:{float(cval)!r}"
    device = f"gpu:{input.device}" if isinstance(input, Array) else "cpu"

    def step(extents, columns, rows):
        lines = [(taps.tobytes(), len(taps) // 2 + origin) for taps, origin in (columns, rows)]
        plan = _plan(*lines, border, device)
        return lambda source, target: _run(plan, source, target, extents)

    todo = [step(*each) for each in _steps(input.shape, windows, border)]
    result = output if _lies_well(output) else _like(output)
    # The first of an odd number of passes writes to the result.
    overlap = _apron.overlap if isinstance(input, Array) else np.may_share_memory
    is_free = _lies_well(input) and not (len(todo) % 2 and overlap(input, result))
    in_turns(input if is_free else _copied(input), result, todo, lambda: _like(output))
    if result is not output:
        output[...] = result
    return output


def _steps(shape, windows, border):
    """For each pass: images, rows and columns, and windows along a row and down a column.

    The last two axes are one pass, unless the second of two passes finds a constant outside, where
    one pass would find the filtered constant.
    """
    last = len(shape) - 1
    fuses = {last - 1, last} <= set(windows) and (not border.startswith("constant") or float(border[9:]) == 0)
    steps = []
    for axis, window in windows.items():
        images, extent, columns = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
        if axis == last and fuses:
            steps.append(((math.prod(shape[: last - 1]), shape[last - 1], extent), window, windows[last - 1]))
        elif axis == last:
            steps.append(((1, images, extent), window, _ONE))
        elif axis < last - 1 or not fuses:
            steps.append(((images, extent, columns), _ONE, window))
    return steps


@functools.lru_cache(maxsize=64)
def _plan(columns, rows, border, device):
    """The plan for weights along a row and down a column, each with its anchor."""
    (row, x), (column, y) = columns, rows
    filter = _apron.Filter.separable(np.frombuffer(row), np.frombuffer(column), (x, y))
    return Plan(filter, border, device)


def _run(plan, source, target, extents):
    """Filter images of one channel: `extents` are their number, rows and columns."""
    shape = (*extents, 1)
    if not isinstance(source, Array):
        plan._batch(source.reshape(shape), target.reshape(shape), None)
        return
    described = [(*array.described[:2], shape, c_strides(shape, 4)) for array in (source, target)]
    _apron.enqueue(plan, source.device, *described, None, source.stream, source.owner)
