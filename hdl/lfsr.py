"""Hardware of random sources: LFSRs and plateau sources."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Signal, Value

from .formats.source import Source
from .wire import wire


def source_word(m: Module, source: Source, seeds: Sequence[int], step: Value, name: str) -> Value:
    """Add random sources of one kind to a module and return the bits of their registers, in turn.

    Parameters
    ----------
    m : Module
        Module for the registers, in the domain ``sync``.
    source : Source
    seeds : sequence of int
        State of each source after reset. The first one gives the first word.
    step : Value
        Advance to the next word in the next cycle.
    name : str
    """
    for seed in seeds:
        source.check_seed(seed)
    state = _ring(f"{name}_lfsr", source.register, [seed & ((1 << source.register) - 1) for seed in seeds])
    shifted_in = Cat(*(state[0][tap - 1] for tap in source.taps)).xor()
    following = Cat(shifted_in, state[0][:-1])
    with m.If(step):
        m.d.sync += [now.eq(after) for now, after in zip(state, [*state[1:], following], strict=True)]
    if not source.inverting:
        return state[0]
    inverted = _ring(f"{name}_inverted", 1, [seed >> source.register for seed in seeds])
    with m.If(step):
        # The flag toggles when the LFSR returns to 1.
        toggled = inverted[0] ^ (following == 1)
        m.d.sync += [now.eq(after) for now, after in zip(inverted, [*inverted[1:], toggled], strict=True)]
    # A named signal, so that several users share one set of gates.
    return wire(m, state[0] ^ inverted[0].replicate(source.register), f"{name}_word")


def _ring(name: str, width: int, values: Sequence[int]) -> list[Signal]:
    """Create registers with these values after reset; the first one has the plain name."""
    return [Signal(width, init=value, name=name + f"_{turn}" * (turn > 0)) for turn, value in enumerate(values)]
