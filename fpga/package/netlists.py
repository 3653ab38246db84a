"""Netlists of several units whose equal modules are written once."""

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

_MODULE = re.compile(r"^module \\?([^\s(]+)\s*#?\(.*?^endmodule\n", re.M | re.S)


@dataclass(frozen=True)
class Netlists:
    """Verilog of several units.

    Attributes
    ----------
    units : dict of str to str
        Text of each unit by the name of its top module, without the shared modules.
    shared : str
        Modules that several units contain; empty if there are none.
    users : frozenset of str
        Top modules that contain shared modules.
    """

    units: dict[str, str]
    shared: str
    users: frozenset[str]


def share(texts: Mapping[str, str], name: str) -> Netlists:
    """Move modules that several units contain to one text.

    Parameters
    ----------
    texts : mapping of str to str
        Output of `halfulp.units.verilog.emit`, by the name of the top module. Names of other modules begin with that of
        the top module and a period.
    name : str
        Prefix of the names of shared modules.
    """
    parts = {top: {match[1]: match[0] for match in _MODULE.finditer(text)} for top, text in texts.items()}
    keys = {module: key for modules in parts.values() for module, key in _keys(modules).items()}
    users: dict[str, set[str]] = {}
    for top, modules in parts.items():
        for module in modules:
            users.setdefault(keys[module], set()).add(top)
    bodies, names = _common(parts, keys, {key for key, tops in users.items() if len(tops) > 1}, name)
    renamed = {module: names[key] for module, key in keys.items() if key in names}
    units = {top: _without(text, parts[top], renamed) for top, text in texts.items()}
    shared = ""
    if bodies:
        head = next(iter(texts.values())).partition("\n\n")[2].partition("/* Generated")[0]
        note = "// Modules that several units of the package contain.\n\n"
        shared = note + head + "\n" + "\n".join(_renamed(body, renamed) for body in bodies.values())
    return Netlists(units, shared, frozenset(top for key in names for top in users[key]))


def _common(
    parts: Mapping[str, Mapping[str, str]], keys: Mapping[str, str], common: Collection[str], prefix: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Return text and name of the modules with the given keys, from the first unit that contains each."""
    bodies: dict[str, str] = {}
    names: dict[str, str] = {}
    for top, modules in parts.items():
        for module, body in modules.items():
            key = keys[module]
            if module != top and key in common and key not in names:
                names[key] = _unused(f"{prefix}.{module.removeprefix(f'{top}.')}", names.values())
                bodies[key] = body
    return bodies, names


def _unused(stem: str, taken: Collection[str]) -> str:
    """Return a name that is not taken: the stem, or with a number."""
    return next(free for free in (stem, *(f"{stem}_{n}" for n in range(2, 999))) if free not in taken)


def _without(text: str, parts: Mapping[str, str], renamed: Mapping[str, str]) -> str:
    """Return the text of a unit without its modules that are renamed, which are in the shared text."""
    for module, body in parts.items():
        if module in renamed:
            text = text.replace(body, "")
    return _renamed(text, renamed).rstrip("\n") + "\n"


def _keys(modules: Mapping[str, str]) -> dict[str, str]:
    """Return a digest of each module and of the modules that it contains, without their names."""
    digests: dict[str, str] = {}

    def key(module: str) -> str:
        if module not in digests:
            # Escaped names end with a blank.
            text = modules[module].replace(f"\\{module} ", "\\ ", 1)
            for other in modules:
                if other != module and f"\\{other} " in text:
                    text = text.replace(f"\\{other} ", f"\\{key(other)} ")
            digests[module] = hashlib.sha256(text.encode()).hexdigest()
        return digests[module]

    return {module: key(module) for module in modules}


def _renamed(text: str, names: Mapping[str, str]) -> str:
    for old, new in names.items():
        text = text.replace(f"\\{old} ", f"\\{new} ")
    return text
