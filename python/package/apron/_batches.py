"""Calls of a plan with batches: arrays of many images, whose axes a layout names."""

import sys

from . import _arrays, _layouts
from ._inputs import as_array, check, is_on_device


def call(plan, image, out, axis, dtype, layout):
    """``plan(image, out, axis=axis, layout=layout, dtype=dtype)`` for arrays other than tensors."""
    check(image, "image")
    check(out, "out")
    if type(image).__module__.startswith("dask."):
        raise TypeError("the image is a Dask array: layout is for arrays in memory; map the plan over the blocks")
    library = sys.modules.get(type(image).__module__.partition(".")[0])
    if is_on_device(image):
        return _arrays.on_device(plan, image, out, axis, dtype, library, layout)
    array = as_array(image, "image")
    _layouts.checked(layout, array.ndim, axis)
    source = _layouts.pixels(array, layout)
    target = None
    if out is not None:
        target = as_array(out, "out")
        if target.shape != array.shape:
            raise ValueError(f"the image's shape is {array.shape} and the output's {target.shape}: they must be the same")
        target = _layouts.pixels(target, layout)
    result = plan._batch(source, target, dtype)
    if result is None:
        result = _arrays.converted(plan._batch, source, target, dtype)
    if out is not None:
        return out
    return _arrays.in_library(_layouts.restored(result, layout), image)
