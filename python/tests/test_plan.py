"""Filters and plans with arrays of the host."""

import os
import pickle
import threading

import numpy as np
import pytest
from scipy import ndimage

import apron
from apron import Filter, Plan

CPU = {"device": "cpu"}
TYPES = ["u1", "u2", "f2", "f4"]


def picture(shape, dtype="u1", seed=0):
    random = np.random.default_rng(seed)
    values = random.integers(0, 256, shape) if np.dtype(dtype).kind in "iu" else random.random(shape) * 100
    return values.astype(dtype)


def expected(image, filter, axis=-1, mode="mirror"):
    """The reference: SciPy in f64, channel by channel."""
    image = np.asarray(image, np.float64)
    if image.ndim == 2:
        return ndimage.correlate(image, filter.taps, mode=mode)
    planes = [ndimage.correlate(plane, filter.taps, mode=mode) for plane in np.moveaxis(image, axis, 0)]
    return np.moveaxis(np.stack(planes), 0, axis)


def check(result, image, filter, axis=-1, mode="mirror"):
    exact = expected(image, filter, axis, mode)
    if result.dtype.kind == "f":
        tolerance = {2: 1e-3, 4: 1e-6, 8: 1e-6}[result.dtype.itemsize]
        np.testing.assert_allclose(result, exact, rtol=tolerance, atol=tolerance * 1000)
    else:
        limits = np.iinfo(result.dtype)
        assert np.abs(result.astype(np.float64) - np.clip(exact, limits.min, limits.max)).max() <= 0.5 + 1e-3


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "shape, axis", [((31, 45), -1), ((31, 45, 3), -1), ((3, 31, 45), 0), ((31, 4, 45), 1), ((1, 7), -1), ((9, 1, 2), 2)]
)
def test_shapes_and_axes(dtype, shape, axis):
    image = picture(shape, dtype)
    filter = Filter.gaussian(1.2, size=(5, 3))
    result = Plan(filter, **CPU)(image, axis=axis)
    assert type(result) is np.ndarray and result.dtype == image.dtype and result.shape == shape
    check(result, image, filter, axis)


@pytest.mark.parametrize("source", [*TYPES, "i1", "i2", "i4", "u4", "i8", "u8", "f8", ">f4", ">u2"])
@pytest.mark.parametrize("target", [None, *TYPES, "i1", "i2", "i4", "u4", "i8", "u8", "f8", ">i2"])
def test_types(source, target):
    image = picture((20, 30), source) // (2 if source == "i1" else 1)
    filter = Filter.from_taps([[0.25, -1.5, 0.25], [0.0, 2.5, -0.1]])
    plan = Plan(filter, **CPU)
    result = plan(image, dtype=target)
    # The result has this machine's byte order, unless `dtype` gives the other one.
    assert result.dtype == np.dtype(target or np.dtype(source).newbyteorder("="))
    check(result.astype(result.dtype.newbyteorder("=")), image, filter)
    out = np.empty(image.shape, target or source)
    assert plan(image, out) is out
    assert (out == result).all()


def test_integers_saturate():
    plan = Plan(Filter.from_taps([[1e12]]), **CPU)
    for dtype in ("i1", "i2", "i4", "u4", "i8", "u8"):
        limits = np.iinfo(dtype)
        # Stay within the integers that float64 holds exactly.
        ends = min(limits.max, 2**53), max(limits.min, -(2**53))
        result = plan(np.array([[1, 0, *ends]], dtype))
        assert result[0, 2:].tolist() == [limits.max, limits.min] and result[0, 1] == 0
    assert Plan("identity", **CPU)(np.array([[np.nan, np.inf, 2.5]]), dtype="i4").tolist() == [[0, 2**31 - 1, 2]]


def test_float64_is_filtered_in_float64():
    z = 4600000 + 0.01 * np.arange(50.0) ** 2 * np.ones((40, 1))
    assert np.abs(Plan("laplacian", **CPU)(z)[1:-1, 1:-1] - 0.02).max() < 1e-8
    for z in (z, z.astype(">f8"), np.asfortranarray(z), z[:, ::-1], np.stack([z, z])):
        result = Plan("laplacian", device="auto")(z, axis=0)
        assert result.dtype == np.float64 and np.abs(result[..., 1:-1, 1:-1] - 0.02).max() < 1e-8
    assert Plan("laplacian", **CPU)(z, axis=0, dtype="f4").dtype == np.float32


