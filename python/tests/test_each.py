"""A filter for each image of a batch: every image is the result of its own plan."""

import numpy as np
import pytest

import apron
from apron import Filter, Plan, batch

LAYOUTS = {"nhwc": -1, "nchw": 0, "nhw": -1}
SHAPES = {"nhwc": (5, 33, 57, 3), "nchw": (5, 2, 33, 57), "nhw": (5, 33, 57)}
#: Windows of several sizes, a mean, one that is no product, and one of a single row.
FILTERS = ["gaussian:sigma=0.4", Filter.gaussian(2.5), "box:cols=4,rows=9", "sharpen", "taps:0.25 0.5 0.25"]
SIGMA = [0.2, 0.7, 1.0, 2.5, 4.0]


def pictures(shape, dtype, seed=0):
    return (255 * np.random.default_rng(seed).random(shape)).astype(dtype)


def alone(images, filters, layout, border="reflect101", dtype=None, device="auto", **options):
    results = [
        Plan(one, border, device, **options)(image, axis=LAYOUTS[layout], dtype=dtype)
        for image, one in zip(images, filters)
    ]
    return np.stack([np.asarray(result) for result in results])


def needs_gpu():
    try:
        apron.to_device(np.zeros((1, 1), "u1"))
    except RuntimeError as error:
        pytest.skip(f"no GPU: {error}")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["u1", "u2", "f2", "f4", "f8", "i2", ">f4"])
def test_results_are_those_of_single_calls(layout, dtype):
    images = pictures(SHAPES[layout], dtype)
    for border in ("reflect101", "constant:7", "wrap", "keep", "none"):
        found = batch(images, FILTERS, layout=layout, border=border)
        assert found.dtype == images.dtype.newbyteorder("=")
        np.testing.assert_array_equal(found, alone(images, FILTERS, layout, border))
    for other in ("f4", "u1"):
        expected = alone(images, FILTERS, layout, dtype=other)
        np.testing.assert_array_equal(batch(images, FILTERS, layout=layout, dtype=other), expected)
        out = np.zeros(images.shape, other)
        assert batch(images, FILTERS, out, layout=layout) is out
        np.testing.assert_array_equal(out, expected)


def test_sigma():
    images = pictures(SHAPES["nhw"], "f4")
    expected = alone(images, [Filter.gaussian(sigma) for sigma in SIGMA], "nhw")
    np.testing.assert_array_equal(batch(images, sigma=SIGMA), expected)
    np.testing.assert_array_equal(batch(images, sigma=np.array(SIGMA)), expected)
    pairs = [(sigma, 1.5) for sigma in SIGMA]
    expected = alone(images, [Filter.gaussian(pair) for pair in pairs], "nhw")
    np.testing.assert_array_equal(batch(images, sigma=pairs), expected)


def test_views_and_overlaps():
    """Arrays in any order; the output may be the images."""
    large = pictures((5, 40, 60, 3), "u1")
    for images in (large[:, ::2], large[::-1], large[:, :, ::-1], large.transpose(0, 2, 1, 3), large[..., 1:]):
        expected = alone(images, FILTERS, "nhwc")
        np.testing.assert_array_equal(batch(images, FILTERS, layout="nhwc"), expected)
        copy = images.copy()
        assert batch(copy, FILTERS, copy, layout="nhwc") is copy
        np.testing.assert_array_equal(copy, expected)
        out = np.zeros(images.shape[::-1], "u1").T
        batch(images, FILTERS, out, layout="nhwc")
        np.testing.assert_array_equal(out, expected)


def test_options_are_those_of_plans():
    images = pictures((5, 20, 30, 4), "u1")
    for options in ({"alpha": "keep"}, {"linear": True}, {"device": "cpu"}):
        found = batch(images, sigma=SIGMA, layout="nhwc", **options)
        filters = [Filter.gaussian(sigma) for sigma in SIGMA]
        np.testing.assert_array_equal(found, alone(images, filters, "nhwc", **options))


def test_mistakes_are_named():
    images = pictures((2, 20, 30), "u1")
    with pytest.raises(TypeError, match="filters or sigma"):
        batch(images)
    with pytest.raises(TypeError, match="filters or sigma"):
        batch(images, ["sharpen"] * 2, sigma=[1, 2])
    with pytest.raises(ValueError, match="3 filters and 2 images"):
        batch(images, sigma=[1, 2, 3])
    with pytest.raises(ValueError, match="at least one image"):
        batch(images[:0], [])
    with pytest.raises(ValueError, match="sigma has the shape"):
        batch(images, sigma=2.0)
    with pytest.raises(ValueError, match="layout"):
        batch(images[..., None], sigma=[1, 2])
    with pytest.raises(ValueError, match="2 dimensions"):
        batch(images[0], sigma=[1] * 20, layout="nhw")
    with pytest.raises(TypeError, match="variant"):
        batch(images, sigma=[1, 2], variant="separable")
    with pytest.raises(ValueError, match="sigma"):
        batch(images, sigma=[1, -2])
    with pytest.raises(ValueError, match="the same"):
        batch(images, out=images[:, :10].copy(), sigma=[1, 2])
    read_only = images.copy()
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        batch(images, out=read_only, sigma=[1, 2])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["u1", "u2", "f2", "f4"])
def test_arrays_of_a_gpu(layout, dtype):
    needs_gpu()
    images = pictures(SHAPES[layout], dtype)
    there = apron.to_device(images, axis={"nhwc": -1, "nchw": 1, "nhw": 0}[layout])
    for border in ("reflect101", "constant:7", "wrap", "keep", "none"):
        expected = alone(images, FILTERS, layout, border, device="cpu")
        np.testing.assert_array_equal(batch(there, FILTERS, layout=layout, border=border).numpy(), expected)
    out = apron.to_device(np.zeros_like(images), axis={"nhwc": -1, "nchw": 1, "nhw": 0}[layout])
    assert batch(there, FILTERS, out, layout=layout) is out
    np.testing.assert_array_equal(out.numpy(), alone(images, FILTERS, layout, device="cpu"))
    with pytest.raises(ValueError, match="4 filters and 5 images"):
        batch(there, FILTERS[:4], layout=layout)


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_other_libraries_on_a_gpu(name):
    needs_gpu()
    library = pytest.importorskip(name)
    make = library.asarray if name == "cupy" else lambda array: library.from_numpy(array).cuda()
    read = (lambda array: array.get()) if name == "cupy" else lambda array: array.cpu().numpy()
    for dtype in ("u1", "f4"):
        images = pictures(SHAPES["nchw"], dtype)
        expected = alone(images, [Filter.gaussian(sigma) for sigma in SIGMA], "nchw", device="cpu")
        found = batch(make(images), sigma=make(np.array(SIGMA)), layout="nchw")
        assert type(found).__module__.partition(".")[0] == name
        np.testing.assert_array_equal(read(found), expected)
