from collections.abc import Sequence
from typing import Any

from ._apron import Filter, _Accuracy, _Alpha, _Border, _Device, _Layout, _Nan

def batch(
    images: Any,
    filters: Sequence[Filter | str] | None = None,
    out: Any = None,
    *,
    sigma: Any = None,
    layout: _Layout | None = None,
    dtype: Any = None,
    border: _Border = "reflect101",
    device: _Device | None = None,
    accuracy: _Accuracy | None = None,
    memory: int | None = None,
    autotune: bool = False,
    alpha: _Alpha | None = None,
    nan: _Nan = "spread",
    unknown: float = ...,
    linear: bool | str | None = None,
) -> Any: ...
