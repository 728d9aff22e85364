"""Calls of a plan with a mask, and with NumPy's masked arrays."""

import sys

import numpy as np

from . import _apron, _arrays
from ._arrays import _PIL, stored
from ._inputs import as_array, check, is_on_device

#: The types that plans take as they are, and those of masks.
_OWN = {np.dtype(kind) for kind in ("u1", "u2", "f2", "f4")}
_BYTES, _FLOATS = np.dtype("u1"), np.dtype("f4")


def call(plan, image, out, axis, dtype, mask, weights):
    """``plan(image, out, axis=axis, dtype=dtype, mask=mask, weights=weights)``."""
    if is_on_device(image):
        return _on_device(plan, image, out, axis, dtype, mask, weights)
    if out is not None and dtype is not None:
        raise TypeError("pass out or dtype: the result has out's type")
    if out is not None and not isinstance(out, np.ndarray):
        raise TypeError(f"out is of type {type(out).__name__}: with a mask, a NumPy array is needed")
    if type(image).__module__.startswith("dask."):
        raise TypeError("the image is a Dask array: masks are for arrays in memory; for NaN, build the plan with nan='ignore'")
    if type(image).__module__.startswith("PIL.") and getattr(image, "mode", None) in _PIL:
        raise TypeError(f'the image is of mode {image.mode}, and masks do not weigh alpha: pass image.convert("RGB")')
    is_masked = isinstance(image, np.ma.MaskedArray)
    hidden = image.mask if is_masked and image.mask is not np.ma.nomask else None
    values = as_array(image.data if is_masked else image, "image")
    _check(values, out, axis, plan)
    target = np.dtype(values.dtype if out is None and dtype is None else out.dtype if dtype is None else dtype)
    for found in (values.dtype, target):
        if found.kind not in "uif" or found.itemsize > 8:
            raise TypeError(f"the type is {found}: integers and floating-point numbers of up to 64 bits are filtered")
    native, goal = values.dtype.newbyteorder("="), target.newbyteorder("=")
    # Results of another type than the image's are converted from float32, as without a mask.
    direct = _FLOATS if native != goal and {native, goal} <= _OWN else goal
    known = _known(mask, hidden, values, axis)
    source = _pixels(values.astype(native, copy=False), axis)
    # Written directly where the output is as the result is, and shares no memory.
    inputs = [array for array in (values, mask, weights) if isinstance(array, np.ndarray)]
    is_own = out is not None and type(out) is np.ndarray and out.dtype == direct and out.flags.c_contiguous
    is_own = is_own and (out.ndim == 2 or axis % 3 == 2) and not any(np.may_share_memory(out, array) for array in inputs)
    result = out.reshape(source.shape) if is_own else np.empty(source.shape, direct)
    sums = None if weights is None else np.empty(source.shape, _FLOATS)
    found = np.empty(source.shape, _BYTES) if is_masked else None
    if weights is not None:
        _check_weights(weights, values)
    plan._masked(source, known, result, sums, found)
    if weights is not None:
        weights[...] = _like(sums, values, axis)
    result = _like(stored(result, goal), values, axis).astype(target, copy=False)
    if is_masked:
        unknown = _like(found, values, axis) == 0
        result = np.ma.MaskedArray(result, unknown, fill_value=None if result.dtype != values.dtype else image.fill_value)
    if out is None:
        return result
    if not is_own:
        out[...] = result
    return out


def _on_device(plan, image, out, axis, dtype, mask, weights):
    """The same for a device array, in its library's current stream."""
    check(image, "image")
    _check_alpha(plan)
    library = sys.modules.get(type(image).__module__.partition(".")[0])
    source, target, result = _arrays.pair(plan, image, out, axis, dtype, library)
    beside = [None if array is None else _arrays.beside(array, source) for array in (_of_device(mask), weights)]
    if weights is not None:
        beside[1].check_output(source, "image")
        if beside[1].described[1] != "<f4":
            raise TypeError(f"weights is of type {beside[1].described[1]}: float32 is needed")
    mask, weights = (None if foreign is None else foreign.described for foreign in beside)
    arrays = source.described, mask, target.described, weights
    _apron.enqueue_masked(plan, source.device, arrays, axis, source.stream, source.owner)
    return _arrays.returned(result, out, library)


