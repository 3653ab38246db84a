"""Common base of units with one rounded result."""

from abc import abstractmethod

from amaranth.hdl import Module, Value

from halfulp.hdl.formats import Rounding
from halfulp.hdl.number import Number

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
