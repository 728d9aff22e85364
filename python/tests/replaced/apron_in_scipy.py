"""A pytest plugin that runs SciPy's tests with apron's functions instead of SciPy's.

pytest -p apron_in_scipy --pyargs scipy.ndimage.tests.test_filters
"""

import functools

import pytest
import scipy.ndimage
from scipy._lib._array_api import xp_capabilities_table

import apron.ndimage

CALLS = dict.fromkeys(apron.ndimage.__all__, 0)


def counted(name):
    """apron's function, wrapped to count its calls."""
    function = getattr(apron.ndimage, name)

    @functools.wraps(function)
    def call(*args, **kwargs):
        CALLS[name] += 1
        return function(*args, **kwargs)

    return call


for name in CALLS:
    scipys, ours = getattr(scipy.ndimage, name), counted(name)
    # SciPy's tests look up by function which array libraries it supports.
    xp_capabilities_table[ours] = xp_capabilities_table[scipys]
    setattr(scipy.ndimage, name, ours)


def pytest_sessionfinish(session):
    never = [name for name, count in CALLS.items() if count == 0]
    print(f"\napron.ndimage: {sum(CALLS.values())} calls from SciPy's tests")
    if never and not session.config.option.keyword:
        print(f"never called: {', '.join(never)}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
