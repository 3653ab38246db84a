"""Sums of floats that are aligned to the largest exponent and truncated there.

Narrow terms can be placed on a grid of even exponents, which shortens the path: the lowest bit of an exponent shifts
its own significand by one place, while the largest of the upper bits of all exponents is found. Only the upper bits are
compared and subtracted. The terms have one bit more, and the lowest bit is cleared if the largest exponent is odd.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from amaranth.hdl import Cat, Const, Module, Mux, Value

from . import tree
from .formats import Float
from .raw import Raw
from .specs.dot import Alignment
from .wire import NEVER, never, shift_down, shift_up, shift_up_by_words, wire

DIGIT = 3
"""Maximum bits of a digit of `largest_by_digits`: seven comparisons with constants at a time."""

WORD = 8
"""Bits of a significand on the grid up to which each bit of a first operand is selected among two words, not three."""


@dataclass(frozen=True)
class Term:
    """Term of an aligned sum: ``(-1)^sign * significand * 2^(exponent + base - fraction)``.

    Attributes
    ----------
    sign, zero, nan, inf, invalid : Value
    exponent : Value
        Unsigned; more than zero if the number is not zero.
    significand : Value
        Unsigned, below 4 with the point above ``fraction`` bits.
    base : int
        Offset of ``exponent``.
    emin, emax : int
        Bounds on ``exponent + base`` of a number that is not zero.
    fraction : int
    shift : Value
        Number to add to ``exponent``, the same for all terms of a group; ``base``, ``emin`` and ``emax`` include it.
    """

    sign: Value
    exponent: Value
    significand: Value
    zero: Value
    nan: Value
    inf: Value
    base: int
    emin: int
    emax: int
    fraction: int
    invalid: Value = field(default_factory=never)
    shift: Value = field(default_factory=lambda: Const(0, 0))

    @classmethod
    def of(cls, *factors: Float, **values: Value) -> "Term":
        """Return a number of a format, or a product of two; ``values`` are those of `multiply` or `single`."""
        base, emin, emax, fraction = (
            sum(getattr(fmt, name) for fmt in factors) for name in ("bias", "emin", "emax", "man")
        )
        return cls(**values, base=-base, emin=emin, emax=emax, fraction=fraction)


def multiply(m: Module, x: Raw, y: Raw, *, dsp: bool, flags: bool) -> dict[str, Value]:
    """Return the values of a product of two unpacked floats as a term: its significand is not normalised."""
    values = tree.multiply(m, x, y, dsp=dsp, flags=flags, table=True)
    # NaN overrides infinity; both have all ones as exponent.
    inf = wire(m, x.inf | x.nan | y.inf | y.nan, "product_special")
    return values | {"inf": inf, "zero": wire(m, x.zero | y.zero, "product_zero")}


def single(x: Raw) -> dict[str, Value]:
    """Return the values of an unpacked float as a term."""
    names = ("sign", "exponent", "significand", "zero", "nan", "inf")
    return {name: getattr(x, name) for name in names} | {"invalid": x.flags.invalid}


def largest(m: Module, terms: Sequence[Term], name: str) -> Value:
    """Return the largest exponent of the terms that are not zero, or zero, in a tree of comparisons.

    The first level orders two terms that may be zero; this needs fewer LUTs than to clear exponents of zeros.
    """
    x = terms[0]
    if len(terms) == 1:
        return wire(m, Mux(x.zero, 0, x.exponent), name)
    if len(terms) == 2:
        y = terms[1]
        is_high = wire(m, Cat(x.exponent, ~x.zero) < Cat(y.exponent, ~y.zero), f"{name}_is_high")
        return wire(m, Mux(x.zero & y.zero, 0, Mux(is_high, y.exponent, x.exponent)), name)
    half = len(terms) // 2
    return larger(m, largest(m, terms[:half], f"{name}_low"), largest(m, terms[half:], f"{name}_high"), name)


def larger(m: Module, x: Value, y: Value, name: str) -> Value:
    """Return the larger of two unsigned numbers."""
    return wire(m, Mux(wire(m, x < y, f"{name}_is_high"), y, x), name)


def largest_by_digits(
    m: Module, numbers: Sequence[Value], present: Sequence[Value], name: str
) -> tuple[Value, list[Value]]:
    """Return the largest of the unsigned numbers that are present, or zero, and for each whether it is the largest.

    The highest digit is found first: those of all numbers are compared with each value of a digit. Only the numbers
    with the largest digit are present in the search of the next one. So the path grows with the width of the numbers,
    and little with their count.
    """
    width = len(numbers[0])
    count = -(-width // DIGIT)
    digits: list[Value] = []
    end = width
    for index in range(count):
        start = end - (width + index) // count
        parts = [number[start:end] for number in numbers]
        reached = []
        for value in range(1, 1 << (end - start)):
            reaches = Cat(*(there & (part >= value) for there, part in zip(present, parts, strict=True))).any()
            reached.append(wire(m, reaches, f"{name}_digit{index}_reaches_{value}"))
        digit = wire(m, _binary(reached), f"{name}_digit{index}")
        present = [
            wire(m, there & (part == digit), f"{name}_is_in_term{term}_to_digit{index}")
            for term, (there, part) in enumerate(zip(present, parts, strict=True))
        ]
        digits.insert(0, digit)
        end = start
    return Cat(*digits), list(present)


def _binary(reached: Sequence[Value]) -> Value:
    """Return the number of conditions that hold, each of which implies those before it; their count is 2^n - 1."""
    bits = []
    step = 1
    while step <= len(reached):
        # A bit is one from each odd multiple of its weight to the next even one.
        *rises, last = reached[step - 1 :: 2 * step]
        falls = reached[2 * step - 1 :: 2 * step]
        bits.append(Cat(*(rise & ~fall for rise, fall in zip(rises, falls, strict=True)), last).any())
        step *= 2
    return Cat(*bits)


def scale_on_grid(m: Module, terms: Sequence[Term]) -> tuple[list[Value], Value, Value]:
    """Return the distances of terms to the largest even exponent, that exponent, and whether the largest one is odd.

    The even exponent of a term is its exponent without the lowest bit; distances count pairs of places.
    """
    upper = [term.exponent[1:] for term in terms]
    top, are_largest = largest_by_digits(m, upper, [~term.zero for term in terms], "largest")
    odd = Cat(*(largest & term.exponent[0] for largest, term in zip(are_largest, terms, strict=True))).any()
    distances = [wire(m, (top - own)[: len(own)], "distance") for own in upper]
    return distances, wire(m, Cat(Const(0, 1), top), "largest_on_grid"), wire(m, odd, "largest_is_odd")


def place_on_grid(  # noqa: PLR0913 - its values are the ports of a module
    m: Module,
    alignment: Alignment,
    fraction: int,
    *,
    significand: Value,
    odd: Value,
    distance: Value,
    largest_is_odd: Value,
    is_second: bool,
) -> dict[str, Value]:
    """Shift a term down to the scale of the largest even exponent and truncate it.

    ``odd`` is the lowest bit of its exponent. The ``integer`` of the result is a magnitude with one bit more than that
    of `place`, at the top. Its lowest bit is below those that `place` keeps if the largest exponent is odd.
    """
    bits = fraction + alignment.integer + 1
    near = wire(m, shift_up(m, significand, odd, bits, "on_grid"), "on_grid")
    levels = _levels(bits, is_second or bits <= WORD)
    width = alignment.fraction + alignment.integer + 1
    shifted = shift_up_by_words(m, near[::-1], Cat(Const(0, 1), distance), width, levels, "placed")
    kept = Cat(~largest_is_odd, Const((1 << (width - 1)) - 1, width - 1))
    return {"integer": wire(m, shifted[::-1] & kept, "placed")}


def place(
    m: Module,
    alignment: Alignment,
    fraction: int,
    *,
    sign: Value,
    significand: Value,
    distance: Value,
    is_second: bool,
) -> dict[str, Value]:
    """Shift a term down to the scale of the largest exponent and truncate it.

    The ``integer`` of the result is a magnitude, or with ``floor`` a signed number. ``is_second`` is that of
    `tree.are_second`.
    """
    bits = fraction + alignment.integer
    top = Cat(significand, Const(0, bits - len(significand)))
    if not alignment.floor:
        # With the bits in reverse order, the shift is one up, and the bits beyond the width are removed.
        width, levels = alignment.fraction + alignment.integer, _levels(bits, is_second)
        shifted = shift_up_by_words(m, top[::-1], distance, width, levels, "placed")
        return {"integer": wire(m, shifted[::-1], "placed")}
    # The shift of a negative number rounds it down.
    top = wire(m, ((Cat(top, NEVER) ^ sign.replicate(bits + 1)) + sign)[: bits + 1], "signed_term")
    below = alignment.fraction - fraction
    placed = shift_down(m, Cat(Const(0, max(below, 0)), top), distance, "placed", top[-1])[max(-below, 0) :]
    return {"integer": wire(m, placed.as_signed(), "placed")}


def _levels(length: int, is_second: bool) -> int:
    """Return the number of bits of a shift distance that shift within a word.

    A bit of the result is then one of three bits, or one of two in three quarters of the places of a second operand.
    Three bits and their selects are one LUT of an FPGA, two bits and their selects merge into an adder.
    """
    shortest = -(-4 * (length - 1) // 5) if is_second else length // 2
    return max(shortest - 1, 1).bit_length()


def scale(m: Module, groups: Sequence[Sequence[Term]], zero: int | None = None) -> tuple[list[list[Value]], Value, int]:
    """Return the distances of terms to the largest exponent, that exponent, and its offset.

    The terms of a group have one format. Terms that are zero have the exponent ``zero``, or none.
    """
    base = min(group[0].base for group in groups)
    tops = []
    for number, group in enumerate(groups):
        offset = group[0].shift + (group[0].base - base)
        top = largest(m, group, f"largest{number}")
        # Without a number that is not zero, the largest exponent stays below all others.
        moved = len(group[0].shift) or group[0].base != base
        tops.append(wire(m, Mux(top.any(), top + offset, 0), f"offset_largest{number}") if moved else top)
    top = tops[0] if len(tops) == 1 else larger(m, tops[0], tops[1], "largest_exponent")
    highest = max(group[0].emax for group in groups)
    if counts_zeros(groups, zero):
        assert zero is not None
        any_zero = wire(m, Cat(*(term.zero for group in groups for term in group)).any(), "any_zero")
        top = larger(m, top, Mux(any_zero, zero - base, 0), "largest_with_zeros")
        highest = max(highest, zero)
    distances = []
    for number, group in enumerate(groups):
        moved = len(group[0].shift) or group[0].base != base
        own = wire(m, top - (group[0].shift + (group[0].base - base)), f"top{number}") if moved else top
        bits = max((highest - group[0].emin).bit_length(), 1)
        # Modulo 2^bits, the distance is that of every term that is not zero.
        distances.append([wire(m, (own - term.exponent)[:bits], "distance") for term in group])
    return distances, top, base


def counts_zeros(groups: Sequence[Sequence[Term]], zero: int | None) -> bool:
    """Return True if an exponent of zero terms can be above that of a number that is not zero."""
    return zero is not None and zero > min(group[0].emin for group in groups)


def summed(  # noqa: PLR0913 - terms, their scale, and the structure of the sum
    m: Module,
    groups: Sequence[Sequence[Term]],
    placed: Sequence[Value],
    top: Value,
    base: int,
    alignment: Alignment,
    *,
    fast: bool,
    zero: int | None = None,
) -> Raw:
    """Add placed terms. A negative sum is the two's complement of its magnitude."""
    terms = [term for group in groups for term in group]
    total = tree.total(
        m,
        [
            tree.Term(integer, NEVER if alignment.floor else term.sign, term.sign, term.nan, term.inf, term.invalid)
            for integer, term in zip(placed, terms, strict=True)
        ],
        chained=not fast,
    )
    # The magnitude of a floor can be one more than that of the largest number of its width.
    largest_term = (1 << (alignment.fraction + alignment.integer)) - (not alignment.floor)
    number = tree.as_raw(m, total, -alignment.fraction, (len(terms) * largest_term).bit_length(), NEVER, fast=fast)
    return replace(
        number,
        exponent=top,
        base=number.base + base,
        promises=number.promises.moved(*_exponents(groups, zero)),
    )


def _exponents(groups: Sequence[Sequence[Term]], zero: int | None) -> tuple[int, int]:
    """Return bounds on the largest exponent of terms that are not all zero."""
    lows, highs = ([getattr(group[0], name) for group in groups] for name in ("emin", "emax"))
    if zero is None or not counts_zeros(groups, zero):
        return min(lows), max(highs)
    # Either all terms of a group are zeros, and a term of another one is not, or a term of each is not zero.
    lowest = min(lows) if len(groups) == 1 else max(min(lows), min(zero, max(lows)))
    return lowest, max(*highs, zero)
