"""Sums of floats in the loop of an accumulator, with late normalisation.

A step leaves the rounded sum in the window of its addition, as a two's-complement number, with the count of its leading
zeros. The next step normalises it while it compares exponents. The rounding adds a word to the sum at its place in the
window, so that no shift comes between the sum and its rounding. Nothing is swapped, packed or unpacked in the loop.

Source: G. Even and P.-M. Seidel, "A Comparison of Three Rounding Algorithms for IEEE Floating-Point Multiplication",
IEEE Trans. Computers 49(7), 2000, for rounding by injection; S. R. Vangal et al., "A 6.2-GFlops Floating-Point
Multiply-Accumulator With Conditional Normalization", IEEE JSSC 41(10), 2006, for a loop without normalisation.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Value
from amaranth.utils import bits_for

from .eager import Sum
from .formats import Float
from .raw import Raw, normalise
from .wire import NEVER, extended, leading_zeros, reaches, shift_left_sticky, shift_right_sticky, wire


class Held(NamedTuple):
    """Rounded sum as it is held in registers, in the window of its addition. All bits of +0 are 0.

    Attributes
    ----------
    window : Value
        Two's complement, from the place `Loop.lowest` on.
    zeros : Value
        Places to shift it up; fewer than its leading zeros if it is subnormal, or if rounding carried into a new place.
    exponent : Value
        Exponent after the shift, counted from that of subnormal numbers.
    sign : Value
        Sign of the sum, also of zero and of an infinity.
    nan, inf : Value
    """

    window: Value
    zeros: Value
    exponent: Value
    sign: Value
    nan: Value
    inf: Value


class Start(NamedTuple):
    """Normalised sum from which a step starts. All bits of +0 are 0.

    Attributes
    ----------
    significand : Value
        Two's complement, with one place above that of the leading one, which a number just rounded up may have.
    exponent, sign, nan, inf : Value
        As in `Held`; here a number beyond the largest one is an infinity.
    """

    significand: Value
    exponent: Value
    sign: Value
    nan: Value
    inf: Value


@dataclass(frozen=True)
class Loop:
    """Step of an accumulator: a term is added to a sum, which is rounded.

    Parameters
    ----------
    total : Sum
        Formats of the term and of the sum, and the rounding; `refusal` must accept them.
    """

    total: Sum

    @property
    def fmt(self) -> Float:
        """Format of the sum."""
        assert isinstance(self.total.o, Float)
        return self.total.o

    @property
    def first(self) -> int:
        """Place of the leading one of the larger operand in the window.

        A sum can have one more place, and its rounding another. Below are the bits that rounding needs, also if a
        difference loses its first place. Place 0 is the OR of all bits that are lost.
        """
        return max(self.fmt.precision + self.total.rounding.places + 1, self.total.width)

    @property
    def lowest(self) -> int:
        """Lowest place of a rounded sum: lower bits are discarded, or they are zero because no bit is lost."""
        return self.first - max(self.fmt.precision, self.total.width)

    @property
    def registers(self) -> dict[str, int]:
        """Bits of the registers of a sum, by attribute of `Held`."""
        places = self.first + 4 - self.lowest
        widths = (places, (places - 3).bit_length(), self._bits, 1, 1, 1)
        return dict(zip(Held._fields, widths, strict=True))

    def held(self, word: Value) -> Held:
        """Return the sum in a word of the bits of all registers."""
        widths = self.registers.values()
        return Held(*(word[end - bits : end] for bits, end in zip(widths, accumulate(widths), strict=True)))

    def start(self, m: Module, x: Raw) -> Start:
        """Return a number of the accumulator's format."""
        significand = Mux(x.sign, -x.significand, x.significand)
        return Start(
            significand=extended(wire(m, significand, "start_signed"), self.fmt.precision + 2),
            exponent=wire(m, (x.exponent + (x.base - self.fmt.emin))[: self._bits], "start_place"),
            sign=x.sign,
            nan=x.nan,
            inf=x.inf,
        )

    @property
    def _bits(self) -> int:
        """Bits of an exponent, counted from that of subnormal numbers."""
        terms: Any = self.total.terms
        highest = max(sum(fmt.emax for fmt in term) + len(term) - 1 for term in terms)
        return bits_for(highest + 1 - self.fmt.emin)

    def normalised(self, m: Module, x: Held) -> Start:
        """Return a sum without leading zeros above the exponent of subnormal numbers."""
        p, largest = self.fmt.precision, self.fmt.emax - self.fmt.emin
        shifted, _ = shift_left_sticky(m, x.window, x.zeros, "held_shifted", p + 2)
        carried = shifted[p] & ~shifted[:p].any()
        beyond = reaches(x.exponent, largest + 1) | ((x.exponent == largest) & carried)
        return Start(shifted, x.exponent, x.sign, x.nan, wire(m, x.inf | beyond, "held_infinite"))

    def step(self, m: Module, x: Start, term: Raw, random: Value | None) -> Held:
        """Add a term to a sum and round."""
        p, first = self.fmt.precision, self.first
        # Without leading zeros above the exponent of subnormal sums.
        term = normalise(m, term, "term", min(term.promises.emin, self.fmt.emin), self.fmt.emin)
        assert len(term.significand) <= self.total.width
        place = wire(m, Mux(term.zero, 0, term.exponent + (term.base - self.fmt.emin)), "term_place")
        signed = wire(m, Mux(term.sign, -term.significand, term.significand), "term_signed")

        down = wire(m, x.exponent - place, "places_above_term")
        up = wire(m, place - x.exponent, "places_below_term")
        is_below = wire(m, down[-1], "is_below_term")
        exponent = wire(m, Mux(is_below, place, x.exponent)[: self._bits], "window_exponent")
        held, held_lost = self._aligned(m, x.significand, up, ~up[-1], first - p, "held")
        other, other_lost = self._aligned(m, signed, down, ~is_below, first - len(term.significand), "term")
        total = wire(m, Cat(held_lost | other_lost, (held + other)[: first + 2]), "sum")

        negative = total[-1]
        leading = wire(m, total[:-1] ^ negative.replicate(first + 2), "sum_inverted")
        none = wire(m, ~total.any(), "sum_zero")
        # A one at the exponent of subnormal numbers ends the count of leading zeros.
        at_floor = Cat(exponent == first - at for at in range(first + 1))
        leading = wire(m, leading | at_floor, "sum_limited")
        # The negative of a one in the lowest place has its leading one below, but is shifted like the positive.
        zeros = leading_zeros(m, Cat(Const(1, 1), leading[self.lowest + 1 :]), "sum_zeros")
        mask = Cat(wire(m, leading[at + p :].any(), f"discards_{at}") for at in range(first + 2 - p))
        rounded = self._rounded(m, total, mask, leading, random)
        return Held(
            window=wire(m, rounded[self.lowest :], "next_window"),
            zeros=zeros[: self.registers["zeros"]],
            exponent=wire(m, Mux(none, 0, (exponent + 1 - zeros)[: self._bits]), "next_exponent"),
            sign=wire(
                m,
                Mux(x.inf, x.sign, Mux(term.inf, term.sign, Mux(none, x.sign & term.sign, negative))),
                "next_sign",
            ),
            nan=wire(m, x.nan | term.nan | (x.inf & term.inf & (x.sign ^ term.sign)), "next_nan"),
            inf=wire(m, x.inf | term.inf, "next_inf"),
        )

    def _aligned(
        self, m: Module, value: Value, places: Value, moves: Value, below: int, name: str
    ) -> tuple[Value, Value]:
        """Return a signed value shifted down to the window above its place 0, and the OR of the bits shifted out."""
        amount = wire(m, places[:-1] & moves.replicate(len(places) - 1), f"{name}_distance")
        shifted, lost = shift_right_sticky(m, value, amount, f"{name}_shifted", value[-1], below)
        return extended(shifted.as_signed(), self.first + 2).as_signed(), lost

    def _rounded(self, m: Module, total: Value, mask: Value, leading: Value, random: Value | None) -> Value:
        """Return the rounded sum: a word is added to it, and the discarded bits are cleared."""
        width = self.first + 4
        negative = total[-1]
        if random is None:
            # Half a unit in the last place; a tie that becomes odd loses its last bit.
            word = wire(m, mask & ~Cat(mask[1:], NEVER), "half")
            tie = wire(m, (total[: len(mask)] & mask) == word, "tie")
            clears = wire(m, Cat(mask, NEVER) | (Cat(NEVER, mask) & tie.replicate(len(mask) + 1)), "cleared")
        else:
            bits, p = len(random), self.fmt.precision
            # The last place by the leading one: it can be lower only if nothing is discarded.
            lasts = (self.first - p, self.first - p + 1, self.first - p + 2)
            aligned = [extended(Cat(Const(0, last - bits), random), len(mask)) for last in lasts]
            above, at = leading[self.first + 1], leading[self.first]
            word = Mux(above, aligned[2], Mux(at, aligned[1], aligned[0]))
            word = wire(m, (word ^ negative.replicate(len(mask))) & mask, "random_added")
            clears = mask
        added = (extended(total.as_signed(), width).as_signed() + word)[:width]
        return wire(m, added, "sum_rounded") & ~extended(clears, width)

    def code(self, m: Module, x: Start) -> Value:
        """Return the code of a sum."""
        fmt, p = self.fmt, self.fmt.precision
        negative = x.significand[-1]
        significand = (x.significand[: p + 1] ^ negative.replicate(p + 1)) + negative
        magnitude = wire(m, (Cat(Const(0, fmt.man), x.exponent) + significand[: p + 1])[: fmt.width - 1], "magnitude")
        mask = fmt.sign_code - 1
        code = Mux(x.nan, fmt.nan_code & mask, Mux(x.inf, fmt.infinity(negative=False) & mask, magnitude))
        return Cat(code[: fmt.width - 1], x.sign & ~x.nan)


def refusal(asked: Sum) -> str | None:
    """Return the reason why a sum has no loop with late normalisation; None if it has one."""
    o, rounding = asked.o, asked.rounding
    for fmt in (o, *(fmt for term in asked.terms for fmt in term)):
        if not fmt.is_floating_point:
            return f"goal loop adds floats, not {fmt}"
    if not o.has_inf or o.flushes or not o.has_negative_zero:
        return f"goal loop needs an accumulator with infinities, -0 and subnormal numbers, unlike {o}"
    if rounding.mode not in ("rn", "sr"):
        return f"goal loop rounds by rn or stochastically, not {rounding}"
    if rounding.mode == "sr" and asked.excess is not None:
        return f"goal loop with {rounding} to {o} allows {asked.excess}"
    return None
