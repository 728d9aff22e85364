"""OpenCV's linear filters on the CPU, with OpenCV's names, arguments, borders and defaults.

Images are rows and columns, or rows, columns and channels. 8-bit results are correctly rounded.
OpenCV's Gaussian blur is an approximation, so results may differ from OpenCV's by 1. Images of
integers of 32 or 64 bits or of float64, and results of float64, are computed in f64; all others in
f32.

Sizes and anchors are ``(x, y)``, as in OpenCV. A `dst` of the right shape and type is written to
and returned. Any other `dst` stays as it is, and the function returns a new array.
"""

import functools

import numpy as np

from . import _apron, ndimage
from ._arrays import stored
from ._inputs import as_array, as_taps, check

__all__ = ["GaussianBlur", "Laplacian", "Scharr", "Sobel", "blur", "boxFilter", "filter2D", "sepFilter2D"]

#: OpenCV's numbers of borders: apron's names, and SciPy's.
_BORDERS = {
    0: ("constant", "constant"),
    1: ("replicate", "nearest"),
    2: ("reflect", "reflect"),
    3: ("wrap", "wrap"),
    4: ("reflect101", "mirror"),
}
_ISOLATED = 16
_DEFAULT = 4

#: OpenCV's numbers of depths.
_DEPTHS = {0: "u1", 1: "i1", 2: "u2", 3: "i2", 4: "i4", 5: "f4", 6: "f8", 7: "f2"}

#: Gaussians that OpenCV has a table of, used where only the size is given.
_SMALL = {
    1: [1.0],
    3: [0.25, 0.5, 0.25],
    5: [0.0625, 0.25, 0.375, 0.25, 0.0625],
    7: [0.03125, 0.109375, 0.21875, 0.28125, 0.21875, 0.109375, 0.03125],
    9: [4 / 256, 13 / 256, 30 / 256, 51 / 256, 60 / 256, 51 / 256, 30 / 256, 13 / 256, 4 / 256],
}


def _border(number):
    names = _BORDERS.get(number & ~_ISOLATED)
    if names is None:
        known = "BORDER_CONSTANT, BORDER_REPLICATE, BORDER_REFLECT, BORDER_WRAP or BORDER_REFLECT_101 (0 to 4)"
        raise ValueError(f"borderType is {number}: one of {known} is needed")
    return names


