"""Corner cases of a unit's operands that depend on the function it computes."""

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from halfulp.hdl.formats.base import Format, floor_log2
from halfulp.hdl.specs import UnitSpec
from halfulp.hdl.specs.formula import Formula

from .corner_blocks import blocks_of_numbers, pairs_of_blocks
from .corner_middles import middles
from .corner_operands import targets, truncated, values
from .corner_registers import registers
from .corner_segments import corner_arguments_of
from .corner_sums import of_formula
from .directed import Directed
from .fields import Codes, Grid
from .ports import Ports

if TYPE_CHECKING:
    from halfulp.units import Unit

COUNT = 1 << 11
"""Number of vectors with results that are hard to round."""

STEPS = 1 << 16
"""Number of steps that add mainly one product."""


def corner_cases(unit: "Unit") -> dict[str, Codes]:
    """Return operand codes that test the function of a unit, by port; columns of one length belong together.

    Line segments have arguments around breakpoints and zeros. Quotients, roots and products with powers of two are at
    or next to numbers and ties of the result format, numbers that are rounded to integers at or next to these and
    their middles, and dividends of remainders at or next to multiples of the divisor and their middles. Blocks are
    zero, special, at the ends of the range or at ties. Exact sums of products have mainly one product. Formulas that
    multiply exact sums have results at or next to numbers and ties, and sums that cancel. Other units have none.
    """
    spec = unit.spec
    for call in spec.formula.calls:
        if call.function == "pwl":
            return {"a": corner_arguments_of(unit.parameters["table"])}
        if call.function in OPERANDS:
            return _of_function(call.function, spec.without_source)
    terms = [term for step in spec.formula.sums for term in step.terms]
    if len(spec.formula.results) == 1 and any(term.scales for term in terms):
        return pairs_of_blocks(spec.a.element, spec.b.element, spec.k)
    operands = tuple(Ports.inputs_of(unit).operands.items())
    exact = {step.name for step in spec.formula.sums if step.o is None}
    if any(len(term.names) > 1 and exact & {*term.names} for term in terms):
        return of_formula(spec.formula, operands, COUNT)
    return _steps(spec.formula, operands) if exact else {}


@lru_cache(maxsize=16)
def _of_function(name: str, spec: UnitSpec) -> dict[str, Codes]:
    """Return the operands of a function, and as many whose results are next to ties only, if it has such ones."""
    operands = OPERANDS[name](spec)
    return {port: np.concatenate([operands[port], codes]) for port, codes in middles(spec, COUNT).items()} or operands


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
def _steps(formula: Formula, operands: tuple[tuple[str, Format], ...]) -> dict[str, Codes]:
    """Return operands of a sum with one product and its other terms, and the other products of exact sums near zero.

    Sums of several random products are seldom far below the other terms, and seldom remain small after cancellation.
    """
    rng = np.random.default_rng(0)
    formats, o = dict(operands), formula.sums[-1].o
    assert o is not None
    first, *others = (term.names for step in formula.sums if step.o is None for term in step.terms)
    near_zero = {name for names in others for name in names}
    mac = {name: fmt for name, fmt in formats.items() if name not in near_zero}
    codes = Directed(mac, [first], [o], rng, COUNT).rows(STEPS)
    for names in others:
        # All factors are the smallest numbers in half of the steps, and zero in the others.
        smallest = rng.integers(0, 2, STEPS).astype(np.uint64)
        for name in names:
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


def _registers(spec: Any) -> dict[str, Codes]:
    """Return registers of a floating-point unit, also with scalars whose quotients and roots are hard to round."""
    parts = [registers(spec, COUNT)]
    for fmt in spec.formats if spec.divide else ():
        grid, ones = Grid.of(fmt), np.uint64((1 << spec.width) - (1 << fmt.width))
        quotients, roots = _quotients(grid, grid, grid), _arguments(grid, grid, _square)
        for x, y in ((quotients["a"], quotients["b"]), (roots["a"], quotients["b"])):
            parts.append({"rs1": x | ones, "rs2": y | ones, "rs3": np.full_like(x, ones)})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _grids(spec: Any) -> list[Grid]:
    """Return the formats of the operands of a function, and of its result."""
    return [Grid.of(fmt) for fmt in (*spec.operands.values(), spec.o)]


def _of_steps(spec: Any) -> dict[str, Codes]:
    """Return the same pairs for all rows and columns of a step."""
    of_one = pairs_of_blocks(*spec.elements, spec.k)
    counts = zip("ab", (spec.rows, spec.columns), strict=True)
    return {
        f"{name}{place * spec.k + index}": of_one[f"{name}{index}"]
        for name, count in counts
        for place in range(count)
        for index in range(spec.k)
    }


OPERANDS: dict[str, Callable[[Any], dict[str, Codes]]] = {
    "div": lambda spec: _quotients(*_grids(spec)),
    "reciprocal": lambda spec: _arguments(*_grids(spec), _reciprocal),
    "sqrt": lambda spec: _arguments(*_grids(spec), _square),
    "rsqrt": lambda spec: _arguments(*_grids(spec), _reciprocal_square),
    "scaleb": lambda spec: _scaled(*_grids(spec)),
    "remainder": lambda spec: _remainders(*_grids(spec)[:2]),
    "rint": lambda spec: _near_integers(_grids(spec)[0]),
    "mma": _of_steps,
    "fpu": _registers,
    "blockquantize": lambda spec: blocks_of_numbers(spec.a, spec.o),
}
"""Operands of functions with results that are hard to round, by the name of the function."""
