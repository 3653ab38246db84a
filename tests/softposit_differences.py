"""Codes of SoftPosit, and its predicted differences from the standard.

SoftPosit has posits of 8, 16 and 32 bits with 0, 1 and 2 exponent bits (``posit8``, ``posit16``, ``posit32``), and
those of the standard of 2022, with 2 exponent bits at any width up to 32 (``posit_2``). It rounds like the
standard: on the encoded string, never to zero and never to NaR. Release 0.3.4.4 differs in the cases below, in
conversions and in quires, which their tests describe. A condition on the exact result predicts each difference and its
code. SoftPosit must differ there and nowhere else. Where its C code is undefined, the prediction allows several codes.

- ``posit_2`` of 32 bits loses the single exponent bit after a regime of 29 bits (`lost_exponent_bit`).
- ``p32_mul`` rounds 2^119 like 2^118, the midpoint of the two largest posits, to even (`second_bit_lost`).
- ``p32_mulAdd`` ignores the second dropped bit (`second_bit_unseen`), and after regimes of 29 and 30 bits it reads an
  uninitialised variable (`unset_variable`).
- ``pX2_mulAdd`` ignores bits dropped by alignment, 62 places below the larger operand (`tail_forgotten`).
"""

import os
from dataclasses import dataclass
from fractions import Fraction

import pytest
import softposit
import torch

from halfulp import golden
from halfulp.hdl.formats import RN, Posit
from halfulp.hdl.formats.base import floor_log2

COUNT = int(os.environ.get("HALFULP_ORACLE_COUNT", "100000"))
"""Vectors per operation and format, if not all."""


@dataclass(frozen=True)
class Type:
    """Number type of SoftPosit: name in C, class in Python, and format."""

    name: str
    number: type
    fmt: Posit

    def __str__(self):
        return f"{self.name}-{self.fmt}"

    @property
    def wide(self):
        """Extra argument of functions of ``posit_2``: the width."""
        return (self.fmt.width,) if self.name == "pX2" else ()

    @property
    def shift(self):
        """Number of zeros below a code; a ``posit_2`` fills 32 bits from the top."""
        return 32 - self.fmt.width if self.name == "pX2" else 0


TYPES = [
    Type("p8", softposit.posit8_t, Posit(8, 0)),
    Type("p16", softposit.posit16_t, Posit(16, 1)),
    Type("p32", softposit.posit32_t, Posit(32)),
    *(Type("pX2", softposit.posit_2_t, Posit(width)) for width in (8, 16, 32)),
]

OPERATIONS = {"mul": "mul", "add": "add", "sub": "sub", "fma": "mulAdd"}

every_type = pytest.mark.parametrize("kind", TYPES, ids=str)


# SoftPosit on columns of codes ---------------------------------------------------------------------------------------


def call(function, kind, columns, *more):
    """Call a function of SoftPosit on numbers of one type, one vector after the other."""
    numbers = [kind.number() for _ in columns]
    put = kind.number.v.fset
    for codes in zip(*(column.tolist() for column in columns), strict=True):
        for number, code in zip(numbers, codes, strict=True):
            put(number, code << kind.shift)
        yield function(*numbers, *more)


def codes_of(numbers, kind):
    """Convert numbers of SoftPosit to codes."""
    words = torch.tensor(list(map(kind.number.v.fget, numbers)))
    codes = words >> kind.shift
    assert torch.equal(codes << kind.shift, words)
    return codes


def codes_of_integers(values, fmt):
    """Convert integers to codes of the golden model."""
    codes = (value % (1 << fmt.width) for value in values)
    return torch.tensor([code - (code >> 63 << 64) for code in codes])


def by_softposit(operation, kind, columns):
    """Compute an operation by SoftPosit."""
    function = getattr(softposit, f"{kind.name}_{OPERATIONS[operation]}")
    return codes_of(call(function, kind, columns, *kind.wide), kind)


def by_golden(operation, fmt, columns, o=None, rounding=RN):
    """Compute an operation by the golden model."""
    more = {"sub": [1]}.get(operation, [])
    names = "abc"[: len(columns)]
    return getattr(golden, {"sub": "add"}.get(operation, operation))(
        *columns, *more, **dict.fromkeys(names, fmt), o=o or fmt, rounding=rounding
    )