def _of_device(mask):
    """A mask in GPU memory, as bytes or float32."""
    if mask is None:
        return None
    if not is_on_device(mask):
        raise TypeError("the image is in GPU memory and the mask in host memory: pass a device array")
    kind = np.dtype(str(mask.dtype).removeprefix("torch."))
    if kind in (_BYTES, _FLOATS):
        return mask
    if kind.kind not in "bf":
        raise TypeError(f"the mask is of type {kind}: bool, uint8 or weights as floating-point numbers are needed")
    return _cast(mask, "uint8") * 255 if kind.kind == "b" else _cast(mask, "float32")


def _cast(array, name):
    """A copy of a device array as another type, by its library."""
    if type(array).__module__.partition(".")[0] == "torch":
        import torch

        return array.to(getattr(torch, name))
    if hasattr(array, "astype"):
        return array.astype(name)
    raise TypeError(f"the mask is of type {array.dtype}, which its library does not convert: pass {name}")


def _check_alpha(plan):
    if plan.alpha not in (None, "filter"):
        raise ValueError(f"alpha is {plan.alpha}: with a mask, filter is needed; pass the alpha channel as the mask")


def _check(values, out, axis, plan):
    """Refuse shapes, axes and modes that a masked call does not have."""
    if values.ndim not in (2, 3):
        raise ValueError(f"the image has {values.ndim} dimensions: 2 or 3 are needed (rows, columns, channels)")
    if 0 in values.shape:
        raise ValueError(f"the image's shape is {values.shape}: every extent must be at least 1")
    if values.ndim == 3 and not -3 <= axis <= 2:
        raise ValueError(f"axis is {axis}: a number from -3 to 2 is needed for three dimensions")
    if out is not None and out.shape != values.shape:
        raise ValueError(f"the image's shape is {values.shape} and the output's {out.shape}: they must be the same")
    if out is not None and not out.flags.writeable:
        raise ValueError("the output array is read-only: pass one that can be written")
    _check_alpha(plan)


def _check_weights(weights, values):
    if not isinstance(weights, np.ndarray) or weights.dtype != _FLOATS or weights.shape != values.shape:
        found = f"{getattr(weights, 'dtype', type(weights).__name__)} {getattr(weights, 'shape', '')}"
        raise ValueError(f"weights is {found}: a float32 array of the image's shape {values.shape} is needed")


def _known(mask, hidden, values, axis):
    """A mask of uint8 or float32, with channels last; None if all is known."""
    if mask is None and hidden is None:
        return None
    parts = []
    if hidden is not None:
        parts.append(~hidden)
    if mask is not None:
        parts.append(as_array(mask, "mask"))
    pixels = []
    for part in parts:
        flat = [size for at, size in enumerate(values.shape) if values.ndim == 2 or at != axis % 3]
        if part.shape not in (tuple(flat), values.shape):
            raise ValueError(f"the mask's shape is {part.shape}: the image's, {values.shape}, or {tuple(flat)} is needed")
        if part.dtype.kind not in "buif":
            raise TypeError(f"the mask is of type {part.dtype}: bool, uint8 or weights as floating-point numbers are needed")
        if part.dtype.kind in "ui" and part.dtype != _BYTES:
            raise TypeError(f"the mask is of type {part.dtype}: of integers, uint8 is needed, or pass mask != 0")
        pixels.append(_pixels(part, axis if part.shape == values.shape else -1))
    if len(pixels) == 2:
        # What the masked array hides is unknown, whatever the mask says.
        hidden, given = pixels
        return _weights(np.where(hidden, given, given.dtype.type(0)))
    return _weights(pixels[0])


def _weights(mask):
    if mask.dtype == bool:
        return np.ascontiguousarray(mask).view(_BYTES) * np.uint8(255)
    return np.ascontiguousarray(mask, _BYTES if mask.dtype == _BYTES else _FLOATS)


def _pixels(array, axis):
    """The array as rows, columns and channels in C's order."""
    return np.ascontiguousarray(array[..., np.newaxis] if array.ndim == 2 else np.moveaxis(array, axis, -1))


def _like(pixels, values, axis):
    """Rows, columns and channels in the order of the image's axes."""
    return pixels[..., 0] if values.ndim == 2 else np.moveaxis(pixels, -1, axis)
