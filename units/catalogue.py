"""The catalogue of units: bench, command line, sweeps and reports iterate over it."""

from dataclasses import dataclass

from halfulp.hdl.specs import Build, UnitSpec

from .accumulate import Accumulate
from .activation import PiecewiseLinear
from .add import Add
from .base import Unit
from .compare import Compare
from .convert import Convert
from .dot import Dot
from .fma import Fma
from .mac import Mac
from .mul import Mul
from .quire import Quire
from .stochastic import StochasticRounder


@dataclass(frozen=True)
class Row:
    """One unit of the library.

    Attributes
    ----------
    name : str
        Name of the unit in texts, and of its function in ``halfulp.golden``.
    spec : type of UnitSpec
        Class of its descriptions.
    unit : type of Unit
        Class of its components.
    """

    name: str
    spec: type[UnitSpec]
    unit: type[Unit]

    @property
    def summary(self) -> str:
        """The computation in a line."""
        return self.spec.SUMMARY

    @property
    def stateful(self) -> bool:
        """Results depend on earlier operands."""
        return self.unit.stateful


_UNITS: tuple[type[Unit], ...] = (Mul, Add, Fma, Mac, Accumulate, Quire, Dot)
_UNITS += (StochasticRounder, Convert, PiecewiseLinear, Compare)

CATALOGUE = {name: Row(name, unit.SPEC, unit) for unit in _UNITS for name in [unit.SPEC.form.unit]}
"""Rows by name, in the order in which lists show them."""


def row(name: str) -> Row:
    """Row of a unit; ValueError if there is none of that name."""
    if name not in CATALOGUE:
        raise ValueError(f"unknown unit {name!r}; the units are {', '.join(CATALOGUE)}")
    return CATALOGUE[name]


def component(spec: UnitSpec | str, build: Build = Build()) -> Unit:
    """Component of a description.

    Raises
    ------
    TypeError, ValueError
        If the text describes no unit, or a field of ``build`` has no effect on it.
    """
    spec = UnitSpec.parse(spec)
    return CATALOGUE[spec.form.unit].unit.of(spec, build)
