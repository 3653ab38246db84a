"""Posits of the golden model and of the formats against SoftPosit.

SoftPosit has posits of 8, 16 and 32 bits with 0, 1 and 2 exponent bits (``posit8``, ``posit16``, ``posit32``), and
those of the standard of 2022, with 2 exponent bits at any width up to 32 (``posit_2``). It rounds like the
standard: on the encoded string, never to zero and never to NaR. Release 0.3.4.4 differs in the cases below. A
condition on the exact result predicts each difference and its code. SoftPosit must differ there and nowhere else. Where
its C code is undefined, the prediction allows several codes.

- ``posit_2`` of 32 bits loses the single exponent bit after a regime of 29 bits (`lost_exponent_bit`).
- ``p32_mul`` rounds 2^119 like 2^118, the midpoint of the two largest posits, to even (`second_bit_lost`).
- ``p32_mulAdd`` ignores the second dropped bit (`second_bit_unseen`), and after regimes of 29 and 30 bits it reads an
  uninitialised variable (`unset_variable`).
- ``pX2_mulAdd`` ignores bits dropped by alignment, 62 places below the larger operand (`tail_forgotten`).
- ``q32_to_p32`` and ``qX2_to_pX2`` ignore bits after the 64th just above the last midpoint (`last_tail_lost`).
  ``q16_fdp_add`` does not set the lower 64 bits of products of 2^37 or more, and shifts those of 2^36 wrongly
  (`unset_half`). ``quire8`` has 32 bits, which 128 products may overflow.
- An integer with only its first bit set becomes NaR, and ``ui64_to_p32`` rounds up to 2^64 from 2^10 below the
  midpoint. A result equal to the least integer becomes one more. NaR as a float64 is infinity, except from ``posit32``.
"""

import functools
import itertools
import math
import os
import random
from dataclasses import dataclass
from fractions import Fraction

import pytest
import softposit
import torch

from halfulp import golden
from halfulp.hdl.formats import POSIT64, RN, RO, RZ, Fixed, Posit
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


# Operations ----------------------------------------------------------------------------------------------------------


def compare(operation, kind):
    """Compare vectors; return their number and the result of `classify`."""
    fmt = kind.fmt
    columns = operands(fmt, 3 if operation == "fma" else 2)
    if directed := DIRECTED.get((operation, str(kind))):
        columns = [torch.cat(pair) for pair in zip(columns, torch.tensor(directed).T, strict=True)]
    ours = signed(by_golden(operation, fmt, columns), fmt)
    theirs = signed(by_softposit(operation, kind, columns), fmt)
    results = Strings.of(by_golden(operation, fmt, columns, Posit(64, fmt.es), RO), fmt)
    departures = [departure(results, fmt, columns) for departure in DEPARTURES.get((operation, str(kind)), [])]
    return len(ours), *classify(ours, theirs, [with_sign(ours, departure) for departure in departures])


@pytest.mark.sampled(12)
@every_type
@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_match_softposit(operation, kind, oracle):
    count, departed, wrong = compare(operation, kind)
    assert count >= min(COUNT, 1 << 16)
    assert all(departed)
    assert wrong == []
    oracle("softposit", {"sub": "add"}.get(operation, operation), count - sum(departed), kind.fmt)


@pytest.mark.sampled(3)
@every_type
def test_compare_matches_softposit(kind, oracle):
    """NaR of SoftPosit, too, is the least posit and equals itself."""
    fmt = kind.fmt
    first, second = operands(fmt, 2)
    columns = [torch.cat([first, first[::8]]), torch.cat([second, first[::8]])]
    ours = golden.compare(*columns, a=fmt, b=fmt, o=fmt)
    for name, wanted in {"lt": ours.less, "eq": ours.equal, "le": ours.less | ours.equal}.items():
        found = torch.tensor(list(call(getattr(softposit, f"{kind.name}_{name}"), kind, columns)))
        assert positions(found != wanted.to(torch.bool)) == []
    oracle("softposit", "compare", len(columns[0]), fmt)


# Conversions ---------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("source", "target"),
    [pair for pair in itertools.product(TYPES, TYPES) if pair[0] != pair[1] or pair[0].name == "pX2"],
    ids=str,
)
def test_convert_matches_softposit(source, target, oracle):
    codes = every_code(source.fmt)
    function = getattr(softposit, f"{source.name}_to_{target.name}")
    theirs = codes_of(call(function, source, [codes], *target.wide), target)
    assert positions(golden.convert(codes, a=source.fmt, o=target.fmt) != theirs) == []
    oracle("softposit", "convert", len(codes), source.fmt, target.fmt)


