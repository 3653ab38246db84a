"""Record of the report in ``fpga/results/decoder.json``, and the check that it is current."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import torch

from halfulp import golden
from halfulp.fpga.synth.measure import Cost
from halfulp.hdl.specs import Build
from halfulp.implementation import Implementation
from halfulp.sim import behaviour
from halfulp.sim.formal.prove import circuit
from halfulp.sim.netlist import netlist
from halfulp.tools.digests import code, digest
from halfulp.tools.report import provenance

from .arithmetic import Arithmetic
from .engine import Engine
from .losses import Settings, sources
from .measure import TARGET, implementations
from .model import TEXT, Decoder, Shape, generate

ROOT = Path(__file__).resolve().parents[2]

RECORD = ROOT / "fpga" / "results" / "decoder.json"

POLICIES = Path(__file__).with_name("policies")

MEASURING, BUILDING = ("losses", "measure", "model", "train"), ("arithmetic", "engine", "program")
"""Modules of this folder that decide the figures: by their sources, and by the engine that they build."""

SMALL = Shape(layers=1, width=8, heads=1, context=4, vocabulary=8)
"""Sizes of the model whose logits and engines show that policies have their recorded bits and circuits."""


@dataclass(frozen=True)
class Row:
    """Figures of a policy.

    Attributes
    ----------
    policy, text : str
        Name and content of the policy file.
    loss : float
        Cross-entropy in nats on the text, token by token under the policy.
    cost : dict
        Fields of the `Cost` of the engine on the ECP5, before place and route.
    mhz : float
        Clock after place and route.
    whole : bool
        True if that is the clock of the whole engine; False for the slowest unit of an engine that is too large.
    cycles : float
        Clock cycles for a token, a mean over a context.
    energy : float
        Energy of the arithmetic for a token in nanojoule.
    energies : dict of str to float
        That of each unit.
    """

    policy: str
    text: str
    loss: float
    cost: dict[str, Any]
    mhz: float
    whole: bool
    cycles: float
    energy: float
    energies: dict[str, float]

    @property
    def area(self) -> Cost:
        """Cost of the engine."""
        return Cost(**self.cost)

    @property
    def tokens(self) -> float:
        """Tokens in a second at the clock of the engine."""
        return self.mhz * 1e6 / self.cycles


@dataclass(frozen=True)
class Record:
    """Figures of the report.

    Attributes
    ----------
    command, date : str
    tools : dict of str to str
        Versions of the tools.
    library : str
        Standard cells of the energies.
    settings : dict
        Fields of `Settings`.
    fp32 : float
        Loss in torch's own FP32.
    rows : list of Row
    digests : dict
        Everything that decides the figures; see `digests`.
    """

    command: str
    date: str
    tools: dict[str, str]
    library: str
    settings: dict[str, Any]
    fp32: float
    rows: list[Row]
    digests: dict[str, Any] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        """Notes of the table."""
        settings = self.settings
        sizes = {name: settings["shape"][name] for name in ("layers", "width", "heads", "context")}
        units = [row.policy for row in self.rows if not row.whole]
        routed = "the whole engine" + (f", for {', '.join(units)} of its slowest unit" if units else "")
        return [
            f"model: {', '.join(f'{name} {size}' for name, size in sizes.items())}; {settings['steps']} training "
            f"steps; engine: {settings['lanes']} lanes, units of elements with {settings['pipeline']} register stages",
            f"loss: cross-entropy in nats on {settings['contexts']} contexts of the text; {self.fp32:.3f} in FP32",
            f"LUT, FF, BRAM: {TARGET.name}, before place and route; MHz: {routed}, after place and route",
            "cycles a token: mean over a context",
            f"nJ a token: energy of the arithmetic, from the operations of each unit and its energy in a clock cycle "
            f"in {self.library} (`halfulp synth --target asic --power`); without memories, control and wires",
            f"made by {provenance(self.command, self.tools)}, on {self.date}",
        ]

    def json(self) -> str:
        """Return the record as JSON."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def load(cls, path: Path = RECORD) -> Self:
        """Read a record."""
        content = json.loads(path.read_text())
        return cls(**(content | {"rows": [Row(**row) for row in content["rows"]]}))


