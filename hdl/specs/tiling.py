"""Tiles of a matrix product on an array of multiply-accumulates."""

from collections.abc import Iterator
from dataclasses import dataclass

from halfulp.hdl.formats.checks import check_int


@dataclass(frozen=True)
class Tile:
    """One tile of a matrix product's result.

    Attributes
    ----------
    row, column : int
        Where it begins.
    vectors : int
        Vectors of each of its rows.
    """

    row: int
    column: int
    vectors: int


@dataclass(frozen=True)
class Tiling:
    """Tiles of ``n * rows`` rows, and of up to ``depth`` vectors of ``m`` columns in each.

    Parameters
    ----------
    n : int
        Elements of an array, each of which makes ``rows`` rows of a tile.
    m : int
        Columns of a vector: multiply-accumulates that work on it at once.
    depth : int
        Vectors of a tile's row, at most; a row's last tile has no more of them than it needs.
    rows : int
        Rows of a tile that an element makes.

    Raises
    ------
    TypeError, ValueError
        If a size is no int, or not positive.

    Notes
    -----
    Tiles follow each other along the rows of the result, and then down. A tile takes its k products in ascending k, for
    each of them its vectors in ascending order, and for each of these the rows of an element; so element (i, j) of a
    tile is made by multiply-accumulate j mod m of element i div ``rows``, one of n * m, and each of them does
    k * ``vectors`` * ``rows`` steps in a tile, whether all its elements are wanted or some are padding.
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
        """Tiles of a result of so many rows and columns, in order."""
        for row in range(0, rows, self.height):
            for column in range(0, columns, self.columns):
                yield Tile(row, column, min(-(-(columns - column) // self.m), self.depth))

    def steps(self, rows: int, k: int, columns: int) -> int:
        """Steps that each multiply-accumulate does for a product of so many rows, k, and columns."""
        return k * self.rows * sum(tile.vectors for tile in self.tiles(rows, columns))
