"""Comparison, minimum and maximum of two numbers."""

from dataclasses import replace
from typing import Any

from amaranth.hdl import Const, Module, Mux, Value, unsigned

from halfulp.hdl.fixed import FixedRaw
from halfulp.hdl.formats import SATFINITE, Format
from halfulp.hdl.number import Number, as_raw, pack, pack_with_flags, raised, truncate
from halfulp.hdl.raw import Anticipated, Raw, order
from halfulp.hdl.specs import CompareSpec
from halfulp.hdl.specs.unit import FLAGS
from halfulp.hdl.wire import NEVER, wire

from .described import Described


class Compare(Described):
    """Comparison of two numbers, with their minimum and maximum.

    NaN is unordered: neither less nor equal. Between two posits, NaR equals itself and is less than every number
    (Standard for Posit Arithmetic, 2022, 5.3). -0 equals +0. Minimum and maximum follow IEEE 754-2019 (9.6): the result
    is NaN or NaR if an operand is, and -0 is less than +0.

    Formula
    -------
    ``less = a < b``, ``equal = a = b``, ``unordered`` if an operand is NaN, ``minimum = round(min(a, b))``,
    ``maximum = round(max(a, b))``

    Members
    -------
    less, equal, unordered : Out(1)
        a < b, a = b, and a or b is NaN.
    minimum, maximum : Out(o)

    Source
    ------
    IEEE 754, 2019, 5.6 and 9.6; Posit Working Group, 2022, 5.3.
    """

    SPEC = CompareSpec

    @property
    def results(self) -> dict[str, Any]:
        bit, o = unsigned(1), self.result
        relations = {"less": bit, "equal": bit, "unordered": bit, "minimum": o, "maximum": o}
        return relations | self.flag_port

    def logic(self, m: Module) -> None:
        code_a, code_b = codes = [getattr(self, name).as_value() for name in self.spec.operands]
        a, b = (self.unpacked(m, name) for name in self.spec.operands)
        random = self.word(m)

        less, equal, unordered, nan = self._relations(m, code_a, code_b, a, b)
        # Equal numbers differ in sign only if both are zero; then the negative zero is the minimum.
        a_first = wire(m, less | (equal & a.sign), "a_first")
        (result_a, flags_a), (result_b, flags_b) = (
            self._result(m, code, raw, fmt, random)
            for code, raw, fmt in zip(codes, (a, b), self.spec.operands.values(), strict=True)
        )
        nan_code = Const(self.result.nan_code, self.result.width)
        results = {
            "less": less,
            "equal": equal,
            "unordered": unordered,
            "minimum": Mux(nan, nan_code, Mux(a_first, result_a, result_b)),
            "maximum": Mux(nan, nan_code, Mux(a_first, result_b, result_a)),
        }
        if self.spec.flags:
            invalid = raised(a).invalid | raised(b).invalid | (0 if self.result.has_nan else 1)
            results["flags"] = Mux(nan, invalid << FLAGS.index("invalid"), flags_a | flags_b)
        for name, value in results.items():
            m.d.comb += Value.cast(getattr(self, name)).eq(value)

    def _relations(
        self, m: Module, code_a: Value, code_b: Value, a: Number, b: Number
    ) -> tuple[Value, Value, Value, Value]:
        """Return the conditions a < b, a = b, unordered, and NaN or NaR present."""
        nan = wire(m, a.nan | b.nan, "is_nan")
        if isinstance(a, FixedRaw) and isinstance(b, FixedRaw):
            quantum = min(a.quantum, b.quantum)
            x, y = (z.integer << (z.quantum - quantum) for z in (a, b))
            return wire(m, x < y, "is_less"), wire(m, x == y, "is_equal"), NEVER, NEVER
        nan_is_ordered = all(fmt.nan_is_ordered for fmt in self.spec.operands.values())
        if nan_is_ordered and self.spec.operands["a"] == self.spec.operands["b"]:
            # Codes of this format are ordered as two's-complement integers, with NaR the least.
            less, equal = code_a.as_signed() < code_b.as_signed(), code_a == code_b
            return wire(m, less, "is_less"), wire(m, equal, "is_equal"), NEVER, nan
        less, equal = self._raw_relations(m, as_raw(m, a, "a"), as_raw(m, b, "b"))
        less, equal = less & ~nan, equal & ~nan
        if nan_is_ordered:
            # NaR is less than every number and equals itself (Standard for Posit Arithmetic, 2022, 5.3).
            less, equal = less | (a.nan & ~b.nan), equal | (a.nan & b.nan)
        return wire(m, less, "is_less"), wire(m, equal, "is_equal"), NEVER if nan_is_ordered else nan, nan

    def _raw_relations(self, m: Module, a: Raw, b: Raw) -> tuple[Value, Value]:
        """Return the conditions a < b and a = b of two numbers that are not NaN."""
        # Without the magnitude, `order` compares exponents and significands, as equality does, and shares its LUTs.
        o = order(m, *(replace(x, anticipated=Anticipated()) for x in (a, b)))
        finite = ~a.inf & ~b.inf
        a_magnitude_less = ~a.inf & (b.inf | o.x_less)
        same_number = (o.x_significand == o.y_significand) & (o.x_exponent == o.y_exponent)
        same_magnitude = (a.zero & b.zero) | (a.inf & b.inf) | (finite & ~a.zero & ~b.zero & same_number)
        equal = same_magnitude & ((a.sign == b.sign) | (a.zero & b.zero))
        magnitude_order = Mux(a.sign, ~a_magnitude_less & ~same_magnitude, a_magnitude_less)
        return ~(a.zero & b.zero) & Mux(a.sign == b.sign, magnitude_order, a.sign), equal

    def _result(self, m: Module, code: Value, number: Number, fmt: Format, random: Value | None) -> tuple[Value, Value]:
        """Round an operand to the result format, and return its flags.

        Rounding is monotonic, so it may precede the selection.
        """
        if self.spec.flags:
            return pack_with_flags(m, number, self.result, self.rounding, self.saturate, random)
        if fmt == self.result and self.result.holds(fmt) and not fmt.flushes and self.saturate != SATFINITE:
            return code, NEVER
        ready = truncate(m, number, self.result, self.rounding)
        return pack(m, ready, self.result, self.rounding, self.saturate, random), NEVER
