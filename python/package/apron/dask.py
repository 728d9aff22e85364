"""Filters on Dask arrays: images larger than a machine's memory, on all machines of a cluster.

:func:`filter` runs a filter of apron's; the functions of :mod:`apron.ndimage` take Dask arrays too.
Each block gets the rows and columns around it that its windows reach. At the image's edges a block
gets none, so that apron's own border applies there. The result is that of the whole image at once.
If a border wraps, the image is first padded with its other end.

Blocks are NumPy's or CuPy's. On GPUs, run one worker for each GPU, as ``dask-cuda`` does: a
worker's plan runs on the first GPU that it sees.
"""

import functools
import math

import dask.array as da
import numpy as np

from . import _apron, _axes, _inputs

__all__ = ["filter"]

#: The types that plans take as they are.
_OWN = {np.dtype(kind) for kind in ("u1", "u2", "f2", "f4")}


def checked(array, name):
    """The Dask array without empty blocks, which some of Dask's functions do not expect.

    The shape must be known.

    Raises
    ------
    TypeError
        For another type, and for blocks that are masked arrays.
    ValueError
        If a size is unknown.
    """
    if not isinstance(array, da.Array):
        kind = f"{type(array).__module__}.{type(array).__qualname__}"
        raise TypeError(f"{name} is of type {kind}, and a dask.array.Array is needed; plans take arrays in memory")
    _inputs.check(array, name)
    if any(math.isnan(size) for size in array.shape):
        raise ValueError(f"the shape of {name} is {array.shape}, with unknown chunks: call compute_chunk_sizes() on it first")
    if 0 not in array.shape and any(0 in sizes for sizes in array.chunks):
        array = array.rechunk(tuple(tuple(size for size in sizes if size) for sizes in array.chunks))
    return array


def _wrapped(array, axis, depth):
    """The array, padded on both sides of an axis with `depth` elements of its other end."""
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
    """Calls ``run`` on each block with its neighbours' elements, and cuts these off the result.

    `depths` and `wraps` have a value for each axis.
    """
    if 0 in array.shape:
        depths = [0] * array.ndim
    inner = []
    depths = list(depths)
    for axis, (depth, wraps_here) in enumerate(zip(depths, wraps)):
        if depth and wraps_here:
            array = _wrapped(array, axis, depth)
            inner.append(slice(depth, -depth))
        else:
            inner.append(slice(None))
        # A reflection shows elements of a block's own rows and of one neighbour's, so blocks have
        # at least `depth` rows.
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
def _plan(filter, border, device, variant, alpha=None, nan="spread", unknown=math.nan, accuracy=None, linear=None):
    """A worker's plan for all blocks."""
    return _apron.Plan(
        filter,
        border,
        device,
        variant=variant,
        accuracy=accuracy,
        alpha=alpha,
        nan=nan,
        unknown=unknown,
        linear=linear,
    )


def _filter_block(block, filter, border, device, variant, alpha, rules, axis, dtype):
    return _plan(filter, border, device, variant, alpha, *rules)(block, axis=axis, dtype=dtype)


def filter(array, filter, border="reflect101", device="auto", *, axis=-1, dtype=None, variant=None, alpha=None):
    """Filter an image in blocks.

    Parameters
    ----------
    array : dask.array.Array
        Rows and columns, or rows, columns and channels, of a type that :class:`apron.Plan` takes.
    filter : Filter, str or Plan
        The filter. A plan also gives its border, device, variant, alpha, nan, unknown,
        accuracy and linear.
    border : str, default "reflect101"
        The rule for pixels outside the image, as for :class:`apron.Plan`.
    device : str, default "auto"
        The device of each worker: "cpu", "gpu", or "auto": for each block the CPU or the first GPU
        that the worker sees, whichever is predicted to be faster.
    axis : int, default -1
        The axis of the channels.
    dtype : dtype, optional
        The result's type; by default the image's.
    variant : str, optional
        The variant to run. On the CPU the default is the whole image's variant, so that the result
        is the same bit for bit. float32 results of Fourier variants are an exception: their last
        bits depend on a block's size.
    alpha : str, optional
        The treatment of the last channel, as for :class:`apron.Plan`. If it is not filtered like
        the others, a block has all channels.

    Returns
    -------
    dask.array.Array
        The filtered image, of the same shape and not computed yet. Blocks smaller than the window
        are merged.

    Raises
    ------
    TypeError
        If `array` is not a Dask array, or is of a type that plans do not take.
    ValueError
        If the image has another number of dimensions, if the axis does not exist, or if chunks are
        unknown.
    """
    array = checked(array, "array")
    rules = ()
    if isinstance(filter, _apron.Plan):
        alpha, rules = alpha or filter.alpha, (filter.nan, filter.unknown, filter.accuracy, filter.linear)
        filter, border, device, variant = filter.filter, filter.border, filter.device, variant or filter.variant
    if not isinstance(filter, _apron.Filter):
        filter = _apron.Filter(filter)
    if array.ndim not in (2, 3):
        raise ValueError(f"the image has {array.ndim} dimensions: 2 or 3 are needed (rows, columns, channels)")
    if array.ndim == 3 and not -3 <= axis <= 2:
        raise ValueError(f"axis is {axis}: a number from -3 to 2 is needed for three dimensions")
    if alpha not in (None, "filter") and array.ndim == 3:
        array = array.rechunk({axis % 3: -1})
    # A call with one pixel raises the errors that a NumPy array would.
    dtype = _plan(str(filter), border, "cpu", None, alpha, *rules)(np.zeros((1,) * array.ndim, array.dtype), dtype=dtype).dtype
    if 0 in array.shape:
        raise ValueError(f"the image's shape is {array.shape}: every extent must be at least 1")
    sides = [at for at in range(array.ndim) if array.ndim == 2 or at != axis % 3]
    # Filters in float64 have no variants, and their bits do not depend on the block.
    if device == "cpu" and variant is None and {array.dtype, dtype} <= _OWN:
        height, width = (array.shape[at] for at in sides)
        channels = math.prod(array.shape) // max(height * width, 1)
        variant = _plan(str(filter), border, device, None, None, *rules).variant_for(height, width, channels)
    depths = [0] * array.ndim
    for at, size, anchor in zip(sides, filter.shape, filter.anchor[::-1]):
        depths[at] = max(anchor, size - 1 - anchor)
    run = functools.partial(
        _filter_block,
        filter=str(filter),
        border=border,
        device=device,
        variant=variant,
        alpha=alpha,
        rules=rules,
        axis=axis,
        dtype=dtype,
    )
    return _blockwise(run, array, depths, [border == "wrap"] * array.ndim, dtype)


