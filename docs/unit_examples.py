"""Examples on the pages of units: commands with the spec string of the unit, and a session with its golden model."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from halfulp.hdl.formats import Format
from halfulp.hdl.formats.rounding import MODE_CODES
from halfulp.hdl.specs import ComposedSpec, UnitSpec
from halfulp.hdl.specs.formula import VALUES, Role
from halfulp.hdl.specs.fpu import OPERATIONS

Number = float | Sequence[float]

OPERANDS: dict[str, Mapping[str, Number]] = {
    "convert": {"a": 1.5 * 2**-9},
    "div": {"a": 1, "b": 3},
    "fpu": {"rs1": 0x42, "rs2": 0x3E, "rs3": 0, "op": OPERATIONS.index("add")},
    "join": {"a": 1.3125},
    "lerp": {"t": 0.25},
    "pwl": {"a": 0.5},
    "remainder": {"b": 2},
    "requantize": {"a": 1000, "multiplier": 0.75, "shift": 3, "zero": -5},
    "rint": {"a": 2.5},
    "scaleb": {"b": 2},
    "split": {"a": 1.75},
    "sru": {"a": [6.3125]},
}
"""Operands of units of which others would show little; codes of ports without a format."""

NUMBERS = (3, 1.5, -2, 0.5)
"""Other operands in order; the elements of a vector go on from there."""

SCALE, START, WORD = 2, 10, 6
"""Scales, start values and random words."""


def section(spec: UnitSpec) -> Iterator[str]:
    """Yield the section of a page: two commands, and a session in Python with its result."""
    yield from ("## Example", "", "Check the unit against its golden model, and write its Verilog:", "")
    yield from ("```sh", f'halfulp sim "{spec}"', f'halfulp emit "{spec}" -o {spec.form.unit}.v', "```", "")
    yield "[Commands](../commands.md) has their options. The golden model takes and returns codes, which `encode` makes"
    yield from ("of numbers and `decode` converts back:", "", "```pycon")
    lines, result = session(spec)
    yield from (*(f">>> {line}" for line in lines), repr(result), "```")


def session(spec: UnitSpec) -> tuple[list[str], Any]:
    """Return lines of Python, and the value of the last one: the result of the operands of an example."""
    words = {
        name: MODE_CODES["rn"] if name == "mode" else WORD if isinstance(ports, str) else [WORD] * len(ports)
        for name, ports in spec.arguments(Role.MODE, Role.RANDOM).items()
    }
    lines = ["from halfulp import golden, unit"]
    lines += [f"{name} = {_codes(spec, name, number)}" for name, number in operands(spec).items()]
    call = ", ".join([*operands(spec), *(f"{name}=torch.tensor({word})" for name, word in words.items())])
    result = f'unit("{spec}").reference({call})'
    if any("torch." in line for line in (*lines, result)):
        lines.insert(0, "import torch")
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)
    value, fmt = eval(result, names), getattr(spec, "o", None)
    if isinstance(value, Tensor) and isinstance(fmt, Format):
        result = f'golden.decode({result}, "{fmt}")'
        value = eval(result, names)
    return [*lines, result], value


def operands(spec: UnitSpec) -> dict[str, Number]:
    """Return the numbers of an example by the argument of the golden function."""
    given: dict[str, Number] = {}
    for place, (name, ports) in enumerate(spec.arguments(*VALUES).items()):
        first = next(port for port in spec.ports if port.name == name or port.argument == name)
        count = len(ports) if name in spec.vectors else len(NUMBERS) if isinstance(spec, ComposedSpec) else 0
        if first.role is Role.OPERAND and first.fmt is not None:
            numbers = [NUMBERS[(place + step) % len(NUMBERS)] for step in range(max(count, 1))]
        else:
            number = {Role.SCALE: SCALE, Role.START: START}.get(first.role, 0)
            numbers = [number + step * (first.role is Role.INDEX) for step in range(max(count, 1))]
        given[name] = OPERANDS.get(spec.form.unit, {}).get(name, numbers if count else numbers[0])
    return given


def _codes(spec: UnitSpec, name: str, number: Number) -> str:
    """Return the Python that makes the codes of an operand; ports without a format have plain bits."""
    port = next(port for port in spec.ports if port.name == name or port.argument == name)
    fmt = spec.operands.get(name, port.fmt)
    return f"torch.tensor({number})" if fmt is None else f'golden.encode({number}, "{fmt}")'
