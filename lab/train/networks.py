"""Known networks with their data and their default training parameters."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfulp.fpga.match.networks import (
    BATCHES,
    NANO_BLOCK,
    SMALL_BLOCK,
    Rows,
    lenet5,
    nanogpt,
    resnet20,
    smallgpt,
    vgg16,
)

from .data import Data, cifar, letters, mnist
from .vision import RESNETS, MobileNetV2, resnet


def classes_loss(scores: Tensor, classes: Tensor) -> Tensor:
    """Compute the mean cross entropy of classes; a text has one class at each letter."""
    return F.cross_entropy(scores.flatten(0, -2), classes.flatten())


@dataclass(frozen=True)
class Network:
    """Network, its data and its default training parameters.

    Attributes
    ----------
    build : callable
        Function from data to the network with random parameters.
    load : callable
        Function from a path to data; None loads the data of a package.
    epochs, batch, rate
        Training parameters. The learning rate falls to zero along a cosine.
    optimizer : callable
        Function from parameters to their optimiser. Its groups of parameters have learning rates in proportion to those
        that it gives them.
    loss : callable
        Function from outputs and targets to the mean loss of a batch.
    origin : str
        Digest that identifies a user's network.
    """

    build: Callable[[Data], nn.Module]
    load: Callable[[Path | None], Data]
    epochs: int
    batch: int
    rate: float
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
    loss: Callable[[Tensor, Tensor], Tensor] = classes_loss
    origin: str = ""


SGD, ADAMW = partial(torch.optim.SGD, momentum=0.9), torch.optim.AdamW


def _residual(layers: int) -> Callable[[Data], nn.Module]:
    """Return the function that builds a residual network for data."""
    return lambda data: resnet(layers, data.classes)


_VISION = partial(
    Network, load=cifar, epochs=200, batch=128, rate=0.1, optimizer=partial(SGD, weight_decay=5e-4, nesterov=True)
)
"""Networks for images of 32 x 32, with the schedule of their publications on CIFAR-100."""

NETWORKS = {
    **{f"resnet{layers}": _VISION(_residual(layers)) for layers in RESNETS},
    "mobilenetv2": _VISION(lambda data: MobileNetV2(data.classes)),
    "lenet5": Network(lambda data: lenet5(), mnist, 10, BATCHES["lenet5"], 0.02, SGD),
    "vgg16": Network(
        lambda data: vgg16(data.classes), cifar, 160, BATCHES["vgg16"], 0.01, partial(SGD, weight_decay=5e-4)
    ),
    "resnet20": Network(
        lambda data: resnet20(data.classes), cifar, 160, BATCHES["resnet20"], 0.1, partial(SGD, weight_decay=1e-4)
    ),
    "gru": Network(
        lambda data: Rows(data.train[0].shape[-1], data.classes),
        mnist,
        8,
        BATCHES["gru"],
        1e-2,
        partial(ADAMW, weight_decay=0.0),
    ),
    # 5,000 steps on the plays of Shakespeare, as nanoGPT makes.
    "nanogpt": Network(
        lambda data: nanogpt(data.classes),
        partial(letters, block=NANO_BLOCK),
        82,
        BATCHES["nanogpt"],
        1e-3,
        partial(ADAMW, betas=(0.9, 0.99), weight_decay=0.1),
    ),
    "smallgpt": Network(
        lambda data: smallgpt(data.classes),
        partial(letters, block=SMALL_BLOCK),
        5,
        BATCHES["smallgpt"],
        1e-3,
        ADAMW,
    ),
}
"""Networks by name."""
