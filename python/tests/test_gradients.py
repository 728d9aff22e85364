"""Filters with gradients: `apron.torch`, against PyTorch's own derivatives and torchvision."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import apron  # noqa: E402
import apron.torch  # noqa: E402
from apron import ndimage  # noqa: E402

#: Borders, and SciPy's names for them.
BORDERS = {
    "constant": "constant",
    "constant:2.5": "constant",
    "replicate": "nearest",
    "reflect": "reflect",
    "reflect101": "mirror",
    "wrap": "wrap",
}
TYPES = [torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64]


def random(*shape, seed=0, grad=True):
    values = np.random.default_rng(seed).normal(size=shape)
    return torch.tensor(values, requires_grad=grad)


def uniform(*shape, dtype=torch.float32):
    values = torch.from_numpy(np.random.default_rng(1).random(shape))
    return (values * 255).to(dtype) if dtype == torch.uint8 else values.to(dtype)


@pytest.mark.parametrize("border", BORDERS)
def test_results_are_scipys(border):
    image, taps = random(7, 9, grad=False), random(4, 3, seed=1, grad=False)
    cval = 2.5 if border.endswith("2.5") else 0.0
    expected = ndimage.correlate(image.numpy(), taps.numpy(), mode=BORDERS[border], cval=cval)
    found = apron.torch.correlate(image, taps, border)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-14)
    row, column = taps[0], taps[:, 1]
    expected = apron.torch.correlate(image, column[:, None] * row, border, anchor=(2, 0))
    found = apron.torch.correlate(image, (row, column), border, anchor=(2, 0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("rows, columns, anchor", [(2, 3, None), (3, 2, (0, 2)), (1, 9, (7, 0))])
def test_gradients(border, rows, columns, anchor):
    """With respect to the image and to the taps, once and twice: also of windows larger than the image."""
    image, taps = random(2, 3, 3), random(rows, columns, seed=1)

    def call(image, taps):
        return apron.torch.correlate(image, taps, border, anchor)

    assert torch.autograd.gradcheck(call, (image, taps))
    assert torch.autograd.gradgradcheck(call, (image, taps))


@pytest.mark.parametrize("border", BORDERS)
def test_gradients_of_a_row_and_a_column(border):
    image, row, column = random(3, 3), random(3, seed=1), random(2, seed=2)

    def call(image, row, column):
        return apron.torch.correlate(image, (row, column), border)

    assert torch.autograd.gradcheck(call, (image, row, column))
    assert torch.autograd.gradgradcheck(call, (image, row, column))


@pytest.mark.parametrize("sigma", [[0.8], [0.8, 1.3]])
def test_gradients_of_sigma(sigma):
    image, sigma = random(1, 3, 4), torch.tensor(sigma, dtype=torch.float64, requires_grad=True)

    def call(image, sigma):
        return apron.torch.gaussian_blur(image, (5, 3), sigma)

    assert torch.autograd.gradcheck(call, (image, sigma))
    assert torch.autograd.gradgradcheck(call, (image, sigma))


@pytest.mark.parametrize("border", ["constant", "replicate", "reflect101", "wrap"])
def test_gradients_are_those_of_a_convolution(border):
    """In float32, and of images that need several threads."""
    image, taps = uniform(2, 3, 150, 170).requires_grad_(), uniform(5, 4).requires_grad_()
    mode = {"constant": "constant", "replicate": "replicate", "reflect101": "reflect", "wrap": "circular"}[border]
    padded = torch.nn.functional.pad(image, (2, 1, 2, 2), mode)
    expected = torch.nn.functional.conv2d(padded.reshape(6, 1, 154, 173), taps[None, None]).reshape(image.shape)
    found = apron.torch.correlate(image, taps, border)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-5)
    weights = uniform(*image.shape)
    ours = torch.autograd.grad((found * weights).sum(), (image, taps))
    theirs = torch.autograd.grad((expected * weights).sum(), (image, taps))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("border", BORDERS)
def test_the_adjoint_on_a_gpu(border):
    """Its steps, which are PyTorch's but for a plan, on the CPU."""
    name = apron.Plan("identity", border, "cpu").border
    taps, row, column = random(9, 4, grad=False), random(15, grad=False), random(2, grad=False)
    for shape in [(6, 7), (2, 6, 7), (2, 3, 6, 7), (2, 2, 3, 6, 7)]:
        for window in ([taps, None, [1, 7]], [row, column, [3, 0]]):
            grad = random(*shape, grad=False)
            expected = torch.ops.apron.correlate_adjoint(grad, *window, name)
            steps = apron.torch._by_planes(grad, lambda planes, layout: apron.torch._folded(planes, layout, *window, name))
            torch.testing.assert_close(steps, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(20, 30), (3, 20, 30), (2, 3, 20, 30), (2, 2, 3, 20, 30), (0, 3, 20, 30)])
