"""Arguments with a value for each axis, and sums of results along axes.

:mod:`apron.ndimage` and :mod:`apron.dask` share these.
"""

import operator

import numpy as np


def axis_from_0(axis, dims):
    """The axis, counted from 0."""
    axis = operator.index(axis)
    if not -dims <= axis < dims:
        raise np.exceptions.AxisError(axis, dims)
    return axis % dims


def axes_from_0(axes, dims):
    """The axes to filter along, counted from 0."""
    if axes is None:
        return tuple(range(dims))
    if np.isscalar(axes):
        axes = (axes,)
    elif not np.iterable(axes):
        raise ValueError("axes must be an integer, iterable of integers, or None")
    axes = tuple(operator.index(axis) for axis in axes)
    for axis in axes:
        if not -dims <= axis < dims:
            raise ValueError(f"specified axis: {axis} is out of range")
    axes = tuple(axis % dims for axis in axes)
    if len(set(axes)) != len(axes):
        raise ValueError("axes must be unique")
    return axes


def per_axis(value, count):
    """A list of `count` values: the given sequence, or the given scalar repeated."""
    if isinstance(value, str) or not np.iterable(value):
        return [value] * count
    values = list(value)
    if len(values) != count:
        raise RuntimeError("sequence argument must have length equal to input rank")
    return values


def in_turns(input, output, passes, new):
    """Runs each of ``passes(source, target)`` on the result of the one before.

    Results between them lie in `output` and an array that `new` makes, in turns.
    """
    spare = new() if len(passes) > 1 else None
    for left, run in zip(reversed(range(len(passes))), passes):
        target = output if left % 2 == 0 else spare
        run(input, target)
        input = target


def added(first, others, squared):
    """Adds up parts in the array of the first. For squares, takes the root of the sum.

    Overwrites the parts.
    """
    if squared:
        np.multiply(first, first, first)
    for part in others:
        if squared:
            np.multiply(part, part, part)
        first += part
    if squared:
        np.sqrt(first, first, casting="unsafe")
    return first
