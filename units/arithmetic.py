"""Units with one rounded result, and rounded sums of products."""

from abc import abstractmethod

from amaranth.hdl import Const, Module, Value

from halfulp.hdl.eager import Sum
from halfulp.hdl.formats import Rounding
from halfulp.hdl.multiply import has_speed
from halfulp.hdl.number import Number, add, align, exact_sum, multiply, negate_if
from halfulp.hdl.specs import AddSpec, FmaSpec, LerpSpec, MulSpec
from halfulp.hdl.specs.build import SPEED

from .described import Described

Computed = tuple[Number, Value | None]
"""An exact result and the random word that rounds it."""


class Arithmetic(Described):
    """Unit with one rounded result: unpack, compute, round, pack.

    Subclasses implement the exact computation in ``compute``.

    Members
    -------
    o : Out(o)
    """

    @abstractmethod
    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Compute the exact result of unpacked operands; bits below the rounding position may be merged into sticky.

        The random word is returned unless it is used.
        """

    def logic(self, m: Module) -> None:
        operands = [self.unpacked(m, name) for name in self.spec.operands]
        result, random = self.compute(m, self.word(m), *operands)
        self.connect_results(m, result, random, self.rounding)

    def connect_results(self, m: Module, number: Number, random: Value | None, rounding: Rounding) -> None:
        """Round a number, and connect the ports of its code and its flags."""
        code, flags = self.rounded_with_flags(m, number, random, rounding)
        m.d.comb += self.o.as_value().eq(code)
        if flags is not None:
            m.d.comb += self.flags.eq(flags)

    @property
    def has_only_floats(self) -> bool:
        """True if all operands and the result are floats."""
        return all(fmt.is_floating_point for fmt in (*self.spec.operands.values(), self.result))


class Mul(Arithmetic):
    """Product of two numbers, rounded once.

    Formula
    -------
    ``o = round(a * b)``

    Source
    ------
    Operation and rounding: IEEE 754, 2019, 5.4.1.
    """

    SPEC = MulSpec
    multiplies = True

    @property
    def goals(self) -> tuple[str, ...]:
        return (SPEED,) if has_speed(self.spec.a, self.spec.b, self.result, dsp=self.build.dsp) else ()

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the exact product."""
        a, b = operands
        return multiply(m, a, b, dsp=self.build.dsp, o=self.result, rounding=self.rounding, fast=self.fast), random


class Add(Arithmetic):
    """Sum or difference of two numbers, rounded once.

    Formula
    -------
    ``o = round(a + b)``, and ``o = round(a - b)`` if ``subtract`` is set

    Members
    -------
    subtract : In(1)
        Compute a - b instead of a + b.

    Source
    ------
    Operation and rounding: IEEE 754, 2019, 5.4.1. Stochastic rounding: Ben Ali, Filip and Sentieys, DATE 2024.
    """

    SPEC = AddSpec

    @property
    def sums(self) -> list[Sum]:
        a, b = self.spec.operands.values()
        return [Sum(((a,), (b,)), self.result, self.spec.rounding)]

    @property
    def goals(self) -> tuple[str, ...]:
        return (SPEED,) if self.has_only_floats else ()

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the sum, exact above the rounding position, with lower bits merged into sticky."""
        a, b = operands
        b = negate_if(b, self.subtract)
        aligned = align(m, a, b, self.result, self.rounding, fast=self.fast)
        return add(m, aligned, self.result, self.rounding, random, self.stochastic, fast=self.fast)


class Fma(Arithmetic):
    """Fused multiply-add a * b + c, rounded once.

    Formula
    -------
    ``o = round(a * b + c)``

    Source
    ------
    Operation and rounding: IEEE 754, 2019, 5.4.1.
    """

    SPEC = FmaSpec
    multiplies = True

    @property
    def sums(self) -> list[Sum]:
        spec = self.spec
        return [Sum(((spec.a, spec.b), (spec.c,)), spec.o, spec.rounding)]

    @property
    def goals(self) -> tuple[str, ...]:
        return (SPEED,) if self.has_only_floats else ()

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the product plus c, exact above the rounding position, with lower bits merged into sticky."""
        a, b, c = operands
        # Register stages of one chain of rows would be the slowest ones, and a tree needs few LUTs more.
        in_tree = self.fast or self.build.has_stages
        product = multiply(m, a, b, dsp=self.build.dsp, to=self.spec.operands["c"], fast=in_tree)
        aligned = align(m, product, c, self.result, self.rounding, fast=self.fast)
        return add(m, aligned, self.result, self.rounding, random, self.stochastic, fast=self.fast)


class Lerp(Arithmetic):
    """Linear interpolation between a and b, rounded once.

    Formula
    -------
    ``o = round(a + t * (b - a))``. The difference is exact, so that finite results are ``a`` for ``t`` = 0 and ``b``
    for ``t`` = 1, apart from the sign of a zero.

    Members
    -------
    t : In(t)

    Source
    ------
    Operations and rounding: IEEE 754, 2019, 5.4.1.
    """

    SPEC = LerpSpec
    multiplies = True

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the sum of a and a product, exact above the rounding position, with lower bits merged into sticky."""
        a, b, t = operands
        difference = exact_sum(m, b, negate_if(a, Const(1, 1)), self.rounding)
        product = multiply(m, difference, t, dsp=self.build.dsp, to=self.spec.a)
        aligned = align(m, product, a, self.result, self.rounding)
        return add(m, aligned, self.result, self.rounding, random, self.stochastic)