def test_types_and_shapes(dtype, shape):
    image, taps = uniform(*shape, dtype=dtype), uniform(5, 3)
    taps = taps / taps.sum()
    found = apron.torch.correlate(image, taps)
    assert found.dtype == dtype and found.shape == shape
    planes = image.reshape(-1, 20, 30).double()
    expected = [ndimage.correlate(plane.numpy(), taps.double().numpy(), mode="mirror") for plane in planes]
    tolerance = {torch.uint8: 0.5 + 1e-9, torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float32: 1e-6}.get(dtype, 1e-14)
    for plane, result in zip(expected, found.reshape(-1, 20, 30)):
        np.testing.assert_allclose(result.double(), plane, rtol=0, atol=tolerance)
    if dtype != torch.uint8:
        image.requires_grad_()
        (apron.torch.correlate(image, taps) * 2).sum().backward()
        assert image.grad.dtype == dtype and image.grad.shape == shape
        # Taps of an average give their weight back, but for reflections at the edges.
        assert image.numel() == 0 or abs(image.grad.double().mean() - 2) < 0.02


def test_memory_formats():
    image = uniform(2, 3, 20, 30)
    for other in (image.to(memory_format=torch.channels_last), image[:, :, ::2, 3:-3], image.transpose(2, 3)):
        leaf = other.detach().requires_grad_()
        found = apron.torch.correlate(leaf, torch.ones(3, 2))
        expected = apron.torch.correlate(other.contiguous(), torch.ones(3, 2))
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        found.backward(other)
        plain = other.contiguous().requires_grad_()
        apron.torch.correlate(plain, torch.ones(3, 2)).backward(other.contiguous())
        torch.testing.assert_close(leaf.grad, plain.grad, rtol=0, atol=0)


def test_the_image_is_kept_only_for_the_taps():
    kept = []
    image, taps = random(5, 6), random(3, 3)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.shape) or tensor, lambda tensor: tensor):
        apron.torch.correlate(image, taps.detach())
        assert (5, 6) not in kept
        apron.torch.correlate(image, taps)
        assert (5, 6) in kept


def test_batches_of_functions():
    images, taps = uniform(4, 3, 10, 12), uniform(3, 5)

    def call(image, taps=taps):
        return apron.torch.correlate(image, taps, "wrap")

    expected = call(images)
    for axis in (0, 1):
        torch.testing.assert_close(torch.func.vmap(call, axis, axis)(images), expected, rtol=0, atol=0)
    many = uniform(4, 3, 5)
    expected = torch.stack([call(image, taps) for image, taps in zip(images, many)])
    torch.testing.assert_close(torch.func.vmap(call)(images, many), expected, rtol=0, atol=0)
    images.requires_grad_()
    result = call(images)
    weights = uniform(5, *result.shape)
    together = torch.autograd.grad(result, images, weights, retain_graph=True, is_grads_batched=True)[0]
    for weight, found in zip(weights, together):
        torch.testing.assert_close(found, torch.autograd.grad(result, images, weight, retain_graph=True)[0], rtol=0, atol=0)


def test_derivatives_that_there_are_not():
    image, taps = random(5, 6, grad=False), random(3, 3, grad=False)
    with pytest.raises(NotImplementedError, match="forward"):
        torch.func.jvp(lambda image: apron.torch.correlate(image, taps), (image,), (image,))
    with pytest.raises(RuntimeError):
        torch.func.grad(lambda image: apron.torch.correlate(image, taps).sum())(image)


