"""Description of a comparison."""

from dataclasses import dataclass

from .arithmetic import BinarySpec
from .formula import Call, Formula, Function
from .ranges import ValueRange


@dataclass(frozen=True)
class CompareSpec(BinarySpec, form="compare a,b[=o]", summary="less, equal, minimum, maximum"):
    """Comparison of two numbers, with minimum and maximum in the format ``o``; fields as in `BinarySpec`."""

    @property
    def results(self) -> tuple[ValueRange, str]:
        """Range of both formats."""
        return ValueRange.of(self.a) | ValueRange.of(self.b), f"number of {self.a} and {self.b}"

    @property
    def formula(self) -> Formula:
        names = ("less", "equal", "unordered", "minimum", "maximum")
        return Formula((Function(names, Call("compare", ("a", "b"))),))
