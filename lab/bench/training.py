"""Speed of training steps of emulated programs, relative to FP32 of the same run."""

from collections.abc import Iterator

import torch

from halfulp.fpga.match.networks import resnet20
from halfulp.lab.train.language import Lstm
from halfulp.lab.train.steps import TrainingStep, Transformer, compiled_step, converted, emulated
from halfulp.lab.train.vision import resnet
from halfulp.tools.progress import Progress, silent
from halfulp.tools.threads import threads
from halfulp.tools.timing import in_turns

from .speed import THREADS, Speed

IN_PRODUCTS = "bf16*bf16+fp32.rn, reductions=fp32.rn"
EVERYTHING = tuple(f"bf16*bf16+{acc}.rn, elementwise=bf16.rn, optimizer=fp32.rn" for acc in ("fp32", "bf16"))
"""Policies with emulated products and sums, and with every operation emulated."""

IN_LAYERS = (
    "bf16*bf16+fp32.rn",
    "e4m3fn*e4m3fn+fp16.rn",
    "e5m2*e5m2+e6m5.sr10@lfsr16",
    "e5m2*e5m2+e6m5.sr10",
    "posit8*posit8+posit16.rn",
)
"""Policies of converted layers; the one without a source takes its random words from Philox."""

REPEATS = 2
"""Measured steps of each kind."""


STEPS = (
    TrainingStep(
        "GPT",
        "4 layers, 256 wide",
        lambda: Transformer(64, 128, 256, 4),
        (8, 128),
        64,
        (IN_PRODUCTS, *EVERYTHING),
        IN_LAYERS,
        EVERYTHING,
    ),
    TrainingStep("ResNet-20", "batch 32", resnet20, (32, 3, 32, 32), 10, (IN_PRODUCTS, *EVERYTHING), IN_LAYERS),
    TrainingStep("ResNet-18", "batch 32", lambda: resnet(18, 10), (32, 3, 32, 32), 10, EVERYTHING),
    TrainingStep("LSTM", "2 layers, 650 wide", lambda: Lstm(64, 650), (20, 35), 64, EVERYTHING),
    TrainingStep("Transformer", "6 layers, 512 wide", lambda: Transformer(64, 128, 512, 6), (32, 128), 64, EVERYTHING),
)


def steps(
    speeds: list[Speed], measured: tuple[TrainingStep, ...] = STEPS, progress: Progress = silent
) -> Iterator[str]:
    """Yield the lines of the table of training steps, and append their speeds."""
    yield f"{f'training steps, {THREADS} threads':34}{'emulated':>10}{'FP32':>12}{'ratio':>8}"
    yield f"{'':34}{'s':>10}{'s':>12}"
    progress.total(
        "training steps", sum(len(step.layers) + len(step.policies) + len(step.compiled) for step in measured)
    )
    with threads(THREADS):
        for step in measured:
            yield f"{step.name}, {step.size}"
            for make, title, kind, subject, policies in (
                (converted, "layers in ", "layers", step.name, step.layers),
                (emulated, "", "program", step.name, step.policies),
                (compiled_step, "compiled, ", "program", f"{step.name}, compiled", step.compiled),
            ):
                for policy in policies:
                    torch.manual_seed(0)
                    ours, plain = in_turns(*make(step, policy), repeats=REPEATS)
                    speeds.append(Speed(kind, subject, policy, ours, plain))
                    yield f"  {title}{policy}"
                    yield f"{'':34}{ours:10.2f}{plain:12.2f}{ours / plain:7,.1f}x"
                    progress.advance(1)
