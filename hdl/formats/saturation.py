"""Saturation: which results become the largest finite number of their sign."""

from enum import IntEnum


class Saturation(IntEnum):
    """Results that become the largest finite number of their sign; the names are those of suffixes in texts.

    Attributes
    ----------
    OFF
        None; the rounding mode decides the result of an overflow.
    SAT
        Overflows. An infinite operand stays infinite, and so does a quotient by zero.
    SATFINITE
        Overflows and infinities, as in the saturating mode of OCP's 8-bit formats (OFP8, 2023) and ``.satfinite`` of
        PTX. NaN stays NaN.
    """

    OFF = 0
    SAT = 1
    SATFINITE = 2

    @classmethod
    def of(cls, value: "bool | str | Saturation") -> "Saturation":
        """Return the saturation of a parameter: a bool, for overflows, or a name, such as ``satfinite``.

        Raises
        ------
        TypeError, ValueError
            If the value is neither a bool nor a string, or no name.
        """
        if isinstance(value, (bool, cls)):
            return cls(value)
        if not isinstance(value, str):
            raise TypeError(f"saturate must be a bool or 'satfinite', not {type(value).__name__}")
        if value not in WORDS:
            raise ValueError(f"unknown saturate {value!r}; expected one of {', '.join(WORDS)}")
        return cls(WORDS[value])

    @property
    def word(self) -> str:
        """Name in lowercase letters."""
        return self.name.lower()

    @property
    def suffix(self) -> str:
        """Suffix in texts, such as ``.sat``."""
        return f".{self.word}" if self else ""


WORDS = {one.word: one for one in Saturation}
"""Saturations by name."""

SUFFIXES = tuple(one.word for one in Saturation if one)
"""Words of suffixes in texts."""

OFF, SAT, SATFINITE = Saturation
