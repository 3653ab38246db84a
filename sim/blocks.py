"""Blocks of a large design that Verilator translates once, as libraries of their own.

A module with parameters, such as an element of a systolic array, has many instances that differ only in constants.
Verilator would translate each of them. As a library with the constants as inputs, the module is translated once.
"""

import re

from halfulp.tools.instances import INSTANCE, MODULE, PARAMETRISED


def split_blocks(verilog: str) -> tuple[str, dict[str, str]]:
    """Return the Verilog of a design without its blocks, and the Verilog of each block by the name of its module.

    A block is a module with parameters that a module without parameters instantiates. Its parameters become inputs, so
    registers have their initial values only after a reset.
    """
    parametrised = {match[1] for match in PARAMETRISED.finditer(verilog)}
    if not parametrised:
        return verilog, {}
    text = PARAMETRISED.sub(_with_inputs, verilog)
    text = INSTANCE.sub(
        lambda match: match[0] if match[2] is None else f"  {match[1]}  {match[3]} (\n    {match[2]},\n", text
    )
    # Verilog allows only constants as initial values.
    text = re.sub(r"^  reg (\[\d+:0\] )?(\w+) = [a-z]\w*(\[[\d:]+\])?;$", r"  reg \1\2;", text, flags=re.M)
    modules = {match[1]: match[0] for match in MODULE.finditer(text)}
    inside = {
        name: {match[1] for match in INSTANCE.finditer(module)} & set(modules) for name, module in modules.items()
    }
    used = {part for name, parts in inside.items() if name not in parametrised for part in parts}
    head, blocks = text[: text.index("module ")], {}
    for number, name in enumerate(sorted(used & parametrised)):
        own = _reachable(name, inside)
        plain = f"block{number}"
        text = re.sub(rf"^  {re.escape(name)}  ", f"  {plain} ", text, flags=re.M)
        parts = "".join(modules[module] for module in modules if module in own)
        blocks[plain] = head + parts.replace(f"module {name} ", f"module {plain} ", 1)
    gone = set().union(*(_reachable(name, inside) for name in used & parametrised))
    return head + "".join(match[0] for match in MODULE.finditer(text) if match[1] not in gone), blocks


def _reachable(name: str, inside: dict[str, set[str]]) -> set[str]:
    """Return a module and all modules that it contains."""
    return {name}.union(*(_reachable(part, inside) for part in inside[name]))


def _with_inputs(head: re.Match[str]) -> str:
    """Return the head of a module with its parameters as inputs."""
    name, parameters, ports = head.groups()
    declared = re.findall(r"parameter (\[\d+:0\]) (\w+)", parameters)
    inputs = "".join(f"  input {width} {parameter};\n" for width, parameter in declared)
    return f"module {name} ({', '.join(parameter for _, parameter in declared)}, {ports});\n{inputs}"
