"""PyTorch's tensors in host memory. `test_device.py` tests tensors on a GPU."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import apron  # noqa: E402
from apron import Plan, cv, ndimage  # noqa: E402

PLAN = Plan("gaussian:sigma=1.5", device="cpu")
OTHER = Plan("box:size=3", "wrap", device="cpu")
IMAGE = np.random.default_rng(0).random((24, 31), np.float32)
BACKENDS = ["eager", "aot_eager"]


def test_tensors():
    tensor = torch.from_numpy(IMAGE)
    result = PLAN(tensor)
    assert type(result) is torch.Tensor and (result.numpy() == PLAN(IMAGE)).all()
    out = torch.zeros_like(tensor)
    assert PLAN(tensor, out) is out and (out == result).all()
    assert PLAN(IMAGE, out.zero_()) is out and (out == result).all()
    host = np.zeros_like(IMAGE)
    assert PLAN(tensor, host) is host and (host == result.numpy()).all()
    for dtype in (torch.uint8, "u1", np.uint8):
        assert PLAN(tensor, dtype=dtype).dtype == torch.uint8
    assert (PLAN(tensor.t()).numpy() == PLAN(IMAGE.T)).all()
    # A lazily negated tensor: its memory holds the numbers before the negation.
    negated = torch.conj(torch.complex(tensor, tensor)).imag
    assert negated.is_neg() and (PLAN(negated).numpy() == PLAN(-IMAGE)).all()
    with pytest.raises(TypeError, match="negated"):
        PLAN(tensor, negated)
    planes = np.stack([IMAGE, IMAGE * 2, IMAGE * 3])
    assert (PLAN(torch.from_numpy(planes), axis=0).numpy() == PLAN(planes, axis=0)).all()


def calls(tensor):
    """All functions that take a tensor."""
    taps = tensor[:3, :3]
    return {
        "plan": lambda: PLAN(tensor),
        "out": lambda: PLAN(tensor.detach(), tensor),
        "numpy and out": lambda: PLAN(IMAGE, tensor),
        "ndimage": lambda: ndimage.gaussian_filter(tensor, 1.0),
        "weights": lambda: ndimage.correlate(IMAGE, taps),
        "cv": lambda: cv.blur(tensor, (3, 3)),
        "kernel": lambda: cv.filter2D(IMAGE, -1, taps),
        "taps": lambda: apron.Filter.from_taps(taps),
        "list": lambda: PLAN([tensor[0], tensor[1]]),
    }


@pytest.mark.parametrize("name", calls(torch.from_numpy(IMAGE)))
def test_gradients_are_not_lost(name):
    """Tensors with recorded gradients are refused: leaves, results, parameters and forward mode."""
    leaf = torch.from_numpy(IMAGE.copy()).requires_grad_()
    for tensor in (leaf, leaf * 2, torch.nn.Parameter(torch.from_numpy(IMAGE.copy()))):
        with pytest.raises(RuntimeError, match=r"requires a gradient.*\.detach\(\)") as raised:
            calls(tensor)[name]()
        assert "\n" not in str(raised.value)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(leaf.detach(), leaf.detach())
        with pytest.raises(RuntimeError, match=r"\.detach\(\)"):
            calls(dual)[name]()
    expected = numbers(calls(torch.from_numpy(IMAGE.copy()))[name]())
    with torch.no_grad():
        assert leaf.requires_grad
        np.testing.assert_array_equal(numbers(calls(leaf)[name]()), expected)


def numbers(result):
    """A result's numbers: an array's, a tensor's or a filter's."""
    result = getattr(result, "taps", result)
    return result.detach().numpy() if isinstance(result, torch.Tensor) else result


def test_gradients_of_functions_are_not_lost():
    tensor = torch.from_numpy(IMAGE)
    for call in (
        lambda: torch.func.grad(lambda image: PLAN(image).sum())(tensor),
        lambda: torch.func.jvp(PLAN, (tensor,), (tensor,)),
        lambda: torch.func.vmap(PLAN)(torch.stack([tensor, tensor])),
        lambda: torch.compile(lambda image: PLAN(image * 2), backend="eager")(tensor.clone().requires_grad_()),
    ):
        with pytest.raises(RuntimeError):
            call()


def test_types():
    for dtype in (torch.bfloat16, torch.bool, torch.complex64):
        with pytest.raises(TypeError, match=f"{dtype}.*convert it"):
            PLAN(torch.zeros(4, 5, dtype=dtype))
    with pytest.raises(TypeError, match="pass out or dtype"):
        PLAN(torch.zeros(4, 5), torch.zeros(4, 5), dtype=torch.float32)


@pytest.mark.parametrize("backend", BACKENDS)
def test_compiled_without_a_break(backend):
    torch._dynamo.reset()
    compiled = torch.compile(lambda image, plan: plan(image + 0) * 2, fullgraph=True, backend=backend)
    # One program runs several plans and sizes: the plan is not part of the program.
    for plan in (PLAN, OTHER, PLAN):
        for rows in range(9, 24, 3):
            image = IMAGE[:rows].copy()
            assert (compiled(torch.from_numpy(image), plan).numpy() == plan(image) * 2).all()
    for dtype in (torch.float32, "f4", np.float32):
        wide = torch.compile(lambda image: PLAN(image, dtype=dtype), fullgraph=True, backend=backend)
        assert wide(torch.zeros(5, 6, dtype=torch.uint8)).dtype == torch.float32

    def into(image, out):
        PLAN(image, out)
        return out + 1

    out = torch.zeros(24, 31)
    result = torch.compile(into, fullgraph=True, backend=backend)(torch.from_numpy(IMAGE), out)
    assert (out.numpy() == PLAN(IMAGE)).all() and (result == out + 1).all()
    planes = torch.from_numpy(np.stack([IMAGE] * 3))
    first = torch.compile(lambda image: PLAN(image, axis=0), fullgraph=True, backend=backend)
    assert (first(planes).numpy() == PLAN(planes.numpy(), axis=0)).all()


def test_recorded_in_other_ways():
    tensor = torch.from_numpy(IMAGE)

    class Module(torch.nn.Module):
        def forward(self, image):
            return PLAN(image) + 1

    from torch.fx.experimental.proxy_tensor import make_fx

    for record in (
        lambda: torch.export.export(Module(), (tensor,)).module(),
        lambda: torch.jit.trace(Module(), (tensor,)),
        lambda: make_fx(Module())(tensor),
    ):
        recorded = record()
        np.testing.assert_array_equal(recorded(tensor * 2).numpy(), PLAN(IMAGE * 2) + 1)


def test_operators_keep_their_contracts():
    from apron import _texts

    text = OTHER._text
    tensor = torch.from_numpy(IMAGE)
    torch.library.opcheck(torch.ops.apron.filter, (tensor, text, -1, None))
    torch.library.opcheck(torch.ops.apron.filter, ((tensor * 255).to(torch.uint8), text, -1, torch.float32))
    torch.library.opcheck(torch.ops.apron.filter_out, (tensor, torch.empty_like(tensor), text, -1))
    # As in another process, in which the plan does not exist.
    _texts._alive.clear()
    assert (torch.ops.apron.filter(tensor, text).numpy() == OTHER(IMAGE)).all()
    options = {"variant": "direct-naive", "memory": 1 << 20, "alpha": "premultiply"}
    all_said = Plan("box:size=3", "constant:5", "cpu", **options)
    text, colours = all_said._text, np.stack([IMAGE] * 4, axis=-1)
    _texts._alive.clear()
    again = torch.ops.apron.filter(torch.from_numpy(colours), text)
    assert (again.numpy() == all_said(colours)).all()
    # The gradient is refused only in the backward pass, with an error.
    with pytest.raises(RuntimeError, match="backward"):
        torch.ops.apron.filter(tensor.clone().requires_grad_(), text).sum().backward()
