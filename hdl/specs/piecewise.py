"""Description of a piecewise-linear function."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from halfulp.hdl.formats.base import Format
from halfulp.hdl.formats.catalogue import parse
from halfulp.hdl.formats.checks import check_int, check_one_of, read_number

from .pieces import MAX_TERMS
from .ranges import ValueRange
from .unit import UnitSpec

PIECES, MOST_PIECES = 8, 1024
"""Default and largest number of pieces of a fit."""

PARAMETRIC = ("elu", "leaky_relu")
"""Functions with a parameter, which follows a colon: ``elu:0.5``."""

FUNCTIONS = (
    *("tanh", "sigmoid", "erf", "exp", "gelu", "silu", "softplus", "elu", "relu", "leaky_relu"),
    *("hard_sigmoid", "hard_swish", "reciprocal", "rsqrt", "log2"),
)
"""Names of functions; `halfulp.hdl.fit.functions` has their values."""

BREAKPOINTS = ("free", "uniform", "power")
"""Starts of pieces: at any argument; at equal distances; where leading bits of the argument change."""

SLOPES = ("any", "pow2")
"""Slopes of pieces: of a format, or sums of signed powers of two."""

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
        As `UnitSpec` does, or if there is no such function, or a field of the budget is wrong, or a table has a budget.
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
        if not isinstance(self.function, str):
            raise TypeError(f"function of a unit is a str, not {type(self.function).__name__}")
        if is_table_name(self.function):
            for name in self.budget:
                raise ValueError(
                    f"{name} does nothing to the saved table {self.function}; it is part of a fit's budget"
                )
            return
        read_function(self.function)
        if self.pieces is None and self.error is None:
            object.__setattr__(self, "pieces", PIECES)
        check_budget(**self.budget)

    @classmethod
    def read_part(cls, part: str, text: str) -> Any:
        return text if part == "function" else parse(text)

    @classmethod
    def defaults(cls, a: Format) -> dict[str, Callable[[], Any]]:
        return {"function": lambda: "tanh"}

    @property
    def budget(self) -> dict[str, Any]:
        """Fields of the budget of the fit that are given."""
        names = ("pieces", "error", "breakpoints", "slopes", "terms")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def results(self) -> tuple[ValueRange, str] | None:
        """None: exact values are known when the table is, which refuses the rounding ``exact`` then."""
        return None


def read_function(text: str) -> tuple[str, Fraction | None]:
    """Name and parameter of a function such as ``leaky_relu:0.2``.

    Raises
    ------
    ValueError
        If there is no such function, or it has no such parameter.
    """
    name, colon, parameter = text.partition(":")
    check_one_of("function", name, FUNCTIONS)
    if not colon:
        return name, None
    if name not in PARAMETRIC:
        raise ValueError(f"{text} is refused: {name} has no parameter; {', '.join(PARAMETRIC)} have one")
    try:
        return name, read_number(parameter, Fraction)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{text} is refused: the parameter {parameter!r} of {name} is no number") from None


def check_budget(
    *, pieces: Any = None, error: Any = None, breakpoints: str = "free", slopes: str = "any", terms: Any = 2
) -> None:
    """Raise TypeError or ValueError if a field of the budget of a fit is wrong."""
    if pieces is not None:
        check_int("pieces", pieces, "fit", 1, MOST_PIECES)
    if error is not None and (not isinstance(error, int | float | Fraction) or isinstance(error, bool)):
        raise TypeError(f"an error is a number, not {type(error).__name__}")
    if error is not None and not 0 <= error < math.inf:
        raise ValueError(f"an error of {error} is out of range; it is zero or more, and finite")
    check_one_of("breakpoints", breakpoints, BREAKPOINTS)
    check_one_of("slopes", slopes, SLOPES)
    check_int("terms", terms, "slope", 1, MAX_TERMS)
    if breakpoints == "uniform" and pieces is None:
        raise ValueError("uniform breakpoints need a number of pieces, and an error does not tell it")


def is_table_name(name: str) -> bool:
    """True for the name of a saved table of segments, which ends with the digest of its content."""
    return _TABLE.fullmatch(name) is not None