@every_type
def test_decode_matches_softposit_doubles(kind):
    codes = every_code(kind.fmt)
    function = getattr(softposit, f"convert{kind.name.upper()}ToDouble")
    theirs = torch.tensor(list(call(function, kind, [codes])), dtype=torch.float64)
    ours = golden.decode(codes, kind.fmt)
    nar = codes == kind.fmt.nan_code
    assert positions((ours.view(torch.int64) != theirs.view(torch.int64)) & ~nar) == []
    assert nar.sum() > 0
    assert ours[nar].isnan().all()
    assert theirs[nar].isnan().all() if kind.name == "p32" else (theirs[nar] == math.inf).all()


def reals(fmt, seed=1):
    """Return numbers of a format, midpoints, their neighbours in float64, and others, some out of range."""
    finer = Posit(fmt.width + 1, fmt.es)
    generator = torch.Generator().manual_seed(seed)
    values = golden.decode(sample(finer, generator, COUNT // 4), finer)
    infinity = torch.tensor(math.inf, dtype=torch.float64)
    others = torch.randn(COUNT // 4, dtype=torch.float64, generator=generator)
    scales = torch.randint(-fmt.max_scale - 8, fmt.max_scale + 8, others.shape, generator=generator)
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, -5e-324, 2.0**-1022, 1.7e308, -1.7e308]
    return torch.cat(
        [
            values,
            values.nextafter(infinity),
            values.nextafter(-infinity),
            others * 2.0**scales,
            torch.tensor(special, dtype=torch.float64),
        ]
    )


@every_type
def test_encode_matches_softposit_doubles(kind):
    values = reals(kind.fmt)
    function = getattr(softposit, f"convertDoubleTo{kind.name.upper()}")
    theirs = codes_of((function(value, *kind.wide) for value in values.tolist()), kind)
    assert len(values) >= COUNT
    assert positions(golden.encode(values, kind.fmt) != theirs) == []


INTEGERS = {"i32": Fixed(32, 0), "ui32": Fixed(32, 0, False), "i64": Fixed(64, 0), "ui64": Fixed(64, 0, False)}


def integers(fmt, seed=1):
    """Return values of an integer type: of every length, sums of few powers of two, and neighbours of these."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low, high):
        return torch.randint(low, high, (COUNT // 4,), generator=generator)

    any_length = draw(-(2**63), 2**63 - 1) >> draw(0, 64)
    one = torch.ones_like(any_length)
    near_power = (one << draw(0, 64)) + draw(-2, 3)
    near_sum = near_power + (one << draw(0, 64))
    middle = 1 << (fmt.width - 1)
    values = torch.cat([any_length, near_power, near_sum, -near_sum]).tolist()
    return [(value + middle) % (2 * middle) - middle if fmt.signed else value % (2 * middle) for value in values]


def codes_of_integers(values, fmt):
    """Convert integers to codes of the golden model."""
    codes = (value % (1 << fmt.width) for value in values)
    return torch.tensor([code - (code >> 63 << 64) for code in codes])


@pytest.mark.sampled(6)
@every_type
@pytest.mark.parametrize("name", INTEGERS)
def test_convert_from_integers_matches_softposit(name, kind, oracle):
    fmt = INTEGERS[name]
    values = integers(fmt)
    codes = codes_of_integers(values, fmt)
    function = getattr(softposit, f"{name}_to_{kind.name}")
    theirs = codes_of((function(value, *kind.wide) for value in values), kind)
    ours = golden.convert(codes, a=fmt, o=kind.fmt)
    assert len(codes) >= COUNT
    to_nar = codes == codes_of_integers([1 << (fmt.width - 1)], fmt)
    assert to_nar.sum() > 0
    assert (theirs[to_nar] == kind.fmt.nan_code).all()
    assert (ours[to_nar] != kind.fmt.nan_code).all()
    too_early = torch.zeros_like(to_nar)
    if (name, kind.name) == ("ui64", "p32"):
        # SoftPosit rounds up to 2^64 from 2^10 below the midpoint to the previous posit.
        first, middle = codes_of_integers([(1 << 64) - (1 << 50) - (1 << 10), (1 << 64) - (1 << 50)], fmt)
        too_early = (codes >= first) & (codes < middle)
        assert too_early.sum() > 0
        assert (theirs[too_early] == kind.fmt.encode(1 << 64)).all()
        assert (ours[too_early] == kind.fmt.encode(1 << 64) - 1).all()
    departs = to_nar | too_early
    assert positions((ours != theirs) & ~departs) == []
    oracle("softposit", "convert", int((~departs).sum()), fmt, kind.fmt)


@pytest.mark.sampled(3)
@every_type
@pytest.mark.parametrize("name", INTEGERS)
def test_convert_to_integers_matches_softposit(name, kind, oracle):
    fmt = INTEGERS[name]
    codes = every_code(kind.fmt)
    function = getattr(softposit, f"{kind.name}_to_{name}")
    theirs = codes_of_integers(call(function, kind, [codes]), fmt)
    ours = golden.convert(codes, a=kind.fmt, o=fmt)
    least = codes_of_integers([int(fmt.lowest)], fmt)
    one_more = (ours == least) & fmt.signed
    assert positions(ours + one_more != theirs) == []
    assert (one_more.sum() > 0) == (fmt.signed and kind.fmt.lowest <= fmt.lowest)
    oracle("softposit", "convert", int((~one_more).sum()), fmt, kind.fmt)


# Quires --------------------------------------------------------------------------------------------------------------


def last_middle(fmt):
    """Return the midpoint of the two largest posits, as a longer posit."""
    return Posit(fmt.width + 1, fmt.es).decode(2 * fmt.max_code - 1)


def dots(fmt, seed=1):
    """Return sums of up to 32 products; every second one subtracts some of its products again.

    The first two are just above the last midpoint of two posits, and just below its negative.
    """
    factor = fmt.encode(last_middle(fmt) / fmt.decode(fmt.max_code - 1))
    rows = [[(minus, fmt.max_code - 1, factor), (minus, 1, 1)] for minus in (False, True)]
    generator, rng = torch.Generator().manual_seed(seed), random.Random(seed)
    products = list(zip(*(sample(fmt, generator, COUNT).tolist() for _ in range(2)), strict=True))
    while products:
        row = [(rng.random() < 0.5, *products.pop()) for _ in range(min(rng.randint(1, 32), len(products)))]
        if rng.random() < 0.5:
            row += [(not minus, x, y) for minus, x, y in row[: rng.randint(0, len(row))]]
            rng.shuffle(row)
        rows.append(row)
    return rows


def by_quire(kind, rows):
    """Compute sums of products by SoftPosit's quire, rounded once."""
    name = kind.name.replace("p", "q")
    clear, add, subtract = (getattr(softposit, name + what) for what in ("Clr", "_fdp_add", "_fdp_sub"))
    round_to_posit = getattr(softposit, f"{name}_to_{kind.name}")
    x, y, put = kind.number(), kind.number(), kind.number.v.fset
    numbers = []
    for row in rows:
        quire = clear()
        for minus, first, second in row:
            put(x, first << kind.shift)
            put(y, second << kind.shift)
            quire = (subtract if minus else add)(quire, x, y)
        numbers.append(round_to_posit(quire, *kind.wide))
    return codes_of(numbers, kind)


def exact_products(fmt, rows):
    """Return the exact products of each row, NaN if a factor is NaR."""
    value = functools.lru_cache(1 << 16)(fmt.decode)
    return [[-value(x) * value(y) if minus else value(x) * value(y) for minus, x, y in row] for row in rows]


def last_tail_lost(sums, fmt):
    """Lose bits after the 64th: after the second longest regime the sticky bit is overwritten."""
    middle = last_middle(fmt)
    at = torch.tensor([middle < abs(number) < middle + middle / 2**63 for number in sums])
    code = torch.full(at.shape, fmt.max_code - 1)
    return at, code, code


def unset_half(sums, fmt, products):
    """Allow any lower 64 bits of a product of 2^36 or more that is added to a sum up to 2^8."""
    count = [sum(abs(product) >= 2**36 for product in row) for row in products]
    first, last = (
        signed(torch.tensor([fmt.encode(number + 2**8 * many) for number, many in zip(sums, bounds, strict=True)]), fmt)
        for bounds in ([-many for many in count], count)
    )
    return first != last, first, last


def by_format(fmt, rows):
    """Codes of exact sums by the format itself."""
    return torch.tensor([fmt.encode(sum(row)) for row in exact_products(fmt, rows)])


def by_golden_quire(fmt, rows):
    """Compute sums by steps of the golden quire."""
    minus, first, second = (torch.tensor(column).long() for column in zip(*itertools.chain(*rows), strict=True))
    ends = torch.tensor([len(row) for row in rows]).cumsum(0)
    never = torch.zeros_like(minus)
    clear = never.clone()
    clear[ends[:-1]] = 1
    steps = golden.quire_sequence(first, second, never, minus, never, clear, a=fmt, b=fmt, o=fmt)
    return steps[ends - 1]


def by_golden_dot(fmt, rows):
    """Compute sums by golden dot products, padded with terms of 0."""
    most = max(map(len, rows))
    rows = [[*row, *[(False, 0, 0)] * (most - len(row))] for row in rows]
    minus, first, second = torch.tensor(rows).long().unbind(-1)
    first = torch.where(minus == 1, -first & ((1 << fmt.width) - 1), first)
    return golden.dot(first, second, a=fmt, b=fmt, o=fmt)


def compare_quires(kind, sum_up=by_format):
    """Compare sums; return their number and the result of `classify`."""
    fmt = kind.fmt
    rows = dots(fmt)
    theirs = signed(by_quire(kind, rows), fmt)
    products = exact_products(fmt, rows)
    sums = [sum(row) for row in products]
    ours = signed(sum_up(fmt, rows), fmt)
    departures = []
    if kind.name in ("p32", "pX2"):
        departures.append(with_sign(ours, last_tail_lost(sums, fmt)))
    if str(kind) == "pX2-posit32":
        strings = codes_of_integers([POSIT64.encode(number, RO) for number in sums], POSIT64)
        departures.append(with_sign(ours, lost_exponent_bit(Strings.of(strings, fmt), fmt, [])))
    if kind.name == "p16":
        departures.append(unset_half(sums, fmt, products))
    return len(rows), *classify(ours, theirs, departures)


@pytest.mark.sampled(24, 3)
@every_type
@pytest.mark.parametrize("sum_up", [by_format, by_golden_quire, by_golden_dot])
def test_sums_match_softposit(sum_up, kind, oracle):
    count, departed, wrong = compare_quires(kind, sum_up)
    assert count >= COUNT // 32
    assert all(departed)
    assert wrong == []
    if sum_up is not by_format:
        oracle("softposit", "quire" if sum_up is by_golden_quire else "dot", count - sum(departed), kind.fmt)


def test_quire32_of_softposit_overflows_as_documented():
    """The quire holds sums below 2^19, or 127 squares of the largest posit; 128 give 0, and more change the sign."""
    kind = TYPES[0]
    full = [[(minus, 0x7F, 0x7F)] * 127 for minus in (False, True)]
    beyond = [[(minus, 1, 1), *[(minus, 0x7F, 0x7F)] * 128] for minus in (False, True)]
    rows = [*full, *([*row, row[0]] for row in full), *beyond]
    assert by_quire(kind, rows).tolist() == [0x7F, 0x81, 0, 0, 0x81, 0x7F]
    assert [kind.fmt.encode(sum(row)) for row in exact_products(kind.fmt, rows)] == [0x7F, 0x81] * 3


def test_quire128_of_softposit_shifts_as_documented():
    """2^36 - 2^35 - 2^35 becomes the smallest posit: a shift by 64 bits has no effect and duplicates the product."""
    kind = TYPES[1]
    large, small = kind.fmt.encode(2**18), kind.fmt.encode(2**17)
    rows = [[(False, large, large), (True, large, small), (True, large, small)]]
    assert by_quire(kind, rows).tolist() == [1]
    assert sum(exact_products(kind.fmt, rows)[0]) == 0


# The comparison itself -----------------------------------------------------------------------------------------------


DAMAGES = {
    "lost sticky": lambda decision: decision | {"sticky": torch.zeros_like(decision["sticky"])},
    "ties up": lambda decision: decision | {"last": torch.ones_like(decision["last"])},
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@every_type
def test_softposit_comparison_detects_wrong_decision(kind, damage, monkeypatch):
    right = golden.round.round_up
    monkeypatch.setattr(golden.round, "round_up", lambda mode, **decision: right(mode, **damage(decision)))
    assert len(compare("mul", kind)[-1]) > 10


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", TYPES[:2], ids=str)
def test_softposit_comparison_detects_wrong_mode(kind, monkeypatch):
    monkeypatch.setattr(Posit, "encode_magnitude", functools.partialmethod(truncated, Posit.encode_magnitude))
    assert len(compare_quires(kind)[-1]) > 10


def truncated(fmt, right, magnitude, negative, rounding, random, saturate):
    """Encode a magnitude by truncation, independent of the mode."""
    return right(fmt, magnitude, negative, RZ, random, saturate)
