"""Array arguments as NumPy arrays, or an error if an array's numbers alone would mislead."""

import sys

import numpy as np

#: DLPack's numbers of devices: CUDA's memory, and its managed memory.
CUDA = (2, 13)

#: Pillow's modes whose numbers are amounts, so that their means are the means of what they show.
_AMOUNTS = frozenset(
    ["L", "LA", "La", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "I", "F", "I;16", "I;16L", "I;16B", "I;16N"]
)

#: What the numbers of Pillow's other modes are, and the mode to convert to.
_OTHERS = {
    "1": ("are bits", "L"),
    "P": ("index a palette", "RGB"),
    "PA": ("index a palette", "RGBA"),
    "HSV": ("include the hue, an angle", "RGB"),
    "LAB": ("include signed bytes, read as unsigned", "RGB"),
}


def check(array, name):
    """Refuse an array whose meaning is not in its numbers alone.

    Raises
    ------
    TypeError
        For a masked array, an image of a mode such as Pillow's P, or an array in a GPU's memory.
    RuntimeError
        For a tensor that requires a gradient.
    """
    # First, because calls on small tensors take as long as these questions.
    if is_of(array, "torch", "Tensor"):
        return check_gradient(array, name)
    if isinstance(array, (list, tuple)):
        for element in array:
            if not isinstance(element, (int, float)):
                check(element, name)
        return
    if isinstance(array, np.ma.MaskedArray) or isinstance(getattr(array, "_meta", None), np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, and masks are not filtered: pass {name}.filled(0), or {name}.data")
    if is_of(array, "PIL.Image", "Image") and array.mode not in _AMOUNTS:
        numbers, mode = _OTHERS.get(array.mode, ("are of an unknown kind", "RGB"))
        if array.mode == "P" and "transparency" in array.info:
            mode = "RGBA"
        raise TypeError(f'{name} is of mode {array.mode}, whose numbers {numbers}: pass {name}.convert("{mode}")')


def check_gradient(tensor, name):
    """Refuse a tensor whose operations PyTorch records for gradients.

    A plan's result would have no gradient, and training would silently go wrong.
    """
    import torch

    if tensor.requires_grad and torch.is_grad_enabled() or has_tangent(tensor):
        message = f"{name} requires a gradient, which this call does not compute"
        remedy = f"filter with apron.torch.correlate, pass {name}.detach(), or call under torch.no_grad()"
        raise RuntimeError(f"{message}: {remedy}")


def has_tangent(tensor):
    """Whether a tensor has a derivative in forward mode, which compiled programs do not have."""
    import torch

    if torch.compiler.is_compiling():
        return False
    return torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None


def is_of(array, module, name):
    """Whether the object is of a class whose library may not have been imported."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(array, kind)


def is_on_device(array):
    """Whether the array is in a GPU's memory."""
    # PyTorch and CuPy build the interface anew at each access, which takes longer than the rest of
    # a call.
    name = type(array).__module__.partition(".")[0]
    if is_of(array, "torch", "Tensor"):
        return array.is_cuda
    if name == "cupy" or hasattr(array, "__cuda_array_interface__"):
        return True
    return hasattr(array, "__dlpack_device__") and array.__dlpack_device__()[0] in CUDA


def as_array(array, name):
    """The argument as a NumPy array, without a copy if its library allows that.

    Errors name the argument `name`.

    Raises
    ------
    TypeError, RuntimeError
        As for :func:`check`, and for an array in a GPU's memory.
    """
    if type(array) is np.ndarray:
        return array
    check(array, name)
    if isinstance(array, np.ndarray):
        return np.asarray(array)
    if is_on_device(array):
        raise TypeError(f"{name} is in GPU memory, and an array in host memory is needed: copy it to the host first")
    if is_of(array, "torch", "Tensor"):
        # DLPack before version 1.0 would give a read-only array.
        return array.detach().resolve_conj().resolve_neg().numpy()
    if hasattr(array, "__dlpack__"):
        return np.from_dlpack(array)
    return np.asarray(array)


def as_taps(array, name, dims=None):
    """Taps as float64 in C's order, with `dims` dimensions if that is given.

    Raises
    ------
    TypeError
        For complex numbers, and for other dimensions.
    """
    taps = as_array(array, name)
    if taps.dtype.kind == "c":
        raise TypeError(f"{name} is of type {taps.dtype}, and taps are real numbers: filter with {name}.real and {name}.imag")
    if dims is not None and taps.ndim != dims:
        needed = "2 are needed (rows, columns)" if dims == 2 else "1 is needed"
        raise TypeError(f"{name} has {taps.ndim} dimensions: {needed}")
    return np.ascontiguousarray(taps, np.float64)
