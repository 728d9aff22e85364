"""Dask arrays filtered block by block give the same bytes as the whole array at once."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

da = pytest.importorskip("dask.array")

import apron  # noqa: E402
import apron.dask  # noqa: E402

CPU = {"device": "cpu"}
BORDERS = ["constant:9", "replicate", "reflect", "reflect101", "wrap", "keep"]
FILTERS = {
    "symmetric": apron.Filter.gaussian(1.5),
    "not separable": apron.Filter.emboss(),
    "aside": apron.Filter.from_taps(np.arange(12.0).reshape(2, 6) / 66, anchor=(5, 0)),
    "wide": apron.Filter.box((41, 3)),
}


def picture(shape, dtype="u1", seed=0):
    random = np.random.default_rng(seed)
    return (random.random(shape) * 255).astype(dtype)


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("dtype", ["u1", "f4", "i4", "f8"])
def test_every_border_by_blocks(border, name, dtype):
    image = picture((61, 83), dtype)
    whole = apron.Plan(FILTERS[name], border, "cpu")(image)
    for chunks in ((61, 83), (20, 30), (7, 83), ((50, 10, 1), (1, 2, 80))):
        blocks = apron.dask.filter(da.from_array(image, chunks), FILTERS[name], border, **CPU)
        assert blocks.dtype == image.dtype and blocks.shape == image.shape
        np.testing.assert_array_equal(blocks.compute(), whole)


def test_windows_larger_than_the_image():
    image = picture((9, 12), "f4")
    for border in BORDERS:
        filter = apron.Filter.gaussian(6.0)
        whole = apron.Plan(filter, border, "cpu")(image)
        np.testing.assert_array_equal(
            apron.dask.filter(da.from_array(image, (4, 5)), filter, border, **CPU).compute(), whole
        )


@pytest.mark.parametrize("alpha", ["auto", "premultiply", "premultiplied", "keep", "filter"])
@pytest.mark.parametrize(
    "shape, axis, chunks", [((40, 50, 4), -1, (16, 20, 2)), ((4, 40, 50), 0, (1, 16, 20)), ((40, 50, 3), -1, 20)]
)
def test_alpha(alpha, shape, axis, chunks):
    image = picture(shape)
    for filter in ("gaussian:sigma=2", "sharpen")[: 1 if alpha == "premultiply" else 2]:
        plan = apron.Plan(filter, "wrap", "cpu", alpha=alpha)
        blocks = da.from_array(image, chunks)
        np.testing.assert_array_equal(plan(blocks, axis=axis).compute(), plan(image, axis=axis))
        named = apron.dask.filter(blocks, filter, "wrap", axis=axis, alpha=alpha, **CPU)
        np.testing.assert_array_equal(named.compute(), plan(image, axis=axis))


@pytest.mark.parametrize(
    "shape, axis, chunks",
    [((40, 50, 3), -1, (16, 20, 3)), ((3, 40, 50), 0, (1, 16, 20)), ((40, 3, 50), 1, (16, 2, 20))],
)
def test_channels(shape, axis, chunks):
    image = picture(shape)
    plan = apron.Plan("gaussian:sigma=2", "wrap", "cpu")
    blocks = da.from_array(image, chunks)
    np.testing.assert_array_equal(plan(blocks, axis=axis).compute(), plan(image, axis=axis))
    wide = apron.dask.filter(blocks, plan, axis=axis, dtype="f4")
    assert wide.dtype == np.float32
    np.testing.assert_array_equal(wide.compute(), plan(image, axis=axis, dtype="f4"))


@pytest.mark.parametrize("mode", ["reflect", "constant", "nearest", "mirror", "wrap"])
@pytest.mark.parametrize("dtype", ["u1", "f8"])
def test_scipys_filters(mode, dtype):
    image = picture((37, 52), dtype)
    calls = {
        "gaussian_filter": [(1.5,), {}],
        "gaussian_filter1d": [(2.0, 0), {"order": 1}],
        "gaussian_laplace": [(1.2,), {"output": "f8"}],
        "gaussian_gradient_magnitude": [((1.0, 2.0),), {"output": "f8"}],
        "sobel": [(0,), {}],
        "prewitt": [(), {}],
        "laplace": [(), {"output": "i4"}],
        "correlate": [(np.arange(12.0).reshape(3, 4) / 60,), {"origin": (1, -2)}],
        "convolve": [(np.arange(12.0).reshape(3, 4) / 60,), {"output": "f4"}],
        "correlate1d": [([1.0, 2, 4, 1],), {"axis": 0, "origin": 1}],
        "convolve1d": [([1.0, 2, 4, 1],), {"origin": -1}],
    }
    if dtype == "u1":
        calls["uniform_filter"] = [((3, 6),), {"origin": (0, 2)}]
        calls["uniform_filter1d"] = [(5,), {"axis": 0}]
    for name, (arguments, keywords) in calls.items():
        function = getattr(apron.ndimage, name)
        whole = function(image, *arguments, mode=mode, cval=7, **keywords)
        blocks = function(da.from_array(image, (10, 20)), *arguments, mode=mode, cval=7, **keywords)
        assert isinstance(blocks, da.Array) and blocks.dtype == whole.dtype
        np.testing.assert_array_equal(blocks.compute(), whole, err_msg=name)
    by_axis = {"sigma": (1.0, 2.5), "mode": ("wrap", mode)}
    blocks = apron.ndimage.gaussian_filter(da.from_array(image, (10, 20)), **by_axis)
    np.testing.assert_array_equal(blocks.compute(), apron.ndimage.gaussian_filter(image, **by_axis))
    blocks = apron.ndimage.gaussian_filter(da.from_array(image, (10, 20)), 2.0, mode=mode, axes=1)
    np.testing.assert_array_equal(blocks.compute(), apron.ndimage.gaussian_filter(image, 2.0, mode=mode, axes=1))


def test_errors():
    image = da.zeros((10, 10), chunks=5)
    with pytest.raises(ValueError):
        apron.dask.filter(da.zeros(10), "identity")
    with pytest.raises(ValueError):
        apron.dask.filter(da.zeros((3, 4, 5)), "identity", axis=3)
    with pytest.raises(TypeError):
        apron.ndimage.sobel(image, output=np.zeros((10, 10)))
    with pytest.raises(TypeError):
        apron.Plan("identity")(image, np.zeros((10, 10)))


def test_an_image_larger_than_a_worker(tmp_path):
    """The example with small workers, one of which is killed during the work."""
    pytest.importorskip("distributed")
    pytest.importorskip("zarr")
    example = Path(__file__).parent.parent / "examples" / "dask_zarr.py"
    arguments = [
        "--size",
        "15000",
        "14500",
        "--block",
        "1000",
        "--memory",
        "200MiB",
        "--folder",
        str(tmp_path),
        "--kill",
        "--quiet",
    ]
    done = subprocess.run([sys.executable, example, *arguments], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a worker was killed" in done.stdout and "equal to one machine's result: True" in done.stdout
