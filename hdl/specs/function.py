"""Description of correctly rounded functions of one number."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from halfulp.hdl.formats.base import Format, floor_log2
from halfulp.hdl.formats.catalogue import parse
from halfulp.hdl.formats.checks import check_one_of
from halfulp.hdl.formats.rounding import RN, Rounding

from .division import EndlessSpec

FUNCTIONS = ("exp", "exp2", "log", "log2", "sin", "cos", "tanh", "sigmoid", "gelu", "silu", "erf")
"""Names of functions; angles are in radians, and ``gelu`` is ``a * (1 + erf(a / sqrt(2))) / 2``."""

MAX_WIDTH = 16
"""Maximum width of operands and results, whose results are checked for all codes."""

FAITHFUL_WIDTH = 32
"""Maximum width of operands and results that are rounded faithfully."""

FAITHFUL_PRECISION = 24
"""Maximum precision of these: 64 bits hold the integers of their computation."""

TABLE_WIDTH = 8
"""Maximum width of operands whose results RTL has in a table, and of those that it rounds stochastically."""

FAITHFUL_EXPONENT = 600
"""Maximum magnitude of their exponents: binary64 holds their bounds."""

MAX_EXPONENT = 1023
"""Maximum exponent of operands and results: binary64 holds their numbers."""

MAX_WINDOW = 44
"""Maximum number of leading bits that a rounding may need; the golden model has 53."""


@dataclass(frozen=True)
class FunctionSpec(EndlessSpec, form="function function(a)[>o]", summary="function of a, correctly rounded"):
    """Function of one number, rounded once.

    With the rounding ``faithful``, formats have up to 32 bits, and a result is one of the two numbers next to the exact
    value, or is that value.

    Parameters
    ----------
    function : str
        Name of the function: one of `FUNCTIONS`.
    a : Format
        Format of the operand, of at most 16 bits, or 32 if the rounding is ``faithful``.
    o : Format
        Format of the result, as wide at most; default: ``a``.

    Raises
    ------
    TypeError, ValueError
        As `UnitSpec`; also if the function is unknown, or a format is wider, has numbers beyond binary64, or wraps.
    """

    FAITHFUL = True

    function: str
    a: Format
    o: Format = None  # type: ignore[assignment]  # None asks for the default; after construction it is a format

    def check(self) -> None:
        super().check()
        if not isinstance(self.function, str):
            raise TypeError(f"the function of a unit must be a string, not {type(self.function).__name__}")
        check_one_of("function", self.function, FUNCTIONS)
        for name, fmt in (("a", self.a), ("o", self.o or self.a)):
            if fmt.parts == 1 and fmt.has_zero:
                _check(name, fmt, self.rounding)
        widths = [fmt.width for fmt in (self.a, self.o or self.a)]
        if self.rounding.faithful and max(widths) <= MAX_WIDTH:
            raise ValueError(
                f"the rounding faithful has no effect in formats of up to {MAX_WIDTH} bits, whose results are rounded "
                "correctly; choose another mode, such as rn"
            )
        if self.rounding.faithful and self.flags:
            raise ValueError(
                "function with the rounding faithful has no exception flags, which tell exact results; omit flags"
            )

    @classmethod
    def read_part(cls, part: str, text: str) -> Any:
        return text if part == "function" else parse(text)

    @classmethod
    def takes(cls, fmt: Format, rounding: Rounding | None) -> bool:
        in_rtl = rounding is None or not rounding.bits or fmt.width <= TABLE_WIDTH
        in_rtl &= fmt.width > MAX_WIDTH or not (rounding and rounding.faithful)
        return super().takes(fmt, rounding) and in_rtl and _is_format("a", fmt) and cls.gives(fmt, rounding)

    @classmethod
    def gives(cls, fmt: Format, rounding: Rounding | None) -> bool:
        return super().gives(fmt, rounding) and _is_format("o", fmt, rounding)

    @classmethod
    def defaults(cls, a: Format) -> dict[str, Callable[[], Any]]:
        return {"function": lambda: "exp"}

    @property
    def bound(self) -> Fraction:
        """Power of two beyond the range of the results; all larger ones saturate."""
        return Fraction(2) ** (floor_log2(max(self.result.largest, -self.result.lowest)) + 1)


def _check(name: str, fmt: Format, rounding: Rounding) -> None:
    """Raise ValueError if the operand or result ``name`` has no results in a table."""
    most = FAITHFUL_WIDTH if rounding.faithful else MAX_WIDTH
    if fmt.width > most:
        other = ", or choose the rounding faithful" * (most < fmt.width <= FAITHFUL_WIDTH)
        raise ValueError(
            f"{name} of function must have at most {most} bits, and {fmt} has {fmt.width}; convert it{other}"
        )
    if fmt.precision > FAITHFUL_PRECISION:
        raise ValueError(
            f"{name} of function must have a precision of at most {FAITHFUL_PRECISION} bits, and that of {fmt} is "
            f"{fmt.precision}; convert it"
        )
    exponents = floor_log2(max(fmt.largest, -fmt.lowest)), -floor_log2(fmt.smallest)
    if rounding.faithful and max(exponents) > FAITHFUL_EXPONENT:
        raise ValueError(
            f"{name} of function with the rounding faithful must have exponents of at most {FAITHFUL_EXPONENT}, unlike "
            f"{fmt}; convert it"
        )
    if floor_log2(max(fmt.largest, -fmt.lowest)) > MAX_EXPONENT or floor_log2(fmt.smallest) < -MAX_EXPONENT - 50:
        raise ValueError(f"{name} of function must have the range of binary64 at most, unlike {fmt}; convert it")
    if name == "o" and fmt.wraps:
        raise ValueError(f"o of function must saturate, unlike {fmt}")
    if name == "o" and fmt.window + rounding.places > MAX_WINDOW:
        raise ValueError(
            f"rounding {rounding} needs more bits of a result than the {MAX_WINDOW} that are computed; choose fewer "
            "random bits"
        )


def _is_format(name: str, fmt: Format, rounding: Rounding | None = None) -> bool:
    if fmt.shares_scale or fmt.parts > 1:
        return False
    try:
        _check(name, fmt, rounding or RN)
    except ValueError:
        return False
    return True
