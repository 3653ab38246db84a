"""Comparison, minimum and maximum."""

from amaranth.hdl import Const, Module, Mux, Value, unsigned

from halfulp.hdl.formats import EXACT, RN, Float, Format, Rounding, Span
from halfulp.hdl.raw import Raw, order, unpack
from halfulp.hdl.round import normalise_to, round_and_pack
from halfulp.hdl.wire import wire

from .base import Unit, check_saturate, float_format, random_input


class Compare(Unit):
    """Order of two numbers, with their minimum and maximum.

    NaN is unordered: neither less nor equal. -0 equals +0. Minimum and maximum are those of IEEE 754-2019 (9.6): NaN if
    an operand is NaN, and -0 is less than +0.

    Parameters
    ----------
    a, b : Format or str
        Operand formats; they may differ.
    o : Format or str
        Format of minimum and maximum.
    rounding : Rounding or str
        Rounding of an operand that ``o`` does not hold; ``sr`` modes add the port ``random``.
    saturate : bool
        Overflow gives the largest finite number; an infinite operand stays infinite.
    pipeline : int
        Register cuts; changes ``latency`` and no result bit.

    Members
    -------
    a : In(a)
    b : In(b)
    random : In(rounding.bits)
        Random word of stochastic rounding, for minimum and maximum alike; sampled with the operands.
    en : In(1, init=1)
        Clock enable, with ``pipeline`` only.
    less, equal, unordered : Out(1)
        a < b, a = b, and whether an operand is NaN.
    minimum, maximum : Out(o)

    Raises
    ------
    TypeError, ValueError
        If a parameter is of the wrong kind or out of range, or ``rounding`` is ``exact`` and ``o`` cannot hold every
        operand.

    Latency
    -------
    ``pipeline`` cycles.
    """

    BOUNDARIES = ("unpacked", "ordered", "packed")

    def __init__(
        self,
        *,
        a: Format | str,
        b: Format | str,
        o: Format | str,
        rounding: Rounding | str = RN,
        saturate: bool = False,
        pipeline: int = 0,
    ) -> None:
        self.operands = {"a": float_format("a", a), "b": float_format("b", b)}
        self.result, self.rounding = float_format("o", o), Rounding.parse(rounding)
        self.saturate = check_saturate(saturate)
        if self.rounding == EXACT:
            (Span.of(self.operands["a"]) | Span.of(self.operands["b"])).check_fits(
                self.result, f"number of {a} and {b}"
            )
        super().__init__(
            inputs={**self.operands, **random_input(self.rounding)},
            outputs={
                "less": unsigned(1),
                "equal": unsigned(1),
                "unordered": unsigned(1),
                "minimum": self.result,
                "maximum": self.result,
            },
            name=f"compare_{self.operands['a']}_{self.operands['b']}_{self.result}_{self.rounding}"
            + ("_sat" if saturate else ""),
            pipeline=pipeline,
            parameters={**self.operands, "o": self.result, "rounding": self.rounding, "saturate": saturate},
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pipe = self.start_pipeline(m)
        codes = [getattr(self, name).as_value() for name in self.operands]
        a, b = (unpack(m, code, fmt, name) for code, (name, fmt) in zip(codes, self.operands.items(), strict=True))
        random = self.random if self.rounding.bits else None
        code_a, code_b, a, b, random = pipe.cut("unpacked", *codes, a, b, random)

        less, equal, unordered = self._relations(m, a, b)
        # Of two equal numbers only zeros differ in sign, and then the negative one is the lesser.
        a_first = wire(m, less | (equal & a.sign), "a_first")
        result_a, result_b = (
            self._result(m, code, raw, fmt, random)
            for code, raw, fmt in zip((code_a, code_b), (a, b), self.operands.values(), strict=True)
        )
        less, equal, unordered, a_first, result_a, result_b = pipe.cut(
            "ordered", less, equal, unordered, a_first, result_a, result_b
        )
        nan = Const(self.result.nan_code, self.result.width)
        results = {
            "less": less,
            "equal": equal,
            "unordered": unordered,
            "minimum": Mux(unordered, nan, Mux(a_first, result_a, result_b)),
            "maximum": Mux(unordered, nan, Mux(a_first, result_b, result_a)),
        }
        for (name, _), value in zip(results.items(), pipe.cut("packed", *results.values()), strict=True):
            m.d.comb += Value.cast(getattr(self, name)).eq(value)
        return m

    def _relations(self, m: Module, a: Raw, b: Raw) -> tuple[Value, Value, Value]:
        """Whether a < b, a = b, and whether they have no order."""
        o = order(m, a, b)
        finite = ~a.inf & ~b.inf
        a_magnitude_less = ~a.inf & (b.inf | o.x_less)
        same_number = (o.x_significand == o.y_significand) & (o.x_exponent == o.y_exponent)
        same_magnitude = (a.zero & b.zero) | (a.inf & b.inf) | (finite & ~a.zero & ~b.zero & same_number)
        unordered = wire(m, a.nan | b.nan, "is_unordered")
        equal = ~unordered & same_magnitude & ((a.sign == b.sign) | (a.zero & b.zero))
        magnitude_order = Mux(a.sign, ~a_magnitude_less & ~same_magnitude, a_magnitude_less)
        less = ~unordered & ~(a.zero & b.zero) & Mux(a.sign == b.sign, magnitude_order, a.sign)
        return wire(m, less, "is_less"), wire(m, equal, "is_equal"), unordered

    def _result(self, m: Module, code: Value, raw: Raw, fmt: Float, random: Value | None) -> Value:
        """An operand in the result format. Rounding keeps the order, so it may come before the choice."""
        if fmt == self.result and fmt.subnormals:
            return code
        cut = normalise_to(m, raw, self.result, self.rounding)
        return round_and_pack(m, cut, self.result, self.rounding, self.saturate, random)
