"""Correctly rounded functions of one number."""

from fractions import Fraction

from amaranth.hdl import Module, Value

from halfulp.hdl.number import Number, as_raw
from halfulp.hdl.polynomials import function_of, tabulated
from halfulp.hdl.specs import FunctionSpec
from halfulp.hdl.specs.function import TABLE_WIDTH
from halfulp.hdl.specs.polynomials import Result
from halfulp.hdl.wire import lookup, wire

from .arithmetic import Arithmetic, Computed


class Function(Arithmetic):
    """Function of one number, correctly rounded: the exact value is rounded once, or faithfully in wide formats.

    Operands of up to 8 bits select their result from a table. For wider ones, a table of polynomials approximates the
    function, and every number of the operand's format is checked to round as the exact value does, when the table is
    made. Elaboration makes it, or takes it from the cache. Formats of more than 16 bits need the rounding ``faithful``,
    with which a proof bounds all errors by less than one last place instead.

    Formula
    -------
    ``o = round(function(a))``. The logarithm of zero is minus infinity; the logarithm of a negative number, and the
    sine and cosine of an infinity, are NaN.

    Source
    ------
    Functions: IEEE 754, 2019, 9.2. Intervals of correct results: Lim and Nagarakatte, POPL 2022. Argument reduction:
    Muller, Elementary Functions, 2016, chapter 11.
    """

    SPEC = FunctionSpec

    def check(self) -> None:
        spec = self.spec
        if spec.rounding.bits and not self._is_table:
            raise ValueError(
                f"RTL of function rounds stochastically for operands of up to {TABLE_WIDTH} bits, and {spec.a} has "
                f"{spec.a.width}; choose another rounding, or convert the operand"
            )

    @property
    def multiplies(self) -> bool:
        """True if polynomials need multipliers."""
        return not self._is_table

    @property
    def _is_table(self) -> bool:
        return self.spec.a.width <= TABLE_WIDTH

    def logic(self, m: Module) -> None:
        rounding = self.spec.rounding
        if not self._is_table or rounding.bits or rounding.is_port or self.spec.flags:
            super().logic(m)
            return
        value = wire(m, lookup(self.a.as_value(), self._codes()), "looked_up")
        m.d.comb += self.o.as_value().eq(value)

    def _results(self) -> list[Result]:
        from halfulp.hdl.fit.cells import results_of

        return results_of(self.spec)

    def _codes(self) -> list[int]:
        """Return the codes of the results for all codes of the operand."""
        o, saturate, codes = self.spec.o, self.spec.saturate, []
        for magnitude, negative, *_ in self._results():
            if isinstance(magnitude, Fraction):
                codes.append(o.encode_magnitude(magnitude, negative, self.spec.rounding, 0, saturate))
            else:
                codes.append(o.nan_code if magnitude != magnitude else o.infinite(negative, saturate))
        return codes

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return a number that rounds as the value of the function."""
        if self._is_table:
            return tabulated(m, self.a.as_value(), self._results()), random
        # mpmath, which makes tables, loads slowly.
        if self.spec.rounding.faithful:
            from halfulp.hdl.fit.faithful import table_of
        else:
            from halfulp.hdl.fit.polynomials import table_of

        x = as_raw(m, operands[0], "a")
        number = function_of(m, x, self.spec.function, table_of(self.spec), dsp=self.build.dsp)
        return number, random
