"""Description of the requantization of accumulators."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from halfulp.hdl.formats.base import Format
from halfulp.hdl.formats.fixed import Fixed
from halfulp.hdl.formats.rounding import EXACT, RN, RZ, Rounding

from .formula import Call, Formula, Port, Role, Sum, term
from .unit import UnitSpec

MAX_SHIFT = 8
"""Largest width of a shift."""

MAX_RESULT = 62
"""Largest width of a result: the rounded number has two bits more, and formats have up to 64."""


@dataclass(frozen=True)
class RequantizeSpec(
    UnitSpec, form="requantize a*multiplier[=product],shift>o", summary="zero + round(a * multiplier / 2^shift)"
):
    """Product of an accumulator and a multiplier, shifted right, rounded once, and added to a zero point.

    Multiplier, shift and zero point are operands: they may be those of a tensor or of a channel. The rounded number is
    an integer multiple of the last place of ``o``; the zero point has the format ``o``, and the sum saturates.

    Parameters
    ----------
    a, multiplier : Fixed
        Formats of the accumulator and of the multiplier, such as int32 and fxp1.31.
    shift : Fixed
        Format of the places that the product is shifted right: an integer of up to 8 bits. Negative shifts are to the
        left.
    o : Fixed
        Format of the result and of the zero point.
    product : Fixed, optional
        Format to which the product is rounded before the shift, which is then not negative; default: none, so that the
        result is rounded once.
    product_rounding : Rounding
        Rounding to ``product``; not stochastic.

    Notes
    -----
    ``int32*fxp1.31,uint5>int8.rhu`` is the single rounding of TensorFlow Lite, and
    ``int32*fxp1.31=int32.rhu,uint5>int8.ra`` that of gemmlowp: a saturating rounding doubling high product, then a
    rounding right shift.
    """

    PORT = False
    NO_FLAGS = "its integers saturate, and no standard names exceptions"
    INTEGERS = ("multiplier", "shift")
    OPERANDS = ("a", "multiplier", "shift")

    a: Fixed
    multiplier: Fixed
    shift: Fixed
    o: Fixed
    product: Fixed | None = None
    product_rounding: Rounding = None  # type: ignore[assignment]  # after construction it is a rounding

    def __post_init__(self) -> None:
        if self.product_rounding is None:
            object.__setattr__(self, "product_rounding", EXACT if self.product is None else RN)
        super().__post_init__()

    def check(self) -> None:
        for name in ("a", "multiplier", "shift", "o", "product"):
            fmt = getattr(self, name)
            if not isinstance(fmt, Fixed) and (name, fmt) != ("product", None):
                raise TypeError(f"{name} of requantize must be fixed point, such as int32 or fxp1.31, not {fmt}")
        if self.shift.frac_bits or self.shift.width > MAX_SHIFT:
            raise ValueError(
                f"shift of requantize must be an integer of up to {MAX_SHIFT} bits, such as uint5, not {self.shift}"
            )
        if self.o.width > MAX_RESULT:
            raise ValueError(f"results of requantize have up to {MAX_RESULT} bits, not those of {self.o}")
        if self.o.wraps:
            raise ValueError(f"results of requantize saturate, and {self.o} wraps; use a format without -wrap")
        if self.saturate:
            raise ValueError("results of requantize saturate in any case; omit .sat")
        if self.rounding == EXACT:
            raise ValueError("rounding exact is not possible for requantize; choose a rounding mode")
        if self.product is None:
            if self.product_rounding != EXACT:
                raise ValueError(f"product rounding {self.product_rounding} does nothing without a product format")
        elif self.product_rounding.bits or self.product_rounding.is_port or self.product_rounding == EXACT:
            raise ValueError(f"rounding {self.product_rounding} is not possible for a product; choose rhu, for example")
        elif self.shift.signed:
            raise ValueError(f"a rounded product is shifted right; use an unsigned shift, not {self.shift}")

    @classmethod
    def has_effect(cls, name: str) -> bool:
        """Return True if a field may have another value than its default; results saturate in any case."""
        return name != "saturate" and super().has_effect(name)

    @property
    def parameters(self) -> dict[str, Any]:
        return {name: value for name, value in super().parameters.items() if name != "saturate"}

    @classmethod
    def takes(cls, fmt: Format, rounding: Rounding | None) -> bool:
        return super().takes(fmt, rounding) and isinstance(fmt, Fixed) and not fmt.wraps

    @classmethod
    def gives(cls, fmt: Format, rounding: Rounding | None) -> bool:
        return isinstance(fmt, Fixed)

    @classmethod
    def defaults(cls, a: Format) -> dict[str, Callable[[], Any]]:
        """Return defaults: a multiplier below one as wide as ``a``, shifts up to 31 places, and results of 8 bits."""
        return {
            "multiplier": lambda: Fixed(1, max(a.width, 2) - 1),
            "shift": lambda: Fixed(5, 0, signed=False),
            "o": lambda: Fixed(8, 0) if a.width > 8 and a.quantum == 0 else a,
        }

    @property
    def scaled(self) -> Fixed:
        """Format of the rounded number: beyond its range, every sum with a zero point saturates."""
        return Fixed(self.o.int_bits + 2, self.o.frac_bits)

    @property
    def operand_ports(self) -> tuple[Port, ...]:
        return (*super().operand_ports, Port("zero", self.o, Role.OPERAND))

    @property
    def formula(self) -> Formula:
        call, word = Call("requantize", self.OPERANDS), "random" if self.rounding.bits else None
        scaled = Sum("scaled", (term(call),), self.rounding, self.scaled, word)
        return Formula((scaled, Sum("o", (term("scaled"), term("zero")), RZ, self.o)))
