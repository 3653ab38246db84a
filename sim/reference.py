"""Reference results of a unit: the golden model, called with the parameters of the unit."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from halfulp.hdl.specs.formula import VALUES, Role

from .ports import Codes, Columns

if TYPE_CHECKING:
    from halfulp.units import Unit

CHUNK = 1 << 17
"""Number of vectors per call of the golden model; larger batches exceed the processor's caches."""


def row_of(unit: "Unit") -> Any:
    """Return the catalogue row of a unit or of a unit whose class is derived."""
    from halfulp.units.catalogue import CATALOGUE

    # The last row: a unit of the catalogue may be derived from an earlier one.
    for row in reversed(CATALOGUE.values()):
        if isinstance(unit, row.unit):
            return row
    raise ValueError(
        f"{type(unit).__name__} has no golden model: expected a unit of the catalogue or of a derived class"
    )


def reference(unit: "Unit", codes: Columns, *, chained: bool = False) -> dict[str, Codes]:
    """Compute the reference results of a unit: an array of codes for each output.

    Parameters
    ----------
    unit : Unit
    codes : mapping
        Array of codes for each input, all of the same length or of length 1.
    chained : bool
        The vectors are consecutive steps of a unit with state, from reset. Otherwise each vector has its own state; the
        unit's random source steps from reset in both cases.
    """
    import torch

    from halfulp import golden
    from halfulp.golden.parts import code_of, parts_of

    name = row_of(unit).name + ("_sequence" if chained else "")
    length = max(len(column) for column in codes.values())
    columns = {**codes, **own_words(unit, length)}
    tensors = {port: torch.tensor(column.view(np.int64)) for port, column in columns.items()}
    given = {name: _stacked(tensors, ports) for name, ports in unit.spec.arguments(*VALUES).items()}
    for operand, fmt in parts_as_ports(unit).items():
        given[operand] = code_of(given[operand], fmt)
    operands = [*given.values(), *(tensors[port] for port in unit.spec.arguments(Role.STATE) if chained)]
    words = {name: _stacked(tensors, ports) for name, ports in unit.spec.arguments(Role.MODE, Role.RANDOM).items()}
    turns = {"interleave": unit.spec.interleave} if chained and unit.stateful else {}
    results = getattr(golden, name)(*operands, **words, **unit.parameters, **turns)
    fields = results if isinstance(results, tuple) else (results,)
    if (fmt := getattr(unit.spec, "o", None)) is not None and 1 < fmt.parts == len(unit.outputs):
        fields = (parts_of(results, fmt),)
    # A vector result has one port per element.
    results_by_port = [column for field in fields for column in (field.unbind(-1) if field.dim() > 1 else (field,))]
    return {
        port: np.broadcast_to(column.to(torch.int64).numpy(), length).copy().view(np.uint64)
        for port, column in zip(unit.outputs, results_by_port, strict=True)
    }


def parts_as_ports(unit: "Unit") -> dict[str, Any]:
    """Return the formats of the operands whose parts have ports of their own."""
    arguments = unit.spec.arguments(Role.OPERAND)
    return {
        name: fmt for name, fmt in unit.spec.operands.items() if fmt.parts > 1 and isinstance(arguments[name], list)
    }


def exact_call(unit: "Unit", codes: Mapping[str, int]) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
    """Return the exact function of a unit, with its operands and keyword arguments for one vector."""
    from halfulp.golden import exact

    def given(ports: str | list[str]) -> Any:
        return codes[ports] if isinstance(ports, str) else [codes[port] for port in ports]

    operands = {name: given(ports) for name, ports in unit.spec.arguments(*VALUES).items()}
    for name, fmt in parts_as_ports(unit).items():
        operands[name] = fmt.code_of(operands[name])
    words = {name: given(ports) for name, ports in unit.spec.arguments(Role.MODE, Role.RANDOM).items()}
    return getattr(exact, row_of(unit).name), [*operands.values()], words | unit.parameters


def own_words(unit: "Unit", count: int) -> dict[str, Codes]:
    """Return the first random words of the unit's own sources after reset, by the ports that they replace."""
    from halfulp.golden.random import of_stream

    return {
        port: of_stream(stream, count, unit.words[port]).numpy().view(np.uint64)
        for port, stream in unit.sources.items()
    }


def _stacked(tensors: dict[str, Any], names: str | list[str]) -> Any:
    """Return a tensor, or stack several along a new last dimension."""
    import torch

    if isinstance(names, str):
        return tensors[names]
    return torch.stack(torch.broadcast_tensors(*(tensors[name] for name in names)), -1)
