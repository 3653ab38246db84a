"""The function `unit`: from the text of a unit to its component, its golden model and its exact results."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .hdl.specs import UnitSpec
    from .implementation import Implementation


def unit(text: "str | UnitSpec | Implementation") -> "Implementation":
    """Parse the text of a unit, such as ``mac e5m2*e5m2+e6m5.sr10@lfsr16:5``; see `halfulp list grammar`.

    Raises
    ------
    TypeError
        If ``text`` is no str.
    ValueError
        If the text is invalid or the unit cannot be built; the message marks the position in the text.
    """
    from .hdl.specs import UnitSpec
    from .hdl.specs.pwl import PwlSpec, is_table_name
    from .implementation import Implementation

    if isinstance(text, Implementation):
        return text
    implementation = Implementation(UnitSpec.parse(text))
    if isinstance(implementation.spec, PwlSpec) and is_table_name(implementation.spec.function):
        # A table that is not stored is an error here.
        assert implementation.table is not None
    return implementation