def result_type(array, output, of):
    """The type of ``of(array)``, found with an array of this type that has no elements.

    `output` is SciPy's argument.
    """
    if output is not None and not isinstance(output, (str, type, np.dtype)):
        raise TypeError("output is an array: a Dask array's result is computed later, so it is a type or None here")
    return of(np.zeros((0,) * array.ndim, array.dtype)).dtype


def _call(block, function, args, kwargs):
    return function(block, *args, **kwargs)


def _pass(function, array, depths, mode, dtype, *args, **kwargs):
    run = functools.partial(_call, function=function, args=args, kwargs=kwargs)
    return _blockwise(run, array, depths, [mode in ("wrap", "grid-wrap")] * array.ndim, dtype)


def along_axis(function, array, taps, size, axis, output, mode, cval, origin):
    """A Dask array's ``correlate1d`` or ``uniform_filter1d`` of :mod:`apron.ndimage`.

    `size` is the number of taps.
    """
    array = checked(array, "input")
    dtype = result_type(array, output, lambda none: function(none, taps, axis, output, mode, cval, origin))
    axis = _axes.axis_from_0(axis, array.ndim)
    depths = [0] * array.ndim
    depths[axis] = size // 2 + abs(origin)
    return _pass(function, array, depths, mode, dtype, taps, axis, dtype, mode, cval, origin)


def window(function, array, weights, output, mode, cval, origin, axes):
    """A Dask array's ``correlate`` or ``convolve`` of :mod:`apron.ndimage`."""
    array = checked(array, "input")
    dtype = result_type(array, output, lambda none: function(none, weights, output, mode, cval, origin, axes=axes))
    along = _axes.axes_from_0(axes, array.ndim)
    depths = [0] * array.ndim
    # SciPy takes origins in the order of `axes`, but the window's sides in the order of the array's
    # axes.
    for axis, each in zip(along, _axes.per_axis(origin, len(along))):
        depths[axis] = weights.shape[sorted(along).index(axis)] // 2 + abs(each)
    return _pass(function, array, depths, mode, dtype, weights, dtype, mode, cval, origin, axes=axes)


def passes(array, dtype, each):
    """Runs the passes of a function of :mod:`apron.ndimage`, one after the other.

    Each pass takes an array and the result's type.
    """
    if not each:
        return array.astype(dtype)
    if array.dtype.kind == "c" and dtype.kind != "c":
        raise RuntimeError("output must have complex dtype")
    for run in each:
        array = run(array, dtype)
    return array


def combined(array, parts, dtype, squared):
    """The sum of a function's results along each axis, or the root of the sum of their squares."""
    for part in parts:
        if not isinstance(part, da.Array):
            raise TypeError(f"the derivative of a Dask array is of type {type(part).__name__}: it must be a Dask array too")
        if part.dtype.kind == "c" and dtype.kind != "c":
            raise RuntimeError("output must have complex dtype")
    if not parts:
        return array.astype(dtype)
    axes = tuple(range(array.ndim))
    each = [argument for part in parts for argument in (part, axes)]
    # Blocks of parts differ where small ones were merged. Dask gives all parts the same blocks.
    return da.blockwise(_added, axes, *each, squared=squared, dtype=dtype, meta=array._meta.astype(dtype))


def _added(first, *others, squared):
    # Copy, since another task may use the block too.
    return _axes.added(first.copy(), (part.copy() for part in others), squared)
