"""Operations of the units whose formula is a rounded sum of products, such as ``mul``: made when they are imported."""

from typing import Any

from halfulp.hdl.specs import UNITS

from .operation import rounded_sum


def __getattr__(name: str) -> Any:
    if name not in UNITS or not UNITS[name].TERMS:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    function = globals()[name] = rounded_sum(UNITS[name])
    function.__module__ = __name__
    return function
