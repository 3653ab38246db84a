"""Delays of operators by target, for the placement of register stages.

A delay includes the net in front of the operator.
"""

from dataclasses import dataclass
from math import log, log2

MARGIN = 1.03
"""Clock by the model, relative to the requested one.

The clock of a unit after place and route is a few percent above or below that of the model. This margin covers most
of that difference, and few units need a stage more.
"""


@dataclass(frozen=True)
class DelayModel:
    """Delays of a device family in picoseconds.

    Attributes
    ----------
    name : str
        Family of devices.
    inputs, widest : int
        Inputs of a lookup table, and of the widest function of several tables and the multiplexers next to them.
    level : int
        A lookup table and the net in front of it.
    wide : int
        Multiplexer that combines two lookup tables to one of one input more.
    chain : int
        Begin and end of a carry chain, with the net in front of it.
    carry : int
        A bit of a carry chain.
    apart : int
        Net between such a multiplexer and a register, if they are not one cell.
    fanout : int
        Each doubling of the readers of a net.
    dsp : int
        A multiplier block.
    register : int
        Clock to output, and setup, of a register, and longer nets of the slowest path.
    fitted : bool
        The constants were fitted to results of place and route.
    source : str
        Origin of the constants.
    """

    name: str
    inputs: int
    widest: int
    level: int
    wide: int
    apart: int
    chain: int
    carry: int
    fanout: int
    dsp: int
    register: int
    fitted: bool
    source: str

    def logic(self, inputs: int) -> int:
        """Return the delay of a function of some inputs; inverters are free.

        It is made of lookup tables with multiplexers, or is a tree of an operator such as OR, which may be
        faster than a function of the widest multiplexers.
        """
        if inputs <= 1:
            return 0
        if inputs <= self.widest:
            return self.level + self.wide * max(inputs - self.inputs, 0)
        return round(self.level * (0.4 + log(inputs, self.inputs + 1)))

    def table(self, inputs: int) -> int:
        """Return the delay of a table of constants."""
        if inputs <= self.widest:
            return self.logic(inputs)
        return self.level + self.level * (inputs - self.inputs) // 2

    def end(self, inputs: int) -> int:
        """Return the additional delay to a register behind a function of some inputs."""
        return self.apart if inputs > self.inputs else 0

    def net(self, readers: int) -> int:
        """Return the additional delay of a net with several readers."""
        return round(self.fanout * log2(readers)) if readers > 1 else 0

    def product(self, first: int, second: int, *, dsp: bool) -> int:
        """Return the delay of a product of two widths that is one operator."""
        if dsp:
            return self.dsp
        return self.chain + self.carry * (first + second) + self.level * (min(first, second) - 1)


ECP5 = DelayModel(
    name="ecp5",
    inputs=4,
    widest=7,
    level=900,
    wide=400,
    apart=600,
    chain=1900,
    carry=36,
    fanout=60,
    dsp=5000,
    register=720,
    fitted=True,
    source="Cells: delays of nextpnr-ecp5, speed grade 6. Nets: place and route of units with register stages; that of "
    "a register has an allowance for the slowest of many paths. Root mean square error: 4.6% of these units, whose "
    "delays are 0.5% too long on average, and 11.3% of operators alone, whose nets are shorter "
    "(fpga/results/delays.csv, halfulp report delays).",
)

# A lookup table of 0.10 ns (0.035 to 0.148) and a net of 0.25 ns. A chain: lookup table 0.05, begin 0.115, end 0.116,
# net 0.25. A bit: an eighth of 0.015 in a CARRY8 and 0.026 between two. A register: 0.093, 0.058 to its input, setup.
XCUP = DelayModel(
    name="xcup",
    inputs=6,
    widest=7,
    level=350,
    wide=100,
    apart=0,
    chain=530,
    carry=5,
    fanout=20,
    dsp=2800,
    register=180,
    fitted=False,
    source="Cells: FloPoCo, VirtexUltrascalePlus.hpp, from timing reports of Vivado for xcvu3p-2. Registers, and nets "
    "of 0.19 to 0.27 ns: a report of Vivado 2021.2 for xczu3eg-1, github.com/gussmith23/lakeroad-evaluation. DSP: an "
    "assumption, half of that of 7 series. Multiplexers and fan-out: estimates.",
)

# A lookup table of 0.124 ns and a net of 0.5 ns. A chain: lookup table and begin 0.532, end 0.222, net 0.5. A bit: a
# quarter of 0.114. A register: 0.518, and setup.
XC7 = DelayModel(
    name="xc7",
    inputs=6,
    widest=7,
    level=624,
    wide=250,
    apart=0,
    chain=1254,
    carry=29,
    fanout=40,
    dsp=5700,
    register=600,
    fitted=False,
    source="FloPoCo, Zynq7000.hpp, from timing reports of Vivado for xc7z020-1. The same carry chains: Project X-Ray, "
    "prjxray-db, artix7/timings/slicel.sdf. DSP, with its first adder: DSP_L.sdf there. Multiplexers and fan-out: "
    "estimates.",
)

MODELS = {model.name: model for model in (ECP5, XC7, XCUP)}
"""Delay models by family of devices."""
