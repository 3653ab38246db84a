"""Known networks in plain torch."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BATCHES = {
    "lenet5": 64,
    "vgg16": 128,
    "resnet20": 128,
    "resnet50": 16,
    "gru": 64,
    "nanogpt": 64,
    "smallgpt": 32,
}
"""Examples in a training step of each known network."""


def lenet5() -> nn.Module:
    """Build LeNet-5 (LeCun et al., 1998) with ReLU: 5 x 5 convolutions 1 -> 6 -> 16, then layers 400-120-84-10."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU()),
        *(nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


class Residual(nn.Module):
    """Residual block: two 3 x 3 convolutions and a shortcut, which has zeros in added channels."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.stride, self.more = stride, out - channels

    def forward(self, x: Tensor) -> Tensor:
        """Compute the block."""
        around = F.pad(x[..., :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.more))
        x = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(x)) + around)


def resnet20(classes: int = 10) -> nn.Module:
    """Build ResNet-20 (He et al., CVPR 2016): three stages of three blocks with 16, 32 and 64 channels."""
    blocks, channels = [], 16
    for out in (16, 32, 64):
        for place in range(3):
            blocks.append(Residual(channels, out, 2 if place == 0 and out > 16 else 1))
            channels = out
    first = (nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    return nn.Sequential(*first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


def vgg16(classes: int = 10) -> nn.Module:
    """Build VGG-16 (Simonyan and Zisserman, ICLR 2015) for images of 32 x 32, with batch normalisation."""
    layers: list[nn.Module] = []
    channels = 3
    for out, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += nn.Conv2d(channels, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU()
            channels = out
        layers.append(nn.MaxPool2d(2))
    layers.append(nn.Flatten())
    for inputs in (512, 4096):
        layers += nn.Linear(inputs, 4096), nn.ReLU(), nn.Dropout()
    return nn.Sequential(*layers, nn.Linear(4096, classes))


class Bottleneck(nn.Module):
    """Residual block of 1 x 1, 3 x 3 and 1 x 1 convolutions; the last has four times the channels of the others."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            *(nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, stride, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)),
        )
        self.shortcut = nn.Sequential()
        if (channels, stride) != (4 * width, 1):
            self.shortcut.append(nn.Conv2d(channels, 4 * width, 1, stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(4 * width))

    def forward(self, x: Tensor) -> Tensor:
        """Compute the block."""
        return F.relu(self.branch(x) + self.shortcut(x))


def resnet50(classes: int = 10) -> nn.Module:
    """Build ResNet-50 (He et al., CVPR 2016) for images of 224 x 224."""
    first = (nn.Conv2d(3, 64, 7, 2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    blocks, channels = [], 64
    for width, count in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for place in range(count):
            blocks.append(Bottleneck(channels, width, 2 if place == 0 and width > 64 else 1))
            channels = 4 * width
    return nn.Sequential(*first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class Gpt(nn.Module):
    """Transformer that predicts the next letter: torch encoder layers with a causal mask.

    Parameters
    ----------
    alphabet : int
        Number of different letters.
    block : int
        Largest number of letters in an input.
    width, heads, layers : int
        Size of the vector of a letter, heads of attention, and encoder layers.
    dropout : float
        Probability of dropout in the layers.
    """

    def __init__(self, alphabet: int, *, block: int, width: int, heads: int, layers: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.letter = nn.Embedding(alphabet, width)
        self.place = nn.Embedding(block, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, dropout=dropout, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, alphabet)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of the next letter at each position."""
        length = x.shape[-1]
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        x = self.letter(x) + self.place.weight[:length]
        for block in self.blocks:
            x = block(x, src_mask=later)
        scores: Tensor = self.out(self.norm(x))
        return scores


def nanogpt(alphabet: int) -> Gpt:
    """Build a transformer with the sizes of nanoGPT's character-level configuration."""
    return Gpt(alphabet, block=NANO_BLOCK, width=384, heads=6, layers=6, dropout=0.2)


def smallgpt(alphabet: int) -> Gpt:
    """Build a transformer of the same kind that trains in emulated arithmetic on a CPU."""
    return Gpt(alphabet, block=SMALL_BLOCK, width=64, heads=4, layers=3)


NANO_BLOCK, SMALL_BLOCK = 256, 64
"""Letters in an input of each transformer."""


class Rows(nn.Module):
    """Recurrent network that reads an image row by row: a GRU and a linear layer for the classes.

    The GRU is that of Cho et al., EMNLP 2014, with the reset gate after the product as in cuDNN. Its activations are
    modules, so that they can be replaced.
    """

    def __init__(self, inputs: int, classes: int, *, width: int = 48) -> None:
        super().__init__()
        self.of_input = nn.Linear(inputs, 3 * width)
        self.of_state = nn.Linear(width, 3 * width)
        self.gate, self.candidate = nn.Sigmoid(), nn.Tanh()
        self.out = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of the classes, computed from the state after the last row."""
        state = x.new_zeros(len(x), self.of_state.in_features)
        for row in x.flatten(1, -2).unbind(1):
            reset, update, new = self.of_input(row).chunk(3, -1)
            reset_state, update_state, new_state = self.of_state(state).chunk(3, -1)
            update_gate = self.gate(update + update_state)
            candidate = self.candidate(new + self.gate(reset + reset_state) * new_state)
            state = candidate + update_gate * (state - candidate)
        scores: Tensor = self.out(state)
        return scores
