"""Blocks give the whole array's result, for any function, shape, chunks, axes and modes."""

import warnings

import numpy as np
import pytest

da = pytest.importorskip("dask.array")
hypothesis = pytest.importorskip("hypothesis")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import apron  # noqa: E402
import apron.dask  # noqa: E402
from apron import ndimage  # noqa: E402

MODES = ["reflect", "constant", "nearest", "mirror", "wrap", "grid-mirror", "grid-wrap", "grid-constant"]
TYPES = ["?", "u1", "i2", "u4", "f4", "f8", ">f8", "c16"]
OUTPUTS = [None, None, None, "u1", "i4", "f4", "f8", np.float32, "c8"]
BORDERS = ["constant:9", "replicate", "reflect", "reflect101", "wrap", "keep"]


def array(shape, dtype):
    """An array of small whole numbers, so that running means of floating-point types are exact."""
    values = np.random.default_rng(len(shape)).integers(-60, 200, shape)
    return (values if dtype != "c16" else values + 1j * np.flip(values)).astype(dtype)


@st.composite
def chunks(draw, shape):
    """A partition of each axis; parts may be empty."""
    each = []
    for size in shape:
        cuts = sorted(draw(st.lists(st.integers(0, size), max_size=4)))
        each.append(tuple(high - low for low, high in zip([0, *cuts], [*cuts, size])))
    return tuple(each)


def for_each(draw, count, one):
    """One value for all axes, or one for each."""
    return draw(one) if draw(st.booleans()) else draw(st.lists(one, min_size=count, max_size=count))


