"""Calls of a plan that need a conversion, or that take arrays of other libraries than NumPy."""

import functools
import sys

import numpy as np

from . import _apron, _layouts
from ._inputs import CUDA, as_array, check, is_on_device

_TYPES = {"|u1": np.uint8, "<u2": np.uint16, "<f2": np.float16, "<f4": np.float32}
#: PyTorch's types with NumPy's names.
_TORCH = {
    "torch.bool": "|b1", "torch.uint8": "|u1", "torch.int8": "|i1", "torch.uint16": "<u2", "torch.int16": "<i2",
    "torch.uint32": "<u4", "torch.int32": "<i4", "torch.uint64": "<u8", "torch.int64": "<i8",
    "torch.float16": "<f2", "torch.float32": "<f4", "torch.float64": "<f8",
    "torch.complex64": "<c8", "torch.complex128": "<c16",
}  # fmt: skip


# The treatment of the last channel for modes of PIL images with alpha.
_PIL = {"RGBA": "auto", "LA": "auto", "RGBa": "premultiplied", "La": "premultiplied"}


def _of_pil(plan, mode):
    """The plan with the alpha mode for a PIL image of this mode.

    If the image has alpha, the plan's own mode is kept, unless it is "auto".
    """
    said = _PIL.get(mode, "filter")
    return plan if said != "filter" and plan.alpha not in (None, "auto") else plan._with_alpha(said)


def call(plan, image, out, axis, dtype):
    """``plan(image, out, axis=axis, dtype=dtype)`` for calls that the extension module leaves."""
    check(image, "image")
    if out is not None:
        check(out, "out")
    if isinstance(image, np.ndarray) and (out is None or isinstance(out, np.ndarray)):
        base, target = np.asarray(image), None if out is None else np.asarray(out)
        if base is image and target is out:
            return converted(lambda image, out, dtype: plan(image, out, axis=axis, dtype=dtype), image, out, dtype)
        # A plain array shares the memory of a subclass, such as a file mapped into memory.
        result = plan(base, target, axis=axis, dtype=dtype)
        return result if out is None else out
    module = type(image).__module__
    if module.startswith("dask."):
        from . import dask

        if out is not None:
            raise TypeError("out is for arrays in memory: a Dask array is computed later")
        return dask.filter(image, plan, axis=axis, dtype=dtype)
    library = sys.modules.get(module.partition(".")[0])
    if module.startswith("PIL.") and hasattr(image, "mode"):
        return _of_pil(plan, image.mode)(as_array(image, "image"), out, axis=axis, dtype=dtype)
    if is_on_device(image):
        return on_device(plan, image, out, axis, dtype, library)
    if out is not None and not isinstance(out, np.ndarray):
        if not hasattr(out, "__dlpack__") and not hasattr(out, "__array_interface__"):
            raise TypeError(f"out is of type {type(out).__name__}: an array, which can be written to, is needed")
        plan(as_array(image, "image"), as_array(out, "out"), axis=axis, dtype=dtype)
        return out
    result = plan(as_array(image, "image"), out, axis=axis, dtype=dtype)
    return in_library(result, image) if out is None else result


def converted(run, image, out, dtype):
    """Filters NumPy arrays that need a conversion before or after, by ``run(image, out, dtype)``.

    These are arrays or results in the other byte order, and arrays of uint8, uint16, float16 or
    float32 with a result of another of these types, which goes through float32. Integers are
    rounded half to even and saturated.
    """
    if out is not None and dtype is not None:
        raise TypeError("pass out or dtype: the result has out's type")
    native = image.dtype.newbyteorder("=")
    target = np.dtype(out.dtype if out is not None else native if dtype is None else dtype)
    goal = target.newbyteorder("=")
    for found in (image.dtype, target):
        if found.kind not in "uif" or found.itemsize > 8:
            raise TypeError(f"the type is {found}: integers and floating-point numbers of up to 64 bits are filtered")
    if native != goal and native in _TYPES.values() and goal in _TYPES.values():
        direct = np.dtype(np.float32)
    else:
        direct = goal
    result = run(image.astype(native, copy=False), None, direct)
    result = stored(result, goal).astype(target, copy=False)
    if out is None:
        return result
    if out.shape != image.shape:
        raise ValueError(f"the image's shape is {image.shape} and the output's {out.shape}: they must be the same")
    out[...] = result
    return out


