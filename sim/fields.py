"""Numbers of a format as arrays: codes from sign, exponent and mantissa, their order, and corner cases."""

from fractions import Fraction
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from halfulp.hdl.formats import RZ, SAT, Format
from halfulp.hdl.formats.base import TABLE_WIDTH, floor_log2
from halfulp.hdl.specs.pieces import last_place
from halfulp.tools.threads import threads

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

TINY_BITS = 5
"""Largest width of a format whose codes are all corner cases."""

TABULATED_BITS = 12
"""Largest width of a format that is read from a table of its values; a table of 2^16 values takes half a second.

Wider formats use the stages of the golden model, unless their codes have no other order than the table.
"""


class Parts(NamedTuple):
    """Fields of numbers (-1)^sign * 1.mantissa * 2^exponent, with flags for zero, infinities and NaN.

    Zero has the smallest exponent minus one; infinities and NaN have the largest exponent plus one.
    """

    sign: Ints
    exponent: Ints
    mantissa: Codes
    zero: Flags
    infinite: Flags
    nan: Flags


class Grid:
    """Numbers of a format, with the same fields for every family.

    A number is (-1)^sign * 1.mantissa * 2^exponent. A code is a sign and a magnitude code, which grows with the
    magnitude. Mantissas have ``man`` bits, the maximum of the format; bits beyond the precision of a number are
    truncated.

    Parameters
    ----------
    fmt : Format

    Attributes
    ----------
    width, precision, quantum : int
        Properties of the format.
    negatives : bool
        True if the format has negative numbers.
    man : int
        Maximum number of mantissa bits, 0 to 63.
    emin : int
        Smallest exponent of numbers with full mantissas; with tapered precision, the smallest exponent.
    emax : int
        Exponent of the largest number.
    max_code : int
        Magnitude code of the largest number.
    top : int
        Largest magnitude code, including special values.
    calm : tuple of int
        First and last exponent of `middling` numbers, around one if the format allows.
    """

    def __init__(self, fmt: Format) -> None:
        if fmt.parts > 1 and fmt.width > TABLE_WIDTH:
            raise ValueError(
                f"{fmt} has {fmt.width} bits; the bench takes compound numbers of up to {TABLE_WIDTH} bits"
            )
        self.fmt, self.width, self.precision, self.quantum = fmt, fmt.width, fmt.precision, fmt.quantum
        self.negatives, self.man = fmt.lowest < 0, fmt.precision - 1
        uniform = fmt.spacing == "uniform"
        self.emax = floor_log2(fmt.largest) if fmt.largest > 0 else fmt.quantum
        self.first_normal = floor_log2(fmt.smallest) if fmt.floor_exponent is None else fmt.floor_exponent
        self.emin = self.emax if uniform else self.first_normal
        exponent_of_one = min(max(0, fmt.quantum if uniform else self.emin), self.emax)
        # Wider fixed-point formats can hold sums of more products.
        above = max(self.man // 4, 1) if uniform else 4
        self.calm = (
            max(exponent_of_one - 4, fmt.quantum if uniform else self.emin),
            min(exponent_of_one + above, self.emax),
        )
        tabulated = fmt.width <= TABULATED_BITS or fmt.code_order == "table"
        self.order = Tabulated(fmt) if tabulated else Staged(fmt)
        self.top = self.order.top
        self.max_code = self.code_of(fmt.largest)

    @staticmethod
    @lru_cache(maxsize=64)
    def of(fmt: Format) -> "Grid":
        """Return the grid of a format."""
        return Grid(fmt)

    # Codes -----------------------------------------------------------------------------------------------------

    def signed(self, sign: Ints, magnitude: Codes) -> Codes:
        """Combine signs and magnitude codes into codes; only the lowest bit of a sign counts."""
        return self.order.signed((sign & 1) * self.negatives, magnitude)

    def unsigned(self, codes: Codes) -> tuple[Ints, Codes]:
        """Split codes into signs and magnitude codes; the inverse of `signed`."""
        return self.order.unsigned(codes)

    def compose(self, sign: Ints, exponent: Ints, mantissa: Ints | Codes) -> Codes:
        """Encode numbers (-1)^sign * 1.mantissa * 2^exponent, truncated to the format; exponents saturate."""
        # Two's complement has one more power of two below zero.
        highest = self.emax + (self.fmt.lowest < -self.fmt.largest)
        mantissa = mantissa.astype(np.uint64) & np.uint64((1 << self.man) - 1)
        return self.order.compose((sign & 1) * self.negatives, np.minimum(exponent, highest), mantissa)

    def parts(self, codes: Codes) -> Parts:
        """Split codes into sign, exponent and mantissa; the inverse of `compose`."""
        return self.order.parts(codes)

    def code_of(self, value: Fraction) -> int:
        """Return the magnitude code of a number, truncated to the format."""
        code = self.fmt.encode(value, RZ, saturate=True)
        return int(self.unsigned(np.array([code], dtype=np.uint64))[1][0])

    def value(self, magnitude: int, negative: int = 0) -> Fraction:
        """Return the absolute value of a finite magnitude code; zero if the format flushes it."""
        sign = np.array([int(negative or magnitude > self.max_code)])
        code = int(self.signed(sign, np.array([magnitude], dtype=np.uint64))[0])
        value = self.fmt.decode(code)
        assert isinstance(value, Fraction)
        return abs(value)

    # Roundings -------------------------------------------------------------------------------------------------

    @cached_property
    def _last_places(self) -> Ints:
        exponents = range(min(self.quantum, self.emin), self.emax + 1)
        return np.array([self._last_place(exponent) for exponent in exponents], dtype=np.int64)

    def _last_place(self, exponent: int) -> int:
        """Return the exponent of the last place of numbers with this exponent."""
        # A result that will be flushed is rounded first, as if the exponent were unbounded.
        precision = self.fmt.precision if self.fmt.flushes else self.fmt.precision_at(exponent)
        if precision > 0:
            return exponent + 1 - precision
        # The format may have numbers with this exponent but not the power of two.
        code = self.code_of(Fraction(2) ** exponent)
        numbers = [self.value(near) for near in (code, code + 1) if 0 < near <= self.max_code]
        return min([exponent, *(last_place(number) for number in numbers if floor_log2(number) == exponent)])

    def last_place(self, exponent: Ints) -> Ints:
        """Return the exponents of the last place of numbers with these exponents."""
        first = min(self.quantum, self.emin)
        places: Ints = self._last_places[np.clip(exponent, first, self.emax) - first]
        return places

    def between(self, magnitude: int, quarters: int, negative: int = 0) -> Fraction:
        """Interpolate between a finite magnitude and the next one; 2 quarters are the tie."""
        last = self.code_of(self.fmt.lowest) if negative else self.max_code
        low = self.value(min(magnitude, last), negative)
        if magnitude >= last:
            return low + quarters * Fraction(2) ** (int(self.last_place(np.array([self.emax]))[0]) - 2)
        high = self.value(magnitude + 1, negative)
        if quarters in (0, 4) or low == high:
            return high if quarters == 4 else low
        half = self.fmt.middle(low, high)
        if quarters == 2:
            return half
        low, high = (low, half) if quarters == 1 else (half, high)
        if self.fmt.rounds == "string" and 0 < 4 * low <= high:
            return Fraction(2) ** ((floor_log2(low) + floor_log2(high)) // 2)
        # Next to a flushed result, the distance to the tie is the same on both sides.
        near = min(half - self.value(magnitude, negative), self.value(magnitude + 1, negative) - half)
        return half + (quarters - 2) * near / 2 if self.fmt.flushes else (low + high) / 2

    def values_near_edges(self, negative: int) -> list[Fraction]:
        """Return magnitudes around the edges of a sign's range: numbers, ties, and values next to ties."""
        edges = sorted(self.edges(negative))
        return [self.between(code, quarters, negative) for code in edges for quarters in range(5)]

    # Corner cases ----------------------------------------------------------------------------------------------

    def edges(self, negative: int) -> dict[int, str]:
        """Return the magnitude codes, with names, where the range of a sign ends or its density changes."""
        fmt = self.fmt
        if negative and not self.negatives:
            return {0: "zero"}
        last = self.code_of(fmt.lowest if negative else fmt.largest)
        named = [(0, "zero"), (self.code_of(fmt.smallest), "the smallest")]
        if fmt.spacing == "relative":
            normal = self.code_of(Fraction(2) ** self.first_normal)
            below = "just below the smallest normal" if fmt.flushes else "the largest subnormal"
            named = [named[0], (normal - 1, below), (normal, "the smallest normal")]
            named[1:1] = [(1, "the smallest")] * (not fmt.flushes)
        if fmt.spacing == "tapered" and fmt.lowest <= 1 <= fmt.largest:
            code_of_one = self.code_of(Fraction(1))
            named += [(code_of_one - 1, "just below one"), (code_of_one, "one")]
        named += [(last - 1, "the second largest"), (last, "the largest")]
        # Some codes coincide in tiny formats; the first name is used.
        return {code: next(text for other, text in named if other == code) for code, _ in sorted(named) if code >= 0}

    def corner_codes(self) -> Codes:
        """Return codes of all special values and of both sides of every boundary; all codes of a tiny format."""
        if self.width <= TINY_BITS:
            return np.arange(1 << self.width, dtype=np.uint64)
        centres = {1, 2, 3, self.top, *self.edges(0), *self.edges(1), *map(self.code_of, self._powers())}
        beyond = np.array([self.fmt.infinity(False), self.fmt.infinity(True), self.fmt.nan_code], dtype=np.uint64)
        centres |= set(map(int, self.unsigned(beyond)[1]))
        near = {centre + step for centre in centres for step in (-1, 0, 1)}
        magnitudes = np.array([code for code in near if 0 <= code <= self.top], dtype=np.uint64)
        sign = np.ones(len(magnitudes), dtype=np.int64)
        return np.unique(np.concatenate([self.signed(sign - 1, magnitudes), self.signed(sign, magnitudes)]))

    def _powers(self) -> list[Fraction]:
        """Return the powers of two where many bits of the code change, and the number 1.5."""
        normal, two, fmt = self.first_normal, Fraction(2), self.fmt
        exponents = {normal - 1, normal, normal + 1, -1, 0, 1, self.emax - 1, self.emax}
        if fmt.regimes:
            numbers = [fmt.regime_at(exponent) for exponent in range(normal, self.emax + 1)]
            starts = [normal + place for place in range(1, len(numbers)) if numbers[place] != numbers[place - 1]]
            # In a wide format, take some of the regime boundaries: those near the ends, near one, and every eighth.
            middle, step = len(starts) // 2, 1 if self.width <= 16 else 8
            exponents |= {*starts[::step], *starts[:6], *starts[middle - 3 : middle + 3], *starts[-6:]}
        return [Fraction(3, 2), *(two**exponent for exponent in exponents)]

    def extremes(self) -> Codes:
        """Return codes of the ends of the range, infinities and NaN."""
        fmt = self.fmt
        ends = {fmt.encode(fmt.lowest, RZ), fmt.encode(fmt.largest, RZ)}
        beyond = {fmt.infinity(negative=False), fmt.infinity(negative=True), fmt.nan_code}
        return np.array(sorted(ends | beyond), dtype=np.uint64)

    # Arrays ----------------------------------------------------------------------------------------------------

    def negated(self, codes: Codes) -> Codes:
        """Negate numbers, if the format has the negated number; NaN keeps its code."""
        sign, magnitude = self.unsigned(codes)
        return np.where(self.parts(codes).nan, codes, self.signed(1 - sign, magnitude))

    def neighbour(self, codes: Codes, steps: Ints) -> Codes:
        """Move codes by ``steps`` away from zero, or toward it if negative, with the same sign."""
        sign, magnitude = self.unsigned(codes)
        raised = magnitude + np.minimum(np.maximum(steps, 0).astype(np.uint64), np.uint64(self.top) - magnitude)
        return self.signed(sign, raised - np.minimum(np.maximum(-steps, 0).astype(np.uint64), raised))

    def room(self, exponent: Ints) -> Ints:
        """Return the widths of significands with these exponents, at least the hidden bit."""
        return np.clip(exponent - self.last_place(exponent) + 1, 1, self.man + 1)

    def significands(self, sign: Ints, exponent: Ints, significand: Codes) -> Codes:
        """Encode (-1)^sign * significand * 2^exponent / 2^(room - 1), with significands of `room` bits."""
        mantissa = significand << (self.man + 1 - self.room(exponent)).astype(np.uint64)
        return self.compose(sign, exponent, mantissa)

    def patterns(self, rng: np.random.Generator, exponent: Ints, place: Ints) -> Codes:
        """Choose mantissas whose bits below 2^place are at, just above or just below a rounding boundary.

        The bits from 2^place up are random, all zeros or all ones.
        """
        n = len(exponent)
        dropped = np.clip(place - exponent + self.man, 0, self.man).astype(np.uint64)
        last = np.clip(self.last_place(exponent) - exponent + self.man, 0, self.man).astype(np.uint64)
        unit, ulp, zero = np.uint64(1) << dropped, np.uint64(1) << last, np.zeros(n, dtype=np.uint64)
        half = unit >> np.uint64(1)
        low = np.choose(
            rng.integers(0, 8, n),
            [zero, ulp, half, half + ulp, half - ulp, unit - ulp, half | (half >> np.uint64(1)), words(rng, n)],
        )
        high = np.choose(rng.integers(0, 4, n), [words(rng, n), words(rng, n), zero, ~zero])
        below = unit - np.uint64(1)
        return ((high & ~below) | (low & below)) & np.uint64((1 << self.man) - 1)

    def middling(self, rng: np.random.Generator, n: int) -> Codes:
        """Choose numbers whose products and sums neither overflow nor underflow soon."""
        exponent = rng.integers(self.calm[0], self.calm[1] + 1, n)
        return self.compose(rng.integers(0, 2, n), exponent, words(rng, n))


class Tabulated:
    """Order and fields of the codes of a format from its table of values, independent of the models.

    For each sign, codes are sorted: zeros, numbers by magnitude, infinities and NaN. Methods are those of `Grid`.
    """

    def __init__(self, fmt: Format) -> None:
        self.man, self.string = fmt.precision - 1, fmt.rounds == "string"
        self.first = floor_log2(fmt.smallest) - 1
        last = floor_log2(max(fmt.largest, -fmt.lowest)) + 1
        count = 1 << fmt.width
        sign, exponent = np.zeros(count, dtype=np.int64), np.full(count, last, dtype=np.int64)
        mantissa = np.zeros(count, dtype=np.uint64)
        zero, infinite, nan = (np.zeros(count, dtype=bool) for _ in range(3))
        for code, value in enumerate(fmt.values):
            sign[code] = fmt.negative(code)
            if isinstance(value, float):
                nan[code], infinite[code] = value != value, value == value
            elif value == 0:
                zero[code], exponent[code] = True, self.first
            else:
                power = floor_log2(abs(value))
                exponent[code], mantissa[code] = power, int((abs(value) / Fraction(2) ** power - 1) * (1 << self.man))
        self._parts = Parts(sign, exponent, mantissa, zero, infinite, nan)
        keys = self._keys(exponent, mantissa)
        keys[zero] = 0
        codes = np.arange(count)
        rows: list[Ints] = []
        for own in (0, 1):
            row = codes[sign == own]
            row = row[np.lexsort((row, nan[row], keys[row]))]
            # Without a negative zero, negative numbers start from the only zero; without any, from the first number.
            starts = own == 0 or (len(row) and zero[row[0]])
            rows.append(row if starts else np.concatenate([rows[0][:1], row]))
        self.top = max(map(len, rows)) - 1
        self._codes = np.array([[*row, *[row[-1]] * (self.top + 1 - len(row))] for row in rows], dtype=np.uint64)
        self._sorted = [keys[row] for row in rows]
        self._zeros = [int(zero[row].sum()) for row in rows]
        self._magnitude = np.zeros(count, dtype=np.uint64)
        for own, row in enumerate(rows):
            mine = sign[row] == own
            self._magnitude[row[mine]] = np.flatnonzero(mine)

    def _keys(self, exponent: Ints, mantissa: Codes) -> Codes:
        """Return integers with the order of the magnitudes."""
        return (exponent - self.first).astype(np.uint64) << np.uint64(self.man) | mantissa

    def signed(self, sign: Ints, magnitude: Codes) -> Codes:
        codes: Codes = self._codes[sign, np.minimum(magnitude, np.uint64(self.top)).astype(np.int64)]
        return codes

    def unsigned(self, codes: Codes) -> tuple[Ints, Codes]:
        return self._parts.sign[codes], self._magnitude[codes]

    def compose(self, sign: Ints, exponent: Ints, mantissa: Codes) -> Codes:
        keys = self._keys(np.maximum(exponent, self.first), mantissa)
        indices = [np.searchsorted(row, keys, side="right") - 1 for row in self._sorted]
        # Take the first of several zeros; with rounding on the code string, a nonzero magnitude never becomes zero.
        indices = [
            np.where(index < zeros, int(self.string), index) for index, zeros in zip(indices, self._zeros, strict=True)
        ]
        return self.signed(sign, np.where(sign == 1, indices[1], indices[0]).astype(np.uint64))

    def parts(self, codes: Codes) -> Parts:
        return Parts._make(column[codes] for column in self._parts)


class Staged:
    """Order of codes that sort as integers, and fields from the stages of the golden model.

    Methods are those of `Grid`. Raises TypeError if the family has no such stages.
    """

    def __init__(self, fmt: Format) -> None:
        from halfulp.golden.codec import stages_of

        self.stages, self.fmt, self.man = stages_of(fmt), fmt, fmt.precision - 1
        self.first, self.last = fmt.quantum - 1, floor_log2(max(fmt.largest, -fmt.lowest)) + 1
        self.ones = np.uint64((1 << fmt.width) - 1)
        self.top = int(self.ones) if fmt.code_order == "unsigned" else int(self.ones) >> 1
        self.top += fmt.code_order == "two's complement"
        # The code after the largest number of two's complement is the lowest number or NaN.
        self.highest = self.top if fmt.has_nan or fmt.code_order != "two's complement" else self.top - 1

    def signed(self, sign: Ints, magnitude: Codes) -> Codes:
        positive = np.minimum(magnitude, np.uint64(self.highest))
        if self.fmt.code_order == "sign-magnitude":
            return sign.astype(np.uint64) << np.uint64(self.fmt.width - 1) | magnitude
        return np.where(sign == 1, (~magnitude + np.uint64(1)) & self.ones, positive)

    def unsigned(self, codes: Codes) -> tuple[Ints, Codes]:
        if self.fmt.code_order == "unsigned":
            return np.zeros(len(codes), dtype=np.int64), codes
        sign = (codes >> np.uint64(self.fmt.width - 1)).astype(np.int64)
        if self.fmt.code_order == "sign-magnitude":
            return sign, codes & np.uint64(self.top)
        return sign, np.where(sign == 1, (~codes + np.uint64(1)) & self.ones, codes)

    def compose(self, sign: Ints, exponent: Ints, mantissa: Codes) -> Codes:
        import torch

        from halfulp.golden.raw import Raw
        from halfulp.golden.wide import Wide

        significand = (mantissa | np.uint64(1 << self.man)).view(np.int64)
        never = torch.zeros(len(mantissa), dtype=torch.bool)
        raw = Raw(
            sign=torch.from_numpy(np.broadcast_to(sign == 1, mantissa.shape).copy()),
            exponent=torch.from_numpy(np.broadcast_to(np.maximum(exponent, self.first), mantissa.shape).copy()),
            significand=Wide.of(torch.from_numpy(significand), self.man + 1),
            nan=never,
            inf=never,
            zero=never,
        )
        with threads(1):
            codes: Codes = self.stages.pack(raw, self.fmt, RZ, SAT, None).numpy().view(np.uint64)
        return codes

    def parts(self, codes: Codes) -> Parts:
        import torch

        with threads(1):
            raw = self.stages.unpack(torch.from_numpy(codes.view(np.int64)), self.fmt)
        significand, length = raw.significand.low64().numpy().view(np.uint64), raw.significand.width - 1
        mantissa = significand << np.uint64(max(self.man - length, 0)) >> np.uint64(max(length - self.man, 0))
        sign, zero, infinite, nan = (flags.numpy() for flags in (raw.sign, raw.zero, raw.inf, raw.nan))
        exponent = np.where(zero, self.first, np.where(infinite | nan, self.last, raw.exponent.numpy()))
        return Parts(sign.astype(np.int64), exponent, mantissa & np.uint64((1 << self.man) - 1), zero, infinite, nan)


def words(rng: np.random.Generator, n: int, width: int = 64) -> Codes:
    """Return random words."""
    return rng.integers(0, (1 << width) - 1, n, dtype=np.uint64, endpoint=True)
