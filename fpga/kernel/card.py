"""Matrix products of `golden.nn` layers on Alveo cards, ``device=card``.

Importing this module registers ``device=card`` for policies. The environment variable ``HALFULP_CARD`` has the folders
that `halfulp tile` wrote, with the linked bitstream in them, in the form of ``PATH``: the first is for card 0, the
second for card 1. Each product runs on the first card whose kernels have its multiply-accumulate.
"""

import functools
import os
import runpy
from pathlib import Path

from torch import Tensor

from halfulp.golden.entries import Operand
from halfulp.golden.nn import register_device
from halfulp.hdl.specs import BlockMacSpec, MacSpec

from .host import Card, Tile
from .layers import Arrays
from .layout import HOST, xclbin_name

DEVICE = "card"
SETTING = "HALFULP_CARD"
"""Environment variable with the folders of the cards."""


def product(a: Operand, b: Operand, mac: MacSpec | BlockMacSpec, start: Tensor | None, key: int) -> Tensor:
    """Multiply matrices on a card; see `Arrays.product`.

    ValueError if no card has this multiply-accumulate; ToolError if XRT is not installed or the card fails.
    """
    return _arrays(mac).product(a, b, start, key)


def expected(a: Operand, b: Operand, mac: MacSpec | BlockMacSpec, start: Tensor | None, key: int) -> Tensor:
    """Compute the same product by `golden.gemm`, without a card; see `Arrays.expected`."""
    return _arrays(mac).expected(a, b, start, key)


def _arrays(mac: MacSpec | BlockMacSpec) -> Arrays:
    """Return the arrays of the first card with a multiply-accumulate."""
    folders = [folder for folder in os.environ.get(SETTING, "").split(os.pathsep) if folder]
    if not folders:
        raise ValueError(
            f"device {DEVICE} needs kernels: set {SETTING} to the folder that halfulp tile wrote, with its bitstream"
        )
    tiles = [_tile(Path(folder)) for folder in folders]
    for number, (folder, tile) in enumerate(zip(folders, tiles, strict=True)):
        if tile.spec == mac:
            return Arrays(DEVICE, tile, functools.partial(_multiply, Path(folder), number))
    raise ValueError(
        f"the kernels of {SETTING} compute {' and '.join(tile.spec.expression for tile in tiles)}, "
        f"not {mac.expression}; write kernels of it with halfulp tile --mac"
    )


def _multiply(folder: Path, number: int, a: Operand, b: Operand, *, go_on: bool) -> Tensor:
    return _card(folder, number).product(a, b, go_on=go_on)


@functools.cache
def _tile(folder: Path) -> Tile:
    """Return the description in the host program of a folder."""
    host = folder / HOST
    if not host.is_file():
        raise ValueError(f"{SETTING} names {folder}, which has no {HOST}; expected a folder that halfulp tile wrote")
    try:
        tile = runpy.run_path(str(host)).get("TILE")
    except Exception as error:
        # The file is a program of a user, which can raise anything.
        raise ValueError(f"{host} is not the host program of halfulp tile: {error}") from error
    if not isinstance(tile, Tile):
        raise ValueError(f"{host} is not the host program of halfulp tile: it has no TILE")
    return tile


@functools.cache
def _card(folder: Path, number: int) -> Card:
    """Program a card with the bitstream of a folder, once."""
    tile = _tile(folder)
    xclbin = folder / xclbin_name(tile.kernel, os.environ.get("XCL_EMULATION_MODE", "hw"))
    if not xclbin.is_file():
        raise ValueError(f"{folder} has no bitstream {xclbin.name}; link it there with make")
    return Card(tile, xclbin, number)


register_device(DEVICE, product)