WIDE = ["i1", "i2", "i4", "u4", "i8", "u8", "f8"]
BORDERS = {"constant:7.25": "constant", "replicate": "nearest", "reflect": "reflect", "reflect101": "mirror", "wrap": "wrap"}


def exact(image, filter, mode):
    """The sums in long double, of an image that NumPy pads."""
    rows, cols = filter.shape
    (x, y), taps = filter.anchor, filter.taps.astype(np.longdouble)
    ends = ((y, rows - 1 - y), (x, cols - 1 - x))
    names = {"constant": "constant", "nearest": "edge", "reflect": "symmetric", "mirror": "reflect", "wrap": "wrap"}
    outside = {"constant_values": np.longdouble(7.25)} if mode == "constant" else {}
    padded = np.pad(image.astype(np.longdouble), ends, names[mode], **outside)
    height, width = image.shape
    return sum(taps[r, c] * padded[r : r + height, c : c + width] for r in range(rows) for c in range(cols))


@pytest.mark.parametrize("source", WIDE)
@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize(
    "text", ["laplacian", "gaussian:sigma=1.5", "unsharp:sigma=2", "box:size=4", "taps:1 -2.5 1e-3; 0.1 7 3", "sobel-x"]
)
def test_wide_types(source, border, text):
    random, filter = np.random.default_rng(len(text)), Filter(text)
    if source == "f8":
        image = random.random((30, 40)) * 1e9
    else:
        limits = np.iinfo(source)
        ends = max(limits.min, -(2**53)), min(limits.max, 2**53)
        image = random.integers(*ends, (30, 40), source, endpoint=True)
    sums = exact(image, filter, BORDERS[border])
    slack = (filter.taps.size + 8) * 2.0**-53 * float(np.abs(filter.taps).sum()) * float(np.abs(image.astype("f8")).max() + 8)
    plan = Plan(filter, border, **CPU)
    # The result must not depend on the layout in memory.
    unaligned = np.frombuffer(b"x" + image.tobytes(), image.dtype, offset=1).reshape(image.shape)
    gaps = np.zeros((60, 80), source)
    gaps[::2, 1::2] = image
    for view in (image, np.asfortranarray(image), unaligned, gaps[::2, 1::2], np.flip(np.flip(image).copy())):
        result = plan(view)
        assert result.dtype == image.dtype and result.shape == image.shape
        if source == "f8":
            assert (np.abs(result - sums) <= slack).all()
            continue
        low, high = (np.clip(np.rint(sums + end), limits.min, limits.max) for end in (-slack, slack))
        assert (low <= result).all() and (result <= high).all()
        out = np.zeros_like(gaps)[::2, 1::2]
        assert plan(view, out) is out and (out == result).all()
    both = image.copy()
    assert plan(both, both) is both and (both == plan(image)).all()
    channels = np.stack([image, image[::-1], image], axis=1)
    assert (plan(channels, axis=1)[:, 0] == plan(image)).all()


def test_integers_beyond_float64_are_refused():
    plan = Plan("identity", **CPU)
    for dtype, value in [("i8", 2**53 + 1), ("i8", -(2**53) - 1), ("u8", 2**64 - 1)]:
        image = np.zeros((5, 6), dtype)
        image[3, 4] = value
        with pytest.raises(ValueError, match=rf"{value} in row 3, column 4.*9007199254740992.*convert"):
            plan(image)
        image[3, 4] = value - np.sign(value) if abs(value) < 2**54 else 2**53
        assert (plan(image) == image).all()


