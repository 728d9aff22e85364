"""Filters on Dask arrays: images that are larger than a machine's memory, on all machines of a cluster.

:func:`filter` runs a filter of apron's; the functions of :mod:`apron.ndimage` take Dask arrays too. Each block gets the rows and columns around it
that its windows reach. At the image's edges it gets none, so that apron's own border applies there, with the same result as for
the whole image at once. Where a border wraps, the image is padded with its other end first.

Blocks are NumPy's or CuPy's. On GPUs, run one worker for each, as ``dask-cuda`` does: a worker's plan runs on the first GPU that it sees.
"""

import functools
import math
import operator

import dask.array as da
import numpy as np

from . import _apron, ndimage

__all__ = ["filter"]


def _wrapped(array, axis, depth):
    """The array with `depth` elements of its other end before and behind it."""
    size = array.shape[axis]
    if depth > size:
        return da.take(array, np.arange(-depth, size + depth) % size, axis)
    ends = [slice(None)] * array.ndim
    ends[axis] = slice(size - depth, None)
    before = array[tuple(ends)]
    ends[axis] = slice(None, depth)
    behind = array[tuple(ends)]
    chunks = array.chunks[axis]
    chunks = (chunks[0] + depth, *chunks[1:-1], chunks[-1] + depth) if len(chunks) > 1 else (size + 2 * depth,)
    return da.concatenate([before, array, behind], axis).rechunk({axis: chunks})


def _blockwise(run, array, depths, wraps, dtype):
    """``run`` on each block and what lies around it; the results without that. `depths` and `wraps` are for each axis."""
    inner = []
    depths = list(depths)
    for axis, (depth, wraps_here) in enumerate(zip(depths, wraps)):
        if depth and wraps_here:
            array = _wrapped(array, axis, depth)
            inner.append(slice(depth, -depth))
        else:
            inner.append(slice(None))
        # A block's own rows and those of one neighbour must hold what a reflection shows: blocks have at least `depth`.
        if depth and len(array.chunks[axis]) > 1 and array.shape[axis] < 2 * depth:
            array = array.rechunk({axis: -1})
        if len(array.chunks[axis]) == 1:
            depths[axis] = 0
    meta = array._meta.astype(dtype)
    if any(depths):
        result = da.map_overlap(
            run,
            array,
            depth=dict(enumerate(depths)),
            boundary="none",
            trim=True,
            allow_rechunk=True,
            dtype=dtype,
            meta=meta,
        )
    else:
        result = da.map_blocks(run, array, dtype=dtype, meta=meta)
    return result[tuple(inner)]


@functools.lru_cache(maxsize=16)
def _plan(filter, border, device, variant):
    """A worker's plan for all blocks."""
    return _apron.Plan(filter, border, device, variant=variant)


def _filter_block(block, filter, border, device, variant, axis, dtype):
    return _plan(filter, border, device, variant)(block, axis=axis, dtype=dtype)


def filter(array, filter, border="reflect101", device="auto", *, axis=-1, dtype=None, variant=None):
    """Filter an image in blocks.

    Parameters
    ----------
    array : dask.array.Array
        Rows and columns, or these and channels, of a type that :class:`apron.Plan` takes.
    filter : Filter, str or Plan
        The filter. A plan brings its border, its device and its variant with it.
    border : str, default "reflect101"
        What lies outside the image, as for :class:`apron.Plan`.
    device : str, default "auto"
        Where each worker filters: "cpu", "gpu", or "auto": for each block the CPU or the first GPU that it sees, whichever is predicted to be faster.
    axis : int, default -1
        The axis of the channels.
    dtype : dtype, optional
        The result's type; the image's unless given.
    variant : str, optional
        The variant to run. On the CPU it is the one that the whole image would run, so that each bit of the result is the same; but
        for results of type float32 of Fourier variants, which depend on a block's size in their last bits.

    Returns
    -------
    dask.array.Array
        The filtered image, not computed yet, of the same shape. Blocks that are smaller than the window are merged.

    Raises
    ------
    ValueError
        If the image has another number of dimensions, or there is no such axis.
    """
    if isinstance(filter, _apron.Plan):
        filter, border, device, variant = filter.filter, filter.border, filter.device, variant or filter.variant
    if not isinstance(filter, _apron.Filter):
        filter = _apron.Filter(filter)
    if array.ndim not in (2, 3):
        raise ValueError(f"the image has {array.ndim} dimensions: 2 or 3 are needed (rows, columns, channels)")
    if array.ndim == 3 and not -3 <= axis <= 2:
        raise ValueError(f"axis is {axis}: from -3 to 2 for three dimensions")
    dtype = np.dtype(array.dtype if dtype is None else dtype)
    sides = [at for at in range(array.ndim) if array.ndim == 2 or at != axis % 3]
    if device == "cpu" and variant is None:
        height, width = (array.shape[at] for at in sides)
        channels = math.prod(array.shape) // max(height * width, 1)
        variant = _plan(str(filter), border, device, None).variant_for(height, width, channels)
    depths = [0] * array.ndim
    for at, size, anchor in zip(sides, filter.shape, filter.anchor[::-1]):
        depths[at] = max(anchor, size - 1 - anchor)
    run = functools.partial(
        _filter_block, filter=str(filter), border=border, device=device, variant=variant, axis=axis, dtype=dtype
    )
    return _blockwise(run, array, depths, [border == "wrap"] * array.ndim, dtype)


