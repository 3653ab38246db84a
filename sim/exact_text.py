"""A vector as text: codes, bits, numbers, and the exact result before rounding."""

import functools
import itertools
import math
import operator
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from halfulp.hdl.formats import Compound, Format, decimal_text
from halfulp.hdl.specs import DivSpec, ReciprocalSpec, RsqrtSpec
from halfulp.hdl.specs.division import EndlessSpec
from halfulp.hdl.specs.formula import Port, Role
from halfulp.hdl.specs.scaleb import ScalebSpec
from halfulp.hdl.specs.segments import Segments

from .ports import Ports
from .reference import exact_call

Number = Fraction | float

MOST_POWER = 2000
"""Power of two up to which a scaled number is shown as a decimal, too."""

ROOT_BITS = 64
"""Significant bits of square roots, at least."""


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


def exact_result(unit: Any, codes: dict[str, int]) -> str:
    """Format the exact result of a unit before rounding, with its expression."""
    inputs = Ports.inputs_of(unit)
    formats, columns = inputs.operands, {name: np.array([code], dtype=np.uint64) for name, code in codes.items()}
    given = inputs.select(columns)
    values = {name: fmt.decode(int(given[name][0])) for name, fmt in formats.items()}
    scales = [fmt.decode(codes[name]) for name, fmt in inputs.scales.items()]
    if len(unit.outputs) > 1 + bool(unit.spec.flags) or any(
        isinstance(fmt, Compound) for fmt in (*unit.spec.operands.values(), getattr(unit.spec, "o", None))
    ):
        # Operands of comparisons and of lane-wise rounding are the exact results; sums of parts have several.
        return ""
    if "table" in unit.parameters:
        table: Segments = unit.parameters["table"]
        magnitude, negative = table.number(values["a"], formats["a"].negative(codes["a"]))
        return f"{table.name}(a), by its line = {number(-magnitude if negative else magnitude)}"
    if isinstance(unit.spec, ScalebSpec):
        return _scaled(values["a"], formats["b"].decode(codes["b"]))
    if isinstance(unit.spec, EndlessSpec):
        return _endless(unit.spec, values)
    if (len(values) == 1 and not scales) or "," in unit.spec.form.formula:
        return _before_rounding(unit, codes)
    if isinstance(unit.arguments[0], list):
        products = [_times(values[f"a{index}"], values[f"b{index}"]) for index in range(unit.k)]
        products = [functools.reduce(_times, scales, product) for product in products]
        total = functools.reduce(_add, products, values.get("c", Fraction(0)))
        return f"exact sum = {number(total)}"
    minus = bool(codes.get("subtract"))
    if "b" not in values:
        return f"a + c = {number(_add(values['a'], values['c']))}"
    if "subtract" in codes and "c" not in values:
        sign, second = (" - ", -values["b"]) if minus else (" + ", values["b"])
        return f"a{sign}b = {number(_add(values['a'], second))}"
    product = _times(values["a"], values["b"])
    if "c" not in values:
        return f"a * b = {number(product)}"
    via = unit.parameters.get("product")
    text = "a * b"
    if isinstance(via, Format):
        rounding = unit.parameters["product_rounding"]
        negative = formats["a"].negative(codes["a"]) != formats["b"].negative(codes["b"])
        word, saturate = codes.get("random_product", 0), unit.parameters["saturate"]
        if isinstance(product, Fraction):
            code = via.encode_magnitude(abs(product), negative, rounding, word, saturate)
        else:
            code = via.encode(product)
        text, product = f"(a * b = {number(product)}, rounded to {via.text(code)})", via.decode(code)
    if minus:
        return f"c - {text} = {number(_add(values['c'], -product))}"
    return f"{text} + c = {number(_add(product, values['c']))}"


def _before_rounding(unit: Any, codes: dict[str, int]) -> str:
    """Format the result of the exact model before its rounding; empty if it rounds none."""
    from halfulp.golden import exact

    operation, operands, parameters = exact_call(unit, dict.fromkeys(unit.words, 0) | codes)
    found = exact.unrounded(operation, *operands, **parameters)
    return number(found[-1].value) if found else ""


def _scaled(value: Number, power: Number) -> str:
    """Format a number times a power of two, without the decimal beyond the range of 2^-2000 to 2^2000."""
    if not isinstance(value, Fraction) or value == 0 or -MOST_POWER <= power <= MOST_POWER:
        return number(value * Fraction(2) ** int(power) if isinstance(value, Fraction) else value)
    odd, _, exponent = number(value).partition(" = ")[2].partition(" * 2^")
    return f"{odd} * 2^{int(exponent) + int(power)}"


def _endless(spec: EndlessSpec, values: dict[str, Number]) -> str:
    """Format a quotient or root in 17 digits; empty if an operand is zero, infinite, NaN, or negative under a root."""
    numbers = {name: value for name, value in values.items() if isinstance(value, Fraction) and value}
    if len(numbers) < len(values):
        return ""
    a = numbers["a"]
    match spec:
        case DivSpec():
            exact = a / numbers["b"]
        case ReciprocalSpec():
            exact = 1 / a
        case _ if a < 0:
            return ""
        case _:
            a = 1 / a if isinstance(spec, RsqrtSpec) else a
            places = ROOT_BITS + max(a.denominator.bit_length() - a.numerator.bit_length(), 0)
            exact = Fraction(math.isqrt(math.floor(a * 4**places)), 2**places)
    return f"{spec.SUMMARY} = {decimal_text(exact, 17)}"


def shown(unit: Any, inputs: Ports, codes: dict[str, int]) -> list[str]:
    """Format the inputs of a vector, without state controls, and its exact result."""
    lines = [line(port, codes[port.name]) for port in inputs if port.role is not Role.STATE]
    if exact := exact_result(unit, codes):
        lines.append(f"{'':9}exact          {exact}")
    return lines


def _result(operation: Callable[[Any, Any], Number], x: Number, y: Number) -> Number:
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return operation(x, y)
    # With an infinite operand only the sign of the other one matters; a huge one must not overflow to infinity.
    return operation(*(value if isinstance(value, float) else float((value > 0) - (value < 0)) for value in (x, y)))


_times, _add = partial(_result, operator.mul), partial(_result, operator.add)
