"""Filters with gradients for PyTorch, and torchvision's Gaussian blur.

:func:`correlate` filters tensors of shape (..., height, width). Gradients flow to the image and to
the taps, any number of times: the gradient of the image is the adjoint filter, whose own gradient
is the filter. :func:`gaussian_blur` and :class:`GaussianBlur` have torchvision's arguments and
results, and gradients with respect to sigma too. All of them work in ``torch.compile``,
``torch.export`` and the transforms of ``torch.func``, other than forward-mode derivatives.

Tensors of uint8, uint16, float16, float32 and float64 are filtered as they are; bfloat16 goes
through float32. Sums of float64 are in float64, on the CPU; all other sums are in float32, and
results of uint8 are exact sums rounded half to even.

>>> import torch, apron.torch
>>> image = torch.ones(1, 3, 8, 8, requires_grad=True)
>>> sigma = torch.tensor(1.5, requires_grad=True)
>>> apron.torch.gaussian_blur(image, 5, sigma).sum().backward()
>>> image.grad.shape, sigma.grad.abs() < 1e-5
(torch.Size([1, 3, 8, 8]), tensor(True))
"""

import functools

import numpy as np
import torch

from . import _apron, _inputs, _torch
from ._each import batch

__all__ = ["GaussianBlur", "correlate", "gaussian_blur"]


