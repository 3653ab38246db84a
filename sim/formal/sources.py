"""Claims about the random source of a unit, as miters of the clock cycles of a period."""

from fractions import Fraction

from amaranth.hdl import Array, Cat, Const, Module, Value

from halfulp.hdl.formats.source import Source
from halfulp.hdl.specs import SruSpec
from halfulp.implementation import Implementation

from .miters import Clocked, Codes, Cycle, Miter, differ
from .netlist import SOURCE
from .structures import clocked

LONGEST = 64
"""Longest period in a miter, which has a copy of the unit for each cycle."""


def provable(asked: Implementation) -> list[str]:
    """Return the kinds of claims about the random source of a unit without register stages."""
    source = getattr(asked.spec, "random", None)
    if source is None or source.period > LONGEST:
        return []
    built = clocked(asked.component())
    # Exact results need no random words.
    if not _of_source({name: Const(0) for name in built.free()}):
        return []
    one_carry = isinstance(asked.spec, SruSpec) and not asked.spec.increment and asked.spec.lanes == 1
    return ["period", *["chance"] * one_carry]


def period(asked: Implementation) -> Miter:
    """Claim that a source returns to any state after its period, and not after a divisor of it.

    It is enough to examine the largest divisors: the period over each of its primes.
    """
    unit, source = clocked(asked.component()), _source(asked)
    primes = [prime for prime in range(2, source.period + 1) if source.period % prime == 0 and _is_prime(prime)]

    def wrong(m: Module, i: Miter) -> Value:
        states = [_of_source(cycle.held) for cycle in _cycles(unit, m, i, source.period + 1)]
        early = Cat(*(~differ(states[source.period // prime], states[0]) for prime in primes)).any()
        return _is_valid(unit, i) & (early | differ(states[-1], states[0]))

    return Miter(unit.free(), wrong, (unit.step,))


def chance(asked: Implementation) -> Miter:
    """Claim that a stochastic rounder rounds up as often as `Stream.chance_of_up` says, in a period from any state."""
    built, spec = asked.component(), asked.spec
    assert isinstance(spec, SruSpec)
    unit, source, bits, places = clocked(built), _source(asked), spec.rounding.bits, spec.a.frac_bits
    (stream,), (carry,) = built.sources.values(), [name for name in unit.outputs if name.startswith("up")]
    (operand,) = built.inputs
    parts = 1 << places
    counts = Array(int(stream.chance_of_up(Fraction(part, parts), bits) * source.period) for part in range(parts))

    def wrong(m: Module, i: Miter) -> Value:
        ups = sum((cycle.outputs[carry] for cycle in _cycles(unit, m, i, source.period)), Const(0, 1))
        return _is_valid(unit, i) & (ups != counts[i[f"{operand}@0"][:places]])

    return Miter(unit.free(), wrong, (unit.step,))


def _of_source(registers: Codes) -> Codes:
    """Return the registers of random sources among those of a unit, which may also have an accumulator."""
    return {name: value for name, value in registers.items() if SOURCE.search(name)}


def _source(asked: Implementation) -> Source:
    source = asked.spec.random
    assert source is not None
    return source


def _cycles(unit: Clocked, m: Module, i: Miter, count: int) -> list[Cycle]:
    """Add consecutive cycles with the same operands."""
    given = {name: i[f"{name}@0"] for name in unit.inputs if name not in unit.fixed and name != "valid"}
    return unit.run(m, i, unit.held(i), range(count), valid=Const(1, 1), **given)


def _is_valid(unit: Clocked, i: Miter) -> Value:
    """Return 1 if the LFSR is not zero, which is no state of it."""
    return Cat(*(value.any() for name, value in unit.held(i).items() if name.endswith("lfsr"))).all()


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, number))
