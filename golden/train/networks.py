"""Networks in plain torch, with their data and default training."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .data import BLOCK, Data, cifar10, letters, mnist


def lenet5() -> nn.Module:
    """LeNet-5 (LeCun et al., 1998) with today's activations: 5 x 5 convolutions 1 -> 6 -> 16, then 400-120-84-10."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU()),
        *(nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


class Residual(nn.Module):
    """Two 3 x 3 convolutions and a shortcut, which is padded with zero channels if the block adds some."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.stride, self.more = stride, out - channels

    def forward(self, x: Tensor) -> Tensor:
        """The block's result."""
        around = F.pad(x[..., :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.more))
        x = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(x)) + around)


def resnet20() -> nn.Module:
    """The CIFAR network of He et al. (CVPR 2016): three stages of three blocks, widths 16, 32 and 64."""
    blocks, channels = [], 16
    for out in (16, 32, 64):
        for place in range(3):
            blocks.append(Residual(channels, out, 2 if place == 0 and out > 16 else 1))
            channels = out
    first = (nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    return nn.Sequential(*first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class NanoGpt(nn.Module):
    """A transformer that predicts the next letter: torch's own encoder layers with a causal mask."""

    def __init__(self, alphabet: int, *, width: int = 64, heads: int = 4, layers: int = 3) -> None:
        super().__init__()
        self.letter = nn.Embedding(alphabet, width)
        self.place = nn.Embedding(BLOCK, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, alphabet)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the next letter at each place."""
        length = x.shape[-1]
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        x = self.letter(x) + self.place.weight[:length]
        for block in self.blocks:
            x = block(x, src_mask=later)
        scores: Tensor = self.out(self.norm(x))
        return scores


class Rows(nn.Module):
    """A recurrent network that reads an image row by row: gated recurrent units, then a layer for the classes.

    Its activations are modules of their own, two sigmoids of gates and a tanh (Cho et al., EMNLP 2014, with the reset
    gate behind the product as in cuDNN).
    """

    def __init__(self, inputs: int, classes: int, *, width: int = 48) -> None:
        super().__init__()
        self.of_input = nn.Linear(inputs, 3 * width)
        self.of_state = nn.Linear(width, 3 * width)
        self.gate, self.candidate = nn.Sigmoid(), nn.Tanh()
        self.out = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes, from the state after the last row."""
        state = x.new_zeros(len(x), self.of_state.in_features)
        for row in x.flatten(1, -2).unbind(1):
            reset, update, new = self.of_input(row).chunk(3, -1)
            reset_state, update_state, new_state = self.of_state(state).chunk(3, -1)
            update_gate = self.gate(update + update_state)
            candidate = self.candidate(new + self.gate(reset + reset_state) * new_state)
            state = candidate + update_gate * (state - candidate)
        scores: Tensor = self.out(state)
        return scores


@dataclass(frozen=True)
class Network:
    """A network, its data and its usual training: stochastic gradient descent with momentum, or AdamW.

    Attributes
    ----------
    build : callable
        Function that returns the network for data, with random parameters.
    load : callable
        Function that returns the data of a path; None is data of a package.
    epochs, batch, rate, momentum, decay
        Parameters of the training; the rate falls to zero along a cosine. Momentum None is AdamW.
    """

    build: Callable[[Data], nn.Module]
    load: Callable[[Path | None], Data]
    epochs: int
    batch: int
    rate: float
    momentum: float | None
    decay: float

    def optimizer(self, model: nn.Module, rate: float) -> torch.optim.Optimizer:
        """Optimiser of the parameters of a model."""
        parameters = list(model.parameters())
        if self.momentum is None:
            return torch.optim.AdamW(parameters, lr=rate, weight_decay=self.decay)
        return torch.optim.SGD(parameters, lr=rate, momentum=self.momentum, weight_decay=self.decay)


NETWORKS = {
    "lenet5": Network(lambda data: lenet5(), mnist, 10, 64, 0.02, 0.9, 0.0),
    "resnet20": Network(lambda data: resnet20(), cifar10, 160, 128, 0.1, 0.9, 1e-4),
    "gru": Network(lambda data: Rows(data.train[0].shape[-1], data.classes), mnist, 8, 64, 1e-2, None, 0.0),
    "nanogpt": Network(lambda data: NanoGpt(data.classes), letters, 5, 32, 1e-3, None, 0.01),
}
"""Networks by their names on the command line."""