def stored(values, dtype):
    """Floating-point values as another type. The array may be overwritten.

    Integers are rounded half to even and saturated, and NaN becomes 0.
    """
    if values.dtype == dtype:
        return values
    if dtype.kind != "f":
        limits = np.iinfo(dtype)
        if dtype.itemsize > 2 and values.dtype.itemsize < 8:
            values = values.astype(np.float64)
        low, high = float(limits.min), float(limits.max)
        if high > limits.max:
            # The limit was rounded up: take the next number below.
            high = np.nextafter(high, 0)
        np.rint(values, out=values)
        np.clip(values, low, high, out=values)
        np.nan_to_num(values, copy=False, nan=0)
    return values.astype(dtype)


@functools.cache
def _torch_kind(dtype):
    """NumPy's name of a type of PyTorch's."""
    return _TORCH.get(str(dtype), str(dtype))


class _Foreign:
    """Another library's device array: its description for kernels, and its library's stream."""

    readonly = False

    def __init__(self, array, name, plan, source=None):
        """Describe an array. If it is the output for ``source``, the source's stream is used."""
        self.array, self.name = array, name
        #: The current stream's handle, and the library's function that returns it for a GPU's
        #: number; None if the library has no current stream.
        self.stream = self.owner = None
        if name == "torch":
            import torch

            value = array.element_size()
            self.device = array.get_device()
            kind = _torch_kind(array.dtype)
            strides = [value * step for step in array.stride()]
            self.described = array.data_ptr(), kind, tuple(array.shape), strides
            if source is None:
                self.owner = torch.cuda.current_stream
                self.stream = torch._C._cuda_getCurrentRawStream(self.device)
        elif name == "cupy":
            import cupy

            self.device = array.device.id
            self.described = array.data.ptr, array.dtype.str, array.shape, list(array.strides)
            if source is None:
                self.owner = cupy.cuda.get_current_stream
                self.stream = self.owner(self.device).ptr
        elif hasattr(array, "__cuda_array_interface__"):
            interface = array.__cuda_array_interface__
            if interface.get("mask") is not None:
                raise TypeError("the device array has a mask: there are no filters for masked arrays")
            kind, shape = interface["typestr"], tuple(interface["shape"])
            address, self.readonly = interface["data"]
            strides = interface.get("strides")
            if strides is None:
                value = int(kind[2:])
                strides = [value * int(np.prod(shape[at + 1 :], dtype=np.int64)) for at in range(len(shape))]
            # The interface does not name the GPU.
            self.device = getattr(array, "_ordinal", None)
            if self.device is None:
                first = plan.device.removeprefix("gpu:").partition(",")[0] if plan else ""
                self.device = int(first) if first.isdecimal() else 0
            self.described = address, kind, shape, list(strides)
            stream = interface.get("stream")
            if stream is not None:
                _apron.synchronize(self.device, stream)
        else:
            # Keep the array: it owns the capsule, which owns the memory.
            self.array = array = from_dlpack(array)
            self.__init__(array, "apron", plan)

    def check_output(self, source, name):
        """Check that the array can hold the result of ``source``, which messages call `name`."""
        if self.readonly:
            raise ValueError("the output array is read-only: pass one that can be written")
        if self.device != source.device:
            raise ValueError(f"the {name} is on GPU {source.device} and the output on GPU {self.device}")

    def like(self, dtype, axis, in_c_order=False):
        """A new array of the same shape and order of axes, or in C's order.

        It belongs to the same library, or to apron if this class does not know the library. Then
        its order is that of apron's arrays.
        """
        if self.name == "torch":
            import torch

            order = torch.contiguous_format if in_c_order else torch.preserve_format
            return torch.empty_like(self.array, dtype=_torch(dtype), memory_format=order)
        if self.name == "cupy":
            import cupy

            order = "C" if in_c_order else "K"
            # CuPy makes arrays on its current GPU.
            if cupy.cuda.runtime.getDevice() == self.device:
                return cupy.empty_like(self.array, dtype, order)
            with self.array.device:
                return cupy.empty_like(self.array, dtype, order)
        kind = self.described[1] if dtype is None else np.dtype(dtype).str
        return _apron.DeviceArray._empty(self.described[2], kind, self.device, axis)


def _torch(dtype):
    import torch

    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    return getattr(torch, np.dtype(dtype).name)


