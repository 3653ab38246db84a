"""Digest of the logic of a circuit in RTLIL, without its names."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from halfulp.tools.cache import cached_value
from halfulp.tools.digests import code, digest, version
from halfulp.tools.paths import scratch

from .formal.prove import yosys


def netlist(rtlil: str) -> str:
    """Return a digest of the logic of a circuit, from ports to ports; raises ToolError if Yosys fails.

    Names of signals, registers, instances and modules, the order of statements, intermediate signals, repeated and
    unused logic do not affect it.
    """

    def make() -> str:
        with scratch("netlists") as folder:
            yosys(folder, {"make": "logic"}, {"design.il": rtlil})
            return Graph.parse((folder / "design.aag").read_text()).digest

    parts = rtlil, version("pyosys"), code(__name__, "halfulp.sim.formal.netlist", imports=False)
    text: str = cached_value("netlists", parts, make)
    return text


@dataclass(frozen=True)
class Graph:
    """And-inverter graph. A literal is twice the number of a node, plus 1 for its inverse; 0 is the constant 0.

    Attributes
    ----------
    inputs : dict
        Literals of the bits of input ports, by name.
    outputs : dict
        Literals of the bits of output ports, by name.
    registers : dict
        Literals of the next value and of the initial value of registers, by literal; a register without an initial
        value has its own literal.
    gates : list
        Literals of gates and of their two operands; operands come first.
    """

    inputs: dict[str, int]
    outputs: dict[str, int]
    registers: dict[int, tuple[int, int]]
    gates: list[tuple[int, int, int]]

    @classmethod
    def parse(cls, text: str) -> "Graph":
        """Parse the ASCII format of AIGER 1.9 with names of ports."""
        head, *lines = text.splitlines()
        _, inputs, latches, outputs, gates = map(int, head.split()[1:6])
        rows = [tuple(map(int, line.split())) for line in lines[: inputs + latches + outputs + gates]]
        names = dict(line.split(maxsplit=1) for line in lines[len(rows) :] if re.match(r"[io]\d+ ", line))
        states = (row if len(row) > 2 else (*row, 0) for row in rows[inputs : inputs + latches])
        ends = rows[inputs + latches : inputs + latches + outputs]
        return cls(
            {names[f"i{number}"]: row[0] for number, row in enumerate(rows[:inputs])},
            {names[f"o{number}"]: row[0] for number, row in enumerate(ends)},
            {own: (following, initial) for own, following, initial in states},
            [(own, left, right) for own, left, right in rows[inputs + latches + outputs :]],
        )

    @property
    def digest(self) -> str:
        """Digest of the outputs as functions of inputs and registers, in which equal gates are one gate.

        Registers have colours, at first by their initial values, then by the digests of their next values, until the
        number of different colours stays the same. Two registers with one colour then behave equally.
        """
        simple = self._simplified()
        colours = {own: "x" if initial == own else str(initial) for own, (_, initial) in simple.registers.items()}
        count = -1
        while count != len(set(colours.values())):
            count = len(set(colours.values()))
            hashes = simple.hashes(colours)
            following = {own: simple.registers[own][0] for own in colours}
            colours = {own: f"{colour[:1]}{_literal(hashes, following[own]).hex()}" for own, colour in colours.items()}
        hashes = simple.hashes(colours)
        ends = (f"{name} {_literal(hashes, end).hex()}" for name, end in sorted(simple.outputs.items()))
        return digest(*ends)[:12]

    def hashes(self, colours: dict[int, str]) -> dict[int, bytes]:
        """Return hashes of all nodes, by their even literals, from the colours of registers."""
        hashes = {0: _hash(b"0")}
        hashes |= {own: _hash(b"input", name.encode()) for name, own in self.inputs.items()}
        hashes |= {own: _hash(b"register", colour.encode()) for own, colour in colours.items()}
        for own, left, right in self.gates:
            hashes[own] = _hash(*sorted((_literal(hashes, left), _literal(hashes, right))))
        return hashes

    def _simplified(self) -> "Graph":
        """Return the graph without constant operands, repeated gates, and nodes that no output depends on."""
        same = {literal: literal for literal in (0, *self.inputs.values(), *self.registers)}
        gates: dict[tuple[int, int], int] = {}

        def now(literal: int) -> int:
            return same[literal & ~1] ^ literal & 1

        for own, *operands in self.gates:
            left, right = sorted(map(now, operands))
            if left == 0 or left ^ 1 == right:
                same[own] = 0
            elif left in (1, right):
                same[own] = right
            else:
                same[own] = gates.setdefault((left, right), own)
        operands_of = {own: pair for pair, own in gates.items()}
        registers = {own: (now(following), initial) for own, (following, initial) in self.registers.items()}
        outputs = {name: now(end) for name, end in self.outputs.items()}
        waiting, used = [end & ~1 for end in outputs.values()], set[int]()
        while waiting:
            if (own := waiting.pop()) not in used:
                used.add(own)
                sources: Sequence[int] = operands_of.get(own) or registers.get(own, ())[:1]
                waiting += [source & ~1 for source in sources]
        return Graph(
            self.inputs,
            outputs,
            {own: row for own, row in registers.items() if own in used},
            [(own, *pair) for own, pair in operands_of.items() if own in used],
        )


def _hash(*parts: bytes) -> bytes:
    return hashlib.blake2b(b"".join(parts), digest_size=16).digest()


def _literal(hashes: dict[int, bytes], literal: int) -> bytes:
    return hashes[literal & ~1] + b"-+"[literal & 1 :][:1]
