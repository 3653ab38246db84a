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
    parametrised = {found[1] for found in PARAMETRISED.finditer(verilog)}
    if not parametrised:
        return verilog, {}
    text = PARAMETRISED.sub(_with_inputs, verilog)
    text = INSTANCE.sub(lambda one: one[0] if one[2] is None else f"  {one[1]}  {one[3]} (\n    {one[2]},\n", text)
    # Verilog allows only constants as initial values.
    text = re.sub(r"^  reg (\[\d+:0\] )?(\w+) = [a-z]\w*(\[[\d:]+\])?;$", r"  reg \1\2;", text, flags=re.M)
    modules = {found[1]: found[0] for found in MODULE.finditer(text)}
    inside = {name: {one[1] for one in INSTANCE.finditer(module)} & set(modules) for name, module in modules.items()}
    used = {one for name, parts in inside.items() if name not in parametrised for one in parts}
    head, blocks = text[: text.index("module ")], {}
    for number, name in enumerate(sorted(used & parametrised)):
        own = _reachable(name, inside)
        plain = f"block{number}"
        text = re.sub(rf"^  {re.escape(name)}  ", f"  {plain} ", text, flags=re.M)
        parts = "".join(modules[one] for one in modules if one in own)
        blocks[plain] = head + parts.replace(f"module {name} ", f"module {plain} ", 1)
    gone = set().union(*(_reachable(name, inside) for name in used & parametrised))
    return head + "".join(found[0] for found in MODULE.finditer(text) if found[1] not in gone), blocks


def _reachable(name: str, inside: dict[str, set[str]]) -> set[str]:
    """Return a module and all modules that it contains."""
    return {name}.union(*(_reachable(one, inside) for one in inside[name]))


def _with_inputs(head: re.Match[str]) -> str:
    """Return the head of a module with its parameters as inputs."""
    name, parameters, ports = head.groups()
    declared = re.findall(r"parameter (\[\d+:0\]) (\w+)", parameters)
    inputs = "".join(f"  input {width} {one};\n" for width, one in declared)
    return f"module {name} ({', '.join(one for _, one in declared)}, {ports});\n{inputs}"
