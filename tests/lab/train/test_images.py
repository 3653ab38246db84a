"""Images in folders of their classes."""

import numpy as np
import pytest
import torch
from PIL import Image

from halfulp.lab.train.images import SIDE, STORED, folders
from tests.lab.train.made import imagewoof


def test_folders_of_images_load(tmp_path):
    data = folders(imagewoof(tmp_path / "imagewoof2-320", classes=3))
    assert (data.name, data.classes) == ("imagewoof2-320, 9 images", 3)
    assert (data.train[0].shape, data.train[0].dtype) == ((6, 3, STORED, STORED), torch.uint8)
    assert (data.train[1].tolist(), data.test[1].tolist()) == ([0, 0, 1, 1, 2, 2], [0, 1, 2])
    inputs, classes = data.prepare(data.test[0], data.test[1])
    assert (inputs.shape, classes.tolist()) == ((3, 3, SIDE, SIDE), [0, 1, 2])
    margin = (STORED - SIDE) // 2
    stored = data.test[0][1, 2, margin + 5, margin + 7].item()
    assert inputs[1, 2, 5, 7].item() == pytest.approx((stored / 255 - 0.406) / 0.225, abs=1e-6)
    # Random squares, and some mirrored; they are not moved again.
    moved = data.vary(data.train[0], torch.Generator().manual_seed(0))
    for image, square in zip(data.train[0], moved, strict=True):
        both = torch.stack((image, image.flip(-1)))
        windows = both[:, 0, : STORED - SIDE + 1, : STORED - SIDE + 1] == square[0, 0, 0]
        places = windows.nonzero().tolist()
        assert any(torch.equal(both[side, :, y : y + SIDE, x : x + SIDE], square) for side, y, x in places)
    assert torch.equal(data.prepare(moved, classes)[0][:, 0], (moved[:, 0].float() / 255 - 0.485) / 0.229)


def test_central_square_of_an_image_is_stored(tmp_path):
    """A wide image loses its sides, and a gray one has three equal channels."""
    folder = imagewoof(tmp_path / "woof", classes=1)
    pixels = np.zeros((STORED, 2 * STORED), np.uint8)
    pixels[:, STORED // 2 : STORED // 2 + STORED] = 200
    Image.fromarray(pixels).save(folder / "val" / "n0" / "0.png")
    assert (folders(folder).test[0][0] == 200).all()


def test_folders_reject_bad_files(tmp_path):
    with pytest.raises(ValueError, match="images of 224 x 224 need --data with a folder of train/CLASS and val/CLASS"):
        folders(None)
    with pytest.raises(ValueError, match="train has no folders of images; give the folder with train/CLASS"):
        folders(tmp_path)
    folder = imagewoof(tmp_path / "woof", classes=2)
    (folder / "val" / "n7").mkdir()
    with pytest.raises(ValueError, match=r"n7 has images of a class that .*train does not have"):
        folders(folder)
    (folder / "val" / "n7").rmdir()
    (folder / "train" / "n0" / "0.JPEG").write_bytes(b"no")
    with pytest.raises(ValueError, match=r"0\.JPEG is no image: cannot identify image file"):
        folders(folder)
    for path in (folder / "val").rglob("*.*"):
        path.unlink()
    (folder / "train" / "n0" / "0.JPEG").unlink()
    with pytest.raises(ValueError, match="the test set is empty"):
        folders(folder)
