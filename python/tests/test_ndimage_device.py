"""The functions of `apron.ndimage` on device arrays: the bytes of those on NumPy's arrays.

With a GPU, or with a software driver that `APRON_DRIVER` names. NumPy's arrays are compared with
SciPy's results in test_ndimage.py.
"""

import numpy as np
import pytest

import apron
from apron import ndimage

try:
    apron.Plan("identity", device="gpu")
except RuntimeError as error:
    pytest.skip(f"no GPU: {error}", allow_module_level=True)

# Squares of integers wrap around, so a sum may be negative.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered in sqrt")

TYPES = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"]
MODES = ["reflect", "mirror", "nearest", "wrap", "constant"]
SHAPES = [(57,), (11, 23), (7, 9, 12), (4, 3, 5, 6), (2, 3, 4, 3, 4)]

#: Functions of the module, the array and its further arguments.
FUNCTIONS = {
    "correlate1d": lambda array, **rest: ndimage.correlate1d(array, [0.1, -0.5, 0.3], -1, **rest),
    "correlate1d, even": lambda array, **rest: ndimage.correlate1d(array, [0.1, -0.5, 0.3, 2], 0, origin=-1, **rest),
    "convolve1d": lambda array, **rest: ndimage.convolve1d(array, [1, 2, 4, 2, 1], 0, origin=1, **rest),
    "gaussian_filter1d": lambda array, **rest: ndimage.gaussian_filter1d(array, 1.5, order=1, **rest),
    "gaussian_filter": lambda array, **rest: ndimage.gaussian_filter(array, 0.8, **rest),
    "gaussian_filter, one axis": lambda array, **rest: ndimage.gaussian_filter(array, 1.2, axes=(0,), **rest),
    "gaussian_filter, none": lambda array, **rest: ndimage.gaussian_filter(array, 0, **rest),
    "sobel": lambda array, **rest: ndimage.sobel(array, 0, **rest),
    "prewitt": lambda array, **rest: ndimage.prewitt(array, **rest),
    "laplace": lambda array, **rest: ndimage.laplace(array, **rest),
    "gaussian_laplace": lambda array, **rest: ndimage.gaussian_laplace(array, 1, **rest),
    "gaussian_gradient_magnitude": lambda array, **rest: ndimage.gaussian_gradient_magnitude(array, 1, **rest),
    "generic_gradient_magnitude": lambda array, **rest: ndimage.generic_gradient_magnitude(array, ndimage.sobel, **rest),
    "uniform_filter1d": lambda array, **rest: ndimage.uniform_filter1d(array, 5, 0, origin=1, **rest),
    "uniform_filter": lambda array, **rest: ndimage.uniform_filter(array, 3, **rest),
    "correlate": lambda array, **rest: ndimage.correlate(array, window(array), **rest),
    "convolve": lambda array, **rest: ndimage.convolve(array, window(array), origin=[1] + [0] * (len(array.shape) - 1), **rest),
}


def window(array):
    """Taps along at most four axes."""
    return np.random.default_rng(1).random([3 if axis < 4 else 1 for axis in range(len(array.shape))]) - 0.4


def values(shape, dtype, seed=0):
    random = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return (random.random(shape) * 200 - 50).astype(dtype)
    return random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)


class Interface:
    """A device array of a library that has only `__cuda_array_interface__`."""

    def __init__(self, array, **changed):
        self.array, self.shape = array, array.shape
        self.__cuda_array_interface__ = array.__cuda_array_interface__ | changed


