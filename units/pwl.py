# amaranth: UnusedElaboratable=no
"""Activation functions made of line segments."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

from amaranth.hdl import Cat, Module, Mux, Value

from halfulp.hdl import fixed
from halfulp.hdl.fixed import FixedRaw
from halfulp.hdl.formats import EXACT, RN, Format, Rounding, Saturation
from halfulp.hdl.formats.source import Source
from halfulp.hdl.lines import (
    Blocks,
    Choice,
    as_fixed_raw,
    as_raw,
    by_address,
    by_sign,
    low_bits,
    raised_by,
    search,
    value_of,
    with_values,
)
from halfulp.hdl.number import Number, add, align, multiply
from halfulp.hdl.raw import Raw
from halfulp.hdl.reduce import power_of, reduce, scale, unscaled_where
from halfulp.hdl.specs import Build, PwlSpec
from halfulp.hdl.specs.build import ADDRESS, COMPARATORS, LAZY, STRUCTURES, TABLE
from halfulp.hdl.specs.pieces import PowerSum
from halfulp.hdl.specs.segments import Segments, Special
from halfulp.hdl.wire import NEVER, lookup, wire

from .arithmetic import Arithmetic, Computed

MAX_ADDRESS, SHORT_ADDRESS = 10, 7
"""Maximum address bits of the structure ``address``, and maximum for which it is the default. Each bit of a
coefficient is then one or two LUTs."""

TABLE_WIDTH = 8
"""Maximum width of operands of the structure ``table``."""


@dataclass(frozen=True)
class Flags:
    """Conditions on an operand that select special values.

    Attributes
    ----------
    nan, inf, inf_sign : Value
        The value is NaN, or infinite with this sign.
    negative : Value
        Sign of the operand if the value takes it, else 0.
    zero_sign : Value
        Sign of a zero value.
    """

    nan: Value
    inf: Value
    inf_sign: Value
    negative: Value
    zero_sign: Value


@dataclass(frozen=True)
class SpecialValues:
    """Finite special values that replace the pieces: bit i of ``where`` selects ``values[i]``."""

    where: Value
    values: tuple[Fraction, ...]


class Pwl(Arithmetic):
    """Piecewise linear function of one number, computed exactly and rounded once.

    Formula
    -------
    ``o = round(slope[i] * a + intercept[i])``; ``i`` is the segment that contains ``a``.

    Parameters
    ----------
    table : Segments
        Line segments, with the formats of operand and result.
    fit : PwlSpec, optional
        Description from which the table was fitted; it gives the unit its name. Default: name of the table.
    rounding, saturate, random, seed, build
        As of other units.

    Members
    -------
    a : In(table.fmt)
    o : Out(table.out)

    Raises
    ------
    TypeError, ValueError
        As `Unit`, or if the table does not allow the structure.

    Source
    ------
    Line segments in networks: Jiang et al., ATC 2023.
    """

    SPEC = PwlSpec

    def __init__(
        self,
        *,
        table: Segments,
        fit: PwlSpec | None = None,
        rounding: Rounding | str = RN,
        saturate: Saturation | bool | str = False,
        random: Source | str | None = None,
        seed: int = 1,
        build: Build = Build(),
    ) -> None:
        if not isinstance(table, Segments):
            raise TypeError(f"table must be a Segments, not {type(table).__name__}")
        self.table = table
        function, budget = (str(table), {}) if fit is None else (fit.function, fit.budget)
        given = {"rounding": rounding, "saturate": saturate, "random": random, "seed": seed}
        spec = PwlSpec.of(function=function, a=table.fmt, o=table.out, **budget, **given)
        if spec.rounding == EXACT:
            table.check_exact()
        super().__init__(spec, build=build)

    def check(self) -> None:
        check_structure(self.structure, self.table, self.spec.rounding)

    @property
    def structure(self) -> str:
        """Structure of the unit."""
        return self.build.structure or self.default_structure

    @property
    def default_structure(self) -> str:
        return default_structure(self.table, self.spec.rounding)

    @property
    def structures(self) -> Sequence[str]:
        return STRUCTURES

    @property
    def parameters(self) -> dict[str, Any]:
        return {"table": self.table, "rounding": self.rounding, "saturate": self.saturate}

    @classmethod
    def of(cls, spec: PwlSpec | str, build: Build = Build()) -> Self:
        """Return the unit of a description, with its fitted function; see `Unit.of`."""
        from halfulp.hdl.fit.store import table_of

        spec = PwlSpec.parse(spec)
        given = {name: getattr(spec, name) for name in ("rounding", "random", "seed", "saturate")}
        return cls(table=table_of(spec), fit=spec, **given, build=build)

    @property
    def multiplies(self) -> bool:
        """True if slopes or the reduction need a multiplier rather than a shift or a table."""
        by_slope = self._in_raw or not isinstance(self.table.slope, PowerSum)
        return self.structure != TABLE and (by_slope or self.table.reduction == "exp2")

    @property
    def _in_raw(self) -> bool:
        """True if the lines are evaluated on raw numbers."""
        return self.table.reduction is None and self.table.fmt.spacing != "uniform"

    def logic(self, m: Module) -> None:
        if self.structure != TABLE:
            super().logic(m)
            return
        t = self.table
        codes = [t.code(code, self.rounding, self.saturate) for code in range(1 << t.fmt.width)]
        value = wire(m, lookup(self.a.as_value(), codes), "looked_up")
        m.d.comb += self.o.as_value().eq(value)

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the exact value of the function, with bits below the rounding position merged into sticky."""
        (x,) = operands
        flags, taken = self._specials(m, x)
        x = replace(x, nan=NEVER, inf=NEVER)
        value: Number
        if self.table.reduction is not None:
            value = self._reduced(m, x, flags, taken)
        elif isinstance(x, FixedRaw):
            choice, argument = self._choose_fixed(m, x)
            value = self._line(m, with_values(m, choice, taken), argument)
        else:
            choice = self._choose_raw(m, x, self.a.as_value())
            value = self._raw_line(m, with_values(m, choice, taken), x)
        return with_specials(m, value, flags), random

    # Specials --------------------------------------------------------------------------------------------------

    def _specials(self, m: Module, x: Number) -> tuple[Flags, SpecialValues]:
        """Return the conditions and finite values of the special values."""
        t, zero = self.table, _is_zero(m, x)
        finite = ~x.nan & ~x.inf
        conditions = {
            "nan": x.nan,
            "inf": x.inf & ~x.sign,
            "minus_inf": x.inf & x.sign,
            "zero": zero & finite & ~x.sign,
            "minus_zero": zero & finite & x.sign,
            "negative": x.sign & ~zero & finite,
        }
        nan = inf = inf_sign = plus_zero = minus_zero = NEVER
        where, values = [], []
        for name, special in self._specials_of_operand().items():
            condition = wire(m, conditions[name], f"is_{name}")
            if special == "nan":
                nan = nan | condition
            elif special in ("inf", "-inf"):
                inf = inf | condition
                inf_sign = inf_sign | condition if special == "-inf" else inf_sign
            else:
                value = Fraction(0) if special == "-0" else Fraction(special)
                minus_zero = minus_zero | condition if special == "-0" else minus_zero
                plus_zero = plus_zero | condition
                if not self._given_by_pieces(name, value):
                    where.append(condition)
                    values.append(value)
        odd = t.symmetry == "odd"
        zero_sign = minus_zero | (x.sign & ~plus_zero) if odd else minus_zero
        negative = x.sign if odd and t.reduction is not None else NEVER
        if values:
            negative = negative & ~Cat(*where).any()
        return Flags(nan, inf, inf_sign, negative, zero_sign), SpecialValues(Cat(*where), tuple(values))

    def _specials_of_operand(self) -> dict[str, Special]:
        """Return the special values of the numbers that the operand's format has."""
        t = self.table
        fmt = t.fmt
        given: dict[str, Special | None] = {"nan": t.nan} if fmt.has_nan else {}
        if fmt.has_inf:
            given["inf"] = t.limit(False) if t.inf is None else t.inf
            given["minus_inf"] = t.limit(True) if t.minus_inf is None else t.minus_inf
        given["zero"] = t.zero
        if fmt.has_negative_zero:
            given["minus_zero"] = t.minus_zero
            at_zero = None if t.reduction else t.value(Fraction(0))
            if t.minus_zero is None and at_zero is not None and not self._given_by_pieces("minus_zero", at_zero):
                # The line for numbers below zero has another value at zero.
                given["minus_zero"] = at_zero
        if fmt.lowest < 0:
            given["negative"] = t.negative
        return {name: special for name, special in given.items() if special is not None}

    def _given_by_pieces(self, name: str, value: Fraction) -> bool:
        """Return True if the pieces already give a special value: at zero, or on a constant outermost piece."""
        t = self.table
        if t.reduction is not None or name in ("nan", "negative"):
            return False
        side = t.unfolded(name.startswith("minus"))
        if name in ("zero", "minus_zero"):
            at_zero = [piece for piece in side if piece.start <= 0] or [side[0]]
            return at_zero[-1].intercept == value
        last = side[0] if name == "minus_inf" and t.symmetry is None else side[min(len(t.reached), len(side) - 1)]
        return last.slope == 0 and last.intercept == value

    # Selection of a line ---------------------------------------------------------------------------------------

    def _choose_fixed(self, m: Module, x: FixedRaw) -> tuple[Choice, FixedRaw]:
        """Return the line of a fixed-point number, and the argument that its slope multiplies."""
        t = self.table
        starts = starts_of(t, t.fmt.smallest)
        folded = t.symmetry is not None and x.integer.shape().signed
        sides = [t.unfolded(negative)[: len(starts) + 1] for negative in ((False, True) if folded else (False,))]
        if self.structure == ADDRESS:
            return by_address(m, x, starts, sides)
        if not folded:
            return by_sign(m, self._search(m, x.integer, starts), NEVER, sides, searched=True), x
        # One's complement gives abs(x) - 1, so abs(x) >= start is compared with start - 1 and needs no adder. If starts
        # are multiples of a power of two, the bits below matter only if all are zero, when they would produce a carry.
        sign, low = x.integer[-1], low_bits(len(x.integer) - 1, starts)
        borrowed = wire(m, sign & ~x.integer[:low].any(), "borrowed") if low else sign
        key = Cat(borrowed, x.integer[low:-1] ^ sign.replicate(len(x.integer) - 1 - low))
        starts = [start >> low for start in starts]
        index = self._search(m, key, [2 * start - 1 for start in starts])
        return by_sign(m, index, sign, sides, searched=True), x

    def _choose_raw(self, m: Module, x: Raw, bits: Value) -> Choice:
        """Return the line of a raw number, found by its code in ascending order of the numbers."""
        t, fmt = self.table, self.table.fmt
        folded = t.symmetry is not None
        if t.by_code:
            sides = [t.unfolded(negative) for negative in ((False, True) if folded else (False,))]
            return by_sign(m, wire(m, lookup(bits, t.places), "piece"), x.sign, sides)
        sign, rest = bits[-1], bits[:-1]
        inverted = rest ^ sign.replicate(len(rest))
        if fmt.code_order == "two's complement":
            key = (inverted + sign)[: len(rest)] if folded else bits.as_signed()
        else:
            key = rest if folded else Cat(inverted, sign).as_signed()
        key = wire(m, key, "key")
        starts = starts_of(t, fmt.smallest)
        sides = [t.unfolded(negative)[: len(starts) + 1] for negative in ((False, True) if folded else (False,))]
        if self.structure == ADDRESS:
            blocks = Blocks.of(key, starts)
            sides = [tuple(side[place] for place in blocks.places) for side in sides]
            return by_sign(m, wire(m, blocks.index, "block"), sign, sides)
        return by_sign(m, self._search(m, key, starts), sign, sides)

    def _search(self, m: Module, key: Value, starts: Sequence[int]) -> Value:
        """Return the index of the piece of a key; units with stages have a shorter path with one more comparator."""
        return search(m, key, starts, "piece", fast=self.build.has_stages)

    # Value of a line -------------------------------------------------------------------------------------------

    def _line(self, m: Module, choice: Choice, x: FixedRaw) -> FixedRaw:
        """Return the exact value of a line at a fixed-point number, plus half a unit if the result is rounded so."""
        values = (*self.table.extremes, *(value for slope, value in choice.lines if slope == 0))
        shifts = isinstance(self.table.slope, PowerSum)
        half = self._half
        low, high = min(values) + half, max(values) + half
        value = value_of(m, x, raised_by(choice, half), low, high, dsp=self.build.dsp, shifts=shifts)
        return replace(value, plus_half=bool(half))

    @property
    def _half(self) -> Fraction:
        """Half a unit in the last place, if adding it to the intercepts replaces the adder of the rounding; else 0."""
        t = self.table
        is_fixed = t.out.spacing == "uniform" and t.reduction in (None, "log2")
        return t.out.smallest / 2 if is_fixed and self.rounding == RN else Fraction(0)

    def _raw_line(self, m: Module, choice: Choice, x: Raw) -> Number:
        """Return the value of a line at a raw number."""
        slope = as_raw(m, choice.index, choice.slopes, "slope")
        make: Any = as_fixed_raw if self.table.out.spacing == "uniform" else as_raw
        intercept = make(m, choice.index, choice.intercepts, "intercept")
        product = multiply(m, x, slope, dsp=self.build.dsp)
        aligned = align(m, product, intercept, self.table.out, self.rounding)
        total, _ = add(m, aligned, self.table.out, self.rounding, None, LAZY)
        return total

    def _reduced(self, m: Module, x: Number, flags: Flags, taken: SpecialValues) -> Number:
        """Evaluate the pieces at the reduced argument and undo the reduction."""
        t = self.table
        reduced = reduce(m, x, t, self.rounding, dsp=self.build.dsp)
        if any(taken.values) or (taken.values and t.reduction == "log2"):
            # A special value that replaces the pieces is not scaled, and no power is added to it.
            reduced = unscaled_where(reduced, taken.where.any())
        argument = reduced.argument
        starts = starts_of(t, Fraction(2) ** argument.quantum)
        starts = [start for start in starts if start < 1 << len(argument.integer)]
        side = t.pieces[: len(starts) + 1]
        if self.structure == ADDRESS:
            choice, argument = by_address(m, argument, starts, [side])
        else:
            choice = by_sign(m, self._search(m, argument.integer, starts), NEVER, [side], searched=True)
        choice = with_values(m, choice, taken)
        value = self._line(m, choice, argument)
        if t.reduction == "log2":
            return replace(fixed.add(m, value, power_of(m, reduced), RN), plus_half=value.plus_half)
        number = scale(m, value, reduced)
        return replace(number, sign=number.sign ^ flags.negative)


