"""A pytest plugin that runs SciPy's tests with apron's functions instead of SciPy's.

pytest -p apron_in_scipy --pyargs scipy.ndimage.tests.test_filters

With ``APRON_IN_SCIPY=gpu``, arrays are copied to a GPU (or to the driver in software that
``APRON_DRIVER`` names), filtered there, and copied back.
"""

import functools
import inspect
import os

import numpy as np
import pytest
import scipy.ndimage
from scipy._lib._array_api import xp_capabilities_table

import apron.ndimage

ON_GPU = os.environ.get("APRON_IN_SCIPY") == "gpu"

#: The calls of each function; with a GPU, those that it computed.
CALLS = dict.fromkeys(apron.ndimage.__all__, 0)

#: Types of elements on a GPU.
TYPES = [np.dtype(kind) for kind in ("?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8")]


def takes(array):
    return isinstance(array, np.ndarray) and array.dtype in TYPES and array.ndim > 0 and array.size > 0


def on_gpu(function):
    """The function for NumPy's arrays, computed on a GPU where that takes the call, and counted."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args, **kwargs):
        try:
            given = signature.bind(*args, **kwargs).arguments
            input, output = given["input"], given.get("output")
            kinds = [input.dtype, output.dtype if isinstance(output, np.ndarray) else np.dtype(output or input.dtype)]
        except (TypeError, AttributeError):
            return function(*args, **kwargs)
        # Sums of bools are NumPy's on the host.
        adds = "laplace" in function.__name__ or "magnitude" in function.__name__
        has_output = not isinstance(output, np.ndarray) or takes(output)
        is_real = np.asarray(given.get("weights", 0)).dtype.kind != "c"
        if not (takes(input) and has_output and is_real and kinds[1] in TYPES) or adds and np.dtype(bool) in kinds:
            return function(*args, **kwargs)
        given["input"] = apron.to_device(input)
        if isinstance(output, np.ndarray):
            given["output"] = apron.to_device(output)
        bound = inspect.BoundArguments(signature, given)
        result = function(*bound.args, **bound.kwargs).numpy()
        CALLS[function.__name__] += 1
        if not isinstance(output, np.ndarray):
            return result
        output[...] = result
        return output

    return call


def counted(function):
    """The function, wrapped to count its calls."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        CALLS[function.__name__] += 1
        return function(*args, **kwargs)

    return call


for name in CALLS:
    scipys, ours = getattr(scipy.ndimage, name), (on_gpu if ON_GPU else counted)(getattr(apron.ndimage, name))
    # SciPy's tests look up by function which array libraries it supports.
    xp_capabilities_table[ours] = xp_capabilities_table[scipys]
    setattr(scipy.ndimage, name, ours)


def pytest_sessionfinish(session):
    never = [name for name, count in CALLS.items() if count == 0]
    print(f"\napron.ndimage: {sum(CALLS.values())} calls from SciPy's tests{' on a GPU' if ON_GPU else ''}")
    if never and not session.config.option.keyword:
        print(f"never called: {', '.join(never)}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