# Vectors -------------------------------------------------------------------------------------------------------------


def sample(fmt, generator, count):
    """Return codes of all kinds: any, of few bits, of short fractions, and next to 0, NaR, 1 and -1."""

    def draw(below):
        return torch.randint(0, below, (count,), generator=generator)

    width = fmt.width
    code, length, kind = draw(1 << width), draw(width) + 1, draw(8)
    few = (code & ((1 << length) - 1)) * (draw(2) * 2 - 1)
    short = code >> length << length
    special = draw(4) * (1 << (width - 2)) + draw(9) - 4
    codes = torch.where(kind < 3, code, torch.where(kind < 5, few, torch.where(kind < 7, short, special)))
    return codes & ((1 << width) - 1)


def operands(fmt, arity, seed=1):
    """Return all pairs of 8-bit codes, or columns of samples; a third operand often cancels the product."""
    if fmt.width == 8 and arity == 2:
        return [column.flatten() for column in torch.meshgrid(torch.arange(256), torch.arange(256), indexing="ij")]
    generator = torch.Generator().manual_seed(seed)
    columns = [sample(fmt, generator, COUNT) for _ in range(arity)]
    if arity == 3:
        product = golden.mul(*columns[:2], a=fmt, b=fmt, o=fmt)
        columns[2][::8] = -product[::8] & ((1 << fmt.width) - 1)
    return columns


def every_code(fmt, seed=1):
    """Return all codes of up to 16 bits, or a sample."""
    return torch.arange(1 << fmt.width) if fmt.width <= 16 else operands(fmt, 1, seed)[0]


DIRECTED = {
    ("add", "pX2-posit32"): [(0x7FFFFFFD, 0x800272D0)],
    ("sub", "pX2-posit32"): [(0x7FFFFFFD, 0x7FFD8D30)],
}
"""Vectors that trigger differences which samples rarely reach."""


# Predicted differences -----------------------------------------------------------------------------------------------
#
# An exact result is the string of its magnitude: the truncated code, and the dropped bits. Codes of 32 bits with
# regimes of 29 bits are 2, 3, max_code - 3 and max_code - 2; those with 30 bits are 1 and max_code - 1.