def test_views_without_a_copy(monkeypatch):
    """Views that plans take directly are never copied by NumPy."""
    base = picture((64, 80, 3))
    filter, views = (
        Filter.gaussian(1.0),
        {
            "crop": (base[3:50, 5:70], -1),
            "every second row": (base[::2], -1),
            "planes": (np.ascontiguousarray(np.moveaxis(base, 2, 0))[:, 4:60:3, 7:], 0),
            "planes in reverse": (np.ascontiguousarray(np.moveaxis(base, 2, 0))[::-1], 0),
            "axis named": (base.transpose(2, 0, 1), 0),
        },
    )
    plan = Plan(filter, **CPU)
    with monkeypatch.context() as patched:
        patched.setattr(np, "copy", None)
        results = {name: plan(view, axis=axis) for name, (view, axis) in views.items()}
        outs = {name: np.zeros_like(base[::2]).repeat(2, 0)[::2] for name in ["every second row"]}
        assert plan(views["every second row"][0], outs["every second row"]) is outs["every second row"]
    for name, (view, axis) in views.items():
        check(results[name], view, filter, axis)
    assert (outs["every second row"] == results["every second row"]).all()


def test_views_with_a_copy():
    base = picture((40, 60, 3), "f4")
    filter = Filter.gaussian(1.0)
    plan = Plan(filter, **CPU)
    unaligned = np.frombuffer(b"x" + base.tobytes(), "f4", offset=1).reshape(base.shape)
    for view in (base[..., 1], base[:, ::-1], base[::-1], base[:, ::2], base[..., ::-1], base[:, :, 0].T, unaligned):
        check(plan(view), view, filter)
        out = np.zeros(view.shape, "f4")
        assert plan(view, out) is out and (out == plan(view)).all()
    broadcast = np.broadcast_to(base[:1, :, :], base.shape)
    check(plan(broadcast), broadcast, filter)


def test_gaps_between_rows_are_not_written():
    image, base = picture((10, 12)), np.full((10, 20), 77, "u1")
    Plan(Filter.gaussian(1.0), **CPU)(image, base[:, 4:16])
    assert (base[:, :4] == 77).all() and (base[:, 16:] == 77).all()
    check(base[:, 4:16], image, Filter.gaussian(1.0))


def test_output_that_is_the_input():
    image = picture((50, 70), "f4")
    plan = Plan(Filter.gaussian(2.0), **CPU)
    result = plan(image)
    both = image.copy()
    assert plan(both, both) is both and (both == result).all()
    base = np.zeros((51, 70), "f4")
    base[:50] = image
    plan(base[:50], base[1:])
    assert (base[1:] == result).all()


@pytest.mark.parametrize(
    "border, mode",
    [
        ("replicate", "nearest"),
        ("reflect", "reflect"),
        ("reflect101", "mirror"),
        ("wrap", "wrap"),
        ("constant", "constant"),
    ],
)
def test_borders(border, mode):
    image, filter = picture((6, 9), "f4"), Filter.gaussian(4.0)
    plan = Plan(filter, border, **CPU)
    assert plan.border == border or border == "constant"
    check(plan(image), image, filter, mode=mode)


def test_keep():
    image = picture((30, 40))
    result = Plan("box:size=5", "keep", **CPU)(image)
    assert (result[:2] == image[:2]).all() and (result[2:-2, 2:-2] != image[2:-2, 2:-2]).any()


def test_filters():
    assert Filter.gaussian(2.0).shape == (17, 17) and Filter.gaussian(2.0).is_separable
    assert Filter.gaussian(2.0, size=(5, 3)).shape == (3, 5)
    assert Filter.gaussian(size=7).shape == (7, 7)
    assert Filter.sobel_x() == Filter.separable([-1, 0, 1], [1, 2, 1]) == Filter("sobel-x") != Filter.sobel_y()
    assert Filter.box((3, 2)).taps.tolist() == [[1 / 6] * 3] * 2
    assert Filter.from_taps([[1, 2], [3, 5]], anchor=(0, 1)).anchor == (0, 1)
    assert Filter.from_taps([[1, 2], [3, 5]]).flipped().taps.tolist() == [[5, 3], [2, 1]]
    for filter in (
        Filter.identity(), Filter.sharpen(), Filter.unsharp(1.5), Filter.sobel_y(5), Filter.scharr_x(), Filter.scharr_y(),
        Filter.prewitt_x(), Filter.prewitt_y(), Filter.laplacian(8), Filter.laplacian_of_gaussian(1.5), Filter.emboss(),
        Filter.motion(5, 30), Filter.boxblur(2), Filter.gaussian(1.0).flipped(), Filter.from_taps([[0.1, 0.2], [0.3, 0.7]], anchor=(0, 0)),
    ):  # fmt: skip
        again = pickle.loads(pickle.dumps(filter))
        assert again == filter and again.anchor == filter.anchor and (again.taps == filter.taps).all()
        assert eval(repr(filter)) == filter