def with_specials(m: Module, x: Number, flags: Flags) -> Number:
    """Replace a value by NaN, an infinity or a signed zero as the flags require."""
    sign = Mux(flags.inf, flags.inf_sign, Mux(_is_zero(m, x, "value"), flags.zero_sign, x.sign))
    return replace(x, nan=flags.nan, inf=flags.inf, sign=wire(m, sign, "value_sign"))


def _is_zero(m: Module, x: Number, name: str = "a") -> Value:
    if isinstance(x, FixedRaw):
        return wire(m, ~x.integer.any() & ~x.sticky, f"{name}_is_zero")
    return x.zero


def key_of(number: Fraction, fmt: Format) -> int:
    """Return the rank of a number among the codes of a format in ascending order; for zero, of the first zero code."""
    code = fmt.encode(number, EXACT)
    if fmt.code_order == "two's complement":
        return code - (1 << fmt.width) if number < 0 else code
    if number > 0:
        return code
    # Codes below zero are inverted. If subnormals read as zero, the most negative one is the first zero code.
    flushed = fmt.encode(fmt.smallest) - 1 if number == 0 and fmt.flushes else 0
    return ~(code & ((1 << (fmt.width - 1)) - 1) | flushed)


def starts_of(table: Segments, unit: Fraction) -> list[int]:
    """Return the starts of all pieces but the first: keys of codes of floats, else multiples of ``unit``."""
    if table.reduction is None and table.fmt.spacing != "uniform":
        return [key_of(number, table.fmt) for number in table.reached]
    starts = table.reached if table.reduction is None else [piece.start for piece in table.pieces[1:]]
    return [math.ceil(start / unit) for start in starts]


