# amaranth: UnusedElaboratable=no
"""Properties of results for all operands, as miters."""

from typing import TYPE_CHECKING

from amaranth.hdl import Const, Module, Value

from halfulp.hdl.formats import RN, RZ, parse
from halfulp.implementation import Implementation, short
from halfulp.sim.ports import Ports

from .codes import is_nan, is_negative, is_zero, magnitude, negated, rank
from .miters import Codes, Miter, differ, widths
from .structures import clocked

if TYPE_CHECKING:
    from halfulp.units import Unit


def commutes(asked: Implementation) -> Miter:
    """Claim that ``a`` and ``b`` are interchangeable."""

    def wrong(m: Module, i: Miter) -> Value:
        given = {name: i[name] if name in i.free else Const(0, 1) for name in unit.inputs}
        swapped = given | {"a": given["b"], "b": given["a"]}
        return differ(i.apply(m, asked.component(), given), i.apply(m, asked.component(), swapped))

    unit = asked.component()
    # A difference does not commute.
    return Miter({name: width for name, width in widths(unit.inputs).items() if name != "subtract"}, wrong)


def monotone(asked: Implementation) -> Miter:
    """Claim that rounding with the same random word preserves the order of two numbers."""

    def wrong(m: Module, i: Miter) -> Value:
        words = {name: i[name] for name in unit.words}
        results = [i.apply(m, asked.component(), {"a": i[name], **words})["o"] for name in ("x", "y")]
        ordered = rank(a, i["x"]) <= rank(a, i["y"])
        numbers = ~(is_nan(a, i["x"]) | is_nan(a, i["y"]) | is_nan(o, results[0]) | is_nan(o, results[1]))
        return ordered & numbers & (rank(o, results[0]) > rank(o, results[1]))

    unit = asked.component()
    a, o = unit.inputs["a"], unit.outputs["o"]
    return Miter({"x": a.width, "y": a.width, **unit.words}, wrong)


def toward_zero(asked: Implementation) -> Miter:
    """Claim that a result rounded toward zero is not larger in magnitude than one rounded to nearest."""

    def wrong(m: Module, i: Miter) -> Value:
        near, low = (i.apply(m, asked.with_spec(rounding=mode).component(), i.free)["o"] for mode in (RN, RZ))
        return magnitude(o, low) > magnitude(o, near)

    unit = asked.with_spec(rounding=RN).component()
    o = unit.outputs["o"]
    return Miter(widths(unit.inputs), wrong)


def symmetric(asked: Implementation) -> Miter:
    """Claim that negated operands give the negated result."""

    def wrong(m: Module, i: Miter) -> Value:
        # Negate one factor of a product, and both terms of a sum.
        turned = {name for name in formats if name != "b" or "subtract" in unit.inputs}
        other = i.free | {name: negated(formats[name], i[name]) for name in turned}
        result = i.apply(m, asked.component(), i.free)["o"]
        mirrored = i.apply(m, asked.component(), other)["o"]
        # An exactly cancelled sum is +0 in both cases.
        exempt = is_zero(o, result) & is_zero(o, mirrored) if o.has_negative_zero else Const(0, 1)
        return ~exempt & (mirrored != negated(o, result))

    unit = asked.component()
    formats = Ports.inputs_of(unit).formats
    o = unit.outputs["o"]
    return Miter(widths(unit.inputs), wrong)


def valid(asked: Implementation) -> Miter:
    """Claim that every result is a valid code.

    The only NaN is canonical. In formats that round on the code string, NaR results only from NaR, and zero only from a
    zero factor. In formats without NaN, the sign is that of the exact result.
    """

    def wrong(m: Module, i: Miter) -> Value:
        return _invalid(unit, i.free, i.apply(m, asked.component(), i.free)["o"])

    unit = asked.component()
    if unit.stateful:
        return _valid_state(asked)
    return Miter(widths(unit.inputs), wrong)


def _invalid(unit: "Unit", given: Codes, result: Value) -> Value:
    inputs, o, formats = unit.inputs, unit.outputs["o"], Ports.inputs_of(unit).formats
    if o.rounds == "string":
        # No sum overflows to NaR, and no product rounds to zero.
        lost = Const(0, 1)
        for name, fmt in formats.items():
            lost = lost | is_nan(fmt, given[name])
        bad = is_nan(o, result) != lost
        if set(inputs) - set(unit.words) == {"a", "b"}:
            nothing = is_zero(formats["a"], given["a"]) | is_zero(formats["b"], given["b"])
            bad = bad | ~lost & (is_zero(o, result) != nothing)
        return bad
    if o.has_nan:
        return is_nan(o, result) & (result != o.nan_code)
    a, b = (is_negative(formats[name], given[name]) for name in ("a", "b"))
    below, above = rank(o, result) < 0, rank(o, result) > 0
    if "subtract" in inputs:
        b = b ^ given["subtract"]
        lone = is_zero(formats["b"], given["b"])
        return ~lone & (a & b & above | ~a & ~b & below)
    product = a ^ b
    if "c" in inputs:
        c = is_negative(formats["c"], given["c"])
        lone = is_zero(formats["a"], given["a"]) | is_zero(formats["b"], given["b"])
        return ~lone & (product & c & above | ~product & ~c & below)
    return product & above | ~product & below


def _valid_state(asked: Implementation) -> Miter:
    """Claim that an accumulator has a valid code after an accepted step, from any state."""
    unit = asked.component()
    step = clocked(unit)
    o = unit.outputs["o"]

    def wrong(m: Module, i: Miter) -> Value:
        _, second = step.run(m, i, step.held(i), [0, 0], valid=Const(1, 1))
        invalid = _invalid(unit, {name: i[f"{name}@0"] for name in unit.inputs}, second.outputs["o"])
        # Only the canonical NaN is independent of the state before; other properties need a loaded start value.
        return invalid if o.has_nan and o.rounds != "string" else i["load@0"] & invalid

    return Miter(step.free(), wrong, (step.step,))


def conversion(fmt: str, rounding: str) -> Implementation:
    """Return the conversion to a format from its wider accumulator format."""
    return short("convert", str(parse(fmt).default_accumulator()), to=fmt, rounding=rounding)
