"""Binary floating-point formats of any size."""

import math
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Self

from .base import Format, floor_log2, ldexp
from .checks import check_bool, check_int, check_one_of
from .rounding import Rounding
from .saturation import OFF, Saturation

SPECIALS = ("ieee", "fn", "fnuz", "finite", "uz")
"""Kinds of special codes, in the order of `Specials` in golden/kernels/number.h."""
MIN_EXP, MAX_EXP, MAX_MAN, MAX_BIAS = 2, 11, 52, 4096

_FINITE_ROWS = ("e2m1fn", "e2m3fn", "e3m2fn")
"""Formats of ml_dtypes with the suffix ``fn`` but without NaN; in other names ``fn`` means one NaN."""

ML_DTYPES: dict[str, str] = {"float64": "fp64", "float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
ML_DTYPES |= {f"float8_{name}": name for name in ("e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz")}
ML_DTYPES |= {"float8_e5m2": "e5m2", "float8_e5m2fnuz": "e5m2fnuz"}
ML_DTYPES |= {"float6_e2m3fn": "e2m3fn", "float6_e3m2fn": "e3m2fn", "float4_e2m1fn": "e2m1fn"}
"""Names of numpy and ml_dtypes for formats of this module; they parse too."""

OTHER_NAMES = {"binary64": "fp64", "binary32": "fp32", "binary16": "fp16"}
OTHER_NAMES |= {"double": "fp64", "single": "fp32", "float": "fp32", "half": "fp16"}
OTHER_NAMES |= {"E4M3": "e4m3fn", "E5M2": "e5m2", "E3M2": "e3m2fn", "E2M3": "e2m3fn", "E2M1": "e2m1fn"}
OTHER_NAMES |= {"fp8": "e4m3fn", "fp8_e4m3": "e4m3fn", "fp8_e5m2": "e5m2", "fp6_e3m2": "e3m2fn", "fp6_e2m3": "e2m3fn"}
OTHER_NAMES |= {"fp4": "e2m1fn", "fp4_e2m1": "e2m1fn", "float4_e2m1fn_x2": "e2m1fn"}
OTHER_NAMES |= {f"fp8_{name}": name for name in ("e4m3fn", "e4m3fnuz", "e5m2fnuz")}
OTHER_NAMES |= {"f64": "fp64", "f32": "fp32", "f16": "fp16", "f8_e4m3": "e4m3fn", "f8_e5m2": "e5m2"}
OTHER_NAMES |= {"f6_e3m2": "e3m2fn", "f6_e2m3": "e2m3fn", "f4": "e2m1fn"}
"""Names of IEEE 754, of OCP (in capitals, and ``fp8`` for its E4M3), of C, torch and safetensors; they parse too."""

_TEXT = re.compile(r"e([0-9]+)m([0-9]+)(?:b(-?[0-9]+))?(-?fn|-?fnuz|-finite|uz)?")

_P3109 = re.compile(r"(?:binary|p3109_k?)([0-9]+)p([0-9]+)([su]?)([ef]?)")
"""Name of a format of IEEE P3109: width, precision, signed or unsigned, extended (with infinities) or finite."""


@dataclass(frozen=True)
class Float(Format):
    """Binary floating-point format.

    Parameters
    ----------
    exp : int
        Number of exponent bits, 2 to 11. With specials ``finite``, ``fnuz`` and ``uz`` also 1: sign and magnitude of an
        integer, scaled.
    man : int
        Number of mantissa bits without the hidden bit, 0 to 52.
    bias : int, optional
        Exponent bias, -4096 to 4096. Default: 2^(exp-1) - 1, or 2^(exp-1) for ``fnuz`` and ``uz``.
    specials : str
        Special codes. ``ieee``: infinities and NaN; ``fn``: all ones is NaN, no infinity; ``fnuz``: the code of -0 is
        NaN, no infinity; ``finite``: neither; ``uz``: as ``fnuz``, and all ones after the sign is infinity, as in IEEE
        P3109. ``ieee`` needs at least one mantissa bit.
    subnormals : bool
        If false, subnormal operands read as zero, and results below the smallest normal number become zero.

    Raises
    ------
    TypeError, ValueError
        If a parameter has the wrong type or is out of range.
    """

    family = "float"
    syntax = (
        "e<exp>m<man>, exp 2 to 11, or 1 with -finite, fnuz or uz, man 0 to 52; then b<bias>; then fn, fnuz, uz or "
        "-finite for its specials; then -ftz for no subnormals: e6m5, e4m3b11fnuz, e5m2-ftz"
    )
    code_order = "sign-magnitude"
    rounds = "magnitude"
    spacing = "relative"
    names: ClassVar = {
        "fp64": "e11m52",
        "fp32": "e8m23",
        "tf32": "e8m10",
        "bf16": "e8m7",
        "fp16": "e5m10",
        **{name: name for name in ("e3m4", "e4m3", "e5m2", "e6m5")},
        **{name: name for name in ("e4m3fn", "e4m3fnuz", "e4m3b11fnuz", "e5m2fnuz", "e3m2fn", "e2m3fn", "e2m1fn")},
        **{f"binary8p{precision}": f"e{8 - precision}m{precision - 1}uz" for precision in range(1, 8)},
    }

    has_flags = is_floating_point = True

    exp: int
    man: int
    bias: int = None  # type: ignore[assignment]  # None asks for the default; after construction it is an int
    specials: str = "ieee"
    subnormals: bool = True

    def __post_init__(self) -> None:
        check_int("exp", self.exp, "float")
        check_int("man", self.man, "float")
        plural = "" if self.exp == 1 else "s"
        # With one exponent bit and no specials, all numbers have one last place: integers with sign and magnitude.
        uniform = self.exp == 1 and self.specials in ("finite", "fnuz", "uz")
        if not MIN_EXP <= self.exp <= MAX_EXP and not uniform:
            raise ValueError(
                f"{self._size} has {self.exp} exponent bit{plural}; a float needs {MIN_EXP} to {MAX_EXP}, or 1 if "
                f"finite, as in e1m2-finite, or without -0, as in binary8p7"
            )
        if not 0 <= self.man <= MAX_MAN:
            raise ValueError(f"{self._size} has {self.man} mantissa bits; a float needs 0 to {MAX_MAN}")
        check_one_of("specials", self.specials, SPECIALS)
        check_bool("subnormals", self.subnormals, "float")
        if self.man == 0 and self.specials == "ieee":
            raise ValueError(
                f"{self._size} has no mantissa bit to separate inf from NaN; use specials fn, fnuz or finite"
            )
        if (self.exp, self.man, self.specials) == (1, 0, "uz"):
            raise ValueError(f"{self._size}uz has no number besides zero; a float needs more bits")
        if self.bias is None:
            object.__setattr__(self, "bias", self._default_bias)
        check_int("bias", self.bias, "float", -MAX_BIAS, MAX_BIAS)

    @property
    def _size(self) -> str:
        return f"e{self.exp}m{self.man}"

    @property
    def _default_bias(self) -> int:
        half = 1 << (self.exp - 1)
        return half if self.specials in ("fnuz", "uz") else half - 1

    def __str__(self) -> str:
        text = self._size
        if self.bias != self._default_bias:
            text += f"b{self.bias}"
        if self.specials == "finite":
            text += "fn" if f"{text}fn" in _FINITE_ROWS else "-finite"
        elif self.specials == "fn" and self.man > 0:
            text += "-fn" if f"{text}fn" in _FINITE_ROWS else "fn"
        elif self.specials in ("fnuz", "uz"):
            text += self.specials
        text = next((name for name, same in self.names.items() if same == text), text)
        return text if self.subnormals else f"{text}-ftz"

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        # e3m2fn, e2m3fn and e2m1fn have no NaN, as in ml_dtypes; e3m2-fn has one.
        name = text.removesuffix("-ftz")
        name = ML_DTYPES.get(name, OTHER_NAMES.get(name, name))
        name = cls.names.get(name, _p3109(name))
        match = _TEXT.fullmatch(name)
        if match is None:
            return None
        exp, man = int(match[1]), int(match[2])
        # Without mantissa bits there is no room for inf and NaN, so the bare name means one NaN.
        specials = "finite" if name in _FINITE_ROWS else match[4] or ("fn" if man == 0 else "ieee")
        bias = None if match[3] is None else int(match[3])
        return cls(exp, man, bias, specials.removeprefix("-"), not text.endswith("-ftz"))

    @property
    def has_signalling_nan(self) -> bool:
        """True if there are codes of NaN whose first mantissa bit is 0, beside that of infinity."""
        return self.specials == "ieee" and self.man > 1

    def is_signalling(self, code: int) -> bool:
        """Return True for a NaN whose first mantissa bit is 0; a format with only one NaN has none."""
        magnitude = code & (self.sign_code - 1)
        return self.specials == "ieee" and magnitude > self.max_code + 1 and not magnitude >> (self.man - 1) & 1

    def describe(self) -> str:
        fields = f"e{self.exp}m{self.man}"
        ocp = OTHER_NAMES.get(fields.upper(), fields)
        other = f", not OCP's {fields.upper()}, which is {ocp}" if str(self) == fields != ocp else ""
        return f"float {fields}, bias {self.bias}, {self.specials}{', ftz' if self.flushes else ''}{other}"

    def default_accumulator(self) -> "Float":
        """Return the format with one more exponent bit, three more mantissa bits and IEEE specials: e6m5 for e5m2.

        If products of a biased format would leave its range, its bias shifts too.
        """
        acc = Float(min(self.exp + 1, MAX_EXP), min(self.man + 3, MAX_MAN), subnormals=self.subnormals)
        if acc.smallest <= Fraction(4) ** self.emin and self.largest**2 <= acc.largest:
            return acc
        bias = acc.bias + 2 * (self.bias - self._default_bias)
        if abs(bias) > MAX_BIAS:
            raise ValueError(f"{self} has no default accumulator, as its bias would be {bias}: give a format")
        return replace(acc, bias=bias)

    # Sizes and ranges ------------------------------------------------------------------------------------------

    @property
    def width(self) -> int:  # type: ignore[override]  # a property for an attribute of Format
        """Width of a code: sign, exponent and mantissa bits."""
        return 1 + self.exp + self.man

    @property
    def precision(self) -> int:  # type: ignore[override]  # a property for an attribute of Format
        """Bits of a normal significand, hidden bit included."""
        return self.man + 1

    @property
    def flushes(self) -> bool:  # type: ignore[override]  # a property for an attribute of Format
        return not self.subnormals

    @property
    def floor_exponent(self) -> int | None:  # type: ignore[override]  # a property for an attribute of Format
        """Exponent of the smallest normal number, whose last place subnormals share; None without subnormals."""
        return self.emin if self.subnormals else None

    def precision_at(self, scale: int) -> int:
        if not floor_log2(self.smallest) <= scale <= self.emax:
            return 0
        return min(self.precision, scale - self.quantum + 1)

    @property
    def emin(self) -> int:
        """Exponent of the smallest normal number."""
        return 1 - self.bias

    @property
    def quantum(self) -> int:  # type: ignore[override]  # a property for an attribute of Format
        """Exponent of the last place of subnormal numbers and of the smallest normal number."""
        return self.emin - self.man

    @property
    def emax(self) -> int:
        """Exponent of the largest finite number."""
        return (self.max_code >> self.man) - self.bias

    @property
    def has_inf(self) -> bool:  # type: ignore[override]  # a property for an attribute of Format
        return self.specials in ("ieee", "uz")

    @property
    def has_nan(self) -> bool:  # type: ignore[override]  # a property for an attribute of Format
        return self.specials != "finite"

    @property
    def has_negative_zero(self) -> bool:  # type: ignore[override]  # a property for an attribute of Format
        return self.specials not in ("fnuz", "uz")

    # Codes -----------------------------------------------------------------------------------------------------

    @property
    def sign_code(self) -> int:
        """Code of the sign bit."""
        return 1 << (self.exp + self.man)

    @property
    def max_code(self) -> int:
        """Code of the largest finite number."""
        ones = self.sign_code - 1
        if self.specials == "ieee":
            return ones - (1 << self.man)
        return ones - 1 if self.specials in ("fn", "uz") else ones

    @property
    def inf_code(self) -> int | None:
        """Code of +inf; None if the format has none."""
        return self.max_code + 1 if self.has_inf else None

    @property
    def nan_code(self) -> int:  # type: ignore[override]  # a property for an attribute of Format
        """Code of a NaN result: the canonical quiet NaN, or -0 in formats without NaN, as in ml_dtypes."""
        if self.specials == "ieee":
            return self.max_code + 1 + (1 << (self.man - 1))
        return self.sign_code - 1 if self.specials == "fn" else self.sign_code

    def infinity(self, negative: bool) -> int:
        """Return the code of an infinite result: infinity, else NaN, else the largest finite number."""
        if self.specials in ("fn", "fnuz"):
            return self.nan_code
        code = self.max_code if self.inf_code is None else self.inf_code
        return code | self.sign_code if negative else code

    @property
    def largest(self) -> Fraction:  # type: ignore[override]  # a property for an attribute of Format
        value = self.decode(self.max_code)
        assert isinstance(value, Fraction)
        return value

    @property
    def smallest(self) -> Fraction:  # type: ignore[override]  # a property for an attribute of Format
        return Fraction(2) ** (self.quantum if self.subnormals else self.emin)

    def fields(self) -> dict[str, int]:
        return {"mantissa": self.man, "exponent": self.exp, "sign": 1}

    def negative(self, code: int) -> bool:
        self.check_code(code)
        return bool(code & self.sign_code)

    def decode(self, code: int) -> Fraction | float:
        """Return the value of a code; without subnormals, subnormal codes are zero."""
        self.check_code(code)
        negative, magnitude = bool(code & self.sign_code), code & (self.sign_code - 1)
        if not self.has_negative_zero and code == self.sign_code:
            return math.nan
        if magnitude > self.max_code:
            if magnitude != self.inf_code:
                return math.nan
            return -math.inf if negative else math.inf
        field, mantissa = magnitude >> self.man, magnitude & ((1 << self.man) - 1)
        if field == 0:
            value = ldexp(mantissa, self.quantum) if self.subnormals else Fraction(0)
        else:
            value = ldexp((1 << self.man) + mantissa, field - self.bias - self.man)
        return -value if negative else value

    def encode_magnitude(
        self, magnitude: Fraction, negative: bool, rounding: Rounding, random: int = 0, saturate: Saturation = OFF
    ) -> int:
        if magnitude == 0:
            return self._signed(0, negative)
        last_place = floor_log2(magnitude) - self.man
        if self.subnormals:
            last_place = max(last_place, self.quantum)
        significand = rounding.round(ldexp(magnitude, -last_place), negative, random)
        # The hidden bit adds one to the exponent field, and so does a carry out of the significand.
        code = ((last_place - self.quantum) << self.man) + significand
        if code > self.max_code:
            if rounding.mode == "exact":
                raise ValueError(f"rounding exact needs a result of at most {self.largest}, the largest {self}")
            to_largest = saturate or rounding.overflows_to_largest[negative]
            return self._signed(self.max_code, negative) if to_largest else self.infinity(negative)
        is_flushed = not self.subnormals and code < 1 << self.man
        return self._signed(0 if is_flushed else code, negative)

    def _signed(self, magnitude: int, negative: bool) -> int:
        if magnitude == 0 and not self.has_negative_zero:
            return 0
        return magnitude | self.sign_code if negative else magnitude


def _p3109(name: str) -> str:
    """Return the text of a format of IEEE P3109; other names as they are."""
    match = _P3109.fullmatch(name)
    if match is None:
        return name
    width, precision = int(match[1]), int(match[2])
    if match[3] == "u":
        raise ValueError(f"{name} is unsigned, and a float has a sign; register its values as a codebook")
    if not 1 <= precision < width:
        raise ValueError(f"{name} has precision {precision}; a signed format of {width} bits needs 1 to {width - 1}")
    return f"e{width - precision}m{precision - 1}{'fnuz' if match[4] == 'f' else 'uz'}"
