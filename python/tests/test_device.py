"""Arrays in a GPU's memory: with a GPU, or with a software driver that `APRON_DRIVER` names.

The tests with CuPy and PyTorch need a GPU and these libraries.
"""

import gc
import os

import numpy as np
import pytest

import apron
from apron import Filter, Plan

try:
    PLAN = Plan(Filter.gaussian(1.0), device="gpu")
except RuntimeError as error:
    pytest.skip(f"no GPU: {error}", allow_module_level=True)

CPU = Plan(Filter.gaussian(1.0), device="cpu")
TYPES = ["u1", "u2", "f2", "f4"]


def picture(shape, dtype="u1", seed=0):
    random = np.random.default_rng(seed)
    values = random.integers(0, 256, shape) if np.dtype(dtype).kind in "iu" else random.random(shape)
    return values.astype(dtype)


class Interface:
    """A device array of a library that has only `__cuda_array_interface__`."""

    def __init__(self, array, stream=None, readonly=False, dense=False):
        self.array = array
        interface = dict(array.__cuda_array_interface__, stream=stream)
        interface["data"] = (interface["data"][0], readonly)
        if dense:
            interface["strides"] = None
        self.__cuda_array_interface__ = interface


class Capsule:
    """A device array of a library that has only DLPack, of a version before 1.0 or after it."""

    def __init__(self, array, versions):
        self.array, self.versions, self.streams = array, versions, []

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, stream=None, **kwargs):
        self.streams.append(stream)
        if kwargs and not self.versions:
            raise TypeError("unexpected keyword argument")
        return self.array.__dlpack__(stream=stream, **kwargs)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape, axis", [((17, 41), -1), ((17, 41, 3), -1), ((3, 17, 41), 0)])
def test_arrays_come_back(dtype, shape, axis):
    image = picture(shape, dtype)
    there = apron.to_device(image, axis=axis)
    assert there.shape == shape and there.dtype == image.dtype and there.device == "gpu:0"
    assert there.numpy().tobytes() == image.tobytes()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape, axis", [((17, 41), -1), ((17, 41, 3), -1), ((3, 17, 41), 0)])
@pytest.mark.parametrize("kind", ["own", "interface", "capsule", "old capsule"])
def test_device_arrays_are_filtered_where_they_are(dtype, shape, axis, kind):
    image = picture(shape, dtype)
    there = apron.to_device(image, axis=axis)
    foreign = {
        "own": lambda: there,
        "interface": lambda: Interface(there),
        "capsule": lambda: Capsule(there, versions=True),
        "old capsule": lambda: Capsule(there, versions=False),
    }[kind]()
    result = PLAN(foreign, axis=axis)
    assert isinstance(result, apron.DeviceArray) and result.shape == shape
    np.testing.assert_array_equal(result.numpy(), PLAN(image, axis=axis))
    if kind.endswith("capsule"):
        # 1 is the legacy default stream. An older producer gets a second call without a version.
        assert foreign.streams == ([1] if foreign.versions else [1, 1])
    out = apron.DeviceArray._empty(shape, np.dtype(dtype).str, 0, axis)
    given = Interface(out) if kind == "interface" else out
    assert PLAN(foreign, given, axis=axis) is given
    np.testing.assert_array_equal(out.numpy(), result.numpy())
    wide = PLAN(foreign, axis=axis, dtype="f4")
    assert wide.dtype == np.float32
    np.testing.assert_array_equal(wide.numpy(), PLAN(image, axis=axis, dtype="f4"))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape, axis", [((17, 41, 4), -1), ((2, 17, 41), 0), ((17, 41, 3), -1)])
