"""Data of trainings: samples that ship, and files that users have."""

import gzip
import os
import pickle
import struct

import numpy as np
import pytest
import torch

from halfulp.lab.train.data import cifar, mnist


def test_mnist_sample_ships():
    digits = mnist(None)
    assert [tuple(tensor.shape) for tensor in (*digits.train, *digits.test)] == (
        [(4000, 1, 28, 28), (4000,), (1000, 1, 28, 28), (1000,)]
    )
    for part, count in ((digits.train, 400), (digits.test, 100)):
        assert part[1].bincount().tolist() == [count] * 10
    every = torch.cat([digits.train[0], digits.test[0]])
    assert -0.43 < every.min() < -0.42
    assert 2.8 < every.max() < 2.83
    assert len({image.numpy().tobytes() for image in every}) == 5000
    some = digits.limited(40)
    assert (len(some.train[0]), len(some.test[0])) == (40, 10)
    assert torch.equal(some.train[0], digits.limited(40).train[0])
    assert some.digest == digits.limited(40).digest != digits.digest
    # The second load reads the build folder, with the same values.
    assert mnist(None).digest == digits.digest


def idx(array):
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


@pytest.mark.parametrize("place", ["", "MNIST/raw"])
@pytest.mark.parametrize("packed", [True, False])
def test_mnist_files_load(tmp_path, place, packed):
    rng = np.random.default_rng(0)
    folder = tmp_path / place
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for part, count in (("train", 6), ("t10k", 3)):
        for kind, shape in (("images-idx3", (count, 28, 28)), ("labels-idx1", (count,))):
            array = arrays[part, kind] = rng.integers(0, 10, shape).astype(np.uint8)
            name = f"{part}-{kind}-ubyte"
            (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(idx(array)) if packed else idx(array))
    found = mnist(tmp_path)
    assert found.name == "MNIST, 9 images"
    assert found.test[1].tolist() == arrays["t10k", "labels-idx1"].tolist()
    scaled = (arrays["train", "images-idx3"][5, 3, 2] / 255 - 0.1307) / 0.3081
    assert found.train[0][5, 0, 3, 2].item() == pytest.approx(scaled, abs=1e-6)
    name = "train-labels-idx1-ubyte" + ".gz" * packed
    (folder / name).write_bytes(gzip.compress(b"no") if packed else b"no")
    with pytest.raises(ValueError, match="train-labels-idx1-ubyte is no IDX file"):
        mnist(tmp_path)


def batch(count, seed):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (count, 3072)).astype(np.uint8)
    return {b"data": images, b"labels": rng.integers(0, 10, count).tolist()}


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [([3, 10], "class 10"), ([], "empty")],
)
def test_mnist_rejects_bad_labels(labels, sentence, tmp_path):
    for part in ("train", "t10k"):
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.array(labels, np.uint8)))
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(idx(np.zeros((len(labels), 28, 28), np.uint8)))
    with pytest.raises(ValueError, match=sentence):
        mnist(tmp_path)


class Bad:
    def __reduce__(self):
        return os.system, ("true",)


def test_cifar10_files_load(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    for seed, name in enumerate(names):
        (folder / name).write_bytes(pickle.dumps(batch(4, seed), protocol=2))
    found = cifar(tmp_path)
    assert (found.name, found.train[0].shape, found.test[1].tolist()) == (
        "CIFAR-10, 24 images",
        (20, 3, 32, 32),
        batch(4, 5)[b"labels"],
    )
    moved = found.vary(found.train[0], torch.Generator().manual_seed(1))
    assert moved.shape == (20, 3, 32, 32)
    wide = torch.nn.functional.pad(found.train[0], (4, 4, 4, 4))
    both = torch.stack([wide, wide.flip(-1)])
    # Each image is somewhere in its padded image, or in the mirrored one.
    for number, image in enumerate(moved):
        windows = both[:, number].unfold(2, 32, 1).unfold(3, 32, 1)
        assert (windows == image[None, :, None, None]).flatten(-2).all(-1).all(1).any()
    (folder / "test_batch").write_bytes(pickle.dumps({b"data": Bad()}, protocol=2))
    with pytest.raises(ValueError, match=r"test_batch is no batch of CIFAR-10: it contains posix\.system"):
        cifar(tmp_path)
    (folder / "test_batch").unlink()
    with pytest.raises(ValueError, match=r"test_batch is no batch of CIFAR-10: .*No such file"):
        cifar(folder)


def test_cifar100_has_fine_labels(tmp_path):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name, labels in (("train", [0, 99, 7, 50]), ("test", [98, 1])):
        content = batch(len(labels), len(labels)) | {b"fine_labels": labels, b"coarse_labels": [0] * len(labels)}
        del content[b"labels"]
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    for place in (tmp_path, folder):
        found = cifar(place)
        assert (found.name, found.classes) == ("CIFAR-100, 6 images", 100)
        assert (found.train[1].tolist(), found.test[1].tolist()) == ([0, 99, 7, 50], [98, 1])