def _dtype(array, output):
    """The result's type, by SciPy's argument `output`."""
    if output is None:
        return array.dtype
    if isinstance(output, (str, type, np.dtype)):
        return np.dtype(output)
    raise TypeError("output is an array: a Dask array's result is computed later, so it is a type or None here")


def _of_scipy(name, block, args, kwargs):
    return getattr(ndimage, name)(block, *args, **kwargs)


def _scipy(function, array, depths, modes, dtype, *args, **kwargs):
    run = functools.partial(_of_scipy, function.__name__, args=args, kwargs=kwargs)
    return _blockwise(run, array, depths, [mode in ("wrap", "grid-wrap") for mode in modes], dtype)


def _along_axis(function, array, taps, axis, output, mode, cval, origin):
    dtype = _dtype(array, output)
    axis = ndimage._axis(axis, array.ndim)
    size = taps if function is ndimage.uniform_filter1d else len(taps)
    depths = [0] * array.ndim
    depths[axis] = size // 2 + abs(origin)
    return _scipy(function, array, depths, [mode] * array.ndim, dtype, taps, axis, dtype, mode, cval, origin)


def _on_axes(array, axes, *values):
    """The axes to filter along, and a list for each of the values: one element an axis of the array, None where it is not filtered."""
    axes = ndimage._axes(axes, array.ndim)
    lists = []
    for value in values:
        each = [None] * array.ndim
        for axis, element in zip(axes, ndimage._each(value, len(axes))):
            each[axis] = element
        lists.append(each)
    return axes, lists


def _radii(sigmas, radii, truncate):
    def radius(sigma, radius):
        if not sigma or sigma <= 1e-15:
            return 0
        return int(truncate * float(sigma) + 0.5) if radius is None else operator.index(radius)

    return [radius(*each) for each in zip(sigmas, radii)]


def _gaussian_filter(array, sigma, order, output, mode, cval, truncate, *, radius, axes):
    dtype = _dtype(array, output)
    _, (sigmas, modes, radii) = _on_axes(array, axes, sigma, mode, radius)
    depths = _radii(sigmas, radii, truncate)
    return _scipy(
        ndimage.gaussian_filter,
        array,
        depths,
        modes,
        dtype,
        sigma,
        order,
        dtype,
        mode,
        cval,
        truncate,
        radius=radius,
        axes=axes,
    )


def _of_gaussian(function, array, sigma, output, mode, cval, axes, kwargs):
    dtype = _dtype(array, output)
    _, (sigmas, modes) = _on_axes(array, axes, sigma, mode)
    radii = ndimage._each(kwargs.get("radius"), array.ndim)
    depths = _radii(sigmas, radii, kwargs.get("truncate", 4.0))
    return _scipy(function, array, depths, modes, dtype, sigma, dtype, mode, cval, axes=axes, **kwargs)


def _derivative(array, axis, output, mode, cval, smoothing):
    dtype = _dtype(array, output)
    function = ndimage.sobel if smoothing == [1, 2, 1] else ndimage.prewitt
    modes = ndimage._each(mode, array.ndim)
    return _scipy(function, array, [1] * array.ndim, modes, dtype, axis, dtype, mode, cval)


def _laplace(array, output, mode, cval, *, axes):
    dtype = _dtype(array, output)
    _, (depths, modes) = _on_axes(array, axes, 1, mode)
    return _scipy(ndimage.laplace, array, [depth or 0 for depth in depths], modes, dtype, dtype, mode, cval, axes=axes)


def _window(function, array, weights, output, mode, cval, origin, axes):
    dtype = _dtype(array, output)
    weights = np.asarray(weights)
    axes, (origins,) = _on_axes(array, axes, origin)
    depths = [0] * array.ndim
    for axis, size in zip(axes, weights.shape):
        depths[axis] = size // 2 + abs(origins[axis])
    return _scipy(function, array, depths, [mode] * array.ndim, dtype, weights, dtype, mode, cval, origin, axes=axes)


def _uniform_filter(array, size, output, mode, cval, origin, *, axes):
    dtype = _dtype(array, output)
    _, (sizes, origins, modes) = _on_axes(array, axes, size, origin, mode)
    depths = [0 if size is None else int(size) // 2 + abs(origin) for size, origin in zip(sizes, origins)]
    return _scipy(ndimage.uniform_filter, array, depths, modes, dtype, size, dtype, mode, cval, origin, axes=axes)