def same(found, expected):
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, dtype):
    function = FUNCTIONS[name]
    # Each pair of a shape and a mode occurs.
    number = list(FUNCTIONS).index(name) + TYPES.index(dtype)
    array, mode = values(SHAPES[number % 5], dtype), MODES[(number + TYPES.index(dtype)) % 5]
    there = apron.to_device(array)
    result = function(there, mode=mode, cval=1.5)
    assert isinstance(result, apron.DeviceArray)
    same(result, function(array, mode=mode, cval=1.5))
    # Into another type, and from an array that belongs to another library.
    other = TYPES[(number + 3) % 10]
    same(function(Interface(there), mode=mode, output=np.dtype(other)), function(array, mode=mode, output=np.dtype(other)))
    np.testing.assert_array_equal(there.numpy(), array)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_in_place(name):
    function = FUNCTIONS[name]
    array = values((9, 13), "f4")
    there = apron.to_device(array)
    assert function(there, output=there) is there
    same(there, function(array))


def test_layouts():
    array = values((6, 7, 8), "i2")
    there = apron.to_device(array)
    cut = {"shape": (3, 7, 4), "strides": None}
    cut["strides"] = tuple(np.multiply(there.strides, (2, 1, -2)).tolist())
    cut["data"] = (there.__cuda_array_interface__["data"][0] + 7 * there.strides[2], False)
    out = apron.to_device(np.zeros((3, 7, 4), "f8"))
    result = ndimage.gaussian_filter(Interface(there, **cut), 1, output=out)
    assert result is out
    same(out, ndimage.gaussian_filter(array[::2, :, ::-2], 1, output=np.float64))


def test_weights_may_be_device_arrays():
    array, taps = values((9, 13), "f4"), values((3, 3), "f8")
    there = apron.to_device(array)
    same(ndimage.convolve(there, apron.to_device(taps)), ndimage.convolve(array, taps))


def test_functions_of_users_get_their_arrays():
    array = values((9, 13), "f4")
    seen = []

    def derivative(input, axis, output, mode, cval):
        seen.append(type(input))
        return ndimage.prewitt(input, axis, output, mode, cval)

    there = apron.to_device(array)
    same(ndimage.generic_laplace(there, derivative), ndimage.generic_laplace(array, ndimage.prewitt))
    assert seen == [apron.DeviceArray] * 2


@pytest.mark.parametrize("dtype", ["?", *TYPES, "f2", "c8", "c16"])
@pytest.mark.parametrize("shape", [(5,), (2, 3, 4, 5, 6)])
def test_arrays_of_all_types_come_back(dtype, shape):
    array = values(shape, "u1").astype(dtype)
    there = apron.to_device(array)
    same(there, array)
    # A copy of memory that is not apron's.
    again = apron.from_dlpack(there)
    same(again, array)
    assert again.__cuda_array_interface__["typestr"] == array.dtype.str


def test_refused():
    there = apron.to_device(values((9, 13), "f4"))
    with pytest.raises(TypeError, match="host memory"):
        ndimage.sobel(there, output=np.zeros((9, 13), "f4"))
    with pytest.raises(RuntimeError, match="shape"):
        ndimage.sobel(there, output=apron.to_device(np.zeros((9, 12), "f4")))
    with pytest.raises(TypeError, match="imaginary"):
        ndimage.sobel(apron.to_device(np.zeros((9, 13), "c8")))
    with pytest.raises(TypeError, match="real weights"):
        ndimage.correlate1d(there, [1, 1j, 1])
    with pytest.raises(RuntimeError, match="data type not supported"):
        ndimage.sobel(apron.to_device(np.zeros((9, 13), "f2")))
    with pytest.raises(TypeError, match="bool"):
        ndimage.laplace(apron.to_device(np.zeros((9, 13), bool)))
    with pytest.raises(ValueError, match="read-only"):
        interface = there.__cuda_array_interface__
        ndimage.sobel(there, output=Interface(there, data=(interface["data"][0], True)))
    with pytest.raises(RuntimeError, match="boundary mode"):
        ndimage.sobel(there, mode="reflex")
    # NumPy's arrays take no device array as output.
    with pytest.raises(TypeError, match="GPU memory"):
        ndimage.sobel(np.zeros((9, 13), "f4"), output=there)
