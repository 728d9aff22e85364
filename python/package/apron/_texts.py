"""Texts that fully describe plans, by which PyTorch's programs name them."""

import functools
import json
import weakref

from . import _apron

#: Plans that are alive, by their text.
_alive = weakref.WeakValueDictionary()


def text_of(plan):
    """The text that fully describes a plan, for :func:`plan_of`."""
    again, (filter, *others) = plan.__reduce__()
    text = json.dumps([[str(filter), *others], again.keywords])
    _alive[text] = plan
    return text


def plan_of(text):
    """A plan that a text describes."""
    return _alive.get(text) or _rebuilt(text)


@functools.lru_cache(maxsize=16)
def _rebuilt(text):
    arguments, options = json.loads(text)
    return _apron.Plan(*arguments, **options)
