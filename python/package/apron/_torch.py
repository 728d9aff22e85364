"""Calls of a plan with PyTorch's tensors, and the operators that replace them when compiled.

PyTorch's compiler does not look into the extension module. It traces :func:`call`, which becomes
one of the operators ``torch.ops.apron.filter`` and ``torch.ops.apron.filter_out``. Each names its
plan by a text that fully describes it. So a stored program filters the same in another process.
"""

import functools
import json
import weakref

import numpy as np
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

from . import _apron, _arrays, _inputs

if not hasattr(torch.library, "custom_op"):
    raise ImportError(f"PyTorch is {torch.__version__}: 2.4 or later is needed to filter tensors")

#: The types that plans take on any device, and those that they convert on the CPU.
_TYPES = {
    torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64, torch.int64,
    torch.float16, torch.float32, torch.float64,
}  # fmt: skip

#: A call may allocate, so PyTorch must not capture it in a CUDA graph.
_TAGS = {"tags": (torch.Tag.cudagraph_unsafe,)} if hasattr(torch.Tag, "cudagraph_unsafe") else {}

#: Plans that are alive, by their text.
_plans = weakref.WeakValueDictionary()


def call(plan, image, out, axis, dtype):
    """``plan(image, out, axis=axis, dtype=dtype)`` for a tensor."""
    _inputs.check_gradient(image, "image")
    if isinstance(out, torch.Tensor):
        _inputs.check_gradient(out, "out")
    if out is not None and dtype is not None:
        raise TypeError("pass out or dtype: the result has out's type")
    if dtype is not None and not isinstance(dtype, torch.dtype):
        dtype = _dtype(dtype)
    if not _is_recorded(image):
        return _run(plan, image, out, axis, dtype)
    if out is None:
        return torch.ops.apron.filter(image, _text(plan), axis, dtype)
    torch.ops.apron.filter_out(image, out, _text(plan), axis)
    return out


def _is_recorded(image):
    """Whether PyTorch records calls to run them later.

    It does in ``torch.compile``, ``torch.export``, ``torch.jit.trace`` and modes of fake tensors.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return True
    # A dispatch mode, as `make_fx` has, sees operators but not NumPy's writes into a tensor.
    return type(image) not in (torch.Tensor, torch.nn.Parameter) or _get_current_dispatch_mode() is not None


@torch.compiler.assume_constant_result
def _dtype(dtype):
    """PyTorch's type for a type of NumPy's."""
    name = np.dtype(dtype).name
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise TypeError(f"dtype is {name}: a type that PyTorch has is needed")
    return found


@torch.compiler.assume_constant_result
def _text(plan):
    """A text that fully describes a plan."""
    again, (filter, *others) = plan.__reduce__()
    text = json.dumps([[str(filter), *others], again.keywords])
    _plans[text] = plan
    return text


@functools.lru_cache(maxsize=16)
def _rebuilt(text):
    arguments, options = json.loads(text)
    return _apron.Plan(*arguments, **options)


@torch.library.custom_op("apron::filter", mutates_args=(), **_TAGS)
def _filter(image: torch.Tensor, plan: str, axis: int = -1, dtype: torch.dtype | None = None) -> torch.Tensor:
    return _run(_plans.get(plan) or _rebuilt(plan), image, None, axis, dtype)


@_filter.register_fake
def _(image, plan, axis=-1, dtype=None):
    return torch.empty_like(image, dtype=dtype)


@torch.library.custom_op("apron::filter_out", mutates_args=("out",), **_TAGS)
def _filter_out(image: torch.Tensor, out: torch.Tensor, plan: str, axis: int = -1) -> None:
    _run(_plans.get(plan) or _rebuilt(plan), image, out, axis, None)


@_filter_out.register_fake
def _(image, out, plan, axis=-1):
    return None


def _run(plan, image, out, axis, dtype):
    """Filters now: on the tensor's GPU, or as a NumPy array on the host."""
    image = image.detach().resolve_neg()
    if out is not None and isinstance(out, torch.Tensor) and out.is_neg():
        raise TypeError("out is a negated view, which cannot be written to: pass a tensor with its own memory")
    if image.is_cuda:
        return _arrays.on_device(plan, image, out, axis, dtype, torch)
    for found in (image.dtype, dtype or image.dtype):
        if found not in _TYPES:
            raise TypeError(f"the type is {found}, which NumPy lacks or plans do not support: convert it, for example with image.float()")
    result = torch.empty_like(image, dtype=dtype) if out is None else out
    plan(_inputs.as_array(image, "image"), _inputs.as_array(result, "out"), axis=axis)
    return result