@pytest.mark.parametrize("alpha", ["auto", "premultiply", "premultiplied", "keep", "filter"])
def test_alpha(dtype, shape, axis, alpha):
    image = picture(shape, dtype)
    np.moveaxis(image, axis, -1)[:5, :9, -1] = 0
    there = apron.to_device(image, axis=axis)
    for filter in ("gaussian:1", "sharpen", "sobel-x")[: 1 if alpha == "premultiply" else 3]:
        plan = Plan(filter, device="gpu", alpha=alpha)
        found = [plan(there, axis=axis).numpy(), plan(image, axis=axis)]
        here = Plan(filter, device="cpu", alpha=alpha)(image, axis=axis)
        for result in found:
            if np.dtype(dtype).kind == "u" or (alpha == "premultiply" and shape[axis] != 3):
                np.testing.assert_array_equal(result, here)
            else:
                # The variant chosen for floats may sum in another order.
                tolerance = 2e-3 if dtype == "f2" else 3e-6
                np.testing.assert_allclose(result.astype("f8"), here, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("layout, shape, axis", [("nhwc", (5, 17, 41, 3), -1), ("nchw", (5, 3, 17, 41), 1), ("nhw", (5, 17, 41), 0)])
@pytest.mark.parametrize("kind", ["own", "interface", "capsule"])
def test_batches(dtype, layout, shape, axis, kind):
    images = picture(shape, dtype)
    expected = np.stack([PLAN(image, axis=0 if layout == "nchw" else -1) for image in images])
    there = apron.to_device(images, axis=axis)
    assert there.shape == shape and there.numpy().tobytes() == images.tobytes()
    foreign = {"own": lambda: there, "interface": lambda: Interface(there), "capsule": lambda: Capsule(there, True)}[kind]()
    result = PLAN(foreign, layout=layout)
    assert isinstance(result, apron.DeviceArray) and result.shape == shape
    np.testing.assert_array_equal(result.numpy(), expected)
    out = apron.DeviceArray._empty(shape, np.dtype(dtype).str, 0, axis)
    assert PLAN(foreign, out, layout=layout) is out
    np.testing.assert_array_equal(out.numpy(), expected)
    # In host memory, on the GPU.
    np.testing.assert_array_equal(PLAN(images, layout=layout), expected)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("linear", [True, "gamma=2.2"])
@pytest.mark.parametrize("shape, alpha", [((17, 41), "keep"), ((40, 61, 3), "keep"), ((40, 61, 4), "premultiply")])
def test_linear_light(dtype, linear, shape, alpha):
    """The CPU's bits, of arrays in the GPU's memory and in the host's."""
    image = picture(shape, dtype)
    if dtype == "u2":
        image *= 257
    plan, cpu = (Plan("gaussian:1.5", device=device, linear=linear, alpha=alpha) for device in ("gpu", "cpu"))
    expected = cpu(image)
    assert not np.array_equal(expected, Plan("gaussian:1.5", device="cpu", alpha=alpha)(image))
    np.testing.assert_array_equal(plan(image), expected)
    np.testing.assert_array_equal(plan(apron.to_device(image)).numpy(), expected)


@pytest.mark.parametrize("dtype", ["u1", "u2", "f2", "f4"])
@pytest.mark.parametrize("border, nan", [("none", "spread"), ("reflect", "ignore"), ("reflect101", "fill")])
@pytest.mark.parametrize("shape", [(40, 50), (40, 50, 3)])
@pytest.mark.parametrize("kind", ["none", "u1", "f4", "all"])
def test_masks(dtype, border, nan, shape, kind):
    image, rng = picture(shape, dtype, 5), np.random.default_rng(6)
    if dtype[0] == "f":
        image[rng.random(shape) < 0.1] = np.nan
    known = rng.random(shape if kind == "all" else shape[:2]) < 0.7
    mask = None if kind == "none" else known * np.uint8(255) if kind == "all" else known.astype(kind) * (255 if kind == "u1" else 2)
    for text in ("gaussian:2", "sobel-x"):
        if text == "sobel-x" and nan == "fill":
            continue
        host, gpu = (apron.Plan(text, border, device, nan=nan, unknown=3.0) for device in ("cpu", "gpu"))
        sums, found = np.zeros(shape, "f4"), apron.to_device(np.zeros(shape, "f4"))
        right = host(image, mask=mask, weights=sums)
        on_gpu = None if mask is None else apron.to_device(mask)
        result = gpu(apron.to_device(image), mask=on_gpu, weights=found)
        np.testing.assert_array_equal(result.numpy(), right)
        np.testing.assert_array_equal(found.numpy(), sums)
        if mask is not None:
            out = apron.to_device(np.zeros_like(image))
            assert gpu(apron.to_device(image), out, mask=on_gpu) is out
            np.testing.assert_array_equal(out.numpy(), right)
            np.testing.assert_array_equal(gpu(image, mask=mask), right)
    with pytest.raises(TypeError, match="mask in host memory"):
        gpu(apron.to_device(image), mask=known)
    with pytest.raises(ValueError, match="4"):
        gpu(apron.to_device(image), mask=apron.to_device(np.zeros((4, 4), "u1")))


def test_alpha_of_batches():
    images = picture((3, 17, 41, 4))
    for alpha in ("premultiply", "keep"):
        plan = Plan("gaussian:1", device="gpu", alpha=alpha)
        expected = np.stack([plan(image) for image in images])
        np.testing.assert_array_equal(plan(apron.to_device(images), layout="nhwc").numpy(), expected)
        np.testing.assert_array_equal(plan(images, layout="nhwc"), expected)


def test_layouts_are_checked():
    there = apron.to_device(picture((2, 9, 10, 3)))
    for wrong, kind, message in [
        (lambda: PLAN(there), ValueError, "layout="),
        (lambda: PLAN(there, layout="nhw"), ValueError, "has 3"),
        (lambda: PLAN(there, layout="nhwc", axis=0), TypeError, "axis or layout"),
        (lambda: apron.to_device(picture((2, 3, 9, 10)), axis=2), ValueError, "axis is 2"),
        (lambda: PLAN(apron.to_device(picture((2, 3, 9, 10, 1)))), ValueError, "5 dimensions"),
        (lambda: apron.to_device(picture((3, 0))), ValueError, "at least 1"),
    ]:
        with pytest.raises(kind, match=message):
            wrong()


def test_the_interface_says_where_the_memory_is():
    image = picture((9, 30, 3), "f4")
    there = apron.to_device(image)
    interface = there.__cuda_array_interface__
    assert interface["version"] == 3 and interface["stream"] is None and interface["typestr"] == "<f4"
    assert interface["shape"] == (9, 30, 3) and interface["strides"][1:] == (12, 4) and interface["strides"][0] >= 360
    again = apron.from_dlpack(Capsule(there, versions=True))
    assert again.__cuda_array_interface__["data"][0] == interface["data"][0]
    assert again.strides == there.strides
    np.testing.assert_array_equal(again.numpy(), image)


def test_memory_lives_as_long_as_its_last_user():
    image = picture((30, 50))
    there = apron.to_device(image)
    taken = apron.from_dlpack(there)
    del there
    gc.collect()
    others = [apron.to_device(picture((30, 50), seed=seed)) for seed in range(1, 5)]
    np.testing.assert_array_equal(taken.numpy(), image)
    del others
    for versions in ({}, {"max_version": (1, 0)}):
        capsule = taken.__dlpack__(**versions)
        del capsule
        gc.collect()
    capsule = taken.__dlpack__()
    apron.DeviceArray._taken(capsule)
    with pytest.raises(BufferError, match="taken"):
        apron.DeviceArray._taken(capsule)


def test_streams_of_the_interface_are_waited_for():
    there = apron.to_device(picture((8, 9)))
    np.testing.assert_array_equal(PLAN(Interface(there, stream=1)).numpy(), PLAN(there.numpy()))
    # NVIDIA's driver takes any number as a stream's address and reads from it.
    if "APRON_DRIVER" in os.environ:
        with pytest.raises(RuntimeError):
            PLAN(Interface(there, stream=12345))


def test_errors():
    there = apron.to_device(picture((8, 9)))
    with pytest.raises(ValueError, match="device is cpu: build it with device='gpu'"):
        CPU(there)
    with pytest.raises(ValueError, match="read-only"):
        PLAN(there, Interface(apron.to_device(picture((8, 9))), readonly=True))
    with pytest.raises(ValueError, match="same"):
        PLAN(there, apron.to_device(picture((9, 8))))
    with pytest.raises(TypeError, match="device array"):
        PLAN(there, np.zeros((8, 9), "u1"))
    with pytest.raises(ValueError, match="overlap|same memory|destination"):
        PLAN(there, there)
    with pytest.raises(TypeError, match="uint8"):
        PLAN(apron.to_device(np.zeros((8, 9))))
    with pytest.raises(ValueError):
        there.__dlpack__(stream=0)
    with pytest.raises(BufferError):
        there.__dlpack__(dl_device=(1, 0))
    with pytest.raises(BufferError):
        there.__dlpack__(copy=True)
    with pytest.raises(RuntimeError, match="GPU"):
        apron.to_device(picture((8, 9)), device=99)


def library(name):
    """CuPy or PyTorch with a GPU: the module, and functions to make, read and address arrays."""
    module = pytest.importorskip(name)
    if name == "torch":
        if not module.cuda.is_available():
            pytest.skip("PyTorch finds no GPU")
        return module, lambda a: module.from_numpy(a).cuda(), lambda a: a.cpu().numpy(), lambda a: a.data_ptr()
    return module, module.asarray, module.asnumpy, lambda a: a.data.ptr


@pytest.mark.parametrize("name", ["cupy", "torch"])
@pytest.mark.parametrize("dtype", ["u1", "f2", "f4"])
@pytest.mark.parametrize("shape, axis", [((170, 410), -1), ((170, 410, 3), -1), ((3, 170, 410), 0)])
def test_other_libraries_get_their_own_kind(name, dtype, shape, axis):
    module, make, read, address = library(name)
    image = picture(shape, dtype)
    there = make(image)
    result = PLAN(there, axis=axis)
    assert type(result) is type(there)
    np.testing.assert_array_equal(read(result), PLAN(image, axis=axis))
    before = address(result)
    assert PLAN(there, result, axis=axis) is result and address(result) == before
    crop = there[..., 5:200] if axis == 0 else there[3:100, 5:200]
    numpys = image[..., 5:200] if axis == 0 else image[3:100, 5:200]
    np.testing.assert_array_equal(read(PLAN(crop, axis=axis)), PLAN(numpys, axis=axis))
    # The other direction: the library's arrays share apron's memory without a copy.
    own = apron.to_device(image, axis=axis)
    taken = module.from_dlpack(own)
    assert address(taken) == own.__cuda_array_interface__["data"][0]
    np.testing.assert_array_equal(read(taken), image)


@pytest.mark.parametrize("name", ["cupy", "torch"])
def test_work_is_in_the_current_stream(name):
    module, make, read, _ = library(name)
    image = picture((2000, 2000), "f4")
    expected = PLAN(image)
    if name == "torch":
        stream, context = module.cuda.Stream(), module.cuda.stream
    else:
        stream, context = module.cuda.Stream(non_blocking=True), lambda stream: stream
    for _ in range(5):
        with context(stream):
            there = make(np.zeros_like(image))
            # A long queue precedes the picture: work in another stream would read the zeros.
            for _ in range(50):
                there += 0
            there += make(image)
            result = PLAN(there)
            np.testing.assert_array_equal(read(result), expected)


def test_compiled_programs_of_pytorch():
    """No graph break, in the current stream, with and without `out`; gradients are refused."""
    torch, make, read, _ = library("torch")
    # PyTorch limits how often it compiles a function, and other tests compile a plan's call, too.
    torch._dynamo.reset()
    image = picture((170, 410), "f4")
    there = make(image)
    compiled = torch.compile(lambda image, plan: plan(image + 0) * 2, fullgraph=True)
    other = Plan("box:size=5", device="gpu")
    for plan in (PLAN, other, PLAN):
        np.testing.assert_array_equal(read(compiled(there, plan)), plan(image) * 2)

    def into(image, out):
        PLAN(image, out)
        return out + 1

    out = torch.zeros_like(there)
    np.testing.assert_array_equal(read(torch.compile(into, fullgraph=True)(there, out)), PLAN(image) + 1)
    np.testing.assert_array_equal(read(out), PLAN(image))
    with pytest.raises(RuntimeError, match=r"image\.detach"):
        PLAN(there.clone().requires_grad_())
    with torch.no_grad():
        np.testing.assert_array_equal(read(PLAN(there.clone().requires_grad_())), PLAN(image))
    negated = torch.conj(torch.complex(there, there)).imag
    np.testing.assert_array_equal(read(PLAN(negated)), PLAN(-image))


@pytest.mark.parametrize("name", ["cupy", "torch"])
@pytest.mark.parametrize("layout, shape", [("nhwc", (5, 170, 410, 3)), ("nchw", (5, 3, 170, 410)), ("nhw", (5, 170, 410))])
def test_batches_of_other_libraries(name, layout, shape):
    module, make, read, _ = library(name)
    images = picture(shape)
    result = PLAN(make(images), layout=layout)
    assert isinstance(result, type(make(images)))
    np.testing.assert_array_equal(read(result), CPU(images, layout=layout))
    if name == "torch":
        last = make(images).flip(-1).flip(-1) if len(shape) < 4 else make(images).to(memory_format=module.channels_last)
        np.testing.assert_array_equal(read(PLAN(last, layout=layout)), read(result))


@pytest.mark.parametrize("border", ["constant:2", "replicate", "reflect", "reflect101", "wrap"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_gradients_of_tensors(border, dtype):
    torch, *_ = library("torch")
    import apron.torch

    torch.manual_seed(0)
    image = torch.rand(2, 3, 40, 50).to(getattr(torch, dtype))
    weights = torch.rand(2, 3, 40, 50)

    def gradients(device):
        here = image.to(device).requires_grad_()
        taps, row, column = (torch.ones(shape, requires_grad=True) for shape in [(4, 5), (9,), (2,)])
        results = apron.torch.correlate(here, taps, border), apron.torch.correlate(here, (row, column), border)
        loss = sum((result.float() * weights.to(device)).sum() for result in results)
        found = torch.autograd.grad(loss, (here, taps, row, column))
        return [value.float().cpu() for value in (*results, *found)]

    tolerance = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5}[dtype]
    for ours, cpus in zip(gradients("cuda"), gradients("cpu")):
        torch.testing.assert_close(ours, cpus, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["cupy", "torch"])
def test_a_thousand_calls_leak_nothing(name):
    module, make, _, _ = library(name)
    there = make(picture((64, 64), "f4"))

    def free():
        module.cuda.synchronize() if name == "torch" else module.cuda.Device().synchronize()
        memory = module.cuda.mem_get_info()[0] if name == "torch" else module.cuda.runtime.memGetInfo()[0]
        return memory

    for _ in range(100):
        PLAN(there)
    before = free()
    for _ in range(1000):
        PLAN(there)
        apron.from_dlpack(there)
    assert free() >= before - 2**21
