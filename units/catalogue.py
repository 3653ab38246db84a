"""Catalogue of units, which the bench, the command line, sweeps and reports iterate over."""

from dataclasses import dataclass
from typing import Any

from halfulp import units
from halfulp.hdl.formats.checks import did_you_mean
from halfulp.hdl.specs import UNITS, Build, UnitSpec
from halfulp.units.composed import Composed
from halfulp.units.described import Described


@dataclass(frozen=True)
class CatalogueRow:
    """Catalogue row of a unit.

    Attributes
    ----------
    name : str
        Name of the unit in texts, and of its golden function in ``halfulp.golden``.
    spec : type of UnitSpec
        Class of the unit's descriptions.
    unit : type of Described
        Class of the unit's components.
    """

    name: str
    spec: type[UnitSpec]
    unit: type[Described]

    @property
    def summary(self) -> str:
        """One-line summary of the computation."""
        return self.spec.SUMMARY

    @property
    def stateful(self) -> bool:
        """True if results depend on earlier operands."""
        return self.unit.stateful


_UNITS = {unit.SPEC: unit for unit in vars(units).values() if isinstance(unit, type) and issubclass(unit, Described)}

COMPOSED: dict[type[UnitSpec], type[Composed]] = {
    unit.SPEC: unit for unit in vars(units).values() if isinstance(unit, type) and issubclass(unit, Composed)
}
"""Composed units by the classes of their descriptions; they take vectors, and are in no check of all units."""

CATALOGUE = {name: CatalogueRow(name, UNITS[name], _UNITS[UNITS[name]]) for name in sorted(UNITS)}
"""Catalogue rows by unit name, in alphabetical order."""


def row(name: str) -> CatalogueRow:
    """Return the catalogue row of a unit; raise ValueError if the name is unknown."""
    if name not in CATALOGUE:
        hint = did_you_mean(name, CATALOGUE, f"the units are {', '.join(CATALOGUE)}")
        raise ValueError(f"unknown unit {name!r}; {hint}")
    return CATALOGUE[name]


def component(spec: UnitSpec | str, build: Build = Build()) -> Any:
    """Return the component of a description.

    Raises
    ------
    TypeError, ValueError
        If the text describes no unit, or a field of ``build`` has no effect on it.
    """
    spec = UnitSpec.parse(spec)
    if (composed := COMPOSED.get(type(spec))) is not None:
        return composed.of(spec, build)
    return CATALOGUE[spec.form.unit].unit.of(spec, build)
