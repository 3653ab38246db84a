"""Loss of GPT-2 and Llama of `transformers`, trained in FP32 and tested in many formats and on matrix units."""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from halfulp.tools.cache import Entry, cached
from halfulp.tools.digests import digest, version
from halfulp.tools.jobs import LOCAL, Job, JobPool
from halfulp.tools.plots import plot_bars
from halfulp.tools.progress import Progress, silent
from halfulp.tools.report import Report, versions
from halfulp.tools.tables import Table
from halfulp.tools.threads import threads

from . import trainings
from .trainings import FLOAT, Case, Effort, key, run

NETWORKS = ("gpt2", "llama")

EFFORT = Effort(seeds=(0,))

QUICK = replace(trainings.QUICK, limit=8)
"""Effort of one step."""

PACKAGES = ("torch", "transformers")

SOURCES = [Path(__file__).parents[1] / "train" / name for name in ("models.py", "shipped/poems.txt")]
"""Module of the networks, and their text."""


def _scaled(mac: str, part: str = "tensor") -> str:
    """Return a policy whose operands have a scale for each part of a tensor."""
    return f"{mac}, activations=rn scale={part}.real, weights=rn scale={part}.real"


PRODUCTS = {
    "bf16": "bf16*bf16+fp32.rn",
    "e4m3fn, tensor": _scaled("e4m3fn*e4m3fn+fp32.rn"),
    "e4m3fn, channel": _scaled("e4m3fn*e4m3fn+fp32.rn", "channel"),
    "e5m2, tensor": _scaled("e5m2*e5m2+fp32.rn"),
    "mxfp8_e4m3": "mxfp8_e4m3*mxfp8_e4m3+fp32.rn",
    "mxfp8_e4m3*mxfp4": "mxfp8_e4m3*mxfp4+fp32.rn",
    "mxfp4": "mxfp4*mxfp4+fp32.rn",
    "nvfp4": "nvfp4*nvfp4+fp32.rn",
    "v100.mma.fp16": "v100.mma.fp16",
    "h100.wgmma.e4m3": _scaled("h100.wgmma: e4m3fn*e4m3fn+fp32"),
    "h100.wgmma.e4m3 every=128": _scaled("h100.wgmma: e4m3fn*e4m3fn+fp32 every=128"),
    "b200.tcgen05.mxfp8_e4m3": "b200.tcgen05.mxfp8_e4m3",
    "b200.tcgen05.mxfp4": "b200.tcgen05.mxfp4",
    "b200.tcgen05.nvfp4": "b200.tcgen05.nvfp4",
    "mi300.mfma.e4m3": _scaled("mi300.mfma.e4m3"),
}
"""Policies of products by name."""

POLICIES = {FLOAT: FLOAT} | {name: f"{text}, elementwise=bf16.rn" for name, text in PRODUCTS.items()}
"""Policies of whole programs; that of FP32 is torch's own arithmetic."""

COLUMNS = {"network": str, "arithmetic": str, "loss": float, "key": str}
"""Columns of the record."""


def losses(*, quick: bool = False, progress: Progress = silent, pool: JobPool = LOCAL) -> list[dict[str, Any]]:
    """Return a row for each network and policy: the mean loss over the seeds, and a digest of all that decides it.

    With ``quick``, trainings have one step.
    """
    effort = QUICK if quick else EFFORT
    names = [(network, name) for network in NETWORKS for name in POLICIES]
    jobs = {
        (seed, network, name): Job(
            f"test of {network} in {name}", tested, (network, name, replace(effort, seeds=(seed,)))
        )
        for seed in effort.seeds
        for network, name in names
    }
    entries = {
        part: Entry.of("models", (*_key(*job.arguments[::2]), POLICIES[job.arguments[1]])) for part, job in jobs.items()
    }
    progress.total("models in formats", len(jobs))
    results = pool.results(
        [(entries[part], job) for part, job in jobs.items()],
        progress,
        versions=partial(versions, *PACKAGES),
        here="call" if quick else "process",
    )
    return [
        {
            "network": network,
            "arithmetic": name,
            "loss": statistics.fmean(results[entries[seed, network, name]] for seed in effort.seeds),
            "key": digest_of(network, name, effort),
        }
        for network, name in names
    ]


