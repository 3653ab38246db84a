"""Training data from users' files or from a package.

Functions that load data raise ValueError if files are invalid, or if no path is given and no package has the data.
"""

import gzip
import hashlib
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

MNIST_TESTS = 100
"""Number of test images of each digit: the last of its 500 in `shipped/mnist_5000.npz`."""

IGNORED = -100
"""Target without a class, as behind the end of a sentence; loss and accuracy leave it out."""


def _as_stored(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    return inputs, targets


@dataclass(frozen=True)
class Data:
    """Training set and test set.

    Attributes
    ----------
    name : str
        Name in tables.
    train, test : tuple of Tensor
        Inputs and targets; a text has a class at each letter or word, or `IGNORED`.
    classes : int
        Number of classes; 0 if it is unknown, or targets are real numbers.
    vary : callable, optional
        Data augmentation: function from inputs and a random generator to inputs.
    prepare : callable
        Function from inputs and targets of a batch, as they are stored, to those of the network and the loss.

    Raises
    ------
    ValueError
        If there are no examples, or a class is out of range.
    """

    name: str
    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    classes: int
    vary: Callable[[Tensor, torch.Generator], Tensor] | None = None
    prepare: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = _as_stored

    def __post_init__(self) -> None:
        for what, (_, targets) in (("training", self.train), ("test", self.test)):
            given = targets[targets != IGNORED] if self.classes else targets
            if given.numel() == 0:
                raise ValueError(f"{self.name}: the {what} set is empty")
            if self.classes and (given.min() < 0 or given.max() >= self.classes):
                beyond = int(given.max() if given.max() >= self.classes else given.min())
                raise ValueError(f"{self.name}: an example has class {beyond}; classes are 0 to {self.classes - 1}")

    def limited(self, count: int | None) -> "Data":
        """Select ``count`` random training examples and ``count`` / 4 test examples; None selects all."""
        if count is None:
            return self
        return replace(self, train=_sample(self.train, count), test=_sample(self.test, max(count // 4, 1)))

    @cached_property
    def digest(self) -> str:
        """Digest of all examples."""
        return digest_of(*self.train, *self.test)

    @property
    def of_classes(self) -> bool:
        """True if targets are classes."""
        return not self.train[1].dtype.is_floating_point


def digest_of(*tensors: Tensor) -> str:
    """Digest of the numbers of tensors."""
    hasher = hashlib.sha256()
    for tensor in tensors:
        hasher.update(tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return hasher.hexdigest()[:20]


def _sample(pair: tuple[Tensor, Tensor], count: int) -> tuple[Tensor, Tensor]:
    order = torch.randperm(len(pair[0]), generator=torch.Generator().manual_seed(0))[:count]
    return pair[0][order], pair[1][order]


def mnist(path: Path | None) -> Data:
    """Load handwritten digits: the four files of MNIST in a folder, or the 5,000 images of the package."""
    if path is None:
        images, digits = shipped("mnist_5000")
        # The last images of each digit are the test set.
        last = np.zeros(len(digits), dtype=bool)
        for digit in range(10):
            last[np.flatnonzero(digits == digit)[-MNIST_TESTS:]] = True
        parts = [(images[rows], digits[rows]) for rows in (~last, last)]
        name = f"MNIST, {len(digits):,} images"
    else:
        folder = next((place for place in (path, path / "MNIST" / "raw", path / "raw") if _idx(place)), None)
        if folder is None:
            raise ValueError(
                f"{path} has no train-images-idx3-ubyte, gzipped or not; give the folder with the four files of MNIST"
            )
        parts = [
            (_read_idx(folder, f"{part}-images-idx3-ubyte", 3), _read_idx(folder, f"{part}-labels-idx1-ubyte", 1))
            for part in ("train", "t10k")
        ]
        name = f"MNIST, {len(parts[0][0]) + len(parts[1][0]):,} images"
    for images, digits in parts:
        if images.shape != (len(digits), 28, 28):
            raise ValueError(
                f"{path} has images of shape {images.shape}: expected ({len(digits)}, 28, 28), one for each label"
            )
    train, test = (
        (normalized(torch.tensor(images[:, None]), (0.1307,), (0.3081,)), _classes(digits)) for images, digits in parts
    )
    return Data(name, train, test, 10)


def _idx(folder: Path) -> bool:
    return any((folder / f"train-images-idx3-ubyte{ending}").is_file() for ending in ("", ".gz"))


def shipped(name: str) -> tuple[Any, Any]:
    """Return images of the package and their digits, both integers: ``digits_8x8`` or ``mnist_5000``."""
    with np.load(Path(__file__).parent / "shipped" / f"{name}.npz") as arrays:
        return arrays["images"], arrays["digits"].astype(np.int64)


def _read_idx(folder: Path, stem: str, dimensions: int) -> Any:
    """Read an IDX file of bytes: magic number, sizes, data."""
    plain, packed = folder / stem, folder / f"{stem}.gz"
    try:
        content = plain.read_bytes() if plain.is_file() else gzip.decompress(packed.read_bytes())
        head = struct.unpack(f">{1 + dimensions}I", content[: 4 * (1 + dimensions)])
        if head[0] != 0x800 + dimensions:
            raise ValueError(f"magic number {head[0]:#x} instead of {0x800 + dimensions:#x}")
        return np.frombuffer(content, np.uint8, offset=4 * len(head)).reshape(head[1:])
    except (OSError, EOFError, ValueError, struct.error) as error:
        raise ValueError(f"{folder / stem} is no IDX file with {dimensions} dimensions: {error}") from error


CIFAR = {
    "cifar-10-batches-py": ("CIFAR-10", 10, (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")),
    "cifar-100-python": ("CIFAR-100", 100, ("train", "test")),
}
"""Name, classes and files of the colour images, the last one with the tests, by their folders."""

_MEANS, _DEVIATIONS = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
"""Mean and deviation of the channels of CIFAR-10."""


def cifar(path: Path | None) -> Data:
    """Load the colour images of CIFAR-10 or CIFAR-100 from the folder that their archives contain."""
    if path is None:
        raise ValueError(
            f"images of 32 x 32 need --data with the folder {' or '.join(CIFAR)}; no package contains the images"
        )
    places = [(place, name) for name in CIFAR for place in (path / name, path)]
    found = (pair for pair in places if (pair[0] / CIFAR[pair[1]][2][0]).is_file())
    folder, kind = next(found, (path, next(iter(CIFAR))))
    name, classes, files = CIFAR[kind]
    pairs = []
    for file in files:
        images, labels = _read_batch(folder / file, name)
        pairs.append((normalized(torch.tensor(images), _MEANS, _DEVIATIONS), _classes(labels)))
    *parts, test = pairs
    train = torch.cat([images for images, _ in parts]), torch.cat([labels for _, labels in parts])
    return Data(f"{name}, {len(train[0]) + len(test[0]):,} images", train, test, classes, _moved)


class _Plain(pickle.Unpickler):
    """Unpickler for arrays and plain data that refuses all other objects and so runs no code."""

    _known = frozenset(
        {("_codecs", "encode"), ("numpy", "ndarray"), ("numpy", "dtype")}
        | {(f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")}
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._known:
            raise pickle.UnpicklingError(f"it contains {module}.{name}, which batches of CIFAR do not have")
        return super().find_class(module, name)


def _read_batch(path: Path, name: str) -> tuple[Any, Any]:
    try:
        with path.open("rb") as file:
            batch = _Plain(file, encoding="bytes").load()
        labels = np.asarray(batch[b"fine_labels" if b"fine_labels" in batch else b"labels"])
        images = np.asarray(batch[b"data"])
        return images.reshape(len(labels), 3, 32, 32), labels
    except (OSError, EOFError, KeyError, TypeError, ValueError, pickle.UnpicklingError) as error:
        raise ValueError(f"{path} is no batch of {name}: {error}") from error


def _moved(images: Tensor, generator: torch.Generator) -> Tensor:
    """Shift images by up to 4 pixels and mirror half of them, at random (He et al., CVPR 2016, section 4.2)."""
    count = len(images)
    wide = torch.nn.functional.pad(images, (4, 4, 4, 4))
    down, right = torch.randint(9, (2, count), generator=generator)
    rows = (down[:, None] + torch.arange(32))[:, None, :, None]
    columns = (right[:, None] + torch.arange(32))[:, None, None, :]
    mirrored = torch.rand(count, generator=generator) < 0.5
    columns = torch.where(mirrored[:, None, None, None], columns.flip(-1), columns)
    return wide[torch.arange(count)[:, None, None, None], torch.arange(3)[:, None, None], rows, columns]


def normalized(images: Tensor, means: tuple[float, ...], deviations: tuple[float, ...]) -> Tensor:
    """Convert image bytes to floats with zero mean and unit variance per channel."""
    mean, deviation = (torch.tensor(values, device=images.device).reshape(-1, 1, 1) for values in (means, deviations))
    return (images.float() / 255 - mean) / deviation


def _classes(labels: Any) -> Tensor:
    return torch.tensor(labels, dtype=torch.int64)
