"""Weight updates and additions that BF16 loses in recurrent networks, and what they cost (FASE, Table 3)."""

import math
import warnings
from collections import defaultdict
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from halfulp import golden
from halfulp.golden.torch_internals import TorchDispatchMode
from halfulp.lab.train.data import Data
from halfulp.lab.train.networks import LSTM_BLOCK, NETWORKS, Network
from halfulp.lab.train.synthetic import text
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.threads import threads

from .arbitor import everything
from .trainings import IN_FP32, QUICK, Case, Effort, run, trained

WORDS, SEQUENCES = 10_000, 400
"""Words of the published language model, as PTB has, and sequences of a text of so many words."""

STEPS = 10
"""Steps in FP32 before the one that is measured."""

PARTS = (0.0, 0.25, 0.5, 0.75)
"""Parts of a training whose learning rates are measured."""

SAMPLE = 16
"""Largest number of rows and of columns of a product whose sums are measured."""

ARITHMETICS = {
    "FP32": "",
    "BF16": everything("bf16"),
    "BF16, updates in FP32": everything("bf16").replace("optimizer=bf16", "optimizer=fp32"),
    "BF16, sums in FP32": "bf16*bf16+fp32.rn, elementwise=bf16.rn, reductions=fp32.rn, optimizer=bf16.rn",
}
"""Arithmetics of the small language model."""


def perplexities(quick: bool = False, pool: JobPool = LOCAL) -> dict[str, float]:
    """Train the small language model in each way; return the perplexity of its parameters, computed in FP32."""
    cases = {
        way: Case("words", (("*", text),), emulate=True) if text else Case("words") for way, text in ARITHMETICS.items()
    }
    losses = trained(dict.fromkeys(cases.values(), QUICK if quick else Effort(seeds=(0,))), IN_FP32, pool=pool)
    return {way: math.exp(losses[case][0]) for way, case in cases.items()}


@threads(1)
def shares(quick: bool = False) -> dict[str, dict[str, float]]:
    """Return shares of updates and additions that BF16 loses, in the published LSTM and in small networks."""
    words = 64 if quick else WORDS
    pair = text(words, SEQUENCES, LSTM_BLOCK)
    lstm = NETWORKS["lstm"]
    found = {"LSTMx2": _shares(lstm, Data("text", pair, pair, words), 2 if quick else lstm.batch)}
    for name in ("words", "recurrent"):
        with TemporaryDirectory() as folder:
            small = run(Case(name), Effort(), 0, Path(folder))
        found[name] = _shares(small.network, small.data, small.plan.batch)
    return found


def _shares(network: Network, data: Data, batch: int) -> dict[str, float]:
    """Return the shares after a few steps: of updates at parts of a training, and of additions."""
    torch.manual_seed(0)
    model = network.build(data)
    optimizer = network.optimizer(model.parameters())
    batches = zip(*(each.split(batch) for each in data.train), strict=True)
    for _ in range(STEPS):
        _backward(network, model, *next(batches))
        optimizer.step()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16())
    _backward(network, model, *next(batches))
    rates = {part: network.rate * network.schedule(round(1000 * part), 1000) for part in PARTS}
    found = {f"updates, {part:.0%}": _updated(optimizer, rate) for part, rate in rates.items()}
    with warnings.catch_warnings():
        # torch warns at the first use of `mkldnn.flags` on machines with a GPU.
        warnings.simplefilter("ignore", UserWarning)
        with torch.backends.mkldnn.flags(enabled=False), _Sums() as sums:
            # oneDNN would compute whole layers, so that their products are not seen.
            _backward(network, model, *next(batches))
    return found | {kind: lost / count for kind, (lost, count) in sums.counts.items()}


def _backward(network: Network, model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
    """Compute the gradients of a batch in FP32."""
    model.zero_grad()
    network.loss(model(inputs), targets).backward()
    if network.clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), network.clip)


def _updated(optimizer: torch.optim.Optimizer, rate: float) -> float:
    """Return the share of non-zero gradients whose parameter an update in BF16 leaves unchanged.

    Parameters and optimiser are restored.
    """
    (group,) = optimizer.param_groups
    state = deepcopy(optimizer.state_dict())
    before = [parameter.detach().clone() for parameter in group["params"]]
    group["lr"] = rate
    with golden.emulate("fp32, optimizer=bf16.rn"):
        optimizer.step()
    lost = count = 0
    for parameter, old in zip(group["params"], before, strict=True):
        moved = parameter.grad != 0
        lost += int((moved & (parameter == old)).sum())
        count += int(moved.sum())
        parameter.data = old
    optimizer.load_state_dict(state)
    return lost / count


class _Sums(TorchDispatchMode):
    """Context that counts, by kind, the additions that leave a sum in BF16 unchanged, and all additions.

    Terms of 0 do not count. Products of matrices, each rounded to BF16, are sampled.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in ("mm", "addmm"):
            a, b = (matrix.detach().bfloat16() for matrix in args[-2:])
            rows, columns = (slice(None, None, -(-size // SAMPLE)) for size in (len(a), b.shape[1]))
            a, b = a[rows].T, b[:, columns]
            self._add("products", (left[:, None] * right for left, right in zip(a, b, strict=True)), result.numel())
        elif name == "_log_softmax":
            self._add(
                "softmax",
                (args[0] - args[0].amax(-1, keepdim=True)).exp().bfloat16().unbind(-1),
                result[..., 0].numel(),
            )
        return result

    def _add(self, kind: str, terms: Iterable[Tensor], sums: int) -> None:
        """Count the additions of the terms of some of ``sums`` sums."""
        total = torch.zeros((), dtype=torch.bfloat16)
        lost = count = 0
        for term in terms:
            after = total + term
            known = term != 0
            lost += int((known & (after == total)).sum())
            count += int(known.sum())
            total = after
        for place, number in enumerate((lost, count)):
            self.counts[kind][place] += number * sums / total.numel()
