"""Networks for images of 32 x 32 with three colours."""

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
