"""`apron.cv` beside OpenCV."""

import cv2
import numpy as np
import pytest
from scipy import ndimage

import apron.cv as ours

#: Sources, and the depths that OpenCV goes to from each.
DEPTHS = {
    "u1": [-1, cv2.CV_16S, cv2.CV_32F, cv2.CV_64F],
    "u2": [-1, cv2.CV_32F, cv2.CV_64F],
    "i2": [-1, cv2.CV_32F, cv2.CV_64F],
    "f4": [-1, cv2.CV_32F],
    "f8": [-1, cv2.CV_64F],
}
PAIRS = [(dtype, depth) for dtype, depths in DEPTHS.items() for depth in depths]
BORDERS = [cv2.BORDER_CONSTANT, cv2.BORDER_REPLICATE, cv2.BORDER_REFLECT, cv2.BORDER_REFLECT_101]


def picture(shape, dtype, seed=0):
    random = np.random.default_rng(seed)
    if dtype[0] == "f":
        return random.random(shape).astype(dtype)
    return random.integers(0, 256 if dtype == "u1" else 5000, shape).astype(dtype)


def same(name, src, *args, one=False, **kwargs):
    """Calls both functions and compares the results.

    Integers are the same. With `one`, a few may differ by one: OpenCV computes in f32, which may
    round a tie to either side. Floats are the same to their precision. OpenCV's Gaussians of
    integers are in fixed point, and may be further off.
    """
    expected = getattr(cv2, name)(src, *args, **kwargs)
    found = getattr(ours, name)(src, *args, **kwargs)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if found.dtype.kind == "f":
        scale = max(1.0, np.abs(expected).max())
        # OpenCV's f64 results use taps rounded to f32.
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6 * scale)
    else:
        difference = np.abs(found.astype(np.int64) - expected.astype(np.int64))
        approximate = name == "GaussianBlur" and src.dtype.kind == "u"
        assert difference.max() <= (2 if approximate else 1 if one else 0)
        assert (difference > 0).mean() < (0.5 if approximate else 0.1)


@pytest.mark.parametrize("dtype, depth", PAIRS)
@pytest.mark.parametrize("shape", [(23, 31), (23, 31, 3)])
def test_depths(dtype, depth, shape):
    src = picture(shape, dtype)
    kernel = np.array([[1, -2, 0.5], [0.25, 3, -1]])
    same("filter2D", src, depth, kernel, one=True)
    same("filter2D", src, depth, kernel, anchor=(0, 1), delta=7.25, one=True)
    same("sepFilter2D", src, depth, np.array([0.25, 0.5, 0.25]), np.array([1.0, 2, 1, 0.5]), one=True)
    same("boxFilter", src, depth, (3, 5), one=True)
    same("Sobel", src, depth, 1, 0)
    same("Sobel", src, depth, 0, 1, ksize=5, scale=0.25, delta=3, one=True)
    same("Scharr", src, depth, 1, 0)
    same("Laplacian", src, depth)


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("dtype", ["u1", "f4", "f8"])
def test_borders(border, dtype):
    src = picture((12, 17), dtype)
    same("filter2D", src, -1, picture((5, 4), "f8", 1) / 10, borderType=border, one=True)
    same("filter2D", src, -1, picture((3, 3), "f8", 1) / 10, borderType=border | cv2.BORDER_ISOLATED, one=True)
    same("GaussianBlur", src, (7, 3), 1.5, borderType=border, one=True)
    same("blur", src, (4, 3), borderType=border, one=True)
    same("blur", src, (4, 3), anchor=(0, 2), borderType=border, one=True)
    same("Laplacian", src, cv2.CV_32F if dtype == "f4" else cv2.CV_64F, ksize=3, borderType=border)


@pytest.mark.parametrize("ksize", [(0, 0), (3, 3), (5, 9), (7, 7), (11, 1), (31, 31)])
@pytest.mark.parametrize("sigma", [(0, 0), (0.8, 0), (2.5, 1.2)])
@pytest.mark.parametrize("dtype", ["u1", "u2", "f4"])
def test_gaussians(ksize, sigma, dtype):
    if ksize == (0, 0) and sigma == (0, 0):
        return
    same("GaussianBlur", picture((40, 50), dtype), ksize, sigmaX=sigma[0], sigmaY=sigma[1], one=True)


@pytest.mark.parametrize(
    "dx, dy, ksize",
    [(1, 0, 1), (0, 2, 1), (1, 1, 3), (2, 0, 3), (1, 2, 5), (0, 3, 7), (4, 0, 7), (2, 2, 9), (0, 1, -1)],
)
def test_derivatives(dx, dy, ksize):
    src = picture((25, 33, 3), "u1")
    for depth in (cv2.CV_32F, cv2.CV_64F):
        same("Sobel", src, depth, dx, dy, ksize=ksize)
    same("Sobel", src, cv2.CV_16S, dx, dy, ksize=ksize, one=True)
    if ksize > 0:
        same("Laplacian", src, cv2.CV_32F, ksize=ksize)


