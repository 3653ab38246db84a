"""Tiles of a matrix product on an array of multiply-accumulates."""

from collections.abc import Iterator
from dataclasses import dataclass

from halfulp.hdl.formats.checks import check_int


@dataclass(frozen=True)
class Tile:
    """One tile of the result of a matrix product.

    Attributes
    ----------
    row, column : int
        First row and first column in the result.
    vectors : int
        Vectors per row of the tile.
    """

    row: int
    column: int
    vectors: int


@dataclass(frozen=True)
class Tiling:
    """Division of a matrix into tiles of ``n * rows`` rows and up to ``depth`` vectors of ``m`` columns.

    Parameters
    ----------
    n : int
        Elements of the array; each computes ``rows`` rows of a tile.
    m : int
        Columns per vector: multiply-accumulates per element.
    depth : int
        Maximum number of vectors per row of a tile; the last tile of a row may have fewer.
    rows : int
        Rows of a tile per element.

    Raises
    ------
    TypeError, ValueError
        If a size is not an int or not positive.

    Notes
    -----
    Tiles are computed along the rows of the result, then down. A tile runs through k in ascending order; for each k
    through its vectors in ascending order; for each vector through the rows of an element. Element (i, j) of a tile is
    computed by multiply-accumulate j mod m of array element i div ``rows``. Each of the n * m multiply-accumulates does
    k * ``vectors`` * ``rows`` steps per tile, padding included.
    """

    n: int
    m: int
    depth: int = 1
    rows: int = 1

    def __post_init__(self) -> None:
        for name in ("n", "m", "depth", "rows"):
            check_int(name, getattr(self, name), "tiling", 1)

    @property
    def height(self) -> int:
        """Rows of a tile."""
        return self.n * self.rows

    @property
    def columns(self) -> int:
        """Columns of a whole tile."""
        return self.m * self.depth

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the array."""
        return self.n * self.m

    def tiles(self, rows: int, columns: int) -> Iterator[Tile]:
        """Yield the tiles of a result with the given rows and columns, in order."""
        for row in range(0, rows, self.height):
            for column in range(0, columns, self.columns):
                yield Tile(row, column, min(-(-(columns - column) // self.m), self.depth))

    def steps(self, rows: int, k: int, columns: int) -> int:
        """Return the steps of each multiply-accumulate for a product of the given rows, k and columns."""
        return k * self.rows * sum(tile.vectors for tile in self.tiles(rows, columns))
