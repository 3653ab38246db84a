"""Commands of `halfulp train` for the cells of published tables, which take the published data and a GPU."""

import shlex
from collections.abc import Iterator

from . import accuracy, fase

MPTORCH = {
    "LeNet5/MNIST": ("lenet5", "MNIST"),
    "ResNet20/CIFAR10": ("resnet20", "cifar-10-batches-py"),
    "VGG16/CIFAR10": ("vgg16", "cifar-10-batches-py"),
    "ResNet50/Imagewoof": ("resnet50-224", "imagewoof2"),
}
"""Networks of Table II of MPTorch-FPGA, with their names here and the folders of their data."""

CURVES = ("e5m2*e5m2+e6m5.rn", "e5m2*e5m2+e6m5.sr10", accuracy.FLOAT)
"""Arithmetics of Figure 6 of MPTorch-FPGA, the loss of Nano-GPT on the plays of Shakespeare."""

FIGURE = "Nano-GPT/Shakespeare, the curves of Figure 6: loss on the test set over 5,000 steps"
"""Name of the commands of the figure."""

FASE = {
    **{f"ResNet{layers}": (f"resnet{layers}", "cifar-100-python") for layers in (18, 34, 50, 101)},
    "MobileNetV2": ("mobilenetv2", "cifar-100-python"),
    "AlexNet": ("alexnet", "imagenet"),
    "Inception": ("inception", "imagenet"),
    "LSTMx2 (perplexity)": ("lstm", "ptb"),
    "Transformer (BLEU)": ("transformer", "iwslt16"),
}
"""Networks of Table 3 of FASE, with their names here and the folders of their data."""

WITHOUT_NORMS = ("alexnet", "lstm", "transformer")
"""Networks without batch normalisation."""


def of_mptorch() -> Iterator[tuple[str, str]]:
    """Yield the networks of MPTorch-FPGA and their commands, one for each arithmetic."""
    for name, (network, data) in MPTORCH.items():
        yield from ((name, _command(network, data, "--mac", row.mac)) for row in accuracy.PUBLISHED)
    yield from ((FIGURE, _command("nanogpt", "shakespeare", "--mac", mac)) for mac in CURVES)


def of_fase() -> Iterator[tuple[str, str]]:
    """Yield the networks of FASE and their commands, one for each published precision."""
    for name, (network, data) in FASE.items():
        precisions = (None, fase.BF16, fase.MIXED, fase.BF16X2)
        for policies, published in zip(precisions, fase.PUBLISHED[name], strict=True):
            if published is None:
                continue
            if policies is None:
                yield name, _command(network, data, "--mac", accuracy.FLOAT)
                continue
            mixed = policies == fase.MIXED and network not in WITHOUT_NORMS
            layers = ("--layer", f"{fase.NORMS}={accuracy.FLOAT}") if mixed else ()
            yield name, _command(network, data, "--emulate", *layers, "--mac", policies[-1][1])


def _command(network: str, data: str, *words: str) -> str:
    return shlex.join(["halfulp", "train", network, "--data", data, "--device", "cuda", *words])