@pytest.mark.parametrize("radius, times", [(1, 2), (5, 3), (2, 4), (19, 3)])
@pytest.mark.parametrize(
    "border, mode", [("reflect101", "mirror"), ("reflect", "reflect"), ("wrap", "wrap"), ("replicate", "nearest"), ("constant:9", "constant")]
)
def test_a_box_blur_is_a_mean_several_times(radius, times, border, mode):
    """Away from the edges with every border, and everywhere if it mirrors or repeats the image."""
    image = np.random.default_rng(radius).integers(0, 256, (150, 170), dtype=np.uint8)
    exact = image.astype(np.float64)
    for _ in range(times):
        exact = ndimage.uniform_filter(exact, 2 * radius + 1, mode=mode, cval=9)
    edge = radius * times if border in ("replicate", "constant:9") else 0
    inside = np.s_[edge : 150 - edge, edge : 170 - edge]
    plan = Plan(Filter.boxblur(radius, times), border, **CPU)
    # The divisor is odd, so no result lies on a half, and SciPy's roundings decide none.
    assert (plan(image)[inside] == np.rint(exact)[inside]).all()
    assert abs(plan(image.astype(np.float32)) - exact)[inside].max() < 1e-4
    assert Filter.boxblur(radius) == Filter(f"boxblur:{radius}") == Filter.boxblur(radius, 3)


def test_filters_are_keys():
    """Equal filters have equal hashes, however they were made; different filters are unequal."""
    taps = [[1.0, 2.0, 1.0]]
    groups = [
        [Filter.sobel_x(), Filter("sobel-x"), Filter.separable([-1, 0.0, 1], [1, 2, 1]), Filter.separable([-1, -0.0, 1], [1, 2, 1])],
        [Filter.from_taps(taps), Filter("taps:1 2 1"), Filter.from_taps(np.array(taps), anchor=(1, 0))],
        [Filter.from_taps(taps, anchor=(0, 0))],
        [Filter.separable([1, 2, 1], [1])],
        [Filter.gaussian((3, 1)), Filter("gaussian:sigma-x=3,sigma-y=1"), Filter.gaussian([3.0, 1.0]).flipped()],
        [Filter.gaussian((1, 3)), Filter.gaussian(np.array([1.0, 3.0]))],
        [Filter.unsharp(2.0), Filter("unsharp:2"), Filter.unsharp(2.0).flipped()],
        [Filter.unsharp(2.0, 0.5)],
        [Filter.from_taps(Filter.unsharp(2.0).taps)],
    ]
    flat = [filter for group in groups for filter in group]
    for one in flat:
        for other in flat:
            same = any(one in group and other in group for group in groups)
            assert (one == other) == same and (not same or hash(one) == hash(other))
        assert {one: 1}[pickle.loads(pickle.dumps(one))] == 1
    assert len(set(flat)) == len(groups)


def test_gaussians_of_two_sigmas():
    """Sigmas are in the order of sizes and anchors: x, then y. SciPy has the reverse order."""
    image = picture((31, 45), "f4").astype("f8")
    for x, y in [(3, 1), (0.7, 2.5), (2, 2), (4, 0.01)]:
        filter = Filter.gaussian((x, y))
        assert filter.shape == (2 * int(4 * y + 0.5) + 1, 2 * int(4 * x + 0.5) + 1)
        np.testing.assert_allclose(
            ndimage.correlate(image, filter.taps, mode="mirror"),
            ndimage.gaussian_filter(image, (y, x), mode="mirror"),
            rtol=1e-12,
        )
    sized = Filter.gaussian((3, 1), size=(5, 7))
    assert sized.shape == (7, 5) and sized == Filter("gaussian:sigma-x=3,sigma-y=1,cols=5,rows=7")
    assert Filter.gaussian((2, 2)) == Filter.gaussian(2)


