"""Structure of a unit in hardware, which changes no result."""

from collections.abc import Collection
from dataclasses import dataclass, fields

from halfulp.hdl.formats.checks import check_bool, check_int, check_one_of

MAX_PIPELINE = 64
"""Most register stages of a unit; more only costs registers."""

LAZY, EAGER = STOCHASTIC = ("lazy", "eager")
"""Structures of stochastic rounding in a floating-point adder."""

COMPARATORS, ADDRESS, TABLE = STRUCTURES = ("comparators", "address", "table")
"""Structures of a piecewise-linear function."""

_NEEDS = {
    "dsp": "a unit that multiplies has products for DSP blocks",
    "stochastic": "a floating-point adder that rounds by sr has two structures",
    "structure": "a piecewise-linear function has structures",
    "reset_less": "a unit with register stages has registers of data",
}


@dataclass(frozen=True)
class Build:
    """Hardware structure of a unit. No field changes a result bit; a unit refuses a field that has no effect on it.

    Parameters
    ----------
    pipeline : int
        Register stages, 0 to 64, each of which adds a cycle of latency. They stand before an accumulator, whose loop
        stays one cycle long, and behind one that is exact. Of every unit and array.
    dsp : bool
        Products are left to the DSP blocks of the device, where factors are long enough for these, instead of made of
        lookup tables. Of units that multiply: ``mul``, ``fma``, ``mac``, ``quire``, ``dot``, ``pwl`` (but as a table)
        and arrays.
    stochastic : str, optional
        Structure of stochastic rounding behind a floating-point adder. ``lazy`` adds the random word to the normalised
        sum; ``eager`` adds it before, on a shorter path. Default: ``lazy``, which mostly takes fewer lookup tables
        (`halfulp report adders` has both). Of ``add``, ``fma``, ``mac``, ``accumulate``, arrays, and ``dot`` in
        sequential order, where sums of floats are rounded by ``sr``.
    structure : str, optional
        Structure of a piecewise-linear function. ``comparators`` compares the operand with starts of pieces;
        ``address`` finds the piece by the operand's first bits; ``table`` holds all results, of formats of up to 8
        bits and without random words. Default: the one that is expected to be the smallest. Of ``pwl``.
    reset_less : bool
        Register stages have no reset, but for the one bit that says if there are operands. Sources and accumulators
        have one. Of units and arrays with ``pipeline``.

    Raises
    ------
    TypeError, ValueError
        If a field is of the wrong kind or out of range.

    Notes
    -----
    ``str()`` is the suffix that names of modules take, such as ``eager_p3``; of a default build it is empty.
    """

    pipeline: int = 0
    dsp: bool = False
    stochastic: str | None = None
    structure: str | None = None
    reset_less: bool = False

    def __post_init__(self) -> None:
        check_int("pipeline", self.pipeline, "build", 0, MAX_PIPELINE)
        check_bool("dsp", self.dsp, "build")
        check_bool("reset_less", self.reset_less, "build")
        for field, known in (("stochastic", STOCHASTIC), ("structure", STRUCTURES)):
            value = getattr(self, field)
            if value is None:
                continue
            if not isinstance(value, str):
                raise TypeError(f"{field} of a build is a text, not {type(value).__name__}")
            check_one_of(field, value, known)

    def check_effect(self, unit: str, fields: Collection[str]) -> None:
        """Raise ValueError if a field is set that is not among those with an effect on a unit."""
        for field, need in _NEEDS.items():
            if field not in fields and getattr(self, field) != getattr(Build, field):
                raise ValueError(f"{field} {getattr(self, field)} has no effect on {unit}; only {need}")

    @property
    def options(self) -> list[str]:
        """Options of the command line for this build; empty for the default one."""
        words = []
        for item in fields(self):
            value = getattr(self, item.name)
            if value != item.default:
                option = f"--{item.name.replace('_', '-')}"
                words += [option] if value is True else [option, str(value)]
        return words

    def __str__(self) -> str:
        stages = self.pipeline and f"p{self.pipeline}"
        parts = [self.structure, self.stochastic, self.dsp and "dsp", stages, self.reset_less and "reset_less"]
        return "_".join(part for part in parts if part)