def _key(network: str, effort: Effort) -> tuple[object, ...]:
    """Return everything that decides the numbers of a trained network."""
    return (*key(Case(network), effort), version("transformers"))


@threads(1)
def tested(network: str, name: str, effort: Effort) -> float:
    """Return the loss of a network, trained in FP32 with one seed; every operation but the loss is in the policy."""
    import torch

    from halfulp.golden.program import emulate

    made = partial(run, Case(network), effort, effort.seeds[0])
    trained = made(cached("models-trained", _key(network, effort), lambda folder: made(folder).train()))
    trained.load(trained.final)
    model = trained.model.eval()
    scores = model if name == FLOAT else emulate(POLICIES[name], strict=True)(model)
    letters, targets = trained.data.test
    with torch.no_grad():
        return trained.network.loss(scores(letters), targets).item()


def digest_of(network: str, name: str, effort: Effort = EFFORT) -> str:
    """Return a digest of the settings of a row, of its policy, of the text, and of the module of the networks.

    Unlike keys of the cache it is the same in all versions of Python.
    """
    sources = (path.read_text(encoding="utf-8") for path in SOURCES)
    return digest(trainings.NETWORKS[network], effort, POLICIES[name], *sources)[:8]


def stale(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the networks and arithmetics whose rows are missing or were made with other settings."""
    keys = {(row["network"], row["arithmetic"]): row["key"] for row in rows}
    wanted = [(network, name) for network in NETWORKS for name in POLICIES]
    return [f"{name} on {network}" for network, name in wanted if keys.get((network, name)) != digest_of(network, name)]


def report(rows: Sequence[dict[str, Any]], effort: Effort = EFFORT) -> Report:
    """Return the table, its plot and the record of the rows of `losses`."""
    losses_table = table(rows, effort)
    return Report(
        {"models-losses": losses_table},
        {"models": partial(_plot, losses_table.frame)},
        {"models.csv": pd.DataFrame(rows).to_csv(index=False, lineterminator="\n", float_format="%.5f")},
        title="Loss of models of transformers",
        made_by="halfulp report models",
    )


def table(rows: Sequence[dict[str, Any]], effort: Effort = EFFORT) -> Table:
    """Return the losses of each policy, and how much more they are than those in FP32."""
    values = {(row["network"], row["arithmetic"]): row["loss"] for row in rows}
    lines: list[dict[str, Any]] = []
    for name, policy in POLICIES.items():
        lines.append({"products": name})
        for network in NETWORKS:
            loss = values[network, name]
            lines[-1] |= {network: loss, f"{network}, more": loss - values[network, FLOAT]}
        lines[-1]["policy"] = policy
    _, epochs, batch = trainings.NETWORKS[NETWORKS[0]]
    limit = "" if effort.limit is None else f" and {effort.limit} examples"
    notes = [
        f"Mean loss on {trainings.OWN_DATA[NETWORKS[0]]}, and its difference from that in FP32, after a training in "
        f"FP32 on the same text with {effort.epochs or epochs} epochs, batches of {batch}{limit} and one seed.",
        "Every operation of a test but the loss is in the policy: products as named, the rest in bfloat16. tensor, "
        "channel: operands have a scale for each tensor, or for each token and each output channel; products in e4m3 "
        "of h100 and mi300 have one for each tensor.",
    ]
    formats = {f"{network}{of}": ".4f" for network in NETWORKS for of in ("", ", more")}
    return Table("Loss of models of transformers", pd.DataFrame(lines), formats, notes, only_csv=["policy"])


def read(path: Path) -> list[dict[str, Any]]:
    """Read the rows of `losses` from a CSV file; ValueError if it has others."""
    return trainings.read_losses(path, COLUMNS, {"network": NETWORKS, "arithmetic": POLICIES})


def _plot(frame: pd.DataFrame) -> object:
    return plot_bars(
        {
            network: {
                row["products"]: {"loss more than in FP32": row[f"{network}, more"]}
                for row in frame.to_dict("records")
                if row["products"] != FLOAT
            }
            for network in NETWORKS
        },
        title="Loss of transformers in many formats, beyond that in FP32",
    )