def test_tensors_without_memory():
    taps = torch.ones(3, 3)
    meta = torch.empty(2, 8, 9, device="meta")
    result = apron.torch.correlate(meta, taps)
    assert result.is_meta and result.shape == meta.shape
    with pytest.raises((TypeError, RuntimeError, NotImplementedError)):
        apron.Plan("gaussian:1", device="cpu")(meta)
    sparse = torch.eye(8).to_sparse()
    with pytest.raises((TypeError, RuntimeError, NotImplementedError)):
        apron.Plan("gaussian:1", device="cpu")(sparse)


def test_arguments():
    image, taps = random(5, 6), random(3, 3)
    for wrong, kind, message in [
        (lambda: apron.torch.correlate(image, taps, "keep"), ValueError, "keep.*gradients"),
        (lambda: apron.torch.correlate(image, taps, "none"), ValueError, "none.*gradients"),
        (lambda: apron.torch.correlate(image, taps, "mirrored"), ValueError, "mirrored"),
        (lambda: apron.torch.correlate(image[0], taps), ValueError, "1 dimensions"),
        (lambda: apron.torch.correlate(image, taps[0]), ValueError, "two dimensions"),
        (lambda: apron.torch.correlate(image, (taps, taps)), ValueError, "a row and a column"),
        (lambda: apron.torch.correlate(image, taps, anchor=(3, 0)), ValueError, "anchor"),
        (lambda: apron.torch.correlate(image, taps / 0), ValueError, "tap"),
        (lambda: apron.torch.correlate(image.detach().numpy(), taps), TypeError, "ndarray"),
        (lambda: apron.torch.correlate(image.bool(), taps), TypeError, "bool"),
        (lambda: apron.torch.gaussian_blur(image, 4), ValueError, "odd"),
        (lambda: apron.torch.gaussian_blur(image, (3, 5, 7)), ValueError, "one or two"),
        (lambda: apron.torch.gaussian_blur(image, 3, -1.0), ValueError, "positive"),
        (lambda: apron.torch.gaussian_blur(image, 3, torch.ones(3)), ValueError, "3 elements"),
        (lambda: apron.torch.GaussianBlur(3, (2.0, 1.0)), ValueError, "ascending"),
        (lambda: apron.torch.GaussianBlur(2), ValueError, "odd"),
    ]:
        with pytest.raises(kind, match=message):
            wrong()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size, sigma", [(5, 1.5), ([9, 5], [2.0, 0.7]), ([1, 23], None), (7, [3.0])])
def test_torchvisions_blur(dtype, size, sigma):
    functional = pytest.importorskip("torchvision.transforms.v2.functional", reason="torchvision is not installed")
    for shape in [(3, 40, 50), (2, 1, 40, 50), (2, 2, 3, 40, 50)]:
        image = uniform(*shape, dtype=dtype)
        both = lambda value: value if value is None or isinstance(value, list) else [value, value]  # noqa: E731
        expected = functional.gaussian_blur(image, both(size), both(sigma))
        found = apron.torch.gaussian_blur(image, size, sigma)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        off = (found.double() - expected.double()).abs()
        if dtype == torch.uint8:
            # A sum in float32 may be on the other side of a half.
            assert off.max() <= 1 and (off > 0).double().mean() < 1e-3
        else:
            tolerance = {torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float32: 2e-6}.get(dtype, 1e-6)
            assert off.max() <= tolerance


def test_each_sample_has_a_sigma_of_its_own():
    image = torch.rand(4, 2, 20, 30)
    blur = apron.torch.GaussianBlur((5, 3), (0.5, 2.0), per_sample=True)
    for dtype in (torch.float32, torch.uint8, torch.bfloat16):
        batch = (200 * image).to(dtype)
        torch.manual_seed(3)
        found = blur(batch)
        torch.manual_seed(3)
        sigma = torch.empty(4, 1).uniform_(0.5, 2.0)
        expected = torch.stack([apron.torch.gaussian_blur(*each) for each in zip(batch, [(5, 3)] * 4, sigma)])
        torch.testing.assert_close(found, expected)
    torch.manual_seed(3)
    leaf = image.clone().requires_grad_()
    found = blur(leaf)
    torch.manual_seed(3)
    torch.testing.assert_close(found, blur(image))
    found.sum().backward()
    assert leaf.grad.shape == image.shape