def digests(policies: Iterable[Path], known: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return digests of everything that decides the figures of policies.

    ``sources`` is that of the modules that train and measure, and of the text; ``policies`` has those of the policy
    files, ``logits`` those of a small model under each, ``engines`` netlist and units of its engine, and ``units`` the
    behaviour of each unit (`halfulp.sim.behaviour`). Known digests of what has the same sources save time.
    """
    files, known = {path.stem: path for path in policies}, known or {}
    before = known.get("units", {})
    engines = {name: _engine(path, known.get("engines", {}).get(name, {})) for name, path in files.items()}
    found = [Implementation.parse(text, **build) for engine in engines.values() for text, build in engine["units"]]
    units = {str(unit): unit for unit in found}
    return {
        "sources": digest(sources(MEASURING), TEXT.read_text()),
        "policies": {name: digest(path.read_text()) for name, path in files.items()},
        "logits": {name: _logits(path) for name, path in files.items()},
        "engines": engines,
        "units": {name: behaviour.digests(unit, before.get(name, {})) for name, unit in sorted(units.items())},
    }


def _engine(path: Path, known: dict[str, Any]) -> dict[str, Any]:
    """Return the digests of an engine, of its sources, RTLIL and netlist, and its units: texts and fields of builds.

    Equal known digests imply what follows from them.
    """
    own = digest(sources(BUILDING), code("halfulp.units"), path.read_text())
    if own == known.get("sources"):
        return known
    engine = Engine(SMALL, Arithmetic.read(path, lanes=2), pipeline=Settings.pipeline)
    rtlil = circuit(engine)
    text = digest(rtlil)
    units = {str(unit): unit for unit in implementations(engine).values()}
    return {
        "sources": own,
        "rtlil": text,
        "netlist": known["netlist"] if text == known.get("rtlil") else netlist(rtlil),
        "units": [[unit.spec.text, _changed(unit.build)] for _, unit in sorted(units.items())],
    }


def _changed(build: Build) -> dict[str, Any]:
    """Return the fields of a build that are not the default."""
    return {name: value for name, value in asdict(build).items() if value != getattr(Build(), name)}


def _logits(path: Path) -> str:
    torch.manual_seed(1)
    model, arithmetic = Decoder(SMALL).eval(), Arithmetic.read(path, lanes=2)
    with golden.emulate(arithmetic.rules, strict=True):
        tokens, logits = generate(model.stepper(), SMALL.context, [1, 2], 2)
    return digest(tokens, logits.view(torch.int32).tolist())


def stale(record: Record) -> list[str]:
    """Return a line for each part of the figures that has changed since the record was made."""
    paths = [POLICIES / f"{row.policy}.toml" for row in record.rows]
    if missing := [path.name for path in paths if not path.exists()]:
        return [f"policies without a file: {', '.join(missing)}"]
    before, now = record.digests, digests(paths, record.digests)
    lines = [] if now["sources"] == before["sources"] else ["modules of the example, or its text"]
    lines += [
        f"engine of {name}"
        for name, own in now["engines"].items()
        if own["netlist"] != before["engines"][name]["netlist"]
    ]
    lines += [
        f"{kind} of {name}"
        for kind in ("policies", "logits")
        for name in now[kind]
        if now[kind][name] != before[kind][name]
    ]
    for name in sorted(before["units"].keys() | now["units"].keys()):
        own, other = (units.get(name, {}) for units in (before["units"], now["units"]))
        if any(own.get(part) != other.get(part) for part in ("netlist", "results")):
            lines.append(f"unit {name}")
    return lines
