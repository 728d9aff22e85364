"""Calls of a plan with PyTorch's tensors, and the operators that replace them when compiled.

PyTorch's compiler does not look into the extension module. It traces :func:`call`, which becomes
one of the operators ``torch.ops.apron.filter`` and ``torch.ops.apron.filter_out``. Each names its
plan by a text that fully describes it. So a stored program filters the same in another process.
"""

import numpy as np
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _get_current_dispatch_mode

from . import _apron, _arrays, _batches, _inputs, _layouts
from ._texts import plan_of

if not hasattr(torch.library, "custom_op"):
    raise ImportError(f"PyTorch is {torch.__version__}: 2.4 or later is needed to filter tensors")

#: The types that plans take on any device, and those that they convert on the CPU.
_TYPES = {
    torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64, torch.int64,
    torch.float16, torch.float32, torch.float64,
}  # fmt: skip

#: The types that plans take in place, with NumPy's names.
_DIRECT = {torch.uint8: "|u1", torch.uint16: "<u2", torch.float16: "<f2", torch.float32: "<f4"}

#: The handle of the current stream on a GPU, as PyTorch's own compiled code gets it. The object that
#: the stream belongs to takes ten times as long.
_stream = getattr(torch._C, "_cuda_getCurrentRawStream", lambda device: torch.cuda.current_stream(device).cuda_stream)

#: A call may allocate, so PyTorch must not capture it in a CUDA graph.
TAGS = {"tags": (torch.Tag.cudagraph_unsafe,)} if hasattr(torch.Tag, "cudagraph_unsafe") else {}


def call(plan, image, out, axis, dtype, layout):
    """``plan(image, out, axis=axis, layout=layout, dtype=dtype)`` for a tensor.

    A tensor of four dimensions is a batch of images, channels and rows, as everywhere in PyTorch.
    """
    _check_gradient(image, "image")
    if isinstance(out, torch.Tensor):
        _check_gradient(out, "out")
    if out is not None and dtype is not None:
        raise TypeError("pass out or dtype: the result has out's type")
    if dtype is not None and not isinstance(dtype, torch.dtype):
        dtype = _dtype(dtype)
    if layout is None and image.dim() == 4:
        layout = "nchw"
    if not _is_recorded(image):
        return run(plan, image, out, axis, dtype, layout)
    if out is None:
        return torch.ops.apron.filter(image, plan._text, axis, dtype, layout)
    torch.ops.apron.filter_out(image, out, plan._text, axis, layout)
    return out


def _check_gradient(tensor, name):
    """As :func:`apron._inputs.check_gradient`, which most tensors do not need."""
    # Without a level of forward mode, no tensor has a derivative.
    if tensor.requires_grad or getattr(forward_ad, "_current_level", 0) >= 0:
        _inputs.check_gradient(tensor, name)


