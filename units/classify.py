"""Class of a number."""

from typing import Any

from amaranth.hdl import Cat, Module, Value, unsigned

from halfulp.hdl.fixed import FixedRaw
from halfulp.hdl.number import is_signalling
from halfulp.hdl.raw import Raw
from halfulp.hdl.specs.classify import CLASSES, ClassifySpec
from halfulp.hdl.wire import NEVER

from .described import Described


class Classify(Described):
    """Class of a number, as one of ten bits.

    Formula
    -------
    One bit of ``o`` is 1: bit 0 for negative infinity, 1 negative normal, 2 negative subnormal, 3 negative zero,
    4 positive zero, 5 positive subnormal, 6 positive normal, 7 positive infinity, 8 signalling NaN, 9 quiet NaN.

    Only floats have subnormal numbers and signalling NaNs; NaR is a quiet NaN, and all other numbers are normal.
    Subnormal codes that read as zero are zeros.

    Members
    -------
    o : Out(10)

    Source
    ------
    Classes: IEEE 754, 2019, 5.7.2. Order of the bits: instruction ``FCLASS`` of the RISC-V Unprivileged ISA.
    """

    SPEC = ClassifySpec

    @property
    def results(self) -> dict[str, Any]:
        return {"o": unsigned(len(CLASSES))}

    def logic(self, m: Module) -> None:
        bits, fmt = self.a.as_value(), self.spec.a
        number = self.unpacked(m, "a")
        zero = ~bits.any() if isinstance(number, FixedRaw) else number.zero
        signalling = is_signalling(bits, fmt)
        subnormal: Value = NEVER
        if isinstance(number, Raw) and fmt.floor_exponent is not None:
            # The significand of a float has a leading zero if it is subnormal.
            subnormal = ~number.significand[-1] & ~zero
        normal = ~(zero | subnormal | number.inf | number.nan)
        kinds = (number.inf & ~number.nan, normal, subnormal, zero & ~number.nan & ~number.inf)
        negative = Cat(kind & number.sign for kind in kinds)
        positive = Cat(kind & ~number.sign for kind in reversed(kinds))
        m.d.comb += self.o.eq(Cat(negative, positive, signalling, number.nan & ~signalling))
