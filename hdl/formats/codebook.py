"""Formats given by a list of values: types of a user, and published tables such as NF4."""

import bisect
import functools
import hashlib
import itertools
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from halfulp.tools.texts import text_of, toml_of

from .base import CodeOrder, Format, RoundedUnit, floor_log2, significand_bits
from .checks import check_int, check_one_of
from .rounding import Rounding
from .saturation import OFF, Saturation

ORDERS = ("sign-magnitude", "two's complement")
OVERFLOWS = ("end", "infinity", "nan")
MAX_WIDTH = 16

FOLDERS = "HALFULP_CODEBOOKS"
"""Environment variable with the folders of data files; child processes inherit it."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")

_NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
"""Values of NF4 (Dettmers et al., QLoRA, NeurIPS 2023, appendix E)."""


_KNOWN: dict[str, Any] = {}


class Entry(NamedTuple):
    """Entry of a rounding table.

    Attributes
    ----------
    magnitude : Fraction
    units : int
        Magnitude in units of 2^quantum.
    code : int or None
        Code of the number with the sign of the table; None for a threshold.
    odd : int
        Parity of the code.
    """

    magnitude: Fraction
    units: int
    code: int | None
    odd: int


@dataclass(frozen=True, eq=False)
class Codebook(Format):
    """Number format given by a list of values.

    Parameters
    ----------
    name : str
        Name of lowercase letters, digits and underscores; the text of the format is ``codebook:NAME``.
    values : sequence of float or Fraction
        Values of the codes 0, 1, 2 and so on; their number is a power of two, 2 to 65536. Floats may be -0.0,
        infinities and NaN. Only NaN may have several codes; a NaN result takes the first. The values include zero, and
        neighbouring numbers have codes of different parity.
    order : str
        ``sign-magnitude``: directed and stochastic roundings act on the magnitude, as in floats; or ``two's
        complement``: they act on the number, as in fixed point.
    overflow : str
        Result beyond the range: ``end`` for the nearest number, or ``infinity`` or ``nan`` for results that round to
        ``threshold``.
    threshold : Fraction or float, optional
        Magnitude after the largest one, needed unless ``overflow`` is ``end``. It is finite and, as the values are, a
        multiple of a power of two.
    nan : Fraction or float
        Value that NaN becomes if it has no code; default: 0.

    Raises
    ------
    TypeError, ValueError
        If a parameter has the wrong type or is out of range, or the name belongs to a built-in or registered codebook
        with other values.

    Examples
    --------
    Register a type for all units, golden models, kernels and benches:

    >>> from halfulp.hdl.formats.codebook import Codebook
    >>> powers = [0.0, *(2.0**e for e in range(-3, 4))]
    >>> log4 = Codebook.register("log4", [*powers, -0.0, *(-x for x in powers[1:])], nan=-0.0)
    >>> str(log4), log4.decode(log4.encode(3.0))
    ('codebook:log4', Fraction(4, 1))
    """

    family = "codebook"
    syntax = "codebook:<name>, a list of up to 65536 values, registered in Python or in a file <name>.toml of a folder"
    code_order: CodeOrder = field(default="table", init=False, repr=False)
    names: ClassVar = {"nf4": "nf4"}

    name: str
    values: tuple[Fraction | float, ...] = field(default=(), repr=False)
    order: str = ORDERS[0]
    overflow: str = "end"
    threshold: Fraction | None = None
    nan: Fraction | float = Fraction(0)

    def __post_init__(self) -> None:
        _check_name(self.name)
        if isinstance(self.values, str) or not isinstance(self.values, Iterable):
            raise TypeError(f"values of {self} must be a list of numbers, not {type(self.values).__name__}")
        object.__setattr__(self, "values", tuple(_number(value) for value in self.values))
        object.__setattr__(self, "nan", _number(self.nan))
        check_one_of("order", self.order, ORDERS)
        check_one_of("overflow", self.overflow, OVERFLOWS)
        self._check_values()
        self._check_overflow()
        self._check_nan()
        if _KNOWN.get(self.name, self) != self:
            known = "a built-in codebook" if self.name in self.names else "registered with other values"
            raise ValueError(f"{self.name} is {known}; choose another name")
        for negative in (False, True):
            if any(low.odd == high.odd for low, high in itertools.pairwise(self.rounding_tables[negative])):
                raise ValueError(f"neighbouring values of {self} must have codes of different parity")

    def _check_values(self) -> None:
        """Raise ValueError if the values are no codebook."""
        count = len(self.values)
        if count & (count - 1) or not 2 <= count <= 1 << MAX_WIDTH:
            raise ValueError(f"{self} has {count} values; a codebook needs a power of two, 2 to {1 << MAX_WIDTH}")
        numbers = [repr(value) for value in self.values if value == value]
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"{self} has a value twice; only NaN may have several codes")
        if repr(Fraction(0)) not in numbers:
            raise ValueError(f"{self} has no zero; a codebook needs the value 0")
        if self.has_negative_zero and self.order != ORDERS[0]:
            raise ValueError(f"{self} has -0, which only a codebook in sign-magnitude can have")
        if not any(self._finite):
            raise ValueError(f"{self} has only zero as a finite value; a codebook needs another one")

    def _check_overflow(self) -> None:
        """Raise ValueError if the results of an overflow are undefined."""
        if (self.overflow == "infinity" and not self.has_inf) or (self.overflow == "nan" and not self.has_nan):
            raise ValueError(f"{self} overflows to {self.overflow}, which is not among its values")
        if (self.threshold is None) != (self.overflow == "end"):
            raise ValueError(f"{self} needs a threshold if it overflows to infinity or nan, and takes none otherwise")
        if self.threshold is not None:
            threshold = _number(self.threshold)
            if not max(self.largest, -self.lowest) < threshold < math.inf:
                raise ValueError(f"the threshold of {self} must be finite and above its largest magnitude")
            object.__setattr__(self, "threshold", threshold)

    def _check_nan(self) -> None:
        """Raise ValueError if the value of NaN has no effect, or no code."""
        if self.has_nan and repr(self.nan) != repr(Fraction(0)):
            raise ValueError(f"nan={self.nan} does nothing in {self}, because NaN has a code")
        if not self.has_nan and repr(self.nan) not in map(repr, self.values):
            raise ValueError(f"nan={self.nan} must be one of the values of {self}")

    @cached_property
    def _key(self) -> tuple[object, ...]:
        # The repr of a float includes the sign of zero, which comparison ignores.
        return self.name, tuple(map(repr, self.values)), self.order, self.overflow, self.threshold, repr(self.nan)

    @cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __getstate__(self) -> dict[str, object]:
        # Cached properties are not pickled, because hashes of strings differ between processes.
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Codebook) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return self.name if self.name in self.names else f"codebook:{self.name}"

    @property
    def digest(self) -> str:
        """Digest of everything but the name, which names of hardware modules contain: a codebook can be edited."""
        return hashlib.sha256(repr(self._key[1:]).encode()).hexdigest()[:6]

    # Names -----------------------------------------------------------------------------------------------------

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        """Return the named codebook, or that of ``codebook:NAME``, registered in Python or in a data file."""
        name = text.removeprefix("codebook:")
        if name == text and text not in cls.names:
            return None
        _check_name(name)
        if name not in _KNOWN:
            path = next((path for path in data_files() if path.stem == name), None)
            if path is None:
                raise ValueError(f"unknown {text}; register it, or put {name}.toml in a folder listed in {FOLDERS}")
            _KNOWN[name] = cls.load(path)
        return _KNOWN[name]

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Load a codebook from TOML with ``values`` and optionally ``order``, ``overflow``, ``threshold``, ``nan``."""
        path = Path(path)
        text = text_of(path)
        known = {item.name for item in fields(cls) if item.init and item.name != "name"}
        try:
            given = toml_of(text)
            if "values" not in given:
                raise ValueError("no values; expected a line such as values = [0, 1]")
            if unknown := given.keys() - known:
                raise ValueError(f"unknown {', '.join(sorted(unknown))}; expected {', '.join(sorted(known))}")
            return cls(path.stem, **given)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from None

    @classmethod
    def register(
        cls, name: str, values: Sequence[float] | Callable[[int], float], width: int | None = None, **options: Any
    ) -> Self:
        """Register a codebook as ``codebook:NAME``, for this program and its child processes.

        ``values`` is a list, or a function from codes of ``width`` bits to their values.
        """
        if callable(values) != (width is not None):
            raise TypeError("width is needed with a function as values, and allowed only then")
        if callable(values):
            check_int("width", width, "codebook", 1, MAX_WIDTH)
            values = [values(code) for code in range(1 << (width or 0))]
        fmt = cls(name, values, **options)
        numbers = ", ".join(f'"{value}"' for value in fmt.values)
        written = {name: getattr(fmt, name) for name in ("order", "overflow", "nan", "threshold")}
        lines = [f"values = [{numbers}]"]
        lines += [f'{name} = "{value}"' for name, value in written.items() if value is not None]
        Path(_folder().name, f"{name}.toml").write_text("\n".join(lines) + "\n")
        _KNOWN[name] = fmt
        return fmt

    def describe(self) -> str:
        return f"codebook, {self.order}, overflow to {self.overflow}"

    def default_accumulator(self) -> Format:
        """Return binary32, because sums of arbitrary values need a wide format."""
        from .floating import Float

        return Float(8, 23)

    # Sizes and ranges ------------------------------------------------------------------------------------------

    @cached_property
    def width(self) -> int:  # type: ignore[override]  # a property for an attribute of Format
        return len(self.values).bit_length() - 1

    @property
    def rounds(self) -> RoundedUnit:  # type: ignore[override]  # a property for an attribute of Format
        return "magnitude" if self.order == ORDERS[0] else "floor"

    @cached_property
    def _finite(self) -> list[Fraction]:
        return sorted(Fraction(value) for value in self.values if math.isfinite(value))

    @cached_property
    def has_nan(self) -> bool:  # type: ignore[override]  # a property for an attribute of Format
        return any(value != value for value in self.values)

    @cached_property
    def has_inf(self) -> bool:  # type: ignore[override]  # a property for an attribute of Format
        return math.inf in self.values or -math.inf in self.values

    @cached_property
    def has_negative_zero(self) -> bool:  # type: ignore[override]  # a property for an attribute of Format
        return any(isinstance(value, float) and value == 0 for value in self.values)

    @cached_property
    def lowest(self) -> Fraction:
        return self._finite[0]

    @cached_property
    def largest(self) -> Fraction:  # type: ignore[override]  # a property for an attribute of Format
        return self._finite[-1]

    @cached_property
    def smallest(self) -> Fraction:  # type: ignore[override]  # a property for an attribute of Format
        return min(abs(value) for value in self._finite if value)

    @cached_property
    def quantum(self) -> int:  # type: ignore[override]  # a property for an attribute of Format
        """Exponent of the last place of the finest number, or of the threshold."""
        numbers = [abs(value) for value in (*self._finite, self.threshold) if value]
        return min(floor_log2(value) - significand_bits(value) + 1 for value in numbers)

    @cached_property
    def precision(self) -> int:  # type: ignore[override]  # a property for an attribute of Format
        """Maximum significand bits."""
        return max(significand_bits(value) for value in self._finite)

    @cached_property
    def window(self) -> int:
        """Number of bits from the largest magnitude to the last place, because neighbours may be anywhere."""
        ends = max(self.largest, -self.lowest, self.threshold or Fraction(0))
        return floor_log2(ends) - self.quantum + 1

    @property
    def is_symmetric(self) -> bool:
        positive, negative = ([(entry.units, entry.odd) for entry in table] for table in self.rounding_tables)
        return positive == negative

    def holds(self, other: Format) -> bool:
        """Return True if the list contains all values of a format of up to 16 bits."""
        if other.width > MAX_WIDTH:
            return False
        return all(value in self.values if value == value else self.has_nan for value in other.values)

    # Codes -----------------------------------------------------------------------------------------------------

    @cached_property
    def rounding_tables(self) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
        """Positive and negative magnitudes in ascending order from zero, with the threshold last if there is one."""
        tables = []
        for negative in (False, True):
            codes = {}
            for code, value in enumerate(self.values):
                if math.isfinite(value):
                    minus = math.copysign(1.0, value) < 0 if isinstance(value, float) else value < 0
                    if value == 0:
                        if negative == minus or Fraction(0) not in codes:
                            codes[Fraction(0)] = code
                    elif minus == negative:
                        codes[abs(Fraction(value))] = code
            unit = Fraction(2) ** self.quantum
            table = [Entry(size, int(size / unit), codes[size], codes[size] & 1) for size in sorted(codes)]
            if self.threshold is not None:
                table.append(Entry(self.threshold, int(self.threshold / unit), None, 1 - table[-1].odd))
            tables.append(tuple(table))
        return tables[0], tables[1]

    @cached_property
    def nan_code(self) -> int:  # type: ignore[override]  # a property for an attribute of Format
        """Code of NaN, or of the number that NaN becomes."""
        if self.has_nan:
            return next(code for code, value in enumerate(self.values) if value != value)
        return [repr(value) for value in self.values].index(repr(self.nan))

    def infinity(self, negative: bool) -> int:
        sought = -math.inf if negative else math.inf
        if sought in self.values:
            return self.values.index(sought)
        if self.overflow == "nan":
            return self.nan_code
        return self.end(negative)

    def end(self, negative: bool) -> int:
        """Return the code of the last finite number of a sign."""
        codes = [entry.code for entry in self.rounding_tables[negative] if entry.code is not None]
        return codes[-1]

    def overflowed(self, negative: bool, rounding: Rounding, saturate: Saturation) -> int:
        """Return the code of a result beyond the range."""
        stays = self.threshold is None or saturate or rounding.overflows_to_largest[negative]
        return self.end(negative) if stays else self.infinity(negative)

    def fields(self) -> dict[str, int]:
        return {"code": self.width}

    def decode(self, code: int) -> Fraction | float:
        self.check_code(code)
        value = self.values[code]
        return Fraction(0) if value == 0 else value

    def negative(self, code: int) -> bool:
        self.check_code(code)
        return math.copysign(1.0, float(self.values[code])) < 0

    def encode_magnitude(
        self, magnitude: Fraction, negative: bool, rounding: Rounding, random: int = 0, saturate: Saturation = OFF
    ) -> int:
        table = self.rounding_tables[negative]
        place = bisect.bisect_right(table, magnitude, key=lambda entry: entry.magnitude) - 1
        inner = table[place]
        if inner.code is not None and inner.magnitude == magnitude:
            return inner.code
        if inner.code is None or place + 1 == len(table):
            if rounding.mode == "exact":
                raise ValueError(f"rounding exact needs a result from {self.lowest} to {self.largest} in {self}")
            return self.overflowed(negative, rounding, saturate)
        outer = table[place + 1]
        rest = (magnitude - inner.magnitude) / (outer.magnitude - inner.magnitude)
        odd = inner.odd
        if self.rounds == "magnitude":
            goes_out = rounding.round(odd + rest, negative, random) > odd
        else:
            # Integers of the same parity and sign represent the two neighbours.
            value = -(odd + rest) - 2 if negative else odd + rest + 2
            goes_out = (abs(rounding.round_signed(value, random)) - 2) > odd
        if not goes_out:
            return inner.code
        return self.overflowed(negative, rounding, saturate) if outer.code is None else outer.code


