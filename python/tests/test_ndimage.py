"""`apron.ndimage` gives SciPy's bits, for every function, type, mode, layout and origin."""

import itertools

import numpy as np
import pytest
from scipy import ndimage as scipy

import apron.ndimage as ours

MODES = ["reflect", "constant", "nearest", "mirror", "wrap", "grid-mirror", "grid-wrap", "grid-constant"]
TYPES = ["bool", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"]


def picture(shape, dtype, seed=0):
    random = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return (random.standard_normal(shape) * 100).astype(dtype)
    if dtype.kind == "c":
        return (random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(dtype)
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(dtype)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return random.integers(max(low, -(10**6)), min(high, 10**6), shape, endpoint=True).astype(dtype)


def same(name, array, *args, **kwargs):
    """Calls both functions, and compares every bit."""
    expected = getattr(scipy, name)(array, *args, **kwargs)
    found = getattr(ours, name)(array, *args, **kwargs)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    # Compare bytes: truth values after C's casts are not all 0 or 1, and zeros have a sign.
    assert np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(expected).tobytes()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("output", [None, "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"])
def test_types_are_converted_as_scipy_does(dtype, output):
    array = picture((9, 14), dtype)
    for taps in ([0.1, 0.5, 0.4], [-1.5, 0, 1.5], [2.5, -7.25], [-3e3, 5e7, 1.0]):
        same("correlate1d", array, taps, axis=0, output=output)
        same("correlate1d", array, taps, axis=1, output=output)
    same("correlate", array, picture((3, 2), "f8", 1) / 50, output=output)
    same("uniform_filter", array, 3, output=output)
    same("gaussian_filter", array, 1.5, output=output)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(1,), (2,), (7,), (300,), (1, 1), (5, 1), (4, 9), (70, 33), (3, 4, 5), (17, 2, 40)])
