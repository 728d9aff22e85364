"""Masks, NaN and the border "none", beside NumPy's sums in f64 and astropy's convolution."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.ndimage

import apron
from apron import Filter, Plan

#: Filters, of odd sizes with the anchor in the middle, as astropy takes them.
FILTERS = [
    "gaussian:1",
    "gaussian:3",
    "box:size=3",
    "box:cols=5,rows=9",
    "motion:length=9,angle=30",
    "motion:length=23,angle=30",
    "unsharp:sigma=1",
    "sharpen",
    "sobel-x",
    "laplacian",
    "taps:1 2 3; 4 5 6; 7 8 9",
]

#: apron's borders, and NumPy's and astropy's names for them.
BORDERS = {
    "none": ("constant", "fill"),
    "constant:3": ("constant", "fill"),
    "replicate": ("edge", "extend"),
    "wrap": ("wrap", "wrap"),
    "reflect": ("symmetric", None),
    "reflect101": ("reflect", None),
}


def problem(number):
    """A filter's text, its taps, a border, values, weights, and whether NaN are unknown."""
    rng = np.random.default_rng(number)
    text = FILTERS[number % len(FILTERS)]
    border = list(BORDERS)[rng.integers(len(BORDERS))]
    shape = tuple(rng.integers(1, 60, 2))
    values = rng.normal(100, 20, shape)
    nan = bool(rng.integers(2))
    if nan:
        values[rng.random(shape) < rng.choice([0, 0.1, 0.6, 1])] = np.nan
    weights = np.where(rng.random(shape) < rng.choice([0, 0.2, 0.9, 1]), 0.0, 1.0)
    if rng.integers(2):
        weights *= rng.integers(1, 9, shape) / 4
    return text, Filter(text).taps, border, values, weights, nan


