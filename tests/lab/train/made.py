"""Tiny files in the layouts of published data."""

import pickle
import struct

import numpy as np


def imagewoof(folder, classes=10):
    """Write two training images and a test image of each class, and return the folder."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for number in range(classes):
        for part, count in (("train", 2), ("val", 1)):
            place = folder / part / f"n{number}"
            place.mkdir(parents=True)
            for image in range(count):
                pixels = rng.integers(0, 256, (300, 260, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / (f"{image}.JPEG" if part == "train" else f"{image}.png"))
    return folder


def ptb(folder, tests=4):
    """Write a text in the layout of PTB, with a word that is only in the test set."""
    folder.mkdir(exist_ok=True)
    for part, count, last in (("train", 40, "n"), ("valid", 4, "n"), ("test", tests, "mat")):
        (folder / f"ptb.{part}.txt").write_text(" the cat sat on a <unk> \n" * (count - 1) + f" the {last} \n")
    (folder / "ptb.char.train.txt").write_text("t h e")
    return folder


PAIRS = {
    "train.de-en.de": "der Hund schläft .\nder Hund , die Katze\n",
    "train.de-en.en": "the dog sleeps .\nthe dog , the cat\n",
    "test.de-en.de": "der Vogel .\n\n",
    "test.de-en.en": "the bird.\nnothing\n",
}


def iwslt(folder, **changes):
    """Write translations in the layout of IWSLT."""
    folder.mkdir(exist_ok=True)
    for name, text in (PAIRS | changes).items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def mnist(folder):
    """Write images in the layout of MNIST, and return the folder."""
    folder.mkdir()
    for part, count in (("train", 8), ("t10k", 4)):
        for kind, shape in (("images-idx3", (count, 28, 28)), ("labels-idx1", (count,))):
            head = struct.pack(f">{1 + len(shape)}I", 0x800 + len(shape), *shape)
            (folder / f"{part}-{kind}-ubyte").write_bytes(
                head + (np.arange(np.prod(shape)) % 10).astype(np.uint8).tobytes()
            )
    return folder


def cifar(folder, names, labels):
    """Write images in the layout of CIFAR, and return the folder."""
    folder.mkdir()
    for name in names:
        content = {b"data": np.arange(4 * 3072).reshape(4, 3072).astype(np.uint8), labels: [0, 1, 2, 3]}
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    return folder


def published(folder):
    """Write all data of published tables, in the folders that the commands name."""
    mnist(folder / "MNIST")
    cifar(folder / "cifar-10-batches-py", [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"], b"labels")
    cifar(folder / "cifar-100-python", ["train", "test"], b"fine_labels")
    imagewoof(folder / "imagewoof2")
    imagewoof(folder / "imagenet", classes=2)
    ptb(folder / "ptb", tests=40)
    iwslt(folder / "iwslt16")
    (folder / "shakespeare").mkdir()
    (folder / "shakespeare" / "input.txt").write_text("the letters of a text, " * 120)
