"""A network for `halfulp train examples/network.py:network`, which finds the largest of four numbers."""

import functools

import torch


def network():
    """Return the model, its training data, its test data, the loss and the optimiser."""
    x = torch.randn(512, 16, generator=torch.Generator().manual_seed(1))
    y = x[:, :4].argmax(dim=1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    loss = torch.nn.functional.cross_entropy
    return model, (x[:400], y[:400]), (x[400:], y[400:]), loss, functools.partial(torch.optim.Adam, lr=1e-2)
