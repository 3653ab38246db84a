"""Corner cases of a unit's operands that depend on the function it computes."""

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from halfulp.hdl.formats.base import Format, floor_log2
from halfulp.hdl.specs import (
    BlockDotSpec,
    BlockMacSpec,
    BlockQuantizeSpec,
    DivSpec,
    ReciprocalSpec,
    RsqrtSpec,
    SqrtSpec,
)
from halfulp.hdl.specs.division import EndlessSpec
from halfulp.hdl.specs.integral import RintSpec
from halfulp.hdl.specs.remainder import RemainderSpec
from halfulp.hdl.specs.scaleb import ScalebSpec
from halfulp.hdl.specs.sparsemac import SparseMacSpec

from .corner_blocks import blocks_of_numbers, pairs_of_blocks
from .corner_middles import middles
from .corner_operands import targets, truncated, values
from .corner_segments import corner_arguments_of
from .directed import Directed
from .fields import Codes, Grid
from .ports import Ports

COUNT = 1 << 11
"""Number of vectors with results that are hard to round."""

STEPS = 1 << 16
"""Number of steps that add mainly one product."""


def corner_cases(unit: Any) -> dict[str, Codes]:
    """Return operand codes that test the function of a unit, by port; columns of one length belong together.

    Line segments have arguments around breakpoints and zeros. Quotients, roots and products with powers of two are at
    or next to numbers and ties of the result format, numbers that are rounded to integers at or next to these and
    their middles, and dividends of remainders at or next to multiples of the divisor and their middles. Blocks are
    zero, special, at the ends of the range or at ties. Steps with structured sparsity add mainly one product. Other
    units have none.
    """
    table = unit.parameters.get("table")
    if table is not None:
        return {"a": corner_arguments_of(table)}
    match unit.spec:
        case EndlessSpec() as spec:
            return _near_middles(spec.without_source)
        case BlockQuantizeSpec() as spec:
            return blocks_of_numbers(spec.a, spec.o)
        case BlockDotSpec() | BlockMacSpec() as spec:
            return pairs_of_blocks(spec.a.element, spec.b.element, spec.k)
        case ScalebSpec() as spec:
            return _scaled(Grid.of(spec.a), Grid.of(spec.b), Grid.of(spec.o))
        case RemainderSpec() as spec:
            return _remainders(Grid.of(spec.a), Grid.of(spec.b))
        case RintSpec() as spec:
            return _near_integers(Grid.of(spec.a))
        case SparseMacSpec() as spec:
            return _steps(spec, tuple(Ports.inputs_of(unit).operands.items()))
    return {}


@lru_cache(maxsize=16)
def _near_middles(spec: EndlessSpec) -> dict[str, Codes]:
    """Return operands whose results are numbers or ties, or next to them, and as many that are next to ties only."""
    match spec:
        case DivSpec():
            near = _quotients(Grid.of(spec.a), Grid.of(spec.b), Grid.of(spec.o))
        case ReciprocalSpec():
            near = _arguments(Grid.of(spec.a), Grid.of(spec.o), _reciprocal)
        case SqrtSpec():
            near = _arguments(Grid.of(spec.a), Grid.of(spec.o), _square)
        case RsqrtSpec():
            near = _arguments(Grid.of(spec.a), Grid.of(spec.o), _reciprocal_square)
        case _:
            return {}
    return {name: np.concatenate([near[name], codes]) for name, codes in middles(spec, COUNT).items()}


@lru_cache(maxsize=16)
def _quotients(a: Grid, b: Grid, o: Grid) -> dict[str, Codes]:
    """Return dividends and divisors: the best approximations of a number or tie that their significands allow.

    A fraction of two integers below 2^p can be as close to a tie as 2^-2p; continued fractions find it.
    """
    rng = np.random.default_rng(0)
    dividends, divisors = [], []
    for target in targets(o, rng, COUNT):
        size = abs(target)
        scale = floor_log2(size) + 1 if size else 0
        bits = min(a.man, b.man) + 1
        # Random limits of the integers give approximations on both sides.
        near = (size / Fraction(2) ** scale).limit_denominator(int(rng.integers(1 << (bits - 1), 1 << bits)))
        low = max(b.quantum, a.quantum - scale)
        divisor = Fraction(2) ** int(rng.integers(low, max(b.emax - bits, low) + 1))
        dividends.append(near.numerator * divisor * Fraction(2) ** scale * (-1 if target < 0 else 1))
        divisors.append(near.denominator * divisor)
    return {"a": truncated(a, dividends), "b": truncated(b, divisors)}


