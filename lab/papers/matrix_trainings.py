"""Loss of small networks on the matrix units of accelerators, beside the cost of a step of each."""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from halfulp.golden.nn import Policy
from halfulp.hdl.specs import MacSpec
from halfulp.hdl.specs.mma import MmaSpec
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.progress import Progress, silent
from halfulp.tools.tables import Table

from . import trainings
from .trainings import FLOAT, LOSS, OWN_DATA, QUICK, Case, Effort, trained

NETWORKS = ("gpt", "lenet")

EPOCHS = {network: trainings.NETWORKS[network][1] for network in NETWORKS}

EFFORT = Effort(seeds=(0,), limit=1024)


def _fp8(unit: str, forward: str, gradient: str, words: str = "") -> str:
    """Return a policy whose gradients have another format than other operands."""
    texts = {"forward": forward, "input_gradient": gradient, "weight_gradient": gradient}
    return ", ".join(f"{phase}={unit}{operand}*{forward}+{words}" for phase, operand in texts.items())


POLICIES = {
    FLOAT: FLOAT,
    "v100.mma.fp16": "v100.mma.fp16",
    "a100.mma.bf16": "a100.mma.bf16",
    "h100.wgmma, FP8": _fp8("h100.wgmma: ", "e4m3fn", "e5m2", "fp32"),
    "h100.wgmma, FP8, every=128": _fp8("h100.wgmma: ", "e4m3fn", "e5m2", "fp32 every=128"),
    "b200.tcgen05, FP8": _fp8("b200.tcgen05: ", "e4m3fn", "e5m2", "fp32"),
    "mi300.mfma, FP8": _fp8("mi300.mfma: ", "e4m3fnuz", "e5m2fnuz", "fp32"),
    "aligned5, FP8": _fp8("mma32 ", "e4m3fn", "e5m2", "fp32.rz order=aligned5 zero=-133"),
    "aligned3, FP8": _fp8("mma32 ", "e4m3fn", "e5m2", "fp32.rz order=aligned3 zero=-133"),
    "exact, FP8": _fp8("", "e4m3fn", "e5m2", "exact=fp32"),
    "e6m9.sr10, FP8": _fp8("", "e4m3fn", "e5m2", "e6m9.sr10"),
}
"""Policies of products by name; other operations are in FP32.

FP8: activations and weights in e4m3, gradients in e5m2. Exact sums and stochastic ones are of multiply-accumulates.
"""

RESULTS = Path(__file__).resolve().parents[2] / "fpga" / "results"
"""Records of costs, in a checkout."""

AREA, CLOCK = "vu9p", "ecp5-85k"
"""Devices of the costs: lookup tables of the first, clock of the second."""


def case(network: str, name: str) -> Case:
    """Return the training of a network with a policy."""
    return Case(network, (("*", POLICIES[name]),))


def losses(*, quick: bool = False, progress: Progress = silent, pool: JobPool = LOCAL) -> list[dict[str, Any]]:
    """Return a row for each network and policy: the mean loss on the test set after the training.

    With ``quick``, trainings have one step.
    """
    cases = {(network, name): case(network, name) for network in NETWORKS for name in POLICIES}
    values = trained(dict.fromkeys(cases.values(), QUICK if quick else EFFORT), LOSS, progress, pool)
    return [
        {"network": network, "unit": name, "loss": statistics.fmean(values[training])}
        for (network, name), training in cases.items()
    ]


def read(path: Path) -> list[dict[str, Any]]:
    """Read the rows of `losses` from a CSV file; ValueError if it has others."""
    columns = {"network": str, "unit": str, "loss": float}
    return trainings.read_losses(path, columns, {"network": NETWORKS, "unit": POLICIES})


def step(name: str) -> MmaSpec | MacSpec | None:
    """Return the unit of the forward products of a policy; None for torch's own arithmetic."""
    mac = Policy.parse(POLICIES[name]).forward
    if isinstance(mac, MmaSpec):
        return replace(mac, every=None)
    return mac if isinstance(mac, MacSpec) else None


def table(rows: Sequence[dict[str, Any]], folder: Path = RESULTS) -> Table:
    """Return losses and the cost of a step for each policy; costs without a record in a folder are empty cells."""
    costs = _costs(folder)
    lines = []
    for name in POLICIES:
        spec = step(name)
        line: dict[str, Any] = {"unit": name}
        line |= {f"{row['network']}, loss": row["loss"] for row in rows if row["unit"] == name}
        line["products"] = spec.k if isinstance(spec, MmaSpec) else None if spec is None else 1
        line["LUT"] = costs.get((str(spec), AREA), {}).get("LUT")
        line["MHz"] = costs.get((str(spec), CLOCK), {}).get("MHz")
        lines.append(line)
    notes = [
        "FP8: e4m3, and gradients in e5m2, rounded to nearest; other operations are in FP32. alignedN: as h100.wgmma "
        "with N bits after the point, and without a narrow result. exact, e6m9.sr10: sums of multiply-accumulates.",
        f"Mean loss on the test set after {EFFORT.limit} training examples, {EPOCHS['gpt']} times for gpt and "
        f"{EPOCHS['lenet']} times for lenet, with one seed. gpt: {OWN_DATA['gpt']}. lenet: {OWN_DATA['lenet']}.",
        f"Products and LUT of a step on {AREA}, and its clock on {CLOCK}, without register stages.",
    ]
    formats = {f"{network}, loss": ".3f" for network in NETWORKS} | {"products": ".0f", "LUT": ",.0f", "MHz": ".1f"}
    return Table("Loss on matrix units", pd.DataFrame(lines), formats, notes)


def _costs(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the recorded costs by unit and device, as far as they are measured."""
    costs: dict[tuple[str, str], dict[str, Any]] = {}
    for path in sorted(folder.glob("*.csv")):
        frame = pd.read_csv(path)
        if {"unit", "target", "LUT", "path"} <= set(frame):
            for row in frame.to_dict("records"):
                cells = {str(column): cell for column, cell in row.items() if not pd.isna(cell)}
                costs.setdefault((row["unit"], row["target"]), {}).update(cells)
    return costs


def bits_of(name: str) -> int | None:
    """Return the bits after the point of the aligned sums of a policy in FP8; None for other sums."""
    mac = Policy.parse(POLICIES[name]).forward
    if isinstance(mac, MmaSpec) and mac.kind == "aligned" and mac.every is None and mac.a.width == 8:
        return mac.fraction
    return None
