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
"""Default and maximum number of pieces of a fit."""

PARAMETRIC = ("elu", "leaky_relu")
"""Functions with a parameter, which follows a colon: ``elu:0.5``."""

FUNCTIONS = (
    *("tanh", "sigmoid", "erf", "exp", "gelu", "silu", "softplus", "elu", "relu", "leaky_relu"),
    *("hard_sigmoid", "hard_swish", "reciprocal", "rsqrt", "log2"),
)
"""Names of functions; `halfulp.hdl.fit.functions` defines them."""

BREAKPOINTS = ("free", "uniform", "power")
"""Starts of pieces: any argument, equal distances, or changes of leading bits of the argument."""

SLOPES = ("any", "pow2")
"""Slopes of pieces: numbers of a format, or sums of signed powers of two."""

MEASURES = ("ulp", "absolute")
"""Units of errors: ulp of the result format at the function's value, or absolute."""

BUDGET = ("pieces", "error", "measure", "breakpoints", "slopes", "terms")
"""Fields of a fit's budget."""

_TABLE = re.compile(r"\w+-[0-9a-f]{8}")


@dataclass(frozen=True)
class PwlSpec(UnitSpec, form="pwl function(a)[>o]", summary="piecewise linear function"):
    """Piecewise linear function of one number: fitted within a budget, or a saved table.

    Parameters
    ----------
    function : str
        Name of a function, such as ``tanh`` or ``leaky_relu:0.2``, or of a saved segment table, such as
        ``gelu6-1f0c33a9``, which ends with a digest.
    a, o : Format
        Formats of argument and value; default of ``o``: format of ``a``.
    pieces, error, measure, breakpoints, slopes, terms : optional
        Budget of the fit, as for `halfulp.hdl.fit.fit.fit`; default: 8 pieces. A saved table takes none.

    Raises
    ------
    TypeError, ValueError
        As `UnitSpec`; also if the function is unknown, the budget is invalid, or a saved table has a budget.
    """

    PORT = False
    NO_FLAGS = "its lines approximate a function, so that no result is exact"

    function: str
    a: Format
    o: Format = None  # type: ignore[assignment]  # None asks for the default; after construction it is a format
    pieces: int | None = None
    error: float | None = None
    measure: str | None = None
    breakpoints: str | None = None
    slopes: str | None = None
    terms: int | None = None

    def check(self) -> None:
        if not isinstance(self.function, str):
            raise TypeError(f"the function of a unit must be a string, not {type(self.function).__name__}")
        if is_table_name(self.function):
            for name in self.budget:
                raise ValueError(f"{name} does nothing with the saved table {self.function}; it is an option of fits")
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
        """Given fields of the fit's budget."""
        return {name: value for name in BUDGET if (value := getattr(self, name)) is not None}

    @property
    def results(self) -> tuple[ValueRange, str] | None:
        """None: values are known after the fit, which then checks the rounding ``exact``."""
        return None


def read_function(text: str) -> tuple[str, Fraction | None]:
    """Parse the name and parameter of a function such as ``leaky_relu:0.2``.

    Raises
    ------
    ValueError
        If the function is unknown, or its parameter is invalid.
    """
    name, colon, parameter = text.partition(":")
    check_one_of("function", name, FUNCTIONS)
    if not colon:
        return name, None
    if name not in PARAMETRIC:
        raise ValueError(f"invalid function {text}: only {', '.join(PARAMETRIC)} have a parameter")
    try:
        return name, read_number(parameter, Fraction)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"invalid function {text}: the parameter {parameter!r} must be a number") from None


def check_budget(
    *,
    pieces: Any = None,
    error: Any = None,
    measure: str | None = None,
    breakpoints: str = "free",
    slopes: str = "any",
    terms: Any = 2,
) -> None:
    """Raise TypeError or ValueError if the budget of a fit is invalid."""
    if pieces is not None:
        check_int("pieces", pieces, "fit", 1, MOST_PIECES)
    if error is not None and (not isinstance(error, int | float | Fraction) or isinstance(error, bool)):
        raise TypeError(f"error must be a number, not {type(error).__name__}")
    if error is not None and not 0 <= error < math.inf:
        raise ValueError(f"error must be finite and at least 0, not {error}")
    if measure is not None:
        check_one_of("measure", measure, MEASURES)
    check_one_of("breakpoints", breakpoints, BREAKPOINTS)
    check_one_of("slopes", slopes, SLOPES)
    check_int("terms", terms, "slope", 1, MAX_TERMS)
    if breakpoints == "uniform" and pieces is None:
        raise ValueError("uniform breakpoints need a number of pieces")


def is_table_name(name: str) -> bool:
    """Return True for the name of a saved segment table, which ends with a digest."""
    return _TABLE.fullmatch(name) is not None
