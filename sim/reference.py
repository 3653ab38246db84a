"""Reference results of a unit: the golden model, called with the unit's own parameters."""

from typing import Any

import numpy as np

from .ports import STATE, Codes, Columns, is_random

CHUNK = 1 << 17
"""Vectors of one call of the golden model; more exceed the processor's caches."""


def row_of(unit: Any) -> Any:
    """Catalogue row of a unit, which a class derived from the row's also has."""
    from halfulp.units.catalogue import CATALOGUE

    for row in CATALOGUE.values():
        if isinstance(unit, row.unit):
            return row
    raise ValueError(f"{type(unit).__name__} is not in the catalogue of units, so it has no golden model")


def reference(unit: Any, codes: Columns, *, chained: bool = False) -> dict[str, Codes]:
    """Results of a unit on vectors: for each output an array of codes.

    Parameters
    ----------
    unit : Unit
    codes : mapping
        For each input an array of codes, all of one length or of length 1.
    chained : bool
        The vectors are steps in time of a unit with state, from reset. Otherwise each has a state of its own, and only
        a source of random words of the unit runs from reset.
    """
    import torch

    from halfulp import golden

    name = row_of(unit).name + ("_sequence" if chained else "")
    length = max(len(column) for column in codes.values())
    given = {**codes, **own_words(unit, length)}
    tensors = {port: torch.tensor(column.view(np.int64)) for port, column in given.items()}
    state = [port for port in unit.inputs if port in STATE] if chained else []
    operands = [_stacked(tensors, names) for names in operands_of(unit)] + [tensors[port] for port in state]
    words = {name: _stacked(tensors, names) for name, names in words_of(unit).items()}
    results = getattr(golden, name)(*operands, **words, **unit.parameters)
    fields = results if isinstance(results, tuple) else (results,)
    # A vector of results has one port for each.
    columns = [column for field in fields for column in (field.unbind(-1) if field.dim() > 1 else (field,))]
    return {
        port: np.ascontiguousarray(np.broadcast_to(column.to(torch.int64).numpy(), length)).view(np.uint64)
        for port, column in zip(unit.outputs, columns, strict=True)
    }


def own_words(unit: Any, count: int) -> dict[str, Codes]:
    """Words of a unit's sources for the first operations since reset, by the ports that they stand in for."""
    from halfulp.golden.random import of_stream

    return {
        port: of_stream(stream, count, unit.words[port]).numpy().view(np.uint64)
        for port, stream in unit.sources.items()
    }


def operands_of(unit: Any) -> list[Any]:
    """Operands as the golden function takes them: names of ports, or lists of them for one vector operand."""
    return [names for names in unit.arguments if names not in STATE and not is_random(str(names))]


def words_of(unit: Any) -> dict[str, Any]:
    """Random words as the golden function takes them, by keyword: a port each, or a list of ports for all of them."""
    ports = list(unit.words)
    numbered = [port for port in ports if port[-1].isdigit()]
    return {"random": numbered} if numbered else {port: port for port in ports}


def _stacked(tensors: dict[str, Any], names: str | list[str]) -> Any:
    """A tensor, or several along a dimension of their own."""
    import torch

    if isinstance(names, str):
        return tensors[names]
    return torch.stack(torch.broadcast_tensors(*(tensors[name] for name in names)), -1)
