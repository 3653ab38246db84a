"""Tables of the codes of a tensor, for terminals and notebooks."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from halfulp.hdl.formats import Format
from halfulp.tools import html

from .check import check_int, codes_of, format_given

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True)
class CodeTable:
    """Codes of a tensor with their fields and numbers; ``str()`` and notebooks show a table.

    Attributes
    ----------
    codes : list of int
        First codes in row-major order.
    fmt : Format
    total : int
        Number of codes in the tensor.
    """

    codes: list[int]
    fmt: Format
    total: int

    @property
    def header(self) -> list[str]:
        """Titles of the columns: code, fields from the most significant one on, and number."""
        return ["code", *(name for name, width in reversed(self.fmt.fields().items()) if width), "number"]

    @property
    def rows(self) -> list[list[str]]:
        """Texts of the cells, with fields in binary."""
        return [self._row(code) for code in self.codes]

    def _row(self, code: int) -> list[str]:
        bits, cells = f"{code:0{self.fmt.width}b}", [f"0x{code:0{-(-self.fmt.width // 4)}x}"]
        for width in filter(None, reversed(self.fmt.fields().values())):
            cells.append(bits[:width])
            bits = bits[width:]
        return [*cells, self.fmt.text(code)]

    @property
    def _notes(self) -> list[str]:
        return [f"{len(self.codes)} of {self.total} codes"] if len(self.codes) < self.total else []

    def __str__(self) -> str:
        lines = [self.header, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        texts = ["  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)) for line in lines]
        return "\n".join([*(text.rstrip() for text in texts), *self._notes])

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        return html.table(f"Codes of {self.fmt}", self.rows, self.header, self._notes)


def table_of(codes: "Tensor | ArrayLike", fmt: Format | str | None = None, limit: int = 32) -> CodeTable:
    """Return a table of the first codes of a tensor, with the fields and the number of each.

    Parameters
    ----------
    codes : Tensor or array
        Codes of the format, or numbers in a type for it.
    fmt : Format or str, optional
        Default: the format that the type of ``codes`` names.
    limit : int
        Maximum number of rows.

    Raises
    ------
    TypeError, ValueError
        If ``codes`` holds no codes of the format, its type names none and none is given, or ``limit`` is not positive.
    """
    fmt = format_given("table_of", codes, fmt)
    flat = codes_of("codes", codes, fmt).flatten()
    mask = (1 << fmt.width) - 1
    return CodeTable([code & mask for code in flat[: check_int("limit", limit, 1)].tolist()], fmt, flat.numel())


__all__ = ["CodeTable", "table_of"]