def correlate(image, taps, border="reflect101", anchor=None):
    """Correlate each plane of a tensor with taps.

    Parameters
    ----------
    image : Tensor
        Of shape (..., height, width), on the CPU or a GPU.
    taps : Tensor or pair of Tensors
        Rows and columns of taps; or a row and a column, each of one dimension, whose product is
        the taps. They are read on the CPU: taps on a GPU make the call wait for it.
    border : str, default "reflect101"
        The rule for pixels outside the image: "constant" (zeros), "constant:VALUE", "replicate",
        "reflect", "reflect101" or "wrap".
    anchor : tuple of int, optional
        Column and row of the cell that lies on the output pixel; by default the middle.

    Returns
    -------
    Tensor
        Of the image's shape and type.

    Raises
    ------
    TypeError
        If the image is of another type, or taps are no tensors.
    ValueError
        For an image of less than two dimensions, taps of other dimensions or that are not finite,
        an anchor outside the window, and the borders "keep" and "none".

    Notes
    -----
    The gradient with respect to the image is computed as the image's type, from sums in float32 or
    float64; with respect to taps, by PyTorch's convolution of the image and the result's gradient.
    On a GPU, the image's gradient adds pixels in no fixed order, as PyTorch's ``index_add_`` does,
    unless the border is "constant" or "wrap".
    """
    row, column = taps if isinstance(taps, (tuple, list)) else (taps, None)
    for found in (image, row) if column is None else (image, row, column):
        if not isinstance(found, torch.Tensor):
            raise TypeError(f"a {type(found).__name__} is given: image and taps are tensors")
        if _inputs.has_tangent(found):
            # PyTorch would silently take it for a constant.
            raise NotImplementedError("filters have no forward-mode derivatives: use backward(), or torch.autograd.grad")
    if image.dim() < 2:
        raise ValueError(f"the image has {image.dim()} dimensions: at least 2 are needed (rows, columns)")
    if column is None and row.dim() != 2 or column is not None and (row.dim(), column.dim()) != (1, 1):
        raise ValueError("taps are a tensor of two dimensions (rows, columns), or a row and a column of one each")
    border = _canonical(border)
    if column is not None and _outside(border) != 0.0:
        # Such a border is not the product of two borders.
        row, column = column[:, None] * row, None
    rows, columns = _size(row, column)
    x, y = (columns // 2, rows // 2) if anchor is None else anchor
    call = _run if _torch.is_plain(image, row, column) else _correlate
    return call(image, row, column, [x, y], border)


def gaussian_blur(img, kernel_size, sigma=None):
    """Blur images as ``torchvision.transforms.functional.gaussian_blur`` does.

    Parameters
    ----------
    img : Tensor
        Of shape (..., channels, height, width).
    kernel_size : int or sequence of int
        The window's columns and rows, which are odd; one number is for both.
    sigma : float, sequence of float or Tensor, optional
        Standard deviations in x and y, in pixels; one number is for both. A tensor may require a
        gradient. By default ``0.3 * ((kernel_size - 1) * 0.5 - 1) + 0.8``.

    Returns
    -------
    Tensor
        Of the image's shape and type.

    Raises
    ------
    ValueError
        For a window or a sigma that is not positive, an even window, and more than two of each.

    Notes
    -----
    Pixels outside the image are mirrored about the edge pixel, as often as the window needs;
    torchvision refuses windows that reach further than the image. Taps are computed in float64.
    uint8 results are exact sums rounded half to even. torchvision rounds float32 sums half to even,
    so results differ by 1 where such a sum falls on the other side of a half.
    """
    columns, rows = _pair(kernel_size, "kernel_size")
    for size in (columns, rows):
        if not isinstance(size, int) or size < 1 or size % 2 == 0:
            raise ValueError(f"kernel_size is {kernel_size}: odd numbers of at least 1 are needed")
    if sigma is None:
        sigma = [0.3 * ((size - 1) * 0.5 - 1) + 0.8 for size in (columns, rows)]
    if isinstance(sigma, torch.Tensor):
        sigma = sigma.to("cpu", torch.float64).reshape(-1)
        if sigma.numel() not in (1, 2):
            raise ValueError(f"sigma has {sigma.numel()} elements: 1 or 2 are needed")
        x, y = sigma[0], sigma[-1]
        same = sigma.numel() == 1
    else:
        x, y = _pair(sigma, "sigma")
        if not (x > 0 and y > 0):
            raise ValueError(f"sigma is {sigma}: positive numbers are needed")
        same = x == y
    row = _gaussian(columns, x)
    return correlate(img, (row, row if same and columns == rows else _gaussian(rows, y)))


class GaussianBlur(torch.nn.Module):
    """Blur images with a random sigma, as ``torchvision.transforms.GaussianBlur`` does.

    Parameters
    ----------
    kernel_size : int or sequence of int
        As for :func:`gaussian_blur`.
    sigma : float or pair of float, default (0.1, 2.0)
        The standard deviation in pixels, or the limits between which each call draws one. The
        numbers come from PyTorch's generator, as torchvision's do.
    per_sample : bool, default False
        Whether each image of a batch gets a sigma of its own. The batch is the first axis of
        tensors of more than three dimensions.

    Raises
    ------
    ValueError
        As for :func:`gaussian_blur`, and if the limits are not in order.
    """

    def __init__(self, kernel_size, sigma=(0.1, 2.0), *, per_sample=False):
        super().__init__()
        self.kernel_size = _pair(kernel_size, "kernel_size")
        self.sigma = _pair(sigma, "sigma")
        self.per_sample = per_sample
        for size in self.kernel_size:
            if not isinstance(size, int) or size < 1 or size % 2 == 0:
                raise ValueError(f"kernel_size is {kernel_size}: odd numbers of at least 1 are needed")
        if not 0 < self.sigma[0] <= self.sigma[1]:
            raise ValueError(f"sigma is {sigma}: one positive number, or two in ascending order, are needed")

    def forward(self, img):
        if not self.per_sample or img.dim() < 4:
            return self._blurred(img)
        if img.shape[0] == 0:
            return torch.empty_like(img)
        columns, rows = self.kernel_size
        sigma = torch.empty(img.shape[0], 1).uniform_(*self.sigma).double()
        row, column = _gaussian(columns, sigma), _gaussian(rows, sigma)
        if img.dim() > 4 or not _torch.is_plain(img):
            return torch.stack([correlate(*each) for each in zip(img, zip(row, column))])
        row, column = row.numpy(), column.numpy()
        filters = tuple(_apron.Filter.separable(*each) for each in zip(row, column))
        device = _device(img)
        return _by_planes(img, lambda planes, layout: batch(planes, filters, layout=layout, device=device))

    def _blurred(self, img):
        return gaussian_blur(img, self.kernel_size, torch.empty(1).uniform_(*self.sigma))

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, sigma={self.sigma}, per_sample={self.per_sample}"


def _pair(value, name):
    """One or two numbers as two, in x and in y."""
    if not isinstance(value, (tuple, list)):
        return (value, value)
    if len(value) not in (1, 2):
        raise ValueError(f"{name} is {value}: one or two numbers are needed")
    return (value[0], value[-1])


def _gaussian(size, sigma):
    """Taps in float64 that sum to 1: a row, or one for each row of ``sigma``."""
    half = (size - 1) / 2
    taps = torch.exp(-0.5 * (torch.linspace(-half, half, size, dtype=torch.float64) / sigma) ** 2)
    return taps / taps.sum(-1, keepdim=True)


# The operators. For an image x, taps t and a gradient g, each is one derivative of
# F(x, t, g) = sum(g * correlate(x, t)): `correlate` with respect to g, `correlate_adjoint` with
# respect to x, and `_of_taps` with respect to t. F is linear in each, so the derivatives of these
# functions are these functions.


@torch.library.custom_op("apron::correlate", mutates_args=(), **_torch.TAGS)
def _correlate(
    image: torch.Tensor, taps: torch.Tensor, column: torch.Tensor | None, anchor: list[int], border: str
) -> torch.Tensor:
    return _run(image, taps, column, anchor, border)


def _run(image, taps, column, anchor, border):
    """Filters now. PyTorch's dispatcher takes about as long as a small image."""
    plan = _plan_for(image, taps, column, anchor, border)
    return _by_planes(image, lambda planes, layout: _torch.run(plan, planes, None, -1, None, layout))


@torch.library.custom_op("apron::correlate_adjoint", mutates_args=(), **_torch.TAGS)
def _correlate_adjoint(
    grad: torch.Tensor, taps: torch.Tensor, column: torch.Tensor | None, anchor: list[int], border: str
) -> torch.Tensor:
    if grad.is_cuda:
        return _by_planes(grad, lambda planes, layout: _folded(planes, layout, taps, column, anchor, border))
    plan = _plan_for(grad, taps, column, anchor, border)
    wide = grad.dtype if grad.dtype == torch.float64 else torch.float32
    planes = grad.to(wide).reshape(-1, *grad.shape[-2:]).contiguous()
    result = torch.empty_like(planes)
    if grad.numel():
        plan._adjoint(planes.numpy(), result.numpy())
    return _as_like(result.reshape(grad.shape), grad)


def _folded(grad, layout, taps, column, anchor, border):
    """The adjoint by a plan of the rotated taps, for tensors on a GPU, where no plan has one."""
    (rows, columns), (x, y) = _size(taps, column), anchor
    rotated = taps.flip(0) if column is not None else taps.flip(0, 1)
    other = None if column is None else column.flip(0)
    anchor = [columns - 1 - x, rows - 1 - y]
    name = border.partition(":")[0]
    if name in ("constant", "wrap"):
        plan = _plan_for(grad, rotated, other, anchor, "wrap" if name == "wrap" else "constant:0")
        return _torch.run(plan, grad, None, -1, None, layout)
    plan = _plan_for(grad, rotated, other, anchor, "constant:0")
    sums = torch.nn.functional.pad(grad, (x, columns - 1 - x, y, rows - 1 - y))
    sums = _torch.run(plan, sums, None, -1, None, layout)
    # What lies outside the image is added to the pixels that the border finds there.
    for axis, size, before in ((-2, rows, y), (-1, columns, x)):
        extent = grad.shape[axis]
        places = _places(border, extent, size, before, grad.device)
        inside = sums.narrow(axis, before, extent)
        for start, count in ((0, before), (before + extent, size - 1 - before)):
            if count:
                outside = sums.narrow(axis, start, count)
                inside.index_add_(axis % grad.dim(), places.narrow(0, start, count), outside)
        sums = inside
    return sums


def _of_taps(image, grad, size, anchor, border):
    """The gradient of taps, of shape ``size``."""
    wide = image.dtype if image.dtype == torch.float64 else torch.float32
    image, grad = image.to(wide), grad.to(wide)
    (rows, columns), (x, y) = size, anchor
    if border.startswith("constant"):
        around = (x, columns - 1 - x, y, rows - 1 - y)
        image = torch.nn.functional.pad(image, around, value=_outside(border))
    else:
        for axis, extent, before in ((-2, rows, y), (-1, columns, x)):
            places = _places(border, image.shape[axis], extent, before, image.device)
            image = image.index_select(axis, places)
    image = image.reshape(-1, 1, *image.shape[-2:])
    grad = grad.reshape(-1, 1, *grad.shape[-2:])
    return torch.nn.grad.conv2d_weight(image, (1, 1, rows, columns), grad).reshape(rows, columns)


def _gradients_of_taps(ctx, image, grad, taps, column):
    """Gradients of the taps, or of the row and the column, where they are needed."""
    (_, of_taps, of_column, *_), (x, y) = ctx.needs_input_grad, ctx.anchor
    results = [None, None]
    if column is None:
        if of_taps:
            results[0] = _of_taps(image, grad, taps.shape, ctx.anchor, ctx.border).to(taps)
        return results
    if of_taps:
        lines = _correlate(image, column[:, None], None, [0, y], ctx.border)
        results[0] = _of_taps(lines, grad, (1, len(taps)), [x, 0], ctx.border).reshape(-1).to(taps)
    if of_column:
        lines = _correlate(image, taps[None], None, [x, 0], ctx.border)
        results[1] = _of_taps(lines, grad, (len(column), 1), [0, y], ctx.border).reshape(-1).to(column)
    return results


def _keep(ctx, inputs, output):
    image, taps, column, ctx.anchor, ctx.border = inputs
    needs_image = ctx.needs_input_grad[1] or ctx.needs_input_grad[2]
    ctx.save_for_backward(image if needs_image else None, taps, column)


def _of_correlate(ctx, grad):
    image, taps, column = ctx.saved_tensors
    of_image = _correlate_adjoint(grad, taps, column, ctx.anchor, ctx.border) if ctx.needs_input_grad[0] else None
    return of_image, *_gradients_of_taps(ctx, image, grad, taps, column), None, None


def _of_adjoint(ctx, other):
    grad, taps, column = ctx.saved_tensors
    # What a constant border adds has no part in the adjoint.
    ctx.border = "constant:0" if ctx.border.startswith("constant") else ctx.border
    of_grad = _correlate(other, taps, column, ctx.anchor, ctx.border) if ctx.needs_input_grad[0] else None
    return of_grad, *_gradients_of_taps(ctx, other, grad, taps, column), None, None


_correlate.register_autograd(_of_correlate, setup_context=_keep)
_correlate_adjoint.register_autograd(_of_adjoint, setup_context=_keep)


def _complete(operator):
    """Registers an operator's result without values, and its rule for a batch."""

    @operator.register_fake
    def fake(image, taps, column, anchor, border):
        return _empty_like(image)

    @operator.register_vmap
    def many(info, in_dims, image, taps, column, anchor, border):
        if in_dims[1] is None and in_dims[2] is None:
            return operator(image.movedim(in_dims[0], 0), taps, column, anchor, border), 0
        one = [lambda at, axis=axis, value=value: value if axis is None else value.select(axis, at)
               for axis, value in zip(in_dims[:3], (image, taps, column))]  # fmt: skip
        results = [operator(*(of(at) for of in one), anchor, border) for at in range(info.batch_size)]
        return torch.stack(results), 0


_complete(_correlate)
_complete(_correlate_adjoint)


def _empty_like(image):
    """A new tensor for results, whose memory a compiled program knows in advance."""
    return torch.empty_like(image, memory_format=torch.contiguous_format if image.dim() > 4 else torch.preserve_format)


def _as_like(result, image):
    """A new result as :func:`_empty_like` has it."""
    like = _empty_like(image)
    is_like = result.dtype == like.dtype and result.stride() == like.stride()
    return result if is_like else like.copy_(result)


def _by_planes(image, run):
    """Filters the planes of a tensor of any number of dimensions by ``run(planes, layout)``."""
    if image.numel() == 0:
        return _empty_like(image)
    planes = image.float() if image.dtype == torch.bfloat16 else image
    if image.dim() > 4:
        # As if the first axes were one.
        planes = planes.flatten(0, -4)
    return _as_like(run(planes, {2: None, 3: "nhw", 4: "nchw"}[planes.dim()]).reshape(image.shape), image)


def _size(taps, column):
    """Rows and columns of the window."""
    return tuple(taps.shape) if column is None else (len(column), len(taps))


@torch.compiler.assume_constant_result
def _canonical(border):
    """The border's name, of several that are accepted."""
    name = _border(border)
    if name in ("keep", "none"):
        raise ValueError(f"border is {name}, which has no gradients here: use an apron.Plan, or another border")
    return name


@functools.lru_cache(maxsize=64)
def _border(border):
    return _apron.Plan("identity", border, "cpu").border


def _outside(border):
    """The value outside the image; 0 unless the border is constant."""
    return float(border.partition(":")[2] or 0)


def _places(border, extent, size, before, device):
    """The pixels of an axis that a border finds for all pixels that its windows reach."""
    index = torch.arange(-before, extent + size - 1 - before, device=device)
    if border == "replicate":
        return index.clamp(0, extent - 1)
    if border == "wrap":
        return index % extent
    # Under "reflect", pixel `last - index` mirrors pixel `index`.
    period = 2 * extent if border == "reflect" else max(2 * extent - 2, 1)
    last = period - 1 if border == "reflect" else period
    index = index % period
    return torch.minimum(index, last - index)


def _plan_for(image, taps, column, anchor, border):
    """The plan for a tensor's device."""
    x, y = anchor
    column_numbers = None if column is None else _numbers(column)
    return _plan(_numbers(taps), column_numbers, *_size(taps, column), x, y, border, _device(image))


def _device(image):
    """The name of a tensor's device."""
    return f"gpu:{image.get_device()}" if image.is_cuda else "cpu"


def _numbers(taps):
    return taps.detach().to("cpu", torch.float64).contiguous().numpy().tobytes()


@functools.lru_cache(maxsize=64)
def _plan(taps, column, rows, columns, x, y, border, device):
    """The plan for taps in float64. The plans used last are kept."""
    taps = np.frombuffer(taps)
    if column is None:
        filter = _apron.Filter.from_taps(taps.reshape(rows, columns), (x, y))
    else:
        filter = _apron.Filter.separable(taps, np.frombuffer(column), (x, y))
    return _apron.Plan(filter, border, device)
