"""Operations of the descriptions in `halfulp.hdl.specs.arithmetic`, made from their formulas when they are imported."""

from typing import Any

from halfulp.hdl.specs import UNITS, arithmetic

from .operation import rounded_sum


def __getattr__(name: str) -> Any:
    if name not in UNITS or UNITS[name].__module__ != arithmetic.__name__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    function = globals()[name] = rounded_sum(UNITS[name])
    function.__module__ = __name__
    return function