@lru_cache(maxsize=16)
def _arguments(a: Grid, o: Grid, inverse: Callable[[Fraction], Fraction]) -> dict[str, Codes]:
    """Return arguments of a function, given its inverse, next to those whose results are numbers or ties."""
    rng = np.random.default_rng(0)
    codes = truncated(a, [inverse(target) for target in targets(o, rng, COUNT)])
    return {"a": a.neighbour(codes, rng.choice(np.array([0, 0, 0, 1, 1, -1, 2]), COUNT))}


@lru_cache(maxsize=16)
def _scaled(a: Grid, b: Grid, o: Grid) -> dict[str, Codes]:
    """Return numbers and powers of two whose products are next to numbers or ties of the result format."""
    rng = np.random.default_rng(0)
    numbers, powers = [], []
    for target in targets(o, rng, COUNT):
        exponent = floor_log2(abs(target)) if target else 0
        power = exponent - int(rng.integers(a.quantum, a.emax + 1))
        power = min(max(power, int(b.fmt.lowest)), int(b.fmt.largest))
        numbers.append(target / Fraction(2) ** power)
        powers.append(Fraction(power))
    codes = a.neighbour(truncated(a, numbers), rng.choice(np.array([0, 0, 0, 1, -1]), COUNT))
    return {"a": codes, "b": truncated(b, powers)}


@lru_cache(maxsize=16)
def _remainders(a: Grid, b: Grid) -> dict[str, Codes]:
    """Return dividends at and next to multiples of divisors and the middles between them."""
    rng = np.random.default_rng(0)
    codes = truncated(b, targets(b, rng, COUNT))
    divisors = values(b, codes)
    bits = rng.integers(0, a.man + 3, COUNT).tolist()
    halves = [Fraction(int(rng.integers(0, 1 << count, endpoint=True)), 2) for count in bits]
    signed = [-half if rng.random() < 0.5 else half for half in halves]
    dividends = truncated(a, [half * divisor for half, divisor in zip(signed, divisors, strict=True)])
    return {"a": a.neighbour(dividends, rng.choice(np.array([0, 0, 0, 1, -1]), COUNT)), "b": codes}


@lru_cache(maxsize=16)
def _steps(spec: SparseMacSpec, operands: tuple[tuple[str, Format], ...]) -> dict[str, Codes]:
    """Return steps with one product and an accumulator as in a multiply-accumulate, and the other products near zero.

    Sums of several random products are seldom far below the accumulator, and seldom remain small after cancellation.
    """
    rng = np.random.default_rng(0)
    formats = dict(operands)
    others = [(f"a{place}", f"b{place}") for place in range(1, spec.k)]
    near_zero = {name for pair in others for name in pair}
    mac = {name: fmt for name, fmt in formats.items() if name not in near_zero}
    codes = Directed(mac, [("a0", "b0")], [spec.o], rng, COUNT).rows(STEPS)
    for pair in others:
        # Both factors are the smallest numbers in half of the steps, and zero in the others.
        smallest = rng.integers(0, 2, STEPS).astype(np.uint64)
        for name in pair:
            codes[name] = Grid.of(formats[name]).signed(rng.integers(0, 2, STEPS), smallest)
    return codes


def _square(number: Fraction) -> Fraction:
    return number * number


def _reciprocal(number: Fraction) -> Fraction:
    return 1 / number if number else Fraction(0)


def _reciprocal_square(number: Fraction) -> Fraction:
    return _reciprocal(_square(number))


@lru_cache(maxsize=16)
def _near_integers(a: Grid) -> dict[str, Codes]:
    """Return numbers at and next to integers and the middles between them."""
    rng = np.random.default_rng(0)
    scales = rng.integers(0, a.man + 2, COUNT)
    halves = [Fraction(int(rng.integers(0, 1 << scale, endpoint=True)), 2) for scale in scales.tolist()]
    signed = [-number if rng.random() < 0.5 else number for number in halves]
    codes = truncated(a, signed)
    return {"a": a.neighbour(codes, rng.choice(np.array([0, 0, 0, 1, -1]), COUNT))}