def data_files() -> list[Path]:
    """Return the data files in the folders of the environment variable."""
    folders = filter(None, os.environ.get(FOLDERS, "").split(os.pathsep))
    return [path for folder in folders for path in sorted(Path(folder).glob("*.toml"))]


@functools.cache
def _folder() -> "tempfile.TemporaryDirectory[str]":
    """Return the folder of data files that this program registers; it is deleted at exit."""
    folder = tempfile.TemporaryDirectory(prefix="halfulp_codebooks_")
    os.environ[FOLDERS] = os.pathsep.join(filter(None, [folder.name, os.environ.get(FOLDERS, "")]))
    return folder


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"invalid codebook name {name!r}; expected lowercase letters, digits and _")


def _number(value: object) -> Fraction | float:
    """Convert a listed value: finite numbers become fractions, except -0.0."""
    if isinstance(value, str):
        try:
            value = float(value) if value in ("-0.0", "inf", "-inf", "nan") else Fraction(value)
        except (ValueError, ZeroDivisionError):
            raise ValueError(f"{value!r} is not a number") from None
    if isinstance(value, bool) or not isinstance(value, (int, float, Fraction)):
        raise TypeError(f"a value of a codebook must be a number, not {type(value).__name__}")
    if isinstance(value, float) and not math.isfinite(value):
        return math.nan if math.isnan(value) else value
    if isinstance(value, float) and value == 0 and math.copysign(1.0, value) < 0:
        return -0.0
    number = Fraction(value)
    if number.denominator & (number.denominator - 1):
        raise ValueError(f"a value of a codebook must be a multiple of a power of two, not {value}")
    return number


_KNOWN["nf4"] = Codebook("nf4", _NF4)