def correlate(image, taps, border, outside):
    """The sums of taps times the padded image, in f64."""
    rows, cols = taps.shape
    ends = ((rows // 2, rows // 2), (cols // 2, cols // 2))
    mode = BORDERS[border][0]
    padded = np.pad(image, ends, mode, **({"constant_values": outside} if mode == "constant" else {}))
    height, width = image.shape
    return sum(
        taps[row, col] * padded[row : row + height, col : col + width]
        for row, col in np.ndindex(taps.shape)
        if taps[row, col] != 0
    )


def by_definition(taps, border, values, weights, unknown):
    """Results, ``sum(w m)`` and ``sum(|w| m)`` by NumPy, in f64."""
    weights = np.where(np.isnan(values), 0, weights)
    products = np.where(weights == 0, 0, weights * np.nan_to_num(values))
    outside = 0.0 if border == "none" else 1.0
    sums = correlate(products, taps, border, 3 * outside)
    below = correlate(weights, taps, border, outside)
    size = correlate(weights, np.abs(taps), border, outside)
    if abs(taps.sum() - 1) > 1e-6:
        return np.where(size > 0, sums, unknown), below, size
    is_known = np.abs(below) > 1e-6 * size
    with np.errstate(all="ignore"):
        return np.where(is_known, sums / (below / taps.sum()), unknown), below, size


def tolerance(taps, below, size):
    """How far sums in f32 of values of about 100 may be off."""
    with np.errstate(all="ignore"):
        part = np.where(abs(taps.sum() - 1) > 1e-6, 1, np.abs(below))
        amount = np.maximum(size, np.abs(taps).sum() / 16)
        return np.where(part == 0, 1, 2e-5 * 200 * amount / part + 2e-4 * amount / part * amount / part)


def test_1000_problems_equal_sums_in_f64():
    for number in range(1000):
        text, taps, border, values, weights, nan = problem(number)
        plan = Plan(text, border, "cpu", nan="ignore" if nan else "spread", unknown=-5)
        right, below, size = by_definition(taps, border, values, weights, -5)
        found = plan(values, mask=weights)
        near = np.abs(found - right) <= 1e-9 * (1 + size / np.maximum(np.abs(below), 1e-300) + np.abs(right))
        # Where the divisor nearly cancels, sums in another order may decide otherwise.
        near |= np.abs(np.abs(below) / np.maximum(size, 1e-300) - 1e-6) < 1e-9
        assert near.all(), (number, text, border)
        sums = np.zeros(values.shape, "f4")
        found = plan(values.astype("f4"), mask=weights.astype("f4"), weights=sums)
        near = np.abs(found - right) <= tolerance(taps, below, size)
        assert near.all(), (number, text, border, np.abs(found - right).max())
        assert np.allclose(sums, below, atol=1e-4 * np.abs(taps).sum()), (number, text)


def test_1000_problems_equal_astropy():
    convolution = pytest.importorskip("astropy.convolution", reason="astropy is not installed")
    count = 0
    for number in range(2600):
        text, taps, border, values, weights, nan = problem(number)
        boundary = BORDERS[border][1]
        # astropy normalises every kernel, and none whose sum is 0; it has no reflections.
        if boundary is None or abs(taps.sum()) < 1e-3:
            continue
        normal = taps / taps.sum()
        hidden = weights == 0
        cut = np.where(hidden, np.nan, values)
        fill = np.nan if border == "none" else 3.0
        with np.errstate(all="ignore"), warnings.catch_warnings():
            # Of results without known pixels.
            warnings.simplefilter("ignore")
            right = convolution.convolve(cut, normal[::-1, ::-1], boundary=boundary, fill_value=fill, nan_treatment="interpolate")
        filter = Filter.from_taps(normal[::-1, ::-1]).flipped()
        plan = Plan(filter, border, "cpu", nan="ignore")
        found = plan(values, mask=~hidden)
        _, below, size = by_definition(normal, border, values, np.where(hidden, 0.0, 1.0), 0)
        # Where taps of known pixels cancel, astropy returns the pixel.
        sure = (np.abs(below) > 1e-3 * size) & (size > 1e-9)
        sure |= size == 0
        assert np.allclose(found[sure], right[sure], rtol=1e-9, equal_nan=True), (number, text, border)
        count += 1
        if count == 1000:
            break
    assert count == 1000


def test_filled_nan_equal_astropy():
    convolution = pytest.importorskip("astropy.convolution", reason="astropy is not installed")
    for number in range(200):
        _, _, border, values, _, _ = problem(number)
        boundary = BORDERS[border][1]
        if boundary is None:
            continue
        fill = np.nan if border == "none" else 3.0
        taps = Filter("gaussian:1.5").taps
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            right = convolution.interpolate_replace_nans(values, taps / taps.sum(), boundary=boundary, fill_value=fill)
        found = Plan("gaussian:1.5", border, "cpu", nan="fill")(values)
        assert np.allclose(found, right, rtol=1e-9, equal_nan=True), (number, border)
        single = Plan("gaussian:1.5", border, "cpu", nan="fill")(values.astype("f4"))
        assert np.allclose(single, right, rtol=1e-4, equal_nan=True), (number, border)


def test_masked_arrays_go_in_and_out():
    rng = np.random.default_rng(1)
    for dtype in ("u1", "u2", "f4", "f8", "i4"):
        values = rng.integers(0, 200, (30, 40)).astype(dtype)
        image = np.ma.MaskedArray(values, rng.random((30, 40)) < 0.7)
        image[:12, :12] = np.ma.masked
        result = Plan("box:size=3", "none", "cpu")(image)
        assert isinstance(result, np.ma.MaskedArray) and result.dtype == image.dtype
        known = (~image.mask).astype("f8")
        count = scipy.ndimage.uniform_filter(known, 3, mode="constant") * 9
        sums = scipy.ndimage.uniform_filter(np.where(image.mask, 0, values).astype("f8"), 3, mode="constant") * 9
        assert (result.mask == (count < 0.5)).all() and result.mask[:11, :11].all()
        right = sums[~result.mask] / count[~result.mask]
        assert np.abs(result.data[~result.mask] - right).max() <= (0.5000001 if values.dtype.kind in "ui" else 1e-3)


def test_masks_of_all_kinds_say_the_same():
    rng = np.random.default_rng(2)
    values, known = rng.normal(size=(20, 30, 3)).astype("f4"), rng.random((20, 30)) < 0.5
    plan = Plan("gaussian:2", device="cpu")
    right = plan(values, mask=known)
    for mask in (known.astype("u1") * 255, known.astype("f4"), known.astype("f8"), np.repeat(known[..., None], 3, 2), known.tolist()):
        assert (plan(values, mask=mask) == right).all()
    planes = np.moveaxis(values, -1, 0)
    assert (plan(planes, mask=known, axis=0) == np.moveaxis(right, -1, 0)).all()
    out = np.zeros_like(values)
    assert plan(values, out, mask=known) is out and (out == right).all()
    assert (plan(values, mask=np.ones_like(known)) == plan(values)).all()
    nothing = plan(values, mask=np.zeros_like(known))
    assert np.isnan(nothing).all()
    hidden = np.ma.MaskedArray(values, np.repeat(~known[..., None], 3, 2))
    assert (plan(hidden).data[known] == right[known]).all()
    assert (plan(values, mask=known, dtype="f8") - right < 1e-4).all()


def test_what_is_hidden_does_not_spread():
    values = np.ones((9, 9), "f4")
    values[4, 4], values[0, 0] = np.nan, np.inf
    mask = np.ones((9, 9), bool)
    mask[4, 4] = mask[0, 0] = False
    assert np.allclose(Plan("gaussian:1", device="cpu")(values, mask=mask), 1)
    # A known infinity is a number, and NaN that no mask hides spreads.
    assert np.isinf(Plan("box:size=3", device="cpu", nan="ignore")(values)[0, 0])
    assert np.isnan(Plan("box:size=3", device="cpu")(values, mask=np.isfinite(values) | (values != values))[4, 4])


def test_errors_name_the_way_out():
    values = np.zeros((4, 5), "f4")
    plan = Plan("box:size=3", device="cpu")
    for call, text in [
        (lambda: plan(values, mask=np.ones((5, 4), bool)), "shape"),
        (lambda: plan(values, mask=np.ones((4, 5), "i4")), "mask != 0"),
        (lambda: plan(values, mask=-np.ones((4, 5), "f4")), "at least 0"),
        (lambda: plan(values, mask=values, weights=np.zeros((4, 5))), "float32"),
        (lambda: Plan("box:size=3", alpha="keep")(values, mask=values), "alpha"),
        (lambda: Plan("sobel-x", nan="fill"), "ignore or spread"),
        (lambda: Plan("box:size=3", nan="skip"), "spread, ignore, fill"),
    ]:
        with pytest.raises((ValueError, TypeError), match=text):
            call()


def test_plans_are_pickled_with_their_rules():
    plan = Plan("box:size=3", "none", "cpu", nan="fill", unknown=2.5)
    again = pickle.loads(pickle.dumps(plan))
    assert (again.border, again.nan, again.unknown) == ("none", "fill", 2.5)
    assert np.isnan(Plan("box:size=3").unknown)
    assert (again(np.full((3, 3), np.nan, "f4")) == 2.5).all()


def test_dask_blocks_know_what_the_image_knows():
    da = pytest.importorskip("dask.array")
    import apron.dask

    values = np.random.default_rng(3).normal(size=(50, 60))
    values[10:20, 5:30] = np.nan
    plan = Plan("gaussian:2", "none", "cpu", nan="ignore", unknown=1)
    found = apron.dask.filter(da.from_array(values, chunks=17), plan).compute()
    assert (found == plan(values)).all()
