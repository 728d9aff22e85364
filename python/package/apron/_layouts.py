"""Layouts: names for the axes of a batch of images."""

#: For each layout, the places of images, rows, columns and channels among the array's axes. Without
#: channels, an axis is added.
_PLACES = {"nhwc": (0, 1, 2, 3), "nchw": (0, 2, 3, 1), "nhw": (0, 1, 2, None)}


def checked(layout, dims, axis):
    """Refuse a layout that does not describe an array of this many dimensions.

    Raises
    ------
    TypeError
        If `axis` is given too.
    ValueError
        For an unknown layout, and for another number of dimensions.
    """
    if layout not in _PLACES:
        raise ValueError(f'layout is {layout!r}: "nhwc", "nchw" or "nhw" is needed')
    if axis != -1:
        raise TypeError("pass axis or layout: a layout names the axis of the channels")
    if dims != len(layout):
        raise ValueError(f'the image has {dims} dimensions, and layout "{layout}" has {len(layout)}')


def described(shape, strides, layout):
    """Shape and strides of images, rows, columns and channels."""
    places = _PLACES[layout]
    if layout == "nhw":
        return (*shape, 1), (*strides, strides[-1])
    return tuple(shape[place] for place in places), tuple(strides[place] for place in places)


def pixels(array, layout):
    """A NumPy array as images, rows, columns and channels, without a copy."""
    return array[..., None] if layout == "nhw" else array.transpose(_PLACES[layout])


def restored(array, layout):
    """The inverse of :func:`pixels`."""
    return array[..., 0] if layout == "nhw" else array.transpose([_PLACES[layout].index(axis) for axis in range(4)])
