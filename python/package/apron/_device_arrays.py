"""Device arrays for the functions of :mod:`apron.ndimage`: their calls, and an array's adapter."""

import functools
import inspect
import math

import numpy as np

from . import _apron, _arrays
from ._inputs import check, is_on_device


def takes_device_arrays(function):
    """Lets a function of :mod:`apron.ndimage` take a device array as its input.

    The function then gets adapters of the class :class:`Array` for the input and the output.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(input, *args, **kwargs):
        if type(input) is np.ndarray or not is_on_device(input):
            return function(input, *args, **kwargs)
        check(input, "input")
        given = signature.bind(input, *args, **kwargs)
        given.arguments["input"] = source = Array(input)
        output = given.arguments.get("output")
        if is_on_device(output):
            given.arguments["output"] = Array(output, source)
        elif isinstance(output, np.ndarray):
            raise TypeError("the input is in GPU memory and the output in host memory: pass a device array, or a type")
        if "weights" in given.arguments:
            given.arguments["weights"] = _on_host(given.arguments["weights"])
        return function(*given.args, **given.kwargs).array

    return call


def _on_host(array):
    """Taps of a device array as NumPy's array, of another one as they are. Waits for the copy."""
    if not is_on_device(array):
        return array
    for copy in ("cpu", "get", "numpy"):
        if hasattr(array, copy):
            return np.asarray(getattr(array, copy)())
    raise TypeError("weights is in GPU memory, and its library has no copy to the host: pass a NumPy array")


def c_strides(shape, itemsize):
    """The strides in bytes of an array in C's order."""
    return [itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


class Array:
    """A device array with what the functions of :mod:`apron.ndimage` ask of NumPy's arrays.

    For the extension module it has an address, shape and strides (`described`), the GPU's number
    (`device`), and the library's stream (`stream` and `owner`, as :class:`apron._arrays._Foreign`).
    """

    def __init__(self, array, source=None):
        """Describe an array; as the output for `source`, it has that one's stream."""
        library = type(array).__module__.partition(".")[0]
        foreign = _arrays._Foreign(array, library, None, source)
        self._foreign, self.array = foreign, array
        self.described, self.device = foreign.described, foreign.device
        first = foreign if source is None else source
        self.stream, self.owner = first.stream, first.owner
        _, kind, self.shape, _ = foreign.described
        self.ndim = len(self.shape)
        self.dtype = np.dtype(kind)
        if source is None and self.dtype.kind == "c":
            raise TypeError(f"the device array's type is {self.dtype}: filter its real and its imaginary part")
        if not self.dtype.isnative:
            raise TypeError(f"the device array's byte order is not this machine's: its type is {self.dtype.str}")
        if source is not None:
            foreign.check_output(source, "input")

    def like(self, dtype=None):
        """A new array of the same shape, of this type or the array's own."""
        return Array(self._foreign.like(self.dtype if dtype is None else np.dtype(dtype), -1), self)

    def like_in_c_order(self):
        """A new array of the same shape and type in C's order, for use within a call."""
        if self._foreign.name in ("torch", "cupy"):
            # Its library frees it in stream order. Calls with other arrays wait for their work.
            return Array(self._foreign.like(self.dtype, -1, in_c_order=True), self)
        flat = _apron.DeviceArray._empty((math.prod(self.shape),), self.dtype.str, self.device, -1)
        array = Array(flat, self)
        array.shape, array.ndim = self.shape, self.ndim
        array.described = (*array.described[:2], self.shape, c_strides(self.shape, self.dtype.itemsize))
        return array

    def is_in_c_order(self):
        """Whether its elements lie side by side, the last axis first."""
        return list(self.described[3]) == c_strides(self.shape, self.dtype.itemsize)

    def copy(self):
        copy = self.like()
        copy[...] = self
        return copy

    def __setitem__(self, index, values):
        if self.dtype.kind == "b" != values.dtype.kind:
            raise TypeError(f"a device array of type {values.dtype} is not converted to bool: pass another type as output")
        if values.described == self.described:
            return
        _apron.convert(values.copy() if _apron.overlap(values, self) else values, self)


def added(first, others, squared):
    """As :func:`apron._axes.added`, for device arrays."""
    if first.dtype.kind == "b":
        raise TypeError("results of type bool cannot be added up on a GPU: pass another type as output")
    if squared:
        _apron.join(None, first, (True, False), False)
    for part in others:
        _apron.join(part, first, (False, squared), False)
    if squared:
        _apron.join(None, first, (False, False), True)
    return first
