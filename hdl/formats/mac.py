"""Description of one multiply-accumulate, from which unit, golden model, bench and report are made."""

import re
from dataclasses import dataclass, replace

from .base import Format
from .catalogue import parse
from .fixed import Fixed
from .floating import MAX_EXP, MAX_MAN, Float
from .posit import Posit
from .rounding import EXACT, RN, Rounding
from .span import Span

_ROUNDING = r"(?:rn|ra|rz|ru|rd|ro|exact|sr[0-9]+)"
_TEXT = re.compile(
    rf"(?P<a>[^*]+)\*(?P<b>[^=+]+)(?:=(?P<product>[^+]+)\.(?P<product_rounding>{_ROUNDING}))?"
    rf"\+(?P<acc>.+?)\.(?P<rounding>{_ROUNDING})(?P<saturate>\.sat)?"
)


@dataclass(frozen=True)
class MacSpec:
    """One multiply-accumulate step: acc <- acc + a * b.

    Parameters
    ----------
    a, b : Format
        Operand formats.
    acc : Format
        Accumulator format.
    rounding : Rounding
        Rounding to the accumulator format.
    product : Format, optional
        Format that the product is rounded to before it is added; None keeps it exact, so that a step rounds once.
    product_rounding : Rounding
        Rounding of the product; ``exact`` where ``product`` is None or holds every product.
    saturate : bool
        Overflow gives the largest finite number, in product and accumulator.

    Raises
    ------
    ValueError
        If a rounding is ``exact`` and its format cannot hold every result, or the product is exact and has a rounding.

    Notes
    -----
    ``str()`` gives a short name such as ``e5m2*e5m2+e6m5.sr10`` or ``e5m2*e5m2=e5m2.rz+e6m5.rn.sat``, and
    `MacSpec.parse` reads it back.
    """

    a: Format
    b: Format
    acc: Format
    rounding: Rounding = RN
    product: Format | None = None
    product_rounding: Rounding = EXACT
    saturate: bool = False

    def __post_init__(self) -> None:
        product = Span.of(self.a) * Span.of(self.b)
        if self.product is None:
            if self.product_rounding != EXACT:
                raise ValueError(
                    f"the product is exact, so its rounding {self.product_rounding} does nothing; "
                    "name a product format or leave the rounding out"
                )
        elif self.product_rounding == EXACT:
            product.check_fits(self.product, f"product of {self.a} and {self.b}")
        if self.rounding == EXACT:
            self.sums.check_fits(self.acc, f"sum of a product and {self.acc}")

    def __str__(self) -> str:
        product = "" if self.product is None else f"={self.product}.{self.product_rounding}"
        saturate = ".sat" if self.saturate else ""
        return f"{self.a}*{self.b}{product}+{self.acc}.{self.rounding}{saturate}"

    @property
    def terms(self) -> Span:
        """What is added in a step: products, rounded if they are."""
        return Span.of(self.a) * Span.of(self.b) if self.product is None else Span.of(self.product)

    @property
    def sums(self) -> Span:
        """What a step rounds to the accumulator format."""
        return self.terms + Span.of(self.acc)

    @classmethod
    def parse(cls, text: str) -> "MacSpec":
        """Description that ``str()`` wrote."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no multiply-accumulate; one is written like e5m2*e5m2+e6m5.rn")
        return cls(
            a=parse(match["a"]),
            b=parse(match["b"]),
            acc=parse(match["acc"]),
            rounding=Rounding.parse(match["rounding"]),
            product=None if match["product"] is None else parse(match["product"]),
            product_rounding=Rounding.parse(match["product_rounding"] or EXACT),
            saturate=match["saturate"] is not None,
        )


def default_accumulator(fmt: Format) -> Format:
    """Accumulator that a multiply-accumulate in ``fmt`` has unless told otherwise.

    Of a float one exponent bit and three mantissa bits more, which makes e6m5 of e5m2, with the specials and subnormals
    of IEEE; of fixed point twice the bits on both sides of the point, which makes fxp8.8 of fxp4.4, and four times the
    bits of an integer; of a posit twice the width. At most 64 bits.
    """
    if isinstance(fmt, Float):
        return Float(min(fmt.exp + 1, MAX_EXP), min(fmt.man + 3, MAX_MAN), subnormals=fmt.subnormals)
    if isinstance(fmt, Fixed):
        if fmt.frac_bits == 0:
            return replace(fmt, int_bits=min(4 * fmt.int_bits, 64))
        if fmt.width > 32:
            return replace(fmt, int_bits=64 - fmt.frac_bits)
        return replace(fmt, int_bits=2 * fmt.int_bits, frac_bits=2 * fmt.frac_bits)
    assert isinstance(fmt, Posit)
    return replace(fmt, width=min(2 * fmt.width, 64))
