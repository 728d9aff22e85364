"""The class ``Plan`` for users: the extension module's class, with calls for PyTorch's tensors."""

import inspect

import numpy as np

from . import _apron, _texts


class Plan(_apron.Plan):
    __doc__ = _apron.Plan.__doc__
    __module__ = "apron"

    def __init__(self, *args, **kwargs):
        # PyTorch's compiler takes an attribute as a constant, but no result of the extension module.
        self._text = _texts.text_of(self)

    def __call__(self, image, out=None, *, axis=-1, layout=None, dtype=None, mask=None, weights=None):
        # This is Python, so that PyTorch's compiler can trace a call.
        if mask is not None or weights is not None or isinstance(image, np.ma.MaskedArray):
            from . import _masks

            if layout is not None:
                raise TypeError("layout is for batches without masks: filter masked images one by one")
            return _masks.call(self, image, out, axis, dtype, mask, weights)
        # Only PyTorch's tensors have both. (Its compiler may fail where code looks into `sys.modules`.)
        if hasattr(type(image), "requires_grad") and hasattr(type(image), "is_cuda"):
            from . import _torch

            return _torch.call(self, image, out, axis, dtype, layout)
        if layout is not None:
            from . import _batches

            return _batches.call(self, image, out, axis, dtype, layout)
        return super().__call__(image, out, axis=axis, dtype=dtype)

    __call__.__doc__ = _apron.Plan.__call__.__doc__


Plan.__signature__ = inspect.signature(_apron.Plan)
