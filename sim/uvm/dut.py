"""The design under test, which the factory makes."""

from typing import Any, ClassVar

from pyuvm import ConfigDB, uvm_object

from halfulp.sim.build import Design, design
from halfulp.sim.implementation import Implementation
from halfulp.sim.report import describe


class Dut(uvm_object):
    """The unit under test. An override makes another one: of other formats, or of one's own.

    ConfigDB: ``request``.

    Attributes
    ----------
    INSIDE : bool
        Signals of submodules can be read by name, as an agent inside of a design needs.
    """

    INSIDE: ClassVar[bool] = False

    def request(self) -> Implementation:
        """The requested implementation; override it to test the unit in another format or with other options."""
        request: Implementation = ConfigDB().get(None, "", "request")
        return request

    def make(self) -> Any:
        """The unit; override it to test one that is derived from a unit of the catalogue."""
        return self.request().component()

    def design(self, unit: Any, kind: str) -> Design:
        """Verilog for a model of a kind."""
        return design(unit, (kind,))

    def title(self, unit: Any) -> str:
        """Text of the unit; the name of a component that is no unit."""
        from halfulp.units import Unit

        return str(Implementation.of(unit)) if isinstance(unit, Unit) else str(unit.name)

    def describe(self, unit: Any) -> str:
        """Formats, rounding and latency."""
        return describe(unit)
