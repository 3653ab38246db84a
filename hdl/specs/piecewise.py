"""Description of a piecewise-linear function."""

import re
from dataclasses import dataclass
from typing import Any

from halfulp.hdl.formats.base import Format
from halfulp.hdl.formats.catalogue import parse

from .ranges import ValueRange
from .unit import UnitSpec

PIECES = 8
"""Default pieces of a fit."""

_TABLE = re.compile(r"\w+-[0-9a-f]{8}")


@dataclass(frozen=True)
class PwlSpec(UnitSpec, form="pwl function(a)[>o]", summary="a function as line segments"):
    """A function of one number as line segments: fitted within a budget, or a saved table.

    Parameters
    ----------
    function : str
        Name of a function, such as ``tanh`` or ``leaky_relu:0.2``; or of a saved table of segments, such as
        ``gelu6-1f0c33a9``, which ends with the digest of its content.
    a, o : Format
        Formats of argument and value; default of ``o``: that of ``a``.
    pieces, error, breakpoints, slopes, terms : optional
        Budget of the fit, as `halfulp.hdl.fit.fit.fit` takes it; default: 8 pieces. A saved table has none.

    Raises
    ------
    TypeError, ValueError
        As `UnitSpec` does, or if a table has a budget.
    """

    function: str
    a: Format
    o: Format = None  # type: ignore[assignment]  # None asks for the default; after construction it is a format
    pieces: int | None = None
    error: float | None = None
    breakpoints: str | None = None
    slopes: str | None = None
    terms: int | None = None

    def check(self) -> None:
        """Raise TypeError or ValueError if function or budget cannot be."""
        if not isinstance(self.function, str):
            raise TypeError(f"the function of a unit is named by a text, not {type(self.function).__name__}")
        if is_table_name(self.function):
            for name in self.budget:
                raise ValueError(
                    f"{name} does nothing to the saved table {self.function}; it is part of a fit's budget"
                )
        elif self.pieces is None and self.error is None:
            object.__setattr__(self, "pieces", PIECES)

    @classmethod
    def read_part(cls, part: str, text: str) -> Any:
        """Value of a part of the formula."""
        return text if part == "function" else parse(text)

    @classmethod
    def defaults(cls, a: Format) -> dict[str, Any]:
        return {"function": "tanh"}

    @property
    def budget(self) -> dict[str, Any]:
        """Fields of the budget of the fit that are given."""
        names = ("pieces", "error", "breakpoints", "slopes", "terms")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def results(self) -> tuple[ValueRange, str] | None:
        """None: exact values are known when the table is, which refuses the rounding ``exact`` then."""
        return None


def is_table_name(name: str) -> bool:
    """True for the name of a saved table of segments, which ends with the digest of its content."""
    return _TABLE.fullmatch(name) is not None