def _is_recorded(image):
    """Whether PyTorch records calls to run them later.

    It does in ``torch.compile``, ``torch.export``, ``torch.jit.trace`` and modes of fake tensors.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return True
    # A dispatch mode, as `make_fx` has, sees operators but not NumPy's writes into a tensor.
    return type(image) not in (torch.Tensor, torch.nn.Parameter) or _get_current_dispatch_mode() is not None


def is_plain(*tensors):
    """Whether PyTorch neither records a call with these tensors nor transforms it.

    Then a call needs no operator.
    """
    if torch.compiler.is_compiling() or torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in tensors):
        return False
    # `torch.func` gives its functions tensors without memory, and those of "meta" have none.
    image = tensors[0]
    has_memory = (image.is_cpu or image.is_cuda) and not torch._C._are_functorch_transforms_active()
    return has_memory and not _is_recorded(image)


@torch.compiler.assume_constant_result
def _dtype(dtype):
    """PyTorch's type for a type of NumPy's."""
    name = np.dtype(dtype).name
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise TypeError(f"dtype is {name}: a type that PyTorch has is needed")
    return found


@torch.library.custom_op("apron::filter", mutates_args=(), **TAGS)
def _filter(
    image: torch.Tensor, plan: str, axis: int = -1, dtype: torch.dtype | None = None, layout: str | None = None
) -> torch.Tensor:
    return run(plan_of(plan), image, None, axis, dtype, layout)


@_filter.register_fake
def _(image, plan, axis=-1, dtype=None, layout=None):
    return torch.empty_like(image, dtype=dtype)


@torch.library.custom_op("apron::filter_out", mutates_args=("out",), **TAGS)
def _filter_out(
    image: torch.Tensor, out: torch.Tensor, plan: str, axis: int = -1, layout: str | None = None
) -> None:
    run(plan_of(plan), image, out, axis, None, layout)


@_filter_out.register_fake
def _(image, out, plan, axis=-1, layout=None):
    return None


def run(plan, image, out, axis, dtype, layout=None):
    """Filters now: on the tensor's GPU, or in host memory."""
    if layout is not None:
        _layouts.checked(layout, image.dim(), axis)
    if image.is_neg():
        image = image.detach().resolve_neg()
    if out is not None and isinstance(out, torch.Tensor) and out.is_neg():
        raise TypeError("out is a negated view, which cannot be written to: pass a tensor with its own memory")
    if image.is_cuda:
        return _on_device(plan, image, out, axis, dtype, layout)
    if image.dtype not in _DIRECT or dtype is not None and dtype not in _DIRECT:
        for found in (image.dtype, dtype or image.dtype):
            if found not in _TYPES:
                raise TypeError(f"the type is {found}, which NumPy lacks or plans do not support: convert it, for example with image.float()")
    result = torch.empty_like(image, dtype=dtype) if out is None else out
    described = _both_described(image, result, layout) if image.is_cpu else None
    if described and plan._filter_at(*described, axis if layout is None else None):
        return result
    arrays = _inputs.as_array(image.detach(), "image"), _inputs.as_array(result, "out")
    if layout is None:
        plan(*arrays, axis=axis)
    else:
        _batches.call(plan, *arrays, axis, None, layout)
    return result


def _on_device(plan, image, out, axis, dtype, layout):
    """Filters a tensor in its GPU's memory, in PyTorch's current stream there."""
    result = torch.empty_like(image, dtype=dtype) if out is None else out
    is_for_gpus = plan.device.startswith("gpu")
    if is_for_gpus and _apron.enqueue_lent(plan, image, result, axis, layout, torch.cuda.current_stream):
        return result
    described = _both_described(image, result, layout)
    if not described or not is_for_gpus:
        # Slower code takes other outputs, or says what is wrong.
        return _arrays.on_device(plan, image, out, axis, dtype, torch, layout)
    device, axis = image.get_device(), axis if layout is None else None
    _apron.enqueue(plan, device, *described, axis, _stream(device), torch.cuda.current_stream)
    return result


def _both_described(image, result, layout):
    """Both tensors, or None if a plan does not filter the one into the other as they are."""
    if not (_is_direct(image) and isinstance(result, torch.Tensor) and _is_direct(result)):
        return None
    # On the host, the number is -1.
    if result.get_device() != image.get_device() or result.shape != image.shape:
        return None
    return _described(image, layout), _described(result, layout)


def _is_direct(tensor):
    """Whether a plan takes the tensor's memory: not without memory, as on the device "meta"."""
    return tensor.dtype in _DIRECT and tensor.layout is torch.strided and tensor.data_ptr() != 0


def _described(tensor, layout):
    """A tensor: its address, type, and shape and strides in bytes."""
    value, shape, strides = tensor.element_size(), tensor.shape, tensor.stride()
    if layout is not None:
        shape, strides = _layouts.described(shape, strides, layout)
    return tensor.data_ptr(), _DIRECT[tensor.dtype], shape, [value * stride for stride in strides]
