"""Eager stochastic rounding: the random word is added to a sum before that is normalised.

Source: S. Ben Ali, S.-I. Filip and O. Sentieys, "A Stochastic Rounding-Enabled Low-Precision Floating-Point MAC for
DNN Training", DATE 2024. There the upper two random bits wait for the normalisation. Here the whole word is added at
both of the alignments that are left when the signs are known, and the normalisation chooses; so the result is to the
bit that of a word added after it. It is the larger of the two structures, and the one with the shorter longest path.
"""

from dataclasses import dataclass, replace

from amaranth.hdl import Cat, Const, Module, Mux, Value

from . import raw
from .formats import Format, Rounding
from .formats.base import floor_log2
from .wire import carry_out, wire


@dataclass(frozen=True)
class Sum:
    """Formats of a sum that is rounded.

    Parameters
    ----------
    terms : tuple of tuple of Format
        Of each term its format, or those of both factors of a product.
    o : Format
        Result format.
    rounding : Rounding
    """

    terms: tuple[tuple[Format, ...], ...]
    o: Format
    rounding: Rounding

    @property
    def has_structures(self) -> bool:
        """Presence of both structures: it is a sum of floats that is rounded stochastically."""
        formats = [self.o, *(fmt for term in self.terms for fmt in term)]
        return self.rounding.mode == "sr" and all(fmt.spacing == "relative" for fmt in formats)

    @property
    def refusal(self) -> str | None:
        """Reason for which the eager structure cannot make it, if there is one.

        It is for results that are at least as precise as the terms and have no larger exponent where subnormal numbers
        begin: others may discard more than a random word's alignment tells.
        """
        width = max(map(_width, self.terms))
        if width > self.o.precision:
            return (
                f"eager stochastic rounding to {self.o}, whose significand has {self.o.precision} bits, is for terms "
                f"of no more bits, and there are {width}; make it lazy"
            )
        has_floor = all(fmt.floor_exponent is not None for (fmt, *factors) in self.terms if not factors)
        emin, floor = min(_emin(term, has_floor) for term in self.terms), self.o.floor_exponent
        if floor is not None and emin < floor:
            return (
                f"eager stochastic rounding to {self.o} is for terms of no smaller exponent than its own, which is "
                f"{floor}, and there is {emin}; make it lazy"
            )
        return None


def _width(term: tuple[Format, ...]) -> int:
    """Significand bits of a term."""
    bits = [fmt.precision for fmt in term]
    return sum(bits) - (len(bits) - 1 if min(bits) == 1 else 0)


def _emin(term: tuple[Format, ...], has_floor: bool) -> int:
    """Lowest exponent of a term: of a product that keeps its leading zeros, as one does that may be below the floor."""
    total = sum(floor_log2(fmt.smallest) if fmt.floor_exponent is None else fmt.floor_exponent for fmt in term)
    if len(term) == 1 or min(fmt.precision for fmt in term) == 1:
        return total
    if has_floor:
        return total + 1
    return total - sum(fmt.precision - 1 for fmt in term if fmt.floor_exponent is not None)


def add(m: Module, z: raw.Aligned, o: Format, rounding: Rounding, random: Value) -> raw.Raw:
    """Second half of a sum, for which it is already decided whether it goes up when it is rounded to ``o``."""
    assert z.width <= o.precision
    assert o.floor_exponent is None or z.emin >= o.floor_exponent
    exact = raw.add(m, z, rounding)
    # The sum has its first one in the upper place after a carry, in the next one, or another place below. Adding up
    # does not take the last of these, nor taking away the first.
    top = len(exact.significand) - 1
    after_carry, at_one, left = (
        _discarded(exact.significand, top - o.precision - case, len(random)) for case in range(3)
    )
    higher = wire(m, carry_out(Mux(z.subtract, at_one, after_carry), random), "carry_if_higher")
    lower = wire(m, carry_out(Mux(z.subtract, left, at_one), random), "carry_if_lower")
    is_higher = Mux(z.subtract, exact.significand[top - 1], exact.significand[top])
    return replace(exact, up=wire(m, Mux(is_higher, higher, lower), "goes_up"))


def _discarded(significand: Value, first: int, count: int) -> Value:
    """So many bits of a significand, from the place ``first`` down; places that it does not have are zeros."""
    last = first + 1 - count
    return Cat(Const(0, max(-last, 0)), significand[max(last, 0) : max(first + 1, 0)])[-count:]