def test_borders_reach_as_far_as_the_window(mode, shape):
    array = picture(shape, "f8")
    for size, axis in itertools.product((1, 2, 3, 4, 9, 40), range(len(shape))):
        taps = picture((size,), "f8", size)
        for origin in {-(size // 2), 0, (size - 1) // 2}:
            same("correlate1d", array, taps, axis, None, mode, 1.25, origin)
            same("convolve1d", array, taps, axis, None, mode, 1.25, origin)
            same("uniform_filter1d", array, size, axis, None, mode, 1.25, origin) if size > 1 else None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape, window", [((6,), (3,)), ((5, 8), (3, 4)), ((40, 70), (1, 9)), ((4, 5, 6), (3, 2, 3))])
def test_windows_of_several_dimensions(mode, shape, window):
    array, taps = picture(shape, "f8"), picture(window, "f8", 3)
    taps.flat[0] = 0
    origins = [[-(size // 2) for size in window], 0, [(size - 1) // 2 for size in window]]
    for origin in origins:
        same("correlate", array, taps, None, mode, -2.5, origin)
        same("convolve", array, taps, None, mode, -2.5, origin)


@pytest.mark.parametrize("shape", [(600, 1100), (3000, 3), (40000,), (129, 130, 3), (20, 300, 5, 7)])
@pytest.mark.parametrize("dtype", ["u1", "f4"])
def test_tiles_meet(shape, dtype):
    array = picture(shape, dtype)
    dims = len(shape)
    same("gaussian_filter", array, 2.0)
    same("uniform_filter", array, 5)
    same("correlate", array, picture((3,) * dims, "f8", 2) / 300)
    for axis in range(dims):
        same("sobel", array, axis)
        same("uniform_filter1d", array, 4, axis)


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "f8", "c8", "c16"])
def test_every_function(dtype):
    array = picture((21, 34), dtype)
    same("gaussian_filter1d", array, 1.5, order=1)
    if dtype[0] != "c":
        same("gaussian_filter", array, [1.0, 2.0], order=[1, 3], mode=["wrap", "mirror"], truncate=3.0)
        same("gaussian_filter", array, 1.0, radius=[2, 5], axes=(1, 0))
        same("gaussian_filter", array, 0)
        same("prewitt", array, 0, mode="nearest")
        same("sobel", array, -1, mode=["constant", "wrap"], cval=3)
        same("laplace", array)
        same("laplace", array, axes=1, output="f8")
        same("gaussian_laplace", array, 1.2)
        same("gaussian_laplace", array, (1.2, 2.0), output="f8", truncate=2.0)
        same("gaussian_gradient_magnitude", array, 1.2, output="f8")
        same(
            "generic_laplace",
            array,
            lambda a, axis, out, mode, cval: scipy.correlate1d(a, [1, 2], axis, out, mode, cval),
        )
        same("generic_gradient_magnitude", array.astype("f8"), scipy.sobel)
    same("uniform_filter", array, (3, 4), origin=(1, -2), mode=["wrap", "reflect"])
    same("uniform_filter", array, 3, axes=0)
    same("correlate", array, picture((3,), "f8"), axes=1, origin=1)
    same("correlate", array, picture((2, 3), "c16", 4))
    same("convolve", array, picture((2, 3), "c16", 4))
    same("convolve1d", array, picture((4,), "c16", 4))


def test_layouts():
    base = picture((40, 60, 3), "f4")
    for array in (
        base[::2],
        base[:, ::-3],
        base[..., 1],
        base.T,
        np.asfortranarray(base),
        base.astype(">f4"),
        base[:1],
    ):
        same("gaussian_filter", array, 1.5)
        same("uniform_filter", array, 3)
        same("correlate", array, np.ones((2,) * array.ndim) / 7)
    line = np.broadcast_to(base[0, :, :1], (60, 8))
    same("correlate1d", line, [1, 2, 3], axis=0)
    same("correlate1d", line, [1, 2, 3], axis=1)
    unaligned = np.frombuffer(b"x" + base.tobytes(), "f4", offset=1)
    same("correlate1d", unaligned, [1, 2, 3])


def test_outputs():
    array = picture((30, 50), "f8")
    for output in (
        np.empty((30, 50)),
        np.empty((50, 30), "i4").T,
        np.empty((60, 50), "f4")[::2],
        np.empty((30, 50), ">f8"),
    ):
        for name, arguments in {
            "gaussian_filter": (2,),
            "correlate": (np.ones((3, 3)),),
            "uniform_filter": (4,),
        }.items():
            expected = getattr(scipy, name)(array, *arguments, output=output.copy())
            assert getattr(ours, name)(array, *arguments, output=output) is output
            assert output.tobytes() == expected.tobytes()
    for name, arguments in {
        "gaussian_filter": (2,),
        "correlate": (np.ones((3, 3)),),
        "laplace": (),
        "sobel": (),
    }.items():
        shared = array.copy()
        expected = getattr(scipy, name)(array, *arguments)
        getattr(ours, name)(shared, *arguments, output=shared)
        assert (shared == expected).all()
    with pytest.raises(ValueError, match="read-only"):
        frozen = array.copy()
        frozen.flags.writeable = False
        ours.sobel(array, output=frozen)


def test_empty_arrays():
    for shape in ((0,), (0, 5), (5, 0)):
        same("gaussian_filter", np.zeros(shape), 1.0)
        same("correlate", np.zeros(shape), np.ones((3,) * len(shape)))


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.correlate1d(np.zeros(4), []),
        lambda m: m.correlate1d(np.zeros(4), [[1.0]]),
        lambda m: m.correlate1d(np.zeros(4), [1, 2, 3], origin=2),
        lambda m: m.correlate1d(np.zeros(4), [1, 2, 3], axis=1),
        lambda m: m.correlate1d(np.zeros(4), [1, 2, 3], mode="edge"),
        lambda m: m.correlate1d(np.zeros(4), [1, 2, 3], output=np.zeros(5)),
        lambda m: m.correlate1d(np.zeros(4, "f2"), [1, 2, 3]),
        lambda m: m.correlate(np.zeros((4, 4)), np.ones(3)),
        lambda m: m.correlate(np.zeros((4, 4)), np.ones((3, 3)), origin=(0, 2)),
        lambda m: m.correlate(np.zeros((4, 4)), np.ones((3, 3)), mode=["wrap", "wrap"]),
        lambda m: m.uniform_filter1d(np.zeros(4), 0),
        lambda m: m.uniform_filter1d(np.zeros(4), 3, origin=2),
        lambda m: m.gaussian_filter(np.zeros(4), 1, radius=1.5),
        lambda m: m.gaussian_filter(np.zeros(4), 1, order=-1),
        lambda m: m.gaussian_filter(np.zeros((4, 4)), [1, 2, 3]),
        lambda m: m.gaussian_filter(np.zeros((4, 4)), 1, axes=(0, 0)),
        lambda m: m.gaussian_filter(np.zeros((4, 4)), 1, axes=(2,)),
    ],
)
def test_errors_are_of_scipys_kind(call):
    with pytest.raises(Exception) as expected:
        call(scipy)
    with pytest.raises(type(expected.value)):
        call(ours)
