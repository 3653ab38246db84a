"""Ports of inner modules: those of the component, in place of ports with generated names.

Amaranth joins signals that cross the border of a module, and takes the name of a signal for a port only if it has
exactly these bits.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .expressions import Const, Expression, Join, Ref, is_wiring, joined, refs, replaced, sliced
from .statements import Declaration, Instance, Module, Set

Bit = tuple[str, int]
"""Bit of a signal, or of a constant with its text as the name."""

_CONTROLS = ("clk", "rst")
"""Ports that no component has as a member."""


def restore_ports(modules: Sequence[Module], members: Mapping[str, Mapping[str, bool]]) -> None:
    """Give inner modules the ports of their components.

    Parameters
    ----------
    modules : sequence of Module
        The first contains the others.
    members : mapping
        Ports of components, each with True for an input, by the names of modules.
    """
    inner = {module.name: module for module in modules[1:]}
    for parent in modules:
        for instance in parent.statements:
            if isinstance(instance, Instance) and instance.module in inner:
                module = inner[instance.module]
                _Border(module, parent, instance, members.get(module.name, {})).restore()


@dataclass
class _Border:
    """A module in its parent."""

    module: Module
    parent: Module
    instance: Instance
    members: Mapping[str, bool]

    def restore(self) -> None:
        if inputs := self._loose("input"):
            self._inputs(inputs)
        if outputs := self._loose("output"):
            self._outputs(outputs)
        self._rename()
        order = {name: place for place, name in enumerate((*_CONTROLS, *self.members))}
        self.module.ports.sort(key=lambda port: order.get(port, len(order)))

    def _loose(self, direction: str) -> list[str]:
        """Return the ports of a direction that are not those of the component."""
        return [
            port
            for port in self.module.ports
            if self.module.declarations[port].direction == direction
            and ("$" in port or (self.members and port not in (*self.members, *_CONTROLS)))
        ]

    def _candidates(self, is_input: bool) -> Iterator[tuple[Set, bool]]:
        """Yield signals that may be ports, those of the component first; True for these."""
        found = [
            one
            for one in self.module.statements
            if isinstance(one, Set)
            and one.target.is_whole
            and is_wiring(one.value)
            and not isinstance(one.value, Const)
            and re.fullmatch(r"[A-Za-z_]\w*", one.target.name)
            and not self.module.declarations[one.target.name].direction
        ]
        own = [one for one in found if self.members.get(one.target.name) is is_input]
        yield from ((one, True) for one in own)
        others = [one for one in found if one.target.name not in self.members and "_part" not in one.target.name]
        others.sort(key=lambda one: one.target.size, reverse=is_input)
        yield from ((one, False) for one in others)

    def _inputs(self, loose: Sequence[str]) -> None:
        module, ports = self.module, self.instance.ports
        places: dict[Bit, tuple[Ref, int]] = {}
        open_bits = {(port, bit) for port in loose for bit in range(module.declarations[port].size)}
        for one, is_member in list(self._candidates(True)):
            bits = list(_bits(one.value))
            fresh = open_bits.intersection(bits)
            names = {ref.name for ref in refs(one.value)}
            is_input = all(name in module.ports and module.declarations[name].direction == "input" for name in names)
            generated = all("$" in name for name in names)
            if not (fresh and is_input and (is_member or generated)):
                continue
            if any(name not in ports for name in names):
                continue
            open_bits -= fresh
            for place, bit in enumerate(bits):
                places.setdefault(bit, (one.target, place))
            name = one.target.name
            module.declarations[name] = Declaration("input", one.target.size)
            module.ports.append(name)
            ports[name] = replaced(one.value, lambda ref: sliced(ports[ref.name], ref.high, ref.low))
            module.statements = [other for other in module.statements if other is not one]

        def change(ref: Ref) -> Expression:
            if ref.name not in loose:
                return ref
            parts: list[Expression] = []
            for bit in range(ref.high, ref.low - 1, -1):
                target, place = places.get((ref.name, bit), (None, 0))
                if target is None:
                    parts.append(Ref(ref.name, bit, bit, ref.size))
                else:
                    parts.append(Ref(target.name, place, place, target.size))
            return joined(parts)

        module.change(change)
        uses = module.uses()
        for port in loose:
            if port not in uses:
                self._remove(port)
                del module.declarations[port]

    def _outputs(self, loose: Sequence[str]) -> None:
        module = self.module
        base = _Base(module)
        wires: dict[str, Ref] = {}
        candidates = [(one, base.bits(one.target)) for one, _ in self._candidates(False)]
        for port in loose:
            if port not in self.instance.ports or not _is_net(self.instance.ports[port]):
                continue
            size = module.declarations[port].size
            own = base.bits(Ref(port, size - 1, 0, size))
            for one, bits in candidates:
                places = {bit: place for place, bit in enumerate(bits)}
                if all(bit in places for bit in own):
                    break
            else:
                continue
            name = one.target.name
            if name not in wires:
                wires[name] = self._wire(one.target)
            wire = wires[name]
            values = [Ref(wire.name, places[bit], places[bit], wire.size) for bit in own]
            for target, value in _by_target(self.instance.ports[port], values):
                self.parent.statements.append(Set(target, value))
            self._remove(port)
            module.declarations[port].direction = ""

    def _wire(self, target: Ref) -> Ref:
        """Make a signal an output, and return the wire of the parent for it."""
        self.module.declarations[target.name].direction = "output"
        self.module.ports.append(target.name)
        stem = name = f"{self.instance.name}_{target.name}"
        number = 2
        while name in self.parent.declarations:
            name, number = f"{stem}_{number}", number + 1
        self.parent.declarations[name] = Declaration(size=target.size)
        wire = Ref(name, target.size - 1, 0, target.size)
        self.instance.ports[target.name] = wire
        return wire

    def _remove(self, port: str) -> None:
        self.module.ports.remove(port)
        self.instance.ports.pop(port, None)

    def _rename(self) -> None:
        """Give the remaining ports with generated names that of what the parent connects, or a number."""
        names: dict[str, str] = {}
        for port in self.module.ports:
            if "$" in port:
                value = self.instance.ports.get(port)
                stem = name = self.module.declarations[port].direction
                if isinstance(value, Ref) and re.fullmatch(r"[A-Za-z_]\w*", value.name):
                    stem = name = value.name
                number = 2
                while name in self.module.declarations or name in names.values():
                    name, number = f"{stem}_{number}", number + 1
                names[port] = name
        self.module.rename(names)
        self.instance.ports = {names.get(port, port): value for port, value in self.instance.ports.items()}


class _Base:
    """Bits of signals that are not bits of other ones."""

    def __init__(self, module: Module) -> None:
        self._wiring = {
            one.target.name: one.value
            for one in module.statements
            if isinstance(one, Set) and one.target.is_whole and is_wiring(one.value)
        }

    def bits(self, value: Expression) -> list[Bit]:
        """Return the bits of a value, the lowest first."""
        while any(ref.name in self._wiring for ref in refs(value)):
            value = replaced(
                value,
                lambda ref: sliced(self._wiring[ref.name], ref.high, ref.low) if ref.name in self._wiring else ref,
            )
        return list(_bits(value))


def _bits(value: Expression) -> Iterator[Bit]:
    match value:
        case Ref():
            yield from ((value.name, bit) for bit in range(value.low, value.high + 1))
        case Const():
            yield from ((value.text, bit) for bit in range(value.width))
        case Join(parts):
            for part in reversed(parts):
                yield from _bits(part)


def _is_net(value: Expression) -> bool:
    return isinstance(value, Ref) or (isinstance(value, Join) and all(isinstance(part, Ref) for part in value.parts))


def _by_target(target: Expression, values: Sequence[Ref]) -> Iterator[tuple[Ref, Expression]]:
    """Yield each signal of a connection with its part of the values, the lowest first."""
    low = 0
    for part in reversed(target.parts if isinstance(target, Join) else (target,)):
        yield part, joined(list(reversed(values[low : low + part.width])))
        low += part.width
