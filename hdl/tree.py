"""Sums of many terms on one scale."""

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Value

from .wire import wire


@dataclass(frozen=True)
class Placed:
    """Term of a sum, the number ``integer + carry``.

    Attributes
    ----------
    integer : Value
        Signed; the inverse of a magnitude if the term is negative, so that no term needs an adder of its own.
    carry : Value
        One bit.
    """

    integer: Value
    carry: Value

    @classmethod
    def of(cls, magnitude: Value, negative: Value) -> "Placed":
        """Return the term of a magnitude with a sign."""
        inverted = Cat(magnitude, Const(0, 1)) ^ negative.replicate(len(magnitude) + 1)
        return cls(inverted.as_signed(), negative)


def total(m: Module, terms: Sequence[Placed], name: str) -> Placed:
    """Return the sum of terms, in a balanced tree of adders; each adder takes one of the carries as its carry-in.

    The carry of the sum is constant if that of the first term is.
    """
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    x, y = (total(m, part, f"{name}_{side}") for part, side in ((terms[:half], "low"), (terms[half:], "high")))
    carry, rest = (y.carry, x.carry) if isinstance(x.carry, Const) else (x.carry, y.carry)
    added = (Cat(Const(1, 1), x.integer).as_signed() + Cat(carry, y.integer).as_signed())[1:]
    return Placed(wire(m, added.as_signed(), name), rest)


@dataclass(frozen=True)
class Special:
    """Flags and signs of the terms of a sum, and of the sum."""

    sign: Value
    nan: Value
    inf: Value


def special(m: Module, terms: Sequence[Special]) -> Special:
    """Return the flags of a sum; ``sign`` is that of an infinity."""
    up = Cat(*(term.inf & ~term.sign for term in terms)).any()
    down = Cat(*(term.inf & term.sign for term in terms)).any()
    nan = Cat(*(term.nan for term in terms)).any() | (up & down)
    return Special(sign=down, nan=wire(m, nan, "total_nan"), inf=wire(m, up | down, "total_inf"))
