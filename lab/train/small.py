"""Small networks for studies of arithmetic, on 1,797 digits of 8 x 8 pixels.

Each function returns what a user's function does: ``halfulp train halfulp.lab.train.small:resnet``.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from halfulp.fpga.match.networks import Residual, Rows

from .data import shipped
from .networks import classes_loss

FOLDS = 5
"""One image of so many is a test image."""

Pair = tuple[Tensor, Tensor]
Parts = tuple[nn.Module, Pair, Pair, Callable[[Tensor, Tensor], Tensor], Any]


def digits() -> tuple[Pair, Pair]:
    """Return the training set and the test set, with pixels of zero mean and unit variance."""
    pixels, targets = shipped("digits_8x8")
    images = torch.tensor(pixels, dtype=torch.float32)[:, None]
    images = (images - images.mean()) / images.std()
    classes = torch.tensor(targets)
    tests = torch.arange(len(images)) % FOLDS == 0
    return (images[~tests], classes[~tests]), (images[tests], classes[tests])


def resnet() -> Parts:
    """Return a residual network with two blocks of 8 and 16 channels, and batch normalisation."""
    layers = {
        "first": nn.Conv2d(1, 8, 3, 2, padding=1, bias=False),
        "norm": nn.BatchNorm2d(8),
        "relu": nn.ReLU(),
        "block1": Residual(8, 8, 1),
        "block2": Residual(8, 16, 2),
        "pool": nn.AdaptiveAvgPool2d(1),
        "flat": nn.Flatten(),
        "out": nn.Linear(16, 10),
    }
    return _parts(nn.Sequential(OrderedDict(layers)), 0.3)


class _Tokens(nn.Module):
    """Transformer whose tokens are the rows of an image."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.row, self.place = nn.Linear(8, width), nn.Parameter(torch.zeros(8, width))
        self.layer = nn.TransformerEncoderLayer(width, 2, 2 * width, 0.0, batch_first=True, norm_first=True)
        self.out = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.out(self.layer(self.row(x.squeeze(1)) + self.place).mean(1))
        return scores


def transformer() -> Parts:
    """Return a transformer with one layer of two heads, 16 wide."""
    return _parts(_Tokens(), 0.1)


def recurrent() -> Parts:
    """Return a recurrent network that reads an image row by row."""
    return _parts(Rows(8, 10, width=24), 0.5)


def _parts(model: nn.Module, rate: float) -> Parts:
    return model, *digits(), classes_loss, partial(torch.optim.SGD, lr=rate, momentum=0.9)
