"""Description of the class of a number."""

from dataclasses import dataclass

from halfulp.hdl.formats.base import Format

from .formula import Call, Formula, Function
from .unit import UnitSpec

CLASSES = (
    *("negative infinity", "negative normal", "negative subnormal", "negative zero"),
    *("positive zero", "positive subnormal", "positive normal", "positive infinity"),
    *("signalling NaN", "quiet NaN"),
)
"""Classes of numbers from bit 0 on, in the order of RISC-V (Unprivileged ISA, "F" extension, ``FCLASS``)."""


@dataclass(frozen=True)
class ClassifySpec(UnitSpec, form="classify a", summary="class of a, one bit each"):
    """Class of a number (IEEE 754-2019, 5.7.2).

    Parameters
    ----------
    a : Format
        Format of the operand.
    """

    ROUNDS = False
    PORT = False
    NO_FLAGS = "classes signal no exceptions (IEEE 754-2019, 5.7.2)"

    a: Format

    @property
    def formula(self) -> Formula:
        return Formula((Function(("o",), Call("classify", ("a",))),))

    @property
    def classes(self) -> tuple[int, ...]:
        """Bits of the classes that numbers of the format have, in ascending order."""
        a = self.a
        signed = a.lowest < 0
        present = {
            "negative infinity": a.has_inf,
            "negative normal": signed,
            "negative subnormal": a.has_subnormals,
            "negative zero": a.has_negative_zero,
            "positive zero": a.has_zero,
            "positive subnormal": a.has_subnormals,
            "positive infinity": a.has_inf,
            "signalling NaN": a.has_signalling_nan,
            "quiet NaN": a.has_nan,
        }
        return tuple(bit for bit, name in enumerate(CLASSES) if present.get(name, True))
