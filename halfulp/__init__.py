"""Low-precision arithmetic units in RTL, bit-exact against a golden model in PyTorch."""

import pkgutil
from typing import TYPE_CHECKING, Any

from .unit import unit

__all__ = ["__version__", "golden", "parse", "unit"]

__version__ = "0.9.0"

if TYPE_CHECKING:
    from . import golden
    from .hdl.formats import parse

_LAZY = {"golden": "halfulp.golden:", "parse": "halfulp.hdl.formats:parse"}
"""Names that are imported at their first use, as ``module:attribute``, because torch takes a second to load."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    globals()[name] = value = pkgutil.resolve_name(_LAZY[name])
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
