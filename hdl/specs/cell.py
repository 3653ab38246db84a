"""Descriptions of the multiply-accumulates of arrays."""

from typing import Any

from .mac import MacSpec
from .unit import UnitSpec


def parse_cell(text: str | UnitSpec) -> Any:
    """Parse the description of the multiply-accumulates of an array; a description is returned unchanged.

    Raises
    ------
    TypeError, ValueError
        If the text is invalid, arrays do not take the unit, several sums are in turn, or a product takes several steps.
    """
    spec: Any = UnitSpec.parse(text)
    if not spec.entries:
        raise ValueError(f"an array takes multiply-accumulates: mac, blockmac or sparsemac, not {spec.text}")
    spec.check_one_sum()
    if isinstance(spec, MacSpec):
        spec.check_one_step()
    return spec
