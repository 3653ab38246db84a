"""What is tested, made by the factory so that anyone may put something else in its place."""

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
        Whether signals of submodules are to be seen by name, as an agent inside of a design needs.
    """

    INSIDE: ClassVar[bool] = False

    def request(self) -> Implementation:
        """What was asked for; override it to test the unit in another format or with other options."""
        request: Implementation = ConfigDB().get(None, "", "request")
        return request

    def make(self) -> Any:
        """The unit; override it to test one that is not in the catalogue but derived from one that is."""
        return self.request().component()

    def design(self, unit: Any, kind: str) -> Design:
        """Its Verilog, of which a model of that kind is made."""
        return design(unit, (kind,))

    def title(self, unit: Any) -> str:
        """Text of the unit; the name of a component that is no unit."""
        from halfulp.units import Unit

        return str(Implementation.of(unit)) if isinstance(unit, Unit) else str(unit.name)

    def describe(self, unit: Any) -> str:
        """What it is, in words."""
        return describe(unit)
