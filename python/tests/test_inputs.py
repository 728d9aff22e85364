"""Arguments whose numbers alone mislead.

Each function refuses each such argument, for each of its arrays, and names the way out.
"""

import inspect
import re

import numpy as np
import pytest

import apron
import apron.dask
from apron import Filter, Plan, cv, ndimage

Image = pytest.importorskip("PIL.Image")

PICTURE = np.arange(48, dtype="u1").reshape(6, 8)
PLAN = Plan("box:size=3", device="cpu")

#: The arguments of the modules' functions, by name; arrays among them are replaced one by one.
ARGUMENTS = {
    "input": PICTURE,
    "src": PICTURE,
    "output": np.zeros((6, 8), "u1"),
    "dst": np.zeros((6, 8), "u1"),
    "weights": [1.0, 2.0, 1.0],
    "kernel": np.ones((3, 3)),
    "kernelX": np.ones(3),
    "kernelY": np.ones(3),
    "sigma": 1.0,
    "size": 3,
    "ddepth": -1,
    "ksize": (3, 3),
    "sigmaX": 1.0,
    "dx": 1,
    "dy": 0,
    "derivative": ndimage.sobel,
    "derivative2": ndimage.sobel,
}
ARRAYS = ["input", "src", "output", "dst", "weights", "kernel", "kernelX", "kernelY"]


def entries():
    """All functions that take arrays: a name, and a call with a substitute for one array."""
    yield "Plan", PLAN
    yield "Plan, out", lambda array: PLAN(PICTURE, array)
    yield "to_device", apron.to_device
    yield "Filter.from_taps", Filter.from_taps
    yield "Filter.separable, row", lambda array: Filter.separable(array, [1.0])
    yield "Filter.separable, column", lambda array: Filter.separable([1.0], array)
    for module in (ndimage, cv):
        for name in module.__all__:
            function = getattr(module, name)
            parameters = inspect.signature(function).parameters
            given = {key: ARGUMENTS[key] for key in parameters if key in ARGUMENTS}
            if name in ("Laplacian", "Sobel"):
                del given["ksize"]
            if name in ("correlate", "convolve"):
                given["weights"] = np.ones((3, 3))
            assert any(key in ARRAYS for key in given), name
            function(**given)
            for key in (key for key in given if key in ARRAYS):
                call = lambda array, function=function, given=given, key=key: function(**{**given, key: array})  # noqa: E731
                yield f"{module.__name__}.{name}, {key}", call


ENTRIES = dict(entries())


@pytest.mark.parametrize("name", ENTRIES)
def test_masks_are_not_lost(name):
    masked = np.ma.array(PICTURE, mask=PICTURE > 40)
    whole = [masked, np.ma.array(PICTURE)]
    if name == "Plan":
        # A plan's result is masked too: see test_masks.py.
        assert all(isinstance(PLAN(array), np.ma.MaskedArray) for array in whole)
        whole = []
    for array in (*whole, [masked[0], masked[1]], [[np.ma.masked, 1], [2, 3]]):
        with pytest.raises(TypeError, match=r"masked array.*pass \w+\.filled\(0\)") as raised:
            ENTRIES[name](array)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ENTRIES)
def test_palettes_are_not_averaged(name):
    image = Image.fromarray(PICTURE).convert("P")
    with pytest.raises(TypeError, match=r'mode P.*pass \w+\.convert\("RGB"\)'):
        ENTRIES[name](image)


@pytest.mark.parametrize("mode", Image.MODES)
def test_modes_of_pillow(mode):
    """An image is filtered by its numbers, or refused with advice to convert it, which works."""
    image = Image.effect_noise((12, 9), 60)
    if mode.startswith("I;16"):
        image = Image.frombytes(mode, (12, 9), image.tobytes() * 2)
    else:
        image = {"La": "LA", "RGBa": "RGBA", "LAB": None}.get(mode, mode) and image.convert("RGB")
        image = Image.new(mode, (12, 9)) if mode == "LAB" else in_mode(image, mode)
    assert image.mode == mode
    try:
        result = PLAN(image)
    except TypeError as error:
        assert mode in ("1", "P", "PA", "HSV", "LAB") and "\n" not in str(error)
        way_out = re.search(r'image\.convert\("(\w+)"\)', str(error)).group(1)
        assert np.asarray(PLAN(image.convert(way_out))).shape[:2] == (9, 12)
        for function in (lambda: ndimage.gaussian_filter(image, 1.0), lambda: cv.blur(image, (3, 3))):
            with pytest.raises(TypeError, match=way_out):
                function()
        return
    numbers = np.asarray(image)
    assert mode not in ("1", "P", "PA", "HSV", "LAB") and result.shape == numbers.shape
    if mode[-1] not in "aA":
        np.testing.assert_array_equal(result, PLAN(numbers))
    np.testing.assert_array_equal(ndimage.uniform_filter(image, 3), ndimage.uniform_filter(numbers, 3))


def in_mode(image, mode):
    """The picture in a mode. Some modes need a conversion to another mode first."""
    for step in {"La": ["LA"], "RGBa": ["RGBA"], "PA": ["LA"]}.get(mode, []):
        image = image.convert(step)
    return image.convert(mode)


def test_a_palette_with_transparency():
    image = Image.fromarray(PICTURE).convert("P")
    image.info["transparency"] = 0
    with pytest.raises(TypeError, match=r'convert\("RGBA"\)'):
        PLAN(image)


def test_subclasses_are_the_same_memory(tmp_path):
    """A file mapped into memory is filtered without a copy, as source and as result."""
    mapped = np.memmap(tmp_path / "in", "u1", "w+", shape=(6, 8))
    mapped[:] = PICTURE
    out = np.memmap(tmp_path / "out", "u1", "w+", shape=(6, 8))
    result = PLAN(mapped)
    assert type(result) is np.ndarray and (result == PLAN(PICTURE)).all()
    assert PLAN(mapped, out) is out
    out.flush()
    assert (tmp_path / "out").read_bytes() == result.tobytes()
    assert type(PLAN(PICTURE.view(type("Other", (np.ndarray,), {})))) is np.ndarray


def test_outputs_that_cannot_be_written():
    for out in ([[0] * 8] * 6, (1, 2), 5):
        with pytest.raises(TypeError, match="out is of type"):
            PLAN(PICTURE, out)
    with pytest.raises(ValueError, match="read-only"):
        PLAN(PICTURE, Image.fromarray(PICTURE))


def test_complex_taps():
    for call in (
        lambda: Filter.from_taps([[1j]]),
        lambda: Filter.separable([1.0], [1j]),
        lambda: cv.filter2D(PICTURE, -1, np.ones((3, 3), "c8")),
        lambda: cv.sepFilter2D(PICTURE, -1, [1.0], [1j]),
    ):
        with pytest.raises(TypeError, match="complex.*real"):
            call()
