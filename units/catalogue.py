"""Catalogue of units, which the bench, the command line, sweeps and reports iterate over."""

from dataclasses import dataclass

from halfulp.hdl.specs import Build, UnitSpec

from .accumulate import Accumulate
from .activation import PiecewiseLinear
from .add import Add
from .base import Unit
from .block import BlockDot, BlockMac
from .compare import Compare
from .convert import Convert
from .div import Div
from .dot import Dot
from .fma import Fma
from .join import Join
from .logb import LogB
from .mac import Mac
from .mul import Mul
from .partmac import PartMac
from .quantize import BlockDequantize, BlockQuantize
from .quire import Quire
from .reciprocal import Reciprocal
from .rint import Round
from .rsqrt import Rsqrt
from .sparsedot import SparseDot
from .split import Split
from .sqrt import Sqrt
from .stochastic import StochasticRounder


@dataclass(frozen=True)
class Row:
    """Catalogue row of a unit.

    Attributes
    ----------
    name : str
        Name of the unit in texts, and of its golden function in ``halfulp.golden``.
    spec : type of UnitSpec
        Class of the unit's descriptions.
    unit : type of Unit
        Class of the unit's components.
    """

    name: str
    spec: type[UnitSpec]
    unit: type[Unit]

    @property
    def summary(self) -> str:
        """One-line summary of the computation."""
        return self.spec.SUMMARY

    @property
    def stateful(self) -> bool:
        """True if results depend on earlier operands."""
        return self.unit.stateful


_UNITS: tuple[type[Unit], ...] = (Mul, Add, Fma, Mac, Accumulate, Quire, Dot, SparseDot)
_UNITS += (StochasticRounder, Convert, PiecewiseLinear, Compare, Split, Join, PartMac)
_UNITS += (BlockQuantize, BlockDequantize, BlockDot, BlockMac)
_UNITS += (Div, Reciprocal, Sqrt, Rsqrt, Round, LogB)

CATALOGUE = {name: Row(name, unit.SPEC, unit) for unit in _UNITS for name in [unit.SPEC.form.unit]}
"""Catalogue rows by unit name, in display order."""


def row(name: str) -> Row:
    """Return the catalogue row of a unit; raise ValueError if the name is unknown."""
    if name not in CATALOGUE:
        raise ValueError(f"unknown unit {name!r}; the units are {', '.join(CATALOGUE)}")
    return CATALOGUE[name]


def component(spec: UnitSpec | str, build: Build = Build()) -> Unit:
    """Return the component of a description.

    Raises
    ------
    TypeError, ValueError
        If the text describes no unit, or a field of ``build`` has no effect on it.
    """
    spec = UnitSpec.parse(spec)
    return CATALOGUE[spec.form.unit].unit.of(spec, build)