def pair(plan, image, out, axis, dtype, library, layout=None):
    """Describe a device array of a library and the output for it, and return both and the output."""
    if not plan.device.startswith("gpu"):
        raise ValueError(f"the image is in GPU memory and the plan's device is {plan.device}: build it with device='gpu'")
    if out is not None and dtype is not None:
        raise TypeError("pass out or dtype: the result has out's type")
    source = _Foreign(image, getattr(library, "__name__", None), plan)
    if layout is not None:
        _layouts.checked(layout, len(source.described[2]), axis)
        # The channels' place in a new array; the images of "nhw" lie as planes do.
        axis = {"nhwc": -1, "nchw": 1, "nhw": 0}[layout]
    if out is None:
        result = source.like(dtype, axis)
    elif is_on_device(out):
        result = out
    else:
        raise TypeError(f"the image is in GPU memory: out is {type(out)}, and a device array is needed")
    target = _Foreign(result, type(result).__module__.partition(".")[0], plan, source)
    target.check_output(source, "image")
    if target.described[2] != source.described[2]:
        shapes = f"the image's shape is {source.described[2]} and the output's {target.described[2]}"
        raise ValueError(f"{shapes}: they must be the same")
    return source, target, result


def in_library(result, image):
    """A NumPy array as one of the library that the image is of, if that takes it by DLPack."""
    library = sys.modules.get(type(image).__module__.partition(".")[0])
    if not isinstance(image, np.ndarray) and hasattr(image, "__dlpack__") and hasattr(library, "from_dlpack"):
        return library.from_dlpack(result)
    return result


def device_of(array):
    """The number of the GPU in whose memory an array is."""
    return _Foreign(array, type(array).__module__.partition(".")[0], None).device


def beside(array, source):
    """Describe a device array that a call uses beside the image."""
    foreign = _Foreign(array, type(array).__module__.partition(".")[0], None, source)
    if foreign.device != source.device:
        raise ValueError(f"the image is on GPU {source.device}, and an array beside it on GPU {foreign.device}")
    return foreign


def returned(result, out, library):
    """The result as an array of the image's library."""
    name = getattr(library, "__name__", None)
    if out is None and name not in ("torch", "cupy", "apron") and hasattr(library, "from_dlpack"):
        return library.from_dlpack(result)
    return result


def on_device(plan, image, out, axis, dtype, library, layout=None):
    """Filters a device array in its library's current stream.

    If the library has none, waits for pending work before the call and for the result after it.
    """
    source, target, result = pair(plan, image, out, axis, dtype, library, layout)
    described = [source.described, target.described]
    if layout is not None:
        axis = None
        described = [(*array[:2], *_layouts.described(*array[2:], layout)) for array in described]
    _apron.enqueue(plan, source.device, *described, axis, source.stream, source.owner)
    return returned(result, out, library)


def from_dlpack(array):
    """Take another library's array by DLPack, without a copy.

    Parameters
    ----------
    array : object
        An array with ``__dlpack__`` and ``__dlpack_device__``, of the CPU or a GPU.

    Returns
    -------
    ndarray or DeviceArray
        A NumPy array for an array of the CPU, a :class:`DeviceArray` for an array of a GPU. Work
        that was pending on the array is done when this returns.

    Raises
    ------
    BufferError
        If the array is on another device, or was taken already.
    TypeError
        If a GPU's array is of a type that NumPy does not have.
    """
    check(array, "array")
    kind, device = array.__dlpack_device__()
    if kind not in CUDA:
        return np.from_dlpack(array)
    # The producer makes stream 1, the legacy default, wait for its work. This code waits for it.
    try:
        capsule = array.__dlpack__(stream=1, max_version=(1, 0))
    except TypeError:
        capsule = array.__dlpack__(stream=1)
    taken = _apron.DeviceArray._taken(capsule)
    _apron.synchronize(device, 1)
    return taken


def to_device(array, device=0, axis=-1):
    """Copy a NumPy array into a GPU's memory.

    Parameters
    ----------
    array : array_like
        An array of any shape, of numbers or bool. Plans filter uint8, uint16, float16 and float32 on a
        GPU, and the functions of :mod:`apron.ndimage` all real numbers but float16.
    device : int, default 0
        The GPU's number.
    axis : int, default -1
        The axis of the channels, if the array is an image or a batch: the first or the last.

    Returns
    -------
    DeviceArray
        The copy. Other libraries take it without a further copy, by ``__cuda_array_interface__`` or
        DLPack.

    Raises
    ------
    RuntimeError
        If there is no such GPU.
    TypeError
        For other types.
    ValueError
        For other shapes.
    """
    array = np.ascontiguousarray(as_array(array, "array"))
    return _apron.DeviceArray._of(array, array.dtype.str, device, axis)
