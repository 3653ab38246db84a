"""Arithmetic of element-wise operations and functions of a program: a cast, and operators in place of some of them."""

from dataclasses import dataclass

from halfulp.golden.operators import FUNCTION, operator

from .cast import Cast, parse_element

ARITHMETIC = ("add", "sub", "mul", "div", "sqrt")
"""Element-wise operations that the part ``elementwise`` of a policy names; other operations are functions."""


@dataclass(frozen=True)
class Elementwise:
    """Cast of operations, and the operators of some.

    ``str()`` returns a text such as ``bf16.rn; tanh=pwl tanh(fxp4.12) pieces=3``, which `Elementwise.parse` reads.

    Attributes
    ----------
    cast : Cast, optional
        Format and rounding of operations without an operator; default: that of the part ``elementwise``, or none.
    operators : tuple of (str, str)
        Names of operations, and for each the name of a registered operator or the text of a ``pwl`` unit.
    """

    cast: Cast | None
    operators: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, given: "str | Cast | Elementwise") -> "Elementwise":
        """Parse a text; a cast has no operators.

        Raises
        ------
        TypeError, ValueError
            If a cast is invalid, an operator is unknown, or an operation has two of them.
        """
        if isinstance(given, cls):
            return given
        if not isinstance(given, str):
            return cls(parse_element(given))  # type: ignore[arg-type]  # raises TypeError for other types
        casts: list[Cast] = []
        operators: dict[str, str] = {}
        for part in (part.strip() for part in given.split(";")):
            name, equals, text = (piece.strip() for piece in part.partition("="))
            if not equals or not name.isidentifier():
                casts.append(parse_element(part))
            elif name in operators:
                raise ValueError(f"{name} has two operators: {operators[name]} and {text}")
            else:
                of_two = name in ARITHMETIC and name != "sqrt"
                operators[name] = str(operator(text, f"operator of {name}" if of_two else FUNCTION))
        if len(casts) > 1:
            raise ValueError(f"{casts[0]} and {casts[1]} are two casts; give one")
        return cls(casts[0] if casts else None, tuple(operators.items()))

    def __str__(self) -> str:
        casts = [] if self.cast is None else [str(self.cast)]
        return "; ".join(casts + [f"{name}={text}" for name, text in self.operators])
