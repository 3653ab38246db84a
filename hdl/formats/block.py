"""Blocks: numbers that share a scale."""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

from .base import Family, Format, floor_log2
from .catalogue import BLOCK_NAMES, check_unambiguous, is_block_text
from .catalogue import parse as parse_format
from .checks import check_int, check_one_of
from .compound import Compound
from .families import FORMATS
from .floating import Float
from .rounding import RN, Rounding
from .scale import Scale

RULES = ("floor", "ceil", "even", "nearest")
MAX_LENGTH, MAX_ELEMENT, MAX_SCALE = 1024, 16, 32

_TEXT = re.compile(r"block\(([^(),]+),([0-9]+),([^(),]+),([a-z]+)\)")


@dataclass(frozen=True)
class Block(Family):
    """Vector of numbers with one scale: number i is ``scale * element[i]``.

    Blocks are operands of the units of blocks and of matrix products. They are no `Format`, which is that of one
    number, and `parse` of formats refuses their texts.

    Parameters
    ----------
    element : Format
        Format of the elements, of up to 16 bits.
    length : int
        Number of elements, 1 to 1024.
    scale : Scale or Float
        Format of the scale, of up to 32 bits.
    rule : str
        Scale of a block whose largest magnitude is m, where e is the exponent of the largest element. ``floor``:
        2^(floor(log2 m) - e), as in OCP Microscaling Formats 1.0 (2023), section 6.3; ``ceil``: the smallest power of
        two with which no element exceeds the largest one; ``even``: as ``floor``, of m rounded to nearest even in the
        precision of the element; ``nearest``: m divided by the largest element, rounded to nearest in the format of the
        scale. All are clamped to the positive numbers of the scale's format.

    Raises
    ------
    TypeError, ValueError
        If a parameter has the wrong type or is out of range, neither scale nor element has a NaN, or a float scale has
        no code for 1.

    Notes
    -----
    A block of zeros has the smallest scale if the scale is a `Scale`, otherwise the scale 1. A block with NaN or
    infinity has the scale NaN and elements of +0; if the scale has no NaN, it has the scale 1 and elements of NaN.
    """

    family = "block"
    shares_scale: ClassVar[Literal[True]] = True
    syntax = "block(<element>,<length>,<scale>,<rule>), rule floor, ceil, even or nearest"
    names: ClassVar = BLOCK_NAMES

    element: Format
    length: int
    scale: Scale | Float
    rule: str = RULES[0]

    def __post_init__(self) -> None:
        if not isinstance(self.element, Format):
            raise TypeError(f"element must be a Format, not {type(self.element).__name__}")
        if not isinstance(self.scale, Scale | Float):
            raise TypeError(f"the scale of a block must be e8m0fnu or a float, not {self.scale}")
        check_int("length", self.length, "block", 1, MAX_LENGTH)
        check_one_of("rule", self.rule, RULES)
        if isinstance(self.element, Compound | Scale) or self.element.width > MAX_ELEMENT:
            raise ValueError(f"an element of a block must be a number of up to {MAX_ELEMENT} bits, not {self.element}")
        if self.element.largest <= 0:
            raise ValueError(f"an element of a block must have positive numbers, and {self.element} has none")
        if self.scale.width > MAX_SCALE:
            raise ValueError(f"the scale of a block has up to {MAX_SCALE} bits, and {self.scale} {self.scale.width}")
        if not (self.scale.has_nan or self.element.has_nan):
            raise ValueError(
                f"a block needs NaN in its scale or its elements, and {self.scale} and {self.element} have none"
            )
        if isinstance(self.scale, Float) and self.scale.decode(self.scale.encode(1)) != 1:
            raise ValueError(f"the scale of a block of zeros is 1, and {self.scale} has no code for it")

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        return cls.parse(text) if is_block_text(text) else None

    @property
    def _text(self) -> str:
        return f"block({self.element},{self.length},{self.scale},{self.rule})"

    def __str__(self) -> str:
        text = self._text
        return next((name for name, same in self.names.items() if same == text), text)

    @classmethod
    def parse(cls, text: "str | Block") -> Self:
        """Parse a name such as ``mxfp4``, or ``block(element,length,scale,rule)``; a block is returned unchanged.

        Raises
        ------
        TypeError, ValueError
            If the text is not a string, or describes no block.
        """
        if isinstance(text, cls):
            return text
        if not isinstance(text, str):
            raise TypeError(f"a block must be a Block or a string such as 'mxfp8_e4m3', not {type(text).__name__}")
        check_unambiguous(text)
        match = _TEXT.fullmatch(re.sub(r"\s", "", cls.names.get(text.lower(), text)))
        if match is None:
            raise ValueError(f"unknown block {text!r}; expected {', '.join(cls.names)}, or {cls.syntax}")
        return cls(parse_format(match[1]), int(match[2]), parse_format(match[3]), match[4])

    def describe(self) -> str:
        return f"{self.length} x {self.element}, scale {self.scale}, {self.rule}"

    @property
    def width(self) -> int:  # type: ignore[override]  # a property for an attribute of Family
        """Width of elements and scale together in bits."""
        return self.length * self.element.width + self.scale.width

    @property
    def emax(self) -> int:
        """Exponent of the largest element."""
        return floor_log2(self.element.largest)

    @property
    def has_tensor_scale(self) -> bool:
        """True if tensors of blocks need one more scale: floats as scales have less range than binary32 (nvfp4)."""
        return not isinstance(self.scale, Scale) and self.scale.largest < Fraction(2) ** 127

    @property
    def zero_scale(self) -> int:
        """Code of the scale of a block of zeros."""
        return 0 if isinstance(self.scale, Scale) else self.scale.encode(1)

    @property
    def nan_codes(self) -> tuple[int, int]:
        """Codes of an element and of the scale of a block with NaN or infinity."""
        if self.scale.has_nan:
            return self.element.encode(0), self.scale.nan_code
        return self.element.nan_code, self.scale.encode(1)

    def scale_of(self, largest: Fraction) -> int:
        """Return the code of the scale of a block, whose largest magnitude is given; see ``rule``."""
        if largest == 0:
            return self.zero_scale
        element = self.element
        if self.rule == "nearest":
            wanted = largest / element.largest
        elif self.rule == "ceil":
            exponent = floor_log2(largest / element.largest)
            wanted = Fraction(2) ** (exponent + (Fraction(2) ** exponent < largest / element.largest))
        else:
            if self.rule == "even":
                unit = Fraction(2) ** (floor_log2(largest) - element.precision + 1)
                largest = RN.round(largest / unit) * unit
            wanted = Fraction(2) ** (floor_log2(largest) - self.emax)
        return self.scale.encode(max(wanted, self.scale.smallest), RN, saturate=True)

    def quantize(
        self,
        values: "list[Fraction | float]",
        rounding: Rounding = RN,
        random: "list[int] | None" = None,
        tensor: Fraction = Fraction(1),
    ) -> tuple[list[int], int]:
        """Return the codes of elements and scale of a block of numbers; see `Format.encode` for the numbers.

        Elements are ``value / (scale * tensor)``, rounded once; they saturate. ``random`` has a word for each element.
        """
        words = [0] * len(values) if random is None else random
        if any(isinstance(value, float) and value - value != 0 for value in values):
            element, scale = self.nan_codes
            return [element] * len(values), scale
        scale = self.scale_of(max(abs(Fraction(value)) for value in values) / tensor)
        step = Fraction(self.scale.decode(scale)) * tensor
        return [
            self.element.encode(value if value == 0 else Fraction(value) / step, rounding, word, saturate=True)
            for value, word in zip(values, words, strict=True)
        ], scale


FAMILIES: tuple[type[Family], ...] = (*FORMATS, Block)
"""All families of operands, in display order."""

BLOCKS: dict[str, Block] = {name: Block.parse(name) for name in Block.names}
"""Named blocks; other blocks are written by their fields."""


def parse_operand(text: "str | Format | Block") -> Any:
    """Parse the text of a format or of a block, which units take as an operand; both are returned unchanged."""
    if isinstance(text, Block):
        return text
    return (isinstance(text, str) and Block.from_text(text)) or parse_format(text)