def test_unnormalised_box_and_dst():
    src = picture((20, 30), "u1")
    same("boxFilter", src, cv2.CV_32F, (3, 3), normalize=False)
    same("boxFilter", src, -1, (2, 2), normalize=False)
    for dst in (np.empty_like(src), np.empty((30, 20), "u1").T):
        assert ours.blur(src, (3, 3), dst) is dst
        np.testing.assert_array_equal(dst, ours.blur(src, (3, 3)))
    wrong = np.zeros((2, 2), "u1")
    assert ours.blur(src, (3, 3), wrong) is not wrong and not wrong.any()
    out = np.empty(src.shape, "f8")
    assert ours.Sobel(src, cv2.CV_64F, 1, 0, out) is out and out.any()


@pytest.mark.parametrize("depth", [-1, *range(8)])
@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"])
def test_every_type_goes_to_every_depth(dtype, depth):
    """Also covers pairs of types that OpenCV lacks.

    The expected values are computed in f64, rounded half to even and saturated.
    """
    src = picture((9, 14), dtype) if dtype != "i1" else picture((9, 14), "u1").astype("i1")
    kernel = np.array([[0.5, -0.25], [0.25, 1.0]])
    found = ours.filter2D(src, depth, kernel, borderType=cv2.BORDER_REPLICATE)
    exact = ndimage.correlate(src.astype("f8"), kernel, mode="nearest")
    wanted = src.dtype if depth == -1 else np.dtype(["u1", "i1", "u2", "i2", "i4", "f4", "f8", "f2"][depth])
    assert found.dtype == wanted
    if wanted.kind == "f":
        np.testing.assert_allclose(found, exact.astype(wanted), rtol={2: 1e-3, 4: 1e-6, 8: 1e-12}[wanted.itemsize], atol=1e-3)
    else:
        limits = np.iinfo(wanted)
        np.testing.assert_array_equal(found.astype("f8"), np.clip(np.rint(exact), limits.min, limits.max))
    same_result = ours.Sobel(src, depth, 1, 0), ours.boxFilter(src, depth, (3, 3)), ours.sepFilter2D(src, depth, [1, 2], [1.0])
    assert all(result.dtype == wanted for result in same_result)


@pytest.mark.parametrize("name", ours.__all__)
@pytest.mark.parametrize("dtype, way_out", [("?", "astype"), ("c8", r"src\.real"), ("c16", r"src\.real"), ("O", "integers"), ("M8[s]", "integers"), ("S1", "integers")])
def test_other_types_are_refused(name, dtype, way_out):
    arguments = {
        "GaussianBlur": ((3, 3), 1.0),
        "Laplacian": (-1,),
        "Scharr": (-1, 1, 0),
        "Sobel": (-1, 1, 0),
        "blur": ((3, 3),),
        "boxFilter": (-1, (3, 3)),
        "filter2D": (-1, np.ones((3, 3))),
        "sepFilter2D": (-1, [1.0], [1.0]),
    }
    with pytest.raises(TypeError, match=f"src is of type .*{way_out}") as raised:
        getattr(ours, name)(np.zeros((5, 6), dtype), *arguments[name])
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "error, call",
    [
        (ValueError, lambda src: ours.filter2D(src, -1, np.ones((3, 3)), borderType=5)),
        (ValueError, lambda src: ours.filter2D(src, 9, np.ones((3, 3)))),
        (ValueError, lambda src: ours.filter2D(src, -1, np.ones((3, 3)), anchor=(3, 0))),
        (ValueError, lambda src: ours.filter2D(src, -1, np.ones((0, 3)))),
        (ValueError, lambda src: ours.GaussianBlur(src, (4, 3), 1)),
        (ValueError, lambda src: ours.GaussianBlur(src, (0, 0), 0)),
        (ValueError, lambda src: ours.blur(src, (0, 3))),
        (ValueError, lambda src: ours.Sobel(src, -1, 0, 0)),
        (ValueError, lambda src: ours.Sobel(src, -1, 3, 0)),
        (ValueError, lambda src: ours.Scharr(src, -1, 1, 1)),
        (ValueError, lambda src: ours.Laplacian(src, -1, ksize=2)),
        (TypeError, lambda src: ours.blur(src.astype(complex), (3, 3))),
    ],
)
def test_errors(error, call):
    with pytest.raises(error):
        call(picture((5, 6), "u1"))
