"""Images in folders of their classes, as Imagewoof and Imagenette (fastai) have them."""

from pathlib import Path

import torch
from torch import Tensor

from .data import Data, normalized

SIDE, STORED = 224, 256
"""Side of the square that a network gets, and of the stored one from which it is taken."""

ENDINGS = (".jpeg", ".jpg", ".png")
"""Endings of the names of images, in lower case."""

_MEANS, _DEVIATIONS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and deviation of the channels of ImageNet."""


def folders(path: Path | None) -> Data:
    """Load the images in ``train/CLASS`` and ``val/CLASS`` of a folder.

    The central square of an image is stored with a side of 256 pixels, in bytes. Training takes a random square of 224
    from it and mirrors half of them; tests take the central one (Krizhevsky et al., NeurIPS 2012, section 4.1).
    """
    if path is None:
        raise ValueError(
            "images of 224 x 224 need --data with a folder of train/CLASS and val/CLASS, such as imagewoof2"
        )
    names = _classes(path / "train")
    if unknown := sorted(set(_classes(path / "val")) - set(names)):
        raise ValueError(f"{path / 'val' / unknown[0]} has images of a class that {path / 'train'} does not have")
    train, test = (_pair(path / part, names) for part in ("train", "val"))
    count = len(train[0]) + len(test[0])
    return Data(f"{path.resolve().name}, {count:,} images", train, test, len(names), _moved, _prepared)


def _classes(folder: Path) -> list[str]:
    names = sorted(place.name for place in folder.iterdir() if place.is_dir()) if folder.is_dir() else []
    if not names:
        raise ValueError(f"{folder} has no folders of images; give the folder with train/CLASS and val/CLASS")
    return names


def _pair(folder: Path, names: list[str]) -> tuple[Tensor, Tensor]:
    """Read the images of a set, and their classes by the order of names."""
    files = [
        (file, number)
        for number, name in enumerate(names)
        for file in sorted((folder / name).glob("*"))
        if file.suffix.lower() in ENDINGS
    ]
    images = torch.empty(len(files), 3, STORED, STORED, dtype=torch.uint8)
    for place, (file, _) in enumerate(files):
        images[place] = _read(file)
    return images, torch.tensor([number for _, number in files], dtype=torch.int64)


def _read(file: Path) -> Tensor:
    """Read the central square of an image."""
    from PIL import Image, ImageOps

    try:
        with Image.open(file) as image:
            square = ImageOps.fit(image.convert("RGB"), (STORED, STORED), Image.Resampling.BILINEAR)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{file} is no image: {error}") from error
    return torch.frombuffer(bytearray(square.tobytes()), dtype=torch.uint8).reshape(STORED, STORED, 3).permute(2, 0, 1)


def _moved(images: Tensor, generator: torch.Generator) -> Tensor:
    """Take a random square of each image, and mirror half of them."""
    places = torch.randint(STORED - SIDE + 1, (len(images), 2), generator=generator).tolist()
    mirrored = torch.rand(len(images), generator=generator) < 0.5
    squares = [image[:, y : y + SIDE, x : x + SIDE] for image, (y, x) in zip(images, places, strict=True)]
    moved = torch.stack(squares)
    return torch.where(mirrored[:, None, None, None], moved.flip(-1), moved)


def _prepared(images: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Take the central squares, which are all of images that are moved, and convert bytes to normalised floats."""
    margin = (images.shape[-1] - SIDE) // 2
    squares = images[..., margin : margin + SIDE, margin : margin + SIDE]
    return normalized(squares, _MEANS, _DEVIATIONS), classes
