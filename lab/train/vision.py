"""Networks for images with three colours: of 32 x 32, and AlexNet and Inception for those of 224 x 224."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfulp.fpga.match.networks import Bottleneck, Residual

RESNETS = {
    18: (Residual, (2, 2, 2, 2)),
    34: (Residual, (3, 4, 6, 3)),
    50: (Bottleneck, (3, 4, 6, 3)),
    101: (Bottleneck, (3, 4, 23, 3)),
}
"""Blocks of residual networks and their numbers in four stages, by the number of layers."""

INVERTED = ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, channels, number and first stride of the blocks of MobileNetV2; two strides less than for 224 x 224."""


def resnet(layers: int, classes: int) -> nn.Module:
    """Build a residual network (He et al., CVPR 2016), whose first convolution is 3 x 3 with stride 1."""
    block, counts = RESNETS[layers]
    blocks: list[nn.Module] = []
    channels = 64
    for width, count in zip((64, 128, 256, 512), counts, strict=True):
        for place in range(count):
            blocks.append(block(channels, width, 2 if place == 0 and width > 64 else 1))
            channels = width if block is Residual else 4 * width
    first = (nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU())
    return nn.Sequential(*first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class Inverted(nn.Module):
    """Inverted residual block: convolutions of 1 x 1 to more channels, of 3 x 3 in each, and of 1 x 1 to fewer."""

    def __init__(self, channels: int, out: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = expansion * channels
        layers: list[nn.Module] = []
        if expansion > 1:
            layers += nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()
        layers += nn.Conv2d(wide, wide, 3, stride, padding=1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()
        layers += nn.Conv2d(wide, out, 1, bias=False), nn.BatchNorm2d(out)
        self.branch, self.around = nn.Sequential(*layers), channels == out and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        """Compute the block."""
        result: Tensor = self.branch(x)
        return x + result if self.around else result


class MobileNetV2(nn.Module):
    """MobileNetV2 (Sandler et al., CVPR 2018)."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        channels = 32
        for expansion, out, count, stride in INVERTED:
            for place in range(count):
                blocks.append(Inverted(channels, out, stride if place == 0 else 1, expansion))
                channels = out
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()),
            *blocks,
            *(nn.Conv2d(channels, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU6()),
        )
        self.out = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of the classes."""
        scores: Tensor = self.out(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))
        return scores


ALEXNET = ((64, 11, 4, True), (192, 5, 1, True), (384, 3, 1, False), (256, 3, 1, False), (256, 3, 1, True))
"""Channels, side and stride of the convolutions of AlexNet, and True for those before a pooling."""


def alexnet(classes: int) -> nn.Module:
    """Build AlexNet in the form for one device (Krizhevsky, One weird trick, 2014) for images of 224 x 224."""
    layers: list[nn.Module] = []
    channels = 3
    for out, side, stride, pooled in ALEXNET:
        layers += nn.Conv2d(channels, out, side, stride, padding=2 if side > 3 else 1), nn.ReLU()
        layers += [nn.MaxPool2d(3, 2)] * pooled
        channels = out
    layers.append(nn.Flatten())
    for inputs in (256 * 6 * 6, 4096):
        layers += nn.Dropout(), nn.Linear(inputs, 4096), nn.ReLU()
    return nn.Sequential(*layers, nn.Linear(4096, classes))


INCEPTION = (
    *((64, (64, 64), (64, 96), 32, True), (64, (64, 96), (64, 96), 64, True), (0, (128, 160), (64, 96), 0, False)),
    *((224, (64, 96), (96, 128), 128, True), (192, (96, 128), (96, 128), 128, True)),
    *((160, (128, 160), (128, 160), 96, True), (96, (128, 192), (160, 192), 96, True)),
    *((0, (128, 192), (192, 256), 0, False), (352, (192, 320), (160, 224), 128, True)),
    (352, (192, 320), (192, 224), 128, False),
)
"""Channels of the branches of each block, and True for a mean in place of a maximum in the last branch.

The branches are 1 x 1; 1 x 1 and 3 x 3; 1 x 1 and twice 3 x 3; pooling and 1 x 1. A block without the first one has
stride 2, and its pooling has all channels.
"""


def normed(channels: int, out: int, side: int = 3, stride: int = 1) -> nn.Sequential:
    """Return a convolution with batch normalisation."""
    convolution = nn.Conv2d(channels, out, side, stride, padding=side // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(out), nn.ReLU())


class Inception(nn.Module):
    """Block of branches, with the parameters of a row of `INCEPTION`."""

    def __init__(
        self, channels: int, one: int, three: tuple[int, int], twice: tuple[int, int], pooled: int, mean: bool
    ) -> None:
        super().__init__()
        stride = 1 if one else 2
        pool: nn.Module = nn.AvgPool2d(3, 1, 1) if mean else nn.MaxPool2d(3, stride, 1)
        branches: list[list[nn.Module]] = [
            [normed(channels, three[0], 1), normed(*three, 3, stride)],
            [normed(channels, twice[0], 1), normed(*twice, 3), normed(twice[1], twice[1], 3, stride)],
            [pool, *([normed(channels, pooled, 1)] if pooled else [])],
        ]
        if one:
            branches.append([normed(channels, one, 1)])
        self.branches = nn.ModuleList(nn.Sequential(*branch) for branch in branches)
        self.channels = one + three[1] + twice[1] + (pooled or channels)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the block."""
        return torch.cat([branch(x) for branch in self.branches], 1)


def inception(classes: int) -> nn.Module:
    """Build Inception with batch normalisation (Ioffe and Szegedy, ICML 2015, figure 5) for images of 224 x 224."""
    first = (normed(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1), normed(64, 64, 1), normed(64, 192, 3))
    blocks: list[nn.Module] = [nn.MaxPool2d(3, 2, 1)]
    channels = 192
    for row in INCEPTION:
        blocks.append(block := Inception(channels, *row))
        channels = block.channels
    return nn.Sequential(*first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