@dataclass(frozen=True)
class Strings:
    """Exact results as magnitudes truncated to codes; ``rest`` is the dropped part, and ``half`` a tie."""

    code: torch.Tensor
    rest: torch.Tensor
    half: int

    @classmethod
    def of(cls, codes, fmt):
        """Split results that were rounded to odd in posits of 64 bits."""
        magnitude = codes.abs()
        half = 1 << (63 - fmt.width)
        return cls(magnitude // (2 * half), magnitude % (2 * half), half)

    @property
    def even(self):
        """Mask of the results whose tie rounds down."""
        return self.code % 2 == 0


def lost_exponent_bit(results, fmt, columns):
    """Lose the exponent bit after a regime of 29 bits, because ``posit_2`` of 32 bits shifts it by -1.

    The bits after it decide the rounding correctly.
    """
    at = (results.code == 3) | (results.code == fmt.max_code - 2)
    codes = results.code - 1 + (results.rest > results.half)
    return at, codes, codes


def lost_exponent_bit_of_sum(results, fmt, columns):
    """Lose the exponent bit as in `lost_exponent_bit`, except if an operand is returned unchanged.

    An operand is returned if the other is 0; 2^116 is also returned if the subtrahend is more than 62 places below it.
    2^114 loses its bit if the subtrahend is 63 places below: too small to count, and too large for the shortcut.
    """
    at, codes, _ = lost_exponent_bit(results, fmt, columns)
    first, second = (torch.minimum(column, -column & ((1 << fmt.width) - 1)) for column in columns)
    smaller, larger = torch.minimum(first, second), torch.maximum(first, second)
    returned = (smaller == 0) | ((larger == fmt.max_code - 1) & (smaller < fmt.encode(2**54)))
    just_too_low = (smaller >= fmt.encode(2**51)) & (smaller < fmt.encode(2**52))
    unchanged = (larger == fmt.max_code - 2) & just_too_low & (results.code == fmt.max_code - 3)
    codes = torch.where(unchanged, results.code, codes)
    return (at & ~returned) | unchanged, codes, codes


def lost_exponent_bit_of_fma(results, fmt, columns):
    """Lose the exponent bit as in `lost_exponent_bit`, except if a product of 0 returns the addend unchanged."""
    at, codes, _ = lost_exponent_bit(results, fmt, columns)
    return at & (columns[0] != 0) & (columns[1] != 0), codes, codes


def second_bit_lost(results, fmt, columns):
    """Ignore the second exponent bit above a tie: after a regime of 30 bits ``p32_mul`` overwrites it."""
    at = (results.code == fmt.max_code - 1) & (results.rest == results.half + results.half // 2)
    return at, results.code, results.code


def second_bit_unseen(results, fmt, columns):
    """Round three quarters like a tie, because ``p32_mulAdd`` shifts out the second dropped bit.

    After regimes of 29 bits and more `unset_variable` applies instead.
    """
    at = results.even & (results.rest == results.half + results.half // 2)
    return at & (results.code > 3) & (results.code < fmt.max_code - 3), results.code, results.code


def tail_forgotten(results, fmt, columns):
    """Round like a tie if the excess is 62 places or more below the largest operand or result of ``pX2_mulAdd``.

    The sum is truncated there, and the sticky bit is overwritten unless one exponent bit follows the regime.
    """
    at = tie_when_truncated(results, fmt, columns)
    return at & (results.code != 2) & (results.code != fmt.max_code - 3), results.code, results.code


def tie_when_truncated(results, fmt, columns):
    """Return a mask of sums that become ties when they are truncated 62 places below the largest of three numbers."""
    at = results.even & (results.rest > results.half) & (results.rest < results.half + results.half // 1024)
    for index in positions(at):
        x, y, z = (fmt.decode(int(column[index])) for column in columns)
        unit = Fraction(2) ** (max(floor_log2(abs(number)) for number in (x * y, z, x * y + z) if number) - 62)
        at[index] = fmt.encode(abs(x * y + z) // unit * unit) == results.code[index]
    return at


def unset_variable(results, fmt, columns):
    """Allow either neighbour where ``p32_mulAdd`` reads ``fracZ`` unset, after regimes of 29 and 30 bits.

    This concerns ties, results that become ties by truncation, and three quarters.
    """
    regime_29, regime_30 = (results.code == 2) | (results.code == fmt.max_code - 3), results.code == fmt.max_code - 1
    tie, unseen = results.rest == results.half, results.rest == results.half + results.half // 2
    at = (regime_29 & (tie | unseen)) | (regime_30 & (tie | tie_when_truncated(results, fmt, columns)))
    return at, results.code, results.code + 1


DEPARTURES = {
    ("mul", "pX2-posit32"): [lost_exponent_bit],
    ("add", "pX2-posit32"): [lost_exponent_bit_of_sum],
    ("sub", "pX2-posit32"): [lost_exponent_bit_of_sum],
    ("fma", "pX2-posit32"): [lost_exponent_bit_of_fma, tail_forgotten],
    ("mul", "p32-posit32"): [second_bit_lost],
    ("fma", "p32-posit32"): [second_bit_unseen, unset_variable],
    ("fma", "pX2-posit16"): [tail_forgotten],
}


def signed(codes, fmt):
    """Convert codes to two's complement, which orders them by value."""
    return codes - (codes >> (fmt.width - 1) << fmt.width)


def positions(condition):
    """Return the positions at which a condition holds."""
    return torch.nonzero(condition).flatten().tolist()


def classify(ours, theirs, departures):
    """Return the number of results of each predicted difference, and the positions of all other mismatches.

    A predicted difference has a mask, and the first and last allowed code. A single allowed code must differ from ours.
    """
    wrong, counts = ours != theirs, []
    for at, first, last in departures:
        allowed = (torch.minimum(first, last) <= theirs) & (theirs <= torch.maximum(first, last))
        pointless = (first == last) & (first == ours)
        wrong = torch.where(at, ~allowed | pointless, wrong)
        counts.append(int(at.sum()))
    return counts, positions(wrong)


def with_sign(of, departure):
    """Apply the signs of codes to a predicted difference of magnitudes."""
    at, *ends = departure
    return at, *(torch.where(of < 0, -end, end) for end in ends)
