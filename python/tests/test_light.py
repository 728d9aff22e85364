"""Linear light."""

import pickle

import apron
import numpy as np
import pytest


def srgb(x):
    return np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)


def of_srgb(y):
    return np.where(y <= 0.0031308, y * 12.92, 1.055 * np.maximum(y, 1e-30) ** (1 / 2.4) - 0.055)


def mean(image):
    """The mean of three columns."""
    return (image[:, :-2] + image[:, 1:-1] + image[:, 2:]) / 3


def test_black_and_white_become_188():
    image = np.tile(np.array([0, 255], np.uint8), (8, 20))
    assert set(apron.Plan("box:2", linear=True)(image).ravel()) == {188}
    assert set(apron.Plan("box:2")(image).ravel()) == {128}


def test_types():
    rng = np.random.default_rng(1)
    image = rng.random((20, 30)).astype(np.float32)
    plan = apron.Plan("box:cols=3,rows=1", linear=True)
    right = of_srgb(mean(srgb(image.astype(float))))
    np.testing.assert_allclose(plan(image)[:, 1:-1], right, rtol=3e-6)
    for dtype, white, off in ((np.uint8, 255, 0.5001), (np.uint16, 65535, 0.55)):
        stored = np.round(white * image).astype(dtype)
        right = white * of_srgb(mean(srgb(stored / white)))
        assert np.abs(plan(stored)[:, 1:-1] - right).max() <= off


def test_functions():
    image = np.random.default_rng(2).random((9, 30)).astype(np.float32)
    plan = apron.Plan("box:cols=3,rows=1", linear="gamma=2")
    np.testing.assert_allclose(plan(image)[:, 1:-1], np.sqrt(mean(image.astype(float) ** 2)), rtol=3e-6)
    assert plan.linear == "gamma=2"
    assert apron.Plan("box:3").linear is None
    assert apron.Plan("box:3", linear=True).linear == "linear"
    again = pickle.loads(pickle.dumps(plan))
    assert again.linear == "gamma=2"
    assert (again(image) == plan(image)).all()


def test_what_is_refused():
    image = np.zeros((5, 5), np.uint8)
    with pytest.raises(ValueError, match="srgb"):
        apron.Plan("box:3", linear="bright")
    with pytest.raises(TypeError, match="linear"):
        apron.Plan("box:3", linear=2)
    with pytest.raises(ValueError, match="another border"):
        apron.Plan("box:3", "none", linear=True)
    plan = apron.Plan("box:3", linear=True)
    with pytest.raises(ValueError, match="masks"):
        plan(image, mask=image)
    with pytest.raises(ValueError, match="f64"):
        plan(image.astype(float))


def test_threshold_of_unsharp():
    rng = np.random.default_rng(3)
    image = rng.integers(90, 110, (40, 50, 3)).astype(np.uint8)
    image[:, 25:] += 100
    sigma, amount, threshold = 1.5, 0.8, 5
    text = f"unsharp:sigma={sigma},amount={amount}"
    found = apron.Plan(f"{text},threshold={threshold}")(image)
    sharp = apron.Plan(text)(image).astype(int)
    right = np.where(np.abs(sharp - image) >= amount * threshold, sharp, image)
    assert (found == right).all()
    # What it means: the distance from the blur, but for roundings.
    blur = apron.ndimage.gaussian_filter(image.astype(float), sigma, axes=(0, 1), mode="mirror")
    far = np.abs(image - blur)
    assert (found[far < threshold - 1] == image[far < threshold - 1]).all()
    assert (found[far > threshold + 1] == sharp[far > threshold + 1]).all()
    assert 0.05 < (found == image).mean() < 0.95
    assert apron.Filter.unsharp(sigma, amount, threshold) == apron.Filter(f"{text},threshold={threshold}")
    with pytest.raises(ValueError, match="threshold"):
        apron.Filter.unsharp(sigma, amount, -1)
