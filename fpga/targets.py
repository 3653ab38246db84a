"""Devices that units are synthesised for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A device.

    Parameters
    ----------
    name : str
        What people call it.
    family : str
        What Yosys' ``synth_xilinx`` calls its family.
    part : str
        What the vendor's tools call it.
    lut, ff : int
        Lookup tables and flip-flops that it has.
    source : str
        Where these figures are from.
    """

    name: str
    family: str
    part: str
    lut: int
    ff: int
    source: str


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target(
            name="vu9p",
            family="xcup",
            part="xcvu9p-flga2104-2L-e",
            lut=1_182_240,
            ff=2_364_480,
            source="AMD, UltraScale Architecture and Product Data Sheet: Overview (DS890)",
        ),
    )
}
