"""A small GPT and two of LeNet-5, which train in seconds to minutes, for studies of accumulators.

Each function returns what a user's function does: ``halfulp train halfulp.lab.train.quick:gpt``.
"""

from functools import partial

import torch
from torch import Tensor, nn

from halfulp.fpga.match.networks import Gpt
from halfulp.fpga.match.networks import lenet5 as published_lenet5

from .data import mnist
from .networks import NETWORKS, classes_loss
from .small import Parts, digits
from .synthetic import ADJECTIVES, LENGTH, NOUNS, VERBS, translation


class _Prompted(nn.Module):
    """Transformer that continues a sentence with its translation."""

    def __init__(self, words: int, *, width: int = 32) -> None:
        super().__init__()
        self.gpt = Gpt(words, block=2 * LENGTH, width=width, heads=2, layers=2)

    def forward(self, words: Tensor) -> Tensor:
        """Return the scores of the words at the last places."""
        scores: Tensor = self.gpt(words)[:, LENGTH:]
        return scores


def gpt() -> Parts:
    """Return a transformer with two layers, 32 wide, for the sentences and translations of `translation`."""
    _, *pairs, loss, _ = translation()
    # Words of the target language have numbers behind those of the source language; the start word is the last one.
    first = 2 * NOUNS + VERBS + ADJECTIVES
    sets = [(torch.cat((words[:, :LENGTH], words[:, LENGTH:] + first), 1), targets + first) for words, targets in pairs]
    count = 1 + int(max(words.max() for words, _ in sets))
    return _Prompted(count), sets[0], sets[1], loss, partial(torch.optim.AdamW, lr=5e-3)


def lenet() -> Parts:
    """Return LeNet-5 for images of 8 x 8 pixels, with padded convolutions."""
    model = nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64, 120), nn.ReLU()),
        *(nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )
    return model, *digits(), classes_loss, partial(torch.optim.AdamW, lr=3e-3)


def lenet5_normal() -> Parts:
    """Return LeNet-5 for MNIST with the initial weights of He et al. (ICCV 2015), normal and larger than torch's."""
    model, data, known = published_lenet5(), mnist(None), NETWORKS["lenet5"]
    for layer in model.children():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
    optimizer = partial(torch.optim.SGD, lr=known.rate, momentum=0.9)
    return model, data.prepare(*data.train), data.prepare(*data.test), classes_loss, optimizer
