"""Batches: one call for many images has the results of a loop."""

import numpy as np
import pytest

from apron import Plan

PLAN = Plan("gaussian:sigma=1.5", device="cpu")
#: The axis of the channels in each image of a batch.
LAYOUTS = {"nhwc": -1, "nchw": 0, "nhw": -1}
SHAPES = {"nhwc": (5, 13, 17, 3), "nchw": (5, 3, 13, 17), "nhw": (5, 13, 17)}
TYPES = ["u1", "u2", "f2", "f4", "f8", "i2", ">f4", "i8"]


def pictures(shape, dtype="u1", seed=0):
    values = np.random.default_rng(seed).integers(0, 200, shape)
    return values.astype(dtype)


def loop(plan, images, layout, **options):
    return np.stack([plan(image, axis=LAYOUTS[layout], **options) for image in images])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", TYPES)
def test_results_are_those_of_a_loop(layout, dtype):
    images = pictures(SHAPES[layout], dtype)
    for plan in (PLAN, Plan("sobel-x", "wrap", "cpu"), Plan("box:size=5", "none", "cpu")):
        expected = loop(plan, images, layout)
        found = plan(images, layout=layout)
        assert found.dtype == images.dtype.newbyteorder("=")
        np.testing.assert_array_equal(found, expected)
        for other in ("f4", "f8", "u1"):
            found = plan(images, layout=layout, dtype=other)
            assert found.dtype == other
            np.testing.assert_array_equal(found, loop(plan, images, layout, dtype=other))
            out = np.zeros(images.shape, other)
            assert plan(images, out, layout=layout) is out
            np.testing.assert_array_equal(out, found)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["u1", "f4", "f8"])
def test_views(layout, dtype):
    """Arrays in any order, the output too."""
    large = pictures([2 * extent + 1 for extent in SHAPES[layout]], dtype)
    axes = range(large.ndim)
    for images in (large[::2], large[:, 1:-1], large[..., ::2], large[::-1], large.transpose([0, *reversed(axes[1:])])):
        expected = loop(PLAN, images, layout)
        np.testing.assert_array_equal(PLAN(images, layout=layout), expected)
        out = np.zeros(images.shape[::-1], dtype).T
        assert PLAN(images, out, layout=layout) is out
        np.testing.assert_array_equal(out, expected)
        copy = images.copy()
        assert PLAN(copy, copy, layout=layout) is copy
        np.testing.assert_array_equal(copy, expected)
        # The output is the source, moved by an image.
        both = np.concatenate([images, images[:1]])
        PLAN(both[:-1], both[1:], layout=layout)
        np.testing.assert_array_equal(both[1:], expected)


def test_rows_of_images_side_by_side():
    """Images whose rows alternate in memory, which no two threads may write as one range."""
    images = pictures((13, 5, 17)).transpose(1, 0, 2)
    out = np.zeros((13, 5, 17), "u1").transpose(1, 0, 2)
    PLAN(images, out, layout="nhw")
    np.testing.assert_array_equal(out, loop(PLAN, images, "nhw"))


def test_many_small_images_on_several_threads():
    images = pictures((300, 40, 50, 3))
    np.testing.assert_array_equal(PLAN(images, layout="nhwc"), loop(PLAN, images, "nhwc"))
    images = images.astype("f8")
    np.testing.assert_array_equal(PLAN(images, layout="nhwc"), loop(PLAN, images, "nhwc"))


@pytest.mark.parametrize("alpha", ["premultiply", "keep", "filter"])
@pytest.mark.parametrize("dtype", ["u1", "f4", "f8"])
def test_alpha(alpha, dtype):
    plan, images = Plan("gaussian:1", device="cpu", alpha=alpha), pictures((3, 13, 17, 4), dtype)
    expected = loop(plan, images, "nhwc")
    np.testing.assert_array_equal(plan(images, layout="nhwc"), expected)
    planes = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(plan(planes, layout="nchw"), expected.transpose(0, 3, 1, 2))


