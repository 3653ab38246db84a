"""Eager stochastic rounding: the random word is added to a sum before its normalisation.

Source: S. Ben Ali, S.-I. Filip and O. Sentieys, "A Stochastic Rounding-Enabled Low-Precision Floating-Point MAC for DNN
Training", DATE 2024. In that design the upper two random bits are added after the normalisation. Here the whole word is
added at both alignments that are possible once the signs are known, and the normalisation selects one, so the result
equals that of lazy rounding bit for bit. The eager structure is larger and has the shorter critical path.
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
        Format of each term, or formats of both factors of a product.
    o : Format
        Result format.
    rounding : Rounding
    """

    terms: tuple[tuple[Format, ...], ...]
    o: Format
    rounding: Rounding

    @property
    def has_structures(self) -> bool:
        """True if lazy and eager rounding are possible: a sum of floats with stochastic rounding."""
        formats = [self.o, *(fmt for term in self.terms for fmt in term)]
        return self.rounding.mode == "sr" and all(fmt.spacing == "relative" for fmt in formats)

    @property
    def refusal(self) -> str | None:
        """Reason why the eager structure is impossible; None if it is possible."""
        if self.excess is None:
            return None
        return f"eager stochastic rounding to {self.o} allows {self.excess}; use lazy"

    @property
    def width(self) -> int:
        """Maximum significand bits of a term."""
        return max(map(_width, self.terms))

    @property
    def excess(self) -> str | None:
        """Limit that a term exceeds if a difference can discard bits after it lost its first place; None otherwise.

        The result must be at least as precise as the terms, and its subnormal range must not start above theirs. Other
        results can discard more bits than two or three alignments of a random word allow.
        """
        if self.width > self.o.precision:
            return f"terms of up to {self.o.precision} significand bits, not {self.width}"
        has_floor = all(fmt.floor_exponent is not None for (fmt, *factors) in self.terms if not factors)
        emin, floor = min(_emin(term, has_floor) for term in self.terms), self.o.floor_exponent
        if floor is not None and emin < floor:
            return f"terms with exponents from {floor}, not {emin}"
        return None


def _width(term: tuple[Format, ...]) -> int:
    """Return the significand bits of a term."""
    bits = [fmt.precision for fmt in term]
    return sum(bits) - (len(bits) - 1 if min(bits) == 1 else 0)


def _emin(term: tuple[Format, ...], has_floor: bool) -> int:
    """Return the lowest exponent of a term; a product below the floor keeps its leading zeros."""
    total = sum(floor_log2(fmt.smallest) if fmt.floor_exponent is None else fmt.floor_exponent for fmt in term)
    if len(term) == 1 or min(fmt.precision for fmt in term) == 1:
        return total
    if has_floor:
        return total + 1
    return total - sum(fmt.precision - 1 for fmt in term if fmt.floor_exponent is not None)


def add(m: Module, z: raw.Aligned, o: Format, rounding: Rounding, random: Value, *, fast: bool) -> raw.Raw:
    """Add aligned numbers and decide the rounding to ``o``: the second half of a sum."""
    assert z.width <= o.precision
    assert o.floor_exponent is None or z.promises.emin >= o.floor_exponent
    exact = raw.add(m, z, rounding, fast=fast, floor=o.floor_exponent)
    # The first one of the sum is in the top place after a carry, in the next place, or lower. An addition excludes the
    # last case, a subtraction the first.
    top = len(exact.significand) - 1
    after_carry, at_one, left = (
        _discarded(exact.significand, top - o.precision - case, len(random)) for case in range(3)
    )
    higher = wire(m, carry_out(Mux(z.subtract, at_one, after_carry), random), "carry_if_higher")
    lower = wire(m, carry_out(Mux(z.subtract, left, at_one), random), "carry_if_lower")
    is_higher = Mux(z.subtract, exact.significand[top - 1], exact.significand[top])
    up = wire(m, Mux(is_higher, higher, lower), "goes_up")
    return replace(exact, anticipated=replace(exact.anticipated, up=up))


def _discarded(significand: Value, first: int, count: int) -> Value:
    """Return ``count`` bits of a significand from the place ``first`` down; missing places are zeros."""
    last = first + 1 - count
    return Cat(Const(0, max(-last, 0)), significand[max(last, 0) : max(first + 1, 0)])[-count:]
