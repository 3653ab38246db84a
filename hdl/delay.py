"""Delays of operators by target, for the placement of register stages.

A delay includes the net in front of the operator.
"""

from dataclasses import dataclass
from math import log, log2


@dataclass(frozen=True)
class DelayModel:
    """Delays of a device family in nanoseconds.

    Attributes
    ----------
    name : str
        Family of devices.
    inputs, widest : int
        Inputs of a lookup table, and of the widest function of several tables and the multiplexers next to them.
    level : float
        A lookup table and the net in front of it.
    wide : float
        Multiplexer that combines two lookup tables to one of one input more.
    chain : float
        Begin and end of a carry chain, with the net in front of it.
    carry : float
        A bit of a carry chain.
    fanout : float
        Each doubling of the readers of a net.
    dsp : float
        A multiplier block.
    register : float
        Clock to output, and setup, of a register.
    fitted : bool
        The constants were fitted to results of place and route.
    source : str
        Origin of the constants.
    """

    name: str
    inputs: int
    widest: int
    level: float
    wide: float
    chain: float
    carry: float
    fanout: float
    dsp: float
    register: float
    fitted: bool
    source: str

    def logic(self, inputs: int) -> float:
        """Return the delay of a function of some inputs: one lookup table, or a tree; inverters are free."""
        if inputs <= 1:
            return 0.0
        if inputs <= self.widest:
            return self.level + self.wide * max(inputs - self.inputs, 0)
        return self.level * (0.4 + log(inputs, self.inputs + 1))

    def table(self, inputs: int) -> float:
        """Return the delay of a table of constants."""
        if inputs <= self.widest:
            return self.logic(inputs)
        return self.level * (1 + (inputs - self.inputs) / 2)

    def net(self, readers: int) -> float:
        """Return the additional delay of a net with several readers."""
        return self.fanout * log2(readers) if readers > 1 else 0.0

    def product(self, first: int, second: int, *, dsp: bool) -> float:
        """Return the delay of a product of two widths that is one operator."""
        if dsp:
            return self.dsp
        return self.chain + self.carry * (first + second) + self.level * (min(first, second) - 1)


ECP5 = DelayModel(
    name="ecp5",
    inputs=4,
    widest=5,
    level=1.1,
    wide=0.20,
    chain=1.90,
    carry=0.036,
    fanout=0.06,
    dsp=5.0,
    register=0.7,
    fitted=False,
    source="",
)
