"""Meanings of ports in words, for comments in Verilog and for the pages of packages."""

from typing import Any

from halfulp.hdl.formats.rounding import MODE_TEXT, Rounding
from halfulp.hdl.specs.classify import CLASSES, ClassifySpec
from halfulp.hdl.specs.formula import Port, Role
from halfulp.hdl.specs.fpu import FpuSpec
from halfulp.hdl.specs.unit import FLAGS

from .base import Unit

PRESENT = "operands are present in this cycle"

ACCEPTED = "operands are accepted in this cycle, if they are present"

_MEANINGS = {
    "load": "the accumulator starts from c",
    "clear": "the accumulator starts from zero",
    "subtract": "the second operand is subtracted",
    "step": "chooses the parts of a and b that are multiplied",
    "vectorial": "registers hold as many numbers as fit",
    "flags": f"exception flags from bit 0 on: {', '.join(FLAGS)}",
    "less": "a is less than b",
    "equal": "a is equal to b",
    "unordered": "a or b is NaN",
    "ready": ACCEPTED,
    "o_valid": "a result is present in this cycle",
    "tag": "comes with the result, as o_tag",
    "o_tag": "tag of the operands of this result",
}
"""Meanings that depend on the name only."""


_CHOICES = {
    "op": "operation",
    "src_fmt": "format of the operands",
    "dst_fmt": "format of the result",
    "int_fmt": "width of integers",
}
"""Objects that the selectors of a floating-point unit choose."""


def control(role: str, *, asynchronous: bool = False, low: bool = False) -> str:
    """Return the meaning of a control port: ``clk``, ``rst``, ``en``, ``valid`` or ``ready``."""
    level = f"active {'low' if low else 'high'}"
    return {
        "clk": "clock, rising edge",
        "rst": f"reset, {'asynchronous' if asynchronous else 'synchronous'}, {level}",
        "en": f"clock enable of all registers, {level}",
        "valid": PRESENT,
        "ready": ACCEPTED,
    }[role]


def meanings(component: Any) -> dict[str, str]:
    """Return the meanings of ports without a format, by name, of a unit or a wrapper of one; of others none."""
    unit = getattr(component, "unit", component)
    if not isinstance(unit, Unit):
        return {}
    spec = unit.spec
    plain = {port.name: _of_input(spec, port) for port in spec.ports if port.fmt is None}
    if isinstance(spec, ClassifySpec):
        plain["o"] = f"class, one bit each from bit 0 on: {', '.join(CLASSES)}"
    ups = {name: "the result is rounded up" for name in unit.outputs if name.startswith("up")}
    return _MEANINGS | ups | plain | getattr(component, "meanings", {})


def _of_input(spec: Any, port: Port) -> str:
    """Return the meaning of an input without a format."""
    if port.role is Role.MODE:
        return modes(spec.rounding)
    if port.role is Role.RANDOM:
        return "random word"
    if port.pick is not None:
        return f"selects one of {port.pick.choices[0]} to {port.pick.choices[-1]}"
    if isinstance(spec, FpuSpec):
        formats = [str(fmt) for fmt in spec.formats]
        widths = [f"{bits} bits" for bits in spec.integers]
        codes = {"op": spec.operations, "src_fmt": formats, "dst_fmt": formats, "int_fmt": widths}
        if names := codes.get(port.name):
            listed = "; ".join(f"{code} {name}" for code, name in enumerate(names))
            return f"{_CHOICES[port.name]}: {listed}; others as {len(names) - 1}"
    return _MEANINGS.get(port.name, "")


def modes(rounding: Rounding) -> str:
    """Return the codes of the port ``mode`` with their modes."""
    texts = [MODE_TEXT.get(choice.mode, "at random") for choice in rounding.choices]
    known = [f"{code} {text}" for code, text in enumerate(texts) if text not in texts[:code]]
    return f"rounding mode: {'; '.join(known)}; others as {texts.index(MODE_TEXT['ra'])}"