def test_errors():
    images = pictures((2, 8, 9, 3))
    masked = np.ma.masked_array(images, images > 9)
    for wrong, kind, message in [
        (lambda: PLAN(images), ValueError, 'layout= "nhwc"'),
        (lambda: PLAN(images, layout="hwcn"), ValueError, "hwcn"),
        (lambda: PLAN(images[0], layout="nhwc"), ValueError, "3 dimensions.*has 4"),
        (lambda: PLAN(images, layout="nhwc", axis=0), TypeError, "axis or layout"),
        (lambda: PLAN(images, layout="nhwc", mask=images[0, :, :, 0] > 0), TypeError, "one by one"),
        (lambda: PLAN(masked, layout="nhwc"), TypeError, "one by one"),
        (lambda: PLAN(images, images[:1], layout="nhwc"), ValueError, "must be the same"),
        (lambda: PLAN(images, np.broadcast_to(images, images.shape), layout="nhwc"), ValueError, "read-only"),
        (lambda: PLAN(images[:0], layout="nhwc"), ValueError, "at least 1"),
        (lambda: PLAN(images + 1j, layout="nhwc"), TypeError, "complex"),
        (lambda: PLAN(images, images.copy(), layout="nhwc", dtype="f4"), TypeError, "out or dtype"),
        (lambda: PLAN(np.full((2, 3, 3), 1 << 60), layout="nhw"), ValueError, "picture 0 of the batch"),
        (lambda: Plan("gaussian:2", "constant:0.5", "cpu")(images, layout="nhwc"), ValueError, "whole number"),
    ]:
        with pytest.raises(kind, match=message):
            wrong()


def test_dask_arrays_are_refused():
    array = pytest.importorskip("dask.array", reason="Dask is not installed")
    with pytest.raises(TypeError, match="Dask"):
        PLAN(array.zeros((2, 8, 9, 3)), layout="nhwc")


def test_tensors():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for dtype in ("u1", "u2", "f2", "f4", "f8", "i4"):
        for layout, shape in SHAPES.items():
            images = pictures(shape, dtype)
            tensor, expected = torch.from_numpy(images), loop(PLAN, images, layout)
            found = PLAN(tensor, layout=layout)
            assert type(found) is torch.Tensor and (found.numpy() == expected).all()
            out = torch.zeros_like(tensor)
            assert PLAN(tensor, out, layout=layout) is out and (out.numpy() == expected).all()
            host = np.zeros_like(images)
            assert PLAN(tensor, host, layout=layout) is host and (host == expected).all()
            assert (PLAN(tensor, layout=layout, dtype=torch.float32).numpy() == loop(PLAN, images, layout, dtype="f4")).all()
            torch._dynamo.reset()
            compiled = torch.compile(lambda tensor: PLAN(tensor, layout=layout), fullgraph=True, backend="aot_eager")
            assert (compiled(tensor).numpy() == expected).all()
    # Four dimensions are images, channels and rows, in any order of memory.
    images = pictures(SHAPES["nchw"])
    tensor, expected = torch.from_numpy(images), loop(PLAN, images, "nchw")
    last = tensor.to(memory_format=torch.channels_last)
    for one in (tensor, last, torch.from_numpy(images[:, :, ::-1].copy()).flip(2)):
        found = PLAN(one)
        assert (found.numpy() == expected).all() and found.stride() == torch.empty_like(one).stride()
    # The output is the image, or a part of it.
    copy = tensor.clone()
    assert PLAN(copy, copy) is copy and (copy.numpy() == expected).all()
    both = torch.from_numpy(np.concatenate([images, images[:1]]))
    PLAN(both[:-1], both[1:])
    assert (both[1:].numpy() == expected).all()
    with pytest.raises(ValueError, match="5 dimensions"):
        PLAN(tensor[None])
    with pytest.raises(ValueError, match="has 3"):
        PLAN(tensor, layout="nhw")


def test_planes_are_a_batch():
    planes = pictures((3, 40, 50), "f4")
    expected = np.stack([PLAN(plane) for plane in planes])
    np.testing.assert_array_equal(PLAN(planes, axis=0), expected)
