"""Design under test, created by the factory."""

from typing import ClassVar

from amaranth.lib.wiring import Component
from pyuvm import ConfigDB, uvm_object

from halfulp.implementation import Implementation
from halfulp.sim.build import Design, design
from halfulp.sim.report import describe


class Dut(uvm_object):
    """Unit under test. An override can create the unit in other formats, or a unit of the user's own.

    Attributes
    ----------
    INSIDE : bool
        True if signals of submodules are accessible by name, for agents inside a design.
    """

    INSIDE: ClassVar[bool] = False

    def request(self) -> Implementation:
        """Return the requested implementation; override it to test the unit in another format or with other options."""
        request: Implementation = ConfigDB().get(None, "", "request")
        return request

    def make(self) -> Component:
        """Create the unit; override it to test a derived class."""
        self.request().check_every_cycle("halfulp uvm")
        return self.request().component()

    def design(self, unit: Component, kind: str) -> Design:
        """Generate the Verilog for a kind of model."""
        return design(unit, (kind,))

    def title(self, unit: Component) -> str:
        """Return the text of the unit, or the name of another component."""
        from halfulp.units import Unit

        return str(Implementation.of(unit)) if isinstance(unit, Unit) else str(unit.name)

    def describe(self, unit: Component) -> str:
        """Describe formats, rounding and latency of the unit."""
        return describe(unit)
