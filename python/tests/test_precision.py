"""`apron.ndimage.precision`: sums in f32 beside SciPy's, on NumPy's arrays and on device arrays."""

import threading

import numpy as np
import pytest
import scipy.ndimage

import apron
from apron import ndimage


def has_gpu():
    try:
        apron.Plan("identity", device="gpu")
    except RuntimeError:
        return False
    return True


PLACES = ["numpy", pytest.param("device", marks=pytest.mark.skipif(not has_gpu(), reason="no GPU"))]
MODES = ["reflect", "mirror", "nearest", "wrap", "constant"]
SHAPES = [(57,), (11, 23), (40, 1), (7, 9, 12), (4, 3, 5, 6), (2, 3, 1, 3, 4)]

FUNCTIONS = {
    "correlate1d": lambda module, array, **rest: module.correlate1d(array, [0.1, -0.5, 0.3, 2], 0, origin=-1, **rest),
    "convolve1d": lambda module, array, **rest: module.convolve1d(array, [1, 2, 4, 2, 1], -1, origin=1, **rest),
    "gaussian_filter1d": lambda module, array, **rest: module.gaussian_filter1d(array, 1.5, order=1, **rest),
    "gaussian_filter": lambda module, array, **rest: module.gaussian_filter(array, 0.8, **rest),
    "gaussian_filter, sigmas": lambda module, array, **rest: module.gaussian_filter(
        array, [0.5 + 0.4 * axis for axis in range(array.ndim)], **rest
    ),
    "gaussian_filter, one axis": lambda module, array, **rest: module.gaussian_filter(array, 1.2, axes=(0,), **rest),
    "gaussian_filter, none": lambda module, array, **rest: module.gaussian_filter(array, 0, **rest),
    "sobel": lambda module, array, **rest: module.sobel(array, 0, **rest),
    "laplace": lambda module, array, **rest: module.laplace(array, **rest),
    "gaussian_laplace": lambda module, array, **rest: module.gaussian_laplace(array, 1, **rest),
    "uniform_filter1d": lambda module, array, **rest: module.uniform_filter1d(array, 5, 0, origin=1, **rest),
    "uniform_filter": lambda module, array, **rest: module.uniform_filter(array, 4, **rest),
}


class There:
    """The module's functions on device arrays, with NumPy's results."""

    def __getattr__(self, name):
        function = getattr(ndimage, name)
        return lambda array, *args, **rest: function(apron.to_device(array), *args, **rest).numpy()


def values(shape, seed=0):
    return (np.random.default_rng(seed).random(shape) * 200 - 50).astype(np.float32)


def module(place):
    return ndimage if place == "numpy" else There()


def near(found, array, function, **rest):
    assert found.dtype == np.float32 and found.shape == array.shape
    exact = function(scipy.ndimage, array.astype(np.float64), **rest)
    # Weights of these functions sum to less than 32 in magnitude.
    np.testing.assert_allclose(found, exact, rtol=0, atol=32 * 150 * 40 * 2.0**-24)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, place):
    function = FUNCTIONS[name]
    for number, shape in enumerate(SHAPES):
        array, mode = values(shape), MODES[number % 5]
        with ndimage.precision("f32"):
            found = function(module(place), array, mode=mode, cval=1.5)
        near(found, array, function, mode=mode, cval=1.5)


@pytest.mark.parametrize("place", PLACES)
def test_sums_are_those_of_plans(place):
    array = values((5, 40, 50))
    with ndimage.precision("f32"):
        found = module(place).gaussian_filter(array, 2, axes=(1, 2))
    expected = apron.Plan("gaussian:sigma=2", "reflect", device="cpu")(array, layout="nhw")
    np.testing.assert_array_equal(found, expected)
    assert (found != ndimage.gaussian_filter(array, 2, axes=(1, 2))).any()


def test_modes_of_their_own():
    array = values((9, 13, 7))
    modes = ["wrap", "reflect", "nearest"]
    with ndimage.precision("f32"):
        found = ndimage.gaussian_filter(array, 1, mode=modes)
    near(found, array, lambda module, array: module.gaussian_filter(array, 1, mode=modes))


@pytest.mark.parametrize("axes", [(2,), (1, 2), (0, 1, 2), (0,), (0, 2)])
def test_in_place(axes):
    array = values((8, 9, 13))
    expected = scipy.ndimage.gaussian_filter(array.astype(float), 1, axes=axes)
    with ndimage.precision("f32"):
        found = array.copy()
        assert ndimage.gaussian_filter(found, 1, output=found, axes=axes) is found
    np.testing.assert_allclose(found, expected, atol=1e-4)
    if has_gpu():
        there = apron.to_device(array)
        with ndimage.precision("f32"):
            ndimage.gaussian_filter(there, 1, output=there, axes=axes)
        np.testing.assert_array_equal(there.numpy(), found)


def test_other_arrays_keep_scipys_sums():
    array = values((9, 14))
    with ndimage.precision("f32"):
        for other in (array.astype("f8"), array.astype("i2")):
            np.testing.assert_array_equal(ndimage.gaussian_filter(other, 1), scipy.ndimage.gaussian_filter(other, 1))
        weights = [1, np.inf, 1]
        np.testing.assert_array_equal(ndimage.correlate1d(array, weights), scipy.ndimage.correlate1d(array, weights))
        assert ndimage.gaussian_filter(array[:0], 1).shape == (0, 14)
        with pytest.raises(RuntimeError, match="boundary mode"):
            ndimage.gaussian_filter(array, 1, mode="reflex")
        with pytest.raises(ValueError, match="origin"):
            ndimage.uniform_filter(array, 3, origin=2)


@pytest.mark.parametrize("change", [lambda array: array[:, ::2], np.transpose, lambda array: array.astype(">f4")])
def test_arrays_in_other_orders(change):
    array = change(values((9, 14)))
    plain = np.ascontiguousarray(array, np.float32)
    out = change(np.zeros((9, 14), np.float32))
    with ndimage.precision("f32"):
        expected = ndimage.gaussian_filter(plain, 1)
        np.testing.assert_array_equal(ndimage.gaussian_filter(array, 1), expected)
        assert ndimage.gaussian_filter(plain, 1, output=out) is out
    np.testing.assert_array_equal(out, expected)


def test_scope():
    array = values((9, 14))
    plain = ndimage.gaussian_filter(array, 1)
    seen = []
    with ndimage.precision("f32"):
        singles = ndimage.gaussian_filter(array, 1)
        with ndimage.precision("f64"):
            np.testing.assert_array_equal(ndimage.gaussian_filter(array, 1), plain)
        np.testing.assert_array_equal(ndimage.gaussian_filter(array, 1), singles)
        thread = threading.Thread(target=lambda: seen.append(ndimage.gaussian_filter(array, 1)))
        thread.start()
        thread.join()
    np.testing.assert_array_equal(seen[0], plain)
    np.testing.assert_array_equal(ndimage.gaussian_filter(array, 1), plain)
    assert (singles != plain).any()
    with pytest.raises(ValueError, match="f16"):
        with ndimage.precision("f16"):
            pass
