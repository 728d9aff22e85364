"""Image convolution on NVIDIA GPUs and on the CPU, with the same result.

>>> import numpy as np, apron
>>> plan = apron.Plan(apron.Filter.gaussian(2.0))
>>> plan(np.full((480, 640, 3), 7, np.uint8)).max()
np.uint8(7)

:class:`Filter` is a window of taps. :class:`Plan` is a filter on a device, with a rule for pixels
outside the image. :func:`batch` filters each image of a batch with a filter of its own. The module
:mod:`apron.ndimage` has SciPy's filters, :mod:`apron.cv` has OpenCV's, :mod:`apron.dask` filters
arrays that do not fit in memory, and :mod:`apron.torch` filters PyTorch's tensors with gradients.
"""

import os as _os

from . import _apron, cv, ndimage
from ._apron import DeviceArray, Filter
from ._arrays import from_dlpack, to_device
from ._each import batch
from ._plan import Plan

__all__ = ["DeviceArray", "Filter", "Plan", "batch", "cv", "from_dlpack", "ndimage", "to_device"]
__version__ = _apron.__version__

if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(after_in_child=_apron.after_fork)
