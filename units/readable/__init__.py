"""Verilog for readers, from that of Yosys: the same logic with names of values and few temporary signals.

Synthesis and simulation read the Verilog of Yosys as it is.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .names import name_values
from .passes import fold_joins, inline_temporaries, merge_registers, prune, resolve_aliases, without_reset
from .ports import restore_ports
from .statements import Module, parse
from .text import text_of_module

@dataclass(frozen=True)
class Member:
    """Port of a component.

    Attributes
    ----------
    is_input : bool
    width : int
    fields : list of tuple
        Fields of its number format: name, highest bit and lowest bit.
    """

    is_input: bool
    width: int
    fields: list[tuple[str, int, int]]


def readable(
    text: str, members: Mapping[str, Mapping[str, Member]], initial: bool = True, reset_less: bool = False
) -> str:
    """Return modules for readers.

    Parameters
    ----------
    text : str
        Modules of Yosys; the first contains the others.
    members : mapping
        Ports of components, by the names of their modules and by their own.
    initial : bool
        Registers have initial values.
    reset_less : bool
        Registers need neither an initial value nor a reset, because they get their values from the operands.

    Raises
    ------
    ValueError
        If registers without initial values have no reset.
    """
    modules = [parse(found[0]) for found in _MODULE.finditer(text)]
    inputs = {name: {port: one.is_input for port, one in ports.items()} for name, ports in members.items()}
    restore_ports(modules, inputs)
    texts = []
    for module in modules:
        _simplify(module, members.get(module.name, {}))
        if not (initial or reset_less) and (registers := without_reset(module)):
            raise ValueError(
                f"{module.name} has registers without a reset, such as {registers[0]}, which would have unknown values "
                "without initial ones; keep the initial values, or add a reset"
            )
        texts.append(text_of_module(module, initial=initial))
    remaining = iter(texts)
    return _MODULE.sub(lambda _: next(remaining), text)


_MODULE = re.compile(r"^module .*?^endmodule", re.M | re.S)


def _simplify(module: Module, members: Mapping[str, Member]) -> None:
    merge_registers(module)
    resolve_aliases(module, _fields(module, members))
    prune(module)
    fold_joins(module)
    inline_temporaries(module)
    prune(module)
    name_values(module)


def _fields(module: Module, members: Mapping[str, Member]) -> dict[str, list[tuple[str, int, int]]]:
    """Return the fields of the input ports, under names that the module does not have otherwise."""
    fields: dict[str, list[tuple[str, int, int]]] = {}
    for port, member in members.items():
        if member.is_input and member.fields and port in module.ports:
            parts = ((f"{port}_{name}", high, low) for name, high, low in member.fields)
            fields[port] = [
                (f"{name}_field" if name in module.declarations else name, high, low) for name, high, low in parts
            ]
    return fields
