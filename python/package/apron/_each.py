"""A filter for each image of a batch: :func:`apron.batch`."""

import functools
import sys

import numpy as np

from . import _apron, _arrays, _inputs, _layouts
from ._apron import Filter
from ._plan import Plan


def batch(images, filters=None, out=None, *, sigma=None, layout=None, dtype=None, border="reflect101", device=None, **options):
    """Filter each image of a batch with a filter of its own.

    Parameters
    ----------
    images : array
        Images of one size, as an array of any library that :class:`Plan` takes. The first axis
        counts them.
    filters : sequence of Filter or str
        A filter for each image, or its text. Their windows may differ in size.
    out : array, optional
        The array for the results, of the same shape.
    sigma : array_like, optional
        In place of `filters`: the standard deviation of a Gaussian blur for each image, in pixels, or
        two for each: along the columns and along the rows, as for :meth:`Filter.gaussian`.
    layout : str, optional
        The axes: "nhwc" for images, rows, columns and channels, "nchw" for planes, or "nhw" without
        channels. By default "nhw" for three dimensions, and "nchw" for PyTorch's tensors of four.
    dtype : dtype, optional
        The results' type; by default the images'.
    border, device, **options
        As for :class:`Plan`, but no `variant`. By default the device is that of arrays in a GPU's
        memory, and "auto" for others.

    Returns
    -------
    array
        The results: `out`, or a new array of the images' library. Each image is the result of its
        own plan. Images on a GPU are filtered there, in their library's current stream, and the
        results may not be computed yet when the call returns.

    Raises
    ------
    ValueError
        For another number of filters than of images, for a layout that does not describe the images,
        and as :class:`Plan` does.
    TypeError
        Unless one of `filters` and `sigma` is given, and as :class:`Plan` does.
    RuntimeError
        For tensors that require a gradient.

    Notes
    -----
    In a GPU's memory, images whose filters are products of a row and a column, such as Gaussians and
    boxes, go in a few launches for all, whatever the sizes of their windows, unless images have more
    than three million values, or the border is "keep" or "none". Others are filtered one by one.

    The plans of the last calls are kept, with their taps on the GPU.

    Examples
    --------
    >>> import numpy as np, apron
    >>> images = np.random.default_rng(0).random((3, 48, 64), np.float32)
    >>> results = apron.batch(images, sigma=[0.5, 1.0, 2.0])
    >>> plan = apron.Plan(apron.Filter.gaussian(2.0))
    >>> bool((results[2] == plan(images[2])).all())
    True
    """
    if (filters is None) == (sigma is None):
        raise TypeError("pass filters or sigma: a filter for each image, or the sigma of its blur")
    _inputs.check(images, "images")
    _inputs.check(out, "out")
    if "variant" in options:
        raise TypeError("variant is for plans: the images of a batch go through the kernels that take them together")
    is_tensor = _inputs.is_of(images, "torch", "Tensor")
    if not hasattr(images, "shape"):
        images = _inputs.as_array(images, "images")
    layout = layout or {3: "nhw", 4: "nchw" if is_tensor else None}.get(len(images.shape))
    if layout is None:
        raise ValueError(f'images has the shape {tuple(images.shape)}: pass layout="nhwc", "nchw" or "nhw"')
    _layouts.checked(layout, len(images.shape), -1)
    filters = _gaussians(sigma) if filters is None else tuple(filters)
    if len(filters) != images.shape[0]:
        raise ValueError(f"there are {len(filters)} filters and {images.shape[0]} images: as many are needed")
    on_device = _inputs.is_on_device(images)
    if device is None:
        device = f"gpu:{_arrays.device_of(images)}" if on_device else "auto"
    if not filters:
        raise ValueError(f"the images' shape is {tuple(images.shape)}: at least one image is needed")
    if "alpha" in options and not hasattr(images, "__getitem__"):
        raise TypeError(f"alpha is {options['alpha']!r}, and images of type {type(images).__name__} have no indices: filter them one by one")
    described = filters, border, device, tuple(sorted(options.items()))
    if "alpha" not in options:
        if on_device:
            return _on_device(_plans(*described), images, out, dtype, layout)
        result = _on_host(_plans(*described), images, out, dtype, layout)
        if result is not None:
            return result
    return _one_by_one(described, images, out, dtype, layout)


def _gaussians(sigma):
    """The filters of blurs."""
    if _inputs.is_of(sigma, "torch", "Tensor"):
        sigma = sigma.detach().cpu().numpy()
    sigma = np.asarray(sigma.get() if _inputs.is_of(sigma, "cupy", "ndarray") else sigma, np.float64)
    if sigma.ndim not in (1, 2) or sigma.ndim == 2 and sigma.shape[1] != 2:
        raise ValueError(f"sigma has the shape {sigma.shape}: a number or two for each image are needed")
    return tuple(_gaussian(*one) for one in sigma.reshape(len(sigma), -1).tolist())


@functools.lru_cache(maxsize=1024)
def _gaussian(*sigma):
    return Filter.gaussian(sigma[0] if len(sigma) == 1 else sigma)


@functools.lru_cache(maxsize=16)
def _plans(filters, border, device, options):
    """Plans that filter all images by one call."""
    options = dict(options)
    return _apron._Plans([_apron.Plan(one, border, device, **options) for one in filters])


def _on_device(plans, images, out, dtype, layout):
    """Filters arrays in a GPU's memory, in their library's current stream."""
    library = sys.modules.get(type(images).__module__.partition(".")[0])
    source, target, result = _arrays.pair(plans, images, out, -1, dtype, library, layout)
    described = [(*array[:2], *_layouts.described(*array[2:], layout)) for array in (source.described, target.described)]
    plans.enqueue(source.device, *described, source.stream, source.owner)
    return _arrays.returned(result, out, library)


def _on_host(plans, images, out, dtype, layout):
    """Filters arrays in host memory side by side; None if they need a conversion or a copy."""
    array = _inputs.as_array(images, "images")
    if out is not None and dtype is not None:
        raise TypeError("pass out or dtype: the result has out's type")
    if out is None:
        result = np.empty_like(array, dtype=dtype, subok=False)
    else:
        result = _inputs.as_array(out, "out")
    if result.shape != array.shape or not result.flags.writeable:
        return None
    described = [_described(_layouts.pixels(one, layout)) for one in (array, result)]
    if not plans.filter_at(*described):
        return None
    return _arrays.in_library(result, images) if out is None else out


def _described(array):
    return array.ctypes.data, array.dtype.str, array.shape, array.strides


def _one_by_one(described, images, out, dtype, layout):
    """Filters one image after the other."""
    filters, border, device, options = described
    results = []
    for at, one in enumerate(filters):
        into = None if out is None else out[at : at + 1]
        plan = _plan(one, border, device, options)
        results.append(plan(images[at : at + 1], into, layout=layout, dtype=dtype))
    if out is not None:
        return out
    library = sys.modules.get(type(results[0]).__module__.partition(".")[0])
    return (library.cat if hasattr(library, "cat") else library.concatenate)(results)


@functools.lru_cache(maxsize=1024)
def _plan(filter, border, device, options):
    return Plan(filter, border, device, **dict(options))
