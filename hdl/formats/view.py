"""Signals and constants in number formats."""

import functools
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from amaranth.hdl import Const, Value, ValueCastable
from amaranth.hdl import Format as Text

if TYPE_CHECKING:
    from .base import Format

TEXTS_WIDTH = 8
"""Maximum width of formats whose waveform text is a table of decimals; wider ones show the code and its fields."""


class FormatView(ValueCastable):
    """Signal or value in a number format.

    Parameters
    ----------
    fmt : Format
        Number format, also the attribute ``fmt``.
    target : value-like
        Bits of the code, ``fmt.width`` of them.

    Fields of the format are attributes (``sign``, ``exponent``, ``mantissa`` of a float). Assignment takes a value of
    the same format or a Python number that the format holds; for raw bits use ``as_value()``.
    """

    def __init__(self, fmt: "Format", target: Any) -> None:
        bits = Value.cast(target)
        if len(bits) != fmt.width:
            raise ValueError(f"{fmt} has {fmt.width} bits, but the value to view has {len(bits)}")
        self.fmt = fmt
        self._bits = bits

    def shape(self) -> "Format":
        """Return the format."""
        return self.fmt

    def as_value(self) -> Value:
        """Return the bits."""
        return self._bits

    def __getattr__(self, name: str) -> Value:
        if name.startswith("_") or name == "fmt":
            # A view that is being copied has no format yet.
            raise AttributeError(name)
        start = 0
        for field, width in self.fmt.fields().items():
            if field == name:
                return self._bits[start : start + width]
            start += width
        bits = f"; the raw bits have it: as_value().{name}" if hasattr(self._bits, name) else ""
        raise AttributeError(f"{self.fmt} has no field {name!r}; it has {', '.join(self.fmt.fields())}{bits}")

    def eq(self, other: Any) -> Any:
        """Assign a value of the same format, or a Python number that the format holds."""
        if isinstance(other, FormatView):
            if other.fmt != self.fmt:
                raise TypeError(
                    f"a signal of {self.fmt} takes values of {self.fmt}, not {other.fmt}; use a Convert unit"
                )
            return self._bits.eq(other._bits)
        if isinstance(other, (int, float, Fraction)):
            return self._bits.eq(self.fmt.const(other).as_value())
        raise TypeError(
            f"a signal of {self.fmt} takes a value of that format or a number; assign raw bits to as_value()"
        )

    def __eq__(self, other: object) -> Any:
        if isinstance(other, FormatView) and other.fmt == self.fmt:
            return self._bits == other._bits
        raise TypeError(f"== compares two values of {self.fmt}; use a Compare unit for other formats")

    def __ne__(self, other: object) -> Any:
        return ~(self == other)

    __hash__ = None  # type: ignore[assignment]  # how Python marks unhashable objects

    def __repr__(self) -> str:
        return f"{self.fmt}({self._bits!r})"


class FormatConst(FormatView):
    """Constant in a number format, with its ``code`` and ``number``."""

    def __init__(self, fmt: "Format", code: int) -> None:
        fmt.check_code(code)
        super().__init__(fmt, Const(code, fmt.width))
        self.code = code

    @property
    def number(self) -> Fraction | float:
        """Value of the constant, as returned by `Format.decode`."""
        return self.fmt.decode(self.code)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, FormatConst):
            return (self.fmt, self.code) == (other.fmt, other.code)
        return super().__eq__(other)

    def __hash__(self) -> int:  # type: ignore[override]  # constants are hashable, views are not
        return hash((self.fmt, self.code))

    def __repr__(self) -> str:
        return f"{self.fmt}({self.fmt.text(self.code)})"


class NumberText(Text.Enum):
    """Text of a number in a narrow format; a netlist gets no names of values.

    The texts of all codes become expressions only when the text is used: a unit has many signals, and few are printed.
    """

    def __init__(self, fmt: "Format", value: Value) -> None:
        super().__init__(value, {})
        self._fmt = fmt

    def _as_format(self) -> Text:
        return self._text

    @functools.cached_property
    def _text(self) -> Text:
        return Text("{}", Text.Enum(self._value, _texts(self._fmt)))


@functools.lru_cache
def _texts(fmt: "Format") -> dict[int, str]:
    """Return the text of each code."""
    return {code: fmt.text(code) for code in range(1 << fmt.width)}


def fields_text(fmt: "Format", value: FormatView) -> Text:
    """Return a text such as ``3e00(sign=0,exponent=0f,mantissa=200)``: code and fields in hexadecimal."""
    fields = [name for name, width in reversed(fmt.fields().items()) if width]
    parts = {name: getattr(value, name) for name in fields}
    digits = [-(-len(bits) // 4) for bits in (value.as_value(), *parts.values())]
    texts = ",".join(f"{name}={{:0{count}x}}" for name, count in zip(parts, digits[1:], strict=True))
    return Text(f"{{:0{digits[0]}x}}({texts})", value.as_value(), *parts.values())
