"""A vector as text: codes, bits, numbers, and the exact result before rounding."""

import itertools
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from halfulp.hdl.formats import Saturation, decimal_text
from halfulp.hdl.specs.division import EndlessSpec
from halfulp.hdl.specs.formula import Port, Role, Sum
from halfulp.hdl.specs.scaleb import ScalebSpec

from .ports import Ports
from .reference import exact_call

if TYPE_CHECKING:
    from halfulp.units import Unit

Number = Fraction | float

MOST_POWER = 2000
"""Power of two up to which a scaled number is shown as a decimal, too."""


def bits(port: Port, code: int) -> str:
    """Format a code in binary, with its fields separated."""
    text = f"{code:0{port.width}b}"
    if port.fmt is None:
        return text
    ends = itertools.accumulate(reversed(port.fmt.fields().values()), initial=0)
    return "_".join(text[start:end] for start, end in itertools.pairwise(ends) if start < end)


def line(port: Port, code: int, what: str = "") -> str:
    """Format the name, code and value of one port."""
    digits = -(-port.width // 4)
    number = port.fmt.text(code) if port.fmt is not None else str(code)
    return f"{what:9}{port.name:14} 0x{code:0{digits}x}  {bits(port, code)}  {number}"


def number(value: Number) -> str:
    """Format an exact number as a decimal and as an odd integer times a power of two."""
    if isinstance(value, float):
        return str(value)
    if value == 0:
        return "0"
    zeros = (value.numerator & -value.numerator).bit_length() - 1
    exponent = zeros - (value.denominator.bit_length() - 1)
    return f"{decimal_text(value, 17)} = {value.numerator >> zeros} * 2^{exponent}"


def exact_result(unit: "Unit", codes: dict[str, int]) -> str:
    """Format the exact result of a unit before its last rounding, with its expression; empty if it has several."""
    from halfulp.golden import exact

    spec, steps = unit.spec, [step for step in unit.spec.formula.sums if step.o is not None]
    formats = (*spec.operands.values(), getattr(spec, "o", None))
    if len(spec.formula.results) != 1 or any(fmt is not None and fmt.parts > 1 for fmt in formats):
        # Operands of comparisons and of lane-wise rounding are the exact results; sums of parts have several.
        return ""
    if isinstance(spec, ScalebSpec):
        return _scaled(spec.a.decode(codes["a"]), spec.b.decode(codes["b"]))
    operation, operands, parameters = exact_call(unit, dict.fromkeys(unit.words, 0) | codes)
    *earlier, last = exact.unrounded(operation, *operands, **parameters)
    if isinstance(spec, EndlessSpec):
        return (
            f"{spec.SUMMARY} = {decimal_text(last.value, 17)}"
            if isinstance(last.value, Fraction) and last.value
            else ""
        )
    if "table" in unit.parameters:
        return f"{unit.parameters['table'].name}(a), by its line = {number(last.value)}"
    if any(port.argument for port in spec.ports):
        kind = "aligned" if steps[-1].alignment else "last" if earlier else "exact"
        return f"{kind} sum = {number(last.value)}"
    texts = dict[str, str]()
    values = iter(earlier)
    for step in spec.formula.sums[:-1]:
        exactly = f"({_expression(step, codes, texts)})"
        texts[step.name] = exactly if step.o is None else _rounded(step, next(values), codes, spec.saturate)
    text = _expression(steps[-1], codes, texts)
    return f"{text} = {number(last.value)}" if text else number(last.value)


def _expression(step: Sum, codes: dict[str, int], texts: Mapping[str, str]) -> str:
    """Format a sum with the signs that its controls choose; empty for one operand or function."""
    signed = [((codes.get(term.negated_by or "", 0) == 1) != term.negative, term) for term in step.terms]
    if len(signed) == len(signed[0][1].factors) == 1:
        return ""
    minus, plus = (
        [
            " * ".join(texts.get(str(name), str(name)) for name in term.factors)
            for sign, term in signed
            if sign == negative
        ]
        for negative in (True, False)
    )
    return " - ".join([" + ".join(plus), *minus])


def _rounded(step: Sum, exact: Any, codes: dict[str, int], saturate: Saturation) -> str:
    """Format an intermediate result before and after its rounding."""
    assert step.o is not None
    code = step.o.encode(exact.value)
    if isinstance(exact.magnitude, Fraction):
        word = codes.get(step.word or "", 0)
        code = step.o.encode_magnitude(exact.magnitude, exact.negative, step.rounding, word, saturate)
    return f"({_expression(step, codes, {})} = {number(exact.value)}, rounded to {step.o.text(code)})"


def _scaled(value: Number, power: Number) -> str:
    """Format a number times a power of two, without the decimal beyond the range of 2^-2000 to 2^2000."""
    if not isinstance(value, Fraction) or value == 0 or -MOST_POWER <= power <= MOST_POWER:
        return number(value * Fraction(2) ** int(power) if isinstance(value, Fraction) else value)
    odd, _, exponent = number(value).partition(" = ")[2].partition(" * 2^")
    return f"{odd} * 2^{int(exponent) + int(power)}"


def shown(unit: "Unit", inputs: Ports, codes: dict[str, int]) -> list[str]:
    """Format the inputs of a vector, without state controls, and its exact result."""
    lines = [line(port, codes[port.name]) for port in inputs if port.role is not Role.STATE]
    if exact := exact_result(unit, codes):
        lines.append(f"{'':9}exact          {exact}")
    return lines