def test_plans():
    plan = Plan("gaussian:sigma=2", "constant:5", "cpu", variant="direct-naive")
    assert (plan.device, plan.border, plan.filter) == ("cpu", "constant:5", Filter.gaussian(2.0))
    assert plan.variant == plan.variant_for(480, 640, 3) == "direct-naive"
    again = pickle.loads(pickle.dumps(plan))
    assert (again.device, again.border, again.filter) == (plan.device, plan.border, plan.filter)
    assert again.variant_for(480, 640) == "direct-naive"
    assert "gaussian" in repr(plan) and "cpu" in repr(plan)
    automatic = Plan("identity")
    assert automatic.variant is None
    assert (automatic.device == "cpu") == (automatic.fallback is not None)
    # The image is far too small to be worth a GPU.
    assert (automatic(np.zeros((4, 3), np.uint8)) == 0).all() and automatic.ran_on == plan.ran_on == "cpu"


class Tensor:
    """An array of a library that has only DLPack. The library is this module."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def from_dlpack(array):
    return Tensor(np.from_dlpack(array))


def test_arrays_of_other_libraries():
    plan = Plan("box:size=3", **CPU)
    image = picture((9, 12, 3))
    assert (plan(image.tolist(), dtype="u1") == plan(image)).all()
    result = plan(Tensor(image))
    assert type(result) is Tensor and (result.array == plan(image)).all()
    wide = plan(Tensor(image), dtype="f4")
    assert wide.array.dtype == np.float32
    out = Tensor(np.zeros_like(image))
    assert plan(Tensor(image), out) is out and (out.array == plan(image)).all()
    assert (plan(Tensor(image), out.array) == plan(image)).all()
    assert apron.from_dlpack(Tensor(image)).ctypes.data == image.ctypes.data


AVERAGES = ["identity", "gaussian:1", "box:size=3"]
OTHERS = ["sobel-x", "sharpen", "laplacian"]


def with_alpha(image, filter, alpha, axis=-1):
    """The result of an alpha mode for an image whose last channel is alpha, in f64."""
    image = np.moveaxis(np.asarray(image, np.float64), axis, -1)
    filtered = expected(image, Filter(filter))
    average = filter in AVERAGES
    if alpha == "auto":
        alpha = "premultiply" if average else "keep"
    if alpha == "premultiplied":
        alpha = "filter" if average else "keep"
    result = filtered.copy()
    if alpha == "keep":
        result[..., -1] = image[..., -1]
    if alpha == "premultiply":
        sums = expected(image[..., :-1] * image[..., -1:], Filter(filter))
        weights = filtered[..., -1:]
        result[..., :-1] = np.divide(sums, weights, out=np.zeros_like(sums), where=weights != 0)
    return np.moveaxis(result, -1, axis)


def close(result, exact):
    if result.dtype.kind == "f":
        tolerance = {2: 2e-3, 4: 2e-6, 8: 2e-6}[result.dtype.itemsize]
        np.testing.assert_allclose(result, exact, rtol=tolerance, atol=tolerance * 1000)
    else:
        limits = np.iinfo(result.dtype)
        assert np.abs(result.astype(np.float64) - np.clip(exact, limits.min, limits.max)).max() <= 0.5 + 1e-3


def transparent(shape, dtype, axis=-1):
    """Noise, with areas where alpha is 0 and areas where alpha is full."""
    image = np.moveaxis(picture(shape, dtype, seed=3), axis, -1).copy()
    image[:9, :9, -1] = 0
    image[12:, 12:, -1] = 100
    return np.ascontiguousarray(np.moveaxis(image, -1, axis))


@pytest.mark.parametrize("dtype", [*TYPES, "i2", "i4", "u4", "f8", ">f4"])
@pytest.mark.parametrize("shape, axis", [((21, 25, 4), -1), ((4, 21, 25), 0), ((21, 2, 25), 1), ((21, 25, 6), 2)])
@pytest.mark.parametrize("alpha", [None, "auto", "premultiply", "premultiplied", "keep", "filter"])
def test_alpha(dtype, shape, axis, alpha):
    image = transparent(shape, dtype, axis)
    for filter in AVERAGES + OTHERS * (alpha != "premultiply"):
        plan = Plan(filter, alpha=alpha, **CPU)
        assert plan.alpha == alpha
        exact = with_alpha(image, filter, alpha or "filter", axis)
        result = plan(image, axis=axis)
        assert result.shape == shape and result.dtype == np.dtype(dtype).newbyteorder("=")
        close(result, exact)
        wide = plan(image, axis=axis, dtype="f4")
        close(wide, exact)
        out = np.empty(shape, dtype)
        assert plan(image, out, axis=axis) is out
        assert (out == result).all()
        again = pickle.loads(pickle.dumps(plan))
        assert again.alpha == alpha and (again(image, axis=axis) == result).all()


def test_alpha_of_views():
    base = transparent((40, 60, 4), "f4")
    plan = Plan("gaussian:1", alpha="premultiply", **CPU)
    for view in (base[3:30, 5:50], base[::2], base[:, ::-1], base[::-1], base[:, ::3]):
        close(plan(view), with_alpha(view, "gaussian:1", "premultiply"))
    both = base.copy()
    assert plan(both, both) is both
    close(both, with_alpha(base, "gaussian:1", "premultiply"))


@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 1), (20, 30, 3)])
def test_colours_alone_have_no_alpha(shape):
    image = picture(shape)
    for alpha in ("auto", "premultiply", "premultiplied", "keep"):
        assert (Plan("gaussian:1", alpha=alpha, **CPU)(image) == Plan("gaussian:1", **CPU)(image)).all()


def test_an_edge_has_no_dark_rim():
    image = np.zeros((9, 9, 4), "u1")
    image[:, 5:] = 255
    assert (Plan("gaussian:2", **CPU)(image)[:, 4, 0] < 128).all()
    soft = Plan("gaussian:2", alpha="premultiply", **CPU)(image)
    assert (soft[..., :3][soft[..., 3] > 0] == 255).all()


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "RGBa", "La", "CMYK", "RGBX"])
def test_pil_images_say_what_their_channels_are(mode):
    pil = pytest.importorskip("PIL.Image")
    channels = len(pil.new(mode, (1, 1)).getbands())
    image = transparent((21, 25, channels), "u1")
    given = pil.frombytes(mode, (25, 21), image.tobytes())
    said = {"LA": "auto", "RGBA": "auto", "La": "premultiplied", "RGBa": "premultiplied"}.get(mode, "filter")
    for filter in AVERAGES + OTHERS:
        result = Plan(filter, **CPU)(given)
        close(result.reshape(image.shape), with_alpha(image, filter, said))
        # If the image has alpha, the mode that the user gives takes precedence.
        kept = Plan(filter, alpha="keep", **CPU)(given)
        close(kept.reshape(image.shape), with_alpha(image, filter, "filter" if said == "filter" else "keep"))
        asked = Plan(filter, alpha="auto", **CPU)(given)
        assert (asked == result).all()


@pytest.mark.parametrize(
    "error, call",
    [
        (ValueError, lambda: Filter("gaussian:sigma=-1")),
        (ValueError, lambda: Filter("blur")),
        (ValueError, lambda: Filter.gaussian((3, 0))),
        (ValueError, lambda: Filter.gaussian((-1, 3), size=5)),
        (TypeError, lambda: Filter.gaussian((1, 2, 3))),
        (TypeError, lambda: Filter.gaussian("2")),
        (TypeError, lambda: Filter.gaussian(2, size=(3.5, 3))),
        (TypeError, lambda: Filter.box(-1)),
        (TypeError, lambda: Filter.box(None)),
        (TypeError, lambda: Filter.from_taps(np.ones((2, 2, 2)))),
        (TypeError, lambda: Filter.separable([[1.0]], [1.0])),
        (ValueError, lambda: Filter.gaussian()),
        (ValueError, lambda: Filter.from_taps([[np.nan]])),
        (ValueError, lambda: Filter.from_taps(np.ones((2, 2)), anchor=(2, 0))),
        (TypeError, lambda: Filter.from_taps([1.0, 2.0])),
        (ValueError, lambda: Plan("identity", "sideways")),
        (ValueError, lambda: Plan("identity", device="tpu")),
        (ValueError, lambda: Plan("identity", variant="magic")),
        (ValueError, lambda: Plan("identity", alpha="blend")),
        (ValueError, lambda: Plan("identity", alpha="drop")),
        (ValueError, lambda: Plan("identity", alpha="flatten=white")),
        (ValueError, lambda: Plan("sharpen", alpha="premultiply")),
        (TypeError, lambda: Plan("identity", alpha=True)),
        (TypeError, lambda: Plan(5)),
        (ValueError, lambda: Plan("identity", **CPU)(np.zeros(5, "u1"))),
        (ValueError, lambda: Plan("identity", **CPU)(np.zeros((2, 3, 4, 5), "u1"))),
        (ValueError, lambda: Plan("identity", **CPU)(np.zeros((0, 3), "u1"))),
        (ValueError, lambda: Plan("identity", **CPU)(np.zeros((2, 3, 4), "u1"), axis=3)),
        (ValueError, lambda: Plan("identity", **CPU)(np.zeros((2, 3), "u1"), np.zeros((3, 2), "u1"))),
        (ValueError, lambda: Plan("identity", **CPU)(np.zeros((2, 3)), np.zeros((3, 2)))),
        (TypeError, lambda: Plan("identity", **CPU)(np.zeros((2, 3), "u1"), np.zeros((2, 3), "u1"), dtype="u1")),
        (TypeError, lambda: Plan("identity", **CPU)(np.zeros((2, 3), bool))),
        (TypeError, lambda: Plan("identity", **CPU)(np.zeros((2, 3), complex))),
        (TypeError, lambda: Plan("identity", **CPU)(np.zeros((2, 3), object))),
        (
            ValueError,
            lambda: Plan("identity", **CPU)(np.zeros((2, 3), "u1"), np.broadcast_to(np.zeros(3, "u1"), (2, 3))),
        ),
    ],
)
def test_errors(error, call):
    with pytest.raises(error) as raised:
        call()
    assert str(raised.value) and "\n" not in str(raised.value)


def test_threads_run_at_once():
    """A plan releases Python's lock while it runs: another thread counts meanwhile."""
    image = picture((2000, 2000), "f4")
    plan = Plan(Filter.from_taps(picture((31, 31), "f8")), **CPU)
    done, counted = threading.Event(), 0

    def work():
        plan(image)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.wait(0.001):
        counted += 1
    thread.join()
    assert counted >= 3
    results = [None] * 4
    small = picture((300, 400))
    threads = [threading.Thread(target=lambda at=at: results.__setitem__(at, plan(small))) for at in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert all((result == results[0]).all() for result in results)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_filters_too():
    image = picture((700, 800))
    plan = Plan(Filter.gaussian(3.0), **CPU)
    result = plan(image)
    smooth = apron.ndimage.gaussian_filter(image, 3.0)
    child = os.fork()
    if child == 0:
        same = (plan(image) == result).all() and (apron.ndimage.gaussian_filter(image, 3.0) == smooth).all()
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_calls_leak_nothing():
    import gc
    import tracemalloc

    image, out = picture((64, 64)), np.zeros((64, 64), "u1")
    plan = Plan(Filter.gaussian(1.0), **CPU)

    def calls():
        for _ in range(300):
            plan(image)
            plan(image, out)
            apron.from_dlpack(image)

    calls()
    tracemalloc.start()
    calls()
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    calls()
    gc.collect()
    assert tracemalloc.get_traced_memory()[0] - before < 20_000
    tracemalloc.stop()