def check_structure(structure: str, table: Segments, rounding: Rounding) -> None:
    """Raise ValueError unless the table allows a structure."""
    if structure == TABLE and table.fmt.width > TABLE_WIDTH:
        raise ValueError(
            f"structure table takes operands of up to {TABLE_WIDTH} bits, and {table.fmt} has {table.fmt.width}"
        )
    if structure == ADDRESS and (bits := address_bits(table)) > MAX_ADDRESS:
        raise ValueError(f"structure address takes up to {MAX_ADDRESS} address bits, and {table} needs {bits}")
    if structure == COMPARATORS and table.by_code:
        raise ValueError(f"comparators need ordered codes, unlike those of {table.fmt}; use address or table")
    if structure == TABLE and rounding.bits:
        raise ValueError(f"structure table cannot round stochastically ({rounding}); use another structure or mode")


def address_bits(table: Segments) -> int:
    """Return the number of leading argument bits that determine the piece."""
    if table.by_code:
        return table.fmt.width
    if table.reduction == "exp2":
        width, unit = max(table.fraction, 1), Fraction(1, 1 << table.fraction)
    elif table.reduction is not None:
        width = table.fmt.precision + (table.reduction == "rsqrt")
        unit = Fraction(1, 1 << (table.fmt.precision - 1))
    else:
        width, unit = table.fmt.width, table.fmt.smallest
    return width - low_bits(width, starts_of(table, unit))


def default_structure(table: Segments, rounding: Rounding) -> str:
    """Return the structure that is expected to be the smallest."""
    if table.fmt.width <= TABLE_WIDTH and not rounding.bits:
        return TABLE
    return ADDRESS if table.by_code or address_bits(table) <= SHORT_ADDRESS else COMPARATORS
