"""Known networks with their data and their default training parameters."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

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
    resnet50,
    smallgpt,
    vgg16,
)

from .data import Data, cifar, mnist
from .images import folders
from .language import Lstm, Translator
from .texts import letters, sentences, words
from .vision import RESNETS, MobileNetV2, alexnet, inception, resnet

LSTM_BLOCK = 35
"""Words in a training sequence of the LSTM."""


def classes_loss(scores: Tensor, classes: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """Compute the mean cross entropy of classes, with label smoothing; a text has one class at each letter or word."""
    return F.cross_entropy(scores.flatten(0, -2), classes.flatten(), label_smoothing=smoothing)


def cosine(step: int, steps: int) -> float:
    """Return the share of the learning rate in a step: it falls to zero along a cosine."""
    return 0.5 * (1 + math.cos(math.pi * step / steps))


def divided(step: int, steps: int, *, after: tuple[float, ...], by: float) -> float:
    """Return the share of the learning rate in a step: it is divided after parts of a run."""
    return by ** -sum(step >= part * steps for part in after)


def medium(step: int, steps: int) -> float:
    """Return the share of Zaremba et al. (2014) for their medium LSTM: divided by 1.2 in each epoch after 6 of 39."""
    return 1.2 ** -max(0, 39 * step // steps - 5)


def warmed(step: int, steps: int, *, rises: float) -> float:
    """Return the share of Vaswani et al. (2017): it rises in a part of the run, and falls with the root of the step."""
    place = (step + 1) / (rises * steps)
    return min(place, place**-0.5)


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
        Training parameters.
    optimizer : callable
        Function from parameters to their optimiser. Its groups of parameters have learning rates in proportion to those
        that it gives them.
    loss : callable
        Function from outputs and targets to the mean loss of a batch.
    origin : str
        Digest that identifies a user's network.
    schedule : callable
        Function from a step and the number of steps to the share of the learning rate in it.
    clip : float, optional
        Largest norm of the gradients of a step; longer ones are shortened.
    result : str
        Result beside accuracy and loss: ``perplexity`` of language models, ``BLEU`` of translations.
    """

    build: Callable[[Data], nn.Module]
    load: Callable[[Path | None], Data]
    epochs: int
    batch: int
    rate: float
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
    loss: Callable[[Tensor, Tensor], Tensor] = classes_loss
    origin: str = ""
    schedule: Callable[[int, int], float] = cosine
    clip: float | None = None
    result: Literal["", "perplexity", "BLEU"] = ""


SGD, ADAMW = partial(torch.optim.SGD, momentum=0.9), torch.optim.AdamW


def _residual(layers: int) -> Callable[[Data], nn.Module]:
    """Return the function that builds a residual network for data."""
    return lambda data: resnet(layers, data.classes)


_VISION = partial(
    Network,
    load=cifar,
    epochs=200,
    batch=128,
    rate=0.1,
    optimizer=partial(SGD, weight_decay=5e-4, nesterov=True),
    schedule=partial(divided, after=(0.3, 0.6, 0.8), by=5),
)
"""Networks for images of 32 x 32, as Zagoruyko and Komodakis (BMVC 2016) train residual networks on CIFAR-100."""

_OF_FOLDERS = partial(
    Network,
    load=folders,
    epochs=90,
    optimizer=partial(SGD, weight_decay=1e-4),
    schedule=partial(divided, after=(1 / 3, 2 / 3), by=10),
)
"""Networks for images of 224 x 224, trained as by He et al. (CVPR 2016), section 3.4: 0.1 for 256 images."""

_LANGUAGE = partial(Network, result="perplexity")
"""Networks that predict the next letter or word."""

NETWORKS = {
    **{f"resnet{layers}": _VISION(_residual(layers)) for layers in RESNETS},
    "mobilenetv2": _VISION(lambda data: MobileNetV2(data.classes)),
    "lenet5": Network(lambda data: lenet5(), mnist, 10, BATCHES["lenet5"], 0.02, SGD),
    "vgg16": Network(
        lambda data: vgg16(data.classes), cifar, 160, BATCHES["vgg16"], 0.01, partial(SGD, weight_decay=5e-4)
    ),
    # He et al., section 4.2: 64,000 steps, divided by 10 after 32,000 and 48,000.
    "resnet20": Network(
        lambda data: resnet20(data.classes),
        cifar,
        164,
        BATCHES["resnet20"],
        0.1,
        partial(SGD, weight_decay=1e-4),
        schedule=partial(divided, after=(0.5, 0.75), by=10),
    ),
    "resnet50-224": _OF_FOLDERS(
        lambda data: resnet50(data.classes), batch=BATCHES["resnet50"], rate=0.1 * BATCHES["resnet50"] / 256
    ),
    # Krizhevsky et al., NeurIPS 2012, section 5; its rate was divided when the error stopped
    # improving; here after 1/3 and 2/3 of the epochs.
    "alexnet": _OF_FOLDERS(
        lambda data: alexnet(data.classes), batch=128, rate=0.01, optimizer=partial(SGD, weight_decay=5e-4)
    ),
    "inception": _OF_FOLDERS(lambda data: inception(data.classes), batch=256, rate=0.1),
    "gru": Network(
        lambda data: Rows(data.train[0].shape[-1], data.classes),
        mnist,
        8,
        BATCHES["gru"],
        1e-2,
        partial(ADAMW, weight_decay=0.0),
    ),
    # 5,000 steps on the plays of Shakespeare, as nanoGPT makes.
    "nanogpt": _LANGUAGE(
        lambda data: nanogpt(data.classes),
        partial(letters, block=NANO_BLOCK),
        82,
        BATCHES["nanogpt"],
        1e-3,
        partial(ADAMW, betas=(0.9, 0.99), weight_decay=0.1),
    ),
    "smallgpt": _LANGUAGE(
        lambda data: smallgpt(data.classes),
        partial(letters, block=SMALL_BLOCK),
        5,
        BATCHES["smallgpt"],
        1e-3,
        ADAMW,
    ),
    # The medium network of Zaremba et al. (2014), with their schedule; their loss is the sum over the sequence.
    "lstm": _LANGUAGE(
        lambda data: Lstm(data.classes, 650, 0.5),
        partial(words, block=LSTM_BLOCK),
        39,
        20,
        1.0 * LSTM_BLOCK,
        torch.optim.SGD,
        schedule=medium,
        clip=5 / LSTM_BLOCK,
    ),
    # Base size of Vaswani et al. (2017): 10 epochs, of which 2,000 steps of 15,600 on IWSLT raise the rate.
    "transformer": Network(
        lambda data: Translator(data.classes),
        sentences,
        10,
        128,
        1e-3,
        partial(torch.optim.Adam, betas=(0.9, 0.98), eps=1e-9),
        loss=partial(classes_loss, smoothing=0.1),
        schedule=partial(warmed, rises=0.13),
        result="BLEU",
    ),
}
"""Networks by name."""
