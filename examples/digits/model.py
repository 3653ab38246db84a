"""A convolutional network for digits of 8 x 8 pixels, in plain torch."""

import torch
from torch import Tensor, nn

from halfulp.lab.train.small import digits

SIZE, TAPS, CLASSES = 8, 9, 10
"""Pixels of a side, elements of a kernel of 3 x 3, and results."""

CELLS = (SIZE // 2) ** 2
"""Places of a channel after pooling."""


class Network(nn.Module):
    """Convolution, ReLU, maximum of 2 x 2 places, and a linear layer."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, channels, 3, padding=1, bias=False)
        self.head = nn.Linear(channels * CELLS, CLASSES, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        features = nn.functional.max_pool2d(torch.relu(self.conv(images)), 2)
        scores: Tensor = self.head(features.flatten(1))
        return scores


def train(channels: int = 8, epochs: int = 12, seed: int = 1) -> Network:
    """Train a network on digits of 8 x 8 pixels."""
    torch.manual_seed(seed)
    (images, classes), _ = digits()
    network = Network(channels)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(epochs):
        for rows in torch.randperm(len(images)).split(64):
            loss = nn.functional.cross_entropy(network(images[rows]), classes[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return network.eval()
