"""Networks like those of Table 1 of Lowgen, with random parameters: only the time of their forward pass counts."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfulp.lab.train.vision import normed


class SmallInception(nn.Module):
    """Inception block (Szegedy et al., AAAI 2017): four branches, whose channels are concatenated."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Sequential(*layers)
            for layers in (
                (normed(channels, width, 1),),
                (normed(channels, width, 1), normed(width, width)),
                (normed(channels, width, 1), normed(width, width), normed(width, width)),
                (nn.AvgPool2d(3, 1, 1), normed(channels, width, 1)),
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        """Compute the block."""
        return torch.cat([branch(x) for branch in self.branches], 1)


def small_inception() -> nn.Module:
    """Build nine Inception blocks in three stages."""
    layers: list[nn.Module] = [normed(3, 32, 3, 2)]
    for before, width in pairwise((8, 16, 32, 64)):
        layers += [
            nn.MaxPool2d(2),
            SmallInception(4 * before, width),
            SmallInception(4 * width, width),
            SmallInception(4 * width, width),
        ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))


class SmallDetector(nn.Module):
    """Detector of objects (Liu et al., SSD, ECCV 2016): heads for classes and for boxes at each of four resolutions."""

    WIDTHS, CLASSES, BOXES = (32, 64, 96, 128), 21, 4

    def __init__(self) -> None:
        super().__init__()
        stages = ((normed(before, width, 3, 2), normed(width, width)) for before, width in pairwise((16, *self.WIDTHS)))
        self.first, self.stages = normed(3, 16, 3, 2), nn.ModuleList(nn.Sequential(*stage) for stage in stages)
        self.classes, self.places = (
            nn.ModuleList(nn.Conv2d(width, self.BOXES * count, 3, padding=1) for width in self.WIDTHS)
            for count in (self.CLASSES, 4)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the shares of the classes and the places of all boxes."""
        maps, x = [], self.first(x)
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return torch.cat((F.softmax(_boxes(self.classes, maps, self.CLASSES), -1), _boxes(self.places, maps, 4)), -1)


def _boxes(heads: nn.ModuleList, maps: list[Tensor], count: int) -> Tensor:
    """Return so many results of the heads for each box of all resolutions."""
    results = (head(each).permute(0, 2, 3, 1) for head, each in zip(heads, maps, strict=True))
    return torch.cat([result.reshape(len(result), -1, count) for result in results], 1)


class SmallUnet(nn.Module):
    """Encoder and decoder of images (Ronneberger et al., U-Net, MICCAI 2015), which are concatenated at each level."""

    WIDTHS = (16, 32, 64, 128)

    def __init__(self) -> None:
        super().__init__()
        levels = tuple(pairwise(self.WIDTHS))
        pairs = [(3, self.WIDTHS[0]), *levels]
        self.down = nn.ModuleList(nn.Sequential(normed(before, width), normed(width, width)) for before, width in pairs)
        self.up = nn.ModuleList(nn.ConvTranspose2d(width, before, 2, 2) for before, width in levels)
        self.joined = nn.ModuleList(
            nn.Sequential(normed(width, before), normed(before, before)) for before, width in levels
        )
        self.out = nn.Conv2d(self.WIDTHS[0], 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of the classes of all pixels."""
        levels: list[Tensor] = []
        for down in self.down:
            x = down(F.max_pool2d(x, 2) if levels else x)
            levels.append(x)
        for up, joined, level in zip(reversed(self.up), reversed(self.joined), reversed(levels[:-1]), strict=True):
            x = joined(torch.cat((level, up(x)), 1))
        scores: Tensor = self.out(x)
        return scores
