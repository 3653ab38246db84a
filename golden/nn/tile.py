"""Scales of operands in blocks: one for a tile of neighbouring blocks, and one that fits the elements better."""

import re
from dataclasses import dataclass
from fractions import Fraction

from torch import Tensor

from halfulp.golden.check import check_bool, check_int
from halfulp.golden.quantize import MAX, BlockTensor, quantize_blocks, tensor_scale
from halfulp.golden.tiles import quantize_tiles
from halfulp.hdl.formats import Block, Rounding

_TEXT = re.compile(r"(?P<rows>[0-9]+)(?P<four_over_six>\.4over6)?")

MOST_SCALE = Fraction(256)
"""Largest scale of a tile whose largest magnitude may become 4 instead of 6: 1.5 times as much is in E4M3, too."""


@dataclass(frozen=True)
class Tiles:
    """Scales of an operand in blocks, as in `halfulp.golden.quantize_tiles`.

    Parameters
    ----------
    rows : int
        Blocks in a tile, which have one scale: neighbouring rows of the first matrix of a product, or columns of the
        second, whose blocks run along the sums.
    four_over_six : bool
        Scale each tile so that its largest magnitude becomes 4 or 6. The scale of the tensor then gives the tile with
        the largest number the scale 256.

    Raises
    ------
    TypeError, ValueError
        If a parameter has the wrong type or is out of range, or has no effect.

    Notes
    -----
    With as many rows as a block has elements, both products of weights have the same codes. ``str()`` gives ``16`` or
    ``16.4over6``, which `Tiles.parse` reads.
    """

    rows: int = 1
    four_over_six: bool = False

    def __post_init__(self) -> None:
        check_int("rows of tiles", self.rows, 1)
        check_bool("four_over_six of tiles", self.four_over_six)
        if self.rows == 1 and not self.four_over_six:
            raise ValueError("tiles of 1 row are the blocks themselves; omit tiles=1")

    def __str__(self) -> str:
        return f"{self.rows}{'.4over6' if self.four_over_six else ''}"

    @classmethod
    def parse(cls, text: str) -> "Tiles":
        """Parse a text that ``str()`` wrote."""
        if match := _TEXT.fullmatch(text):
            return cls(int(match["rows"]), match["four_over_six"] is not None)
        raise ValueError(f"invalid tiles {text!r}: expected 16 or 16.4over6, for example")


def scale_of_tensor(tiles: Tiles | None, values: Tensor, block: Block) -> Tensor | None:
    """Return the scale of all numbers of a tensor, from its largest magnitude; None if its blocks need none."""
    if not block.has_tensor_scale:
        return None
    return tensor_scale(MAX, values, block, MOST_SCALE if tiles and tiles.four_over_six else None)


def in_tiles(
    tiles: Tiles | None,
    values: Tensor,
    block: Block,
    rounding: Rounding,
    dim: int,
    tensor: Tensor | None,
    random: Tensor | None,
) -> BlockTensor:
    """Convert values to blocks along a dimension, with scales of their own, or of tiles."""
    if tiles is None:
        return quantize_blocks(values, block, rounding, dim=dim, tensor=tensor, random=random)
    return quantize_tiles(
        values,
        block,
        rounding,
        rows=tiles.rows,
        four_over_six=tiles.four_over_six,
        dim=dim,
        tensor=tensor,
        random=random,
    )


__all__ = ["Tiles"]