def test_torchvisions_class():
    transforms = pytest.importorskip("torchvision.transforms.v2", reason="torchvision is not installed")
    image = uniform(4, 3, 32, 40)
    for arguments in [(5,), ((9, 3), (0.5, 1.5)), (7, 2.0)]:
        torch.manual_seed(7)
        expected = transforms.GaussianBlur(*arguments)(image)
        torch.manual_seed(7)
        found = apron.torch.GaussianBlur(*arguments)(image)
        torch.testing.assert_close(found, expected, rtol=0, atol=2e-6)


def test_a_sigma_for_each_image():
    image = uniform(1, 3, 32, 40).expand(4, 3, 32, 40)
    torch.manual_seed(7)
    together = apron.torch.GaussianBlur(5)(image)
    assert all((one == together[0]).all() for one in together)
    torch.manual_seed(7)
    apart = apron.torch.GaussianBlur(5, per_sample=True)(image)
    torch.manual_seed(7)
    one = apron.torch.GaussianBlur(5)
    for found, alone in zip(apart, [one(image[0]) for _ in range(4)]):
        torch.testing.assert_close(found, alone, rtol=0, atol=0)
    assert len({found.sum().item() for found in apart}) == 4
    assert "per_sample=True" in repr(apron.torch.GaussianBlur(5, per_sample=True))


def has_compiler():
    import shutil

    return shutil.which("g++") or shutil.which("clang++")


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled(backend):
    if backend == "inductor" and not has_compiler():
        pytest.skip("no C++ compiler")
    torch._dynamo.reset()
    image, sigma = uniform(2, 3, 20, 24).requires_grad_(), torch.tensor(1.3, requires_grad=True)

    def call(image, sigma):
        return apron.torch.gaussian_blur(image * 2, 5, sigma).square().sum()

    expected = torch.autograd.grad(call(image, sigma), (image, sigma))
    compiled = torch.compile(call, fullgraph=True, backend=backend)
    found = torch.autograd.grad(compiled(image, sigma), (image, sigma))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    if backend == "aot_eager":
        blur = apron.torch.GaussianBlur(5)
        torch.manual_seed(3)
        alone = blur(image)
        torch.manual_seed(3)
        torch.testing.assert_close(torch.compile(blur, fullgraph=True, backend=backend)(image), alone, rtol=0, atol=0)


def test_exported():
    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.taps = torch.nn.Parameter(uniform(3, 3))

        def forward(self, image):
            return apron.torch.correlate(image, self.taps, "replicate")

    module, image = Module(), uniform(2, 3, 20, 24)
    exported = torch.export.export(module, (image,)).module()
    torch.testing.assert_close(exported(image * 2), module(image * 2), rtol=0, atol=0)


def test_operators_keep_their_contracts():
    image, taps = random(2, 6, 7), random(3, 3)
    for window in ([taps, None, [1, 1]], [random(3), random(4), [1, 1]]):
        torch.library.opcheck(torch.ops.apron.correlate, (image, *window, "reflect"))
        torch.library.opcheck(torch.ops.apron.correlate_adjoint, (image, *window, "wrap"))
    last = random(2, 3, 6, 7, grad=False).to(memory_format=torch.channels_last).requires_grad_()
    torch.library.opcheck(torch.ops.apron.correlate, (last, taps, None, [1, 1], "reflect"))
    five = random(2, 1, 3, 6, 7, grad=False).transpose(0, 2).requires_grad_()
    torch.library.opcheck(torch.ops.apron.correlate, (five, taps, None, [1, 1], "reflect"))


def test_examples():
    import doctest

    assert doctest.testmod(apron.torch).failed == 0
