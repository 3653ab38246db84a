# amaranth: UnusedElaboratable=no
"""Properties of results that hold for all operands."""

from typing import Any

from amaranth.hdl import Const, Module, Value

from halfulp.hdl.formats import RN, RZ, parse
from halfulp.sim.implementation import Implementation, short
from halfulp.sim.ports import Ports

from .codes import is_nan, is_negative, is_zero, magnitude, negated, rank
from .miters import Codes, Miter, differ, widths
from .structures import clocked


def commutes(asked: Implementation) -> Miter:
    """``a`` and ``b`` change places."""

    def wrong(m: Module, i: Miter) -> Value:
        given = {name: i[name] if name in i.free else Const(0, 1) for name in unit.inputs}
        swapped = given | {"a": given["b"], "b": given["a"]}
        return differ(i.apply(m, asked.component(), given), i.apply(m, asked.component(), swapped))

    unit = asked.component()
    # A difference does not commute.
    return Miter({name: width for name, width in widths(unit.inputs).items() if name != "subtract"}, wrong)


def monotone(asked: Implementation) -> Miter:
    """Results of two numbers in order, rounded with the same random word, are in order."""

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
    """Rounded toward zero, a result is no larger in magnitude than rounded to nearest."""

    def wrong(m: Module, i: Miter) -> Value:
        near, low = (i.apply(m, asked.with_spec(rounding=mode).component(), i.free)["o"] for mode in (RN, RZ))
        return magnitude(o, low) > magnitude(o, near)

    unit = asked.with_spec(rounding=RN).component()
    o = unit.outputs["o"]
    return Miter(widths(unit.inputs), wrong)


def symmetric(asked: Implementation) -> Miter:
    """Operands of the other sign give the result of the other sign."""

    def wrong(m: Module, i: Miter) -> Value:
        # One factor of a product, both terms of a sum.
        turned = {name for name in formats if name != "b" or "subtract" in unit.inputs}
        other = i.free | {name: negated(formats[name], i[name]) for name in turned}
        one = i.apply(m, asked.component(), i.free)["o"]
        two = i.apply(m, asked.component(), other)["o"]
        # An exactly cancelled sum is +0 both times.
        exempt = is_zero(o, one) & is_zero(o, two) if o.has_negative_zero else Const(0, 1)
        return ~exempt & (two != negated(o, one))

    unit = asked.component()
    formats = Ports.of(unit.inputs).formats
    o = unit.outputs["o"]
    return Miter(widths(unit.inputs), wrong)


def valid(asked: Implementation) -> Miter:
    """A result is a valid code: the only NaN is the canonical one; where strings of codes are rounded, NaR comes of
    NaR alone and zero of a zero factor; without NaN, the sign is that of the exact result."""

    def wrong(m: Module, i: Miter) -> Value:
        return _invalid(unit, i.free, i.apply(m, asked.component(), i.free)["o"])

    unit = asked.component()
    if unit.stateful:
        return _valid_state(asked)
    return Miter(widths(unit.inputs), wrong)


def _invalid(unit: Any, given: Codes, result: Value) -> Value:
    inputs, o, formats = unit.inputs, unit.outputs["o"], Ports.of(unit.inputs).formats
    if o.rounds == "string":
        # No sum overflows to NaR, and no product is rounded to zero.
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
    """An accumulator has a valid code after a step that is accepted, from any state."""
    unit = asked.component()
    step = clocked(unit)
    o = unit.outputs["o"]

    def wrong(m: Module, i: Miter) -> Value:
        _, second = step.run(m, i, step.held(i), [0, 0], valid=Const(1, 1))
        invalid = _invalid(unit, {name: i[f"{name}@0"] for name in unit.inputs}, second.outputs["o"])
        # All but the canonical NaN follows from the start value, which has to be loaded.
        return invalid if o.has_nan and o.rounds != "string" else i["load@0"] & invalid

    return Miter(step.free(), wrong, (step.step,))


def conversion(fmt: str, rounding: str) -> Implementation:
    """The unit that rounds to a format from the wider one of its sums."""
    return short("convert", str(parse(fmt).default_accumulator()), to=fmt, rounding=rounding)