def _anchored(anchor, size):
    """The anchor as a cell of the window; -1 is the middle."""
    cell = tuple(length // 2 if at == -1 else at for at, length in zip(anchor, size))
    if not all(0 <= at < length for at, length in zip(cell, size)):
        raise ValueError(
            f"anchor is {tuple(anchor)}: a cell of the {size[0]}x{size[1]} window, or -1 for its middle, is needed"
        )
    return cell


@functools.lru_cache(maxsize=128)
def _dense(taps, shape, anchor, border):
    taps = np.frombuffer(taps).reshape(shape)
    return _apron.Plan(_apron.Filter.from_taps(taps, anchor), border, "cpu")


@functools.lru_cache(maxsize=128)
def _product(row, column, anchor, border):
    filter = _apron.Filter.separable(np.frombuffer(row), np.frombuffer(column), anchor)
    return _apron.Plan(filter, border, "cpu")


def _source(src):
    """The image as a NumPy array of two or three dimensions, of numbers of up to 64 bits."""
    src = as_array(src, "src")
    if src.dtype.kind not in "uif" or src.dtype.itemsize > 8:
        ways_out = {
            "b": "convert it, as by src.astype(np.uint8) * 255",
            "c": "filter src.real and src.imag, or call apron.ndimage",
        }
        way_out = ways_out.get(src.dtype.kind, "integers and floating-point numbers of up to 64 bits are filtered")
        raise TypeError(f"src is of type {src.dtype}: {way_out}")
    if src.ndim not in (2, 3):
        raise TypeError(f"src has {src.ndim} dimensions: 2 or 3 are needed (rows, columns, channels)")
    return src


def _run(src, ddepth, taps, anchor, delta, border, dst):
    """Correlates with taps: a window, or a row and a column."""
    src = _source(src)
    check(dst, "dst")
    dtype = src.dtype if ddepth == -1 else _DEPTHS.get(ddepth)
    if dtype is None:
        raise ValueError(f"ddepth is {ddepth}: -1 or one of OpenCV's depths, CV_8U (0) to CV_16F (7), is needed")
    dtype = np.dtype(dtype)
    fits = isinstance(dst, np.ndarray) and dst.shape == src.shape and dst.dtype == dtype
    border, mode = _border(border)
    if src.dtype.itemsize == 8 or dtype.itemsize == 8 or src.dtype.kind + str(src.dtype.itemsize) in ("i4", "u4"):
        result = _in_f64(src, taps, anchor, mode)
    else:
        if len(taps) == 2:
            plan = _product(taps[0].tobytes(), taps[1].tobytes(), anchor, border)
        else:
            plan = _dense(taps[0].tobytes(), taps[0].shape, anchor, border)
        if delta == 0:
            return plan(src, dst) if fits else plan(src, dtype=dtype)
        result = plan(src, dtype=np.float32)
    if delta:
        result += delta
    result = stored(result, dtype)
    if not fits:
        return result
    dst[...] = result
    return dst


def _in_f64(src, taps, anchor, mode):
    if src.dtype == np.float16:
        # SciPy has no float16. f32 holds each of its numbers exactly.
        src = src.astype(np.float32)
    origins = [at - length // 2 for at, length in zip(anchor, (taps[0].size, taps[-1].size))]
    if len(taps) == 1:
        rows, cols = taps[0].shape
        origins = (anchor[1] - rows // 2, anchor[0] - cols // 2)
        return ndimage.correlate(src, taps[0], np.float64, mode, origin=origins, axes=(0, 1))
    result = ndimage.correlate1d(src, taps[0], 1, np.float64, mode, origin=origins[0])
    return ndimage.correlate1d(result, taps[1], 0, np.float64, mode, origin=origins[1])


def _separable(src, ddepth, row, column, anchor, delta, border, dst):
    row, column = (as_taps(taps, name).ravel() for taps, name in ((row, "kernelX"), (column, "kernelY")))
    anchor = _anchored(anchor, (row.size, column.size))
    return _run(src, ddepth, (row, column), anchor, delta, border, dst)


def _derivative_taps(order, size):
    """OpenCV's taps for a derivative: differences of a binomial."""
    if size == -1:
        return {0: [3.0, 10.0, 3.0], 1: [-1.0, 0.0, 1.0]}[order]
    length = 3 if size == 1 and order > 0 else size
    taps = np.ones(1)
    for _ in range(length - order - 1):
        taps = np.convolve(taps, [1.0, 1.0])
    for _ in range(order):
        taps = np.convolve(taps, [-1.0, 1.0])
    return taps


def _gaussian_taps(size, sigma):
    if sigma <= 0 and size in _SMALL:
        return np.array(_SMALL[size])
    if sigma <= 0:
        sigma = 0.3 * ((size - 1) * 0.5 - 1) + 0.8
    x = (np.arange(size) - (size - 1) * 0.5) / sigma
    taps = np.exp(-0.5 * x * x)
    return taps / taps.sum()


def filter2D(src, ddepth, kernel, dst=None, anchor=(-1, -1), delta=0.0, borderType=_DEFAULT):
    """Correlate with a window.

    Parameters
    ----------
    src : array_like
        The image, of shape (rows, columns) or (rows, columns, channels).
    ddepth : int
        The depth of the result: -1 for the depth of `src`, or OpenCV's number: 0 CV_8U, 2 CV_16U,
        3 CV_16S, 5 CV_32F, 6 CV_64F.
    kernel : array_like
        The taps, of two dimensions. They are not flipped.
    dst : ndarray, optional
        The array for the result.
    anchor : tuple of int, default (-1, -1)
        Column and row of the window's cell that lies on the output pixel; -1 for the middle.
    delta : float, default 0.0
        Added to each result before it is rounded.
    borderType : int, default 4
        OpenCV's number: 0 constant (zeros), 1 replicate, 2 reflect, 3 wrap, 4 reflect without the
        edge.

    Returns
    -------
    ndarray
        The result, of `src`'s shape. Integers are rounded half to even and saturated.

    Raises
    ------
    ValueError
        For an unknown border or depth, or an anchor outside the window.
    TypeError
        If `src` is not of numbers.
    """
    kernel = as_taps(kernel, "kernel")
    if kernel.ndim == 1:
        kernel = kernel[:, None]
    if kernel.ndim != 2 or kernel.size == 0:
        raise ValueError(f"the kernel's shape is {kernel.shape}: two dimensions, and at least one tap, are needed")
    anchor = _anchored(anchor, kernel.shape[::-1])
    return _run(src, ddepth, (kernel,), anchor, delta, borderType, dst)


def sepFilter2D(src, ddepth, kernelX, kernelY, dst=None, anchor=(-1, -1), delta=0.0, borderType=_DEFAULT):
    """Correlate with a row, then with a column.

    Parameters
    ----------
    src, ddepth, dst, anchor, delta, borderType
        As for :func:`filter2D`.
    kernelX, kernelY : array_like
        The taps of the row and of the column.

    Returns
    -------
    ndarray
        The result, of `src`'s shape, rounded once.
    """
    return _separable(src, ddepth, kernelX, kernelY, anchor, delta, borderType, dst)


def GaussianBlur(src, ksize, sigmaX, dst=None, sigmaY=0.0, borderType=_DEFAULT):
    """Blur with a Gaussian.

    Parameters
    ----------
    src, dst, borderType
        As for :func:`filter2D`.
    ksize : tuple of int
        Width and height of the window, odd; 0 derives a side from its sigma.
    sigmaX, sigmaY : float
        Standard deviations. 0 for `sigmaY` means `sigmaX`; 0 for both derives them from the
        window's size.

    Returns
    -------
    ndarray
        The result, of `src`'s shape and type.

    Raises
    ------
    ValueError
        If a size is even or negative, or neither size nor sigma is given.
    """
    src = _source(src)
    sigmas = sigmaX, sigmaY if sigmaY > 0 else sigmaX
    deviations = 3 if src.dtype == np.uint8 else 4
    sizes = [
        round(sigma * deviations * 2 + 1) | 1 if size <= 0 and sigma > 0 else size for size, sigma in zip(ksize, sigmas)
    ]
    if not all(size > 0 and size % 2 for size in sizes):
        raise ValueError(
            f"ksize is {tuple(ksize)} and sigma {sigmas}: odd sizes above 0, or a sigma above 0, are needed"
        )
    row, column = (_gaussian_taps(size, sigma) for size, sigma in zip(sizes, sigmas))
    return _separable(src, -1, row, column, (-1, -1), 0, borderType, dst)


def boxFilter(src, ddepth, ksize, dst=None, anchor=(-1, -1), normalize=True, borderType=_DEFAULT):
    """The mean, or the sum, of a box.

    Parameters
    ----------
    src, ddepth, dst, anchor, borderType
        As for :func:`filter2D`.
    ksize : tuple of int
        Width and height of the box.
    normalize : bool, default True
        Whether to divide the sum by the number of pixels.

    Returns
    -------
    ndarray
        The result, of `src`'s shape.
    """
    width, height = ksize
    if width < 1 or height < 1:
        raise ValueError(f"ksize is {tuple(ksize)}: sizes above 0 are needed")
    column = np.full(height, 1 / (width * height) if normalize else 1.0)
    return _separable(src, ddepth, np.ones(width), column, anchor, 0, borderType, dst)


def blur(src, ksize, dst=None, anchor=(-1, -1), borderType=_DEFAULT):
    """The mean of a box: :func:`boxFilter` with `src`'s depth.

    Parameters
    ----------
    src, ksize, dst, anchor, borderType
        As for :func:`boxFilter`.

    Returns
    -------
    ndarray
        The result, of `src`'s shape and type.
    """
    return boxFilter(src, -1, ksize, dst, anchor, True, borderType)


def Sobel(src, ddepth, dx, dy, dst=None, ksize=3, scale=1.0, delta=0.0, borderType=_DEFAULT):
    """A derivative by Sobel's windows.

    Parameters
    ----------
    src, ddepth, dst, delta, borderType
        As for :func:`filter2D`.
    dx, dy : int
        The order of the derivative along columns and rows.
    ksize : int, default 3
        The size: 1, or odd up to 31; -1 for Scharr's windows.
    scale : float, default 1.0
        A factor for the derivative.

    Returns
    -------
    ndarray
        The result, of `src`'s shape.

    Raises
    ------
    ValueError
        For other sizes, or a size too small for the orders.
    """
    least = 3 if ksize in (-1, 1) else ksize
    known = ksize in (-1, *range(1, 32, 2)) and dx >= 0 and dy >= 0 and dx + dy > 0 and max(dx, dy) < least
    if not known or (ksize == -1 and dx + dy != 1):
        raise ValueError(
            f"dx is {dx}, dy {dy}, ksize {ksize}: orders below the size, which is -1 or odd from 1 to 31, are needed"
        )
    row = np.asarray(_derivative_taps(dx, ksize)) * scale
    return _separable(src, ddepth, row, _derivative_taps(dy, ksize), (-1, -1), delta, borderType, dst)


def Scharr(src, ddepth, dx, dy, dst=None, scale=1.0, delta=0.0, borderType=_DEFAULT):
    """A first derivative by Scharr's windows: :func:`Sobel` of size -1.

    Parameters
    ----------
    src, ddepth, dx, dy, dst, scale, delta, borderType
        As for :func:`Sobel`; one of the orders is 1, the other 0.

    Returns
    -------
    ndarray
        The result, of `src`'s shape.
    """
    return Sobel(src, ddepth, dx, dy, dst, -1, scale, delta, borderType)


def Laplacian(src, ddepth, dst=None, ksize=1, scale=1.0, delta=0.0, borderType=_DEFAULT):
    """The sum of the second derivatives.

    Parameters
    ----------
    src, ddepth, dst, scale, delta, borderType
        As for :func:`Sobel`.
    ksize : int, default 1
        1 for the four neighbours, or the size of Sobel's windows, odd up to 31.

    Returns
    -------
    ndarray
        The result, of `src`'s shape.

    Raises
    ------
    ValueError
        For other sizes.
    """
    if ksize not in range(1, 32, 2):
        raise ValueError(f"ksize is {ksize}: odd, from 1 to 31, is needed")
    if ksize == 1:
        taps = np.array([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]])
    else:
        second, smooth = _derivative_taps(2, ksize), _derivative_taps(0, ksize)
        taps = np.outer(smooth, second) + np.outer(second, smooth)
    return filter2D(src, ddepth, taps * scale, dst, (-1, -1), delta, borderType)
