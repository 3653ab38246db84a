"""Arithmetic of sums over the elements of a tensor."""

from dataclasses import dataclass

from halfulp.hdl.formats.checks import check_one_of

from .cast import Cast, check_format, parse_rounding

ORDERS = ("sequential", "pairwise", "exact")
"""Orders of a reduction."""


@dataclass(frozen=True)
class Reduction:
    """Arithmetic of sums over the elements of a tensor.

    Parameters
    ----------
    accumulator : Cast, optional
        Format and rounding of the sums; default: those of the accumulator of the products.
    order : str
        ``sequential``: one sum in ascending index, rounded after each element; ``pairwise``: a balanced tree of sums of
        neighbours, each rounded; ``exact``: rounded once. A cumulative sum is that of the elements up to its own.
        Products have no exact order, and stay sequential.

    Raises
    ------
    TypeError, ValueError
        If a part is of the wrong kind, or the accumulator has no format.

    Notes
    -----
    ``str()`` gives a text such as ``fp32.rn pairwise``, and `Reduction.parse` reads it back.
    """

    accumulator: Cast | None = None
    order: str = "sequential"

    def __post_init__(self) -> None:
        if self.accumulator is not None:
            if not isinstance(self.accumulator, Cast):
                raise TypeError(f"the accumulator of a reduction is a Cast, not {type(self.accumulator).__name__}")
            check_format(parse_rounding(self.accumulator))
        check_one_of("order of a reduction", self.order, ORDERS)

    def __str__(self) -> str:
        return self.order if self.accumulator is None else f"{self.accumulator} {self.order}"

    @classmethod
    def parse(cls, text: "str | Reduction") -> "Reduction":
        """Parse a text that ``str()`` wrote; an accumulator without an order is sequential."""
        if isinstance(text, cls):
            return text
        if not isinstance(text, str):
            raise TypeError(
                f"a reduction is a Reduction or a text such as 'fp32.rn pairwise', not {type(text).__name__}"
            )
        words = text.split()
        order = words.pop() if words and words[-1] in ORDERS else "sequential"
        return cls(Cast.parse(" ".join(words)) if words else None, order)
