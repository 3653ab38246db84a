"""Write a page that compares policies: loss, size, clock of the slowest unit, and cycles for a token.

    python -m examples.decoder.report --model build/decoder.pt -o build/decoder

Each policy has its loss on the text under `golden.emulate`, and the size of its engine on an ECP5 by Yosys.
"""

import argparse
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from amaranth.hdl import Fragment

from halfulp import golden
from halfulp.boards.targets import target_of
from halfulp.fpga.synth.measure import Cost, measure_modules
from halfulp.fpga.synth.measure import Module as Netlist
from halfulp.fpga.synth.registered import Registered
from halfulp.fpga.synth.route import frequencies
from halfulp.tools.pareto import undominated
from halfulp.tools.paths import build_root
from halfulp.tools.plots import Panel, plot_front, write
from halfulp.tools.tables import Table

from .arithmetic import Arithmetic
from .engine import Engine
from .model import Cache, Decoder, load
from .run import POLICY
from .simulation import Simulation
from .train import contexts

TARGET = "ecp5-85k"
PARTS = {
    "lanes": ("mac",),
    "operands": ("operand_",),
    "functions": ("exp", "gelu", "function_x", "store_exp", "store_gelu"),
    "division and root": ("div", "rsqrt", "store_div", "store_rsqrt"),
}
"""Parts of an engine, by the beginnings of the names of their units; other units are ``add, mul, sum, max``."""


@dataclass(frozen=True)
class Row:
    """Results of a policy."""

    policy: str
    loss: float
    whole: Cost
    parts: dict[str, int]
    slowest: str
    mhz: float
    cycles: int


@torch.no_grad()
def loss_of(model: Decoder, arithmetic: Arithmetic | None, rows: int) -> float:
    """Return the loss on the first contexts of the text, token by token as in the engine; None for torch's own FP32."""
    given, targets = (tokens[:rows] for tokens in contexts(model.shape))
    cache, logits = Cache(model.shape.layers), []
    for position in range(given.shape[1]):
        if arithmetic is None:
            logits.append(model(given[:, position : position + 1], position, cache))
            continue
        with golden.emulate(arithmetic.policy, strict=True):
            logits.append(model(given[:, position : position + 1], position, cache))
    return float(torch.nn.functional.cross_entropy(torch.cat(logits, dim=1).flatten(0, 1), targets.flatten()))


def part_of(name: str) -> str:
    """Return the part of an engine to which a unit belongs."""
    return next((part for part, begins in PARTS.items() if name.startswith(begins)), "add, mul, sum, max")


def row_of(policy: Path, model: Decoder, rows: int, lanes: int, pipeline: int) -> Row:
    """Measure a policy."""
    arithmetic, target = Arithmetic.read(policy, lanes), target_of(TARGET)
    engine = Engine(model.shape, arithmetic, pipeline=pipeline)
    Fragment.get(engine, None)
    kinds: dict[str, Any] = {unit.name: unit for unit in engine.units.values()}
    (whole,) = measure_modules([Netlist.of_array(engine)], target)
    costs = dict(zip(kinds, measure_modules(map(Netlist.of, kinds.values()), target), strict=True))
    parts: Counter[str] = Counter()
    for name, unit in engine.units.items():
        parts[part_of(name)] += costs[unit.name].lut
    # Place and route of the unit with the longest path.
    slowest = max(kinds, key=lambda name: costs[name].path)
    (mhz,) = frequencies([Netlist.of(Registered(kinds[slowest]))], target)
    with Simulation(Engine(model.shape, arithmetic, pipeline=pipeline), model) as simulation:
        for position in range(model.shape.context):
            simulation.step(0, restart=position == 0)
        cycles = round(sum(simulation.cycles) / len(simulation.cycles))
    loss = loss_of(model, arithmetic, rows)
    return Row(policy.stem, loss, whole, dict(parts), slowest, mhz, cycles)


def table_of(rows: list[Row], fp32: float, lanes: int, pipeline: int) -> Table:
    """Return the table of the page."""
    frame = pd.DataFrame(
        {
            "policy": row.policy,
            "loss": row.loss,
            "LUT": row.whole.lut,
            "FF": row.whole.ff,
            "DP16KD": row.whole.bram,
            **{f"LUT of {part}": row.parts.get(part, 0) for part in (*PARTS, "add, mul, sum, max")},
            "slowest unit": row.slowest,
            "MHz": row.mhz,
            "cycles a token": row.cycles,
        }
        for row in rows
    )
    engine = f"the engine with {lanes} lanes, and units of elements with {pipeline} register stages"
    notes = [
        f"loss: cross-entropy in nats on the text, token by token under the policy; {fp32:.3f} in FP32",
        f"LUT, FF, DP16KD: {Cost.origin(target_of(TARGET), engine)}; parts are units alone",
        "MHz: clock between registers of the unit with the longest path, after place and route by nextpnr",
        "cycles a token: mean over a context",
    ]
    formats = dict.fromkeys([name for name in frame if "LUT" in name or "cycles" in name], ",.0f")
    formats |= {"loss": ".3f", "FF": ",.0f", "DP16KD": ",.0f", "MHz": ".1f"}
    return Table("Decoder by policy", frame, formats, notes, best={"loss": "lowest", "LUT": "lowest"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=build_root() / "decoder.pt")
    parser.add_argument("--policies", type=Path, nargs="+", default=sorted(POLICY.parent.glob("*.toml")))
    parser.add_argument("--lanes", type=int, default=8)
    parser.add_argument("--pipeline", type=int, default=4, help="register stages of the units of elements")
    parser.add_argument("--contexts", type=int, default=32, help="contexts of the text for the loss")
    parser.add_argument("-o", "--output", type=Path, default=build_root() / "decoder")
    arguments = parser.parse_args()
    model, rows = load(arguments.model), []
    for policy in arguments.policies:
        rows.append(row_of(policy, model, arguments.contexts, arguments.lanes, arguments.pipeline))
        print(rows[-1], flush=True)
    fp32 = loss_of(model, None, arguments.contexts)
    arguments.output.mkdir(parents=True, exist_ok=True)
    table = table_of(rows, fp32, arguments.lanes, arguments.pipeline)
    losses, luts = [row.loss for row in rows], [row.whole.lut for row in rows]
    front = undominated(list(zip(luts, losses, strict=True)))
    caption = f"Loss in FP32: {fp32:.3f}. {Cost.origin(target_of(TARGET), 'the whole engine')}."
    panels = [Panel("loss", losses, "lowest")]
    names = [row.policy for row in rows]
    write(plot_front(names, luts, panels, front, xlabel="LUT4", caption=caption), arguments.output, "decoder")
    table.write(arguments.output, "decoder")
    print(table.markdown())


if __name__ == "__main__":
    main()