@st.composite
def calls(draw):
    """A function of :mod:`apron.ndimage`, its array, chunks and arguments."""
    name = draw(st.sampled_from(sorted(ndimage.__all__)))
    shape = tuple(draw(st.lists(st.integers(1, 14), min_size=1, max_size=3)))
    dims = len(shape)
    keywords = {"output": draw(st.sampled_from(OUTPUTS)), "cval": draw(st.sampled_from([0.0, 2.5]))}
    count = dims
    if "axes" in ndimage_parameters(name) and draw(st.booleans()):
        axes = draw(st.lists(st.integers(0, dims - 1), unique=True, max_size=dims))
        count, keywords["axes"] = len(axes), [axis - draw(st.sampled_from([0, dims])) for axis in axes]
    keywords["mode"] = draw(st.sampled_from(MODES))
    several = ("correlate", "convolve", "correlate1d", "convolve1d", "gaussian_filter1d", "uniform_filter1d")
    if name not in several and draw(st.booleans()):
        modes = dims if name in ("sobel", "prewitt") else count
        keywords["mode"] = draw(st.lists(st.sampled_from(MODES), min_size=modes, max_size=modes))
    axis = st.integers(-dims, dims - 1)
    sigma = st.sampled_from([0, 0.3, 0.8, 1.5, 3.0])
    size = st.integers(1, 6)
    if name in ("correlate", "convolve"):
        window = draw(st.lists(st.integers(1, 4), min_size=count, max_size=count))
        taps = array(tuple(window), draw(st.sampled_from(["f8", "f8", "c16"]))) / 50
        arguments = (taps,)
        keywords["origin"] = [draw(st.integers(-(length // 2), (length - 1) // 2)) for length in window]
    elif name in ("correlate1d", "convolve1d"):
        length = draw(st.integers(1, 7))
        arguments = (array((length,), "f8") / 50, draw(axis))
        keywords["origin"] = draw(st.integers(-((length - 1) // 2), (length - 1) // 2))
    elif name == "uniform_filter1d":
        length = draw(size)
        arguments = (length, draw(axis))
        keywords["origin"] = draw(st.integers(-(length // 2), (length - 1) // 2))
    elif name == "uniform_filter":
        arguments = (for_each(draw, count, size),)
        keywords["origin"] = draw(st.sampled_from([0, 0, -1, 1]))
    elif name == "gaussian_filter1d":
        arguments = (draw(sigma.filter(bool)), draw(axis), draw(st.integers(0, 3)))
        keywords["radius"] = draw(st.sampled_from([None, None, 2, 9]))
    elif name == "gaussian_filter":
        arguments = (for_each(draw, count, sigma), for_each(draw, count, st.integers(0, 2)))
        keywords["radius"] = for_each(draw, count, st.sampled_from([None, 1, 5]))
        keywords["truncate"] = draw(st.sampled_from([4.0, 2.0]))
    elif name == "gaussian_laplace":
        arguments = (for_each(draw, count, sigma),)
    elif name == "gaussian_gradient_magnitude":
        # SciPy also smooths along axes that are not listed.
        arguments = (for_each(draw, dims, sigma),)
        keywords["truncate"] = draw(st.sampled_from([4.0, 2.0]))
    elif name in ("sobel", "prewitt"):
        arguments = (draw(axis),)
    elif name == "laplace":
        arguments = ()
    else:
        arguments = (draw(st.sampled_from([ndimage.sobel, ndimage.prewitt])),)
    dtype = draw(st.sampled_from(TYPES))
    return name, array(shape, dtype), draw(chunks(shape)), arguments, keywords


def ndimage_parameters(name):
    import inspect

    return inspect.signature(getattr(ndimage, name)).parameters


@given(calls())
@settings(max_examples=400, deadline=None)
@pytest.mark.filterwarnings("ignore")
def test_functions_of_scipy(call):
    name, whole, parts, arguments, keywords = call
    function = getattr(ndimage, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = function(whole, *arguments, **keywords)
        except Exception as error:
            with pytest.raises(type(error)):
                function(da.from_array(whole, parts), *arguments, **keywords).compute(scheduler="sync")
            return
        lazy = function(da.from_array(whole, parts), *arguments, **keywords)
        found = lazy.compute(scheduler="sync")
    assert isinstance(lazy, da.Array)
    assert lazy.dtype == found.dtype == expected.dtype and lazy.shape == found.shape == expected.shape
    if name == "uniform_filter" and found.dtype.kind in "fc":
        # The second mean adds up fractions: its rounding depends on where the running sum starts.
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4 if found.dtype.itemsize in (4, 8) else 1e-10)
    else:
        np.testing.assert_array_equal(found, expected)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_plans(data):
    draw = data.draw
    shape = tuple(draw(st.lists(st.integers(1, 24), min_size=2, max_size=2)))
    axis = draw(st.integers(0, 2))
    if draw(st.booleans()):
        shape = (*shape[:axis], draw(st.integers(1, 3)), *shape[axis:])
    cols, rows = draw(st.integers(1, 7)), draw(st.integers(1, 7))
    anchor = draw(st.integers(0, cols - 1)), draw(st.integers(0, rows - 1))
    filter = draw(
        st.sampled_from(
            [
                apron.Filter.from_taps(np.arange(cols * rows).reshape(rows, cols) ** 2 % 7 / 50, anchor),
                apron.Filter.separable(np.arange(1, cols + 1) / 9, np.arange(1, rows + 1) / 9, anchor),
                apron.Filter.gaussian((0.4, 2.0)),
                apron.Filter.emboss(),
            ]
        )
    )
    whole = (np.random.default_rng(1).random(shape) * 255).astype(draw(st.sampled_from(["u1", "u2", "f2", "f4"])))
    dtype = draw(st.sampled_from([None, "f4", "u1"]))
    border = draw(st.sampled_from(BORDERS))
    expected = apron.Plan(filter, border, "cpu")(whole, axis=axis, dtype=dtype)
    parts = da.from_array(whole, draw(chunks(shape)))
    found = apron.dask.filter(parts, filter, border, "cpu", axis=axis, dtype=dtype)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_array_equal(found.compute(scheduler="sync"), expected)


UNKNOWN = da.zeros((6, 8), chunks=3)[da.arange(6, chunks=3) > 2]
MASKED = da.ma.masked_greater(da.zeros((6, 8), chunks=3), 1)


def every_function(image):
    """A call of each function with an image of two dimensions."""
    arguments = {
        "correlate": (np.ones((3, 3)),),
        "convolve": (np.ones((3, 3)),),
        "correlate1d": ([1.0, 2.0],),
        "convolve1d": ([1.0, 2.0],),
        "generic_laplace": (ndimage.sobel,),
        "generic_gradient_magnitude": (ndimage.sobel,),
        "laplace": (),
        "sobel": (),
        "prewitt": (),
        "uniform_filter": (),
        "uniform_filter1d": (3,),
    }
    for name in ndimage.__all__:
        yield lambda name=name: getattr(ndimage, name)(image, *arguments.get(name, (1.0,)))
    yield lambda: apron.Plan("box:size=3", device="cpu")(image)
    yield lambda: apron.dask.filter(image, "box:size=3", device="cpu")


def test_every_function_names_the_way_out():
    for call in every_function(UNKNOWN):
        with pytest.raises(ValueError, match=r"unknown chunks: call compute_chunk_sizes\(\)"):
            call()
    for call in every_function(MASKED):
        with pytest.raises(TypeError, match=r"masked array.*filled\(0\)"):
            call()
    import dask

    for call in every_function(dask.delayed(np.zeros)((6, 8))):
        with pytest.raises(TypeError, match=r"dask\.array\.Array is needed"):
            call()
    for image in (np.zeros((6, 8)), [[1.0]], None):
        with pytest.raises(TypeError, match=r"dask\.array\.Array is needed; plans take arrays in memory"):
            apron.dask.filter(image, "box:size=3")
    for dtype in ("?", "c8", "O", "S1"):
        with pytest.raises(TypeError, match="the type is"):
            apron.dask.filter(da.zeros((6, 8), dtype=dtype, chunks=3), "box:size=3")
    with pytest.raises(ValueError, match="at least 1"):
        apron.dask.filter(da.zeros((0, 8)), "box:size=3")
