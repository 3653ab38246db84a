# ruff: noqa: PLC0414
"""Catalogue of units, which the bench, the command line, sweeps and reports iterate over.

A class that is imported under its own name is exported, here and by `halfulp.units`.
"""

from dataclasses import dataclass

from halfulp.hdl.specs import Build, UnitSpec

from .accumulate import Accumulate as Accumulate
from .activation import PiecewiseLinear as PiecewiseLinear
from .add import Add as Add
from .base import Unit
from .block import BlockDot as BlockDot
from .block import BlockMac as BlockMac
from .classify import Classify as Classify
from .compare import Compare as Compare
from .convert import Convert as Convert
from .div import Div as Div
from .dot import Dot as Dot
from .fma import Fma as Fma
from .join import Join as Join
from .logb import LogB as LogB
from .mac import Mac as Mac
from .mul import Mul as Mul
from .partmac import PartMac as PartMac
from .quantize import BlockDequantize as BlockDequantize
from .quantize import BlockQuantize as BlockQuantize
from .quire import Quire as Quire
from .reciprocal import Reciprocal as Reciprocal
from .rint import Round as Round
from .rsqrt import Rsqrt as Rsqrt
from .scaleb import ScaleB as ScaleB
from .sparsedot import SparseDot as SparseDot
from .split import Split as Split
from .sqrt import Sqrt as Sqrt
from .stochastic import StochasticRounder as StochasticRounder


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
_UNITS += (Div, Reciprocal, Sqrt, Rsqrt, Round, LogB, ScaleB, Classify)

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
